"""Move the budget between shards: to each what one pool for all of them would have given it.

Shards cannot see each other, but every packing task can send all of them the same few bytes: which keys were most
frequent among the rows it packed, and how many rows and keys the rest are in each shard. So every shard reckons all
shares by itself, all of them alike, from the micro-batch that it is about to join; nothing has to travel back.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np

from penstock.core.rng import GOLDEN, S32
from penstock.core.windows import Floats, Ints
from penstock.spark.shards import shard_of

FREQUENT = 512  # keys that a task names
REMEMBERED = 2048  # keys that every shard remembers
SURE = 2  # rows of a key that tell something of how often it comes; 2 kept more than 8 and 16 did
HALF_LIVES = 2  # in spans
EVEN = 0.05  # the part of the budget that is always shared out evenly: no shard is given up for a quiet moment
HEADER = 5
BUCKETS = 1 << 18  # of a task, for all shards together
FEWEST = 1 << 10  # buckets of a shard


class Sketch(NamedTuple):
    """What one task packed of one side in one micro-batch."""

    first: int  # time of the oldest row
    last: int
    size: int  # bytes of the rows
    codes: Ints  # of the most frequent keys
    counts: Ints  # their rows
    rest: Ints  # (shard, [rows, keys]) of all others

    @classmethod
    def of(cls, codes: Ints, ts: Ints, size: int, shards: int) -> Self:
        """Return the sketch of rows, at least one, with these key codes, times and bytes.

        Only the keys in the fullest of many buckets are counted one by one; how many others there are is told by
        how many buckets stay empty (linear counting). O(rows), and O(n log n) in the rows of frequent keys.
        """
        homes = shard_of(codes, shards)
        width = max(BUCKETS // shards, FEWEST)
        bucket = homes * width + _scattered(codes, width)
        fill = np.bincount(bucket, minlength=shards * width)
        fuller = np.cumsum(np.bincount(fill)[::-1])[::-1]  # how many buckets hold so many rows or more
        least = max(int(np.count_nonzero(fuller >= 2 * FREQUENT)) - 1, 1)
        keys, counts = np.unique(codes[fill[bucket] >= least], return_counts=True)
        order = np.argsort(-counts, kind="stable")[:FREQUENT]
        often, counts = keys[order], counts[order]
        own = shard_of(often, shards)
        rows = np.bincount(homes, minlength=shards) - np.bincount(own, counts, shards).astype(np.int64)
        taken = np.count_nonzero(fill.reshape(shards, width), axis=1)
        others = width * np.log(width / np.maximum(width - taken, 0.5)) - np.bincount(own, minlength=shards)
        rest = np.stack([rows, np.clip(np.rint(others), rows > 0, rows)], axis=1).astype(np.int64)
        return cls(int(ts.min()), int(ts.max()), size, often, counts, rest)

    def to_bytes(self) -> bytes:
        """Return the sketch as bytes."""
        header = [self.first, self.last, self.size, self.codes.size, self.rest.shape[0]]
        return np.concatenate([header, self.codes, self.counts, self.rest.ravel()]).astype(np.int64).tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the sketch in bytes."""
        words = np.frombuffer(data, np.int64)
        first, last, size, often, shards = (int(word) for word in words[:HEADER])
        codes, counts, rest = np.split(words[HEADER:], [often, 2 * often])
        return cls(first, last, size, codes, counts, rest.reshape(shards, 2))


class Pools(NamedTuple):
    """What is shared out."""

    limit: Sequence[int]  # of each pool, over all shards
    in_bytes: bool  # limits are in bytes, not rows
    shared: bool  # one pool for all sides, or one each
    span: Sequence[int]  # per side, in ticks
    by_key: bool  # whether victims are chosen by how often their keys come; else every tuple is worth the same


