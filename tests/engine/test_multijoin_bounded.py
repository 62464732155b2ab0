"""Several streams inside a budget, against brute force: who leaves, what is found, what the books say."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from multiway import Edge, Row, Window, all_results, within_budget
from penstock.core import worth
from penstock.errors import InputError
from penstock.operator.ordering import Ordered
from penstock.operator.several import Bound, Settings
from penstock.report.papers.several import batches
from several import NAMES, column_edges, common, random_tables, results, spans, streams, tables

POLICIES = ["prob", "oldest", "rand"]
EXACT_SPANS = st.builds(Window, st.sampled_from([1, 2, 4, 8]), st.booleans())  # worth is then exact in floats


@st.composite
def sparse(draw: st.DrawFn) -> list[list[Row]]:
    """Draw three streams with gaps of many half-lives: weights must be brought back to the present."""
    found = []
    for _ in range(3):
        now, stream = 0, []
        for gap, key in draw(st.lists(st.tuples(st.sampled_from([0, 1, 1, 2, 60]), st.integers(0, 2)), max_size=10)):
            now = min(now + gap, 300)
            stream.append(Row(now, (key,)))
        found.append(stream)
    return found


def policy_of(name: str, life: int, windows: list[Window]) -> Any:
    if name != "prob":
        return name
    if life == 0:
        return pen.policy("prob", statistics="history")
    return pen.policy("prob", half_life=pen.rows(life) if all(window.by_rows for window in windows) else life)


@settings(max_examples=200, deadline=None)
@given(
    data=st.data(),
    drawn=st.one_of(streams(rows=10, most=3), sparse()),
    name=st.sampled_from(["prob", "prob", "oldest"]),
    life=st.sampled_from([0, 1]),
    memory=st.integers(1, 9),
)
def test_who_leaves(data: st.DataObject, drawn: list[list[Row]], name: str, life: int, memory: int) -> None:
    n = len(drawn)
    windows = data.draw(st.lists(EXACT_SPANS, min_size=n, max_size=n))
    want = within_budget(drawn, windows, memory, name, life)
    got = pen.run(
        tables(drawn), on="key0", time="ts", windows=spans(windows), memory=memory,
        policy=policy_of(name, life, windows), index=data.draw(st.sampled_from(["hash", "none"])),
    )  # fmt: skip
    assert want.results == results(got.table, n)
    shed = zip(*(got.ledger[column].to_pylist() for column in ("stream", "row", "shed_at")), strict=True)
    assert want.shed == [(NAMES.index(stream), row, at) for stream, row, at in shed]
    if any(drawn):
        assert want.live == list(got.report.live.values())


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    drawn=streams(rows=7),
    policy=st.sampled_from(POLICIES),
    evaluation=st.sampled_from(["eager", pen.every(3)]),
    memory=st.integers(1, 30),
)
def test_a_subset_of_exact(
    data: st.DataObject, drawn: list[list[Row]], policy: str, evaluation: Any, memory: int
) -> None:
    n = len(drawn)
    windows = data.draw(st.lists(st.builds(Window, st.integers(1, 8), st.booleans()), min_size=n, max_size=n))
    exact = all_results(drawn, windows, common(n))
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": spans(windows), "evaluation": evaluation}
    got = pen.run(tables(drawn), memory=memory, policy=policy, **how)
    found = results(got.table, n)
    assert len(found) == len(set(found))
    assert set(found) <= set(exact)
    assert got.report.memory_rows <= memory
    if not got.ledger.num_rows or memory >= sum(map(len, drawn)):
        assert exact == found


def test_auto_means_prob() -> None:
    rng = np.random.default_rng(4)
    given = {name: pa.table({"ts": np.arange(300), "key": rng.integers(0, 20, 300)}) for name in "abc"}
    want, got = (
        pen.run(given, on="key", time="ts", windows=40, memory=30, policy=policy) for policy in ("prob", "auto")
    )
    assert want.table == got.table
    assert got.report.policy == "prob"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_budget_holds_at_the_end_of_every_tick(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "FIRST_CELLS", 16)  # rare keys are forgotten, cells and entries move
    given = random_tables(3, 1500, 4000)
    asked = Settings("key0", "ts", {"a": 40, "b": 60, "c": pen.rows(90)}, memory=50, policy=policy)
    bound = Bound(asked, {name: table.schema for name, table in given.items()})
    ordered, shed = Ordered(bound), 0
    for batch in batches(bound, given):
        for tick in np.unique(batch.ts):
            ordered.push(batch.only(batch.ts == tick))
            live = ordered.chain.live(int(tick))
            assert sum(live) <= 50
            assert live == ordered.chain._pool.live.tolist()
            assert sum(ordered.chain.held()) <= 2 * sum(live) + 3 * 256  # marks are swept
            shed += len(ordered.chain.shed())
            assert shed == 0 or sum(live) + shed <= 4500
    assert shed > 2000
    assert ordered.chain._pool.code.size <= 1 << 10


def test_any_cut_and_small_rooms_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = random_tables(3, 900, 40)
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": 50, "memory": 60}
    want = [pen.run(given, policy=policy, **how) for policy in POLICIES]
    monkeypatch.setattr("penstock.engine.multijoin.SLICE", 17)
    monkeypatch.setattr("penstock.core.chain.FIRST_ROOM", 1)
    for policy, one in zip(POLICIES, want, strict=True):
        got = pen.run(given, policy=policy, order=["c", "a", "b"], **how)
        if policy != "rand":  # lots are drawn over places, marks among them
            assert one.ledger == got.ledger
            assert results(one.table, 3) == results(got.table, 3)
        assert one.report.memory_rows == got.report.memory_rows == 60


def test_lots_are_fair_and_repeat() -> None:
    given = {name: pa.table({"ts": np.zeros(400, np.int64), "key0": np.arange(400)}) for name in "ab"}
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": 5, "memory": 200, "policy": "rand"}
    one, again, other = (pen.run(given, seed=seed, **how) for seed in (1, 1, 2))
    assert one.ledger == again.ledger != other.ledger
    assert 60 < 400 - one.report.shed["budget"]["a"] < 140  # 100 on average, deviation 8
    assert one.report.memory_rows == 200


def test_worth_is_a_product_over_all_other_streams() -> None:
    """Key 1 is frequent on b and never comes on c; key 2 comes on both, now and then."""
    a = pa.table({"ts": [0, 0], "key0": [1, 2]})
    b = pa.table({"ts": np.arange(1, 21), "key0": [2] * 2 + [1] * 18})
    c = pa.table({"ts": [3, 5], "key0": [2, 2]})
    got = pen.run({"a": a, "b": b, "c": c}, on="key0", time="ts", windows=30, memory=5)
    shed = set(zip(got.ledger["stream"].to_pylist(), got.ledger["row"].to_pylist(), strict=True))
    assert {("a", 0), *(("b", row) for row in range(2, 20))} == shed


TREES: dict[
    str, tuple[dict[tuple[str, str], Any], tuple[int, ...]]
] = {  # how streams with two keys each are joined, and which of the edges span them
    "chain": ({("a", "b"): "key0", ("b", "c"): "key1", ("c", "d"): "key0"}, (0, 1, 2)),
    "star": ({("a", "b"): "key0", ("b", "c"): "key1", ("b", "d"): ("key0", "key1")}, (0, 1, 2)),
    "sizes": ({("a", "b"): ("key0", "<=", "key1"), ("b", "c"): "key0", ("c", "d"): "key1"}, (1, 2, 0)),
    "cycle": (
        {("a", "b"): "key0", ("b", "c"): "key1", ("a", "c"): ("key1", "key0"), ("c", "d"): "key0"},
        (0, 1, 3),
    ),
}


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    drawn=streams(rows=6, least=4, most=4, columns=2),
    graph=st.sampled_from(sorted(TREES)),
    life=st.sampled_from([0, 1]),
    memory=st.integers(1, 12),
    combine=st.sampled_from([None, "min", "max", "sum", "product", "mean"]),
)
def test_who_leaves_along_a_graph(
    data: st.DataObject, drawn: list[list[Row]], graph: str, life: int, memory: int, combine: str | None
) -> None:
    """Worth is the number of complete results to expect, or their importance, whatever the edges are on."""
    windows = data.draw(st.lists(EXACT_SPANS, min_size=4, max_size=4))
    on, spanning = TREES[graph]
    edges = column_edges(on)
    values = [[data.draw(st.sampled_from([0.0, 1.0, 2.0, 8.0])) for _ in stream] for stream in drawn]
    how = {} if combine is None else {"importance": "value", "combine": combine}
    want = within_budget(
        drawn, windows, memory, "prob", life,
        edges=edges, tree=[edges[at] for at in spanning],
        values=None if combine is None else values, combine=combine or "min",
    )  # fmt: skip
    given = weighted(tables(drawn, columns=2), values)
    got = pen.run(
        given, on=on, time="ts", windows=spans(windows), memory=memory,
        policy=policy_of("prob", life, windows), **how,
    )  # fmt: skip
    assert want.results == results(got.table, 4)
    shed = zip(*(got.ledger[column].to_pylist() for column in ("stream", "row", "shed_at")), strict=True)
    assert want.shed == [(NAMES.index(stream), row, at) for stream, row, at in shed]
    assert set(want.results) <= set(all_results(drawn, windows, edges))


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    drawn=streams(rows=7, least=3, most=3, columns=2),
    joined=st.sampled_from([{}, {("a", "b"): "key0"}]),
    life=st.sampled_from([0, 1]),
    memory=st.integers(1, 9),
)
def test_who_leaves_a_cross_product(
    data: st.DataObject, drawn: list[list[Row]], joined: dict[Any, str], life: int, memory: int
) -> None:
    windows = data.draw(st.lists(EXACT_SPANS, min_size=3, max_size=3))
    edges = column_edges(joined)
    apart = [Edge(0, 0, other, 0, "!=") for other in range(1 + len(edges), 3)]  # all rows are taken to meet
    want = within_budget(drawn, windows, memory, "prob", life, edges=edges, tree=[*edges, *apart])
    got = pen.run(
        tables(drawn, columns=2), on=joined, time="ts", windows=spans(windows), memory=memory, cross=True,
        policy=policy_of("prob", life, windows),
    )  # fmt: skip
    assert want.results == results(got.table, 3)
    shed = zip(*(got.ledger[column].to_pylist() for column in ("stream", "row", "shed_at")), strict=True)
    assert want.shed == [(NAMES.index(stream), row, at) for stream, row, at in shed]


@pytest.mark.parametrize("joined", [{}, {("a", "b"): "key"}], ids=["nothing", "one pair"])
def test_no_stream_fills_the_pool_of_a_cross_product(joined: dict[Any, str]) -> None:
    """A slow stream's rows meet most, if the others are held: alone they complete nothing."""
    rng = np.random.default_rng(1)
    rows = {
        name: pa.table({"ts": np.sort(rng.integers(0, 400, 400 * rate)), "key": rng.integers(0, 8, 400 * rate)})
        for name, rate in {"a": 3, "b": 2, "c": 1}.items()
    }
    how: dict[str, Any] = {"on": joined, "time": "ts", "windows": 20, "cross": True, "memory": 18}
    live = []
    op = pen.MultiJoin({name: table.schema for name, table in rows.items()}, **how)
    for until in range(20, 400, 10):
        op.push({name: t.filter(pc.equal(pc.floor(pc.divide(t["ts"], 10)), until // 10)) for name, t in rows.items()})
        live.append(list(op.report().live.values()))
    assert np.median(live, axis=0).min() >= 2
    found = {policy: pen.run(rows, **how, policy=policy).report.results for policy in ("prob", "rand")}
    assert found["prob"] > 1.2 * found["rand"]


def weighted(given: dict[str, pa.Table], values: list[list[float]]) -> dict[str, pa.Table]:
    return {
        name: table.append_column("value", pa.array(mine, pa.float64()))
        for (name, table), mine in zip(given.items(), values, strict=True)
    }


@settings(max_examples=100, deadline=None)
@given(
    data=st.data(),
    drawn=streams(rows=8, most=3),
    life=st.sampled_from([0, 1]),
    memory=st.integers(1, 9),
    combine=st.sampled_from(["min", "max", "sum", "product", "mean"]),
)
def test_who_leaves_by_importance(
    data: st.DataObject, drawn: list[list[Row]], life: int, memory: int, combine: str
) -> None:
    n = len(drawn)
    windows = data.draw(st.lists(EXACT_SPANS, min_size=n, max_size=n))
    values = [[data.draw(st.sampled_from([0.0, 1.0, 2.0, 8.0])) for _ in stream] for stream in drawn]
    want = within_budget(drawn, windows, memory, "prob", life, values=values, combine=combine)
    got = pen.run(
        weighted(tables(drawn), values), on="key0", time="ts", windows=spans(windows), memory=memory,
        policy=policy_of("prob", life, windows), importance="value", combine=combine,
    )  # fmt: skip
    assert want.results == results(got.table, n)
    shed = zip(*(got.ledger[column].to_pylist() for column in ("stream", "row", "shed_at")), strict=True)
    assert want.shed == [(NAMES.index(stream), row, at) for stream, row, at in shed]
    ways: dict[str, Any] = {"min": min, "max": max, "sum": sum, "product": math.prod}
    whole = ways.get(combine, lambda each: sum(each) / n)
    shown = zip(*(got.table[f"row_{name}"].to_pylist() for name in NAMES[:n]), strict=True)
    assert [whole([values[s][row] for s, row in enumerate(rows)]) for rows in shown] == got.table[
        "importance"
    ].to_pylist()


def test_a_join_graph_inside_a_budget() -> None:
    given = random_tables(3, 300, 8)
    graph = {("a", "b"): "key0", ("b", "c"): ("key0", "<=", "key0")}
    exact = set(results(pen.multijoin(given, on=graph, time="ts", windows=20), 3))
    for policy in POLICIES:
        got = pen.run(given, on=graph, time="ts", windows=20, memory=30, policy=policy)
        assert got.report.memory_rows == 30
        assert set(results(got.table, 3)) < exact


def test_prob_along_a_graph_finds_many_times_what_lots_find_also_when_keys_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    chances = 1 / np.arange(1, 51)
    given = {
        name: pa.table(
            {
                "ts": np.arange(900),
                **{key: rng.choice(rng.permutation(50), 900, p=chances / chances.sum()) for key in ("key0", "key1")},
            }
        )
        for name in "abc"
    }
    on = {("a", "b"): "key0", ("b", "c"): "key1"}

    def found(policy: str) -> int:
        return pen.run(given, on=on, time="ts", windows=100, memory=75, policy=policy).report.results

    prob, rand = found("prob"), found("rand")
    assert prob > 2 * rand > 0
    monkeypatch.setattr(worth, "FIRST_CELLS", 16)
    monkeypatch.setattr("penstock.engine.multijoin.SLICE", 97)
    assert prob * 0.8 < found("prob") <= prob * 1.1


def test_importance_is_kept_where_results_are_not() -> None:
    """Few rows are important: that policy finds fewer results, and more of their importance."""
    rng = np.random.default_rng(6)
    given = {
        name: table.append_column("value", pa.array(np.where(rng.random(1500) < 0.1, 100.0, 1.0)))
        for name, table in random_tables(3, 1500, 30).items()
    }
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": 60, "memory": 90, "combine": "product"}
    plain = pen.run(given, **how)
    important = pen.run(given, importance="value", **how)
    summed = math.prod(
        [plain.table[f"value_{name}"].to_numpy() for name in "abc"], start=np.ones(plain.table.num_rows)
    )
    assert important.table["importance"].to_numpy().sum() > 2 * summed.sum()


def test_prob_finds_many_times_what_lots_find() -> None:
    rng = np.random.default_rng(5)
    chances = 1 / np.arange(1, 51)
    given = {
        name: pa.table(
            {"ts": np.arange(2000), "key0": rng.choice(rng.permutation(50), 2000, p=chances / chances.sum())}
        )
        for name in "abc"
    }
    found = [
        pen.run(given, on="key0", time="ts", windows=100, memory=75, policy=policy).report.results
        for policy in ("prob", "rand")
    ]
    assert found[0] > 3 * found[1] > 0


# --- the report ---------------------------------------------------------------------------------------------------


def test_the_report_in_words_and_as_json() -> None:
    when = pd.to_datetime(["2025-01-01 00:00:00", "2025-01-01 00:00:40"])
    given = {name: pd.DataFrame({"t": when, "k": ["x", None]}) for name in ("a", "bee")}
    got = pen.run(given, on="k", time="t", windows="1 minute", memory=1)
    assert isinstance(got.table, pd.DataFrame)
    assert {"a": 2, "bee": 2} == got.report.arrivals
    assert {"budget": {"a": 1, "bee": 0}, "late": {"a": 0, "bee": 0}} == got.report.shed
    assert {"a": 1, "bee": 1} == got.report.expired
    assert {"a": 0, "bee": 1} == got.report.live
    assert str(got.report).splitlines()[:5] == [
        "policy prob, 1 results, recall 100.0%, holding 1 rows, 2 comparisons",
        "               a  bee",
        "arrivals       2    2",
        "live           0    1",
        "expired        1    1",
    ]
    document = got.report.to_dict()
    assert document["orders"][0]["since"] == "2025-01-01 00:00:00"
    assert got.ledger.to_pylist()[0]["reason"] == "budget"
    general = pen.run(given, on="k", time="t", windows="1 minute", algorithm="general")
    assert isinstance(general.report.orders[0].order, dict)
    assert "a: " in str(general.report)
    assert general.report.policy == "exact"


def test_arguments_of_run_are_checked() -> None:
    given = random_tables(2, 5, 2)
    with pytest.raises(InputError, match="window: got 5; no such argument for several streams"):
        pen.run(given, on="key0", time="ts", window=5)
    with pytest.raises(InputError, match="windows: got nothing"):
        pen.run(given, on="key0", time="ts")
    with pytest.raises(InputError, match="right: got Table"):
        pen.run(given, given["a"], on="key0", time="ts", windows=5)
