"""A sampled join finds every pair with the chance it says: sums over it are unbiased, and intervals hold."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from oracles import exact
from penstock.errors import StateError
from penstock.policies.memory.sample import lots
from penstock.streams.workloads import Workload, zipf
from traces import Pusher, drive, plain_table, pushes, random_trace, window

SEEDS = 200


def amounts(streams: Workload) -> tuple[Any, Any]:
    """Return the tables with row numbers."""
    return tuple(
        table.append_column(name, [range(table.num_rows)])
        for table, name in ((streams.left, "l"), (streams.right, "r"))
    )


def some(table: pa.Table, mine: Any) -> pa.Table:
    """Return some rows of a table."""
    return table.filter(pa.array(mine))


def interval(table: Any, values: np.ndarray[Any, Any]) -> tuple[float, float, float]:
    """Return a 95 % interval of a sum: pairs of the same first row are found or missed together."""
    weight = table["weight"].to_numpy()
    first_left = table["ts_left"].to_numpy() < table["ts_right"].to_numpy()
    first = np.where(first_left, table["l"].to_numpy(), -1 - table["r"].to_numpy())
    variance = 0.0
    for row in np.unique(first):
        mine = first == row
        order = np.argsort(weight[mine], kind="stable")
        w, y = weight[mine][order], values[mine][order]
        owed = np.concatenate([[0.0], np.cumsum(y * (w - 1))[:-1]])
        variance += float((w * y * (2 * owed + y * (w - 1))).sum())
    total = float((weight * values).sum())
    return total - 1.96 * variance**0.5, total, total + 1.96 * variance**0.5


@pytest.mark.parametrize(
    "given",
    [
        {"window": 60, "memory": 30},
        {"window": (40, 80), "memory": 30, "split": "fixed"},
        {"window": pen.rows(60), "memory": 30},
    ],
    ids=str,
)
def test_sums_are_unbiased_and_intervals_hold(given: dict[str, Any]) -> None:
    left, right = amounts(zipf(300, keys=12, rate=(1, 1), seed=3))
    whole = pen.join(left, right, on="key", time="ts", window=given["window"])
    wants = [float(whole.num_rows), float(whole["l"].to_numpy().sum())]
    sums: list[list[float]] = [[], []]
    held: list[list[bool]] = [[], []]
    for seed in range(SEEDS):
        table = pen.join(left, right, on="key", time="ts", policy="sample", seed=seed, **given)
        for at, values in enumerate((np.ones(table.num_rows), table["l"].to_numpy().astype(float))):
            low, mid, high = interval(table, values)
            sums[at].append(mid)
            held[at].append(low <= wants[at] <= high)
    for at, want in enumerate(wants):
        assert abs(np.mean(sums[at]) - want) < 3.5 * np.std(sums[at]) / SEEDS**0.5
        assert np.std(sums[at]) > 0
        assert np.mean(held[at]) >= 0.9


def test_sums_of_shards_that_get_another_budget_are_unbiased() -> None:
    """Three shards by key, of which each loses half of its memory half-way, and gets it back in the last quarter."""
    left, right = amounts(zipf(300, keys=12, rate=(1, 1), seed=3))
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": 60}
    want = float(pen.join(left, right, **how).num_rows)
    sides = [[some(table, table["key"].to_numpy() % 3 == shard) for table in (left, right)] for shard in range(3)]
    sums, held = [], []
    for seed in range(SEEDS // 2):
        found = []
        for shard, tables in enumerate(sides):
            op = pen.Join(**how, memory=20, policy="sample", seed=3 * seed + shard)
            for begin, end, memory in ((0, 150, 10), (150, 225, 20), (225, 300, 20)):
                mine, theirs = (some(table, np.isin(table["ts"].to_numpy(), range(begin, end))) for table in tables)
                found.append(op.push(left=mine, right=theirs))
                op.resize(memory=memory)
            found.append(op.finish())
        table = pa.concat_tables(found)
        low, mid, high = interval(table, np.ones(table.num_rows))
        sums.append(mid)
        held.append(low <= want <= high)
    assert np.std(sums) > 0
    assert abs(np.mean(sums) - want) < 3.5 * np.std(sums) / (SEEDS // 2) ** 0.5
    assert np.mean(held) >= 0.9


def test_every_pair_is_found_as_often_as_it_says() -> None:
    """Over many seeds, the mean of each pair's weight (0 if it is missed) is 1."""
    trace = random_trace(2, 40, 3, nulls=0.0, tie=0.2)
    trace.sort(key=lambda arrival: (arrival.ts, arrival.side))
    want = exact(trace, spans=(15, 15), kind="time")
    left, right = (plain_table(trace, side, 0) for side in range(2))
    counts = dict.fromkeys(want, 0.0)
    for seed in range(400):
        table = pen.join(left, right, on="key", time="ts", window=15, memory=8, policy="sample", seed=seed)
        columns = (table[name].to_pylist() for name in ("row_left", "row_right", "weight"))
        for mine, theirs, weight in zip(*columns, strict=True):
            counts[mine, theirs] += weight / 400
    assert np.mean(list(counts.values())) == pytest.approx(1, abs=0.05)
    assert max(counts.values()) < 2
    assert min(counts.values()) > 0.4


def test_neither_cuts_nor_a_saved_state_change_weights() -> None:
    trace = sorted(random_trace(6, 300, 5), key=lambda arrival: (arrival.ts, arrival.side))
    given: dict[str, Any] = {"window": window((20, 30), "time"), "memory": 12, "policy": "sample"}
    want = weights(Pusher(**given), [trace])
    assert max(want.values()) > 1.5
    pusher = Pusher(**given)
    assert weights(pusher, pushes(trace, [50, 51, 120, 200]), reborn=True) == pytest.approx(want)


def weights(pusher: Pusher, parts: list[Any], *, reborn: bool = False) -> dict[tuple[int, int], float]:
    for part in parts:
        pusher.push(part)
        if reborn:
            pusher.reborn()
    pusher.finish()
    found: dict[tuple[int, int], float] = {}
    for table in pusher.rows:
        if table.num_rows:
            columns = (table[name].to_pylist() for name in ("row_left", "row_right", "weight"))
            found |= {(mine, theirs): weight for mine, theirs, weight in zip(*columns, strict=True)}
    return found


def test_with_enough_memory_every_weight_is_one() -> None:
    table = pen.join(*amounts(zipf(200, keys=9, seed=1)), on="key", time="ts", window=20, memory=500, policy="sample")
    assert table.num_rows > 0
    assert set(table["weight"].to_pylist()) == {1.0}


def test_what_is_held_is_a_sample_by_lot() -> None:
    trace = sorted(random_trace(6, 200, 5, nulls=0), key=lambda arrival: (arrival.ts, arrival.side))
    got = drive(trace, window=1000, memory=20, policy="sample", seed=9)
    every = [(side, row) for side in range(2) for row in range(sum(arrival.side == side for arrival in trace))]
    lot = lots(9, *(np.array(column) for column in zip(*every, strict=True)))
    best = {every[at] for at in np.argsort(lot)[-20:]}
    assert got.live == best


def test_rows_that_others_chose_are_no_sample() -> None:
    pusher = Pusher(window=20, memory=12, policy="oldest")
    pusher.push(sorted(random_trace(6, 100, 5), key=lambda arrival: (arrival.ts, arrival.side)))
    with pytest.raises(StateError, match="start afresh"):
        pusher.join.changed(policy="sample")
