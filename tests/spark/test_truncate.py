"""On Spark a static join keeps as many pairs as in memory, and as many rows as it is asked to."""

from typing import Any

import pyarrow as pa
import pytest

import penstock as pen
from penstock.errors import InputError

LEFT = pa.table({"k": pa.array([1, 1, 2, 3, None, None, 5, 5], pa.int32()), "x.y": range(8)})
RIGHT = pa.table({"key": pa.array([1, 2, 2, 2, 9, None, 5, 5], pa.int64()), "m": [{"a": 1}] * 8})
ON = [("k", "key")]


def frames(spark: Any) -> list[Any]:
    rows = [[tuple(row.values()) for row in table.to_pylist()] for table in (LEFT, RIGHT)]
    schemas = ("k int, `x.y` long", "key long, m map<string, long>")
    return [spark.createDataFrame(data, schema) for data, schema in zip(rows, schemas, strict=True)]


@pytest.mark.parametrize("budget", [{"keep": 7}, {"keep": (3, 4)}, {"drop": 1}, {"keep": 0}], ids=str)
def test_spark_keeps_what_is_kept_in_memory(spark: Any, budget: dict[str, Any]) -> None:
    want = pen.truncate(LEFT, RIGHT.select(["key"]), on=ON, **budget)
    got = pen.truncate(*frames(spark), on=ON, **budget)
    assert (want.pairs, want.bound) == (got.pairs, got.bound)
    kept = [rows.collect() for rows in got.relations]
    assert [["k", "x.y"], ["key", "m"]] == [rows.columns for rows in got.relations]
    assert [rows.num_rows for rows in want.relations] == [len(rows) for rows in kept]
    assert want.pairs == sum(row[0] is not None and row[0] == other[0] for row in kept[0] for other in kept[1])


def test_three_relations_on_spark(spark: Any) -> None:
    left, right = frames(spark)
    got = pen.truncate(left, right, left, on=[("k", "key", "k")], keep=(4, 4, 4))
    want = pen.truncate(LEFT, RIGHT.select(["key"]), LEFT, on=[("k", "key", "k")], keep=(4, 4, 4))
    assert (want.pairs, want.bound) == (got.pairs, got.bound)
    assert [4, 4, 4] == [rows.count() for rows in got.relations]


def test_streams_and_mixtures_are_refused(spark: Any) -> None:
    stream = spark.readStream.format("rate").load()
    with pytest.raises(InputError, match="relation 1: got a streaming DataFrame; give batch DataFrames"):
        pen.truncate(stream, stream, on="value", keep=1)
    with pytest.raises(InputError, match="relation 2: got Table; give batch DataFrames, all of Spark or none"):
        pen.truncate(frames(spark)[0], LEFT, on="k", keep=1)
