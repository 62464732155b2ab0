"""Know which tuple is worth least: a heap over keys or tuples, one per side.

An entry stands for a leaf (a key id, or a slot) with the score, age and row number of the tuple that plays for it:
itself, or the oldest of its key, or its least important (``kin``). Equal scores go by what the policy says of ties,
then by age.

The heap is lazy. What an entry says is never more than the truth: a leaf that becomes worth less gets a new entry
at once, a leaf that becomes worth more, or leaves, is not touched. Only the entry at the top is compared with the
truth, and corrected until they agree. So arrivals and expiry cost nothing here, and a victim costs one way down.

Nor do tuples enter the heap as they come: they *wait*, in the order of time that the windows keep anyway, and are
looked at from the oldest on when a victim is needed. Who is worth the least there can be is the first to go and
stays where it is, and so does the newest; only others are moved into the heap. On sparse keys most tuples are worth
nothing, on dense ones most victims have just come: they cost O(1).

A policy that *fades* says what a tuple is worth per tick; the heap multiplies that by the ticks it has left. Such
scores change while nothing arrives. The heap stays exact by certificates (a kinetic heap): every entry holds the
first clock at which it, or an entry below it, may have to change places, and ``settle`` looks at just those
whenever the clock has moved.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core import kin as kindred
from penstock.core.hooks import by_importance, counts, foresee, has_ties, holds, offset, ranks, scale, score, tie
from penstock.core.hooks import fades as fading
from penstock.core.jit import borrowed, columns, kernel, outlined, overload, part, prefetch, uncached, wide
from penstock.core.kin import Kin, join_kin, leave_kin
from penstock.core.windows import (
    AHEAD,
    ALIVE,
    BUNCH,
    BUNCHES,
    CLOCK,
    CODE,
    LIVE,
    NEWER,
    NO_TICK,
    OLDEST,
    POS,
    ROW,
    WAITS,
    WORTH,
    Floats,
    Ints,
    Windows,
    Words,
    ask_for_first,
    ask_for_neighbours,
    bunch_of,
    first,
    importance_of,
    key_of,
    lines,
    moment_of,
)

SHIFT = 2
FAN = 1 << SHIFT
LINE = 8  # scores to a line of the cache
NOBODY = -1
NEVER = np.iinfo(np.int64).max
FAR = float(1 << 60)
ROUNDING = 2.0**-50
FEW = 64  # so many old entries do no harm
CACHED = 4096  # what fewer entries than these stand for is near anyway
DEEPEST = 32  # more levels than there can be
# columns of `tag`; the first two as in `stamp`
BORN, NUMBER, LEAF = 0, 1, 2


@columns(tag=3)
class Heap(NamedTuple):
    """The heaps of both sides; the entry at place 0 goes first."""

    worth: Floats  # (side, place)
    tag: Ints  # (side, place, BORN..LEAF)
    sure: Ints  # (side, place) -> first clock at which to look again; one place where scores stand still
    ties: Floats  # (side, place) -> what decides between equal scores; one place where only age does
    known: npt.NDArray[Any]  # (side, leaf) -> 1: it has an entry that says enough, whoever plays for it next
    size: Ints  # (side,) -> entries
    span: Ints  # per side
    kin: Kin
    later: Words  # [how many, then their bunches]: partners of who was given up in this tick
    path: Ints  # the places that an entry passes on its way down


def empty(*, policy: Any, entries: int, keys: int, slots: int, span: Ints) -> Heap:
    """Return heaps without entries for a policy, with room for so many on each side."""
    leaves = {"key": keys, "tuple": slots}.get(ranks(policy) or "", 1)
    kin = kindred.empty(keys=keys, slots=slots) if by_importance(policy) else kindred.empty(keys=1, slots=1)
    memory = lines(entries + 1, 8).ravel()[7:]  # so what the children of a place are worth crosses no line
    return Heap(
        worth=memory[: 2 * entries].view(np.float64).reshape(2, entries),
        tag=memory[2 * entries : 8 * entries].reshape(2, entries, 3),
        sure=np.empty((2, entries if fading(policy) else 1), np.int64),
        ties=np.empty((2, entries if has_ties(policy) else 1), np.float64),
        known=np.zeros((2, leaves), np.int8),
        size=np.zeros(2, np.int64),
        span=span,
        kin=kin,
        later=np.zeros(1 + (slots if holds(policy) else 0), np.int32),
        path=np.empty(DEEPEST, np.int64),
    )


def entries_for(slots: int) -> int:
    """Return how many entries a heap needs for so many tuples: whole lines of the cache."""
    return 8 * ((slots + slots // 4 + FEW) // 8 + 1)


def fits(heap: Heap, *, policy: Any, entries: int, keys: int, slots: int, span: Ints) -> bool:
    """Say whether heaps have just this room, so that they can be filled anew: new memory costs more than that."""
    room = heap.tag.shape[1] == entries and heap.span is span
    if by_importance(policy):
        room = room and heap.kin.link.shape[0] == slots
    if holds(policy):
        room = room and heap.later.size == slots + 1
    return room and heap.known.shape[1] == (keys if ranks(policy) == "key" else slots)


def widened(heap: Heap, policy: Any, windows: Windows, used: int) -> Heap:
    """Return heaps with room for as many keys as the windows have, of which so many are used."""
    keys = windows.code.shape[0]
    if ranks(policy) != "key" or heap.known.shape[1] == keys:
        return heap  # or its leaves are slots
    known = np.zeros((2, keys), np.int8)
    known[:, :used] = heap.known[:, :used]
    heap = heap._replace(known=known)
    if by_importance(policy):
        root = np.full((2, keys), NOBODY, np.int32)
        root[:, :used] = heap.kin.root[:, :used]
        heap = heap._replace(kin=heap.kin._replace(root=root))
    return heap


def renamed(heap: Heap, policy: Any, windows: Windows, moved: Words) -> Heap:
    """Return heaps after keys got other ids, or -1: who was forgotten has entries no more. O(keys + entries)."""
    heap = widened(heap, policy, windows, moved.size)
    if ranks(policy) == "key":
        rename(windows, heap, moved)
    return heap


@kernel
def rename(windows: Windows, heap: Heap, moved: Words) -> None:
    """Give leaves that are keys their new ids.

    Entries cannot be taken out of the midst of a heap: those of forgotten keys go over to the id to spare, the last
    there is, which never holds a tuple.
    """
    windows, heap, moved = borrowed(windows), borrowed(heap), borrowed(moved)
    known, root = heap.known, heap.kin.root
    spare = windows.code.shape[0] - 1
    for side in range(2):
        windows.runs[bunch_of(spare, side), ALIVE] = 0
        kept = 0
        for key in range(moved.size):
            if moved[key] >= 0:
                known[side, kept] = known[side, key]
                if root.shape[1] > 1:
                    root[side, kept] = root[side, key]
                kept += 1
        known[side, kept:] = 0
        if root.shape[1] > 1:
            root[side, kept:] = NOBODY
        for place in range(heap.size[side]):
            leaf = heap.tag[side, place, LEAF]
            stays = leaf < moved.size and moved[leaf] >= 0
            heap.tag[side, place, LEAF] = moved[leaf] if stays else spare


# --- order: nothing below depends on the policy -------------------------------------------------------------------


@part
def fades(heap: Heap) -> bool:
    """Say whether scores are per tick of remaining life."""
    return heap.sure.shape[1] > 1


@part
def present(heap: Heap, side: int, clock: int, place: int) -> float:
    """Return what an entry is worth at a clock."""
    return faded(heap, side, clock, heap.worth[side, place], heap.tag[side, place, BORN])


@part
def faded(heap: Heap, side: int, clock: int, worth: float, born: int) -> float:
    """Return what a tuple born then is worth at a clock."""
    return worth * max(born + heap.span[side] - 1 - clock, 0) if fades(heap) else worth


@part
def older(tag: Ints, other: Ints) -> bool:
    """Say whether one entry (or stamp of a tuple) is older than another; at the same age, of an earlier row."""
    return bool(tag[BORN] < other[BORN] or (tag[BORN] == other[BORN] and tag[NUMBER] < other[NUMBER]))


@part
def before(heap: Heap, side: int, place: int, other: int) -> bool:
    """Say which of two entries with equal scores goes first."""
    if heap.ties.shape[1] > 1 and heap.ties[side, place] != heap.ties[side, other]:
        return bool(heap.ties[side, place] < heap.ties[side, other])
    return older(heap.tag[side, place], heap.tag[side, other])


@part
def move(heap: Heap, side: int, source: int, place: int) -> None:
    """Copy an entry to another place."""
    heap.worth[side, place] = heap.worth[side, source]
    if heap.ties.shape[1] > 1:
        heap.ties[side, place] = heap.ties[side, source]
    for column in range(3):
        heap.tag[side, place, column] = heap.tag[side, source, column]


@part
def first_child(heap: Heap, side: int, clock: int, place: int) -> tuple[int, float]:
    """Return the child of a place that goes first, or -1, and what it is worth."""
    begin = (place << SHIFT) + 1
    end = min(begin + FAN, heap.size[side])
    if begin >= end:
        return wide(NOBODY), np.inf
    beyond = (begin << SHIFT) + 1
    if beyond + FAN * FAN < heap.size[side]:  # the children of the children are neighbours
        prefetch(heap.worth[side], beyond)
        prefetch(heap.worth[side], beyond + LINE)
    best, best_now = wide(begin), present(heap, side, clock, begin)
    for child in range(begin + 1, end):
        now = present(heap, side, clock, child)
        sooner = now < best_now
        if now == best_now:  # rare, so apart: the rest needs no branch, which nobody could foretell
            sooner = before(heap, side, child, best)
        best = wide(child) if sooner else best
        best_now = now if sooner else best_now
    return best, best_now


@outlined
def sink(heap: Heap, side: int, clock: int, place: int) -> int:
    """Move the entry at a place down to where it belongs, and certify all on its way; returns how far it went.

    The way is found by what entries are worth, and only then do they move: what else they say is asked for as the
    way is found, all at once, and would else be waited for on every level.
    """
    heap = borrowed(heap)
    top = place
    spare = heap.tag.shape[1] - 1  # the last place never holds an entry: the one that moves waits there
    move(heap, side, place, spare)
    now = present(heap, side, clock, spare)
    depth = 0
    while True:
        child, theirs = first_child(heap, side, clock, place)
        if child < 0 or now < theirs or (now == theirs and before(heap, side, spare, child)):
            break
        prefetch(heap.tag[side], child)
        heap.path[depth] = child
        depth += 1
        place = child
    above = top
    for level in range(depth):
        move(heap, side, heap.path[level], above)
        above = heap.path[level]
    move(heap, side, spare, place)
    if fades(heap):
        certify(heap, side, clock, place)
        while place > top:
            place = (place - 1) >> SHIFT
            certify(heap, side, clock, place)
    return depth


@outlined
def add(heap: Heap, side: int, clock: int) -> None:
    """Take the entry written to the spare place into the heap."""
    heap = borrowed(heap)
    spare = heap.tag.shape[1] - 1
    place = heap.size[side]
    heap.size[side] = place + 1
    now = present(heap, side, clock, spare)
    bottom = place
    while place > 0:
        above = (place - 1) >> SHIFT
        theirs = present(heap, side, clock, above)
        if theirs < now or (theirs == now and before(heap, side, above, spare)):
            break
        move(heap, side, above, place)
        place = above
    move(heap, side, spare, place)
    if fades(heap):
        heap.sure[side, bottom] = NEVER
        certify_up(heap, side, clock, bottom, place)


@outlined
def drop_first(heap: Heap, side: int, clock: int) -> int:
    """Take the entry at the top out of the heap; returns how far the one that took its place went down."""
    heap = borrowed(heap)
    last = heap.size[side] - 1
    move(heap, side, last, 0)
    heap.size[side] = last
    if last == 0:
        return 0
    if fades(heap):
        certify_up(heap, side, clock, (last - 1) >> SHIFT, last)
    return sink(heap, side, clock, 0)


@part
def certify(heap: Heap, side: int, clock: int, place: int) -> None:
    """Work out until when a place and all below it are sure.

    A child may go before the entry above it once their scores are equal. Scores are rounded, and equal ones go by
    age: entries closer than a margin may change places at any clock.
    """
    begin = (place << SHIFT) + 1
    last = heap.span[side] - 1 - clock
    slope = heap.worth[side, place]
    mine = slope * (heap.tag[side, place, BORN] + last)
    sure, soon = wide(NEVER), FAR
    for child in range(begin, min(begin + FAN, heap.size[side])):
        sure = min(sure, heap.sure[side, child])
        steeper = heap.worth[side, child]
        theirs = steeper * (heap.tag[side, child, BORN] + last)
        closing, margin = steeper - slope, ROUNDING * theirs
        if closing > 0.0:
            soon = min(soon, (theirs - mine - margin) / closing)
        elif closing < 0.0 and theirs - mine <= margin and -closing <= margin:
            soon = min(soon, 1.0)
    if soon < FAR:
        sure = min(sure, clock + max(wide(math.ceil(soon)), 1))
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
    if fades(heap) and heap.size[side] > 0 and heap.sure[side, 0] <= clock:
        settle_below(heap, side, clock)


@outlined
def settle_below(heap: Heap, side: int, clock: int) -> None:
    """Put right every place whose certificate has run out, those below before those above."""
    heap = borrowed(heap)
    place = wide(0)
    while True:
        below = True
        while below:
            below = False
            begin = (place << SHIFT) + 1
            for child in range(begin, min(begin + FAN, heap.size[side])):
                if heap.sure[side, child] <= clock:
                    place = wide(child)
                    below = True
                    break
        sink(heap, side, clock, place)
        if place == 0:
            return
        place = (place - 1) >> SHIFT


# --- entries ------------------------------------------------------------------------------------------------------


def front(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int) -> int:
    """Return the tuple that plays for a leaf, or -1."""
    slot: int = _front_by(policy)(policy, windows, heap, side, leaf)
    return slot


def _front_of_key(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int) -> int:  # noqa: ARG001
    bunch = bunch_of(leaf, side)
    return first(windows, bunch) if windows.runs[bunch, ALIVE] > 0 else wide(NOBODY)


def _front_of_kin(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int) -> int:  # noqa: ARG001
    return wide(heap.kin.root[side, leaf])


def _front_of_slot(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int) -> int:  # noqa: ARG001
    bunch = windows.link[leaf, BUNCH]
    return wide(leaf) if bunch >= 0 and (bunch & 1) == side else wide(NOBODY)


def _front_by(policy: Any) -> Any:
    by_key = _front_of_kin if by_importance(policy) else _front_of_key
    return by_key if ranks(policy) == "key" else _front_of_slot


@overload(front)
def _front(policy: Any, windows: Any, heap: Any, side: Any, leaf: Any) -> Any:  # noqa: ARG001
    return _front_by(policy)


def leaf_of(policy: Any, windows: Windows, slot: int) -> int:
    """Return the leaf that a tuple plays for."""
    return key_of(wide(windows.link[slot, BUNCH])) if ranks(policy) == "key" else wide(slot)


@overload(leaf_of)
def _leaf_of(policy: Any, windows: Any, slot: Any) -> Any:  # noqa: ARG001
    if ranks(policy) == "key":
        return lambda policy, windows, slot: key_of(wide(windows.link[slot, BUNCH]))  # noqa: ARG005
    return lambda policy, windows, slot: wide(slot)  # noqa: ARG005


def ranks_kin(policy: Any) -> bool:
    """Say, for the compiler too, whether the tuples of a key leave by importance."""
    return by_importance(policy)


@overload(ranks_kin)
def _ranks_kin(policy: Any) -> Any:
    if by_importance(policy):
        return lambda policy: True  # noqa: ARG005
    return lambda policy: False  # noqa: ARG005


def ranks_tuples(policy: Any) -> bool:
    """Say, for the compiler too, whether each tuple has a score of its own."""
    return ranks(policy) == "tuple"


@overload(ranks_tuples)
def _ranks_tuples(policy: Any) -> Any:
    if ranks(policy) == "tuple":
        return lambda policy: True  # noqa: ARG005
    return lambda policy: False  # noqa: ARG005


def truth(policy: Any, windows: Windows, side: int, slot: int) -> float:
    """Return the score of a tuple."""
    worth: float = _truth_by(policy)(policy, windows, side, slot)
    return worth


def _kept_score(policy: Any, windows: Windows, side: int, slot: int) -> float:  # noqa: ARG001
    worth: float = windows.worth[key_of(wide(windows.link[slot, BUNCH])), WORTH + side]
    return worth


def _kept_times_importance(policy: Any, windows: Windows, side: int, slot: int) -> float:  # noqa: ARG001
    weight: float = windows.worth[key_of(wide(windows.link[slot, BUNCH])), WORTH + side]
    return weight * importance_of(windows, slot)


def _asked_score(policy: Any, windows: Windows, side: int, slot: int) -> float:
    return score(policy, windows, side, slot, windows.marks[CLOCK + side])


def _truth_by(policy: Any) -> Any:
    kept = _kept_times_importance if by_importance(policy) else _kept_score
    return kept if counts(policy) else _asked_score


@overload(truth)
def _truth(policy: Any, windows: Any, side: Any, slot: Any) -> Any:  # noqa: ARG001
    return _truth_by(policy)


def lowest(policy: Any) -> float:
    """Return the score that sends the oldest who has it first, since nobody has less; -inf: there is none."""
    return 0.0 if counts(policy) and not has_ties(policy) else -np.inf


@overload(lowest)
def _lowest(policy: Any) -> Any:
    if counts(policy) and not has_ties(policy):
        return lambda policy: 0.0  # noqa: ARG005
    return lambda policy: -np.inf  # noqa: ARG005


@part
def label(windows: Windows, tag: Ints, leaf: int, slot: int) -> None:
    """Write who plays for a leaf."""
    tag[BORN] = windows.stamp[slot, POS]
    tag[NUMBER] = windows.stamp[slot, ROW]
    tag[LEAF] = leaf


@part
def write(policy: Any, windows: Windows, heap: Heap, side: int, place: int, leaf: int, slot: int) -> None:
    """Write an entry: what is true of a leaf, for which this tuple plays."""
    heap.worth[side, place] = truth(policy, windows, side, slot)
    if heap.ties.shape[1] > 1:
        heap.ties[side, place] = tie(policy, windows, side, slot)
    label(windows, heap.tag[side, place], leaf, slot)


def ask_for_leaf(policy: Any, windows: Windows, leaf: int) -> None:
    """Ask for what is known of a leaf."""


def _ask_for_key(policy: Any, windows: Windows, leaf: int) -> None:  # noqa: ARG001
    prefetch(windows.code, leaf)


def _ask_for_slot(policy: Any, windows: Windows, leaf: int) -> None:  # noqa: ARG001
    prefetch(windows.stamp, leaf)


@overload(ask_for_leaf)
def _ask_for_leaf(policy: Any, windows: Any, leaf: Any) -> Any:  # noqa: ARG001
    return _ask_for_key if ranks(policy) == "key" else _ask_for_slot


@outlined
def drop_old(policy: Any, windows: Windows, heap: Heap, side: int) -> None:
    """Keep one entry of each leaf, and a true one. O(leaves)."""
    policy, windows, heap = borrowed(policy), borrowed(windows), borrowed(heap)
    heap.known[side] = 0
    size = wide(0)
    for old in range(heap.size[side]):
        if old + 2 * AHEAD < heap.size[side]:
            ask_for_leaf(policy, windows, heap.tag[side, old + 2 * AHEAD, LEAF])
            near = wide(front(policy, windows, heap, side, heap.tag[side, old + AHEAD, LEAF]))
            if near >= 0:
                prefetch(windows.stamp, near)
        leaf = heap.tag[side, old, LEAF]
        slot = wide(front(policy, windows, heap, side, leaf))
        if slot >= 0 and heap.known[side, leaf] == 0:
            write(policy, windows, heap, side, size, leaf, slot)
            heap.known[side, leaf] = 1
            size += 1
    heap.size[side] = size
    if fades(heap):
        heap.sure[side, :size] = NEVER
    for at in range((size - 2) >> SHIFT, -1, -1):
        sink(heap, side, windows.marks[CLOCK + side], wide(at))


@part
def place(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int, slot: int) -> None:
    """Put an entry for a leaf into the heap; once a fifth of them or more are old, those are dropped first."""
    spare = heap.tag.shape[1] - 1
    leaves = windows.marks[(LIVE if ranks_tuples(policy) else BUNCHES) + side]
    if heap.size[side] >= min(leaves + (leaves >> 2) + FEW, spare):
        drop_old(policy, windows, heap, side)
    write(policy, windows, heap, side, spare, leaf, slot)
    add(heap, side, windows.marks[CLOCK + side])
    heap.known[side, leaf] = 1


@outlined
def start_over(windows: Windows, heap: Heap, side: int) -> None:
    """Drop all entries of a side and let every tuple wait again. O(leaves)."""
    windows, heap = borrowed(windows), borrowed(heap)
    heap.size[side] = 0
    heap.known[side] = 0
    windows.marks[WAITS + side] = windows.marks[OLDEST + side]


@part
def entered(policy: Any, windows: Windows, heap: Heap, side: int, slot: int, opens: int) -> None:
    """Tell the heap of a newcomer: the only one of its key (opens = 1), its oldest (2), or another (0).

    It waits, unless it is late and those that wait are younger.
    """
    if ranks_kin(policy):
        join_kin(windows, heap.kin, slot)
    prefetch(heap.known[side], leaf_of(policy, windows, slot))
    waits = windows.marks[WAITS + side]
    if windows.link[slot, NEWER] < 0:
        if waits < 0:
            windows.marks[WAITS + side] = slot
    elif (waits < 0 or windows.stamp[slot, POS] < windows.stamp[waits, POS]) and (
        front(policy, windows, heap, side, leaf_of(policy, windows, slot)) == slot
        if ranks_kin(policy)
        else opens > 0 or ranks_tuples(policy)
    ):
        place(policy, windows, heap, side, leaf_of(policy, windows, slot), slot)


@part
def lowered(policy: Any, windows: Windows, heap: Heap, side: int, leaf: int) -> None:
    """Tell the heap that a leaf may be worth less than its entries say."""
    slot = wide(front(policy, windows, heap, side, leaf))
    if slot >= 0:
        place(policy, windows, heap, side, leaf, slot)
    else:
        heap.known[side, leaf] = 0  # whoever plays for it next needs an entry of its own


@outlined
def leaves(policy: Any, windows: Windows, heap: Heap, side: int, slot: int) -> None:
    """Tell the heap that a tuple is about to leave.

    Only where the tuples of a key leave by importance: who plays next for the key may be one that no entry knows
    of, unless this one is being given up, and its entry is at the top still.
    """
    policy, windows, heap = borrowed(policy), borrowed(windows), borrowed(heap)
    leaf = leaf_of(policy, windows, slot)
    played = front(policy, windows, heap, side, leaf) == slot
    leave_kin(windows, heap.kin, slot)
    told = heap.size[side] > 0 and heap.tag[side, 0, LEAF] == leaf
    if played and not (told and heap.tag[side, 0, NUMBER] == windows.stamp[slot, ROW]):
        lowered(policy, windows, heap, side, leaf)


@part
def correct(policy: Any, windows: Windows, heap: Heap, side: int) -> int:
    """Compare the top of the heap with the truth; returns its tuple if it was true, else -1, put right."""
    tag = heap.tag[side, 0]
    leaf = tag[LEAF]
    slot = wide(front(policy, windows, heap, side, leaf))
    clock = windows.marks[CLOCK + side]
    if slot < 0:
        heap.known[side, leaf] = 0  # it may have other entries, but they say more than this one did
        ask_for_candidates(policy, windows, heap, side, drop_first(heap, side, clock))
        return wide(NOBODY)
    worth = truth(policy, windows, side, slot)
    even = heap.ties.shape[1] <= 1 or heap.ties[side, 0] == tie(policy, windows, side, slot)
    if windows.stamp[slot, ROW] == tag[NUMBER] and worth == heap.worth[side, 0] and even:
        return slot
    write(policy, windows, heap, side, wide(0), leaf, slot)
    ask_for_candidates(policy, windows, heap, side, sink(heap, side, clock, 0))
    return wide(NOBODY)


def ask_for_candidates(policy: Any, windows: Windows, heap: Heap, side: int, depth: int) -> None:
    """Ask for what a look at the entries that have just come up in the heap will touch, the less the further down.

    An entry went down so many places: above each of them one came up. On its own way up it stays at a place for a
    few victims. So there is time for one thing a place: its key, who plays for it, its neighbours in time.
    """


def _ask_for_keys(policy: Any, windows: Windows, heap: Heap, side: int, depth: int) -> None:
    if heap.size[side] < CACHED:
        return
    tag, path = heap.tag[side], heap.path
    if depth > 3:
        prefetch(windows.code, tag[path[2], LEAF])
    if depth > 2:
        ask_for_first(windows, bunch_of(tag[path[1], LEAF], side))
    if depth > 1:
        slot = wide(front(policy, windows, heap, side, tag[path[0], LEAF]))
        if slot >= 0:
            prefetch(windows.stamp, slot)
    if depth > 0:
        slot = wide(front(policy, windows, heap, side, tag[0, LEAF]))
        if slot >= 0:
            ask_for_neighbours(windows, slot)


def _ask_for_kin(policy: Any, windows: Windows, heap: Heap, side: int, depth: int) -> None:
    if heap.size[side] < CACHED:
        return
    tag, path, root = heap.tag[side], heap.path, heap.kin.root[side]
    if depth > 3:
        prefetch(windows.code, tag[path[2], LEAF])
        prefetch(root, tag[path[2], LEAF])
    if depth > 2:
        ask_for_player(policy, windows, heap, tag[path[1], LEAF], wide(root[tag[path[1], LEAF]]))
    if depth > 0:
        slot = wide(root[tag[0, LEAF]])
        if slot >= 0:
            ask_for_neighbours(windows, slot)


@part
def ask_for_player(policy: Any, windows: Windows, heap: Heap, key: int, slot: int) -> None:
    """Ask for what the score of a key's least important tuple is made of, and for what its leaving will touch."""
    if slot >= 0:
        prefetch(windows.stamp, slot)
        prefetch(windows.importance, slot)
        prefetch(heap.kin.link, slot)
        foresee(policy, windows.code[key, CODE])


