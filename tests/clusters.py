"""A standalone Spark cluster on loopback, and an end for all that a test has started."""

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyspark

HOME = Path(pyspark.__file__).parent


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a job and all it started, without a chance to say goodbye."""
    started = family(process)
    for pid in [process.pid, *(child.pid for child in started)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    psutil.wait_procs(started, timeout=30)


def family(process: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    """Return all that a job has started."""
    try:
        return list(psutil.Process(process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """Start a cluster of two machines, as far as Spark can tell; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    small = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / "work"), address]
    parts = [("master.Master", "127.0.0.1", ["--port", str(port), "--webui-port", "0"])]
    parts += [("worker.Worker", host, small) for host in ("127.0.0.2", "127.0.0.3")]
    processes = []
    try:
        for name, host, options in parts:
            command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", host, *options]
            with (folder / f"{host}.log").open("wb") as log:
                env = {**os.environ, "SPARK_HOME": str(HOME)}
                processes.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True))
        yield address
    finally:
        for process in processes:
            end(process)
