"""Solve the flow of a pool exactly, starting from prices that are nearly right.

At given prices every tuple has a best departure (``prices``). Their flow is optimal but for one thing: at some ticks
more places become free than are taken, at others fewer. Each augmentation moves places from a tick that has too many
to the nearest one that has too few, along arcs where that costs the least, and lowers prices on its way so that the
flow stays optimal for them. When no tick has too many, the flow is feasible, and optimal. The better the prices, the
fewer and shorter the ways.
"""

import heapq
import math
from typing import NamedTuple

import numpy as np

from penstock.core.jit import kernel, outlined, wide
from penstock.core.windows import Floats, Ints
from penstock.optimum import prices
from penstock.optimum.networks import Events, Network, by_class
from penstock.optimum.problem import Chains, Pool

UNIT = 16  # parts of a gain in which prices are counted
LARGEST = float(1 << 52)  # whole numbers that a float holds
FAR = 1 << 62


class Arcs(NamedTuple):
    """A network as kernels see it: each node with its arcs, those it is the head of included."""

    start: Ints  # node -> its first entry
    entry: Ints  # 2 * arc, + 1 if the node is its head
    tail: Ints
    head: Ints
    capacity: Ints
    gain: Ints  # whole
    tick: Ints  # of each node


class State(NamedTuple):
    """A flow, and the value of one more place at each node, for which it is optimal."""

    units: Ints  # arc -> flow
    value: Ints  # node -> what a place there brings from then on
    excess: Ints  # node -> flow that comes in and does not go out


class Search(NamedTuple):
    """Room for the search of a way; the columns are as long as there are nodes."""

    number: Ints  # [searches so far, nodes seen so far]
    seen: Ints  # the last search that saw the node
    done: Ints  # the last search that is done with it
    loss: Ints  # what a place loses on the way there
    way: Ints  # the entry by which it gets there
    order: Ints  # nodes in the order in which they were done
    target: Ints  # those of them that have too few places


class Augmented:
    """The flow of a pool on its way from prices to the optimum.

    Parameters:
        chained, pool: the tuples and their places.
        price: of a place after each tick but the last.

    Cost: O(members + partners), and then one Dijkstra search for each augmentation, over what is near.

    References: successive shortest paths (Ahuja, Magnanti and Orlin, Network Flows, chapter 9), begun at prices.
    """

    def __init__(self, chained: Chains, pool: Pool, price: Floats) -> None:
        self.chained = chained
        self.pool = pool
        self.network, self.events = by_class(chained, pool)
        self.scale = scale_of(chained.gain, price)
        gain = np.rint(self.network.gain * self.scale).astype(np.int64)
        self.arcs = arcs_of(self.network, gain, np.append(np.arange(chained.ticks), self.events.tick))
        self.state = self._start(price)
        nodes = self.network.nodes
        none = [np.zeros(nodes, np.int64) for _ in range(6)]
        self._search = Search(np.zeros(2, np.int64), *none)

    def _start(self, price: Floats) -> State:
        """Let every tuple decide at these prices, in whole numbers, and write that down as a flow."""
        chained, events, ticks = self.chained, self.events, self.chained.ticks
        whole = chained._replace(gain=np.rint(chained.gain * self.scale))
        paid = np.rint(np.concatenate([[0.0], np.cumsum(price)]) * self.scale)
        answer = prices.answer(whole, self.pool, np.diff(paid))
        new, kept = np.zeros(events.tick.size, np.int64), np.zeros(events.tick.size, np.int64)
        enter(chained, events, answer.until, new, kept)
        stays = np.flatnonzero(events.room)
        before = np.zeros(events.tick.size, np.int64)
        before[stays + 1] = kept[stays]
        free = np.where(np.diff(paid) == 0, np.maximum(self.pool.limit - answer.held, 0), 0)
        units = [free, new[events.new > 0], (before + new - kept)[events.met], kept[stays]]
        value = np.empty(self.network.nodes, np.int64)
        value[:ticks] = -paid
        gain = np.rint(events.gain * self.scale).astype(np.int64)
        evaluate(events._replace(gain=gain), new, kept, value[:ticks], value[ticks:])
        limit = np.array([self.pool.limit])
        taken = free + answer.held
        excess = np.zeros(self.network.nodes, np.int64)
        excess[:ticks] = np.concatenate([limit, taken]) - np.concatenate([taken, limit])
        return State(np.concatenate(units), value, excess)

    @property
    def balanced(self) -> bool:
        """Whether the flow is feasible, and so optimal."""
        return not (self.state.excess > 0).any()

    def advance(self, work: int) -> None:
        """Augment until the flow is feasible, or about so many nodes have been seen."""
        augment(self.arcs, self.state, self._search, self._search.number[1] + work)

    def prices(self) -> Floats:
        """Return the price of a place after each tick but the last."""
        return -np.diff(self.state.value[: self.chained.ticks]) / self.scale

    def until(self) -> Ints:
        """Return the tick through which each member is kept; before the flow is feasible, they may be too many."""
        until = self.chained.arrival.copy()
        kept = np.zeros(self.events.tick.size, np.int64)
        stays = np.flatnonzero(self.events.room)
        kept[stays] = self.state.units[self.state.units.size - stays.size :]
        leave(self.chained, self.events, kept, until)
        return until


