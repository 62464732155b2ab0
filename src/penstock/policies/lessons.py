"""Learn from a sample of the keys how fast counts should fade, and at which ages partners come.

Which half-life is best is asked of small shadows of the join, one for each half-life. A shadow keeps the tuples whose
key it deems likely enough; its *price*, how likely that is, follows the share of arrivals that memory has room for.
What a shadow would have met lately is its *gain*.

At which ages partners come is counted from the latest arrival of each key and side, kept or not, so that what was
given up does not hide what it would have met. Partners at an age beyond what the key's frequency foretells, and
beyond what chance explains, are a *lift*; a tuple is worth the best average of it per tick that it can still reach.

Keys are sampled by a hash: as many as fit `CELLS`, whole keys, so that all of a key's arrivals are seen or none.
"""

import math
from typing import NamedTuple

import numpy as np

from penstock.core.jit import borrowed, outlined, part, wide
from penstock.core.rng import GOLDEN, mixed
from penstock.core.windows import Floats, Ints
from penstock.policies.registry import Setting

LIVES = np.array([0.125, 0.5, 2.0, 8.0])  # half-lives to choose from, in spans; each is four times the one before
FIRST = 2  # the one to begin with
STAYS = LIVES[1] / 2  # half-life of what a shadow holds, in spans: it stands for tuples that leave after one
CELLS, STRETCH = 4096, 8
CLASSES = 64  # of age, as wide as each other
PACE = 0.05  # of prices
LEAST_PRICE = 1e-12
FEW, ENOUGH = 32, 256  # arrivals between two lessons: of the sample for it to be large enough, and of all
LESSONS = 8  # a span, at most
KEPT_GAIN = 2.0 ** (-1 / 64)  # a lesson: half is left after eight spans
KEPT = 2.0 ** (-1 / 32)
DOUBT, SLACK = 4.0, 0.1  # what is no chance: so many deviations, and so large a share, more than foretold
BETTER = 1.002  # what another half-life must bring to be taken
IDLE = 2  # spans after which a key makes room for another
LARGE = 512  # halves of the shortest life after which weights are brought back
LEVEL, CHOSEN, CAME, SAMPLED, NEXT, LIFTED = range(6)  # entries of `marks`
UNSET = np.iinfo(np.int64).min


class Lessons(NamedTuple):
    """What was learned, and the sample it is learned from."""

    code: Ints  # cell -> code of the key it belongs to
    last: Ints  # (cell, side) -> clock of its latest arrival, or UNSET
    share: Floats  # (cell, side) -> how likely a partner was then
    weight: Floats  # (cell, side, life) -> arrivals
    held: Floats  # (cell, side, life) -> tuples that the shadow keeps
    total: Floats  # (side, life)
    fresh: Floats  # (side, life) what an arrival weighs now
    stays: Floats  # (side,) what a tuple in a shadow weighs now
    price: Floats  # (life,)
    gain: Floats  # (life,)
    steps: Floats  # [what a price is multiplied by when a tuple is not kept, and when it is]
    hits: Floats  # (side, class) -> partners that came at that age of the latest arrival
    ended: Floats  # (side, class) -> latest arrivals that another followed at that age; the last: later than the span
    ended_share: Floats  # the same, each times how likely a partner was
    began: Floats  # (side,) -> arrivals in the sample
    began_share: Floats
    came: Floats  # (side,) -> arrivals
    passed: Floats  # (side,) -> ticks
    pace: Floats  # (side,) -> arrivals on that side, relative to the mean of both
    lift: Floats  # (side, class) -> partners per tick beyond what the key foretells, at best from that age on
    start: Floats  # [how much of what came first is not yet forgotten]
    clock: Ints  # (side, [latest, as of which weights begin, as of which `fresh` and `stays` are])
    marks: Ints
    span: Ints
    longest: int


