"""Joins on keys under a CPU budget do what the brute-force model says, and the ledger names what is missing."""

from itertools import pairwise
from math import comb
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from dual_oracle import Given, model
from penstock.errors import BudgetError, InputError, StateError, WindowError
from penstock.policies.cpu import speeds

METHODS = ("random-drop", "modular", "integrated", "rear", "dual", "auto")
Rows = list[tuple[int, int]]


def streams(
    seed: int, *, ticks: int = 120, each: tuple[float, float] = (2.0, 2.0), surge: int = 1
) -> tuple[Rows, Rows]:
    """Draw keys, some more often than others, differently on the two sides; in the middle a surge."""
    rng = np.random.default_rng(seed)
    both: tuple[Rows, Rows] = ([], [])
    for side, rows in enumerate(both):
        chance = rng.dirichlet(np.full(6, 0.8))
        for ts in range(ticks):
            many = surge if ticks // 3 <= ts < 2 * ticks // 3 else 1
            rows.extend((ts, int(key)) for key in rng.choice(6, size=rng.poisson(each[side] * many), p=chance))
    return both


def table(rows: Rows) -> pa.Table:
    ts, keys = ([row[at] for row in rows] for at in range(2))
    return pa.table(
        {
            "ts": pa.array(ts, pa.int64()),
            "key": pa.array(keys, pa.int64()),
            "row": pa.array(range(len(rows)), pa.int64()),
        }
    )


def asked(how: Given) -> dict[str, Any]:
    window = tuple(pen.rows(span) if how.by_rows else span for span in how.span)
    every = None if how.by_rows else int(how.ticks)
    cpu = pen.cpu(
        comparisons_per_second=how.speed,
        method=how.method,
        queue=int(how.queue),
        update=how.update,
        over=how.over,
        every=every,
    )
    return {"on": "key", "time": "ts", "window": window, "cpu": cpu, "seed": how.seed}


def by_rows(method: str, speed: float, *, over: str = "arrivals", seed: int = 0) -> Given:
    return Given(method, (14, 14), True, speed, 0.25, 4, over, rows=14, seed=seed)


def by_time(method: str, speed: float, *, seed: int = 0) -> Given:
    return Given(method, (12, 9), False, speed, 0.4, 3, ticks=5, seed=seed)


def found(result: Any) -> list[tuple[int, int]]:
    return list(zip(result.table["row_left"].to_pylist(), result.table["row_right"].to_pylist(), strict=True))


def met_before(rows: tuple[Rows, Rows], side: int, row: int) -> int:
    """Return how many rows of the other side came before a row; at equal times the left comes first."""
    ts = rows[side][row][0]
    return sum(other < ts or (other == ts and side == 1) for other, _ in rows[1 - side])


def check(how: Given, rows: tuple[Rows, Rows]) -> None:
    want = model(how, *rows)
    result = pen.run(table(rows[0]), table(rows[1]), **asked(how))
    assert sorted(want.pairs) == sorted(found(result))
    shed, skipped = {}, {}
    for entry in result.ledger.to_pylist():
        at = ("left", "right").index(entry["side"]), entry["arrival"]
        if entry["reason"] == "budget":
            shed[at] = entry["shed_at_arrival"]
        else:
            (interval,) = entry["skipped"]
            key, other = rows[at[0]][at[1]][1], rows[1 - at[0]]
            inside = range(interval["first"], interval["end"])
            gone = {row for side, row in want.dropped if side == 1 - at[0]}
            skipped[at] = {j for j in inside if other[j][1] == key and j not in gone}
    assert {at: met_before(rows, *at) if probed else 0 for at, probed in want.dropped.items()} == shed
    assert want.skipped == skipped
    assert result.report.unprobed.total == len(want.skipped)
    assert result.report.policy == how.method
    assert result.report.balanced


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("speed", "seed"), [(2.6, 1), (1.1, 2), (0.6, 3)])
def test_windows_in_rows_do_what_the_model_does(method: str, speed: float, seed: int) -> None:
    check(by_rows(method, speed, seed=seed), streams(seed, surge=3))


@pytest.mark.parametrize("method", [method for method in METHODS if method != "auto"])
@pytest.mark.parametrize(("speed", "seed"), [(2.4, 4), (0.6, 5)])
def test_windows_over_entered_rows_do_what_the_model_does(method: str, speed: float, seed: int) -> None:
    check(by_rows(method, speed, over="entered", seed=seed), streams(seed))


@pytest.mark.parametrize("method", ["random-drop", "modular", "integrated", "rear"])
@pytest.mark.parametrize(("speed", "each"), [(3.0, (2.0, 2.0)), (1.5, (3.0, 1.0))])
def test_windows_in_time_and_streams_of_different_speeds_do_what_the_model_does(
    method: str, speed: float, each: tuple[float, float]
) -> None:
    check(by_time(method, speed, seed=6), streams(6, each=each, surge=2))


