"""Say which rows of a join on sets are let in by what they promise, by brute force that can be checked by eye.

Nothing here is shared with the product: plain Python over lists, items in dictionaries. Buckets of its index that two
items share would make it visit more; there are few items here, so there are none.
"""

from math import floor, inf, log2
from typing import NamedTuple

from cpu_oracle import draw

PRIOR, KEPT, FADE, SURE, LEEWAY = 1.0, 0.8, 0.9, 4.0, 4
LEVELS = 128


class Row(NamedTuple):
    """A row with its number on its side."""

    side: int
    ts: int
    items: frozenset[int]
    number: int


class Model:
    """One run of an overlap join."""

    def __init__(self, span: int, period: int, at_least: int, sampling: float, seed: int) -> None:
        self.span, self.period, self.at_least, self.sampling, self.seed = span, period, at_least, sampling, seed
        self.live: list[Row] = []
        self.walked: dict[int, float] = {}
        self.met: dict[int, float] = {}
        self.levels = [[0.0, 0.0, 0.0] for _ in range(LEVELS)]  # rows that came, were let in, and their work
        self.bar, self.tie, self.chance, self.mean = -1, 1.0, 0.0, 0.0
        self.promise = self.promised = self.did = 0.0
        self.rows, self.work = 0, 0.0  # since the last portion
        self.ends, self.draws, self.passed = -inf, 0, 0
        self.busy, self.capacity, self.patience = -inf, inf, 1.0

    def lot(self) -> float:
        self.draws += 1
        return draw(self.seed, self.draws)

    def level(self, row: Row) -> int:
        total = sum(
            (self.met.get(item, 0.0) + PRIOR * self.mean) / (self.walked.get(item, 0.0) + PRIOR)
            for item in sorted(row.items)
        )
        if total <= 0.0:
            return 0
        power = floor(log2(total))
        return min(max(4 * (power + 26) + floor(4 * (total / 2.0**power - 1)), 0), LEVELS - 1)

    def portion(self, work: float, rows: int) -> None:
        """Set the bar for so much work, of so many rows."""
        self.capacity, self.patience = max(1e-9, work / rows), max(2.0, rows / LEEWAY)
        self.retune(self.capacity)

    def retune(self, work: float) -> None:
        came, probed, cost = (sum(level[column] for level in self.levels) for column in range(3))
        if probed == 0:
            return
        self.promised = FADE * self.promised + self.promise * self.rows
        self.did = FADE * self.did + (self.work if self.promise > 0 else 0.0)
        self.rows, self.work = 0, 0.0
        mean = cost / probed
        costs = [(each[2] + SURE * mean) / (each[1] + SURE) * each[0] / came for each in self.levels]
        if self.promised > 0 and self.did > 0:
            work /= min(max(self.did / self.promised, 1 / 16), 16)
        if sum(costs) <= work:
            self.bar, self.tie, self.promise = -1, 1.0, sum(costs)
            return
        self.chance = self.sampling * work / sum(costs)
        left = work * (1 - self.sampling)
        for level in reversed(range(LEVELS)):
            if costs[level] > left:
                self.bar, self.tie = level, max(left / costs[level], self.chance)
                break
            left -= costs[level]
        self.promise = work

    def take(self, row: Row, *, counted: bool) -> tuple[set[tuple[int, int]], bool]:
        """Take a row; returns its pairs, and whether it was let in."""
        if row.ts >= self.ends:
            self.end_period(row.ts)
        self.live = [each for each in self.live if each.ts + self.span > row.ts]
        self.passed += 1
        now = self.passed if counted else row.ts
        level = self.level(row)
        self.levels[level][0] += 1
        self.rows += 1
        chosen = level > self.bar or self.lot() < (self.tie if level == self.bar else self.chance)
        others = [each for each in self.live if each.side != row.side]
        if not chosen or self.busy - now > self.patience:
            return set(), False
        self.live.append(row)
        work = 0.0
        for item in row.items if others else ():  # nothing to look up in
            visits = 1 + sum(item in each.items for each in others)
            self.walked[item] = self.walked.get(item, 0.0) + 1
            work += visits
        found = [each for each in others if len(each.items & row.items) >= self.at_least]
        for each in found:
            for item in each.items & row.items:
                self.met[item] = self.met.get(item, 0.0) + 1
        self.levels[level][1] += 1
        self.levels[level][2] += work
        self.work += work
        self.busy = max(self.busy, now) + work / self.capacity
        return {(row.number, e.number) if row.side == 0 else (e.number, row.number) for e in found}, True

    def end_period(self, ts: int) -> None:
        self.ends = ts + self.period if self.ends == -inf else self.ends + self.period * (
            1 + (ts - self.ends) // self.period
        )  # fmt: skip
        if sum(self.walked.values()) > 0:
            self.mean = sum(self.met.values()) / sum(self.walked.values())
        for counts in (self.walked, self.met):
            for item in counts:
                counts[item] *= KEPT
        self.levels = [[KEPT * n for n in level] for level in self.levels]
