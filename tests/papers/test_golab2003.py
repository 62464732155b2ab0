"""What golab2003 claims of its cost model and its join ordering, to the digit."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

import penstock as pen

FOUR = ("S1", "S2", "S3", "S4")


def streams(*known: tuple[float, float, float]) -> list[pen.Stream]:
    return [
        pen.Stream(f"S{at + 1}", rate=rate, window=window, distinct=distinct)
        for at, (rate, window, distinct) in enumerate(known)
    ]


TABLE_5 = streams((10, 100, 500), (1, 100, 50), (1, 200, 40), (3, 100, 5))
TABLE_6 = streams((100, 100, 200), (1, 100, 200), (1, 100, 20), (3, 100, 2))
TABLE_7 = streams((11, 100, 200), (10, 100, 100), (1, 100, 65), (1, 100, 20))
EQUAL = streams(*[(1, 100, 50)] * 4)
ONE_FAST = streams(*[(1, 100, 50)] * 3, (10, 100, 50))


def cost(known: list[pen.Stream], order: Sequence[str]) -> int:
    return round(pen.plan(known, order=order).cost)


def lazily(known: list[pen.Stream], every: float, algorithm: str) -> pen.Plan:
    return pen.plan(known, evaluation=pen.every(every), algorithm=algorithm)


def test_the_worked_example_of_appendix_b() -> None:
    plan = pen.plan(TABLE_5, order=FOUR)
    assert {"S1": 3800, "S2": 3800, "S3": 2400, "S4": 6000} == plan.parts
    assert plan.cost == 16000


def test_costs_of_table_5() -> None:
    listed = pen.plan(TABLE_5).costs()
    costs = listed["cost"].to_pylist()
    assert list(FOUR) == listed["order"][0].as_py()
    assert costs[0] == 16000
    assert ["S2", "S1", "S3", "S4"] == listed["order"][4].as_py()
    assert costs[4] == 19600
    assert 85_000 < costs[-1] < 90_000


def test_costs_of_table_6() -> None:
    listed = pen.plan(TABLE_6).costs()
    costs = listed["cost"].to_pylist()
    assert ["S2", "S1", "S3", "S4"] == listed["order"][0].as_py()
    assert round(costs[0]) == 80_400
    assert round(costs[-1]) == 646_050
    assert cost(TABLE_6, FOUR) == 120_000
    assert cost(TABLE_6, ("S2", "S3", "S1", "S4")) == 123_150
    assert cost(TABLE_6, ("S2", "S3", "S4", "S1")) == 248_450


def test_costs_of_table_7() -> None:
    listed = pen.plan(TABLE_7).costs()
    assert ["S3", "S1", "S4", "S2"] == listed["order"][0].as_py()
    assert round(listed["cost"][0].as_py()) == 47_977
    assert round(np.mean(listed["cost"].to_numpy())) == 63_362
    assert cost(TABLE_7, ("S3", "S4", "S1", "S2")) == 49_542
    assert cost(TABLE_7, ("S3", "S1", "S2", "S4")) == 51_954
    assert cost(TABLE_7, FOUR) == 68_200
    assert cost(TABLE_7, ("S2", "S1", "S3", "S4")) == 79_000


@pytest.mark.parametrize("known", [TABLE_5, TABLE_6, TABLE_7], ids=["table 5", "table 6", "table 7"])
def test_the_heuristic_finds_the_optimum_of_the_tables(known: list[pen.Stream]) -> None:
    assert pen.plan(known).cost == pytest.approx(pen.plan(known, order="heuristic").cost)


def test_the_order_is_the_same_with_equal_hash_tables() -> None:
    indexed = [pen.Stream(s.name, rate=s.rate, window=s.window, distinct=s.distinct, buckets=5) for s in TABLE_5]
    assert (
        pen.plan(TABLE_5).costs()["order"].to_pylist() == pen.plan(indexed, join="hash").costs()["order"].to_pylist()
    )
    assert pen.plan(indexed, join="hash").cost == pytest.approx(pen.plan(TABLE_5).cost / 5)


def test_the_naive_join_scales_worse_with_the_number_of_streams() -> None:
    """Figure 2: from two windows to five, EAGER falls ever further below NAIVE."""
    ratios = []
    for n in (2, 3, 4, 5):
        known = streams(*[(1, 100, 50)] * n)
        ratios.append(pen.plan(known, algorithm="naive").cost / pen.plan(known).cost)
    assert ratios[0] == pytest.approx(1)
    assert all(later > before for before, later in pairwise(ratios))
    assert ratios[-1] > 5


def test_with_equal_streams_lazy_is_as_good_as_general() -> None:
    """Figure 3(a): LAZY equals GENERAL and grows with τ; NAIVE is dearer, above all if τ is small."""
    lazy, general, naive = (
        [lazily(EQUAL, every, algorithm).cost for every in (1, 5, 10, 25, 50)]
        for algorithm in ("lazy", "general", "naive")
    )
    assert lazy == pytest.approx(general)
    assert lazy == sorted(lazy)
    gaps = [dear / cheap for dear, cheap in zip(naive, lazy, strict=True)]
    assert min(gaps) > 1
    assert gaps == sorted(gaps, reverse=True)


def test_with_one_fast_stream_lazy_falls_behind_as_the_interval_grows() -> None:
    """Figure 3(b): LAZY is as good as GENERAL for a small τ only; NAIVE passes it when τ is large."""
    small = {name: lazily(ONE_FAST, 1, name).cost for name in ("lazy", "general", "naive")}
    large = {name: lazily(ONE_FAST, 50, name).cost for name in ("lazy", "general", "naive")}
    assert small["lazy"] == pytest.approx(small["general"])
    assert small["lazy"] < small["naive"]
    assert large["general"] <= large["naive"] < large["lazy"]
    assert lazily(ONE_FAST, 50, "general").orders["S4"][-1] == "S4"
