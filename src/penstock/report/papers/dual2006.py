"""Dual-window load shedding, 2006: figures 4 to 9, and what the paper says of them.

Speeds are rows per second of each stream. The CPU makes V_j probes or V_w updates a second for each stream; these are
chosen so that V_opt of figure 5 is the paper's. Curves are pairs per second after a warm-up. Windows are over
entered rows, as in the paper, or over arrivals, where what is found is part of the exact join.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.core.windows import Floats, Ints
from penstock.engine import pump
from penstock.engine.pump import Progress
from penstock.operator.join import settings_of
from penstock.policies.cpu import speeds
from penstock.policies.cpu.controller import Cpu
from penstock.report.figures import Figure
from penstock.report.papers import data
from penstock.report.papers.claims import Claim, Judges, between, judged, told
from penstock.report.papers.measuring import Steps
from penstock.streams.times import Rows
from penstock.streams.workloads import Workload, uniform, zipf

KEYS, WINDOW = 50, 400
UPDATE = 0.25  # V_j / V_w
V_OPT = 117.396  # of figure 5, as the paper has it
SECOND = 1000  # ticks
SPEEDS = (60, 100, 150, 250, 400, 700)
AROUND = (0.6, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.5, 2.0)  # of V_opt
NAMES = {"RAND": "random-drop", "PROB": "modular", "DUAL": "dual", "REAR": "rear", "AUTO": "auto"}
SLOWER = (40, 60, 80, 100, 150, 250)  # for streams that are not long
LONG, SHORT = 16, 5  # windows, at a speed that leaves time for everything
COUNTED = 0.3, 0.85  # of the time: before, windows fill; after, aux-windows are not emptied
LABELS = "stream speed V_s, rows per second", "pairs per second"
ARRIVALS = ", over arrivals"


class Setting(NamedTuple):
    """Two streams without times, and what the CPU can do."""

    left: Ints  # keys
    right: Ints
    seconds: float  # for which they are looked at, if they are so long
    window: int
    probe: float  # V_j
    chances: tuple[Floats, Floats]

    @property
    def best(self) -> float:
        """V_opt."""
        return speeds.best_speed(*self.chances, window=self.window, probe=self.probe, update=self.probe / UPDATE)[0]

    def table(self, keys: Ints, speed: float) -> pa.Table:
        """Return a stream at a speed."""
        return pa.table({"ts": (np.arange(keys.size) * (SECOND / speed)).astype(np.int64), "key": keys})

    def run(self, name: str, speed: float) -> float:
        """Return the pairs per second of a method."""
        method, _, over = name.partition(",")
        cpu = Cpu(
            2 * self.probe / SECOND,
            NAMES[method],
            update=UPDATE,
            over="arrivals" if over else "entered",
        )
        rows = int(min(self.seconds * speed, self.left.size))
        left, right = self.left[:rows], self.right[:rows]
        tables = self.table(left, speed), self.table(right, speed)
        asked = {"on": "key", "time": "ts", "window": Rows(self.window), "cpu": None if method == "EXACT" else cpu}
        joined = pump.run(*tables, settings_of(asked), ledger="off").table
        begin, end = (int(part * left.size / speed * SECOND) for part in COUNTED)
        when = np.maximum(joined["ts_left"].to_numpy(), joined["ts_right"].to_numpy())
        return float(((when >= begin) & (when < end)).sum()) / (end - begin) * SECOND

    def optimum(self, speed: float) -> float:
        """Return the pairs per second of DUAL if it knew all counts: the globally best share is probed."""
        enters = min(speed, self.best)
        kept = [keys[np.random.default_rng(1).random(keys.size) < enters / speed] for keys in (self.left, self.right)]
        size = min(map(len, kept))
        counts = np.concatenate(
            [
                partners(kept[0][:size], kept[1][:size], self.window, 0),
                partners(kept[1][:size], kept[0][:size], self.window, 1),
            ]
        )
        probed = max(0.0, min(1.0, self.probe / enters - UPDATE))
        best = -np.sort(-counts)[: round(probed * counts.size)]
        return float(best.sum()) / counts.size * 2 * enters


def partners(keys: Ints, others: Ints, window: int, also: int) -> Ints:
    """Return how many of the last `window` rows of the other stream have the key of each row.

    The last one is the row before; with `also` it is that of the same number.
    """
    order = np.lexsort((np.arange(others.size), others))
    joint = others[order] * (others.size + 1) + order
    row = np.arange(keys.size)
    end = np.searchsorted(joint, keys * (others.size + 1) + row + also)
    begin = np.searchsorted(joint, keys * (others.size + 1) + np.maximum(0, row + also - window))
    return end - begin


def _probe_speed() -> float:
    """Return V_j, with which V_opt of figure 5 is the paper's."""
    chance = 1 / np.arange(1, KEYS + 1)
    chance /= chance.sum()
    return V_OPT / speeds.best_speed(chance, chance, window=WINDOW, probe=1.0, update=1 / UPDATE)[0]


