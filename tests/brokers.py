"""A Kafka broker of one node on loopback, and what Spark reads it and Delta with: through Maven, and pip."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.spark import java

JARS_FILE = Path(__file__).parent / "kafka" / "jars.xml"
JARS = Path(os.environ.get("PENSTOCK_KAFKA_JARS", Path.home() / ".cache" / "penstock-kafka"))
FETCH_SECONDS, START_SECONDS = 600, 60
PROPERTIES = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{control}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class Broker(NamedTuple):
    """Where the broker is, and the environment of a process whose Spark can read it."""

    address: str
    env: dict[str, str]


def fetched(profile: str) -> list[str]:
    """Return the jars of a profile, through Maven the first time."""
    folder = JARS / profile
    if not (folder / "complete").exists():
        maven = shutil.which("mvn")
        if maven is None:
            pytest.skip("no Maven on the PATH: install it (Debian: apt-get install maven) to test against Kafka")
        words = [maven, "-q", "-B", "-f", str(JARS_FILE), "-P", profile, "dependency:copy-dependencies"]
        words += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        fetch(words, f"Maven could not fetch the jars of the {profile}")
        (folder / "complete").touch()
    return sorted(map(str, folder.glob("*.jar")))


def pyspark_of(version: str) -> Path:
    """Return a folder with a release of PySpark alone, through pip the first time."""
    folder = JARS / f"pyspark-{version}"
    if not (folder / "complete").exists():
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        fetch([*words, f"pyspark=={version}"], f"pip could not fetch PySpark {version}")
        (folder / "complete").touch()
    return folder


def fetch(words: list[str], failed: str) -> None:
    """Run a command that fetches something; where it cannot, or takes too long, skip the test with its words."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{failed} within {FETCH_SECONDS} s")
    if done.returncode:
        pytest.skip(f"{failed}: {(done.stderr.strip() or done.stdout.strip())[-300:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(folder: Path) -> Iterator[Broker]:
    """Run a broker, with its files in a folder."""
    classes, connector = ":".join(fetched("broker")), ",".join(fetched("connector"))
    port, control = free_port(), free_port()
    file = folder / "server.properties"
    file.write_text(PROPERTIES.format(port=port, control=control, data=folder / "data"), encoding="utf-8")
    start = [str(java.ensure() / "bin" / "java"), "-Xmx512m", "-cp", classes]
    cluster = "P" + urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")[1:]  # a dash would be an option
    subprocess.run(
        [*start, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(file)], check=True, capture_output=True
    )
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen([*start, "kafka.Kafka", str(file)], stdout=log, stderr=log) as node,
    ):
        try:
            until = time.monotonic() + START_SECONDS
            while not listens(port):
                assert node.poll() is None, (folder / "log").read_text(encoding="utf-8")
                assert time.monotonic() < until
                time.sleep(0.2)
            env = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--jars {connector} pyspark-shell"}
            yield Broker(f"127.0.0.1:{port}", {**env, "PENSTOCK_ENGINES": str(folder / "engines")})
        finally:
            node.terminate()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
