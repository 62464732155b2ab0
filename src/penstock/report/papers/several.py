"""Streams drawn as golab2003 draws them, and joins of them that can be counted and timed."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.rings import Batch
from penstock.core.windows import Floats
from penstock.engine.multijoin import portions
from penstock.operator.ordering import Ordered
from penstock.operator.several import Bound, Settings
from penstock.planner.statistics import Stream
from penstock.streams.times import Every

AT_ONCE = 1 << 14  # results that are held at once, as many as stay near


class Drawn:
    """Tuples generated one a tick, from a stream by its rate, values uniform.

    Parameters:
        streams: rates, windows and distinct values.
        ticks: how many tuples, of all streams together.

    References: golab2003 §6.1.
    """

    def __init__(self, streams: Sequence[Stream], ticks: int, seed: int = 1) -> None:
        rng = np.random.default_rng(seed)
        rates = np.array([stream.rate for stream in streams])
        self.unit = int(rates.sum())  # ticks of a unit of time
        source = rng.choice(len(streams), ticks, p=rates / rates.sum())
        at = [np.flatnonzero(source == place) for place in range(len(streams))]
        self.rows = {
            stream.name: pa.table({"ts": ts, "attr": rng.integers(0, int(stream.distinct), ts.size)})
            for stream, ts in zip(streams, at, strict=True)
        }
        self.windows = {stream.name: int(stream.window) * self.unit for stream in streams}
        self.ticks = ticks

    def loops(self, every: int | None = None, *, until: int | None = None, **how: Any) -> "Loops":
        """Return the loops of one way to join them, with their rows.

        Parameters:
            every: the interval of lazy evaluation, in units of time; None: eager.
            until: the tick at which the streams end; None: the last.
            how: other arguments of the join.
        """
        evaluation = "eager" if every is None else Every(every * self.unit)
        rows = self.rows
        if until is not None:
            rows = {name: table[: int(np.searchsorted(table["ts"], until))] for name, table in rows.items()}
        return Loops(rows, Settings("attr", "ts", self.windows, evaluation=evaluation, **how))

    def comparisons(self, every: int | None = None, **how: Any) -> float:
        """Return how many rows the inner loops look at per unit of time, once the windows are full."""
        full = max(self.windows.values())
        counted = []
        for until in (full, self.ticks):
            loops = self.loops(every, until=until, **how)
            loops.seconds()
            counted.append(loops.compared)
        return (counted[1] - counted[0]) * self.unit / (self.ticks - full)


def batches(bound: Bound, rows: Mapping[str, pa.Table]) -> list[Batch]:
    """Return the rows of whole tables as the loops take them: merged and coded."""
    intake = bound.intake()
    found = []
    for part in portions(bound, rows):
        tables = [part.get(name, table[:0]) for name, table in rows.items()]
        found.append(bound.batch(intake.take([bound.read(at, table) for at, table in enumerate(tables)])))
    return [*found, bound.batch(intake.advance(None))]


class Loops:
    """A join that can be run again and again."""

    def __init__(self, rows: Mapping[str, pa.Table], settings: Settings) -> None:
        self._bound = Bound(settings, {name: table.schema for name, table in rows.items()})
        self._batches = batches(self._bound, rows)
        ordered = Ordered(self._bound)
        ordered.push(self._batches[0])
        self._plan = ordered.plan
        self.arrivals = sum(batch.row.size for batch in self._batches)
        self.compared = 0
        self.results = 0

    def seconds(self) -> float:
        """Run it, and return the CPU seconds that the loops took."""
        chain = self._bound.chain(self._plan, None)
        begin = time.process_time()
        self.results = sum(part.shape[1] for batch in self._batches for part in chain.chunks(batch, AT_ONCE))
        taken = time.process_time() - begin
        self.compared = chain.compared
        return taken


def timed(ways: Mapping[Any, Loops], repeats: int) -> dict[Any, list[float]]:
    """Return the times of each way, measured in turns, after one that does not count if there are several."""
    times: dict[Any, list[float]] = {name: [] for name in ways}
    for loops in ways.values() if repeats > 1 else ():
        loops.seconds()
    for _ in range(repeats):
        for name, loops in ways.items():
            times[name].append(loops.seconds())
    counts = {loops.results for loops in ways.values()}
    if len(counts) != 1:
        raise AssertionError(f"ways of one join found different numbers of results: {sorted(counts)}")
    return times


def shortest(ways: Mapping[Any, Loops], repeats: int) -> dict[Any, float]:
    """Return the shortest time of each way, measured in turns."""
    return {name: min(seconds) for name, seconds in timed(ways, repeats).items()}


def alike(times: Mapping[Any, Sequence[float]]) -> list[Any]:
    """Return the ways that are not slower than the fastest, by their times turn by turn."""
    taken = {name: np.array(seconds) for name, seconds in times.items()}
    usual = next(iter(taken.values()))
    best = min(taken.values(), key=lambda seconds: float(np.median(seconds / usual)))
    return [name for name, seconds in taken.items() if not _slower(seconds / best)]


def _slower(ratios: Floats) -> bool:
    """Say whether a median of ratios is above one by more than two of its standard errors."""
    low, middle, high = np.percentile(ratios, [25, 50, 75])
    error = 1.2533 * (high - low) / 1.349 / np.sqrt(ratios.size)  # of the median of a normal distribution
    return bool(middle > 1 + 2 * error)
