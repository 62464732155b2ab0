"""What rows of an n-way join are worth under a budget, and who is worth least.

A row is worth the complete results that it can expect: the product, over all other streams, of how often its key
comes there. Arrivals are counted in *cells*, one a key, by weights that halve with time: newer arrivals weigh ever
more, so old weights need not be touched, and a product only ever grows while its key has rows.

All rows of one key and stream are worth the same and form a *leaf*, the oldest first. The heap is over leaves and
lazy: an entry never says more than the truth, only the one at the top is compared with it, and corrected until they
agree.
"""

import math
from typing import NamedTuple

import numpy as np

from penstock.core.jit import columns, kernel, part, wide
from penstock.core.rings import LONG_AGO, LOW, NEXT, ROW, TS, Windows
from penstock.core.rng import State, below, mixed, seeded
from penstock.core.windows import Floats, Ints

EXACT, PROB, OLDEST, RAND = range(4)
KIND, LIMIT, LIFE, BASE, CELLS, ENTRIES, GONE, USED = range(8)  # entries of `Pool.state`
FIRST, LAST, KNOWN = range(3)  # of a leaf: its oldest and its newest place, -1: none; whether the heap has it
CELL, NEWER = range(2)
BORN, STREAM, NUMBER, OF = range(
    4
)  # of an entry: time, stream and number of the oldest row of its leaf, and the cell
UNSET = LONG_AGO
NOBODY = -1
RESCALE = 48  # half-lives after which weights are brought back to the present: products of 11 stay finite
FIRST_CELLS = 1 << 12


class Budget(NamedTuple):
    """How much all windows may hold together, in rows or bytes, and who leaves.

    `life` is the half-life of an arrival's weight, in units of `Batch.clock`; 0: it never fades. `scale` makes the
    products of different streams comparable.
    """

    kind: int
    limit: int
    life: int
    scale: tuple[float, ...]
    seed: int


@columns(leaf=3, link=2, tag=4, gone=3)
class Pool(NamedTuple):
    """All rows that count against the limit, and what they are worth."""

    state: Ints
    scale: Floats  # stream -> what its products are multiplied by
    live: Ints  # stream -> rows
    code: Ints  # cell -> its key
    since: Ints  # cell -> the clock at which an arrival weighs 1 there; UNSET: the cell is free
    seen: Floats  # (cell, stream) -> weight of arrivals
    leaf: Ints  # (cell, stream, [FIRST, LAST, KNOWN])
    link: Ints  # (place of a ring, [CELL, NEWER])
    worth: Floats  # of an entry
    tag: Ints  # (entry, [BORN, STREAM, NUMBER, OF])
    gone: Ints  # (victim, [stream, row, time])
    lots: State


# --- worth --------------------------------------------------------------------------------------------------------


@part
def cell_of(pool: Pool, code: int) -> int:
    """Return the cell of a key, or a free one made its own; there always is one."""
    mask = pool.code.size - 1
    cell = wide(mixed(np.uint64(code)) & np.uint64(mask))
    while pool.since[cell] != UNSET and pool.code[cell] != code:
        cell = (cell + 1) & mask
    if pool.since[cell] == UNSET:
        pool.code[cell] = code
        pool.since[cell] = pool.state[BASE]
        pool.state[CELLS] += 1
    return cell


