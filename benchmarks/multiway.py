"""Measure joins of several streams, and whether the cost model says the truth (`make bench-multiway`).

Times are the shortest CPU seconds of runs in turns, of the loops alone: rows are merged and coded before. Parts named
on the command line are measured anew, the others are kept.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import penstock as pen
from benchmarks import spark as on_spark
from benchmarks import tables
from penstock.engine.multijoin import run
from penstock.operator.ordering import Ordered
from penstock.operator.several import Bound, Settings
from penstock.planner.statistics import Stream
from penstock.report.papers.golab2003 import ALIKE, ONE_FAST, PRINTED, TABLE_5, TICKS_OF_ORDERS, costs_of
from penstock.report.papers.several import Drawn, alike, batches, shortest, timed

REPEATS = 3
MORE = 20  # runs of the best and the worst order: three of a noisy machine say anything from 2.9 to 3.7
BEST, TURNS = 4, 10  # orders that were fastest at a first look, and runs of each beside adapting
MANY = 60  # runs of each interval: the differences are small
TICKS = 12_000
LARGER = (1, 4)  # times the rates and the values of Table 5
EQUAL = ALIKE[:4]
INTERVALS = (1, 2, 3, 5, 10, 20, 30, 50)
BUCKETS = (1, 2, 10, 30, 100)  # one is none: the window is scanned
FOUR_WAY = {"sparse": (20_000, 10_000), "dense": (2_000, 2_000)}  # keys, window
ROWS = 200_000  # of each stream
SPARK_ROWS = 500_000
SPARK_FILES = 4  # micro-batches, of 500,000 rows, as those of joins of two
KEPT = ("seconds", "rows", "held_rows", "state_bytes", "result", "stopped")  # of a run on Spark
SETTINGS = 40  # drawn, in which GENERAL LAZY is compared with the others
NAMES = "abcd"
WINDOW, CHANGE, END = 100, 1000, 4000  # when one stream becomes faster
SHED = {3: 50, 4: 200}  # streams: keys, Zipf 1, ranks shuffled on each stream
SHED_ROWS, SHED_WINDOW, SHED_SHARE = 20_000, 400, 4


def spearman(one: list[float], other: list[float]) -> float:
    """Return the rank correlation."""
    ranks = [np.argsort(np.argsort(values)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def measure_costs() -> list[dict[str, Any]]:
    """Compare the costs of orders with those that the paper prints, and the heuristic's order with the cheapest."""
    found = []
    for number, (streams, printed) in PRINTED.items():
        costs = costs_of(streams)
        cheapest, heuristic = pen.plan(streams).cost, pen.plan(streams, order="heuristic").cost
        found.append(
            {
                "table": f"Table {number}",
                "costs": len(printed),
                "differ": sum(each.step * round(costs[each.of] / each.step) != each.cost for each in printed),
                "heuristic": heuristic / cheapest,
            }
        )
    return found


def measure_orders() -> list[dict[str, Any]]:
    """Time the 24 orders of Table 5, and the best and worst of them when evaluation is lazy (Table 8).

    Once as printed, and once with so many times the rates and the values: the model ranks the orders alike, a row
    finds as many results, and looks at so many times the rows for them.
    """
    found = []
    for times, index in product(LARGER, ("none", 5)):
        streams = [replace(each, rate=times * each.rate, distinct=times * each.distinct) for each in TABLE_5]
        case = Drawn(streams, times * TICKS_OF_ORDERS)
        listed = pen.plan(streams).costs().to_pylist()
        orders = [tuple(row["order"]) for row in listed]
        ways = {order: case.loops(order=order, index=index) for order in orders}
        taken = shortest(ways, REPEATS)
        best, worst = orders[0], orders[-1]
        taken |= shortest({order: ways[order] for order in (best, worst)}, MORE)
        rates = {"eager": [ways[best].arrivals / taken[order] for order in (best, worst)]}
        for every in (5, 10):
            lazily = {order: case.loops(every, order=order, index=index, algorithm="lazy") for order in (best, worst)}
            late = shortest(lazily, REPEATS)
            rates[f"every {every}"] = [lazily[order].arrivals / late[order] for order in (best, worst)]
        found.append(
            {
                "index": index,
                "times": times,
                "spearman_time": spearman([row["cost"] for row in listed], [taken[order] for order in orders]),
                "spearman_comparisons": spearman(
                    [row["cost"] for row in listed], [float(ways[order].compared) for order in orders]
                ),
                "best_is_fastest": taken[best] / min(taken.values()),
                "worst_by_best": taken[worst] / taken[best],
                "rates": rates,
            }
        )
    return found


