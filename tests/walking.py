"""Walk through the tutorial as somebody would who has nothing but the page, and no Java."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from urllib.request import urlopen

from documents import ROOT, blocks, commands_of

PAGE, README = ROOT / "docs" / "tutorial.md", ROOT / "README.md"
SECONDS = 900  # the first use of a policy compiles it
MORE = {  # what is added to a command, to read it or to be done sooner
    "penstock compare": ["--json"],
    "penstock demo": ["--rows", "20000", "--seconds", "2"],
}


def walked(folder: Path, tools: Path, **environment: str) -> None:
    """Do every step of the tutorial in an empty folder, with the commands in another one, and see that it adds up.

    The steps that the README names are among them, or are done after them.
    """
    draw, count = blocks(PAGE, "python")
    (job,) = blocks(PAGE, "toml")
    (folder / "draw.py").write_text(draw, encoding="utf-8")
    (folder / "job.toml").write_text(job, encoding="utf-8")
    env = without_java(folder / "tools", tools) | {"COLUMNS": "200", "PENSTOCK_ENGINES": str(folder / "engines")}
    env |= environment

    def done(command: str, *more: str) -> str:
        words = [*shlex.split(command), *more]
        ran = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=SECONDS)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    steps = [line for block in blocks(PAGE, "") for line in block.splitlines()]
    assert steps.pop(0).startswith("pip install")
    named = [shlex.split(line) for block in blocks(README, "")[:2] for line in commands_of(block)]
    known = [shlex.split(step) for step in steps]
    steps += [shlex.join(words) for words in named if words not in known]
    said: dict[str, str] = {}
    for command in steps:
        if command.startswith("penstock dashboard"):
            look(command, folder, env)
        else:
            said[command] = done(command, *MORE.get(" ".join(command.split()[:2]), []))
    assert list(said)[:2] == ["penstock demo", "python draw.py"]
    compared = json.loads(next(text for command, text in said.items() if command.startswith("penstock compare")))
    exact = {row["pairs"] for row in compared["scores"] if row["policy"] == "exact"}
    found = json.loads(done("penstock run job.toml", "--json"))  # there is nothing left to do
    assert found["batches"] == 0
    assert (folder / "found.parquet").exists()
    assert exact == {int(done(f"python -c {shlex.quote(count)}"))}
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
