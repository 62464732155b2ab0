"""Run the notebooks in examples/, cell by cell, as a new kernel would."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

from documents import ROOT

NOTEBOOKS = sorted(ROOT.glob("examples/*.ipynb"))


def cells(path: Path) -> list[str]:
    """Return the code of a notebook."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mpl.use("Agg")
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells(path)):
        exec(compile(cell, f"{path.name}, cell {number}", "exec"), names)  # noqa: S102 - our own
    [axes] = plt.figure(plt.get_fignums()[-1]).axes
    drawn: dict[str, Any] = {str(line.get_label()): line.get_ydata() for line in axes.get_lines()}
    plt.close("all")
    assert set(names["policies"]) == drawn.keys()
    for policy in ("prob", "rand", "oldest"):
        assert all(found <= most + 1e-9 for found, most in zip(drawn[policy], drawn["bound"], strict=True))
        assert drawn[policy][-1] == 1.0
    assert "prob" in capsys.readouterr().out


def test_notebooks_are_kept_without_results() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        assert all(not cell.get("outputs") for cell in json.loads(path.read_text(encoding="utf-8"))["cells"])
