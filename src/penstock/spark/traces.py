"""A recorded or drawn trace as a stream of Spark, at its own pace, a multiple of it, or as fast as it is read."""

import functools
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from penstock.errors import ColumnError, OrderError, TimeError
from penstock.streams import files
from penstock.streams.times import nanoseconds
from penstock.streams.workloads import zipf

FORMAT = "penstock_trace"
ABOUT = "about"  # the option with everything else, as JSON
EPOCH = 1_700_000_000  # when tick 0 of a drawn trace is, in seconds
PIECE = 65_536  # rows that a task reads
STAMP = pa.timestamp("us", "UTC")


def stream(spark: Any, about: dict[str, Any]) -> Any:
    """Return a trace as a streaming DataFrame.

    Parameters:
        spark: the session.
        about: what ``trace`` takes, and `speed` (a multiple of the trace's own pace; None: as fast as it is read) and
            `rows_per_trigger` (at most so many rows a micro-batch, or None).

    Raises:
        InputError: if there is no such trace.
    """
    trace(json.dumps(about["trace"]))  # errors come here, and not as text out of another process
    spark.dataSource.register(Trace)
    return spark.readStream.format(FORMAT).option(ABOUT, json.dumps(about)).load()


@functools.lru_cache(maxsize=4)
def trace(spec: str) -> pa.Table:
    """Return a trace in order of time, which is its timestamp column `time`.

    Parameters:
        spec: JSON of {"path", "time", "tick", "start"} for a file, where `tick` is the length of one if time is in
            whole numbers, and `start` when tick 0 is; or {"side", "tick", ...} with the arguments of ``zipf``.

    Cost: the whole trace in memory, in every process that reads it.
    """
    about = json.loads(spec)
    tick = about.pop("tick")
    if "path" not in about:
        rows = zipf(**{name: value for name, value in about.items() if name != "side"})[about["side"]]
        return _timed(rows, "ts", tick, EPOCH * 10**9)
    rows = files.read(about["path"])
    column = about["time"]
    if column not in rows.column_names:
        raise TimeError("time", repr(column), f"the file has {', '.join(rows.column_names)}")
    timed = _timed(rows, column, tick, about["start"] * 10**9)
    times = stamps(timed, column)
    if times.size and times.min() <= 0:
        want = "Spark takes rows of 1970 and before for late: move them on, ticks with start = 2000-01-01"
        raise TimeError("start", f"a time of {times.min() / 10**6:.0f} seconds from 1970", want)
    if times.size and (np.diff(times) < 0).any():
        row = int(np.flatnonzero(np.diff(times) < 0)[0]) + 1
        raise OrderError("path", f"row {row} is before the one above it", "a trace is in order of time: sort it")
    return timed


def stamps(rows: pa.Table, column: str) -> Any:
    """Return a column of timestamps as microseconds."""
    return rows[column].combine_chunks().view(pa.int64()).to_numpy() if rows.num_rows else np.empty(0, np.int64)


def _timed(rows: pa.Table, column: str, tick: str | None, start: int) -> pa.Table:
    """Return rows with their time as timestamps that Spark knows, and columns of types that it has."""
    times = rows[column]
    if times.null_count:
        raise TimeError("time", f"{times.null_count} nulls in {column!r}", "every row of a trace needs a time")
    if pa.types.is_integer(times.type):
        if tick is None:
            raise TimeError(
                "tick", "nothing", f'{column!r} holds whole numbers: say how long one is, e.g. "1 second"'
            )
        length = nanoseconds("tick", tick)
        ticks = times.cast(pa.int64()).to_numpy()
        if ticks.size and max(abs(int(ticks.min())), abs(int(ticks.max()))) > (2**62 - start) // length:
            raise TimeError("tick", repr(tick), "the times of the trace go beyond what timestamps hold")
        times = pa.chunked_array([pa.array((ticks * length + start) // 1000)]).cast(pa.timestamp("us"))
    elif tick is not None or not pa.types.is_timestamp(times.type):
        want = (
            "it is for times in whole numbers" if tick is not None else "give a column of timestamps or whole numbers"
        )
        raise TimeError("tick" if tick is not None else "time", f"{times.type} in {column!r}", want)
    at = rows.schema.get_field_index(column)
    stamped = rows.set_column(at, column, times.cast(pa.timestamp("us", times.type.tz), safe=False).cast(STAMP))
    plain = pa.schema([field.with_type(_plain(field.type)) for field in stamped.schema])
    try:
        return stamped.cast(to_arrow_schema(from_arrow_schema(plain), timezone="UTC"))
    except Exception as error:
        raise ColumnError("path", str(plain), f"a column's type does not travel to Spark: {error}") from error


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of an encoded column."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


class Trace(DataSource):  # type: ignore[misc]  # Spark comes without types
    """The data source of traces."""

    @classmethod
    def name(cls) -> str:
        """Return its name, for ``spark.readStream.format``."""
        return FORMAT

    def schema(self) -> Any:
        """Return the columns of the trace."""
        about = json.loads(self.options[ABOUT])
        return from_arrow_schema(trace(json.dumps(about["trace"])).schema)

    def streamReader(self, schema: Any) -> "Reader":  # noqa: ARG002, N802 - Spark's name
        """Return the reader."""
        return Reader(json.loads(self.options[ABOUT]))


class Piece(InputPartition):  # type: ignore[misc]
    """Rows of a trace for one task: from the first one up to the last, left out."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__((first, last))
        self.first, self.last = first, last


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Hands out the rows of a trace as their time comes; an offset is a number of rows.

    A stream that goes on from a checkpoint goes on at the pace of the trace from where it was.
    """

    def __init__(self, about: dict[str, Any]) -> None:
        self._spec = json.dumps(about["trace"])
        self._speed: float | None = about["speed"]
        self._most: int | None = about["rows_per_trigger"]
        self._time: str = about["trace"].get("time", "ts")
        self._begun: tuple[float, int] | None = None  # on the wall clock; in the trace

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Begin with the first row."""
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how many rows a micro-batch may have."""
        return ReadAllAvailable() if self._most is None else ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take the whole trace for available: it is all there."""
        self._speed = None

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return how far the trace has come, within the limit."""
        first = start["row"]
        end = self._come(first)
        if isinstance(limit, ReadMaxRows):
            end = min(end, first + limit.max_rows)
        return {"row": max(first, end)}

    def _come(self, first: int) -> int:
        """Return how many rows have come by now."""
        rows = trace(self._spec)
        if self._speed is None or first >= rows.num_rows:
            return rows.num_rows
        times = stamps(rows, self._time)
        now = time.monotonic()
        if self._begun is None:
            self._begun = now, int(times[first])
        begin, moment = self._begun
        return int(np.searchsorted(times, moment + (now - begin) * self._speed * 1e6, "right"))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Piece]:
        """Cut the rows of a micro-batch into tasks."""
        first, last = start["row"], end["row"]
        return [Piece(at, min(at + PIECE, last)) for at in range(first, last, PIECE)]

    def read(self, partition: Piece) -> Iterator[pa.RecordBatch]:
        """Read the rows of a task."""
        yield from trace(self._spec)[partition.first : partition.last].to_batches()


def ended(progress: Any, totals: list[int]) -> bool:
    """Say whether a query has read its traces, with so many rows each, to the end."""
    ends = [json.loads(source.endOffset)["row"] for source in progress.sources if source.endOffset]
    return sorted(ends) == sorted(totals)
