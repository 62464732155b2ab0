"""The history of a job on Spark: its numbers are those of the files, it survives kill -9, and disturbs nothing."""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow.parquet as pq
import pytest

from documents import ROOT, blocks
from penstock import cli
from penstock.dashboard.history import Histories, History, beside
from penstock.errors import InputError
from penstock.jobs import running
from penstock.jobs.parsing import load, parse
from penstock.spark.books import report_of
from penstock.streams.workloads import zipf
from streaming import TRACE

WATCHED = f"""
name = "trace"
{TRACE.replace("[sink]", "memory = 30" + chr(10) + "[sink]")}
[ledger]
path = "shed"
"""
LIVE = """
[sources.left]
format = "rate"
rows_per_second = 20
select = ["timestamp as ts", "value % 5 as key"]
watermark = "1 second"
[sources.right]
format = "rate"
rows_per_second = 20
select = ["timestamp as ts", "value % 5 as key"]
watermark = "1 second"
[join]
on = "key"
time = "ts"
window = "5 seconds"
[sink]
format = "console"
"""


def points(path: Path) -> list[dict[str, Any]]:
    """Return the moments of the one query in a history."""
    queries = Histories([path]).queries()
    return next(iter(queries.values()))["points"] if queries else []


def test_every_moment_is_what_was_written_until_then(spark: Any, tmp_path: Path) -> None:
    """Rows, pairs and what was shed are counted in the files; the keys too; the last moment is the report."""
    file = tmp_path / "job.toml"
    file.write_bytes((ROOT / "examples" / "jobs" / "calls_trades.toml").read_bytes())
    job = load(file)
    assert job.checkpoint is not None
    path = beside(job.checkpoint)
    assert path is not None
    history, ledger = History(path), cli._ledger_of(job)
    done = running.run(job, spark, stop=Event(), watch=lambda batch: cli._record(history, job, batch, ledger))
    kept = points(path)
    assert len(kept) >= 2
    parts = {
        name: spark.read.parquet(str(tmp_path / "out" / "calls_trades" / name)) for name in ("rows", "found", "shed")
    }
    for moment in kept:
        until = {name: rows.where(f"batch <= {moment['batch']}") for name, rows in parts.items()}
        came = Counter(row.side for row in until["rows"].select("side").collect())
        gone = Counter((row.side, row.reason) for row in until["shed"].select("side", "reason").collect())
        sides = ("left", "right")
        assert [came[side] for side in sides] == moment["arrivals"]
        assert {reason: [gone[side, reason] for side in sides] for reason in moment["shed"]} == moment["shed"]
        assert until["found"].count() == moment["pairs"]
        now = (
            parts["shed"]
            .where(f"batch = {moment['batch']}")
            .selectExpr("coalesce(left.person, right.person) as person")
        )
        persons = Counter(str(row.person) for row in now.collect())
        assert all(persons[key] == rows for key, rows in moment["keys"])
        assert [rows for _, rows in moment["keys"]] == sorted(persons.values(), reverse=True)[:10]
        assert (None, 500) == (moment["lag"], moment["budget"])
    told = done.report
    assert told is not None
    assert (told.pairs, list(told.arrivals), list(told.live)) == tuple(
        kept[-1][name] for name in ("pairs", "arrivals", "live")
    )
    assert kept[-1]["recall"] == (None if told.recall is None else list(told.recall))


@pytest.mark.parametrize("graph", [False, True], ids=["a common key", "a graph"])
def test_keys_of_several_streams_are_those_of_the_ledger(spark: Any, tmp_path: Path, graph: bool) -> None:  # noqa: FBT001
    words = blocks(ROOT / "docs" / "jobs.md", "toml")[3]
    if not graph:
        words = re.sub(r"(?m)^(on = ).*", r'\1"key"', words).replace('"key as order"', '"key", "key as order"')
    job = parse(words, tmp_path)
    history, ledger = History(tmp_path / "several.history.jsonl"), cli._ledger_of(job)
    running.run(job, spark, stop=Event(), watch=lambda batch: cli._record(history, job, batch, ledger))
    assert history.lost == 0
    moments = [moment for moment in points(history.path) if moment["keys"]]
    assert moments
    columns = {"orders": ["key"], "payments": ["order", "parcel"] if graph else ["key"], "parcels": ["key"]}
    for moment in moments:
        rows = spark.read.parquet(str(tmp_path / "out" / "shed" / f"batch={moment['batch']}")).collect()
        keys = [", ".join(str(row["values"][row.stream][name]) for name in columns[row.stream]) for row in rows]
        want = Counter(f"{row.stream}: {key}" if graph else key for row, key in zip(rows, keys, strict=True))
        assert all(want[key] == count for key, count in moment["keys"])
        assert [count for _, count in moment["keys"]] == sorted(want.values(), reverse=True)[:10]


