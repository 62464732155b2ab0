"""Within a budget the join gives up exactly what the brute-force oracle gives up, and says so.

LIFE is the hard one: its order changes while nothing arrives, and the heap keeps up with it lazily. Long traces,
probabilities that collide and probabilities that differ in their last bit must all come out as the oracle says.
"""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from oracles import Arrival, Bounded, Kind, Policy, bounded, exact
from penstock.core import census, step
from penstock.core import join as driver
from penstock.core.windows import KEYS, NONE
from traces import Got, Pusher, by_time, drive, pushes, random_trace, traces, window

CHANCES = (0.0, 0.05, 0.1, 0.1, 0.2, 0.25, 0.3, 0.1 + 0.2, 0.5, 1.0)
NEARLY = (0.3, math.nextafter(0.3, 1), math.nextafter(0.3, 0), 0.6, math.nextafter(0.6, 1), 0.2, 0.1)
Chances = tuple[dict[int, float], dict[int, float]]

POLICIES = st.sampled_from(["oldest", "prob", "life"])
KINDS = st.sampled_from(["time", "rows"])
SPANS = st.tuples(st.integers(1, 12), st.integers(1, 12))
LIMITS = st.one_of(st.integers(1, 14), st.tuples(st.integers(1, 7), st.integers(1, 7)))
CAPS = st.sampled_from([None, None, 1, 2, 3])


def chances(keys: int) -> st.SearchStrategy[Chances]:
    table = st.dictionaries(st.integers(0, keys - 1), st.sampled_from(CHANCES))
    return st.tuples(table, table)


def budget(limits: int | tuple[int, int]) -> dict[str, Any]:
    """Write limits as a user does."""
    if isinstance(limits, int):
        return {"memory": limits, "split": "shared"}
    if limits[0] - limits[1] in {0, 1}:
        return {"memory": sum(limits), "split": "fixed"}
    return {"memory": sum(limits), "split": limits}


def made(policy: Policy, p: Chances) -> pen.Policy:
    return (
        pen.policy(policy) if policy == "oldest" else pen.policy(policy, statistics=pen.table(left=p[0], right=p[1]))
    )


def check(want: Bounded, got: Got) -> None:
    assert sorted(want.shed) == got.shed
    assert sorted(want.pairs) == sorted(got.pairs)
    assert want.live == got.live
    assert want.expired == got.expired
    assert got.report.balanced
    assert (len(want.live), len(want.expired)) == (got.report.live.total, got.report.expired.total)
    assert len(want.pairs) == got.report.pairs
    for reason in ("budget", "per_key"):
        assert sum(entry[2] == reason for entry in want.shed) == got.report.shed[reason].total


@settings(max_examples=400)
@given(traces(rows=50, keys=5), st.lists(st.integers(0, 50)), SPANS, KINDS, LIMITS, POLICIES, chances(5), CAPS)
def test_small_traces(
    trace: list[Arrival],
    ends: list[int],
    spans: tuple[int, int],
    kind: Kind,
    limits: int | tuple[int, int],
    policy: Policy,
    p: Chances,
    per_key: int | None,
) -> None:
    want = bounded(trace, spans=spans, kind=kind, limits=limits, policy=policy, p=p, per_key=per_key)
    got = drive(trace, ends, window=window(spans, kind), policy=made(policy, p), per_key=per_key, **budget(limits))
    check(want, got)


def long_case(seed: int) -> tuple[list[Arrival], Chances, tuple[int, int]]:
    """Draw a trace with gaps, ties and a table of chances that collide, for some seeds in their last bit only."""
    rng = np.random.default_rng((seed, 1))
    keys = int(rng.integers(20, 61))
    trace = by_time(random_trace(seed, int(rng.integers(300, 700)), keys, nulls=0.02, tie=0.3 + 0.1 * (seed % 5)))
    pool = NEARLY if seed % 3 == 0 else CHANCES
    p = tuple({key: float(rng.choice(pool)) for key in range(keys)} for _ in range(2))
    spans = tuple(int(span) for span in rng.integers(20, 101, 2))
    return trace, (p[0], p[1]), (spans[0], spans[1])


@pytest.mark.parametrize("limits", [25, (12, 12), (20, 7)], ids=["shared", "fixed", "uneven"])
@pytest.mark.parametrize("policy", ["life", "prob", "oldest"])
@pytest.mark.parametrize("kind", ["time", "rows"])
@pytest.mark.parametrize("seed", range(6))
def test_longer_traces(seed: int, kind: Kind, policy: Policy, limits: int | tuple[int, int]) -> None:
    trace, p, spans = long_case(seed)
    want = bounded(trace, spans=spans, kind=kind, limits=limits, policy=policy, p=p)
    got = drive(trace, range(0, len(trace), 50), window=window(spans, kind), policy=made(policy, p), **budget(limits))
    check(want, got)


@pytest.mark.parametrize("seed", range(3))
def test_a_long_life(seed: int) -> None:
    rng = np.random.default_rng(seed)
    trace = by_time(random_trace(100 + seed, 2000, 40, nulls=0.01, tie=0.6))
    p = tuple({key: 1 / (1 + key) + float(rng.choice([0, 0.01])) for key in range(40)} for _ in range(2))
    want = bounded(trace, spans=(60, 90), kind="time", limits=40, policy="life", p=(p[0], p[1]))
    got = drive(trace, (500, 501), window=(60, 90), policy=made("life", (p[0], p[1])), memory=40)
    check(want, got)