def synthetic(draw: Callable[..., Workload], window: int, *, quick: bool, **given: Any) -> Setting:
    """Return drawn streams, some windows long."""
    probe = _probe_speed()
    seconds = (SHORT if quick else LONG) * window * (1 + UPDATE) / probe
    streams = draw(int(seconds * max(SPEEDS)) + 1, keys=KEYS, seed=6, **given)
    chances = [np.array(list(side.values())) for side in (streams.left_chances, streams.right_chances)]
    keys = [side["key"].to_numpy() for side in (streams.left, streams.right)]
    return Setting(keys[0], keys[1], seconds, window, probe, (chances[0], chances[1]))


def tower(*, quick: bool) -> Setting:
    """Return air temperatures of 2015 and 2018 at a tower, to a tenth of a degree."""
    rows = pq.read_table(data.found("flux_tower", "ch_dav.parquet"), columns=["year", "key_01c"])
    years = [rows.filter(pc.equal(rows["year"], year))["key_01c"].drop_null().to_numpy() for year in (2015, 2018)]
    size = min(map(len, years)) // (3 if quick else 1)
    keys = [year[:size].astype(np.int64) for year in years]
    low = min(int(side.min()) for side in keys)
    chances = [np.bincount(side - low, minlength=600)[:600] / size for side in keys]
    return Setting(keys[0] - low, keys[1] - low, np.inf, 1000, _probe_speed(), (chances[0], chances[1]))


# --- figures ------------------------------------------------------------------------------------------------


def _expected(setting: Setting, speed: float) -> float:
    """Return the pairs per second of REAR by the analysis."""
    chances = np.array(setting.chances)
    window, half = np.full(2, float(setting.window)), np.full(2, 0.5)
    probes = setting.probe / speed
    share = min(1.0, probes / UPDATE)
    load = speeds.Load(chances, np.ones(chances.shape[1]), half, window, probes, UPDATE, over_entered=True)
    return float(speeds.output_by_lot(load, np.array([share]))[0]) * 2 * speed


