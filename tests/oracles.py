"""Say what the two-way joins must answer, by brute force that can be checked by eye.

Nothing here is shared with the product: plain Python over lists, every count taken anew. Row numbers run per
side, from 0, over every arrival of that side (late and null-key rows too). Keys are equal when `==` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import combinations, pairwise, product
from math import prod
from typing import Any, Literal, NamedTuple

Kind = Literal["time", "rows"]
Policy = Literal["oldest", "prob", "life", "simp", "simpprob", "dimpprob", "dgl", "lru"]
Statistics = Literal["memory", "window"]
Ident = tuple[int, int]  # (side, row)
Pair = tuple[int, int]  # (left row, right row)
Table = Mapping[Any, float]  # how likely each key is to arrive on one side; a missing key means 0


class Arrival(NamedTuple):
    """One row of a trace; a trace lists both sides' rows in order of arrival."""

    side: int  # 0 left, 1 right
    ts: int
    key: Hashable | None  # None is the null key


class Bounded(NamedTuple):
    """What a bounded join emits, and where each row ended: shed, live or expired."""

    pairs: set[Pair]
    shed: list[tuple[int, int, str, int]]  # (side, row, reason, the tick at whose end it left)
    live: set[Ident]
    expired: set[Ident]


class Row(NamedTuple):
    """An arrival with its number on its own side."""

    side: int
    row: int
    ts: int
    key: Hashable | None


def numbered(trace: list[Arrival]) -> list[Row]:
    """Give each arrival its number on its own side."""
    seen = [0, 0]
    rows = []
    for side, ts, key in trace:
        rows.append(Row(side, seen[side], ts, key))
        seen[side] += 1
    return rows


def seniority(row: Row) -> tuple[int, int, int]:
    """Order by age: the oldest first, then left before right, then by number."""
    return row.ts, row.side, row.row


class Windows(NamedTuple):
    """Both sides' windows over the rows that count; each question is answered from timestamps alone."""

    spans: tuple[int, int]
    kind: Kind
    rows: list[Row]

    def age(self, row: Row, now: int) -> int:
        """Count what came after `row` and up to `now`: ticks, or rows of its own side."""
        if self.kind == "time":
            return now - row.ts
        return sum(other.side == row.side and row.ts < other.ts <= now for other in self.rows)

    def meet(self, left: Row, right: Row) -> bool:
        """Tell whether the two are a result: equal keys, and the older one alive when the newer one comes."""
        if left.key is None or left.key != right.key:
            return False
        older, newer = (left, right) if left.ts < right.ts else (right, left)
        return older.ts == newer.ts or self.age(older, newer.ts) < self.spans[older.side]

    def expires(self, row: Row, now: int) -> bool:
        """Tell whether `row` can meet nobody after `now`: time will pass, but rows may fail to come."""
        coming = 1 if self.kind == "time" else 0
        return row.key is None or self.age(row, now) + coming >= self.spans[row.side]

    def remaining(self, row: Row, now: int) -> int:
        """Count the ticks, or the rows of its own side, that `row` can still outlive."""
        return max(0, self.spans[row.side] - 1 - self.age(row, now))


def late_rows(trace: list[Arrival], lateness: int) -> set[Ident]:
    """Find the rows behind the watermark, which trails the largest timestamp of all earlier rows."""
    rows = numbered(trace)
    return {
        (row.side, row.row)
        for i, row in enumerate(rows)
        if i > 0 and row.ts < max(earlier.ts for earlier in rows[:i]) - lateness
    }


def exact(trace: list[Arrival], *, spans: tuple[int, int], kind: Kind, lateness: int = 0) -> set[Pair]:
    """Join without limits; the trace may be out of order, and late rows neither join nor count."""
    late = late_rows(trace, lateness)
    rows = [row for row in numbered(trace) if (row.side, row.row) not in late]
    windows = Windows(spans, kind, rows)
    lefts = [row for row in rows if row.side == 0]
    rights = [row for row in rows if row.side == 1]
    return {(left.row, right.row) for left, right in product(lefts, rights) if windows.meet(left, right)}


