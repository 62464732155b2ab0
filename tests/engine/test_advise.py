"""Advice from a full simulation is what runs show; from samples it is close, and says how close."""

from typing import Any

import numpy as np
import pytest

import penstock as pen
from penstock.errors import BudgetError, InputError, PolicyError
from penstock.streams.workloads import Workload, zipf

SMALL = zipf(3000, keys=40, seed=1)
HOW: dict[str, Any] = {"on": "key", "time": "ts", "window": 300}


def advise(streams: Workload, **arguments: Any) -> pen.Advice:
    return pen.advise(streams.left, streams.right, **{"policy": "oldest", **HOW, **arguments})


@pytest.mark.parametrize("window", [300, (200, 350), pen.rows(250)])
def test_a_full_simulation_is_what_runs_show(window: Any) -> None:
    advice = advise(SMALL, window=window, recall=[0.3, 0.9])
    assert advice.how == "everything"
    exact = pen.run(SMALL.left, SMALL.right, **{**HOW, "window": window}).report
    for row in advice.curve.to_pylist()[::5]:
        arguments = {**HOW, "window": window, "memory": row["memory"], "policy": "oldest"}
        found = pen.run(SMALL.left, SMALL.right, **arguments).report
        assert row["recall"] == pytest.approx(found.pairs / exact.pairs)
        assert row["low"] == row["recall"] == row["high"]
    assert advice.curve["recall"][-1].as_py() > 0.99
    for row in advice.needs.to_pylist():
        arguments = {**HOW, "window": window, "memory": row["memory"], "policy": "oldest"}
        assert pen.run(SMALL.left, SMALL.right, **arguments).report.pairs / exact.pairs == pytest.approx(
            row["recall"], abs=0.03
        )


def test_a_cap_on_keys_lowers_recall() -> None:
    assert advise(SMALL, per_key=1).curve["recall"][-1].as_py() < 0.9


@pytest.mark.parametrize(
    ("how", "streams", "window"),
    [
        ("keys", zipf(30_000, keys=4000, skew=0.0, seed=2), 6000),
        ("stretches", zipf(60_000, keys=40, seed=3), 100),
    ],
)
def test_samples_come_close_at_a_part_of_the_rows(how: str, streams: Workload, window: int) -> None:
    wanted = [0.5, 0.8, 0.95]
    want = advise(streams, window=window, recall=wanted, sample=1)
    got = advise(streams, window=window, recall=wanted, sample=0.1)
    assert (want.how, got.how) == ("everything", how)
    assert got.share == pytest.approx(0.1, rel=0.2)
    assert np.array(got.needs["memory"]) == pytest.approx(np.array(want.needs["memory"]), rel=0.1)
    for row in got.curve.to_pylist():
        assert row["low"] <= row["recall"] <= row["high"]
    assert any(row["low"] < row["high"] for row in got.needs.to_pylist())


def test_several_policies_and_shares_stand_side_by_side() -> None:
    advice = advise(SMALL, policy=["oldest", pen.policy("prob")], recall=[0.5, 0.9], split="fixed")
    assert [(row["policy"], row["recall"]) for row in advice.needs.to_pylist()] == [
        ("oldest", 0.5),
        ("oldest", 0.9),
        ("prob", 0.5),
        ("prob", 0.9),
    ]
    needs = advice.needs["memory"].to_pylist()
    assert needs[0] < needs[1] <= advice.exact
    assert needs[2] < needs[0]  # on skewed keys PROB needs less
    assert advice.memory == needs[0]
    assert "oldest: " in str(advice)
    assert set(advice.to_dict()) == {"needs", "curve", "exact", "share", "how", "seconds"}


def test_pandas_is_taken_too() -> None:
    frames = SMALL.left.to_pandas(), SMALL.right.to_pandas()
    assert pen.advise(*frames, **HOW, policy="oldest").memory == advise(SMALL).memory


@pytest.mark.parametrize(
    ("wrong", "error", "word"),
    [
        ({"recall": 1.5}, BudgetError, "between 0 and 1"),
        ({"recall": []}, BudgetError, "between 0 and 1"),
        ({"policy": []}, PolicyError, "at least one"),
        ({"policy": pen.policy("replay", schedule={"side": [], "row": [], "until": []})}, PolicyError, "pen.compare"),
        ({"sample": 0}, InputError, "more than 0"),
        ({"split": (1, 2)}, BudgetError, "add up"),
    ],
)
def test_what_cannot_be_asked_is_refused(wrong: dict[str, Any], error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        advise(SMALL, **wrong)


def test_without_pairs_nothing_is_lost() -> None:
    streams = zipf(200, keys=9, seed=1)
    other = streams.right.set_column(1, "key", [[100 + row for row in range(200)]])
    advice = pen.advise(streams.left, other, **HOW, policy="oldest")
    assert advice.curve["recall"].to_pylist() == [1.0] * advice.curve.num_rows


@pytest.mark.parametrize("window", [6000, pen.rows(6000)])
def test_few_keys_that_carry_the_result_are_not_left_to_chance(window: Any) -> None:
    streams = zipf(60_000, keys=6000, relation="correlated", seed=4)
    wanted = [0.5, 0.8, 0.95]
    want = advise(streams, window=window, recall=wanted, policy="prob", sample=1)
    for seed in range(3):
        got = advise(streams, window=window, recall=wanted, policy="prob", sample=0.1, seed=seed)
        assert got.how == "keys"
        assert got.exact == pytest.approx(want.exact, rel=0.01)
        assert got.curve.num_rows < want.curve.num_rows
        assert np.array(got.needs["memory"]) == pytest.approx(np.array(want.needs["memory"]), rel=0.12)


def test_importance_decides_who_stays() -> None:
    streams = zipf(3000, keys=40, importance="rare", seed=1)
    how = {**HOW, "importance": "importance", "policy": "simp"}
    exact = pen.run(streams.left, streams.right, **HOW).report.pairs
    for row in pen.advise(streams.left, streams.right, **how).curve.to_pylist()[::6]:
        found = pen.run(streams.left, streams.right, **how, memory=row["memory"]).report.pairs
        assert row["recall"] == pytest.approx(found / exact)
