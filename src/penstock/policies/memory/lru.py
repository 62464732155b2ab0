"""LRU: give up what has gone longest without a partner, as caches do."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.hooks import ranked
from penstock.core.jit import wide
from penstock.core.windows import BUNCH, COUNT, Windows, tuple_at
from penstock.policies.registry import Setting, shed_policy

USED = 0  # column of merit


@shed_policy("lru", paper="-", cost="O(log tuples)")
@ranked("tuple")
class Lru(NamedTuple):
    """Give up the tuple that was last met, or came, the longest ago; of equals the oldest.

    The idea: what found a partner lately will soon find another.

    Cost: O(log tuples) per victim, and O(1) per pair, when a partner comes.
    """

    ticks: npt.NDArray[Any]  # [how many ticks there were]

    @classmethod
    def make(cls, setting: Setting) -> "Lru":  # noqa: ARG003 - it needs to know nothing
        """Return the policy."""
        return cls(np.zeros(1, np.int64))

    def tidy(self, windows: Windows, side: int, clock: int) -> bool:  # noqa: ARG002
        """Count the ticks."""
        self.ticks[0] += side
        return False

    def admit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Note when the tuple came."""
        windows.merit[slot, USED] = self.ticks[0]

    def credit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Note for all whom a newcomer met when that was."""
        other = wide(windows.link[slot, BUNCH]) ^ 1
        for entry in range(windows.runs[other, COUNT]):
            partner = tuple_at(windows, other, entry)
            if partner >= 0:
                windows.merit[partner, USED] = self.ticks[0]

    def score(self, windows: Windows, side: int, slot: int, clock: int) -> float:  # noqa: ARG002
        """Return the tick of the last use."""
        return windows.merit[slot, USED]
