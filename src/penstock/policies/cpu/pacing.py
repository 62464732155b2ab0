"""Turn a target on the clock on the wall into work that there is time for, from what work was measured to cost.

The idea: a batch takes so many seconds for each of its rows, whatever is done with them, and so many for each
comparison. Both are learned from portions of earlier rows, the latest counting most. A batch is joined in portions;
before each, what is left of the time is shared out over the rows that are left. So a wrong guess is made good in the
same batch.

Nothing here reads a clock: whoever does tells the time. What was decided is told, portion by portion, and can be
followed again, to the row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from penstock.core.windows import Floats

MARGIN, MOST = 0.8, 0.9  # of a latency, and of a share: the rest is for what cannot be foreseen
CALM = 0.9  # how much of the longest overrun lately is still expected after another batch
OVERRUN = 0.4  # of a batch's time: more than that is not expected
FADE = 0.95  # how much of what was learned before a portion counts after it
DOUBT = 0.05  # what both could explain is put down to comparisons
RETURNED = 0.25  # of the last batch's time: who comes back sooner had rows waiting
PORTIONS, SMALL = 16, 256  # portions of rows that were read at once, and the fewest rows in one
FIRST, SECOND = 1, 64  # rows in the first two portions ever: one that loads what is compiled, and one to learn from
TRIES = 2  # batches in a row that were late though what could be left out was, before it is said
ALIKE = 1.05  # by how much longer a batch may take than one like it
LEAST_COST = 1e-12  # seconds of a comparison
# entries of `known`: sums over portions of rows², rows x work, work², rows x seconds, work x seconds; seconds of rows
# before it is joined; when the last batch began and ended, and how far it came; seconds that rows are behind; rows a
# second; the longest batch; batches that were late with no time left; seconds of a row after all of them are joined;
# how far a batch may exceed its time
RR, RW, WW, RT, WT, BEFORE, BEGAN, ENDED, REACHED, BEHIND, RATE, SLOWEST, LATE, AFTER, OVER = range(15)
ENTRIES = 15


class Portion(NamedTuple):
    """What was decided for some rows, and how long they took."""

    rows: int
    work: float | None  # that they may cost together, or a tick; None: not known yet, so everything
    seconds: float


@dataclass(frozen=True)
class Target:
    """What is to be kept: a batch's time in seconds, or the share of the time that the join is at work."""

    latency: float | None = None
    share: float | None = None
    tick: float = 1.0  # seconds of a tick
    live: bool = True  # whether time is that of clocks, so that rows can be seen to be behind


