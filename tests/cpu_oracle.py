"""Say what a join under a CPU budget must do, row by row, by brute force that can be checked by eye.

Nothing here is shared with the product: plain Python over lists, everything counted anew for each row. Windows are
cut by time, rows are compared one by one (no index), a comparison is a unit of work.
"""

from __future__ import annotations

from math import ceil, floor, sqrt
from typing import Any, NamedTuple

from set_oracles import Row, meet

WORD = (1 << 64) - 1


def draw(seed: int, number: int) -> float:
    """Return the number in [0, 1) that belongs to `number` under this seed (SplitMix64)."""
    word = (seed + 0x9E3779B97F4A7C15 * (number + 1)) & WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return float((word ^ (word >> 31)) >> 11) / (1 << 53)


class Given(NamedTuple):
    """What was asked for, in ticks."""

    method: str
    span: int
    basic: int
    period: int
    queue: int
    speed: float  # comparisons a tick
    at_least: int
    sampling: float = 0.1
    seed: int = 0
    value: dict[int, float] | None = None  # of a row by its type; a pair has the larger one, or the mean
    combine: str = "max"


class Did(NamedTuple):
    """What came of it."""

    pairs: set[tuple[int, int]]
    skipped: dict[tuple[int, int], set[int]]  # (side, row) -> rows of the other side it was not compared with
    dropped: set[tuple[int, int]]
    shares: list[float]  # r after each period
    rests: list[bool]  # after each period, whether it goes on at random


