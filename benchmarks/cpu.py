"""Measure joins under a CPU budget beside what the papers say of them (`make bench-cpu`).

On Spark they are measured when asked for only: `python -m benchmarks.cpu --only spark-clock`.
"""

import argparse
import fcntl
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import penstock as pen
from benchmarks import clock, figures, overlap, promised, registry_tables, sparkclock
from benchmarks.registry_tables import ROOT
from penstock.core.windows import Floats
from penstock.report.papers.registry import PAPERS, figure
from penstock.streams.workloads import drifting, zipf

RESULTS = Path(__file__).with_name("cpu.json")
PAGE = ROOT / "docs" / "cpu.md"
SHOWN = ("gedik2007", "dual2006")
SEEDS, MANY = range(4), range(24)  # streams of a setting, and where rows must share so much that few pairs are found
WINDOW, LEAST = 15, 3  # seconds, and items that rows share, where nothing else is said
SETTINGS = [
    *(
        (shift, skew, share, WINDOW, LEAST)
        for shift in (0.0, 25.0)
        for skew in (0.0, 0.4, 0.8)
        for share in (0.1, 0.4)
    ),
    *(
        (25.0, skew, share, window, least)
        for window, least in ((5, LEAST), (30, LEAST), (WINDOW, 2), (WINDOW, 4))
        for skew in (0.4, 0.8)
        for share in (0.1, 0.4)
    ),
]
KEYED = ("random-drop", "modular", "integrated", "dual", "rear", "auto")
KEYED_RATES = (5, 10, 20)  # rows a tick on each side, where there is time to probe 10
RELATIONS = {
    "Zipf 1, correlated": (1.0, "correlated"),
    "Zipf 1, uncorrelated": (1.0, "uncorrelated"),
    "uniform": (0.0, "correlated"),
}


def measure_figures() -> None:
    """Measure the figures of both papers, and keep them with the others."""
    found = figures.kept()
    for paper in SHOWN:
        for number in PAPERS[paper].figures:
            print(f"{paper}/{number}", flush=True)
            made = figure(f"{paper}/{number}", quick=False, progress=lambda _done, _total: None)
            found[made.name] = made
            figures.keep(found)
    figures.write_claims()


def default_over_random() -> list[dict[str, Any]]:
    """Return what the default finds over what random dropping finds, of several streams a setting together."""
    rows = []
    for shift, skew, share, window, least in SETTINGS:
        how: dict[str, Any] = {
            "on": pen.overlap("items", at_least=least, index=False),
            "time": "ts",
            "window": f"{window} seconds",
        }
        pairs = []
        for seed in MANY if least > LEAST else SEEDS:
            streams = drifting(60, rate=60, skew=skew, shift=shift, seed=seed)
            work = share * pen.run(*streams, **how).report.comparisons / 60
            budgets = [pen.cpu(comparisons_per_second=work, method=method) for method in ("auto", "random-drop")]
            pairs.append([pen.run(*streams, **how, cpu=cpu).report.pairs for cpu in budgets])
        ratio, error = over(np.array(pairs, np.float64))
        setting = {"shift": shift, "skew": skew, "share": share, "window": window, "least": least}
        rows.append({**setting, "ratio": ratio, "error": error})
    return rows


def over(pairs: Floats) -> tuple[float, float]:
    """Return the sum of the first column over that of the second, and its standard error.

    The mean of the ratios would be too high where few pairs are found.
    """
    mine, theirs = pairs.T
    ratio = mine.sum() / max(1.0, theirs.sum())
    apart = (mine - ratio * theirs) / max(1.0, theirs.mean())
    return float(ratio), float(np.sqrt((apart**2).sum() / (mine.size * (mine.size - 1))))


def on_keys() -> list[dict[str, Any]]:
    """Return the share of the exact pairs that each method finds on equal keys, over arrivals."""
    rows = []
    for name, (skew, relation) in RELATIONS.items():
        for rate in KEYED_RATES:
            streams = zipf(1500 * rate, keys=50, skew=skew, relation=relation, rate=rate, seed=3)  # type: ignore[arg-type]
            how: dict[str, Any] = {"on": "key", "time": "ts", "window": pen.rows(400)}
            exact = pen.run(streams.left, streams.right, **how).report.pairs
            found = {}
            for method in KEYED:
                cpu = pen.cpu(comparisons_per_second=10, method=method)
                found[method] = pen.run(streams.left, streams.right, cpu=cpu, **how).report.pairs / exact
            rows.append({"streams": name, "rate": rate, **found})
    return rows