def make(setting: Setting) -> Lessons:
    """Return lessons with nothing learned."""
    lives = LIVES.size
    marks = np.zeros(6, np.int64)
    marks[CHOSEN], marks[NEXT] = FIRST, UNSET
    return Lessons(
        code=np.zeros(CELLS, np.int64),
        last=np.full((CELLS, 2), UNSET),
        share=np.zeros((CELLS, 2)),
        weight=np.zeros((CELLS, 2, lives)),
        held=np.zeros((CELLS, 2, lives)),
        total=np.zeros((2, lives)),
        fresh=np.ones((2, lives)),
        stays=np.ones(2),
        price=np.full(lives, LEAST_PRICE),
        gain=np.zeros(lives),
        steps=np.ones(2),
        hits=np.zeros((2, CLASSES)),
        ended=np.zeros((2, CLASSES + 1)),
        ended_share=np.zeros((2, CLASSES + 1)),
        began=np.zeros(2),
        began_share=np.zeros(2),
        came=np.zeros(2),
        passed=np.zeros(2),
        pace=np.ones(2),
        lift=np.zeros((2, CLASSES)),
        start=np.ones(1),
        clock=np.full((2, 3), UNSET),
        marks=marks,
        span=setting.span,
        longest=int(setting.span.max()),
    )


@part
def class_of(lessons: Lessons, side: int, age: int) -> int:
    """Return the class of an age, CLASSES if it is beyond the span."""
    span = lessons.span[side]
    return wide(CLASSES) if age >= span else wide(int(CLASSES * (max(age, 0) / span)))


@part
def pass_time(lessons: Lessons, side: int, clock: int) -> float:
    """Move on to a clock; returns how many half-lives of those chosen have passed."""
    mine = lessons.clock[side]
    if mine[0] == UNSET:
        mine[:] = clock
        return 0.0
    ticks = clock - mine[0]
    if ticks <= 0:
        return 0.0
    mine[0] = clock
    lessons.passed[side] += ticks
    return ticks / (LIVES[lessons.marks[CHOSEN]] * lessons.longest)


@part
def freshen(lessons: Lessons, side: int) -> None:
    """Bring what an arrival weighs up to the latest clock."""
    mine = lessons.clock[side]
    if mine[2] == mine[0]:
        return
    if (mine[0] - mine[1]) / lessons.longest >= LARGE * LIVES[0]:
        bring_back(lessons, side)
    mine[2] = mine[0]
    fresh = lessons.fresh[side]
    fresh[-1] = 2.0 ** ((mine[0] - mine[1]) / (LIVES[-1] * lessons.longest))
    for life in range(LIVES.size - 2, -1, -1):
        fresh[life] = fresh[life + 1] ** 4
    lessons.stays[side] = fresh[1] ** 2


@part
def bring_back(lessons: Lessons, side: int) -> None:
    """Let the weights of a side begin at its latest clock. O(CELLS)."""
    since = (lessons.clock[side, 0] - lessons.clock[side, 1]) / lessons.longest
    lessons.clock[side, 1] = lessons.clock[side, 0]
    for life in range(LIVES.size):
        left = 2.0 ** -(since / LIVES[life])
        lessons.weight[:, side, life] *= left
        lessons.total[side, life] *= left
    lessons.held[:, side] *= 2.0 ** -(since / STAYS)


@part
def sampled(lessons: Lessons, code: int) -> bool:
    """Say whether a key is in the sample."""
    lot = mixed(np.uint64(code) ^ GOLDEN)
    return (wide(lot >> np.uint64(20)) & ((1 << lessons.marks[LEVEL]) - 1)) == 0


@part
def clear(lessons: Lessons, cell: int) -> None:
    """Free a cell."""
    lessons.last[cell] = UNSET
    lessons.weight[cell] = 0.0
    lessons.held[cell] = 0.0


@part
def idle(lessons: Lessons, cell: int) -> bool:
    """Say whether a cell belongs to nobody, or to a key that did not come for long."""
    for side in range(2):
        last = lessons.last[cell, side]
        if last != UNSET and lessons.clock[side, 0] - last < IDLE * lessons.longest:
            return False
    return True


@part
def cell_of(lessons: Lessons, code: int) -> int:
    """Return the cell of a key in the sample, or -1: there was none, so the sample was halved."""
    start = wide(mixed(np.uint64(code)) & np.uint64(CELLS - 1))
    room = wide(-1)
    for step in range(STRETCH):
        cell = (start + step) & (CELLS - 1)
        if lessons.code[cell] == code:
            return cell
        if room < 0 and idle(lessons, cell):
            room = cell
    if room >= 0:
        clear(lessons, room)
        lessons.code[room] = code
        return room
    halve(lessons)
    return wide(-1)


