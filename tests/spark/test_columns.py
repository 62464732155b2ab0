"""Whatever columns the sides have, they come out of a join on Spark as they went in."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

import penstock as pen
from penstock.errors import ColumnError
from streaming import run_to_end

NEW_YEAR = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
TYPES: dict[str, tuple[str, list[Any]]] = {
    "text": ("string", ["é", "", None]),
    "money": ("decimal(38,18)", [Decimal("12345678901234567890.000000000000000001"), Decimal("-0.5"), None]),
    "moment": ("timestamp", [NEW_YEAR + dt.timedelta(microseconds=1), NEW_YEAR, None]),
    "wall": ("timestamp_ntz", [dt.datetime(2024, 3, 10, 2, 30), dt.datetime(1969, 7, 20, 20, 17, 40, 123456), None]),  # noqa: DTZ001
    "day": ("date", [dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
    "span": ("interval day to second", [dt.timedelta(days=-3, microseconds=7), dt.timedelta(0), None]),
    "list": ("array<int>", [[1, None, 3], [], None]),
    "lists": ("array<array<string>>", [[["a", None], None, []], [], None]),
    "pair": ("struct<a:int,b:struct<c:string,d:timestamp>>", [(1, ("x", NEW_YEAR)), (None, None), None]),
    "map": ("map<string,decimal(5,2)>", [{"a": Decimal("1.50"), "b": None}, {}, None]),
    "keyed": ("map<struct<x:int>,string>", [{Row(x=1): "one"}, {}, None]),
    "maps": ("array<map<int,array<date>>>", [[{1: [dt.date(2024, 1, 1), None]}, None, {}], [], None]),
    "raw": ("binary", [b"\x00\xff", b"", None]),
    "flag": ("boolean", [True, False, None]),
    "real": ("double", [float("inf"), -0.0, None]),
    "small": ("float", [1.5, float("-inf"), None]),
    "tiny": ("tinyint", [-128, 127, None]),
    "short": ("smallint", [-32768, 32767, None]),
    "long": ("bigint", [-(2**63), 2**63 - 1, None]),
}


def typed(spark: Any, side: str) -> Any:
    """Return three rows with a column of every type, one moment apart."""
    rows = [
        (NEW_YEAR + dt.timedelta(seconds=at), at, *(values[at] for _, values in TYPES.values())) for at in range(3)
    ]
    columns = ", ".join(f"{side}_{name} {kind}" for name, (kind, _) in TYPES.items())
    return spark.createDataFrame(rows, f"{side}_ts timestamp, k int, {columns}")


def sorted_rows(frame: Any) -> list[Any]:
    return sorted(frame.collect(), key=lambda row: row.k)


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_payload_of_every_type_comes_back_unchanged(spark: Any, tmp_path: Path, kind: str) -> None:
    """Whether a side holds it or brings it, in a batch and over micro-batches."""
    whole = [typed(spark, side) for side in ("l", "r")]
    wanted = whole[0].join(whole[1], "k")
    arguments: dict[str, Any] = {"on": "k", "time": ("l_ts", "r_ts"), "window": "30 seconds"}
    if kind == "batch":
        found = pen.join(*whole, **arguments)
    else:
        streams = []
        for side, frame in zip(("l", "r"), whole, strict=True):
            for at in range(3):
                frame.where(f"k = {at}").coalesce(1).write.mode("append").parquet(str(tmp_path / side))
            source = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 2)
            streams.append(source.parquet(str(tmp_path / side)).withWatermark(f"{side}_ts", "10 seconds"))
        run_to_end(pen.join(*streams, **arguments), tmp_path / "out", tmp_path / "cp")
        found = spark.read.parquet(str(tmp_path / "out"))
    assert dict(found.dtypes) == dict(wanted.dtypes)
    rows = sorted_rows(found.select(wanted.columns))
    assert len(rows) == 3
    assert rows == sorted_rows(wanted)


def moments(spark: Any, columns: str, rows: list[tuple[Any, ...]]) -> Any:
    """Return rows a second apart."""
    with_time = [(NEW_YEAR + dt.timedelta(seconds=at), *row) for at, row in enumerate(rows)]
    return spark.createDataFrame(with_time, f"ts timestamp, {columns}")


def test_clashing_columns_are_told_apart(spark: Any) -> None:
    left = moments(spark, "k int, v string, `a.b` int, `c``d` int", [(1, "x", 10, 11), (2, "y", 20, 21)])
    right = moments(spark, "k int, v string, `a b` int", [(2, "z", 30), (1, None, 40)])
    joined = pen.join(left, right, on="k", time="ts", window="10 seconds")
    assert joined.columns == ["k", "ts_left", "v_left", "a.b", "c`d", "ts_right", "v_right", "a b"]
    rows = sorted((row.k, row.v_left, row["a.b"], row["c`d"], row.v_right, row["a b"]) for row in joined.collect())
    assert rows == [(1, "x", 10, 11, None, 40), (2, "y", 20, 21, "z", 30)]


def test_columns_that_differ_in_case_alone_are_refused(spark: Any) -> None:
    """Spark takes them for one."""
    left = moments(spark, "k int, V string", [(1, "x")])
    right = moments(spark, "k int, v string", [(1, "y")])
    with pytest.raises(ColumnError, match="result: got columns named 'V' and 'v'; for Spark they are one"):
        pen.join(left, right, on="k", time="ts", window="10 seconds")


def test_keys_as_pairs_and_of_several_columns(spark: Any) -> None:
    left = moments(spark, "a int, b string", [(1, "x"), (1, "y"), (2, "x"), (None, "x")])
    right = moments(spark, "c bigint, d string", [(1, "y"), (2, "x"), (1, "z"), (None, "x")])
    pairs = pen.join(left, right, on=[("a", "c"), ("b", "d")], time="ts", window="10 seconds")
    assert sorted((row.a, row.b, row.c, row.d) for row in pairs.collect()) == [(1, "y", 1, "y"), (2, "x", 2, "x")]
    renamed = right.toDF("ts", "a", "b")
    both = pen.join(left, renamed, on=["a", "b"], time="ts", window="10 seconds")
    assert both.columns == ["a", "b", "ts_left", "ts_right"]
    assert sorted((row.a, row.b) for row in both.collect()) == [(1, "y"), (2, "x")]
    one = pen.join(left, right, on=("a", "c"), time="ts", window="10 seconds")
    assert sorted((row.b, row.d) for row in one.collect()) == [
        ("x", "x"),
        ("x", "y"),
        ("x", "z"),
        ("y", "y"),
        ("y", "z"),
    ]
