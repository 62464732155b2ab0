"""PROB: keep the tuples whose key is most likely to arrive on the other side."""

from typing import NamedTuple

from penstock.core.hooks import ranked
from penstock.core.windows import Windows
from penstock.policies import statistics as stats
from penstock.policies.registry import Setting, shed_policy


@shed_policy("prob", paper="das2003", cost="O(log keys)", options=stats.OPTIONS)
@ranked("key")
class Prob(NamedTuple):
    """Give up the tuple whose key is least likely to arrive on the other side.

    The idea: a tuple's expected output per tick is the chance that its key arrives on the other side; holding on
    to the best, whatever their age, keeps that sum largest. Ties: the older leaves, then left before right.

    Cost: O(log keys) per victim and per arrival whose key has partners in memory. The order is kept over keys,
    not tuples, so one arrival moves one entry however many tuples share its key.

    References: das2003 §3.3.1.
    """

    statistics: stats.Statistics

    @classmethod
    def make(cls, setting: Setting, statistics: object, half_life: object) -> "Prob":
        """Return the policy with empty statistics."""
        return cls(stats.make(setting, statistics, half_life))

    def weigh(self, side: int, code: int) -> float:
        """Return how often the key came on the other side."""
        return stats.weight(self.statistics, 1 - side, code)

    def scale(self, side: int) -> float:
        """Turn counts into shares."""
        return 1.0 / max(self.statistics.total[1 - side], 1e-300)

    def arrive(self, side: int, code: int, clock: int) -> None:
        """Count an arrival."""
        stats.note(self.statistics, side, code, clock)

    def lost(self) -> tuple[bool, int]:
        """Name the key that was forgotten to count the last arrival."""
        return stats.lost(self.statistics)

    def forget(self, side: int, clock: int) -> tuple[bool, int]:
        """Forget an arrival that left the window."""
        return stats.age(self.statistics, side, clock)

    def foresee(self, code: int) -> None:
        """Ask for the counts of a key that is soon to come."""
        stats.foresee(self.statistics, code)

    def tidy(self, windows: Windows, side: int, clock: int) -> bool:  # noqa: ARG002
        """Bring counts back to the present now and then."""
        return stats.tidy(self.statistics, side, clock)
