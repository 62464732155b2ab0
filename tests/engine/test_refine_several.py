"""A bounded join of several streams and what is refined from its ledger are the exact join, by brute force."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from multiway import Row, Window, all_results
from penstock.errors import InputError, WindowError
from several import column_edges, common, random_tables, results, spans, streams, tables

GRAPH = {("a", "b"): "key0", ("b", "c"): [("key1", "<=", "key1")]}


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    drawn=streams(rows=8),
    policy=st.sampled_from(["prob", "oldest", "rand"]),
    evaluation=st.sampled_from(["eager", pen.every(3)]),
    memory=st.integers(1, 12),
    text=st.sampled_from([[], [0]]),
)
def test_one_key(
    data: st.DataObject, drawn: list[list[Row]], policy: str, evaluation: Any, memory: int, text: list[int]
) -> None:
    n = len(drawn)
    windows = data.draw(st.lists(st.builds(Window, st.integers(1, 9), st.just(value=False)), min_size=n, max_size=n))
    rows = tables(drawn, text=text)
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": spans(windows), "evaluation": evaluation}
    result = pen.run(rows, **how, memory=memory, policy=policy)
    rest = pen.refine(archive=rows, ledger=result.ledger, **how)
    assert rest.schema == result.table.schema
    assert sorted(all_results(drawn, windows, common(n))) == sorted(results(result.table, n) + results(rest, n))


@settings(max_examples=40, deadline=None)
@given(drawn=streams(least=3, most=3, rows=9, columns=2), memory=st.integers(1, 9), spans_=st.integers(2, 9))
def test_along_a_graph(drawn: list[list[Row]], memory: int, spans_: int) -> None:
    rows = tables(drawn, columns=2)
    how: dict[str, Any] = {"on": GRAPH, "time": "ts", "windows": spans_}
    result = pen.run(rows, **how, memory=memory, policy="oldest")
    rest = pen.refine(archive=rows, ledger=result.ledger, **how)
    want = all_results(drawn, [Window(spans_)] * 3, column_edges(GRAPH))
    assert sorted(want) == sorted(results(result.table, 3) + results(rest, 3))


@pytest.mark.parametrize("seed", range(4))
def test_late_rows(seed: int) -> None:
    lots = random.Random(seed)  # noqa: S311 - a test that repeats
    times = sorted(lots.randrange(60) for _ in range(40))
    drawn = [[Row(max(0, ts - lots.choice([0, 0, 0, 2, 9])), (lots.randrange(3),)) for ts in times] for _ in range(3)]
    rows = tables(drawn)
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": {"a": 12, "b": 8, "c": 15}}
    op = pen.MultiJoin(list(rows), **how, lateness=3, memory=14, policy="prob")
    parts = [op.push({name: table[at : at + 4] for name, table in rows.items()}) for at in range(0, 40, 4)]
    found = pa.concat_tables([*(part for part in parts if part.num_columns), op.finish()])
    shed = op.report().shed
    assert all(sum(shed[reason].values()) > 0 for reason in ("budget", "late"))
    rest = pen.refine(archive=rows, ledger=op.ledger(), **how, lateness=3, memory=14)
    want = all_results(drawn, [Window(12), Window(8), Window(15)], common(3))
    assert sorted(want) == sorted(results(found, 3) + results(rest, 3))
    assert rest.num_rows > 0


def test_files_pandas_and_importance(tmp_path: Path) -> None:
    rows = random_tables(3, 60, 5)
    rows = {name: table.append_column("w", pa.array(range(table.num_rows))) for name, table in rows.items()}
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": 10, "importance": "w", "combine": "sum"}
    result = pen.run(rows, **how, memory=15)
    rest = pen.refine(archive=rows, ledger=result.ledger, **how, memory=15)
    order = [(f"row_{name}", "ascending") for name in rows]
    assert rest.num_rows > 0
    assert pa.concat_tables([result.table, rest]).sort_by(order).equals(pen.multijoin(rows, **how).sort_by(order))
    for name, table in {**rows, "shed": result.ledger}.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    paths = {name: tmp_path / f"{name}.parquet" for name in rows}
    assert rest.equals(pen.refine(archive=paths, ledger=tmp_path / "shed.parquet", **how))
    frames = {name: table.to_pandas() for name, table in rows.items()}
    assert rest.to_pandas().equals(pen.refine(archive=frames, ledger=result.ledger, **how))


def test_what_cannot_be_refined() -> None:
    rows = random_tables(3, 40, 4)
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": 10}
    ledger = pen.run(rows, **how, memory=9).ledger
    with pytest.raises(WindowError, match="only time windows"):
        pen.refine(archive=rows, ledger=ledger, **{**how, "windows": pen.rows(4)})
    with pytest.raises(InputError, match=r"give the ledger of pen\.run or pen\.MultiJoin"):
        pen.refine(archive=rows, ledger=rows["a"], **how)
    with pytest.raises(InputError, match="rows that are not those of"):
        pen.refine(archive={**rows, "a": rows["a"][5:], "b": rows["b"][5:]}, ledger=ledger, **how)
    with pytest.raises(InputError, match=r"^into: .*folders that pen\.write wrote"):
        pen.refine(archive=rows, ledger=ledger, into="somewhere", **how)
    with pytest.raises(InputError, match=r"^archive: .*by name"):
        pen.refine(archive=(rows["a"], rows["b"]), ledger=ledger, **how)
    shards = ledger.set_column(1, "shard", pa.array([1] * ledger.num_rows, pa.int32()))
    with pytest.raises(InputError, match="several shards"):
        pen.refine(archive=rows, ledger=shards, **how)
