"""Draw traces, push them through a join in any cut, and collect what comes out."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import penstock as pen
from oracles import Arrival, Ident, Kind, Pair, numbered

Shed = tuple[int, int, str, int]  # (side, row, reason, the tick at whose end it left)
SIDES = ("left", "right")


class Got(NamedTuple):
    """What a run did, in the words of the oracles."""

    pairs: list[Pair]
    shed: list[Shed]
    live: set[Ident]
    expired: set[Ident]
    report: pen.Report
    ledger: pa.Table


# --- traces -------------------------------------------------------------------------------------------------------


def random_trace(
    seed: int, rows: int, keys: int, *, nulls: float = 0.05, late: float = 0.0, back: int = 0, tie: float = 0.5
) -> list[Arrival]:
    """Draw a trace: skewed keys, ties, null keys, and a share of rows that are up to `back` ticks late."""
    rng = np.random.default_rng(seed)
    trace = []
    now = int(rng.integers(-3, 4))
    for _ in range(rows):
        if rng.random() >= tie:
            now += 1 if rng.random() < 0.8 else int(rng.integers(2, 5))
        ts = now - int(rng.integers(1, back + 1)) if rng.random() < late else now
        key = None if rng.random() < nulls else int(keys * rng.random() ** 2)
        trace.append(Arrival(int(rng.integers(2)), ts, key))
    return trace


@st.composite
def traces(draw: st.DrawFn, *, rows: int, keys: int, late: bool = False) -> list[Arrival]:
    """Draw a trace with ties, gaps and null keys; if `late`, some rows are older than those before them."""
    steps = draw(
        st.lists(
            st.tuples(
                st.integers(0, 1),
                st.sampled_from([0, 0, 0, 1, 1, 2, 7]),
                st.sampled_from([0, 0, 0, 1, 2, 5, 9] if late else [0]),
                st.one_of(st.none(), *[st.integers(0, keys - 1)] * 9),
            ),
            max_size=rows,
        )
    )
    trace, now = [], draw(st.integers(-2, 2))
    for side, gap, back, key in steps:
        now += gap
        trace.append(Arrival(side, now - back, key))
    return trace


ANY_CUT = {  # of a trace with late rows, in windows of both kinds
    "trace": traces(rows=40, keys=3, late=True),
    "spans": st.tuples(st.integers(1, 9), st.integers(1, 9)),
    "kind": st.sampled_from(["time", "rows"]),
    "lateness": st.integers(0, 6),
    "ends": st.lists(st.integers(0, 40), max_size=3),
}


def by_time(trace: Sequence[Arrival]) -> list[Arrival]:
    """Sort an in-order trace so that within a tick the left comes first: the order in which tables are merged."""
    return sorted(trace, key=lambda arrival: (arrival.ts, arrival.side))


def merged(trace: Sequence[Arrival], reached: Sequence[int | None] = (None, None)) -> list[Arrival]:
    """Return the order in which a join takes these rows if they come in one push."""
    newest = list(reached)
    ordered = []
    for at, arrival in enumerate(trace):
        before = newest[arrival.side]
        mine = arrival.ts if before is None else max(before, arrival.ts)
        newest[arrival.side] = mine
        ordered.append((mine, arrival.side, at))
    return [trace[at] for _, _, at in sorted(ordered)]


# --- pushes -------------------------------------------------------------------------------------------------------

Table = Callable[[Sequence[Arrival], int, int], pa.Table]


def plain_table(trace: Sequence[Arrival], side: int, first: int) -> pa.Table:
    """Return the rows of one side with their numbers, the first of them being `first`."""
    mine = [arrival for arrival in trace if arrival.side == side]
    return pa.table(
        {
            "ts": pa.array([arrival.ts for arrival in mine], pa.int64()),
            "key": pa.array([arrival.key for arrival in mine], pa.int64()),
            "row": pa.array(range(first, first + len(mine)), pa.int64()),
        }
    )


def text_table(trace: Sequence[Arrival], side: int, first: int) -> pa.Table:
    """Return the same with keys that are text, so that their codes are hashes, and on the left a dictionary."""
    table = plain_table(trace, side, first)
    keys = pa.array([None if key is None else f"key {key}" for key in table["key"].to_pylist()], pa.string())
    return table.set_column(1, "key", keys if side else keys.dictionary_encode())


def weighty_table(trace: Sequence[Arrival], side: int, first: int) -> pa.Table:
    """Return the same with rows of different sizes and importance."""
    table = plain_table(trace, side, first)
    numbers = table["row"].to_pylist()
    return table.append_column(
        "note", pa.array(["x" * (7 * row % 41) for row in numbers], pa.string())
    ).append_column("weight", pa.array([float(row % 5) for row in numbers], pa.float64()))


def pieces(trace: Sequence[Arrival], ends: Iterable[int]) -> list[list[Arrival]]:
    """Cut a trace after so many rows."""
    places = sorted({0, len(trace), *(min(end, len(trace)) for end in ends)})
    return [list(trace[a:b]) for a, b in itertools.pairwise(places)]


def pushes(trace: Sequence[Arrival], ends: Iterable[int]) -> list[list[Arrival]]:
    """Cut a trace into pushes that keep its order: where both sides in one push would not, split them."""
    reached: list[int | None] = [None, None]
    parts: list[list[Arrival]] = []
    for piece in pieces(trace, ends):
        if merged(piece, reached) == piece:
            parts.append(piece)
        else:
            runs: list[list[Arrival]] = []
            for arrival in piece:
                if runs and runs[-1][0].side == arrival.side:
                    runs[-1].append(arrival)
                else:
                    runs.append([arrival])
            parts += runs
        for side, ts, _ in piece:
            before = reached[side]
            reached[side] = ts if before is None else max(before, ts)
    return parts


class Pusher:
    """A join and what came out of it so far."""

    def __init__(self, table: Table = plain_table, **arguments: Any) -> None:
        self.table = table
        schemas = table([], 0, 0).schema, table([], 1, 0).schema
        self.join = pen.Join(on="key", time="ts", schemas=schemas, **arguments)
        self.came = [0, 0]
        self.rows: list[pa.Table] = []
        self.ledger: list[pa.Table] = []

    def push(self, part: Sequence[Arrival]) -> None:
        """Push rows of one side, or of both at once."""
        given: dict[str, pa.Table] = {}
        for side, name in enumerate(SIDES):
            table = self.table(part, side, self.came[side])
            if table.num_rows:
                given[name] = table
            self.came[side] += table.num_rows
        self.rows.append(self.join.push(**given))

    def reborn(self) -> None:
        """Save the join, throw it away and bring it back."""
        state = {str(name): bytes(value) for name, value in self.join.state_dict().items()}
        self.join = pen.Join.from_state(state)

    def finish(self) -> Got:
        """Close the last tick and say what happened."""
        self.rows.append(self.join.finish())
        return self.got()

    def got(self) -> Got:
        """Say what happened so far."""
        self.ledger.append(self.join.ledger())
        ledger = pa.concat_tables(self.ledger)
        report = self.join.report()
        shed = shed_rows(ledger)
        live = live_rows(self.join)
        gone = {(side, row) for side, row, _, _ in shed}
        every = {(side, row) for side in range(2) for row in range(self.came[side])}
        return Got(pairs_of(pa.concat_tables(self.rows)), shed, live, every - gone - live, report, ledger)


def pairs_of(joined: pa.Table) -> list[Pair]:
    """Return the row numbers of joined rows, in their order."""
    return list(zip(joined["row_left"].to_pylist(), joined["row_right"].to_pylist(), strict=True))


def shed_rows(ledger: pa.Table) -> list[Shed]:
    """Return a ledger in the words of the oracles, sorted."""
    columns = (ledger[name].to_pylist() for name in ("side", "arrival", "reason", "shed_at"))
    return sorted((SIDES.index(side), row, reason, tick) for side, row, reason, tick in zip(*columns, strict=True))


def live_rows(join: pen.Join) -> set[Ident]:
    """Return the rows that a join holds."""
    queue = join._intake.waiting
    held = {(side, int(row)) for side in range(2) for row in join._core.live_rows(side)}
    return held | set(zip(queue.side.tolist(), queue.row.tolist(), strict=True))


def drive(trace: Sequence[Arrival], ends: Iterable[int] = (), table: Table = plain_table, **arguments: Any) -> Got:
    """Push a trace, cut at these places, and return what came out."""
    pusher = Pusher(table, **arguments)
    for part in pushes(trace, ends):
        pusher.push(part)
    return pusher.finish()


def window(spans: tuple[int, int], kind: Kind) -> Any:
    """Write a window as a user does."""
    left, right = (span if kind == "time" else pen.rows(span) for span in spans)
    return left if spans[0] == spans[1] else (left, right)


def held_after_ticks(join: pen.Join, trace: Sequence[Arrival]) -> list[Ident]:
    """Return the rows held from closed ticks, given the trace so far: the open tick is outside the budget."""
    rows = numbered(list(trace))
    newest = max((row.ts for row in rows), default=0)
    times = {(row.side, row.row): row.ts for row in rows}
    waiting = join._intake.waiting
    queue = set(zip(waiting.side.tolist(), waiting.row.tolist(), strict=True))
    lateness = join.bound.lateness
    arrived = {}  # when a row came, which for a late row is not its own time
    reached = None
    for row in rows:
        reached = row.ts if reached is None else max(reached, row.ts)
        arrived[row.side, row.row] = row.ts if join.bound.by_rows else reached
    bar = newest - lateness if join.bound.by_rows else newest
    return [ident for ident in live_rows(join) if ident in times and ident not in queue and arrived[ident] < bar]


def bytes_of(ident: Ident) -> int:
    """Count what a row of a `weighty_table` weighs: its Arrow bytes, and 96 for the join's own books."""
    words, offset, note = 4 * 8, 4, 7 * ident[1] % 41
    return words + offset + note + 96
