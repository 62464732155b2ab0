"""Move rows through windows of sets: expire, probe as much of the other window as the CPU allows, enter.

Each row is probed against basic windows of the other side: all of them, or the most profitable ones up to a share of
the window (gedik2007, Algorithm 3). What was not probed is written down as places of the other side.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core import promise
from penstock.core.jit import borrowed, kernel, part, wide
from penstock.core.promise import Promises, credit, level_of, slot_of
from penstock.core.rng import unit
from penstock.core.sets import (
    BAND,
    BASIC,
    BUCKETS,
    BY_IDENTIFIER,
    CAME_TO,
    FIRST,
    HOME,
    ITEM,
    LOW,
    NEXT,
    OLDER,
    OWNER,
    PRODUCT,
    ROW,
    SIZE,
    TICK,
    TS,
    Rule,
    Sets,
    Shelf,
    bucket_of,
    climbed,
    end_of,
    expire,
    first_linked,
    first_shared_in,
    holds,
    insert,
    item_part,
    linked_too_many,
    near,
    shared_by,
)
from penstock.core.step import (
    ARRIVED,
    BUDGET,
    COMPARISONS,
    COPIES,
    DONE,
    EXPIRED,
    LEDGER_FULL,
    PAIRS,
    PAIRS_FULL,
    SHED,
)
from penstock.core.windows import Floats, Ints

PERIOD, UNSEALED = 16, 17  # why the kernel came back: a period is over; postings are to be sealed, of the right + 1
# how much of a window is probed
EVERYTHING, SELECTED, SOME, DROPPING, PROMISING = 0, 1, 2, 3, 4
# entries of `mode`: one of the above, draws so far, whether the queue counts rows and not ticks, and rows so far
MODE, DRAWS, COUNTED, PASSED = 0, 1, 2, 3
# how rows are divided between shards: not at all; by items: a row is in the shards of its items, and two rows meet in
# that of the first item they share; in turns: every shard sees every row, and keeps those of its turn
WHOLE, BY_ITEMS, BY_TURNS = 0, 1, 2
# entries of `place` and of `limit`
WAY, SHARD, SHARDS = 0, 1, 2
SHARED = 2
# entries of `dials`: comparisons a tick (or a row), ticks (or rows) that rows may wait, chance of full processing,
# when the CPU is free, when the period ends, and the share that `fraction` was made for (0: it holds as it is)
CAPACITY, PATIENCE, SAMPLING, BUSY, ENDS, BASE = 0, 1, 2, 3, 4, 5
DIALS = 6
# entries of `tally`, for one period: rows that came and that found no time; and rows compared, pairs found and work
# done by full (FULL) and by selective processing (FULL + 1)
CAME, MISSED, COMPARED, FOUND, WORK, SHARES = 0, 1, 2, 4, 6, 8
TALLY = 9
UNTOUCHED = -1.0  # a score before the first item: sums of weights, which may underflow to 0, are never below it
# columns of the ledger of skipped places: side, row, tick, first row skipped, one more than the last
SKIPS = 5


class Effort(NamedTuple):
    """How much work is done, and what it brought in this period."""

    mode: Ints  # MODE..PASSED
    seed: npt.NDArray[Any]
    dials: Floats
    fraction: Floats  # (side of the window, type of the row) -> share of the window to probe
    order: Ints  # (side of the window, n) -> basic windows by age (0: the newest), most profitable first
    matched: Ints  # (side of the window, age, way) -> pairs found, by full and by selective processing
    tried: Ints  # the same: rows compared
    kinds: Ints  # (side, type) -> rows that came
    tally: Floats
    learned: Floats  # (side of the window, age, [pairs, rows compared]): what the controller keeps of earlier periods
    gains: Floats  # pairs found and work done, each by full and by selective processing: the same
    notes: Floats  # the controller's own
    promises: Promises


class Rows(NamedTuple):
    """Rows in order of arrival, with their sets."""

    side: npt.NDArray[Any]
    row: Ints
    tick: Ints
    ts: Ints
    kind: Ints  # types; empty: one
    sets: Sets


class Told(NamedTuple):
    """Where results go, and how far it is."""

    pairs: Ints  # (side, n) -> row numbers
    skipped: Ints  # (n, SKIPS)
    shed: Ints  # (n, the ledger's columns) -> rows dropped at the queue
    counts: Ints
    done: Ints  # rows taken, pairs, skipped intervals, rows dropped
    score: Floats  # (place % room) -> what a row shares so far; UNTOUCHED between probes
    touched: Ints  # places with a score, and room for one more
    reached: Ints  # (age) -> the first place probed in that basic window


class Terms(NamedTuple):
    """What was asked for, as numbers."""

    span: Ints
    lateness: int
    rule: Rule
    limit: Ints  # rows of each side, or of both if SHARED is not 0
    place: Ints  # WAY..SHARDS


@kernel
def step_sets(  # noqa: C901 - one loop
    shelf: Shelf, terms: Terms, effort: Effort, rows: Rows, told: Told
) -> int:
    """Take rows until one of them needs more room, or a period ends. O(rows compared, or postings visited)."""
    shelf, effort, rows, told = borrowed(shelf), borrowed(effort), borrowed(rows), borrowed(told)
    terms = borrowed(terms)
    done, marks = told.done, shelf.marks
    while done[0] < rows.side.size:
        at = done[0]
        side, tick = wide(rows.side[at]), rows.tick[at]
        other = 1 - side
        if tick >= effort.dials[ENDS]:
            return PERIOD
        for each in range(2):
            told.counts[EXPIRED + each] += expire(shelf, each, terms.span[each], tick - terms.lateness)
        if marks[NEXT + other] - marks[LOW + other] > told.pairs.shape[1] - done[1]:
            return PAIRS_FULL
        if done[2] + shelf.basic.shape[1] > told.skipped.shape[0] or done[3] + 2 > told.shed.shape[0]:
            return LEDGER_FULL
        for each in range(2):
            if terms.rule.indexed and linked_too_many(shelf, each):
                return UNSEALED + each
        if make_room(shelf, terms, told, tick):  # the limit was lowered
            continue
        marks[CAME_TO + side] = rows.row[at] + 1
        home = is_home(terms, rows, at)
        told.counts[ARRIVED + side] += home
        kind = rows.kind[at] if rows.kind.size else wide(0)
        effort.kinds[side, kind] += 1
        if not treat(shelf, terms, effort, rows, told, at, kind):
            drop(told, side, rows.row[at], tick, wide(0), home)
        elif home or terms.place[WAY] == BY_ITEMS:
            insert(shelf, terms.rule, side, (tick, rows.ts[at], rows.row[at], kind, home), rows.sets, at)
            if terms.rule.indexed == BY_IDENTIFIER:
                take_time(effort, told, climbed(shelf, side))
            make_room(shelf, terms, told, tick)
        done[0] += 1
    return DONE


@part
def is_home(terms: Terms, rows: Rows, at: int) -> int:
    """Return 1 in the one shard that counts a row, else 0."""
    place = terms.place
    if place[WAY] == BY_ITEMS:
        return wide(item_part(rows.sets.item[rows.sets.begin[at]], place[SHARDS]) == place[SHARD])
    return wide(place[WAY] == WHOLE or rows.row[at] % place[SHARDS] == place[SHARD])


@part
def make_room(shelf: Shelf, terms: Terms, told: Told, tick: int) -> bool:
    """Give up a row if there are more than may be held: the one that would expire first; says if it did."""
    marks, limit, mask = shelf.marks, terms.limit, shelf.stamp.shape[1] - 1
    held = marks[NEXT] - marks[LOW], marks[NEXT + 1] - marks[LOW + 1]
    if limit[SHARED]:
        if held[0] + held[1] <= limit[0]:
            return False
        side = wide(held[0] == 0)
        if held[0] > 0 and held[1] > 0:
            lives = shelf.stamp[0, marks[LOW] & mask, TICK] + terms.span[0]
            side = wide(shelf.stamp[1, marks[LOW + 1] & mask, TICK] + terms.span[1] < lives)
    elif held[0] > limit[0]:
        side = wide(0)
    elif held[1] > limit[1]:
        side = wide(1)
    else:
        return False
    victim = shelf.stamp[side, marks[LOW + side] & mask]
    drop(told, side, victim[ROW], tick, marks[CAME_TO + 1 - side], victim[HOME])
    marks[LOW + side] += 1
    return True


@part
def drop(told: Any, side: int, row: int, tick: int, met: int, counted: int) -> None:
    """Write down a row that is given up: the rows of the other side before `met` are all that it could meet."""
    entry = told.shed[told.done[3]]
    entry[0], entry[1], entry[2], entry[3], entry[4] = side, row, BUDGET, tick, met
    told.done[3] += 1
    told.counts[SHED + 2 * BUDGET + side] += counted
    told.counts[COPIES] += 1 - counted


@part
def take_time(effort: Effort, told: Any, steps: float) -> None:
    """Let a list take so many steps more than it would in order of time."""
    told.counts[COMPARISONS] += wide(steps)
    effort.dials[BUSY] += steps / effort.dials[CAPACITY]


@part
def draw(effort: Effort) -> float:
    """Draw a number in [0, 1)."""
    effort.mode[DRAWS] += 1
    return unit(effort.seed[0], effort.mode[DRAWS])


@part
def treat(  # noqa: C901 - one choice
    shelf: Shelf, terms: Terms, effort: Effort, rows: Rows, told: Told, at: int, kind: int
) -> bool:
    """Probe the other window with a row, as much as there is time for; False: the row is to be dropped."""
    other, tick = 1 - wide(rows.side[at]), rows.tick[at]
    dials, mode, tally = effort.dials, effort.mode[MODE], effort.tally
    tally[CAME] += 1
    effort.mode[PASSED] += 1
    size = shelf.marks[NEXT + other] - shelf.marks[LOW + other]
    for age in range(told.reached.size):
        told.reached[age] = -1
    if mode == EVERYTHING:
        probe(shelf, terms, effort, rows, told, at, float(size), 0)
        return True
    if mode == PROMISING:
        return try_promising(shelf, terms, effort, rows, told, at, size)
    now = float(effort.mode[PASSED] if effort.mode[COUNTED] else tick)
    lag = max(0.0, dials[BUSY] - now) / dials[PATIENCE]
    ease = max(0.0, min(1.0, 2.0 - 2.0 * lag))  # half of the queue is for bursts
    tally[SHARES] += ease
    if mode == DROPPING and draw(effort) >= ease:
        tally[MISSED] += 1
        return False
    way, part_of = 0, float(size)
    if mode == SELECTED:
        share = effort.fraction[other, kind]
        if dials[BASE] > 0.0:
            share = min(1.0, share * ease / dials[BASE])
        if draw(effort) >= dials[SAMPLING]:
            way, part_of = 1, np.floor(share * size + draw(effort))
    elif mode == SOME and draw(effort) >= ease:
        part_of = 0.0
    if lag > 1.0:  # no time at all
        part_of = 0.0
        tally[MISSED] += 1
    work = probe(shelf, terms, effort, rows, told, at, part_of, way)
    dials[BUSY] = max(dials[BUSY], now) + work / dials[CAPACITY]
    if part_of < size:
        skip(shelf, rows, told, at)
    return True


@part
def try_promising(shelf: Shelf, terms: Terms, effort: Effort, rows: Rows, told: Told, at: int, size: int) -> bool:
    """Probe the whole other window with a row that promises enough, or that a lot chose; False: drop it."""
    promises, dials = effort.promises, effort.dials
    divided = terms.place[WAY] == BY_ITEMS
    level = level_of(promises, rows.sets, at, (terms.place[SHARD], terms.place[SHARDS] if divided else 0))
    bar = promises.dials
    now = float(effort.mode[PASSED] if effort.mode[COUNTED] else rows.tick[at])
    promises.levels[level, promise.CAME] += 1.0
    bar[promise.ROWS] += 1.0
    chosen = level > bar[promise.BAR]
    if not chosen:
        chosen = draw(effort) < (bar[promise.TIE] if level == bar[promise.BAR] else bar[promise.CHANCE])
    if not chosen or dials[BUSY] - now > dials[PATIENCE]:
        return False
    work = probe(shelf, terms, effort, rows, told, at, float(size), 0)
    promises.levels[level, promise.ENTERED] += 1.0
    promises.levels[level, promise.COST] += work
    bar[promise.WORK] += work
    dials[BUSY] = max(dials[BUSY], now) + work / dials[CAPACITY]
    return True


@part
def skip(shelf: Shelf, rows: Rows, told: Told, at: int) -> None:
    """Write down what was not probed, from the oldest row on, neighbouring basic windows as one interval."""
    side = wide(rows.side[at])
    other, mask = 1 - side, shelf.stamp.shape[1] - 1
    newest, low = shelf.marks[BASIC + other], shelf.marks[LOW + other]
    begin = after = wide(-1)
    for behind in range(min(newest + 1, told.reached.size)):
        age = min(newest + 1, told.reached.size) - 1 - behind
        window = newest - age
        first, end = max(low, shelf.basic[other, window % shelf.basic.shape[1], FIRST]), end_of(shelf, other, window)
        reached = end if told.reached[age] < 0 else told.reached[age]
        if first >= reached:
            continue
        if first != after:
            if after > begin:
                note(shelf, rows, told, at, begin, after, mask)
            begin = first
        after = reached
    if after > begin:
        note(shelf, rows, told, at, begin, after, mask)


@part
def note(shelf: Shelf, rows: Rows, told: Told, at: int, begin: int, after: int, mask: int) -> None:
    """Write down one interval of places."""
    side = wide(rows.side[at])
    entry = told.skipped[told.done[2]]
    entry[0], entry[1], entry[2] = side, rows.row[at], rows.tick[at]
    entry[3] = shelf.stamp[1 - side, begin & mask, ROW]
    entry[4] = shelf.stamp[1 - side, (after - 1) & mask, ROW] + 1
    told.done[2] += 1


@part
def probe(
    shelf: Shelf, terms: Terms, effort: Effort, rows: Rows, told: Told, at: int, part_of: float, way: int
) -> float:
    """Compare a row with so many rows of the other window (Algorithm 3); returns the work done.

    `way` 0 is full processing: newest first. 1 is selective: the most profitable first; in the
    last basic window the newest rows.
    """
    other, ages, newest = 1 - wide(rows.side[at]), shelf.basic.shape[1], shelf.marks[BASIC + 1 - wide(rows.side[at])]
    low, work, left = shelf.marks[LOW + other], 0.0, part_of
    for nth in range(ages):
        age = effort.order[other, nth] if way == 1 else wide(nth)
        window = newest - age
        if left < 1.0 or window < 0:
            continue
        end = end_of(shelf, other, window)
        first = max(low, shelf.basic[other, window % ages, FIRST])
        if terms.rule.indexed != BY_IDENTIFIER:  # whose lists are not in order of time: all of them or nothing
            first = max(first, end - wide(left))
        if first >= end:
            continue
        found = told.done[1]
        if terms.rule.indexed:
            work += look_up(shelf, terms, effort, rows, told, at, first, window % ages)
        else:
            work += compare(shelf, terms, rows, told, at, first, end)
        left -= end - first
        told.reached[age] = first
        found = told.done[1] - found
        told.counts[PAIRS] += found
        effort.tally[COMPARED + way] += end - first
        effort.tally[FOUND + way] += found
        effort.matched[other, age, way] += found
        effort.tried[other, age, way] += end - first
    told.counts[COMPARISONS] += wide(work)
    effort.tally[WORK + way] += work
    return work


@part
def emit(shelf: Shelf, terms: Terms, rows: Rows, told: Told, at: int, where: int) -> None:
    """Write down a pair, if both rows are alive at the same time."""
    side = wide(rows.side[at])
    apart = rows.ts[at] - shelf.stamp[1 - side, where, TS]
    older = 1 - side if apart >= 0 else side
    if abs(apart) >= terms.span[older]:
        return
    told.pairs[side, told.done[1]] = rows.row[at]
    told.pairs[1 - side, told.done[1]] = shelf.stamp[1 - side, where, ROW]
    told.done[1] += 1


@part
def compare(shelf: Shelf, terms: Terms, rows: Rows, told: Told, at: int, first: int, end: int) -> float:
    """Compare a row with each row at some places of the other window, newest first: a nested loop."""
    side, rule, mask = wide(rows.side[at]), terms.rule, shelf.stamp.shape[1] - 1
    for back in range(end - first):
        where = (end - 1 - back) & mask
        if rule.kind == BAND:
            meets = near(shelf, rule, 1 - side, where, rows.sets, at)
        else:
            shared = shared_by(shelf, rule, 1 - side, where, rows.sets, at)
            meets = holds(rule, side, shared, rows.sets.size[at], shelf.stamp[1 - side, where, SIZE])
        if meets:
            emit(shelf, terms, rows, told, at, where)
    return float(end - first)


@part
def touch(shelf: Shelf, told: Told, place: int, weight: float, count: int) -> int:
    """Add to the score of the row at a place; returns how many rows have one."""
    where = place & (shelf.stamp.shape[1] - 1)
    before = told.score[where]
    told.touched[count] = where
    told.score[where] = max(before, 0.0) + weight
    return count + (before == UNTOUCHED)


@part
def walk(
    shelf: Shelf, rule: Rule, sets: Sets, told: Told, other: int, slot: int, first: int, mine: int, count: int
) -> tuple[int, int]:
    """Sum up what an item brings, over one list of a basic window from the newest posting to a place.

    Returns how many rows have a score, and how many postings of the item were met.
    """
    item, items, buckets = sets.item[mine], shelf.item.shape[1] - 1, shelf.marks[BUCKETS + other]
    weight, met = 1.0, 0
    posting = shelf.heads[other, slot, bucket_of(item, shelf.heads.shape[2])]
    bucket = slot * buckets + bucket_of(item, buckets)
    begin, where = shelf.starts[other, bucket], shelf.starts[other, bucket + 1] - 1
    oldest = first_linked(shelf, other)
    while posting >= oldest and shelf.link[other, posting & items, OWNER] >= first:
        at = posting & items
        if shelf.link[other, at, ITEM] == item:
            if rule.kind == PRODUCT:
                weight = sets.weight[mine] * shelf.weight[other, at]
            count = touch(shelf, told, shelf.link[other, at, OWNER], weight, count)
            met += 1
        posting = shelf.link[other, at, OLDER]
    while where >= begin and shelf.sealed[other, where, OWNER] >= first:
        if shelf.sealed[other, where, ITEM] == item:
            if rule.kind == PRODUCT:
                weight = sets.weight[mine] * shelf.sealed_weight[other, where]
            count = touch(shelf, told, shelf.sealed[other, where, OWNER], weight, count)
            met += 1
        where -= 1
    return count, met


@part
def look_up(
    shelf: Shelf, terms: Terms, effort: Effort, rows: Rows, told: Told, at: int, first: int, slot: int
) -> float:
    """Find what a row meets in one basic window from a place on, by the lists of its items.

    Each row's share is summed up where it is met: O(1) a posting, where merging the lists with a heap takes
    O(log items). Work is lists opened plus postings of their items met. Where rows are divided by items, only the
    lists of this shard's items are walked, and what they name is compared.
    """
    side, rule, sets = wide(rows.side[at]), terms.rule, rows.sets
    divided, shard, shards = terms.place[WAY] == BY_ITEMS, terms.place[SHARD], terms.place[SHARDS]
    other, learns, promises = 1 - side, effort.mode[MODE] == PROMISING, effort.promises
    visited, count = 0, 0
    for i in range(sets.begin[at], sets.begin[at] + sets.size[at]):
        if divided and item_part(sets.item[i], shards) != shard:
            continue
        if learns:
            promises.lists[slot_of(sets.item[i]), promise.WALKED] += 1.0
        count, met = walk(shelf, rule, sets, told, other, slot, first, i, count)
        visited += 1 + met
    for i in range(count):
        where = told.touched[i]
        if divided:
            told.score[where] = shared_by(shelf, rule, other, where, sets, at)
            if not first_shared_in(shelf, other, where, sets, at, shard, shards):
                told.score[where] = UNTOUCHED
                continue
        if holds(rule, side, told.score[where], sets.size[at], shelf.stamp[other, where, SIZE]):
            emit(shelf, terms, rows, told, at, where)
            if learns:
                credit(promises, shelf, other, where, sets, at, (shard, shards if divided else 0))
        told.score[where] = UNTOUCHED
    return float(visited + count if divided else visited)


@kernel
def expire_sets(shelf: Shelf, terms: Terms, counts: Ints, bar: int) -> None:
    """Let go of the rows of both sides with ``tick + span <= bar``."""
    shelf, counts, terms = borrowed(shelf), borrowed(counts), borrowed(terms)
    for side in range(2):
        counts[EXPIRED + side] += expire(shelf, side, terms.span[side], bar)
