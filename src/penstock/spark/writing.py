"""Write several outputs of one join in one streaming query, each micro-batch exactly once."""

import contextlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.errors import InputError, WindowError
from penstock.operator import several
from penstock.operator.settings import SIDES, Bound
from penstock.spark import pipeline
from penstock.spark.places import place
from penstock.spark.task import ARCHIVE, LEDGER, THROUGH, archive_schema, latency_of, ledger_columns, unpacked
from penstock.streams.times import Clock, nanoseconds

BATCH = "batch"  # the outputs' partition column: a micro-batch that is run again takes its own place
SIDE, STREAM = "side", "stream"  # and of the archive: a repair reads one of them at a time
OPEN = "open"  # and of a ledger beside an archive: 1: the row was still to meet partners, 0: late ones only
TIMES = "spark.sql.parquet.outputTimestampType"
MICROS = "TIMESTAMP_MICROS"  # Spark's own default has no statistics, by which a repair reads what is near in time
PACKED = {"parquet.writer.version": "PARQUET_2_0"}  # numbers as differences: smaller, and read much faster


class Part(NamedTuple):
    """One of the outputs of a micro-batch."""

    path: str
    rows: Callable[[Any], Any]
    by: list[str]  # columns that divide it into folders
    options: dict[str, str]  # of the files


def write(
    joined: Any,
    *,
    checkpoint: str,
    results: str | Callable[[Any, int], None] | None,
    ledger: str | None,
    archive: str | None,
    trigger: Any,
) -> Any:
    """Start the query; arguments as for ``penstock.write``.

    `results` may also be a function. It is given the joined rows of each micro-batch, and its number, when the files
    of that are written, and once more if the micro-batch is run again.
    """
    made_of = getattr(joined, pipeline.MADE_OF, None)
    if made_of is None or not joined.isStreaming:
        want = "give the streaming DataFrame that pen.join or pen.multijoin returned, as it is"
        raise InputError("joined", type(joined).__name__, want)
    in_time(made_of[1], trigger)
    paths = {LEDGER: ledger, ARCHIVE: archive}
    if results is None and not any(paths.values()):
        raise InputError("results", "None", "name a folder for results, ledger or archive")
    wanted = frozenset(kind for kind, path in paths.items() if path is not None)
    frames, settings = made_of
    two = not isinstance(settings, several.Settings)
    raw, bound = pipeline.operator(frames, settings, wanted)
    schemas = {kind: (ledger_columns if kind == LEDGER else archive_schema)(bound) for kind in wanted}
    parts: list[Part] = []
    if isinstance(results, str):
        parts.append(Part(results, lambda batch: pipeline.rows_of(batch, bound), [], {}))
    by: dict[int, list[str]] = {ARCHIVE: [SIDE if two else STREAM], LEDGER: [OPEN] if two and archive else []}
    parts += [Part(str(paths[kind]), rows_of_kind(kind, schemas[kind]), by[kind], PACKED) for kind in sorted(wanted)]

    def write_batch(batch: Any, number: int) -> None:
        batch.sparkSession.conf.set(TIMES, MICROS)  # of the query's own session
        batch.persist()  # the operator runs once for all outputs
        try:
            for path, rows, by, options in parts:
                part = rows(batch)
                if OPEN in by:
                    assert isinstance(bound, Bound)
                    part = part.withColumn(OPEN, still_open(bound).cast("int"))
                writer = part.write.partitionBy(*by).options(**options).mode("overwrite")
                writer.parquet(f"{path}/{BATCH}={number}")
            if callable(results):
                results(pipeline.rows_of(batch, bound), number)
        finally:
            batch.unpersist()

    writer = raw.writeStream.outputMode("append").option("checkpointLocation", checkpoint).foreachBatch(write_batch)
    return (writer if trigger is None else writer.trigger(**_trigger(trigger))).start()


def query_of(checkpoint: str) -> str:
    """Return the identity of the query that has a checkpoint; another one that begins there anew has another."""
    system, base = place(checkpoint)
    with system.open_input_stream(f"{base}/metadata") as file:
        return str(json.loads(file.read())["id"])


def in_time(settings: Any, trigger: Any) -> None:
    """Raise if micro-batches are to come so seldom that a latency cannot be kept.

    Raises:
        InputError: if the trigger is longer than the part of the latency that a micro-batch may take.
    """
    latency = latency_of(getattr(settings, "cpu", None))
    every = None if trigger is None else _trigger(trigger).get("processingTime")
    if latency is None or not isinstance(every, str):
        return
    with contextlib.suppress(WindowError):  # other ways to write a span are for Spark to read
        if nanoseconds("trigger", every) / 10**9 > latency / THROUGH:
            at_most = f"rows wait for two micro-batches and are joined in the third: {latency / THROUGH:g} seconds"
            want = f"{at_most} at most, or None, which is as soon as the last one has ended"
            raise InputError("trigger", f"{every!r} with cpu={settings.cpu}", want)


def still_open(bound: Bound) -> Any:
    """Return the condition of rows of a ledger that were given up while their window was open, or met nobody at all.

    The others had only waited for late rows, and miss no others.
    """
    if bound.by_rows:
        return F.lit(True)
    spans = F.when(F.col(SIDE) == SIDES[0], bound.span[0]).otherwise(bound.span[1])
    return (F.col("reason") == "late") | (
        tick(F.col("shed_at"), bound.clock) < tick(F.col("ts"), bound.clock) + spans
    )


def tick(column: Any, clock: Clock) -> Any:
    """Return a column of times as whole numbers."""
    return column.cast("long") if clock.unit is None else F.unix_micros(column)


def rows_of_kind(kind: int, schema: pa.Schema) -> Callable[[Any], Any]:
    """Return the function that takes the rows of one kind from what leaves the operator."""

    def rows(batch: Any) -> Any:
        blobs = batch.select(pipeline.beside(kind).alias("blob")).where("blob is not null")
        return blobs.mapInArrow(unpacked(schema), from_arrow_schema(schema))

    return rows


def _trigger(trigger: Any) -> dict[str, Any]:
    """Return what ``DataStreamWriter.trigger`` takes, from "5 seconds", "available now" or just that."""
    if isinstance(trigger, dict):
        return trigger
    if isinstance(trigger, str):
        return {"availableNow": True} if trigger == "available now" else {"processingTime": trigger}
    raise InputError("trigger", repr(trigger), 'give a span such as "5 seconds", or "available now"')
