"""A paper's claim beside what was measured."""

from collections.abc import Sequence
from typing import NamedTuple

HOLDS, IN_PART, FAILS = "holds", "holds in part", "does not hold"


class Claim(NamedTuple):
    """What a paper says, where, what was measured, and the verdict."""

    where: str
    says: str
    measured: str
    verdict: str


def judged(*, holds: bool, partly: bool = False) -> str:
    """Return the verdict in words."""
    return HOLDS if holds else IN_PART if partly else FAILS


def between(values: Sequence[float]) -> str:
    """Return the least and the most of some numbers in words."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"
