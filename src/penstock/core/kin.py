"""Keep the tuples of each key in order of importance: pairing heaps over slots, one for each key and side.

The least important tuple of a key is its root, of equals the oldest. To enter costs O(1), to leave O(log tuples of
the key), amortised, from any place.
"""

from typing import Any, NamedTuple

import numpy as np

from penstock.core.jit import borrowed, columns, outlined, part, wide
from penstock.core.windows import BUNCH, NONE, POS, ROW, Windows, Words, importance_of, key_of

CHILD, NEXT, PREVIOUS = 0, 1, 2


@columns(link=3)
class Kin(NamedTuple):
    """The heaps; arrays of one row where nobody asks for them."""

    root: Words  # (side, key) -> its least important tuple, or -1
    link: (
        Words  # (slot, CHILD..PREVIOUS) -> its first child, its next sibling, and the sibling before it or its parent
    )


def empty(*, keys: int, slots: int) -> Kin:
    """Return heaps without tuples."""
    return Kin(np.full((2, keys), NONE, np.int32), np.empty((slots, 3), np.int32))


@part
def lesser(windows: Windows, slot: int, other: int) -> bool:
    """Say whether a tuple is less important than another, or as important and older."""
    mine, theirs = importance_of(windows, slot), importance_of(windows, other)
    if mine != theirs:
        return bool(mine < theirs)
    stamp = windows.stamp
    if stamp[slot, POS] != stamp[other, POS]:
        return bool(stamp[slot, POS] < stamp[other, POS])
    return bool(stamp[slot, ROW] < stamp[other, ROW])


@part
def meld(windows: Windows, link: Words, slot: int, other: int) -> Any:
    """Make one heap of two, given their roots or -1; returns the root."""
    if slot < 0 or other < 0:
        return max(slot, other)
    if lesser(windows, other, slot):
        slot, other = other, slot
    child = wide(link[slot, CHILD])
    link[other, NEXT] = child
    link[other, PREVIOUS] = slot
    if child >= 0:
        link[child, PREVIOUS] = other
    link[slot, CHILD] = other
    return slot


@part
def gathered(windows: Windows, link: Words, sibling: int) -> Any:
    """Make one heap of siblings, given the first or -1: pair them up, then meld the pairs; returns the root."""
    pairs = wide(NONE)
    while sibling >= 0:
        slot, other = sibling, wide(link[sibling, NEXT])
        sibling = wide(link[other, NEXT]) if other >= 0 else wide(NONE)
        paired = wide(meld(windows, link, slot, other))
        link[paired, NEXT] = pairs
        pairs = paired
    root = wide(NONE)
    while pairs >= 0:
        following = wide(link[pairs, NEXT])
        root = wide(meld(windows, link, root, pairs))
        pairs = following
    return root


@part
def join_kin(windows: Windows, kin: Kin, slot: int) -> None:
    """Take a tuple in."""
    bunch = wide(windows.link[slot, BUNCH])
    key, side = key_of(bunch), bunch & 1
    kin.link[slot, CHILD] = NONE
    kin.root[side, key] = meld(windows, kin.link, wide(kin.root[side, key]), wide(slot))


@outlined
def leave_kin(windows: Windows, kin: Kin, slot: int) -> None:
    """Let a tuple go."""
    windows, kin = borrowed(windows), borrowed(kin)
    link = kin.link
    bunch = wide(windows.link[slot, BUNCH])
    key, side = key_of(bunch), bunch & 1
    root = wide(kin.root[side, key])
    below = wide(gathered(windows, link, wide(link[slot, CHILD])))
    if root == slot:
        kin.root[side, key] = below
        return
    before, after = wide(link[slot, PREVIOUS]), wide(link[slot, NEXT])
    if link[before, CHILD] == slot:
        link[before, CHILD] = after
    else:
        link[before, NEXT] = after
    if after >= 0:
        link[after, PREVIOUS] = before
    kin.root[side, key] = meld(windows, link, root, below)
