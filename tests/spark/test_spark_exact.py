"""On Spark the join without a budget is Spark's own join, row for row, late rows included."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from streaming import counted, read_stream, run_to_end, write_batches

ROWS = 600
SECOND = 1_000_000


def table(seed: int, *, jitter: int = 0, keys: int = 12) -> pa.Table:
    """Return a row a second, up to `jitter` seconds out of order or, one in ten, ten times that; some keys null."""
    rng = np.random.default_rng(seed)
    delay = rng.integers(0, jitter + 1, ROWS) * np.where(rng.random(ROWS) < 0.1, 10, 1)
    ts = 1_700_000_000 * SECOND + (np.arange(ROWS) - delay) * SECOND
    key = rng.integers(0, keys, ROWS)
    return pa.table(
        {
            "ts": pa.array(ts, pa.timestamp("us", "UTC")),
            "k": pa.array(key, pa.int64(), mask=rng.random(ROWS) < 0.05),
            "v": pa.array([f"{seed}:{i}" for i in range(ROWS)]),
        }
    )


def spark_join(left: Any, right: Any, seconds: int) -> Any:
    """Return Spark's own join of the same rows."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    near = f"l.ts > r.ts - interval {seconds} seconds and l.ts < r.ts + interval {seconds} seconds"
    both = left.alias("l").join(right.alias("r"), F.expr(f"l.k = r.k and {near}"))
    return both.selectExpr("l.k as k", "l.ts as ts_left", "l.v as v_left", "r.ts as ts_right", "r.v as v_right")


@pytest.mark.parametrize("jitter", [0, 40])
def test_streams_join_as_spark_joins_them(spark: Any, tmp_path: Path, jitter: int) -> None:
    """The same rows as Spark's stream-stream join, with rows behind the watermark among them."""
    for name, seed in (("l", 1), ("r", 2)):
        write_batches(table(seed, jitter=jitter), tmp_path / name, [100, 200, 330, 450])
    sources = [read_stream(spark, tmp_path / name, delay="10 seconds") for name in ("l", "r")]
    ours = pen.join(sources[0], sources[1], on="k", time="ts", window="30 seconds")
    query = run_to_end(ours, tmp_path / "ours", tmp_path / "ours.cp")
    run_to_end(spark_join(sources[0], sources[1], 30), tmp_path / "theirs", tmp_path / "theirs.cp")
    found = counted(spark.read.parquet(str(tmp_path / "ours")))
    assert found == counted(spark.read.parquet(str(tmp_path / "theirs")))
    report = pen.report(query)
    assert report.balanced
    assert report.pairs == found.total() > 0
    assert (report.shed["late"].total > 0) == (jitter > 0)


def test_batch_equals_stream_equals_embedded(spark: Any, tmp_path: Path) -> None:
    """The same arguments give the same rows on tables, on batch DataFrames and on streams."""
    tables = [table(seed) for seed in (3, 4)]
    exact = counted(pen.join(tables[0], tables[1], on="k", time="ts", window="20 seconds"))
    for name, rows in zip(("l", "r"), tables, strict=True):
        write_batches(rows, tmp_path / name, [250])
    frames = [spark.read.parquet(str(tmp_path / name)) for name in ("l", "r")]
    batch = pen.join(frames[0], frames[1], on="k", time="ts", window="20 seconds", shards=3)
    assert counted(batch) == exact
    streams = [read_stream(spark, tmp_path / name) for name in ("l", "r")]
    chained = streams[0].transform(pen.joining(streams[1], on="k", time="ts", window="20 seconds", shards=1))
    run_to_end(chained, tmp_path / "out", tmp_path / "cp")
    assert counted(spark.read.parquet(str(tmp_path / "out"))) == exact
