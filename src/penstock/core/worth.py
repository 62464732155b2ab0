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

With one key for all and no importance, all rows of one key and stream are worth the same and form a *leaf*, the
oldest first, and the heap is over leaves; else it is over rows. It is lazy: an entry never says more than the truth,
only the one at the top is compared with it, and corrected until they agree.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import borrowed, columns, kernel, part, wide
from penstock.core.rings import CODE, LONG_AGO, LOW, NEXT, ROW, TS, Windows
from penstock.core.rng import State, below, mixed, seeded
from penstock.core.windows import Floats, Ints

EXACT, PROB, OLDEST, RAND, EACH = range(5)  # PROB is by leaf, EACH the same by row
KIND, LIMIT, LIFE, BASE, CELLS, ENTRIES, GONE, USED, COMMON, COMBINE = range(10)  # entries of `Pool.state`
COLUMN, OTHER, SALT = range(3)  # of a tie: the column that is compared, -1: none; with which stream
LEAST, SUM, PRODUCT, MOST = range(4)  # how importances become one; -1: rows have none
FIRST, LAST, KNOWN = range(3)  # of a leaf: its oldest and its newest place, -1: none; whether the heap has it
CELL, NEWER = range(2)
BORN, STREAM, NUMBER, OF = range(4)  # of an entry: time, stream and number of its (oldest) row; its cell or place
UNSET = LONG_AGO
NOBODY = -1
RESCALE = 48  # half-lives after which weights are brought back to the present: products of 11 stay finite
FIRST_CELLS = 1 << 12


