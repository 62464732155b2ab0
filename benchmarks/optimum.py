"""Measure the optimum: the papers' sizes, real streams of a year and of ten, growth, static (`make bench-optimum`).

Every run is a process of its own: its CPU time without imports and compiling, and its peak memory. Results are kept
by part in benchmarks/optimum.json; the tables of docs/optimum.md and the plot beside it are made from that.
"""

import argparse
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq

import penstock as pen
from benchmarks import registry_tables, tables
from penstock.core.windows import Ints
from penstock.optimum import flow, networks
from penstock.optimum.problem import Pool, Problem, chains, problem, simultaneous
from penstock.optimum.solve import best
from penstock.optimum.states import MemoryStates
from penstock.streams.intake import NO_FLOATS, NO_INTS, Side
from penstock.streams.workloads import zipf

HERE = Path(__file__).parent
RESULTS = HERE / "optimum.json"
PAGE = HERE.parent / "docs" / "optimum.md"
PLOT = HERE.parent / "docs" / "optimum.png"
DATA = Path(os.environ.get("PENSTOCK_DATA", HERE.parents[1] / "shared" / "data")) / "ship_weather" / "ww2.parquet"
SHARES = (0.1, 0.25, 0.5, 1.0, 1.5)  # of the window: the paper's five memories
LIMIT, LONG_LIMIT = 540, 1200  # seconds for a run on a year of real streams, and on ten
PATIENCE = 30  # CPU seconds for a run of the papers' own algorithms


def cases() -> dict[str, list[dict[str, Any]]]:
    """Return all runs, by part."""
    paper = [
        {"streams": "zipf", "rows": 5600, "window": window, "memory": int(share * window), "by": way}
        for window, share, way in product((400, 800), SHARES, ("prices", "class", "moment"))
    ]
    year = [
        {"streams": "1941 x 1944", "window": 5000, "memory": memory, "limit": LIMIT}
        for memory in (1000, 5000, 10_000)
    ]
    decade = [
        {"streams": "odd x even ships", "window": 5000, "memory": memory, "limit": LONG_LIMIT}
        for memory in (1000, 5000)
    ]
    growth = [
        {"streams": "zipf", "rows": rows, "window": 800, "memory": 800}
        for rows in (5000, 10_000, 20_000, 40_000, 80_000)
    ]
    growth += [
        {"streams": "zipf", "rows": 20_000, "window": window, "memory": 400} for window in (400, 800, 1600, 3200)
    ]
    small: list[dict[str, Any]] = []
    for way in ("states", "class", "prices", "moment"):
        runs = [(rows, 100, 2) for rows in (800, 1600, 3200)] + [(1600, window, 2) for window in (50, 200)]
        runs += [(rows, 100, 198) for rows in (800, 1600, 3200)] + [(800, 12, 12)]
        small += [
            {"streams": "rare", "rows": rows, "window": window, "memory": memory, "by": way}
            for rows, window, memory in runs
        ]
    static = [{"streams": "static", "rows": 10**6, "keys": 10**5, "skew": skew, "keep": 10**6} for skew in (0.0, 1.0)]
    return {"paper": paper, "year": year, "decade": decade, "growth": growth, "odja": small, "static": static}


def ships(which: str) -> tuple[Ints, Ints]:
    """Return the cells of two streams of ship reports, one of each a tick."""
    rows = pq.read_table(DATA, columns=["ts", "cell10", "ship"])
    cell, ship = rows["cell10"].to_numpy().astype(np.int64), rows["ship"].to_numpy()
    if which == "1941 x 1944":
        seconds = rows["ts"].to_numpy().astype("timedelta64[s]")
        year = (np.datetime64("1938-01-01") + seconds).astype("datetime64[Y]").astype(int) + 1970
        return cell[year == 1941], cell[year == 1944]
    return cell[ship % 2 == 1], cell[ship % 2 == 0]


def stated(case: dict[str, Any]) -> Problem:
    """State the problem of a run: one row on each side at each tick."""
    start, worth = 0, [NO_FLOATS, NO_FLOATS]
    if case["streams"] in {"zipf", "rare"}:
        rare = case["streams"] == "rare"
        streams = zipf(case["rows"], keys=50, seed=1, importance="rare" if rare else "none")
        keys = [table["key"].to_numpy() for table in (streams.left, streams.right)]
        worth = [table["importance"].to_numpy() for table in (streams.left, streams.right)] if rare else worth
        start = 2 * case["window"]
    else:
        keys = list(ships(case["streams"]))
    length = min(map(len, keys))
    sides = [
        Side(np.arange(length), key[:length], None, NO_INTS, weight) for key, weight in zip(keys, worth, strict=True)
    ]
    combine = "min" if case["streams"] == "rare" else None
    span = (case["window"], case["window"])
    return problem((sides[0], sides[1]), span=span, by_rows=False, combine=combine, count_from=start)


