"""Several streams on Spark against brute force: streaming and batch, cut anywhere, stopped and started again."""

import shutil
from collections.abc import Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import penstock as pen
from multiway import Edge, Row, Window, all_results
from penstock.errors import ColumnError, InputError, StateError, TimeError, WindowError
from penstock.operator.several import settings_of
from penstock.spark import completing
from several import common
from streaming import counted, read_stream, run_to_end, write_batches

NAMES = "abcdefghijklm"
START, SECOND, END = 1_700_000_000, 1_000_000, 2000
HOW: dict[str, Any] = {"on": "key0", "time": "ts", "windows": "20 seconds"}


def drawn(n: int, rows: int, *, jitter: int = 0, keys: int = 4, seed: int = 1) -> list[list[Row]]:
    """Draw streams as they come: a row every other second or so, some out of order, some without a key."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        ts = np.cumsum(rng.integers(1, 4, rows)) - rng.integers(0, jitter + 1, rows)
        key = rng.integers(0, keys, (rows, 2))
        found.append(
            [
                Row(int(t), (None if rng.random() < 0.05 else int(a), int(b)))
                for t, (a, b) in zip(ts, key, strict=True)
            ]
        )
    return found


def table_of(name: str, stream: list[Row], *, closed: bool = True) -> pa.Table:
    """Return a stream as a table; a last row without keys lets the watermark pass all others."""
    rows = [*stream, *([Row(END, (None, None))] if closed else [])]
    return pa.table(
        {
            "ts": pa.array([(START + row.ts) * SECOND for row in rows], pa.timestamp("us", "UTC")),
            "key0": pa.array([None if row.keys[0] is None else f"key {row.keys[0]}" for row in rows], pa.string()),
            "key1": pa.array([row.keys[1] for row in rows], pa.int64()),
            "value": pa.array([row.keys[1] or 0 for row in rows], pa.int64()),
            f"row_{name}": pa.array(range(len(rows)), pa.int64()),
        }
    )


def tables_of(streams: list[list[Row]], *, closed: bool = True) -> dict[str, pa.Table]:
    return {name: table_of(name, stream, closed=closed) for name, stream in zip(NAMES, streams, strict=False)}


def frames_of(spark: Any, streams: list[list[Row]]) -> dict[str, Any]:
    tables = tables_of(streams, closed=False)
    return {name: spark.createDataFrame(table.to_pandas()) for name, table in tables.items()}


def found_in(frame: Any, n: int) -> list[tuple[int, ...]]:
    rows = frame.select(*(f"row_{name}" for name in NAMES[:n])).collect()
    return sorted(tuple(row) for row in rows)


def write(tables: Mapping[str, pa.Table], folder: Path, cuts: list[int]) -> None:
    for name, table in tables.items():
        write_batches(table, folder / name, cuts)


def streams_of(spark: Any, folder: Path, names: str) -> dict[str, Any]:
    return {name: read_stream(spark, folder / name) for name in names}


def wanted(streams: list[list[Row]], span: int = 20) -> list[tuple[int, ...]]:
    n = len(streams)
    return all_results(streams, [Window(span)] * n, common(n))


@pytest.mark.parametrize(("n", "rows", "jitter"), [(3, 70, 8), (4, 24, 0), (5, 14, 2)])
def test_streams_give_every_result_once(spark: Any, tmp_path: Path, n: int, rows: int, jitter: int) -> None:
    streams = drawn(n, rows, jitter=jitter)
    write(tables_of(streams), tmp_path, [rows // 4, rows // 2, rows - 3])
    joined = pen.multijoin(streams_of(spark, tmp_path, NAMES[:n]), **HOW)
    query = run_to_end(joined, tmp_path / "out", tmp_path / "cp")
    got = found_in(spark.read.parquet(str(tmp_path / "out")), n)
    assert wanted(streams) == got
    assert len(got) > 50
    report = pen.report(query)
    assert report.results == len(got)
    assert report.arrivals == dict.fromkeys(NAMES[:n], rows + 1)
    assert report.memory_rows <= n  # the last rows
    assert not any(report.shed["late"].values())
    assert report.orders
    assert report.to_dict()["policy"] == "exact"


@pytest.mark.parametrize(
    ("how", "windows"),
    [
        ({"evaluation": pen.every("7 seconds"), "shards": 2}, [Window(20)] * 4),
        ({"evaluation": pen.every("7 seconds"), "expiration": pen.every("30 seconds")}, [Window(20)] * 4),
        ({"windows": pen.rows(6)}, [Window(6, by_rows=True)] * 4),
        ({"windows": pen.rows(6), "evaluation": pen.every("7 seconds")}, [Window(6, by_rows=True)] * 4),
    ],
    ids=["lazy", "lazier expiration", "rows", "lazy rows"],
)
def test_lazy_streams_and_windows_in_rows(spark: Any, tmp_path: Path, how: Any, windows: list[Window]) -> None:
    streams = drawn(4, 24, jitter=6, seed=3)
    write(tables_of(streams), tmp_path, [7, 16])
    joined = pen.multijoin(streams_of(spark, tmp_path, NAMES[:4]), **{**HOW, **how})
    query = run_to_end(joined, tmp_path / "out", tmp_path / "cp")
    got = found_in(spark.read.parquet(str(tmp_path / "out")), 4)
    assert all_results(streams, windows, common(4)) == got
    assert len(got) > 50
    assert pen.report(query).results == len(got)


@pytest.mark.parametrize("window", ["20 seconds", pen.rows(5)], ids=["time", "rows"])
def test_two_streams_are_the_join_of_two(spark: Any, window: Any) -> None:
    left, right = frames_of(spark, drawn(2, 40)).values()
    want = pen.join(left, right, on="key0", time="ts", window=window)
    got = pen.multijoin({"left": left, "right": right}, on="key0", time="ts", windows=window)
    assert want.schema == got.schema
    assert counted(want) == counted(got)
    assert got.count() > 50


def test_ten_streams(spark: Any) -> None:
    streams = drawn(10, 3, keys=2)
    got = found_in(pen.multijoin(frames_of(spark, streams), **HOW, shards=2), 10)
    assert wanted(streams) == got
    assert len(got) > 0


@pytest.mark.parametrize("n", [1, 13])
def test_too_few_or_too_many_streams_are_refused_as_without_spark(spark: Any, n: int) -> None:
    streams = drawn(n, 3)
    said = []
    for given in (tables_of(streams, closed=False), frames_of(spark, streams)):
        with pytest.raises(InputError) as caught:
            pen.multijoin(given, **HOW)
        said.append(caught.value)
    embedded, on_spark = said
    assert (embedded.argument, type(embedded)) == (on_spark.argument, type(on_spark))


GRAPH = {("a", "b"): "key1", ("b", "c"): ["key0", ("key1", "<=", "key1")]}
GRAPH_EDGES = [Edge(0, 1, 1, 1), Edge(1, 0, 2, 0), Edge(1, 1, 2, 1, "<=")]


def test_whole_inputs_give_the_same(spark: Any) -> None:
    """With a common key on three shards, along a graph and with windows in rows on one."""
    streams = drawn(3, 60)
    frames = frames_of(spark, streams)
    assert wanted(streams) == found_in(pen.multijoin(frames, shards=3, **HOW), 3)
    windows = [Window(20), Window(30), Window(4, by_rows=True)]
    asked = {"a": "20 seconds", "b": "30 seconds", "c": pen.rows(4)}
    along = pen.multijoin(frames, on=GRAPH, time="ts", windows=asked, evaluation=pen.every("7 seconds"))
    assert all_results(streams, windows, GRAPH_EDGES) == found_in(along, 3)


def test_a_graph_on_streams_runs_on_one_shard(spark: Any, tmp_path: Path) -> None:
    streams = drawn(3, 50, jitter=8, seed=2)
    write(tables_of(streams), tmp_path, [20, 40])
    joined = pen.multijoin(streams_of(spark, tmp_path, "abc"), on=GRAPH, time="ts", windows="20 seconds")
    query = run_to_end(joined, tmp_path / "out", tmp_path / "cp")
    got = found_in(spark.read.parquet(str(tmp_path / "out")), 3)
    assert all_results(streams, [Window(20)] * 3, GRAPH_EDGES) == got
    assert len(got) > 50
    assert str(pen.report(query)).endswith("one shard on Spark: there is no key common to all streams")


@pytest.mark.parametrize("n", [4, 5])
def test_whole_inputs_along_a_chain(spark: Any, n: int) -> None:
    """Different attributes in turn, by brute force."""
    streams = drawn(n, 12, seed=n)
    pairs = list(pairwise(range(n)))
    on = {(NAMES[one], NAMES[other]): f"key{one % 2}" for one, other in pairs}
    frames = frames_of(spark, streams)
    got = found_in(pen.multijoin(frames, on=on, time="ts", windows="20 seconds"), n)
    assert all_results(streams, [Window(20)] * n, [Edge(one, one % 2, other, one % 2) for one, other in pairs]) == got
    assert len(got) > 5


def test_importance_and_recall_along_a_graph_and_over_shards(spark: Any, tmp_path: Path) -> None:
    streams = drawn(3, 60, seed=4)
    write(tables_of(streams), tmp_path, [20, 40])
    how: dict[str, Any] = {"time": "ts", "windows": "20 seconds", "memory": 12, "importance": "value"}
    edges = {"graph": GRAPH_EDGES, "key": common(3)}
    for name, on, shards in (("graph", GRAPH, None), ("key", "key0", 2)):
        joined = pen.multijoin(streams_of(spark, tmp_path, "abc"), on=on, shards=shards, combine="sum", **how)
        query = run_to_end(joined, tmp_path / name, tmp_path / f"{name}.cp")
        exact = all_results(streams, [Window(20)] * 3, edges[name])
        rows = spark.read.parquet(str(tmp_path / name)).collect()
        got = [tuple(row[f"row_{each}"] for each in "abc") for row in rows]
        assert set(got) < set(exact)
        worth = [sum(stream[at].keys[1] for stream, at in zip(streams, row, strict=True)) for row in got]
        assert worth == [row["importance"] for row in rows]
        report = pen.report(query)
        assert report.exact_estimate == (len(exact),) * 3  # few rows: all are in the sample
        assert report.importance == sum(worth)
        assert report.recall.mid == pytest.approx(len(got) / len(exact))


@pytest.mark.parametrize(
    ("policy", "how", "most"),
    [("max", {}, 3), ("min", {"lateness": "10 seconds"}, 40)],  # of 132 rows; a window and the lateness have 30
    ids=["watermark", "lateness"],
)
def test_a_silent_stream_holds_up_nobody_if_that_is_asked(
    spark: Any, tmp_path: Path, policy: str, how: dict[str, Any], most: int
) -> None:
    """Spark's watermark is that of the slowest stream, unless its policy says otherwise; lateness needs no policy."""
    streams = drawn(3, 60, seed=6)
    streams[2] = streams[2][:10]  # and then never again
    tables = {**tables_of(streams), "c": table_of("c", streams[2], closed=False)}
    write(tables, tmp_path, [20, 40])
    spark.conf.set("spark.sql.streaming.multipleWatermarkPolicy", policy)
    try:
        joined = pen.multijoin(streams_of(spark, tmp_path, "abc"), **HOW, **how)
        query = run_to_end(joined, tmp_path / "out", tmp_path / "cp")
    finally:
        spark.conf.unset("spark.sql.streaming.multipleWatermarkPolicy")
    got = found_in(spark.read.parquet(str(tmp_path / "out")), 3)
    assert wanted(streams) == got
    assert len(got) > 5
    assert pen.report(query).memory_rows <= most


