"""One queue before several joins that share a stream: what it drops is what all of them together miss least."""

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.rng import seeded, unit
from penstock.errors import InputError, WindowError
from penstock.operator.join import Join, as_table
from penstock.operator.settings import positive
from penstock.policies.cpu.speeds import bar_for

METHODS = ("integrated", "modular", "random-drop")
SHARED = "shared"  # what the stream of all joins is called
KEPT = 0.8  # how much of what was seen before a period counts after it
DROPPED = pa.schema([("stream", pa.string()), ("row", pa.int64()), ("tick", pa.int64())])


class Fed:
    """A join behind the queue, and what is known of its keys."""

    def __init__(self, join: Join, weight: float) -> None:
        self.join, self.weight = join, weight
        self.span: tuple[int, int] = join.bound.span
        self.held: tuple[dict[int, int], dict[int, int]] = (defaultdict(int), defaultdict(int))  # rows in its windows
        self.seen: tuple[dict[int, float], dict[int, float]] = (defaultdict(float), defaultdict(float))  # fading
        self.coming: tuple[dict[int, float], dict[int, float]] = ({}, {})  # by key, within the other window's length
        self._waits: tuple[deque[tuple[int, int]], deque[tuple[int, int]]] = (deque(), deque())

    def expire(self, tick: int) -> None:
        """Forget the rows that a row of this tick cannot meet."""
        for side, (waits, held) in enumerate(zip(self._waits, self.held, strict=True)):
            while waits and waits[0][0] + self.span[side] <= tick:
                held[waits.popleft()[1]] -= 1

    def worth(self, side: int, code: int, method: str) -> float:
        """Return the pairs that a row of this key would bring."""
        coming = self.coming[1 - side].get(code, 0.0)
        return self.weight * (coming + self.held[1 - side][code] if method == "integrated" else coming)

    def enter(self, side: int, code: int, tick: int) -> None:
        """Take note of a row that is let in."""
        self.held[side][code] += 1
        self._waits[side].append((tick, code))

    def end_period(self, periods: float, elapsed: float) -> None:
        """Say how many rows of each key will come while a row of the other side lives, and let counts fade."""
        for side, seen in enumerate(self.seen):
            scale = self.span[1 - side] / (periods * elapsed)
            self.coming[side].clear()
            self.coming[side].update((code, count * scale) for code, count in seen.items())
            for code in seen:
                seen[code] *= KEPT


