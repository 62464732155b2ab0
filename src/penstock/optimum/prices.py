"""Bound what any schedule can reach, and find a good one, from prices for a place in memory at every tick.

If a place costs something after each tick, every tuple decides alone: it stays until the meeting at which what it has
gained, less what it has paid, is largest. What all tuples clear in this way, plus what all places would earn, is
never less than what any schedule gains (weak duality); at the right prices it is equal.
"""

import heapq
import math
import time
from typing import NamedTuple

import numpy as np

from penstock.core.jit import kernel, outlined, wide
from penstock.core.windows import Floats, Ints
from penstock.optimum.problem import Chains, Pool

FINER = 4  # blocks of prices are divided by this from level to level
ROUNDS = 60  # for each level
LASTING = 800  # ticks for each round of the last level: a round is O(ticks), the augmentations it saves O(ticks**2)
LATE = 10  # one round in so many, at the end of a level, enters the mean
STEPS = 0.4, 0.04  # in the first round and in the last; smaller, if there are more rounds
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


def search(chained: Chains, pool: Pool, end: float = math.inf) -> Floats:
    """Look for good prices: first one for all ticks, then one for each quarter, and so on down to single ticks.

    The idea: where too many want to stay, a place costs too little. A price moves by a share of itself, the more the
    further demand is from the limit; steps become smaller from round to round. Prices swing about the right
    ones, so the mean of the last rounds is tried too. Coarse blocks come first because what tuples do depends on what
    they pay in all.

    Parameters:
        end: when to stop, on the monotonic clock.

    Returns:
        The best prices found, of a place after each tick but the last.

    Cost: O(members + partners) a round, O(log ticks) rounds, and for single ticks one for every ``LASTING`` ticks.
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
        price = refined(chained, pool, price, block, usual, end)
        if block == 1 or time.monotonic() > end:
            return price
        block = -(-block // FINER)


def refined(chained: Chains, pool: Pool, price: Floats, block: int, usual: float, end: float) -> Floats:
    """Improve prices that are equal within blocks of ticks, until a time on the monotonic clock."""
    first = np.arange(0, price.size, block)
    size = np.diff(np.append(first, price.size))
    each = np.add.reduceat(price, first) / size
    trend, late = np.zeros(each.size), np.zeros(each.size)
    best, lowest = price, np.inf
    rounds = max(ROUNDS, chained.ticks // LASTING) if block == 1 else ROUNDS
    less = ROUNDS / rounds
    steps = np.geomspace(STEPS[0] * math.sqrt(less), STEPS[1] * less, rounds)
    for left, step in zip(range(rounds, 0, -1), steps, strict=True):
        price = np.repeat(each, size)
        asked = answer(chained, pool, price)
        if asked.bound < lowest:
            best, lowest = price, asked.bound
        demand = np.add.reduceat(asked.held, first) / (size * pool.limit)
        trend = INERTIA * trend + (1 - INERTIA) * np.clip(demand - 1, -1, 1)
        each = np.maximum(each + step * trend * np.maximum(each, LEAST * usual), 0)
        if left <= rounds // LATE:
            late += each / (rounds // LATE)
        if time.monotonic() > end:
            return best
    mean = np.repeat(late, size)
    return mean if answer(chained, pool, mean).bound < lowest else best


def schedule(chained: Chains, pool: Pool, prices: Floats) -> Ints:
    """Return the tick through which each member is kept when the one that is worth the least has to leave.

    The idea: what a member is worth is what it would still clear at these prices. It never falls below that of an
    older one of its class, so of each class only the oldest can be the one to leave. Nobody leaves while there is
    room: the better the prices, the better the schedule.

    Cost: O((members + partners) log), whatever the window.
    """
    paid = np.concatenate([[0.0], np.cumsum(prices)])
    classes = np.arange(chained.classes)
    meeting_class = np.repeat(classes, np.diff(chained.partner_start))
    total = np.concatenate([[0.0], np.cumsum(chained.gain)])
    gained = total[1:] - total[chained.partner_start[meeting_class]]
    first, begin = chained.member_start[:-1], chained.partner_start[:-1]
    held = Held(
        oldest=first.copy(),
        came=first.copy(),
        low=begin.copy(),
        high=begin.copy(),
        first=begin.copy(),
        last=begin.copy(),
        queue=np.empty(gained.size, np.int64),
        profit=gained - paid[chained.meeting],
        gained=gained,
        stamp=np.zeros(classes.size, np.int64),
    )
    comes, meets = (np.argsort(ticks, kind="stable") for ticks in (chained.arrival, chained.meeting))
    member_class = np.repeat(classes, np.diff(chained.member_start))
    until = chained.arrival.copy()
    keep_worthiest(chained, pool.limit, held, (comes, member_class[comes]), (meets, meeting_class[meets]), until)
    return until


class Held(NamedTuple):
    """What is held of each class, and the best of its meetings to come for the oldest of them."""

    oldest: Ints  # class -> its oldest member held
    came: Ints  # class -> members before this one have arrived
    low: Ints  # class -> the next meeting
    high: Ints  # class -> the next meeting to enter the queue
    first: Ints  # class -> where the queue begins
    last: Ints  # class -> where it ends
    queue: Ints  # meetings, each better than all after it; those of a class where its partners are
    profit: Floats  # meeting -> what a member has gained there that has met all partners, less what it has paid
    gained: Floats  # meeting -> what it has gained
    stamp: Ints  # class -> changes so far


@kernel
def keep_worthiest(
    chained: Chains, limit: int, held: Held, comes: tuple[Ints, Ints], meets: tuple[Ints, Ints], until: Ints
) -> None:
    """Go through the ticks: partners are met, members arrive, and while they are too many, the least worthy leaves.

    `comes` and `meets` are members and meetings by tick, with their classes.
    """
    heap = [(0.0, wide(0), wide(0)) for _ in range(0)]
    i = j = count = 0
    for tick in range(chained.ticks):
        while j < meets[0].size and chained.meeting[meets[0][j]] == tick:
            c = meets[1][j]
            held.low[c] += 1
            ended = held.low[c] == chained.partner_start[c + 1]
            while held.oldest[c] < held.came[c] and (
                ended or chained.last[held.oldest[c]] < chained.meeting[held.low[c]]
            ):
                until[held.oldest[c]] = tick
                held.oldest[c] += 1
                count -= 1
            rank(chained, held, heap, c)
            j += 1
        while i < comes[0].size and chained.arrival[comes[0][i]] == tick:
            c = comes[1][i]
            held.came[c] += 1
            count += 1
            if held.oldest[c] + 1 == held.came[c]:
                rank(chained, held, heap, c)
            i += 1
        while count > limit:
            _, c, stamp = heapq.heappop(heap)
            if stamp == held.stamp[c]:
                until[held.oldest[c]] = tick
                held.oldest[c] += 1
                count -= 1
                rank(chained, held, heap, c)


@outlined
def rank(chained: Chains, held: Held, heap: list[tuple[float, int, int]], c: int) -> None:
    """Say anew what the oldest member of a class is worth."""
    held.stamp[c] += 1
    if held.oldest[c] == held.came[c]:
        return
    high, first, last = held.high[c], held.first[c], held.last[c]
    while high < chained.partner_start[c + 1] and chained.meeting[high] <= chained.last[held.oldest[c]]:
        while last > first and held.profit[held.queue[last - 1]] < held.profit[high]:
            last -= 1
        held.queue[last] = high
        last += 1
        high += 1
    while held.queue[first] < held.low[c]:
        first += 1
    held.high[c], held.first[c], held.last[c] = high, first, last
    gained = held.gained[held.low[c] - 1] if held.low[c] > chained.partner_start[c] else 0.0
    heapq.heappush(heap, (held.profit[held.queue[first]] - gained, wide(c), held.stamp[c]))


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
