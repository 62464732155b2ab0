"""Count the pairs of the exact join from a sample of its rows, in fixed memory.

Every row that comes meets the *sampled* rows of the other side, and each such pair counts 1/p, where p is the chance
with which the row that came first is in the sample: the sum is an unbiased estimate of all pairs (Horvitz and
Thompson). While the windows fit the sample, p is 1 and the count is exact. When a ring is full, p falls and the rows
in it draw lots again; when there is room, p rises for the rows to come.

A row that will meet many is sampled more surely, for the error is a sum over rows of (partners to come) squared: p
grows with what the row has just met.

A row that met pairs at chances p1 >= p2 >= ... adds the sum over all two of its pairs j <= k of (1/p_j - 1) to the
variance; each is seen with chance p_k. So the variance is estimated on the way, with one number a row.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, columns, kernel, part, rank, wide
from penstock.core.rng import GOLDEN, S11, S32, UNIT, State, mixed, seeded
from penstock.core.step import Batch, Plan
from penstock.core.windows import Floats, Ints, Words

Bytes = npt.NDArray[Any]

ROOM = 1 << 14  # rows of each side: 29 bytes a row and 3 for the buckets are 1 MiB over both sides
NEXT, LOW = 0, 1
PAIRS, VARIANCE, IMPORTANCE, IMPORTANCE_VARIANCE = 0, 1, 2, 3
ROWS, STEPS = 0, 1
LAST_NUMBER = 1 << 30
EIGHTHS, LARGEST = 8, 255  # of sizes
BELOW_ONE, EIGHTH_BITS = 1023 * EIGHTHS, 49  # the bits of a number below its eighths; eighths up to the number 1
LIKELIER = 2.0 ** (np.arange(LARGEST + 1) / EIGHTHS)  # by size
STRIDE = 1 << 9  # rows after which the pace is looked at
SELDOM = 1 << 5  # rows after which those that have expired are let go
GRACE = 1 << 17  # so many steps along chains are taken before anything is saved
PRECISE = 0.012  # a deviation, as a share of the pairs, that is fine enough
FLOOR = 1 / 32  # no lower chance than that is chosen to save time
ALIKE = 1 - 1e-6  # weights are kept in 32 bits
THINNED = 0.8  # of the chance that stays when a ring is full
LOWERED, RAISED = 0.8, 1.25
COMBINES = ("min", "sum", "product", "max", "mean")


@columns(heads=2, ends=2)
class Census(NamedTuple):
    """A sample of the rows of both sides, and what it has counted."""

    heads: Words  # (bucket, side) -> newest sampled row there, by its place in the order of arrival; -1: none
    older: Words  # (side, place % room) -> the next older row of the bucket
    code: Ints  # (side, place % room)
    pos: Ints  # (side, place % room)
    weight: Floats  # (side, place % room): 1/p
    size: Bytes  # (side, place % room): how much likelier than others it is, in eighths of a doubling
    owed: Floats  # (side, place % room): the sum of 1/p - 1 over the pairs of the row
    importance: Floats  # (side, place % room); empty: rows have none
    owed_importance: Floats  # the same as `owed`, each pair times its importance
    ends: Ints  # (side, [NEXT, LOW]): place of the next row to come, and of the oldest not expired
    chance: Floats  # (side,): p of the rows to come
    skip: Ints  # (side,): rows to pass over before the next one that is sampled
    totals: Floats  # [PAIRS, VARIANCE, IMPORTANCE, IMPORTANCE_VARIANCE]
    marks: Ints  # [ROWS, STEPS]
    lots: State


def empty(seed: int, *, important: bool, room: int = ROOM) -> Census:
    """Return a census of nothing; `room` is rows of each side, a power of two."""
    if important and room == ROOM:
        room //= 2  # rows with an importance are wider
    wide_room = room if important else 0
    return Census(
        heads=np.full((3 * room // 4, 2), -1, np.int32),
        older=np.empty((2, room), np.int32),
        code=np.empty((2, room), np.int64),
        pos=np.empty((2, room), np.int64),
        weight=np.empty((2, room), np.float32),
        size=np.empty((2, room), np.uint8),
        owed=np.empty((2, room), np.float32),
        importance=np.empty((2, wide_room), np.float32),
        owed_importance=np.empty((2, wide_room), np.float32),
        ends=np.zeros((2, 2), np.int64),
        chance=np.ones(2),
        skip=np.zeros(2, np.int64),
        totals=np.zeros(4),
        marks=np.zeros(2, np.int64),
        lots=seeded(seed),
    )


@part
def bucket_of(buckets: int, code: int) -> int:
    """Return where a code hashes to: the upper bits of its product with the golden ratio."""
    word = np.uint64(code) * GOLDEN
    return wide(((word >> S32) * np.uint64(buckets)) >> S32)


@part
def draws(lots: State, chance: float) -> bool:
    """Say whether a lot drawn now wins with this chance."""
    lots[0] += GOLDEN
    return float(mixed(lots[0]) >> S11) * UNIT < chance


@part
def plan_next(census: Census, side: int) -> None:
    """Draw how many rows are passed over before the next one that is sampled: cheaper than a lot for each."""
    census.skip[side] = 0
    if census.chance[side] < 1.0:
        census.lots[0] += GOLDEN
        lot = float(mixed(census.lots[0]) >> S11) * UNIT
        census.skip[side] = wide(math.log(1.0 - lot) / math.log(1.0 - census.chance[side]))


@part
def chance_of(census: Census, side: int, size: int) -> float:
    """Return the chance of a row to come of this size."""
    chance = census.chance[side]
    return min(1.0, chance * LIKELIER[size]) if chance < 1.0 else 1.0


@part
def size_of(census: Census, met: float) -> int:
    """Return the size of a row that met so many: those that met more than others will.

    Eighths are counted along the bits of a number, straight between two powers of two: a logarithm costs more than
    all the rest.
    """
    usual = census.totals[PAIRS] / (census.marks[ROWS] + 1)
    return wide(0) if met <= usual else min(wide(LARGEST), (rank(met / usual) >> EIGHTH_BITS) - BELOW_ONE)


@part
def combined(combine: int, left: float, right: float) -> float:
    """Return the importance of a pair; `combine` counts in COMBINES."""
    if combine == 0:
        return min(left, right)
    if combine == 1:
        return left + right
    if combine == 2:
        return left * right
    return max(left, right) if combine == 3 else (left + right) / 2


@part
def link(census: Census, side: int, place: int, at: int) -> None:
    """Put a row at the head of the chain of its bucket."""
    census.older[side, place & (census.code.shape[1] - 1)] = census.heads[at, side]
    census.heads[at, side] = place


@kernel
def thin(census: Census, side: int) -> None:
    """Let the rows of a ring draw lots until none is likelier than those to come, and close the gaps. O(room)."""
    census = borrowed(census)
    mask = census.code.shape[1] - 1
    begin, end = census.ends[side, LOW], census.ends[side, NEXT]
    base = begin & mask
    kept = base
    census.heads[:, side] = -1
    for place in range(begin, end):
        slot = place & mask
        chance = chance_of(census, side, wide(census.size[side, slot]))
        likelier = chance * census.weight[side, slot]
        if likelier < ALIKE:
            if not draws(census.lots, likelier):
                continue
            census.weight[side, slot] = 1.0 / chance
        to = kept & mask
        census.code[side, to] = census.code[side, slot]
        census.pos[side, to] = census.pos[side, slot]
        census.weight[side, to] = census.weight[side, slot]
        census.size[side, to] = census.size[side, slot]
        census.owed[side, to] = census.owed[side, slot]
        if census.importance.shape[1] > 0:
            census.importance[side, to] = census.importance[side, slot]
            census.owed_importance[side, to] = census.owed_importance[side, slot]
        link(census, side, kept, bucket_of(census.heads.shape[0], census.code[side, to]))
        kept += 1
    census.ends[side, LOW] = base
    census.ends[side, NEXT] = kept


@part
def pace(census: Census) -> None:
    """Sample fewer of the rows to come once the estimate is fine enough, and more while it is not and there is room.

    The estimate shows what a lower chance costs only a window later: hence the floor.
    """
    fine = census.totals[VARIANCE] <= (PRECISE * census.totals[PAIRS]) ** 2
    for side in range(2):
        held = census.ends[side, NEXT] - census.ends[side, LOW]
        if fine and census.marks[STEPS] > GRACE:
            if census.chance[side] > FLOOR:
                census.chance[side] *= LOWERED
                plan_next(census, side)
        elif census.chance[side] < 1.0 and 2 * held < census.code.shape[1]:
            census.chance[side] = min(1.0, RAISED * census.chance[side])
            plan_next(census, side)


@part
def meet(
    census: Census, plan: Plan, side: int, bucket: int, code: int, at: int, importance: float, combine: int
) -> float:
    """Let a row meet the sampled rows of the other side; returns how many it met, by estimate."""
    other = 1 - side
    mask = census.code.shape[1] - 1
    older, newer = plan.span[other], plan.span[side]
    totals = census.totals
    steps, met = 0, 0.0
    low = census.ends[other, LOW]
    place = wide(census.heads[bucket, other])
    while place >= low:
        slot = place & mask
        steps += 1
        if census.code[other, slot] == code:
            age = at - census.pos[other, slot]
            if age < older and -age < newer:
                weight = float(census.weight[other, slot])
                met += weight
                if weight > 1.0:
                    owed = float(census.owed[other, slot])
                    totals[VARIANCE] += weight * (2 * owed + weight - 1)
                    census.owed[other, slot] = owed + weight - 1
                if census.importance.shape[1] > 0:
                    worth = combined(combine, float(census.importance[other, slot]), importance)
                    totals[IMPORTANCE] += weight * worth
                    owed = float(census.owed_importance[other, slot])
                    totals[IMPORTANCE_VARIANCE] += weight * worth * (2 * owed + worth * (weight - 1))
                    census.owed_importance[other, slot] = owed + worth * (weight - 1)
        place = wide(census.older[other, slot])
    census.marks[STEPS] += steps
    totals[PAIRS] += met
    return met


@part
def is_chosen(census: Census, side: int, size: int) -> bool:
    """Say whether a row is sampled: larger ones by a lot of their own, the others when their turn has come."""
    if size > 0:
        chance = chance_of(census, side, size)
        return chance >= 1.0 or draws(census.lots, chance)
    if census.skip[side] > 0:
        census.skip[side] -= 1
        return False
    plan_next(census, side)
    return True


@part
def expire(census: Census, side: int, oldest: int) -> None:
    """Let go of the sampled rows that count from `oldest` or before."""
    mask = census.code.shape[1] - 1
    low, end = census.ends[side, LOW], census.ends[side, NEXT]
    while low < end and census.pos[side, low & mask] <= oldest:
        low += 1
    census.ends[side, LOW] = low


@part
def enter(
    census: Census, side: int, bucket: int, code: int, pos: int, importance: float, size: int, oldest: int
) -> None:
    """Take a row into the sample; a full ring lets go of what has expired, then is thinned out."""
    mask = census.code.shape[1] - 1
    if census.ends[side, NEXT] - census.ends[side, LOW] > mask:
        expire(census, side, oldest)
    while census.ends[side, NEXT] - census.ends[side, LOW] > mask or census.ends[side, NEXT] >= LAST_NUMBER:
        before = chance_of(census, side, size)
        if census.ends[side, NEXT] < LAST_NUMBER:
            census.chance[side] *= THINNED
        thin(census, side)
        plan_next(census, side)
        if not draws(census.lots, chance_of(census, side, size) / before):
            return
    place = census.ends[side, NEXT]
    slot = place & mask
    census.code[side, slot] = code
    census.pos[side, slot] = pos
    census.weight[side, slot] = 1.0 / chance_of(census, side, size)
    census.size[side, slot] = size
    census.owed[side, slot] = 0.0
    if census.importance.shape[1] > 0:
        census.importance[side, slot] = importance
        census.owed_importance[side, slot] = 0.0
    link(census, side, place, bucket)
    census.ends[side, NEXT] = place + 1


@part
def oldest_of(plan: Plan, batch: Batch, i: int, side: int, bar: int) -> int:
    """Return what rows of a side count from that have expired when row i comes."""
    if plan.by_rows:
        return batch.clock[i, side] - plan.span[side]
    return (bar if plan.patient else batch.tick[i] + plan.ahead - 1) - plan.span[side]


@kernel
def take(census: Census, plan: Plan, batch: Batch, code: Ints, bar: int, combine: int) -> None:
    """Count the pairs that the rows of a batch complete, and sample its rows.

    `bar` is a time that no row to come is older than, if the plan is patient.

    Cost: O(1 + sampled matches) per row, and O(1) amortised to thin out.
    """
    census, plan, batch, code = borrowed(census), borrowed(plan), borrowed(batch), borrowed(code)
    marks = census.marks
    important = census.importance.shape[1] > 0
    for i in range(code.size):
        side = wide(batch.side[i])
        if marks[ROWS] % SELDOM == 0:
            expire(census, 0, oldest_of(plan, batch, i, 0, bar))
            expire(census, 1, oldest_of(plan, batch, i, 1, bar))
        bucket = bucket_of(census.heads.shape[0], code[i])
        importance = batch.importance[i] if important else 0.0
        at = batch.clock[i, 1 - side] if plan.by_rows else batch.pos[i]
        met = meet(census, plan, side, bucket, code[i], at, importance, combine)
        size = size_of(census, met) if met > 0.0 else 0
        if is_chosen(census, side, size):
            oldest = oldest_of(plan, batch, i, side, bar)
            enter(census, side, bucket, code[i], batch.pos[i], importance, size, oldest)
        marks[ROWS] += 1
        if marks[ROWS] % STRIDE == 0:
            pace(census)
