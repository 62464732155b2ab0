"""A job with a fifth of the memory it needs keeps up with two live topics, and is refined to exact afterwards.

Event time is time on the wall here, so how late a row's pairs are is seen from outside: when the folder of its
micro-batch is whole, less when it was sent. PENSTOCK_OVERLOAD_MINUTES says how long the streams are (1), and
PENSTOCK_OVERLOAD_LATENCY how many seconds a row may take (10), start-up aside. It needs a machine that is quiet.
"""

import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pd
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from brokers import Broker
from topics import FOLDERS, completed, sources, topics, words

pytestmark = pytest.mark.kafka

MINUTES = float(os.environ.get("PENSTOCK_OVERLOAD_MINUTES", "1"))
LATENCY = float(os.environ.get("PENSTOCK_OVERLOAD_LATENCY", "10"))
RATE, KEYS, SPAN, OVER = 500, 4_000, 20, 5  # rows a second and side, keys, seconds, times the memory there is
STEP = 0.05
FIRST = 2  # micro-batches before this one start workers, and catch up
GROWTH = 1.2  # by which what processes hold may differ between two thirds of the time
Longs = npt.NDArray[np.int64]
JOB = f"""
checkpoint = "cp"
trigger = "2 seconds"

{{sources}}
[join]
on = "key"
time = "ts"
window = "{SPAN} seconds"
memory = {2 * RATE * SPAN // OVER}

{FOLDERS}
"""


class Live(threading.Thread):
    """Sends rows to both topics as time goes by, and remembers them."""

    def __init__(self, broker: Broker, names: list[str]) -> None:
        super().__init__(daemon=True)
        self.client = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True, "linger.ms": 5})
        self.names = names
        self.sent: list[list[tuple[int, int]]] = [[], []]  # (milliseconds, key) of each row
        self.goes_on = threading.Event()

    def run(self) -> None:
        dice = np.random.default_rng(1)
        begin = time.monotonic()
        while not self.goes_on.is_set():
            due = int((time.monotonic() - begin) * RATE)
            for rows, name in zip(self.sent, self.names, strict=True):
                for key in dice.integers(0, KEYS, due - len(rows)).tolist():
                    row = {"ms": int(time.time() * 1000), "key": key, "number": len(rows)}
                    self.client.produce(name, json.dumps(row).encode(), key=str(key).encode())
                    rows.append((row["ms"], key))
            self.client.poll(0)
            time.sleep(STEP)
        assert self.client.flush(60) == 0


def coded(left: Longs, right: Longs) -> Longs:
    """Return pairs of row numbers as one number each, in order."""
    return np.sort(left.astype(np.int64) << 32 | right.astype(np.int64))


def exact(sent: list[list[tuple[int, int]]]) -> Longs:
    """Return the pairs of the exact join, key by key, every pair of rows of a key compared."""
    sides = [np.array(rows, np.int64) for rows in sent]
    order = [np.argsort(side[:, 1], kind="stable") for side in sides]
    found = []
    for key in range(KEYS):
        rows = [
            at[slice(*np.searchsorted(side[at, 1], [key, key + 1]))] for side, at in zip(sides, order, strict=True)
        ]
        apart = np.abs(sides[0][rows[0], 0][:, None] - sides[1][rows[1], 0][None, :])
        mine, theirs = np.nonzero(apart < SPAN * 1000)
        found.append(coded(rows[0][mine], rows[1][theirs]))
    return np.sort(np.concatenate(found))


def met(*folders: Path) -> Longs:
    names = ["number_left", "number_right"]
    tables = [
        pd.dataset(path, format="parquet", exclude_invalid_files=True).to_table(columns=names) for path in folders
    ]
    table = pa.concat_tables(tables)
    return coded(*(table[name].to_numpy() for name in names))


def archived(folder: Path) -> int:
    """Count the rows of the archive's micro-batches that are whole."""
    return sum(
        pq.read_metadata(file).num_rows
        for mark in folder.glob("batch=*/_SUCCESS")
        for file in mark.parent.rglob("*.parquet")
    )


def lags(folder: Path, found: Path, since: float) -> list[float]:
    """Return the seconds from the sending of the first row of each micro-batch until its pairs were there.

    Micro-batches with rows that were sent before some time are left out.
    """
    late = []
    for mark in sorted(folder.glob("batch=*/_SUCCESS"), key=lambda path: int(path.parent.name[6:])):
        files = list(mark.parent.rglob("*.parquet"))
        if files:
            first = pc.min(pd.dataset(files).to_table(columns=["ts"])["ts"].cast(pa.timestamp("ms")))
            sent = first.cast(pa.int64()).as_py() / 1000
            if sent >= since:
                late.append((found / mark.parent.name / "_SUCCESS").stat().st_mtime - sent)
    return late


def held(job: Any) -> int:
    """Return the bytes that a process and all that it started hold."""
    total = 0
    for each in [psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)]:
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def test_a_fifth_of_the_memory(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = topics(broker, "calls", "trades")
    file = tmp_path / "job.toml"
    text = JOB.format(sources=sources(broker, names[0], names[1], 'watermark = "5 seconds"'))
    file.write_text(text, encoding="utf-8")
    live = Live(broker, names)
    memory: list[int] = []
    with subprocess.Popen(words("run", file), env=broker.env, stdout=subprocess.PIPE) as job:
        try:
            live.start()
            while not (tmp_path / "found" / f"batch={FIRST}" / "_SUCCESS").exists():
                assert job.poll() is None
                time.sleep(0.5)
            began = time.time()
            while time.time() < began + 60 * MINUTES:
                assert job.poll() is None
                memory.append(held(job))
                time.sleep(1)
            live.goes_on.set()
            live.join()
            until = time.monotonic() + 10 * LATENCY
            while archived(tmp_path / "rows") < sum(map(len, live.sent)):
                assert time.monotonic() < until, "the job does not keep up"
                time.sleep(0.5)
        finally:
            job.send_signal(signal.SIGINT)
        said = json.loads(job.communicate(timeout=60)[0])
    late = lags(tmp_path / "rows", tmp_path / "found", began)
    thirds = [float(np.median(part)) for part in np.array_split(memory, 3)]
    want, found = exact(live.sent), met(tmp_path / "found")
    completed("refine", file, broker)
    with capsys.disabled():
        print(  # noqa: T201 - what was measured
            f"\n{sum(map(len, live.sent)):,} rows in {MINUTES} minutes, {found.size / want.size:.1%} of the pairs"
            f" found with 1/{OVER} of the memory; the slowest of {len(late)} micro-batches took {max(late):.1f} s,"
            f" the median one {np.median(late):.1f} s; {thirds[1] / 2**20:,.0f} and {thirds[2] / 2**20:,.0f} MiB held"
            " in the second and the last third of the time"
        )
    assert said["stopped"]
    assert 0 < found.size < want.size
    assert np.array_equal(want, met(tmp_path / "found", tmp_path / "rest"))
    assert max(late) < LATENCY
    assert thirds[2] < GROWTH * thirds[1]
