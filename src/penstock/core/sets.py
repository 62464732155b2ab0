"""Windows of sets: rows in order of time, in basic windows, each with an inverted index in the same order.

Each side is a ring of its rows and a ring of their items. A *posting* is one item of one row. A list of postings is
walked from the newest row to the oldest and may stop at any age. The newest postings are *linked*: each names the
next older one of its bucket in the same basic window, so inserting is O(1) per item. Once they are an eighth of all,
they are *sealed*: all postings are laid down anew, bucket by bucket, so that a walk reads memory from end to end and
does not wait for it at every step. That is O(1) per item, amortised. What expires is overwritten, or left out when
postings are sealed, and a basic window that is used again finds in its buckets what is older than its first row,
where every walk stops. Basic windows lie in a circular buffer; with one of endless length, the index is that of the
whole window (gedik2007 §4.2.2, §5.1).

A number is a set of one item that carries the number as its weight.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, kernel, part, wide
from penstock.core.rng import mixed, part_of
from penstock.core.windows import Floats, Ints

# columns of a stamp: when the row came, its own time, its number, where its items begin, how many they are, its type,
# and whether the books count it: of the copies of a row in several shards one is counted
TICK, TS, ROW, BEGIN, SIZE, KIND, HOME = 0, 1, 2, 3, 4, 5, 6
STAMPS = 7
# marks, one per side: the next place, the oldest place that lives, the next posting, the newest basic window, the
# number of the next row, the first posting that is linked, buckets of sealed postings in each basic window
NEXT, LOW, POSTING, BASIC, CAME_TO, SEALED, BUCKETS = 0, 2, 4, 6, 8, 10, 12
MARKS = 14
# columns of a basic window: its first place, and the tick it begins at
FIRST, SINCE = 0, 1
# columns of a link: the item, the place of its row, and the next older posting of the bucket (-1: none); a sealed
# posting has the first two
ITEM, OWNER, OLDER = 0, 1, 2
# conditions
OVERLAP, EQUAL, CONTAINS, CONTAINED, PRODUCT, BAND = 0, 1, 2, 3, 4, 5
# how rows are found: one by one, by lists in order of time, or at the cost of lists in order of identifiers
NESTED, BY_TIME, BY_IDENTIFIER = 0, 1, 2
INDEX = ("link", "heads", "sealed", "sealed_weight", "starts")  # what can be made from the rest
FIRST_ROOM = 1024  # rows and items
LINKED = 8  # postings are sealed once one of so many is linked
SPARE = 16  # times the room that is needed, before it is given back
FEW = 24  # up to so many items are sorted by insertion


class Rule(NamedTuple):
    """The condition of a join, as numbers."""

    kind: int
    bound: float  # at least so many items, at least such a product, or within such a distance
    indexed: int  # NESTED..BY_IDENTIFIER


class Sets(NamedTuple):
    """The sets of some rows: items sorted and distinct."""

    begin: Ints
    size: Ints
    item: Ints
    weight: Floats  # empty: none


class Shelf(NamedTuple):
    """The rows of both sides that are not expired."""

    stamp: Ints  # (side, place % room, TICK..HOME)
    item: Ints  # (side, posting % items)
    weight: Floats  # the same; one column only where there are none
    link: Ints  # (side, posting % items, ITEM..OLDER): all that a walk needs, side by side
    heads: Ints  # (side, basic window % n, bucket) -> the newest posting that was linked there; -1: none yet
    sealed: Ints  # (side, n, ITEM..OWNER): older postings, bucket by bucket
    sealed_weight: Floats  # (side, n): theirs; one column only where there are none
    starts: (
        Ints  # (side, bucket) -> where its sealed postings begin; buckets of all basic windows, one after the other
    )
    basic: Ints  # (side, basic window % n, FIRST..SINCE)
    length: Ints  # per side, of a basic window in ticks
    marks: Ints


def shelf(*, rows: int, items: int, basic: int, length: Ints, weighted: bool, indexed: bool) -> Shelf:
    """Return empty windows with so much room (powers of 2), in so many basic windows of these lengths."""
    marks = np.zeros(MARKS, np.int64)
    marks[BASIC : BASIC + 2], marks[BUCKETS : BUCKETS + 2] = -1, 1
    links = items if indexed else 1
    buckets = buckets_for(links, basic) if indexed else 1
    return Shelf(
        np.zeros((2, rows, STAMPS), np.int64),
        np.zeros((2, items), np.int64),
        np.zeros((2, items if weighted else 1)),
        np.zeros((2, links, 3), np.int64),
        np.full((2, basic, buckets), -1, np.int64),
        np.empty((2, links, 2), np.int64),
        np.empty((2, links if weighted else 1)),
        np.zeros((2, basic * buckets + 2), np.int64),
        np.zeros((2, basic, 2), np.int64),
        length,
        marks,
    )


def buckets_for(items: int, basic: int) -> int:
    """Return how many buckets each basic window gets, a power of 2: about one for each posting."""
    return 1 << max(4, (2 * items // basic - 1).bit_length())


def roomier(old: Shelf, rows: int, items: int) -> Shelf:
    """Return the same windows with room for so many more rows and items on each side.

    Room that is too large by far, as after a burst, is given back; so this is O(1) per row, amortised.
    """
    marks, basic, indexed = old.marks, old.basic.shape[1], old.link.shape[1] > 1
    kept = np.array([first_posting(old, side) for side in range(2)])
    wanted = [
        int((marks[NEXT : NEXT + 2] - marks[LOW : LOW + 2]).max()) + rows,
        int((marks[POSTING : POSTING + 2] - kept).max()) + items,
    ]
    room = [old.stamp.shape[1], old.item.shape[1]]
    least = [max(FIRST_ROOM, 1 << (want - 1).bit_length()) for want in wanted]
    if all(enough <= have <= SPARE * enough for have, enough in zip(room, least, strict=True)):
        return old
    room = [have if enough <= have <= SPARE * enough else enough for have, enough in zip(room, least, strict=True)]
    new = shelf(
        rows=room[0],
        items=room[1],
        basic=basic,
        length=old.length,
        weighted=old.weight.shape[1] > 1,
        indexed=indexed,
    )
    new.basic[...], new.marks[...] = old.basic, marks
    for side in range(2):
        places = np.arange(marks[LOW + side], marks[NEXT + side])
        new.stamp[side, places & (room[0] - 1)] = old.stamp[side, places & (old.stamp.shape[1] - 1)]
        postings = np.arange(kept[side], marks[POSTING + side])
        to, since = postings & (room[1] - 1), postings & (old.item.shape[1] - 1)
        for mine, theirs in ((new.item, old.item), (new.weight, old.weight)):
            if theirs.shape[1] > 1:
                mine[side, to] = theirs[side, since]
    if indexed:
        index_anew(new)
    return new


def sifted(old: Shelf, kept: Sequence[npt.NDArray[np.bool_]]) -> Shelf:
    """Return the same windows with some of their rows only: those kept, from the oldest on. O(rows + items)."""
    new = shelf(
        rows=old.stamp.shape[1],
        items=old.item.shape[1],
        basic=old.basic.shape[1],
        length=old.length,
        weighted=old.weight.shape[1] > 1,
        indexed=old.link.shape[1] > 1,
    )
    new.basic[...], new.marks[...] = old.basic, old.marks
    mask, items = old.stamp.shape[1] - 1, old.item.shape[1] - 1
    for side, chosen in enumerate(kept):
        low, first = old.marks[LOW + side], first_posting(old, side)
        stamps = old.stamp[side, (low + np.flatnonzero(chosen)) & mask]
        sizes = stamps[:, SIZE]
        begins = first + np.cumsum(sizes) - sizes
        to = first + np.arange(sizes.sum())
        since = to + np.repeat(stamps[:, BEGIN] - begins, sizes)
        for mine, theirs in ((new.item, old.item), (new.weight, old.weight)):
            if theirs.shape[1] > 1:
                mine[side, to & items] = theirs[side, since & items]
        stamps[:, BEGIN] = begins
        new.stamp[side, (low + np.arange(sizes.size)) & mask] = stamps
        new.marks[NEXT + side], new.marks[POSTING + side] = low + sizes.size, first + sizes.sum()
        before = np.append(0, np.cumsum(chosen))  # how many are kept of those before a place
        new.basic[side, :, FIRST] = low + before[np.clip(old.basic[side, :, FIRST] - low, 0, chosen.size)]
    if new.link.shape[1] > 1:
        index_anew(new)
    return new


def without_index(held: Shelf) -> Shelf:
    """Return the windows as they are saved: their index is made anew from the rest."""
    return held._replace(**{name: np.empty(0, getattr(held, name).dtype) for name in INDEX})


def with_index(held: Shelf, *, indexed: bool) -> Shelf:
    """Return windows that were saved, with their index. O(items)."""
    new = shelf(
        rows=held.stamp.shape[1],
        items=held.item.shape[1],
        basic=held.basic.shape[1],
        length=held.length,
        weighted=held.weight.shape[1] > 1,
        indexed=indexed,
    )
    held = held._replace(**{name: getattr(new, name) for name in INDEX})
    if indexed:
        index_anew(held)
    return held


def reseal(shelf: Shelf, side: int) -> None:
    """Seal all postings of one side. O(its postings)."""
    held = int(shelf.marks[POSTING + side]) - first_posting(shelf, side)
    seal(shelf, side, buckets_for(max(1, held), shelf.basic.shape[1]))


def index_anew(shelf: Shelf) -> None:
    """Make the index of both sides from their rows. O(items)."""
    for side in range(2):
        reseal(shelf, side)


def first_posting(shelf: Shelf, side: int) -> int:
    """Return the first posting of the oldest row that lives; the next one, if none does."""
    low = shelf.marks[LOW + side]
    if low == shelf.marks[NEXT + side]:
        return int(shelf.marks[POSTING + side])
    return int(shelf.stamp[side, low & (shelf.stamp.shape[1] - 1), BEGIN])


@kernel
def seal(shelf: Shelf, side: int, buckets: int) -> None:
    """Lay down all postings of one side, in so many buckets a basic window. O(postings + buckets)."""
    shelf = borrowed(shelf)
    mask, items = shelf.stamp.shape[1] - 1, shelf.item.shape[1] - 1
    newest, count = shelf.marks[BASIC + side], shelf.basic.shape[1]
    low, starts = shelf.marks[LOW + side], shelf.starts
    starts[side, : count * buckets + 2] = 0
    for counting in range(2):  # how many each bucket gets, two places on, so that each begins one place on; then them
        for window in range(max(wide(0), newest - count + 1), newest + 1):
            slot = window % count
            for place in range(max(low, shelf.basic[side, slot, FIRST]), end_of(shelf, side, window)):
                begin = shelf.stamp[side, place & mask, BEGIN]
                for posting in range(begin, begin + shelf.stamp[side, place & mask, SIZE]):
                    item = shelf.item[side, posting & items]
                    bucket = slot * buckets + bucket_of(item, buckets)
                    if counting == 0:
                        starts[side, bucket + 2] += 1
                        continue
                    to = starts[side, bucket + 1]
                    shelf.sealed[side, to, ITEM], shelf.sealed[side, to, OWNER] = item, place
                    if shelf.sealed_weight.shape[1] > 1:
                        shelf.sealed_weight[side, to] = shelf.weight[side, posting & items]
                    starts[side, bucket + 1] += 1
        if counting == 0:
            for bucket in range(count * buckets):
                starts[side, bucket + 2] += starts[side, bucket + 1]
    shelf.marks[SEALED + side], shelf.marks[BUCKETS + side] = shelf.marks[POSTING + side], buckets


@part
def linked_too_many(shelf: Shelf, side: int) -> bool:
    """Say whether it is time to seal."""
    sealed = shelf.starts[side, shelf.basic.shape[1] * shelf.marks[BUCKETS + side]]
    return shelf.marks[POSTING + side] - shelf.marks[SEALED + side] >= FIRST_ROOM + sealed // LINKED


@part
def first_linked(shelf: Shelf, side: int) -> int:
    """Return the oldest posting whose link is still there: lists end before it.

    Those before it are sealed, or so old that newer ones have taken their places: no row that lives has them.
    """
    return max(shelf.marks[SEALED + side], shelf.marks[POSTING + side] - shelf.link.shape[1])


@part
def bucket_of(item: int, buckets: int) -> int:
    """Return the bucket of an item, of so many: a power of 2."""
    return wide(mixed(np.uint64(item)) & np.uint64(buckets - 1))


@part
def link(shelf: Shelf, side: int, slot: int, posting: int, place: int, item: int) -> None:
    """Put a posting at the head of its list."""
    entry = shelf.link[side, posting & (shelf.link.shape[1] - 1)]
    bucket = bucket_of(item, shelf.heads.shape[2])
    entry[ITEM], entry[OWNER], entry[OLDER] = item, place, shelf.heads[side, slot, bucket]
    shelf.heads[side, slot, bucket] = posting


@part
def end_of(shelf: Shelf, side: int, window: int) -> int:
    """Return the place after the last row of a basic window."""
    if window == shelf.marks[BASIC + side]:
        return shelf.marks[NEXT + side]
    return shelf.basic[side, (window + 1) % shelf.basic.shape[1], FIRST]


@part
def insert(shelf: Shelf, rule: Rule, side: int, stamp: Any, sets: Sets, at: int) -> None:
    """Take a row into the newest basic window of its side, or into a new one if that is full. O(1) per item."""
    marks, count = shelf.marks, shelf.basic.shape[1]
    place, posting, tick = marks[NEXT + side], marks[POSTING + side], stamp[0]
    slot = marks[BASIC + side] % count
    if marks[BASIC + side] < 0 or tick - shelf.basic[side, slot, SINCE] >= shelf.length[side]:
        marks[BASIC + side] += 1
        slot = marks[BASIC + side] % count
        shelf.basic[side, slot, FIRST] = place
        shelf.basic[side, slot, SINCE] = tick
    where, size = place & (shelf.stamp.shape[1] - 1), sets.size[at]
    for column in range(3):
        shelf.stamp[side, where, column] = stamp[column]
    shelf.stamp[side, where, BEGIN] = posting
    shelf.stamp[side, where, SIZE] = size
    shelf.stamp[side, where, KIND] = stamp[3]
    shelf.stamp[side, where, HOME] = stamp[4]
    items = shelf.item.shape[1] - 1
    for i in range(size):
        item = sets.item[sets.begin[at] + i]
        shelf.item[side, (posting + i) & items] = item
        if shelf.weight.shape[1] > 1:
            shelf.weight[side, (posting + i) & items] = sets.weight[sets.begin[at] + i]
        if rule.indexed:
            link(shelf, side, slot, posting + i, place, item)
    marks[NEXT + side] += 1
    marks[POSTING + side] += size


@part
def climbed(shelf: Shelf, side: int) -> float:
    """Return the steps by which the newest row gets into lists in order of identifiers, and out of them in the end.

    Such a list is a balanced tree of the rows in a basic window that have the item: log2 of their number, each way
    (gedik2007 §4.2.2). How many there are is counted: O(postings).
    """
    marks, mask, items = shelf.marks, shelf.stamp.shape[1] - 1, shelf.item.shape[1] - 1
    newest, slot = (marks[NEXT + side] - 1) & mask, marks[BASIC + side] % shelf.basic.shape[1]
    first = max(marks[LOW + side], shelf.basic[side, slot, FIRST])
    begin, buckets, steps = shelf.stamp[side, newest, BEGIN], marks[BUCKETS + side], 0.0
    oldest = first_linked(shelf, side)
    for mine in range(begin, begin + shelf.stamp[side, newest, SIZE]):
        item, posting, rows = shelf.item[side, mine & items], mine, 0
        while posting >= oldest and shelf.link[side, posting & items, OWNER] >= first:
            rows += shelf.link[side, posting & items, ITEM] == item
            posting = shelf.link[side, posting & items, OLDER]
        bucket = slot * buckets + bucket_of(item, buckets)
        for at in range(shelf.starts[side, bucket], shelf.starts[side, bucket + 1]):
            rows += shelf.sealed[side, at, OWNER] >= first and shelf.sealed[side, at, ITEM] == item
        steps += 2.0 * np.log2(1.0 + rows)
    return steps


@part
def expire(shelf: Shelf, side: int, span: int, bar: int) -> int:
    """Let go of the rows with ``tick + span <= bar``, from the oldest on; returns how many of them count."""
    marks, mask = shelf.marks, shelf.stamp.shape[1] - 1
    gone = wide(0)
    while marks[LOW + side] < marks[NEXT + side]:
        oldest = shelf.stamp[side, marks[LOW + side] & mask]
        if oldest[TICK] + span > bar:
            break
        gone += oldest[HOME]
        marks[LOW + side] += 1
    return gone


@part
def holds(rule: Rule, side: int, shared: float, mine: int, theirs: int) -> bool:
    """Say whether a row of one side with so many items meets a row of the other, by what they share."""
    left, right = (mine, theirs) if side == 0 else (theirs, mine)
    if rule.kind == EQUAL:
        return shared == left and shared == right
    if rule.kind == CONTAINS:
        return shared == right
    if rule.kind == CONTAINED:
        return shared == left
    return shared >= rule.bound


@part
def shared_by(shelf: Shelf, rule: Rule, other: int, where: int, sets: Sets, at: int) -> float:
    """Return what a row and a stored one share, by merging their sorted items: a count, or an inner product."""
    items, begin = shelf.item.shape[1] - 1, shelf.stamp[other, where, BEGIN]
    i, j, total = sets.begin[at], begin, 0.0
    while i < sets.begin[at] + sets.size[at] and j < begin + shelf.stamp[other, where, SIZE]:
        mine, theirs = sets.item[i], shelf.item[other, j & items]
        if mine == theirs:
            total += sets.weight[i] * shelf.weight[other, j & items] if rule.kind == PRODUCT else 1.0
        i += mine <= theirs
        j += theirs <= mine
    return total


@part
def item_part(item: int, parts: int) -> int:
    """Return which of so many parts an item belongs to."""
    return wide(part_of(np.uint64(item), np.uint64(parts)))


@part
def first_shared_in(shelf: Shelf, other: int, where: int, sets: Sets, at: int, mine: int, parts: int) -> bool:
    """Say whether the first item that a row and a stored one share belongs to this part; they share one."""
    items, begin = shelf.item.shape[1] - 1, shelf.stamp[other, where, BEGIN]
    i, j = sets.begin[at], begin
    while sets.item[i] != shelf.item[other, j & items]:
        if sets.item[i] < shelf.item[other, j & items]:
            i += 1
        else:
            j += 1
    return item_part(sets.item[i], parts) == mine


@part
def near(shelf: Shelf, rule: Rule, other: int, where: int, sets: Sets, at: int) -> bool:
    """Say whether the number of a row is close to that of a stored one."""
    stored = shelf.weight[other, shelf.stamp[other, where, BEGIN] & (shelf.item.shape[1] - 1)]
    return abs(stored - sets.weight[sets.begin[at]]) <= rule.bound


def tidied(sizes: Ints, item: Ints, weight: Floats) -> Sets:
    """Sort the items of each row and let each count once, with its first weight. Works in place.

    `sizes` are those of the rows, one after the other. O(items log items).
    """
    begin, size = np.zeros(sizes.size, np.int64), np.zeros(sizes.size, np.int64)
    sets = Sets(begin, size, item, weight)
    tidy(sizes, sets)
    return sets


@kernel
def tidy(sizes: Ints, sets: Sets) -> None:
    """Do what ``tidied`` says."""
    sizes, sets = borrowed(sizes), borrowed(sets)
    item, weight, begin = sets.item, sets.weight, sets.begin
    read = wrote = 0
    for row in range(sizes.size):
        begin[row] = wrote
        end = read + sizes[row]
        if sizes[row] <= FEW:
            insertion_sort(item, weight, read, end)
        else:
            order = np.argsort(item[read:end], kind="mergesort")
            item[read:end] = item[read:end][order]
            if weight.size:
                weight[read:end] = weight[read:end][order]
        for i in range(read, end):
            if wrote == begin[row] or item[wrote - 1] != item[i]:
                item[wrote] = item[i]
                if weight.size:
                    weight[wrote] = weight[i]
                wrote += 1
        read = end
        sets.size[row] = wrote - begin[row]


@part
def insertion_sort(item: Ints, weight: Floats, begin: int, end: int) -> None:
    """Sort a few items, equal ones staying in their order."""
    for i in range(begin + 1, end):
        moved, burden = item[i], weight[i] if weight.size else 0.0
        j = i
        while j > begin and item[j - 1] > moved:
            item[j] = item[j - 1]
            if weight.size:
                weight[j] = weight[j - 1]
            j -= 1
        item[j] = moved
        if weight.size:
            weight[j] = burden
