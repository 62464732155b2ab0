"""Results and what is refined from archive and ledger are the exact join, on Spark, whatever was interrupted."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pen
from documents import ROOT, blocks, steps
from penstock.errors import ColumnError, InputError, PolicyError, StateError, WindowError
from penstock.operator.join import settings_of
from penstock.spark import refine as refining
from penstock.spark.places import place
from penstock.streams.workloads import zipf
from shell import around, typed
from streaming import counted, read_stream, straggling, write_batches

ROWS, SECOND, CUTS = 240, 1_000_000, [40, 90, 160]
SPAN = (25, 15)
HOW: dict[str, Any] = {"on": "k", "time": "ts", "window": ("25 seconds", "15 seconds"), "importance": "w"}
BUDGET: dict[str, Any] = {"memory": 24, "policy": "prob", "per_key": 5, "shards": 2}


def everything() -> Counter[tuple[int, int]]:
    """Return the exact join by looking at every pair, late ones too."""
    left, right = (straggling(seed, ROWS).to_pylist() for seed in (1, 2))
    found = Counter[tuple[int, int]]()
    for mine in left:
        for theirs in right:
            apart = (theirs["ts"] - mine["ts"]).total_seconds()
            if mine["k"] is not None and mine["k"] == theirs["k"] and -SPAN[1] < apart < SPAN[0]:
                found[mine["id"], theirs["id"]] += 1
    return found


def ids(frame: Any) -> Counter[tuple[int, int]]:
    return Counter((row.id_left, row.id_right) for row in frame.select("id_left", "id_right").collect())


@pytest.fixture(scope="module")
def written(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Run a bounded join of late and early rows, in four micro-batches and some without rows."""
    folder = tmp_path_factory.mktemp("written")
    for name, seed in (("l", 1), ("r", 2)):
        write_batches(straggling(seed, ROWS), folder / name, CUTS)
    streams = [read_stream(spark, folder / name, delay="5 seconds") for name in ("l", "r")]
    outputs = {name: str(folder / name) for name in ("results", "ledger", "archive")}
    query = pen.write(
        pen.join(streams[0], streams[1], **HOW, **BUDGET, event_time=None),
        checkpoint=str(folder / "cp"),
        **outputs,
        trigger="available now",
    )
    query.awaitTermination()
    shed = pen.report(query).shed
    assert all(shed[reason].total > 0 for reason in ("late", "budget", "per_key"))
    return outputs


def folders(written: dict[str, str]) -> dict[str, Any]:
    return {name: written[name] for name in ("archive", "ledger")}


def test_results_and_the_refined_are_the_exact_join(spark: Any, written: dict[str, str]) -> None:
    results = spark.read.parquet(written["results"]).drop("batch")
    rest = pen.refine(**folders(written), spark=spark, **HOW, **BUDGET)
    assert rest.columns == results.columns
    assert [field.dataType for field in rest.schema] == [field.dataType for field in results.schema]
    assert everything() == ids(results) + ids(rest)
    assert rest.count() > 0
    row = rest.first()
    assert row.importance == min(row.w_left, row.w_right)
    frames = {name: spark.read.parquet(path) for name, path in folders(written).items()}
    assert counted(rest) == counted(pen.refine(**frames, **HOW))


@pytest.mark.parametrize("batches", [1, 3, 100])
def test_part_by_part_is_the_same_as_at_once(
    spark: Any, written: dict[str, str], tmp_path: Path, batches: int
) -> None:
    whole = counted(pen.refine(**folders(written), **HOW))
    assert whole == counted(
        pen.refine(**folders(written), into=tmp_path / "rest", batches=batches, spark=spark, **HOW)
    )


def put(source: str, into: Path, batches: list[int]) -> str:
    for number in batches:
        shutil.copytree(f"{source}/batch={number}", into / f"batch={number}", dirs_exist_ok=True)
    return str(into)


def test_a_stream_that_goes_on_is_refined_as_it_goes(spark: Any, written: dict[str, str], tmp_path: Path) -> None:
    """After every micro-batch, results and refined are the exact join of what has come by then."""
    rest = tmp_path / "rest"
    exact = everything()
    for last in range(4):
        for name in ("archive", "ledger"):
            put(written[name], tmp_path / name, [last])
        done = refining.refine_into(
            str(tmp_path / "archive"), str(tmp_path / "ledger"), str(rest), settings_of(HOW), spark=spark
        )
        assert [(part.first, part.last) for part in done.parts] == [(last, last)]
        came = spark.read.parquet(str(tmp_path / "archive")).collect()
        seen = [{row[name].id for row in came if row[name]} for name in ("left", "right")]
        by_now = Counter({pair: n for pair, n in exact.items() if pair[0] in seen[0] and pair[1] in seen[1]})
        results = spark.read.parquet(written["results"]).where(f"batch <= {last}")
        assert by_now == ids(results) + ids(done.rows)