def arrive(folder: Path, names: str, numbers: list[int]) -> None:
    """Let files of all streams arrive."""
    for name, number in product(names, numbers):
        (folder / name).mkdir(exist_ok=True)
        shutil.copy2(folder / "all" / name / f"{number:05}.parquet", folder / name)


def damage(engines: Path) -> None:
    for at, path in enumerate(sorted(path for path in engines.rglob("*") if path.is_file())):
        path.unlink() if at % 2 else path.write_bytes(b"something else")


@pytest.mark.parametrize("memory", [None, 12])
def test_a_restart_loses_and_repeats_nothing(spark: Any, tmp_path: Path, engines: Path, memory: int | None) -> None:
    """The query is stopped in mid-stream twice, the host's engines are gone or damaged, and it goes on."""
    streams = drawn(3, 80, seed=3)
    tables = tables_of(streams)
    write(tables, tmp_path / "all", [20, 40, 60])
    how = {**HOW, **({} if memory is None else {"memory": memory, "shards": 1})}
    for numbers in ([0], [1, 2], [3]):
        arrive(tmp_path, "abc", numbers)
        joined = pen.multijoin(streams_of(spark, tmp_path, "abc"), **how)
        query = run_to_end(joined, tmp_path / "out", tmp_path / "cp")
        damage(engines)
    got = found_in(spark.read.parquet(str(tmp_path / "out")), 3)
    report = pen.report(query)
    assert report.results == len(got)
    assert report.arrivals == dict.fromkeys("abc", 81)
    if memory is None:
        assert wanted(streams) == got
        return
    embedded = pen.run(tables, **{**how, "shards": None})
    rows = sorted(zip(*(embedded.table[f"row_{name}"].to_pylist() for name in "abc"), strict=True))
    assert rows == got
    assert 0 < len(got) < len(wanted(streams))
    assert report.shed == embedded.report.shed


