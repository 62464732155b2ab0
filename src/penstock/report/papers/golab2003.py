"""Golab, Özsu 2003: figures 2 to 4, Tables 5 to 8, and what the paper says of them.

Costs are those of the cost model, beside comparisons counted in a run with full windows. Rates are tuples per second
of CPU time; the comparisons behind them are in the settings.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from penstock.engine.pump import Progress
from penstock.planner import plan as planning
from penstock.planner.statistics import Stream
from penstock.report.figures import Figure
from penstock.report.papers.claims import Claim, Judges, between, judged, quotients, told
from penstock.report.papers.measuring import Steps
from penstock.report.papers.several import Drawn, Loops, alike, timed

TABLE_5 = [
    Stream("S1", rate=10, window=100, distinct=500),
    Stream("S2", rate=1, window=100, distinct=50),
    Stream("S3", rate=1, window=200, distinct=40),
    Stream("S4", rate=3, window=100, distinct=5),
]
TABLE_6 = [
    Stream(f"S{at}", rate=rate, window=100, distinct=values)
    for at, (rate, values) in enumerate([(100, 200), (1, 200), (1, 20), (3, 2)], start=1)
]
TABLE_7 = [
    Stream(f"S{at}", rate=rate, window=100, distinct=values)
    for at, (rate, values) in enumerate([(11, 200), (10, 100), (1, 65), (1, 20)], start=1)
]


class Printed(NamedTuple):
    """A cost that the paper prints: of an order, or of the "worst" or the "average" one, rounded to some step."""

    of: str
    cost: int
    step: int = 1


PRINTED: dict[str, tuple[list[Stream], list[Printed]]] = {  # the best order comes first
    "5": (TABLE_5, [Printed("1234", 16_000), Printed("2134", 19_600), Printed("worst", 90_000, 10_000)]),
    "6": (
        TABLE_6,
        [
            Printed("2134", 80_400),
            Printed("1234", 120_000),
            Printed("2314", 123_000, 1000),
            Printed("2341", 248_000, 1000),
            Printed("worst", 650_000, 10_000),
        ],
    ),
    "7": (
        TABLE_7,
        [
            Printed("3142", 47_977),
            Printed("3412", 49_542),
            Printed("3124", 51_954),
            Printed("average", 63_362),
            Printed("1234", 68_200),
            Printed("2134", 79_000),
        ],
    ),
}
ALIKE = [Stream(f"S{at}", rate=1, window=100, distinct=50) for at in range(1, 6)]
ONE_FAST = [*ALIKE[:3], replace(ALIKE[3], rate=10)]
ONE_VERY_FAST = [*ALIKE[:3], replace(ALIKE[3], rate=50)]
INTERVALS = (1, 2, 5, 10, 20, 30, 40, 50)
LAZY = {"NAIVE": "naive", "LAZY": "lazy", "GENERAL": "general"}
FOUND = "GENERAL in the order that multijoin finds, counted"
INDEXES: dict[str, Any] = {"NLJ": "none", "HASH2": 2, "HASH10": 10, "HASH30": 30}
BUCKETS = (3, 6, 9, 12, 15)  # on average
TO_SLOW = {"Equal": None, "1 to slow": 1, "5 to slow": 5}
UNITS, QUICK, LONG = 400, 150, 8000  # units of time that are drawn; quickly; where little differences are timed
REPEATS = 9  # runs, of which the median counts
TICKS_OF_ORDERS = 48_000  # drawn where orders are timed: windows are full most of the time
COST, RATE = "comparisons per unit of time", "tuples per second"


# --- figures ------------------------------------------------------------------------------------------------


def _drawn(streams: Sequence[Stream], quick: bool) -> Drawn:  # noqa: FBT001 - passed on as it came
    unit = int(sum(stream.rate for stream in streams))
    longest = int(max(stream.window for stream in streams))
    return Drawn(streams, unit * (longest + (QUICK if quick else UNITS)))


def _costs(streams: Sequence[Stream], drawn: Drawn, algorithm: str, every: int | None) -> tuple[float, float]:
    """Return what the best order of an algorithm costs: by the model, and counted."""
    plan = planning.make(streams, every=every, algorithm=algorithm)
    return plan.cost, drawn.comparisons(every, order=plan.order, index="none", algorithm=algorithm)


def streams(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Make figure 2: the cost of NAIVE and of the eager join by the number of streams."""
    counts = range(2, len(ALIKE) + 1)
    names = {"NAIVE": "naive", "MULTI-WAY": "eager"}
    curves: dict[str, list[float]] = {f"{name}{how}": [] for name in names for how in ("", ", counted")}
    steps = Steps(len(counts), progress)
    for n in counts:
        drawn = _drawn(ALIKE[:n], quick)
        for name, algorithm in names.items():
            model, counted = _costs(ALIKE[:n], drawn, algorithm, None)
            curves[name].append(model)
            curves[f"{name}, counted"].append(counted)
        steps.tell()
    title = "rate 1, window 100, 50 distinct values"
    return Figure("golab2003/2", title, "number of streams", COST, [float(n) for n in counts], curves)


