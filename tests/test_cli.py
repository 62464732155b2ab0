"""The command line does what the functions do, says it as text or as JSON, and leaves nothing half-done."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pen
from disks import disk_of
from penstock import cli
from penstock.engine import replay as replaying
from penstock.engine import warmup as warming
from penstock.engine.pump import run
from penstock.engine.replay import Lane, pushed, replay
from penstock.errors import ColumnError, OrderError, PenstockError, PolicyError, TimeError
from penstock.jobs import running
from penstock.operator.join import settings_of
from penstock.report import demo as showing
from penstock.spark import live
from penstock.spark.folders import Refined
from penstock.streams import files
from penstock.streams.workloads import surge, zipf

JOIN = ["--on", "key", "--time", "ts", "--window", "20"]
COMMANDS = [
    "join",
    "run",
    "dashboard",
    "compare",
    "advise",
    "refine",
    "plan",
    "optimum",
    "figure",
    "warmup",
    "demo",
    "doctor",
]
SUFFIXES = [".csv", ".parquet", ".arrow"]


def named(table: pa.Table) -> pa.Table:
    return table.append_column("name", pa.array([f"row {row}" for row in range(table.num_rows)]))


streams = zipf((1500, 500), keys=20, rate=(3, 0.9), seed=3)
left, right = named(streams.left), named(streams.right)


def same_rows(want: pa.Table, got: pa.Table) -> bool:
    """Compare tables by what they hold: pairs come in any order."""
    order = [
        (name, "ascending") for name in want.column_names if not pa.types.is_nested(want.schema.field(name).type)
    ]
    return bool(want.sort_by(order) == got.sort_by(order))


def put(path: Path, table: pa.Table) -> str:
    with files.writer(path, table.schema) as out:
        for start in range(0, table.num_rows, 100):
            out.write(table[start : start + 100])
    return str(path)


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    return [put(tmp_path / "left.parquet", left), put(tmp_path / "right.csv", right)]


class Ran:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


Penstock = Callable[..., Ran]


@pytest.fixture
def penstock(capsys: pytest.CaptureFixture[str]) -> Penstock:
    def call(*words: object) -> Ran:
        code = cli.main([str(word) for word in words])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


def child(*words: object, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *(str(word) for word in words)],
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
    )


# --- the map ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], []])
def test_help_is_the_map(penstock: Penstock, words: list[str]) -> None:
    ran = penstock(*words)
    assert ran.code == 0
    for command in COMMANDS:
        assert command in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_takes_json(penstock: Penstock, command: str) -> None:
    ran = penstock(command, "--help")
    assert ran.code == 0
    assert "--json" in ran.out


def test_version(penstock: Penstock) -> None:
    assert f"penstock {pen.__version__}\n" == penstock("--version").out


# --- join ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("into", SUFFIXES)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_join_gives_what_the_function_gives(penstock: Penstock, tmp_path: Path, suffix: str, into: str) -> None:
    paths = [put(tmp_path / f"left{suffix}", left), put(tmp_path / f"right{suffix}", right)]
    ran = penstock("join", *paths, *JOIN, "--out", tmp_path / f"out{into}")
    assert (0, "") == (ran.code, ran.err)
    want = pen.join(left, right, on="key", time="ts", window=20)
    assert want.num_rows > 1000
    assert same_rows(want, files.read(tmp_path / f"out{into}"))


def test_the_report_and_the_ledger_are_those_of_the_function(
    penstock: Penstock, pair: list[str], tmp_path: Path
) -> None:
    out, ledger = tmp_path / "out.arrow", tmp_path / "ledger.parquet"
    words = ["--memory", "40", "--policy", "oldest", "--out", out, "--ledger", ledger, "--json"]
    ran = penstock("join", *pair, *JOIN, *words)
    want = pen.run(left, right, on="key", time="ts", window=20, memory=40, policy="oldest")
    assert same_rows(want.table, files.read(out))
    assert same_rows(want.ledger, files.read(ledger))
    assert want.ledger.num_rows > 100
    told = want.report.to_dict()
    assert told == {name: ran.document[name] for name in told}
    assert {"left": pair[0], "right": pair[1], "out": str(out), "ledger": str(ledger)} == ran.document["paths"]


def test_without_a_file_the_first_rows_and_the_report_are_shown(penstock: Penstock, pair: list[str]) -> None:
    want = pen.join(left, right, on="key", time="ts", window=20)
    text = penstock("join", *pair, *JOIN)
    assert text.code == 0
    assert f"The first 10 of {want.num_rows:,} rows" in text.out
    assert f"{want.num_rows:,} pairs" in text.out
    assert "\x1b" not in text.out
    document = penstock("join", *pair, *JOIN, "--json").document
    assert len(document["first"]) == 10
    assert all(row in want.to_pylist() for row in document["first"])
    assert want.num_rows == document["pairs"]


def test_every_option_reaches_the_join(penstock: Penstock, tmp_path: Path) -> None:
    weigh = [
        table.rename_columns({"ts": f"{side}ts", "key": f"{side}key"}).append_column(
            "w", pa.array(np.arange(table.num_rows) % 7)
        )
        for side, table in (("l", left), ("r", right))
    ]
    paths = [put(tmp_path / f"{side}.arrow", table) for side, table in zip("lr", weigh, strict=True)]
    words = ["--on", "lkey=rkey", "--time", "lts=rts", "--window", "30,20", "--memory", "60", "--split", "40+20"]
    words += ["--policy", "oldest", "--importance", "w", "--combine", "sum", "--per-key", "3", "--seed", "5"]
    assert penstock("join", *paths, *words, "--out", tmp_path / "out.arrow").code == 0
    want = pen.join(
        *weigh,
        on=("lkey", "rkey"),
        time=("lts", "rts"),
        window=(30, 20),
        memory=60,
        split=(40, 20),
        policy="oldest",
        importance="w",
        combine="sum",
        per_key=3,
        seed=5,
    )
    assert same_rows(want, files.read(tmp_path / "out.arrow"))


def test_timestamps_and_spans_in_words(penstock: Penstock, tmp_path: Path) -> None:
    tables = []
    for side, table in (("left", left), ("right", right)):
        seconds = pa.array(table["ts"].to_numpy(), pa.timestamp("s")).cast(pa.timestamp("us"))
        tables.append(table.set_column(0, "ts", seconds))
        put(tmp_path / f"{side}.parquet", tables[-1])
    words = ["--on", "key", "--time", "ts", "--window", "20 seconds", "--out", tmp_path / "out.parquet"]
    assert penstock("join", tmp_path / "left.parquet", tmp_path / "right.parquet", *words).code == 0
    want = pen.join(*tables, on="key", time="ts", window="20 seconds")
    assert same_rows(want, files.read(tmp_path / "out.parquet"))


def test_files_without_rows_give_an_empty_result(penstock: Penstock, tmp_path: Path) -> None:
    for suffix in SUFFIXES:
        paths = [put(tmp_path / f"{name}{suffix}", left[:0]) for name in ("left", "right")]
        ran = penstock(
            "join", *paths, *JOIN, "--memory", "5", "--policy", "oldest", "--out", tmp_path / f"out{suffix}"
        )
        assert (0, "") == (ran.code, ran.err)
        got = files.read(tmp_path / f"out{suffix}")
        assert ["key", "ts_left", "name_left", "ts_right", "name_right"] == got.column_names
        assert got.num_rows == 0


# --- the replay under it ------------------------------------------------------------------------------------------


def shuffled(table: pa.Table, back: int) -> pa.Table:
    """Put some rows up to so many ticks late."""
    rng = np.random.default_rng(1)
    late = table["ts"].to_numpy() + rng.integers(0, back, table.num_rows)
    return table.take(pa.array(np.argsort(late, kind="stable")))


@pytest.mark.parametrize("batch", [1, 2, 7, 64, 5000])
@pytest.mark.parametrize(
    "arguments",
    [
        {"window": 5},
        {"window": (1, 9)},
        {"window": pen.rows(6)},
        {"window": 9, "memory": 12, "policy": "oldest"},
        {"window": pen.rows(9), "memory": 12, "policy": "oldest"},
    ],
    ids=str,
)
def test_the_batches_do_not_matter(tmp_path: Path, batch: int, arguments: dict[str, Any]) -> None:
    """Ties lie across batch borders, and one side has several times the rows of the other."""
    tables = left[:300], right[:100]
    paths = put(tmp_path / "l.arrow", tables[0]), put(tmp_path / "r.arrow", tables[1])
    settings = settings_of({"on": "key", "time": "ts", **arguments})
    want = run(*tables, settings, ledger="keep")
    got = replay(*paths, settings, out=tmp_path / "out.arrow", ledger=tmp_path / "ledger.arrow", batch=batch)
    assert same_rows(want.table, files.read(tmp_path / "out.arrow"))
    assert same_rows(want.ledger, files.read(tmp_path / "ledger.arrow"))
    assert want.report.arrivals == got.report.arrivals
    assert want.report.shed == got.report.shed
    assert want.table.num_rows == got.rows == got.report.pairs


@pytest.mark.parametrize("batch", [1, 3, 50])
def test_late_rows_within_the_lateness_join(tmp_path: Path, batch: int) -> None:
    tables = shuffled(left[:300], 9), shuffled(right[:100], 9)
    paths = put(tmp_path / "l.parquet", tables[0]), put(tmp_path / "r.parquet", tables[1])
    settings = settings_of({"on": "key", "time": "ts", "window": 8, "lateness": 4})
    want = run(*tables, settings, ledger="keep")
    got = replay(*paths, settings, out=tmp_path / "out.parquet", batch=batch)
    assert want.report.shed["late"].total > 0
    assert want.report.to_dict() == {**got.report.to_dict(), "memory_bytes": want.report.memory_bytes}
    assert same_rows(want.table, files.read(tmp_path / "out.parquet"))


@pytest.mark.parametrize("swap", [False, True])
def test_no_more_than_a_batch_of_a_side_waits(tmp_path: Path, swap: bool) -> None:  # noqa: FBT001
    paths = [put(tmp_path / "l.parquet", left), put(tmp_path / "r.parquet", right)]
    paths = paths[::-1] if swap else paths
    op = pen.Join(on="key", time="ts", window=5, schemas=(left.schema, left.schema))
    lanes = Lane(paths[0], 0, op.bound, 50), Lane(paths[1], 1, op.bound, 50)
    for _ in pushed(op, lanes):
        assert max(lane.waiting for lane in lanes) <= 50
    assert all(lane.done for lane in lanes)


def test_pushes_stay_small_where_much_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "PAIRS", 3000)
    monkeypatch.setattr(replaying, "FEWEST", 16)
    streams = zipf(3000, keys=1)
    paths = [put(tmp_path / f"{name}.arrow", table) for name, table in (("l", streams.left), ("r", streams.right))]
    op = pen.Join(on="key", time="ts", window=50, schemas=(streams.left.schema, streams.right.schema))
    sizes = [
        joined.num_rows
        for joined in pushed(op, (Lane(paths[0], 0, op.bound, 9999), Lane(paths[1], 1, op.bound, 9999)))
    ]
    assert op.report().pairs == sum(sizes)
    assert max(sizes) < 10_000 < sum(sizes)


def test_progress_is_told_and_ends_at_all_rows(tmp_path: Path) -> None:
    paths = put(tmp_path / "l.parquet", left), put(tmp_path / "r.parquet", right)
    told: list[tuple[int, int | None]] = []
    settings = settings_of({"on": "key", "time": "ts", "window": 5})
    replay(*paths, settings, batch=100, progress=lambda done, total: told.append((done, total)))
    assert (2000, 2000) == told[-1]
    assert sorted(told) == told


@pytest.mark.parametrize("batch", [1, 2, 3, 1000])
def test_rows_out_of_order_are_an_error_that_names_the_row(tmp_path: Path, batch: int) -> None:
    bad = pa.table({"ts": [1, 2, 3, 2, 5], "key": [1, 1, 1, 1, 1]})
    paths = put(tmp_path / "l.csv", left[:20].select(["ts", "key"])), put(tmp_path / "r.csv", bad)
    settings = settings_of({"on": "key", "time": "ts", "window": 5})
    with pytest.raises(OrderError, match=r"right: got row 3 is older") as caught:
        replay(*paths, settings, out=tmp_path / "out.csv", batch=batch)
    assert caught.value.argument == "right"
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize("batch", [1, 2, 1000])
def test_a_null_time_is_an_error_that_names_the_row_and_the_file(tmp_path: Path, batch: int) -> None:
    bad = pa.table({"ts": [1, 2, 3, None, 5], "key": [1, 1, 1, 1, 1]})
    paths = put(tmp_path / "l.arrow", left[:20].select(["ts", "key"])), put(tmp_path / "r.arrow", bad)
    settings = settings_of({"on": "key", "time": "ts", "window": 5})
    with pytest.raises(TimeError, match=r"r\.arrow: got a null in row 3"):
        replay(*paths, settings, batch=batch)


# --- words --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("k", "k"),
        ("k,k2", ["k", "k2"]),
        ("l=r", ("l", "r")),
        ("a=b,c=d", [("a", "b"), ("c", "d")]),
    ],
)
def test_words_for_keys(word: str, want: object) -> None:
    assert want == cli.on_of(word)


@pytest.mark.parametrize("word", ["k,l=r", "l=", "=r", "a=b=c", "", "k,"])
def test_words_that_are_no_keys(word: str) -> None:
    with pytest.raises(ColumnError):
        cli.on_of(word)


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("400", 400),
        ("-3", -3),
        ("10 minutes", "10 minutes"),
        ("400 rows", pen.rows(400)),
        ("1 row", pen.rows(1)),
        ("0 rows", pen.rows(0)),
        ("10,20", (10, 20)),
        ("10 minutes, 1 hour 30 minutes", ("10 minutes", "1 hour 30 minutes")),
        ("3 rows,4 rows", (pen.rows(3), pen.rows(4))),
        ("soon", "soon"),
    ],
)
def test_words_for_windows(word: str, want: object) -> None:
    assert want == cli.window_of(word)


@pytest.mark.parametrize(("word", "want"), [("100", 100), ("-1", -1), ("512MB", "512MB"), ("none", None)])
def test_words_for_memory(word: str, want: object) -> None:
    assert want == cli.memory_of(word)


@pytest.mark.parametrize(
    ("word", "want"), [("shared", "shared"), ("300+100", (300, 100)), ("300,100", (300, 100)), ("300", "300")]
)
def test_words_for_splits(word: str, want: object) -> None:
    assert want == cli.split_of(word)


def test_words_for_policies() -> None:
    words = "rand,prob:statistics=decayed,half_life=30,life:statistics=window,exact"
    want = ["rand", "prob(statistics=decayed, half_life=30)", "life(statistics=window)", "exact"]
    assert want == [str(policy) for policy in cli.policies_of(words)]


@pytest.mark.parametrize("word", ["prob:", "prob:window", "prob:=3", "prob:statistics=nonsense", "prub:a=1"])
def test_words_that_are_no_policy(word: str) -> None:
    with pytest.raises(PolicyError):
        cli.policy_of(word)


def test_words_for_moments() -> None:
    assert cli.moment_of("17") == 17
    assert datetime(2025, 1, 31, 12) == cli.moment_of("2025-01-31T12:00")  # noqa: DTZ001 - as a naive column has it
    with pytest.raises(TimeError):
        cli.moment_of("noon")


# --- optimum ------------------------------------------------------------------------------------------------------


def test_optimum_gives_what_the_function_gives(penstock: Penstock, pair: list[str], tmp_path: Path) -> None:
    words = ["--memory", "20", "--split", "fixed", "--count-from", "50"]
    out = tmp_path / "schedule.parquet"
    ran = penstock("optimum", *pair, *JOIN, *words, "--schedule", str(out), "--json")
    want = pen.optimum(left, right, on="key", time="ts", window=20, memory=20, split="fixed", count_from=50)
    assert (want.value, want.bound, 0, want.schedule.num_rows) == tuple(
        ran.document[name] for name in ("value", "bound", "gap", "kept")
    )
    assert want.schedule.equals(files.read(out))
    text = penstock("optimum", *pair, *JOIN, *words, "--schedule", str(out))
    assert f"{want.value:,} pairs (proved)" in text.out
    assert str(out) in text.out


def test_optimum_with_a_time_limit_says_what_is_proved_so_far(penstock: Penstock, pair: list[str]) -> None:
    said = penstock("optimum", *pair, *JOIN, "--memory", "20", "--time-limit", "0.000001", "--json").document
    best = penstock("optimum", *pair, *JOIN, "--memory", "20", "--json").document
    assert said["value"] <= best["value"] == best["bound"] <= said["bound"]


def test_optimum_says_what_is_wrong(penstock: Penstock, pair: list[str]) -> None:
    ran = penstock("optimum", *pair, *JOIN, "--memory", "1MB")
    assert ran.code == 2
    assert "knapsack" in ran.err


# --- compare ------------------------------------------------------------------------------------------------------


def test_compare_gives_what_the_function_gives(penstock: Penstock, pair: list[str]) -> None:
    words = ["--policies", "oldest,exact", "--memory", "20,40", "--split", "shared,fixed", "--count-from", "50"]
    ran = penstock("compare", *pair, *JOIN, *words, "--json")
    want = pen.compare(
        left,
        right,
        on="key",
        time="ts",
        window=20,
        policies=["oldest", "exact"],
        memory=[20, 40],
        split=["shared", "fixed"],
        count_from=50,
    )
    assert [row | {"seconds": 0} for row in want.to_pylist()] == [
        row | {"seconds": 0} for row in ran.document["scores"]
    ]
    text = penstock("compare", *pair, *JOIN, *words)
    assert text.code == 0
    assert f"{want['pairs'].to_pylist()[0]:,}" in text.out
    assert "100.0%" in text.out


def test_compare_shows_importance_where_there_is_one(penstock: Penstock, tmp_path: Path) -> None:
    weigh = zipf(300, keys=5, importance="rare", seed=2)
    paths = [put(tmp_path / "l.csv", weigh.left), put(tmp_path / "r.csv", weigh.right)]
    words = ["--policies", "exact", "--memory", "10", "--importance", "importance"]
    assert "importance" in penstock("compare", *paths, *JOIN, *words).out


# --- advise and observe -------------------------------------------------------------------------------------------


def test_advise_gives_what_the_function_gives(penstock: Penstock, pair: list[str]) -> None:
    words = ["--recall", "0.5,0.9", "--policy", "oldest", "--split", "fixed"]
    ran = penstock("advise", *pair, *JOIN, *words, "--json")
    want = pen.advise(
        left, right, on="key", time="ts", window=20, recall=[0.5, 0.9], policy=["oldest"], split="fixed"
    )
    assert ran.document | {"seconds": 0, "paths": {}} == want.to_dict() | {"seconds": 0, "paths": {}}
    text = penstock("advise", *pair, *JOIN, *words)
    assert text.code == 0
    assert f"{want.memory:,}" in text.out
    assert "between 0 and 1" in penstock("advise", *pair, *JOIN, "--recall", "all").err


def test_advise_takes_importance(penstock: Penstock, tmp_path: Path) -> None:
    """The policy gives up other rows, by what pairs are worth, and needs other memory for as many of them."""
    weigh = zipf(900, keys=12, importance="rare", seed=2)
    paths = [put(tmp_path / "l.csv", weigh.left), put(tmp_path / "r.csv", weigh.right)]
    words = ["--recall", "0.4,0.8", "--importance", "importance"]
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 20, "recall": [0.4, 0.8]}
    found = []
    for combine in ("sum", "min"):
        ran = penstock("advise", *paths, *JOIN, *words, "--combine", combine, "--json")
        want = pen.advise(weigh.left, weigh.right, importance="importance", combine=combine, **how)
        assert ran.document | {"seconds": 0, "paths": {}} == want.to_dict() | {"seconds": 0, "paths": {}}
        found.append(ran.document["needs"])
    assert found[0] != found[1]


def test_refine_gives_what_the_function_gives(penstock: Penstock, pair: list[str], tmp_path: Path) -> None:
    ledger, rest, out = (tmp_path / f"{name}.parquet" for name in ("shed", "rest", "out"))
    assert penstock("join", *pair, *JOIN, "--memory", "8", "--ledger", ledger, "--out", out).code == 0
    ran = penstock("refine", *pair, "--ledger", ledger, *JOIN, "--into", rest, "--json")
    want = pen.refine(archive=pair, ledger=ledger, on="key", time="ts", window=20)
    assert want.num_rows == ran.document["rows"] > 0
    assert want.equals(pq.read_table(rest))
    whole = penstock("join", *pair, *JOIN, "--json").document["pairs"]
    assert whole == pq.read_metadata(out).num_rows + want.num_rows
    assert want[:10].to_pylist() == penstock("refine", *pair, "--ledger", ledger, *JOIN, "--json").document["first"]
    assert f"{want.num_rows:,} rows were missing" in penstock("refine", *pair, "--ledger", ledger, *JOIN).out
    assert "name a folder" in penstock("refine", tmp_path, "--ledger", ledger, *JOIN).err
    assert "keep" in penstock("refine", *pair, "--ledger", ledger, *JOIN, "--keep", "5").err


def test_a_job_that_is_wrong_starts_nothing(penstock: Penstock, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text('[sources.orders]\nformat = "parket"\n', encoding="utf-8")
    for command in ("run", "refine"):
        ran = penstock(command, file, "--json")
        assert ran.code == 2
        assert ran.document["error"]["argument"] == "sources.orders.format"
        assert "did you mean 'parquet'" in ran.document["error"]["want"]
    assert "the job file says it" in penstock("refine", file, "--on", "key").err
    assert "give --window" in penstock("refine", tmp_path, "--ledger", file, "--on", "k", "--time", "ts").err


JOB = """
checkpoint = "cp"
[sources.a]
format = "zipf"
rows = 10
watermark = "1 second"
[join]
on = "key"
time = "ts"
window = "5 seconds"
[sink]
format = "parquet"
path = "found"
[ledger]
path = "shed"
[archive]
path = "rows"
[refine]
into = "rest"
keep = "1 day"
[spark]
memory = "2g"
packages = "a.b:c:1"
"""


def test_refine_of_a_job_takes_its_spark_and_what_is_given(
    penstock: Penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file says the rest; nothing that is given is passed over."""
    job = tmp_path / "job.toml"
    job.write_text(JOB, encoding="utf-8")
    started: list[Any] = []
    repairs: list[Any] = []

    @contextmanager
    def spark(memory: str, more: dict[str, str]) -> Iterator[None]:
        started.append((memory, more))
        yield

    def refine(job: Any, *_: object) -> Refined:
        repairs.append(job.refine)
        return Refined([], [], None)

    monkeypatch.setattr(live, "local_spark", spark)
    monkeypatch.setattr(running, "refine", refine)
    assert penstock("refine", job).code == 0
    assert penstock("refine", job, "--keep", "2 days", "--batches", 7).code == 0
    assert [(repair.keep, repair.batches) for repair in repairs] == [("1 day", 100), ("2 days", 7)]
    assert repairs[0].into == str(tmp_path / "rest")
    assert started == [("2g", {"spark.jars.packages": "a.b:c:1"})] * 2
    wrong = {"keep": "a while", "batches": "0"}
    twice = {"lateness": "0", "importance": "w", "combine": "min", "on": "key", "time": "ts", "window": "5"}
    for option, word in {**wrong, **twice, "ledger": "shed", "into": "rest"}.items():
        error = penstock("refine", job, f"--{option}", word, "--json").document["error"]
        assert (error["argument"], len(repairs)) == (option, 2)


