"""Say while a join on a condition runs how many pairs the exact one has, from a small exact join of some rows.

Beside the join that gives rows or probes up, an exact one of a sample runs: each row is in it with a chance p, by a
lot of its own, which does not look at the row. What a pair of the sample stands for is 1/p for each of its rows.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.setjoin import SetJoin
from penstock.core.sets import Sets
from penstock.core.step import COMPARISONS, Batch
from penstock.quality.books import Guess
from penstock.quality.drawn import Drawn

PORTION = 1 << 9  # rows that are taken at once
ROOM, ITEMS = (1 << 11) - PORTION, 1 << 13  # rows and items of each side: 1 MiB over both sides, with weights
INDEXED_ROOM, INDEXED_ITEMS = (1 << 10) - PORTION, 1 << 11  # the same with an index, which takes most of it
EMPTIED = 0.8  # of the room, when it is full
GRACE = 1 << 21  # so many comparisons (steps, with an index) come before any is saved, and may be saved up
SHARE = 1 / 20  # comparisons for each one that the join beside makes
LEAST = 1e-4  # no lower chance than that is chosen to save time
LOWERED, RAISED = 0.5, 1.25


class Sampled:
    """The estimate of the exact join on a condition that goes along with another.

    Parameters:
        core: the same join without a budget, empty.
        seed: for lots.
        combine: what makes one importance of those of (row, pair); None: rows have none.
        indexed: whether the join has an index.

    Cost: 1 MiB; a twentieth of the comparisons of the join beside, once there are many.
    """

    def __init__(self, core: SetJoin, seed: int, combine: Any = None, *, indexed: bool) -> None:
        self._core = core
        self._room, self._items = (INDEXED_ROOM, INDEXED_ITEMS) if indexed else (ROOM, ITEMS)
        self._drawn = Drawn(2, seed, combine, meets_all=False)
        self._saved = np.array([float(GRACE)])  # comparisons that may be made

    def take(self, batch: Batch, sets: Sets, bar: int, work: float) -> None:
        """Count what the rows of a batch complete.

        Parameters:
            batch, sets: the rows, and their items in the same order.
            bar: a time that no row to come is older than.
            work: what they took in the join beside.
        """
        rows = batch.row.size
        portion = max(1, min(PORTION, self._items * rows // max(int(sets.size.sum()), 1)))  # that there is room for
        for begin in range(0, rows, portion):
            part = slice(begin, min(rows, begin + portion))
            before = self._core.counts[COMPARISONS]
            self._take(
                Batch(*(column[part] if column.size else column for column in batch)),
                sets._replace(begin=sets.begin[part], size=sets.size[part]),
            )
            self._pace(float(self._core.counts[COMPARISONS] - before), work * (part.stop - begin) / rows)
        self._core.pass_watermark(bar)

    def _take(self, batch: Batch, sets: Sets) -> None:
        drawn = self._drawn
        chosen = np.zeros(batch.row.size, np.bool_)
        for side in range(2):
            mine = np.flatnonzero(batch.side == side)
            chance = drawn.chance[side]
            mine = mine[drawn.lots(side, batch.row[mine]) < chance]
            values = batch.importance[mine] if batch.importance.size else batch.importance
            drawn.enter(side, batch.row[mine], 1 / chance, values)
            chosen[mine] = True
        if chosen.any():
            some = Batch(*(column[chosen] if column.size else column for column in batch))
            few = sets._replace(begin=sets.begin[chosen], size=sets.size[chosen])
            drawn.count(self._core.push(some, few, np.empty(0, np.int64)))
            for side in range(2):
                drawn.keep(side, self._core.live_rows(side))

    def _pace(self, made: float, work: float) -> None:
        """Sample less if there is no room or it takes too long, else more where it can be."""
        core, drawn, saved = self._core, self._drawn, self._saved
        allowed = SHARE * work
        saved[0] = min(saved[0] + allowed - made, GRACE)
        slower = saved[0] < GRACE / 2 and made > allowed
        full = [max(core.live(side) / self._room, core.items(side) / self._items) for side in range(2)]
        for side in range(2):
            if full[side] > 1:
                while drawn.staying(side) * full[side] > EMPTIED * core.live(side):
                    drawn.chance[side] *= EMPTIED
            elif slower:
                less = max(LOWERED, math.sqrt(allowed / made))
                drawn.chance[side] = min(drawn.chance[side], max(LEAST, less * drawn.chance[side]))
            elif full[side] < EMPTIED / RAISED and made < allowed + saved[0] / 2:
                drawn.chance[side] = min(1.0, RAISED * drawn.chance[side])
            if full[side] > 1 or slower:  # rows that wait cost as much as those that come: both become fewer
                drawn.thin(side)
        if max(full) > 1 or slower:
            core.keep(drawn.number)

    def respan(self, span: tuple[int, int]) -> None:
        """Go on with windows of another length."""
        self._core.plan.span[:] = span
        self._core.respan()

    @property
    def pairs(self) -> Guess:
        """How many pairs the exact join has."""
        return self._drawn.results

    @property
    def importance(self) -> Guess:
        """How important they are together."""
        return self._drawn.importance

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        core = {f"core.{name}": array for name, array in self._core.arrays().items()}
        return core | self._drawn.arrays() | {"saved": self._saved}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what ``arrays`` returned."""
        self._core.restore({name[5:]: array for name, array in arrays.items() if name.startswith("core.")})
        self._drawn.restore(arrays)
        self._saved = arrays["saved"]