def measure_intervals() -> dict[str, Any]:
    """Time lazy evaluation by its interval and number of buckets (Figure 4a), and its algorithms (Figure 3b).

    A rate is the median of many runs at the first interval; those at the others are compared with it turn by turn:
    what the machine does besides in a turn, it does to all of them. All run in one order.
    """
    case, order = Drawn(EQUAL, 4 * TICKS), [stream.name for stream in EQUAL]
    rates, near = {}, {}
    for index in ("none", *BUCKETS[1:]):
        ways = {every: case.loops(every, index=index, algorithm="lazy", order=order) for every in INTERVALS}
        times = {every: np.array(taken) for every, taken in timed(ways, MANY).items()}
        usual = times[INTERVALS[0]]
        by = {every: float(np.median(taken / usual)) for every, taken in times.items()}
        rates[str(index)] = {every: ways[every].arrivals / np.median(usual) / ratio for every, ratio in by.items()}
        near[str(index)] = alike(times)
    fast = Drawn(ONE_FAST, TICKS)
    algorithms = {}
    for every in (1, 10, 50):
        ways = {name: fast.loops(every, index="none", algorithm=name) for name in ("naive", "lazy", "general")}
        times = shortest(ways, REPEATS)
        algorithms[every] = {name: {"seconds": times[name], "compared": ways[name].compared} for name in ways}
    return {
        "rates": rates,
        "alike": near,
        "runs": MANY,
        "algorithms": algorithms,
        "best": best_intervals(),
        "drawn": measure_general(),
    }


def best_intervals() -> dict[str, dict[str, int]]:
    """Return the best interval by the paper's cost model, and if each expiration also looks into every bucket."""
    found = {}
    for buckets in BUCKETS:
        streams = [replace(stream, buckets=buckets) for stream in EQUAL]
        costs = {
            every: pen.plan(streams, join="hash", evaluation=pen.every(every), algorithm="lazy").cost
            for every in range(1, INTERVALS[-1] + 1)
        }
        looking = {every: cost + len(streams) * buckets / every for every, cost in costs.items()}
        found[str(buckets)] = {
            name: min(by, key=lambda every, by=by: by[every]) for name, by in (("model", costs), ("buckets", looking))
        }
    return found


def measure_general() -> list[dict[str, Any]]:
    """Count the comparisons of GENERAL LAZY, LAZY and NAIVE in settings drawn at random."""
    found = []
    for seed in range(SETTINGS):
        rng = np.random.default_rng(seed)
        streams = [
            Stream(
                f"S{at + 1}",
                rate=round(10 ** rng.uniform(0, 1)),
                window=int(10 ** rng.uniform(1, 2)),
                distinct=int(10 ** rng.uniform(1, 2.3)),
            )
            for at in range(int(rng.integers(3, 5)))
        ]
        longest = max(stream.window for stream in streams)
        drawn = Drawn(streams, int(4 * longest * sum(stream.rate for stream in streams)))
        for index, every in product(("none", 5), (5, 50)):
            compared = {}
            for name in ("naive", "lazy", "general"):
                loops = drawn.loops(every, index=index, algorithm=name)
                loops.seconds()
                compared[name] = loops.compared
            found.append({"seed": seed, "index": index, "every": every, "compared": compared})
    return found


def cascade(rows: Mapping[str, pa.Table], window: int, join: Callable[..., pa.Table] = pen.join) -> tuple[int, int]:
    """Join two streams at a time; returns how many results, and how many rows of intermediate ones."""
    names = list(rows)
    so_far = rows[names[0]].append_column("least", rows[names[0]]["ts"]).select(["ts", "key", "least"])
    between = 0
    for name in names[1:]:
        pairs = join(so_far, rows[name].select(["ts", "key"]), on="key", time="ts", window=window)
        ts = pc.max_element_wise(pairs["ts_left"], pairs["ts_right"])
        least = pc.min_element_wise(pairs["least"], pairs["ts_right"])
        so_far = pa.table({"ts": ts, "key": pairs["key"], "least": least})
        so_far = so_far.filter(pc.less(pc.subtract(ts, least), window)).sort_by("ts")
        between += so_far.num_rows
    return so_far.num_rows, between - so_far.num_rows