def intervals(number: str, known: Sequence[Stream], title: str) -> Callable[[bool, Progress], Figure]:
    """Return the maker of figures 3a and 3b: the cost of lazy algorithms by the interval τ."""

    def make(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
        drawn = _drawn(known, quick)
        curves: dict[str, list[float]] = {f"{name}{how}": [] for how in ("", ", counted") for name in LAZY}
        curves[FOUND] = []
        steps = Steps(len(INTERVALS), progress)
        for every in INTERVALS:
            for name, algorithm in LAZY.items():
                model, counted = _costs(known, drawn, algorithm, every)
                curves[name].append(model)
                curves[f"{name}, counted"].append(counted)
            curves[FOUND].append(drawn.comparisons(every, index="none", algorithm="general"))
            steps.tell()
        return Figure(f"golab2003/{number}", title, "τ", COST, [float(every) for every in INTERVALS], curves)

    return make


def _rates_of(ways: Mapping[Any, Loops], taken: Mapping[Any, Sequence[float]]) -> dict[Any, float]:
    """Return the rate of each way to join, by the median of its times."""
    return {name: loops.arrivals / max(float(np.median(taken[name])), 1e-9) for name, loops in ways.items()}


def _rates(ways: Mapping[Any, Loops], quick: bool) -> tuple[dict[Any, float], dict[Any, int]]:  # noqa: FBT001
    """Return the rate of each way to join, and how many comparisons it took."""
    rates = _rates_of(ways, timed(ways, 1 if quick else REPEATS))
    return rates, {name: loops.compared for name, loops in ways.items()}


def _by(name: str, title: str, label: str, measured: Mapping[float, Sequence[dict[str, Any]]]) -> Figure:
    """Return the figure of rates by something, with the comparisons in its settings."""
    names = list(next(iter(measured.values()))[0])
    curves = {each: [rates[each] for rates, _ in measured.values()] for each in names}
    compared = {each: [counts[each] for _, counts in measured.values()] for each in names}
    return Figure(f"golab2003/{name}", title, label, RATE, list(measured), curves, {"comparisons": compared})


def indexes(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Make figure 4a: the rate of nested loops and hash joins by the interval τ.

    All are timed in turns: what else the machine does must not look like an interval.
    """
    drawn = Drawn(ALIKE[:4], 4 * (QUICK if quick else LONG))
    ways = {}
    steps = Steps(len(INTERVALS) * len(INDEXES), progress)
    for every, (name, index) in product(INTERVALS, INDEXES.items()):
        ways[every, name] = drawn.loops(every, index=index, algorithm="lazy")
        steps.tell()
    times = timed(ways, 1 if quick else REPEATS)
    rates, compared = _rates_of(ways, times), {name: loops.compared for name, loops in ways.items()}
    measured = {
        float(every): tuple({name: one[every, name] for name in INDEXES} for one in (rates, compared))
        for every in INTERVALS
    }
    figure = _by("4a", "4 streams of rate 1, window 100, 50 distinct values", "τ", measured)
    shortest = {name: alike({every: times[every, name] for every in INTERVALS})[0] for name in INDEXES}
    return replace(figure, settings=figure.settings | {"shortest": shortest})


def buckets(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Make figure 4b: the rate by the number of buckets, the fast stream having more of them."""
    drawn = Drawn(ONE_VERY_FAST, 53 * (120 if quick else 200))
    measured = {}
    steps = Steps(len(BUCKETS), progress)
    for average in BUCKETS:
        ways = {}
        for name, slow in TO_SLOW.items():
            few = average if slow is None else slow
            share = dict.fromkeys(("S1", "S2", "S3"), few) | {"S4": max(4 * average - 3 * few, 1)}
            ways[name] = drawn.loops(5, index=share, algorithm="lazy")
        measured[float(average)] = _rates(ways, quick)
        steps.tell()
    return _by("4b", "one stream of four 50 times faster, τ = 5", "buckets of a window, on average", measured)


def costs_of(streams: Sequence[Stream]) -> dict[str, float]:
    """Return what every order costs by the cost model, the cheapest first, and the worst and the average of them."""
    listed = planning.make(streams).costs().to_pylist()
    found = {"".join(row["order"]).replace("S", ""): row["cost"] for row in listed}
    return {**found, "worst": max(found.values()), "average": float(np.mean(list(found.values())))}


def prices(number: str) -> Callable[[bool, Progress], Figure]:
    """Return the maker of Tables 5 to 7: costs of orders by the cost model, beside those that the paper prints."""

    def make(quick: bool, progress: Progress) -> Figure:  # noqa: ARG001, FBT001 - short as it is
        known, printed = PRINTED[number]
        costs = costs_of(known)
        curves = {
            "as printed": [float(each.cost) for each in printed],
            "cost model": [float(costs[each.of]) for each in printed],
        }
        found = planning.make(known, order="heuristic").cost / min(costs.values())
        settings = {"orders": [each.of for each in printed], "cheapest": next(iter(costs)), "heuristic": found}
        progress(1, 1)
        x = [float(at) for at in range(1, len(printed) + 1)]
        return Figure(
            f"golab2003/table{number}", f"the streams of Table {number}", "orders", COST, x, curves, settings
        )

    return make


def best_and_worst(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Measure Table 8: the rates of the best and the worst order of Table 5, τ = 0 being eager."""
    drawn = _drawn(TABLE_5, quick) if quick else Drawn(TABLE_5, TICKS_OF_ORDERS)
    orders = [row["order"] for row in planning.make(TABLE_5).costs().to_pylist()]
    measured = {}
    steps = Steps(3, progress)
    for every in (None, 5, 10):
        algorithm = "eager" if every is None else "lazy"
        ways = {
            f"{join}, {which}": drawn.loops(every, order=order, index=index, algorithm=algorithm)
            for join, index in (("NLJ", "none"), ("hash", 5))
            for which, order in (("best plan", orders[0]), ("worst plan", orders[-1]))
        }
        measured[float(every or 0)] = _rates(ways, quick)
        steps.tell()
    return _by("table8", "the streams of Table 5; 5 buckets", "τ (0: eager)", measured)


FIGURES: dict[str, Callable[[bool, Progress], Figure]] = {
    "2": streams,
    "3a": intervals("3a", ALIKE[:4], "4 streams of rate 1, window 100, 50 distinct values"),
    "3b": intervals("3b", ONE_FAST, "the fourth stream 10 times faster"),
    "4a": indexes,
    "4b": buckets,
    **{f"table{number}": prices(number) for number in PRINTED},
    "table8": best_and_worst,
}
TIMED = frozenset({"4a", "4b", "table8"})


# --- claims -------------------------------------------------------------------------------------------------


def claims(figures: Mapping[str, Figure]) -> list[Claim]:
    """Return what the paper says beside what the figures say, in the order of the paper.

    Parameters:
        figures: by name, as of ``FIGURES``; claims about figures that are not there are left out.
    """
    made: Judges = {
        "2": _streams,
        "3a": _alike,
        "3b": _fast,
        **{f"table{number}": _prices for number in PRINTED},
        "table8": _orders,
        "4a": _indexes,
        "4b": _buckets,
    }
    return told(made, figures)


def _words(model: Sequence[float], counted: Sequence[float]) -> str:
    return f"{between(model)} by the model, {between(counted)} counted"


def _streams(figure: Figure) -> list[Claim]:
    model, counted = (quotients(figure, f"NAIVE{how}", f"MULTI-WAY{how}") for how in ("", ", counted"))
    holds = [bool(np.all(np.diff(ratios) >= 0) and ratios[-1] > 2) for ratios in (model, counted)]
    says = "the eager join scales considerably better with the number of windows than NAIVE"
    measured = f"NAIVE / MULTI-WAY {_words(model, counted)}, for 2 to {figure.x[-1]:.0f} streams"
    return [Claim("figure 2", says, measured, judged(holds=all(holds), partly=any(holds)))]


def _alike(figure: Figure) -> list[Claim]:
    model, counted = (quotients(figure, f"GENERAL{how}", f"LAZY{how}") for how in ("", ", counted"))
    same = [bool(np.allclose(ratios, 1.0, atol=0.01)) for ratios in (model, counted)]
    dear = [quotients(figure, f"NAIVE{how}", f"LAZY{how}") for how in ("", ", counted")]
    dearer = [min(ratios) >= 1 and ratios[0] == max(ratios) for ratios in dear]
    return [
        Claim(
            "figure 3(a)",
            "with equal streams LAZY and GENERAL cost the same",
            f"GENERAL / LAZY {_words(model, counted)}",
            judged(holds=all(same), partly=any(same)),
        ),
        Claim(
            "figure 3(a)",
            "NAIVE is more expensive, especially if τ is small",
            f"NAIVE / LAZY {_words(*dear)}",
            judged(holds=all(dearer), partly=any(dearer)),
        ),
    ]


def _fast(figure: Figure) -> list[Claim]:
    ways = (("GENERAL", ""), ("GENERAL, counted", ", counted"), (FOUND, ", counted"))
    general = [
        [
            max(a, b)
            for a, b in zip(*(quotients(figure, name, f"{other}{how}") for other in ("LAZY", "NAIVE")), strict=True)
        ]
        for name, how in ways
    ]
    least = [max(ratios) <= 1 + 1e-9 for ratios in general[:2]]
    last = [quotients(figure, f"LAZY{how}", f"NAIVE{how}")[-1] for how in ("", ", counted")]
    worse = [ratio > 1 for ratio in last]
    return [
        Claim(
            "figure 3(b)",
            "GENERAL has the lowest cost, whatever τ is",
            f"GENERAL / the better of the others {_words(*general[:2])} in the order of the model, "
            f"{between(general[2])} counted in the order that multijoin finds",
            judged(holds=all(least), partly=any(least)),
        ),
        Claim(
            "figure 3(b)",
            "NAIVE becomes better than LAZY when τ is large",
            f"LAZY / NAIVE at τ = {figure.x[-1]:.0f}: {last[0]:.2f} by the model, {last[1]:.2f} counted",
            judged(holds=all(worse), partly=any(worse)),
        ),
    ]


def _prices(figure: Figure) -> list[Claim]:
    name = figure.name.removeprefix("golab2003/table")
    printed, costs = PRINTED[name][1], figure.curves["cost model"]
    same = [each.step * round(cost / each.step) == each.cost for each, cost in zip(printed, costs, strict=True)]
    cheapest, ratio = figure.settings["cheapest"], figure.settings["heuristic"]
    said = [f"{each.of} {'about ' * (each.step > 1)}{each.cost:,}" for each in printed]
    return [
        Claim(
            f"Table {name}, §5.1",
            f"orders cost {', '.join(said)}",
            f"{', '.join(f'{cost:,.0f}' for cost in costs)}: {sum(same)} of {len(same)} as printed",
            judged(holds=all(same), partly=any(same)),
        ),
        Claim(
            f"Table {name}, §5.1",
            f"{printed[0].of} is the best order, and the heuristic finds it",
            f"best is {cheapest}; what the heuristic finds costs {ratio:.2f} times as much",
            judged(holds=cheapest == printed[0].of and ratio <= 1 + 1e-9, partly=cheapest == printed[0].of),
        ),
    ]


def _orders(figure: Figure) -> list[Claim]:
    loss = {join: quotients(figure, f"{join}, best plan", f"{join}, worst plan") for join in ("NLJ", "hash")}
    hashed = quotients(figure, "hash, best plan", "NLJ, best plan")
    slower = [
        bool(np.all(np.diff(figure.curves[f"{join}, {which} plan"]) < 0))
        for join in ("NLJ", "hash")
        for which in ("best", "worst")
    ]
    nested, indexed = (figure.curves[f"{join}, best plan"][0] for join in ("NLJ", "hash"))
    return [
        Claim(
            "Table 8",
            "the best plan is 4 to 5 times as fast as the worst",
            f"{between(loss['NLJ'])} times with nested loops, {between(loss['hash'])} with 5 buckets",
            judged(holds=min(map(min, loss.values())) >= 3.5, partly=min(map(min, loss.values())) > 1),
        ),
        Claim(
            "Table 8",
            "the hash join outperforms the nested loops, at 1,614 to 11,540 tuples per second with the best plan",
            f"{between(hashed)} times as fast; {nested:,.0f} to {indexed:,.0f}, if eager",
            judged(holds=min(hashed) > 1),
        ),
        Claim(
            "Table 8",
            "increasing the interval hurts performance",
            f"slower with each step of τ in {sum(slower)} of 4 rows of the table",
            judged(holds=all(slower), partly=any(slower)),
        ),
    ]


def _each(taus: Sequence[float], names: Sequence[str]) -> str:
    return ", ".join(f"{tau:.0f} ({name})" for tau, name in zip(taus, names, strict=True))


def _indexes(figure: Figure) -> list[Claim]:
    names = list(INDEXES)
    pairs = list(pairwise(names))
    steps = [quotients(figure, fast, slow) for slow, fast in pairs]
    gains = [float(np.median(step)) for step in steps]
    best = [figure.x[int(np.argmax(figure.curves[name]))] for name in names]
    shortest = [figure.settings["shortest"][name] for name in names]
    hashed = (best[1:], shortest[1:])
    rising = [bool(np.all(np.diff(taus) >= 0) and taus[-1] > taus[0]) for taus in hashed]
    return [
        Claim(
            "figure 4(a)",
            "the nested loops are the slowest, the largest hash table is the fastest",
            ", ".join(
                f"{fast} / {slow} {gain:.2f}" for slow, fast, gain in zip(names[:-1], names[1:], gains, strict=True)
            ),
            judged(holds=min(map(min, steps)) > 1, partly=min(gains) > 1),
        ),
        Claim(
            "figure 4(a)",
            "the greatest relative improvement is between nested loops and two buckets",
            f"{gains[0]:.2f} times there, {max(gains[1:]):.2f} at most further on",
            judged(holds=gains[0] == max(*gains, 1.0)),
        ),
        Claim(
            "figure 4(a)",
            "the best τ grows with the number of buckets: 4, 15 and 30 for 2, 10 and 30",
            f"best at τ = {_each(best, names)}; the shortest that is as fast, within two standard errors, is "
            f"{_each(shortest, names)}",
            judged(holds=all(rising), partly=any(rising)),
        ),
    ]


def _buckets(figure: Figure) -> list[Claim]:
    gains = quotients(figure, "5 to slow", "Equal")
    compared = figure.settings["comparisons"]
    saved = [a / b for a, b in zip(compared["Equal"], compared["5 to slow"], strict=True)]
    large = [gain for gain, average in zip(gains, figure.x, strict=True) if average > 5]
    return [
        Claim(
            "figure 4(b)",
            "more buckets for a large window improve performance: 5 to slow reaches 10,000, Equal 7,000",
            f"5 to slow / Equal {between(large)} in time, comparisons {between(saved)} times fewer",
            judged(holds=min(large) > 1, partly=max(large) > 1),
        )
    ]
