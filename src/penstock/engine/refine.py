"""Complete the answer of a run over two tables: the pairs that its ledger says are missing."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.windows import Ints
from penstock.engine.pump import read_times, two_tables
from penstock.errors import InputError, WindowError
from penstock.operator.join import as_table
from penstock.operator.ledger import UNPROBED, ledger_schema, skipped_of
from penstock.operator.results import assembled, importances, verified
from penstock.operator.settings import SIDES, Bound, Settings, repairable
from penstock.quality.archive import Shed, missing_pairs
from penstock.quality.skipped import Skipped, uncompared_pairs


def refine(left: Any, right: Any, ledger: Any, settings: Settings) -> Any:
    """Return the rows of the exact join that a run did not return.

    Parameters:
        left, right: the inputs of the run, whole and in the same order.
        ledger: what it shed, as ``Result.ledger``.
        settings: the arguments of the run.

    Returns:
        The missing rows, with the columns of the result (pandas if `left` is).
    """
    repairable(settings)
    left_table, right_table, to_pandas = two_tables(left, right)
    tables = (left_table, right_table)
    bound = Bound(settings, left_table.schema, right_table.schema).unbounded()
    if bound.by_rows and bound.lateness:
        want = (
            "rows that may come late are counted when they are in order: the ledger does not tell; use a time window"
        )
        raise WindowError("window", f"{settings.window} with lateness={settings.lateness!r}", want)
    times = read_times(bound, left_table, right_table)
    told = _told(as_table(ledger, "ledger"), bound)
    shed = _shed(told, bound, times)
    sides = bound.read(0, left_table), bound.read(1, right_table)
    if settings.cpu is None and bound.reader is None:
        numbers = missing_pairs(sides, shed, span=bound.span, by_rows=bound.by_rows)
    else:
        condition = bound.reader.condition if bound.reader else None
        numbers = uncompared_pairs(
            sides, shed, _skipped(told), span=bound.span, by_rows=bound.by_rows, condition=condition
        )
    same = verified(bound, lambda side, rows: tables[side].select(bound.keys[side]).take(pa.array(rows)), *numbers)
    if same is not None:
        numbers = numbers[0][same], numbers[1][same]

    def columns(side: int, names: list[str]) -> list[pa.ChunkedArray]:
        return tables[side].select(names).take(pa.array(numbers[side])).columns

    found = assembled(bound, columns, importances(bound, columns) if bound.importance else None, None)
    return found.to_pandas() if to_pandas else found


def _told(ledger: pa.Table | None, bound: Bound) -> pa.Table:
    """Return a ledger, and raise if it is none."""
    wanted = ledger_schema(bound).names
    if ledger is None or any(name not in ledger.schema.names for name in wanted):
        got = "None" if ledger is None else f"columns {', '.join(ledger.schema.names)}"
        raise InputError("ledger", got, f"give the ledger of pen.run or pen.Join, with {', '.join(wanted)}")
    if ledger["shed_at_arrival"].null_count and "skipped" not in wanted:
        raise InputError("ledger", "rows with the reason 'unprobed'", "give cpu= too, as for the run that wrote it")
    return ledger


def _skipped(ledger: pa.Table) -> tuple[Skipped, Skipped]:
    """Return the probes of each side that were skipped, in whole or in part."""
    found = []
    for name in SIDES:
        rows = ledger.filter((pc.field("side") == name) & (pc.field("reason") == UNPROBED))
        which, first, end = skipped_of(rows)
        found.append(Skipped(rows["arrival"].to_numpy()[which], first, end))
    return found[0], found[1]


def _shed(ledger: pa.Table, bound: Bound, times: tuple[Ints, Ints]) -> tuple[Shed, Shed]:
    """Return the rows of each side that were given up, and raise if it is not the ledger of these inputs."""
    ledger = ledger.filter(pc.field("reason") != UNPROBED)
    if np.any(ledger["shard"].to_numpy() != 0):
        raise InputError("ledger", "rows of several shards", "give the archive that pen.write wrote beside it")
    names = ledger["side"].combine_chunks().dictionary_encode()
    which = np.array([SIDES.index(name) for name in names.dictionary.to_pylist()], np.int64)[names.indices.to_numpy()]
    row, until = ledger["arrival"].to_numpy(), ledger["shed_at_arrival"].to_numpy()
    ts = bound.clock.values(ledger["ts"], "ledger")
    found = []
    for side, mine in enumerate(times):
        chosen = which == side
        numbers, others = row[chosen], times[1 - side].size
        known = numbers.size == 0 or (numbers.min() >= 0 and numbers.max() < mine.size)
        if not (known and np.all(mine[numbers] == ts[chosen]) and np.all(until[chosen] <= others)):
            got = f"rows that are not those of the {SIDES[side]} input"
            raise InputError("ledger", got, "give both inputs of the run that wrote it, whole and in the same order")
        found.append(Shed(numbers, until[chosen]))
    return found[0], found[1]
