"""Measure the indexed overlap join beside the nested loop, and beside DuckDB in a loop as users would write it."""

from functools import partial
from typing import Any

import duckdb
import pyarrow as pa

import penstock as pen
from benchmarks import registry_tables
from benchmarks.cases import in_turns
from penstock.streams.workloads import drifting

AT_LEAST = 3
WINDOW = 50_000  # rows in each window
TIMED = 4_000  # rows of each side that come once the right window is full
BATCH = 1_000
ITEMS = (100, 1_000, 10_000)  # distinct items
ROUNDS = 2
WANTED = 10  # times the nested loop


def streams(items: int) -> tuple[pa.Table, pa.Table]:
    """Return two streams of sets, numbered, one row of each side a millisecond."""
    drawn = drifting((WINDOW + TIMED) / 1000, rate=1000, items=items, skew=0.4, seed=5)
    ts = pa.array(range(WINDOW + TIMED))
    left, right = (pa.table({"id": ts, "ts": ts, "items": table["items"]}) for table in drawn)
    return left, right


def full(left: pa.Table, right: pa.Table, *, index: bool) -> dict[str, bytes]:
    """Return the state of a join whose right window is full: to fill both takes the nested loop minutes."""
    on = pen.overlap("items", at_least=AT_LEAST, index=index)
    op = pen.Join(on=on, time="ts", window=WINDOW, ledger="off")
    op.push(left=left[:0], right=right[:WINDOW])
    return op.state_dict()


def penstock_loop(ops: list[pen.Join], left: pa.Table, right: pa.Table, found: list[int]) -> None:
    """Join the rows that come then, with the last of some joins."""
    op, pairs = ops.pop(), 0
    for at in range(WINDOW, WINDOW + TIMED, BATCH):
        pairs += op.push(left=left.slice(at, BATCH), right=right.slice(at, BATCH)).num_rows
    found.append(pairs)


def duckdb_loop(left: pa.Table, right: pa.Table, found: list[int]) -> None:
    """Do the same with DuckDB: each side is a table of items, from which old rows are deleted.

    Items that are shared are counted; duplicate items count once, as everywhere. It fills the window in its time too.
    """
    joined = (
        f"FROM {{}} l JOIN {{}} r ON l.item = r.item AND l.ts - r.ts < {WINDOW} AND r.ts - l.ts < {WINDOW} "
        f"SELECT l.id AS a, r.id AS b GROUP BY a, b HAVING count(*) >= {AT_LEAST}"
    )
    query = f"{joined.format('new_left', 'all_right')} UNION ALL {joined.format('held_left', 'new_right')}"
    apart = "SELECT DISTINCT id, ts, unnest(items) AS item FROM "
    pairs = 0
    with duckdb.connect() as connection:
        connection.execute("SET preserve_insertion_order = false")
        for name, table in (("left", left[:0]), ("right", right[:WINDOW])):
            connection.register("rows", table)
            connection.execute(f"CREATE TABLE held_{name} AS {apart} rows")
        for at in range(WINDOW, WINDOW + TIMED, BATCH):
            for name, table in (("left", left), ("right", right)):
                connection.register("rows", table.slice(at, BATCH))
                connection.execute(f"CREATE OR REPLACE TEMP TABLE new_{name} AS {apart} rows")
            connection.execute("INSERT INTO held_right SELECT * FROM new_right")
            connection.execute("CREATE OR REPLACE VIEW all_right AS SELECT * FROM held_right")
            pairs += connection.sql(query).to_arrow_table().num_rows
            connection.execute("INSERT INTO held_left SELECT * FROM new_left")
            for name in ("left", "right"):
                gone = at + BATCH - 1 - WINDOW
                connection.execute(f"DELETE FROM held_{name} WHERE ts <= {gone}")  # noqa: S608 - a number
    found.append(pairs)


def measure() -> list[dict[str, Any]]:
    """Return the seconds of each way through the rows that come once the right window is full, and their pairs."""
    results = []
    for items in ITEMS:
        left, right = streams(items)
        found: list[int] = []
        runs = {"duckdb": partial(duckdb_loop, left, right, found)}
        for name, index in (("indexed", True), ("nested", False)):
            state = full(left, right, index=index)
            ops = [pen.Join.from_state(state) for _ in range(ROUNDS)]
            runs[name] = partial(penstock_loop, ops, left, right, found)
        seconds = {name: timing.wall for name, timing in in_turns(runs, rounds=ROUNDS).items()}
        assert len(set(found)) == 1, found
        results.append({"items": items, "pairs": found[0], "seconds": seconds})
        print(results[-1], flush=True)
    return results


def page(results: list[dict[str, Any]]) -> str:
    """Return the results as Markdown."""
    head = ["items", "pairs", "indexed, rows/s", "nested loop, rows/s", "DuckDB, rows/s", "over the nested loop"]
    head += [f"wanted: ≥ {WANTED}", "over DuckDB"]
    rows = []
    for one in results:
        seconds = one["seconds"]
        speed = [f"{2 * TIMED / seconds[name]:,.0f}" for name in ("indexed", "nested", "duckdb")]
        times = seconds["nested"] / seconds["indexed"]
        over = f"{seconds['duckdb'] / seconds['indexed']:.1f}"
        met = "yes" if times >= WANTED else "no"
        rows.append([f"{one['items']:,}", f"{one['pairs']:,}", *speed, f"{times:.1f}", met, over])
    words = f"Rows share {AT_LEAST} of about 5 items. The right window is full, with {WINDOW:,} rows; then {TIMED:,} "
    words += f"rows of each side come, {BATCH:,} at once. All three find the same number of pairs."
    return "\n\n".join(["### The index on sets", words, registry_tables.table(head, rows)])
