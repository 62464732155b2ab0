"""Rows in order on both sides become one batch in order of time, left before right."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.exact import arrivals
from penstock.core.order import merged

times = st.lists(st.integers(0, 9), max_size=12).map(sorted)


@given(times, times)
def test_merged_is_sorted_by_time_then_side(left: list[int], right: list[int]) -> None:
    want = sorted((ts, side, row) for side, rows in enumerate((left, right)) for row, ts in enumerate(rows))
    batch, code = merged(
        *(
            arrivals(np.arange(len(rows)) + 100 * side, np.array(rows, np.int64), np.arange(len(rows)))
            for side, rows in enumerate((left, right))
        )
    )
    assert want == list(zip(batch.tick.tolist(), batch.side.tolist(), batch.row.tolist(), strict=True))
    assert [row + 100 * side for _, side, row in want] == code.tolist()
    assert batch.tick.tolist() == batch.pos.tolist()
