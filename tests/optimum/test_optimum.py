"""The optimum is what brute force finds, whatever the network; it is proved by prices, and its schedule plays."""

import datetime as dt
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import penstock as pen
from oracles import Arrival, Kind, Row, best
from penstock.engine import offline, warmup
from penstock.errors import BudgetError, ImportanceError, InputError, OrderError
from penstock.optimum import flow, networks, prices
from penstock.optimum import solve as solving
from penstock.optimum.augment import Augmented
from penstock.optimum.problem import COMBINE, Chains, Pool, Problem, chains, problem, simultaneous
from penstock.streams.intake import NO_FLOATS, NO_INTS, Side
from penstock.streams.workloads import zipf
from traces import by_time, traces, window

KINDS = st.sampled_from(get_args(Kind))
SPANS = st.tuples(st.integers(1, 9), st.integers(1, 9))
LIMITS = st.one_of(st.integers(1, 3), st.tuples(st.integers(1, 2), st.integers(1, 2)))
PAIR: dict[str, Callable[[float, float], float]] = {
    "min": min,
    "max": max,
    "sum": lambda a, b: a + b,
    "product": lambda a, b: a * b,
    "mean": lambda a, b: (a + b) / 2,
}
R, S = (1, 1, 1, 3, 2), (2, 3, 1, 1, 3)


def budget(limits: int | tuple[int, int]) -> dict[str, Any]:
    return {"memory": limits} if isinstance(limits, int) else {"memory": sum(limits), "split": limits}


def weight_of(side: int, row: int) -> float:
    """Give each row an importance: few values, some equal, some 0, some no whole number."""
    return (0.0, 1.0, 1.0, 2.5, 20.0)[(3 * row + side) % 5]


def table(trace: list[Arrival], side: int) -> pa.Table:
    mine = [arrival for arrival in trace if arrival.side == side]
    return pa.table(
        {
            "ts": pa.array([arrival.ts for arrival in mine], pa.int64()),
            "key": pa.array([arrival.key for arrival in mine], pa.int64()),
            "weight": pa.array([weight_of(side, row) for row in range(len(mine))], pa.float64()),
        }
    )


def played(trace: list[Arrival], found: pen.Optimum, start: int | None, **arguments: Any) -> pa.Table:
    """Play the schedule through the join and return the pairs that count; nobody may be shed for want of room."""
    result = pen.run(table(trace, 0), table(trace, 1), on="key", time="ts", policy=found.replay(), **arguments)
    later = pc.max_element_wise(result.table["ts_left"], result.table["ts_right"])
    until = {(row["side"], row["row"]): row["until"] for row in found.schedule.to_pylist()}
    for gone in result.ledger.to_pylist():
        assert gone["shed_at"] >= until.get((gone["side"], gone["arrival"]), gone["ts"])
    return result.table if start is None else result.table.filter(pc.greater_equal(later, start))


@settings(max_examples=600)
@given(traces(rows=12, keys=3), SPANS, KINDS, LIMITS, st.sampled_from([None, None, 2, 6]))
def test_small_traces(
    trace: list[Arrival], spans: tuple[int, int], kind: Kind, limits: int | tuple[int, int], start: int | None
) -> None:
    trace = by_time(trace)
    want = best(trace, spans=spans, kind=kind, limits=limits, start=start)
    arguments = {"window": window(spans, kind), **budget(limits)}
    got = pen.optimum(table(trace, 0), table(trace, 1), on="key", time="ts", count_from=start, **arguments)
    assert (want, want) == (got.value, got.bound)
    assert want == played(trace, got, start, **arguments).num_rows


@settings(max_examples=400)
@given(traces(rows=11, keys=2), SPANS, KINDS, LIMITS, st.sampled_from(sorted(PAIR)))
def test_small_traces_with_importance(
    trace: list[Arrival], spans: tuple[int, int], kind: Kind, limits: int | tuple[int, int], combine: str
) -> None:
    trace = by_time(trace)

    def worth(left: Row, right: Row) -> float:
        return PAIR[combine](weight_of(0, left.row), weight_of(1, right.row))

    want = best(trace, spans=spans, kind=kind, limits=limits, worth=worth)
    arguments = {"window": window(spans, kind), "importance": "weight", "combine": combine, **budget(limits)}
    got = pen.optimum(table(trace, 0), table(trace, 1), on="key", time="ts", objective="importance", **arguments)
    assert want == pytest.approx(got.value)
    assert want == pytest.approx(got.bound)
    assert got.gap == 0
    assert want == pytest.approx(pc.sum(played(trace, got, None, **arguments)["importance"]).as_py() or 0)


