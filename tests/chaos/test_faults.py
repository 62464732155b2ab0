"""Whatever is killed, fails or is lost: in the end a join on Spark has put out what it puts out undisturbed."""

import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pen
from clusters import end, family, standalone
from streaming import counted, ticking, write_batches

pytestmark = pytest.mark.chaos

JOB = Path(__file__).with_name("job.py")
KILLS = int(os.environ.get("PENSTOCK_KILLS", "20"))
PER_FILE = 60
BOUNDED: dict[str, Any] = {"memory": 24, "policy": "prob", "shards": 2}
PATIENCE = 900.0  # seconds after which something hangs
Rows = Counter[tuple[Any, ...]]


class Kind(NamedTuple):
    """What is joined: streams by name, inside a budget or not; and how often it is killed."""

    names: tuple[str, ...]
    arguments: dict[str, Any]
    kills: int

    @property
    def files(self) -> int:
        """How many full files each stream has."""
        return 2 * self.kills + 4


TWO = Kind(("left", "right"), BOUNDED, KILLS)
FEW = max(2, KILLS // 4)
KINDS = {
    "two": TWO,
    "three": Kind(("a", "b", "c"), {**BOUNDED, "memory": 60}, FEW),
    "three, exact": Kind(("a", "b", "c"), {"shards": 2}, FEW),
}


class Job:
    """A folder with files to join, and the processes that do it."""

    def __init__(
        self, folder: Path, kind: Kind = TWO, tables: list[pa.Table] | None = None, per_file: int = PER_FILE
    ) -> None:
        self.folder, self.kind = folder, kind
        self.tables = tables or [ended(ticking(21 + at, kind.files * PER_FILE)) for at in range(len(kind.names))]
        for name, table in zip(kind.names, self.tables, strict=True):
            write_batches(table, folder / name, list(range(per_file, table.num_rows, per_file)))

    def start(self, master: str = "local[2]", **options: Any) -> "subprocess.Popen[bytes]":
        """Start the job in a session of its own, so that it can be ended whole."""
        (self.folder / "started").unlink(missing_ok=True)
        what = {"streams": self.kind.names, "arguments": self.kind.arguments}
        told = {"folder": str(self.folder), "master": master, **what, **options}
        paths = os.pathsep.join([str(JOB.parent), str(JOB.parent.parent)])
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(JOB), json.dumps(told)],
                env={**os.environ, "PYTHONPATH": paths, "PENSTOCK_ENGINES": str(self.folder / "engines")},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self, process: "subprocess.Popen[bytes]", each: Callable[[], None] = lambda: None) -> None:
        """Wait for the end of a job, doing something again and again."""
        until = time.monotonic() + PATIENCE
        try:
            while process.poll() is None:
                assert time.monotonic() < until, "the job hangs"
                each()
                time.sleep(0.05)
        finally:
            end(process)
        assert process.returncode == 0, (self.folder / "log").read_text(errors="replace")[-3000:]

    def run(self, **options: Any) -> None:
        self.wait(self.start(**options))

    def rows(self, out: str = "out") -> Rows:
        """Return the rows that the sink says are there: those of micro-batches that ended."""
        log = self.folder / out / "_spark_metadata"
        files: dict[str, str] = {}
        compact = [int(path.name.split(".")[0]) for path in log.glob("*.compact")]
        first = max(compact, default=-1)
        for path in log.iterdir():
            if path.name.startswith(".") or int(path.name.split(".")[0]) < first:
                continue
            for line in path.read_text().splitlines()[1:]:
                files[json.loads(line)["path"]] = path.name
        tables = [pq.read_table(path.removeprefix("file://")) for path in files]
        return counted(pa.concat_tables(tables))


def ended(table: pa.Table) -> pa.Table:
    """Add a row without a key, by which the watermark passes all others."""
    last = table["ts"][-1].as_py() + timedelta(hours=1)
    return pa.concat_tables([table, pa.Table.from_pylist([{"ts": last}], table.schema)])


def exact_rows(job: Job) -> Rows:
    """Try every combination of rows, one stream after the other."""
    found: list[tuple[dict[str, Any], ...]] = [()]
    for table in job.tables:
        rows = [row for row in table.to_pylist() if row["k"] is not None]
        found = [(*mine, row) for mine in found for row in rows if all(joins(row, other) for other in mine)]
    columns = {"k": [mine[0]["k"] for mine in found]}
    for at, name in enumerate(job.kind.names):
        columns |= {f"{column}_{name}": [mine[at][column] for mine in found] for column in ("ts", "v", "w")}
    return counted(pa.table(columns))


