"""Find rows by number, and copy their values, in the chunks in which they came."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, kernel, part, peek, wide
from penstock.core.windows import Ints

WIDTHS = (1, 2, 4, 8)
AT_ONCE = 2048  # places
BYTES, WORD_BITS, LAST_BIT = 8, 6, 63  # of a word: its bytes, and the bits of a number that tell its bits apart
ONE, TWO, FOUR, TOP_BYTE = np.uint64(1), np.uint64(2), np.uint64(4), np.uint64(56)
PAIRS_OF_BITS, FOURS = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333)  # every other one
EIGHTS, EACH_BYTE = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0x0101010101010101)


@kernel
def find(firsts: Ints, begins: Ints, addresses: Ints, numbers: Ints, places: Ints) -> None:
    """Write where the rows with these numbers are, all chunks laid end to end. O(log chunks) a number, mostly O(1).

    Chunk c begins with row number ``firsts[c]`` at place ``begins[c]``, which ends with the rows of all chunks. The
    ranks of its rows, as ``ranks`` returns them, are at ``addresses[c]``; 0: they are consecutive. Pairs come in runs
    with one row in common: it is looked up once.
    """
    firsts, begins, addresses = borrowed(firsts), borrowed(begins), borrowed(addresses)
    numbers, places = borrowed(numbers), borrowed(places)
    chunks = firsts.size
    density = (chunks - 1) / max(firsts[chunks - 1] - firsts[0], 1)
    for i in range(numbers.size):
        number = wide(numbers[i])
        if i > 0 and number == wide(numbers[i - 1]):
            places[i] = places[i - 1]
            continue
        chunk = min(max(wide((number - firsts[0]) * density), 0), chunks - 1)
        if number < firsts[chunk] or (chunk + 1 < chunks and number >= firsts[chunk + 1]):
            chunk = wide(np.searchsorted(firsts, number, side="right") - 1)
        place = number - firsts[chunk]
        if addresses[chunk] != 0:
            word = addresses[chunk] + 2 * BYTES * (place >> WORD_BITS)
            held = np.uint64(peek(word, firsts))
            place = peek(word + BYTES, firsts) + ones(held & ((ONE << np.uint64(place & LAST_BIT)) - ONE))
        places[i] = begins[chunk] + place


def ranks(numbers: Ints) -> Ints:
    """Return for each 64 numbers from the first on which are among these, ascending, as bits, and how many before.

    So the rank of a number takes O(1), from one line of memory. A quarter of a byte for each number in between.
    """
    at = numbers - numbers[0]
    words = np.zeros((int(at[-1]) // 64 + 1, 2), np.int64)
    which, begins, count = np.unique(at >> WORD_BITS, return_index=True, return_counts=True)
    bits = ONE << (at & LAST_BIT).astype(np.uint64)
    words[which, 0] = np.bitwise_or.reduceat(bits, begins).view(np.int64)
    words[which, 1] = count
    words[:, 1] = np.cumsum(words[:, 1]) - words[:, 1]
    return words


@part
def ones(word: np.uint64) -> int:
    """Return how many bits of a word are set."""
    word = word - ((word >> ONE) & PAIRS_OF_BITS)
    word = (word & FOURS) + ((word >> TWO) & FOURS)
    word = (word + (word >> FOUR)) & EIGHTS
    return wide((word * EACH_BYTE) >> TOP_BYTE)


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
