"""Find the best schedule of a problem, pool by pool, with the prices that prove how good it is."""

import math
import time
from typing import NamedTuple

import numpy as np

from penstock.core.windows import Floats, Ints
from penstock.optimum import prices
from penstock.optimum.augment import Augmented
from penstock.optimum.problem import Chains, Pool, Problem, chains, simultaneous

WORK = 1 << 22  # nodes seen between two looks at the clock


class Solution(NamedTuple):
    """A schedule for the tuples of a pool, and prices that bound what any schedule gains."""

    chained: Chains
    pool: Pool
    until: Ints  # the tick through which each member is kept; its arrival: not at all
    prices: Floats  # of a place after each tick but the last
    gain: float
    bound: float


class Best(NamedTuple):
    """The solutions of all pools, and what is gained without memory."""

    pools: tuple[Solution, ...]
    simultaneous: float

    @property
    def value(self) -> float:
        """What the schedule gains."""
        return self.simultaneous + sum(solution.gain for solution in self.pools)

    @property
    def bound(self) -> float:
        """What no schedule exceeds."""
        return self.simultaneous + sum(solution.bound for solution in self.pools)


def best(problem: Problem, pools: tuple[Pool, ...], seconds: float | None = None) -> Best:
    """Find the best schedule, or after so many seconds a good one with a bound.

    The sides of a fixed split gain independently of each other, so each is solved by itself.
    """
    end = math.inf if seconds is None else time.monotonic() + seconds
    found = []
    for left, pool in zip(range(len(pools), 0, -1), pools, strict=True):
        share = end if seconds is None else time.monotonic() + (end - time.monotonic()) / left
        found.append(solved(problem, pool, share))
    return Best(tuple(found), simultaneous(problem))


def solved(problem: Problem, pool: Pool, end: float) -> Solution:
    """Solve one pool: look for good prices, then augment the flow they give until it is feasible.

    If that is not done at `end`, on the monotonic clock, the schedule is the better one of those that follow from the
    prices looked for and from the prices so far: augmentation lowers the bound before it raises the schedule.
    """
    chained = chains(problem, pool)
    if not chained.row.size:
        return Solution(chained, pool, chained.arrival, np.zeros(max(chained.ticks - 1, 0)), 0.0, 0.0)
    pool = pool._replace(limit=min(pool.limit, chained.row.size))
    tried = [prices.search(chained, pool, end)]
    if time.monotonic() < end:
        flow = Augmented(chained, pool, tried[0])
        while not flow.balanced and time.monotonic() < end:
            flow.advance(WORK)
        tried.append(flow.prices())
        if flow.balanced:
            return checked(chained, pool, flow.until(), tried[-1])
    schedules = (prices.schedule(chained, pool, price) for price in tried)
    until = max(schedules, key=lambda each: float(prices.gains(chained, each).sum()))
    return checked(chained, pool, until, tried[-1])


def checked(chained: Chains, pool: Pool, until: Ints, price: Floats) -> Solution:
    """Put a schedule and prices together, after counting anew what each says.

    The bound exceeds the gain by the price of the places left empty, plus what each tuple would clear more at its
    best departure than at the one it has. It is equal if and only if complementary slackness holds everywhere.
    """
    if (prices.held(chained, until) > pool.limit).any() or (price < 0).any():
        raise AssertionError("a schedule must fit into its pool, and prices must not be negative")
    gain = float(prices.gains(chained, until).sum())
    bound = prices.answer(chained, pool, price).bound
    return Solution(chained, pool, until, price, gain, max(gain, bound))


def ticks_of(problem: Problem, solution: Solution) -> tuple[Ints, Ints, Ints]:
    """Return the schedule of a pool: side, row, and the time through which it is kept; only rows that are kept."""
    kept = np.flatnonzero(solution.until > solution.chained.arrival)
    chained = solution.chained
    return chained.side[kept], chained.row[kept], problem.ticks[solution.until[kept]]
