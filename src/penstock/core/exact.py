"""The exact join: nothing is given up, so rows need be found by key only.

Each side is a ring of its rows in order of arrival. There are three ways through a batch, with the same pairs:

- *chains*, for windows in time: a row names the one that came before it to its hash bucket, and a walk along that
  chain ends at the first row too old, by more than rows come behind newer ones. What expires is simply overwritten:
  nothing is unlinked. The sides need no common order: the right rows of a batch meet the left rows from before it,
  and then its left rows meet all right rows. O(1 + matches) per row in order, whatever the window.
- *grouped*, for windows in time: the rows of window and batch are sorted by key, so that the partners of a row lie
  side by side and are copied in one go. O(window + batch + matches) per batch of rows in order: the way for windows
  smaller than a batch, and for larger ones if there are many matches.
- *merged*, for windows in rows: chains too, but row by row in order of arrival, since each row moves the windows on.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, columns, kernel, part, prefetch, wide
from penstock.core.rng import GOLDEN, S32
from penstock.core.step import (
    ARRIVED,
    COMPARISONS,
    COUNTS,
    DONE,
    EXPIRED,
    NO_INTS,
    NO_ROWS,
    PAIRS,
    PAIRS_FULL,
    Batch,
    Plan,
)
from penstock.core.windows import NO_TICK, Ints, Words

NEXT, LOW = 0, 1
MOST, UNTIL, NEWEST = 0, 1, 2
TAKEN, FOUND, COMPARED = 0, 2, 3  # entries of `done`: rows taken, one per side if not merged; pairs; comparisons
CODE, OLDER, POS, ROW = 0, 1, 2, 3  # of a node
BUCKETS = 4  # hash buckets per place in a ring
FIRST_ROOM = 1024
PAGE = 1 << 18  # words of a large page
FIRST_PAIRS = 1 << 16
LAST_NUMBER = 1 << 30
NARROW, NARROW_BYTES = 1 << 31, 4  # numbers of rows below this fit so many bytes
NOT_BEGUN = -1
MANY_KEYS, NO_ROOM = -1, -2  # instead of a number of pairs
FORESEEN = 8  # rings grow to what the rate of arrivals lets expect, but not by more than that
SMALL_WINDOW = 4  # a batch so many times larger than the windows is grouped, or one with as many more matches
LAST_ROW = LAST_TICK = np.iinfo(np.int64).max
AHEAD = 8  # rows between asking for a bucket, asking for the row it names, and using both


class Arrivals(NamedTuple):
    """Rows of one side, in order of time."""

    code: Ints
    pos: Ints  # timestamps
    row: Ints  # numbers within the side

    def part(self, begin: int, end: int) -> "Arrivals":
        """Return the rows from one place to another."""
        return Arrivals(self.code[begin:end], self.pos[begin:end], self.row[begin:end])


def arrivals(code: Ints, pos: Ints, row: Ints) -> Arrivals:
    """Return rows as kernels take them: codes and times are read-only, as those in Arrow's memory are.

    Were they now one and now the other, each mixture would be compiled anew.
    """
    return Arrivals(_read_only(code), _read_only(pos), row)


def _read_only(array: Ints) -> Ints:
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


NOBODY = arrivals(NO_INTS, NO_INTS, NO_INTS)


@columns(heads=2, nodes=4)
class Rings(NamedTuple):
    """The rows of both sides that are not expired."""

    heads: Words  # (bucket, side) -> newest row there, by its place in the order of arrival; -1: none
    nodes: Ints  # (side, place % room, [CODE, OLDER, POS, ROW]): a row's code, the next older row of its bucket, its
    # time and its number: who meets it has all of them from one line of memory
    ends: Ints  # (side, [NEXT, LOW]): place of the next row to come, and of the oldest not expired
    behind: Ints  # (side, [MOST, UNTIL, NEWEST]): how far rows came behind newer ones, the place of the first that
    # did not, and the newest timestamp
    tick: Ints  # [newest tick]


class Survey(NamedTuple):
    """What there is to know of a batch before it is joined."""

    last: int  # its last moment
    low_left: int  # place of the first left row in the window at its first moment
    low_right: int
    held: int  # rows in both windows by then
    most: int  # left rows to take at once: no more than the windows hold, if rows are in order of time
    grouped: bool  # whether to group it
    newest: int  # the largest number of a row
    expected: int  # rows in the larger window, if they go on coming as they do in it


class Room(NamedTuple):
    """Where a batch is sorted."""

    table: Words  # bucket -> group
    groups: Ints  # group -> code
    member: Words  # the group of each row of a side
    start: Ints  # (side, group) -> first row in the two below
    row: Ints  # (side, sorted)
    pos: Ints  # (side, sorted)
    found: Ints  # [groups]


def room_for(rows: int, keys: int) -> Room:
    """Return room to sort so many rows of both sides together, with at most so many keys."""
    return Room(
        np.empty(1 << (2 * keys).bit_length(), np.int32),
        np.empty(rows, np.int64),
        np.empty(rows, np.int32),
        np.empty((2, rows + 1), np.int64),
        np.empty((2, rows), np.int64),
        np.empty((2, rows), np.int64),
        np.empty(1, np.int64),
    )


def empty(room: int) -> Rings:
    """Return rings for so many rows of each side, a power of two.

    They are laid side by side, from the beginning of a page on: a large piece of memory gets large pages from the
    system, a few where small ones would be thousands, and each first touch of a page costs microseconds.
    """
    heads, nodes = BUCKETS * room, 8 * room
    words = np.empty(heads + nodes + PAGE, np.int64)
    words = words[-(words.ctypes.data // 8) % PAGE :]
    words[:heads] = -1
    return Rings(
        words[:heads].view(np.int32).reshape(heads, 2),
        words[heads : heads + nodes].reshape(2, room, 4),
        np.zeros((2, 2), np.int64),
        np.array([[0, 0, NO_TICK]] * 2),
        np.full(1, NO_TICK),
    )


@part
def bucket(buckets: int, code: int) -> int:
    """Return where a code hashes to: the upper bits of its product with the golden ratio."""
    word = np.uint64(code) * GOLDEN
    return wide(((word >> S32) * np.uint64(buckets)) >> S32)


@part
def has_room(rings: Rings, side: int, rows: int) -> bool:
    """Say whether a ring has room for so many more rows."""
    end = rings.ends[side, NEXT] + rows
    return end - rings.ends[side, LOW] <= rings.nodes.shape[1] and end < LAST_NUMBER


@part
def put(rings: Rings, side: int, place: int, at: int, code: int, row: int, pos: int) -> None:
    """Add a row at the head of its chain."""
    slot = place & (rings.nodes.shape[1] - 1)
    rings.nodes[side, slot, CODE] = code
    rings.nodes[side, slot, OLDER] = rings.heads[at, side]
    rings.nodes[side, slot, ROW] = row
    rings.nodes[side, slot, POS] = pos
    rings.heads[at, side] = place


@part
def expire(rings: Rings, side: int, oldest: int, counts: Ints) -> int:
    """Let go of the rows that count from `oldest` or before; returns the place of the first that stays."""
    mask = rings.nodes.shape[1] - 1
    low, end = rings.ends[side, LOW], rings.ends[side, NEXT]
    while low < end and rings.nodes[side, low & mask, POS] <= oldest:
        low += 1
    counts[EXPIRED + side] += low - rings.ends[side, LOW]
    rings.ends[side, LOW] = low
    return low


@part
def look_ahead(rings: Rings, code: Ints, i: int, other: int) -> None:
    """Ask for the memory that rows soon to come will touch: of other rows, only for those not expired."""
    heads = rings.heads
    if i + 2 * AHEAD < code.size:
        prefetch(heads, bucket(heads.shape[0], code[i + 2 * AHEAD]))
    if i + AHEAD < code.size:
        place = wide(heads[bucket(heads.shape[0], code[i + AHEAD]), other])
        place = place if place >= rings.ends[other, LOW] else 0
        prefetch(rings.nodes[other], place & (rings.nodes.shape[1] - 1))


@part
def meet(rings: Rings, plan: Plan, rows: Arrivals, side: int, pairs: Ints, done: Ints) -> int:
    """Let rows of one side meet those of the other, and enter them; returns why it stopped."""
    other = 1 - side
    heads, nodes = rings.heads, rings.nodes[other]
    mask = rings.nodes.shape[1] - 1
    mine, theirs = pairs[side], pairs[other]
    older, newer = plan.span[other], plan.span[side]
    too_old = older + rings.behind[other, MOST]
    low, enter = rings.ends[other, LOW], rings.ends[side, NEXT]
    n, compared = done[FOUND], done[COMPARED]
    own = rings.nodes[side]
    why = DONE
    i = done[TAKEN + side]
    while i < rows.code.size:
        look_ahead(rings, rows.code, i, other)
        code, now = rows.code[i], rows.pos[i]
        at = bucket(heads.shape[0], code)
        place = wide(heads[at, other])
        begin = n
        while place >= low:
            spot = place & mask
            compared += 1
            if nodes[spot, CODE] == code:
                age = now - nodes[spot, POS]
                if age >= too_old:
                    break  # and everyone further along the chain is older than the window
                if age < older and -age < newer:
                    if n == mine.size:
                        why = PAIRS_FULL
                        break
                    mine[n] = rows.row[i]
                    theirs[n] = nodes[spot, ROW]
                    n += 1
            place = nodes[spot, OLDER]
        if why == PAIRS_FULL:
            n = begin
            break
        slot = enter & mask
        own[slot, CODE] = code
        own[slot, OLDER] = heads[at, side]
        own[slot, POS] = now
        own[slot, ROW] = rows.row[i]
        heads[at, side] = enter
        enter += 1
        i += 1
    rings.ends[side, NEXT] = enter
    done[TAKEN + side], done[FOUND], done[COMPARED] = i, n, compared
    return why


@kernel
def step_merged(rings: Rings, plan: Plan, batch: Batch, code: Ints, counts: Ints, pairs: Ints, done: Ints) -> int:
    """Take the rows of a batch in order of arrival, windows in rows; goes on from ``done``, returns why it stopped.

    Cost: O(1 + matches) per row.
    """
    rings, plan, batch, code = borrowed(rings), borrowed(plan), borrowed(batch), borrowed(code)
    counts, pairs, done = borrowed(counts), borrowed(pairs), borrowed(done)
    heads, nodes = rings.heads, rings.nodes
    mask = rings.nodes.shape[1] - 1
    n, compared = done[FOUND], done[COMPARED]
    for i in range(done[TAKEN], code.size):
        side = wide(batch.side[i])
        other = 1 - side
        look_ahead(rings, code, i, other)
        low = expire(rings, other, batch.clock[i, other] - plan.span[other], counts)
        at = bucket(heads.shape[0], code[i])
        place = wide(heads[at, other])
        begin = n
        while place >= low:
            spot = place & mask
            compared += 1
            if nodes[other, spot, CODE] == code[i]:
                if n == pairs.shape[1]:
                    done[TAKEN], done[FOUND], done[COMPARED] = i, begin, compared
                    return PAIRS_FULL
                pairs[side, n] = batch.row[i]
                pairs[other, n] = nodes[other, spot, ROW]
                n += 1
            place = nodes[other, spot, OLDER]
        put(rings, side, rings.ends[side, NEXT], at, code[i], batch.row[i], batch.pos[i])
        rings.ends[side, NEXT] += 1
    done[TAKEN], done[FOUND], done[COMPARED] = code.size, n, compared
    return DONE


@part
def group(room: Room, code: int) -> int:
    """Return the number of a key's group, a new one for a new key; -1: the table is half full."""
    table, groups, found = room.table, room.groups, room.found
    at = bucket(table.size, code)
    while table[at] >= 0 and groups[table[at]] != code:
        at = (at + 1) & (table.size - 1)
    if table[at] < 0:
        new = found[0]
        if 2 * new >= table.size:
            return -1
        table[at] = new
        groups[new] = code
        room.start[0, new + 1] = room.start[1, new + 1] = 0
        found[0] = new + 1
    return wide(table[at])


