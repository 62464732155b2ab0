"""Tell which rows of a join on sets are worth letting in, by what the lists of their items have brought.

An item falls into a slot. A slot counts how often lists of its items were walked, and how many of their postings
were of rows that were met; both fade. So it knows what a walk brings. Over the items of a row that is summed up: its
promise. Promises that are about the same have the same level, four levels an octave. Rows above a level, the bar, are
let in: probed, and kept for others. On it, and now and then below it, a lot decides.
"""

from typing import Any, NamedTuple

import numpy as np

from penstock.core.jit import part, rank, wide
from penstock.core.rng import GOLDEN
from penstock.core.sets import BEGIN, SIZE, Sets, Shelf, item_part
from penstock.core.windows import Floats

BITS = 16  # of a slot's number
LEVELS = 128
STEP = 50  # bits of a promise below those that tell levels apart
LOWEST = (1023 - 26) << 2  # the level of 2 ** -26 and less
PRIOR = 1.0  # walks that a slot is taken to have had, that brought the mean
# columns of `lists`: how often they were walked, and postings of rows that were met
WALKED, MET = 0, 1
# columns of `levels`: rows that came, rows that were let in, and the work of their probes
CAME, ENTERED, COST = 0, 1, 2
# entries of `dials`: the level that rows must exceed, the chance of rows on it, the chance of rows below it, what a
# walk brings on the mean, the work a row that is promised, rows and work since that was promised, work promised and
# done lately
BAR, TIE, CHANCE, MEAN, PROMISE, ROWS, WORK, PROMISED, DID = range(9)
DIALS = 9


class Promises(NamedTuple):
    """What is known of the slots, and who is let in."""

    lists: Floats  # (slot, WALKED..MET), fading
    levels: Floats  # (level, CAME..COST), fading
    dials: Floats


def unknown(*, used: bool) -> Promises:
    """Return promises that are all alike, so that everybody is let in; with room for items if they are `used`."""
    dials = np.zeros(DIALS)
    dials[[BAR, TIE]] = -1.0, 1.0
    return Promises(np.zeros((1 << BITS if used else 1, 2)), np.zeros((LEVELS, 3)), dials)


@part
def slot_of(item: int) -> int:
    """Return the slot of an item."""
    return wide((np.uint64(item) * GOLDEN) >> np.uint64(64 - BITS))


@part
def level_of(promises: Promises, sets: Sets, at: int, place: Any) -> int:
    """Return the level of what a row promises, by the items whose lists are walked here; `place` as for ``credit``.

    O(items).
    """
    lists, mean, total = promises.lists, promises.dials[MEAN], 0.0
    for i in range(sets.begin[at], sets.begin[at] + sets.size[at]):
        if place[1] > 0 and item_part(sets.item[i], place[1]) != place[0]:
            continue
        slot = slot_of(sets.item[i])
        total += (lists[slot, MET] + PRIOR * mean) / (lists[slot, WALKED] + PRIOR)
    return min(max((rank(total) >> STEP) - LOWEST, 0), LEVELS - 1)


@part
def credit(promises: Promises, shelf: Shelf, other: int, where: int, sets: Sets, at: int, place: Any) -> None:
    """Credit the items that a row shares with one that it met; `place`: whose shard, and of how many (0: one)."""
    items, begin = shelf.item.shape[1] - 1, shelf.stamp[other, where, BEGIN]
    i, j = sets.begin[at], begin
    while i < sets.begin[at] + sets.size[at] and j < begin + shelf.stamp[other, where, SIZE]:
        mine, theirs = sets.item[i], shelf.item[other, j & items]
        if mine == theirs and (place[1] == 0 or item_part(mine, place[1]) == place[0]):
            promises.lists[slot_of(mine), MET] += 1.0
        i += mine <= theirs
        j += theirs <= mine
