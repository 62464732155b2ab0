"""Files are read as what they are, and written whole or not at all."""

import errno
import gc
import math
import os
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disks import disk_of
from penstock.errors import InputError, OutputError, SchemaError
from penstock.streams import files, workloads

if TYPE_CHECKING:
    from collections.abc import Callable

SUFFIXES = [".csv", ".parquet", ".arrow", ".feather", ".ipc"]
typed = pa.table(
    {
        "ts": [1, 2, None, 4],
        "key": ["a", "", None, 'a "quoted", long\nNA'],
        "country": ["NA", "NULL", "nan", "null"],
        "weight": [0.5, -math.inf, None, 1e300],
        "seen": [True, None, False, True],
        "day": [date(2020, 2, 29), None, date(1970, 1, 1), date(2038, 1, 19)],
        "at": pa.array([datetime(2020, 1, 1, 1, 2, 3, 456, UTC), None, None, None], pa.timestamp("ns", "UTC")),
    }
)
nested = pa.table({"tags": [["a"], None], "point": [{"x": 1.0}, None], "raw": [b"\x00\xff", None]})
big = pa.table({"ts": np.random.default_rng(0).integers(0, 2**60, 50_000)})


@pytest.fixture(params=SUFFIXES)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"table{request.param}"


def put(path: files.PathLike, *tables: pa.Table) -> None:
    with files.writer(path, tables[0].schema) as out:
        for table in tables:
            out.write(table)


def test_what_is_written_is_read_back(path: Path) -> None:
    put(path, typed)
    assert typed == files.read(path)
    assert typed.schema == files.schema(path)
    assert typed == pa.Table.from_batches(files.batches(path))


def test_the_path_may_be_a_string_and_the_suffix_in_capitals(tmp_path: Path) -> None:
    put(f"{tmp_path}/TABLE.CSV", typed)
    assert typed == files.read(f"{tmp_path}/TABLE.CSV")


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_nested_and_binary_columns_are_kept(tmp_path: Path, suffix: str) -> None:
    put(tmp_path / f"nested{suffix}", nested)
    assert nested == files.read(tmp_path / f"nested{suffix}")


def test_nan_is_not_null(path: Path) -> None:
    put(path, pa.table({"ts": [1, 2], "weight": [math.nan, None]}))
    got = files.read(path)["weight"].to_pylist()
    assert math.isnan(got[0])
    assert got[1] is None


def test_several_tables_and_batches_make_one_file(path: Path) -> None:
    put(path, big, big.slice(7, 0), *big.slice(3, 9).to_batches())
    assert pa.concat_tables([big, big.slice(3, 9)]) == files.read(path)


def test_a_table_without_rows_is_a_file(path: Path) -> None:
    put(path, typed.slice(0, 0))
    assert typed.column_names == files.read(path).column_names
    assert typed.column_names == files.schema(path).names
    assert files.read(path).num_rows == 0
    assert not list(files.batches(path))


def test_a_workload_goes_through_a_file(path: Path) -> None:
    left = workloads.zipf(500, importance="rare").left
    put(path, left)
    assert left == files.read(path).cast(left.schema)  # a CSV's 1 and 20 are whole numbers


def test_an_arrow_stream_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "stream.arrow"
    with pa.ipc.new_stream(path, big.schema) as out:
        out.write_table(big, max_chunksize=999)
    assert big == files.read(path)
    assert big.schema == files.schema(path)
    assert big == pa.Table.from_batches(files.batches(path))


def test_a_folder_called_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    put(tmp_path / "day=1" / "table.parquet", typed)
    assert typed == files.read(tmp_path / "day=1" / "table.parquet")


@pytest.mark.parametrize("rows", [1, 7, 1000, 10**6])
def test_batches_have_at_most_the_rows_asked_for(path: Path, rows: int) -> None:
    table = big.slice(0, 2000)
    put(path, table.slice(0, 1234), table.slice(1234))
    got = list(files.batches(path, rows=rows))
    assert min(batch.num_rows for batch in got) >= 1
    assert max(batch.num_rows for batch in got) <= rows
    assert table == pa.Table.from_batches(got)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_replay_holds_a_small_part_of_the_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"table{suffix}"
    put(path, *[big] * 40)
    before = pa.total_allocated_bytes()
    most = max(pa.total_allocated_bytes() - before for _ in files.batches(path, rows=10_000))
    assert most < path.stat().st_size / 3


def test_a_replay_can_be_left_early(path: Path) -> None:
    put(path, big)
    replay = files.batches(path, rows=10)
    assert next(replay).num_rows == 10
    del replay
    put(path, typed)
    assert typed == files.read(path)


def test_a_csv_takes_its_types_from_all_rows_and_a_replay_from_the_first_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(files._CSV_OPTIONS, "read_options", pa.csv.ReadOptions(block_size=1 << 12))
    path = tmp_path / "late.csv"
    path.write_text("ts,key\n" + "1,2\n" * 5000 + "1,2.5\n")
    assert pa.float64() == files.read(path).schema.field("key").type
    assert pa.int64() == files.schema(path).field("key").type
    with pytest.raises(InputError, match=r"late\.csv, which cannot be read .*2\.5"):
        list(files.batches(path))


