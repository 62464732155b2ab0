"""Jobs write a Delta table and read it as a stream, with Delta's own jars."""

import os
import subprocess
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import penstock as pen
from brokers import fetched, pyspark_of
from streaming import counted
from topics import SECONDS, words

pytestmark = pytest.mark.kafka

MADE_FOR = "4.2.1"  # there is no Delta for 4.3 yet
DRAWN = """
[sources.{name}]
format = "zipf"
rows = 10_000
keys = 100
seed = {seed}
watermark = "10 seconds"
"""
WRITES = """
checkpoint = "cp1"
trigger = "available_now"
{sources}
[join]
on = "key"
time = "ts"
window = "20 seconds"

[sink]
format = "table"
name = "pairs"
provider = "delta"
path = "pairs"
"""
READS = """
checkpoint = "cp2"
trigger = "available_now"

[sources.pairs]
format = "delta"
path = "pairs"
select = ["key", "ts_left as ts"]
watermark = "10 minutes"

[sources.again]
format = "delta"
path = "pairs"
select = ["key", "ts_right as ts"]
watermark = "10 minutes"

[join]
on = "key"
time = "ts"
window = "3 seconds"

[sink]
format = "parquet"
path = "found"
"""


def test_a_delta_table_is_written_and_read(tmp_path: Path) -> None:
    env = {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"--jars {','.join(fetched('delta'))} pyspark-shell",
        "PYTHONPATH": str(pyspark_of(MADE_FOR)),
    }
    jobs = {
        "writes": WRITES.format(sources=DRAWN.format(name="a", seed=1) + DRAWN.format(name="b", seed=2)),
        "reads": READS,
    }
    for name, job in jobs.items():
        file = tmp_path / f"{name}.toml"
        file.write_text(job, encoding="utf-8")
        done = subprocess.run(
            words("run", file), env=env, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    assert (tmp_path / "pairs" / "_delta_log").is_dir()
    pairs = ds.dataset(sorted(map(str, (tmp_path / "pairs").glob("*.parquet")))).to_table()
    assert pairs.num_rows > 1000
    left, right = (
        pairs.select(["key", name]).rename_columns(["key", "ts"]).sort_by("ts") for name in ("ts_left", "ts_right")
    )
    want = pen.join(left, right, on="key", time="ts", window="3 seconds")
    got = ds.dataset(tmp_path / "found", exclude_invalid_files=True).to_table()
    assert want.num_rows > 1000
    assert counted(want) == counted(pa.table({name: got[name] for name in want.column_names}).cast(want.schema))