class Model:
    """One run."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.ages = 1 + ceil(given.span / given.basic)
        self.kinds = sorted(given.value or {0: 1.0})
        self.held: list[list[tuple[int, int, Any, int]]] = [[], []]  # ts, row, set, number of its basic window
        self.began: list[list[int]] = [[], []]  # when each basic window began
        self.order = [list(range(self.ages)) for _ in range(2)]
        self.fraction = [dict.fromkeys(self.kinds, 1.0) for _ in range(2)]
        self.learned = [[[0.0, 0.0] for _ in range(self.ages)] for _ in range(2)]
        self.gains = [0.0] * 4  # pairs by full, by selective; work by full, by selective
        self.busy, self.r, self.waited = -1e300, 1.0, 0.0
        self.ends: int | None = None
        self.draws, self.rest, self.random = 0, 0, False
        self.did = Did(set(), {}, set(), [], [])
        self.forget()

    def forget(self) -> None:
        self.came = self.missed = self.ease = 0.0
        self.matched = [[[0, 0] for _ in range(self.ages)] for _ in range(2)]
        self.tried = [[[0, 0] for _ in range(self.ages)] for _ in range(2)]
        self.work = [0.0, 0.0]
        self.often = [dict.fromkeys(self.kinds, 0) for _ in range(2)]

    def lot(self) -> float:
        self.draws += 1
        return draw(self.given.seed, self.draws)

    # --- one row --------------------------------------------------------------------------------------------------

    def take(self, side: int, ts: int, row: int, value: Any, kind: int) -> None:
        given, other = self.given, 1 - side
        self.pass_time(ts)
        self.often[side][kind] += 1
        self.came += 1
        for each in range(2):
            self.held[each] = [held for held in self.held[each] if ts - held[0] < given.span]
        size = len(self.held[other])
        lag = max(0.0, self.busy - ts) / given.queue
        ease = max(0.0, min(1.0, 2.0 - 2.0 * lag))
        self.ease += ease
        if given.method == "random-drop":
            if self.lot() >= ease:
                self.missed += 1
                self.did.dropped.add((side, row))
                return
            way, left = 0, size
        elif self.random:
            way, left = 0, size if self.lot() < ease else 0
        else:
            share = self.fraction[other][kind]
            if given.method == "selective":
                share = min(1.0, share * ease / max(1e-3, self.r))
            way, left = (0, size) if self.lot() < max(1e-3, self.r) * given.sampling else (1, -1)
            if way == 1:
                left = floor(share * size + self.lot())
        if lag > 1.0:
            left, self.missed = 0, self.missed + 1
        self.compare(side, ts, row, value, way, left)
        if not self.began[side] or ts - self.began[side][-1] >= given.basic:
            self.began[side].append(ts)
        self.held[side].append((ts, row, value, len(self.began[side]) - 1))

    def pass_time(self, ts: int) -> None:
        if self.ends is None:
            self.ends = ts + self.given.period
        elif ts >= self.ends:
            self.adapt(self.ends)
            while self.ends <= ts:
                self.ends += self.given.period

    def compare(self, side: int, ts: int, row: int, value: Any, way: int, left: int) -> None:
        other = 1 - side
        probed: set[int] = set()
        for age in self.order[other] if way == 1 else range(self.ages):
            window = len(self.began[other]) - 1 - age
            inside = [held for held in self.held[other] if held[3] == window][::-1][: max(0, left)]
            left -= len(inside)
            found = [
                held[1]
                for held in inside
                if meet("overlap", self.given.at_least, *((value, held[2]) if side == 0 else (held[2], value)))
            ]
            probed |= {held[1] for held in inside}
            self.did.pairs.update((row, j) if side == 0 else (j, row) for j in found)
            self.matched[other][age][way] += len(found)
            self.tried[other][age][way] += len(inside)
        self.work[way] += len(probed)
        self.busy = max(self.busy, float(ts)) + len(probed) / self.given.speed
        unprobed = {held[1] for held in self.held[other]} - probed
        if unprobed:
            self.did.skipped[side, row] = unprobed

    # --- one period -----------------------------------------------------------------------------------------------

    def adapt(self, ended: int) -> None:
        given = self.given
        if given.method == "random-drop" or self.came == 0:
            self.forget()
            return
        paper = given.method != "selective"
        if paper:  # Algorithm 1
            waits = (self.came - self.missed) * min(1.0, max(0.0, self.busy - ended) / given.period)
            taken = (self.came - self.missed + self.waited - waits) / self.came
            self.waited = waits
            self.r = max(1e-3, taken * self.r if taken < 1 else min(1.0, 1.2 * self.r))
        else:
            self.r = self.ease / self.came
        self.did.shares.append(self.r)
        self.learn(paper=paper)
        r = max(1e-3, self.r)
        o = [[found / of if of else 0.0 for found, of in side] for side in self.learned]
        if given.method == "direction":  # Algorithm 4, equal windows
            first = min(1.0, 2 * r) if sum(o[0]) >= sum(o[1]) else max(0.0, 2 * r - 1)
            self.fraction = [dict.fromkeys(self.kinds, share) for share in (first, min(1.0, max(0.0, 2 * r - first)))]
        elif paper:
            self.fraction = [dict.fromkeys(self.kinds, r) for _ in range(2)]
        else:
            self.fraction = self.knapsack(r, o)
            self.notice()
        self.forget()

    def learn(self, *, paper: bool) -> None:
        """Algorithm 2."""
        for side in range(2):
            if paper and any(matched[0] for matched in self.matched[side]):
                self.learned[side] = [
                    [float(m[0]), float(t[0])] for m, t in zip(self.matched[side], self.tried[side], strict=True)
                ]
            elif not paper:
                self.learned[side] = [
                    [old[0] * 0.7 + sum(m), old[1] * 0.7 + sum(t)]
                    for old, m, t in zip(self.learned[side], self.matched[side], self.tried[side], strict=True)
                ]
            o = [found / of if of else 0.0 for found, of in self.learned[side]]
            if self.given.method != "rate" and any(o):
                self.order[side] = sorted(range(self.ages), key=lambda age: (-o[age], age))

    def joint(self, one: float, other: float) -> float:
        return max(one, other) if self.given.combine == "max" else (one + other) / 2

    def knapsack(self, r: float, o: list[list[float]]) -> list[dict[int, float]]:
        """Algorithm 5, by sorting all items."""
        value = self.given.value or {0: 1.0}
        often = [
            {
                kind: count / sum(side.values()) if sum(side.values()) else 1 / len(side)
                for kind, count in side.items()
            }
            for side in self.often
        ]
        goods = []
        for i in range(2):
            ranked = sorted(o[i], reverse=True)
            for z in self.kinds:
                partner = sum(often[i][other] * self.joint(value[z], value[other]) for other in self.kinds)
                for nth, one in enumerate(ranked):
                    goods.append((-one * partner if sum(ranked) else -0.0, i, nth, z))
        left = 2.0 * r
        got = [dict.fromkeys(self.kinds, 0.0) for _ in range(2)]
        for _, i, _nth, z in sorted(goods):
            if left <= 0:
                break
            volume = often[1 - i][z] / self.ages
            got[i][z] += min(1.0, left / volume) / self.ages if volume else 1 / self.ages
            left -= volume
        return got

    def told_apart(self) -> bool:
        """Whether pairs by age differ by two standard deviations more than independent ones would."""
        known = [cell for side in self.learned for cell in side]
        pairs, tried = (sum(column) for column in zip(*known, strict=True))
        if not pairs:
            return False
        spread = usual = variance = 0.0
        for found, of in known:
            mean = of * pairs / tried
            spread += (found - mean) ** 2 * 1.7 / max(1.0, mean)
            usual += min(1.0, mean)
            variance += (2 * mean * mean + mean) / max(1.0, mean) ** 2
        return spread > usual + 2 * sqrt(variance)

    def notice(self) -> None:
        found = [sum(m[way] for side in self.matched for m in side) for way in range(2)]
        if self.rest:
            self.rest -= 1
        elif self.r < 0.9 and self.given.value is None:
            self.gains = [0.7 * old + new for old, new in zip(self.gains, (*found, *self.work), strict=True)]
            full, selected, full_work, selected_work = self.gains
            if full >= 20 and (full - 2 * sqrt(full)) * selected_work > selected * full_work:
                self.rest = 1
                self.gains = [0.0] * 4
        self.random = self.rest > 0 or (self.r < 0.9 and self.given.value is None and not self.told_apart())
        self.did.rests.append(self.random)


def model(given: Given, left: list[Row], right: list[Row], kinds: tuple[list[int], list[int]] | None = None) -> Did:
    """Run both streams, in order of time and left first at equal times, and say what happened."""
    run = Model(given)
    rows = [(ts, side, row, value) for side, of in enumerate((left, right)) for row, (ts, value) in enumerate(of)]
    for ts, side, row, value in sorted(rows, key=lambda each: each[:3]):
        if value:
            run.take(side, ts, row, value, kinds[side][row] if kinds else 0)
    return run.did
