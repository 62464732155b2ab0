"""Observing returns every pair and tells what a budget would have cost, exactly as the run with it does."""

from typing import Any

import pytest
from hypothesis import given, settings

import penstock as pen
from oracles import Arrival, Kind
from penstock.errors import BudgetError, InputError
from traces import (
    ANY_CUT,
    Pusher,
    drive,
    plain_table,
    pushes,
    random_trace,
    text_table,
    weighty_table,
    window,
)

WHAT = ("arrivals", "live", "expired", "shed", "pairs", "importance", "policy")


@given(**ANY_CUT)
@settings(max_examples=80, deadline=None)
def test_observing_tells_what_the_budget_would_do(
    trace: list[Arrival], spans: tuple[int, int], kind: Kind, lateness: int, ends: list[int]
) -> None:
    shape: dict[str, Any] = {"window": window(spans, kind), "lateness": lateness}
    budget: dict[str, Any] = {"memory": 4, "policy": "oldest", "per_key": 2}
    exact = drive(trace, ends, **shape)
    bounded = drive(trace, ends, **shape, **budget)
    seen = drive(trace, ends, **shape, **budget, mode="observe")
    assert sorted(seen.pairs) == sorted(exact.pairs)
    assert seen.shed == bounded.shed
    for name in WHAT:
        assert getattr(seen.report, name) == getattr(bounded.report, name)
    assert seen.report.balanced
    assert seen.report.memory_rows == exact.report.memory_rows
    found, whole = bounded.report.pairs, exact.report.pairs
    assert seen.report.exact_estimate == (whole, whole, whole)
    assert seen.report.recall == ((found / whole,) * 3 if whole else (1, 1, 1))


@pytest.mark.parametrize(
    ("table", "given"),
    [
        (weighty_table, {"memory": "2kB", "importance": "weight", "combine": "sum"}),
        (text_table, {"memory": 7, "split": "fixed"}),
        (plain_table, {"memory": 7, "split": (4, 3)}),
    ],
)
def test_budgets_of_every_kind_are_observed(table: Any, given: dict[str, Any]) -> None:
    trace = random_trace(4, 300, 6)
    bounded = drive(trace, [100], table, window=20, policy="rand", **given)
    seen = drive(trace, [100], table, window=20, policy="rand", mode="observe", **given)
    for name in WHAT:
        assert getattr(seen.report, name) == getattr(bounded.report, name)
    if "importance" in given:
        exact = drive(trace, [100], table, window=20, importance="weight", combine="sum").report
        assert seen.report.importance_estimate is not None
        assert seen.report.importance_estimate.mid == pytest.approx(exact.importance)


def test_observing_can_be_saved_resized_and_ended() -> None:
    trace = random_trace(5, 400, 6)
    whole = drive(trace, window=20)
    pusher, bounded = (Pusher(window=20, memory=6, policy="oldest", mode=mode) for mode in ("observe", "shed"))
    parts = pushes(trace, [100, 200, 300])
    for part in parts[: len(parts) // 2]:
        for one in (pusher, bounded):
            one.push(part)
            one.reborn()
    for one in (pusher, bounded):
        one.join.resize(memory=3, window=18)
        one.push(parts[len(parts) // 2])
    assert pusher.got().shed == bounded.got().shed
    pusher.join = pusher.join.changed(mode="shed", memory=3, window=20)
    for part in parts[len(parts) // 2 + 1 :]:
        pusher.push(part)
    got = pusher.finish()
    assert got.report.balanced
    assert set(got.pairs) < set(whole.pairs)
    assert got.report.recall is not None
    assert 0.5 < got.report.recall.mid < 1


def test_the_report_says_that_nothing_was_shed() -> None:
    report = drive(random_trace(1, 60, 3), window=9, memory=4, policy="oldest", mode="observe").report
    assert str(report).startswith("observed, nothing shed, policy oldest")
    assert report.to_dict()["mode"] == "observe"


def test_observing_needs_a_budget_and_a_known_mode() -> None:
    with pytest.raises(BudgetError, match="what a budget would cost"):
        pen.Join(on="key", time="ts", window=9, mode="observe")
    with pytest.raises(InputError, match="'shed', 'observe'"):
        pen.Join(on="key", time="ts", window=9, memory=3, mode="look")
