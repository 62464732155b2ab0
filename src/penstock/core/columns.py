"""Copy values of a column by row number, out of the chunks in which it came."""

import numpy as np

from penstock.core.jit import borrowed, kernel, peek
from penstock.core.windows import Ints


@kernel
def gather(starts: Ints, addresses: Ints, numbers: Ints, out: Ints) -> None:
    """Write the values of rows with these numbers to `out`, whose items are as wide as the column's. O(numbers).

    Chunk c begins with row number ``starts[c]``, its values at ``addresses[c]``; both ascend by row number, and
    ``starts`` ends with the number after the last row. The caller keeps the chunks alive, and all numbers are there.
    """
    starts, addresses = borrowed(starts), borrowed(addresses)
    numbers, out = borrowed(numbers), borrowed(out)
    begin, end = 1, 0  # of the chunk that the row before was found in
    origin = 0
    for i in range(numbers.size):
        number = numbers[i]
        if number < begin or number >= end:
            chunk = np.searchsorted(starts, number, side="right") - 1
            begin, end = starts[chunk], starts[chunk + 1]
            origin = addresses[chunk] - out.itemsize * begin
        out[i] = peek(origin + out.itemsize * number, out)
