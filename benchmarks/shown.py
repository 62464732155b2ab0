"""Say of each thing that joins must show what was wanted, what was measured, and if it is met."""

from itertools import pairwise
from typing import Any

PART = "in part"
Row = tuple[str, str, str, bool | str | None]  # what is compared, the figure wanted, the one measured, if it is met


def rows(known: dict[str, Any], sizes: list[dict[str, Any]]) -> list[list[str]]:
    """Return a line for each, in words.

    Parameters:
        known: what ``benchmarks.multiway`` measured.
        sizes: what ``benchmarks.planner`` did, by number of streams.
    """
    found = [
        *costs(known["costs"]),
        *planner(sizes),
        *orders(known["orders"]),
        *cascades(known["four_way"]),
        *on_spark(known.get("spark", {})),
        *intervals(known["intervals"]),
        *adaptation(known["adaptation"]),
        *shedding(known["shedding"]),
    ]
    return in_words(found)


def in_words(found: list[Row]) -> list[list[str]]:
    """Return lines as tables have them."""
    words = {True: "yes", False: "**no**", PART: PART, None: "-"}
    return [[what, wanted, measured, words[met]] for what, wanted, measured, met in found]


def of_two(results: dict[str, Any]) -> list[list[str]]:
    """Return a line for each thing that joins of two must show of speed and memory, in words.

    Parameters:
        results: what ``benchmarks`` measured, or a part of it.
    """
    joins = results.get("joins", {})
    found = [*exact(joins), *bounded(joins)] if joins else []
    found += growth(results["growth"]) if "growth" in results else []
    found += important(results["important"]) if "important" in results else []
    found += memory(results["memory"]) if "memory" in results else []
    return in_words(found)


def both(values: list[float], unit: str) -> str:
    """Return what was measured with sparse and with dense keys."""
    return ", ".join(f"{value:.0%}" if unit == "%" else f"{value:.1f}{unit}" for value in values)


def exact(joins: dict[str, Any]) -> list[Row]:
    """Compare exact joins with bare loops, and with others from Arrow to Arrow."""
    shares = [min(case["bare"].values()) / case["engine"]["exact"] for case in joins.values()]
    found: list[Row] = [
        ("exact, sparse and dense keys", ">= 60 % of the faster bare loop", both(shares, "%"), min(shares) >= 0.6)
    ]
    for name, other in (("polars", "Polars"), ("duckdb", "DuckDB")):
        times = [case["loops"][name]["wall"] / case["loops"]["penstock"]["wall"] for case in joins.values()]
        found.append((f"exact, against {other} in a loop", ">= 5x as fast", both(times, "x"), min(times) >= 5))
    return found


def bounded(joins: dict[str, Any]) -> list[Row]:
    """Compare policies with a bare loop that keeps everything."""
    found: list[Row] = []
    for policy, least in (("oldest", 0.4), ("rand", 0.4), ("prob", 0.4), ("life", 0.1)):
        shares = [case["bare"]["chains"] / case["engine"][policy] for case in joins.values()]
        found.append(
            (
                f"`{policy}`, half the memory",
                f">= {least * 100:.0f} % of bare chains",
                both(shares, "%"),
                min(shares) >= least,
            )
        )
    return found


def growth(cases: list[dict[str, Any]]) -> list[Row]:
    """Compare the time per row at the largest memory with that at the smallest."""
    times: dict[str, list[float]] = {}
    for case in cases:
        times.setdefault(case["policy"], []).append(case["ns_per_tuple"])
    grown = {policy: mine[-1] / mine[0] for policy, mine in times.items()}
    said = ", ".join(f"`{policy}` {ratio:.2f}x" for policy, ratio in grown.items())
    return [("time per row, memory 1,000 times as large", "< 2x", said, max(grown.values()) < 2)]