class Known(NamedTuple):
    """What all shards know of all of them: counts that lose half their weight in two spans, as those of PROB do."""

    ticks: float  # that the counts stand for
    size: float  # bytes of the rows that came
    codes: Ints  # of frequent keys, ascending
    counts: Floats  # (side, key) their rows
    rest: Floats  # (side, shard, [rows, keys]) of all others

    @classmethod
    def nothing(cls, shards: int, sides: int = 2) -> Self:
        """Return what is known before the first micro-batch."""
        return cls(0.0, 0.0, np.empty(0, np.int64), np.empty((sides, 0)), np.zeros((sides, shards, 2)))

    def after(self, sketches: Sequence[Sequence[Sketch]], span: int) -> Self:
        """Return what is known after the sketches of all sides of a micro-batch. O(keys log keys)."""
        sides, shards, _ = self.rest.shape
        new = [sketch for side in sketches for sketch in side]
        if not new:
            return self
        ticks = max(sketch.last for sketch in new) - min(sketch.first for sketch in new) + 1
        fade = 0.5 ** (ticks / (HALF_LIVES * span))
        codes = np.unique(np.concatenate([self.codes, *(sketch.codes for sketch in new)]))
        counts = np.zeros((sides, codes.size))
        counts[:, np.searchsorted(codes, self.codes)] = self.counts * fade
        rest = self.rest * fade
        for side, mine in enumerate(sketches):
            for sketch in mine:
                counts[side, np.searchsorted(codes, sketch.codes)] += sketch.counts
                rest[side] += sketch.rest
        most = counts.max(axis=0)
        often = np.sort(np.argsort(-most, kind="stable")[:REMEMBERED])
        rare = np.setdiff1d(np.arange(codes.size), often)
        homes = shard_of(codes[rare], shards)
        for side in range(sides):
            rest[side, :, 0] += np.bincount(homes, counts[side, rare], shards)
            rest[side, :, 1] += np.bincount(homes, counts[side, rare] > 0, shards)
        size = self.size * fade + sum(sketch.size for sketch in new)
        return type(self)(self.ticks * fade + ticks, size, codes[often], counts[:, often], rest)

    def to_arrays(self) -> dict[str, Floats]:
        """Return it as arrays by name."""
        return {name: np.asarray(value) for name, value in self._asdict().items()}

    @classmethod
    def from_arrays(cls, arrays: dict[str, Floats]) -> Self:
        """Return what ``to_arrays`` was given."""
        ticks, size = (float(arrays[name]) for name in ("ticks", "size"))
        return cls(ticks, size, *(arrays[name] for name in ("codes", "counts", "rest")))

    @property
    def row_size(self) -> float:
        """The mean bytes of a row."""
        return self.size / max(self.counts.sum() + self.rest[:, :, 0].sum(), 1e-300)


def shares(known: Known, pools: Pools) -> Floats:
    """Return which part of each pool each shard gets: of (pool, shard), a little of it even."""
    kept = _kept(known, pools)
    shards = kept.shape[1]
    totals = kept.sum(axis=1, keepdims=True)
    parts = np.where(totals > 0, kept / np.maximum(totals, 1e-300), 1 / shards)
    return (1 - EVEN) * parts + EVEN / shards


def _kept(known: Known, pools: Pools) -> Floats:
    """Return how many tuples of each shard are among those that each pool, were it one for all shards, would keep.

    A key holds as many tuples as arrive in a span. What a tuple is worth is its key's share of the arrivals of the
    other side, as for PROB, of several others the product of these; keys that came too seldom to tell are all worth
    their mean, whatever their shard.
    """
    sides, shards, _ = known.rest.shape
    homes = shard_of(known.codes, shards)
    seldom = known.counts.max(axis=0) < SURE
    keys = known.rest[:, :, 1].sum(axis=1).max() + seldom.sum()
    rows = known.rest[:, :, 0] + [np.bincount(homes[seldom], one[seldom], shards) for one in known.counts]
    mean = rows.sum(axis=1) / max(keys, 1)
    came, homes = known.counts[:, ~seldom], homes[~seldom]
    total = came.sum(axis=1) + rows.sum(axis=1)
    often = [
        np.append(np.maximum(came[side], mean[side]), mean[side]) / max(total[side], 1e-300) for side in range(sides)
    ]
    asked = []
    for side in range(sides):
        worth = np.prod([share for other, share in enumerate(often) if other != side], axis=0)
        amount = np.append(came[side], rows[side].sum()) * pools.span[side] / known.ticks
        asked.append((worth, amount))
    limit = [size / known.row_size if pools.in_bytes else size for size in pools.limit]
    if pools.shared:
        worth, amount = (np.concatenate(all_sides) for all_sides in zip(*asked, strict=True))
        held = np.split(_filled(worth, amount, limit[0], pools), sides)
    else:
        held = [_filled(*one, limit[side], pools) for side, one in enumerate(asked)]
    kept = [
        np.bincount(homes, mine[:-1], shards) + mine[-1] * rows[side] / max(rows[side].sum(), 1e-300)
        for side, mine in enumerate(held)
    ]
    return np.sum(kept, axis=0, keepdims=True) if pools.shared else np.stack(kept)


def _filled(worth: Floats, amount: Floats, limit: float, pools: Pools) -> Floats:
    """Return how many tuples of each key a pool keeps: those that are worth most, if that is how it chooses."""
    if not pools.by_key:
        return amount
    order = np.argsort(-worth, kind="stable")
    before = np.concatenate([[0], np.cumsum(amount[order])[:-1]])
    kept = np.empty_like(amount)
    kept[order] = np.clip(limit - before, 0, amount[order])
    return kept


def _scattered(codes: Ints, width: int) -> Ints:
    """Return a bucket below `width` for each code, by other bits than those that chose its shard."""
    word = codes.view(np.uint64) * GOLDEN
    word = (word ^ word >> S32) * GOLDEN
    return ((word >> S32) * np.uint64(width) >> S32).astype(np.int64)
