"""What a shard keeps in Spark's state store, at a cost that grows with the micro-batch and not with the window.

State variables: the *head* (a line of JSON: format, join, version, arguments, watermark), a *log* of the
micro-batches since the last *snapshot*, the snapshot, cut into pieces, and what is *known* of all shards. Each
micro-batch writes its rows to the log, and the head; when the log would outgrow the snapshot, a new snapshot takes
the place of both. So a row is written twice at most, whatever the window. An engine is rebuilt from the snapshot by
joining the log again, which gives the same decisions: they depend on nothing but the arguments, the shares of the
budget and the rows in order.
"""

import json
import uuid
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from penstock.errors import LatencyWarning, StateError
from penstock.operator import saving
from penstock.operator.join import Join
from penstock.spark import cache, frames
from penstock.spark.sharing import Known
from penstock.spark.task import Engine, Task

SMALL_LOG = 1 << 20  # bytes of log that are not worth a snapshot
LONG_LOG = 256  # micro-batches after which a snapshot is due
PORTION = 1 << 14  # rows that are joined at once, before it is known how many pairs they make
LEAST, MOST = 1 << 12, 1 << 15  # rows that are joined at once: more make tables larger than caches
ELSEWHERE = "start from another checkpoint"
PAIRS = 1 << 20  # pairs that shall come out at once


@dataclass
class Head:
    """What must be known to read the rest; JSON in the store."""

    arguments: dict[str, Any]
    shards: int
    join: str = field(default_factory=lambda: uuid.uuid4().hex)
    stamp: str = ""  # of the micro-batch that wrote this
    version: int = 0  # micro-batches so far
    watermark: int = 0  # in ms, as the last micro-batch saw it; Spark's first is 1970
    snapshot: int = 0  # pieces
    snapshot_bytes: int = 0
    log: list[int] = field(default_factory=list)  # pieces of each micro-batch since the snapshot
    log_bytes: int = 0
    ended: float = 0.0  # when the core had joined the last micro-batch, by the clock on the wall; 0: there was none
    between: float = 0.0  # seconds from there to the next one, at least
    slower: float = 1.0  # times the engine's own seconds that it takes until its rows are handed over
    late: int = 0  # micro-batches in a row that took longer than they may, though nothing was compared
    possible: float = 0.0  # the seconds of a latency that could be kept, if this one cannot
    format: int = frames.FORMAT

    def checked(self) -> Self:
        """Return it, and raise TypeError if a part is of another kind than those that are written."""
        for name, mine in vars(Head({}, 0)).items():
            if type(getattr(self, name)) is not type(mine):
                raise TypeError(name)
        if not all(type(pieces) is int for pieces in self.log):
            raise TypeError("log")
        return self


class Store:
    """The state of the shard that Spark is asking about; all calls go through its handle."""

    def __init__(self, handle: Any) -> None:
        self._head = handle.getValueState("head", "head string")
        self._snapshot = handle.getMapState("snapshot", "piece int", "data binary")
        self._known = handle.getValueState("known", "data binary")
        self._log = handle.getMapState("log", "entry int, piece int", "data binary")

    def head(self) -> Head | None:
        """Return the head; None if the shard has never run.

        Raises:
            StateError: if another format was written.
        """
        found = self._head.get()
        if found is None:
            return None
        with saving.whole("checkpoint", "a head that is none", ELSEWHERE):
            known = dict(json.loads(found[0]))
            if known.get("format") != frames.FORMAT:
                want = f"this Penstock reads format {frames.FORMAT}: use the one that wrote it, or a new checkpoint"
                raise StateError("checkpoint", f"format {known.get('format')!r:.40}", want)
            return Head(**known).checked()

    def engine(self, head: Head, name: str, task: Task) -> Engine:
        """Return the engine as the last micro-batch left it, from the host's cache or rebuilt."""
        found = cache.take(name, head.stamp)
        if found is not None:
            return found
        pieces = [self._snapshot.getValue((at,)) for at in range(head.snapshot)]
        engine = task.kind.from_state(frames.from_bytes(_whole(pieces)))
        for entry, count in enumerate(head.log):
            pieces = [self._log.getValue((entry, at)) for at in range(count)]
            for _ in play(engine, Entry.from_bytes(_whole(pieces))):
                engine.ledger()
        return engine

    def record(self, head: Head, entry: "Entry", engine: Engine) -> None:
        """Write a micro-batch to the log or, if the log would outgrow the snapshot, the engine that took it."""
        long = len(head.log) + 1 >= LONG_LOG
        if long or head.log_bytes + entry.nbytes > max(head.snapshot_bytes, SMALL_LOG):
            self.snapshot(head, engine)
            return
        data = entry.to_bytes()
        pieces = frames.pieces(data)
        for at, piece in enumerate(pieces):
            self._log.updateValue((len(head.log), at), (piece,))
        head.log.append(len(pieces))
        head.log_bytes += len(data)

    def snapshot(self, head: Head, engine: Engine) -> None:
        """Write the engine whole, in the place of the old snapshot and the log."""
        pieces = frames.pieces(frames.to_bytes(engine.state_dict()))
        for at, piece in enumerate(pieces):
            self._snapshot.updateValue((at,), (piece,))
        for at in range(len(pieces), head.snapshot):
            self._snapshot.removeKey((at,))
        for entry, count in enumerate(head.log):
            for at in range(count):
                self._log.removeKey((entry, at))
        head.snapshot, head.snapshot_bytes = len(pieces), sum(map(len, pieces))
        head.log, head.log_bytes = [], 0

    def known(self, shards: int, sides: int) -> Known:
        """Return what this shard knows of all of them, to share out the budget."""
        found = self._known.get()
        if found is None:
            return Known.nothing(shards, sides)
        with saving.whole("checkpoint", "what is no state", ELSEWHERE):
            return Known.from_arrays(saving.from_npz(frames.from_bytes(found[0])["known"]))

    def note(self, known: Known) -> None:
        """Write down what this shard knows of all of them."""
        self._known.update((frames.to_bytes({"known": saving.to_npz(known.to_arrays())}),))

    def commit(self, head: Head) -> None:
        """Write the head, with a stamp of its own."""
        head.version += 1
        head.stamp = uuid.uuid4().hex
        self.write(head)

    def write(self, head: Head) -> None:
        """Write the head as it is: the engine has not moved."""
        self._head.update((json.dumps(asdict(head)),))


