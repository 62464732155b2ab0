"""Recall of joins on conditions and under CPU budgets: exact while it fits, unbiased and honest when it does not."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.operator.join import Join
from penstock.operator.results import COMBINED
from penstock.quality import sampled
from set_oracles import Row, pairs

SEEDS, SPAN = 60, 150
WAYS: dict[str, tuple[Any, str, float]] = {
    "overlap": (pen.overlap("value", at_least=2), "overlap", 2),
    "nested": (pen.overlap("value", at_least=2, index=False), "overlap", 2),
    "equal": (pen.set_equal("value"), "set_equal", 0),
    "contains": (pen.contains("value"), "contains", 0),
    "product": (pen.inner_product("value", at_least=1.5), "inner_product", 1.5),
    "band": (pen.band("value", within=1), "band", 1),
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sample be a part of the windows."""
    monkeypatch.setattr(sampled, "ROOM", 60)
    monkeypatch.setattr(sampled, "INDEXED_ROOM", 60)
    monkeypatch.setattr(sampled, "PORTION", 16)


def rows_of(way: str, seed: int, ticks: int = 400) -> tuple[list[Row], list[Row]]:
    """Draw two streams of values, some of them much likelier than others."""
    rng = np.random.default_rng(seed)
    both: tuple[list[Row], list[Row]] = ([], [])
    for rows in both:
        for ts in range(ticks):
            items = np.minimum(rng.geometric(0.2, int(rng.integers(1, 5))), 20).tolist()
            value: Any = items
            if way == "product":
                value = [(item, 0.5 + item % 3 / 2) for item in dict.fromkeys(items)]
            elif way == "band":
                value = float(rng.integers(0, 60))
            rows.append((ts, value))
    return both


def table(rows: list[Row], way: str) -> pa.Table:
    kinds = {"band": pa.float64(), "product": pa.map_(pa.int64(), pa.float64())}
    rng = np.random.default_rng(len(rows))
    return pa.table(
        {
            "ts": pa.array([ts for ts, _ in rows], pa.int64()),
            "value": pa.array([value for _, value in rows], kinds.get(way, pa.list_(pa.int64()))),
            "worth": rng.integers(1, 9, len(rows)).astype(float),
        }
    )


def push_all(op: Join, tables: list[pa.Table], step: int) -> None:
    for at in range(0, tables[0].num_rows, step):
        op.push(left=tables[0].slice(at, step), right=tables[1].slice(at, step))
    op.finish()


@pytest.mark.parametrize("way", WAYS)
def test_a_window_that_fits_is_counted_exactly(way: str) -> None:
    on, name, bound = WAYS[way]
    rows = rows_of(way, 1)
    want = len(pairs(name, bound, *rows, (SPAN, SPAN)))
    report = pen.run(*(table(side, way) for side in rows), on=on, time="ts", window=SPAN, memory=40).report
    assert 0 < report.pairs < want
    assert report.exact_estimate == (want, want, want)
    assert report.recall is not None
    assert report.recall.mid == report.pairs / want


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("way", ["overlap", "nested", "product", "band"])
def test_samples_are_unbiased_and_their_intervals_hold(way: str) -> None:
    """The mean is within 4 of its own deviations; of 60 intervals at 95 %, more than 9 miss in one run of 700."""
    on, name, bound = WAYS[way]
    rows = rows_of(way, 2)
    want = len(pairs(name, bound, *rows, (SPAN, SPAN)))
    tables, mids, missed = [table(side, way) for side in rows], [], 0
    schemas = (tables[0].schema, tables[1].schema)
    for seed in range(SEEDS):
        op = pen.Join(on=on, time="ts", window=SPAN, memory=40, seed=seed, schemas=schemas, ledger="off")
        push_all(op, tables, 25)
        found = op.report().exact_estimate
        assert found is not None
        mids.append(found.mid)
        missed += not found.low <= want <= found.high
        assert op._sampled is not None
        assert all(number.size <= 60 for number in op._sampled._drawn.number)
    assert np.std(mids) > 0
    assert abs(np.mean(mids) - want) < 4 * np.std(mids, ddof=1) / np.sqrt(SEEDS)
    assert missed <= 9


@pytest.mark.usefixtures("small")
def test_with_little_time_fewer_rows_are_sampled_and_it_stays_unbiased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampled, "GRACE", 200)
    monkeypatch.setattr(sampled, "ROOM", 10_000)
    on, name, bound = WAYS["nested"]
    rows = rows_of("nested", 3)
    want = len(pairs(name, bound, *rows, (SPAN, SPAN)))
    tables, mids, made = [table(side, "nested") for side in rows], [], 0
    cpu = pen.cpu(comparisons_per_second=60)
    schemas = (tables[0].schema, tables[1].schema)
    for seed in range(SEEDS):
        op = pen.Join(on=on, time="ts", window=SPAN, cpu=cpu, seed=seed, schemas=schemas, ledger="off")
        push_all(op, tables, 25)
        report = op.report()
        assert report.unprobed.total > 0
        assert report.exact_estimate is not None
        mids.append(report.exact_estimate.mid)
        assert op._sampled is not None
        made += int(op._sampled._core.work)
        assert op._sampled._drawn.chance.max() < 0.8
    assert abs(np.mean(mids) - want) < 4 * np.std(mids, ddof=1) / np.sqrt(SEEDS)
    assert made < 0.3 * SEEDS * report.comparisons


