"""Play tables as streams of files, and collect what comes out of a streaming query."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pen

# a job file that replays a trace beside it
TRACE = """
checkpoint = "cp"
[sources.both]
format = "replay"
path = "trace.parquet"
tick = "1 second"
start = 2001-09-09T01:46:40Z
rows_per_trigger = 100
watermark = "5 seconds"
[join]
on = "key"
time = "ts"
window = "20 seconds"
[sink]
format = "parquet"
path = "found"
"""


def write_batches(table: pa.Table, folder: Path, cuts: list[int]) -> None:
    """Write a table as one file a micro-batch, cut before these rows; empty cuts make no file."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = [0, *cuts, table.num_rows]
    first = time.time() - 10_000
    for number, (low, high) in enumerate(pairwise(ends)):
        path = folder / f"{number:05}.parquet"
        pq.write_table(table[low:high], path)
        os.utime(path, (first + number, first + number))  # the file source takes files in order of their age


def read_stream(spark: Any, folder: Path, *, time: str | None = "ts", delay: str = "10 seconds") -> Any:
    """Return the stream of a folder of files, a file each micro-batch, with a watermark."""
    schema = spark.read.parquet(str(folder)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))
    return stream if time is None else stream.withWatermark(time, delay)


def run_to_end(joined: Any, out: Path, checkpoint: Path, *, mode: str = "append") -> Any:
    """Run a streaming DataFrame over all there is into Parquet files; returns the ended query."""
    query = (
        joined.writeStream.format("parquet")
        .outputMode(mode)
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def counted(frame: Any, columns: list[str] | None = None) -> Counter[tuple[Any, ...]]:
    """Return the rows of a DataFrame or an Arrow table as a multiset."""
    table = frame if isinstance(frame, pa.Table) else frame.toArrow()
    table = table.select(columns or sorted(table.schema.names))
    return Counter(zip(*(map(repr, _plain(column)) for column in table.columns), strict=True))


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):  # moments, whatever the time zone they are shown in
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return column.to_pylist()


def play(
    spark: Any,
    folder: Path,
    tables: Sequence[pa.Table],
    cuts: list[int] | tuple[list[int], list[int]],
    **arguments: Any,
) -> tuple[Counter[tuple[Any, ...]], pen.Report]:
    """Join two tables as streams cut into micro-batches, both alike or each its own way.

    Returns the rows and the report of the ended query.
    """
    both = cuts if isinstance(cuts, tuple) else (cuts, cuts)
    for name, table, mine in zip(("l", "r"), tables, both, strict=True):
        write_batches(table, folder / name, mine)
    left, right = (read_stream(spark, folder / name) for name in ("l", "r"))
    joined = pen.join(left, right, **{"on": "k", "time": "ts", "window": "30 seconds", **arguments})
    query = run_to_end(joined, folder / "out", folder / "cp")
    return counted(spark.read.parquet(str(folder / "out"))), pen.report(query)


def straggling(seed: int, rows: int) -> pa.Table:
    """Return two rows a second, some of them up to a minute late, some without a key."""
    rng = np.random.default_rng(seed)
    late = rng.integers(0, 60, rows) * (rng.random(rows) < 0.2)
    moments = (1_700_000_000 + np.arange(rows) // 2 - late) * 1_000_000
    return pa.table(
        {
            "ts": pa.array(moments, pa.timestamp("us", "UTC")),
            "k": pa.array([f"key {k}" for k in rng.integers(0, 7, rows)], mask=rng.random(rows) < 0.03),
            "w": rng.integers(1, 9, rows),
            "id": np.arange(rows),
        }
    )


def ticking(seed: int, rows: int, *, keys: int = 8, start: int = 1_700_000_000) -> pa.Table:
    """Return a row a second with a skewed key, now and then null, and a payload that tells rows apart."""
    rng = np.random.default_rng(seed)
    key = np.minimum(rng.geometric(0.3, rows) - 1, keys - 1)
    return pa.table(
        {
            "ts": pa.array((start + np.arange(rows)) * 1_000_000, pa.timestamp("us", "UTC")),
            "k": pa.array(key, pa.int64(), mask=rng.random(rows) < 0.03),
            "v": pa.array([f"{seed}:{i}" for i in range(rows)]),
            "w": pa.array(rng.integers(1, 100, rows), pa.int32()),
        }
    )
