"""Play real streams faster than they can be joined, by the clock on the wall, and see how far joins fall behind.

The rows of two recorded streams, in their common order, are stamped anew, evenly, and come when their time is, again
from the start when all of them have come. Whenever a join is free, it gets what has come. So a window may hold
several copies of the same rows. How many pairs the exact join would find is reckoned from those of one copy.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import penstock as pen
from benchmarks import promised, registry_tables
from penstock.report.papers import data

SPEEDS = (2, 5, 10)  # times the sustainable rate
LATENCY = 2.0  # seconds
METHODS = ("auto", "random-drop")
SPAN = 5  # seconds
LEAST = 0.01  # seconds between two looks at what has come
BEGINNING = 2  # windows that a join may take to learn, and to fill
FIRST = 3  # seconds in which a process loads what was compiled: no controller is to blame for that
MOST = 2 * LATENCY  # seconds of rows that a join gets at once
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


class Endless:
    """The rows of both sides, with so many a second, laid out beforehand so that little is left to do in time."""

    def __init__(self, case: Case, rate: float) -> None:
        self.rows, self.places = [], []
        self.most, self.total = int(MOST * rate), sum(table.num_rows for table in case.tables)
        self.lasts = round(self.total / rate * 1e6)  # microseconds of a copy: as many for each, so that time goes on
        copies = 2 + self.most // self.total
        for table in case.tables:
            at = table["at"].to_numpy() + self.total * np.arange(copies)[:, None]
            self.places.append(at.ravel())
            self.rows.append(pa.concat_tables([table.drop_columns(["at"])] * copies).combine_chunks())

    def take(self, begin: int, end: int) -> list[pa.Table]:
        """Return the rows from a number up to another, at most `most` later."""
        copy, sides = begin // self.total, []
        for rows, places in zip(self.rows, self.places, strict=True):
            low, high = np.searchsorted(places, [begin - copy * self.total, end - copy * self.total])
            stamps = places[low:high] * (self.lasts / self.total) + 1e-3  # the same for a row, whatever the copy
            ts = pa.array(stamps.astype(np.int64) + copy * self.lasts, pa.timestamp("us"))
            sides.append(rows[low:high].append_column("ts", ts))
        return sides


def distances(case: Case) -> np.ndarray:
    """Return how many rows lie between the rows of each pair of one copy of the streams; left ones first: < 0."""
    total = sum(table.num_rows for table in case.tables)
    op = pen.Join(ledger="off", on=case.on, time="at", window=total)
    found = op.push(left=case.tables[0], right=case.tables[1])
    return found["at_left"].to_numpy() - found["at_right"].to_numpy()


def exact_share(apart: np.ndarray, total: int, rate: float) -> float:
    """Return how many pairs a row finds in the exact join: rows of any two copies less than a window apart.

    Parameters:
        apart: for each pair of one copy, how many rows lie between.
        total: rows of a copy.
        rate: rows a second.
    """
    most = int(np.ceil(SPAN * rate)) - 1
    copies = (most - apart) // total + (most + apart) // total + 1
    return float(copies.sum() / total)


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
    """Who decides, with the seconds that all calls have taken."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.seconds = inner, 0.0

    def __call__(self, *arguments: Any, **more: Any) -> Any:
        """End a period."""
        return self._timed(self.inner, arguments, more)

    def __getattr__(self, name: str) -> Any:
        """Return a method of it that is timed, or what else it has."""
        found = getattr(self.inner, name)
        return (lambda *arguments, **more: self._timed(found, arguments, more)) if callable(found) else found

    def _timed(self, call: Any, arguments: Any, more: Any) -> Any:
        began = time.perf_counter()
        result = call(*arguments, **more)
        self.seconds += time.perf_counter() - began
        return result


