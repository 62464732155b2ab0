"""Move rows through a queue, an aux-window and join-windows: shed at the front, rank, and probe those that pay.

A row that gets past the queue enters its window at once: rows that come later can meet it. What it will find itself
is known from a histogram of the other window, and is ranked among the counts of the rows around it: those that would
find least are not probed. Judged when it leaves the aux-window (dual2006), a row is ranked among those that came
after it, and its pairs are told a window later; judged at once, among those that came before it. A row may also be
probed and not enter.

Rows of both sides leave the aux-window in the order in which they entered it. So a row meets just the rows that the
histogram counted, whatever the speeds of the streams (dual2006 says so for speeds 1:1 only).
"""

from typing import NamedTuple

import numpy as np

from penstock.core.jit import borrowed, kernel, part, wide
from penstock.core.probing import PERIOD, drop
from penstock.core.rng import State, unit
from penstock.core.step import ARRIVED, COMPARISONS, DONE, EXPIRED, LEDGER_FULL, PAIRS, PAIRS_FULL, Batch
from penstock.core.windows import Floats, Ints, Words, home

# columns of a row in its window: its number, what its age counts from, its key, the next older row of that key
ROW, POS, KEY, OLDER = 0, 1, 2, 3
COLUMNS = 4
# columns of a row that is ranked: its side, place (-1: it did not enter), number and key, what it finds, its tick,
# the clock of each side when it came, and the rows of the other side that it can meet, from a number up to another
SIDE, PLACE, NUMBER, OF, COUNT, TICK, CLOCK, BEGIN, END = 0, 1, 2, 3, 4, 5, 6, 8, 9
RANKED = 10
# marks: by side the next place, the first that newcomers can meet, the first that is held, the number of the next
# row; then the next rank and the first; the number of keys; of draws
NEXT, LOW, HELD, CAME_TO, TAIL, HEAD, KEYS, DRAWS = 0, 2, 4, 6, 8, 9, 10, 11
MARKS = 12
# dials: work a tick (or a row), ticks (or rows) that rows may wait, when the CPU is free, work of an update (a probe
# is 1), when the period began, how many ticks and rows it lasts, how many rows or ticks are ranked, the share not
# probed, the score a row must exceed to enter, the chance of those that only reach it, what a partner held and what a
# key's worth adds to it, the work a tick (or a row) the last choice was made for, rows a tick of each side then, and
# how much of their promise choices of keys keep
CAPACITY, PATIENCE, BUSY, UPDATE, BEGAN, TICKS, ROWS, REACH, REAR, BAR, TIE, PARTNER, WORTH, TUNED, RATE = range(15)
LASTED = 16
DIALS = 17
# entries of `tally`, for one period: rows that came on each side, and those that entered
CAME, ENTERED = 0, 2
TALLY = 3
# what was asked for: windows in rows; over entered rows; judged on leaving the aux-window; all rows may be probed,
# also those that do not enter; the queue counts rows and not ticks
BY_ROWS, OVER_ENTERED, LATER, ANYBODY, COUNTED = 0, 1, 2, 3, 4
# entries of `limit`: rows of each side, or of both if the last is not 0
SHARED = 2


class Lanes(NamedTuple):
    """Both windows, the aux-window, and what is known of the keys."""

    rows: Ints  # (side, place % room, ROW..OLDER)
    ranked: Ints  # (rank % room, SIDE..END)
    below: Ints  # a Fenwick tree over counts: how many ranked rows find so many
    table: Words  # where a code is among the keys; -1: nobody
    code: Ints  # by key
    held: Ints  # (side, key) -> rows that a newcomer can meet: the window-histograms
    heads: Ints  # (side, key) -> the newest row that has left the aux-window; -1: none
    seen: Floats  # (side, key) -> rows that came, fading
    was: Floats  # the same, when the period began
    worth: Floats  # (side, key) -> what the controller thinks of it
    scores: Floats  # of rows that came in this period, the latest
    dials: Floats
    tally: Floats
    marks: Ints
    kind: Ints  # BY_ROWS..COUNTED
    limit: Ints
    seed: State


