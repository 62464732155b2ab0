"""Two bare window joins in plain Numba, without policies, ledger or counters: the bar the engine is measured by.

Both find every pair of rows with equal keys and ``|ts_left - ts_right| < span``, each once, as row numbers in an
array that the caller made large enough. They are what one writes by hand for exactly this join and nothing else:
in-order integer time, one row a tick and side, 64-bit keys, nothing late, nothing shed, no payload, the whole trace
at hand. Plain loops: no compiler intrinsics, no prefetching by hand.
"""

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Pairs = tuple[Array, Array]

SPREAD = np.uint64(0x9E3779B97F4A7C15)
kernel = numba.njit(nogil=True)


@kernel
def power(least: int) -> int:
    """Return the smallest power of two that is at least this."""
    size = 16
    while size < least:
        size *= 2
    return size


@kernel
def bucket(key: int, buckets: int) -> int:
    """Return where a key hashes to; `buckets` is a power of two."""
    word = np.uint64(key) * SPREAD
    return np.int64(word ^ (word >> np.uint64(32))) & (buckets - 1)


# --- tuple at a time over hash chains -----------------------------------------------------------------------------


@kernel
def _walk(  # noqa: PLR0913, PLR0917 - kernels take arrays, not objects
    ring: Array, newest: int, came: int, key: int, now: int, span: int, row: int, out: Any, n: int
) -> int:
    """Emit the rows of a chain that carry the key, newest first, until one is too old (or overwritten)."""
    mine, theirs = out
    while newest >= 0 and newest + ring.shape[0] >= came:
        slot = newest & (ring.shape[0] - 1)
        if now - ring[slot, 1] >= span:
            break
        if ring[slot, 0] == key:
            mine[n] = row
            theirs[n] = newest
            n += 1
        newest = ring[slot, 2]
    return n


@kernel
def _enter(ring: Array, heads: Array, at: int, side: int, key: int, now: int, row: int) -> None:
    """Put a row at the head of its chain; its place in the ring belonged to a row long expired."""
    slot = row & (ring.shape[0] - 1)
    ring[slot, 0] = key
    ring[slot, 1] = now
    ring[slot, 2] = heads[at, side]
    heads[at, side] = row


@kernel
def _chains(left_keys: Array, left_ts: Array, right_keys: Array, right_ts: Array, span: int, window: Any) -> int:
    """Merge both sides by time and return the number of pairs."""
    heads, left_ring, right_ring, pairs = window
    i = j = n = 0
    left, right = pairs[0], pairs[1]
    while i < left_ts.size or j < right_ts.size:
        if j >= right_ts.size or (i < left_ts.size and left_ts[i] <= right_ts[j]):
            key, now = left_keys[i], left_ts[i]
            at = bucket(key, heads.shape[0])
            n = _walk(right_ring, heads[at, 1], j, key, now, span, i, (left, right), n)
            _enter(left_ring, heads, at, 0, key, now, i)
            i += 1
        else:
            key, now = right_keys[j], right_ts[j]
            at = bucket(key, heads.shape[0])
            n = _walk(left_ring, heads[at, 0], i, key, now, span, j, (right, left), n)
            _enter(right_ring, heads, at, 1, key, now, j)
            j += 1
    return n


def chains(left_keys: Array, left_ts: Array, right_keys: Array, right_ts: Array, span: int, pairs: Array) -> Pairs:
    """Join tuple at a time over hash chains."""
    size = power(span + 1)
    heads = np.full((4 * size, 2), -1, np.int64)
    ring = np.empty((2, size, 3), np.int64)
    n = _chains(left_keys, left_ts, right_keys, right_ts, span, (heads, ring[0], ring[1], pairs))
    return pairs[0, :n], pairs[1, :n]


# --- micro-batches grouped by key ---------------------------------------------------------------------------------


@kernel
def _sort_by_group(keys: Array, low: int, high: int, table: Array, groups: int, member: Array) -> int:
    """Give numbers to the keys of rows [low, high) from `groups` on and write each row's number; return how many.

    `table` is (bucket, [key, group]).
    """
    mask = table.shape[0] - 1
    for row in range(low, high):
        at = bucket(keys[row], table.shape[0])
        while table[at, 1] >= 0 and table[at, 0] != keys[row]:
            at = (at + 1) & mask
        if table[at, 1] < 0:
            table[at, 0] = keys[row]
            table[at, 1] = groups
            groups += 1
        member[row - low] = table[at, 1]
    return groups


@kernel
def _lay_out(member: Array, low: int, count: int, groups: int, start: Array, rows: Array) -> None:
    """Sort by counting: rows in order of group, each group's rows in order of time."""
    start[: groups + 1] = 0
    for i in range(count):
        start[member[i] + 1] += 1
    for group in range(groups):
        start[group + 1] += start[group]
    for i in range(count):
        rows[start[member[i]]] = low + i
        start[member[i]] += 1
    for group in range(groups, 0, -1):
        start[group] = start[group - 1]
    start[0] = 0


@kernel
def _grouped(
    left_keys: Array, left_ts: Array, right_keys: Array, right_ts: Array, span: int, batch: int, pairs: Array
) -> int:
    """Join batch by batch; both sides have one row a tick."""
    most = batch + span + 1
    table = np.empty((4 * power(most), 2), np.int64)
    member = np.empty(most, np.int64)
    left_rows, right_rows = np.empty(most, np.int64), np.empty(most, np.int64)
    left_start, right_start = np.empty(2 * most + 1, np.int64), np.empty(2 * most + 1, np.int64)
    left, right = pairs[0], pairs[1]
    n = 0
    for new in range(0, left_ts.size, batch):
        low, high = max(0, new - span + 1), min(new + batch, left_ts.size)
        table[:, 1] = -1
        groups = _sort_by_group(left_keys, low, high, table, 0, member)
        _lay_out(member, low, high - low, groups, left_start, left_rows)
        in_left = groups
        groups = _sort_by_group(right_keys, low, high, table, groups, member)
        _lay_out(member, low, high - low, groups, right_start, right_rows)
        for group in range(in_left):
            begin, end = right_start[group], right_start[group + 1]
            stop = begin
            fresh = begin
            while fresh < end and right_rows[fresh] < new:
                fresh += 1
            for at in range(left_start[group], left_start[group + 1]):
                row = left_rows[at]
                now = left_ts[row]
                while begin < end and now - right_ts[right_rows[begin]] >= span:
                    begin += 1
                while stop < end and right_ts[right_rows[stop]] - now < span:
                    stop += 1
                first = begin if row >= new else max(begin, fresh)
                for partner in range(first, stop):
                    left[n] = row
                    right[n] = right_rows[partner]
                    n += 1
    return n


def grouped(
    left_keys: Array,
    left_ts: Array,
    right_keys: Array,
    right_ts: Array,
    span: int,
    pairs: Array,
    batch: int = 10_000,
) -> Pairs:
    """Join micro-batches grouped by key, each key's rows contiguous (one row a tick and side)."""
    n = _grouped(left_keys, left_ts, right_keys, right_ts, span, batch, pairs)
    return pairs[0, :n], pairs[1, :n]
