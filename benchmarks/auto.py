"""Measure `auto` beside the best other policy, by workload and memory (`make bench-auto`).

Every policy that knows the past only is measured on every workload, beside three that are told the true chances of
the keys or count all of the past, and what nothing exceeds: the bound that the optimum proves in a few seconds.
Results are kept in benchmarks/auto.json, each workload as soon as it is measured; docs/auto.md has tables of them.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as pen
from benchmarks import quality, registry_tables
from benchmarks.registry_tables import ROOT
from penstock.report.papers import das2003, importance2006
from penstock.streams.workloads import Workload, surge, zipf

RESULTS = Path(__file__).with_name("auto.json")
PAGE = ROOT / "docs" / "auto.md"
DATA = Path(os.environ.get("PENSTOCK_DATA", ROOT.parent / "shared" / "data"))
ROWS, WINDOW, SEEDS = quality.ROWS, quality.WINDOW, range(10)
SHARES = (0.05, 0.1, 0.25, 0.5)  # of the memory that the exact join needs
FEWER = range(5)  # seeds of the papers' own settings, of which there are many
PROVED, LIMIT = range(2), 10.0  # seeds that the optimum is asked for, and the seconds it has for each memory
ENOUGH = 0.98  # of the best other policy
QUANTILES = {5: 2.776, 10: 2.262}  # of Student's t, by seeds: 95 % of so many runs
ONLINE = ("rand", "oldest", "lru", "age", "life", "prob", "simp", "simpprob", "dimpprob", "dgl")
INFORMED = ("prob", "life", "dimpprob")  # these can be told the chances, or count all of the past
ALL_PAST = "prob, history"
BOUND = quality.BOUND
IMPORTANT = {"rare": "rare rows", "special_keys": "some keys"}
REAL_ROWS = 40_000
Streams = tuple[pa.Table, pa.Table]
Found = dict[str, list[list[float]]]  # policy -> seed -> memory


class Case(NamedTuple):
    """Streams to compare policies on."""

    draw: Callable[[int], Workload | Streams]  # by seed
    window: Any = WINDOW
    needs: int = 2 * WINDOW  # rows that the exact join holds
    key: str = "key"
    importance: str | None = None
    data: str = ""  # the set that it is read from: it has one seed
    memory: tuple[int, ...] = ()  # those of a paper, with a fixed split; else shares of what the exact join needs

    @property
    def sizes(self) -> list[int]:
        """The budgets, in rows."""
        return list(self.memory) or [round(share * self.needs) for share in SHARES]

    @property
    def seeds(self) -> range:
        """The seeds of the streams."""
        return FEWER if self.memory else SEEDS[:1] if self.data else SEEDS

    @property
    def how(self) -> dict[str, Any]:
        """The arguments of the join, without a budget."""
        split = "fixed" if self.memory else "shared"
        return {"on": self.key, "time": "ts", "window": self.window, "split": split, "importance": self.importance}

    @property
    def start(self) -> int | None:
        """The time from which pairs count."""
        return None if self.data else 2 * max(WINDOW, self.window if self.memory else 0)


def drawn(**given: Any) -> Callable[[int], Workload]:
    """Say how to draw two streams of the papers' length."""
    return lambda seed: zipf(ROWS, seed=seed, **given)


def papers() -> dict[str, Case]:
    """Return the workloads of das2003 and importance2006."""
    cases = {f"Zipf {skew}": Case(drawn(keys=50, skew=skew)) for skew in (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)}
    cases |= {f"Zipf 1, {keys} keys": Case(drawn(keys=keys)) for keys in (10, 200)}
    cases["Zipf 1, window 800"] = Case(drawn(keys=50), 2 * WINDOW, 4 * WINDOW)
    for relation in ("correlated", "anticorrelated"):
        cases |= {
            f"Zipf {skew}, {relation}": Case(drawn(keys=50, skew=skew, relation=relation)) for skew in (0.5, 1, 2)
        }
    cases |= {f"Zipf {skew} and 0": Case(drawn(keys=50, skew=(skew, 0.0))) for skew in (0.5, 1.0, 2.0)}
    for kind, name in IMPORTANT.items():
        for relation in ("uncorrelated", "correlated"):
            for label, given in (
                ("Zipf 1, 50 keys", {"keys": 50}),
                ("Zipf 1, 400 keys", {"keys": 400}),
                ("Zipf 0.6", {"keys": 100, "skew": 0.6}),
                ("uniform", {"keys": 100, "skew": 0.0}),
            ):
                draw = drawn(importance=kind, relation=relation, **given)
                cases[f"importance of {name}, {label}, {relation}"] = Case(draw, importance="importance")
    return cases


