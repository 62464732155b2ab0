"""Complete an answer where work was skipped: compare what was not compared, and nothing else."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from penstock.core.sets import BAND, CONTAINED, CONTAINS, EQUAL, PRODUCT, Sets
from penstock.core.windows import Ints, Masks
from penstock.quality.archive import Shed
from penstock.streams.intake import Side
from penstock.streams.sets import Condition

PORTION = 1 << 20  # pairs that are compared at once

Here = Callable[[Ints, Ints], Masks]  # numbers of probes and of rows that they left out -> which of them count


class Skipped(NamedTuple):
    """The probes of one side that were skipped."""

    row: Ints
    first: Ints  # of the rows of the other side that it was not compared with
    end: Ints


def uncompared_pairs(
    sides: tuple[Side, Side],
    shed: tuple[Shed, Shed],
    skipped: tuple[Skipped, Skipped],
    *,
    span: tuple[int, int],
    by_rows: bool,
    condition: Condition | None,
) -> tuple[Ints, Ints]:
    """Return the row numbers of the pairs that a run missed, left and right, each once.

    The idea: a pair is missing because one of its rows did not enter and the other came later, or because the later
    one was not compared with the place where the other was. The ledger names both, as ranges of rows.

    Parameters:
        sides: every row of each side, in order of arrival.
        shed: rows that did not enter, and the first row of the other side that each could not meet.
        skipped: probes, with the rows that they left out.
        span: the window of each side, in ticks or rows.
        by_rows: whether windows are in rows; rows are then in order of time.
        condition: what rows must meet; None: equal keys.

    Cost: O(rows log rows), and O(1) for each comparison that was not made (for sets O(items) each).
    """
    found = []
    for side in range(2):
        others = sides[1 - side].ts.size
        dropped = Skipped(shed[side].row, shed[side].until, np.full(shed[side].row.size, others))
        for each in (dropped, skipped[side]):
            for _, *numbers in left_out(sides, side, each, span=span, by_rows=by_rows, condition=condition):
                found.append(np.stack(numbers))
    pairs = np.unique(np.concatenate([np.empty((2, 0), np.int64), *found], axis=1), axis=1)
    return pairs[0], pairs[1]


def left_out(
    sides: tuple[Side, Side],
    side: int,
    skipped: Skipped,
    *,
    span: tuple[int, int],
    by_rows: bool,
    condition: Condition | None,
    here: Here | None = None,
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield the pairs that probes of one side left out, so many at a time: probe, left row and right row.

    A pair that two probes left out is there twice. `here` says which are to be compared; None: all. Other parameters
    as for ``uncompared_pairs``.

    Cost: O(rows), O(log rows) for each probe, and O(1) for each row in its window that it left out.
    """
    if not by_rows:
        skipped = _in_window(sides, side, skipped, span)
    for each in _portions(skipped):
        chosen = slice(None) if here is None else here(*each)
        which, theirs = each[0][chosen], each[1][chosen]
        mine = skipped.row[which]
        both = (mine, theirs) if side == 0 else (theirs, mine)
        kept = _near(sides, both, span, by_rows=by_rows)
        which, both = which[kept], (both[0][kept], both[1][kept])
        kept = equal(sides, both) if condition is None else meeting(condition, sides, both)
        yield which[kept], both[0][kept], both[1][kept]


def _in_window(sides: tuple[Side, Side], side: int, skipped: Skipped, span: tuple[int, int]) -> Skipped:
    """Return probes without the rows that came too early or too late to be in their window of time.

    Rows are in order of arrival: all before a place are too old if the newest of them is, and all after it are too
    new if the oldest of them is.
    """
    ts, theirs = sides[side].ts[skipped.row], sides[1 - side].ts
    newest, oldest = np.maximum.accumulate(theirs), np.minimum.accumulate(theirs[::-1])[::-1]
    first = np.searchsorted(newest, ts - span[1 - side], side="right")
    end = np.searchsorted(oldest, ts + span[side])
    return Skipped(skipped.row, np.maximum(skipped.first, first), np.minimum(skipped.end, end))


def _portions(skipped: Skipped) -> Iterator[tuple[Ints, Ints]]:
    """Yield all probes with each row that they left out, so many at a time."""
    count = np.maximum(skipped.end - skipped.first, 0)
    cuts = np.searchsorted(np.cumsum(count), np.arange(PORTION, count.sum() + PORTION, PORTION), side="right") + 1
    begin = 0
    for end in np.unique(np.append(np.minimum(cuts, count.size), count.size)):
        some = count[begin:end]
        which = np.repeat(np.arange(begin, end), some)
        place = np.arange(which.size) - np.repeat(np.cumsum(some) - some, some)
        yield which, skipped.first[which] + place
        begin = end