def test_a_run_that_was_interrupted_goes_on(
    spark: Any, written: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = counted(pen.refine(**folders(written), **HOW))
    where: dict[str, Any] = {**folders(written), "into": str(tmp_path / "rest"), "batches": 1, "spark": spark}
    make, made = refining.missing_of, []

    def fail_at_the_third(there: Any, batches: tuple[int, int], bound: Any) -> Any:
        made.append(batches[0])
        if len(made) == 3:
            raise InterruptedError("the driver is killed")
        return make(there, batches, bound)

    monkeypatch.setattr(refining, "PAIRS", refining.PAIRS._replace(missing=fail_at_the_third))
    with pytest.raises(InterruptedError):
        pen.refine(**where, **HOW)
    half = tmp_path / "rest" / "batch=2"  # a part without the mark is not whole, whatever is in it
    half.mkdir()
    pq.write_table(pq.read_table(next((tmp_path / "rest" / "batch=1").glob("*.parquet"))), half / "x.parquet")
    assert whole == counted(pen.refine(**where, **HOW))
    count = len(made)
    assert made[:4] == [0, 1, 2, 2]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "rest").rglob("*")}
    assert whole == counted(pen.refine(**where, **HOW))  # nothing is left to do
    assert len(made) == count
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "rest").rglob("*")}


