"""ARM gives up few keys whole: its choice against all choices there are, and what it leaves incomplete."""

import itertools
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import arm_oracle
import penstock as pen
from penstock.core.rng import mixed
from penstock.policies import sacrifices
from penstock.policies.statistics import CELLS
from penstock.streams.workloads import zipf

HOW: dict[str, Any] = {"on": "key", "time": "ts", "window": 60}
Rates = list[tuple[float, float]]


def harm_of(left: float, right: float, given: str) -> float:
    """Return how many tuples of a key miss a partner in a window, of so many that come on each side."""
    if not given:
        return 0.0
    windows = len(given)  # in which a missed partner may be: after a tuple, or before and after
    return left * (1 - math.exp(-right * windows)) + right * (1 - math.exp(-left * windows))


def least_harm(rates: Rates, need: float) -> float:
    """Try every way to give up sides of keys."""
    best = math.inf
    for given in itertools.product(("", "L", "R", "LR"), repeat=len(rates)):
        freed = sum(("L" in g) * left + ("R" in g) * right for g, (left, right) in zip(given, rates, strict=True))
        if freed >= need:
            best = min(best, sum(harm_of(*rate, g) for rate, g in zip(rates, given, strict=True)))
    return best


def chosen(rates: Rates, need: float) -> tuple[sacrifices.Offers, Any, int, float]:
    """Ask for the choice among keys that come so often in a window."""
    shares = np.array(rates)
    total = shares.sum(axis=0)
    flow = sacrifices.Flow(total, np.stack([total, total], axis=1))
    offers = sacrifices.make(len(rates))
    for cell, (left, right) in enumerate(shares / total):
        sacrifices.offer(offers, cell, (left, right), flow)
    return offers, *sacrifices.choose(offers, np.zeros(offers.size[0], np.bool_), need, 0.0)


def some_rates(seed: int) -> Rates:
    lots = random.Random(seed)  # noqa: S311 - a test that repeats
    return [(10 ** lots.uniform(-2, 2), 10 ** lots.uniform(-2, 2)) for _ in range(5)]


@pytest.mark.parametrize("seed", range(12))
def test_the_choice_is_near_the_best_of_all(seed: int) -> None:
    rates = some_rates(seed)
    total = sum(left + right for left, right in rates)
    for share in (0.1, 0.3, 0.5, 0.8):
        offers, taken, used, harm = chosen(rates, share * total)
        assert offers.price[: offers.size[0], sacrifices.FREED][taken].sum() >= share * total * (1 - 1e-12)
        assert used < 0 or taken[used]
        assert harm <= 1.25 * least_harm(rates, share * total)


@pytest.mark.parametrize("seed", range(4))
def test_an_offer_harms_what_the_model_says(seed: int) -> None:
    rates = some_rates(seed)
    offers, *_ = chosen(rates, 0.0)
    harm = dict.fromkeys(range(len(rates)), 0.0)
    freed = dict.fromkeys(range(len(rates)), 0.0)
    for (cell, *_), price in zip(offers.what[: offers.size[0]], offers.price, strict=False):
        harm[cell] += price[sacrifices.HARM]
        freed[cell] += price[sacrifices.FREED]
    for cell, rate in enumerate(rates):
        assert math.isclose(harm[cell], harm_of(*rate, "LR"))
        assert math.isclose(freed[cell], sum(rate))


def test_nothing_is_given_up_where_all_fits() -> None:
    _, taken, used, harm = chosen(some_rates(0), 0.0)
    assert (0, -1, 0.0) == (taken.sum(), used, harm)


def incomplete(seed: int, policy: str, memory: int, **streams: Any) -> int:
    """Count the tuples that miss a partner, pair by pair."""
    left, right, *_ = zipf(900, keys=12, seed=seed, **streams)
    ledger = pen.run(left, right, **HOW, memory=memory, policy=policy).ledger
    gone = {(row["side"], row["arrival"]): row["shed_at"] for row in ledger.to_pylist()}
    keys = [side["key"].to_pylist() for side in (left, right)]
    harmed = set()
    for i, key in enumerate(keys[0]):
        for j in range(max(0, i - HOW["window"] + 1), min(len(keys[1]), i + HOW["window"])):
            older = ("left", i) if i < j else ("right", j)
            if key == keys[1][j] and i != j and gone.get(older, math.inf) < max(i, j):
                harmed |= {("left", i), ("right", j)}
    return len(harmed)


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_fewer_tuples_are_incomplete_than_under_prob(skew: float) -> None:
    got, want = (
        sum(incomplete(seed, policy, 60, skew=skew, relation="correlated") for seed in range(3))
        for policy in ("arm", "prob")
    )
    assert got < want


def test_of_a_key_that_is_given_up_the_newest_leaves() -> None:
    left = pa.table({"ts": range(8), "key": [0] * 8})
    right = pa.table({"ts": [8, 9], "key": [1, 1]})
    ledger = pen.run(left, right, **HOW, memory=4, policy="arm").ledger
    shed = [row["arrival"] for row in ledger.to_pylist() if row["side"] == "left"]
    assert [4, 5, 6, 7] == shed[:4]


def test_a_choice_is_kept_while_streams_stay_the_same() -> None:
    left, right, *_ = zipf(4_000, keys=10, skew=0.0, seed=1)
    ledger = pen.run(left, right, **{**HOW, "window": 400}, memory=400, policy="arm").ledger
    late = [row["arrival"] for row in ledger.to_pylist() if row["side"] == "left" and row["arrival"] >= 1_000]
    shed = np.bincount(left["key"].to_numpy()[late], minlength=10)
    came = np.bincount(left["key"].to_numpy()[1_000:], minlength=10)
    # half of what is needed is there: about half of the keys have all of it, and the others nothing
    assert sum(shed > 0.9 * came) >= 3
    assert sum(shed < 0.1 * came) >= 3


def cells(key: object) -> int:
    """Return where the counts of a key are: it decides between choices that are equally good."""
    assert isinstance(key, int)
    return int(mixed(np.uint64(key))) & (CELLS - 1)


@pytest.mark.parametrize("statistics", ["decayed", "history"])
@pytest.mark.parametrize("seed", range(6))
def test_who_leaves(seed: int, statistics: str) -> None:
    """Against brute force, on streams with ticks that hold several rows, or none."""
    lots = random.Random(seed)  # noqa: S311 - a test that repeats
    spans = lots.choice([(40, 40), (24, 60), (16, 16)])
    came: list[arm_oracle.Came] = []
    for tick in range(240):
        for side in range(2):
            came += [
                (side, tick, min(int(lots.paretovariate(0.7)), 12) - 1) for _ in range(lots.choice([0, 1, 1, 2]))
            ]
    memory = int(lots.choice([0.2, 0.4, 0.6]) * sum(spans))
    tables = [
        pa.table({"ts": [tick for s, tick, _ in came if s == side], "key": [key for s, _, key in came if s == side]})
        for side in range(2)
    ]
    life = 8 * max(spans) if statistics == "decayed" else None
    want = arm_oracle.shed(came, spans, memory, cells, life)
    policy = pen.policy("arm", statistics=statistics)
    ledger = pen.run(tables[0], tables[1], on="key", time="ts", window=spans, memory=memory, policy=policy).ledger
    got = [(("left", "right").index(row["side"]), row["arrival"], row["shed_at"]) for row in ledger.to_pylist()]
    assert len(want) > 50
    assert sorted(want, key=lambda row: (row[2], row)) == sorted(got, key=lambda row: (row[2], row))
