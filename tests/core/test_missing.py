"""Rows that pass by a table of lost rows find those that missed them, whatever the room for pairs."""

import numpy as np
import pytest

from penstock.core.missing import ARRIVALS, Passing, passed, waiting


@pytest.mark.parametrize("room", [60, 100, 10_000])
@pytest.mark.parametrize("keys", [1, 7, 10**6])
def test_who_missed_whom_is_what_brute_force_finds(keys: int, room: int) -> None:
    dice = np.random.default_rng(keys)
    lost, rows = 60, 300
    code, theirs = (dice.integers(-keys, keys, size) << 40 for size in (lost, rows))
    low = dice.integers(0, 100, lost)
    high = low + dice.integers(-5, 30, lost)
    shard = dice.integers(0, 3, lost)
    until = (shard << ARRIVALS) + dice.integers(0, 300, lost)
    there = Passing(theirs, dice.integers(0, 120, rows), dice.integers(0, 3, rows).astype(np.int32), np.arange(rows))
    want = {
        (mine, row)
        for mine in range(lost)
        for row in range(rows)
        if code[mine] == theirs[row]
        and low[mine] <= there.ts[row] <= high[mine]
        and (int(there.shard[row]) << ARRIVALS) + row >= until[mine]
    }
    got: list[tuple[int, int]] = []
    start = 0
    while start < rows:
        mine, row = np.empty(room, np.int64), np.empty(room, np.int64)
        count, start = passed(waiting(code, low, high, until), there, start, mine, row)
        got += zip(mine[:count].tolist(), row[:count].tolist(), strict=True)
    assert len(got) == len(set(got))
    assert want == set(got)
    assert keys > 7 or want
