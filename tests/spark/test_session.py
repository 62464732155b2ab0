"""Sessions are given what they lack and keep what they have; a Java is found, or brought along."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import penstock as pen
from penstock.errors import JavaError
from penstock.spark import java, session
from penstock.spark.shards import shard_ids, spark_hash


class Builder:
    """As much of a SparkSession builder as is asked of one."""

    def __init__(self, **options: str) -> None:
        self._options = {name.replace("__", "."): value for name, value in options.items()}

    def config(self, name: str, value: str) -> "Builder":
        """Set an option."""
        self._options[name] = value
        return self

    @property
    def options(self) -> dict[str, str]:
        """What is set."""
        return self._options


@pytest.mark.parametrize(
    ("master", "partitions"),
    [
        ("local[3]", "3"),
        ("local", "1"),
        ("local[2,4]", "2"),
        ("local[*]", str(os.cpu_count())),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
    ],
)
def test_configure_adds_what_is_missing(master: str, partitions: str | None) -> None:
    options = pen.configure(Builder(spark__master=master)).options
    assert options[session.PROVIDER] == session.ROCKSDB
    assert options[session.CHANGELOG] == "true"
    assert options.get(session.PARTITIONS) == partitions


def test_configure_overrides_nothing() -> None:
    mine = {session.PROVIDER: "my.Provider", session.CHANGELOG: "false", session.PARTITIONS: "7"}
    builder = Builder(spark__master="local[2]")
    for name, value in mine.items():
        builder.config(name, value)
    options = pen.configure(builder).options
    assert {name: options[name] for name in mine} == mine


def test_a_session_on_connect_needs_no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> Path:
        raise AssertionError("asked for a Java")

    monkeypatch.setattr(java, "ensure", refused)
    assert session.PROVIDER in pen.configure(Builder(spark__remote="sc://host")).options


def test_the_java_brought_along_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It takes the option that Spark always gives and its image does not know."""
    monkeypatch.setenv("PENSTOCK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(java, "installed", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    home = java.ensure()
    assert os.environ["JAVA_HOME"] == str(home)
    assert (java.version(home) or 0) >= 21
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    monkeypatch.delenv("JAVA_HOME")


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "version", lambda _: 11)
    with pytest.raises(JavaError, match="17 or newer"):
        java.ensure()


def test_no_java_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "installed", lambda: None)
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(JavaError, match="pip install"):
        java.ensure()


@pytest.mark.parametrize("shards", [1, 2, 3, 8, 31])
def test_each_shard_has_a_partition_of_its_own(spark: Any, shards: int) -> None:
    """Spark's own shuffle says so; the hash by which ids are chosen is Spark's."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    ids = spark.createDataFrame([(one,) for one in shard_ids(shards)], "shard int")
    rows = ids.repartition(shards, "shard").select(F.spark_partition_id().alias("place"), F.hash("shard"), "shard")
    found = rows.collect()
    assert sorted(row.place for row in found) == list(range(shards))
    assert all(spark_hash(row.shard) == row[1] for row in found)
