"""Make a site of the documentation: the README is its first page, every policy has one, and links stay inside."""

import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.policies.registry import Entry, entries

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+([^)\s]+)\)")  # to files that are no pages
FROM_README = re.compile(r"\[(?:docs/)?([^\]]+?)(?:\.md)?\]\(docs/([^)\s]+)\)")
ELSEWHERE = re.compile(r"\[([^\]]+)\]\((?!https?:|#|docs/)([^)\s]+)\)")


STREAMS = """import penstock as pen
from penstock.streams.workloads import zipf

left, right, *_ = zipf(1_000, keys=50, seed=7)
"""
JOIN = """joined = pen.join(left, right, on="key", time="ts", window=400, memory=100, policy={policy})
"""
OPTIMUM = """best = pen.optimum(left, right, on="key", time="ts", window=400, memory=100)
policy = pen.policy("{name}", schedule=best.schedule.to_pydict())
"""


def on_config(config: Any) -> Any:
    """List the pages of policies."""
    config.nav.insert(-1, {"Policies": [f"policies/{entry.name}.md" for entry in entries() if entry.own]})
    return config


def on_files(files: "Files", config: Any) -> "Files":
    """Add the first page, and a page for each policy from its docstring."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only where a site is made

    readme = ELSEWHERE.sub(r"\1", (ROOT / "README.md").read_text(encoding="utf-8"))
    files.append(File.generated(config, "index.md", content=FROM_README.sub(r"[\1](\2)", readme)))
    for entry in entries():
        if entry.own:
            files.append(File.generated(config, f"policies/{entry.name}.md", content=page_of(entry)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Turn links to sources, which are not part of the site, into their names."""
    return OUTSIDE.sub(r"\1 (`\2`)", markdown)


def page_of(entry: Entry) -> str:
    """Return the page of a policy."""
    options = "\n".join(f"- `{name}={option.default!r}`: {option.meaning}." for name, option in entry.options.items())
    text = inspect.getdoc(entry.kind) or ""
    return f"# {entry.name}\n\n{text}\n\n## Options\n\n{options or 'None.'}\n\n```python\n{example_of(entry)}```\n"


def example_of(entry: Entry) -> str:
    """Return a join with a policy, ready to run; a policy that follows a schedule gets the best one."""
    if "schedule" in entry.options:
        return STREAMS + OPTIMUM.format(name=entry.name) + JOIN.format(policy="policy")
    return STREAMS + JOIN.format(policy=f'"{entry.name}"')
