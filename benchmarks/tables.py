"""Write the tables in README.md and docs/ from benchmarks/results.json and the registry."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import figures, recall, registry_tables, shown
from benchmarks.registry_tables import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).with_name("results.json")
SPARK_RESULTS = Path(__file__).with_name("spark.json")

REPAIRS = Path(__file__).with_name("refine.json")
MULTIWAY = Path(__file__).with_name("multiway.json")
ORDERS = Path(__file__).with_name("planner.json")
CASES = ("sparse", "dense")
SPARK = {
    "penstock": "Penstock, exact",
    "bounded": "Penstock, `prob`, a quarter of the memory",
    "pass": "a shuffle and a pass through Python, no join",
    "spark heap": "Spark's own join, state in the heap",
    "spark rocks": "Spark's own join, state in RocksDB",
    "flink": "Flink SQL, interval join (whole job, from CSV)",
    "duckdb": "DuckDB in a loop",
    "polars": "Polars in a loop",
}
GROWN = {"batch": "a micro-batch", "state_bytes": "state", "worker_bytes": "largest Python worker"}
LOOPS = {"penstock": "Penstock, exact", "polars": "Polars in a loop", "duckdb": "DuckDB in a loop"}


def speed_table(results: dict[str, Any]) -> str:
    """Return the speed and memory tables as Markdown; a part that was not measured says so."""
    parts: list[tuple[str, str, Callable[[Any], str]]] = [
        ("joins", "Joins on arrays", arrays_table),
        ("joins", "Joins from Arrow to Arrow", loops_table),
        ("growth", "Time per row", growth_table),
        ("important", "Policies that look at importance", important_table),
        ("memory", "Memory", memory_table),
    ]
    written = [
        write_part(results[part]) if part in results else f"{title}: not measured."
        for part, title, write_part in parts
    ]
    wanted = shown.of_two(results)
    return "\n\n".join([*written, *([table("", ["wanted", "measured", "met"], wanted)] if wanted else [])])


def arrays_table(joins: dict[str, Any]) -> str:
    """Return how fast joins on arrays are, beside bare loops."""
    rows = []

    def row(name: str, kind: str, run: dict[str, str], bar: dict[str, float] | None, note: str = "") -> None:
        cells = [name]
        for case in CASES:
            seconds = joins[case][kind][run[case]]
            cells += [
                f"{joins[case]['rows'] / seconds / 1e6:.1f} M rows/s",
                f"{bar[case] / seconds:.0%} of {note}" if bar else "",
            ]
        rows.append(cells)

    bare = {case: joins[case]["bare"] for case in CASES}
    grouped = {case: min(bare[case].keys() - {"chains"}, key=bare[case].__getitem__) for case in CASES}
    row("bare Numba loop, hash chains", "bare", dict.fromkeys(CASES, "chains"), None)
    row("bare Numba loop, grouped by key", "bare", grouped, None)
    faster = {case: min(bare[case].values()) for case in CASES}
    row("Penstock, exact", "engine", dict.fromkeys(CASES, "exact"), faster, "the faster bare")
    chains = {case: bare[case]["chains"] for case in CASES}
    for policy in ("oldest", "rand", "prob", "life"):
        run = dict.fromkeys(CASES, policy)
        row(f"Penstock, `{policy}`, half the memory", "engine", run, chains, "bare chains")
    return table("join of 10⁶ + 10⁶ rows, arrays", ["sparse keys", "", "dense keys", ""], rows)


def loops_table(joins: dict[str, Any]) -> str:
    """Return how long joins from Arrow batches to Arrow tables take, and how many times as long as Penstock's."""
    rows = []
    for name, label in LOOPS.items():
        cells = [label]
        for case in CASES:
            for clock in ("wall", "cpu"):
                ours, seconds = (joins[case]["loops"][which][clock] for which in ("penstock", name))
                cells.append(f"{seconds:.3f} s" + ("" if name == "penstock" else f" ({seconds / ours:.1f}x)"))
        rows.append(cells)
    head = [f"{case} keys, {clock}" for case in CASES for clock in ("wall", "CPU")]
    return table("join of 10⁶ + 10⁶ rows, Arrow in and out", head, rows)


def growth_table(growth: list[dict[str, Any]]) -> str:
    """Return how the time per row grows with window and memory."""
    rows = []
    for policy in dict.fromkeys(entry["policy"] for entry in growth):
        times = [entry["ns_per_tuple"] for entry in growth if entry["policy"] == policy]
        rows.append([f"`{policy}`", *(f"{time:.0f} ns" for time in times), f"{times[-1] / times[0]:.2f}x"])
    sizes = dict.fromkeys(entry["memory"] for entry in growth)
    columns = [*(f"M = {size:,}" for size in sizes), "growth"]
    return table("time per row; window, memory and keys in step", columns, rows)


