"""RAND: give up anyone."""

from typing import NamedTuple

from penstock.core import rng
from penstock.core.hooks import ranked
from penstock.core.jit import prefetch, wide
from penstock.core.windows import BUNCH, ROW, SLOTS, Windows, ask_for_entry, ask_for_neighbours
from penstock.policies.registry import Option, Setting, shed_policy

AT = ("memory", "input")


@shed_policy(
    "rand",
    paper="das2003",
    cost="O(1) expected",
    options={
        "at": Option(
            "memory",
            '"memory": anyone in the pool may leave; "input": arrivals are thinned out and the rest stays',
            lambda value: None if value in AT else f"give one of {', '.join(map(repr, AT))}",
        )
    },
)
class Rand(NamedTuple):
    """Give up a tuple chosen uniformly among all in the pool, newcomers included.

    The idea: what a system does that knows nothing of its tuples; the bar for all others.

    Cost: O(1) expected per victim: slots are drawn until one is taken, and most are.

    References: das2003 §4 (RAND).
    """

    state: rng.State

    @classmethod
    def make(cls, setting: Setting, at: object) -> "Rand | Thin":
        """Return the policy; thinning the input is a policy of its own shape."""
        state = rng.seeded(setting.seed)
        return Thin(state) if at == "input" else cls(state)

    def victim(self, windows: Windows, side: int) -> int:
        """Draw slots until one holds a tuple of the pool."""
        slots = windows.marks[SLOTS]
        prefetch(windows.link, rng.ahead(self.state, slots, 9))
        ask_for_neighbours(windows, rng.ahead(self.state, slots, 6))
        ask_for_entry(windows, rng.ahead(self.state, slots, 3))
        while True:
            slot = rng.below(self.state, slots)
            bunch = windows.link[slot, BUNCH]
            if bunch >= 0 and (side < 0 or (bunch & 1) == side):
                return slot


@ranked("tuple")
class Thin(NamedTuple):
    """Give up the tuple that drew the smallest number on arrival.

    The idea: what is kept is a uniform sample of the window's arrivals, and a tuple that got in mostly stays for
    its whole life: the reading of "drop arrivals at random" that needs no knowledge of the rate.

    Cost: O(log tuples) per tuple.

    References: das2003 §4 ("dropping tuples randomly from the join input buffers").
    """

    state: rng.State

    def score(self, windows: Windows, side: int, slot: int, clock: int) -> float:  # noqa: ARG002
        """Return the number that belongs to the tuple under this seed."""
        return rng.unit(self.state[0], 2 * wide(windows.stamp[slot, ROW]) + side)
