"""The static join keeps what brute force keeps: by numbers of keys, and by rows of tables."""

from collections import Counter
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from oracles import truncated, truncated_by_side
from penstock.errors import BudgetError, ColumnError, InputError, KeyTypeError
from penstock.optimum import static
from penstock.optimum.static import Quota, approximate, pairs_of, plan

Counts = list[tuple[int, ...]]


def classes(counts: Counts) -> tuple[Any, Any]:
    found = Counter(counts)
    return np.array(list(found), np.int64).reshape(len(found), -1).T, np.array(list(found.values()), np.int64)


def planned(counts: Counts, keep: Any) -> tuple[list[Quota], int]:
    (m, n), keys = classes(counts)
    return plan(m, n, keys, keep)


def check(quotas: list[Quota], counts: Counts, keep: Any) -> None:
    """Every key has one quota, which asks for no more than it has; all together keep as many as they must."""
    keys: Counter[tuple[int, ...]] = Counter()
    for quota in quotas:
        assert quota.keys > 0
        assert all(0 <= kept <= count for kept, count in zip(quota.kept, quota.counts, strict=True))
        keys[quota.counts] += quota.keys
    assert keys == Counter(counts)
    kept = [
        sum(quota.keys * number for quota, number in zip(quotas, side, strict=True))
        for side in zip(*(q.kept for q in quotas), strict=True)
    ]
    assert (tuple(kept) if isinstance(keep, tuple) else sum(kept)) == keep


def pairs(high: int, keys: int) -> Any:
    return st.lists(st.tuples(st.integers(0, high), st.integers(0, high)), min_size=1, max_size=keys)


@settings(max_examples=300, deadline=None)
@given(pairs(9, 9), st.data())
def test_as_many_pairs_as_the_recurrence_of_the_paper(counts: Counts, data: Any) -> None:
    keep = data.draw(st.integers(0, sum(map(sum, counts))))
    quotas, bound = planned(counts, keep)
    check(quotas, counts, keep)
    assert truncated(counts, keep) == pairs_of(quotas) == bound  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=5), st.data())
def test_large_keys_are_kept_in_part(counts: Counts, data: Any) -> None:
    keep = data.draw(st.integers(0, sum(map(sum, counts))))
    quotas, bound = planned(counts, keep)
    check(quotas, counts, keep)
    assert truncated(counts, keep) == pairs_of(quotas) == bound  # type: ignore[arg-type]
    assert sum(quota.keys for quota in quotas if 0 < min(quota.kept) and quota.kept != quota.counts) <= 1


@settings(max_examples=300, deadline=None)
@given(pairs(5, 5), st.data())
def test_a_budget_for_each_side(counts: Counts, data: Any) -> None:
    keep = tuple(data.draw(st.integers(0, sum(key[side] for key in counts))) for side in range(2))
    quotas, bound = planned(counts, keep)
    check(quotas, counts, keep)
    assert truncated_by_side(counts, keep) == pairs_of(quotas) == bound


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=4), st.data())
def test_three_relations_lose_at_most_three_times_what_must_be_lost(counts: Counts, data: Any) -> None:
    keep = tuple(data.draw(st.integers(0, sum(key[side] for key in counts))) for side in range(3))
    quotas, bound = approximate(*classes(counts), keep)
    check(quotas, counts, keep)
    everything = sum(a * b * c for a, b, c in counts)
    best = truncated_by_side(counts, keep)
    assert pairs_of(quotas) <= best <= bound <= everything
    assert everything - pairs_of(quotas) <= 3 * (everything - best)


def test_a_search_that_takes_too_long_ends_in_a_good_choice_and_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    counts: Counts = [tuple(map(int, key)) for key in rng.integers(20, 60, (40, 2))]
    keep = sum(map(sum, counts)) // 2
    best = pairs_of(planned(counts, keep)[0])
    for work in (0, 3000, 20_000):
        monkeypatch.setattr(static, "MOST_WORK", work)
        quotas, bound = planned(counts, keep)
        check(quotas, counts, keep)
        assert 0.98 * best < pairs_of(quotas) <= best <= bound < 1.02 * best


def test_a_key_with_too_many_pairs_is_refused() -> None:
    with pytest.raises(InputError, match="keep: got a key of more than 1,125,899,906,842,624 pairs"):
        planned([(1 << 26, 1 << 26)], 5)


# --- tables -------------------------------------------------------------------------------------------------------


def tables(rows: list[list[Any]], kind: pa.DataType | None = None) -> list[pa.Table]:
    return [pa.table({"key": pa.array(keys, kind), f"row{at}": range(len(keys))}) for at, keys in enumerate(rows)]


def joined(kept: pen.Truncated) -> int:
    counts = [Counter(rows["key"].to_pylist()) for rows in kept.relations]
    return sum(prod(count[key] for count in counts) for key in counts[0] if key is not None)


KEYS = st.lists(st.one_of(st.none(), st.sampled_from(["", "a", "b", "c", "dd"])), max_size=12)


