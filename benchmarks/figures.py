"""Measure the papers' figures, keep the numbers in benchmarks/figures.json, and write docs/claims.md from them."""

import json
import sys
from pathlib import Path

from benchmarks import registry_tables
from benchmarks.registry_tables import ROOT
from penstock.report.figures import Figure
from penstock.report.papers.registry import PAPERS, figure, names

KEPT = Path(__file__).with_name("figures.json")


def kept() -> dict[str, Figure]:
    """Return the figures measured last, by name."""
    if not KEPT.exists():
        return {}
    return {name: Figure(**document) for name, document in json.loads(KEPT.read_text(encoding="utf-8")).items()}


def keep(figures: dict[str, Figure]) -> None:
    """Write the figures down, in the papers' order."""
    documents = {each: figures[each].to_dict() for each in names() if each in figures}
    KEPT.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")


def claims_table(figures: dict[str, Figure]) -> str:
    """Return every claim beside what was measured, paper by paper, as Markdown."""
    parts = []
    for paper, shown in PAPERS.items():
        mine = {name.removeprefix(f"{paper}/"): one for name, one in figures.items() if name.startswith(f"{paper}/")}
        rows = [list(claim) for claim in shown.claims(mine)]
        head = ["where", "what the paper says", "what was measured", "verdict"]
        parts += [f"## {paper}", registry_tables.table(head, rows) if rows else "Not measured yet."]
    return "\n\n".join(parts)


def write_claims() -> None:
    """Rewrite the table of claims."""
    registry_tables.write(ROOT / "docs" / "claims.md", "claims", claims_table(kept()))


def main() -> None:
    """Measure the figures named on the command line, or all, and keep them."""
    found = kept()
    for name in sys.argv[1:] or names():
        print(name, flush=True)
        found[name] = figure(name, quick=False, progress=lambda _done, _total: None)
        keep(found)
    write_claims()


if __name__ == "__main__":
    main()