def important_table(important: dict[str, Any]) -> str:
    """Return how long policies that look at importance take, beside naive ones."""
    engine, naive = important["engine"], important["naive"]
    sizes = dict.fromkeys(entry["memory"] for entry in naive)
    rows = [
        [f"`{policy}`", *([""] * len(sizes)), f"{time:.0f} ns", f"{engine['prob'] / time:.0%}"]
        for policy, time in engine.items()
    ]
    for policy in dict.fromkeys(entry["policy"] for entry in naive):
        times = [entry["ns_per_tuple"] for entry in naive if entry["policy"] == policy]
        rows.append(
            [f"{policy.upper()}, all of memory at every tick", *(f"{time:,.0f} ns" for time in times), "", ""]
        )
    head = [*(f"M = {size:,}" for size in sizes), "M = 1,000,000", "speed of `prob`'s"]
    return table("time per row, importance", head, rows)


def memory_table(memory: list[dict[str, Any]]) -> str:
    """Return how much memory a bounded join takes."""
    rows = [
        [f"`{entry['policy']}`", f"{entry['span']:,}", f"{entry['grown'] / 1e6:.0f} MB", f"{entry['ratio']:.2f}x"]
        for entry in memory
    ]
    head = ["window", "grown by", "of the kept rows' bytes"]
    return table("memory at M = 10⁶, 100-byte payload", head, rows)


def spark_table(results: dict[str, Any]) -> str:
    """Return how fast joins on a local Spark are, beside others."""
    if not {"joins", "growth", "start"} <= results.keys():
        return "Not measured."
    rows = []
    for name, label in SPARK.items():
        cells = [label]
        for case in CASES:
            runs = results["joins"][case]
            run = runs[name]
            if run is None:
                cells += ["not measured", ""]
                continue
            speed, ours = (one["rows"] / one["seconds"] for one in (run, runs["penstock"]))
            less = "< " if run.get("stopped") else ""
            cells += [f"{less}{speed:,.0f} rows/s", "" if name == "penstock" else f"{less}{speed / ours:.2f}"]
        rows.append(cells)
    head = ["sparse keys", "of exact", "dense keys", "of exact"]
    joins = table(f"join on Spark {results['spark']}, two cores", head, rows)
    grown = []
    for name, label in (("penstock", "Penstock, 10,000 rows"), ("spark heap", "Spark's own")):
        runs = [entry for entry in results["growth"] if entry["join"] == name]
        for kind, unit, size in (("batch", "s", 1), ("state_bytes", "MB", 1e6), ("worker_bytes", "MB", 1e6)):
            if name == "penstock" or kind != "worker_bytes":
                cells = [f"{entry[kind] / size:,.2f} {unit}" for entry in runs]
                grown.append([f"{label}: {GROWN[kind]}", *cells, f"{runs[-1][kind] / runs[0][kind]:.2f}x"])
    spans = [f"span {entry['span']:,}" for entry in results["growth"] if entry["join"] == "penstock"]
    growth = table("growth with the span", [*spans, "growth"], grown)
    start = f"From `.start()` to the first row, in a fresh session with a warm cache: {results['start']:.1f} s."
    return f"{joins}\n\n{growth}\n\n{start}"


def shares_table(results: dict[str, Any]) -> str:
    """Return the recall of budgets shared out evenly, of moving ones, and of one pool."""
    rows = [
        [
            f"{entry['relation']}, Zipf {entry['skew']}, {entry['shards']} shards",
            *(f"{entry[name]:.1%}" for name in ("even", "moving", "one")),
        ]
        for entry in results.get("shares", [])
    ]
    return table("recall of `prob`, 1,000 rows", ["even shares", "moving shares", "one pool"], rows)


def orders_table(sizes: list[dict[str, Any]]) -> str:
    """Return how orders of random joins compare with the cheapest, by number of streams."""
    rows = [
        [
            f"{size['streams']} streams, {size['settings']} settings",
            f"{size['planner']['worst']:.2f}x",
            f"{size['planner']['seconds'] * 1e3:.1f} ms",
            f"{size['heuristic']['found']:.0%}",
            *(f"{size['heuristic'][name]:.2f}x" for name in ("mean", "worst")),
            f"{size['greedy']['worst']:,.1f}x",
            *(f"{size[name]:,.1f}x" for name in ("average_order", "worst_order")),
        ]
        for size in sizes
    ]
    head = [
        "planner, worst",
        "planner, longest",
        "heuristic finds it",
        "heuristic, mean",
        "heuristic, worst",
        "not augmented, worst",
        "average order",
        "worst order",
    ]
    return table("cost, as a multiple of the cheapest order's", head, rows)


