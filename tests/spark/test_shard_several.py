"""One shard of a join of several streams, without Spark: silent streams, changing orders, engines that are lost."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as pen
from multiway import Edge, Row, Window, all_results
from penstock.operator import ordering
from several import NAMES, common
from shard import Shard, several

START, SECOND = 1_700_000_000, 1_000_000
DELAY, SPAN, END = 10, 20, 1000
HOW: dict[str, Any] = {"on": "key0", "time": "ts", "windows": f"{SPAN} seconds"}
CUTS = [0, 40, 70, 71, 110, 150, 200]  # seconds between micro-batches
Comes = Callable[[int, Row], int]


@pytest.fixture(autouse=True)
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of the test's own for the engines of this host."""
    monkeypatch.setenv("PENSTOCK_ENGINES", str(tmp_path / "engines"))
    return tmp_path / "engines"


def drawn(n: int, every: int = 3) -> list[list[Row]]:
    """Return streams with a row every few seconds and two keys; a last row without keys lets all others through."""
    return [
        [
            *(Row(t, ((t * (s + 3) + t // 7) % 3, (t * 5 + t // 11 + s) % 3)) for t in range(s % 2, 200, every)),
            Row(END, (None, None)),
        ]
        for s in range(n)
    ]


def table_of(name: str, rows: list[Row]) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "ts": pa.array([(START + row.ts) * SECOND for row in rows], pa.timestamp("us", "UTC")),
        **{f"key{at}": pa.array([row.keys[at] for row in rows], pa.int64()) for at in range(2)},
        f"row_{name}": pa.array(range(len(rows)), pa.int64()),
    }
    return pa.table(columns)


def as_it_says(_stream: int, row: Row) -> int:
    return row.ts


class Played:
    """What a shard did with streams, as Spark feeds them: by default its watermark is that of the slowest stream."""

    def __init__(
        self, streams: list[list[Row]], folder: Path, *, comes: Comes = as_it_says, lost: bool = False, **how: Any
    ) -> None:
        tables = [table_of(name, rows) for name, rows in zip(NAMES, streams, strict=False)]
        schemas = {name: table.schema for name, table in zip(NAMES, tables, strict=False)}
        task = several(schemas, **{**HOW, **how})
        shard, newest = Shard(task), [0] * len(streams)
        self.found: list[tuple[int, ...]] = []
        self.done: list[int] = []  # results after each micro-batch
        self.held: list[int] = []  # rows
        for low, high in pairwise([*CUTS, END, END + 1]):
            mine = [[low <= comes(s, row) < high for row in rows] for s, rows in enumerate(streams)]
            watermark = (START + min(newest) - DELAY) * 1000
            rows = shard.feed([t.filter(pa.array(m)) for t, m in zip(tables, mine, strict=True)], watermark)
            self.found += [tuple(int(eval(row)[f"row_{name}"]) for name in schemas) for row in rows]  # noqa: S307
            self.done.append(len(self.found))
            self.held.append(sum(shard.books["live"].values()))
            for s, (stream, here) in enumerate(zip(streams, mine, strict=True)):
                newest[s] = max([newest[s], *(row.ts for row, is_here in zip(stream, here, strict=True) if is_here)])
            if lost:  # the query is started again, and the host's engines are gone
                shutil.rmtree(folder)
                shard = Shard(task, before=shard)
        self.found.sort()
        self.books = shard.books if not lost else {}


def wanted(streams: list[list[Row]], edges: list[Edge] | None = None, span: int = SPAN) -> list[tuple[int, ...]]:
    n = len(streams)
    return all_results(streams, [Window(span)] * n, edges or common(n))


EVERY = {3: 6, 4: 12, 5: 20}  # seconds between rows, so that brute force is quick
LONG: dict[str, Any] = {"windows": "120 seconds"}


@pytest.mark.parametrize("expiration", ["auto", pen.every("30 seconds")], ids=["lazy", "lazier expiration"])
@pytest.mark.parametrize("n", [3, 4, 5])
def test_lazy_evaluation(engines: Path, n: int, expiration: Any) -> None:
    streams = drawn(n, EVERY[n])
    how = {**LONG, "evaluation": pen.every("7 seconds"), "expiration": expiration}
    got = Played(streams, engines, lost=True, **how).found
    assert wanted(streams, span=120) == got
    assert len(got) > 20


@pytest.mark.parametrize("n", [3, 4, 5])
def test_chains(engines: Path, n: int) -> None:
    """Different attributes in turn."""
    streams, pairs = drawn(n, EVERY[n]), list(pairwise(range(n)))
    on = {(NAMES[one], NAMES[other]): f"key{one % 2}" for one, other in pairs}
    got = Played(streams, engines, lost=True, on=on, **LONG).found
    assert wanted(streams, [Edge(one, one % 2, other, one % 2) for one, other in pairs], 120) == got
    assert len(got) > 20


def in_turns(faster: int, slower: int) -> list[Row]:
    """Return rows of a stream whose rate changes in the middle."""
    ts = [*range(0, 100, faster), *range(100, 200, slower)]
    return [*(Row(t, (t % 5, 0)) for t in ts), Row(END, (None, None))]


@pytest.mark.parametrize("memory", [None, 15])
def test_an_order_that_changes_changes_no_result(
    engines: Path, monkeypatch: pytest.MonkeyPatch, memory: int | None
) -> None:
    """Whether engines stay, or are lost with every micro-batch and made anew from the state."""
    monkeypatch.setattr(ordering, "SELDOM", 32)
    streams = [in_turns(1, 10), in_turns(10, 1), in_turns(4, 4)]
    plain, lost = (Played(streams, engines, lost=lost, index="none", memory=memory) for lost in (False, True))
    assert len({str(order["order"]) for order in plain.books["orders"]}) > 1
    assert plain.found == lost.found
    exact = wanted(streams)
    assert exact == plain.found if memory is None else 0 < len(plain.found) < len(exact)
    assert set(plain.found) <= set(exact)


ON_TIME: list[dict[str, Any]] = [{}, {"lateness": f"{DELAY} seconds"}]  # by the watermark; by any stream


def silent(stream: int, row: Row) -> bool:
    return stream == 2 and 40 <= row.ts < 190


def test_a_stream_that_falls_silent_is_waited_for_unless_a_lateness_is_given(engines: Path) -> None:
    """Nothing is lost in either case; only with a lateness results go on, and what is held stays bounded."""
    streams = [[row for row in rows if not silent(s, row)] for s, rows in enumerate(drawn(3))]
    waiting, going = (Played(streams, engines, **how) for how in ON_TIME)
    assert wanted(streams) == waiting.found == going.found
    assert waiting.done[1] == waiting.done[4] < going.done[1]
    per_second = 3 / 3  # rows of three streams, one every three seconds
    assert max(going.held) <= (SPAN + DELAY + 3) * per_second
    assert waiting.held[4] > 2 * max(going.held)


def test_a_stream_that_is_behind_is_late_only_if_a_lateness_is_given(engines: Path) -> None:
    """As Spark's default has it: the watermark is that of the slowest stream."""

    def comes(stream: int, row: Row) -> int:
        return 195 if silent(stream, row) else row.ts

    streams = drawn(3)
    waiting, going = (Played(streams, engines, comes=comes, **how) for how in ON_TIME)
    assert wanted(streams) == waiting.found
    assert waiting.books["shed"]["late"] == dict.fromkeys("abc", 0)
    assert set(going.found) < set(waiting.found)
    assert going.books["shed"]["late"]["c"] > 30
