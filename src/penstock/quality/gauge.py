"""Say while a join of several streams runs how many results the exact one has, with an interval.

Beside the bounded join runs an exact one of a sample. Rows of the portion that is being taken are all in it; when it
is over, each stays with a chance p, by a lot of its own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.chain import Chain
from penstock.core.rings import Batch
from penstock.quality.books import Guess
from penstock.quality.drawn import COUNTED, RESULTS, VARIANCE, Drawn

ROOM = 1 << 14  # rows of the sample, over all streams
PORTION, SHORTEST = 1 << 12, 1 << 4  # rows that are taken at once, at most and at least
CHUNK = 1 << 15  # results that are counted at once
MANY, MOST_CHUNKS = 4, 16  # of a portion: to make them shorter; before the sample is thinned out on the spot
DEAR, CHEAP = 64, 16  # results counted for each row that came: to sample less; while more can be sampled
GRACE = 1 << 18  # so many results are counted before anything is saved
PRECISE = 0.006  # a deviation, as a share of the results, that is fine enough
FLOOR = 1 / 16  # no lower chance than that is chosen to save time
LOWERED, RAISED = 0.5, 1.25


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
        self._chain = chain
        self._drawn = Drawn(streams, seed, combine, meets_all=True)
        self._room = max(ROOM // streams, 1)
        self._length = np.array([max(PORTION // 16, 1)], np.int64)  # of the next portion

    def take(self, batch: Batch) -> None:
        """Count what the rows of a batch, whole groups, complete."""
        ends = np.append(np.flatnonzero(np.diff(batch.group)) + 1, batch.row.size)
        begin = 0
        while begin < batch.row.size:
            end = int(ends[min(int(np.searchsorted(ends, begin + self._length[0])), ends.size - 1)])
            self._take(batch.only(slice(begin, end)))
            begin = end

    def _take(self, portion: Batch) -> None:
        drawn = self._drawn
        for s in range(len(drawn.number)):
            mine = (portion.stream == s) & (portion.row >= 0)
            values = portion.importance[mine] if portion.importance.size else portion.importance
            drawn.enter(s, portion.row[mine], 1.0, values)
        before = drawn.totals[COUNTED]
        for at, found in enumerate(self._chain.chunks(portion, CHUNK)):
            drawn.count(list(found))  # loops may still be at a row that has just been let go
            if at >= MOST_CHUNKS:
                drawn.chance *= LOWERED
                self._thin()
        self._pace(float(drawn.totals[COUNTED] - before), portion.row.size)
        self._thin()
        self._chain.sweep()
        for s in range(len(drawn.number)):
            drawn.keep(s, self._chain.live_rows(s))

    def reorder(self, nests: Sequence[Sequence[int]]) -> None:
        """Go on with other loops."""
        self._chain.reorder(nests)

    def _pace(self, counted: float, rows: int) -> None:
        """Sample less if there is no room, it costs much, or the estimate is fine enough; else more where it can be.

        Portions get shorter where they bring many results: of their own rows all are in the sample.
        """
        longer = 2 if counted < CHUNK else 0.5 if counted > MANY * CHUNK else 1
        self._length[0] = min(max(self._length[0] * longer, SHORTEST), PORTION)
        drawn, dear = self._drawn, DEAR * rows + CHUNK
        totals, chance = drawn.totals, drawn.chance
        fine = totals[COUNTED] > GRACE and totals[VARIANCE] <= (PRECISE * totals[RESULTS]) ** 2
        for s in range(chance.size):
            staying = drawn.staying(s)
            if fine:
                chance[s] = min(chance[s], max(FLOOR, chance[s] * LOWERED))
            elif counted > dear:
                chance[s] *= (dear / counted) ** (1 / (chance.size - 1))
            elif 2 * staying < self._room and counted < CHEAP * rows + CHUNK / 2:
                chance[s] = min(1.0, chance[s] * RAISED)
            while staying > self._room:
                chance[s] *= self._room / staying * 0.9
                staying = drawn.staying(s)

    def _thin(self) -> None:
        """Let rows that have come to the windows draw their lots."""
        for s, number in enumerate(self._drawn.number):
            here = np.isin(number, self._chain.live_rows(s), assume_unique=True)
            self._chain.give_up(s, self._drawn.thin(s, here))

    @property
    def results(self) -> Guess:
        """How many results the exact join has."""
        return self._drawn.results

    @property
    def importance(self) -> Guess:
        """How important they are together."""
        return self._drawn.importance

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        state = {f"chain.{name}": array for name, array in self._chain.arrays().items()}
        return state | self._drawn.arrays() | {"length": self._length}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what ``arrays`` returned."""
        self._chain.restore(
            {name.removeprefix("chain."): array for name, array in arrays.items() if "chain." in name}
        )
        self._drawn.restore(arrays)
        self._length = arrays["length"]
