"""Measure live recall and advice: do intervals hold, how wide are they, what do they cost, how near is the advice.

Writes benchmarks/recall.json and the tables of docs/recall.md.
"""

import json
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import penstock as pen
from benchmarks import auto, quality
from benchmarks.registry_tables import ROOT, write
from penstock.quality.books import Guess
from penstock.streams.workloads import surge, zipf

RESULTS = Path(__file__).with_name("recall.json")
RUNS = 440
PUSH = 1 << 15
HOW: dict[str, Any] = {"time": "ts"}
ADVISES = 3  # times that advice is asked for: the median of their times counts, for it takes little
WANTED = [0.5, 0.8, 0.95, 0.99]

Streams = tuple[pa.Table, pa.Table]


class Shape(NamedTuple):
    """Streams to count the pairs of."""

    draw: Callable[[int], Any]  # by seed; the first two are the streams
    window: Any
    memory: int | None
    on: Any = "key"
    data: str = ""  # the set that it is read from: only what is sampled depends on the seed
    comparisons: int | None = None  # a tick


def drawn(**given: Any) -> Callable[[int], Any]:
    """Say how to draw two streams."""
    return lambda seed: zipf(**given, seed=seed)


def texts(rows: int, words: int, items: int, few: int | None = None) -> Callable[[int], Streams]:
    """Say how to draw two streams of so many different items a row, on the right `few`, each with a weight."""

    def draw(seed: int) -> Streams:
        rng = np.random.default_rng(seed)
        sides = []
        for size in (items, few or items):
            words_of = np.argpartition(rng.random((rows, words)), size)[:, :size].ravel()
            ends = pa.array(np.arange(0, rows * size + 1, size), pa.int32())
            lists = pa.ListArray.from_arrays(ends, pa.array(words_of))
            weights = pa.MapArray.from_arrays(ends, pa.array(words_of), pa.array(rng.random(words_of.size)))
            sides.append(pa.table({"ts": np.arange(rows), "words": lists, "weights": weights}))
        return sides[0], sides[1]

    return draw


def prices(rows: int) -> Callable[[int], Streams]:
    """Say how to draw two streams of numbers, from 0 to 1."""

    def draw(seed: int) -> Streams:
        rng = np.random.default_rng(seed)
        return tuple(pa.table({"ts": np.arange(rows), "price": rng.random(rows)}) for _ in range(2))

    return draw


# windows that do not fit the sample or are counted with less once that is fine enough, and one that fits
SHAPES = {
    "Zipf 1, 50 keys, window fits": Shape(drawn(rows=5_600, keys=50), 400, 400),
    "Zipf 1, 50 keys": Shape(drawn(rows=60_000, keys=50), 2_000, 1_000),
    "Zipf 1, 50 keys, correlated": Shape(drawn(rows=40_000, keys=50, relation="correlated"), 1_000, 500),
    "Zipf 1, 50 keys, anti-correlated": Shape(drawn(rows=60_000, keys=50, relation="anticorrelated"), 2_000, 1_000),
    "Zipf 1, 100,000 keys": Shape(drawn(rows=200_000, keys=100_000), 60_000, 20_000),
    "Zipf 2, 50 keys": Shape(drawn(rows=20_000, keys=50, skew=2.0), 500, 200),
    "uniform, 1,000,000 keys": Shape(drawn(rows=200_000, keys=1_000_000, skew=0.0), 100_000, 40_000),
    "uniform, 50,000 keys": Shape(drawn(rows=150_000, keys=50_000, skew=0.0), 50_000, 20_000),
    "uneven rates": Shape(drawn(rows=(160_000, 40_000), keys=20_000, rate=(4, 1)), 20_000, 10_000),
    "popular keys change": Shape(lambda seed: quality.drifting(seed, 60_000, 2_000), 2_000, 1_000),
    "one repeats the other": Shape(lambda seed: quality.lagging(seed, 100_000, 25_000), 25_000, 10_000),
    "surge": Shape(lambda seed: surge(100_000, seed=seed), 2_000, 2_000),
    "ships by cell": Shape(auto.ships, 20_000, 10_000, "cell10", "ship_weather"),
    "orders and trades": Shape(auto.stocks, pen.rows(20_000), 10_000, data="sse_orders_trades"),
    "retail": Shape(auto.retail, pen.rows(20_000), 10_000, "item_id", "online_retail"),
    "Zipf 1, 20,000 keys, probes": Shape(drawn(rows=100_000, keys=20_000), 20_000, None, comparisons=1),
    "Zipf 1, 20,000 keys, memory and probes": Shape(drawn(rows=100_000, keys=20_000), 20_000, 10_000, comparisons=1),
    "two words in common": Shape(texts(20_000, 200, 4), 4_000, 1_000, pen.overlap("words", at_least=2)),
    "two words in common, comparisons": Shape(
        texts(20_000, 200, 4), 4_000, None, pen.overlap("words", at_least=2), comparisons=100
    ),
    "all words, no index": Shape(texts(10_000, 100, 6, 2), 2_000, 500, pen.contains("words", index=False)),
    "inner product": Shape(texts(20_000, 100, 4), 4_000, 1_000, pen.inner_product("weights", at_least=1.0)),
    "near in price, comparisons": Shape(
        prices(20_000), 4_000, None, pen.band("price", within=0.001), comparisons=800
    ),
}
COSTS: dict[str, tuple[dict[str, Any], int, int]] = {
    "sparse keys": ({"rows": 1_000_000, "keys": 1_000_000, "skew": 0.0}, 100_000, 100_000),
    "Zipf 1, 100,000 keys": ({"rows": 1_000_000, "keys": 100_000}, 10_000, 10_000),
    "Zipf 1, 50 keys": ({"rows": 200_000, "keys": 50}, 1_000, 1_000),
}
ADVISED: dict[str, tuple[dict[str, Any], int, str]] = {
    "Zipf 1, 50 keys": ({"rows": 500_000, "keys": 50}, 400, "prob"),
    "Zipf 1, 2,000 keys": ({"rows": 500_000, "keys": 2_000}, 2_000, "prob"),
    "uniform, 50,000 keys": ({"rows": 500_000, "keys": 50_000, "skew": 0.0}, 40_000, "prob"),
    "uniform, 50,000 keys, RAND": ({"rows": 500_000, "keys": 50_000, "skew": 0.0}, 40_000, "rand"),
    "Zipf 1, 50,000 keys": ({"rows": 500_000, "keys": 50_000}, 20_000, "prob"),
    "Zipf 1, 50,000 keys, AUTO": ({"rows": 500_000, "keys": 50_000}, 20_000, "auto"),
    "Zipf 1, 50,000 keys, correlated": ({"rows": 500_000, "keys": 50_000, "relation": "correlated"}, 20_000, "prob"),
}


