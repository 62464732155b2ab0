"""What every shard of a join is told, and the shape of what it hands back."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.core.probing import BY_ITEMS, BY_TURNS, WHOLE
from penstock.core.setjoin import Place
from penstock.core.windows import Floats
from penstock.operator import multijoin, saving, settings, several
from penstock.operator.join import Join
from penstock.operator.ledger import ledger_schema
from penstock.operator.multijoin import MultiJoin
from penstock.operator.settings import SIDES, amount, budget
from penstock.policies.cpu.controller import Cpu
from penstock.policies.registry import lookup
from penstock.spark.shards import shard_ids
from penstock.spark.sharing import Pools
from penstock.streams.sets import Condition
from penstock.streams.times import Rows, nanoseconds

SHARDS = "shards"  # of an archive: how many shards there are
BESIDE = "__penstock_beside"  # null in joined rows; else a byte that says what it is, and its bytes:
BOOK, LEDGER, ARCHIVE = 1, 2, 3  # the books of a shard, or rows as Arrow IPC: nested columns leave Python slowly
MILLISECOND = 1000  # in Spark's ticks, which are microseconds
OUTPUT_ROWS = 1 << 18  # rows handed to Spark at once
THROUGH = 3  # micro-batches under a latency: a row comes during one, is packed in the next, and joined in the third

Bound = settings.Bound | several.Bound
Engine = Join | MultiJoin


@dataclass(frozen=True)
class Task:
    """What every shard of a join is told."""

    arguments: dict[str, Any]  # as for ``penstock.Join``, one for all shards
    schemas: tuple[pa.Schema, ...]
    budgets: list[Any]  # (memory, split) of each shard
    wanted: frozenset[int] = frozenset()  # what leaves beside the rows: LEDGER, ARCHIVE
    turns: int = 1  # shards that share a core, and take turns there

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return len(self.budgets)

    def shard(self, identity: int) -> int:
        """Return the number of the shard with this id."""
        return shard_ids(self.shards).index(identity)

    @property
    def kind(self) -> type[Engine]:
        """The operator that runs in a shard."""
        return Join

    @property
    def names(self) -> tuple[str, ...]:
        """What the sides are called."""
        return SIDES

    @property
    def waits(self) -> bool:
        """Whether rows wait for the watermark: windows are in rows, or a CPU budget needs rows in order."""
        window = self.arguments["window"]
        return self.cpu is not None or isinstance(window[0] if isinstance(window, tuple | list) else window, Rows)

    @property
    def moves(self) -> bool:
        """Whether there is a budget that can move between shards."""
        divided = isinstance(self.arguments["on"], Condition)
        return self.arguments["memory"] is not None and self.shards > 1 and not (divided or self.cpu)

    @property
    def cpu(self) -> Cpu | None:
        """The CPU budget of all shards together."""
        found = self.arguments.get("cpu")
        return found if isinstance(found, Cpu) else None

    @property
    def latency(self) -> float | None:
        """The seconds that rows may wait and be joined in; None: nobody said."""
        return latency_of(self.cpu)

    def place(self, shard: int) -> Place:
        """Return how rows are divided, the number of a shard, and how many there are."""
        on = self.arguments["on"]
        if self.shards == 1 or not isinstance(on, Condition):
            return WHOLE, 0, 1
        return BY_ITEMS if on.index and on.name != "band" else BY_TURNS, shard, self.shards

    def pools(self, bound: Bound) -> Pools:
        """Return what there is to share out."""
        assert isinstance(bound, settings.Bound)
        by_key = hasattr(lookup(bound.settings.chosen.name).kind, "weigh")
        unit, limit, shared = budget(self.arguments["memory"], self.arguments["split"])
        return Pools(limit, unit == "bytes", shared, bound.span, by_key)

    def share(self, shard: int, pools: Pools, parts: Floats) -> Sequence[Any]:
        """Return memory and split of one shard, given its part of each pool."""
        mine = [max(1, int(limit * part)) for limit, part in zip(pools.limit, parts[:, shard], strict=False)]
        if pools.in_bytes:
            return f"{mine[0] if pools.shared else sum(mine)}B", self.arguments["split"]
        return (mine[0], "shared") if pools.shared else (sum(mine), tuple(mine))

    def arguments_of(self, shard: int) -> dict[str, Any]:
        """Return the arguments of one shard: its part of the budget, and lots of its own."""
        memory, split = self.budgets[shard]
        seed = self.arguments["seed"] * self.shards + shard if self.shards > 1 else self.arguments["seed"]
        told = {**self.arguments, "memory": memory, "split": split, "seed": seed}
        if self.cpu is not None and self.cpu.comparisons_per_second is not None:
            told["cpu"] = replace(self.cpu, comparisons_per_second=self.cpu.comparisons_per_second / self.shards)
        return told

    def saved(self, shard: int) -> dict[str, Any]:
        """Return the arguments and columns of one shard as JSON, to be compared after a restart."""
        known = {name: saving.encode(name, value) for name, value in self.arguments_of(shard).items()}
        columns = {
            name: [str(field) for field in schema] for name, schema in zip(self.names, self.schemas, strict=True)
        }
        return {**known, "columns": columns}

    @property
    def ledger(self) -> str:
        """Whether engines keep a ledger: "keep" or "off"."""
        return "keep" if LEDGER in self.wanted else "off"

    def engine(self, shard: int) -> Engine:
        """Return a fresh engine for one shard."""
        left, right = self.schemas
        told = self.arguments_of(shard)
        if self.cpu is not None and self.cpu.share is not None:  # not saved: another machine may have other cores
            told["cpu"] = replace(self.cpu, share=self.cpu.share / self.turns)
        return Join(schemas=(left, right), ledger=self.ledger, place=self.place(shard), **told)

    def changed(self, engine: Any, shard: int) -> Engine:
        """Return an engine with the arguments of today that goes on from the rows another holds."""
        found: Engine = engine.changed(schemas=self.schemas, **self.arguments_of(shard))
        return found


def latency_of(cpu: object) -> float | None:
    """Return the seconds that a CPU budget lets rows wait and be joined in; None: it does not say."""
    latency = cpu.latency if isinstance(cpu, Cpu) else None
    return nanoseconds("latency", latency) / 10**9 if isinstance(latency, str | timedelta) else None


@dataclass(frozen=True)
class MultiTask(Task):
    """What every shard of a join of several streams is told; budgets have no split."""

    streams: tuple[str, ...] = ()

    @property
    def kind(self) -> type[Engine]:
        """The operator that runs in a shard."""
        return MultiJoin

    @property
    def names(self) -> tuple[str, ...]:
        """What the streams are called."""
        return self.streams

    @property
    def waits(self) -> bool:
        """Whether rows wait for the watermark: always, which puts them in order."""
        return True

    @property
    def moves(self) -> bool:
        """Whether there is a budget that can move between shards."""
        return self.arguments["memory"] is not None and self.shards > 1

    def pools(self, bound: Bound) -> Pools:
        """Return what there is to share out."""
        unit, limit = amount(self.arguments["memory"])
        return Pools([limit], unit == "bytes", shared=True, span=bound.span, by_key=bound.policy.startswith("prob"))

    def share(self, shard: int, pools: Pools, parts: Floats) -> Sequence[Any]:
        """Return the memory of one shard, given its part of the pool."""
        mine = max(1, int(pools.limit[0] * parts[0, shard]))
        return (f"{mine}B" if pools.in_bytes else mine,)

    def arguments_of(self, shard: int) -> dict[str, Any]:
        """Return the arguments of one shard: its part of the budget, and lots of its own."""
        seed = self.arguments["seed"] * self.shards + shard if self.shards > 1 else self.arguments["seed"]
        return {**self.arguments, "memory": self.budgets[shard], "seed": seed}

    def engine(self, shard: int) -> Engine:
        """Return a fresh engine for one shard."""
        schemas = dict(zip(self.streams, self.schemas, strict=True))
        return MultiJoin(schemas, ledger=self.ledger, **self.arguments_of(shard))


def ledger_columns(bound: Bound) -> pa.Schema:
    """Return the columns of the ledger."""
    return ledger_schema(bound) if isinstance(bound, settings.Bound) else multijoin.ledger_schema(bound)


def of_shard(ledger: pa.Table, shard: int) -> pa.Table:
    """Return a ledger under the number of its shard."""
    shards = pa.array(np.full(ledger.num_rows, shard, np.int32))
    return ledger.set_column(ledger.schema.get_field_index("shard"), "shard", shards)


def output_schema(bound: Bound) -> pa.Schema:
    """Return the columns that leave the operator: the result's, and one for what leaves beside the rows.

    Keys, times and what is reckoned from them are never null, and said not to be where that saves Spark a look.
    """
    certain = [
        bound.schema.field(at).name for at, (_, side, name) in enumerate(bound.layout) if bound.needs(side, name)
    ]
    certain += bound.schema.names[len(bound.layout) :]
    fields = [
        pa.field(field.name, field.type, nullable=field.name not in certain or not _is_number(field.type))
        for field in bound.schema
    ]
    return pa.schema([*fields, pa.field(BESIDE, pa.binary())])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind))


def output(bound: Bound, joined: pa.Table) -> Iterator[pa.RecordBatch]:
    """Return joined rows as they leave the operator."""
    columns = [*joined.columns, pa.nulls(joined.num_rows, pa.binary())]
    table = pa.Table.from_arrays(columns, schema=output_schema(bound))
    yield from table.combine_chunks().to_batches(OUTPUT_ROWS)


def output_beside(bound: Bound, books: str, beside: dict[int, pa.Table], now: int = 0) -> Iterator[pa.RecordBatch]:
    """Return the books of a shard, and rows of ledger and archive, as they leave the operator.

    They have no values in the result's columns but `now`, for Spark, in the one that carries event time.
    """
    blobs = [bytes([BOOK]) + books.encode()]
    for kind, table in beside.items():
        starts = range(0, table.num_rows, OUTPUT_ROWS)
        blobs += [bytes([kind]) + saving.to_ipc(table[at : at + OUTPUT_ROWS]) for at in starts]
    schema = output_schema(bound)
    fillings = {field.name: None if field.nullable else 0 for field in schema}
    fillings[str(bound.event_time)] = now
    nothing = [pa.array([fillings[field.name]] * len(blobs), field.type) for field in bound.schema]
    yield pa.record_batch([*nothing, pa.array(blobs, pa.binary())], schema)


def archive_schema(bound: Bound) -> pa.Schema:
    """Return the columns of the archive: a row's identity, its time, and itself under the name of its side.

    Where a row is in the shards of its items, also how many shards there are: which one has a pair depends on that.
    """
    told = ("shed", "reason", "skipped")
    fields = [field for field in ledger_columns(bound) if not field.name.startswith(told)]
    return pa.schema([*fields, *([pa.field(SHARDS, pa.int32())] if bound.division == "items" else [])])


def archived(bound: Bound, shard: tuple[int, int], first: tuple[int, ...], sides: Sequence[pa.Table]) -> pa.Table:
    """Return the rows that a shard archives; in turns, when all shards have all rows, those of its turn.

    Parameters:
        bound: the join.
        shard: the number of the shard, and how many there are.
        first: the number of the first row of each side.
        sides: the rows, as they are numbered.
    """
    schema, (number, shards) = archive_schema(bound), shard
    tables = []
    for side, (name, rows) in enumerate(zip(bound.names, sides, strict=True)):
        arrival = np.arange(first[side], first[side] + rows.num_rows)
        if bound.division == "turns":
            mine = arrival % shards == number
            arrival, rows = arrival[mine], rows.filter(pa.array(mine))  # noqa: PLW2901 - those of them
        count = arrival.size
        shown = [
            rows.to_struct_array() if at == side else pa.nulls(count, pa.struct(list(each)))
            for at, each in enumerate(bound.schemas)
        ]
        identity = [
            pa.array([name] * count, pa.string()),
            pa.array(np.full(count, number, np.int32)),
            pa.array(arrival),
            rows[bound.time[side]].cast(schema.field("ts").type),
        ]
        if isinstance(bound, several.Bound):
            flat = [struct.combine_chunks() if isinstance(struct, pa.ChunkedArray) else struct for struct in shown]
            shown = [pa.StructArray.from_arrays(flat, fields=list(schema.field("values").type))]
        if SHARDS in schema.names:
            shown.append(pa.array(np.full(count, shards, np.int32)))
        tables.append(pa.table([*identity, *shown], schema=schema))
    return pa.concat_tables(tables)


def unpacked(schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` that makes rows of blobs."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column(0):
                yield from saving.from_ipc(blob.as_py()).cast(schema).to_batches()

    return unpack
