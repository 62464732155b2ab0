"""Several streams one push at a time: any cut, rows out of order, silence, late rows, a state that comes back."""

import pickle
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from multiway import Row, Window, all_results, within_budget
from penstock.errors import BudgetError, InputError, SchemaError, StateError, TimeError
from penstock.streams.payload import LIVE_SHARE
from several import NAMES, common, random_tables, results, spans, streams, tables

WINDOW = st.builds(Window, st.integers(1, 8), st.booleans())
HOW: dict[str, Any] = {"on": "key0", "time": "ts"}


def schemas(rows: Mapping[str, pa.Table]) -> dict[str, pa.Schema]:
    return {name: table.schema for name, table in rows.items()}


def cut(data: st.DataObject, rows: Mapping[str, pa.Table], *, disorder: int = 0) -> list[dict[str, pa.Table]]:
    """Cut streams by time into pushes, some of which leave streams out; each up to `disorder` ticks out of order."""
    times = [time for table in rows.values() for time in table["ts"].to_pylist()]
    delay = st.integers(0, disorder)
    late = {name: np.array([data.draw(delay) for _ in table["ts"]], int) for name, table in rows.items()}
    bars = sorted(data.draw(st.lists(st.sampled_from(times or [0]), max_size=4)))
    found = []
    for low, high in zip([-99, *bars], [*bars, 999], strict=True):
        push = {}
        for name, table in rows.items():
            shown = table["ts"].to_numpy() + late[name]  # when a row comes
            order = np.argsort(shown, kind="stable")
            mine = order[(low <= shown[order]) & (shown[order] < high)]
            if mine.size:
                push[name] = table.take(pa.array(mine))
        found.append(push)
    return found


def played(op: pen.MultiJoin, pushes: list[dict[str, pa.Table]]) -> pa.Table:
    return pa.concat_tables([op.bound.schema.empty_table(), *(op.push(push) for push in pushes), op.finish()])


@settings(max_examples=100, deadline=None)
@given(data=st.data(), drawn=streams(), evaluation=st.sampled_from(["eager", pen.every(3)]))
def test_any_cut_gives_the_same_results(data: st.DataObject, drawn: list[list[Row]], evaluation: Any) -> None:
    n = len(drawn)
    windows = data.draw(st.lists(WINDOW, min_size=n, max_size=n))
    rows = tables(drawn, text=[0])
    op = pen.MultiJoin(schemas(rows), windows=spans(windows), evaluation=evaluation, **HOW)
    got = played(op, cut(data, rows))
    assert all_results(drawn, windows, common(n)) == results(got, n)
    report = op.report()
    assert report.results == got.num_rows
    assert not any(sum(shed.values()) for shed in report.shed.values())
    assert list(map(len, drawn)) == list(report.arrivals.values())
    assert min(report.expired.values()) >= 0


@settings(max_examples=100, deadline=None)
@given(data=st.data(), drawn=streams(least=3, most=3), lateness=st.integers(1, 4))
def test_rows_out_of_order_are_put_in_order(data: st.DataObject, drawn: list[list[Row]], lateness: int) -> None:
    """A row that comes at most so late joins as if it had come in time."""
    windows = data.draw(st.lists(WINDOW, min_size=3, max_size=3))
    rows = tables(drawn)
    op = pen.MultiJoin(schemas(rows), windows=spans(windows), lateness=lateness, **HOW)
    got = played(op, cut(data, rows, disorder=lateness))
    assert all_results(drawn, windows, common(3)) == results(got, 3)
    assert op.ledger().num_rows == 0


