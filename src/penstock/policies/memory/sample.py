"""SAMPLE: keep a uniform sample of the window, so that every pair is found with a known chance."""

from typing import NamedTuple

import numpy as np

from penstock.core import rng
from penstock.core.hooks import ranked
from penstock.core.jit import wide
from penstock.core.windows import ROW, Floats, Ints, Windows
from penstock.policies.registry import Setting, shed_policy


@shed_policy("sample", paper="-", cost="O(log tuples)")
@ranked("tuple")
class Sample(NamedTuple):
    """Give up the tuple that drew the smallest lot on arrival; pairs get a `weight`, the inverse of their chance.

    The idea: a tuple is in memory as long as its lot exceeds those of all victims since it came. Given the others,
    the chance of that is one minus the largest of these. A pair is found if the tuple that came first is still there,
    so it is found with that chance, and counts its inverse: sums over the result, each row times its weight, are
    unbiased (Horvitz and Thompson, over a bottom-k sample).

    Cost: O(log tuples) per tuple.

    Departures: of rows that are late, what only they could meet is given up first, with no lot: pairs that miss for
        that are not made up for. A cap on keys is refused.
    """

    state: rng.State

    @classmethod
    def make(cls, setting: Setting) -> "Sample":
        """Return the policy with the lots of this seed."""
        return cls(rng.seeded(setting.seed))

    def score(self, windows: Windows, side: int, slot: int, clock: int) -> float:  # noqa: ARG002
        """Return the lot of the tuple."""
        return rng.unit(self.state[0], 2 * wide(windows.stamp[slot, ROW]) + side)


def lots(seed: int, side: Ints, row: Ints) -> Floats:
    """Return the lots of rows by side and number, as the policy draws them."""
    word = rng.seeded(seed) + rng.GOLDEN * (2 * row + side + 1).astype(np.uint64)
    word = (word ^ (word >> rng.S30)) * rng.MIX_1
    word = (word ^ (word >> rng.S27)) * rng.MIX_2
    return ((word ^ (word >> rng.S31)) >> rng.S11) * rng.UNIT