def multiway_table(results: dict[str, Any]) -> str:
    """Return how joins of several streams were measured: orders, intervals, and the join of four at once."""
    ways = ["eager", "every 5", "every 10"]
    orders = [
        [
            shown.way_of(entry),
            f"{entry['spearman_time']:.2f}",
            f"{entry['spearman_comparisons']:.2f}",
            f"{entry['worst_by_best']:.1f}x",
            *(f"{best / 1e3:,.0f} / {worst / 1e3:,.0f}" for best, worst in (entry["rates"][way] for way in ways)),
        ]
        for entry in results["orders"]
    ]
    head = ["ranks, time", "ranks, comparisons", "worst / best", *(f"{way}, 10³ rows/s" for way in ways)]
    parts = [table("the 24 orders of Table 5", head, orders)]
    rates = results["intervals"]["rates"]
    rows = [
        [
            "nested loop" if index == "none" else f"hash, {index} buckets",
            *(f"{rate / 1e3:,.0f}" for rate in by.values()),
        ]
        for index, by in rates.items()
    ]
    parts.append(table("10³ rows/s, lazy, τ =", list(rates["none"]), rows))
    best = results["intervals"]["best"]
    alike = results["intervals"]["alike"].values()
    rows = [
        [
            f"by the clock, {results['intervals']['runs']} runs in turns",
            *(max(by, key=by.get) for by in rates.values()),
        ],
        ["all within two standard errors of it", *(", ".join(map(str, intervals)) for intervals in alike)],
        ["by the paper's cost model", *(str(by["model"]) for by in best.values())],
        ["with an access to every bucket when old tuples leave", *(str(by["buckets"]) for by in best.values())],
    ]
    heads = ["nested loop" if buckets == "1" else f"{buckets} buckets" for buckets in best]
    parts.append(table("best τ", heads, rows))
    algorithms = results["intervals"]["algorithms"]
    rows = [
        [
            f"`{name}`",
            *(f"{by[name]['compared'] / 1e6:,.1f} M, {by[name]['seconds']:.2f} s" for by in algorithms.values()),
        ]
        for name in ("naive", "lazy", "general")
    ]
    parts.append(table("comparisons and time, one fast stream", [f"τ = {every}" for every in algorithms], rows))
    parts.append(general_table(results["intervals"]["drawn"]))
    adaptation = results["adaptation"]
    best, adapting = adaptation["best"], adaptation["adapting"]
    rows = [
        ["best fixed order", f"{best:.2f} s", "100%"],
        ["adapting", f"{adapting:.2f} s", f"{best / adapting:.0%}"],
        ["keeping the first order", f"{adaptation['first']:.2f} s", f"{best / adaptation['first']:.0%}"],
        ["worst fixed order", f"{adaptation['worst']:.2f} s", f"{best / adaptation['worst']:.0%}"],
    ]
    parts.append(table("ten windows after one stream became 50 times faster", ["time", "speed"], rows))
    rows = [
        [
            f"{case['keys']:,} keys, window {case['window']:,}",
            f"{case['results']:,}",
            f"{case['rows'] / case['seconds']['at once'] / 1e6:.1f} M rows/s",
            f"{case['rows'] / case['seconds']['cascade'] / 1e6:.1f} M rows/s",
            f"{case['seconds']['cascade'] / case['seconds']['at once']:.1f}x",
            f"{case['intermediate']:,}",
            f"{case['held']['at once']:,}",
            f"{case['held']['cascade']:,}",
        ]
        for case in results["four_way"].values()
    ]
    head = ["results", "at once", "cascade", "cascade / at once, time", "intermediate rows of the cascade"]
    head += ["rows held, at once", "rows held, cascade"]
    parts.append(table("four streams, Arrow in and out", head, rows))
    if "spark" in results:
        parts.append(multiway_spark_table(results["spark"]))
    policies = ("exact", "prob", "oldest", "rand")
    rows = [
        [
            f"{case['streams']} streams, {case['keys']} keys{', a chain' if case['graph'] else ''}",
            *(f"{case['results'][policy]:,}" for policy in policies),
            f"{case['results']['prob'] / case['results']['rand']:.1f}x",
            f"{case['results']['prob'] / case['results']['exact']:.1%}",
            f"{case['recall']['prob'][0]:.1%}-{case['recall']['prob'][2]:.1%}",
        ]
        for case in results["shedding"]
    ]
    head = [*policies, "prob / rand", "recall of prob", "as reported"]
    parts.append(table("results with a quarter of the memory, Zipf 1", head, rows))
    return "\n\n".join(parts)


