"""Each shard gets of the budget what one pool for all would have given it, and all reckon alike."""

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pen
from penstock.spark import cache
from penstock.spark.shards import shard_of
from penstock.spark.sharing import FREQUENT, Known, Pools, Sketch, shares
from penstock.streams.keys import Coder
from penstock.streams.workloads import zipf
from shard import Shard, task_of

KEYS, SPAN, SHARDS, MEMORY = 300, 2_000, 4, 400
JOIN: dict[str, Any] = {"on": "key", "time": "ts", "window": SPAN}


@pytest.fixture(autouse=True)
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_ENGINES", str(tmp_path / "engines"))


def pools(memory: int = MEMORY, *, shared: bool = True, by_key: bool = True, in_bytes: bool = False) -> Pools:
    limit = [memory] if shared else [memory // 2, memory // 2]
    return Pools(limit, in_bytes, shared, (SPAN, SPAN), by_key)


def read(table: pa.Table) -> tuple[Any, Any]:
    """Return key codes and times."""
    return Coder((table.schema.field("key").type,)).code([table["key"]])[0], table["ts"].cast(pa.int64()).to_numpy()


def sketch(table: pa.Table, shards: int = SHARDS) -> Sketch:
    codes, ts = read(table)
    return Sketch.of(codes, ts, table.nbytes, shards)


def same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=50), st.integers(1, 9))
def test_sketches_travel_as_bytes(codes: list[int], shards: int) -> None:
    before = Sketch.of(np.array(codes), np.arange(len(codes)), 77, shards)
    after = Sketch.from_bytes(before.to_bytes())
    assert same(before, after)
    assert before.counts.sum() + before.rest[:, 0].sum() == len(codes)


def test_beyond_the_frequent_keys_only_numbers_travel() -> None:
    codes = np.repeat(np.arange(2 * FREQUENT), np.arange(2 * FREQUENT) + 1)
    found = Sketch.of(codes, np.arange(codes.size), 0, 3)
    assert sorted(found.codes) == list(range(FREQUENT, 2 * FREQUENT))
    rare = np.arange(FREQUENT)
    assert found.rest[:, 1].tolist() == pytest.approx(np.bincount(shard_of(rare, 3)), rel=0.05)
    assert found.rest[:, 0].tolist() == np.bincount(shard_of(rare, 3), rare + 1).tolist()


counts = st.lists(st.lists(st.integers(0, 40), min_size=60, max_size=60), min_size=2, max_size=6)


@given(counts, st.integers(1, 500), st.tuples(st.booleans(), st.booleans(), st.booleans()))
def test_shares_are_parts_of_the_whole(came: list[list[int]], memory: int, kind: tuple[bool, bool, bool]) -> None:
    """Whatever came, and whatever the order in which tasks report it."""
    shared, by_key, in_bytes = kind
    sides: list[list[Sketch]] = [[], []]
    for at, numbers in enumerate(came):
        codes = np.repeat(np.arange(60), numbers)
        if codes.size:
            sides[at % 2].append(Sketch.of(codes, np.arange(codes.size) + 100 * at, 10 * codes.size, SHARDS))
    known = Known.nothing(SHARDS).after(sides, SPAN)
    again = Known.nothing(SHARDS).after([side[::-1] for side in sides], SPAN)
    assert same(known, again)
    if known.ticks:
        parts = shares(known, pools(memory, shared=shared, by_key=by_key, in_bytes=in_bytes))
        assert parts.shape == (1 if shared else 2, SHARDS)
        assert parts.min() > 0
        assert parts.sum(axis=1) == pytest.approx(1)


def test_what_is_known_fades_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.spark.sharing.REMEMBERED", 5)
    old = Sketch.of(np.repeat([1, 2], 1000), np.arange(2000), 0, SHARDS)
    known = Known.nothing(SHARDS).after([[old], [old]], SPAN)
    first = shares(known, pools(100))
    for at in range(1, 30):
        new = Sketch.of(np.repeat(np.arange(3, 13), 200), np.arange(2000) + 2000 * at, 0, SHARDS)
        known = known.after([[new], [new]], SPAN)
    assert known.codes.size == 5
    assert known.ticks < 8_000
    assert abs(first - shares(known, pools(100))).max() > 0.1


@pytest.mark.parametrize("policy", ["prob", "rand"])
def test_shares_are_those_of_one_pool(policy: str) -> None:
    """Of a stream with a few popular keys: the rows that one engine keeps, by shard, are as the shares say."""
    streams = zipf(12_000, keys=KEYS, skew=1.2, seed=3)
    one = pen.Join(**JOIN, memory=MEMORY, policy=policy)
    known = Known.nothing(SHARDS)
    rows: list[Any] = []
    for low, high in pairwise(range(0, 12_001, 1_000)):
        left, right = streams.left[low:high], streams.right[low:high]
        one.push(left=left, right=right)
        known = known.after([[sketch(left)], [sketch(right)]], SPAN)
        rows.append(np.zeros(SHARDS))
        for side, table in enumerate((streams.left, streams.right)):
            codes, _ = read(table)
            rows[-1] += np.bincount(shard_of(codes[one._core.live_rows(side)], SHARDS), minlength=SHARDS)
    found = np.mean(rows[4:], axis=0) / MEMORY
    assert abs(shares(known, pools(by_key=policy == "prob"))[0] - found).max() < 0.08


