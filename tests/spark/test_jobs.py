"""Jobs run on Spark: what they write is the join, they go on from their checkpoint, and errors name the key."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from documents import ROOT, blocks
from penstock.errors import ColumnError, InputError, OrderError, TimeError
from penstock.jobs import planning, running, sql
from penstock.jobs.parsing import Job, load, outputs, parse
from penstock.spark import inputs, traces
from penstock.streams import files
from penstock.streams.workloads import zipf
from streaming import TRACE

FIRST, FOLDERS, KAFKA, SEVERAL = blocks(ROOT / "docs" / "jobs.md", "toml")


def run(job: Job, spark: Any, **how: Any) -> running.Outcome:
    return running.run(job, spark, **{"stop": Event(), **how})


def meetings(left: pa.Table, right: pa.Table, span: int) -> Counter[tuple[int, int, int]]:
    """Return (key, left time, right time) of the pairs of two tables, each compared with each."""
    return Counter(
        (a["key"], a["ts"], b["ts"])
        for a in left.to_pylist()
        for b in right.to_pylist()
        if a["key"] == b["key"] and abs(a["ts"] - b["ts"]) < span
    )


def met(spark: Any, *folders: Path, start: int) -> Counter[tuple[int, int, int]]:
    found: Counter[tuple[int, int, int]] = Counter()
    for folder in folders:
        rows = spark.read.parquet(str(folder)).selectExpr("key", "unix_seconds(ts_left)", "unix_seconds(ts_right)")
        found.update((key, a - start, b - start) for key, a, b in rows.collect())
    return found


def test_the_first_job_of_the_page_and_its_repair_are_the_exact_join(spark: Any, tmp_path: Path) -> None:
    job = parse(FIRST.replace("rows = 3000", "rows = 600"), tmp_path)
    done = run(job, spark)
    assert done.report is not None
    assert done.report.balanced
    assert done.report.shed["budget"].total > 0
    assert not done.stopped
    refined = running.refine(job, spark)
    drawn = zipf(600, keys=100)
    right = pa.Table.from_pylist([row for row in drawn.right.to_pylist() if row["key"] < 80])
    out = tmp_path / "out"
    assert done.report.pairs == met(spark, out / "found", start=traces.EPOCH).total()
    assert met(spark, out / "found", out / "rest", start=traces.EPOCH) == meetings(drawn.left, right, 300)
    assert sum(part.rows for part in refined.parts) > 0
    again = run(job, spark)
    assert (again.report, again.batches) == (None, 0)


def test_a_job_that_is_stopped_goes_on_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    """One trace is both sides; nothing is lost and nothing is there twice."""
    trace = zipf(450, keys=40, seed=3).left
    pq.write_table(trace, tmp_path / "trace.parquet")
    job = parse(TRACE, tmp_path)
    stop = Event()
    first = run(job, spark, stop=stop, watch=lambda progress: stop.set() if progress.batchId >= 1 else None)
    assert first.stopped
    assert first.report is not None
    assert 200 <= first.report.arrivals.left < 450
    second = run(job, spark)  # ends by itself: the trace does
    assert not second.stopped
    assert second.report is not None
    assert second.report.arrivals == (450, 450)
    assert met(spark, tmp_path / "found", start=10**9) == meetings(trace, trace, 20)


def test_rows_that_wait_are_joined_up_to_the_watermark_when_a_trace_ends(spark: Any, tmp_path: Path) -> None:
    """Windows in rows need rows in order: they go on when the watermark, 5 seconds behind, has passed them."""
    trace = zipf(450, keys=40, seed=3).left  # a row a second
    pq.write_table(trace, tmp_path / "trace.parquet")
    job = parse(TRACE.replace('window = "20 seconds"', 'window = "20 rows"'), tmp_path)
    done = run(job, spark)
    assert running.waits(job)
    assert not running.waits(parse(TRACE, tmp_path))
    assert not done.stopped
    assert met(spark, tmp_path / "found", start=10**9) == meetings(trace[:445], trace[:445], 20)


def test_folders_are_joined_as_their_job_says(spark: Any, tmp_path: Path) -> None:
    for name in ("orders", "payments"):
        (tmp_path / "in" / name).mkdir(parents=True)
    moments = pa.array([10**9 * 10**6 + second * 10**6 for second in range(6)], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"ts": moments, "id": [1, 2, 3, 4, 5, 6]}), tmp_path / "in" / "orders" / "a.parquet")
    paid = pa.table({"second": [10**9 + 60, 10**9 + 61, 10**9 + 9000], "order_id": [2, 3, 4], "cents": [250, 0, 100]})
    pc.write_csv(paid, tmp_path / "in" / "payments" / "a.csv")
    job = parse(FOLDERS, tmp_path)
    seen = planning.forecast(job, spark)
    assert seen.sources["orders"]["window_rows"] == 6
    assert seen.sources["orders"]["window_known"] == "estimated from the footers of 1 files"
    assert (seen.sources["payments"]["window_rows"], seen.window_rows) == (None, None)
    assert inputs.listed(spark, "parquet", str(tmp_path / "in" / "none")) == []
    done = run(job, spark)
    rows = spark.read.parquet(str(tmp_path / "out" / "found")).select("id", "amount").collect()
    assert [(row.id, row.amount) for row in rows] == [(2, 2.5)]
    assert done.report is not None
    assert done.report.arrivals == (6, 2)


JSON_TO_TABLE = """
checkpoint = "cp"
trigger = "available_now"
[sources.orders]
format = "json"
path = "orders"
schema = "ts timestamp, id bigint"
watermark = "1 minute"
[sources.payments]
format = "json"
path = "payments"
watermark = "1 minute"
select = ["to_timestamp(ts) as ts", "id", "cents"]
[join]
on = "id"
time = "ts"
window = "10 minutes"
[sink]
format = "table"
name = "paid"
path = "found"
"""


def test_folders_of_json_are_joined_into_a_table(spark: Any, tmp_path: Path) -> None:
    for name in ("orders", "payments"):
        (tmp_path / name).mkdir()
        rows = [{"ts": f"2024-01-31T12:00:0{at}Z", "id": at, "cents": 10 * at} for at in range(3)]
        if name == "payments":
            rows[2]["ts"] = "2024-01-31T12:30:00Z"
        (tmp_path / name / "a.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    done = run(parse(JSON_TO_TABLE, tmp_path), spark)
    try:
        assert [(row.id, row.cents) for row in spark.table("paid").orderBy("id").collect()] == [(0, 0), (1, 10)]
        assert spark.read.parquet(str(tmp_path / "found")).count() == 2
    finally:
        spark.sql("drop table paid")
    assert done.report is not None
    assert done.report.arrivals == (3, 3)


BESIDE = '[ledger]\npath = "shed"\n[archive]\npath = "rows"\n[refine]\ninto = "rest"\n'


@pytest.mark.parametrize("beside", ["", BESIDE], ids=["alone", "beside ledger and archive"])
def test_a_table_goes_on_after_a_stop(spark: Any, tmp_path: Path, beside: str) -> None:
    """Each row of the table is there once, and the repair completes it to the exact join.

    The next run knows nothing of the table, as one in another process; what was written is in its folder.
    """
    trace = zipf(450, keys=40, seed=3).left
    pq.write_table(trace, tmp_path / "trace.parquet")
    words = TRACE.replace("[sink]", "memory = 30\n[sink]").replace(
        'format = "parquet"', 'format = "table"\nname = "kept"'
    )
    job, stop = parse(words + beside, tmp_path), Event()
    try:
        first = run(job, spark, stop=stop, watch=lambda progress: stop.set() if progress.batchId >= 1 else None)
        assert first.stopped
        spark.sql("drop table kept")
        done = run(job, spark)
        assert done.report is not None
        assert done.report.shed["budget"].total > 0
        found, want = met(spark, tmp_path / "found", start=10**9), meetings(trace, trace, 20)
        assert found.total() == spark.table("kept").count() == done.report.pairs
        assert found < want  # no row of the trace is there twice, so no pair may be
        if beside:
            running.refine(job, spark)
            assert found + met(spark, tmp_path / "rest", start=10**9) == want
    finally:
        spark.sql("drop table if exists kept")


def test_what_a_query_cannot_start_with_names_the_key(spark: Any, tmp_path: Path) -> None:
    pq.write_table(zipf(60, keys=5).left, tmp_path / "trace.parquet")
    words = TRACE.replace('format = "parquet"', 'format = "table"\nname = "taken"\nprovider = "json"')
    spark.range(3).write.option("path", str(tmp_path / "other")).saveAsTable("taken")
    try:
        for more in ("", '[ledger]\npath = "shed"\n'):
            with pytest.raises(InputError, match=r"^sink\.(name|path): got .*(taken|found)"):
                running.start(parse(words + more, tmp_path), spark)
    finally:
        spark.sql("drop table taken")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"^checkpoint: got .*file/cp"):
        running.start(parse(TRACE.replace('"cp"', '"file/cp"'), tmp_path), spark)


def test_the_console_and_the_memory_of_the_session(spark: Any, tmp_path: Path) -> None:
    pq.write_table(zipf(60, keys=5).left, tmp_path / "trace.parquet")
    words = TRACE.replace('checkpoint = "cp"', 'trigger = "once"').replace('path = "found"', "")
    seen: list[int] = []
    console = parse(words.replace('format = "parquet"', 'format = "console"\nrows = 4'), tmp_path)
    done = run(console, spark, show=lambda _, rows: seen.append(rows.num_rows))
    assert seen == [4]
    assert done.report is not None
    kept = run(parse(words.replace('format = "parquet"', 'format = "memory"\nname = "pairs"'), tmp_path), spark)
    assert kept.report is not None
    assert spark.table("pairs").count() == kept.report.pairs == done.report.pairs > 4
    spark.catalog.dropTempView("pairs")


def test_a_forecast_starts_nothing(spark: Any, tmp_path: Path) -> None:
    seen = planning.forecast(parse(FIRST, tmp_path), spark)
    assert list(tmp_path.iterdir()) == []
    assert seen.columns == {"key": "int64", "ts_left": "timestamp[us, tz=UTC]", "ts_right": "timestamp[us, tz=UTC]"}
    assert (seen.window_rows, seen.memory_rows) == (600, 100)  # a row a second on each side, for 5 minutes
    assert seen.memory_bytes == 100 * seen.row_bytes == 100 * (8 + 8 + 96)
    exact = planning.forecast(parse(FIRST.replace("memory = 100", "").replace('"oldest"', '"auto"'), tmp_path), spark)
    assert exact.memory_rows == 600
    assert seen.at_most  # trades: where leaves some out
    assert [what["window_rows"] for what in seen.sources.values()] == [300, 300]
    json.dumps(seen.to_dict())


def test_a_dry_run_looks_at_the_sink_too(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run would refuse, without starting it."""
    kafka = '[sink]\nformat = "kafka"\nservers = "one:9092"\ntopic = "found"\nkey = "kee"\n'
    delta = '[sink]\nformat = "table"\nname = "gone"\nprovider = "delta"\npath = "gone"\n'
    seldom = FIRST.replace('trigger = "available_now"', 'trigger = "1 hour"')
    seldom = seldom.replace('policy = "oldest"', 'cpu = { latency = "2 seconds" }')
    head = FIRST.partition("[sink]")[0]
    cases = [
        (head + kafka, r"^sink\.format: got 'kafka'; .*spark-sql-kafka"),
        (head + delta, r"^sink\.provider: got 'delta'; .*io\.delta"),
        (seldom, r"^trigger: got '1 hour' with cpu="),
    ]
    for words, said in cases:
        for look in (planning.forecast, running.start):
            with pytest.raises(InputError, match=said):
                look(parse(words, tmp_path), spark)
    monkeypatch.setattr(inputs, "there", lambda *_: None)  # as if the connector were there
    for look in (planning.forecast, running.start):
        with pytest.raises(InputError, match=r"^sink\.key: got 'kee'; give an expression on key, ts_left, ts_right"):
            look(parse(head + kafka, tmp_path), spark)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", ["checkpoint", "sink.path"])