def stated(left: list[int], right: list[int], span: int, *, combine: str | None = None, start: int = 0) -> Problem:
    """State the problem of the papers: one row on each side at each tick."""
    sides = [
        Side(
            np.arange(len(keys)),
            np.array(keys, np.int64),
            None,
            NO_INTS,
            np.array([weight_of(side, row) for row in range(len(keys))]) if combine else NO_FLOATS,
        )
        for side, keys in enumerate((left, right))
    ]
    return problem((sides[0], sides[1]), span=(span, span), by_rows=False, combine=combine, count_from=start)


def by_network(posed: Problem, pools: list[Pool], which: str) -> float:
    """Return what the flow through one of the networks gains."""
    total = simultaneous(posed)
    for pool in pools:
        chained = chains(posed, pool)
        if which == "moment":
            network = networks.by_moment(posed, pool)
        else:
            network = networks.by_tuple(chained, pool) if which == "tuple" else networks.by_class(chained, pool)[0]
        total += flow.solve(network).gain
    return total


@settings(max_examples=500)
@given(st.data(), st.integers(2, 9), st.integers(2, 40), st.sampled_from([None, *COMBINE]))
def test_the_three_networks_agree(data: st.DataObject, span: int, length: int, combine: str | None) -> None:
    streams = st.lists(st.integers(0, 3), min_size=length, max_size=length)
    posed = stated(
        data.draw(streams), data.draw(streams), span, combine=combine, start=data.draw(st.sampled_from([0, 2 * span]))
    )
    each = data.draw(st.integers(1, min(span, length) - 1))
    for pools in ([Pool((0,), each), Pool((1,), each)], [Pool((0, 1), 2 * each)]):
        want, *others = (by_network(posed, pools, which) for which in ("moment", "tuple", "class"))
        assert others == pytest.approx([want, want])


@pytest.mark.parametrize(("split", "want"), [("fixed", 5), ("shared", 6)])
def test_the_example_of_the_paper(split: str, want: int) -> None:
    left, right = (pa.table({"ts": range(5), "key": keys}) for keys in (R, S))
    got = pen.optimum(left, right, on="key", time="ts", window=3, memory=2, split=split)
    assert (want, want) == (got.value, got.bound)


def test_what_a_comparison_times_is_compiled_before(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def solve(*given: Any, **how: Any) -> offline.Optimum:
        done.append("solved")
        return offline.optimum(*given, **how)

    monkeypatch.setattr(warmup, "compiles", lambda: True)
    monkeypatch.setattr(warmup, "touch", done.append)
    monkeypatch.setattr("penstock.engine.compare.optimum", solve)
    streams = zipf(20, keys=3, seed=1)
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 5, "policies": ["optimum", "bound"]}
    pen.compare(streams.left, streams.right, memory=[2, 3], **how)
    assert done == ["optimum", "solved", "solved"]
    with pytest.raises(BudgetError, match="give rows"):
        pen.compare(streams.left, streams.right, memory=["1MB"], **how)
    assert done == ["optimum", "solved", "solved"]


@pytest.mark.parametrize("split", ["fixed", "shared"])
@pytest.mark.parametrize("memory", [10, 100, 198])
def test_policies_stay_below_the_optimum_and_the_optimum_below_exact(split: str, memory: int) -> None:
    streams = zipf(1500, keys=30, seed=3)
    common: dict[str, Any] = {"on": "key", "time": "ts", "window": 100, "split": split, "count_from": 200}
    got = pen.optimum(streams.left, streams.right, memory=memory, **common)
    chosen: list[str | pen.Policy] = ["exact", "rand", "oldest", "prob", "life", "optimum", "bound", got.replay()]
    scores = pen.compare(streams.left, streams.right, policies=chosen, memory=[memory], **common)
    exact, *others, best_of_all, bound, replayed = scores["pairs"].to_pylist()
    assert got.value == got.bound == best_of_all == bound == replayed
    assert max(others) <= got.value <= exact
    if memory == 198:
        assert exact == got.value


