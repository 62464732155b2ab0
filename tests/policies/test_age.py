"""AGE learns at what age partners come, and keeps tuples until then: neither the newest nor the oldest as such."""

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen


@pytest.mark.parametrize("lag", [50, 600])
def test_it_learns_at_what_age_partners_come(lag: int) -> None:
    rows, span, memory = 12_000, 1_000, 300
    key = np.arange(rows)
    right = np.concatenate([-1 - key[:lag], key[:-lag]])
    tables = [pa.table({"ts": key, "key": codes}) for codes in (key, right)]
    result = pen.run(*tables, on="key", time="ts", window=span, memory=memory, policy="age")
    late = np.array(result.table["ts_right"].to_pylist()) >= rows // 2
    # a pair takes one left row for `lag` ticks, and there are no others: at most memory / lag of the rows meet
    most = min(1.0, memory / lag)
    assert 0.8 * most < late.sum() / (rows // 2) <= most
