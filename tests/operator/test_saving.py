"""Saved columns come back as they were, and a column that repeats itself takes little room."""

import contextlib
import copy
import json
import math
import operator
import random
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

import penstock as pen
from penstock.errors import PenstockError, StateError
from penstock.operator import join, saving

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


JUNK: list[Any] = [
    *(None, True, -1, 0, 1, 3, 2**70, 1e300, math.nan, "", "x", "prob", [], [1], [[]], {}, {"cpu": [1]}),
    *(
        {"rows": "x"},
        {"policy": 5, "options": {}},
        {"every": []},
        {"tuple": 3},
        {"mapping": [[{}, 1]]},
        {"left": [], "right": [1]},
    ),
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in JSON, as what holds it and its name there."""
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, name
        yield from places(value[name])


def restructured(state: dict[str, bytes], lots: random.Random) -> dict[str, bytes]:
    """Take values out of what is said about a state, or put others in their place, at any depth."""
    told = json.loads(state["meta"])
    for _ in range(lots.randint(1, 3)):
        holder, name = lots.choice(list(places(told)))
        match lots.randrange(3):
            case 0:
                del holder[name]
            case 1:
                holder[name] = copy.deepcopy(lots.choice(JUNK))
            case _:
                holder[name] = copy.deepcopy(operator.getitem(*lots.choice(list(places(told)))))
    return {**state, "meta": json.dumps(told).encode()}


def resealed(state: dict[str, bytes]) -> dict[str, bytes]:
    """Return a state with the checksum of what it says now."""
    return {**state, saving.SEAL: zlib.crc32(state["meta"]).to_bytes(4, "big")}


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


def gone_on(op: pen.Join | pen.MultiJoin) -> None:
    """Push rows through a join and end it."""
    later = ROWS.set_column(0, "ts", pa.array(range(60, 120)))
    if isinstance(op, pen.Join):
        op.push(left=later, right=later)
    else:
        op.push(dict.fromkeys(("a", "b", "c"), later.select(["ts", "key"])))
    op.finish()
    op.report()
    op.ledger()


@pytest.mark.parametrize(
    "make",
    [
        lambda: of_two(memory=10, policy="prob"),
        lambda: of_two(window=pen.rows(20), per_key=2),
        lambda: of_two(on=pen.overlap("set", at_least=2), cpu=pen.cpu(comparisons_per_second=50)),
        of_three,
    ],
    ids=["prob", "rows", "overlap", "several"],
)
def test_what_a_state_says_of_itself_is_checked_value_by_value(make: Callable[[], pen.Join | pen.MultiJoin]) -> None:
    """Another value is refused by the checksum; with a right checksum it is refused by itself, or the join goes on.

    Settings and arrays are only checked against each other as far as they have the same names.
    """
    op = make()
    whole = op.state_dict()
    lots = random.Random(12)  # noqa: S311 - a test that repeats
    for _ in range(1000):
        other = restructured(whole, lots)
        before, after = json.loads(whole["meta"]), json.loads(other["meta"])
        if before != after:
            with pytest.raises(PenstockError):
                type(op).from_state(other)
        with contextlib.suppress(PenstockError):
            again = type(op).from_state(resealed(other))
            if before["settings"] == after["settings"]:
                gone_on(again)


SAID = b'{"version": %d, "checks": %%s}' % join.VERSION


@pytest.mark.parametrize(
    "told",
    [
        b"[" * 200_000,
        SAID % b"[]",
        SAID % b'{}, "bound": false, "ledger": "keep", "place": [0, 0, 1], "settings": []',
        SAID % b'{}, "bound": false, "ledger": "keep", "place": [0, 0, 1], "settings": {"on": {"cpu": [1]}}',
    ],
    ids=["deep", "checks", "settings", "cpu"],
)
def test_what_says_nothing_of_a_state_is_refused(told: bytes) -> None:
    for state in ({"meta": told}, resealed({"meta": told})):
        with pytest.raises(StateError, match=r"^state: got "):
            pen.Join.from_state(state)
