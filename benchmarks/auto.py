"""Measure `auto` beside the best other policy, by workload and memory (`make bench-auto`).

Results are kept in benchmarks/auto.json, each workload as soon as it is measured; docs/auto.md has a table of it.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as pen
from benchmarks import quality, registry_tables
from benchmarks.registry_tables import ROOT
from penstock.streams.workloads import Workload, surge, zipf

RESULTS = Path(__file__).with_name("auto.json")
PAGE = ROOT / "docs" / "auto.md"
DATA = Path(os.environ.get("PENSTOCK_DATA", ROOT.parent / "shared" / "data"))
ROWS, WINDOW, SEEDS = quality.ROWS, quality.WINDOW, range(10)
SHARES = (0.05, 0.1, 0.25, 0.5)  # of the memory that the exact join needs
ENOUGH = 0.98  # of the best other policy
QUANTILE = 2.262  # of Student's t with nine degrees of freedom: 95 % of ten runs
BY_PAIRS = ("oldest", "lru", "age", "life", "prob")
BY_WORTH = ("prob", "simp", "simpprob", "dimpprob", "dgl")
ALL_PAST = "prob, history"
REAL_ROWS = 40_000
Streams = tuple[pa.Table, pa.Table]


class Case(NamedTuple):
    """Streams to compare policies on."""

    draw: Callable[[int], Workload | Streams]  # by seed
    window: Any = WINDOW
    needs: int = 2 * WINDOW  # rows that the exact join holds
    key: str = "key"
    importance: str | None = None
    data: str = ""  # the set that it is read from: it has one seed


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
    for kind, name in (("rare", "rare rows"), ("special_keys", "some keys")):
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


def contenders(case: Case, streams: Workload | Streams) -> dict[str, Any]:
    """Return the policies to compare on streams, by name."""
    policies: dict[str, Any] = {name: name for name in ("auto", *(BY_WORTH if case.importance else BY_PAIRS))}
    if isinstance(streams, Workload):
        known = pen.table(left=streams.left_chances, right=streams.right_chances)
        policies["prob, told"] = pen.policy("prob", statistics=known)
    policies[ALL_PAST] = pen.policy("prob", statistics="history")
    return policies


def measure(case: Case, only: Sequence[str] = ()) -> dict[str, list[list[float]]]:
    """Return the pairs or the importance that each policy, or each of some, finds, by memory and seed."""
    found: dict[str, list[list[float]]] = {}
    for seed in SEEDS[:1] if case.data else SEEDS:
        streams = case.draw(seed)
        policies = contenders(case, streams)
        if only:
            policies = {name: policy for name, policy in policies.items() if name in only}
        table = pen.compare(
            streams[0],
            streams[1],
            on=case.key,
            time="ts",
            window=case.window,
            policies=[*policies.values()],
            memory=[round(share * case.needs) for share in SHARES],
            importance=case.importance,
            count_from=None if case.data else 2 * WINDOW,
        )
        value = np.array(table["importance" if case.importance else "pairs"].to_pylist(), np.float64)
        for name, row in zip(policies, value.reshape(len(policies), len(SHARES)).tolist(), strict=True):
            found.setdefault(name, []).append(row)
    return found


def page(results: dict[str, dict[str, list[list[float]]]]) -> str:
    """Return what `auto` finds relative to the best other policy of each column, with its name."""
    rows, misses, to_best, to_prob = [], [], [], []
    for name, found in results.items():
        means = {policy: np.mean(values, axis=0) for policy, values in found.items()}
        cells = []
        for at in range(len(SHARES)):
            best = max((policy for policy in means if policy != "auto"), key=lambda policy: means[policy][at])
            ratio = np.array([mine[at] / theirs[at] for mine, theirs in zip(found["auto"], found[best], strict=True)])
            off = f" ± {QUANTILE * ratio.std(ddof=1) / np.sqrt(ratio.size):.3f}" if ratio.size > 1 else ""
            to_best.append(means["auto"][at] / means[best][at])
            to_prob.append(means["auto"][at] / means["prob"][at])
            if to_best[-1] < ENOUGH:
                counted = f"{means[ALL_PAST][at] / means[best][at]:.3f}" if ALL_PAST in means else "-"
                misses.append([name, f"{SHARES[at]:.0%}", best, f"{to_best[-1]:.3f}", counted])
            cells.append(f"{to_best[-1]:.3f}{off} {best}")
        rows.append([name, *cells])
    table = registry_tables.table(["streams", *(f"{share:.0%}" for share in SHARES)], rows)
    words = (
        f"The mean of the table is {np.mean(to_best):.3f}, its median {np.median(to_best):.3f}; {len(misses)} of its "
        f"{len(to_best)} cells are below {ENOUGH}. Of PROB with its own counts `auto` finds {min(to_prob):.3f} to "
        f"{max(to_prob):.2f}."
    )
    below = registry_tables.table(["below that", "memory", "best", "`auto`", ALL_PAST], misses)
    return f"{table}\n\n{words}\n\n{below}"


def main() -> None:
    """Measure the workloads named on the command line, or all, and rewrite the table."""
    cases = papers() | beyond()
    there = [name for name, case in cases.items() if not case.data or (DATA / case.data).is_dir()]
    for name in cases.keys() - there:
        print(f"{name}: the data set is not in {DATA}; PENSTOCK_DATA names its folder")
    results = quality.by_policy(RESULTS, there, lambda name, only: measure(cases[name], only))
    registry_tables.write(PAGE, "auto", page({name: results[name] for name in cases if name in results}))


if __name__ == "__main__":
    main()
