"""Carry the books of the shards out with the results, and fold them into a report."""

import json
import warnings
from dataclasses import fields
from functools import reduce
from typing import Any

from penstock.core.step import REASONS
from penstock.errors import InputError, LatencyWarning
from penstock.operator.settings import SIDES
from penstock.quality.books import Guess, Report, Sides, recall_of
from penstock.quality.flows import Flows, Order

OBSERVED = "penstock"  # how the names of a join's observed metrics begin
BETWEEN = ","  # the books of shards in one string
PER_SIDE = ("arrivals", "live", "expired", "unprobed", *(f"shed_{reason}" for reason in REASONS))
LONGEST = ("slowest", "possible_latency")
WHOLE = ("pairs", "memory_rows", "memory_bytes", "comparisons")


def books_of(report: Report | Flows) -> str:
    """Return the books of one shard as JSON."""
    if isinstance(report, Flows):
        return json.dumps({**report.to_dict(), "guesses": report.guesses})
    values: dict[str, Any] = {name: getattr(report, name) for name in (*WHOLE, "importance", "guesses", *LONGEST)}
    for at, side in enumerate(SIDES):
        for name in ("arrivals", "live", "expired", "unprobed"):
            values[f"{name}_{side}"] = getattr(report, name)[at]
        for reason in REASONS:
            values[f"shed_{reason}_{side}"] = report.shed[reason][at]
    return json.dumps(values)


def report_of(query: Any) -> Any:
    """Return the report of the one join in a streaming query, as of its last micro-batch with rows.

    Warns if a latency cannot be kept.

    Raises:
        InputError: if there is none yet, or more than one join, or this is no query.
    """
    if not hasattr(query, "recentProgress"):
        want = "give the query that .start() returned; of batch DataFrames pen.run gives the report with the rows"
        raise InputError("query", type(query).__name__, want)
    for progress in reversed(query.recentProgress):
        known = reports_in(progress)
        if len(known) > 1:
            raise InputError("query", f"{len(known)} joins in one query", "report on queries with one join each")
        if known:
            possible = getattr(known[0], "possible_latency", None)
            if possible is not None:
                got = "the latency cannot be kept: micro-batches take longer though nothing is compared"
                warnings.warn(LatencyWarning(f"{got}; {possible:.3g} seconds can, or fewer rows"), stacklevel=3)
            return known[0]
    raise InputError("query", "no micro-batch of a join that has ended", "wait for the first one")


def reports_in(progress: Any) -> list[Any]:
    """Return the reports of the joins that a micro-batch's progress tells of."""
    observed = [_observed(row) for name, row in progress.observedMetrics.items() if name.startswith(OBSERVED)]
    return [folded(found, json.loads(f"[{found['books']}]")) for found in observed if found.get("books")]


def folded(words: dict[str, Any], books: list[dict[str, Any]]) -> Any:
    """Return one report from the books of all shards, and what is said of the join in words."""
    return _flows(books) if "orders" in books[0] else _folded(words, books)


def _observed(row: Any) -> dict[str, Any]:
    """Return observed metrics by name; Spark Connect may give them as values and a schema, or without nulls."""
    found: dict[str, Any] = row.asDict()
    if set(found) != {"values", "schema"}:
        return found
    return dict(zip((field["name"] for field in found["schema"]["fields"]), found["values"], strict=True))


def _folded(found: dict[str, Any], books: list[dict[str, Any]]) -> Report:
    """Return the books of all shards, summed, as a report."""
    first = books[0]
    totals = {name: sum(book[name] for book in books) for name in first if isinstance(first[name], int | float)}
    both = {name: Sides(*(totals[f"{name}_{side}"] for side in SIDES)) for name in PER_SIDE}
    pairs, importance = totals["pairs"], totals.get("importance")
    guesses = tuple(_merged([book["guesses"][at] for book in books]) for at in range(2))
    exact, important = (
        guess and guess.interval(least or 0.0) for guess, least in zip(guesses, (pairs, importance), strict=True)
    )
    return Report(
        policy=found["policy"],
        arrivals=both["arrivals"],
        live=both["live"],
        expired=both["expired"],
        shed={reason: both[f"shed_{reason}"] for reason in REASONS},
        pairs=pairs,
        importance=importance,
        exact_estimate=exact,
        recall=exact and recall_of(pairs, exact),
        memory_rows=totals["memory_rows"],
        memory_bytes=totals["memory_bytes"],
        comparisons=totals["comparisons"],
        unprobed=both["unprobed"],
        importance_estimate=important,
        **{name: max((book[name] for book in books if book[name] is not None), default=None) for name in LONGEST},
        division=found.get("division") or "",
        mode=found["mode"],
        guesses=(guesses[0], guesses[1]),
    )


def _flows(books: list[dict[str, Any]]) -> Flows:
    """Return the books of all shards of a join of several streams, summed, with the orders of each."""
    orders = sorted((Order(**order) for book in books for order in book["orders"]), key=lambda order: order.since)
    results, importance = (_merged([book["guesses"][at] for book in books]) for at in range(2))
    assert results is not None
    summed = [field.name for field in fields(Flows) if field.name not in {"orders", "guesses"}]
    known = {name: _sum([book[name] for book in books]) for name in summed}
    return Flows(**known, orders=orders, guesses=(results, importance))


def _sum(values: list[Any]) -> Any:
    """Add up numbers, entry by entry in mappings; words are alike, and so is nothing."""
    if isinstance(values[0], dict):
        return {name: _sum([value[name] for value in values]) for name in values[0]}
    return values[0] if values[0] is None or isinstance(values[0], str) else sum(values)


def _merged(guesses: list[list[float] | None]) -> Guess | None:
    """Return the estimate of all shards together; None if one of them has none."""
    known = [Guess(*guess) for guess in guesses if guess is not None]
    return reduce(Guess.merged, known) if known and len(known) == len(guesses) else None