def test_a_run_that_was_killed_while_it_noted_its_arguments_goes_on(
    spark: Any, written: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed:
        def __init__(self, system: Any) -> None:
            self.system = system

        def __getattr__(self, name: str) -> Any:
            return getattr(self.system, name)

        def open_output_stream(self, path: str) -> Any:
            Path(path).write_text("{", encoding="utf-8")
            raise InterruptedError("the driver is killed")

    where: dict[str, Any] = {**folders(written), "into": str(tmp_path / "rest"), "spark": spark}
    with monkeypatch.context() as once:
        once.setattr("penstock.spark.folders.place", lambda path: (Killed(place(path)[0]), place(path)[1]))
        with pytest.raises(InterruptedError):
            pen.refine(**where, **HOW)
    assert counted(pen.refine(**folders(written), **HOW)) == counted(pen.refine(**where, **HOW))


def test_the_archive_is_kept_as_long_as_told(spark: Any, written: dict[str, str], tmp_path: Path) -> None:
    """What is removed is out of reach for rows that are not later than that, and what is refined stays."""
    for name in ("archive", "ledger"):
        shutil.copytree(written[name], tmp_path / name)
    where: dict[str, Any] = {name: str(tmp_path / name) for name in ("archive", "ledger")}
    settings = settings_of(HOW)
    done = refining.refine_into(**where, into=str(tmp_path / "rest"), settings=settings, spark=spark, keep="2 days")
    assert not done.removed
    whole = counted(done.rows)
    done = refining.refine_into(
        **where, into=str(tmp_path / "rest"), settings=settings, spark=spark, keep="0 seconds"
    )
    assert 0 in done.removed
    assert not done.parts
    assert whole == counted(done.rows)
    rows = spark.read.parquet(where["archive"]).toArrow()["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    kept = {path.name for path in (tmp_path / "archive").glob("batch=*")}
    assert {f"batch={number}" for number in done.removed}.isdisjoint(kept)
    gone = [path for path in Path(written["archive"]).glob("batch=*") if path.name not in kept]
    for path in gone:
        times = pq.read_table(path, columns=["ts"])["ts"].cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        assert max(times.to_pylist()) < max(rows.to_pylist()) - max(SPAN) * SECOND
    with pytest.raises(InputError, match="no part batch=0"):
        pen.refine(**where, **HOW)


def test_the_command_does_the_same(spark: Any, written: dict[str, str], tmp_path: Path) -> None:
    words = ["refine", written["archive"], "--ledger", written["ledger"], "--into", str(tmp_path / "rest")]
    words += ["--on", "k", "--time", "ts", "--window", "25 seconds,15 seconds", "--importance", "w"]

    def penstock(*more: str) -> str:  # with a Spark of its own
        command = [sys.executable, "-m", "penstock.cli", *words, *more]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not ran.stderr
        return ran.stdout

    told = json.loads(penstock("--batches", "3", "--json"))
    whole = counted(pen.refine(**folders(written), **HOW))
    assert whole.total() == told["rows"]
    assert whole == counted(spark.read.parquet(str(tmp_path / "rest")).drop("batch"))
    assert [0, 3] == [part["first"] for part in told["parts"]][:2]
    assert "nothing new" in penstock()


def test_the_document_is_right(spark: Any, tmp_path: Path) -> None:
    """The blocks of docs/refine.md run one after the other, and complete the result; so do its commands."""
    lake = tmp_path / "lake"
    for name, seed in (("clicks", 1), ("views", 2)):
        rows = straggling(seed, ROWS).drop_columns(["w"]).rename_columns({"k": "user"})
        write_batches(rows, lake / name, [120])
    names: dict[str, Any] = {name: read_stream(spark, lake / name) for name in ("clicks", "views")}
    names |= {"pen": pen, "spark": spark, "lake": str(lake)}
    for block in blocks(ROOT / "docs" / "refine.md", "python"):
        exec(block, names)  # noqa: S102
    found = ids(spark.read.parquet(str(lake / "found")))
    exact = ids(pen.join(*(spark.read.parquet(str(lake / name)) for name in ("clicks", "views")), **names["how"]))
    assert exact == found + ids(names["rest"])
    assert ids(names["rest"]) == ids(spark.read.parquet(str(lake / "rest")))
    assert ids(names["rest"]).total() > 0
    three = [spark.read.parquet(str(lake / name)) for name in ("found3", "rest3")]
    assert all(rows.count() > 0 for rows in three)
    sighted = three[0].unionByName(three[1]).select("id_clicks", "id_views", "id_again")
    assert sighted.count() == sighted.distinct().count()
    frames = {each: spark.read.parquet(str(lake / name)) for each, name in THREE.items()}
    assert sighted.subtract(pen.multijoin(frames, **names["three"]).select(*sighted.columns)).count() == 0
    (lake / "rest").rename(lake / "first")
    for name, table in zip(("calls", "trades"), zipf(5_000, keys=200, seed=7)[:2], strict=True):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    for command in [line for block in steps(ROOT / "docs" / "refine.md") for line in block]:
        typed(command, tmp_path, around(PENSTOCK_ENGINES=str(tmp_path / "engines")))
    assert ids(names["rest"]) == ids(spark.read.parquet(str(lake / "rest")))
    calls, trades = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("calls", "trades"))
    sizes = [pq.read_metadata(tmp_path / f"{name}.parquet").num_rows for name in ("found", "rest")]
    assert sum(sizes) == pen.join(calls, trades, on="key", time="ts", window=1_000).num_rows
    assert min(sizes) > 0


THREE = {"clicks": "clicks", "views": "views", "again": "clicks"}


def test_what_cannot_be_refined(spark: Any, written: dict[str, str], tmp_path: Path) -> None:
    where: dict[str, Any] = {**folders(written), "spark": spark}
    rest = str(tmp_path / "rest")
    with pytest.raises(WindowError, match="only time windows"):
        pen.refine(**where, **{**HOW, "window": pen.rows(5)})
    with pytest.raises(InputError, match="only observes"):
        pen.refine(**where, **HOW, memory=5, mode="observe")
    with pytest.raises(PolicyError, match="weight"):
        pen.refine(**where, **HOW, memory=5, policy="sample")
    with pytest.raises(ColumnError, match="no such column"):
        pen.refine(**where, **{**HOW, "on": "nobody"})
    with pytest.raises(ColumnError, match="no column shed_at, shed_at_arrival"):
        pen.refine(archive=written["archive"], ledger=written["archive"], spark=spark, **HOW)
    with pytest.raises(InputError, match="no part in both"):
        pen.refine(archive=str(tmp_path / "no"), ledger=written["ledger"], spark=spark, **HOW)
    with pytest.raises(InputError, match="two folders"):
        pen.refine(archive=written["archive"], ledger=spark.read.parquet(written["ledger"]), **HOW)
    with pytest.raises(InputError, match="into= is for folders"):
        pen.refine(archive=spark.read.parquet(written["archive"]), ledger=written["ledger"], into=rest, **HOW)
    with pytest.raises(InputError, match="give into="):
        pen.refine(**where, keep="1 day", **HOW)
    with pytest.raises(InputError, match="at least 1"):
        pen.refine(**where, into=rest, batches=0, **HOW)
    with pytest.raises(WindowError, match="keep"):
        pen.refine(**where, into=rest, keep=5, **HOW)
    assert not Path(rest).exists()
    for name in ("archive", "ledger"):
        put(written[name], tmp_path / name, [0, 2])
    with pytest.raises(InputError, match="no part batch=1"):
        pen.refine(archive=str(tmp_path / "archive"), ledger=str(tmp_path / "ledger"), into=rest, spark=spark, **HOW)
    pen.refine(**where, into=rest, **HOW)
    with pytest.raises(StateError, match="made with"):
        pen.refine(**where, into=rest, **{**HOW, "window": "5 seconds"})
