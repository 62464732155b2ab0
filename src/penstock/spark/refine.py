"""Complete the results of a stream from its archive and ledger: the missing pairs, as a batch job."""

import json
import re
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.errors import ColumnError, InputError, StateError, TimeError, WindowError
from penstock.operator import saving
from penstock.operator.settings import SIDES, Bound, Settings, on_keys, repairable
from penstock.spark.pipeline import arrow_schema
from penstock.spark.writing import BATCH

IDENTITY = ("side", "shard", "arrival", "ts", *SIDES)
LOST = (*IDENTITY, "shed_at", "shed_at_arrival", "reason")
DONE, ABOUT = "_SUCCESS", "_refine.json"  # Spark's mark of a part that is whole; what the parts were made with
PART = re.compile(rf"{BATCH}=(\d+)")
MINE, THEIRS, UNTIL, BUCKET, LOW, HIGH, PLACE = (
    f"__penstock_{name}" for name in ("mine", "theirs", "until", "bucket", "low", "high", "place")
)
UNLIKE = ("float", "double", "collate")  # types in which equal values may have different hashes
FEW = 4_000_000  # rows of a ledger whose places, two each and 16 bytes, every task can hold
COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "min": F.least,
    "max": F.greatest,
    "sum": lambda left, right: left + right,
    "product": lambda left, right: left * right,
    "mean": lambda left, right: (left + right) / 2,
}


class Part(NamedTuple):
    """What was added by one step: the pairs that these micro-batches, first to last, left out."""

    first: int
    last: int
    rows: int


class Refined(NamedTuple):
    """What a run of ``refine`` added to its folder, and the parts of the archive that it removed."""

    parts: list[Part]
    removed: list[int]
    rows: Any  # DataFrame: all that is in the folder now


def refine(archive: Any, ledger: Any, settings: Settings, spark: Any) -> Any:
    """Return the missing rows of a whole archive; arguments as for ``penstock.refine``."""
    repairable(on_keys(settings))
    if isinstance(archive, str) and isinstance(ledger, str):
        folders = Folders(archive, ledger, _session(spark))
        last = folders.after(None)[-1]
        rows = [part.where(F.col(BATCH) <= last) for part in folders.frames()]
        return missing(rows[0], rows[1], settings)
    for name, rows, columns in (("archive", archive, IDENTITY), ("ledger", ledger, LOST)):
        if not hasattr(rows, "sparkSession") or rows.isStreaming:
            want = "give two folders that pen.write wrote, or two batch DataFrames of such"
            raise InputError(name, type(rows).__name__, want)
        _columns_there(rows, columns, name)
    return missing(archive, ledger, settings)


