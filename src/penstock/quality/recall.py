"""Say while a join runs how much of the exact join it finds, with an interval."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from penstock.core import census as counting
from penstock.core.census import (
    COMBINES,
    IMPORTANCE,
    IMPORTANCE_VARIANCE,
    LOOK_SPREAD,
    LOW,
    NEXT,
    PAIRS,
    SPREAD,
    VARIANCE,
)
from penstock.core.step import Batch, Plan
from penstock.core.windows import Ints
from penstock.quality.books import Guess

HELD = ("code", "pos", "weight", "size", "owed", "importance", "owed_importance")
WHOLE = ("chance", "skip", "looks", "looking", "totals", "rows", "lots")


class Recall:
    """The count of the exact join that goes along with a bounded one.

    Parameters:
        seed: for the sample.
        combine: how importances become one; None: rows have none.

    Cost: 1 MiB, and O(1) per row.
    """

    def __init__(self, seed: int, combine: str | None) -> None:
        self._combine = 0 if combine is None else COMBINES.index(combine)
        self.census = counting.empty(seed, important=combine is not None)

    def take(self, plan: Plan, batch: Batch, code: Ints, watermark: int) -> None:
        """Count what the rows of a batch complete; if the plan is patient, none of them is older than `watermark`."""
        counting.take(self.census, plan, batch, code, watermark, self._combine)

    def adopt(self, pairs: int, importance: float) -> None:
        """Forget what was counted: the rows taken so far had met already, and found so much, which was everything."""
        totals = self.census.totals
        totals[[SPREAD, LOOK_SPREAD]] *= pairs / max(totals[PAIRS], 1.0)
        totals[[PAIRS, VARIANCE, IMPORTANCE, IMPORTANCE_VARIANCE]] = pairs, 0, importance, 0
        self.census.owed[:] = 0
        self.census.owed_importance[:] = 0

    def again(self, combine: str | None) -> Self:
        """Return the same count, which goes on with importances combined so."""
        return type(self).restored(combine, self.arrays())

    @property
    def pairs(self) -> Guess:
        """How many pairs the exact join has."""
        return self._guess(PAIRS, VARIANCE, 1.0)

    @property
    def importance(self) -> Guess:
        """How important they are together."""
        totals = self.census.totals
        each = totals[IMPORTANCE] / totals[PAIRS] if totals[PAIRS] else 0.0
        return self._guess(IMPORTANCE, IMPORTANCE_VARIANCE, float(each))

    def _guess(self, mid: int, variance: int, each: float) -> Guess:
        totals = self.census.totals
        grain = each * float(1.0 / (self.census.chance.min() * self.census.looks[0]) - 1.0)
        return Guess(float(totals[mid]), float(totals[variance]), grain)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name: of the sample, the rows it holds."""
        state: dict[str, npt.NDArray[Any]] = {name: getattr(self.census, name) for name in WHOLE}
        mask = self.census.code.shape[1] - 1
        for side in range(2):
            slots = np.arange(self.census.ends[side, LOW], self.census.ends[side, NEXT]) & mask
            for name in HELD:
                column = getattr(self.census, name)[side]
                state[f"{name}.{side}"] = column[slots] if column.size else column
        return state

    @classmethod
    def restored(cls, combine: str | None, arrays: dict[str, npt.NDArray[Any]], room: int = counting.ROOM) -> Self:
        """Return what ``arrays`` was called on."""
        recall = cls(0, combine)
        census = recall.census = counting.empty(0, important=combine is not None, room=room)
        for name in WHOLE:
            getattr(census, name)[:] = arrays[name]
        for side in range(2):
            held = arrays[f"code.{side}"].size
            for name in HELD:
                column = arrays[f"{name}.{side}"]
                getattr(census, name)[side, : column.size] = column
            census.ends[side, NEXT] = held
            census.chance[side] = 1.0  # so that nobody draws a lot again
            counting.thin(census, side)
        census.chance[:] = arrays["chance"]
        return recall