@given(st.lists(st.text(st.characters(codec="utf-8"))))
def test_any_text_survives_csv(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    want = [f"|{text}" for text in texts]  # text that looks like a number is read as one
    put(path, pa.table({"ts": range(len(want)), "text": pa.array(want, pa.string())}))
    assert want == files.read(path)["text"].to_pylist()
    assert want == [text for batch in files.batches(path) for text in batch["text"].to_pylist()]


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("table.txt", b"ts\n1\n", r"table\.txt; a file that ends in \.csv, \.parquet, \.arrow"),
        ("table", b"ts\n1\n", r"a file that ends in \.csv"),
        ("missing.csv", None, r"missing\.csv; the path of an existing file"),
        ("table.csv", b"", "which is empty; a file with CSV inside"),
        ("table.parquet", b"", "which is empty; a file with Parquet inside"),
        ("table.arrow", b"", "which is empty; a file with Arrow inside"),
        ("table.csv", b"\n\n", "which cannot be read"),
        ("table.csv", b"ts,key\n1,2\n3\n", "Expected 2 columns, got 1"),
        ("table.csv", "\xe9t\xe9\n1\n".encode("latin-1"), "which cannot be read"),
        ("table.csv", "ts,key\n1,\xe9\n".encode("latin-1"), "column 'key' is binary, and CSV is UTF-8 text"),
        ("table.csv", b"PAR1....PAR1", "which is Parquet inside"),
        ("table.parquet", b"ARROW1..ARROW1", "which is Arrow inside"),
        ("table.parquet", b"ts,key\n1,2\n", "neither Parquet nor Arrow"),
        ("table.arrow", b"ts,key\n1,2\n", "neither Parquet nor Arrow"),
        ("table.parquet", b"PAR1....PAR1", "which cannot be read"),
        ("table.arrow", b"ARROW1..ARROW1", "which cannot be read"),
        ("table.ipc", b"\xff\xff\xff\xff\x10", "which cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_says_what_would_work(
    tmp_path: Path, name: str, content: bytes | None, complaint: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    readings: list[Callable[[Path], Any]] = [files.read, files.schema, files.batches]
    for reading in readings:
        with pytest.raises(InputError, match=complaint) as raised:
            reading(tmp_path / name)
        assert raised.value.argument == "path"
        assert str(tmp_path / name) in str(raised.value)


def test_the_files_of_a_folder_come_by_their_names(tmp_path: Path) -> None:
    for name, rows in {"b.parquet": [3], "a.csv": [1, 2], "c.arrow": [4, 5, 6]}.items():
        table = pa.table({"ts": rows})
        with files.writer(tmp_path / name, table.schema) as out:
            out.write(table)
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / ".b.parquet.crc").write_bytes(b"1")
    (tmp_path / "deeper").mkdir()
    assert files.read(tmp_path)["ts"].to_pylist() == [1, 2, 3, 4, 5, 6]
    assert [batch["ts"].to_pylist() for batch in files.batches(tmp_path, rows=2)] == [[1, 2], [3], [4, 5], [6]]
    assert files.schema(tmp_path) == pa.schema({"ts": pa.int64()})


def test_the_files_of_a_folder_have_the_same_columns(tmp_path: Path) -> None:
    for name, table in {"a.csv": pa.table({"ts": [1]}), "b.csv": pa.table({"at": [1]})}.items():
        with files.writer(tmp_path / name, table.schema) as out:
            out.write(table)
    with pytest.raises(SchemaError, match=r"b\.csv with at: int64; the files before it have ts: int64"):
        files.read(tmp_path)
    with pytest.raises(SchemaError, match=r"b\.csv with at: int64"):
        list(files.batches(tmp_path))


def test_a_folder_is_no_file(path: Path) -> None:
    path.mkdir()
    with pytest.raises(InputError, match="a folder without files"):
        files.read(path)
    with pytest.raises(OutputError, match="folder of that name"), files.writer(path, typed.schema):
        pass
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused(tmp_path: Path, suffix: str, share: float) -> None:
    path = tmp_path / f"table{suffix}"
    put(path, big)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    readings: list[Callable[[Path], Any]] = [files.read, lambda path: list(files.batches(path))]
    for reading in readings:
        with pytest.raises(InputError, match="which cannot be read"):
            reading(path)


def test_a_replay_that_breaks_off_says_so(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    put(path, big, big)
    content = bytearray(path.read_bytes())
    middle = len(content) * 3 // 4
    content[middle - 150_000 : middle + 40_000] = b"\xff" * 190_000
    path.write_bytes(content)
    with pytest.raises(InputError, match="which cannot be read"):
        list(files.batches(path))


def test_a_replay_needs_rows(tmp_path: Path) -> None:
    put(tmp_path / "table.csv", typed)
    with pytest.raises(InputError, match="rows: got 0"):
        files.batches(tmp_path / "table.csv", rows=0)


@pytest.fixture(params=["absent", "present"])
def before(request: pytest.FixtureRequest, path: Path) -> dict[str, bytes]:
    """What is in the folder before the writing that fails: nothing, or an older file."""
    if request.param == "present":
        path.write_bytes(b"older")
        return {path.name: b"older"}
    return {}


def folder(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, OSError, MemoryError])
def test_an_exception_in_the_block_leaves_nothing(
    path: Path, before: dict[str, bytes], error: type[BaseException]
) -> None:
    def fail() -> None:
        with files.writer(path, big.schema) as out:
            out.write(big)
            raise error

    with pytest.raises(error) as raised:
        fail()
    assert error is raised.type
    assert before == folder(path)


def test_a_file_appears_only_at_the_end(path: Path, before: dict[str, bytes]) -> None:
    with files.writer(path, big.schema) as out:
        out.write(big)
        assert before == {name: data for name, data in folder(path).items() if not name.endswith(".part")}
    assert list(folder(path)) == [path.name]
    assert big == files.read(path)


@pytest.mark.parametrize("size", [0, 2, 10, 200, 1000, 100_000])
def test_a_disk_that_fills_up_leaves_nothing(path: Path, before: dict[str, bytes], size: int) -> None:
    with (
        pytest.raises(OutputError, match="File too large; nothing was left") as raised,
        disk_of(size),
    ):
        put(path, big)
    assert path == raised.value.path
    assert before == folder(path)
    gc.collect()  # Arrow's half-closed writers stay silent


def test_a_full_disk_is_found_at_the_very_end_too(path: Path, before: dict[str, bytes]) -> None:
    small = big.slice(0, 10)
    put(path, small)
    size = path.stat().st_size
    path.unlink()
    for name, data in before.items():
        path.with_name(name).write_bytes(data)
    with pytest.raises(OutputError, match="File too large"), disk_of(size - 1):
        put(path, small)
    assert before == folder(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_no_space_left_on_device(path: Path, before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "full")
    path.with_name(".penstock-full.part").symlink_to("/dev/full")
    with pytest.raises(OutputError) as raised:
        put(path, big)
    assert f"{path}: {os.strerror(errno.ENOSPC)}; nothing was left behind" == str(raised.value)
    assert before == folder(path)


def test_a_failure_to_sync_leaves_nothing(
    path: Path, before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise OSError(errno.EIO, "")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OutputError, match="Input/output error"):
        put(path, big)
    assert before == folder(path)


def test_ctrl_c_while_the_file_is_finished_leaves_nothing(
    path: Path, before: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        put(path, big)
    assert before == folder(path)


def test_an_error_that_is_swallowed_in_the_block_writes_nothing(path: Path, before: dict[str, bytes]) -> None:
    with files.writer(path, big.schema) as out, disk_of(1000):
        with pytest.raises(OutputError, match="File too large"):
            out.write(big)
        assert before == folder(path)
        with pytest.raises(OutputError, match="is not open"):
            out.write(big)
    assert before == folder(path)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"nowhere/table\.csv: No such file or directory"):
        put(tmp_path / "nowhere" / "table.csv", typed)


def test_writing_needs_the_block(path: Path) -> None:
    with pytest.raises(OutputError, match="write inside the with block"):
        files.writer(path, typed.schema).write(typed)


def test_an_unknown_suffix_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in \.csv, \.parquet"):
        files.writer(tmp_path / "table.xlsx", typed.schema)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("column", ["tags", "point", "raw"])
def test_csv_refuses_nested_and_binary_columns(tmp_path: Path, column: str) -> None:
    with pytest.raises(InputError, match=rf"column '{column}' is .*CSV is UTF-8 text.* or an \.arrow file"):
        put(tmp_path / "table.csv", nested.select([column]))
    assert not list(tmp_path.iterdir())


def test_a_type_that_a_format_cannot_hold_is_an_input_error(tmp_path: Path) -> None:
    table = pa.table({"gap": pa.nulls(2, pa.month_day_nano_interval())})
    for suffix in (".csv", ".parquet"):
        with pytest.raises(InputError, match="schema: got gap: month_day_nano_interval"):
            put(tmp_path / f"table{suffix}", table)
    assert not list(tmp_path.iterdir())


def test_a_table_of_another_schema_is_refused_and_leaves_nothing(path: Path, before: dict[str, bytes]) -> None:
    with pytest.raises(SchemaError, match="table: got ts: string; the file has ts: int64"):
        put(path, big, pa.table({"ts": ["1"]}))
    assert before == folder(path)


def test_a_link_stays_a_link(path: Path) -> None:
    target = path.with_name(f"target{path.suffix}")
    path.symlink_to(target)
    put(path, big)
    assert path.is_symlink()
    assert big == files.read(target)


def test_a_new_file_has_the_usual_permissions(path: Path) -> None:
    put(path, big)
    other = path.with_name("other")
    other.touch()
    assert other.stat().st_mode == path.stat().st_mode
