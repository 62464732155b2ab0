"""Measure the indexed overlap join beside the nested loop, and beside DuckDB in a loop as users would write it.

Both windows are full when the clock starts, and all three must find the same pairs.
"""

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
TIMED = 4_000  # rows of each side that come once both windows are full
BATCH = 1_000
ITEMS = (100, 1_000, 10_000)  # distinct items
ROUNDS = 2
WANTED = 10  # times the nested loop
APART = "SELECT DISTINCT id, ts, unnest(items) AS item FROM"

Found = list[pa.Table]  # the pairs of each run


def streams(items: int) -> tuple[pa.Table, pa.Table]:
    """Return two streams of sets, numbered, one row of each side a millisecond."""
    drawn = drifting((WINDOW + TIMED) / 1000, rate=1000, items=items, skew=0.4, seed=5)
    ts = pa.array(range(WINDOW + TIMED))
    left, right = (pa.table({"id": ts, "ts": ts, "items": table["items"]}) for table in drawn)
    return left, right


def full(left: pa.Table, right: pa.Table) -> dict[str, bytes]:
    """Return the state of an indexed join whose windows are full."""
    op = pen.Join(on=pen.overlap("items", at_least=AT_LEAST), time="ts", window=WINDOW, ledger="off")
    for at in range(0, WINDOW, BATCH):
        op.push(left=left.slice(at, BATCH), right=right.slice(at, BATCH))
    return op.state_dict()


def joins(state: dict[str, bytes], *, index: bool) -> list[pen.Join]:
    """Return joins that go on from a state; to fill its own windows takes a nested loop minutes."""
    ops = [pen.Join.from_state(state) for _ in range(ROUNDS)]
    for op in ops:
        core: Any = op._core  # noqa: SLF001 - the windows are the same, but for the index that it leaves alone
        core.terms = core.terms._replace(rule=core.terms.rule._replace(indexed=int(index)))
    return ops


def penstock_loop(ops: list[pen.Join], left: pa.Table, right: pa.Table, found: Found) -> None:
    """Join the rows that come then, with the last of some joins."""
    op, begins = ops.pop(), range(WINDOW, WINDOW + TIMED, BATCH)
    pairs = [op.push(left=left.slice(at, BATCH), right=right.slice(at, BATCH)) for at in begins]
    found.append(pa.concat_tables(pairs).select(["id_left", "id_right"]))


def duckdb_full(left: pa.Table, right: pa.Table) -> duckdb.DuckDBPyConnection:
    """Return a database with full windows: each side is a table of items; duplicate items count once."""
    connection = duckdb.connect()
    connection.execute("SET preserve_insertion_order = false")
    for name, table in (("left", left), ("right", right)):
        connection.register("rows", table[:WINDOW])
        connection.execute(f"CREATE TABLE held_{name} AS {APART} rows")
    return connection


def duckdb_loop(opened: list[duckdb.DuckDBPyConnection], left: pa.Table, right: pa.Table, found: Found) -> None:
    """Do the same with DuckDB: items that are shared are counted, and old rows deleted."""
    joined = (
        f"FROM {{}} l JOIN {{}} r ON l.item = r.item AND l.ts - r.ts < {WINDOW} AND r.ts - l.ts < {WINDOW} "
        f"SELECT l.id AS a, r.id AS b GROUP BY a, b HAVING count(*) >= {AT_LEAST}"
    )
    query = f"{joined.format('new_left', 'all_right')} UNION ALL {joined.format('held_left', 'new_right')}"
    pairs = []
    with opened.pop() as connection:
        for at in range(WINDOW, WINDOW + TIMED, BATCH):
            for name, table in (("left", left), ("right", right)):
                connection.register("rows", table.slice(at, BATCH))
                connection.execute(f"CREATE OR REPLACE TEMP TABLE new_{name} AS {APART} rows")
            connection.execute("INSERT INTO held_right SELECT * FROM new_right")
            connection.execute("CREATE OR REPLACE VIEW all_right AS SELECT * FROM held_right")
            pairs.append(connection.sql(query).to_arrow_table())
            connection.execute("INSERT INTO held_left SELECT * FROM new_left")
            for name in ("left", "right"):
                gone = at + BATCH - 1 - WINDOW
                connection.execute(f"DELETE FROM held_{name} WHERE ts <= {gone}")  # noqa: S608 - a number
    found.append(pa.concat_tables(pairs).rename_columns(["id_left", "id_right"]))


def measure() -> list[dict[str, Any]]:
    """Return the seconds of each way through the rows that come once both windows are full, and their pairs."""
    results = []
    for items in ITEMS:
        left, right = streams(items)
        found: Found = []
        opened, state = [duckdb_full(left, right) for _ in range(ROUNDS)], full(left, right)
        runs = {"duckdb": partial(duckdb_loop, opened, left, right, found)}
        for name, index in (("indexed", True), ("nested", False)):
            runs[name] = partial(penstock_loop, joins(state, index=index), left, right, found)
        seconds = {name: timing.wall for name, timing in in_turns(runs, rounds=ROUNDS).items()}
        first, *others = [table.sort_by([(name, "ascending") for name in table.column_names]) for table in found]
        assert all(first.equals(other) for other in others), [table.num_rows for table in found]
        results.append({"items": items, "pairs": first.num_rows, "seconds": seconds})
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
    words = (
        f"Rows share {AT_LEAST} of about 5 items. Both windows are full, with {WINDOW:,} rows each; then {TIMED:,} "
    )
    words += (
        f"rows of each side come, {BATCH:,} at once. All three find the same pairs, which are compared one by one."
    )
    return "\n\n".join(["### The index on sets", words, registry_tables.table(head, rows)])
