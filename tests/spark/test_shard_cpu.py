"""A shard under a CPU budget decides by its clock once: rebuilt from its log it has decided the same."""

import ast
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row

import penstock as pen
from penstock.errors import LatencyWarning
from penstock.operator.join import Join
from penstock.spark import pipeline, processor
from penstock.spark.packing import Packed
from penstock.spark.state import Head
from shard import Shard, task_of

START = 1_700_000_000
ROWS, BATCHES = 1200, 6


def table(seed: int) -> pa.Table:
    """Return twenty rows a second with sets and keys."""
    rng = np.random.default_rng(seed)
    count = ROWS * BATCHES
    return pa.table(
        {
            "ts": pa.array((START * 10**6 + np.arange(count) * 50_000), pa.timestamp("us", "UTC")),
            "k": rng.integers(0, 40, count),
            "tags": pa.array([rng.integers(0, 20, 4).tolist() for _ in range(count)]),
            "row": np.arange(count),
        }
    )


TABLES = (table(1), table(2))


def watermark(at: int) -> int | None:
    """Return the watermark of a micro-batch in ms: a second behind the rows before it."""
    return START * 1000 + at * ROWS * 50 - 1000 if at else None


def fed(shard: Shard, at: int) -> list[str]:
    first, second = (rows[at * ROWS : (at + 1) * ROWS] for rows in TABLES)
    return shard.feed((first, second), watermark(at))


@pytest.mark.parametrize("on", ["k", pen.overlap("tags", at_least=2, index=False), pen.overlap("tags", at_least=2)])
def test_a_rebuilt_shard_knows_what_was_decided(on: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = tmp_path / "engines"
    monkeypatch.setenv("PENSTOCK_ENGINES", str(engines))
    monkeypatch.setattr(processor, "_seconds", lambda *_: 0.004)
    schemas = (TABLES[0].schema, TABLES[1].schema)
    task = task_of(schemas, on=on, cpu=pen.cpu(latency="60 seconds"))
    shard = Shard(task)
    came = 0
    for at in range(BATCHES - 1):
        came += len(fed(shard, at))
        assert shard.books["pairs"] == came
    known = shard.books
    assert known["unprobed_left"] + known["shed_budget_left"] > 0
    shutil.rmtree(engines)
    again = Shard(task, before=shard)
    more = len(fed(again, BATCHES - 1))
    assert again.books["pairs"] == came + more
    for name in ("unprobed_left", "shed_budget_left", "expired_left"):
        assert again.books[name] >= known[name]
    assert again.books["arrivals_left"] == ROWS * BATCHES


def test_rows_go_on_as_soon_as_the_watermark_has_passed_them() -> None:
    """It does so in the micro-batch after theirs, and judges the rows of the one after that."""
    size, batches = 100, 5
    left, right = (rows[: size * batches] for rows in TABLES)
    ts = left["ts"].cast(pa.int64()).to_numpy()  # of both sides
    number = np.arange(ts.size)
    came = number // size + ((number % size >= 20) & (number % size < 40))  # some come a micro-batch late
    equal = left["k"].to_numpy()[:, None] == right["k"].to_numpy()
    exact = equal & (np.abs(ts[:, None] - ts) < 30 * 10**6)
    shard = Shard(task_of((left.schema, right.schema), cpu=pen.cpu(comparisons_per_second=10**6)))
    told: set[tuple[int, int]] = set()
    for at in range(batches):
        passed = int(ts[at * size - 1]) // 1000 - 1000 if at else 0
        mine = [rows.filter(pa.array(came == at)) for rows in (left, right)]
        for each in map(ast.literal_eval, shard.feed(mine, passed)):
            told.add((int(each["row_left"]), int(each["row_right"])))
        there = (came <= at) & (ts <= passed * 1000)
        assert told == set(zip(*map(np.ndarray.tolist, np.nonzero(exact & there[:, None] & there)), strict=True))
        assert shard.books["shed_late_left"] == 0
    assert len(told) > 1000


def test_rows_wait_for_the_watermark_and_come_in_order() -> None:
    schemas = (TABLES[0].schema, TABLES[1].schema)
    shard = Shard(task_of(schemas, cpu=pen.cpu(comparisons_per_second=10**6)))
    late = pa.concat_tables([TABLES[0][ROWS : ROWS + 20], TABLES[0][:20]])  # the second part comes a minute late
    assert shard.feed((late, TABLES[1][:0])) == []
    assert shard.books["live_left"] == 40
    found = shard.feed((TABLES[0][:0], TABLES[1][ROWS : ROWS + 20]), watermark(3))
    exact = pen.join(TABLES[0][ROWS : ROWS + 20], TABLES[1][ROWS : ROWS + 20], on="k", time="ts", window="30 seconds")
    assert len(found) == exact.num_rows > 0
    assert shard.feed((TABLES[0][20:25], TABLES[1][:0]), watermark(3)) == []
    assert shard.books["shed_late_left"] == 5


def test_a_third_of_a_latency_is_for_each_micro_batch_and_some_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    head = Head({}, 1)
    assert processor._seconds(head, Packed(100.0, 100.0), 6.0, 1) == pytest.approx(1.6)
    head.ended, now[0] = 101.0, 102.0  # Spark took half a second from there to the packing, and half since
    assert processor._seconds(head, Packed(101.5, 101.7), 6.0, 1) == pytest.approx(1.6 - 0.5 - 0.5)
    head.ended, now[0] = 102.5, 109.0  # the trigger made it wait
    assert processor._seconds(head, Packed(109.0, 109.0), 6.0, 1) == pytest.approx(1.6 - 0.55)
    head.between, head.ended = 3.0, 105.0
    assert processor._seconds(head, Packed(109.0, 109.0), 6.0, 1) == pytest.approx(1.6 - 1.0)
    head.slower = 2.0  # to hand pairs over took as long as to find them
    assert processor._seconds(head, Packed(109.0, 109.0), 6.0, 1) == pytest.approx((1.6 - 1.0) / 2)


def test_time_to_hand_pairs_over_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = processor._frames

    def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        time.sleep(0.1)
        return frames(batches)

    monkeypatch.setattr(processor, "_frames", slowly)
    shard = Shard(task_of((TABLES[0].schema, TABLES[1].schema), cpu=pen.cpu(latency="60 seconds")))
    slower = []
    for at in range(3):
        began = time.time()
        fed(shard, at)
        slower.append(shard.head["slower"])
        took = time.time() - began
    assert slower[0] == 1.0  # no row had come through yet
    assert 1.0 < slower[1] < took / processor.SHORTEST
    assert slower[2] > 1.0


def test_shards_that_share_a_core_get_equal_parts_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.5]
    monkeypatch.setattr(time, "time", lambda: now[0])
    packed, got = Packed(100.0, 100.5), []
    for _ in range(3):
        got.append(processor._seconds(Head({}, 3), packed, 6.0, 3))
        now[0] += got[-1]
    assert got == pytest.approx([1.1 / 3] * 3)
    now[0] = 101.5  # those before it took longer: what is left is less than its part
    assert processor._seconds(Head({}, 3), packed, 6.0, 3) == pytest.approx(0.1)


