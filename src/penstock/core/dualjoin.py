"""Drive the kernels of joins on keys under a CPU budget: make room, call them until they are done, collect."""

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from penstock.core.dual import (
    BUSY,
    CAME_TO,
    CAPACITY,
    COUNTED,
    HEAD,
    HELD,
    KEY,
    KEYS,
    LATER,
    NEXT,
    OF,
    PATIENCE,
    ROW,
    TAIL,
    TUNED,
    UPDATE,
    Lanes,
    Told,
    empty,
    enter_codes,
    flush_lanes,
    rank_anew,
    step_lanes,
)
from penstock.core.entries import Entries, pace_of
from penstock.core.join import flatten, unflatten
from penstock.core.probing import PERIOD
from penstock.core.rng import seeded
from penstock.core.step import COMPARISONS, LEDGER_FULL, PAIRS_FULL, Batch, Plan
from penstock.core.windows import Ints

FIRST_ROOM = 1024
FIRST_PAIRS = 1 << 14
FADED = 1e-3  # rows of a key that are not worth remembering
BY_KEY = ("held", "heads", "seen", "was", "worth")

STEADY = 0.8  # work a row that changes by less needs no new choice


class Adapt(Protocol):
    """Who sets the dials."""

    def __call__(self, lanes: Lanes, tick: int) -> None:
        """End a period, at a tick: set the dials of the next."""

    def retune(self, lanes: Lanes) -> None:
        """Set the dials anew in the middle of a period: there is time for another amount of work."""


