"""Say while a join of several streams runs how many results the exact one has, with an interval.

Beside the bounded join runs an exact one of a sample. Rows of the portion that is being taken are all in it; when it
is over, each stays with a chance p, by a lot of its own. A result counts the product of 1/p over its rows, at the
time when it is found, and so the sum is an unbiased estimate of all results (Horvitz and Thompson), for any graph.

The variance is at most the sum, over rows, of what each one's lot adds while the others stay (Efron and Stein). A
row whose results came at chances p1 >= p2 >= ... adds the sum over all two of them j <= k of (1/p_j - 1); each is
seen with chance p_k. So it is reckoned on the way, with one number a row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.chain import Chain
from penstock.core.rings import Batch
from penstock.core.windows import Floats, Ints
from penstock.policies.memory.sample import lots
from penstock.quality.books import Guess

ROOM = 1 << 14  # rows of the sample, over all streams
PORTION, SHORTEST = 1 << 12, 1 << 4  # rows that are taken at once, at most and at least
CHUNK = 1 << 15  # results that are counted at once
MANY, MOST_CHUNKS = 4, 16  # of a portion: to make them shorter; before the sample is thinned out on the spot
DEAR, CHEAP = 64, 16  # results counted for each row that came: to sample less; while more can be sampled
GRACE = 1 << 18  # so many results are counted before anything is saved
PRECISE = 0.006  # a deviation, as a share of the results, that is fine enough
FLOOR = 1 / 16  # no lower chance than that is chosen to save time
LOWERED, RAISED = 0.5, 1.25
APART = 0x5851F42D4C957F2D  # between the seeds of streams
LOT, WEIGHT, OWED, VALUE, OWED_VALUE = range(5)  # what is known of a sampled row
RESULTS, VARIANCE, IMPORTANCE, IMPORTANCE_VARIANCE, COUNTED = range(5)  # entries of `totals`


class Gauge:
    """The estimate of the exact join that goes along with a bounded one.

    Parameters:
        chain: the same join without a budget, empty.
        streams: how many there are.
        seed: for lots.
        combine: what makes one importance of those of (row, result); None: rows have none.

    Cost: ROOM rows of keys, times and 40 bytes; some dozens of results for each row that comes.
    """

    def __init__(self, chain: Chain, streams: int, seed: int, combine: Any = None) -> None:
        self._chain, self._seed, self._combine = chain, seed, combine
        self._room = max(ROOM // streams, 1)
        self._number = [np.empty(0, np.int64) for _ in range(streams)]  # of sampled rows, ascending
        self._known = [np.empty((5, 0)) for _ in range(streams)]
        self._chance = np.ones(streams)
        self._length = np.array([max(PORTION // 16, 1)], np.int64)  # of the next portion
        self._totals = np.zeros(5)

    def take(self, batch: Batch) -> None:
        """Count what the rows of a batch, whole groups, complete."""
        ends = np.append(np.flatnonzero(np.diff(batch.group)) + 1, batch.row.size)
        begin = 0
        while begin < batch.row.size:
            end = int(ends[min(int(np.searchsorted(ends, begin + self._length[0])), ends.size - 1)])
            self._take(batch.only(slice(begin, end)))
            begin = end

    def _take(self, portion: Batch) -> None:
        self._enter(portion)
        before = self._totals[COUNTED]
        for at, found in enumerate(self._chain.chunks(portion, CHUNK)):
            self._count(found)
            if at >= MOST_CHUNKS:
                self._chance *= LOWERED
                self._thin()
        self._pace(float(self._totals[COUNTED] - before), portion.row.size)
        self._thin()
        self._chain.sweep()
        self._forget()

    def reorder(self, nests: Sequence[Sequence[int]]) -> None:
        """Go on with other loops."""
        self._chain.reorder(nests)

    def _enter(self, portion: Batch) -> None:
        for s in range(len(self._number)):
            mine = (portion.stream == s) & (portion.row >= 0)
            rows = portion.row[mine]
            known = np.zeros((5, rows.size))
            known[LOT] = lots((self._seed + APART * s) % (1 << 63), np.zeros_like(rows), rows)
            known[WEIGHT] = 1.0
            known[VALUE] = portion.importance[mine] if portion.importance.size else 1.0
            number = np.concatenate([self._number[s], rows])
            order = np.argsort(number, kind="stable")
            self._number[s] = number[order]
            self._known[s] = np.concatenate([self._known[s], known], axis=1)[:, order]

    def _count(self, found: Ints) -> None:
        """Count results, given by the numbers of their rows: (stream, result)."""
        here = [np.isin(rows, number) for number, rows in zip(self._number, found, strict=True)]
        found = found[:, np.all(here, axis=0)]  # loops may still be at a row that has just been let go
        places = [np.searchsorted(number, rows) for number, rows in zip(self._number, found, strict=True)]
        weights = np.stack([known[WEIGHT][at] for known, at in zip(self._known, places, strict=True)])
        product = weights.prod(axis=0)
        self._totals[COUNTED] += product.size
        self._settle(places, weights, product, RESULTS, OWED)
        if self._combine is not None:
            values = np.stack([known[VALUE][at] for known, at in zip(self._known, places, strict=True)])
            self._settle(places, weights, product * self._combine(values), IMPORTANCE, OWED_VALUE)

    def _settle(self, places: list[Ints], weights: Floats, amount: Floats, total: int, owed: int) -> None:
        """Add amounts of results to a total, and what the lots of their rows add to its variance."""
        self._totals[total] += amount.sum()
        for known, at, weight in zip(self._known, places, weights, strict=True):
            through = np.bincount(at, amount / weight, minlength=known.shape[1])
            part = (known[WEIGHT] - 1) * through
            self._totals[total + 1] += float((known[WEIGHT] * through * (2 * known[owed] + part)).sum())
            known[owed] += part

    def _pace(self, counted: float, rows: int) -> None:
        """Sample less if there is no room, it costs much, or the estimate is fine enough; else more where it can be.

        Portions get shorter where they bring many results: of their own rows all are in the sample.
        """
        longer = 2 if counted < CHUNK else 0.5 if counted > MANY * CHUNK else 1
        self._length[0] = min(max(self._length[0] * longer, SHORTEST), PORTION)
        totals, dear = self._totals, DEAR * rows + CHUNK
        fine = totals[COUNTED] > GRACE and totals[VARIANCE] <= (PRECISE * totals[RESULTS]) ** 2
        for s, known in enumerate(self._known):
            staying = int((known[LOT] < self._chance[s]).sum())
            if fine:
                self._chance[s] = min(self._chance[s], max(FLOOR, self._chance[s] * LOWERED))
            elif counted > dear:
                self._chance[s] *= (dear / counted) ** (1 / (len(self._known) - 1))
            elif 2 * staying < self._room and counted < CHEAP * rows + CHUNK / 2:
                self._chance[s] = min(1.0, self._chance[s] * RAISED)
            while staying > self._room:
                self._chance[s] *= self._room / staying * 0.9
                staying = int((known[LOT] < self._chance[s]).sum())

    def _thin(self) -> None:
        """Let rows go that have come to the windows and whose lots are not below the chance; others weigh more."""
        for s, known in enumerate(self._known):
            here = np.isin(self._number[s], self._chain.live_rows(s), assume_unique=True)
            likelier = here & (known[WEIGHT] * self._chance[s] < 1)
            stays = ~likelier | (known[LOT] < self._chance[s])
            known[WEIGHT][likelier] = 1 / self._chance[s]
            self._chain.give_up(s, self._number[s][~stays])
            self._number[s], self._known[s] = self._number[s][stays], known[:, stays]

    def _forget(self) -> None:
        """Forget rows that are in no window any more."""
        for s, known in enumerate(self._known):
            here = np.isin(self._number[s], self._chain.live_rows(s), assume_unique=True)
            self._number[s], self._known[s] = self._number[s][here], known[:, here]

    @property
    def results(self) -> Guess:
        """How many results the exact join has."""
        return self._guess(RESULTS, 1.0)

    @property
    def importance(self) -> Guess:
        """How important they are together."""
        totals = self._totals
        return self._guess(IMPORTANCE, float(totals[IMPORTANCE] / totals[RESULTS]) if totals[RESULTS] else 0.0)

    def _guess(self, total: int, each: float) -> Guess:
        grain = each * float(self._chance.max() / self._chance.prod() - 1)
        return Guess(float(self._totals[total]), float(self._totals[total + 1]), grain)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        state = {f"chain.{name}": array for name, array in self._chain.arrays().items()}
        for s, (number, known) in enumerate(zip(self._number, self._known, strict=True)):
            state |= {f"number.{s}": number, f"known.{s}": known}
        return state | {"chance": self._chance, "totals": self._totals, "length": self._length}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what ``arrays`` returned."""
        self._chain.restore(
            {name.removeprefix("chain."): array for name, array in arrays.items() if "chain." in name}
        )
        streams = range(len(self._number))
        self._number = [arrays[f"number.{s}"] for s in streams]
        self._known = [arrays[f"known.{s}"] for s in streams]
        self._chance, self._totals, self._length = arrays["chance"], arrays["totals"], arrays["length"]
