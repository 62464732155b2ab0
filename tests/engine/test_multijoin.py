"""The join of several streams against brute force: any order, index, window, evaluation and graph."""

import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from multiway import HOW, Row, Window, all_results
from penstock.core import chain
from penstock.core.rings import BY_ROOM
from penstock.engine.multijoin import run
from penstock.errors import (
    BudgetError,
    ColumnError,
    InputError,
    KeyTypeError,
    OrderError,
    PolicyError,
    TimeError,
    WindowError,
)
from penstock.operator.ordering import WORTH, Ordered
from penstock.operator.several import Bound, Settings
from penstock.report.papers.several import batches
from penstock.streams.keys import Coder
from several import NAMES, column_edges, common, random_tables, results, spans, streams, tables

LAZY = [pen.every(1), pen.every(3), pen.every(50)]
WAYS = [  # evaluation, algorithm
    ("eager", "auto"),
    ("eager", "naive"),
    ("eager", "general"),
    *((every, algorithm) for every in LAZY for algorithm in ("auto", "lazy", "naive", "general")),
]
INDEXES = ["auto", "none", 1, 3]


def expirations(evaluation: Any) -> list[Any]:
    """Return how late old rows may leave: with the evaluation, or at longer intervals, multiples of it or not."""
    if evaluation == "eager":
        return ["auto", "eager", pen.every(4)]
    return ["auto", *(pen.every(evaluation.interval + more) for more in (0, 1, evaluation.interval, 40))]


WINDOW = st.builds(Window, st.integers(1, 8), st.booleans())


@settings(max_examples=150, deadline=None)
@given(data=st.data(), drawn=streams(), way=st.sampled_from(WAYS), index=st.sampled_from(INDEXES))
def test_a_common_attribute(data: st.DataObject, drawn: list[list[Row]], way: Any, index: object) -> None:
    n = len(drawn)
    windows = data.draw(st.lists(WINDOW, min_size=n, max_size=n))
    evaluation, algorithm = way
    want = all_results(drawn, windows, common(n))
    got = pen.multijoin(
        tables(drawn), on="key0", time="ts", windows=spans(windows), index=index,
        evaluation=evaluation, algorithm=algorithm, expiration=data.draw(st.sampled_from(expirations(evaluation))),
    )  # fmt: skip
    assert want == results(got, n)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), drawn=streams(least=3, rows=6), way=st.sampled_from(WAYS))
def test_any_order(data: st.DataObject, drawn: list[list[Row]], way: Any) -> None:
    n = len(drawn)
    windows = data.draw(st.lists(WINDOW, min_size=n, max_size=n))
    evaluation, algorithm = way
    order: Any = data.draw(st.permutations(NAMES[:n]))
    if algorithm == "general":
        order = {name: data.draw(st.permutations(NAMES[:n])) for name in NAMES[:n]}
    elif algorithm == "auto":
        algorithm = "eager" if evaluation == "eager" else "lazy"
    index = {name: data.draw(st.sampled_from(INDEXES)) for name in NAMES[:n]}  # hybrid
    got = pen.multijoin(
        tables(drawn, text=[0]), on=["key0"], time="ts", windows=spans(windows),
        order=order, evaluation=evaluation, algorithm=algorithm, index=index,
    )  # fmt: skip
    assert all_results(drawn, windows, common(n)) == results(got, n)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), drawn=streams(least=5, most=5, rows=4))
def test_five_streams(data: st.DataObject, drawn: list[list[Row]]) -> None:
    windows = data.draw(st.lists(WINDOW, min_size=5, max_size=5))
    want = all_results(drawn, windows, common(5))
    for evaluation in ("eager", pen.every(4)):
        got = pen.multijoin(tables(drawn), on="key0", time="ts", windows=spans(windows), evaluation=evaluation)
        assert want == results(got, 5)


