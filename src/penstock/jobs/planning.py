"""Say what a job would do and how much memory it would take, without starting it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from penstock.errors import TimeError
from penstock.jobs.keys import within
from penstock.jobs.parsing import Folder, Job, Paced, Rate, Source
from penstock.jobs.running import checked, frames, spec
from penstock.operator.settings import ROW_BYTES, Bound, Settings, budget
from penstock.spark import inputs, pipeline, traces
from penstock.streams import deltas, footers

NAMED = re.compile(r"(`[^`]+`|\w+)(?:\s+as\s+(`[^`]+`|\w+))?", re.IGNORECASE)  # a column, also by a new name
TEXT = 20  # bytes of a text or of bytes, as a guess
ITEMS = 8  # values in a list or a map, as a guess
SAID = {
    "parquet": (footers.groups, "the footers of"),
    "delta": (deltas.groups, "what the table's log says of"),
}  # by format


class Need(NamedTuple):
    """How many rows of a source its window needs at most."""

    rows: int | None  # None: that is not known
    known: str  # how it is, or why it is not
    at_most: bool = False  # where leaves rows out, and how many is not known


@dataclass(frozen=True)
class Forecast:
    """What a job would do, and the memory that its windows would take."""

    sources: dict[str, dict[str, Any]]  # by name: format, side, columns with types, watermark, rows in its window
    join: dict[str, Any]  # its arguments
    order: str | None  # in which several streams are joined, or when that is found
    columns: dict[str, str]  # of the result
    sink: dict[str, Any]
    checkpoint: str | None
    trigger: str
    shards: int
    row_bytes: int  # of a row in a window: its values, texts guessed, and what the join keeps beside it
    window_rows: int | None  # rows that the windows need at the rates known; None: the rates are not known
    at_most: bool  # they need no more: `where` leaves rows out, and how many is not known
    memory_rows: int | None  # rows that are kept; None: as many as the windows need, and that is not known
    memory_bytes: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return dict(vars(self))


def forecast(job: Job, spark: Any) -> Forecast:
    """Open the streams of a job, check join and sink against their columns, and say what it would take.

    Nothing is started and nothing is written.

    Raises:
        InputError: naming the key in the file.
    """
    streams = frames(job, spark)
    with within(job.joining):
        raw, bound = pipeline.operator(streams, job.settings)
    checked(job, pipeline.rows_of(raw, bound))
    widths = [sum(_width(field.type) for field in schema) + ROW_BYTES for schema in bound.schemas]
    row = max(widths)
    by_rows = [bound.by_rows] * 2 if isinstance(bound, Bound) else bound.by_rows
    needs = [
        need(source, column, int(span), in_rows=in_rows, files=_files(source, spark))
        for source, column, span, in_rows in zip(job.streams, job.times, bound.span, by_rows, strict=True)
    ]
    known = [each.rows for each in needs if each.rows is not None]
    wanted = sum(known) if len(known) == len(needs) else None
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
                "window_rows": each.rows,
                "window_known": each.known,
            }
            for name, source, side, schema, each in zip(
                job.sources, job.streams, streams, bound.schemas, needs, strict=True
            )
        },
        join={
            name: value if isinstance(value, int) else str(value)
            for name, value in job.settings.arguments().items()
            if value is not None and name not in {"lateness", "how"}
        },
        order=None if isinstance(job.settings, Settings) else _order(job.settings.order),
        columns={field.name: str(field.type) for field in bound.schema},
        sink=dict(vars(job.sink)),
        checkpoint=job.checkpoint,
        trigger=job.trigger or "as soon as possible",
        shards=1 if bound.one_shard else job.settings.shards or int(spark.conf.get("spark.sql.shuffle.partitions")),
        row_bytes=row,
        window_rows=wanted,
        at_most=wanted is not None and any(each.at_most for each in needs),
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


def _order(order: str | Sequence[str]) -> str:
    """Return the order in which several streams are joined, or why it is not known yet."""
    if not isinstance(order, str):
        return ", ".join(order)
    return "found on the first rows: it depends on distinct values too, which are not known before"


def need(source: Source, column: str, span: int, *, in_rows: bool, files: Sequence[str]) -> Need:
    """Return how many rows of a source its window needs at most, where that can be known.

    Parameters:
        source: the source.
        column: the time of its rows, as they are joined.
        span: the length of the window: rows, or microseconds.
        in_rows: which of both.
        files: the addresses of the files that a source of Parquet or a Delta table has.
    """
    if in_rows:
        return Need(span, "the window is in rows")
    before = _before(source.select, column)
    if before is None:
        return Need(None, f"select computes {column}")
    found = _counted(source, before, span, files)
    if found.rows is None or source.where is None:
        return found
    return Need(found.rows, f"at most: {found.known}, before where leaves some out", at_most=True)


def _counted(source: Source, column: str, span: int, files: Sequence[str]) -> Need:
    """Return how many rows of a source its window needs, all of them counted."""
    if isinstance(source, Rate) and column == "timestamp":
        return Need(-(-source.rows_per_second * span // 10**6), "by rows_per_second")
    if isinstance(source, Paced) and column == (getattr(source, "time", None) or "ts"):
        times = traces.stamps(traces.trace(spec(source)), column)
        before = np.searchsorted(times, times - span, "right")
        rows = int((np.arange(1, times.size + 1) - before).max(initial=0))
        return Need(rows, "counted in the trace")
    if source.format in SAID:
        return _by_files(source.format, files, column, span)
    return Need(None, f"how fast rows come is not known of {source.format}")


def _by_files(form: str, files: Sequence[str], column: str, span: int) -> Need:
    """Estimate how many rows the window over a folder of Parquet or a Delta table needs."""
    if not files:
        return Need(None, "there is no file yet")
    places = [urlsplit(each) for each in files]
    if any(place.scheme != "file" for place in places):
        return Need(None, "the files are not on this machine")
    groups, what = SAID[form]
    try:
        found = groups([Path(unquote(place.path)) for place in places], column)
    except TimeError as error:
        return Need(None, f"{error.got}: {error.want}")
    return Need(footers.most(found, span), f"estimated from {what} {len(files):,} files")


def _files(source: Source, spark: Any) -> list[str]:
    """Return the addresses of the files that a source of Parquet or a Delta table has."""
    if not isinstance(source, Folder) or source.format not in SAID:
        return []
    return inputs.listed(spark, source.format, source.path)


def _before(select: Sequence[str] | None, column: str) -> str | None:
    """Return the name that a column had before `select`; None: it is computed."""
    if select is None:
        return column
    for each in select:
        if each.strip() == "*":
            return column
        found = NAMED.fullmatch(each.strip())
        if found and (found[2] or found[1]).strip("`") == column:
            return found[1].strip("`")
    return None
