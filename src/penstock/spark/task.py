"""What every shard of a join is told, and the shape of what it hands back."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.operator import saving
from penstock.operator.join import Join
from penstock.operator.settings import SIDES, Bound
from penstock.streams.times import Rows

KIND = "__penstock_kind"  # of an output row: a joined one, or the books of a shard
ROW, BOOK = 0, 1
BOOK_COLUMN = "__penstock_books"
MILLISECOND = 1000  # in Spark's ticks, which are microseconds
OUTPUT_ROWS = 1 << 18  # rows handed to Spark at once


@dataclass(frozen=True)
class Task:
    """What every shard of a join is told."""

    arguments: dict[str, Any]  # as for ``penstock.Join``, one for all shards
    schemas: tuple[pa.Schema, pa.Schema]
    budgets: list[Any]  # (memory, split) of each shard

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return len(self.budgets)

    @property
    def by_rows(self) -> bool:
        """Whether windows are in rows."""
        window = self.arguments["window"]
        return isinstance(window[0] if isinstance(window, tuple | list) else window, Rows)

    def arguments_of(self, shard: int) -> dict[str, Any]:
        """Return the arguments of one shard: its part of the budget, and lots of its own."""
        memory, split = self.budgets[shard]
        seed = self.arguments["seed"] * self.shards + shard if self.shards > 1 else self.arguments["seed"]
        return {**self.arguments, "memory": memory, "split": split, "seed": seed}

    def saved(self, shard: int) -> dict[str, Any]:
        """Return the arguments and columns of one shard as JSON, to be compared after a restart."""
        known = {name: saving.encode(name, value) for name, value in self.arguments_of(shard).items()}
        columns = {name: [str(field) for field in schema] for name, schema in zip(SIDES, self.schemas, strict=True)}
        return {**known, "columns": columns}

    def engine(self, shard: int) -> Join:
        """Return a fresh engine for one shard."""
        return Join(schemas=self.schemas, **self.arguments_of(shard))


def output_schema(result: pa.Schema) -> pa.Schema:
    """Return the columns that leave the operator: the result's, the kind of row, and the books."""
    fields = [pa.field(field.name, field.type) for field in result]  # rows of books have nulls in all of them
    return pa.schema([*fields, pa.field(KIND, pa.int32()), pa.field(BOOK_COLUMN, pa.string())])


def output(bound: Bound, joined: list[pa.Table], books: str | None) -> Iterator[pa.RecordBatch]:
    """Return joined rows, and the books of the shard after them."""
    schema = output_schema(bound.schema)
    for table in joined:
        rows = table.num_rows
        kinds = pa.array(np.full(rows, ROW, np.int32))
        columns = [*table.columns, kinds, pa.nulls(rows, pa.string())]
        yield from pa.Table.from_arrays(columns, schema=schema).combine_chunks().to_batches(OUTPUT_ROWS)
    if books is None:
        return
    nothing = [pa.nulls(1, field.type) for field in bound.schema]
    yield pa.record_batch([*nothing, pa.array([BOOK], pa.int32()), pa.array([books])], schema)