def held_in_cascade(rows: Mapping[str, pa.Table], window: int) -> int:
    """Return how many rows the windows of joins of two, one after the other, hold in the end."""
    held = []

    def join(*streams: pa.Table, **how: Any) -> pa.Table:
        joined = pen.run(*streams, **how)
        held.append(int(joined.report.memory_rows))
        return joined.table

    cascade(rows, window, join)
    return sum(held)


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
            "held": {"at once": joined.report.memory_rows, "cascade": held_in_cascade(rows, window)},
            "seconds": seconds,
        }
    return found


def closed(table: pa.Table, key: int) -> pa.Table:
    """Return a stream with a last row that meets nobody and lets the watermark pass all others."""
    last = pa.table({"ts": [int(table["ts"][-1].as_py()) + 10**7], "key": [key]}, schema=table.schema)
    return pa.concat_tables([table, last]).combine_chunks()


def at_once(window: int) -> on_spark.Plan:
    """Return Penstock's join of all streams."""
    return lambda *streams: pen.multijoin(
        dict(zip(NAMES, streams, strict=True)), on="key", time="ts", windows=f"{window} ms"
    )


def sparks_cascade(window: int) -> on_spark.Plan:
    """Return Spark's own joins of two, each row near to all before it."""

    def plan(*streams: Any) -> Any:
        named = [s.selectExpr("key", f"ts as ts_{n}") for n, s in zip(NAMES, streams, strict=True)]
        joined = named[0]
        for at, name in enumerate(NAMES[1:], start=1):
            near = " and ".join(
                f"r.ts_{name} > l.ts_{other} - interval {window} milliseconds"
                f" and r.ts_{name} < l.ts_{other} + interval {window} milliseconds"
                for other in NAMES[:at]
            )
            kept = [f"l.ts_{other}" for other in NAMES[:at]]
            both = joined.alias("l").join(named[at].alias("r"), F.expr(f"l.key = r.key and {near}"))
            plain = f"timestamp_micros(unix_micros(r.ts_{name})) as ts_{name}"  # Spark takes one event time a stream
            joined = both.selectExpr("l.key as key", *kept, plain)
        return joined

    return plan


def penstocks_cascade(window: int) -> on_spark.Plan:
    """Return Penstock's joins of two, one after the other: the time of a result so far is that of its latest row."""

    def plan(*streams: Any) -> Any:
        named = [
            s.withColumnRenamed("ts", f"ts_{name}") if at else s.selectExpr("key", "ts as at", "ts as ts_a")
            for at, (name, s) in enumerate(zip(NAMES, streams, strict=True))
        ]
        joined = named[0]
        for at, name in enumerate(NAMES[1:], start=1):
            last = name == NAMES[-1]
            joined = pen.join(
                joined,
                named[at],
                on="key",
                time=("at", f"ts_{name}"),
                window=f"{window} ms",
                event_time=None if last else "latest",
            )
            times = [f"ts_{each}" for each in NAMES[: at + 1]]
            near = f"unix_millis(greatest({', '.join(times)})) - unix_millis(least({', '.join(times)})) < {window}"
            joined = joined.where(near).selectExpr("key", *([] if last else ["latest as at"]), *times)
        return joined

    return plan


def measure_spark() -> dict[str, Any]:
    """Time the join of four streams at once on a local Spark beside cascades of joins of two."""
    found = {}
    with on_spark.live.local_spark("6g") as spark:
        for case, (keys, window) in FOUR_WAY.items():
            rng = np.random.default_rng(1)
            rows = {
                name: closed(pa.table({"ts": np.arange(SPARK_ROWS), "key": rng.integers(0, keys, SPARK_ROWS)}), -at)
                for at, name in enumerate(NAMES, start=1)
            }
            ways = {"at once": at_once, "penstock": penstocks_cascade, "spark": sparks_cascade}
            plans = {name: (way(window), on_spark.ROCKS) for name, way in ways.items()}
            with on_spark.tables_written(rows, SPARK_FILES) as folder:
                runs = on_spark.in_turns(spark, folder, plans, 1, NAMES)
            results = [run["result"] for run in runs.values() if run["result"] is not None]
            if any(result != results[0] for result in results):
                raise AssertionError(f"different results: {results}")
            kept = {name: {key: run[key] for key in KEPT if key in run} for name, run in runs.items()}
            found[case] = {"rows": len(NAMES) * SPARK_ROWS, "keys": keys, "window": window, "runs": kept}
    return found


