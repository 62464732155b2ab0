"""Find the real data that some figures are drawn from."""

import os
from pathlib import Path

from penstock.errors import InputError


def found(folder: str, file: str) -> Path:
    """Return where a file of a data set is; ``PENSTOCK_DATA`` names the folder of all sets.

    Raises:
        InputError: if it is not there.
    """
    path = Path(os.environ.get("PENSTOCK_DATA", "../shared/data")) / folder / file
    if not path.is_file():
        raise InputError("figure", f"no file {path}", f"set PENSTOCK_DATA to the folder that has {folder} in it")
    return path
