"""Complete the results of a stream from its archive and ledger: the missing pairs, as a batch job."""

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.errors import InputError, TimeError, WindowError
from penstock.operator.settings import SIDES, Bound, Settings, repairable
from penstock.spark import folders, partners
from penstock.spark.folders import Folders, Kind
from penstock.spark.pipeline import arrow_schema
from penstock.spark.places import place
from penstock.spark.writing import BATCH, OPEN

IDENTITY = ("side", "shard", "arrival", "ts", *SIDES)
LOST = {"shed_at": "ts", "shed_at_arrival": "arrival", "reason": "side"}
FILE = re.compile(rf"{BATCH}=(\d+)/(?:(?:side|{OPEN})=([^/]+)/)?[^/]+\.parquet")
STRETCH = 1 << 20  # rows of an archive that one task looks at
READERS = 16  # files whose ends are read at once
ANY = -(1 << 62), 1 << 62  # what times are within if nobody noted them
LATE = b"late"
COLUMNS = b"org.apache.spark.sql.parquet.row.metadata"  # what Spark notes of a file's columns


def refine(archive: Any, ledger: Any, settings: Settings, spark: Any) -> Any:
    """Return the missing rows of a whole archive; arguments as for ``penstock.refine``."""
    repairable(settings)
    if isinstance(archive, str) and isinstance(ledger, str):
        there = Folders(PAIRS, archive, ledger, folders.session_of(spark))
        todo = there.after(None)
        return missing_of(there, (todo[0], todo[-1]), bound_of(_rows(there), settings))
    rows, losses = folders.frames_of(PAIRS, archive, ledger, spark)
    bound = bound_of(rows, settings)
    _all_probed(losses.columns)
    both = rows.groupBy("shard").cogroup(losses.groupBy("shard"))
    return named(both.applyInArrow(partial(_of_shard, bound=bound), numbered(bound)), bound)


def refine_into(archive: str, ledger: str, into: str, settings: Settings, **how: Any) -> folders.Refined:
    """Add the missing rows to a folder, part by part; arguments as for ``folders.refine_into``.

    A pair belongs to the micro-batch in which its second row came.
    """
    repairable(settings)
    return folders.refine_into(PAIRS, archive, ledger, into, settings, **how)


def missing_of(there: Folders, batches: tuple[int, int], bound: Bound) -> Any:
    """Return the missing pairs whose second row came in these micro-batches, lazily.

    Tasks read the files themselves, a stretch of the archive and what was lost near it in time, and of all columns
    only keys and times; the others of rows that are found. Nothing is shuffled.
    """
    _all_probed(_columns_lost(there))
    looks = [(json.dumps(look._asdict()),) for look in _looks(there, batches, bound)]
    if not looks:
        return there.spark.createDataFrame([], from_arrow_schema(bound.schema))
    todo = there.spark.createDataFrame(looks, "look string")
    return named(todo.mapInArrow(partial(_looked, bound=bound), numbered(bound)), bound)


# --- which files --------------------------------------------------------------------------------------------------


class Look(NamedTuple):
    """In which files a task looks for what was missed."""

    rows: list[list[str]]  # of the archive, left and right
    lost: list[str]  # of the ledger
    gone: list[str]  # of the ledger, too: where left rows themselves may be
    only_late: bool


class Extent(NamedTuple):
    """A file of an archive or a ledger, and what its end tells of it."""

    path: str
    batch: int
    part: str | None  # the side, or whether windows were open
    rows: int
    times: tuple[int, int]
    shards: tuple[int, int]
    late: bool  # whether rows in it may have been late
    columns: bytes | None  # in Spark's words

    def near(self, times: tuple[int, int], shards: tuple[int, int]) -> bool:
        """Say whether it may hold rows of such times and shards."""
        return _touch(self.times, times) and _touch(self.shards, shards)