GRAPHS: dict[str, dict[tuple[str, str], Any]] = {
    "3 in a chain": {("a", "b"): "key0", ("b", "c"): ("key1", "key0")},
    "3 in a ring": {("a", "b"): "key0", ("b", "c"): "key1", ("c", "a"): ("key0", "key1")},
    "3 by size": {("a", "b"): ("key0", "<", "key0"), ("c", "b"): ["key1", ("key0", "!=", "key1")]},
    "4 in a chain": {("a", "b"): "key0", ("b", "c"): ("key1", "key0"), ("c", "d"): "key1"},
    "4 in a star": {("a", "b"): "key0", ("a", "c"): "key1", ("d", "a"): [("key0", "key1")]},
    "4 in a ring": {("a", "b"): "key0", ("b", "c"): "key1", ("c", "d"): "key0", ("d", "a"): "key1"},
    "4 by size": {
        ("a", "b"): ("key0", "<", "key0"),
        ("c", "b"): ("key1", ">=", "key0"),
        ("d", "c"): ("key0", "!=", "key1"),
    },
    "4 by key and size": {
        ("a", "b"): ["key0", ("key1", "<=", "key1")],
        ("b", "c"): ("key1", ">", "key0"),
        ("c", "d"): "key1",
    },
    "4 by two keys": {("a", "b"): ["key0", "key1"], ("b", "c"): "key0", ("c", "d"): ("key0", "key1")},
    "5 in a chain": {("a", "b"): "key0", ("b", "c"): "key1", ("c", "d"): "key0", ("d", "e"): ("key1", "key0")},
    "5 in a star": {("c", "a"): "key0", ("b", "c"): ("key0", "key1"), ("c", "d"): "key1", ("e", "c"): "key0"},
    "5 in a ring": {
        ("a", "b"): "key0",
        ("b", "c"): "key1",
        ("c", "d"): "key0",
        ("d", "e"): "key1",
        ("e", "a"): ("key0", "key1"),
    },
    "5 by key and size": {
        ("a", "b"): "key0",
        ("a", "c"): ("key1", "<=", "key0"),
        ("d", "c"): ["key1", ("key0", ">", "key0")],
        ("e", "d"): "key0",
    },
}
KINDS = {"time": st.just(False), "rows": st.just(True), "both": st.booleans()}  # of windows


def hangs_together(order: Sequence[str], graph: Mapping[tuple[str, str], Any]) -> bool:
    """Tell whether each stream after the first has an edge to one before it; NAIVE and GENERAL want that."""
    pairs = [set(pair) for pair in graph]
    return all(any({name, before} in pairs for before in order[:at]) for at, name in enumerate(order) if at)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(("n", "rows"), [(3, 7), (4, 5), (5, 4)])
@settings(max_examples=40, deadline=None)
@given(data=st.data(), way=st.sampled_from(WAYS))
def test_a_join_graph(data: st.DataObject, way: Any, n: int, rows: int, kind: str) -> None:
    evaluation, algorithm = way
    graph = data.draw(st.sampled_from([name for name in GRAPHS if name.startswith(str(n))]))
    drawn = data.draw(streams(least=n, most=n, rows=rows, columns=2))
    text = data.draw(st.sampled_from([[], [0, 1]])) if "size" not in graph else []
    windows = data.draw(st.lists(st.builds(Window, st.integers(1, 8), KINDS[kind]), min_size=n, max_size=n))
    orders = list(permutations(NAMES[:n]))
    if algorithm in {"naive", "general"}:
        orders = [order for order in orders if hangs_together(order, GRAPHS[graph])]
    order: Any = st.sampled_from(orders)
    each = [st.fixed_dictionaries(dict.fromkeys(NAMES[:n], order))] if algorithm == "general" else []
    got = pen.multijoin(
        tables(drawn, text, 2), on=GRAPHS[graph], time="ts", windows=spans(windows),
        order=data.draw(st.one_of(st.just("auto"), st.just("heuristic"), order, *each)),
        evaluation=evaluation, algorithm=algorithm, expiration=data.draw(st.sampled_from(expirations(evaluation))),
        index={name: data.draw(st.sampled_from(INDEXES)) for name in NAMES[:n]},
    )  # fmt: skip
    assert all_results(drawn, windows, column_edges(GRAPHS[graph])) == results(got, n)


