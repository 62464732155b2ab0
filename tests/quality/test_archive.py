"""The archive metric from a run's ledger equals brute force over the pairs that the run missed."""

import pyarrow as pa
import pytest

import penstock as pen
from penstock.engine.operator import settings_of
from penstock.engine.settings import Bound
from penstock.quality.archive import archive_metric, missed
from penstock.quality.exact import exact_pairs
from penstock.streams.workloads import zipf

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
    exact = {
        (i, j)
        for i, mine in enumerate(rows[0])
        for j, theirs in enumerate(rows[1])
        if mine["key"] == theirs["key"] and abs(mine["ts"] - theirs["ts"]) < SPAN
    }
    lost = exact - found
    want = len({i for i, _ in lost}) + len({j for _, j in lost})
    bound = Bound(settings_of({"on": "key", "time": "ts", "window": SPAN}), left.schema, right.schema)
    pairs = exact_pairs((bound.read(0, left), bound.read(1, right)), span=(SPAN, SPAN), by_rows=False)
    assert exact == set(zip(*(side.tolist() for side in pairs), strict=True))
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
