"""Read and replay tables from CSV, Parquet and Arrow files or folders of them, and write them whole or not at all."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from penstock.errors import InputError, OutputError, SchemaError

PathLike = str | os.PathLike[str]

_CSV_OPTIONS = {
    # a row must fit into a block, a replay takes the types from the first one, and Arrow reads some 30 ahead
    "read_options": pa.csv.ReadOptions(block_size=1 << 22),
    "parse_options": pa.csv.ParseOptions(newlines_in_values=True),
    # an empty cell is null and everything else is itself: "" is a string, nan a number, NA a country
    "convert_options": pa.csv.ConvertOptions(
        null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    ),
}
_STREAM_START = b"\xff\xff\xff\xff"  # of an Arrow IPC stream, which has no footer


def read(path: PathLike) -> pa.Table:
    r"""Read a whole file into memory, or the files of a folder.

    The suffix says the format: ``.csv``, ``.parquet``, or ``.arrow`` / ``.feather`` / ``.ipc`` (Arrow IPC, as
    a file or as a stream). CSV has a header line and carries no types: they are inferred from all the rows,
    an empty cell is null, and empty lines are skipped. The files of a folder come one after the other, by their
    names, and have the same columns; those whose names begin with ``_`` or ``.`` are left out, as Spark does.

    Parameters:
        path: the file or folder.

    Returns:
        The table.

    Cost:
        The file in memory.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "calls.csv")
        ...     _ = path.write_text("ts,key\n1,a\n2,\n")
        ...     read(path).to_pylist()
        [{'ts': 1, 'key': 'a'}, {'ts': 2, 'key': None}]
    """
    tables = []
    for file in _files(Path(path)):
        with _told(file):
            tables.append(_checked(file).read(file))
        _require_same(file, tables[0].schema, tables[-1].schema)
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def schema(path: PathLike) -> pa.Schema:
    r"""Read only the names and types of a file's columns, as ``batches`` gives them.

    Parameters:
        path: the file, in a format that ``read`` takes, or a folder of such.

    Returns:
        The schema; of a folder, that of its first file.

    Cost:
        The header of the file; for CSV its first 4 MiB.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "calls.csv")
        ...     _ = path.write_text("ts,key\n1,a\n2,\n")
        ...     schema(path).names
        ['ts', 'key']
    """
    file = _files(Path(path))[0]
    with _told(file):
        return _checked(file).stream(file, 1).schema


def batches(path: PathLike, *, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
    r"""Replay a file, or the files of a folder, batch by batch, in the order of rows, without loading them whole.

    The (first) file is checked at once and read as the batches are asked for. A CSV's types are inferred from its
    first 4 MiB; a later value that does not fit them is an ``InputError``.

    Parameters:
        path: the file, in a format that ``read`` takes, or a folder of such.
        rows: the most rows in one batch; batches may be smaller, and are never empty.

    Returns:
        An iterator over the batches, all of the same schema.

    Cost:
        A few batches in memory; one record batch of the file (Arrow); some 150 MiB of blocks (CSV).

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "calls.csv")
        ...     _ = path.write_text("ts,key\n1,a\n2,b\n3,c\n")
        ...     [batch.num_rows for batch in batches(path, rows=2)]
        [2, 1]
    """
    if rows < 1:
        raise InputError("rows", rows, "at least one row a batch is needed")
    files = _files(Path(path))
    with _told(files[0]):
        first = _checked(files[0]).stream(files[0], rows)
    return _replayed(files, first, rows)


def writer(path: PathLike, schema: pa.Schema) -> "Writer":
    """Write a file that appears whole or not at all.

    Rows go to a temporary file in the same folder, which takes the place of ``path`` when the ``with`` block
    ends well. After an exception, a full disk or Ctrl-C it is removed, and ``path`` is as it was before.

    Parameters:
        path: where the file shall be; the suffix says the format, as in ``read``.
        schema: the columns of the file. CSV holds neither nested nor binary columns.

    Returns:
        A context manager with a method ``write``, for one table or batch after the other.

    Cost:
        Room on the disk for the old and the new file together.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> table = pa.table({"ts": [1, 2]})
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "pairs.parquet")
        ...     with writer(path, table.schema) as out:
        ...         out.write(table)
        ...         out.write(table)
        ...     read(path)["ts"].to_pylist()
        [1, 2, 1, 2]
    """
    return Writer(Path(path), schema)


class Writer:
    """A file on its way: ``write`` inside a ``with`` block, as ``writer`` describes."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = path
        self._schema = schema
        self._format = _format(path)
        self._target = path.resolve()  # of a symbolic link, the file that it points to
        self._temporary = self._target.with_name(f".penstock-{secrets.token_hex(8)}.part")
        self._open: list[Any] = []  # Arrow's writer and the file under it, in the order of closing

    def write(self, table: pa.Table | pa.RecordBatch) -> None:
        """Append the rows of a table or batch, which must have the schema of the file."""
        if not self._open:
            raise OutputError(self._path, "is not open; write inside the with block, and not after an error")
        if not table.schema.equals(self._schema):
            raise SchemaError("table", _brief(table.schema), f"the file has {_brief(self._schema)}")
        with self._whole_or_nothing():
            self._open[0].write(table)

    def __enter__(self) -> Self:
        with self._whole_or_nothing():
            if self._target.is_dir():
                raise IsADirectoryError("there is a folder of that name")
            file = pa.OSFile(str(self._temporary), "wb")
            self._open = [file]
            self._open = [self._format.sink(file, self._schema), file]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
        elif self._open:
            with self._whole_or_nothing():
                for part in self._open:
                    part.close()
                with self._temporary.open("r+b") as file:
                    os.fsync(file.fileno())
                self._temporary.replace(self._target)
                self._open = []

    @contextmanager
    def _whole_or_nothing(self) -> Iterator[None]:
        """Leave nothing behind if what is done inside fails, and say so."""
        try:
            yield
        except BaseException as error:
            self._discard()
            if isinstance(error, OSError):
                why = os.strerror(error.errno) if error.errno else str(error)
                raise OutputError(self._path, f"{why}; nothing was left behind") from error
            if isinstance(error, pa.ArrowInvalid | pa.ArrowNotImplementedError | pa.ArrowTypeError):
                want = f"types that {self._format.name} holds, or an .arrow file, are needed"
                raise InputError("schema", f"{_brief(self._schema)} ({error})", want) from error
            raise

    def _discard(self) -> None:
        """Close and remove the temporary file."""
        for part in self._open:
            with suppress(OSError, pa.ArrowException):  # what cannot be flushed is not wanted any more
                part.close()
        self._open = []
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)