def curve(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001 - passed on as it came
    """Make figure 4: what rear-shedding alone gives by speed, calculated and measured."""
    setting = synthetic(zipf, WINDOW, quick=quick, relation="correlated")
    x = [setting.best * part for part in AROUND]
    steps = Steps(len(x), progress)
    measured = []
    for speed in x:
        measured.append(setting.run("REAR", speed))
        steps.tell()
    curves = {"REAR": measured, "REAR, calculated": [_expected(setting, speed) for speed in x]}
    return Figure("dual2006/4", "Zipf 1, window 400", *LABELS, x, curves, {"V_opt": setting.best})


def compared(
    number: str, title: str, make: Callable[..., Setting], names: Sequence[str], x: Sequence[int] = SPEEDS
) -> Callable[[bool, Progress], Figure]:
    """Return the maker of a figure that compares methods by speed."""

    def figure(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
        setting = make(quick=quick)
        steps = Steps(len(x), progress)
        curves: dict[str, list[float]] = {name: [] for name in names}
        for speed in x:
            for name in names:
                curves[name].append(setting.optimum(speed) if name == "OPT" else setting.run(name, float(speed)))
            steps.tell()
        settings = {
            "V_opt": setting.best,
            "V_j": setting.probe,
            "V_w": setting.probe / UPDATE,
            "window": setting.window,
        }
        return Figure(f"dual2006/{number}", title, *LABELS, [float(speed) for speed in x], curves, settings)

    return figure


ALL = ("OPT", "DUAL", "PROB", "RAND", *(f"{name}{ARRIVALS}" for name in ("AUTO", "DUAL", "PROB", "RAND")))


def _zipf(window: int) -> Callable[..., Setting]:
    return lambda *, quick: synthetic(zipf, window, quick=quick, relation="correlated")


FIGURES: dict[str, Callable[[bool, Progress], Figure]] = {
    "4": curve,
    "5": compared("5", "Zipf 1, window 400", _zipf(WINDOW), ("DUAL", "REAR")),
    "6": compared("6", "Zipf 1, window 400", _zipf(WINDOW), ALL),
    "7": compared("7", "Zipf 1, window 800", _zipf(2 * WINDOW), ALL),
    "8": compared("8", "uniform, window 400", lambda *, quick: synthetic(uniform, WINDOW, quick=quick), ALL),
    "9": compared("9", "air temperature 2015 x 2018, window 1000", tower, ALL, SLOWER),
}


# --- claims -------------------------------------------------------------------------------------------------


def claims(figures: Mapping[str, Figure]) -> list[Claim]:
    """Return the paper's claims that these figures can judge."""
    judges: Judges = {
        "4": _peak,
        "5": _constant,
        "6": partial(_better, where="figure 6", what="Zipf 1, W = 400"),
        "7": partial(_better, where="figure 7", what="Zipf 1, W = 800"),
        "9": partial(_better, where="figure 9", what="air temperature"),
        "8": _uniform,
    }
    return told(judges, figures)


def _fast(figure: Figure, name: str, other: str) -> list[float]:
    """Return one curve over another, where the CPU has not time for everything."""
    full = figure.settings["V_j"] / (1 + UPDATE)
    both = zip(figure.x, figure.curves[name], figure.curves[other], strict=True)
    return [mine / max(theirs, 1e-9) for speed, mine, theirs in both if speed > full]


def _peak(figure: Figure) -> list[Claim]:
    best = figure.settings["V_opt"]
    speed, found = np.array(figure.x) / best, np.array(figure.curves["REAR"])
    near = (speed > 0.7) & (speed < 1.4)
    a, b, _ = np.polyfit(speed[near], found[near], 2)
    peak = float(-b / (2 * a))
    return [
        Claim(
            "§4, figure 4",
            "the calculated V_opt is where the output of rear-shedding is highest",
            f"calculated {best:.1f}; the peak of a parabola through what was measured is at {peak:.3f} of that",
            judged(holds=bool(a < 0) and 0.95 < peak < 1.05),
        )
    ]


def _constant(figure: Figure) -> list[Claim]:
    best = figure.settings["V_opt"]
    above = [y for x, y in zip(figure.x, figure.curves["DUAL"], strict=True) if x > best]
    last = figure.curves["REAR"][-1] / max(figure.curves["REAR"])
    spread = [one / max(above) for one in above]
    return [
        Claim(
            "§5.1, figure 5",
            "above V_opt DUAL keeps its output; rear-shedding alone falls to zero",
            f"above V_opt DUAL is at {between(spread)} of its best, REAR at {last:.2f} at the highest speed",
            judged(holds=min(spread) > 0.93 and last < 0.05, partly=last < 0.05),
        )
    ]


def _best_of_arrivals(figure: Figure, where: str, what: str) -> Claim:
    names = [f"{name}{ARRIVALS}" for name in ("DUAL", "PROB", "RAND")]
    ratios = [
        min(_fast(figure, f"AUTO{ARRIVALS}", name)[at] for name in names)
        for at in range(len(_fast(figure, "DUAL", "RAND")))
    ]
    return Claim(
        where,
        "(ours) over arrivals AUTO is the best of them at every speed above capacity",
        f"{what}: AUTO / the best of DUAL, PROB and RAND {between(ratios)}",
        judged(holds=min(ratios) >= 0.98, partly=max(ratios) >= 0.98),
    )


def _better(figure: Figure, where: str, what: str) -> list[Claim]:
    rand, prob = _fast(figure, "DUAL", "RAND"), _fast(figure, "DUAL", "PROB")
    return [
        Claim(
            f"§5, {where}",
            "DUAL works much better than PROB and RAND, most at high speeds",
            f"{what}: DUAL / RAND {between(rand)}, DUAL / PROB {between(prob)}",
            judged(holds=min(rand) > 1.1 and min(prob) > 1.1, partly=min(rand) > 1.1),
        ),
        _best_of_arrivals(figure, where, what),
    ]


def _uniform(figure: Figure) -> list[Claim]:
    prob, rand, dual = _fast(figure, "PROB", "RAND"), _fast(figure, "DUAL", "RAND"), _fast(figure, "DUAL", "PROB")
    return [
        Claim(
            "§5.3, figure 8",
            "on uniform keys PROB is as poor as RAND, and DUAL better than both",
            f"PROB / RAND {between(prob)}, DUAL / RAND {between(rand)}, DUAL / PROB {between(dual)}",
            judged(holds=max(prob) < 1.1 and min(rand) > 1 and min(dual) > 1, partly=min(rand) > 1),
        ),
        _best_of_arrivals(figure, "figure 8", "uniform"),
    ]
