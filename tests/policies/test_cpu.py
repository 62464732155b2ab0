"""Joins under a CPU budget do what the brute-force model says, and what they skip makes up the exact join."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import penstock as pen
from cpu_oracle import Did, Given, model
from penstock.core.probing import MODE, SOME, Effort
from penstock.errors import InputError, WindowError
from penstock.policies.cpu import correlation, direction, optimality, rate, utility
from penstock.policies.cpu.controller import Controller
from set_oracles import Row, pairs

METHODS = ("rate", "correlation", "direction", "selective", "random-drop")
Streams = tuple[list[Row], list[Row]]


def streams(
    seed: int, *, ticks: int = 240, each: float = 1.5, shift: int = 0, skew: float = 1.0, surge: int = 1
) -> Streams:
    """Draw sets whose popular items move on with time, on the left later by `shift`; in the middle a surge."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, 31) ** skew
    both: Streams = ([], [])
    for side, rows in enumerate(both):
        for ts in range(ticks):
            many = surge if ticks // 3 <= ts < 2 * ticks // 3 else 1
            for _ in range(rng.poisson(each * many)):
                moved = (ts - (shift if side == 0 else 0)) * 30 // 60
                items = (rng.choice(30, size=rng.integers(0, 6), p=chance / chance.sum()) + moved) % 30
                rows.append((ts, items.tolist()))
    return both


def table(rows: list[Row], kinds: list[int] | None = None) -> pa.Table:
    columns: dict[str, Any] = {
        "ts": pa.array([ts for ts, _ in rows], pa.int64()),
        "value": pa.array([value for _, value in rows], pa.list_(pa.int64())),
        "row": pa.array(range(len(rows)), pa.int64()),
    }
    return pa.table(columns | ({"kind": pa.array(kinds, pa.int64())} if kinds is not None else {}))


def budget(given: Given, **more: Any) -> dict[str, Any]:
    cpu = pen.cpu(
        comparisons_per_second=given.speed,
        method=given.method,
        basic_window=given.basic,
        every=given.period,
        queue=given.queue,
        sampling=given.sampling,
        **more,
    )
    on = pen.overlap("value", at_least=given.at_least, index=False)
    return {"on": on, "time": "ts", "window": given.span, "cpu": cpu, "seed": given.seed}


def found(result: Any) -> set[tuple[int, int]]:
    return set(zip(result.table["row_left"].to_pylist(), result.table["row_right"].to_pylist(), strict=True))


def skipped(ledger: pa.Table, rows: Streams) -> dict[tuple[int, int], set[int]]:
    """Return what the ledger says was not compared: rows of the other side that were in its window, by row."""
    span = 40
    said: dict[tuple[int, int], set[int]] = {}
    for entry in ledger.to_pylist():
        if entry["reason"] == "unprobed":
            side = ("left", "right").index(entry["side"])
            partners = {j for each in entry["skipped"] for j in range(each["first"], each["end"])}
            other = rows[1 - side]
            alive = {j for j in partners if entry["ts"] - other[j][0] < span and other[j][1]}
            said[side, entry["arrival"]] = alive
    return said


def setting(method: str, speed: float, **more: Any) -> Given:
    how: dict[str, Any] = {"span": 40, "basic": 4, "period": 10, "queue": 4, "at_least": 2, **more}
    return Given(method=method, speed=speed, **how)


def agreed(given: Given, rows: Streams) -> tuple[Did, Any]:
    """Run both streams through the model and the product, which must do the same; returns what both did."""
    want = model(given, *rows)
    result = pen.run(table(rows[0]), table(rows[1]), **budget(given))
    assert want.pairs == found(result)
    assert want.skipped == skipped(result.ledger, rows)
    assert result.report.unprobed.total == len(want.skipped)
    assert result.report.policy == given.method
    assert result.report.balanced
    return want, result


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("shift", "speed", "seed"), [(0, 30.0, 1), (37, 12.0, 2), (37, 90.0, 3)])
def test_each_method_does_what_the_model_does(method: str, shift: int, speed: float, seed: int) -> None:
    want, result = agreed(setting(method, speed, seed=seed), streams(seed, shift=shift, surge=3))
    gone = result.ledger.filter(pa.compute.equal(result.ledger["reason"], "budget"))
    sides = [("left", "right").index(side) for side in gone["side"].to_pylist()]
    assert want.dropped == set(zip(sides, gone["arrival"].to_pylist(), strict=True))
    assert bool(want.dropped) == (method == "random-drop")


