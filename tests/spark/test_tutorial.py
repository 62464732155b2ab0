"""The tutorial does what it says, block by block, as somebody would who has nothing but the page, and no Java."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from documents import ROOT, blocks

PAGE = ROOT / "docs" / "tutorial.md"
SECONDS = 400


def test_every_step_of_the_tutorial(tmp_path: Path) -> None:
    draw, count = blocks(PAGE, "python")
    (job,) = blocks(PAGE, "toml")
    (tmp_path / "draw.py").write_text(draw, encoding="utf-8")
    (tmp_path / "job.toml").write_text(job, encoding="utf-8")
    env = without_java(tmp_path / "tools") | {"COLUMNS": "200", "PENSTOCK_ENGINES": str(tmp_path / "engines")}

    def done(command: str, *more: str) -> str:
        words = [*shlex.split(command), *more]
        ran = subprocess.run(
            words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    commands = [line for block in blocks(PAGE, "") for line in block.splitlines()]
    assert commands.pop(0).startswith("pip install")
    said: dict[str, str] = {}
    for command in commands:
        if command.startswith("penstock dashboard"):
            look(command, tmp_path, env)
        else:
            said[command] = done(command, *(["--json"] if command.startswith("penstock compare") else []))
    assert next(iter(said)) == "python draw.py"
    compared = json.loads(next(text for command, text in said.items() if command.startswith("penstock compare")))
    exact = {row["pairs"] for row in compared["scores"] if row["policy"] == "exact"}
    found = json.loads(done("penstock run job.toml", "--json"))  # there is nothing left to do
    assert found["batches"] == 0
    assert exact == {int(done(f"{sys.executable} -c {shlex.quote(count)}"))}
    assert re.search(r"recall +\S*\d", said["penstock run job.toml"])


def without_java(tools: Path) -> dict[str, str]:
    """Return the environment of a machine that has everything but a Java of its own."""
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*"):
            if path.name != "java" and not (tools / path.name).is_symlink():
                (tools / path.name).symlink_to(path)
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{tools}"
    assert shutil.which("bash", path=env["PATH"])
    assert shutil.which("java", path=env["PATH"]) is None
    return env


def look(command: str, folder: Path, env: dict[str, str]) -> None:
    """Open the page that a command serves, and see the job there."""
    words = [*shlex.split(command), "--port", "0"]
    with subprocess.Popen(
        words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as ran:
        try:
            assert ran.stdout is not None
            address = next(found[0] for line in ran.stdout if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
            with contextlib.closing(urlopen(f"{address}data.json", timeout=30)) as answer:  # noqa: S310 - loopback
                assert len(json.load(answer)["queries"]["job"]["points"]) == 4  # a file of each side a micro-batch
        finally:
            ran.terminate()
