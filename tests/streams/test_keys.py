"""Keys of every type that can be compared meet by their values: exactly, and inside a budget."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import penstock as pen
from oracles import Arrival, Kind, Pair, bounded, exact
from penstock.streams.keys import Coder
from traces import random_trace, window

SPANS = 12, 9
TRACE = sorted(random_trace(5, 400, 6, nulls=0.1), key=lambda row: (row.ts, row.side))
STAMPS = [datetime(2024, 2, 28, 12 + at, tzinfo=UTC) for at in range(6)]
NAN = float("nan")
FLOATS = [NAN, 0.0, -1.5, float("inf"), 0.25, 2.0]
WORDS = ["a", "b", "", "d", "ee", "ä"]

# of each key of the trace: its value on the left and on the right, and the types there
VALUES: dict[str, tuple[Sequence[Any], Sequence[Any], pa.DataType, pa.DataType]] = {
    "binary": (*[[b"", b"\0", b"\0\0", b"a", b"b" * 40, b"\xff"]] * 2, pa.binary(), pa.large_binary()),
    "fixed binary": (*[[b"aaaa", b"aaab", b"\0aaa", b"baaa", b"cccc", b"\0\0\0\0"]] * 2, pa.binary(4), pa.binary()),
    "timestamp": (STAMPS, STAMPS, pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC")),
    "date": (*[[date(1969, 12, 29) + timedelta(days=at) for at in range(6)]] * 2, pa.date32(), pa.date64()),
    "decimal": (*[[Decimal(at) / 4 for at in range(-3, 3)]] * 2, pa.decimal128(9, 2), pa.decimal128(20, 4)),
    "wide decimal": (*[[Decimal(at) * 10**30 for at in range(-3, 3)]] * 2, pa.decimal128(38), pa.decimal256(50)),
    "float": (FLOATS, [-NAN, -0.0, *FLOATS[2:]], pa.float64(), pa.float64()),
    "narrow float": (FLOATS, [NAN, -0.0, *FLOATS[2:]], pa.float32(), pa.float64()),
    "dictionary": (WORDS, WORDS, pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.int32(), pa.large_string())),
    "dictionary and string": (WORDS, WORDS, pa.dictionary(pa.int8(), pa.string()), pa.string()),
    "integers": (*[[-128, -1, 0, 1, 2, 127]] * 2, pa.int8(), pa.int64()),
    "unsigned": (*[[0, 1, 2, 3, 254, 255]] * 2, pa.uint8(), pa.uint64()),
    "signed and unsigned": (*[[0, 1, 2, 3, 254, 2**62]] * 2, pa.int64(), pa.uint64()),
    "duration": (*[[timedelta(seconds=at) for at in range(6)]] * 2, pa.duration("s"), pa.duration("us")),
}


def sides(trace: list[Arrival], make: Callable[[int, list[Any]], dict[str, pa.Array]]) -> tuple[pa.Table, pa.Table]:
    """Return both sides of a trace, with their key columns as `make` makes them and the numbers of rows."""
    found = []
    for side, name in enumerate(("l", "r")):
        mine = [row for row in trace if row.side == side]
        numbers = pa.array(range(len(mine)), pa.int64())
        keys = make(side, [row.key for row in mine])
        found.append(pa.table({"ts": pa.array([row.ts for row in mine], pa.int64()), **keys, name: numbers}))
    return found[0], found[1]


def typed(name: str) -> tuple[pa.Table, pa.Table]:
    """Return both sides of the trace with keys of a type."""
    *values, left, right = VALUES[name]

    def make(side: int, keys: list[Any]) -> dict[str, pa.Array]:
        found = [None if key is None else values[side][key] for key in keys]
        kind = (left, right)[side]
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        array = pa.array(found, plain, from_pandas=False)
        return {"key": array.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else array}

    return sides(TRACE, make)


def pairs(table: Any) -> set[Pair]:
    found = list(zip(*(map(int, table[name].to_numpy()) for name in "lr"), strict=True))
    assert len(set(found)) == len(found)
    return set(found)


def check(left: Any, right: Any, trace: list[Arrival], on: object = "key") -> None:
    """Join both sides exactly and inside budgets, in time and in rows, and compare with brute force."""
    kinds: tuple[Kind, ...] = ("time", "rows")
    for kind in kinds:
        how: dict[str, Any] = {"on": on, "time": "ts", "window": window(SPANS, kind)}
        assert exact(trace, spans=SPANS, kind=kind) == pairs(pen.join(left, right, **how))
        want = bounded(trace, spans=SPANS, kind=kind, limits=8, policy="oldest").pairs
        assert want == pairs(pen.join(left, right, **how, memory=8, policy="oldest"))
        assert want < exact(trace, spans=SPANS, kind=kind)


@pytest.mark.parametrize("name", VALUES)
def test_keys_of_a_type(name: str) -> None:
    check(*typed(name), TRACE)


def test_truth_values() -> None:
    trace = [row._replace(key=None if row.key is None else int(str(row.key)) % 2) for row in TRACE]
    check(*sides(trace, lambda _, keys: {"key": pa.array([k if k is None else bool(k) for k in keys])}), trace)


def test_several_columns() -> None:
    def make(side: int, keys: list[Any]) -> dict[str, pa.Array]:
        first = [None if key is None else key % 2 for key in keys]
        second = [None if key is None else "abc"[key // 2] for key in keys]
        return {"one": pa.array(first, (pa.int8(), pa.int32())[side]), "two": pa.array(second)}

    check(*sides(TRACE, make), TRACE, ["one", "two"])


def test_a_null_in_one_column_of_several_meets_nothing() -> None:
    def make(_: int, keys: list[Any]) -> dict[str, pa.Array]:
        whole = pa.array([0 if key is None else key for key in keys])
        return {"one": whole, "two": pa.array([None if key is None else "x" for key in keys])}

    check(*sides(TRACE, make), TRACE, ["one", "two"])


@pytest.mark.parametrize("name", ["binary", "decimal", "dictionary"])
def test_keys_whose_codes_collide_are_told_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code = Coder.code

    def colliding(self: Coder, columns: Any) -> Any:
        codes, valid = code(self, columns)
        return codes % 2, valid

    monkeypatch.setattr(Coder, "code", colliding)
    left, right = typed(name)
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": SPANS}
    want = exact(TRACE, spans=SPANS, kind="time")
    done = pen.run(left, right, **how)
    assert want == pairs(done.table)
    assert len(want) == done.report.pairs
    shed = bounded(TRACE, spans=SPANS, kind="time", limits=8, policy="oldest").pairs
    done = pen.run(left, right, **how, memory=8, policy="oldest")
    assert shed == pairs(done.table)
    assert len(shed) == done.report.pairs


def test_pandas_in_and_out() -> None:
    left, right = (table.to_pandas() for table in typed("dictionary and string"))
    assert isinstance(left["key"].dtype, pd.CategoricalDtype)
    got = pen.join(left, right, on="key", time="ts", window=SPANS)
    assert isinstance(got, pd.DataFrame)
    assert list(got.columns) == ["key", "ts_left", "l", "ts_right", "r"]
    check(left, right, TRACE)


@pytest.mark.parametrize("memory", [3, 8, 15])
@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (pen.policy("oldest"), "time"),
        (pen.policy("oldest"), "rows"),
        (pen.policy("prob"), "time"),
        (pen.policy("prob", statistics="history"), "time"),
        (pen.policy("prob", statistics="history"), "rows"),
    ],
    ids=str,
)
def test_several_streams_that_are_two_join_as_two_do(policy: pen.Policy, kind: Kind, memory: int) -> None:
    """As many rows come on both sides: two sides are compared by shares of keys, several streams by counts.

    In rows, half-lives are of other rows.
    """
    rng = np.random.default_rng(9)
    given = sides(
        [Arrival(side, ts, int(6 * rng.random() ** 2)) for ts in range(200) for side in (0, 1) for _ in range(2)],
        lambda _, keys: {"key": pa.array(keys, pa.int64())},
    )
    how: dict[str, Any] = {"on": "key", "time": "ts", "memory": memory, "policy": policy}
    spans = window(SPANS, kind)
    two = pairs(pen.join(*given, window=spans, **how))
    assert two == pairs(
        pen.multijoin(dict(zip("ab", given, strict=True)), windows=dict(zip("ab", spans, strict=True)), **how)
    )
    assert two < pairs(pen.join(*given, on="key", time="ts", window=spans))
