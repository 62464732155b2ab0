"""Join recorded data on Spark at once: the rows, the report and the ledger of one run."""

import json
from collections.abc import Mapping
from typing import Any

from penstock.errors import InputError
from penstock.operator import several
from penstock.operator.join import Join
from penstock.operator.multijoin import MultiJoin
from penstock.operator.settings import Settings
from penstock.spark import pipeline
from penstock.spark.books import books_of, folded
from penstock.spark.task import BOOK, LEDGER, Bound, ledger_columns
from penstock.spark.writing import rows_of_kind


def run(frames: Mapping[str, Any], settings: Settings | several.Settings) -> tuple[Any, Any, Any]:
    """Join batch DataFrames by name; returns the joined rows, the report, and the rows given up.

    The idea: everything that leaves the operator is persisted, so that it runs once for all three.

    Raises:
        InputError: if they are streams, or cannot be joined as asked.
    """
    for name, frame in frames.items():
        if getattr(frame, "isStreaming", False):
            want = "pen.run is for batch DataFrames: start pen.join(...) as a query, and pen.report(query) tells"
            raise InputError(name, "a streaming DataFrame", want)
    raw, bound = pipeline.operator(frames, settings, frozenset({LEDGER}))
    raw = raw.persist()
    written = raw.select(pipeline.beside(BOOK).cast("string").alias("book")).where("book is not null").collect()
    books = [json.loads(row["book"]) for row in written] or [json.loads(books_of(_idle(bound)))]
    ledger = rows_of_kind(LEDGER, ledger_columns(bound))(raw)
    return pipeline.rows_of(raw, bound), folded(pipeline.words_of(bound), books), ledger


def _idle(bound: Bound) -> Any:
    """Return the report of a join to which nothing came."""
    given = bound.settings.arguments()
    if isinstance(bound, several.Bound):
        return MultiJoin(dict(zip(bound.names, bound.schemas, strict=True)), **given).report()
    return Join(schemas=bound.schemas, **given).report()
