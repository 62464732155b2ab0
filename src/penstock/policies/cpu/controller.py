"""The CPU controller: at the end of each period, set how much is probed in the next, and where."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.probing import (
    BASE,
    BUSY,
    CAME,
    DROPPING,
    ENDS,
    FOUND,
    MISSED,
    SAMPLING,
    SELECTED,
    SHARES,
    SOME,
    WORK,
    Effort,
)
from penstock.core.windows import Floats
from penstock.policies.cpu import correlation, direction, rate, utility

METHODS = ("auto", "selective", "random-drop", "rate", "correlation", "direction")
PAPERS = ("rate", "correlation", "direction")  # each with those before it, by the paper's own rate adaptation
# entries of `notes`: the share r, rows that waited when the last period ended, and periods to go on at random
SHARE, WAITED, REST = 0, 1, 2
KEPT = 0.7  # how much of what was learned before a period counts after it
FADED = 1 / (1 + KEPT)  # the variance of a count that fades so, by its mean, if what is counted comes by chance
PROOF = 20  # pairs that full processing must have found before it can be called better
BUSY_SHARE = 0.9  # a period that had time for less was busy
RESTS = 1  # periods at random after selection was found to be worse: all of their comparisons teach
LEAST = 1e-3


@dataclass(frozen=True)
class Cpu:
    """A CPU budget: what ``pen.cpu`` returns."""

    comparisons_per_second: float | None
    method: str = "auto"
    basic_window: object = None
    every: object = None
    queue: object = None
    sampling: float = 0.1
    types: object = None
    utility: Mapping[Any, float] | None = None
    combine: str = "max"
    update: float = 0.25
    over: str = "arrivals"
    latency: object = None
    share: float | None = None

    def __str__(self) -> str:
        if self.latency is not None:
            return f"cpu(latency {self.latency}, {self.method})"
        if self.share is not None:
            return f"cpu({self.share:.0%} of the time, {self.method})"
        return f"cpu({self.comparisons_per_second:g} comparisons a second, {self.method})"

    @property
    def by_clock(self) -> bool:
        """Whether the budget is by the clock on the wall."""
        return self.comparisons_per_second is None


@dataclass(frozen=True)
class Controller:
    """What is done at the end of a period. All it learns is in the effort, so that it is saved with it.

    Methods: "rate", "correlation" and "direction" are the paper's Algorithms 1 to 4, each with those before it.
    "selective", the default, is Algorithm 5, also for one type of rows; but what share is probed follows the queue,
    row by row, so that no period is lost to a wrong guess; all comparisons teach, and what they taught fades instead
    of being forgotten; and while basic windows cannot be told apart, or if selected rows turn out to bring less than
    rows at random, some rows are processed fully and others not at all. "random-drop" drops rows at the queue.

    References: gedik2007 §4, §5.
    """

    method: str
    period: int  # ticks
    spans: tuple[int, int]
    windows: tuple[int, int]  # basic windows of each side
    sampling: float  # the paper's gamma
    values: Floats  # (type, type) -> the value of a pair

    def start(self, effort: Effort) -> None:
        """Set the effort of the first period: everything, until the queue says otherwise."""
        effort.mode[0] = DROPPING if self.method == "random-drop" else SELECTED
        effort.dials[ENDS] = -np.inf
        effort.notes[SHARE] = 1.0
        self._set(effort, 1.0)

    def __call__(self, effort: Effort, tick: int) -> None:
        """End a period."""
        dials, tally, notes = effort.dials, effort.tally, effort.notes
        ended = dials[ENDS]
        dials[ENDS] = next_end(ended, tick, self.period)
        if self.method == "random-drop" or tally[CAME] == 0:
            return
        if self.method in PAPERS:
            taken = tally[CAME] - tally[MISSED]  # what found no time does not wait
            waits = taken * min(1.0, max(0.0, dials[BUSY] - ended) / self.period)
            fetched = taken + notes[WAITED] - waits
            notes[WAITED] = waits
            notes[SHARE] = max(LEAST, rate.adapt(notes[SHARE], fetched=fetched, arrived=tally[CAME]))
        else:
            notes[SHARE] = tally[SHARES] / tally[CAME]
        self._learn(effort)
        self._set(effort, max(LEAST, float(notes[SHARE])))
        if self.method == "selective":
            self._notice(effort)

    def retune(self, effort: Effort, work: float) -> None:
        """Choose nothing before a portion: how much is probed follows the queue."""

    def _learn(self, effort: Effort) -> None:
        """Take note of what each basic window brought, and put them into order.

        The paper's steps know the full processing of one period, the last that found anything. Selection learns from
        every comparison, since each basic window is judged by itself, and from earlier periods with less weight.
        """
        paper = self.method in PAPERS
        for side in range(2):
            both = (effort.matched[side], effort.tried[side])
            if paper and both[0][:, 0].any():
                effort.learned[side] = np.stack([counts[:, 0] for counts in both], axis=1)
            elif not paper:
                effort.learned[side] *= KEPT
                effort.learned[side] += np.stack([counts.sum(axis=1) for counts in both], axis=1)
            if self.method != "rate":
                effort.order[side] = correlation.order(self._output(effort, side), effort.order[side])

    @staticmethod
    def _output(effort: Effort, side: int) -> Floats:
        return correlation.output(effort.learned[side, :, 0], effort.learned[side, :, 1])

    def _set(self, effort: Effort, share: float) -> None:
        """Set fractions and sampling for a share of the windows."""
        effort.dials[SAMPLING] = share * self.sampling
        effort.dials[BASE] = share if self.method == "selective" else 0.0
        outputs = [self._output(effort, side)[:count] for side, count in enumerate(self.windows)]
        if self.method == "selective":
            often = [_shares(effort.kinds[side]) for side in range(2)]
            known = [
                utility.Window(float(self.spans[side]), outputs[side], often[side], often[1 - side])
                for side in range(2)
            ]
            effort.fraction[...] = utility.shares(share, (known[0], known[1]), self.values)
        elif self.method == "direction":
            means = float(outputs[0].mean()), float(outputs[1].mean())
            effort.fraction[...] = np.array(direction.shares(share, self.spans, means))[:, None]
        else:
            effort.fraction[...] = share

    def _notice(self, effort: Effort) -> None:
        """Go on at random if nothing tells basic windows apart, or if selection brought clearly less for its work.

        Only periods with too little time count: else everything is probed either way. Clearly less than full
        processing did is by two standard deviations of the pairs that it found; then some rows are processed fully
        for a while. Where pairs are so few that their ages say nothing, selection goes by luck or habit: it may look
        where least is, again and again, while rows at random find their share, and teach as much of every age.
        """
        notes, gains, tally = effort.notes, effort.gains, effort.tally
        if notes[REST] > 0:
            notes[REST] -= 1
        elif notes[SHARE] < BUSY_SHARE and self.values.shape[0] == 1:
            gains[:] = KEPT * gains + np.concatenate([tally[FOUND : FOUND + 2], tally[WORK : WORK + 2]])
            if gains[0] >= PROOF and (gains[0] - 2 * np.sqrt(gains[0])) * gains[3] > gains[1] * gains[2]:
                notes[REST] = RESTS
                gains[:] = 0
        alike = notes[SHARE] < BUSY_SHARE and self.values.shape[0] == 1 and not self._told_apart(effort)
        effort.mode[0] = SOME if notes[REST] > 0 or alike else SELECTED

    def _told_apart(self, effort: Effort) -> bool:
        """Say whether the pairs of basic windows differ by more than chance.

        Squared differences from what a window would bring if all were alike, in units of their variance, are added
        up. By chance they come to one for each window that is to bring a pair or more; to less, if less. Two standard
        deviations more are not chance. Counts that fade vary less than whole ones.
        """
        known = np.concatenate([effort.learned[side, :count] for side, count in enumerate(self.windows)])
        pairs, tried = known.T
        if not pairs.any():
            return False
        alike = tried * (pairs.sum() / tried.sum())
        least = np.maximum(alike, 1.0)
        spread = ((pairs - alike) ** 2 / (FADED * least)).sum()
        by_chance = (alike / least).sum() + 2 * np.sqrt(((2 * alike**2 + alike) / least**2).sum())
        return bool(spread > by_chance)


def next_end(ended: float, tick: int, period: int) -> float:
    """Return when the period ends that a tick falls into, given when another ended; none did: one begins now."""
    return tick + period if np.isinf(ended) else ended + period * (1 + (tick - ended) // period)


def _shares(counts: Any) -> Floats:
    """Return how often each type came; alike, if none did."""
    total = counts.sum()
    return np.asarray(counts / total if total else np.full(counts.size, 1 / counts.size), np.float64)
