"""LIFE: keep the tuples with the most expected matches in the time they have left."""

from typing import NamedTuple

from penstock.core.hooks import ranked
from penstock.core.windows import Windows
from penstock.policies import statistics as stats
from penstock.policies.registry import Setting, shed_policy


@shed_policy("life", paper="das2003", cost="O(log keys), amortised", options=stats.OPTIONS)
@ranked("key", fades=1)
class Life(NamedTuple):
    """Give up the tuple with the smallest (remaining life) x (chance of a partner per tick).

    The idea: expected output over the rest of a tuple's life, as if it would stay that long. Among the tuples of
    one key and side the oldest always has the least, so only it can be the victim. Ties as PROB.

    Cost: a victim costs O(log keys); keys overtake each other as time passes, and each overtaking costs another
    O(log keys) when it happens.

    Departures: in windows of rows the remaining life is counted in rows of the tuple's own side.

    References: das2003 §3.3.2.
    """

    statistics: stats.Statistics

    @classmethod
    def make(cls, setting: Setting, statistics: object, half_life: object) -> "Life":
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