@pytest.mark.parametrize("option", ["keep", "batches"])
def test_refine_of_files_has_no_parts(penstock: Penstock, pair: list[str], option: str) -> None:
    ran = penstock("refine", *pair, "--ledger", "shed.parquet", *JOIN, f"--{option}", 7, "--json")
    assert ran.document["error"]["argument"] == option


def test_join_can_only_observe(penstock: Penstock, pair: list[str]) -> None:
    words = ["--memory", "20", "--policy", "oldest", "--mode", "observe"]
    seen = penstock("join", *pair, *JOIN, *words, "--json").document
    want = pen.run(left, right, on="key", time="ts", window=20, memory=20, policy="oldest").report
    assert (seen["mode"], seen["pairs"]) == ("observe", want.pairs)
    assert "would have done" in penstock("join", *pair, *JOIN, *words).out


# --- figure -------------------------------------------------------------------------------------------------------


def test_figure_writes_a_picture_and_its_numbers(penstock: Penstock, tmp_path: Path) -> None:
    ran = penstock("figure", "das2003/9", "--quick", "--out", tmp_path)
    assert ran.code == 0
    assert {"das2003-9.png", "das2003-9.json"} == {path.name for path in tmp_path.iterdir()}
    kept = json.loads((tmp_path / "das2003-9.json").read_text())
    assert "domain size 10" in kept["title"]
    for word in ("das2003/9", "RAND", "PROB", "EXACT", "das2003-9.png"):
        assert word in ran.out
    again = penstock("figure", "das2003/9", "--quick", "--out", tmp_path / "more", "--json").document
    assert {**kept, "paths": [str(tmp_path / "more" / name) for name in ("das2003-9.png", "das2003-9.json")]} == again


