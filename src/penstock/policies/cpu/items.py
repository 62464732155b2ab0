"""The controller of joins on sets by the clock on the wall: which rows are probed, so that the work fits the time."""

from dataclasses import dataclass

import numpy as np

from penstock.core.probing import ENDS, MODE, PROMISING, Effort
from penstock.core.promise import (
    BAR,
    CAME,
    CHANCE,
    COST,
    DID,
    MEAN,
    PROBED,
    PROMISE,
    PROMISED,
    ROWS,
    TIE,
    WORK,
    Promises,
)
from penstock.policies.cpu.bar import bar_for, missed
from penstock.policies.cpu.controller import next_end

KEPT = 0.8  # how much of what was learned before a period counts after it
FADE = 0.9  # how much of the work promised and done before a portion counts after it
SURE = 4.0  # rows of a level whose work tells as much as that of all levels


@dataclass(frozen=True)
class ItemController:
    """What is done at the end of a period, and before each portion. All it learns is in the effort.

    The idea: every row enters its window, which costs little. What costs time is to walk the lists of its items, and
    few rows find most of the pairs. Which they are is told by the items: those of rows that met many are met again.
    So rows are probed, each with the whole other window, in the order of what they promise for the work, and as many
    of them as there is time for. A part of the work goes to rows by lot, which teaches about the others.

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
        visited, met = lists.sum(axis=0)
        if visited > 0.0:
            dials[MEAN] = met / visited
        lists *= KEPT
        levels *= KEPT

    def retune(self, effort: Effort, work: float) -> None:
        """Set the bar for the work a row that there is time for. O(levels)."""
        promises = effort.promises
        levels, dials = promises.levels, promises.dials
        came, probed = levels[:, CAME].sum(), levels[:, PROBED].sum()
        if probed == 0.0:
            return
        self._compare(promises)
        mean = levels[:, COST].sum() / probed
        costs = (levels[:, COST] + SURE * mean) / (levels[:, PROBED] + SURE) * levels[:, CAME] / came
        work /= missed(dials[PROMISED], dials[DID])
        total = float(costs.sum())
        if total <= work:
            dials[[BAR, TIE, PROMISE]] = -1.0, 1.0, total
            return
        chance = self.sampling * work / total
        bar, tie, _ = bar_for(costs, work * (1.0 - self.sampling))
        dials[[BAR, TIE, CHANCE, PROMISE]] = bar, max(tie, chance), chance, work

    @staticmethod
    def _compare(promises: Promises) -> None:
        """Add up what was promised for the rows of the last portion, and what they took."""
        dials = promises.dials
        dials[[PROMISED, DID]] *= FADE
        dials[PROMISED] += dials[PROMISE] * dials[ROWS]
        dials[DID] += dials[WORK] if dials[PROMISE] > 0.0 else 0.0
        dials[[ROWS, WORK]] = 0.0