class Ranking:
    """What the policies of importance2006, and LRU, think of the tuples in memory, worked out anew at every tick."""

    def __init__(
        self, policy: Policy, windows: Windows, importance: Callable[[Row], float], statistics: Statistics
    ) -> None:
        self.policy = policy
        self.windows = windows
        self.importance = importance
        self.statistics = statistics
        self.memory: list[Row] = []
        self.before: int | None = None
        self.matched: dict[Row, float] = {}  # now, by every tuple
        self.at_first: dict[Row, float] = {}  # at the tick it came
        self.gains: dict[Row, float] = {}
        self.used: dict[Row, int] = {}

    def matches(self, row: Row, now: int) -> float:
        """Count the partners in memory, or of the last window, shed ones included."""
        others = self.memory
        if self.statistics == "window":
            others = [
                other
                for other in self.windows.rows
                if other.ts <= now and self.windows.age(other, now) < self.windows.spans[other.side]
            ]
        return sum(other.side != row.side and other.key == row.key for other in others)

    def tick(self, memory: list[Row], now: int) -> None:
        """Look at memory once the newcomers have entered and before anybody is shed."""
        if self.policy in {"oldest", "prob", "life"}:
            return
        self.memory = memory.copy()
        self.matched = {row: self.matches(row, now) for row in memory}
        for row in memory:
            self.at_first.setdefault(row, self.matched[row])
            partners = [other for other in memory if other.side != row.side and other.key == row.key]
            meets = any(now in {row.ts, other.ts} for other in partners)
            if row.ts == now or meets:
                self.used[row] = now
            self.gains[row] = self.gain(row, now, meets=meets)
        self.before = now

    def gain(self, row: Row, now: int, *, meets: bool) -> float:
        """Work out DGL's priority: the importance, then a gain or a loss at every tick."""
        span = self.windows.spans[row.side]
        total, passed = self.importance(row), 0
        if row.ts != now:
            total = self.gains[row]
            assert self.before is not None
            passed = self.windows.age(row, now) - self.windows.age(row, self.before)
        for _ in range(passed - 1 if meets else passed):
            total *= max(1 - 4 / span, 0.5)
        if meets:
            total += self.importance(row) * self.matched[row] * self.windows.remaining(row, now) / span
        return total

    def worth(self, row: Row) -> tuple[float, ...]:
        """Return what a tuple is worth, with what decides between equals before age does."""
        importance = self.importance(row)
        if self.policy in {"simpprob", "dimpprob"}:
            matches = (self.at_first if self.policy == "simpprob" else self.matched)[row]
            return importance * matches, importance, matches
        return ({"simp": importance, "dgl": self.gains[row], "lru": self.used[row]}[self.policy],)


def bounded(
    trace: list[Arrival],
    *,
    spans: tuple[int, int],
    kind: Kind,
    limits: int | tuple[int, int],
    policy: Policy,
    p: tuple[Table, Table] = ({}, {}),
    per_key: int | None = None,
    importance: Callable[[Row], float] = lambda _row: 1.0,
    statistics: Statistics = "memory",
) -> Bounded:
    """Join an in-order trace within `limits`: one shared pool, or a pool for each side."""
    rows = numbered(trace)
    assert all(a.ts <= b.ts for a, b in pairwise(rows)), "the trace must be in order"
    windows = Windows(spans, kind, rows)
    pools = [((0, 1), limits)] if isinstance(limits, int) else [((0,), limits[0]), ((1,), limits[1])]
    memory: list[Row] = []
    result = Bounded(set(), [], set(), set())
    ranking = Ranking(policy, windows, importance, statistics)

    def priority(row: Row, now: int) -> tuple[tuple[float, ...], tuple[int, int, int]]:
        p_other = p[1 - row.side].get(row.key, 0)
        worth = {"oldest": 0, "prob": p_other, "life": windows.remaining(row, now) * p_other}
        return (worth[policy],) if policy in worth else ranking.worth(row), seniority(row)

    def shed(victim: Row, reason: str, now: int) -> None:
        memory.remove(victim)
        result.shed.append((victim.side, victim.row, reason, now))

    for now in sorted({row.ts for row in rows}):
        newcomers = [row for row in rows if row.ts == now]
        present = sorted(memory + newcomers, key=seniority)
        # (1) The tick's rows meet memory as it stood, and each other.
        for left, right in product(present, present):
            if (left.side, right.side) == (0, 1) and now in {left.ts, right.ts} and windows.meet(left, right):
                result.pairs.add((left.row, right.row))
        # (2) What can meet nobody later leaves, newcomers included; (3) the other newcomers enter.
        gone = [row for row in present if windows.expires(row, now)]
        result.expired.update((row.side, row.row) for row in gone)
        memory[:] = [row for row in present if row not in gone]
        ranking.tick(memory, now)
        # (3b) From the oldest on, a tuple leaves while its side holds too many of its key.
        for row in memory.copy():
            same = [other for other in memory if (other.side, other.key) == (row.side, row.key)]
            if per_key is not None and len(same) > per_key:
                shed(row, "per_key", now)
        # (4) While a pool is over its limit, its tuple of the smallest priority leaves.
        for sides, limit in pools:
            while len(pool := [row for row in memory if row.side in sides]) > limit:
                shed(min(pool, key=lambda row: priority(row, now)), "budget", now)

    result.live.update((row.side, row.row) for row in memory)
    return result


