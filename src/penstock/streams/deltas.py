"""Estimate how many rows a window over a Delta table needs from what its log says of its files; no row is read."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq

from penstock.errors import TimeError
from penstock.streams.footers import Groups

LOG = "_delta_log"
MOST = 10_000  # parts of a log that are read
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def groups(files: Sequence[Path], column: str) -> Groups:
    """Return the files of a Delta table as groups of rows.

    Parameters:
        files: those that are part of the table now.
        column: their timestamps; the log has them in milliseconds.

    Raises:
        TimeError: if the log is too long, cannot be read, or does not say of a file when its rows begin and end.

    Cost: all of the log that is there is read.
    """
    try:
        [log] = {next(each / LOG for each in file.parents if (each / LOG).is_dir()) for file in files}
        known = dict(_said(log))
        found = [_group(known[file.name], column) for file in files]
    except (OSError, StopIteration, LookupError, TypeError, ValueError) as error:
        want = "have Delta collect statistics of it, which it does of a table's first 32 columns"
        raise TimeError("time", f"no first and last {column!r} of every file in the table's log", want) from error
    return Groups(*np.array(found, np.int64).reshape(-1, 3).T)


def _said(log: Path) -> Iterator[tuple[str, str]]:
    """Yield the name of every file that was ever added, as far as the log goes back, and what is said about it."""
    parts = sorted([*log.glob("*.json"), *log.glob("*.checkpoint*.parquet")])
    if len(parts) > MOST:
        raise TimeError("time", f"{len(parts):,} parts of the table's log", f"{MOST:,} are read at most")
    for part in parts:
        for added in _added(part):
            if added is not None and added.get("stats") is not None:
                yield unquote(added["path"]).rpartition("/")[2], added["stats"]


def _added(part: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the entries of one part of a log that add files."""
    if part.suffix == ".json":
        for line in part.read_text(encoding="utf-8").splitlines():
            yield json.loads(line).get("add")
    else:
        yield from pq.read_table(part, columns=["add"])["add"].to_pylist()


def _group(said: str, column: str) -> tuple[int, int, int]:
    """Return (rows, first, last) of one file."""
    told = json.loads(said)
    first, last = (
        (datetime.fromisoformat(told[end][column]) - EPOCH) // MICROSECOND for end in ("minValues", "maxValues")
    )
    return told["numRecords"], first, last
