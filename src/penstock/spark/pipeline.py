"""Build the DataFrame of a join: packed, shuffled by shard, joined, with the books beside the rows."""

import itertools
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import MapType, VariantType

from penstock.errors import BudgetError, ColumnError, InputError, TimeError
from penstock.operator.settings import SIDES, WATERMARK, Bound, Settings, budget, pair, present
from penstock.spark import backtest, packing, session
from penstock.spark.books import BETWEEN, OBSERVED
from penstock.spark.processor import Processor
from penstock.spark.task import BESIDE, BOOK, MILLISECOND, Task, output_schema

DELAY = "spark.watermarkDelayMs"  # what withWatermark leaves in a column's metadata
MADE_OF = "_penstock_made_of"  # what a joined DataFrame was made of, for ``penstock.write``
MANY = (1 << 31) - 1
_numbers = itertools.count(1)


def join(left: Any, right: Any, settings: Settings) -> Any:
    """Join two DataFrames, both streaming or both not; lazy, like every transformation.

    Raises:
        InputError: if the inputs cannot be joined as asked, before anything runs.
    """
    raw, bound = operator(left, right, settings)
    joined = rows_of(raw, bound)
    setattr(joined, MADE_OF, (left, right, settings))
    return joined


def rows_of(raw: Any, bound: Bound) -> Any:
    """Return the joined rows among what leaves the operator."""
    return raw.where(F.col(BESIDE).isNull()).select(*map(column, bound.schema.names))


def beside(kind: int) -> Any:
    """Return the column of the bytes of one kind that leave beside the rows; null elsewhere."""
    data = F.col(BESIDE)
    return F.when(F.substring(data, 1, 1) == F.lit(bytearray([kind])), F.substring(data, 2, MANY))


def operator(left: Any, right: Any, settings: Settings, wanted: frozenset[int] = frozenset()) -> tuple[Any, Bound]:
    """Return everything that leaves the operator, and the arguments checked; `wanted` as in ``Task``."""
    for name, frame in zip(SIDES, (left, right), strict=True):
        if not hasattr(frame, "isStreaming"):
            raise InputError(name, type(frame).__name__, "give two Spark DataFrames, or none")
    streaming = [frame.isStreaming for frame in (left, right)]
    if streaming[0] != streaming[1]:
        kinds = " and ".join("streaming" if one else "batch" for one in streaming)
        raise InputError("right", f"{kinds} DataFrames", "give two streaming or two batch DataFrames")
    schemas = (arrow_schema(left, "left"), arrow_schema(right, "right"))
    arguments = {**settings.arguments(), "shards": None}
    if streaming[0]:
        session.check(left.sparkSession)
        arguments["lateness"] = _lateness(settings, left, right)
    bound = Bound(Settings(**arguments), *schemas)
    if streaming[0] and bound.by_rows and settings.event_time is not None:
        want = "windows in rows give pairs once the watermark has passed them: they have no event time; leave it None"
        raise InputError("event_time", repr(settings.event_time), want)
    _told_apart(bound, left.sparkSession)
    shards = _shards(settings, bound, left.sparkSession)
    task = Task(arguments, schemas, shares(settings, shards), wanted)
    frames = (_fingerprinted(left), _fingerprinted(right))
    raw = _streamed(frames, bound, task) if streaming[0] else backtest.joined(frames, bound, task)
    name = f"{OBSERVED}_{next(_numbers)}"
    # One aggregate and no more: Spark asks each of them about every row.
    books = F.concat_ws(BETWEEN, F.collect_list(beside(BOOK).cast("string")))
    policy = "exact" if bound.unit == "none" else str(settings.chosen)
    words = [F.lit(policy).alias("policy"), F.lit(settings.mode).alias("mode")]
    return raw.observe(name, *words, books.alias("books")), bound


def arrow_schema(frame: Any, name: str) -> pa.Schema:
    """Return the Arrow schema in which a DataFrame's rows come."""
    if _has(frame.schema, VariantType):
        want = "a column's type does not travel: variants cannot be hashed; make it text with to_json"
        raise ColumnError(name, frame.schema.simpleString(), want)
    try:
        return to_arrow_schema(frame.schema, timezone="UTC")
    except Exception as error:
        raise ColumnError(name, frame.schema.simpleString(), f"a column's type does not travel: {error}") from error


