"""Keep the engines of shards on the worker's host between micro-batches.

A shard's next micro-batch runs in any of a host's Python processes, so engines are left on disk, in a folder each: a
process that kept them in its memory would in time hold a stale copy of every shard. The large arrays of an engine are
files that the process maps and changes in place, so a micro-batch writes what is new and not what is held; the rest
is a small *head* that names them. Whoever takes an engine moves its folder away, for nobody else may change the same
arrays. What is found counts only if it is whole, as it was left, and its stamp is the one in the state store: a lost,
stale or damaged file costs time and nothing else.
"""

import contextlib
import json
import mmap
import os
import pickle
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
from pyspark import cloudpickle

from penstock.core.jit import cache_folder
from penstock.errors import StateError
from penstock.operator import join, multijoin
from penstock.spark import frames
from penstock.spark.task import Engine

FORGET = 600.0  # seconds after which a file nobody used may go: they are in memory, and can be rebuilt
SMALL = 1 << 14  # bytes; arrays up to this size are part of the head
HEAD = "head"
LINE = 64  # bytes; where arrays begin in a file
SHARED = Path("/dev/shm")  # noqa: S108 - one folder a user, closed to others
ROOM = 1 << 30  # bytes of memory-backed disk that are enough for engines; containers often have far less
MAKER = [frames.FORMAT, join.VERSION, multijoin.VERSION, cache_folder().name, np.__version__, sys.version]
DAMAGED = (OSError, StateError, KeyError, TypeError, ValueError, AttributeError, ImportError, pickle.PickleError)


@dataclass
class Files:
    """The files that hold the arrays of an engine."""

    folder: Path
    maps: list[mmap.mmap] = field(default_factory=list)  # held, so that nothing else gets their addresses
    places: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)  # address, length -> file, offset


_files: "WeakKeyDictionary[Engine, Files]" = WeakKeyDictionary()


def folder() -> Path:
    """Return where engines are left: PENSTOCK_ENGINES, or the memory-backed or else the temporary folder."""
    named = os.environ.get("PENSTOCK_ENGINES")
    if named:
        return Path(named)
    home = SHARED if os.access(SHARED, os.W_OK) and _size(SHARED) >= ROOM else Path(tempfile.gettempdir())
    return home / f"penstock-{os.getuid() if hasattr(os, 'getuid') else 'engines'}"


def take(name: str, stamp: str) -> Engine | None:
    """Return the engine left under a name if it has this stamp, and take it away. O(files), not O(rows held)."""
    home = folder()
    mine = home / _fresh(name)
    engine = None
    with contextlib.suppress(*DAMAGED):
        if closed(home):
            (home / name).rename(mine)
            engine = _engine(mine, stamp)
    if engine is None:
        _remove(mine)
    return engine


def leave(name: str, stamp: str, engine: Engine) -> None:
    """Leave an engine for whoever runs the shard's next micro-batch; a full or missing disk is no reason to fail.

    It must not be used any more. Cost: O(files + bytes of the arrays that are new since it was taken).
    """
    home = folder()
    with contextlib.suppress(OSError):
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if closed(home):
            mine = _files.setdefault(engine, Files(home / _fresh(name)))
            mine.folder.mkdir(exist_ok=True)
            data, buffers = _pickled(engine)
            places = _written(mine, buffers)
            files = _sealed(mine.folder, {file for file, _, _ in places})
            for path in mine.folder.iterdir():
                if path.name not in files:
                    path.unlink()
            head = {"stamp": stamp, "maker": MAKER, "places": places, "files": files}
            whole = frames.to_bytes({"head": json.dumps(head).encode(), "engine": data})
            (mine.folder / HEAD).write_bytes(whole)
            with contextlib.suppress(FileNotFoundError):  # another attempt may have left one
                (home / name).rename(home / _fresh(name))
            mine.folder.rename(home / name)
    _tidy(home, name)


def _fresh(name: str) -> str:
    """Return the name of an engine's folder while it is nobody else's."""
    return f"{name}.{uuid.uuid4().hex}"


def _pickled(engine: Engine) -> tuple[bytes, list[memoryview]]:
    """Return an engine as bytes, and beside them its large arrays, which are not copied."""
    buffers: list[memoryview] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes <= SMALL:
            return True
        buffers.append(raw)
        return False

    return cloudpickle.dumps(engine, protocol=5, buffer_callback=aside), buffers


def _written(mine: Files, buffers: Iterable[memoryview]) -> list[tuple[str, int, int]]:
    """Write the arrays that are in no file yet, and return file, offset and length of each.

    Columns that came together go together, into one file; an array of the core, which may be replaced on its own
    when it grows, has a file of its own.
    """
    columns = uuid.uuid4().hex
    places = dict(mine.places)
    found = []
    for buffer in buffers:
        where = _where(buffer)
        if where not in places:
            file = uuid.uuid4().hex if isinstance(buffer.obj, np.ndarray) else columns
            with (mine.folder / file).open("ab") as sink:
                sink.write(bytes(-sink.tell() % LINE))
                places[where] = file, sink.tell()
                sink.write(buffer)
        found.append((*places[where], buffer.nbytes))
    return found


def _sealed(home: Path, files: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return size and time of change of each file, after giving each a time that nothing else has."""
    now = time.time_ns()
    sealed = {}
    for at, file in enumerate(files):
        os.utime(home / file, ns=(now + at, now + at))
        sealed[file] = (home / file).stat().st_size, now + at
    return sealed


def _engine(home: Path, stamp: str) -> Engine | None:
    """Return the engine in a folder, over its files; None if it is another, or one is not as it was left."""
    parts = frames.from_bytes((home / HEAD).read_bytes())
    head = json.loads(parts["head"])
    if [head["stamp"], head["maker"]] != [stamp, MAKER]:
        return None
    mapped: dict[str, mmap.mmap] = {}
    for file, seal in head["files"].items():
        with (home / file).open("r+b") as source:
            status = os.fstat(source.fileno())
            if [status.st_size, status.st_mtime_ns] != seal:
                return None
            mapped[file] = mmap.mmap(source.fileno(), 0)
    views = [memoryview(mapped[file])[start : start + size] for file, start, size in head["places"]]
    engine: Engine = pickle.loads(  # noqa: S301 - its checksum held, in a folder only we write to
        parts["engine"], buffers=views
    )
    places = {_where(view): (file, start) for view, (file, start, _) in zip(views, head["places"], strict=True)}
    _files[engine] = Files(home, list(mapped.values()), places)
    return engine


def _where(view: memoryview) -> tuple[int, int]:
    return int(np.frombuffer(view, np.uint8).ctypes.data), view.nbytes


def closed(home: Path) -> bool:
    """Say whether nobody else can have put files into a folder."""
    status = home.stat()
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)


def _size(home: Path) -> int:
    disk = os.statvfs(home)
    return disk.f_blocks * disk.f_frsize


def _tidy(home: Path, name: str) -> None:
    """Remove what attempts that failed have left of an engine, and what queries that are gone have."""
    bar = time.time() - FORGET
    with contextlib.suppress(OSError):
        for path in home.iterdir():
            if path.name.startswith(f"{name}.") or path.stat().st_mtime < bar:
                _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
