"""Measure the repair of a tenth and of a fifth of a stream beside the whole join as a batch (`make bench-refine`).

Both run on the same local Spark, in turns, read the same archive, and write Parquet files. The whole join is the one
that a user would write: both sides of the archive, joined by key, where the times are near enough. The stream is
joined inside a budget by ``pen.write``, with its ledger and archive. What both give is counted and checked. Beside
the seconds on the wall, the processor's are counted, of Spark and its workers: these hold on a machine that is busy,
too. Results are kept in benchmarks/refine.json, and docs/refine.md's table is made of it.
"""

import argparse
import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import penstock as pen
from benchmarks import registry_tables
from benchmarks.spark import source, tables_written
from benchmarks.tables import REPAIRS, ROOT, repair_table
from penstock.spark import live
from penstock.streams.workloads import uniform

TURNS = 3
HELD = (0.9997, 0.98)  # of what windows hold; rows that wait for the watermark need more: a tenth, a fifth is shed
FILES, WINDOWS = 20, 10  # micro-batches, and windows, in the whole stream
RATE = 1_000  # rows a second on each side


def measure(rows: int, held: float, lake: Path) -> dict[str, Any]:
    """Return how long the repair of a stream of so many rows takes, and the whole join.

    The stream is joined first, with memory for such a share of what its windows hold.
    """
    each = rows // 2
    window = each // RATE // WINDOWS
    how = {"on": "key", "time": "ts", "window": f"{window} seconds"}
    paths = {name: str(lake / name) for name in ("checkpoint", "results", "ledger", "archive")}
    with live.local_spark("6g") as spark:
        join(spark, each, round(held * 2 * RATE * window), how, paths)
        jobs = {
            "repair": lambda: pen.refine(archive=paths["archive"], ledger=paths["ledger"], spark=spark, **how),
            "whole": lambda: whole(spark, paths["archive"], window),
        }
        counts = {name: job().count() for name, job in jobs.items()}
        found = spark.read.parquet(paths["results"]).count()
        lost = f"reason = 'budget' and shed_at < ts + interval {window} seconds"  # others waited for late rows
        shed = spark.read.parquet(paths["ledger"]).where(lost).count()
        assert found + counts["repair"] == counts["whole"], (found, counts)
        seconds: dict[str, list[float]] = {name: [] for name in jobs}
        busy: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(TURNS):
            for name, job in jobs.items():
                begin, before = time.perf_counter(), processor_seconds()
                job().write.mode("overwrite").parquet(str(lake / "written"))
                seconds[name].append(time.perf_counter() - begin)
                busy[name].append(processor_seconds() - before)
    return {
        "rows": 2 * each,
        "shed": shed / (2 * each),
        "pairs": counts["whole"],
        "missing": counts["repair"],
        "repair_seconds": min(seconds["repair"]),
        "whole_seconds": min(seconds["whole"]),
        "repair_processor_seconds": min(busy["repair"]),
        "whole_processor_seconds": min(busy["whole"]),
    }


def join(spark: Any, each: int, memory: int, how: dict[str, Any], paths: dict[str, str]) -> None:
    """Join a stream of so many rows on each side inside a budget, with ledger and archive."""
    streams = uniform(each, keys=max(each // 5, 1_000), seed=1)
    sides = {"left": streams.left, "right": streams.right}
    with tables_written(sides, FILES) as folder:
        joined = pen.join(*(source(spark, folder, name) for name in sides), **how, memory=memory, policy="prob")
        pen.write(joined, **paths, trigger="available now").awaitTermination()


def processor_seconds() -> float:
    """Return what this process and those that it started have used, those that have ended included."""
    total = 0.0
    for each in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def whole(spark: Any, archive: str, window: int) -> Any:
    """Return the whole join of an archive as a batch."""
    rows = spark.read.parquet(archive)
    left, right = (
        rows.where(F.col("side") == name).select(f"{name}.key", F.col(f"{name}.ts").alias(f"ts_{name}"))
        for name in ("left", "right")
    )
    apart = F.abs(F.unix_micros("ts_left") - F.unix_micros("ts_right"))
    return left.join(right, "key").where(apart < window * 10**6)


def main() -> None:
    """Measure, and write it down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.refine", description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7, help="of both sides together")
    rows = parser.parse_args().rows
    results = []
    for held in HELD:
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(rows, held, Path(folder) / "lake"))
    REPAIRS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    registry_tables.write(ROOT / "docs" / "refine.md", "repair", repair_table(results))
    print(repair_table(results))


if __name__ == "__main__":
    main()
