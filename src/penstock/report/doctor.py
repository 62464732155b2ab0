"""Look at the machine and the installation, and say what would keep Penstock from working."""

import os
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.errors import JavaError

NEEDED = ("numpy", "numba", "pyarrow")
OPTIONAL = {"pandas": "tables from and to pandas"}
ON_SPARK = {"pyspark": "pyspark", "pandas": "pandas", "protobuf": "google.protobuf"}  # package -> module
LITTLE_MEMORY = 512 * 10**6
LITTLE_DISK = 100 * 10**6


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    name: str
    found: str
    fine: bool = True
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain JSON values; what is fine needs no advice."""
        return asdict(self) | ({"advice": None} if self.fine else {})


def examine(*, spark: bool = False) -> list[Finding]:
    """Look at everything; nothing is changed, and nothing is compiled.

    Parameters:
        spark: also start a local Spark, with its state in RocksDB, and join a few rows on it (a minute or so).
    """
    return [
        _python(),
        *(_package(name, name, needed=True) for name in NEEDED),
        *_cache(),
        *_spark(run=spark),
        Finding("CPUs", str(_cores())),
        _memory(),
    ]


def _python() -> Finding:
    found = f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})"
    return Finding("Python", found, sys.version_info >= (3, 11), "Penstock needs Python 3.11 or newer")


def _spark(*, run: bool) -> list[Finding]:
    """Look for what the join on Spark needs; without pyspark it is optional, with it the rest is not."""
    there = find_spec("pyspark") is not None
    if not there and not run:
        return [_package("pandas", "pandas", needed=False), Finding("Spark", "not installed (optional)")]
    findings = [_package(name, module, needed=True) for name, module in ON_SPARK.items()]
    if not all(finding.fine for finding in findings):
        return findings
    from penstock.spark import cache, java  # noqa: PLC0415 - not before the packages are there

    try:
        home = java.ensure()
        findings.append(Finding("Java", f"{java.version(home) or 'of unknown version'} ({home})"))
    except JavaError as error:
        findings.append(Finding("Java", str(error.got), False, error.want))
    folder = cache.folder()
    elsewhere = "set PENSTOCK_ENGINES to a folder that you, and nobody else, can write to"
    usable = _writable(folder) and (not folder.exists() or cache.closed(folder))
    findings.append(Finding("engines between micro-batches", str(folder), usable, elsewhere))
    if run and all(finding.fine for finding in findings):
        findings.append(_spark_runs())
    return findings


def _spark_runs() -> Finding:
    import pyarrow as pa  # noqa: PLC0415

    from penstock.spark import live  # noqa: PLC0415

    rows = pa.table({"ts": range(20), "key": [1] * 20})
    begin = time.perf_counter()
    try:
        report = live.play(
            (rows, rows), {"on": "key", "time": "ts", "window": 2}, cuts=[(0, 20, 0.0)], seconds=0, watch=None
        )
    except Exception as error:  # noqa: BLE001 - whatever goes wrong there is the finding
        return Finding("a join on Spark", str(error), False, "the message is Spark's own")
    seconds = time.perf_counter() - begin
    return Finding("a join on Spark", f"{report.pairs} pairs, {seconds:.0f} s with its start, state in RocksDB")


def _package(name: str, module: str, *, needed: bool) -> Finding:
    """Import a package: one that is installed may still be broken."""
    try:
        found = version(name)
        import_module(module)
    except PackageNotFoundError:
        missing = f"not installed (optional: {OPTIONAL[name]})" if name in OPTIONAL else "not installed"
        return Finding(name, missing, not needed, f"run: pip install {name}")
    except Exception as error:  # noqa: BLE001 - whatever goes wrong there is the finding
        return Finding(
            name,
            f"{found}, which cannot be imported ({error})",
            False,
            f"run: pip install --force-reinstall {name}",
        )
    return Finding(name, found)


def _cache() -> list[Finding]:
    try:
        folder: Path = import_module("penstock.core.jit").cache_folder()
    except Exception as error:  # noqa: BLE001 - a broken compiler is a finding
        return [
            Finding(
                "compiled kernels",
                f"cannot be looked for ({error})",
                False,
                "repair the packages above first",
            )
        ]
    elsewhere = "set PENSTOCK_CACHE_DIR to a folder that can be written"
    if not _writable(folder):
        return [Finding("cache", f"{folder}, which cannot be written", False, elsewhere)]
    home = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(home).free
    if free < LITTLE_DISK:
        return [
            Finding(
                "cache",
                f"{folder}, {free / 1e6:,.0f} MB free on its disk",
                False,
                f"make room, or {elsewhere}",
            )
        ]
    kernels = list(folder.rglob("*.nbc")) if folder.exists() else []
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) if folder.exists() else 0
    state = "writable" if folder.exists() else "will be made"
    compiled = f"{len(kernels)}, {size / 1e6:,.1f} MB" if kernels else "none yet: penstock warmup compiles them"
    return [Finding("cache", f"{folder} ({state})"), Finding("compiled kernels", compiled)]


def _writable(folder: Path) -> bool:
    """Try it: permissions alone do not tell of read-only disks."""
    home = next((parent for parent in (folder, *folder.parents) if parent.exists()), None)
    if home is None or not home.is_dir():
        return False
    try:
        with tempfile.TemporaryFile(dir=home):
            return True
    except OSError:
        return False


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> Finding:
    free = free_memory()
    if free is None:
        return Finding("free memory", "not known on this system")
    return Finding(
        "free memory",
        f"{free / 1e9:,.1f} GB",
        free >= LITTLE_MEMORY,
        "compiling takes some 500 MB: free some",
    )


def free_memory() -> int | None:
    """Return the bytes a new process could use, where the system says so."""
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    for line in meminfo.read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
