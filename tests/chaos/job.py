"""A streaming job as a process of its own, to be killed and started again."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

import penstock as pen
from streaming import read_stream, run_to_end


def fails_twice(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fail every task two times, after it has written its state and its rows."""
    yield from batches
    context = TaskContext.get()
    if context is not None and context.attemptNumber() < 2:
        raise RuntimeError("this attempt was to fail")


def straggler(folder: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that holds up the first attempt at some tasks, after it has written its state and rows."""

    def straggle(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is None or int(context.getLocalProperty("streaming.sql.batchId") or 0) % 5 != 1:
            return
        if context.attemptNumber() > 0:
            (folder / "speculated").touch()
        elif context.partitionId() == 0:
            time.sleep(15)

    return straggle


def main(options: dict[str, Any]) -> None:
    """Join all files there are, from where the checkpoint stands."""
    folder = Path(options["folder"])
    builder = pen.configure(SparkSession.builder.master(options["master"]).appName("chaos"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "700m",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        **options.get("conf", {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    frames = {name: read_stream(spark, folder / name) for name in options["streams"]}
    how = {"on": "k", "time": "ts", **options["arguments"]}
    if len(frames) == 2:
        joined = pen.join(*frames.values(), window="30 seconds", **how)
    else:
        joined = pen.multijoin(frames, windows="30 seconds", **how)
    if options.get("fails"):
        joined = joined.mapInArrow(fails_twice, joined.schema)
    if options.get("straggles"):
        joined = joined.mapInArrow(straggler(folder), joined.schema)
    (folder / "started").touch()
    query = run_to_end(joined, folder / options.get("out", "out"), folder / options.get("checkpoint", "cp"))
    report = pen.report(query) if query.recentProgress else None
    (folder / "report.json").write_text(json.dumps(report.to_dict() if report else None), encoding="utf-8")
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