class Queue:
    """A queue of rows of one stream that several joins have on their left, and of the streams on their right.

    The idea: a row of the shared stream costs as much work as there are joins, and may be worth little to one of them
    and much to another. Its score is the pairs that it would bring to all of them, by their weights, for its work.
    When there is not time for all rows, those with the lowest scores are dropped at the queue, for all joins.

    Parameters:
        joins: {name: the arguments of ``penstock.Join``}, on equal keys, with windows in time and without budgets;
            the shared stream is on the left of each.
        schemas: {name: the Arrow schema of the stream on the right}, and that of the shared one as "shared".
        comparisons_per_tick: the work that there is time for. A row that enters a join costs one and `update`.
        method: "integrated": by partners in the windows and those that will come; "modular": by the latter alone;
            "random-drop": by lot.
        weights: {name: what a pair of that join is worth}; default one each.
        every, queue: ticks between choices, and that rows may wait.
        update: what it costs to let a row into a window, in comparisons.
        seed: for lots.

    Cost: O(joins) a row, in Python: this is the deterministic model of a queue, not one for high rates.

    Examples:
        >>> import penstock as pen, pyarrow as pa
        >>> ticks = range(200)
        >>> calls = pa.table({"t": ticks, "who": [t % 5 for t in ticks], "place": [t % 3 for t in ticks]})
        >>> how = {"time": "t", "window": 20}
        >>> queue = Queue(
        ...     {"people": {"on": "who", **how}, "places": {"on": "place", **how}},
        ...     schemas={"shared": calls.schema, "people": calls.schema, "places": calls.schema},
        ...     comparisons_per_tick=3.0, every=10, queue=10,
        ... )
        >>> found = queue.push(calls, people=calls, places=calls)
        >>> sorted(found), queue.dropped.num_rows > 0
        (['people', 'places'], True)

    References: das2003 §2.1 (slow CPU; one queue may feed several joins).
    """

    def __init__(  # noqa: PLR0913 - one budget
        self,
        joins: Mapping[str, Mapping[str, Any]],
        *,
        schemas: Mapping[str, pa.Schema],
        comparisons_per_tick: float,
        every: int,
        queue: int,
        method: str = "integrated",
        weights: Mapping[str, float] | None = None,
        update: float = 0.25,
        seed: int = 0,
    ) -> None:
        if method not in METHODS:
            raise InputError("method", repr(method), f"give one of {', '.join(map(repr, METHODS))}")
        unknown = [name for name in (weights or {}) if name not in joins]
        if unknown or SHARED in joins or not joins:
            got = repr(unknown[0]) if unknown else repr(list(joins))
            raise InputError("weights" if unknown else "joins", got, f"name joins, none of them {SHARED!r}")
        self._fed = {
            name: Fed(_plain(name, how, (schemas[SHARED], schemas[name])), float((weights or {}).get(name, 1.0)))
            for name, how in joins.items()
        }
        self._method, self._seed = method, seeded(seed)
        self._speed = positive("comparisons_per_tick", comparisons_per_tick)
        self._every, self._patience = positive("every", every), positive("queue", queue)
        self._cost = 1.0 + positive("update", update)
        self._busy = self._began = -np.inf
        self._bar, self._tie = -1.0, 1.0
        self._scores: list[tuple[float, float]] = []  # and the work, of rows that came in this period
        self._periods, self._draws = 0.0, 0
        self._next = dict.fromkeys((SHARED, *joins), 0)
        self._dropped: list[tuple[str, int, int]] = []

    def push(self, shared: Any = None, **others: Any) -> dict[str, pa.Table]:
        """Take rows of the shared stream and of others by the names of their joins; returns the pairs of each join.

        Rows come in order of time; those of one time the shared ones first, then in the order of the joins.
        """
        tables = {SHARED: as_table(shared, SHARED), **{name: as_table(rows, name) for name, rows in others.items()}}
        strange = [name for name in tables if name not in self._next]
        if strange:
            raise InputError(strange[0], "rows of a stream that nobody joins", f"there are {', '.join(self._fed)}")
        kept = self._choose(tables)
        found = {}
        for name, fed in self._fed.items():
            sides = [
                None if (rows := tables.get(stream)) is None else rows.take(kept[stream]) for stream in (SHARED, name)
            ]
            found[name] = fed.join.push(left=sides[0], right=sides[1])
        return found

    def finish(self) -> dict[str, pa.Table]:
        """Say that nothing more will come."""
        return {name: fed.join.finish() for name, fed in self._fed.items()}

    @property
    def dropped(self) -> pa.Table:
        """The rows that were dropped: their stream, number and tick."""
        columns = zip(*self._dropped, strict=True) if self._dropped else ([], [], [])
        return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, DROPPED, strict=True)], schema=DROPPED)

    def _choose(self, tables: dict[str, pa.Table | None]) -> dict[str, pa.Array]:
        """Return the places of the rows of each stream that are let in."""
        names = [SHARED, *self._fed]
        read: dict[tuple[str, int], list[int]] = {}  # (join, side) -> codes
        order: list[tuple[int, int, int]] = []  # tick, stream, place
        for stream, name in enumerate(names):
            rows = tables.get(name)
            if rows is None:
                continue
            for each in self._fed if name == SHARED else [name]:
                rows_read = self._fed[each].join.bound.read(int(name != SHARED), rows)
                read[each, int(name != SHARED)] = rows_read.code.tolist()
                ticks = rows_read.ts
            order += [(int(tick), stream, place) for place, tick in enumerate(ticks)]
        kept: dict[str, list[int]] = {name: [] for name in names}
        for tick, stream, place in sorted(order):
            name, side = names[stream], int(stream > 0)
            joins = {each: read[each, side][place] for each in (self._fed if side == 0 else [name])}
            if self._take(tick, side, joins):
                kept[name].append(place)
            else:
                self._dropped.append((name, self._next[name], tick))
            self._next[name] += 1
        return {name: pa.array(places, pa.int64()) for name, places in kept.items()}

    def _take(self, tick: int, side: int, joins: dict[str, int]) -> bool:
        """Say whether a row is let into the joins of these names, with these keys."""
        if tick - self._began >= self._every:
            self._end_period(tick)
        work, score = self._cost * len(joins), 0.0
        for name, code in joins.items():
            fed = self._fed[name]
            fed.expire(tick)
            if self._method != "random-drop":
                score += fed.worth(side, code, self._method) / len(joins)
            fed.seen[side][code] += 1.0
        self._scores.append((score, work))
        passes = self._lot() < self._tie if score == self._bar else score > self._bar
        if not passes or self._busy - tick > self._patience:
            return False
        self._busy = max(self._busy, float(tick)) + work / self._speed
        for name, code in joins.items():
            self._fed[name].enter(side, code, tick)
        return True

    def _lot(self) -> float:
        self._draws += 1
        return float(unit(self._seed[0], self._draws))

    def _end_period(self, tick: int) -> None:
        """Set the score that rows must exceed, from those of the period; half of the queue is for bursts."""
        elapsed, (scores, self._scores), self._began = tick - self._began, (self._scores, []), float(tick)
        if np.isinf(elapsed) or not scores:
            return
        spare = self._speed * (elapsed + self._patience / 2 - max(0.0, self._busy - tick))
        score, work = (np.array(column) for column in zip(*scores, strict=True))
        share = spare / work.sum()
        self._periods = 1.0 + KEPT * self._periods
        for fed in self._fed.values():
            fed.end_period(self._periods, elapsed)
        if share >= 1.0:
            self._bar, self._tie = -1.0, 1.0
        else:
            self._bar, self._tie = bar_for(score, work / work.sum(), max(0.0, share))


def _plain(name: str, how: Mapping[str, Any], schemas: tuple[pa.Schema, pa.Schema]) -> Join:
    """Make a join that has no budget of its own."""
    join = Join(schemas=schemas, **how)
    bound, settings = join.bound, join.bound.settings
    if bound.reader is not None or settings.cpu is not None or settings.memory is not None:
        raise InputError("joins", f"{name}: {dict(how)!r}", "joins behind a queue are on equal keys, without budgets")
    if bound.by_rows:
        raise WindowError(
            "window", f"{name}: {settings.window}", "give a span of time: rows are counted at the queue"
        )
    return join
