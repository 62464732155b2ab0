"""A shard's state holds all it takes to go on: whatever becomes of the host's cache, and never misread."""

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.errors import StateError
from penstock.policies.registry import entries
from penstock.spark import cache, frames, state
from penstock.spark.shards import shard_ids
from penstock.spark.task import LEDGER
from shard import Shard, task_of
from streaming import ticking

ROWS, BATCHES = 240, 8
START = 1_700_000_000_000
TABLES = (ticking(1, ROWS), ticking(2, ROWS))
SCHEMAS = (TABLES[0].schema, TABLES[1].schema)
CUTS = list(pairwise(range(0, ROWS + 1, ROWS // BATCHES)))
BOUNDED: dict[str, Any] = {"memory": 20, "policy": "prob"}


@pytest.fixture(autouse=True)
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of the test's own for the engines of this host, most of whose arrays have their files."""
    monkeypatch.setenv("PENSTOCK_ENGINES", str(tmp_path / "engines"))
    monkeypatch.setattr(cache, "SMALL", 256)
    return tmp_path / "engines"


def part(at: int) -> tuple[pa.Table, pa.Table]:
    low, high = CUTS[at]
    return TABLES[0][low:high], TABLES[1][low:high]


def watermark(at: int) -> int | None:
    """Return the watermark of a micro-batch: ten seconds behind the rows before it."""
    return START + (CUTS[at - 1][1] - 1) * 1000 - 10_000 if at else None


def played(shard: Shard, batches: range, between: Callable[[], None] = lambda: None) -> list[str]:
    """Feed micro-batches and return all that came out."""
    rows = []
    for at in batches:
        rows += shard.feed(part(at), watermark(at))
        between()
    return rows


def undisturbed(**arguments: Any) -> list[str]:
    return played(Shard(task_of(SCHEMAS, **arguments)), range(BATCHES))


def test_a_shard_equals_the_embedded_engine() -> None:
    rows = undisturbed(**BOUNDED)
    wanted = pen.run(*TABLES, on="k", time="ts", window="30 seconds", **BOUNDED)
    assert len(rows) == len(set(rows)) == wanted.table.num_rows > 0


def policies() -> Iterator[Any]:
    """Yield every registered policy, and the default where rows are worth something."""
    number = np.tile(np.arange(ROWS), 2)
    until = (START // 1000 + number + number % 17) * 1_000_000
    schedule = {"side": ["left"] * ROWS + ["right"] * ROWS, "row": number, "until": until}
    for entry in entries():
        policy = pen.policy("replay", schedule=schedule) if entry.name == "replay" else entry.name
        yield pytest.param({"policy": policy, "memory": 20 if entry.name != "replay" else 200}, id=entry.name)
    for combine in ("min", "sum"):
        yield pytest.param(
            {"policy": "auto", "memory": 20, "importance": "w", "combine": combine}, id=f"auto, {combine}"
        )


@pytest.mark.parametrize("arguments", list(policies()))
def test_under_every_policy_a_shard_equals_the_embedded_engine(engines: Path, arguments: dict[str, Any]) -> None:
    """One that waits as long for late rows; also if the query is started again, and the host's engines are gone."""
    shard = Shard(task_of(SCHEMAS, **arguments))
    rows = played(shard, range(3))
    lost(engines)
    rows += played(Shard(task_of(SCHEMAS, **arguments), before=shard), range(3, BATCHES))
    join = pen.Join(on="k", time="ts", window="30 seconds", lateness=("watermark", "10 seconds"), **arguments)
    wanted = pa.concat_tables([join.push(left=TABLES[0], right=TABLES[1]), join.finish()])
    pairs = sorted(zip(wanted["v_left"].to_pylist(), wanted["v_right"].to_pylist(), strict=True))
    assert sorted(tuple(re.findall(r"'([12]:\d+)'", row)) for row in rows) == pairs
    assert 0 < len(pairs) < len(undisturbed())


def files(engines: Path) -> list[Path]:
    """Return the files of all engines that nobody has taken."""
    return [path for engine in left_behind(engines) for path in engine.iterdir()]


def left_behind(engines: Path) -> list[Path]:
    return [path for path in engines.iterdir() if path.is_dir() and "." not in path.name]


def lost(engines: Path) -> None:
    for path in left_behind(engines):
        shutil.rmtree(path)


def without_head(engines: Path) -> None:
    for path in left_behind(engines):
        (path / cache.HEAD).unlink(missing_ok=True)


def some_lost(engines: Path) -> None:
    for path in files(engines)[::5]:
        path.unlink()


def cut_off(engines: Path) -> None:
    for path in files(engines):
        os.truncate(path, path.stat().st_size // 2)


def emptied(engines: Path) -> None:
    for path in files(engines):
        os.truncate(path, 0)


def flipped(engines: Path) -> None:
    """Change a bit in one of an engine's files, another one each time."""
    for path in left_behind(engines):
        inside = sorted(path.iterdir())
        one = inside[hash(path.stat().st_mtime_ns) % len(inside)]
        data = bytearray(one.read_bytes())
        data[len(data) // 2] ^= 1
        one.write_bytes(bytes(data))


def swapped(engines: Path) -> None:
    """Put the engine of an earlier micro-batch in the place of the last one."""
    older = engines.parent / "older"
    for path in left_behind(engines):
        newest = engines.parent / "newest"
        shutil.copytree(path, newest)
        if older.exists():
            shutil.rmtree(path)
            shutil.move(older, path)
        shutil.move(newest, older)


def in_the_way(engines: Path) -> None:
    for path in left_behind(engines):
        shutil.rmtree(path)
        path.write_bytes(b"")


@pytest.mark.parametrize("damage", [lost, without_head, some_lost, cut_off, emptied, flipped, swapped, in_the_way])
@pytest.mark.parametrize(
    "arguments", [BOUNDED, {}, {"window": pen.rows(25), **BOUNDED}], ids=["prob", "exact", "rows"]
)
def test_what_becomes_of_the_cache_changes_nothing(
    engines: Path, damage: Callable[[Path], None], arguments: dict[str, Any]
) -> None:
    wanted = undisturbed(**arguments)

    shard = Shard(task_of(SCHEMAS, **arguments))
    assert played(shard, range(BATCHES), lambda: damage(engines)) == wanted


@pytest.mark.parametrize("long", [1, 2, 100])
def test_a_row_given_up_is_in_the_ledger_once(engines: Path, monkeypatch: pytest.MonkeyPatch, long: int) -> None:
    """Whether engines come from a snapshot, from snapshot and log, or from the host."""
    monkeypatch.setattr(state, "LONG_LOG", long)
    shard = Shard(replace(task_of(SCHEMAS, **BOUNDED), wanted=frozenset([LEDGER])))
    played(shard, range(BATCHES), lambda: lost(engines) if long < 100 else None)
    ids = [(row["side"], row["arrival"]) for row in shard.ledger]
    given_up = sum(count for name, count in shard.books.items() if name.startswith("shed_"))
    assert len(set(ids)) == len(ids) == given_up > 0


def test_the_file_alone_carries_an_engine_on(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever process of the host takes it up does not rebuild it."""
    wanted = undisturbed(**BOUNDED)
    shard = Shard(task_of(SCHEMAS, **BOUNDED))
    rows = played(shard, range(3))
    taken = []
    load = cache.take

    def counting(name: str, stamp: str) -> Any:
        taken.append(load(name, stamp))
        return taken[-1]

    monkeypatch.setattr(cache, "take", counting)
    rows += played(shard, range(3, BATCHES))
    assert rows == wanted
    assert len(taken) == BATCHES - 3
    assert all(engine is not None for engine in taken)
    assert len(left_behind(engines)) == 2  # one for each join: this one and the undisturbed


def left(rows: int = 0) -> pen.Join:
    """Leave an engine with some rows and return it."""
    engine = pen.Join(on="k", time="ts", window="30 seconds", schemas=SCHEMAS)
    engine.push(left=TABLES[0][:rows])
    cache.leave("one", "stamp", engine)
    return engine


def test_an_engine_is_taken_once(engines: Path) -> None:
    """Two attempts at one micro-batch do not change the same arrays; one that fails leaves nothing half changed."""
    left(50)
    assert left_behind(engines)
    assert cache.take("one", "stamp") is not None
    assert cache.take("one", "stamp") is None


def test_an_engine_of_another_stamp_or_maker_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    left()
    assert cache.take("one", "other") is None
    left()
    monkeypatch.setattr(cache, "MAKER", ["another Penstock"])
    assert cache.take("one", "stamp") is None


def test_a_folder_that_others_can_write_to_is_not_used(engines: Path) -> None:
    left()
    engines.chmod(0o777)
    assert cache.take("one", "stamp") is None
    engines.chmod(0o700)
    assert cache.take("one", "stamp") is not None


@pytest.mark.parametrize("arguments", [{}, {"memory": 60_000, "policy": "prob"}], ids=["exact", "prob"])
def test_what_is_written_grows_with_the_rows_that_come_and_not_with_those_held(
    engines: Path, arguments: dict[str, Any]
) -> None:
    size, batches = 2_000, 40
    whole = ticking(3, size * batches)
    engine: Any = pen.Join(
        on="k", time="ts", window="20000 seconds", schemas=(whole.schema, whole.schema), **arguments
    )
    seen: set[tuple[str, int]] = set()
    written = 0
    for at in range(batches):
        assert engine is not None
        engine.push(left=whole[at * size : (at + 1) * size])
        cache.leave("one", str(at), engine)
        for path in files(engines):
            status = path.stat()
            if (path.name, status.st_ino) not in seen:
                seen.add((path.name, status.st_ino))
                written += status.st_size
        held = sum(path.stat().st_size for path in files(engines))
        engine = cache.take("one", str(at))
    assert written < 6 * held  # an engine written whole each time would be some 20 times that of the last one


@pytest.mark.parametrize("small", [1, 1 << 20])
def test_snapshots_take_the_place_of_the_log(monkeypatch: pytest.MonkeyPatch, small: int) -> None:
    """What is in the state is what the head says, and no more; from it alone the engine is rebuilt."""
    wanted = undisturbed(**BOUNDED)
    monkeypatch.setattr(state, "SMALL_LOG", small)
    monkeypatch.setattr(state, "LONG_LOG", 5)
    monkeypatch.setattr(frames, "PIECE", 4096)
    shard = Shard(task_of(SCHEMAS, **BOUNDED))
    rows, logs = [], []
    for at in range(BATCHES):
        rows += shard.feed(part(at), watermark(at))
        lost(cache.folder())
        head, kept = shard.head, shard.state()
        assert set(kept["snapshot"]) == {(piece,) for piece in range(head["snapshot"])}
        assert set(kept["log"]) == {
            (entry, piece) for entry, count in enumerate(head["log"]) for piece in range(count)
        }
        assert head["log_bytes"] == sum(len(value[0]) for value in kept["log"].values())
        assert head["version"] == at + 1
        logs.append(len(head["log"]))
    assert rows == wanted
    assert max(logs) < 5
    assert 0 in logs


@pytest.mark.parametrize("arguments", [{}, BOUNDED, {**BOUNDED, "policy": "rand"}], ids=["exact", "prob", "rand"])
def test_portions_of_a_micro_batch_change_nothing(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]) -> None:
    """Nor does rebuilding the engine from the log, which has whole micro-batches."""
    wanted = undisturbed(**arguments)
    monkeypatch.setattr(state, "PORTION", 7)
    monkeypatch.setattr(state, "LEAST", 2)
    monkeypatch.setattr(state, "MOST", 11)
    monkeypatch.setattr(state, "PAIRS", 5)
    assert undisturbed(**arguments) == wanted
    shard = Shard(task_of(SCHEMAS, **arguments))
    assert played(shard, range(BATCHES), lambda: lost(cache.folder())) == wanted


def test_moments_are_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a moment has more rows than a portion; every row is joined once."""
    monkeypatch.setattr(state, "PORTION", 2)
    monkeypatch.setattr(state, "LEAST", 1)
    monkeypatch.setattr(state, "PAIRS", 1)
    seconds = [[1, 1, 1, 1, 2, 5, 5], [0, 1, 1, 5, 5, 5, 5, 9]]
    left, right = (
        pa.table({"ts": pa.array([one * 10**6 for one in side], pa.timestamp("us", "UTC")), "k": [0] * len(side)})
        for side in seconds
    )
    engine = pen.Join(
        on="k", time="ts", window="3 seconds", lateness="watermark", schemas=(left.schema, right.schema)
    )
    tables = list(state.play(engine, state.Entry((left, right), 0)))
    assert sum(table.num_rows for table in tables) == sum(abs(a - b) < 3 for a in seconds[0] for b in seconds[1])
    assert [engine.arrived[0], engine.arrived[1]] == [7, 8]
    assert 4 < len(tables) <= 6


def test_a_micro_batch_run_again_gives_the_same_rows() -> None:
    """In whatever order its blobs and their rows come."""
    shard = Shard(task_of(SCHEMAS, policy="rand", memory=20, seed=3))
    for at in range(BATCHES):
        before = shard.state()
        first = shard.feed(part(at), watermark(at))
        books = shard.books
        shard.restore(before)
        assert shard.feed(part(at), order=-1) == first
        assert {**shard.books, "memory_bytes": 0} == {**books, "memory_bytes": 0}  # an estimate


def test_a_restart_with_the_same_arguments_goes_on() -> None:
    wanted = undisturbed(**BOUNDED)
    shard = Shard(task_of(SCHEMAS, **BOUNDED))
    rows = played(shard, range(4))
    rows += played(Shard(task_of(SCHEMAS, **BOUNDED), before=shard), range(4, BATCHES))
    assert rows == wanted


@pytest.mark.parametrize(
    "change",
    [
        {"memory": 8},
        {"memory": 60},
        {"policy": "life"},
        {"policy": "rand"},
        {"window": "12 seconds"},
        {"memory": None},
    ],
    ids=str,
)
def test_a_restart_with_another_budget_policy_or_span_goes_on(change: dict[str, Any]) -> None:
    """The rows held go on; the books balance, and no pair is false or there twice."""
    exact = set(undisturbed())
    shard = Shard(task_of(SCHEMAS, **BOUNDED))
    rows = played(shard, range(4))
    after = Shard(task_of(SCHEMAS, **{**BOUNDED, **change}), before=shard)
    rows += played(after, range(4, BATCHES))
    assert len(rows) == len(set(rows))
    assert set(rows) < exact
    books = after.books
    for side in ("left", "right"):
        given_up = sum(count for name, count in books.items() if name.startswith("shed") and name.endswith(side))
        assert books[f"arrivals_{side}"] == ROWS == books[f"live_{side}"] + books[f"expired_{side}"] + given_up
    limit = change.get("memory", 20)
    if limit is not None:
        assert books["memory_rows"] <= limit + 2
    assert after.head["arguments"] == task_of(SCHEMAS, **{**BOUNDED, **change}).saved(0)


def test_a_restart_with_a_further_column_goes_on() -> None:
    """It is null in the rows held."""
    wider = [table.append_column("extra", pa.array(range(ROWS), pa.int64())) for table in TABLES]
    shard = Shard(task_of(SCHEMAS, **BOUNDED))
    played(shard, range(4))
    after = Shard(task_of((wider[0].schema, wider[1].schema), **BOUNDED), before=shard)
    low, high = CUTS[4]
    rows = after.feed([table[low:high] for table in wider], watermark(4))
    olds = [row for row in rows if "'extra_left': 'None'" in row or "'extra_right': 'None'" in row]
    assert olds
    assert len(olds) < len(rows)


def renamed(schema: pa.Schema, **kinds: pa.DataType | None) -> pa.Schema:
    return pa.schema(
        [pa.field(f.name, kinds.get(f.name, f.type)) for f in schema if kinds.get(f.name, 1) is not None]
    )


@pytest.mark.parametrize(
    ("change", "schemas", "said"),
    [
        ({"on": "w"}, SCHEMAS, "on: got"),
        ({"window": pen.rows(25)}, SCHEMAS, "window: got 'rows'; the rows held were joined with 'time'"),
        ({"importance": "w"}, SCHEMAS, "importance: got"),
        ({}, (renamed(SCHEMAS[0], v=None), SCHEMAS[1]), "left: got columns without"),
        ({}, (renamed(SCHEMAS[0], k=pa.int32()), SCHEMAS[1]), "left: got columns without"),
        ({}, (SCHEMAS[0], renamed(SCHEMAS[1], w=pa.float64())), "right: got columns without"),
        ({}, (SCHEMAS[0], SCHEMAS[1].append(pa.field("n", pa.int64(), nullable=False))), "right: got a new column"),
        ({"shards": 2}, SCHEMAS, "shards: got 2; this checkpoint was written with shards=1"),
        ({"shards": 3}, SCHEMAS, "shards: got 3; this checkpoint was written with shards=1"),
    ],
    ids=["key", "window", "importance", "dropped", "key type", "type", "no nulls", "two shards", "three shards"],
)
def test_a_restart_that_does_not_fit_is_refused(
    change: dict[str, Any], schemas: tuple[pa.Schema, pa.Schema], said: str
) -> None:
    """The checkpoint is as it was, and the right arguments go on from it."""
    wanted = undisturbed(**BOUNDED)
    shard = Shard(task_of(SCHEMAS, **BOUNDED))
    rows = played(shard, range(4))
    before = shard.state()
    wrong = Shard(task_of(schemas, **{**BOUNDED, **change}), before=shard)
    with pytest.raises(StateError) as caught:
        wrong.feed([schema.empty_table() for schema in schemas], watermark(4))
    assert said in str(caught.value)
    assert wrong.state() == before
    rows += played(shard, range(4, BATCHES))
    assert rows == wanted


@pytest.mark.parametrize("number", [1, 2, 3, 4, 7, 64, 200])
def test_every_number_of_shards_shares_an_id(number: int) -> None:
    """By it another number of shards shows after a restart."""
    ids = shard_ids(number)
    assert 0 in ids
    assert len(set(ids)) == number


def test_another_format_is_refused_by_its_number() -> None:
    shard = Shard(task_of(SCHEMAS))
    played(shard, range(2))
    kept = shard.state()
    for other in (frames.FORMAT + 1, 0, None):
        shard.restore({**kept, "head": (json.dumps({**shard.head, "format": other, "unknown": 1}),)})
        with pytest.raises(StateError, match=f"checkpoint: got format {other}; this Penstock reads format"):
            shard.feed(part(2), watermark(2) if other else None)
        shard.restore(kept)
    assert shard.feed(part(2))


def test_state_with_pieces_missing_or_damaged_is_refused() -> None:
    shard = Shard(task_of(SCHEMAS))
    played(shard, range(3))
    kept = shard.state()
    lost(cache.folder())
    for name in ("log", "snapshot"):
        shard.restore({**kept, name: dict(list(kept[name].items())[:-1])})
        with pytest.raises(StateError, match="checkpoint: got a state with pieces missing"):
            shard.feed(part(3))
        damaged = {key: (bytes([*value[0][:-1], value[0][-1] ^ 1]),) for key, value in kept[name].items()}
        shard.restore({**kept, name: damaged})
        with pytest.raises(StateError, match="state: got damaged bytes"):
            shard.feed(part(3))
    shard.restore(kept)
    assert shard.feed(part(3), watermark(3))


@pytest.mark.parametrize(
    "head",
    ["", "[]", "5", "null", "[" * 200_000, "{}", '{"format": [1]}', f'{{"format": {frames.FORMAT}}}'],
    ids=["empty", "list", "number", "null", "deep", "nothing", "format", "no more"],
)
def test_a_head_that_is_none_is_refused(head: str) -> None:
    shard = Shard(task_of(SCHEMAS))
    played(shard, range(2))
    shard.restore({**shard.state(), "head": (head,)})
    with pytest.raises(StateError, match=r"^checkpoint: got (a head that is none|format .*); "):
        shard.feed(part(2), watermark(2))


def test_every_part_of_a_head_is_of_its_kind() -> None:
    shard = Shard(task_of(SCHEMAS))
    played(shard, range(2))
    kept, head = shard.state(), shard.head
    for name in head:
        for value in (None, [None], {"a": 1}, "1", 1.5, True):
            if type(value) is not type(head[name]):
                shard.restore({**kept, "head": (json.dumps({**head, name: value}),)})
                with pytest.raises(StateError, match=r"^checkpoint: got "):
                    shard.feed(part(2), watermark(2))
    shard.restore({**kept, "head": (json.dumps({**head, "more": 1}),)})
    with pytest.raises(StateError, match=r"^checkpoint: got a head that is none"):
        shard.feed(part(2), watermark(2))


@pytest.mark.parametrize("told", [b"", b"[1]", b"5", b"[" * 200_000, b"{}", b'{"watermark": 1, "more": 2}'])
def test_a_micro_batch_of_the_log_that_is_none_is_refused(told: bytes) -> None:
    whole = state.Entry(TABLES, 5, [7, "shared"], [[1.0, None]])
    assert state.Entry.from_bytes(whole.to_bytes()) == whole
    for parts in ({"told": told}, {"told": told, "0": b"x"}, {}):
        with pytest.raises(StateError, match=r"^checkpoint: got what is no micro-batch"):
            state.Entry.from_bytes(frames.to_bytes(parts))


def test_no_flipped_bit_of_a_frame_is_taken_for_a_state() -> None:
    parts = {"one": b"x" * 100, "two": b""}
    data = frames.to_bytes(parts)
    assert frames.from_bytes(data) == parts
    for at in range(len(data)):
        for bit in (1, 128):
            wrong = bytearray(data)
            wrong[at] ^= bit
            with pytest.raises(StateError):
                frames.from_bytes(bytes(wrong))
    for size in range(len(data)):
        with pytest.raises(StateError):
            frames.from_bytes(data[:size])


@pytest.mark.parametrize("arguments", [{}, BOUNDED], ids=["exact", "prob"])
def test_rows_of_a_shard_wait_for_the_watermark_alone(arguments: dict[str, Any]) -> None:
    """Windows in rows: what waited comes out when time passes, although no row comes."""
    shard = Shard(task_of(SCHEMAS, window=pen.rows(25), **arguments))
    rows = played(shard, range(BATCHES))
    late = shard.tester.setWatermark(START + 10 * ROWS * 1000)
    shown = len(late) - 1  # the books come beside the rows
    wanted = pen.join(*TABLES, on="k", time="ts", window=pen.rows(25), **arguments).num_rows
    assert 0 < shown == wanted - len(rows)
    assert shard.head["version"] == BATCHES + 1


def test_rows_before_1970_are_late() -> None:
    """As for Spark's own join, whose watermark begins there; in the first micro-batch as in all others."""
    shard = Shard(task_of(SCHEMAS))
    for _ in range(2):
        assert shard.feed([ticking(seed, 5, start=-4) for seed in (1, 2)]) == []
    shed = (shard.books["shed_late_left"], shard.books["shed_late_right"])
    nulls = (shard.books["expired_left"], shard.books["expired_right"])
    assert [late + null for late, null in zip(shed, nulls, strict=True)] == [10, 10]
    assert min(shed) > 0


def test_an_engine_that_cannot_be_left_leaves_nothing(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when that goes on for long."""
    wanted = undisturbed()
    lost(engines)

    def full(path: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, f"no room to put {path} in the place of {target}")

    monkeypatch.setattr(Path, "rename", full)
    assert undisturbed() == wanted
    assert list(engines.iterdir()) == []


def test_files_that_nobody_used_for_ten_minutes_go(engines: Path) -> None:
    shard = Shard(task_of(SCHEMAS))
    played(shard, range(1))
    old, young = engines / "gone-0", engines / "slow-0"
    for path, age in ((old, 650), (young, 550)):
        path.write_bytes(b"")
        os.utime(path, (time.time() - age, time.time() - age))
    played(shard, range(1, 2))
    assert not old.exists()
    assert young.exists()
    assert len(left_behind(engines)) == 1