@part
def sort_side(rings: Rings, low: int, rows: Arrivals, side: int, room: Room) -> bool:
    """Sort the rows of one side in window and batch by key, keeping their order within a key (a counting sort).

    Returns whether the table had room for all keys.
    """
    member, start = room.member, room.start[side]
    mask = rings.nodes.shape[1] - 1
    held = rings.ends[side, NEXT] - low
    for n in range(held):
        mine = group(room, rings.nodes[side, (low + n) & mask, CODE])
        if mine < 0:
            return False
        member[n] = mine
        start[mine + 1] += 1
    for i in range(rows.code.size):
        mine = group(room, rows.code[i])
        if mine < 0:
            return False
        member[held + i] = mine
        start[mine + 1] += 1
    groups = room.found[0]
    for g in range(groups):
        start[g + 1] += start[g]
    for n in range(held):
        at = start[member[n]]
        room.row[side, at] = rings.nodes[side, (low + n) & mask, ROW]
        room.pos[side, at] = rings.nodes[side, (low + n) & mask, POS]
        start[member[n]] = at + 1
    for i in range(rows.code.size):
        at = start[member[held + i]]
        room.row[side, at] = rows.row[i]
        room.pos[side, at] = rows.pos[i]
        start[member[held + i]] = at + 1
    for back in range(groups):
        g = groups - back
        start[g] = start[g - 1]
    start[0] = 0
    return True


