"""AUTO: keep the tuples that can expect most per tick, by key, age and importance, as learned from the past."""

import math
from typing import Any, NamedTuple

import numpy as np

from penstock.core import rng
from penstock.core.hooks import ranked
from penstock.core.jit import borrowed, outlined, part, wide
from penstock.core.windows import (
    BUNCH,
    CLOCK,
    CODE,
    LIVE,
    NEWEST,
    OLDEST,
    POS,
    SLOTS,
    Floats,
    Windows,
    importance_of,
    key_of,
)
from penstock.policies import lessons as learning
from penstock.policies import statistics as stats
from penstock.policies.registry import Setting, shed_policy

DRAWN = 16  # tuples that are looked at besides the least, the oldest and the newest, where age counts
LARGE = 2.0**256  # weights are brought back to the present when they reach this
MOST_HALVES = 600.0  # that pass at once
COMBINES = ("min", "max", "sum", "mean", "product")
MIN, MAX, SUM, MEAN = range(4)
PAIRS = -1  # rows have no importance
NOTHING = 1e-300


class Learned(NamedTuple):
    """What `auto` knows, and how it learns: the same whether rows have an importance or not."""

    statistics: stats.Statistics
    lessons: learning.Lessons
    fresh: Floats  # (side,) what an arrival weighs now
    state: rng.State
    worth: Floats  # (cell, side) importance that came; one row where there is none
    whole: Floats  # (side,) of it in all
    combine: int  # how the importances of a pair become one; PAIRS: rows have none

    def scale(self, side: int) -> float:
        """Turn counts into rates."""
        return self.lessons.pace[1 - side] / max(self.statistics.total[1 - side], NOTHING)

    def lost(self) -> tuple[bool, int]:
        """Name the key that was forgotten to count the last arrival."""
        return stats.lost(self.statistics)

    def foresee(self, code: int) -> None:
        """Ask for the counts of a key that is soon to come."""
        stats.foresee(self.statistics, code)

    def arrive(self, side: int, code: int, clock: int) -> None:  # noqa: ARG002 - tidy has heard of it
        """Count an arrival, and learn from it."""
        learning.note(self.lessons, side, code)
        if stats.add(self.statistics, side, code, self.fresh[side]) and self.combine != PAIRS:
            self.worth[self.statistics.last[0]] = 0.0

    def tidy(self, windows: Windows, side: int, clock: int) -> bool:
        """Let time pass; says whether counts were brought back to the present."""
        if side == 0:
            learning.lesson(self.lessons, windows.marks[LIVE] + windows.marks[LIVE + 1])
        passed = min(learning.pass_time(self.lessons, side, clock), MOST_HALVES)
        if passed > 0.0:
            self.fresh[side] *= 2.0**passed
        if self.fresh[side] < LARGE:
            return False
        halves = math.frexp(self.fresh[side])[1]
        self.fresh[side] = math.ldexp(self.fresh[side], -halves)
        stats.shrink(self.statistics, side, halves)
        left = math.ldexp(1.0, -halves)
        self.whole[side] *= left
        for cell in range(self.worth.shape[0]):
            self.worth[cell, side] *= left
        return True

    def rather(self, windows: Windows, side: int, slot: int) -> Any:
        """Return the least of a few, if age counts."""
        if self.lessons.marks[learning.LIFTED] == 0:
            return wide(slot)
        return least_of_few(self, windows, side, slot)


@shed_policy("auto", paper="-", cost="O(log keys)")
@ranked("key")
class Auto(Learned):
    """Give up the tuple with the smallest expected gain per tick, by key, age and importance.

    The idea: the optimum pays a price for every tick that a tuple is in memory, so a tuple is worth the best average
    gain per tick that it can still reach. How likely a key is to come is counted with a half-life that follows drift:
    of four, the one by which a small shadow of the join has met most lately. If partners come at some ages more often
    than keys foretell, that counts as well; else the order is that of PROB. Where rows have an importance, the gain
    is what the pairs are worth (`Valued`). Ties as PROB.

    Cost: O(log keys) per victim as PROB, and O(1) per arrival to learn. Where age counts, a victim is the least of a
    few: the one with the least likely key, the oldest and the newest of each side, and some drawn at random. To
    learn takes 700 kB, whatever the budget.

    Departures: the half-life is chosen by pairs, also where rows have an importance.

    References: docs/auto.md; das2003 §3.3.1 (PROB); Srivastava and Widom, VLDB 2004 (age).
    """

    @classmethod
    def make(cls, setting: Setting) -> Learned:
        """Return the policy with nothing learned; where rows have an importance, it is a policy of its own shape."""
        counts = stats.make(setting, "history")
        important = setting.combine is not None
        return (Valued if important else cls)(
            statistics=counts,
            lessons=learning.make(setting),
            fresh=np.ones(2),
            state=rng.seeded(setting.seed),
            worth=np.zeros((counts.code.size if important else 1, 2)),
            whole=np.zeros(2),
            combine=COMBINES.index(setting.combine) if setting.combine is not None else PAIRS,
        )

    def weigh(self, side: int, code: int) -> float:
        """Return how often the key came on the other side."""
        return stats.weight(self.statistics, 1 - side, code)


