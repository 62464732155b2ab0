"""Rows on a condition are divided between shards so that each pair is found once, and each row counted once."""

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.core.rng import part_of, placed
from penstock.operator.join import Join, settings_of
from penstock.operator.settings import Bound
from penstock.spark.packing import destinations
from penstock.spark.pipeline import shares
from penstock.spark.task import Task
from set_oracles import pairs

SPAN, TICKS = 30, 160
CONDITIONS = {
    "overlap": (pen.overlap("value", at_least=2), 2),
    "set_equal": (pen.set_equal("value"), 0),
    "contains": (pen.contains("value"), 0),
    "contained_in": (pen.contained_in("value"), 0),
    "inner_product": (pen.inner_product("value", at_least=2.0), 2.0),
    "band": (pen.band("value", within=1.0), 1.0),
}


def rows(seed: int, name: str) -> list[tuple[int, Any]]:
    rng = np.random.default_rng(seed)
    found: list[tuple[int, Any]] = []
    for ts in range(TICKS):
        for _ in range(rng.poisson(2)):
            value: Any = rng.integers(0, 9, rng.integers(0, 6)).tolist()
            if name == "band":
                value = float(rng.integers(0, 40))
            elif name == "inner_product":
                value = [(item, 1.0) for item in dict.fromkeys(value)]
            found.append((ts, value))
    return found


def table(side: list[tuple[int, Any]], name: str) -> pa.Table:
    kinds = {"band": pa.float64(), "inner_product": pa.map_(pa.int64(), pa.float64())}
    values = pa.array([value for _, value in side], kinds.get(name, pa.list_(pa.int64())))
    return pa.table({"ts": pa.array([ts for ts, _ in side]), "value": values, "row": np.arange(len(side))})


def divided(tables: list[pa.Table], shards: int, **how: Any) -> tuple[list[pa.Table], list[Join], list[list[Any]]]:
    """Join tables in so many shards; returns what each found, the shards, and the rows that each was sent."""
    settings = settings_of({"time": "ts", "window": SPAN, **how})
    schemas = (tables[0].schema, tables[1].schema)
    bound = Bound(settings, *schemas)
    task = Task(settings.arguments(), schemas, shares(settings, shards))
    engines = [task.engine(shard) for shard in range(shards)]
    sent: list[list[Any]] = [[None, None] for _ in range(shards)]
    for side, rows_of in enumerate(tables):
        row, shard = destinations(bound, side, rows_of, shards)
        for at in range(shards):
            sent[at][side] = np.sort(row[shard == at])
    found = []
    for engine, mine in zip(engines, sent, strict=True):
        assert isinstance(engine, Join)
        engine.keep_ledger("keep")
        parts = [rows_of.take(pa.array(numbers)) for rows_of, numbers in zip(tables, mine, strict=True)]
        found.append(pa.concat_tables([engine.push(left=parts[0], right=parts[1]), engine.finish()]))
    return found, engines, sent  # type: ignore[return-value]


def numbers(found: list[pa.Table]) -> Counter[tuple[int, int]]:
    whole = pa.concat_tables(found)
    return Counter(zip(whole["row_left"].to_pylist(), whole["row_right"].to_pylist(), strict=True))


@pytest.mark.parametrize("shards", [1, 2, 5])
@pytest.mark.parametrize("name", list(CONDITIONS))
def test_each_pair_is_found_once(name: str, shards: int) -> None:
    sides = rows(1, name), rows(2, name)
    tables = [table(side, name) for side in sides]
    on, bound = CONDITIONS[name]
    found, engines, sent = divided(tables, shards, on=on)
    exact = pairs(name, bound, *sides, (SPAN, SPAN))
    assert Counter(exact) == numbers(found)
    reports = [engine.report() for engine in engines]
    for side in range(2):
        assert len(sides[side]) == sum(report.arrivals[side] for report in reports)
    assert all(report.balanced for report in reports)
    if shards > 1 and name not in {"band", "set_equal"}:  # work is shared out
        whole = pen.run(*tables, on=on, time="ts", window=SPAN).report.comparisons
        assert max(report.comparisons for report in reports) < 1.1 * whole
    copies = sum(len(side) for mine in sent for side in mine) / sum(map(len, sides))
    assert copies == (shards if name == "band" else pytest.approx(1) if name == "set_equal" else copies)
    assert copies <= shards


