"""Say of each thing that joins under a CPU budget must show what was wanted, what was measured, and if it is met."""

from collections import Counter
from typing import Any

from penstock.report.figures import Figure
from penstock.report.papers.claims import quotients
from penstock.report.papers.dual2006 import ARRIVALS, UPDATE
from penstock.report.papers.registry import PAPERS

Row = tuple[str, str, str, bool | None]  # what is compared, the figure wanted, the one measured, whether it is met
SELECTED = ("gedik2007/12", "gedik2007/13", "gedik2007/news")  # where the default stands beside random-drop
GAINED = "gedik2007/15"  # the same, by rate: what the default gives over random-drop
COMPARED = ("dual2006/6", "dual2006/7", "dual2006/8", "dual2006/9")
BEST, TIMES, INDEXED, OWN = 0.98, 1.5, 10.0, 0.005
ERRORS = 3  # standard errors that a mean may be below what is wanted of it


def rows(results: dict[str, Any], figures: dict[str, Figure], latency: tuple[float, float]) -> list[list[str]]:
    """Return a line for each, in words.

    Parameters:
        results: what ``benchmarks.cpu`` measured.
        figures: those of the papers, by name.
        latency: the targets of the runs by the clock, in seconds, embedded and on Spark.
    """
    found = [
        *statements(figures),
        *default(results["default"], figures),
        *speeds(figures),
        *best(results["keys"], figures),
        *clock("by the clock on the wall", results.get("clock"), latency[0]),
        *clock("the same on Spark", results.get("spark-clock"), latency[1]),
        *index(results.get("index")),
    ]
    words = {True: "yes", False: "**no**", None: "-"}
    return [[what, wanted, measured, words[met]] for what, wanted, measured, met in found]


def statements(figures: dict[str, Figure]) -> list[Row]:
    """Count the verdicts on what the papers say."""
    found: list[Row] = []
    for paper in ("gedik2007", "dual2006"):
        mine = {name.removeprefix(f"{paper}/"): one for name, one in figures.items() if name.startswith(f"{paper}/")}
        verdicts = Counter(claim.verdict for claim in PAPERS[paper].claims(mine))
        said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        found.append((f"statements of {paper}", "a verdict for each", said, bool(verdicts)))
    return found


def default(settings: list[dict[str, Any]], figures: dict[str, Figure]) -> list[Row]:
    """Compare the default with dropping rows at random."""
    lowest = min(settings, key=lambda one: one["ratio"])
    clearly = all(one["ratio"] + ERRORS * one["error"] >= 1 for one in settings)
    found: list[Row] = [
        (
            f"the default over random-drop, {len(settings)} settings",
            f"never below 1 by more than {ERRORS} standard errors",
            f"{lowest['ratio']:.3f} ± {lowest['error']:.3f} at least",
            clearly,
        )
    ]
    for name in SELECTED:
        if name in figures:
            ratio = min(quotients(figures[name], "SELECTIVE", "RAND"))
            error = figures[name].settings.get("error at κ = 0.2", 0.0)
            met = ratio + ERRORS * error >= 1
            found.append(
                (f"the same in figure {name}", ">= 1", f"{ratio:.2f}{f' ± {error:.2f}' * (error > 0)} at least", met)
            )
    if GAINED in figures:
        ratio = min(min(curve) for curve in figures[GAINED].curves.values())
        found.append((f"the same in figure {GAINED}", ">= 1", f"{ratio:.2f} at least", ratio >= 1))
    return found


def fast(figure: Figure, mine: str, others: list[str]) -> list[float]:
    """Return one curve over the best of some others, where the CPU has not time for everything."""
    full = figure.settings["V_j"] / (1 + UPDATE)
    return [
        figure.curves[mine][at] / max(1e-9, *(figure.curves[name][at] for name in others))
        for at, speed in enumerate(figure.x)
        if speed > full
    ]


