"""Rows come out of their blobs in one order, by time and then by content, however the blobs were made and came."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.operator import saving
from penstock.operator.join import settings_of
from penstock.operator.settings import Bound
from penstock.spark.packing import FINGERPRINT, unpacked

SCHEMA = pa.schema([("key", pa.int64()), ("ts", pa.int64())])
BOUND = Bound(settings_of({"on": "key", "time": "ts", "window": 10}), SCHEMA, SCHEMA)

blobs = st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=12), max_size=4)


@given(blobs)
def test_rows_are_in_order_of_time_and_ties_in_order_of_content(made: list[list[tuple[int, int]]]) -> None:
    packed = []
    for rows in made:
        ts, prints = [at for at, _ in rows], [mark for _, mark in rows]
        table = pa.table({"key": prints, "ts": ts}, schema=SCHEMA)
        packed.append(saving.to_ipc(table.append_column(FINGERPRINT, pa.array(prints, pa.int64()))))
    found = unpacked(BOUND, 0, packed)
    got = list(zip(found["ts"].to_pylist(), found["key"].to_pylist(), strict=True))
    assert got == sorted(row for rows in made for row in rows)