def best(
    trace: list[Arrival],
    *,
    spans: tuple[int, int],
    kind: Kind,
    limits: int | tuple[int, int],
    worth: Callable[[Row, Row], float] = lambda _left, _right: 1,
    start: int | None = None,
    full: bool = False,
    least: bool = False,
) -> float:
    """Try everything that memory can hold after every tick; returns what the best (or least) run gains.

    If `full`, nothing leaves before its time while there is room.
    """
    rows = numbered(trace)
    windows = Windows(spans, kind, rows)
    pools = [((0, 1), limits)] if isinstance(limits, int) else [((0,), limits[0]), ((1,), limits[1])]
    states: dict[frozenset[Row], float] = {frozenset(): 0}
    for now in sorted({row.ts for row in rows}):
        newcomers = [row for row in rows if row.ts == now]
        after: dict[frozenset[Row], float] = {}
        for memory, total in states.items():
            present = [*memory, *newcomers]
            gain = sum(
                worth(left, right)
                for left, right in product(present, present)
                if (left.side, right.side) == (0, 1) and now in {left.ts, right.ts} and windows.meet(left, right)
            )
            staying = [row for row in present if not windows.expires(row, now)]
            choices = []
            for sides, limit in pools:
                mine = [row for row in staying if row.side in sides]
                most = min(limit, len(mine))
                sizes = [most] if full else range(most + 1)
                choices.append([held for size in sizes for held in combinations(mine, size)])
            for parts in product(*choices):
                state = frozenset(row for part in parts for row in part)
                value = total + (gain if start is None or now >= start else 0)
                known = after.get(state)
                if known is None or (value < known if least else value > known):
                    after[state] = value
        states = after
    return min(states.values()) if least else max(states.values())


def truncated(counts: list[tuple[int, int]], keep: int) -> int:
    """Find the most pairs that `keep` tuples of keys with these counts can have: das2003's recurrence as printed."""

    def most(m: int, n: int, p: int) -> int:
        low, high = sorted((m, n))
        if p <= 2 * low:
            return (p // 2) ** 2 if p % 2 == 0 else (p * p - 1) // 4
        assert p <= low + high
        return low * (p - low)

    best: list[float] = [0, *[float("-inf")] * keep]
    for m, n in counts:
        best = [max(best[j - p] + most(m, n, p) for p in range(min(j, m + n) + 1)) for j in range(keep + 1)]
    return int(best[keep])


def truncated_by_side(counts: list[tuple[int, ...]], keep: tuple[int, ...]) -> int:
    """Find the most results that so many tuples of each relation can have, trying every way key by key."""
    best: dict[tuple[int, ...], int] = {(0,) * len(keep): 0}
    for key in counts:
        found: dict[tuple[int, ...], int] = {}
        for used, results in best.items():
            for kept in product(*(range(count + 1) for count in key)):
                total = tuple(map(sum, zip(used, kept, strict=True)))
                if all(a <= b for a, b in zip(total, keep, strict=True)):
                    found[total] = max(found.get(total, 0), results + prod(kept))
        best = found
    return best[keep]
