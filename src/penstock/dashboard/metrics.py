"""Say the last moment of every query in the words of Prometheus."""

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.dashboard.history import Point

KINDS = {
    "penstock_rows_total": ("counter", "Rows that came."),
    "penstock_pairs_total": ("counter", "Pairs found."),
    "penstock_recall": ("gauge", "Share of the exact join's pairs that was found."),
    "penstock_recall_low": ("gauge", "Recall, the lower end of its 95 % interval."),
    "penstock_recall_high": ("gauge", "Recall, the upper end of its 95 % interval."),
    "penstock_memory_rows": ("gauge", "Rows held."),
    "penstock_memory_bytes": ("gauge", "Bytes held."),
    "penstock_shed_total": ("counter", "Rows given up before their time."),
    "penstock_unprobed_total": ("counter", "Rows not compared with all of the other window."),
    "penstock_batch_seconds": ("gauge", "How long the last micro-batch took."),
    "penstock_lag_seconds": ("gauge", "From the newest row's own time to the end of its micro-batch."),
    "penstock_budget_rows": ("gauge", "Rows that may be held."),
    "penstock_last_batch_timestamp_seconds": ("gauge", "When the last micro-batch ended."),
}


def exposition(latest: Mapping[str, Point]) -> str:
    """Return the metrics of all queries, in Prometheus' text format 0.0.4."""
    samples = [sample for query, point in latest.items() for sample in _samples(query, point)]
    lines = []
    for name, (kind, words) in KINDS.items():
        lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{{{labels}}} {value!r}" for known, labels, value in samples if known == name]
    return "\n".join(lines) + "\n"


def _samples(query: str, point: Point) -> Iterator[tuple[str, str, Any]]:
    """Yield name, labels and value of what is known of a query."""

    def sample(name: str, value: Any, **more: str) -> tuple[str, str, Any]:
        labels = {"query": query, **more}
        return f"penstock_{name}", ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items()), value

    for at, side in enumerate(point["streams"]):
        yield sample("rows_total", point["arrivals"][at], side=side)
        yield sample("memory_rows", point["live"][at], side=side)
        yield sample("unprobed_total", point["unprobed"][at], side=side)
        for reason, count in point["shed"].items():
            yield sample("shed_total", count[at], reason=reason, side=side)
    if point["recall"] is not None:
        for name, value in zip(("recall_low", "recall", "recall_high"), point["recall"], strict=True):
            yield sample(name, value)
    for name, value in (("lag_seconds", point["lag"]), ("budget_rows", point["budget"])):
        if value is not None:
            yield sample(name, value)
    yield sample("pairs_total", point["pairs"])
    yield sample("memory_bytes", point["memory_bytes"])
    yield sample("batch_seconds", point["seconds"])
    yield sample("last_batch_timestamp_seconds", point["time"])


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
