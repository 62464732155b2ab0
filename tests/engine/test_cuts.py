"""The cut of a trace into pushes changes nothing, nor does saving the join between two of them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from oracles import Arrival, Kind, exact
from penstock.policies import statistics
from traces import (
    Got,
    Pusher,
    Table,
    by_time,
    bytes_of,
    drive,
    held_after_ticks,
    plain_table,
    pushes,
    random_trace,
    text_table,
    traces,
    weighty_table,
    window,
)

TABLE = pen.table(left={0: 0.4, 1: 0.2, 2: 0.2}, right={0: 0.1, 1: 0.3, 3: 0.3})
POLICIES = [
    pen.policy("rand"),
    pen.policy("rand", at="input"),
    pen.policy("oldest"),
    *(
        pen.policy(name, statistics=source)
        for name in ("prob", "life")
        for source in ("decayed", "history", "window", TABLE)
    ),
    pen.policy("prob", half_life=1),
    pen.policy("life", half_life=1),
]
BUDGETS: list[dict[str, Any]] = [
    {"memory": 6},
    {"memory": 7, "split": "fixed"},
    {"memory": 9, "split": (2, 7), "per_key": 2},
    {"memory": None, "per_key": 1},
    {"memory": None},
]


def same(want: Got, got: Got, *but: str) -> None:
    """Check that two runs are the same, but for these numbers of their reports."""
    assert sorted(want.pairs) == sorted(got.pairs)
    assert want.shed == got.shed
    columns = [(name, "ascending") for name in ("side", "arrival")]
    assert want.ledger.sort_by(columns).to_pylist() == got.ledger.sort_by(columns).to_pylist()
    assert want.live == got.live
    drop = {"memory_bytes", *but}  # rows that left are let go of chunk by chunk, and chunks are pushes
    kept = [name for name in want.report.to_dict() if name not in drop]
    assert [want.report.to_dict()[name] for name in kept] == [got.report.to_dict()[name] for name in kept]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=25)
@given(
    traces(rows=60, keys=4),
    st.lists(st.integers(0, 60)),
    st.sampled_from(["time", "rows"]),
    st.sampled_from(BUDGETS),
    st.integers(0, 3),
)
def test_any_cut(
    policy: pen.Policy, trace: list[Arrival], ends: list[int], kind: Kind, budget: dict[str, Any], seed: int
) -> None:
    trace = by_time(trace)
    arguments = {"window": window((5, 8), kind), "policy": policy, "seed": seed, **budget}
    want = drive(trace, **arguments)
    exactly = budget == {"memory": None}  # there are two ways to an exact join, and the size of a push chooses
    same(want, drive(trace, ends, **arguments), *(["comparisons"] if exactly else []))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_row_by_row(policy: pen.Policy, kind: Kind) -> None:
    trace = by_time(random_trace(4, 500, 25, tie=0.6))
    for budget in ({"memory": 20}, {"memory": "3kB", "split": "fixed"}):
        arguments = {"window": window((15, 25), kind), "policy": policy, "seed": 3, **budget}
        want = drive(trace, table=weighty_table, **arguments)
        same(want, drive(trace, range(len(trace)), weighty_table, **arguments))


@pytest.mark.parametrize("source", ["decayed", "history", "window"])
@pytest.mark.parametrize("name", ["prob", "life"])
@pytest.mark.parametrize("split", ["shared", "fixed"])
def test_more_keys_than_are_counted(monkeypatch: pytest.MonkeyPatch, name: str, source: str, split: str) -> None:
    """Counting one key may mean to forget another, whose tuples are worth less from then on.

    Saving lays the order of the tuples out anew from the counts, as do pushes of many new keys: that must not show.
    """
    monkeypatch.setattr(statistics, "CELLS", 16)
    trace = by_time(random_trace(5, 3000, 200))
    policy = pen.policy(name, statistics=source)
    arguments: dict[str, Any] = {"window": 200, "memory": 60, "split": split, "policy": policy}
    want = drive(trace, **arguments)
    pusher = Pusher(**arguments)
    for part in pushes(trace, range(0, 3000, 50)):
        pusher.push(part)
        pusher.reborn()
    same(want, pusher.finish())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_surge(policy: pen.Policy) -> None:
    """A tick of thousands of rows makes room that is given back later, which must not show."""
    calm = by_time(random_trace(6, 300, 40, tie=0.6))
    last = calm[-1].ts
    surge = [Arrival(side, last + 1, at % 50) for side in range(2) for at in range(2500)]
    trace = calm + surge + [Arrival(side, ts + last + 10, key) for side, ts, key in calm]
    ends = [*range(0, 300, 50), *range(5300, 5600, 10)]
    for budget in ({"memory": 60}, {"memory": "9kB"}):
        want = drive(trace, (), weighty_table, window=30, policy=policy, **budget)
        same(want, drive(trace, ends, weighty_table, window=30, policy=policy, **budget))


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy.name != "rand"], ids=str)
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_the_order_inside_a_tick_does_not_matter(policy: pen.Policy, kind: Kind) -> None:
    trace = random_trace(12, 400, 15, tie=0.7)
    turned = sorted(trace, key=lambda arrival: (arrival.ts, -arrival.side))
    arguments = {"window": window((15, 25), kind), "policy": policy, "memory": 20}
    want = drive(by_time(trace), range(400), **arguments)
    got = drive(turned, range(400), **arguments)
    assert sorted(want.pairs) == sorted(got.pairs)
    assert want.shed == got.shed
    assert want.live == got.live


# --- saving -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@settings(max_examples=12)
@given(
    traces(rows=50, keys=4, late=True),
    st.lists(st.integers(0, 50), min_size=1),
    st.sampled_from(["time", "rows"]),
    st.sampled_from(BUDGETS),
    st.sampled_from([plain_table, text_table]),
    st.integers(0, 3),
)
def test_saved_anywhere(
    policy: pen.Policy,
    trace: list[Arrival],
    ends: list[int],
    kind: Kind,
    budget: dict[str, Any],
    table: Table,
    lateness: int,
) -> None:
    if table is text_table:
        policy = pen.policy(policy.name)
    arguments = {"window": window((5, 8), kind), "lateness": lateness, "policy": policy, "seed": 5, **budget}
    straight, broken = Pusher(table, **arguments), Pusher(table, **arguments)
    for part in pushes(trace, ends):
        straight.push(part)
        broken.push(part)
        broken.reborn()
        assert straight.rows[-1] == broken.rows[-1]
    same(straight.finish(), broken.finish())


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("kind", ["time", "rows"])
@pytest.mark.parametrize("memory", ["4kB", 30])
def test_saved_with_importance(policy: pen.Policy, kind: Kind, memory: object) -> None:
    trace = by_time(random_trace(8, 600, 20))
    arguments: dict[str, Any] = {"importance": "weight", "combine": "product", "memory": memory}
    arguments |= {"window": window((20, 30), kind), "policy": policy}
    straight, broken = Pusher(weighty_table, **arguments), Pusher(weighty_table, **arguments)
    for at, part in enumerate(pushes(trace, range(0, 600, 15))):
        straight.push(part)
        broken.push(part)
        if at % 7 == 3:
            broken.reborn()
        assert straight.rows[-1] == broken.rows[-1]
    want, got = straight.finish(), broken.finish()
    same(want, got)
    assert want.report.importance
    assert want.report.importance == got.report.importance


def test_saved_before_both_sides_have_shown_their_columns() -> None:
    trace = by_time(random_trace(2, 60, 4))
    want = drive([*[a for a in trace if a.side == 0], *[a for a in trace if a.side]], (), window=9, lateness=100)
    join = pen.Join(on="key", time="ts", window=9, lateness=100)
    join.push(left=plain_table(trace, 0, 0))
    join = pen.Join.from_state(join.state_dict())
    joined = join.push(right=plain_table(trace, 1, 0))
    assert sorted(want.pairs) == sorted(
        zip(*(joined[name].to_pylist() for name in ("row_left", "row_right")), strict=True)
    )
    assert want.report.pairs == join.report().pairs


# --- resizing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("kind", ["time", "rows"])
@pytest.mark.parametrize("split", ["shared", "fixed"])
def test_resized_memory(policy: pen.Policy, kind: Kind, split: str) -> None:
    trace = by_time(random_trace(21, 500, 12))
    pusher = Pusher(window=window((20, 30), kind), memory=40, split=split, policy=policy)
    limit, done = 40, 0
    for at, part in enumerate(pushes(trace, range(0, 500, 10))):
        if at in {15, 30, 40}:
            limit = {15: 8, 30: 25, 40: 3}[at]
            pusher.join.resize(memory=limit)
        pusher.push(part)
        done += len(part)
        if part[0].ts < part[-1].ts:  # a tick was closed under the new limit
            held = held_after_ticks(pusher.join, trace[:done])
            assert len(held) <= limit
            if split == "fixed":
                assert max(sum(side == which for which, _ in held) for side in range(2)) <= limit - limit // 2
    got = pusher.finish()
    assert len(got.live) <= 3
    assert got.report.balanced
    assert set(got.pairs) <= exact(trace, spans=(20, 30), kind=kind)


@pytest.mark.parametrize("policy", [None, *POLICIES], ids=str)
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_resized_window(policy: pen.Policy | None, kind: Kind) -> None:
    trace = by_time(random_trace(22, 500, 12))
    bounds: dict[str, Any] = {} if policy is None else {"memory": 25, "policy": policy}
    pusher = Pusher(window=window((20, 30), kind), **bounds)
    sizes = [(20, 30), (6, 6), (25, 10)]
    parts = pushes(trace, (170, 330))
    for spans, part in zip(sizes, parts, strict=True):
        pusher.join.resize(window=window(spans, kind))
        pusher.push(part)
        pusher.join.advance(part[-1].ts + 1)
        pusher.reborn()
    got = pusher.finish()
    widest = exact(trace, spans=(25, 30), kind=kind)
    assert set(got.pairs) <= widest
    assert len(set(got.pairs)) == len(got.pairs)
    assert got.report.balanced
    if policy is None:  # before the first change the join is exact, afterwards only what had expired is missing
        first = exact(trace[:170], spans=(20, 30), kind=kind)
        assert first <= set(got.pairs)
        assert len(got.pairs) > len(first)


def test_resized_bytes() -> None:
    trace = by_time(random_trace(23, 300, 12))
    pusher = Pusher(weighty_table, window=30, memory="5kB", policy="prob")
    pusher.push(trace[:150])
    pusher.join.resize(memory="1kB")
    pusher.push(trace[150:])
    got = pusher.finish()
    assert sum(map(bytes_of, got.live)) <= 1000
    assert got.live


# --- advance ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("kind", ["time", "rows"])
def test_advance_in_between_changes_nothing(policy: pen.Policy, kind: Kind) -> None:
    """Time moves on by itself when later rows come; telling the join so beforehand gives the same."""
    if policy == pen.policy("rand"):
        bounded = {"memory": 20, "policy": pen.policy("oldest")}  # what left early makes room elsewhere: other draws
    else:
        bounded = {"memory": 20, "policy": policy}
    trace = by_time(random_trace(31, 400, 12))
    for bounds in (bounded, {}):
        arguments: dict[str, Any] = {"window": window((12, 20), kind), **bounds}
        plain, told = Pusher(**arguments), Pusher(**arguments)
        for part in pushes(trace, range(0, 400, 7)):
            told.rows.append(told.join.advance(part[0].ts))
            plain.push(part)
            told.push(part)
        same(plain.finish(), told.finish(), "comparisons")  # what left early is not compared with


def test_advance_expires() -> None:
    #   time   0  1  2  3  4      window 3
    #   left   a  .  b            at 3 the first a can meet nobody any more, at 5 neither can b
    pusher = Pusher(window=3)
    pusher.push([Arrival(0, 0, 1), Arrival(0, 2, 2)])
    seen = []
    for now in range(2, 7):
        pusher.join.advance(now)
        seen.append(pusher.join.report().live.left)
    assert [2, 1, 1, 0, 0] == seen


def test_a_push_without_rows_does_not_turn_time_back() -> None:
    pusher = Pusher(window=3)
    pusher.push([Arrival(0, 1, 1)])
    pusher.join.advance(9)
    pusher.push([])
    pusher.push([Arrival(1, 2, 1)])
    got = pusher.finish()
    assert [] == got.pairs
    assert [(1, 0, "late", 9)] == got.shed
