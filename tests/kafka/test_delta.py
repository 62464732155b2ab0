"""Jobs write a Delta table and read it as a stream, with Delta's own jars."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
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
WRITES = f"""
checkpoint = "cp1"
trigger = "available_now"
{DRAWN.format(name="a", seed=1)}{DRAWN.format(name="b", seed=2)}
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


@pytest.fixture
def env() -> dict[str, str]:
    """Return the environment of a process with Delta's jars, and the Spark that they are made for."""
    return {
        **os.environ,
        "PYSPARK_SUBMIT_ARGS": f"--jars {','.join(fetched('delta'))} pyspark-shell",
        "PYTHONPATH": os.pathsep.join([str(pyspark_of(MADE_FOR)), os.environ.get("PYTHONPATH", "")]),
    }


def ran(file: Path, job: str, env: dict[str, str], *more: str) -> Any:
    """Run a job, and return what it says."""
    file.write_text(job, encoding="utf-8")
    done = subprocess.run(
        [*words("run", file), *more], env=env, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return json.loads(done.stdout)


def test_a_delta_table_is_written_and_read(tmp_path: Path, env: dict[str, str]) -> None:
    ran(tmp_path / "writes.toml", WRITES, env)
    assert (tmp_path / "pairs" / "_delta_log").is_dir()
    pairs = ds.dataset(sorted(map(str, (tmp_path / "pairs").glob("*.parquet")))).to_table()
    assert pairs.num_rows > 1000
    foreseen = ran(tmp_path / "reads.toml", READS, env, "--dry-run")
    for name, column in (("pairs", "ts_left"), ("again", "ts_right")):
        times = np.sort(pairs[column].to_numpy())
        held = np.arange(1, times.size + 1) - np.searchsorted(times, times - np.timedelta64(3, "s"), "right")
        usual = times.size * (np.timedelta64(3, "s") / (times[-1] - times[0]))  # by the clock: pairs come in clumps
        assert 0.5 * usual < foreseen["sources"][name]["window_rows"] <= held.max()
    ran(tmp_path / "reads.toml", READS, env)
    left, right = (
        pairs.select(["key", name]).rename_columns(["key", "ts"]).sort_by("ts") for name in ("ts_left", "ts_right")
    )
    want = pen.join(left, right, on="key", time="ts", window="3 seconds")
    got = ds.dataset(tmp_path / "found", exclude_invalid_files=True).to_table()
    assert want.num_rows > 1000
    assert counted(want) == counted(pa.table({name: got[name] for name in want.column_names}).cast(want.schema))


def test_a_micro_batch_that_is_run_again_is_in_the_table_once(tmp_path: Path, env: dict[str, str]) -> None:
    """Beside a ledger too: the last micro-batch with rows is written, and then its checkpoint does not know of it."""
    job = WRITES.replace("rows = 10_000", "rows = 2_000\nrows_per_trigger = 500") + '[ledger]\npath = "shed"\n'
    said = ran(tmp_path / "job.toml", job, env)
    once = ds.dataset(sorted(map(str, (tmp_path / "pairs").glob("*.parquet")))).to_table()
    assert once.num_rows == said["report"]["pairs"] > 100
    last = said["batches"] - 1  # with rows; one without may have followed it
    for folder, first in (("commits", last), ("offsets", last + 1)):
        for each in (tmp_path / "cp1" / folder).iterdir():
            if int(each.name.strip(".").removesuffix(".crc")) >= first:
                each.unlink()
    assert ran(tmp_path / "job.toml", job, env)["batches"] == 1
    again = ds.dataset(sorted(map(str, (tmp_path / "pairs").glob("*.parquet")))).to_table()
    assert counted(once) == counted(again)