def test_a_live_stream_has_a_lag(spark: Any, tmp_path: Path) -> None:
    job, stop = parse(LIVE, tmp_path), Event()
    history = History(tmp_path / "live.history.jsonl")

    def watch(batch: Any) -> None:
        cli._record(history, job, batch, None)
        if len(points(history.path)) >= 2:
            stop.set()

    running.run(job, spark, stop=stop, watch=watch)
    for moment in points(history.path):
        assert moment["lag"] is not None
        assert 0 <= moment["lag"] < 600
        assert moment["keys"] is None


def test_keys_need_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^show_keys: got a job without a ledger; keys are read from the ledger"):
        cli._ledger_of(parse(LIVE, tmp_path))


def test_what_has_no_keys_to_show(tmp_path: Path) -> None:
    words = blocks(ROOT / "docs" / "jobs.md", "toml")[3]
    words = re.sub(r"(?m)^on = .*", "on = []\ncross = true", words)
    with pytest.raises(InputError, match=r"^show_keys: got a join of all with all; it has no keys"):
        cli._ledger_of(parse(words, tmp_path))
    with pytest.raises(InputError, match=r"^show_keys: got a join on overlap.*; it has no keys: leave it out"):
        cli._ledger_of(load(ROOT / "examples" / "jobs" / "attacks.toml"))


def test_what_cannot_be_recorded_ends_no_job(tmp_path: Path) -> None:
    history = History(tmp_path / "lost.history.jsonl")
    cli._record(history, parse(LIVE, tmp_path), object(), None)
    assert (history.lost, points(history.path)) == (1, [])


def numbers(address: str, kind: str) -> bytes:
    host, port = re.findall(r"http://([\d.]+):(\d+)/", address)[0]
    connection = HTTPConnection(host, int(port), timeout=60)
    connection.request("GET", kind)
    return connection.getresponse().read()


def test_a_history_survives_kill_9_and_goes_on(tmp_path: Path) -> None:
    """As a user does it, with the command: its page is there by default, and says what the file says."""
    trace = zipf(2000, keys=40, seed=5).left
    pq.write_table(trace, tmp_path / "trace.parquet")
    file, path = tmp_path / "job.toml", tmp_path / "cp.history.jsonl"
    file.write_text(WATCHED, encoding="utf-8")
    words = [sys.executable, "-m", "penstock.cli", "run", str(file), "--json"]
    env = {**os.environ, "PENSTOCK_ENGINES": str(tmp_path / "engines")}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as first:
        assert first.stderr is not None
        address = first.stderr.readline()
        while first.poll() is None and len(points(path)) < 3:
            time.sleep(0.1)
        shown = json.loads(numbers(address, "/data.json"))["queries"]["trace"]["points"]
        assert b'penstock_pairs_total{query="trace"}' in numbers(address, "/metrics")
        first.kill()
        first.communicate()
    before = points(path)
    assert [point["pairs"] for point in shown] == [point["pairs"] for point in before[: len(shown)]]
    assert before[-1]["arrivals"][0] < 2000
    file.write_text(WATCHED.replace("rows_per_trigger = 100", "rows_per_trigger = 400"), encoding="utf-8")
    second = subprocess.run([*words, "--no-dashboard"], capture_output=True, text=True, check=False, env=env)
    assert (0, "") == (second.returncode, second.stderr)
    report = json.loads(second.stdout)["report"]
    after = points(path)
    assert before == [{**moment, "serial": at} for at, moment in enumerate(after[: len(before)], start=1)]
    batches = [moment["batch"] for moment in after]
    assert batches == sorted(set(batches))
    totals = [moment["arrivals"][0] for moment in after]
    assert totals == sorted(totals)
    assert after[-1]["arrivals"] == [2000, 2000] == list(report["arrivals"].values())
    assert after[-1]["pairs"] == report["pairs"]
    found = pq.read_table(tmp_path / "found").num_rows
    assert report["pairs"] == found  # nothing lost, nothing twice
    ours = {"job.toml", "trace.parquet", "cp", "cp.history.jsonl", "found", "shed", "engines"}
    assert ours == {each.name for each in tmp_path.iterdir()}
    assert not list((tmp_path / "cp").rglob("*history*"))


def test_the_report_of_a_running_query_is_its_last_moment(spark: Any, tmp_path: Path) -> None:
    """After each micro-batch, as pen.report tells it."""
    pq.write_table(zipf(450, keys=40, seed=3).left, tmp_path / "trace.parquet")
    job = parse(WATCHED, tmp_path)
    history = History(tmp_path / "own.history.jsonl")
    query = running.start(job, spark)
    seen: set[int] = set()
    try:
        while len(seen) < 4:
            progress = query.lastProgress
            if progress is None or progress.batchId in seen or not progress.numInputRows:
                time.sleep(0.05)
                continue
            cli._record(history, job, progress, None)
            told, moment = report_of(query), points(history.path)[-1]
            if query.lastProgress.batchId == progress.batchId:  # no later one has ended meanwhile
                assert (told.pairs, list(told.live)) == (moment["pairs"], moment["live"])
                assert {reason: list(count) for reason, count in told.shed.items()} == moment["shed"]
            seen.add(progress.batchId)
    finally:
        query.stop()
    assert len(points(history.path)) == 4
