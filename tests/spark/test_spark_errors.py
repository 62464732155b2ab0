"""What cannot work on Spark is refused in words: most of it before anything runs."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException

import penstock as pen
from penstock.errors import BudgetError, ColumnError, InputError, SessionError, TimeError
from penstock.spark.inputs import failure
from penstock.spark.session import PROVIDER
from streaming import read_stream, run_to_end, ticking, write_batches

COMMON: dict[str, Any] = {"on": "k", "time": "ts", "window": "30 seconds"}
TABLE = ticking(1, 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the file of a stream."""
    path = tmp_path_factory.mktemp("streams") / "in"
    write_batches(TABLE, path, [])
    return path


@pytest.fixture
def stream(spark: Any, folder: Path) -> Any:
    return read_stream(spark, folder)


@pytest.fixture
def batch(spark: Any, folder: Path) -> Any:
    return spark.read.parquet(str(folder))


@pytest.fixture
def other_provider(spark: Any) -> Iterator[str]:
    """Give the session Spark's own default provider for the time of a test."""
    before = spark.conf.get(PROVIDER)
    name = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    spark.conf.set(PROVIDER, name)
    yield name.rpartition(".")[2]
    spark.conf.set(PROVIDER, before)


def test_a_session_without_the_state_provider_is_refused(stream: Any, batch: Any, other_provider: str) -> None:
    with pytest.raises(SessionError, match=rf"{other_provider}; build the session with pen\.configure"):
        pen.join(stream, stream, **COMMON)
    assert pen.join(batch, batch, **COMMON).count() > 0  # a batch keeps no state


def test_a_stream_without_a_watermark_is_refused(spark: Any, folder: Path, stream: Any) -> None:
    bare = read_stream(spark, folder, time=None)
    with pytest.raises(TimeError, match=r'no watermark on the right; .*right = right.withWatermark\("ts"'):
        pen.join(stream, bare, **COMMON)
    with pytest.raises(TimeError, match="no watermark on the left"):
        pen.join(bare, stream, **COMMON)


def test_integer_time_on_streams_is_refused(stream: Any, batch: Any) -> None:
    ticks = {**COMMON, "time": "w", "window": 30}
    with pytest.raises(TimeError, match=r"time='w': got int on the left; .*timestamp_seconds"):
        pen.join(stream, stream, **ticks)
    assert pen.join(batch, batch, **ticks).count() > 0


def test_sides_of_two_kinds_are_refused(stream: Any, batch: Any) -> None:
    with pytest.raises(InputError, match="streaming and batch DataFrames; give streaming or batch"):
        pen.join(stream, batch, **COMMON)
    with pytest.raises(InputError, match="batch and streaming DataFrames"):
        pen.join(batch, stream, **COMMON)
    with pytest.raises(InputError, match="right: got DataFrame; give Spark DataFrames only, or none"):
        pen.join(batch, TABLE.to_pandas(), **COMMON)
    with pytest.raises(InputError, match="left: got Table; give Spark DataFrames only, or none"):
        pen.join(TABLE, batch, **COMMON)


PLAN = pen.policy("replay", schedule={"side": ["left"], "row": [0], "until": [1]})


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"on": "nope"}, ColumnError, "on='nope': got no such column on the left; it has ts, k, v, w"),
        ({"time": ("ts", "nope")}, ColumnError, "time='nope': got no such column on the right"),
        ({"importance": "nope"}, ColumnError, "importance='nope': got no such column"),
        ({"memory": 2, "shards": 3}, BudgetError, "memory: got 2; each of the 3 shards needs some"),
        ({"memory": 6, "split": (4, 2), "shards": 3}, BudgetError, "each of the 3 shards needs some"),
        ({"window": pen.rows(5), "shards": 2}, InputError, "shards: got 2; windows in rows count over the whole"),
        (
            {"memory": 9, "policy": PLAN, "shards": 2},
            InputError,
            "shards: got 2; schedules number rows over the whole",
        ),
        ({"window": 30}, InputError, "window: got 30; time is in timestamps"),
        ({"time": "v"}, TimeError, "got string on the left"),
        ({"how": "left"}, InputError, "how: got 'left'; only inner joins"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_wrong_arguments_are_refused_at_once(
    stream: Any, batch: Any, change: dict[str, Any], kind: type[InputError], said: str
) -> None:
    for frame in (stream, batch):
        with pytest.raises(kind) as caught:
            pen.join(frame, frame, **{**COMMON, **change})
        assert said in str(caught.value)


def test_output_modes(spark: Any, stream: Any, tmp_path: Path) -> None:
    """Rows come once and for all, whatever the mode; an aggregation over them may give its whole answer each time."""
    rows = [row for row in TABLE.to_pylist() if row["k"] is not None]
    near = dt.timedelta(seconds=30)
    wanted = Counter(a["k"] for a in rows for b in rows if a["k"] == b["k"] and abs(a["ts"] - b["ts"]) < near)
    joined = pen.join(stream, stream, **COMMON)
    for mode, frame in (("update", joined), ("complete", joined.groupBy("k").count())):
        writer = frame.writeStream.format("memory").queryName(mode).outputMode(mode).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / mode)).start().awaitTermination()
    assert Counter(row["k"] for row in spark.table("update").collect()) == wanted
    assert {row["k"]: row["count"] for row in spark.table("complete").collect()} == wanted