def important(known: dict[str, Any]) -> list[Row]:
    """Compare policies that look at importance with `prob`."""
    times = known["engine"]
    shares = {policy: times["prob"] / time for policy, time in times.items() if policy != "prob"}
    said = ", ".join(f"`{policy}` {share:.0%}" for policy, share in shares.items())
    return [
        ("policies that look at importance", ">= 25 % of the speed of `prob`", said, min(shares.values()) >= 0.25)
    ]


def memory(cases: list[dict[str, Any]]) -> list[Row]:
    """Compare the memory taken with the bytes of the rows kept."""
    most: dict[str, float] = {}
    for case in cases:
        most[case["policy"]] = max(most.get(case["policy"], 0.0), case["ratio"])
    said = ", ".join(f"`{policy}` {ratio:.2f}x" for policy, ratio in most.items())
    return [("memory, of the kept rows' bytes", "< 3x", said, max(most.values()) < 3)]


def costs(cases: list[dict[str, Any]]) -> list[Row]:
    """Compare with the figures that the paper prints."""
    differ, printed = (sum(case[name] for case in cases) for name in ("differ", "costs"))
    worst = max(case["heuristic"] for case in cases)
    return [
        (
            "costs printed in golab2003, Tables 5 to 7",
            "to the digits printed",
            f"{printed - differ} of {printed}",
            not differ,
        ),
        ("the paper's heuristic on Tables 5 to 7", "the optimum", f"{worst:.2f}x the cheapest at most", worst == 1),
    ]


def planner(sizes: list[dict[str, Any]]) -> list[Row]:
    """Compare the orders found with the cheapest, in settings drawn at random."""
    few = [size for size in sizes if size["streams"] <= 7]
    many = [size for size in sizes if size["streams"] > 7]
    worst, beyond = (max(size["planner"]["worst"] for size in some) for some in (few, many))
    longest = max(size["planner"]["seconds"] for size in few)
    heuristic = max(size["heuristic"]["worst"] for size in sizes)
    return [
        ("the planner up to 7 streams", "the optimum", f"{worst:.2f}x the cheapest at most", worst <= 1 + 1e-9),
        ("longest search up to 7 streams", "< 50 ms", f"{longest * 1e3:.1f} ms", longest < 0.05),
        ("the planner beyond 7 streams", "<= 1.1x the cheapest", f"{beyond:.2f}x at most", beyond <= 1.1),
        (
            "the paper's heuristic on drawn settings",
            "can be many times worse",
            f"up to {heuristic:.0f}x",
            heuristic > 2,
        ),
    ]


def way_of(case: dict[str, Any]) -> str:
    """Say how the orders of Table 5 were joined."""
    name = "nested loop" if case["index"] == "none" else f"hash, {case['index']} buckets"
    return name if case["times"] == 1 else f"{name}, {case['times']} times the rates and values"


def orders(cases: list[dict[str, Any]]) -> list[Row]:
    """Compare the cost model with the clock."""
    found: list[Row] = []
    for case in cases:
        name = way_of(case)
        ranks, times = case["spearman_time"], case["worst_by_best"]
        found += [
            (f"ranks of 24 orders by model and time, {name}", "Spearman >= 0.9", f"{ranks:.2f}", ranks >= 0.9),
            (f"best order against the worst, {name}", ">= 3x as fast", f"{times:.1f}x", times >= 3),
        ]
    return found


def cascades(cases: dict[str, Any]) -> list[Row]:
    """Compare the join of four with joins of two, embedded."""
    found: list[Row] = []
    for name, case in cases.items():
        held, seconds = case["held"], case["seconds"]
        speed = seconds["cascade"] / seconds["at once"]
        less = f"{held['at once']:,} against {held['cascade']:,} rows"
        found += [
            (
                f"four at once, embedded, {name}: state",
                "less than the cascade",
                less,
                held["at once"] < held["cascade"],
            ),
            (f"four at once, embedded, {name}: speed", "shown", f"{speed:.1f}x Penstock's cascade", None),
        ]
    return found


