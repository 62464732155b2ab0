"""On Spark, recall, observing, samples and advice say what they say embedded, over any number of shards."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.errors import InputError, WindowError
from penstock.streams.workloads import zipf
from streaming import counted, play, ticking

TABLES = (ticking(1, 240), ticking(2, 240))
COMMON: dict[str, Any] = {"on": "k", "time": "ts", "window": "30 seconds"}
BUDGET: dict[str, Any] = {"memory": 20, "policy": "prob", "importance": "w"}


@pytest.mark.parametrize("shards", [1, 3])
def test_shards_add_up_to_the_exact_join(spark: Any, tmp_path: Path, shards: int) -> None:
    _, report = play(spark, tmp_path, TABLES, [90, 171], shards=shards, **BUDGET)
    exact = pen.run(TABLES[0], TABLES[1], **COMMON, importance="w").report
    assert report.exact_estimate == exact.exact_estimate
    assert report.recall is not None
    assert report.recall.mid == pytest.approx(report.pairs / exact.pairs)
    assert report.importance_estimate is not None
    assert report.importance_estimate.mid == pytest.approx(exact.importance)
    assert report.mode == "shed"


def test_observing_returns_everything(spark: Any, tmp_path: Path) -> None:
    found, report = play(spark, tmp_path, TABLES, [90, 171], shards=1, mode="observe", **BUDGET)
    exact = pen.run(TABLES[0], TABLES[1], **COMMON, importance="w")
    bounded = pen.run(TABLES[0], TABLES[1], **{**COMMON, **BUDGET}).report
    assert found == counted(exact.table)
    assert report.mode == "observe"
    assert report.pairs == bounded.pairs < exact.report.pairs
    assert report.exact_estimate == exact.report.exact_estimate
    assert report.balanced


def test_recorded_data_have_a_report_and_a_ledger(spark: Any) -> None:
    """Those of the embedded run, where one shard joins; those of all shards together add up to the exact join."""
    exact = pen.run(TABLES[0], TABLES[1], **COMMON, importance="w")
    frames = [spark.createDataFrame(table) for table in TABLES]
    one, three = (pen.run(frames[0], frames[1], **COMMON, **BUDGET, shards=shards) for shards in (1, 3))
    want = pen.run(TABLES[0], TABLES[1], **COMMON, **BUDGET)
    assert one.report.to_dict() == {**want.report.to_dict(), "division": "keys"}
    assert counted(one.ledger) == counted(want.ledger)
    for found in (one, three):
        assert found.report.balanced
        assert found.report.pairs == found.table.count() < exact.report.pairs
        assert found.report.shed["budget"].total == found.ledger.count()
        assert found.report.exact_estimate == exact.report.exact_estimate
    assert {row["shard"] for row in three.ledger.collect()} == {0, 1, 2}
    spark.catalog.clearCache()


def test_observing_recorded_data_returns_everything(spark: Any) -> None:
    frames = [spark.createDataFrame(table) for table in TABLES]
    found = pen.run(frames[0], frames[1], **COMMON, **BUDGET, shards=1, mode="observe")
    want = pen.run(TABLES[0], TABLES[1], **COMMON, **BUDGET, mode="observe")
    assert counted(found.table) == counted(want.table)
    assert found.report.mode == "observe"
    assert found.report.recall == want.report.recall
    assert found.ledger.count() == want.report.shed["budget"].total
    spark.catalog.clearCache()


def test_recorded_data_of_several_streams_have_a_report(spark: Any) -> None:
    tables = {"a": TABLES[0], "b": TABLES[1], "c": ticking(3, 240)}
    how: dict[str, Any] = {"on": "k", "time": "ts", "windows": "30 seconds"}
    frames = {name: spark.createDataFrame(table) for name, table in tables.items()}
    found = pen.run(frames, **how, memory=30, shards=2)
    exact = pen.run(tables, **how).report
    assert found.report.exact_estimate == exact.exact_estimate
    assert found.report.results == found.table.count() < exact.results
    assert sum(found.report.shed["budget"].values()) == found.ledger.count()
    spark.catalog.clearCache()


def test_nothing_recorded_is_reported_as_such(spark: Any) -> None:
    nothing = [spark.createDataFrame(table.to_pandas()).limit(0) for table in TABLES]
    found = pen.run(nothing[0], nothing[1], **COMMON, **BUDGET, shards=2)
    assert found.report.arrivals.total == found.report.pairs == found.table.count() == found.ledger.count() == 0
    spark.catalog.clearCache()


def test_what_runs_and_what_was_recorded_are_told_apart(spark: Any) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InputError, match="for batch DataFrames: start"):
        pen.run(stream, stream, on="value", time="timestamp", window="1 minute")
    with pytest.raises(InputError, match=r"of batch DataFrames pen\.run gives"):
        pen.report(spark.range(3))


def test_a_sample_has_the_weights_of_the_embedded_one(spark: Any, tmp_path: Path) -> None:
    options: dict[str, Any] = {"memory": 20, "policy": "sample", "seed": 4}
    found, _ = play(spark, tmp_path, TABLES, [90, 171], shards=1, **options)
    waiting = pen.Join(**COMMON, **options, lateness=("watermark", "10 seconds"))
    rows = pa.concat_tables([waiting.push(left=TABLES[0], right=TABLES[1]), waiting.finish()])
    assert found == counted(rows)
    assert max(rows["weight"].to_pylist()) > 1


def test_advice_from_a_sample_of_the_keys(spark: Any) -> None:
    rng = np.random.default_rng(1)
    sides = [
        pa.table({"ts": np.arange(15_000), "k": pa.array(rng.integers(0, 2000, 15_000), kind)})
        for kind in (pa.int64(), pa.int32())
    ]
    frames = [spark.createDataFrame(side.to_pandas()) for side in sides]
    how: dict[str, Any] = {"on": "k", "time": "ts", "window": 4000, "recall": [0.5, 0.9], "policy": "oldest"}
    want = pen.advise(*sides, **how, sample=1)
    everything = pen.advise(*frames, **how, sample=1)
    assert everything.needs == want.needs
    got = pen.advise(*frames, **how)  # 20,000 rows of 30,000
    assert got.how == "keys"
    assert 0.5 < got.share < 0.8
    assert got.exact == pytest.approx(want.exact, rel=0.1)
    assert np.array(got.needs["memory"]) == pytest.approx(np.array(want.needs["memory"]), rel=0.1)


def test_advice_where_few_keys_carry_the_result(spark: Any) -> None:
    streams = zipf(30_000, keys=3000, relation="correlated", seed=4)
    sides = streams.left, streams.right
    frames = [spark.createDataFrame(side.to_pandas()) for side in sides]
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 6000, "recall": [0.5, 0.8, 0.95], "policy": "prob"}
    want = pen.advise(*sides, **how, sample=1)
    got = pen.advise(*frames, **how)
    assert got.how == "keys"
    assert got.share < 0.4
    assert np.array(got.needs["memory"]) == pytest.approx(np.array(want.needs["memory"]), rel=0.12)
    with pytest.raises(WindowError, match="window in time"):
        pen.advise(*frames, **{**how, "window": pen.rows(6000)})


def test_streams_give_no_advice(spark: Any) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InputError, match="not streaming"):
        pen.advise(stream, stream, on="value", time="timestamp", window="1 minute")
