"""Read two tables and find the best that any policy could have done with them."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.pump import read_times, two_tables
from penstock.errors import BudgetError, ImportanceError, InputError
from penstock.operator.settings import SIDES, Bound, Settings
from penstock.optimum.problem import Pool, Problem, problem
from penstock.optimum.solve import Best, best, ticks_of
from penstock.policies.registry import Policy, policy
from penstock.streams.intake import NO_FLOATS, NO_INTS, Side
from penstock.streams.keys import widened

OBJECTIVES = ("count", "importance")
PROVED = 1e-9  # what sums of fractions may lose in their last digits


class Schedule(dict[str, list[Any]]):
    """The columns of a schedule; in the name of its policy they are only counted."""

    def __repr__(self) -> str:
        return f"{len(self['row'])} rows kept"


@dataclass(frozen=True)
class Optimum:
    """The best that was possible: its value, a bound that proves it, and who stays until when.

    `value` is what the schedule reaches, in pairs or in importance; `bound` is what nothing exceeds: they are equal
    when the optimum is proved. `schedule` has the columns `side`, `row` and `until` (the last tick in memory, in the
    units of the time column) for the rows that are kept; ``replay()`` is the policy that plays it. `prices` is the
    proof: what a place in memory is worth from `time` on, until the next row, where it is worth anything.
    """

    value: float
    bound: float
    schedule: pa.Table
    prices: pa.Table
    objective: str
    seconds: float

    @property
    def gap(self) -> float:
        """How far the value may be from the optimum, as a share of the bound; 0 when it is proved."""
        rounding = PROVED * self.bound if self.objective == "importance" else 0
        return (self.bound - self.value) / self.bound if self.bound - self.value > rounding else 0.0

    def replay(self) -> Policy:
        """Return the policy that plays the schedule."""
        return policy("replay", schedule=Schedule(self.schedule.to_pydict()))

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, without the tables."""
        names = ("objective", "value", "bound", "gap", "seconds")
        return {**{name: getattr(self, name) for name in names}, "kept": self.schedule.num_rows}


def optimum(
    left: Any,
    right: Any,
    settings: Settings,
    *,
    objective: str = "count",
    count_from: object = None,
    time_limit: object = None,
) -> Optimum:
    """Find the best schedule for two tables, in order of time."""
    begin = time.perf_counter()
    limit = seconds(time_limit)
    left_table, right_table, _ = two_tables(left, right)
    bound = Bound(settings, left_table.schema, right_table.schema)
    asked(bound, objective)
    stated = read(bound, (left_table, right_table), objective, count_from)
    found = best(stated, pools(bound), limit)
    return Optimum(
        value=number(found.value, objective),
        bound=number(found.bound, objective),
        schedule=schedule(stated, found),
        prices=price_table(bound, stated, found),
        objective=objective,
        seconds=time.perf_counter() - begin,
    )


def seconds(limit: object) -> float | None:
    """Return a time limit in seconds."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | float | np.number) or not limit > 0:
        raise InputError("time_limit", repr(limit), "give a number of seconds, or None")
    return float(limit)


def asked(bound: Bound, objective: str) -> None:
    """Refuse what the optimum is not defined for, or not computable."""
    settings = bound.settings
    if objective not in OBJECTIVES:
        raise InputError("objective", repr(objective), f"give one of {', '.join(map(repr, OBJECTIVES))}")
    if objective == "importance" and bound.importance is None:
        raise ImportanceError("importance", "None", 'objective="importance" needs a column of importances')
    if bound.unit == "bytes":
        want = "give rows: with rows of different sizes the optimum is a knapsack, and no flow finds it"
        raise BudgetError("memory", repr(settings.memory), want)
    if settings.per_key is not None:
        raise BudgetError("per_key", repr(settings.per_key), "the optimum knows no such limit: leave it None")
    if bound.lateness or bound.patient:
        raise InputError("lateness", repr(settings.lateness), "the optimum is for rows in order of time: sort them")


def read(bound: Bound, tables: tuple[pa.Table, pa.Table], objective: str, count_from: object) -> Problem:
    """State the problem that two tables pose."""
    read_times(bound, *tables)
    sides = bound.read(0, tables[0]), bound.read(1, tables[1])
    return problem(
        sides if bound.coder.exact else distinct(bound, tables, sides),
        span=bound.span,
        by_rows=bound.by_rows,
        combine=bound.settings.combine if objective == "importance" else None,
        count_from=None if count_from is None else bound.clock.tick("count_from", count_from),
    )


def distinct(bound: Bound, tables: tuple[pa.Table, pa.Table], sides: tuple[Side, Side]) -> tuple[Side, Side]:
    """Give every key a number, equal only for equal keys: codes that are hashes may collide."""
    columns = [
        pa.concat_arrays([widened(tables[0][mine], kind), widened(tables[1][theirs], kind)])
        for mine, theirs, kind in zip(*bound.keys, bound.coder.types, strict=True)
    ]
    code = np.concatenate([side.code for side in sides])
    masks: list[npt.NDArray[Any]] = [
        np.ones(side.ts.size, np.bool_) if side.valid is None else side.valid for side in sides
    ]
    rest = np.flatnonzero(np.concatenate(masks))
    numbers = np.zeros(code.size, np.int64)
    given = 0
    while rest.size:
        _, first, which = np.unique(code[rest], return_index=True, return_inverse=True)
        mine, model = pa.array(rest), pa.array(rest[first[which]])
        same = bound.coder.equal([c.take(mine) for c in columns], [c.take(model) for c in columns])
        numbers[rest[same]] = given + which[same]
        given += first.size
        rest = rest[~same]
    cut = sides[0].ts.size
    return sides[0]._replace(code=numbers[:cut]), sides[1]._replace(code=numbers[cut:])


def pools(bound: Bound) -> tuple[Pool, ...]:
    """Return the pools of a budget."""
    if bound.shared:
        return (Pool((0, 1), bound.limit[0]),)
    return Pool((0,), bound.limit[0]), Pool((1,), bound.limit[1])


def number(value: float, objective: str) -> float:
    """Return a number of pairs as a whole number: a bound on it is rounded down."""
    return math.floor(value + PROVED) if objective == "count" else value


def schedule(stated: Problem, found: Best) -> pa.Table:
    """Return who stays until when, by side and row."""
    parts = [ticks_of(stated, solution) for solution in found.pools]
    side, row, until = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((row, side))
    names = np.array(SIDES, dtype=object)[side[order]]
    columns = {"side": pa.array(names, pa.string()), "row": row[order], "until": until[order]}
    return pa.table(columns)


def price_table(bound: Bound, stated: Problem, found: Best) -> pa.Table:
    """Return the prices that prove the bound."""
    names: list[str] = []
    moments, values = [NO_INTS], [NO_FLOATS]
    for solution in found.pools:
        at = np.flatnonzero(solution.prices)
        names += ["shared" if bound.shared else SIDES[solution.pool.sides[0]]] * at.size
        moments.append(stated.ticks[at])
        values.append(solution.prices[at])
    columns = {
        "pool": pa.array(names, pa.string()),
        "time": bound.clock.column(np.concatenate(moments)),
        "price": np.concatenate(values),
    }
    return pa.table(columns)
