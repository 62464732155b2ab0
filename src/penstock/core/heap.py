"""Know which tuple is worth least: a heap over keys or tuples, one per side.

An entry stands for a leaf (a key id, or a slot) with the score, age and row number of the tuple that plays for it:
itself, or the oldest of its key.

The heap is lazy. What an entry says is never more than the truth: a leaf that becomes worth less gets a new entry
at once, a leaf that becomes worth more, or leaves, is not touched. Only the entry at the top is compared with the
truth, and corrected until they agree. So arrivals and expiry cost nothing here, and a victim costs one way down.

A policy that *fades* says what a tuple is worth per tick; the heap multiplies that by the ticks it has left. Such
scores change while nothing arrives. The heap stays exact by certificates (a kinetic heap): every entry holds the
first clock at which it, or an entry below it, may have to change places, and ``settle`` looks at just those.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.hooks import fades, ranks, scale, score
from penstock.core.jit import borrowed, kernel, overload, part, uncached
from penstock.core.windows import ALIVE, BUNCH, CLOCK, POS, ROW, SLOTS, Ints, Windows, first

SHIFT = 2
FAN = 1 << SHIFT
NOBODY = -1
NEVER = np.iinfo(np.int64).max
FAR = float(1 << 60)


class Heap(NamedTuple):
    """The heaps of both sides; entries are (side, place), the smallest at place 0."""

    worth: npt.NDArray[np.float64]
    born: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    leaf: npt.NDArray[np.int32]
    sure: npt.NDArray[np.int64]  # first clock at which to look again; one element where scores stand still
    queued: npt.NDArray[np.int32]  # (side, leaf) -> how many entries it has
    size: Ints  # per side
    span: Ints  # per side


def empty(*, entries: int, leaves: int, fading: bool, span: Ints) -> Heap:
    """Return heaps without entries, with room for so many on each side."""
    return Heap(
        worth=np.empty((2, entries)),
        born=np.empty((2, entries), np.int64),
        row=np.empty((2, entries), np.int64),
        leaf=np.empty((2, entries), np.int32),
        sure=np.empty((2, entries if fading else 1), np.int64),
        queued=np.zeros((2, leaves), np.int32),
        size=np.zeros(2, np.int64),
        span=span,
    )


# --- what depends on the kind of policy ---------------------------------------------------------------------------


def front(policy: Any, windows: Windows, side: int, leaf: int) -> int:
    """Return the tuple that plays for a leaf, or -1."""
    return (_front_of_key if ranks(policy) == "key" else _front_of_slot)(policy, windows, side, leaf)


def _front_of_key(policy: Any, windows: Windows, side: int, leaf: int) -> int:  # noqa: ARG001
    bunch = 2 * leaf + side
    return first(windows, bunch) if windows.runs[bunch, ALIVE] > 0 else np.int64(NOBODY)


def _front_of_slot(policy: Any, windows: Windows, side: int, leaf: int) -> int:  # noqa: ARG001
    bunch = windows.link[leaf, BUNCH]
    return np.int64(leaf) if bunch >= 0 and (bunch & 1) == side else np.int64(NOBODY)


@overload(front)
def _front(policy: Any, windows: Any, side: Any, leaf: Any) -> Any:  # noqa: ARG001
    return _front_of_key if ranks(policy) == "key" else _front_of_slot


def leaf_of(policy: Any, windows: Windows, slot: int) -> int:
    """Return the leaf that a tuple plays for."""
    return np.int64(windows.link[slot, BUNCH]) >> 1 if ranks(policy) == "key" else slot


@overload(leaf_of)
def _leaf_of(policy: Any, windows: Any, slot: Any) -> Any:  # noqa: ARG001
    if ranks(policy) == "key":
        return lambda policy, windows, slot: np.int64(windows.link[slot, BUNCH]) >> 1  # noqa: ARG005
    return lambda policy, windows, slot: np.int64(slot)  # noqa: ARG005


def fading(policy: Any) -> bool:
    """Say, for the compiler too, whether scores are per tick of remaining life."""
    return fades(policy)


@overload(fading)
def _fading(policy: Any) -> Any:
    if fades(policy):
        return lambda policy: True  # noqa: ARG005
    return lambda policy: False  # noqa: ARG005


@part
def present(policy: Any, windows: Windows, heap: Heap, side: int, worth: float, born: int) -> float:
    """Return what a score means at the present clock."""
    if fading(policy):
        return worth * max(born + heap.span[side] - 1 - windows.marks[CLOCK + side], 0)
    return worth


# --- order --------------------------------------------------------------------------------------------------------


@part
def goes_first(worth: float, born: int, row: int, rival: float, since: int, other: int) -> bool:
    """Say whether the first of two tuples of one side goes first: worth less, then older, then earlier row."""
    if worth != rival:
        return worth < rival
    return born < since or (born == since and row < other)


@part
def write(heap: Heap, side: int, place: int, worth: float, born: int, row: int, leaf: int) -> None:
    """Write an entry."""
    heap.worth[side, place] = worth
    heap.born[side, place] = born
    heap.row[side, place] = row
    heap.leaf[side, place] = leaf


@part
def move(heap: Heap, side: int, source: int, place: int) -> None:
    """Copy an entry to another place."""
    write(
        heap,
        side,
        place,
        heap.worth[side, source],
        heap.born[side, source],
        heap.row[side, source],
        heap.leaf[side, source],
    )


@part
def first_child(policy: Any, windows: Windows, heap: Heap, side: int, place: int) -> int:
    """Return the child of a place that goes first, or -1."""
    begin = (place << SHIFT) + 1
    end = min(begin + FAN, heap.size[side])
    if begin >= end:
        return np.int64(NOBODY)
    worth, born, row = heap.worth[side], heap.born[side], heap.row[side]
    best = begin
    best_now = present(policy, windows, heap, side, worth[begin], born[begin])
    for child in range(begin + 1, end):
        now = present(policy, windows, heap, side, worth[child], born[child])
        if goes_first(now, born[child], row[child], best_now, born[best], row[best]):
            best = np.int64(child)
            best_now = now
    return best


@part
def sink(policy: Any, windows: Windows, heap: Heap, side: int, place: int) -> int:
    """Move the entry at a place down to where it belongs and return that place."""
    worth, born = heap.worth[side, place], heap.born[side, place]
    row, leaf = heap.row[side, place], heap.leaf[side, place]
    now = present(policy, windows, heap, side, worth, born)
    while True:
        child = first_child(policy, windows, heap, side, place)
        if child < 0:
            break
        theirs = present(policy, windows, heap, side, heap.worth[side, child], heap.born[side, child])
        if not goes_first(theirs, heap.born[side, child], heap.row[side, child], now, born, row):
            break
        move(heap, side, child, place)
        place = child
    write(heap, side, place, worth, born, row, leaf)
    return place


@part
def rise(policy: Any, windows: Windows, heap: Heap, side: int, place: int) -> int:
    """Move the entry at a place up to where it belongs and return that place."""
    worth, born = heap.worth[side, place], heap.born[side, place]
    row, leaf = heap.row[side, place], heap.leaf[side, place]
    now = present(policy, windows, heap, side, worth, born)
    while place > 0:
        above = (place - 1) >> SHIFT
        theirs = present(policy, windows, heap, side, heap.worth[side, above], heap.born[side, above])
        if not goes_first(now, born, row, theirs, heap.born[side, above], heap.row[side, above]):
            break
        move(heap, side, above, place)
        place = above
    write(heap, side, place, worth, born, row, leaf)
    return place


# --- certificates -------------------------------------------------------------------------------------------------


@part
def crossing(windows: Windows, heap: Heap, side: int, place: int, child: int) -> int:
    """Return the first clock at which a child may be worth less than the entry above it."""
    slope, steeper = heap.worth[side, place], heap.worth[side, child]
    if steeper <= slope:
        return NEVER
    clock = windows.marks[CLOCK + side]
    last = heap.span[side] - 1 - clock
    ahead = (steeper * (heap.born[side, child] + last) - slope * (heap.born[side, place] + last)) / (steeper - slope)
    return clock + max(np.int64(math.floor(min(ahead, FAR))), 1)


@part
def certify(windows: Windows, heap: Heap, side: int, place: int) -> None:
    """Work out until when a place and all below it are sure."""
    begin = (place << SHIFT) + 1
    sure = np.int64(NEVER)
    for child in range(begin, min(begin + FAN, heap.size[side])):
        sure = min(sure, heap.sure[side, child], crossing(windows, heap, side, place, child))
    heap.sure[side, place] = sure


@part
def certify_up(windows: Windows, heap: Heap, side: int, place: int, top: int) -> None:
    """Work out the certificates from a place upwards: to the one above `top`, then as far as they change."""
    while True:
        before = heap.sure[side, place]
        certify(windows, heap, side, place)
        if place == 0 or (place < top and heap.sure[side, place] == before):
            return
        place = (place - 1) >> SHIFT


@part
def placed(policy: Any, windows: Windows, heap: Heap, side: int, place: int, top: int) -> None:
    """Bring certificates up to date after entries moved between a place and `top` above it."""
    if fading(policy):
        certify_up(windows, heap, side, place, top)


def settle(policy: Any, windows: Windows, heap: Heap, side: int) -> None:
    """Put right every place whose certificate has run out."""
    if fades(policy):
        _settle(policy, windows, heap, side)


@overload(settle)
def _settle_if_fading(policy: Any, windows: Any, heap: Any, side: Any) -> Any:  # noqa: ARG001
    return _settle if fades(policy) else lambda policy, windows, heap, side: None  # noqa: ARG005


def _settle(policy: Any, windows: Windows, heap: Heap, side: int) -> None:
    clock = windows.marks[CLOCK + side]
    while heap.size[side] > 0 and heap.sure[side, 0] <= clock:
        place = np.int64(0)
        below = True
        while below:  # the deepest place that has run out
            below = False
            begin = (place << SHIFT) + 1
            for child in range(begin, min(begin + FAN, heap.size[side])):
                if heap.sure[side, child] <= clock:
                    place = np.int64(child)
                    below = True
                    break
        placed(policy, windows, heap, side, sink(policy, windows, heap, side, place), place)


# --- entries ------------------------------------------------------------------------------------------------------


@part
def push(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int, slot: int) -> None:
    """Add an entry for a leaf."""
    if heap.size[side] == heap.worth.shape[1]:
        clean(policy, windows, heap, side)
    place = heap.size[side]
    heap.size[side] = place + 1
    heap.queued[side, leaf] += 1
    worth = score(policy, windows, side, slot, windows.marks[CLOCK + side])
    write(heap, side, place, worth, windows.stamp[slot, POS], windows.stamp[slot, ROW], leaf)
    placed(policy, windows, heap, side, place, rise(policy, windows, heap, side, place))


@part
def entered(policy: Any, windows: Windows, heap: Heap, side: int, slot: int) -> None:
    """Tell the heap that a tuple came to play for its leaf, which had none."""
    leaf = leaf_of(policy, windows, slot)
    if heap.queued[side, leaf] == 0 or ranks_tuples(policy):
        push(policy, windows, heap, side, leaf, slot)


def ranks_tuples(policy: Any) -> bool:
    """Say, for the compiler too, whether each tuple has its own score."""
    return ranks(policy) == "tuple"


@overload(ranks_tuples)
def _ranks_tuples(policy: Any) -> Any:
    if ranks(policy) == "tuple":
        return lambda policy: True  # noqa: ARG005
    return lambda policy: False  # noqa: ARG005


@part
def lowered(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int) -> None:
    """Tell the heap that a leaf may be worth less than its entries say."""
    slot = np.int64(front(policy, windows, side, leaf))
    if slot >= 0:
        push(policy, windows, heap, side, leaf, slot)


@part
def correct(policy: Any, windows: Windows, heap: Heap, side: int) -> bool:
    """Compare the entry at the top with the truth; True if it was true, else it is put right."""
    leaf = np.int64(heap.leaf[side, 0])
    slot = np.int64(front(policy, windows, side, leaf))
    if slot >= 0:
        worth = score(policy, windows, side, slot, windows.marks[CLOCK + side])
        row = windows.stamp[slot, ROW]
        if row == heap.row[side, 0] and worth == heap.worth[side, 0]:
            return True
        write(heap, side, 0, worth, windows.stamp[slot, POS], row, leaf)
    else:
        heap.queued[side, leaf] -= 1
        heap.size[side] -= 1
        if heap.size[side] == 0:
            return False
        last = heap.size[side]
        move(heap, side, last, 0)
        placed(policy, windows, heap, side, (last - 1) >> SHIFT, last)
    placed(policy, windows, heap, side, sink(policy, windows, heap, side, 0), 0)
    return False


@part
def clean(policy: Any, windows: Windows, heap: Heap, side: int) -> None:
    """Keep one true entry per leaf that plays, and restore the order."""
    size = 0
    for place in range(heap.size[side]):
        leaf = np.int64(heap.leaf[side, place])
        slot = np.int64(front(policy, windows, side, leaf))
        if slot < 0 or heap.queued[side, leaf] < 0:
            heap.queued[side, leaf] = min(heap.queued[side, leaf], 0)
            continue
        heap.queued[side, leaf] = -1
        worth = score(policy, windows, side, slot, windows.marks[CLOCK + side])
        write(heap, side, size, worth, windows.stamp[slot, POS], windows.stamp[slot, ROW], leaf)
        size += 1
    heap.size[side] = size
    for place in range(size):
        heap.queued[side, heap.leaf[side, place]] = 1
    for back in range(size):
        place = size - 1 - back
        if fading(policy):
            heap.sure[side, place] = NEVER
        placed(policy, windows, heap, side, sink(policy, windows, heap, side, place), place)


@part
def lower_side(policy: Any, windows: Windows, heap: Heap) -> int:
    """Return the side whose top entry goes first: worth less, then older, then left."""
    if heap.size[0] == 0 or heap.size[1] == 0:
        return 0 if heap.size[1] == 0 else 1
    ours = present(policy, windows, heap, 0, heap.worth[0, 0], heap.born[0, 0]) * scale(policy, 0)
    theirs = present(policy, windows, heap, 1, heap.worth[1, 0], heap.born[1, 0]) * scale(policy, 1)
    if ours != theirs:
        return 0 if ours < theirs else 1
    return 0 if heap.born[0, 0] <= heap.born[1, 0] else 1


@part
def least(policy: Any, windows: Windows, heap: Heap, pool: int) -> int:
    """Return the tuple to go first on one side, or (pool = -1) on either; -1 if there is none.

    The top never says more than the truth: if the lower of the two is true, it is the lowest.
    """
    side = pool if pool >= 0 else lower_side(policy, windows, heap)
    while heap.size[side] > 0 and not correct(policy, windows, heap, side):
        side = pool if pool >= 0 else lower_side(policy, windows, heap)
    if heap.size[side] == 0:
        return np.int64(NOBODY)
    return np.int64(front(policy, windows, side, np.int64(heap.leaf[side, 0])))


@kernel
def fill(policy: Any, windows: Windows, heap: Heap) -> None:
    """Enter every leaf that plays into heaps without entries."""
    policy, windows, heap = borrowed(policy), borrowed(windows), borrowed(heap)
    for slot in range(windows.marks[SLOTS]):
        bunch = np.int64(windows.link[slot, BUNCH])
        if bunch < 0:
            continue
        side, leaf = bunch & 1, leaf_of(policy, windows, slot)
        if front(policy, windows, side, leaf) == slot:
            write(heap, side, heap.size[side], 0.0, 0, 0, leaf)
            heap.queued[side, leaf] = 1
            heap.size[side] += 1
    for side in range(2):
        clean(policy, windows, heap, side)


fill_uncached = uncached(fill)
