"""Run a join over whole tables: cut them into pushes in order of arrival, collect what comes out."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.windows import Ints
from penstock.errors import InputError, OrderError
from penstock.operator.join import Join, as_table
from penstock.operator.settings import SIDES, Bound, Settings
from penstock.quality.books import Report

SLICE = 1 << 16
Progress = Callable[[int, int], None]


class Result(NamedTuple):
    """A joined table with its report and its ledger; of DataFrames of Spark, these are such, too."""

    table: Any
    report: Report
    ledger: Any


def in_order(bound: Bound, ts: Ints, side: int, first: int = 0) -> None:
    """Raise if rows, numbered from `first`, are not in time order and no lateness allows for that."""
    if bound.patient or bound.ordered:  # nobody here says how far the watermark is: nothing would ever expire
        want = "a watermark is for pen.Join, which is told of it: say how late rows may be"
        raise InputError("lateness", repr(bound.settings.lateness), want)
    if bound.lateness == 0 and ts.size > 1:
        back = np.flatnonzero(ts[1:] < ts[:-1])
        if back.size:
            got = f"row {first + int(back[0]) + 1} is older than the row before it"
            raise OrderError(SIDES[side], got, "sort it by time, or say with lateness= how late rows may be")


def cuts(left: Ints, right: Ints, rows: int) -> Iterator[tuple[slice, slice]]:
    """Cut two time columns into consecutive slices of so many rows together, in order of arrival."""
    reached = [np.maximum.accumulate(ts) for ts in (left, right)]
    order = np.argsort(np.concatenate(reached), kind="stable")
    from_left = np.concatenate([[0], np.cumsum(order < left.size)])
    at = 0
    while at < order.size:
        end = min(at + rows, order.size)
        a, b = int(from_left[at]), int(from_left[end])
        yield slice(a, b), slice(at - a, end - b)
        at = end


def two_tables(left: Any, right: Any) -> tuple[pa.Table, pa.Table, bool]:
    """Return both inputs as Arrow tables, and whether the result is to be pandas."""
    tables = []
    for name, rows in zip(SIDES, (left, right), strict=True):
        table = as_table(rows, name)
        if table is None:
            raise InputError(name, "None", "give an Arrow table or a pandas DataFrame")
        tables.append(table.replace_schema_metadata(None))
    return tables[0], tables[1], type(left).__module__.startswith("pandas.")


def run(left: Any, right: Any, settings: Settings, *, ledger: str, progress: Progress | None = None) -> Result:
    """Join two tables.

    Parameters:
        left, right: Arrow tables or pandas DataFrames, in order of time (or as late as `lateness` allows).
        settings: the arguments of the join.
        ledger: "keep" or "off".
        progress: told how many of how many rows are done.

    Returns:
        The joined table (pandas if `left` is), the report, and the ledger.
    """
    left_table, right_table, to_pandas = two_tables(left, right)
    op = Join(
        schemas=(left_table.schema, right_table.schema),
        ledger=ledger,
        **settings.arguments(),
    )
    table = pa.concat_tables(list(pump(op, left_table, right_table, progress)))
    return Result(table.to_pandas() if to_pandas else table, op.report(), op.ledger())


def pump(op: Join, left: pa.Table, right: pa.Table, progress: Progress | None = None) -> Iterator[pa.Table]:
    """Push two whole tables through a join, a slice at a time, and yield what comes out."""
    bound = op.bound
    ts = read_times(bound, left, right)
    total = left.num_rows + right.num_rows
    done = 0
    for mine, theirs in cuts(*ts, SLICE):
        slices = left[mine.start : mine.stop], right[theirs.start : theirs.stop]
        yield op.push(left=slices[0], right=slices[1])
        done += slices[0].num_rows + slices[1].num_rows
        if progress is not None:
            progress(done, total)
    yield op.finish()


def read_times(bound: Bound, left: pa.Table, right: pa.Table) -> tuple[Ints, Ints]:
    """Return the time columns of both tables, in order or within the lateness allowed."""
    times = []
    for side, table in enumerate((left, right)):
        name = bound.time[side]
        ts = bound.clock.values(table[name], f"time={name!r}")
        in_order(bound, ts, side)
        times.append(ts)
    return times[0], times[1]
