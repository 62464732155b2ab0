"""Estimate how likely each key is to arrive on each side: what PROB and LIFE are made of.

Four sources (das2003 §3.3.1 leaves the choice open):

- *decayed* (the default): counts that lose half their weight every ``half_life``. Needs no log of arrivals,
  follows drift, and forgets what no longer comes.
- *history*: counts over everything that came.
- *window*: counts over the last span of arrivals, shed ones included.
- a given table: the generating distribution, or any other forecast. The papers' figures use this; it is
  knowledge of the future.

Counts are kept per key id for as long as the windows remember the key. Keys that hold no tuple are remembered
up to a bound (`REMEMBERED`, or as many as the budget holds tuples); past it the least likely half is forgotten
and starts again from zero. So memory stays bounded whatever the key domain.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import part
from penstock.core.windows import Floats, Ints, Words, grown
from penstock.errors import PolicyError
from penstock.policies.registry import Option, Setting

COUNTED, WINDOW, GIVEN = 0, 1, 2
REMEMBERED = 1 << 16
HALF_LIVES = 4  # in spans
NAMES = ("decayed", "history", "window")
RESCALE = 512.0


class Table(NamedTuple):
    """Given probabilities: how likely each key is to arrive on the left and on the right."""

    left: Mapping[object, float]
    right: Mapping[object, float]

    def __str__(self) -> str:
        return f"table({len(self.left)} left, {len(self.right)} right)"


class Statistics(NamedTuple):
    """Weights per key and side; a share is ``seen / total``."""

    seen: Floats  # (key, side)
    total: Floats  # (side,)
    kind: int
    rate: float  # half-lives per clock unit; 0: no decay
    base: Floats  # (side,) clock at which an arrival weighs 1
    span: Ints  # (side,)
    log_key: Words  # (side, ring) arrivals of the last window
    log_pos: Ints
    log_mark: Ints  # (side, [first, count])
    forecast_code: Ints  # sorted codes of the given table, left then right
    forecast: Floats
    forecast_left: int  # how many of them are the left's
    most: int  # keys remembered beyond those that hold tuples


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


def make(setting: Setting, source: object, half_life: object) -> Statistics:
    """Return empty statistics from the given source."""
    if half_life is not None and source != "decayed":
        raise PolicyError("half_life", repr(half_life), 'only statistics="decayed" has one')
    span = setting.span
    rate = 0.0
    if source == "decayed":
        life = HALF_LIVES * int(span.max()) if half_life is None else setting.ticks("half_life", half_life)
        rate = 1.0 / life
    ring = max(REMEMBERED, 4 * setting.limit) if source == "window" else 1
    codes, chances, split = _forecast(setting, source)
    return Statistics(
        seen=np.zeros((setting.keys, 2)),
        total=np.ones(2) if isinstance(source, Table) else np.zeros(2),
        kind=GIVEN if isinstance(source, Table) else WINDOW if source == "window" else COUNTED,
        rate=rate,
        base=np.full(2, np.nan),
        span=span,
        log_key=np.empty((2, ring), np.int32),
        log_pos=np.empty((2, ring), np.int64),
        log_mark=np.zeros((2, 2), np.int64),
        forecast_code=codes,
        forecast=chances,
        forecast_left=split,
        most=max(REMEMBERED, setting.limit),
    )


def _forecast(setting: Setting, source: object) -> tuple[Ints, Floats, int]:
    if not isinstance(source, Table):
        return np.empty(0, np.int64), np.empty(0), 0
    codes, chances = [], []
    for name, side in (("left", source.left), ("right", source.right)):
        values = np.array(list(side.values()), np.float64)
        if values.size and not (np.isfinite(values).all() and (values >= 0).all()):
            raise PolicyError(f"statistics.{name}", "a probability that is negative or not finite", "use p >= 0")
        code = setting.code(list(side))
        order = np.argsort(code, kind="stable")
        codes.append(code[order])
        chances.append(values[order])
    return np.concatenate(codes), np.concatenate(chances), codes[0].size


def with_keys(statistics: Statistics, start: int, code: Ints) -> None:
    """Look up the given probabilities of keys that are new, `start` being the first one's id."""
    if statistics.kind != GIVEN:
        statistics.seen[start : start + code.size] = 0.0
        return
    split = statistics.forecast_left
    for side, part_of in ((0, slice(0, split)), (1, slice(split, None))):
        known, chance = statistics.forecast_code[part_of], statistics.forecast[part_of]
        column = statistics.seen[start : start + code.size, side]
        column[:] = 0.0
        if known.size:
            at = np.minimum(np.searchsorted(known, code), known.size - 1)
            hit = known[at] == code
            column[hit] = chance[at[hit]]


