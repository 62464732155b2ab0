"""Das, Gehrke, Riedewald 2003: figures 3 to 11, what the paper says without a figure, and its claims."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.engine import pump
from penstock.engine.pump import Progress
from penstock.operator.join import settings_of
from penstock.policies.cpu.controller import Cpu
from penstock.report.figures import Figure, relative
from penstock.report.papers import data
from penstock.report.papers.claims import Claim, Judges, between, judged, told
from penstock.report.papers.measuring import Setting, Steps, allocation, outputs
from penstock.streams.workloads import Relation, Workload, uniform, zipf

ROWS, WINDOW, DOMAIN, SEED = 5600, 400, 50, 0
SIZES = (0.1, 0.25, 0.5, 1.0, 1.5)  # of memory, in windows
SKEWS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
QUICK = 4  # a quick figure has streams and windows so many times shorter
MEMORY, OUTPUT, OF_OPT = "memory (tuples)", "output tuples", "fraction of OPT's output"
WEATHER_WINDOW, WEATHER_QUICK, WEATHER_SAMPLES = 5000, 30_000, 100
WEATHER_PATIENCE = 90.0  # seconds for the bound of OPT at one size of memory
QUEUES = {  # how a queue that overflows drops rows: the paper's ways, those of the two later papers, and the default
    "RAND": "random-drop",
    "MODULAR": "modular",
    "INTEGRATED": "integrated",
    "DUAL": "dual",
    "SELECTIVE": "selective",
    "AUTO": "auto",
}
LOADS = (1.25, 2.0, 3.0, 5.0)  # the work of the full join, over what there is time for
QUEUED = 10  # rows a tick of each side
EPOCH = datetime(1938, 1, 1, tzinfo=UTC)  # of the ship reports' times


# --- figures ------------------------------------------------------------------------------------------------


def _shorter(quick: bool) -> int:  # noqa: FBT001 - passed on as it came
    return QUICK if quick else 1


def zipf_setting(
    quick: bool,  # noqa: FBT001 - passed on as it came
    *,
    window: int = WINDOW,
    keys: int = DOMAIN,
    skew: float | tuple[float, float] = 1.0,
    relation: Relation = "uncorrelated",
) -> Setting:
    """Return two Zipf streams of the paper's length, shorter if it must be quick."""
    less = _shorter(quick)
    return Setting(zipf(ROWS // less, keys=keys, skew=skew, relation=relation, seed=SEED), window // less)


def said(setting: Setting, **more: Any) -> dict[str, Any]:
    """Return what a figure was measured on."""
    rows = setting.streams.left.num_rows
    return {"rows": rows, "window": setting.window, "count_from": setting.start, "seed": SEED, **more}


def by_memory(
    name: str,
    title: str,
    setting: Setting,
    names: Sequence[str],
    progress: Progress,
    of: str | None = None,
    **more: Any,
) -> Figure:
    """Return the figure of output by memory, or by memory as a fraction of one algorithm's."""
    memory = [2 * round(size * setting.window / 2) for size in SIZES]
    opts = sum(name.startswith("OPT") for name in names)
    splits = len({name.endswith("V") for name in names})
    curves = outputs(setting, memory, names, Steps(splits + opts * len(memory), progress))
    shown, label = (curves, OUTPUT) if of is None else (relative(curves, of), OF_OPT)
    return Figure(f"das2003/{name}", title, MEMORY, label, list(memory), shown, said(setting, **more))


def windows(number: str, window: int) -> Callable[[bool, Progress], Figure]:
    """Return the maker of figures 3 and 4: output by memory."""

    def make(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
        setting = zipf_setting(quick, window=window)
        names = ("RAND", "LIFE", "PROB", "OPT", "EXACT")
        title = f"Zipf 1, window {setting.window}"
        return by_memory(number, title, setting, names, progress, skew=1.0, keys=DOMAIN)

    return make


def uniform_input(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Make figure 5: output by memory on uniform keys."""
    less = _shorter(quick)
    setting = Setting(uniform(ROWS // less, keys=DOMAIN, seed=SEED), WINDOW // less)
    names = ("RAND", "LIFE", "PROB", "OPT", "EXACT")
    return by_memory("5", f"uniform keys, window {setting.window}", setting, names, progress, keys=DOMAIN)


def domains(number: str, keys: int) -> Callable[[bool, Progress], Figure]:
    """Return the maker of figures 9 to 11: output by memory as a fraction of OPT's."""

    def make(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
        setting = zipf_setting(quick, keys=keys)
        title = f"domain size {keys}, Zipf 1, window {setting.window}"
        return by_memory(
            number, title, setting, ("RAND", "PROB", "OPT", "EXACT"), progress, "OPT", keys=keys, skew=1.0
        )

    return make


def skew(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Make figure 6: output as a fraction of OPT's by skew, memory = window."""
    steps = Steps(2 * len(SKEWS), progress)
    curves: dict[str, list[float]] = {"RAND": [], "PROB": []}
    for value in SKEWS:
        setting = zipf_setting(quick, skew=value)
        found = relative(outputs(setting, [setting.window], ("RAND", "PROB", "OPT"), steps), "OPT")
        for name, values in curves.items():
            values.extend(found[name])
    title = f"uncorrelated Zipf, window = memory = {setting.window}"
    return Figure("das2003/6", title, "Zipf parameter", OF_OPT, list(SKEWS), curves, said(setting, keys=DOMAIN))


def correlation(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Measure what the paper says of correlated streams and does not show: PROB's fraction of OPT by skew."""
    relations: tuple[Relation, ...] = ("correlated", "uncorrelated", "anticorrelated")
    steps = Steps(2 * len(SKEWS) * len(relations), progress)
    curves: dict[str, list[float]] = {f"PROB, {relation}": [] for relation in relations}
    for relation, values in zip(relations, curves.values(), strict=True):
        for value in SKEWS:
            setting = zipf_setting(quick, skew=value, relation=relation)
            values.extend(relative(outputs(setting, [setting.window], ("PROB", "OPT"), steps), "OPT")["PROB"])
    title = f"Zipf, window = memory = {setting.window}"
    return Figure(
        "das2003/correlation", title, "Zipf parameter", OF_OPT, list(SKEWS), curves, said(setting, keys=DOMAIN)
    )


def variable(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Measure what the paper says of variable allocation and does not show: its gain, and the share of one stream."""
    samples = 20
    steps = Steps((4 + samples) * len(SKEWS), progress)
    curves: dict[str, list[float]] = {"PROBV / PROB": [], "OPTV / OPT": [], "share of R under PROBV": []}
    for value in SKEWS:
        setting = zipf_setting(quick, skew=(value, 0.0))
        memory = setting.window
        found = outputs(setting, [memory], ("PROB", "OPT", "PROBV", "OPTV"), steps)
        _, held = allocation(setting, memory, samples, steps)
        gains = (
            found["PROBV"][0] / found["PROB"][0],
            found["OPTV"][0] / found["OPT"][0],
            float(np.mean([live.left for live in held])) / memory,
        )
        for values, gain in zip(curves.values(), gains, strict=True):
            values.append(gain)
    title = f"S uniform, window = memory = {setting.window}"
    label = "ratio of outputs; share of memory"
    return Figure(
        "das2003/variable", title, "Zipf parameter of R", label, list(SKEWS), curves, said(setting, keys=DOMAIN)
    )


def weather_setting(quick: bool) -> Setting:  # noqa: FBT001
    """Return ship reports of 1941 and 1944 by 10-degree cell, one of each a tick, with their frequency tables."""
    path = data.found("ship_weather", "ww2.parquet")
    years = []
    for year in (1941, 1944):
        low, high = (int((datetime(at, 1, 1, tzinfo=UTC) - EPOCH).total_seconds()) for at in (year, year + 1))
        rows = pq.read_table(
            path, columns=["ts", "cell10"], filters=(pc.field("ts") >= low) & (pc.field("ts") < high)
        )
        years.append(rows["cell10"].to_numpy())
    length = min(cells.size for cells in years)
    length = min(length, WEATHER_QUICK) if quick else length
    tables, chances = [], []
    for cells in years:
        tables.append(pa.table({"ts": np.arange(length), "key": cells[:length].astype(np.int64)}))
        keys, counts = np.unique(cells[:length], return_counts=True)
        chances.append(dict(zip(keys.tolist(), (counts / length).tolist(), strict=True)))
    less = _shorter(quick)
    return Setting(Workload(*tables, *chances), WEATHER_WINDOW // less, WEATHER_PATIENCE / less**2)


def weather(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Make figure 7: output by memory on ship reports, with the data's own frequencies as probabilities.

    The paper has no OPT here, which its solver could not find; this has a bound of it.
    """
    setting = weather_setting(quick)
    title = f"ship reports 1941 x 1944, window {setting.window}"
    names = ("RAND", "RANDV", "PROB", "PROBV", "OPT (bound)", "EXACT")
    return by_memory("7", title, setting, names, progress, seconds_for_a_bound=setting.patience)


def weather_allocation(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Make figure 8: how PROBV divides memory between the two streams of ship reports, by time; memory = window."""
    setting = weather_setting(quick)
    memory = setting.window
    ticks, held = allocation(setting, memory, WEATHER_SAMPLES, Steps(WEATHER_SAMPLES, progress))
    curves = {"1941": [float(live.left) for live in held], "1944": [float(live.right) for live in held]}
    title = f"ship reports, window = memory = {memory}"
    label = "tuples in memory under PROBV"
    return Figure(
        "das2003/8", title, "tick", label, [float(tick) for tick in ticks], curves, said(setting, memory=memory)
    )


def slow_cpu(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Make the figure of a slow CPU: what is found beside a queue that overflows, by what decides who is dropped.

    Each way has the same part of the time that it takes itself to do everything: what it counts as work differs.
    """
    less = _shorter(quick)
    streams = zipf(4 * ROWS // less, keys=DOMAIN, relation="uncorrelated", rate=QUEUED, seed=SEED)
    join = {"on": "key", "time": "ts", "window": WINDOW // QUEUED}
    ticks = 4 * ROWS // less / QUEUED

    def run(method: str, work: float) -> tuple[float, float]:
        settings = settings_of({**join, "cpu": Cpu(work, method)})
        report = pump.run(streams.left, streams.right, settings, ledger="off").report
        return float(report.pairs), report.comparisons / ticks

    exact = run("selective", np.inf)
    steps = Steps(len(LOADS), progress)
    curves: dict[str, list[float]] = {name: [] for name in QUEUES}
    for load in LOADS:
        for name, method in QUEUES.items():
            full = exact[1] if method == "selective" else 2 * QUEUED * (1 + Cpu(1.0).update)
            curves[name].append(run(method, full / load)[0] / exact[0])
        steps.tell()
    settings = {"rows": streams.left.num_rows, "window": WINDOW, "seed": SEED}
    labels = "work of the full join, over what there is time for", "share of the pairs"
    return Figure("das2003/queue", "slow CPU, Zipf 1, uncorrelated", *labels, list(LOADS), curves, settings)


FIGURES: dict[str, Callable[[bool, Progress], Figure]] = {
    "3": windows("3", WINDOW),
    "4": windows("4", 2 * WINDOW),
    "5": uniform_input,
    "6": skew,
    "7": weather,
    "8": weather_allocation,
    "9": domains("9", 10),
    "10": domains("10", 50),
    "11": domains("11", 200),
    "correlation": correlation,
    "variable": variable,
    "queue": slow_cpu,
}


# --- claims -------------------------------------------------------------------------------------------------


def claims(figures: Mapping[str, Figure]) -> list[Claim]:
    """Return what the paper says beside what the figures say, in the order of the paper.

    Parameters:
        figures: by name, as of ``FIGURES``; claims about figures that are not there are left out.
    """
    made: Judges = {
        ("3", "4"): _windows,
        "5": _uniform,
        "6": _skew,
        "correlation": _correlation,
        "variable": _variable,
        ("9", "10", "11"): _domains,
        ("7", "8"): _weather,
        "queue": _slow_cpu,
    }
    return told(made, figures)


def _ratios(figure: Figure, of: str, to: str, upto: float = np.inf) -> list[float]:
    """Return one curve over another, for x up to a limit."""
    curves = zip(figure.x, figure.curves[of], figure.curves[to], strict=True)
    return [a / b for x, a, b in curves if x <= upto]


def _windows(*both: Figure) -> list[Claim]:
    def all_of(of: str, to: str, windows: float = 2.0) -> list[float]:
        return [one for figure in both for one in _ratios(figure, of, to, windows * figure.settings["window"])]

    rates = [
        pairs / size / (figure.curves["RAND"][-1] / figure.x[-1])
        for figure in both
        for size, pairs in zip(figure.x, figure.curves["RAND"], strict=True)
    ]
    named = zip(("figure 3", "figure 4"), both, strict=True)
    over_life, over_rand = all_of("PROB", "LIFE", 1.0), all_of("PROB", "RAND", 1.0)
    close, life = all_of("PROB", "OPT"), all_of("LIFE", "RAND", 0.5)
    half = [_ratios(figure, "PROB", "EXACT")[figure.x.index(figure.settings["window"])] for figure in both]
    return [
        Claim(
            "§4.1, figures 3 and 4",
            "RAND's output is linear in memory",
            f"output per tuple of memory, relative to the largest memory: {between(rates)}",
            judged(holds=0.9 <= min(rates) <= max(rates) <= 1.1),
        ),
        Claim(
            "§4.1, figures 3 and 4",
            "PROB is far better than RAND and LIFE",
            f"PROB / RAND {between(over_rand)}, PROB / LIFE {between(over_life)} for M up to w",
            judged(holds=min(over_rand + over_life) > 1.25, partly=min(over_rand) > 1.25),
        ),
        Claim(
            "§4.1, figures 3 and 4",
            "PROB is very close to OPT",
            "; ".join(f"{at}: PROB / OPT {between(_ratios(figure, 'PROB', 'OPT'))}" for at, figure in named),
            judged(holds=min(close) > 0.95, partly=max(close) > 0.95),
        ),
        Claim(
            "§4.2, figures 3 and 4",
            "LIFE is only marginally better than RAND",
            f"LIFE / RAND {between(life)} for M up to w / 2",
            judged(holds=max(life) < 1.2),
        ),
        Claim(
            "§4.6",
            "on skewed streams PROB gives over 90 % of the exact output with half the memory",
            f"PROB / EXACT {between(half)} at M = w (Zipf 1, D = {DOMAIN})",
            judged(holds=min(half) > 0.9),
        ),
    ]


def _uniform(figure: Figure) -> list[Claim]:
    online = [one for name in ("LIFE", "PROB") for one in _ratios(figure, name, "RAND")]
    best = _ratios(figure, "OPT", "RAND", figure.settings["window"])
    return [
        Claim(
            "§4.2, figure 5",
            "on uniform keys all online algorithms do equally poorly",
            f"PROB and LIFE / RAND {between(online)}",
            judged(holds=0.9 < min(online) <= max(online) < 1.1),
        ),
        Claim(
            "§4.2, figure 5",
            "on uniform keys even knowing the future is no major improvement",
            f"OPT / RAND {between(best)} for M up to w, PROB / OPT {between(_ratios(figure, 'PROB', 'OPT'))}",
            judged(holds=max(best) < 1.25),
        ),
    ]


def _skew(figure: Figure) -> list[Claim]:
    prob = dict(zip(figure.x, figure.curves["PROB"], strict=True))
    leads, at = _ratios(figure, "PROB", "RAND"), figure.x.index(1.0)
    high = [share for value, share in prob.items() if value >= 1]
    return [
        Claim(
            "§4.3, figure 6",
            "RAND and PROB are the same without skew, and PROB's lead grows with it",
            f"PROB / RAND {leads[0]:.2f} at Zipf 0, {leads[at]:.2f} at Zipf 1, {leads[-1]:.2f} at Zipf 2",
            judged(holds=abs(leads[0] - 1) < 0.1 and leads[0] < leads[at] < leads[-1]),
        ),
        Claim(
            "§4.3, figure 6",
            "with moderate to high skew PROB gives over 96 % of OPT's output at M = w",
            f"PROB / OPT {prob[1.0]:.2f} at Zipf 1, {prob[2.0]:.2f} at Zipf 2",
            judged(holds=min(high) > 0.96, partly=max(high) > 0.96),
        ),
    ]


def _correlation(figure: Figure) -> list[Claim]:
    at = figure.x.index(1.0)
    shares = {name.removeprefix("PROB, "): values[at] for name, values in figure.curves.items()}
    return [
        Claim(
            "§4.3",
            "correlation between the streams does not affect how the algorithms compare",
            f"PROB / OPT at Zipf 1: {', '.join(f'{name} {share:.2f}' for name, share in shares.items())}",
            judged(holds=max(shares.values()) - min(shares.values()) < 0.05),
        )
    ]


def _variable(figure: Figure) -> list[Claim]:
    prob, best, share = (figure.curves[name] for name in ("PROBV / PROB", "OPTV / OPT", "share of R under PROBV"))
    return [
        Claim(
            "§4.3",
            "variable allocation is better, the more the skews differ, but never by more than 10 %",
            f"S uniform, R up to Zipf 2: PROBV / PROB up to {max(prob):.2f}, OPTV / OPT up to {max(best):.2f}",
            judged(holds=max(*prob, *best) <= 1.1 and min(*prob, *best) >= 1, partly=min(*prob, *best) >= 1),
        ),
        Claim(
            "§4.3",
            "the stream with the higher Zipf parameter gets more memory, up to 75 %",
            f"R's share {share[0]:.0%} at Zipf 0, {share[-1]:.0%} at Zipf 2",
            judged(holds=share[-1] > 0.5 and max(share) <= 0.75, partly=share[-1] > 0.5),
        ),
    ]


def _domains(*three: Figure) -> list[Claim]:
    def at_window(figure: Figure, name: str) -> float:
        return figure.curves[name][figure.x.index(figure.settings["window"])]

    prob, exact = ([at_window(figure, name) for figure in three] for name in ("PROB", "EXACT"))
    sizes = " / ".join(str(figure.settings["keys"]) for figure in three)
    return [
        Claim(
            "§4.4, figures 9 to 11",
            "as the domain grows, PROB falls behind OPT",
            f"PROB / OPT at M = w, D = {sizes}: {' / '.join(f'{one:.2f}' for one in prob)}",
            judged(holds=prob[0] > prob[1] > prob[2], partly=prob[0] > prob[2]),
        ),
        Claim(
            "§4.4, figures 9 to 11",
            "as the domain grows, OPT comes closer to EXACT; with 200 keys they meet at M = w",
            f"EXACT / OPT at M = w, D = {sizes}: {' / '.join(f'{one:.3f}' for one in exact)}",
            judged(holds=exact[0] > exact[1] >= exact[2] and exact[2] < 1.005, partly=exact[0] > exact[2]),
        ),
    ]


def _weather(output: Figure, memory: Figure) -> list[Claim]:
    at = output.x.index(output.settings["window"])
    prob, shared = (output.curves[name][at] / output.curves["EXACT"][at] for name in ("PROB", "PROBV"))
    gains, close = _ratios(output, "PROBV", "PROB"), _ratios(output, "PROB", "OPT (bound)")
    share = [one / memory.settings["memory"] for one in memory.curves["1941"]]
    return [
        Claim(
            "§4.5, figure 7",
            "on weather reports PROB and PROBV give over 90 % of the exact output with half the memory",
            f"ship reports: PROB {prob:.1%}, PROBV {shared:.1%} of EXACT at M = w",
            judged(holds=min(prob, shared) > 0.9),
        ),
        Claim(
            "§4.6",
            "PROB is close to OPT on real data too (OPT itself was out of reach)",
            f"ship reports: PROB / a proved bound of OPT {between(close)}",
            judged(holds=min(close) > 0.95, partly=max(close) > 0.95),
        ),
        Claim(
            "§4.5, figure 7",
            "PROB and PROBV are almost the same on weather reports",
            f"ship reports: PROBV / PROB {between(gains)}",
            judged(holds=0.95 < min(gains) <= max(gains) < 1.05, partly=abs(gains[at] - 1) < 0.05),
        ),
        Claim(
            "§4.5, figure 8",
            "PROBV's allocation stays near half and half",
            f"ship reports: the share of 1941 is {min(share):.0%} to {max(share):.0%}",
            judged(holds=0.4 <= min(share) <= max(share) <= 0.6),
        ),
    ]


def _slow_cpu(figure: Figure) -> list[Claim]:
    known = _ratios(figure, "INTEGRATED", "MODULAR")
    rest = [name for name in QUEUES if name != "AUTO"]
    best = [max(figure.curves[name][at] for name in rest) for at in range(len(figure.x))]
    auto = [mine / max(theirs, 1e-9) for mine, theirs in zip(figure.curves["AUTO"], best, strict=True)]
    return [
        Claim(
            "§2.1, slow CPU",
            "(left open) a queue that looks at memory too drops better than one that knows statistics of keys alone",
            f"INTEGRATED / MODULAR {between(known)}",
            judged(holds=min(known) >= 1, partly=max(known) > 1),
        ),
        Claim(
            "§2.1, slow CPU",
            "(ours) the default is the best of the three papers' answers",
            f"AUTO / the best other one {between(auto)}",
            judged(holds=min(auto) >= 0.98, partly=max(auto) >= 0.98),
        ),
    ]
