"""ARM: give up whole keys, so that as few tuples as possible miss a partner."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.hooks import ranked
from penstock.core.jit import borrowed, outlined, part, wide
from penstock.core.windows import BUNCH, CLOCK, CODE, COUNT, LIVE, Floats, Ints, Windows, key_of, tuple_at
from penstock.policies import sacrifices
from penstock.policies import statistics as stats
from penstock.policies.registry import Option, Setting, shed_policy
from penstock.policies.sacrifices import BOTH, CELL, Flow, Offers

HALF_LIVES = 8  # in spans
TURNS = 8  # choices in a span
BETTER = 0.9  # a new choice must harm fewer than that share of what the present one does
PARTLY, NEW = 0.75, 1.0  # between what is given up and what is kept: what is used in part, and unknown keys
SPARE = 0.35  # standard deviations of what is kept, that must be free before more is
DOUBT = 0.1  # arrivals to be expected on a side on which a key was not seen
UNSET = np.iinfo(np.int64).min
# entries of `notes`; those from SINCE on are one per side
SHED, FULL, ROOM, TURN, OFFERS, SINCE, ARRIVED, ANEW = 0, 1, 2, 3, 4, 5, 7, 9


@shed_policy(
    "arm",
    paper="-",
    cost="O(log keys), amortised",
    options={
        "statistics": stats.OPTIONS["statistics"],
        "half_life": Option(
            None,
            f"after what time (as written for `window`) a decayed count weighs half; default {HALF_LIVES} spans",
        ),
    },
)
@ranked("key")
class Arm(NamedTuple):
    """Give up the tuples of as few keys as possible, so that the others miss nothing.

    The idea: a tuple that misses one partner must be completed from the archive, and one that misses ten no more
    than that. So damage is concentrated: some keys are given up, on one side or on both, and the others are kept
    whole. Which ones is chosen several times in a span (`sacrifices`), and kept as long as no other choice is clearly
    better, since every change damages what was whole. Of a key that is given up the newest leaves: the older may yet
    end their time whole.

    Cost: O(log keys) per victim; a choice costs O(keys log keys), a few times in a span, and not before as many rows
    came as there are keys.

    Departures: das2003 defines the metric and leaves a policy for it open. Where each side has a budget of its own,
    the choice is made as if both were one.

    References: das2003 §2.2 (archive metric); docs/refine.md.
    """

    statistics: stats.Statistics
    worth: Floats  # (cell, side): below 1 it is given up; NaN: nobody has chosen yet
    owner: Ints  # cell -> code of the key that the choice was about
    given: npt.NDArray[Any]  # (cell, side) -> 1: given up; (cell, 2) -> 1: both sides or none
    flow: Flow
    passed: Floats  # (side,) clock units in which `flow.came` came
    notes: Ints

    @classmethod
    def make(cls, setting: Setting, statistics: object, half_life: object) -> "Arm":
        """Return the policy with nothing given up."""
        counts = stats.make(setting, statistics, half_life, spans=HALF_LIVES)
        cells = counts.code.size
        notes = np.zeros(11, np.int64)
        notes[ROOM] = setting.limit
        notes[SINCE : SINCE + 2] = UNSET
        return cls(
            statistics=counts,
            worth=np.full((cells, 2), np.nan),
            owner=np.zeros(cells, np.int64),
            given=np.zeros((cells, 3), np.int8),
            flow=Flow(np.zeros(2), np.zeros((2, 2))),
            passed=np.zeros(2),
            notes=notes,
        )

    def weigh(self, side: int, code: int) -> float:
        """Return what was chosen for a key; one that nobody knew then comes after those that are given up."""
        cell = stats.find(self.statistics, code)
        if cell < 0:
            return NEW
        self.statistics.asked[cell] = 1
        return self.worth[cell, side] if chosen(self, cell, code) else NEW

    def arrive(self, side: int, code: int, clock: int) -> None:
        """Count an arrival."""
        self.notes[ARRIVED + side] += 1
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

    def tidy(self, windows: Windows, side: int, clock: int) -> bool:
        """Choose anew when it is time to; says whether that is so."""
        stats.tidy(self.statistics, side, clock)
        if side == 0 and is_time(self, windows):
            turn(self, windows)
        changed = self.notes[ANEW + side] == 1
        self.notes[ANEW + side] = 0
        return changed

    def rather(self, windows: Windows, side: int, slot: int) -> Any:  # noqa: ARG002
        """Return the newest tuple of the key; the key is given up from now on."""
        bunch = wide(windows.link[slot, BUNCH])
        code = windows.code[key_of(bunch), CODE]
        cell = stats.find(self.statistics, code)
        if cell >= 0 and chosen(self, cell, code):
            self.given[cell, bunch & 1] = 1
            if self.given[cell, BOTH] == 1:
                self.given[cell, 1 - (bunch & 1)] = 1
        self.notes[SHED] = 1
        return tuple_at(windows, bunch, wide(windows.runs[bunch, COUNT]) - 1)


@part
def chosen(policy: Arm, cell: int, code: int) -> bool:
    """Say whether the choice that a cell holds is about this key."""
    return bool(policy.owner[cell] == code and not np.isnan(policy.worth[cell, 0]))


@part
def is_time(policy: Arm, windows: Windows) -> bool:
    """Note how much fits, and say whether a part of a span has passed and enough rows came to choose anew."""
    notes, span = policy.notes, policy.statistics.span
    if notes[SHED] == 1:
        notes[SHED], notes[FULL] = 0, 1
        notes[ROOM] = windows.marks[LIVE] + windows.marks[LIVE + 1]
    if notes[SINCE] == UNSET:
        notes[SINCE], notes[SINCE + 1] = windows.marks[CLOCK], windows.marks[CLOCK + 1]
    late = False
    for side in range(2):
        part_of_span = max(span[side] // TURNS, 1)
        if notes[FULL] == 0:  # until memory is full, the first choices come early: at one tick, two, four ...
            part_of_span = min(part_of_span, notes[TURN])
        late = late or windows.marks[CLOCK + side] - notes[SINCE + side] >= max(part_of_span, 1)
    return bool(late and notes[ARRIVED] + notes[ARRIVED + 1] >= notes[OFFERS])


@outlined
def turn(policy: Arm, windows: Windows) -> None:
    """Choose what to give up from now on. O(keys log keys)."""
    policy, windows = borrowed(policy), borrowed(windows)
    notes = policy.notes
    note_flow(policy, windows)
    notes[TURN] += max(notes[TURN], 1)
    notes[ANEW : ANEW + 2] = 1
    offers = offers_of(policy, (windows.marks[CLOCK], windows.marks[CLOCK + 1]))
    notes[OFFERS] = offers.size[0]
    wanted = policy.flow.during[0, 0] + policy.flow.during[1, 1]
    need = max(wanted - notes[ROOM], 0.0)
    fresh = np.zeros(offers.size[0], np.bool_)
    fresh, used, harm = sacrifices.choose(offers, fresh, need, 0.0)
    if notes[FULL] == 1:
        spare = SPARE * np.sqrt(notes[ROOM] * need / max(wanted, 1.0))
        present, present_used, present_harm = sacrifices.choose(offers, present_choice(policy, offers), need, spare)
        if harm >= BETTER * present_harm:
            fresh, used = present, present_used
    enter(policy, offers, fresh, used)


@part
def note_flow(policy: Arm, windows: Windows) -> None:
    """Learn how many rows come in a span, the latest weighing most."""
    notes, span, flow = policy.notes, policy.statistics.span, policy.flow
    spans = 0.0
    for side in range(2):
        spans = max(spans, (windows.marks[CLOCK + side] - notes[SINCE + side]) / span[side])
    kept = 0.5 ** (spans / HALF_LIVES)
    for side in range(2):
        policy.passed[side] = kept * policy.passed[side] + (windows.marks[CLOCK + side] - notes[SINCE + side])
        flow.came[side] = kept * flow.came[side] + notes[ARRIVED + side]
        notes[SINCE + side] = windows.marks[CLOCK + side]
        notes[ARRIVED + side] = 0
    for side in range(2):
        for other in range(2):
            flow.during[side, other] = flow.came[side] * (span[other] / max(policy.passed[other], 1.0))


@part
def offers_of(policy: Arm, clock: tuple[int, int]) -> Offers:
    """Return what all keys have to offer."""
    statistics, seen = policy.statistics, policy.statistics.seen
    total = (max(statistics.total[0], 1e-300), max(statistics.total[1], 1e-300))
    doubt = (DOUBT * stats.unit(statistics, 0, clock[0]), DOUBT * stats.unit(statistics, 1, clock[1]))
    counted = 0
    for cell in range(statistics.code.size):
        counted += seen[cell, 0] + seen[cell, 1] > 0.0
    offers = sacrifices.make(counted)
    for cell in range(statistics.code.size):
        if seen[cell, 0] + seen[cell, 1] > 0.0:
            share = ((seen[cell, 0] + doubt[0]) / total[0], (seen[cell, 1] + doubt[1]) / total[1])
            sacrifices.offer(offers, cell, share, policy.flow)
    return offers


@part
def present_choice(policy: Arm, offers: Offers) -> npt.NDArray[Any]:
    """Return which offers are those that were taken before."""
    taken = np.zeros(offers.size[0], np.bool_)
    for i in range(taken.size):
        cell, side, kind = offers.what[i]
        if chosen(policy, cell, policy.statistics.code[cell]):
            taken[i] = policy.given[cell, side] == 1 or (kind == BOTH and policy.given[cell, 1 - side] == 1)
    return taken


@part
def enter(policy: Arm, offers: Offers, taken: npt.NDArray[Any], used: int) -> None:
    """Let scores say what was chosen: given up below 1, in the order of what that costs, and kept above."""
    few = 0.5 * np.sqrt(float(policy.notes[ROOM]))  # what may be too much by chance
    for i in range(offers.size[0]):
        cell = offers.what[i, CELL]
        policy.owner[cell] = policy.statistics.code[cell]
        policy.worth[cell, 0] = policy.worth[cell, 1] = 2.0
        policy.given[cell, 0] = policy.given[cell, 1] = policy.given[cell, 2] = 0
    for i in range(offers.size[0]):
        cell, side, kind = offers.what[i]
        worth = sacrifices.rate(offers, i)
        if not taken[i]:
            some = min(few, offers.price[i, sacrifices.FREED])
            worth = sacrifices.harm_of(offers, i, some) / max(some, 1e-300)
        worth /= 1.0 + worth
        worth = 1.0 + worth if not taken[i] else PARTLY if i == used else 0.5 * worth
        policy.worth[cell, side] = 0.999 * worth if kind == BOTH else worth
        policy.given[cell, side] = taken[i]
        if kind == BOTH:
            policy.worth[cell, 1 - side] = worth
            policy.given[cell, 1 - side] = taken[i]
            policy.given[cell, BOTH] = 1
