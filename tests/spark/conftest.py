"""A real local Spark, one for all tests of this room."""

from collections.abc import Iterator
from typing import Any

import pytest

import penstock as pen


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Return a classic session as a user would build it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only these tests need Spark

    builder = pen.configure(SparkSession.builder.master("local[2]").appName("penstock tests"))
    session = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "America/New_York")  # anything that takes it for UTC shows
        .config("spark.driver.memory", "1g")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    yield session
    session.stop()
