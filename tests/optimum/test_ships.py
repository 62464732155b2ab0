"""On real streams the optimum is proved, agrees with OR-Tools, and its schedule plays."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pen
from penstock.optimum import flow, networks
from penstock.optimum.problem import Pool, chains, problem, simultaneous
from penstock.streams.intake import NO_FLOATS, NO_INTS, Side

CHECKOUT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PENSTOCK_DATA", CHECKOUT.parent / "shared" / "data")) / "ship_weather" / "ww2.parquet"
ROWS = 6000
WINDOW = 1000


@pytest.fixture(scope="module")
def streams() -> list[pa.Table]:
    if not DATA.exists():
        pytest.skip(f"the data set ship_weather is not in {DATA.parents[1]}; PENSTOCK_DATA names its folder")
    rows = pq.read_table(DATA, columns=["cell10", "ship"])
    odd = rows["ship"].to_numpy() % 2 == 1
    halves = (rows.filter(pa.array(mask))["cell10"][:ROWS] for mask in (odd, ~odd))
    return [pa.table({"ts": np.arange(ROWS), "cell": cells}) for cells in halves]


@pytest.mark.parametrize("split", ["fixed", "shared"])
def test_the_optimum_is_proved_and_plays(streams: list[pa.Table], split: str) -> None:
    join: dict[str, Any] = {"on": "cell", "time": "ts", "window": WINDOW, "memory": 200, "split": split}
    best = pen.optimum(*streams, **join)
    assert best.value == best.bound
    assert best.value == pen.join(*streams, policy=best.replay(), **join).num_rows


def test_or_tools_finds_the_same(streams: list[pa.Table]) -> None:
    keys = [table["cell"].to_numpy().astype(np.int64) for table in streams]
    left, right = (Side(np.arange(ROWS), key, None, NO_INTS, NO_FLOATS) for key in keys)
    stated = problem((left, right), span=(WINDOW, WINDOW), by_rows=False)
    want = simultaneous(stated)
    for pool in (Pool((0,), 100), Pool((1,), 100)):
        want += flow.solve(networks.by_class(chains(stated, pool), pool)[0]).gain
    got = pen.optimum(*streams, on="cell", time="ts", window=WINDOW, memory=200, split="fixed")
    assert want == got.value
