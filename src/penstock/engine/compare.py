"""Run many policies and budgets over one trace, reading it once."""

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.windows import Floats, Ints
from penstock.engine import warmup
from penstock.engine.offline import Optimum, asked, optimum
from penstock.engine.pump import SLICE, Progress, cuts, read_times, two_tables
from penstock.errors import BudgetError, PolicyError
from penstock.operator.results import COMBINED
from penstock.operator.settings import Bound, Settings
from penstock.policies.registry import Policy, resolve
from penstock.streams.intake import Intake, Side

SCHEMA = pa.schema(
    [
        ("policy", pa.string()),
        ("split", pa.string()),
        ("memory", pa.string()),
        ("pairs", pa.int64()),
        ("importance", pa.float64()),
        ("share_of_exact", pa.float64()),
        ("seconds", pa.float64()),
    ]
)
OFFLINE = ("optimum", "bound")  # valid entries that are no policies


class Contender:
    """One policy with one budget, and what it has scored."""

    def __init__(self, label: str, bound: Bound) -> None:
        self.label = label
        self.settings = bound.settings
        self.core = bound.core(bound.plan())
        self.weighted = bound.unit == "bytes"
        self.pairs = 0
        self.importance = 0.0
        self.seconds = 0.0

    def play(self, ready: Any, trace: "Trace") -> None:
        """Take one batch and count the pairs it brings."""
        batch = ready.batch._replace(
            key=np.empty_like(ready.batch.key),
            weight=ready.batch.weight if self.weighted else ready.batch.weight[:0],
        )
        begin = time.perf_counter()
        left, right = self.core.push(batch, ready.code)
        self.seconds += time.perf_counter() - begin
        self.core.take_ledger()
        self.pairs += trace.count(left, right)
        self.importance += trace.importance_of(left, right)


class Ceiling(NamedTuple):
    """What nothing exceeds with one budget: the bound of an optimum."""

    pairs: int | None
    importance: float | None
    seconds: float
    weighted: bool = False


class Trace:
    """Two tables as arrays, and which of their pairs count."""

    def __init__(self, bound: Bound, left: pa.Table, right: pa.Table, count_from: object) -> None:
        read_times(bound, left, right)
        self.sides = (bound.read(0, left), bound.read(1, right))
        self.combine = COMBINED[bound.settings.combine]
        self.start = None if count_from is None else bound.clock.tick("count_from", count_from)
        self.coder = bound.coder
        self.columns = tuple([table[name] for name in bound.keys[side]] for side, table in enumerate((left, right)))

    def _counted(self, left: Ints, right: Ints) -> tuple[Ints, Ints]:
        if self.start is not None:
            later = np.maximum(self.sides[0].ts[left], self.sides[1].ts[right])
            left, right = left[later >= self.start], right[later >= self.start]
        if not self.coder.exact and left.size:
            same = self.coder.equal(
                [column.take(pa.array(left)) for column in self.columns[0]],
                [column.take(pa.array(right)) for column in self.columns[1]],
            )
            left, right = left[same], right[same]
        return left, right

    def count(self, left: Ints, right: Ints) -> int:
        """Return how many of these pairs count."""
        return int(self._counted(left, right)[0].size)

    def importance_of(self, left: Ints, right: Ints) -> float:
        """Return the importance of those of these pairs that count."""
        mine, theirs = (side.importance for side in self.sides)
        if not mine.size:
            return 0.0
        left, right = self._counted(left, right)
        combined: Floats = self.combine(np.stack([mine[left], theirs[right]]))
        return float(combined.sum())


