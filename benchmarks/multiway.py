"""Measure joins of several streams, and whether the cost model says the truth (`make bench-multiway`).

Times are the shortest CPU seconds of runs in turns, of the loops alone: rows are merged and coded before.
"""

import json
import time
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import penstock as pen
from benchmarks import tables
from penstock.engine.multijoin import Bound, Ordered, Settings, run

REPEATS = 3
TICKS = 12_000
TABLE_5 = [
    pen.Stream("S1", rate=10, window=100, distinct=500),
    pen.Stream("S2", rate=1, window=100, distinct=50),
    pen.Stream("S3", rate=1, window=200, distinct=40),
    pen.Stream("S4", rate=3, window=100, distinct=5),
]
EQUAL = [pen.Stream(f"S{at}", rate=1, window=100, distinct=50) for at in range(1, 5)]
ONE_FAST = [*EQUAL[:3], pen.Stream("S4", rate=10, window=100, distinct=50)]
INTERVALS = (1, 2, 5, 10, 20, 30, 50)
FOUR_WAY = {"sparse": (20_000, 10_000), "dense": (2_000, 2_000)}  # keys, window
ROWS = 200_000  # of each stream
WINDOW, CHANGE, END = 100, 1000, 4000  # when one stream becomes faster


class Case:
    """Tuples generated as golab2003 §6.1 does: one a tick, from a stream by its rate, values uniform."""

    def __init__(self, streams: list[pen.Stream], ticks: int = TICKS, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        rates = np.array([stream.rate for stream in streams])
        self.unit = int(rates.sum())  # ticks
        source = rng.choice(len(streams), ticks, p=rates / rates.sum())
        at = [np.flatnonzero(source == place) for place in range(len(streams))]
        self.rows = {
            stream.name: pa.table({"ts": ts, "attr": rng.integers(0, int(stream.distinct), ts.size)})
            for stream, ts in zip(streams, at, strict=True)
        }
        self.windows = {stream.name: int(stream.window) * self.unit for stream in streams}

    def loops(self, every: int | None = None, **how: Any) -> "Loops":
        """Return the loops of one way to join them, with their rows."""
        evaluation = "eager" if every is None else pen.every(every * self.unit)
        return Loops(self.rows, Settings("attr", "ts", self.windows, evaluation=evaluation, **how))


class Loops:
    """A join that can be run again and again."""

    def __init__(self, rows: Mapping[str, pa.Table], settings: Settings) -> None:
        self._bound = Bound(settings, rows)
        self._plan = Ordered(self._bound).changes[0].plan
        self._batches = list(self._bound.batches())
        self.arrivals = sum(batch.row.size for batch in self._batches)
        self.compared = 0
        self.results = 0

    def seconds(self) -> float:
        """Run it, and return the CPU seconds that the loops took."""
        chain = self._bound.chain(self._plan)
        begin = time.process_time()
        self.results = sum(chain.push(batch).shape[1] for batch in self._batches)
        taken = time.process_time() - begin
        self.compared = chain.compared
        return taken


def shortest(ways: Mapping[Any, Loops]) -> dict[Any, float]:
    """Return the shortest time of each way, measured in turns."""
    times: dict[Any, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, loops in ways.items():
            times[name].append(loops.seconds())
    counts = {loops.results for loops in ways.values()}
    if len(counts) != 1:
        raise AssertionError(f"ways of one join found different numbers of results: {sorted(counts)}")
    return {name: min(seconds) for name, seconds in times.items()}


def spearman(one: list[float], other: list[float]) -> float:
    """Return the rank correlation."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def measure_orders() -> list[dict[str, Any]]:
    """Time the 24 orders of Table 5, and the best and worst of them when evaluation is lazy (Table 8)."""
    case = Case(TABLE_5)
    listed = pen.plan(TABLE_5).costs().to_pylist()
    orders = [tuple(row["order"]) for row in listed]
    found = []
    for index in ("none", 5):
        ways = {order: case.loops(order=order, index=index) for order in orders}
        times = shortest(ways)
        best, worst = orders[0], orders[-1]
        rates = {"eager": [ways[best].arrivals / times[order] for order in (best, worst)]}
        for every in (5, 10):
            lazily = {order: case.loops(every, order=order, index=index, algorithm="lazy") for order in (best, worst)}
            late = shortest(lazily)
            rates[f"every {every}"] = [lazily[order].arrivals / late[order] for order in (best, worst)]
        found.append(
            {
                "index": index,
                "spearman_time": spearman([row["cost"] for row in listed], [times[order] for order in orders]),
                "spearman_comparisons": spearman(
                    [row["cost"] for row in listed], [float(ways[order].compared) for order in orders]
                ),
                "best_is_fastest": times[best] / min(times.values()),
                "worst_by_best": times[worst] / times[best],
                "rates": rates,
            }
        )
    return found


def measure_intervals() -> dict[str, Any]:
    """Time lazy evaluation by its interval and number of buckets (Figure 4a), and its algorithms (Figure 3b)."""
    case = Case(EQUAL, 4 * TICKS)
    rates = {}
    for index in ("none", 2, 10, 30):
        ways = {every: case.loops(every, index=index, algorithm="lazy") for every in INTERVALS}
        rates[str(index)] = {every: ways[every].arrivals / seconds for every, seconds in shortest(ways).items()}
    fast = Case(ONE_FAST)
    algorithms = {}
    for every in (1, 10, 50):
        ways = {name: fast.loops(every, index="none", algorithm=name) for name in ("naive", "lazy", "general")}
        times = shortest(ways)
        algorithms[every] = {name: {"seconds": times[name], "compared": ways[name].compared} for name in ways}
    return {"rates": rates, "algorithms": algorithms}


def cascade(rows: Mapping[str, pa.Table], window: int) -> tuple[int, int]:
    """Join two streams at a time; returns how many results, and how many rows of intermediate ones."""
    names = list(rows)
    so_far = rows[names[0]].append_column("least", rows[names[0]]["ts"]).select(["ts", "key", "least"])
    between = 0
    for name in names[1:]:
        pairs = pen.join(so_far, rows[name].select(["ts", "key"]), on="key", time="ts", window=window)
        ts = pc.max_element_wise(pairs["ts_left"], pairs["ts_right"])
        least = pc.min_element_wise(pairs["least"], pairs["ts_right"])
        so_far = pa.table({"ts": ts, "key": pairs["key"], "least": least})
        so_far = so_far.filter(pc.less(pc.subtract(ts, least), window)).sort_by("ts")
        between += so_far.num_rows
    return so_far.num_rows, between - so_far.num_rows


def measure_four_way() -> dict[str, Any]:
    """Time the join of four streams at once beside a cascade of joins of two, both from Arrow tables."""
    found = {}
    for case, (keys, window) in FOUR_WAY.items():
        rng = np.random.default_rng(1)
        rows = {name: pa.table({"ts": np.arange(ROWS), "key": rng.integers(0, keys, ROWS)}) for name in "abcd"}
        short = {name: table[:5000] for name, table in rows.items()}
        cascade(short, window)
        times: dict[str, list[float]] = {"at once": [], "cascade": []}
        for _ in range(REPEATS):
            begin = time.process_time()
            joined = run(rows, Settings("key", "ts", window))
            times["at once"].append(time.process_time() - begin)
            begin = time.process_time()
            results, between = cascade(rows, window)
            times["cascade"].append(time.process_time() - begin)
        if joined.table.num_rows != results:
            raise AssertionError(f"{joined.table.num_rows} results at once, {results} from the cascade")
        seconds = {name: min(taken) for name, taken in times.items()}
        found[case] = {
            "rows": 4 * ROWS,
            "keys": keys,
            "window": window,
            "results": results,
            "intermediate": between,
            "seconds": seconds,
        }
    return found


def measure_adaptation() -> dict[str, Any]:
    """Let one stream become 50 times faster, and time what comes ten windows later: fixed orders, and adapting."""
    rng = np.random.default_rng(1)
    rows = {}
    for name, before, after in (("a", 10, 10), ("b", 5, 5), ("c", 2, 2), ("d", 0.5, 25)):
        early = rng.uniform(0, CHANGE, int(CHANGE * before))
        late = rng.uniform(CHANGE, END, int((END - CHANGE) * after))
        ts = np.sort(np.concatenate([early, late]).astype(np.int64))
        rows[name] = pa.table({"ts": ts, "attr": rng.integers(0, 200, ts.size)})

    def seconds(order: Any) -> tuple[float, Ordered]:
        bound = Bound(Settings("attr", "ts", WINDOW, order=order, index=10), rows)
        ordered, taken = Ordered(bound), 0.0
        for batch in bound.batches():
            begin = time.process_time()
            ordered.push(batch)
            taken += (time.process_time() - begin) * bool(batch.ts[0] >= CHANGE + 10 * WINDOW)
        return taken, ordered

    orders = list(permutations(rows))
    fixed = [min(seconds(order)[0] for _ in range(REPEATS)) for order in orders]
    runs = [seconds("auto") for _ in range(REPEATS)]
    changes = [
        {"since": change.since, "order": list(change.plan.order), "gain": change.gain}
        for change in runs[0][1].changes
    ]
    return {"best": min(fixed), "worst": max(fixed), "adapting": min(taken for taken, _ in runs), "changes": changes}


def main() -> None:
    """Measure all, and write what came of it."""
    results = {
        "orders": measure_orders(),
        "intervals": measure_intervals(),
        "adaptation": measure_adaptation(),
        "four_way": measure_four_way(),
    }
    tables.MULTIWAY.write_text(json.dumps(results, indent=2) + "\n")
    tables.write_all()
    print(tables.multiway_table(json.loads(tables.MULTIWAY.read_text())))


if __name__ == "__main__":
    main()
