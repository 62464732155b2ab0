"""Choose which keys to give up, so that as few tuples as possible miss a partner.

The model: tuples of a key come at random, at the rates that statistics say. While one side of a key is given up,
each tuple on it misses the partners that come later, and so do these; who would have had no partner misses
nothing. To give up both sides harms hardly more tuples than one, where both are frequent: those of the other side
are incomplete already. So the choice is among *offers*, one or two a key:

- both sides at once, where the second frees more memory per tuple harmed than the first;
- else the side that frees more per tuple harmed, and then, as an offer of its own, the other.

What must be freed is what the exact join would hold beyond the budget. The cheapest offers per freed tuple are taken
until that is covered, and then those are taken back that are not needed. One of them may be used in part: then the
partners of what it frees are all harmed, and of its own tuples only those that it frees.
"""

import math
from typing import NamedTuple

import numpy as np

from penstock.core.jit import part
from penstock.core.windows import Floats, Ints, Masks

ONE, OTHER, BOTH = 0, 1, 2  # kinds of offers: a side, the side that is left, or both sides at once
CELL, SIDE, KIND = 0, 1, 2  # columns of `what`; the side goes first where it is both
# columns of `price`: tuples it frees, tuples harmed for that; and if it is used in part: partners that are harmed,
# own tuples harmed for each freed, tuples that the first side frees
FREED, HARM, PARTNERS, OWN, FIRST = 0, 1, 2, 3, 4


class Offers(NamedTuple):
    """What could be given up; only the first `size` rows count, and those of one key are neighbours."""

    what: Ints  # (offer, CELL..KIND)
    price: Floats  # (offer, FREED..FIRST)
    size: Ints  # [how many]


class Flow(NamedTuple):
    """How many tuples come."""

    came: Floats  # (side,) in the time for which harm is counted
    during: Floats  # (side, other) on a side while the window of a tuple of the other is open


@part
def make(cells: int) -> Offers:
    """Return no offers, with room for those of so many keys."""
    return Offers(np.empty((2 * cells, 3), np.int64), np.empty((2 * cells, 5)), np.zeros(1, np.int64))


@part
def harmed(mine: float, theirs: float) -> float:
    """Return how many of so many tuples meet at least one partner, if so many are to be expected for each."""
    return mine * (1.0 - math.exp(-theirs))


@part
def offer(offers: Offers, cell: int, share: tuple[float, float], flow: Flow) -> None:
    """Add what a key has to offer, which takes such a share of both sides' arrivals."""
    mine = (share[0] * flow.came[0], share[1] * flow.came[1])
    held = (share[0] * flow.during[0, 0], share[1] * flow.during[1, 1])
    later = (share[1] * flow.during[1, 0], share[0] * flow.during[0, 1])  # partners of a tuple of each side
    left = harmed(mine[0], later[0]) + harmed(mine[1], held[0])
    right = harmed(mine[1], later[1]) + harmed(mine[0], held[1])
    both = harmed(mine[0], later[0] + held[1]) + harmed(mine[1], later[1] + held[0])
    first = 1 if held[0] == 0.0 or (held[1] > 0.0 and left * held[1] > right * held[0]) else 0
    alone = left if first == 0 else right
    kind = BOTH if held[1 - first] > 0.0 and (both - alone) * held[first] <= alone * held[1 - first] else ONE
    n = offers.size[0]
    what, price = offers.what[n], offers.price[n]
    what[CELL], what[SIDE], what[KIND] = cell, first, kind
    price[FREED] = held[0] + held[1] if kind == BOTH else held[first]
    price[HARM] = both if kind == BOTH else alone
    price[PARTNERS] = mine[1 - first]
    price[OWN] = harmed(mine[first], later[first]) / held[first] if held[first] > 0.0 else 0.0
    price[FIRST] = held[first]
    offers.size[0] = n + 1
    if kind == ONE and held[1 - first] > 0.0:
        what, price = offers.what[n + 1], offers.price[n + 1]
        what[CELL], what[SIDE], what[KIND] = cell, 1 - first, OTHER
        price[FREED], price[HARM], price[FIRST] = held[1 - first], both - alone, held[1 - first]
        price[PARTNERS], price[OWN] = 0.0, price[HARM] / price[FREED]
        offers.size[0] = n + 2


@part
def harm_of(offers: Offers, i: int, used: float) -> float:
    """Return how many tuples are harmed if so many are freed of what is offered."""
    freed, harm, partners, own, first = offers.price[i]
    if used <= 0.0:
        return 0.0
    if used >= freed:
        return harm
    if used <= first:
        return min(harmed(partners, used) + own * used, harm)
    one = harmed(partners, first) + own * first
    return one + (harm - one) * (used - first) / (freed - first)