def test_figure_that_there_is_not(penstock: Penstock, tmp_path: Path) -> None:
    ran = penstock("figure", "das2003/1", "--out", tmp_path / "no")
    assert 2 == ran.code
    assert "figure: got 'das2003/1'; there are das2003/3" in ran.err
    assert not (tmp_path / "no").exists()


def test_all_figures_or_one(penstock: Penstock) -> None:
    assert "figure: got nothing; give --all, or one of das2003/3" in penstock("figure").err
    assert "figure: got 'das2003/3' and --all; give one of them" in penstock("figure", "das2003/3", "--all").err


def test_figure_without_matplotlib(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.report.figures.find_spec", lambda _name: None)
    ran = penstock("figure", "das2003/9", "--quick", "--json")
    assert 2 == ran.code
    assert "pip install 'penstock[figures]'" == ran.document["error"]["want"].removeprefix("install it: ")


# --- warmup and doctor --------------------------------------------------------------------------------------------


def test_warmup_compiles_everything_and_is_quick_the_second_time(penstock: Penstock) -> None:
    first = penstock("warmup", "--json").document
    assert {"auto", "auto:importance", "life", "oldest", "prob", "rand", "replay", "exact"} <= set(first["seconds"])
    if os.environ.get("NUMBA_DISABLE_JIT"):
        return
    assert first["kept"]
    assert any(Path(first["folder"]).rglob("*.nbc"))
    second = penstock("warmup")
    assert second.code == 0
    assert first["folder"] in second.out
    assert penstock("warmup", "--json").document["total"] < 10


def test_warmup_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "cache_folder", lambda: Path("/dev/null/cache"))
    done = warming.warm(["exact", "oldest"], at_once=2)
    assert ({"exact", "oldest"}, False) == (set(done.seconds), done.kept)


