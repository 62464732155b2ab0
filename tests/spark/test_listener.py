"""Listener, report and outputs of a query tell the same story as the embedded engine."""

import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock as pen
from penstock.spark import Listener
from streaming import counted, read_stream, ticking, write_batches

TABLES = (ticking(1, 240), ticking(2, 240))
JOIN: dict[str, Any] = {"on": "k", "time": "ts", "window": "30 seconds", "importance": "w", "seed": 3}


@pytest.mark.parametrize("options", [{"memory": 20, "policy": "prob"}, {}], ids=["bounded", "exact"])
def test_all_agree_with_the_embedded_engine(spark: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    for name, table in zip(("l", "r"), TABLES, strict=True):
        write_batches(table, tmp_path / name, [90, 171])
    left, right = (read_stream(spark, tmp_path / name) for name in ("l", "r"))
    joined = pen.join(left, right, **JOIN, **options, shards=1)
    seen: list[tuple[int, int]] = []
    listener = Listener(lambda progress, report: seen.append((progress.batchId, report.pairs)))
    spark.streams.addListener(listener)
    try:
        places = {name: str(tmp_path / name) for name in ("results", "ledger", "archive")}
        query = pen.write(joined, checkpoint=str(tmp_path / "cp"), trigger="available now", **places)
        query.awaitTermination()
        found = pen.report(query)
        for _ in range(100):  # Spark tells its listeners after the fact
            if listener.reports.get(str(query.id)) == [found]:
                break
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    assert listener.reports[str(query.id)] == [found]
    assert [batch for batch, _ in seen] == sorted({batch for batch, _ in seen})
    assert seen[-1][1] == found.pairs

    lateness = ("watermark", "10 seconds") if options else "watermark"
    engine = pen.Join(**JOIN, **options, lateness=lateness)
    rows = engine.push(left=TABLES[0], right=TABLES[1])  # a stream does not end: the last tick stays open
    wanted = engine.report()
    for name in ("policy", "arrivals", "pairs", "shed", "exact_estimate", "recall"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert found.importance == pytest.approx(wanted.importance)
    assert found.balanced
    read = {name: pq.read_table(place) for name, place in places.items()}
    assert counted(read["results"].drop_columns(["batch"])) == counted(rows)
    assert read["archive"].num_rows == found.arrivals.total
    assert read["ledger"].num_rows == engine.ledger().num_rows == sum(count.total for count in found.shed.values())