def test_the_best_of_two_pools_is_below_the_best_of_one() -> None:
    streams = zipf(800, keys=20, skew=(1.0, 0.0), seed=5)
    common: dict[str, Any] = {"on": "key", "time": "ts", "window": 80, "memory": 60}
    apart, together = (
        pen.optimum(streams.left, streams.right, split=split, **common) for split in ("fixed", "shared")
    )
    assert apart.value <= together.value


def test_compare_maximises_importance_where_there_is_one() -> None:
    streams = zipf(600, keys=10, importance="rare", seed=2)
    common: dict[str, Any] = {"on": "key", "time": "ts", "window": 60, "importance": "importance"}
    rows = pen.compare(
        streams.left, streams.right, policies=["prob", "optimum", "bound", "exact"], memory=[20], **common
    ).to_pylist()
    prob, best_of_all, bound, exact = (row["importance"] for row in rows)
    assert best_of_all == pytest.approx(bound)
    assert prob < best_of_all < exact
    assert rows[2]["pairs"] is None
    got = pen.optimum(streams.left, streams.right, memory=20, objective="importance", **common)
    assert got.value == pytest.approx(best_of_all)


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e15])
def test_importances_of_many_digits(size: float) -> None:
    rng = np.random.default_rng(4)
    tables = [
        pa.table({"ts": np.arange(200), "key": rng.integers(0, 3, 200), "weight": size * rng.random(200)})
        for _ in range(2)
    ]
    arguments: dict[str, Any] = {"on": "key", "time": "ts", "window": 15, "memory": 6, "importance": "weight"}
    got = pen.optimum(*tables, objective="importance", **arguments)
    assert got.gap == 0
    left, right = (
        Side(np.arange(200), table["key"].to_numpy(), None, NO_INTS, table["weight"].to_numpy()) for table in tables
    )
    posed = problem((left, right), span=(15, 15), by_rows=False, combine="min")
    assert by_network(posed, [Pool((0, 1), 6)], "tuple") == pytest.approx(got.value, rel=1e-4)
    played_rows = pen.join(*tables, policy=got.replay(), **arguments)
    assert pc.sum(played_rows["importance"]).as_py() == pytest.approx(got.value)


def test_what_compare_can_not_do_with_the_optimum() -> None:
    streams = zipf(50, seed=1)
    common: dict[str, Any] = {"on": "key", "time": "ts", "window": 5, "policies": ["optimum"]}
    for more, kind in (
        ({"memory": ["1MB"]}, BudgetError),
        ({"memory": [3], "per_key": 1}, BudgetError),
        ({"memory": [3], "lateness": 2}, InputError),
    ):
        with pytest.raises(kind):
            pen.compare(streams.left, streams.right, **{**common, **more})


def test_after_the_time_limit_there_is_a_schedule_and_a_bound() -> None:
    streams = zipf(3000, keys=40, seed=9)
    common: dict[str, Any] = {"on": "key", "time": "ts", "window": 300, "memory": 100, "split": "fixed"}
    want = pen.optimum(streams.left, streams.right, **common)
    got = pen.optimum(streams.left, streams.right, time_limit=1e-9, **common)
    assert 0.8 * want.value < got.value <= want.value == want.bound <= got.bound < 1.2 * want.value
    assert got.gap > 0
    played_pairs = pen.join(streams.left, streams.right, policy=got.replay(), **common)
    assert got.value == played_pairs.num_rows