@pytest.mark.parametrize("kind", ["time", "rows"])
@pytest.mark.parametrize("graph", list(GRAPHS))
def test_every_way_along_a_graph_gives_the_same_results(graph: str, kind: str) -> None:
    """Where there are many results, and rows leave while others come."""
    n = int(graph[0])
    rng = np.random.default_rng(n)
    rows = {3: 25, 4: 12, 5: 9}[n]
    drawn = [
        [Row(int(ts), tuple(rng.integers(0, 2, 2).tolist())) for ts in np.sort(rng.integers(0, 2 * rows, rows))]
        for _ in range(n)
    ]
    windows = [Window(span, kind == "rows") for span in ([8, 5, 7, 9, 6] if kind == "time" else [4, 3, 4, 5, 3])[:n]]
    want = all_results(drawn, windows, column_edges(GRAPHS[graph]))
    assert len(want) > 10
    for evaluation, algorithm in WAYS:
        for expiration in expirations(evaluation):
            got = pen.multijoin(
                tables(drawn, columns=2), on=GRAPHS[graph], time="ts", windows=spans(windows),
                evaluation=evaluation, algorithm=algorithm, expiration=expiration,
            )  # fmt: skip
            assert want == results(got, n)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, -1, 2**62, None, 0, -(2**62)]),
        pa.array([0, 2**63 + 5, 2**64 - 1, 7, None, 8], pa.uint64()),
        pa.array([0.5, -0.5, -1e300, 1e300, float("nan"), None, -0.0, 0.0, float("inf"), -float("inf"), 5e-324]),
        pa.array([1.5, -2.0, 3.0], pa.float32()),
        pa.array([0, 5, None, 3], pa.timestamp("us")),
        pa.array([1, 20_000, -5], pa.date32()),
    ],
    ids=lambda values: str(values.type),
)
@pytest.mark.parametrize("how", ["!=", "<", "<=", ">", ">="])
def test_values_of_any_kind_are_compared_by_size(values: pa.Array, how: str) -> None:
    left = pa.table({"ts": [0] * len(values), "x": values, "left": range(len(values))})
    right = left.rename_columns(["ts", "y", "right"])
    got = pen.multijoin({"a": left, "b": right}, on={("a", "b"): ("x", how, "y")}, time="ts", windows=1)
    numbers = values.to_pylist()
    real = [at for at, value in enumerate(numbers) if value is not None and value == value]  # noqa: PLR0124 - no NaN
    want = [(one, other) for one in real for other in real if HOW[how](numbers[one], numbers[other])]
    assert want == sorted(zip(got["left"].to_pylist(), got["right"].to_pylist(), strict=True))


@settings(max_examples=20, deadline=None)
@given(drawn=streams(least=3, most=3, rows=5))
def test_a_cross_product_if_asked_for(drawn: list[list[Row]]) -> None:
    windows = [Window(3), Window(4), Window(2, by_rows=True)]
    graph = {("a", "b"): "key0"}
    got = pen.multijoin(tables(drawn), on=graph, time="ts", windows=spans(windows), cross=True)
    assert all_results(drawn, windows, column_edges(graph)) == results(got, 3)
    got = pen.multijoin(tables(drawn), on={}, time="ts", windows=spans(windows), cross=True)
    assert all_results(drawn, windows, []) == results(got, 3)


@settings(max_examples=40, deadline=None)
@given(drawn=streams(most=2, rows=15), window=st.sampled_from([1, 4, pen.rows(3)]), text=st.booleans())
def test_two_streams_are_the_join_of_two(drawn: list[list[Row]], window: Any, text: bool) -> None:  # noqa: FBT001
    left, right = (table.rename_columns(["ts", "key", "row"]) for table in tables(drawn, [0] * text).values())
    want = pen.join(left, right, on="key", time="ts", window=window)
    got = pen.multijoin({"left": left, "right": right}, on="key", time="ts", windows=window)
    assert want.schema == got.schema
    by = [("row_left", "ascending"), ("row_right", "ascending")]
    assert want.sort_by(by) == got.sort_by(by)


# --- how it is done -----------------------------------------------------------------------------------------------


def joined(given: Mapping[str, pa.Table], **how: Any) -> Any:
    return run(given, Settings(**{"on": "key0", "time": "ts", "windows": 10, **how}))


def test_every_way_gives_the_same_results() -> None:
    given = random_tables(3, 400, 8)
    want = results(joined(given).table, 3)
    assert len(want) > 1000
    assert len(set(want)) == len(want)
    for evaluation, algorithm in WAYS:
        for index in INDEXES:
            got = joined(given, evaluation=evaluation, algorithm=algorithm, index=index)
            assert want == results(got.table, 3)
    for order in permutations(NAMES[:3]):
        assert want == results(joined(given, order=order).table, 3)


