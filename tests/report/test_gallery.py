"""All figures are on one page, each with the claims it decides, and the page needs nothing from elsewhere."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.figures import kept

from penstock.errors import InputError, OutputError
from penstock.report import gallery
from penstock.report.figures import Figure, save
from penstock.report.gallery import claims_by_figure, gather, written
from penstock.report.papers.registry import PAPERS, names


def test_figures_are_measured_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path / "none"))
    told: list[tuple[int, int | None]] = []
    wanted = ["golab2003/2", "das2003/7", "das2003/9"]
    made = gather(tmp_path / "out", lambda done, total: told.append((done, total)), quick=True, only=wanted)
    assert list(made.figures) == ["golab2003/2", "das2003/9"]
    assert list(made.missing) == ["das2003/7"]
    assert told == [(1, 3), (2, 3), (3, 3)]
    page = made.page.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 2
    assert made.missing["das2003/7"].replace("'", "&#x27;") in page
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("das2003-9.json", "das2003-9.png", "golab2003-2.json", "golab2003-2.png", "index.html")
    }
    numbers = json.loads((tmp_path / "out" / "das2003-9.json").read_text(encoding="utf-8"))
    assert Figure(**numbers) == made.figures["das2003/9"]


def test_figures_by_the_clock_are_measured_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After all others, one at a time."""
    pools: list[tuple[list[str], int]] = []

    def pooled(names: list[str], workers: int, *_: object) -> Iterator[tuple[str, InputError]]:
        pools.append((names, workers))
        return ((name, InputError("figure", "none", "not measured here")) for name in names)

    monkeypatch.setattr(gallery, "_pooled", pooled)
    gather(tmp_path, lambda _done, _total: None, quick=True)
    (beside, many), (alone, one) = pools
    assert (many, one) == (os.cpu_count(), 1)
    assert sorted([*beside, *alone]) == sorted(names())
    units = ("CPU seconds", "tuples per second")
    assert set(alone) == {name for name, one in kept().items() if one.y_label in units or "seconds" in one.settings}


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file", encoding="utf-8")
    with pytest.raises(OutputError, match="out"):
        gather(tmp_path / "out", lambda _done, _total: None, quick=True, only=["golab2003/2"])


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_stands_beside_the_figures_that_decide_it(paper: str) -> None:
    figures = {name.partition("/")[2]: figure for name, figure in kept().items() if name.startswith(f"{paper}/")}
    beside = claims_by_figure(paper, figures)
    assert {claim for claims in beside.values() for claim in claims} == set(PAPERS[paper].claims(figures))
    if paper == "das2003":
        assert all("9 to 11" in claim.where for claim in beside["10"])
        assert beside["10"]


def test_nothing_on_the_page_is_taken_for_its_own_words(tmp_path: Path) -> None:
    figure = Figure("das2003/9", "<script>alert(1)</script>", "<b>", 'y"', [1.0], {"<i>": [2.0]}, {"k": "</style>"})
    save(figure, tmp_path)
    page = written({figure.name: figure}, {"das2003/7": "<img src=x>"}, tmp_path)
    assert not re.search(r"<script|<b>|<i>|<img src=x|https?:", page)
    assert page.count("</style>") == 1
