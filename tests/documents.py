"""Read the documents of the project: their code blocks, by language, and their examples."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w*)")


def blocks(path: Path, language: str) -> list[str]:
    """Return the code blocks of a document that are in a language."""
    found: list[list[str]] = []
    inside: str | None = None
    for line in path.read_text(encoding="utf-8").splitlines():
        fence = FENCE.match(line)
        if fence:
            inside = fence[1] if inside is None else None
            if inside == language:
                found.append([])
        elif inside == language:
            found[-1].append(line)
    return ["\n".join(lines) + "\n" for lines in found]


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
