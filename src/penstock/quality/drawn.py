"""Reckon how many results a join has from those that a sample of its rows has, with an interval.

Rows are in the sample with chances that are known, each by a lot of its own. A result counts the product of 1/p over
its rows, at the time when it is found, and so the sum is an unbiased estimate of all results (Horvitz and Thompson),
for any join.

The variance is at most the sum, over rows, of what each one's lot adds while the others stay (Efron and Stein). A
row whose results came at chances p1 >= p2 >= ... adds the sum over all two of them j <= k of (1/p_j - 1); each is
seen with chance p_k. So it is reckoned on the way, with one number a row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.windows import Floats, Ints
from penstock.policies.memory.sample import lots
from penstock.quality.books import Guess

APART = 0x5851F42D4C957F2D  # between the seeds of streams
LOT, WEIGHT, OWED, VALUE, OWED_VALUE = range(5)  # what is known of a sampled row
RESULTS, VARIANCE, IMPORTANCE, IMPORTANCE_VARIANCE, COUNTED = range(5)  # entries of `totals`


class Drawn:
    """The rows of the sample, and what their results add up to.

    Parameters:
        streams: how many there are.
        seed: for lots.
        combine: what makes one importance of those of (row, result); None: rows have none.
        meets_all: whether the last row of a result always finds it, since rows draw once they have met others.

    Cost: 48 bytes a row.
    """

    def __init__(self, streams: int, seed: int, combine: Any = None, *, meets_all: bool) -> None:
        self._seed, self._combine, self._meets_all = seed, combine, meets_all
        self.number = [np.empty(0, np.int64) for _ in range(streams)]  # of sampled rows, ascending
        self.known = [np.empty((5, 0)) for _ in range(streams)]
        self.chance = np.ones(streams)  # of the rows to come
        self.totals = np.zeros(5)

    def lots(self, stream: int, rows: Ints) -> Floats:
        """Return the lots of rows by their numbers: a row stays while its lot is below the chance."""
        return lots((self._seed + APART * stream) % (1 << 63), np.zeros_like(rows), rows)

    def enter(self, stream: int, rows: Ints, weight: float, values: Floats) -> None:
        """Take rows into the sample, with their importance, if they have one."""
        known = np.zeros((5, rows.size))
        known[LOT], known[WEIGHT] = self.lots(stream, rows), weight
        known[VALUE] = values if values.size else 1.0
        number = np.concatenate([self.number[stream], rows])
        order = np.argsort(number, kind="stable")
        self.number[stream] = number[order]
        self.known[stream] = np.concatenate([self.known[stream], known], axis=1)[:, order]

    def count(self, found: Sequence[Ints]) -> None:
        """Count results, given by the numbers of their rows, stream by stream; those of other rows do not count."""
        if found[0].size == 0:
            return
        here = [np.isin(rows, number) for number, rows in zip(self.number, found, strict=True)]
        counts = np.all(here, axis=0)
        mine = [rows[counts] for rows in found]
        places = [np.searchsorted(number, rows) for number, rows in zip(self.number, mine, strict=True)]
        weights = np.stack([known[WEIGHT][at] for known, at in zip(self.known, places, strict=True)])
        product = weights.prod(axis=0)
        self.totals[COUNTED] += product.size
        self._settle(places, weights, product, RESULTS, OWED)
        if self._combine is not None:
            values = np.stack([known[VALUE][at] for known, at in zip(self.known, places, strict=True)])
            self._settle(places, weights, product * self._combine(values), IMPORTANCE, OWED_VALUE)

    def _settle(self, places: list[Ints], weights: Floats, amount: Floats, total: int, owed: int) -> None:
        """Add amounts of results to a total, and what the lots of their rows add to its variance."""
        self.totals[total] += amount.sum()
        for known, at, weight in zip(self.known, places, weights, strict=True):
            through = np.bincount(at, amount / weight, minlength=known.shape[1])
            part = (known[WEIGHT] - 1) * through
            self.totals[total + 1] += float((known[WEIGHT] * through * (2 * known[owed] + part)).sum())
            known[owed] += part

    def staying(self, stream: int) -> int:
        """Return how many rows will stay if all of them draw their lots now."""
        return int((self.known[stream][LOT] < self.chance[stream]).sum())

    def thin(self, stream: int, here: npt.NDArray[np.bool_] | None = None) -> Ints:
        """Let go of rows whose lots are not below the chance; others weigh more.

        Parameters:
            stream: whose rows.
            here: which of them have to draw; None: all.

        Returns:
            The numbers of those that went.
        """
        number, known = self.number[stream], self.known[stream]
        likelier = known[WEIGHT] * self.chance[stream] < 1
        if here is not None:
            likelier &= here
        stays = ~likelier | (known[LOT] < self.chance[stream])
        known[WEIGHT][likelier] = 1 / self.chance[stream]
        self.number[stream], self.known[stream] = number[stays], known[:, stays]
        gone: Ints = number[~stays]
        return gone

    def keep(self, stream: int, live: Ints) -> None:
        """Forget the rows that are not among these."""
        here = np.isin(self.number[stream], live, assume_unique=True)
        self.number[stream], self.known[stream] = self.number[stream][here], self.known[stream][:, here]

    @property
    def results(self) -> Guess:
        """How many results the exact join has."""
        return self._guess(RESULTS, 1.0)

    @property
    def importance(self) -> Guess:
        """How important they are together."""
        totals = self.totals
        return self._guess(IMPORTANCE, float(totals[IMPORTANCE] / totals[RESULTS]) if totals[RESULTS] else 0.0)

    def _guess(self, total: int, each: float) -> Guess:
        missed = 1 / self.chance.prod() * (self.chance.max() if self._meets_all else 1.0)
        return Guess(float(self.totals[total]), float(self.totals[total + 1]), each * float(missed - 1))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        state: dict[str, npt.NDArray[Any]] = {"chance": self.chance, "totals": self.totals}
        for s, (number, known) in enumerate(zip(self.number, self.known, strict=True)):
            state |= {f"number.{s}": number, f"known.{s}": known}
        return state

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what ``arrays`` returned."""
        streams = range(len(self.number))
        self.number = [arrays[f"number.{s}"] for s in streams]
        self.known = [arrays[f"known.{s}"].reshape(5, -1) for s in streams]
        self.chance, self.totals = arrays["chance"], arrays["totals"]