@settings(max_examples=200)
@given(traces(rows=30, keys=3), st.integers(1, 9), st.integers(1, 4), st.data())
def test_a_schedule_at_any_prices_is_what_its_rule_says(
    trace: list[Arrival], span: int, limit: int, data: st.DataObject
) -> None:
    mine = [
        [(arrival.ts, arrival.key) for arrival in by_time(trace) if arrival.side == side and arrival.key is not None]
        for side in range(2)
    ]
    sides = [
        Side(np.array([ts for ts, _ in rows], np.int64), np.array([k for _, k in rows]), None, NO_INTS, NO_FLOATS)
        for rows in mine
    ]
    posed = problem((sides[0], sides[1]), span=(span, span), by_rows=False)
    pool = Pool((0, 1), limit)
    chained = chains(posed, pool)
    if not chained.row.size:
        return
    eighths = st.lists(st.integers(0, 8), min_size=chained.ticks - 1, max_size=chained.ticks - 1)
    price = np.array(data.draw(eighths)) / 8  # sums of which are exact
    got = prices.schedule(chained, pool, price)
    assert by_the_rule(chained, limit, price.tolist()) == got.tolist()
    assert (prices.held(chained, got) <= limit).all()


def by_the_rule(chained: Chains, limit: int, price: list[float]) -> list[int]:
    """Let the member leave at every tick that would clear the least from then on, as long as they are too many."""
    meetings = []  # member -> its meetings and their gains
    names = []
    for c in range(chained.classes):
        partners = range(chained.partner_start[c], chained.partner_start[c + 1])
        for m in range(chained.member_start[c], chained.member_start[c + 1]):
            alive = range(chained.arrival[m] + 1, chained.last[m] + 1)
            meetings.append([(chained.meeting[j], chained.gain[j]) for j in partners if chained.meeting[j] in alive])
            names.append((c, m))

    def worth(m: int, now: int) -> tuple[float, int, int]:
        gained, most = 0.0, -np.inf
        for tick, gain in meetings[m]:
            if tick > now:
                gained += gain
                most = max(most, gained - sum(price[now:tick]))
        return most, *names[m]

    until = chained.arrival.tolist()
    held: set[int] = set()
    for now in range(chained.ticks):
        gone = {m for m in held if meetings[m][-1][0] <= now}
        held = held - gone | {m for m in range(len(until)) if chained.arrival[m] == now}
        while len(held) > limit:
            least = min(held, key=lambda m: worth(m, now))
            held.remove(least)
            gone.add(least)
        for m in gone:
            until[m] = now
    return until


def test_the_search_for_prices_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    posed = stated([1, 2, 1, 3] * 50, [3, 1, 1, 2] * 50, 20)
    pool = Pool((0,), 3)
    chained = chains(posed, pool)
    rounds = 0
    answer = prices.answer

    def counted(*asked: Any) -> prices.Answer:
        nonlocal rounds
        rounds += 1
        return answer(*asked)

    monkeypatch.setattr(prices, "answer", counted)
    price = prices.search(chained, pool, 0.0)
    assert rounds == 2  # what places are worth, and one step
    gain = prices.gains(chained, prices.schedule(chained, pool, price)).sum()
    assert gain <= answer(chained, pool, price).bound


def test_augmentation_that_is_cut_off_lowers_the_bound_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    streams = zipf(1000, keys=20, seed=3)
    posed = stated(streams.left["key"].to_pylist(), streams.right["key"].to_pylist(), 100)
    pool = Pool((0,), 20)
    chained = chains(posed, pool)
    price = prices.search(chained, pool)
    now = 0.0

    class Interrupted(Augmented):
        def advance(self, work: int) -> None:
            nonlocal now
            super().advance(work)
            now = 2.0

    clock = SimpleNamespace(monotonic=lambda: now)
    for module in (solving, prices):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(solving, "WORK", 500)
    monkeypatch.setattr(solving, "Augmented", Interrupted)
    got = solving.solved(posed, pool, 1.0)
    assert prices.gains(chained, prices.schedule(chained, pool, price)).sum() <= got.gain < got.bound
    assert got.bound < prices.answer(chained, pool, price).bound


def test_more_memory_than_needed_is_exact() -> None:
    streams = zipf(300, keys=10, seed=1)
    common: dict[str, Any] = {"on": "key", "time": "ts", "window": 20}
    want = pen.join(streams.left, streams.right[:200], **common).num_rows
    for split in ("fixed", "shared"):
        got = pen.optimum(streams.left, streams.right[:200], memory=10**9, split=split, **common)
        assert (want, want) == (got.value, got.bound)