@kernel
def join_grouped(
    rings: Rings, plan: Plan, low: tuple[int, int], left: Arrivals, right: Arrivals, room: Room, pairs: Ints
) -> int:
    """Sort the rows held from these places on and a batch by key, and emit the pairs with a row that is new.

    Returns how many they are; MANY_KEYS: there are too many for the table; NO_ROOM: for them.
    """
    rings, plan, left, right = borrowed(rings), borrowed(plan), borrowed(left), borrowed(right)
    room, pairs = borrowed(room), borrowed(pairs)
    room.table[:] = -1
    room.found[0] = 0
    room.start[0, 0] = room.start[1, 0] = 0
    if not sort_side(rings, low[0], left, 0, room):
        return MANY_KEYS
    on_left = room.found[0]  # its keys are the first
    if not sort_side(rings, low[1], right, 1, room):
        return MANY_KEYS
    new_left = left.row[0] if left.row.size else LAST_ROW
    new_right = right.row[0] if right.row.size else LAST_ROW
    mine, theirs = pairs[0], pairs[1]
    rows, pos = room.row[1], room.pos[1]
    n = 0
    for g in range(on_left):
        begin, end = room.start[1, g], room.start[1, g + 1]
        fresh = begin
        while fresh < end and rows[fresh] < new_right:
            fresh += 1
        stop = begin
        for at in range(room.start[0, g], room.start[0, g + 1]):
            row, now = room.row[0, at], room.pos[0, at]
            while begin < end and now - pos[begin] >= plan.span[1]:
                begin += 1
            while stop < end and pos[stop] - now < plan.span[0]:
                stop += 1
            least = begin if row >= new_left else max(begin, fresh)
            if n + stop - least > mine.size:
                return NO_ROOM
            for partner in range(least, stop):
                mine[n] = row
                theirs[n] = rows[partner]
                n += 1
    return n


