"""Play real streams faster than they can be joined, by the clock on the wall, and see how far joins fall behind.

The rows of two recorded streams, in their common order, are stamped anew, evenly, and come when their time is, again
from the start when all of them have come. Whenever a join is free, it gets what has come.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as pen
from benchmarks import registry_tables
from penstock.report.papers import data

SPEEDS = (2, 5, 10)  # times the sustainable rate
LATENCY = 2.0  # seconds
METHODS = ("auto", "random-drop")
SPAN = 5  # seconds
LEAST = 0.01  # seconds between two looks at what has come
BEGINNING = 2  # windows that a join may take to learn, and to fill
TRIAL, SLICE = 2 * SPAN, 0.25  # seconds of a trial, and of what is pushed at once in it
LOWEST, STEPS = 1000.0, 3  # the first rate that is tried, and how often it is halved to be sure


class Case(NamedTuple):
    """Two streams, row by row as they came, and how they are joined."""

    name: str
    tables: tuple[pa.Table, pa.Table]
    on: Any


def cases(which: str = "") -> Iterator[Case]:
    """Return the joins that are measured, if their name has this in it."""
    yield from (case for case in _cases() if which in case.name)


def _cases() -> Iterator[Case]:
    rows = pq.read_table(data.found("health_news", "headlines.parquet"))
    news = [rows.filter(pc.equal(pc.bit_wise_and(rows["source"], 1), side)) for side in (0, 1)]
    yield Case("headlines that share 3 words", ordered(news, "tokens"), pen.overlap("tokens", at_least=3))
    stocks = [pq.read_table(data.found("sse_orders_trades", f"{name}.parquet")) for name in ("orders", "trades")]
    yield Case("orders and trades of one key", ordered(stocks, "key"), "key")


def ordered(tables: list[pa.Table], column: str) -> tuple[pa.Table, pa.Table]:
    """Return a column of two streams in order of time, and the place of each row among those of both."""
    tables = [table.sort_by("ts") for table in tables]
    order = np.argsort(np.concatenate([table["ts"].to_numpy() for table in tables]), kind="stable")
    places = np.empty(order.size, np.int64)
    places[order] = np.arange(order.size)
    left, right = np.split(places, [tables[0].num_rows])
    return pa.table({"at": left, column: tables[0][column]}), pa.table({"at": right, column: tables[1][column]})


def came(case: Case, rate: float, begin: int, end: int) -> list[pa.Table]:
    """Return the rows of both sides, of an endless stream with so many a second, from a number up to another."""
    total = sum(table.num_rows for table in case.tables)
    sides = []
    for table in case.tables:
        places, parts = table["at"].to_numpy(), []
        for first in range(begin // total * total, max(end, begin + 1), total):
            low, high = np.searchsorted(places, [begin - first, end - first])
            stamps = ((places[low:high] + first) / rate * 1e6).astype(np.int64)
            rows = table[low:high].drop_columns(["at"])
            parts.append(rows.append_column("ts", pa.array(stamps, pa.timestamp("us"))))
        sides.append(pa.concat_tables(parts).combine_chunks())
    return sides


def keeps_up(case: Case, rate: float) -> bool:
    """Say whether the exact join takes no longer than its rows took to come, once windows are full."""
    op, took = operator(case, None), 0.0
    for at in np.arange(0.0, TRIAL, SLICE):
        parts = came(case, rate, *(int(second * rate) for second in (at, at + SLICE)))
        began = time.perf_counter()
        op.push(left=parts[0], right=parts[1])
        took += (time.perf_counter() - began) * (at >= SPAN)
        if took > TRIAL - SPAN:
            return False
    return True


def sustainable(case: Case) -> float:
    """Return how many rows a second, over both sides, the exact join just keeps up with."""
    keeps_up(case, LOWEST)  # compiles
    rate = LOWEST
    while keeps_up(case, 2 * rate):
        rate *= 2
    step = rate
    for _ in range(STEPS):
        step /= 2
        if keeps_up(case, rate + step):
            rate += step
    return rate


def operator(case: Case, cpu: Any) -> pen.Join:
    """Return a join of the case."""
    schemas = [rows.schema for rows in came(case, 1.0, 0, 0)]
    return pen.Join(
        schemas=(schemas[0], schemas[1]), ledger="off", on=case.on, time="ts", window=f"{SPAN} seconds", cpu=cpu
    )


class Timed:
    """A controller, with the seconds that it has taken."""

    def __init__(self, controller: Any) -> None:
        self.controller, self.seconds = controller, 0.0

    def __call__(self, *arguments: Any) -> None:
        """End a period."""
        self._timed(self.controller, *arguments)

    def retune(self, *arguments: Any) -> None:
        """Choose anew."""
        self._timed(self.controller.retune, *arguments)

    def _timed(self, call: Any, *arguments: Any) -> None:
        began = time.perf_counter()
        call(*arguments)
        self.seconds += time.perf_counter() - began


def play(case: Case, rate: float, method: str, seconds: float) -> dict[str, Any]:
    """Play the streams to a join for so many seconds; returns its pairs and how long rows had to wait."""
    op = operator(case, pen.cpu(latency=f"{int(LATENCY * 1000)} ms", method=method))
    core: Any = op._core  # noqa: SLF001 - to look at its controller
    core.adapt = timed = Timed(core.adapt)
    begin, lags, pairs, rows, busy = 0, [], 0, 0, 0.0
    started = time.monotonic()
    while (now := time.monotonic() - started) < seconds:
        end = int(now * rate)
        if end == begin:
            time.sleep(LEAST)
            continue
        parts = came(case, rate, begin, end)
        pushed = time.monotonic()
        found = op.push(left=parts[0], right=parts[1]).num_rows
        busy += time.monotonic() - pushed
        if now > BEGINNING * SPAN:
            lags.append(time.monotonic() - started - begin / rate)
            pairs, rows = pairs + found, rows + end - begin
        begin = end
        time.sleep(LEAST)
    return {
        "pairs": pairs,
        "rows": rows,
        "controller": timed.seconds / seconds,
        "busy": busy / seconds,
        "lag": float(np.max(lags, initial=0.0)),
        "median": float(np.median(lags or [0.0])),
        "late": float(np.mean(np.array(lags or [0.0]) > LATENCY)),
    }


class Wanted(NamedTuple):
    """Which runs are made: of joins with this in their name, at these speeds, for so long."""

    name: str = ""
    speeds: tuple[int, ...] = SPEEDS
    minutes: float = 10.0
    rate: float | None = None  # that is sustainable, if it was measured before


def measure(wanted: Wanted) -> Iterator[dict[str, Any]]:
    """Return what each join did at each speed, with each method."""
    for case in cases(wanted.name):
        rate = wanted.rate or sustainable(case)
        print(f"{case.name}: {rate:,.0f} rows a second", flush=True)
        for speed in wanted.speeds:
            for method in METHODS:
                one = play(case, speed * rate, method, 60 * wanted.minutes + BEGINNING * SPAN)
                how = {"case": case.name, "rate": rate, "speed": speed, "method": method, "minutes": wanted.minutes}
                print(how | one, flush=True)
                yield how | one


def kept(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of all runs: those of before, unless they were made again."""
    runs = {(one["case"], one["speed"], one["method"]): one for one in [*before, *after]}
    return [runs[name] for name in sorted(runs)]


def page(results: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    head = ["join", "sustainable, rows/s", "times that", "minutes", "longest lag, s", "median lag, s", "late"]
    head += ["at work", "controller", "over random-drop"]
    rows = []
    others = {(one["case"], one["speed"]): one["pairs"] for one in results if one["method"] == "random-drop"}
    for one in results:
        if one["method"] != "auto":
            continue
        ratio = one["pairs"] / max(1, others[one["case"], one["speed"]])
        numbers = [f"{one['lag']:.2f}", f"{one['median']:.2f}", f"{one['late']:.1%}"]
        numbers += [f"{one['busy']:.0%}", f"{one['controller']:.2%}", f"{ratio:.2f}"]
        rows.append([one["case"], f"{one['rate']:,.0f}", str(one["speed"]), f"{one['minutes']:g}", *numbers])
    how = f'`latency="{LATENCY:g} seconds"`, windows of {SPAN} s; the first {BEGINNING} windows are not counted.'
    words = f"{how} Random-drop has the same clock. A lag is from a row's time to when its push returned."
    return "\n\n".join(["### By the clock on the wall", words, registry_tables.table(head, rows)])
