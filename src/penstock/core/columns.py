"""Copy values of a column by row number, out of the chunks in which it came."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, kernel, part, peek
from penstock.core.windows import Ints

WIDTHS = (1, 2, 4, 8)


@kernel
def gather(starts: Ints, addresses: Ints, numbers: Ints, width: int, out: npt.NDArray[Any]) -> None:
    """Write the values of rows with these numbers, each of so many bytes (one of WIDTHS), to `out`. O(numbers).

    Chunk c begins with row number ``starts[c]``, its values at ``addresses[c]``; both ascend by row number, and
    ``starts`` ends with the number after the last row. The caller keeps the chunks alive, and all numbers are there.
    """
    starts, addresses = borrowed(starts), borrowed(addresses)
    numbers, out = borrowed(numbers), borrowed(out)
    if width == 8:
        copy_words(starts, addresses, numbers, out.view(np.uint64))
    elif width == 4:
        copy_words(starts, addresses, numbers, out.view(np.uint32))
    elif width == 2:
        copy_words(starts, addresses, numbers, out.view(np.uint16))
    else:
        copy_words(starts, addresses, numbers, out)


@part
def copy_words(starts: Ints, addresses: Ints, numbers: Ints, out: npt.NDArray[Any]) -> None:
    """Copy words as wide as the items of `out`."""
    begin, end = 1, 0  # of the chunk that the row before was found in
    origin = 0
    for i in range(numbers.size):
        number = numbers[i]
        if number < begin or number >= end:
            chunk = np.searchsorted(starts, number, side="right") - 1
            begin, end = starts[chunk], starts[chunk + 1]
            origin = addresses[chunk] - out.itemsize * begin
        out[i] = peek(origin + out.itemsize * number, out)
