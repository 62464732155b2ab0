"""Walk through the tutorial as somebody would who has nothing but the page, and no Java."""

import json
import os
import re
import shlex
import shutil
import tomllib
from pathlib import Path

from documents import ROOT, blocks, steps
from shell import served, typed

PAGE, README = ROOT / "docs" / "tutorial.md", ROOT / "README.md"


def walked(folder: Path, tools: Path, **environment: str) -> None:
    """Do every step of the tutorial in an empty folder, with the commands in another one, and see that it adds up.

    The steps that the README names are among them, or are done after them.
    """
    draw, count = blocks(PAGE, "python")
    (job,) = blocks(PAGE, "toml")
    assert [tomllib.loads(job)] == [tomllib.loads(shorter) for shorter in blocks(README, "toml")]
    (folder / "draw.py").write_text(draw, encoding="utf-8")
    (folder / "job.toml").write_text(job, encoding="utf-8")
    env = without_java(folder / "tools", tools) | {"COLUMNS": "200", "PENSTOCK_ENGINES": str(folder / "engines")}
    env |= environment
    said: dict[str, str] = {}
    for command in dict.fromkeys(line for block in [*steps(PAGE), *steps(README)[:2]] for line in block):
        if command.startswith("penstock dashboard"):
            assert len(served(command, folder, env)["job"]["points"]) == 4  # a file of each side a micro-batch
        else:
            said[command] = typed(command, folder, env, "--json" if command.startswith("penstock compare") else "")
    assert list(said)[:2] == ["penstock demo", "python draw.py"]
    compared = json.loads(next(text for command, text in said.items() if command.startswith("penstock compare")))
    exact = {row["pairs"] for row in compared["scores"] if row["policy"] == "exact"}
    found = json.loads(typed("penstock run job.toml --json", folder, env))  # there is nothing left to do
    assert found["batches"] == 0
    assert (folder / "found.parquet").exists()
    assert exact == {int(typed(f"python -c {shlex.quote(count)}", folder, env))}
    assert re.search(r"recall +\S*\d", said["penstock run job.toml"])


def without_java(others: Path, tools: Path) -> dict[str, str]:
    """Return the environment of a machine that has some tools, and all others but a Java of its own."""
    others.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*"):
            if path.name != "java" and not (others / path.name).is_symlink():
                (others / path.name).symlink_to(path)
    env = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    env["PATH"] = f"{tools}{os.pathsep}{others}"
    assert shutil.which("bash", path=env["PATH"])
    assert shutil.which("java", path=env["PATH"]) is None
    return env
