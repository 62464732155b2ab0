"""Joins on sets and numbers are what brute force says."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from penstock.core.probing import UNTOUCHED
from penstock.core.sets import SEALED
from penstock.errors import (
    BudgetError,
    ColumnError,
    ConditionError,
    InputError,
    KeyTypeError,
    StateError,
    WindowError,
)
from penstock.streams.keys import Coder
from set_oracles import Row, pairs

SETS: dict[str, float] = {"overlap": 2, "set_equal": 0, "contains": 0, "contained_in": 0, "inner_product": 1.5}
INTS, WORDS = pa.list_(pa.int32()), pa.large_list(pa.string())
WEIGHTED = {
    "map": pa.map_(pa.string(), pa.float64()),
    "structs": pa.list_(pa.struct([("item", pa.string()), ("weight", pa.float32())])),
}


def condition(name: str, bound: float, *, index: bool = True) -> Any:
    if name == "band":
        return pen.band("value", within=bound)
    if name in {"overlap", "inner_product"}:
        return getattr(pen, name)("value", at_least=int(bound) if name == "overlap" else bound, index=index)
    return getattr(pen, name)("value", index=index)


def table(rows: list[Row], kind: pa.DataType, first: int = 0) -> pa.Table:
    values = [value for _, value in rows]
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        values = [None if v is None else [{"item": i, "weight": w} for i, w in v] for v in values]
    return pa.table(
        {
            "ts": pa.array([ts for ts, _ in rows], pa.int64()),
            "value": pa.array(values, kind),
            "row": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )


def joined(result: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(result["row_left"].to_pylist(), result["row_right"].to_pylist(), strict=True))


items = st.one_of(st.none(), *[st.integers(-1, 4)] * 9)
sets = st.one_of(st.none(), *[st.lists(items, max_size=6)] * 9)
eighths = st.integers(0, 16).map(lambda n: n / 8)
weighted = st.lists(st.tuples(st.sampled_from("abcde"), eighths), max_size=5)
gaps = st.sampled_from([0, 0, 0, 1, 1, 2, 9])


@st.composite
def sides(draw: st.DrawFn, values: Any) -> tuple[list[Row], list[Row]]:
    both: tuple[list[Row], list[Row]] = ([], [])
    for rows in both:
        now = draw(st.integers(-2, 2))
        for gap, value in draw(st.lists(st.tuples(gaps, values), max_size=25)):
            now += gap
            rows.append((now, value))
    return both


@settings(deadline=None, max_examples=60)
@given(
    rows=sides(sets),
    name=st.sampled_from([*SETS]),
    spans=st.tuples(*[st.integers(1, 12)] * 2),
    index=st.booleans(),
    text=st.booleans(),
)
def test_sets_are_joined_as_brute_force_joins_them(
    rows: tuple[list[Row], list[Row]], name: str, spans: tuple[int, int], *, index: bool, text: bool
) -> None:
    bound = SETS[name]
    want = pairs(name, bound, *rows, spans)
    if text:
        rows = tuple(
            [(ts, v if v is None else [i if i is None else f"w{i}" for i in v]) for ts, v in r] for r in rows
        )  # type: ignore[assignment]
    left, right = (table(side, WORDS if text else INTS) for side in rows)
    result = pen.run(left, right, on=condition(name, bound, index=index), time="ts", window=spans)
    assert want == joined(result.table)
    assert result.report.balanced
    assert result.report.pairs == len(want)


@settings(deadline=None, max_examples=40)
@given(rows=sides(weighted), kind=st.sampled_from([*WEIGHTED]), eighth=st.integers(1, 24), index=st.booleans())
def test_inner_products_are_summed_as_brute_force_sums_them(
    rows: tuple[list[Row], list[Row]], kind: str, eighth: int, *, index: bool
) -> None:
    bound = eighth / 8
    want = pairs("inner_product", bound, *rows, (7, 7))
    left, right = (table(side, WEIGHTED[kind]) for side in rows)
    on = condition("inner_product", bound, index=index)
    assert want == joined(pen.join(left, right, on=on, time="ts", window=7))


numbers = st.one_of(
    st.none(), st.sampled_from([float("nan"), float("inf")]), *[st.integers(0, 40).map(lambda n: n / 4)] * 9
)


@settings(deadline=None, max_examples=40)
@given(sides(numbers), st.integers(0, 8))
def test_numbers_in_a_band_meet(rows: tuple[list[Row], list[Row]], fourths: int) -> None:
    want = pairs("band", fourths / 4, *rows, (7, 3))
    left, right = (table(side, pa.float32()) for side in rows)
    assert want == joined(pen.join(left, right, on=condition("band", fourths / 4), time="ts", window=(7, 3)))


@settings(deadline=None, max_examples=30)
@given(data=st.data(), index=st.booleans())
def test_late_rows_and_any_cut_give_the_same_pairs(data: st.DataObject, *, index: bool) -> None:
    rows: list[list[Row]] = [[], []]
    op = pen.Join(on=condition("overlap", 2, index=index), time="ts", window=6, lateness=4)
    got, now = [], 0
    for _ in range(data.draw(st.integers(1, 8))):
        pushed = []
        for side in range(2):
            batch = []
            for gap, back, value in data.draw(st.lists(st.tuples(gaps, st.integers(0, 2), sets), max_size=6)):
                now += min(gap, 2) if side == 0 else 0
                batch.append((max(now - back, 0), value))
            pushed.append(table(batch, INTS, len(rows[side])))
            rows[side] += batch
        got.append(op.push(left=pushed[0], right=pushed[1]))
        if data.draw(st.booleans()):
            op = pen.Join.from_state(op.state_dict())
    got.append(op.finish())
    ledger = op.ledger()
    late = {(s, a) for s, a in zip(ledger["side"].to_pylist(), ledger["arrival"].to_pylist(), strict=True)}
    want = [p for p in pairs("overlap", 2, rows[0], rows[1], (6, 6)) if not {("left", p[0]), ("right", p[1])} & late]
    assert want == joined(pa.concat_tables(got))
    assert op.report().balanced


def test_windows_grow_and_forget() -> None:
    rng = np.random.default_rng(3)
    both = [
        [(n // 2, rng.choice(60, size=rng.integers(0, 40)).tolist()) for n in range(3000)],
        [(n // 2, rng.choice(60, size=rng.integers(0, 9)).tolist()) for n in range(3000)],
    ]
    tables = [table(rows, INTS) for rows in both]
    found = []
    for index in (True, False):
        op = pen.Join(on=condition("overlap", 4, index=index), time="ts", window=100)
        parts = [op.push(left=tables[0][at : at + 200], right=tables[1][at : at + 200]) for at in range(0, 3000, 200)]
        found.append(joined(pa.concat_tables(parts)))
        assert op.report().memory_rows < 1200
    exact = pairs("overlap", 4, both[0][:300], both[1][:300], (100, 100))
    assert found[0] == found[1]
    assert exact == [(i, j) for i, j in found[0] if i < 300 and j < 300]


def test_items_that_come_again_where_their_links_were_are_found_once() -> None:
    """There is room for 1,024 postings: each item comes again so many later, in the place of what has expired."""
    rows: list[Row] = [(ts, [4 * (ts % 256) + n for n in range(4)]) for ts in range(1500)]
    side = table(rows, INTS)
    op = pen.Join(schemas=(side.schema, side.schema), on=condition("overlap", 1), time="ts", window=200)
    got = [op.push(left=side[at : at + 4], right=side[at : at + 4]) for at in range(0, len(rows), 4)]
    core: Any = op._core
    assert core.shelf.link.shape[1] == 1024
    assert joined(pa.concat_tables(got)) == [(row, row) for row in range(1500)]


def test_a_large_window_is_not_laid_down_anew_for_a_small_one() -> None:
    rng = np.random.default_rng(5)
    rows: list[Row] = [(ts, rng.choice(500, 5, replace=False).tolist()) for ts in range(4000)]
    both = table(rows, INTS)
    op = pen.Join(schemas=(both.schema, both.schema), on=condition("overlap", 3), time="ts", window=(10_000, 20))
    got = [op.push(left=both[:2000], right=both[2000:2050])]
    core: Any = op._core
    before = core.shelf.marks[SEALED : SEALED + 2].copy()
    got += [op.push(right=both[at : at + 50]) for at in range(2050, 4000, 50)]
    after = core.shelf.marks[SEALED : SEALED + 2]
    assert after[0] == before[0]
    assert after[1] > before[1] + 4 * 1024
    want = pairs("overlap", 3, rows[:2000], rows[2000:], (10_000, 20))
    assert [(i, j + 2000) for i, j in want] == joined(pa.concat_tables(got))


def test_another_window_holds_for_what_counts_the_pairs_and_is_saved() -> None:
    rng = np.random.default_rng(1)
    rows: list[list[Row]] = [[(ts, rng.integers(0, 12, 3).tolist()) for ts in range(400)] for _ in range(2)]
    left, right = (table(side, INTS) for side in rows)
    reports = []
    for memory, saved in ((None, False), (None, True), (30, False), (30, True)):
        how: dict[str, Any] = {"on": condition("overlap", 2), "time": "ts", "window": 20, "memory": memory}
        op = pen.Join(schemas=(left.schema, right.schema), **how)
        for at in range(0, 400, 50):
            if at == 200:
                op.resize(window=90)
            if saved:
                op = pen.Join.from_state(op.state_dict())
            op.push(left=left[at : at + 50], right=right[at : at + 50])
        reports.append(op.report())
    exact, again, bounded, after = reports
    assert exact.pairs == again.pairs > 2 * len(pairs("overlap", 2, rows[0], rows[1], (20, 20)))
    assert bounded.pairs == after.pairs < exact.pairs
    for report in (bounded, after):
        assert report.exact_estimate == (exact.pairs, exact.pairs, exact.pairs)


def test_weights_whose_products_vanish_touch_a_row_once() -> None:
    """The product of two such weights is 0: each partner is looked at once all the same, and not for each item."""
    rows: list[Row] = [(1, dict.fromkeys("abcde", 1e-200) | {"z": 1.0})]
    left, right = table(rows, WEIGHTED["map"]), table(rows * 400, WEIGHTED["map"])
    how: dict[str, Any] = {"on": pen.inner_product("value", at_least=0.5), "time": "ts", "window": 5}
    op = pen.Join(schemas=(left.schema, right.schema), **how)
    op.push(right=right)
    core: Any = op._core
    core._touched.fill(-1)
    assert op.push(left=left).num_rows == 400
    assert len(set(core._touched[:400])) == 400
    assert (core._touched[401:] == -1).all()  # one place is room for writing ahead
    assert (core._score == UNTOUCHED).all()


def test_pandas_in_pandas_out_and_pairs_of_columns() -> None:
    left = pa.table({"ts": [1], "tags": [[1, 2, 3]]}).to_pandas()
    right = pa.table({"ts": [2], "words": [[3, 1]]}).to_pandas()
    got = pen.join(left, right, on=pen.contains(("tags", "words")), time="ts", window=5)
    assert [list(got["tags"][0]), list(got["words"][0])] == [[1, 2, 3], [3, 1]]
    assert pen.join(left, right, on=pen.contained_in(("tags", "words")), time="ts", window=5).empty


def test_items_whose_codes_collide_join_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coder, "code", lambda _, columns: (np.zeros(len(columns[0]), np.int64), None))
    left, right = table([(1, ["a"]), (2, ["b"])], WORDS), table([(3, ["b"]), (3, ["c"])], WORDS)
    for name, bound in (("overlap", 1.0), ("set_equal", 0.0), ("contains", 0.0), ("inner_product", 1.0)):
        result = pen.run(left, right, on=condition(name, bound), time="ts", window=9)
        assert joined(result.table) == [(1, 0)]
        assert result.report.pairs == 1


LEFT = pa.table(
    {"ts": [1], "value": pa.array([[1]], INTS), "price": [1.5], "w": pa.array([[("a", -1.0)]], WEIGHTED["map"])}
)


@pytest.mark.parametrize(
    ("error", "on", "options", "says"),
    [
        (ConditionError, pen.overlap("price", at_least=1), {}, "double on the left; use lists"),
        (ConditionError, pen.band("value", within=1), {}, "use a column of numbers"),
        (ConditionError, pen.inner_product("w", at_least=1), {}, "a weight of -1 in row 0"),
        (KeyTypeError, pen.overlap(("value", "w"), at_least=1), {}, "int32 on the left and string on the right"),
        (ColumnError, pen.overlap("words", at_least=1), {}, "no such column on the left"),
        (WindowError, pen.contains("value"), {"window": pen.rows(3)}, "give a span of time"),
        (BudgetError, pen.contains("value"), {"memory": "1MB"}, "give a number of rows"),
        (BudgetError, pen.contains("value"), {"per_key": 1}, "there are no keys"),
    ],
)
def test_what_cannot_be_joined_is_said(error: type[Exception], on: Any, options: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        pen.join(LEFT, LEFT, on=on, time="ts", **{"window": 5, **options})


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: pen.overlap("a", at_least=0), "at_least"),
        (lambda: pen.overlap("a", at_least=1.5), "at_least"),  # type: ignore[arg-type]
        (lambda: pen.overlap("a", at_least=1, index="time"), "index"),
        (lambda: pen.inner_product("a", at_least=0), "at_least"),
        (lambda: pen.band("a", within=-1), "within"),
        (lambda: pen.band(3, within=1), "band"),
    ],
)
def test_bounds_and_columns_are_checked_at_once(make: Any, argument: str) -> None:
    with pytest.raises(InputError, match=argument):
        make()


def test_only_joins_take_conditions() -> None:
    on = pen.overlap("value", at_least=1)
    how: dict[str, Any] = {"on": on, "time": "ts", "window": 5}
    for call in (
        lambda: pen.compare(LEFT, LEFT, policies=["rand"], memory=[1], **how),
        lambda: pen.optimum(LEFT, LEFT, memory=1, **how),
    ):
        with pytest.raises(ConditionError, match="name key columns"):
            call()
    op = pen.Join(**how)
    op.push(left=LEFT, right=LEFT)
    with pytest.raises(StateError, match="start afresh"):
        op.changed(seed=1)


def test_conditions_print_as_they_are_written() -> None:
    shown = [str(c) for c in (pen.overlap("a", at_least=3), pen.contains(("a", "b")), pen.band("p", within=0.5))]
    assert shown == ["overlap('a', at_least=3)", "contains(('a', 'b'))", "band('p', within=0.5)"]


@pytest.mark.parametrize("cpu", [None, pen.cpu(comparisons_per_second=1e9, basic_window=3)])
def test_room_made_for_a_burst_is_given_back_and_its_places_are_used_again(cpu: Any) -> None:
    rng = np.random.default_rng(6)
    sides: list[list[Row]] = []
    for surge in (20_000, 3):
        many = [surge if ts == 40 else 3 for ts in range(160)]
        sides.append([(ts, rng.integers(0, 400, 4).tolist()) for ts, count in enumerate(many) for _ in range(count)])
    tables = [table(side, pa.list_(pa.int64())) for side in sides]
    on = condition("overlap", 2)
    op = pen.Join(on=on, time="ts", window=12, cpu=cpu, schemas=(tables[0].schema, tables[1].schema))
    found, room = [], []
    for ts in range(160):
        parts = [each.filter(pa.compute.equal(each["ts"], ts)) for each in tables]
        found.append(op.push(left=parts[0], right=parts[1]))
        room.append(op._core.shelf.stamp.shape[1])  # type: ignore[union-attr]
    assert max(room) > 16 * room[-1]
    assert pairs("overlap", 2, sides[0], sides[1], (12, 12)) == joined(pa.concat_tables([*found, op.finish()]))
