"""Drive a gate before an exact join: sift each batch, join the rows that pass, and compare work with promises."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock.core.entries import LEAST_WORK, Entries
from penstock.core.exact import ExactJoin
from penstock.core.gate import (
    BEGAN,
    CAME,
    DID,
    ENTERED,
    LAST_BITS,
    LEFT,
    PROMISE,
    PROMISED,
    ROW,
    ROWS,
    SEEN,
    TICKS,
    USED,
    WORK,
    Gate,
    empty,
    sift,
)
from penstock.core.join import flatten, unflatten
from penstock.core.rng import seeded
from penstock.core.step import PAIRS, Batch, Plan
from penstock.core.windows import Ints

FADE = 0.9  # how much of the work promised and done before a portion counts after it
CROWDED = 3  # slots for each one in use: with fewer there will be more


class Adapt(Protocol):
    """Who moves the bar."""

    def __call__(self, gate: Gate, tick: int) -> None:
        """End a period, at a tick: tell slots apart anew."""

    def retune(self, gate: Gate) -> None:
        """Set the bar for another amount of work."""


class GateJoin(Entries):
    """The windows of a join on equal keys by the clock on the wall: batches in, pairs of row numbers out.

    The idea: what costs time is not a probe, but a row that enters and a pair that is told. A share of the keys finds
    that share of the pairs, with as large a share of the rows; the same share of the rows by lot finds its square.

    Parameters:
        plan: spans, as numbers; there is no limit on rows.
        adapt: called at the end of each period, and whenever there is time for another amount of work.
        by_lot: rows pass by lot, whatever their key.
        seed: for lots.
    """

    def __init__(self, plan: Plan, adapt: Adapt, *, by_lot: bool, seed: int) -> None:
        super().__init__()
        self.plan = plan
        self.adapt = adapt
        self.exact = ExactJoin(plan)
        self.counts = self.exact.counts
        self.gate = empty(seeded(seed), by_lot=by_lot)
        self.tells = True  # whether somebody will take the ledger

    # --- batches --------------------------------------------------------------------------------------------------

    def push(self, batch: Batch, code: Ints) -> tuple[Ints, Ints]:
        """Take a batch and return the row numbers of its pairs, left and right, as good until the next call."""
        dials, rows = self.gate.dials, code.size
        if rows == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        if batch.tick[0] - dials[BEGAN] >= dials[TICKS] or self._came >= dials[ROWS]:
            self._end_period(int(batch.tick[0]))
        self.tick = int(batch.tick[-1])
        kept, shed = np.empty(rows, np.int64), np.empty((rows if self.tells else 0, 5), np.int64)
        passed = sift(self.gate, batch, code, kept, shed, self.counts)
        if passed < rows:
            if self.tells:
                self._shed.append(shed[: rows - passed])
            kept = kept[:passed]
            batch, code = Batch(*(column[kept] if column.size else column for column in batch)), code[kept]
        before = self.counts[PAIRS]
        pairs = self.exact.push(batch, code)
        if not self.plan.by_rows:
            self.exact.advance(self.tick)  # also if nobody passed
        dials[[PROMISED, DID]] *= FADE
        dials[PROMISED] += dials[PROMISE] * rows
        dials[DID] += ROW * passed + float(self.counts[PAIRS] - before)
        return pairs

    @property
    def _came(self) -> int:
        """Rows in this period."""
        return int(self.gate.marks[CAME : CAME + 2].sum())

    def _end_period(self, tick: int) -> None:
        """Tell slots apart anew, and make more of them if they are crowded."""
        self.adapt(self.gate, tick)
        self.gate.marks[CAME : CAME + 2] = 0
        used, slots = int(self.gate.marks[USED]), self.gate.level.size
        times = 1
        while CROWDED * used > times * slots and times * slots < 1 << LAST_BITS:
            times *= 2
        if times > 1:  # what was seen cannot be divided: it is counted anew
            level = np.repeat(self.gate.level, times)
            self.gate = self.gate._replace(seen=np.zeros((level.size, 2), np.float32), level=level)
            self.gate.dials[SEEN : SEEN + 2] = 0.0

    def close(self) -> None:
        """End the open tick."""
        self.exact.close()

    def advance(self, to: int) -> None:
        """End every tick before `to`."""
        self.exact.advance(to)

    def reach(self, tick: int, clock: Ints) -> None:
        """End every tick up to this one, with these clocks."""
        self.exact.reach(tick, clock)

    def pass_watermark(self, to: int) -> None:
        """Let go of the rows that meet nobody from `to` on."""
        self.exact.pass_watermark(to)

    def respan(self) -> None:
        """Take notice of changed spans."""
        self.exact.respan()

    # --- what happened --------------------------------------------------------------------------------------------

    def live(self, side: int) -> int:
        """Return how many rows are held on one side."""
        return self.exact.live(side)

    def live_rows(self, side: int) -> Ints:
        """Return the numbers of the rows held on one side, ascending."""
        return self.exact.live_rows(side)

    def counted(self, side: int) -> int:
        """Return how many of the rows held on one side the books count: all."""
        return self.exact.live(side)

    def pace(self, work: float, rows: int, *, left: int, fresh: bool) -> None:  # noqa: ARG002 - others keep a queue
        """Let so many rows that come now have so much work together, of so many that are left of a batch."""
        self.gate.dials[[WORK, LEFT]] = max(LEAST_WORK, work / rows), left
        self.adapt.retune(self.gate)

    @property
    def work(self) -> float:
        """The work done so far."""
        return float(self.counts[PAIRS] + ROW * self.gate.marks[ENTERED])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        exact = {f"exact.{name}": array for name, array in self.exact.arrays().items()}
        return {**super().arrays(), **exact, **flatten("gate", self.gate)}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take over the state that ``arrays`` returned."""
        super().restore(arrays)
        self.exact.restore({name[6:]: array for name, array in arrays.items() if name.startswith("exact.")})
        self.counts = self.exact.counts
        self.gate = unflatten("gate", self.gate, arrays)