def test_another_budget_goes_on_and_another_window_is_refused(spark: Any, tmp_path: Path) -> None:
    streams = drawn(3, 80, seed=4)
    write(tables_of(streams), tmp_path / "all", [20, 40, 60])
    how = {**HOW, "memory": 20, "shards": 1}
    arrive(tmp_path, "abc", [0, 1])
    run_to_end(pen.multijoin(streams_of(spark, tmp_path, "abc"), **how), tmp_path / "out", tmp_path / "cp")
    arrive(tmp_path, "abc", [2, 3])
    other = pen.multijoin(streams_of(spark, tmp_path, "abc"), **{**how, "windows": "9 seconds"})
    with pytest.raises(StreamingQueryException, match="start afresh"):
        run_to_end(other, tmp_path / "out", tmp_path / "cp")
    again = pen.multijoin(streams_of(spark, tmp_path, "abc"), **{**how, "memory": 500})
    query = run_to_end(again, tmp_path / "out", tmp_path / "cp")
    got = found_in(spark.read.parquet(str(tmp_path / "out")), 3)
    late = [result for result in wanted(streams) if all(place >= 45 for place in result)]
    assert set(late) <= set(got) < set(wanted(streams))
    assert pen.report(query).results == len(got)


def test_results_and_ledger_of_one_query(spark: Any, tmp_path: Path) -> None:
    streams = drawn(3, 60, seed=5)
    write(tables_of(streams), tmp_path, [30])
    joined = pen.multijoin(streams_of(spark, tmp_path, "abc"), **HOW, memory=16, shards=2)
    paths = {name: str(tmp_path / name) for name in ("checkpoint", "results", "ledger")}
    query = pen.write(joined, trigger="available now", **paths)
    query.awaitTermination()
    report = pen.report(query)
    assert report.memory_rows <= 16 + 3
    got = found_in(spark.read.parquet(paths["results"]), 3)
    assert len(got) == report.results > 0
    assert set(got) < set(wanted(streams))
    ledger = spark.read.parquet(paths["ledger"]).collect()
    assert len(ledger) == sum(report.shed["budget"].values()) > 0
    assert {row.shard for row in ledger} == {0, 1}
    assert all(row["values"][row.stream] is not None and row.reason == "budget" for row in ledger)


