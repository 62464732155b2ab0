"""One query writes results, ledger and archive, and together they account for every pair of the exact join."""

from pathlib import Path
from typing import Any

import pytest

import penstock as pen
from penstock.errors import InputError
from penstock.operator.join import settings_of
from penstock.spark import writing
from streaming import counted, read_stream, run_to_end, straggling, write_batches

ROWS = 400


def test_what_is_missing_is_in_the_ledger(spark: Any, tmp_path: Path) -> None:
    """A pair is missing if and only if one of its rows was gone, by the ledger, when the other came."""
    for name, seed in (("l", 1), ("r", 2)):
        write_batches(straggling(seed, ROWS), tmp_path / name, [120, 260])
    streams = [read_stream(spark, tmp_path / name, delay="5 seconds") for name in ("l", "r")]
    how: dict[str, Any] = {"on": "k", "time": "ts", "window": "20 seconds", "memory": 24, "policy": "oldest"}
    joined = pen.join(streams[0], streams[1], **how, shards=2)
    outputs = {name: str(tmp_path / name) for name in ("results", "ledger", "archive")}
    query = pen.write(joined, checkpoint=str(tmp_path / "cp"), **outputs, trigger="available now")
    query.awaitTermination()
    results, ledger, archive = (spark.read.parquet(path) for path in outputs.values())
    plain = run_to_end(joined, tmp_path / "plain", tmp_path / "plain.cp")
    names = joined.columns
    assert counted(results, names) == counted(spark.read.parquet(str(tmp_path / "plain")), names)
    report = pen.report(query)
    assert report == pen.report(plain)
    assert report.balanced
    shed = ledger.groupBy("reason", "side").count().collect()
    assert {(row.reason, row.side): row["count"] for row in shed} == {
        (reason, side): count[at]
        for reason, count in report.shed.items()
        for at, side in enumerate(("left", "right"))
        if count[at]
    }
    assert report.shed["late"].total > 0
    assert report.shed["budget"].total > 0

    came = {(row.side, (row.left or row.right).id): row for row in archive.collect()}
    assert len(came) == archive.count() == report.arrivals.total == 2 * ROWS
    gone = {(row.side, row.shard, row.arrival): row.shed_at_arrival for row in ledger.collect()}
    found = counted(results, ["id_left", "id_right"])
    missing = 0
    for a in range(ROWS):
        for b in range(ROWS):
            left, right = came["left", a], came["right", b]
            if left.left.k is None or left.left.k != right.right.k or abs((left.ts - right.ts).total_seconds()) >= 20:
                continue
            assert left.shard == right.shard
            missed = (
                gone.get(("left", left.shard, left.arrival), right.arrival + 1) <= right.arrival
                or gone.get(("right", right.shard, right.arrival), left.arrival + 1) <= left.arrival
            )
            missing += missed
            assert found[repr(a), repr(b)] == (0 if missed else 1)
    assert missing > 0
    assert found.total() == report.pairs


def test_what_cannot_be_written(spark: Any, tmp_path: Path) -> None:
    """Errors come before anything starts."""
    write_batches(straggling(1, ROWS), tmp_path / "l", [])
    frame = spark.read.parquet(str(tmp_path / "l"))
    stream = read_stream(spark, tmp_path / "l")
    how: dict[str, Any] = {"on": "k", "time": "ts", "window": "20 seconds"}
    joined = pen.join(stream, stream, **how)
    where = {"checkpoint": str(tmp_path / "cp")}
    for given in (stream, joined.where("k is not null"), pen.join(frame, frame, **how)):
        with pytest.raises(InputError, match=r"pen\.join or pen\.multijoin returned"):
            pen.write(given, **where, results=str(tmp_path / "out"))
    with pytest.raises(InputError, match="name a folder"):
        pen.write(joined, **where)
    with pytest.raises(InputError, match="available now"):
        pen.write(joined, **where, results=str(tmp_path / "out"), trigger=5)
    assert not (tmp_path / "cp").exists()


def test_a_trigger_too_long_for_a_latency_is_refused(spark: Any, tmp_path: Path) -> None:
    for name in ("l", "r"):
        write_batches(straggling(1, 10), tmp_path / name, [])
    streams = [read_stream(spark, tmp_path / name) for name in ("l", "r")]
    how: dict[str, Any] = {"on": "k", "time": "ts", "window": "20 seconds", "cpu": pen.cpu(latency="9 seconds")}
    joined = pen.join(streams[0], streams[1], **how)
    folders = {name: str(tmp_path / name) for name in ("results", "checkpoint")}
    for trigger in ("3100 ms", {"processingTime": "4 seconds"}):
        with pytest.raises(InputError, match=r"trigger: got .*; rows wait for two .*: 3 seconds at most"):
            pen.write(joined, **folders, trigger=trigger)
    fine: list[Any] = ["available now", {"once": True}, "3 seconds", "interval 5 seconds", None]
    for trigger in fine:
        writing.in_time(settings_of(how), trigger)
