"""Joins on keys by the clock let in the rows that the brute-force model does, and the ledger names the rest."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import penstock as pen
from gate_oracle import Gate, Row
from penstock.core import gate as core_gate
from penstock.core.dualjoin import DualJoin
from penstock.core.gatejoin import GateJoin
from penstock.core.step import ARRIVED, PAIRS, Batch, Plan
from penstock.policies.cpu.keys import METHODS, KeyController

SPAN = 40


def streams(seed: int, ticks: int, each: tuple[int, int], keys: int, *, fresh: bool = False) -> list[Row]:
    """Draw rows in order of time, some keys more often than others; `fresh`: keys come and go."""
    rng = np.random.default_rng(seed)
    chance = rng.dirichlet(np.full(keys, 0.5), size=2)
    rows = []
    for ts in range(ticks):
        for side in range(2):
            drawn = rng.choice(keys, size=rng.poisson(each[side]), p=chance[side])
            rows += [Row(side, ts, int(key) + (1000 * (ts // 10) if fresh else 0)) for key in drawn]
    return rows


def joined(method: str, seed: int) -> GateJoin:
    plan = Plan(np.array([SPAN, SPAN]), np.array([1, 1]), 1, 0, 1, 0, 1)
    join = GateJoin(plan, KeyController(method, (SPAN, SPAN), by_rows=False), by_lot=method != "auto", seed=seed)
    join.gate.dials[core_gate.TICKS] = SPAN // 2
    return join


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("share", "seed"), [(0.5, 1), (0.1, 2), (0.02, 3)])
@pytest.mark.parametrize("fresh", [False, True])
def test_who_is_let_in_is_who_the_model_lets_in(method: str, share: float, seed: int, *, fresh: bool) -> None:
    rows = streams(seed, 200, (3, 2), 12, fresh=fresh)
    model, join = Gate(method, SPAN, SPAN // 2, seed), joined(method, seed)
    rng, begin, numbers = np.random.default_rng(seed), 0, [0, 0]
    entered: list[tuple[int, Row]] = []
    while begin < len(rows):
        part = rows[begin : begin + int(rng.integers(5, 60))]
        begin += len(part)
        work = None if begin < 60 else share * float(rng.uniform(100, 300))
        rest = int(rng.integers(len(part), 3 * len(part)))
        if work is not None:
            join.pace(work * len(part), len(part), left=rest, fresh=False)
        number = []
        for row in part:
            number.append(numbers[row.side])
            numbers[row.side] += 1
        side, ts, code = (np.array(column) for column in zip(*part, strict=True))
        none = np.empty(0, np.int64)
        clock, key = np.empty((0, 2), np.int64), np.empty(side.size, np.int32)
        batch = Batch(side.astype(np.int8), key, np.array(number), ts, ts, clock, none, np.empty(0))
        want = model.portion(part, work, rest)
        left, right = join.push(batch, code)
        dropped = {(int(entry[0]), int(entry[1])) for entry in join.take_ledger()}
        assert dropped == {(part[at].side, number[at]) for at in range(len(part)) if at not in want}
        new = []
        for at in want:
            row = part[at]
            mine = number[at]
            new += [(mine, n) if row.side == 0 else (n, mine) for n, other in entered if model.meet(row, other)]
            entered.append((mine, row))
        assert sorted(new) == sorted(zip(left.tolist(), right.tolist(), strict=True))
    assert join.counts[ARRIVED : ARRIVED + 2].tolist() == numbers
    assert 0 < join.counts[PAIRS]
    assert len(entered) < len(rows)


class Ticking:
    """A clock that runs with what the join under it has done."""

    def __init__(self, op: pen.Join) -> None:
        self.op = op

    def __call__(self) -> float:
        counts = self.op._core.counts
        return float(2e-6 * counts[ARRIVED : ARRIVED + 2].sum() + 1e-5 * counts[PAIRS])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("window", ["2 seconds", pen.rows(150)])
def test_what_was_found_and_what_the_ledger_names_is_the_exact_join(method: str, window: Any) -> None:
    rows = streams(5, 800, (2, 1), 30)
    tables = []
    for side in range(2):
        mine = [row for row in rows if row.side == side]
        ts = pa.array(np.array([row.ts for row in mine]) * 20_000, pa.timestamp("us"))
        tables.append(pa.table({"ts": ts, "k": [row.code for row in mine], "row": np.arange(len(mine))}))
    how: dict[str, Any] = {"on": "k", "time": "ts", "window": window}
    exact = pairs_of(pen.run(tables[0], tables[1], **how).table)
    cpu = pen.cpu(latency="10 ms", method=method)
    op = pen.Join(schemas=(tables[0].schema, tables[1].schema), cpu=cpu, **how)
    assert isinstance(op._core, GateJoin)
    op.clock = Ticking(op)
    parts, entries = [], []
    for at in range(0, tables[0].num_rows, 300):
        end = tables[0]["ts"][min(at + 299, tables[0].num_rows - 1)]
        right = tables[1].filter(pc.less_equal(tables[1]["ts"], end))
        parts.append(op.push(left=tables[0][at : at + 300], right=right[op.arrived[1] :]))
        entries += op.ledger().to_pylist()
    parts += [op.push(right=tables[1][op.arrived[1] :]), op.finish()]
    entries += op.ledger().to_pylist()
    got = [pair for part in parts for pair in pairs_of(part)]
    assert len(got) == len(set(got))
    counts = [table.num_rows for table in tables]
    named = set()
    for entry in entries:
        assert entry["reason"] == "budget"
        side, row = ("left", "right").index(entry["side"]), entry["arrival"]
        partners = range(entry["shed_at_arrival"], counts[1 - side])
        named |= {(row, j) if side == 0 else (j, row) for j in partners}
    assert set(got) | (named & set(exact)) == set(exact)
    assert 0 < len(got) < len(exact)
    assert op.report().balanced


def test_who_keeps_no_ledger_finds_the_same() -> None:
    tables = []
    for side in range(2):
        mine = [row for row in streams(6, 800, (2, 2), 30) if row.side == side]
        ts = pa.array(np.array([row.ts for row in mine]) * 20_000, pa.timestamp("us"))
        tables.append(pa.table({"ts": ts, "k": [row.code for row in mine], "row": np.arange(len(mine))}))
    found, shed, entries = [], [], []
    for ledger in ("keep", "off"):
        cpu = pen.cpu(latency="10 ms")
        op = pen.Join(on="k", time="ts", window="2 seconds", cpu=cpu, ledger=ledger)
        op.push(left=tables[0][:0], right=tables[1][:0])
        op.clock = Ticking(op)
        cuts = [slice(at, at + 200) for at in range(0, 1400, 200)]
        found += [pairs_of(op.push(left=tables[0][cut], right=tables[1][cut])) for cut in cuts]
        shed.append(op.report().shed)
        entries.append(op.ledger().num_rows)
        assert op.report().balanced
    assert found[:7] == found[7:]
    assert shed[0] == shed[1]
    assert entries == [sum(sides.total for sides in shed[0].values()), 0]
    assert shed[0]["budget"].total > 0


def pairs_of(table: pa.Table) -> list[tuple[int, int]]:
    return list(zip(table["row_left"].to_pylist(), table["row_right"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("more", "cpu"),
    [
        ({}, {"share": 0.5}),
        ({}, {"latency": "1 second", "method": "dual"}),
        ({}, {"latency": "1 second", "over": "entered"}),
        ({"memory": 100}, {"latency": "1 second"}),
    ],
)
def test_what_a_gate_cannot_do_has_a_queue(more: dict[str, Any], cpu: dict[str, Any]) -> None:
    schema = pa.schema({"ts": pa.timestamp("us"), "k": pa.int64()})
    how: dict[str, Any] = {"on": "k", "time": "ts", "window": pen.rows(50), "cpu": pen.cpu(**cpu), **more}
    assert isinstance(pen.Join(schemas=(schema, schema), **how)._core, DualJoin)


def test_slots_grow_with_the_keys() -> None:
    join, keys = joined("auto", 0), 40_000
    assert join.gate.level.size < keys
    rng = np.random.default_rng(1)
    for ts in range(0, 10 * SPAN, 5):
        code = rng.integers(0, keys, 4000)
        number = np.arange(code.size) // 2
        tick = np.full(code.size, ts)
        batch = Batch(
            (np.arange(code.size) % 2).astype(np.int8),
            np.empty(code.size, np.int32),
            number + ts * 1000,
            tick,
            tick,
            np.empty((0, 2), np.int64),
            np.empty(0, np.int64),
            np.empty(0),
        )
        join.pace(10.0 * code.size, code.size, left=code.size, fresh=False)
        join.push(batch, code)
    assert 2 * keys < join.gate.level.size <= 1 << core_gate.LAST_BITS
    assert join.live(0) + join.live(1) < 4000 * 2 * SPAN / 5
