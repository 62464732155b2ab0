"""Save a join as bytes and bring it back."""

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import StateError
from penstock.policies.registry import Policy
from penstock.policies.statistics import Table
from penstock.streams.payload import Payload
from penstock.streams.times import Rows

if TYPE_CHECKING:
    from penstock.engine.operator import Join

VERSION = 1


def state_of(join: Any) -> dict[str, bytes]:
    """Return the state of a join as bytes by name."""
    meta: dict[str, Any] = {"version": VERSION, "ledger": join._ledger_mode, "bound": join._bound is not None}
    settings = {name: value for name, value in vars(join._settings).items() if name != "chosen"}
    meta["settings"] = {name: encode(name, value) for name, value in settings.items()}
    state: dict[str, bytes] = {}
    for side, name in enumerate(("left", "right")):
        held = join._held[side]
        if held:
            state[f"held_{name}"] = to_ipc(pa.concat_tables(held))
        if join._known[side] is not None:
            state[f"schema_{name}"] = to_ipc(join._known[side].empty_table())
    if join._bound is not None:
        meta |= {"importance": join._importance, "collided": join._collided, "newest": join._intake.newest}
        state["core"] = to_npz(join._core.arrays())
        waiting = {f"waiting.{name}": column for name, column in join._intake.waiting._asdict().items()}
        state["intake"] = to_npz({"next": join._intake.next, "counted": join._intake.counted, **waiting})
        for side, name in enumerate(("left", "right")):
            queue = join._intake.waiting
            numbers = np.union1d(join._core.live_rows(side), queue.row[queue.side == side])
            state[f"rows_{name}"] = to_ipc(join._payload[side].live_table(numbers))
            state[f"numbers_{name}"] = to_npz({"numbers": numbers, "next": np.array(join._payload[side].next)})
        if join._sheds:
            state["ledger"] = to_ipc(pa.concat_tables(join._sheds))
    state["meta"] = json.dumps(meta).encode()
    return state


def restore(kind: type["Join"], state: dict[str, bytes]) -> Any:
    """Return a join in the saved state.

    Raises:
        StateError: if the state is not one, or of a version that this one does not read.
    """
    try:
        meta = json.loads(state["meta"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateError("state", "something else", "give what state_dict() returned") from error
    if meta.get("version") != VERSION:
        raise StateError("state", f"version {meta.get('version')}", f"this Penstock reads version {VERSION}")
    arguments = {name: decode(value) for name, value in meta["settings"].items()}
    schemas = [from_ipc(state[f"schema_{name}"]).schema if f"schema_{name}" in state else None for name in ("left", "right")]
    both = (schemas[0], schemas[1]) if meta["bound"] else None
    join: Any = kind(schemas=both, ledger=meta["ledger"], **arguments)
    join._known = schemas
    for side, name in enumerate(("left", "right")):
        if f"held_{name}" in state:
            join._held[side] = [from_ipc(state[f"held_{name}"])]
    if meta["bound"]:
        join._importance, join._collided = meta["importance"], meta["collided"]
        join._core.restore(from_npz(state["core"]))
        intake = from_npz(state["intake"])
        join._intake.newest = meta["newest"]
        join._intake.next, join._intake.counted = intake["next"], intake["counted"]
        join._intake.waiting = type(join._intake.waiting)(
            *(intake[f"waiting.{name}"] for name in join._intake.waiting._fields)
        )
        payload = []
        for name in ("left", "right"):
            numbers = from_npz(state[f"numbers_{name}"])
            payload.append(Payload.restored(from_ipc(state[f"rows_{name}"]), numbers["numbers"], int(numbers["next"])))
        join._payload = tuple(payload)
        join._sheds = [from_ipc(state["ledger"])] if "ledger" in state else []
    return join


def encode(name: str, value: object) -> object:
    """Return an argument as JSON."""
    if isinstance(value, Rows):
        return {"rows": value.count}
    if isinstance(value, Policy):
        return {"policy": value.name, "options": {key: encode(key, option) for key, option in value.options.items()}}
    if isinstance(value, Table):
        return {"left": encode(name, list(value.left.items())), "right": encode(name, list(value.right.items()))}
    if isinstance(value, tuple):
        return {"tuple": [encode(name, part) for part in value]}
    if isinstance(value, list):
        return [encode(name, part) for part in value]
    if isinstance(value, dict):
        return {"mapping": {key: encode(name, part) for key, part in value.items()}}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "item"):  # a NumPy number
        return encode(name, value.item())
    if hasattr(value, "total_seconds"):
        return f"{round(value.total_seconds() * 10**6)} us"
    raise StateError(name, repr(value), "only numbers, strings, tuples and lists of them can be saved")


def decode(value: object) -> object:
    """Return an argument from JSON."""
    if isinstance(value, list):
        return [decode(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "rows" in value:
        return Rows(value["rows"])
    if "policy" in value:
        return Policy(value["policy"], {key: decode(option) for key, option in value["options"].items()})
    if "left" in value:
        return Table(*(dict(decode(value[side])) for side in ("left", "right")))  # type: ignore[call-overload]
    if "mapping" in value:
        return {key: decode(part) for key, part in value["mapping"].items()}
    return tuple(decode(part) for part in value["tuple"])


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