class Told(NamedTuple):
    """Where results go, and how far it is."""

    pairs: Ints  # (side, n) -> row numbers
    skipped: Ints  # (n, SKIPS)
    shed: Ints  # (n, the ledger's columns)
    counts: Ints
    done: Ints  # rows taken, pairs, skipped intervals, rows dropped


@part
def key_id(lanes: Lanes, code: int) -> int:
    """Return the number of a key, a new one for a new code; there must be room."""
    table, marks = lanes.table, lanes.marks
    at = home(table, code)
    while table[at] >= 0 and lanes.code[table[at]] != code:
        at = (at + 1) & (table.size - 1)
    if table[at] < 0:
        new = marks[KEYS]
        table[at], lanes.code[new] = new, code
        for side in range(2):
            lanes.held[side, new], lanes.heads[side, new] = 0, -1
            lanes.seen[side, new] = lanes.was[side, new] = lanes.worth[side, new] = 0.0
        marks[KEYS] = new + 1
    return wide(table[at])


@kernel
def enter_codes(lanes: Lanes) -> None:
    """Fill the table anew with the codes of all keys."""
    lanes = borrowed(lanes)
    table = lanes.table
    table[:] = -1
    for key in range(lanes.marks[KEYS]):
        at = home(table, lanes.code[key])
        while table[at] >= 0:
            at = (at + 1) & (table.size - 1)
        table[at] = key


@part
def add(below: Ints, count: int, change: int) -> None:
    """Say that one more row finds so many, or one less. O(log)."""
    at = count + 1
    while at < below.size:
        below[at] += change
        at += at & -at


@part
def less_than(below: Ints, count: int) -> int:
    """Return how many ranked rows find fewer. O(log)."""
    total, at = wide(0), count
    while at > 0:
        total += below[at]
        at -= at & -at
    return total


@kernel
def rank_anew(lanes: Lanes) -> None:
    """Fill the tree anew with the counts of all ranked rows."""
    lanes = borrowed(lanes)
    lanes.below[:] = 0
    for rank in range(lanes.marks[HEAD], lanes.marks[TAIL]):
        add(lanes.below, lanes.ranked[rank & (lanes.ranked.shape[0] - 1), COUNT], 1)


@part
def draw(lanes: Lanes) -> float:
    """Draw a number in [0, 1)."""
    lanes.marks[DRAWS] += 1
    return unit(lanes.seed[0], lanes.marks[DRAWS])


@part
def clock_of(lanes: Lanes, batch: Batch, at: int, side: int) -> int:
    """Return what ages of rows of a side are counted to when a row comes."""
    if lanes.kind[OVER_ENTERED]:
        return lanes.marks[NEXT + side]
    return batch.clock[at, side] if lanes.kind[BY_ROWS] else batch.tick[at]


@part
def forget(lanes: Lanes, span: Ints, batch: Batch, at: int) -> None:
    """Take rows out of the histograms that a newcomer cannot meet any more."""
    mask, marks = lanes.rows.shape[1] - 1, lanes.marks
    for side in range(2):
        clock = clock_of(lanes, batch, at, side)
        while marks[LOW + side] < marks[NEXT + side]:
            row = lanes.rows[side, marks[LOW + side] & mask]
            if clock - row[POS] < span[side]:
                break
            lanes.held[side, row[KEY]] -= 1
            marks[LOW + side] += 1


@part
def passes(lanes: Lanes, side: int, key: int) -> bool:
    """Say whether a row is let into its window."""
    dials, tally = lanes.dials, lanes.tally
    score = dials[PARTNER] * lanes.held[1 - side, key] + dials[WORTH] * lanes.worth[side, key]
    lanes.scores[wide(tally[CAME] + tally[CAME + 1]) % lanes.scores.size] = score
    tally[CAME + side] += 1
    lanes.seen[side, key] += 1.0
    if score == dials[BAR]:
        return draw(lanes) < dials[TIE]
    return score > dials[BAR]


