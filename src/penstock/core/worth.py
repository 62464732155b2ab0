"""What rows of an n-way join are worth under a budget, and who is worth least.

A row is worth the complete results that it can expect: the product, over all other streams, of how often its key
comes there. Arrivals are counted in *cells*, one a key, by weights that halve with time: newer arrivals weigh ever
more, so old weights need not be touched, and a product only ever grows while its key has rows.

Along a join graph a row meets each neighbour by another key: its *ties*, the edges of a tree that spans the graph. A
row that comes is counted in the cell of each of its ties, as many times as it can expect partners along all its other
ties. So what comes along a tie is the number of partial results behind it, and a worth is the product over the ties.
Every such number has a *degree*: of how many streams it multiplies arrivals, and so how many times as fast it fades.
Where rows have an importance, its sum is kept beside each count, and a worth is the count times the importance of
the row combined with the means of what it meets. That, too, only grows.

That is so if all others are there. Of the streams whose rows are given up only a share is: a result ends with a row
that arrives, and its other partners must be *held*. So the worth of a stream is multiplied by the sum, over the
stream that the last row comes from, of the product of how much is held of all the rest, per arrival there. For two
streams nothing is left to be held, and all weigh alike; for more, no stream can fill the pool alone.

With one key for all and no importance, all rows of one key and stream are worth the same and form a *leaf*, the
oldest first, and heaps are over leaves; else they are over rows. Each stream has a heap of its own, for what it holds
changes what all others are worth, and not their order among themselves. They are lazy: an entry never says more than
the truth, only the one at the top is compared with it, and corrected until they agree.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, columns, kernel, part, wide
from penstock.core.rings import CODE, LONG_AGO, LOW, NEXT, ROW, SHIFT, TS, Windows
from penstock.core.rng import State, below, mixed, seeded
from penstock.core.windows import Floats, Ints

EXACT, PROB, OLDEST, RAND, EACH = range(5)  # PROB is by leaf, EACH the same by row
KIND, LIMIT, LIFE, BASE, CELLS, GONE, USED, COMMON, COMBINE = range(9)  # entries of `Pool.state`
COLUMN, OTHER, SALT = range(3)  # of a tie: the column that is compared, -1: none; with which stream
LEAST, SUM, PRODUCT, MOST = range(4)  # how importances become one; -1: rows have none
FIRST, LAST, KNOWN = range(3)  # of a leaf: its oldest and its newest place, -1: none; whether the heap has it
CELL, NEWER = range(2)
BORN, NUMBER, OF = range(3)  # of an entry: time and number of its (oldest) row; its cell or place
UNSET = LONG_AGO
NOBODY = -1
RESCALE = 48  # half-lives after which weights are brought back to the present: products of 11 stay finite
FIRST_CELLS = 1 << 12


class Budget(NamedTuple):
    """How much all windows may hold together, in rows or bytes, and who leaves.

    `life` is the half-life of an arrival's weight, in units of `Batch.clock`; 0: it never fades. `scale` makes the
    products of different streams comparable if all hold alike. `ties` are those of each stream, `common` says that
    all have one key, and `combine` how importances become one; -1: rows have none.
    """

    kind: int
    limit: int
    life: int
    scale: tuple[float, ...]
    seed: int
    ties: "tuple[tuple[Tie, ...], ...]" = ()
    common: bool = True
    combine: int = -1


class Tie(NamedTuple):
    """An edge of a join graph, seen from one of its streams.

    `column` is compared, -1: nothing is; with stream `other`. `salt` tells the keys of different edges apart, and
    `degree` is, for each stream, that of what it counts here.
    """

    column: int
    other: int
    salt: int
    degree: tuple[int, ...]


@columns(ties=3, leaf=3, link=2, tag=3, gone=3)
class Pool(NamedTuple):
    """All rows that count against the limit, and what they are worth."""

    state: Ints
    scale: Floats  # stream -> what its products are multiplied by
    live: Ints  # stream -> rows
    came: Floats  # stream -> weight of arrivals, as in `seen`
    entries: Ints  # stream -> how many its heap has
    tied: Ints  # stream -> its first tie; ends with their number
    ties: Ints  # (tie, [COLUMN, OTHER, SALT])
    degree: Ints  # (tie, stream)
    code: Ints  # cell -> its key
    since: Ints  # cell -> the clock at which an arrival weighs 1 there; UNSET: the cell is free
    seen: Floats  # (cell, stream) -> weight of arrivals, times their partners elsewhere
    paid: Floats  # (cell, stream) -> the same times their importance, where they have one
    leaf: Ints  # (cell, stream, [FIRST, LAST, KNOWN])
    link: Ints  # (place of a ring, [CELL, NEWER])
    worth: Floats  # (stream, entry)
    tag: Ints  # (stream, entry, [BORN, NUMBER, OF])
    gone: Ints  # (victim, [stream, row, time])
    lots: State


# --- worth --------------------------------------------------------------------------------------------------------


@part
def sought(pool: Pool, code: int) -> int:
    """Return the cell of a key, or the free one that it would get; there always is one."""
    mask = pool.code.size - 1
    cell = wide(mixed(np.uint64(code)) & np.uint64(mask))
    while pool.since[cell] != UNSET and pool.code[cell] != code:
        cell = (cell + 1) & mask
    return cell


@part
def cell_of(pool: Pool, code: int) -> int:
    """Return the cell of a key, or a free one made its own."""
    cell = sought(pool, code)
    if pool.since[cell] == UNSET:
        pool.code[cell] = code
        pool.since[cell] = pool.state[BASE]
        pool.state[CELLS] += 1
    return cell


@part
def refresh(pool: Pool, cell: int, tie: int) -> None:
    """Bring the weights of a cell to the present base; whole half-lives are powers of two and round nothing."""
    late = pool.state[BASE] - pool.since[cell]
    if late > 0:
        halves = -int(min(late // pool.state[LIFE], 2000))
        for s in range(pool.live.size):
            pool.seen[cell, s] = math.ldexp(pool.seen[cell, s], halves * pool.degree[tie, s])
        for s in range(pool.paid.shape[1]):
            pool.paid[cell, s] = math.ldexp(pool.paid[cell, s], halves * pool.degree[tie, s])
        pool.since[cell] = pool.state[BASE]


@part
def weight_at(pool: Pool, clock: int) -> float:
    """Return what an arrival weighs; one group may be longer than weights can grow."""
    if pool.state[LIFE] == 0:
        return 1.0
    return 2.0 ** min((clock - pool.state[BASE]) / pool.state[LIFE], 2.0 * RESCALE)


@part
def note(pool: Pool, s: int, code: int, clock: int) -> int:
    """Count one arrival under a key common to all streams, and return its cell."""
    if pool.state[KIND] != PROB:
        return wide(0)
    cell = cell_of(pool, code)
    refresh(pool, cell, 0)
    pool.seen[cell, s] += weight_at(pool, clock)
    pool.came[s] += weight_at(pool, clock)
    return cell


@part
def key_at(windows: Windows, pool: Pool, s: int, place: int, tie: int) -> int:
    """Return the key by which a row meets others along a tie."""
    c = pool.ties[tie, COLUMN]
    at = windows.first[s] + (place & windows.mask[s])
    code = windows.nodes[at + windows.column[c, SHIFT], CODE] if c >= 0 else wide(0)
    return code ^ pool.ties[tie, SALT]


@part
def importance_at(windows: Windows, pool: Pool, s: int, place: int) -> float:
    """Return the importance of a row, 1 where rows have none."""
    if pool.state[COMBINE] < 0:
        return 1.0
    return windows.value[windows.first[s] + (place & windows.mask[s])]


@part
def combined(combine: int, one: float, other: float) -> float:
    """Return the importance of two together."""
    if combine == LEAST:
        return min(one, other)
    if combine == SUM:
        return one + other
    return one * other if combine == PRODUCT else max(one, other)


@part
def expected(windows: Windows, pool: Pool, s: int, place: int, but: int) -> tuple[float, float]:
    """Return how many partners a row can expect along its ties but one, and their importance with its own."""
    count, value = 1.0, importance_at(windows, pool, s, place)
    for tie in range(pool.tied[s], pool.tied[s + 1]):
        if tie == but:
            continue
        cell = sought(pool, key_at(windows, pool, s, place, tie))
        if pool.since[cell] == UNSET:
            return 0.0, 0.0
        refresh(pool, cell, tie)
        other = pool.ties[tie, OTHER]
        came = pool.seen[cell, other]
        if came == 0.0:
            return 0.0, 0.0
        count *= came
        if pool.state[COMBINE] >= 0:
            value = combined(pool.state[COMBINE], value, pool.paid[cell, other] / came)
    return count, count * value


@part
def note_row(windows: Windows, pool: Pool, s: int, place: int, clock: int) -> None:
    """Count one arrival along all its ties; of a common key once."""
    weight = weight_at(pool, clock)
    pool.came[s] += weight
    for tie in range(pool.tied[s], pool.tied[s + 1]):
        count, value = 1.0, importance_at(windows, pool, s, place)
        if pool.state[COMMON] == 0:
            count, value = expected(windows, pool, s, place, tie)
        cell = cell_of(pool, key_at(windows, pool, s, place, tie))
        refresh(pool, cell, tie)
        pool.seen[cell, s] += weight * count
        if pool.state[COMBINE] >= 0:
            pool.paid[cell, s] += weight * value
        if pool.state[COMMON] == 1:
            break


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
    if state[LIFE] == 0 or (state[KIND] != PROB and state[KIND] != EACH):
        return
    if state[BASE] == UNSET:
        state[BASE] = clock
    halves = (clock - state[BASE]) // state[LIFE]
    if halves > RESCALE:
        state[BASE] += halves * state[LIFE]
        for s in range(pool.came.size):
            pool.came[s] = math.ldexp(pool.came[s], -int(min(halves, 2000)))
        reckon(windows, pool)


@part
def held_elsewhere(pool: Pool, s: int) -> float:
    """Return what the worth of a stream is multiplied by for what the others hold; one more each, which may come."""
    total = 0.0
    for last in range(pool.live.size):
        if last == s:
            continue
        product = 1.0
        for other in range(pool.live.size):
            if other not in (s, last):
                came = pool.came[other]
                product *= (pool.live[other] + 1) / came if came > 0.0 else 0.0
        total += product
    return total


# --- the heaps ----------------------------------------------------------------------------------------------------


@part
def sooner(pool: Pool, s: int, one: int, other: int) -> bool:
    """Say whether an entry goes before another of its stream: worth less, else older."""
    if pool.worth[s, one] != pool.worth[s, other]:
        return pool.worth[s, one] < pool.worth[s, other]
    for field in (BORN, NUMBER):
        if pool.tag[s, one, field] != pool.tag[s, other, field]:
            return pool.tag[s, one, field] < pool.tag[s, other, field]
    return False


@part
def swap(pool: Pool, s: int, one: int, other: int) -> None:
    """Let two entries change places."""
    pool.worth[s, one], pool.worth[s, other] = pool.worth[s, other], pool.worth[s, one]
    for field in range(3):
        pool.tag[s, one, field], pool.tag[s, other, field] = pool.tag[s, other, field], pool.tag[s, one, field]


@part
def enter(windows: Windows, pool: Pool, s: int, of: int) -> None:
    """Add an entry to the heap of a stream: about a leaf, given by its cell, or a row, by its place."""
    entry = pool.entries[s]
    pool.entries[s] += 1
    write(windows, pool, entry, s, of)
    while entry > 0 and sooner(pool, s, entry, (entry - 1) // 2):
        swap(pool, s, entry, (entry - 1) // 2)
        entry = (entry - 1) // 2


@part
def sink(pool: Pool, s: int, entry: int) -> None:
    """Move an entry down to its place."""
    size = pool.entries[s]
    while True:
        least = entry
        for child in (2 * entry + 1, 2 * entry + 2):
            if child < size and sooner(pool, s, child, least):
                least = child
        if least == entry:
            return
        swap(pool, s, entry, least)
        entry = least


@part
def write(windows: Windows, pool: Pool, entry: int, s: int, of: int) -> None:
    """Write the truth about a leaf, given by its cell, or about a row, by its place."""
    by_row = pool.state[KIND] == EACH
    place = of if by_row else pool.leaf[of, s, FIRST]
    at = windows.first[s] + (place & windows.mask[s])
    pool.worth[s, entry] = (
        pool.scale[s] * expected(windows, pool, s, place, NOBODY)[1] if by_row else worth_of(pool, s, of)
    )
    pool.tag[s, entry, BORN] = windows.rows[at, TS]
    pool.tag[s, entry, NUMBER] = windows.rows[at, ROW]
    pool.tag[s, entry, OF] = of


@part
def standing(windows: Windows, pool: Pool, s: int, entry: int) -> int:
    """Return the place of the row that an entry is about; -1: it has none any more."""
    of = wide(pool.tag[s, entry, OF])
    if pool.state[KIND] != EACH:
        place = wide(pool.leaf[of, s, FIRST])
        if place < 0:
            pool.leaf[of, s, KNOWN] = 0
        return place
    row = windows.rows[windows.first[s] + (of & windows.mask[s]), ROW]
    return of if of >= windows.ends[s, LOW] and row == pool.tag[s, entry, NUMBER] else wide(NOBODY)


@part
def heaped(pool: Pool, s: int) -> None:
    """Put all entries of a stream in order of a heap."""
    for entry in range(pool.entries[s] // 2, -1, -1):
        sink(pool, s, entry)


@part
def reckon(windows: Windows, pool: Pool) -> None:
    """Write the truth about everyone, and drop entries without rows. O(entries)."""
    for s in range(pool.entries.size):
        kept = 0
        for entry in range(pool.entries[s]):
            if standing(windows, pool, s, entry) < 0:
                continue
            of = wide(pool.tag[s, entry, OF])
            if pool.state[KIND] != EACH:
                refresh(pool, of, 0)
            write(windows, pool, kept, s, of)
            kept += 1
        pool.entries[s] = kept
        heaped(pool, s)


@part
def least_of(windows: Windows, pool: Pool, s: int) -> int:
    """Return the place of the row of a stream that goes first; -1: it has none."""
    while pool.entries[s] > 0:
        place = standing(windows, pool, s, 0)
        if place < 0:
            pool.entries[s] -= 1
            swap(pool, s, 0, pool.entries[s])
        else:
            worth, number = pool.worth[s, 0], pool.tag[s, 0, NUMBER]
            write(windows, pool, 0, s, wide(pool.tag[s, 0, OF]))
            if pool.worth[s, 0] == worth and pool.tag[s, 0, NUMBER] == number:
                return place
        sink(pool, s, 0)
    return wide(NOBODY)


@part
def least_of_all(windows: Windows, pool: Pool) -> tuple[int, int]:
    """Return stream and place of the row to go first: worth least, else older, else of an earlier stream."""
    stream, found, least, born = wide(NOBODY), wide(NOBODY), 0.0, wide(0)
    for s in range(pool.entries.size):
        place = least_of(windows, pool, s)
        if place < 0:
            continue
        worth = 0.0 if pool.state[KIND] == OLDEST else held_elsewhere(pool, s) * pool.worth[s, 0]
        if stream < 0 or worth < least or (worth == least and pool.tag[s, 0, BORN] < born):
            stream, found, least, born = wide(s), place, worth, wide(pool.tag[s, 0, BORN])
    return stream, found


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


@kernel
def reckon_all(windows: Windows, pool: Pool) -> None:
    """Write the truth about everyone, after keys were forgotten."""
    reckon(borrowed(windows), borrowed(pool))


def emptied(budget: Budget, streams: int, places: int, cells: int = FIRST_CELLS) -> Pool:
    """Return a pool without rows, for rings with so many places."""
    counts = budget.kind in {PROB, EACH}
    cells = cells if counts else 1
    leaves = streams if budget.kind in {PROB, OLDEST} else 0
    state = np.zeros(9, np.int64)
    state[[KIND, LIMIT, LIFE, BASE]] = budget.kind, budget.limit, budget.life, UNSET if budget.life else 0
    state[[COMMON, COMBINE]] = budget.common, budget.combine
    leaf = np.full((cells, leaves, 3), NOBODY, np.int64)
    leaf[:, :, KNOWN] = 0
    ties = [tie for mine in budget.ties for tie in mine]
    return Pool(
        state=state,
        scale=np.array(budget.scale, np.float64),
        live=np.zeros(streams, np.int64),
        came=np.zeros(streams),
        entries=np.zeros(streams, np.int64),
        tied=np.cumsum([0, *map(len, budget.ties)], dtype=np.int64),
        ties=np.array([tie[:3] for tie in ties], np.int64).reshape(-1, 3),
        degree=np.array([tie.degree for tie in ties] or [(1,) * streams], np.int64),
        code=np.zeros(cells, np.int64),
        since=np.full(cells, UNSET),
        seen=np.zeros((cells, streams if counts else 0)),
        paid=np.zeros((cells, streams if counts and budget.combine >= 0 else 0)),
        leaf=leaf,
        link=np.zeros((places if leaves else 0, 2), np.int64),
        worth=np.empty((streams, 1)),
        tag=np.empty((streams, 1, 3), np.int64),
        gone=np.empty((0, 3), np.int64),
        lots=seeded(budget.seed),
    )


def with_room(pool: Pool, budget: Budget, windows: Windows, arriving: int) -> Pool:
    """Return a pool with room to count and to rank so many more rows, and to tell of all that may leave.

    Keys without rows are forgotten if cells are short, the rarest first; along a join graph simply the rarest.

    Cost: O(cells), when there were as many arrivals since; else O(1).
    """
    if budget.kind == EXACT:
        return pool
    pool.state[GONE] = 0
    if pool.gone.shape[0] < (most := int(pool.live.sum()) + arriving):
        pool = pool._replace(gone=np.empty((most, 3), np.int64))
    fresh = arriving * keys_of_a_row(budget)
    if pool.seen.size and 2 * (int(pool.state[CELLS]) + fresh) > pool.code.size:
        pool = _remembered(pool, budget, fresh)
        if budget.kind == EACH:
            reckon_all(windows, pool)
    if budget.kind != RAND and int(pool.entries.max()) + arriving > pool.worth.shape[1]:
        pool = _ranked(pool, windows, arriving)
    return pool


def keys_of_a_row(budget: Budget) -> int:
    """Return how many cells a row counts in, at most."""
    return 1 if budget.common else max(len(ties) for ties in budget.ties)


def _remembered(pool: Pool, budget: Budget, arriving: int) -> Pool:
    """Move to cells of which at least half stay free."""
    held = pool.leaf[:, :, FIRST].max(axis=1, initial=NOBODY) >= 0
    late = np.maximum(pool.state[BASE] - pool.since, 0) // max(budget.life, 1)
    weight = np.ldexp(pool.seen.sum(axis=1), -np.minimum(late, 2000).astype(np.int64))
    used = np.flatnonzero(pool.since != UNSET)
    keep = max(int(held.sum()), 2 * keys_of_a_row(budget) * int(pool.live.sum()), FIRST_CELLS)
    kept = used[np.lexsort([-weight[used], ~held[used]])[:keep]]
    cells = 1 << (4 * (kept.size + arriving) - 1).bit_length()
    roomy = emptied(budget, pool.live.size, 0, max(cells, FIRST_CELLS))
    same = ("state", "live", "came", "entries", "link", "worth", "tag", "gone", "lots")
    fresh = roomy._replace(**{name: getattr(pool, name) for name in same})
    pool.state[CELLS] = 0
    moved = np.full(pool.code.size, NOBODY)
    moved[kept] = claim(fresh, pool.code[kept])
    for name in ("since", "seen", "paid", "leaf"):
        getattr(fresh, name)[moved[kept]] = getattr(pool, name)[kept]
    if budget.kind == PROB:
        fresh.link[:, CELL] = moved[fresh.link[:, CELL]]
        for s, size in enumerate(fresh.entries):
            fresh.tag[s, :size, OF] = moved[fresh.tag[s, :size, OF]]
            _shortened(fresh, s, fresh.tag[s, :size, OF] >= 0)  # others are of keys just forgotten, without rows
    return fresh


def _shortened(pool: Pool, s: int, keep: npt.NDArray[np.bool_]) -> None:
    """Leave entries of a stream out; what is in order is a heap."""
    size = int(pool.entries[s])
    worth, tag = pool.worth[s, :size][keep], pool.tag[s, :size][keep]
    order = np.lexsort([tag[:, NUMBER], tag[:, BORN], worth])
    pool.worth[s, : order.size], pool.tag[s, : order.size] = worth[order], tag[order]
    pool.entries[s] = order.size


def _ranked(pool: Pool, windows: Windows, arriving: int) -> Pool:
    """Drop entries without rows, and make room for more."""
    for s, size in enumerate(pool.entries):
        number, of = pool.tag[s, :size, NUMBER], pool.tag[s, :size, OF]
        if pool.state[KIND] == EACH:
            at = windows.first[s] + (of & windows.mask[s])
            mine = (of >= windows.ends[s, LOW]) & (windows.rows[at, ROW] == number)
        else:
            mine = pool.leaf[of, s, FIRST] >= 0
            pool.leaf[of[~mine], s, KNOWN] = 0
        _shortened(pool, s, mine)
    most, streams = int(pool.entries.max()), pool.entries.size
    room = 2 * (most + arriving)
    longer = pool._replace(worth=np.empty((streams, room)), tag=np.empty((streams, room, 3), np.int64))
    longer.worth[:, :most], longer.tag[:, :most] = pool.worth[:, :most], pool.tag[:, :most]
    return longer
