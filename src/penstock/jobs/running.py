"""Run a job: open its streams, join them, write what comes out, and go on until it ends or is told to."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

import pyarrow as pa

from penstock.errors import InputError
from penstock.jobs.keys import local, within
from penstock.jobs.parsing import (
    ConsoleSink,
    Csv,
    Files,
    Folder,
    Job,
    Kafka,
    KafkaSink,
    MemorySink,
    Paced,
    ParquetSink,
    Rate,
    Replay,
    Sink,
    Source,
    TableSink,
    Zipf,
    outputs,
)
from penstock.operator.settings import SIDES, Settings
from penstock.spark import inputs, pipeline, traces, writing
from penstock.spark.books import report_of
from penstock.spark.folders import Refined
from penstock.spark.repairs import repair_of
from penstock.streams.times import Rows

POLL = 0.2  # seconds
Show = Callable[[int, pa.Table], None]
Watch = Callable[[Any], None]


@dataclass(frozen=True)
class Outcome:
    """What a run of a job has done."""

    report: Any  # a ``Report``; of several streams, ``Flows``; None: no row came
    batches: int
    seconds: float
    stopped: bool  # from outside, before its streams ended

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        report = None if self.report is None else self.report.to_dict()
        return {"report": report, "batches": self.batches, "seconds": self.seconds, "stopped": self.stopped}


def options(job: Job) -> dict[str, str]:
    """Return what the Spark of a job must be told when it starts."""
    wanted = {"spark.jars.packages": ",".join(job.spark.packages)} if job.spark.packages else {}
    formats = [source.format for source in job.streams]
    if isinstance(job.sink, TableSink):
        formats.append(job.sink.provider)
    return {**wanted, **inputs.DELTA} if "delta" in formats else wanted


def frames(job: Job, spark: Any) -> dict[str, Any]:
    """Return the streams of a job as they are joined: by side, or by name where there are several.

    Raises:
        InputError: naming the key in the file.
    """
    _connected(job, spark)
    opened = []
    for name, source, column in zip(job.sources, job.streams, job.times, strict=True):
        with within(f"sources.{name}"):
            stream = inputs.shaped(_opened(spark, source), source.where, source.select)
            opened.append(inputs.watermarked(stream, column, source.watermark))
    return dict(zip(SIDES if job.joining == "join" else job.sources, opened, strict=True))


def _connected(job: Job, spark: Any) -> None:
    """Raise if this Spark lacks what reads a source or writes the sink: without the sink's, sources may not open."""
    for name, source in zip(job.sources, job.streams, strict=True):
        with within(f"sources.{name}"):
            inputs.there(spark, source.format)
    sink = job.sink
    with within("sink"):
        inputs.there(spark, *((sink.provider, "provider") if isinstance(sink, TableSink) else (sink.format,)))


def checked(job: Job, rows: Any) -> None:
    """Raise if the joined rows cannot be written as the file says, as far as that is known before they are.

    Raises:
        InputError: naming the key in the file.
    """
    writing.in_time(job.settings, job.triggered)
    for key, place in outputs(job).items():
        _takes_folders(key, place)
    if isinstance(job.sink, KafkaSink):
        with within("sink"):
            _keyed(rows, job.sink)


def _takes_folders(key: str, place: str) -> None:
    """Raise if no folder can be made at a place on this machine."""
    path = local(place)
    there = path and next((each for each in (path, *path.parents) if each.exists()), None)
    if there and not (there.is_dir() and os.access(there, os.W_OK)):
        raise InputError(key, place, f"{there} is no folder that can be written to: name another place")


def joined(job: Job, spark: Any) -> Any:
    """Return the joined stream of a job; its arguments are checked against the columns.

    Raises:
        InputError: naming the key in the file.
    """
    streams = frames(job, spark)
    with within(job.joining):
        if isinstance(job.settings, Settings):
            return pipeline.join(streams["left"], streams["right"], job.settings)
        return pipeline.multijoin(streams, job.settings)