@part
def rank(lanes: Lanes, batch: Batch, at: int, key: int) -> None:
    """Put a row among those that are ranked, with the number of rows that it can meet."""
    marks, side, mask = lanes.marks, wide(batch.side[at]), lanes.rows.shape[1] - 1
    other = 1 - side
    ranked = lanes.ranked[marks[TAIL] & (lanes.ranked.shape[0] - 1)]
    ranked[SIDE], ranked[PLACE], ranked[NUMBER], ranked[OF] = side, -1, batch.row[at], key
    ranked[COUNT], ranked[TICK] = lanes.held[other, key], batch.tick[at]
    for each in range(2):
        ranked[CLOCK + each] = clock_of(lanes, batch, at, each)
    ranked[BEGIN] = lanes.rows[other, marks[LOW + other] & mask, ROW]
    ranked[END] = lanes.rows[other, (marks[NEXT + other] - 1) & mask, ROW] + 1
    add(lanes.below, ranked[COUNT], 1)
    marks[TAIL] += 1


@part
def enter(lanes: Lanes, batch: Batch, at: int, key: int) -> None:
    """Let the row that was ranked last into its window."""
    marks, side, tick = lanes.marks, wide(batch.side[at]), batch.tick[at]
    place = marks[NEXT + side]
    lanes.ranked[(marks[TAIL] - 1) & (lanes.ranked.shape[0] - 1), PLACE] = place
    row = lanes.rows[side, place & (lanes.rows.shape[1] - 1)]
    row[ROW], row[KEY] = batch.row[at], key
    row[POS] = place + 1 if lanes.kind[OVER_ENTERED] else batch.pos[at]
    lanes.held[side, key] += 1
    lanes.tally[ENTERED] += 1
    marks[NEXT + side] = place + 1
    spend(lanes, tick, lanes.dials[UPDATE])


@part
def spend(lanes: Lanes, tick: int, work: float) -> None:
    """Work for a row that came at a tick."""
    dials = lanes.dials
    dials[BUSY] = max(dials[BUSY], now_of(lanes, tick)) + work / dials[CAPACITY]


@part
def now_of(lanes: Lanes, tick: int) -> float:
    """Return what time it is for the queue."""
    return float(lanes.marks[CAME_TO] + lanes.marks[CAME_TO + 1] if lanes.kind[COUNTED] else tick)


@part
def make_room(lanes: Lanes, span: Ints, batch: Batch, at: int, told: Told) -> bool:
    """Give up a row if there are more than may be held: the one that would expire first; says if it did."""
    marks, limit, mask = lanes.marks, lanes.limit, lanes.rows.shape[1] - 1
    held = marks[NEXT] - marks[LOW], marks[NEXT + 1] - marks[LOW + 1]
    side = wide(0)
    if limit[SHARED]:
        if held[0] + held[1] <= limit[0]:
            return False
        lives = np.inf
        for each in range(2):
            if held[each] > 0:
                oldest = lanes.rows[each, marks[LOW + each] & mask, POS]
                left = (oldest + span[each] - clock_of(lanes, batch, at, each)) / span[each]
                if left < lives:
                    side, lives = wide(each), left
    elif held[0] <= limit[0]:
        if held[1] <= limit[1]:
            return False
        side = wide(1)
    told.counts[EXPIRED + side] += marks[LOW + side] - marks[HELD + side]
    victim = lanes.rows[side, marks[LOW + side] & mask]
    lanes.held[side, victim[KEY]] -= 1
    drop(told, side, victim[ROW], batch.tick[at], marks[CAME_TO + 1 - side], wide(1))
    marks[LOW + side] += 1
    marks[HELD + side] = marks[LOW + side]
    return True


