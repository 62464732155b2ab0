"""Count the different values of each key in its window, in fixed memory: HyperLogLog over a handful of stretches.

A value is hashed; the first bits of the hash choose a register, and the register keeps the longest run of zeros that
the rest began with. A window is cut into stretches with registers of their own, which are taken again when the window
has passed them; those of the window are merged by maximum when it is asked for.

References: Flajolet, Fusy, Gandouet and Meunier 2007, "HyperLogLog"; linear counting while registers are free:
Whang, Vander-Zanden and Taylor 1990.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, kernel, part, wide, zeros
from penstock.core.rings import LONG_AGO, Batch
from penstock.core.rng import mixed
from penstock.core.windows import Ints

BITS = 10
REGISTERS = 1 << BITS
STRETCHES = 8  # of a window
SLOTS = STRETCHES + 1  # one is only partly in the window
S_BITS, S_REST = np.uint64(BITS), np.uint64(64 - BITS)
LONGEST = 64 - BITS + 1
BIAS = 0.7213 / (1 + 1.079 / REGISTERS)


class Sketch(NamedTuple):
    """The registers of all keys."""

    registers: npt.NDArray[Any]  # (column, slot, register)
    stretch: Ints  # (stream, slot) -> which stretch of its window it holds
    rows: Ints  # (stream, slot) -> how many rows that was
    width: Ints  # stream -> length of a stretch, in what its window counts in
    last: Ints  # stream -> how far its window has come


def empty(span: Ints, columns: int) -> Sketch:
    """Return sketches of windows of these lengths, without rows."""
    streams = span.size
    return Sketch(
        np.zeros((columns, SLOTS, REGISTERS), np.uint8),
        np.full((streams, SLOTS), LONG_AGO),
        np.zeros((streams, SLOTS), np.int64),
        np.maximum(1, -(-span // STRETCHES)),
        np.full(streams, LONG_AGO),
    )


@part
def run_of(word: np.uint64) -> int:
    """Return how many zeros the bits after those of the register begin with, plus one."""
    return min(zeros(word << S_BITS) + 1, wide(LONGEST))


@part
def slot_of(sketch: Sketch, keys: Ints, s: int, stretch: int) -> int:
    """Return the slot of a stretch of a window, emptied if it held another; -1: the window has passed it."""
    if stretch < sketch.last[s] // sketch.width[s] - STRETCHES:
        return wide(-1)
    slot = stretch % SLOTS
    if sketch.stretch[s, slot] != stretch:
        sketch.stretch[s, slot] = stretch
        sketch.rows[s, slot] = 0
        for c in range(keys[s], keys[s + 1]):
            sketch.registers[c, slot, :] = 0
    return slot


@kernel
def note(sketch: Sketch, batch: Batch, keys: Ints) -> None:
    """Take the keys of rows in order of time, those that are in their window when the last one has come.

    How far windows have come by then, in ``last``, is known before. Cost: O(1) per row.
    """
    sketch, batch, keys = borrowed(sketch), borrowed(batch), borrowed(keys)
    until = np.full(sketch.width.size, LONG_AGO)  # stream -> where the stretch of its last row ends
    slots = np.zeros(sketch.width.size, np.int64)
    for i in range(batch.row.size):
        s = batch.stream[i]
        if batch.row[i] < 0:
            continue
        if batch.pos[i] >= until[s]:
            stretch = batch.pos[i] // sketch.width[s]
            until[s] = (stretch + 1) * sketch.width[s]
            slots[s] = slot_of(sketch, keys, s, stretch)
        slot = slots[s]
        if slot < 0:
            continue
        sketch.rows[s, slot] += 1
        for c in range(keys[s], keys[s + 1]):
            word = mixed(np.uint64(batch.code[i, c - keys[s]]))
            at = wide(word >> S_REST)
            sketch.registers[c, slot, at] = max(wide(sketch.registers[c, slot, at]), run_of(word))


class Counted(NamedTuple):
    """About how many different values there are, at least 1, and among how many rows."""

    values: float
    rows: int


def counted(sketch: Sketch, s: int, c: int) -> Counted:
    """Return what column `c`, of stream `s`, has in its window."""
    oldest = int(sketch.last[s] // sketch.width[s]) - STRETCHES
    inside = sketch.stretch[s] > oldest
    rows = int(sketch.rows[s, inside].sum())
    if not rows:
        return Counted(1.0, 0)
    merged = sketch.registers[c, inside].max(axis=0)
    free = int((merged == 0).sum())
    raw = BIAS * REGISTERS**2 / float(np.ldexp(1.0, -merged.astype(np.int64)).sum())
    if raw <= 2.5 * REGISTERS and free:
        raw = REGISTERS * math.log(REGISTERS / free)
    return Counted(min(max(1.0, raw), rows), rows)