def refine_into(
    archive: str,
    ledger: str,
    into: str,
    settings: Settings,
    *,
    spark: Any = None,
    batches: int = 100,
    keep: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Refined:
    """Add what is missing of the micro-batches that are not refined yet to a folder, some at a time.

    A pair belongs to the micro-batch in which its second row came: whatever it takes to know that it is missing is
    there by then, and nothing changes that later. So a part that is whole is not done again, and a stream that goes
    on can be refined up to its last micro-batch.

    Raises:
        InputError: if the folders are not such, or parts are gone that are needed.
        StateError: if the folder was made with other arguments.
    """
    repairable(on_keys(settings))
    if isinstance(batches, bool) or not isinstance(batches, int) or batches < 1:
        raise InputError("batches", repr(batches), "give a number of micro-batches, at least 1")
    folders = Folders(archive, ledger, _session(spark))
    todo = folders.after(max(_parts(into), default=None))
    frames = folders.frames()
    bound = _bound(frames[0], settings)
    patience = None if keep is None else bound.clock.ticks("keep", keep)
    _same_arguments(into, settings)
    done = []
    for at in range(0, len(todo), batches):
        first, last = todo[at], todo[min(at + batches, len(todo)) - 1]
        path = f"{into}/{BATCH}={last}"
        _missing_of(frames[0], frames[1], (first, last), bound).write.mode("overwrite").parquet(path)
        done.append(Part(first, last, folders.spark.read.parquet(path).count()))
        if progress is not None:
            progress(min(at + batches, len(todo)), len(todo))
    removed = [] if patience is None else _removed(folders, frames[0], bound, patience, max(_parts(into)))
    return Refined(done, removed, folders.spark.read.parquet(into).select(*map(_quoted, bound.schema.names)))


class Folders:
    """An archive and a ledger as ``penstock.write`` leaves them, and which of their parts are whole."""

    def __init__(self, archive: str, ledger: str, spark: Any) -> None:
        for name, path in (("archive", archive), ("ledger", ledger)):
            if not isinstance(path, str):
                raise InputError(name, type(path).__name__, "into= is for folders that pen.write wrote: give paths")
        self.archive, self.ledger, self.spark = archive, ledger, spark
        self.ready = sorted(_parts(archive).keys() & _parts(ledger).keys())
        if not self.ready:
            want = "give the folders that pen.write(archive=, ledger=) writes, after its first micro-batch"
            raise InputError("archive", f"no part in both {archive} and {ledger}", want)

    def frames(self) -> tuple[Any, Any]:
        """Return archive and ledger as DataFrames; a column that came later is null in older rows."""
        rows = [self.spark.read.option("mergeSchema", "true").parquet(path) for path in (self.archive, self.ledger)]
        _columns_there(rows[0], IDENTITY, "archive")
        _columns_there(rows[1], LOST, "ledger")
        return rows[0], rows[1]

    def after(self, last: int | None) -> list[int]:
        """Return the micro-batches that are whole and come after the last one that was refined, if any was.

        Raises:
            InputError: if one between them is not there.
        """
        todo = [number for number in self.ready if last is None or number > last]
        first = min(_parts(self.ledger)) if last is None else last + 1
        if todo and todo != list(range(first, first + len(todo))):
            gone = next(number for number in range(first, todo[-1]) if number not in todo)
            want = "what was missed cannot be told without it; what was refined before it was removed is in into="
            raise InputError("archive", f"no part {BATCH}={gone}", want)
        return todo


def missing(archive: Any, ledger: Any, settings: Settings) -> Any:
    """Return the pairs with a row that was gone, by the ledger, when the other came; each once, lazily.

    Cost: a hash join of the ledger with the archive, by shard, key and time in pieces as long as both windows.
    """
    bound = _bound(archive, settings)
    return _rows(_pairs(archive, ledger, ledger, bound, _tardy(archive, bound)), bound)


def _missing_of(archive: Any, ledger: Any, batches: tuple[int, int], bound: Bound) -> Any:
    """Return the missing pairs whose second row came in these micro-batches.

    Their partners are read by time: what is out of reach of their window stays on the disk.
    """
    first, last = batches
    far = max(bound.span)
    now = F.col(BATCH).between(first, last)
    new, losses = archive.where(now), ledger.where(F.col(BATCH) <= last)
    late = losses.where(now & (F.col("reason") == "late"))
    near = losses.where(_reached(new, bound, far))
    before = archive.where((F.col(BATCH) < first) & _reached(late, bound, far))
    tardy = _tardy(archive.where(F.col(BATCH) <= last), bound)
    pairs = _pairs(new, near, losses, bound, tardy).unionByName(_pairs(before, late, losses, bound, None))
    return _rows(pairs, bound)


def _reached(rows: Any, bound: Bound, far: int) -> Any:
    """Return the condition that a time is near enough to some of these rows to be joined with it."""
    tick = _tick(F.col("ts"), bound)
    low, high = rows.agg(F.min(tick), F.max(tick)).first()
    if low is None:
        return F.lit(False)
    ends = [F.lit(low - far).cast("long"), F.lit(high + far).cast("long")]
    if bound.clock.unit is not None:
        ends = [F.timestamp_micros(end) for end in ends]
    return F.col("ts").between(*ends)


def _pairs(archive: Any, ledger: Any, losses: Any, bound: Bound, tardy: Any) -> Any:
    """Return the pairs of rows of a ledger with the rows of an archive that they missed, as structs.

    `losses` is all that was lost: a pair that is missing for its left row's sake is not counted for its right one's.
    `tardy` says which rows of the archive came after newer ones; None: only losses whose window was open count.
    """
    found = [_partners_of_all(archive, ledger, side, bound, tardy) for side in range(2)]
    gone = losses.where(F.col("side") == SIDES[0]).select(
        F.col("shard").alias("__penstock_shard"), F.col("arrival").alias(MINE), F.col("shed_at_arrival").alias(UNTIL)
    )
    twice = (
        (F.col("shard") == F.col("__penstock_shard"))
        & (F.col("left_arrival") == F.col(MINE))
        & (F.col(UNTIL) <= F.col("right_arrival"))
    )
    return found[0].unionByName(found[1].join(gone, twice, "left_anti"))


def _partners_of_all(archive: Any, ledger: Any, side: int, bound: Bound, tardy: Any) -> Any:
    """Return the pairs that are missing because of a row of this side, whenever it was given up.

    A row that was given up when its window had passed waited for late rows, and missed none but those: rows that came
    in a later micro-batch than others with their time. In most streams these are few, and such losses are most.
    """
    mine = ledger.where(F.col("side") == SIDES[side])
    ended = _tick(F.col("shed_at"), bound) >= _tick(F.col("ts"), bound) + bound.span[side]
    waited = (F.col("reason") != "late") & ended
    found = _partners(archive, mine.where(~waited), side, bound)
    if tardy is None:
        return found
    return found.unionByName(_partners(archive.where(tardy), mine.where(waited), side, bound))


def _tardy(archive: Any, bound: Bound) -> Any:
    """Return the condition of rows that came in a later micro-batch than some newer one; None if there are none."""
    if BATCH not in archive.columns:
        return F.lit(True)
    tick = _tick(F.col("ts"), bound)
    newest, late = None, None
    for batch, low, high in sorted(archive.groupBy(BATCH).agg(F.min(tick), F.max(tick)).collect()):
        if newest is not None and low < newest:
            here = (F.col(BATCH) == batch) & (tick < newest)
            late = here if late is None else late | here
        newest = high if newest is None else max(newest, high)
    return late


def _partners(archive: Any, ledger: Any, side: int, bound: Bound) -> Any:
    """Return the pairs that are missing because of a row of this side.

    If the ledger is not too long, every task gets a hash of each place where it looks for partners, and only rows of
    the archive at such a place are shuffled.
    """
    mine, theirs = SIDES[side], SIDES[1 - side]
    own, others = bound.keys[side], bound.keys[1 - side]
    width = sum(bound.span)  # so a row's partners are in two pieces of time at most
    low, high = F.col(MINE) - bound.span[1 - side] + 1, F.col(MINE) + bound.span[side] - 1
    shed = (
        ledger.where(F.col("side") == mine)
        .select(
            "shard",
            F.col("arrival").alias(f"{mine}_arrival"),
            F.col("shed_at_arrival").alias(UNTIL),
            _tick(F.col("ts"), bound).alias(MINE),
            mine,
        )
        .select("*", low.alias(LOW), high.alias(HIGH))
    )
    pieces = F.array_distinct(F.array(_piece(LOW, width), _piece(HIGH, width)))
    rows = (
        archive.where(F.col("side") == theirs)
        .select(
            F.col("shard").alias("__penstock_shard"),
            F.col("arrival").alias(f"{theirs}_arrival"),
            _tick(F.col("ts"), bound).alias(THEIRS),
            theirs,
        )
        .select("*", _piece(THEIRS, width).alias(f"{BUCKET}_"))
    )
    keys = [
        F.col(mine).getField(name) == F.col(theirs).getField(other) for name, other in zip(own, others, strict=True)
    ]
    meets = [
        F.col("shard") == F.col("__penstock_shard"),
        F.col(BUCKET) == F.col(f"{BUCKET}_"),
        *keys,
        F.col(THEIRS).between(F.col(LOW), F.col(HIGH)),
        F.col(f"{theirs}_arrival") >= F.col(UNTIL),
    ]
    shed = shed.select("*", F.explode(pieces).alias(BUCKET))
    types = [_kinds(frame, name, keys) for frame, name, keys in ((shed, mine, own), (rows, theirs, others))]
    few = ledger.limit(FEW + 1).count() <= FEW
    if few and types[0] == types[1] and not any(word in kind for kind in types[0] for word in UNLIKE):
        places = shed.select(F.xxhash64("shard", BUCKET, *(F.col(mine).getField(name) for name in own)).alias(PLACE))
        place = F.xxhash64("__penstock_shard", f"{BUCKET}_", *(F.col(theirs).getField(name) for name in others))
        rows = rows.withColumn(PLACE, place).join(F.broadcast(places.distinct()), PLACE, "left_semi").drop(PLACE)
    found = shed.join(rows, reduce(lambda a, b: a & b, meets))
    return found.select("shard", "left_arrival", "right_arrival", *SIDES)


def _kinds(rows: Any, struct: str, names: list[str]) -> list[str]:
    """Return the types of some columns of a row, in words."""
    return [str(rows.schema[struct].dataType[name].dataType.simpleString()) for name in names]


def _piece(name: str, width: int) -> Any:
    """Return the number of the piece of time in which a tick is; whole numbers, so that no tick falls between."""
    return F.expr(f"({name} - pmod({name}, {width}L)) div {width}L")


def _tick(column: Any, bound: Bound) -> Any:
    return column.cast("long") if bound.clock.unit is None else F.unix_micros(column)


def _rows(pairs: Any, bound: Bound) -> Any:
    """Return pairs with the columns of the join's result."""
    fields = from_arrow_schema(bound.schema).fields
    columns = []
    for at, (name, side, source) in enumerate(bound.layout):
        value = F.col(SIDES[side]).getField(source)
        widened = bound.using and at < len(bound.keys[0])  # a key that is there once has the type of both
        columns.append((value.cast(fields[at].dataType) if widened else value).alias(name))
    if bound.importance:
        each = [F.col(side).getField(name).cast("double") for side, name in zip(SIDES, bound.importance, strict=True)]
        columns.append(COMBINED[bound.settings.combine](*each).alias("importance"))
    if bound.settings.event_time is not None:
        times = [F.col(side).getField(name) for side, name in zip(SIDES, bound.time, strict=True)]
        columns.append(F.greatest(*times).alias(bound.settings.event_time))
    return pairs.select(*columns)


def _bound(archive: Any, settings: Settings) -> Bound:
    """Check the arguments of the join against the rows in its archive."""
    schemas = [arrow_schema(archive.select(f"{name}.*"), name) for name in SIDES]
    bound = Bound(Settings(**{**settings.arguments(), "shards": None, "lateness": 0}), *schemas).unbounded()
    if bound.by_rows:
        want = "which rows are in a window in rows takes a count of the whole archive: only time windows are refined"
        raise WindowError("window", str(settings.window), want)
    if pa.types.is_timestamp(bound.clock.type) and bound.clock.type.tz is None:
        raise TimeError("time", "timestamps without a time zone", "streams have none such: cast them to timestamp")
    return bound


def _columns_there(rows: Any, wanted: tuple[str, ...], name: str) -> None:
    lacking = [column for column in wanted if column not in rows.columns]
    if lacking:
        got = f"no column {', '.join(lacking)} among {', '.join(rows.columns)}"
        raise ColumnError(name, got, f"give what pen.write({name}=) wrote")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _session(spark: Any) -> Any:
    if spark is not None:
        return spark
    from pyspark.sql import SparkSession  # noqa: PLC0415 - asked only if none is given

    found = SparkSession.getActiveSession()
    if found is None:
        raise InputError("spark", "None, and no session is active", "give a SparkSession to read the folders with")
    return found


# --- folders ------------------------------------------------------------------------------------------------------


def _place(path: str) -> tuple[Any, str]:
    """Return the file system of a path, and the path in it."""
    if "://" not in path and not path.startswith("file:"):
        return fs.LocalFileSystem(), path
    try:
        return fs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", path))
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            "path", path, f"give a local path, or one of file, s3, gs, abfs or hdfs ({error})"
        ) from error