@pytest.mark.parametrize("name", list(CONDITIONS))
def test_with_enough_time_each_pair_is_found_once_under_a_cpu_budget_too(name: str) -> None:
    sides = rows(7, name), rows(8, name)
    on, bound = CONDITIONS[name]
    cpu = pen.cpu(comparisons_per_second=1e9)
    found, engines, _ = divided([table(side, name) for side in sides], 3, on=on, cpu=cpu)
    assert Counter(pairs(name, bound, *sides, (SPAN, SPAN))) == numbers(found)
    assert sum(engine.report().unprobed.total for engine in engines) == 0


@pytest.mark.parametrize("index", [True, False])
def test_what_several_shards_skipped_or_gave_up_makes_up_the_exact_join(*, index: bool) -> None:
    sides = rows(3, "overlap"), rows(4, "overlap")
    tables = [table(side, "overlap") for side in sides]
    on = pen.overlap("value", at_least=2, index=index)
    cpu = pen.cpu(comparisons_per_second=60)
    found, engines, sent = divided(tables, 3, on=on, cpu=cpu, memory=240)
    got = numbers(found)
    exact = set(pairs("overlap", 2, *sides, (SPAN, SPAN)))
    assert set(got) < exact
    assert max(got.values()) == 1
    missing = set()
    for shard, (engine, mine) in enumerate(zip(engines, sent, strict=True)):
        for entry in engine.ledger().to_pylist():
            side = ("left", "right").index(entry["side"])
            ranges = [(each["first"], each["end"]) for each in entry["skipped"]]
            if entry["reason"] == "budget":
                ranges = [(entry["shed_at_arrival"], len(mine[1 - side]))]
            row = mine[side][entry["arrival"]]
            for begin, end in ranges:
                for arrival in range(begin, end):
                    partner = mine[1 - side][arrival]
                    pair = (row, partner) if side == 0 else (partner, row)
                    common = set(sides[0][pair[0]][1]) & set(sides[1][pair[1]][1])
                    if index:  # a shard tells of the pairs that it would have found
                        first = np.array([min(common, default=0)], np.uint64)
                        here = int(placed(first, np.uint64(3))[0]) == shard
                    else:
                        here = arrival % 3 == shard or entry["reason"] == "budget"
                    if here:
                        missing.add(pair)
    assert set(got) | (missing & exact) == exact
    assert not set(got) & missing
    assert all(engine.report().balanced for engine in engines)
    assert sum(engine.report().unprobed.total for engine in engines) > 0


def test_kernels_and_packers_agree_on_the_shard_of_an_item() -> None:
    items = np.random.default_rng(0).integers(-(1 << 62), 1 << 62, 200)
    words = items.view(np.uint64)
    assert placed(words, np.uint64(7)).tolist() == [int(part_of(word, np.uint64(7))) for word in words]


@pytest.mark.parametrize("index", [True, False])
def test_rows_that_wait_for_the_watermark_are_counted_once(*, index: bool) -> None:
    tables = [table(rows(seed, "overlap"), "overlap") for seed in (5, 6)]
    how: dict[str, Any] = {"on": pen.overlap("value", at_least=2, index=index), "time": "ts", "window": SPAN}
    settings = settings_of({**how, "lateness": "watermark", "cpu": pen.cpu(comparisons_per_second=50)})
    schemas = (tables[0].schema, tables[1].schema)
    task = Task(settings.arguments(), schemas, shares(settings, 3))
    sent = [destinations(Bound(settings, *schemas), side, each, 3) for side, each in enumerate(tables)]
    for until in (None, TICKS // 2, TICKS):
        reports = []
        for at in range(3):
            engine = task.engine(at)
            assert isinstance(engine, Join)
            left, right = (
                each.take(pa.array(np.sort(row[shard == at])))
                for each, (row, shard) in zip(tables, sent, strict=True)
            )
            engine.push(left=left, right=right)
            if until is not None:
                engine.watermark(until)
            reports.append(engine.report())
        assert all(report.balanced for report in reports)
        for side in range(2):
            assert tables[side].num_rows == sum(report.arrivals[side] for report in reports)
