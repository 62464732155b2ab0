"""Check the values that only joins of several streams have: by source, as a graph, as intervals and orders."""

from typing import Any

from penstock.errors import InputError
from penstock.jobs.keys import Check, check, count, name, one_of, several, span, table, text, within, wrong
from penstock.planner.statistics import COMPARED
from penstock.streams.times import Every

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!="}
HOW = "how"


def by_source(each: Check) -> Check:
    """Return the check for a value for all sources, or a table with one for each."""

    @check(f"{each.want}, or {{calls = ..., trades = ...}} with one for each source")
    def checked(value: Any) -> Any:
        if not isinstance(value, dict):
            return each(value)
        found = {}
        for source, one in value.items():
            with within(source):
                found[source] = each(one)
        return found

    return checked


@check('columns common to all sources, or edges such as {calls = "id", trades = "call"}, also with how = "<="')
def graph_of(value: Any) -> Any:
    """Return what `on=` takes for several streams: a column, a list of columns, or the edges of a join graph."""
    edges = [value] if isinstance(value, dict) else value
    if not isinstance(edges, list):
        return text(value)
    if not any(isinstance(each, dict) for each in edges) and edges:
        return [text(each) for each in edges]
    graph: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for at, edge in enumerate(edges, start=1):
        with within(f"edge {at}"):
            pair, part = _edge(edge)
            if pair[::-1] in graph:
                pair, part = pair[::-1], (part[2], MIRRORED[part[1]], part[0])
            graph.setdefault(pair, []).append(part)
    return graph


def _edge(value: Any) -> tuple[tuple[str, str], tuple[str, str, str]]:
    """Return which two sources an edge joins, and what it compares of them."""
    given = dict(table(value))
    with within(HOW):
        how = one_of(*COMPARED)(given.pop(HOW, "="))
    if len(given) != 2:
        raise wrong(value, 'an edge names two sources and a column of each: {calls = "id", trades = "call"}')
    one, other = given
    columns = []
    for source in (one, other):
        with within(source):
            columns.append(text(given[source]))
    return (one, other), (columns[0], how, columns[1])


def interval_of(*words: str) -> Check:
    """Return the check for one of some words, or a span of time that becomes ``pen.every(...)``."""

    @check(f'{", ".join(words)}, or an interval such as "5 seconds"')
    def checked(value: Any) -> Any:
        return value if isinstance(value, str) and value in words else Every(span(value))

    return checked


@check("auto, hash, none, or a number of buckets")
def index_of(value: Any) -> Any:
    """Return which index a window has."""
    return count(value) if isinstance(value, int) else one_of("auto", "hash", "none")(value)


@check("auto, heuristic, or the sources in their order")
def order_of(value: Any) -> Any:
    """Return in which order streams are joined."""
    return list(several(name)(value)) if isinstance(value, list) else one_of("auto", "heuristic")(value)


def known_only(given: Any, names: list[str], argument: str) -> None:
    """Raise if a table by source does not name all sources, each once."""
    if isinstance(given, dict) and set(given) != set(names):
        got = f"entries for {', '.join(map(str, given)) or 'nobody'}"
        raise InputError(argument, got, f"name each source once: {', '.join(names)}")