@part
def halve(lessons: Lessons) -> None:
    """Leave half of the keys out of the sample, and half of what was counted of ages. O(CELLS)."""
    lessons.marks[LEVEL] += 1
    for cell in range(CELLS):
        if not sampled(lessons, lessons.code[cell]):
            lessons.total[:] -= lessons.weight[cell]
            clear(lessons, cell)
    for counts in (lessons.hits, lessons.ended, lessons.ended_share):
        counts[:] /= 2.0
    for counts in (lessons.began, lessons.began_share):
        counts[:] /= 2.0


@part
def note(lessons: Lessons, side: int, code: int) -> None:
    """Learn from an arrival. O(lives) if its key is in the sample, else O(1)."""
    lessons.came[side] += 1.0
    lessons.marks[CAME] += 1
    if sampled(lessons, code):
        learn(lessons, side, code)


@outlined
def learn(lessons: Lessons, side: int, code: int) -> None:
    """Learn from an arrival whose key is in the sample."""
    lessons = borrowed(lessons)
    cell = cell_of(lessons, code)
    if cell < 0:
        return
    lessons.marks[SAMPLED] += 1
    for each in range(2):
        freshen(lessons, each)
    learn_ages(lessons, side, cell)
    learn_lives(lessons, side, cell)


@part
def learn_ages(lessons: Lessons, side: int, cell: int) -> None:
    """Note at what age an arrival meets the latest of the other side, and follows the latest of its own."""
    other, chosen = 1 - side, lessons.marks[CHOSEN]
    before = lessons.last[cell, other]
    if before != UNSET:
        at = class_of(lessons, other, lessons.clock[other, 0] - before)
        if at < CLASSES:
            lessons.hits[other, at] += 1.0
    before = lessons.last[cell, side]
    if before != UNSET:
        at = class_of(lessons, side, lessons.clock[side, 0] - before)
        lessons.ended[side, at] += 1.0
        lessons.ended_share[side, at] += lessons.share[cell, side]
    share = 0.0
    if lessons.total[other, chosen] > 0.0:
        share = lessons.weight[cell, other, chosen] / lessons.total[other, chosen]
    lessons.last[cell, side] = lessons.clock[side, 0]
    lessons.share[cell, side] = share
    lessons.began[side] += 1.0
    lessons.began_share[side] += share


@part
def learn_lives(lessons: Lessons, side: int, cell: int) -> None:
    """Let an arrival meet what each shadow holds, and enter it."""
    other = 1 - side
    weight, held, total, price = lessons.weight[cell], lessons.held[cell], lessons.total, lessons.price
    for life in range(LIVES.size):
        if total[side, life] > 0.0:
            if weight[side, life] * lessons.pace[side] >= price[life] * total[side, life]:
                lessons.gain[life] += held[other, life] / lessons.stays[other]
            else:
                held[other, life] = 0.0
        weight[side, life] += lessons.fresh[side, life]
        total[side, life] += lessons.fresh[side, life]
        if total[other, life] > 0.0:
            kept = weight[other, life] * lessons.pace[other] >= price[life] * total[other, life]
            held[side, life] = held[side, life] + lessons.stays[side] if kept else 0.0
            price[life] = max(price[life] * lessons.steps[1 if kept else 0], LEAST_PRICE)


@part
def lesson(lessons: Lessons, held: int) -> None:
    """Draw conclusions now and then.

    Parameters:
        held: tuples in memory.
    """
    marks, clock = lessons.marks, lessons.clock
    if clock[0, 0] == UNSET or clock[1, 0] == UNSET:
        return
    now = clock[0, 0] // 2 + clock[1, 0] // 2
    if marks[NEXT] == UNSET:
        marks[NEXT] = now + lessons.longest // LESSONS
    if now >= marks[NEXT] and marks[CAME] >= ENOUGH:
        marks[NEXT] = now + lessons.longest // LESSONS
        conclude(lessons, held)