def scale_of(gain: Floats, price: Floats) -> float:
    """Return the number by which gains become whole, and prices nearly so.

    It is a power of two, and small enough that sums of them are exact; digits beyond that are rounded.
    """
    most = 2.0 ** math.floor(math.log2(LARGEST / (float(gain.sum() + price.sum()) or 1.0)))
    scale = min(1.0, most)
    while scale < most and (gain * scale != np.rint(gain * scale)).any():
        scale *= 2
    return min(scale * UNIT, most)


def arcs_of(network: Network, gain: Ints, tick: Ints) -> Arcs:
    """Give each node its arcs."""
    ends = np.concatenate([network.tail, network.head])
    number = np.arange(network.tail.size)
    entry = np.concatenate([2 * number, 2 * number + 1])[np.argsort(ends, kind="stable")]
    start = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=network.nodes))])
    return Arcs(start, entry, network.tail, network.head, network.capacity, gain, tick)


@kernel
def enter(chained: Chains, events: Events, until: Ints, new: Ints, kept: Ints) -> None:
    """Count at each event the members that enter and those that are kept."""
    for c in range(chained.member_start.size - 1):
        begin, end = events.start[c], events.start[c + 1]
        ticks = events.tick[begin:end]
        for m in range(chained.member_start[c], chained.member_start[c + 1]):
            if until[m] > chained.arrival[m]:
                first = begin + np.searchsorted(ticks, chained.arrival[m])
                new[first] += 1
                kept[first] += 1
                kept[begin + np.searchsorted(ticks, until[m])] -= 1
        for e in range(begin + 1, end):
            kept[e] += kept[e - 1]


@kernel
def leave(chained: Chains, events: Events, kept: Ints, until: Ints) -> None:
    """Let the oldest members leave where the flow along their chain falls."""
    for c in range(chained.member_start.size - 1):
        gone = came = chained.member_start[c]
        for e in range(events.start[c], events.start[c + 1]):
            came += events.new[e]
            while gone < came - kept[e]:
                until[gone] = events.tick[e]
                gone += 1


