"""Measure the join on a local Spark beside Spark's own, Flink's, and loops (`make bench-spark`).

All read the same Parquet files, a file a side and micro-batch, and give the same rows; what they give is counted and
checked. Times are those of the micro-batches after the first, those without rows included.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import penstock as pen
from benchmarks import loops
from benchmarks.cases import Case
from penstock.spark import java, live
from penstock.spark.books import OBSERVED, reports_in
from penstock.spark.shards import shard_of
from penstock.spark.sharing import Known, Pools, Sketch, shares
from penstock.streams.keys import Coder
from penstock.streams.workloads import Workload, uniform, zipf

RESULTS = Path(__file__).with_name("spark.json")
PLOT = Path(__file__).parents[1] / "docs" / "sizing.png"
PARTS = ("joins", "growth", "sizing", "shares", "start")
MILLISECOND = 1000  # a tick is a millisecond of event time
EPOCH = 1_700_000_000_000_000
HEAP, ROCKS = "HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider"
PROVIDERS = "org.apache.spark.sql.execution.streaming.state."
FLINK = "PENSTOCK_FLINK_PYTHON"  # the Python that has apache-flink
LONG = 60  # seconds; a join that takes longer is timed once only, while its results are checked
LATELY = 6  # micro-batches after which the state is looked at
LIMIT = 180  # seconds; a join that takes longer is stopped
Plan = Callable[..., Any]
SIDES = ("left", "right")


class Load(NamedTuple):
    """A case as files."""

    case: Case
    files: int
    turns: int = 1  # that are timed

    @property
    def rows(self) -> int:
        """The rows of both sides together."""
        return self.case.left.num_rows + self.case.right.num_rows


def loads() -> list[Load]:
    """Sparse and dense keys in micro-batches of 500,000 rows; dense ones give 84 pairs a row, so there are fewer."""
    sparse = uniform(10**6, keys=10**6, seed=1)
    dense = zipf(5 * 10**5, keys=10_000, skew=1.0, relation="correlated", seed=1)
    return [
        Load(Case("sparse", sparse.left, sparse.right, 50_000), 4, 2),
        Load(Case("dense", dense.left, dense.right, 5_000), 2),
    ]


@contextlib.contextmanager
def written(load: Load) -> Iterator[Path]:
    """Write a load as files, in a folder that goes away."""
    with tables_written(dict(zip(SIDES, (load.case.left, load.case.right), strict=True)), load.files) as folder:
        yield folder


@contextlib.contextmanager
def tables_written(tables: Mapping[str, pa.Table], files: int) -> Iterator[Path]:
    """Write tables as so many files each, in a folder that goes away."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        for name, table in tables.items():
            (folder / name).mkdir()
            ts = pa.array(table["ts"].to_numpy() * MILLISECOND + EPOCH, pa.timestamp("us", "UTC"))
            table = table.select(["key"]).append_column("ts", ts)  # noqa: PLW2901
            size = -(-table.num_rows // files)
            for at in range(files):
                path = folder / name / f"{at:03}.parquet"
                pq.write_table(table[at * size : (at + 1) * size], path)
                os.utime(path, (at, at))  # Spark takes files in order of their age
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def source(spark: Any, folder: Path, name: str) -> Any:
    """Return one side as a stream."""
    schema = spark.read.parquet(str(folder / name)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
    return stream.withWatermark("ts", "1 second")


def played(
    spark: Any,
    folder: Path,
    plan: Plan,
    *,
    names: Sequence[str] = SIDES,
    provider: str = ROCKS,
    check: bool = True,
) -> dict[str, Any]:
    """Run a plan over all files; returns seconds and rows of the steady micro-batches, and what came out.

    To `check` that takes time itself, for every row that comes out. A plan that is stopped has more rows, the first
    micro-batch's too, and no result: it was slower than they say.
    """
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", PROVIDERS + provider)
    spark.conf.set("spark.sql.streaming.join.stateFormatVersion", "4" if provider == ROCKS else "2")
    joined = plan(*(source(spark, folder, name) for name in names))
    if check:
        sums = [
            F.sum(F.unix_millis(name) - EPOCH // MILLISECOND).alias(name)
            for name in joined.columns
            if name.startswith("ts_")
        ]
        joined = joined.observe("result", F.count(F.lit(1)).alias("rows"), *sums)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as checkpoint, watched() as peak:
        writer = joined.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(LIMIT):
            query.stop()
            held = max(map(held_rows, query.recentProgress), default=0)
            return {
                "seconds": LIMIT,
                "rows": rows_in(folder),
                "held_rows": held,
                "result": None,
                "stopped": True,
            }
        joins = sum(name.startswith(OBSERVED) for name in query.lastProgress.observedMetrics)
        last = query.lastProgress.batchId
        state = sum(state_bytes(spark, checkpoint, last, at) for at in range(joins)) if joins and check else None
    progress = query.recentProgress
    first = next(at for at, one in enumerate(progress) if one.numInputRows)
    steady = progress[first + 1 :]
    result: dict[str, int] = {}
    for one in progress if check else ():
        for name, value in one.observedMetrics["result"].asDict().items():
            result[name] = result.get(name, 0) + int(value or 0)
    return {
        "seconds": sum(one.durationMs["triggerExecution"] for one in steady) / 1000,
        "rows": sum(one.numInputRows for one in steady),
        "batch": float(np.median([one.durationMs["triggerExecution"] / 1000 for one in steady if one.numInputRows])),
        "state_rows": sum(one.numRowsTotal for one in progress[-1].stateOperators),
        "held_rows": max(map(held_rows, progress)),
        "state_bytes": max(map(store_bytes, progress)) if state is None else state,
        "worker_bytes": peak.bytes,
        "result": result,
    }


def held_rows(progress: Any) -> int:
    """Return how many rows the windows of all joins held after a micro-batch."""
    reports = reports_in(progress)
    if reports:
        return sum(int(report.memory_rows) for report in reports)
    return sum(operator.numRowsTotal for operator in progress.stateOperators)


def rows_in(folder: Path) -> int:
    """Return how many rows there are in the files of all sides."""
    return sum(pq.read_metadata(path).num_rows for path in folder.glob("*/*.parquet"))


def store_bytes(progress: Any) -> int:
    """Return the bytes that Spark says its state stores had after a micro-batch."""
    return sum(operator.memoryUsedBytes for operator in progress.stateOperators)


def state_bytes(spark: Any, checkpoint: str, last: int, operator: int) -> int:
    """Return the most bytes that the shards of a join held in Spark's state store after the last micro-batches.

    A log grows until a snapshot takes its place: after a single micro-batch there may be much of it, or none.
    """
    totals = []
    for batch in range(max(last - LATELY + 1, 0), last + 1):
        total = 0
        for name in ("log", "snapshot"):
            store = spark.read.format("statestore").option("path", checkpoint).option("batchId", batch)
            frame = store.option("operatorId", operator).option("stateVarName", name).load()
            value = F.col("user_map_value" if "user_map_value" in frame.columns else "value")
            total += frame.select(F.sum(F.length(value["data"]))).collect()[0][0] or 0
        totals.append(total)
    return max(totals)


class Peak:
    """The most memory that Python workers had at once."""

    bytes = 0


@contextlib.contextmanager
def watched() -> Iterator[Peak]:
    """Look at the memory of Spark's Python workers now and then."""
    peak, ended = Peak(), threading.Event()

    def look() -> None:
        while not ended.wait(0.2):
            peak.bytes = max(peak.bytes, max(map(resident, workers()), default=0))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def workers() -> list[int]:
    """Return the processes that run Python for Spark: descendants of this one that are ``pyspark.daemon``'s."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "pyspark.daemon" in process.cmdline():
                found.append(process.pid)
    return found


def resident(process: int) -> int:
    """Return the bytes of memory of a process that are its own (what it maps from files is not)."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])
    return 0


def own_join(span: int) -> Plan:
    """Return Spark's own stream-stream join."""
    near = f"l.ts > r.ts - interval {span} milliseconds and l.ts < r.ts + interval {span} milliseconds"
    return lambda left, right: (
        left.alias("l")
        .join(right.alias("r"), F.expr(f"l.key = r.key and {near}"))
        .selectExpr("l.key as key", "l.ts as ts_left", "r.ts as ts_right")
    )


def penstock_join(span: int, **options: Any) -> Plan:
    """Return Penstock's join."""
    return lambda left, right: pen.join(left, right, on="key", time="ts", window=f"{span} ms", **options)


def bare_pass(left: Any, right: Any) -> Any:
    """Return a shuffle by key and a pass through Python that does nothing: less no join in Python can do."""

    def nothing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch[:0]

    return left.union(right).repartition(2, "key").mapInArrow(nothing, "key long, ts timestamp")


def looped(folder: Path, load: Load, loop: Callable[..., int]) -> dict[str, Any]:
    """Run a micro-batch loop over the files, reading included."""
    begin = time.perf_counter()
    sides = []
    for name in ("left", "right"):
        table = pq.read_table(folder / name)
        ts = table["ts"].cast(pa.int64()).to_numpy() // MILLISECOND
        sides.append(table.set_column(table.schema.get_field_index("ts"), "ts", pa.array(ts)))
    rows = loop(*sides, load.case.span, -(-sides[0].num_rows // load.files))
    return {"seconds": time.perf_counter() - begin, "rows": load.rows, "result": {"rows": rows}}


def flink(folder: Path, load: Load) -> dict[str, Any] | None:
    """Run Flink's interval join in a process of its own; None if there is no Flink."""
    python = os.environ.get(FLINK)
    if not python:
        return None
    copies = folder / "csv"  # Flink's own package reads no Parquet
    for name, table in (("left", load.case.left), ("right", load.case.right)):
        (copies / name).mkdir(parents=True)
        ms = pa.array(table["ts"].to_numpy() + EPOCH // MILLISECOND)
        no_header = csv.WriteOptions(include_header=False)
        csv.write_csv(pa.table({"key": table["key"], "ms": ms}), copies / name / "rows.csv", no_header)
    command = [python, str(Path(__file__).with_name("flink.py")), str(copies), str(load.case.span)]
    env = {**os.environ, "JAVA_HOME": str(java.ensure())}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    pairs = max(map(int, re.findall(r"\+[IU]\[(\d+)\]", done.stdout)), default=0)
    return {**json.loads(done.stdout.splitlines()[-1]), "rows": load.rows, "result": {"rows": pairs}}


def in_turns(
    spark: Any,
    folder: Path,
    plans: Mapping[str, tuple[Plan, str]],
    turns: int,
    names: Sequence[str] = SIDES,
) -> dict[str, Any]:
    """Run plans, each with its state store, in turns; returns of each the shortest.

    The first turn warms up, and what comes out is told of it. A plan that takes long has that turn only.
    """
    runs: dict[str, Any] = {}
    for turn in range(1 + turns):
        for name, (plan, provider) in plans.items():
            if turn and runs[name]["checked"] > LONG:
                continue
            run = played(spark, folder, plan, names=names, provider=provider, check=turn == 0)
            print(folder.name, name, f"{run['rows'] / run['seconds']:,.0f} rows a second", flush=True)
            if turn == 0:
                runs[name] = {**run, "checked": run["seconds"], "turns": []}
                continue
            if not runs[name]["turns"] or run["seconds"] < min(runs[name]["turns"]):
                runs[name] |= {key: run[key] for key in ("seconds", "rows", "batch", "worker_bytes")}
            runs[name]["turns"].append(run["seconds"])
    return runs


def measure_joins(spark: Any) -> dict[str, Any]:
    """Time every way to the same rows, and a bounded join."""
    found: dict[str, Any] = {}
    for load in loads():
        span = load.case.span
        with written(load) as folder:
            plans: dict[str, tuple[Plan, str]] = {
                "penstock": (penstock_join(span), ROCKS),
                "bounded": (penstock_join(span, memory=span // 2, policy="prob"), ROCKS),
                "pass": (bare_pass, ROCKS),
                "spark heap": (own_join(span), HEAP),
                "spark rocks": (own_join(span), ROCKS),
            }
            runs = in_turns(spark, folder, plans, load.turns)
            runs["duckdb"] = looped(folder, load, loops.duckdb_loop)
            runs["polars"] = looped(folder, load, loops.polars_loop)
            runs["flink"] = flink(folder, load)
            want = runs["penstock"]["result"]
            for name in ("spark heap", "spark rocks"):
                assert runs[name]["result"] in (want, None), name
            for name in ("duckdb", "polars", "flink"):
                assert runs[name] is None or runs[name]["result"]["rows"] == want["rows"], name
            found[load.case.name] = runs
    return found


def measure_growth(spark: Any) -> list[dict[str, Any]]:
    """Let the span grow at the same rate and budget."""
    streams = uniform(600_000, keys=10**6, seed=3)
    found = []
    for span in (5_000, 50_000, 500_000):
        load = Load(Case("growth", streams.left, streams.right, span), 12)
        plans = (
            ("penstock", penstock_join(span, memory=10_000, policy="prob"), ROCKS),
            ("spark heap", own_join(span), HEAP),
        )
        with written(load) as folder:
            if not found:  # else the first span alone would pay for Spark's own warm-up
                for _, plan, provider in plans:
                    played(spark, folder, plan, provider=provider)
            for name, plan, provider in plans:
                run = played(spark, folder, plan, provider=provider)
                found.append({"join": name, "span": span, **run})
                print("growth", name, span, run["batch"], run["state_bytes"], run["worker_bytes"], flush=True)
    return found


def measure_sizing(spark: Any) -> list[dict[str, Any]]:
    """Let the budget grow, for throughput and recall."""
    streams = zipf(300_000, keys=10_000, skew=1.0, seed=1)
    span = 10_000
    load = Load(Case("sizing", streams.left, streams.right, span), 6)
    found = []
    with written(load) as folder:
        exact = [played(spark, folder, penstock_join(span)) for _ in range(2)][-1]  # the first one warms Spark up
        for share in (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0):
            memory = int(2 * span * share)
            run = played(spark, folder, penstock_join(span, memory=memory, policy="prob"))
            recall = run["result"]["rows"] / exact["result"]["rows"]
            found.append({"share": share, "recall": recall, "rows_a_second": run["rows"] / run["seconds"]})
            print("sizing", found[-1], flush=True)
        found.append({"share": None, "recall": 1.0, "rows_a_second": exact["rows"] / exact["seconds"]})
    return found


def sharded(streams: Workload, number: int, memory: int, span: int, *, moving: bool) -> int:
    """Return the pairs of so many engines with a part of the keys each, their shares even or moving."""
    tables = (streams.left, streams.right)
    coder = Coder((tables[0].schema.field("key").type,))
    codes = [coder.code([table["key"]])[0] for table in tables]
    homes = [shard_of(code, number) for code in codes]
    engines = [
        pen.Join(
            on="key",
            time="ts",
            window=span,
            memory=memory // number,
            policy="prob",
            ledger="off",
            schemas=(tables[0].schema, tables[1].schema),
        )
        for _ in range(number)
    ]
    known = Known.nothing(number)
    pools = Pools([memory], False, True, (span, span), True)
    for low, high in pairwise(range(0, tables[0].num_rows + 1, 5_000)):
        sketches = [
            [Sketch.of(code[low:high], table["ts"].to_numpy()[low:high], 0, number)]
            for code, table in zip(codes, tables, strict=True)
        ]
        known = known.after(sketches, span)
        for at, engine in enumerate(engines):
            if moving:
                engine.resize(memory=max(1, int(memory * shares(known, pools)[0, at])))
            mine = [
                table[low:high].filter(pa.array(home[low:high] == at))
                for table, home in zip(tables, homes, strict=True)
            ]
            engine.push(left=mine[0], right=mine[1])
    return sum(engine.report().pairs for engine in engines)


def measure_shares() -> list[dict[str, Any]]:
    """Compare budgets shared out evenly, moving ones, and one pool."""
    found = []
    span, memory = 5_000, 1_000
    for relation in ("uncorrelated", "correlated"):
        for skew in (0.5, 1.0, 1.5):
            streams = zipf(60_000, keys=10_000, skew=skew, relation=relation, seed=3)  # type: ignore[arg-type]
            given: dict[str, Any] = {"on": "key", "time": "ts", "window": span}
            exact = pen.run(streams.left, streams.right, **given).report.pairs
            one = pen.run(streams.left, streams.right, **given, memory=memory, policy="prob").report.pairs
            for number in (2, 8):
                even, moved = (sharded(streams, number, memory, span, moving=moving) for moving in (False, True))
                recalls = {"even": even / exact, "moving": moved / exact, "one": one / exact}
                found.append({"relation": relation, "skew": skew, "shards": number, **recalls})
                print("shares", found[-1], flush=True)
    return found


FIRST = """
import json, sys, time
from pathlib import Path
from benchmarks import spark as bench
from penstock.spark import live
from penstock.spark.books import reports_in

with live.local_spark() as spark:
    folder = Path(sys.argv[1])
    left, right = (bench.source(spark, folder, name) for name in ("left", "right"))
    joined = bench.penstock_join(50_000, memory=25_000, policy="prob")(left, right)
    begin = time.perf_counter()
    query = joined.writeStream.format("noop").option("checkpointLocation", sys.argv[2]).start()
    while not any(report.pairs for progress in query.recentProgress for report in reports_in(progress)):
        time.sleep(0.1)
    print(json.dumps(time.perf_counter() - begin))
    query.stop()
"""


def measure_start() -> float:
    """Time from ``start()`` to the first row in a fresh process and session."""
    streams = uniform(20_000, keys=1_000, seed=1)
    load = Load(Case("start", streams.left, streams.right, 50_000), 1)
    with written(load) as folder, tempfile.TemporaryDirectory() as checkpoint:
        command = [sys.executable, "-c", FIRST, str(folder), checkpoint]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.splitlines()[-1])


def draw(sizing: list[dict[str, Any]]) -> None:
    """Draw recall and throughput against the budget, for the docs."""
    import matplotlib as mpl  # noqa: PLC0415 - only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    bounded, exact = sizing[:-1], sizing[-1]
    shares_of_exact = [100 * entry["share"] for entry in bounded]
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 6), layout="constrained")
    above.plot(shares_of_exact, [100 * entry["recall"] for entry in bounded], marker="o")
    above.set_ylabel("recall, %")
    above.set_ylim(0, 103)
    below.plot(shares_of_exact, [entry["rows_a_second"] / 1000 for entry in bounded], marker="o", label="prob")
    below.axhline(exact["rows_a_second"] / 1000, linestyle="--", color="gray", label="exact")
    below.set_ylim(bottom=0)
    below.set_ylabel("thousand rows a second")
    below.set_xlabel("memory, % of what the exact join holds")
    below.legend()
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.savefig(PLOT, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run the benchmarks on Spark."""
    from benchmarks import tables  # noqa: PLC0415 - which reads what is written here

    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="measure one part, keep the rest")
    only = parser.parse_args().only
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() and only else {}
    if only in {None, "start"}:
        results["start"] = measure_start()
    if only in {None, "shares"}:
        results["shares"] = measure_shares()
    if only not in {"start", "shares"}:
        with live.local_spark("6g") as spark:
            results["spark"] = spark.version
            for name, measure in (("joins", measure_joins), ("growth", measure_growth), ("sizing", measure_sizing)):
                if only in {None, name}:
                    results[name] = measure(spark)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    tables.write_all()
    draw(results["sizing"])


if __name__ == "__main__":
    main()
