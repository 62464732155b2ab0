"""Keep the folder of a repair: add what is missing part by part, each once, and let go of archives that are done."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from penstock.errors import ColumnError, InputError, StateError
from penstock.operator import saving
from penstock.spark.places import place
from penstock.spark.writing import BATCH, tick
from penstock.streams.times import Clock

DONE, ABOUT = "_SUCCESS", "_refine.json"  # Spark's mark of a part that is whole; what the parts were made with
PART = re.compile(rf"{BATCH}=(\d+)")


class Kind(NamedTuple):
    """What the repairs of two streams and of several differ in."""

    identity: tuple[str, ...]  # columns of an archive
    lost: Mapping[str, str | None]  # columns of a ledger -> one of an archive of that type, if it has not itself
    arguments: tuple[str, ...]  # of the join: those that say what is missing
    bound: Callable[["Folders", Any], Any]  # its arguments, checked against an archive
    missing: Callable[["Folders", tuple[int, int], Any], Any]  # what these micro-batches, first to last, left out
    by: str  # the column that divides an archive by stream
    settled: Callable[[list[tuple[int, str, int]], Any, int], int | None]  # see ``_removed``


class Part(NamedTuple):
    """What was added by one step: the rows that these micro-batches, first to last, left out."""

    first: int
    last: int
    rows: int


class Refined(NamedTuple):
    """What a run of ``refine`` added to its folder, and the parts of the archive that it removed."""

    parts: list[Part]
    removed: list[int]
    rows: Any  # DataFrame: all that is in the folder now


def refine_into(  # noqa: PLR0913 - what ``penstock.refine`` takes
    kind: Kind,
    archive: str,
    ledger: str,
    into: str,
    settings: Any,
    *,
    spark: Any = None,
    batches: int = 100,
    keep: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Refined:
    """Add what is missing of the micro-batches that are not refined yet to a folder, some at a time.

    Every missing row belongs to one micro-batch: whatever it takes to know that it is missing is there by then, and
    nothing changes that later. So a part that is whole is not done again, and a stream that goes on can be refined up
    to its last micro-batch.

    Raises:
        InputError: if the folders are not such, or parts are gone that are needed.
        StateError: if the folder was made with other arguments.
    """
    if isinstance(batches, bool) or not isinstance(batches, int) or batches < 1:
        raise InputError("batches", repr(batches), "give a number of micro-batches, at least 1")
    folders = Folders(kind, archive, ledger, session_of(spark))
    todo = folders.after(max(parts(into), default=None))
    bound = kind.bound(folders, settings)
    patience = None if keep is None else bound.clock.ticks("keep", keep)
    _same_arguments(into, settings, kind.arguments)
    done = []
    for at in range(0, len(todo), batches):
        first, last = todo[at], todo[min(at + batches, len(todo)) - 1]
        path = f"{into}/{BATCH}={last}"
        kind.missing(folders, (first, last), bound).write.mode("overwrite").parquet(path)
        done.append(Part(first, last, folders.spark.read.parquet(path).count()))
        if progress is not None:
            progress(min(at + batches, len(todo)), len(todo))
    removed = [] if patience is None else _removed(folders, bound, patience, max(parts(into)))
    return Refined(done, removed, folders.spark.read.parquet(into).select(*map(_quoted, bound.schema.names)))


class Folders:
    """An archive and a ledger as ``penstock.write`` leaves them, and which of their parts are whole."""

    def __init__(self, kind: Kind, archive: str, ledger: str, spark: Any) -> None:
        for name, path in (("archive", archive), ("ledger", ledger)):
            if not isinstance(path, str):
                raise InputError(name, type(path).__name__, "into= is for folders that pen.write wrote: give paths")
        self.kind, self.archive, self.ledger, self.spark = kind, archive, ledger, spark
        self.ready = sorted(parts(archive).keys() & parts(ledger).keys())
        if not self.ready:
            want = "give the folders that pen.write(archive=, ledger=) writes, after its first micro-batch"
            raise InputError("archive", f"no part in both {archive} and {ledger}", want)

    @cached_property
    def frames(self) -> tuple[Any, Any]:
        """Archive and ledger as DataFrames; a column that came later is null in older rows."""
        archive, ledger = (self._read(path) for path in (self.archive, self.ledger))
        if archive is None:
            raise InputError("archive", f"no row in {self.archive}", "refine when rows have come")
        columns_there(archive, self.kind.identity, "archive")
        if ledger is None:  # nothing was given up, and the file that would say so is divided into folders
            like = {name: F.col(was) for name, was in self.kind.lost.items() if was is not None}
            ledger = archive.where(F.lit(False)).withColumns(like)
        columns_there(ledger, tuple(self.kind.lost), "ledger")
        return archive, ledger

    def whole(self) -> tuple[Any, Any]:
        """Return the same up to the last micro-batch that is in both."""
        last = self.after(None)[-1]
        archive, ledger = (rows.where(F.col(BATCH) <= last) for rows in self.frames)
        return archive, ledger

    def near(self, batches: tuple[int, int], bound: Any) -> tuple[Any, Any]:
        """Return archive and ledger up to the last of these micro-batches, near in time to what moved in them."""
        first, last = batches
        now = F.col(BATCH).between(first, last)
        moved, more = (rows.where(now).select("ts") for rows in self.frames)
        near = reached(moved.unionByName(more), bound.clock, max(bound.span))
        here = (F.col(BATCH) <= last) & (F.lit(False) if near is None else near)
        archive, ledger = (rows.where(here) for rows in self.frames)
        return archive, ledger

    def _read(self, path: str) -> Any:
        """Return the rows of a folder; None: there is no file in it."""
        try:
            rows = self.spark.read.option("mergeSchema", "true").parquet(path)
            rows.columns  # noqa: B018 - Spark Connect looks only when asked
        except AnalysisException as error:
            if error.getCondition() != "UNABLE_TO_INFER_SCHEMA":
                raise
            return None
        return rows

    def after(self, last: int | None) -> list[int]:
        """Return the micro-batches that are whole and come after the last one that was refined, if any was.

        Raises:
            InputError: if one between them is not there.
        """
        todo = [number for number in self.ready if last is None or number > last]
        first = min(parts(self.ledger)) if last is None else last + 1
        if todo and todo != list(range(first, first + len(todo))):
            gone = next(number for number in range(first, todo[-1]) if number not in todo)
            want = "what was missed cannot be told without it; what was refined before it was removed is in into="
            raise InputError("archive", f"no part {BATCH}={gone}", want)
        return todo


def frames_of(kind: Kind, archive: Any, ledger: Any, spark: Any) -> tuple[Any, Any]:
    """Return a whole archive and its ledger as DataFrames, given as two folders or as such.

    Raises:
        InputError: if they are not such.
    """
    if isinstance(archive, str) and isinstance(ledger, str):
        return Folders(kind, archive, ledger, session_of(spark)).whole()
    for name, rows, columns in (("archive", archive, kind.identity), ("ledger", ledger, tuple(kind.lost))):
        if not hasattr(rows, "sparkSession") or rows.isStreaming:
            want = "give two folders that pen.write wrote, or two batch DataFrames of such"
            raise InputError(name, type(rows).__name__, want)
        columns_there(rows, columns, name)
    return archive, ledger


def columns_there(rows: Any, wanted: tuple[str, ...], name: str) -> None:
    """Raise if an archive or a ledger is none."""
    lacking = [column for column in wanted if column not in rows.columns]
    if lacking:
        got = f"no column {', '.join(lacking)} among {', '.join(rows.columns)}"
        raise ColumnError(name, got, f"give what pen.write({name}=) wrote")


def reached(rows: Any, clock: Clock, far: int) -> Any:
    """Return the condition that a time is near enough to some of these rows to be joined with it; None: no rows."""
    at = tick(F.col("ts"), clock)
    low, high = rows.agg(F.min(at), F.max(at)).first()
    if low is None:
        return None
    ends = [F.lit(low - far).cast("long"), F.lit(high + far).cast("long")]
    if clock.unit is not None:
        ends = [F.timestamp_micros(end) for end in ends]
    return F.col("ts").between(*ends)


def session_of(spark: Any) -> Any:
    """Return the session that was given, or the active one."""
    if spark is not None:
        return spark
    from pyspark.sql import SparkSession  # noqa: PLC0415 - asked only if none is given

    found = SparkSession.getActiveSession()
    if found is None:
        raise InputError("spark", "None, and no session is active", "give a SparkSession to read the folders with")
    return found


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def parts(path: str) -> dict[int, str]:
    """Return the parts of a folder that are whole, by their micro-batch."""
    system, base = place(path)
    inside = system.get_file_info(fs.FileSelector(base, allow_not_found=True))
    found = {int(name[1]): info.path for info in inside if (name := PART.fullmatch(info.base_name))}
    marks = system.get_file_info([f"{part}/{DONE}" for part in found.values()]) if found else []
    return {
        number: part
        for (number, part), mark in zip(found.items(), marks, strict=True)
        if mark.type != fs.FileType.NotFound
    }


def _same_arguments(into: str, settings: Any, names: tuple[str, ...]) -> None:
    """Note what the parts of a folder are made with, or raise if it was something else."""
    given = settings.arguments()
    today = json.loads(json.dumps({name: saving.encode(name, given[name]) for name in names}))
    system, base = place(into)
    path = f"{base}/{ABOUT}"
    if system.get_file_info([path])[0].type == fs.FileType.NotFound:
        system.create_dir(base)
        with system.open_output_stream(f"{path}.new") as file:
            file.write(json.dumps(today).encode())
        system.move(f"{path}.new", path)  # so that it is whole, or not there
        return
    with system.open_input_stream(path) as file:
        before = json.loads(file.read())
    for name in names:
        if before.get(name) != today[name]:
            want = f"this folder was made with {before.get(name)!r}: give that, or another folder"
            raise StateError(name, repr(given[name]), want)


def _removed(folders: Folders, bound: Any, keep: int, last: int) -> list[int]:
    """Remove the parts of the archive that only rows later than `keep` could still need; return their numbers.

    The kind tells, from the newest time of each stream in each micro-batch and the last one refined, up to which time
    everything that is not late is settled; None: nothing is.
    """
    newest = F.max(tick(F.col("ts"), bound.clock))
    ends = [
        (row[0], row[1], row[2]) for row in folders.frames[0].groupBy(BATCH, folders.kind.by).agg(newest).collect()
    ]
    settled = folders.kind.settled(ends, bound, last)
    if settled is None:
        return []
    limit = settled - keep - max(bound.span)
    needed = {number for number, _, end in ends if end >= limit}
    there, (system, _) = parts(folders.archive), place(folders.archive)
    gone = sorted({number for number, _, _ in ends if number <= last and number in there} - needed)
    for number in gone:
        system.delete_dir(there[number])
    return gone