def truncate(case: dict[str, Any]) -> dict[str, float]:
    """Keep half of two relations."""
    both = zipf(case["rows"], keys=case["keys"], skew=case["skew"], seed=1)
    begin = time.process_time()
    kept = pen.truncate(both.left.select(["key"]), both.right.select(["key"]), on="key", keep=case["keep"])
    return {"value": kept.pairs, "bound": kept.bound, "truncating": time.process_time() - begin}


def solve(case: dict[str, Any]) -> dict[str, float]:
    """Solve one case with a fixed split."""
    if case["streams"] == "static":
        return truncate(case)
    posed = stated(case)
    pools = Pool((0,), case["memory"] // 2), Pool((1,), case["memory"] // 2)
    way = case.get("by", "prices")
    if way == "prices":
        found = best(posed, pools, case.get("limit"))
        return {"value": found.value, "bound": found.bound, "ticks": posed.ticks.size}
    total = simultaneous(posed)
    for pool in pools:
        if way == "states":
            total += MemoryStates(posed, pool).value()
        elif way == "moment":
            total += flow.solve(networks.by_moment(posed, pool)).gain
        else:
            total += flow.solve(networks.by_class(chains(posed, pool), pool)[0]).gain
    return {"value": total, "bound": total, "ticks": posed.ticks.size}


def child(case: dict[str, Any]) -> None:
    """Solve one case and print what it took."""
    if case["streams"] == "static":
        small = {**case, "rows": 100, "keys": 10, "keep": 100}
    else:
        kind = "rare" if case["streams"] == "rare" else "zipf"
        small = {**case, "streams": kind, "rows": 300, "window": 40, "memory": 4}
    solve(small)
    if case.get("by", "prices") != "prices":
        spent = math.ceil(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (spent + PATIENCE, resource.RLIM_INFINITY))
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    found = solve(case)
    took = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({**case, **found, **took, "peak_mb": peak / 1024, "grown_mb": (peak - idle) / 1024}))