def on_spark(cases: dict[str, Any]) -> list[Row]:
    """Compare the join of four with joins of two, on Spark."""
    found: list[Row] = []
    for name, case in cases.items():
        runs = case["runs"]
        speed = {way: run["rows"] / run["seconds"] for way, run in runs.items()}
        more = "> " if runs["spark"].get("stopped") else ""
        times = speed["at once"] / speed["spark"]
        held = {way: run["held_rows"] for way, run in runs.items()}
        less = f"{held['at once']:,} against {held['penstock']:,} and {held['spark']:,} rows"
        met = held["at once"] < min(held["penstock"], held["spark"])
        other = f"{speed['at once'] / speed['penstock']:.1f}x Penstock's cascade"
        found += [
            (
                f"four at once on Spark, {name}: speed",
                ">= 3x Spark's cascade",
                f"{more}{times:.1f}x; {other}",
                times >= 3,
            ),
            (f"four at once on Spark, {name}: state", "less than either cascade", less, met),
        ]
    return found


def rising(numbers: list[int]) -> bool:
    """Say whether numbers never fall, and rise in all."""
    return numbers[-1] > numbers[0] and all(after >= before for before, after in pairwise(numbers))


def intervals(known: dict[str, Any]) -> list[Row]:
    """Compare intervals of lazy evaluation by buckets, and its algorithms."""
    counted = [by["buckets"] for by in known["best"].values()]
    hashed = {buckets: by for buckets, by in known["rates"].items() if buckets != "none"}
    clock = [known["alike"][buckets][0] for buckets in hashed]
    fastest = [int(max(by, key=by.__getitem__)) for by in hashed.values()]
    most = list(hashed.values())[-1]
    gain = most[str(clock[-1])] / most[str(clock[0])]  # with most buckets, over the interval that is best with fewest
    better = [
        case["compared"]["general"] / min(case["compared"]["lazy"], case["compared"]["naive"])
        for case in known["drawn"]
    ]
    worse = sum(ratio > 1.01 for ratio in better)
    buckets = ", ".join(hashed)
    risen = [rising(fastest), rising(clock) and gain > 1.02]
    return [
        (
            f"best interval, for {buckets} buckets, by the clock; the shortest within two standard errors of it",
            "rises; by a gain of over 2 %",
            f"{', '.join(map(str, fastest))}; {', '.join(map(str, clock))}, by a gain of {gain - 1:.1%}",
            all(risen) or (PART if any(risen) else False),
        ),
        (
            "the best by the cost model, with an access to every bucket when old tuples leave, a scan first",
            "rises",
            ", ".join(map(str, counted)),
            rising(counted),
        ),
        (
            "GENERAL LAZY against the better of LAZY and NAIVE, comparisons counted",
            "never worse",
            f"worse by over 1 % in {worse} of {len(better)} settings, by {max(better) - 1:.1%} at most",
            worse == 0,
        ),
    ]


def adaptation(known: dict[str, Any]) -> list[Row]:
    """Compare the speed ten windows after rates changed with that of the best order for them."""
    share, kept = (known["best"] / known[name] for name in ("adapting", "first"))
    what = "ten windows after one stream became 50x faster"
    return [
        (what, ">= 90 % of the best order", f"{share:.0%}", share >= 0.9),
        (f"{what}, keeping the first order", "< 90 %: else it shows nothing", f"{kept:.0%}", kept < 0.9),
    ]


def shedding(cases: list[dict[str, Any]]) -> list[Row]:
    """Compare what is found inside a budget with random eviction."""
    found: list[Row] = []
    for case in cases:
        times = case["results"]["prob"] / case["results"]["rand"]
        what = f"results with a quarter of the memory, {case['streams']} streams{', a chain' * case['graph']}"
        found.append((what, ">= 2x random eviction", f"{times:.1f}x", times >= 2))
    return found
