"""Read the documents of the project: their code blocks, by language, and their examples."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)")
COMMENT = re.compile(r"\s+#\s.*")
UNRUN = {  # what no test runs as it is printed, by how it begins, and why
    "python3 -m venv": "makes an environment: make test-wheel has its own",
    "pip install": "installs: make test-wheel does it with a wheel",
    "pip wheel": "builds the package: make test-wheel does",
    "python -m venv": "installs, and packs what YARN unpacks",
    "FROM apache/spark": "builds an image",
    "cp penstock-0.1.0": "needs the wheel: make test-wheel has one",
    "spark-submit --master yarn": "needs YARN",
    "spark-submit --master k8s": "needs Kubernetes",
    "scrape_configs": "needs a Prometheus; test_dashboard.py reads what it would",
    "git clone": "gets the sources that are here",
    ". .venv/bin/activate": "the tests have an environment",
    "python -m pytest tests/policies -k prob": "tests that run beside this one",
    "ruff format": "make test does it before the tests",
    "penstock figure --all": "takes minutes: test_figures.py has figures of each paper",
}


def blocks(path: Path, language: str) -> list[str]:
    """Return the code blocks of a document that are in a language."""
    return blocks_of(path.read_text(encoding="utf-8"), language)


def blocks_of(text: str, language: str) -> list[str]:
    """Return the code blocks of a text that are in a language."""
    found: list[list[str]] = []
    inside: str | None = None
    for line in text.splitlines():
        fence = FENCE.match(line)
        if fence:
            inside = fence[1] if inside is None else None
            if inside == language:
                found.append([])
        elif inside == language:
            found[-1].append(line)
    return ["\n".join(lines) + "\n" for lines in found]


def commands(path: Path) -> list[str]:
    """Return the lines of a document's blocks that call `penstock`."""
    return [line for block in blocks(path, "") for line in commands_of(block)]


def commands_of(block: str) -> list[str]:
    """Return the lines of a block that call `penstock`, whole and without what is said about them."""
    lines = [line for line in block.replace("\\\n", " ").splitlines() if line.startswith("penstock ")]
    return [shlex.join(shlex.split(line, comments=True)) for line in lines]


def steps(path: Path) -> list[list[str]]:
    """Return the lines of a document's shell blocks, block by block, but for those that no test runs."""
    return [[line for line in lines_of(block) if not unrun(line)] for block in blocks(path, "")]


def lines_of(block: str) -> list[str]:
    """Return the commands of a block, whole and without what is said about them."""
    lines = [COMMENT.sub("", line) for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    return [line.rstrip() for line in lines if line]


def unrun(words: str) -> bool:
    """Say whether a command or a file is one that no test runs."""
    return words.startswith(tuple(UNRUN))


def examples(path: Path) -> str:
    """Return a document with every line blank that is not in a `pycon` block, so that line numbers stay."""
    kept = []
    inside: str | None = None
    for line in path.read_text(encoding="utf-8").splitlines():
        fence = FENCE.match(line)
        if fence:
            inside = fence[1] if inside is None else None
        kept.append(line if inside == "pycon" and not fence else "")
    return "\n".join(kept) + "\n"
