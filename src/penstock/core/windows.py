"""Hold the live tuples of both sides: their keys, their order in time, and each key's tuples in a run.

Three structures share the tuples, each a few arrays:

- *keys*: a hash table from 64-bit codes to small key ids. An id stays while tuples have it; once ids are many, a
  hand goes round them and gathers those that nobody needs, as many as the next batch may ask for.
- *slots*: one tuple each, on a free list, chained per side from the oldest to the newest.
- *runs*: the tuples of one key and side (a *bunch*), oldest first, contiguous, so that probing reads forward. A
  single tuple needs no block: the run's START is its slot.

What is known of a key fills one line of the cache, what is known of a tuple half a line: several arrays are views of
the same memory. A kernel never allocates: it stops and says what is missing, and ``roomier`` makes room.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, columns, kernel, part, prefetch, wide
from penstock.core.rng import S33, mixed

# Elements of arrays are used as plain numbers, which NumPy's own types do not allow: the names say what is meant.
Ints = npt.NDArray[Any]  # 64-bit integers
Words = npt.NDArray[Any]  # 32-bit integers
Floats = npt.NDArray[Any]
Masks = npt.NDArray[Any]  # True or False

LEFT, RIGHT = 0, 1

# columns of a key's line: what its tuples are worth, one per side (in `worth`), its 64-bit code, and its place in the
# table (in `code`; -1: it is in none, its id is spare)
WORTH, CODE, SEAT = 0, 2, 3
# columns of `stamp`: when the tuple counts from (a timestamp, or a row count), and its number within its side
POS, ROW = 0, 1
# columns of `link`: the tuple's bunch (-1: the slot is free), its place in the run, and its neighbours in time
BUNCH, PLACE, OLDER, NEWER = 4, 5, 6, 7
# columns of `runs`: block (or single slot), first entry in it (-1: no block), entries from there, live entries
START, HEAD, COUNT, ALIVE = 0, 1, 2, 3
# entries of `marks`; those from OLDEST on are one per side; WAITS: the oldest tuple that the order knows nothing of
KEYS, SLOTS, FREE, TOP, TICK, OVERFULL = 0, 1, 2, 3, 4, 5
OLDEST, NEWEST, LIVE, USED, CLOCK, NEXT, WAITS, REACHED, BUNCHES = 6, 8, 10, 12, 14, 16, 18, 20, 22
MARKS = 24

NONE = -1
VACATED = -2  # in the table: a key left, and others may be behind it
# entries of `spare`: the next key to look at, the keys with tuples seen on this round, how many ids are spare, which
HAND, HELD, SPARE, IDS = 0, 1, 2, 3
NO_TICK = np.iinfo(np.int64).min
NEVER = -(1 << 61)  # before any time, and far enough from the end of the numbers to be reckoned with
SIZES = 31
AHEAD = 12  # rows between asking for memory and using it
FIRST_POOL = 1 << 14
ROOMY = 8  # how many times as much room is made as is needed, if a budget may ask for it
SMALL = 1  # the first block of a run has room for 2**SMALL tuples


@columns(code=8, worth=8, runs=4, stamp=4, link=8, merit=2)
class Windows(NamedTuple):
    """The live tuples of both sides."""

    table: Words  # hash slot -> key id with the mark of its code, or -1, or -2: one left
    code: Ints  # (key id, CODE..SEAT)
    worth: Floats  # the same memory: (key id, WORTH + side), good while that side has tuples of the key
    runs: Words  # the same memory: (bunch, START..ALIVE)
    pool: Words  # blocks of runs: [log2 of the capacity, entry, entry, ...]; an entry is a slot, or -1: it left
    rows: Ints  # the row number of each entry, so that probing copies a run without looking at its slots
    blocks: Words  # log2(capacity) -> first free block
    stamp: Ints  # (slot, POS..ROW)
    link: Words  # the same memory: (slot, BUNCH..NEWER)
    weight: Ints  # slot -> units of memory; one element: every tuple weighs that
    importance: Floats  # slot -> importance; empty: none was given
    merit: Floats  # (slot, 2) -> what the policy keeps of a tuple; empty: nothing
    moment: Ints  # slot -> timestamp, for windows in rows; empty: POS is the timestamp
    overfull: Words  # bunches that may hold more than `per_key` tuples
    marks: Ints

    def __reduce__(self) -> tuple[Callable[..., "Windows"], tuple[npt.NDArray[Any], ...]]:
        """Leave the views out of a copy: there they must be views again."""
        none = np.empty((0, 0))
        return revived, tuple(self._replace(worth=none, runs=none, link=none))


def revived(*arrays: npt.NDArray[Any]) -> Windows:
    """Return windows from a copy."""
    return viewed(Windows(*arrays))


def lines(count: int, words: int, make: Callable[..., Ints] = np.empty) -> Ints:
    """Return records of so many 64-bit words that cross no line of the cache more than they must."""
    line = 8
    memory = make(count * words + line, np.int64)
    start = -(memory.ctypes.data // memory.itemsize) % line
    return memory[start : start + count * words].reshape(count, words)


def viewed(windows: Windows) -> Windows:
    """Return windows whose keys are the lines in `code`, and whose slots are those in `stamp`."""
    return windows._replace(
        worth=windows.code.view(np.float64),
        runs=windows.code.view(np.int32).reshape(-1, 4),
        link=windows.stamp.view(np.int32),
    )


def saved(windows: Windows) -> Windows:
    """Return windows without what is unused or follows from the rest; ``viewed`` and ``roomier_keys`` undo it."""
    none = np.empty((0, 0))
    slots = max(int(windows.marks[SLOTS]), 2)  # a single weight would be everybody's
    return windows._replace(
        table=np.empty(0, np.int32),
        code=windows.code[: int(windows.marks[KEYS])],
        stamp=windows.stamp[:slots],
        weight=windows.weight[:slots],
        importance=windows.importance[:slots],
        merit=windows.merit[:slots],
        moment=windows.moment[:slots],
        worth=none,
        runs=none,
        link=none,
    )


def empty(*, keys: int, slots: int, weighted: int, important: int, by_rows: int, merits: int) -> Windows:
    """Return windows with room for so many keys and tuples."""
    marks = np.zeros(MARKS, np.int64)
    marks[FREE] = NONE
    marks[TICK] = NO_TICK
    marks[OLDEST : OLDEST + 2] = NONE
    marks[NEWEST : NEWEST + 2] = NONE
    marks[REACHED : REACHED + 2] = NEVER
    marks[WAITS : WAITS + 2] = NONE
    none = np.empty((0, 0))
    windows = Windows(
        table=np.full(4 * keys, NONE, np.int32),
        code=lines(keys, 8),
        worth=none,
        runs=none,
        pool=np.empty(FIRST_POOL, np.int32),
        rows=np.empty(FIRST_POOL, np.int64),
        blocks=np.full(SIZES, NONE, np.int32),
        stamp=lines(slots, 4),
        link=none,
        weight=np.empty(slots, np.int64) if weighted else np.ones(1, np.int64),
        importance=np.empty(slots if important else 0, np.float64),
        merit=np.empty((slots if merits else 0, 2), np.float64),
        moment=np.empty(slots if by_rows else 0, np.int64),
        overfull=np.empty(16, np.int32),
        marks=marks,
    )
    return viewed(windows)


# --- keys ---------------------------------------------------------------------------------------------------------


@part
def bunch_of(key: int, side: int) -> int:
    """Return the number of the bunch of a key and side: the row in `runs`; its last bit is the side."""
    return 4 * key + 2 + side


@part
def key_of(bunch: int) -> int:
    """Return the key of a bunch."""
    return bunch >> 2


@part
def home(table: Words, code: int) -> int:
    """Return where the search for a code starts."""
    return wide(mixed(np.uint64(code)) & np.uint64(table.size - 1))


@part
def mark_of(table: Words, code: int) -> int:
    """Return the bits of a code that stand beside its id in the table: all that ids leave free.

    Where they differ, the line of the key need not be looked at.
    """
    return wide((mixed(np.uint64(code)) >> S33) & ~np.uint64(table.size - 1))


@part
def marked(table: Words, at: int) -> int:
    """Return the mark at a place of the table; less than 0: no key is there."""
    return wide(table[at]) & ~(table.size - 1)


@part
def id_at(table: Words, at: int) -> int:
    """Return the id of the key at a place of the table."""
    return wide(table[at]) & (table.size - 1)


@part
def known_key(windows: Windows, code: int) -> int:
    """Return the id of a key by its code, or -1."""
    table = windows.table
    at, mark = home(table, code), mark_of(table, code)
    while table[at] != NONE:
        if marked(table, at) == mark and windows.code[id_at(table, at), CODE] == code:
            return id_at(table, at)
        at = (at + 1) & (table.size - 1)
    return wide(NONE)


@part
def ask_for_key(windows: Windows, code: int, at: int) -> None:
    """Ask for the line of a key, whose search starts at this place of the table."""
    table = windows.table
    mark = mark_of(table, code)
    while table[at] != NONE and marked(table, at) != mark:
        at = (at + 1) & (table.size - 1)
    if table[at] >= 0:
        prefetch(windows.code, id_at(table, at))


@part
def take_id(windows: Windows, spare: Words) -> int:
    """Return an id for a new key: a spare one if there is any."""
    left = wide(spare[SPARE]) - 1
    if left < 0:
        new = windows.marks[KEYS]
        windows.marks[KEYS] = new + 1
        return new
    spare[SPARE] = left
    if left >= AHEAD:
        prefetch(windows.code, wide(spare[IDS + left - AHEAD]))
    return wide(spare[IDS + left])


@kernel
def find_keys(windows: Windows, codes: Ints, keys: Words, spare: Words) -> None:
    """Write the key id of every code, new ids for new codes; there must be room for all of them."""
    windows, codes, keys, spare = borrowed(windows), borrowed(codes), borrowed(keys), borrowed(spare)
    table, code, runs = windows.table, windows.code, windows.runs
    for i in range(-2 * AHEAD, codes.size):
        far, near = i + 2 * AHEAD, i + AHEAD
        if far < codes.size:
            keys[far] = home(table, codes[far])  # until its turn comes, a row's key is where the search starts
            prefetch(table, wide(keys[far]))
        if 0 <= near < codes.size:
            ask_for_key(windows, codes[near], wide(keys[near]))
        if i < 0:
            continue
        at, mark = wide(keys[i]), mark_of(table, codes[i])
        vacant = wide(NONE)
        while table[at] != NONE and (marked(table, at) != mark or code[id_at(table, at), CODE] != codes[i]):
            if table[at] == VACATED and vacant < 0:
                vacant = at
            at = (at + 1) & (table.size - 1)
        if table[at] == NONE:
            at = vacant if vacant >= 0 else at
            new = take_id(windows, spare)
            table[at] = mark | new
            code[new, CODE] = codes[i]
            code[new, SEAT] = at
            for side in range(2):
                bunch = bunch_of(new, side)
                runs[bunch, HEAD] = NONE
                runs[bunch, COUNT] = 0
                runs[bunch, ALIVE] = 0
        keys[i] = id_at(table, at)


@part
def vacate(table: Words, at: int) -> None:
    """Take a key out of the table. Searches go on past its place unless nothing is behind it."""
    last = table.size - 1
    table[at] = VACATED
    if table[(at + 1) & last] == NONE:
        while table[at] == VACATED:
            table[at] = NONE
            at = (at - 1) & last


@kernel
def gather_ids(windows: Windows, known: npt.NDArray[Any], spare: Words, wanted: int) -> None:
    """Move the hand on over the keys, and make the ids of those without tuples spare: so many, or to the last key.

    `known` is what the order knows of keys, (side, key): of the next that gets a spare id it knows nothing.
    """
    windows, known, spare = borrowed(windows), borrowed(known), borrowed(spare)
    code, runs, keys = windows.code, windows.runs, windows.marks[KEYS]
    key, count = wide(spare[HAND]), wide(spare[SPARE])
    while count < wanted and key < keys:
        if key + AHEAD < keys:
            prefetch(windows.table, code[key + AHEAD, SEAT])
        if runs[bunch_of(key, LEFT), ALIVE] + runs[bunch_of(key, RIGHT), ALIVE] > 0:
            spare[HELD] += 1
        elif code[key, SEAT] >= 0:
            vacate(windows.table, code[key, SEAT])
            code[key, SEAT] = NONE
            if known.shape[1] > 0:
                known[LEFT, key] = 0
                known[RIGHT, key] = 0
            spare[IDS + count] = key
            count += 1
        key += 1
    spare[HAND] = key
    spare[SPARE] = count


@part
def moment_of(windows: Windows, slot: int) -> int:
    """Return the timestamp of a tuple."""
    return windows.moment[slot] if windows.moment.size > 0 else windows.stamp[slot, POS]


@part
def importance_of(windows: Windows, slot: int) -> float:
    """Return the importance of a tuple: 1 if none was given."""
    return windows.importance[slot] if windows.importance.size > 0 else 1.0


@part
def partners_of(windows: Windows, slot: int) -> int:
    """Return how many tuples of the same key the other side holds."""
    return wide(windows.runs[windows.link[slot, BUNCH] ^ 1, ALIVE])


# --- slots --------------------------------------------------------------------------------------------------------


@part
def take_slot(windows: Windows) -> int:
    """Return a free slot; there must be one."""
    marks, link = windows.marks, windows.link
    slot = marks[FREE]
    if slot >= 0:
        marks[FREE] = link[slot, NEWER]
    else:
        slot = marks[SLOTS]
        marks[SLOTS] = slot + 1
    return slot


@part
def free_slot(windows: Windows, slot: int) -> None:
    """Give a slot back."""
    windows.link[slot, BUNCH] = NONE
    windows.link[slot, NEWER] = windows.marks[FREE]
    windows.marks[FREE] = slot


@part
def chain(windows: Windows, side: int, slot: int) -> None:
    """Put a tuple at its place in the order of time: last, unless it is late."""
    link, stamp, marks = windows.link, windows.stamp, windows.marks
    older = marks[NEWEST + side]
    newer = NONE
    while older >= 0 and stamp[older, POS] > stamp[slot, POS]:
        newer = older
        older = link[older, OLDER]
    link[slot, OLDER] = older
    link[slot, NEWER] = newer
    if older >= 0:
        link[older, NEWER] = slot
    else:
        marks[OLDEST + side] = slot
    if newer >= 0:
        link[newer, OLDER] = slot
    else:
        marks[NEWEST + side] = slot


@part
def unchain(windows: Windows, side: int, slot: int) -> None:
    """Take a tuple out of the order of time."""
    link, marks = windows.link, windows.marks
    older = link[slot, OLDER]
    newer = link[slot, NEWER]
    if older >= 0:
        link[older, NEWER] = newer
    else:
        marks[OLDEST + side] = newer
    if newer >= 0:
        link[newer, OLDER] = older
    else:
        marks[NEWEST + side] = older
    if marks[WAITS + side] == slot:
        marks[WAITS + side] = newer


@part
def ask_for_neighbours(windows: Windows, slot: int) -> None:
    """Ask for the key of a tuple that is soon to leave, and for its neighbours in time."""
    link = windows.link
    prefetch(windows.runs, wide(link[slot, BUNCH]))
    prefetch(link, wide(link[slot, OLDER]))
    prefetch(link, wide(link[slot, NEWER]))


@part
def ask_for_entry(windows: Windows, slot: int) -> None:
    """Ask for the entry in its run of a tuple that is very soon to leave."""
    bunch = wide(windows.link[slot, BUNCH])
    if bunch >= 0 and windows.runs[bunch, HEAD] >= 0:
        prefetch(windows.pool, wide(windows.runs[bunch, START]) + windows.link[slot, PLACE])


# --- runs ---------------------------------------------------------------------------------------------------------


@part
def ask_for_first(windows: Windows, bunch: int) -> None:
    """Ask for what says which tuple of a bunch is the oldest, or, if it is the only one, for that tuple."""
    runs = windows.runs
    if runs[bunch, HEAD] < 0:
        prefetch(windows.stamp, wide(runs[bunch, START]))
    else:
        prefetch(windows.pool, wide(runs[bunch, START]) + runs[bunch, HEAD])


@part
def first(windows: Windows, bunch: int) -> int:
    """Return the oldest tuple of a bunch that is not empty."""
    runs = windows.runs
    if runs[bunch, HEAD] < 0:
        return wide(runs[bunch, START])
    return wide(windows.pool[runs[bunch, START] + runs[bunch, HEAD]])


@part
def tuple_at(windows: Windows, bunch: int, entry: int) -> int:
    """Return the tuple of a bunch at one of its COUNT entries, from the oldest on, or -1: it left."""
    runs = windows.runs
    if runs[bunch, HEAD] < 0:
        return wide(runs[bunch, START])
    return wide(windows.pool[runs[bunch, START] + runs[bunch, HEAD] + entry])


@part
def take_block(windows: Windows, size: int) -> int:
    """Return a block for 2**size entries, or -1 if the pool is full."""
    head = windows.blocks[size]
    if head >= 0:
        windows.blocks[size] = windows.pool[head]
        return wide(head)
    start = windows.marks[TOP] + 1
    if start + (1 << size) > windows.pool.size:
        return NONE
    windows.marks[TOP] = start + (1 << size)
    windows.pool[start - 1] = size
    return start


@part
def free_block(windows: Windows, start: int) -> None:
    """Give a block back."""
    size = windows.pool[start - 1]
    windows.pool[start] = windows.blocks[size]
    windows.blocks[size] = start


@part
def move_run(windows: Windows, bunch: int, start: int) -> None:
    """Copy the live entries of a run to the front of a block, which may be its own."""
    runs, pool, rows, link = windows.runs, windows.pool, windows.rows, windows.link
    source = runs[bunch, START] + runs[bunch, HEAD]
    place = 0
    for at in range(source, source + runs[bunch, COUNT]):
        slot = pool[at]
        if slot >= 0:
            pool[start + place] = slot
            rows[start + place] = rows[at]
            link[slot, PLACE] = place
            place += 1
    runs[bunch, START] = start
    runs[bunch, HEAD] = 0
    runs[bunch, COUNT] = place


@part
def make_room(windows: Windows, bunch: int) -> bool:  # noqa: PLR0911 - one state of a run a return
    """See to it that the run of a bunch can take one more entry; False if the pool is full."""
    runs, pool = windows.runs, windows.pool
    if runs[bunch, ALIVE] == 0:
        return True
    start = runs[bunch, START]
    if runs[bunch, HEAD] < 0:  # a single tuple moves into its first block
        block = take_block(windows, SMALL)
        if block < 0:
            return False
        pool[block] = start
        windows.rows[block] = windows.stamp[start, ROW]
        windows.link[start, PLACE] = 0
        runs[bunch, START] = block
        runs[bunch, HEAD] = 0
        return True
    size = pool[start - 1]
    if runs[bunch, HEAD] + runs[bunch, COUNT] < (1 << size):
        return True
    if 2 * runs[bunch, ALIVE] <= (1 << size):
        move_run(windows, bunch, start)
        return True
    block = take_block(windows, size + 1)
    if block < 0:
        return False
    move_run(windows, bunch, block)
    free_block(windows, start)
    return True


@part
def append(windows: Windows, bunch: int, slot: int) -> None:
    """Put a tuple into its run, at its place in time; ``make_room`` was called before."""
    runs, pool, rows = windows.runs, windows.pool, windows.rows
    link, stamp = windows.link, windows.stamp
    link[slot, BUNCH] = bunch
    runs[bunch, ALIVE] += 1
    if runs[bunch, HEAD] < 0:
        runs[bunch, START] = slot
        runs[bunch, COUNT] = 1
        windows.marks[BUNCHES + (bunch & 1)] += 1
        return
    start = runs[bunch, START]
    place = runs[bunch, HEAD] + runs[bunch, COUNT]
    runs[bunch, COUNT] += 1
    while link[slot, NEWER] >= 0 and place > runs[bunch, HEAD]:  # only a late tuple moves towards the front
        before = pool[start + place - 1]
        if before >= 0:
            if stamp[before, POS] <= stamp[slot, POS]:
                break
            link[before, PLACE] = place
        pool[start + place] = before
        rows[start + place] = rows[start + place - 1]
        place -= 1
    pool[start + place] = slot
    rows[start + place] = stamp[slot, ROW]
    link[slot, PLACE] = place


@part
def detach(windows: Windows, bunch: int, slot: int) -> None:
    """Take a tuple out of its run."""
    runs, pool = windows.runs, windows.pool
    alive = runs[bunch, ALIVE] - 1
    runs[bunch, ALIVE] = alive
    head = runs[bunch, HEAD]
    if alive == 0:
        if head >= 0:
            free_block(windows, runs[bunch, START])
            runs[bunch, HEAD] = NONE
        runs[bunch, COUNT] = 0
        windows.marks[BUNCHES + (bunch & 1)] -= 1
        return
    start = runs[bunch, START]
    place = windows.link[slot, PLACE]
    count = runs[bunch, COUNT] - 1
    if place != head:
        pool[start + place] = NONE
        if place == head + count:  # nobody looks for the newest behind who left
            while pool[start + head + count - 1] < 0:
                count -= 1
            runs[bunch, COUNT] = count
        return
    head += 1
    while pool[start + head] < 0:
        head += 1
        count -= 1
    runs[bunch, HEAD] = head
    runs[bunch, COUNT] = count


# --- room ---------------------------------------------------------------------------------------------------------


@kernel
def copy_runs(windows: Windows, old: Words) -> None:
    """Lay all runs out anew in the pool, which is empty and large enough, from the old one."""
    windows, old = borrowed(windows), borrowed(old)
    stamp, rows = windows.stamp, windows.rows
    windows.marks[TOP] = 0
    windows.blocks[:] = NONE
    runs, pool = windows.runs, windows.pool
    for n in range(2 * windows.marks[KEYS]):
        bunch = bunch_of(n >> 1, n & 1)
        if runs[bunch, HEAD] < 0:
            continue
        size = SMALL
        while (1 << size) < runs[bunch, ALIVE]:
            size += 1
        block = take_block(windows, size)
        place = 0
        source = runs[bunch, START] + runs[bunch, HEAD]
        for at in range(source, source + runs[bunch, COUNT]):
            slot = old[at]
            if slot >= 0:
                pool[block + place] = slot
                rows[block + place] = stamp[slot, ROW]
                windows.link[slot, PLACE] = place
                place += 1
        runs[bunch, START] = block
        runs[bunch, HEAD] = 0
        runs[bunch, COUNT] = place


def live(windows: Windows) -> int:
    """Return how many tuples are held, both sides together."""
    return int(windows.marks[LIVE] + windows.marks[LIVE + 1])


def grown(array: npt.NDArray[Any], size: int, used: int) -> npt.NDArray[Any]:
    """Return a longer array that starts with the used part of this one."""
    longer = np.empty((size, *array.shape[1:]), array.dtype)
    longer[:used] = array[:used]
    return longer


def roomier_pool(windows: Windows, most: int) -> Windows:
    """Return windows whose pool has more room than the runs need now, which is less than two entries a tuple.

    `most` is how many tuples a budget lets in, as for ``roomier_slots``.
    """
    size = max(FIRST_POOL, 3 * roomy(live(windows), most))
    roomier = windows._replace(pool=np.empty(size, np.int32), rows=np.empty(size, np.int64))
    copy_runs(roomier, windows.pool)
    return roomier


def roomy(used: int, most: int) -> int:
    """Return for how many to make room where so many are used: far more, but no more than there will be.

    What is not used takes no memory, and to move what is there takes time.
    """
    return max(used, min(ROOMY * used, most))


def roomier_slots(windows: Windows, rows: int, most: int) -> Windows:
    """Return windows that can take so many more tuples, where a budget lets in no more than `most` beside them."""
    need = live(windows) + rows
    size = windows.link.shape[0]
    if need <= size:
        return windows
    used = int(windows.marks[SLOTS])
    size = max(size + size // 4, roomy(need, most + rows))
    stamp = lines(size, 4)
    stamp[:used] = windows.stamp[:used]
    weighted, important = windows.weight.size > 1, windows.importance.size > 0
    windows = windows._replace(
        stamp=stamp,
        weight=grown(windows.weight, size, used) if weighted else windows.weight,
        importance=grown(windows.importance, size, used) if important else windows.importance,
        merit=grown(windows.merit, size, used) if windows.merit.size else windows.merit,
        moment=grown(windows.moment, size, used) if windows.moment.size else windows.moment,
    )
    return viewed(windows)


def roomier_keys(windows: Windows, room: int, *, anew: bool) -> Windows:
    """Return windows with room for so many keys and one to spare, and those there are entered into the table.

    Parameters:
        windows: the windows as they are.
        room: how many keys there may be.
        anew: whether keys have got other ids, so that a table with enough room is of no use either.
    """
    used = int(windows.marks[KEYS])
    size = 1 << int(2 * room - 1).bit_length()
    if room >= windows.code.shape[0]:
        code = lines(2 * room + 1, 8)  # what is not used takes no memory
        code[:used] = windows.code[:used]
        windows = viewed(windows._replace(code=code))
    if size > windows.table.size:
        windows = windows._replace(table=np.empty(size, np.int32))
        anew = True
    if anew:
        enter_codes(windows.table, windows.code[:used])
    return windows


@kernel
def enter_codes(table: Words, code: Ints) -> None:
    """Fill the table anew with keys in order of their ids, but for spare ones."""
    table, code = borrowed(table), borrowed(code)
    table[:] = NONE
    for key in range(code.shape[0]):
        if key + AHEAD < code.shape[0]:
            prefetch(table, home(table, code[key + AHEAD, CODE]))
        if code[key, SEAT] < 0:
            continue
        at = home(table, code[key, CODE])
        while table[at] >= 0:
            at = (at + 1) & (table.size - 1)
        table[at] = mark_of(table, code[key, CODE]) | key
        code[key, SEAT] = at


@kernel
def drop_keys(windows: Windows) -> Words:
    """Forget the keys without tuples, and renumber the others from 0 in their old order.

    Returns the new id of each, -1: forgotten. They must be entered into the table anew. O(keys + slots).
    """
    windows = borrowed(windows)
    code, runs, link, marks = windows.code, windows.runs, windows.link, windows.marks
    new = 0
    renumber = np.full(marks[KEYS], NONE, np.int32)
    for key in range(marks[KEYS]):
        if runs[bunch_of(key, LEFT), ALIVE] + runs[bunch_of(key, RIGHT), ALIVE] > 0:
            renumber[key] = new
            for column in range(code.shape[1]):
                code[new, column] = code[key, column]
            code[new, SEAT] = 0  # it is not spare
            new += 1
    for slot in range(marks[SLOTS]):
        bunch = link[slot, BUNCH]
        if bunch >= 0:
            link[slot, BUNCH] = bunch_of(renumber[key_of(bunch)], bunch & 1)
    for i in range(marks[OVERFULL]):
        bunch = windows.overfull[i]
        windows.overfull[i] = bunch_of(renumber[key_of(bunch)], bunch & 1)
    marks[KEYS] = new
    return renumber


def packed(windows: Windows) -> Windows:
    """Return windows with the tuples moved into as few slots as there are tuples.

    After a surge the slots would otherwise stay as many as there ever were tuples at once.
    """
    held = np.flatnonzero(windows.link[: int(windows.marks[SLOTS]), BUNCH] >= 0)
    size = max(held.size, 2)  # a single weight would be everybody's
    moved = np.full(windows.link.shape[0] + 1, NONE, np.int32)  # the last entry translates -1 to -1
    moved[held] = np.arange(held.size, dtype=np.int32)
    stamp = lines(size, 4)
    stamp[: held.size] = windows.stamp[held]
    link = stamp[: held.size].view(np.int32)
    for neighbour in (OLDER, NEWER):
        link[:, neighbour] = moved[link[:, neighbour]]
    pool = windows.pool.copy()
    move_slots(windows, pool, moved)
    marks = windows.marks
    for mark in (OLDEST, OLDEST + 1, NEWEST, NEWEST + 1, WAITS, WAITS + 1):
        marks[mark] = moved[marks[mark]]
    marks[FREE] = NONE
    marks[SLOTS] = held.size
    weighted, important = windows.weight.size > 1, windows.importance.size > 0
    windows = windows._replace(
        stamp=stamp,
        pool=pool,
        weight=grown(windows.weight[held], size, held.size) if weighted else windows.weight,
        importance=grown(windows.importance[held], size, held.size) if important else windows.importance,
        merit=grown(windows.merit[held], size, held.size) if windows.merit.size else windows.merit,
        moment=grown(windows.moment[held], size, held.size) if windows.moment.size else windows.moment,
    )
    return viewed(windows)


@kernel
def move_slots(windows: Windows, pool: Words, moved: Words) -> None:
    """Rewrite the entries of all runs after their tuples moved to other slots."""
    runs = windows.runs
    for n in range(2 * windows.marks[KEYS]):
        bunch = bunch_of(n >> 1, n & 1)
        if runs[bunch, ALIVE] == 0:
            continue
        if runs[bunch, HEAD] < 0:
            runs[bunch, START] = moved[runs[bunch, START]]
            continue
        start = runs[bunch, START] + runs[bunch, HEAD]
        for entry in range(start, start + runs[bunch, COUNT]):
            if pool[entry] >= 0:
                pool[entry] = moved[pool[entry]]
