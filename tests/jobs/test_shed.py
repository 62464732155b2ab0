"""The keys that were shed most are those of the ledger, counted."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operator import several
from penstock.operator.join import settings_of

shed = pytest.importorskip("penstock.jobs.shed", reason="jobs run on Spark", exc_type=ImportError)
REASONS = st.sampled_from(["budget", "late", "unprobed"])
ROW = st.tuples(st.sampled_from(["left", "right"]), st.integers(0, 3), st.sampled_from(["a", "b, c", None]), REASONS)
Row = tuple[str, int, str | None, str]


def ledger(folder: Path, rows: list[Row], batch: int) -> Path:
    """Write what a ledger beside an archive has of rows, each as (side, k, name, reason), in two files."""
    sides = {
        "left": pa.struct([("k", pa.int64()), ("name", pa.string()), ("list", pa.list_(pa.int64()))]),
        "right": pa.struct([("k2", pa.int64()), ("name2", pa.string()), ("list2", pa.list_(pa.int64()))]),
    }
    columns = {
        side: [
            dict(zip((f.name for f in kind), (*row[1:3], [row[1], 5]), strict=True)) if row[0] == side else None
            for row in rows
        ]
        for side, kind in sides.items()
    }
    told = {name: pa.array([row[at] for row in rows], pa.string()) for name, at in (("side", 0), ("reason", 3))}
    table = pa.table({**told, **{name: pa.array(each, sides[name]) for name, each in columns.items()}})
    home = folder / f"batch={batch}"
    for number, part in enumerate((table[: len(rows) // 2], table[len(rows) // 2 :])):
        (home / f"open={number}").mkdir(parents=True)
        pq.write_table(part, home / f"open={number}" / "0.parquet")
    return folder


def settings(on: Any) -> Any:
    return settings_of({"on": on, "time": "ts", "window": 10})


@given(st.lists(ROW, max_size=30), st.integers(1, 12))
def test_keys_are_counted_over_both_sides(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], most: int
) -> None:
    folder = ledger(tmp_path_factory.mktemp("ledger"), rows, 7)
    cases: list[tuple[Any, Any]] = [
        (("k", "k2"), lambda row: str(row[1])),
        ([("name", "name2"), ("k", "k2")], lambda row: f"{row[2]}, {row[1]}"),
        (("list", "list2"), lambda row: f"[{row[1]}, 5]"),
    ]
    for on, word in cases:
        want = Counter(word(row) for row in rows if row[3] != "unprobed")
        got = shed.keys_shed(folder, 7, settings(on), most)
        assert len(got) == min(most, len(want))
        assert all(want[key] == count for key, count in got)
        assert [count for _, count in got] == sorted(want.values(), reverse=True)[:most]


STREAMS = ("a", "b", "c")
OF_STREAM = st.tuples(st.sampled_from(STREAMS), st.integers(0, 3), st.sampled_from(["x", "y, z", None]))


@given(st.lists(OF_STREAM, max_size=30))
def test_keys_of_several_streams(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int, str | None]]
) -> None:
    """A common key is counted over all streams; along a graph each stream has its own."""
    kind = pa.struct([(name, pa.struct([("k", pa.int64()), ("name", pa.string())])) for name in STREAMS])
    values = [{name: {"k": k, "name": text} if name == mine else None for name in STREAMS} for mine, k, text in rows]
    told = {"stream": [row[0] for row in rows], "reason": ["budget"] * len(rows)}
    columns = {name: pa.array(column, pa.string()) for name, column in told.items()}
    folder = tmp_path_factory.mktemp("ledger")
    (folder / "batch=3").mkdir()
    pq.write_table(pa.table({**columns, "values": pa.array(values, kind)}), folder / "batch=3" / "0.parquet")
    graph = {("a", "b"): [("k", "=", "k"), ("name", "=", "name")], ("b", "c"): [("k", "<=", "k")]}
    cases: list[tuple[Any, Any]] = [
        ("k", lambda row: f"{row[1]}"),
        (["name", "k"], lambda row: f"{row[2]}, {row[1]}"),
        (graph, lambda row: f"c: {row[1]}" if row[0] == "c" else f"{row[0]}: {row[1]}, {row[2]}"),
    ]
    for on, word in cases:
        got = shed.keys_shed(folder, 3, several.settings_of({"on": on, "time": "ts", "windows": 10}), 99)
        assert Counter(map(word, rows)) == dict(got)
        assert len(dict(got)) == len(got)


def test_a_micro_batch_that_shed_nothing(tmp_path: Path) -> None:
    (tmp_path / "batch=0").mkdir()
    for batch in (0, 1):
        assert shed.keys_shed(tmp_path, batch, settings("k"), 10) == []
