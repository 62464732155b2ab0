"""The exact join of rows that come in order: nothing is given up, so rows need be found by key only.

Each side is a ring of its rows in order of arrival. There are two ways through a batch, with the same pairs:

- *chains*: a row names the next older one of its hash bucket, and a walk along that chain ends at the first row too
  old. What expires is simply overwritten: nothing is unlinked. O(1 + matches) per row, whatever the window.
- *grouped*: the rows of window and batch are sorted by key, so that the partners of a row lie side by side and are
  copied in one go. O(window + batch + matches) per batch: the way for windows smaller than a batch.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, kernel, part, prefetch, wide
from penstock.core.rng import mixed
from penstock.core.step import (
    ARRIVED,
    COMPARISONS,
    COUNTS,
    DONE,
    EXPIRED,
    FAR_AHEAD,
    NO_INTS,
    NO_ROWS,
    PAIRS,
    PAIRS_FULL,
    Batch,
    Plan,
)
from penstock.core.windows import NO_TICK, Ints, Words

NEXT, LOW = 0, 1
BUCKETS = 4  # hash buckets per place in a ring
FIRST_ROOM = 1024
FIRST_PAIRS = 1 << 16
LAST_NUMBER = 1 << 30
SMALL_WINDOW = 4  # a batch so many times larger than the windows is grouped
LAST_ROW = np.iinfo(np.int64).max


class Rings(NamedTuple):
    """The rows of both sides that are not expired."""

    heads: Words  # (bucket, side) -> newest row there, by its place in the order of arrival; -1: none
    code: Ints  # this and the next three are (side, place % room)
    older: Words  # the next older row of the same bucket
    row: Ints
    pos: Ints
    ends: Ints  # (side, [NEXT, LOW]): place of the next row to come, and of the oldest not expired
    tick: Ints  # [newest tick]


class Room(NamedTuple):
    """Where a batch is sorted."""

    table: Words  # (bucket, [group])
    groups: Ints  # group -> code
    member: Words  # the group of each row of a side
    start: Ints  # (side, group) -> first row in the two below
    row: Ints  # (side, sorted)
    pos: Ints  # (side, sorted)
    found: Ints  # [groups]


def room_for(rows: int) -> Room:
    """Return room to sort so many rows of both sides together."""
    size = 1 << (2 * rows).bit_length()
    return Room(
        np.empty((size, 1), np.int32),
        np.empty(rows, np.int64),
        np.empty(rows, np.int32),
        np.empty((2, rows + 1), np.int64),
        np.empty((2, rows), np.int64),
        np.empty((2, rows), np.int64),
        np.empty(1, np.int64),
    )


def empty(room: int) -> Rings:
    """Return rings for so many rows of each side, a power of two."""
    return Rings(
        np.full((BUCKETS * room, 2), -1, np.int32),
        np.empty((2, room), np.int64),
        np.empty((2, room), np.int32),
        np.empty((2, room), np.int64),
        np.empty((2, room), np.int64),
        np.zeros((2, 2), np.int64),
        np.full(1, NO_TICK),
    )


@part
def bucket(heads: Words, code: int) -> int:
    """Return where a code hashes to."""
    return wide(mixed(np.uint64(code)) & np.uint64(heads.shape[0] - 1))


@part
def put(rings: Rings, side: int, at: int, code: int, row: int, pos: int) -> None:
    """Add a row at the head of its chain."""
    place = rings.ends[side, NEXT]
    slot = place & (rings.code.shape[1] - 1)
    rings.code[side, slot] = code
    rings.older[side, slot] = rings.heads[at, side]
    rings.row[side, slot] = row
    rings.pos[side, slot] = pos
    rings.heads[at, side] = place
    rings.ends[side, NEXT] = place + 1


@part
def expire(rings: Rings, side: int, oldest: int) -> int:
    """Let go of the rows that count from `oldest` or before; returns the place of the first that stays."""
    mask = rings.code.shape[1] - 1
    low, end = rings.ends[side, LOW], rings.ends[side, NEXT]
    while low < end and rings.pos[side, low & mask] <= oldest:
        low += 1
    rings.ends[side, LOW] = low
    return low


@kernel
def step_exact(rings: Rings, plan: Plan, batch: Batch, code: Ints, pairs: Ints, done: Ints) -> int:
    """Take the rows of a batch from ``done[0]`` on; returns why it stopped. Cost: O(1 + matches) per row."""
    rings, plan, batch = borrowed(rings), borrowed(plan), borrowed(batch)
    code, pairs, done = borrowed(code), borrowed(pairs), borrowed(done)
    heads = rings.heads
    mask = rings.code.shape[1] - 1
    n, compared = done[1], done[2]
    for i in range(done[0], code.size):
        if i + FAR_AHEAD < code.size:
            prefetch(heads, bucket(heads, code[i + FAR_AHEAD]))
        side = wide(batch.side[i])
        other = 1 - side
        at = batch.clock[i, other] if plan.by_rows else batch.pos[i]
        low = expire(rings, other, at - plan.span[other])
        key = code[i]
        slot = bucket(heads, key)
        place = wide(heads[slot, other])
        begin = n
        while place >= low:
            if n == pairs.shape[1]:
                done[0], done[1], done[2] = i, begin, compared
                return PAIRS_FULL
            spot = place & mask
            pairs[side, n] = batch.row[i]
            pairs[other, n] = rings.row[other, spot]
            n += rings.code[other, spot] == key
            compared += 1
            place = wide(rings.older[other, spot])
        put(rings, side, slot, key, batch.row[i], batch.pos[i])
    done[0], done[1], done[2] = code.size, n, compared
    return DONE


@part
def group(table: Words, groups: Ints, code: int, count: Ints) -> int:
    """Return the number of a key's group, a new one for a new key; ``count[0]`` is how many there are."""
    at = bucket(table, code)
    while table[at, 0] >= 0 and groups[table[at, 0]] != code:
        at = (at + 1) & (table.shape[0] - 1)
    if table[at, 0] < 0:
        table[at, 0] = count[0]
        groups[count[0]] = code
        count[0] += 1
    return wide(table[at, 0])


