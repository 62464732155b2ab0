"""SIMP: keep the most important tuples, whether they find partners or not."""

from typing import NamedTuple

from penstock.core.hooks import ranked
from penstock.core.windows import Windows, importance_of
from penstock.policies.registry import Setting, shed_policy


@shed_policy("simp", paper="importance2006", cost="O(log tuples)")
@ranked("tuple")
class Simp(NamedTuple):
    """Give up the least important tuple; of equals the oldest.

    The idea: an important tuple is worth its place even if a partner is unlikely. A join without `importance` counts
    every tuple as 1, so that the oldest leaves.

    Cost: O(log tuples) per tuple.

    References: importance2006 §4.3 (SIMP).
    """

    nothing: int  # a NamedTuple without fields has no type for the compiler

    @classmethod
    def make(cls, setting: Setting) -> "Simp":  # noqa: ARG003 - it needs to know nothing
        """Return the policy."""
        return cls(0)

    def score(self, windows: Windows, side: int, slot: int, clock: int) -> float:  # noqa: ARG002
        """Return the importance of the tuple."""
        return importance_of(windows, slot)
