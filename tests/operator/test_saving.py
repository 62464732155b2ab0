"""Saved columns come back as they were, and a column that repeats itself takes little room."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from penstock.operator import saving

KINDS = st.sampled_from([np.int64, np.int32, np.uint8, np.float32, np.float64, np.uint64])
COLUMNS = KINDS.flatmap(lambda kind: nps.arrays(kind, st.integers(0, 40)))


@given(st.dictionaries(st.sampled_from(["code.0", "pos.1", "owed"]), COLUMNS))
def test_planes_come_back(arrays: dict[str, npt.NDArray[Any]]) -> None:
    back = saving.from_planes(saving.to_planes(arrays))
    assert back.keys() == arrays.keys()
    for name, column in arrays.items():
        assert back[name].dtype == column.dtype
        assert back[name].tobytes() == column.tobytes()  # NaN too
        back[name][:] = 0  # they can be written to


def test_planes_take_less_room_than_columns() -> None:
    arrays: dict[str, npt.NDArray[Any]] = {
        "pos": np.arange(10**4) + 10**15,
        "weight": np.repeat(np.array([1.3, 1.7], np.float32), 5000),
    }
    assert len(saving.to_planes(arrays)) < len(saving.to_npz(arrays)) / 4


def test_damaged_planes_are_refused() -> None:
    data = saving.to_planes({"pos": np.arange(1000)})
    with pytest.raises((ValueError, OSError, KeyError)):
        saving.from_planes(data[: len(data) // 2])
