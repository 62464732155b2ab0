"""Find a paper's figures and claims by name."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.engine.pump import Progress
from penstock.errors import InputError
from penstock.report.figures import Figure
from penstock.report.papers import das2003, dual2006, gedik2007, golab2003, importance2006
from penstock.report.papers.claims import Claim

Maker = Callable[[bool, Progress], Figure]


class Paper(NamedTuple):
    """What a paper shows: figures by number, what it says of them, and which are measured by the clock."""

    figures: Mapping[str, Maker]
    claims: Callable[[Mapping[str, Figure]], list[Claim]]
    timed: frozenset[str] = frozenset()


PAPERS = {
    "das2003": Paper(das2003.FIGURES, das2003.claims),
    "dual2006": Paper(dual2006.FIGURES, dual2006.claims),
    "gedik2007": Paper(gedik2007.FIGURES, gedik2007.claims),
    "golab2003": Paper(golab2003.FIGURES, golab2003.claims, golab2003.TIMED),
    "importance2006": Paper(importance2006.FIGURES, importance2006.claims, importance2006.TIMED),
}


def names() -> list[str]:
    """Return the names of all figures."""
    return [f"{paper}/{number}" for paper, shown in PAPERS.items() for number in shown.figures]


def is_timed(name: str) -> bool:
    """Return whether a figure is measured by the clock, so that nothing else may run beside it."""
    paper, _, number = name.partition("/")
    return paper in PAPERS and number in PAPERS[paper].timed


def figure(name: str, *, quick: bool, progress: Progress) -> Figure:
    """Measure a figure.

    Parameters:
        name: paper/number, one of ``names()``.
        quick: measure on streams and windows a quarter as long, to see the shape.
        progress: told how many of how many measurements are done.
    """
    paper, _, number = name.partition("/")
    if paper not in PAPERS or number not in PAPERS[paper].figures:
        raise InputError("figure", repr(name), f"there are {', '.join(names())}")
    return PAPERS[paper].figures[number](quick, progress)
