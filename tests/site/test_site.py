"""The site of the documentation builds in an environment of its own, and every page and policy is in it."""

import re
import subprocess
import venv
from pathlib import Path

import pytest

import penstock as pen
from documents import ROOT
from penstock.policies.registry import entries

pytestmark = pytest.mark.site

PATIENCE = 900.0  # seconds after which something hangs
ELSEWHERE = re.compile(r'<(?:script|img|link rel="stylesheet")[^>]*(?:src|href)="https?:[^"]*"')


def run(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_the_site_is_built_without_a_warning_and_needs_no_other_server(tmp_path: Path) -> None:
    venv.create(tmp_path / "fresh", with_pip=True)
    tools = tmp_path / "fresh" / "bin"
    run(str(tools / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{ROOT}[docs]")
    run(str(tools / "mkdocs"), "build", "--strict", "--site-dir", str(tmp_path / "site"))
    pages = {path.relative_to(tmp_path / "site").parent.as_posix() for path in tmp_path.glob("site/**/index.html")}
    assert pages >= {path.stem for path in ROOT.glob("docs/*.md")}
    assert pages >= {f"policies/{entry.name}" for entry in entries() if entry.own}
    for page in pages:
        assert ELSEWHERE.findall((tmp_path / "site" / page / "index.html").read_text(encoding="utf-8")) == []
    api = (tmp_path / "site" / "api" / "index.html").read_text(encoding="utf-8")
    assert [name for name in pen.__all__ if not re.search(rf'id="penstock\.[a-z_.]*{name}"', api)] == []