@overload(ask_for_candidates)
def _ask_for_candidates(policy: Any, windows: Any, heap: Any, side: Any, depth: Any) -> Any:  # noqa: ARG001
    if by_importance(policy):
        return _ask_for_kin
    if ranks(policy) == "key":
        return _ask_for_keys
    return lambda policy, windows, heap, side, depth: None  # noqa: ARG005


# --- victims ------------------------------------------------------------------------------------------------------


def ask_for_waiting(policy: Any, windows: Windows, heap: Heap, side: int, slot: int) -> None:
    """Ask for the memory that a look at the tuples behind one that waits will touch, the less the further behind."""


def _ask_for_neighbours(policy: Any, windows: Windows, heap: Heap, side: int, slot: int) -> None:  # noqa: ARG001
    following = wide(windows.link[slot, NEWER])
    if following >= 0:
        ask_for_neighbours(windows, following)


def _ask_for_their_keys(policy: Any, windows: Windows, heap: Heap, side: int, slot: int) -> None:  # noqa: ARG001
    if windows.marks[LIVE + side] < CACHED:
        return
    link = windows.link
    following = wide(link[slot, NEWER])
    if following < 0:
        return
    ask_for_first(windows, wide(link[following, BUNCH]))
    for _ in range(2):
        following = wide(link[following, NEWER])
        if following < 0:
            return
    bunch = wide(link[following, BUNCH])
    prefetch(windows.runs, bunch)
    prefetch(heap.known[side], key_of(bunch))
    prefetch(link, wide(link[following, NEWER]))


