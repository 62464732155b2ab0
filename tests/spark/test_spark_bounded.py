"""On Spark a join within a budget does what the embedded one does; on several shards, a part of the exact one."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from streaming import counted, play, read_stream, ticking, write_batches

ROWS = 240
CUTS = [90, 171]
TABLES = (ticking(1, ROWS), ticking(2, ROWS))
COMMON: dict[str, Any] = {"on": "k", "time": "ts", "window": "30 seconds"}


@pytest.mark.parametrize(
    "options",
    [
        {"memory": 20, "policy": "prob"},
        {"memory": 20, "policy": "life", "split": "fixed", "per_key": 4},
        {"memory": 30, "policy": "oldest", "split": (20, 10), "window": ("10 seconds", "40 seconds")},
        {"memory": "3kB", "policy": "prob", "importance": "w", "combine": "sum"},
        {"memory": 20, "policy": pen.policy("dimpprob", statistics="window"), "importance": "w"},
    ],
    ids=["prob", "life", "oldest", "bytes", "dimpprob"],
)
def test_one_shard_equals_the_embedded_engine(spark: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    found, report = play(spark, tmp_path, TABLES, CUTS, **{"shards": 1, **options})
    wanted = pen.run(*TABLES, **{**COMMON, **options})
    assert found == counted(wanted.table)
    assert report.balanced
    assert report.pairs == found.total() > 0
    assert report.shed["budget"].total + report.shed["per_key"].total > 0
    if isinstance(options.get("memory"), int):
        assert report.memory_rows <= options["memory"] + 2  # the open tick aside
    if "importance" in options:
        assert report.importance == pytest.approx(wanted.report.importance)


@pytest.mark.parametrize(
    ("policy", "split"), [("rand", "shared"), ("rand", "fixed"), ("life", "fixed"), ("dgl", "shared")]
)
def test_one_shard_equals_a_join_that_waits_as_long_for_late_rows(
    spark: Any, tmp_path: Path, policy: str, split: str
) -> None:
    """Whatever lot decides, and although one stream has a third of the rows and is at times behind."""
    tables = TABLES[0], TABLES[1].take(list(range(2, ROWS, 3)))
    budget: dict[str, Any] = {"memory": 30, "policy": policy, "split": split, "seed": 7}
    found, report = play(spark, tmp_path, tables, (CUTS, [cut // 3 for cut in CUTS]), shards=1, **budget)
    waiting = pen.Join(**COMMON, **budget, lateness=("watermark", "10 seconds"))
    assert found == counted(pa.concat_tables([waiting.push(left=tables[0], right=tables[1]), waiting.finish()]))
    assert report.shed["budget"].total > 0


def test_one_shard_plays_a_schedule(spark: Any, tmp_path: Path) -> None:
    """Rows leave when the schedule says, also those whose time was not up."""
    number = np.tile(np.arange(ROWS), 2)
    until = (1_700_000_000 + number + number % 17) * 1_000_000
    schedule = {"side": ["left"] * ROWS + ["right"] * ROWS, "row": number, "until": until}
    plan: dict[str, Any] = {"memory": 1000, "policy": pen.policy("replay", schedule=schedule)}
    found, _ = play(spark, tmp_path, TABLES, CUTS, shards=1, **plan)
    assert found == counted(pen.join(*TABLES, **{**COMMON, **plan}))
    assert found < counted(pen.join(*TABLES, **COMMON))


def test_windows_in_rows_equal_the_embedded_engine(spark: Any, tmp_path: Path) -> None:
    """Pairs come once no row can be late for them: three rows an hour apart see to that."""
    tails = [ticking(seed, 3, start=1_700_003_600 + at) for at, seed in enumerate((3, 4))]
    key = TABLES[0].schema.get_field_index("k")
    tails = [tail.set_column(key, "k", pa.nulls(3, pa.int64())) for tail in tails]
    hours = pa.array([0, 3_600_000_000, 7_200_000_000], pa.duration("us"))
    tails = [tail.set_column(0, "ts", pa.compute.add(tail["ts"], hours)) for tail in tails]
    tables = [pa.concat_tables(pair) for pair in zip(TABLES, tails, strict=True)]
    budget = {"memory": 20, "policy": "prob", "window": pen.rows(25)}
    cuts = [*CUTS, ROWS, ROWS + 1, ROWS + 2]
    found, report = play(spark, tmp_path, tables, cuts, **budget)
    assert found == counted(pen.join(*tables, **{**COMMON, **budget}))
    assert report.balanced
    assert report.shed["budget"].total > 0


@pytest.mark.parametrize("policy", ["prob", "rand"])
def test_several_shards_are_a_part_of_the_exact_join(spark: Any, tmp_path: Path, policy: str) -> None:
    """Within the budget in total, and the same again when the same cut is run again."""
    exact = counted(pen.join(*TABLES, **COMMON))
    budget = {"memory": 21, "policy": policy, "shards": 3, "seed": 5}
    found, report = play(spark, tmp_path / "one", TABLES, CUTS, **budget)
    assert found < exact
    assert report.balanced
    assert report.pairs == found.total() > 0
    assert report.memory_rows <= 21 + 2 * 3
    again, _ = play(spark, tmp_path / "two", TABLES, CUTS, **budget)
    assert again == found


def test_two_queries_in_one_session_keep_to_themselves(spark: Any, tmp_path: Path) -> None:
    """Over the same files, side by side, each with a budget of its own."""
    for name, table in zip(("l", "r"), TABLES, strict=True):
        write_batches(table, tmp_path / name, CUTS)
    queries = []
    for memory in (12, 40):
        left, right = (read_stream(spark, tmp_path / name) for name in ("l", "r"))
        joined = pen.join(left, right, **COMMON, memory=memory, policy="prob", shards=1)
        writer = joined.writeStream.format("parquet").option("path", str(tmp_path / f"out{memory}"))
        queries.append(
            writer.option("checkpointLocation", str(tmp_path / f"cp{memory}")).trigger(availableNow=True).start()
        )
    for query, memory in zip(queries, (12, 40), strict=True):
        query.awaitTermination()
        wanted = pen.run(*TABLES, **COMMON, memory=memory, policy="prob")
        assert counted(spark.read.parquet(str(tmp_path / f"out{memory}"))) == counted(wanted.table)
        assert pen.report(query).pairs == wanted.report.pairs


@pytest.mark.parametrize(
    "options",
    [
        {"memory": 20, "policy": "life", "shards": 1},
        {"memory": "3kB", "policy": "oldest", "shards": 1},
        {"memory": 20, "policy": "prob", "window": pen.rows(25)},
        {"per_key": 2, "shards": 3},
    ],
    ids=["rows", "bytes", "windows in rows", "per_key"],
)
def test_a_batch_equals_the_embedded_engine(spark: Any, options: dict[str, Any]) -> None:
    """Also on several shards, if what is given up is decided within a key."""
    frames = [spark.createDataFrame(table) for table in TABLES]
    found = counted(pen.join(*frames, **{**COMMON, **options}))
    embedded = {name: value for name, value in options.items() if name != "shards"}
    assert found == counted(pen.join(*TABLES, **{**COMMON, **embedded}))
    assert found.total() > 0
