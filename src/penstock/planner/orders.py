"""Find an order: the cheapest, every one, or the paper's heuristic."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.errors import InputError
from penstock.planner.cost import Floats, Model, Order

EXHAUSTIVE = 9  # streams whose orders are all listed

TIE = 1e-12  # costs so close, in proportion, differ by rounding only


class Costs(NamedTuple):
    """Every order with its cost."""

    orders: npt.NDArray[np.int8]
    costs: Floats


def cheapest(steps: Floats, first: int | None = None) -> Order:
    """Return the order of least cost.

    The idea: what the next loop costs depends on the set of the loops outside it, not on their order. So of all
    orders that begin with the same set, only the cheapest can be the beginning of the best: the others are pruned.

    Parameters:
        steps: what each next loop costs after each set of loops, from ``Model.searches``.
        first: the stream that comes first where it is as cheap as another: the new tuples are fewer than a window.

    Cost: O(n 2^n) instead of n!.
    """
    n = steps.shape[1]
    table: list[list[float]] = steps.tolist()
    best = [0.0, *[float("inf")] * ((1 << n) - 1)]
    last = [-1] * (1 << n)
    favourite = 0 if first is None else 1 << first
    for outside in range(1 << n):
        paid = best[outside]
        for place in range(n):
            joined = outside | 1 << place
            if joined == outside:
                continue
            cost = paid + table[outside][place]
            if cost < best[joined] or (outside == favourite and cost <= best[joined] * (1 + TIE)):
                best[joined], last[joined] = cost, place
    order: list[int] = []
    left = (1 << n) - 1
    while left:
        order.append(last[left])
        left ^= 1 << last[left]
    return tuple(reversed(order))


def every_order(steps: Floats) -> Costs:
    """Return all orders with their costs, those that a join graph forbids left out.

    Raises:
        InputError: if there are more than 9 streams.

    Cost: O(n!).
    """
    n = steps.shape[1]
    if n > EXHAUSTIVE:
        raise InputError("streams", f"{n}", f"all orders are listed for up to {EXHAUSTIVE} streams only")
    orders = np.zeros((1, 0), np.int8)
    sets, costs = np.zeros(1, np.int64), np.zeros(1)
    for _ in range(n):
        at, place = np.nonzero((sets[:, None] >> np.arange(n)) & 1 == 0)
        costs = costs[at] + steps[sets[at], place]
        orders = np.column_stack([orders[at], place.astype(np.int8)])
        sets = sets[at] | 1 << place
    allowed = np.isfinite(costs)
    return Costs(orders[allowed], costs[allowed])


def cost_of(steps: Floats, order: Order) -> float:
    """Return what one order costs."""
    outside, paid = 0, 0.0
    for place in order:
        paid += float(steps[outside, place])
        outside |= 1 << place
    return paid


def heuristic(model: Model, steps: Floats, source: int | None = None) -> Order:
    """Return the order that the paper's heuristic finds.

    The idea: the smallest binary join first, in both orders; then always the window with the smallest binary join to
    one already chosen. Streams faster than the mean are also tried further up, but not first. The cheapest of what
    was tried wins.

    Parameters:
        source: the stream whose new tuples are processed, for an order of its own (GENERAL LAZY): its window is then
            as long as τ.

    Cost: O(n^f) orders are tried, f being the number of fast streams.

    References: golab2003 §5.1, §5.2, §5.3.
    """
    fast = set(np.flatnonzero(model.rate > model.rate.mean()).tolist())
    tried = (order for base in _bases(model, steps, source) for order in _moved_up(base, fast))
    return min(tried, key=lambda order: cost_of(steps, order))


def greedy(model: Model, steps: Floats, source: int | None = None) -> Order:
    """Return the order of the heuristic without its augmentation: fast streams stay where they are.

    References: golab2003 §5.1.
    """
    return min(_bases(model, steps, source), key=lambda order: cost_of(steps, order))


def _bases(model: Model, steps: Floats, source: int | None) -> list[Order]:
    """Return the greedy orders: from the smallest join on, or from where an order must begin."""
    joins = model.binary(source)
    first = np.flatnonzero(np.isfinite(steps[0]))
    starts = _pairs(joins) if first.size == steps.shape[1] else [(int(place),) for place in first]
    return [_greedy(joins, start) for start in starts]


def _pairs(joins: Floats) -> list[Order]:
    """Return the pair with the smallest join, in both orders."""
    one, other = min(itertools.combinations(range(joins.shape[0]), 2), key=lambda pair: float(joins[pair]))
    return [(one, other), (other, one)]


def _greedy(joins: Floats, order: Order) -> Order:
    """Go on with the window that has the smallest binary join to one in the order."""
    rest = [place for place in range(joins.shape[0]) if place not in order]
    while rest:
        place = min(rest, key=lambda place: float(joins[list(order), place].min()))
        order = (*order, place)
        rest.remove(place)
    return order


def _moved_up(order: Order, fast: set[int]) -> Iterator[Order]:
    """Yield the order, and all that come of moving fast streams up, but not to the first place."""
    movers = [place for place in order[2:] if place in fast]

    def moved(order: Order, movers: list[int]) -> Iterator[Order]:
        if not movers:
            yield order
            return
        mover, *others = movers
        rest = tuple(place for place in order if place != mover)
        for at in range(1, order.index(mover) + 1):
            yield from moved((*rest[:at], mover, *rest[at:]), others)

    return moved(order, movers)