def test_a_place_inside_a_file_is_named_before_anything_starts(spark: Any, tmp_path: Path, key: str) -> None:
    job = parse(FIRST, tmp_path)
    first = tmp_path / Path(outputs(job)[key]).relative_to(tmp_path).parts[0]
    first.write_text("a file", encoding="utf-8")
    for look in (planning.forecast, running.start):
        with pytest.raises(InputError, match=rf"got .*; {first} is no folder that can be written to") as caught:
            look(job, spark)
        assert Path(outputs(job)[caught.value.argument]).is_relative_to(first)


def test_a_sink_whose_jar_is_not_there_is_named_by_the_command(tmp_path: Path) -> None:
    """With the Spark of the command, which is set up for Delta."""
    file = tmp_path / "job.toml"
    sink = '[sink]\nformat = "table"\nname = "gone"\nprovider = "delta"\npath = "gone"\n'
    file.write_text(FIRST.partition("[sink]")[0] + sink, encoding="utf-8")
    words = [sys.executable, "-m", "penstock.cli", "run", str(file), "--json", "--dry-run"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stdout)["error"]["argument"] == "sink.provider"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("key < 80", "kye < 80", r"^sources\.trades\.where: got 'kye < 80'; give a condition on ts, key"),
        ("key < 80", "key < ", r"^sources\.trades\.where: "),
        ('where = "key < 80"', 'select = "key"', r"^sources\.trades\.select: got no column 'ts'"),
        ('where = "key < 80"', 'select = ["count(*) as key", "max(ts) as ts"]', r"^sources\.trades\.select: got \["),
        ('where = "key < 80"', 'select = ["key", "1 as ts"]', r"^sources\.trades\.select: got int in 'ts'"),
        ('on = "key"', 'on = "kee"', r"^join\.on='kee': got no such column"),
        ("memory = 100", "memory = 100\nshards = 200", r"^join\.memory: got 100; each of the 200 shards"),
        (
            'format = "zipf"\nrows = 3000\nkeys = 100\nwhere',
            'format = "csv"\npath = "none"\nwhere',
            r"^sources\.trades\.path",
        ),
        (
            'format = "zipf"\nrows = 3000\nkeys = 100\nwhere',
            'format = "csv"\npath = "none"\nschema = "ts tymestamp"\nwhere',
            r"^sources\.trades\.schema: got 'ts tymestamp'",
        ),
        (
            'format = "zipf"\nrows = 3000\nkeys = 100\nwhere',
            'format = "delta"\npath = "d"\nwhere',
            r"\.format: .*io\.delta",
        ),
    ],
)
def test_what_only_spark_can_tell_names_the_key_too(
    spark: Any, tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in FIRST
    with pytest.raises(InputError, match=said):
        running.joined(parse(FIRST.replace(old, new, 1), tmp_path), spark)


PIECES = [
    *("select", "from", "table", "values", "with", "union", "except", "minus", "1", "id", "t", "as", "in", "exists"),
    *("(", "(", ")", ")", "'", "'", '"', "`", "\\", "r'", 'R"', "1e+5", "://", ".", ",", "*", "|", "|>", "=", "+"),
    *(
        "range(3)",
        "text.`x`",
        "values 1",
        "'a'",
        "it''s",
        " ",
        " ",
        " ",
        "map",
        "using",
        "array",
        "\u017felect",
        "$$",
    ),
]
QUERIES = ["(values 1)", "id in (from t)", "(with t as (values 1) table t)", "exists((table t))", "(select 1)"]


def test_what_spark_reads_as_a_query_is_refused(spark: Any) -> None:
    """Spark's own parser says what an expression is: no sub-query passes, whatever stands around it."""
    parser = spark._jsparkSession.sessionState().sqlParser()
    queries = spark._jvm.org.apache.spark.sql.catalyst.expressions.SubqueryExpression
    lots = random.Random(4)  # noqa: S311 - a test that repeats
    read = 0
    for _ in range(1500):
        parts = lots.choices(PIECES, k=lots.randrange(1, 8))
        parts.insert(lots.randrange(len(parts) + 1), lots.choice([*QUERIES, "", ""]))
        words = lots.choice(["", " "]).join(parts)
        try:
            found = queries.hasSubquery(parser.parseExpression(words))
        except PySparkException:
            continue
        read += 1
        assert not found or sql.foreign(words) is not None, words
    assert read > 20


def test_a_type_that_names_code_loads_none(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark imports the module of a type of one's own; whoever may write a job may not choose it."""
    (tmp_path / "planted.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    own = {"type": "udt", "pyClass": "planted.Own", "serializedClass": "", "sqlType": "integer"}
    field = {"name": "a", "type": own, "nullable": True, "metadata": {}}
    kind = json.dumps({"type": "struct", "fields": [field]})
    words = json.dumps(["ts", "key", f"from_json('', '{kind}') as b"])
    with pytest.raises(InputError, match=r"^sources\.trades\.select: got .*from_json with a type"):
        running.joined(parse(FIRST.replace('where = "key < 80"', f"select = {words}"), tmp_path), spark)
    assert "planted" not in sys.modules


def test_kafka_takes_json_and_a_key(spark: Any) -> None:
    rows = inputs.keyed(spark.sql("select 7 as id, 'a' as name"), "id + 1")
    assert [tuple(row) for row in rows.collect()] == [('{"id":7,"name":"a"}', "8")]
    assert inputs.keyed(rows, None).columns == ["value"]


def test_kafka_without_its_connector_names_the_package(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^sources\.clicks\.format: got 'kafka'; .*spark-sql-kafka-0-10_2\.13"):
        running.joined(parse(KAFKA, tmp_path), spark)


def test_a_delta_table_without_its_jar_names_the_package(spark: Any, tmp_path: Path) -> None:
    sink = f'[sink]\nformat = "table"\nname = "gone"\nprovider = "delta"\npath = "{tmp_path / "gone"}"\n'
    job = parse(FIRST.partition("[sink]")[0] + sink, tmp_path)
    assert "io.delta" in running.options(job)["spark.sql.extensions"]
    with pytest.raises(InputError, match=r"^sink\.provider: got 'delta'; .*io\.delta:delta-spark"):
        running.start(job, spark)


def test_traces_come_at_their_pace_and_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"ts": [0, 10, 20, 20, 30, 40], "key": range(6)}), tmp_path / "t.parquet")
    about: dict[str, Any] = {"rows_per_trigger": 2}
    about["trace"] = {"path": str(tmp_path / "t.parquet"), "time": "ts", "tick": "1 second", "start": 9}
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    reader = traces.Reader({**about, "speed": 10})
    limit, everything = reader.getDefaultReadLimit(), ReadAllAvailable()
    assert reader.latestOffset({"row": 0}, everything) == {"row": 1}
    now[0] = 102.0  # twenty seconds of the trace
    assert reader.latestOffset({"row": 1}, everything) == {"row": 4}
    assert reader.latestOffset({"row": 1}, limit) == {"row": 3}
    now[0] = 900.0
    assert reader.latestOffset({"row": 6}, limit) == {"row": 6}
    later = traces.Reader({**about, "speed": 10})  # goes on from the third row, and its time
    assert later.latestOffset({"row": 2}, everything) == {"row": 4}
    now[0] = 901.0
    assert later.latestOffset({"row": 4}, everything) == {"row": 5}
    later.prepareForTriggerAvailableNow()
    assert later.latestOffset({"row": 4}, everything) == {"row": 6}
    pieces = reader.partitions({"row": 1}, {"row": 4})
    assert [batch["key"].to_pylist() for piece in pieces for batch in reader.read(piece)] == [[1, 2, 3]]


def test_what_is_no_trace(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    cases: list[tuple[list[Any], dict[str, Any], type[InputError]]] = [
        ([2, 1], {"time": "ts", "tick": "1 second"}, OrderError),
        ([1, 2], {"time": "ts", "tick": None}, TimeError),
        ([1, None], {"time": "ts", "tick": "1 second"}, TimeError),
        (["a", "b"], {"time": "ts", "tick": None}, TimeError),
        ([1, 2], {"time": "at", "tick": "1 second"}, TimeError),
        ([1, 2**62], {"time": "ts", "tick": "1 second"}, TimeError),
        ([-9, 2], {"time": "ts", "tick": "1 second"}, TimeError),
    ]
    for column, about, error in cases:
        pq.write_table(pa.table({"ts": column}), path)
        traces.trace.cache_clear()
        with pytest.raises(error):
            traces.trace(json.dumps({"path": path, "start": 9, **about}))
    odd = pa.table({"ts": [1], "n": pa.nulls(1, pa.month_day_nano_interval())})
    with files.writer(tmp_path / "t.arrow", odd.schema) as file:
        file.write(odd)
    with pytest.raises(ColumnError):
        traces.trace(json.dumps({"path": str(tmp_path / "t.arrow"), "time": "ts", "tick": "1 second", "start": 9}))


@pytest.mark.parametrize(
    ("end", "whole"),
    [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGKILL, False)],
    ids=["Ctrl-C", "SIGTERM", "SIGKILL"],
)
def test_a_job_that_is_ended_leaves_no_spark_and_the_next_run_goes_on(
    tmp_path: Path,
    end: signal.Signals,
    whole: bool,  # noqa: FBT001
) -> None:
    """As a user does it, with the command and its own Spark; terminals and systemd tell the whole group."""
    trace = zipf(3000, keys=40, seed=5).left
    pq.write_table(trace, tmp_path / "trace.parquet")
    file = tmp_path / "job.toml"
    file.write_text(TRACE, encoding="utf-8")
    words = [sys.executable, "-m", "penstock.cli", "run", str(file), "--json"]
    env = {**os.environ, "PENSTOCK_ENGINES": str(tmp_path / "engines")}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=env, process_group=0) as first:
        while first.poll() is None and not (tmp_path / "found" / "batch=0" / "_SUCCESS").exists():
            time.sleep(0.1)
        if whole:
            os.killpg(first.pid, end)
        else:
            first.send_signal(end)
        out, err = first.communicate(timeout=120)  # Spark has the pipe too: it has ended
    if whole:
        assert first.returncode == 0, err
        assert json.loads(out)["stopped"]
    file.write_text(TRACE.replace("rows_per_trigger = 100", ""), encoding="utf-8")
    second = subprocess.run(words, capture_output=True, text=True, check=False, env=env)
    assert second.returncode == 0, second.stderr
    done = json.loads(second.stdout)
    assert not done["stopped"]
    assert done["report"]["arrivals"] == {"left": 3000, "right": 3000}
    assert done["report"]["pairs"] == meetings(trace, trace, 20).total()


