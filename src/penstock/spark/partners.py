"""Find the rows of an archive that lost rows missed, in files or tables of both: what one task of a repair does."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.windows import Ints
from penstock.operator.results import assembled, importances, verified
from penstock.operator.settings import SIDES, Bound
from penstock.quality.archive import Shed, missing_pairs
from penstock.spark.places import place
from penstock.streams.intake import NO_FLOATS, NO_INTS, Side

IDENTITY = ("shard", "arrival", "ts")
LOST = (*IDENTITY, "side", "shed_at_arrival", "reason")
ARRIVALS = 44  # bits of an arrival number, below those of its shard
COMPARED = 1 << 22  # lost rows and rows with their keys that are compared at once
SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio: neighbours fall far apart
SPARE = 8  # places in a table for each code
FINE = 3  # the longest range of time is in 2^3 pieces, and one
FAR = np.iinfo(np.int64).max
NOBODY = Shed(NO_INTS, NO_INTS)


class Source(Protocol):
    """Rows of an archive or a ledger, of which some columns are read, and others of a few rows."""

    def read(self, columns: Sequence[str], side: int, names: Sequence[str]) -> pa.Table:
        """Return columns of all rows, and some of what the row of a side holds."""

    def take(self, at: Ints, side: int, names: Sequence[str]) -> pa.Table:
        """Return some of what the row of a side holds, of the rows with these numbers."""


class Files:
    """Rows in Parquet files, in their order."""

    def __init__(self, paths: Sequence[str], schemas: Sequence[pa.Schema]) -> None:
        self.paths, self.schemas = paths, schemas
        self._ends: Ints = NO_INTS

    def read(self, columns: Sequence[str], side: int, names: Sequence[str]) -> pa.Table:
        """Return columns of all rows, and some of what the row of a side holds."""
        tables = [self._part(path, columns, side, names) for path in self.paths]
        self._ends = np.cumsum([table.num_rows for table in tables])
        return pa.concat_tables(tables)

    def take(self, at: Ints, side: int, names: Sequence[str]) -> pa.Table:
        """Return some of what the row of a side holds, of the rows with these numbers; only their files are read."""
        order = np.argsort(at, kind="stable")
        cuts = np.searchsorted(at[order], self._ends)
        found, begin, first = [], 0, 0
        for path, cut, end in zip(self.paths, cuts.tolist(), self._ends.tolist(), strict=True):
            if cut > begin:
                rows = pa.array(at[order[begin:cut]] - first)
                found.append(self._part(path, (), side, names).take(rows))
            begin, first = cut, end
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return pa.concat_tables(found).take(pa.array(back))

    def _part(self, path: str, columns: Sequence[str], side: int, names: Sequence[str]) -> pa.Table:
        """Return the rows of one file; a column that came later is null in it."""
        system, inside = place(path)
        with system.open_input_file(inside) as file, pq.ParquetFile(file) as parquet:
            wanted = [*columns, *(f"{SIDES[side]}.{name}" for name in names)]
            table = parquet.read(columns=wanted, use_threads=False)
        return _flat(table, columns, side, names, self.schemas)


class Table:
    """Rows that are there."""

    def __init__(self, table: pa.Table, schemas: Sequence[pa.Schema]) -> None:
        self.table, self.schemas = table, schemas

    def read(self, columns: Sequence[str], side: int, names: Sequence[str]) -> pa.Table:
        """Return columns of all rows, and some of what the row of a side holds."""
        return _flat(self.table, columns, side, names, self.schemas)

    def take(self, at: Ints, side: int, names: Sequence[str]) -> pa.Table:
        """Return some of what the row of a side holds, of the rows with these numbers."""
        return _flat(self.table.take(pa.array(at)), (), side, names, self.schemas)


def _flat(
    table: pa.Table, columns: Sequence[str], side: int, names: Sequence[str], schemas: Sequence[pa.Schema]
) -> pa.Table:
    """Return columns of a table, and fields of its row of a side with the types they have today."""
    found = {f"{number}": table[name] for number, name in enumerate(columns)}
    struct = table[SIDES[side]] if SIDES[side] in table.schema.names else None
    there = [] if struct is None else [field.name for field in struct.type]
    for name in names:
        kind = schemas[side].field(name).type
        value = pc.struct_field(struct, [there.index(name)]) if name in there else pa.nulls(table.num_rows, kind)
        found[f"{side}.{name}"] = value if value.type == kind else value.cast(kind)
    whole = pa.table(found) if found else table.select([])
    return whole.rename_columns([*columns, *names])


class Rows(NamedTuple):
    """Rows of one side that have a key: their places in the order of arrival, their times and codes."""

    place: Ints
    ts: Ints
    code: Ints
    at: Ints  # their numbers in their source
    until: Ints  # of lost rows: the place of the first row of the other side that they missed
    late: npt.NDArray[Any]  # of lost rows: whether they came late

    def only(self, which: npt.NDArray[Any]) -> "Rows":
        """Return some of them."""
        return Rows(*(column[which] if column.size else column for column in self))


def _archived(source: Source, side: int, bound: Bound) -> Rows:
    """Return the rows of a side in an archive."""
    return _rows(source.read(IDENTITY, side, bound.keys[side]), side, bound)


def _lost(source: Source, side: int, bound: Bound, times: tuple[int, int]) -> Rows:
    """Return the rows of a side in a ledger, of a range of times."""
    table = source.read(LOST, side, bound.keys[side])
    found = _rows(table, side, bound)
    mine = pc.equal(table["side"], SIDES[side]).to_numpy()[found.at]
    return found.only(mine & (found.ts >= times[0]) & (found.ts <= times[1]))


def _rows(table: pa.Table, side: int, bound: Bound) -> Rows:
    code, valid = bound.coder.code([table[name] for name in bound.keys[side]])
    shard = table["shard"].to_numpy().astype(np.int64) << ARRIVALS
    until, late = NO_INTS, np.empty(0, np.bool_)
    if "reason" in table.schema.names:
        until = shard + table["shed_at_arrival"].to_numpy()
        late = pc.equal(table["reason"], "late").to_numpy()
    ts = bound.clock.values(table["ts"], "ts")
    found = Rows(shard + table["arrival"].to_numpy(), ts, code, np.arange(ts.size), until, late)
    return found if valid is None else found.only(valid)


def missed(
    side: int, archive: Source, ledger: Source, gone: Source, bound: Bound, *, only_late: bool = False
) -> Iterator[pa.Table]:
    """Return the pairs of lost rows of one side with the rows that they missed, as rows of the join's result.

    Parameters:
        side: of the lost rows.
        archive: rows of the other side.
        ledger: lost rows, and perhaps others.
        gone: where left rows of the archive that were lost too are: their pairs are found for their sake, and not for
            that of a right row. Only a late row can be in such a pair: of others, the one that came second met, or
            was, what was still there.
        bound: the arguments of the join, checked.
        only_late: whether only rows that came late look for partners.

    Cost: O(log) for each row of the archive, to find those with keys that were lost; as ``missing_pairs`` for these.
    """
    rows = _archived(archive, 1 - side, bound)
    if not rows.ts.size:
        return
    first, last = int(rows.ts.min()), int(rows.ts.max())
    lost = _lost(ledger, side, bound, (first - bound.span[side] + 1, last + bound.span[1 - side] - 1))
    if only_late:
        lost = lost.only(lost.late)
    known = _lost(gone, 0, bound, (first, last)) if side == 1 and lost.late.any() else None
    rows = rows.only(np.argsort(rows.place, kind="stable"))
    lost, begins, ends = _looking(lost, rows, side, bound)
    for some in _portions(rows, lost, begins, ends):
        mine, theirs = _pairs(lost, some, side, bound)
        if known is not None:
            once = _not_yet(known, some.place[theirs], lost.place[mine])
            mine, theirs = mine[once], theirs[once]
        if mine.size:
            yield _joined(bound, side, ledger, lost.at[mine], archive, some.at[theirs])


def _looking(lost: Rows, rows: Rows, side: int, bound: Bound) -> tuple[Rows, Ints, Ints]:
    """Return the lost rows that may have missed others, and the first and the last time of these.

    They came later, and what came later may all be newer than the window allows.
    """
    oldest = np.append(np.minimum.accumulate(rows.ts[::-1])[::-1], FAR)  # from each row on
    first = np.maximum(lost.ts - bound.span[1 - side] + 1, oldest[np.searchsorted(rows.place, lost.until)])
    last = lost.ts + bound.span[side] - 1
    some = first <= last
    return lost.only(some), first[some], last[some]


def _portions(rows: Rows, lost: Rows, first: Ints, last: Ints) -> Iterator[Rows]:
    """Return the rows that have a key of a lost one, in order of arrival, as many at once as are to be compared."""
    codes, counts = np.unique(lost.code, return_counts=True)
    if not codes.size:
        return
    fits = np.flatnonzero(_perhaps(lost.code, first, last, rows))
    near = np.minimum(np.searchsorted(codes, rows.code[fits]), codes.size - 1)
    same = codes[near] == rows.code[fits]
    fits, work = fits[same], np.cumsum(counts[near[same]])
    for part in np.split(fits, np.searchsorted(work, np.arange(COMPARED, work[-1] if work.size else 0, COMPARED))):
        if part.size:
            yield rows.only(part)


def _perhaps(codes: Ints, first: Ints, last: Ints, rows: Rows) -> npt.NDArray[Any]:
    """Say which rows may have one of these codes and a time in its range: a table is looked at, which caches hold."""
    piece = max(int((last - first).max()).bit_length() - FINE, 0)
    bits = min(max(int(codes.size * SPARE).bit_length(), 8), 26)
    there = np.zeros(1 << bits, np.bool_)
    begins, ends = first >> piece, last >> piece
    for step in range(int((ends - begins).max()) + 1):
        some = begins + step <= ends
        there[_spread(codes[some], begins[some] + step, bits)] = True
    return there[_spread(rows.code, rows.ts >> piece, bits)]


def _spread(codes: Ints, pieces: Ints, bits: int) -> npt.NDArray[Any]:
    """Return places in a table for codes and pieces of time."""
    mixed = codes.view(np.uint64) ^ (pieces.view(np.uint64) * SPREAD)
    return (mixed * SPREAD) >> np.uint64(64 - bits)


def _pairs(lost: Rows, rows: Rows, side: int, bound: Bound) -> tuple[Ints, Ints]:
    """Return the numbers of lost rows, and of rows that they missed; these are in the order of arrival."""
    shed = Shed(np.arange(lost.ts.size), np.searchsorted(rows.place, lost.until))
    looking, there = (Side(each.ts, each.code, None, NO_INTS, NO_FLOATS) for each in (lost, rows))
    if side == 0:
        return missing_pairs((looking, there), (shed, NOBODY), span=bound.span, by_rows=False)
    theirs, mine = missing_pairs((there, looking), (NOBODY, shed), span=bound.span, by_rows=False)
    return mine, theirs


def _not_yet(gone: Rows, left: Ints, right: Ints) -> npt.NDArray[Any]:
    """Say of which pairs, by their places, the left row was not gone when the right one came."""
    order = np.argsort(gone.place, kind="stable")
    known = np.append(gone.place[order], FAR)
    until = np.append(gone.until[order], FAR)
    at = np.searchsorted(known, left)
    return (known[at] != left) | (until[at] > right)


def _joined(bound: Bound, side: int, ledger: Source, mine: Ints, archive: Source, theirs: Ints) -> pa.Table:
    """Put pairs together that have equal codes; those whose keys are not equal are left out."""
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
