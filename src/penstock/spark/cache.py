"""Keep the engines of shards on the worker's host between micro-batches.

A shard's next micro-batch runs in any of a host's Python processes, so engines are left in files: a process that
kept them in its memory would in time hold a stale copy of every shard. What is found counts only if its stamp is
the one in the state store, so a lost, stale or damaged file costs time and nothing else.
"""

import contextlib
import os
import tempfile
import time
from pathlib import Path

from penstock.errors import StateError
from penstock.operator.join import Join
from penstock.spark import frames

FORGET = 86_400.0  # seconds after which a file nobody used may go


def folder() -> Path:
    """Return where engines are left: PENSTOCK_ENGINES, or the memory-backed or else the temporary folder."""
    named = os.environ.get("PENSTOCK_ENGINES")
    if named:
        return Path(named)
    shared = Path("/dev/shm")  # noqa: S108 - one folder a user, closed to others
    home = shared if os.access(shared, os.W_OK) else Path(tempfile.gettempdir())
    return home / f"penstock-{os.getuid() if hasattr(os, 'getuid') else 'engines'}"


def take(name: str, stamp: str) -> Join | None:
    """Return the engine left under a name if it has this stamp."""
    try:
        parts = frames.from_bytes((folder() / name).read_bytes())
        return Join.from_state(parts) if parts.pop("stamp").decode() == stamp else None
    except (OSError, StateError, KeyError, ValueError):
        return None


def leave(name: str, stamp: str, engine: Join) -> None:
    """Leave an engine for whoever runs the shard's next micro-batch; a full or missing disk is no reason to fail."""
    with contextlib.suppress(OSError):
        home = folder()
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=home, prefix="new-", delete=False) as file:
            fresh = Path(file.name)
            try:
                file.write(frames.to_bytes({"stamp": stamp.encode(), **engine.state_dict()}))
                file.flush()
                fresh.replace(home / name)
            except OSError:
                fresh.unlink(missing_ok=True)
        _tidy(home)


def _tidy(home: Path) -> None:
    """Remove what queries that are gone have left."""
    bar = time.time() - FORGET
    for path in home.iterdir():
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < bar:
                path.unlink()
