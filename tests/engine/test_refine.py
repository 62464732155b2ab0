"""A bounded join and what is refined from its ledger are the exact join, by brute force."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pen
import set_oracles
from oracles import Arrival, Kind, exact
from penstock.errors import InputError, PolicyError, WindowError
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
    budget = pen.cpu(comparisons_per_second=9, method="dual", over="entered")
    with pytest.raises(InputError, match="only over='arrivals'"):
        pen.refine(archive=both, ledger=ledger, **{**how, "window": pen.rows(5)}, cpu=budget)
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


CONDITIONS = {
    "overlap": pen.overlap("value", at_least=2),
    "set_equal": pen.set_equal("value"),
    "contains": pen.contains("value"),
    "contained_in": pen.contained_in("value"),
    "inner_product": pen.inner_product("value", at_least=1.5),
    "band": pen.band("value", within=2),
}


def valued(seed: int, name: str, *, late: bool) -> tuple[list[set_oracles.Row], list[set_oracles.Row]]:
    """Draw rows of both sides, some of them out of order, some of them without a value."""
    lots = random.Random(seed)  # noqa: S311 - a test that repeats
    sides = []
    for _ in range(2):
        times = sorted(lots.randrange(200) for _ in range(250))
        back = [lots.randrange(9) if late and lots.random() < 0.3 else 0 for _ in times]
        values = [
            None
            if lots.random() < 0.05
            else lots.randrange(40)
            if name == "band"
            else [f"word {lots.randrange(7)}" for _ in range(lots.randrange(5))]
            for _ in times
        ]
        sides.append([(max(0, ts - less), value) for ts, less, value in zip(times, back, values, strict=True)])
    return sides[0], sides[1]


@pytest.mark.parametrize("lateness", [0, 3])
@pytest.mark.parametrize("method", ["selective", "random-drop"])
@pytest.mark.parametrize("name", CONDITIONS)
def test_probes_that_were_skipped(name: str, method: str, lateness: int) -> None:
    rows = valued(3, name, late=lateness > 0)
    tables = [
        pa.table({"ts": [ts for ts, _ in side], "value": [value for _, value in side], "id": range(len(side))})
        for side in rows
    ]
    how: dict[str, Any] = {"on": CONDITIONS[name], "time": "ts", "window": (40, 30), "lateness": lateness}
    how["cpu"] = pen.cpu(comparisons_per_second=120, method=method)
    result = pen.run(tables[0], tables[1], **how)
    assert result.report.unprobed.total + result.report.shed["budget"].total > 0
    rest = pen.refine(archive=(tables[0], tables[1]), ledger=result.ledger, **how)
    assert rest.num_rows > 0
    assert rest.schema == result.table.schema
    got = Counter(
        pair
        for table in (result.table, rest)
        for pair in zip(table["id_left"].to_pylist(), table["id_right"].to_pylist(), strict=True)
    )
    assert Counter(set_oracles.pairs(name, CONDITIONS[name].bound, *rows, spans=(40, 30))) == got


@pytest.mark.parametrize("seed", range(3))
def test_keys_that_were_not_probed(seed: int) -> None:
    trace = by_time(random_trace(seed, 300, 5))
    result, rest = check(trace, plain_table, "rows", cpu=pen.cpu(comparisons_per_second=1, method="dual"))
    assert result.report.unprobed.total > 0
    assert rest.num_rows > 0


def test_a_ledger_of_skipped_probes_needs_the_cpu_budget() -> None:
    streams = zipf(300, keys=5, seed=1)
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": pen.rows(30)}
    ledger = pen.run(streams.left, streams.right, **how, cpu=pen.cpu(comparisons_per_second=1)).ledger
    with pytest.raises(InputError, match="give cpu= too"):
        pen.refine(archive=(streams.left, streams.right), ledger=ledger, **how)