def _ask_for_their_kin(policy: Any, windows: Windows, heap: Heap, side: int, slot: int) -> None:
    if windows.marks[LIVE + side] < CACHED:
        return
    link = windows.link
    following = wide(link[slot, NEWER])
    if following < 0:
        return
    key = key_of(wide(link[following, BUNCH]))
    ask_for_player(policy, windows, heap, key, wide(heap.kin.root[side, key]))
    for _ in range(2):
        following = wide(link[following, NEWER])
        if following < 0:
            return
    key = key_of(wide(link[following, BUNCH]))
    prefetch(windows.code, key)
    prefetch(heap.kin.root[side], key)
    prefetch(heap.known[side], key)
    prefetch(link, wide(link[following, NEWER]))


@overload(ask_for_waiting)
def _ask_for_waiting(policy: Any, windows: Any, heap: Any, side: Any, slot: Any) -> Any:  # noqa: ARG001
    if by_importance(policy):
        return _ask_for_their_kin
    return _ask_for_their_keys if ranks(policy) == "key" else _ask_for_neighbours


@part
def needs_entry(policy: Any, heap: Heap, side: int, leaf: int) -> bool:
    """Say whether who plays for a leaf must enter the heap: no entry says enough of it."""
    return bool(ranks_tuples(policy) or ranks_kin(policy) or heap.known[side, leaf] == 0)


