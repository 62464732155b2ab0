"""The price of an order: comparisons per unit of time, loop by loop.

A join of n windows is n nested loops for the new tuples of each stream. A loop is paid once for every intermediate
result that reaches it: what the loops outside it have joined. How many those are does not depend on their order.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import InputError
from penstock.planner.statistics import Selectivity, Stream, whole

Floats = npt.NDArray[np.float64]
Order = tuple[int, ...]  # places of streams, the outermost loop first
MOST = 12  # streams: the model keeps a number for each set of them
ONE_ORDER = ("naive", "eager", "lazy")  # algorithms with a global order


class Model:
    """The per-unit-time cost model of one join.

    The idea: the result of joining a set of windows on a common attribute has ``min(v) * product(C / v)`` tuples,
    whatever the order. A set is a bit mask: bit j stands for stream j.

    Parameters:
        streams: at most 12.
        every: the interval τ of lazy re-evaluation and expiration, which lets windows grow to T + τ; None: eager.
        selectivity: for joins on different attributes, the share of pairs that match, by pair of names; streams
            without an entry are not compared, and a prefix of an order must be connected. None: a common attribute.
        stopping: whether loops inside that of the new tuples stop at the first tuple too old for the new one, as
            those of ``core.chain`` do: of a window grown to T + τ they look at T + τ/2 on average, and join T. The
            paper counts T + τ.

    Departures: the paper prints the sizes of intermediate results recursively; the product is the same number. A hash
    bucket is taken to hold its even share of a window, also of new tuples inside other loops; a single new tuple
    costs one comparison.

    References: golab2003 §4.2, §5.3, Appendix A.
    """

    def __init__(
        self,
        streams: Sequence[Stream],
        *,
        every: float | None = None,
        selectivity: Selectivity | None = None,
        stopping: bool = False,
    ) -> None:
        self.names = [stream.name for stream in streams]
        self.every = every
        self.selectivity = selectivity
        grown = 0.0 if every is None else every
        rate = _numbers(streams, "rate")
        price = _numbers(streams, "price")
        self.buckets = np.array([stream.buckets or 1 for stream in streams], float)
        self.rate = rate
        self.distinct = _numbers(streams, "distinct")
        self.size = rate * (_numbers(streams, "span") + grown)
        self.stopping = stopping and every is not None
        self.joined = rate * _numbers(streams, "span") if self.stopping else self.size  # inside the new tuples' loop
        self.fresh = np.ones_like(rate) if every is None else rate * every  # new tuples in one execution
        self.times = rate if every is None else np.full_like(rate, 1 / every)  # executions per unit of time
        self.scanned = self.size / self.buckets
        self.fresh_scanned = self.fresh if every is None else self.fresh / self.buckets
        self.price = price

    @cached_property
    def members(self) -> npt.NDArray[np.bool_]:
        """Which streams are in each set: (set, stream)."""
        n = len(self.names)
        return (np.arange(1 << n)[:, None] >> np.arange(n)) & 1 == 1

    @cached_property
    def results(self) -> Floats:
        """How many results each set of windows has (φ, with τ: φ̂)."""
        return self._results(self.size)

    def _results(self, size: Floats) -> Floats:
        if self.selectivity is None:
            joined = np.where(self.members, size / self.distinct, 1.0).prod(axis=1)
            return joined * np.where(self.members, self.distinct, np.inf).min(axis=1)
        joined = np.where(self.members, size, 1.0).prod(axis=1)
        for (one, other), share in self.selectivity.items():
            joined[self.members[:, self.names.index(one)] & self.members[:, self.names.index(other)]] *= share
        return joined

    @cached_property
    def connected(self) -> npt.NDArray[np.bool_]:
        """Whether a stream may be the next after a set: (set, stream)."""
        n = len(self.names)
        if self.selectivity is None:
            return np.ones((1 << n, n), np.bool_)
        near = np.zeros((n, n), np.bool_)
        for one, other in self.selectivity:
            a, b = self.names.index(one), self.names.index(other)
            near[a, b] = near[b, a] = True
        may = self.members @ near
        may[0] = True
        return may

    @cached_property
    def loops(self) -> Floats:
        """The cost per unit of time of a loop: (source of the new tuples, set of the loops outside, window)."""
        n = len(self.names)
        inside = self.members.T  # (source, set): whether the new tuples are outside
        share = (self.fresh / self.joined)[:, None]  # of one window only the new tuples take part
        new = np.where(inside, share, 1.0)
        entered = self.times[:, None] * np.where(inside, self._results(self.joined), self.results) * new
        entered[:, 0] = 0.0  # the outermost scan is not charged
        passed = (self.size + self.joined) / 2 / self.buckets
        scans = np.where(inside[:, :, None], passed, self.scanned)
        for source in range(n):
            scans[source, :, source] = self.fresh_scanned[source]
        costs: Floats = entered[:, :, None] * scans * self.price
        costs[:, ~self.connected] = np.inf
        return costs

    def searches(self, algorithm: str) -> list[Floats]:
        """Return what each next loop costs after each set of loops, once for each order that is to be found.

        NAIVE, EAGER and LAZY take one order for the new tuples of all streams, GENERAL one for each stream; so do
        EAGER and LAZY if not all streams are joined with each other, since the order depends on where one starts.
        """
        n = len(self.names)
        if algorithm == "general":
            return list(self.loops)
        if algorithm == "naive":
            return [self.loops.sum(axis=0)]
        if self.selectivity is not None:
            first = np.eye(n, dtype=np.bool_)
            return [_with_start(costs, first[source]) for source, costs in enumerate(self.loops)]
        sets = np.arange(1 << n)
        steps = np.zeros((1 << n, n))
        for source in range(n):
            mine = self.loops[source, sets | 1 << source]  # the new tuples are in the outermost loop
            mine[:, source] = 0.0
            steps += mine
        return [steps]

    def binary(self, source: int | None = None) -> Floats:
        """Return the size of the join of each two windows, by buckets; of one of them only the new tuples.

        References: golab2003 §5.1, §5.2 (new tuples), §5.3 (buckets).
        """
        size = self.scanned.copy()
        if source is not None:
            size[source] = self.fresh_scanned[source]
        both = np.outer(size, size)
        if self.selectivity is None:
            return both / np.maximum.outer(self.distinct, self.distinct)
        joins = np.full_like(both, np.inf)
        for (one, other), share in self.selectivity.items():
            a, b = self.names.index(one), self.names.index(other)
            joins[a, b] = joins[b, a] = both[a, b] * share
        return joins

    def nests(self, algorithm: str, orders: Sequence[Order]) -> list[Order]:
        """Return the loops for the new tuples of each stream, from one global order or one order for each.

        EAGER and LAZY put the new tuples first. Along a join graph the next is then the first in the order that is
        joined with one before it.
        """
        n = len(self.names)
        each = list(orders) * n if len(orders) == 1 else list(orders)
        if algorithm in {"naive", "general"}:
            return each
        return [self._from(source, order) for source, order in enumerate(each)]

    def _from(self, source: int, order: Order) -> Order:
        nest, outside = [source], 1 << source
        rest = [place for place in order if place != source]
        while rest:
            place = next((place for place in rest if self.connected[outside, place]), rest[0])
            nest.append(place)
            rest.remove(place)
            outside |= 1 << place
        return tuple(nest)

    def charges(self, nests: Sequence[Order]) -> Floats:
        """Return what the loops cost: (source of the new tuples, window)."""
        found = np.zeros((len(nests), len(nests)))
        for source, nest in enumerate(nests):
            outside = 0
            for place in nest:
                found[source, place] = self.loops[source, outside, place]
                outside |= 1 << place
        return found


def _with_start(costs: Floats, first: npt.NDArray[np.bool_]) -> Floats:
    steps = costs.copy()
    steps[0, ~first] = np.inf
    return steps


def _numbers(streams: Sequence[Stream], name: str) -> Floats:
    return np.array([getattr(stream, name) for stream in streams], float)


def checked(streams: Any, selectivity: Selectivity | None) -> list[Stream]:
    """Check that streams can be planned together.

    Raises:
        InputError: if there are fewer than 2 or more than 12, a name comes twice, or the join graph falls apart.
    """
    if not (isinstance(streams, Sequence) and all(isinstance(stream, Stream) for stream in streams)):
        raise InputError("streams", repr(streams), "give a list of pen.Stream(...), or tables by name")
    names = [stream.name for stream in streams]
    if not 2 <= len(names) <= MOST:
        raise InputError("streams", f"{len(names)}", f"give 2 to {MOST} streams")
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError("streams", f"{twice[0]!r} twice", "give each stream a name of its own")
    if selectivity is not None:
        for pair, share in selectivity.items():
            if not (isinstance(pair, tuple) and len(pair) == 2 and set(pair) <= set(names) and pair[0] != pair[1]):
                raise InputError("selectivity", repr(pair), f"an edge names two of the streams: {', '.join(names)}")
            if not 0 < share <= 1:
                raise InputError("selectivity", f"{share!r} for {pair}", "give a share above 0 and up to 1")
        whole(names, list(selectivity), "selectivity")
    return list(streams)
