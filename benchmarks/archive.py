"""Measure how many tuples each policy leaves incomplete, and what it takes to repair them (`make bench-archive`).

Results are kept in benchmarks/archive.json, each workload as soon as it is measured; docs/refine.md's table is made
of it.
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import penstock as pen
from benchmarks import registry_tables
from benchmarks.registry_tables import ROOT
from penstock.streams.workloads import zipf

RESULTS = Path(__file__).with_name("archive.json")
PAGE = ROOT / "docs" / "refine.md"
ROWS, WINDOW, KEYS, SEEDS = 5600, 400, 50, tuple(range(8))
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # of the memory that the exact join needs
POLICIES = ("arm", "prob", "rand")
MEASURED = ("incomplete", "missed", "seconds")
RUNS = 5  # of a repair; the fastest counts
HOW: dict[str, Any] = {"on": "key", "time": "ts", "window": WINDOW}
WORKLOADS: dict[str, dict[str, Any]] = {
    "uniform": {"skew": 0.0},
    "Zipf 1, uncorrelated": {"skew": 1.0},
    "Zipf 1, correlated": {"skew": 1.0, "relation": "correlated"},
    "Zipf 1, anti-correlated": {"skew": 1.0, "relation": "anticorrelated"},
    "Zipf 2, uncorrelated": {"skew": 2.0},
    "Zipf 2, correlated": {"skew": 2.0, "relation": "correlated"},
    "Zipf 2, anti-correlated": {"skew": 2.0, "relation": "anticorrelated"},
}


def measure(name: str) -> list[dict[str, Any]]:
    """Return, by memory and policy, the tuples left incomplete, the pairs missed and the seconds of a repair."""
    found = []
    for share in SHARES:
        for policy in POLICIES:
            each = [one(name, share, policy, seed) for seed in SEEDS]
            means = [float(mean) for mean in np.mean(each, axis=0)]
            found.append({"memory": share, "policy": policy, **dict(zip(MEASURED, means, strict=True))})
            print(name, found[-1], flush=True)
    return found


def one(name: str, share: float, policy: str, seed: int) -> tuple[float, float, float]:
    """Run one join and repair it; returns what `MEASURED` names."""
    streams = zipf(ROWS, keys=KEYS, seed=seed, **WORKLOADS[name])
    tables = [side.append_column("row", pa.array(range(ROWS))) for side in (streams.left, streams.right)]
    result = pen.run(*tables, **HOW, memory=round(2 * share * WINDOW), policy=policy, seed=seed)
    taken = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        rest = pen.refine(archive=tuple(tables), ledger=result.ledger, **HOW)
        taken.append(time.perf_counter() - begin)
    incomplete = sum(len(rest[row].unique()) for row in ("row_left", "row_right"))
    return incomplete, rest.num_rows, min(taken)


def page(results: dict[str, list[dict[str, Any]]]) -> str:
    """Return the results as Markdown: a row for each workload and memory, the fewest incomplete marked."""
    head = ["streams", "memory", *(f"`{policy}`" for policy in POLICIES), "`arm` / `prob`"]
    head += ["pairs missed, `arm` / `prob`", "repair time, `arm` / `prob`"]
    rows, wins = [], 0
    for name, found in results.items():
        for share in SHARES:
            by = {row["policy"]: row for row in found if row["memory"] == share}
            least = min(row["incomplete"] for row in by.values())
            cells = [
                f"**{by[policy]['incomplete']:,.0f}**"
                if by[policy]["incomplete"] == least
                else f"{by[policy]['incomplete']:,.0f}"
                for policy in POLICIES
            ]
            ratios = [by["arm"][what] / by["prob"][what] for what in MEASURED]
            wins += ratios[0] < 1
            rows.append([name, f"{share:.0%}", *cells, f"{ratios[0]:.3f}", f"{ratios[1]:.2f}", f"{ratios[2]:.2f}"])
    mean = np.mean([float(row[5]) for row in rows])
    said = f"`arm` leaves fewer tuples incomplete than `prob` in {wins} of {len(rows)} lines"
    said += f", {1 - mean:.0%} fewer on average."
    return f"{said}\n\n{registry_tables.table(head, rows)}"


def main() -> None:
    """Measure the workloads named on the command line, or all, and rewrite the page."""
    registry_tables.write(PAGE, "archive", page(registry_tables.measured(RESULTS, WORKLOADS, measure)))


if __name__ == "__main__":
    main()
