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


def held_elsewhere(held: Sequence[int], came: Sequence[float], mine: int) -> float:
    """Return how much of the other streams is there for a row: of all but the one that the last row comes from."""
    total = 0.0
    for last in range(len(held)):
        if last != mine:
            others = [at for at in range(len(held)) if at not in {mine, last}]
            total += math.prod((held[at] + 1) / came[at] if came[at] else 0.0 for at in others)
    return total


COMBINE: dict[str, Callable[[float, float], float]] = {
    "min": min,
    "max": max,
    "sum": operator.add,
    "mean": operator.add,  # a share of the sum
    "product": operator.mul,
}


class Counted:
    """Who came so far on each stream and with what weight, and how many partners a row can expect.

    Parameters:
        tree: edges that span the streams; None: all have one key.
        values: the importance of each row of each stream; None: all alike.
    """

    def __init__(
        self,
        streams: Sequence[Sequence[Row]],
        tree: Sequence[Edge] | None,
        values: Sequence[Sequence[float]] | None,
        combine: str,
    ) -> None:
        self.streams, self.values, self.combine = streams, values, COMBINE[combine]
        n = len(streams)
        self.one_key = tree is None
        ends = [Edge(a, 0, b, 0) for a in range(n) for b in range(n) if a != b]
        if tree is not None:
            ends = [end for e in tree for end in (e, Edge(e.other, e.theirs, e.one, e.mine, e.how))]
        self.ends = [[end for end in ends if end.one == s] for s in range(n)]
        self.came: list[tuple[int, int, float]] = []
        self._known: dict[tuple[int, int, Edge, int], tuple[float, float]] = {}

    def add(self, s: int, row: int, weight: float) -> None:
        self.came.append((s, row, weight))

    def own(self, s: int, row: int) -> float:
        return 1.0 if self.values is None else self.values[s][row]

    def along(self, s: int, row: int, end: Edge, until: int) -> tuple[float, float]:
        """Return how many partial results the first rows that came have behind an edge of a row, and the worth."""
        mine = self.streams[s][row].keys[end.mine]
        count = paid = 0.0
        for number, (t, other, weight) in enumerate(self.came[:until]):
            if t != end.other or (end.how == "=" and self.streams[t][other].keys[end.theirs] != mine):
                continue
            further, value = 1.0, self.own(t, other)
            if not self.one_key:
                if (t, other, end, number) not in self._known:
                    self._known[t, other, end, number] = self.expected(t, other, number, end.one)
                further, value = self._known[t, other, end, number]
            count += weight * further
            paid += weight * value
        return count, paid

    def expected(self, s: int, row: int, until: int, but: int | None = None) -> tuple[float, float]:
        """Return the same over all edges of a row, but the one to some stream."""
        count, value = 1.0, self.own(s, row)
        for end in self.ends[s]:
            if end.other != but:
                came, paid = self.along(s, row, end, until)
                if came == 0:
                    return 0.0, 0.0
                count *= came
                if self.values is not None:
                    value = self.combine(value, paid / came)
        return count, count * value

    def behind(self, s: int, end: Edge) -> int:
        """Return how many streams there are on the far side of an edge of a tree."""
        return 1 + sum(self.behind(e.one, e) for e in self.ends[end.other] if e.other != s)

    def orders(self, s: int, before: int | None = None) -> int:
        """Return in how many times more orders rows can come than are counted: nobody with those that come later."""
        if self.one_key:
            return 1
        return math.prod(
            self.behind(s, end) * self.orders(end.other, s) for end in self.ends[s] if end.other != before
        )


def within_budget(
    streams: Sequence[Sequence[Row]],
    windows: Sequence[Window],
    memory: int,
    policy: str,
    life: int,
    *,
    edges: Sequence[Edge] | None = None,
    tree: Sequence[Edge] | None = None,
    values: Sequence[Sequence[float]] | None = None,
    combine: str = "min",
) -> Bounded:
    """Play a join inside a budget, tick by tick, trying every combination of rows in memory.

    Parameters:
        policy: "prob" or "oldest".
        life: half-life of an arrival in ticks, or in rows of all streams if all windows are in rows; 0: none.
        edges: of a join graph; None: all streams have one key. Those in `tree` span it.
        values: the importance of each row of each stream; None: all alike.
    """
    n = len(streams)
    counted = Counted(streams, tree, values, combine)
    held: list[Held] = []
    weights = [0.0] * n
    found, shed = [], []
    in_rows = all(window.by_rows for window in windows)
    edges = [Edge(0, 0, other, 0) for other in range(1, n)] if edges is None else edges

    used = {end for e in edges for end in ((e.one, e.mine), (e.other, e.theirs))}

    def worth(one: Held) -> float:
        if policy == "oldest":
            return 0.0
        worth = counted.orders(one.stream) * counted.expected(one.stream, one.row, len(counted.came))[1]
        return held_elsewhere([sum(h.stream == s for h in held) for s in range(n)], weights, one.stream) * worth

    for now in sorted({row.ts for stream in streams for row in stream}):
        clock = sum(row.ts <= now for stream in streams for row in stream) if in_rows else now
        fresh = [
            Held(now, s, at)
            for s, stream in enumerate(streams)
            for at, row in enumerate(stream)
            if row.ts == now and all(row.keys[key] is not None for one, key in used if one == s)
        ]
        for one in fresh:
            counted.add(one.stream, one.row, 2.0 ** (clock / life) if life else 1.0)
            weights[one.stream] += 2.0 ** (clock / life) if life else 1.0
        held += fresh
        came = [[row for row in stream if row.ts <= now] for stream in streams]
        able = [h for h in held if alive(came[h.stream], streams[h.stream][h.row], windows[h.stream], now)]
        for mine in product(*([h for h in able if h.stream == s] for s in range(n))):
            rows = [streams[h.stream][h.row] for h in mine]
            joined = all(HOW[e.how](rows[e.one].keys[e.mine], rows[e.other].keys[e.theirs]) for e in edges)
            if joined and any(h in fresh for h in mine):
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