def test_correlated_attacks_are_found_in_the_time_there_is(spark: Any, tmp_path: Path) -> None:
    """What there is no time for, the repair brings back."""
    file = tmp_path / "attacks.toml"
    file.write_text((ROOT / "examples" / "jobs" / "attacks.toml").read_text(encoding="utf-8"), encoding="utf-8")
    job = load(file)
    report = run(job, spark).report
    assert report is not None
    assert report.balanced
    assert report.arrivals == (3000, 3000)
    assert report.unprobed.total > 0
    found = spark.read.parquet(str(tmp_path / "out" / "attacks" / "found")).toPandas()
    assert len(found) == report.pairs > 0
    assert all(
        len(set(left) & set(right)) >= 3 for left, right in zip(found.signs_left, found.signs_right, strict=True)
    )
    assert ((found.ts_left - found.ts_right).abs() < pd.Timedelta("2 minutes")).all()
    assert not found.duplicated(["ts_left", "ts_right"]).any()  # a row a tick and side
    rest = running.refine(job, spark).rows.toPandas()
    got = Counter(zip(*(pd.concat([found, rest])[name] for name in ("ts_left", "ts_right")), strict=True))
    archive = spark.read.parquet(str(tmp_path / "out" / "attacks" / "rows"))
    came = [archive.where(f"side = '{side}'").select(f"{side}.*").toPandas() for side in ("left", "right")]
    left, right = ({ts: set(signs) for ts, signs in zip(rows.ts, rows.signs, strict=True)} for rows in came)
    near = pd.Timedelta("2 minutes")
    exact = ((a, b) for a in left for b in right if abs(a - b) < near and len(left[a] & right[b]) >= 3)
    assert Counter(exact) == got
    assert len(rest) > 0


