"""What shards found and what their archives and ledgers bring back is the exact join, whatever was not compared."""

import ast
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.operator.join import settings_of
from penstock.operator.settings import Bound
from penstock.spark.packing import destinations
from penstock.spark.task import ARCHIVE, LEDGER, archive_schema, ledger_columns
from penstock.spark.uncompared import _of_period
from set_oracles import Row, pairs
from shard import Shard, task_of

START, SECOND, SPAN, BATCHES, EACH = 1_700_000_000, 10**6, 30, 6, 50
ENDLESS = 1 << 60  # a period that holds everything
FAR = 3  # micro-batches after the others with a row each that meets nobody: they move time on

CASES: dict[str, tuple[dict[str, Any], str, float, int]] = {
    "keys, cpu": ({"on": "key", "cpu": pen.cpu(comparisons_per_second=1.0)}, "overlap", 1, 2),
    "keys, selective": (
        {"on": "key", "cpu": pen.cpu(comparisons_per_second=6.0, method="selective")},
        "overlap",
        1,
        2,
    ),
    "items, cpu": (
        {"on": pen.overlap("value", at_least=2), "cpu": pen.cpu(comparisons_per_second=60)},
        "overlap",
        2,
        3,
    ),
    "items, by the clock": (
        {"on": pen.overlap("value", at_least=2), "cpu": pen.cpu(latency="1 ms")},
        "overlap",
        2,
        3,
    ),
    "turns, cpu and memory": (
        {
            "on": pen.overlap("value", at_least=2, index=False),
            "cpu": pen.cpu(comparisons_per_second=30),
            "memory": 24,
        },
        "overlap",
        2,
        3,
    ),
    "items, memory": ({"on": pen.contains("value"), "memory": 40}, "contains", 0, 3),
    "band, memory": ({"on": pen.band("value", within=1), "memory": 12}, "band", 1, 2),
}


