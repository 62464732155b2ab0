"""Joins on conditions and inside CPU budgets on a real Spark: what brute force finds, and books that balance."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.errors import InputError, LatencyWarning
from set_oracles import Row, pairs
from streaming import counted, read_stream, run_to_end, write_batches

START, SECOND = 1_700_000_000, 10**6
SPAN = 30


def rows(seed: int, ticks: int = 120, each: float = 2.0) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [
        (ts, rng.integers(0, 12, rng.integers(0, 6)).tolist())
        for ts in range(ticks)
        for _ in range(rng.poisson(each))
    ]


def table(side: list[Row]) -> pa.Table:
    return pa.table(
        {
            "ts": pa.array([(START + ts) * SECOND for ts, _ in side], pa.timestamp("us", "UTC")),
            "tags": pa.array([value for _, value in side], pa.list_(pa.int64())),
            "size": pa.array([float(len(value)) for _, value in side]),
            "key": pa.array([sum(value) % 11 for _, value in side]),
            "row": np.arange(len(side)),
        }
    )


def found(frame: Any) -> Counter[tuple[int, int]]:
    return counted(frame, ["row_left", "row_right"])


def wanted(these: list[tuple[int, int]]) -> Counter[tuple[Any, ...]]:
    return Counter((repr(i), repr(j)) for i, j in these)


def streamed(spark: Any, folder: Path, tables: list[pa.Table], **how: Any) -> tuple[Counter[Any], pen.Report, Any]:
    for name, each in zip(("l", "r"), tables, strict=True):
        cut = each.num_rows // 4
        write_batches(each, folder / name, [cut, 2 * cut, 3 * cut])
    left, right = (read_stream(spark, folder / name, delay="3 seconds") for name in ("l", "r"))
    joined = pen.join(left, right, **{"time": "ts", "window": f"{SPAN} seconds", **how})
    query = run_to_end(joined, folder / "out", folder / "cp")
    return found(spark.read.parquet(str(folder / "out"))), pen.report(query), query


@pytest.mark.parametrize(
    ("on", "name", "bound", "division"),
    [
        (pen.overlap("tags", at_least=2), "overlap", 2, "items"),
        (pen.contains("tags"), "contains", 0, "items"),
        (pen.overlap("tags", at_least=2, index=False), "overlap", 2, "turns"),
    ],
)
def test_conditions_on_spark_equal_brute_force(
    spark: Any, tmp_path: Path, on: Any, name: str, bound: int, division: str
) -> None:
    sides = [rows(1), rows(2)]
    tables = [table(side) for side in sides]
    want = wanted(pairs(name, bound, sides[0], sides[1], (SPAN, SPAN)))
    got, report, _ = streamed(spark, tmp_path, tables, on=on)
    assert want == got
    assert report.division == division
    assert report.balanced
    assert [report.arrivals.left, report.arrivals.right] == [len(side) for side in sides]
    batch = [spark.createDataFrame(each.to_pandas()) for each in tables]
    whole = pen.join(*batch, on=on, time="ts", window=f"{SPAN} seconds", shards=3)
    assert want == found(whole)


@pytest.mark.parametrize(
    ("on", "bound"),
    [
        (pen.overlap("tags", at_least=2), 2),
        (pen.set_equal("tags"), 0),
        (pen.contains("tags"), 0),
        (pen.contained_in("tags"), 0),
        (pen.inner_product("tags", at_least=2), 2),
        (pen.band("size", within=0.5), 0.5),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_every_condition_on_spark_equals_brute_force_where_there_is_time(spark: Any, on: Any, bound: float) -> None:
    sides = [rows(3), rows(4)]
    values: list[list[Row]] = sides
    if on.name == "band":
        values = [[(ts, float(len(value))) for ts, value in side] for side in sides]
    batch = [spark.createDataFrame(table(side).to_pandas()) for side in sides]
    cpu = pen.cpu(comparisons_per_second=1e9)
    whole = pen.join(*batch, on=on, time="ts", window=f"{SPAN} seconds", shards=3, cpu=cpu)
    assert wanted(pairs(on.name, bound, values[0], values[1], (SPAN, SPAN))) == found(whole)


def test_a_cpu_budget_on_spark_says_what_it_skipped(spark: Any, tmp_path: Path) -> None:
    sides = [rows(5, each=4), rows(6, each=4)]
    exact = wanted(pairs("overlap", 2, sides[0], sides[1], (SPAN, SPAN)))
    tables = [table(side) for side in sides]
    for name, each in zip(("l", "r"), tables, strict=True):
        write_batches(each, tmp_path / name, [100, 200, 300])
    left, right = (read_stream(spark, tmp_path / name, delay="3 seconds") for name in ("l", "r"))
    on, cpu = pen.overlap("tags", at_least=2), pen.cpu(comparisons_per_second=200)
    joined = pen.join(left, right, on=on, time="ts", window=f"{SPAN} seconds", cpu=cpu)
    folders = {name: str(tmp_path / name) for name in ("results", "ledger", "checkpoint")}
    query = pen.write(joined, trigger="available now", **folders)
    query.awaitTermination()
    got, report = found(spark.read.parquet(folders["results"])), pen.report(query)
    assert got < exact
    assert report.policy == "selective"
    assert report.balanced
    ledger = spark.read.parquet(folders["ledger"]).toArrow()
    assert set(ledger["reason"].to_pylist()) == {"unprobed"}
    assert report.unprobed.total == ledger.num_rows > 0
    assert all(entry for entry in ledger["skipped"].to_pylist())


def test_a_latency_on_spark_that_leaves_no_time_is_warned_of_and_skips_what_it_can(
    spark: Any, tmp_path: Path
) -> None:
    """Whether longer ones are kept depends on the machine: benchmarks measure that."""
    sides = [rows(7, ticks=100, each=20), rows(8, ticks=100, each=20)]
    exact = wanted(pairs("overlap", 2, sides[0], sides[1], (SPAN, SPAN)))
    on = pen.overlap("tags", at_least=2, index=False)
    tables = [table(side) for side in sides]
    with pytest.warns(LatencyWarning, match="seconds can, or fewer rows"):
        got, report, query = streamed(spark, tmp_path, tables, on=on, cpu=pen.cpu(latency="1 ms"), shards=2)
    assert report.slowest is not None
    assert report.possible_latency is not None
    assert report.possible_latency > report.slowest > 0
    assert report.balanced
    assert got < exact
    assert exact.total() / 2 > got.total() == report.pairs > 0
    assert report.unprobed.total > report.arrivals.total / 2
    assert len([one for one in query.recentProgress if one.numInputRows]) >= 4


@pytest.mark.parametrize(("memory", "policy"), [(900, "auto, oldest"), (None, "auto")])
def test_equal_keys_with_a_latency_find_pairs_of_the_exact_join(
    memory: Any, policy: str, spark: Any, tmp_path: Path
) -> None:
    tables = [table(rows(seed, each=20)) for seed in (9, 10)]
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": f"{SPAN} seconds"}
    exact = found(pen.join(*tables, **how))
    more = {"cpu": pen.cpu(latency="1 ms"), "memory": memory}
    with pytest.warns(LatencyWarning, match="seconds can, or fewer rows"):
        got, report, _ = streamed(spark, tmp_path, tables, **{**how, **more})
    assert got < exact
    assert report.policy == policy
    assert report.balanced
    assert exact.total() / 2 > got.total() == report.pairs > 0  # there is room for three quarters of the rows
    assert report.shed["budget"].total + report.unprobed.total > report.arrivals.total / 2


def test_what_cannot_be_on_spark_is_said_before_it_starts(spark: Any) -> None:
    frame = spark.createDataFrame(table(rows(1, 5)).to_pandas())
    how: dict[str, Any] = {"on": pen.overlap("tags", at_least=2), "time": "ts", "window": "5 seconds"}
    with pytest.raises(InputError, match="give shards=1"):
        pen.join(frame, frame, cpu=pen.cpu(comparisons_per_second=9, method="random-drop"), shards=2, **how)
