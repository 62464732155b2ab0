"""Show a bounded join at work: two streams, a surge in the middle, and what the budget cost."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.windows import Ints
from penstock.engine.compare import compare
from penstock.errors import InputError
from penstock.operator.join import Join, settings_of
from penstock.operator.settings import Settings
from penstock.policies.registry import Policy, resolve
from penstock.quality.books import Report
from penstock.streams import workloads

ROWS, MOST = 200_000, 10_000_000
KEYS = 1000
WINDOW = 1000  # ticks
FACTOR = 10  # rows a tick and side during the surge
SURGE = (0.2, 0.8)  # shares of the rows
FRAMES = {"embedded": 200, "spark": 24}  # stretches that arrive together
RIVALS = {"embedded": ("rand", "oldest", "prob", "life", "exact"), "spark": ("exact",)}
ENGINES = tuple(FRAMES)


class Moment(NamedTuple):
    """How far the demo is."""

    done: int  # rows
    total: int
    surging: bool
    rows_per_second: float  # arriving now
    report: Report
    number: int  # of moments before it
    seconds: float  # that the join took for the rows since then; on Spark, for the last micro-batch


@dataclass(frozen=True)
class Demo:
    """What the demo found."""

    engine: str
    rows: int  # on each side
    memory: Any
    window: int
    seed: int
    report: Report
    exact_pairs: int
    exact_rows: int  # the most that an exact join holds at once
    held_rows: int  # the most that this one held
    busy: float  # seconds spent in the join itself; on Spark, from its start to its end
    comparison: pa.Table

    @property
    def recall(self) -> float:
        """The share of the exact join's pairs that was found."""
        return self.report.pairs / self.exact_pairs if self.exact_pairs else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        plain = {name: value for name, value in vars(self).items() if name not in {"report", "comparison"}}
        return {
            **plain,
            "recall": self.recall,
            "report": self.report.to_dict(),
            "comparison": self.comparison.to_pylist(),
        }


def demo(
    *,
    engine: str = "embedded",
    rows: int = ROWS,
    memory: Any = 2 * WINDOW,
    seed: int = 0,
    policy: str | Policy = "auto",
    seconds: float = 0.0,
    watch: Callable[[Moment], None] | None = None,
) -> Demo:
    """Join two streams that surge in the middle, inside a budget that suffices only for the calm.

    Parameters:
        engine: "embedded", or "spark" for a local Spark of its own.
        rows: rows on each side.
        memory: the budget; the default is what an exact join needs while it is calm.
        seed: of the streams, and of policies that draw lots.
        policy: a name or a policy object.
        seconds: how long the streams shall take to arrive; 0: as fast as the join takes them.
        watch: told how far it is, some hundred times.

    Returns:
        The report, the recall against the exact join of the same streams, and (embedded) how other policies fare.

    Examples:
        >>> shown = demo(rows=4000, memory=500, policy="oldest")
        >>> shown.report.balanced, 0 < shown.recall < 1
        (True, True)
    """
    settings = checked(engine=engine, rows=rows, memory=memory, seed=seed, policy=policy, seconds=seconds)
    streams = workloads.surge(rows, keys=KEYS, factor=FACTOR, at=SURGE, seed=seed)
    tables = streams.left, streams.right
    onlooker = Onlooker(streams.left["ts"].to_numpy(), watch)  # both sides keep the same time
    report = (_on_spark if engine == "spark" else _embedded)(tables, settings, seconds, onlooker)
    rivals: list[str | Policy] = [*RIVALS[engine]]
    if str(settings.chosen) not in rivals and engine == "embedded":
        rivals.insert(0, settings.chosen)
    table = compare(*tables, settings, policies=rivals, memory=[memory], splits=["shared"], count_from=None)
    exact = table["pairs"].to_pylist()[-1]
    needed = 2 * most_at_once(onlooker.ts)
    return Demo(engine, rows, memory, WINDOW, seed, report, exact, needed, onlooker.held, onlooker.busy, table)