def test_small_rooms_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    given = random_tables(3, 300, 5)
    want = results(joined(given).table, 3)
    monkeypatch.setattr(chain, "FIRST_ROOM", 1)
    monkeypatch.setattr(chain, "FIRST_OF_BUCKET", 1)
    monkeypatch.setattr(chain, "FIRST_RESULTS", 1)
    monkeypatch.setattr(chain, "SLICE", 1)
    monkeypatch.setattr("penstock.engine.multijoin.SLICE", 7)
    for evaluation in ("eager", pen.every(20)):
        for index in ("hash", "none", 3):
            assert want == results(joined(given, evaluation=evaluation, index=index).table, 3)


def test_a_number_of_buckets_is_a_ring_for_each_where_rows_are_in_one_index() -> None:
    schemas = {name: table.schema for name, table in random_tables(3, 5, 5).items()}
    index = {"a": 3, "b": "hash", "c": 1}

    def layout(**how: Any) -> tuple[list[int], list[int]]:
        bound = Bound(Settings(**{"on": "key0", "time": "ts", "windows": 9, "index": index, **how}), schemas)
        return bound.rings, bound.buckets

    assert layout() == ([3, 1, 1], [0, BY_ROOM, 0])
    assert layout(memory=5) == ([1, 1, 1], [3, BY_ROOM, 0])  # victims are anywhere
    windows = {"a": pen.rows(4), "b": 9, "c": 9}  # a window in rows counts over all of its keys
    assert layout(windows=windows) == ([1, 1, 1], [3, BY_ROOM, 0])
    assert layout(on={("b", "a"): "key0", ("c", "b"): "ts"}) == ([3, 1, 1], [0, BY_ROOM, BY_ROOM, 0])
    assert layout(on={("b", "a"): "key0", ("c", "a"): "ts"}) == ([1, 1, 1], [3, 3, BY_ROOM, 0])  # two indexes


def test_old_rows_leave_every_bucket() -> None:
    """Of 300 ticks each window holds its last ten, whatever the number of buckets, and the newest are found there."""
    given = random_tables(3, 300, 40)
    bound = Bound(Settings("key0", "ts", 10, index=7), {name: table.schema for name, table in given.items()})
    windows = Ordered(bound).chain
    for batch in batches(bound, given):
        windows.push(batch)
    windows.pass_time(300)
    for s, table in enumerate(given.values()):
        alive = np.flatnonzero(table["ts"].to_numpy() > 290)
        assert alive.tolist() == windows.live_rows(s).tolist()
        times, codes = windows.codes(s, 5)
        assert table["ts"].to_numpy()[alive[-5:]].tolist() == times.tolist()
        assert codes.shape == (min(5, alive.size), 1)


def test_keys_whose_codes_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        name: table.set_column(1, "key0", table["key0"].cast(pa.string()))
        for name, table in random_tables(3, 60, 4).items()
    }
    want = results(joined(given).table, 3)
    code = Coder.code
    monkeypatch.setattr(Coder, "code", lambda self, columns: (code(self, columns)[0] % 2, None))
    assert want == results(joined(given).table, 3)
    graph = {("a", "b"): "key0", ("b", "c"): "key0"}
    assert want == results(joined(given, on=graph).table, 3)


def test_windows_hold_no_more_than_they_must() -> None:
    given = random_tables(3, 2000, 50)
    given["c"] = given["c"][:0]  # a stream that stays silent: nothing joins, and the others do not pile up
    bound = Bound(Settings(on="key0", time="ts", windows=10), {name: table.schema for name, table in given.items()})
    windows = Ordered(bound).chain
    for batch in batches(bound, given):
        for tick in np.unique(batch.ts):
            rows = batch.ts == tick
            assert windows.push(batch.only(rows)).shape == (3, 0)
            assert max(windows.held()) <= 10 * 12


def test_old_rows_leave_late_if_asked() -> None:
    given = random_tables(3, 400, 8)
    eager, late = joined(given, index="none"), joined(given, index="none", expiration=pen.every(50))
    assert results(eager.table, 3) == results(late.table, 3)
    assert eager.report.comparisons <= late.report.comparisons


def shifting(seed: int = 3) -> dict[str, pa.Table]:
    """Return four streams, of which the last becomes 50 times faster in the middle."""
    rng = np.random.default_rng(seed)
    rates = [(4, 4), (2, 2), (1, 1), (0.2, 10)]
    found = {}
    for name, (before, after) in zip(NAMES, rates, strict=False):
        ts = np.concatenate([rng.uniform(0, 500, int(500 * before)), rng.uniform(500, 1000, int(500 * after))])
        keys = rng.integers(0, 40, ts.size)
        found[name] = pa.table({"ts": np.sort(ts.astype(int)), "key0": keys, f"row_{name}": np.arange(ts.size)})
    return found


