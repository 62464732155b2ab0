"""Run one shard's micro-batch inside Spark's ``transformWithState``."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Self

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessor

from penstock.errors import StateError
from penstock.operator.join import Join
from penstock.policies.cpu.pacing import ALIKE, MARGIN, TRIES, Portion
from penstock.quality.books import Report
from penstock.spark import cache
from penstock.spark.books import books_of
from penstock.spark.packing import Packed, packed_at, unpacked
from penstock.spark.sharing import Sketch, shares
from penstock.spark.state import Entry, Head, Store, play
from penstock.spark.task import (
    ARCHIVE,
    LEDGER,
    MILLISECOND,
    THROUGH,
    Bound,
    Engine,
    Task,
    archived,
    of_shard,
    output,
    output_beside,
)

SHORTEST = 1e-3  # seconds of an engine's work: less tells nothing
SLACK = 1.1  # by which the least time between micro-batches may grow each time


class Processor(StatefulProcessor):  # type: ignore[misc]  # Spark comes without types
    """Joins the rows of a shard, one micro-batch at a time."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def init(self, handle: Any) -> None:
        """Name the state variables; Spark calls this in every task, and once on the driver."""
        self.handle = handle
        self.store = Store(handle)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Join the rows of a micro-batch, hand the results over, and write the state."""
        blobs = [blob for part in rows for blob in zip(part["side"], part["rows"], part["data"], strict=True)]
        identity, watermark = int(key[0]), timerValues.getCurrentWatermarkInMs()
        head = self.store.head()
        if head is None:
            head, engine = self._begun(identity, watermark)
        else:
            engine = self._resumed(head, identity)
        sides = [
            unpacked(engine.bound, side, [data for at, count, data in blobs if at == side and count])
            for side in range(len(engine.bound.names))
        ]
        # Spark's own join judges lateness by the watermark of the micro-batch before, up to and including it; rows
        # that carry event time on must be past the one of this micro-batch. Under a CPU budget the last entry's
        # watermark judges these rows, and this one lets those go on that wait for it.
        now = self.task.cpu is not None or engine.bound.event_time is not None
        judge = watermark if now else head.watermark
        entry = Entry(tuple(sides), _bar(judge), self._share(identity, engine.bound, blobs))
        head.watermark = watermark
        timed = blobs if self.task.latency is not None else []  # else those are sketches
        return self._played(head, identity, engine, entry, packed_at(timed, time.time()))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: ARG002, N803
    ) -> Iterator[pd.DataFrame]:
        """Note the watermark, also of micro-batches without rows: the next one judges lateness by it.

        Where rows wait for that, they go on at once.
        """
        identity, watermark = int(key[0]), timerValues.getCurrentWatermarkInMs()
        self.handle.registerTimer(watermark + 1)
        head = self.store.head()
        if head is None or head.watermark == watermark:
            return iter(())
        head.watermark = watermark
        if not self.task.waits:
            self.store.write(head)
            return iter(())
        engine = self._resumed(head, identity)
        nothing = Entry(tuple(schema.empty_table() for schema in engine.bound.schemas), _bar(watermark))
        return self._played(head, identity, engine, nothing, packed_at([], time.time()))

    def close(self) -> None:
        """Let go of nothing: what outlives a call is in the cache."""

    def _played(
        self,
        head: Head,
        identity: int,
        engine: Engine,
        entry: Entry,
        packed: Packed,
    ) -> Iterator[pd.DataFrame]:
        """Push an entry through the engine and hand over what comes out, then write the state and the books."""
        now, arrived = _bar(head.watermark) + MILLISECOND, engine.arrived
        latency, turns, started = self.task.latency, self.task.turns, time.time()
        seconds = None if latency is None else _seconds(head, packed, latency, turns)
        # Where rows wait for the watermark, they are numbered when it passes them.
        waits = engine if isinstance(engine, Join) and engine.bound.ordered else None
        if waits is not None and ARCHIVE in self.task.wanted:
            waits.numbered = []
        spent = [0.0]
        for joined in _ahead(_timed(play(engine, entry, seconds), spent)):
            yield from _frames(output(engine.bound, joined))
        ended = time.time()
        head.ended = max(ended, packed.ended + turns * (ended - started))  # the others on the core take as long
        if latency is not None and isinstance(engine, Join) and engine.portions:
            head.slower = (head.slower + max(1.0, (ended - started) / max(spent[0], SHORTEST))) / 2
            _judge(head, engine.portions, head.ended - packed.began, latency)
        beside = {}
        if ARCHIVE in self.task.wanted:
            sides = entry.sides if waits is None else _numbered(waits)
            shard = self.task.shard(identity), self.task.shards
            beside[ARCHIVE] = archived(engine.bound, shard, arrived, sides)
        if isinstance(engine, Join):
            entry = entry._replace(portions=engine.portions)
        ledger = engine.ledger()  # before a snapshot is taken: what was handed over is not part of it
        if LEDGER in self.task.wanted:
            beside[LEDGER] = of_shard(ledger, self.task.shard(identity))
        self.store.record(head, entry, engine)
        self.store.commit(head)
        report = engine.report()
        if isinstance(report, Report) and head.possible:
            report = replace(report, possible_latency=head.possible)
        books = books_of(report)
        rest = output_beside(engine.bound, books, beside, now)
        cache.leave(_name(head, identity), head.stamp, engine)
        yield from _frames(rest)

    def _share(self, identity: int, bound: Bound, blobs: list[tuple[int, int, bytes]]) -> Sequence[Any] | None:
        """Return this shard's share of the budget from now on, given what came to all shards."""
        if not self.task.moves:
            return None
        sketches = [
            [Sketch.from_bytes(data) for at, count, data in blobs if at == side and data and not count]
            for side in range(len(bound.names))
        ]
        known = self.store.known(self.task.shards, len(bound.names)).after(sketches, max(bound.span))
        if not known.ticks:
            return None
        self.store.note(known)
        pools = self.task.pools(bound)
        return self.task.share(self.task.shard(identity), pools, shares(known, pools))

    def _begun(self, identity: int, watermark: int) -> tuple[Head, Engine]:
        """Return the head and the engine of the first micro-batch that a shard hears of."""
        shard = self.task.shard(identity)
        engine = self.task.engine(shard)
        head = Head(self.task.saved(shard), self.task.shards)
        self.store.snapshot(head, engine)
        self.handle.registerTimer(watermark + 1)
        return head, engine

    def _resumed(self, head: Head, identity: int) -> Engine:
        """Return the engine as the last micro-batch left it, with the arguments of today.

        Another number of shards shows here: one id, 0, is a shard's whatever their number.
        """
        if head.shards != self.task.shards:
            want = f"this checkpoint was written with shards={head.shards}: give that, or a new checkpoint"
            raise StateError("shards", str(self.task.shards), want)
        engine = self.store.engine(head, _name(head, identity), self.task)
        engine.keep_ledger(self.task.ledger)
        shard = self.task.shard(identity)
        today = self.task.saved(shard)
        if head.arguments == today:
            return engine
        engine = self.task.changed(engine, shard)
        head.arguments = today
        self.store.snapshot(head, engine)
        return engine


