"""The windows of an n-way join: rings of rows in order of time, with hash chains where a window has an index."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.core.exact import bucket
from penstock.core.jit import borrowed, columns, kernel, part
from penstock.core.windows import Floats, Ints

NEXT, LOW, FRESH = range(3)  # places of a ring: of the next row to come, of the oldest kept, of the first new one
TS, POS, ROW, WEIGHT = range(4)
CODE, OLDER = range(2)
BY_ROOM = -1  # an index with two buckets for each place of its ring
LONG_AGO = -(1 << 62)


class Batch(NamedTuple):
    """Rows in order of time, then of streams; whole groups."""

    stream: Ints
    row: Ints  # -1: it counts in a window of rows, and joins nothing
    ts: Ints
    pos: Ints  # what its window counts from: the time, or the rows of its stream up to the end of its tick
    clock: Ints  # what the weight of its arrival fades by, under a budget
    group: Ints  # rows of one group are evaluated together
    weight: Ints  # what it takes of a budget
    code: Ints  # (row, column of its stream)
    importance: Floats  # empty: nobody asks for it

    def only(self, which: Any) -> "Batch":
        """Return some of the rows, in their order."""
        return Batch(*(column[which] if len(column) else column for column in self))


@columns(ends=3, rows=4, column=4, nodes=2)
class Windows(NamedTuple):
    """All windows, one after the other; column c is a key of one stream, with its codes and its index."""

    ends: Ints  # (stream, [NEXT, LOW, FRESH])
    first: Ints  # stream -> where its ring begins
    mask: Ints  # stream -> places of its ring, less one
    rows: Ints  # (place, [TS, POS, ROW, WEIGHT])
    column: (
        Ints  # (column, [stream, where its nodes begin, where its buckets begin, how many there are; 0: no index])
    )
    nodes: Ints  # (place, [CODE, OLDER]): a key's code, and the next older place in the same bucket
    heads: Ints  # the newest place of each bucket; -1: none
    value: Floats  # place -> importance; empty: nobody asks for it


@part
def put(windows: Windows, s: int, place: int, ts: int, pos: int, row: int, weight: int) -> None:
    """Write one row into its ring."""
    at = windows.first[s] + (place & windows.mask[s])
    windows.rows[at, TS] = ts
    windows.rows[at, POS] = pos
    windows.rows[at, ROW] = row
    windows.rows[at, WEIGHT] = weight


@part
def put_key(windows: Windows, c: int, place: int, code: int, row: int) -> None:
    """Write a key of that row, and enter it into its index unless it joins nothing."""
    at = windows.column[c, 1] + (place & windows.mask[windows.column[c, 0]])
    windows.nodes[at, CODE] = code
    if windows.column[c, 3] and row >= 0:
        head = windows.column[c, 2] + bucket(windows.column[c, 3], code)
        windows.nodes[at, OLDER] = windows.heads[head]
        windows.heads[head] = place


@part
def insert(windows: Windows, batch: Batch, i: int, keys: Ints) -> None:
    """Enter one row at the end of its ring, and into the indexes of its window."""
    s = batch.stream[i]
    place = windows.ends[s, NEXT]
    put(windows, s, place, batch.ts[i], batch.pos[i], batch.row[i], batch.weight[i])
    if windows.value.size:
        windows.value[windows.first[s] + (place & windows.mask[s])] = batch.importance[i]
    for c in range(keys[s], keys[s + 1]):
        put_key(windows, c, place, batch.code[i, c - keys[s]], batch.row[i])
    windows.ends[s, NEXT] = place + 1


@kernel
def chained(windows: Windows, keys: Ints) -> None:
    """Enter the keys of all rows in the rings into the indexes, which are empty. O(rows)."""
    windows, keys = borrowed(windows), borrowed(keys)
    for s in range(windows.mask.size):
        for place in range(windows.ends[s, LOW], windows.ends[s, NEXT]):
            row = windows.rows[windows.first[s] + (place & windows.mask[s]), ROW]
            for c in range(keys[s], keys[s + 1]):
                put_key(windows, c, place, windows.nodes[windows.column[c, 1] + (place & windows.mask[s]), CODE], row)


def empty(rooms: Sequence[int], keys: Ints, buckets: Sequence[int], *, important: bool = False) -> Windows:
    """Return windows with so many places each, powers of two; if asked, with the importance of rows.

    Parameters:
        keys: stream -> its first column; ends with their number.
        buckets: of the index of each column; 0: none; BY_ROOM: two for each place.
    """
    streams = len(rooms)
    owner = np.repeat(np.arange(streams), np.diff(keys))
    held = np.array(rooms, np.int64)[owner]
    counts = np.array([2 * room if b == BY_ROOM else b for b, room in zip(buckets, held, strict=True)], np.int64)
    column = np.stack([owner, np.cumsum(held) - held, np.cumsum(counts) - counts, counts], axis=1).astype(np.int64)
    places, codes = int(sum(rooms)), int(held.sum())
    return Windows(
        ends=np.zeros((streams, 3), np.int64),
        first=np.cumsum(rooms, dtype=np.int64) - np.array(rooms, np.int64),
        mask=np.array(rooms, np.int64) - 1,
        rows=np.empty((places, 4), np.int64),
        column=column,
        nodes=np.empty((codes, 2), np.int64),
        heads=np.full(max(int(counts.sum()), 1), -1, np.int64),
        value=np.empty(places if important else 0),
    )