def test_the_order_follows_the_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.multijoin.SLICE", 200)
    given = shifting()
    how: dict[str, Any] = {"windows": 30, "index": "none"}
    adaptive = joined(given, **how)
    first, *changes = adaptive.report.orders
    assert changes
    assert all(change.gain > WORTH for change in changes)
    told = adaptive.report.orders
    assert told[0].reason == "measured on the first rows"
    assert any(re.fullmatch(r"rate of d \S+ -> \S+", order.reason) for order in told[1:])
    assert f"since {told[1].since}: {', '.join(told[1].order)} ({told[1].reason}; " in str(adaptive.report)
    assert any(450 < change.since < 500 + 10 * 30 for change in changes)  # a batch may begin before
    fixed = [joined(given, order=order, **how) for order in permutations(NAMES[:4])]
    want = results(fixed[0].table, 4)
    assert want == results(adaptive.table, 4)
    stubborn = joined(given, order=first.order, **how)
    assert not stubborn.report.orders[1:]
    assert adaptive.report.comparisons < stubborn.report.comparisons
    assert adaptive.report.comparisons <= WORTH * min(way.report.comparisons for way in fixed)


def test_the_order_follows_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates stay; the stream that lets little through is another from the middle on, which is seen in time."""
    monkeypatch.setattr("penstock.engine.multijoin.SLICE", 200)
    monkeypatch.setattr("penstock.operator.ordering.SELDOM", 500)
    rng = np.random.default_rng(1)
    ts = np.arange(2000)
    given = {}
    for name, (before, after) in zip("abc", [(100, 2), (2, 2), (2, 100)], strict=True):
        keys = np.where(ts < 1000, rng.integers(0, before, ts.size), rng.integers(0, after, ts.size))
        given[name] = pa.table({"ts": ts, "key0": keys, f"row_{name}": ts})
    adaptive = joined(given, windows=100, index="none")
    assert any(change.since > 1000 for change in adaptive.report.orders[1:])
    assert "distinct values of" in adaptive.report.orders[-1].reason
    assert results(joined(given, windows=100, order=["a", "b", "c"]).table, 3) == results(adaptive.table, 3)


def test_the_order_follows_the_share_of_pairs_that_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates and numbers of values stay; the edge that lets little through is another from the middle on."""
    monkeypatch.setattr("penstock.engine.multijoin.SLICE", 200)
    monkeypatch.setattr("penstock.operator.ordering.SELDOM", 500)
    rng = np.random.default_rng(1)
    ts = np.arange(2000)
    low, high = rng.integers(0, 100, (2, ts.size)) + np.array([[-40], [40]])
    given = {
        "a": pa.table({"ts": ts, "key0": rng.integers(0, 100, ts.size), "row_a": ts}),
        "b": pa.table({"ts": ts, "key0": np.where(ts < 1000, low, high), "row_b": ts}),
        "c": pa.table({"ts": ts, "key0": np.where(ts < 1000, high, low), "row_c": ts}),
    }
    how: dict[str, Any] = {
        "on": {("a", "b"): ("key0", "<", "key0"), ("a", "c"): ("key0", "<", "key0")},
        "windows": 20,
    }
    adaptive = joined(given, **how)
    first, *changes = adaptive.report.orders
    assert first.order["a"] == ["a", "b", "c"]
    assert changes[-1].order["a"] == ["a", "c", "b"]
    assert re.fullmatch(r"share of matching pairs of a and [bc] \S+ -> \S+", changes[-1].reason)
    assert results(joined(given, order=["a", "b", "c"], **how).table, 3) == results(adaptive.table, 3)


