"""Keep the rows of one side beside the core, in Arrow chunks that shrink as their rows leave."""

import ctypes
import os
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.columns import WIDTHS, find, gather, ranks
from penstock.core.windows import Ints

MERGED = 1 << 16  # chunks are merged up to so many rows
MANY = 256  # once there are so many chunks
SPARE = 1 << 21  # bytes of dead rows not worth a look
UNKNOWN = 64  # for that, the bytes of a value whose width is not fixed
POOL = pa.system_memory_pool()  # for copies that stay: what leaves it goes back to the system in `give_back`
C_LIBRARY: Any = ctypes.CDLL(None) if os.name == "posix" else None
ALIGNED = 64  # bytes between which columns begin
LIVE_SHARE = 0.9  # a chunk with a smaller share of live rows is copied


class Chunk(NamedTuple):
    """Consecutive rows, or what is left of them."""

    rows: pa.Table
    size: int  # rows: to ask the table costs more
    first: int  # number of the first row
    numbers: Ints | None  # the numbers of all rows, ascending; None: consecutive
    addresses: list[int]  # of the values of each column, if they can be copied as words; 0: they cannot
    ranks: Ints | None  # where each number is among them, if they are not consecutive

    @classmethod
    def of(cls, rows: pa.Table, first: int, numbers: Ints | None, widths: list[int]) -> "Chunk":
        """Return a chunk of these rows; `widths` are those of the columns, 0: not fixed."""
        columns = zip(rows.columns, widths, strict=True)
        addresses = [_address(column, width) for column, width in columns]
        return cls(rows, rows.num_rows, first, numbers, addresses, None if numbers is None else ranks(numbers))

    def __reduce__(self) -> tuple[Callable[..., "Chunk"], tuple[Any, ...]]:
        """Leave the addresses out of a copy: its values are elsewhere."""
        return Chunk.of, (self.rows, self.first, self.numbers, [_width(kind) for kind in self.rows.schema.types])

    @property
    def end(self) -> int:
        """One more than the number of the last row."""
        return self.first + self.size if self.numbers is None else int(self.numbers[-1]) + 1

    def all_numbers(self) -> Ints:
        """Return the numbers of all rows."""
        return np.arange(self.first, self.end) if self.numbers is None else self.numbers

    def places(self, numbers: Ints) -> Ints:
        """Return where rows with these numbers are."""
        return numbers - self.first if self.numbers is None else np.searchsorted(self.numbers, numbers)

    def only(self, numbers: Ints, widths: list[int]) -> "Chunk":
        """Return a copy of the rows with these numbers, ascending."""
        first, places = int(numbers[0]), self.places(numbers)
        if int(places[-1] - places[0]) + 1 == places.size:  # side by side: copied at once
            part = self.rows.slice(int(places[0]), places.size)
            columns = [pa.concat_arrays(column.chunks, memory_pool=POOL) for column in part.columns]
            rows = pa.Table.from_arrays(columns, schema=part.schema)
        else:
            rows = pc.take(self.rows, pa.array(places), memory_pool=POOL).combine_chunks(memory_pool=POOL)
        consecutive = int(numbers[-1]) - first + 1 == numbers.size
        return Chunk.of(rows, first, None if consecutive else numbers.copy(), widths)