class Onlooker:
    """Sees every moment of a run, and passes it on."""

    def __init__(self, ts: Ints, watch: Callable[[Moment], None] | None) -> None:
        self.ts = ts
        self.held = 0
        self.busy = 0.0
        self._watch = watch
        self._last = (0, time.perf_counter())
        self._told = 0
        rows = ts.size
        self._surge = [int(ts[min(round(share * rows), rows - 1)]) for share in SURGE] if rows else [0, 0]

    def __call__(self, done: int, report: Report, seconds: float) -> None:
        """See that so many rows of both sides are through, the last of them in so many seconds."""
        self.held = max(self.held, report.memory_rows)
        now = time.perf_counter()
        before, then = self._last
        self._last = (done, now)
        if self._watch is not None and done > before:
            surging = self._surge[0] <= self.ts[(done - 1) // 2] < self._surge[1]
            pace = (done - before) / max(now - then, 1e-9)
            self._watch(Moment(done, 2 * self.ts.size, surging, pace, report, self._told, seconds))
            self._told += 1


def _embedded(tables: tuple[pa.Table, pa.Table], settings: Settings, seconds: float, onlooker: Onlooker) -> Report:
    left, right = tables
    op = Join(schemas=(left.schema, right.schema), ledger="off", **settings.arguments())
    begin = time.perf_counter()
    for start, stop, share in frames(onlooker.ts, FRAMES["embedded"]):
        time.sleep(max(0.0, begin + share * seconds - time.perf_counter()))
        called = time.perf_counter()
        op.push(left=left[start:stop], right=right[start:stop])
        seconds = time.perf_counter() - called
        onlooker.busy += seconds
        onlooker(2 * stop, op.report(), seconds)
    op.finish()
    return op.report()


def _on_spark(tables: tuple[pa.Table, pa.Table], settings: Settings, seconds: float, onlooker: Onlooker) -> Report:
    from penstock.spark import live  # noqa: PLC0415 - only with Spark

    cuts = list(frames(onlooker.ts, FRAMES["spark"]))
    begin = time.perf_counter()
    report = live.play(tables, settings.arguments(), cuts=cuts, seconds=seconds, watch=onlooker)
    onlooker.busy = time.perf_counter() - begin
    return report


def checked(*, engine: str, rows: int, memory: Any, seed: int, policy: str | Policy, seconds: float) -> Settings:
    """Check the arguments of the demo, before anything is compiled, and return those of its join."""
    if engine not in ENGINES:
        raise InputError("engine", repr(engine), f"give one of {', '.join(map(repr, ENGINES))}")
    if not 0 <= seconds <= 3600:
        raise InputError("seconds", seconds, "give a number from 0 to 3600")
    if engine == "spark" and rows == 0:
        raise InputError("rows", rows, "Spark needs some to start: give at least 1")
    if not 0 <= rows <= MOST:
        raise InputError("rows", rows, f"give a number from 0 to {MOST:,}")
    if seed < 0:
        raise InputError("seed", seed, "give a number from 0 on")
    return settings_of(
        {
            "on": "key",
            "time": "ts",
            "window": WINDOW,
            "memory": memory,
            "seed": seed,
            "policy": resolve(policy),
        }
    )


def frames(ts: Ints, count: int) -> Iterator[tuple[int, int, float]]:
    """Cut a time column into stretches that take equally long: first row, end, and the share of time gone."""
    if ts.size == 0:
        return
    length = int(ts[-1]) + 1
    edges = np.searchsorted(ts, np.linspace(0, length, min(count, length) + 1))
    for at, (start, stop) in enumerate(pairwise(edges), start=1):
        if stop > start:
            yield int(start), int(stop), at / (edges.size - 1)


def most_at_once(ts: Ints) -> int:
    """Return how many rows of one side are alive at the same time, at most."""
    if ts.size == 0:
        return 0
    gone = np.searchsorted(ts, ts - WINDOW, side="right")
    return int((np.searchsorted(ts, ts, side="right") - gone).max())