def test_warmup_does_itself_what_its_children_could_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "is_warm", lambda _: False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    told: list[str] = []
    warming.warm(["exact", "oldest"], at_once=2, tell=lambda name, *_: told.append(name))
    assert sorted(told) == ["exact", "oldest"]


def test_warmup_knows_its_names() -> None:
    with pytest.raises(PolicyError, match="got 'steam'; there are"):
        warming.warm(["steam"])
    assert warming.name_of(pen.policy("rand", at="input")) == "rand:at=input"
    assert warming.name_of(pen.policy("prob", statistics="window")) == "prob"
    assert warming.name_of(pen.Policy("somebody's")) is None


def test_doctor_is_content_here(penstock: Penstock) -> None:
    ran = penstock("doctor", "--json")
    assert ran.code == 0
    found = {finding["name"]: finding for finding in ran.document["findings"]}
    assert {"Python", "numpy", "numba", "pyarrow", "pandas", "cache", "CPUs", "free memory"} <= set(found)
    assert ran.document["fine"]
    assert "all well" in penstock("doctor").out


def test_doctor_finds_a_cache_that_cannot_be_written() -> None:
    env = {**os.environ, "PENSTOCK_CACHE_DIR": "/dev/null/cache"}
    with child("doctor", "--json", env=env) as process:
        out, err = process.communicate()
    assert (1, "") == (process.returncode, err)
    wrong = [finding for finding in json.loads(out)["findings"] if not finding["fine"]]
    assert ["cache"] == [finding["name"] for finding in wrong]
    assert "PENSTOCK_CACHE_DIR" in wrong[0]["advice"]
    with child("doctor", env=env) as process:
        out, err = process.communicate()
    assert (1, "") == (process.returncode, err)
    assert "set PENSTOCK_CACHE_DIR" in out


