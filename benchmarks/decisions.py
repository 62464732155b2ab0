"""Compare what policies decide about each row with the optimum's schedule (`make bench-decisions`).

A row that came after the warm-up, and whose window ends before the streams do, is one of four: given up at once by
both; kept by the policy as long as the optimum keeps it, which is until the last partner that pays; given up sooner;
or kept although the optimum gave it up at once. Writes benchmarks/decisions.json and a table of docs/auto.md; it
takes a minute.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import penstock as pen
from benchmarks import quality, registry_tables
from benchmarks.auto import PAGE, ROWS, WINDOW
from penstock.operator.settings import SIDES

RESULTS = Path(__file__).with_name("decisions.json")
SEEDS = range(3)
SHARES = (0.1, 0.5)  # of the memory that the exact join needs
POLICIES = ("auto", "prob", "rand")
WORKLOADS = ("Zipf 1, uncorrelated", "Zipf 1, correlated", "uniform", "popular keys change", "one repeats the other")
CLASSES = ("both gave it up at once", "kept as long as the optimum", "given up too early", "kept in vain")
Ints = npt.NDArray[np.int64]


def until_by_ledger(left: pa.Table, right: pa.Table, how: dict[str, Any], policy: str) -> Ints:
    """Return the last tick at which each row was in memory, by side and row, from the ledger."""
    until = np.arange(ROWS) + np.full((2, 1), WINDOW - 1)
    ledger = pen.run(left, right, **how, policy=policy).ledger
    side = np.array([SIDES.index(name) for name in ledger["side"].to_pylist()])
    until[side, ledger["arrival"].to_numpy()] = ledger["shed_at"].to_numpy()
    return until


def until_by_schedule(left: pa.Table, right: pa.Table, how: dict[str, Any]) -> Ints:
    """Return the last tick for which the optimum keeps each row, by side and row; its own if it does not."""
    until = np.tile(np.arange(ROWS), (2, 1))
    schedule = pen.optimum(left, right, **how, count_from=2 * WINDOW).schedule
    side = np.array([SIDES.index(name) for name in schedule["side"].to_pylist()])
    until[side, schedule["row"].to_numpy()] = schedule["until"].to_numpy()
    return until


def classes(mine: Ints, best: Ints) -> list[float]:
    """Return the share of the rows in each class, in their order."""
    came = np.tile(np.arange(ROWS), (2, 1))
    counted = (came >= 2 * WINDOW) & (came < ROWS - WINDOW)
    kept, wanted = mine > came, best > came
    each = [~kept & ~wanted, wanted & (mine >= best), wanted & (mine < best), kept & ~wanted]
    return [float((one & counted).sum() / counted.sum()) for one in each]


def measure(draw: Callable[[int], tuple[pa.Table, pa.Table]]) -> dict[str, list[list[float]]]:
    """Return the shares of the classes by policy and memory, as means over the seeds."""
    found = np.zeros((len(POLICIES), len(SHARES), len(CLASSES)))
    for seed in SEEDS:
        left, right = draw(seed)
        for at, share in enumerate(SHARES):
            how = {"on": "key", "time": "ts", "window": WINDOW, "memory": round(2 * share * WINDOW)}
            best = until_by_schedule(left, right, how)
            for policy, name in enumerate(POLICIES):
                found[policy, at] += classes(until_by_ledger(left, right, how, name), best)
    return dict(zip(POLICIES, (found / len(SEEDS)).tolist(), strict=True))


def page(results: dict[str, dict[str, list[list[float]]]]) -> str:
    """Return the table."""
    rows = [
        [f"{name}, {share:.0%}", f"`{policy}`", *(f"{value:.1%}" for value in found[at])]
        for name, policies in results.items()
        for at, share in enumerate(SHARES)
        for policy, found in policies.items()
    ]
    return registry_tables.table(["streams, memory", "policy", *CLASSES], rows)


def main() -> None:
    """Measure, and rewrite the table."""
    results = {name: measure(quality.WORKLOADS[name]) for name in WORKLOADS}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    registry_tables.write(PAGE, "decisions", page(results))


if __name__ == "__main__":
    main()