@pytest.mark.parametrize(("skew", "seed", "ends"), [(1.0, 4, False), (0.0, 3, True)])
def test_selection_that_brings_no_more_than_rows_at_random_is_noticed(
    monkeypatch: pytest.MonkeyPatch, *, skew: float, seed: int, ends: bool
) -> None:
    rests: list[bool] = []
    notice = Controller._notice

    def noted(self: Controller, effort: Effort) -> None:
        notice(self, effort)
        rests.append(int(effort.mode[MODE]) == SOME)

    monkeypatch.setattr(Controller, "_notice", noted)
    given = setting("selective", 90.0, at_least=1, seed=seed)
    want, _ = agreed(given, streams(seed, each=2.5, skew=skew, shift=37, surge=3))
    assert want.rests == rests
    assert sum(rests) >= 1  # periods at random, which teach
    assert sum(rests) < len(rests)  # then selection goes on
    assert rests[-1] == ends  # but not where nothing tells ages apart


@pytest.mark.parametrize(("combine", "joint"), [("max", max), ("mean", lambda a, b: (a + b) / 2)])
def test_utility_does_what_the_model_does(combine: str, joint: Callable[[float, float], float]) -> None:
    rows = streams(5, shift=37, surge=3)
    rng = np.random.default_rng(5)
    kinds = tuple(rng.choice(3, size=len(side), p=[0.6, 0.3, 0.1]).tolist() for side in rows)
    value = {0: 1.0, 1: 2.5, 2: 20.0}
    given = setting("selective", 25.0, value=value, combine=combine)
    want = model(given, *rows, (kinds[0], kinds[1]))
    tables = [table(side, each) for side, each in zip(rows, kinds, strict=True)]
    result = pen.run(*tables, **budget(given, types="kind", utility=value, combine=combine))
    assert want.pairs == found(result)

    def worth(got: set[tuple[int, int]]) -> float:
        return sum(joint(value[kinds[0][i]], value[kinds[1][j]]) for i, j in got)

    plain = pen.run(*tables, **budget(given))
    assert worth(found(result)) > 1.2 * worth(found(plain))


@pytest.mark.parametrize("method", METHODS[:4])
@pytest.mark.parametrize("index", [True, False, "identifiers"])
def test_what_was_found_and_what_the_ledger_names_is_the_exact_join(method: str, index: Any) -> None:
    rows = streams(11, shift=37, surge=4)
    exact = set(pairs("overlap", 2, *rows, (40, 40)))
    how = budget(setting(method, 40.0)) | {"on": pen.overlap("value", at_least=2, index=index)}
    result = pen.run(table(rows[0]), table(rows[1]), **how)
    got = found(result)
    named = {
        (row, j) if side == 0 else (j, row)
        for (side, row), partners in skipped(result.ledger, rows).items()
        for j in partners
    }
    assert not got & named
    assert got | (named & exact) == exact
    assert len(got) < len(exact)


@pytest.mark.parametrize("index", [True, "identifiers"])
def test_uncut_lists_in_order_of_identifiers_are_walked_whole_or_not_at_all(index: Any) -> None:
    rows = streams(11, shift=37, surge=4)
    cpu = pen.cpu(comparisons_per_second=60.0, method="direction", basic_window="none", every=10, queue=4)
    on = pen.overlap("value", at_least=2, index=index)
    result = pen.run(table(rows[0]), table(rows[1]), on=on, time="ts", window=40, cpu=cpu)
    gone = skipped(result.ledger, rows)
    in_part = 0
    for (side, row), partners in gone.items():
        now = rows[side][row][0]
        before = {j for j, (ts, items) in enumerate(rows[1 - side]) if now - 40 < ts < now and items}
        in_part += not before <= partners
    assert len(gone) > 100
    assert bool(in_part) == (index is True)


