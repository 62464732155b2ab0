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
FRAMES = 200
RIVALS = ("rand", "oldest", "prob", "life", "exact")


class Moment(NamedTuple):
    """How far the demo is."""

    done: int  # rows
    total: int
    surging: bool
    rows_per_second: float  # arriving now
    report: Report


@dataclass(frozen=True)
class Demo:
    """What the demo found."""

    rows: int  # on each side
    memory: Any
    window: int
    seed: int
    report: Report
    exact_pairs: int
    exact_rows: int  # the most that an exact join holds at once
    held_rows: int  # the most that this one held
    busy: float  # seconds spent in the join itself
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
    rows: int = ROWS,
    memory: Any = 2 * WINDOW,
    seed: int = 0,
    policy: str | Policy = "auto",
    seconds: float = 0.0,
    watch: Callable[[Moment], None] | None = None,
) -> Demo:
    """Join two streams that surge in the middle, inside a budget that suffices only for the calm.

    Parameters:
        rows: rows on each side.
        memory: the budget; the default is what an exact join needs while it is calm.
        seed: of the streams, and of policies that draw lots.
        policy: a name or a policy object.
        seconds: how long the streams shall take to arrive; 0: as fast as the join takes them.
        watch: told how far it is, some hundred times.

    Returns:
        The report, the recall against the exact join of the same streams, and how other policies fare.

    Examples:
        >>> shown = demo(rows=4000, memory=500, policy="oldest")
        >>> shown.report.balanced, 0 < shown.recall < 1
        (True, True)
    """
    settings = checked(rows=rows, memory=memory, seed=seed, policy=policy, seconds=seconds)
    chosen = settings.chosen
    streams = workloads.surge(rows, keys=KEYS, factor=FACTOR, at=SURGE, seed=seed)
    left, right = streams.left, streams.right
    op = Join(
        schemas=(left.schema, right.schema),
        ledger="off",
        **{name: value for name, value in vars(settings).items() if name != "chosen"},
    )
    ts = left["ts"].to_numpy()  # both sides keep the same time
    surge = [int(ts[min(round(share * rows), rows - 1)]) for share in SURGE] if rows else [0, 0]
    busy, held = 0.0, 0
    begin = before = time.perf_counter()
    for start, stop, share in frames(ts):
        time.sleep(max(0.0, begin + share * seconds - time.perf_counter()))
        called = time.perf_counter()
        op.push(left=left[start:stop], right=right[start:stop])
        now = time.perf_counter()
        busy += now - called
        report = op.report()
        held = max(held, report.memory_rows)
        if watch is not None:
            surging = surge[0] <= ts[start] < surge[1]
            watch(Moment(2 * stop, 2 * rows, surging, 2 * (stop - start) / max(now - before, 1e-9), report))
        before = now
    op.finish()
    rivals: list[str | Policy] = [*RIVALS] if str(chosen) in RIVALS else [chosen, *RIVALS]
    table = compare(left, right, settings, policies=rivals, memory=[memory], splits=["shared"], count_from=None)
    exact = table["pairs"].to_pylist()[-1]
    return Demo(rows, memory, WINDOW, seed, op.report(), exact, 2 * most_at_once(ts), held, busy, table)


def checked(*, rows: int, memory: Any, seed: int, policy: str | Policy, seconds: float) -> Settings:
    """Check the arguments of the demo, before anything is compiled, and return those of its join."""
    if not 0 <= seconds <= 3600:
        raise InputError("seconds", seconds, "give a number from 0 to 3600")
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


def frames(ts: Ints) -> Iterator[tuple[int, int, float]]:
    """Cut a time column into stretches that take equally long: first row, end, and the share of time gone."""
    if ts.size == 0:
        return
    length = int(ts[-1]) + 1
    edges = np.searchsorted(ts, np.linspace(0, length, min(FRAMES, length) + 1))
    for at, (start, stop) in enumerate(pairwise(edges), start=1):
        if stop > start:
            yield int(start), int(stop), at / (edges.size - 1)


def most_at_once(ts: Ints) -> int:
    """Return how many rows of one side are alive at the same time, at most."""
    if ts.size == 0:
        return 0
    gone = np.searchsorted(ts, ts - WINDOW, side="right")
    return int((np.searchsorted(ts, ts, side="right") - gone).max())
