"""What the planner knows of each stream: given as numbers, or measured on a sample."""

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.windows import Ints
from penstock.errors import ColumnError, InputError, KeyTypeError, WindowError
from penstock.streams.keys import Coder, common_type, has_order, ranks
from penstock.streams.times import Clock, Every, Rows, common_clock, nanoseconds

MOMENTS = 8  # at which the distinct values of a sample's window are counted
COMPARED = ("=", "!=", "<", "<=", ">", ">=")  # how the columns of an edge may be compared
LEAST_SHARE = 1e-9  # of pairs that match: never none, since a sample does not show all
ENOUGH = 30  # pairs of a sample that match, to say what share does
Selectivity = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Stream:
    """What is known of one stream and its window.

    Parameters:
        name: of the stream.
        rate: tuples per unit of time (λ).
        window: its length in the same unit (T), ``pen.rows(n)``, or a span in words ("10 minutes"), which counts in
            seconds.
        distinct: different values of the join attribute in the window (v).
        buckets: of its hash index (b); None: no index.
        price: of one comparison with its tuples, for predicates that are expensive; 1 is a plain comparison.

    References: golab2003 Table 1; §5.4 (expensive predicates).
    """

    name: str
    _: KW_ONLY
    rate: float
    window: Any
    distinct: float
    buckets: int | None = None
    price: float = 1.0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError("name", repr(self.name), "give the stream a name")
        for argument, least in (("rate", 0), ("distinct", 1), ("price", 0)):
            value = getattr(self, argument)
            if not _is_number(value) or value < least or value == 0:
                want = "at least 1" if least else "above 0"
                raise InputError(argument, f"{value!r} for {self.name}", f"give a finite number {want}")
        if self.buckets is not None and (not _is_number(self.buckets) or self.buckets < 1 or self.buckets % 1):
            raise InputError("buckets", f"{self.buckets!r} for {self.name}", "give at least 1, or None: no index")
        if self.span <= 0:
            raise WindowError("window", f"{self.window!r} for {self.name}", "a window is longer than 0")

    @property
    def span(self) -> float:
        """The length of the window in units of time (T)."""
        return self.window.count / self.rate if isinstance(self.window, Rows) else in_units("window", self.window)

    @property
    def size(self) -> float:
        """The expected number of tuples in the window (C = λT)."""
        return self.rate * self.span


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool) and math.isfinite(value)


def in_units(argument: str, length: object) -> float:
    """Return a length of time as a number: itself, or the seconds of a span in words."""
    if isinstance(length, str | dt.timedelta):
        return nanoseconds(argument, length) / 10**9
    if not _is_number(length):
        raise WindowError(argument, repr(length), 'give a number, pen.rows(n), or a span such as "10 minutes"')
    return float(length)  # type: ignore[arg-type]


def interval(evaluation: object) -> float | None:
    """Return the interval of lazy re-evaluation (τ); None: eager."""
    if evaluation == "eager":
        return None
    if not isinstance(evaluation, Every):
        raise InputError("evaluation", repr(evaluation), 'give "eager" or pen.every(...)')
    length = in_units("evaluation", evaluation.interval)
    if length <= 0:
        raise InputError("evaluation", str(evaluation), "an interval is longer than 0")
    return length


class Measured(NamedTuple):
    """Statistics of a sample."""

    streams: list[Stream]
    selectivity: Selectivity | None  # None: all streams are joined on a common attribute


class _Sample:
    """The rows of one stream, in order of time."""

    def __init__(self, name: str, table: pa.Table, time: str, window: object, moments: int) -> None:
        self.name, self.table, self.window, self.moments = name, table, window, moments
        kind = _field(table, time, name, "time").type
        self.clock: Clock = common_clock(kind, kind)
        ts = self.clock.values(table[time], f"time={time!r}")
        self.order = np.argsort(ts, kind="stable")
        self.ts = ts[self.order]
        self.unit = 1.0 if self.clock.unit is None else self.clock.unit / 10**9
        if not isinstance(window, Rows):
            self.ticks = self.clock.ticks("windows", window)

    def windows(self) -> list[tuple[int, int]]:
        """Return the window as it stood at the end and at moments before: its first row, the one after its last."""
        if isinstance(self.window, Rows):
            least = min(self.window.count, self.ts.size)
            ends = np.unique(np.linspace(self.ts.size, least, self.moments).astype(int))
            return [(max(0, int(end) - self.window.count), int(end)) for end in ends]
        if not self.ts.size:
            return []
        first, last = int(self.ts[0]), int(self.ts[-1])
        moments = np.unique(np.linspace(last, min(first + self.ticks - 1, last), self.moments).astype(np.int64))
        begins = np.searchsorted(self.ts, moments - self.ticks, side="right")
        ends = np.searchsorted(self.ts, moments, side="right")
        return list(zip(begins.tolist(), ends.tolist(), strict=True))

    def distinct(self, columns: Sequence[str]) -> float:
        """Return how many values of a key a window holds, on average over some moments; at least 1."""
        kinds = [_field(self.table, column, self.name, "on").type for column in columns]
        coder = Coder(tuple(common_type(kind, kind, column) for kind, column in zip(kinds, columns, strict=True)))
        codes = coder.code([self.table[column] for column in columns])[0][self.order]
        counts = [pc.count_distinct(pa.array(codes[begin:end])).as_py() for begin, end in self.windows()]
        return max(1.0, float(np.mean(counts))) if counts else 1.0


