"""Play two tables as live streams through a join on a local Spark of one's own."""

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkConf, SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.errors import InputError, SessionError
from penstock.operator.join import settings_of
from penstock.quality.books import Report
from penstock.spark import pipeline, session
from penstock.spark.books import report_of

EPOCH = 1_700_000_000  # when the first tick is, in seconds
SECOND = 10**6  # in microseconds: a tick is a second of event time
POLL = 0.2
MEMORY = "1g"  # of the JVM
ADVICE = "the message is Spark's own; penstock doctor --spark tries a small join"

Cuts = list[tuple[int, int, float]]  # first row, end, and the share of time gone by then
Watch = Callable[[int, Report, float], None]


def play(
    tables: tuple[pa.Table, pa.Table], arguments: dict[str, Any], *, cuts: Cuts, seconds: float, watch: Watch | None
) -> Report:
    """Feed two tables (columns `ts` in ticks, in step) to a join on Spark as time goes by.

    Parameters:
        tables: left and right.
        arguments: those of ``penstock.join``; the window in ticks.
        cuts: what arrives together, and when.
        seconds: how long it takes until everything has arrived.
        watch: told how many rows are through, the report, and the seconds it took, after every micro-batch.

    Raises:
        SessionError: if Spark does not start, or a micro-batch fails.
    """
    with local_spark() as spark, tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        homes = [Path(folder) / name for name in ("left", "right")]
        streams = []
        for home, table in zip(homes, tables, strict=True):
            home.mkdir()
            empty = timed(table[:0])
            pq.write_table(empty, home / "0.parquet")
            stream = spark.readStream.schema(spark.read.parquet(str(home)).schema).parquet(str(home))
            streams.append(stream.withWatermark("ts", "1 second"))
        settings = settings_of({**arguments, "window": f"{arguments['window']} seconds"})
        joined = pipeline.join(streams[0], streams[1], settings)
        sink = joined.writeStream.format("noop").option("checkpointLocation", str(Path(folder) / "checkpoint"))
        query = sink.start()
        feeder = threading.Thread(target=feed, args=(homes, tables, cuts, seconds), daemon=True)
        feeder.start()
        try:
            _follow(query, feeder, watch)
            query.processAllAvailable()
            report = report_of(query)
            if watch is not None:
                watch(report.arrivals.total, report, _seconds(query))
        except StreamingQueryException as error:
            raise SessionError("query", str(error), ADVICE) from error
        finally:
            query.stop()
            feeder.join()
        wanted = sum(table.num_rows for table in tables)
        if report.arrivals.total != wanted:  # the feeder could not write, and said so
            raise SessionError("query", f"{report.arrivals.total} of {wanted} rows", "is the disk full?")
        return report


def timed(table: pa.Table) -> pa.Table:
    """Return rows with their ticks as timestamps."""
    ticks = table["ts"].to_numpy()
    moments = pa.array((ticks + EPOCH) * SECOND, pa.timestamp("us", "UTC"))
    return table.set_column(table.schema.get_field_index("ts"), "ts", moments)


def feed(homes: list[Path], tables: tuple[pa.Table, pa.Table], cuts: Cuts, seconds: float) -> None:
    """Write a file for each side and stretch when its time has come; a file appears whole."""
    begin = time.perf_counter()
    for number, (start, stop, share) in enumerate(cuts, start=1):
        time.sleep(max(0.0, begin + share * seconds - time.perf_counter()))
        for home, table in zip(homes, tables, strict=True):
            hidden = home / f".{number}"
            pq.write_table(timed(table[start:stop]), hidden)
            hidden.rename(home / f"{number}.parquet")


def _follow(query: Any, feeder: threading.Thread, watch: Watch | None) -> None:
    """Report every micro-batch until everything is fed."""
    seen = -1
    while feeder.is_alive():
        feeder.join(POLL)
        failed = query.exception()
        if failed is not None:
            raise SessionError("query", str(failed), ADVICE)
        progress = query.lastProgress
        if watch is not None and progress is not None and progress.batchId != seen:
            seen = progress.batchId
            with contextlib.suppress(InputError):  # nothing has come through yet
                report = report_of(query)
                watch(report.arrivals.total, report, _seconds(query))


def _seconds(query: Any) -> float:
    """Return how long the last micro-batch with rows took."""
    took = [progress.batchDuration for progress in query.recentProgress if progress.numInputRows]
    return took[-1] / 1000 if took else 0.0


@contextlib.contextmanager
def local_spark(memory: str = MEMORY, more: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Start a Spark of one's own on this machine, with so much memory, its log in a file; end it afterwards.

    Parameters:
        memory: of the JVM.
        more: options beside Penstock's own.

    Raises:
        SessionError: if it does not start; with the end of its log.
    """
    folder = Path(tempfile.mkdtemp(prefix="penstock-spark-"))
    log = folder / "spark.log"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    builder = session.configure(SparkSession.builder.master(f"local[{cores}]").appName("penstock"))
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    options |= dict(more or {})
    for name, value in options.items():
        builder = builder.config(name, value)
    try:
        with _stderr_to(log):  # the JVM and its children inherit it
            _launch(options)
            spark = builder.getOrCreate()
    except Exception as error:
        tail = log.read_text(errors="replace")[-2000:] if log.exists() else ""
        raise SessionError("Spark", f"{error}\n{tail}", "run: penstock doctor") from error
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _launch(options: Mapping[str, str]) -> None:
    """Start the JVM, if there is none yet, in a process group of its own.

    Ctrl-C, and what ends a whole group, is then for this process alone, which stops its queries first. When it is
    gone, the JVM ends too: the pipe between them does.
    """
    if SparkContext._gateway is None:  # noqa: SLF001 - there is no other way to ask
        conf = SparkConf().setAll(list(options.items()))
        SparkContext._ensure_initialized(gateway=launch_gateway(conf, {"process_group": 0}))  # noqa: SLF001


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
