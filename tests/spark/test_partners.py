"""What a task of a repair finds in files and tables is what brute force finds, without Spark."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.operator.join import settings_of
from penstock.operator.settings import SIDES, Bound
from penstock.spark import partners, refine

SPAN, STAYED = (25, 15), 1 << 40
HOW: dict[str, Any] = {"on": ["k", "n"], "time": "ts", "window": ("25 us", "15 us"), "importance": "w"}
KINDS = {"ts": pa.timestamp("us", "UTC"), "k": pa.string(), "n": pa.int32(), "w": pa.int64(), "id": pa.int64()}


class Row(NamedTuple):
    side: int
    shard: int
    arrival: int
    ts: int
    key: tuple[str | None, int]
    weight: int
    until: int  # the first row of the other side, by its arrival in the shard, that it missed
    late: bool


def drawn(seed: int, rows: int) -> list[Row]:
    """Draw rows of both sides, some of them lost, some without a key."""
    dice = np.random.default_rng(seed)
    found = []
    came = np.zeros((2, 3), np.int64)
    for side in range(2):
        for at in range(rows):
            number = int(dice.integers(0, 6))
            late, lost = dice.random() < 0.1, dice.random() < 0.4
            until = 0 if late else int(dice.integers(0, rows // 3)) if lost else STAYED
            key = None if dice.random() < 0.05 else f"key {number // 2}"
            shard = number % 3
            ts = at // 2 - int(dice.integers(0, 9))
            weight = int(dice.integers(1, 9))
            found.append(Row(side, shard, int(came[side, shard]), ts, (key, number), weight, until, bool(late)))
            came[side, shard] += 1
    return found


def brute_force(rows: Sequence[Row]) -> Counter[tuple[int, int]]:
    """Return the pairs of which one row was gone when the other came, by their numbers, each once."""
    found = Counter[tuple[int, int]]()
    for at, mine in enumerate(rows):
        for number, theirs in enumerate(rows):
            if (mine.side, theirs.side) != (0, 1) or mine.key != theirs.key or mine.key[0] is None:
                continue
            near = -SPAN[1] < theirs.ts - mine.ts < SPAN[0]
            gone = theirs.arrival >= mine.until or mine.arrival >= theirs.until
            found[at, number] += near and gone
    return +found


def table_of(rows: Sequence[tuple[int, Row]], *, ledger: bool) -> pa.Table:
    values = [{"ts": row.ts, "k": row.key[0], "n": row.key[1], "w": row.weight, "id": number} for number, row in rows]
    struct = pa.struct(list(KINDS.items()))
    columns = {
        "side": pa.array([SIDES[row.side] for _, row in rows]),
        "shard": pa.array([row.shard for _, row in rows], pa.int32()),
        "arrival": pa.array([row.arrival for _, row in rows], pa.int64()),
        "ts": pa.array([row.ts for _, row in rows], KINDS["ts"]),
    }
    for side, name in enumerate(SIDES):
        mine = [value if row.side == side else None for value, (_, row) in zip(values, rows, strict=True)]
        columns[name] = pa.array(mine, struct)
    if ledger:
        columns["shed_at_arrival"] = pa.array([row.until for _, row in rows], pa.int64())
        columns["reason"] = pa.array(["late" if row.late else "budget" for _, row in rows])
    return pa.table(columns)


def bound() -> Bound:
    schema = pa.schema(list(KINDS.items()))
    return Bound(settings_of(HOW), schema, schema).unbounded()


def pairs(tables: Sequence[pa.Table]) -> Counter[tuple[int, int]]:
    found = pa.concat_tables(tables)
    assert found["importance"].to_pylist() == np.minimum(found["w_left"], found["w_right"]).tolist()
    return Counter(zip(found["id_left"].to_pylist(), found["id_right"].to_pylist(), strict=True))


def sides_of(rows: Sequence[Row]) -> tuple[list[list[tuple[int, Row]]], list[tuple[int, Row]]]:
    numbered = list(enumerate(rows))
    archive = [[(number, row) for number, row in numbered if row.side == side] for side in range(2)]
    return archive, [(number, row) for number, row in numbered if row.until < STAYED]


@pytest.mark.parametrize("room", [50, partners.ROOM])
@pytest.mark.parametrize("seed", range(4))
def test_files_and_tables_give_the_missing_pairs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, room: int
) -> None:
    monkeypatch.setattr(partners, "ROOM", room)
    rows = drawn(seed, 200)
    want, told = brute_force(rows), bound()
    archive, lost = sides_of(rows)
    assert want.total() > 100
    whole = pa.concat_tables([table_of(side, ledger=False) for side in archive])
    assert want == pairs(
        [refine._of_shard(whole, table_of(lost, ledger=True), told).rename_columns(told.schema.names)]
    )

    def written(name: str, some: Sequence[tuple[int, Row]], *, ledger: bool) -> list[str]:
        paths = []
        for at in range(3):
            paths.append(str(tmp_path / f"{name}{at}.parquet"))
            differ = dict.fromkeys(partners.WORDS, "DELTA_BYTE_ARRAY") if ledger and at else None  # as of few rows
            table = table_of(some[at::3], ledger=ledger)
            pq.write_table(table, paths[-1], use_dictionary=differ is None, column_encoding=differ)
        return paths

    shed = written("lost", lost, ledger=True)
    came = [written(SIDES[side], archive[side], ledger=False) for side in range(2)]
    found: list[pa.Table] = []
    for left, right in ((came[0][:1], came[1][1:]), (came[0][1:], []), ([], came[1][:1])):  # whatever a task is given
        ledger, *sources = (partners.Files(paths, told.schemas) if paths else None for paths in (shed, left, right))
        assert ledger is not None
        found += partners.missed(sources, ledger, ledger, told)
    assert want == pairs(found)


def test_only_late_rows_look_if_told() -> None:
    rows = drawn(5, 200)
    archive, lost = sides_of(rows)
    told = bound()
    sources = [partners.Table(table_of(archive[side], ledger=False), told.schemas) for side in range(2)]
    shed = partners.Table(table_of(lost, ledger=True), told.schemas)
    found = list(partners.missed(sources, shed, shed, told, only_late=True))
    want = Counter(
        {
            (a, b): n
            for (a, b), n in brute_force(rows).items()
            if rows[a].late or (rows[b].late and rows[b].arrival < rows[a].until)
        }
    )
    assert want == pairs(found)


def test_a_column_that_came_later_is_null_in_older_files(tmp_path: Path) -> None:
    struct = pa.StructArray.from_arrays([pa.array([1, 2])], ["n"])
    pq.write_table(pa.table({"left": struct, "arrival": [0, 1]}), tmp_path / "old.parquet")
    schema = pa.schema([("n", pa.int64()), ("new", pa.string())])
    source = partners.Files([str(tmp_path / "old.parquet")], (schema, schema))
    for fields in (["n", "new"], []):  # what is read of all rows is taken from there, the rest from the file
        [whole] = source.read(["arrival"], [(0, name) for name in fields])
        assert [0, 1] == whole["arrival"].to_pylist()
        assert source.take(np.array([1, 0, 1]), 0, ["new", "n"]).to_pylist() == [
            {"new": None, "n": 2},
            {"new": None, "n": 1},
            {"new": None, "n": 2},
        ]
        assert [None, None] == source.take(np.array([1, 0]), 0, ["new"])["new"].to_pylist()
    [whole] = source.read([], [(0, "n"), (0, "new")])
    assert [{"left.n": 1, "left.new": None}, {"left.n": 2, "left.new": None}] == whole.to_pylist()


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_ends_of_files_say_what_is_in_them(tmp_path: Path, scheme: str) -> None:
    """Parts without Spark's mark are not whole; tasks get the address that was given."""
    _, lost = sides_of(drawn(6, 60))
    for batch, some in enumerate((lost[:9], lost[9:], lost)):
        folder = tmp_path / f"batch={batch}" / "open=1"
        folder.mkdir(parents=True)
        pq.write_table(table_of(some, ledger=True).drop(["side"]), folder / "x.parquet")
        pq.write_table(table_of([], ledger=True), folder / "empty.parquet")
    for batch in range(2):
        (tmp_path / f"batch={batch}" / "_SUCCESS").touch()
    found = refine._files(f"{scheme}{tmp_path}")
    assert [(each.batch, each.part, each.rows) for each in found] == [(0, "1", 9), (1, "1", len(lost) - 9)]
    for each, some in zip(found, (lost[:9], lost[9:]), strict=True):
        assert each.path == f"{scheme}{tmp_path}/batch={each.batch}/open=1/x.parquet"
        times = [row.ts for _, row in some]
        assert each.times == (min(times), max(times))
        assert each.shards == (min(row.shard for _, row in some), max(row.shard for _, row in some))
        assert each.late == any(row.late for _, row in some)
    source = partners.Files([each.path for each in found], bound().schemas)
    assert sum(each.num_rows for each in source.read(["arrival"], [(0, "id")])) == len(lost)
