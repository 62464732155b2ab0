"""What das2003 claims of static joins and of its online half, as assertions on small runs."""

from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from oracles import truncated, truncated_by_side
from penstock.optimum.static import approximate, pairs_of, plan
from penstock.policies.statistics import Table
from penstock.streams.workloads import Workload, uniform, zipf

WINDOW = 400
ROWS = 6000
R, S = (1, 1, 1, 3, 2), (2, 3, 1, 1, 3)


def stream(keys: tuple[int, ...]) -> pa.Table:
    return pa.table({"ts": list(range(len(keys))), "key": list(keys)})


def known(streams: Workload) -> Table:
    return pen.table(left=streams.left_chances, right=streams.right_chances)


def scores(streams: Workload, memory: list[int], policies: list[str], split: str = "fixed") -> dict[str, list[int]]:
    """Count the pairs of each policy by memory, after a warm-up of two windows; probabilities as generated."""
    chosen = [pen.policy(name, statistics=known(streams)) if name in {"prob", "life"} else name for name in policies]
    table = pen.compare(
        streams.left,
        streams.right,
        on="key",
        time="ts",
        window=WINDOW,
        policies=chosen,
        memory=memory,
        split=split,
        count_from=2 * WINDOW,
    )
    pairs = table["pairs"].to_pylist()
    return {name: pairs[i * len(memory) : (i + 1) * len(memory)] for i, name in enumerate(policies)}


def replayed(until: list[tuple[str, int, int]], split: str) -> pen.Result:
    schedule = {name: [entry[at] for entry in until] for at, name in enumerate(("side", "row", "until"))}
    return pen.run(
        stream(R), stream(S), on="key", time="ts", window=3, memory=2, split=split,
        policy=pen.policy("replay", schedule=schedule),
    )  # fmt: skip


def best_schedule(split: str) -> tuple[int, list[tuple[str, int, int]]]:
    """Try every schedule of the example by brute force: how long each tuple stays (0, 1 or 2 ticks more)."""
    best: tuple[int, list[tuple[str, int, int]]] = (-1, [])
    for stays in product(range(3), repeat=len(R) + len(S)):
        until = {(0, i): i + stays[i] for i in range(len(R))}
        until |= {(1, i): i + stays[len(R) + i] for i in range(len(S))}
        fits = True
        for tick in range(len(R)):
            held = [sum(side == s and i <= tick < end for (s, i), end in until.items()) for side in range(2)]
            fits &= max(held) <= 1 if split == "fixed" else sum(held) <= 2
        if not fits:
            continue
        pairs = sum(
            R[i] == S[j] and (i == j or (i < j <= until[0, i]) or (j < i <= until[1, j]))
            for i in range(len(R))
            for j in range(len(S))
        )
        if pairs > best[0]:
            best = (pairs, [("left" if s == 0 else "right", i, end) for (s, i), end in until.items()])
    return best


def test_the_truncated_join_is_that_of_the_recurrence() -> None:
    counts = [(7, 2), (3, 3), (1, 9), (4, 5), (4, 5)]
    m, n = np.array(counts).T
    for keep in range(m.sum() + n.sum() + 1):
        quotas, bound = plan(m, n, np.ones_like(m), keep)
        assert truncated(counts, keep) == pairs_of(quotas) == bound
        partly = [quota for quota in quotas if 0 < min(quota.kept) and quota.kept != quota.counts]
        assert sum(quota.keys for quota in partly) <= 1


def test_m_relations_lose_at_most_m_times_what_the_best_choice_loses() -> None:
    counts = [(3, 1, 2), (1, 2, 1), (2, 2, 0), (1, 1, 3)]
    everything = sum(a * b * c for a, b, c in counts)
    for keep in product(range(8), range(7), range(7)):
        quotas, _ = approximate(np.array(counts).T, np.ones(len(counts), np.int64), keep)
        best = truncated_by_side([*counts], keep)
        assert everything - pairs_of(quotas) <= 3 * (everything - best)


def test_the_example_is_exactly_seven() -> None:
    result = pen.run(stream(R), stream(S), on="key", time="ts", window=3)
    assert result.table.num_rows == 7