def play(case: Case, rate: float, method: str, seconds: float) -> dict[str, Any]:
    """Play the streams to a join for so many seconds; returns its pairs and how long rows had to wait."""
    op: Any = operator(case, pen.cpu(latency=f"{int(LATENCY * 1000)} ms", method=method))
    op._core.adapt = controller = Timed(op._core.adapt)  # noqa: SLF001 - to look at its controller
    op._pace = pace = Timed(op._pace)  # noqa: SLF001
    stream = Endless(case, rate)
    begin, lags, pairs, rows, busy, reading = 0, [], 0, 0, 0.0, 0.0
    started = time.monotonic()
    while (now := time.monotonic() - started) < seconds:
        end = min(int(now * rate), begin + stream.most)
        if end == begin:
            time.sleep(LEAST)
            continue
        parts = stream.take(begin, end)
        pushed = time.monotonic()
        found = op.push(left=parts[0], right=parts[1]).num_rows
        busy += time.monotonic() - pushed
        reading += pushed - started - now
        if now > BEGINNING * SPAN:
            lags.append(time.monotonic() - started - begin / rate)
            pairs, rows = pairs + found, rows + end - begin
        begin = end
        time.sleep(LEAST)
    return {
        "pairs": pairs,
        "rows": rows,
        "controller": (controller.seconds + pace.seconds) / seconds,
        "busy": busy / seconds,
        "reading": reading / seconds,
        "lag": float(np.max(lags, initial=0.0)),
        "median": float(np.median(lags or [0.0])),
        "late": float(np.mean(np.array(lags or [0.0]) > LATENCY)),
    }


class Wanted(NamedTuple):
    """Which runs are made: of joins with this in their name, at these speeds, for so long."""

    name: str = ""
    speeds: tuple[int, ...] = SPEEDS
    minutes: float = 10.0
    others: float | None = None  # minutes of the runs of others than `auto`; as many, unless told
    rate: float | None = None  # that is sustainable, if it was measured before
    methods: tuple[str, ...] = METHODS

    def of(self, method: str) -> float:
        """Return for how many minutes a method runs."""
        return self.minutes if method == "auto" or self.others is None else self.others


def measure(wanted: Wanted) -> Iterator[dict[str, Any]]:
    """Return what each join did at each speed, with each method."""
    for case in cases(wanted.name):
        rate = wanted.rate or sustainable(case)
        print(f"{case.name}: {rate:,.0f} rows a second", flush=True)
        apart, total = distances(case), sum(table.num_rows for table in case.tables)
        for method in wanted.methods:
            play(case, rate, method, FIRST)
        for speed in wanted.speeds:
            exact = exact_share(apart, total, speed * rate)
            for method in wanted.methods:
                minutes = wanted.of(method)
                one = play(case, speed * rate, method, 60 * minutes + BEGINNING * SPAN)
                one["exact"] = exact * one["rows"]
                how = {"case": case.name, "rate": rate, "speed": speed, "method": method, "minutes": minutes}
                print(how | one, flush=True)
                yield how | one


def kept(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the results of all runs: those of before, unless they were made again."""
    runs = {(one["case"], one["speed"], one["method"]): one for one in [*before, *after]}
    return [runs[name] for name in sorted(runs)]


def page(results: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    head = ["join", "sustainable, rows/s", "times that", "minutes", "longest lag, s", "median lag, s", "late"]
    head += ["at work", "reading", "controller", "of the exact pairs", "random-drop's", "over random-drop"]
    rows = []
    others = {(one["case"], one["speed"]): one for one in results if one["method"] == "random-drop"}
    for one in results:
        other = others.get((one["case"], one["speed"]))
        if one["method"] != "auto" or other is None:
            continue
        numbers = [f"{one['lag']:.2f}", f"{one['median']:.2f}", f"{one['late']:.1%}", f"{one['busy']:.0%}"]
        numbers += [f"{one['reading']:.1%}" if "reading" in one else "-", f"{one['controller']:.2%}"]
        numbers += [f"{run['pairs'] / run['exact']:.1%}" if "exact" in run else "-" for run in (one, other)]
        minutes = f"{one['minutes']:g}, {other['minutes']:g}"
        how = [one["case"], f"{one['rate']:,.0f}", str(one["speed"]), minutes]
        rows.append([*how, *numbers, f"{promised.times(one, other):.2f}"])
    words = [
        f'`latency="{LATENCY:g} seconds"`, windows of {SPAN} s; the first {BEGINNING} windows are not counted.',
        "Random-drop has the same clock, and the second number of minutes; pairs are compared by the row.",
        "A lag is from a row's time to when its push returned.",
        "Reading is what it takes to hand rows over, between two pushes.",
        "The controller is the time of all calls of who chooses rows, and of who reckons time.",
    ]
    return "\n\n".join(["### By the clock on the wall", " ".join(words), registry_tables.table(head, rows)])
