"""Turn key columns of any comparable Arrow type into 64-bit codes, the same on both sides."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.codes import combine_codes, hash_bytes
from penstock.core.windows import Ints
from penstock.errors import KeyTypeError

UNITS = ("s", "ms", "us", "ns")
WORDS = {  # types whose values are 64 bits and their own codes
    kind.id for kind in (pa.int64(), pa.uint64(), pa.date64(), pa.timestamp("us"), pa.duration("us"), pa.time64("us"))
}


def plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of a dictionary column, or the type itself."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def common_type(left: pa.DataType, right: pa.DataType, name: str) -> pa.DataType:
    """Return the type in which the values of both sides can be compared without loss.

    Raises:
        KeyTypeError: if there is none.
    """
    left, right = plain(left), plain(right)
    if pa.types.is_null(left) or pa.types.is_null(right):
        left = right = left if pa.types.is_null(right) else right
    found = _common(left, right)
    if found is None:
        if left == right:
            why = "this type cannot be a key; use integers, strings, binary, decimals, floats, dates or times"
            if pa.types.is_struct(left):
                why = f"list the fields instead: on=[...], for {', '.join(field.name for field in left)}"
            raise KeyTypeError(f"on={name!r}", left, why)
        raise KeyTypeError(f"on={name!r}", f"{left} on the left and {right} on the right", "cast one of them")
    return found


def _common(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:  # noqa: C901, PLR0911 - one rule a line
    both = (left, right)
    if all(pa.types.is_null(kind) for kind in both):
        return pa.null()
    if all(pa.types.is_boolean(kind) for kind in both):
        return pa.bool_()
    if all(pa.types.is_integer(kind) for kind in both):
        if all(pa.types.is_unsigned_integer(kind) for kind in both):
            return pa.uint64()
        return pa.decimal128(20) if pa.uint64() in both else pa.int64()
    if all(_is_text(kind) for kind in both):
        return pa.large_string()
    if all(_is_bytes(kind) for kind in both):
        return pa.large_binary()
    if all(pa.types.is_floating(kind) or _is_small_int(kind) for kind in both):
        return pa.float64()
    if all(pa.types.is_decimal(kind) or pa.types.is_integer(kind) for kind in both):
        return _common_decimal(both)
    if all(pa.types.is_date(kind) for kind in both):
        return pa.date64()
    if all(pa.types.is_timestamp(kind) for kind in both) and (left.tz is None) == (right.tz is None):
        return pa.timestamp(_finest(both), left.tz)
    if all(pa.types.is_duration(kind) for kind in both):
        return pa.duration(_finest(both))
    if all(pa.types.is_time(kind) for kind in both):
        return pa.time64("ns")
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _is_small_int(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) and kind.bit_width <= 32)


def _finest(kinds: Sequence[pa.DataType]) -> str:
    return max((kind.unit for kind in kinds), key=UNITS.index)


def _common_decimal(kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    shapes = [(kind.precision, kind.scale) if pa.types.is_decimal(kind) else (20, 0) for kind in kinds]
    scale = max(scale for _, scale in shapes)
    digits = max(precision - scale for precision, scale in shapes) + scale
    if digits <= 38:
        return pa.decimal128(digits, scale)
    return pa.decimal256(digits, scale) if digits <= 76 else None


class Coder(NamedTuple):
    """The key columns of a join: their common types, and whether codes are the values themselves.

    Codes of one fixed-width column are one-to-one. Others are hashes: pairs must be verified.
    """

    types: tuple[pa.DataType, ...]

    @property
    def exact(self) -> bool:
        """Whether equal codes mean equal keys."""
        return len(self.types) == 1 and _width(self.types[0]) == "word"

    def code(self, columns: Sequence[pa.ChunkedArray | pa.Array]) -> tuple[Ints, npt.NDArray[Any] | None]:
        """Return a code per row, and which rows have no null among their keys (None: all). O(bytes)."""
        codes: Ints | None = None
        valid: npt.NDArray[Any] | None = None
        for column, kind in zip(columns, self.types, strict=True):
            array = widened(column, kind)
            if array.null_count:
                present = array.is_valid().to_numpy(zero_copy_only=False)
                valid = present if valid is None else valid & present
            words = _words(array)
            if codes is None:
                codes = words
            else:
                codes = codes.copy()
                combine_codes(codes, words)
        assert codes is not None
        return codes, valid

    def equal(self, left: Sequence[pa.ChunkedArray], right: Sequence[pa.ChunkedArray]) -> npt.NDArray[Any]:
        """Say row by row whether two lists of key columns are equal; NaN equals NaN."""
        same = np.ones(len(left[0]), np.bool_)
        for mine, theirs, kind in zip(left, right, self.types, strict=True):
            if _width(kind) == "word":
                same &= _words(widened(mine, kind)) == _words(widened(theirs, kind))
            else:
                equal = pc.equal(widened(mine, kind), widened(theirs, kind))
                same &= equal.to_numpy(zero_copy_only=False)
        return same


def ranks(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> tuple[Ints, npt.NDArray[Any]]:
    """Return codes that are in the order of the values, and which rows have one: nulls and NaN have none. O(rows).

    `kind` is the common type of what is compared, one that ``has_order``.
    """
    array = widened(column, kind)
    valid = array.is_valid().to_numpy(zero_copy_only=False)
    words = _words(array)
    if pa.types.is_floating(kind):
        valid = valid & ~np.isnan(words.view(np.float64))
        words = np.where(words < 0, words ^ np.iinfo(np.int64).max, words)
    elif pa.types.is_unsigned_integer(kind):
        words = words ^ np.iinfo(np.int64).min
    return words, valid


def has_order(kind: pa.DataType) -> bool:
    """Say whether values of a common type can be compared by size: numbers and times of 64 bits."""
    return _width(kind) == "word" and not pa.types.is_null(kind) and not pa.types.is_boolean(kind)


def numbered(relations: Sequence[Sequence[pa.ChunkedArray]], types: Sequence[pa.DataType]) -> list[Ints]:
    """Give equal keys equal numbers, from 0 on, over all relations; a key with a null gets -1. O(rows log rows)."""
    sizes = [len(columns[0]) for columns in relations]
    number = np.zeros(sum(sizes), np.int64)
    null = np.zeros(sum(sizes), np.bool_)
    for columns, kind in zip(zip(*relations, strict=True), types, strict=True):
        array = widened(pa.chunked_array([widened(column, kind) for column in columns], kind), kind)
        null |= array.is_null().to_numpy(zero_copy_only=False)
        if _width(kind) == "word":
            words = _words(array)
        else:
            words = array.dictionary_encode().indices.fill_null(0).to_numpy(zero_copy_only=False)
        _, words = np.unique(words, return_inverse=True)
        _, number = np.unique(number * (words.max(initial=0) + 1) + words, return_inverse=True)
    number[null] = -1
    return np.split(number.astype(np.int64), np.cumsum(sizes)[:-1])


def widened(column: pa.ChunkedArray | pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as one array of the common type."""
    array = column
    if isinstance(array, pa.ChunkedArray):  # one chunk is taken as it is: combining would copy it
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # a column without chunks
        array = pa.array([], array.type)
    if array.type != kind:
        array = array.cast(kind)
    return array


