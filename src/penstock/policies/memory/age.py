"""AGE: keep a tuple until the age by which it has brought most per tick."""

from typing import Any, NamedTuple

import numpy as np

from penstock.core import rng
from penstock.core.jit import part, wide
from penstock.core.windows import (
    BUNCH,
    CLOCK,
    COUNT,
    NEWEST,
    OLDEST,
    POS,
    SLOTS,
    Floats,
    Ints,
    Windows,
    moment_of,
    tuple_at,
)
from penstock.policies.registry import Setting, shed_policy

CLASSES = 32  # of age, as wide as each other
SAMPLES = 4  # tuples a tick whose age is looked at
KEPT = 2.0 ** (-1 / 64)  # of what was learned, whenever a class of age has passed: half is left after two spans
DOUBT = 64.0  # tuples and ticks that an age must have been seen for to be believed
HOPE = 1e-9  # partners a tick at an age nobody knows, before there were any
LATEST, NEXT = 0, 1  # entries of `clock`
UNSET = np.iinfo(np.int64).min


@shed_policy("age", paper="-", cost="O(1)")
class Age(NamedTuple):
    """Give up the oldest or the newest tuple: the one that can expect fewer partners per tick.

    The idea: where partners come depends on age alone. A tuple of some age is worth the best average of partners per
    tick that it can still reach, over all ages it could be kept to. Before the age at which partners mostly come
    that rises, so that the newest is worth least; after it, it falls, so that the oldest is. How partners depend on
    age is learned from the tuples in memory; an age that none has reached lately is taken for as good as the best.
    Ties: the oldest leaves, then left before right.

    Cost: O(1) per victim, O(1) per pair to learn, and O(1) per tick, amortised over a share of the span.

    Departures: where partners come at several ages with none between, the least is sought at both ends only.

    References: Srivastava and Widom, Memory-Limited Execution of Windowed Stream Joins, VLDB 2004 (age-based model).
    """

    state: rng.State
    hits: Floats  # (side, class) partners that tuples of that age met
    seen: Floats  # (side, class) tuples of that age, times ticks
    worth: Floats  # (side, class) what a tuple of that age is worth
    clock: Ints  # (side, LATEST..NEXT)
    width: Ints  # (side,) of a class, in ticks

    @classmethod
    def make(cls, setting: Setting) -> "Age":
        """Return the policy with nothing learned."""
        return cls(
            rng.seeded(setting.seed),
            np.zeros((2, CLASSES)),
            np.zeros((2, CLASSES)),
            np.ones((2, CLASSES)),
            np.full((2, 2), UNSET),
            np.maximum(-(-setting.span // CLASSES), 1),
        )

    def tidy(self, windows: Windows, side: int, clock: int) -> bool:
        """Look at the age of a few tuples, and now and then work out anew what each age is worth."""
        before = self.clock[side, LATEST]
        self.clock[side, LATEST] = clock
        if before == UNSET:
            self.clock[side, NEXT] = clock + self.width[side]
            return False
        slots = windows.marks[SLOTS]
        if slots > 0:
            weight = (clock - before) * slots / SAMPLES
            for _ in range(SAMPLES):
                slot = rng.below(self.state, slots)
                bunch = wide(windows.link[slot, BUNCH])
                if bunch >= 0 and (bunch & 1) == side:
                    self.seen[side, class_of(self, windows, side, slot)] += weight
        if clock >= self.clock[side, NEXT]:
            self.clock[side, NEXT] = clock + self.width[side]
            learn(self, side)
        return False

    def credit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Note at what age the partners of a newcomer met it."""
        other = wide(windows.link[slot, BUNCH]) ^ 1
        for entry in range(windows.runs[other, COUNT]):
            partner = tuple_at(windows, other, entry)
            if partner >= 0:
                self.hits[1 - side, class_of(self, windows, 1 - side, partner)] += 1.0

    def victim(self, windows: Windows, side: int) -> Any:
        """Return the oldest or the newest tuple, on one side or (side = -1) on either."""
        best, least, since = wide(-1), np.inf, wide(0)
        for each in range(2):
            if side == 1 - each:
                continue
            for end in (OLDEST, NEWEST):
                slot = wide(windows.marks[end + each])
                if slot >= 0:
                    worth = self.worth[each, class_of(self, windows, each, slot)]
                    moment = moment_of(windows, slot)
                    if best < 0 or worth < least or (worth == least and moment < since):
                        best, least, since = slot, worth, moment
        return best


@part
def class_of(policy: Age, windows: Windows, side: int, slot: int) -> int:
    """Return the class of a tuple's age."""
    age = windows.marks[CLOCK + side] - windows.stamp[slot, POS]
    return min(max(age, 0) // policy.width[side], CLASSES - 1)


@part
def learn(policy: Age, side: int) -> None:
    """Work out what each age is worth: the best average from it on; let what was learned before count less."""
    hits, seen, worth = policy.hits[side], policy.seen[side], policy.worth[side]
    top = HOPE
    for at in range(CLASSES):
        hits[at] *= KEPT
        seen[at] *= KEPT
        if seen[at] > DOUBT:
            top = max(top, hits[at] / seen[at])
    for at in range(CLASSES):
        total, best = 0.0, 0.0
        for until in range(at, CLASSES):
            total += (hits[until] + DOUBT * top) / (seen[until] + DOUBT)
            best = max(best, total / (until - at + 1))
        worth[at] = best