@part
def rate(offers: Offers, i: int) -> float:
    """Return how many tuples are harmed for each that is freed."""
    return offers.price[i, HARM] / max(offers.price[i, FREED], 1e-300)


@part
def added(offers: Offers, taken: Masks, column: int) -> float:
    """Return the sum of a price over what is taken."""
    total = 0.0
    for i in range(offers.size[0]):
        if taken[i]:
            total += offers.price[i, column]
    return total


@part
def by_rate(offers: Offers) -> Ints:
    """Return the offers, the cheapest first."""
    rates = np.empty(offers.size[0])
    for i in range(rates.size):
        rates[i] = rate(offers, i)
    return np.argsort(rates, kind="mergesort")


@part
def take(offers: Offers, order: Ints, taken: Masks, need: float) -> None:
    """Take offers in order until enough is freed."""
    freed = added(offers, taken, FREED)
    for i in order:
        if freed >= need:
            return
        if not taken[i]:
            taken[i] = True
            freed += offers.price[i, FREED]


@part
def may_go_back(offers: Offers, taken: Masks, i: int) -> bool:
    """Say whether an offer may be taken back: one side of a key not while the other, that came after it, is given."""
    return not (offers.what[i, KIND] == ONE and i + 1 < offers.size[0] and taken[i + 1] and after(offers, i))


@part
def after(offers: Offers, i: int) -> bool:
    """Say whether the next offer is the other side of the same key."""
    return bool(offers.what[i + 1, KIND] == OTHER and offers.what[i + 1, CELL] == offers.what[i, CELL])


@part
def partly(offers: Offers, taken: Masks, spare: float) -> tuple[int, float]:
    """Return which of the offers taken should be used in part, -1: none, and how many tuples that saves."""
    best, most = -1, 0.0
    for i in range(offers.size[0]):
        if taken[i] and offers.price[i, FREED] >= spare:
            saved = offers.price[i, HARM] - harm_of(offers, i, offers.price[i, FREED] - spare)
            if saved > most:
                best, most = i, saved
    return best, most


@part
def give_back_all(offers: Offers, order: Ints, taken: Masks, need: float) -> tuple[int, float]:
    """Take back whatever is not needed, in order; returns what is used in part, and how many are harmed."""
    freed = added(offers, taken, FREED)
    for i in order:
        if taken[i] and freed - offers.price[i, FREED] >= need and may_go_back(offers, taken, i):
            taken[i] = False
            freed -= offers.price[i, FREED]
    used, saved = partly(offers, taken, freed - need)
    return used, added(offers, taken, HARM) - saved


@part
def give_back_some(offers: Offers, order: Ints, taken: Masks, need: float) -> tuple[int, float]:
    """Take back what harms more than to use more of the one used in part; returns that, and how many are harmed."""
    freed = added(offers, taken, FREED)
    used, saved = partly(offers, taken, freed - need)
    if used >= 0:
        for i in order:
            fewer = freed - offers.price[i, FREED]
            if taken[i] and i != used and fewer >= need and may_go_back(offers, taken, i):
                now = harm_of(offers, used, offers.price[used, FREED] - (freed - need))
                then = harm_of(offers, used, offers.price[used, FREED] - (fewer - need))
                if then - now < offers.price[i, HARM]:
                    taken[i] = False
                    freed = fewer
        saved = offers.price[used, HARM] - harm_of(offers, used, offers.price[used, FREED] - (freed - need))
    return used, added(offers, taken, HARM) - saved


@part
def choose(offers: Offers, taken: Masks, need: float, spare: float) -> tuple[Masks, int, float]:
    """Return what to give up, which of it in part (-1: none), and how many tuples that harms.

    Parameters:
        offers: what there is.
        taken: what to begin with; only as much is added as is missing.
        need: how many tuples must be freed.
        spare: how many more had better be, if they are taken already.

    Cost: O(offers log offers).
    """
    take(offers, by_rate(offers), taken, need)
    need = max(need, min(need + spare, added(offers, taken, FREED)))
    order = np.argsort(-offers.price[: offers.size[0], HARM], kind="mergesort")
    some = taken.copy()
    all_used, all_harm = give_back_all(offers, order, taken, need)
    used, harm = give_back_some(offers, order, some, need)
    if harm <= all_harm:
        return some, used, harm
    return taken, all_used, all_harm