@part
def refresh(pool: Pool, cell: int) -> None:
    """Bring the weights of a cell to the present base; whole half-lives are powers of two and round nothing."""
    late = pool.state[BASE] - pool.since[cell]
    if late > 0:
        halves = -int(min(late // pool.state[LIFE], 2000))
        for s in range(pool.live.size):
            pool.seen[cell, s] = math.ldexp(pool.seen[cell, s], halves)
        pool.since[cell] = pool.state[BASE]


@part
def note(pool: Pool, s: int, code: int, clock: int) -> int:
    """Count one arrival, and return the cell of its key."""
    if pool.state[KIND] != PROB:
        return wide(0)
    cell = cell_of(pool, code)
    refresh(pool, cell)
    weight = 1.0
    if pool.state[LIFE] > 0:  # one group may be longer than weights can grow
        weight = 2.0 ** min((clock - pool.state[BASE]) / pool.state[LIFE], 2.0 * RESCALE)
    pool.seen[cell, s] += weight
    return cell


@part
def worth_of(pool: Pool, s: int, cell: int) -> float:
    """Return what the rows of one key and stream are worth."""
    if pool.state[KIND] != PROB:
        return 0.0
    product = pool.scale[s]
    for other in range(pool.live.size):
        if other != s:
            product *= pool.seen[cell, other]
    return product


@part
def grow_old(windows: Windows, pool: Pool, clock: int) -> None:
    """Bring weights back to the present if they have grown large, and the heap with them: O(entries), seldom."""
    state = pool.state
    if state[KIND] != PROB or state[LIFE] == 0:
        return
    if state[BASE] == UNSET:
        state[BASE] = clock
    halves = (clock - state[BASE]) // state[LIFE]
    if halves <= RESCALE:
        return
    state[BASE] += halves * state[LIFE]
    kept = 0
    for entry in range(state[ENTRIES]):
        s, cell = pool.tag[entry, STREAM], pool.tag[entry, OF]
        if pool.leaf[cell, s, FIRST] < 0:
            pool.leaf[cell, s, KNOWN] = 0
            continue
        refresh(pool, cell)
        write(windows, pool, kept, s, cell)
        kept += 1
    state[ENTRIES] = kept
    for entry in range(kept // 2, -1, -1):
        sink(pool, entry)


# --- the heap -----------------------------------------------------------------------------------------------------


@part
def sooner(pool: Pool, one: int, other: int) -> bool:
    """Say whether an entry goes before another: worth less, else older, else of an earlier stream."""
    if pool.worth[one] != pool.worth[other]:
        return pool.worth[one] < pool.worth[other]
    for field in (BORN, STREAM, NUMBER):
        if pool.tag[one, field] != pool.tag[other, field]:
            return pool.tag[one, field] < pool.tag[other, field]
    return False


@part
def swap(pool: Pool, one: int, other: int) -> None:
    """Let two entries change places."""
    pool.worth[one], pool.worth[other] = pool.worth[other], pool.worth[one]
    for field in range(4):
        pool.tag[one, field], pool.tag[other, field] = pool.tag[other, field], pool.tag[one, field]


@part
def rise(pool: Pool, entry: int) -> None:
    """Move an entry up to its place."""
    while entry > 0 and sooner(pool, entry, (entry - 1) // 2):
        swap(pool, entry, (entry - 1) // 2)
        entry = (entry - 1) // 2


@part
def sink(pool: Pool, entry: int) -> None:
    """Move an entry down to its place."""
    size = pool.state[ENTRIES]
    while True:
        least = entry
        for child in (2 * entry + 1, 2 * entry + 2):
            if child < size and sooner(pool, child, least):
                least = child
        if least == entry:
            return
        swap(pool, entry, least)
        entry = least


@part
def write(windows: Windows, pool: Pool, entry: int, s: int, cell: int) -> None:
    """Write the truth about a leaf."""
    place = pool.leaf[cell, s, FIRST]
    at = windows.first[s] + (place & windows.mask[s])
    pool.worth[entry] = worth_of(pool, s, cell)
    pool.tag[entry, BORN] = windows.rows[at, TS]
    pool.tag[entry, STREAM] = s
    pool.tag[entry, NUMBER] = windows.rows[at, ROW]
    pool.tag[entry, OF] = cell


@part
def least_of_all(windows: Windows, pool: Pool) -> tuple[int, int]:
    """Return stream and place of the row to go first."""
    while True:
        s, cell = wide(pool.tag[0, STREAM]), pool.tag[0, OF]
        place = wide(pool.leaf[cell, s, FIRST])
        if place < 0:
            pool.leaf[cell, s, KNOWN] = 0
            pool.state[ENTRIES] -= 1
            swap(pool, 0, pool.state[ENTRIES])
        else:
            worth, number = pool.worth[0], pool.tag[0, NUMBER]
            write(windows, pool, 0, s, cell)
            if pool.worth[0] == worth and pool.tag[0, NUMBER] == number:
                return s, place
        sink(pool, 0)


@part
def any_of_all(windows: Windows, pool: Pool) -> tuple[int, int]:
    """Draw a row, all alike; marks are drawn in vain."""
    places = 0
    for s in range(pool.live.size):
        places += windows.ends[s, NEXT] - windows.ends[s, LOW]
    while True:
        drawn = below(pool.lots, places)
        s = wide(0)
        while drawn >= windows.ends[s, NEXT] - windows.ends[s, LOW]:
            drawn -= windows.ends[s, NEXT] - windows.ends[s, LOW]
            s += 1
        place = windows.ends[s, LOW] + drawn
        if windows.rows[windows.first[s] + (place & windows.mask[s]), ROW] >= 0:
            return s, wide(place)


# --- room ---------------------------------------------------------------------------------------------------------


@kernel
def claim(pool: Pool, codes: Ints) -> Ints:
    """Return a cell for each of some different keys."""
    cells = np.empty(codes.size, np.int64)
    for i in range(codes.size):
        cells[i] = cell_of(pool, codes[i])
    return cells


def emptied(budget: Budget, streams: int, places: int, cells: int = FIRST_CELLS) -> Pool:
    """Return a pool without rows, for rings with so many places."""
    exact, counts = budget.kind == EXACT, budget.kind == PROB
    cells = cells if counts else 1
    leaves = streams if budget.kind in {PROB, OLDEST} else 0
    state = np.zeros(8, np.int64)
    state[[KIND, LIMIT, LIFE, BASE]] = budget.kind, budget.limit, budget.life, UNSET if budget.life else 0
    leaf = np.full((cells, leaves, 3), NOBODY, np.int64)
    leaf[:, :, KNOWN] = 0
    return Pool(
        state=state,
        scale=np.array(budget.scale, np.float64),
        live=np.zeros(streams, np.int64),
        code=np.zeros(cells, np.int64),
        since=np.full(cells, UNSET),
        seen=np.zeros((cells, streams if counts else 0)),
        leaf=leaf,
        link=np.zeros((0 if exact else places, 2), np.int64),
        worth=np.empty(leaves),
        tag=np.empty((leaves, 4), np.int64),
        gone=np.empty((0, 3), np.int64),
        lots=seeded(budget.seed),
    )


def with_room(pool: Pool, budget: Budget, arriving: int) -> Pool:
    """Return a pool with room to count and to rank so many more rows, and to tell of all that may leave.

    Keys without rows are forgotten if cells are short, the rarest first; rows keep their worth.

    Cost: O(cells), when there were as many arrivals since; else O(1).
    """
    if budget.kind == EXACT:
        return pool
    pool.state[GONE] = 0
    if pool.gone.shape[0] < (most := int(pool.live.sum()) + arriving):
        pool = pool._replace(gone=np.empty((most, 3), np.int64))
    if budget.kind == PROB and 2 * (int(pool.state[CELLS]) + arriving) > pool.code.size:
        pool = _remembered(pool, budget, arriving)
    if pool.leaf.shape[1] and int(pool.state[ENTRIES]) + arriving > pool.worth.size:
        pool = _ranked(pool, arriving)
    return pool


def _remembered(pool: Pool, budget: Budget, arriving: int) -> Pool:
    """Move to cells of which at least half stay free."""
    held = pool.leaf[:, :, FIRST].max(axis=1) >= 0
    late = np.maximum(pool.state[BASE] - pool.since, 0) // max(budget.life, 1)
    weight = np.ldexp(pool.seen.sum(axis=1), -np.minimum(late, 2000).astype(np.int64))
    used = np.flatnonzero(pool.since != UNSET)
    keep = max(int(held.sum()), 2 * int(pool.live.sum()), FIRST_CELLS)
    kept = used[np.lexsort([-weight[used], ~held[used]])[:keep]]
    cells = 1 << (4 * (kept.size + arriving) - 1).bit_length()
    roomy = emptied(budget, pool.live.size, 0, max(cells, FIRST_CELLS))
    fresh = roomy._replace(
        state=pool.state,
        live=pool.live,
        link=pool.link,
        worth=pool.worth,
        tag=pool.tag,
        gone=pool.gone,
        lots=pool.lots,
    )
    pool.state[CELLS] = 0
    moved = np.full(pool.code.size, NOBODY)
    moved[kept] = claim(fresh, pool.code[kept])
    for name in ("since", "seen", "leaf"):
        getattr(fresh, name)[moved[kept]] = getattr(pool, name)[kept]
    fresh.link[:, CELL] = moved[fresh.link[:, CELL]]
    fresh.tag[: pool.state[ENTRIES], OF] = moved[fresh.tag[: pool.state[ENTRIES], OF]]
    return _ranked(fresh, arriving)


def _ranked(pool: Pool, arriving: int) -> Pool:
    """Drop entries of leaves without rows; what is in order is a heap."""
    size = int(pool.state[ENTRIES])
    worth, tag = pool.worth[:size], pool.tag[:size]
    known = tag[:, OF] >= 0  # others are of keys just forgotten
    mine = known & (pool.leaf[tag[:, OF], tag[:, STREAM], FIRST] >= 0)
    dropped = tag[known & ~mine]
    pool.leaf[dropped[:, OF], dropped[:, STREAM], KNOWN] = 0
    worth, tag = worth[mine], tag[mine]
    order = np.lexsort([tag[:, NUMBER], tag[:, STREAM], tag[:, BORN], worth])
    room = 2 * (order.size + arriving)
    longer = pool._replace(worth=np.empty(room), tag=np.empty((room, 4), np.int64))
    longer.worth[: order.size] = worth[order]
    longer.tag[: order.size] = tag[order]
    pool.state[ENTRIES] = order.size
    return longer
