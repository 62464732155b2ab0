"""Put joined rows together: which pairs truly meet, their columns, their importance and their time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.windows import Floats, Ints
from penstock.operator.settings import Bound, importance_of
from penstock.streams.sets import doubtful, meets

COMBINED: dict[str, Callable[[Floats], Floats]] = {
    "min": lambda each: each.min(axis=0),
    "max": lambda each: each.max(axis=0),
    "sum": lambda each: each.sum(axis=0),
    "product": lambda each: each.prod(axis=0),
    "mean": lambda each: each.mean(axis=0),
}  # of (row, result): the importance of each result

Columns = Callable[[int, list[str]], Sequence[Any]]  # of the rows of one side of pairs, by name
Keys = Callable[[int, Ints], pa.Table]  # the key columns of rows of one side, by number


def verified(bound: Bound, keys: Keys, left: Ints, right: Ints) -> npt.NDArray[Any] | None:
    """Say which pairs meet by what their rows hold, and not only by codes; None: there is no doubt."""
    if bound.reader:
        rows = [np.unique(numbers) for numbers in (left, right)]
        mine, theirs = (keys(side, rows[side]).column(0) for side in range(2))
        if not doubtful(bound.reader, (mine, theirs)):
            return None
        values = []
        for column, found, numbers in zip((mine, theirs), rows, (left, right), strict=True):
            values.append(column.take(pa.array(np.searchsorted(found, numbers))).to_pylist())
        return np.array([meets(bound.reader.condition, *both) for both in zip(*values, strict=True)], np.bool_)
    if bound.coder.exact:
        return None
    return bound.coder.equal(keys(0, left).columns, keys(1, right).columns)


def importances(bound: Bound, columns: Columns) -> Floats:
    """Return the importance of each pair."""
    assert bound.importance is not None
    values = [importance_of(_column(columns, side, name), name) for side, name in enumerate(bound.importance)]
    return COMBINED[bound.settings.combine](np.stack(values))


def assembled(bound: Bound, columns: Columns, importance: Floats | None, weight: Floats | None) -> pa.Table:
    """Put joined rows together from the columns of both sides, pair by pair, and what is reckoned from them."""
    halves = columns(0, bound.sources[0]), columns(1, bound.sources[1])
    found = [halves[side][at] for side, at in bound.origins]
    found += [pa.array(values) for values in (importance, weight) if values is not None]
    if bound.settings.event_time is not None:
        times = [bound.clock.values(_column(columns, side, name), "time") for side, name in enumerate(bound.time)]
        found.append(bound.clock.column(np.maximum(*times)))
    cast = [
        column if column.type == wanted else column.cast(wanted)
        for column, wanted in zip(found, bound.types, strict=True)
    ]
    return pa.Table.from_arrays(cast, schema=bound.schema)


def _column(columns: Columns, side: int, name: str) -> pa.ChunkedArray:
    return pa.Table.from_arrays(columns(side, [name]), names=[name])[name]
