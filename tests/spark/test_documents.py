"""The blocks of Python in the documents run on a real Spark, one after the other, and join what they say."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

import penstock as pen
from documents import ROOT, blocks
from streaming import counted, read_stream, ticking, write_batches

TABLES = [ticking(seed, 300) for seed in (31, 32)]


@pytest.fixture
def names(spark: Any, tmp_path: Path) -> dict[str, Any]:
    """Return what the pages take for granted."""
    known: dict[str, Any] = {"pen": pen, "spark": spark, "SparkSession": SparkSession, "F": F, "lake": str(tmp_path)}
    for key, *streams in (("person", "calls", "trades"), ("user", "clicks", "views")):
        for name, table in zip(streams, TABLES, strict=True):
            write_batches(table.rename_columns({"k": key}), tmp_path / name, [])
            known[name] = read_stream(spark, tmp_path / name)
    return known


def python(page: str) -> list[str]:
    return blocks(ROOT / page, "python")


def found(table: Any) -> Any:
    return counted(table, ["v_left", "v_right"])


def exact(window: str) -> Any:
    return found(pen.join(*TABLES, on="k", time="ts", window=window))


def test_the_join_of_the_readme(spark: Any, names: dict[str, Any], tmp_path: Path) -> None:
    [block] = python("README.md")
    *lines, last = block.splitlines(keepends=True)
    assert last.startswith("print(pen.report(query))")
    for name in ("calls", "trades"):  # the page sets the watermarks
        stream = read_stream(spark, tmp_path / name, time=None)
        names[f"read_{name}"] = lambda _, stream=stream: stream
    exec("".join(lines), names)  # noqa: S102 - the page's own words
    try:
        names["query"].processAllAvailable()
        exec(last, names)  # noqa: S102
    finally:
        names["query"].stop()
    assert exact("10 minutes") == found(spark.read.parquet(f"{names['lake']}/joined"))


def test_outputs_a_listener_and_event_time(spark: Any, names: dict[str, Any], capsys: Any) -> None:
    """Those of spark.md."""
    write, listen, windowed = python("docs/spark.md")
    names["joined"] = pen.join(names["clicks"], names["views"], on="user", time="ts", window="10 minutes", memory=50)
    exec(listen, names)  # noqa: S102
    try:
        exec(write, names)  # noqa: S102
        names["query"].processAllAvailable()
        names["query"].stop()
        [heard] = names["listener"].reports[str(names["query"].id)]
    finally:
        spark.streams.removeListener(names["listener"])
    results = spark.read.parquet(f"{names['lake']}/out")
    assert heard.pairs == results.count() > 0
    rest = pen.refine(
        archive=f"{names['lake']}/rows",
        ledger=f"{names['lake']}/shed",
        on="user",
        time="ts",
        window="10 minutes",
        spark=spark,
    )
    assert exact("10 minutes") == found(results) + found(rest)
    assert capsys.readouterr().out
    exec(windowed, names)  # noqa: S102
    assert "at" in names["joined"].columns


def test_a_latency(names: dict[str, Any]) -> None:
    """That of cpu.md: checked as Spark checks a plan, and not timed."""
    [block] = python("docs/cpu.md")
    exec(block, names)  # noqa: S102
    assert names["joined"].isStreaming


def test_a_job_on_a_session_of_ones_own(
    spark: Any, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of jobs.md."""
    [block] = python("docs/jobs.md")
    (tmp_path / "job.toml").write_text(blocks(ROOT / "docs" / "jobs.md", "toml")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(block, names)  # noqa: S102
    names["query"].awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out" / "found")).count() > 0
