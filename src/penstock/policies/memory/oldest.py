"""OLDEST: give up what has been here longest, as systems without a notion of worth do."""

from typing import Any, NamedTuple

from penstock.core.jit import part, wide
from penstock.core.windows import NEWER, OLDEST, Windows, ask_for_entry, ask_for_neighbours, moment_of
from penstock.policies.registry import Setting, shed_policy

AHEAD = 6  # tuples between asking for memory and using it


@shed_policy("oldest", paper="-", cost="O(1)", also=["fifo"])
class Oldest(NamedTuple):
    """Give up the oldest tuple; of two equally old ones the left.

    The idea: the window becomes shorter instead of thinner; first in, first out, as `policy="fifo"` says.

    Cost: O(1) per victim.
    """

    nothing: int  # a NamedTuple without fields has no type for the compiler

    @classmethod
    def make(cls, setting: Setting) -> "Oldest":  # noqa: ARG003 - it needs to know nothing
        """Return the policy."""
        return cls(0)

    def victim(self, windows: Windows, side: int) -> Any:
        """Return the oldest tuple."""
        slot = oldest(windows, side)
        ask_for_next(windows, slot)
        return slot


@part
def oldest(windows: Windows, side: int) -> Any:
    """Return the oldest tuple on one side, or (side = -1) on either."""
    if side >= 0:
        return windows.marks[OLDEST + side]
    left, right = windows.marks[OLDEST], windows.marks[OLDEST + 1]
    if left < 0 or right < 0:
        return max(left, right)
    return left if moment_of(windows, left) <= moment_of(windows, right) else right


@part
def ask_for_next(windows: Windows, slot: int) -> None:
    """Ask for the memory that giving up those after this one will touch."""
    for step in range(1, AHEAD + 1):
        slot = wide(windows.link[slot, NEWER])
        if slot < 0:
            return
        if step == AHEAD // 2:
            ask_for_entry(windows, slot)
    ask_for_neighbours(windows, slot)
