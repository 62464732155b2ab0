"""The time of a pair, in a column that carries the watermark on."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F  # noqa: N812

import penstock as pen
from penstock.errors import ColumnError, InputError
from streaming import read_stream, run_to_end, ticking, write_batches


@pytest.mark.parametrize("options", [{}, {"memory": 30, "policy": "prob"}], ids=["exact", "bounded"])
def test_event_time_survives_the_join(spark: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    """A windowed aggregation downstream gives the counts of the joined rows, each window once and for all."""
    tables = [ticking(seed, 200) for seed in (1, 2)]
    for name, table in zip(("l", "r"), tables, strict=True):
        write_batches(table, tmp_path / name, [60, 120])
    common = {"on": "k", "time": "ts", "window": "30 seconds", "event_time": "at", **options}
    left, right = (read_stream(spark, tmp_path / name) for name in ("l", "r"))
    joined = pen.join(left, right, shards=1, **common)
    counts = joined.groupBy(F.window("at", "20 seconds")).count().selectExpr("window.start", "count")
    run_to_end(counts, tmp_path / "out", tmp_path / "cp")
    found = {row["start"].timestamp(): row["count"] for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    wanted = pen.join(*tables, **common)
    times = [wanted[name].cast(pa.int64()).to_numpy() for name in ("ts_left", "ts_right", "at")]
    assert np.array_equal(np.maximum(times[0], times[1]), times[2])
    seconds = times[2] // 1_000_000
    starts = Counter((seconds - seconds % 20).tolist())
    assert found == {start: count for start, count in starts.items() if start + 20 <= seconds.max() - 10}
    assert len(found) > 5


def test_rows_behind_the_watermark_do_not_reach_an_aggregation(spark: Any, tmp_path: Path) -> None:
    """Spark ends a query that lets them through."""
    tables = [ticking(seed, 200) for seed in (1, 2)]
    late = [pa.concat_tables([table[:60], table[90:150], table[60:90], table[150:]]) for table in tables]
    for name, table in zip(("l", "r"), late, strict=True):
        write_batches(table, tmp_path / name, [60, 120, 150])
    left, right = (read_stream(spark, tmp_path / name) for name in ("l", "r"))
    joined = pen.join(left, right, on="k", time="ts", window="30 seconds", event_time="at", shards=2)
    counts = joined.groupBy(F.window("at", "20 seconds")).count()
    query = run_to_end(counts, tmp_path / "out", tmp_path / "cp")
    assert query.exception() is None
    assert pen.report(query).shed["late"].total > 0


def test_event_time_is_that_of_the_later_row() -> None:
    left = pa.table({"t": [1, 5, 6], "k": [1, 1, 2]})
    right = pa.table({"t": [3, 4, 9], "k": [1, 1, 2]})
    for memory in (None, 10):
        joined = pen.join(left, right, on="k", time="t", window=4, memory=memory, event_time="at")
        assert joined.schema.names[-1] == "at"
        assert sorted(joined["at"].to_pylist()) == [3, 4, 5, 5, 9]
        assert joined["at"].to_pylist() == pc.max_element_wise(joined["t_left"], joined["t_right"]).to_pylist()


@pytest.mark.parametrize("name", ["k", "t_left", "", 7])
def test_event_time_needs_a_name_of_its_own(name: Any) -> None:
    rows = pa.table({"t": [1], "k": [1]})
    with pytest.raises(ColumnError):
        pen.join(rows, rows, on="k", time="t", window=4, event_time=name)


@pytest.mark.parametrize("how", [{"window": pen.rows(5)}, {"cpu": pen.cpu(comparisons_per_second=9)}])
def test_rows_that_wait_for_the_watermark_have_no_event_time(spark: Any, tmp_path: Path, how: dict[str, Any]) -> None:
    for name in ("l", "r"):
        write_batches(ticking(1, 10), tmp_path / name, [])
    left, right = (read_stream(spark, tmp_path / name) for name in ("l", "r"))
    with pytest.raises(InputError, match="event_time"):
        pen.join(left, right, **{"on": "k", "time": "ts", "window": "5 seconds", "event_time": "at", **how})