def joins(row: dict[str, Any], other: dict[str, Any]) -> bool:
    return row["k"] == other["k"] and abs(row["ts"] - other["ts"]) < timedelta(seconds=30)


def held_back(job: Job, keep: int) -> list[tuple[Path, Path]]:
    """Put all files but the first so many aside; returns, by age, where they are and where they belong."""
    aside = [job.folder / "aside" / name for name in job.kind.names]
    for folder in aside:
        folder.mkdir(parents=True)
    numbers = range(keep, len(list((job.folder / aside[0].name).iterdir())))
    moves = [
        (job.folder / folder.name / f"{at:05}.parquet", folder / f"{at:05}.parquet")
        for at in numbers
        for folder in aside
    ]
    for place, away in moves:
        place.rename(away)
    return [(away, place) for place, away in moves]


@pytest.fixture(scope="module", params=["two"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return what is joined; tests of several kinds name them."""
    return KINDS[request.param]


every_kind = pytest.mark.parametrize("kind", list(KINDS), indirect=True)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, kind: Kind) -> Rows:
    """Return what the job puts out when it is left alone; without a budget that is known by brute force."""
    job = Job(tmp_path_factory.mktemp("undisturbed"), kind)
    exact = exact_rows(job)
    if "memory" not in kind.arguments:
        return exact
    job.run()
    rows = job.rows()
    assert rows < exact
    assert rows.total() > exact.total() // 4
    shutil.rmtree(job.folder)
    return rows


@every_kind
def test_the_driver_killed_at_random_moments(tmp_path: Path, kind: Kind, undisturbed: Rows) -> None:
    """While it has work: before every start two more files of each stream arrive."""
    job = Job(tmp_path, kind)
    rest = held_back(job, 2)
    more = 2 * len(kind.names)
    lots = random.Random(1)  # noqa: S311
    killed = 0
    for _ in range(kind.kills):
        for aside, place in rest[:more]:
            aside.rename(place)
        del rest[:more]
        process = job.start()
        while process.poll() is None and not (tmp_path / "started").exists():
            time.sleep(0.05)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(lots.uniform(0, 10))
        if process.poll() is None:
            killed += 1
        else:
            assert process.returncode == 0, (tmp_path / "log").read_text(errors="replace")[-3000:]
        end(process)
    for aside, place in rest:
        aside.rename(place)
    job.run()
    assert killed > kind.kills // 2
    assert job.rows() == undisturbed


def workers(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Return the Python workers of a job: children of a daemon, which is itself Python."""
    found = []
    for child in family(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = child.parent()
            if parent is not None and "pyspark.daemon" in child.cmdline() and "pyspark.daemon" in parent.cmdline():
                found.append(child)
    return found


KILLED_WORKERS = 6  # fewer than the attempts that a task has, so that no unlucky one uses them all up


def test_python_workers_killed(tmp_path: Path, undisturbed: Rows) -> None:
    """On a master that runs a failed task again."""
    job = Job(tmp_path)
    process = job.start(master="local[2,8]")
    lots = random.Random(2)  # noqa: S311
    killed: list[int] = []

    def strike() -> None:
        if (tmp_path / "started").exists() and len(killed) < KILLED_WORKERS and lots.random() < 0.02:
            for worker in workers(process)[:1]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    worker.kill()
                    killed.append(worker.pid)

    job.wait(process, strike)
    assert len(killed) > 1
    assert job.rows() == undisturbed


@every_kind
def test_every_task_fails_twice(tmp_path: Path, kind: Kind, undisturbed: Rows) -> None:
    job = Job(tmp_path, kind)
    job.run(master="local[2,4]", fails=True)
    assert "this attempt was to fail" in (tmp_path / "log").read_text(errors="replace")
    assert job.rows() == undisturbed


def test_the_engines_of_the_host_are_lost_or_damaged(tmp_path: Path, undisturbed: Rows) -> None:
    job = Job(tmp_path)
    engines = tmp_path / "engines"
    lots = random.Random(3)  # noqa: S311
    struck: list[str] = []

    def strike() -> None:
        """Strike engines that lie there; those in use are part of a process, and can only be deleted."""
        lying: list[Path] = []
        with contextlib.suppress(OSError):  # a folder may be gone when its turn to be listed comes
            lying = [path for path in engines.glob("*/*") if path.is_file()]
        for path in lying:
            with contextlib.suppress(OSError):
                match lots.randrange(8):
                    case 0:
                        path.unlink()
                    case _ if "." in path.parent.name:
                        continue
                    case 1:
                        os.truncate(path, lots.randrange(path.stat().st_size + 1))
                    case 2:
                        path.write_bytes(lots.randbytes(100))
                    case _:
                        continue
                struck.append(path.name)

    job.wait(job.start(), strike)
    assert len(struck) > 10
    assert job.rows() == undisturbed


def test_another_number_of_cores(tmp_path: Path, undisturbed: Rows) -> None:
    job = Job(tmp_path)
    rest = held_back(job, TWO.files // 2)
    job.run(master="local[1]")
    for aside, place in rest:
        aside.rename(place)
    job.run(master="local[3]")
    assert job.rows() == undisturbed


def test_a_cluster_of_processes(tmp_path: Path, undisturbed: Rows) -> None:
    """Two executors, each with workers of its own; and one shard there is the embedded engine."""
    job = Job(tmp_path)
    conf = {"spark.executor.memory": "512m", "spark.executorEnv.PENSTOCK_ENGINES": str(tmp_path / "engines")}
    master = "local-cluster[2,1,1024]"
    job.run(master=master, conf=conf)
    assert job.rows() == undisturbed
    one = {**BOUNDED, "shards": 1}
    job.run(master=master, conf=conf, arguments=one, out="one", checkpoint="one.cp")
    embedded = pen.join(*job.tables, on="k", time="ts", window="30 seconds", memory=24, policy="prob")
    assert job.rows("one") == counted(embedded)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """Return the address of a standalone cluster of two machines, as far as Spark can tell."""
    with standalone(tmp_path) as address:
        yield address


def test_tasks_that_straggle_are_run_twice_at_once(tmp_path: Path, cluster: str, undisturbed: Rows) -> None:
    """Speculation needs another machine; both attempts write their state, and one of them counts."""
    job = Job(tmp_path)
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PENSTOCK_ENGINES": str(tmp_path / "engines"),
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.1",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.interval": "100ms",
    }
    job.run(master=cluster, conf=conf, straggles=True)
    assert (tmp_path / "speculated").exists()
    assert job.rows() == undisturbed


def test_an_hour_replayed_fast_holds_memory_flat(tmp_path: Path) -> None:
    """Resident memory of the driver, and of all workers together, in the last third against the middle one."""
    minute = 600
    tables = [pa.concat_tables([dense(seed, at, minute) for at in range(60)]) for seed in (31, 32)]
    job = Job(tmp_path, TWO, tables, minute)
    process = job.start(arguments={"memory": 500, "policy": "prob", "shards": 2})
    seen: list[tuple[int, int]] = []

    def look() -> None:
        if (tmp_path / "cp" / "commits").exists():
            seen.append((resident(process, "java"), resident(process, "pyspark.daemon")))
            time.sleep(0.5)

    job.wait(process, look)
    third = len(seen) // 3
    assert third > 10
    for which in range(2):
        # Not the largest: a process that is just being forked counts twice for a moment.
        middle = statistics.median(row[which] for row in seen[third : 2 * third])
        last = statistics.median(row[which] for row in seen[2 * third :])
        grown = [(java >> 20, workers >> 20) for java, workers in seen[:: max(1, third // 4)]]
        assert last < 1.2 * middle + 32 * 2**20, f"{('driver', 'workers')[which]}: {grown}"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["arrivals"] == {"left": 60 * minute, "right": 60 * minute}
    assert report["memory_rows"] <= 500 + 2 * 2 * 10  # the open tick aside


def dense(seed: int, minute: int, rows: int) -> pa.Table:
    """Return a minute with this many rows."""
    table = ticking(1000 * seed + minute, rows, keys=50)
    start = 1_700_000_000 + 60 * minute
    ts = [start * 1_000_000 + at * 60_000_000 // rows for at in range(rows)]
    return table.set_column(0, "ts", pa.array(ts, pa.timestamp("us", "UTC")))


def resident(process: "subprocess.Popen[bytes]", word: str) -> int:
    """Return the resident bytes of the processes of a job that have this word in their command."""
    total = 0
    for child in family(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            if any(word in part for part in child.cmdline()[:3]):
                total += child.memory_info().rss
    return total
