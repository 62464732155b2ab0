"""Moments of queries as the dashboard keeps them, made up."""

from pathlib import Path
from typing import Any

from penstock.dashboard.history import History, point
from penstock.quality.books import Estimate, Report, Sides

HOSTILE = '<script>alert("x")</script>\\ \n{}'


def report(batch: int = 3, recall: Estimate | None = Estimate(0.7, 0.75, 0.8)) -> Report:  # noqa: B008
    left, right = 1000 * batch, 700 * batch
    return Report(
        policy="prob",
        arrivals=Sides(left, right),
        live=Sides(40, 60),
        expired=Sides(left - 45 - 2 * batch, right - 60 - batch),
        shed={"budget": Sides(2 * batch, batch), "per_key": Sides(0, 0), "late": Sides(5, 0)},
        pairs=123_456_789_012 * batch,
        importance=None,
        exact_estimate=None,
        recall=recall,
        memory_rows=101,
        memory_bytes=12_345,
        comparisons=99,
        unprobed=Sides(7, 8),
    )


def moment(batch: int, query: str = "calls") -> dict[str, Any]:
    about = {"batch": batch, "time": 1e9 + 10 * batch, "seconds": 0.5 + batch, "lag": 0.25, "budget": 100}
    return point(query, report(batch), **about, keys=[("<b>Ada</b>", 2), ("", 1)])  # type: ignore[arg-type]


def written(path: Path, batches: range, query: str = "calls") -> Path:
    history = History(path)
    for batch in batches:
        history.add(moment(batch, query))
    assert history.lost == 0
    return path
