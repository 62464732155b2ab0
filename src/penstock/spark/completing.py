"""Complete the results of several streams from their archive and ledger: the missing ones, as a batch job."""

from collections.abc import Callable
from functools import reduce
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.operator.several import Bound, Settings, repairable
from penstock.spark import folders
from penstock.spark.folders import Kind
from penstock.spark.pipeline import arrow_schema
from penstock.spark.writing import BATCH, STREAM, tick

IDENTITY = (STREAM, "shard", "row", "ts", "values")
LOST = {"shed_at": "ts", "reason": STREAM}
SHARD, ROW, GONE, NEWEST = (f"__penstock_{name}" for name in ("shard", "row", "gone", "newest"))
CAME, TOLD, NOW = (f"__penstock_{name}" for name in ("came", "told", "now"))  # micro-batches
ALWAYS = -(1 << 63)
BEHIND = 2  # micro-batches after which, at the latest, a watermark that rows have moved is what others are judged by
COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "min": F.least,
    "max": F.greatest,
    "sum": lambda one, other: one + other,
    "product": lambda one, other: one * other,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def refine(archive: Any, ledger: Any, settings: Settings, spark: Any) -> Any:
    """Return the missing rows of a whole archive of several streams; arguments as for ``penstock.refine``.

    Rows are joined in order of time, so a result is missing if and only if one of its rows was given up at an
    earlier time than that of its newest row, or came late. Results that still wait for the watermark are not there.

    Raises:
        InputError: if the folders are not such.
    """
    rows, losses = folders.frames_of(RESULTS, archive, ledger, spark)
    bound = _bound(rows, settings)
    return _rows(_results(rows, losses, bound), bound)


def refine_into(archive: str, ledger: str, into: str, settings: Settings, **how: Any) -> folders.Refined:
    """Add the missing rows to a folder, part by part; arguments as for ``folders.refine_into``.

    A result belongs to the micro-batch in which the last of its rows came or, if that was later, in which the first
    of those that it misses was given up.
    """
    return folders.refine_into(RESULTS, archive, ledger, into, settings, **how)


def missing_of(there: folders.Folders, batches: tuple[int, int], bound: Bound) -> Any:
    """Return the missing results that belong to these micro-batches.

    Each has a row that came in them, or was given up in them: others are read by their time, if they are near enough.
    """
    found = _results(*there.near(batches, bound), bound)
    return _rows(found.where(F.col(CAME) >= batches[0]), bound)


def _bound(archive: Any, settings: Settings) -> Bound:
    """Check the arguments of the join against the rows in its archive."""
    names = [field.name for field in archive.schema["values"].dataType.fields]
    schemas = {name: arrow_schema(archive.select(f"values.`{name}`.*"), name) for name in names}
    bound = Bound(Settings(**{**settings.arguments(), "memory": None, "lateness": 0, "shards": None}), schemas)
    repairable(bound)
    return bound


def _settled(ends: list[tuple[int, str, int]], bound: Bound, last: int) -> int | None:
    """Return the time up to which the slowest stream had come before the watermark was read for the last time."""
    times = [[end for number, name, end in ends if name == each and number <= last - BEHIND] for each in bound.names]
    return min(map(max, times)) if all(times) else None


def _value(stream: int) -> str:
    return f"__penstock_value_{stream}"


def _number(stream: int) -> str:
    return f"__penstock_row_{stream}"


def _time(stream: int) -> str:
    return f"__penstock_ts_{stream}"


def _batch(rows: Any) -> Any:
    """Return the micro-batch that a row is from; without any it is one."""
    return F.col(BATCH) if BATCH in rows.columns else F.lit(0)


def _stream(rows: Any, stream: int, bound: Bound) -> Any:
    """Return the rows of one stream, each column under a name of its own."""
    mine = rows.where(F.col(STREAM) == bound.names[stream])
    return mine.withColumns(
        {
            _number(stream): F.col("row"),
            _time(stream): tick(F.col("ts"), bound.clock),
            _value(stream): F.col("values").getField(bound.names[stream]),
        }
    )