def test_dear_comparisons_come_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the loops of the first rows, and of those that come when the order is looked at again."""
    monkeypatch.setattr("penstock.operator.ordering.SELDOM", 64)
    given = random_tables(4, 300, 8)
    plain = joined(given)
    for dear in NAMES[:4]:
        asked = joined(given, price={name: 1000 if name == dear else 1 for name in NAMES[:4]})
        assert all(order.order[0] == dear for order in asked.report.orders)
        assert results(plain.table, 4) == results(asked.table, 4)
    assert joined(given, price=1000).report.orders[0].order == plain.report.orders[0].order


def test_a_steady_stream_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.engine.multijoin.SLICE", 200)
    given = {name: table.slice(0, table.num_rows // 2) for name, table in shifting().items()}
    assert len(joined(given, windows=30).report.orders) <= 2


@settings(max_examples=30, deadline=None)
@given(data=st.data(), drawn=streams(least=3, rows=6))
def test_changing_the_order_changes_no_result(data: st.DataObject, drawn: list[list[Row]]) -> None:
    n = len(drawn)
    windows = data.draw(st.lists(WINDOW, min_size=n, max_size=n))
    given = tables(drawn)
    asked = Settings("key0", "ts", spans(windows), index=data.draw(st.sampled_from(INDEXES)))
    bound = Bound(asked, {name: table.schema for name, table in given.items()})
    loops = Ordered(bound).chain
    found = []
    for batch in batches(bound, given):
        for tick in np.unique(batch.ts):
            loops.reorder([list(data.draw(st.permutations(range(n)))) for _ in range(n)])
            part = loops.push(batch.only(batch.ts == tick))
            found += list(zip(*part.tolist(), strict=True))
    assert all_results(drawn, windows, common(n)) == sorted(found)


def test_an_index_and_a_good_order_save_comparisons() -> None:
    given = random_tables(4, 300, 40)
    scanned, hashed = joined(given, index="none"), joined(given)
    assert hashed.report.comparisons < scanned.report.comparisons / 10
    naive = joined(given, index="none", algorithm="naive")
    assert scanned.report.comparisons < naive.report.comparisons


# --- inputs and outputs -------------------------------------------------------------------------------------------


def test_columns_of_all_streams() -> None:
    a = pa.table({"ts": [1], "id": pa.array([7], pa.int32()), "x": ["p"]})
    b = pa.table({"ts": [1], "id": pa.array([7], pa.int64()), "y": [1.5]})
    c = pa.table({"ts": [2], "id": pa.array([7], pa.int64()), "x": ["q"]})
    got = pen.multijoin({"a": a, "b": b, "c": c}, on="id", time="ts", windows=5)
    assert got.to_pylist() == [{"id": 7, "ts_a": 1, "x_a": "p", "ts_b": 1, "y": 1.5, "ts_c": 2, "x_c": "q"}]
    assert got.schema.field("id").type == pa.int64()
    graph = pen.multijoin({"a": a, "b": b, "c": c}, on={("a", "b"): "id", ("b", "c"): "id"}, time="ts", windows=5)
    names = ["ts_a", "id_a", "x_a", "ts_b", "id_b", "y", "ts_c", "id_c", "x_c"]
    assert names == graph.column_names


def test_pandas_in_and_out_with_timestamps() -> None:
    when = pd.to_datetime(["2025-01-01 00:00:00", "2025-01-01 00:00:40"])
    frames = {name: pd.DataFrame({f"t{name}": when, "k": ["x", "y"], name: [1, 2]}) for name in ("a", "b", "c")}
    got = pen.multijoin(
        frames, on="k", time={"a": "ta", "b": "tb", "c": "tc"}, windows="30 seconds", evaluation=pen.every("1 minute")
    )
    assert isinstance(got, pd.DataFrame)
    assert sorted(got[["k", "a", "b", "c"]].to_numpy().tolist()) == [["x", 1, 1, 1], ["y", 2, 2, 2]]


def test_no_rows_at_all() -> None:
    given = {name: table[:0] for name, table in random_tables(3, 10, 2).items()}
    for windows in (5, pen.rows(3)):
        assert pen.multijoin(given, on="key0", time="ts", windows=windows).num_rows == 0


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "error", "argument"),
    [
        ({"on": "no"}, ColumnError, "on='no'"),
        ({"on": []}, ColumnError, "on"),
        ({"on": {("a", "z"): "key0"}}, InputError, "on"),
        ({"on": {("a", "b"): "key0"}}, InputError, "on"),
        ({"on": {("a", "b"): "no", ("b", "c"): "key0"}}, ColumnError, "on='no'"),
        ({"on": {("a", "b"): "key0", ("b", "a"): "key0"}}, InputError, "on"),
        ({"on": {("a", "b"): ("key0", "like", "key0"), ("b", "c"): "key0"}}, ColumnError, "on"),
        ({"on": {("a", "b"): [], ("b", "c"): "key0"}}, ColumnError, "on"),
        ({"time": "no"}, ColumnError, "time='no'"),
        ({"time": {"a": "ts"}}, InputError, "time"),
        ({"windows": 0}, WindowError, "windows"),
        ({"windows": "5 minutes"}, WindowError, "windows"),
        ({"windows": pen.rows(0)}, WindowError, "windows"),
        ({"windows": {"a": 5, "b": 5}}, InputError, "windows"),
        ({"evaluation": "lazy"}, InputError, "evaluation"),
        ({"evaluation": pen.every(0)}, InputError, "evaluation"),
        ({"evaluation": pen.every(5), "expiration": "eager"}, InputError, "expiration"),
        ({"evaluation": pen.every(5), "expiration": pen.every(2)}, InputError, "expiration"),
        ({"expiration": 5}, InputError, "expiration"),
        ({"index": "tree"}, InputError, "index"),
        ({"index": 0}, InputError, "index"),
        ({"index": {"a": "hash"}}, InputError, "index"),
        ({"algorithm": "lazy"}, InputError, "algorithm"),
        ({"price": 0}, InputError, "price"),
        ({"price": {"a": 2}}, InputError, "price"),
        ({"order": ["a", "b"]}, InputError, "order"),
        ({"memory": 0}, BudgetError, "memory"),
        ({"memory": "5 cups"}, BudgetError, "memory"),
        ({"policy": "life"}, PolicyError, "policy"),
        ({"importance": "nothing"}, ColumnError, "importance='nothing'"),
        ({"importance": {"a": "key0"}}, InputError, "importance"),
        ({"combine": "mode"}, InputError, "combine"),
        ({"memory": 5, "policy": pen.policy("rand", at="input")}, PolicyError, "policy"),
        ({"memory": 5, "policy": pen.policy("prob", statistics="window")}, PolicyError, "statistics"),
        ({"memory": 5, "policy": pen.policy("prob", half_life=0)}, PolicyError, "half_life"),
        ({"memory": 5, "policy": pen.policy("prob", half_life=pen.rows(3))}, PolicyError, "half_life"),
        ({"memory": 5, "policy": pen.policy("prob", half_life=3, statistics="history")}, PolicyError, "half_life"),
    ],
)
def test_what_cannot_be(how: dict[str, Any], error: type[InputError], argument: str) -> None:
    with pytest.raises(error) as caught:
        pen.multijoin(random_tables(3, 10, 2), **{"on": "key0", "time": "ts", "windows": 5, **how})
    assert argument == caught.value.argument


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "two or more tables by name"),
        ({"a": random_tables(1, 5, 2)["a"]}, "two or more tables by name"),
        ({1: None, 2: None}, "with a word"),
        ({"a": None, "b": None}, "an Arrow table or a pandas DataFrame"),
        ({"a": 5, "b": 6}, "an Arrow table"),
    ],
)
def test_streams_that_cannot_be(given: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        pen.multijoin(given, on="key0", time="ts", windows=5)


def test_rows_out_of_order_and_without_time() -> None:
    good = random_tables(2, 10, 2)
    for ts, error in (([2, 1], OrderError), ([1, None], TimeError)):
        bad = pa.table({"ts": pa.array(ts, pa.int64()), "key0": [1, 1]})
        with pytest.raises(error):
            pen.multijoin({**good, "bad": bad}, on="key0", time="ts", windows=5)


def test_text_is_not_compared_by_size() -> None:
    words = pa.table({"ts": [1], "word": ["tea"]})
    with pytest.raises(KeyTypeError, match="compare numbers, dates or times by size"):
        pen.multijoin({"a": words, "b": words}, on={("a", "b"): ("word", "<", "word")}, time="ts", windows=5)


def test_names_that_clash_again() -> None:
    a = pa.table({"ts": [1], "k": [1], "x": [1], "x_a": [2]})
    b = pa.table({"ts": [1], "k": [1], "x": [1]})
    with pytest.raises(ColumnError, match="two columns named 'x_a'"):
        pen.multijoin({"a": a, "b": b}, on="k", time="ts", windows=5)


def test_ten_streams() -> None:
    rows = pa.table({"ts": [1, 2, 3], "k": [1, 2, 1]})
    given = {f"s{at}": rows for at in range(10)}
    got = pen.multijoin(given, on="k", time="ts", windows=1)
    assert got.num_rows == 3
    with pytest.raises(InputError, match="2 to 12 streams"):
        pen.multijoin({f"s{at}": rows for at in range(13)}, on="k", time="ts", windows=1)
