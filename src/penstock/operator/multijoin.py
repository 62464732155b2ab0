"""The push operator for several streams: rows in, complete results out, with a report, a ledger and a state."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import index
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.core.windows import Ints
from penstock.errors import BudgetError, InputError, StateError
from penstock.operator import saving
from penstock.operator.join import as_table, check_ledger, check_schema, check_waiting
from penstock.operator.ordering import Ordered
from penstock.operator.results import COMBINED
from penstock.operator.settings import ROW_BYTES, amount, importance_of
from penstock.operator.several import Bound, settings_of
from penstock.quality.books import Guess
from penstock.quality.flows import REASONS, Flows
from penstock.streams.encodings import decoded_schema
from penstock.streams.intake import NO_LATE, Ready, tick_of
from penstock.streams.payload import Payload

VERSION = 5  # of the saved state
STREAM, ROW, AT, REASON = range(4)  # columns of an entry of the ledger
BUDGET, LATE = range(2)  # of REASONS


class MultiJoin:
    """A sliding-window join of several streams at once, one push at a time.

    The idea: rows are put in order first, and then go through nested loops over all other windows. A row waits until
    no row of its tick (its interval, if evaluation is lazy) can come any more: until a row that is later by more than
    `lateness` comes on any stream, or ``advance``, ``watermark`` or ``finish`` is called. So a stream that is silent
    holds up nobody, and any cut of the streams into pushes gives the same results.

    Parameters:
        streams: the names of the streams, or their Arrow schemas by name. Without schemas the first batch of each
            tells, and rows wait until all streams have shown their columns; when a million do, more are refused.
        arguments: as for ``penstock.multijoin``; `lateness` as for ``penstock.Join``.
        ledger: "keep" what was shed until ``ledger()`` asks for it, or "off".

    Cost: as for ``penstock.multijoin``, plus O(log) per row to put a push in order. Only the rows that are alive or
    wait are held.

    Examples:
        >>> import penstock as pen, pyarrow as pa
        >>> op = pen.MultiJoin(["a", "b", "c"], on="k", time="t", windows=10)
        >>> rows = {name: pa.table({"t": [t], "k": [7]}) for name, t in {"a": 1, "b": 2, "c": 3}.items()}
        >>> op.push(rows).num_rows
        0
        >>> op.advance(4).to_pylist()
        [{'k': 7, 't_a': 1, 't_b': 2, 't_c': 3}]
        >>> op.push(b=pa.table({"t": [5], "k": [7]})).num_rows, op.finish().num_rows, op.report().results
        (0, 1, 2)

    References: golab2003 §3.
    """

    def __init__(
        self, streams: Sequence[str] | Mapping[str, pa.Schema], *, ledger: str = "keep", **arguments: Any
    ) -> None:
        self._settings = settings_of(arguments)
        self.keep_ledger(ledger)
        self._known: dict[str, pa.Schema | None] = _known(streams)
        self._held: dict[str, list[pa.Table]] = {name: [] for name in self._known}
        self._bound: Bound | None = None
        self._bind()

    @property
    def bound(self) -> Bound:
        """The settings, checked against the columns of all streams."""
        if self._bound is None:
            raise InputError("streams", "streams that have not all shown their columns", "push rows of each first")
        return self._bound

    def _bind(self) -> None:
        schemas = {name: schema for name, schema in self._known.items() if schema is not None}
        if len(schemas) < len(self._known):
            return
        bound = Bound(self._settings, schemas)
        self._ordered = Ordered(bound)
        self._intake = bound.intake()
        self._payload = [Payload(schema) for schema in bound.schemas]
        self._results = 0
        self._importance = 0.0  # of the results
        self._shed = np.zeros((len(REASONS), len(bound.names)), np.int64)
        self._now = 0  # the last tick that is through
        self._entries: list[pa.Table] = []
        self._bound = bound

    # --- rows -----------------------------------------------------------------------------------------------------

    def push(self, tables: Mapping[str, Any] | None = None, /, **named: Any) -> pa.Table:
        """Take rows of some streams and return the results that are complete by that.

        Parameters:
            tables, named: an Arrow table or record batch, or a pandas DataFrame, by the name of its stream.

        Returns:
            The joined rows. Before all streams have shown their columns: a table without columns.
        """
        given = {**(tables or {}), **named}
        unknown = [name for name in given if name not in self._known]
        if unknown:
            raise InputError("streams", repr(unknown[0]), f"no such stream; there are {', '.join(self._known)}")
        came = {name: as_table(table, name) for name, table in given.items()}
        rows = {name: table for name, table in came.items() if table is not None}
        for name, table in rows.items():
            check_schema(name, self._known[name], table.schema)
        return self._hold(rows) if self._bound is None else self._push(rows)

    def _hold(self, rows: Mapping[str, pa.Table]) -> pa.Table:
        known, held = self._known, self._held
        shown = {name: table.schema.remove_metadata() for name, table in rows.items()}
        self._known = {name: schema or shown.get(name) for name, schema in known.items()}
        self._held = {name: [*before, *([rows[name]] if name in rows else [])] for name, before in held.items()}
        try:
            self._bind()
            if self._bound is None:
                check_waiting(held.values(), [name for name, schema in self._known.items() if schema is None])
                return pa.table({})
            joined = self._push({name: pa.concat_tables(waited) for name, waited in self._held.items() if waited})
        except InputError:  # these rows are refused; those before them go on waiting
            self._known, self._held, self._bound = known, held, None
            raise
        self._held = {name: [] for name in self._known}
        return joined

    def _push(self, rows: Mapping[str, pa.Table]) -> pa.Table:
        bound, first = self.bound, self._intake.next
        none = dict(zip(bound.names, bound.schemas, strict=True))
        tables = [rows[name] if name in rows else schema.empty_table() for name, schema in none.items()]
        sides = [bound.read(at, table, int(first[at])) for at, table in enumerate(tables)]
        begins = first.copy()
        ready = self._intake.take(sides)
        for payload, table in zip(self._payload, tables, strict=True):
            payload.append(table.replace_schema_metadata(None))
        late = ready.late
        if late.size:  # a row without a key expires, late or not
            present = [sides[s].code[row - begins[s], -1] != 0 for s, row, _ in late.tolist()]
            late = late[np.array(present)]
        return self._step(ready, late)

    def _step(self, ready: Ready, late: Ints = NO_LATE) -> pa.Table:
        """Run the loops over rows that are in order, and let go of what is over."""
        chain = self._ordered.chain
        found = self._ordered.push(self.bound.batch(ready))
        joined = self._joined(found)
        self._results += joined.num_rows
        if self.bound.importance:
            self._importance += float(joined["importance"].to_numpy().sum())
        if self._intake.released is not None:
            self._now = max(self._now, self._intake.released)
        shed = chain.shed() if ready.batch.row.size else np.empty((0, 3), np.int64)
        self._note(shed, late)
        for s, payload in enumerate(self._payload):
            if payload.wasteful(chain.stored(s) + int((self._intake.waiting.side == s).sum())):
                payload.trim(self._stored_rows(s))
        return joined

    def _joined(self, rows: Ints) -> pa.Table:
        """Put results together, verifying keys whose codes are hashes."""
        bound = self.bound
        if rows.shape[1] == 0:
            return bound.schema.empty_table()
        for edge in bound.edges:
            one, other = bound.keys[edge.one_column], bound.keys[edge.other_column]
            if one.how == "=" and not one.coder.exact:
                mine, theirs = (self._payload[key.stream].take(rows[key.stream], key.names) for key in (one, other))
                rows = rows[:, one.coder.equal(mine.columns, theirs.columns)]
        columns: list[Any] = []
        for at, payload in enumerate(self._payload):
            columns += payload.columns(rows[at], [source for _, stream, source in bound.layout if stream == at])
        if bound.importance:
            of_rows = [
                importance_of(payload.take(rows[at], [name])[name], name)
                for at, (payload, name) in enumerate(zip(self._payload, bound.importance, strict=True))
            ]
            columns.append(pa.array(COMBINED[bound.settings.combine](np.stack(of_rows))))
        cast = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, bound.schema, strict=True)
        ]
        return pa.Table.from_arrays(cast, schema=bound.schema)

    def _stored_rows(self, s: int) -> Ints:
        """Return the numbers of the rows of a stream that are held or wait, ascending."""
        held, queue = self._ordered.chain.live_rows(s), self._intake.waiting
        return np.sort(np.concatenate([held, queue.row[queue.side == s]]), kind="stable") if queue.row.size else held

    def advance(self, to: Any) -> pa.Table:
        """Move time on to `to` although nothing arrived, and return the results that are complete by that.

        Rows with a time of `to`, and of `lateness` before it, may still come.
        """
        tick = self.bound.clock.tick("to", to)
        return self._passed(self._intake.advance(tick))

    def watermark(self, to: Any) -> pa.Table:
        """Say that rows older than `to` are late from now on, and return the results that are complete by that.

        With ``lateness="watermark"`` nothing else makes a row late.
        """
        tick = self.bound.clock.tick("to", to)
        return self._passed(self._intake.pass_watermark(tick))

    def _passed(self, ready: Ready) -> pa.Table:
        joined = self._step(ready)
        self._now = max(self._now, self._intake.bar - 1)
        self._ordered.chain.pass_time(self._intake.bar)
        return joined

    def finish(self) -> pa.Table:
        """Return the results of the rows that still wait: nothing older will come, or it is late."""
        if self._bound is None:
            return pa.table({})
        joined = self._step(self._intake.advance(None))
        if self._intake.newest is not None:
            self._passed(self._intake.pass_watermark(self._intake.newest + 1))
        return joined

    def resize(self, *, memory: Any) -> None:
        """Change the budget in mid-stream; holds from the end of the next tick."""
        unit, limit = amount(memory)
        if unit != self.bound.unit_of_memory or self.bound.budget is None:
            made = "without a budget" if self.bound.budget is None else f"with memory in {self.bound.unit_of_memory}"
            raise BudgetError("memory", repr(memory), f"this join was made {made}")
        self._ordered.chain.resize(limit)

    # --- what happened --------------------------------------------------------------------------------------------

    @property
    def arrived(self) -> tuple[int, ...]:
        """How many rows of each stream have been pushed: the number of the next one."""
        if self._bound is None:
            return tuple(sum(table.num_rows for table in held) for held in self._held.values())
        return tuple(self._intake.next.tolist())

    def report(self) -> Flows:
        """Say what happened so far."""
        names = list(self._known)
        if self._bound is None:
            came = dict(zip(names, self.arrived, strict=True))
            none = {reason: dict.fromkeys(names, 0) for reason in REASONS}
            size = sum(table.nbytes for held in self._held.values() for table in held)
            return Flows("not known yet", came, came, none, 0, size, 0, [])
        bound, chain, gauge = self._bound, self._ordered.chain, self._ordered.gauge
        important = bound.importance is not None
        guesses: tuple[Guess, Guess | None] = Guess(self._results), Guess(self._importance) if important else None
        if gauge is not None:
            guesses = gauge.results, gauge.importance if important else None
        waits = np.bincount(self._intake.waiting.side, minlength=len(names))
        live = [int(rows + more) for rows, more in zip(chain.live(self._now), waits, strict=True)]
        return Flows(
            policy=bound.policy,
            arrivals=dict(zip(names, self.arrived, strict=True)),
            live=dict(zip(names, live, strict=True)),
            shed={
                reason: dict(zip(names, shed.tolist(), strict=True))
                for reason, shed in zip(REASONS, self._shed, strict=True)
            },
            results=self._results,
            memory_bytes=sum(
                payload.nbytes * rows // max(payload.stored, 1)
                for payload, rows in zip(self._payload, live, strict=True)
            )
            + ROW_BYTES * sum(live),
            comparisons=chain.compared,
            orders=[
                order._replace(since=bound.clock.column(np.array([order.since])).to_pylist()[0])
                for order in self._ordered.orders
            ],
            importance=self._importance if important else None,
            one_shard=bound.one_shard,
            guesses=guesses,
        )

    def ledger(self) -> pa.Table:
        """Return what was shed since the last call: each call hands its rows over and forgets them.

        Columns: `stream`, `shard`, `row` (its number within the stream), `ts`, `shed_at` (the tick at whose end it
        left, or to which the streams had come when it was late), `reason`, and under `values` the row itself, below
        the name of its stream.
        """
        if self._bound is None:
            return pa.table({})
        entries, self._entries = self._entries, []
        return pa.concat_tables([ledger_schema(self._bound).empty_table(), *entries])

    def keep_ledger(self, ledger: str) -> None:
        """From now on "keep" what is shed until ``ledger()`` asks for it, or leave it "off"."""
        self._ledger_mode = check_ledger(ledger)

    def _note(self, shed: Ints, late: Ints) -> None:
        """Count what was given up, and write it into the ledger while the rows are still there."""
        for reason, entries in ((BUDGET, shed), (LATE, late)):
            if entries.size:
                self._shed[reason] += np.bincount(entries[:, 0], minlength=len(self._payload))
        if self._ledger_mode == "keep" and shed.size + late.size:
            reasons = np.repeat([BUDGET, LATE], [len(shed), len(late)])
            self._entries.append(self._written(np.column_stack([np.concatenate([shed, late]), reasons])))

    def _written(self, entries: Ints) -> pa.Table:
        """Return entries of the ledger, in their order."""
        bound = self.bound
        ts = np.empty(len(entries), np.int64)
        values = []
        for s, payload in enumerate(self._payload):
            mine = np.flatnonzero(entries[:, STREAM] == s)
            rows = payload.take(entries[mine, ROW], payload.schema.names)
            ts[mine] = bound.clock.values(rows[bound.time[s]], "time")
            places = np.zeros(len(entries), np.int64)
            places[mine] = np.arange(mine.size)
            structs = pa.chunked_array(rows.to_struct_array()).cast(_struct(payload.schema))
            values.append(structs.combine_chunks().take(pa.array(places, mask=entries[:, STREAM] != s)))
        shown = pa.StructArray.from_arrays(values, fields=list(_values(bound)))
        columns = [
            pa.array(bound.names).take(pa.array(entries[:, STREAM])),
            pa.array(np.zeros(len(entries), np.int32)),
            pa.array(entries[:, ROW]),
            bound.clock.column(ts),
            bound.clock.column(entries[:, AT]),
            pa.array(REASONS).take(pa.array(entries[:, REASON])),
            shown,
        ]
        return pa.table(columns, schema=ledger_schema(bound))

    # --- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, bytes]:
        """Return everything the join knows, as bytes by name; the ledger kept so far is part of it."""
        state: dict[str, bytes] = {}
        meta: dict[str, Any] = {"version": VERSION, "ledger": self._ledger_mode, "bound": self._bound is not None}
        meta["names"] = list(self._known)
        meta["settings"] = {name: saving.encode(name, value) for name, value in self._settings.arguments().items()}
        for at, (name, schema) in enumerate(self._known.items()):
            if schema is not None:
                state[f"schema.{at}"] = saving.to_ipc(schema.empty_table())
            if self._held[name]:
                state[f"held.{at}"] = saving.to_ipc(pa.concat_tables(self._held[name]))
        if self._bound is not None:
            intake = self._intake
            meta |= {"intake": intake.marks(), "ordered": self._ordered.state()}
            meta |= {
                "results": self._results,
                "importance": self._importance,
                "shed": self._shed.tolist(),
                "now": self._now,
            }
            state["sketch"] = saving.to_npz(self._ordered.arrays())
            state["chain"] = saving.to_npz(self._ordered.chain.arrays())
            state["intake"] = saving.to_npz(intake.arrays())
            if self._ordered.gauge is not None:
                state["gauge"] = saving.to_npz(self._ordered.gauge.arrays())
            for s, payload in enumerate(self._payload):
                numbers = self._stored_rows(s)
                state[f"rows.{s}"] = saving.to_ipc(payload.take(numbers, payload.schema.names))
                state[f"numbers.{s}"] = saving.to_npz({"numbers": numbers, "next": np.array(payload.next)})
            if self._entries:
                state["ledger"] = saving.to_ipc(pa.concat_tables(self._entries))
        return saving.sealed(meta, state)

    def changed(self, *, schemas: Sequence[pa.Schema] | None = None, **arguments: Any) -> Self:
        """Return this join with another budget: the one argument that may change while rows are held.

        Raises:
            StateError: if another one does.
        """
        before = self._settings.arguments()
        other = [name for name, value in arguments.items() if name != "memory" and value != before[name]]
        if other:
            want = f"the rows held were joined with {before[other[0]]!r}: start afresh"
            raise StateError(other[0], repr(arguments[other[0]]), want)
        if schemas is not None:
            for name, known, given in zip(self._known, self._known.values(), schemas, strict=True):
                check_schema(name, known, decoded_schema(given))
        memory = arguments.get("memory", before["memory"])
        if memory != before["memory"]:
            self.resize(memory=memory)
            self._settings = replace(self._settings, memory=memory)
        return self

    @classmethod
    def from_state(cls, state: dict[str, bytes]) -> Self:
        """Return a join that goes on where the one that saved this state stood.

        Raises:
            StateError: if the state is not one, or of a version that this one does not read.
        """
        with saving.opened(state, VERSION) as meta:
            names = meta["names"]
            schemas = [
                saving.from_ipc(state[f"schema.{at}"]).schema if f"schema.{at}" in state else None
                for at in range(len(names))
            ]
            settings = {name: saving.decode(value) for name, value in meta["settings"].items()}
            join = cls(names, ledger=meta["ledger"], **settings)
            join._known = dict(zip(names, schemas, strict=True))
            join._held = {
                name: [saving.from_ipc(state[f"held.{at}"])] if f"held.{at}" in state else []
                for at, name in enumerate(names)
            }
            join._bind()
            if meta["bound"]:
                join._restore(meta, state)
            return join

    def _restore(self, meta: dict[str, Any], state: dict[str, bytes]) -> None:
        self._results, self._now = index(meta["results"]), tick_of(meta["now"])
        self._importance = float(meta["importance"])
        self._shed = np.array(meta["shed"], np.int64).reshape(self._shed.shape)
        self._ordered.restore(meta["ordered"], saving.from_npz(state["sketch"]))
        self._ordered.chain.restore(saving.from_npz(state["chain"]))
        if self._ordered.gauge is not None:
            self._ordered.gauge.restore(saving.from_npz(state["gauge"]))
        self._intake.restore(meta["intake"], saving.from_npz(state["intake"]))
        for s, payload in enumerate(self._payload):
            numbers = saving.from_npz(state[f"numbers.{s}"])
            payload.restore(saving.from_ipc(state[f"rows.{s}"]), numbers["numbers"], int(numbers["next"]))
        self._entries = [saving.from_ipc(state["ledger"])] if "ledger" in state else []


def _known(streams: Any) -> dict[str, pa.Schema | None]:
    """Return the schemas of streams by name, those that are known."""
    if isinstance(streams, str) or not isinstance(streams, Mapping | Sequence) or len(streams) < 2:
        raise InputError("streams", repr(streams), "give the names of two or more streams, or their schemas by name")
    for name in streams:
        if not isinstance(name, str) or not name:
            raise InputError("streams", repr(name), "name each stream with a word")
    if len(set(streams)) < len(streams):
        raise InputError("streams", repr(list(streams)), "give each stream a name of its own")
    known = dict(streams) if isinstance(streams, Mapping) else dict.fromkeys(streams)
    return {
        name: None if schema is None else decoded_schema(schema.remove_metadata()) for name, schema in known.items()
    }


def ledger_schema(bound: Bound) -> pa.Schema:
    """Return the columns of the ledger: a row's identity, when and why it was given up, and the row itself."""
    return pa.schema(
        [
            ("stream", pa.string()),
            ("shard", pa.int32()),
            ("row", pa.int64()),
            ("ts", bound.clock.type),
            ("shed_at", bound.clock.type),
            ("reason", pa.string()),
            ("values", _values(bound)),
        ]
    )


def _values(bound: Bound) -> pa.StructType:
    return pa.struct([(name, _struct(schema)) for name, schema in zip(bound.names, bound.schemas, strict=True)])


def _struct(schema: pa.Schema) -> pa.StructType:
    return pa.struct(list(schema))
