"""AUTO: keep the tuples that can expect most per tick, by key, age and importance, as learned from the past."""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core import rng
from penstock.core.hooks import ranked
from penstock.core.jit import borrowed, outlined, part, prefetch, wide
from penstock.core.windows import (
    BUNCH,
    CLOCK,
    CODE,
    LIVE,
    NEWEST,
    OLDEST,
    POS,
    SLOTS,
    WORTH,
    Floats,
    Ints,
    Windows,
    importance_of,
    key_of,
)
from penstock.policies import lessons as learning
from penstock.policies import statistics as stats
from penstock.policies.registry import Setting, shed_policy

FIXED, DRAWN = 5, 16  # tuples to look at where age counts: the least, the oldest and newest of each side; and any
LARGE = 2.0**256  # weights are brought back to the present when they reach this
MOST_HALVES = 600.0  # that pass at once
COMBINES = ("min", "max", "sum", "mean", "product")
MIN, MAX, SUM, MEAN = range(4)
PAIRS = -1  # rows have no importance
NOTHING = 1e-300


class Learned(NamedTuple):
    """What `auto` knows, and how it learns: the same whether rows have an importance or not."""

    statistics: stats.Statistics
    lessons: npt.NDArray[Any]  # one record, of `learning.RECORD`
    fresh: Floats  # (side,) what an arrival weighs now
    state: rng.State
    few: Ints  # the tuples that one victim is chosen from
    worth: Floats  # (cell, side) importance that came; one row where there is none
    combine: int  # how the importances of a pair become one; PAIRS: rows have none

    def lost(self) -> tuple[bool, int]:
        """Name the key that was forgotten to count the last arrival."""
        return stats.lost(self.statistics)

    def foresee(self, code: int) -> None:
        """Ask for the counts of a key that is soon to come."""
        stats.foresee(self.statistics, code)

    def arrive(self, side: int, code: int, clock: int) -> None:  # noqa: ARG002 - tidy has heard of it
        """Count an arrival, and learn from it."""
        learning.note(self.lessons[0], side, code)
        if stats.add(self.statistics, side, code, self.fresh[side]) and self.combine != PAIRS:
            self.worth[self.statistics.last[0]] = 0.0

    def tidy(self, windows: Windows, side: int, clock: int) -> bool:
        """Let time pass; says whether counts were brought back to the present, or are worth something else now."""
        lessons = self.lessons[0]
        if side == 0:
            held = windows.marks[LIVE] + windows.marks[LIVE + 1]
            renewed, learned = learning.changed(lessons, held), learning.lesson(lessons, held)
            if renewed or learned:
                take_lesson(self)
        passed = min(learning.pass_time(lessons, side, clock, self.statistics.span), MOST_HALVES)
        if passed > 0.0:
            self.fresh[side] *= 2.0**passed
        changed = lessons.anew[side] == 1
        lessons.anew[side] = 0
        if self.fresh[side] >= LARGE:
            bring_back(self, side)
            changed = True
        return changed

    def rather(self, windows: Windows, side: int, slot: int) -> Any:
        """Return the least of a few, if age counts."""
        if self.lessons[0].lifted == 0:
            return wide(slot)
        return least_of_few(self, windows, side, slot)


@shed_policy("auto", paper="-", cost="O(log keys)")
@ranked("key")
class Auto(Learned):
    """Give up the tuple with the smallest expected gain per tick, by key, age and importance.

    The idea: the optimum pays a price for every tick that a tuple is in memory, so a tuple is worth the best average
    gain per tick that it can still reach. How likely a key is to come is counted with a half-life that follows drift:
    of five, the one by which a small shadow of the join meets most; one of them starts afresh when what
    comes contradicts it. Where the keys of both sides are alike, both are counted. If partners come at some ages more
    often than keys foretell, that counts as well; else the order is that of PROB. Where rows have an importance, the
    gain is what the pairs are worth (`Valued`). Ties as PROB.

    Cost: O(log keys) per victim as PROB, and O(1) per arrival to learn. Where age counts, a victim is the least of a
    few: the one with the least likely key, the oldest and the newest of each side, and some drawn at random. To
    learn takes 1.1 MB, whatever the budget.

    Departures: the half-life is chosen by pairs, also where rows have an importance. The gain is per row and tick,
        also with a budget in bytes: keys are in order, and rows of one key differ in size.

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
            few=np.empty(FIXED + DRAWN, np.int64),
            worth=np.zeros((counts.code.size if important else 1, 2)),
            combine=COMBINES.index(setting.combine) if setting.combine is not None else PAIRS,
        )

    def weigh(self, side: int, code: int) -> float:
        """Return how often the key came on the other side, or on both if they are alike."""
        return likely(self, side, code)

    def admit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Let the others of the key that has just arrived be worth more, if the sides are alike."""
        if self.lessons[0].kindred[side] > 0.0:
            key = key_of(wide(windows.link[slot, BUNCH]))
            windows.worth[key, WORTH + side] = likely(self, side, windows.code[key, CODE])

    def scale(self, side: int) -> float:
        """Turn counts into rates, if they tell anything."""
        rate = learning.tells(self.lessons[0], 1 - side) * self.lessons[0].pace[1 - side]
        return rate / max(in_all(self, side), NOTHING)

    def offset(self, side: int) -> float:
        """Return the rate that all keys have if counts tell nothing."""
        lessons = self.lessons[0]
        return (1.0 - learning.tells(lessons, 1 - side)) * lessons.pace[1 - side] * lessons.usual[1 - side]


