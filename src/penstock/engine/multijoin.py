"""Join several whole tables at once: one pass of the push operator over them."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.errors import InputError, OrderError
from penstock.operator.join import as_table
from penstock.operator.multijoin import MultiJoin
from penstock.operator.several import Bound, Settings
from penstock.quality.flows import Flows
from penstock.streams.intake import follows

SLICE = 1 << 15  # rows of all streams that are pushed at once, about


class Joined(NamedTuple):
    """A joined table with its report and its ledger; of DataFrames of Spark, these are such, too."""

    table: Any
    report: Flows
    ledger: Any


def run(streams: Any, settings: Settings, ledger: str = "keep") -> Joined:
    """Join whole tables.

    Parameters:
        streams: Arrow tables or pandas DataFrames by name, each in order of time.
        settings: the other arguments.
        ledger: as for ``penstock.MultiJoin``.
    """
    tables = tables_of(streams)
    op = MultiJoin(
        {name: table.schema for name, table in tables.items()}, ledger=ledger, **whole(settings).arguments()
    )
    found = [op.push(part) for part in portions(op.bound, tables)]
    table = pa.concat_tables([op.bound.schema.empty_table(), *found, op.finish()])
    to_pandas = type(next(iter(streams.values()))).__module__.startswith("pandas.")
    return Joined(table.to_pandas() if to_pandas else table, op.report(), op.ledger())


def whole(settings: Settings) -> Settings:
    """Return settings for whole tables, and raise for what only streams have."""
    if settings.shards is not None:
        raise InputError("shards", repr(settings.shards), "one process is one shard; leave it None")
    if settings.lateness != 0:
        want = "whole tables are in order of time: leave it 0; pen.MultiJoin takes rows as they come"
        raise InputError("lateness", repr(settings.lateness), want)
    return settings


def tables_of(streams: Any) -> dict[str, pa.Table]:
    """Return tables by name, whatever they came as."""
    if not isinstance(streams, Mapping) or len(streams) < 2:
        got = f"one, {', '.join(map(repr, streams))}" if isinstance(streams, Mapping) and streams else repr(streams)
        raise InputError("streams", got, "give two or more tables by name")
    tables: dict[str, pa.Table] = {}
    for name, rows in streams.items():
        if not isinstance(name, str) or not name:
            raise InputError("streams", repr(name), "name each stream with a word")
        table = as_table(rows, name)
        if table is None:
            raise InputError(name, "None", "give an Arrow table or a pandas DataFrame")
        tables[name] = table.replace_schema_metadata(None).combine_chunks()  # portions have one chunk then
    return tables


def portions(bound: Bound, tables: Mapping[str, pa.Table]) -> Iterator[dict[str, pa.Table]]:
    """Cut tables, each in order of time, into portions of whole ticks.

    Raises:
        OrderError: if a table is not in order.
    """
    times = []
    for (name, table), column in zip(tables.items(), bound.time, strict=True):
        ts = bound.clock.values(table[column], f"time={column!r}")
        if not follows(ts, None):
            back = np.flatnonzero(ts[1:] < ts[:-1])
            raise OrderError(name, f"row {int(back[0]) + 1} is older than the row before it", "sort it by time")
        times.append(ts)
    begins = [0] * len(times)
    while left := [(ts, begin) for ts, begin in zip(times, begins, strict=True) if begin < ts.size]:
        part = SLICE / sum(
            ts.size - begin for ts, begin in left
        )  # of what is left of each, unless more are of one tick
        last = min(ts[begin + max(min(int(part * (ts.size - begin)), ts.size - begin), 1) - 1] for ts, begin in left)
        ends = [int(np.searchsorted(ts, last, side="right")) for ts in times]
        yield {
            name: table[begin:end]
            for (name, table), begin, end in zip(tables.items(), begins, ends, strict=True)
            if begin < end
        }
        begins = ends