class Entry(NamedTuple):
    """A micro-batch of a shard, as the log keeps it."""

    sides: tuple[pa.Table, ...]  # in order of time
    watermark: int
    share: Sequence[Any] | None = None  # the shard's memory from now on, and its split of two; None: as it was
    portions: Sequence[Sequence[float | None]] = ()  # what was decided by the clock on the wall

    @property
    def nbytes(self) -> int:
        """Return about how many bytes it takes."""
        return sum(int(rows.nbytes) for rows in self.sides)

    def to_bytes(self) -> bytes:
        """Return it framed."""
        rows = {str(side): saving.to_ipc(table) for side, table in enumerate(self.sides)}
        told = json.dumps({"watermark": self.watermark, "share": self.share, "portions": self.portions})
        return frames.to_bytes({"told": told.encode(), **rows})

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the entry that was framed."""
        with saving.whole("checkpoint", "what is no micro-batch", ELSEWHERE):
            parts = frames.from_bytes(data)
            told = json.loads(parts.pop("told"))
            return cls(tuple(saving.from_ipc(parts[str(side)]) for side in range(len(parts))), **told)


def play(engine: Engine, entry: Entry, seconds: float | None = None) -> Iterator[pa.Table]:
    """Push a micro-batch through an engine, in portions of time, and yield what comes out of each.

    The portions depend on nothing but the engine and the entry, so the log gives the same decisions again. They keep
    what is under way small, however many pairs a micro-batch makes. `seconds` is the time that the micro-batch may
    take by the clock on the wall; what is decided by that is in the entry when it is played again.

    Where rows wait for the watermark to put them in order, it passes after those of the micro-batch have come: it
    judges the next ones, and lets these go on that it has passed.
    """
    bound = engine.bound
    waits = isinstance(engine, Join) and engine.bound.ordered
    if isinstance(engine, Join):
        engine.follow(entry.portions)
        engine.begin_batch(seconds)
    if entry.share is not None:
        engine.resize(**dict(zip(("memory", "split"), entry.share, strict=False)))
    if not waits:
        yield engine.watermark(entry.watermark)
    times = [bound.clock.values(rows[name], "time") for rows, name in zip(entry.sides, bound.time, strict=True)]
    both = np.sort(np.concatenate(times), kind="stable")  # a run a side: merged, not sorted
    done, size = 0, PORTION
    starts = [0] * len(times)
    while done < both.size:
        until = int(both[done + size]) if done + size < both.size else int(both[-1]) + 1
        until += until == both[done]  # a moment is not divided
        ends = [int(np.searchsorted(one, until)) for one in times]
        parts = [rows[a:b] for rows, a, b in zip(entry.sides, starts, ends, strict=True)]
        joined = engine.push(**dict(zip(bound.names, parts, strict=True)))
        yield joined
        starts, came = ends, sum(ends) - done
        done += came
        size = min(max(came * PAIRS // max(joined.num_rows, 1), LEAST), MOST)
    if waits:
        yield engine.watermark(entry.watermark)
    if isinstance(engine, Join):
        with warnings.catch_warnings(action="ignore", category=LatencyWarning):  # nobody reads what a worker says
            engine.end_batch()


def _whole(pieces: list[Any]) -> bytes:
    if any(piece is None for piece in pieces):
        raise StateError("checkpoint", "a state with pieces missing", ELSEWHERE)
    return b"".join(piece[0] for piece in pieces)
