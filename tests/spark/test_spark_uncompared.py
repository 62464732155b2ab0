"""Joins on conditions and with a CPU budget are completed on a real Spark, part by part, while streams go on."""

import os
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as pen
from penstock.errors import InputError, WindowError
from penstock.operator.join import settings_of
from penstock.spark import uncompared
from set_oracles import Row, pairs
from streaming import read_stream

START, SECOND, SPAN, ROWS = 1_700_000_000, 10**6, 20, 160
TIMES: dict[str, Any] = {"time": "ts", "window": f"{SPAN} seconds"}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str, float]] = {
    "items": (
        {"on": pen.overlap("tags", at_least=2)},
        {"cpu": pen.cpu(comparisons_per_second=60), "shards": 2},
        "overlap",
        2,
    ),
    "keys": ({"on": "key"}, {"cpu": pen.cpu(comparisons_per_second=1), "shards": 2}, "overlap", 1),
    "turns": ({"on": pen.band("size", within=1)}, {"memory": 24, "shards": 2}, "band", 1),
}


def rows(seed: int, case: str) -> list[Row]:
    """Return two rows a second, some of them up to a minute late, and two that are far away and meet nobody."""
    rng = np.random.default_rng(seed)
    found: list[Row] = []
    for at in range(ROWS):
        late = int(rng.integers(0, 60)) if rng.random() < 0.1 else 0
        tags = rng.integers(0, 9, 1 if case == "keys" else rng.integers(1, 6)).tolist()
        found.append((at // 2 - late, float(rng.integers(0, 40)) if case == "turns" else tags))
    far = [(500 * (at + 1), 1000.0 * (2 * at + seed)) for at in range(1, 3)]
    return found + [(ts, value if case == "turns" else [int(value)]) for ts, value in far]


def table(side: list[Row]) -> pa.Table:
    tags = [value if isinstance(value, list) else [] for _, value in side]
    return pa.table(
        {
            "ts": pa.array([(START + ts) * SECOND for ts, _ in side], pa.timestamp("us", "UTC")),
            "tags": pa.array(tags, pa.list_(pa.int64())),
            "key": pa.array([each[0] if each else None for each in tags], pa.int64()),
            "size": pa.array([None if isinstance(value, list) else value for _, value in side], pa.float64()),
            "row": np.arange(len(side)),
        }
    )


def add(tables: Sequence[pa.Table], folder: Path, cuts: Sequence[int]) -> None:
    """Write the rows between these as files, the newest last."""
    for name, each in zip(("l", "r"), tables, strict=True):
        (folder / name).mkdir(exist_ok=True)
        for low, high in pairwise(cuts):
            path = folder / name / f"{low:05}.parquet"
            pq.write_table(each[low:high], path)
            os.utime(path, (time.time() - 10_000 + low,) * 2)


def go_on(spark: Any, folder: Path, **how: Any) -> dict[str, str]:
    """Join what is there and not joined yet; returns where its outputs are."""
    left, right = (read_stream(spark, folder / name, delay="5 seconds") for name in ("l", "r"))
    outputs = {name: str(folder / name) for name in ("results", "ledger", "archive")}
    joined = pen.join(left, right, **TIMES, **how)
    query = pen.write(joined, checkpoint=str(folder / "cp"), trigger="available now", **outputs)
    query.awaitTermination()
    return outputs


def ids(frame: Any) -> Counter[tuple[int, int]]:
    return Counter((row.row_left, row.row_right) for row in frame.select("row_left", "row_right").collect())


@pytest.mark.parametrize("case", CASES)
def test_results_and_the_refined_are_the_exact_join(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(uncompared, "ROOM", 16)  # periods are as short as a window
    on, budget, name, least = CASES[case]
    sides = rows(0, case), rows(1, case)
    tables = [table(side) for side in sides]
    exact = Counter(pairs(name, least, *sides, (SPAN, SPAN)))
    rest, settings = str(tmp_path / "rest"), settings_of({**TIMES, **on, **budget})
    add(tables, tmp_path, [0, 40, 80])
    for cuts in ([80, 120, ROWS], [ROWS, ROWS + 1, ROWS + 2]):
        outputs = go_on(spark, tmp_path, **on, **budget)
        where = outputs["archive"], outputs["ledger"]
        done = uncompared.refine_into(*where, rest, settings, spark=spark, batches=3)
        assert done.parts
        both = ids(spark.read.parquet(outputs["results"])) + ids(done.rows)
        assert both <= exact
        add(tables, tmp_path, cuts)
    outputs = go_on(spark, tmp_path, **on, **budget)
    found = spark.read.parquet(outputs["results"]).drop("batch")
    refined = pen.refine(
        archive=outputs["archive"], ledger=outputs["ledger"], into=rest, spark=spark, **TIMES, **on, **budget
    )
    assert ids(found) + ids(refined) == exact
    assert ids(refined).total() > 0
    assert refined.columns == found.columns
    again = uncompared.refine_into(outputs["archive"], outputs["ledger"], rest, settings, spark=spark)
    assert not again.parts
    frames = {each: spark.read.parquet(outputs[each]) for each in ("archive", "ledger")}
    reasons = {row.reason for row in frames["ledger"].select("reason").distinct().collect()}
    assert reasons >= {"late", "budget" if case == "turns" else "unprobed"}
    assert ids(pen.refine(**frames, **TIMES, **on, **budget)) == ids(refined)
    if case == "keys":
        refused(spark, outputs, on)
    kept = uncompared.refine_into(outputs["archive"], outputs["ledger"], rest, settings, spark=spark, keep="0 s")
    assert kept.removed
    assert ids(kept.rows) == ids(refined)


def refused(spark: Any, outputs: dict[str, str], on: dict[str, Any]) -> None:
    """What was not probed is not passed over in silence."""
    where: dict[str, Any] = {"archive": outputs["archive"], "ledger": outputs["ledger"], "spark": spark}
    with pytest.raises(InputError, match="give cpu= too"):
        pen.refine(**where, **TIMES, **on)
    budget = pen.cpu(comparisons_per_second=1, method="dual", over="entered")
    with pytest.raises(InputError, match="only over='arrivals'"):
        pen.refine(**where, **TIMES, **on, cpu=budget)
    with pytest.raises(WindowError, match="only time windows"):
        pen.refine(**where, **on, time="ts", window=pen.rows(5), cpu=pen.cpu(comparisons_per_second=1))
