"""The tutorial does what it says, block by block, as somebody would who has nothing but the page, and no Java."""

import sys
from pathlib import Path

from walking import walked


def test_every_step_of_the_tutorial(tmp_path: Path) -> None:
    walked(tmp_path, Path(sys.executable).parent)
