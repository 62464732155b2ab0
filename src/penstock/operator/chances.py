"""The chance with which each pair of a sampled join was found, from the lots of those who left."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.step import BUDGET, REASON, ROW_NUMBER, SHED_AT, SIDE, Batch, Plan
from penstock.core.windows import Floats, Ints
from penstock.policies.memory.sample import lots

SPARE = 1 << 12  # rows that are not worth letting go of


class Chances:
    """When rows came, and the largest lots of the victims since.

    The idea: a row is still there if its lot exceeds those of all victims of its pool since it came. Of the victims
    of earlier pushes only those matter that no later one exceeds: a handful.

    Parameters:
        seed: that of the policy.

    Cost: two numbers for each row in memory; O(log victims) per pair.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._first = np.zeros(2, np.int64)  # number of the first row below, on each side
        self._came = [np.empty((0, 2), np.int64) for _ in range(2)]  # (row, [tick of arrival, what age counts from])
        self._ticks = [np.empty(0, np.int64) for _ in range(2)]  # by pool: ticks at whose end somebody left
        self._highest = [np.empty(0) for _ in range(2)]  # and the largest lot of those

    def take(self, batch: Batch, following: Ints) -> None:
        """Note when rows came; `following` are the numbers of the rows after them."""
        for side in range(2):
            mine = batch.side == side
            more = np.zeros((int(following[side] - self._first[side]) - len(self._came[side]), 2), np.int64)
            came = np.concatenate([self._came[side], more])
            at = batch.row[mine] - self._first[side]
            came[at, 0], came[at, 1] = batch.tick[mine], batch.pos[mine]
            self._came[side] = came

    def note(self, shed: Ints, plan: Plan) -> None:
        """Note the victims of a push, as the ledger has them; those that were past due had no lot."""
        shed = shed[shed[:, REASON] == BUDGET]
        pos = self._of(shed[:, SIDE], shed[:, ROW_NUMBER])[:, 1]
        if not plan.by_rows:
            shed = shed[pos + plan.span[shed[:, SIDE]] > shed[:, SHED_AT] + 1]
        lot = lots(self.seed, shed[:, SIDE], shed[:, ROW_NUMBER])
        for pool in range(1 if plan.shared else 2):
            mine = np.full(len(shed), True) if plan.shared else shed[:, SIDE] == pool
            ticks, first = np.unique(shed[mine, SHED_AT], return_index=True)
            highest = np.maximum.reduceat(lot[mine], first) if ticks.size else np.empty(0)
            self._ticks[pool] = np.concatenate([self._ticks[pool], ticks])
            self._highest[pool] = np.concatenate([self._highest[pool], highest])

    def weights(self, left: Ints, right: Ints, plan: Plan) -> Floats:
        """Return the inverse of the chance of each pair."""
        came = [self._of(np.full(rows.size, side), rows)[:, 0] for side, rows in enumerate((left, right))]
        begin, end = np.minimum(*came), np.maximum(*came)
        highest = np.zeros(left.size)
        for pool in range(1 if plan.shared else 2):
            mine = np.full(left.size, True) if plan.shared else (came[0] < came[1]) == (pool == 0)
            places = [np.searchsorted(self._ticks[pool], moment[mine]) for moment in (begin, end)]
            highest[mine] = _largest(self._highest[pool], places[0], places[1])
        return 1.0 / (1.0 - highest)

    def settle(self) -> None:
        """Forget the victims that no pair to come will ask for."""
        for pool in range(2):
            later = np.append(np.maximum.accumulate(self._highest[pool][::-1])[::-1], 0.0)[1:]
            matters = self._highest[pool] > later
            self._ticks[pool], self._highest[pool] = self._ticks[pool][matters], self._highest[pool][matters]

    def wasteful(self, side: int, held: int) -> bool:
        """Say whether it is time to let go of rows, of which so many are held."""
        return len(self._came[side]) > 4 * held + SPARE

    def trim(self, side: int, held: Ints) -> None:
        """Let go of the rows before the first of those held, given by number."""
        first = int(held[0]) if held.size else int(self._first[side]) + len(self._came[side])
        self._came[side] = self._came[side][first - int(self._first[side]) :].copy()
        self._first[side] = first

    def _of(self, side: Ints, row: Ints) -> Ints:
        found = np.empty((row.size, 2), np.int64)
        for which in range(2):
            mine = side == which
            found[mine] = self._came[which][row[mine] - self._first[which]]
        return found

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        state: dict[str, npt.NDArray[Any]] = {"first": self._first}
        for at in range(2):
            state |= {
                f"came.{at}": self._came[at],
                f"ticks.{at}": self._ticks[at],
                f"highest.{at}": self._highest[at],
            }
        return state

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take over the state that ``arrays`` returned."""
        self._first = arrays["first"]
        self._came, self._ticks, self._highest = (
            [arrays[f"{name}.{at}"] for at in range(2)] for name in ("came", "ticks", "highest")
        )


def _largest(values: Floats, begin: Ints, end: Ints) -> Floats:
    """Return the largest value of each stretch, 0 of an empty one. O(values log values + stretches)."""
    found = np.zeros(begin.size)
    length = end - begin
    some = length > 0
    if not some.any():
        return found
    levels = [values]  # level k: the largest of 2**k from here on
    while 2 << (len(levels) - 1) <= length.max():
        half = 1 << (len(levels) - 1)
        levels.append(np.maximum(levels[-1][:-half], levels[-1][half:]))
    level = np.frexp(length[some].astype(np.float64))[1] - 1
    best = np.empty(level.size)
    for at in np.unique(level).tolist():
        mine = level == at
        first, last = begin[some][mine], end[some][mine] - (1 << at)
        best[mine] = np.maximum(levels[at][first], levels[at][last])
    found[some] = best
    return found
