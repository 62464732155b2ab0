"""Complete the results of several streams from their archive and ledger: the missing ones, as a batch job."""

from collections.abc import Callable
from functools import reduce
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.errors import InputError
from penstock.operator.several import Bound, Settings, repairable
from penstock.spark.pipeline import arrow_schema
from penstock.spark.refine import COMBINED, Folders, columns_there, session_of
from penstock.spark.writing import BATCH, STREAM, tick

IDENTITY = (STREAM, "shard", "row", "ts", "values")
LOST = (*IDENTITY, "shed_at", "reason")
SHARD, GONE, NEWEST = "__penstock_shard", "__penstock_gone", "__penstock_newest"
ALWAYS = -(1 << 63)
COMPARE: dict[str, Callable[[Any, Any], Any]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}


def refine(archive: Any, ledger: Any, settings: Settings, spark: Any) -> Any:
    """Return the missing rows of a whole archive of several streams; arguments as for ``penstock.refine``.

    Rows are joined in order of time, so a result is missing if and only if one of its rows was given up at an
    earlier time than that of its newest row, or came late. Results that still wait for the watermark are not there.

    Raises:
        InputError: if the folders are not such.
    """
    if isinstance(archive, str) and isinstance(ledger, str):
        folders = Folders(archive, ledger, session_of(spark), (IDENTITY, LOST))
        last = folders.after(None)[-1]
        archive, ledger = (rows.where(F.col(BATCH) <= last) for rows in folders.frames())
    for name, rows, columns in (("archive", archive, IDENTITY), ("ledger", ledger, LOST)):
        if not hasattr(rows, "sparkSession") or rows.isStreaming:
            want = "give two folders that pen.write wrote, two batch DataFrames of such, or tables by name"
            raise InputError(name, type(rows).__name__, want)
        columns_there(rows, columns, name)
    names = [field.name for field in archive.schema["values"].dataType.fields]
    schemas = {name: arrow_schema(archive.select(f"values.`{name}`.*"), name) for name in names}
    bound = Bound(Settings(**{**settings.arguments(), "memory": None, "lateness": 0, "shards": None}), schemas)
    repairable(bound)
    found = [_missing_for(at, archive, ledger, bound) for at in range(len(names))]
    return _rows(reduce(lambda some, more: some.unionByName(more), found), bound)


def _value(stream: int) -> str:
    return f"__penstock_value_{stream}"


def _number(stream: int) -> str:
    return f"__penstock_row_{stream}"


def _time(stream: int) -> str:
    return f"__penstock_ts_{stream}"


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
    """Return the rows of one stream that were given up, with the last time at which they still met others."""
    until = F.when(F.col("reason") == "late", F.lit(ALWAYS)).otherwise(tick(F.col("shed_at"), bound.clock))
    return _stream(ledger, stream, bound).withColumn(GONE, until)


def _missing_for(stream: int, archive: Any, ledger: Any, bound: Bound) -> Any:
    """Return the missing results that have a lost row of this stream, and of none before it."""
    names = (_number(stream), _time(stream), _value(stream))
    found = _lost(ledger, stream, bound).select("shard", GONE, *names)
    there = [stream]
    while len(there) < len(bound.names):
        at, meets = _next(there, bound)
        rows = _stream(archive, at, bound)
        rows = rows.select(F.col("shard").alias(SHARD), _number(at), _time(at), _value(at))
        found = found.join(rows, reduce(lambda a, b: a & b, [F.col("shard") == F.col(SHARD), *meets])).drop(SHARD)
        there.append(at)
        newest = F.greatest(*(F.col(_time(one)) for one in there))
        for one in there:
            found = found.where(newest - F.col(_time(one)) < bound.span[one])
    found = found.withColumn(NEWEST, F.greatest(*(F.col(_time(one)) for one in there)))
    found = found.where(F.col(GONE) < F.col(NEWEST)).drop(GONE)
    for before in range(stream):
        gone = _lost(ledger, before, bound).select(
            F.col("shard").alias(SHARD), F.col("row").alias("__penstock_before"), GONE
        )
        same = (F.col("shard") == F.col(SHARD)) & (F.col(_number(before)) == F.col("__penstock_before"))
        found = found.join(gone, same & (F.col(GONE) < F.col(NEWEST)), "left_anti")
    return found.select(*(F.col(_value(one)) for one in range(len(bound.names))))


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
        whole = reduce(COMBINED["sum" if bound.settings.combine == "mean" else bound.settings.combine], each)
        columns.append((whole / len(each) if bound.settings.combine == "mean" else whole).alias("importance"))
    return found.select(*columns)
