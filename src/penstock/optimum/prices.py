"""Bound what any schedule can reach, from prices for a place in memory at every tick.

If a place costs something after each tick, every tuple decides alone: it stays until the meeting at which what it has
gained, less what it has paid, is largest. What all tuples clear in this way, plus what all places would earn, is
never less than what any schedule gains (weak duality); at the right prices it is equal.
"""

import heapq
from typing import NamedTuple

import numpy as np

from penstock.core.jit import kernel, wide
from penstock.core.windows import Floats, Ints
from penstock.optimum.problem import Chains, Pool

FINER = 4  # blocks of prices are divided by this from level to level
ROUNDS = 60  # for each level
STEPS = 0.4, 0.04  # in the first round and in the last
INERTIA = 0.8  # share of earlier rounds in the direction of a step
LEAST = 0.03  # of the usual price: smaller ones move as if they were so large


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


def search(chained: Chains, pool: Pool) -> Floats:
    """Look for good prices: first one for all ticks, then one for each quarter, and so on down to single ticks.

    The idea: where too many want to stay, a place costs too little. A price moves by a share of itself, the more the
    further demand is from the limit; steps become smaller from round to round. Coarse blocks come first because what
    tuples do depends on what they pay in all.

    Returns:
        The best prices found, of a place after each tick but the last.

    Cost: O(members + partners) a round, O(log ticks) rounds.
    """
    ticks = chained.ticks
    price = np.zeros(ticks - 1)
    free = answer(chained, pool, price)
    if (free.held <= pool.limit).all():
        return price
    usual = float(gains(chained, free.until).sum() / free.held.sum())  # what a place earns if nobody leaves
    price += usual
    block = ticks - 1
    while True:
        price = refined(chained, pool, price, block, usual)
        if block == 1:
            return price
        block = -(-block // FINER)


def refined(chained: Chains, pool: Pool, price: Floats, block: int, usual: float) -> Floats:
    """Improve prices that are equal within blocks of ticks."""
    first = np.arange(0, price.size, block)
    size = np.diff(np.append(first, price.size))
    each = np.add.reduceat(price, first) / size
    trend = np.zeros(each.size)
    best, lowest = price, np.inf
    for step in np.geomspace(*STEPS, ROUNDS):
        price = np.repeat(each, size)
        asked = answer(chained, pool, price)
        if asked.bound < lowest:
            best, lowest = price, asked.bound
        demand = np.add.reduceat(asked.held, first) / (size * pool.limit)
        trend = INERTIA * trend + (1 - INERTIA) * np.clip(demand - 1, -1, 1)
        each = np.maximum(each + step * trend * np.maximum(each, LEAST * usual), 0)
    return best


@kernel
def fit(chained: Chains, limit: int, rate: Floats, until: Ints) -> None:
    """Where more members stay than there are places, let those of the smallest rate leave. O(members log)."""
    first = np.zeros(chained.ticks + 1, np.int64)
    for m in range(until.size):
        first[chained.arrival[m] + 1] += 1
    first = np.cumsum(first)
    order = np.argsort(chained.arrival, kind="mergesort")
    leaving = np.zeros(chained.ticks, np.int64)
    heap = [(0.0, wide(0)) for _ in range(0)]
    count = 0
    for tick in range(chained.ticks):
        count -= leaving[tick]
        for i in range(first[tick], first[tick + 1]):
            m = order[i]
            if until[m] > tick:
                heapq.heappush(heap, (rate[m], m))
                leaving[until[m]] += 1
                count += 1
        while count > limit:
            _, m = heapq.heappop(heap)
            if until[m] > tick:
                leaving[until[m]] -= 1
                until[m] = tick
                count -= 1


@kernel
def gains(chained: Chains, until: Ints) -> Floats:
    """Return what each member gains that stays through this tick. O((members + partners) log)."""
    gain = np.zeros(until.size)
    for c in range(chained.member_start.size - 1):
        begin, end = chained.partner_start[c], chained.partner_start[c + 1]
        meeting = chained.meeting[begin:end]
        sums = np.zeros(end - begin + 1)
        sums[1:] = np.cumsum(chained.gain[begin:end])
        for m in range(chained.member_start[c], chained.member_start[c + 1]):
            if until[m] > chained.arrival[m]:
                low = np.searchsorted(meeting, chained.arrival[m], side="right")
                gain[m] = sums[np.searchsorted(meeting, until[m], side="right")] - sums[low]
    return gain


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