@part
def sort_side(rings: Rings, batch: Batch, code: Ints, side: int, room: Room, count: Ints) -> None:
    """Sort the rows of one side in window and batch by key, keeping their order within a key (a counting sort)."""
    member, start = room.member, room.start[side]
    mask = rings.code.shape[1] - 1
    low, end = rings.ends[side, LOW], rings.ends[side, NEXT]
    start[:] = 0
    n = 0
    for place in range(low, end):
        member[n] = group(room.table, room.groups, rings.code[side, place & mask], count)
        start[member[n] + 1] += 1
        n += 1
    for i in range(code.size):
        if batch.side[i] == side:
            member[n] = group(room.table, room.groups, code[i], count)
            start[member[n] + 1] += 1
            n += 1
    for g in range(count[0]):
        start[g + 1] += start[g]
    n = 0
    for place in range(low, end):
        at = start[member[n]]
        room.row[side, at] = rings.row[side, place & mask]
        room.pos[side, at] = rings.pos[side, place & mask]
        start[member[n]] = at + 1
        n += 1
    for i in range(code.size):
        if batch.side[i] == side:
            at = start[member[n]]
            room.row[side, at] = batch.row[i]
            room.pos[side, at] = batch.pos[i]
            start[member[n]] = at + 1
            n += 1
    for back in range(count[0]):
        g = count[0] - back
        start[g] = start[g - 1]
    start[0] = 0


