"""Count the pairs of the exact join from a sample of its rows, in fixed memory.

Of the rows that come some look at the *sampled* rows of the other side, and of those that looked some are sampled. A
pair that is seen counts 1/(pq), where p is the chance with which the row that came first is in the sample, and q that
with which the other one looks: the sum is an unbiased estimate of all pairs (Horvitz and Thompson). While the windows
fit the sample and pairs are few, p and q are 1 and the count is exact. When a ring is full, p falls and the rows in
it draw lots again; when there is room, p rises for the rows to come.

A row that will meet many is sampled more surely, for the error is a sum over rows of (partners to come) squared: p
grows with what the row has just met, up to q.

A row that met pairs at chances p1 >= p2 >= ... adds the sum over all two of its pairs j <= k of (1/p_j - 1) to the
variance; each is seen with chance p_k, and if both of them look. A row that looks adds (1/q - 1) times the square of
what it met, and twice that times what it will meet. So the variance is estimated on the way, with one number a row.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, columns, kernel, outlined, part, rank, wide, zeros
from penstock.core.rng import GOLDEN, S11, S32, UNIT, State, mixed, seeded
from penstock.core.step import Batch, Plan
from penstock.core.windows import Floats, Ints, Words

Bytes = npt.NDArray[Any]

ROOM = 1 << 14  # rows of each side: 29 bytes a row, 2 for the buckets and 1 for marks are 1 MiB over both sides
NEXT, LOW, MARKED = 0, 1, 2
PAIRS, VARIANCE, IMPORTANCE, IMPORTANCE_VARIANCE, SPREAD, LOOK_SPREAD, USUAL, WORTH = range(8)
LAST_NUMBER = 1 << 30
EIGHTHS, LARGEST = 8, 255  # of sizes
BELOW_ONE, EIGHTH_BITS = 1023 * EIGHTHS, 49  # the bits of a number below its eighths; eighths up to the number 1
LIKELIER = 2.0 ** (np.arange(LARGEST + 1) / EIGHTHS)  # by size
SELDOM = 1 << 6  # rows after which those that have expired are let go
STRIDE = 1 << 9  # rows after which the pace is looked at; some times SELDOM
GRACE = 1 << 17  # so many rows and pairs are counted before anything is saved
PRECISE = 0.0135  # a deviation, as a share of the pairs, that is fine enough
GROWTH = 2.0  # of the variance that is fine enough, for each pair more: then it stays so
HASTE = 4.0  # by which it should grow more slowly while it is not
OFTEN = 8.0  # how much likelier a row looks than it is sampled, if it can be chosen: it costs less
LEAST = 1 / 128  # no lower chance than that is chosen to save time
ALIKE = 1 - 1e-6  # weights are kept in 32 bits
THINNED = 0.8  # of the chance that stays when a ring is full
LOWERED, RAISED = 0.8, 1.25
PART_BITS = 8  # of the chance that a row looks
PARTS = float(1 << PART_BITS)
NOBODY, ONE, ALL = np.uint64(0), np.uint64(1), np.uint64((1 << 64) - 1)
MARKS, STALE = 8, 64  # bits for each row there is room for; marks of expired rows that may stay, beside some
LAST_ROW = SELDOM - 1
S6, LAST_BIT = np.uint64(6), np.uint64(63)
COMBINES = ("min", "sum", "product", "max", "mean")


@columns(heads=2, ends=3)
class Census(NamedTuple):
    """A sample of the rows of both sides, and what it has counted."""

    heads: Words  # (bucket, side) -> newest sampled row there, by its place in the order of arrival; -1: none
    older: Words  # (side, place % room) -> the next older row of the bucket
    marks: State  # (side, word): bits of the codes of sampled rows; most others have none
    code: Ints  # (side, place % room)
    pos: Ints  # (side, place % room)
    weight: Floats  # (side, place % room): 1/p
    size: Bytes  # (side, place % room): how much likelier than others it is, in eighths of a doubling
    owed: Floats  # (side, place % room): the sum of (1/p - 1)/q over the pairs of the row; if p is 1, of 1/q
    importance: Floats  # (side, place % room); empty: rows have none
    owed_importance: Floats  # the same as `owed`, each pair times its importance
    ends: Ints  # (side, [NEXT, LOW, MARKED]): places of the next row to come, the oldest not expired, and marked
    chance: Floats  # (side,): p of the rows to come
    skip: Ints  # (side,): rows that look to pass over before the next one that is sampled
    looks: Floats  # [q of the rows to come]
    looking: State  # [a bit for each of SELDOM rows: whether it looks]
    totals: Floats  # [PAIRS, VARIANCE, IMPORTANCE, IMPORTANCE_VARIANCE, SPREAD, LOOK_SPREAD, USUAL, WORTH]
    rows: Ints  # [how many have come]
    lots: State


def empty(seed: int, *, important: bool, room: int = ROOM) -> Census:
    """Return a census of nothing; `room` is rows of each side, a power of two."""
    if important and room == ROOM:
        room //= 2  # rows with an importance are wider
    wide_room = room if important else 0
    return Census(
        heads=np.full((room // 2, 2), -1, np.int32),
        older=np.empty((2, room), np.int32),
        marks=np.zeros((2, MARKS * room // 64), np.uint64),
        code=np.empty((2, room), np.int64),
        pos=np.empty((2, room), np.int64),
        weight=np.empty((2, room), np.float32),
        size=np.empty((2, room), np.uint8),
        owed=np.empty((2, room), np.float32),
        importance=np.empty((2, wide_room), np.float32),
        owed_importance=np.empty((2, wide_room), np.float32),
        ends=np.zeros((2, 3), np.int64),
        chance=np.ones(2),
        skip=np.zeros(2, np.int64),
        looks=np.ones(1),
        looking=np.zeros(1, np.uint64),
        totals=np.zeros(8),
        rows=np.zeros(1, np.int64),
        lots=seeded(seed),
    )


@part
def bucket_of(buckets: int, code: int) -> int:
    """Return where a code hashes to: the upper bits of its product with the golden ratio."""
    word = np.uint64(code) * GOLDEN
    return wide(((word >> S32) * np.uint64(buckets)) >> S32)


@part
def mark_of(census: Census, code: int) -> np.uint64:
    """Return the number of the bit that marks a code."""
    return (((np.uint64(code) * GOLDEN) >> S32) * np.uint64(census.marks.shape[1] << 6)) >> S32


@part
def is_marked(census: Census, side: int, code: int) -> bool:
    """Say whether a row of a side with this code may be in the sample."""
    bit = mark_of(census, code)
    return (census.marks[side, wide(bit >> S6)] >> (bit & LAST_BIT)) & ONE != NOBODY


@part
def mark(census: Census, side: int, code: int) -> None:
    """Set the bit of a code."""
    bit = mark_of(census, code)
    census.marks[side, wide(bit >> S6)] |= ONE << (bit & LAST_BIT)


@outlined
def mark_anew(census: Census, side: int) -> None:
    """Mark the codes of the rows that have not expired, and no others. O(room)."""
    census = borrowed(census)
    mask = census.code.shape[1] - 1
    census.marks[side] = NOBODY
    for place in range(census.ends[side, LOW], census.ends[side, NEXT]):
        mark(census, side, census.code[side, place & mask])
    census.ends[side, MARKED] = census.ends[side, LOW]


@part
def draws(lots: State, chance: float) -> bool:
    """Say whether a lot drawn now wins with this chance."""
    lots[0] += GOLDEN
    return float(mixed(lots[0]) >> S11) * UNIT < chance


@part
def plan_next(census: Census, side: int) -> None:
    """Draw how many rows that look are passed over before the next one that is sampled: cheaper than lots for all."""
    census.skip[side] = 0
    if census.chance[side] < census.looks[0]:
        census.lots[0] += GOLDEN
        lot = float(mixed(census.lots[0]) >> S11) * UNIT
        census.skip[side] = wide(math.log(1.0 - lot) / math.log(1.0 - census.chance[side] / census.looks[0]))


@part
def plan_looks(census: Census) -> None:
    """Draw which of the next SELDOM rows look: bit by bit of their chance, from the last, all of them at once."""
    looking = ALL
    if census.looks[0] < 1.0:
        looking, parts = NOBODY, wide(census.looks[0] * PARTS)
        for bit in range(PART_BITS):
            census.lots[0] += GOLDEN
            word = mixed(census.lots[0])
            looking = looking | word if (parts >> bit) & 1 else looking & word
    census.looking[0] = looking


@part
def set_looks(census: Census, chance: float) -> None:
    """Let rows look with a chance, up to its bits, and no row be sampled more surely."""
    census.looks[0] = math.ceil(min(1.0, chance) * PARTS) / PARTS


@part
def plan_both(census: Census) -> None:
    """Draw who is sampled next on each side, after chances have changed."""
    plan_next(census, 0)
    plan_next(census, 1)


@part
def chance_of(census: Census, side: int, size: int) -> float:
    """Return the chance of a row of this size to be sampled, if all looked."""
    chance = census.chance[side]
    return min(1.0, chance * LIKELIER[size]) if chance < 1.0 else 1.0


@part
def size_of(census: Census, met: float) -> int:
    """Return the size of a row that met so many: those that met more than others will.

    Eighths are counted along the bits of a number, straight between two powers of two: a logarithm costs more than
    all the rest.
    """
    ratio = met * census.totals[USUAL]
    return wide(0) if ratio <= 1.0 else min(wide(LARGEST), (rank(ratio) >> EIGHTH_BITS) - BELOW_ONE)


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
            if census.weight[side, slot] == 1.0:
                census.owed[side, slot] = 0.0
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
    mark_anew(census, side)


@part
def growth(census: Census, chance: float, looks: float) -> float:
    """Return by how much the variance will grow for each pair, with these chances."""
    missed, passed = 1.0 / chance - 1.0, 1.0 / looks - 1.0
    spread = census.totals[SPREAD] * missed + 3.0 * census.totals[LOOK_SPREAD] * passed
    return spread / census.totals[PAIRS] + missed * passed


@part
def raise_chances(census: Census, chance: float) -> None:
    """Let more of the rows to come be sampled where there is room, or more of them look."""
    looks = census.looks[0]
    raised = looks < OFTEN * chance and looks < 1.0
    for side in range(2):
        held = census.ends[side, NEXT] - census.ends[side, LOW]
        if not raised and census.chance[side] < looks and 2 * held < census.code.shape[1]:
            census.chance[side] = min(looks, RAISED * census.chance[side])
    if raised or census.chance[0] == looks or census.chance[1] == looks:
        set_looks(census, RAISED * looks)
    plan_both(census)


@part
def pace(census: Census) -> None:
    """Let as few of the rows to come look and be sampled as keep the estimate fine.

    What lower chances cost shows only a window later, but is known before by how pairs are spread over rows.
    """
    pairs, looks = census.totals[PAIRS], census.looks[0]
    if pairs == 0.0:
        return
    chance = 2.0 / (1.0 / census.chance[0] + 1.0 / census.chance[1])
    fine = PRECISE * PRECISE * pairs
    allowed = GROWTH * fine / (1.0 if census.totals[VARIANCE] <= fine * pairs else HASTE)
    if growth(census, chance, looks) > allowed:
        if chance < 1.0:
            raise_chances(census, chance)
    elif pairs + census.rows[0] >= GRACE and chance > LEAST:
        if looks > OFTEN * chance and growth(census, chance, LOWERED * looks) <= allowed:
            set_looks(census, LOWERED * looks)
            plan_both(census)
        elif growth(census, LOWERED * chance, looks) <= allowed:
            census.chance[0] *= LOWERED
            census.chance[1] *= LOWERED
            plan_both(census)


@part
def meet(census: Census, plan: Plan, side: int, code: int, at: int, importance: float, combine: int) -> float:
    """Let a row look at the sampled rows of the other side; returns how many it met, by estimate."""
    other = 1 - side
    mask = census.code.shape[1] - 1
    older, newer = plan.span[other], plan.span[side]
    totals = census.totals
    times = 1.0 / census.looks[0]
    met, extra, worths, variance, spread = 0.0, 0.0, 0.0, 0.0, 0.0
    low = census.ends[other, LOW]
    place = wide(census.heads[bucket_of(census.heads.shape[0], code), other])
    while place >= low:
        slot = place & mask
        if census.code[other, slot] == code:
            age = at - census.pos[other, slot]
            if age < older and -age < newer:
                weight, owed = float(census.weight[other, slot]), float(census.owed[other, slot])
                each = weight - 1.0 if weight > 1.0 else 1.0
                more = times * weight * (2 * owed + each)
                if weight > 1.0:
                    variance += more
                spread += more / (each * LIKELIER[wide(census.size[other, slot])])
                census.owed[other, slot] = owed + times * each
                met += weight
                extra += weight * (weight - 1.0)
                if census.importance.shape[1] > 0:
                    worth = combined(combine, float(census.importance[other, slot]), importance)
                    owed, each = float(census.owed_importance[other, slot]), worth * (weight - 1.0)
                    worths += weight * worth
                    totals[IMPORTANCE_VARIANCE] += times * weight * worth * (2 * owed + each)
                    census.owed_importance[other, slot] = owed + times * each
        place = wide(census.older[other, slot])
    if met > 0.0:
        totals[PAIRS] += times * met
        totals[VARIANCE] += variance + times * (times - 1.0) * met * met
        totals[SPREAD] += spread
        totals[LOOK_SPREAD] += times * (met * met - extra)
        if census.importance.shape[1] > 0:
            totals[IMPORTANCE] += times * worths
            totals[IMPORTANCE_VARIANCE] += times * (times - 1.0) * worths * worths
    totals[WORTH] = worths
    return met


@part
def is_chosen(census: Census, side: int, size: int) -> bool:
    """Say whether a row that looks is sampled: larger ones by lots of their own, the others when it is their turn."""
    if size > 0:
        chance = chance_of(census, side, size) / census.looks[0]
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
    if low - census.ends[side, MARKED] > STALE + (end - low) // 2:
        mark_anew(census, side)


@part
def enter(
    census: Census, side: int, code: int, pos: int, importance: float, size: int, met: float, oldest: int
) -> None:
    """Take a row into the sample; a full ring lets go of what has expired, then is thinned out."""
    mask = census.code.shape[1] - 1
    chance = min(census.looks[0], chance_of(census, side, size))
    if census.ends[side, NEXT] - census.ends[side, LOW] > mask:
        expire(census, side, oldest)
    while census.ends[side, NEXT] - census.ends[side, LOW] > mask or census.ends[side, NEXT] >= LAST_NUMBER:
        before = chance
        if census.ends[side, NEXT] < LAST_NUMBER:
            census.chance[side] *= THINNED
        thin(census, side)
        plan_next(census, side)
        chance = min(before, chance_of(census, side, size))
        if chance < before and not draws(census.lots, chance / before):
            return
    place = census.ends[side, NEXT]
    slot = place & mask
    missed = 1.0 / census.looks[0] - 1.0
    census.code[side, slot] = code
    census.pos[side, slot] = pos
    census.weight[side, slot] = 1.0 / chance
    census.size[side, slot] = size
    census.owed[side, slot] = missed * met
    if census.importance.shape[1] > 0:
        census.importance[side, slot] = importance
        census.owed_importance[side, slot] = missed * census.totals[WORTH]
    link(census, side, place, bucket_of(census.heads.shape[0], code))
    mark(census, side, code)
    census.ends[side, NEXT] = place + 1


@part
def oldest_of(plan: Plan, batch: Batch, i: int, side: int, bar: int) -> int:
    """Return what rows of a side count from that have expired when row i comes."""
    if plan.by_rows:
        return batch.clock[i, side] - plan.span[side]
    return (bar if plan.patient else batch.tick[i] + plan.ahead - 1) - plan.span[side]


@part
def look_around(census: Census, plan: Plan, batch: Batch, i: int, bar: int) -> None:
    """Do what need not be done for each row: let go of what has expired when row i comes, and mind the pace."""
    rows = census.rows[0]
    census.totals[USUAL] = (rows + 1.0) / (census.totals[PAIRS] + 1.0)
    expire(census, 0, oldest_of(plan, batch, i, 0, bar))
    expire(census, 1, oldest_of(plan, batch, i, 1, bar))
    if rows % STRIDE == 0:
        pace(census)
    plan_looks(census)


@part
def count(census: Census, plan: Plan, batch: Batch, i: int, code: int, bar: int, combine: int) -> None:
    """Let row i look, and sample it if that is its lot."""
    side = wide(batch.side[i])
    if census.skip[side] > 0 and not is_marked(census, 1 - side, code):
        census.skip[side] -= 1
        return
    importance = batch.importance[i] if census.importance.shape[1] > 0 else 0.0
    at = batch.clock[i, 1 - side] if plan.by_rows else batch.pos[i]
    met = meet(census, plan, side, code, at, importance, combine)
    size = size_of(census, met) if met > 0.0 else 0
    if is_chosen(census, side, size):
        enter(census, side, code, batch.pos[i], importance, size, met, oldest_of(plan, batch, i, side, bar))


@kernel
def take(census: Census, plan: Plan, batch: Batch, code: Ints, bar: int, combine: int) -> None:
    """Count the pairs that the rows of a batch complete, and sample its rows.

    `bar` is a time that no row to come is older than, if the plan is patient.

    Cost: O(1 + sampled matches) per row that looks, and O(1) amortised to thin out.
    """
    census, plan, batch, code = borrowed(census), borrowed(plan), borrowed(batch), borrowed(code)
    begin = 0
    while begin < code.size:
        done = census.rows[0] % SELDOM
        if done == 0:
            look_around(census, plan, batch, begin, bar)
        end = min(code.size, begin + SELDOM - done)
        looking = census.looking[0] >> np.uint64(done)
        if census.looking[0] == ALL:
            for i in range(begin, end):
                count(census, plan, batch, i, code[i], bar, combine)
        else:
            if end - begin < SELDOM:
                looking &= (ONE << np.uint64(end - begin)) - ONE
            while looking != NOBODY:  # straight to the next row that looks: processors cannot foretell lots
                rest = looking & (looking - ONE)
                i = begin + LAST_ROW - zeros(looking ^ rest)
                looking = rest
                count(census, plan, batch, i, code[i], bar, combine)
        census.rows[0] += end - begin
        begin = end