def rows(seed: int, case: str) -> list[Row]:
    """Return rows in order of arrival, some of them late, some without a value; then some far away in time."""
    rng = np.random.default_rng(seed)
    found: list[Row] = []
    for at in range(BATCHES * EACH):
        late = rng.integers(0, 50) if rng.random() < 0.15 else 0
        value: Any = rng.integers(0, 9, rng.integers(1, 6)).tolist()
        if "band" in case:
            value = float(rng.integers(0, 40))
        elif "keys" in case:
            value = [int(rng.integers(0, 6))]
        found.append((max(0, at // 2 - int(late)), None if rng.random() < 0.03 else value))
    strange = 1000 * (seed + 1)
    far: list[Any] = [strange + 100 * at for at in range(FAR)]
    return found + [(strange % 7 + 1000 * (at + 1), far[at] if "band" in case else [far[at]]) for at in range(FAR)]


def table(side: list[Row], case: str) -> pa.Table:
    kind = pa.float64() if "band" in case else pa.list_(pa.int64())
    return pa.table(
        {
            "ts": pa.array([(START + ts) * SECOND for ts, _ in side], pa.timestamp("us", "UTC")),
            "value": pa.array([value for _, value in side], kind),
            "key": pa.array([value[0] if isinstance(value, list) else None for _, value in side], pa.int64()),
            "row": np.arange(len(side)),
        }
    )


class Run:
    """A stream of micro-batches through all shards of a join, with what each archived and gave up, by micro-batch."""

    def __init__(self, case: str) -> None:
        how, self.name, self.least, shards = CASES[case]
        self.sides = rows(0, case), rows(1, case)
        tables = [table(side, case) for side in self.sides]
        schemas = tables[0].schema, tables[1].schema
        task = replace(task_of(schemas, shards, **how), wanted=frozenset({LEDGER, ARCHIVE}))
        plain = {name: task.arguments[name] for name in ("on", "time", "window")}
        self.bound = Bound(settings_of(plain), *schemas)
        whole = Bound(settings_of({**plain, "cpu": how.get("cpu")}), *schemas)
        self.schemas = archive_schema(whole), ledger_columns(whole)
        self.shards = [Shard(task, number=number) for number in range(shards)]
        self.found: Counter[Any] = Counter()
        self.archive: list[tuple[int, dict[str, Any]]] = []
        self.ledger: list[tuple[int, dict[str, Any]]] = []
        cuts = [(at * EACH, (at + 1) * EACH) for at in range(BATCHES)]
        cuts += [(BATCHES * EACH + at, BATCHES * EACH + at + 1) for at in range(FAR)]
        newest = 0
        for batch, (low, high) in enumerate(cuts):
            watermark = (START + newest - 5) * 1000 if batch else None
            parts = [each[low:high] for each in tables]
            sent = [destinations(self.bound, side, part, shards) for side, part in enumerate(parts)]
            for number, shard in enumerate(self.shards):
                mine = [
                    part.take(pa.array(np.sort(row[to == number])))
                    for part, (row, to) in zip(parts, sent, strict=True)
                ]
                said = [ast.literal_eval(words) for words in shard.feed(mine, watermark)]
                self.found += Counter((int(row["row_left"]), int(row["row_right"])) for row in said)
                for kept, came in ((self.archive, shard.archive), (self.ledger, shard.ledger)):
                    kept += [(batch, row) for row in came]
                    came.clear()
            newest = min(max(ts for ts, _ in side[:high]) for side in self.sides)
        self.batches = len(cuts)

    def exact(self) -> Counter[Any]:
        """Return all pairs by looking at each two rows, late ones too."""
        return Counter(pairs(self.name, self.least, *self.sides, (SPAN, SPAN)))

    def refined(self, last: int, first: int | None = None, width: int = ENDLESS) -> Counter[Any]:
        """Return what micro-batches up to the last say is missing, and belongs to those from the first on."""
        groups = [None] if self.bound.division == "turns" else range(len(self.shards))
        found: Counter[Any] = Counter()
        for shard in groups:
            archive, ledger = (
                self._table([(at, row) for at, row in kept if at <= last and shard in (None, row["shard"])], schema)
                for kept, schema in zip((self.archive, self.ledger), self.schemas, strict=True)
            )
            periods = {begin for rows in (archive, ledger) for both in begins(rows, width) for begin in both}
            for period in periods:
                near, lost = (
                    rows.filter(pa.array([period in both for both in begins(rows, width)], pa.bool_()))
                    for rows in (archive, ledger)
                )
                key = pa.scalar(shard), pa.scalar(period)
                got = _of_period(key, near, lost, bound=self.bound, width=width, first=first)
                got = got.rename_columns(self.bound.schema.names)
                found += Counter(zip(got["row_left"].to_pylist(), got["row_right"].to_pylist(), strict=True))
        return found

    def _table(self, kept: list[tuple[int, dict[str, Any]]], schema: pa.Schema) -> pa.Table:
        made = pa.Table.from_pylist([row for _, row in kept], schema=schema)
        shuffled = np.random.default_rng(len(kept)).permutation(len(kept))  # no order is kept on the way
        return made.append_column("batch", pa.array([at for at, _ in kept], pa.int32())).take(pa.array(shuffled))


def begins(rows: pa.Table, width: int) -> list[set[int]]:
    """Return when the periods begin in which each row may be part of a pair."""
    times = rows["ts"].cast(pa.int64()).to_pylist()
    return [{at - at % width, (at + SPAN * SECOND - 1) // width * width} for at in times]


@pytest.mark.parametrize("case", CASES)
def test_found_and_refined_are_the_exact_join_after_every_micro_batch(case: str) -> None:
    run = Run(case)
    reasons = Counter(row["reason"] for _, row in run.ledger)
    assert reasons["late"] > 0
    assert reasons["unprobed"] + reasons["budget"] > 0
    last = run.batches - 1
    whole = run.refined(last)
    assert whole.total() > 0
    assert run.found + whole == run.exact()
    steps = [run.refined(at, at) for at in range(run.batches)]
    assert sum(steps, Counter()) == whole
    assert run.refined(last, 3) == sum(steps[3:], Counter())
    assert run.refined(last, width=SPAN * SECOND) == whole
    assert run.refined(last, 3, 3 * SPAN * SECOND // 2) == sum(steps[3:], Counter())
