"""Play real streams to joins on Spark faster than they can be joined, by the clock on the wall.

Files with the rows of half a second each appear when their time is. A lag is from the time of a pair's later row to
when the micro-batch that brought the pair was written. `make bench-cpu` leaves out what takes an hour and more;
`python -m benchmarks.cpu --only spark-clock` runs it (`--case`, `--speed`, `--rate` and `--minutes` make it shorter).
"""

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock as pen
from benchmarks import promised, registry_tables
from benchmarks.clock import SPAN, Case, Wanted, came, cases
from penstock.spark.session import ROCKSDB
from penstock.streams.sets import Condition

LATENCY = 10.0  # seconds: rows wait for the watermark, which is a micro-batch behind
SLICE = 0.5  # seconds of stream in a file
BEGINNING = 30.0  # seconds that workers may take to start, and joins to learn
FIRST, DOUBLINGS = 2000.0, 7  # the first rate that is tried, and how often it is doubled at most
TRIAL = 45.0  # seconds of a trial, the beginning included
SIDES = ("left", "right")


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """Return Spark on the cores of this machine."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only this benchmark needs Spark here

    builder = pen.configure(SparkSession.builder.master(f"local[{os.cpu_count()}]").appName("penstock by the clock"))
    spark = (
        builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", str(os.cpu_count()))
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .getOrCreate()
    )  # fmt: skip
    try:
        yield spark
    finally:
        spark.stop()


def written(case: Case, rate: float, begin: int, end: int, start: float) -> list[pa.Table]:
    """Return the rows from a number up to another, stamped with the clock."""
    sides = []
    for rows in came(case, rate, begin, end):
        ts = rows["ts"].cast(pa.int64()).to_numpy() + int(start * 1e6)
        stamps = pa.array(ts, pa.timestamp("us", "UTC"))
        sides.append(rows.set_column(rows.schema.get_field_index("ts"), "ts", stamps))
    return sides


def write_on(case: Case, rate: float, folder: Path, start: float, over: threading.Event) -> None:
    """Write what has come, every half second, until it is over; a file appears whole."""
    at = 0
    while not over.wait(max(0.0, start + (at + 1) * SLICE - time.time())):
        parts = written(case, rate, int(at * SLICE * rate), int((at + 1) * SLICE * rate), start)
        for name, rows in zip(SIDES, parts, strict=True):
            pq.write_table(rows, folder / f".{name}-{at}")
            (folder / f".{name}-{at}").rename(folder / name / f"{at:06}.parquet")
        at += 1


def play(spark: Any, case: Case, rate: float, method: str | None, seconds: float) -> dict[str, Any]:
    """Play the streams to a join for so many seconds; returns its pairs, and how long they took to come out."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - as everybody writes it; see above

    folder = Path(tempfile.mkdtemp(prefix="penstock-clock-"))
    over, log = threading.Event(), []
    start = time.time()
    writer = threading.Thread(target=write_on, args=(case, rate, folder, start, over))
    try:
        for name, rows in zip(SIDES, written(case, rate, 0, 0, start), strict=True):
            (folder / name).mkdir()
            pq.write_table(rows, folder / name / "schema.parquet")
        streams = [
            spark.readStream.schema(spark.read.parquet(str(folder / name)).schema).parquet(str(folder / name))
            for name in SIDES
        ]
        left, right = (stream.withWatermark("ts", "0 seconds") for stream in streams)
        cpu = None if method is None else pen.cpu(latency=f"{int(LATENCY)} seconds", method=method)
        shards = 1 if isinstance(case.on, Condition) else None  # random-drop on a condition takes no more
        joined = pen.join(left, right, on=case.on, time="ts", window=f"{SPAN} seconds", cpu=cpu, shards=shards)

        def note(batch: Any, _: int) -> None:
            later = F.greatest("ts_left", "ts_right").cast("double")
            pairs, first = batch.agg(F.count(F.lit(1)), F.min(later)).first()
            log.append((time.time() - start, pairs, time.time() - first if pairs else 0.0))

        writer.start()
        query = joined.writeStream.foreachBatch(note).option("checkpointLocation", str(folder / "state")).start()
        query.awaitTermination(int(seconds))
        query.stop()
    finally:
        over.set()
        if writer.ident is not None:  # it was started
            writer.join()
        shutil.rmtree(folder, ignore_errors=True)
    steady = [(pairs, lag) for at, pairs, lag in log if at > BEGINNING]
    lags = [lag for pairs, lag in steady if pairs] or [seconds]
    return {
        "pairs": sum(pairs for pairs, _ in steady),
        "batches": len(steady),
        "lag": float(np.max(lags)),
        "median": float(np.median(lags)),
        "late": float(np.mean(np.array(lags) > LATENCY)),
    }


def sustainable(spark: Any, case: Case) -> float:
    """Return the highest of some rates, each twice the one before, at which exact pairs come out in time."""
    rate = FIRST
    for _ in range(DOUBLINGS):
        one = play(spark, case, 2 * rate, None, TRIAL)
        print(f"exact at {2 * rate:,.0f} rows a second: {one}", flush=True)
        if one["lag"] > LATENCY / 2:
            break
        rate *= 2
    return rate


def measure(wanted: Wanted) -> Iterator[dict[str, Any]]:
    """Return what each join did at each speed, with each method."""
    with session() as spark:
        for case in cases(wanted.name):
            rate = wanted.rate or sustainable(spark, case)
            for speed in wanted.speeds:
                for method in wanted.methods:
                    minutes = wanted.of(method)
                    one = play(spark, case, speed * rate, method, 60 * minutes + BEGINNING)
                    how = {"case": case.name, "rate": rate, "speed": speed, "method": method, "minutes": minutes}
                    how["rows"] = round(60 * minutes * speed * rate)  # that came, for pairs to be compared by
                    print(how | one, flush=True)
                    yield how | one


def page(results: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    head = ["join", "sustainable, rows/s", "times that", "minutes", "longest lag, s", "median lag, s", "late"]
    head.append("over random-drop")
    rows = []
    others = {(one["case"], one["speed"]): one for one in results if one["method"] == "random-drop"}
    for one in results:
        other = others.get((one["case"], one["speed"]))
        if one["method"] == "auto" and other is not None:
            ratio = promised.times(one, other)
            lags = [f"{one['lag']:.2f}", f"{one['median']:.2f}", f"{one['late']:.1%}"]
            run = [one["case"], f"{one['rate']:,.0f}", str(one["speed"]), f"{one['minutes']:g}, {other['minutes']:g}"]
            rows.append([*run, *lags, f"{ratio:.2f}"])
    how = f'`latency="{LATENCY:g} seconds"`, windows of {SPAN} s, watermarks without delay, {BEGINNING:g} s to begin.'
    how += " One shard for conditions, which is all that random-drop takes, and one for each core for keys."
    how += " Random-drop has the second number of minutes; pairs are compared by the row."
    words = f"{how} A lag is from the time of a pair's later row to when its micro-batch was written."
    return "\n\n".join(["### By the clock on the wall, on Spark", words, registry_tables.table(head, rows)])