def _seconds(head: Head, packed: Packed, latency: float, turns: int) -> float:
    """Return the seconds that a shard may be at work for its micro-batch, if rows are to be joined in time.

    A row waits until the micro-batch is over in which it came, and for the watermark until the next one is, which
    packs it; the one after that joins it. So each may take a third of the time. Of that, Spark has had what passed
    since the first row was packed, and will need what it needed at least between two micro-batches so far, from the
    end of one join to the packing of the next; half of it at most: that may be waiting for the trigger. Shards that
    share a core, which take turns, get equal parts of what there was when the rows were packed. To hand pairs over to
    Spark takes time, too, the more of them the longer: it is told by how much more micro-batches took lately.
    """
    if head.ended:
        between = max(0.0, packed.began - head.ended)
        head.between = min(between, head.between * SLACK) if head.between else between
    third = latency / THROUGH
    whole = MARGIN * third - min(head.between, third / 2)
    mine = min((whole - (packed.ended - packed.began)) / turns, whole - (time.time() - packed.began))
    return max(0.0, mine / head.slower)


def _judge(head: Head, told: Sequence[Portion], took: float, latency: float) -> None:
    """Note which latency could be kept if this one cannot: micro-batches are late although nothing is compared."""
    took += head.between
    idle = all(portion.work is not None and portion.work <= 0.0 for portion in told)
    head.late = head.late + 1 if idle and took > MARGIN * latency / THROUGH else 0
    if head.late == TRIES:
        head.possible = ALIKE * THROUGH * took / MARGIN
    elif not head.late:
        head.possible = 0.0


def _numbered(engine: Join) -> list[pa.Table]:
    """Return the rows of each side that were numbered since the list was begun, and end it."""
    pushed, engine.numbered = engine.numbered or [], None
    sides = zip(*pushed, strict=True) if pushed else ((), ())
    return [
        pa.concat_tables([schema.empty_table(), *(rows for rows in tables if rows is not None)])
        for schema, tables in zip(engine.bound.schemas, sides, strict=True)
    ]


def _bar(watermark: int) -> int:
    """Return the first time, in microseconds, that is not late at a watermark."""
    return watermark * MILLISECOND + 1


def _name(head: Head, identity: int) -> str:
    return f"{head.join}-{identity}"


def _timed(items: Iterator[pa.Table], spent: list[float]) -> Iterator[pa.Table]:
    """Yield items, and note the seconds that it took to make them."""
    began = time.time()
    for item in items:
        spent[0] += time.time() - began
        yield item
        began = time.time()
    spent[0] += time.time() - began


def _ahead(items: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield items while the next one is being made: Spark takes rows more slowly than they are joined."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = pool.submit(next, items, None)
            yield item


def _frames(batches: Iterator[pa.RecordBatch]) -> Iterator[pd.DataFrame]:
    """Return Arrow batches as pandas, without copying them."""
    for batch in batches:
        yield pd.DataFrame({name: _series(batch.column(name)) for name in batch.schema.names})


def _series(column: pa.Array) -> Any:
    kind = Nested if pa.types.is_nested(column.type) else pd.arrays.ArrowExtensionArray
    return kind(pa.chunked_array([column]))


class Nested(pd.arrays.ArrowExtensionArray):
    """A nested column that Spark takes over as it is.

    Spark maps nested values one by one to what Arrow can read, which takes many times as long as the join of their
    rows. These come from Arrow, as Spark wrote it: there is nothing to map.
    """

    def map(self, mapper: Any, na_action: Any = None) -> Self:  # noqa: ARG002 - pandas's signature
        """Return the column."""
        return self
