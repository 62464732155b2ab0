"""Keep the rows of one side beside the core, in Arrow chunks that shrink as their rows leave."""

import numpy as np
import pyarrow as pa

from penstock.core.windows import Ints

MERGED = 1 << 16  # chunks are merged up to so many rows
SPARE = 4096  # dead rows not worth a look
LIVE_SHARE = 0.65  # a chunk with a smaller share of live rows is copied


class Payload:
    """The rows of one side by their numbers, 0, 1, 2, ... in order of arrival.

    ``trim`` is told which rows are still live; it drops or copies chunks so that what is stored stays within
    1 / 0.65 of what is live, plus a constant, one chunk at a time.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.next = 0
        self._chunks: list[pa.Table] = []
        self._numbers: list[Ints] = []  # the numbers of a chunk's rows, ascending
        self._all: tuple[pa.Table, Ints, int] | None = None

    def append(self, rows: pa.Table) -> None:
        """Take the next rows."""
        if rows.num_rows:
            self._chunks.append(rows)
            self._numbers.append(np.arange(self.next, self.next + rows.num_rows))
            self.next += rows.num_rows
            self._all = None

    @property
    def stored(self) -> int:
        """How many rows are stored, live or not."""
        return sum(numbers.size for numbers in self._numbers)

    @property
    def nbytes(self) -> int:
        """The bytes of the stored rows."""
        return sum(chunk.nbytes for chunk in self._chunks)

    def take(self, numbers: Ints, columns: list[str]) -> pa.Table:
        """Return the rows with these numbers, in this order; all of them must be stored. O(numbers log chunks)."""
        if self._all is None:
            table = pa.concat_tables(self._chunks) if self._chunks else self.schema.empty_table()
            held = np.concatenate(self._numbers) if self._numbers else np.empty(0, np.int64)
            first = int(held[0]) if held.size and held[-1] - held[0] + 1 == held.size else -1
            self._all = (table, held, first)
        table, held, first = self._all
        places = numbers - first if first >= 0 else np.searchsorted(held, numbers)
        return table.select(columns).take(pa.array(places))

    def wasteful(self, live: int) -> bool:
        """Say whether a trim is due, given how many rows are live."""
        return self.stored * LIVE_SHARE > live + SPARE

    def trim(self, live: Ints) -> None:
        """Let go of the rows that are not live (numbers ascending)."""
        chunks: list[pa.Table] = []
        numbers: list[Ints] = []
        parts: list[pa.Table] = []
        kept: list[Ints] = []

        def merge() -> None:
            if parts:
                table = pa.concat_tables(parts) if len(parts) > 1 else parts[0]
                chunks.append(table.combine_chunks())
                numbers.append(np.concatenate(kept))
                parts.clear()
                kept.clear()

        old, self._all = list(zip(self._chunks, self._numbers, strict=True)), None
        self._chunks, self._numbers = [], []
        old.reverse()
        while old:  # taken off the list, so that a chunk is free once its live rows are copied
            chunk, held = old.pop()
            low, high = np.searchsorted(live, (held[0], held[-1] + 1))
            mine = live[low:high]
            if mine.size == 0:
                continue
            if mine.size > LIVE_SHARE * held.size and held.size >= MERGED // 4:
                merge()
                chunks.append(chunk)
                numbers.append(held)
                continue
            parts.append(chunk.take(pa.array(np.searchsorted(held, mine))))
            kept.append(mine)
            if sum(part.size for part in kept) >= MERGED:
                merge()
        merge()
        self._chunks, self._numbers = chunks, numbers

    def live_table(self, live: Ints) -> pa.Table:
        """Return the live rows with their order kept, for saving."""
        return self.take(live, self.schema.names)

    @classmethod
    def restored(cls, rows: pa.Table, numbers: Ints, following: int) -> "Payload":
        """Return the payload that held these rows; the next one to come has the number `following`."""
        payload = cls(rows.schema)
        if rows.num_rows:
            payload._chunks.append(rows)
            payload._numbers.append(numbers)
        payload.next = following
        return payload


def row_bytes(rows: pa.Table) -> Ints:
    """Return the Arrow bytes of each row: widths of its values, plus offsets and validity. O(rows x columns)."""
    total = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns:
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(array, pa.ChunkedArray):
            continue
        total += _value_bytes(array)
    return total


def _value_bytes(array: pa.Array) -> Ints | int:
    kind = array.type
    validity = 1 if array.null_count else 0
    if pa.types.is_dictionary(kind):
        return _value_bytes(array.indices)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _lengths(array, np.int32) + 4 + validity
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _lengths(array, np.int64) + 8 + validity
    if pa.types.is_struct(kind):
        return sum((_value_bytes(field) for field in array.flatten()), start=np.int64(validity))
    try:
        return (kind.bit_width + 7) // 8 + validity
    except ValueError:  # lists, maps, views: share the bytes out evenly
        return -(-array.nbytes // max(len(array), 1))


def _lengths(array: pa.Array, width: type[np.signedinteger]) -> Ints:
    offsets = np.frombuffer(array.buffers()[1], width)[array.offset : array.offset + len(array) + 1]
    return np.diff(offsets).astype(np.int64)