class Budget(NamedTuple):
    """How much all windows may hold together, in rows or bytes, and who leaves.

    `life` is the half-life of an arrival's weight, in units of `Batch.clock`; 0: it never fades. `scale` makes the
    products of different streams comparable. `ties` are those of each stream, `common` says that all have one key,
    and `combine` how importances become one; -1: rows have none.
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


@columns(ties=3, leaf=3, link=2, tag=4, gone=3)
class Pool(NamedTuple):
    """All rows that count against the limit, and what they are worth."""

    state: Ints
    scale: Floats  # stream -> what its products are multiplied by
    live: Ints  # stream -> rows
    tied: Ints  # stream -> its first tie; ends with their number
    ties: Ints  # (tie, [COLUMN, OTHER, SALT])
    degree: Ints  # (tie, stream)
    code: Ints  # cell -> its key
    since: Ints  # cell -> the clock at which an arrival weighs 1 there; UNSET: the cell is free
    seen: Floats  # (cell, stream) -> weight of arrivals, times their partners elsewhere
    paid: Floats  # (cell, stream) -> the same times their importance, where they have one
    leaf: Ints  # (cell, stream, [FIRST, LAST, KNOWN])
    link: Ints  # (place of a ring, [CELL, NEWER])
    worth: Floats  # of an entry
    tag: Ints  # (entry, [BORN, STREAM, NUMBER, OF])
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
    return cell


@part
def key_at(windows: Windows, pool: Pool, s: int, place: int, tie: int) -> int:
    """Return the key by which a row meets others along a tie."""
    c = pool.ties[tie, COLUMN]
    code = windows.nodes[windows.column[c, 1] + (place & windows.mask[s]), CODE] if c >= 0 else wide(0)
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
        reckon(windows, pool)


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
def write(windows: Windows, pool: Pool, entry: int, s: int, of: int) -> None:
    """Write the truth about a leaf, given by its cell, or about a row, by its place."""
    by_row = pool.state[KIND] == EACH
    place = of if by_row else pool.leaf[of, s, FIRST]
    at = windows.first[s] + (place & windows.mask[s])
    pool.worth[entry] = (
        pool.scale[s] * expected(windows, pool, s, place, NOBODY)[1] if by_row else worth_of(pool, s, of)
    )
    pool.tag[entry, BORN] = windows.rows[at, TS]
    pool.tag[entry, STREAM] = s
    pool.tag[entry, NUMBER] = windows.rows[at, ROW]
    pool.tag[entry, OF] = of


@part
def standing(windows: Windows, pool: Pool, entry: int) -> int:
    """Return the place of the row that an entry is about; -1: it has none any more."""
    s, of = pool.tag[entry, STREAM], wide(pool.tag[entry, OF])
    if pool.state[KIND] != EACH:
        place = wide(pool.leaf[of, s, FIRST])
        if place < 0:
            pool.leaf[of, s, KNOWN] = 0
        return place
    row = windows.rows[windows.first[s] + (of & windows.mask[s]), ROW]
    return of if of >= windows.ends[s, LOW] and row == pool.tag[entry, NUMBER] else wide(NOBODY)


@part
def heaped(pool: Pool) -> None:
    """Put all entries in order of a heap."""
    for entry in range(pool.state[ENTRIES] // 2, -1, -1):
        sink(pool, entry)


@part
def reckon(windows: Windows, pool: Pool) -> None:
    """Write the truth about everyone, and drop entries without rows. O(entries)."""
    kept = 0
    for entry in range(pool.state[ENTRIES]):
        if standing(windows, pool, entry) < 0:
            continue
        s, of = wide(pool.tag[entry, STREAM]), wide(pool.tag[entry, OF])
        if pool.state[KIND] != EACH:
            refresh(pool, of, 0)
        write(windows, pool, kept, s, of)
        kept += 1
    pool.state[ENTRIES] = kept
    heaped(pool)


@part
def least_of_all(windows: Windows, pool: Pool) -> tuple[int, int]:
    """Return stream and place of the row to go first."""
    while True:
        s, of = wide(pool.tag[0, STREAM]), wide(pool.tag[0, OF])
        place = standing(windows, pool, 0)
        if place < 0:
            pool.state[ENTRIES] -= 1
            swap(pool, 0, pool.state[ENTRIES])
        else:
            worth, number = pool.worth[0], pool.tag[0, NUMBER]
            write(windows, pool, 0, s, of)
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


@kernel
def reckon_all(windows: Windows, pool: Pool) -> None:
    """Write the truth about everyone, after keys were forgotten."""
    reckon(borrowed(windows), borrowed(pool))


def emptied(budget: Budget, streams: int, places: int, cells: int = FIRST_CELLS) -> Pool:
    """Return a pool without rows, for rings with so many places."""
    counts = budget.kind in {PROB, EACH}
    cells = cells if counts else 1
    leaves = streams if budget.kind in {PROB, OLDEST} else 0
    state = np.zeros(10, np.int64)
    state[[KIND, LIMIT, LIFE, BASE]] = budget.kind, budget.limit, budget.life, UNSET if budget.life else 0
    state[[COMMON, COMBINE]] = budget.common, budget.combine
    leaf = np.full((cells, leaves, 3), NOBODY, np.int64)
    leaf[:, :, KNOWN] = 0
    ties = [tie for mine in budget.ties for tie in mine]
    return Pool(
        state=state,
        scale=np.array(budget.scale, np.float64),
        live=np.zeros(streams, np.int64),
        tied=np.cumsum([0, *map(len, budget.ties)], dtype=np.int64),
        ties=np.array([tie[:3] for tie in ties], np.int64).reshape(-1, 3),
        degree=np.array([tie.degree for tie in ties] or [(1,) * streams], np.int64),
        code=np.zeros(cells, np.int64),
        since=np.full(cells, UNSET),
        seen=np.zeros((cells, streams if counts else 0)),
        paid=np.zeros((cells, streams if counts and budget.combine >= 0 else 0)),
        leaf=leaf,
        link=np.zeros((places if leaves else 0, 2), np.int64),
        worth=np.empty(leaves),
        tag=np.empty((leaves, 4), np.int64),
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
    if budget.kind != RAND and int(pool.state[ENTRIES]) + arriving > pool.worth.size:
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
    same = ("state", "live", "link", "worth", "tag", "gone", "lots")
    fresh = roomy._replace(**{name: getattr(pool, name) for name in same})
    pool.state[CELLS] = 0
    moved = np.full(pool.code.size, NOBODY)
    moved[kept] = claim(fresh, pool.code[kept])
    for name in ("since", "seen", "paid", "leaf"):
        getattr(fresh, name)[moved[kept]] = getattr(pool, name)[kept]
    if budget.kind == PROB:
        size = int(pool.state[ENTRIES])
        fresh.link[:, CELL] = moved[fresh.link[:, CELL]]
        fresh.tag[:size, OF] = moved[fresh.tag[:size, OF]]
        kept_entries = fresh.tag[:size, OF] >= 0  # others are of keys just forgotten, which have no rows
        _shortened(fresh, kept_entries)
    return fresh


def _shortened(pool: Pool, keep: npt.NDArray[np.bool_]) -> None:
    """Leave entries out; what is in order is a heap."""
    size = int(pool.state[ENTRIES])
    worth, tag = pool.worth[:size][keep], pool.tag[:size][keep]
    order = np.lexsort([tag[:, NUMBER], tag[:, STREAM], tag[:, BORN], worth])
    pool.worth[: order.size], pool.tag[: order.size] = worth[order], tag[order]
    pool.state[ENTRIES] = order.size


def _ranked(pool: Pool, windows: Windows, arriving: int) -> Pool:
    """Drop entries without rows, and make room for more."""
    size = int(pool.state[ENTRIES])
    stream, number, of = pool.tag[:size, STREAM], pool.tag[:size, NUMBER], pool.tag[:size, OF]
    if pool.state[KIND] == EACH:
        at = windows.first[stream] + (of & windows.mask[stream])
        mine = (of >= windows.ends[stream, LOW]) & (windows.rows[at, ROW] == number)
    else:
        mine = pool.leaf[of, stream, FIRST] >= 0
        pool.leaf[of[~mine], stream[~mine], KNOWN] = 0
    _shortened(pool, mine)
    size = int(pool.state[ENTRIES])
    room = 2 * (size + arriving)
    longer = pool._replace(worth=np.empty(room), tag=np.empty((room, 4), np.int64))
    longer.worth[:size], longer.tag[:size] = pool.worth[:size], pool.tag[:size]
    return longer
