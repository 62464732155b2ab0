"""Find rows by number, and copy their values, in the chunks in which they came."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, kernel, part, peek, wide
from penstock.core.windows import Ints

WIDTHS = (1, 2, 4, 8)
AT_ONCE = 2048  # places


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
                before = peek(addresses[chunk] + 8 * middle, firsts) < numbers[i]
                low = middle + 1 if before else low
                high = high if before else middle
        places[i] = begins[chunk] + low


@kernel
def gather(
    begins: Ints, addresses: Ints, places: Ints, which: Ints, widths: Ints, offsets: Ints, out: npt.NDArray[Any]
) -> None:
    """Write the values of some columns at these places to `out`, each column side by side. O(places) a column.

    Chunk c begins at place ``begins[c]``, which ends with the rows of all chunks. Its values of column k, each of
    ``widths[k]`` bytes (one of WIDTHS), are at ``addresses[k, c]``; the caller keeps them alive. The i-th of the
    columns ``which`` is written from ``offsets[i]`` on. A few thousand places at a time, so that they are read from
    the nearest cache for all columns but the first.
    """
    begins, addresses, places = borrowed(begins), borrowed(addresses), borrowed(places)
    which, widths, offsets, out = borrowed(which), borrowed(widths), borrowed(offsets), borrowed(out)
    for first in range(0, places.size, AT_ONCE):
        some = places[first : first + AT_ONCE]
        for i in range(which.size):
            width = widths[which[i]]
            begin = offsets[i] + first * width
            words = out[begin : begin + some.size * width]
            if width == 8:
                copy_words(begins, addresses[which[i]], some, words.view(np.uint64))
            elif width == 4:
                copy_words(begins, addresses[which[i]], some, words.view(np.uint32))
            elif width == 2:
                copy_words(begins, addresses[which[i]], some, words.view(np.uint16))
            else:
                copy_words(begins, addresses[which[i]], some, words)


@part
def copy_words(begins: Ints, addresses: Ints, places: Ints, out: npt.NDArray[Any]) -> None:
    """Copy words as wide as the items of `out`.

    Rows of a chunk or two, as pairs in a window smaller than a batch have them, are copied without a branch, so that
    the compiler takes several at once.
    """
    least = most = wide(places[0])
    for i in range(places.size):
        least, most = min(least, wide(places[i])), max(most, wide(places[i]))
    chunks = begins.size - 1
    density = chunks / (begins[chunks] - begins[0])
    older, newer = chunk_of(begins, density, least), chunk_of(begins, density, most)
    if newer - older <= 1:
        bound = begins[newer]
        old, new = addresses[older] - out.itemsize * begins[older], addresses[newer] - out.itemsize * bound
        for i in range(places.size):
            origin = new if places[i] >= bound else old
            out[i] = peek(origin + out.itemsize * places[i], out)
        return
    for i in range(places.size):
        chunk = chunk_of(begins, density, wide(places[i]))
        out[i] = peek(addresses[chunk] + out.itemsize * (places[i] - begins[chunk]), out)


@part
def chunk_of(begins: Ints, density: float, place: int) -> int:
    """Return the chunk that has this place: a guess that is right if chunks are of one size, or O(log chunks)."""
    guess = min(wide((place - begins[0]) * density), begins.size - 2)
    if begins[guess] <= place < begins[guess + 1]:
        return guess
    return wide(np.searchsorted(begins, place, side="right") - 1)
