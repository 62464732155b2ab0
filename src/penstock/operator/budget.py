"""Check what is said about the memory of a join of several streams."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from penstock.core.worth import OLDEST, PROB, RAND, Budget
from penstock.errors import PolicyError
from penstock.operator.settings import amount
from penstock.policies.registry import Policy, resolve
from penstock.policies.statistics import HALF_LIVES
from penstock.streams.times import Clock, Rows

POLICIES = {"prob": PROB, "oldest": OLDEST, "rand": RAND}
SOURCES = ("decayed", "history")


class Asked(Protocol):
    """What was asked for."""

    @property
    def memory(self) -> object:
        """Rows or bytes over all windows; None: all that are alive."""

    @property
    def policy(self) -> object:
        """A name or a policy object."""

    @property
    def seed(self) -> int:
        """For lots."""


def budget_of(
    asked: Asked, span: Sequence[int], by_rows: Sequence[bool], clock: Clock, *, common: bool
) -> Budget | None:
    """Return how much all windows may hold together and who leaves; None: there is no limit.

    Parameters:
        span, by_rows: of each window.
        clock: of the streams.
        common: whether one key is common to all streams.
    """
    chosen = policy_of(asked.policy)
    _, limit = amount(asked.memory)
    if asked.memory is None:
        return None
    kind = POLICIES[chosen.name]
    if kind == PROB and not common:
        want = "worth by keys needs a key common to all streams: along a join graph give 'oldest' or 'rand'"
        raise PolicyError("policy", repr(chosen.name), want)
    if kind != PROB and chosen.options:
        raise PolicyError("policy", str(chosen), f"for several streams {chosen.name!r} has no options")
    return Budget(kind, limit, half_life(chosen, span, by_rows, clock), scale(span, by_rows), asked.seed)


def policy_of(given: object) -> Policy:
    """Return who leaves when several streams share a budget; "auto", which learns from two, means "prob"."""
    chosen = resolve(given)
    if chosen.name == "auto":
        return Policy("prob")
    if chosen.name not in POLICIES:
        raise PolicyError("policy", repr(chosen.name), f"for several streams there are {', '.join(POLICIES)}")
    return chosen


def half_life(chosen: Policy, span: Sequence[int], by_rows: Sequence[bool], clock: Clock) -> int:
    """Return after what time an arrival weighs half, or how many rows of all streams if all windows are in rows."""
    source, life = chosen.options.get("statistics", "decayed"), chosen.options.get("half_life")
    if source not in SOURCES:
        raise PolicyError("statistics", str(source), f"for several streams there are {', '.join(SOURCES)}")
    if source == "history":
        if life is not None:
            raise PolicyError("half_life", repr(life), 'only statistics="decayed" has one')
        return 0
    if life is None:
        spans = [ticks for ticks, rows in zip(span, by_rows, strict=True) if not rows]
        return HALF_LIVES * (max(spans) if spans else sum(span))
    count = life.count if isinstance(life, Rows) else clock.ticks("half_life", life)
    if count < 1 or isinstance(life, Rows) != all(by_rows):
        raise PolicyError(
            "half_life", str(life), "give at least one tick, or pen.rows(...) if all windows are in rows"
        )
    return count


def scale(span: Sequence[int], by_rows: Sequence[bool]) -> tuple[float, ...]:
    """Return what makes products of rates comparable between streams: results per tick of a row at rates of 1.

    That is the sum, over the stream of the last row, of the product of the windows of the others. Windows in rows are
    no spans of time: where there are some, all count alike.
    """
    streams = range(len(span))
    if any(by_rows):
        return (1.0,) * len(span)
    length = [ticks / max(span) for ticks in span]
    return tuple(
        sum(
            float(np.prod([length[other] for other in streams if other not in {mine, last}]))
            for last in streams
            if last != mine
        )
        for mine in streams
    )