def _parts(path: str) -> dict[int, str]:
    """Return the parts of a folder that are whole, by their micro-batch."""
    system, base = _place(path)
    inside = system.get_file_info(fs.FileSelector(base, allow_not_found=True))
    found = {int(name[1]): info.path for info in inside if (name := PART.fullmatch(info.base_name))}
    marks = system.get_file_info([f"{part}/{DONE}" for part in found.values()]) if found else []
    return {
        number: part
        for (number, part), mark in zip(found.items(), marks, strict=True)
        if mark.type != fs.FileType.NotFound
    }


def _same_arguments(into: str, settings: Settings) -> None:
    """Note what the parts of a folder are made with, or raise if it was something else."""
    names = ("on", "time", "window", "importance", "combine", "event_time")
    given = settings.arguments()
    today = json.loads(json.dumps({name: saving.encode(name, given[name]) for name in names}))
    system, base = _place(into)
    path = f"{base}/{ABOUT}"
    if system.get_file_info([path])[0].type == fs.FileType.NotFound:
        system.create_dir(base)
        with system.open_output_stream(path) as file:
            file.write(json.dumps(today).encode())
        return
    with system.open_input_stream(path) as file:
        before = json.loads(file.read())
    for name in names:
        if before.get(name) != today[name]:
            want = f"this folder was made with {before.get(name)!r}: give that, or another folder"
            raise StateError(name, repr(given[name]), want)


def _removed(folders: Folders, archive: Any, bound: Bound, keep: int, last: int) -> list[int]:
    """Remove the parts of the archive that only rows later than `keep` could still need; return their numbers."""
    tick = F.max(_tick(F.col("ts"), bound))
    newest = {row[0]: row[1] for row in archive.groupBy(BATCH).agg(tick).collect()}
    if not newest:
        return []
    limit = max(newest.values()) - keep - max(bound.span)
    parts = _parts(folders.archive)
    system, _ = _place(folders.archive)
    gone = [number for number in sorted(parts) if number <= last and newest.get(number, limit) < limit]
    for number in gone:
        system.delete_dir(parts[number])
    return gone
