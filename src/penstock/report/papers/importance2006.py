"""Importance-aware window joins 2006: figures 2 to 11, table 1, what they leave open, and its claims."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.engine import compare as comparing
from penstock.engine import offline
from penstock.engine.pump import Progress
from penstock.operator.join import settings_of
from penstock.policies.registry import Policy, policy
from penstock.report.figures import Figure
from penstock.report.papers.claims import Claim, Judges, between, judged, quotients, told
from penstock.report.papers.measuring import Steps
from penstock.report.papers.offline import cpu_seconds, megabytes
from penstock.streams.workloads import Importance, Relation, Workload, zipf

ROWS, WINDOW, DOMAIN, MEMORY, SEED = 5600, 400, 100, 200, 0
SMALL_WINDOW, SMALL_MEMORY = 10, (2, 4, 6, 8, 10, 14, 18)  # figure 2
LENGTHS = (800, 1600, 3200, 5600)  # figures 3, 5 and 7
LIFETIME, LIFETIMES = 20, (5, 10, 20, 40)  # figures 3 to 7: a twentieth of the paper's windows
MIDDLE_ROWS, MIDDLE_WINDOW, MIDDLE = 800, 12, (1, 3, 6, 9, 11)  # memory neither small nor large
WINDOWS = (200, 400, 600, 800)
MEMORIES = (100, 200, 300, 400, 500, 600, 700, 798)
DOMAINS = (50, 100, 200, 400, 800)
SKEWS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LOSSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
GAINS = (0.1, 1.0, 10.0)
LARGE_ROWS, LARGE_WINDOW, LARGE_MEMORY, LARGE_DOMAIN = 56_000, 2000, 800, 2000  # table 1
QUICK = 4  # a quick figure has streams, windows and memory so many times shorter
ONLINE = ("DGL", "DIMPPROB", "SIMPPROB", "PROB", "SIMP", "RAND")  # from best to worst, as the paper has them
OFFLINE = {"OPT": "bound", "EXACT": "exact"}
GAINED, WINDOW_LABEL, ROWS_LABEL = "importance of the result", "window (ticks)", "rows a side"
KINDS = {"rare": "5 % of the rows important", "special_keys": "5 % of the keys important"}
Curves = dict[str, list[float]]


def named(name: str, statistics: str) -> str | Policy:
    """Return an algorithm by the paper's name; its PROB counts matches once, and knows no distribution."""
    if name in OFFLINE or name in {"RAND", "SIMP"}:
        return OFFLINE.get(name, name.lower())
    if name == "PROB":
        return policy("simpprob", by="matches", statistics=statistics)
    return policy(name.lower(), statistics=statistics)


def join(window: int) -> dict[str, Any]:
    """Return the arguments of the join."""
    return {"on": "key", "time": "ts", "window": window, "importance": "importance", "combine": "min"}


