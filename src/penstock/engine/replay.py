"""Replay two files through a join: read them side by side in order of time, write results as they come."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from penstock.core.windows import Ints
from penstock.engine.pump import cuts, in_order
from penstock.errors import InputError
from penstock.operator.join import Join
from penstock.operator.settings import SIDES, Bound, Settings
from penstock.quality.books import Report
from penstock.streams import files
from penstock.streams.encodings import decoded
from penstock.streams.intake import NO_INTS, reached

BATCH = 1 << 16  # rows read at a time
SHOWN = 10  # rows of the result that are kept to be looked at
FEWEST, MOST = 1 << 10, 1 << 16  # rows pushed at a time
PAIRS = 1 << 20  # about as many come out of a push
WRITTEN = 1 << 16  # rows written at a time

Progress = Callable[[int, int | None], None]  # rows done, rows in all (None: not known)


class Replayed(NamedTuple):
    """What a replay leaves behind, besides its files."""

    report: Report
    first: pa.Table  # the first rows of the result
    rows: int  # rows of the result
    seconds: float


def replay(
    left: files.PathLike,
    right: files.PathLike,
    settings: Settings,
    *,
    out: files.PathLike | None = None,
    ledger: files.PathLike | None = None,
    batch: int = BATCH,
    progress: Progress | None = None,
) -> Replayed:
    """Join two files without loading them.

    The idea: of the side that is behind in time, the next batch is read. A row goes into the join once no row
    still unread can come before it: the order of arrival is that of ``penstock.join`` over the whole tables, and
    so is the result.

    Parameters:
        left, right: files in order of time, in a format that ``files.read`` takes.
        settings: the arguments of the join.
        out: where the result goes, whole or not at all; None: nowhere, it is only counted.
        ledger: the same for what was shed.
        batch: rows read at a time.
        progress: told how many of how many rows are done.

    Returns:
        The report, the first rows of the result, how many there were, and how long it took.

    Cost: a batch of each file, the windows, and the result of a push (about a million rows) in memory.
    """
    begin = time.perf_counter()
    if out is not None and ledger is not None and Path(out).resolve() == Path(ledger).resolve():
        raise InputError("ledger", ledger, "the result goes to that file: give another")
    schemas = files.schema(left).remove_metadata(), files.schema(right).remove_metadata()
    arguments = settings.arguments()
    op = Join(schemas=schemas, ledger="off" if ledger is None else "keep", **arguments)
    lanes = Lane(left, 0, op.bound, batch), Lane(right, 1, op.bound, batch)
    counts = [row_count(path) for path in (left, right)]
    total = None if counts[0] is None or counts[1] is None else counts[0] + counts[1]
    with ExitStack() as stack:
        losses = stack.enter_context(Sink(ledger, op.ledger().schema))
        results = stack.enter_context(Sink(out, op.bound.schema))
        done = 0
        for joined in pushed(op, lanes):
            results.write(joined)
            losses.write(op.ledger())
            if progress is not None:
                done = sum(lane.read_rows - lane.waiting for lane in lanes)
                progress(done, total)
        results.flush()  # a disk that is full says so before either file is in place
        losses.flush()
    return Replayed(op.report(), results.first, results.rows, time.perf_counter() - begin)


def pushed(op: Join, lanes: "tuple[Lane, Lane]") -> Iterator[pa.Table]:
    """Push the rows of two lanes in order of arrival and yield what comes out."""
    left, right = lanes
    size = FEWEST
    while not (left.done and right.done):
        behind = left if right.ended or not (left.ended or right.before(left)) else right
        behind.read()
        reach = left.ready(right, ties=True), right.ready(left, ties=False)
        mine, theirs = left.take(reach[0]), right.take(reach[1])
        at = [0, 0]
        while (at[0], at[1]) != reach:
            a, b = next(cuts(mine.reached[at[0] :], theirs.reached[at[1] :], size))
            slices = mine.table[at[0] :][a], theirs.table[at[1] :][b]
            joined = op.push(left=slices[0], right=slices[1])
            at = [at[0] + slices[0].num_rows, at[1] + slices[1].num_rows]
            rows = slices[0].num_rows + slices[1].num_rows
            size = min(MOST, max(FEWEST, PAIRS * rows // max(joined.num_rows, 1)))
            yield joined
    yield op.finish()


class Stretch(NamedTuple):
    """Rows of one file with the newest time up to each of them."""

    table: pa.Table
    reached: Ints


class Lane:
    """One file on its way into the join: what was read and has not been pushed yet."""

    def __init__(self, path: files.PathLike, side: int, bound: Bound, batch: int) -> None:
        self._batches = files.batches(path, rows=batch)
        self._path = path
        self._side = side
        self._bound = bound
        self._held = Stretch(bound.schemas[side].empty_table(), NO_INTS)
        self.newest: int | None = None
        self.read_rows = 0
        self.ended = False

    @property
    def waiting(self) -> int:
        """How many rows were read and not taken."""
        return int(self._held.reached.size)

    @property
    def done(self) -> bool:
        """Whether every row was read and taken."""
        return self.ended and not self.waiting

    def read(self) -> None:
        """Read the next batch; it must be in order."""
        batch = next(self._batches, None)
        if batch is None:
            self.ended = True
            return
        bound, side = self._bound, self._side
        table = decoded(pa.Table.from_batches([batch]), SIDES[side]).replace_schema_metadata(None)
        name = bound.time[side]
        ts = bound.clock.values(table[name], f"time={name!r} in {self._path}", self.read_rows)
        if self.newest is None:
            in_order(bound, ts, side, self.read_rows)
        else:
            in_order(bound, np.append(self.newest, ts), side, self.read_rows - 1)
        progress = reached(ts, self.newest)
        self._held = Stretch(
            pa.concat_tables([self._held.table, table]) if self.waiting else table,
            np.concatenate([self._held.reached, progress]) if self.waiting else progress,
        )
        self.newest = int(progress[-1])
        self.read_rows += ts.size

    def before(self, other: "Lane") -> bool:
        """Say whether this lane is strictly behind another in time; one that has not begun is."""
        if self.newest is None or other.newest is None:
            return self.newest is None and other.newest is not None
        return self.newest < other.newest

    def ready(self, other: "Lane", *, ties: bool) -> int:
        """Return how many rows come before whatever the other lane has not read yet."""
        if other.ended:
            return self.waiting
        if other.newest is None:
            return 0
        return int(np.searchsorted(self._held.reached, other.newest, side="right" if ties else "left"))

    def take(self, rows: int) -> Stretch:
        """Hand over the first rows."""
        table, progress = self._held
        self._held = Stretch(table[rows:], progress[rows:])
        return Stretch(table[:rows], progress[:rows])


class Sink:
    """Where rows go: into a file, in pieces worth writing, or nowhere."""

    def __init__(self, path: files.PathLike | None, schema: pa.Schema) -> None:
        self._writer = None if path is None else files.writer(path, schema)
        self._pieces: list[pa.Table] = []
        self._kept = 0
        self.first = schema.empty_table()
        self.rows = 0

    def write(self, table: pa.Table) -> None:
        """Take rows."""
        if self.rows < SHOWN and table.num_rows:
            self.first = pa.concat_tables([self.first, table[: SHOWN - self.rows]])
        self.rows += table.num_rows
        if self._writer is not None and table.num_rows:
            self._pieces.append(table)
            self._kept += table.num_rows
            if self._kept >= WRITTEN:
                self.flush()

    def flush(self) -> None:
        """Write what was taken."""
        if self._writer is not None and self._pieces:
            self._writer.write(pa.concat_tables(self._pieces))
        self._pieces, self._kept = [], 0

    def __enter__(self) -> Self:
        if self._writer is not None:
            self._writer.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.__exit__(*error)  # type: ignore[arg-type]


def row_count(path: files.PathLike) -> int | None:
    """Return how many rows a file has, if it says so without being read."""
    if Path(path).suffix.lower() != ".parquet":
        return None
    with pa.parquet.ParquetFile(path) as file:
        return int(file.metadata.num_rows)