class _Format(NamedTuple):
    """One file format: its name, how its files begin, and how they are read, replayed and written."""

    name: str
    starts: tuple[bytes, ...]
    read: Callable[[Path], pa.Table]
    stream: Callable[[Path, int], pa.RecordBatchReader]
    sink: Callable[[pa.OSFile, pa.Schema], Any]


def _csv_read(path: Path) -> pa.Table:
    table = pa.csv.read_csv(path, **_CSV_OPTIONS)
    _require_text(table.schema)
    return table


def _csv_stream(path: Path, _rows: int) -> pa.RecordBatchReader:
    reader = pa.csv.open_csv(path, **_CSV_OPTIONS)
    _require_text(reader.schema)
    return reader


def _csv_sink(file: pa.OSFile, schema: pa.Schema) -> Any:
    _require_text(schema)
    return pa.csv.CSVWriter(file, schema)


def _require_text(schema: pa.Schema) -> None:
    """Refuse what is not text: nested columns, and names or values that are bytes but not UTF-8."""
    for name, kind in zip(schema.names, schema.types, strict=True):
        if pa.types.is_nested(kind) or "binary" in str(kind):
            raise pa.ArrowInvalid(f"column {name!r} is {kind}, and CSV is UTF-8 text")


def _parquet_read(path: Path) -> pa.Table:
    with pa.parquet.ParquetFile(path) as file:
        return file.read()


