"""Solve a flow with OR-Tools: the second opinion, and ESJA as the papers would run it."""

import math
from typing import NamedTuple

import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from penstock.core.windows import Floats, Ints
from penstock.optimum.networks import Network

LARGEST = float(1 << 48)  # the solver multiplies costs by the number of nodes, and sums them up


class Flow(NamedTuple):
    """A flow of the largest gain."""

    units: Ints  # on every arc
    gain: float


def scaled(gain: Floats, nodes: int) -> Ints:
    """Return gains as whole numbers, all multiplied by the same power of two: the smallest for which they are whole.

    If they have more digits than the solver takes, the last ones are rounded.
    """
    largest = float(np.abs(gain).max(initial=0.0)) or 1.0
    most = 2.0 ** math.floor(math.log2(LARGEST / (largest * nodes)))
    scale = min(1.0, most)
    while scale < most and (gain * scale != np.rint(gain * scale)).any():
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
