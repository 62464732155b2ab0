"""Find the rows of an archive that lost rows missed, in files or tables of both: what one task of a repair does."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.missing import ARRIVALS, Lost, Passing, passed, waiting
from penstock.core.windows import Ints
from penstock.operator.results import assembled, importances, verified
from penstock.operator.settings import SIDES, Bound
from penstock.spark.places import place
from penstock.streams.intake import NO_INTS

PLACE = ("shard", "arrival")
WORDS = ("side", "reason")  # columns of few words: read as their numbers
LOST = (*PLACE, "shed_at_arrival", *WORDS)
ROOM = 1 << 20  # pairs that are put together at once
FAR = np.iinfo(np.int64).max

Fields = Sequence[tuple[int, str]]  # names of columns of one side or the other


class Source(Protocol):
    """Rows of an archive or a ledger, of which some columns are read, and others of a few rows."""

    def read(self, columns: Sequence[str], fields: Fields) -> list[pa.Table]:
        """Return columns of all rows, and some of what the row of a side holds, under names such as "left.key"."""

    def take(self, at: Ints, side: int, names: Sequence[str]) -> pa.Table:
        """Return some of what the row of a side holds, of the rows with these numbers."""


class Files:
    """Rows in Parquet files, in their order; what was read of all rows is kept, and not read again for a few."""

    def __init__(self, paths: Sequence[str], schemas: Sequence[pa.Schema]) -> None:
        self.paths, self.schemas = paths, schemas
        self._known = pa.table({})
        self._ends: Ints = NO_INTS

    def read(self, columns: Sequence[str], fields: Fields) -> list[pa.Table]:
        """Return columns of all rows, and some of what the row of a side holds, under names such as "left.key"."""
        tables = [self._part(path, columns, fields) for path in self.paths]
        self._ends = np.cumsum([table.num_rows for table in tables])
        self._known = pa.concat_tables(tables)
        return tables

    def take(self, at: Ints, side: int, names: Sequence[str]) -> pa.Table:
        """Return some of what the row of a side holds, of the rows with these numbers; only their files are read."""
        fields = [(side, name, f"{SIDES[side]}.{name}") for name in names]
        there = set(self._known.schema.names)
        known = self._known.select([flat for *_, flat in fields if flat in there]).take(pa.array(at))
        others = [(side, name) for side, name, flat in fields if flat not in there]
        rest = self._taken(at, others) if others else known
        return pa.table([(known if flat in there else rest)[flat] for *_, flat in fields], names=list(names))

    def _taken(self, at: Ints, fields: Fields) -> pa.Table:
        """Return fields of the rows with these numbers, read from the files that have such."""
        order = np.argsort(at, kind="stable")
        cuts = np.searchsorted(at[order], self._ends)
        found, begin, first = [], 0, 0
        for path, cut, end in zip(self.paths, cuts.tolist(), self._ends.tolist(), strict=True):
            if cut > begin:
                found.append(self._part(path, (), fields).take(pa.array(at[order[begin:cut]] - first)))
            begin, first = cut, end
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return pa.concat_tables(found).take(pa.array(back))

    def _part(self, path: str, columns: Sequence[str], fields: Fields) -> pa.Table:
        """Return the rows of one file; a column that came later is null in it."""
        system, inside = place(path)
        with system.open_input_file(inside) as file:
            end = pq.read_metadata(file)
            plain = _plain_words(end)
            words = [name for name in WORDS if name in columns and name not in plain]
            wanted = [*columns, *(f"{SIDES[side]}.{name}" for side, name in fields)]
            with pq.ParquetFile(file, metadata=end, read_dictionary=words) as parquet:
                table = parquet.read(columns=wanted, use_threads=False)
        for name in plain & set(columns):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table[name].dictionary_encode())
        return _flat(table, columns, fields, self.schemas)


def _plain_words(end: pq.FileMetaData) -> set[str]:
    """Return the columns of few words that a file has as differences: with few rows, numbers of words do not pay.

    Arrow reads such columns, but not as numbers.
    """
    groups = [end.row_group(at) for at in range(end.num_row_groups)]
    columns = [group.column(at) for group in groups for at in range(group.num_columns)]
    return {
        each.path_in_schema
        for each in columns
        if each.path_in_schema in WORDS and any(name.startswith("DELTA") for name in each.encodings)
    }


class Table:
    """Rows that are there."""

    def __init__(self, table: pa.Table, schemas: Sequence[pa.Schema]) -> None:
        self.table, self.schemas = table, schemas

    def read(self, columns: Sequence[str], fields: Fields) -> list[pa.Table]:
        """Return columns of all rows, and some of what the row of a side holds, under names such as "left.key"."""
        return [_flat(self.table, columns, fields, self.schemas)]

    def take(self, at: Ints, side: int, names: Sequence[str]) -> pa.Table:
        """Return some of what the row of a side holds, of the rows with these numbers."""
        fields = [(side, name) for name in names]
        return _flat(self.table.take(pa.array(at)), (), fields, self.schemas).rename_columns(list(names))


def _flat(table: pa.Table, columns: Sequence[str], fields: Fields, schemas: Sequence[pa.Schema]) -> pa.Table:
    """Return columns of a table, and fields of its rows of a side with the types they have today."""
    found = [table[name] for name in columns]
    for side, name in fields:
        struct = table[SIDES[side]] if SIDES[side] in table.schema.names else None
        there = [] if struct is None else [field.name for field in struct.type]
        kind = schemas[side].field(name).type
        value = pc.struct_field(struct, [there.index(name)]) if name in there else pa.nulls(table.num_rows, kind)
        found.append(value if value.type == kind else value.cast(kind))
    names = [*columns, *(f"{SIDES[side]}.{name}" for side, name in fields)]
    return pa.table(found, names=names) if found else table.select([])


class Rows(NamedTuple):
    """Lost rows of one side that have a key."""

    place: Ints  # in the order of arrival
    ts: Ints
    code: Ints
    until: Ints  # the place of the first row of the other side that they missed
    late: npt.NDArray[Any]  # whether they came late
    at: Ints  # their numbers in their source

    def only(self, which: npt.NDArray[Any]) -> "Rows":
        """Return some of them."""
        return Rows(*(column[which] for column in self))


def _fields(side: int, bound: Bound) -> list[tuple[int, str]]:
    """Return what is read of every row of a side: its time and its keys."""
    return [(side, name) for name in dict.fromkeys((bound.time[side], *bound.keys[side]))]


def _coded(table: pa.Table, side: int, bound: Bound) -> tuple[Ints, Ints, npt.NDArray[Any] | None]:
    """Return the codes of the keys of rows, their times, and which have a key (None: all)."""
    code, valid = bound.coder.code([table[f"{SIDES[side]}.{name}"] for name in bound.keys[side]])
    return code, bound.clock.values(table[f"{SIDES[side]}.{bound.time[side]}"], "ts"), valid


def _lost(source: Source, bound: Bound) -> list[Rows]:
    """Return the rows of both sides in a ledger."""
    table = pa.concat_tables(source.read(LOST, [*_fields(0, bound), *_fields(1, bound)]))
    place, until, late = _places(table), _places(table, "shed_at_arrival"), _says(table["reason"], "late")
    found = []
    for side, name in enumerate(SIDES):
        at = np.flatnonzero(_says(table["side"], name))
        mine = table.select([f"{name}.{field}" for _, field in _fields(side, bound)]).take(pa.array(at))
        code, ts, valid = _coded(mine, side, bound)
        rows = Rows(place[at], ts, code, until[at], late[at], at)
        found.append(rows if valid is None else rows.only(valid))
    return found


def _says(column: pa.ChunkedArray, word: str) -> npt.NDArray[Any]:
    """Say which rows have this word."""
    found = [np.empty(0, np.bool_)]
    for chunk in column.chunks:
        if pa.types.is_dictionary(chunk.type):
            found.append(chunk.indices.to_numpy() == pc.index(chunk.dictionary, word).as_py())
        else:
            found.append(pc.equal(chunk, word).to_numpy(zero_copy_only=False))
    return np.concatenate(found)


def missed(
    archive: Sequence[Source | None], ledger: Source, gone: Source, bound: Bound, *, only_late: bool = False
) -> Iterator[pa.Table]:
    """Return the pairs of lost rows with the rows of the other side that they missed, as rows of the join's result.

    Parameters:
        archive: rows of the left, and of the right; None: there are none.
        ledger: lost rows of both sides.
        gone: where left rows of the archive that were lost too are: their pairs are found for their sake, and not for
            that of a right row. Only a late row can be in such a pair: of others, the one that came second met, or
            was, what was still there.
        bound: the arguments of the join, checked.
        only_late: whether only rows that came late look for partners.

    Cost: O(1) for each row of the archive and of the ledger, and each two of them with one key.
    """
    for side, lost in enumerate(_lost(ledger, bound)):
        looking = lost.only(lost.late) if only_late else lost
        theirs = archive[1 - side]
        if theirs is not None and looking.ts.size:
            yield from _missed(side, looking, theirs, ledger, gone, bound)


def _missed(side: int, lost: Rows, archive: Source, ledger: Source, gone: Source, bound: Bound) -> Iterator[pa.Table]:
    """Return the pairs of lost rows of one side."""
    known = _lost(gone, bound)[0] if side == 1 and lost.late.any() else None
    low, high = lost.ts - bound.span[1 - side] + 1, lost.ts + bound.span[side] - 1
    table = waiting(lost.code, low, high, lost.until)
    found: list[tuple[Ints, Ints]] = []
    first = 0
    for part in archive.read(PLACE, _fields(1 - side, bound)):
        for mine, theirs in _passed(table, part, 1 - side, bound):
            once = slice(None) if known is None else _not_yet(known, _places(part)[theirs], lost.place[mine])
            found.append((lost.at[mine[once]], first + theirs[once]))
            if sum(each.size for each, _ in found) >= ROOM:
                yield _joined(bound, side, ledger, archive, found)
                found = []
        first += part.num_rows
    if any(each.size for each, _ in found):
        yield _joined(bound, side, ledger, archive, found)


def _places(table: pa.Table, arrival: str = "arrival") -> Ints:
    """Return the places of rows in the order of arrival, one shard after the other."""
    found: Ints = (table["shard"].to_numpy().astype(np.int64) << ARRIVALS) + table[arrival].to_numpy()
    return found


def _passed(lost: Lost, part: pa.Table, side: int, bound: Bound) -> Iterator[tuple[Ints, Ints]]:
    """Return the numbers of lost rows, and of the rows that they missed, in parts."""
    code, ts, valid = _coded(part, side, bound)
    shard, arrival = (part[name].to_numpy() for name in PLACE)
    number = np.arange(code.size) if valid is None else np.flatnonzero(valid)
    rows = Passing(code, ts, shard, arrival)
    if valid is not None:
        rows = Passing(*(column[number] for column in rows))
    room = max(ROOM, lost.code.size)
    start = 0
    while start < number.size:
        mine, theirs = np.empty(room, np.int64), np.empty(room, np.int64)
        count, start = passed(lost, rows, start, mine, theirs)
        yield mine[:count], number[theirs[:count]]


def _not_yet(gone: Rows, left: Ints, right: Ints) -> npt.NDArray[Any]:
    """Say of which pairs, by their places, the left row was not gone when the right one came."""
    order = np.argsort(gone.place, kind="stable")
    known = np.append(gone.place[order], FAR)
    until = np.append(gone.until[order], FAR)
    at = np.searchsorted(known, left)
    return (known[at] != left) | (until[at] > right)


def _joined(bound: Bound, side: int, ledger: Source, archive: Source, found: Sequence[tuple[Ints, Ints]]) -> pa.Table:
    """Put pairs together that have equal codes; those whose keys are not equal are left out."""
    mine, theirs = (np.concatenate(each) for each in zip(*found, strict=True))
    halves = [ledger.take(mine, side, bound.schemas[side].names)]
    halves.insert(1 - side, archive.take(theirs, 1 - side, bound.schemas[1 - side].names))
    numbers = np.arange(mine.size)
    same = verified(
        bound, lambda half, rows: halves[half].select(bound.keys[half]).take(pa.array(rows)), numbers, numbers
    )
    if same is not None and not same.all():
        halves = [half.filter(pa.array(same)) for half in halves]

    def columns(half: int, names: list[str]) -> list[pa.ChunkedArray]:
        return halves[half].select(names).columns

    return assembled(bound, columns, importances(bound, columns) if bound.importance else None, None)
