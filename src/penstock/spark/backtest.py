"""Join whole inputs on Spark: it sorts each shard's rows by time, and one engine a shard runs over them."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.spark.books import books_of
from penstock.spark.packing import FINGERPRINT, Batches, destinations, read
from penstock.spark.shards import shard_ids
from penstock.spark.task import LEDGER, Bound, Engine, Task, of_shard, output, output_beside, output_schema


def joined(frames: Sequence[Any], bound: Bound, task: Task) -> Any:
    """Plan the join of DataFrames that carry fingerprints."""
    tagged = [
        frame.mapInArrow(_tagger(bound, side, task.shards), from_arrow_schema(_tagged(bound)))
        for side, frame in enumerate(frames)
    ]
    rows = reduce(lambda some, more: some.union(more), tagged).repartition(task.shards, "shard")
    ordered = rows.sortWithinPartitions("shard", "ts", "side", FINGERPRINT)
    return ordered.mapInArrow(_runner(bound, task), from_arrow_schema(output_schema(bound)))


def _tagged(bound: Bound) -> pa.Schema:
    """Return the columns of rows on their way: each row under the number of its side."""
    return pa.schema(
        [
            ("shard", pa.int32()),
            ("ts", pa.int64()),
            ("side", pa.int32()),
            (FINGERPRINT, pa.int64()),
            *((str(at), pa.struct(list(schema))) for at, schema in enumerate(bound.schemas)),
        ]
    )


def _tagger(bound: Bound, side: int, shards: int) -> Callable[[Batches], Batches]:
    """Return the function for ``mapInArrow`` that tags the rows of one side with shard and time."""
    ids = np.array(shard_ids(shards), np.int32)
    schema = _tagged(bound)

    def tag(batches: Batches) -> Batches:
        for batch in batches:
            table, ts = read(bound, side, pa.Table.from_batches([batch]))
            row, shard = destinations(bound, side, table, shards)
            if row.size != ts.size or (np.diff(row) < 0).any():
                table, ts = table.take(pa.array(row)), ts[row]
            rows = table.select(bound.schemas[side].names).to_struct_array().combine_chunks()
            structs = [
                rows if at == side else pa.nulls(len(ts), schema.field(str(at)).type)
                for at in range(len(bound.names))
            ]
            sides = pa.array(np.full(len(ts), side, np.int32))
            prints = table[FINGERPRINT].combine_chunks()
            yield pa.record_batch([pa.array(ids[shard]), pa.array(ts), sides, prints, *structs], schema)

    return tag


def _runner(bound: Bound, task: Task) -> Callable[[Batches], Batches]:
    """Return the function for ``mapInArrow`` that joins sorted rows, shard after shard."""
    ids = shard_ids(task.shards)

    def run(batches: Batches) -> Batches:
        engine: Engine | None = None
        current = -1
        for batch in batches:
            shards = batch.column("shard").to_numpy()
            cuts = [0, *(np.flatnonzero(np.diff(shards)) + 1).tolist(), batch.num_rows]
            for low, high in pairwise(cuts):
                if low == high:
                    continue
                if engine is None or shards[low] != current:
                    yield from _end(engine, task, current)
                    current = int(shards[low])
                    engine = task.engine(ids.index(current))
                rows = pa.Table.from_batches([batch.slice(low, high - low)])
                sides = {name: _side(rows, at, bound.schemas[at]) for at, name in enumerate(bound.names)}
                yield from output(bound, engine.push(**sides))
        yield from _end(engine, task, current)

    return run


def _side(rows: pa.Table, side: int, schema: pa.Schema) -> pa.Table:
    mine = rows.filter(pa.array(rows["side"].to_numpy() == side))[str(side)].combine_chunks()
    return pa.Table.from_arrays(mine.flatten(), names=schema.names).cast(schema)


def _end(engine: Engine | None, task: Task, identity: int) -> Batches:
    """Close the last tick of a shard and hand its books over, and its ledger if that is wanted."""
    if engine is not None:
        yield from output(engine.bound, engine.finish())
        beside = {LEDGER: of_shard(engine.ledger(), task.shard(identity))} if LEDGER in task.wanted else {}
        yield from output_beside(engine.bound, books_of(engine.report()), beside)
