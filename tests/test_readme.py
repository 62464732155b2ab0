"""Run the examples in README.md and docs/, and follow their links."""

import doctest
import re
from pathlib import Path

import pytest

from documents import ROOT, blocks, examples

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
ELSEWHERE = {"add_a_policy.md"}  # its examples need the plug-in that test_add_a_policy.py installs
RUN = {  # pages whose blocks of Python are run, and where
    "README.md": "spark/test_documents.py",
    "docs/add_a_policy.md": "test_add_a_policy.py",
    "docs/cpu.md": "spark/test_documents.py",
    "docs/jobs.md": "spark/test_documents.py",
    "docs/refine.md": "spark/test_spark_refine.py",
    "docs/spark.md": "spark/test_documents.py",
    "docs/tutorial.md": "walking.py",
}
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path.name not in ELSEWHERE], ids=name)
def test_examples_print_what_they_say(path: Path) -> None:
    parsed = doctest.DocTestParser().get_doctest(examples(path), {}, name(path), str(path), 0)
    runner = doctest.DocTestRunner(verbose=False, optionflags=doctest.ELLIPSIS)
    told: list[str] = []
    failed = runner.run(parsed, out=told.append).failed
    assert failed == 0, "".join(told)


def test_the_readme_has_examples() -> None:
    assert ">>> " in examples(ROOT / "README.md")


def test_every_block_of_python_is_run_by_a_test() -> None:
    assert set(RUN) == {name(path) for path in DOCUMENTS if blocks(path, "python")}
    for page, test in RUN.items():
        assert Path(page).name in (ROOT / "tests" / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = [target for target in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_every_page_is_on_the_site() -> None:
    listed = re.findall(r"(\w+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(["index.md", *(path.name for path in ROOT.glob("docs/*.md"))])