def start(job: Job, spark: Any, *, show: Show | None = None) -> Any:
    """Start a job on a session and return its query.

    Parameters:
        job: what ``parsing.load`` returned.
        spark: the session, built with ``pen.configure``.
        show: told the first rows of every micro-batch, for a sink on the console.
    """
    rows = joined(job, spark)
    checked(job, rows)
    sink = job.sink
    places = {
        "checkpoint": job.checkpoint,
        **{f"sink.{each}": getattr(sink, each, None) for each in ("path", "name")},
    }
    known = {each: place for each, place in places.items() if place is not None} or {"sink.format": sink.format}
    with inputs.started(known, "give a checkpoint and an output of this job, or such as are not there yet"):
        if isinstance(sink, ParquetSink):
            return _beside(rows, job, sink.path)
        if job.ledger is None and job.archive is None:
            return _written(rows, job, sink, show)
        return _beside(rows, job, _appended(rows, job, show))


def _beside(rows: Any, job: Job, results: str | Callable[[Any, int], None]) -> Any:
    """Start the query that writes ledger and archive beside the results."""
    return writing.write(
        rows,
        checkpoint=str(job.checkpoint),
        results=results,
        ledger=job.ledger,
        archive=job.archive,
        trigger=job.triggered,
    )


def _appended(rows: Any, job: Job, show: Show | None) -> Callable[[Any, int], None]:
    """Return what becomes of a micro-batch's results in a sink that is not files; what can be tried before is."""
    sink = job.sink
    if isinstance(sink, TableSink):

        def append(batch: Any, number: int | None) -> None:
            writer = batch.write.format(sink.provider).mode("append").option("path", sink.path)
            if sink.provider == "delta" and number is not None:  # it takes a micro-batch of a query once
                writer = writer.options(txnAppId=writing.query_of(str(job.checkpoint)), txnVersion=number)
            writer.saveAsTable(sink.name)

        spark = rows.sparkSession
        inputs.registered(spark, sink.name, sink.provider, sink.path, rows.schema)
        append(spark.createDataFrame([], rows.schema), None)
        return append
    if isinstance(sink, KafkaSink):
        servers = {"kafka.bootstrap.servers": ",".join(sink.servers)}

        def send(batch: Any, _: int) -> None:
            _keyed(batch, sink).write.format(sink.format).options(**servers, topic=sink.topic).save()

        return send
    assert isinstance(sink, ConsoleSink)
    return _shown(sink, show)


def _written(rows: Any, job: Job, sink: Sink, show: Show | None) -> Any:
    """Start the query of a sink that is not files."""
    if isinstance(sink, KafkaSink):
        rows = _keyed(rows, sink)
    writer = rows.writeStream.outputMode("append").queryName(job.name)
    if job.checkpoint is not None:
        writer = writer.option("checkpointLocation", job.checkpoint)
    writer = writer.trigger(**job.triggered)
    if isinstance(sink, TableSink):
        return writer.toTable(sink.name, format=sink.provider, path=sink.path)
    if isinstance(sink, KafkaSink):
        servers = ",".join(sink.servers)
        return writer.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", sink.topic).start()
    if isinstance(sink, MemorySink):
        return writer.format("memory").queryName(sink.name).start()
    assert isinstance(sink, ConsoleSink)
    return writer.foreachBatch(_shown(sink, show)).start()


def _shown(sink: ConsoleSink, show: Show | None) -> Callable[[Any, int], None]:
    """Return what shows the first rows of a micro-batch."""

    def tell(batch: Any, number: int) -> None:
        batch.persist()
        try:
            batch.count()  # every shard must run, also those whose rows are not shown
            table = batch.limit(sink.rows).toArrow()
        finally:
            batch.unpersist()
        if show is not None and table.num_rows:
            show(number, table)

    return tell


def _keyed(rows: Any, sink: KafkaSink) -> Any:
    """Return rows as Kafka takes them."""
    with inputs.told("key", sink.key, f"give an expression on {', '.join(rows.columns)}"):
        return inputs.keyed(rows, sink.key)


