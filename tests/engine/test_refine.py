"""A bounded join and what is refined from its ledger are the exact join, by brute force."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pen
from oracles import Arrival, Kind, exact
from penstock.errors import ConditionError, InputError, PolicyError, WindowError
from penstock.streams.workloads import zipf
from traces import Table, by_time, pairs_of, plain_table, random_trace, text_table, traces, weighty_table, window

SPANS = (14, 20)
EVER = 10_000  # a lateness that lets every row join
HOW: dict[str, Any] = {"on": "key", "time": "ts"}


def check(trace: list[Arrival], table: Table, kind: Kind = "time", **arguments: Any) -> tuple[pen.Result, Any]:
    """Join inside a budget and refine; compare with every pair that there is."""
    left, right = table(trace, 0, 0), table(trace, 1, 0)
    how = {**HOW, "window": window(SPANS, kind), **arguments}
    result = pen.run(left, right, **how)
    rest = pen.refine(archive=(left, right), ledger=result.ledger, **how)
    assert result.table.schema == rest.schema
    want = Counter(exact(trace, spans=SPANS, kind=kind, lateness=EVER))
    assert want == Counter(pairs_of(result.table)) + Counter(pairs_of(rest))
    return result, rest


@pytest.mark.parametrize("policy", ["prob", "oldest", "rand"])
@pytest.mark.parametrize("table", [plain_table, text_table])
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_evicted_rows_and_capped_keys(policy: str, table: Table, kind: Kind) -> None:
    for seed in range(2):
        trace = by_time(random_trace(seed, 250, 8))
        result, rest = check(trace, table, kind, memory=20, per_key=4, policy=policy, seed=seed)
        assert all(result.report.shed[reason].total > 0 for reason in ("budget", "per_key"))
        assert rest.num_rows > 0


@pytest.mark.parametrize("memory", [5, 40, None])
def test_late_rows(memory: int | None) -> None:
    for seed in range(3):
        trace = random_trace(seed, 250, 5, late=0.3, back=12)
        result, _ = check(trace, plain_table, lateness=2, memory=memory, policy="prob")
        assert result.report.shed["late"].total > 0


@given(trace=traces(rows=40, keys=3, late=True), memory=st.integers(1, 8), lateness=st.integers(1, 6))
def test_any_trace(trace: list[Arrival], memory: int, lateness: int) -> None:
    check(trace, plain_table, memory=memory, lateness=lateness, policy="oldest")


def test_importance_and_event_time_are_those_of_the_exact_join() -> None:
    trace = by_time(random_trace(3, 200, 6))
    left, right = (weighty_table(trace, side, 0) for side in range(2))
    how = {**HOW, "window": 15, "importance": "weight", "combine": "sum", "event_time": "at"}
    result = pen.run(left, right, **how, memory="3kB")
    rest = pen.refine(archive=(left, right), ledger=result.ledger, **how, memory="3kB")
    whole = pa.concat_tables([result.table, rest])
    order = [("row_left", "ascending"), ("row_right", "ascending")]
    assert whole.sort_by(order).equals(pen.join(left, right, **how).sort_by(order))
    assert rest.num_rows > 0


def test_files_and_pandas_give_the_same(tmp_path: Path) -> None:
    streams = zipf(400, keys=20, seed=3)
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 60}
    result = pen.run(streams.left, streams.right, **how, memory=20)
    rest = pen.refine(archive=(streams.left, streams.right), ledger=result.ledger, **how)
    parts = {"l": streams.left, "r": streams.right, "shed": result.ledger}
    for name, part in parts.items():
        pq.write_table(part, tmp_path / f"{name}.parquet")
    left, right, ledger = (tmp_path / f"{name}.parquet" for name in parts)
    assert rest.equals(pen.refine(archive=(left, str(right)), ledger=ledger, **how))
    frames = (streams.left.to_pandas(), streams.right.to_pandas())
    assert rest.to_pandas().equals(pen.refine(archive=frames, ledger=result.ledger, **how))


def test_nothing_shed_is_nothing_to_refine() -> None:
    streams = zipf(100, keys=5, seed=1)
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 10}
    result = pen.run(streams.left, streams.right, **how)
    rest = pen.refine(archive=(streams.left, streams.right), ledger=result.ledger, **how)
    assert rest.num_rows == 0
    assert result.table.schema == rest.schema


def test_what_cannot_be_refined() -> None:
    streams = zipf(200, keys=5, seed=1)
    both = (streams.left, streams.right)
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 30}
    ledger = pen.run(*both, **how, memory=8).ledger
    with pytest.raises(WindowError, match="use a time window"):
        pen.refine(archive=both, ledger=ledger, **{**how, "window": pen.rows(5)}, lateness=2)
    with pytest.raises(ConditionError, match="name key columns"):
        pen.refine(archive=both, ledger=ledger, **{**how, "on": pen.band("key", within=1)})
    with pytest.raises(InputError, match="only observes"):
        pen.refine(archive=both, ledger=ledger, **how, memory=8, mode="observe")
    with pytest.raises(PolicyError, match="weight"):
        pen.refine(archive=both, ledger=ledger, **how, memory=8, policy="sample")
    with pytest.raises(InputError, match="give the ledger of"):
        pen.refine(archive=both, ledger=streams.left, **how)
    with pytest.raises(InputError, match="not those of the left input"):
        pen.refine(archive=(streams.left[1:], streams.right), ledger=ledger, **how)
    several = ledger.set_column(1, "shard", pa.array([1] * ledger.num_rows, pa.int32()))
    with pytest.raises(InputError, match="several shards"):
        pen.refine(archive=both, ledger=several, **how)
    with pytest.raises(InputError, match="give \\(left, right\\)"):
        pen.refine(archive=(streams.left,), ledger=ledger, **how)
    with pytest.raises(InputError, match="folders that pen"):
        pen.refine(archive=both, ledger=ledger, into="somewhere", **how)
