"""Say which rows a gate before a join must let in, by brute force that can be checked by eye.

Nothing here is shared with the product: plain Python, keys in dictionaries, every sum made anew.
"""

from __future__ import annotations

from math import frexp, inf, sqrt
from typing import NamedTuple

from cpu_oracle import draw

WORDS = 1 << 64
ENTRY = 100.0  # the work of a row that is let in; a pair is 1
LEAST, LEVELS = -8, 128  # the lowest octave, and how many levels there are


class Row(NamedTuple):
    """A row as it comes."""

    side: int
    ts: int
    code: int


def lot(seed: int, code: int) -> float:
    """Return the lot of a key."""
    word = code % WORDS
    for shift, times in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> shift)) * times % WORDS
    return draw(seed, (word ^ (word >> 31)) >> 1)


def slot_of(code: int) -> int:
    """Return the slot of a key, of 2 ** 14: keys of one slot are taken for one."""
    return (code * 0x9E3779B97F4A7C15 % WORDS) >> 50


def level_of(gain: float) -> int:
    """Return a quarter of an octave: each octave is cut into four of equal length."""
    mantissa, power = frexp(gain)
    return 4 * (power - 1 - LEAST) + int((mantissa - 0.5) * 8)


def middle(level: int) -> float:
    """Return the gain in the middle of a level."""
    octave, quarter = divmod(level, 4)
    return float(2.0 ** (octave + LEAST) * (1 + quarter / 4 + 1 / 8)) if level else 0.0


class Gate:
    """Who is let in, portion by portion."""

    def __init__(self, method: str, span: int, every: int, seed: int) -> None:
        self.method, self.span, self.every, self.seed = method, span, every, seed
        self.seen: dict[int, list[float]] = {}
        self.level: dict[int, int] = {}
        self.mass = [0.0] * LEVELS
        self.came, self.total = [0, 0], [0.0, 0.0]
        self.bar, self.tie, self.promise, self.most = -1, 1.0, 0.0, inf
        self.left = 0
        self.promised = self.did = 0.0
        self.draws = 0
        self.began: int | None = None
        self.learned = False
        self.held: list[Row] = []
        self.rows: list[Row] = []

    def portion(self, rows: list[Row], work: float | None, left: int) -> list[int]:
        """Take rows that have so much work each, of so many left, and return the places of those that are let in."""
        self.left = left
        if work is not None:
            self.set_bar(work)
        if self.began is None or rows[0].ts - self.began >= self.every:
            self.end_period(rows[0].ts, work)
        inside, found, told = [], 0, 0.0
        for at, row in enumerate(rows):
            slot = slot_of(row.code)
            level = self.level.get(slot, 0)
            self.seen.setdefault(slot, [0.0, 0.0])[row.side] += 1
            self.mass[level] += 1
            self.came[row.side] += 1
            if told < self.most and self.passes(row, level):
                inside.append(at)
                told += ENTRY + middle(level)
                found += sum(self.meet(row, other) for other in self.held)
                self.held.append(row)
        self.promised = 0.9 * self.promised + self.promise * len(rows)
        self.did = 0.9 * self.did + ENTRY * len(inside) + found
        return inside

    def meet(self, row: Row, other: Row) -> bool:
        return row.side != other.side and row.code == other.code and abs(row.ts - other.ts) < self.span

    def passes(self, row: Row, level: int) -> bool:
        if self.method == "random-drop":
            self.draws += 1
            return draw(self.seed, self.draws) < self.tie
        return lot(self.seed, row.code) < self.tie if level == self.bar else level > self.bar

    def end_period(self, ts: int, work: float | None) -> None:
        began, self.began = self.began, ts
        if began is None or not any(self.came):
            return
        self.total = [total + came for total, came in zip(self.total, self.came, strict=True)]
        scale = 2 * self.span * sum(self.came) / (ts - began) / sum(self.total)
        now = [0.0] * LEVELS
        for slot, (left, right) in self.seen.items():
            level = 0
            if left and right:
                level = level_of(left * right / (left + right) * scale) + (self.level.get(slot, 0) > self.bar)
                level = min(max(level, 1), LEVELS - 1)
            self.level[slot] = level
            now[level] += left + right
        self.mass = [0.8 * mass for mass in self.mass] if self.learned else now
        self.seen = {slot: [0.8 * n if 0.8 * n >= 0.2 else 0.0 for n in both] for slot, both in self.seen.items()}
        self.total = [0.8 * total for total in self.total]
        self.came, self.learned = [0, 0], True
        if work is not None:
            self.set_bar(work)

    def set_bar(self, work: float) -> None:
        if not any(self.mass):
            return
        granted, done = work, self.did / self.promised if self.promised > 0 else 1.0
        work /= min(16.0, max(1 / 16, done))
        self.most = inf if self.method == "random-drop" else work * self.left
        mass = [each / sum(self.mass) for each in self.mass]
        if self.method == "random-drop":
            found = sum(each * middle(level) for level, each in enumerate(mass))
            self.tie = min(1.0, work / ENTRY)
            if found:
                self.tie = min(1.0, (sqrt(ENTRY**2 + 4 * found * work) - ENTRY) / (2 * found))
            self.promise = self.tie * ENTRY + self.tie**2 * found
            return
        left = work = granted / min(16.0, max(1e-9, done))
        for level in range(LEVELS - 1, -1, -1):
            cost = mass[level] * (ENTRY + middle(level))
            if cost > left:
                self.bar, self.tie, self.promise = level, left / cost, work
                return
            left -= cost
        self.bar, self.tie, self.promise = -1, 1.0, work - left
