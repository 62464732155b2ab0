"""Find the best schedule by dynamic programming over everything that memory can hold (ODJA).

A vertex is a set of tuples held after a tick; an edge says who leaves at the next one, and gains what is met there.
Memory is kept full: a tuple leaves before its time only for another. So gains may be negative, and the least that a
join can gain is a question too.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np

from penstock.core.windows import Ints
from penstock.optimum.networks import COMBINED
from penstock.optimum.problem import Pool, Problem

Set = int  # of tuples of the pool, a bit for each, counted from the oldest one alive


class Moment(NamedTuple):
    """What happens at a tick, as sets counted from the oldest tuple that is alive before it."""

    gains: dict[int, float]  # place -> what a tuple held there gains
    meet: Set  # those places
    new: Set  # who arrives and can meet somebody later
    stay: Set  # who can still meet somebody later
    shift: int  # places by which the oldest tuple has moved afterwards


class Mark(NamedTuple):
    """The best way to a vertex: what it gains, and the vertex it passed in the middle."""

    gain: float
    middle: Set


class MemoryStates:
    """The memory-state graph of a pool.

    Parameters:
        problem, pool: the streams and the places; importances may be negative.
        least: whether the least gain is wanted, not the most.

    Cost: time O(ticks x states x limit), where states are the ways to choose `limit` of the tuples alive; memory
    O(states), however long the streams. The schedule takes O(log ticks) times as long, and no more memory: the vertex
    in the middle of the best way is found, then those in the middle of its halves, and so on.

    Departures: the paper counts a match after eviction in one sentence; here, as everywhere, tuples match first. A
    tuple that can meet nobody at a later tick leaves, so a memory for all but the newest tuples has one state.

    References: importance2006 §4.1, §4.2.
    """

    def __init__(self, problem: Problem, pool: Pool, *, least: bool = False) -> None:
        self.problem = problem
        self.limit = pool.limit
        self.least = least
        owner = np.concatenate([np.full(problem.sides[side].row.size, side) for side in pool.sides])
        tick, last, row, key, worth = (
            np.concatenate([getattr(problem.sides[side], name) for side in pool.sides])
            for name in ("tick", "last", "row", "key", "worth")
        )
        order = np.lexsort((row, owner, tick))
        self.side, self.row, self.tick, self.last = (column[order] for column in (owner, row, tick, last))
        self.key, self.worth = key[order], worth[order]
        ticks = problem.ticks.size
        self._came = np.searchsorted(self.tick, np.arange(ticks + 1))  # tick -> tuples that came before it
        gone = np.minimum.accumulate(np.where(self.last > self.tick, self.last, ticks)[::-1])[::-1]
        self._base = np.minimum(
            np.searchsorted(gone, np.arange(ticks + 1)), self._came
        )  # tick -> the oldest before it

    def value(self) -> float:
        """Return what the best schedule gains, besides simultaneous pairs; two instants are in memory at a time."""
        ways = self._forward(0, self.problem.ticks.size, 0)
        return self._best(ways)[1].gain

    def departures(self) -> Ints:
        """Return the tick through which each tuple (as in `side`, `row`) is kept; its arrival: not at all."""
        until = self.tick.copy()
        held: Set = 0
        for tick, after in enumerate(self._path(0, self.problem.ticks.size, 0, None)):
            shift = int(self._base[tick + 1] - self._base[tick])
            for place in places(held & ~(after << shift)):
                until[self._base[tick] + place] = tick
            held = after
        return until

    def _path(self, begin: int, end: int, first: Set, last: Set | None) -> Iterator[Set]:
        """Yield what is held after each tick from `begin` to `end` on the best way from one state to another."""
        if begin == end:
            return
        ways = self._forward(begin, end, first)
        if last is None:
            last = self._best(ways)[0]
        if end - begin == 1:
            yield last
            return
        middle = ways[last].middle
        del ways  # the halves make their own, one at a time
        half = (begin + end) // 2
        yield from self._path(begin, half, first, middle)
        yield from self._path(half, end, middle, last)

    def _best(self, ways: dict[Set, Mark]) -> tuple[Set, Mark]:
        choose = min if self.least else max
        return choose(ways.items(), key=lambda item: item[1].gain)

    def _forward(self, begin: int, end: int, first: Set) -> dict[Set, Mark]:
        """Go from one state through the ticks from `begin` to `end`; returns the best ways to all states there."""
        half = (begin + end) // 2
        ways = {first: Mark(0.0, first)}
        for tick in range(begin, end):
            moment = self._moment(tick)
            if tick == half:
                ways = {state: Mark(mark.gain, state) for state, mark in ways.items()}
            after: dict[Set, Mark] = {}
            for state, mark in ways.items():
                gain = mark.gain + sum(moment.gains[place] for place in places(state & moment.meet))
                present = state & moment.stay | moment.new
                over = present.bit_count() - self.limit
                for leaving in combinations(places(present), over) if over > 0 else [()]:
                    held = (present - sum(1 << place for place in leaving)) >> moment.shift
                    known = after.get(held)
                    if known is None or (gain < known.gain if self.least else gain > known.gain):
                        after[held] = Mark(gain, mark.middle)
            ways = after
        return ways

    def _moment(self, tick: int) -> Moment:
        base, came, ahead = (int(at) for at in (self._base[tick], self._came[tick], self._came[tick + 1]))
        alive = np.arange(base, ahead)
        stays = np.flatnonzero(self.last[alive] > tick)
        gains: dict[int, float] = {}
        if tick >= self.problem.start:
            combine = COMBINED[self.problem.combine]
            for side, other in enumerate(reversed(self.problem.sides)):
                begin, end = np.searchsorted(other.tick, [tick, tick + 1])
                for partner in range(begin, end):
                    same = (self.side[base:came] == side) & (self.key[base:came] == other.key[partner])
                    for place in np.flatnonzero(same & (self.last[base:came] >= tick)):
                        worth = float(combine(self.worth[base + place], other.worth[partner]))
                        gains[int(place)] = gains.get(int(place), 0.0) + worth
        fresh = stays[stays >= came - base]
        shift = int(self._base[tick + 1]) - base
        return Moment(gains, bits(gains), bits(fresh), bits(stays), shift)


def bits(places_of: "Ints | dict[int, float]") -> Set:
    """Return places as a set."""
    return sum(1 << int(place) for place in places_of)


def places(held: Set) -> Iterator[int]:
    """Yield the places of a set."""
    while held:
        least = held & -held
        yield least.bit_length() - 1
        held ^= least
