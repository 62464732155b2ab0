"""Write several outputs of one join in one streaming query, each micro-batch exactly once."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.errors import InputError
from penstock.operator import several
from penstock.spark import pipeline
from penstock.spark.task import ARCHIVE, LEDGER, archive_schema, ledger_columns, unpacked
from penstock.streams.sets import Condition

BATCH = "batch"  # the outputs' partition column: a micro-batch that is run again takes its own place


def write(
    joined: Any, *, checkpoint: str, results: str | None, ledger: str | None, archive: str | None, trigger: Any
) -> Any:
    """Start the query; arguments as for ``penstock.write``."""
    made_of = getattr(joined, pipeline.MADE_OF, None)
    if made_of is None or not joined.isStreaming:
        want = "give the streaming DataFrame that pen.join or pen.multijoin returned, as it is"
        raise InputError("joined", type(joined).__name__, want)
    paths = {LEDGER: ledger, ARCHIVE: archive}
    if results is None and not any(paths.values()):
        raise InputError("results", "None", "name a folder for results, ledger or archive")
    wanted = frozenset(kind for kind, path in paths.items() if path is not None)
    frames, settings = made_of
    if archive is not None and isinstance(settings, several.Settings):
        raise InputError("archive", repr(archive), "joins of several streams are not refined: leave it None")
    if archive is not None and (settings.cpu is not None or isinstance(settings.on, Condition)):
        want = "joins on conditions or with a CPU budget are not refined: leave it None"
        raise InputError("archive", repr(archive), want)
    raw, bound = pipeline.operator(frames, settings, wanted)
    schemas = {kind: (ledger_columns if kind == LEDGER else archive_schema)(bound) for kind in wanted}
    parts: list[tuple[str, Callable[[Any], Any]]] = []
    if results is not None:
        parts.append((results, lambda batch: pipeline.rows_of(batch, bound)))
    parts += [(str(paths[kind]), _rows_of_kind(kind, schemas[kind])) for kind in sorted(wanted)]

    def write_batch(batch: Any, number: int) -> None:
        batch.persist()  # the operator runs once for all outputs
        try:
            for path, rows in parts:
                rows(batch).write.mode("overwrite").parquet(f"{path}/{BATCH}={number}")
        finally:
            batch.unpersist()

    writer = raw.writeStream.outputMode("append").option("checkpointLocation", checkpoint).foreachBatch(write_batch)
    return (writer if trigger is None else writer.trigger(**_trigger(trigger))).start()


def _rows_of_kind(kind: int, schema: pa.Schema) -> Callable[[Any], Any]:
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