@kernel
def join_grouped(rings: Rings, plan: Plan, batch: Batch, code: Ints, room: Room, pairs: Ints) -> int:
    """Join a batch with the windows and itself, windows in time; returns the pairs, or -1 if they do not fit."""
    rings, plan, batch = borrowed(rings), borrowed(plan), borrowed(batch)
    code, room, pairs = borrowed(code), borrowed(room), borrowed(pairs)
    room.table[:] = -1
    count = room.found
    count[0] = 0
    sort_side(rings, batch, code, 0, room, count)
    on_left = count[0]
    sort_side(rings, batch, code, 1, room, count)
    left, right = pairs[0], pairs[1]
    rows, pos = room.row[1], room.pos[1]
    new_left, new_right = first_new(batch, 0), first_new(batch, 1)
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
            if n + stop - least > left.size:
                return -1
            for partner in range(least, stop):
                left[n] = row
                right[n] = rows[partner]
                n += 1
    return n


@part
def first_new(batch: Batch, side: int) -> int:
    """Return the number of a side's first row in a batch."""
    for i in range(batch.side.size):
        if batch.side[i] == side:
            return batch.row[i]
    return wide(LAST_ROW)


@kernel
def append_rows(rings: Rings, batch: Batch, code: Ints) -> None:
    """Add the rows of a batch to the rings, without chains."""
    rings, batch, code = borrowed(rings), borrowed(batch), borrowed(code)
    mask = rings.code.shape[1] - 1
    for i in range(code.size):
        side = wide(batch.side[i])
        slot = rings.ends[side, NEXT] & mask
        rings.code[side, slot] = code[i]
        rings.row[side, slot] = batch.row[i]
        rings.pos[side, slot] = batch.pos[i]
        rings.ends[side, NEXT] += 1


@kernel
def refill(rings: Rings, old: Rings) -> None:
    """Enter the live rows of older rings."""
    rings, old = borrowed(rings), borrowed(old)
    mask = old.code.shape[1] - 1
    for side in range(2):
        for place in range(old.ends[side, LOW], old.ends[side, NEXT]):
            at = place & mask
            code = old.code[side, at]
            put(rings, side, bucket(rings.heads, code), code, old.row[side, at], old.pos[side, at])


@kernel
def expire_both(rings: Rings, oldest: Ints) -> None:
    """Let go of the rows of each side that count from ``oldest[side]`` or before."""
    rings, oldest = borrowed(rings), borrowed(oldest)
    for side in range(2):
        expire(rings, side, oldest[side])


