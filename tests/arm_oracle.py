"""ARM by brute force: everything counted anew from what came, in plain Python; imports nothing of ours.

The order of keys decides where two choices are equally good; whoever calls says it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import NamedTuple

SPANS = 8  # a choice every eighth of a span; counts weigh half after eight spans
DOUBT, BETTER, SPARE = 0.1, 0.9, 0.35
Came = tuple[int, int, Hashable]  # (side, tick, key), in order of time


class Offer(NamedTuple):
    """Sides of a key that can be given up together: what that frees and whom it harms, in whole and in part."""

    key: Hashable
    sides: tuple[int, ...]  # the one that goes first is first
    second: bool  # the other side of a key whose first side is an offer of its own
    freed: float
    harm: float
    partners: float
    own: float
    first: float

    def part(self, used: float) -> float:
        """Return how many tuples are harmed when only so many are freed."""
        if used <= 0:
            return 0.0
        if used >= self.freed:
            return self.harm
        if used <= self.first:
            return min(meeting(self.partners, used) + self.own * used, self.harm)
        one = meeting(self.partners, self.first) + self.own * self.first
        return one + (self.harm - one) * (used - self.first) / (self.freed - self.first)

    @property
    def rate(self) -> float:
        return self.harm / max(self.freed, 1e-300)


def meeting(mine: float, theirs: float) -> float:
    """Return how many of some tuples meet somebody, if so many partners come for each."""
    return mine * (1.0 - math.exp(-theirs))


def offers_of(key: Hashable, mine: list[float], held: list[float], later: list[float]) -> list[Offer]:
    """Return what a key offers: both sides at once, or one and then the other."""
    harm = [meeting(mine[s], later[s]) + meeting(mine[1 - s], held[s]) for s in range(2)]
    both = meeting(mine[0], later[0] + held[1]) + meeting(mine[1], later[1] + held[0])
    first = int(held[0] == 0 or (held[1] > 0 and harm[0] * held[1] > harm[1] * held[0]))
    other = 1 - first
    own = meeting(mine[first], later[first]) / held[first] if held[first] > 0 else 0.0
    if held[other] > 0 and (both - harm[first]) * held[first] <= harm[first] * held[other]:
        return [Offer(key, (first, other), False, held[0] + held[1], both, mine[other], own, held[first])]
    found = [Offer(key, (first,), False, held[first], harm[first], mine[other], own, held[first])]
    if held[other] > 0:
        rest = both - harm[first]
        found.append(Offer(key, (other,), True, held[other], rest, 0.0, rest / held[other], held[other]))
    return found


class Chosen(NamedTuple):
    """What is given up, by its place among the offers, which of it in part, and how many tuples that harms."""

    taken: set[int]
    used: int
    harm: float


class Choice(NamedTuple):
    """Offers among which to choose, and how much must be freed."""

    offers: list[Offer]
    need: float

    def freed(self, some: set[int]) -> float:
        return sum((self.offers[i].freed for i in sorted(some)), 0.0)

    def harm(self, some: set[int]) -> float:
        return sum((self.offers[i].harm for i in sorted(some)), 0.0)

    def stays(self, i: int, some: set[int]) -> bool:
        """Say whether the first side of a key must stay given up: the other one is, too."""
        one = self.offers[i]
        if one.second or len(one.sides) > 1 or i + 1 not in some:
            return False
        return self.offers[i + 1].second and self.offers[i + 1].key == one.key

    def saved(self, i: int, over: float) -> float:
        """Return how many are not harmed if an offer is used in part, since so much more is freed than needed."""
        return self.offers[i].harm - self.offers[i].part(self.offers[i].freed - over)

    def in_part(self, some: set[int]) -> int:
        """Return which one is best used in part, the first of several; -1: none."""
        over = self.freed(some) - self.need
        found = {i: self.saved(i, over) for i in sorted(some) if self.offers[i].freed >= over}
        most = max(found.values(), default=0.0)
        return next(i for i in found if found[i] == most) if most > 0 else -1

    def worst_first(self) -> list[int]:
        return sorted(range(len(self.offers)), key=lambda i: -self.offers[i].harm)

    def lean(self, taken: set[int]) -> Chosen:
        """Take back what harms more than to use more of the one that is used in part."""
        some, over, used = set(taken), self.freed(taken), self.in_part(taken)
        for i in self.worst_first() if used >= 0 else []:
            fewer = over - self.offers[i].freed
            if i in some and i != used and fewer >= self.need and not self.stays(i, some):
                more = self.saved(used, over - self.need) - self.saved(used, fewer - self.need)
                if more < self.offers[i].harm:
                    some.discard(i)
                    over = fewer
        return Chosen(some, used, self.harm(some) - (self.saved(used, over - self.need) if used >= 0 else 0.0))

    def bare(self, taken: set[int]) -> Chosen:
        """Take back whatever is not needed."""
        some, over = set(taken), self.freed(taken)
        for i in self.worst_first():
            if i in some and over - self.offers[i].freed >= self.need and not self.stays(i, some):
                some.discard(i)
                over -= self.offers[i].freed
        used = self.in_part(some)
        return Chosen(some, used, self.harm(some) - (self.saved(used, over - self.need) if used >= 0 else 0.0))


def best(offers: list[Offer], begin: set[int], need: float, spare: float) -> Chosen:
    """Take the cheapest until enough is freed, then take back what is not needed, in two ways; the better one."""
    taken = set(begin)
    enough = Choice(offers, need).freed(taken)
    for i in sorted(range(len(offers)), key=lambda i: offers[i].rate):
        if enough < need and i not in taken:
            taken.add(i)
            enough += offers[i].freed
    choice = Choice(offers, max(need, min(need + spare, Choice(offers, need).freed(taken))))
    lean, bare = choice.lean(taken), choice.bare(taken)
    return lean if lean.harm <= bare.harm else bare


class Arm:
    """What is worth keeping, chosen anew from time to time from all that came."""

    def __init__(
        self, spans: tuple[int, int], limit: int, place: Callable[[Hashable], int], half_life: int | None
    ) -> None:
        self.spans, self.room, self.place, self.life = spans, limit, place, half_life
        self.came: list[Came] = []  # until the last tick
        self.turns: list[int] = []  # when it was chosen
        self.begin: int | None = None
        self.base: list[int | None] = [None, None]
        self.waits = 1
        self.offers: list[Offer] = []
        self.full = self.just_shed = False
        self.worth: dict[tuple[Hashable, int], float] = {}
        self.given: set[tuple[Hashable, int]] = set()

    def weight(self, side: int, tick: int) -> float:
        """Return what an arrival at a tick weighs; twice as much a half-life later."""
        if self.life is None:
            return 1.0
        base = self.base[side]
        assert base is not None
        halves, rest = divmod(tick - base, self.life)
        return float(2.0 ** (rest / self.life) * 2.0**halves)

    def tick(self, now: int, held: int) -> None:
        """Choose anew if it is time to, given how much is held."""
        if self.just_shed:
            self.full, self.just_shed, self.room = True, False, held
        if self.begin is None:
            self.begin = now
        since = self.turns[-1] if self.turns else self.begin
        parts = [max(span // SPANS, 1) for span in self.spans]
        if not self.full:
            parts = [max(min(part, self.waits if self.turns else 1), 1) for part in parts]
        new = sum(tick >= since for _, tick, _ in self.came)
        if any(now - since >= part for part in parts) and new >= len(self.offers):
            self.choose(now)
            self.waits = 2 * self.waits if len(self.turns) > 1 else 1

    def choose(self, now: int) -> None:
        """Choose what to give up."""
        assert self.begin is not None
        bounds = [self.begin, *self.turns, now]
        passed, arrived = [0.0, 0.0], [0.0, 0.0]
        for low, high in pairwise(bounds):
            fades = 0.5 ** (max((high - low) / span for span in self.spans) / SPANS)
            for side in range(2):
                passed[side] = fades * passed[side] + (high - low)
                rows = sum(s == side and low <= tick < high for s, tick, _ in self.came)
                arrived[side] = fades * arrived[side] + rows
        during = [
            [arrived[side] * (self.spans[other] / max(passed[other], 1.0)) for other in range(2)] for side in range(2)
        ]
        self.turns.append(now)
        seen: list[dict[Hashable, float]] = [{}, {}]
        total = [0.0, 0.0]
        for side, tick, key in self.came:
            if self.base[side] is None:
                self.base[side] = tick
            seen[side][key] = seen[side].get(key, 0.0) + self.weight(side, tick)
            total[side] += self.weight(side, tick)
        for side in range(2):
            if self.base[side] is None:
                self.base[side] = now
        doubt = [DOUBT * self.weight(side, now) for side in range(2)]
        self.offers = []
        for key in sorted({*seen[0], *seen[1]}, key=self.place):
            share = [(seen[s].get(key, 0.0) + doubt[s]) / max(total[s], 1e-300) for s in range(2)]
            self.offers += offers_of(
                key,
                [share[s] * arrived[s] for s in range(2)],
                [share[s] * during[s][s] for s in range(2)],
                [share[1 - s] * during[1 - s][s] for s in range(2)],
            )
        wanted = during[0][0] + during[1][1]
        need = max(wanted - self.room, 0.0)
        chosen = best(self.offers, set(), need, 0.0)
        if self.full:
            before = {
                i for i, offer in enumerate(self.offers) if any((offer.key, s) in self.given for s in offer.sides)
            }
            spare = SPARE * math.sqrt(self.room * need / max(wanted, 1.0))
            present = best(self.offers, before, need, spare)
            if chosen.harm >= BETTER * present.harm:
                chosen = present
        self.enter(chosen)

    def enter(self, chosen: Chosen) -> None:
        """Let worth say what was chosen: less than 1 is given up, the cheapest first, and more is kept."""
        few = 0.5 * math.sqrt(self.room)
        self.worth = {(offer.key, side): 2.0 for offer in self.offers for side in range(2)}
        self.given = set()
        for i, offer in enumerate(self.offers):
            rate = offer.rate
            if i not in chosen.taken:
                some = min(few, offer.freed)
                rate = offer.part(some) / max(some, 1e-300)
            rate /= 1.0 + rate
            worth = 1.0 + rate if i not in chosen.taken else 0.75 if i == chosen.used else 0.5 * rate
            for side in offer.sides:
                self.worth[offer.key, side] = worth
                if i in chosen.taken:
                    self.given.add((offer.key, side))
            if len(offer.sides) > 1:
                self.worth[offer.key, offer.sides[0]] = 0.999 * worth

    def gave_up(self, key: Hashable, side: int) -> None:
        """Hear that a tuple of a key left: the key is given up from now on, on both sides if it goes as a whole."""
        self.just_shed = True
        if (key, side) in self.worth:
            whole = any(offer.key == key and len(offer.sides) > 1 for offer in self.offers)
            self.given |= {(key, 0), (key, 1)} if whole else {(key, side)}


def shed(
    came: list[Came],
    spans: tuple[int, int],
    limit: int,
    place: Callable[[Hashable], int],
    half_life: int | None,
) -> list[tuple[int, int, int]]:
    """Join a trace in order of time inside one pool; return who is given up: (side, row, tick), in order."""
    policy = Arm(spans, limit, place, half_life)
    numbers = [0, 0]
    rows = []  # (tick, side, number, key)
    for side, tick, key in came:
        rows.append((tick, side, numbers[side], key))
        numbers[side] += 1
    memory: list[tuple[int, int, int, Hashable]] = []
    gone = []
    for now in sorted({tick for tick, *_ in rows}):
        policy.tick(now, len(memory))
        memory += [row for row in rows if row[0] == now]
        policy.came += [(side, tick, key) for tick, side, _, key in rows if tick == now]
        memory = [row for row in memory if now - row[0] + 1 < spans[row[1]]]
        while len(memory) > limit:
            least = min(memory, key=lambda row: (policy.worth.get((row[3], row[1]), 1.0), row[:3]))
            _, side, number, key = victim = max(row for row in memory if row[1] == least[1] and row[3] == least[3])
            memory.remove(victim)
            policy.gave_up(key, side)
            gone.append((side, number, now))
    return gone