@part
def rear_of(lanes: Lanes, tick: int) -> float:
    """Return the share that is not probed: more where anybody may be and the queue is more than half full.

    So a queue that fills costs probes that find little before it costs rows.
    """
    rear, wait = lanes.dials[REAR], lanes.dials[PATIENCE]
    if not lanes.kind[ANYBODY] or np.isinf(wait):
        return rear
    full = (lanes.dials[BUSY] - now_of(lanes, tick)) / wait
    return rear + (1.0 - rear) * min(1.0, max(0.0, 2.0 * full - 1.0))


@part
def pays(lanes: Lanes, count: int, tick: int) -> bool:
    """Say whether a row that finds so many is probed: not if it is among the share that finds least.

    References: dual2006 §3.2, Algorithm 1.
    """
    bar = rear_of(lanes, tick) * (lanes.marks[TAIL] - lanes.marks[HEAD])
    less = less_than(lanes.below, count)
    if less >= bar:
        return True
    equal = less_than(lanes.below, count + 1) - less
    return less + equal > bar and draw(lanes) >= (bar - less) / equal


@part
def release(lanes: Lanes, span: Ints, rank: int, told: Told) -> bool:
    """Judge a row, probe with it or write down what was skipped, and let later rows find it; says if it probed."""
    marks, done, mask = lanes.marks, told.done, lanes.rows.shape[1] - 1
    ranked = lanes.ranked[rank & (lanes.ranked.shape[0] - 1)]
    side, key, count, place = ranked[SIDE], ranked[OF], ranked[COUNT], ranked[PLACE]
    other = 1 - side
    for each in range(2):
        while marks[HELD + each] < marks[LOW + each]:
            oldest = lanes.rows[each, marks[HELD + each] & mask]
            if ranked[CLOCK + each] - oldest[POS] < span[each]:
                break
            marks[HELD + each] += 1
            told.counts[EXPIRED + each] += 1
    probed = pays(lanes, count, ranked[TICK])
    if probed:
        spend(lanes, ranked[TICK], 1.0)
        told.counts[COMPARISONS] += 1
        told.counts[PAIRS] += count
        at = lanes.heads[other, key]
        while at >= marks[HELD + other]:
            partner = lanes.rows[other, at & mask]
            told.pairs[side, done[1]], told.pairs[other, done[1]] = ranked[NUMBER], partner[ROW]
            done[1] += 1
            at = partner[OLDER]
    elif count > 0 and place >= 0:
        entry = told.skipped[done[2]]
        entry[0], entry[1], entry[2] = side, ranked[NUMBER], ranked[TICK]
        entry[3], entry[4] = ranked[BEGIN], ranked[END]
        done[2] += 1
    if place >= 0:
        lanes.rows[side, place & mask, OLDER] = lanes.heads[side, key]
        lanes.heads[side, key] = place
    return probed


@part
def leaves(lanes: Lanes, tick: int) -> bool:
    """Say whether the first of the ranked rows makes room for one that enters at a tick."""
    head, tail, reach = lanes.marks[HEAD], lanes.marks[TAIL], lanes.dials[REACH]
    if lanes.kind[BY_ROWS]:
        return tail - head >= reach
    return head < tail and tick - lanes.ranked[head & (lanes.ranked.shape[0] - 1), TICK] >= reach


@part
def is_full(lanes: Lanes, told: Told) -> int:
    """Say what there is no room for, in case the next row is probed, or is not."""
    marks, done = lanes.marks, told.done
    if max(marks[NEXT] - marks[HELD], marks[NEXT + 1] - marks[HELD + 1]) > told.pairs.shape[1] - done[1]:
        return PAIRS_FULL
    return LEDGER_FULL if done[2] == told.skipped.shape[0] or done[3] + 2 > told.shed.shape[0] else DONE


@part
def shift(lanes: Lanes, span: Ints, told: Told) -> None:
    """Take the first of the ranked rows out; if rows are judged on leaving, that is now."""
    marks = lanes.marks
    if lanes.kind[LATER]:
        release(lanes, span, marks[HEAD], told)
    add(lanes.below, lanes.ranked[marks[HEAD] & (lanes.ranked.shape[0] - 1), COUNT], -1)
    marks[HEAD] += 1


