"""The questions a kernel asks a policy, bound to the policy's own methods by its type.

A policy is a ``NamedTuple`` of arrays. ``@ranked(by)`` says what it puts in order: ``"key"`` (all tuples of one
key and side share a score; the oldest is the first to go) or ``"tuple"`` (each has its own); without it, it names
its victims itself. ``fades=1`` says that scores are per tick and count for as long as a tuple has left.
``within="importance"`` says that what ``weigh`` returns counts times the importance of a tuple, so that of each key
the least important is the first to go. A ranking policy must have ``weigh``, ``weigh_held`` or ``score``; one that
does not rank must have ``victim``; the rest is optional:

- ``weigh(side, code) -> float``: what the tuples of a key are worth on a side: never less than 0, and never more than
  before unless a tuple of that key arrives.
- ``weigh_held(side, code, held) -> float``: the same, of a key with so many partners in memory; asked again whenever
  that number has changed. What leaves at the end of a tick counts until all have left that must.
- ``score(windows, side, slot, clock) -> float``: what the tuple is worth; the smallest leaves.
- ``tie(windows, side, slot) -> float``: what decides between equal scores before age does; the smallest leaves.
- ``scale(side) -> float``: what one unit of that side's scores is worth, to compare across the sides.
- ``offset(side) -> float``: what a score of 0 is worth there.
- ``victim(windows, side) -> int``: the slot to give up, on one side or (side = -1) on either.
- ``rather(windows, side, slot) -> int``: the slot to give up in place of the one with the smallest score, which is
  given; on one side or (side = -1) on either.
- ``due(windows, slot, tick) -> bool``: whether the tuple with the smallest score leaves now, budget or not.
- ``arrive(side, code, clock) -> None``: a tuple arrived whose key has this code.
- ``admit(windows, side, slot, clock) -> None``: a tuple entered. A policy with this hook has ``windows.merit[slot]``,
  two numbers a tuple, to itself.
- ``credit(windows, side, slot, clock) -> None``: the tick ends in which this tuple came; what is too old has left,
  and nobody was given up yet.
- ``lost() -> (bool, int)``: asked after ``arrive``: whether another key lost its weight on both sides to make room,
  and its code.
- ``foresee(code) -> None``: a tuple whose key has this code is soon to come; a chance to ask for memory.
- ``tidy(windows, side, clock) -> bool``: a tick begins; says whether the weights of that side's keys all shrank just
  now.
- ``forget(side, clock) -> (bool, int)``: whether a key lost weight because time passed, and its code (asked again
  until there is none).

Each question is a plain function (the road taken with the JIT off) and an overload of it (the road taken when
compiled): a method reached through the policy's type is cached like any other code, a function passed as an
argument is not.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import types

from penstock.core.jit import overload
from penstock.core.windows import Windows


class Unlimited(NamedTuple):
    """The policy of a join without a budget: nobody is ever given up."""

    nothing: int  # a NamedTuple without fields has no type for the compiler

    def victim(self, windows: Windows, side: int) -> int:  # noqa: ARG002
        """Return nobody; a kernel asks only when a budget is overrun."""
        return -1


def ranked(by: str, *, fades: int = 0, within: str = "age") -> Callable[[type[Any]], type[Any]]:
    """Say what a policy class puts in order, and what its scores are.

    Parameters:
        by: "key" or "tuple".
        fades: 1 if scores are per tick of remaining life.
        within: what the tuples of one key leave by, "age" or "importance".
    """

    def mark(kind: type[Any]) -> type[Any]:
        kind.ranks = by
        kind.fades = bool(fades)
        kind.within = within
        return kind

    return mark


def traits(policy: Any) -> type[Any]:
    """Return the class of a policy, given the policy or its Numba type."""
    found: type[Any] = policy.instance_class if isinstance(policy, types.BaseNamedTuple) else type(policy)
    return found


def ranks(policy: Any) -> str | None:
    """Say what a policy puts in order."""
    order: str | None = getattr(traits(policy), "ranks", None)
    return order


def fades(policy: Any) -> bool:
    """Say whether the scores of a policy are per tick of remaining life."""
    return bool(getattr(traits(policy), "fades", False))


def counts(policy: Any) -> bool:
    """Say whether what a key is worth depends on what arrived or is held of it, and on nothing else."""
    return ranks(policy) == "key" and (hasattr(traits(policy), "weigh") or holds(policy))


def holds(policy: Any) -> bool:
    """Say whether what a key is worth depends on how many partners memory holds."""
    return hasattr(traits(policy), "weigh_held")


def by_importance(policy: Any) -> bool:
    """Say whether the tuples of one key leave by importance."""
    return getattr(traits(policy), "within", "age") == "importance"


def hears(policy: Any) -> bool:
    """Say whether a policy's order must hear of tuples that expire."""
    return by_importance(policy) or holds(policy)


def has_ties(policy: Any) -> bool:
    """Say whether a policy decides between equal scores."""
    return hasattr(traits(policy), "tie")


def credits_newcomers(policy: Any) -> bool:
    """Say whether a policy looks at the tuples of a tick once more when it ends."""
    return hasattr(traits(policy), "credit")


def has_merits(policy: Any) -> bool:
    """Say whether a policy keeps something of each tuple."""
    return hasattr(traits(policy), "admit")


def weigh(policy: Any, side: int, code: int) -> float:
    """Ask what the tuples of a key are worth on a side."""
    worth: float = policy.weigh(side, code)
    return worth


@overload(weigh)
def _weigh(policy: Any, side: Any, code: Any) -> Any:  # noqa: ARG001
    return traits(policy).weigh


