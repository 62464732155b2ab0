"""Give a Spark session what Penstock's state needs, without touching what the user chose."""

import os
import sys
from typing import Any

from penstock.errors import SessionError
from penstock.spark import java

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PARTITIONS = "spark.sql.shuffle.partitions"


def configure(builder: Any) -> Any:
    """Return a SparkSession builder with what Penstock needs; options already set stay as they are."""
    given = dict(getattr(builder, "_options", {}))
    wanted = {PROVIDER: ROCKSDB, CHANGELOG: "true"}
    remote = str(given.get("spark.remote", ""))
    cores = _local_cores(remote or str(given.get("spark.master", "")))
    if cores:  # a shard for each core; 200 partitions, Spark's default, are 200 tasks a micro-batch
        wanted[PARTITIONS] = str(cores)
    for name, value in wanted.items():
        if name not in given:
            builder = builder.config(name, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if not remote or remote.startswith("local"):  # a server of Spark Connect elsewhere has its own
        java.ensure()
    return builder


def _local_cores(master: str) -> int | None:
    """Return the cores of a local master such as local[2], local[*] or local[2,4]."""
    if not master.startswith("local") or master.startswith("local-cluster"):
        return None
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    return int(inside) if inside.isdigit() else (os.cpu_count() or 1) if inside == "*" else 1


def cores(spark: Any) -> int | None:
    """Return how many tasks a session runs at once; None: it does not say."""
    master = str(spark.conf.get("spark.master", ""))
    if master.startswith("local-cluster"):
        executors, each, _ = master.removeprefix("local-cluster").strip("[]").split(",")
    else:
        executors, each = (str(spark.conf.get(f"spark.executor.{name}", "")) for name in ("instances", "cores"))
    many = int(executors) * int(each) if executors.isdigit() and each.isdigit() else None
    return _local_cores(master) or many


def check(spark: Any) -> None:
    """Raise unless a session keeps state where Penstock's operator can.

    Raises:
        SessionError: if it does not.
    """
    provider = spark.conf.get(PROVIDER, "")
    if "RocksDB" not in provider:
        want = "build the session with pen.configure(SparkSession.builder), or set it to " + ROCKSDB
        raise SessionError(PROVIDER, provider.rpartition(".")[2] or "nothing", want)
