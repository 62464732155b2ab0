"""The books of the shards, as a query's progress tells them, fold into one report."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import Row

import penstock as pen
from penstock.errors import InputError
from penstock.spark.books import books_of
from streaming import ticking

TABLES = [ticking(seed, 200) for seed in (1, 2)]


def progress(**metrics: Any) -> Any:
    return SimpleNamespace(observedMetrics=metrics)


def observed(shown: str, **arguments: Any) -> tuple[Row, pen.Report]:
    """Return what one shard's books make a query observe, and the report they came from."""
    report = pen.run(*TABLES, **{"on": "k", "time": "ts", "window": "30 seconds", **arguments}).report
    return Row(policy=shown, mode="shed", books=books_of(report)), report


def test_a_report_survives_the_way_through_a_query() -> None:
    """On Spark Connect it comes as values and a schema, or without what is null."""
    row, wanted = observed("prob(statistics=decayed)", memory=20, policy="prob", importance="w")
    known = row.asDict()
    connect = Row(
        values=list(known.values()), schema={"type": "struct", "fields": [{"name": name} for name in known]}
    )
    for shape in (row, connect):
        query = SimpleNamespace(recentProgress=[progress(other=row), progress(penstock_1=shape), progress()])
        found = pen.report(query)
        assert {**found.to_dict(), "policy": ""} == {**wanted.to_dict(), "policy": ""}
        assert found.balanced


def test_the_last_micro_batch_with_rows_counts() -> None:
    row, wanted = observed("exact")
    nothing = Row(policy="exact", mode="shed", books="")
    for quiet in (nothing, Row(policy="exact")):
        query = SimpleNamespace(recentProgress=[progress(penstock_1=row), progress(penstock_1=quiet)])
        assert pen.report(query) == wanted


def test_a_cap_on_keys_is_not_taken_for_exact() -> None:
    row, wanted = observed("exact", per_key=2)
    found = pen.report(SimpleNamespace(recentProgress=[progress(penstock_1=row)]))
    assert found.shed["per_key"].total > 0
    assert wanted.recall is not None
    assert found.recall == wanted.recall
    assert found.recall.high < 1


def test_recall_is_not_known_if_one_shard_does_not_know_it() -> None:
    whole, _ = observed("exact")
    cpu = pen.cpu(comparisons_per_second=1, over="entered")
    some, wanted = observed("exact", cpu=cpu, window=pen.rows(20))
    assert wanted.shed["budget"].total > 0
    for books in ((whole, some), (some, whole)):
        both = Row(policy="exact", mode="shed", books=",".join(each.books for each in books))
        found = pen.report(SimpleNamespace(recentProgress=[progress(penstock_1=both)]))
        assert found.recall is None
        assert found.exact_estimate is None


def test_no_join_and_several_joins_are_told_apart() -> None:
    row, _ = observed("exact")
    with pytest.raises(InputError, match="wait for the first one"):
        pen.report(SimpleNamespace(recentProgress=[progress(other=row)]))
    with pytest.raises(InputError, match="2 joins in one query"):
        pen.report(SimpleNamespace(recentProgress=[progress(penstock_1=row, penstock_2=row)]))
