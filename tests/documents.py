"""Read the documents of the project: their code blocks, by language, and their examples."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)")


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