@settings(max_examples=150, deadline=None)
@given(KEYS, KEYS, st.data())
def test_tables_keep_rows_whose_join_is_as_large_as_it_can_be(left: list[Any], right: list[Any], data: Any) -> None:
    counts = [(left.count(key), right.count(key)) for key in {*left, *right} - {None}]
    lonely = [(left.count(None), 0), (0, right.count(None))]
    size = len(left) + len(right)
    drop = data.draw(st.integers(0, size))
    kept = pen.truncate(*tables([left, right], pa.string()), on="key", drop=drop)
    assert size - drop == sum(rows.num_rows for rows in kept.relations)
    assert truncated([*counts, *lonely], size - drop) == joined(kept) == kept.pairs == kept.bound
    sides = data.draw(st.tuples(st.integers(0, len(left)), st.integers(0, len(right))))
    kept = pen.truncate(*tables([left, right], pa.string()), on="key", keep=sides)
    assert sides == tuple(rows.num_rows for rows in kept.relations)
    assert truncated_by_side([*counts, *lonely], sides) == joined(kept) == kept.pairs == kept.bound
    for rows, given_ in zip(kept.relations, (left, right), strict=True):
        numbers = rows[rows.column_names[1]].to_pylist()
        assert [given_[number] for number in numbers] == rows["key"].to_pylist()
        assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("left", "right", "on"),
    [
        (pa.array([1, 1, 2], pa.int8()), pa.array([2, 1, 1], pa.int64()), ("k", "k2")),
        (pa.array([1.5, float("nan"), 0.0]), pa.array([float("nan"), -0.0, 9.0]), ("k", "k2")),
        (pa.array(["x", "y", "x"]), pa.array(["x", "z", "y"]).dictionary_encode(), [("k", "k2")]),
        (pa.array([b"x", b"y", b"x"]), pa.array([b"x", b"z", b"y"]), [("k", "k2"), ("j", "j")]),
    ],
)
def test_keys_of_many_types(left: pa.Array, right: pa.Array, on: Any) -> None:
    a, b = pa.table({"k": left, "j": [1, 1, 1]}), pa.table({"k2": right, "j": [1, 1, 1]})
    exact = pen.join(
        a.append_column("ts", pa.array([0] * 3)), b.append_column("ts", pa.array([0] * 3)), on=on, time="ts", window=1
    )
    assert exact.num_rows == pen.truncate(a, b, on=on, keep=6).pairs > 0


def test_pandas_keeps_its_index() -> None:
    pd = pytest.importorskip("pandas")
    a = pd.DataFrame({"key": [1, 1, 2], "x": ["a", "b", "c"]}, index=["p", "q", "r"])
    b = pd.DataFrame({"key": [1, 3]})
    kept = pen.truncate(a, b, on="key", keep=3)
    assert [["p", "q"], [0]] == [list(rows.index) for rows in kept.relations]
    assert kept.pairs == 2


def test_relations_without_rows() -> None:
    empty, some = tables([[], [1, 2]], pa.int64())
    kept = pen.truncate(empty, some, on="key", keep=1)
    assert (0, 0, [0, 1]) == (kept.pairs, kept.bound, [rows.num_rows for rows in kept.relations])
    assert pen.truncate(empty, empty, empty, on="key", drop=(0, 0, 0)).pairs == 0


A, B = tables([[1, 1, 2], [1, 2, 2]])
WRONG: list[tuple[tuple[Any, ...], dict[str, Any], type[InputError], str]] = [
    ((A, B), {"on": "key"}, BudgetError, "keep: got neither; give either keep= or drop="),
    ((A, B), {"on": "key", "keep": 1, "drop": 1}, BudgetError, "keep: got 1 and drop=1"),
    ((A, B), {"on": "key", "keep": 7}, BudgetError, "keep: got 7; the relations have 3 and 3 rows"),
    ((A, B), {"on": "key", "drop": (4, 0)}, BudgetError, r"drop: got \(4, 0\); the relations have 3 and 3"),
    ((A, B), {"on": "key", "keep": -1}, BudgetError, "keep: got -1; it cannot be negative"),
    ((A, B), {"on": "key", "keep": 1.5}, BudgetError, "keep: got 1.5; give a number of rows"),
    ((A, B), {"on": "key", "keep": True}, BudgetError, "keep: got True; give a number of rows"),
    ((A, B), {"on": "key", "keep": (1, 1, 1)}, BudgetError, "one for each relation"),
    ((A, B, B), {"on": "key", "keep": 3}, BudgetError, "keep: got 3; .*NP-hard: give a tuple"),
    ((A,), {"on": "key", "keep": 1}, InputError, "relations: got 1 of them; give two or more"),
    ((A, None), {"on": "key", "keep": 1}, InputError, "relation 2: got None; give an Arrow table"),
    ((A, [1]), {"on": "key", "keep": 1}, InputError, "relation 2: got list; give an Arrow table"),
    ((A, B), {"on": "kee", "keep": 1}, ColumnError, "on='kee': got no such column in relation 1; it has key, row0"),
    ((A, B), {"on": ("key",), "keep": 1}, ColumnError, "a tuple with a column for each relation"),
    ((A, B), {"on": [], "keep": 1}, ColumnError, "on: got \\[\\]; give a column"),
    ((A, tables([["x"]])[0]), {"on": "key", "keep": 1}, KeyTypeError, "on='key': got int64 on the left and string"),
]


@pytest.mark.parametrize(("relations", "arguments", "kind", "message"), WRONG)
def test_what_is_wrong_is_said(relations: Any, arguments: Any, kind: type[InputError], message: str) -> None:
    with pytest.raises(kind, match=message):
        pen.truncate(*relations, **arguments)