@settings(max_examples=100, deadline=None)
@given(data=st.data(), drawn=streams(least=3, most=3), disorder=st.integers(1, 9))
def test_late_rows_join_nothing_and_are_in_the_ledger(
    data: st.DataObject, drawn: list[list[Row]], disorder: int
) -> None:
    windows = [Window(3), Window(5), Window(4)]
    rows = tables(drawn)
    op = pen.MultiJoin(schemas(rows), windows=spans(windows), lateness=1, **HOW)
    got = played(op, cut(data, rows, disorder=disorder))
    ledger = op.ledger().to_pylist()
    late = {(entry["stream"], entry["values"][entry["stream"]][f"row_{entry['stream']}"]) for entry in ledger}
    assert len(late) == len(ledger)
    assert all(entry["reason"] == "late" and entry["ts"] < entry["shed_at"] - 1 for entry in ledger)
    kept = [
        [row._replace(keys=(None,)) if (NAMES[s], at) in late else row for at, row in enumerate(stream)]
        for s, stream in enumerate(drawn)
    ]
    assert all_results(kept, windows, common(3)) == results(got, 3)
    report = op.report()
    assert report.shed["late"] == {name: sum(one == name for one, _ in late) for name in NAMES[:3]}
    assert report.arrivals == {name: len(stream) for name, stream in zip(NAMES, drawn, strict=False)}


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    drawn=streams(rows=10, most=3),
    budget=st.sampled_from([{}, {"memory": 4}, {"memory": 5, "policy": "oldest"}, {"memory": 3, "policy": "rand"}]),
    evaluation=st.sampled_from(["eager", pen.every(3)]),
    again=st.sampled_from(["bytes", "pickle"]),
)
def test_a_state_comes_back(
    data: st.DataObject, drawn: list[list[Row]], budget: dict[str, Any], evaluation: Any, again: str
) -> None:
    """A join that is saved and brought back after every push does what one that goes on does, to the ledger."""
    n = len(drawn)
    windows = data.draw(st.lists(WINDOW, min_size=n, max_size=n))
    rows = tables(drawn, text=[0])
    how = {**HOW, "windows": spans(windows), "evaluation": evaluation, "lateness": 2, **budget}
    pushes = cut(data, rows, disorder=3)
    steady, restored = pen.MultiJoin(schemas(rows), **how), pen.MultiJoin(schemas(rows), **how)
    want = played(steady, pushes)
    found = []
    for push in pushes:
        found.append(restored.push(push))
        if again == "pickle":
            restored = pickle.loads(pickle.dumps(restored))  # noqa: S301 - our own
        else:
            restored = pen.MultiJoin.from_state(restored.state_dict())
    got = pa.concat_tables([want[:0], *found, restored.finish()])
    assert want == got
    assert steady.ledger() == restored.ledger()
    before, after = steady.report().to_dict(), restored.report().to_dict()
    for counted in ("comparisons", "memory_bytes"):  # marks are left out of a state
        assert before.pop(counted) >= 0 <= after.pop(counted)
    assert before == after


@settings(max_examples=80, deadline=None)
@given(data=st.data(), drawn=streams(rows=10, most=3), memory=st.integers(1, 9))
def test_a_budget_does_not_see_the_cut(data: st.DataObject, drawn: list[list[Row]], memory: int) -> None:
    n = len(drawn)
    windows = data.draw(
        st.lists(st.builds(Window, st.sampled_from([1, 2, 4, 8]), st.booleans()), min_size=n, max_size=n)
    )
    want = within_budget(drawn, windows, memory, "prob", 0)
    rows = tables(drawn)
    policy = pen.policy("prob", statistics="history")
    op = pen.MultiJoin(schemas(rows), windows=spans(windows), memory=memory, policy=policy, **HOW)
    assert want.results == results(played(op, cut(data, rows)), n)
    ledger = op.ledger().to_pylist()
    assert want.shed == [(NAMES.index(entry["stream"]), entry["row"], entry["shed_at"]) for entry in ledger]
    for entry in ledger:
        assert entry["values"][entry["stream"]][f"row_{entry['stream']}"] == entry["row"]
    assert op.ledger().num_rows == 0


