"""DGL: keep the tuples that have brought most lately; each gains with its output and loses without."""

import math
from typing import Any, NamedTuple

import numpy as np

from penstock.core.hooks import ranked
from penstock.core.jit import part, wide
from penstock.core.windows import (
    BUNCH,
    CLOCK,
    COUNT,
    POS,
    SLOTS,
    TICK,
    Floats,
    Ints,
    Windows,
    importance_of,
    moment_of,
    tuple_at,
)
from penstock.policies import statistics as stats
from penstock.policies.registry import Option, Setting, shed_policy

PRIORITY, REWARDED = 0, 1  # columns of merit: as of the first tick, and the latest tick that brought a gain
FIRST, LATEST, MOVED = 0, 1, 2  # columns of `clock`
NEVER = -1.0
LEAST = 0.5  # what is left of a priority after a tick without output, in windows however short
LARGE = 512.0  # powers of two that priorities may grow by before they are brought back
MOST = 4096.0
UNSET = np.iinfo(np.int64).min


def check_constant(value: object) -> str | None:
    """Complain about a constant that is no positive number."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
    return None if good else "give a number above 0"


@shed_policy(
    "dgl",
    paper="importance2006",
    cost="O(log tuples)",
    options=stats.MATCHED
    | {
        "gain": Option(
            1.0, "what a tick with output adds: gain x importance x matches x remaining/span", check_constant
        ),
        "loss": Option(4.0, "what a tick without output takes: the share loss/span, at most half", check_constant),
    },
)
@ranked("tuple")
class Dgl(NamedTuple):
    """Give up the tuple with the smallest priority, which rises with its output and sinks without.

    The idea: a tuple begins with its importance. At a tick that brings it a partner it gains importance x matches x
    (share of its life that is left), at any other it loses a constant share. So what was useful stays, and less so
    with age. Ties: the older leaves, then left before right.

    Cost: O(log tuples) per victim and O(1) per pair: the loss is the same share for all, so it is kept once, as
    what a priority of 1 that begins now would be worth at the start; only tuples that met somebody are touched.

    Departures: the paper gives no constants; with these its ranking appears. In a window so short that loss/span is
    more than a half, a half is lost. In windows of rows a tick of a side is a row of it. A row that comes late
    brings no gain.

    References: importance2006 §4.3 (DGL).
    """

    statistics: stats.Statistics
    ticks: Ints  # [ticks so far]
    clock: Ints  # (side, [first clock, latest clock, 1 if it moved at this tick])
    scaled: Floats  # (side,) powers of two that priorities were brought back by
    fresh: Floats  # (side,) what a priority of 1 that begins now is at the start
    grows: Floats  # (side,) what a tick without loss is worth
    span: Ints
    gain: float

    @classmethod
    def make(cls, setting: Setting, statistics: object, gain: Any, loss: Any) -> "Dgl":
        """Return the policy with nothing counted."""
        return cls(
            statistics=stats.make(setting, statistics),
            ticks=np.zeros(1, np.int64),
            clock=np.full((2, 3), UNSET),
            scaled=np.zeros(2),
            fresh=np.ones(2),
            grows=1.0 / np.maximum(1.0 - float(loss) / setting.span, LEAST),
            span=setting.span,
            gain=float(gain),
        )

    def tidy(self, windows: Windows, side: int, clock: int) -> bool:  # noqa: ARG002
        """Move on to a tick: all of the other side lose; says whether its priorities were brought back."""
        other = 1 - side
        self.ticks[0] += side
        now, mine = windows.marks[CLOCK + other], self.clock[other]
        if mine[FIRST] == UNSET:
            mine[FIRST] = now
        mine[MOVED] = int(now != mine[LATEST])
        mine[LATEST] = now
        power = math.log2(self.grows[other]) * (now - mine[FIRST]) - self.scaled[other]
        back = math.floor(power / LARGE) * LARGE if power > LARGE else 0.0
        self.fresh[other] = 2.0 ** (power - back)
        self.scaled[other] += back
        if back > 0.0:
            for slot in range(windows.marks[SLOTS]):
                if windows.link[slot, BUNCH] >= 0 and (windows.link[slot, BUNCH] & 1) == other:
                    windows.merit[slot, PRIORITY] = math.ldexp(windows.merit[slot, PRIORITY], -int(min(back, MOST)))
        return back > 0.0

    def admit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Begin with the importance."""
        windows.merit[slot, PRIORITY] = importance_of(windows, slot) * self.fresh[side]
        windows.merit[slot, REWARDED] = NEVER

    def credit(self, windows: Windows, side: int, slot: int, clock: int) -> None:  # noqa: ARG002
        """Let a newcomer and all whom it met gain, each once a tick."""
        other = wide(windows.link[slot, BUNCH]) ^ 1
        for entry in range(windows.runs[other, COUNT]):
            partner = tuple_at(windows, other, entry)
            if partner >= 0:
                reward(self, windows, 1 - side, partner)
                reward(self, windows, side, slot)

    def score(self, windows: Windows, side: int, slot: int, clock: int) -> float:  # noqa: ARG002
        """Return the priority, as of the start."""
        return windows.merit[slot, PRIORITY]

    def scale(self, side: int) -> float:
        """Bring priorities to the present."""
        return 1.0 / self.fresh[side]

    def arrive(self, side: int, code: int, clock: int) -> None:
        """Count an arrival."""
        stats.note(self.statistics, side, code, clock)

    def forget(self, side: int, clock: int) -> tuple[bool, int]:
        """Forget an arrival that left the window."""
        return stats.age(self.statistics, side, clock)


@part
def reward(policy: Dgl, windows: Windows, side: int, slot: int) -> None:
    """Let a tuple gain, once a tick; what the tick took from it is given back, unless it came just now."""
    if windows.merit[slot, REWARDED] == policy.ticks[0]:
        return
    windows.merit[slot, REWARDED] = policy.ticks[0]
    span, clock = policy.span[side], windows.marks[CLOCK + side]
    remaining = max(windows.stamp[slot, POS] + span - 1 - clock, 0)
    found = stats.matches(policy.statistics, windows, side, slot)
    gain = policy.gain * importance_of(windows, slot) * found * remaining / span
    kept = windows.merit[slot, PRIORITY]
    if policy.clock[side, MOVED] == 1 and moment_of(windows, slot) != windows.marks[TICK]:
        kept *= policy.grows[side]
    windows.merit[slot, PRIORITY] = kept + gain * policy.fresh[side]
