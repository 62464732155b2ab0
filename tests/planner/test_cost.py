"""The cost model against the paper's recursion, and the search against every order."""

import dataclasses
import math
from collections.abc import Sequence
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as pen
from multiway import Known, least_cost, loop_cost, stopping_cost, total_cost
from penstock.planner.cost import Model
from penstock.planner.orders import cheapest, cost_of, every_order, heuristic

KNOWN = st.builds(
    Known,
    rate=st.integers(1, 50),
    window=st.integers(1, 200),
    distinct=st.integers(1, 300),
    buckets=st.integers(1, 20),
    price=st.sampled_from([1, 1, 1, 7]),
)
WAYS = [("naive", None), ("eager", None), ("general", None), ("naive", 5), ("lazy", 5), ("general", 5)]


def streams(known: Sequence[Known]) -> list[pen.Stream]:
    return [pen.Stream(f"S{at + 1}", **stream._asdict()) for at, stream in enumerate(known)]


def evaluation(every: int | None) -> object:
    return "eager" if every is None else pen.every(every)


def names(order: Sequence[int]) -> list[str]:
    return [f"S{place + 1}" for place in order]


@settings(max_examples=60, deadline=None)
@given(known=st.lists(KNOWN, min_size=2, max_size=5), way=st.sampled_from(WAYS[:2] + WAYS[3:5]), data=st.data())
def test_any_order_costs_what_its_loops_cost(
    known: list[Known], way: tuple[str, int | None], data: st.DataObject
) -> None:
    algorithm, every = way
    order = tuple(data.draw(st.permutations(range(len(known)))))
    want = total_cost(known, order, algorithm, every)
    got = pen.plan(streams(known), join="hash", evaluation=evaluation(every), order=names(order), algorithm=algorithm)
    assert float(want) == pytest.approx(got.cost)
    assert sum(got.parts.values()) == pytest.approx(got.cost)


@settings(max_examples=60, deadline=None)
@given(known=st.lists(KNOWN, min_size=2, max_size=5), every=st.sampled_from([None, 5]), data=st.data())
def test_each_stream_may_have_an_order_of_its_own(known: list[Known], every: int | None, data: st.DataObject) -> None:
    orders = [tuple(data.draw(st.permutations(range(len(known))))) for _ in known]
    want = [loop_cost(known, order, source, every) for source, order in enumerate(orders)]
    given = {f"S{source + 1}": names(order) for source, order in enumerate(orders)}
    got = pen.plan(streams(known), join="hash", evaluation=evaluation(every), order=given, algorithm="general")
    assert [float(part) for part in want] == pytest.approx(list(got.parts.values()))


@settings(max_examples=40, deadline=None)
@given(known=st.lists(KNOWN, min_size=2, max_size=5), way=st.sampled_from(WAYS))
def test_the_plan_is_the_cheapest_of_all_orders(known: list[Known], way: tuple[str, int | None]) -> None:
    algorithm, every = way
    want = least_cost(known, algorithm, every)
    got = pen.plan(streams(known), join="hash", evaluation=evaluation(every), algorithm=algorithm)
    assert float(want) == pytest.approx(got.cost)


def random_streams(n: int, seed: int) -> list[pen.Stream]:
    rng = np.random.default_rng(seed)
    return [
        pen.Stream(
            f"S{at + 1}",
            rate=float(10 ** rng.uniform(0, 2)),
            window=float(10 ** rng.uniform(1, 3)),
            distinct=float(10 ** rng.uniform(0.3, 2.7)),
        )
        for at in range(n)
    ]


@pytest.mark.parametrize("n", [6, 7, 8, 9])
@pytest.mark.parametrize("algorithm", ["naive", "eager"])
def test_the_search_finds_the_least_of_every_order(n: int, algorithm: str) -> None:
    (steps,) = Model(random_streams(n, seed=n)).searches(algorithm)
    listed = every_order(steps)
    assert len(listed.orders) == len({tuple(order) for order in listed.orders.tolist()}) == np.prod(range(1, n + 1))
    want = listed.costs.min()
    assert want == pytest.approx(cost_of(steps, cheapest(steps)))


