"""Complete the results of a stream from its archive and ledger: the missing pairs, as a batch job."""

import json
import re
from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.errors import ColumnError, InputError, StateError, TimeError, WindowError
from penstock.operator import saving
from penstock.operator.settings import SIDES, Bound, Settings, on_keys, repairable
from penstock.spark.pipeline import arrow_schema
from penstock.spark.writing import BATCH, OPEN, still_open, tick

IDENTITY = ("side", "shard", "arrival", "ts", *SIDES)
LOST = (*IDENTITY, "shed_at", "shed_at_arrival", "reason")
NOTHING = {
    "shed_at": "ts",
    "shed_at_arrival": "arrival",
    "reason": "side",
}  # what has the types of a ledger's columns
DONE, ABOUT = "_SUCCESS", "_refine.json"  # Spark's mark of a part that is whole; what the parts were made with
PART = re.compile(rf"{BATCH}=(\d+)")
MINE, THEIRS, UNTIL, PIECE, PLACE = (f"__penstock_{name}" for name in ("mine", "theirs", "until", "piece", "place"))
UNLIKE = ("float", "double", "collate")  # types in which equal values may have different hashes
WIDE = 4  # pieces of time are at least so many times as long as both windows: partners are mostly in one of them
SMALL = 1 << 27  # bytes of losses that every task can hold, with their rows
FEW = 4_000_000  # losses whose places, 16 bytes each, every task can hold
ROW_BYTES = 64  # of a loss beside its columns
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
        folders = Folders(archive, ledger, session_of(spark))
        last = folders.after(None)[-1]
        rows = [part.where(F.col(BATCH) <= last) for part in folders.frames()]
        return missing(rows[0], rows[1], settings)
    for name, rows, columns in (("archive", archive, IDENTITY), ("ledger", ledger, LOST)):
        if not hasattr(rows, "sparkSession") or rows.isStreaming:
            want = "give two folders that pen.write wrote, or two batch DataFrames of such"
            raise InputError(name, type(rows).__name__, want)
        columns_there(rows, columns, name)
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
    folders = Folders(archive, ledger, session_of(spark))
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

    def __init__(
        self,
        archive: str,
        ledger: str,
        spark: Any,
        columns: tuple[tuple[str, ...], tuple[str, ...]] = (IDENTITY, LOST),
    ) -> None:
        for name, path in (("archive", archive), ("ledger", ledger)):
            if not isinstance(path, str):
                raise InputError(name, type(path).__name__, "into= is for folders that pen.write wrote: give paths")
        self.archive, self.ledger, self.spark, self.columns = archive, ledger, spark, columns
        self.ready = sorted(_parts(archive).keys() & _parts(ledger).keys())
        if not self.ready:
            want = "give the folders that pen.write(archive=, ledger=) writes, after its first micro-batch"
            raise InputError("archive", f"no part in both {archive} and {ledger}", want)

    def frames(self) -> tuple[Any, Any]:
        """Return archive and ledger as DataFrames; a column that came later is null in older rows."""
        archive, ledger = (self._read(path) for path in (self.archive, self.ledger))
        if archive is None:
            raise InputError("archive", f"no row in {self.archive}", "refine when rows have come")
        columns_there(archive, self.columns[0], "archive")
        if ledger is None:  # nothing was given up, and the file that would say so is divided into folders
            ledger = archive.where(F.lit(False)).withColumns({name: F.col(was) for name, was in NOTHING.items()})
        columns_there(ledger, self.columns[1], "ledger")
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
        first = min(_parts(self.ledger)) if last is None else last + 1
        if todo and todo != list(range(first, first + len(todo))):
            gone = next(number for number in range(first, todo[-1]) if number not in todo)
            want = "what was missed cannot be told without it; what was refined before it was removed is in into="
            raise InputError("archive", f"no part {BATCH}={gone}", want)
        return todo


