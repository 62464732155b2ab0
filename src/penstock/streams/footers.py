"""Estimate how many rows a window needs from the footers of Parquet files; no row is read."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.core.windows import Ints
from penstock.errors import TimeError

MOST = 10_000  # files whose footers are read
PARTS = {"ms": 10**3, "us": 10**6, "ns": 10**9}  # of a second
WANT = "write it with statistics, and its times as microseconds and not as INT96"


class Groups(NamedTuple):
    """Row groups: how many rows each has, and their first and last time in microseconds."""

    rows: Ints
    first: Ints
    last: Ints


def groups(files: Sequence[Path], column: str) -> Groups:
    """Return the row groups of Parquet files.

    Parameters:
        files: the files.
        column: their timestamps.

    Raises:
        TimeError: if there are too many files, one cannot be read, or does not say when its rows begin and end.

    Cost: the footers are read, one after the other.
    """
    if len(files) > MOST:
        raise TimeError("time", f"{len(files):,} files", f"footers are read of {MOST:,} at most")
    found = []
    for file in files:
        try:
            footer = pq.read_metadata(file)
        except (OSError, pa.ArrowInvalid) as error:
            raise TimeError("time", f"{file.name}, which cannot be read", "give Parquet files") from error
        found += _groups(footer, file.name, column)
    return Groups(*np.array(found, np.int64).reshape(-1, 3).T)


def _groups(footer: pq.FileMetaData, name: str, column: str) -> list[tuple[int, int, int]]:
    """Return (rows, first, last) of the row groups of one file."""
    schema = footer.schema.to_arrow_schema()
    at = [footer.schema.column(each).path for each in range(footer.num_columns)]
    if column not in at or not pa.types.is_timestamp(schema.field(column).type):
        raise TimeError("time", f"no timestamps {column!r} in {name}", WANT)
    parts = PARTS.get(schema.field(column).type.unit, 1)
    found = []
    for each in range(footer.num_row_groups):
        group = footer.row_group(each)
        if not group.num_rows:
            continue
        chunk = group.column(at.index(column))
        if chunk.physical_type != "INT64" or chunk.statistics is None or not chunk.statistics.has_min_max:
            raise TimeError("time", f"no first and last {column!r} in the footer of {name}", WANT)
        ends = (end * 10**6 // parts for end in (chunk.statistics.min_raw, chunk.statistics.max_raw))
        found.append((group.num_rows, *ends))
    return found


def most(groups: Groups, span: int) -> int:
    """Return how many rows a window holds at most, if those of each row group are spread evenly over its time.

    The idea: the rows that came up to a moment are a line that rises by one at the first row of a group, then evenly
    to its last. Between the ends of groups, and as far after them as the window is long, the rows in the window
    change evenly too: so the most there are is at one of these moments.

    Parameters:
        groups: the row groups.
        span: the length of the window in microseconds; a row that is as old as that has left.

    Cost: O(groups log groups) where they follow each other in time; the square of groups where all overlap.
    """
    if not groups.rows.size:
        return 0
    begin = groups.first.min() - 1
    first, last = groups.first - begin, groups.last - begin
    ends = np.concatenate([first - 1, first, last])
    moments = np.unique(np.concatenate([ends, ends + span]))
    came = np.zeros(moments.size)
    whole = np.searchsorted(moments, last)
    np.add.at(came, whole, groups.rows)
    came = np.cumsum(came)
    for rows, low, high, at, end in zip(
        groups.rows, first, last, np.searchsorted(moments, first), whole, strict=True
    ):
        if low < high:
            came[at:end] += 1 + (rows - 1) * (moments[at:end] - low) / (high - low)
    return int((came - np.interp(moments - span, moments, came, left=0)).max())