@pytest.mark.parametrize("method", ["dual", "auto"])
@pytest.mark.parametrize(("speed", "each"), [(2.0, (2, 2)), (1.5, (3, 1)), (0.5, (1, 2)), (2.5, (1, 4))])
def test_dual_and_auto_do_so_with_windows_in_time_too(method: str, speed: float, each: tuple[int, int]) -> None:
    """So many rows come in each tick: then windows hold whole numbers of rows, over which the model sums up."""
    rng = np.random.default_rng(8)
    rows: tuple[Rows, Rows] = ([], [])
    for side in range(2):
        chance = rng.dirichlet(np.full(6, 0.8))
        drawn = rng.choice(6, size=(120, each[side]), p=chance)
        rows[side].extend((ts, int(key)) for ts in range(120) for key in drawn[ts])
    check(by_time(method, speed, seed=8), rows)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("time", [True, False])
def test_what_was_found_and_what_the_ledger_names_is_the_exact_join(method: str, *, time: bool) -> None:
    how = by_time(method, 1.5) if time else by_rows(method, 1.5)
    rows = streams(11, surge=2, each=(2.0, 1.0))
    left, right = table(rows[0]), table(rows[1])
    window = asked(how)["window"]
    exact = set(found(pen.run(left, right, on="key", time="ts", window=window)))
    result = pen.run(left, right, **asked(how))
    got = found(result)
    assert len(got) == len(set(got))
    named = set()
    for entry in result.ledger.to_pylist():
        side, row = ("left", "right").index(entry["side"]), entry["arrival"]
        if entry["reason"] == "budget":
            partners: Any = range(entry["shed_at_arrival"], len(rows[1 - side]))
        else:
            partners = [j for each in entry["skipped"] for j in range(each["first"], each["end"])]
        named |= {(row, j) if side == 0 else (j, row) for j in partners}
    assert set(got) | (named & exact) == exact
    assert len(got) < len(exact)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.sampled_from(METHODS), st.booleans())
def test_with_enough_time_nothing_is_given_up(seed: int, method: str, time: Any) -> None:
    rows = streams(seed, ticks=40, surge=2)
    how = asked(by_time(method, 1e6) if time else by_rows(method, 1e6))
    left, right = table(rows[0]), table(rows[1])
    result = pen.run(left, right, **how)
    want = pen.run(left, right, on="key", time="ts", window=how["window"])
    assert sorted(found(want)) == sorted(found(result))
    assert result.ledger.num_rows == 0
    assert result.report.recall is not None


@pytest.mark.parametrize("method", METHODS)
def test_any_cut_and_a_saved_state_go_on_alike(method: str) -> None:
    rows = streams(7, surge=3)
    left, right = table(rows[0]), table(rows[1])
    how = asked(by_time(method, 2.0) if method == "integrated" else by_rows(method, 2.0))
    want = pen.run(left, right, **how)
    op = pen.Join(schemas=(left.schema, right.schema), **how)
    parts, entries = [], 0
    for begin, end in pairwise([0, 13, 30, 31, 75, 400]):
        mine, theirs = (
            each.filter(pc.and_(pc.greater_equal(each["ts"], begin), pc.less(each["ts"], end)))
            for each in (left, right)
        )
        parts.append(op.push(left=mine, right=theirs))
        op = pen.Join.from_state(op.state_dict())
        entries += op.ledger().num_rows
    parts.append(op.finish())
    entries += op.ledger().num_rows
    got = pa.concat_tables(parts)
    order = [("row_left", "ascending"), ("row_right", "ascending")]
    assert want.table.sort_by(order) == got.sort_by(order)
    assert want.ledger.num_rows == entries
    assert want.report.comparisons == op.report().comparisons


