"""The package as users get it: a wheel that installs alone, and that an application can take to a cluster."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pyarrow.dataset as ds
import pytest

import penstock as pen
from clusters import HOME, standalone
from documents import ROOT, blocks, lines_of
from penstock.spark import java
from streaming import counted, ticking, write_batches
from walking import walked

pytestmark = pytest.mark.wheel

PATIENCE = 900.0  # seconds after which something hangs
EXTRAS = {"spark", "java", "kafka", "dashboard", "docs", "pandas", "connect", "figures"}
PAGES = ("docs/operations.md", "docs/spark.md")
SMALL_JOIN = """
import penstock as pen, pyarrow as pa, sys
assert "pyspark" not in sys.modules
calls = pa.table({"ts": [1, 2, 3], "who": ["ann", "bob", "ann"]})
trades = pa.table({"ts": [2, 9], "who": ["ann", "bob"], "sum": [5, 6]})
print(pen.join(calls, trades, on="who", time="ts", window=5, memory=2, policy="oldest").num_rows)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    [built] = folder.glob("*.whl")
    return built


def run(*command: str, at: Path = Path("/"), **environment: str) -> str:
    """Run a command away from the checkout, and return what it prints."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    done = subprocess.run(command, cwd=at, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    errors = [line for line in done.stderr.splitlines() if "Error" in line or "Exception" in line]
    assert done.returncode == 0, "\n".join([*errors[:20], done.stderr[-1000:]])
    return done.stdout


def test_the_wheel_has_all_that_is_needed_and_no_more(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as inside:
        names = set(inside.namelist())
        [about] = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(inside.read(about).decode())
    package = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.is_file()}
    assert {name for name in package if "__pycache__" not in name} == {n for n in names if ".dist-info/" not in n}
    assert {"penstock/py.typed", "penstock/dashboard/page.html"} <= names
    assert set(metadata.get_all("Provides-Extra") or []) >= EXTRAS


def test_it_installs_alone_into_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh", with_pip=True)
    python = str(tmp_path / "fresh" / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
    run(python, "-m", "pip", "check")
    assert run(python, "-c", SMALL_JOIN, PENSTOCK_CACHE_DIR=str(tmp_path / "cache")).strip() == "2"
    assert "refine" in run(str(tmp_path / "fresh" / "bin" / "penstock"), "--help")


def test_a_new_user_walks_through_the_tutorial(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the wheel alone, an empty home and no Java: from the demo to a result that was repaired."""
    venv.create(tmp_path / "fresh", with_pip=True)
    tools = tmp_path / "fresh" / "bin"
    run(str(tools / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[spark]")
    for name in ("PYTHONPATH", "PYSPARK_PYTHON", "PENSTOCK_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("home", "walk"):
        (tmp_path / name).mkdir()
    walked(tmp_path / "walk", tools, HOME=str(tmp_path / "home"))


def test_an_application_takes_it_to_a_cluster(wheel: Path, tmp_path: Path) -> None:
    """As both pages say it. The driver's and the workers' Python have what Penstock needs, but not Penstock."""
    venv.create(tmp_path / "without", with_pip=False)
    python = tmp_path / "without" / "bin" / "python"
    [packages] = (tmp_path / "without" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")  # an editable install does not follow
    archive = tmp_path / "penstock.zip"
    shutil.copy(wheel, archive)
    tables = [ticking(seed, 300) for seed in (21, 22)]
    for name, table in zip(("l", "r"), tables, strict=True):
        write_batches(table, tmp_path / name, [])
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "700m",
        "spark.executorEnv.PENSTOCK_CACHE_DIR": tmp_path / "cache",
    }
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    lines = {line for page in PAGES for block in blocks(ROOT / page, "") for line in lines_of(block)}
    [submit] = [line for line in lines if "--py-files" in line]
    application = shlex.join([str(Path(__file__).with_name("application.py")), str(tmp_path)])
    java.ensure()
    with standalone(tmp_path) as master:
        run(
            *("sh", "-c", submit.replace("spark://...", master).replace("application.py", application)),
            at=tmp_path,
            PATH=f"{HOME / 'bin'}:{os.environ['PATH']}",
            SPARK_HOME=str(HOME),
            SPARK_CONF_DIR=str(tmp_path),
            PYSPARK_PYTHON=str(python),
            PENSTOCK_CACHE_DIR=str(tmp_path / "cache"),
        )
    places = json.loads((tmp_path / "places.json").read_text())
    assert len(places) == 3
    assert all("penstock.zip/penstock" in place for place in places), places
    got = ds.dataset(tmp_path / "out", partitioning=None).to_table()
    want = pen.join(*tables, on="k", time="ts", window="30 seconds", memory=24, policy="prob")
    assert counted(want) == counted(got.select(want.column_names))
