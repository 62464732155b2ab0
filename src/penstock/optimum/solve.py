"""Find the best schedule of a problem, pool by pool, with the prices that prove how good it is."""

from typing import NamedTuple

import numpy as np

from penstock.core.windows import Floats, Ints
from penstock.optimum import flow, networks, prices
from penstock.optimum.problem import Chains, Pool, Problem, chains, simultaneous


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


def best(problem: Problem, pools: tuple[Pool, ...]) -> Best:
    """Find the best schedule.

    The sides of a fixed split gain independently of each other, so each is solved by itself.
    """
    return Best(tuple(exact(problem, pool) for pool in pools), simultaneous(problem))


def exact(problem: Problem, pool: Pool) -> Solution:
    """Solve one pool by the flow through its classes, and prove the solution by prices."""
    chained = chains(problem, pool)
    if not chained.row.size:
        return Solution(chained, pool, chained.arrival, np.zeros(max(chained.ticks - 1, 0)), 0.0, 0.0)
    pool = pool._replace(limit=min(pool.limit, chained.row.size))
    network, events = networks.by_class(chained, pool)
    found = flow.solve(network)
    price = flow.slot_prices(network, found.units, chained.ticks)
    return checked(chained, pool, flow.departures(chained, events, found.units), price)


def checked(chained: Chains, pool: Pool, until: Ints, price: Floats) -> Solution:
    """Put a schedule and prices together, after counting anew what each says.

    The bound exceeds the gain by the price of the places left empty, plus what each tuple would clear more at its
    best departure than at the one it has. It is equal if and only if complementary slackness holds everywhere.
    """
    if (prices.held(chained, until) > pool.limit).any() or (price < 0).any():
        raise AssertionError("a schedule must fit into its pool, and prices must not be negative")
    gain = prices.gained(chained, until)
    bound = prices.answer(chained, pool, price).bound
    return Solution(chained, pool, until, price, gain, max(gain, bound))


def ticks_of(problem: Problem, solution: Solution) -> tuple[Ints, Ints, Ints]:
    """Return the schedule of a pool: side, row, and the time through which it is kept; only rows that are kept."""
    kept = np.flatnonzero(solution.until > solution.chained.arrival)
    chained = solution.chained
    return chained.side[kept], chained.row[kept], problem.ticks[solution.until[kept]]
