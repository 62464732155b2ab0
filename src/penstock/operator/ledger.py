"""The ledger: every row that was given up, with when, why and its columns, kept until somebody asks for it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.step import LATE, REASONS
from penstock.core.windows import Ints
from penstock.operator.settings import SIDES, Bound
from penstock.streams.intake import NO_INTS
from penstock.streams.payload import Payload

UNPROBED = "unprobed"  # the reason of rows that stayed, and were not compared with all of the other window
SKIPPED = pa.list_(pa.struct([("first", pa.int64()), ("end", pa.int64())]))
SIDE, ROW, REASON, AT, BEFORE = range(5)  # columns of an entry


def ledger_schema(bound: Bound) -> pa.Schema:
    """Return the columns of the ledger: a row's identity, when and why it was given up, and the row itself."""
    return pa.schema(
        [
            ("side", pa.string()),
            ("shard", pa.int32()),
            ("arrival", pa.int64()),
            ("ts", bound.clock.type),
            ("shed_at", bound.clock.type),
            ("shed_at_arrival", pa.int64()),
            ("reason", pa.string()),
            *((name, pa.struct(list(schema))) for name, schema in zip(SIDES, bound.schemas, strict=True)),
            *([("skipped", SKIPPED)] if bound.settings.cpu is not None else []),
        ]
    )


def skipped_of(ledger: pa.Table) -> tuple[Ints, Ints, Ints]:
    """Return the intervals in a ledger: the number of its row that has each, its first and its end."""
    if "skipped" not in ledger.schema.names:
        return NO_INTS, NO_INTS, NO_INTS
    lists = ledger["skipped"].combine_chunks()
    ranges = lists.flatten()
    first, end = (ranges.field(name).to_numpy() for name in ("first", "end"))
    return pc.list_parent_indices(lists).to_numpy(), first, end


class Ledger:
    """Entries are written while their rows are still stored, and handed over once."""

    def __init__(self, bound: Bound, payload: Sequence[Payload]) -> None:
        self._bound = bound
        self._payload = payload
        self.tables: list[pa.Table] = []

    def note(self, shed: Ints, late: Ints) -> None:
        """Write down the rows that the core shed, as it tells of them, and those that came late."""
        if shed.size or late.size:
            entries = np.empty((late.shape[0], 5), np.int64)
            entries[:, [SIDE, ROW, AT]] = late
            entries[:, REASON] = LATE
            entries[:, BEFORE] = 0  # it met nobody: every partner is missing, also those that came before
            self.tables.append(self._table(np.concatenate([shed, entries])))

    def note_skipped(self, skipped: Ints, begins: Ints) -> None:
        """Write down rows not compared with all of the other window: intervals, a new row at each of `begins`."""
        entries = np.zeros((begins.size, 5), np.int64)
        entries[:, [SIDE, ROW, AT]] = skipped[begins, :3]
        entries[:, REASON] = len(REASONS)
        self.tables.append(self._table(entries, skipped[:, 3:], np.r_[begins, skipped.shape[0]]))

    def take(self) -> pa.Table:
        """Hand over what was written since the last call, and forget it."""
        tables, self.tables = self.tables, []
        return pa.concat_tables(tables) if tables else ledger_schema(self._bound).empty_table()

    def _table(self, entries: Ints, skipped: Ints | None = None, bounds: Ints | None = None) -> pa.Table:
        """Return entries as a table; `skipped` are the intervals of those not probed, divided at `bounds`."""
        bound = self._bound
        parts = []
        for side in range(2):
            chosen = entries[:, SIDE] == side
            mine = entries[chosen]
            schema = self._payload[side].schema
            rows = self._payload[side].take(mine[:, ROW], schema.names)
            structs = [pa.nulls(len(mine), pa.struct(list(self._payload[at].schema))) for at in range(2)]
            structs[side] = rows.to_struct_array().combine_chunks() if len(mine) else structs[side]
            times = bound.clock.values(rows[bound.time[side]], "time") if len(mine) else NO_INTS
            columns = [
                pa.array([SIDES[side]] * len(mine), pa.string()),
                pa.array(np.zeros(len(mine), np.int32)),
                pa.array(mine[:, ROW]),
                bound.clock.column(times),
                bound.clock.column(mine[:, AT]),
                pa.array(mine[:, BEFORE], mask=mine[:, REASON] == len(REASONS)),
                pa.array([(*REASONS, UNPROBED)[reason] for reason in mine[:, REASON]], pa.string()),
                *structs,
            ]
            if bound.settings.cpu is not None:
                columns.append(_intervals(chosen, skipped, bounds))
            parts.append(pa.table(columns, schema=ledger_schema(bound)))
        return pa.concat_tables(parts)


def _intervals(chosen: npt.NDArray[Any], skipped: Ints | None, bounds: Ints | None) -> pa.Array:
    """Return the intervals of the chosen entries as a column; none, if there are none."""
    if skipped is None or bounds is None:
        found, sizes = np.empty((0, 2), np.int64), np.zeros(int(chosen.sum()), np.int64)
    else:
        sizes = np.diff(bounds)
        found, sizes = skipped[np.repeat(chosen, sizes)], sizes[chosen]
    offsets = np.r_[0, np.cumsum(sizes)].astype(np.int32)
    ranges = pa.StructArray.from_arrays([pa.array(found[:, at]) for at in range(2)], ["first", "end"])
    return pa.ListArray.from_arrays(pa.array(offsets), ranges).cast(SKIPPED)
