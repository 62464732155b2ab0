"""Solve a flow exactly, with OR-Tools, and find the prices that prove it."""

from typing import NamedTuple

import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from penstock.core.jit import kernel
from penstock.core.windows import Floats, Ints
from penstock.optimum.networks import Events, Network
from penstock.optimum.problem import Chains

LARGEST = 1 << 61  # the solver multiplies costs by the number of nodes and adds some
FINEST = 1 << 20  # units in which gains that are no whole numbers are rounded, at most


class Flow(NamedTuple):
    """A flow of the largest gain."""

    units: Ints  # on every arc
    gain: float


def scaled(gain: Floats, nodes: int) -> Ints:
    """Return gains as whole numbers, all multiplied by the same power of two: the fewest digits that hold them.

    If they hold too many digits for that, the last ones are rounded.
    """
    largest = float(np.abs(gain).max(initial=1.0))
    scale = 1.0
    while scale < FINEST and (gain * scale != np.rint(gain * scale)).any() and largest * scale * nodes < LARGEST / 8:
        scale *= 2
    return np.rint(gain * scale).astype(np.int64)


def solve(network: Network) -> Flow:
    """Send the flow through the network that gains the most.

    Cost: OR-Tools scales costs; on these networks the time grows about with the square of their size.

    References: das2003 §3.2.2; importance2006 §4.2.3 (ESJA: arcs that gain the importance of their pairs).
    """
    if network.tail.size == 0:
        return Flow(np.empty(0, np.int64), 0.0)
    solver = SimpleMinCostFlow()
    cost = -scaled(network.gain, network.nodes)
    solver.add_arcs_with_capacity_and_unit_cost(network.tail, network.head, network.capacity, cost)
    ends = np.array([network.source, network.sink])
    solver.set_nodes_supplies(ends, np.array([network.amount, -network.amount]))
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise AssertionError(f"a flow always exists here, but the solver says {status}")
    units = np.asarray(solver.flows(np.arange(network.tail.size)))
    return Flow(units, float(units @ network.gain))


def slot_prices(network: Network, units: Ints, ticks: int) -> Floats:
    """Return what a place in memory is worth after every tick but the last, given a flow of the largest gain.

    The idea: in the residual network of such a flow no cycle gains, so the longest way from the first tick to any
    other node is well defined. It rises from tick to tick by the price of a place between them.

    Cost: O(arcs) per sweep over the ticks, forth and back, until nothing changes: as many as the longest way turns.
    """
    forth = units < network.capacity
    back = units > 0
    tail = np.concatenate([network.tail[forth], network.head[back]])
    head = np.concatenate([network.head[forth], network.tail[back]])
    gain = np.concatenate([network.gain[forth], -network.gain[back]])
    order = np.argsort(tail, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(tail, minlength=network.nodes))])
    way = np.full(network.nodes, -np.inf)
    way[network.source] = 0.0
    longest_ways(start, head[order], gain[order], way)
    return np.diff(way[:ticks])


@kernel
def longest_ways(start: Ints, head: Ints, gain: Floats, way: Floats) -> None:
    """Find the longest way to every node, by a queue of nodes whose way has become longer."""
    nodes = way.size
    queue = np.empty(nodes + 1, np.int64)
    waits = np.zeros(nodes, np.bool_)
    first, last = 0, 0
    for node in range(nodes):
        if way[node] == 0.0:
            queue[last] = node
            waits[node] = True
            last += 1
    while first != last:
        node = queue[first]
        first = (first + 1) % queue.size
        waits[node] = False
        for arc in range(start[node], start[node + 1]):
            to = head[arc]
            longer = way[node] + gain[arc]
            if longer > way[to] + 1e-9:
                way[to] = longer
                if not waits[to]:
                    waits[to] = True
                    queue[last] = to
                    last = (last + 1) % queue.size


def departures(chained: Chains, events: Events, units: Ints) -> Ints:
    """Return the tick through which each member is kept, from the flow along the chains; its arrival: not at all."""
    held = np.zeros(events.tick.size, np.int64)
    stays = np.flatnonzero(events.room)
    held[stays] = units[units.size - stays.size :]
    until = chained.arrival.copy()
    leave(chained, events, held, until)
    return until


@kernel
def leave(chained: Chains, events: Events, held: Ints, until: Ints) -> None:
    """Let the oldest members leave where the flow along their chain falls."""
    for c in range(chained.member_start.size - 1):
        gone = came = chained.member_start[c]
        for e in range(events.start[c], events.start[c + 1]):
            came += events.new[e]
            while gone < came - held[e]:
                until[gone] = events.tick[e]
                gone += 1