# --- demo ---------------------------------------------------------------------------------------------------------

DEMO = ["demo", "--engine", "embedded", "--rows", "6000", "--memory", "300", "--seed", "4", "--policy", "oldest"]


def test_demo_measures_against_the_exact_join(penstock: Penstock) -> None:
    ran = penstock(*DEMO, "--json")
    assert (0, "") == (ran.code, ran.err)
    found = ran.document
    streams = surge(6000, keys=showing.KEYS, factor=showing.FACTOR, at=showing.SURGE, seed=4)
    given: dict[str, Any] = {"on": "key", "time": "ts", "window": showing.WINDOW}
    exact = pen.join(streams.left, streams.right, **given).num_rows
    want = pen.run(streams.left, streams.right, memory=300, policy="oldest", seed=4, **given).report
    assert (exact, want.pairs, want.pairs / exact) == (
        found["exact_pairs"],
        found["report"]["pairs"],
        found["recall"],
    )
    assert 0 < found["recall"] < 1
    assert want.to_dict()["shed"] == found["report"]["shed"]
    assert ["rand", "oldest", "prob", "life", "exact"] == [row["policy"] for row in found["comparison"]]
    shares = {row["policy"]: row["share_of_exact"] for row in found["comparison"]}
    assert shares["exact"] == 1
    assert found["recall"] == shares["oldest"]
    assert shares["prob"] > shares["oldest"]