@part
def first_waiting(policy: Any, windows: Windows, heap: Heap, side: int) -> int:
    """Return the oldest waiting tuple of the lowest score there can be, else the newest of all, or -1.

    Those before it enter the heap.
    """
    marks, link = windows.marks, windows.link
    while marks[WAITS + side] >= 0:
        slot = marks[WAITS + side]
        ask_for_waiting(policy, windows, heap, side, slot)
        leaf = leaf_of(policy, windows, slot)
        first_to_go = link[slot, NEWER] < 0 or truth(policy, windows, side, slot) == lowest(policy)
        plays = (first_to_go or needs_entry(policy, heap, side, leaf)) and (
            front(policy, windows, heap, side, leaf) == slot
        )
        if plays and first_to_go:
            return slot
        marks[WAITS + side] = link[slot, NEWER]
        if plays and needs_entry(policy, heap, side, leaf):
            place(policy, windows, heap, side, leaf, slot)
    return wide(NOBODY)


@part
def claim(policy: Any, windows: Windows, heap: Heap, side: int, waiting: int) -> tuple[int, float, float, int]:
    """Return what is said of the first to go on one side: its slot if that is the truth, its worth, tie and time.

    `waiting` is the first that waits there, or -1. The worth is in units of the side.
    """
    slot, now, even, since = waiting, np.inf, np.inf, wide(NEVER)
    clock = windows.marks[CLOCK + side]
    if waiting >= 0:
        now = faded(heap, side, clock, truth(policy, windows, side, waiting), windows.stamp[waiting, POS])
        even = tie(policy, windows, side, waiting)
        since = moment_of(windows, waiting)
    if heap.size[side] > 0:
        top = present(heap, side, clock, 0)
        top_even = heap.ties[side, 0] if heap.ties.shape[1] > 1 else 0.0
        sooner = waiting < 0 or top < now
        if top == now and waiting >= 0:
            sooner = top_even < even or (top_even == even and older(heap.tag[side, 0], windows.stamp[waiting]))
        if sooner:
            slot, now, even, since = wide(NOBODY), top, top_even, heap.tag[side, 0, BORN]
            if windows.moment.size > 0:
                front_slot = wide(front(policy, windows, heap, side, heap.tag[side, 0, LEAF]))
                true = front_slot >= 0 and windows.stamp[front_slot, ROW] == heap.tag[side, 0, NUMBER]
                since = moment_of(windows, front_slot) if true else wide(NO_TICK)
    return slot, now, even, since