PARTS = {"default": default_over_random, "keys": on_keys, "index": overlap.measure}


def page(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    kept = figures.kept()
    head = ["what", "wanted", "measured", "met"]
    parts = [
        "### What it must show",
        registry_tables.table(head, promised.rows(results, kept, (clock.LATENCY, sparkclock.LATENCY))),
    ]
    for paper in SHOWN:
        mine = {name.removeprefix(f"{paper}/"): one for name, one in kept.items() if name.startswith(f"{paper}/")}
        rows = [list(claim) for claim in PAPERS[paper].claims(mine)]
        parts += [
            f"### {paper}",
            registry_tables.table(["where", "what is said", "what was measured", "verdict"], rows),
        ]
    head = ["shift, s", "κ", "window, s", "items shared", "time", "default / random-drop", "standard error"]
    rows = [
        [
            f"{row['shift']:g}",
            f"{row['skew']:g}",
            str(row.get("window", WINDOW)),
            str(row.get("least", LEAST)),
            f"{row['share']:.0%}",
            f"{row['ratio']:.3f}",
            f"{row['error']:.3f}",
        ]
        for row in results["default"]
    ]
    parts += ["### The default beside random-drop: overlap, no index", registry_tables.table(head, rows)]
    head = ["streams", "rows a tick", *(f"`{name}`" for name in KEYED), "`auto` / best"]
    rows = []
    for row in results["keys"]:
        best = max(row[name] for name in KEYED)
        rows.append(
            [row["streams"], str(row["rate"]), *(f"{row[name]:.3f}" for name in KEYED), f"{row['auto'] / best:.3f}"]
        )
    parts += ["### Equal keys: the share of the exact pairs, over arrivals", registry_tables.table(head, rows)]
    if "index" in results:
        parts.append(overlap.page(results["index"]))
    if "clock" in results:
        parts.append(clock.page(results["clock"]))
    if "spark-clock" in results:
        parts.append(sparkclock.page(results["spark-clock"]))
    return "\n\n".join(parts)


def keep(change: Callable[[dict[str, Any]], None]) -> None:
    """Change what is kept; several processes may measure different things at a time."""
    with RESULTS.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        results = json.loads(file.read() or "{}")
        change(results)
        file.truncate(0)
        file.write(json.dumps(results, indent=1) + "\n")


def show() -> None:
    """Write the page of what is kept."""
    registry_tables.write(PAGE, "measured", page(json.loads(RESULTS.read_text(encoding="utf-8"))))


def main() -> None:
    """Measure, and write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    choices = ("figures", *PARTS, "clock", "spark-clock")
    parser.add_argument("--only", choices=choices, help="measure this part, and keep the others")
    parser.add_argument("--minutes", type=float, default=10.0, help="of stream for each run by the clock on the wall")
    parser.add_argument("--case", default="", help="by the clock, the joins only whose name has this in it")
    parser.add_argument(
        "--speed", type=int, action="append", help="by the clock, this many times the sustainable rate"
    )
    parser.add_argument("--rate", type=float, help="by the clock, the sustainable rate, if it was measured before")
    parser.add_argument("--others", type=float, help="by the clock, minutes of the runs of random-drop")
    parser.add_argument("--method", choices=clock.METHODS, action="append", help="by the clock, this one only")
    parser.add_argument("--dry", action="store_true", help="by the clock, write no results")
    asked = parser.parse_args()
    if asked.only in {None, "figures"}:
        measure_figures()
    for name, part in PARTS.items():
        if asked.only in {None, name}:
            found = part()
            keep(partial(dict.update, **{name: found}))
    for name, measured in (("clock", clock.measure), ("spark-clock", sparkclock.measure)):
        if asked.only == name or (asked.only is None and name == "clock"):
            speeds, methods = tuple(asked.speed or clock.SPEEDS), tuple(asked.method or clock.METHODS)
            wanted = clock.Wanted(asked.case, speeds, asked.minutes, asked.others, asked.rate, methods)
            for one in measured(wanted):
                if not asked.dry:
                    keep(partial(_add, name, one))
    if not asked.dry:
        show()


def _add(name: str, one: dict[str, Any], results: dict[str, Any]) -> None:
    """Add one run by the clock to those that are kept."""
    results[name] = clock.kept(results.get(name, []), [one])


if __name__ == "__main__":
    main()
