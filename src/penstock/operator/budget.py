"""Check what is said about the memory of a join of several streams."""

from collections.abc import Sequence
from math import prod
from typing import Protocol

from penstock.core.chain import EQUAL, Edge
from penstock.core.rng import GOLDEN
from penstock.core.worth import EACH, LEAST, MOST, OLDEST, PROB, PRODUCT, RAND, SUM, Budget, Tie
from penstock.errors import PolicyError
from penstock.operator.settings import amount
from penstock.policies.registry import Policy, resolve
from penstock.policies.statistics import HALF_LIVES
from penstock.streams.times import Clock, Rows

POLICIES = {"prob": PROB, "oldest": OLDEST, "rand": RAND}
SOURCES = ("decayed", "history")
COMBINED = {"min": LEAST, "sum": SUM, "mean": SUM, "product": PRODUCT, "max": MOST}  # a mean is a share of the sum


class Asked(Protocol):
    """What was asked for."""

    @property
    def memory(self) -> object:
        """Rows or bytes over all windows; None: all that are alive."""

    @property
    def policy(self) -> object:
        """A name or a policy object."""

    @property
    def importance(self) -> object:
        """Columns that say how important rows are; None: all are alike."""

    @property
    def combine(self) -> str:
        """How importances become one."""

    @property
    def seed(self) -> int:
        """For lots."""


def budget_of(
    asked: Asked, span: Sequence[int], by_rows: Sequence[bool], clock: Clock, edges: Sequence[Edge], *, common: bool
) -> Budget | None:
    """Return how much all windows may hold together and who leaves; None: there is no limit.

    Parameters:
        span, by_rows: of each window.
        clock: of the streams.
        edges: of the join graph.
        common: whether one key is common to all streams.
    """
    chosen = policy_of(asked.policy)
    _, limit = amount(asked.memory)
    if asked.memory is None:
        return None
    kind = POLICIES[chosen.name]
    if kind != PROB and chosen.options:
        raise PolicyError("policy", str(chosen), f"for several streams {chosen.name!r} has no options")
    if kind == PROB and not (common and asked.importance is None):
        kind = EACH
    ties, scales = key_ties(len(span)), (1.0,) * len(span)
    if not common:
        ties = graph_ties(len(span), edges)
        scales = missed(ties)
    return Budget(
        kind,
        limit,
        half_life(chosen, span, by_rows, clock),
        scales,
        asked.seed,
        ties,
        common,
        -1 if asked.importance is None else COMBINED[asked.combine],
    )


def key_ties(streams: int) -> tuple[tuple[Tie, ...], ...]:
    """Return the ties of streams with one key: each to all others."""
    ones = (1,) * streams
    return tuple(
        tuple(Tie(mine, other, 0, ones) for other in range(streams) if other != mine) for mine in range(streams)
    )


def graph_ties(streams: int, edges: Sequence[Edge]) -> tuple[tuple[Tie, ...], ...]:
    """Return the ties of a join graph: the edges of a tree that spans it, those for equality first.

    Along an edge that is not for equality, and between parts that hang apart, all rows are taken to meet.
    """
    apart = [Edge(0, -1, other, -1) for other in range(1, streams)]
    tree: list[Edge] = []
    part = list(range(streams))
    for edge in (*sorted(edges, key=lambda edge: edge.how != EQUAL), *apart):
        one, other = part[edge.one], part[edge.other]
        if one != other:
            tree.append(edge)
            part = [one if each == other else each for each in part]
    found: list[list[Tie]] = [[] for _ in range(streams)]
    for number, edge in enumerate(tree):
        degree = degrees(streams, tree, edge)
        salt = _signed(number * int(GOLDEN))
        for mine, column, other in (
            (edge.one, edge.one_column, edge.other),
            (edge.other, edge.other_column, edge.one),
        ):
            found[mine].append(Tie(column if edge.how == EQUAL else -1, other, salt, degree))
    return tuple(map(tuple, found))


def degrees(streams: int, tree: Sequence[Edge], cut: Edge) -> tuple[int, ...]:
    """Return for each stream how many there are on its side of a tree if one edge is cut."""
    part = list(range(streams))
    for edge in tree:
        if edge is not cut:
            part = [part[edge.one] if each == part[edge.other] else each for each in part]
    return tuple(part.count(each) for each in part)


def missed(ties: Sequence[Sequence[Tie]]) -> tuple[float, ...]:
    """Return by what to multiply the worth of each stream for partners that came after those they meet.

    A row is counted with the partners that it could expect when it came, so of all orders in which the rows of a
    partial result can come only those are counted in which each comes before the one that it was reached from. From
    the root of a tree that is one in the product, over its streams, of how many hang together from there on.
    """
    found = []
    for root in range(len(ties)):
        sizes, open_ends = [], [(root, tie) for tie in ties[root]]
        while open_ends:
            mine, tie = open_ends.pop()
            sizes.append(tie.degree[tie.other])
            open_ends += [(tie.other, further) for further in ties[tie.other] if further.other != mine]
        found.append(float(prod(sizes)))
    return tuple(found)


def _signed(word: int) -> int:
    """Return 64 bits as a number that may be negative."""
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word


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