class Payload:
    """The rows of one side by their numbers, 0, 1, 2, ... in order of arrival.

    ``trim`` is told which rows are still live; it drops or copies chunks so that what is stored stays within
    1 / 0.9 of what is live, plus a constant, one chunk at a time.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.next = 0
        self._places = {name: at for at, name in enumerate(schema.names)}
        self._types = schema.types
        self._widths = [_width(kind) for kind in schema.types]
        self._width_array = np.array(self._widths, np.int64)
        self._row = sum(self._widths) if all(self._widths) else 0  # bytes of a row; 0: not fixed
        self._spare = SPARE // (1 + sum(width or UNKNOWN for width in self._widths))
        self._begins = np.zeros(MANY + 2, np.int64)  # chunk -> place of its first row, all laid end to end
        self._addresses = np.zeros((len(self._widths), MANY + 1), np.int64)  # (column, chunk)
        self._chunks: list[Chunk] = []
        self._wordless = [0] * len(self._widths)  # column -> chunks whose values cannot be copied as words
        self.stored = 0

    def __reduce__(self) -> tuple[Callable[..., "Payload"], tuple[Any, ...]]:
        """Leave the addresses out of a copy: its values are elsewhere."""
        return Payload.of, (self.schema, self._chunks, self.next)

    @classmethod
    def of(cls, schema: pa.Schema, chunks: list[Chunk], following: int) -> "Payload":
        """Return a payload that holds these chunks; the next row to come has the number `following`."""
        payload = cls(schema)
        for chunk in chunks:
            payload._add(chunk)
        payload.next = following
        return payload

    def _emptied(self) -> list[Chunk]:
        """Hold no chunks any more; returns those held, the newest first."""
        held, self._chunks = self._chunks[::-1], []
        self._wordless = [0] * len(self._widths)
        self.stored = 0
        return held

    def _add(self, chunk: Chunk) -> None:
        """Hold one more chunk. Places are numbers as long as no row between them is missing."""
        at = len(self._chunks)
        if at == 0:
            self._begins[0] = chunk.first
        if at == self._addresses.shape[1]:
            self._begins = np.append(self._begins, np.zeros(at, np.int64))
            self._addresses = np.append(self._addresses, np.zeros_like(self._addresses), axis=1)
        self._begins[at + 1] = self._begins[at] + chunk.size
        for column, address in enumerate(chunk.addresses):
            self._addresses[column, at] = address
            self._wordless[column] += not address
        self._chunks.append(chunk)
        self.stored += chunk.size

    def append(self, rows: pa.Table) -> None:
        """Take the next rows."""
        if rows.num_rows:
            self._add(Chunk.of(rows, self.next, None, self._widths))
            self.next += rows.num_rows

    @property
    def nbytes(self) -> int:
        """The bytes of the stored rows."""
        return sum(chunk.rows.nbytes for chunk in self._chunks)

    def take(self, numbers: Ints, columns: list[str]) -> pa.Table:
        """Return the rows with these numbers, in this order, as a table of these columns."""
        return pa.Table.from_arrays(self.columns(numbers, columns), names=columns)

    def columns(self, numbers: Ints, columns: list[str]) -> list[pa.Array | pa.ChunkedArray]:
        """Return these columns of the rows with these numbers, in this order; all of them must be stored.

        Cost: O(numbers log chunks).
        """
        if not self._chunks:
            return self.schema.empty_table().select(columns).columns
        begins = self._begins[: len(self._chunks) + 1]
        places = self._find(np.ascontiguousarray(numbers), begins)
        which = [self._places[name] for name in columns]
        words = [at for at in which if not self._wordless[at]]
        gathered = self._gathered(places, begins, words) if words else []
        if len(words) == len(which):
            return gathered
        rest = [name for name, at in zip(columns, which, strict=True) if self._wordless[at]]
        rows = pa.concat_tables([chunk.rows.select(rest) for chunk in self._chunks])
        halves = iter(gathered), iter(rows.take(pa.array(places - begins[0])).columns)
        return [next(halves[self._wordless[at] > 0]) for at in which]

    def _find(self, numbers: Ints, begins: Ints) -> Ints:
        """Return where the rows with these numbers are, all chunks laid end to end."""
        chunks = self._chunks
        if chunks[-1].end == begins[-1]:
            return numbers
        places = np.empty(numbers.size, np.int64)
        addresses = [0 if chunk.ranks is None else chunk.ranks.ctypes.data for chunk in chunks]
        firsts = np.array([chunk.first for chunk in chunks])
        find(firsts, begins, np.array(addresses), numbers, places)
        return places

    def _gathered(self, places: Ints, begins: Ints, which: list[int]) -> list[pa.Array]:
        """Return these columns, whose values can be copied as words, for rows at these places. O(places)."""
        size = places.size
        spans = [size * self._widths[at] for at in which]
        offsets = [0, *accumulate(-(-span // ALIGNED) * ALIGNED for span in spans)]
        memory = pa.allocate_buffer(offsets[-1])
        out = np.frombuffer(memory, np.uint8)
        gather(begins, self._addresses, places, np.array(which), self._width_array, np.array(offsets), out)
        return [
            pa.Array.from_buffers(self._types[at], size, [None, memory.slice(offset, span)])
            for at, offset, span in zip(which, offsets, spans, strict=False)
        ]

    def wasteful(self, live: int) -> bool:
        """Say whether a trim is due, given how many rows are live."""
        return self.stored * LIVE_SHARE > live + self._spare or len(self._chunks) > MANY

    def trim(self, live: Ints) -> int:
        """Let go of the rows that are not live (numbers ascending); returns the bytes of the chunks dropped."""
        freed = 0
        old = self._emptied()
        bounds = np.searchsorted(live, [bound for chunk in old for bound in (chunk.end, chunk.first)]).tolist()
        while old:  # taken off the list, so that a chunk is free once its live rows are copied
            chunk, low, high = old.pop(), bounds.pop(), bounds.pop()
            mine = live[low:high]
            if mine.size >= LIVE_SHARE * chunk.size:
                self._add(chunk)
                continue
            freed += chunk.size * self._row or chunk.rows.nbytes
            if mine.size:
                self._add(chunk.only(mine, self._widths))
        if len(self._chunks) > MANY // 2:
            self._merge()
        return freed

    def _merge(self) -> None:
        """Copy neighbouring chunks together, up to a size."""
        target = max(MERGED, self.stored // (MANY // 4))
        old = self._emptied()
        while old:
            group = [old.pop()]
            size = group[0].size
            while old and size + old[-1].size <= target:
                group.append(old.pop())
                size += group[-1].size
            if len(group) > 1:
                rows = pa.concat_tables([chunk.rows for chunk in group]).combine_chunks(memory_pool=POOL)
                numbers = np.concatenate([chunk.all_numbers() for chunk in group])
                consecutive = int(numbers[-1] - numbers[0]) + 1 == numbers.size
                group = [Chunk.of(rows, int(numbers[0]), None if consecutive else numbers, self._widths)]
            self._add(group[0])

    def restore(self, rows: pa.Table, numbers: Ints, following: int) -> None:
        """Hold these rows; the next one to come has the number `following`."""
        numbers = np.ascontiguousarray(numbers, np.int64)
        self._emptied()
        if rows.num_rows:
            self._add(Chunk.of(rows, int(numbers[0]), numbers, self._widths))
        self.next = following


def give_back() -> None:
    """Return free memory to the system: allocators keep the gaps between the rows that stay."""
    pa.default_memory_pool().release_unused()
    if hasattr(C_LIBRARY, "malloc_trim"):  # glibc's
        C_LIBRARY.malloc_trim(0)


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value that can be copied as a word; 0 if there is no such width."""
    fixed = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)
    return int(kind.byte_width) if fixed and kind.byte_width in WIDTHS else 0


def _address(column: pa.ChunkedArray, width: int) -> int:
    """Return where the values of a column are, if they are side by side, of fixed width and none is null; else 0."""
    if not width or column.num_chunks != 1 or column.null_count:
        return 0
    array = column.chunk(0)
    return int(array.buffers()[1].address) + width * array.offset


def row_bytes(rows: pa.Table) -> Ints:
    """Return the Arrow bytes of each row: widths of its values, plus offsets. O(rows x columns).

    Validity bits are left out: whether there are any depends on the batch that a row came in.
    """
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(array, pa.ChunkedArray):
            continue
        total += _value_bytes(array)
    return total


def _value_bytes(array: pa.Array) -> Ints | int:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _value_bytes(array.indices)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _lengths(array, np.int32) + 4
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _lengths(array, np.int64) + 8
    if pa.types.is_struct(kind):
        return sum((_value_bytes(field) for field in array.flatten()), start=0)
    try:
        return (kind.bit_width + 7) // 8
    except ValueError:  # lists, maps: share the bytes out evenly
        return -(-array.nbytes // max(len(array), 1))


def _lengths(array: pa.Array, width: type[np.signedinteger]) -> Ints:
    offsets = np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets).astype(np.int64)
