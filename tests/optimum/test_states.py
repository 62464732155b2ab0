"""ODJA finds what the flows and brute force find, also with negative weights, also the least."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import Arrival, Row, best
from penstock.optimum import flow, networks, prices
from penstock.optimum import solve as solving
from penstock.optimum.problem import COMBINE, Pool, Problem, Tuples, chains, problem, simultaneous
from penstock.optimum.states import MemoryStates
from penstock.streams.intake import NO_FLOATS, NO_INTS, Side
from penstock.streams.workloads import zipf
from traces import by_time, traces

WEIGHTS = (0.0, 1.0, 20.0, 2.5, 1.0)
SIGNED = (-3.0, 1.0, 20.0, -0.5, 1.0)
PAIR: dict[str | None, Callable[[float, float], float]] = {
    None: lambda _left, _right: 1.0,
    "min": min,
    "sum": lambda left, right: left + right,
    "product": lambda left, right: left * right,
}


def posed(trace: list[Arrival], spans: tuple[int, int], weights: tuple[float, ...], combine: str | None) -> Problem:
    sides = []
    for side in range(2):
        mine = [arrival for arrival in trace if arrival.side == side]
        importance = np.array([weights[(3 * row + side) % 5] for row in range(len(mine))])
        sides.append(
            Side(
                np.array([arrival.ts for arrival in mine], np.int64),
                np.array([arrival.key or 0 for arrival in mine], np.int64),
                np.array([arrival.key is not None for arrival in mine], np.bool_),
                NO_INTS,
                NO_FLOATS if combine is None else importance,
            )
        )
    return problem((sides[0], sides[1]), span=spans, by_rows=False, combine=combine)


def fixed(each: int) -> tuple[Pool, ...]:
    """Return a pool for each side."""
    return Pool((0,), each), Pool((1,), each)


def odja(stated: Problem, pools: tuple[Pool, ...], *, least: bool = False) -> float:
    graphs = [MemoryStates(stated, pool, least=least) for pool in pools]
    return simultaneous(stated) + sum(graph.value() for graph in graphs)


def replayed(stated: Problem, graph: MemoryStates, limit: int) -> float:
    """Return what the schedule gains, from the timestamps alone, after checking that it fits."""
    until = graph.departures()
    for tick in range(stated.ticks.size):
        assert ((graph.tick <= tick) & (until > tick)).sum() <= limit
    total = 0.0
    for i in range(until.size):
        others: Tuples = stated.sides[1 - graph.side[i]]
        met = (others.tick > graph.tick[i]) & (others.tick <= until[i]) & (others.key == graph.key[i])
        assert until[i] <= max(graph.last[i], graph.tick[i])
        combine = {"min": np.minimum, "sum": np.add, "product": np.multiply}[COMBINE[stated.combine]]
        total += combine(graph.worth[i], others.worth[met]).sum()
    return total


def esja(stated: Problem, pools: tuple[Pool, ...]) -> list[float]:
    """Return what OR-Tools finds on each of the three networks."""
    totals = [simultaneous(stated)] * 3
    for pool in pools:
        chained = chains(stated, pool)
        each = (
            networks.by_moment(stated, pool),
            networks.by_tuple(chained, pool),
            networks.by_class(chained, pool)[0],
        )
        totals = [total + flow.solve(network).gain for total, network in zip(totals, each, strict=True)]
    return totals


@settings(max_examples=2000)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=8),
    st.integers(2, 5),
    st.integers(1, 3),
    st.sampled_from([None, "min", "sum", "product"]),
    st.sampled_from(["fixed", "shared"]),
)
def test_brute_force_three_networks_odja_and_prices_agree(
    keys: list[tuple[int, int]], span: int, places: int, combine: str | None, split: str
) -> None:
    trace = [Arrival(side, ts, both[side]) for ts, both in enumerate(keys) for side in range(2)]
    stated = posed(trace, (span, span), WEIGHTS, combine)
    most = min(places, span - 1, len(keys) - 1)
    limits, pools = (most, (Pool((0, 1), most),)) if split == "shared" else ((most, most), fixed(most))

    def worth(left: Row, right: Row) -> float:
        return PAIR[combine](WEIGHTS[3 * left.row % 5], WEIGHTS[(3 * right.row + 1) % 5])

    want = best(trace, spans=(span, span), kind="time", limits=limits, worth=worth)
    got = [*esja(stated, pools), odja(stated, pools), solving.best(stated, pools).value]
    assert [pytest.approx(want)] * 5 == got


@settings(max_examples=300)
@given(
    traces(rows=14, keys=3),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.one_of(st.integers(1, 3), st.tuples(st.integers(1, 3), st.integers(1, 3))),
    st.sampled_from([None, "min", "sum", "product"]),
)
def test_odja_is_esja(
    trace: list[Arrival], spans: tuple[int, int], limits: int | tuple[int, int], combine: str | None
) -> None:
    stated = posed(by_time(trace), spans, WEIGHTS, combine)
    pools = (Pool((0, 1), limits),) if isinstance(limits, int) else (Pool((0,), limits[0]), Pool((1,), limits[1]))
    want = solving.best(stated, pools)
    assert want.value == pytest.approx(odja(stated, pools))
    for pool, solution in zip(pools, want.pools, strict=True):
        graph = MemoryStates(stated, pool)
        assert solution.gain == pytest.approx(replayed(stated, graph, pool.limit))


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=9),
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from(["min", "sum", "product"]),
    st.sampled_from(["most", "least"]),
)
def test_negative_weights_and_the_least(
    keys: list[tuple[int, int]], span: int, limit: int, combine: str, wanted: str
) -> None:
    trace = [Arrival(side, ts, both[side]) for ts, both in enumerate(keys) for side in range(2)]
    stated = posed(trace, (span, span), SIGNED, combine)
    least = wanted == "least"

    def worth(left: Row, right: Row) -> float:
        return PAIR[combine](SIGNED[3 * left.row % 5], SIGNED[(3 * right.row + 1) % 5])

    for limits, pools in ((limit, (Pool((0, 1), limit),)), ((limit, limit), fixed(limit))):
        want = best(trace, spans=(span, span), kind="time", limits=limits, worth=worth, full=True, least=least)
        assert want == pytest.approx(odja(stated, pools, least=least))


@pytest.mark.parametrize("limit", [1, 2, 12, 13])
def test_longer_streams(limit: int) -> None:
    streams = zipf(150, keys=6, importance="rare", seed=4)
    sides = [
        Side(table["ts"].to_numpy(), table["key"].to_numpy(), None, NO_INTS, table["importance"].to_numpy())
        for table in (streams.left, streams.right)
    ]
    stated = problem((sides[0], sides[1]), span=(14, 14), by_rows=False, combine="min", count_from=28)
    pool = Pool((0,), limit)
    want = solving.best(stated, (pool,)).pools[0].gain
    graph = MemoryStates(stated, pool)
    assert want == pytest.approx(graph.value())
    chained = chains(stated, pool)
    kept = dict(zip(graph.row.tolist(), graph.departures().tolist(), strict=True))
    until = np.array([kept[row] for row in chained.row.tolist()])
    assert want == pytest.approx(prices.gains(chained, until).sum())


def test_a_schedule_of_a_longer_stream_takes_no_more_memory() -> None:
    def most(ticks: int) -> int:
        """Return the most bytes at once while a schedule is found, without what says the schedule."""
        streams = zipf(ticks, keys=4, seed=1)
        sides = [
            Side(table["ts"].to_numpy(), table["key"].to_numpy(), None, NO_INTS, NO_FLOATS)
            for table in (streams.left, streams.right)
        ]
        graph = MemoryStates(problem((sides[0], sides[1]), span=(9, 9), by_rows=False, combine=None), Pool((0,), 4))
        tracemalloc.start()
        departures = graph.departures()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak - departures.nbytes

    most(32)  # what is made once is made here
    assert most(256) < 1.4 * most(32)