def test_keys_that_come_and_go_are_forgotten() -> None:
    ts = np.arange(30_000)
    keys = pa.table({"ts": ts // 3, "key": ts // 6, "row": ts})
    cpu = pen.cpu(comparisons_per_second=1e6, method="auto")
    op = pen.Join(on="key", time="ts", window=20, cpu=cpu, schemas=(keys.schema, keys.schema))
    pairs = 0
    for begin in range(0, 30_000, 500):
        pairs += op.push(left=keys[begin : begin + 500], right=keys[begin : begin + 500]).num_rows
    assert pairs == 5000 * 36
    assert op._core.lanes.code.size < 5000  # type: ignore[union-attr]


def test_keys_can_be_probed_in_part_too() -> None:
    rows = streams(9, ticks=200, surge=3)
    left, right = table(rows[0]), table(rows[1])
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 20}
    plenty = pen.run(left, right, cpu=pen.cpu(comparisons_per_second=1e6, method="selective"), **how)
    assert sorted(exact_of(rows, 20)) == sorted(found(plenty))
    little = pen.run(left, right, cpu=pen.cpu(comparisons_per_second=60, method="selective"), **how)
    assert set(found(little)) < set(found(plenty))
    assert little.report.unprobed.total > 0


def exact_of(rows: tuple[Rows, Rows], span: int) -> list[tuple[int, int]]:
    return [
        (i, j)
        for i, (ts, key) in enumerate(rows[0])
        for j, (other, same) in enumerate(rows[1])
        if key == same and abs(ts - other) < span
    ]


# --- the analysis ---------------------------------------------------------------------------------------------------


def drawn(seed: int) -> speeds.Load:
    rng = np.random.default_rng(seed)
    keys = int(rng.integers(1, 7))
    share = rng.dirichlet([3, 3])
    window = rng.integers(3, 25, 2).astype(float)
    chances = np.array([rng.dirichlet(np.ones(keys)) for _ in range(2)])
    return speeds.Load(
        chances,
        np.ones(keys),
        share,
        window,
        float(rng.uniform(0.05, 1.2)),
        float(rng.uniform(0.1, 1)),
        over_entered=True,
    )


def counts(load: speeds.Load, thin: float) -> list[tuple[int, float]]:
    return [
        (i, load.share[s] * p * comb(int(w), i) * q**i * (1 - q) ** (int(w) - i))
        for s, w in ((0, load.window[1]), (1, load.window[0]))
        for p, q in zip(load.chances[s], load.chances[1 - s] * thin, strict=True)
        for i in range(int(w) + 1)
    ]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000))
def test_the_best_speed_is_the_best_of_all_counts(seed: int) -> None:
    load = drawn(seed)
    chances = counts(load, 1.0)

    def per_work(least: int) -> float:
        return sum(i * c for i, c in chances if i >= least) / (load.update + sum(c for i, c in chances if i >= least))

    best = max(per_work(least) for least in range(int(load.window.max()) + 2))
    count, share = speeds.best_count(load)
    assert best == pytest.approx(per_work(count))
    assert sum(c for i, c in chances if i >= count) == pytest.approx(share)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_output_is_the_sum_over_all_counts(seed: int) -> None:
    load = drawn(seed)._replace(over_entered=False)
    shares = speeds.choices(load)
    want = []
    for x in shares:
        left, total = min(x, max(0.0, load.probes - load.update * x)), 0.0
        for count, mass in sorted(counts(load, x), reverse=True):
            part = min(left, mass * x)
            left, total = left - part, total + part * count
        want.append(total)
    assert want == pytest.approx(speeds.output_by_lot(load, shares).tolist(), abs=1e-9)


def test_many_keys_are_put_together() -> None:
    chance = 1 / np.arange(1, 1001)
    chance /= chance.sum()
    load = speeds.Load(
        np.array([chance, chance]), np.ones(1000), np.full(2, 0.5), np.full(2, 400.0), 0.4, 0.25, False
    )
    few, _ = speeds.classes(load, np.zeros(1000))
    assert few.keys.size < 100
    assert few.keys.sum() == 1000
    shares = speeds.choices(load)
    assert speeds.output_by_lot(load, shares) == pytest.approx(speeds.output_by_lot(few, shares), rel=0.05)


# --- what is refused ------------------------------------------------------------------------------------------------


def test_what_a_budget_on_keys_cannot_do_is_said() -> None:
    rows = table([(1, 1)])
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 5, "cpu": pen.cpu(comparisons_per_second=9)}
    with pytest.raises(BudgetError, match="there give a number of rows"):
        pen.join(rows, rows, memory="1MB", **how)
    with pytest.raises(InputError, match="only memory budgets on equal keys can be observed"):
        pen.Join(memory=10, mode="observe", **how)
    with pytest.raises(BudgetError, match="per_key"):
        pen.join(rows, rows, per_key=2, **how)
    with pytest.raises(InputError, match="lateness"):
        pen.join(rows, rows, lateness=3, **how)
    typed = pen.cpu(comparisons_per_second=9, types="row", utility={0: 1.0})
    with pytest.raises(InputError, match="types"):
        pen.join(rows, rows, **how | {"cpu": typed})
    selective = pen.cpu(comparisons_per_second=9, method="selective")
    with pytest.raises(WindowError, match="selective"):
        pen.join(rows, rows, **how | {"cpu": selective, "window": pen.rows(3)})
    with pytest.raises(InputError, match="'rate' with on=key; there give one of"):
        pen.join(rows, rows, **how | {"cpu": pen.cpu(comparisons_per_second=9, method="rate")})
    dual, on = pen.cpu(comparisons_per_second=9, method="dual"), pen.overlap("key", at_least=1)
    with pytest.raises(InputError, match="'dual' with on=overlap"):
        pen.join(rows, rows, **how | {"cpu": dual, "on": on})
    with pytest.raises(InputError, match="over"):
        pen.cpu(comparisons_per_second=9, over="all")
    with pytest.raises(InputError, match="update"):
        pen.cpu(comparisons_per_second=9, update=0)
    op = pen.Join(schemas=(rows.schema, rows.schema), **how)
    with pytest.raises(StateError, match="start afresh"):
        op.changed(window=9)