def speeds(figures: dict[str, Figure]) -> list[Row]:
    """Compare the dual window with rear-shedding alone and with random dropping, over entered rows."""
    found: list[Row] = []
    if "dual2006/5" in figures:
        figure = figures["dual2006/5"]
        above = [y for x, y in zip(figure.x, figure.curves["DUAL"], strict=True) if x > figure.settings["V_opt"]]
        rear = figure.curves["REAR"][-1] / max(figure.curves["REAR"])
        said = f"{min(above) / max(above):.2f} of its best at least; rear-shedding {rear:.2f}"
        met = min(above) > 0.93 * max(above) and rear < 0.05
        found.append(("DUAL above V_opt, over entered rows", "constant; rear-shedding falls to 0", said, met))
    for name in COMPARED:
        if name in figures:
            ratio = min(fast(figures[name], "DUAL", ["RAND"]))
            title = f"DUAL over random-drop above capacity, {figures[name].title}"
            found.append((title, "> 1", f"{ratio:.2f} at least", ratio > 1))
    if "dual2006/4" in figures:
        claim = PAPERS["dual2006"].claims({"4": figures["dual2006/4"]})[0]
        found.append(("V_opt measured and calculated", "within 5 %", claim.measured, claim.verdict == "holds"))
    return found


def best(keyed: list[dict[str, Any]], figures: dict[str, Figure]) -> list[Row]:
    """Compare the default on equal keys with the best of the others, over arrivals."""
    found: list[Row] = []
    others = [f"{name}{ARRIVALS}" for name in ("DUAL", "PROB", "RAND")]
    for name in COMPARED:
        if name in figures:
            share = min(fast(figures[name], f"AUTO{ARRIVALS}", others))
            title = f"`auto` over the best other one, {figures[name].title}"
            found.append((title, f">= {BEST}", f"{share:.3f} at least", share >= BEST))
    shares = [one["auto"] / max(one[name] for name in one if name not in {"streams", "rate"}) for one in keyed]
    title = f"`auto` over the best of six, {len(keyed)} settings"
    return [*found, (title, f">= {BEST}", f"{min(shares):.3f} at least", min(shares) >= BEST)]


def clock(title: str, measured: list[dict[str, Any]] | None, latency: float) -> list[Row]:
    """Compare joins by the clock on the wall with dropping rows at random by the same clock."""
    if measured is None:
        return [(title, f">= {TIMES}x random-drop, inside the latency", "not measured", None)]
    found: list[Row] = []
    runs = {(one["case"], one["speed"], one["method"]): one for one in measured}
    for (case, speed, method), one in runs.items():
        if method != "auto" or (case, speed, "random-drop") not in runs:
            continue
        what = f"{title}: {case}, {speed}x the sustainable rate, {one['minutes']:g} min"
        lag = f"{one['lag']:.2f} s; {one['late']:.1%} of the pushes late"
        found.append((f"{what}: longest lag", f"< {latency:g} s", lag, one["lag"] < latency))
        other, wanted = runs[case, speed, "random-drop"], f">= {TIMES}x random-drop"
        if other["rate"] == one["rate"]:
            ratio = times(one, other)
            found.append((f"{what}: pairs", wanted, f"{ratio:.2f}x", ratio >= TIMES))
        else:  # they were measured apart, with another rate in between
            found.append((f"{what}: pairs", wanted, f"random-drop had {other['rate']:,.0f} rows/s", None))
        if "controller" in one:
            own = one["controller"]
            found.append((f"{what}: controller", f"<= {OWN:.1%} of the time", f"{own:.2%}", own <= OWN))
    return found


def times(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return how many times the pairs of another run one found: by the row, if rows were counted."""
    rows = other["rows"] / one["rows"] if "rows" in one else 1.0
    return float(one["pairs"] / max(1, other["pairs"]) * rows)


def index(measured: list[dict[str, Any]] | None) -> list[Row]:
    """Compare the index on sets with the nested loop."""
    if measured is None:
        return [("indexed overlap join", f">= {INDEXED:g}x the nested loop", "not measured", None)]
    found: list[Row] = []
    for one in measured:
        times = one["seconds"]["nested"] / one["seconds"]["indexed"]
        what = f"indexed overlap join, {one['items']:,} items, 50,000 rows in a window"
        found.append((what, f">= {INDEXED:g}x the nested loop", f"{times:.1f}x", times >= INDEXED))
    return found