def measure(part: str, known: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Run the cases of a part, one after the other, but for those whose run is known."""
    for case in cases()[part]:
        run = next((run for run in known if case.items() <= run.items()), None)
        if run:
            yield run
            continue
        if "rows" not in case and not DATA.exists():
            print(f"{part}: skipped, since {DATA} is not there; PENSTOCK_DATA names its folder")
            return
        yield apart(case)


def apart(case: dict[str, Any]) -> dict[str, Any]:
    """Run a case in a process of its own; one that takes too long is stopped, and has no value."""
    command = [sys.executable, "-m", "benchmarks.optimum", "--case", json.dumps(case)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode == -signal.SIGXCPU:
        said = json.dumps({**case, "cpu": PATIENCE, "peak_mb": used.ru_maxrss / 1024})
    elif process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    print(said.strip(), flush=True)
    return cast("dict[str, Any]", json.loads(said))


def gap(run: dict[str, Any]) -> str:
    """Return how far a value may be from the optimum."""
    return "0" if run["bound"] == run["value"] else f"{(run['bound'] - run['value']) / run['bound']:.3%}"


def page(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the tables as Markdown, of the parts that were measured."""
    parts = [
        paper_table(results.get("paper", [])),
        real_table([*results.get("year", []), *results.get("decade", [])]),
        growth_table(results.get("growth", [])),
        odja_table(results.get("odja", [])),
        static_table(results.get("static", [])),
    ]
    return "\n\n".join(part for part in parts if part)


def paper_table(found: list[dict[str, Any]]) -> str:
    """Return the times at the paper's sizes, beside OR-Tools."""
    runs = {(run["window"], run["memory"], run["by"]): run for run in found}
    rows = []
    for window, memory in dict.fromkeys(key[:2] for key in runs):
        cells = [f"w = {window}, M = {memory}", f"{runs[window, memory, 'prices']['value']:,.0f}"]
        rows.append([*cells, *(took(runs.get((window, memory, way))) for way in ("prices", "class", "moment"))])
    head = ["optimum", "Penstock", "OR-Tools, network by class", "OR-Tools, the paper's network"]
    return tables.table("N = 5600, D = 50, Zipf 1, fixed split", head, rows) if rows else ""


def took(run: dict[str, Any] | None) -> str:
    """Return the CPU time of a run and the memory it took on; of one that was stopped, after how long."""
    if run is None:
        return ""
    if "value" not in run:
        return f"> {run['cpu']} s"
    return f"{run['cpu']:.2f} s, {run['grown_mb']:,.0f} MB"


def real_table(runs: list[dict[str, Any]]) -> str:
    """Return what was found on real streams."""
    rows = []
    for run in runs:
        cells = [f"{run['streams']}, M = {run['memory']:,}", f"{run['ticks']:,}", f"{run['value']:,.0f}", gap(run)]
        rows.append([*cells, f"{run['limit']} s", f"{run['cpu']:.0f} s", f"{run['peak_mb']:,.0f} MB"])
    head = ["ticks", "pairs", "gap", "time limit", "CPU time", "peak memory"]
    return tables.table("ship_weather, w = 5000, fixed split", head, rows) if rows else ""


def growth_table(runs: list[dict[str, Any]]) -> str:
    """Return how the time grows."""
    rows = [[f"N = {run['rows']:,}, w = {run['window']:,}, M = {run['memory']}", took(run), gap(run)] for run in runs]
    text = tables.table("growth, Zipf 1, D = 50, fixed split", ["CPU time, memory", "gap"], rows)
    return f"{text}\n\n![CPU time against N and against w](optimum.png)" if rows else ""


def odja_table(found: list[dict[str, Any]]) -> str:
    """Return importance2006's comparison of its two algorithms."""
    runs = {(run["rows"], run["window"], run["memory"], run["by"]): run for run in found}
    rows = []
    for rows_, window, memory in dict.fromkeys(key[:3] for key in runs):
        cells = [took(runs.get((rows_, window, memory, way))) for way in ("states", "moment", "class", "prices")]
        rows.append([f"N = {rows_}, w = {window}, M/2 = {memory // 2}", *cells])
    head = ["ODJA", "ESJA, the paper's network", "ESJA, network by class", "Penstock"]
    return tables.table("most important, 5 % rare tuples", head, rows) if rows else ""


def static_table(runs: list[dict[str, Any]]) -> str:
    """Return what it takes to keep the best half of two relations."""
    rows = [
        [
            f"{run['rows']:,} rows a side, {run['keys']:,} keys, Zipf {run['skew']:g}",
            f"{run['value']:,}",
            gap(run),
            f"{run['truncating']:.1f} s",
            f"{run['peak_mb']:,.0f} MB",
        ]
        for run in runs
    ]
    head = ["pairs", "gap", "CPU time", "peak memory"]
    return tables.table("`pen.truncate`, half is kept", head, rows) if rows else ""


def plot(runs: list[dict[str, Any]]) -> None:
    """Draw how the time grows with the length of the streams and with the window."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - only here

    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, name, fixed in zip(figure.subplots(1, 2), ("rows", "window"), ("window", "rows"), strict=True):
        mine = [run for run in runs if sum(other[fixed] == run[fixed] for other in runs) > 2]
        mine = [run for run in mine if run["memory"] == (800 if name == "rows" else 400)]
        axes.loglog([run[name] for run in mine], [run["cpu"] for run in mine], marker="o")
        axes.xaxis.set_minor_formatter("")
        axes.set(xlabel="N" if name == "rows" else "w", ylabel="CPU seconds")
        axes.set_title(f"{'w' if fixed == 'window' else 'N'} = {mine[0][fixed]:,}")
    figure.savefig(PLOT, dpi=110)


def main() -> None:
    """Measure the parts named, or all, and rewrite what is made from the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"one of {', '.join(cases())}; all, if none is named")
    parser.add_argument("--missing", action="store_true", help="only the runs that have no result yet")
    parser.add_argument("--case", help="run this one case and print what it took")
    chosen = parser.parse_args()
    if chosen.case:
        child(json.loads(chosen.case))
        return
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for part in chosen.parts or cases():
        found: list[dict[str, Any]] = []
        known = results.get(part, []) if chosen.missing else []
        for run in measure(part, known):
            found.append(run)
            results[part] = [*found, *(each for each in known if each not in found)]
            RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if "growth" in results:
        plot(results["growth"])
    registry_tables.write(PAGE, "optimum", page(results))
    print(page(results))


if __name__ == "__main__":
    main()
