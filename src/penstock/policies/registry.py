"""Find policies by name, check their options, and make them for a join."""

import difflib
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any, NamedTuple

from penstock.core.windows import Ints
from penstock.errors import PolicyError

GROUP = "penstock.policies"
OWN = "penstock."


class Option(NamedTuple):
    """One option of a policy: its default, what it means, and what to say of a value that will not do."""

    default: object
    meaning: str
    check: Callable[[object], str | None] = lambda value: None  # noqa: ARG005 - any value will do


class Setting(NamedTuple):
    """What a policy may know about the join that it is made for."""

    span: Ints  # per side, in clock units
    limit: int  # tuples that fit the budget, both sides together
    seed: int
    code: Callable[[Sequence[object]], Ints]  # keys as the user writes them -> codes
    ticks: Callable[[str, object], int]  # (argument, a span as the user writes it) -> clock units
    combine: str | None  # how the importances of a pair become one; None: rows have none


@dataclass(frozen=True)
class Entry:
    """A registered policy."""

    name: str
    paper: str
    kind: type[Any]
    options: Mapping[str, Option]
    cost: str

    @property
    def summary(self) -> str:
        """The first line of the policy's docstring."""
        return (self.kind.__doc__ or "").strip().splitlines()[0]

    @property
    def own(self) -> bool:
        """Whether the policy is part of the package, so that its kernels may be kept between processes."""
        return self.kind.__module__.startswith(OWN)


@dataclass(frozen=True)
class Policy:
    """A policy by name, with checked options: what ``pen.policy`` returns."""

    name: str
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def make(self, setting: Setting) -> Any:
        """Make the arrays of the policy for one join."""
        entry = lookup(self.name)
        chosen = {name: option.default for name, option in entry.options.items()} | dict(self.options)
        return entry.kind.make(setting, **chosen)

    def __str__(self) -> str:
        words = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.name}({words})" if words else self.name


REGISTERED: dict[str, Entry] = {}
ALIASES: dict[str, str] = {}


def shed_policy(
    name: str, *, paper: str, cost: str, options: Mapping[str, Option] | None = None, also: Sequence[str] = ()
) -> Callable[[type[Any]], type[Any]]:
    """Register a policy class under a name.

    Parameters:
        name: what users call it.
        paper: the short name of the paper that claims it, or "-" for a baseline.
        cost: what one victim costs.
        options: what may be set, with defaults.
        also: what others call it.
    """

    def register(kind: type[Any]) -> type[Any]:
        ALIASES.update(dict.fromkeys(also, name))
        REGISTERED[name] = Entry(name, paper, kind, MappingProxyType(dict(options or {})), cost)
        return kind

    return register


@functools.cache
def load() -> None:
    """Import every module in the entry-point group, so that its policies register themselves."""
    for point in entry_points(group=GROUP):
        importlib.import_module(point.value)


def entries() -> list[Entry]:
    """Return the registered policies by name."""
    load()
    return [REGISTERED[name] for name in sorted(REGISTERED)]


def lookup(name: str) -> Entry:
    """Return a policy by name; an unknown one is an error that suggests the nearest."""
    load()
    if name in REGISTERED or name in ALIASES:
        return REGISTERED[ALIASES.get(name, name)]
    near = difflib.get_close_matches(name, REGISTERED, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    raise PolicyError("policy", repr(name), f"{guess}there are {', '.join(sorted(REGISTERED))}")


def policy(name: str, **options: object) -> Policy:
    """Make a policy object: a name and its options, checked.

    Parameters:
        name: one of ``penstock.policies()``.
        options: as listed there for that policy.

    Examples:
        >>> from penstock.policies.registry import policy
        >>> str(policy("prob", statistics="window"))
        'prob(statistics=window)'
    """
    entry = lookup(name)
    for key, value in options.items():
        if key not in entry.options:
            known = ", ".join(entry.options) or "none"
            raise PolicyError(key, repr(value), f"{name!r} has no such option; its options: {known}")
        complaint = entry.options[key].check(value)
        if complaint:
            raise PolicyError(key, repr(value), complaint)
    return Policy(entry.name, MappingProxyType(dict(options)))


def resolve(given: object) -> Policy:
    """Turn what the user gave as ``policy=`` into a policy object."""
    if isinstance(given, Policy):
        return given
    if isinstance(given, str):
        return policy(given)
    raise PolicyError("policy", repr(given), 'give a name, or an object made by pen.policy("name", ...)')
