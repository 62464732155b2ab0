"""Penstock joins streams inside a fixed budget: it keeps running, gives up what matters least, and says what."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.api import (
        Join,
        Policy,
        Report,
        Result,
        compare,
        join,
        policies,
        policy,
        rows,
        run,
        table,
    )

__version__ = "0.1.0"

__all__ = [
    "Join",
    "Policy",
    "Report",
    "Result",
    "compare",
    "join",
    "policies",
    "policy",
    "rows",
    "run",
    "table",
]


def __getattr__(name: str) -> Any:
    """Load the front door, and with it Arrow and the compiler, only when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module("penstock.api"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
