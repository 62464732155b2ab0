"""Pack rows by shard into Arrow blobs before the shuffle, and unpack them in an order that no shuffle changes.

Rows that cross into Python one by one cost more than joining them; a blob holds all rows of one side, shard and
task. Every task also sends each shard a blob without rows, so that a shard hears of every micro-batch, and, where
budgets move, of what came to all shards; where time on the wall counts, of when the task began and ended.
"""

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.windows import Ints
from penstock.operator import saving, settings
from penstock.operator.settings import ROW_BYTES
from penstock.spark.shards import shard_ids, shard_of
from penstock.spark.sharing import Sketch
from penstock.spark.task import Bound
from penstock.streams.intake import NO_INTS
from penstock.streams.sets import prefixes

FINGERPRINT = "__penstock_fingerprint"
PACKED = pa.schema([("shard", pa.int32()), ("side", pa.int32()), ("rows", pa.int64()), ("data", pa.binary())])
PACKED_DDL = "shard int, side int, rows long, data binary"
FULL = 1 << 17  # rows in one blob at most

Batches = Iterator[pa.RecordBatch]


def packer(
    bound: Bound, side: int, shards: int, *, sketching: bool, timing: bool = False
) -> Callable[[Batches], Batches]:
    """Return the function for ``mapInArrow`` that packs the rows of one side."""
    ids = shard_ids(shards)

    def blobs(rows: pa.Table, seen: list[tuple[Ints, Ints, int]]) -> pa.RecordBatch:
        table, ts = read(bound, side, rows)
        if sketching:
            codes, valid = bound.places(side, table)
            seen.append((codes if valid is None else codes[valid], ts, table.nbytes + ROW_BYTES * len(ts)))
        row, shard = destinations(bound, side, table, shards)
        order = np.argsort(shard, kind="stable")
        ends = np.searchsorted(shard[order], np.arange(shards + 1))
        table = table.take(pa.array(row[order]))
        cut = [(at, int(ends[at]), int(ends[at + 1])) for at in range(shards) if ends[at] < ends[at + 1]]
        return packed([(ids[at], side, end - low, saving.to_ipc(table[low:end])) for at, low, end in cut])

    def pack(batches: Batches) -> Batches:
        began = time.time()
        held: list[pa.RecordBatch] = []
        seen: list[tuple[Ints, Ints, int]] = []
        for batch in batches:
            held.append(batch)
            if sum(part.num_rows for part in held) >= FULL:
                yield blobs(pa.Table.from_batches(held), seen)
                held = []
        if any(part.num_rows for part in held):
            yield blobs(pa.Table.from_batches(held), seen)

        told = struct.pack("<dd", began, time.time()) if timing else _sketch(seen, shards)
        yield packed([(one, side, 0, told) for one in ids])

    return pack


class Packed(NamedTuple):
    """When the packing of a micro-batch began and ended, by the clock on the wall."""

    began: float
    ended: float


def packed_at(blobs: Iterable[tuple[int, int, bytes]], now: float) -> Packed:
    """Return when the first of the tasks that packed these blobs (side, rows, data) began, and the last one ended.

    If they do not tell, it is `now`, which is the latest that it can be.
    """
    told = [struct.unpack("<dd", data) for _, count, data in blobs if data and not count] or [(now, now)]
    return Packed(min(now, *(begin for begin, _ in told)), min(now, max(end for _, end in told)))


def destinations(bound: Bound, side: int, table: pa.Table, shards: int) -> tuple[Ints, Ints]:
    """Return where rows go, as (row, shard), each at least once.

    By keys a row goes to the shard of its key. By items it goes to those of its first items, and two rows that meet
    do so in the shard of the first item that they share, and nowhere else. In turns it goes to all.
    """
    rows = np.arange(table.num_rows)
    if bound.division == "keys" or shards == 1:
        codes = bound.places(side, table)[0] if bound.division == "keys" else rows
        return rows, shard_of(codes, shards)
    assert isinstance(bound, settings.Bound)
    assert bound.reader is not None
    if bound.division == "turns":
        return np.tile(rows, shards), np.repeat(np.arange(shards), rows.size)
    name = bound.keys[side][0]
    sets, _ = bound.reader.read(table[name], name, 0)
    row, item = prefixes(bound.reader.condition, side, sets)
    nowhere = np.flatnonzero(sets.size == 0)  # somebody has to count these
    both = np.unique(np.concatenate([row * shards + shard_of(item, shards), nowhere * shards]))
    return both // shards, both % shards


def _sketch(seen: list[tuple[Ints, Ints, int]], shards: int) -> bytes:
    """Return what is to be known of all rows of a task; nothing if there were none."""
    codes, ts, sizes = zip(*seen, strict=True) if seen else ((NO_INTS,), (NO_INTS,), ())
    keys = np.concatenate(codes)
    return Sketch.of(keys, np.concatenate(ts), sum(sizes), shards).to_bytes() if keys.size else b""


def read(bound: Bound, side: int, rows: pa.Table) -> tuple[pa.Table, Ints]:
    """Return rows as Spark sends them in the columns agreed on, with the time of each.

    Raises:
        TimeError: if a time is missing.
    """
    schema = bound.schemas[side].append(pa.field(FINGERPRINT, pa.int64()))
    table = rows.rename_columns(schema.names).cast(schema)
    ts = bound.clock.values(table[bound.time[side]], f"time={bound.time[side]!r}")
    return table, ts


def packed(rows: list[tuple[int, int, int, bytes]]) -> pa.RecordBatch:
    """Return blobs as a batch of the shuffle."""
    columns = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(column, kind.type) for column, kind in zip(columns, PACKED, strict=True)], PACKED
    )


def unpacked(bound: Bound, side: int, blobs: Iterable[bytes]) -> pa.Table:
    """Return the rows of one side in order of time, ties by content: whatever the order in which blobs came."""
    tables = [saving.from_ipc(blob) for blob in blobs]
    if not tables:
        return bound.schemas[side].empty_table()
    rows = pa.concat_tables(tables)
    ts = bound.clock.values(rows[bound.time[side]], "time")
    prints, rows = rows[FINGERPRINT].to_numpy(), rows.drop_columns([FINGERPRINT])
    if (ts[1:] <= ts[:-1]).any():
        order = np.argsort(ts, kind="stable")  # quick on blobs that are in order; few rows tie
        ties = np.append(np.diff(ts[order]) == 0, [False])
        ties[1:] |= ties[:-1]
        tied = order[ties]
        order[ties] = tied[np.lexsort((prints[tied], ts[tied]))]
        rows = rows.take(pa.array(order))
    return rows.combine_chunks()