def weigh_held(policy: Any, side: int, code: int, held: int) -> float:
    """Ask what the tuples of a key, of which memory holds so many partners, are worth on a side."""
    worth: float = policy.weigh_held(side, code, held)
    return worth


@overload(weigh_held)
def _weigh_held(policy: Any, side: Any, code: Any, held: Any) -> Any:  # noqa: ARG001
    return traits(policy).weigh_held


def score(policy: Any, windows: Windows, side: int, slot: int, clock: int) -> float:
    """Ask what a tuple is worth."""
    worth: float = policy.score(windows, side, slot, clock)
    return worth


@overload(score)
def _score(policy: Any, windows: Any, side: Any, slot: Any, clock: Any) -> Any:  # noqa: ARG001
    return traits(policy).score


def tie(policy: Any, windows: Windows, side: int, slot: int) -> float:
    """Ask what decides between equal scores."""
    return policy.tie(windows, side, slot) if hasattr(policy, "tie") else 0.0


@overload(tie)
def _tie(policy: Any, windows: Any, side: Any, slot: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "tie", lambda policy, windows, side, slot: 0.0)  # noqa: ARG005


def scale(policy: Any, side: int) -> float:
    """Ask what one unit of a side's scores is worth."""
    return policy.scale(side) if hasattr(policy, "scale") else 1.0


@overload(scale)
def _scale(policy: Any, side: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "scale", lambda policy, side: 1.0)  # noqa: ARG005


def offset(policy: Any, side: int) -> float:
    """Ask what a score of 0 is worth on a side."""
    return policy.offset(side) if hasattr(policy, "offset") else 0.0


@overload(offset)
def _offset(policy: Any, side: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "offset", lambda policy, side: 0.0)  # noqa: ARG005


def victim(policy: Any, windows: Windows, side: int) -> int:
    """Ask a policy that does not rank which tuple to give up."""
    slot: int = policy.victim(windows, side)
    return slot


@overload(victim)
def _victim(policy: Any, windows: Any, side: Any) -> Any:  # noqa: ARG001
    return traits(policy).victim


def rather(policy: Any, windows: Windows, side: int, slot: int) -> int:
    """Ask a policy that ranks whether it would rather give up another than the tuple with the smallest score."""
    other: int = policy.rather(windows, side, slot) if hasattr(policy, "rather") else slot
    return other


@overload(rather)
def _rather(policy: Any, windows: Any, side: Any, slot: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "rather", lambda policy, windows, side, slot: slot)  # noqa: ARG005


def due(policy: Any, windows: Windows, slot: int, tick: int) -> bool:
    """Ask whether the tuple with the smallest score leaves now, budget or not."""
    return policy.due(windows, slot, tick) if hasattr(policy, "due") else False


@overload(due)
def _due(policy: Any, windows: Any, slot: Any, tick: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "due", lambda policy, windows, slot, tick: False)  # noqa: ARG005


def arrive(policy: Any, side: int, code: int, clock: int) -> None:
    """Tell a policy that a tuple arrived."""
    if hasattr(policy, "arrive"):
        policy.arrive(side, code, clock)


@overload(arrive)
def _arrive(policy: Any, side: Any, code: Any, clock: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "arrive", lambda policy, side, code, clock: None)  # noqa: ARG005


def admit(policy: Any, windows: Windows, side: int, slot: int, clock: int) -> None:
    """Tell a policy that a tuple entered."""
    if hasattr(policy, "admit"):
        policy.admit(windows, side, slot, clock)


@overload(admit)
def _admit(policy: Any, windows: Any, side: Any, slot: Any, clock: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "admit", lambda policy, windows, side, slot, clock: None)  # noqa: ARG005


def credit(policy: Any, windows: Windows, side: int, slot: int, clock: int) -> None:
    """Tell a policy that the tick ends in which a tuple came."""
    policy.credit(windows, side, slot, clock)


@overload(credit)
def _credit(policy: Any, windows: Any, side: Any, slot: Any, clock: Any) -> Any:  # noqa: ARG001
    return traits(policy).credit


def lost(policy: Any) -> tuple[bool, int]:
    """Ask for a key that lost its weight to make room for the last arrival."""
    return policy.lost() if hasattr(policy, "lost") else (False, 0)


@overload(lost)
def _lost(policy: Any) -> Any:
    return getattr(traits(policy), "lost", lambda policy: (False, 0))  # noqa: ARG005


def foresee(policy: Any, code: int) -> None:
    """Tell a policy that a key is soon to come."""
    if hasattr(policy, "foresee"):
        policy.foresee(code)


@overload(foresee)
def _foresee(policy: Any, code: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "foresee", lambda policy, code: None)  # noqa: ARG005


def tidy(policy: Any, windows: Windows, side: int, clock: int) -> bool:
    """Ask whether the weights of a side's keys all shrank."""
    return policy.tidy(windows, side, clock) if hasattr(policy, "tidy") else False


@overload(tidy)
def _tidy(policy: Any, windows: Any, side: Any, clock: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "tidy", lambda policy, windows, side, clock: False)  # noqa: ARG005


def forget(policy: Any, side: int, clock: int) -> tuple[bool, int]:
    """Ask for a key that lost weight because time passed."""
    return policy.forget(side, clock) if hasattr(policy, "forget") else (False, 0)


@overload(forget)
def _forget(policy: Any, side: Any, clock: Any) -> Any:  # noqa: ARG001
    return getattr(traits(policy), "forget", lambda policy, side, clock: (False, 0))  # noqa: ARG005
