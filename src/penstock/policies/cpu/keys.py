"""The controller of joins on keys by the clock on the wall: which keys are let in, so that the work fits the time."""

from dataclasses import dataclass

import numpy as np

from penstock.core.gate import (
    BAR,
    BEGAN,
    CAME,
    DID,
    GAINS,
    LEARNED,
    LEFT,
    LEVELS,
    MOST,
    PROMISE,
    PROMISED,
    ROW,
    SEEN,
    TIE,
    WORK,
    Gate,
    tell_apart,
)
from penstock.core.jit import borrowed, kernel, part
from penstock.core.windows import Floats
from penstock.policies.cpu.bar import DOUBT, bar_for, missed

METHODS = ("auto", "random-drop")
KEPT = 0.8  # how much of what was seen before a period counts after it
LEAST = 1e-9  # of what was promised: while nobody passes, the bar falls until somebody does
FADED = 0.2  # rows of a slot that are not worth remembering


@dataclass(frozen=True)
class KeyController:
    """What is done at the end of a period, and before each portion. All it learns is in the gate.

    The idea: a row of a key costs its entry and the pairs that it finds. If all rows of its key enter, these are its
    gain. So the keys with the highest gain give most pairs for the work, and as many of them are let in as there is
    time for. How many rows have which gain is told by rows that came after gains were told apart: keys that seem to
    be good by chance, or come no more, do not count. What the work was, over what it should have been, corrects the
    next promise. Rows of a key may come all at once, so that some bring much more work than others: it is never more
    than there is time for until the batch is over. A key may be too good to be let in as a whole, and what work costs
    is only learned from work; so while less is done than was promised, the bar falls.

    "random-drop" lets a share of the rows in by lot, which find the square of that share.

    Cost: O(slots) at the end of a period; O(levels) before each portion, whatever the number of keys.
    """

    method: str
    spans: tuple[int, int]
    by_rows: bool

    def __call__(self, gate: Gate, tick: int) -> None:
        """End a period."""
        dials, came = gate.dials, gate.marks[CAME : CAME + 2]
        elapsed = tick - dials[BEGAN]
        dials[BEGAN] = tick
        if np.isinf(elapsed) or not came.any():
            return
        dials[SEEN : SEEN + 2] += came
        seen = dials[SEEN : SEEN + 2].copy()
        dials[SEEN : SEEN + 2] *= KEPT
        total = seen.sum()
        span = np.array(self.spans, np.float64)
        window = span * total / np.maximum(seen, 1.0) if self.by_rows else span * came.sum() / elapsed
        mass = np.zeros(LEVELS)
        tell_apart(gate, float(window.sum() / total), KEPT, FADED, mass)
        gate.mass[...] = KEPT * gate.mass if dials[LEARNED] else mass
        dials[LEARNED] = 1.0
        self.retune(gate)

    def retune(self, gate: Gate) -> None:
        """Set the bar for the work a row that there is time for. O(levels)."""
        choose(gate.mass, gate.dials, GAINS, np.empty(LEVELS), self.method == "random-drop")


@kernel
def choose(mass: Floats, dials: Floats, gains: Floats, costs: Floats, by_lot: bool) -> None:  # noqa: FBT001
    """Set the bar, or the share by lot, for the work a row that there is time for; `costs` is room. O(levels)."""
    mass, dials, gains, costs = borrowed(mass), borrowed(dials), borrowed(gains), borrowed(costs)
    total, found = mass.sum(), 0.0
    if total == 0.0:
        return
    work = dials[WORK] / missed(dials[PROMISED], dials[DID], 1 / DOUBT)
    dials[MOST] = np.inf if by_lot else work * dials[LEFT]
    for level in range(costs.size):
        costs[level] = mass[level] / total * (ROW + gains[level])
        found += mass[level] / total * gains[level]
    if by_lot:
        dials[TIE] = share = share_for(work, found)
        dials[PROMISE] = share * ROW + share * share * found
    else:
        work = dials[WORK] / missed(dials[PROMISED], dials[DID], LEAST)
        dials[BAR], dials[TIE], dials[PROMISE] = bar_for(costs, work)


@part
def share_for(work: float, found: float) -> float:
    """Return the share of the rows that can be let in if all of them would find so many each."""
    if found <= 0.0:
        return min(1.0, work / ROW)
    return min(1.0, (np.sqrt(ROW * ROW + 4 * found * work) - ROW) / (2 * found))
