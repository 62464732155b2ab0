"""Truncate batch DataFrames: keys are counted on Spark, the program runs on the driver, rows are chosen on Spark."""

from functools import reduce
from itertools import groupby
from typing import Any

import numpy as np
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from penstock.errors import InputError
from penstock.operator.relations import Truncated, asked, key_names, key_types, quotas, wanted
from penstock.optimum.static import Quota
from penstock.spark.pipeline import arrow_schema, column, fingerprint

PREFIX = "__penstock_"
ALONE = f"{PREFIX}alone"  # the relation whose null keys these are, or -1
RANK, FIRST, LAST = (f"{PREFIX}{name}" for name in ("rank", "first", "last"))


def truncate(frames: tuple[Any, ...], *, on: object, keep: object, drop: object) -> Truncated:
    """Return the rows of each DataFrame that are retained, lazily; keys are counted at once."""
    asked(len(frames), keep, drop)
    for number, frame in enumerate(frames, 1):
        if getattr(frame, "isStreaming", True):
            got = "a streaming DataFrame" if hasattr(frame, "isStreaming") else type(frame).__name__
            raise InputError(f"relation {number}", got, "give batch DataFrames, all of Spark or none")
    names = key_names(on, len(frames))
    key_types([arrow_schema(frame, f"relation {number}") for number, frame in enumerate(frames, 1)], names)
    keyed = [_keyed(frame, mine, at) for at, (frame, mine) in enumerate(zip(frames, names, strict=True))]
    keys = [ALONE, *_numbered("key", len(names[0]))]
    histogram = _histogram(keyed, keys)
    classes = histogram.groupBy(*_numbered("count", len(frames))).count().collect()
    counts = np.array([row[:-1] for row in classes], np.int64).reshape(-1, len(frames)).T
    of_class = np.array([row[-1] for row in classes], np.int64)
    chosen, pairs, bound = quotas(counts, of_class, wanted((counts @ of_class).tolist(), keep, drop))
    kept = _kept(histogram, keys, chosen, len(frames))
    parts = zip(frames, keyed, _numbered("kept", len(frames)), strict=True)
    return Truncated(
        tuple(_first(rows, kept, keys, quota, frame.columns) for frame, rows, quota in parts), pairs, bound
    )


def _numbered(name: str, count: int) -> list[str]:
    return [f"{PREFIX}{name}{at}" for at in range(count)]


def _keyed(frame: Any, names: list[str], at: int) -> Any:
    """Return the rows with their keys; rows with a null among them have one key of their own relation."""
    null = reduce(lambda some, name: some | column(name).isNull(), names, F.lit(False))
    keys = [
        F.when(~null, column(name)).alias(key) for name, key in zip(names, _numbered("key", len(names)), strict=True)
    ]
    return frame.select("*", F.when(null, at).otherwise(-1).alias(ALONE), *keys)


def _histogram(keyed: list[Any], keys: list[str]) -> Any:
    """Return how many rows each key has in each relation."""
    names = _numbered("count", len(keyed))
    ones = [[F.lit(int(at == which)).alias(name) for at, name in enumerate(names)] for which in range(len(keyed))]
    parts = [rows.select(*keys, *mine) for rows, mine in zip(keyed, ones, strict=True)]
    return reduce(lambda a, b: a.union(b), parts).groupBy(*keys).agg(*(F.sum(name).alias(name) for name in names))


def _kept(histogram: Any, keys: list[str], chosen: list[Quota], relations: int) -> Any:
    """Return how many rows of each relation each key keeps: the keys of a class take its quotas in their order."""
    counts, kept = _numbered("count", relations), _numbered("kept", relations)
    rows = []
    for _, same in groupby(chosen, key=lambda quota: quota.counts):
        end = 0
        for quota in same:
            rows.append((*quota.counts, end + 1, end + quota.keys, *quota.kept))
            end += quota.keys
    fields = ", ".join(f"{name} long" for name in (*counts, FIRST, LAST, *kept))
    table = F.broadcast(histogram.sparkSession.createDataFrame(rows, fields))
    ranked = histogram.withColumn(RANK, F.row_number().over(Window.partitionBy(*counts).orderBy(*keys)))
    return ranked.join(table, counts).where(F.col(RANK).between(F.col(FIRST), F.col(LAST))).select(*keys, *kept)


def _first(rows: Any, kept: Any, keys: list[str], quota: str, names: list[str]) -> Any:
    """Return the rows that are retained: of each key the first ones, by a hash of their content."""
    mine = kept.select(*(F.col(key).alias(f"{key}_") for key in keys), quota)
    same = reduce(lambda all_, key: all_ & F.col(key).eqNullSafe(F.col(f"{key}_")), keys, F.lit(True))
    rank = F.row_number().over(Window.partitionBy(*keys).orderBy(fingerprint(rows)))
    found = rows.withColumn(RANK, rank).join(mine, same).where(F.col(RANK) <= F.col(quota))
    return found.select(*map(column, names))