class ExactJoin:
    """The windows of a join without a budget, over rows in order: batches in, pairs of row numbers out."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rings = empty(FIRST_ROOM)
        self.counts = np.zeros(COUNTS, np.int64)
        self._clock = np.full(2, NO_TICK)
        self._pairs = np.empty((2, FIRST_PAIRS), np.int64)
        self._chained = True  # whether the chains of the rings are up to date

    def warm(self) -> None:
        """Compile or load the kernels before they are needed."""
        step_exact(self.rings, self.plan, NO_ROWS, NO_INTS, self._pairs, np.zeros(3, np.int64))
        join_grouped(self.rings, self.plan, NO_ROWS, NO_INTS, room_for(1), self._pairs)

    def push(self, batch: Batch, code: Ints, into: Ints | None = None) -> tuple[Ints, Ints]:
        """Take a batch and return the row numbers of its pairs, left and right, as good until the next call.

        `into` is (side, n) room to write them to, if the caller has some.
        """
        if into is not None:
            self._pairs = into
        if code.size == 0:
            return self._pairs[0, :0], self._pairs[1, :0]
        arrived = np.bincount(batch.side, minlength=2)
        self._reserve(int(arrived.max()))
        held = self.live(0) + self.live(1)
        if SMALL_WINDOW * held <= code.size and not self.plan.by_rows:
            pairs, compared = self._push_grouped(batch, code, held + code.size)
        else:
            pairs, compared = self._push_chained(batch, code)
        self.counts[ARRIVED : ARRIVED + 2] += arrived
        self.counts[PAIRS] += pairs
        self.counts[COMPARISONS] += compared
        self.rings.tick[0] = batch.tick[-1]
        self._clock[:] = batch.clock[-1] if self.plan.by_rows else batch.tick[-1]
        self._expire(self._clock)
        return self._pairs[0, :pairs], self._pairs[1, :pairs]

    def _push_grouped(self, batch: Batch, code: Ints, rows: int) -> tuple[int, int]:
        room = room_for(rows)
        pairs = join_grouped(self.rings, self.plan, batch, code, room, self._pairs)
        while pairs < 0:
            self._pairs = np.empty((2, 2 * self._pairs.shape[1]), np.int64)
            pairs = join_grouped(self.rings, self.plan, batch, code, room, self._pairs)
        append_rows(self.rings, batch, code)
        self._chained = False
        return pairs, pairs

    def _push_chained(self, batch: Batch, code: Ints) -> tuple[int, int]:
        if not self._chained:
            self._lay_out(self.rings.code.shape[1])
        done = np.zeros(3, np.int64)
        before = self.rings.ends[:, LOW].copy()
        while step_exact(self.rings, self.plan, batch, code, self._pairs, done) == PAIRS_FULL:
            longer = np.empty((2, 2 * self._pairs.shape[1]), np.int64)
            longer[:, : done[1]] = self._pairs[:, : done[1]]
            self._pairs = longer
        self.counts[EXPIRED : EXPIRED + 2] += self.rings.ends[:, LOW] - before
        return int(done[1]), int(done[2])

    def _expire(self, clock: Ints) -> None:
        before = self.rings.ends[:, LOW].copy()
        expire_both(self.rings, clock - self.plan.span)
        self.counts[EXPIRED : EXPIRED + 2] += self.rings.ends[:, LOW] - before

    @property
    def tick(self) -> int | None:
        """The open tick."""
        tick = int(self.rings.tick[0])
        return None if tick == NO_TICK else tick

    def close(self) -> None:
        """End the open tick."""
        if self.tick is not None:
            self._expire(self._clock + self.plan.ahead)

    def advance(self, to: int) -> None:
        """End every tick before `to`."""
        if to > self.rings.tick[0]:
            self.reach(to - 1, np.full(2, to - 1))

    def reach(self, tick: int, clock: Ints) -> None:
        """End every tick up to this one, with these clocks."""
        self.rings.tick[0] = max(tick, self.rings.tick[0])
        self._clock[:] = clock
        self._expire(clock + self.plan.ahead)

    def _reserve(self, rows: int) -> None:
        """Make room for so many more rows of each side."""
        old = self.rings
        live = old.ends[:, NEXT] - old.ends[:, LOW]
        room = old.code.shape[1]
        if int(live.max()) + rows <= room and int(old.ends[:, NEXT].max()) + rows < LAST_NUMBER:
            return
        while room < int(live.max()) + rows:
            room *= 2
        self._lay_out(room)

    def _lay_out(self, room: int) -> None:
        """Enter the live rows into fresh rings."""
        old, self.rings = self.rings, empty(room)
        self.rings.tick[0] = old.tick[0]
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
        return self.held(side)[0]

    def held(self, side: int) -> tuple[Ints, Ints]:
        """Return the numbers of the rows held on one side, ascending, and what each counts from."""
        low, end = self.rings.ends[side, LOW], self.rings.ends[side, NEXT]
        places = np.arange(low, end) & (self.rings.code.shape[1] - 1)
        rows = self.rings.row[side, places]
        order = np.argsort(rows)
        return rows[order], self.rings.pos[side, places][order]

    def adopt(self, rows: Batch, code: Ints, counts: Ints, following: Ints) -> None:  # noqa: ARG002 - as WindowJoin
        """Take over the rows that another join held, in order of time, with its counters."""
        if code.size:
            self._reserve(int(np.bincount(rows.side).max()))
            append_rows(self.rings, rows, code)
            self._chained = False
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