@pytest.mark.parametrize("policy", ["prob", "oldest", "rand"])
def test_a_budget_in_bytes_of_rows_alike_is_one_in_rows(policy: str) -> None:
    """A row has three words, and takes 96 bytes beside them."""
    rows = random_tables(3, 900, 30)
    how: dict[str, Any] = {**HOW, "windows": 50, "policy": policy}
    want, got = pen.run(rows, memory=60, **how), pen.run(rows, memory=f"{60 * (3 * 8 + 96)} B", **how)
    assert want.ledger == got.ledger
    assert results(want.table, 3) == results(got.table, 3)


def test_bytes_bound_rows_of_any_size() -> None:
    """Text of 4 to 400 bytes: at the end of every tick what is kept fits, and nobody left who need not."""
    rng = np.random.default_rng(1)
    rows = {
        name: table.append_column("text", pa.array(["x" * int(size) for size in rng.integers(4, 400, 300)]))
        for name, table in random_tables(3, 300, 5).items()
    }
    sizes = {
        name: 3 * 8 + 96 + 4 + np.array([len(text) for text in table["text"].to_pylist()])
        for name, table in rows.items()
    }
    op = pen.MultiJoin(schemas(rows), windows=40, memory="9 kB", **HOW)
    gone: set[tuple[str, int]] = set()
    for tick in range(150):
        op.push({name: table.filter(pa.array(table["ts"].to_numpy() == tick)) for name, table in rows.items()})
        op.advance(tick + 1)
        ledger = op.ledger().to_pylist()
        gone |= {(entry["stream"], entry["row"]) for entry in ledger}
        held = {
            name: [
                at
                for at, ts in enumerate(table["ts"].to_pylist())
                if tick - 39 < ts <= tick and (name, at) not in gone
            ]
            for name, table in rows.items()
        }
        kept = sum(int(sizes[name][at].sum()) for name, at in held.items())
        assert kept <= 9000
        if ledger:  # the last one had to go
            assert kept + sizes[ledger[-1]["stream"]][ledger[-1]["row"]] > 9000
    assert len(gone) > 100


# --- time and silence ---------------------------------------------------------------------------------------------


def test_a_silent_stream_holds_up_nobody_and_nothing_piles_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.streams.payload.SPARE", 5_000)  # bytes: 200 rows of three numbers
    rows = random_tables(3, 20_000, 50)
    op = pen.MultiJoin(schemas(rows), windows=10, lateness=3, **HOW)
    op.push({name: table[:200] for name, table in rows.items()})  # c then never again
    for at in range(200, 20_000, 500):
        op.push({name: rows[name][at : at + 500] for name in "ab"})
        report = op.report()
        assert report.memory_rows < 2 * 2 * (10 + 3 + 1) * 5
        assert sum(payload.stored for payload in op._payload) < (report.memory_rows + 3 * 200) / LIVE_SHARE
    assert op.report().results > 0


def test_rows_do_not_pile_up_for_a_stream_that_never_shows_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.operator.join.MOST_WAITING", 1_000)
    rows = random_tables(3, 2_000, 50)
    op = pen.MultiJoin(list(rows), windows=10, **HOW)
    for at in range(0, 600, 100):
        op.push({name: rows[name][at : at + 100] for name in "ab"})
    with pytest.raises(InputError, match="c: got no rows yet, and 1,200 of others wait to know its columns"):
        op.push(a=rows["a"][600:700])
    op.push(c=rows["c"][:0])  # columns are enough
    op.push({name: rows[name][600:] for name in "ab"})
    assert op.arrived == (2_000, 2_000, 0)
    assert op.report().memory_rows < 1_000


def test_nor_for_a_side_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.operator.join.MOST_WAITING", 100)
    rows = random_tables(2, 300, 50)
    op = pen.Join(on="key0", time="ts", window=10)
    op.push(left=rows["a"])  # one push may be as large as it likes
    with pytest.raises(InputError, match="right: got no rows yet, and 300 of others wait"):
        op.push(left=rows["a"][-1:])
    assert op.push(right=rows["b"]).num_rows > 0


def test_a_graph_that_does_not_hang_together_names_the_way_out() -> None:
    with pytest.raises(InputError, match=r"no way from a to c; .* cross=True"):
        pen.MultiJoin(schemas(random_tables(3, 5, 5)), on={("a", "b"): "key0"}, time="ts", windows=10)


