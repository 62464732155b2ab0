"""Brute force for joins of several streams, in plain Python: the paper's recursive costs. Imports nothing of ours."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations
from typing import NamedTuple

Order = tuple[int, ...]


class Known(NamedTuple):
    """The parameters of one stream, as the paper's tables give them."""

    rate: int
    window: int
    distinct: int
    buckets: int = 1
    price: int = 1


def loop_cost(streams: Sequence[Known], nest: Order, source: int, every: int | None) -> Fraction:
    """Walk the loops for the new tuples of one stream, outermost first, as Appendix A derives the cost."""

    def size(place: int) -> Fraction:
        stream = streams[place]
        if place == source:
            return Fraction(1 if every is None else stream.rate * every)
        return Fraction(stream.rate * (stream.window + (every or 0)))

    def scan(place: int) -> Fraction:
        buckets = 1 if place == source and every is None else streams[place].buckets
        return size(place) * streams[place].price / buckets

    first, *inner = nest
    reaching, values, paid = size(first), streams[first].distinct, Fraction(0)
    for place in inner:
        paid += reaching * scan(place)
        reaching = reaching * size(place) / max(values, streams[place].distinct)
        values = min(values, streams[place].distinct)
    return paid * streams[source].rate if every is None else paid / every


def new_first(order: Order, source: int) -> Order:
    """Put the new tuples outermost."""
    return (source, *(place for place in order if place != source))


def total_cost(streams: Sequence[Known], order: Order, algorithm: str, every: int | None) -> Fraction:
    """Add up what the new tuples of all streams cost under one global order."""
    places = range(len(streams))
    nests = [order if algorithm == "naive" else new_first(order, source) for source in places]
    return sum((loop_cost(streams, nest, source, every) for source, nest in enumerate(nests)), start=Fraction(0))


def least_cost(streams: Sequence[Known], algorithm: str, every: int | None) -> Fraction:
    """Try every order; for GENERAL every order for the new tuples of each stream."""
    orders = list(permutations(range(len(streams))))
    if algorithm != "general":
        return min(total_cost(streams, order, algorithm, every) for order in orders)
    places = range(len(streams))
    return sum(
        (min(loop_cost(streams, order, source, every) for order in orders) for source in places), start=Fraction(0)
    )
