"""Look at the order of rows, and merge those of both sides into one order of arrival."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.exact import Arrivals
from penstock.core.jit import borrowed, kernel
from penstock.core.step import Batch
from penstock.core.windows import Ints


def merged(left: Arrivals, right: Arrivals) -> tuple[Batch, Ints]:
    """Return rows in order on both sides as one batch, left first at equal times, and their codes. O(rows)."""
    rows = left.row.size + right.row.size
    side, (code, pos, row) = np.empty(rows, np.int8), (np.empty(rows, np.int64) for _ in range(3))
    merge(left, right, side, Arrivals(code, pos, row))
    none = np.empty(0, np.int64)
    batch = Batch(side, np.empty(rows, np.int32), row, pos, pos, np.empty((0, 2), np.int64), none, np.empty(0))
    return batch, code


@kernel
def merge(left: Arrivals, right: Arrivals, side: npt.NDArray[Any], out: Arrivals) -> None:
    """Write the rows of both sides in order of time, and their sides."""
    left, right, side, out = borrowed(left), borrowed(right), borrowed(side), borrowed(out)
    i = j = 0
    for n in range(side.size):
        from_left = j == right.row.size or (i < left.row.size and left.pos[i] <= right.pos[j])
        if from_left:
            out.code[n], out.pos[n], out.row[n] = left.code[i], left.pos[i], left.row[i]
        else:
            out.code[n], out.pos[n], out.row[n] = right.code[j], right.pos[j], right.row[j]
        side[n] = 0 if from_left else 1
        i += from_left
        j += not from_left


def taking_turns(side: npt.NDArray[Any], ts: Ints, sides: int, bar: int) -> Ints:
    """Return the places of rows older than `bar` in order of time, then of sides, then as they are.

    Cost: O(rows * sides) where the rows of each side are in order of time, else O(rows log rows).
    """
    order, count = merge_places(side, ts, sides, bar)
    if count >= 0:
        return order[:count]
    order = np.flatnonzero(ts < bar)
    order = order[np.argsort(side[order], kind="stable")]
    return order[np.argsort(ts[order], kind="stable")]


@kernel
def merge_places(side: npt.NDArray[Any], ts: Ints, sides: int, bar: int) -> tuple[Ints, int]:
    """Return places as ``taking_turns`` does, with room behind them, and how many; -1: a side is not in order."""
    side, ts = borrowed(side), borrowed(ts)
    ends = np.zeros(sides + 1, np.int64)
    for i in range(side.size):
        ends[side[i] + 1] += 1
    ends = np.cumsum(ends)
    heads = ends[:-1].copy()
    mine = np.empty(side.size, np.int64)  # places, those of a side together
    for i in range(side.size):
        at = heads[side[i]]
        if at > ends[side[i]] and ts[i] < ts[mine[at - 1]]:
            return mine, -1
        mine[at] = i
        heads[side[i]] += 1
    heads[:] = ends[:-1]
    order = np.empty(side.size, np.int64)
    for n in range(side.size):
        best, least = -1, bar
        for s in range(sides):
            if heads[s] < ends[s + 1] and ts[mine[heads[s]]] < least:
                best, least = s, ts[mine[heads[s]]]
        if best < 0:
            return order, n
        order[n] = mine[heads[best]]
        heads[best] += 1
    return order, side.size


@kernel
def extent(values: Ints) -> tuple[int, int, bool]:
    """Return the smallest and the largest of some numbers, and whether none is less than the one before it. O(n)."""
    low, high, rising = values[0], values[0], True
    for i in range(1, values.size):
        rising &= values[i] >= values[i - 1]
        low, high = min(low, values[i]), max(high, values[i])
    return low, high, rising
