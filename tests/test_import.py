"""Importing Penstock is cheap, and what was compiled is found again by those it fits, and by nobody else."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.core import jit

PACKAGE = Path(penstock.__file__).parent
HEAVY = ("numba", "llvmlite", "pyarrow", "pandas", "pyspark", "matplotlib", "numpy", "typer", "rich")

# A run of one policy: its pairs, where its kernels are kept, and how many were found there or compiled.
RUN = """
import json
import pyarrow as pa
import penstock as pen
from penstock.core import jit, step

rows = list(range(200))
left = pa.table({"ts": rows, "key": [row % 7 for row in rows]})
right = pa.table({"ts": rows, "key": [row % 5 for row in rows]})
pairs = [  # once the budget is what binds, once the window
    pen.join(left, right, on="key", time="ts", window=window, memory=30, policy="oldest").num_rows
    for window in (40, 10)
]
stats = step.step.stats
print(json.dumps({
    "pairs": pairs,
    "package": pen.__file__,
    "folder": str(jit.cache_folder()),
    "found": sum(stats.cache_hits.values()),
    "compiled": sum(stats.cache_misses.values()),
}))
"""


def test_the_compiled_cache_is_named_after_every_room_that_has_kernels() -> None:
    """Otherwise an edited kernel would go on running its old machine code."""
    decorated = re.compile(r"^\s*@(kernel|intrinsic|overload\()", re.MULTILINE)
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    assert set(jit.SOURCES) == {path.relative_to(PACKAGE).parts[0] for path in texts if decorated.search(texts[path])}


def python(code: str, **env: object) -> Any:
    """Run code in a process of its own and return the JSON that it prints."""
    words = {name: str(value) for name, value in env.items()}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def heavy_after(code: str) -> list[str]:
    """Return which of the heavy packages are loaded after some code."""
    loaded: list[str] = python(
        f"{code}\nimport json, sys\nprint(json.dumps(sorted(set({HEAVY}) & set(sys.modules))))"
    )
    return loaded


def test_import_loads_nothing_heavy() -> None:
    assert heavy_after("import penstock") == []


def test_the_names_of_the_front_door_are_known_without_loading_it() -> None:
    names = "import penstock; assert {'join', 'run', 'Join', 'compare'} <= set(dir(penstock)); penstock.__version__"
    assert heavy_after(names) == []


@pytest.mark.parametrize("words", ["--help", "join --help", "plan --help", "demo --help", "run --help", "--version"])
def test_help_loads_neither_arrow_nor_the_compiler(words: str) -> None:
    loaded = heavy_after(f"from penstock import cli; assert cli.main({words.split()}) == 0")
    assert set(loaded) <= {"typer", "rich"}


def test_the_front_door_loads_neither_pandas_nor_spark_nor_figures() -> None:
    loaded = heavy_after("import penstock; penstock.join")
    assert not {"pandas", "pyspark", "matplotlib", "typer", "rich"} & set(loaded)


def test_loading_the_front_door_compiles_nothing(tmp_path: Path) -> None:
    code = "import json, penstock; penstock.join; penstock.policies(); print(json.dumps(None))"
    python(code, PENSTOCK_CACHE_DIR=tmp_path)
    assert list(tmp_path.rglob("*.nbc")) == []


@pytest.mark.parametrize("before", ["", "import penstock.policies.registry", "import penstock; penstock.join"])
def test_a_room_does_not_rob_the_front_door_of_a_name(before: str) -> None:
    code = "import json, penstock; penstock.policies(); print(json.dumps(penstock.policies()['name'].to_pylist()))"
    assert "oldest" in python(f"{before}\n{code}")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'joint'"):
        penstock.joint  # noqa: B018


@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="with the JIT off nothing is compiled or kept")
def test_compiled_code_is_found_again_until_a_source_changes(tmp_path: Path) -> None:
    """Numba looks only at the file a kernel stands in; these edits are in other files than the kernel's."""
    source = tmp_path / "source"
    shutil.copytree(PACKAGE, source / "penstock", ignore=shutil.ignore_patterns("__pycache__"))
    env = {"PYTHONPATH": source, "PENSTOCK_CACHE_DIR": tmp_path / "cache", "PYTHONDONTWRITEBYTECODE": "1"}

    first = python(RUN, **env)
    assert Path(first["package"]).is_relative_to(source)
    assert Path(first["folder"]).is_relative_to(tmp_path / "cache")
    assert (0, True) == (first["found"], first["compiled"] > 0)

    second = python(RUN, **env)
    assert (True, 0) == (second["found"] > 0, second["compiled"])
    assert (first["folder"], first["pairs"]) == (second["folder"], second["pairs"])

    policy = source / "penstock" / "policies" / "memory" / "oldest.py"
    written = policy.read_text()
    edit = written.replace(" OLDEST, ", " NEWEST as OLDEST, ")  # the newest leaves instead
    assert written != edit
    policy.write_text(edit)
    third = python(RUN, **env)
    assert (0, True) == (third["found"], third["compiled"] > 0)
    assert first["folder"] != third["folder"]
    assert first["pairs"] != third["pairs"]

    policy.write_text(written)
    again = python(RUN, **env)
    assert (second["folder"], second["pairs"]) == (again["folder"], again["pairs"])

    helper = source / "penstock" / "core" / "windows.py"
    helper.write_text(f"{helper.read_text()}{LATER}")
    fourth = python(RUN, **env)
    assert (0, True) == (fourth["found"], fourth["compiled"] > 0)
    assert fourth["folder"] not in {first["folder"], third["folder"]}
    assert fourth["pairs"][1] > first["pairs"][1]


@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="with the JIT off nothing is compiled or kept")
def test_an_archive_keeps_its_kernels_wherever_it_is(tmp_path: Path) -> None:
    """As `spark-submit --py-files` hands it out: every application has a folder of its own."""
    whole = Path(shutil.make_archive(str(tmp_path / "penstock"), "zip", PACKAGE.parent, PACKAGE.name))
    cache = tmp_path / "cache"
    for application in ("first", "second"):
        folder = tmp_path / application
        folder.mkdir()
        archive = shutil.copy(whole, folder)
        ran = python(RUN, PYTHONPATH=archive, PENSTOCK_CACHE_DIR=cache)
        assert ran["package"].startswith(str(archive))
        assert (ran["found"] > 0, ran["compiled"] > 0) == ((False, True) if application == "first" else (True, False))


# Appended to core/windows.py, whose helpers end up in a kernel of core/step.py: tuples live a tick longer.
LATER = """

in_time = chain


@part
def chain(windows, side, slot):
    in_time(windows, side, slot)
    windows.stamp[slot, POS] += 1
"""