def compare(
    left: Any,
    right: Any,
    settings: Settings,
    *,
    policies: Sequence[str | Policy],
    memory: Sequence[object],
    splits: Sequence[object],
    count_from: object,
    progress: Progress | None = None,
) -> pa.Table:
    """Score every policy with every split and budget over one pass of the trace.

    "exact" is the join without a budget; "optimum" the schedule of ``offline.optimum``, replayed; "bound" the bound
    that comes with it, for importance where rows have one, else for pairs.
    """
    if not policies:
        raise PolicyError("policies", "none", 'name at least one, e.g. ["rand", "prob"]')
    if not memory:
        raise BudgetError("memory", "none", "name at least one budget, e.g. [1000]")
    left_table, right_table, _ = two_tables(left, right)
    schemas = left_table.schema, right_table.schema
    exact = Contender("exact", Bound(replace(settings, memory=None, split="shared"), *schemas))
    entries: list[tuple[str, object, object, Contender | Ceiling]] = []
    best: dict[tuple[object, object], Optimum] = {}
    objective = "count" if settings.importance is None else "importance"
    for given, split, size in product(policies, splits, memory):
        if given == "exact":
            entries.append(("exact", split, size, exact))
            continue
        chosen = replace(settings, memory=size, split=split)
        if given in OFFLINE:
            where = str(split), size
            asked(Bound(chosen, *schemas), objective)
            if not best and warmup.compiles():
                warmup.touch(warmup.OPTIMUM)  # its seconds are without those of compiling
            if where not in best:
                best[where] = optimum(left_table, right_table, chosen, objective=objective, count_from=count_from)
            entries.append((str(given), split, size, _offline(str(given), best[where], chosen, schemas)))
            continue
        chosen = replace(chosen, policy=resolve(given))
        label = str(chosen.chosen)
        entries.append((label, split, size, Contender(label, Bound(chosen, *schemas))))
    reader = Bound(settings, *schemas)
    reader.unit = "bytes" if any(entry[3].weighted for entry in entries) else "rows"
    trace = Trace(reader, left_table, right_table, count_from)
    players = [player for *_, player in entries if isinstance(player, Contender) and player is not exact]
    _play(trace, reader, [exact, *players], progress)
    rows = [
        {
            "policy": label,
            "split": split if isinstance(split, str) else str(tuple(split)),  # type: ignore[arg-type]
            "memory": str(size),
            "pairs": player.pairs,
            "importance": player.importance if reader.importance else None,
            "share_of_exact": player.pairs / exact.pairs if exact.pairs and player.pairs is not None else None,
            "seconds": player.seconds,
        }
        for label, split, size, player in entries
    ]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    if all(isinstance(size, int | np.integer) for size in memory):
        at = SCHEMA.get_field_index("memory")
        table = table.set_column(at, "memory", table["memory"].cast(pa.int64()))
    return table


def _offline(
    name: str, best: Optimum, settings: Settings, schemas: tuple[pa.Schema, pa.Schema]
) -> Contender | Ceiling:
    """Return the contender that replays an optimum, or its bound."""
    if name == "bound" and best.objective == "count":
        return Ceiling(int(best.bound), None, best.seconds)
    if name == "bound":
        return Ceiling(None, best.bound, best.seconds)
    player = Contender("optimum", Bound(replace(settings, policy=best.replay()), *schemas))
    player.seconds = best.seconds
    return player


def _play(trace: Trace, bound: Bound, players: list[Contender], progress: Progress | None) -> None:
    intake = Intake(bound.lateness, whole=bound.by_rows)
    left, right = trace.sides
    total = left.ts.size + right.ts.size
    done = 0
    for player in players:
        player.core.warm()
    for mine, theirs in cuts(left.ts, right.ts, SLICE):
        ready = intake.take((_part(left, mine), _part(right, theirs)))
        for player in players:
            player.play(ready, trace)
        done += mine.stop - mine.start + theirs.stop - theirs.start
        if progress is not None:
            progress(done, total)
    ready = intake.advance(None)
    for player in players:
        player.play(ready, trace)


def _part(side: Side, rows: slice) -> Side:
    """Return some rows of a side, one after the other."""
    columns: dict[str, Any] = {
        name: column[rows]
        for name, column in side._asdict().items()
        if isinstance(column, np.ndarray) and column.size
    }
    return side._replace(**columns, rising=side.rising or None)
