"""On data sets of the world the join without a budget is Spark's own join, row for row."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import penstock as pen
from streaming import counted, read_stream, run_to_end, write_batches

CHECKOUT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PENSTOCK_DATA", CHECKOUT.parent / "shared" / "data"))
Tables = tuple[pa.Table, pa.Table]


def ships() -> Tables:
    """Return the reports of odd and of even ships, by cell."""
    rows = pq.read_table(DATA / "ship_weather" / "ww2.parquet")[:8_000]
    odd = pa.array(rows["ship"].to_numpy() % 2 == 1)
    return timed(rows.filter(odd), "s"), timed(rows.filter(pc.invert(odd)), "s")


def stocks() -> Tables:
    """Return orders and trades, by id."""
    orders, trades = (pq.read_table(DATA / "sse_orders_trades" / f"{name}.parquet") for name in ("orders", "trades"))
    return timed(orders[:16_000], "ms"), timed(trades[:16_000], "ms")


def retail() -> Tables:
    """Return invoice lines of one country and of all others, by item."""
    rows = pq.read_table(DATA / "online_retail" / "lines.parquet")[:30_000]
    home = pc.equal(rows["country"], "United Kingdom")
    return timed(rows.filter(home), "s"), timed(rows.filter(pc.invert(home)), "s")


def timed(rows: pa.Table, unit: str) -> pa.Table:
    """Return rows with their time as a timestamp."""
    moments = pa.array(rows["ts"].to_numpy().astype(np.int64), pa.timestamp(unit, "UTC"))
    return rows.set_column(0, "ts", moments.cast(pa.timestamp("us", "UTC")))


@pytest.mark.parametrize(
    ("name", "tables", "key", "span", "delay"),
    [
        ("ship_weather", ships, "cell10", "12 hours", "1 hour"),
        ("sse_orders_trades", stocks, "key", "300 milliseconds", "10 milliseconds"),
        ("online_retail", retail, "item_id", "1 day", "10 minutes"),
    ],
    ids=["ship_weather", "sse_orders_trades", "online_retail"],
)
def test_streams_of_the_world_join_as_spark_joins_them(
    spark: Any, tmp_path: Path, name: str, tables: Callable[[], Tables], key: str, span: str, delay: str
) -> None:
    """In micro-batches that are not in step; the first rows come last, and are late."""
    if not (DATA / name).is_dir():
        pytest.skip(f"the data set {name} is not in {DATA}; PENSTOCK_DATA names its folder")
    left, right = (pa.concat_tables([table[40:], table[:40]]) for table in tables())
    right = right.rename_columns([f"r_{column}" for column in right.schema.names])
    write_batches(left, tmp_path / "l", [left.num_rows // 4, left.num_rows // 2])
    write_batches(right, tmp_path / "r", [right.num_rows // 3, right.num_rows // 2])
    streams = [
        read_stream(spark, tmp_path / side, time=time, delay=delay) for side, time in (("l", "ts"), ("r", "r_ts"))
    ]
    ours = pen.join(*streams, on=(key, f"r_{key}"), time=("ts", "r_ts"), window=span)
    near = f"ts > r_ts - interval {span} and ts < r_ts + interval {span}"
    theirs = streams[0].join(streams[1], spark_expression(f"{key} = r_{key} and {near}"))
    query = run_to_end(ours, tmp_path / "ours", tmp_path / "ours.cp")
    run_to_end(theirs, tmp_path / "theirs", tmp_path / "theirs.cp")
    found = counted(spark.read.parquet(str(tmp_path / "ours")))
    assert found == counted(spark.read.parquet(str(tmp_path / "theirs")))
    report = pen.report(query)
    assert report.pairs == found.total() > 0
    assert report.shed["late"].total >= 80
    assert report.balanced


def spark_expression(text: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.expr(text)