def several_tables() -> str:
    """Return what joins of several streams must show, and then all that was measured of them."""
    known = json.loads(MULTIWAY.read_text())
    head = ["wanted", "measured", "met"]
    return f"{table('', head, shown.rows(known, json.loads(ORDERS.read_text())))}\n\n{multiway_table(known)}"


def general_table(cases: list[dict[str, Any]]) -> str:
    """Return what GENERAL LAZY compares in settings drawn at random, beside LAZY and NAIVE."""
    rows = []
    for index in ("none", 5):
        compared = [case["compared"] for case in cases if case["index"] == index]
        ratios = [[one["general"] / one[other] for one in compared] for other in ("lazy", "naive")]
        better = [one["general"] / min(one["lazy"], one["naive"]) for one in compared]
        rows.append(
            [
                "nested loop" if index == "none" else f"hash, {index} buckets",
                f"{len(compared)}",
                *(f"{min(by):.2f}x to {max(by):.2f}x" for by in ratios),
                f"{sum(ratio > 1.01 for ratio in better)}, by {max(better):.2f}x at most",
            ]
        )
    head = ["settings", "`general` / `lazy`", "`general` / `naive`", "worse than the better one by over 1 %"]
    return table("comparisons, streams drawn at random", head, rows)


def multiway_spark_table(cases: dict[str, Any]) -> str:
    """Return the join of four streams on Spark beside cascades of joins of two."""
    rows = []
    for case in cases.values():
        for name, label in (
            ("at once", "at once"),
            ("penstock", "cascade of Penstock"),
            ("spark", "cascade of Spark"),
        ):
            run, once = case["runs"][name], case["runs"]["at once"]
            more, less = ("> ", "< ") if run.get("stopped") else ("", "")
            speed = run["rows"] / run["seconds"]
            state = f"{run['state_bytes'] / 1e6:,.1f} MB" if "state_bytes" in run else "-"
            rows.append(
                [
                    f"{case['keys']:,} keys, window {case['window']:,} ms, {label}",
                    f"{case['rows']:,}",
                    f"{run['result']['rows']:,}" if run["result"] else "stopped",
                    f"{less}{speed:,.0f} rows/s",
                    f"{more}{once['rows'] / once['seconds'] / speed:.1f}x",
                    f"{more}{run['held_rows']:,}",
                    state,
                ]
            )
    head = ["rows", "results", "speed", "at once / this", "most rows held", "state"]
    return table("four streams on Spark", head, rows)


def repair_table(results: list[dict[str, Any]]) -> str:
    """Return what repairs on Spark took, beside whole joins."""
    head = ["rows", "rows shed", "pairs missing", "repair", "whole join", "repair / whole join", "of the processor"]
    rows = [
        [
            f"{found['rows']:,}",
            f"{found['shed']:.1%}",
            f"{found['missing']:,} of {found['pairs']:,}",
            f"{found['repair_seconds']:.1f} s",
            f"{found['whole_seconds']:.1f} s",
            f"{found['repair_seconds'] / found['whole_seconds']:.2f}",
            f"{found['repair_processor_seconds'] / found['whole_processor_seconds']:.2f}",
        ]
        for found in results
    ]
    return registry_tables.table(head, rows)


def table(title: str, head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table; all columns but the first are numbers."""
    lines = [[title, *head], ["---", *["--:"] * len(head)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_all() -> None:
    """Rewrite every generated table."""
    registry_tables.main()
    figures.write_claims()
    if RESULTS.exists():
        registry_tables.write(ROOT / "README.md", "speed", speed_table(json.loads(RESULTS.read_text())))
    if SPARK_RESULTS.exists():
        known = json.loads(SPARK_RESULTS.read_text())
        registry_tables.write(ROOT / "README.md", "spark", spark_table(known))
        registry_tables.write(ROOT / "docs" / "spark.md", "spark", spark_table(known))
        registry_tables.write(ROOT / "docs" / "spark.md", "shares", shares_table(known))

    if recall.RESULTS.exists():
        known = json.loads(recall.RESULTS.read_text())
        registry_tables.write(ROOT / "docs" / "recall.md", "measured", recall.tables(known))
    if MULTIWAY.exists():
        registry_tables.write(ROOT / "docs" / "planner.md", "multiway", several_tables())
    if REPAIRS.exists():
        registry_tables.write(ROOT / "docs" / "refine.md", "repair", repair_table(json.loads(REPAIRS.read_text())))
    if ORDERS.exists():
        registry_tables.write(ROOT / "docs" / "planner.md", "orders", orders_table(json.loads(ORDERS.read_text())))


if __name__ == "__main__":
    write_all()