def _near(sides: tuple[Side, Side], numbers: tuple[Ints, Ints], span: tuple[int, int], *, by_rows: bool) -> Masks:
    """Say which pairs are in the window: the older row is younger than its side's span when the newer one comes."""
    ts = [side.ts[rows] for side, rows in zip(sides, numbers, strict=True)]
    if not by_rows:
        return (ts[1] - ts[0] < span[0]) & (ts[0] - ts[1] < span[1])
    age = [
        np.searchsorted(side.ts, ts[1 - at], side="right") - np.searchsorted(side.ts, ts[at], side="right")
        for at, side in enumerate(sides)
    ]
    return (age[0] < span[0]) & (age[1] < span[1])


def equal(sides: tuple[Side, Side], numbers: tuple[Ints, Ints]) -> Masks:
    """Say which pairs have equal keys."""
    return _valid(sides, numbers) & (sides[0].code[numbers[0]] == sides[1].code[numbers[1]])


def meeting(condition: Condition, sides: tuple[Side, Side], numbers: tuple[Ints, Ints]) -> Masks:
    """Say which pairs meet a condition."""
    left, right = sides[0].sets, sides[1].sets
    if left is None or right is None:  # a side without rows
        return np.zeros(numbers[0].size, np.bool_)
    valid = _valid(sides, numbers)
    if condition.kind == BAND:
        values = (sets.weight[sets.begin[rows]] for sets, rows in zip((left, right), numbers, strict=True))
        return valid & (np.abs(np.subtract(*values)) <= condition.bound)
    common = shared(left, right, numbers, weighted=condition.kind == PRODUCT)
    sizes = left.size[numbers[0]], right.size[numbers[1]]
    if condition.kind == EQUAL:
        return valid & (common == sizes[0]) & (common == sizes[1])
    if condition.kind == CONTAINS:
        return valid & (common == sizes[1])
    if condition.kind == CONTAINED:
        return valid & (common == sizes[0])
    return valid & (common >= condition.bound)


def shared(left: Sets, right: Sets, numbers: tuple[Ints, Ints], *, weighted: bool) -> Ints:
    """Return how many items the sets of each pair share, or their inner product."""
    pair, mine, theirs = _common(left, right, numbers)
    weight = left.weight[mine] * right.weight[theirs] if weighted else None
    return np.bincount(pair, weight, minlength=numbers[0].size)


def first_shared(left: Sets, right: Sets, numbers: tuple[Ints, Ints]) -> Ints:
    """Return the first item that the sets of each pair share; they share one."""
    pair, mine, _ = _common(left, right, numbers)
    return left.item[mine[np.searchsorted(pair, np.arange(numbers[0].size))]]


def _common(left: Sets, right: Sets, numbers: tuple[Ints, Ints]) -> tuple[Ints, Ints, Ints]:
    """Return what the sets of pairs share: the number of the pair, rising, and where the item is, left and right.

    The items of the left sets are looked for among all items of the right, by row and item.
    """
    known, right_item = np.unique(right.item[: int(right.size.sum())], return_inverse=True)
    place = np.repeat(np.arange(right.size.size), right.size) * known.size + right_item
    size = left.size[numbers[0]]
    pair = np.repeat(np.arange(size.size), size)
    at = np.arange(pair.size) - np.repeat(np.cumsum(size) - size, size) + left.begin[numbers[0]][pair]
    item = np.searchsorted(known, left.item[at])
    there = item < known.size
    there[there] = known[item[there]] == left.item[at[there]]
    pair, at, item = pair[there], at[there], item[there]
    wanted = numbers[1][pair] * known.size + item
    found = np.minimum(np.searchsorted(place, wanted), max(place.size - 1, 0))
    there = place[found] == wanted if place.size else np.zeros(wanted.size, np.bool_)
    return pair[there], at[there], found[there]


def _valid(sides: tuple[Side, Side], numbers: tuple[Ints, Ints]) -> Masks:
    """Say which pairs have rows that can meet anybody."""
    fine = np.ones(numbers[0].size, np.bool_)
    for side, rows in zip(sides, numbers, strict=True):
        if side.valid is not None:
            fine &= side.valid[rows]
    return fine
