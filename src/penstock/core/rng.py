"""Random numbers from a state that is an array, so that a run can be saved, resumed and repeated."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.jit import part, wide

State = npt.NDArray[Any]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)
S27, S30, S31, S11, S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11), np.uint64(32)
S33 = np.uint64(33)
UNIT = 1.0 / float(1 << 53)


def seeded(seed: int) -> State:
    """Return a fresh state."""
    return np.array([seed % (1 << 64)], dtype=np.uint64)


@part
def mixed(word: np.uint64) -> np.uint64:
    """Scatter the bits of one word (the finaliser of SplitMix64)."""
    word = (word ^ (word >> S30)) * MIX_1
    word = (word ^ (word >> S27)) * MIX_2
    return word ^ (word >> S31)


def placed(word: Any, parts: Any) -> Any:
    """Return which of so many parts a word belongs to, or each of an array of words; unsigned numbers all.

    Not by the bits that the tables of the core use.
    """
    return (word * GOLDEN >> S33) % parts


part_of = part(placed)  # the same in kernels


@part
def below(state: State, bound: int) -> int:
    """Draw a whole number in [0, bound), bound < 2**32."""
    state[0] += GOLDEN
    return wide(((mixed(state[0]) >> S32) * np.uint64(bound)) >> S32)


@part
def ahead(state: State, bound: int, steps: int) -> int:
    """Say what ``below`` will draw ``steps`` draws from now, without drawing it."""
    word = state[0] + GOLDEN * np.uint64(steps)
    return wide(((mixed(word) >> S32) * np.uint64(bound)) >> S32)


@part
def unit(seed: np.uint64, number: int) -> float:
    """Return the number in [0, 1) that belongs to ``number`` under this seed."""
    return float(mixed(seed + GOLDEN * np.uint64(number + 1)) >> S11) * UNIT
