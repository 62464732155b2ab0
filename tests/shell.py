"""Type the commands of a page as somebody would, in a folder."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

SECONDS = 900  # the first use of a policy compiles it
MORE = {  # what is added to a command, to be done sooner or to do no harm
    "penstock demo": "--rows 20000 --seconds 2",
    "make": "--dry-run",
}


def around(**more: str) -> dict[str, str]:
    """Return the environment of the tests, in which the commands are those beside their Python."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"} | more


def typed(command: str, folder: Path, env: dict[str, str], more: str = "") -> str:
    """Do a command, and return what it says; something is added to those that take long."""
    added = [words for start, words in MORE.items() if command.startswith(start)]
    words = ["bash", "-c", " ".join([command, *added, more])]
    ran = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


def served(command: str, folder: Path, env: dict[str, str]) -> dict[str, Any]:
    """Open the page that a command serves, end the command, and return the jobs that are on the page."""
    words = ["bash", "-c", f"exec {command} --port 0"]
    with subprocess.Popen(
        words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ran:
        try:
            assert ran.stdout is not None
            address = next(found[0] for line in ran.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
            with contextlib.closing(urlopen(f"{address}data.json", timeout=30)) as answer:  # noqa: S310 - loopback
                return dict(json.load(answer)["queries"])
        finally:
            ran.terminate()
