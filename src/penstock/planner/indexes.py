"""Say which windows get a hash index, and of how many buckets, when memory for buckets is limited."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from penstock.errors import BudgetError
from penstock.planner.cost import Floats, Model, Order
from penstock.planner.statistics import Stream

Buckets = npt.NDArray[np.int64]
Plan = Callable[[list[Stream]], tuple[Model, list[Order]]]


def allotted(streams: Sequence[Stream], total: int, planned: Plan) -> list[Stream]:
    """Return the streams with their share of the buckets; a window with one bucket has no index.

    The idea: for a given order a window costs in inverse proportion to its buckets, so each bucket goes where it
    saves most, which is exact. The order is then found anew, until the cost no longer falls. This begins once with
    equal shares, once with shares by window size, and once without indexes: it ends no dearer than any of them.

    Parameters:
        streams: their own `buckets` are not looked at.
        total: hash buckets over all windows; a window without an index counts as one.
        planned: finds the cheapest loops for streams with their buckets.

    Departures: more buckets than distinct values save nothing, and are not given.

    References: golab2003 §5.4 (the index selection problem), §6.5 (more buckets for larger windows).
    """
    n = len(streams)
    if total < n:
        want = f"give at least {n}, one for each window: a window without an index counts as one bucket"
        raise BudgetError("memory", repr(total), want)
    most = np.array([int(stream.distinct) for stream in streams], np.int64)
    size = np.array([stream.size for stream in streams])
    starts = [np.full(n, total // n), 1 + np.floor((total - n) * size / size.sum()), np.ones(n)]
    best, found = np.inf, list(streams)
    for start in starts:
        buckets, before = np.minimum(start.astype(np.int64), most), np.inf
        while True:
            indexed = with_buckets(streams, buckets)
            model, nests = planned(indexed)
            charges = model.charges(nests)
            cost = float(charges.sum())
            if cost < best:
                best, found = cost, indexed
            if cost >= before:
                break
            before = cost
            if model.every is None:
                np.fill_diagonal(charges, 0.0)  # a single new tuple is one comparison, with or without an index
            buckets = shares((charges * model.buckets).sum(axis=0), total, most)
    return found


def with_buckets(streams: Sequence[Stream], buckets: Sequence[int] | Buckets) -> list[Stream]:
    """Return streams with so many buckets; one is no index."""
    return [
        replace(stream, buckets=int(count) if count > 1 else None)
        for stream, count in zip(streams, buckets, strict=True)
    ]


def shares(weights: Floats, total: int, most: Buckets) -> Buckets:
    """Share out buckets, at least one each, so that the sum of weight / buckets is least. O(total log n)."""
    buckets = np.ones(weights.size, np.int64)
    gains = [(-weight / 2, place) for place, weight in enumerate(weights.tolist()) if most[place] > 1]
    heapq.heapify(gains)
    for _ in range(total - weights.size):
        if not gains:
            break
        place = gains[0][1]
        buckets[place] += 1
        count = int(buckets[place])
        if count < most[place]:
            heapq.heapreplace(gains, (-weights[place] / (count * (count + 1)), place))
        else:
            heapq.heappop(gains)
    return buckets
