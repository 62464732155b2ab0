"""Give up rows of an n-way join: all windows share one pool, and whoever is worth least leaves it first.

A row that is given up stays in its ring as a mark that joins nothing, until such marks outnumber the rows. Under a
budget each window is one ring, and has the number of its stream.
"""

from penstock.core.jit import borrowed, kernel, part
from penstock.core.rings import CODE, FRESH, LONG_AGO, LOW, NEXT, POS, ROW, SHIFT, WEIGHT, Windows, put, put_key
from penstock.core.windows import Ints
from penstock.core.worth import (
    CELL,
    EACH,
    EXACT,
    FIRST,
    GONE,
    KIND,
    KNOWN,
    LAST,
    LIMIT,
    NEWER,
    NOBODY,
    OLDEST,
    PROB,
    RAND,
    USED,
    Pool,
    any_of_all,
    enter,
    heaped,
    least_of_all,
    note,
    note_row,
    write,
)

SLACK = 256  # marks that need not be swept


@part
def append(pool: Pool, windows: Windows, s: int, place: int, cell: int) -> None:
    """Add a row to its leaf, as the newest."""
    at = windows.first[s] + (place & windows.mask[s])
    pool.link[at, CELL] = cell
    pool.link[at, NEWER] = NOBODY
    if pool.leaf[cell, s, FIRST] < 0:
        pool.leaf[cell, s, FIRST] = place
    else:
        pool.link[windows.first[s] + (pool.leaf[cell, s, LAST] & windows.mask[s]), NEWER] = place
    pool.leaf[cell, s, LAST] = place


@part
def admit(windows: Windows, pool: Pool, s: int, code: int, clock: int) -> None:
    """Let the newest row of a ring into the pool."""
    place = windows.ends[s, NEXT] - 1
    pool.live[s] += 1
    pool.state[USED] += windows.rows[windows.first[s] + (place & windows.mask[s]), WEIGHT]
    if pool.state[KIND] == RAND:
        return
    of = place
    if pool.state[KIND] == EACH:
        note_row(windows, pool, s, place, clock)
    else:
        of = note(pool, s, code, clock)
        append(pool, windows, s, place, of)
        if pool.leaf[of, s, KNOWN]:
            return
        pool.leaf[of, s, KNOWN] = 1
    enter(windows, pool, s, of)


@part
def leave(windows: Windows, pool: Pool, s: int, place: int) -> None:
    """Take a row out of the pool: the oldest of its leaf, where there are leaves."""
    at = windows.first[s] + (place & windows.mask[s])
    pool.live[s] -= 1
    pool.state[USED] -= windows.rows[at, WEIGHT]
    if pool.state[KIND] != RAND and pool.state[KIND] != EACH:
        pool.leaf[pool.link[at, CELL], s, FIRST] = pool.link[at, NEWER]


@part
def expire(windows: Windows, span: Ints, by_rows: Ints, pool: Pool, now: int) -> None:
    """Let go of rows that are too old for whatever comes from `now` on: at the end of every ring."""
    bounded = pool.state[KIND] != EXACT
    for s in range(span.size):
        for ring in range(windows.rings[s], windows.rings[s + 1]):
            low, end = windows.ends[ring, LOW], windows.ends[ring, NEXT]
            base, mask = windows.first[ring], windows.mask[ring]
            clock = now
            if by_rows[s]:
                clock = windows.rows[base + ((end - 1) & mask), POS] if low < end else LONG_AGO
            while low < end and clock - windows.rows[base + (low & mask), POS] >= span[s]:
                if bounded and windows.rows[base + (low & mask), ROW] >= 0:
                    leave(windows, pool, s, low)
                low += 1
            windows.ends[ring, LOW] = low


@kernel
def let_go(windows: Windows, span: Ints, by_rows: Ints, pool: Pool, now: int) -> None:
    """Let go of old rows although nothing came."""
    expire(borrowed(windows), borrowed(span), borrowed(by_rows), borrowed(pool), now)


