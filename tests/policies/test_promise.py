"""Joins on sets by the clock let in the rows that the brute-force model lets in, and the ledger names the rest."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.core.probing import CAPACITY
from penstock.core.setjoin import Cut, SetJoin
from penstock.core.sets import OVERLAP, Rule, Sets
from penstock.core.step import ARRIVED, BUDGET, SHED, Batch, Plan
from penstock.policies.cpu.items import ItemController
from promise_oracle import Model, Row
from set_oracles import pairs as exact_pairs

SPAN, PERIOD, AT_LEAST = 40, 15, 2


def streams(seed: int, ticks: int, each: int) -> list[Row]:
    """Draw rows in order of time: few have items that come together, many an item with a long list and others."""
    rng = np.random.default_rng(seed)
    rows, numbers = [], [0, 0]
    for ts in range(ticks):
        for side in range(2):
            for _ in range(rng.poisson(each)):
                group = int(rng.integers(0, 8))
                items = [50 + group, 60 + group] if group < 2 else [group % 3, *rng.integers(100, 130, 2).tolist()]
                rows.append(Row(side, ts, frozenset(items), numbers[side]))
                numbers[side] += 1
    return rows


def as_arrays(part: list[Row]) -> tuple[Batch, Sets]:
    side, ts, number = (np.array([row[column] for row in part]) for column in (0, 1, 3))
    clock, key, none = np.empty((0, 2), np.int64), np.empty(side.size, np.int32), np.empty(0, np.int64)
    size = np.array([len(row.items) for row in part])
    item = np.concatenate([np.array(sorted(row.items)) for row in part])
    batch = Batch(side.astype(np.int8), key, number, ts, ts, clock, none, np.empty(0))
    return batch, Sets(np.cumsum(size) - size, size, item, np.empty(0))


@pytest.mark.parametrize(("share", "seed"), [(0.3, 1), (0.2, 2), (0.05, 3)])
def test_who_is_let_in_is_who_the_model_lets_in(share: float, seed: int) -> None:
    rows = streams(seed, 200, 3)
    model = Model(SPAN, PERIOD, AT_LEAST, 0.1, seed)
    plan = Plan(np.array([SPAN, SPAN]), np.array([1 << 40, 1 << 40]), 1, 0, 1, 0, 0)
    control = ItemController(PERIOD, 0.1)
    rule = Rule(OVERLAP, float(AT_LEAST), 1)
    join = SetJoin(plan, rule, weighted=False, cut=Cut(promises=True), seed=seed, adapt=control)
    join.effort.dials[CAPACITY] = np.inf
    control.start(join.effort)
    rng, begin, entered, counted = np.random.default_rng(seed), 0, 0, False
    while begin < len(rows):
        part = rows[begin : begin + int(rng.integers(20, 60))]
        begin += len(part)
        if begin > 150:
            work = share * 100.0 * len(part)
            join.pace(work, len(part), left=len(part), fresh=not counted)
            if not counted:
                model.busy = model.passed
            counted = True
            model.portion(work, len(part))
        batch, sets = as_arrays(part)
        left, right = join.push(batch, sets, np.empty(0, np.int64))
        shed = join.take_ledger()
        found, dropped = set(), []
        for row in part:
            new, was = model.take(row, counted=counted)
            found |= new
            entered += was
            if not was:
                dropped.append([row.side, row.number, BUDGET, row.ts, 0])
        assert found == set(zip(left.tolist(), right.tolist(), strict=True))
        assert dropped == shed.tolist()
        assert join.take_skipped().size == 0
    assert join.counts[ARRIVED : ARRIVED + 2].sum() == len(rows)
    assert join.counts[SHED + 2 * BUDGET :][:2].sum() == len(rows) - entered
    assert 50 < entered < len(rows)


def tables(seed: int) -> tuple[pa.Table, pa.Table]:
    rows = streams(seed, 200, 6)
    sides = [[row for row in rows if row.side == side] for side in range(2)]
    left, right = (
        pa.table(
            {
                "ts": pa.array([row.ts * 100_000 for row in side], pa.timestamp("us")),
                "v": [sorted(row.items) for row in side],
                "row": [row.number for row in side],
            }
        )
        for side in sides
    )
    return left, right


class Clock:
    """Time that passes with the work done: a row takes a little, and a comparison."""

    def __init__(self, op: pen.Join) -> None:
        self.op, self.waited = op, 0.0

    def __call__(self) -> float:
        core: Any = self.op._core
        return self.waited + 4e-6 * int(core.counts[ARRIVED : ARRIVED + 2].sum()) + 5e-4 * core.work


def played(method: str, seed: int, on: Any) -> tuple[pen.Join, pa.Table, float]:
    """Play two streams by a clock that runs with the work; returns the join, its pairs and the longest lag."""
    left, right = tables(seed)
    cpu = pen.cpu(latency="2 seconds", method=method)
    op = pen.Join(schemas=(left.schema, right.schema), on=on, time="ts", window="4 seconds", cpu=cpu)
    op.clock = clock = Clock(op)
    times = [table["ts"].cast(pa.int64()).to_numpy() / 1e6 for table in (left, right)]
    begin, found, lag = [0, 0], [], 0.0
    while any(at < ts.size for at, ts in zip(begin, times, strict=True)):
        clock.waited += 0.02
        now = clock()
        ends = [int(np.searchsorted(ts, now)) for ts in times]
        first = min((ts[a] for ts, a, b in zip(times, begin, ends, strict=True) if b > a), default=now)
        parts = [table[a:b] for table, a, b in zip((left, right), begin, ends, strict=True)]
        found.append(op.push(left=parts[0], right=parts[1]))
        lag = max(lag, clock() - first if now > 8 else 0.0)
        begin = ends
    return op, pa.concat_tables(found), lag


@pytest.mark.parametrize("seed", [1, 2])
def test_promising_rows_find_more_than_rows_by_lot_inside_the_latency(seed: int) -> None:
    on = pen.overlap("v", at_least=AT_LEAST)
    found = {}
    for method in ("auto", "random-drop"):
        op, pairs, lag = played(method, seed, on)
        assert lag < 2.0, (method, lag)
        assert op.report().balanced
        assert op.report().policy == method  # and not "selective", which is something else
        found[method] = pairs.num_rows
    assert found["auto"] > 1.5 * found["random-drop"], found


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("overlap", pen.overlap("v", at_least=AT_LEAST)),
        ("set_equal", pen.set_equal("v")),
        ("contains", pen.contains("v")),
    ],
)
def test_pairs_found_and_pairs_named_by_the_ledger_are_the_exact_join(name: str, on: Any) -> None:
    op, found, _ = played("auto", 3, on)
    left, right = tables(3)
    rows = [list(zip(t["ts"].cast(pa.int64()).to_pylist(), t["v"].to_pylist(), strict=True)) for t in (left, right)]
    exact = set(exact_pairs(name, AT_LEAST, rows[0], rows[1], (4_000_000, 4_000_000)))
    got = set(zip(found["row_left"].to_pylist(), found["row_right"].to_pylist(), strict=True))
    dropped: list[set[int]] = [set(), set()]
    for entry in op.ledger().to_pylist():
        assert (entry["reason"], entry["shed_at_arrival"]) == ("budget", 0)
        dropped[entry["side"] == "right"].add(entry["arrival"])
    assert got <= exact
    assert exact - got == {pair for pair in exact if pair[0] in dropped[0] or pair[1] in dropped[1]}
    report = op.report()
    assert report.shed["budget"].total == sum(map(len, dropped)) > 0
    assert report.exact_estimate is not None
    assert report.exact_estimate.low <= len(exact) <= report.exact_estimate.high
