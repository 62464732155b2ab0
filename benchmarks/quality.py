"""Measure every policy on every kind of stream as a share of the optimum (`make bench-quality`).

Results are kept in benchmarks/quality.json, each workload as soon as it is measured; docs/quality.md is made of it.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as pen
from benchmarks import registry_tables
from benchmarks.registry_tables import ROOT
from penstock.streams.workloads import zipf

RESULTS = Path(__file__).with_name("quality.json")
PAGE = ROOT / "docs" / "quality.md"
ROWS, WINDOW, KEYS, SEEDS = 5600, 400, 50, range(10)
QUANTILES = {3: 4.303, 10: 2.262}  # of Student's t, by seeds: 95 % of so many runs
SHARES = (0.05, 0.1, 0.25, 0.5)  # of the memory that the exact join needs
BOUND = "bound"  # what nothing exceeds: the optimum, or what is proved of it
POLICIES = ("auto", "rand", "oldest", "lru", "age", "life", "prob", "simp", "simpprob", "dimpprob", "dgl")
AHEAD, LEAD = ("popular keys change", "one repeats the other"), 0.05  # where `auto` should be ahead, and how far
Streams = tuple[pa.Table, pa.Table]


def drawn(seed: int, **given: Any) -> Streams:
    """Draw two streams of the papers' length."""
    streams = zipf(ROWS, keys=given.pop("keys", KEYS), seed=seed, **given)
    return streams.left, streams.right


def turn(tick: Any, window: int = WINDOW) -> Any:
    """Return by how much keys are off in a tick, where popular ones change every five windows."""
    return 7 * (tick // (5 * window))


def drifting(seed: int, rows: int = ROWS, window: int = WINDOW) -> Streams:
    """Draw streams whose popular keys change every five windows."""
    off = turn(np.arange(rows), window)
    left, right, *_ = zipf(rows, keys=KEYS, relation="correlated", seed=seed)
    return tuple(
        table.set_column(1, "key", pa.array((table["key"].to_numpy() + off) % KEYS)) for table in (left, right)
    )


def lagging(seed: int, rows: int = ROWS, window: int = WINDOW) -> Streams:
    """Draw a stream of uniform keys, and one that repeats it after 5/8 of the window."""
    lag = 5 * window // 8
    left, right, *_ = zipf(rows, keys=5 * window, skew=0.0, seed=seed)
    keys = np.concatenate([right["key"].to_numpy()[:lag], left["key"].to_numpy()[:-lag]])
    return left, right.set_column(1, "key", pa.array(keys))


WORKLOADS: dict[str, Callable[[int], Streams]] = {
    "Zipf 1, uncorrelated": drawn,
    "Zipf 1, correlated": lambda seed: drawn(seed, relation="correlated"),
    "Zipf 1, anti-correlated": lambda seed: drawn(seed, relation="anticorrelated"),
    "uniform": lambda seed: drawn(seed, skew=0.0),
    "popular keys change": drifting,
    "one repeats the other": lagging,
    "importance, Zipf 1 and 0": lambda seed: drawn(seed, keys=100, skew=(1.0, 0.0), importance="rare"),
    "importance, correlated": lambda seed: drawn(seed, keys=100, relation="correlated", importance="rare"),
    "importance of keys": lambda seed: drawn(seed, keys=100, importance="special_keys"),
}


def measure(name: str, only: Sequence[str] = ()) -> dict[str, list[list[float]]]:
    """Return the pairs or the importance of the optimum and of each policy, or each of some, by memory and seed."""
    policies = list(only) or [*POLICIES, BOUND]
    found: dict[str, list[list[float]]] = {policy: [] for policy in policies}
    for seed in SEEDS:
        left, right = WORKLOADS[name](seed)
        for policy, row in zip(policies, found_by(left, right, policies).tolist(), strict=True):
            found[policy].append(row)
    return found


def found_by(left: pa.Table, right: pa.Table, policies: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Return the pairs or the importance that policies find, by memory."""
    important = "importance" in left.column_names
    table = pen.compare(
        left,
        right,
        on="key",
        time="ts",
        window=WINDOW,
        policies=policies,
        memory=[round(2 * share * WINDOW) for share in SHARES],
        importance="importance" if important else None,
        count_from=2 * WINDOW,
    )
    value = np.array(table["importance" if important else "pairs"].to_pylist(), np.float64)
    return value.reshape(len(policies), len(SHARES))


def page(results: dict[str, dict[str, list[list[float]]]]) -> str:
    """Return the results as Markdown, one table a workload, the best of each column marked."""
    parts = []
    head = ["policy", *(f"{share:.0%}" for share in SHARES)]
    for name, values in results.items():
        best_of_all = np.array(values[BOUND])
        found = {policy: np.array(values[policy]) / best_of_all for policy in POLICIES}
        means = {policy: np.mean(shares, axis=0) for policy, shares in found.items()}
        seeds = len(found["auto"])
        width = QUANTILES[seeds] / np.sqrt(seeds)
        spread = {policy: width * np.std(shares, axis=0, ddof=1) for policy, shares in found.items()}
        best = np.max(list(means.values()), axis=0)
        rows = []
        for policy, mean in means.items():
            words = [f"{value:.3f} ± {off:.3f}" for value, off in zip(mean, spread[policy], strict=True)]
            marked = [
                f"**{word}**" if value == top else word for word, value, top in zip(words, mean, best, strict=True)
            ]
            rows.append([f"`{policy}`", *marked])
        parts += [f"## {name}", f"{seeds} seeds.", registry_tables.table(head, rows)]
        if name in AHEAD:
            parts.append(registry_tables.table(["`auto` and the best other", *head[1:]], ahead(means)))
    return "\n\n".join(parts)


def ahead(means: dict[str, Any]) -> list[list[str]]:
    """Return how far `auto` is ahead of the best other policy, and what is asked for: 5 %, or half the headroom."""
    others = {policy: mean for policy, mean in means.items() if policy != "auto"}
    names = [max(others, key=lambda policy: others[policy][at]) for at in range(len(SHARES))]
    best = np.max(list(others.values()), axis=0)
    half = (1 / best - 1) / 2
    asked = [f"5%, less than half the headroom ({room:.1%})" if room > LEAD else f"{room:.1%}" for room in half]
    return [
        ["best other", *(f"`{name}`" for name in names)],
        ["ahead of it", *(f"{lead:+.1%}" for lead in means["auto"] / best - 1)],
        ["asked for: half the headroom to the optimum, at most 5%", *asked],
    ]


def by_policy(
    file: Path, workloads: Sequence[str], measure: Callable[[str, Sequence[str]], dict[str, Any]]
) -> dict[str, Any]:
    """Measure the workloads named on the command line, or all; keep each in a file of results, and return these.

    Parameters:
        file: of results, as JSON.
        workloads: names.
        measure: returns what each policy finds on a workload, or each of those named on the command line: then what
            was kept of the others stays.
    """
    parser = argparse.ArgumentParser(description="Compare policies.")
    parser.add_argument("workloads", nargs="*", help="all, unless some are named")
    parser.add_argument("--policy", action="append", default=[], help="measure this one, keep what others found")
    words = parser.parse_args()
    results: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in words.workloads or workloads:
        print(name, flush=True)
        results[name] = (results.get(name, {}) if words.policy else {}) | measure(name, words.policy)
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


def main() -> None:
    """Measure the workloads named on the command line, or all, and rewrite the page."""
    results = by_policy(RESULTS, [*WORKLOADS], measure)
    registry_tables.write(PAGE, "quality", page({name: results[name] for name in WORKLOADS if name in results}))


if __name__ == "__main__":
    main()