@pytest.mark.parametrize("policy", ["life", "prob", "oldest"])
@pytest.mark.parametrize("kind", ["time", "rows"])
@pytest.mark.parametrize("seed", range(2))
def test_ids_of_keys_that_left_go_to_others(
    monkeypatch: pytest.MonkeyPatch, seed: int, kind: Kind, policy: Policy
) -> None:
    """What the order still says of a key that left is not taken for the one that has its id."""
    monkeypatch.setattr(driver, "FIRST_KEYS", 4)
    monkeypatch.setattr(driver, "FEW_KEYS", 0)
    keys = 300
    rng = np.random.default_rng(seed)
    trace = by_time(random_trace(seed, 1200, keys, tie=0.5))
    p = tuple({key: float(rng.choice(CHANCES)) for key in range(keys)} for _ in range(2))
    want = bounded(trace, spans=(60, 90), kind=kind, limits=40, policy=policy, p=(p[0], p[1]))
    pusher = Pusher(window=window((60, 90), kind), memory=40, policy=made(policy, (p[0], p[1])))
    for part in pushes(trace, range(0, len(trace), 5)):
        pusher.push(part)
    assert isinstance(pusher.join._core, driver.WindowJoin)
    assert pusher.join._core.windows.marks[KEYS] < keys // 2
    check(want, pusher.finish())


def test_places_of_keys_that_left_are_free_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """New keys without end: a search in the table always comes to a free place."""
    monkeypatch.setattr(driver, "FIRST_KEYS", 4)
    monkeypatch.setattr(driver, "FEW_KEYS", 0)
    keys = np.random.default_rng(1).integers(0, 1 << 40, (2, 6000))
    join = pen.Join(on="key", time="ts", window=40, memory=30, policy="oldest")
    for at in range(0, keys.shape[1], 5):
        ts = np.arange(at, at + 5)
        left, right = (pa.table({"ts": ts, "key": side[ts]}) for side in keys)
        join.push(left=left, right=right)
        assert isinstance(join._core, driver.WindowJoin)
        assert (join._core.windows.table == NONE).mean() > 0.2


SOURCES = [
    pen.policy(name, statistics=source) for name in ("prob", "life") for source in ("decayed", "history", "window")
] + [pen.policy(name, half_life=1) for name in ("prob", "life")]


@pytest.mark.parametrize("policy", SOURCES, ids=str)
@pytest.mark.parametrize("split", ["shared", "fixed"])
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_the_lazy_order_is_the_order(policy: pen.Policy, split: str, kind: Kind) -> None:
    """Laying the order out anew before every push changes nothing, so what it says late is never wrong."""
    results = []
    trace = by_time(random_trace(9, 1500, 30, tie=0.6))
    for anew in (False, True):
        pusher = Pusher(window=window((25, 40), kind), memory=30, split=split, policy=policy)
        for part in pushes(trace, range(0, len(trace), 2)):
            if anew:
                pusher.join._core.respan()
            pusher.push(part)
        results.append(pusher.finish())
    got, want = results
    assert want.shed == got.shed
    assert want.pairs == got.pairs


@pytest.mark.parametrize("policy", ["oldest", "prob", "life"])
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_a_budget_for_everything_is_exact(policy: Policy, kind: Kind) -> None:
    trace = random_trace(3, 200, 6)
    want = exact(trace, spans=(9, 14), kind=kind)
    got = drive(trace, range(0, 200, 9), window=window((9, 14), kind), memory=200, policy=policy)
    assert sorted(want) == sorted(got.pairs)
    assert [] == got.shed


@pytest.mark.parametrize("policy", ["oldest", "prob", "life"])
def test_memory_of_2w_minus_2_is_exact(policy: Policy) -> None:
    trace = by_time([Arrival(side, ts, (3 * ts + side) % 4) for side in range(2) for ts in range(60)])
    for split in ("shared", "fixed"):
        want = exact(trace, spans=(8, 8), kind="time")
        got = drive(trace, range(0, 120, 7), window=8, memory=14, policy=policy, split=split)
        assert sorted(want) == sorted(got.pairs)
        assert [] == got.shed


def test_a_time_line() -> None:
    #   time   0  1  2  3      window 5, memory 1, p_right(a) = 0.9, p_right(b) = 0.1, nothing known of the left
    #   left   a  b  .  .      at tick 1 a and b fight for the one place: b goes
    #   right  .  .  b  a      so b is missed and a is met; both go, being worth nothing
    trace = [Arrival(0, 0, 1), Arrival(0, 1, 2), Arrival(1, 2, 2), Arrival(1, 3, 1)]
    got = drive(trace, window=5, memory=1, policy=made("prob", ({}, {1: 0.9, 2: 0.1})))
    assert [(0, 1)] == got.pairs
    assert [(0, 1, "budget", 1), (1, 0, "budget", 2), (1, 1, "budget", 3)] == got.shed
    assert {(0, 0)} == got.live


def test_no_way_to_push_rows_needs_a_kernel_of_its_own() -> None:
    """Arrow's memory is read-only, and a kernel for read-only arrays would take its time to compile."""
    rows = pa.table({"key": [1, 2, 1, 2], "ts": [1, 2, 3, 4], "worth": [1.0, 2.0, 3.0, 4.0]})
    op = pen.Join(on="key", time="ts", window=10, memory=3, policy="oldest", importance="worth")
    op.push(left=rows, right=rows)
    kernels: tuple[Any, ...] = step.step, census.take
    known = [kernel.signatures for kernel in kernels]
    op.push(left=rows.slice(3))
    op.push(right=rows.slice(2))
    op.push(left=rows.slice(2), right=rows.slice(1))
    op.advance(to=9)
    op.finish()
    assert [kernel.signatures for kernel in kernels] == known