def remembered(statistics: Statistics, used: int, held: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Say which keys to remember although they hold no tuple: the likeliest, at most `most` of them.

    When there are more, half of `most` stay, so that the next choice is that far away.
    """
    if statistics.kind == GIVEN:
        return np.zeros(used, np.bool_)
    share = (statistics.seen[:used] / np.where(statistics.total > 0, statistics.total, 1.0)).max(axis=1)
    share[held] = 0.0
    wanted = share > 0
    if int(wanted.sum()) > statistics.most:
        bar = np.partition(share, used - statistics.most // 2)[used - statistics.most // 2]
        wanted &= share > bar
    return wanted


def resized(statistics: Statistics, kept: Ints | None, room: int) -> Statistics:
    """Return statistics for other key ids: those kept, renumbered in order (None: all), with room for more."""
    if kept is None:
        return statistics._replace(seen=grown(statistics.seen, room, statistics.seen.shape[0]))
    seen = np.zeros((room, 2))
    seen[: kept.size] = statistics.seen[kept]
    if statistics.kind == WINDOW:
        renumber = np.full(statistics.seen.shape[0], -1, np.int32)
        renumber[kept] = np.arange(kept.size, dtype=np.int32)
        ring = statistics.log_key.shape[1]
        for side in range(2):
            start, count = statistics.log_mark[side]
            at = (start + np.arange(count)) % ring
            statistics.log_key[side, at] = renumber[statistics.log_key[side, at]]
    return statistics._replace(seen=seen)


@part
def note(statistics: Statistics, side: int, key: int, clock: int) -> None:
    """Count one arrival."""
    if statistics.kind == GIVEN:
        return
    weight = 1.0
    if statistics.kind == WINDOW:
        first, count = statistics.log_mark[side]
        if count == statistics.log_key.shape[1]:  # more in one tick than the log has room for
            return
        at = (first + count) % statistics.log_key.shape[1]
        statistics.log_key[side, at] = key
        statistics.log_pos[side, at] = clock
        statistics.log_mark[side, 1] = count + 1
    elif statistics.rate > 0.0:
        if np.isnan(statistics.base[side]):
            statistics.base[side] = clock
        halves = (clock - statistics.base[side]) * statistics.rate
        if halves > RESCALE:  # an arrival weighs ever more; bring all weights back to the present
            shrink = 2.0 ** (-halves)
            for k in range(statistics.seen.shape[0]):
                statistics.seen[k, side] *= shrink
            statistics.total[side] *= shrink
            statistics.base[side] = clock
            halves = 0.0
        weight = 2.0**halves
    statistics.seen[key, side] += weight
    statistics.total[side] += weight


@part
def age(statistics: Statistics, side: int, clock: int) -> int:
    """Forget one arrival that left the window and return its key; -1 when there is none."""
    if statistics.kind != WINDOW:
        return -1
    ring = statistics.log_key.shape[1]
    while statistics.log_mark[side, 1] > 0:
        first, count = statistics.log_mark[side]
        crowded = 4 * count > 3 * ring  # the rest is room for the arrivals of one tick
        if not crowded and clock - statistics.log_pos[side, first] < statistics.span[side]:
            return -1
        key = np.int64(statistics.log_key[side, first])
        statistics.log_mark[side, 0] = (first + 1) % ring
        statistics.log_mark[side, 1] = count - 1
        statistics.total[side] -= 1.0
        if key >= 0:
            statistics.seen[key, side] -= 1.0
            return key
    return -1
