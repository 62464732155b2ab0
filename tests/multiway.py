"""Brute force for several streams, in plain Python: results, costs, budgets; imports nothing of ours."""

import math
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


def stopping_cost(streams: Sequence[Known], nest: Order, source: int, every: int) -> Fraction:
    """Walk the same loops if those inside that of the new tuples stop at the first tuple too old for the new one.

    Windows hold T + τ. Inside, rows of half an interval, on average, come after the new tuple and are passed over,
    then those of T are looked at; only these, inside or outside, are still joined once the new tuple is known.
    """
    paid = Fraction(0)
    outside: list[int] = []
    for place in nest:
        new_outside = source in outside
        spans = {p: streams[p].window + (0 if new_outside else every) for p in outside}
        sizes = [Fraction(streams[p].rate * (every if p == source else spans[p])) for p in outside]
        values = [streams[p].distinct for p in outside]
        stream = streams[place]
        looked = Fraction(stream.rate) * (
            every if place == source else stream.window + (Fraction(every, 2) if new_outside else every)
        )
        if outside:
            reaching = Fraction(math.prod(sizes)) * min(values) / math.prod(values)
            paid += reaching * looked * stream.price / stream.buckets
        outside.append(place)
    return paid / every


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


# --- a budget -----------------------------------------------------------------------------------------------------


class Held(NamedTuple):
    """A row in memory: its time, its stream and its number there."""

    ts: int
    stream: int
    row: int


class Bounded(NamedTuple):
    """What a join inside a budget finds, and what it gives up, each with its stream, its number and the time."""

    results: list[tuple[int, ...]]
    shed: list[tuple[int, int, int]]
    live: list[int]


def share(windows: Sequence[Window], mine: int) -> float:
    """Return how many results a row has a tick if every stream brings one match a tick, up to a factor for all."""
    if any(window.by_rows for window in windows):
        return 1.0
    longest = max(window.span for window in windows)
    total = 0.0
    for last in range(len(windows)):
        if last != mine:
            others = [w.span / longest for at, w in enumerate(windows) if at not in {mine, last}]
            total += math.prod(others)
    return total


def within_budget(
    streams: Sequence[Sequence[Row]], windows: Sequence[Window], memory: int, policy: str, life: int
) -> Bounded:
    """Play a join on one common key inside a budget, tick by tick, trying every combination of rows in memory.

    Parameters:
        policy: "prob" or "oldest".
        life: half-life of an arrival in ticks, or in rows of all streams if all windows are in rows; 0: none.
    """
    n = len(streams)
    seen: list[dict[object, float]] = [{} for _ in range(n)]
    held: list[Held] = []
    found, shed = [], []
    in_rows = all(window.by_rows for window in windows)

    def worth(one: Held) -> float:
        if policy == "oldest":
            return 0.0
        key, product = streams[one.stream][one.row].keys[0], share(windows, one.stream)
        for other in range(n):
            if other != one.stream:
                product *= seen[other].get(key, 0.0)
        return product

    for now in sorted({row.ts for stream in streams for row in stream}):
        clock = sum(row.ts <= now for stream in streams for row in stream) if in_rows else now
        fresh = [
            Held(now, s, at)
            for s, stream in enumerate(streams)
            for at, row in enumerate(stream)
            if row.ts == now and row.keys[0] is not None
        ]
        for one in fresh:
            key = streams[one.stream][one.row].keys[0]
            seen[one.stream][key] = seen[one.stream].get(key, 0.0) + (2.0 ** (clock / life) if life else 1.0)
        held += fresh
        came = [[row for row in stream if row.ts <= now] for stream in streams]
        able = [h for h in held if alive(came[h.stream], streams[h.stream][h.row], windows[h.stream], now)]
        for mine in product(*([h for h in able if h.stream == s] for s in range(n))):
            keys = {streams[h.stream][h.row].keys[0] for h in mine}
            if len(keys) == 1 and any(h in fresh for h in mine):
                found.append(tuple(h.row for h in mine))
        held = [
            h
            for h in held
            if alive(
                came[h.stream],
                streams[h.stream][h.row],
                windows[h.stream],
                now if windows[h.stream].by_rows else now + 1,
            )
        ]
        while len(held) > memory:
            victim = min(held, key=lambda one: (worth(one), one))
            held.remove(victim)
            shed.append((victim.stream, victim.row, now))
    return Bounded(sorted(found), shed, [sum(h.stream == s for h in held) for s in range(n)])
