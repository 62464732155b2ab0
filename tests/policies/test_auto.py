"""AUTO learns from the stream what the other policies are told or assume: drift, age and importance."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.streams.workloads import zipf

JOIN: dict[str, Any] = {"on": "key", "time": "ts", "window": 100}


def table(key: np.ndarray, **more: np.ndarray) -> pa.Table:
    return pa.table({"ts": np.arange(key.size), "key": key, **more})


def test_it_learns_at_what_age_partners_come() -> None:
    rows, lag, memory = 4000, 60, 30
    key = np.arange(rows)
    left, right = table(key), table(np.concatenate([-1 - key[:lag], key[:-lag]]))
    # a pair takes one left row for `lag` ticks, and there are no others: at most memory / lag of the rows meet
    result = pen.run(left, right, **JOIN, memory=memory, policy="auto")
    late = np.array(result.table["ts_right"].to_pylist()) >= rows // 2
    assert 0.8 * memory / lag < late.sum() / (rows // 2) <= memory / lag


def test_where_there_is_nothing_to_learn_it_is_prob() -> None:
    rows, span = 14_000, 10_000  # from the start: nobody has lived to an old age, and the sample is halved
    drawn = [np.random.default_rng((8, side)).triangular(0, 0, 6_000, rows).astype(int) for side in range(2)]
    left, right = table(drawn[0]), table(6_000 - drawn[1])  # not alike: what one says is not of the other
    patient = pen.policy("prob", half_life=32 * span)
    how: dict[str, Any] = {**JOIN, "window": span, "memory": 1_000, "split": "fixed"}
    want, got = (pen.run(left, right, **how, policy=policy) for policy in (patient, "auto"))
    assert want.table.num_rows > 2_000
    assert want.table == got.table
    assert want.ledger == got.ledger


def test_one_side_may_be_silent_for_hundreds_of_spans() -> None:
    rows, span = 60_000, 100  # then nothing is left of what was counted on the other: fewer bits than a number has
    key = np.random.default_rng(9).integers(0, 400, rows)
    how: dict[str, Any] = {**JOIN, "window": span, "memory": 20, "policy": "auto"}
    right = table(key[::-1][: 10 * span])
    found = [pen.run(table(left), right, **how).report.pairs for left in (key, key[: 12 * span])]
    assert found[0] == found[1] > 0


def test_it_follows_popular_keys() -> None:
    rows, turn, memory = 6000, 500, 10
    rng = np.random.default_rng(5)
    popular = 7 * (np.arange(rows) // turn)
    sides = [table(np.where(rng.random(rows) < 0.5, popular, 1000 + rng.integers(0, 40, rows))) for _ in range(2)]
    result = pen.run(*sides, **JOIN, memory=memory, policy="auto")
    found = np.bincount(np.array(result.table["ts_right"].to_pylist()) // turn, minlength=rows // turn)
    # memory full of the popular key meets one in two arrivals: half of it on each side, twice half a partner a tick
    full = turn * memory / 2
    assert found.min() > 0.8 * full  # the first change is followed as well as later ones


def test_it_learns_from_both_sides_where_they_are_alike() -> None:
    found = {"auto": 0, "prob": 0}
    for seed in range(5):
        streams = zipf(1200, keys=50, relation="correlated", seed=seed)
        for policy in found:
            chosen = pen.policy("prob", statistics="history") if policy == "prob" else policy
            joined = pen.join(streams.left, streams.right, **{**JOIN, "window": 400}, memory=40, policy=chosen)
            found[policy] += joined.num_rows
    # with two spans to learn from, twice as many arrivals tell popular keys apart sooner
    assert found["auto"] > 1.005 * found["prob"]


def test_bursts_are_no_change_of_keys() -> None:
    rows, memory = 8000, 20
    rng = np.random.default_rng(11)
    burst = np.repeat(1000 + np.arange(rows // 20), 20)  # a key of its own for twenty ticks, never to come again
    sides = [table(np.where(rng.random(rows) < 0.5, burst, rng.zipf(1.5, rows) % 40)) for _ in range(2)]
    how: dict[str, Any] = {**JOIN, "window": 400, "memory": memory}
    found = {policy: pen.run(*sides, **how, policy=policy).report.pairs for policy in ("auto", "prob")}
    assert found["auto"] > 0.98 * found["prob"]


def test_it_keeps_what_pairs_are_worth() -> None:
    rows, memory = 3000, 12
    rng = np.random.default_rng(6)
    sides = []
    for _ in range(2):
        key = rng.integers(0, 20, rows)
        sides.append(table(key, worth=np.where(key == 3, 50.0, 1.0)))
    result = pen.run(*sides, **JOIN, memory=memory, policy="auto", importance="worth")
    worth = np.array(result.table["importance"].to_pylist())
    # ten rows of key 3 are in the windows at a time, less than memory holds: hardly a pair of it is missed
    exact = pen.run(*sides, **JOIN, importance="worth")
    assert (worth == 50.0).sum() > 0.9 * (np.array(exact.table["importance"].to_pylist()) == 50.0).sum()


def test_where_keys_say_nothing_it_keeps_what_is_important() -> None:
    streams = zipf(5600, keys=100, skew=0.0, importance="rare", seed=3)
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 400, "importance": "importance", "memory": 40}
    found = {
        policy: float(np.sum(pen.join(streams.left, streams.right, **how, policy=policy)["importance"].to_numpy()))
        for policy in ("auto", "prob")
    }
    # a pair of an important row is worth nearly twice as much, and 5 % of 800 rows in the windows are: all of memory
    assert found["auto"] > 1.3 * found["prob"]


def test_counts_that_differ_by_chance_put_no_side_first() -> None:
    rows, span, memory = 6000, 400, 80
    rng = np.random.default_rng(9)
    left, right = table(rng.zipf(1.6, rows) % 50), table(rng.integers(0, 50, rows))
    report = pen.run(left, right, **{**JOIN, "window": span}, memory=memory, policy="auto").report
    chances = dict(enumerate((np.bincount(left["key"].to_numpy()) / rows).tolist()))
    told = pen.policy("prob", statistics=pen.table(left=chances, right=dict.fromkeys(range(50), 0.02)))
    best = pen.run(left, right, **{**JOIN, "window": span}, memory=memory, policy=told).report
    # rows of the left all have the same chance, 1/50: neither is kept for a count that came out high
    assert report.pairs > 0.98 * best.pairs


@pytest.mark.parametrize("combine", [None, "min", "max", "sum", "mean", "product"])
def test_what_it_learned_does_not_depend_on_cuts_and_is_saved(combine: str | None) -> None:
    rows, lag = 1500, 60
    rng = np.random.default_rng(7)
    key = rng.integers(0, 3000, rows)
    worth = [rng.integers(0, 5, rows) + 0.5 * (key % 3) for _ in range(2)]
    left, right = (
        table(codes, worth=more)
        for codes, more in zip((key, np.concatenate([-1 - key[:lag], key[:-lag]])), worth, strict=True)
    )
    how: dict[str, Any] = {**JOIN, "memory": 30, "policy": "auto"}
    if combine is not None:
        how |= {"importance": "worth", "combine": combine}
    want = pen.run(left, right, **how).ledger.to_pylist()
    join, got = pen.Join(**how), []
    for begin, end in itertools.pairwise([0, 333, 334, 700, 1111, rows]):
        join.push(left=left.slice(begin, end - begin), right=right.slice(begin, end - begin))
        got += join.ledger().to_pylist()
        join = pen.Join.from_state(join.state_dict())
    join.finish()
    got += join.ledger().to_pylist()
    assert len(want) > rows
    for ledger in (got, want):  # each call hands over the left before the right
        ledger.sort(key=lambda row: (row["side"], row["arrival"]))
    assert got == want