def sharded(tables: list[pa.Table], number: int, *, moving: bool) -> int:
    """Return the pairs of so many engines with a part of the keys each."""
    sides = tables[0].schema, tables[1].schema
    ops = [pen.Join(**JOIN, memory=MEMORY // number, policy="prob", schemas=sides) for _ in range(number)]
    known = Known.nothing(number)
    for low, high in pairwise(range(0, tables[0].num_rows + 1, 1_000)):
        parts = [table[low:high] for table in tables]
        known = known.after([[sketch(table, number)] for table in parts], SPAN)
        portion = shares(known, pools())[0]
        for at, op in enumerate(ops):
            if moving:
                op.resize(memory=int(MEMORY * portion[at]))
            mine = [table.filter(pa.array(shard_of(read(table)[0], number) == at)) for table in parts]
            op.push(left=mine[0], right=mine[1])
        assert sum(op.report().memory_rows for op in ops) <= MEMORY + 2 * number
    return sum(op.report().pairs for op in ops)


def test_moving_shares_win_back_what_even_ones_lose() -> None:
    streams = zipf(12_000, keys=KEYS, skew=1.5, relation="correlated", seed=3)
    tables = [streams.left, streams.right]
    one = pen.run(*tables, **JOIN, memory=MEMORY, policy="prob").report.pairs
    even, moved = (sharded(tables, 8, moving=moving) for moving in (False, True))
    assert even < 0.3 * one
    assert moved > 0.9 * one


def several(tables: dict[str, pa.Table], number: int, *, moving: bool) -> int:
    """Return the results of so many engines for several streams, with a part of the keys each."""
    how: dict[str, Any] = {"on": "key", "time": "ts", "windows": SPAN, "policy": "prob"}
    schemas = {name: table.schema for name, table in tables.items()}
    ops = [pen.MultiJoin(schemas, memory=MEMORY // number, **how) for _ in range(number)]
    known = Known.nothing(number, len(tables))
    pool = Pools([MEMORY], in_bytes=False, shared=True, span=[SPAN] * len(tables), by_key=True)
    for low, high in pairwise(range(0, 12_001, 1_000)):
        parts = {name: table[low:high] for name, table in tables.items()}
        known = known.after([[sketch(table, number)] for table in parts.values()], SPAN)
        portion = shares(known, pool)[0]
        for at, op in enumerate(ops):
            if moving:
                op.resize(memory=int(MEMORY * portion[at]))
            op.push({name: t.filter(pa.array(shard_of(read(t)[0], number) == at)) for name, t in parts.items()})
        assert sum(op.report().memory_rows for op in ops) <= MEMORY + len(tables) * number
    return sum(op.report().results for op in ops)


def test_moving_shares_win_back_what_even_ones_lose_of_several_streams() -> None:
    drawn = [zipf(12_000, keys=KEYS, skew=1.2, relation="correlated", seed=seed) for seed in (3, 4)]
    tables = {"a": drawn[0].left, "b": drawn[0].right, "c": drawn[1].left}
    how: dict[str, Any] = {"on": "key", "time": "ts", "windows": SPAN}
    one = pen.run(tables, **how, memory=MEMORY, policy="prob").report.results
    even, moved = (several(tables, 8, moving=moving) for moving in (False, True))
    assert even < 0.5 * one
    assert moved > 0.8 * one


@pytest.mark.parametrize(
    ("memory", "split", "policy"),
    [(300, "shared", "prob"), (300, "fixed", "prob"), ("30kB", "shared", "prob"), (300, "shared", "oldest")],
    ids=["rows", "fixed", "bytes", "oldest"],
)
def test_shards_move_together(memory: Any, split: str, policy: str) -> None:
    """Their shares add up to the budget, and are the same when engines have to be rebuilt from the state."""
    number = 3
    streams = zipf(3_000, keys=50, skew=1.5, seed=1)
    seconds = pa.array((streams.left["ts"].to_numpy() + 1) * 1_000_000, pa.timestamp("us", "UTC"))
    tables = [table.set_column(table.schema.get_field_index("ts"), "ts", seconds) for table in streams[:2]]
    told = task_of((tables[0].schema, tables[1].schema), number, on="key", window="2000 seconds", policy=policy)
    part = memory // number if isinstance(memory, int) else "10kB"
    task = replace(
        told,
        arguments={**told.arguments, "memory": memory, "split": split, "lateness": ("watermark", "10 seconds")},
        budgets=[(part, split)] * number,
    )
    runs = []
    for kept in (True, False):
        members = [Shard(task, number=at) for at in range(number)]
        sizes = []
        for low, high in pairwise(range(0, 3_001, 500)):
            parts = [table[low:high] for table in tables]
            sketches = [sketch(table, number).to_bytes() for table in parts]
            for at, shard in enumerate(members):
                mine = [table.filter(pa.array(shard_of(read(table)[0], number) == at)) for table in parts]
                shard.feed(mine, sketches=sketches)
            if not kept:
                shutil.rmtree(cache.folder())
            sizes.append([shard.books["memory_rows"] for shard in members])
        runs.append(sizes)
    assert runs[0] == runs[1]
    if isinstance(memory, int):
        assert max(map(sum, runs[0])) <= memory + 2 * number
    assert max(runs[0][-1]) > 1.3 * min(runs[0][-1])
