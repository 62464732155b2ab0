"""A paper's claim beside what was measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.report.figures import Figure

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"


class Claim(NamedTuple):
    """What a paper says, where, what was measured, and the verdict."""

    where: str
    says: str
    measured: str
    verdict: str


Judges = Mapping[Any, Callable[..., list[Claim]]]  # by the name of a figure, or the names of all they look at


def judged(*, holds: bool, partly: bool = False) -> str:
    """Return the verdict in words."""
    return HOLDS if holds else IN_PART if partly else FAILS


def between(values: Sequence[float]) -> str:
    """Return the least and the most of some numbers in words."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def told(judges: Judges, figures: Mapping[str, Figure]) -> list[Claim]:
    """Return what judges say, in their order; those whose figures are not all there say nothing."""
    found: list[Claim] = []
    for names, judge in judges.items():
        needed = (names,) if isinstance(names, str) else names
        if all(name in figures for name in needed):
            found += judge(*(figures[name] for name in needed))
    return found


def quotients(figure: Figure, of: str, to: str) -> list[float]:
    """Return one curve over another."""
    return [mine / max(theirs, 1e-9) for mine, theirs in zip(figure.curves[of], figure.curves[to], strict=True)]
