"""Measure what it takes to repair a tenth of a stream, beside the whole join as a batch (`make bench-refine`).

Both run on the same local Spark, in turns, read the same archive, and write Parquet files. The stream is joined
inside a budget by ``pen.write``, with its ledger and archive. What both give is counted and checked. Beside the
seconds on the wall, the processor's are counted, of Spark and its workers: these hold on a machine that is busy, too.
Results are kept in benchmarks/refine.json, and docs/refine.md's table is made of it.
"""

import argparse
import contextlib
import json
import tempfile
import time
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
HELD = 0.98  # of what the windows hold; rows that wait for the watermark need more: about a tenth is then shed
FILES, WINDOWS = 20, 10  # micro-batches, and windows, in the whole stream
RATE = 1_000  # rows a second on each side


def measure(rows: int) -> dict[str, Any]:
    """Join a stream of so many rows inside a budget; return how long its repair takes, and the whole join."""
    each = rows // 2
    streams = uniform(each, keys=max(each // 5, 1_000), seed=1)
    window = each // RATE // WINDOWS
    how = {"on": "key", "time": "ts", "window": f"{window} seconds"}
    sides = {"left": streams.left, "right": streams.right}
    with (
        tables_written(sides, FILES) as folder,
        tempfile.TemporaryDirectory() as lake,
        live.local_spark("6g") as spark,
    ):
        memory = round(HELD * 2 * RATE * window)
        joined = pen.join(*(source(spark, folder, name) for name in sides), **how, memory=memory, policy="prob")
        paths = {name: f"{lake}/{name}" for name in ("checkpoint", "results", "ledger", "archive")}
        pen.write(joined, **paths, trigger="available now").awaitTermination()
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
                job().write.mode("overwrite").parquet(f"{lake}/written")
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
    results = json.loads(REPAIRS.read_text(encoding="utf-8")) if REPAIRS.exists() else {}
    results[str(rows)] = measure(rows)
    ordered = {name: results[name] for name in sorted(results, key=int)}
    REPAIRS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    registry_tables.write(ROOT / "docs" / "refine.md", "repair", repair_table(ordered))
    print(repair_table(ordered))


if __name__ == "__main__":
    main()