SPANS = {"a": "20 seconds", "b": "14 seconds", "c": "25 seconds"}


def straggling_streams() -> list[list[Row]]:
    """Draw three streams of which some of the last rows are too late."""
    return [
        [row._replace(ts=row.ts - 40) if at >= 45 and at % 5 == 0 else row for at, row in enumerate(stream)]
        for stream in drawn(3, 60, jitter=4, seed=6)
    ]


def exact_of(streams: list[list[Row]], on: Any) -> list[tuple[int, ...]]:
    edges = GRAPH_EDGES if on is GRAPH else common(3)
    return all_results(streams, [Window(20), Window(14), Window(25)], edges)


def written(spark: Any, folder: Path, on: Any, cuts: list[int]) -> dict[str, str]:
    """Join these inside a budget, with a ledger and an archive."""
    write(tables_of(straggling_streams()), folder, cuts)
    hasty = {name: read_stream(spark, folder / name, delay="1 second") for name in "abc"}
    joined = pen.multijoin(hasty, **{**HOW, "on": on, "windows": SPANS}, memory=16)
    paths = {name: str(folder / name) for name in ("checkpoint", "results", "ledger", "archive")}
    query = pen.write(joined, trigger="available now", **paths)
    query.awaitTermination()
    assert all(sum(pen.report(query).shed[reason].values()) > 0 for reason in ("budget", "late"))
    return paths


