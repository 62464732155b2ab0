"""Find the file system of a path, on the driver and in every task."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from penstock.errors import InputError


def place(path: str) -> tuple[Any, str]:
    """Return the file system of a path, and the path in it."""
    if "://" not in path and not path.startswith("file:"):
        return fs.LocalFileSystem(), str(Path(path).absolute())
    try:
        return fs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", path))
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            "path", path, f"give a local path, or one of file, s3, gs, abfs or hdfs ({error})"
        ) from error
