"""What a window needs is forecast from what a job says, from traces, and from the footers of Parquet."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.jobs import planning
from penstock.jobs.parsing import parse
from penstock.streams import footers

SECOND = 10**6
BEGIN = 10**9  # seconds from 1970
JOB = """
[sources.orders]
{source}
watermark = "1 minute"
[join]
on = "id"
time = "ts"
window = "10 minutes"
[sink]
format = "console"
"""


def written(file: Path, seconds: Any, unit: str = "us", **how: Any) -> str:
    """Write rows at these seconds and return the address of the file."""
    times = pa.array(np.asarray(seconds) * SECOND + BEGIN * SECOND, pa.timestamp("us", "UTC"))
    rows = pa.table({"id": np.arange(len(times)), "ts": times.cast(pa.timestamp(unit, "UTC"))})
    pq.write_table(rows, file, **how)
    return file.as_uri()


def needed(files: list[str], seconds: int, more: str = "") -> planning.Need:
    source = parse(JOB.format(source='format = "parquet"\npath = "in"\n' + more), Path("/lake")).streams[0]
    return planning.need(source, "ts", seconds * SECOND, in_rows=False, files=files)


def test_the_rows_in_a_window_over_parquet(tmp_path: Path) -> None:
    """A row a second for ten minutes in six row groups, at first one each two seconds beside them, a burst later."""
    files = [
        written(tmp_path / "steady rows.parquet", range(600), row_group_size=100),
        written(tmp_path / "beside.parquet", range(0, 100, 2), unit="ns"),
        written(tmp_path / "burst.parquet", [1000] * 100, unit="ms"),
    ]
    want = "estimated from the footers of 3 files"
    assert needed(files[:1], 10) == (10, want.replace("3", "1"), False)
    assert needed(files[:2], 10).rows in {10 + 5, 10 + 5 + 1}  # evenly spread: each file may begin with a whole row
    assert needed(files, 10) == (100, want, False)
    assert needed(files, 300).rows == 300 + 50
    assert needed(files[::2], 500).rows == 500
    assert needed(files[::2], 950).rows == 549 + 100  # later than second 50, and the burst
    assert needed(files, 5000).rows == 750
    assert needed(files, 10, 'where = "id > 3"') == (100, f"at most: {want}, before where leaves some out", True)


@pytest.mark.parametrize("seed", range(20))
def test_a_forecast_is_near_what_is_counted(tmp_path: Path, seed: int) -> None:
    """Rows of a group are evenly spread here: of each, the forecast misses one row or has one too many, at most."""
    lots = np.random.default_rng(seed)
    files, times = [], []
    for each in range(int(lots.integers(1, 6))):
        first, gap, rows = (int(lots.integers(low, high)) for low, high in ((0, 300), (0, 6), (1, 60)))
        times.append(first + gap * np.arange(rows))
        files.append(written(tmp_path / f"{each}.parquet", times[-1]))
    came, window = np.concatenate(times), int(lots.integers(1, 200))
    counted = max(int(((came > at - window) & (came <= at)).sum()) for at in came)
    found = needed(files, window).rows
    assert found is not None
    assert abs(found - counted) <= len(files)


def test_what_a_footer_does_not_say(tmp_path: Path) -> None:
    steady = written(tmp_path / "steady.parquet", range(60))
    old = written(tmp_path / "old.parquet", range(60), use_deprecated_int96_timestamps=True)
    bare = written(tmp_path / "bare.parquet", range(60), write_statistics=False)
    (tmp_path / "half.parquet").write_bytes(b"PAR1")
    for files, said in [
        ([], "there is no file yet"),
        ([steady, old], "no first and last 'ts' in the footer of old.parquet: .*INT96"),
        ([bare], "no first and last 'ts' in the footer of bare.parquet"),
        ([(tmp_path / "half.parquet").as_uri()], "half.parquet, which cannot be read"),
        (["s3a://lake/a.parquet"], "the files are not on this machine"),
        ([steady] * (footers.MOST + 1), "10,001 files"),
    ]:
        found = needed(files, 10)
        assert found.rows is None
        assert pa.compute.match_substring_regex(pa.array([found.known]), said)[0].as_py(), found


def noted(log: Path, version: int, *actions: dict[str, Any]) -> None:
    """Write a commit of a Delta table, as its protocol has it."""
    log.mkdir(exist_ok=True)
    words = "\n".join(map(json.dumps, actions))
    (log / f"{version:020}.json").write_text(words, encoding="utf-8")


def added(name: str, seconds: Any, **other: Any) -> dict[str, Any]:
    ends = (np.datetime64(BEGIN + int(end(seconds)), "s") for end in (min, max))
    low, high = ({"id": 0, "ts": f"{np.datetime_as_string(end, 'ms')}Z"} for end in ends)
    stats = {"numRecords": len(seconds), "minValues": low, "maxValues": high, **other}
    return {"path": name, "size": 1, "stats": json.dumps(stats), "dataChange": True}


def over_delta(files: list[Path]) -> planning.Need:
    source = parse(JOB.format(source='format = "delta"\npath = "in"'), Path("/lake")).streams[0]
    addresses = [file.as_uri() for file in files]
    return planning.need(source, "ts", 10 * SECOND, in_rows=False, files=addresses)


def test_the_rows_in_a_window_over_a_delta_table(tmp_path: Path) -> None:
    """From the log alone: commits, and a checkpoint in the place of old ones; removed files are not asked for."""
    log, files = tmp_path / "_delta_log", [tmp_path / "day=1 a" / "a.parquet", tmp_path / "b.parquet"]
    old = [
        {"add": added("day%3D1%20a/a.parquet", range(60))},
        {"add": None},
        {"add": added("gone.parquet", [5] * 99)},
    ]
    noted(log, 11, {"commitInfo": {}}, {"remove": {"path": "gone.parquet"}}, {"add": added("b.parquet", [30] * 7)})
    pq.write_table(pa.Table.from_pylist(old), log / f"{10:020}.checkpoint.parquet")
    assert over_delta(files[:1]) == (10, "estimated from what the table's log says of 1 files", False)
    assert over_delta(files).rows == 10 + 7


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"maxValues": {}}, "no first and last 'ts' of every file"),
        ({"minValues": {"ts": "soon"}}, "no first and last 'ts' of every file"),
        ({"maxValues": {"ts": 5}}, "no first and last 'ts' of every file"),
    ],
)
def test_what_the_log_of_a_delta_table_does_not_say(tmp_path: Path, other: dict[str, Any], said: str) -> None:
    noted(tmp_path / "_delta_log", 0, {"add": added("a.parquet", range(60), **other)})
    for file in (tmp_path / "a.parquet", tmp_path / "b.parquet", tmp_path.parent / "c.parquet"):
        found = over_delta([file])
        assert found.rows is None
        assert said in found.known
    assert over_delta([]).known == "there is no file yet"


def test_a_log_that_is_none(tmp_path: Path) -> None:
    noted(tmp_path / "_delta_log", 0, {"add": added("a.parquet", range(60))})
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("{", encoding="utf-8")
    assert over_delta([tmp_path / "a.parquet"]).rows is None
    (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
    (tmp_path / "_delta_log" / f"{1:020}.checkpoint.parquet").write_bytes(b"PAR1")
    assert over_delta([tmp_path / "a.parquet"]).rows is None


@pytest.mark.parametrize(
    ("select", "rows"),
    [
        ("ts", 10),
        ("*", 10),
        ("`ts`", 10),
        ("ts AS `ts`", 10),
        ("id as ts", None),  # it is there, but no timestamp
        ("ts + interval 1 day as ts", None),
        ("current_timestamp as ts", None),
        ("date_trunc('hour', ts) as ts", None),
    ],
)
def test_a_time_that_select_computes_is_not_known(tmp_path: Path, select: str, rows: int | None) -> None:
    files = [written(tmp_path / "a.parquet", range(60))]
    assert needed(files, 10, f'select = ["id", "{select}"]').rows == rows


def test_a_column_with_a_new_name_is_followed(tmp_path: Path) -> None:
    pq.write_table(
        pq.read_table(written(tmp_path / "a", range(60))).rename_columns(["id", "at"]), tmp_path / "b.parquet"
    )
    files = [(tmp_path / "b.parquet").as_uri()]
    assert needed(files, 10).known.startswith("no timestamps 'ts' in b.parquet")
    assert needed(files, 10, 'select = ["id", "at as ts"]').rows == 10


@pytest.mark.parametrize(
    ("source", "rows"),
    [
        ('format = "rate"\nrows_per_second = 7\nselect = ["value as id", "timestamp as ts"]', 70),
        ('format = "rate"\nselect = ["value as id", "timestamp + make_interval(0, value) as ts"]', None),
        ('format = "zipf"\nrows = 100\nselect = ["key as id", "ts"]', 10),
        (
            'format = "zipf"\nrows = 100\nselect = ["key as id", "timestamp_seconds(3 * unix_seconds(ts)) as ts"]',
            None,
        ),
        ('format = "json"\npath = "in"', None),
    ],
)
def test_what_a_job_says_itself(source: str, rows: int | None) -> None:
    stream = parse(JOB.format(source=source), Path("/lake")).streams[0]
    assert planning.need(stream, "ts", 10 * SECOND, in_rows=False, files=[]).rows == rows
    assert planning.need(stream, "ts", 10, in_rows=True, files=[]).rows == 10
