"""Views of strings and bytes and runs of equal values are joined as plain columns are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pytest

import penstock as pen
from oracles import Arrival, exact
from penstock.engine.replay import replay
from penstock.errors import SchemaError
from penstock.operator.settings import Settings
from penstock.streams.encodings import decoded, decoded_schema
from traces import random_trace

HOW: dict[str, Any] = {"on": "key", "time": "ts", "window": 12}
TRACE = sorted(random_trace(3, 300, 6), key=lambda row: row.ts)
WANT = exact(TRACE, spans=(12, 12), kind="time")


def runs(values: pa.Array) -> pa.Array:
    """Return an array with a run for each value or two."""
    kept = [at for at in range(len(values)) if at + 1 == len(values) or values[at] != values[at + 1]]
    ends = pa.array([at + 1 for at in kept], pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, values.take(pa.array(kept, pa.int64())))


def text(kind: pa.DataType) -> Callable[[list[str | None]], pa.Array]:
    return lambda values: pa.array(values, kind)


WAYS: dict[str, tuple[Callable[[list[str | None]], pa.Array], pa.DataType]] = {
    "string_view": (text(pa.string_view()), pa.large_string()),
    "binary_view": (text(pa.binary_view()), pa.large_binary()),
    "runs of strings": (lambda values: runs(pa.array(values, pa.string())), pa.string()),
    "runs of numbers": (lambda values: runs(pa.array([v and int(v[3:]) for v in values], pa.int64())), pa.int64()),
    "runs of views": (
        lambda values: pa.RunEndEncodedArray.from_arrays(
            pa.array(range(1, len(values) + 1), pa.int64()), pa.array(values, pa.string_view())
        ),
        pa.large_string(),
    ),
    "dictionary of views": (
        lambda values: pa.array(values, pa.string_view()).dictionary_encode(),
        pa.dictionary(pa.int32(), pa.large_string()),
    ),
}


def sides(make: Callable[[list[str | None]], pa.Array], trace: list[Arrival] = TRACE) -> tuple[pa.Table, pa.Table]:
    """Return both sides of a trace; keys, and beside them the same values, are made in a way."""
    found = []
    for side, name in enumerate(("l", "r")):
        mine = [row for row in trace if row.side == side]
        keys = [None if row.key is None else f"key{row.key}" for row in mine]
        columns = {
            "ts": pa.array([row.ts for row in mine], pa.int64()),
            "key": make(keys),
            f"{name}_same": make(keys),
        }
        found.append(pa.table({**columns, name: pa.array(range(len(mine)), pa.int64())}))
    return found[0], found[1]


def pairs(table: pa.Table) -> set[tuple[int, int]]:
    found = list(zip(table["l"].to_pylist(), table["r"].to_pylist(), strict=True))
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize("way", WAYS)
def test_they_join_and_the_result_is_plain(way: str) -> None:
    make, kind = WAYS[way]
    left, right = sides(make)
    got = pen.join(left, right, **HOW)
    assert pairs(got) == WANT
    assert [got.schema.field(name).type for name in ("key", "l_same", "r_same")] == [kind] * 3
    for column, of, side in (("l_same", "l", left), ("r_same", "r", right)):
        values = side[column].to_pylist()
        assert got[column].to_pylist() == [values[row] for row in got[of].to_pylist()]
    assert pen.join(left[:0], right[:0], **HOW).schema == got.schema


@pytest.mark.parametrize("way", WAYS)
def test_a_budget_sheds_what_it_sheds_of_plain_rows(way: str) -> None:
    make, _ = WAYS[way]
    left, right = sides(make)
    how = {**HOW, "memory": 20, "policy": "oldest"}
    plain = pen.run(decoded(left, "left"), decoded(right, "right"), **how)
    got = pen.run(left, right, **how)
    assert plain.table == got.table
    assert plain.ledger == got.ledger
    assert got.ledger.num_rows > 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("known", [True, False])
def test_pushes_have_one_schema(way: str, *, known: bool) -> None:
    left, right = sides(WAYS[way][0])
    op = pen.Join(schemas=(left.schema, right.schema) if known else None, **HOW)
    plain = pen.Join(**HOW)
    op.push(left=left[:0], right=right[:0])
    plain.push(left=decoded(left[:0], "left"), right=decoded(right[:0], "right"))
    found = []
    for at in range(0, len(left), 7):
        part = {"left": left[at : at + 7], "right": right[at : at + 7]}
        found.append(op.push(**part))
        assert found[-1] == plain.push(**{name: decoded(rows, name) for name, rows in part.items()})
    found += [op.advance(10**6), pen.Join.from_state(op.state_dict()).finish()]
    assert {table.num_rows > 0 for table in found} == {True, False}
    assert all(table.schema == op.bound.schema for table in found)
    assert decoded_schema(left.schema) == op.bound.schemas[0]


@pytest.mark.parametrize("way", WAYS)
def test_several_streams(way: str) -> None:
    left, right = sides(WAYS[way][0])
    got = pen.multijoin({"a": left, "b": right}, on="key", time="ts", windows=12)
    assert pairs(got) == WANT
    op = pen.MultiJoin({"a": left.schema, "b": right.schema}, on="key", time="ts", windows=12)
    assert op.push(a=left[:0]).schema == got.schema
    assert pairs(pa.concat_tables([op.push(a=left, b=right), op.finish()])) == WANT


def test_times_in_runs() -> None:
    left, right = (
        table.set_column(0, "ts", runs(table["ts"].combine_chunks())) for table in sides(text(pa.string()))
    )
    got = pen.join(left, right, **HOW)
    assert pairs(got) == WANT
    assert got.schema.field("ts_left").type == pa.int64()


def test_a_view_meets_a_string() -> None:
    left, right = sides(text(pa.string_view()))[0], sides(text(pa.string()))[1]
    got = pen.join(left, right, **HOW)
    assert pairs(got) == WANT
    assert got.schema.field("key").type == pa.large_string()


@pytest.mark.parametrize("way", ["string_view", "binary_view", "dictionary of views"])
def test_files_are_replayed(tmp_path: Path, way: str) -> None:
    paths = tmp_path / "left.arrow", tmp_path / "right.arrow"
    for path, side in zip(paths, sides(WAYS[way][0]), strict=True):
        with pa.ipc.new_file(path, side.schema) as file:
            file.write_table(side)
    out = tmp_path / "out.parquet"
    assert replay(*paths, Settings(**HOW), out=out).rows == len(WANT)
    assert pairs(pa.parquet.read_table(out)) == WANT


@pytest.mark.parametrize("begin", range(8))
@pytest.mark.parametrize("size", range(4))
def test_a_part_of_runs_is_decoded(begin: int, size: int) -> None:
    values = pa.array(["x", "x", None, "z", "z", "z", "z"])
    part = runs(values).slice(begin, size)
    assert decoded(pa.table({"a": part}), "left")["a"].to_pylist() == values.slice(begin, size).to_pylist()


def test_inside_other_columns() -> None:
    kind = pa.struct([("a", pa.string_view()), ("b", pa.list_(pa.binary_view()))])
    left = pa.table({"ts": [1, 2], "key": [1, 2], "more": pa.array([{"a": "x", "b": [b"y"]}, None], kind)})
    got = pen.join(left, left.select(["ts", "key"]), **HOW)
    assert got["more"].to_pylist() == [{"a": "x", "b": [b"y"]}, None]
    deep = left.set_column(2, "more", pa.StructArray.from_arrays([runs(pa.array(["x", "x"]))], ["a"]))
    with pytest.raises(
        SchemaError, match=r"left: got column more of struct.*; runs inside it must be decoded before"
    ):
        pen.join(deep, left, **HOW)


def test_truncated_tables() -> None:
    left, right = sides(text(pa.string_view()))
    kept = pen.truncate(left, right, on="key", keep=50)
    assert sum(table.num_rows for table in kept.relations) == 50
