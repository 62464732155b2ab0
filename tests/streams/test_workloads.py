"""The synthetic streams have the shapes that the papers describe."""

import time
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InputError
from penstock.streams import workloads

ROWS = 20_000


def shares(table: pa.Table, keys: int) -> npt.NDArray[np.float64]:
    share: npt.NDArray[np.float64] = np.bincount(table["key"].to_numpy(), minlength=keys) / table.num_rows
    return share


def ranked(chances: dict[int, float]) -> list[int]:
    return sorted(chances, key=lambda key: -chances[key])


@pytest.mark.parametrize("skew", [0.0, 0.5, 1.0, 2.0])
def test_the_chances_are_zipf(skew: float) -> None:
    streams = workloads.zipf(10, keys=30, skew=skew)
    total = sum(rank**-skew for rank in range(1, 31))
    want = [rank**-skew / total for rank in range(1, 31)]
    for chances in (streams.left_chances, streams.right_chances):
        assert list(range(30)) == sorted(chances)
        np.testing.assert_allclose(sorted(chances.values(), reverse=True), want)


@pytest.mark.parametrize("relation", ["uncorrelated", "correlated", "anticorrelated"])
@pytest.mark.parametrize("skew", [0.0, 1.0, 2.0])
def test_rows_follow_the_chances(skew: float, relation: workloads.Relation) -> None:
    streams = workloads.zipf(ROWS, keys=20, skew=skew, relation=relation, seed=3)
    for table, chances in ((streams.left, streams.left_chances), (streams.right, streams.right_chances)):
        want = np.array([chances[key] for key in range(20)])
        sigma = np.sqrt(want * (1 - want) / ROWS)
        assert np.all(np.abs(want - shares(table, 20)) < 4.5 * sigma)


def test_a_pair_of_skews_is_left_and_right() -> None:
    streams = workloads.zipf(10, keys=8, skew=(1.0, 0.0))
    assert streams.left_chances[0] == pytest.approx(4 * streams.left_chances[3])
    assert {1 / 8} == set(streams.right_chances.values())


def test_a_very_steep_skew_leaves_one_key() -> None:
    streams = workloads.zipf(100, keys=50, skew=1000)
    assert set(streams.left["key"].to_pylist()) == {0}
    assert streams.left_chances[0] == 1.0
    assert streams.left_chances[49] == 0.0


def test_the_relation_says_which_ranks_the_right_side_has() -> None:
    left = list(range(40))
    correlated = workloads.zipf(10, keys=40, relation="correlated")
    assert left == ranked(correlated.left_chances) == ranked(correlated.right_chances)
    reversed_ = workloads.zipf(10, keys=40, relation="anticorrelated")
    assert left == ranked(reversed_.left_chances)
    assert left[::-1] == ranked(reversed_.right_chances)
    shuffled = [ranked(workloads.zipf(10, keys=40, seed=seed).right_chances) for seed in (0, 1)]
    assert left == sorted(shuffled[0])
    assert left != shuffled[0] != shuffled[1]


def test_the_sides_are_drawn_independently() -> None:
    streams = workloads.zipf(ROWS, keys=20, relation="correlated")
    want = sum(p * streams.right_chances[key] for key, p in streams.left_chances.items())
    same = np.mean(streams.left["key"].to_numpy() == streams.right["key"].to_numpy())
    assert same == pytest.approx(want, abs=0.02)


def test_uniform_is_zipf_without_skew() -> None:
    want = workloads.zipf((50, 60), keys=7, skew=0, relation="correlated", rate=2, payload=3, seed=5)
    assert want == workloads.uniform((50, 60), keys=7, rate=2, payload=3, seed=5)


@pytest.mark.parametrize(
    ("rate", "want"),
    [(1, [0, 1, 2, 3, 4, 5]), (3, [0, 0, 0, 1, 1, 1]), (0.5, [0, 2, 4, 6, 8, 10]), (1.5, [0, 0, 1, 2, 2, 3])],
)
def test_rates_are_rows_per_tick(rate: float, want: list[int]) -> None:
    assert want == workloads.zipf(6, rate=rate).left["ts"].to_pylist()
    assert want == workloads.zipf(6, rate=(7, rate)).right["ts"].to_pylist()


def test_a_pair_of_rows_is_left_and_right() -> None:
    streams = workloads.zipf((3, 5))
    assert streams.left.num_rows == 3
    assert streams.right.num_rows == 5