@part
def take(lanes: Lanes, span: Ints, batch: Batch, at: int, key: int, told: Told) -> None:
    """Let a row enter, be probed, both, or neither; a row that finds the queue full never does."""
    side, tick = wide(batch.side[at]), batch.tick[at]
    told.counts[ARRIVED + side] += 1
    lanes.marks[CAME_TO + side] = batch.row[at] + 1
    forget(lanes, span, batch, at)
    enters = passes(lanes, side, key)
    if lanes.dials[BUSY] - now_of(lanes, tick) > lanes.dials[PATIENCE]:
        drop(told, side, batch.row[at], tick, wide(0), wide(1))
        return
    probed = False
    if enters or lanes.kind[ANYBODY]:
        rank(lanes, batch, at, key)
        if enters:
            enter(lanes, batch, at, key)
        if not lanes.kind[LATER]:
            probed = release(lanes, span, lanes.marks[TAIL] - 1, told)
    if not enters:
        drop(told, side, batch.row[at], tick, lanes.marks[CAME_TO + 1 - side] if probed else wide(0), wide(1))
    make_room(lanes, span, batch, at, told)


@kernel
def step_lanes(lanes: Lanes, span: Ints, batch: Batch, code: Ints, told: Told) -> int:
    """Take rows until one of them needs more room, or a period ends. O(log window + pairs) a row."""
    lanes, span, batch, code, told = borrowed(lanes), borrowed(span), borrowed(batch), borrowed(code), borrowed(told)
    done, dials, tally = told.done, lanes.dials, lanes.tally
    while done[0] < batch.side.size:
        at = done[0]
        tick = batch.tick[at]
        if tick > dials[BEGAN] and (
            tick - dials[BEGAN] >= dials[TICKS] or tally[CAME] + tally[CAME + 1] >= dials[ROWS]
        ):
            return PERIOD
        while leaves(lanes, tick):
            full = is_full(lanes, told)
            if full != DONE:
                return full
            shift(lanes, span, told)
        full = is_full(lanes, told)
        if full != DONE:
            return full
        if make_room(lanes, span, batch, at, told):  # the limit was lowered
            continue
        take(lanes, span, batch, at, key_id(lanes, code[at]), told)
        done[0] += 1
    return DONE


@kernel
def flush_lanes(lanes: Lanes, span: Ints, told: Told) -> int:
    """Let all rows leave the aux-window, until one of them needs more room."""
    lanes, span, told = borrowed(lanes), borrowed(span), borrowed(told)
    while lanes.marks[HEAD] < lanes.marks[TAIL]:
        full = is_full(lanes, told)
        if full != DONE:
            return full
        shift(lanes, span, told)
    return DONE


def empty(kind: tuple[bool, bool, bool, bool, bool], limit: Ints, seed: State, room: int) -> Lanes:
    """Return lanes of a kind (BY_ROWS..COUNTED) without rows, where nothing is shed."""
    dials = np.zeros(DIALS)
    dials[[CAPACITY, PATIENCE, BUSY, TICKS, ROWS, BAR, LASTED]] = 1.0, np.inf, -np.inf, np.inf, np.inf, -1.0, 1.0
    return Lanes(
        np.zeros((2, room, COLUMNS), np.int64),
        np.zeros((2 * room, RANKED), np.int64),
        np.zeros(room + 2, np.int64),
        np.full(2 * room, -1, np.int32),
        np.zeros(room, np.int64),
        np.zeros((2, room), np.int64),
        np.zeros((2, room), np.int64),
        np.zeros((2, room)),
        np.zeros((2, room)),
        np.zeros((2, room)),
        np.zeros(room),
        dials,
        np.zeros(TALLY),
        np.zeros(MARKS, np.int64),
        np.array(kind, np.int64),
        limit,
        seed,
    )