def measure_adaptation() -> dict[str, Any]:
    """Let one stream become 50 times faster, and time what comes ten windows later: fixed orders, and adapting.

    One of the fixed orders is that with which adapting began: it is what there would be without adapting.
    """
    rng = np.random.default_rng(1)
    rows = {}
    for name, before, after in (("a", 10, 10), ("b", 5, 5), ("c", 2, 2), ("d", 0.5, 25)):
        early = rng.uniform(0, CHANGE, int(CHANGE * before))
        late = rng.uniform(CHANGE, END, int((END - CHANGE) * after))
        ts = np.sort(np.concatenate([early, late]).astype(np.int64))
        rows[name] = pa.table({"ts": ts, "attr": rng.integers(0, 200, ts.size)})

    def seconds(order: Any) -> tuple[float, Ordered]:
        bound = Bound(
            Settings("attr", "ts", WINDOW, order=order, index=10), {name: t.schema for name, t in rows.items()}
        )
        ordered, taken = Ordered(bound), 0.0
        for batch in batches(bound, rows):
            begin = time.process_time()
            ordered.push(batch)
            taken += (time.process_time() - begin) * bool(batch.ts[0] >= CHANGE + 10 * WINDOW)
        return taken, ordered

    fixed = {order: min(seconds(order)[0] for _ in range(REPEATS)) for order in permutations(rows)}
    ranked = sorted(fixed, key=fixed.__getitem__)
    first = tuple(seconds("auto")[1].orders[0].order)
    times: dict[Any, list[float]] = {order: [] for order in (*ranked[:BEST], "auto", first, ranked[-1])}
    for _ in range(TURNS):
        for order, mine in times.items():
            taken, ordered = seconds(order)
            mine.append(taken)
            if order == "auto":
                changes = [{"since": each.since, "order": each.order, "gain": each.gain} for each in ordered.orders]
    least = {order: min(taken) for order, taken in times.items()}
    best = min(least[order] for order in ranked[:BEST])
    return {
        "best": best,
        "adapting": least["auto"],
        "first": least[first],
        "worst": least[ranked[-1]],
        "changes": changes,
    }


def measure_shedding() -> list[dict[str, Any]]:
    """Count what each policy finds of three and of four streams with a quarter of the memory, and how recall is told.

    All join on one key, or each with the next one on a key of their own.
    """
    found = []
    for (n, keys), chained in product(SHED.items(), (False, True)):
        rng = np.random.default_rng(1)
        chances = 1 / np.arange(1, keys + 1)
        rows = {}
        for name in NAMES[:n]:
            drawn = {
                column: rng.choice(rng.permutation(keys), SHED_ROWS, p=chances / chances.sum())
                for column in (("key", "next") if chained else ("key",))
            }
            rows[name] = pa.table({"ts": np.arange(SHED_ROWS), **drawn})
        graph = dict.fromkeys(pairwise(NAMES[:n]), ("next", "key"))
        window = SHED_WINDOW // 4 if chained else SHED_WINDOW
        how: dict[str, Any] = {"on": graph if chained else "key", "time": "ts", "windows": window}
        memory = n * window // SHED_SHARE
        results, seconds, recall = {}, {}, {}
        for policy in ("exact", "prob", "oldest", "rand"):
            budget = {} if policy == "exact" else {"memory": memory, "policy": policy}
            begin = time.process_time()
            report = pen.run(rows, **how, **budget).report
            results[policy], recall[policy] = report.results, report.recall
            seconds[policy] = time.process_time() - begin
        found.append(
            {
                "streams": n,
                "graph": chained,
                "rows": SHED_ROWS,
                "keys": keys,
                "window": window,
                "memory": memory,
                "results": results,
                "recall": recall,
                "seconds": seconds,
            }
        )
    return found


PARTS = {
    "costs": measure_costs,
    "orders": measure_orders,
    "intervals": measure_intervals,
    "adaptation": measure_adaptation,
    "four_way": measure_four_way,
    "spark": measure_spark,
    "shedding": measure_shedding,
}


def main() -> None:
    """Measure the parts that are named, or all, and write what came of it."""
    named = sys.argv[1:]
    results = json.loads(tables.MULTIWAY.read_text()) if named else {}
    for part in named or PARTS:
        results[part] = PARTS[part]()
    tables.MULTIWAY.write_text(json.dumps(results, indent=2) + "\n")
    tables.write_all()
    print(tables.several_tables())


if __name__ == "__main__":
    main()
