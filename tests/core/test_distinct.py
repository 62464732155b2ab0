"""Sketches of different values, against sets."""

from typing import Any

import numpy as np
import pytest

from penstock.core.distinct import REGISTERS, SLOTS, Sketch, counted, empty, note
from penstock.core.rings import Batch

WIDTHS = np.array([0, 1, 3])  # one stream with one key, one with two


def batch_of(stream: Any, pos: Any, code: Any, row: Any = None) -> Batch:
    stream, pos = np.asarray(stream, np.int64), np.asarray(pos, np.int64)
    row = np.arange(stream.size) if row is None else np.asarray(row, np.int64)
    return Batch(stream, row, pos, pos, pos, pos, np.ones_like(pos), np.asarray(code, np.int64), np.empty(0))


def taken(sketch: Sketch, batch: Batch) -> None:
    sketch.last[:] = batch.pos[-1]
    note(sketch, batch, WIDTHS)


@pytest.mark.parametrize("values", [1, 30, 900, 5_000, 80_000])
def test_counts_are_close(values: int) -> None:
    """The deviation is 3.3 %, less for fewer values than registers."""
    rng = np.random.default_rng(values)
    rows = 3 * values
    code = rng.integers(0, values, (rows, 2)) * 7919 - 10**9
    sketch = empty(np.array([rows, rows]), 3)
    taken(sketch, batch_of(np.ones(rows), np.arange(rows), code))
    for column in range(2):
        want = len(set(code[:, column].tolist()))
        assert counted(sketch, 1, 1 + column).values == pytest.approx(want, rel=0.13)
        assert counted(sketch, 1, 1 + column).rows == rows
    assert counted(sketch, 0, 0) == (1.0, 0)


def test_what_has_left_the_window_is_forgotten() -> None:
    """Of 200 ticks with a value of their own each a window of 80 holds 80, give or take a stretch and the error."""
    sketch = empty(np.array([80, 80]), 3)
    for begin in range(0, 200, 13):
        pos = np.arange(begin, min(begin + 13, 200))
        taken(sketch, batch_of(np.zeros(pos.size), pos, np.stack([pos, pos], axis=1)))
    assert 60 < counted(sketch, 0, 0).values < 100
    assert 70 <= counted(sketch, 0, 0).rows <= 90
    taken(sketch, batch_of([0], [5000], [[1, 1]]))
    assert counted(sketch, 0, 0) == (1.0, 1)


def test_rows_that_join_nothing_do_not_count_and_memory_is_fixed() -> None:
    sketch = empty(np.array([10, 10]), 3)
    size = sketch.registers.nbytes
    assert size == 3 * SLOTS * REGISTERS
    taken(sketch, batch_of(np.zeros(50), np.arange(50), np.arange(100).reshape(50, 2), np.full(50, -1)))
    assert counted(sketch, 0, 0) == (1.0, 0)
    assert sketch.registers.nbytes == size