@ranked("key", within="importance")
class Valued(Learned):
    """Give up the tuple with the smallest expected importance of its pairs per tick.

    The idea: with min, a pair is worth what both reach, so a tuple can expect its importance or that of its partners.
    What partners of its key are worth is believed the more, the more of them came and the more those of one key are
    alike; else partners are like those of all keys. Of each key the least important goes first.

    Cost: O(log keys + log tuples of the key) per tuple.

    Departures: of the importance that comes with a key only the mean is known.

    References: docs/auto.md; importance2006 §4.3.
    """

    def score(self, windows: Windows, side: int, slot: int, clock: int) -> float:  # noqa: ARG002
        """Return the expected importance of the next tick's pairs, in units of the other side's counts."""
        lessons, other = self.lessons[0], 1 - side
        often, seen, cell = 0.0, 0.0, wide(-1)
        if lessons.relied[other] > 0.0 or lessons.doubt[other] < np.inf:  # else all keys are alike
            often, seen, cell = of_key(self, windows, slot)
        weight = lessons.common[other] + lessons.relied[other] * often
        return weight * worth_of_pair(self, side, importance_of(windows, slot), seen, cell)

    def scale(self, side: int) -> float:
        """Turn counts into rates, or what is common to all keys where that was all there is."""
        lessons, other = self.lessons[0], 1 - side
        share = 1.0 / max(in_all(self, side), NOTHING)
        if lessons.relied[other] == 0.0:
            share = lessons.usual[other] / max(lessons.common[other], NOTHING)
        return lessons.pace[other] * share

    def foresee(self, code: int) -> None:
        """Ask for the counts of a key that is soon to come, and for its importance."""
        stats.foresee(self.statistics, code)
        stats.foresee_beside(self.statistics, self.worth, code)

    def admit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Add up the importance that comes with the key that has just arrived."""
        importance = importance_of(windows, slot)
        self.worth[self.statistics.last[0], side] += self.fresh[side] * importance
        learning.note_worth(self.lessons[0], side, importance)


@outlined
def bring_back(policy: Learned, side: int) -> None:
    """Bring the counts of a side back to the present. O(cells)."""
    policy = borrowed(policy)
    halves = math.frexp(policy.fresh[side])[1]
    left = math.ldexp(1.0, -halves)
    policy.fresh[side] *= left
    policy.lessons[0].doubt[side] *= left
    policy.lessons[0].common[side] *= left
    policy.lessons[0].kindred[1 - side] *= left
    policy.lessons[0].kindred[side] /= left
    stats.shrink(policy.statistics, side, halves)
    for cell in range(policy.worth.shape[0]):
        policy.worth[cell, side] *= left


@outlined
def take_lesson(policy: Learned) -> None:
    """Count by what was learned, and say where the order must be laid out anew."""
    policy = borrowed(policy)
    lessons = policy.lessons[0]
    if lessons.adopts == 1:
        lessons.adopts = 0
        for side in range(2):
            adopt(policy, side)
            lessons.anew[side] = 1
    for side in range(2):
        unit = policy.fresh[1 - side] / policy.fresh[side] if lessons.alike_sides == 1 else 0.0
        if learning.off(unit, lessons.kindred[side]):
            lessons.kindred[side] = unit
            lessons.anew[1 - side] = 1
    if policy.combine != PAIRS:
        for side in range(2):
            if learning.lay_out(lessons, side, policy.fresh[side], in_all(policy, 1 - side)):
                lessons.anew[side] = 1


@part
def adopt(policy: Learned, side: int) -> None:
    """Let counts of keys in the sample be those of the chosen half-life, and others weigh as much less. O(CELLS)."""
    lessons, statistics = policy.lessons[0], policy.statistics
    life = lessons.chosen
    came = lessons.total[side, life] / lessons.fresh[side, life] * (1 << lessons.level)
    if came <= 0.0 or statistics.total[side] <= 0.0:
        return
    policy.fresh[side] = statistics.total[side] / came
    unit = policy.fresh[side] / lessons.fresh[side, life]
    for each in range(learning.CELLS):
        if lessons.last[each, 0] == learning.UNSET and lessons.last[each, 1] == learning.UNSET:
            continue
        cell = stats.find(statistics, lessons.code[each])
        if cell >= 0:
            seen, weight = statistics.seen[cell, side], lessons.weight[each, side, life] * unit
            statistics.seen[cell, side] = weight
            statistics.total[side] += weight - seen
            if policy.combine != PAIRS:
                policy.worth[cell, side] *= weight / seen if seen > 0.0 else 0.0


@part
def likely(policy: Learned, side: int, code: int) -> float:
    """Return how often a key came on the other side; on both, in weights of the other, if they are alike."""
    often = stats.weight(policy.statistics, 1 - side, code)
    kindred = policy.lessons[0].kindred[side]
    return often + kindred * stats.weight(policy.statistics, side, code) if kindred > 0.0 else often


@part
def in_all(policy: Learned, side: int) -> float:
    """Return what all arrivals weigh that tuples of a side are judged by."""
    return policy.statistics.total[1 - side] + policy.lessons[0].kindred[side] * policy.statistics.total[side]


@part
def of_key(policy: Learned, windows: Windows, slot: int) -> tuple[float, float, int]:
    """Return how often the key of a tuple came, as `likely` says, and on the other side; and where its counts are."""
    bunch = wide(windows.link[slot, BUNCH])
    side, code = bunch & 1, windows.code[key_of(bunch), CODE]
    often, seen = likely(policy, side, code), stats.weight(policy.statistics, 1 - side, code)
    return often, seen, stats.find(policy.statistics, code) if policy.combine != PAIRS and seen > 0.0 else wide(-1)


@part
def worth_of_pair(policy: Learned, side: int, importance: float, seen: float, cell: int) -> float:
    """Return what a pair of a tuple is worth on average.

    Parameters:
        side, importance: of the tuple.
        seen, cell: how often its key came on the other side, and where its counts are; -1: it did not.
    """
    if policy.combine == PAIRS:
        return 1.0
    lessons = policy.lessons[0]
    mean, known = lessons.average[1 - side], 0.0
    lesser = learning.lesser(lessons, 1 - side, importance)
    if cell >= 0:
        theirs = float(np.float32(policy.worth[cell, 1 - side] / seen))  # equals stay equal
        known = seen / (seen + lessons.doubt[1 - side])
        mean += known * (theirs - mean)
        lesser += known * (min(importance, theirs) - lesser)
    if policy.combine == MIN:
        return lesser
    if policy.combine == MAX:
        return importance + mean - lesser
    if policy.combine == SUM:
        return importance + mean
    if policy.combine == MEAN:
        return (importance + mean) / 2
    return importance * mean


@outlined
def least_of_few(policy: Learned, windows: Windows, side: int, slot: int) -> Any:
    """Return the tuple with the smallest index: this one, or one of those drawn; on one side or (-1) on either."""
    policy, windows = borrowed(policy), borrowed(windows)
    few = policy.few
    few[0] = slot
    for end in range(2):
        few[1 + end] = windows.marks[OLDEST + end]
        few[3 + end] = windows.marks[NEWEST + end]
    for draw in range(FIXED, few.size):
        few[draw] = rng.below(policy.state, windows.marks[SLOTS])
        prefetch(windows.link, few[draw])
        prefetch(windows.stamp, few[draw])
    for draw in range(FIXED, few.size):
        bunch = wide(windows.link[few[draw], BUNCH])
        if bunch < 0:
            few[draw] = -1
        else:
            prefetch(windows.code, key_of(bunch))
    best, least = wide(slot), np.inf
    for draw in range(few.size):
        other = few[draw]
        if other >= 0 and side != 1 - (wide(windows.link[other, BUNCH]) & 1):
            theirs = index(policy, windows, other, least)
            if theirs < least:
                best, least = other, theirs
    return best


@part
def index(policy: Learned, windows: Windows, slot: int, most: float) -> float:
    """Return the expected gain of a tuple per tick, over the time for which it is largest; `most`, if it is more."""
    lessons = policy.lessons[0]
    side = wide(windows.link[slot, BUNCH]) & 1
    lift = learning.lift_of(lessons, side, windows.marks[CLOCK + side] - windows.stamp[slot, POS])
    if policy.combine == PAIRS and lift >= most:
        return most
    often, seen, cell = of_key(policy, windows, slot)
    rate = learning.partners(lessons, side, often / max(in_all(policy, side), NOTHING))
    return (rate + lift) * worth_of_pair(policy, side, importance_of(windows, slot), seen, cell)