def test_lists_in_order_of_identifiers_take_the_steps_of_trees() -> None:
    rows = streams(11, ticks=90, shift=20)
    comparisons = [
        pen.run(
            table(rows[0]), table(rows[1]), on=pen.overlap("value", at_least=2, index=index), time="ts", window=90
        ).report.comparisons
        for index in (True, "identifiers")
    ]
    steps = 0
    for side in rows:
        seen: Counter[int] = Counter()
        for _, items in side:
            seen.update(set(items))
            steps += int(sum(2 * np.log2(1 + seen[item]) for item in sorted(set(items))))
    assert comparisons[1] - comparisons[0] == steps > 0


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 1000), st.sampled_from(METHODS), st.booleans())
def test_with_enough_time_nothing_is_skipped(seed: int, method: str, index: Any) -> None:
    rows = streams(seed, ticks=90, shift=20, surge=2)
    how = budget(setting(method, 1e6)) | {"on": pen.overlap("value", at_least=2, index=index)}
    result = pen.run(table(rows[0]), table(rows[1]), **how)
    assert set(pairs("overlap", 2, *rows, (40, 40))) == found(result)
    assert result.report.recall == (1, 1, 1)
    assert result.ledger.num_rows == 0


@pytest.mark.parametrize(
    ("on", "bound"),
    [
        (pen.overlap("value", at_least=2), 2),
        (pen.set_equal("value"), 0),
        (pen.contains("value"), 0),
        (pen.contained_in("value"), 0),
        (pen.inner_product("value", at_least=2.5), 2.5),
        (pen.band("value", within=1.5), 1.5),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_with_enough_time_every_condition_is_exact(on: Any, bound: float) -> None:
    kind = {"band": pa.float64(), "inner_product": pa.map_(pa.int64(), pa.float64())}.get(
        on.name, pa.list_(pa.int64())
    )
    rows = []
    for rng, side in zip(np.random.default_rng(4).spawn(2), streams(4, ticks=120, surge=2), strict=True):
        sets: list[Row] = [(ts, [item % 9 for item in items]) for ts, items in side]
        if on.name == "band":
            sets = [(ts, float(rng.integers(0, 40))) for ts, _ in sets]
        elif on.name == "inner_product":
            sets = [
                (ts, [(item, float(rng.integers(1, 9)) / 4) for item in dict.fromkeys(items)]) for ts, items in sets
            ]
        rows.append(sets)
    tables = [
        pa.table(
            {
                "ts": pa.array([ts for ts, _ in side]),
                "value": pa.array([value for _, value in side], kind),
                "row": np.arange(len(side)),
            }
        )
        for side in rows
    ]
    cpu = pen.cpu(comparisons_per_second=1e9)
    result = pen.run(*tables, on=on, time="ts", window=40, cpu=cpu)
    exact = pairs(on.name, bound, rows[0], rows[1], (40, 40))
    assert set(exact) == found(result)
    assert len(exact) == result.table.num_rows > 0
    assert result.ledger.num_rows == 0


@pytest.mark.parametrize("method", METHODS)
def test_any_cut_and_a_saved_state_go_on_alike(method: str) -> None:
    rows = streams(7, shift=37, surge=3)
    left, right = table(rows[0]), table(rows[1])
    how = budget(setting(method, 30.0))
    want = pen.run(left, right, **how)
    op = pen.Join(schemas=(left.schema, right.schema), **how)
    parts, ledgers = [], []
    for begin, end in pairwise([0, 13, 60, 61, 150, 400]):
        mine, theirs = (
            t.filter(pa.compute.and_(pa.compute.greater_equal(t["ts"], begin), pa.compute.less(t["ts"], end)))
            for t in (left, right)
        )
        parts.append(op.push(left=mine, right=theirs))
        op = pen.Join.from_state(op.state_dict())
        ledgers.append(op.ledger())
    parts.append(op.finish())
    assert want.table.sort_by("row_left") == pa.concat_tables(parts).sort_by("row_left")
    assert want.report == replace(op.report(), memory_bytes=want.report.memory_bytes)  # offsets are shared or not
    assert want.ledger.num_rows == sum(part.num_rows for part in ledgers)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("skew", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("shift", [0, 37])
def test_the_default_does_not_lose_to_random_drop(shift: int, skew: float, *, index: bool) -> None:
    """On the mean of several streams: a dropped row takes many pairs along, so single runs scatter by a tenth."""
    on = pen.overlap("value", at_least=2, index=index)
    ratios: dict[float, list[float]] = {0.1: [], 0.4: [], 0.8: []}
    for seed in range(8):
        left, right = (table(rows) for rows in streams(seed, ticks=400, each=4, shift=shift, skew=skew))
        exact = pen.run(left, right, on=on, time="ts", window=40).report
        for share, mine in ratios.items():
            pairs_of = {}
            for method in ("auto", "random-drop"):
                how = budget(setting(method, share * exact.comparisons / 400, seed=seed)) | {"on": on}
                pairs_of[method] = pen.run(left, right, **how).report.pairs
            mine.append(pairs_of["auto"] / pairs_of["random-drop"])
    for share, mine in ratios.items():
        error = np.std(mine, ddof=1) / np.sqrt(len(mine))
        assert np.mean(mine) >= 1 - 3 * error, (share, mine)
    if skew == 1.0:  # there is something to select
        assert np.mean(ratios[0.4]) > 1.2, ratios


def test_quality_comes_back_when_the_load_falls() -> None:
    rows = streams(23, ticks=360, each=1, surge=10)
    exact = pairs("overlap", 2, *rows, (40, 40))
    result = pen.run(table(rows[0]), table(rows[1]), **budget(setting("auto", 300.0)))
    when = [max(rows[0][i][0], rows[1][j][0]) for i, j in exact]
    got = found(result)
    calm = [pair in got for pair, ts in zip(exact, when, strict=True) if ts < 120 or ts > 300]
    surge = [pair in got for pair, ts in zip(exact, when, strict=True) if 150 < ts < 240]
    assert all(calm)
    assert 0.02 < np.mean(surge) < 0.9


# --- the steps, one by one ------------------------------------------------------------------------------------------


def test_rate_adaptation_follows_what_was_fetched() -> None:
    assert 0.5 * 0.8 == pytest.approx(rate.adapt(0.5, fetched=80, arrived=100))
    assert rate.adapt(0.9, fetched=101, arrived=100) == 1.0
    assert rate.adapt(0.7, fetched=0, arrived=0) == 0.7


def test_the_order_of_basic_windows_keeps_ties_and_silence() -> None:
    output = correlation.output(np.array([0.0, 2.0, 4.0, 1.0]), np.array([0.0, 4.0, 8.0, 1.0]))
    assert output.tolist() == [0.0, 0.5, 0.5, 1.0]
    assert correlation.order(output, np.arange(4)).tolist() == [3, 1, 2, 0]
    assert correlation.order(np.zeros(3), np.array([2, 0, 1])).tolist() == [2, 0, 1]


@given(st.floats(0, 1), st.floats(1, 50), st.floats(1, 50), st.floats(0, 1), st.floats(0, 1))
def test_direction_spends_the_same_and_gains_the_most(r: float, w1: float, w2: float, o1: float, o2: float) -> None:
    got = direction.shares(r, (w1, w2), (o1, o2))
    assert r * (w1 + w2) == pytest.approx(got[0] * w1 + got[1] * w2, abs=1e-6)
    tries = [(s, (r * (w1 + w2) - s * w1) / w2) for s in np.linspace(0, 1, 101)]
    best = max((a * w1 * o1 + b * w2 * o2 for a, b in tries if -1e-9 <= b <= 1 + 1e-9), default=0.0)
    assert got[0] * w1 * o1 + got[1] * w2 * o2 >= best - 1e-6


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000))
def test_utility_is_the_best_of_all_shares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds, sizes = int(rng.integers(1, 4)), rng.integers(1, 6, 2)
    often = [rng.dirichlet(np.ones(kinds)) for _ in range(2)]
    windows = tuple(
        utility.Window(float(rng.integers(1, 40)), rng.random(sizes[i]), often[i], often[1 - i]) for i in range(2)
    )
    values, r = rng.random((kinds, kinds)), float(rng.random())
    gain, volume, at = [], [], []
    for i, window in enumerate(windows):
        for z in range(kinds):
            for o in sorted(window.output, reverse=True):
                volume.append(window.probing[z] * window.span / window.output.size)
                gain.append(volume[-1] * o * float(values[z] @ window.mine))
                at.append((i, z))
    limit = r * (windows[0].span + windows[1].span)
    best = linprog(-np.array(gain), A_ub=[volume], b_ub=[limit], bounds=(0, 1))
    got = utility.shares(r, (windows[0], windows[1]), values)
    left = got * np.array([[windows[i].output.size] for i in range(2)])
    total = 0.0
    for (i, z), one in zip(at, gain, strict=True):
        part = min(1.0, left[i, z])
        left[i, z] -= part
        total += part * one
    assert -best.fun == pytest.approx(total, abs=1e-9)


def test_optimality_is_what_sliding_windows_give() -> None:
    density = np.exp(-(((np.arange(200) - 120) / 25.0) ** 2))
    height = density / density.sum()
    for width, load in ((0.1, 0.25), (0.25, 0.4), (0.05, 0.05), (0.5, 0.6)):
        count = 1 + int(np.ceil(1 / width))
        parts = np.zeros(count)
        for x in (np.arange(400) + 0.5) / 400:  # how full the first basic window is
            for j in range(count):
                begin, end = (max(0.0, (x + j - 1) * width), min(1.0, (x + j) * width))
                ages = (np.arange(200) + 0.5) / 200
                parts[j] += height[(ages >= begin) & (ages < end)].sum() / 400
        ranked = sorted(parts, reverse=True)
        whole = int(load / width + 1e-9)
        used = sum(ranked[:whole]) + (load / width - whole) * ranked[whole]
        best = sorted(height, reverse=True)[: round(load * 200)]
        assert used / sum(best) == pytest.approx(optimality.optimality(width, load, density), abs=0.02)


def test_small_basic_windows_matter_under_load_and_skew() -> None:
    skewed = np.exp(-(((np.arange(200) - 120) / 15.0) ** 2))
    flat = np.exp(-(((np.arange(200) - 120) / 60.0) ** 2))
    assert optimality.optimality(0.2, 0.2, skewed) < optimality.optimality(0.2, 0.6, skewed)
    assert optimality.optimality(0.2, 0.2, skewed) < optimality.optimality(0.2, 0.2, flat)
    assert optimality.optimality(0.2, 0.2, skewed) < optimality.optimality(0.02, 0.2, skewed)
    assert optimality.optimality(0.1, 0.5, np.ones(10)) == pytest.approx(1, abs=0.03)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({}, "comparisons_per_second"),
        ({"comparisons_per_second": 0}, "comparisons_per_second"),
        ({"comparisons_per_second": 9, "method": "best"}, "method"),
        ({"comparisons_per_second": 9, "sampling": 2}, "sampling"),
        ({"comparisons_per_second": 9, "types": "kind"}, "utility"),
        ({"comparisons_per_second": 9, "types": "kind", "utility": {1: -2}}, "utility"),
        ({"comparisons_per_second": 9, "combine": "sum"}, "combine"),
    ],
)
def test_budgets_are_checked_at_once(arguments: dict[str, Any], argument: str) -> None:
    with pytest.raises(InputError, match=argument):
        pen.cpu(**arguments)


def test_types_without_a_value_are_named() -> None:
    rows = table([(1, [1]), (2, [2])], [0, 7])
    cpu = pen.cpu(comparisons_per_second=9, types="kind", utility={0: 1.0})
    with pytest.raises(InputError, match=r"types without a value .*: 7; give each type a value"):
        pen.join(rows, rows, on=pen.overlap("value", at_least=1), time="ts", window=5, cpu=cpu)


def test_what_a_budget_cannot_do_is_said() -> None:
    rows, cpu = table([(1, [1])]), pen.cpu(comparisons_per_second=9)
    how: dict[str, Any] = {"on": pen.overlap("value", at_least=1), "time": "ts", "window": 5, "cpu": cpu}
    op = pen.Join(schemas=(rows.schema, rows.schema), **how)
    with pytest.raises(WindowError, match="the window stays"):
        op.resize(window=9)
