"""Give every key a shard, and every shard an id that Spark's hash sends to a partition of its own."""

import numpy as np

from penstock.core.rng import placed
from penstock.core.windows import Ints

MANY = 1 << 20  # no search for ids goes on longer than this for each shard
SEED = 42  # of Spark's hash partitioning


def shard_of(codes: Ints, shards: int) -> Ints:
    """Return the shard of each code of a key or an item."""
    found: Ints = placed(codes.view(np.uint64), np.uint64(shards)).astype(np.int64)
    return found


def shard_ids(shards: int) -> list[int]:
    """Return an id for each shard, such that with as many partitions each partition gets one shard.

    Spark sends id i to partition hash(i) mod partitions; plain 0, 1, 2, ... collide (0 and 1 do, of 2 partitions).
    """
    ids: dict[int, int] = {}
    for candidate in range(MANY * shards):
        ids.setdefault(spark_hash(candidate) % shards, candidate)
        if len(ids) == shards:
            return [ids[place] for place in range(shards)]
    raise AssertionError("a hash that misses a partition")


def spark_hash(value: int) -> int:
    """Return what ``pyspark.sql.functions.hash`` gives for an INT column (Murmur3, 32 bits, signed)."""
    word = _rotated(value * 0xCC9E2D51 & 0xFFFFFFFF, 15) * 0x1B873593 & 0xFFFFFFFF
    mixed = (_rotated(SEED ^ word, 13) * 5 + 0xE6546B64) & 0xFFFFFFFF
    mixed ^= 4  # the length in bytes
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    mixed ^= mixed >> 16
    return mixed - (mixed >> 31 << 32)


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> (32 - by)) & 0xFFFFFFFF