def _lost(ledger: Any, stream: int, bound: Bound) -> Any:
    """Return the rows of one stream that were given up, until when they met others, and which micro-batch tells."""
    until = F.when(F.col("reason") == "late", F.lit(ALWAYS)).otherwise(tick(F.col("shed_at"), bound.clock))
    return _stream(ledger, stream, bound).withColumns({GONE: until, TOLD: _batch(ledger)})


def _results(archive: Any, ledger: Any, bound: Bound) -> Any:
    """Return the rows of the missing results, and the micro-batch that each belongs to."""
    found = [_missing_for(at, archive, ledger, bound) for at in range(len(bound.names))]
    return reduce(lambda some, more: some.unionByName(more), found)


def _missing_for(stream: int, archive: Any, ledger: Any, bound: Bound) -> Any:
    """Return the missing results that have a lost row of this stream, and none that was lost before it."""
    names = (_number(stream), _time(stream), _value(stream))
    found = _lost(ledger, stream, bound).select("shard", GONE, TOLD, F.col(TOLD).alias(CAME), *names)
    there = [stream]
    while len(there) < len(bound.names):
        at, meets = _next(there, bound)
        rows = _stream(archive, at, bound).select(
            F.col("shard").alias(SHARD), _batch(archive).alias(NOW), _number(at), _time(at), _value(at)
        )
        found = found.join(rows, reduce(lambda a, b: a & b, [F.col("shard") == F.col(SHARD), *meets]))
        found = found.withColumn(CAME, F.greatest(CAME, NOW)).drop(SHARD, NOW)
        there.append(at)
        newest = F.greatest(*(F.col(_time(one)) for one in there))
        for one in there:
            found = found.where(newest - F.col(_time(one)) < bound.span[one])
    found = found.withColumn(NEWEST, F.greatest(*(F.col(_time(one)) for one in there)))
    found = found.where(F.col(GONE) < F.col(NEWEST)).drop(GONE)
    for other in (at for at in there if at != stream):
        gone = _lost(ledger, other, bound).select(
            F.col("shard").alias(SHARD), F.col("row").alias(ROW), GONE, F.col(TOLD).alias(NOW)
        )
        same = (F.col("shard") == F.col(SHARD)) & (F.col(_number(other)) == F.col(ROW))
        first = F.col(NOW) <= F.col(TOLD) if other < stream else F.col(NOW) < F.col(TOLD)
        found = found.join(gone, same & first & (F.col(GONE) < F.col(NEWEST)), "left_anti")
    return found.select(CAME, *(F.col(_value(one)) for one in range(len(bound.names))))


def _next(there: list[int], bound: Bound) -> tuple[int, list[Any]]:
    """Return a stream to be joined next, one that has edges to those that are there if any has, and its edges."""
    meets: dict[int, list[Any]] = {}
    for edge in bound.edges:
        if (edge.one in there) != (edge.other in there):
            one, other = bound.keys[edge.one_column], bound.keys[edge.other_column]
            new = edge.other if edge.one in there else edge.one
            meets.setdefault(new, []).extend(
                COMPARE[one.how](F.col(_value(edge.one)).getField(mine), F.col(_value(edge.other)).getField(theirs))
                for mine, theirs in zip(one.names, other.names, strict=True)
            )
    if meets:
        return next(iter(meets.items()))
    return next(at for at in range(len(bound.names)) if at not in there), []


def _rows(found: Any, bound: Bound) -> Any:
    """Return results with the columns of the join's."""
    fields = from_arrow_schema(bound.schema).fields
    columns = []
    for at, (name, stream, source) in enumerate(bound.layout):
        columns.append(F.col(_value(stream)).getField(source).cast(fields[at].dataType).alias(name))
    if bound.importance:
        each = [F.col(_value(at)).getField(name).cast("double") for at, name in enumerate(bound.importance)]
        whole = reduce(COMBINED[{"mean": "sum"}.get(bound.settings.combine, bound.settings.combine)], each)
        columns.append((whole / len(each) if bound.settings.combine == "mean" else whole).alias("importance"))
    return found.select(*columns)


RESULTS = Kind(
    identity=IDENTITY,
    lost={**dict.fromkeys(IDENTITY), **LOST},
    arguments=("on", "time", "windows", "cross", "importance", "combine"),
    bound=lambda there, settings: _bound(there.frames[0], settings),
    missing=missing_of,
    by=STREAM,
    settled=_settled,
)