@part
def append_rows(rings: Rings, rows: Arrivals, first: int, side: int) -> None:
    """Add rows of one side, from one on, to its ring, without chains."""
    nodes, end = rings.nodes[side], rings.ends[side, NEXT]
    mask = nodes.shape[0] - 1
    for i in range(first, rows.code.size):
        slot = end & mask
        nodes[slot, CODE] = rows.code[i]
        nodes[slot, POS] = rows.pos[i]
        nodes[slot, ROW] = rows.row[i]
        end += 1
    rings.ends[side, NEXT] = end


@kernel
def refill(rings: Rings, old: Rings) -> None:
    """Enter the live rows of older rings."""
    rings, old = borrowed(rings), borrowed(old)
    mask = old.nodes.shape[1] - 1
    for side in range(2):
        for place in range(old.ends[side, LOW], old.ends[side, NEXT]):
            at = place & mask
            code = old.nodes[side, at, CODE]
            slot = bucket(rings.heads.shape[0], code)
            put(rings, side, rings.ends[side, NEXT], slot, code, old.nodes[side, at, ROW], old.nodes[side, at, POS])
            rings.ends[side, NEXT] += 1


@part
def first_after(rings: Rings, side: int, oldest: int) -> int:
    """Return the place of the first row that counts from after `oldest`: rows are in order of time."""
    mask = rings.nodes.shape[1] - 1
    low, high = rings.ends[side, LOW], rings.ends[side, NEXT]
    while low < high:
        middle = (low + high) // 2
        if rings.nodes[side, middle & mask, POS] <= oldest:
            low = middle + 1
        else:
            high = middle
    return wide(low)


@part
def leave(rings: Rings, plan: Plan, lows: tuple[int, int], counts: Ints) -> None:
    """Let go of the rows before these places, unless late rows may meet them: then a watermark does it."""
    if not plan.patient or plan.by_rows:
        for side in range(2):
            counts[EXPIRED + side] += lows[side] - rings.ends[side, LOW]
            rings.ends[side, LOW] = lows[side]


@part
def look_over(rings: Rings, plan: Plan, left: Arrivals, right: Arrivals, counts: Ints) -> Survey:
    """Note how far rows come behind newer ones of their side, and let go of what is too old for all of a batch.

    O(rows).
    """
    first, last, in_order, newest_row, expected = LAST_TICK, NO_TICK, True, wide(0), 0.0
    for side in range(2):
        pos = left.pos if side == 0 else right.pos
        ends, behind = rings.ends[side], rings.behind[side]
        if ends[LOW] >= behind[UNTIL]:
            behind[MOST] = 0
        if pos.size == 0:
            continue
        rising = True
        for i in range(1, pos.size):
            rising &= pos[i] >= pos[i - 1]
        low, high = pos[0], pos[pos.size - 1]
        newest = behind[NEWEST]
        for i in range(np.searchsorted(pos, newest) if rising else pos.size):
            low, high = min(low, pos[i]), max(high, pos[i])
            if pos[i] < newest:
                behind[MOST] = max(behind[MOST], newest - pos[i])
                behind[UNTIL] = ends[NEXT] + i
            newest = max(newest, pos[i])
        behind[NEWEST] = max(newest, high)
        first, last, in_order = min(first, low), max(last, high), in_order and rising
        row = left.row if side == 0 else right.row
        newest_row = max(newest_row, row[row.size - 1])
        expected = max(expected, pos.size * (plan.span[side] / (high - low + 1)))
    lows = first_after(rings, 0, first - plan.span[0]), first_after(rings, 1, first - plan.span[1])
    leave(rings, plan, lows, counts)
    held = rings.ends[0, NEXT] - lows[0] + rings.ends[1, NEXT] - lows[1]
    matches = max(counts[PAIRS] / max(counts[ARRIVED] + counts[ARRIVED + 1], 1), 1.0)
    overtaken = rings.behind[0, MOST] > 0 or rings.behind[1, MOST] > 0
    grouped = not overtaken and SMALL_WINDOW * max(held, expected) <= (left.pos.size + right.pos.size) * matches
    most = wide(max(held, FIRST_ROOM)) if in_order else wide(left.pos.size)
    return Survey(
        wide(last), lows[0], lows[1], wide(held), most, grouped, newest_row, wide(min(expected, LAST_NUMBER))
    )


