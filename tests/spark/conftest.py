"""A real local Spark, one for all tests of this room."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock as pen


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the session's workers leave engines; it must be known before they start."""
    folder = tmp_path_factory.mktemp("engines")
    os.environ["PENSTOCK_ENGINES"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def spark(engines: Path) -> Iterator[Any]:  # noqa: ARG001 - only its place in the order
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