class DualJoin(Entries):
    """The windows of a join on equal keys under a CPU budget: batches in, pairs of row numbers out.

    Parameters:
        plan: spans and the limit on rows, as numbers; who would expire first leaves first, and no row is late.
        adapt: called at the end of each period.
        over_entered: windows in rows are counted over the rows that entered, not over those that came.
        later: rows are judged when they leave the aux-window, and their pairs told then.
        anybody: rows that do not enter may be probed too.
        seed: for draws.
    """

    def __init__(
        self, plan: Plan, adapt: Adapt, *, over_entered: bool, later: bool, anybody: bool, seed: int
    ) -> None:
        super().__init__()
        self.plan = plan
        self.adapt = adapt
        limit = np.array([*plan.limit, plan.shared], np.int64)
        kind = (bool(plan.by_rows), over_entered, later, anybody, False)
        self.lanes = empty(kind, limit, seeded(seed), FIRST_ROOM)
        self._pairs = np.empty((2, FIRST_PAIRS), np.int64)

    # --- batches --------------------------------------------------------------------------------------------------

    def push(self, batch: Batch, code: Ints) -> tuple[Ints, Ints]:
        """Take a batch and return the row numbers of the pairs that are told now, left and right."""
        if batch.row.size == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        self._reserve(code.size)
        self.tick = int(batch.tick[-1])
        return self._run(lambda told: step_lanes(self.lanes, self.plan.span, batch, code, told), batch.tick)

    def flush(self) -> tuple[Ints, Ints]:
        """Let all rows leave the aux-window, and return their pairs: nothing more will come."""
        if not self.lanes.kind[LATER]:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return self._run(lambda told: flush_lanes(self.lanes, self.plan.span, told), np.empty(0, np.int64))

    def _run(self, kernel: Callable[[Told], int], tick: Ints) -> tuple[Ints, Ints]:
        done = np.zeros(4, np.int64)
        found: list[Ints] = []
        while True:
            why = kernel(Told(self._pairs, *self._ledger, self.counts, done))
            found.append(self._pairs[:, : done[1]].copy())
            for kept, ledger, count in zip((self._skipped, self._shed), self._ledger, done[2:], strict=True):
                if count:
                    kept.append(ledger[:count].copy())
            done[1:] = 0
            if why == PERIOD:
                self._adapt(int(tick[done[0]]))
            elif why == PAIRS_FULL:
                live = max(self.live(side) for side in range(2))
                self._pairs = np.empty((2, max(self._pairs.shape[1], 2 * live)), np.int64)
            elif why != LEDGER_FULL:
                break
        return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])

    def _adapt(self, tick: int) -> None:
        """End a period: set the dials for the next, and forget keys that nobody has seen for long."""
        self.adapt(self.lanes, tick)
        self.lanes.tally[...] = 0
        used = int(self.lanes.marks[KEYS])
        known = (self.lanes.held[:, :used] > 0) | (self.lanes.seen[:, :used] > FADED)
        kept = np.flatnonzero(known.any(axis=0) | self._waiting_keys(used))
        if used > 2 * kept.size + FIRST_ROOM:
            self._renumber(kept, used)

    def _waiting_keys(self, used: int) -> npt.NDArray[np.bool_]:
        """Say which keys have rows that are still held or ranked."""
        found = np.zeros(used, np.bool_)
        for side in range(2):
            found[self.lanes.rows[side, self._places(side), KEY]] = True
        found[self.lanes.ranked[self._ranks(), OF]] = True
        return found

    def _ranks(self) -> Ints:
        """Return where the ranked rows are."""
        marks = self.lanes.marks
        return np.arange(marks[HEAD], marks[TAIL]) & (self.lanes.ranked.shape[0] - 1)

    def _renumber(self, kept: Ints, used: int) -> None:
        lanes = self.lanes
        number = np.full(used, -1, np.int64)
        number[kept] = np.arange(kept.size)
        for side in range(2):
            places = self._places(side)
            lanes.rows[side, places, KEY] = number[lanes.rows[side, places, KEY]]
        lanes.ranked[self._ranks(), OF] = number[lanes.ranked[self._ranks(), OF]]
        for name in BY_KEY:
            column = getattr(lanes, name)
            column[:, : kept.size] = column[:, kept]
        lanes.code[: kept.size] = lanes.code[kept]
        lanes.marks[KEYS] = kept.size
        enter_codes(lanes)

    def close(self) -> None:
        """End the open tick: rows are judged one by one, so there is nothing to do."""

    def advance(self, to: int) -> None:
        """Time passes with rows only: what is told does not depend on when somebody looks."""

    def reach(self, tick: int, clock: Ints) -> None:
        """Time passes with rows only."""

    def pass_watermark(self, to: int) -> None:
        """No row is late: there is nothing to wait for."""

    # --- room -----------------------------------------------------------------------------------------------------

    def _reserve(self, rows: int) -> None:
        """Make room for so many rows and keys."""
        lanes = self.lanes
        ring, keys = lanes.rows.shape[1], lanes.code.size
        ranks = int(lanes.marks[TAIL] - lanes.marks[HEAD])
        need = max(*(self.live(side) for side in range(2)), ranks // 2) + rows
        if need > ring:
            room = 1 << int(need - 1).bit_length()
            wider = np.zeros((2, room, lanes.rows.shape[2]), np.int64)
            for side in range(2):
                places = np.arange(lanes.marks[HELD + side], lanes.marks[NEXT + side])
                wider[side, places & (room - 1)] = lanes.rows[side, places & (ring - 1)]
            places = np.arange(lanes.marks[HEAD], lanes.marks[TAIL])
            ranked = np.zeros((2 * room, lanes.ranked.shape[1]), np.int64)
            ranked[places & (2 * room - 1)] = lanes.ranked[places & (lanes.ranked.shape[0] - 1)]
            self.lanes = lanes = lanes._replace(rows=wider, ranked=ranked, below=np.zeros(room + 2, np.int64))
            rank_anew(lanes)
        if lanes.marks[KEYS] + rows > keys:
            room = 1 << int(lanes.marks[KEYS] + rows - 1).bit_length()
            columns = {}
            for name in BY_KEY:
                column = getattr(lanes, name)
                columns[name] = np.zeros((2, room), column.dtype)
                columns[name][:, :keys] = column
            code = np.zeros(room, np.int64)
            code[:keys] = lanes.code
            self.lanes = lanes._replace(code=code, table=np.full(2 * room, -1, np.int32), **columns)
            enter_codes(self.lanes)

    def _places(self, side: int) -> Ints:
        """Return where the rows held on one side are."""
        marks = self.lanes.marks
        return np.arange(marks[HELD + side], marks[NEXT + side]) & (self.lanes.rows.shape[1] - 1)

    # --- what happened --------------------------------------------------------------------------------------------

    def live(self, side: int) -> int:
        """Return how many rows are held on one side."""
        return int(self.lanes.marks[NEXT + side] - self.lanes.marks[HELD + side])

    def live_rows(self, side: int) -> Ints:
        """Return the numbers of the rows held on one side, ascending."""
        return self.lanes.rows[side, self._places(side), ROW]

    def respan(self) -> None:
        """Take notice of changed spans: rows are judged by them one by one, so there is nothing to do."""

    def relimit(self) -> None:
        """Take notice of a changed limit."""
        self.lanes.limit[:2] = self.plan.limit

    def pace(self, work: float, rows: int, *, left: int, fresh: bool) -> None:  # noqa: ARG002 - others have no queue
        """Let so many rows that come now have so much work together; `fresh`: what came before is done with."""
        dials, kind = self.lanes.dials, self.lanes.kind
        dials[[CAPACITY, PATIENCE]] = pace_of(work, rows)
        if fresh or not kind[COUNTED]:
            dials[BUSY] = self.lanes.marks[CAME_TO : CAME_TO + 2].sum()
            kind[COUNTED] = 1
            if not STEADY * dials[TUNED] < dials[CAPACITY] < dials[TUNED] / STEADY:
                self.adapt.retune(self.lanes)

    def quicken(self, work: float) -> None:
        """Let there be time for so much work a tick from now on."""
        self.lanes.dials[CAPACITY] = work

    @property
    def work(self) -> float:
        """The work done so far."""
        entered = self.lanes.marks[NEXT : NEXT + 2].sum()
        return float(self.counts[COMPARISONS] + self.lanes.dials[UPDATE] * entered)

    def counted(self, side: int) -> int:
        """Return how many of the rows held on one side the books count: all."""
        return self.live(side)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        return {**super().arrays(), **flatten("lanes", self.lanes)}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take over the state that ``arrays`` returned."""
        super().restore(arrays)
        self.lanes = unflatten("lanes", self.lanes, arrays)
        self.plan.limit[...] = self.lanes.limit[:2]
