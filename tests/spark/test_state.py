"""A query on Spark goes on from its checkpoint, with the arguments it had or others that fit; others are refused."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import penstock as pen
from streaming import counted, read_stream, run_to_end, ticking, write_batches

ROWS = 240
CUTS = [60, 120, 180]
TABLES = (ticking(11, ROWS), ticking(12, ROWS))
COMMON: dict[str, Any] = {"on": "k", "time": "ts", "window": "30 seconds"}
BOUNDED: dict[str, Any] = {**COMMON, "memory": 20, "policy": "prob", "shards": 1}


class Job:
    """A streaming job over two folders of files, that can be started again when there are more files."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        for name, table in zip(("l", "r"), TABLES, strict=True):
            write_batches(table, folder / "all" / name, CUTS)

    def arrive(self, files: list[int], tables: tuple[pa.Table, pa.Table] | None = None) -> None:
        """Let files of both sides arrive."""
        for name, table in zip(("l", "r"), tables or TABLES, strict=True):
            if tables is not None:
                write_batches(table, self.folder / "other" / name, CUTS)
            (self.folder / name).mkdir(exist_ok=True)
            for number in files:
                origin = self.folder / ("all" if tables is None else "other") / name
                shutil.copy2(origin / f"{number:05}.parquet", self.folder / name)

    def run(self, **arguments: Any) -> Any:
        """Run over all files there are."""
        left, right = (read_stream(self.spark, self.folder / name) for name in ("l", "r"))
        return run_to_end(pen.join(left, right, **arguments), self.folder / "out", self.folder / "cp")

    def rows(self) -> Any:
        """Return what came out so far."""
        return self.spark.read.parquet(str(self.folder / "out"))


def test_a_restart_goes_on_and_its_state_can_be_read(spark: Any, tmp_path: Path, engines: Path) -> None:
    """No row twice and none missing, with the host's engines gone or damaged; Spark's own reader shows the state."""
    job = Job(spark, tmp_path)
    for number, files in enumerate(([0], [1, 2], [3])):
        job.arrive(files)
        query = job.run(**BOUNDED)
        for at, path in enumerate(sorted(path for path in engines.rglob("*") if path.is_file())):
            if (at + number) % 2:
                path.unlink()
            else:
                path.write_bytes(b"something else")
    wanted = pen.run(*TABLES, **{**BOUNDED, "shards": None})
    assert counted(job.rows()) == counted(wanted.table)
    report = pen.report(query)
    assert report.arrivals.total == 2 * ROWS
    assert report.pairs == wanted.report.pairs
    assert report.balanced
    state = spark.read.format("statestore").option("stateVarName", "head").load(str(tmp_path / "cp"))
    found = state.selectExpr("key.shard", "get_json_object(value.head, '$.version') as version").collect()
    assert [(row.shard, int(row.version)) for row in found] == [(0, 4)]


def test_a_restart_with_other_arguments_that_fit_goes_on(spark: Any, tmp_path: Path) -> None:
    """Another budget, policy and span, and a further column, null in the rows held."""
    job = Job(spark, tmp_path)
    job.arrive([0, 1])
    job.run(**BOUNDED)
    first = counted(job.rows())
    left = TABLES[0].append_column("extra", pa.array(range(ROWS), pa.int32()))
    for number in (0, 1):  # Spark takes the columns of the source from all of its files
        (tmp_path / "l" / f"{number:05}.parquet").unlink()
    job.arrive([2, 3], (left, TABLES[1]))
    query = job.run(**{**BOUNDED, "memory": 60, "policy": "life", "window": "20 seconds"})
    rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "out"))
    held = rows.where("ts_left < timestamp_seconds(1700000120) and ts_right >= timestamp_seconds(1700000120)")
    assert held.count() > 0
    assert rows.where("(extra is null) != (ts_left < timestamp_seconds(1700000120))").count() == 0
    found = counted(rows.drop("extra"))
    assert first < found < counted(pen.join(*TABLES, **COMMON))
    report = pen.report(query)
    assert report.arrivals.total == 2 * ROWS
    assert report.policy.startswith("life")
    assert report.pairs == found.total()
    assert report.balanced


def test_a_restart_that_does_not_fit_is_refused_and_does_no_harm(spark: Any, tmp_path: Path) -> None:
    """The query says what is wrong; afterwards the right arguments go on from the same checkpoint."""
    job = Job(spark, tmp_path)
    job.arrive([0, 1])
    job.run(**BOUNDED)
    job.arrive([2])
    for change, said in (
        ({"on": "w"}, "StateError: on: got"),
        ({"window": pen.rows(25), "shards": None}, "StateError: window: got 'rows'"),
        ({"shards": 3}, "StateError: shards: got 3; this checkpoint was written with shards=1"),
    ):
        with pytest.raises(StreamingQueryException, match=said):
            job.run(**{**BOUNDED, **change})
    left, right = (read_stream(spark, tmp_path / name) for name in ("l", "r"))
    narrower = pen.join(left.drop("v"), right, **BOUNDED)
    with pytest.raises(StreamingQueryException, match="StateError: left: got columns without"):
        run_to_end(narrower, tmp_path / "out", tmp_path / "cp")
    job.arrive([3])
    job.run(**BOUNDED)
    assert counted(job.rows()) == counted(pen.join(*TABLES, **{**BOUNDED, "shards": None}))


def test_a_source_may_begin_with_nothing(spark: Any, tmp_path: Path) -> None:
    """A first micro-batch without a partition is not heard by any shard."""
    streams = [
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", 20)
        .option("numPartitions", 1)
        .option("startTimestamp", 1_700_000_000_000)
        .option("advanceMillisPerBatch", 1000)
        .load()
        .withWatermark("timestamp", "1 second")
        for _ in range(2)
    ]
    rates = [
        spark.readStream.format("rate").option("rowsPerSecond", 20).load().withWatermark("timestamp", "1 second")
        for _ in range(2)
    ]
    for name, (left, right) in {"micro": streams, "rate": rates}.items():
        joined = pen.join(left, right, on="value", time="timestamp", window="1 hour", shards=2)
        writer = (
            joined.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path / name))
        )
        query = writer.start()
        try:
            while query.isActive and not spark.table(name).count():
                query.awaitTermination(1)
            assert query.exception() is None
        finally:
            query.stop()
        rows = [(row.value, row.timestamp_left) for row in spark.table(name).collect()]
        assert rows
        assert len({value for value, _ in rows}) == len(rows)