@pytest.mark.parametrize("combine", list(COMBINED))
def test_importance_is_counted_too(combine: str) -> None:
    on, *_ = WAYS["overlap"]
    tables = [table(side, "overlap") for side in rows_of("overlap", 4)]
    how: dict[str, Any] = {"on": on, "time": "ts", "window": SPAN, "importance": "worth", "combine": combine}
    want, got = pen.run(*tables, **how).report, pen.run(*tables, memory=40, **how).report
    assert got.importance is not None
    assert want.importance is not None
    assert got.importance < want.importance
    assert got.importance_estimate is not None
    assert got.importance_estimate.mid == pytest.approx(want.importance)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("cpu", [None, pen.cpu(comparisons_per_second=50)])
def test_any_cut_goes_on_from_a_saved_state(cpu: Any) -> None:
    tables = [table(side, "overlap") for side in rows_of("overlap", 5)]
    how: dict[str, Any] = {"on": WAYS["overlap"][0], "time": "ts", "window": SPAN, "memory": 60, "cpu": cpu}
    straight, saved = pen.Join(**how), pen.Join(**how)
    for at in range(0, 400, 25):
        for op in (straight, saved):
            op.push(left=tables[0].slice(at, 25), right=tables[1].slice(at, 25))
        saved = pen.Join.from_state(saved.state_dict())
    got, want = saved.report().exact_estimate, straight.report().exact_estimate
    assert want is not None
    assert got == want
    assert want.low < want.high


def test_rows_behind_a_watermark_are_let_go_of() -> None:
    schema = pa.schema([("ts", pa.int64()), ("value", pa.list_(pa.int64()))])
    how: dict[str, Any] = {"on": WAYS["overlap"][0], "time": "ts", "window": 15, "lateness": "watermark"}
    ops = [pen.Join(schemas=(schema, schema), memory=memory, **how) for memory in (None, 10)]
    rng = np.random.default_rng(5)
    for start in range(0, 300, 10):
        sides = {
            name: pa.table({"ts": start + rng.integers(-9, 10, 20), "value": rng.integers(0, 5, (20, 3)).tolist()})
            for name in ("left", "right")
        }
        for op in ops:
            op.watermark(start - 6)
            op.push(**{name: rows.cast(schema) for name, rows in sides.items()})
    want, got = (op.report() for op in ops)
    assert want.pairs > got.pairs > 0
    assert got.exact_estimate == (want.pairs, want.pairs, want.pairs)
    sample = ops[1]._sampled
    assert sample is not None
    assert sample._core.live(0) < 120


KEYED = [
    pen.cpu(comparisons_per_second=1),
    pen.cpu(comparisons_per_second=1, method="dual"),
    pen.cpu(comparisons_per_second=1, method="random-drop"),
    pen.cpu(comparisons_per_second=30, method="selective"),
]


@pytest.mark.parametrize("cpu", KEYED)
@pytest.mark.parametrize("memory", [None, 60])
def test_on_keys_under_a_cpu_budget_the_exact_join_is_counted(cpu: Any, memory: int | None) -> None:
    if memory is not None and cpu.method == "dual":
        memory = None
    rng = np.random.default_rng(6)
    rows = [[(ts, [int(key)]) for ts, key in enumerate(rng.integers(0, 8, 500))] for _ in range(2)]
    want = len(pairs("overlap", 1, rows[0], rows[1], (100, 100)))
    tables = [pa.table({"ts": range(500), "key": [value[0] for _, value in side]}) for side in rows]
    report = pen.run(*tables, on="key", time="ts", window=100, cpu=cpu, memory=memory).report
    assert 0 < report.pairs < want
    assert report.exact_estimate == (want, want, want)


def test_over_entered_rows_there_is_nothing_to_compare_with() -> None:
    tables = [pa.table({"ts": range(500), "key": np.random.default_rng(side).integers(0, 8, 500)}) for side in (0, 1)]
    cpu = pen.cpu(comparisons_per_second=0.5, over="entered")
    assert pen.run(*tables, on="key", time="ts", window=pen.rows(50), cpu=cpu).report.recall is None


def test_as_long_as_nothing_is_lost_recall_is_exact() -> None:
    tables = [
        pa.table({"ts": range(60_000), "key": np.random.default_rng(side).integers(0, 9, 60_000)}) for side in (0, 1)
    ]
    op = pen.Join(on="key", time="ts", window=30_000, memory=60_000)
    for low in range(0, 60_000, 1000):  # three hundred million pairs are too many to hold
        left, right = (table[low : low + 1000] for table in tables)
        op.push(left=left, right=right)
    report = op.report()
    assert report.shed["budget"].total == 0
    assert report.recall == (1, 1, 1)
