"""Measure what no policy that knows the past can exceed, beside PROB that was told the chances of the keys.

A policy gains, in every tick, the chances of the keys of the rows that it holds. So nobody finds more, on average,
than who holds the likeliest of all rows of the window in every tick, even such as were given up: by the true chances,
or, where nothing else tells one key from another, by how often each came. Both are divided by what PROB finds that
was told; where popular keys change, by what the best policy finds that learns. Writes benchmarks/limits.json and
the table of docs/auto.md; it takes a minute.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import penstock as pen
from benchmarks import quality, registry_tables
from benchmarks.auto import PAGE, ROWS, SEEDS, SHARES, WINDOW
from penstock.streams.workloads import Workload, zipf

RESULTS = Path(__file__).with_name("limits.json")
CASES: dict[str, dict[str, Any]] = {
    "Zipf 0.25": {"keys": 50, "skew": 0.25},
    "Zipf 0.5": {"keys": 50, "skew": 0.5},
    "Zipf 1": {"keys": 50},
    "Zipf 1, 200 keys": {"keys": 200},
    "Zipf 1, anticorrelated": {"keys": 50, "relation": "anticorrelated"},
}
LIMIT = "limit"
LEARNING = ("prob", "life", "simpprob", "dimpprob", "dgl")  # the best where popular keys change is one of them
Table = npt.NDArray[np.float64]  # (side, key)
Keys = npt.NDArray[np.int64]


def limit(left: Keys, right: Keys, chances: Callable[[int], Table] | None, keys: int) -> Table:
    """Return what is found by holding the likeliest rows of the window, by memory; without chances, by counts."""
    alive, seen, found = np.zeros((2, keys)), np.zeros((2, keys)), np.zeros(len(SHARES))
    room = 2.0 * WINDOW * np.array(SHARES)
    for tick, arrived in enumerate(np.stack([left, right], axis=1)):
        if tick >= WINDOW:
            alive[0, left[tick - WINDOW]] -= 1
            alive[1, right[tick - WINDOW]] -= 1
        if tick >= 2 * WINDOW:
            worth = (seen if chances is None else chances(tick))[::-1].ravel()  # of rows of each side and key
            levels, level = np.unique(-worth, return_inverse=True)
            held = np.cumsum(np.bincount(level, alive.ravel(), levels.size))
            before = np.concatenate([[0.0], held[:-1]])
            for side in range(2):
                at = level[side * keys + arrived[1 - side]]  # rows that are as likely share what room there is
                share = np.clip((room - before[at]) / max(held[at] - before[at], 1.0), 0.0, 1.0)
                found += share * alive[side, arrived[1 - side]]
            found += arrived[0] == arrived[1]
        for side in range(2):
            alive[side, arrived[side]] += 1
            seen[side, arrived[side]] += 1
    return found


def chances_of(streams: Workload, keys: int) -> Table:
    """Return the true chances."""
    return np.array([[side[key] for key in range(keys)] for side in (streams.left_chances, streams.right_chances)])


def keys_of(left: Any, right: Any) -> tuple[Keys, Keys]:
    """Return the keys of two tables."""
    return left["key"].to_numpy(), right["key"].to_numpy()


def steady(given: dict[str, Any]) -> Table:
    """Return both limits, by memory, over PROB that was told, on streams whose chances never change."""
    found = np.zeros((3, len(SHARES)))
    for seed in SEEDS:
        streams = zipf(ROWS, seed=seed, **given)
        known = pen.table(left=streams.left_chances, right=streams.right_chances)
        told = pen.policy("prob", statistics=known)
        chances, sides = chances_of(streams, given["keys"]), keys_of(streams.left, streams.right)
        limits = [limit(*sides, each, given["keys"]) for each in (lambda _tick, now=chances: now, None)]
        found += [quality.found_by(streams.left, streams.right, [told])[0], *limits]
    return found[1:] / found[0]


def turned(first: Table, tick: int) -> Table:
    """Return the chances at a tick, given those at first."""
    return np.roll(first, quality.turn(tick), axis=1)


def drifting() -> dict[str, list[float]]:
    """Return what each policy that learns and the limit find, by memory, where popular keys change."""
    policies, best = np.zeros((len(LEARNING), len(SHARES))), np.zeros(len(SHARES))
    for seed in SEEDS:
        first = chances_of(zipf(ROWS, keys=quality.KEYS, relation="correlated", seed=seed), quality.KEYS)
        left, right = quality.drifting(seed)
        best += limit(*keys_of(left, right), partial(turned, first), quality.KEYS)
        policies += quality.found_by(left, right, LEARNING)
    return {**dict(zip(LEARNING, policies.tolist(), strict=True)), LIMIT: best.tolist()}


def page(results: dict[str, Any]) -> str:
    """Return the table."""
    rows = [[name, *(f"{value:.3f}" for value in values)] for name, values in results["told"].items()]
    found = {name: np.array(values) for name, values in results["drifting"].items()}
    best = found.pop(LIMIT)
    names = [max(found, key=lambda name: found[name][at]) for at in range(len(SHARES))]
    shares = [f"{best[at] / found[name][at]:.3f} of `{name}`" for at, name in enumerate(names)]
    rows.append(["popular keys change, by the chances", *shares])
    return registry_tables.table(["no more than", *(f"{share:.0%}" for share in SHARES)], rows)


def main() -> None:
    """Measure, and rewrite the table."""
    told = {}
    for name, given in CASES.items():
        for label, best in zip(("the chances", "counts"), steady(given), strict=True):
            told[f"{name}, by {label}"] = best.tolist()
    results = {"told": told, "drifting": drifting()}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    registry_tables.write(PAGE, "limits", page(results))


if __name__ == "__main__":
    main()
