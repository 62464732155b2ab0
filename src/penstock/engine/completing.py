"""Complete the answer of a run over several tables: the results that its ledger says are missing."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.windows import Ints
from penstock.engine.multijoin import portions, tables_of
from penstock.errors import InputError
from penstock.operator.join import as_table
from penstock.operator.multijoin import MultiJoin, ledger_schema
from penstock.operator.several import Bound, Settings, repairable

NEVER, ALWAYS = int(np.iinfo(np.int64).max), int(np.iinfo(np.int64).min)
NUMBER = "__penstock_row_"  # the columns of row numbers begin like this


def refine(streams: Any, ledger: Any, settings: Settings) -> Any:
    """Return the rows of the exact join of several streams that a run did not return.

    The idea: rows are joined in order of time, so a result is missing if and only if one of its rows was given up at
    an earlier tick than that of its newest row, or came late. Each stream in turn brings only what the ledger has of
    it, the others what may meet that; a result that two streams could bring counts for the first.

    Parameters:
        streams: the inputs of the run by name, whole and as they came.
        ledger: what it shed, as ``Result.ledger`` or ``MultiJoin.ledger``.
        settings: the arguments of the run.

    Returns:
        The missing rows, with the columns of the result (pandas if the first input is).

    Cost: for each stream an exact join of its rows in the ledger with the rows of the others that have their keys.
    """
    tables = tables_of(streams)
    schemas = {name: table.schema for name, table in tables.items()}
    bound = Bound(settings, schemas)
    repairable(bound)
    exact = replace(settings, memory=None, lateness=0, shards=None)
    gone = _gone(ledger, bound, tables)
    numbered = {
        name: table.append_column(NUMBER + name, pa.array(np.arange(table.num_rows)))
        for name, table in tables.items()
    }
    found = [_missing_for(at, numbered, gone, exact, bound) for at in range(len(tables))]
    rest = pa.concat_tables(found).select(bound.schema.names).cast(bound.schema)
    to_pandas = type(next(iter(streams.values()))).__module__.startswith("pandas.")
    return rest.to_pandas() if to_pandas else rest


def _gone(ledger: Any, bound: Bound, tables: Mapping[str, pa.Table]) -> list[Ints]:
    """Return the tick at whose end each row of each stream was given up, and raise if it is not their ledger."""
    told = as_table(ledger, "ledger")
    wanted = ledger_schema(bound).names
    if told is None or any(name not in told.schema.names for name in wanted):
        got = "None" if told is None else f"columns {', '.join(told.schema.names)}"
        raise InputError("ledger", got, f"give the ledger of pen.run or pen.MultiJoin, with {', '.join(wanted)}")
    if np.any(told["shard"].to_numpy() != 0):
        raise InputError("ledger", "rows of several shards", "give the archive that pen.write wrote beside it")
    found = []
    for at, (name, table) in enumerate(tables.items()):
        mine = told.filter(pc.field("stream") == name)
        row, ts = mine["row"].to_numpy(), bound.clock.values(mine["ts"], "ledger")
        known = row.size == 0 or (row.min() >= 0 and row.max() < table.num_rows)
        if not known or np.any(bound.clock.values(table[bound.time[at]], "time")[row] != ts):
            want = "give all inputs of the run that wrote it, whole and in the same order"
            raise InputError("ledger", f"rows that are not those of {name}", want)
        until = np.full(table.num_rows, NEVER)
        late = pc.equal(mine["reason"], "late").to_numpy(zero_copy_only=False)
        until[row] = np.where(late, ALWAYS, bound.clock.values(mine["shed_at"], "ledger"))
        found.append(until)
    return found


def _missing_for(
    stream: int, tables: Mapping[str, pa.Table], gone: list[Ints], settings: Settings, bound: Bound
) -> pa.Table:
    """Return the missing results that have a lost row of this stream, and of none before it."""
    chosen = dict(tables)
    mine = bound.names[stream]
    chosen[mine] = tables[mine].filter(pa.array(gone[stream] != NEVER))
    codes, valid = bound.places(stream, chosen[mine])
    codes = codes if valid is None else codes[valid]
    for at, name in enumerate(bound.names):
        if at != stream:
            chosen[name] = tables[name].filter(pa.array(np.isin(bound.places(at, tables[name])[0], codes)))
        chosen[name] = chosen[name].sort_by(bound.time[at])
    op = MultiJoin({name: table.schema for name, table in chosen.items()}, ledger="off", **settings.arguments())
    empty = op.bound.schema.empty_table()
    if not chosen[mine].num_rows:
        return empty
    parts = [op.push(part) for part in portions(op.bound, chosen)]
    found = pa.concat_tables([empty, *parts, op.finish()])
    rows = [found[NUMBER + name].to_numpy() for name in bound.names]
    times = [
        bound.clock.values(tables[name][bound.time[at]], "time")[rows[at]] for at, name in enumerate(bound.names)
    ]
    newest = np.max(times, axis=0, initial=ALWAYS)
    lost = gone[stream][rows[stream]] < newest
    for before in range(stream):
        lost &= gone[before][rows[before]] >= newest
    return found.filter(pa.array(lost))