def own() -> dict[str, Case]:
    """Return the papers' own settings, as ``penstock.report.papers`` measures their figures: with a fixed split."""
    cases = {}
    halves = tuple(round(size * das2003.WINDOW) for size in das2003.SIZES)
    for skew in das2003.SKEWS:
        draw = drawn(keys=das2003.DOMAIN, skew=skew)
        cases[f"das2003, Zipf {skew}"] = Case(draw, das2003.WINDOW, memory=halves)
    draw = drawn(keys=das2003.DOMAIN, skew=1.0)
    cases["das2003, window 800"] = Case(draw, 2 * das2003.WINDOW, memory=tuple(2 * size for size in halves))
    settings: dict[str, tuple[dict[str, Any], int, tuple[int, ...]]] = {
        "Zipf 1 and 0": ({}, importance2006.WINDOW, importance2006.MEMORIES)
    }
    small = (importance2006.MEMORY,)
    settings |= {f"window {window}": ({}, window, small) for window in importance2006.WINDOWS}
    settings |= {f"{keys} keys": ({"keys": keys}, importance2006.WINDOW, small) for keys in importance2006.DOMAINS}
    for skew in importance2006.SKEWS:
        given = {"skew": (skew, skew), "relation": "correlated"}
        settings[f"Zipf {skew}, correlated"] = (given, importance2006.WINDOW, small)
    for kind, name in IMPORTANT.items():
        for label, (given, window, memory) in settings.items():
            draw = drawn(**{"keys": importance2006.DOMAIN, "skew": (1.0, 0.0), "importance": kind} | given)
            cases[f"importance2006, {name}, {label}"] = Case(draw, window, importance="importance", memory=memory)
    return cases


def bursting(seed: int) -> Workload:
    """Draw streams with a surge of ten rows a tick."""
    return surge(ROWS, seed=seed)


def by_row(rows: pa.Table) -> pa.Table:
    """Return rows with their number as the time."""
    return rows.set_column(rows.column_names.index("ts"), "ts", pa.array(np.arange(rows.num_rows)))


def ships(_seed: int) -> Streams:
    """Return the reports of odd and of even ships, by cell (das2003's weather)."""
    rows = pq.read_table(DATA / "ship_weather" / "ww2.parquet", columns=["ts", "cell10", "ship"])
    odd = pa.array(rows["ship"].to_numpy() % 2 == 1)
    return by_row(rows.filter(odd)[:REAL_ROWS]), by_row(rows.filter(pc.invert(odd))[:REAL_ROWS])


def stocks(_seed: int) -> Streams:
    """Return orders and trades, by id, with the burst at the start."""
    orders, trades = (pq.read_table(DATA / "sse_orders_trades" / f"{name}.parquet") for name in ("orders", "trades"))
    return orders[: 2 * REAL_ROWS], trades[: 2 * REAL_ROWS]


