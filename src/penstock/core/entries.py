"""Keep what a join under a CPU budget has to tell of rows that were dropped or not compared with everything."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.probing import SKIPS
from penstock.core.step import COUNTS, REASONS, SHED
from penstock.core.windows import Ints

FIRST_LEDGER = 1 << 10
LEAST_WORK = 1e-9  # a row, where there is no time at all
QUEUE = 20  # a queue holds this part of the rows that come together


class Entries:
    """Counters, the open tick, and entries of the ledger that nobody has taken yet."""

    def __init__(self) -> None:
        self.counts = np.zeros(COUNTS, np.int64)
        self.tick: int | None = None
        self._ledger = (np.empty((FIRST_LEDGER, SKIPS), np.int64), np.empty((FIRST_LEDGER, 5), np.int64))
        self._shed: list[Ints] = []
        self._skipped: list[Ints] = []

    def _given_up(self, side: int) -> int:
        return int(self.counts[SHED + side : SHED + 2 * len(REASONS) : 2].sum())

    def take_ledger(self) -> Ints:
        """Return the rows dropped at the queue since the last call, and let go of them."""
        shed, self._shed = self._shed, []
        return np.concatenate([np.empty((0, 5), np.int64), *shed])

    def take_skipped(self) -> Ints:
        """Return what was not probed since the last call (side, row, tick, first, end), and let go of it."""
        skipped, self._skipped = self._skipped, []
        return np.concatenate([np.empty((0, SKIPS), np.int64), *skipped])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        shed, skipped = self.take_ledger(), self.take_skipped()
        self._shed, self._skipped = [shed], [skipped]
        tick = np.array([] if self.tick is None else [self.tick], np.int64)
        return {"counts": self.counts, "tick": tick, "shed": shed, "skipped": skipped}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take over the state that ``arrays`` returned."""
        self.counts = arrays["counts"]
        self.tick = int(arrays["tick"][0]) if arrays["tick"].size else None
        self._shed, self._skipped = [arrays["shed"]], [arrays["skipped"]]


def pace_of(work: float, rows: int) -> tuple[float, float]:
    """Return the work a row, and how many rows may wait, if so many rows have so much work together at most."""
    waits = max(2.0, rows / QUEUE)
    return max(LEAST_WORK, work / (rows + waits)), waits
