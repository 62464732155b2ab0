"""Rows in order on both sides become one batch in order of time, left before right."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.exact import arrivals
from penstock.core.order import merged, taking_turns

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


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=12), st.booleans(), st.integers(0, 10))
def test_rows_take_turns_by_time_then_side(rows: list[tuple[int, int]], in_order: bool, bar: int) -> None:  # noqa: FBT001
    if in_order:  # on each side
        rows.sort(key=lambda row: row[1])
    side, ts = (np.array([row[at] for row in rows], kind) for at, kind in enumerate((np.int8, np.int64)))
    want = sorted((at for at in range(len(rows)) if ts[at] < bar), key=lambda at: (ts[at], side[at]))
    assert want == taking_turns(side, ts, 3, bar).tolist()