def missing(archive: Any, ledger: Any, settings: Settings) -> Any:
    """Return the pairs with a row that was gone, by the ledger, when the other came; each once, lazily.

    Cost: the archive is read once and looked up, by shard, key and piece of time, in what was lost while it could
    meet partners; while that is `SMALL`, nothing else moves.
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
    tardy = _tardy(archive.where(F.col(BATCH) <= last), bound)
    near = _reached(new, bound, far)
    pairs = _pairs(new, losses.where(F.lit(False) if near is None else near), losses, bound, tardy)
    near = _reached(late, bound, far)
    if near is not None:
        before = archive.where((F.col(BATCH) < first) & near)
        pairs = pairs.unionByName(_pairs(before, late, losses, bound, None))
    return _rows(pairs, bound)


def _reached(rows: Any, bound: Bound, far: int) -> Any:
    """Return the condition that a time is near enough to some of these rows to be joined with it; None: no rows."""
    at = tick(F.col("ts"), bound.clock)
    low, high = rows.agg(F.min(at), F.max(at)).first()
    if low is None:
        return None
    ends = [F.lit(low - far).cast("long"), F.lit(high + far).cast("long")]
    if bound.clock.unit is not None:
        ends = [F.timestamp_micros(end) for end in ends]
    return F.col("ts").between(*ends)


class Told(NamedTuple):
    """What the losses of one side are."""

    rows: int = 0
    bytes: int = 0
    late: int = 0


def _told(losses: Any, bound: Bound) -> list[Told]:
    """Return how much there is to look up on each side, in one look at it."""
    sizes = {}
    for at, side in enumerate(SIDES):
        kinds = losses.schema[side].dataType
        sizes[side] = sum(
            (_size(F.col(side).getField(name), kinds[name].dataType) for name in bound.schemas[at].names), F.lit(0)
        )
    size = F.when(F.col("side") == SIDES[0], sizes[SIDES[0]]).otherwise(sizes[SIDES[1]])
    late = F.count_if(F.col("reason") == "late")
    found = losses.groupBy("side").agg(F.count(F.lit(1)), F.sum(F.coalesce(size, F.lit(0)) + ROW_BYTES), late)
    told = {side: Told(*numbers) for side, *numbers in found.collect()}
    return [told.get(side, Told()) for side in SIDES]


def _size(column: Any, kind: Any) -> Any:
    """Return about how many bytes a value takes."""
    name = kind.simpleString()
    if name.startswith(("string", "binary", "char", "varchar")):
        return F.coalesce(F.length(column), F.lit(0))
    return F.coalesce(F.length(F.to_json(column)), F.lit(0)) if "<" in name else F.lit(8)


def _pairs(archive: Any, ledger: Any, losses: Any, bound: Bound, tardy: Any) -> Any:
    """Return the pairs of rows of a ledger with the rows of an archive that they missed, as structs.

    `losses` is all that was lost: a pair that is missing for its left row's sake is not counted for its right one's.
    Only a late row can be in such a pair: of others, the one that came second met, or was, what was still there.
    `tardy` says which rows of the archive came after newer ones; None: only losses whose window was open count.
    """
    early = ledger.where(still_open(bound) & (F.col(OPEN) == 1 if OPEN in ledger.columns else F.lit(True)))
    told = _told(early, bound)
    found = [_partners(archive, early, side, bound, told[side]) for side in range(2)]
    if tardy is not None:
        waited, few = ledger.where(~still_open(bound)), archive.where(tardy)
        found = [some.unionByName(_partners(few, waited, side, bound, None)) for side, some in enumerate(found)]
    if not sum(side.late for side in told):
        return found[0].unionByName(found[1])
    gone = losses.where(F.col("side") == SIDES[0]).select(
        F.col("shard").alias("__penstock_shard"), F.col("arrival").alias(MINE), F.col("shed_at_arrival").alias(UNTIL)
    )
    twice = (
        (F.col("shard") == F.col("__penstock_shard"))
        & (F.col("left_arrival") == F.col(MINE))
        & (F.col(UNTIL) <= F.col("right_arrival"))
    )
    return found[0].unionByName(found[1].join(gone, twice, "left_anti"))


def _tardy(archive: Any, bound: Bound) -> Any:
    """Return the condition of rows that came in a later micro-batch than some newer one; None if there are none."""
    if BATCH not in archive.columns:
        return F.lit(True)
    at = tick(F.col("ts"), bound.clock)
    newest, late = None, None
    for batch, low, high in sorted(archive.groupBy(BATCH).agg(F.min(at), F.max(at)).collect()):
        if newest is not None and low < newest:
            here = (F.col(BATCH) == batch) & (at < newest)
            late = here if late is None else late | here
        newest = high if newest is None else max(newest, high)
    return late


def _partners(archive: Any, ledger: Any, side: int, bound: Bound, told: Told | None) -> Any:
    """Return the pairs that are missing because of a row of this side.

    Every task gets the losses, if they are small, and looks the rows of the archive up in them. If only their number
    is, it gets a hash of each place where they look for partners, and only rows of the archive there are shuffled.
    `told` says which; None: nobody counted.
    """
    mine, theirs = SIDES[side], SIDES[1 - side]
    own, others = bound.keys[side], bound.keys[1 - side]
    bits = (WIDE * sum(bound.span)).bit_length()  # of a time within its piece
    before, after = bound.span[1 - side] - 1, bound.span[side] - 1  # how far a partner may be
    at = tick(F.col("ts"), bound.clock)
    ends = [F.shiftright(at - before, bits), F.shiftright(at + after, bits)]
    pieces = F.when(ends[0] == ends[1], F.array(ends[0])).otherwise(F.array(*ends))
    shed = ledger.where(F.col("side") == mine).select(
        "shard",
        F.col("arrival").alias(f"{mine}_arrival"),
        F.col("shed_at_arrival").alias(UNTIL),
        at.alias(MINE),
        mine,
        F.explode(pieces).alias(PIECE),
    )
    rows = archive.where(F.col("side") == theirs).select(
        F.col("arrival").alias(f"{theirs}_arrival"),
        at.alias(THEIRS),
        theirs,
        F.shiftright(at, bits).alias(f"{PIECE}_"),
    )
    same = [
        (F.col(mine).getField(name), F.col(theirs).getField(other)) for name, other in zip(own, others, strict=True)
    ]
    meets = [
        (F.col(THEIRS) - F.col(MINE)).between(-before, after),
        F.col(f"{theirs}_arrival") >= F.col(UNTIL),
    ]
    types = [_kinds(frame, name, keys) for frame, name, keys in ((shed, mine, own), (rows, theirs, others))]
    if types[0] != types[1] or any(word in kind for kind in types[0] for word in UNLIKE):
        meets += [F.col(PIECE) == F.col(f"{PIECE}_"), *(one == other for one, other in same)]
    else:  # one number is looked up faster than several columns; what is equal is then compared
        # The pieces of one loss have different places: no pair is found twice, whatever the hash.
        shed = shed.withColumn(PLACE, F.xxhash64(*(one for one, _ in same)).bitwiseXOR(F.col(PIECE)))
        place = F.xxhash64(*(other for _, other in same)).bitwiseXOR(F.col(f"{PIECE}_"))
        rows = rows.withColumn(f"{PLACE}_", place)
        meets += [F.col(PLACE) == F.col(f"{PLACE}_"), *(one.between(other, other) for one, other in same)]
        if told is not None and told.bytes > SMALL and told.rows <= FEW:
            places = shed.select(F.col(PLACE).alias(f"{PLACE}_")).distinct()
            rows = rows.join(F.broadcast(places), f"{PLACE}_", "left_semi")
    if told is not None and told.bytes <= SMALL:
        shed = F.broadcast(shed)
    found = rows.join(shed, reduce(lambda a, b: a & b, meets))  # equal keys are in one shard
    return found.select("shard", "left_arrival", "right_arrival", *SIDES)


def _kinds(rows: Any, struct: str, names: list[str]) -> list[str]:
    """Return the types of some columns of a row, in words."""
    return [str(rows.schema[struct].dataType[name].dataType.simpleString()) for name in names]


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


def columns_there(rows: Any, wanted: tuple[str, ...], name: str) -> None:
    """Raise if an archive or a ledger is none."""
    lacking = [column for column in wanted if column not in rows.columns]
    if lacking:
        got = f"no column {', '.join(lacking)} among {', '.join(rows.columns)}"
        raise ColumnError(name, got, f"give what pen.write({name}=) wrote")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def session_of(spark: Any) -> Any:
    """Return the session that was given, or the active one."""
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
    latest = F.max(tick(F.col("ts"), bound.clock))
    newest = {row[0]: row[1] for row in archive.groupBy(BATCH).agg(latest).collect()}
    if not newest:
        return []
    limit = max(newest.values()) - keep - max(bound.span)
    parts = _parts(folders.archive)
    system, _ = _place(folders.archive)
    gone = [number for number in sorted(parts) if number <= last and newest.get(number, limit) < limit]
    for number in gone:
        system.delete_dir(parts[number])
    return gone
