"""Turn arguments, tables and arrays into bytes and back."""

import io
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import PenstockError, StateError
from penstock.policies.cpu.controller import Cpu
from penstock.policies.registry import Policy
from penstock.policies.statistics import Table
from penstock.streams.sets import Condition
from penstock.streams.times import Every, Rows

SEAL = "seal"  # the part that is the checksum of what must be known to read the others
BROKEN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)


def encode(name: str, value: object) -> object:  # noqa: C901, PLR0911 - one type a line
    """Return an argument as JSON."""
    if isinstance(value, Rows):
        return {"rows": value.count}
    if isinstance(value, Every):
        return {"every": encode(name, value.interval)}
    if isinstance(value, Condition):
        return {"condition": value.name, "columns": [*value.columns], "bound": value.bound, "index": value.index}
    if isinstance(value, Cpu):
        parts = {key: encode(key, part) for key, part in vars(value).items()}
        return {"cpu": parts | {"utility": encode(name, list((value.utility or {}).items()))}}
    if isinstance(value, Policy):
        return {
            "policy": value.name,
            "options": {key: encode(key, option) for key, option in value.options.items()},
        }
    if isinstance(value, Table):
        return {
            "left": encode(name, list(value.left.items())),
            "right": encode(name, list(value.right.items())),
        }
    if isinstance(value, tuple):
        return {"tuple": [encode(name, part) for part in value]}
    if isinstance(value, list):
        return [encode(name, part) for part in value]
    if isinstance(value, dict):
        return {"mapping": [[encode(name, key), encode(name, part)] for key, part in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "tolist"):  # a NumPy number or array
        return encode(name, value.tolist())
    if hasattr(value, "total_seconds"):
        return f"{round(value.total_seconds() * 10**6)} us"
    raise StateError(name, repr(value), "only numbers, strings, tuples and lists of them can be saved")


def decode(value: object) -> object:  # noqa: PLR0911 - one type a line
    """Return an argument from JSON."""
    if isinstance(value, list):
        return [decode(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "rows" in value:
        return Rows(value["rows"])
    if "every" in value:
        return Every(decode(value["every"]))
    if "condition" in value:
        return Condition(value["condition"], (*value["columns"],), value["bound"], value["index"])
    if "cpu" in value:
        parts = {key: decode(part) for key, part in value["cpu"].items()}
        return Cpu(**{**parts, "utility": dict(parts["utility"]) or None})  # type: ignore[arg-type,call-overload]
    if "policy" in value:
        return Policy(value["policy"], {key: decode(option) for key, option in value["options"].items()})
    if "left" in value:
        return Table(*(dict(decode(value[side])) for side in ("left", "right")))  # type: ignore[call-overload]
    if "mapping" in value:
        return {decode(key): decode(part) for key, part in value["mapping"]}
    return tuple(decode(part) for part in value["tuple"])


def sealed(meta: dict[str, Any], state: dict[str, bytes]) -> dict[str, bytes]:
    """Return the parts of a state with what must be known to read them, and their checksums."""
    checks = {name: zlib.crc32(part) for name, part in state.items()}
    told = json.dumps({**meta, "checks": checks}).encode()
    return {**state, "meta": told, SEAL: _check(told)}


def _check(part: bytes) -> bytes:
    return zlib.crc32(part).to_bytes(4, "big")


@contextmanager
def opened(state: dict[str, bytes], version: int) -> Iterator[dict[str, Any]]:
    """Check the parts of a state, and give what must be known to read them.

    Raises:
        StateError: if it is not one, or not whole, or of another version.
    """
    with whole("state", "something else", "give what state_dict() returned, whole"):
        meta = json.loads(state["meta"])
        if meta["version"] != version:
            raise StateError("state", f"version {meta['version']!r:.40}", f"this Penstock reads version {version}")
        if _check(state["meta"]) != state[SEAL]:
            raise StateError("state", "damaged bytes in 'meta'", "give what state_dict() returned, whole")
        for name, check in meta["checks"].items():
            if zlib.crc32(state[name]) != check:
                raise StateError("state", f"damaged bytes in {name!r}", "give what state_dict() returned, whole")
        yield meta


@contextmanager
def whole(argument: str, got: str, want: str) -> Iterator[None]:
    """Say that a state is none, whatever goes wrong while it is read.

    Raises:
        StateError: naming the argument.
    """
    try:
        yield
    except PenstockError:
        raise
    except BROKEN as error:
        raise StateError(argument, got, want) from error


def to_ipc(table: pa.Table) -> bytes:
    """Return a table as Arrow IPC bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def from_ipc(data: bytes) -> pa.Table:
    """Return the table in Arrow IPC bytes."""
    return pa.ipc.open_stream(data).read_all()


def to_npz(arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    """Return arrays as bytes."""
    sink = io.BytesIO()
    np.savez(sink, **arrays)  # type: ignore[arg-type]
    return sink.getvalue()


def from_npz(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays in bytes."""
    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def to_planes(arrays: dict[str, npt.NDArray[Any]]) -> bytes:
    """Return columns of numbers as fewer bytes: the first bytes of all numbers, then the second ones: LZ4 packs them.

    Cost: about twice the time of ``to_npz``.
    """
    planes = {
        f"{name} {column.dtype.str}": column.view(np.uint8).reshape(column.size, column.itemsize).T.copy()
        for name, column in arrays.items()
    }
    packed: bytes = pa.compress(to_npz(planes), codec="lz4", asbytes=True)
    return packed


def from_planes(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Return what ``to_planes`` was called on."""
    with pa.CompressedInputStream(pa.BufferReader(data), "lz4") as packed:
        planes = from_npz(packed.read())
    arrays = {}
    for label, plane in planes.items():
        name, kind = label.split()
        arrays[name] = np.ascontiguousarray(plane.T).view(kind).reshape(-1)
    return arrays