@part
def in_common(worth: float, unit: float, level: float) -> float:
    """Return a worth in units of a side, or none, in those of both."""
    return worth * unit + level if worth < np.inf else worth


@part
def least(policy: Any, windows: Windows, heap: Heap, pool: int) -> int:
    """Return the tuple to go first on one side, or (pool = -1) on either; -1 if there is none.

    Of two sides: who is worth less, then what the policy says of ties, then who is older, then the left. An entry
    never says more than the truth: if the lowest of all is true, it is the lowest.
    """
    waiting, waiting_right = wide(NOBODY), wide(NOBODY)
    for side in range(2):
        slot = first_waiting(policy, windows, heap, side) if pool != 1 - side else wide(NOBODY)
        waiting, waiting_right = waiting_right, slot
    unit, unit_right = scale(policy, 0), scale(policy, 1)
    level, level_right = offset(policy, 0), offset(policy, 1)
    while True:
        best, slot, now, even, since = -1, wide(NOBODY), np.inf, np.inf, wide(NEVER)
        if pool != 1:
            slot, now, even, since = claim(policy, windows, heap, 0, waiting)
            now = in_common(now, unit, level)
            best = 0 if since < NEVER else -1
        if pool != 0:
            theirs, theirs_now, theirs_even, theirs_since = claim(policy, windows, heap, 1, waiting_right)
            theirs_now = in_common(theirs_now, unit_right, level_right)
            sooner = theirs_now < now
            if theirs_now == now:
                sooner = theirs_even < even or (theirs_even == even and theirs_since < since)
            if sooner:
                best, slot = 1, theirs
        if best >= 0 and slot < 0:
            slot = correct(policy, windows, heap, best)
        if best < 0 or slot >= 0:
            return slot


@kernel
def fill(policy: Any, windows: Windows, heap: Heap) -> None:
    """Let every tuple wait for its place in heaps without entries."""
    for side in range(2):
        start_over(windows, heap, side)
        if ranks_kin(policy):
            heap.kin.root[side] = NOBODY
            slot = windows.marks[OLDEST + side]
            while slot >= 0:
                join_kin(windows, heap.kin, slot)
                slot = wide(windows.link[slot, NEWER])


fill_uncached = uncached(fill)
