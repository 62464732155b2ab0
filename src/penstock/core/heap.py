"""Know which tuple is worth least: a heap over keys or tuples, one per side.

An entry stands for a leaf (a key id, or a slot) with the score, age and row number of the tuple that plays for it:
itself, or the oldest of its key.

The heap is lazy. What an entry says is never more than the truth: a leaf that becomes worth less gets a new entry
at once, a leaf that becomes worth more, or leaves, is not touched. Only the entry at the top is compared with the
truth, and corrected until they agree. So arrivals and expiry cost nothing here, and a victim costs one way down.
Leaves that are worth nothing wait apart, in order of age: on sparse keys most tuples are such, and taking them off
the front of a queue costs O(1).

A policy that *fades* says what a tuple is worth per tick; the heap multiplies that by the ticks it has left. Such
scores change while nothing arrives. The heap stays exact by certificates (a kinetic heap): every entry holds the
first clock at which it, or an entry below it, may have to change places, and ``settle`` looks at just those
whenever the clock has moved.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.hooks import ranks, scale, score
from penstock.core.jit import borrowed, kernel, outlined, overload, part, uncached, wide
from penstock.core.windows import ALIVE, BUNCH, CLOCK, POS, ROW, SLOTS, Floats, Ints, Windows, first, moment_of

SHIFT = 2
FAN = 1 << SHIFT
NOBODY = -1
NEVER = np.iinfo(np.int64).max
FAR = float(1 << 60)
ROUNDING = 2.0**-50
# columns of `tag` and `idle`
BORN, NUMBER, LEAF, MOMENT = 0, 1, 2, 3
# columns of `marks`
SIZE, START, WAITING = 0, 1, 2


class Heap(NamedTuple):
    """The heaps of both sides; the entry at place 0 goes first."""

    worth: Floats  # (side, place)
    tag: Ints  # (side, place, BORN..MOMENT)
    sure: Ints  # (side, place) -> first clock at which to look again; one place where scores stand still
    idle: Ints  # (side, ring, BORN..MOMENT) -> leaves worth nothing, the oldest first
    known: npt.NDArray[Any]  # (side, leaf) -> 1: it has an entry that says enough, whoever plays for it next
    marks: Ints  # (side, SIZE..WAITING)
    span: Ints  # per side


def empty(*, entries: int, leaves: int, fading: bool, span: Ints) -> Heap:
    """Return heaps without entries, with room for so many on each side."""
    return Heap(
        worth=np.empty((2, entries)),
        tag=np.empty((2, entries, 4), np.int64),
        sure=np.empty((2, entries if fading else 1), np.int64),
        idle=np.empty((2, entries, 4), np.int64),
        known=np.zeros((2, leaves), np.int8),
        marks=np.zeros((2, 3), np.int64),
        span=span,
    )


# --- order: nothing below depends on the policy -------------------------------------------------------------------


@part
def fades(heap: Heap) -> bool:
    """Say whether scores are per tick of remaining life."""
    return heap.sure.shape[1] > 1


@part
def present(heap: Heap, side: int, clock: int, place: int) -> float:
    """Return what an entry is worth at a clock."""
    worth = heap.worth[side, place]
    if fades(heap):
        return worth * max(heap.tag[side, place, BORN] + heap.span[side] - 1 - clock, 0)
    return worth


@part
def older(heap: Heap, side: int, place: int, other: int) -> bool:
    """Say whether one entry is older than another; at the same age, of an earlier row."""
    tag = heap.tag[side]
    if tag[place, BORN] != tag[other, BORN]:
        return tag[place, BORN] < tag[other, BORN]
    return tag[place, NUMBER] < tag[other, NUMBER]


@part
def swap(heap: Heap, side: int, place: int, other: int) -> None:
    """Let two entries change places."""
    worth = heap.worth[side, place]
    heap.worth[side, place] = heap.worth[side, other]
    heap.worth[side, other] = worth
    for column in range(4):
        value = heap.tag[side, place, column]
        heap.tag[side, place, column] = heap.tag[side, other, column]
        heap.tag[side, other, column] = value


@part
def first_child(heap: Heap, side: int, clock: int, place: int) -> int:
    """Return the child of a place that goes first, or -1."""
    begin = (place << SHIFT) + 1
    end = min(begin + FAN, heap.marks[side, SIZE])
    if begin >= end:
        return wide(NOBODY)
    best, best_now = begin, present(heap, side, clock, begin)
    for child in range(begin + 1, end):
        now = present(heap, side, clock, child)
        if now < best_now or (now == best_now and older(heap, side, child, best)):
            best, best_now = wide(child), now
    return best


@outlined
def sink(heap: Heap, side: int, clock: int, place: int) -> None:
    """Move the entry at a place down to where it belongs, and certify all on its way."""
    heap = borrowed(heap)
    top = place
    now = present(heap, side, clock, place)
    while True:
        child = first_child(heap, side, clock, place)
        if child < 0:
            break
        theirs = present(heap, side, clock, child)
        if now < theirs or (now == theirs and older(heap, side, place, child)):
            break
        swap(heap, side, place, child)
        place = child
    if fades(heap):
        certify(heap, side, clock, place)
        while place > top:
            place = (place - 1) >> SHIFT
            certify(heap, side, clock, place)


@outlined
def add(heap: Heap, side: int, clock: int) -> None:
    """Take the entry written behind the last one into the heap."""
    heap = borrowed(heap)
    place = heap.marks[side, SIZE]
    heap.marks[side, SIZE] = place + 1
    if fades(heap):
        heap.sure[side, place] = NEVER
    now = present(heap, side, clock, place)
    bottom = place
    while place > 0:
        above = (place - 1) >> SHIFT
        theirs = present(heap, side, clock, above)
        if theirs < now or (theirs == now and older(heap, side, above, place)):
            break
        swap(heap, side, place, above)
        place = above
    if fades(heap):
        certify_up(heap, side, clock, bottom, place)


@outlined
def drop_first(heap: Heap, side: int, clock: int) -> None:
    """Take the entry at the top out of the heap."""
    heap = borrowed(heap)
    last = heap.marks[side, SIZE] - 1
    swap(heap, side, 0, last)
    heap.marks[side, SIZE] = last
    if last > 0:
        if fades(heap):
            certify_up(heap, side, clock, (last - 1) >> SHIFT, last)
        sink(heap, side, clock, 0)


@part
def crossing(heap: Heap, side: int, clock: int, place: int, child: int) -> int:
    """Return the first clock after this one at which a child may go before the entry above it.

    Scores are rounded, and equal ones go by age: entries closer than a margin may change places at any clock.
    """
    slope, steeper = heap.worth[side, place], heap.worth[side, child]
    closing = steeper - slope
    if closing == 0.0:
        return NEVER
    last = heap.span[side] - 1 - clock
    mine, theirs = heap.tag[side, place, BORN] + last, heap.tag[side, child, BORN] + last
    margin = ROUNDING * steeper * theirs
    apart = steeper * theirs - slope * mine
    if closing < 0.0:
        return NEVER if apart > margin or -closing > margin else clock + 1
    return clock + max(wide(math.floor(min((apart - margin) / closing, FAR))), 1)


@part
def certify(heap: Heap, side: int, clock: int, place: int) -> None:
    """Work out until when a place and all below it are sure."""
    begin = (place << SHIFT) + 1
    sure = wide(NEVER)
    for child in range(begin, min(begin + FAN, heap.marks[side, SIZE])):
        sure = min(sure, heap.sure[side, child], crossing(heap, side, clock, place, child))
    heap.sure[side, place] = sure


@part
def certify_up(heap: Heap, side: int, clock: int, place: int, top: int) -> None:
    """Certify from a place upwards: to the one above `top`, then as far as certificates change."""
    while True:
        before = heap.sure[side, place]
        certify(heap, side, clock, place)
        if place == 0 or (place < top and heap.sure[side, place] == before):
            return
        place = (place - 1) >> SHIFT


@part
def settle(heap: Heap, side: int, clock: int) -> None:
    """Restore the order after the clock has moved."""
    if fades(heap) and heap.marks[side, SIZE] > 0 and heap.sure[side, 0] <= clock:
        settle_below(heap, side, clock)


@outlined
def settle_below(heap: Heap, side: int, clock: int) -> None:
    """Put right every place whose certificate has run out, those below before those above."""
    heap = borrowed(heap)
    while heap.sure[side, 0] <= clock:
        place = wide(0)
        below = True
        while below:
            below = False
            begin = (place << SHIFT) + 1
            for child in range(begin, min(begin + FAN, heap.marks[side, SIZE])):
                if heap.sure[side, child] <= clock:
                    place = wide(child)
                    below = True
                    break
        sink(heap, side, clock, place)


# --- entries ------------------------------------------------------------------------------------------------------


def front(policy: Any, windows: Windows, side: int, leaf: int) -> int:
    """Return the tuple that plays for a leaf, or -1."""
    return (_front_of_key if ranks(policy) == "key" else _front_of_slot)(policy, windows, side, leaf)


def _front_of_key(policy: Any, windows: Windows, side: int, leaf: int) -> int:  # noqa: ARG001
    bunch = 2 * leaf + side
    return first(windows, bunch) if windows.runs[bunch, ALIVE] > 0 else wide(NOBODY)


def _front_of_slot(policy: Any, windows: Windows, side: int, leaf: int) -> int:  # noqa: ARG001
    bunch = windows.link[leaf, BUNCH]
    return wide(leaf) if bunch >= 0 and (bunch & 1) == side else wide(NOBODY)


@overload(front)
def _front(policy: Any, windows: Any, side: Any, leaf: Any) -> Any:  # noqa: ARG001
    return _front_of_key if ranks(policy) == "key" else _front_of_slot


def leaf_of(policy: Any, windows: Windows, slot: int) -> int:
    """Return the leaf that a tuple plays for."""
    return wide(windows.link[slot, BUNCH]) >> 1 if ranks(policy) == "key" else wide(slot)


@overload(leaf_of)
def _leaf_of(policy: Any, windows: Any, slot: Any) -> Any:  # noqa: ARG001
    if ranks(policy) == "key":
        return lambda policy, windows, slot: wide(windows.link[slot, BUNCH]) >> 1  # noqa: ARG005
    return lambda policy, windows, slot: wide(slot)  # noqa: ARG005


@part
def truth(policy: Any, windows: Windows, side: int, slot: int) -> float:
    """Return the score of a tuple, or of nobody (slot = -1): infinity."""
    return np.inf if slot < 0 else score(policy, windows, side, slot, windows.marks[CLOCK + side])


@part
def label(windows: Windows, tag: Ints, leaf: int, slot: int) -> None:
    """Write who plays for a leaf."""
    tag[BORN] = windows.stamp[slot, POS]
    tag[NUMBER] = windows.stamp[slot, ROW]
    tag[LEAF] = leaf
    tag[MOMENT] = moment_of(windows, slot)


@part
def push(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int, slot: int) -> None:
    """Add an entry for a leaf: to the queue if it is worth nothing, else to the heap."""
    worth = truth(policy, windows, side, slot)
    if worth != 0.0 or not wait(windows, heap, side, leaf, slot):
        place(policy, windows, heap, side, leaf, slot, worth)


@part
def place(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int, slot: int, worth: float) -> None:
    """Put an entry into the heap."""
    if heap.marks[side, SIZE] == heap.worth.shape[1]:
        clean(policy, windows, heap, side)
    at = heap.marks[side, SIZE]
    heap.worth[side, at] = worth
    label(windows, heap.tag[side, at], leaf, slot)
    add(heap, side, windows.marks[CLOCK + side])
    heap.known[side, leaf] = 1


@part
def wait(windows: Windows, heap: Heap, side: int, leaf: int, slot: int) -> bool:
    """Put an entry at the end of the queue; False if that is full, or its last entry younger."""
    ring = heap.idle.shape[1]
    start, count = heap.marks[side, START], heap.marks[side, WAITING]
    if count == ring:
        return False
    if count > 0:
        last = heap.idle[side, (start + count - 1) % ring]
        born, row = windows.stamp[slot, POS], windows.stamp[slot, ROW]
        if born < last[BORN] or (born == last[BORN] and row < last[NUMBER]):
            return False
    label(windows, heap.idle[side, (start + count) % ring], leaf, slot)
    heap.marks[side, WAITING] = count + 1
    return True


@part
def entered(policy: Any, windows: Windows, heap: Heap, side: int, slot: int) -> None:
    """Tell the heap that a tuple came to play for its leaf, which had none."""
    leaf = leaf_of(policy, windows, slot)
    if heap.known[side, leaf] == 0 or ranks_tuples(policy):  # an earlier tuple's entry says nothing of this one
        push(policy, windows, heap, side, leaf, slot)


def ranks_tuples(policy: Any) -> bool:
    """Say, for the compiler too, whether each tuple has a score of its own."""
    return ranks(policy) == "tuple"


@overload(ranks_tuples)
def _ranks_tuples(policy: Any) -> Any:
    if ranks(policy) == "tuple":
        return lambda policy: True  # noqa: ARG005
    return lambda policy: False  # noqa: ARG005


@part
def lowered(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int) -> None:
    """Tell the heap that a leaf may be worth less than its entries say."""
    slot = wide(front(policy, windows, side, leaf))
    if slot >= 0:
        push(policy, windows, heap, side, leaf, slot)
    else:
        heap.known[side, leaf] = 0  # whoever plays for it next needs an entry of its own


@part
def correct(policy: Any, windows: Windows, heap: Heap, side: int) -> int:
    """Compare the top of the heap with the truth; returns its tuple if it was true, else -1, put right."""
    tag = heap.tag[side, 0]
    leaf = tag[LEAF]
    slot = wide(front(policy, windows, side, leaf))
    clock = windows.marks[CLOCK + side]
    if slot < 0:
        heap.known[side, leaf] = 0  # it may have other entries, but they say more than this one did
        drop_first(heap, side, clock)
        return wide(NOBODY)
    worth = truth(policy, windows, side, slot)
    if windows.stamp[slot, ROW] == tag[NUMBER] and worth == heap.worth[side, 0]:
        return slot
    heap.worth[side, 0] = worth
    label(windows, tag, leaf, slot)
    sink(heap, side, clock, 0)
    return wide(NOBODY)


@part
def correct_idle(policy: Any, windows: Windows, heap: Heap, side: int) -> int:
    """Compare the first in the queue with the truth; returns its tuple if it was true, else -1, taken out."""
    start = heap.marks[side, START]
    tag = heap.idle[side, start]
    leaf = tag[LEAF]
    slot = wide(front(policy, windows, side, leaf))
    worth = truth(policy, windows, side, slot)
    if worth == 0.0 and windows.stamp[slot, ROW] == tag[NUMBER]:
        return slot
    heap.marks[side, START] = (start + 1) % heap.idle.shape[1]
    heap.marks[side, WAITING] -= 1
    if slot < 0:
        heap.known[side, leaf] = 0
    else:
        place(policy, windows, heap, side, leaf, slot, worth)
    return wide(NOBODY)


@outlined
def clean(policy: Any, windows: Windows, heap: Heap, side: int) -> None:
    """Keep one true entry per leaf that plays, and restore the order."""
    policy, windows, heap = borrowed(policy), borrowed(windows), borrowed(heap)
    size = 0
    for at in range(heap.marks[side, SIZE]):
        heap.known[side, heap.tag[side, at, LEAF]] = 0
    for at in range(heap.marks[side, START], heap.marks[side, START] + heap.marks[side, WAITING]):
        heap.known[side, heap.idle[side, at % heap.idle.shape[1], LEAF]] = 1
    for at in range(heap.marks[side, SIZE]):
        leaf = heap.tag[side, at, LEAF]
        slot = wide(front(policy, windows, side, leaf))
        if slot >= 0 and heap.known[side, leaf] == 0:
            heap.known[side, leaf] = 1
            heap.worth[side, size] = truth(policy, windows, side, slot)
            label(windows, heap.tag[side, size], leaf, slot)
            size += 1
    heap.marks[side, SIZE] = size
    for back in range(size):
        sink(heap, side, windows.marks[CLOCK + side], size - 1 - back)


# --- victims ------------------------------------------------------------------------------------------------------


@part
def idle_first(windows: Windows, heap: Heap, side: int) -> bool:
    """Say whether the first in the queue goes before the top of the heap."""
    if heap.marks[side, WAITING] == 0 or heap.marks[side, SIZE] == 0:
        return heap.marks[side, WAITING] > 0
    now = present(heap, side, windows.marks[CLOCK + side], 0)
    if now != 0.0:
        return now > 0.0
    waits, top = heap.idle[side, heap.marks[side, START]], heap.tag[side, 0]
    return waits[BORN] < top[BORN] or (waits[BORN] == top[BORN] and waits[NUMBER] < top[NUMBER])


@part
def lower_side(policy: Any, windows: Windows, heap: Heap) -> int:
    """Return the side whose first entry goes first: worth less, then older, then left."""
    best, best_now, best_since = 0, np.inf, wide(NEVER)
    for side in range(2):
        now, since = np.inf, wide(NEVER)
        if idle_first(windows, heap, side):
            now, since = 0.0, heap.idle[side, heap.marks[side, START], MOMENT]
        elif heap.marks[side, SIZE] > 0:
            now = present(heap, side, windows.marks[CLOCK + side], 0) * scale(policy, side)
            since = heap.tag[side, 0, MOMENT]
        if now < best_now or (now == best_now and since < best_since):
            best, best_now, best_since = side, now, since
    return best


@part
def least(policy: Any, windows: Windows, heap: Heap, pool: int) -> int:
    """Return the tuple to go first on one side, or (pool = -1) on either; -1 if there is none.

    An entry never says more than the truth: if the lowest of all is true, it is the lowest.
    """
    while True:
        side = pool if pool >= 0 else lower_side(policy, windows, heap)
        if idle_first(windows, heap, side):
            slot = correct_idle(policy, windows, heap, side)
        elif heap.marks[side, SIZE] > 0:
            slot = correct(policy, windows, heap, side)
        else:
            return wide(NOBODY)
        if slot >= 0:
            return slot


@kernel
def fill(policy: Any, windows: Windows, heap: Heap) -> None:
    """Enter every leaf that plays into heaps without entries."""
    policy, windows, heap = borrowed(policy), borrowed(windows), borrowed(heap)
    for slot in range(windows.marks[SLOTS]):
        bunch = wide(windows.link[slot, BUNCH])
        if bunch < 0:
            continue
        side, leaf = bunch & 1, leaf_of(policy, windows, slot)
        if front(policy, windows, side, leaf) == slot:
            heap.tag[side, heap.marks[side, SIZE], LEAF] = leaf
            heap.marks[side, SIZE] += 1
    for side in range(2):
        clean(policy, windows, heap, side)


fill_uncached = uncached(fill)