def _touch(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Say whether two ranges, both ends included, have something in common."""
    return one[0] <= other[1] and other[0] <= one[1]


def _around(ranges: Iterable[tuple[int, int]], far: int = 0) -> tuple[int, int]:
    """Return the range that holds all of these, and so much more at both ends."""
    lows, highs = zip(*ranges, strict=True)
    return min(lows) - far, max(highs) + far


def _looks(there: Folders, batches: tuple[int, int], bound: Bound) -> Iterator[Look]:
    """Return what there is to do for the pairs whose second row came in these micro-batches.

    Rows that came in them look at all that was lost by then. Rows that came before look at what was late in them.
    """
    first, last = batches
    archive, ledger = ([each for each in every if each.batch <= last] for every in _extents(there))
    late = [each for each in ledger if each.batch >= first and each.late]
    tardy = _tardy(archive)
    for stretch in _stretches(each for each in archive if each.batch >= first):
        waited = any(each.batch in tardy for each in stretch)
        newest = max(each.batch for each in stretch)  # what was lost later missed none of these, unless it was late
        lost = [each for each in ledger if (waited or each.part != "0") and (each.batch <= newest or each.late)]
        yield from _look(stretch, lost, ledger, bound)
    before = [each for each in archive if each.batch < first]
    far = max(bound.span)
    needed = (e for e in before if any(one.near(_around([e.times], far), e.shards) for one in late))
    for stretch in _stretches(needed):
        yield from _look(stretch, late, ledger, bound, only_late=True)


def _look(
    rows: list[Extent], lost: list[Extent], ledger: list[Extent], bound: Bound, *, only_late: bool = False
) -> Iterator[Look]:
    """Return what is to be looked for in a stretch of the archive, if anything that was lost is near enough."""
    times, shards = _around(each.times for each in rows), _around(each.shards for each in rows)
    far = max(bound.span) - 1
    near = [each for each in lost if each.near(_around([times], far), shards)]
    near = [each for each in near if any(each.near(_around([one.times], far), one.shards) for one in rows)]
    if near:
        sides = [[each.path for each in rows if each.part == name] for name in SIDES]
        gone = [each.path for each in ledger if each.near(times, shards)]
        yield Look(sides, [each.path for each in near], gone, only_late)


def _tardy(archive: list[Extent]) -> set[int]:
    """Return the micro-batches with rows older than some of an earlier one: what only waited may be their partner."""
    found, newest, ends = set(), ANY[0], dict[int, tuple[int, int]]()
    for each in archive:
        ends[each.batch] = _around([each.times, ends.get(each.batch, each.times)])
    for batch, (low, high) in sorted(ends.items()):
        if low < newest:
            found.add(batch)
        newest = max(newest, high)
    return found


def _stretches(files: Iterable[Extent]) -> Iterator[list[Extent]]:
    """Return files shard by shard, one after the other, in stretches of about as many rows each."""
    every = sorted(files, key=lambda each: (each.shards, each.batch))
    ends = list(accumulate(each.rows for each in every))
    count = -(-ends[-1] // STRETCH) if ends else 0
    for _, stretch in groupby(zip(every, ends, strict=True), key=lambda each: (each[1] - 1) * count // ends[-1]):
        yield [each for each, _ in stretch]


@lru_cache(maxsize=1)
def _extents(there: Folders) -> tuple[list[Extent], list[Extent]]:
    """Return the files of an archive and a ledger; asked for every part that is refined, and read once."""
    return _files(there.archive), _files(there.ledger)


def _files(folder: str) -> list[Extent]:
    """Return the files of the parts of a folder that are whole, in their order, with what their ends tell."""
    system, base = place(folder)
    inside = system.get_file_info(fs.FileSelector(base, recursive=True))
    names = [(info.path, FILE.fullmatch(info.path[len(base) :].lstrip("/"))) for info in inside]
    whole = folders.parts(folder)
    found = [(int(name[1]), name[2], path) for path, name in names if name and int(name[1]) in whole]
    found.sort(key=lambda each: (each[0], each[2]))
    with ThreadPoolExecutor(READERS) as pool:
        told = pool.map(lambda each: _end(system, each[2]), found)
    prefix = folder[: len(folder) - len(base)] if folder.endswith(base) else ""
    every = (Extent(prefix + path, batch, part, *end) for (batch, part, path), end in zip(found, told, strict=True))
    return [each for each in every if each.rows]


def _end(system: Any, path: str) -> tuple[int, tuple[int, int], tuple[int, int], bool, bytes | None]:
    """Return how many rows a file has, of which times and shards, whether some were late, and its columns."""
    with system.open_input_file(path) as file:
        about = pq.read_metadata(file)
    places = {about.schema.column(at).path: at for at in range(about.num_columns)}
    groups = [about.row_group(at) for at in range(about.num_row_groups)]
    columns = (about.metadata or {}).get(COLUMNS)
    if not groups:
        return 0, ANY, ANY, False, columns
    times, shards = (
        _around(_range(group.column(places[name])) or ANY for group in groups) for name in ("ts", "shard")
    )
    reasons = [_range(group.column(places["reason"])) for group in groups] if "reason" in places else []
    late = any(each is None or each[0] <= LATE <= each[1] for each in reasons)
    return about.num_rows, times, shards, late, columns


def _rows(there: Folders) -> Any:
    """Return a DataFrame with the columns of an archive: one without rows, if all files have the same columns.

    Their ends tell, and are read anyway. Else Spark reads them once more, and merges what it finds.
    """
    archive, ledger = ({each.columns for each in every} for every in _extents(there))
    if len(archive) == 1 and len(ledger) <= 1 and None not in archive | ledger:
        rows, *losses = (
            StructType.fromJson(json.loads(str(words, "utf-8"))) for words in [*archive, *ledger] if words
        )
        kind = there.kind
        if {*kind.identity} <= {*rows.names, kind.by} and all({*kind.lost} <= {*each.names} for each in losses):
            return there.spark.createDataFrame([], rows)
    return there.frames[0]


def _columns_lost(there: Folders) -> Iterable[str]:
    """Return the names of the columns of a ledger, as the ends of its files tell, or Spark."""
    every = {each.columns for each in _extents(there)[1]}
    if None in every:
        return list(there.frames[1].columns)
    return [name for words in every if words for name in StructType.fromJson(json.loads(words)).names]


def _range(column: Any) -> tuple[Any, Any] | None:
    """Return the least and the largest value of a column in a piece of a file, as they are stored, if it tells."""
    told = column.statistics
    if told is None or not told.has_min_max:
        return None
    return told.min_raw, told.max_raw


# --- tasks --------------------------------------------------------------------------------------------------------


def _looked(batches: Iterator[pa.RecordBatch], bound: Bound) -> Iterator[pa.RecordBatch]:
    """Do what is to be done, for ``mapInArrow``."""
    for batch in batches:
        for words in batch.column(0):
            look = Look(**json.loads(words.as_py()))
            archive = [partners.Files(paths, bound.schemas) if paths else None for paths in look.rows]
            ledger, gone = (partners.Files(paths, bound.schemas) for paths in (look.lost, look.gone))
            for found in partners.missed(archive, ledger, gone, bound, only_late=look.only_late):
                yield from unnamed(found).to_batches()


def _of_shard(archive: pa.Table, ledger: pa.Table, bound: Bound) -> pa.Table:
    """Return the missing pairs of one shard, for ``applyInArrow``."""
    sides = [archive.filter(pc.equal(archive["side"], name)) for name in SIDES]
    rows = [partners.Table(each, bound.schemas) for each in sides]
    shed = partners.Table(ledger, bound.schemas)
    return unnamed(pa.concat_tables([bound.schema.empty_table(), *partners.missed(rows, shed, shed, bound)]))


def unnamed(table: pa.Table) -> pa.Table:
    """Return a table with numbers for names: Spark's tasks do not hand over every name that a DataFrame takes."""
    return table.rename_columns([str(at) for at in range(table.num_columns)])


def numbered(bound: Bound) -> Any:
    """Return the columns that a task hands over."""
    return from_arrow_schema(pa.schema([pa.field(str(at), each.type) for at, each in enumerate(bound.schema)]))


def named(found: Any, bound: Bound) -> Any:
    """Return what tasks handed over with the names of the result."""
    return found.toDF(*bound.schema.names)


def _all_probed(columns: Iterable[str]) -> None:
    """Raise if a ledger with these columns may have rows that were not probed."""
    if "skipped" in columns:
        raise InputError("ledger", "that of a CPU budget", "give cpu= too, as for the join that wrote it")


def bound_of(archive: Any, settings: Settings) -> Bound:
    """Check the arguments of the join, but for its budgets, against the rows in its archive."""
    schemas = [arrow_schema(archive.select(f"{name}.*"), name) for name in SIDES]
    plain = {"shards": None, "lateness": 0, "cpu": None}
    bound = Bound(Settings(**{**settings.arguments(), **plain}), *schemas).unbounded()
    if bound.by_rows:
        want = "which rows are in a window in rows takes a count of the whole archive: only time windows are refined"
        raise WindowError("window", str(settings.window), want)
    if pa.types.is_timestamp(bound.clock.type) and bound.clock.type.tz is None:
        raise TimeError("time", "timestamps without a time zone", "streams have none such: cast them to timestamp")
    return bound


def _settled(ends: list[tuple[int, str, int]], bound: Bound, last: int) -> int | None:  # noqa: ARG001 - as ``Kind``
    """Return the newest time: rows meet as they come."""
    return max((end for _, _, end in ends), default=None)


PAIRS = Kind(
    identity=IDENTITY,
    lost={**dict.fromkeys(IDENTITY), **LOST},
    arguments=("on", "time", "window", "importance", "combine", "event_time"),
    bound=lambda there, settings: bound_of(_rows(there), settings),
    missing=missing_of,
    by="side",
    settled=_settled,
)