class Pace:
    """How fast a join goes."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.known = np.zeros(ENTRIES)
        self.known[[BEGAN, ENDED, REACHED]] = np.nan
        self.told: list[Portion] = []  # of this batch
        self.script: list[Portion] = []  # to be followed instead
        self.open = False
        self.left = 0  # rows of this batch
        self._size = SMALL  # rows of a portion
        self._rows, self._granted = 0, np.nan  # all of them, and when the last portion began
        self._deadline, self._allowed = np.inf, 0.0  # and the seconds that were asked for
        self._before = np.nan  # how far the batch before came
        # whether the caller came straight back; how long rows waited while it was busy, and how much of that for the
        # caller; seconds since the last batch
        self._back, self._waited, self._gap, self._passed = False, 0.0, 0.0, np.nan
        self._seconds: float | None = None

    # --- a batch --------------------------------------------------------------------------------------------------

    def begin(self, now: float, seconds: float | None = None) -> None:
        """Begin a batch; `seconds` are those that it may take, if somebody knows."""
        known, self.told, self.open, self.left = self.known, [], True, 0
        self._rows, self._granted, self._deadline = 0, np.nan, np.inf
        took, waited = known[ENDED] - known[BEGAN], now - known[ENDED]
        self._back = bool(waited < RETURNED * took)  # nothing is, of NaN
        self._waited, self._gap = (float(took + waited), float(waited)) if waited < took else (0.0, 0.0)
        self._passed = now - known[BEGAN]
        known[BEGAN], self._seconds = now, seconds
        self._before = known[REACHED]

    def expect(self, now: float, rows: int, reached: int) -> None:
        """Say how many rows of the batch were read by now, and how far time has come with them."""
        known = self.known
        if not self.told:
            self._set_deadline((reached - self._before) * self.target.tick)
        known[REACHED] = reached if np.isnan(known[REACHED]) else max(reached, known[REACHED])
        if self._knows:
            took = (now - self.known[BEGAN]) / rows
            self.known[BEFORE] = took if self.known[BEFORE] == 0.0 else (self.known[BEFORE] + took) / 2
        self.left = max(self.left, rows)
        self._size = max(SMALL, -(-rows // PORTIONS))
        self._rows += rows

    def _set_deadline(self, passed: float) -> None:
        """Say when the batch is to be over, given how many seconds later its rows are than those before.

        Rows that came during the last batch had to wait for its end, and for the caller. Those of the next batch will
        wait for the end of this one as long: what is left without the caller is halved, so that one long batch is
        not followed by a short one, and that by a long one. If the caller came straight back and the rows' time went
        on by less than the clock did, they fall behind.
        """
        known, seconds = self.known, self._seconds
        behind = known[BEHIND] + self._passed - passed
        known[BEHIND] = max(0.0, behind) if self._back and self.target.live else 0.0
        if seconds is None and self.target.latency is not None:
            whole = MARGIN * self.target.latency - known[BEHIND]
            seconds = min((whole - self._gap) / 2, whole - self._waited) if self._waited else whole
        if seconds is not None:
            self._allowed = max(0.0, seconds)
            self._deadline = float(known[BEGAN] + max(0.0, seconds - known[OVER]))

    def portion(self, rows: int) -> int:
        """Return how many of the rows that were read are joined at once."""
        if self.script:
            return self.script[0].rows
        if not self._knows:
            return min(rows, SECOND if self.known[RR] else FIRST)
        return min(rows, self._size)

    def grant(self, now: float, rows: int) -> float | None:
        """Return the work for the next rows of the batch; None: everything, until it is known what work costs."""
        if self.script:
            return self.script[0].work
        self._granted = now
        if not self._knows:
            return None
        row, work = self.costs
        if self.target.share is not None:
            spent = (row + self.known[BEFORE]) * self.known[RATE]
            return float(max(0.0, MOST * self.target.share - spent) / work * self.target.tick)
        rest = row * max(self.left, rows) + self.known[AFTER] * self._rows
        spare = max(0.0, self._deadline - now - rest)
        return float(spare / work * rows / max(self.left, rows))

    def learn(self, portion: Portion, work: float) -> None:
        """Take note of what some rows took, and the work that was done for them."""
        if self.script:
            portion = self.script.pop(0)
        self.told.append(portion)
        self.left = max(0, self.left - portion.rows)
        known, rows = self.known, float(portion.rows)
        if known[RR] == 0.0 and portion.rows == FIRST:
            known[RR] = 1e-300  # what is compiled had to be loaded: that teaches nothing
            return
        known[: WT + 1] *= FADE
        known[: WT + 1] += (
            rows * rows, rows * work, work * work, rows * portion.seconds, work * portion.seconds
        )  # fmt: skip

    def end(self, now: float) -> float | None:
        """End a batch; returns the latency that can be kept if the one asked for cannot, when that is clear."""
        known, self.open = self.known, False
        known[ENDED] = now
        took, rows = now - known[BEGAN], sum(portion.rows for portion in self.told)
        if not rows:
            return None
        self._note_rate(rows, (known[REACHED] - self._before) * self.target.tick)
        if not np.isnan(self._granted):
            after = max(0.0, now - self._granted - self.told[-1].seconds) / rows
            known[AFTER] = after if known[AFTER] == 0.0 else (known[AFTER] + after) / 2
        if any(portion.work is None for portion in self.told):
            return None
        known[SLOWEST] = max(known[SLOWEST], took)
        if np.isfinite(self._deadline):
            over = min(now - self._deadline, OVERRUN * self._allowed)
            known[OVER] = max(0.0, over, CALM * known[OVER])
        known[LATE] = known[LATE] + 1 if self._out_of_time(took) else 0.0
        return ALIKE * max(2 * took, self._waited + took) / MARGIN if known[LATE] == TRIES else None

    def _out_of_time(self, took: float) -> bool:
        """Say whether a batch was late, or another like it would be, though in the end there was no time for work."""
        latency, work = self.target.latency, [portion.work or 0.0 for portion in self.told]
        if latency is None or work[-1] > 0.0:
            return False
        return self._waited + took > latency or (not any(work) and took > MARGIN * latency / 2)

    def _note_rate(self, rows: int, passed: float) -> None:
        """Take note of how many rows come in a second."""
        if passed > 0:
            rate = rows / passed
            self.known[RATE] = rate if self.known[RATE] == 0.0 else (self.known[RATE] + rate) / 2

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def _knows(self) -> bool:
        return bool(self.known[WW] > 0.0)

    @property
    def costs(self) -> tuple[float, float]:
        """The seconds that a row takes, and those that a comparison does: least squares, none below 0."""
        known = self.known
        rows, work = known[RR] * (1 + DOUBT), known[WW]
        scale = rows * work - known[RW] * known[RW]
        if scale <= 0.0:
            return 0.0, max(LEAST_COST, float(known[WT] / work))
        row = (known[RT] * work - known[WT] * known[RW]) / scale
        each = (known[WT] * rows - known[RT] * known[RW]) / scale
        if row < 0.0:
            row, each = 0.0, known[WT] / work
        elif each < 0.0:
            row, each = known[RT] / known[RR], LEAST_COST
        return float(row), max(LEAST_COST, float(each))

    @property
    def slowest(self) -> float:
        """The seconds of the longest batch so far, without those that had to learn first."""
        return float(self.known[SLOWEST])

    def follow(self, portions: Sequence[Sequence[float | None]]) -> None:
        """Decide for the next rows what was decided once."""
        self.script = [Portion(int(rows or 0), work, float(took or 0.0)) for rows, work, took in portions]

    def restore(self, known: Floats) -> None:
        """Go on from what was known."""
        self.known = known