@given(st.fractions(Fraction(1, 100), 100, max_denominator=1000), st.integers(1, 2000))
def test_a_rate_given_as_a_float_is_exact(rate: Fraction, rows: int) -> None:
    want = [row * rate.denominator // rate.numerator for row in range(rows)]
    assert want == workloads.zipf(rows, rate=float(rate)).left["ts"].to_pylist()


def test_the_columns_are_what_was_asked_for() -> None:
    want = pa.schema([("ts", pa.int64()), ("key", pa.int64())])
    assert want == workloads.zipf(5).left.schema
    want = want.append(pa.field("payload", pa.binary())).append(pa.field("importance", pa.float64()))
    streams = workloads.zipf(5, payload=9, importance="rare")
    for table in (streams.left, streams.right):
        table.validate(full=True)
        assert want == table.schema
        assert {9} == {len(value) for value in table["payload"].to_pylist()}
        assert len(set(table["payload"].to_pylist())) == 5


def test_no_rows_make_empty_tables() -> None:
    streams = workloads.zipf(0, payload=4, importance="special_keys")
    assert streams.left.column_names == ["ts", "key", "payload", "importance"]
    assert streams.right.num_rows == 0
    assert workloads.surge(0).left.num_rows == 0


def test_rare_importance_does_not_depend_on_the_key() -> None:
    table = workloads.zipf(ROWS, keys=4, importance="rare").left
    importance, key = table["importance"].to_numpy(), table["key"].to_numpy()
    assert {1.0, 20.0} == set(importance)
    for one in range(4):
        assert np.mean(importance[key == one] == 20.0) == pytest.approx(0.05, abs=0.015)


@pytest.mark.parametrize(("keys", "special"), [(100, 5), (50, 2), (5, 1), (1, 1)])
def test_special_keys_are_special_on_both_sides(keys: int, special: int) -> None:
    streams = workloads.zipf(ROWS, keys=keys, skew=0, importance="special_keys")
    important = []
    for table in (streams.left, streams.right):
        rare = table["importance"].to_numpy() == 20.0
        key = table["key"].to_numpy()
        important.append(set(key[rare].tolist()))
        assert set() == important[-1] & set(key[~rare].tolist())
    assert special == len(important[0])
    assert important[0] == important[1]


def test_the_seed_decides_everything() -> None:
    def made(seed: int) -> workloads.Workload:
        return workloads.zipf(200, payload=4, importance="rare", seed=seed)

    assert made(1) == made(1)
    for column in ("key", "payload", "importance"):
        assert made(1).left[column] != made(2).left[column]


def test_streams_are_the_same_on_every_machine() -> None:
    streams = workloads.zipf(10, keys=50, payload=2, seed=42)
    want = [27, 29, 3, 33, 2, 0, 26, 9, 3, 7]
    assert want == streams.left["key"].to_pylist()
    want = [34, 46, 21, 11, 14, 28, 0, 3, 2, 0]
    assert want == streams.right["key"].to_pylist()
    want_bytes = bytes.fromhex("6ecd18ada2ee0ef7beb6cbdc9e1bfaed23a44aa5")
    assert want_bytes == b"".join(streams.left["payload"].to_pylist())


def test_more_columns_leave_times_and_keys_as_they_are() -> None:
    bare = workloads.zipf(100, seed=4)
    full = workloads.zipf(100, payload=10, importance="special_keys", seed=4)
    assert bare.left == full.left.select(["ts", "key"])
    assert bare.right == full.right.select(["ts", "key"])


def test_a_surge_packs_its_rows_into_few_ticks() -> None:
    calm = workloads.zipf(1000, keys=9, seed=2)
    streams = workloads.surge(1000, keys=9, seed=2)
    for table, like in ((streams.left, calm.left), (streams.right, calm.right)):
        assert like["key"] == table["key"]
        per_tick = np.bincount(table["ts"].to_numpy())
        want = [1] * 400 + [10] * 20 + [1] * 400
        assert want == per_tick.tolist()


@given(st.integers(0, 60), st.integers(1, 12), st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted))
def test_a_surge_leaves_no_tick_out(rows: int, factor: int, at: list[float]) -> None:
    ts = workloads.surge(rows, factor=factor, at=(at[0], at[1])).left["ts"].to_pylist()
    assert list(range(len(set(ts)))) == sorted(set(ts))
    assert sorted(ts) == ts


def test_a_million_rows_over_a_million_keys_take_about_a_second() -> None:
    start = time.perf_counter()
    workloads.zipf(10**6, keys=10**6)
    assert time.perf_counter() - start < 10  # a loaded machine; alone it is well under one second


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("rows", {"rows": -1}),
        ("rows", {"rows": 1e6}),
        ("rows", {"rows": (1, 2, 3)}),
        ("keys", {"keys": 0}),
        ("skew", {"skew": -1}),
        ("skew", {"skew": (1.0, float("nan"))}),
        ("relation", {"relation": "opposite"}),
        ("rate", {"rate": 0}),
        ("rate", {"rate": (1, float("inf"))}),
        ("rate", {"rate": 1e-9}),
        ("payload", {"payload": -1}),
        ("payload", {"rows": 2**16, "payload": 2**15}),
        ("importance", {"importance": True}),
        ("seed", {"seed": -1}),
    ],
)
def test_a_wrong_argument_is_named(argument: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as raised:
        workloads.zipf(**{"rows": 10, **options})
    assert argument == raised.value.argument


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("rows", {"rows": (1, 2)}),
        ("factor", {"factor": 0.5}),
        ("at", {"at": (0.6, 0.4)}),
        ("at", {"at": (0, 2)}),
    ],
)
def test_a_wrong_argument_of_a_surge_is_named(argument: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as raised:
        workloads.surge(**{"rows": 10, **options})
    assert argument == raised.value.argument
