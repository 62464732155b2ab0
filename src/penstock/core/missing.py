"""Find which rows were missed: lost rows wait in a table by the codes of their keys, and archived rows pass by."""

from typing import NamedTuple

import numpy as np

from penstock.core.jit import kernel
from penstock.core.rng import GOLDEN
from penstock.core.windows import Ints

ARRIVALS = 44  # bits of an arrival number, below those of its shard
NOBODY = -1
SPARE = 4  # places in the table for each lost row: few rows that pass by find one taken by another key


class Lost(NamedTuple):
    """Lost rows of one side, and where the chain of those with one hash begins and goes on."""

    code: Ints
    low: Ints  # the first and the last time of a partner
    high: Ints
    until: Ints  # the place of the first row of the other side that it could have missed
    heads: Ints
    follows: Ints


class Passing(NamedTuple):
    """Rows of the other side."""

    code: Ints
    ts: Ints
    shard: Ints
    arrival: Ints


def waiting(code: Ints, low: Ints, high: Ints, until: Ints) -> Lost:
    """Return lost rows in a table. O(rows)."""
    bits = max(int(code.size * SPARE).bit_length(), 4)
    lost = Lost(code, low, high, until, np.full(1 << bits, NOBODY, np.int32), np.empty(code.size, np.int32))
    _chain(lost.code, lost.heads, lost.follows)
    return lost


@kernel
def _chain(code: Ints, heads: Ints, follows: Ints) -> None:
    """Put rows into the table, so that chains are in their order."""
    shift = _shift(heads.size)
    for row in range(code.size - 1, -1, -1):
        at = (np.uint64(code[row]) * GOLDEN) >> shift
        follows[row] = heads[at]
        heads[at] = row


@kernel
def _shift(size: int) -> np.uint64:
    """Return by how many bits a hash is shifted to be a place in a table of this size, a power of two."""
    bits = 0
    while size > 1:
        size >>= 1
        bits += 1
    return np.uint64(64 - bits)


@kernel
def passed(lost: Lost, rows: Passing, start: int, mine: Ints, theirs: Ints) -> tuple[int, int]:
    """Write down who missed whom, from a row on; return how many pairs there are, and the row to go on from.

    It stops before a row whose pairs do not fit: `mine` and `theirs` have room for one of every lost row, at least.

    Cost: O(1) for each row and each lost row with its key.
    """
    shift = _shift(lost.heads.size)
    count = 0
    for row in range(start, rows.code.size):
        code = rows.code[row]
        at = lost.heads[(np.uint64(code) * GOLDEN) >> shift]
        before = count
        while at != NOBODY:
            if lost.code[at] == code and lost.low[at] <= rows.ts[row] <= lost.high[at]:
                place = (np.int64(rows.shard[row]) << ARRIVALS) + rows.arrival[row]
                if place >= lost.until[at]:
                    if count == mine.size:
                        return before, row
                    mine[count] = at
                    theirs[count] = row
                    count += 1
            at = lost.follows[at]
    return count, rows.code.size