@ranked("key", within="importance")
class Valued(Learned):
    """Give up the tuple with the smallest expected importance of its pairs per tick.

    The idea: with min, a pair is worth what both reach, so a tuple can expect its importance times the chance of a
    partner, and no more than the importance that comes with its key. Of each key the least important goes first.

    Cost: O(log keys + log tuples of the key) per tuple.

    Departures: of the importance that comes with a key only the sum is known, so that the expected min or max of a
    pair is taken from the means.

    References: docs/auto.md; importance2006 §4.3.
    """

    def score(self, windows: Windows, side: int, slot: int, clock: int) -> float:  # noqa: ARG002
        """Return the expected importance of the next tick's pairs, in units of the other side's counts."""
        seen, came = of_key(self, windows, side, slot)
        return combined(self.combine, importance_of(windows, slot), seen, came)

    def admit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Add up the importance that comes with the key that has just arrived."""
        more = self.fresh[side] * importance_of(windows, slot)
        self.worth[self.statistics.last[0], side] += more
        self.whole[side] += more


@part
def of_key(policy: Learned, windows: Windows, side: int, slot: int) -> tuple[float, float]:
    """Return how often a tuple's key came on the other side, and how much importance with it."""
    code = windows.code[key_of(wide(windows.link[slot, BUNCH])), CODE]
    seen = stats.weight(policy.statistics, 1 - side, code)
    if seen == 0.0 or policy.combine == PAIRS:
        return seen, 0.0
    return seen, policy.worth[stats.find(policy.statistics, code), 1 - side]


@part
def combined(combine: int, importance: float, seen: float, came: float) -> float:
    """Return what a tuple's pairs are worth, given how many partners it has and their importance in all."""
    if combine == PAIRS:
        return seen
    if combine == MIN:
        return min(importance * seen, came)
    if combine == MAX:
        return max(importance * seen, came)
    if combine == SUM:
        return importance * seen + came
    if combine == MEAN:
        return (importance * seen + came) / 2
    return importance * came


@outlined
def least_of_few(policy: Learned, windows: Windows, side: int, slot: int) -> Any:
    """Return the tuple with the smallest index: this one, or one of those drawn; on one side or (-1) on either."""
    policy, windows = borrowed(policy), borrowed(windows)
    best, least = wide(slot), np.inf
    for draw in range(-1, DRAWN + 4):
        other = wide(slot) if draw < 0 else drawn(policy, windows, draw)
        if other >= 0 and side != 1 - (wide(windows.link[other, BUNCH]) & 1):
            theirs = index(policy, windows, other)
            if theirs < least:
                best, least = other, theirs
    return best


@part
def drawn(policy: Learned, windows: Windows, draw: int) -> Any:
    """Return a tuple to look at, or -1: the oldest and the newest of each side, then any."""
    if draw < 4:
        return wide(windows.marks[(OLDEST if draw < 2 else NEWEST) + (draw & 1)])
    slot = wide(rng.below(policy.state, windows.marks[SLOTS]))
    return slot if windows.link[slot, BUNCH] >= 0 else wide(-1)


@part
def index(policy: Learned, windows: Windows, slot: int) -> float:
    """Return the expected gain of a tuple per tick, over the time for which that is most."""
    side = wide(windows.link[slot, BUNCH]) & 1
    seen, came = of_key(policy, windows, side, slot)
    total = max(policy.statistics.total[1 - side], NOTHING)
    rate = learning.partners(policy.lessons, side, 1.0 / total)
    lift = learning.lift_of(policy.lessons, side, windows.marks[CLOCK + side] - windows.stamp[slot, POS])
    mean = policy.whole[1 - side] / total
    return combined(policy.combine, importance_of(windows, slot), seen * rate + lift, came * rate + lift * mean)
