"""Write the offline problem as a flow: three networks, in which a unit of flow is a place in memory."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import kernel
from penstock.core.windows import Floats, Ints
from penstock.errors import InputError
from penstock.optimum.problem import Chains, Pool, Problem


class Network(NamedTuple):
    """Arcs with a capacity and a gain for each unit of flow; `amount` units go from the source to the sink."""

    tail: Ints
    head: Ints
    capacity: Ints
    gain: Floats
    nodes: int
    source: int
    sink: int
    amount: int


class Events(NamedTuple):
    """The chains of all classes, one event after the other."""

    tick: Ints
    new: Ints  # members that arrive
    met: npt.NDArray[Any]  # whether partners arrive
    gain: Floats  # what they bring to each member held
    room: Ints  # members that can be held until the next event and still meet somebody; 0: the chain ends
    start: Ints  # class -> its first event


def by_class(chained: Chains, pool: Pool) -> tuple[Network, Events]:
    """Make the network of O(tuples) nodes and arcs, whatever the window.

    The idea: tuples of a class differ in nothing but their expiry, so of c that are kept, it may as well be the
    newest c. One chain for each class, over the ticks at which a member or a partner arrives; the flow along it is
    how many are kept. It comes in where members arrive, at most so many, and goes out where partners have been met.
    Nodes 0, 1, ... are the ticks, joined by arcs for places that are free.

    Cost: O(members + partners).
    """
    size = chained.row.size + chained.meeting.size
    events = Events(
        tick=np.empty(size, np.int64),
        new=np.empty(size, np.int64),
        met=np.empty(size, np.bool_),
        gain=np.empty(size),
        room=np.empty(size, np.int64),
        start=np.empty(chained.classes + 1, np.int64),
    )
    count = lay_out(chained, events)
    shortened = {name: column[:count] for name, column in events._asdict().items() if name != "start"}
    events = events._replace(**shortened)
    ticks = chained.ticks
    node = np.arange(ticks, ticks + count)
    comes, goes, stays = np.flatnonzero(events.new), np.flatnonzero(events.met), np.flatnonzero(events.room)
    arcs = [
        _free_places(ticks, pool),
        (events.tick[comes], node[comes], events.new[comes], np.zeros(comes.size)),
        (node[goes], events.tick[goes], np.full(goes.size, pool.limit + 1), np.zeros(goes.size)),
        (node[stays], node[stays] + 1, events.room[stays], events.gain[stays + 1]),
    ]
    return _network(arcs, ticks + count, 0, ticks - 1, pool.limit), events


@kernel
def lay_out(chained: Chains, events: Events) -> int:
    """Write down the events of every class; returns how many."""
    at = 0
    for c in range(chained.member_start.size - 1):
        events.start[c] = at
        i, end = chained.member_start[c], chained.member_start[c + 1]
        j, last = chained.partner_start[c], chained.partner_start[c + 1]
        gone = i
        while i < end or j < last:
            tick = chained.ticks
            if i < end:
                tick = min(tick, chained.arrival[i])
            met = j < last and chained.meeting[j] <= tick
            if met:
                tick = chained.meeting[j]
            begin = i
            while i < end and chained.arrival[i] == tick:
                i += 1
            events.tick[at] = tick
            events.new[at] = i - begin
            events.met[at] = met
            events.gain[at] = chained.gain[j] if met else 0.0
            j += met
            while gone < i and (j == last or chained.last[gone] < chained.meeting[j]):
                gone += 1
            events.room[at] = i - gone
            at += 1
    events.start[chained.member_start.size - 1] = at
    return at


def by_tuple(chained: Chains, pool: Pool) -> Network:
    """Make the compact network: one chain for each tuple, over the ticks at which it meets partners.

    Nodes: ticks + pairs that can be met.

    References: das2003 §3.2, drawn smaller.
    """
    member, partner = _options(chained)
    ticks = chained.ticks
    node = ticks + np.arange(member.size)
    first = np.ones(member.size, np.bool_)
    first[1:] = member[1:] != member[:-1]
    tail = np.where(first, chained.arrival[member], node - 1)
    one, none = np.ones(member.size, np.int64), np.zeros(member.size)
    arcs = [
        _free_places(ticks, pool),
        (tail, node, one, chained.gain[partner]),
        (node, chained.meeting[partner], one, none),
    ]
    return _network(arcs, ticks + member.size, 0, ticks - 1, pool.limit)


def _options(chained: Chains) -> tuple[Ints, Ints]:
    """Return every member with every tick at which it meets partners, as places in `chained`."""
    members, partners = [], []
    for c in range(chained.classes):
        begin, end = chained.partner_start[c : c + 2]
        for m in range(chained.member_start[c], chained.member_start[c + 1]):
            low = begin + np.searchsorted(chained.meeting[begin:end], chained.arrival[m], side="right")
            high = begin + np.searchsorted(chained.meeting[begin:end], chained.last[m], side="right")
            partners.append(np.arange(low, high))
            members.append(np.full(high - low, m))
    none = np.empty(0, np.int64)
    return np.concatenate([none, *members]), np.concatenate([none, *partners])


def by_moment(problem: Problem, pool: Pool) -> Network:
    """Make the paper's network: a node for each tuple and each tick at which it may be in memory.

    The flow starts with tuples that arrive first, as many as there are places. At each tick it stays with its
    tuple, or goes on to one that arrives at that tick.

    Nodes: (rows of both sides) x window.

    Raises:
        InputError: unless one tuple arrives on each side at each tick, each is alive for as many ticks, and the
            limit is small enough that memory is always full.

    References: das2003 §3.2.1.
    """
    ticks = problem.ticks.size
    window = int(problem.sides[0].last[0]) + 1 if problem.sides[0].row.size else 0
    for side in problem.sides:
        steady = side.row.size == ticks and (side.tick == np.arange(ticks)).all()
        if not steady or (side.last != np.minimum(side.tick + window - 1, ticks - 1)).any():
            raise InputError("streams", "a tick without its tuple", "the paper's network has one a side and tick")
    width = len(pool.sides)
    first = -(-pool.limit // width)  # ticks whose tuples fill the memory
    if first > min(window - 1, ticks):
        want = f"the paper's network is for at most {width * min(window - 1, ticks)}"
        raise InputError("memory", f"{pool.limit} places", want)
    tuples = np.arange(ticks * width)  # by tick, then side
    arrival = tuples // width
    lives = np.minimum(window, ticks - arrival)
    base = np.concatenate([[0], np.cumsum(lives)])
    owner = np.repeat(tuples, lives)
    node = np.arange(owner.size)
    now = arrival[owner] + node - base[owner]
    sides = np.array(pool.sides)[owner % width]
    keys = np.stack([side.key for side in problem.sides])
    worth = np.stack([side.worth for side in problem.sides])
    meets = (keys[sides, arrival[owner]] == keys[1 - sides, now]) & (now > arrival[owner]) & (now >= problem.start)
    gains = np.where(meets, COMBINED[problem.combine](worth[sides, arrival[owner]], worth[1 - sides, now]), 0.0)
    stays = np.flatnonzero(owner[1:] == owner[:-1])
    arcs = [(stays, stays + 1, np.ones(stays.size, np.int64), gains[stays + 1])]
    replaced = np.flatnonzero(now > arrival[owner])
    for other in range(width):
        follower = base[now[replaced] * width + other]
        arcs.append((replaced, follower, np.ones(replaced.size, np.int64), np.zeros(replaced.size)))
    source, sink = owner.size, owner.size + 1
    begin = base[: first * width]  # one more than there are places, if those are odd in number
    arcs.append((np.full(begin.size, source), begin, np.ones(begin.size, np.int64), np.zeros(begin.size)))
    ending = np.flatnonzero(now == ticks - 1)
    arcs.append((ending, np.full(ending.size, sink), np.ones(ending.size, np.int64), np.zeros(ending.size)))
    return _network(arcs, owner.size + 2, source, sink, pool.limit)


COMBINED = (np.minimum, np.maximum, np.add, np.multiply, lambda mine, theirs: (mine + theirs) / 2)
Arcs = tuple[Ints, Ints, Ints, Floats]


def _free_places(ticks: int, pool: Pool) -> Arcs:
    tick = np.arange(ticks - 1)
    return tick, tick + 1, np.full(ticks - 1, pool.limit + 1), np.zeros(ticks - 1)  # never the bottleneck


def _network(arcs: list[Arcs], nodes: int, source: int, sink: int, amount: int) -> Network:
    tail, head, capacity, gain = (np.concatenate(column) for column in zip(*arcs, strict=True))
    return Network(tail, head, capacity, gain, nodes, source, sink, amount)
