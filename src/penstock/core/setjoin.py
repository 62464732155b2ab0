"""Drive the kernels of windows of sets: make room, call them until they are done, collect what they wrote."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from penstock.core.entries import LEAST_WORK, Entries, pace_of
from penstock.core.join import flatten, unflatten
from penstock.core.probing import (
    BASE,
    BUSY,
    CAPACITY,
    COUNTED,
    DIALS,
    ENDS,
    EVERYTHING,
    MODE,
    PASSED,
    PATIENCE,
    PERIOD,
    PROMISING,
    SAMPLING,
    SKIPS,
    TALLY,
    UNSEALED,
    UNTOUCHED,
    WHOLE,
    Effort,
    Rows,
    Terms,
    Told,
    expire_sets,
    step_sets,
)
from penstock.core.promise import unknown
from penstock.core.rng import seeded
from penstock.core.sets import (
    FIRST_ROOM,
    LOW,
    NEXT,
    POSTING,
    ROW,
    Rule,
    Sets,
    Shelf,
    first_posting,
    reseal,
    roomier,
    shelf,
    sifted,
    with_index,
    without_index,
)
from penstock.core.step import ARRIVED, COMPARISONS, EXPIRED, LEDGER_FULL, PAIRS_FULL, Batch, Plan
from penstock.core.windows import Ints

FIRST_PAIRS = 1 << 14
NEVER = float(1 << 62)
NOTES = 4
LEEWAY = 4  # a portion may exceed its work by this part, where single rows take much of it
ENDLESS = 1 << 62  # ticks of a basic window that is never full


class Cut(NamedTuple):
    """How a window is cut, and how many types of rows there are."""

    basic: int = 1
    length: tuple[int, int] = (ENDLESS, ENDLESS)
    kinds: int = 1
    promises: bool = False  # whether rows are let in by what they promise


Place = tuple[int, int, int]  # how rows are divided between shards, the number of this one, and how many there are


class Adapt(Protocol):
    """Who sets the effort."""

    def __call__(self, effort: Effort, tick: int) -> None:
        """End a period, at a tick: set the effort of the next."""

    def retune(self, effort: Effort, work: float) -> None:
        """Set who is let in, for so much work a row; called where it is chosen by what rows promise."""


class SetJoin(Entries):
    """The windows of a join on sets or numbers: batches in, pairs of row numbers out.

    Parameters:
        plan: spans, lateness and the limit on rows, as numbers; who would expire first leaves first.
        rule: the condition.
        weighted: whether items have weights.
        cut: the basic windows.
        seed: for draws.
        adapt: called at the end of each period; None: everything is probed.
        place: which of several shards this is.
    """

    def __init__(
        self,
        plan: Plan,
        rule: Rule,
        *,
        weighted: bool,
        cut: Cut | None = None,
        seed: int = 0,
        adapt: Adapt | None = None,
        place: Place = (WHOLE, 0, 1),
    ) -> None:
        super().__init__()
        cut = cut or Cut()
        self.plan = plan
        self.adapt = adapt
        lateness = ENDLESS // 2 if plan.patient else 1 - plan.ahead
        limit = np.array([*plan.limit, plan.shared], np.int64)
        self.terms = Terms(plan.span, lateness, rule, limit, np.array(place, np.int64))
        self.shelf: Shelf = shelf(
            rows=FIRST_ROOM,
            items=FIRST_ROOM,
            basic=cut.basic,
            length=np.array(cut.length, np.int64),
            weighted=weighted,
            indexed=bool(rule.indexed),
        )
        self.effort = idle(cut, seed)
        self._pairs = np.empty((2, FIRST_PAIRS), np.int64)
        self._room()

    def _room(self) -> None:
        rows = self.shelf.stamp.shape[1]
        self._score, self._touched = np.full(rows, UNTOUCHED), np.empty(rows + 1, np.int64)
        self._reached = np.empty(self.shelf.basic.shape[1], np.int64)

    # --- batches --------------------------------------------------------------------------------------------------

    def push(self, batch: Batch, sets: Sets, kind: Ints) -> tuple[Ints, Ints]:
        """Take a batch whose sets are in the same order, and return the row numbers of its pairs, left and right."""
        if batch.row.size == 0:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        before = self.shelf
        self.shelf = roomier(self.shelf, batch.row.size, int(sets.size.sum()))
        if self.shelf is not before:
            self._room()
        side, row, tick, ts, kind = map(_steady, (batch.side, batch.row, batch.tick, batch.pos, kind))
        rows = Rows(side, row, tick, ts, kind, Sets(*map(_steady, sets)))
        done = np.zeros(4, np.int64)
        found: list[Ints] = []
        while True:
            told = Told(
                self._pairs,
                *self._ledger,
                self.counts,
                done,
                self._score,
                self._touched,
                self._reached,
            )  # fmt: skip
            why = step_sets(self.shelf, self.terms, self.effort, rows, told)
            found.append(self._pairs[:, : done[1]].copy())
            for kept, ledger, count in zip(
                (self._skipped, self._shed), self._ledger, (done[2], done[3]), strict=True
            ):
                if count:
                    kept.append(ledger[:count].copy())
            done[1:] = 0
            if why == PERIOD:
                self._adapt(int(batch.tick[done[0]]))
            elif why >= UNSEALED:
                reseal(self.shelf, why - UNSEALED)
            elif why == PAIRS_FULL:
                live = self.shelf.marks[NEXT : NEXT + 2] - self.shelf.marks[LOW : LOW + 2]
                size = max(self._pairs.shape[1], 2 * int(live.max()))
                self._pairs = np.empty((2, size), np.int64)
            elif why == LEDGER_FULL:
                size = max(self._ledger[0].shape[0], 2 * self.shelf.basic.shape[1])
                self._ledger = (np.empty((size, SKIPS), np.int64), self._ledger[1])
            else:
                break
        self.tick = int(batch.tick[-1])
        return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])

    def _adapt(self, tick: int) -> None:
        """End a period: set the effort for the next from what this one brought."""
        effort = self.effort
        assert self.adapt is not None
        self.adapt(effort, tick)
        effort.matched[...], effort.tried[...], effort.kinds[...], effort.tally[...] = 0, 0, 0, 0

    def close(self) -> None:
        """End the open tick: let go of what can meet nobody at a later one."""
        if self.tick is not None and not self.plan.patient:  # else only the watermark says what is over
            self._expire(self.tick + self.plan.ahead)

    def advance(self, to: int) -> None:
        """End every tick before `to`."""
        self.tick = to - 1 if self.tick is None else max(self.tick, to - 1)
        self.close()

    def pass_watermark(self, to: int) -> None:
        """Let go of the rows that meet nobody from `to` on."""
        self._expire(to)

    def _expire(self, bar: int) -> None:
        expire_sets(self.shelf, self.terms, self.counts, bar)

    def respan(self) -> None:
        """Take notice of changed spans: rows are judged by them one by one, so there is nothing to do."""

    def relimit(self) -> None:
        """Take notice of a changed limit."""
        self.terms.limit[:2] = self.plan.limit

    def pace(self, work: float, rows: int, *, left: int, fresh: bool) -> None:  # noqa: ARG002 - others have no queue
        """Let so many rows that come now have so much work together; `fresh`: what came before is done with."""
        dials, mode = self.effort.dials, self.effort.mode
        mode[COUNTED] = 1
        if mode[MODE] == PROMISING:
            assert self.adapt is not None
            dials[[CAPACITY, PATIENCE]] = max(LEAST_WORK, work / rows), max(2.0, rows / LEEWAY)
            self.adapt.retune(self.effort, dials[CAPACITY])
        else:
            dials[[CAPACITY, PATIENCE]] = pace_of(work, rows)
        if fresh:
            dials[BUSY] = mode[PASSED]

    def keep(self, rows: Sequence[Ints]) -> None:
        """Let go of the rows of each side that are not among these; nobody tells of them. O(rows held)."""
        chosen = [np.isin(self.live_rows(side), mine, assume_unique=True) for side, mine in enumerate(rows)]
        self.shelf = sifted(self.shelf, chosen)

    def quicken(self, work: float) -> None:
        """Let there be time for so much work a tick from now on."""
        self.effort.dials[CAPACITY] = work

    # --- what happened --------------------------------------------------------------------------------------------

    @property
    def work(self) -> float:
        """The work done so far."""
        return float(self.counts[COMPARISONS])

    def counted(self, side: int) -> int:
        """Return how many of the rows held on one side the books count."""
        return int(self.counts[ARRIVED + side] - self.counts[EXPIRED + side] - self._given_up(side))

    def live(self, side: int) -> int:
        """Return how many rows are held on one side."""
        return int(self.shelf.marks[NEXT + side] - self.shelf.marks[LOW + side])

    def items(self, side: int) -> int:
        """Return how many items the rows held on one side have."""
        return int(self.shelf.marks[POSTING + side]) - first_posting(self.shelf, side)

    def live_rows(self, side: int) -> Ints:
        """Return the numbers of the rows held on one side, ascending."""
        places = np.arange(self.shelf.marks[LOW + side], self.shelf.marks[NEXT + side])
        return self.shelf.stamp[side, places & (self.shelf.stamp.shape[1] - 1), ROW].copy()

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        terms, held = {"limit": self.terms.limit, "span": self.plan.span}, flatten("shelf", without_index(self.shelf))
        return {**super().arrays(), **terms, **held, **flatten("effort", self.effort)}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take over the state that ``arrays`` returned."""
        super().restore(arrays)
        self.terms.limit[...] = arrays["limit"]
        self.plan.limit[...] = arrays["limit"][:2]
        self.plan.span[...] = arrays["span"]
        held = unflatten("shelf", self.shelf, arrays)
        self.shelf = with_index(held, indexed=bool(self.terms.rule.indexed))
        self.effort = unflatten("effort", self.effort, arrays)
        self._room()


def idle(cut: Cut, seed: int) -> Effort:
    """Return the effort that probes everything and never adapts."""
    dials = np.zeros(DIALS)
    dials[[CAPACITY, PATIENCE, ENDS]] = 1.0, 1.0, NEVER
    dials[[SAMPLING, BUSY, BASE]] = 1.0, -NEVER, 0.0
    return Effort(
        np.array([EVERYTHING, 0, 0, 0], np.int64),
        seeded(seed),
        dials,
        np.ones((2, cut.kinds)),
        np.tile(np.arange(cut.basic), (2, 1)),
        np.zeros((2, cut.basic, 2), np.int64),
        np.zeros((2, cut.basic, 2), np.int64),
        np.zeros((2, cut.kinds), np.int64),
        np.zeros(TALLY),
        np.zeros((2, cut.basic, 2)),
        np.zeros(4),
        np.zeros(NOTES),
        unknown(used=cut.promises),
    )


def _steady(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a column as kernels take it, read-only: were it now one and now the other, each would be compiled."""
    column = np.ascontiguousarray(column).view()
    column.flags.writeable = False
    return column
