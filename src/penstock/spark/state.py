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
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import StateError
from penstock.operator import saving
from penstock.operator.join import Join
from penstock.spark import cache, frames
from penstock.spark.sharing import Known

SMALL_LOG = 1 << 20  # bytes of log that are not worth a snapshot
LONG_LOG = 256  # micro-batches after which a snapshot is due


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
    format: int = frames.FORMAT


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
        known = json.loads(found[0])
        if known.get("format") != frames.FORMAT:
            want = f"this Penstock reads format {frames.FORMAT}: use the one that wrote it, or a new checkpoint"
            raise StateError("checkpoint", f"format {known.get('format')}", want)
        return Head(**known)

    def engine(self, head: Head, name: str) -> Join:
        """Return the engine as the last micro-batch left it, from the host's cache or rebuilt."""
        found = cache.take(name, head.stamp)
        if found is not None:
            return found
        pieces = [self._snapshot.getValue((at,)) for at in range(head.snapshot)]
        engine = Join.from_state(frames.from_bytes(_whole(pieces)))
        for entry, count in enumerate(head.log):
            play(engine, frames.from_bytes(_whole([self._log.getValue((entry, at)) for at in range(count)])))
            engine.ledger()
        return engine

    def record(self, head: Head, entry: dict[str, bytes], engine: Join) -> None:
        """Write a micro-batch to the log or, if the log would outgrow the snapshot, the engine that took it."""
        data = frames.to_bytes(entry)
        long = len(head.log) + 1 >= LONG_LOG
        if long or head.log_bytes + len(data) > max(head.snapshot_bytes, SMALL_LOG):
            self.snapshot(head, engine)
            return
        pieces = frames.pieces(data)
        for at, piece in enumerate(pieces):
            self._log.updateValue((len(head.log), at), (piece,))
        head.log.append(len(pieces))
        head.log_bytes += len(data)

    def snapshot(self, head: Head, engine: Join) -> None:
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

    def known(self, shards: int) -> Known:
        """Return what this shard knows of all of them, to share out the budget."""
        found = self._known.get()
        if found is None:
            return Known.nothing(shards)
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


def entry_of(left: pa.Table, right: pa.Table, watermark: int, share: tuple[Any, Any] | None) -> dict[str, bytes]:
    """Return a micro-batch as a log entry; `share` is the shard's (memory, split) from now on, None: as it was."""
    entry = {"watermark": str(watermark).encode()}
    if share is not None:
        entry["share"] = json.dumps(share).encode()
    for name, table in (("left", left), ("right", right)):
        if table.num_rows:
            entry[name] = saving.to_ipc(table)
    return entry


def play(engine: Join, entry: dict[str, bytes]) -> list[pa.Table]:
    """Push a log entry through an engine and return what comes out."""
    if "share" in entry:
        memory, split = json.loads(entry["share"])
        engine.resize(memory=memory, split=split)
    joined = [engine.watermark(int(entry["watermark"]))]
    rows = {name: saving.from_ipc(entry[name]) for name in ("left", "right") if name in entry}
    if rows:
        joined.append(engine.push(**rows))
    return joined


def _whole(pieces: list[Any]) -> bytes:
    if any(piece is None for piece in pieces):
        raise StateError("checkpoint", "a state with pieces missing", "start from another checkpoint")
    return b"".join(piece[0] for piece in pieces)
