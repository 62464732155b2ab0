"""Run the loops of a join of several streams in the best order, and change it when what is measured changes."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from operator import index
from typing import Any, NamedTuple

import numpy as np

from penstock.core.distinct import Sketch, counted, empty, note
from penstock.core.rings import Batch
from penstock.core.windows import Ints
from penstock.operator.settings import positive
from penstock.operator.several import Bound
from penstock.planner.plan import Plan
from penstock.planner.statistics import COMPARED, Selectivity, Stream, drawn_from, matching
from penstock.quality.flows import Order
from penstock.streams.times import Rows

SELDOM = 1 << 18  # rows after which the order is revisited in any case; if windows hold more, after so many
WORTH = 1.2  # how many times cheaper another order must be
STRETCHES = 8  # of the longest window, in which arrivals are counted
NEWEST = 1 << 12  # rows of a window on which the share of pairs that match is measured
LISTED = 1_000  # orders that are remembered, the latest
FIRST, GIVEN = "measured on the first rows", "given"


class Stretch(NamedTuple):
    """What came from one tick up to another."""

    begin: int
    end: int
    came: Ints  # of each stream

    def merged(self, other: "Stretch") -> "Stretch":
        """Return this one and the one after it as one."""
        return Stretch(self.begin, other.end, self.came + other.came)


class Ordered:
    """The loops of a join whose order is revisited while it runs, if it was not given.

    The idea: if a stream brings noticeably more or fewer rows than expected, rates and distinct values are measured
    anew; and so they are from time to time. If the order in use would cost noticeably more than the best one, the
    loops change places. Rates are counts by stretch of time, distinct values are sketched by stretch of each window,
    and along a join graph the share of pairs that match is measured on the newest rows: all in bounded memory.

    References: golab2003 §5.4 (fluctuating stream arrival rates).
    """

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        spans = [span for span, by_rows in zip(bound.span, bound.by_rows, strict=True) if not by_rows]
        self._longest = max(spans, default=1)
        self.plan = self._seen = bound.plan(*self._guessed())  # in use; as measured last
        self.chain = bound.chain(self.plan, bound.budget)
        self.gauge = bound.gauge(self.plan)
        self.orders: list[Order] = []  # taken so far, each since a tick
        self._stretches: deque[Stretch] = deque()
        self._columns = np.cumsum([0, *bound.columns], dtype=np.int64)
        self._sketch = empty(np.array(bound.span, np.int64), int(self._columns[-1]))
        self._since = 0  # rows since the order was looked at
        self._due = 0  # after how many it will be

    def push(self, batch: Batch) -> Ints:
        """Take whole groups of rows and return the row numbers of their results: (stream, result)."""
        if batch.row.size:
            latest = self._noted(batch)
            if self._bound.adapts or not self.orders:
                self._sketched(batch)
            if not self.orders:
                self._begin(batch)
            elif self._bound.adapts and self._since >= self._due:
                self._revisit(batch)
            elif self._bound.adapts and self._surprises(latest):
                self._due = 0  # rates may still be mixed: look again soon
                self._revisit(batch)
            self._since += batch.row.size
            if self.gauge is not None:
                self.gauge.take(batch)
        return self.chain.push(batch)

    def _begin(self, batch: Batch) -> None:
        self._take(int(batch.ts[0]), self._measured(batch), 1.0, FIRST if self._bound.adapts else GIVEN)
        self._looked(self.plan)

    def _revisit(self, batch: Batch) -> None:
        best = self._measured(batch)
        current = replace(best, order=self.plan.order)
        gain = current.cost / best.cost if best.cost else 1.0
        if gain > WORTH:
            self._take(int(batch.ts[0]), best, gain, what_changed(self.plan, best))
        self._looked(best)

    def _take(self, since: int, plan: Plan, gain: float, reason: str) -> None:
        """Go on in the order of a plan."""
        self.chain.reorder(self._bound.nests(plan))
        if self.gauge is not None:
            self.gauge.reorder(self._bound.nests(plan))
        self.orders = [*self.orders[1 - LISTED :], Order(since, named(plan.order), plan.cost, gain, reason)]
        self.plan = plan

    def _looked(self, plan: Plan) -> None:
        """Look again soon at first, then ever more seldom."""
        self._seen = plan
        self._due = min(max(2 * self._due, self._since, 1), max(SELDOM, sum(self.chain.held())))
        self._since = 0

    # --- statistics -----------------------------------------------------------------------------------------------

    def _guessed(self) -> tuple[list[Stream], Selectivity | None]:
        """Return streams of which nothing is known."""
        known = zip(self._bound.names, self._spans(), self._bound.price, strict=True)
        streams = [Stream(name, rate=1.0, window=window, distinct=1.0, price=price) for name, window, price in known]
        return streams, None if self._bound.using else {link.pair: 1.0 for link in self._bound.links}

    def _windows(self) -> list[Any]:
        """Return each window in the units of the planner; under a budget, when time has filled them, by its rows."""
        spans = self._spans()
        passed = self._stretches[-1].end - self._stretches[0].begin + 1
        if self._bound.budget is None or passed < self._longest - self._longest // STRETCHES:
            return spans
        return [Rows(max(self.chain.stored(s), 1)) for s in range(len(spans))]

    def _spans(self) -> list[Any]:
        """Return the length of each window in the units of the planner."""
        bound = self._bound
        return [
            window if by_rows else span * bound.unit
            for window, span, by_rows in zip(bound.windows.values(), bound.span, bound.by_rows, strict=True)
        ]

    def _noted(self, batch: Batch) -> Stretch:
        """Count the arrivals of a batch, and forget those before the longest window; returns the latest stretch."""
        came = np.bincount(batch.stream, minlength=len(self._bound.names))
        latest = Stretch(int(batch.ts[0]), int(batch.ts[-1]), came)
        stretches = self._stretches
        if stretches and latest.end - stretches[-1].begin < self._longest // STRETCHES:
            latest = stretches.pop().merged(latest)
        while stretches and stretches[0].end <= latest.end - self._longest:
            stretches.popleft()
        stretches.append(latest)
        return latest

    def _sketched(self, batch: Batch) -> None:
        """Count the values of a batch; windows in rows come as far as their own rows, others as the time."""
        last = self._sketch.last
        for s, by_rows in enumerate(self._bound.by_rows):
            if not by_rows:
                last[s] = batch.ts[-1]
            elif (mine := np.flatnonzero(batch.stream == s)).size:
                last[s] = batch.pos[mine[-1]]
        note(self._sketch, batch, self._columns)

    def _surprises(self, latest: Stretch) -> bool:
        """Say whether the rows of a stream differ by half, and by more than chance does, from its measured rate.

        Not before so many rows have come that measuring costs little beside joining them.
        """
        if self._since * STRETCHES < sum(self.chain.held()):
            return False
        length = (latest.end - latest.begin + 1) * self._bound.unit
        expected = np.array([stream.rate for stream in self._seen.streams]) * length
        return bool((np.abs(latest.came - expected) > expected / 2 + 5 * np.sqrt(expected + 1)).any())

    def _measured(self, batch: Batch) -> Plan:
        """Plan by rates and distinct values as counted, and by the share of the newest rows that match."""
        bound = self._bound
        length = (self._stretches[-1].end - self._stretches[0].begin + 1) * bound.unit
        came = np.sum([stretch.came for stretch in self._stretches], axis=0)
        begins = np.cumsum([0, *bound.columns])
        counts = [
            [drawn_from(*counted(self._sketch, s, c)) for c in range(begins[s], begins[s + 1])]
            for s in range(len(bound.names))
        ]
        streams = [
            Stream(name, rate=max(int(rows), 1) / length, window=window, distinct=max(mine, default=1.0), price=price)
            for name, rows, window, mine, price in zip(
                bound.names, came, self._windows(), counts, bound.price, strict=True
            )
        ]
        if bound.using:
            return bound.plan(streams, None)
        codes = [self._codes(s, batch) for s in range(len(bound.names))]
        shares: dict[tuple[str, str], float] = {}
        for link, edge in zip(bound.links, bound.edges, strict=True):
            ends = [(s, c - begins[s]) for s, c in (edge[:2], edge[2:4])]
            distinct = max(counts[s][column] for s, column in ends)
            mine, theirs = (codes[s][:, column] for s, column in ends)
            share = matching(COMPARED[edge.how], mine, theirs, distinct)
            shares[link.pair] = shares.get(link.pair, 1.0) * share
        return bound.plan(streams, shares)

    def _codes(self, s: int, batch: Batch) -> Ints:
        """Return the codes of the newest rows that the window of a stream will hold after a batch: (row, column)."""
        bound = self._bound
        mine = np.flatnonzero(batch.stream == s)[-NEWEST:]
        times, held = self.chain.codes(s, NEWEST)
        ts = np.concatenate([times, batch.ts[mine]])
        codes = np.concatenate([held, batch.code[mine, : bound.columns[s]]])
        if bound.by_rows[s]:
            return codes[-min(bound.span[s], NEWEST) :]
        return codes[np.searchsorted(ts, int(batch.ts[-1]) - bound.span[s], side="right") :][-NEWEST:]

    # --- state ----------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, Any]:
        """Return the sketches as arrays by name."""
        return self._sketch._asdict()

    def state(self) -> dict[str, Any]:
        """Return what is known beside the windows, as JSON holds it."""
        plans = {"plan": self.plan, "seen": self._seen}
        return {
            "orders": self.orders,
            "stretches": [[begin, end, came.tolist()] for begin, end, came in self._stretches],
            "since": self._since,
            "due": self._due,
            "order": named(self.plan.order),
            **{name: [(s.rate, s.distinct) for s in plan.streams] for name, plan in plans.items()},
            "shares": None if self.plan.selectivity is None else [[*each] for each in self.plan.selectivity.items()],
        }

    def restore(self, state: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Go on from what ``state`` and ``arrays`` returned; the windows are restored on their own."""
        self._sketch = Sketch(**arrays)
        order = state["order"]
        order = {name: tuple(mine) for name, mine in order.items()} if isinstance(order, dict) else tuple(order)
        shares = state["shares"]
        selectivity = None if shares is None else {tuple(pair): float(share) for pair, share in shares}
        plans = []
        for known in (state["plan"], state["seen"]):
            streams = [
                replace(stream, rate=positive("rate", rate), distinct=positive("distinct", distinct))
                for stream, (rate, distinct) in zip(self.plan.streams, known, strict=True)
            ]
            plans.append(replace(self.plan, streams=tuple(streams), order=order, selectivity=selectivity))
        self.plan, self._seen = plans
        self.orders = [Order(index(since), *rest) for since, *rest in state["orders"]]
        self._stretches = deque(
            Stretch(index(begin), index(end), np.array(came, np.int64).reshape(len(self.plan.streams)))
            for begin, end, came in state["stretches"]
        )
        self._since, self._due = index(state["since"]), index(state["due"])
        self._bound.nests(self.plan)  # that there are such loops


