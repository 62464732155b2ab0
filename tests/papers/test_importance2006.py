"""What importance2006 claims, as assertions on small runs."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

import penstock as pen
from penstock.optimum.flow import solve
from penstock.optimum.networks import by_class, by_moment
from penstock.optimum.problem import Pool, Problem, chains, problem
from penstock.optimum.states import MemoryStates
from penstock.streams.intake import NO_INTS, Side
from penstock.streams.workloads import Relation, Workload, zipf

WINDOW, SEED = 20, 3
JOIN: dict[str, Any] = {
    "on": "key",
    "time": "ts",
    "window": WINDOW,
    "split": "fixed",
    "importance": "importance",
    "combine": "sum",
}


def streams(rows: int) -> Workload:
    return zipf(rows, keys=10, importance="rare", seed=SEED)


def posed(rows: int) -> Problem:
    both = streams(rows)
    sides = [
        Side(np.arange(rows), table["key"].to_numpy(), None, NO_INTS, table["importance"].to_numpy())
        for table in (both.left, both.right)
    ]
    return problem((sides[0], sides[1]), span=(WINDOW, WINDOW), by_rows=False, combine="min")


@pytest.mark.parametrize("limit", [1, 2, WINDOW - 2, WINDOW - 1])
def test_odja_and_esja_find_the_same(limit: int) -> None:
    stated = posed(200)
    pool = Pool((0,), limit)
    esja = [solve(network).gain for network in (by_class(chains(stated, pool), pool)[0], by_moment(stated, pool))]
    assert esja == pytest.approx([MemoryStates(stated, pool).value()] * 2)


@pytest.mark.figure("2")
def test_the_largest_result_is_not_the_most_important_one() -> None:
    both = streams(800)
    found = {
        objective: pen.run(
            both.left,
            both.right,
            memory=8,
            policy=pen.optimum(both.left, both.right, memory=8, objective=objective, **JOIN).replay(),
            **JOIN,
        ).report
        for objective in ("count", "importance")
    }
    assert found["count"].pairs > found["importance"].pairs
    assert found["count"].importance is not None
    assert found["importance"].importance is not None
    assert found["count"].importance < found["importance"].importance


@pytest.mark.figure("7")
def test_the_memory_of_odja_does_not_depend_on_the_length_of_the_streams() -> None:
    most = []
    for rows in (200, 1600):
        graph = MemoryStates(posed(rows), Pool((0,), 2))
        graph.value()
        tracemalloc.start()
        graph.value()
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < 1.2 * most[0]


@pytest.mark.figure("middle")
def test_the_states_of_odja_are_few_at_both_ends_of_memory_and_many_between() -> None:
    def states(limit: int) -> int:
        graph = MemoryStates(posed(60), Pool((0,), limit))
        return max(len(graph._forward(0, end, 0)) for end in (30, 40))

    few, many, one = states(1), states(3), states(WINDOW - 1)
    assert one == 1 < few <= WINDOW < many


# --- online -----------------------------------------------------------------------------------------------------


def gained(relation: Relation, skew: tuple[float, float], policies: list[str]) -> dict[str, float]:
    """Return the importance that policies gather on a window of 100 and a quarter of the memory."""
    both = zipf(1400, keys=100, skew=skew, relation=relation, importance="rare", seed=SEED)
    join = {**JOIN, "window": 100, "combine": "min", "split": ["fixed"]}
    table = pen.compare(both.left, both.right, policies=policies, memory=[50], count_from=200, **join)
    return dict(zip(table["policy"].to_pylist(), table["importance"].to_pylist(), strict=True))


@pytest.mark.figure("9")
def test_importance_or_matches_alone_are_worse_than_both() -> None:
    got = gained("uncorrelated", (1.0, 0.0), ["simp", "dimpprob", "rand"])
    assert got["rand"] < got["simp"] < got["dimpprob"]


@pytest.mark.figure("9")
def test_matches_that_are_kept_up_to_date_are_better() -> None:
    got = gained("uncorrelated", (1.0, 0.0), ["simpprob", "dimpprob"])
    assert got["simpprob"] < got["dimpprob"]


@pytest.mark.figure("11")
def test_on_correlated_streams_dimpprob_beats_dgl() -> None:
    got = gained("correlated", (1.0, 1.0), ["dgl", "dimpprob"])
    assert got["dgl"] < got["dimpprob"]
