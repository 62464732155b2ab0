"""The commands of the documents run as they are printed, page after page, in one folder, and every one ends well."""

import shlex
import shutil
import sys
from pathlib import Path

import pyarrow.csv as pc
import pyarrow.dataset as ds

import penstock as pen
from documents import ROOT, blocks, steps
from shell import around, served, typed
from streaming import ticking

ROWS = 2000
PAGES = ("docs/jobs.md", "docs/dashboard.md", "docs/operations.md")
DEMO = "penstock demo"  # it needs no files, and the walk through the tutorial has it
SUBMIT = "PYTHONPATH=penstock.zip spark-submit"  # it needs a cluster and the wheel, and test_wheel.py has both
ONE_BY_ONE = """
import shlex, sys
from penstock import cli

for line in sys.argv[1:]:
    if cli.main(shlex.split(line)[1:]):
        sys.exit(line)
"""


def test_commands_do_what_the_pages_say(tmp_path: Path) -> None:
    """With the files that the README names, the examples, and the first job of jobs.md; nothing is done twice.

    One process does all but the pages of charts, so that there is one Java. The README's first two blocks are for the
    tutorial's files, and run there.
    """
    for name, seed in (("calls", 41), ("trades", 42)):
        pc.write_csv(ticking(seed, ROWS, keys=50).rename_columns({"k": "person"}), tmp_path / f"{name}.csv")
    shutil.copytree(ROOT / "examples" / "jobs", tmp_path / "examples" / "jobs", ignore=lambda *_: ["out", "data"])
    (tmp_path / "job.toml").write_text(blocks(ROOT / "docs" / "jobs.md", "toml")[0], encoding="utf-8")
    env = around(PENSTOCK_ENGINES=str(tmp_path / "engines"))
    printed = [block for page in PAGES for block in steps(ROOT / page)] + steps(ROOT / "README.md")[2:]
    lines = dict.fromkeys(line for block in printed for line in block if not line.startswith((DEMO, SUBMIT)))
    pages = [line for line in lines if line.startswith("penstock dashboard")]
    others = [line for line in lines if line not in pages]
    assert all(line.startswith("penstock ") for line in others)
    typed(shlex.join([sys.executable, "-c", ONE_BY_ONE, *others]), tmp_path, env)
    for line in pages:
        [job] = served(line, tmp_path, env).values()
        assert job["points"]
    for folder in ("out", "examples/jobs/out/calls_trades"):
        assert all(rows(tmp_path / folder / name) > 0 for name in ("found", "shed", "rest"))
    tables = [pc.read_csv(tmp_path / f"{name}.csv") for name in ("calls", "trades")]
    exact = pen.join(*tables, on="person", time="ts", window="10 minutes").num_rows
    assert min(rows(tmp_path / f"{name}.parquet") for name in ("joined", "shed", "rest")) > 0
    assert rows(tmp_path / "joined.parquet") + rows(tmp_path / "rest.parquet") == exact
    assert (tmp_path / "figures" / "das2003-3.png").exists()


def rows(path: Path) -> int:
    return int(ds.dataset(path, format="parquet", exclude_invalid_files=True).count_rows())


def test_what_make_can_do_is_there() -> None:
    """Every target of CONTRIBUTING.md; make says what it would do."""
    [block] = steps(ROOT / "CONTRIBUTING.md")
    assert all(typed(command, ROOT, around()) for command in block)
