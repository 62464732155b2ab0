"""The join does on Spark Connect what it does on classic Spark; a process has only one of them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import penstock as pen
from streaming import counted, ticking, write_batches

HERE = Path(__file__).resolve().parent.parent
CUTS = [60]
COMMON: dict[str, Any] = {"on": "k", "time": "ts", "window": "30 seconds", "memory": 20, "policy": "prob"}
SCRIPT = """
import json, sys
from pathlib import Path

import penstock as pen
from pyspark.sql import SparkSession
from streaming import counted, read_stream, run_to_end

folder = Path(sys.argv[1])
common = json.loads(sys.argv[2])
spark = pen.configure(SparkSession.builder.remote("local[2]")).config("spark.log.level", "ERROR").getOrCreate()
left, right = (read_stream(spark, folder / name) for name in ("l", "r"))
query = run_to_end(pen.join(left, right, shards=1, **common), folder / "out", folder / "cp")
report = pen.report(query)
tables = [spark.read.parquet(str(folder / name)) for name in ("l", "r")]
batch = tables[0].transform(pen.joining(tables[1], shards=1, **common))
ran = pen.run(*tables, shards=1, **common)
try:
    pen.join(left, tables[1], **common)
    refused = ""
except pen.errors.InputError as error:
    refused = str(error)
print(json.dumps({
    "kind": type(batch).__module__,
    "stream": sorted(counted(spark.read.parquet(str(folder / "out"))).elements()),
    "batch": sorted(counted(batch).elements()),
    "report": report.to_dict(),
    "ran": [ran.report.to_dict(), ran.table.count(), ran.ledger.count()],
    "refused": refused,
}))
spark.stop()
"""


def test_streams_and_batches_join_on_spark_connect(tmp_path: Path) -> None:
    tables = [ticking(seed, 120) for seed in (1, 2)]
    for name, table in zip(("l", "r"), tables, strict=True):
        write_batches(table, tmp_path / name, CUTS)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), json.dumps(COMMON)],
        env={**os.environ, "PYTHONPATH": str(HERE), "PENSTOCK_ENGINES": str(tmp_path / "engines")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    wanted = pen.run(*tables, **COMMON)
    rows = [list(row) for row in sorted(counted(wanted.table).elements())]
    assert found["kind"].startswith("pyspark.sql.connect")
    assert found["stream"] == found["batch"] == rows
    assert rows
    report, *counts = found["ran"]
    assert report["recall"] == wanted.report.recall._asdict()
    assert counts == [len(rows), wanted.ledger.num_rows]
    assert found["report"]["pairs"] == wanted.report.pairs
    assert found["report"]["shed"]["budget"]["left"] > 0
    assert "streaming and batch DataFrames" in found["refused"]
