"""Say what a job would do and how much memory it would take, without starting it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.jobs.keys import within
from penstock.jobs.parsing import Job, Paced, Rate, Source
from penstock.jobs.running import frames, spec
from penstock.operator.settings import ROW_BYTES, Bound, Settings, budget
from penstock.spark import pipeline, traces

TEXT = 20  # bytes of a text or of bytes, as a guess
ITEMS = 8  # values in a list or a map, as a guess


@dataclass(frozen=True)
class Forecast:
    """What a job would do, and the memory that its windows would take."""

    sources: dict[str, dict[str, Any]]  # by name: format, side, columns with their types, watermark
    join: dict[str, Any]  # its arguments
    columns: dict[str, str]  # of the result
    sink: dict[str, Any]
    checkpoint: str | None
    trigger: str
    shards: int
    row_bytes: int  # of a row in a window: its values, texts guessed, and what the join keeps beside it
    window_rows: int | None  # rows that the windows need at the rates known; None: the rates are not known
    memory_rows: int | None  # rows that are kept; None: as many as the windows need, and that is not known
    memory_bytes: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return dict(vars(self))


def forecast(job: Job, spark: Any) -> Forecast:
    """Open the streams of a job, check the join against their columns, and say what it would take.

    Nothing is started and nothing is written.

    Raises:
        InputError: naming the key in the file.
    """
    streams = frames(job, spark)
    with within(job.joining):
        _, bound = pipeline.operator(streams, job.settings)
    widths = [sum(_width(field.type) for field in schema) + ROW_BYTES for schema in bound.schemas]
    row = max(widths)
    by_rows = [bound.by_rows] * 2 if isinstance(bound, Bound) else bound.by_rows
    needs = [
        _rows_in(source, int(span), in_rows=in_rows)
        for source, span, in_rows in zip(job.streams, bound.span, by_rows, strict=True)
    ]
    wanted = None if None in needs else sum(need or 0 for need in needs)
    unit, limit, shared = budget(
        job.settings.memory, job.settings.split if isinstance(job.settings, Settings) else "shared"
    )
    total = limit[0] if shared else sum(limit)
    most = {"rows": total, "bytes": total // row}.get(unit)
    kept = min((each for each in (most, wanted) if each is not None), default=None)
    size = None if kept is None else kept * row
    if unit == "bytes":
        size = min(total, size or total)
    return Forecast(
        sources={
            name: {
                "format": source.format,
                "side": side,
                "columns": {field.name: str(field.type) for field in schema},
                "watermark": source.watermark,
            }
            for name, source, side, schema in zip(job.sources, job.streams, streams, bound.schemas, strict=True)
        },
        join={
            name: value if isinstance(value, int) else str(value)
            for name, value in job.settings.arguments().items()
            if value is not None and name not in {"lateness", "how"}
        },
        columns={field.name: str(field.type) for field in bound.schema},
        sink=dict(vars(job.sink)),
        checkpoint=job.checkpoint,
        trigger=job.trigger or "as soon as possible",
        shards=1 if bound.one_shard else job.settings.shards or int(spark.conf.get("spark.sql.shuffle.partitions")),
        row_bytes=row,
        window_rows=wanted,
        memory_rows=kept,
        memory_bytes=size,
    )


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value, as a guess where they differ from row to row."""
    if pa.types.is_struct(kind):
        return sum(_width(kind.field(at).type) for at in range(kind.num_fields))
    if pa.types.is_map(kind):
        return ITEMS * (_width(kind.key_type) + _width(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return ITEMS * _width(kind.value_type)
    try:
        return max(1, kind.bit_width // 8)
    except ValueError:  # texts and bytes
        return TEXT


def _rows_in(source: Source, span: int, *, in_rows: bool) -> int | None:
    """Return how many rows of a source its window needs at most, where that can be known."""
    if in_rows:
        return span
    if isinstance(source, Rate):
        return -(-source.rows_per_second * span // 10**6)
    if not isinstance(source, Paced):
        return None
    rows = traces.trace(spec(source))
    times = traces.stamps(rows, getattr(source, "time", "ts") or "ts")
    if not times.size:
        return 0
    return int((np.arange(1, times.size + 1) - np.searchsorted(times, times - span, "right")).max())