@part
def release(rings: Rings, plan: Plan, left: int, right: int, counts: Ints) -> None:
    """Let go of what is too old at these clocks. O(log rows)."""
    lows = first_after(rings, 0, left - plan.span[0]), first_after(rings, 1, right - plan.span[1])
    leave(rings, plan, lows, counts)


@kernel
def let_go(rings: Rings, plan: Plan, left: int, right: int, counts: Ints) -> None:
    """Let go of what is too old at these clocks."""
    rings, plan, counts = borrowed(rings), borrowed(plan), borrowed(counts)
    release(rings, plan, left, right, counts)


@part
def enter(rings: Rings, plan: Plan, left: int, right: int, done: Ints, tick: int, clock: Ints, counts: Ints) -> None:
    """Write down what a batch of so many rows did, and let go of what is too old at its end."""
    counts[ARRIVED] += left
    counts[ARRIVED + 1] += right
    counts[PAIRS] += done[FOUND]
    counts[COMPARISONS] += done[COMPARED]
    rings.tick[0] = max(rings.tick[0], tick)
    release(rings, plan, clock[0], clock[1], counts)


@kernel
def survey(rings: Rings, plan: Plan, left: Arrivals, right: Arrivals, counts: Ints) -> Survey:
    """Note how far rows come behind newer ones of their side, and let go of what is too old for all of a batch."""
    rings, plan, left, right = borrowed(rings), borrowed(plan), borrowed(left), borrowed(right)
    return look_over(rings, plan, left, right, borrowed(counts))


@kernel
def settle(rings: Rings, plan: Plan, left: int, right: int, done: Ints, tick: int, clock: Ints, counts: Ints) -> None:
    """Write down what a batch of so many rows did, and let go of what is too old at its end."""
    rings, plan, done = borrowed(rings), borrowed(plan), borrowed(done)
    enter(rings, plan, left, right, done, tick, borrowed(clock), borrowed(counts))


@kernel
def settle_grouped(
    rings: Rings, plan: Plan, left: Arrivals, right: Arrivals, done: Ints, last: int, clock: Ints, counts: Ints
) -> bool:
    """Enter the rows of a batch that are not too old at its end, and settle it; returns whether they had room."""
    rings, plan, left, right = borrowed(rings), borrowed(plan), borrowed(left), borrowed(right)
    done, clock, counts = borrowed(done), borrowed(clock), borrowed(counts)
    release(rings, plan, last, last, counts)
    stale_left = stale_right = 0
    if not plan.patient:
        stale_left = np.searchsorted(left.pos, last - plan.span[0], side="right")
        stale_right = np.searchsorted(right.pos, last - plan.span[1], side="right")
    if not (has_room(rings, 0, left.pos.size - stale_left) and has_room(rings, 1, right.pos.size - stale_right)):
        return False
    append_rows(rings, left, stale_left, 0)
    append_rows(rings, right, stale_right, 1)
    counts[EXPIRED] += stale_left
    counts[EXPIRED + 1] += stale_right
    clock[:] = last
    enter(rings, plan, left.pos.size, right.pos.size, done, last, clock, counts)
    return True


@kernel
def step_sides(rings: Rings, plan: Plan, left: Arrivals, right: Arrivals, pairs: Ints, done: Ints) -> int:
    """Let the right rows of a batch meet the left ones before it, then its left rows all right ones.

    Goes on from ``done``, and returns why it stopped. Cost: O(1 + matches) per row.
    """
    rings, plan, left, right = borrowed(rings), borrowed(plan), borrowed(left), borrowed(right)
    pairs, done = borrowed(pairs), borrowed(done)
    why = meet(rings, plan, right, 1, pairs, done)
    return meet(rings, plan, left, 0, pairs, done) if why == DONE else why


