"""SIMPPROB: keep the tuples with the largest importance times matches, counted once."""

from typing import NamedTuple

from penstock.core.hooks import ranked
from penstock.core.windows import Windows, importance_of
from penstock.policies import statistics as stats
from penstock.policies.registry import Option, Setting, shed_policy

PRIORITY, MATCHES = 0, 1  # columns of merit
UNKNOWN = -1.0
BY = ("product", "matches")


@shed_policy(
    "simpprob",
    paper="importance2006",
    cost="O(log tuples)",
    options=stats.MATCHED
    | {
        "by": Option(
            "product",
            '"product": importance times matches; "matches": matches alone, which that paper calls PROB',
            lambda value: None if value in BY else f"give one of {', '.join(map(repr, BY))}",
        )
    },
)
@ranked("tuple")
class Simpprob(NamedTuple):
    """Give up the tuple with the smallest importance x matches, as counted at the tick it came.

    The idea: what a tuple will bring is what it is worth times how often it meets somebody, and the partners there
    are when it comes say how often that will be. Ties: the less important leaves, then the one with fewer matches,
    then the older, then left before right.

    Cost: O(log tuples) per tuple.

    Departures: a row that comes late counts the partners there are when it comes, not at the end of the tick. Where
    windows wait for late rows, a partner in memory counts as long as it is there.

    References: importance2006 §4.3 (SIMPPROB); §5.2 for PROB as it is read there.
    """

    statistics: stats.Statistics
    blind: int  # 1: importance does not count

    @classmethod
    def make(cls, setting: Setting, statistics: object, by: object) -> "Simpprob":
        """Return the policy with nothing counted."""
        return cls(stats.make(setting, statistics), int(by == "matches"))

    def admit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Count the partners there are now; those of the tick are counted again when it ends."""
        found = stats.matches(self.statistics, windows, side, slot)
        windows.merit[slot, PRIORITY] = found if self.blind else importance_of(windows, slot) * found
        windows.merit[slot, MATCHES] = UNKNOWN

    def credit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Count the partners, once."""
        if windows.merit[slot, MATCHES] == UNKNOWN:
            found = stats.matches(self.statistics, windows, side, slot)
            windows.merit[slot, PRIORITY] = found if self.blind else importance_of(windows, slot) * found
            windows.merit[slot, MATCHES] = found

    def score(self, windows: Windows, side: int, slot: int, clock: int) -> float:  # noqa: ARG002
        """Return importance times matches."""
        return windows.merit[slot, PRIORITY]

    def tie(self, windows: Windows, side: int, slot: int) -> float:  # noqa: ARG002
        """Return what decides between equal products: importance, and where that is nothing, matches."""
        if self.blind:
            return 0.0
        return stats.tie(importance_of(windows, slot), max(windows.merit[slot, MATCHES], 0.0))

    def arrive(self, side: int, code: int, clock: int) -> None:
        """Count an arrival."""
        stats.note(self.statistics, side, code, clock)

    def forget(self, side: int, clock: int) -> tuple[bool, int]:
        """Forget an arrival that left the window."""
        return stats.age(self.statistics, side, clock)