def _width(kind: pa.DataType) -> str:
    if kind.id in WORDS:
        return "word"
    if pa.types.is_decimal(kind):
        return "words"
    return "bytes" if _is_text(kind) or _is_bytes(kind) else "word"


def _words(array: pa.Array) -> Ints:
    """Return 64 bits per value: the value itself where it fits, else a hash; anything for nulls."""
    if array.type.id not in WORDS:
        return _coded(array)
    return np.frombuffer(array.buffers()[1], np.int64)[array.offset : array.offset + len(array)]


def _coded(array: pa.Array) -> Ints:
    """Return 64 bits per value for types that have fewer or more."""
    kind = array.type
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if _width(kind) == "bytes":
        return _hashed_bytes(array)
    if pa.types.is_boolean(kind):
        return array.fill_null(False).to_numpy(zero_copy_only=False).astype(np.int64)
    data = array.buffers()[1]
    if pa.types.is_decimal(kind):
        width = kind.bit_width // 64
        words = np.frombuffer(data, np.int64)[width * array.offset : width * (array.offset + len(array))]
        table = words.reshape(-1, width)
        codes = table[:, 0].copy()
        for column in range(1, width):
            combine_codes(codes, np.ascontiguousarray(table[:, column]))
        return codes
    values = np.frombuffer(data, np.float64)[array.offset : array.offset + len(array)]
    values = np.where(np.isnan(values), np.nan, values + 0.0)  # one NaN, one zero
    return values.view(np.int64)


def _hashed_bytes(array: pa.Array) -> Ints:
    codes = np.empty(len(array), np.int64)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    hash_bytes(ends, raw, codes)
    return codes
