"""Utility-based shedding: how much of each window is probed for each type of row."""

import heapq
from typing import NamedTuple

import numpy as np

from penstock.core.windows import Floats


class Window(NamedTuple):
    """What is known of one window."""

    span: float
    output: Floats  # o_j by age, one for each basic window
    mine: Floats  # how often rows of each type come on its own side; sums to 1
    probing: Floats  # the same for the other side, whose rows probe it


def shares(share: float, windows: tuple[Window, Window], values: Floats) -> Floats:
    """Return (window, type) -> the share of that window to probe with a row of that type.

    The idea: comparing the rows of one type with one basic window has a price and a value; the best are taken until
    the price of a share `share` of everything is spent: a fractional knapsack, which greed solves.

    Parameters:
        share: r.
        windows: both windows.
        values: (type, type) -> the value of a pair.

    Cost: O((n + types) log types) for n basic windows.

    Departures: a basic window has a volume of span / n, so that a share of 1 sheds nothing; the frequency in a volume
        is that of the rows that probe; the share of a window is the mean over its basic windows.

    References: gedik2007 §5.3, Algorithm 5.
    """
    kinds = values.shape[0]
    got = np.zeros((2, kinds))
    ranked = [-np.sort(-window.output, kind="stable") for window in windows]
    left = share * sum(window.span for window in windows)

    def worth(at: int, nth: int, kind: int) -> float:
        window, output = windows[at], ranked[at]
        total = output.sum()
        partner = float(values[kind] @ window.mine)
        return float(output.mean() * partner * output.size * (output[nth] / total if total else 1 / output.size))

    heap = [(-worth(at, 0, kind), at, 0, kind) for at in range(2) for kind in range(kinds)]
    heapq.heapify(heap)
    while heap:
        _, at, nth, kind = heapq.heappop(heap)
        size = ranked[at].size
        volume = float(windows[at].probing[kind]) * windows[at].span / size
        got[at, kind] += min(1.0, left / volume) / size if volume > 0 else 1 / size
        left -= volume
        if left <= 0:
            break
        if nth + 1 < size:
            heapq.heappush(heap, (-worth(at, nth + 1, kind), at, nth + 1, kind))
    return np.minimum(got, 1.0)