@kernel
def step_at_once(
    rings: Rings, plan: Plan, left: Arrivals, right: Arrivals, pairs: Ints, done: Ints, clock: Ints, counts: Ints
) -> tuple[Survey, int]:
    """Survey a batch; if it is one for chains that needs nothing else, step through it and settle it too.

    That is one call where there would be three, for each of which the caller's memory is far away by then. Returns
    DONE after all, PAIRS_FULL or NOT_BEGUN. Cost: O(1 + matches) per row.
    """
    rings, plan, left, right = borrowed(rings), borrowed(plan), borrowed(left), borrowed(right)
    pairs, done, clock, counts = borrowed(pairs), borrowed(done), borrowed(clock), borrowed(counts)
    seen = look_over(rings, plan, left, right, counts)
    fits = seen.newest < NARROW or pairs.itemsize > NARROW_BYTES
    fits &= has_room(rings, 0, left.pos.size) and has_room(rings, 1, right.pos.size)
    if seen.grouped or not fits or left.pos.size > seen.most:
        return seen, NOT_BEGUN
    why = meet(rings, plan, right, 1, pairs, done)
    if why == DONE:
        why = meet(rings, plan, left, 0, pairs, done)
    if why == DONE:
        clock[:] = seen.last
        enter(rings, plan, left.pos.size, right.pos.size, done, seen.last, clock, counts)
    return seen, why


@kernel
def expire_before(rings: Rings, plan: Plan, watermark: int, counts: Ints) -> None:
    """Let go of the rows that meet nobody from the watermark on, in order of arrival, up to the first that does."""
    rings, plan, counts = borrowed(rings), borrowed(plan), borrowed(counts)
    for side in range(2):
        expire(rings, side, watermark - plan.span[side], counts)


def apart(batch: Batch, code: Ints) -> tuple[Arrivals, Arrivals]:
    """Return the rows of a batch side by side. O(rows)."""
    mine = batch.side == 0
    left, right = (arrivals(code[rows], batch.pos[rows], batch.row[rows]) for rows in (mine, ~mine))
    return left, right


