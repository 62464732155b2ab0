"""Measure every policy on every kind of stream as a share of the optimum (`make bench-quality`).

Results are kept in benchmarks/quality.json, each workload as soon as it is measured; docs/quality.md is made of it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
POLICIES = ("auto", "rand", "oldest", "lru", "age", "life", "prob", "simp", "simpprob", "dimpprob", "dgl")
Streams = tuple[pa.Table, pa.Table]


def drawn(seed: int, **given: Any) -> Streams:
    """Draw two streams of the papers' length."""
    streams = zipf(ROWS, keys=given.pop("keys", KEYS), seed=seed, **given)
    return streams.left, streams.right


def drifting(seed: int, rows: int = ROWS, window: int = WINDOW) -> Streams:
    """Draw streams whose popular keys change every five windows."""
    turn = 7 * (np.arange(rows) // (5 * window))
    left, right, *_ = zipf(rows, keys=KEYS, relation="correlated", seed=seed)
    return tuple(
        table.set_column(1, "key", pa.array((table["key"].to_numpy() + turn) % KEYS)) for table in (left, right)
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


def measure(name: str) -> dict[str, list[list[float]]]:
    """Return what each policy reaches of the optimum, by memory and seed."""
    found: dict[str, list[list[float]]] = {policy: [] for policy in POLICIES}
    for seed in SEEDS:
        left, right = WORKLOADS[name](seed)
        important = "importance" in left.column_names
        table = pen.compare(
            left,
            right,
            on="key",
            time="ts",
            window=WINDOW,
            policies=[*POLICIES, "bound"],
            memory=[round(2 * share * WINDOW) for share in SHARES],
            importance="importance" if important else None,
            count_from=2 * WINDOW,
        )
        value = np.array(table["importance" if important else "pairs"].to_pylist(), np.float64)
        value = value.reshape(len(POLICIES) + 1, len(SHARES))
        for policy, share in zip(POLICIES, value / value[-1], strict=False):
            found[policy].append(share.tolist())
    return found


def page(results: dict[str, dict[str, list[list[float]]]]) -> str:
    """Return the results as Markdown, one table a workload, the best of each column marked."""
    parts = []
    head = ["policy", *(f"{share:.0%}" for share in SHARES)]
    for name, found in results.items():
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
    return "\n\n".join(parts)


def main() -> None:
    """Measure the workloads named on the command line, or all, and rewrite the page."""
    registry_tables.write(PAGE, "quality", page(registry_tables.measured(RESULTS, WORKLOADS, measure)))


if __name__ == "__main__":
    main()
