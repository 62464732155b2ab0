"""The controller of joins on sets by the clock on the wall: which rows are let in, so that the work fits the time."""

from dataclasses import dataclass

import numpy as np

from penstock.core.jit import borrowed, kernel
from penstock.core.probing import ENDS, MODE, PROMISING, Effort
from penstock.core.promise import (
    BAR,
    CAME,
    CHANCE,
    COST,
    DID,
    ENTERED,
    LEVELS,
    MEAN,
    PROMISE,
    PROMISED,
    ROWS,
    TIE,
    WORK,
)
from penstock.core.windows import Floats
from penstock.policies.cpu.bar import DOUBT, bar_for, missed
from penstock.policies.cpu.controller import next_end

KEPT = 0.8  # how much of what was learned before a period counts after it
FADE = 0.9  # how much of the work promised and done before a portion counts after it
SURE = 4.0  # rows of a level whose work tells as much as that of all levels


@dataclass(frozen=True)
class ItemController:
    """What is done at the end of a period, and before each portion. All it learns is in the effort.

    The idea: what costs time is to walk the lists of a row's items, and few rows find most of the pairs. Which they
    are is told by the items: lists that brought many pairs do so again. Rows that meet share items, so they promise
    alike: who promises much finds much among those that do. So those that promise most are let in, as many as there
    is time for: each is probed with the whole other window, and kept for others. The rest is dropped, so that lists
    are short. A part of the work goes to rows by lot, which teaches about the others.

    Cost: O(slots) at the end of a period; O(levels) before each portion, whatever the number of items.
    """

    period: int  # ticks
    sampling: float  # of the work: for rows by lot

    def start(self, effort: Effort) -> None:
        """Set the effort of the first period: everything."""
        effort.mode[MODE] = PROMISING
        effort.dials[ENDS] = -np.inf

    def __call__(self, effort: Effort, tick: int) -> None:
        """End a period."""
        lists, levels, dials = effort.promises
        effort.dials[ENDS] = next_end(effort.dials[ENDS], tick, self.period)
        walked, met = lists.sum(axis=0)
        if walked > 0.0:
            dials[MEAN] = met / walked
        lists *= KEPT
        levels *= KEPT

    def retune(self, effort: Effort, work: float) -> None:
        """Set the bar for the work a row that there is time for. O(levels)."""
        choose(effort.promises.levels, effort.promises.dials, np.empty(LEVELS), work, self.sampling)


@kernel
def choose(levels: Floats, dials: Floats, costs: Floats, work: float, sampling: float) -> None:
    """Set the bar for so much work a row, a share of it by lot; `costs` is room for what each level takes. O(levels).

    What was promised for the rows of the last portion, and what they took, tells how far to trust the promise.
    """
    levels, dials, costs = borrowed(levels), borrowed(dials), borrowed(costs)
    came = entered = cost = total = 0.0
    for level in range(costs.size):
        came += levels[level, CAME]
        entered += levels[level, ENTERED]
        cost += levels[level, COST]
    if entered == 0.0:
        return
    dials[PROMISED] = FADE * dials[PROMISED] + dials[PROMISE] * dials[ROWS]
    dials[DID] = FADE * dials[DID] + (dials[WORK] if dials[PROMISE] > 0.0 else 0.0)
    dials[ROWS] = dials[WORK] = 0.0
    for level in range(costs.size):
        each = (levels[level, COST] + SURE * cost / entered) / (levels[level, ENTERED] + SURE)
        costs[level] = each * levels[level, CAME] / came
        total += costs[level]
    work /= missed(dials[PROMISED], dials[DID], 1 / DOUBT)
    dials[PROMISE] = min(work, total)
    if total <= work:
        dials[BAR], dials[TIE] = -1.0, 1.0
        return
    dials[CHANCE] = sampling * work / total
    dials[BAR], tie, _ = bar_for(costs, work * (1.0 - sampling))
    dials[TIE] = max(tie, dials[CHANCE])
