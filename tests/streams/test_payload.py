"""Rows are found again by their numbers, whatever their columns hold and however they came."""

import pickle

import numpy as np
import pyarrow as pa
import pytest

from penstock.streams.payload import Payload

KINDS = [
    pa.int8(),
    pa.uint16(),
    pa.float32(),
    pa.int64(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.bool_(),
    pa.string(),
    pa.decimal128(9, 2),
    pa.dictionary(pa.int8(), pa.string()),
]


def column(kind: pa.DataType, first: int, rows: int, *, nulls: bool) -> pa.Array:
    """Return values that differ from row to row, the first ones null if asked."""
    numbers = [None if nulls and at % 5 == 0 else at % 100 for at in range(first, first + rows)]
    if pa.types.is_dictionary(kind):
        return (
            pa.array([None if number is None else str(number) for number in numbers]).dictionary_encode().cast(kind)
        )
    if pa.types.is_boolean(kind):
        return pa.array([None if number is None else number % 2 == 0 for number in numbers])
    if pa.types.is_temporal(kind):
        return pa.array(numbers, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)
    values = pa.array(numbers, pa.int64())
    return values.cast(pa.decimal128(21, 2)).cast(kind) if pa.types.is_decimal(kind) else values.cast(kind)


@pytest.mark.parametrize("nulls", [False, True], ids=["full", "nulls"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_rows_by_number(kind: pa.DataType, *, nulls: bool) -> None:
    whole = pa.table({"a": column(kind, 0, 90, nulls=nulls), "b": pa.array(range(90), pa.int64())})
    payload = Payload(whole.schema)
    for first, end in ((0, 30), (30, 31), (31, 75)):
        payload.append(whole.slice(first, end - first))  # slices: values do not begin where their buffers do
    payload.append(pa.concat_tables([whole.slice(75, 5), whole.slice(80)]))  # a column of two chunks
    numbers = np.array([74, 3, 3, 30, 89, 0, 31, 80])
    assert whole.take(pa.array(numbers)).to_pylist() == payload.take(numbers, ["a", "b"]).to_pylist()
    for live in (np.arange(20, 90), np.array([20, 21, 40, 41, 77])):  # a tail, then rows here and there
        payload.trim(live)
        got = payload.take(live[::-1], ["b", "a"])
        assert whole.take(pa.array(live[::-1])).select(["b", "a"]).to_pylist() == got.to_pylist()
        assert whole.schema.field("a").type == got.schema.field("a").type


def test_a_copy_has_its_own_values() -> None:
    values = np.arange(100)
    payload = Payload(pa.schema([("x", pa.int64())]))
    for begin in (0, 60):
        payload.append(pa.table({"x": pa.array(values)[begin : begin + 40]}))
    copy = pickle.loads(pickle.dumps(payload))  # noqa: S301 - our own
    values[:] = -1  # the rows of the first one are in this very memory
    numbers = np.array([79, 3, 40])
    assert payload.take(numbers, ["x"])["x"].to_pylist() == [-1, -1, -1]
    assert copy.take(numbers, ["x"])["x"].to_pylist() == [99, 3, 60]
    copy.append(pa.table({"x": [7]}))
    assert copy.take(np.array([80]), ["x"])["x"].to_pylist() == [7]