def measured(tables: Mapping[str, pa.Table], *, on: Any, time: Any, windows: Any, moments: int = MOMENTS) -> Measured:
    """Measure rates and distinct values on a sample of each stream, all of the same period.

    Parameters:
        tables: the samples by name.
        on: a column or a list of columns common to all; or a join graph, as ``edges`` takes it.
        time: the time column, or one for each by name.
        windows: one window for all, or one for each by name.
        moments: at how many the distinct values of a window are counted, at the end and before.

    Returns:
        The streams, with rates per tick or per second, and for a join graph the selectivity of each edge: one in as
        many as the larger number of distinct values.

    Cost: O(rows log rows).
    """
    names = list(tables)
    spans, times = per_stream("windows", windows, names), per_stream("time", time, names)
    samples = {name: _Sample(name, table, times[name], spans[name], moments) for name, table in tables.items()}
    begin, end = (
        edge((int(s.ts[at]) * s.unit for s in samples.values() if s.ts.size), default=0.0)
        for edge, at in ((min, 0), (max, -1))
    )
    links = edges(on, names) if isinstance(on, Mapping) else None
    common = [on] if isinstance(on, str) else on
    if links is not None:
        whole(names, [link.pair for link in links], "on")
    elif not (isinstance(common, list) and common):
        raise ColumnError("on", repr(on), "give a column, a list of columns, or a join graph {(name, name): column}")
    streams = []
    for name, sample in samples.items():
        keys = [common] if links is None else [columns for link in links for at, columns in link.ends if at == name]
        distinct = max((sample.distinct(columns) for columns in keys), default=1.0)
        rate = max(sample.ts.size, 1) / (end - begin + sample.unit)
        window = sample.window if isinstance(sample.window, Rows) else sample.ticks * sample.unit
        streams.append(Stream(name, rate=rate, window=window, distinct=distinct))
    if links is None:
        return Measured(streams, None)
    shares: dict[tuple[str, str], float] = {}
    for link in links:
        shares[link.pair] = shares.get(link.pair, 1.0) * _share(link, samples)
    return Measured(streams, shares)


class Link(NamedTuple):
    """One comparison between two streams of a join graph."""

    pair: tuple[str, str]
    mine: list[str]
    how: str  # one of COMPARED
    theirs: list[str]

    @property
    def ends(self) -> tuple[tuple[str, list[str]], tuple[str, list[str]]]:
        """Each stream with its columns."""
        return (self.pair[0], self.mine), (self.pair[1], self.theirs)


def edges(on: Mapping[Any, Any], names: Sequence[str]) -> list[Link]:
    """Return the comparisons of a join graph: for each edge one for equality, and one for each other comparison.

    Parameters:
        on: {(name, name): column, (column, column), (column, "<", column), or a list of these}.
        names: of the streams.
    """
    found: list[Link] = []
    for pair, given in on.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(name in names for name in pair)):
            raise InputError("on", repr(pair), f"an edge names two of the streams: {', '.join(names)}")
        if pair[0] == pair[1] or any(link.pair == pair[::-1] for link in found):
            raise InputError("on", repr(pair), "each edge joins two different streams, and is named once")
        parts = [_part(part) for part in (given if isinstance(given, list) else [given])]
        equal = [part for part in parts if part[1] == "="]
        if equal:
            found.append(Link(pair, [part[0] for part in equal], "=", [part[2] for part in equal]))
        found += [Link(pair, [mine], how, [theirs]) for mine, how, theirs in parts if how != "="]
        if not parts:
            raise ColumnError("on", repr(given), "compare at least one column")
    return found


def whole(names: Sequence[str], pairs: Sequence[tuple[str, str]], argument: str, otherwise: str = "") -> None:
    """Raise unless a join graph hangs together, and say what else to do, if there is anything."""
    first, *others = parts_of(names, pairs)
    if others:
        got = f"no way from {first[0]} to {', '.join(name for part in others for name in part)}"
        raise InputError(argument, got, "join every stream with another, so that the graph is connected" + otherwise)


