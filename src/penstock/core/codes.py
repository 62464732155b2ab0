"""Turn key bytes into 64-bit codes."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.jit import kernel, wide
from penstock.core.rng import GOLDEN, mixed
from penstock.core.windows import Ints

EIGHT = np.uint64(8)


@kernel
def hash_bytes(offsets: npt.NDArray[Any], data: npt.NDArray[Any], codes: Ints) -> None:
    """Hash the byte strings ``data[offsets[i]:offsets[i + 1]]``. O(bytes)."""
    for i in range(codes.size):
        word = np.uint64(offsets[i + 1] - offsets[i]) * GOLDEN
        chunk = np.uint64(0)
        filled = 0
        for at in range(offsets[i], offsets[i + 1]):
            chunk = (chunk << EIGHT) | np.uint64(data[at])
            filled += 1
            if filled == 8:
                word = mixed(word ^ chunk) + GOLDEN
                chunk = np.uint64(0)
                filled = 0
        codes[i] = wide(mixed(word ^ chunk))


@kernel
def combine_codes(codes: Ints, more: Ints) -> None:
    """Mix the codes of one more column into the codes of a key of several."""
    for i in range(codes.size):
        codes[i] = wide(mixed(np.uint64(codes[i]) * GOLDEN + np.uint64(more[i])))