@pytest.mark.parametrize("on", ["key0", GRAPH])
def test_results_and_the_refined_are_the_exact_join(spark: Any, tmp_path: Path, on: Any) -> None:
    """At once, and part by part into a folder; what is done is not done again."""
    paths = written(spark, tmp_path, on, [20, 40])
    how = {**HOW, "on": on, "windows": SPANS}
    where: dict[str, Any] = {name: paths[name] for name in ("archive", "ledger")}
    results = spark.read.parquet(paths["results"]).drop("batch")
    rest = pen.refine(**where, spark=spark, **how)
    assert rest.columns == results.columns
    assert [field.dataType for field in rest.schema] == [field.dataType for field in results.schema]
    exact = sorted(exact_of(straggling_streams(), on))
    assert exact == sorted(found_in(results, 3) + found_in(rest, 3))
    frames = {name: spark.read.parquet(path) for name, path in where.items()}
    assert found_in(rest, 3) == found_in(pen.refine(**frames, **how), 3) != []
    into = tmp_path / "rest"
    assert found_in(rest, 3) == found_in(pen.refine(**where, into=into, batches=2, spark=spark, **how), 3)
    before = {path: path.stat().st_mtime_ns for path in into.rglob("*")}
    assert len(list(into.glob("batch=*"))) > 1
    assert found_in(rest, 3) == found_in(pen.refine(**where, into=into, **how), 3)
    assert before == {path: path.stat().st_mtime_ns for path in into.rglob("*")}
    with pytest.raises(StateError, match="made with"):
        pen.refine(**where, into=into, **{**how, "windows": "5 seconds"})
    with pytest.raises(ColumnError, match="no column shed_at, reason"):
        pen.refine(archive=paths["archive"], ledger=paths["archive"], spark=spark, **how)


def test_several_streams_that_go_on_are_refined_as_they_go(spark: Any, tmp_path: Path) -> None:
    """After every micro-batch nothing is there twice, and all that the watermark has passed is there.

    A part that was interrupted is done again; archives go as soon as nothing that is not late can need them, and that
    changes nothing.
    """
    paths = written(spark, tmp_path / "all", "key0", [6, 24, 36, 48])
    streams = straggling_streams()
    exact = set(exact_of(streams, "key0"))
    numbers = sorted(int(path.name[6:]) for path in Path(paths["archive"]).glob("batch=*"))
    into, removed = tmp_path / "rest", []
    for number in numbers:
        for name in ("archive", "ledger"):
            shutil.copytree(f"{paths[name]}/batch={number}", tmp_path / name / f"batch={number}")
        if number == 2:
            (into / "batch=2").mkdir()
            shutil.copy2(next((into / "batch=1").glob("*.parquet")), into / "batch=2" / "half.parquet")
        done = completing.refine_into(
            str(tmp_path / "archive"),
            str(tmp_path / "ledger"),
            str(into),
            settings_of({**HOW, "windows": SPANS}),
            spark=spark,
            keep="45 seconds",  # some of the last rows are 40 seconds late
        )
        assert [(part.first, part.last) for part in done.parts] == [(number, number)]
        removed += done.removed
        got = found_in(spark.read.parquet(paths["results"]).where(f"batch <= {number}"), 3) + found_in(done.rows, 3)
        assert len(got) == len(set(got))
        assert set(got) <= exact
    assert sorted(exact) == sorted(got)
    assert 0 in removed
    assert len(removed) < len(numbers)
    assert {path.name for path in (tmp_path / "archive").glob("batch=*")} == {
        f"batch={number}" for number in numbers if number not in removed
    }