def _lateness(settings: Settings, left: Any, right: Any) -> object:
    """Return what makes rows of streams late: without a budget Spark's watermark alone, as for Spark's own join.

    With a budget, rows also expire between watermarks, which come once a micro-batch: as soon as the next one,
    by the delays of both streams, is sure to be past them.
    """
    delays = []
    for name, frame, column in zip(SIDES, (left, right), pair("time", settings.time), strict=True):
        present(arrow_schema(frame, name), column, SIDES.index(name), "time")
        kind = frame.schema[column].dataType.simpleString()
        if not kind.startswith("timestamp"):
            want = "streams need event time: use timestamp_seconds(column) and a watermark on it"
            raise TimeError(f"time={column!r}", f"{kind} on the {name}", want)
        if DELAY not in (frame.schema[column].metadata or {}):
            want = f'say how late rows may be: {name} = {name}.withWatermark("{column}", "10 minutes")'
            raise TimeError(f"time={column!r}", f"no watermark on the {name}", want)
        delays.append(int(frame.schema[column].metadata[DELAY]) * MILLISECOND)
    return WATERMARK if settings.memory is None else (WATERMARK, f"{max(delays) + MILLISECOND - 1} us")


def _told_apart(bound: Bound, spark: Any) -> None:
    """Raise if Spark takes two columns of the result for one."""
    if spark.conf.get("spark.sql.caseSensitive") == "true":
        return
    seen: dict[str, str] = {}
    for name in bound.schema.names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            want = "for Spark they are one: rename one before the join"
            raise ColumnError("result", f"columns named {other!r} and {name!r}", want)


def _shards(settings: Settings, bound: Bound, spark: Any) -> int:
    if bound.by_rows or settings.chosen.name == "replay":
        if settings.shards not in {None, 1}:
            what = "windows in rows count" if bound.by_rows else "schedules number rows"
            want = f"{what} over the whole stream: they run on one shard; leave it None"
            raise InputError("shards", str(settings.shards), want)
        return 1
    return settings.shards or int(spark.conf.get("spark.sql.shuffle.partitions"))


def shares(settings: Settings, shards: int) -> list[tuple[Any, Any]]:
    """Return memory and split of each shard: equal parts, the first shards get what is left over."""
    unit, limit, shared = budget(settings.memory, settings.split)
    if unit == "none":
        return [(None, settings.split)] * shards
    parts = [[total // shards + (at < total % shards) for at in range(shards)] for total in limit]
    if min(map(min, parts)) < 1:
        want = f"each of the {shards} shards needs some: give more, or fewer shards="
        raise BudgetError("memory", repr(settings.memory), want)
    if unit == "bytes":
        sums = [a if shared else a + b for a, b in zip(*parts, strict=True)]
        return [(f"{size}B", settings.split) for size in sums]
    if shared:
        return [(rows, "shared") for rows in parts[0]]
    return [(a + b, (a, b)) for a, b in zip(*parts, strict=True)]


def _fingerprinted(frame: Any) -> Any:
    """Add a hash of every row's content: it orders rows of one moment alike in every run."""
    # Numbers for names: mapInArrow does not take every name that a DataFrame does.
    numbered = [column(field.name).alias(str(at)) for at, field in enumerate(frame.schema)]
    return frame.select(*numbered, fingerprint(frame).alias(packing.FINGERPRINT))


def fingerprint(frame: Any) -> Any:
    """Return a hash of every row's content, as a column."""
    columns = [(column(field.name), field.dataType) for field in frame.schema]
    return F.xxhash64(*(F.to_json(value) if _has(kind, MapType) else value for value, kind in columns))


def column(name: str) -> Any:
    """Return the column of this name, whatever characters are in it."""
    quoted = name.replace("`", "``")
    return F.col(f"`{quoted}`")


def _has(kind: Any, wanted: type) -> bool:
    """Say whether a type is of this kind, or a part of it is."""
    parts = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    parts += [field.dataType for field in getattr(kind, "fields", ())]
    return isinstance(kind, wanted) or any(_has(part, wanted) for part in parts if part is not None)


def _streamed(frames: tuple[Any, Any], bound: Bound, task: Task) -> Any:
    packed = [
        frame.mapInArrow(packing.packer(bound, side, task.shards, sketching=task.moves), packing.PACKED_DDL)
        for side, frame in enumerate(frames)
    ]
    return (
        packed[0]
        .union(packed[1])
        .groupBy("shard")
        .transformWithStateInPandas(
            Processor(task),
            outputStructType=from_arrow_schema(output_schema(bound)),
            outputMode="Append",
            timeMode="EventTime",
            eventTimeColumnName=bound.settings.event_time or "",
        )
    )
