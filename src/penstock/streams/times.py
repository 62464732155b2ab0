"""Turn time columns into integers, and spans as people write them into the same units."""

import datetime as dt
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.order import extent
from penstock.core.windows import Ints
from penstock.errors import TimeError, WindowError

NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "week": 7 * 86_400 * 10**9,
}
WORDS = {
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), "ns"),
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), "us"),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "week"),
}
LIMIT = 1 << 61  # so that sums and differences of times never overflow


@dataclass(frozen=True)
class Rows:
    """A window over the last so many rows of a side: what ``pen.rows`` returns."""

    count: int

    def __str__(self) -> str:
        return f"{self.count} rows"


@dataclass(frozen=True)
class Every:
    """Lazy re-evaluation, once in an interval: what ``pen.every`` returns."""

    interval: object

    def __str__(self) -> str:
        return f"every {self.interval}"


class Clock(NamedTuple):
    """The type of a join's time columns."""

    type: pa.DataType

    @property
    def unit(self) -> int | None:
        """Nanoseconds per tick of a timestamp column; None for integer ticks."""
        return NANOSECONDS[self.type.unit] if pa.types.is_timestamp(self.type) else None

    def ticks(self, argument: str, span: object) -> int:
        """Return a span as whole ticks of this clock, at least 0.

        Raises:
            WindowError: naming the argument, if it is no span, or not a whole number of ticks.
        """
        if isinstance(span, bool) or not isinstance(span, int | np.integer | str | dt.timedelta):
            raise WindowError(argument, repr(span), self._wanted())
        if isinstance(span, int | np.integer):
            if self.unit is not None and span != 0:
                raise WindowError(argument, repr(span), self._wanted())
            return _positive(argument, int(span), span)
        if self.unit is None:
            raise WindowError(argument, repr(span), self._wanted())
        length = nanoseconds(argument, span)
        if length % self.unit:
            finer = f"the time column counts in {self.type.unit}: use a whole number of those"
            raise WindowError(argument, repr(span), finer)
        return _positive(argument, length // self.unit, span)

    def _wanted(self) -> str:
        if self.unit is None:
            return "time is in integer ticks: give a whole number of ticks, or pen.rows(n)"
        return 'time is in timestamps: write a span such as "10 minutes", or pen.rows(n)'

    def values(self, column: pa.ChunkedArray, argument: str, first: int = 0) -> Ints:
        """Return a time column as integers, as ``read`` does."""
        return self.read(column, argument, first)[0]

    def read(self, column: pa.ChunkedArray, argument: str, first: int = 0) -> tuple[Ints, bool]:
        """Return a time column as integers, and whether none is less than the one before it.

        `first` is the number of its first row, for what errors say.

        Raises:
            TimeError: if it holds nulls or values beyond what can be added and compared.
        """
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(array, pa.ChunkedArray):
            return np.empty(0, np.int64), True
        if array.null_count:
            row = first + int(np.flatnonzero(~array.is_valid().to_numpy(zero_copy_only=False))[0])
            raise TimeError(argument, f"a null in row {row}", "every row needs a time: filter or fill it")
        try:
            if pa.types.is_timestamp(array.type):
                array = array.cast(pa.timestamp(self.type.unit, array.type.tz)).view(pa.int64())
            elif array.type != pa.int64():
                array = array.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise TimeError(argument, "a time beyond ±2**63", f"use a coarser unit ({error})") from error
        values = array.to_numpy()
        low, high, rising = extent(values) if values.size else (0, 0, True)
        if low < -LIMIT or high > LIMIT:
            raise TimeError(argument, "a time beyond ±2**61", "use a coarser unit")
        return values, rising

    def column(self, ticks: Ints) -> pa.Array:
        """Return integers as a time column."""
        plain = pa.array(ticks, pa.int64())
        return plain.view(self.type) if pa.types.is_timestamp(self.type) else plain.cast(self.type)

    def tick(self, argument: str, moment: object) -> int:
        """Return a moment as the user writes it (a tick, or a datetime) as an integer."""
        try:
            if self.unit is None:
                if isinstance(moment, bool) or not isinstance(moment, int | np.integer):
                    raise TimeError(argument, repr(moment), "time is in integer ticks: give one")
                return int(moment)
            return int(pa.scalar(moment, self.type).value)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise TimeError(argument, repr(moment), "time is in timestamps: give a datetime") from error


def _positive(argument: str, ticks: int, given: object) -> int:
    if not 0 <= ticks <= LIMIT:
        raise WindowError(argument, repr(given), "a span is positive, and shorter than 2**61 ticks")
    return ticks


def nanoseconds(argument: str, span: str | dt.timedelta) -> int:
    """Return the length of a span such as "1 hour 30 minutes" or a timedelta."""
    if isinstance(span, dt.timedelta):
        return (span.days * 86_400 + span.seconds) * 10**9 + span.microseconds * 1000
    found = re.findall(r"\s*([0-9]+)\s*([^\W\d_]+)\s*,?", span)
    rest = re.sub(r"\s*[0-9]+\s*[^\W\d_]+\s*,?", "", span).strip()
    if not found or rest or any(word.lower() not in WORDS for _, word in found):
        units = "ns, us, ms, seconds, minutes, hours, days, weeks"
        raise WindowError(argument, repr(span), f'write a number and a unit, as in "10 minutes"; units: {units}')
    return sum(int(number) * NANOSECONDS[WORDS[word.lower()]] for number, word in found)


def common_clock(left: pa.DataType, right: pa.DataType) -> Clock:
    """Return the clock of a join: integer ticks, or timestamps in the finer unit.

    A column without a type (of a file without rows) takes that of the other side.

    Raises:
        TimeError: if the two columns are not of one kind.
    """
    for name, kind in (("left", left), ("right", right)):
        if not (pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_null(kind)):
            raise TimeError("time", f"{kind} on the {name}", "a time column holds integers (ticks) or timestamps")
    if pa.types.is_null(left) or pa.types.is_null(right):
        typed = left if pa.types.is_null(right) else right
        left = right = pa.int64() if pa.types.is_null(typed) else typed
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return Clock(left if left == right else pa.int64())
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and (left.tz is None) == (right.tz is None):
        unit = max((left.unit, right.unit), key=("s", "ms", "us", "ns").index)
        return Clock(pa.timestamp(unit, left.tz))
    raise TimeError("time", f"{left} on the left and {right} on the right", "use the same kind on both sides")
