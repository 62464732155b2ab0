"""Bring a common period of several DataFrames on Spark to the driver, to be measured for a plan."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from penstock.errors import ColumnError, InputError
from penstock.planner.statistics import edges, per_stream
from penstock.spark.pipeline import column

ENOUGH = 1 << 20  # rows of all streams that are brought, or about so many


def sampled(frames: Mapping[str, Any], on: Any, time: Any) -> dict[str, pa.Table]:
    """Return keys and times of the rows of a period that is common to all: all of it, or its first part.

    Parameters:
        frames: DataFrames by name, not streaming.
        on, time: as for ``penstock.plan``.

    Cost: a pass over each DataFrame to count its rows, and one to filter them.
    """
    for name, frame in frames.items():
        if not hasattr(frame, "isStreaming") or frame.isStreaming:
            got = "a stream" if hasattr(frame, "isStreaming") else type(frame).__name__
            raise InputError(name, got, "give DataFrames of Spark that are not streaming, or none")
    names = list(frames)
    times = per_stream("time", time, names)
    needed = {name: [times[name], *_keys(on, name, names)] for name in names}
    for name, columns in needed.items():
        missing = [each for each in columns if each not in frames[name].columns]
        if missing:
            want = f"it has {', '.join(frames[name].columns)}"
            raise ColumnError(repr(missing[0]), f"no such column in {name}", want)
    seen = [_extent(frames[name], times[name]) for name in names]
    rows = sum(count for count, _, _ in seen)
    whole = {
        name: frames[name].select(*map(column, dict.fromkeys(columns))).sort(column(times[name]))
        for name, columns in needed.items()
    }
    if rows > ENOUGH:
        first = min(low for count, low, _ in seen if count)
        last = max(high for count, _, high in seen if count)
        part = (last - first) * (ENOUGH / rows)
        until = first + (int(part) if isinstance(first, int) else part)
        whole = {name: frame.where(column(times[name]) <= F.lit(until)) for name, frame in whole.items()}
    return {name: frame.toArrow() for name, frame in whole.items()}


def _keys(on: Any, name: str, names: list[str]) -> list[str]:
    """Return the columns of one stream that are compared."""
    if isinstance(on, Mapping):
        return [
            each for link in edges(on, names) for owner, columns in link.ends if owner == name for each in columns
        ]
    return [on] if isinstance(on, str) else list(on)


def _extent(frame: Any, time: str) -> tuple[int, Any, Any]:
    """Return how many rows there are, and the first and last time."""
    found = frame.agg(F.count(F.lit(1)), F.min(column(time)), F.max(column(time))).first()
    return int(found[0]), found[1], found[2]