def pieces(left: Arrivals, right: Arrivals, most: int) -> Iterator[tuple[Arrivals, Arrivals]]:
    """Cut rows in time, so that at most so many of the left come at once: no chain holds much that is too new."""
    if left.pos.size <= most:
        yield left, right
        return
    began = 0
    for end in range(most, left.pos.size, most):
        until = int(np.searchsorted(right.pos, left.pos[end - 1], side="right"))
        yield left.part(end - most, end), right.part(began, until)
        began = until
    yield left.part((left.pos.size - 1) // most * most, left.pos.size), right.part(began, right.pos.size)


class ExactJoin:
    """The windows of a join without a budget, over rows in order: batches in, pairs of row numbers out."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rings = empty(FIRST_ROOM)
        self.counts = np.zeros(COUNTS, np.int64)
        self._clock = np.full(2, NO_TICK)
        self._pairs = np.empty((2, FIRST_PAIRS), np.int32)  # 64 bits once numbers need them: half of it is faster
        self._room = room_for(1, 1)
        self._chained = True  # whether the chains of the rings are up to date

    def warm(self) -> None:
        """Compile or load the kernels before they are needed: a join like this one, of nobody, uses them."""
        like, done = ExactJoin(self.plan), np.zeros(4, np.int64)
        rings, plan, counts, pairs = like.rings, like.plan, like.counts, like._pairs
        if plan.by_rows:
            step_merged(rings, plan, NO_ROWS, NO_INTS, counts, pairs, done)
        else:
            seen, _ = step_at_once(rings, plan, NOBODY, NOBODY, pairs, done, like._clock, counts)
            step_sides(rings, plan, NOBODY, NOBODY, pairs, done)
            like._push_grouped(seen._replace(last=0), NOBODY, NOBODY, done)

    def push(self, batch: Batch, code: Ints, into: Ints | None = None) -> tuple[Ints, Ints]:
        """Take a batch and return the row numbers of its pairs, left and right, as good until the next call.

        `into` is (side, n) room to write them to, if the caller has some.
        """
        if not self.plan.by_rows:
            return self.push_sides(*apart(batch, code), into)
        if into is not None:
            self._pairs = into
        if code.size == 0:
            return self._pairs[0, :0], self._pairs[1, :0]
        self._widen(int(batch.row.max()))
        arrived = np.bincount(batch.side, minlength=2).tolist()
        self._reserve(*arrived)
        done = np.zeros(4, np.int64)
        while step_merged(self.rings, self.plan, batch, code, self.counts, self._pairs, done) == PAIRS_FULL:
            self._roomier(done[FOUND])
        self._clock[:] = batch.clock[-1]
        return self._settled(arrived, done, int(batch.tick[-1]))

    def push_sides(self, left: Arrivals, right: Arrivals, into: Ints | None = None) -> tuple[Ints, Ints]:
        """Do the same for windows in time with rows not yet merged, each side in order.

        None is older than what came before, unless the plan is patient.
        """
        if into is not None:
            self._pairs = into
        arrived = left.pos.size, right.pos.size
        if not any(arrived):
            return self._pairs[0, :0], self._pairs[1, :0]
        done = np.zeros(4, np.int64)
        if self._chained:
            seen, why = step_at_once(self.rings, self.plan, left, right, self._pairs, done, self._clock, self.counts)
            if why == DONE:
                return self._found(done)
        else:
            seen, why = survey(self.rings, self.plan, left, right, self.counts), NOT_BEGUN
        if why == PAIRS_FULL:
            self._roomier(done[FOUND])
            self._step_sides(left, right, done)
        else:
            self._widen(seen.newest)
            if seen.grouped:
                return self._push_grouped(seen, left, right, done)
            self._push_chained(seen, left, right, done)
        self._clock.fill(seen.last)
        return self._settled(arrived, done, seen.last)

    def _step_sides(self, left: Arrivals, right: Arrivals, done: Ints) -> None:
        """Take rows along chains, going on from `done`."""
        while step_sides(self.rings, self.plan, left, right, self._pairs, done) == PAIRS_FULL:
            self._roomier(done[FOUND])

    def _settled(self, arrived: Sequence[int], done: Ints, tick: int) -> tuple[Ints, Ints]:
        """Write down what a batch did, and return its pairs."""
        settle(self.rings, self.plan, arrived[0], arrived[1], done, tick, self._clock, self.counts)
        return self._found(done)

    def _found(self, done: Ints) -> tuple[Ints, Ints]:
        pairs = done[FOUND]
        return self._pairs[0, :pairs], self._pairs[1, :pairs]

    def _push_grouped(self, seen: Survey, left: Arrivals, right: Arrivals, done: Ints) -> tuple[Ints, Ints]:
        done[FOUND] = done[COMPARED] = self._join_grouped(seen, left, right)
        while not settle_grouped(self.rings, self.plan, left, right, done, seen.last, self._clock, self.counts):
            self._reserve(left.pos.size, right.pos.size, seen.expected)  # lays chains out, but not those of new rows
        self._chained = False
        return self._found(done)

    def _join_grouped(self, seen: Survey, left: Arrivals, right: Arrivals) -> int:
        rows = seen.held + left.pos.size + right.pos.size
        if not rows <= self._room.member.size <= FIRST_ROOM + 4 * rows:
            self._room = room_for(rows, FIRST_ROOM)
        low = seen.low_left, seen.low_right
        while (pairs := join_grouped(self.rings, self.plan, low, left, right, self._room, self._pairs)) < 0:
            if pairs == MANY_KEYS:  # no larger than need be: a table is wiped each time, and fills the cache
                self._room = room_for(rows, self._room.table.size)
            else:
                self._roomier(0)
        return pairs

    def _push_chained(self, seen: Survey, left: Arrivals, right: Arrivals, done: Ints) -> None:
        self._reserve(left.pos.size, right.pos.size, seen.expected)
        if not self._chained:
            self._lay_out(self.rings.nodes.shape[1])
        for number, (mine, theirs) in enumerate(pieces(left, right, seen.most)):
            if number:
                clock = min(int(rows.pos[0]) for rows in (mine, theirs) if rows.pos.size)
                self._expire(clock, clock)
            done[TAKEN : TAKEN + 2] = 0
            self._step_sides(mine, theirs, done)

    def _widen(self, newest: int) -> None:
        """Make room for the numbers of rows up to this one."""
        if newest >= NARROW and self._pairs.itemsize == NARROW_BYTES:
            self._pairs = np.empty(self._pairs.shape, np.int64)

    def _roomier(self, pairs: int) -> None:
        """Make more room for pairs, keeping the first so many."""
        longer = np.empty((2, 2 * self._pairs.shape[1]), self._pairs.dtype)
        longer[:, :pairs] = self._pairs[:, :pairs]
        self._pairs = longer

    def _expire(self, left: int, right: int) -> None:
        """Let go of what is too old at these clocks."""
        let_go(self.rings, self.plan, int(left), int(right), self.counts)

    @property
    def tick(self) -> int | None:
        """The open tick."""
        tick = int(self.rings.tick[0])
        return None if tick == NO_TICK else tick

    def close(self) -> None:
        """End the open tick."""
        if self.tick is not None:
            self._expire(*(self._clock + self.plan.ahead))

    def advance(self, to: int) -> None:
        """End every tick before `to`."""
        if to > self.rings.tick[0]:
            self.reach(to - 1, np.full(2, to - 1))

    def reach(self, tick: int, clock: Ints) -> None:
        """End every tick up to this one, with these clocks."""
        self.rings.tick[0] = max(tick, self.rings.tick[0])
        self._clock[:] = clock
        self._expire(*(clock + self.plan.ahead))

    def pass_watermark(self, to: int) -> None:
        """Let go of the rows that meet nobody from `to` on, those that came before one that does excepted."""
        expire_before(self.rings, self.plan, to, self.counts)

    def _reserve(self, left: int, right: int, expected: int = 0) -> None:
        """Make room for so many more rows of each side; if that takes more room, for those expected at once."""
        (next_left, low_left), (next_right, low_right) = self.rings.ends.tolist()
        need = max(next_left - low_left + left, next_right - low_right + right)
        room = self.rings.nodes.shape[1]
        if need > room or max(next_left + left, next_right + right) >= LAST_NUMBER:
            need = max(need, min(expected + max(left, right), FORESEEN * need))
            self._lay_out(max(room, 1 << (need - 1).bit_length()))

    def _lay_out(self, room: int) -> None:
        """Enter the live rows into fresh rings."""
        old, self.rings = self.rings, empty(room)
        self.rings.tick[0] = old.tick[0]
        self.rings.behind[:] = old.behind
        self.rings.behind[:, UNTIL] -= old.ends[:, LOW]  # places begin anew
        refill(self.rings, old)
        self._chained = True

    def take_ledger(self) -> Ints:
        """Return no ledger rows: nothing is shed."""
        return np.empty((0, 5), np.int64)

    def live(self, side: int) -> int:
        """Return how many rows are held on one side."""
        return int(self.rings.ends[side, NEXT] - self.rings.ends[side, LOW])

    def live_rows(self, side: int) -> Ints:
        """Return the numbers of the rows held on one side, ascending."""
        if self.plan.by_rows:
            return np.sort(self._around(side, ROW))  # rows of a tick may have come in any order
        ring, held = self.rings.nodes[side], self.live(side)
        if held == 0:
            return NO_INTS
        low, end = (self.rings.ends[side, [LOW, NEXT]] % len(ring)).tolist()
        first, last = int(ring[low, ROW]), int(ring[end - 1, ROW])
        return np.arange(first, last + 1) if last - first + 1 == held else self._around(side, ROW)

    def held(self, side: int) -> tuple[Ints, Ints]:
        """Return the numbers of the rows held on one side, ascending, and what each counts from."""
        rows, pos = self._around(side, ROW), self._around(side, POS)
        if not self.plan.by_rows:
            return rows, pos
        order = np.argsort(rows)
        return rows[order], pos[order]

    def _around(self, side: int, entry: int) -> Ints:
        """Return an entry of the nodes of the rows held on one side, in order of arrival."""
        ring = self.rings.nodes[side, :, entry]
        low, end = (self.rings.ends[side, [LOW, NEXT]] % len(ring)).tolist()
        if low > end or (low == end and self.live(side) > 0):
            return np.concatenate([ring[low:], ring[:end]])
        return ring[low:end].copy()

    def adopt(self, rows: Batch, code: Ints, counts: Ints, following: Ints) -> None:  # noqa: ARG002 - as WindowJoin
        """Take over the rows that another join held, in order of time, with its counters."""
        if code.size:
            sides = apart(rows, code)
            self._reserve(*(side.row.size for side in sides))
            survey(self.rings, self.plan, *sides, self.counts)
            for side, mine in enumerate(sides):
                places = self.rings.ends[side, NEXT] + np.arange(mine.row.size)
                nodes = np.stack([mine.code, places, mine.pos, mine.row], axis=1)  # chains are laid out below
                self.rings.nodes[side, places % self.rings.nodes.shape[1]] = nodes
                self.rings.ends[side, NEXT] += mine.row.size
            self._lay_out(self.rings.nodes.shape[1])
            self.rings.tick[0] = rows.tick[-1]
            self._clock[:] = rows.clock[-1] if self.plan.by_rows else rows.tick[-1]
        self.counts[:] = counts

    def respan(self) -> None:
        """Take notice of changed spans: they are read anew for every row."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name."""
        rings = {f"rings.{name}": array for name, array in self.rings._asdict().items()}
        chained = np.array(self._chained)
        return {
            "counts": self.counts,
            "clock": self._clock,
            "span": self.plan.span,
            "chained": chained,
            **rings,
        }

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take over the state that ``arrays`` returned."""
        self.counts, self._clock = arrays["counts"], arrays["clock"]
        self.plan.span[:] = arrays["span"]
        self._chained = bool(arrays["chained"])
        self.rings = Rings(*(arrays[f"rings.{name}"] for name in Rings._fields))
