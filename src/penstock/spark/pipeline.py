"""Build the DataFrame of a join: packed, shuffled by shard, joined, with the books beside the rows."""

import itertools
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import MapType, VariantType

from penstock.errors import BudgetError, ColumnError, InputError, TimeError
from penstock.operator import several
from penstock.operator.ordering import Ordered
from penstock.operator.settings import SIDES, WATERMARK, Settings, budget, pair, present
from penstock.operator.settings import Bound as TwoBound
from penstock.planner.statistics import per_stream
from penstock.policies.cpu.controller import Cpu
from penstock.spark import backtest, packing, session
from penstock.spark.books import BETWEEN, OBSERVED
from penstock.spark.processor import Processor
from penstock.spark.task import BESIDE, BOOK, MILLISECOND, Bound, MultiTask, Task, output_schema
from penstock.streams.sets import Condition

DELAY = "spark.watermarkDelayMs"  # what withWatermark leaves in a column's metadata
MADE_OF = "_penstock_made_of"  # what a joined DataFrame was made of, for ``penstock.write``
MANY = (1 << 31) - 1
_numbers = itertools.count(1)


def join(left: Any, right: Any, settings: Settings) -> Any:
    """Join two DataFrames, both streaming or both not; lazy, like every transformation.

    Raises:
        InputError: if the inputs cannot be joined as asked, before anything runs.
    """
    return _joined({"left": left, "right": right}, settings)


def multijoin(streams: Mapping[str, Any], settings: several.Settings) -> Any:
    """Join several DataFrames, all streaming or all not; as ``join``."""
    for name in streams:
        if not isinstance(name, str) or not name:
            raise InputError("streams", repr(name), "name each stream with a word")
    return _joined(streams, settings)


def _joined(frames: Mapping[str, Any], settings: Settings | several.Settings) -> Any:
    raw, bound = operator(frames, settings)
    joined = rows_of(raw, bound)
    setattr(joined, MADE_OF, (frames, settings))
    return joined


def rows_of(raw: Any, bound: Bound) -> Any:
    """Return the joined rows among what leaves the operator."""
    return raw.where(F.col(BESIDE).isNull()).select(*map(column, bound.schema.names))


def beside(kind: int) -> Any:
    """Return the column of the bytes of one kind that leave beside the rows; null elsewhere."""
    data = F.col(BESIDE)
    return F.when(F.substring(data, 1, 1) == F.lit(bytearray([kind])), F.substring(data, 2, MANY))


def operator(
    frames: Mapping[str, Any], settings: Settings | several.Settings, wanted: frozenset[int] = frozenset()
) -> tuple[Any, Bound]:
    """Return everything that leaves the operator, and the arguments checked; `wanted` as in ``Task``."""
    for name, frame in frames.items():
        if not hasattr(frame, "isStreaming"):
            raise InputError(name, type(frame).__name__, "give Spark DataFrames only, or none")
    first, *others = frames
    for name in others:
        if frames[name].isStreaming != frames[first].isStreaming:
            kinds = " and ".join("streaming" if frames[one].isStreaming else "batch" for one in (first, name))
            raise InputError(name, f"{kinds} DataFrames", "give streaming or batch DataFrames, not both")
    spark, streaming = frames[first].sparkSession, frames[first].isStreaming
    schemas = {name: arrow_schema(frame, name) for name, frame in frames.items()}
    arguments = {**settings.arguments(), "shards": None}
    if streaming:
        session.check(spark)
        arguments["lateness"] = _lateness(settings, frames)
    elif isinstance(settings, several.Settings) and settings.lateness != 0:
        raise InputError("lateness", repr(settings.lateness), "whole inputs are put in order of time: leave it 0")
    bound = _bound(settings, arguments, schemas)
    if streaming and bound.event_time is not None and bound.one_shard.startswith("windows in rows"):
        want = "windows in rows give pairs once the watermark has passed them: they have no event time; leave it None"
        raise InputError("event_time", repr(bound.event_time), want)
    if streaming and bound.event_time is not None and isinstance(bound, TwoBound) and bound.ordered:
        want = "with cpu= rows wait until the watermark has passed them: pairs have no event time; leave it None"
        raise InputError("event_time", repr(bound.event_time), want)
    _told_apart(bound, spark)
    shards = _shards(settings, bound, spark)
    _comparable(settings, shards)
    task: Task
    if isinstance(settings, Settings):
        task = Task(arguments, tuple(schemas.values()), shares(settings, shards), wanted, _turns(shards, spark))
    else:
        budgets = [memory for memory, _ in shares(settings, shards)]
        task = MultiTask(arguments, tuple(schemas.values()), budgets, wanted, streams=tuple(schemas))
    prints = [_fingerprinted(frame) for frame in frames.values()]
    raw = _streamed(prints, bound, task) if streaming else backtest.joined(prints, bound, task)
    name = f"{OBSERVED}_{next(_numbers)}"
    # One aggregate and no more: Spark asks each of them about every row.
    books = F.concat_ws(BETWEEN, F.collect_list(beside(BOOK).cast("string")))
    words = [F.lit(word).alias(kind) for kind, word in words_of(bound).items()]
    return raw.observe(name, *words, books.alias("books")), bound


def words_of(bound: Bound) -> dict[str, str]:
    """Return what a report says of a join in words."""
    mode = bound.settings.mode if isinstance(bound, TwoBound) else "shed"
    return {"policy": bound.policy, "mode": mode, "division": bound.division}