def test_a_share_of_the_time_is_divided_among_the_shards_of_a_core() -> None:
    whole = task_of((TABLES[0].schema, TABLES[1].schema), shards=4, cpu=pen.cpu(share=0.5))
    divided = replace(whole, turns=2)
    engines = [task.engine(0) for task in (whole, divided)]
    assert [engine._pace.target.share for engine in engines if isinstance(engine, Join) and engine._pace] == [
        0.5,
        0.25,
    ]
    assert whole.saved(0) == divided.saved(0)  # a query that is started again elsewhere goes on


@pytest.mark.parametrize(
    ("conf", "shards", "turns"),
    [
        ({"spark.master": "local[2]"}, 2, 1),
        ({"spark.master": "local[2,4]"}, 5, 3),
        ({"spark.master": "local-cluster[2,3,1024]"}, 8, 2),
        ({"spark.master": "spark://host", "spark.executor.instances": "2", "spark.executor.cores": "2"}, 8, 2),
        ({"spark.master": "spark://host"}, 8, 1),
        ({"spark.master": "spark://host", "spark.sql.shuffle.partitions": "3"}, 8, 3),
    ],
)
def test_shards_that_share_a_core_are_counted(conf: dict[str, str], shards: int, turns: int) -> None:
    told = {"spark.sql.shuffle.partitions": "8", **conf}
    spark = SimpleNamespace(conf=SimpleNamespace(get=told.get))
    assert pipeline._turns(shards, spark) == turns


def test_a_latency_that_cannot_be_kept_is_told_and_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = (TABLES[0].schema, TABLES[1].schema)
    shard = Shard(task_of(schemas, on=pen.overlap("tags", at_least=2), cpu=pen.cpu(latency="1 ms")))
    told = []
    for at in range(BATCHES):
        if at == BATCHES - 1:  # there is time again
            monkeypatch.setattr(processor, "_seconds", lambda *_: 60.0)
        fed(shard, at)
        told.append(json.dumps(shard.books))
    reports = []
    for at, books in enumerate(told):
        row = Row(policy="auto", mode="shed", books=books)
        query = SimpleNamespace(recentProgress=[SimpleNamespace(observedMetrics={"penstock_1": row})])
        warned = at in range(3, BATCHES - 1)  # twice, after rows have come through and it was learned what they cost
        with pytest.warns(LatencyWarning, match="seconds can, or fewer rows") if warned else nullcontext():
            reports.append(pen.report(query))
    possible = [report.possible_latency for report in reports]
    assert [one is not None for one in possible] == [False, False, False, True, True, False]
    assert 0.001 < (possible[3] or 0.0) < 600
    assert "the latency cannot be kept" in str(reports[3])
