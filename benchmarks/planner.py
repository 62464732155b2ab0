"""Compare the orders of random joins: the planner's, the paper's heuristic, and all others (`make bench-planner`)."""

import json
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock as pen
from benchmarks import tables
from penstock.planner.cost import Model, Order
from penstock.planner.orders import cost_of, every_order, greedy, heuristic

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = 1000
STREAMS = range(3, 9)
CHECKED = 9  # streams: a few settings beyond, still against every order
SEED = 2003


def setting(rng: np.random.Generator, n: int) -> list[pen.Stream]:
    """Draw a join: rates of 1 to 100, windows of 10 to 1,000, 2 to 500 distinct values, all on a log scale."""
    return [
        pen.Stream(
            f"S{at + 1}",
            rate=float(10 ** rng.uniform(0, 2)),
            window=float(10 ** rng.uniform(1, 3)),
            distinct=float(10 ** rng.uniform(np.log10(2), np.log10(500))),
        )
        for at in range(n)
    ]


def compared(streams: list[pen.Stream]) -> dict[str, float]:
    """Return what orders cost, as multiples of the cheapest one's cost, and the seconds that the planner took."""
    model = Model(streams)
    (steps,) = model.searches("eager")
    costs = every_order(steps).costs
    begin = time.process_time()
    planned = pen.plan(streams)
    seconds = time.process_time() - begin
    finders: dict[str, Callable[[], Order]] = {
        "heuristic": lambda: heuristic(model, steps),
        "greedy": lambda: greedy(model, steps),
    }
    least = costs.min()
    found = {name: cost_of(steps, find()) / least for name, find in finders.items()}
    return {
        **found,
        "planner": planned.cost / least,
        "average_order": costs.mean() / least,
        "worst_order": costs.max() / least,
        "seconds": seconds,
    }


def summary(n: int, rows: list[dict[str, float]]) -> dict[str, Any]:
    """Summarise the settings of one number of streams; averages of orders are geometric means over settings."""
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def spread(name: str) -> dict[str, float]:
        return {
            "found": float((column[name] < 1 + 1e-9).mean()),
            "mean": float(column[name].mean()),
            "p95": float(np.quantile(column[name], 0.95)),
            "worst": float(column[name].max()),
        }

    return {
        "streams": n,
        "settings": len(rows),
        "planner": {**spread("planner"), "seconds": float(column["seconds"].max())},
        "heuristic": spread("heuristic"),
        "greedy": spread("greedy"),
        **{name: float(np.exp(np.log(column[name]).mean())) for name in ("average_order", "worst_order")},
    }


def main() -> None:
    """Draw the settings, compare, and write what came of it."""
    rng = np.random.default_rng(SEED)
    sizes = [*(STREAMS[at % len(STREAMS)] for at in range(SETTINGS)), *[CHECKED] * 20]
    rows: dict[int, list[dict[str, float]]] = {n: [] for n in (*STREAMS, CHECKED)}
    for n in sizes:
        rows[n].append(compared(setting(rng, n)))
    results = [summary(n, mine) for n, mine in rows.items()]
    tables.ORDERS.write_text(json.dumps(results, indent=2) + "\n")
    tables.write_all()
    print(tables.orders_table(results))


if __name__ == "__main__":
    main()