def gathered(
    streams: Workload, window: int, memory: Sequence[int], chosen: Sequence[str | Policy], start: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Return the importance that each policy's result has by memory, and the seconds it took; memory is halved."""
    table = comparing.compare(
        streams.left,
        streams.right,
        settings_of(join(window)),
        policies=chosen,
        memory=memory,
        splits=["fixed"],
        count_from=start,
    )
    shape = (len(chosen), len(memory))
    gains, seconds = (np.array(table[name].to_pylist(), np.float64) for name in ("importance", "seconds"))
    return gains.reshape(shape).tolist(), seconds.reshape(shape).tolist()


def streams_of(
    less: int,
    *,
    keys: int = DOMAIN,
    skew: tuple[float, float] = (1.0, 0.0),
    relation: Relation = "uncorrelated",
    rows: int = ROWS,
    importance: Importance = "rare",
) -> Workload:
    """Return two streams of which one row, or key, in twenty is important, shorter if it must be quick."""
    return zipf(rows // less, keys=keys, skew=skew, relation=relation, importance=importance, seed=SEED)


def said(less: int, **more: Any) -> dict[str, Any]:
    """Return what a figure was measured on."""
    return {"rows": ROWS // less, "seed": SEED, **more}


# --- figures ------------------------------------------------------------------------------------------------


def small_windows(number: str, importance: Importance) -> Callable[[bool, Progress], Figure]:
    """Return the maker of figure 2: importance by memory of the best schedule, the largest result and RAND."""

    def make(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
        less = QUICK if quick else 1
        streams, start = streams_of(less, importance=importance), 2 * SMALL_WINDOW
        steps = Steps(1 + len(SMALL_MEMORY), progress)
        chosen: list[str | Policy] = ["exact", "bound", "rand", policy("rand", at="input")]
        found, _ = gathered(streams, SMALL_WINDOW, SMALL_MEMORY, chosen, start)
        steps.tell()
        curves: Curves = dict(zip(("EXACT", "ODJA/ESJA", "RAND", "RAND at the input"), found, strict=True))
        curves["SJA"] = []
        for size in SMALL_MEMORY:
            settings = settings_of(join(SMALL_WINDOW) | {"memory": size, "split": "fixed"})
            best = offline.optimum(streams.left, streams.right, settings, objective="count", count_from=start)
            curves["SJA"].append(gathered(streams, SMALL_WINDOW, [size], [best.replay()], start)[0][0][0])
            steps.tell()
        x = list(map(float, SMALL_MEMORY))
        title = f"Zipf 1 and 0, window {SMALL_WINDOW}, {KINDS[importance]}"
        return Figure(f"importance2006/{number}", title, "memory (tuples)", GAINED, x, curves, said(less))

    return make


def efficiency(
    number: str,
    x_label: str,
    x: Sequence[float],
    measured: Callable[[float], tuple[int, int, int]],
    cost: Callable[[str, Workload, int, int], float] = cpu_seconds,
) -> Callable[[bool, Progress], Figure]:
    """Return the maker of figures 3 to 7: what ODJA and ESJA, on the paper's network, take.

    `measured` gets a value of x and returns rows a side, window and places a side.
    """

    def make(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
        less = QUICK if quick else 1
        steps = Steps(2 * len(x), progress)
        curves: Curves = {"ODJA": [], "ESJA": []}
        for value in x:
            rows, window, limit = measured(value)
            streams = streams_of(less, rows=rows)
            for name, values in curves.items():
                values.append(cost(name, streams, window, limit))
                steps.tell()
        label = "CPU seconds" if cost is cpu_seconds else "memory taken on (MB)"
        rows, window, limit = measured(x[-1])
        title = f"up to {rows // less} rows a side, window {window}, M/2 = {limit}"
        return Figure(
            f"importance2006/{number}", title, x_label, label, list(x), curves, {"less": less, "seed": SEED}
        )

    return make


def over(
    number: str,
    x_label: str,
    x: Sequence[float],
    measured: Callable[[int, float, str], tuple[Workload, int, int, int]],
    statistics: str = "memory",
) -> Callable[[bool, Progress], Figure]:
    """Return the maker of a figure over one parameter: every algorithm at each of its values.

    `measured` gets how much shorter all must be, the value, and the statistics; it returns streams, window, memory
    and the first tick that counts.
    """

    def make(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
        less = QUICK if quick else 1
        steps = Steps(len(x), progress)
        names = (*ONLINE, "OPT", "EXACT")
        curves: Curves = {name: [] for name in names}
        for value in x:
            streams, window, memory, start = measured(less, value, statistics)
            chosen = [named(name, statistics) for name in names]
            for name, gains in zip(names, gathered(streams, window, [memory], chosen, start)[0], strict=True):
                curves[name].append(gains[0])
            steps.tell()
        title = f"matches counted in {'memory' if statistics == 'memory' else 'the window'}"
        return Figure(
            f"importance2006/{number}", title, x_label, GAINED, list(x), curves, said(less, statistics=statistics)
        )

    return make


def lifetimes(less: int, window: float, _statistics: str) -> tuple[Workload, int, int, int]:
    """Figure 8: by window."""
    return streams_of(less), int(window) // less, MEMORY // less, 2 * max(WINDOWS) // less


def memories(less: int, memory: float, _statistics: str) -> tuple[Workload, int, int, int]:
    """Figure 9: by memory."""
    return streams_of(less), WINDOW // less, int(memory) // less, 2 * WINDOW // less


def special_keys(less: int, memory: float, _statistics: str) -> tuple[Workload, int, int, int]:
    """Figure 9 again, where it is keys that are important and not rows."""
    streams = streams_of(less, importance="special_keys")
    return streams, WINDOW // less, int(memory) // less, 2 * WINDOW // less


def domains(less: int, keys: float, _statistics: str) -> tuple[Workload, int, int, int]:
    """Figure 10: by number of keys."""
    return streams_of(less, keys=int(keys)), WINDOW // less, MEMORY // less, 2 * WINDOW // less


def correlated(less: int, skew: float, _statistics: str) -> tuple[Workload, int, int, int]:
    """Figure 11: by skew, the same keys being frequent on both sides."""
    streams = streams_of(less, skew=(skew, skew), relation="correlated")
    return streams, WINDOW // less, MEMORY // less, 2 * WINDOW // less


def constants(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Measure what the paper leaves open: DGL over DIMPPROB by DGL's constants, on the streams of figure 9."""
    less = QUICK if quick else 1
    steps = Steps(len(GAINS), progress)
    streams, window, memory, start = memories(less, MEMORY, "memory")
    curves: Curves = {}
    for gain in GAINS:
        chosen = [named("DIMPPROB", "memory"), *(policy("dgl", gain=gain, loss=loss) for loss in LOSSES)]
        found = [gains[0] for gains in gathered(streams, window, [memory], chosen, start)[0]]
        curves[f"gain {gain:g}"] = [one / found[0] for one in found[1:]]
        steps.tell()
    label = "DGL's importance over DIMPPROB's"
    return Figure(
        "importance2006/constants",
        f"memory {memory}, window {window}",
        "loss",
        label,
        list(LOSSES),
        curves,
        said(less),
    )


def running_times(quick: bool, progress: Progress) -> Figure:  # noqa: FBT001
    """Make table 1: importance on large streams; the seconds each algorithm took are in the settings."""
    less = QUICK if quick else 1
    steps = Steps(1, progress)
    streams = streams_of(less, keys=LARGE_DOMAIN, rows=LARGE_ROWS)
    chosen = [named(name, "memory") for name in ONLINE]
    window, memory = LARGE_WINDOW // less, LARGE_MEMORY // less
    found, seconds = gathered(streams, window, [memory], chosen, 2 * window)
    steps.tell()
    took = {name: round(one[0], 3) for name, one in zip(ONLINE, seconds, strict=True)}
    settings = said(less) | {"rows": LARGE_ROWS // less, "window": window, "keys": LARGE_DOMAIN, "seconds": took}
    title = f"{settings['rows']} rows a side, window {window}"
    curves = dict(zip(ONLINE, found, strict=True))
    return Figure("importance2006/table1", title, "memory (tuples)", GAINED, [float(memory)], curves, settings)


FIGURES: dict[str, Callable[[bool, Progress], Figure]] = {
    "2": small_windows("2", "rare"),
    "2-special": small_windows("2-special", "special_keys"),
    "3": efficiency("3", ROWS_LABEL, LENGTHS, lambda rows: (int(rows), LIFETIME, 1)),
    "4": efficiency("4", WINDOW_LABEL, LIFETIMES, lambda window: (ROWS, int(window), 1)),
    "5": efficiency("5", ROWS_LABEL, LENGTHS, lambda rows: (int(rows), LIFETIME, LIFETIME - 1)),
    "6": efficiency("6", WINDOW_LABEL, LIFETIMES, lambda window: (ROWS, int(window), int(window) - 1)),
    "7": efficiency("7", ROWS_LABEL, LENGTHS, lambda rows: (int(rows), LIFETIME, 1), megabytes),
    "middle": efficiency("middle", "M/2 (tuples)", MIDDLE, lambda limit: (MIDDLE_ROWS, MIDDLE_WINDOW, int(limit))),
    "8": over("8", WINDOW_LABEL, WINDOWS, lifetimes),
    "9": over("9", "memory (tuples)", MEMORIES, memories),
    "9-window": over("9-window", "memory (tuples)", MEMORIES, memories, "window"),
    "9-special": over("9-special", "memory (tuples)", MEMORIES, special_keys),
    "10": over("10", "number of keys", DOMAINS, domains),
    "11": over("11", "Zipf parameter of both", SKEWS, correlated),
    "11-window": over("11-window", "Zipf parameter of both", SKEWS, correlated, "window"),
    "constants": constants,
    "table1": running_times,
}
TIMED = frozenset({"3", "4", "5", "6", "middle", "table1"})


# --- claims -------------------------------------------------------------------------------------------------


def claims(figures: Mapping[str, Figure]) -> list[Claim]:
    """Return what the paper says beside what the figures say, in the order of the paper.

    Parameters:
        figures: by name, as of ``FIGURES``; claims about figures that are not there are left out.
    """
    made: Judges = {
        "2": _small_windows(f"§5.1.1, figure 2, {KINDS['rare']}"),
        "2-special": _small_windows(f"§5.1.1, figure 2, {KINDS['special_keys']}"),
        "3": _faster(
            "figure 3, M/2 = 1",
            "ODJA is 481 % more efficient than ESJA at N = 800, and 700 % at N = 5600",
            first_ratio=5.81,
        ),
        "4": _faster(
            "figure 4, M/2 = 1",
            "ODJA's advantage over ESJA grows with the window, from 596 % to 689 %",
            first_ratio=6.96,
        ),
        "5": _faster(
            "figure 5, M/2 = w - 1",
            "ODJA and ESJA take nearly the same time at N = 800; the longer the streams, the better is ODJA",
            first_ratio=1.0,
        ),
        "6": _faster(
            "figure 6, M/2 = w - 1",
            "ODJA is ahead of ESJA, the more the smaller the window",
            grows=False,
        ),
        "middle": _middle,
        "7": _space,
        "8": _lifetimes,
        "9": _memories,
        "9-window": _ranking("§5.2.2, figure 9, matches counted in the window"),
        "9-special": _ranking(f"§5.2.2, figure 9, {KINDS['special_keys']}"),
        "10": _ranking("§5.2.3, figure 10"),
        "11": _correlated("§5.2.4, figure 11"),
        "11-window": _correlated("§5.2.4, figure 11, matches counted in the window"),
        "constants": _constants,
        "table1": _ranking("§5.2.5, table 1"),
    }
    return told(made, figures)


def _means(figure: Figure, names: Sequence[str]) -> dict[str, float]:
    """Return the mean of each curve as a share of the best of them at each point, from the best on."""
    best = np.max([figure.curves[name] for name in names], axis=0)
    shares = {name: float(np.mean(np.array(figure.curves[name]) / best)) for name in names}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _small_windows(where: str) -> Callable[[Figure], list[Claim]]:
    paper = {"ODJA/ESJA": (0.297, 0.01), "SJA": (0.753, 0.28), "RAND": (0.98, 0.804)}

    def judge(figure: Figure) -> list[Claim]:
        at = figure.x.index(10.0)
        errors = {
            name: [1 - figure.curves[name][i] / figure.curves["EXACT"][i] for i in (0, at)]
            for name in (*paper, "RAND at the input")
        }
        words = ", ".join(f"{name} {first:.1%} / {then:.1%}" for name, (first, then) in errors.items())
        off = [abs(a - b) for name, both in paper.items() for a, b in zip(errors[name], both, strict=True)]
        gap = quotients(figure, "ODJA/ESJA", "SJA")
        return [
            Claim(
                where,
                "at M/2 = 1 / 5 the errors are 29.7 % / 1 % (ODJA, ESJA), 75.3 % / 28 % (SJA), 98 % / 80.4 % (RAND)",
                words,
                judged(holds=max(off) < 0.1, partly=errors["ODJA/ESJA"][0] < errors["SJA"][0] < errors["RAND"][0]),
            ),
            Claim(
                where,
                "the largest result is consistently not the most important one",
                f"ODJA / SJA {between(gap)}",
                judged(holds=min(gap) > 1.0, partly=max(gap) > 1.0),
            ),
        ]

    return judge


def _faster(
    where: str, says: str, *, first_ratio: float | None = None, grows: bool = True
) -> Callable[[Figure], list[Claim]]:
    def judge(figure: Figure) -> list[Claim]:
        ratios = quotients(figure, "ESJA", "ODJA")
        first, last = (ratios[0], ratios[-1]) if grows else (ratios[-1], ratios[0])
        words = f"time of ESJA / ODJA {ratios[0]:.1f} at {figure.x[0]:g} {figure.x_label}, {ratios[-1]:.1f} at "
        near = first_ratio is None or first_ratio / 2 <= ratios[0] <= 2 * first_ratio
        verdict = judged(holds=near and min(ratios) >= 0.9 and last > first, partly=last > 1)
        return [Claim(where, says, f"{words}{figure.x[-1]:g}", verdict)]

    return judge


def _middle(figure: Figure) -> list[Claim]:
    ratios = dict(zip(figure.x, quotients(figure, "ODJA", "ESJA"), strict=True))
    most = max(ratios, key=lambda size: ratios[size])
    ends = (figure.x[0], figure.x[-1])
    return [
        Claim(
            "beside figure 6",
            "when memory is neither small nor large, ESJA is more efficient (not shown)",
            f"time of ODJA / ESJA {', '.join(f'{ratio:.1f} at M/2 = {size:g}' for size, ratio in ratios.items())}",
            judged(holds=ratios[most] > 1 and most not in ends),
        )
    ]


def _space(figure: Figure) -> list[Claim]:
    odja, esja = figure.curves["ODJA"], figure.curves["ESJA"]
    apart = f"ODJA {min(odja):.1f} to {max(odja):.1f} MB, ESJA {esja[0]:.1f} MB at N = {figure.x[0]:g}"
    return [
        Claim(
            "figure 7",
            "ODJA's space does not depend on N; ESJA takes 25.3 times as much at N = 800, 45.3 times at N = 5600",
            f"{apart}, {esja[-1]:.1f} MB at N = {figure.x[-1]:g}",
            judged(holds=max(odja) < 2 * min(odja) and esja[-1] > 2 * esja[0], partly=esja[-1] > max(odja)),
        )
    ]


def _ranked(figure: Figure, where: str, says: str) -> Claim:
    shares = _means(figure, ONLINE)
    worst = [shares[a] - shares[b] for a, b in pairwise(ONLINE)]
    words = ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
    first = next(iter(shares)) == "DGL"
    return Claim(where, says, f"share of the best online, mean: {words}", judged(holds=min(worst) >= 0, partly=first))


def _ranking(where: str) -> Callable[[Figure], list[Claim]]:
    says = "DGL is best, then DIMPPROB, SIMPPROB, PROB, SIMP, RAND"
    return lambda figure: [_ranked(figure, where, says)]


def _lifetimes(figure: Figure) -> list[Claim]:
    grows = figure.curves["OPT"][-1] / figure.curves["OPT"][0]
    rand = figure.curves["RAND"]
    return [
        _ranked(
            figure, "§5.2.1, figure 8", "whatever the window, DGL is best, then DIMPPROB and SIMPPROB; RAND is worst"
        ),
        Claim(
            "§5.2.1, figure 8",
            "OPT is 3.21 times larger at w = 800 than at 200, while RAND stays the same",
            f"OPT {grows:.2f} times, RAND {rand[-1] / rand[0]:.2f} times",
            judged(holds=grows > 2 and 0.8 < rand[-1] / rand[0] < 1.2, partly=grows > 2),
        ),
    ]


def _memories(figure: Figure) -> list[Claim]:
    leads = {name: quotients(figure, "DGL", name)[0] - 1 for name in ONLINE[1:]}
    paper = (0.032, 0.206, 0.476, 0.529, 0.778)
    off = [abs(lead - theirs) for lead, theirs in zip(leads.values(), paper, strict=True)]
    return [
        *_ranking("§5.2.2, figure 9")(figure),
        Claim(
            "§5.2.2, figure 9",
            "at M = 100 DGL leads DIMPPROB by 3.2 %, SIMPPROB 20.6 %, PROB 47.6 %, SIMP 52.9 %, RAND 77.8 %",
            ", ".join(f"{name} {lead:+.1%}" for name, lead in leads.items()),
            judged(holds=max(off) < 0.05, partly=min(leads.values()) > 0),
        ),
    ]


def _correlated(where: str) -> Callable[[Figure], list[Claim]]:
    def judge(figure: Figure) -> list[Claim]:
        leads = [float(np.mean(quotients(figure, name, "DGL"))) - 1 for name in ("DIMPPROB", "SIMPPROB")]
        return [
            Claim(
                where,
                "on correlated streams DIMPPROB and SIMPPROB are on average 2.1 % better than DGL",
                f"DIMPPROB {leads[0]:+.1%}, SIMPPROB {leads[1]:+.1%}",
                judged(holds=min(leads) > 0, partly=max(leads) > 0),
            )
        ]

    return judge


def _constants(figure: Figure) -> list[Claim]:
    ratios = [one for curve in figure.curves.values() for one in curve]
    least = ", ".join(f"{name}: {between(curve)}" for name, curve in figure.curves.items())
    return [
        Claim(
            "§4.3",
            "DGL is better than DIMPPROB (its constants are not named)",
            f"DGL / DIMPPROB for loss = {min(figure.x):g} to {max(figure.x):g}, {least}",
            judged(holds=min(ratios) > 1, partly=max(ratios) > 1),
        )
    ]
