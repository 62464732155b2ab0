"""The windows of an n-way join: rings of rows in order of time.

A window without an index is one ring. With a number of buckets it is a ring for each, as in golab2003 §6.1: a bucket
is scanned from end to end, and old rows are let go of at the end of every bucket. With as many buckets as it has
places it is one ring, with chains of places through it; chains for one key common to all windows begin side by side.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from penstock.core.exact import bucket
from penstock.core.jit import borrowed, columns, kernel, part, wide
from penstock.core.windows import Floats, Ints

NEXT, LOW, FRESH = range(3)  # places of a ring: of the next row to come, of the oldest kept, of the first new one
TS, POS, ROW, WEIGHT = range(4)
CODE, OLDER = range(2)
OWNER, SHIFT, HEAD, MANY, STRIDE = range(5)  # of a column: stream, from rows to nodes, where chains begin, how many
BY_ROOM = -1  # an index with two chains for each place of its ring
LONG_AGO = -(1 << 62)
LINE = 8  # numbers in a line of the cache


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


@columns(ends=3, rows=4, column=5, nodes=2)
class Windows(NamedTuple):
    """All rings, one after the other; column c is a key of one stream, with its codes and its chains."""

    rings: Ints  # stream -> its first ring; ends with their number
    ends: Ints  # (ring, [NEXT, LOW, FRESH])
    first: Ints  # ring -> where it begins
    mask: Ints  # ring -> its places, less one
    rows: Ints  # (where, [TS, POS, ROW, WEIGHT])
    column: Ints  # (column, [OWNER, SHIFT, HEAD, MANY, STRIDE]); no chains: 0 of them
    nodes: Ints  # (where + SHIFT, [CODE, OLDER]): a key's code, and the next older place in the same chain
    heads: Ints  # the newest place of each chain; -1: none
    value: Floats  # where -> importance; empty: nobody asks for it


@part
def ring_of(windows: Windows, s: int, code: int) -> int:
    """Return the ring of a row, by the code of its first key."""
    ring = wide(windows.rings[s])
    rings = windows.rings[s + 1] - ring
    return ring if rings == 1 else ring + bucket(rings, code)


@part
def put(windows: Windows, at: int, ts: int, pos: int, row: int, weight: int) -> None:
    """Write one row into its ring."""
    windows.rows[at, TS] = ts
    windows.rows[at, POS] = pos
    windows.rows[at, ROW] = row
    windows.rows[at, WEIGHT] = weight


@part
def head_of(windows: Windows, c: int, code: int) -> int:
    """Return where the chain of a code begins, for a column that has chains."""
    return windows.column[c, HEAD] + bucket(windows.column[c, MANY], code) * windows.column[c, STRIDE]


@part
def put_key(windows: Windows, c: int, at: int, place: int, code: int, row: int) -> None:
    """Write a key of that row, and enter it into its chain unless it joins nothing."""
    node = at + windows.column[c, SHIFT]
    windows.nodes[node, CODE] = code
    if windows.column[c, MANY] and row >= 0:
        head = head_of(windows, c, code)
        windows.nodes[node, OLDER] = windows.heads[head]
        windows.heads[head] = place


@part
def insert(windows: Windows, batch: Batch, i: int, keys: Ints, ring: int) -> int:
    """Enter one row at the end of its ring, and into the chains of its window; returns where it is."""
    s = batch.stream[i]
    place = windows.ends[ring, NEXT]
    at = windows.first[ring] + (place & windows.mask[ring])
    put(windows, at, batch.ts[i], batch.pos[i], batch.row[i], batch.weight[i])
    if windows.value.size:
        windows.value[at] = batch.importance[i]
    for c in range(keys[s], keys[s + 1]):
        put_key(windows, c, at, place, batch.code[i, c - keys[s]], batch.row[i])
    windows.ends[ring, NEXT] = place + 1
    return at


@kernel
def coming(windows: Windows, batch: Batch, begin: int, end: int) -> Ints:
    """Return how many of some rows of a batch will enter each ring. O(rows)."""
    windows, batch = borrowed(windows), borrowed(batch)
    found = np.zeros(windows.first.size, np.int64)
    for i in range(begin, end):
        found[ring_of(windows, batch.stream[i], batch.code[i, 0])] += 1
    return found


@kernel
def chained(windows: Windows, keys: Ints) -> None:
    """Enter the keys of all rows in the rings into the chains, which are empty. O(rows)."""
    windows, keys = borrowed(windows), borrowed(keys)
    for s in range(keys.size - 1):
        for ring in range(windows.rings[s], windows.rings[s + 1]):
            for place in range(windows.ends[ring, LOW], windows.ends[ring, NEXT]):
                at = windows.first[ring] + (place & windows.mask[ring])
                for c in range(keys[s], keys[s + 1]):
                    code = windows.nodes[at + windows.column[c, SHIFT], CODE]
                    put_key(windows, c, at, place, code, windows.rows[at, ROW])


def empty(
    rooms: Sequence[int],
    rings: Sequence[int],
    keys: Ints,
    buckets: Sequence[int],
    *,
    common: bool = False,
    important: bool = False,
) -> Windows:
    """Return windows without rows; if asked, with the importance of rows.

    Parameters:
        rooms: the places of each ring, powers of two.
        rings: how many rings each window has.
        keys: stream -> its first column; ends with their number.
        buckets: how many chains each column has; 0: none; BY_ROOM: two for each place.
        common: whether each stream has one column, and all of these are compared with each other. Then chains begin
            side by side if each has them BY_ROOM, unless windows are so different that this takes twice the memory.
    """
    streams = len(rings)
    ring = np.concatenate([[0], np.cumsum(rings)]).astype(np.int64)
    first = np.cumsum(rooms, dtype=np.int64) - np.array(rooms, np.int64)
    held = np.add.reduceat(np.array(rooms, np.int64), ring[:-1])
    owner = np.repeat(np.arange(streams), np.diff(keys))
    nodes = held[owner]
    chains = np.array([2 * room if b == BY_ROOM else b for b, room in zip(buckets, nodes, strict=True)], np.int64)
    column = np.zeros((owner.size, 5), np.int64)
    column[:, OWNER], column[:, MANY] = owner, chains
    column[:, SHIFT] = np.cumsum(nodes) - nodes - first[ring[owner]]
    column[:, HEAD], column[:, STRIDE] = np.cumsum(chains) - chains, 1
    heads = int(chains.sum())
    most, stride = int(chains.max(initial=0)), 1 << (streams - 1).bit_length()
    if common and all(b == BY_ROOM for b in buckets) and most * stride <= 2 * heads:
        column[:, HEAD], column[:, MANY], column[:, STRIDE] = np.arange(streams), most, stride
        heads = most * stride
    places = int(sum(rooms))
    return Windows(
        rings=ring,
        ends=np.zeros((len(rooms), 3), np.int64),
        first=first,
        mask=np.array(rooms, np.int64) - 1,
        rows=np.empty((places, 4), np.int64),
        column=column,
        nodes=np.empty((int(nodes.sum()), 2), np.int64),
        heads=aligned(max(heads, 1), -1),
        value=np.empty(places if important else 0),
    )


def aligned(size: int, fill: int) -> Ints:
    """Return an array that begins with a line of the cache, so that chains side by side are in one."""
    room = np.full(size + LINE, fill, np.int64)
    begin = -(room.ctypes.data // room.itemsize) % LINE
    return room[begin : begin + size]