def _parquet_stream(path: Path, rows: int) -> pa.RecordBatchReader:
    file = pa.parquet.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)  # else the file is read ahead
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(batch_size=rows))


def _arrow_read(path: Path) -> pa.Table:
    return _arrow_stream(path, 0).read_all()


def _arrow_stream(path: Path, _rows: int) -> pa.RecordBatchReader:
    file = pa.OSFile(str(path))
    if _start(path).startswith(_STREAM_START):
        return pa.ipc.open_stream(file)
    reader = pa.ipc.open_file(file)
    every = (reader.get_batch(number) for number in range(reader.num_record_batches))
    return pa.RecordBatchReader.from_batches(reader.schema, every)


_CSV = _Format("CSV", (), _csv_read, _csv_stream, _csv_sink)
_PARQUET = _Format("Parquet", (b"PAR1",), _parquet_read, _parquet_stream, pa.parquet.ParquetWriter)
_ARROW = _Format("Arrow", (b"ARROW1", _STREAM_START), _arrow_read, _arrow_stream, pa.ipc.new_file)
_FORMATS = {".csv": _CSV, ".parquet": _PARQUET, ".arrow": _ARROW, ".feather": _ARROW, ".ipc": _ARROW}


def _format(path: Path) -> _Format:
    """Return the format that the suffix stands for."""
    found = _FORMATS.get(path.suffix.lower())
    if found is None:
        raise InputError("path", path, f"a file that ends in {', '.join(_FORMATS)} is needed")
    return found


def _checked(path: Path) -> _Format:
    """Return the format of an existing file whose first bytes agree with its suffix."""
    expected = _format(path)
    if not path.is_file():
        raise InputError("path", path, "the path of an existing file is needed")
    start = _start(path)
    if not start:
        raise InputError("path", f"{path}, which is empty", f"a file with {expected.name} inside is needed")
    found = next((form for form in _FORMATS.values() if start.startswith(form.starts)), _CSV)
    if found is not expected:
        looks = "which is neither Parquet nor Arrow" if found is _CSV else f"which is {found.name} inside"
        raise InputError(
            "path",
            f"{path}, {looks}",
            f"{path.suffix} promises {expected.name}: give the file the suffix that fits",
        )
    return found


def _start(path: Path) -> bytes:
    """Return the first bytes of a file."""
    with path.open("rb") as file:
        return file.read(8)


def _replayed(files: list[Path], first: pa.RecordBatchReader, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield what the files hold, of which the first is open, in batches of at most so many rows."""
    for at, file in enumerate(files):
        with _told(file):
            reader = first if at == 0 else _checked(file).stream(file, rows)
            _require_same(file, first.schema, reader.schema)
            for batch in reader:
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)


def _files(path: Path) -> list[Path]:
    """Return the files of a folder by their names, or the one file that a path is."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith(("_", ".")))
    if not found:
        raise InputError(
            "path", f"{path}, a folder without files", f"files that end in {', '.join(_FORMATS)} are needed"
        )
    return found


def _require_same(file: Path, first: pa.Schema, found: pa.Schema) -> None:
    """Refuse a file of a folder whose columns are not those of the first."""
    if not found.equals(first):
        raise SchemaError("path", f"{file} with {_brief(found)}", f"the files before it have {_brief(first)}")


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turn whatever a reader complains about into an error that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        why = str(error).partition("\n")[0]
        want = f"a readable and complete {_format(path).name} file is needed"
        raise InputError("path", f"{path}, which cannot be read ({why})", want) from error


def _brief(schema: pa.Schema) -> str:
    """Write a schema on one line."""
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "no columns"
