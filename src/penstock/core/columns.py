"""Find rows by number, and copy their values, in the chunks in which they came."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, kernel, part, peek
from penstock.core.windows import Ints

WIDTHS = (1, 2, 4, 8)


@kernel
def find(firsts: Ints, begins: Ints, addresses: Ints, numbers: Ints, places: Ints) -> None:
    """Write where the rows with these numbers are, all chunks laid end to end. O(log rows) a number.

    Chunk c begins with row number ``firsts[c]`` at place ``begins[c]``, which ends with the rows of all chunks. The
    numbers of its rows, ascending 64-bit integers, are at ``addresses[c]``; 0: they are consecutive.
    """
    firsts, begins, addresses = borrowed(firsts), borrowed(begins), borrowed(addresses)
    numbers, places = borrowed(numbers), borrowed(places)
    for i in range(numbers.size):
        chunk = np.searchsorted(firsts, numbers[i], side="right") - 1
        low = numbers[i] - firsts[chunk]
        if addresses[chunk] != 0:
            low, high = 0, begins[chunk + 1] - begins[chunk] - 1
            while low < high:
                middle = (low + high) >> 1
                before = peek(addresses[chunk] + 8 * middle, numbers) < numbers[i]
                low = middle + 1 if before else low
                high = high if before else middle
        places[i] = begins[chunk] + low


@kernel
def gather(begins: Ints, addresses: Ints, places: Ints, width: int, out: npt.NDArray[Any]) -> None:
    """Write the values at these places, each of so many bytes (one of WIDTHS), to `out`. O(places).

    Chunk c begins at place ``begins[c]``, which ends with the rows of all chunks; its values are at ``addresses[c]``.
    The caller keeps the chunks alive.
    """
    begins, addresses = borrowed(begins), borrowed(addresses)
    places, out = borrowed(places), borrowed(out)
    if width == 8:
        copy_words(begins, addresses, places, out.view(np.uint64))
    elif width == 4:
        copy_words(begins, addresses, places, out.view(np.uint32))
    elif width == 2:
        copy_words(begins, addresses, places, out.view(np.uint16))
    else:
        copy_words(begins, addresses, places, out)


@part
def copy_words(begins: Ints, addresses: Ints, places: Ints, out: npt.NDArray[Any]) -> None:
    """Copy words as wide as the items of `out`."""
    begin, end = 1, 0  # of the chunk that the row before was found in
    origin = 0
    for i in range(places.size):
        place = places[i]
        if place < begin or place >= end:
            chunk = np.searchsorted(begins, place, side="right") - 1
            begin, end = begins[chunk], begins[chunk + 1]
            origin = addresses[chunk] - out.itemsize * begin
        out[i] = peek(origin + out.itemsize * place, out)