def test_all_orders_are_listed_the_cheapest_first() -> None:
    known = [Known(10, 100, 500), Known(1, 100, 50), Known(1, 200, 40)]
    got = pen.plan(streams(known)).costs()
    want = {tuple(names(order)): float(total_cost(known, order, "eager", None)) for order in permutations(range(3))}
    assert want == pytest.approx({tuple(row["order"]): row["cost"] for row in got.to_pylist()})
    assert sorted(got["cost"].to_pylist()) == got["cost"].to_pylist()


def test_orders_of_each_stream_are_listed_apart() -> None:
    got = pen.plan(random_streams(3, seed=1), evaluation=pen.every(5))
    listed = got.costs().to_pylist()
    assert len(listed) == 3 * 6
    least = {name: min(row["cost"] for row in listed if row["new"] == name) for name in ("S1", "S2", "S3")}
    assert least == pytest.approx(got.parts)


@pytest.mark.parametrize("seed", range(20))
def test_the_heuristic_is_never_below_the_optimum(seed: int) -> None:
    model = Model(random_streams(6, seed))
    (steps,) = model.searches("eager")
    found = heuristic(model, steps)
    assert sorted(found) == list(range(6))
    assert cost_of(steps, found) >= cost_of(steps, cheapest(steps)) * (1 - 1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_general_is_never_worse_than_lazy_and_naive(seed: int) -> None:
    known = random_streams(5, seed)
    for every in (1, 20, 200):
        costs = {
            name: pen.plan(known, evaluation=pen.every(every), algorithm=name).cost
            for name in ("naive", "lazy", "general")
        }
        assert costs["general"] <= min(costs["naive"], costs["lazy"]) * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(known=st.lists(KNOWN, min_size=2, max_size=4), every=st.integers(1, 60), data=st.data())
def test_loops_that_stop_early_cost_less(known: list[Known], every: int, data: st.DataObject) -> None:
    """And of orders priced so, GENERAL LAZY still has the best: each stream's own."""
    orders = [tuple(data.draw(st.permutations(range(len(known))))) for _ in known]
    model = Model(streams(known), every=every, stopping=True)
    want = [float(stopping_cost(known, order, source, every)) for source, order in enumerate(orders)]
    assert model.charges(orders).sum(axis=1).tolist() == pytest.approx(want)
    assert model.charges(orders).sum() <= Model(streams(known), every=every).charges(orders).sum() * (1 + 1e-9)
    if len(known) > 1:
        best = [cheapest(steps, source) for source, steps in enumerate(model.searches("general"))]
        cost = model.charges(best).sum()
        for algorithm in ("lazy", "naive"):
            nests = model.nests(algorithm, [cheapest(model.searches(algorithm)[0])])
            assert cost <= model.charges(nests).sum() * (1 + 1e-9)


def test_ten_streams_are_planned_but_not_listed() -> None:
    got = pen.plan(random_streams(10, seed=3))
    assert sorted(got.order) == sorted(f"S{at + 1}" for at in range(10))
    with pytest.raises(pen.errors.InputError, match="up to 9 streams"):
        got.costs()


# --- expensive predicates -----------------------------------------------------------------------------------------


def test_an_expensive_predicate_comes_early() -> None:
    known = [Known(1, 100, 50), Known(1, 110, 50), Known(1, 120, 50), Known(1, 130, 50)]
    plain = pen.plan(streams(known))
    dear = pen.plan(streams([*known[:3], known[3]._replace(price=1000)]))
    assert plain.order == ("S1", "S2", "S3", "S4")
    assert dear.order == ("S4", "S1", "S2", "S3")


# --- join graphs --------------------------------------------------------------------------------------------------

CHAIN = {("S1", "S2"): 0.01, ("S2", "S3"): 0.5, ("S3", "S4"): 0.001}


def graph_cost(known: Sequence[Known], nest: Sequence[int], source: int) -> float:
    """Walk the loops; every edge to a window outside lets its share through."""
    sizes = [1 if place == source else stream.rate * stream.window for place, stream in enumerate(known)]
    reaching, paid = float(sizes[nest[0]]), 0.0
    for at in range(1, len(nest)):
        place = nest[at]
        shares = [
            share
            for (one, other), share in CHAIN.items()
            for outside in nest[:at]
            if {one, other} == {f"S{place + 1}", f"S{outside + 1}"}
        ]
        if not shares:
            return float("inf")
        paid += reaching * sizes[place]
        reaching *= sizes[place] * math.prod(shares)
    return paid * known[source].rate


@pytest.mark.parametrize("algorithm", ["eager", "general"])
def test_a_join_graph_allows_connected_orders_only(algorithm: str) -> None:
    known = [Known(10, 100, 5), Known(1, 100, 5), Known(2, 200, 5), Known(3, 50, 5)]
    got = pen.plan(streams(known), selectivity=CHAIN, algorithm=algorithm)
    for source in range(4):
        nests = [nest for nest in permutations(range(4)) if algorithm == "general" or nest[0] == source]
        want = min(graph_cost(known, nest, source) for nest in nests)
        assert want == pytest.approx(got.parts[f"S{source + 1}"])
        mine = got.orders[f"S{source + 1}"]
        for at in range(1, 4):
            assert any({mine[at], outside} in [set(edge) for edge in CHAIN] for outside in mine[:at])
    paper = pen.plan(streams(known), selectivity=CHAIN, algorithm=algorithm, order="heuristic")
    assert np.isfinite(paper.cost)
    assert paper.cost >= got.cost * (1 - 1e-12)


def test_an_order_that_the_graph_does_not_allow_is_refused() -> None:
    known = streams([Known(1, 10, 5)] * 4)
    with pytest.raises(pen.errors.InputError, match="join each stream with one before it"):
        pen.plan(known, selectivity=CHAIN, algorithm="naive", order=["S1", "S3", "S2", "S4"])


# --- indexes ------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(known=st.lists(KNOWN, min_size=2, max_size=3), spare=st.integers(0, 6), every=st.sampled_from([None, 5]))
def test_shared_buckets_are_no_dearer_than_simple_shares(known: list[Known], spare: int, every: int | None) -> None:
    total = len(known) + spare
    algorithm = "eager" if every is None else "lazy"
    got = pen.plan(streams(known), join="hash", memory=total, evaluation=evaluation(every), algorithm=algorithm)
    counts = [stream.buckets or 1 for stream in got.streams]
    assert sum(counts) <= total
    shares = [
        share
        for share in product(range(1, total + 1), repeat=len(known))
        if sum(share) <= total and all(s <= max(1, k.distinct) for s, k in zip(share, known, strict=True))
    ]
    priced = {
        share: least_cost([k._replace(buckets=b) for k, b in zip(known, share, strict=True)], algorithm, every)
        for share in shares
    }
    assert got.cost == pytest.approx(float(priced[tuple(counts)]))
    even = tuple(min(total // len(known), k.distinct) for k in known)
    assert got.cost <= float(priced[even]) * (1 + 1e-9)
    assert got.cost <= float(min(priced.values())) * 1.2


def test_large_windows_get_more_buckets() -> None:
    known = streams([Known(1, 100, 50), Known(1, 100, 50), Known(1, 100, 50), Known(50, 100, 50)])
    got = pen.plan(known, join="hash", memory=48, evaluation=pen.every(5), algorithm="lazy")
    *slow, fast = [stream.buckets or 1 for stream in got.streams]
    assert sum([*slow, fast]) == 48
    assert fast > max(slow)
    for share in ([12, 12, 12, 12], [1, 1, 1, 45], [5, 5, 5, 33], [10, 10, 10, 18]):  # Figure 4(b)
        shared = [dataclasses.replace(stream, buckets=b) for stream, b in zip(known, share, strict=True)]
        assert got.cost <= pen.plan(shared, join="hash", evaluation=pen.every(5), algorithm="lazy").cost


def test_an_indexed_window_goes_to_the_innermost_loop() -> None:
    known = [Known(1, 100, 50), Known(1, 120, 50), Known(1, 110, 50)]
    assert pen.plan(streams(known)).order == ("S1", "S3", "S2")
    indexed = [known[0]._replace(buckets=40), *known[1:]]
    assert pen.plan(streams(indexed), join="hash").order == ("S3", "S2", "S1")
