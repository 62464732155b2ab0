"""Brute force for several streams, in plain Python: all results, the paper's costs; imports nothing of ours."""

import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations, product
from typing import Any, NamedTuple

Order = tuple[int, ...]


class Known(NamedTuple):
    """The parameters of one stream, as the paper's tables give them."""

    rate: int
    window: int
    distinct: int
    buckets: int = 1
    price: int = 1


def loop_cost(streams: Sequence[Known], nest: Order, source: int, every: int | None) -> Fraction:
    """Walk the loops for the new tuples of one stream, outermost first, as Appendix A derives the cost."""

    def size(place: int) -> Fraction:
        stream = streams[place]
        if place == source:
            return Fraction(1 if every is None else stream.rate * every)
        return Fraction(stream.rate * (stream.window + (every or 0)))

    def scan(place: int) -> Fraction:
        buckets = 1 if place == source and every is None else streams[place].buckets
        return size(place) * streams[place].price / buckets

    first, *inner = nest
    reaching, values, paid = size(first), streams[first].distinct, Fraction(0)
    for place in inner:
        paid += reaching * scan(place)
        reaching = reaching * size(place) / max(values, streams[place].distinct)
        values = min(values, streams[place].distinct)
    return paid * streams[source].rate if every is None else paid / every


def new_first(order: Order, source: int) -> Order:
    """Put the new tuples outermost."""
    return (source, *(place for place in order if place != source))


def total_cost(streams: Sequence[Known], order: Order, algorithm: str, every: int | None) -> Fraction:
    """Add up what the new tuples of all streams cost under one global order."""
    places = range(len(streams))
    nests = [order if algorithm == "naive" else new_first(order, source) for source in places]
    return sum((loop_cost(streams, nest, source, every) for source, nest in enumerate(nests)), start=Fraction(0))


def least_cost(streams: Sequence[Known], algorithm: str, every: int | None) -> Fraction:
    """Try every order; for GENERAL every order for the new tuples of each stream."""
    orders = list(permutations(range(len(streams))))
    if algorithm != "general":
        return min(total_cost(streams, order, algorithm, every) for order in orders)
    places = range(len(streams))
    return sum(
        (min(loop_cost(streams, order, source, every) for order in orders) for source in places), start=Fraction(0)
    )


# --- results ------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A row of one stream: its time, and a value for each of its key columns."""

    ts: int
    keys: tuple[object, ...]


class Window(NamedTuple):
    """So many ticks, or rows of the stream itself."""

    span: int
    by_rows: bool = False


class Edge(NamedTuple):
    """Two key columns that are compared, each by its stream and its number within it."""

    one: int
    mine: int
    other: int
    theirs: int
    how: str = "="


HOW: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def alive(stream: Sequence[Row], row: Row, window: Window, now: int) -> bool:
    """Tell whether a row is in its window at a time: fewer ticks, or rows of its stream, than the span came after."""
    if window.by_rows:
        return sum(row.ts < other.ts <= now for other in stream) < window.span
    return now - row.ts < window.span


def all_results(
    streams: Sequence[Sequence[Row]], windows: Sequence[Window], edges: Sequence[Edge]
) -> list[tuple[int, ...]]:
    """Try every combination of rows: all edges hold, each row alive at the newest one's time."""
    found = []
    for places in product(*(range(len(stream)) for stream in streams)):
        rows = [stream[place] for stream, place in zip(streams, places, strict=True)]
        now = max(row.ts for row in rows)
        ends = [(rows[e.one].keys[e.mine], HOW[e.how], rows[e.other].keys[e.theirs]) for e in edges]
        joined = all(mine is not None and theirs is not None and how(mine, theirs) for mine, how, theirs in ends)
        if joined and all(alive(s, row, w, now) for s, row, w in zip(streams, rows, windows, strict=True)):
            found.append(places)
    return found
