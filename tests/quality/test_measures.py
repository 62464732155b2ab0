"""The set measures are what their definitions say, by brute force on small multisets."""

import math
from collections import Counter
from itertools import permutations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pen
from penstock.errors import SchemaError
from penstock.quality.measures import cheapest_cover, earth_movers, match_and_compare, measures
from penstock.streams.workloads import zipf

ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.sampled_from(["a", "b"])), max_size=8)
MATRICES = st.integers(1, 3).flatmap(
    lambda wide: st.lists(st.lists(st.integers(0, 9), min_size=wide, max_size=wide), min_size=1, max_size=3)
)


def rows(data: list[Any]) -> pa.Table:
    return pa.table(
        {"n": pa.array([n for n, _ in data], pa.int64()), "s": pa.array([s for _, s in data], pa.string())}
    )


@given(ROWS, ROWS)
def test_coefficients_of_multisets(x: list[Any], y: list[Any]) -> None:
    got = measures(rows(x), rows(y))
    both = (Counter(x) & Counter(y)).total()
    either = (Counter(x) | Counter(y)).total()
    only = (Counter(x) - Counter(y)).total() + (Counter(y) - Counter(x)).total()
    assert (only, both) == (got.max_subset, got.matching)
    if x and y:
        assert 2 * both / (len(x) + len(y)) == pytest.approx(got.dice)
        assert both / either == pytest.approx(got.jaccard)
        assert both / math.sqrt(len(x) * len(y)) == pytest.approx(got.cosine)
        assert both / min(len(x), len(y)) == pytest.approx(got.overlap)
    elif not x and not y:
        assert (1, 1, 1, 1) == (got.dice, got.jaccard, got.cosine, got.overlap)
    assert (None, None) == (got.emd, got.mac)


@given(MATRICES)
def test_work_to_move_is_the_least_of_all_assignments(matrix: list[list[int]]) -> None:
    distance = np.array(matrix, np.float64)
    short = distance if distance.shape[0] <= distance.shape[1] else distance.T
    want = min(
        sum(short[i, j] for i, j in enumerate(columns)) for columns in permutations(range(short.shape[1]), len(short))
    )
    assert want == earth_movers(distance)


@given(MATRICES)
def test_no_cover_is_cheaper(matrix: list[list[int]]) -> None:
    distance = np.array(matrix, np.float64)
    cover = cheapest_cover(distance)
    assert cover.any(axis=0).all()
    assert cover.any(axis=1).all()
    all_covers = (np.array(bits).reshape(distance.shape) for bits in product([False, True], repeat=distance.size))
    want = min(distance[some].sum() for some in all_covers if some.any(axis=0).all() and some.any(axis=1).all())
    assert want == distance[cover].sum()
    assert match_and_compare(distance) >= want


def test_a_row_that_stands_for_two_weighs_twice() -> None:
    assert 2 * (3 + 4) == match_and_compare(np.array([[3.0, 4.0]]))
    assert 3 + 4 == match_and_compare(np.array([[3.0, 9.0], [9.0, 4.0]]))
    assert math.inf == match_and_compare(np.empty((0, 2)))
    assert match_and_compare(np.empty((0, 0))) == 0


def test_a_subset_loses_only_what_is_missing() -> None:
    streams = zipf(120, keys=6, seed=2)
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 9}
    exact = pen.join(streams.left, streams.right, **how)
    some = pen.join(streams.left, streams.right, memory=6, **how)
    got = measures(some, exact, lambda row, other: abs(row["ts_left"] - other["ts_left"]))
    assert exact.num_rows - some.num_rows == got.max_subset > 0
    assert some.num_rows == got.matching
    assert (1.0, 0.0) == (got.overlap, got.emd)
    assert got.mac is not None


def test_other_columns_are_refused() -> None:
    with pytest.raises(SchemaError, match=r"approximate: got columns .*int64.*; the exact result has"):
        measures(rows([]), rows([]).select(["n"]))