def named(order: Any) -> Any:
    """Return an order, or one for each stream, as lists of names."""
    return {name: list(mine) for name, mine in order.items()} if isinstance(order, Mapping) else list(order)


def what_changed(before: Plan, after: Plan) -> str:
    """Say which rate differs most between two plans.

    If none does by half: which number of distinct values, or along a join graph the share of which pairs that match.
    """
    rates, distinct = (
        {
            one.name: (getattr(one, of), getattr(other, of))
            for one, other in zip(before.streams, after.streams, strict=True)
        }
        for of in ("rate", "distinct")
    )
    times, rate = _most(rates)
    if times > 1.5:
        return f"rate of {rate}"
    if after.selectivity is None:
        return f"distinct values of {_most(distinct)[1]}"
    known = before.selectivity or {}
    shares = {" and ".join(pair): (known[pair], share) for pair, share in after.selectivity.items() if pair in known}
    return f"share of matching pairs of {_most(shares)[1]}"


def _most(seen: Mapping[str, tuple[float, float]]) -> tuple[float, str]:
    """Return by how many times a number changed that changed most, and the change in words."""
    name, (was, now) = max(seen.items(), key=lambda each: abs(np.log(each[1][1] / each[1][0])))
    return max(now / was, was / now), f"{name} {was:.3g} -> {now:.3g}"
