"""Penstock joins streams inside a fixed budget: it keeps running, gives up what matters least, and says what."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.api import (
        Advice,
        Join,
        MultiJoin,
        Optimum,
        Plan,
        Policy,
        Report,
        Result,
        Stream,
        Truncated,
        advise,
        band,
        compare,
        configure,
        contained_in,
        contains,
        cpu,
        every,
        inner_product,
        join,
        joining,
        multijoin,
        optimum,
        overlap,
        plan,
        policies,
        policy,
        refine,
        report,
        rows,
        run,
        set_equal,
        table,
        truncate,
        write,
    )

__version__ = "0.1.0"

__all__ = [
    "Advice",
    "Join",
    "MultiJoin",
    "Optimum",
    "Plan",
    "Policy",
    "Report",
    "Result",
    "Stream",
    "Truncated",
    "advise",
    "band",
    "compare",
    "configure",
    "contained_in",
    "contains",
    "cpu",
    "every",
    "inner_product",
    "join",
    "joining",
    "multijoin",
    "optimum",
    "overlap",
    "plan",
    "policies",
    "policy",
    "refine",
    "report",
    "rows",
    "run",
    "set_equal",
    "table",
    "truncate",
    "write",
]


def __getattr__(name: str) -> Any:
    """Load the front door, and with it Arrow and the compiler, only when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module("penstock.api"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Room(ModuleType):
    """A room with the name of a function of the front door: called, it is that function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(import_module("penstock.api"), self.__name__.rpartition(".")[2])(*arguments, **options)


class _FrontDoor(ModuleType):
    """The package itself, which importing ``penstock.policies`` must not rob of ``penstock.policies()``."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in __all__ and isinstance(value, ModuleType):
            value.__class__ = _Room
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _FrontDoor