def retail(_seed: int) -> Streams:
    """Return invoice lines of one country and of all others, by item, with their amounts; no cancellations."""
    rows = pq.read_table(
        DATA / "online_retail" / "lines.parquet", columns=["ts", "item_id", "country", "amount_pence"]
    )
    rows = rows.filter(pc.greater(rows["amount_pence"], 0))
    home = pc.equal(rows["country"], "United Kingdom")
    return rows.filter(home)[: 2 * REAL_ROWS], rows.filter(pc.invert(home))[: REAL_ROWS // 5]


def beyond() -> dict[str, Case]:
    """Return streams that drift, lag or burst, and real ones."""
    last = pen.rows(2000)
    return {
        "popular keys change every 5 windows": Case(quality.drifting),
        "one repeats the other after 5/8 of the window": Case(quality.lagging),
        "surge, Zipf 1": Case(bursting, needs=20 * WINDOW),
        "ships by cell": Case(ships, 5000, 10_000, key="cell10", data="ship_weather"),
        "orders and trades": Case(stocks, last, 4000, data="sse_orders_trades"),
        "retail": Case(retail, last, 4000, key="item_id", data="online_retail"),
        "retail, importance is the amount": Case(retail, last, 4000, "item_id", "amount_pence", "online_retail"),
    }


def contenders(streams: Workload | Streams) -> dict[str, Any]:
    """Return the policies to compare on streams, by name."""
    policies: dict[str, Any] = {name: name for name in ("auto", *ONLINE)}
    for name in INFORMED:
        if isinstance(streams, Workload):
            known = pen.table(left=streams.left_chances, right=streams.right_chances)
            policies[f"{name}, told"] = pen.policy(name, statistics=known)
        policies[f"{name}, history"] = pen.policy(name, statistics="history")
    return policies


def measure(case: Case, only: Sequence[str] = ()) -> Found:
    """Return the pairs or the importance that each policy, or each of some, finds, by memory and seed."""
    found: Found = {}
    for seed in case.seeds:
        streams = case.draw(seed)
        policies = contenders(streams)
        if only:
            policies = {name: policy for name, policy in policies.items() if name in only}
        if policies:
            table = pen.compare(
                streams[0],
                streams[1],
                **case.how,
                policies=[*policies.values()],
                memory=case.sizes,
                count_from=case.start,
            )
            value = np.array(table["importance" if case.importance else "pairs"].to_pylist(), np.float64)
            for name, row in zip(policies, value.reshape(len(policies), len(case.sizes)).tolist(), strict=True):
                found.setdefault(name, []).append(row)
        if seed in PROVED and (not only or BOUND in only):
            found.setdefault(BOUND, []).append([bound_of(case, streams, size) for size in case.sizes])
    return found


def bound_of(case: Case, streams: Workload | Streams, size: int) -> float:
    """Return what nothing exceeds, as far as it is proved in time."""
    return pen.optimum(
        streams[0],
        streams[1],
        **case.how,
        memory=size,
        objective="importance" if case.importance else "count",
        count_from=case.start,
        time_limit=LIMIT,
    ).bound


class Cell(NamedTuple):
    """What `auto` finds beside others, with one memory."""

    best: str
    to_best: float
    off: float | None  # of the 95 % interval of that
    to_bound: float | None
    to_prob: float
    to_past: float | None  # of all of the past, to the best

    def __str__(self) -> str:
        off = "" if self.off is None else f" ± {self.off:.3f}"
        share = "" if self.to_bound is None else f" ({self.to_bound:.3f})"
        return f"{self.to_best:.3f}{off} {self.best}{share}"


def cells(found: Found) -> Iterator[Cell]:
    """Yield the cells of a workload, by memory."""
    means = {policy: np.mean(values, axis=0) for policy, values in found.items()}
    for at in range(len(found["auto"][0])):
        best = max(
            (policy for policy in means if policy not in {"auto", BOUND}), key=lambda policy: means[policy][at]
        )
        ratio = np.array([mine[at] / theirs[at] for mine, theirs in zip(found["auto"], found[best], strict=True)])
        bounds = [row[at] for row in found.get(BOUND, [])]
        yield Cell(
            best,
            means["auto"][at] / means[best][at],
            QUANTILES[ratio.size] * ratio.std(ddof=1) / np.sqrt(ratio.size) if ratio.size > 1 else None,
            sum(row[at] for row in found["auto"][: len(bounds)]) / sum(bounds) if bounds else None,
            means["auto"][at] / means["prob"][at],
            means[ALL_PAST][at] / means[best][at] if ALL_PAST in means else None,
        )


def page(results: Mapping[str, Found]) -> str:
    """Return what `auto` finds relative to the best other policy, with its name, by kind of workload."""
    head = ["streams", *(f"{share:.0%}" for share in SHARES)]
    parts, misses = [], []
    for title, cases in {"the papers' workloads": papers(), "drift, lags, bursts and real data": beyond()}.items():
        known = {name: list(cells(results[name])) for name in cases if name in results}
        if known:
            rows = [[name, *map(str, row)] for name, row in known.items()]
            parts += [registry_tables.table(head, rows), summary(title, known)]
            misses += [
                miss for name, row in known.items() for miss in missed(name, [f"{s:.0%}" for s in SHARES], row)
            ]
    settings = own()
    known = {name: list(cells(results[name])) for name in settings if name in results}
    if known:
        rows = []
        for name, row in known.items():
            sizes = [f"M = {size}" for size in settings[name].sizes]
            rows += [[name, size, str(cell)] for size, cell in zip(sizes, row, strict=True)]
            misses += missed(name, sizes, row)
        parts.append(registry_tables.table(["a paper's own setting", "memory", "`auto`"], rows))
        parts.append(summary("the papers' own settings", known))
    below = registry_tables.table([f"below {ENOUGH}", "memory", "best", "`auto`", ALL_PAST], misses)
    return "\n\n".join([*parts, below])


def summary(title: str, known: Mapping[str, Sequence[Cell]]) -> str:
    """Say what the cells of some workloads come to."""
    all_cells = [cell for row in known.values() for cell in row]
    to_best = [cell.to_best for cell in all_cells]
    low = sum(value < ENOUGH for value in to_best)
    words = (
        f"Over {title}: the mean is {np.mean(to_best):.3f}, the median {np.median(to_best):.3f}; {low} of "
        f"{len(to_best)} cells are below {ENOUGH}. Of PROB with its own counts `auto` finds "
        f"{min(cell.to_prob for cell in all_cells):.3f} to {max(cell.to_prob for cell in all_cells):.2f}."
    )
    shares = [cell.to_bound for cell in all_cells if cell.to_bound is not None]
    if shares:
        words += f" Of the bound it finds {min(shares):.3f} to {max(shares):.3f}, {np.mean(shares):.3f} on average."
    return words


def missed(name: str, sizes: Sequence[str], row: Sequence[Cell]) -> Iterator[list[str]]:
    """Yield the cells of a workload where `auto` finds less than it should."""
    for size, cell in zip(sizes, row, strict=True):
        if cell.to_best < ENOUGH:
            counted = "-" if cell.to_past is None else f"{cell.to_past:.3f}"
            yield [name, size, cell.best, f"{cell.to_best:.3f}", counted]


def main() -> None:
    """Measure the workloads named on the command line, or all, and rewrite the table."""
    cases = papers() | beyond() | own()
    there = [name for name, case in cases.items() if not case.data or (DATA / case.data).is_dir()]
    for name in cases.keys() - there:
        print(f"{name}: the data set is not in {DATA}; PENSTOCK_DATA names its folder")
    results = quality.by_policy(RESULTS, there, lambda name, only: measure(cases[name], only))
    registry_tables.write(PAGE, "auto", page({name: results[name] for name in cases if name in results}))


if __name__ == "__main__":
    main()