def test_complete_output_without_an_aggregation_is_refused(stream: Any, tmp_path: Path) -> None:
    """By Spark itself, before anything runs."""
    writer = pen.join(stream, stream, **COMMON).writeStream.format("memory").queryName("refused")
    with pytest.raises(AnalysisException, match="Invalid streaming output mode: complete") as caught:
        writer.outputMode("complete").option("checkpointLocation", str(tmp_path / "cp")).start()
    assert caught.value.getCondition() == "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION"
    assert not list((tmp_path / "cp").glob("offsets/*"))


@pytest.mark.parametrize("value", ["parse_json('1')", "array(parse_json('1'))", "interval '1' month"])
def test_a_type_that_does_not_travel_is_refused(batch: Any, value: str) -> None:
    frame = batch.selectExpr("*", f"{value} as x")
    with pytest.raises(ColumnError, match=r"right: .* a column's type does not travel"):
        pen.join(batch, frame, **COMMON)


def test_a_missing_time_ends_the_query_with_its_reason(spark: Any, tmp_path: Path, batch: Any) -> None:
    rows = [(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), 1), (None, 2)]
    frame = spark.createDataFrame(rows, "ts timestamp, k bigint")
    frame.coalesce(1).write.parquet(str(tmp_path / "in"))
    left, right = (read_stream(spark, tmp_path / "in") for _ in range(2))
    with pytest.raises(StreamingQueryException, match="TimeError: time='ts': got a null in row"):
        run_to_end(pen.join(left, right, **COMMON), tmp_path / "out", tmp_path / "cp")
    with pytest.raises(Exception, match="TimeError: time='ts': got a null in row"):
        pen.join(frame, batch, **COMMON).count()


def test_nothing_runs_before_the_action(spark: Any, tmp_path: Path) -> None:
    """Not even where the rows cannot be read."""
    ran = spark.sparkContext.accumulator(0)

    def seen(batches: Any) -> Any:
        for rows in batches:
            ran.add(rows.num_rows)
            yield rows

    frame = spark.createDataFrame(TABLE).mapInArrow(seen, "ts timestamp, k long, v string, w int")
    joined = pen.join(frame, frame, **COMMON)
    chained = frame.transform(pen.joining(frame, **COMMON))
    assert joined.columns == chained.columns == ["k", "ts_left", "v_left", "w_left", "ts_right", "v_right", "w_right"]
    assert ran.value == 0
    assert joined.count() > 0
    assert ran.value >= 2 * TABLE.num_rows
    assert not any(tmp_path.iterdir())


MISSING_METHOD = "'void org.apache.spark.sql.execution.LogicalRDD.<init>(scala.collection.immutable.Seq, boolean)'"


@pytest.mark.parametrize(
    "said", [MISSING_METHOD, f"job aborted\nCaused by: java.lang.NoSuchMethodError: {MISSING_METHOD}"]
)
def test_a_jar_made_for_another_spark_is_told(said: str) -> None:
    query = SimpleNamespace(exception=lambda: RuntimeError(f"{said}\n=== Streaming Query ==="))
    assert "made for another Spark than" in str(failure(query))


def test_other_failures_do_not_blame_jars() -> None:
    query = SimpleNamespace(exception=lambda: RuntimeError("no space left on device (os.write)"))
    assert "made for another Spark" not in str(failure(query))