def test_of_an_odd_memory_the_left_gets_one_row_more() -> None:
    streams = zipf(200, keys=5, seed=6)
    common: dict[str, Any] = {"on": "key", "time": "ts", "window": 20, "memory": 5}
    want, got = (pen.optimum(streams.left, streams.right, split=split, **common) for split in ((3, 2), "fixed"))
    assert (want.value, want.bound) == (got.value, got.bound)


def test_keys_of_any_type_and_times() -> None:
    start = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
    rows = [(0, "ann", 1), (20, "bob", 2), (20, "ann", 1), (60, None, 1), (61, "bob", 2)]
    tables = [
        pa.table(
            {
                "at": pa.array(
                    [start + dt.timedelta(seconds=s + shift) for s, _, _ in rows], pa.timestamp("ms", "UTC")
                ),
                "who": [name for _, name, _ in rows],
                "which": [number for *_, number in rows],
            }
        )
        for shift in (0, 5)
    ]
    common: dict[str, Any] = {"on": ["who", "which"], "time": "at", "window": "50 seconds", "memory": 1}
    got = pen.optimum(*tables, **common)
    assert got.value == got.bound == pen.join(*tables, policy=got.replay(), **common).num_rows
    later = pen.optimum(*tables, count_from=start + dt.timedelta(seconds=25), **common)
    assert 0 < later.value < got.value


@example(0)
@example(1)
@given(st.integers(0, 1))
def test_empty_streams(side: int) -> None:
    tables = [pa.table({"ts": pa.array([1, 2], pa.int64()), "key": pa.array([1, 1], pa.int64())})] * 2
    tables[side] = tables[side][:0]
    for given_tables in (tables, [tables[0][:0], tables[1][:0]]):
        got = pen.optimum(*given_tables, on="key", time="ts", window=3, memory=2)
        assert (0, 0, 0) == (got.value, got.bound, got.schedule.num_rows)


TWO = pa.table({"ts": [1, 2], "key": [1, 1], "weight": [1.0, -1.0], "word": ["a", "b"]})


@pytest.mark.parametrize(
    ("arguments", "kind", "argument"),
    [
        ({"memory": "1MB"}, BudgetError, "memory"),
        ({"memory": 0}, BudgetError, "memory"),
        ({"memory": 1, "split": "fixed"}, BudgetError, "memory"),
        ({"objective": "pairs"}, InputError, "objective"),
        ({"objective": "importance"}, ImportanceError, "importance"),
        ({"objective": "importance", "importance": "weight"}, ImportanceError, "importance='weight'"),
        ({"time_limit": 0}, InputError, "time_limit"),
        ({"time_limit": "soon"}, InputError, "time_limit"),
        ({"count_from": "noon"}, InputError, "count_from"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], kind: type[InputError], argument: str) -> None:
    given_arguments = {"on": "key", "time": "ts", "window": 3, "memory": 2, **arguments}
    with pytest.raises(kind) as caught:
        pen.optimum(TWO, TWO, **given_arguments)
    assert argument == caught.value.argument


def test_rows_out_of_order_are_refused() -> None:
    with pytest.raises(OrderError):
        pen.optimum(TWO.take([1, 0]), TWO, on="key", time="ts", window=3, memory=2)


def test_the_papers_network_says_what_it_is_for() -> None:
    with pytest.raises(InputError, match="at most 4"):
        networks.by_moment(stated([1] * 9, [1] * 9, 5), Pool((0,), 5))
    gap = problem(
        tuple(Side(np.array([0, 2]), np.array([1, 1]), None, NO_INTS, NO_FLOATS) for _ in range(2)),  # type: ignore[arg-type]
        span=(3, 3),
        by_rows=False,
    )
    assert networks.by_moment(gap, Pool((0,), 1)).nodes > 0
    late = gap._replace(sides=(gap.sides[0], gap.sides[1]._replace(tick=np.array([1, 1]))))
    with pytest.raises(InputError, match="one a side and tick"):
        networks.by_moment(late, Pool((0,), 1))
