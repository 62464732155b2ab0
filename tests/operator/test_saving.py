"""Saved columns come back as they were, and a column that repeats itself takes little room."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import penstock as pen
from penstock.errors import PenstockError
from penstock.operator import saving

KINDS = st.sampled_from([np.int64, np.int32, np.uint8, np.float32, np.float64, np.uint64])
COLUMNS = KINDS.flatmap(lambda kind: nps.arrays(kind, st.integers(0, 40)))


@given(st.dictionaries(st.sampled_from(["code.0", "pos.1", "owed"]), COLUMNS))
def test_planes_come_back(arrays: dict[str, npt.NDArray[Any]]) -> None:
    back = saving.from_planes(saving.to_planes(arrays))
    assert back.keys() == arrays.keys()
    for name, column in arrays.items():
        assert back[name].dtype == column.dtype
        assert back[name].tobytes() == column.tobytes()  # NaN too
        back[name][:] = 0  # they can be written to


def test_planes_take_less_room_than_columns() -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "pos": np.arange(10**4) + 10**15,
        "weight": np.repeat(np.array([1.3, 1.7], np.float32), 5000),
    }
    assert len(saving.to_planes(arrays)) < len(saving.to_npz(arrays)) / 4


def test_damaged_planes_are_refused() -> None:
    data = saving.to_planes({"pos": np.arange(1000)})
    with pytest.raises((ValueError, OSError, KeyError)):
        saving.from_planes(data[: len(data) // 2])


def mutated(state: dict[str, bytes], lots: random.Random) -> dict[str, bytes]:
    """Change, cut, double or remove some bytes of one part, or the part."""
    name = lots.choice(sorted(state))
    part = bytearray(state[name])
    at = lots.randrange(len(part))
    match lots.randrange(5):
        case 0:
            part[at] ^= 1 << lots.randrange(8)
        case 1:
            del part[at:]
        case 2:
            part[at:at] = lots.randbytes(lots.randrange(1, 9))
        case 3:
            part[at : at + 8] = lots.choice([b"null", b"-1", b"{}", b"[]", b"1e999", b'""'])
        case _:
            return {each: state[each] for each in state if each != name}
    return {**state, name: bytes(part)}


ROWS = pa.table({"ts": range(60), "key": [at % 7 for at in range(60)], "set": [[at % 5, at % 7] for at in range(60)]})


def of_two(**how: Any) -> pen.Join:
    op = pen.Join(**{"on": "key", "time": "ts", "window": 30, "schemas": (ROWS.schema, ROWS.schema), **how})
    op.push(left=ROWS, right=ROWS)
    return op


def of_three() -> pen.MultiJoin:
    streams = dict.fromkeys(("a", "b", "c"), ROWS.select(["ts", "key"]))
    schemas = {name: rows.schema for name, rows in streams.items()}
    op = pen.MultiJoin(schemas, on="key", time="ts", windows=20, memory=12)
    op.push(streams)
    return op


@pytest.mark.parametrize(
    ("make", "times"),
    [
        (lambda: of_two(memory=10, policy="oldest"), 1000),
        (lambda: of_two(memory=10, policy="prob"), 300),
        (lambda: of_two(on=pen.overlap("set", at_least=2), memory=10), 300),
        (of_three, 300),
    ],
    ids=["oldest", "prob", "overlap", "several"],
)
def test_mutated_states_end_in_typed_errors_only(make: Callable[[], pen.Join | pen.MultiJoin], times: int) -> None:
    op = make()
    whole = op.state_dict()
    assert type(op).from_state(whole).report() == op.report()
    lots = random.Random(11)  # noqa: S311 - a test that repeats
    refused = 0
    for _ in range(times):
        try:
            type(op).from_state(mutated(whole, lots))
        except PenstockError:
            refused += 1
    assert refused > 0.9 * times  # the others changed nothing that counts