@pytest.mark.parametrize(("split", "want"), [("fixed", 5), ("shared", 6)])
def test_replaying_the_optimum_gives_what_it_claims(split: str, want: int) -> None:
    claimed, schedule = best_schedule(split)
    assert want == claimed
    result = replayed(schedule, split)
    assert want == result.table.num_rows
    assert result.report.balanced
    for policy in ("rand", "oldest", "prob", "life"):
        got = pen.run(
            stream(R), stream(S), on="key", time="ts", window=3, memory=2, split=split, policy=policy
        ).table.num_rows
        assert got <= want


def test_memory_for_all_but_the_newest_is_exact() -> None:
    streams = zipf(1500, keys=20, seed=3)
    window = 50
    for policy in ("rand", "oldest", "prob", "life"):
        common: dict[str, Any] = {"on": "key", "time": "ts", "window": window, "policy": policy}
        exact = pen.join(streams.left, streams.right, on="key", time="ts", window=window)
        for split in ("shared", "fixed"):
            got = pen.join(streams.left, streams.right, memory=2 * window - 2, split=split, **common)
            assert exact.num_rows == got.num_rows


@pytest.mark.figure("3", "4")
def test_rand_is_linear_in_memory() -> None:
    memory = [100, 200, 400, 600]
    rand = scores(zipf(ROWS, keys=50, seed=1), memory, ["rand"])["rand"]
    for size, pairs in zip(memory, rand, strict=True):
        assert pairs / size == pytest.approx(rand[-1] / memory[-1], rel=0.1)


@pytest.mark.figure("3", "4")
def test_prob_above_life_above_rand_on_skewed_keys() -> None:
    got = scores(zipf(ROWS, keys=50, seed=1), [100, 200, 400], ["rand", "life", "prob", "exact"])
    for rand, life, prob, exact in zip(got["rand"], got["life"], got["prob"], got["exact"], strict=True):
        assert rand < life < prob < exact


@pytest.mark.figure("5")
def test_all_equal_on_uniform_keys() -> None:
    got = scores(uniform(ROWS, keys=50, seed=1), [200, 400], ["rand", "life", "prob"])
    for rand, life, prob in zip(got["rand"], got["life"], got["prob"], strict=True):
        assert life == pytest.approx(rand, rel=0.05)
        assert prob == pytest.approx(rand, rel=0.05)


@pytest.mark.figure("6")
def test_the_advantage_of_prob_grows_with_skew() -> None:
    gains = []
    for skew in (0.0, 0.5, 1.0, 2.0):
        got = scores(zipf(ROWS, keys=50, skew=skew, seed=2), [200], ["rand", "prob"])
        gains.append(got["prob"][0] / got["rand"][0])
    assert gains == sorted(gains)
    assert gains[-1] > 2 * gains[0]


@pytest.mark.figure("variable")
def test_the_shared_split_is_at_least_as_good_when_skews_differ() -> None:
    for skew in ((1.0, 0.0), (2.0, 0.5)):
        streams = zipf(ROWS, keys=50, skew=skew, seed=5)
        fixed = scores(streams, [200, 400], ["prob"], "fixed")["prob"]
        shared = scores(streams, [200, 400], ["prob"], "shared")["prob"]
        for apart, together in zip(fixed, shared, strict=True):
            assert together >= apart


@pytest.mark.figure("3", "4", "correlation")
def test_prob_comes_near_the_optimum_and_nearer_with_correlation() -> None:
    """On uncorrelated streams it is 92 % rather than the paper's 96 %: see the table of claims."""
    shares = []
    for relation in ("anticorrelated", "uncorrelated", "correlated"):
        streams = zipf(ROWS, keys=50, relation=relation, seed=1)
        got = scores(streams, [WINDOW], ["prob", "optimum", "exact"])
        assert got["prob"][0] < got["optimum"][0] <= got["exact"][0]
        shares.append(got["prob"][0] / got["optimum"][0])
    assert shares == sorted(shares)
    assert 0.85 < shares[1] < 0.96 < shares[2]


@pytest.mark.figure("11")
def test_the_optimum_is_exact_with_half_the_memory_on_many_keys() -> None:
    got = scores(zipf(ROWS, keys=200, seed=1), [WINDOW], ["optimum", "exact"])
    assert got["optimum"][0] > 0.99 * got["exact"][0]
