"""The estimate of the exact join of several streams, against counts by brute force."""

from collections import Counter, deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from multiway import Row, Window, all_results
from penstock.quality import gauge
from penstock.quality.drawn import COUNTED
from several import common, spans, streams, tables

SEEDS = 30


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the sample be a small part of the windows."""
    monkeypatch.setattr(gauge, "ROOM", 240)
    monkeypatch.setattr(gauge, "PORTION", 64)


def zipf(n: int, rows: int, keys: int, seed: int, columns: int = 1) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(1, keys + 1)
    drawn = {
        name: {f"key{at}": rng.choice(keys, rows, p=chances / chances.sum()) for at in range(columns)}
        for name in "abcd"[:n]
    }
    return {name: pa.table({"ts": np.arange(rows), **values}) for name, values in drawn.items()}


def sample_of(op: pen.MultiJoin) -> gauge.Gauge:
    assert op._ordered.gauge is not None
    return op._ordered.gauge


def counted(rows: dict[str, pa.Table], span: int) -> int:
    """Count the results on one key: each row meets the product of those of its key that are alive."""
    alive: list[Counter[int]] = [Counter() for _ in rows]
    held: deque[tuple[int, int, int]] = deque()
    found = 0
    keys = [table["key0"].to_pylist() for table in rows.values()]
    for now in range(len(keys[0])):
        while held and now - held[0][0] >= span:
            _, s, key = held.popleft()
            alive[s][key] -= 1
        for s, mine in enumerate(keys):
            found += int(np.prod([alive[t][mine[now]] for t in range(len(keys)) if t != s]))
            alive[s][mine[now]] += 1
            held.append((now, s, mine[now]))
    return found


def chain_count(rows: dict[str, pa.Table], span: int) -> int:
    """Count the results of a - b on key0, b - c on key1, trying all rows of a and c for each of b."""
    a, b, c = ({name: table[name].to_numpy() for name in table.column_names} for table in rows.values())
    found = 0
    for ts, first, second in zip(b["ts"], b["key0"], b["key1"], strict=True):
        mine, theirs = a["ts"][a["key0"] == first], c["ts"][c["key1"] == second]
        both = np.stack(np.meshgrid(mine, theirs, [ts], indexing="ij"))
        found += int((both.max(axis=0) - both.min(axis=0) < span).sum())
    return found


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("n", "keys"), [(3, 40), (4, 150)])
def test_intervals_hold_the_count(n: int, keys: int) -> None:
    """Of 30 intervals at 95 %, more than 4 miss in one run of sixty."""
    missed, widths = 0, []
    for seed in range(SEEDS):
        rows = zipf(n, 500, keys, seed)
        exact = counted(rows, 150)
        report = pen.run(rows, on="key0", time="ts", windows=150, memory=100, seed=seed).report
        estimate = report.exact_estimate
        missed += not estimate.low <= exact <= estimate.high
        widths.append((estimate.high - estimate.low) / exact)
        assert report.recall.low <= report.recall.mid <= report.recall.high
    assert missed <= 4
    assert 0 < np.mean(widths) < 2


@pytest.mark.usefixtures("small")
def test_intervals_hold_the_count_along_a_graph() -> None:
    missed = 0
    for seed in range(SEEDS):
        rows = zipf(3, 500, 20, seed, columns=2)
        on = {("a", "b"): "key0", ("b", "c"): "key1"}
        estimate = pen.run(rows, on=on, time="ts", windows=150, memory=90, seed=seed).report.exact_estimate
        missed += not estimate.low <= chain_count(rows, 150) <= estimate.high
    assert missed <= 4


@pytest.mark.usefixtures("small")
def test_estimates_are_right_on_average() -> None:
    rows = zipf(3, 500, 30, 1)
    exact = counted(rows, 150)
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": 150, "memory": 90}
    found = [pen.run(rows, seed=seed, **how).report.exact_estimate.mid for seed in range(SEEDS)]
    assert abs(np.mean(found) - exact) < 4 * np.std(found) / np.sqrt(SEEDS)
    assert 0.01 < np.std(found) / exact < 0.3


@settings(max_examples=40, deadline=None)
@given(data=st.data(), drawn=streams(rows=7), evaluation=st.sampled_from(["eager", pen.every(3)]))
def test_a_sample_that_holds_all_rows_counts_exactly(
    data: st.DataObject, drawn: list[list[Row]], evaluation: object
) -> None:
    n = len(drawn)
    windows = data.draw(st.lists(st.builds(Window, st.integers(1, 8), st.booleans()), min_size=n, max_size=n))
    exact = len(all_results(drawn, windows, common(n)))
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": spans(windows), "evaluation": evaluation}
    report = pen.run(tables(drawn), memory=3, **how).report
    assert report.exact_estimate == (exact, exact, exact)
    assert report.recall.mid == (report.results / exact if exact else 1)


def test_importance_is_estimated_too() -> None:
    rng = np.random.default_rng(2)
    rows = {
        name: table.append_column("value", pa.array(rng.integers(0, 9, 300)))
        for name, table in zipf(3, 300, 30, 1).items()
    }
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": 50, "importance": "value", "combine": "sum"}
    exact = pen.run(rows, **how)
    report = pen.run(rows, memory=40, **how).report
    assert exact.report.importance == exact.table["importance"].to_numpy().sum()
    assert report.importance_estimate is not None
    assert report.importance_estimate.mid == pytest.approx(exact.report.importance)
    assert report.importance is not None
    assert report.importance < exact.table["importance"].to_numpy().sum()
    assert f"importance {report.importance:,.6g}, recall" in str(report)


def test_results_without_number_are_not_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One key on four streams: 600 rows a window would be 10^11 results; the sample is thinned out on the spot."""
    monkeypatch.setattr(gauge, "CHUNK", 1 << 12)
    rows = {name: pa.table({"ts": np.arange(900), "key0": np.zeros(900, int)}) for name in "abcd"}
    op = pen.MultiJoin(
        {name: table.schema for name, table in rows.items()}, on="key0", time="ts", windows=600, memory=4
    )
    op.push(rows)
    op.finish()
    estimate = op.report().exact_estimate
    exact = counted(rows, 600)
    assert estimate.low / 1.2 < exact < estimate.high * 1.2
    assert sample_of(op)._drawn.totals[COUNTED] < 2e6


@pytest.mark.usefixtures("small")
def test_the_sample_stays_small_and_comes_back() -> None:
    rows = zipf(3, 900, 30, 3)
    how: dict[str, Any] = {"on": "key0", "time": "ts", "windows": 300, "memory": 60}
    op = pen.MultiJoin({name: table.schema for name, table in rows.items()}, **how)
    again = pen.MultiJoin.from_state(op.state_dict())
    for at in range(0, 900, 100):
        push = {name: table[at : at + 100] for name, table in rows.items()}
        op.push(push)
        again.push(push)
        again = pen.MultiJoin.from_state(again.state_dict())
        assert sum(number.size for number in sample_of(op)._drawn.number) <= 240
        assert sum(sample_of(op)._chain.held()) <= 243
    assert op.report().exact_estimate == pytest.approx(again.report().exact_estimate)
