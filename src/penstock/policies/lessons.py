"""Learn from a sample of the keys how fast counts should fade, and at which ages partners come.

Which half-life is best is asked of small shadows of the join, one for each half-life. A shadow keeps the tuples whose
key it deems likely enough; its *price*, how likely that is, follows the share of arrivals that memory has room for.
What one would have met lately beyond what that of the present half-life did is its *lead*. One of them forgets almost
nothing, until arrivals are far more likely by what came lately than by its counts: then those are its counts.

At which ages partners come is counted from the latest arrival of each key and side, kept or not, so that what was
given up does not hide what it would have met. Partners at an age beyond what the key's frequency foretells, and
beyond what chance explains, are a *lift*; a tuple is worth the best average of it per tick that it can still reach.

If the counts of both sides differ no more than by chance, the sides are *alike*: what comes on one is foretold by
what came on either.

How far counts tell one key from another is seen from how they differ: if no more than those of keys that are all as
likely would by chance, they tell nothing. The *trust* is the share of their variance that is more than chance.

What a partner is worth is counted over all arrivals, by classes of importance. How far arrivals of one key are alike
is seen from each and the one before it. The *doubt* is how many arrivals of a key are believed as much as all others.

Keys are sampled by a hash: as many as fit `CELLS`, whole keys, so that all of a key's arrivals are seen or none.

All of it is one record: a kernel is handed a single address, not two dozen arrays, and is compiled in a fifth of the
time.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.jit import outlined, part, wide
from penstock.core.rng import GOLDEN, mixed
from penstock.core.windows import Ints
from penstock.policies.registry import Setting

LIVES = np.array([1 / 32, 0.125, 0.5, 2.0, 32.0, 32.0])  # half-lives in spans; the first is not for choice
SQUARES = np.array([0, 2, 2, 2, 4, 0])  # the power of two that each is of the one before, in powers of two
LATELY, RENEWED = 0, 5  # what came lately; the one that forgets what came before a change
FIRST = RENEWED  # the one to begin with: nothing is forgotten that may be needed
CONTRADICTS = math.exp(12.0)  # times as likely as by the counts: what came lately is believed instead
MOST_AGAINST = math.exp(300.0)  # so that what is against both sides has room
SELDOM = 16  # arrivals between two fresh starts, at least: the tuples in memory divided by this
RENEWS = 0.8  # counts that weigh less than lately's divided by this are as new
ALIKE = 2.0  # deviations of what counts of two sides differ by chance
HALF = 2  # where in LIVES the half-life of half a span is
STAYS = LIVES[HALF] / 2  # half-life of what a shadow holds, in spans: it stands for tuples that leave after one
CELLS, STRETCH = 4096, 8
CLASSES = 64  # of age, as wide as each other
PACE = 0.05  # of prices
LEAST_PRICE = 1e-12
FEW, ENOUGH = 32, 256  # arrivals between two lessons: of the sample for it to be large enough, and of all
LESSONS = 8  # a span, at most
SOFT = 0.25  # a share of the price: as far on either side of it a shadow keeps a part of a key's tuples
TOGETHER = 32  # arrivals whose leads are squared as one: each moves a price by a twentieth, so neighbours are alike
KEPT_GAIN = 2.0 ** (-1 / 64)  # a lesson: half is left after eight spans
KEPT = 2.0 ** (-1 / 32)
DOUBT, SLACK = 4.0, 0.1  # what is no chance: so many deviations, and so large a share, more than foretold
OFF = 1.25  # times as much, or as little: what is worth an order laid out anew
OFF_WORTH, OFF_TRUST = 0.05, 0.05
SURELY = 2.0  # deviations of a variance
BETTER, LUCK = 0.002, 2.0  # what another half-life must bring to be taken: more, and deviations of what is more
IDLE = 2  # spans after which a key makes room for another
LARGE = 400  # halves of the shortest life after which weights are brought back; squares of them must have room
SIZES, MIDDLE = 64, 32  # classes of importance, one for each power of two; that of 0.5 to 1
SURE = 1e-3  # arrivals of one key that are less alike say nothing of it
HITS, ENDED, ENDED_SHARE = range(3)  # rows of `ages`
BEGAN, BEGAN_SHARE, CAME, PASSED = range(4)  # columns of `sums`
UNSET = np.iinfo(np.int64).min

RECORD = np.dtype(
    (
        np.record,
        [
            ("code", np.int64, (CELLS,)),  # of the key that a cell belongs to
            ("last", np.int64, (CELLS, 2)),  # (cell, side) -> clock of its latest arrival, or UNSET
            ("now", np.float64, (CELLS, 2)),  # (cell, side) -> how many came then
            ("share", np.float64, (CELLS, 2)),  # (cell, side) -> how likely a partner was then
            ("weight", np.float64, (CELLS, 2, LIVES.size)),  # (cell, side, life) -> arrivals
            ("worth", np.float64, (CELLS, 2)),  # (cell, side) -> importance of its latest arrival, or -1
            ("held", np.float64, (CELLS, 2, LIVES.size)),  # (cell, side, life) -> tuples that the shadow keeps
            ("total", np.float64, (2, LIVES.size)),
            ("squares", np.float64, (2, LIVES.size)),  # of what arrivals weigh, added up
            ("fresh", np.float64, (2, LIVES.size)),  # what an arrival weighs now
            ("stays", np.float64, (2,)),  # what a tuple in a shadow weighs now
            ("price", np.float64, (LIVES.size,)),
            ("gain", np.float64),  # what the shadow of the chosen half-life met
            ("more", np.float64, (LIVES.size,)),  # what others met more, in the latest stretch of arrivals
            ("lead", np.float64, (LIVES.size,)),  # the same before, and the squares of it, stretch by stretch
            ("varied", np.float64, (LIVES.size,)),
            ("steps", np.float64, (2,)),  # what a price is multiplied by when a tuple is not kept, and when it is
            # (side, row, class): partners that came at that age of the latest arrival; latest arrivals that another
            # followed at that age (the last class: beyond the span); the same, each times how likely a partner was
            ("ages", np.float64, (2, 3, CLASSES + 1)),
            # (side, column): arrivals in the sample; the same, each times how likely a partner was; arrivals; ticks
            ("sums", np.float64, (2, 4)),
            ("pace", np.float64, (2,)),  # arrivals on a side, relative to the mean of both
            ("lift", np.float64, (2, CLASSES)),  # partners per tick beyond what keys foretell, at best from an age on
            ("sizes", np.float64, (2, SIZES, 2)),  # (side, class) -> arrivals of such importance, and that in all
            # (side, class), per arrival: the importance of those in lower classes, the number and the importance of
            # those in this one, the number of those above
            ("typical", np.float64, (2, SIZES, 4)),
            ("average", np.float64, (2,)),  # importance of an arrival
            (
                "alike",
                np.float64,
                (2, 4),
            ),  # neighbours of one key: how many, sum, sum of squares, of products
            ("trust", np.float64, (2,)),  # how far the counts of keys are believed, from 0 to 1
            ("usual", np.float64, (2,)),  # how likely a key is on average, of those that came lately
            # where rows have an importance, what the order was laid out by: the doubt and what is common to all keys
            # in weights of then, and the trust
            ("doubt", np.float64, (2,)),
            ("common", np.float64, (2,)),
            ("relied", np.float64, (2,)),
            ("start", np.float64),  # how much of what came first is not yet forgotten
            ("clock", np.int64, (2, 3)),  # latest, as of which weights begin, as of which `fresh` and `stays` are
            ("span", np.int64, (2,)),
            ("longest", np.int64),
            ("level", np.int64),  # how often the sample was halved
            ("chosen", np.int64),  # half-life
            ("came", np.int64),  # arrivals since the latest lesson
            ("sampled", np.int64),  # those of the sample
            ("next", np.int64),  # when the next lesson is
            ("lifted", np.int64),  # 1: some age has a lift
            ("against", np.float64, (2,)),  # how much likelier arrivals were by what came lately than by the counts
            ("since", np.int64),  # arrivals since the latest fresh start
            ("renewed", np.int64),  # when that was
            ("bursts", np.float64),  # how often it was within a span of the one before, of late
            ("adopts", np.int64),  # 1: the counts are to be those of the chosen half-life
            ("alike_sides", np.int64),  # 1: what came on either side foretells what comes
            ("kindred", np.float64, (2,)),  # what the weight of a side counts for as one of the other, for its tuples
            ("cell", np.int64),  # of the latest arrival, or -1
            ("anew", np.int64, (2,)),  # 1: the order must be laid out anew
        ],
    )
)


def make(setting: Setting) -> npt.NDArray[Any]:
    """Return a record with nothing learned."""
    lessons = np.zeros(1, RECORD)
    first = lessons[0]
    for name in ("last", "clock"):
        first[name][:] = UNSET
    for name in ("fresh", "stays", "steps", "pace", "trust", "relied", "against"):
        first[name][:] = 1.0
    first["price"][:] = LEAST_PRICE
    first["worth"][:] = -1.0
    first["start"], first["chosen"], first["next"], first["renewed"] = 1.0, FIRST, UNSET, UNSET
    first["span"][:], first["longest"] = setting.span, setting.span.max()
    return lessons


@part
def class_of(lessons: np.record, side: int, age: int) -> int:
    """Return the class of an age, CLASSES if it is beyond the span."""
    span = lessons.span[side]
    return wide(CLASSES) if age >= span else wide(int(CLASSES * (max(age, 0) / span)))


@part
def pass_time(lessons: np.record, side: int, clock: int, span: Ints) -> float:
    """Move on to a clock, and to spans that may have changed; returns how many half-lives have passed."""
    lessons.span[side] = span[side]
    lessons.longest = max(span[0], span[1], 1)
    latest = lessons.clock[side, 0]
    if latest == UNSET:
        for each in range(3):
            lessons.clock[side, each] = clock
        return 0.0
    ticks = clock - latest
    if ticks <= 0:
        return 0.0
    lessons.clock[side, 0] = clock
    lessons.sums[side, PASSED] += ticks
    return ticks / (LIVES[lessons.chosen] * lessons.longest)


@part
def freshen(lessons: np.record, side: int) -> None:
    """Bring what an arrival weighs up to the latest clock."""
    now = lessons.clock[side, 0]
    if lessons.clock[side, 2] == now:
        return
    if (now - lessons.clock[side, 1]) / lessons.longest >= LARGE * LIVES[0]:
        bring_back(lessons, side)
    lessons.clock[side, 2] = now
    other = 1 - side
    if lessons.clock[other, 2] == now and lessons.clock[other, 1] == lessons.clock[side, 1]:
        for life in range(LIVES.size):
            lessons.fresh[side, life] = lessons.fresh[other, life]
        lessons.stays[side] = lessons.stays[other]
        return
    fresh = 2.0 ** ((now - lessons.clock[side, 1]) / (LIVES[LIVES.size - 1] * lessons.longest))
    for life in range(LIVES.size - 1, -1, -1):
        lessons.fresh[side, life] = fresh
        for _ in range(SQUARES[life]):
            fresh *= fresh
    lessons.stays[side] = lessons.fresh[side, HALF] ** 2


@part
def bring_back(lessons: np.record, side: int) -> None:
    """Let the weights of a side begin at its latest clock. O(CELLS)."""
    since = (lessons.clock[side, 0] - lessons.clock[side, 1]) / lessons.longest
    lessons.clock[side, 1] = lessons.clock[side, 0]
    stayed = 2.0 ** -(since / STAYS)
    for life in range(LIVES.size):
        left = 2.0 ** -(since / LIVES[life])
        lessons.total[side, life] *= left
        lessons.squares[side, life] *= left * left
        for cell in range(CELLS):
            lessons.weight[cell, side, life] *= left
            lessons.held[cell, side, life] *= stayed


@part
def sampled(lessons: np.record, code: int) -> bool:
    """Say whether a key is in the sample."""
    lot = mixed(np.uint64(code) ^ GOLDEN)
    return (wide(lot >> np.uint64(20)) & ((1 << lessons.level) - 1)) == 0


@part
def clear(lessons: np.record, cell: int) -> None:
    """Free a cell."""
    for side in range(2):
        lessons.last[cell, side] = UNSET
        lessons.worth[cell, side] = -1.0
        for life in range(LIVES.size):
            lessons.weight[cell, side, life] = 0.0
            lessons.held[cell, side, life] = 0.0


@part
def idle(lessons: np.record, cell: int) -> bool:
    """Say whether a cell belongs to nobody, or to a key that did not come for long."""
    for side in range(2):
        last = lessons.last[cell, side]
        if last != UNSET and lessons.clock[side, 0] - last < IDLE * lessons.longest:
            return False
    return True


@part
def cell_of(lessons: np.record, code: int) -> int:
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
def halve(lessons: np.record) -> None:
    """Leave half of the keys out of the sample, and half of what was counted of ages. O(CELLS)."""
    lessons.level += 1
    lessons.squares[:] *= 0.5
    for cell in range(CELLS):
        if not sampled(lessons, lessons.code[cell]):
            for side in range(2):
                for life in range(LIVES.size):
                    lessons.total[side, life] -= lessons.weight[cell, side, life]
            clear(lessons, cell)
    for side in range(2):
        keep_ages(lessons, side, 0.5)
        lessons.sums[side, BEGAN] /= 2.0
        lessons.sums[side, BEGAN_SHARE] /= 2.0


@part
def keep_ages(lessons: np.record, side: int, left: float) -> None:
    """Forget a part of what was counted of ages."""
    for row in range(3):
        for at in range(CLASSES + 1):
            lessons.ages[side, row, at] *= left


@part
def note(lessons: np.record, side: int, code: int) -> None:
    """Learn from an arrival. O(lives) if its key is in the sample, else O(1)."""
    lessons.sums[side, CAME] += 1.0
    lessons.came += 1
    lessons.since += 1
    lessons.cell = wide(-1)
    if sampled(lessons, code):
        learn(lessons, side, code)


@outlined
def learn(lessons: np.record, side: int, code: int) -> None:
    """Learn from an arrival whose key is in the sample."""
    cell = cell_of(lessons, code)
    if cell < 0:
        return
    lessons.sampled += 1
    lessons.cell = cell
    for each in range(2):
        freshen(lessons, each)
    learn_ages(lessons, side, cell)
    suspect(lessons, side, cell)
    add_weight(lessons, side, cell, LATELY)
    met = learn_life(lessons, side, cell, lessons.chosen)
    lessons.gain += met
    for life in range(LATELY + 1, LIVES.size):
        if life != lessons.chosen:
            lessons.more[life] += learn_life(lessons, side, cell, wide(life)) - met
            if wide(lessons.sampled) % TOGETHER == 0:
                lessons.lead[life] += lessons.more[life]
                lessons.varied[life] += lessons.more[life] ** 2
                lessons.more[life] = 0.0


@part
def learn_ages(lessons: np.record, side: int, cell: int) -> None:
    """Note at what age an arrival meets the latest of the other side, and follows the latest of its own.

    Whoever comes in the same tick is met whatever is given up.
    """
    other, chosen = 1 - side, lessons.chosen
    before = lessons.last[cell, other]
    if before != UNSET and before < lessons.clock[other, 0]:
        at = class_of(lessons, other, lessons.clock[other, 0] - before)
        if at < CLASSES:
            lessons.ages[other, HITS, at] += 1.0
    before = lessons.last[cell, side]
    if before != UNSET:
        at = class_of(lessons, side, lessons.clock[side, 0] - before)
        lessons.ages[side, ENDED, at] += 1.0
        lessons.ages[side, ENDED_SHARE, at] += lessons.share[cell, side]
    share = 0.0
    if lessons.total[other, chosen] > 0.0:
        share = lessons.weight[cell, other, chosen] / lessons.total[other, chosen]
    lessons.now[cell, side] = lessons.now[cell, side] + 1.0 if before == lessons.clock[side, 0] else 1.0
    lessons.last[cell, side] = lessons.clock[side, 0]
    lessons.share[cell, side] = share
    lessons.sums[side, BEGAN] += 1.0
    lessons.sums[side, BEGAN_SHARE] += share


@part
def suspect(lessons: np.record, side: int, cell: int) -> None:
    """Compare how likely an arrival was by what came lately, or else by the counts, with how likely by the counts.

    The product of that over the arrivals since it was least (Page's test, of both sides) says whether keys have
    changed. If sides are alike, what came on either is what came.
    """
    other, few, many = 1 - side, lessons.total[side, LATELY], lessons.total[side, RENEWED]
    came, before = lessons.weight[cell, side, LATELY], lessons.weight[cell, side, RENEWED]
    if lessons.alike_sides == 1:
        unit = lessons.fresh[side, LATELY] / lessons.fresh[other, LATELY]  # each side may have a clock of its own
        few += unit * lessons.total[other, LATELY]
        came += unit * lessons.weight[cell, other, LATELY]
        unit = lessons.fresh[side, RENEWED] / lessons.fresh[other, RENEWED]
        many += unit * lessons.total[other, RENEWED]
        before += unit * lessons.weight[cell, other, RENEWED]
    if few <= 0.0 or many <= 0.0:
        return
    half = lessons.fresh[side, RENEWED] / 2  # nobody is impossible
    lately = came / few
    so_far = (before + half) / (many + half)
    against = lessons.against[side] * (1.0 + lately / so_far) / 2
    lessons.against[side] = min(max(against, 1.0), MOST_AGAINST)


@part
def changed(lessons: np.record, held: int) -> bool:
    """Say whether keys have changed, and it is time to start afresh.

    Where keys come in bursts, that seems so again and again. Each time that it does within a span, more is asked for.

    Parameters:
        held: tuples in memory.
    """
    against = lessons.against[0] * lessons.against[1]
    if against < CONTRADICTS or lessons.since < max(FEW, held // SELDOM):
        return False
    if math.log(against) < math.log(CONTRADICTS) * (1.0 + lessons.bursts):
        return False
    lessons.since = 0
    now = lessons.clock[0, 0] // 2 + lessons.clock[1, 0] // 2
    if lessons.renewed != UNSET and now - lessons.renewed < lessons.longest:
        lessons.bursts += 1.0
    lessons.renewed = now
    for side in range(2):
        renew(lessons, side)
    return True


@outlined
def renew(lessons: np.record, side: int) -> None:
    """Let the counts be those of lately. O(CELLS)."""
    lessons.against[side] = 1.0
    unit = lessons.fresh[side, RENEWED] / lessons.fresh[side, LATELY]
    if lessons.total[side, LATELY] * unit > RENEWS * lessons.total[side, RENEWED]:
        return
    if lessons.chosen == RENEWED:
        lessons.adopts = 1
    for cell in range(CELLS):
        lessons.weight[cell, side, RENEWED] = lessons.weight[cell, side, LATELY] * unit
    lessons.total[side, RENEWED] = lessons.total[side, LATELY] * unit
    lessons.squares[side, RENEWED] = lessons.squares[side, LATELY] * unit * unit


@part
def add_weight(lessons: np.record, side: int, cell: int, life: int) -> None:
    """Count an arrival."""
    lessons.weight[cell, side, life] += lessons.fresh[side, life]
    lessons.total[side, life] += lessons.fresh[side, life]
    lessons.squares[side, life] += lessons.fresh[side, life] ** 2


@part
def learn_life(lessons: np.record, side: int, cell: int, life: int) -> float:
    """Let an arrival meet what a shadow holds, and enter it; returns how many it met.

    Whoever came in the same tick is met whatever is given up, and does not count.
    """
    other, price, met = 1 - side, lessons.price[life], 0.0
    if lessons.total[side, life] > 0.0:
        share = part_kept(lessons.weight[cell, side, life] * lessons.pace[side], price * lessons.total[side, life])
        if share == 0.0:
            lessons.held[cell, other, life] = 0.0
        met = lessons.held[cell, other, life] / lessons.stays[other]
        if lessons.last[cell, other] == lessons.clock[other, 0]:
            met = max(met - lessons.now[cell, other], 0.0)
        met *= share
    add_weight(lessons, side, cell, life)
    if lessons.total[other, life] > 0.0:
        share = part_kept(lessons.weight[cell, other, life] * lessons.pace[other], price * lessons.total[other, life])
        lessons.held[cell, side, life] = lessons.held[cell, side, life] + lessons.stays[side] if share > 0.0 else 0.0
        step = share * lessons.steps[1] + (1.0 - share) * lessons.steps[0]
        lessons.price[life] = max(price * step, LEAST_PRICE)
    return met


@part
def part_kept(likely: float, price: float) -> float:
    """Return which part of a key's tuples a shadow keeps: half at the price, so that it can come to rest there."""
    if likely >= (1.0 + SOFT) * price:  # as both are, where a side has been silent for so long that nothing is left
        return 1.0
    if likely <= (1.0 - SOFT) * price:
        return 0.0
    return (1.0 + (likely / price - 1.0) / SOFT) / 2


@part
def size_of(importance: float) -> int:
    """Return the class of an importance."""
    return wide(min(max(math.frexp(importance)[1] + MIDDLE, 0), SIZES - 1)) if importance > 0.0 else wide(0)


@part
def note_worth(lessons: np.record, side: int, importance: float) -> None:
    """Learn from the importance of the latest arrival."""
    size = size_of(importance)
    lessons.sizes[side, size, 0] += 1.0
    lessons.sizes[side, size, 1] += importance
    cell = lessons.cell
    if cell < 0:
        return
    before = lessons.worth[cell, side]
    lessons.worth[cell, side] = importance
    if before >= 0.0:
        lessons.alike[side, 0] += 1.0
        lessons.alike[side, 1] += before + importance
        lessons.alike[side, 2] += before * before + importance * importance
        lessons.alike[side, 3] += before * importance


@part
def lesson(lessons: np.record, held: int) -> bool:
    """Draw conclusions now and then; says whether that was now.

    Parameters:
        held: tuples in memory.
    """
    if lessons.clock[0, 0] == UNSET or lessons.clock[1, 0] == UNSET:
        return False
    now = lessons.clock[0, 0] // 2 + lessons.clock[1, 0] // 2
    if lessons.next == UNSET:
        lessons.next = now + lessons.longest // LESSONS
    if now < lessons.next or lessons.came < ENOUGH:
        return False
    lessons.next = now + lessons.longest // LESSONS
    conclude(lessons, held)
    return True


@outlined
def conclude(lessons: np.record, held: int) -> None:
    """Say how fast sides are and whether alike, which half-life is best, what counts tell, what each age is worth."""
    if lessons.sampled < FEW and lessons.level > 0:
        lessons.level -= 1
    lessons.came = lessons.sampled = lessons.lifted = 0
    choose_life(lessons)
    look_at_keys(lessons)
    set_steps(lessons, held)
    for side in range(2):
        lift_ages(lessons, side)
    for side in range(2):
        keep_ages(lessons, side, KEPT)
        for column in range(4):
            lessons.sums[side, column] *= KEPT
    lessons.start *= KEPT
    lessons.bursts *= KEPT


@part
def choose_life(lessons: np.record) -> None:
    """Take the half-life whose shadow leads most, if by enough and not by chance.

    Of equals the longest: it forgets least that may be needed.
    """
    best, most = wide(lessons.chosen), 0.0
    for life in range(LIVES.size - 1, LATELY, -1):
        lead = lessons.lead[life]
        if lead > max(most, BETTER * lessons.gain + LUCK * math.sqrt(lessons.varied[life])):
            best, most = wide(life), lead
        lessons.lead[life] *= KEPT_GAIN
        lessons.varied[life] *= KEPT_GAIN**2
    lessons.gain *= KEPT_GAIN
    if best != lessons.chosen:
        lessons.chosen = best
        lessons.adopts = 1
        lessons.lead[:] = 0.0
        lessons.varied[:] = 0.0
        lessons.more[:] = 0.0


@part
def look_at_keys(lessons: np.record) -> None:
    """Say whether sides are alike and what counts tell, from one look at what each key weighs. O(CELLS)."""
    life = lessons.chosen
    squares_left, squares_right, products = 0.0, 0.0, 0.0
    keys, left, right, left_squares, right_squares = 0.0, 0.0, 0.0, 0.0, 0.0  # of keys that came lately
    for cell in range(CELLS):
        one, other = lessons.weight[cell, 0, life], lessons.weight[cell, 1, life]
        squares_left += one * one
        squares_right += other * other
        products += one * other
        if not idle(lessons, cell):
            keys += 1.0
            left += one
            right += other
            left_squares += one * one
            right_squares += other * other
    compare_sides(lessons, squares_left, squares_right, products)
    trust_counts(lessons, 0, keys, left, left_squares)
    trust_counts(lessons, 1, keys, right, right_squares)


@part
def compare_sides(lessons: np.record, left_squares: float, right_squares: float, products: float) -> None:
    """Say whether the shares of keys differ between the sides by more than chance.

    If they are the same, the sum of the squares of what they differ by is that of the weights of both, and varies
    with how many keys there are.

    Parameters:
        left_squares, right_squares, products: what keys weigh on a side, squared, and on both, added up.
    """
    life = lessons.chosen
    left, right = lessons.total[0, life], lessons.total[1, life]
    if left <= 0.0 or right <= 0.0:
        return
    common = products / (left * right)
    differ = left_squares / left**2 + right_squares / right**2 - 2.0 * common
    by_chance = lessons.squares[0, life] / left**2 + lessons.squares[1, life] / right**2
    each = max(lessons.fresh[0, life] / left, lessons.fresh[1, life] / right)
    spread = math.sqrt(2.0 * common) * by_chance + each * math.sqrt(by_chance)
    lessons.alike_sides = wide(1) if differ <= by_chance + ALIKE * spread else wide(0)


@part
def trust_counts(lessons: np.record, side: int, keys: float, weights: float, squares: float) -> None:
    """Work out how likely a key is on average, and how far its own count is believed.

    If all keys were as likely, the weight of each would vary as much as the squares of what arrivals weigh add up to.
    What it varies more is how keys differ: the share of that is the trust, if it is more than two standard errors. If
    it varies less by as much, arrivals of a key depend on each other, and counts are believed as they are.

    Parameters:
        keys, weights, squares: how many came lately, what they weigh, and that squared, added up.
    """
    life = lessons.chosen
    total = lessons.total[side, life]
    if keys < 2.0 or total <= 0.0:
        return
    mean = weights / keys
    varies = (squares - weights * mean) / (keys - 1.0)
    by_chance = mean * (lessons.squares[side, life] / total)
    error = SURELY * math.sqrt(2.0 / keys)
    lessons.usual[side] = mean / (total * (1 << lessons.level))
    if varies > by_chance * (1.0 + error):
        lessons.trust[side] = 1.0 - by_chance / varies
    else:
        lessons.trust[side] = 1.0 if varies < by_chance * (1.0 - error) else 0.0


@part
def set_steps(lessons: np.record, held: int) -> None:
    """Let prices rest where as large a share of arrivals is kept as memory has room for; note how fast sides are."""
    need = 0.0
    both = lessons.sums[0, CAME] + lessons.sums[1, CAME]
    for side in range(2):
        came = lessons.sums[side, CAME]
        need += came * min(1.0, lessons.span[side] / max(lessons.sums[side, PASSED], 1.0))
        lessons.pace[side] = 2.0 * (came + FEW) / (both + 2 * FEW)
    room = min(1.0, held / max(need, 1.0))
    lessons.steps[0] = math.exp(-PACE * room)
    lessons.steps[1] = math.exp(PACE * (1.0 - room))


@part
def lift_ages(lessons: np.record, side: int) -> None:
    """Work out how many partners each age brings beyond what keys foretell, and the best average from it on.

    Keys foretell too little of those they hardly know. That is the same at every age, so the mean does not count. At
    the start of a stream few have lived to an old age: of what came in a time T, a share of 1 - age / T.
    """
    width = lessons.span[side] / CLASSES
    passed = max(lessons.sums[side, PASSED], 1.0)
    rate = width * lessons.sums[1 - side, BEGAN] / passed
    flat, found = 0.0, False
    for again in range(2):
        left, left_share, all_seen, all_more = lessons.sums[side, BEGAN], lessons.sums[side, BEGAN_SHARE], 0.0, 0.0
        for at in range(CLASSES):
            ended, ended_share = lessons.ages[side, ENDED, at], lessons.ages[side, ENDED_SHARE, at]
            lived = max(1.0 - lessons.start * (at + 0.5) * width / passed, 0.0)
            seen = max(left - ended / 2, 0.0) * lived
            foretold = max(left_share - ended_share / 2, 0.0) * lived * rate + flat * seen
            left -= ended
            left_share -= ended_share
            more = lessons.ages[side, HITS, at] - foretold
            all_seen += seen
            all_more += more
            sure = again == 1 and seen > 1.0 and more > DOUBT * math.sqrt(foretold + 1.0) + SLACK * foretold
            lessons.lift[side, at] = more / (seen * width) if sure else 0.0
            found = found or sure
        flat = max(all_more, 0.0) / max(all_seen, 1.0)
    if not found:
        return
    lessons.lifted = 1
    for at in range(CLASSES):
        total, best = 0.0, 0.0
        for until in range(at, CLASSES):
            total += lessons.lift[side, until]
            best = max(best, total / (until - at + 1))
        lessons.lift[side, at] = best


@part
def off(one: float, other: float) -> bool:
    """Say whether one number is noticeably more or less than another."""
    return max(one, other) > OFF * min(one, other)


@outlined
def lay_out(lessons: np.record, side: int, fresh: float, total: float) -> bool:
    """Say whether what counts and importance of a side tell has changed noticeably; if so, take it for the order.

    Parameters:
        fresh, total: what an arrival weighs in the counts of the policy, and what all do.
    """
    doubt = fresh * doubt_of(lessons, side)
    common = total * (1.0 - lessons.trust[side]) * lessons.usual[side]
    changed = (
        off(doubt, lessons.doubt[side])
        or (lessons.relied[side] > 0.0 and off(common, lessons.common[side]))  # else it is the same for all
        or abs(lessons.trust[side] - lessons.relied[side]) > OFF_TRUST
        or price_sizes(lessons, side, 0)
    )
    if changed:
        price_sizes(lessons, side, 1)
        lessons.doubt[side] = doubt
        lessons.common[side] = common
        lessons.relied[side] = lessons.trust[side]
    for column in range(4):
        lessons.alike[side, column] *= KEPT
    for size in range(SIZES):
        lessons.sizes[side, size, 0] *= KEPT
        lessons.sizes[side, size, 1] *= KEPT
    return changed


@part
def price_sizes(lessons: np.record, side: int, taken: int) -> bool:
    """Work out what an arrival of a side brings to partners of each class of importance.

    Parameters:
        taken: 1 to write it down, 0 only to say whether it is noticeably other than what is written.
    """
    count, total = 0.0, 0.0
    for size in range(SIZES):
        count += lessons.sizes[side, size, 0]
        total += lessons.sizes[side, size, 1]
    count = max(count, 1.0)
    below, above, changed = 0.0, 1.0, False
    for size in range(SIZES):
        share, brings = lessons.sizes[side, size, 0] / count, lessons.sizes[side, size, 1] / count
        above = max(above - share, 0.0)
        if taken == 1:
            lessons.typical[side, size, 0] = below
            lessons.typical[side, size, 1] = share
            lessons.typical[side, size, 2] = brings
            lessons.typical[side, size, 3] = above
        else:
            least = math.ldexp(1.0, size - MIDDLE - 1)
            before = lesser(lessons, side, least)
            changed = changed or abs(below + least * (share + above) - before) > OFF_WORTH * before
        below += brings
    if taken == 1:
        lessons.average[side] = total / count
    return changed or abs(total / count - lessons.average[side]) > OFF_WORTH * lessons.average[side]


@part
def doubt_of(lessons: np.record, side: int) -> float:
    """Return how many arrivals of a key say as much of its importance as all keys do.

    That is (1 - r) / r, where r is the correlation of neighbours, less its standard error. If that leaves nothing, no
    number says as much.
    """
    count = max(lessons.alike[side, 0], 1.0)
    mean = lessons.alike[side, 1] / (2.0 * count)
    spread = lessons.alike[side, 2] / (2.0 * count) - mean * mean
    common = lessons.alike[side, 3] / count - mean * mean
    alike = min(common / spread, 1.0) if spread > 0.0 else 1.0
    alike -= (1.0 - alike * alike) / math.sqrt(count)
    return (1.0 - alike) / alike if alike > SURE else np.inf


@part
def lesser(lessons: np.record, side: int, importance: float) -> float:
    """Return the lesser of an importance and that of an arrival on a side, on average."""
    size = size_of(importance)
    level = min(importance * lessons.typical[side, size, 1], lessons.typical[side, size, 2])
    return lessons.typical[side, size, 0] + level + importance * lessons.typical[side, size, 3]


@part
def tells(lessons: np.record, side: int) -> float:
    """Return 1 if the counts of a side tell its keys apart, else 0.

    Between two sides, counts that tell anything are taken as they are: how much is hardly known itself, and would put
    one side before the other by chance.
    """
    return 1.0 if lessons.trust[side] > 0.0 else 0.0


@part
def chance(lessons: np.record, side: int, share: float) -> float:
    """Return how likely a key is on a side, if such a share of the arrivals there were of it."""
    return share if lessons.trust[side] > 0.0 else lessons.usual[side]


@part
def partners(lessons: np.record, side: int, share: float) -> float:
    """Return the partners per tick of a tuple whose key is such a share of the other side's arrivals."""
    return chance(lessons, 1 - side, share) * lessons.sums[1 - side, CAME] / max(lessons.sums[side, PASSED], 1.0)


@part
def lift_of(lessons: np.record, side: int, age: int) -> float:
    """Return the partners per tick that an age brings beyond what the key foretells, at best from it on."""
    return lessons.lift[side, min(class_of(lessons, side, age), CLASSES - 1)]
