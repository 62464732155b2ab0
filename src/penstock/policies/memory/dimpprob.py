"""DIMPPROB: keep the tuples with the largest importance times matches, counted anew at every tick."""

from typing import NamedTuple

from penstock.core.hooks import ranked
from penstock.core.jit import wide
from penstock.core.windows import BUNCH, WORTH, Windows, importance_of, key_of
from penstock.policies import statistics as stats
from penstock.policies.registry import Option, Setting, shed_policy


def check_matches(value: object) -> str | None:
    """Complain about a `statistics` option that says nothing of matches."""
    return None if value == "memory" else stats.check_source(value)


@shed_policy(
    "dimpprob",
    paper="importance2006",
    cost="O(log tuples), amortised",
    options={
        "statistics": Option(
            "memory",
            'what counts as a match: a partner in "memory", or as for `prob`',
            check_matches,
        ),
        "half_life": stats.OPTIONS["half_life"],
    },
)
@ranked("key", within="importance")
class Dimpprob(NamedTuple):
    """Give up the tuple with the smallest importance x matches, as they are at this tick.

    The idea: SIMPPROB with matches that are never out of date. Ties as SIMPPROB.

    Cost: O(log tuples) per tuple, amortised, where the paper looks at all of memory: matches are the same for all
    tuples of a key and side, so the order is kept over keys, and each key keeps its own tuples by importance.

    Departures: where windows wait for late rows, a partner in memory counts as long as it is there.

    References: importance2006 §4.3 (DIMPPROB).
    """

    statistics: stats.Statistics

    @classmethod
    def make(cls, setting: Setting, statistics: object, half_life: object) -> "Dimpprob":
        """Return the policy with nothing counted."""
        return cls(stats.make(setting, statistics, half_life))

    def weigh_held(self, side: int, code: int, held: int) -> float:
        """Return how many partners the tuples of a key have."""
        if self.statistics.kind == stats.HELD:
            return float(held)
        return stats.weight(self.statistics, 1 - side, code)

    def scale(self, side: int) -> float:
        """Turn counts into shares; partners are counted as they are."""
        if self.statistics.kind in (stats.HELD, stats.WINDOW):
            return 1.0
        return 1.0 / max(self.statistics.total[1 - side], 1e-300)

    def tie(self, windows: Windows, side: int, slot: int) -> float:
        """Return what decides between equal products: importance, and where that is nothing, matches."""
        key = key_of(wide(windows.link[slot, BUNCH]))
        return stats.tie(importance_of(windows, slot), windows.worth[key, WORTH + side])

    def lost(self) -> tuple[bool, int]:
        """Name the key that was forgotten to count the last arrival."""
        return stats.lost(self.statistics)

    def arrive(self, side: int, code: int, clock: int) -> None:
        """Count an arrival."""
        stats.note(self.statistics, side, code, clock)

    def forget(self, side: int, clock: int) -> tuple[bool, int]:
        """Forget an arrival that left the window."""
        return stats.age(self.statistics, side, clock)

    def foresee(self, code: int) -> None:
        """Ask for the counts of a key that is soon to come."""
        stats.foresee(self.statistics, code)

    def tidy(self, windows: Windows, side: int, clock: int) -> bool:  # noqa: ARG002
        """Bring counts back to the present now and then."""
        return stats.tidy(self.statistics, side, clock)