def sightings(points: list[pa.Table], spans: list[int]) -> Counter[tuple[int, ...]]:
    """Return (key, the times at all points) of rows of one key, each in its window when the last one comes."""
    found = Counter[tuple[int, ...]]()
    for key in set(points[0]["key"].to_pylist()):
        mine = [[row["ts"] for row in table.to_pylist() if row["key"] == key] for table in points]
        for times in itertools.product(*mine):
            if all(max(times) - ts < span for ts, span in zip(times, spans, strict=True)):
                found[(key, *times)] += 1
    return found


def sighted(spark: Any, folder: Path) -> Counter[tuple[int, ...]]:
    times = [f"cast(unix_seconds(ts_{name}) as int)" for name in "abcd"]
    rows = spark.read.parquet(str(folder)).selectExpr("flow", *times).collect()
    return Counter((key, *(ts - traces.EPOCH for ts in each)) for key, *each in rows)


@pytest.mark.parametrize("memory", [30, None])
def test_packets_are_found_at_four_points(spark: Any, tmp_path: Path, memory: int | None) -> None:
    words = (ROOT / "examples" / "jobs" / "packets.toml").read_text(encoding="utf-8")
    if memory is None:
        words = words.replace("memory = 30\n", "")
    words = words.replace("rows = 1_000", "rows = 150").replace("rows = 4_000", "rows = 600")
    job = parse(words, tmp_path)
    done = run(job, spark)
    drawn = [zipf(150, keys=200, relation="correlated", seed=at // 2) for at in range(3)]
    last = zipf(600, keys=200, relation="correlated", seed=1, rate=4)
    points = [drawn[0].left, drawn[1].right, drawn[2].left, last.right]
    want = sightings(points, [20, 20, 20, 10])
    out = tmp_path / "out" / "packets"
    found = sighted(spark, out / "found")
    assert done.report.arrivals == {"a": 150, "b": 150, "c": 150, "d": 600}
    assert found.total() == done.report.results
    if memory is not None:
        assert sum(done.report.shed["budget"].values()) > 0
        assert found.total() > want.total() / 2
    refined = running.refine(job, spark)
    assert (sum(part.rows for part in refined.parts) > 0) == (memory is not None)
    both = found + sighted(spark, out / "rest")
    assert both <= want
    assert all(
        both[each] == n for each, n in want.items() if max(each[1:]) < 140
    )  # later ones wait for the watermark
    assert not running.refine(job, spark).parts


def test_several_streams_of_the_page_are_forecast_and_run(spark: Any, tmp_path: Path) -> None:
    job = parse(SEVERAL, tmp_path)
    seen = planning.forecast(job, spark)
    assert list(seen.sources) == ["orders", "payments", "parcels"]
    assert [what["side"] for what in seen.sources.values()] == ["orders", "payments", "parcels"]
    assert (seen.shards, seen.memory_rows, seen.window_rows) == (1, 40, 60)
    assert seen.order is not None
    assert seen.order.startswith("found on the first rows")
    report = run(job, spark).report
    assert report.results > 0
    assert report.one_shard == "there is no key common to all streams"
    assert report.orders[0].reason == "measured on the first rows"


def test_the_drawn_examples_run_as_they_are(spark: Any, tmp_path: Path) -> None:
    """Only the live one is played faster."""
    for name in ("calls_trades", "live"):
        file = tmp_path / f"{name}.toml"
        words = (ROOT / "examples" / "jobs" / file.name).read_text(encoding="utf-8")
        file.write_text(words.replace("speed = 100", "speed = 5_000"), encoding="utf-8")
        job = load(file)
        report = run(job, spark).report
        assert report is not None
        assert report.balanced
        assert report.arrivals == (job.streams[0].rows,) * 2  # type: ignore[attr-defined]
        assert report.shed["budget"].total > 0
        assert (report.importance is not None) == (name == "calls_trades")


DATA = Path(os.environ.get("PENSTOCK_DATA", ROOT.parent / "shared" / "data"))


def test_ships_meet_as_the_example_says(spark: Any, tmp_path: Path) -> None:
    if not (DATA / "ship_weather").is_dir():
        pytest.skip(f"the data set ship_weather is not in {DATA}; PENSTOCK_DATA names its folder")
    (tmp_path / "data").symlink_to(DATA)
    file = tmp_path / "job.toml"
    file.write_text((ROOT / "examples" / "jobs" / "ship_weather.toml").read_text(encoding="utf-8"), encoding="utf-8")
    done = run(load(file), spark)
    assert done.report is not None
    assert done.report.balanced
    assert done.report.pairs > 0
