"""Estimate how likely each key is to arrive on each side: what PROB and LIFE are made of.

Four sources (das2003 §3.3.1 leaves the choice open):

- *decayed* (the default): counts that lose half their weight every ``half_life``. Needs no log of arrivals,
  follows drift, and forgets what no longer comes. The default half-life is two spans: on stationary Zipf keys that
  is within half a per cent of all of history (which is best there), and where popular keys change every two spans
  it keeps 2-8 % more pairs than history; shorter ones gain less there than they lose on rare keys.
- *history*: counts over everything that came.
- *window*: counts over the last span of arrivals, shed ones included.
- a given table: the generating distribution, or any other forecast. The papers' figures use this; it is
  knowledge of the future.

importance2006 counts partners instead: those that *memory* holds, newcomers included, or those that came in the last
*window*, shed ones included.

Counts live in a table of their own, by the code of the key: as many cells as the budget holds tuples, at least
`CELLS`. A key looks for its cell in a stretch of eight, one line of the cache; when they are all taken by others, the
least likely of them is forgotten. So memory stays bounded whatever the key domain, and exact while keys fit.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import columns, kernel, part, prefetch, rank, wide
from penstock.core.rng import mixed
from penstock.core.windows import BUNCH, CODE, Floats, Ints, Windows, key_of, lines, partners_of
from penstock.errors import PolicyError
from penstock.policies.registry import Option, Setting

COUNTED, WINDOW, GIVEN, HELD = 0, 1, 2, 3
CELLS = 1 << 16
STRETCH = 8
HALF_LIVES = 2  # in spans
NAMES = ("decayed", "history", "window")
MATCHES = ("memory", "window")
RESCALE = 256  # half-lives after which weights are brought back to the present
MOST_HALVES = 900
UNSET = np.iinfo(np.int64).min
LATEST = int(np.iinfo(np.int64).max)


class Table(NamedTuple):
    """Given probabilities: how likely each key is to arrive on the left and on the right."""

    left: Mapping[object, float]
    right: Mapping[object, float]

    def __str__(self) -> str:
        return f"table({len(self.left)} left, {len(self.right)} right)"


@columns(seen=2)
class Statistics(NamedTuple):
    """Weights per key and side; a share is ``seen / total``."""

    code: Ints  # cell -> code of the key it belongs to
    seen: Floats  # (cell, side); nothing on either side: the cell is free
    total: Floats  # (side,)
    kind: int
    life: int  # half-life in clock units; 0: no decay
    enough: int  # time since base after which weights are brought back to the present
    base: Ints  # (side,) clock at which an arrival weighs 1
    span: Ints  # (side,)
    log_code: Ints  # (side, ring) arrivals of the last window
    log_pos: Ints
    log_mark: Ints  # (side, [first, count])
    asked: npt.NDArray[Any]  # cell -> 1: somebody was told a weight from it, and must hear if it is forgotten
    lost: Ints  # [1: a key was forgotten for another and somebody must hear, its code]
    last: Ints  # [the cell of the latest arrival]
    times: Ints  # [time since base for which `fresh` was last worked out, the whole half-lives of it]
    fresh: Floats  # [what an arrival weighs then, what it would weigh after the whole half-lives]


def check_source(value: object) -> str | None:
    """Complain about a `statistics` option that names no source."""
    if isinstance(value, Table) or value in NAMES:
        return None
    return f"give one of {', '.join(map(repr, NAMES))}, or pen.table(left={{key: p}}, right={{key: p}})"


OPTIONS = {
    "statistics": Option(
        "decayed",
        'where the arrival probabilities come from: "decayed", "history", "window", or pen.table(...)',
        check_source,
    ),
    "half_life": Option(
        None,
        f"after what time (as written for `window`) a decayed count weighs half; default {HALF_LIVES} spans",
    ),
}

MATCHED = {
    "statistics": Option(
        "memory",
        'what counts as a match: a partner in "memory", or one that came in the last "window"',
        lambda value: None if value in MATCHES else f"give one of {', '.join(map(repr, MATCHES))}",
    )
}


def make(setting: Setting, source: object, half_life: object = None, spans: int = HALF_LIVES) -> Statistics:
    """Return empty statistics from the given source; decayed counts weigh half after so many spans unless told."""
    if half_life is not None and source != "decayed":
        raise PolicyError("half_life", repr(half_life), 'only statistics="decayed" has one')
    life = 0
    if source == "decayed":
        life = spans * int(setting.span.max()) if half_life is None else setting.ticks("half_life", half_life)
    cells = STRETCH if source == "memory" else 1 << (max(CELLS, setting.limit) - 1).bit_length()
    ring = max(CELLS, 4 * setting.limit) if source == "window" else 1
    code, seen, asked = blank(cells)
    empty = Statistics(
        code=code,
        seen=seen,
        total=np.zeros(2),
        kind={"window": WINDOW, "memory": HELD}.get(str(source), COUNTED),
        life=life,
        enough=min((RESCALE + 1) * life, LATEST),
        base=np.full(2, UNSET),
        span=setting.span,
        log_code=np.empty((2, ring), np.int64),
        log_pos=np.empty((2, ring), np.int64),
        log_mark=np.zeros((2, 2), np.int64),
        asked=asked,
        lost=np.zeros(2, np.int64),
        last=np.zeros(1, np.int64),
        times=np.zeros(2, np.int64),
        fresh=np.ones(2),
    )
    return _given(setting, source, empty) if isinstance(source, Table) else empty


def blank(cells: int) -> tuple[Ints, Floats, npt.NDArray[Any]]:
    """Return codes, weights and marks of so many free cells; the codes of a stretch are one line of the cache."""
    return lines(cells, 1, np.zeros).ravel(), lines(cells, 2, np.zeros).view(np.float64), np.zeros(cells, np.int8)


def _given(setting: Setting, source: Table, empty: Statistics) -> Statistics:
    """Fill in given probabilities, in a table with a cell for each key."""
    sides = []
    for name, chances in (("left", source.left), ("right", source.right)):
        values = np.array(list(chances.values()), np.float64)
        if values.size and not (np.isfinite(values).all() and (values >= 0).all()):
            raise PolicyError(f"statistics.{name}", "a probability that is negative or not finite", "use p >= 0")
        sides.append((setting.code(list(chances)), values))
    codes = np.concatenate([code for code, _ in sides])
    cells = max(STRETCH, 1 << (2 * codes.size).bit_length())
    while True:
        code, seen, asked = blank(cells)
        table = empty._replace(code=code, seen=seen, asked=asked, total=np.ones(2), kind=GIVEN)
        if enter(table, codes, np.concatenate([values for _, values in sides]), sides[0][0].size):
            return table
        cells *= 2


@kernel
def enter(statistics: Statistics, codes: Ints, values: Floats, split: int) -> bool:
    """Enter given weights, those before `split` for the left; False if a key found no free cell."""
    for i in range(codes.size):
        cell = cell_for(statistics, codes[i])
        free = statistics.seen[cell, 0] + statistics.seen[cell, 1] == 0.0
        if not free and statistics.code[cell] != codes[i]:
            return False
        statistics.code[cell] = codes[i]
        statistics.seen[cell, 0 if i < split else 1] = values[i]
    return True


@part
def stretch_of(statistics: Statistics, code: int) -> int:
    """Return the first of the cells that a key may have."""
    return wide(mixed(np.uint64(code)) & np.uint64(statistics.code.size - STRETCH))


@part
def find(statistics: Statistics, code: int) -> int:
    """Return the cell of a key, or -1."""
    start = stretch_of(statistics, code)
    if statistics.code[start] == code:  # mostly, while cells are many
        return start
    found = wide(-1)
    for step in range(1, STRETCH):  # to the end: where it would stop, nobody could foretell
        found = start + step if statistics.code[start + step] == code else found
    return found


@part
def cell_for(statistics: Statistics, code: int) -> int:
    """Return the cell of a key; for one that has none, a free cell or that of the least likely in its stretch."""
    found = find(statistics, code)
    if found >= 0:
        return found
    start = stretch_of(statistics, code)
    least = LATEST
    for step in range(STRETCH):
        weight = rank(statistics.seen[start + step, 0] + statistics.seen[start + step, 1])
        least = min(least, (weight & -STRETCH) | step)  # no branch: nobody could foretell it
    return start + (least & (STRETCH - 1))


@part
def foresee(statistics: Statistics, code: int) -> None:
    """Ask for the cells of a key that is soon to come."""
    start = stretch_of(statistics, code)
    prefetch(statistics.code, start)
    prefetch(statistics.seen, start)
    prefetch(statistics.seen, start + 4)
    prefetch(statistics.asked, start)


@part
def foresee_beside(statistics: Statistics, beside: Floats, code: int) -> None:
    """Ask for what somebody keeps of a key that is soon to come, two numbers a cell."""
    start = stretch_of(statistics, code)
    prefetch(beside, start)
    prefetch(beside, start + 4)


@part
def weight(statistics: Statistics, side: int, code: int) -> float:
    """Return how much a key weighs on a side."""
    cell = statistics.last[0]  # mostly the key that has just arrived is asked for
    if statistics.code[cell] != code:
        cell = find(statistics, code)
    if cell < 0 or statistics.seen[cell, side] == 0.0:
        return 0.0
    statistics.asked[cell] = 1
    return statistics.seen[cell, side]


@part
def matches(statistics: Statistics, windows: Windows, side: int, slot: int) -> float:
    """Return how many partners a tuple has, in memory or in the last window."""
    if statistics.kind == HELD:
        return float(partners_of(windows, slot))
    return weight(statistics, 1 - side, windows.code[key_of(wide(windows.link[slot, BUNCH])), CODE])


@part
def tie(importance: float, found: float) -> float:
    """Return what decides between equal products of importance and matches: importance, then (if 0) matches."""
    return importance if importance > 0.0 else -1.0 / (1.0 + found)


@part
def note(statistics: Statistics, side: int, code: int, clock: int) -> None:
    """Count one arrival."""
    if statistics.kind in (GIVEN, HELD):
        return
    more = 1.0
    if statistics.kind == WINDOW:
        first, count = statistics.log_mark[side]
        if count == statistics.log_code.shape[1]:  # more in one tick than the log has room for
            return
        at = (first + count) % statistics.log_code.shape[1]
        statistics.log_code[side, at] = code
        statistics.log_pos[side, at] = clock
        statistics.log_mark[side, 1] = count + 1
    elif statistics.life > 0:
        more = present_weight(statistics, side, clock)
    add(statistics, side, code, more)


@part
def add(statistics: Statistics, side: int, code: int, more: float) -> bool:
    """Let a key weigh more on a side; says whether its cell is new to it."""
    cell = cell_for(statistics, code)
    new = statistics.code[cell] != code
    if new:
        statistics.lost[0] = statistics.asked[cell]
        statistics.lost[1] = statistics.code[cell]
        statistics.asked[cell] = 0
        statistics.code[cell] = code
        statistics.seen[cell, 0] = 0.0
        statistics.seen[cell, 1] = 0.0
    statistics.last[0] = cell
    statistics.seen[cell, side] += more
    statistics.total[side] += more
    return new


@part
def lost(statistics: Statistics) -> tuple[bool, int]:
    """Say once whether a key was forgotten to make room for the last arrival, and its code."""
    forgotten = statistics.lost[0] == 1
    statistics.lost[0] = 0
    return forgotten, statistics.lost[1]


@part
def present_weight(statistics: Statistics, side: int, clock: int) -> float:
    """Return what an arrival weighs now: ever more, so that earlier ones weigh ever less.

    Whole half-lives are exact powers of two, so that bringing weights back to the present rounds nothing.
    """
    times, fresh = statistics.times, statistics.fresh
    if statistics.base[side] == UNSET:
        statistics.base[side] = clock
    since = clock - statistics.base[side]
    if since != times[0]:
        times[0] = since
        if not 0 <= since - times[1] < statistics.life:
            halves = since // statistics.life
            times[1] = halves * statistics.life
            fresh[1] = math.ldexp(1.0, int(halves))
        fresh[0] = 2.0 ** ((since - times[1]) / statistics.life) * fresh[1]
    return fresh[0]


@part
def unit(statistics: Statistics, side: int, clock: int) -> float:
    """Return what one arrival adds to a weight now; nothing, if weights were given."""
    if statistics.kind == GIVEN:
        return 0.0
    return present_weight(statistics, side, clock) if statistics.life > 0 else 1.0


@part
def tidy(statistics: Statistics, side: int, clock: int) -> bool:
    """Bring the weights of a side back to the present if they have grown large; says whether they had."""
    if statistics.life == 0 or statistics.base[side] == UNSET:
        return False
    if clock - statistics.base[side] < statistics.enough:
        return False
    halves = (clock - statistics.base[side]) // statistics.life
    shrink(statistics, side, min(halves, MOST_HALVES))
    statistics.base[side] += halves * statistics.life
    return True


@part
def shrink(statistics: Statistics, side: int, halves: int) -> None:
    """Halve all weights of a side so many times; that rounds nothing. O(cells)."""
    for cell in range(statistics.code.size):
        statistics.seen[cell, side] = math.ldexp(statistics.seen[cell, side], -int(halves))
    statistics.total[side] = math.ldexp(statistics.total[side], -int(halves))


@part
def age(statistics: Statistics, side: int, clock: int) -> tuple[bool, int]:
    """Forget one arrival that left the window; says whether there was one, and its key."""
    if statistics.kind != WINDOW or statistics.log_mark[side, 1] == 0:
        return False, 0
    ring = statistics.log_code.shape[1]
    first, count = statistics.log_mark[side]
    crowded = 4 * count > 3 * ring  # the rest is room for the arrivals of one tick
    if not crowded and clock - statistics.log_pos[side, first] < statistics.span[side]:
        return False, 0
    code = statistics.log_code[side, first]
    statistics.log_mark[side, 0] = (first + 1) % ring
    statistics.log_mark[side, 1] = count - 1
    statistics.total[side] -= 1.0
    cell = find(statistics, code)
    if cell >= 0:
        statistics.seen[cell, side] = max(statistics.seen[cell, side] - 1.0, 0.0)
    return True, code