@outlined
def conclude(lessons: Lessons, held: int) -> None:
    """Say how fast the sides are, which half-life is best, and what each age is worth."""
    lessons = borrowed(lessons)
    marks = lessons.marks
    if marks[SAMPLED] < FEW and marks[LEVEL] > 0:
        marks[LEVEL] -= 1
    marks[CAME] = marks[SAMPLED] = marks[LIFTED] = 0
    choose_life(lessons)
    set_steps(lessons, held)
    for side in range(2):
        lift_ages(lessons, side)
    lessons.gain[:] *= KEPT_GAIN
    lessons.hits[:] *= KEPT
    lessons.ended[:] *= KEPT
    lessons.ended_share[:] *= KEPT
    lessons.began[:] *= KEPT
    lessons.began_share[:] *= KEPT
    lessons.came[:] *= KEPT
    lessons.passed[:] *= KEPT
    lessons.start[0] *= KEPT


@part
def choose_life(lessons: Lessons) -> None:
    """Take the half-life whose shadow gained most, if that is noticeably more than the present one's."""
    best, most = wide(lessons.marks[CHOSEN]), BETTER * lessons.gain[lessons.marks[CHOSEN]]
    for life in range(LIVES.size):
        if lessons.gain[life] > most:
            best, most = wide(life), lessons.gain[life]
    lessons.marks[CHOSEN] = best


@part
def set_steps(lessons: Lessons, held: int) -> None:
    """Let prices rest where as large a share of arrivals is kept as memory has room for; note how fast sides are."""
    need = 0.0
    for side in range(2):
        need += lessons.came[side] * min(1.0, lessons.span[side] / max(lessons.passed[side], 1.0))
        lessons.pace[side] = 2.0 * (lessons.came[side] + FEW) / (lessons.came[0] + lessons.came[1] + 2 * FEW)
    room = min(1.0, held / max(need, 1.0))
    lessons.steps[0] = math.exp(-PACE * room)
    lessons.steps[1] = math.exp(PACE * (1.0 - room))


@part
def lift_ages(lessons: Lessons, side: int) -> None:
    """Work out how many partners each age brings beyond what keys foretell, and the best average from it on.

    Keys foretell too little of those they hardly know. That is the same at every age, so the mean does not count. At
    the start of a stream few have lived to an old age: of what came in a time T, a share of 1 - age / T.
    """
    lift, hits = lessons.lift[side], lessons.hits[side]
    ended, ended_share = lessons.ended[side], lessons.ended_share[side]
    width = lessons.span[side] / CLASSES
    passed = max(lessons.passed[side], 1.0)
    rate = width * lessons.began[1 - side] / passed
    flat, found = 0.0, False
    for again in range(2):
        left, left_share, all_seen, all_more = lessons.began[side], lessons.began_share[side], 0.0, 0.0
        for at in range(CLASSES):
            lived = max(1.0 - lessons.start[0] * (at + 0.5) * width / passed, 0.0)
            seen = max(left - ended[at] / 2, 0.0) * lived
            foretold = max(left_share - ended_share[at] / 2, 0.0) * lived * rate + flat * seen
            left -= ended[at]
            left_share -= ended_share[at]
            more = hits[at] - foretold
            all_seen += seen
            all_more += more
            sure = again == 1 and seen > 1.0 and more > DOUBT * math.sqrt(foretold + 1.0) + SLACK * foretold
            lift[at] = more / (seen * width) if sure else 0.0
            found = found or sure
        flat = max(all_more, 0.0) / max(all_seen, 1.0)
    if not found:
        return
    lessons.marks[LIFTED] = 1
    for at in range(CLASSES):
        total, best = 0.0, 0.0
        for until in range(at, CLASSES):
            total += lift[until]
            best = max(best, total / (until - at + 1))
        lift[at] = best


@part
def partners(lessons: Lessons, side: int, share: float) -> float:
    """Return the partners per tick of a tuple whose key is such a share of the other side's arrivals."""
    return share * lessons.came[1 - side] / max(lessons.passed[side], 1.0)


@part
def lift_of(lessons: Lessons, side: int, age: int) -> float:
    """Return the partners per tick that an age brings beyond what the key foretells, at best from it on."""
    return lessons.lift[side, min(class_of(lessons, side, age), CLASSES - 1)]