@kernel
def evaluate(events: Events, new: Ints, kept: Ints, at_tick: Ints, value: Ints) -> None:
    """Find values for the nodes of the chains for which the tuples' own decisions are optimal.

    An arc that could carry more must not gain, one that carries flow must not lose. Along a chain that leaves each
    node an interval, which depends on the one before: narrow them forth, then choose back.
    """
    low = np.empty(value.size, np.int64)
    high = np.empty(value.size, np.int64)
    for c in range(events.start.size - 1):
        first, end = events.start[c], events.start[c + 1]
        for e in range(first, end):
            free = at_tick[events.tick[e]]
            linked = e > first and events.room[e - 1] > 0
            before = kept[e - 1] if linked else 0
            low[e] = free if events.met[e] or new[e] > 0 else -FAR
            leaves = before + new[e] - kept[e] > 0
            high[e] = free if leaves or new[e] < events.new[e] else FAR
            if linked and before < events.room[e - 1] and high[e - 1] < FAR:
                high[e] = min(high[e], high[e - 1] - events.gain[e])
            if before > 0 and low[e - 1] > -FAR:
                low[e] = max(low[e], low[e - 1] - events.gain[e])
        for e in range(end - 1, first - 1, -1):
            if e + 1 < end and events.room[e] > 0:
                after = value[e + 1] + events.gain[e + 1]
                if kept[e] < events.room[e]:
                    low[e] = max(low[e], after)
                if kept[e] > 0:
                    high[e] = min(high[e], after)
            if low[e] == -FAR:
                low[e] = min(high[e], at_tick[events.tick[e]])
            value[e] = low[e]


@kernel
def augment(arcs: Arcs, state: State, search: Search, work: int) -> None:
    """Move places from ticks that have too many to the nearest that have too few."""
    for source in range(state.excess.size):
        while state.excess[source] > 0 and search.number[1] < work:
            for i in range(find(arcs, state, search, source)):
                target = search.target[i]
                amount = min(state.excess[source], -state.excess[target])
                node = target
                while node != source:
                    arc, back = search.way[node] >> 1, search.way[node] & 1
                    amount = min(amount, state.units[arc] if back else arcs.capacity[arc] - state.units[arc])
                    node = arcs.head[arc] if back else arcs.tail[arc]
                node = target
                while node != source:
                    arc, back = search.way[node] >> 1, search.way[node] & 1
                    state.units[arc] += -amount if back else amount
                    node = arcs.head[arc] if back else arcs.tail[arc]
                state.excess[source] -= amount
                state.excess[target] += amount


@outlined
def find(arcs: Arcs, state: State, search: Search, source: int) -> int:
    """Find the nearest nodes that have too few places (Dijkstra), and lower the values of those that are nearer.

    Of nodes that are as near, those go first that are nearer in time: large parts of the network lose nothing.

    Returns how many: together they have room for all that is too much at the source, if their ways do not cross.
    """
    search.number[0] += 1
    number = search.number[0]
    search.seen[source] = number
    search.loss[source] = 0
    heap = [(wide(0), wide(0), wide(source))]
    count = targets = 0
    wanted = state.excess[source]
    loss = wide(0)
    while wanted > 0 and len(heap) > 0:
        loss, _, node = heapq.heappop(heap)
        if search.done[node] == number:
            continue
        search.done[node] = number
        search.order[count] = node
        count += 1
        if state.excess[node] < 0:
            search.target[targets] = node
            targets += 1
            wanted += state.excess[node]
        for at in range(arcs.start[node], arcs.start[node + 1]):
            arc, back = arcs.entry[at] >> 1, arcs.entry[at] & 1
            if (state.units[arc] == 0) if back else (state.units[arc] >= arcs.capacity[arc]):
                continue
            to = arcs.tail[arc] if back else arcs.head[arc]
            if search.done[to] == number:
                continue
            gain = -arcs.gain[arc] if back else arcs.gain[arc]
            further = loss + state.value[node] - gain - state.value[to]
            if search.seen[to] != number or further < search.loss[to]:
                search.seen[to] = number
                search.loss[to] = further
                search.way[to] = arcs.entry[at]
                heapq.heappush(heap, (further, abs(arcs.tick[to] - arcs.tick[source]), to))
    for i in range(count):
        state.value[search.order[i]] -= loss - search.loss[search.order[i]]
    search.number[1] += count
    return targets