def parts_of(names: Sequence[str], pairs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Return the parts of a join graph that hang together, each in the order of the names."""
    parts: list[list[str]] = []
    left = list(names)
    while left:
        reached = {left[0]}
        while grown := {name for pair in pairs if reached & set(pair) for name in pair} - reached:
            reached |= grown
        parts.append([name for name in names if name in reached])
        left = [name for name in left if name not in reached]
    return parts


def _part(part: Any) -> tuple[str, str, str]:
    """Return one comparison of an edge as (column, how, column)."""
    if isinstance(part, str):
        return part, "=", part
    if isinstance(part, tuple) and all(isinstance(word, str) for word in part):
        if len(part) == 2:
            return part[0], "=", part[1]
        if len(part) == 3 and part[1] in COMPARED:
            return part[0], part[1], part[2]
    want = f"give a column, (column, column), (column, {'|'.join(COMPARED)}, column), or a list of these"
    raise ColumnError("on", repr(part), want)


def _share(link: Link, samples: Mapping[str, "_Sample"]) -> float:
    """Return the share of pairs that a comparison lets through."""
    if link.how in {"=", "!="}:
        return equal_share(link.how, max(samples[name].distinct(columns) for name, columns in link.ends))
    kinds = [_field(samples[name].table, columns[0], name, "on").type for name, columns in link.ends]
    kind = comparable(kinds[0], kinds[1], link.mine[0])
    mine, theirs = (
        codes[valid] for codes, valid in (ranks(samples[name].table[columns[0]], kind) for name, columns in link.ends)
    )
    return passing(link.how, mine, theirs)


def equal_share(how: str, distinct: float) -> float:
    """Return the share of pairs that are equal, or not: one in as many as the larger number of distinct values."""
    return 1 / distinct if how == "=" else max(1 - 1 / distinct, LEAST_SHARE)


def drawn_from(distinct: float, rows: int) -> float:
    """Return from how many values rows were drawn, all alike, if so many different ones are among them.

    The idea: what a loop joins depends on how likely two rows are alike, and a window shows only some of the values
    that there are. Of V values, n rows show V (1 - exp(-n / V)). Where nearly all rows differ, one in a hundred is
    taken not to.
    """
    if rows < 2 or distinct <= 1:
        return max(distinct, 1.0)
    shown = min(distinct, 0.99 * rows)
    low, high = shown, float(rows) ** 2
    while high > low * (1 + 1e-6):
        middle = math.sqrt(low * high)
        if -middle * math.expm1(-rows / middle) < shown:
            low = middle
        else:
            high = middle
    return max(low, 1.0)


def matching(how: str, mine: Ints, theirs: Ints, distinct: float) -> float:
    """Return the share of pairs that a comparison lets through, measured on codes of some rows.

    Parameters:
        distinct: the larger number of different values, for want of matches: few of few rows say nothing.
    """
    if how not in {"=", "!="}:
        return passing(how, mine, theirs)
    values, counts = np.unique(theirs, return_counts=True)
    at = np.minimum(np.searchsorted(values, mine), max(values.size - 1, 0))
    pairs = int(counts[at][values[at] == mine].sum()) if values.size else 0
    if pairs < ENOUGH:
        return equal_share(how, distinct)
    share = pairs / (mine.size * theirs.size)
    return max(share if how == "=" else 1 - share, LEAST_SHARE)


def passing(how: str, mine: Ints, theirs: Ints) -> float:
    """Return the share of pairs that a comparison by size lets through, given codes in the order of the values."""
    if not (mine.size and theirs.size):
        return LEAST_SHARE
    side: Literal["left", "right"] = "right" if how in {"<", ">="} else "left"
    smaller = float(np.searchsorted(np.sort(theirs), mine, side=side).mean()) / theirs.size  # of theirs, than mine
    return max(1 - smaller if how in {"<", "<="} else smaller, LEAST_SHARE)


def comparable(left: pa.DataType, right: pa.DataType, name: str) -> pa.DataType:
    """Return the type in which two columns can be compared by size.

    Raises:
        KeyTypeError: if there is none.
    """
    kind = common_type(left, right, name)
    if not has_order(kind):
        raise KeyTypeError(f"on={name!r}", kind, "compare numbers, dates or times by size; others for equality")
    return kind


def per_stream(argument: str, given: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return what is given for each stream: by name, or the same for all."""
    if not isinstance(given, Mapping):
        return dict.fromkeys(names, given)
    if set(given) != set(names):
        raise InputError(argument, f"entries for {', '.join(map(str, given))}", f"name {', '.join(names)}, each once")
    return {name: given[name] for name in names}


def _field(table: pa.Table, column: str, name: str, argument: str) -> pa.Field:
    if not isinstance(column, str) or table.schema.names.count(column) != 1:
        raise ColumnError(
            f"{argument}={column!r}", f"no such column in {name}", f"it has {', '.join(table.schema.names)}"
        )
    return table.schema.field(column)
