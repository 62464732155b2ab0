"""Hear of every micro-batch, and turn what was observed into reports."""

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming import StreamingQueryListener

from penstock.quality.books import Report
from penstock.spark.books import reports_in

Heard = Callable[[Any, Report], None]


class Listener(StreamingQueryListener):  # type: ignore[misc]  # Spark comes without types
    """Keeps the latest report of every query that holds a join, and passes each on.

    Parameters:
        heard: called with the progress of a micro-batch and the report of a join in it; Spark calls it from a
            thread of its own. None: reports are kept only.

    Examples:
        >>> from penstock.spark import Listener
        >>> listener = Listener(lambda progress, report: print(progress.batchId, report.pairs))
        >>> spark.streams.addListener(listener)  # doctest: +SKIP
        >>> listener.reports[str(query.id)]  # doctest: +SKIP
    """

    def __init__(self, heard: Heard | None = None) -> None:
        self.reports: dict[str, list[Report]] = {}  # by the id of the query: one for each join in it
        self._heard = heard

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Wait for the first micro-batch."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Keep and pass on what a micro-batch tells."""
        reports = reports_in(event.progress)
        if reports:
            self.reports[str(event.progress.id)] = reports
        for report in reports:
            if self._heard is not None:
                self._heard(event.progress, report)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Wait for the next micro-batch."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Keep the last report."""