def test_demo_in_a_pipe_is_plain_text(penstock: Penstock) -> None:
    ran = penstock(*DEMO)
    assert (0, "") == (ran.code, ran.err)
    assert "\x1b" not in ran.out
    for word in ("recall", "shed (budget)", "an exact join needs", "share of exact", "life"):
        assert word in ran.out


def test_demo_on_a_terminal_is_alive() -> None:
    code, printed = on_a_terminal(*DEMO, "--seconds", "0.5", stdout=True)
    assert code == 0
    for word in ("arriving", "SURGE", "calm", "rows so far", "recall"):
        assert word in printed


def test_demo_without_rows(penstock: Penstock) -> None:
    assert (
        penstock("demo", "--engine", "embedded", "--rows", "0", "--policy", "oldest", "--json").document["recall"]
        == 1
    )


# --- terminals and pipes ------------------------------------------------------------------------------------------


def on_a_terminal(*words: object, stdout: bool) -> tuple[int, str]:
    """Run a command with standard error, and maybe standard output, on a terminal; return what that shows."""
    mine, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = child(*words, stdout=theirs if stdout else subprocess.PIPE, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    while select.select([mine], [], [], 120)[0]:
        try:
            chunk = os.read(mine, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        seen += chunk
    process.communicate()
    os.close(mine)
    return process.returncode, seen.decode()


def test_progress_shows_on_a_terminal(pair: list[str]) -> None:
    code, printed = on_a_terminal("join", *pair, *JOIN, stdout=False)
    assert code == 0
    assert "joining" in printed


def test_no_progress_in_a_pipe(pair: list[str]) -> None:
    with child("join", *pair, *JOIN, "--json") as process:
        out, err = process.communicate()
    assert (0, "") == (process.returncode, err)
    assert json.loads(out)["pairs"] > 0


@pytest.mark.parametrize("words", [["--json"], []])
def test_a_full_standard_output_is_an_error_in_one_line(pair: list[str], words: list[str]) -> None:
    with Path("/dev/full").open("w") as full, child("join", *pair, *JOIN, *words, stdout=full) as process:
        _, err = process.communicate()
    assert process.returncode == 2
    assert "Traceback" not in err
    assert err.count("\n") <= 1


def test_a_reader_that_left_is_no_traceback(pair: list[str]) -> None:
    gone, end = os.pipe()
    os.close(gone)
    with child("join", *pair, *JOIN, stdout=end) as process:
        os.close(end)
        _, err = process.communicate()
    assert process.returncode != 0
    assert "Traceback" not in err


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--memory", "512 bananas"], "memory: got '512 bananas'"),
        (["--memory", "10", "--policy", "prub"], "did you mean 'prob'?"),
        (["--memory", "10", "--policy", "oldest:age=3"], "'oldest' has no such option"),
        (["--window", "soon"], "window: got 'soon'"),
        (["--on", "kee"], "on='kee': got no such column on the left"),
        (["--lateness", "-1"], "lateness: got -1"),
        (["--combine", "most"], "combine: got 'most'"),
        (["--per-key", "0"], "per_key: got 0"),
        (["--memory", "10", "--split", "7+4"], "split: got (7, 4)"),
        (["--out", "joined.txt"], "a file that ends in .csv"),
        (["--per-key", "few"], "'--per-key'"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_an_error_is_one_line_or_one_document(
    penstock: Penstock, pair: list[str], words: list[str], message: str
) -> None:
    ran = penstock("join", *pair, *JOIN, *words)
    assert (2, "") == (ran.code, ran.out)
    assert message in ran.err
    assert ran.err.startswith("penstock: ")
    assert ran.err.count("\n") == 1
    document = penstock("join", *pair, *JOIN, *words, "--json")
    assert (2, "") == (document.code, document.err)
    assert message in document.document["error"]["message"]
    assert {"type", "message"} <= set(document.document["error"])


@pytest.mark.parametrize(
    "words", [["join"], ["jion"], ["join", "a.csv"], ["compare", "a.csv", "b.csv", *JOIN, "--memory", "3"]]
)
def test_words_that_are_missing_or_unknown(penstock: Penstock, words: list[str]) -> None:
    ran = penstock(*words)
    assert (2, "", 1) == (ran.code, ran.out, ran.err.count("\n"))
    assert penstock(*words, "--json").document["error"]["message"]


@pytest.mark.parametrize(
    "words",
    [
        ["--engine", "steam"],
        ["--memory", "none"],
        ["--memory", "0"],
        ["--rows", "-1"],
        ["--seed", "-1"],
        ["--seconds", "-1"],
        ["--policy", "nobody"],
    ],
)
def test_errors_of_the_demo(penstock: Penstock, words: list[str]) -> None:
    ran = penstock("demo", *words, "--json")
    assert ran.code == 2
    assert ran.document["error"]["argument"] == words[0].removeprefix("--")


def test_the_json_error_names_its_parts(penstock: Penstock, pair: list[str]) -> None:
    error = penstock("join", *pair, *JOIN, "--memory", "0", "--json").document["error"]
    assert ("BudgetError", "memory", "0") == (error["type"], error["argument"], error["got"])
    assert "give a number of rows" in error["want"]


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_file(penstock: Penstock, pair: list[str], missing: int) -> None:
    pair[missing] += ".csv"
    assert "existing file" in penstock("join", *pair, *JOIN).err
    words = ["--policies", "exact", "--memory", "3"]
    assert "existing file" in penstock("compare", *pair, *JOIN, *words).err


def test_a_folder_that_is_not_there(penstock: Penstock, pair: list[str], tmp_path: Path) -> None:
    ran = penstock("join", *pair, *JOIN, "--out", tmp_path / "nowhere" / "out.csv", "--json")
    assert ran.code == 2
    assert ran.document["error"]["type"] == "OutputError"


def test_one_file_cannot_be_both(penstock: Penstock, pair: list[str], tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    ran = penstock("join", *pair, *JOIN, "--memory", "9", "--policy", "oldest", "--out", out, "--ledger", out)
    assert ran.code == 2
    assert "give another" in ran.err


def test_what_penstock_does_not_expect_is_not_hidden(
    penstock: Penstock, pair: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(replaying, "replay", fail)
    with pytest.raises(ZeroDivisionError):
        penstock("join", *pair, *JOIN)


# --- whole or not at all ------------------------------------------------------------------------------------------


def nothing_new(folder: Path, before: set[str]) -> bool:
    return before == {path.name for path in folder.iterdir()}


def test_after_an_error_in_mid_stream_nothing_is_left(penstock: Penstock, tmp_path: Path) -> None:
    """The error comes late, when rows have been written."""
    swapped = left.take(pa.array([*range(1490), 1480, *range(1491, 1500)]))
    paths = [put(tmp_path / "l.parquet", swapped), put(tmp_path / "r.parquet", right)]
    before = {path.name for path in tmp_path.iterdir()}
    words = ["--memory", "40", "--policy", "oldest", "--out", tmp_path / "o.csv", "--ledger", tmp_path / "l.arrow"]
    ran = penstock("join", *paths, *JOIN, *words)
    assert ran.code == 2
    assert "row 1490 is older" in ran.err
    assert nothing_new(tmp_path, before)


def test_after_an_error_the_old_file_is_as_it_was(penstock: Penstock, pair: list[str], tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text("precious")
    assert (
        penstock("join", pair[0], put(tmp_path / "bad.csv", right[::-1]), *JOIN, "--out", tmp_path / "out.csv").code
        == 2
    )
    assert (tmp_path / "out.csv").read_text() == "precious"


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_after_a_full_disk_nothing_is_left(penstock: Penstock, pair: list[str], tmp_path: Path, suffix: str) -> None:
    assert penstock("join", *pair, *JOIN).code == 0  # its kernels are in the cache, which is on a disk, too
    before = {path.name for path in tmp_path.iterdir()}
    with disk_of(5000):
        ran = penstock("join", *pair, *JOIN, "--out", tmp_path / f"out{suffix}", "--json")
    assert ran.code == 2
    assert ran.document["error"]["type"] == "OutputError"
    assert ran.document["error"]["path"] == str(tmp_path / f"out{suffix}")
    assert nothing_new(tmp_path, before)


HALF_MADE = """
from penstock import cli

class Half:
    def __del__(self):
        raise AttributeError("of something half-made")

def main():
    if {stopped}:
        cli._stops.append(15)
    Half()
    return 0

cli.main = main
cli.command()
"""


@pytest.mark.parametrize("stopped", [True, False])
def test_what_is_half_made_complains_unless_a_stop_has_come(stopped: bool) -> None:  # noqa: FBT001
    words = [sys.executable, "-c", HALF_MADE.format(stopped=stopped)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ("half-made" in ran.stderr) == (not stopped)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("words", [["--json"], []], ids=["json", "text"])
def test_stopped_in_a_long_run_nothing_is_left(
    tmp_path: Path, number: signal.Signals, code: int, words: list[str]
) -> None:
    many = zipf(100_000, keys=1)  # some 200 million pairs
    paths = [put(tmp_path / "l.arrow", many.left), put(tmp_path / "r.arrow", many.right)]
    before = {path.name for path in tmp_path.iterdir()}
    process = child(
        "join", *paths, "--on", "key", "--time", "ts", "--window", "1000", "--out", tmp_path / "out.csv", *words
    )
    deadline = time.monotonic() + 120
    while not any(part.stat().st_size for part in tmp_path.glob(".penstock-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert code == process.returncode
    assert "Traceback" not in err
    assert nothing_new(tmp_path, before)
    if words:
        assert "stopped" in json.loads(out)["error"]["message"]
    else:
        assert re.fullmatch(r"penstock: stopped.*\n", err)
        assert not out


def test_stopped_while_compiling_nothing_is_left(pair: list[str], tmp_path: Path) -> None:
    """The compiler calls back into Python where exceptions are swallowed."""
    folder = tmp_path / "results"
    folder.mkdir()
    env = {**os.environ, "PENSTOCK_CACHE_DIR": str(tmp_path / "cache")}
    words = ["--memory", "40", "--policy", "oldest", "--out", folder / "out.csv"]
    process = child("join", *pair, *JOIN, *words, env=env)
    while process.poll() is None and not any(folder.iterdir()):
        time.sleep(0.01)
    time.sleep(1)
    if process.poll() is None:  # with the JIT off it is done by now
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (130, "", "penstock: stopped; no partial file is left\n") == (process.returncode, out, err)
        assert not any(folder.iterdir())
    process.communicate()


def test_signals_are_as_before_when_a_command_is_done(penstock: Penstock, pair: list[str]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    penstock("join", *pair, *JOIN)
    assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]


def test_penstock_errors_are_one_family() -> None:
    assert issubclass(OrderError, PenstockError)
