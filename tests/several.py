"""Small random streams for joins of several, and their rows as tables."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import penstock as pen
from multiway import Edge, Row, Window

NAMES = "abcde"


@st.composite
def streams(draw: st.DrawFn, *, least: int = 2, most: int = 4, rows: int = 7, columns: int = 1) -> list[list[Row]]:
    """Draw streams with ties, gaps and null keys."""
    key = st.one_of(st.none(), *[st.integers(0, 2)] * 9)
    step = st.tuples(st.sampled_from([0, 0, 1, 1, 2, 5]), st.tuples(*[key] * columns))
    found = []
    for _ in range(draw(st.integers(least, most))):
        now, stream = draw(st.integers(-2, 3)), []
        for gap, keys in draw(st.lists(step, max_size=rows)):
            now += gap
            stream.append(Row(now, keys))
        found.append(stream)
    return found


def tables(drawn: Sequence[Sequence[Row]], text: Sequence[int] = (), columns: int = 1) -> dict[str, pa.Table]:
    """Return streams as tables with columns ts, key0, key1, ... and row; keys as text have codes that are hashes."""
    found = {}
    for name, stream in zip(NAMES, drawn, strict=False):
        table = {"ts": pa.array([row.ts for row in stream], pa.int64())}
        for at in range(columns):
            keys = [row.keys[at] for row in stream]
            kind = pa.string() if at in text else pa.int64()
            table[f"key{at}"] = pa.array([str(k) if at in text and k is not None else k for k in keys], kind)
        table[f"row_{name}"] = pa.array(range(len(stream)), pa.int64())
        found[name] = pa.table(table)
    return found


def spans(windows: Sequence[Window]) -> dict[str, Any]:
    named = zip(NAMES, windows, strict=False)
    return {name: pen.rows(window.span) if window.by_rows else window.span for name, window in named}


def results(table: pa.Table, n: int) -> list[tuple[int, ...]]:
    return sorted(zip(*(table[f"row_{name}"].to_pylist() for name in NAMES[:n]), strict=True))


def common(n: int) -> list[Edge]:
    return [Edge(one, 0, other, 0) for one, other in combinations(range(n), 2)]


def column_edges(graph: Mapping[tuple[str, str], Any]) -> list[Edge]:
    found = []
    for (one, other), columns in graph.items():
        for part in columns if isinstance(columns, list) else [columns]:
            mine, *how, theirs = (part, part) if isinstance(part, str) else part
            found.append(Edge(NAMES.index(one), int(mine[-1]), NAMES.index(other), int(theirs[-1]), *how))
    return found


def random_tables(n: int, rows: int, keys: int, seed: int = 0) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    return {
        name: pa.table(
            {
                "ts": np.sort(rng.integers(0, rows // 2, rows)),
                "key0": rng.integers(0, keys, rows),
                f"row_{name}": np.arange(rows),
            }
        )
        for name in NAMES[:n]
    }
