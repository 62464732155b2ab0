"""Bound what any schedule can reach, from prices for a place in memory at every tick.

If a place costs something after each tick, every tuple decides alone: it stays until the meeting at which what it has
gained, less what it has paid, is largest. What all tuples clear in this way, plus what all places would earn, is
never less than what any schedule gains (weak duality); at the right prices it is equal.
"""

from typing import NamedTuple

import numpy as np

from penstock.core.jit import kernel
from penstock.core.windows import Floats, Ints
from penstock.optimum.problem import Chains, Pool


class Answer(NamedTuple):
    """What tuples do at given prices."""

    bound: float  # no schedule gains more
    until: Ints  # the tick through which each member would like to stay; its arrival: not at all
    held: Ints  # how many would then be held after each tick but the last


def answer(chained: Chains, pool: Pool, prices: Floats) -> Answer:
    """Let every tuple decide at these prices.

    Parameters:
        prices: what a place costs after each tick but the last, at least 0.

    Cost: O(members + partners), whatever the window.

    References: the Lagrangian dual of das2003's flow (§3.2).
    """
    paid = np.concatenate([[0.0], np.cumsum(prices)])
    until = chained.arrival.copy()
    cleared = decide(chained, paid, until)
    return Answer(pool.limit * float(paid[-1]) + cleared, until, held(chained, until))


def held(chained: Chains, until: Ints) -> Ints:
    """Return how many members are held after each tick but the last."""
    change = np.bincount(chained.arrival, minlength=chained.ticks) - np.bincount(until, minlength=chained.ticks)
    return np.cumsum(change)[:-1]


def gained(chained: Chains, until: Ints) -> float:
    """Return what members gain that stay through these ticks. O(members + partners)."""
    return float(collect(chained, until))


@kernel
def decide(chained: Chains, paid: Floats, until: Ints) -> float:
    """Find the best departure of every member; returns what they clear together.

    Windows of later members begin and end later, so the best meeting is the maximum of a sliding window: a queue of
    meetings, each better than all after it.
    """
    total = 0.0
    queue = np.empty(max(1, chained.meeting.size), np.int64)
    profit = np.empty(max(1, chained.meeting.size))
    for c in range(chained.member_start.size - 1):
        begin, end = chained.partner_start[c], chained.partner_start[c + 1]
        low = high = begin  # the next meeting to come for the member; the next one to enter the queue
        first = last = 0
        before = passed = 0.0  # gained at all meetings before `high`, and before `low`
        for m in range(chained.member_start[c], chained.member_start[c + 1]):
            while high < end and chained.meeting[high] <= chained.last[m]:
                before += chained.gain[high]
                worth = before - paid[chained.meeting[high]]
                while last > first and profit[last - 1] < worth:
                    last -= 1
                queue[last] = high
                profit[last] = worth
                last += 1
                high += 1
            while low < high and chained.meeting[low] <= chained.arrival[m]:
                passed += chained.gain[low]
                low += 1
            while first < last and queue[first] < low:
                first += 1
            if first < last:
                best = profit[first] - passed + paid[chained.arrival[m]]
                if best > 0:
                    total += best
                    until[m] = chained.meeting[queue[first]]
    return total


@kernel
def collect(chained: Chains, until: Ints) -> float:
    """Sum up the gains of all meetings of every member up to its departure."""
    total = 0.0
    for c in range(chained.member_start.size - 1):
        begin, end = chained.partner_start[c], chained.partner_start[c + 1]
        sums = np.zeros(end - begin + 1)
        for j in range(begin, end):
            sums[j - begin + 1] = sums[j - begin] + chained.gain[j]
        for m in range(chained.member_start[c], chained.member_start[c + 1]):
            if until[m] > chained.arrival[m]:
                meeting = chained.meeting[begin:end]
                low = np.searchsorted(meeting, chained.arrival[m], side="right")
                total += sums[np.searchsorted(meeting, until[m], side="right")] - sums[low]
    return total
