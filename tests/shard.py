"""One shard's processor without Spark: micro-batches in, joined rows out, its state in plain sight."""

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming import TwsTester

from penstock.operator import saving
from penstock.operator.settings import WATERMARK
from penstock.operator.several import Settings
from penstock.spark.packing import FINGERPRINT, PACKED, packed
from penstock.spark.processor import Processor
from penstock.spark.shards import shard_ids
from penstock.spark.task import ARCHIVE, BESIDE, BOOK, LEDGER, MultiTask, Task

NEVER_LATE = 1 << 60


def task_of(schemas: tuple[pa.Schema, pa.Schema], shards: int = 1, **arguments: Any) -> Task:
    """Return what a shard is told for these arguments."""
    memory, split = arguments.pop("memory", None), arguments.pop("split", "shared")
    lateness = WATERMARK if memory is None else (WATERMARK, "10 seconds")
    told = {"on": "k", "time": "ts", "window": "30 seconds", "seed": 0, "lateness": lateness, **arguments}
    return Task({**told, "memory": memory, "split": split}, schemas, [(memory, split)] * shards)


def several(schemas: dict[str, pa.Schema], **arguments: Any) -> MultiTask:
    """Return what the one shard of a join of several streams is told."""
    told = vars(Settings(**{"lateness": (WATERMARK, "10 seconds"), **arguments}))
    return MultiTask(told, (*schemas.values(),), [told["memory"]], streams=(*schemas,))


class Shard:
    """One shard of a join."""

    def __init__(self, task: Task, before: "Shard | None" = None, number: int = 0) -> None:
        self.key = shard_ids(task.shards)[number]
        self.ledger: list[dict[str, Any]] = []  # what has left so far
        self.archive: list[dict[str, Any]] = []
        self.tester = TwsTester(Processor(task), timeMode="EventTime", eventTimeExtractor=lambda _: NEVER_LATE)
        if before is not None:  # the query was started again from the checkpoint
            self.restore(before.state())

    def feed(
        self,
        tables: Sequence[pa.Table],
        watermark: int | None = None,
        *,
        order: int = 1,
        sketches: Sequence[bytes] | None = None,
    ) -> list[str]:
        """Run a micro-batch; returns the joined rows as sorted text."""
        if watermark is not None:  # timers fire after the rows
            self.tester._currentWatermarkMs = watermark
            self.tester.handle.setWatermark(watermark)
        blobs = [(self.key, side, 0, sketch) for side, sketch in enumerate(sketches or [b""] * len(tables))]
        for side, table in enumerate(tables):
            prints = pa.array([zlib.crc32(str(row).encode()) for row in table.to_pylist()], pa.int64())
            with_prints = table.append_column(FINGERPRINT, prints)
            for part in np.array_split(np.arange(table.num_rows), 2):
                if not part.size:  # a blob without rows says something else
                    continue
                rows = with_prints.take(pa.array(part[::order]))
                blobs.append((self.key, side, len(part), saving.to_ipc(rows)))
        frame = pa.Table.from_batches([packed(blobs[::order])], PACKED).to_pandas()
        out = self.tester.testInPandas(self.key, frame)
        fired = self.tester._handleExpiredTimers()
        assert len(fired) == 0  # a micro-batch with rows has nothing left for its timers
        beside = [bytes(data) for data in out[BESIDE].dropna()]
        self.books = json.loads(next(data[1:] for data in beside if data[0] == BOOK))
        for kind, rows in ((LEDGER, self.ledger), (ARCHIVE, self.archive)):
            rows += [row for data in beside if data[0] == kind for row in saving.from_ipc(data[1:]).to_pylist()]
        rows = out[out[BESIDE].isna()].drop(columns=[BESIDE])
        return sorted(str({name: str(value) for name, value in row.items()}) for row in rows.to_dict("records"))

    def state(self) -> dict[str, Any]:
        """Return everything the shard keeps."""
        log, snapshot = (self.tester.peekMapState(name, self.key) for name in ("log", "snapshot"))
        values = {name: self.tester.peekValueState(name, self.key) for name in ("head", "known")}
        return {**values, "log": dict(log), "snapshot": dict(snapshot)}

    def restore(self, state: dict[str, Any]) -> None:
        """Put everything back: a micro-batch that failed wrote nothing."""
        for name in ("head", "known"):
            self.tester.updateValueState(name, self.key, state[name])
        for name in ("log", "snapshot"):
            self.tester.updateMapState(name, self.key, dict(state[name]))

    @property
    def head(self) -> dict[str, Any]:
        """The head, as it stands in the state."""
        found: dict[str, Any] = json.loads(self.tester.peekValueState("head", self.key)[0])
        return found
