"""Run the examples in README.md and docs/, and follow their links."""

import doctest
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from documents import FENCE, ROOT, UNRUN, blocks, blocks_of, commands, examples, lines_of, steps, unrun
from penstock import cli
from penstock.policies.registry import Entry, entries

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
TYPED = {  # pages with commands that are run, and where
    "CONTRIBUTING.md": "spark/test_shell_blocks.py",
    "README.md": "spark/test_shell_blocks.py",  # its first two blocks: walking.py
    "docs/add_a_policy.md": "test_add_a_policy.py",
    "docs/dashboard.md": "spark/test_shell_blocks.py",
    "docs/jobs.md": "spark/test_shell_blocks.py",
    "docs/operations.md": "spark/test_shell_blocks.py",
    "docs/refine.md": "spark/test_spark_refine.py",
    "docs/spark.md": "wheel/test_wheel.py",
    "docs/tutorial.md": "walking.py",
}
TOML = {  # pages with files of TOML that are used, and where
    "README.md": "walking.py",
    "docs/add_a_policy.md": "test_add_a_policy.py",
    "docs/jobs.md": "spark/test_jobs.py",
    "docs/tutorial.md": "walking.py",
}
KNOWN = {"", "python", "pycon", "toml", "text"}  # without a name: commands; a text is no code, but drawn or said
COMMAND = re.compile(r"`(penstock [a-z]+[^`]*)`")
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


@pytest.mark.parametrize(
    ("found", "run"),
    [
        ({name(path) for path in DOCUMENTS if blocks(path, "python")}, RUN),
        ({name(path) for path in DOCUMENTS if blocks(path, "toml")}, TOML),
        ({name(path) for path in DOCUMENTS if any(steps(path))}, TYPED),
    ],
    ids=["python", "toml", "shell"],
)
def test_every_block_is_run_by_a_test(found: set[str], run: dict[str, str]) -> None:
    assert set(run) == found
    for page, test in run.items():
        assert Path(page).name in (ROOT / "tests" / test).read_text(encoding="utf-8")


def test_there_are_no_other_blocks() -> None:
    """A block that is in no language of these, or that is not seen because it is indented, would not be run."""
    text = "".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
    languages = {fence[1] for line in text.splitlines() if (fence := FENCE.match(line))}
    others = [block for each in languages - KNOWN for block in blocks_of(text, each)]
    assert [block for block in others if not unrun(block)] == []
    assert re.findall(r"^(?:[ \t]+```|[ \t]*~~~).*", text, re.MULTILINE) == []
    printed = [*others, *(line for path in DOCUMENTS for block in blocks(path, "") for line in lines_of(block))]
    assert [start for start in UNRUN if not any(words.startswith(start) for words in printed)] == []


def hooks() -> Any:
    """Return the module that makes the site."""
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("entry", [each for each in entries() if each.own], ids=lambda entry: str(entry.name))
def test_the_page_of_a_policy_runs(entry: Entry) -> None:
    page = hooks().page_of(entry)
    [block] = blocks_of(page, "python")
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102 - the page's own words
    assert page.startswith(f"# {entry.name}\n")
    assert names["joined"].num_rows > 0


def parser(words: list[str]) -> Any:
    """Return what reads the arguments of a command of the command line."""
    root: Any = typer.main.get_command(cli.app)
    assert words[1] in root.commands, words
    return root.commands[words[1]]


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_commands_are_what_the_command_line_takes(path: Path) -> None:
    """Every argument and option is there; nothing is run."""
    for line in commands(path):
        words = shlex.split(line)
        parser(words).make_context(words[1], words[2:])
    for line in COMMAND.findall(path.read_text(encoding="utf-8")):  # in a sentence: perhaps in part
        words = line.split()
        known = {option for parameter in parser(words).params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known | {"--help"}, line


def test_there_are_commands_to_try() -> None:
    assert {"join", "run", "dashboard", "advise", "refine", "demo"} <= {
        line.split()[1] for line in commands(ROOT / "README.md")
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = [target for target in LINK.findall(path.read_text(encoding="utf-8")) if "://" not in target]
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_every_page_is_on_the_site() -> None:
    listed = re.findall(r"(\w+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(["index.md", *(path.name for path in ROOT.glob("docs/*.md"))])