def test_what_is_known_of_a_graph_is_saved() -> None:
    rows = random_tables(3, 200, 20)
    graph = {("a", "b"): "key0", ("b", "c"): "key0"}
    op = pen.MultiJoin(schemas(rows), on=graph, time="ts", windows=10)
    op.push(rows)
    op.finish()
    again = pen.MultiJoin.from_state(op.state_dict())
    shares = op._ordered.plan.selectivity
    assert shares is not None
    assert 0 < shares["a", "b"] < 1
    assert again._ordered.plan.selectivity == shares


def test_time_can_pass_without_rows() -> None:
    rows = {name: pa.table({"ts": [ts], "key0": [1]}) for name, ts in (("a", 1), ("b", 2), ("c", 3))}
    op = pen.MultiJoin(schemas(rows), windows=5, **HOW)
    assert op.push(rows).num_rows == 0  # more of tick 3 may come
    assert op.report().live == {"a": 1, "b": 1, "c": 1}
    assert op.advance(4).num_rows == 1
    op.advance(6)
    assert op.report().live == {"a": 0, "b": 1, "c": 1}
    assert op.push(a=pa.table({"ts": [5], "key0": [1]})).num_rows == 0
    assert op.report().shed["late"] == {"a": 1, "b": 0, "c": 0}
    assert op.finish().num_rows == 0


def test_what_comes_after_the_end_is_late_unless_it_is_newer() -> None:
    rows = {name: pa.table({"ts": [1, 4], "key0": [1, 1]}) for name in "ab"}
    op = pen.MultiJoin(schemas(rows), windows=5, lateness=2, **HOW)
    assert op.push(rows).num_rows == 1
    assert op.finish().num_rows == 3
    assert op.push(a=rows["a"]).num_rows == op.finish().num_rows == 0
    assert op.report().shed["late"] == {"a": 2, "b": 0}
    op.push(a=pa.table({"ts": [5], "key0": [1]}))
    assert op.finish().num_rows == 2


def test_a_watermark_says_what_is_late() -> None:
    rows = {name: pa.table({"ts": [9, 2, 5], "key0": [1, 1, 1]}) for name in "abc"}
    op = pen.MultiJoin(schemas(rows), windows=1, lateness="watermark", **HOW)
    assert op.push(rows).num_rows == 0
    assert op.watermark(6).num_rows == 2
    assert op.push(a=pa.table({"ts": [5, 6], "key0": [1, 1]})).num_rows == 0
    assert op.report().shed["late"]["a"] == 1
    assert op.watermark(10).num_rows == 1
    assert op.report().live == {"a": 0, "b": 0, "c": 0}
    slow = pen.MultiJoin(schemas(rows), windows=1, lateness=("watermark", 2), **HOW)
    slow.push({name: rows[name] for name in "ab"})
    assert slow.push(c=pa.table({"ts": [5, 9], "key0": [1, 1]})).num_rows == 1  # of tick 5: all have come to 9
    assert slow.push(c=pa.table({"ts": [6], "key0": [1]})).num_rows == 0
    assert slow.report().shed["late"] == {"a": 0, "b": 0, "c": 1}


def test_the_budget_can_change() -> None:
    rows = random_tables(3, 600, 10)
    op = pen.MultiJoin(schemas(rows), windows=100, memory=100, **HOW)
    op.push(rows)
    op.resize(memory=20)
    op.finish()
    assert op.report().memory_rows == 20
    again = pen.MultiJoin.from_state(op.state_dict())
    for name, table in rows.items():
        again.push({name: table.set_column(0, "ts", pa.array(np.full(600, 400)))})
    again.finish()
    assert again.report().memory_rows == 20
    with pytest.raises(BudgetError, match="with memory in rows"):
        op.resize(memory="5MB")
    with pytest.raises(BudgetError, match="without a budget"):
        pen.MultiJoin(schemas(rows), windows=100, **HOW).resize(memory=5)