def test_nothing_given_up_is_nothing_to_refine(spark: Any, tmp_path: Path) -> None:
    write(tables_of(drawn(3, 20)), tmp_path, [10])
    joined = pen.multijoin(streams_of(spark, tmp_path, "abc"), **HOW)
    paths = {name: str(tmp_path / name) for name in ("checkpoint", "results", "ledger", "archive")}
    pen.write(joined, trigger="available now", **paths).awaitTermination()
    where: dict[str, Any] = {name: paths[name] for name in ("archive", "ledger")}
    assert pen.refine(**where, into=tmp_path / "rest", spark=spark, **HOW).count() == 0
    with pytest.raises(WindowError, match="only time windows"):
        pen.refine(**where, spark=spark, **{**HOW, "windows": pen.rows(5)})


def test_a_plan_from_samples_is_that_of_the_same_tables(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = tables_of(drawn(3, 60), closed=False)
    frames = {name: spark.createDataFrame(table.to_pandas()) for name, table in tables.items()}
    graph = {("a", "b"): "key0", ("b", "c"): ("key1", "<", "value")}
    for on in ("key0", graph):
        want = pen.plan(tables, on=on, time="ts", windows="20 seconds")
        got = pen.plan(frames, on=on, time="ts", windows="20 seconds")
        assert want.order == got.order
        assert want.cost == pytest.approx(got.cost)
    monkeypatch.setattr("penstock.spark.planning.ENOUGH", 90)
    ends = [table["ts"].to_numpy() for table in tables.values()]
    first, last = min(ts[0] for ts in ends), max(ts[-1] for ts in ends)
    half = {
        name: table.filter(ts <= first + (last - first) // 2)
        for (name, table), ts in zip(tables.items(), ends, strict=True)
    }
    want = pen.plan(half, on="key0", time="ts", windows="20 seconds")
    got = pen.plan(frames, on="key0", time="ts", windows="20 seconds")
    assert want.order == got.order
    assert want.cost == pytest.approx(got.cost)
    for wrong, said in (({**frames, "a": tables["a"]}, "not streaming"), ({"a": frames["a"]}, "give 2 to")):
        with pytest.raises(InputError, match=said):
            pen.plan(wrong, on="key0", time="ts", windows="20 seconds")
    with pytest.raises(ColumnError, match="no such column in a"):
        pen.plan(frames, on="other", time="ts", windows="20 seconds")


def test_what_cannot_be_joined(spark: Any, tmp_path: Path) -> None:
    write(tables_of(drawn(3, 5)), tmp_path, [])
    streams = streams_of(spark, tmp_path, "abc")
    batch = spark.read.parquet(str(tmp_path / "c"))
    bare = read_stream(spark, tmp_path / "c", time=None)
    cases: list[tuple[Any, dict[str, Any], type[InputError], str]] = [
        ({**streams, "c": batch}, {}, InputError, "streaming and batch DataFrames"),
        ({**streams, "c": 5}, {}, InputError, "c: got int"),
        ({**streams, "c": bare}, {}, TimeError, "no watermark"),
        (streams, {"on": GRAPH, "shards": 2}, InputError, "no key common to all streams"),
        (streams, {"windows": pen.rows(3), "shards": 2}, InputError, "windows in rows count"),
        (streams, {"order": ["a", "b"]}, InputError, "order"),
        (streams, {"time": "no"}, InputError, "no such column in a"),
        ({1: streams["a"], 2: streams["b"]}, {}, InputError, "with a word"),
        (streams, {"lateness": "soon"}, InputError, "lateness"),
        (dict.fromkeys("abc", batch), {"lateness": "10 seconds"}, InputError, "lateness"),
    ]
    for given, how, error, said in cases:
        with pytest.raises(error, match=said):
            pen.multijoin(given, **{**HOW, **how})