def run(job: Job, spark: Any, *, stop: Event, show: Show | None = None, watch: Watch | None = None) -> Outcome:
    """Run a job until its streams end, it fails, or `stop` is set.

    Parameters:
        job, spark, show: as for ``start``.
        stop: set it from anywhere, also from a signal: the micro-batch that is on its way is given up, and done again
            by the next run.
        watch: told the progress of every micro-batch.

    Raises:
        InputError: naming the key in the file, before anything starts.
        SessionError: if a micro-batch fails.
    """
    begin = time.perf_counter()
    query = start(job, spark, show=show)
    totals = [traces.trace(spec(each)).num_rows for each in job.streams if isinstance(each, Paced)]
    seen = -1
    try:
        while query.isActive and not stop.is_set():
            progress = query.lastProgress
            seen = _told(query, progress, seen, watch)
            if job.ends and progress is not None and traces.ended(progress, totals):
                inputs.drained(query)
                break
            stop.wait(POLL)
    finally:
        query.stop()
    failed = inputs.failure(query)
    if failed is not None and not stop.is_set():  # Ctrl-C reaches Spark's own workers too
        raise failed
    _told(query, query.lastProgress, seen, watch)
    try:
        report = report_of(query)
    except InputError:  # nothing new came
        report = None
    batches = {progress.batchId for progress in query.recentProgress if progress.numInputRows}
    return Outcome(report, len(batches), time.perf_counter() - begin, stop.is_set())


def waits(job: Job) -> bool:
    """Say whether rows are joined when the watermark has passed them, and not as they come: several streams' are."""
    if not isinstance(job.settings, Settings):
        return True
    window = job.settings.window
    return job.settings.cpu is not None or isinstance(window[0] if isinstance(window, tuple) else window, Rows)


def _told(query: Any, last: Any, seen: int, watch: Watch | None) -> int:
    """Tell of the micro-batches after `seen` up to the last, each once and in order; return its number."""
    if last is None or last.batchId <= seen:
        return seen
    news = [last] if last.batchId == seen + 1 else [each for each in query.recentProgress if each.batchId > seen]
    for progress in news:
        if watch is not None:
            watch(progress)
    return last.batchId


def refine(job: Job, spark: Any, progress: Callable[[int, int], None] | None = None) -> Refined:
    """Complete the result of a job to the exact join, as far as it has come.

    Raises:
        InputError: if the job has no [refine], or nothing was written yet.
    """
    if job.refine is None or job.archive is None or job.ledger is None:
        raise InputError(
            "refine", "no such table", 'add [refine] with into = "..." to the job, [ledger] and [archive]'
        )
    refined: Refined = repair_of(job.settings).refine_into(
        job.archive,
        job.ledger,
        job.refine.into,
        job.settings,
        spark=spark,
        batches=job.refine.batches,
        keep=job.refine.keep,
        progress=progress,
    )
    return refined


# --- sources -------------------------------------------------------------------------------------------------------


def _opened(spark: Any, source: Source) -> Any:
    """Return the stream of a source, as it comes."""
    if isinstance(source, Folder):
        wanted: dict[str, str] = {}
        if source.files_per_trigger is not None:
            wanted["maxFilesPerTrigger"] = str(source.files_per_trigger)
        if isinstance(source, Csv):
            wanted |= {"header": str(source.header).lower(), "sep": source.separator, "inferSchema": "true"}
        schema = source.schema if isinstance(source, Files) else None
        return inputs.opened(spark, source.format, wanted, path=source.path, schema=schema)
    if isinstance(source, Kafka):
        wanted = {
            "kafka.bootstrap.servers": ",".join(source.servers),
            "subscribe": ",".join(source.topics),
            "startingOffsets": source.starting,
        }
        if source.rows_per_trigger is not None:
            wanted["maxOffsetsPerTrigger"] = str(source.rows_per_trigger)
        stream = inputs.opened(spark, "kafka", wanted)
        return stream if source.schema is None else inputs.parsed(stream, source.schema)
    if isinstance(source, Rate):
        return inputs.opened(spark, "rate", {"rowsPerSecond": str(source.rows_per_second)})
    assert isinstance(source, Paced)
    about = {"speed": source.speed, "rows_per_trigger": source.rows_per_trigger}
    return traces.stream(spark, {"trace": json.loads(spec(source)), **about})


def spec(source: Paced) -> str:
    """Return which trace is meant, in the words of ``traces.trace``."""
    if isinstance(source, Replay):
        return json.dumps({"path": source.path, "time": source.time, "tick": source.tick, "start": source.start})
    assert isinstance(source, Zipf)
    names = ("rows", "keys", "skew", "relation", "rate", "payload", "importance", "seed")
    drawn = {name: getattr(source, name) for name in names}
    return json.dumps({**drawn, "side": SIDES.index(str(source.side)), "tick": source.tick})