# --- columns ------------------------------------------------------------------------------------------------------


def test_rows_wait_until_all_streams_have_shown_their_columns() -> None:
    when = pd.to_datetime(["2025-01-01 00:00:00", "2025-01-01 00:00:40"])
    frames = {name: pd.DataFrame({"t": when, "k": ["x", "y"], name: [1, 2]}) for name in ("a", "b", "self")}
    op = pen.MultiJoin(list(frames), on="k", time="t", windows="30 seconds")
    assert op.push(a=frames["a"]).num_columns == op.ledger().num_columns == op.finish().num_columns == 0
    assert op.push(b=frames["b"]).num_columns == 0
    assert op.report().memory_rows == 4
    assert op.arrived == (2, 2, 0)
    with pytest.raises(InputError, match="have not all shown their columns"):
        op.advance(when[1])
    with pytest.raises(TimeError, match="a null in row 0"):
        op.push({"self": frames["self"].assign(t=when.where([False, False]))})
    op = pen.MultiJoin.from_state(op.state_dict())
    op.push({"self": frames["self"]})
    assert op.report().results == 1
    assert op.finish().select(["k", "a", "b", "self"]).to_pylist() == [{"k": "y", "a": 2, "b": 2, "self": 2}]
    assert str(op.report().orders[0].since) == "2025-01-01 00:00:00"


def test_what_cannot_be_pushed() -> None:
    rows = random_tables(2, 5, 2)
    op = pen.MultiJoin(schemas(rows), windows=5, **HOW)
    with pytest.raises(InputError, match="no such stream; there are a, b"):
        op.push(z=rows["a"])
    with pytest.raises(SchemaError, match="every batch"):
        op.push(a=rows["a"].drop_columns(["row_a"]))
    with pytest.raises(InputError, match="ledger"):
        op.keep_ledger("perhaps")
    for given_, said in (
        (["a"], "two or more"),
        (["a", "a"], "a name of its own"),
        (["a", ""], "with a word"),
        ("ab", "two"),
    ):
        with pytest.raises(InputError, match=said):
            pen.MultiJoin(given_, windows=5, **HOW)
    with pytest.raises(InputError, match="no such argument"):
        pen.MultiJoin(["a", "b"], window=5, **HOW)


def test_a_state_that_is_none() -> None:
    rows = random_tables(2, 5, 2)
    state = pen.MultiJoin(schemas(rows), windows=5, **HOW).state_dict()
    for damage in ({}, {**state, "chain": b"?"}, {name: part for name, part in state.items() if name != "rows.0"}):
        with pytest.raises(StateError):
            pen.MultiJoin.from_state(damage)


def test_a_state_knows_every_argument() -> None:
    rows = random_tables(3, 40, 3)
    graph = {("a", "b"): "key0", ("b", "c"): [("key0", "<=", "key0")]}
    how: dict[str, Any] = {"on": graph, "time": "ts", "windows": {"a": 5, "b": pen.rows(3), "c": 8}}
    how |= {"evaluation": pen.every(4), "algorithm": "general", "index": {"a": "none", "b": 3, "c": "auto"}}
    want = results(pen.multijoin(rows, **how), 3)
    op = pen.MultiJoin(schemas(rows), **how)
    early = {name: int(np.searchsorted(table["ts"], 9)) for name, table in rows.items()}
    found = [op.push({name: table[: early[name]] for name, table in rows.items()})]
    op = pen.MultiJoin.from_state(op.state_dict())
    found += [op.push({name: table[early[name] :] for name, table in rows.items()}), op.finish()]
    assert want == results(pa.concat_tables(found), 3)
    assert isinstance(op.report().orders[0].order, dict)


def test_whole_tables_have_neither_lateness_nor_shards() -> None:
    rows = random_tables(2, 5, 2)
    for given_ in ({"lateness": 3}, {"shards": 2}):
        with pytest.raises(InputError, match="leave it"):
            pen.run(rows, windows=5, **HOW, **given_)
