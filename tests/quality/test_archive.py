"""The archive metric from a run's ledger equals brute force over the pairs that the run missed."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

import penstock as pen
from oracles import Arrival, Kind, Pair, exact
from penstock.operator.join import settings_of
from penstock.operator.settings import Bound
from penstock.quality.archive import archive_metric, missed
from penstock.quality.exact import exact_pairs
from penstock.streams.workloads import zipf
from traces import Got, by_time, drive, random_trace, window

SPAN = 60


def numbered(table: pa.Table, name: str) -> pa.Table:
    return table.append_column(name, pa.array(range(table.num_rows)))


@pytest.mark.parametrize("policy", ["oldest", "rand", "prob"])
def test_arm_counts_the_tuples_of_missed_pairs(policy: str) -> None:
    streams = zipf(600, keys=12, rate=(1, 2), seed=4)
    left, right = numbered(streams.left, "l"), numbered(streams.right, "r")
    result = pen.run(left, right, on="key", time="ts", window=SPAN, memory=30, policy=policy, seed=2)
    found = set(zip(result.table["l"].to_pylist(), result.table["r"].to_pylist(), strict=True))
    rows = [table.select(["ts", "key"]).to_pylist() for table in (left, right)]
    pairs_of_all = {
        (i, j)
        for i, mine in enumerate(rows[0])
        for j, theirs in enumerate(rows[1])
        if mine["key"] == theirs["key"] and abs(mine["ts"] - theirs["ts"]) < SPAN
    }
    lost = pairs_of_all - found
    want = len({i for i, _ in lost}) + len({j for _, j in lost})
    bound = Bound(settings_of({"on": "key", "time": "ts", "window": SPAN}), left.schema, right.schema)
    pairs = exact_pairs((bound.read(0, left), bound.read(1, right)), span=(SPAN, SPAN), by_rows=False)
    assert pairs_of_all == set(zip(*(side.tolist() for side in pairs), strict=True))
    mask = missed(*pairs, result.ledger)
    assert lost == set(zip(pairs[0][mask].tolist(), pairs[1][mask].tolist(), strict=True))
    assert want == archive_metric(*pairs, result.ledger)
    assert want > 0


def test_nothing_shed_is_nothing_to_complete() -> None:
    streams = zipf(100, keys=5, seed=1)
    result = pen.run(streams.left, streams.right, on="key", time="ts", window=10, memory=1000, policy="oldest")
    bound = Bound(settings_of({"on": "key", "time": "ts", "window": 10}), streams.left.schema, streams.right.schema)
    pairs = exact_pairs((bound.read(0, streams.left), bound.read(1, streams.right)), span=(10, 10), by_rows=False)
    assert result.table.num_rows == pairs[0].size
    assert archive_metric(*pairs, result.ledger) == 0


# --- from row numbers, against the oracle: both kinds of windows, late rows ------------------------------------

SPANS = (14, 20)
Rows = npt.NDArray[np.int64]


def columns(pairs: list[Pair]) -> tuple[Rows, Rows]:
    return np.array([left for left, _ in pairs], np.int64), np.array([right for _, right in pairs], np.int64)


def incomplete(pairs: list[Pair], got: Got) -> set[tuple[int, int]]:
    """Find the rows of both sides that lack a partner, by looking at every pair."""
    lost = set(pairs) - set(got.pairs)
    return {(0, left) for left, _ in lost} | {(1, right) for _, right in lost}


@pytest.mark.parametrize("policy", ["rand", "oldest", "prob", "life"])
@pytest.mark.parametrize("kind", ["time", "rows"])
@pytest.mark.parametrize("seed", range(3))
def test_against_brute_force(policy: str, kind: Kind, seed: int) -> None:
    trace = by_time(random_trace(seed, 300, 8))
    for memory in (4, 12, 30, 1000):
        got = drive(trace, range(0, 300, 11), window=window(SPANS, kind), memory=memory, policy=policy, seed=seed)
        pairs = sorted(exact(trace, spans=SPANS, kind=kind))
        left, right = columns(pairs)
        assert [pair not in set(got.pairs) for pair in pairs] == missed(left, right, got.ledger).tolist()
        assert len(incomplete(pairs, got)) == archive_metric(left, right, got.ledger)


def test_late_rows_are_incomplete() -> None:
    trace = random_trace(4, 200, 5, nulls=0, late=0.3, back=10)
    got = drive(trace, range(200), window=window(SPANS, "time"), lateness=2, memory=9, policy="prob")
    pairs = sorted(exact(trace, spans=SPANS, kind="time", lateness=100))
    assert got.report.shed["late"].total > 0
    assert len(incomplete(pairs, got)) == archive_metric(*columns(pairs), got.ledger)


def test_a_row_without_partners_is_complete() -> None:
    #   time   0  1  2      window 9, memory 1, the oldest goes
    #   left   a  b  .      a is given up at 1; nobody ever asks for it
    #   right  .  .  b
    trace = [Arrival(0, 0, 1), Arrival(0, 1, 2), Arrival(1, 2, 2)]
    got = drive(trace, window=9, memory=1, policy="oldest")
    assert [(0, 0, "budget", 1), (0, 1, "budget", 2)] == got.shed
    assert archive_metric(*columns([(1, 0)]), got.ledger) == 0
    assert archive_metric(*columns([]), got.ledger) == 0


def test_a_pair_lost_twice_counts_its_rows_once() -> None:
    trace = [Arrival(0, 0, 1), Arrival(0, 1, 1), Arrival(1, 3, 1), Arrival(1, 4, 1)]
    got = drive(trace, window=9, memory=1, policy="oldest")  # the first left row is gone before either right one
    lost = sorted(exact(trace, spans=(9, 9), kind="time") - set(got.pairs))
    assert [(0, 0), (0, 1), (1, 1)] == lost
    assert 4 == archive_metric(*columns([(0, 0), (0, 1), (1, 0), (1, 1)]), got.ledger)
