"""Measure what no policy that knows the past can exceed, beside PROB that was told the chances of the keys.

A policy gains, in every tick, the chances of the keys of the rows that it holds. So nobody finds more, on average,
than who holds the likeliest of all rows of the window in every tick, even such as were given up: by the true chances,
or, where nothing else tells one key from another, by how often each came. Both are divided by what PROB finds that
was told; where popular keys change, by what the best policy finds that learns. Writes benchmarks/limits.json and
the table of docs/auto.md; it takes three minutes.

Where popular keys change, it is also measured what is found by who is only told the tick of a change, and counts both
sides from then on: if any order of the keys is as likely as any other, the key that came more often is the likelier
one, whatever else is known of how chances fall off with the rank. And what is found by who must make do with the rows
that memory still holds, the least likely having been given up, of those the oldest: with the chances, told the tick,
or told neither (`filtered`).
"""

import json
from collections import deque
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
TURNS = "popular keys change"
KNOWN = {  # what is known of changes, and which rows there are to choose from
    LIMIT: "by the chances",
    "counted": "told when, by counts",
    "held": "by the chances, of rows not given up",
    "held, counted": "told when, by counts, of rows not given up",
    "held, filtered": "told how likely changes are and each rank is, of rows not given up",
}
RUNS, OFTEN = 200, 1 / (5 * WINDOW)  # changes that may have been the latest; how likely one is in a tick
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


def counted(keys: Keys) -> Table:
    """Return how often each key came on either side since the latest change, after each tick."""
    seen, counts = np.zeros(quality.KEYS), np.zeros((len(keys), quality.KEYS))
    for tick, arrived in enumerate(keys):
        if quality.turn(tick) != quality.turn(tick - 1):
            seen[:] = 0
        np.add.at(seen, arrived, 1)
        counts[tick] = seen
    return counts


def foretold(ranks: Table, most: int) -> Table:
    """Return how likely a key is that came so often, by ticks: the mean over what is likely of its rank."""
    means = np.zeros((most, most))
    log, rest = np.log(ranks)[:, None], np.log1p(-ranks)[:, None]
    for ticks in range(most):
        came = np.arange(min(2 * ticks + 1, most))
        likely = came * log + (2 * ticks - came) * rest
        likely = np.exp(likely - likely.max(axis=0))
        means[ticks, : came.size] = ranks @ likely / likely.sum(axis=0)
    return means


def filtered(keys: Keys, means: Table) -> Table:
    """Return how likely each key is after each tick, over all ticks that may have been those of the latest change.

    Keys are taken to have ranks independent of each other, and arrivals of a tick to be independent, which they
    nearly are: otherwise this is Bayes' rule (Adams and MacKay, 2007). The least likely of many ticks are forgotten.
    """
    many = quality.KEYS
    weight, age, seen = np.zeros(RUNS), np.zeros(RUNS, np.int64), np.zeros((RUNS, many), np.int64)
    chances, likely = np.full((RUNS, many), 1 / many), np.zeros((len(keys), many))
    weight[0] = 1.0
    for tick, arrived in enumerate(keys):
        weight *= 1 - OFTEN
        new = int(weight.argmin())
        weight[new], age[new], seen[new], chances[new] = OFTEN, 0, 0, 1 / many
        for key in arrived:
            weight *= chances[:, key]
            seen[:, key] += 1
        weight /= weight.sum()
        age += 1
        chances = means[np.minimum(age, len(means) - 1)[:, None], np.minimum(seen, len(means) - 1)]
        chances /= chances.sum(axis=1, keepdims=True)
        likely[tick] = weight @ chances
    return likely


def kept(keys: Keys, worth: Table) -> Table:
    """Return what is found, by memory, by giving up the rows whose keys are worth least, oldest first."""
    found = np.zeros(len(SHARES))
    for at, share in enumerate(SHARES):
        held = [[deque[int]() for _ in range(quality.KEYS)] for _ in range(2)]
        room = round(2 * share * WINDOW)
        size = 0
        for tick, (left, right) in enumerate(keys.tolist()):
            if tick >= WINDOW:
                for rows, key in zip(held, keys[tick - WINDOW].tolist(), strict=True):
                    if rows[key] and rows[key][0] == tick - WINDOW:
                        rows[key].popleft()
                        size -= 1
            if tick >= 2 * WINDOW:
                found[at] += len(held[0][right]) + len(held[1][left]) + (left == right)
            held[0][left].append(tick)
            held[1][right].append(tick)
            size += 2
            now = worth[tick].tolist()
            while size > room:
                least = min(
                    (now[key], queue[0], side, key)
                    for side in (0, 1)
                    for key, queue in enumerate(held[side])
                    if queue
                )
                held[least[2]][least[3]].popleft()
                size -= 1
    return found


def drifting() -> dict[str, list[float]]:
    """Return what each policy that learns and each limit find, by memory, where popular keys change."""
    policies, best = np.zeros((len(LEARNING), len(SHARES))), np.zeros((len(KNOWN), len(SHARES)))
    means = foretold(chances_of(zipf(1, keys=quality.KEYS), quality.KEYS)[0], 10 * WINDOW)
    for seed in SEEDS:
        first = chances_of(zipf(ROWS, keys=quality.KEYS, relation="correlated", seed=seed), quality.KEYS)
        left, right = quality.drifting(seed)
        sides = keys_of(left, right)
        keys = np.stack(sides, axis=1)
        counts = counted(keys)
        chances = np.array([turned(first, tick)[0] for tick in range(ROWS)])
        best += [
            limit(*sides, partial(turned, first), quality.KEYS),
            limit(*sides, partial(before, counts), quality.KEYS),
            *(kept(keys, worth) for worth in (chances, counts, filtered(keys, means))),
        ]
        policies += quality.found_by(left, right, LEARNING)
    found = {**dict(zip(LEARNING, policies, strict=True)), **dict(zip(KNOWN, best, strict=True))}
    return {name: values.tolist() for name, values in found.items()}


def before(counts: Table, tick: int) -> Table:
    """Return what was counted before a tick, the same for both sides; nothing if keys change with it."""
    fresh = quality.turn(tick) != quality.turn(tick - 1)
    return np.tile(np.zeros(counts.shape[1]) if fresh else counts[tick - 1], (2, 1))


def page(results: dict[str, Any]) -> str:
    """Return the table."""
    rows = [[name, *(f"{value:.3f}" for value in values)] for name, values in results["told"].items()]
    found = {name: np.array(values) for name, values in results["drifting"].items()}
    best = {name: found.pop(name) for name in KNOWN}
    names = [max(found, key=lambda name: found[name][at]) for at in range(len(SHARES))]
    for known, label in KNOWN.items():
        shares = [f"{best[known][at] / found[name][at]:.3f} of `{name}`" for at, name in enumerate(names)]
        rows.append([f"{TURNS}, {label}", *shares])
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
