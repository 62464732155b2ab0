"""Let rows of some keys into a join and turn the others away, the same keys on both sides.

Keys are told apart by a slot that their code falls into. A slot counts its rows on each side, fading. What a row of
it would find if all rows of the slot were let in is its gain; slots of about the same gain have the same level, four
levels an octave. A row passes above a level, the bar; on it, if its key is among those that a lot chose. So to move
the bar changes who passes without a look at the slots. Slots where nobody has partners are of level 0. Rows of a key
may come all at once: when those let in promise more work than there is time for until the batch ends, nobody passes.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, kernel, part, rank, wide
from penstock.core.rng import GOLDEN, State, mixed, unit
from penstock.core.step import ARRIVED, BUDGET, SHED, Batch
from penstock.core.windows import Floats, Ints

FIRST_BITS, LAST_BITS = 14, 21  # of a slot's number
LEVELS = 128
STEP = 50  # bits of a gain below those that tell levels apart
LOWEST = (1023 - 8) << 2  # the level of 2 ** -8 and less, less one
WORD = 64
ROW = 100.0  # the work of a row that is let in, in pairs
# dials: the level that rows must exceed, the share of the keys (or rows) on it that pass, when the period began, how
# many ticks and rows it lasts, work a row that there is time for and that the bar promises, work promised and done
# lately, whether levels have been told apart, by side the rows seen, fading; rows until the batch is over, and the
# work that may be promised to those at hand
BAR, TIE, BEGAN, TICKS, ROWS, WORK, PROMISE, PROMISED, DID, LEARNED, SEEN = range(11)
LEFT, MOST, DIALS = 12, 13, 14
# marks: draws, rows let in, slots in use, and by side the rows that came in this period
DRAWS, ENTERED, USED, CAME = 0, 1, 2, 3
MARKS = 5


class Gate(NamedTuple):
    """What is known of the slots, and who passes."""

    seen: npt.NDArray[Any]  # (slot, side) -> rows that came, fading
    level: npt.NDArray[Any]  # by slot
    mass: Floats  # by level: rows that came, fading, by the level that their slot had then
    dials: Floats
    marks: Ints
    by_lot: Ints  # [1]: rows pass by lot, whatever their key
    seed: State


def empty(seed: State, *, by_lot: bool) -> Gate:
    """Return a gate through which everybody passes."""
    dials = np.zeros(DIALS)
    dials[[BAR, TIE, BEGAN, TICKS, ROWS, WORK]] = -1.0, 1.0, -np.inf, np.inf, np.inf, np.inf
    dials[[LEFT, MOST]] = np.inf
    slots = 1 << FIRST_BITS
    return Gate(
        np.zeros((slots, 2), np.float32),
        np.zeros(slots, np.int8),
        np.zeros(LEVELS),
        dials,
        np.zeros(MARKS, np.int64),
        np.array([by_lot], np.int64),
        seed,
    )


def gain_of() -> Floats:
    """Return the gain in the middle of each level; none for the first."""
    bounds = ((np.arange(LEVELS + 1) + LOWEST) << STEP).view(np.float64)
    gains = (bounds[:-1] + bounds[1:]) / 2
    gains[0] = 0.0
    return gains


GAINS = gain_of()


@part
def passes(gate: Gate, level: int, code: int) -> bool:
    """Say whether a row of this level and code is let in."""
    dials = gate.dials
    if gate.by_lot[0]:
        gate.marks[DRAWS] += 1
        return unit(gate.seed[0], gate.marks[DRAWS]) < dials[TIE]
    if level == dials[BAR]:
        return unit(gate.seed[0], wide(mixed(np.uint64(code)) >> np.uint64(1))) < dials[TIE]
    return level > dials[BAR]


@kernel
def sift(gate: Gate, batch: Batch, code: Ints, kept: Ints, shed: Ints, counts: Ints) -> int:
    """Write the places of rows that pass, and entries for those that do not, if there is room for any; O(rows).

    Returns how many pass.
    """
    gate, batch, code = borrowed(gate), borrowed(batch), borrowed(code)
    kept, shed, counts = borrowed(kept), borrowed(shed), borrowed(counts)
    promised, most = 0.0, gate.dials[MOST]
    shift = np.uint64(WORD) - np.uint64(bits_of(gate.level.size))
    passed = came_right = wide(0)
    for at in range(code.size):
        side = wide(batch.side[at])
        came_right += side
        slot = wide((np.uint64(code[at]) * GOLDEN) >> shift)
        level = wide(gate.level[slot])
        gate.seen[slot, side] += np.float32(1.0)
        gate.mass[level] += 1.0
        if promised < most and passes(gate, level, code[at]):
            promised += ROW + GAINS[level]
            kept[passed] = at
            passed += 1
            continue
        if shed.shape[0]:
            entry = shed[at - passed]
            entry[0], entry[1], entry[2], entry[3], entry[4] = side, batch.row[at], BUDGET, batch.tick[at], 0
        counts[ARRIVED + side] += 1
        counts[SHED + 2 * BUDGET + side] += 1
    gate.marks[CAME] += code.size - came_right
    gate.marks[CAME + 1] += came_right
    gate.marks[ENTERED] += passed
    return passed


@part
def bits_of(slots: int) -> int:
    """Return the bits of a number below a power of two."""
    bits = wide(0)
    while (1 << bits) < slots:
        bits += 1
    return bits


@kernel
def tell_apart(gate: Gate, scale: float, kept: float, least: float, mass: Floats) -> None:
    """Give each slot its level, let what was seen fade, and count the slots in use. O(slots).

    `scale` turns what a slot has seen into pairs a row; rows seen are kept by a factor, and forgotten below `least`.
    Slots that pass now are taken for one level more than they are: others would begin with empty windows. The rows
    seen are added up by level in `mass`.
    """
    gate, mass = borrowed(gate), borrowed(mass)
    used, bar, keeps = 0, gate.dials[BAR], np.float32(kept)
    for slot in range(gate.level.size):
        left, right = gate.seen[slot, 0], gate.seen[slot, 1]
        total = left + right
        if total == 0.0:
            gate.level[slot] = 0
            continue
        used += 1
        level = wide(0)
        if left * right > 0.0:
            level = (rank(float(left) * right / total * scale) >> STEP) - LOWEST
            level = min(max(level + (gate.level[slot] > bar), 1), LEVELS - 1)
        gate.level[slot] = level
        mass[level] += total
        for side in range(2):
            fades = gate.seen[slot, side] * keeps
            gate.seen[slot, side] = fades if fades >= least else np.float32(0.0)
    gate.marks[USED] = used
