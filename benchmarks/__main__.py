"""Measure everything, write benchmarks/results.json, and rewrite the tables made from it (`make bench`).

Every figure that matters is a ratio inside one run, of shortest times measured in turns: the machine, its noise and
its compiler are the same above and below the line.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa

import penstock as pen
from benchmarks import bare, loops, naive, tables
from benchmarks.cases import BATCH, Case, cases, engine_pairs, in_turns, part
from penstock.streams.workloads import uniform

RESULTS = Path(__file__).with_name("results.json")
POLICIES = ("rand", "oldest", "prob", "life")
PROCESSES = 6  # in which growth is measured
IMPORTANT = ("prob", "dimpprob", "dgl", "auto")
LARGE = 10**6
NAIVE = (10**3, 10**4)
NAIVE_TICKS = 2000
GROUPED_BATCHES = (10_000, 50_000)


def rows_of(case: Case) -> int:
    """Return the rows of both sides together."""
    return case.left.num_rows + case.right.num_rows


def measure_arrays(case: Case, pairs: Any) -> dict[str, dict[str, float]]:
    """Time joins on arrays: the bare ones, the exact engine, and the policies at half memory."""
    short, whole = part(case, 3 * BATCH), case.arrays()
    policies = {policy: {"memory": case.span, "policy": policy} for policy in POLICIES}
    bare.chains(*short.arrays(), case.span, pairs)  # compiled before they are timed, as are the others
    bare.grouped(*short.arrays(), case.span, pairs)
    for arguments in ({}, *policies.values()):
        engine_pairs(short, pairs, **arguments)
    runs = {
        "chains": partial(bare.chains, *whole, case.span, pairs),
        **{f"grouped {batch}": partial(bare.grouped, *whole, case.span, pairs, batch) for batch in GROUPED_BATCHES},
        "exact": partial(engine_pairs, case, pairs),
        **{policy: partial(engine_pairs, case, pairs, **arguments) for policy, arguments in policies.items()},
    }
    seconds = {name: timing.wall for name, timing in in_turns(runs).items()}
    engine = {name: seconds.pop(name) for name in ("exact", *POLICIES)}
    return {"bare": seconds, "engine": engine}


def penstock_loop(left: pa.Table, right: pa.Table, span: int) -> int:
    """Join in rounds with Penstock; return the number of result rows."""
    op = pen.Join(on="key", time="ts", window=span, ledger="off")
    return sum(
        op.push(left=left.slice(at, BATCH), right=right.slice(at, BATCH)).num_rows
        for at in range(0, left.num_rows, BATCH)
    )


def measure_loops(case: Case) -> dict[str, Any]:
    """Time the exact join from Arrow batches to Arrow tables, beside DuckDB and Polars in a loop."""
    known = {"penstock": penstock_loop, "duckdb": loops.duckdb_loop, "polars": loops.polars_loop}
    short = part(case, 3 * BATCH)
    for loop in known.values():
        loop(short.left, short.right, case.span)
    pairs = set()

    def run(loop: Callable[[pa.Table, pa.Table, int], int]) -> None:
        pairs.add(loop(case.left, case.right, case.span))

    timings = in_turns({name: partial(run, loop) for name, loop in known.items()})
    assert len(pairs) == 1, pairs
    return {name: timing._asdict() for name, timing in timings.items()}


def measure_growth() -> list[dict[str, Any]]:
    """Return the shortest times of several processes: how memory happens to lie in one decides for all its runs."""
    runs = [in_child("benchmarks.growth") for _ in range(PROCESSES)]
    return [
        {**entries[0], "ns_per_tuple": min(entry["ns_per_tuple"] for entry in entries)}
        for entries in zip(*runs, strict=True)
    ]


def measure_important() -> dict[str, Any]:
    """Time policies that look at importance at M = 10**6, and naive ones, which look at all of memory, at less."""
    rows = 2 * LARGE
    pairs = np.full((2, 4 * rows), -1, np.int64)
    streams = uniform(rows, keys=LARGE, importance="rare", seed=3)
    case = Case("important", streams.left, streams.right, LARGE)
    runs = {}
    for policy in IMPORTANT:
        arguments = {"memory": LARGE, "policy": policy, "importance": "importance"}
        engine_pairs(part(case, 3 * BATCH), pairs, **arguments)
        runs[policy] = partial(engine_pairs, case, pairs, **arguments)
    engine = {policy: 1e9 * timing.wall / (2 * rows) for policy, timing in in_turns(runs, rounds=3).items()}
    return {
        "engine": engine,
        "naive": [measure_naive(case, name, memory) for name in naive.CODES for memory in NAIVE],
    }


def measure_naive(case: Case, policy: str, memory: int) -> dict[str, Any]:
    """Time some ticks of a naive policy with its memory full: a run of so many more, less one that just fills it."""
    sides = (case.left, case.right)
    keys, worth = (np.stack([side[name].to_numpy() for side in sides]) for name in ("key", "importance"))

    def run(ticks: int) -> int:
        arrays = keys[:, :ticks], worth[:, :ticks]
        return naive.join(*arrays, 2 * memory, memory, naive.CODES[policy], LARGE)

    run(2)
    full = memory // 2
    timings = in_turns({"fill": partial(run, full), "more": partial(run, full + NAIVE_TICKS)}, rounds=3)
    spent = timings["more"].wall - timings["fill"].wall
    return {"policy": policy, "memory": memory, "ns_per_tuple": 1e9 * spent / (2 * NAIVE_TICKS)}


def measure_memory() -> list[dict[str, Any]]:
    """Measure resident memory in child processes of their own, after one of each policy that may have to compile."""
    found = []
    for policy in ("prob", "rand"):
        resident_memory(policy, 10**6)
        found += [resident_memory(policy, span) for span in (10**6, 10**7)]
    return found


def resident_memory(policy: str, span: int) -> dict[str, Any]:
    """Return what a child process measured of its memory."""
    measured: dict[str, Any] = in_child("benchmarks.memory", policy, str(span))
    return measured


def in_child(module: str, *arguments: str) -> Any:
    """Return what a module prints as JSON in a process of its own."""
    command = [sys.executable, "-m", module, *arguments]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Run the benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", choices=["joins", "growth", "important", "memory"], help="measure one part, keep the rest"
    )
    only = parser.parse_args().only
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() and only else {}
    results["machine"] = {
        "processor": platform.machine(),
        "python": platform.python_version(),
        "numba": numba.__version__,
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
    }
    if only in {None, "joins"}:
        pairs = np.full((2, 20_000_000), -1, np.int64)
        results["joins"] = {}
        for case in cases():
            print(f"joins: {case.name}", flush=True)
            results["joins"][case.name] = {
                "rows": rows_of(case),
                **measure_arrays(case, pairs),
                "loops": measure_loops(case),
            }
    if only in {None, "growth"}:
        print("growth", flush=True)
        results["growth"] = measure_growth()
    if only in {None, "important"}:
        print("important", flush=True)
        results["important"] = measure_important()
    if only in {None, "memory"}:
        print("memory", flush=True)
        results["memory"] = measure_memory()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    tables.write_all()
    print(tables.speed_table(results))


if __name__ == "__main__":
    main()