def _bound(
    settings: Settings | several.Settings, arguments: dict[str, Any], schemas: Mapping[str, pa.Schema]
) -> Bound:
    """Check the arguments against the columns."""
    if isinstance(settings, Settings):
        return TwoBound(Settings(**arguments), *schemas.values())
    bound = several.Bound(several.Settings(**arguments), schemas)
    Ordered(bound)  # an order that cannot be is refused here, and not as text out of another process
    return bound


def arrow_schema(frame: Any, name: str) -> pa.Schema:
    """Return the Arrow schema in which a DataFrame's rows come.

    Any column may be null, also one that Spark knows never is: in ledger and archive the row of the other side is.
    """
    if _has(frame.schema, VariantType):
        want = "a column's type does not travel: variants cannot be hashed; make it text with to_json"
        raise ColumnError(name, frame.schema.simpleString(), want)
    try:
        known = to_arrow_schema(frame.schema, timezone="UTC")
    except Exception as error:
        raise ColumnError(name, frame.schema.simpleString(), f"a column's type does not travel: {error}") from error
    return pa.schema([field.with_nullable(nullable=True) for field in known])


def _lateness(settings: Settings | several.Settings, frames: Mapping[str, Any]) -> object:
    """Return what makes rows of streams late: without a budget Spark's watermark alone, as for Spark's own join.

    With a budget, rows also expire between watermarks, which come once a micro-batch: as soon as the next one,
    by the delays of all streams, is sure to be past them. Rows of several streams are put in order by the same, or
    by the lateness that is given: then they wait for no stream.
    """
    delays = []
    if isinstance(settings, Settings):
        times = dict(zip(SIDES, pair("time", settings.time), strict=True))
    else:
        times = per_stream("time", settings.time, list(frames))
    for side, (name, frame) in enumerate(frames.items()):
        column = times[name]
        present(arrow_schema(frame, name), column, side, "time", None if isinstance(settings, Settings) else name)
        kind = frame.schema[column].dataType.simpleString()
        if not kind.startswith("timestamp"):
            want = "streams need event time: use timestamp_seconds(column) and a watermark on it"
            raise TimeError(f"time={column!r}", f"{kind} on the {name}", want)
        if DELAY not in (frame.schema[column].metadata or {}):
            want = f'say how late rows may be: {name} = {name}.withWatermark("{column}", "10 minutes")'
            raise TimeError(f"time={column!r}", f"no watermark on the {name}", want)
        delays.append(int(frame.schema[column].metadata[DELAY]) * MILLISECOND)
    if isinstance(settings, several.Settings) and settings.lateness != 0:
        return settings.lateness
    exact = isinstance(settings, Settings) and settings.memory is None
    return WATERMARK if exact else (WATERMARK, f"{max(delays) + MILLISECOND - 1} us")


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


def _shards(settings: Settings | several.Settings, bound: Bound, spark: Any) -> int:
    if bound.one_shard:
        if settings.shards not in {None, 1}:
            want = f"{bound.one_shard}: they run on one shard; leave it None"
            raise InputError("shards", str(settings.shards), want)
        return 1
    return settings.shards or int(spark.conf.get("spark.sql.shuffle.partitions"))


def _turns(shards: int, spark: Any) -> int:
    """Return how many shards share a core, at most."""
    at_once = min(shards, int(spark.conf.get("spark.sql.shuffle.partitions")), session.cores(spark) or shards)
    return -(-shards // at_once)


def _comparable(settings: Settings | several.Settings, shards: int) -> None:
    """Raise if rows were to be dropped at one queue of several."""
    cpu = settings.cpu if isinstance(settings, Settings) else None
    if isinstance(cpu, Cpu) and cpu.method == "random-drop" and isinstance(settings.on, Condition) and shards > 1:
        want = "each of several shards would drop other rows: give shards=1, or another method"
        raise InputError("method", "'random-drop' on a condition", want)


def shares(settings: Settings | several.Settings, shards: int) -> list[tuple[Any, Any]]:
    """Return memory and split of each shard: equal parts, the first shards get what is left over."""
    split = settings.split if isinstance(settings, Settings) else "shared"
    unit, limit, shared = budget(settings.memory, split)
    if unit == "none":
        return [(None, split)] * shards
    parts = [[total // shards + (at < total % shards) for at in range(shards)] for total in limit]
    if min(map(min, parts)) < 1:
        want = f"each of the {shards} shards needs some: give more, or fewer shards="
        raise BudgetError("memory", repr(settings.memory), want)
    if unit == "bytes":
        sums = [a if shared else a + b for a, b in zip(*parts, strict=True)]
        return [(f"{size}B", split) for size in sums]
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


def _streamed(frames: Sequence[Any], bound: Bound, task: Task) -> Any:
    packed = [
        frame.mapInArrow(
            packing.packer(bound, side, task.shards, sketching=task.moves, timing=task.latency is not None),
            packing.PACKED_DDL,
        )
        for side, frame in enumerate(frames)
    ]
    return (
        reduce(lambda some, more: some.union(more), packed)
        .groupBy("shard")
        .transformWithStateInPandas(
            Processor(task),
            outputStructType=from_arrow_schema(output_schema(bound)),
            outputMode="Append",
            timeMode="EventTime",
            eventTimeColumnName=bound.event_time or "",
        )
    )
