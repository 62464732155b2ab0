"""Without a budget the join is exact, whatever the cut, the windows and the order of arrival."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from oracles import Arrival, Kind, exact, late_rows, numbered
from penstock.core.exact import NARROW, ExactJoin, arrivals
from penstock.core.step import Plan
from traces import (
    SIDES,
    Got,
    Table,
    drive,
    merged,
    pairs_of,
    plain_table,
    pushes,
    random_trace,
    shed_rows,
    text_table,
    traces,
    window,
)

SPANS = st.tuples(st.integers(1, 9), st.integers(1, 9))
KINDS = st.sampled_from(["time", "rows"])
TABLES = st.sampled_from([plain_table, text_table])


def check(trace: list[Arrival], got: Got, *, spans: tuple[int, int], kind: Kind, lateness: int) -> None:
    want = exact(trace, spans=spans, kind=kind, lateness=lateness)
    assert want == set(got.pairs)
    assert len(want) == len(got.pairs), "a pair came twice"
    rows = {(row.side, row.row): row for row in numbered(trace)}
    late = {ident for ident in late_rows(trace, lateness) if rows[ident].key is not None}  # null keys expire
    assert late == {(side, row) for side, row, reason, _ in got.shed if reason == "late"}
    assert len(late) == len(got.shed), "only late rows are shed"
    for side in range(2):
        assert sum(which == side for which, _ in late) == got.report.shed["late"][side]
        assert sum(row.side == side for row in rows.values()) == got.report.arrivals[side]
    assert got.report.balanced
    assert (len(got.live), len(got.expired)) == (got.report.live.total, got.report.expired.total)
    assert got.report.pairs == len(want)
    assert got.report.exact_estimate == (len(want), len(want), len(want))


@settings(max_examples=120)
@given(traces(rows=40, keys=3), st.lists(st.integers(0, 40)), SPANS, KINDS, TABLES)
def test_in_order(trace: list[Arrival], ends: list[int], spans: tuple[int, int], kind: Kind, table: Table) -> None:
    got = drive(trace, ends, table, window=window(spans, kind))
    check(trace, got, spans=spans, kind=kind, lateness=0)


@settings(max_examples=200)
@given(traces(rows=40, keys=3, late=True), st.lists(st.integers(0, 40)), SPANS, KINDS, st.integers(0, 6), TABLES)
def test_with_late_rows(
    trace: list[Arrival], ends: list[int], spans: tuple[int, int], kind: Kind, lateness: int, table: Table
) -> None:
    got = drive(trace, ends, table, window=window(spans, kind), lateness=lateness)
    check(trace, got, spans=spans, kind=kind, lateness=lateness)


@settings(max_examples=60)
@given(traces(rows=25, keys=3, late=True), SPANS, KINDS, st.integers(0, 6))
def test_row_by_row(trace: list[Arrival], spans: tuple[int, int], kind: Kind, lateness: int) -> None:
    got = drive(trace, range(len(trace)), window=window(spans, kind), lateness=lateness)
    check(trace, got, spans=spans, kind=kind, lateness=lateness)


@settings(max_examples=100)
@given(traces(rows=40, keys=3, late=True), SPANS, KINDS, st.integers(1, 6), TABLES)
def test_whole_tables(trace: list[Arrival], spans: tuple[int, int], kind: Kind, lateness: int, table: Table) -> None:
    sides = [table(trace, side, 0) for side in range(2)]
    got = pen.join(*sides, on="key", time="ts", window=window(spans, kind), lateness=lateness)
    want = exact(merged(trace), spans=spans, kind=kind, lateness=lateness)
    assert sorted(want) == sorted(pairs_of(got))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_long_traces(seed: int, kind: Kind) -> None:
    trace = random_trace(seed, 400, 12, late=0.2, back=12)
    cuts = [7 * seed + 13 * i for i in range(40)]
    spans = (25, 40) if seed % 2 else (30, 30)
    got = drive(trace, cuts, window=window(spans, kind), lateness=8)
    check(trace, got, spans=spans, kind=kind, lateness=8)


@pytest.mark.parametrize("kind", ["time", "rows"])
def test_the_ledger_tells_when_a_row_was_late(kind: Kind) -> None:
    #   time  1   5   9
    #   left  0   1   .  2(ts 3, behind the watermark 9 - 4)
    #   right .   .   0
    trace = [Arrival(0, 1, 7), Arrival(0, 5, 7), Arrival(1, 9, 7), Arrival(0, 3, 7), Arrival(0, 5, 7)]
    got = drive(trace, range(5), window=window((100, 100), kind), lateness=4)
    assert [(0, 2, "late", 9)] == got.shed
    assert {(0, 0), (1, 0), (3, 0)} == set(got.pairs)
    entry = got.ledger.to_pylist()[0]
    assert {"ts": 3, "key": 7, "row": 2} == entry["left"]
    assert (SIDES[0], 0, 3, None) == (entry["side"], entry["shed_at_arrival"], entry["ts"], entry["right"])
    assert got.shed == shed_rows(got.ledger)


def test_the_helper_keeps_the_order_of_arrival() -> None:
    trace = random_trace(5, 60, 4, late=0.3, back=5)
    assert trace == [arrival for part in pushes(trace, range(0, 60, 7)) for arrival in part]


@pytest.mark.parametrize("span", [5, 5_000])
def test_numbers_of_rows_pass_32_bits(span: int) -> None:
    limit = np.full(2, 1 << 62)
    plan = Plan(np.full(2, span), limit, shared=1, by_rows=0, ahead=1, patient=0, per_key=1 << 62)
    join, found = ExactJoin(plan), set()
    first = NARROW - 300
    for begin in range(first, NARROW + 300, 100):
        rows = np.arange(begin, begin + 100)
        both = arrivals(np.zeros(100, np.int64), rows - first, rows)
        left, right = join.push_sides(both, both)
        found |= set(zip(left.tolist(), right.tolist(), strict=True))
    numbers = range(first, NARROW + 300)
    assert found == {(mine, theirs) for mine in numbers for theirs in numbers if abs(mine - theirs) < span}


def test_small_batches_meet_the_rows_of_a_large_one() -> None:
    """A large batch is grouped by key and outgrows the rings; small ones after it go along chains."""
    rng = np.random.default_rng(7)
    rows, span, first = 14_000, 1_500, 12_000
    keys = rng.integers(0, 300, (2, rows))
    sides = [pa.table({"ts": np.arange(rows), "k": keys[side], "id": np.arange(rows)}) for side in range(2)]
    op = pen.Join(on="k", time="ts", window=span)
    found: list[tuple[int, int]] = []
    for begin, end in pairwise([0, first, *range(first + 200, rows + 1, 200)]):
        joined = op.push(left=sides[0][begin:end], right=sides[1][begin:end])
        found += zip(joined["id_left"].to_pylist(), joined["id_right"].to_pylist(), strict=True)
    wanted = [
        (left, low + int(at))
        for left in range(rows)
        for low in [max(0, left - span + 1)]
        for at in np.flatnonzero(keys[1, low : left + span] == keys[0, left])
    ]
    assert sorted(found) == wanted
