"""Carry the books of the shards out with the results, and fold them into a report."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.core.step import REASONS
from penstock.errors import InputError
from penstock.operator.settings import SIDES
from penstock.quality.books import Guess, Report, Sides, recall_of

OBSERVED = "penstock"  # how the names of a join's observed metrics begin
PER_SIDE = ("arrivals", "live", "expired", *(f"shed_{reason}" for reason in REASONS))
WHOLE = ("pairs", "memory_rows", "memory_bytes", "comparisons")
NAMES = (*(f"{name}_{side}" for name in PER_SIDE for side in SIDES), *WHOLE)
GUESSED = tuple(f"{what}_{part}" for what in ("exact", "exact_importance") for part in Guess._fields)
NUMBERS = ("importance", *GUESSED)
BOOKS_DDL = ", ".join([*(f"{name} long" for name in NAMES), *(f"{name} double" for name in NUMBERS)])  # of the JSON


def books_of(report: Report) -> str:
    """Return the books of one shard as JSON."""
    values: dict[str, int | float | None] = {name: getattr(report, name) for name in WHOLE}
    for at, side in enumerate(SIDES):
        for name in ("arrivals", "live", "expired"):
            values[f"{name}_{side}"] = getattr(report, name)[at]
        for reason in REASONS:
            values[f"shed_{reason}_{side}"] = report.shed[reason][at]
    values["importance"] = report.importance
    guesses = [part for guess in report.guesses for part in (guess or (None, None, None))]
    values |= dict(zip(GUESSED, guesses, strict=True))
    return json.dumps(values)


def report_of(query: Any) -> Report:
    """Return the report of the one join in a streaming query, as of its last micro-batch with rows.

    Raises:
        InputError: if there is none yet, or more than one join.
    """
    for progress in reversed(query.recentProgress):
        known = reports_in(progress)
        if len(known) > 1:
            raise InputError("query", f"{len(known)} joins in one query", "report on queries with one join each")
        if known:
            return known[0]
    raise InputError("query", "no micro-batch of a join that has ended", "wait for the first one")


def reports_in(progress: Any) -> list[Report]:
    """Return the reports of the joins that a micro-batch's progress tells of."""
    observed = [_observed(row) for name, row in progress.observedMetrics.items() if name.startswith(OBSERVED)]
    return [_folded(totals) for totals in observed if totals.get("pairs") is not None]


def _observed(row: Any) -> dict[str, Any]:
    """Return observed metrics by name; Spark Connect may give them as values and a schema, or without nulls."""
    found: dict[str, Any] = row.asDict()
    if set(found) != {"values", "schema"}:
        return found
    return dict(zip((field["name"] for field in found["schema"]["fields"]), found["values"], strict=True))


def _folded(totals: Mapping[str, Any]) -> Report:
    """Return the books of all shards, summed, as a report."""
    policy = totals["policy"]
    both = {name: Sides(*(int(totals.get(f"{name}_{side}") or 0) for side in SIDES)) for name in PER_SIDE}
    pairs = int(totals.get("pairs") or 0)
    pairs_guess, importance_guess = (
        None if parts[0] is None else Guess(*(float(part or 0.0) for part in parts))
        for parts in ([totals.get(name) for name in GUESSED[at : at + 3]] for at in (0, 3))
    )
    exact = None if pairs_guess is None else pairs_guess.interval(pairs)
    importance = totals.get("importance")
    return Report(
        policy=policy,
        arrivals=both["arrivals"],
        live=both["live"],
        expired=both["expired"],
        shed={reason: both[f"shed_{reason}"] for reason in REASONS},
        pairs=pairs,
        importance=importance,
        exact_estimate=exact,
        recall=None if exact is None else recall_of(pairs, exact),
        memory_rows=int(totals.get("memory_rows") or 0),
        memory_bytes=int(totals.get("memory_bytes") or 0),
        comparisons=int(totals.get("comparisons") or 0),
        importance_estimate=None if importance_guess is None else importance_guess.interval(importance or 0.0),
        mode=totals.get("mode") or "shed",
        guesses=(pairs_guess, importance_guess),
    )
