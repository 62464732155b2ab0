"""REPLAY: play a given schedule of who stays until when."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from penstock.core.hooks import ranked
from penstock.core.jit import wide
from penstock.core.windows import BUNCH, ROW, Ints, Windows
from penstock.errors import PolicyError
from penstock.policies.registry import Option, Setting, shed_policy

FIELDS = ("side", "row", "until")
SIDES = {"left": 0, "right": 1, 0: 0, 1: 1}


def check_schedule(value: object) -> str | None:
    """Complain about a schedule without the three columns."""
    if isinstance(value, Mapping) and all(name in value for name in FIELDS):
        return None
    return "give a mapping of columns (or table.to_pydict()) with side, row, until"


@shed_policy(
    "replay",
    paper="das2003",
    cost="O(log tuples)",
    options={
        "schedule": Option(
            None,
            'columns side ("left" or "right"), row (number within the side) and until (last tick in memory)',
            check_schedule,
        )
    },
)
@ranked("tuple")
class Replay(NamedTuple):
    """Keep each tuple through the tick its schedule names, and not longer; unlisted rows are not kept.

    The idea: the optimum's schedule, replayed through the same join as every other policy, must produce what it
    claims. If a schedule asks for more than the budget, those with the earliest end leave first.

    Cost: O(log tuples) per tuple.

    References: das2003 §3.2 (the offline optimum decides when each tuple leaves).
    """

    until: Ints  # (side, row)

    @classmethod
    def make(cls, setting: Setting, schedule: Any) -> "Replay":  # noqa: ARG003
        """Lay the schedule out by side and row."""
        if schedule is None:
            raise PolicyError("schedule", "nothing", f"replay needs one: {check_schedule(None)}")
        unknown = [word for word in schedule["side"] if word not in SIDES]
        if unknown:
            raise PolicyError("schedule.side", repr(unknown[0]), 'write "left" or "right"')
        side = np.array([SIDES[word] for word in schedule["side"]], np.int64)
        row = np.asarray(schedule["row"], np.int64)
        end = np.asarray(schedule["until"], np.int64)
        until = np.full((2, int(row.max(initial=-1)) + 1), np.iinfo(np.int64).min, np.int64)
        until[side, row] = end
        return cls(until)

    def score(self, windows: Windows, side: int, slot: int, clock: int) -> float:  # noqa: ARG002
        """Return the last tick in memory."""
        row = windows.stamp[slot, ROW]
        return float(self.until[side, row]) if row < self.until.shape[1] else -np.inf

    def due(self, windows: Windows, slot: int, tick: int) -> bool:
        """Leave at the end of the last tick."""
        row = windows.stamp[slot, ROW]
        if row >= self.until.shape[1]:
            return True
        return bool(self.until[wide(windows.link[slot, BUNCH]) & 1, row] <= tick)