@part
def close(windows: Windows, span: Ints, by_rows: Ints, pool: Pool, now: int) -> bool:
    """End a group: whoever can meet nobody later leaves, then victims do; says whether there are too many marks."""
    expire(windows, span, by_rows, pool, now + 1)
    while pool.state[USED] > pool.state[LIMIT]:
        s, place = any_of_all(windows, pool) if pool.state[KIND] == RAND else least_of_all(windows, pool)
        at = windows.first[s] + (place & windows.mask[s])
        leave(windows, pool, s, place)
        gone = pool.state[GONE]
        pool.gone[gone, 0] = s
        pool.gone[gone, 1] = windows.rows[at, ROW]
        pool.gone[gone, 2] = now
        pool.state[GONE] = gone + 1
        windows.rows[at, ROW] = NOBODY
    places = (windows.ends[:, NEXT] - windows.ends[:, LOW]).sum()
    return places > 2 * pool.live.sum() + SLACK


@part
def carry(windows: Windows, old: Windows, keys: Ints, s: int, place: int, at: int, before: int) -> None:
    """Enter the keys and the importance of a row of older windows, that is now at `at` and was at `before`."""
    if windows.value.size:
        windows.value[at] = old.value[before]
    for c in range(keys[s], keys[s + 1]):
        code = old.nodes[before + old.column[c, SHIFT], CODE]
        put_key(windows, c, at, place, code, windows.rows[at, ROW])


@part
def refill_ring(windows: Windows, old: Windows, keys: Ints, pool: Pool, link: Ints, s: int, ring: int) -> None:
    """Enter the rows of one older ring, without the marks; the newest says how far its window counts, and stays."""
    leaves = pool.state[KIND] in (PROB, OLDEST)
    low, end = old.ends[ring, LOW], old.ends[ring, NEXT]
    if leaves:
        for place in range(low, end):
            before = old.first[ring] + (place & old.mask[ring])
            if old.rows[before, ROW] >= 0:
                pool.leaf[link[before, CELL], s, FIRST] = NOBODY
    fresh = low
    for place in range(low, end):
        before = old.first[ring] + (place & old.mask[ring])
        ts, pos, row, weight = old.rows[before]
        if row < 0 and place < end - 1:
            continue
        at = windows.first[ring] + (fresh & windows.mask[ring])
        put(windows, at, ts, pos, row, weight)
        carry(windows, old, keys, s, fresh, at, before)
        if leaves and row >= 0:
            append(pool, windows, s, fresh, link[before, CELL])
        fresh += 1
    windows.ends[ring, LOW] = low
    windows.ends[ring, NEXT] = fresh
    windows.ends[ring, FRESH] = fresh


@kernel
def refill(windows: Windows, old: Windows, keys: Ints, pool: Pool, link: Ints) -> None:
    """Enter the rows of older windows, without the marks.

    Parameters:
        link: that of the pool for the older windows.
    """
    windows, old, keys = borrowed(windows), borrowed(old), borrowed(keys)
    pool, link = borrowed(pool), borrowed(link)
    for s in range(keys.size - 1):
        for ring in range(old.rings[s], old.rings[s + 1]):
            refill_ring(windows, old, keys, pool, link, s, ring)
    if pool.state[KIND] == EACH:
        rank_anew(windows, pool)


@part
def rank_anew(windows: Windows, pool: Pool) -> None:
    """Rank all rows after they have changed places; there is room, for each had its entry."""
    for s in range(windows.mask.size):
        entry = 0
        for place in range(windows.ends[s, LOW], windows.ends[s, NEXT]):
            if windows.rows[windows.first[s] + (place & windows.mask[s]), ROW] >= 0:
                write(windows, pool, entry, s, place)
                entry += 1
        pool.entries[s] = entry
        heaped(pool, s)
