"""The policies of importance2006, and LRU, give up exactly what the brute-force oracle gives up, ties included.

Spans up to 8 lose half a tick, so that every number the oracle works out is exact and equal ones are equal here, too.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from engine.test_bounded import CAPS, KINDS, LIMITS, budget, check
from oracles import Arrival, Kind, Policy, Row, Statistics, bounded
from penstock.errors import ImportanceError
from traces import Got, Pusher, by_time, drive, plain_table, pushes, random_trace, traces, window

WORTH = (1.0, 20.0, 1.0, 0.0, 5.0, 1.0, 2.5, 10.0, 0.0, 1.0, 4.0)
POLICIES: list[Policy] = ["simp", "simpprob", "dimpprob", "dgl", "lru"]
SPANS = st.tuples(st.integers(1, 8), st.integers(1, 8))


def coarse(row: Row) -> float:
    """Return one of a few numbers, so that many are equal."""
    return WORTH[(5 * row.row + 3 * row.side) % len(WORTH)]


def fine(row: Row) -> float:
    """Return a number that no other row has."""
    return math.sqrt(2 + row.row + row.side / 2) % 1


def table(worth: Any) -> Any:
    def make(trace: Sequence[Arrival], side: int, first: int) -> pa.Table:
        plain = plain_table(trace, side, first)
        rows = [worth(Row(side, row, 0, None)) for row in plain["row"].to_pylist()]
        return plain.append_column("worth", pa.array(rows, pa.float64()))

    return make


def made(policy: Policy, statistics: Statistics) -> pen.Policy:
    return pen.policy(policy) if policy in {"simp", "lru"} else pen.policy(policy, statistics=statistics)


def played(trace: list[Arrival], ends: Any, policy: pen.Policy, worth: Any, **arguments: Any) -> Got:
    return drive(trace, ends, table(worth), policy=policy, importance="worth", **arguments)


@settings(max_examples=200)
@given(
    traces(rows=50, keys=4),
    st.lists(st.integers(0, 50)),
    SPANS,
    KINDS,
    LIMITS,
    st.sampled_from(POLICIES),
    st.sampled_from(["memory", "window"]),
    CAPS,
)
def test_small_traces(
    trace: list[Arrival],
    ends: list[int],
    spans: tuple[int, int],
    kind: Kind,
    limits: int | tuple[int, int],
    policy: Policy,
    statistics: Statistics,
    per_key: int | None,
) -> None:
    given_up = {"kind": kind, "limits": limits, "policy": policy, "per_key": per_key, "statistics": statistics}
    want = bounded(trace, spans=spans, importance=coarse, **given_up)  # type: ignore[arg-type]
    shape = {"window": window(spans, kind), "per_key": per_key, **budget(limits)}
    check(want, played(trace, ends, made(policy, statistics), coarse, **shape))


@pytest.mark.parametrize("limits", [25, (12, 12), (20, 7)], ids=["shared", "fixed", "uneven"])
@pytest.mark.parametrize("statistics", ["memory", "window"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_longer_traces(kind: Kind, policy: Policy, statistics: Statistics, limits: int | tuple[int, int]) -> None:
    trace = by_time(random_trace(len(policy), 400 if kind == "time" else 160, 12, nulls=0.02, tie=0.5))
    for spans, worth in (((25, 70), fine), ((40, 25), coarse)):
        if policy == "dgl" and worth is coarse:
            continue  # equal numbers, reached by other roads, differ in their last bit
        want = bounded(
            trace, spans=spans, kind=kind, limits=limits, policy=policy, importance=worth, statistics=statistics
        )
        shape = {"window": window(spans, kind), **budget(limits)}
        check(want, played(trace, range(0, len(trace), 50), made(policy, statistics), worth, **shape))


CHOICES = [made(policy, statistics) for policy in POLICIES for statistics in ("memory", "window")]


@pytest.mark.parametrize("policy", CHOICES, ids=str)
@pytest.mark.parametrize("split", ["shared", "fixed"])
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_the_lazy_order_is_the_order(policy: pen.Policy, split: str, kind: Kind) -> None:
    """Laying the order out anew before every push changes nothing, so what it says late is never wrong."""
    results = []
    trace = by_time(random_trace(9, 1500, 100, tie=0.9))
    for anew in (False, True):
        pusher = Pusher(
            table(coarse), window=window((30, 45), kind), memory=80, split=split, policy=policy, importance="worth"
        )
        for part in pushes(trace, range(0, len(trace), 9)):
            if anew:
                pusher.join._core.respan()
            pusher.push(part)
        results.append(pusher.finish())
    got, want = results
    assert want.shed == got.shed
    assert want.pairs == got.pairs


def test_priorities_of_dgl_outlive_the_range_of_numbers() -> None:
    trace = by_time([Arrival(side, ts, (3 * ts + side) % 5) for side in range(2) for ts in range(0, 3000, 2)])
    want = bounded(trace, spans=(8, 8), kind="time", limits=5, policy="dgl", importance=coarse)
    check(want, played(trace, range(0, 3000, 70), made("dgl", "memory"), coarse, window=8, memory=5))


def test_negative_importance_is_refused_with_the_reason() -> None:
    with pytest.raises(ImportanceError, match="worth less than nothing"):
        played([Arrival(0, 0, 1)], (), pen.policy("simp"), lambda _row: -1.0, window=5, memory=3)


def test_fifo_is_another_name_for_oldest() -> None:
    assert pen.policy("fifo") == pen.policy("oldest")


def test_order_within_a_key_is_by_importance() -> None:
    #   time   0   1   2   3      window 9, memory 2; importance in brackets
    #   left   a5  a1  a3  .      at tick 2 a3 enters and a1 goes, although a5 is older
    #   right  .   .   .   a2
    worth = {(0, 0): 5.0, (0, 1): 1.0, (0, 2): 3.0, (1, 0): 2.0}
    trace = [Arrival(0, 0, 7), Arrival(0, 1, 7), Arrival(0, 2, 7), Arrival(1, 3, 7)]
    got = played(trace, (), made("dimpprob", "memory"), lambda row: worth[row.side, row.row], window=9, memory=2)
    assert [(0, 0), (2, 0)] == sorted(got.pairs)
    assert np.array_equal([(0, 1, "budget", 2), (0, 2, "budget", 3)], got.shed)
