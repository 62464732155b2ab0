"""Look at the machine and the installation, and say what would keep Penstock from working."""

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

NEEDED = ("numpy", "numba", "pyarrow")
OPTIONAL = ("pandas",)
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


def examine() -> list[Finding]:
    """Look at everything; nothing is changed, and nothing is compiled."""
    return [
        _python(),
        *(_package(name, needed=True) for name in NEEDED),
        *(_package(name, needed=False) for name in OPTIONAL),
        *_cache(),
        Finding("CPUs", str(_cores())),
        _memory(),
    ]


def _python() -> Finding:
    found = f"{platform.python_version()} ({platform.python_implementation()}, {sys.executable})"
    return Finding("Python", found, sys.version_info >= (3, 11), "Penstock needs Python 3.11 or newer")


def _package(name: str, *, needed: bool) -> Finding:
    """Import a package: one that is installed may still be broken."""
    try:
        found = version(name)
        import_module(name)
    except PackageNotFoundError:
        missing = "not installed (optional: tables from and to pandas)"
        return Finding(name, "not installed" if needed else missing, not needed, f"run: pip install {name}")
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