class Nobody:
    """Counts nothing, in the place of live recall."""

    pairs = Guess(0.0)

    def take(self, *_: object) -> None:
        """Do nothing."""


def pairs_of(streams: Streams, **how: Any) -> int:
    """Return how many pairs the exact join has; on keys, without making rows of them."""
    if isinstance(how["on"], str):
        table = pen.compare(streams[0], streams[1], **HOW, **how, policies=["exact"], memory=[1])
        return int(table["pairs"][0].as_py())
    return int(played(streams, "auto", **how, memory=None)[0].pairs)


def played(streams: Streams, policy: str, *, counted: bool = True, **how: Any) -> Any:
    """Return the report of a join pushed piece by piece, and its CPU seconds."""
    schemas = streams[0].schema, streams[1].schema
    op = pen.Join(schemas=schemas, **HOW, **how, policy=policy, ledger="off")
    if not counted:
        op._recall = Nobody()  # type: ignore[assignment]  # noqa: SLF001 - the price of what is switched off here
    begin = time.process_time()
    times = [side["ts"].cast(pa.int64()).to_numpy() for side in streams]
    rows = sum(time.size for time in times)
    first, last = min(int(time[0]) for time in times), max(int(time[-1]) for time in times)
    cuts = np.linspace(first, last + 1, max(2, rows // PUSH + 1)).astype(np.int64)
    ends = [np.searchsorted(time, cuts) for time in times]
    for (a, b), (c, d) in zip(*(pairwise(end) for end in ends), strict=True):
        op.push(left=streams[0][a:b], right=streams[1][c:d])
    op.finish()
    return op.report(), time.process_time() - begin


def coverage() -> list[dict[str, Any]]:
    """Count how often the true recall is inside the interval, in RUNS runs, each with a seed of its own."""
    found = []
    shapes = {name: shape for name, shape in SHAPES.items() if not shape.data or (auto.DATA / shape.data).is_dir()}
    for name, shape in shapes.items():
        inside, widths, pairs, exact_runs = 0, [], [], 0
        runs = -(-RUNS // len(shapes))
        for seed in range(runs):
            streams = shape.draw(seed)[:2]
            how = {"on": shape.on, "window": shape.window}
            if seed == 0 or not shape.data:
                exact = pairs_of(streams, **how)
            cpu = None if shape.comparisons is None else pen.cpu(comparisons_per_second=shape.comparisons)
            policy = "rand" if isinstance(shape.on, str) and cpu is None else "auto"
            report, _ = played(streams, policy, **how, memory=shape.memory, cpu=cpu, seed=seed)
            inside += report.recall.low - 1e-12 <= report.pairs / exact <= report.recall.high + 1e-12
            widths.append((report.exact_estimate.high - report.exact_estimate.low) / 2 / exact)
            exact_runs += report.exact_estimate.low == report.exact_estimate.high
            pairs.append(exact)
        found.append(
            {
                "workload": name,
                "runs": runs,
                "inside": inside,
                "counted_exactly": exact_runs,
                "pairs": float(np.mean(pairs)),
                "half_width": float(np.mean(widths)),
            }
        )
        print(found[-1], flush=True)
    return found


def costs() -> list[dict[str, Any]]:
    """Measure the CPU time of a join with and without the count, in turns; the best of each."""
    found = []
    for name, (arguments, window, memory) in COSTS.items():
        streams = zipf(**arguments, seed=0)[:2]
        how = {"on": "key", "window": window, "memory": memory}
        for policy in ("prob", "rand", "oldest"):
            taken: dict[bool, list[float]] = {True: [], False: []}
            for counted in [True, False] * 4:
                taken[counted].append(played(streams, policy, counted=counted, **how)[1])
            cost = min(taken[True][1:]) / min(taken[False][1:]) - 1
            found.append({"workload": name, "policy": policy, "cost": cost, "seconds": min(taken[False][1:])})
            print(found[-1], flush=True)
    return found


def advice() -> list[dict[str, Any]]:
    """Compare the memory advised with that of a full simulation over the same budgets."""
    found = []
    small = zipf(1_000, keys=9)
    for policy in {policy for *_, policy in ADVISED.values()}:  # kernels are loaded before anything is timed
        pen.advise(small.left, small.right, **HOW, on="key", window=50, policy=policy)
    for name, (arguments, window, policy) in ADVISED.items():
        streams = zipf(**arguments, seed=1)
        needs: dict[float | None, pen.Advice] = {}
        seconds: dict[float | None, list[float]] = {None: [], 1.0: []}
        for sample in [None] * ADVISES + [1.0]:
            begin = time.process_time()
            needs[sample] = pen.advise(
                streams.left,
                streams.right,
                **HOW,
                on="key",
                window=window,
                recall=WANTED,
                policy=policy,
                sample=sample,
            )
            seconds[sample].append(time.process_time() - begin)
        mine, theirs = (np.array(needs[sample].needs["memory"], float) for sample in seconds)
        low, high = (np.array(needs[None].needs[end], float) for end in ("low", "high"))
        found.append(
            {
                "workload": name,
                "how": needs[None].how,
                "share": needs[None].share,
                "memory": theirs.tolist(),
                "errors": (mine / theirs - 1).tolist(),
                "inside": ((low <= theirs) & (theirs <= high)).tolist(),
                "time": float(np.median(seconds[None])) / seconds[1.0][0],
            }
        )
        print(found[-1], flush=True)
    return found


def tables(results: dict[str, Any]) -> str:
    """Return the tables of docs/recall.md, of what was measured."""
    parts = {"coverage": coverage_table, "costs": costs_table, "advice": advice_table}
    return "\n\n".join(made(results[name]) for name, made in parts.items() if name in results)


def coverage_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of intervals."""
    lines = ["| workload | runs | true recall inside | pairs | half-width |", "| --- | --: | --: | --: | --: |"]
    for row in rows:
        width = "exact" if row["counted_exactly"] == row["runs"] else f"{row['half_width']:.1%}"
        lines.append(f"| {row['workload']} | {row['runs']} | {row['inside']} | {row['pairs']:,.0f} | {width} |")
    inside, runs = (sum(row[name] for row in rows) for name in ("inside", "runs"))
    return "\n".join([*lines, f"| all | {runs} | {inside} ({inside / runs:.1%}) | | |"])


def costs_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of CPU time."""
    head = ["| cost of the count | policy | CPU time beside the join | of throughput |", "| --- | --- | --: | --: |"]
    lines = [
        f"| {row['workload']} | `{row['policy']}` | {row['cost']:.1%} | {row['cost'] / (1 + row['cost']):.1%} |"
        for row in rows
    ]
    return "\n".join([*head, *lines])


def advice_table(rows: list[dict[str, Any]]) -> str:
    """Return the table of advice."""
    head = "".join(f" {want:.0%} |" for want in WANTED)
    lines = [
        f"| advice, 10⁶ rows | from | time |{head} inside |",
        f"| --- | --- | --: |{' --: |' * (len(WANTED) + 1)}",
    ]
    for row in rows:
        errors = "".join(f" {error:+.1%} |" for error in row["errors"])
        inside = f"{sum(row['inside'])} of {len(row['inside'])}"
        lines.append(f"| {row['workload']} | {row['how']} | 1/{1 / row['time']:.0f} |{errors} {inside} |")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """Measure everything, or the parts named, and write it down."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, measure in {"coverage": coverage, "costs": costs, "advice": advice}.items():
        if not words or name in words:
            results[name] = measure()
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write(ROOT / "docs" / "recall.md", "measured", tables(results))


if __name__ == "__main__":
    main(sys.argv[1:])
