"""The n-way join: nested loops over all windows at once, without intermediate state.

Each window is a ring of its rows in order of time, or such a ring for each of a number of buckets. New rows enter
together, a group at a time: the rows of one tick if evaluation is eager, those of one interval if it is lazy. Then,
for the new rows of each stream in turn, the loops run over the windows in the order of their nest. A loop walks its
window from the newest row to the oldest: along a hash chain or the ring of a bucket where the window has such on what
is compared, else along all of its rings. A result counts at its last row in the order of time, then of streams: rows
after the new one are passed over, and so each result is found once. If evaluation is eager and windows are in time,
a ring lets old rows go when somebody looks into it, and all do after the last group that was taken.

If evaluation is eager, all windows are in time, and new rows are outermost, rows enter *singly*, and only those run
through the loops that may find somebody: in the first window that is looked into or, where chains of one common key
begin side by side, in every window, which one look tells.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.exact import bucket
from penstock.core.jit import apart, borrowed, columns, kernel, part, prefetch, wide
from penstock.core.rings import (
    CODE,
    FRESH,
    HEAD,
    LONG_AGO,
    LOW,
    MANY,
    NEXT,
    OLDER,
    POS,
    ROW,
    SHIFT,
    STRIDE,
    TS,
    Batch,
    Windows,
    chained,
    coming,
    empty,
    head_of,
    insert,
    ring_of,
)
from penstock.core.shedding import admit, close, expire, let_go, refill
from penstock.core.windows import Ints
from penstock.core.worth import EACH, EXACT, GONE, KIND, LIMIT, NOBODY, Budget, Pool, emptied, grow_old, with_room

# entries of `Work.state`; SINGLY: rows enter so; PROMPT: rings let old rows go when somebody looks into them; LONE: a
# group has one new row, and all that is in the rings is before it
TAKEN, SOURCE, DEPTH, FOUND, COMPARED, EXPIRES, UNTIL, NEW, TIME, TURN, SINCE, SINGLY, PROMPT, LONE = range(14)
(
    STREAM,  # of a loop: its window, its first ring, how many it has
    RING,
    RINGS,
    NODES,  # where the codes are that its first test compares
    HEADS,
    BUCKETS,
    APART,
    OUTER,  # with what: the depth of an outer loop, where its codes are
    OUTER_NODES,
    COMPARE,  # how; -1: it has no test
    WHEN,  # BEFORE, AT or AFTER the loop over the new rows
    PLAIN,  # whether nothing else is asked than its first test, of equality, along all of a ring
    ENTRIES,
) = range(13)
BEFORE, AT, AFTER = range(3)
WHERE, OF_RING, EARLIER = range(3)  # of a new row: where it is, in which ring, the one before it of its stream
SEEN, OLDEST, NEWEST, COMING = range(4)  # of a ring: at which row it was looked for what a new row may meet there
(
    PLACE,  # of a loop under way: the next place to look at
    SOUGHT,  # what its first test compares with
    BOUND,  # where the row is that is being joined
    FROM,  # the oldest place to look at
    UPTO,  # the first place that comes after the new row, and will find it
    INSIDE,  # the ring that is being looked at, where it begins, its places less one
    BASE,
    MASK,
    LAST,  # the last ring to look at
    SINCE_TURN,  # the new row for which it started, if it starts alike whatever is in the loops between
    FIRST,  # where it then starts
    ASPECTS,
) = range(12)
MINE, DEPTH_OF, THEIRS, HOW = range(4)  # of a test: column of this window, depth of an outer loop, its column
EQUAL, UNEQUAL, LESS, AT_MOST, GREATER, AT_LEAST = range(6)  # how a test compares
REVERSED = (EQUAL, UNEQUAL, GREATER, AT_LEAST, LESS, AT_MOST)
DONE, FULL, CROWDED = range(3)
IDLE = -1
ENDED, NO_ROOM = -1, -2  # why a loop found no row
FIRST_ROOM, FIRST_OF_BUCKET = 256, 8
SLICE = 1 << 12  # rows that are taken at once, at least; more where windows hold more than twice as many
FIRST_RESULTS = 1 << 12
MOST_RESULTS = 1 << 20  # that are held at once
NONE = np.empty(0, np.int64)
NO_ROWS = Batch(NONE, NONE, NONE, NONE, NONE, NONE, NONE, code=NONE.reshape(0, 1), importance=np.empty(0))
AHEAD = 12  # rows between asking for a bucket and using it


@columns(loops=ENTRIES)
class Nests(NamedTuple):
    """The loops for the new rows of each stream, the outermost first."""

    span: Ints  # stream -> length of its window
    by_rows: Ints  # stream -> whether that is in rows
    nest: Ints  # (source, depth) -> stream
    fresh: Ints  # source -> the depth of its new rows
    tests: Ints  # (source, depth, test, [MINE, DEPTH_OF, THEIRS, HOW]): what is compared; -1: no more
    loops: Ints  # (source, depth, [STREAM, ...]): all that a loop asks for again and again, side by side
    expiry: Ints  # [interval at which old rows are let go of; 0: whenever a group comes]


@columns(loop=ASPECTS, new=3, part=4)
class Work(NamedTuple):
    """How far the loops are: a full output stops them anywhere."""

    state: Ints
    loop: Ints  # (depth, [PLACE, ...]): how far a loop is
    newest: Ints  # stream -> its newest new row; -1: none
    new: Ints  # (new row, [WHERE, OF_RING, EARLIER])
    part: Ints  # (ring, [SEEN, OLDEST, NEWEST, COMING])


@part
def look_ahead(windows: Windows, nests: Nests, batch: Batch, i: int, keys: Ints) -> None:
    """Ask for the chains that a row soon to come will enter, and for the first one that it will look into."""
    if i >= batch.row.size:
        return
    s = batch.stream[i]
    for c in range(keys[s], keys[s + 1]):
        if windows.column[c, MANY]:
            prefetch(windows.heads, head_of(windows, c, batch.code[i, c - keys[s]]))
    c = nests.tests[s, 1, 0, MINE]
    if nests.fresh[s] == 0 and c >= 0 and windows.column[c, MANY] and windows.column[c, STRIDE] == 1:
        prefetch(windows.heads, head_of(windows, c, batch.code[i, nests.tests[s, 1, 0, THEIRS] - keys[s]]))


@part
def other_code(windows: Windows, nests: Nests, work: Work, source: int, depth: int, test: int) -> int:
    """Return the code that a test at some depth compares with: that of a row in an outer loop."""
    at = work.loop[nests.tests[source, depth, test, DEPTH_OF], BOUND]
    return windows.nodes[at + windows.column[nests.tests[source, depth, test, THEIRS], SHIFT], CODE]


@part
def holds(how: int, mine: int, theirs: int) -> bool:
    """Compare two codes."""
    if how == EQUAL:
        return mine == theirs
    if how == UNEQUAL:
        return mine != theirs
    if how == LESS:
        return mine < theirs
    if how == AT_MOST:
        return mine <= theirs
    return mine > theirs if how == GREATER else mine >= theirs


@part
def clock_of(windows: Windows, nests: Nests, s: int, now: int) -> int:
    """Return what a window counts to at a new row: the time, or the rows that came until then.

    The paper's COMPUTECOUNTJOIN looks for the same row: the newest one that is no newer. O(log rows) for that. A
    window in rows is one ring.
    """
    if not nests.by_rows[s]:
        return now
    ring = windows.rings[s]
    begin, high = windows.ends[ring, LOW], windows.ends[ring, NEXT]
    base, mask = windows.first[ring], windows.mask[ring]
    low = begin
    while low < high:
        middle = (low + high) // 2
        if windows.rows[base + (middle & mask), TS] <= now:
            low = middle + 1
        else:
            high = middle
    return windows.rows[base + ((low - 1) & mask), POS] if low > begin else LONG_AGO


@part
def limit(windows: Windows, nests: Nests, work: Work, source: int, s: int, ring: int) -> None:
    """Find between which places of a ring a new row finds partners: neither too old nor after it.

    New rows come newest first, so the places only ever go down: O(1) for each, on the whole.
    """
    now = wide(work.state[TIME])
    base, mask, begin = windows.first[ring], windows.mask[ring], wide(windows.ends[ring, LOW])
    first = work.part[ring, SEEN] < work.state[SINCE]
    low = begin if first else wide(work.part[ring, OLDEST])
    high = wide(windows.ends[ring, NEXT] if first else work.part[ring, NEWEST])
    latest = now - (s > source)
    while high > windows.ends[ring, FRESH] and windows.rows[base + ((high - 1) & mask), TS] > latest:
        high -= 1
    dead = clock_of(windows, nests, s, now) - nests.span[s]
    if first:
        while low < high and windows.rows[base + (low & mask), POS] <= dead:
            low += 1
    else:
        while low > begin and windows.rows[base + ((low - 1) & mask), POS] > dead:
            low -= 1
    work.part[ring, SEEN] = work.state[TURN]
    work.part[ring, OLDEST] = low
    work.part[ring, NEWEST] = high


@part
def let_old_go(windows: Windows, ring: int, dead: int) -> None:
    """Let go of the rows of a ring up to some time."""
    low, end = wide(windows.ends[ring, LOW]), windows.ends[ring, NEXT]
    base, mask = windows.first[ring], windows.mask[ring]
    while low < end and windows.rows[base + (low & mask), POS] <= dead:
        low += 1
    windows.ends[ring, LOW] = low


@part
def look_into(windows: Windows, nests: Nests, work: Work, source: int, depth: int, ring: int) -> None:
    """Start the loop at some depth over one ring: at its newest row, or at the newest of the chain."""
    loop = nests.loops
    when = loop[source, depth, WHEN]
    work.loop[depth, INSIDE] = ring
    work.loop[depth, BASE], work.loop[depth, MASK] = windows.first[ring], windows.mask[ring]
    if work.state[PROMPT] and when != AT:
        let_old_go(windows, ring, work.state[TIME] - nests.span[loop[source, depth, STREAM]])
    if loop[source, depth, BUCKETS]:
        chain = bucket(loop[source, depth, BUCKETS], work.loop[depth, SOUGHT])
        work.loop[depth, PLACE] = windows.heads[loop[source, depth, HEADS] + chain * loop[source, depth, APART]]
    else:
        work.loop[depth, PLACE] = windows.ends[ring, NEXT] - 1
    if when == AFTER and not work.state[LONE]:
        if work.part[ring, SEEN] != work.state[TURN]:
            limit(windows, nests, work, source, loop[source, depth, STREAM], ring)
        work.loop[depth, FROM], work.loop[depth, UPTO] = work.part[ring, OLDEST], work.part[ring, NEWEST]
        return
    work.loop[depth, UPTO] = windows.ends[ring, NEXT]
    work.loop[depth, FROM] = windows.ends[ring, FRESH] if when == AT else windows.ends[ring, LOW]
    if when == AT:
        work.state[SINCE] = work.state[TURN] + 1


@part
def begin(windows: Windows, nests: Nests, work: Work, source: int, depth: int) -> None:
    """Start the loop at some depth: over the ring of the bucket if there is one, else over all rings.

    Where it looks for partners of the new row, as on a common key, it starts where it did before for the same row.
    """
    loop = nests.loops
    if loop[source, depth, WHEN] == AFTER and work.loop[depth, SINCE_TURN] == work.state[TURN]:
        work.loop[depth, PLACE] = work.loop[depth, FIRST]
        return
    ring, rings = wide(loop[source, depth, RING]), loop[source, depth, RINGS]
    last = ring + rings - 1
    if loop[source, depth, COMPARE] >= 0:
        at = work.loop[loop[source, depth, OUTER], BOUND] + loop[source, depth, OUTER_NODES]
        work.loop[depth, SOUGHT] = windows.nodes[at, CODE]
        if rings > 1:
            ring = last = ring + bucket(rings, work.loop[depth, SOUGHT])
    work.loop[depth, LAST] = last
    look_into(windows, nests, work, source, depth, ring)
    if ring == last and loop[source, depth, COMPARE] >= 0 and loop[source, depth, OUTER] == nests.fresh[source]:
        work.loop[depth, SINCE_TURN] = work.state[TURN]
        work.loop[depth, FIRST] = work.loop[depth, PLACE]


@part
def fits(windows: Windows, nests: Nests, work: Work, source: int, depth: int, at: int) -> bool:
    """Say whether a row that joins passes the tests after the first; a new one must find the rows outside in time."""
    if windows.rows[at, ROW] < 0:
        return False
    for test in range(1, nests.tests.shape[2]):
        c = nests.tests[source, depth, test, MINE]
        if c < 0:
            break
        mine = windows.nodes[at + windows.column[c, SHIFT], CODE]
        theirs = other_code(windows, nests, work, source, depth, test)
        if not holds(nests.tests[source, depth, test, HOW], mine, theirs):
            return False
    if nests.loops[source, depth, WHEN] == AT:
        now = windows.rows[at, TS]
        for outer in range(depth):
            s, row = nests.nest[source, outer], work.loop[outer, BOUND]
            late = windows.rows[row, TS] > now or (windows.rows[row, TS] == now and s > source)
            if late or clock_of(windows, nests, s, now) - windows.rows[row, POS] >= nests.span[s]:
                return False
    return True


@apart
def passed_over(nodes: Ints, base: int, mask: int, place: int, low: int, code: int) -> int:
    """Return the next place of a ring, from `place` down to `low`, that has some code; below `low`: none."""
    while place >= low and nodes[base + (place & mask), CODE] != code:
        place -= 1
    return place


@apart
def gather(
    nodes: Ints, rows: Ints, ring: tuple[int, int, int], place: int, low: int, code: int, found: Ints, n: int
) -> tuple[int, int]:
    """Write the rows of a ring that have some code, from `place` down to `low`, while there is room for more.

    Returns the next place, and how many are written then: those that were given up are not.
    """
    codes, base, mask = ring
    while place >= low and n < found.size:
        if nodes[codes + (place & mask), CODE] == code:
            row = rows[base + (place & mask), ROW]
            found[n] = row
            n += row >= 0
        place -= 1
    return place, n


@apart
def fill(found: Ints, begin: int, end: int, row: int) -> None:
    """Write one row into several results."""
    for n in range(begin, end):
        found[n] = row


@part
def scan(windows: Windows, nests: Nests, work: Work, source: int, depth: int, results: Ints) -> int:
    """Go on with a loop that asks for nothing but one equality, along all of a ring: like ``seek``."""
    loop = nests.loops
    base, mask = work.loop[depth, BASE], work.loop[depth, MASK]
    codes = loop[source, depth, NODES] + base
    low, code = work.loop[depth, FROM], work.loop[depth, SOUGHT]
    begin = wide(work.loop[depth, PLACE])
    place = min(begin, max(work.loop[depth, UPTO], low) - 1)
    found = wide(ENDED)
    if depth == nests.span.size - 1:
        rows, n = results[loop[source, depth, STREAM]], wide(work.state[FOUND])
        place, n = gather(windows.nodes, windows.rows, (codes, base, mask), place, low, code, rows, n)
        write_outer(windows, nests, work, source, results, n)
        found = wide(NO_ROOM) if place >= low else found
    else:
        while found < 0 and place >= low:
            place = passed_over(windows.nodes, codes, mask, place, low, code)
            if place < low:
                break
            at = base + (place & mask)
            place -= 1
            found = at if windows.rows[at, ROW] >= 0 else found
    work.loop[depth, PLACE] = place
    work.state[COMPARED] += begin - place if depth else 0
    return found


@part
def seek(windows: Windows, nests: Nests, work: Work, source: int, depth: int, results: Ints) -> int:
    """Go on with the loop at some depth to the next row of its ring that joins the rows outside, or ENDED.

    The innermost loop does not stop there: it writes rows that join until its ring has ended, or there is NO_ROOM.
    """
    loop = nests.loops
    base, mask = work.loop[depth, BASE], work.loop[depth, MASK]
    codes, how = loop[source, depth, NODES], loop[source, depth, COMPARE]
    chained = loop[source, depth, BUCKETS] > 0
    scanned = not chained and how == EQUAL
    low, high, code = work.loop[depth, FROM], work.loop[depth, UPTO], work.loop[depth, SOUGHT]
    place = work.loop[depth, PLACE]
    innermost = depth == nests.span.size - 1
    rows, n = results[loop[source, depth, STREAM]], wide(work.state[FOUND])
    room = rows.size if innermost else n + 1
    compared = 0
    found = wide(ENDED)
    while place >= low and n < room:
        if scanned:  # most rows are passed over here, and nothing else is asked of them
            begin = place
            place = passed_over(windows.nodes, codes + base, mask, min(place, max(high, low) - 1), low, code)
            compared += begin - place
            if place < low:
                break
        at = base + (place & mask)
        here = place
        place = windows.nodes[codes + at, OLDER] if chained else place - 1
        compared += 1
        joins = here < high and (how < 0 or holds(how, windows.nodes[codes + at, CODE], code))
        if joins and fits(windows, nests, work, source, depth, at):
            if not innermost:
                found = at
                break
            rows[n] = windows.rows[at, ROW]
            n += 1
    work.loop[depth, PLACE] = place
    work.state[COMPARED] += compared if depth else 0
    if innermost:
        write_outer(windows, nests, work, source, results, n)
        found = wide(NO_ROOM) if place >= low else found
    return found


@part
def next_row(windows: Windows, nests: Nests, work: Work, source: int, depth: int, results: Ints) -> int:
    """Go on with the loop at some depth, in the way that is made for it."""
    if depth == 0 and nests.fresh[source] == 0:
        return next_new(windows, work)
    if nests.loops[source, depth, PLAIN]:
        return scan(windows, nests, work, source, depth, results)
    return seek(windows, nests, work, source, depth, results)


@part
def write_outer(windows: Windows, nests: Nests, work: Work, source: int, results: Ints, end: int) -> None:
    """Complete results up to some number, of which the innermost loop has written its rows."""
    begin = wide(work.state[FOUND])
    if begin == end:
        return
    for outer in range(nests.span.size - 1):
        rows, row = results[nests.loops[source, outer, STREAM]], windows.rows[work.loop[outer, BOUND], ROW]
        fill(rows, begin, end, row)
    work.state[FOUND] = end


@part
def next_new(windows: Windows, work: Work) -> int:
    """Go on with the outermost loop to the next new row of a stream, newest first, or ENDED."""
    new = work.loop[0, PLACE]
    found = wide(ENDED)
    while new >= 0 and found < 0:
        at = wide(work.new[new, WHERE])
        found = at if windows.rows[at, ROW] >= 0 else found
        new = work.new[new, EARLIER]
    work.loop[0, PLACE] = new
    return found


@part
def alone(windows: Windows, source: int, at: int) -> bool:
    """Say whether some window has nobody in the chain of a new row, where chains begin side by side."""
    code = windows.nodes[at + windows.column[source, SHIFT], CODE]
    head = head_of(windows, source, code) - source
    missing = False
    for s in range(windows.rings.size - 1):
        missing |= windows.heads[head + s] < windows.ends[s, LOW]
    return missing


@part
def start(windows: Windows, nests: Nests, work: Work, source: int) -> None:
    """Start the outermost loop: over the new rows, or over a window."""
    if nests.fresh[source] == 0:
        work.loop[0, PLACE] = work.newest[source]
        work.state[SINCE] = work.state[TURN] + 1
    else:
        begin(windows, nests, work, source, 0)


@part
def evaluate(windows: Windows, nests: Nests, source: int, results: Ints, work: Work) -> int:
    """Run the loops for the new rows of one stream, from where they are; returns why they stopped."""
    depth, outermost = work.state[DEPTH], nests.fresh[source] == 0
    side_by_side = nests.loops[source, 0, APART] > 1 and not work.state[SINGLY]
    if depth == IDLE:
        depth = 0
        start(windows, nests, work, source)
    while depth >= 0:
        new = depth == 0 and outermost
        at = next_row(windows, nests, work, source, depth, results)
        if at == NO_ROOM:
            work.state[DEPTH] = depth
            return FULL
        if at == ENDED:
            if new or work.loop[depth, INSIDE] == work.loop[depth, LAST]:
                depth -= 1
            else:
                look_into(windows, nests, work, source, depth, work.loop[depth, INSIDE] + 1)
            continue
        if new and side_by_side and alone(windows, source, at):
            continue  # it joins nothing
        work.loop[depth, BOUND] = at
        if nests.loops[source, depth, WHEN] == AT:
            work.state[TIME] = windows.rows[at, TS]
            work.state[TURN] += not (work.state[SINGLY] and work.state[PROMPT])  # else its loops have begun
        depth += 1
        begin(windows, nests, work, source, depth)
    work.state[DEPTH] = IDLE
    return DONE


@part
def take(windows: Windows, nests: Nests, batch: Batch, keys: Ints, work: Work, pool: Pool) -> None:
    """Let old rows go and enter the next group."""
    i = work.state[TAKEN]
    now, group = batch.ts[i], batch.group[i]
    bounded = pool.state[KIND] != EXACT
    work.state[TIME] = now
    if not work.state[PROMPT] and now >= work.state[EXPIRES]:
        expire(windows, nests.span, nests.by_rows, pool, now)
        work.state[EXPIRES] = now + nests.expiry[0]
    if bounded:
        grow_old(windows, pool, batch.clock[i])
    new, chains = 0, windows.heads.size > 1
    while i < batch.row.size and batch.group[i] == group:
        if chains:
            look_ahead(windows, nests, batch, i + AHEAD, keys)
        s = wide(batch.stream[i])
        ring = ring_of(windows, s, batch.code[i, 0])
        work.new[new, WHERE] = insert(windows, batch, i, keys, ring)
        work.new[new, OF_RING] = ring
        work.new[new, EARLIER] = work.newest[s]
        work.newest[s] = new
        if bounded and batch.row[i] >= 0:
            admit(windows, pool, s, batch.code[i, 0], batch.clock[i])
        new += 1
        i += 1
    work.state[NEW] = new
    work.state[LONE] = new == 1 and work.state[PROMPT]
    work.state[SOURCE] = s if new == 1 else 0
    work.state[TAKEN] = i


@part
def meets_nobody(windows: Windows, nests: Nests, work: Work, source: int, at: int) -> bool:
    """Begin the loops of a lone new row, and say whether the first of them finds nobody.

    It stops at the first row that it finds, where the loops then go on.
    """
    work.loop[0, BOUND] = at
    work.state[TURN] += 1
    begin(windows, nests, work, source, 1)
    loop = nests.loops
    low, place = wide(work.loop[1, FROM]), wide(work.loop[1, PLACE])
    if loop[source, 1, PLAIN]:
        base, mask = work.loop[1, BASE], work.loop[1, MASK]
        code = wide(work.loop[1, SOUGHT])
        found = passed_over(windows.nodes, loop[source, 1, NODES] + base, mask, place, low, code)
        work.state[COMPARED] += place - found
        place = found
        work.loop[1, FIRST] = place
    return place < low and work.loop[1, INSIDE] == work.loop[1, LAST]


@part
def take_singly(windows: Windows, nests: Nests, batch: Batch, keys: Ints, work: Work, pool: Pool) -> None:
    """Let old rows go and enter rows up to the first one that may join somebody."""
    i, until, gone = wide(work.state[TAKEN]), wide(work.state[UNTIL]), wide(work.state[EXPIRES])
    prompt, chains = work.state[PROMPT], windows.heads.size > 1
    work.state[NEW] = 0
    work.state[LONE] = 1
    work.state[SOURCE] = nests.span.size
    while i < until and not work.state[NEW]:
        now = wide(batch.ts[i])
        work.state[TIME] = now
        if not prompt and now > gone:
            gone = now
            expire(windows, nests.span, nests.by_rows, pool, gone)
        if chains:
            look_ahead(windows, nests, batch, i + AHEAD, keys)
        s = wide(batch.stream[i])
        ring = ring_of(windows, s, batch.code[i, 0])
        at = insert(windows, batch, i, keys, ring)
        windows.ends[ring, FRESH] = windows.ends[ring, NEXT]
        i += 1
        if not (meets_nobody(windows, nests, work, s, at) if prompt else alone(windows, s, at)):
            work.new[0, WHERE] = at
            work.new[0, OF_RING] = ring
            work.new[0, EARLIER] = IDLE
            work.newest[s] = 0
            work.state[NEW] = 1
            work.state[SOURCE] = s
    work.state[TAKEN] = i
    work.state[EXPIRES] = gone


@part
def settle(windows: Windows, work: Work) -> None:
    """End a group: its rows are no longer new."""
    for new in range(work.state[NEW]):
        ring = work.new[new, OF_RING]
        windows.ends[ring, FRESH] = windows.ends[ring, NEXT]
    work.newest[:] = IDLE
    work.state[SOURCE] = IDLE


@part
def reserve(windows: Windows, nests: Nests, batch: Batch, work: Work, pool: Pool) -> int:
    """Choose how many rows are taken next, whole groups; says if that is DONE, if windows are CROWDED, or neither."""
    begin, held = wide(work.state[UNTIL]), 0
    if work.state[PROMPT] and begin > 0:
        expire(windows, nests.span, nests.by_rows, pool, batch.ts[begin - 1])
    if begin == batch.row.size:
        return DONE
    for ring in range(windows.first.size):
        held += windows.ends[ring, NEXT] - windows.ends[ring, LOW]
        work.part[ring, COMING] = 0
    until = min(begin + max(SLICE, held // 2), batch.row.size)
    while until < batch.row.size and batch.group[until] == batch.group[until - 1]:
        until += 1
    for i in range(begin, until):
        work.part[ring_of(windows, batch.stream[i], batch.code[i, 0]), COMING] += 1
    work.state[UNTIL] = until
    enough = until - begin <= work.new.shape[0]
    for ring in range(windows.first.size):
        coming = work.part[ring, COMING] + windows.ends[ring, NEXT] - windows.ends[ring, LOW]
        enough = enough and coming <= windows.mask[ring] + 1
    return IDLE if enough else CROWDED


@kernel
def step(windows: Windows, nests: Nests, batch: Batch, keys: Ints, results: Ints, work: Work, pool: Pool) -> int:
    """Take the rows of a batch, group by group; goes on from ``work``, and returns why it stopped.

    Cost: O(1) per row, plus one for each row that a loop looks at.
    """
    windows, nests, batch, keys = borrowed(windows), borrowed(nests), borrowed(batch), borrowed(keys)
    results, work, pool = borrowed(results), borrowed(work), borrowed(pool)
    streams = nests.span.size
    state = work.state
    while True:
        if state[SOURCE] == IDLE:
            if state[TAKEN] == state[UNTIL]:
                stopped = reserve(windows, nests, batch, work, pool)
                if stopped >= 0:
                    return stopped
            if state[SINGLY]:
                take_singly(windows, nests, batch, keys, work, pool)
            else:
                take(windows, nests, batch, keys, work, pool)
        while state[SOURCE] < streams:
            source = wide(state[SOURCE])
            if work.newest[source] >= 0 and evaluate(windows, nests, source, results, work) == FULL:
                return FULL
            state[SOURCE] = source + 1 if state[NEW] > 1 else streams
        settle(windows, work)
        if pool.state[KIND] != EXACT and close(windows, nests.span, nests.by_rows, pool, batch.ts[state[TAKEN] - 1]):
            return CROWDED


class Edge(NamedTuple):
    """Two columns that are compared, each by its stream and its number over all streams."""

    one: int
    one_column: int
    other: int
    other_column: int
    how: int = EQUAL


Test = tuple[int, int, int, int]


def tests_of(nest: Sequence[int], edges: Sequence[Edge], buckets: Sequence[int]) -> list[list[Test]]:
    """Return what is compared at each depth of a nest: every edge to a loop outside, those with an index first."""
    ends = [*edges, *(Edge(e.other, e.other_column, e.one, e.one_column, REVERSED[e.how]) for e in edges)]
    found = []
    for depth, stream in enumerate(nest):
        mine = [
            (end.one_column, nest.index(end.other), end.other_column, end.how)
            for end in ends
            if end.one == stream and nest.index(end.other) < depth
        ]
        found.append(sorted(mine, key=lambda test: (not buckets[test[MINE]], test[HOW] != EQUAL)))
    return found


class Chain:
    """The windows of an n-way join: batches in, row numbers of results out.

    Parameters:
        span, by_rows: of each window.
        nests: the loops for the new rows of each stream.
        columns: how many key columns each stream has.
        edges: which of them are compared, and how.
        rings: of each window: one, or one for each of so many buckets. Those have one column, compared for equality,
            are in time, and there is no budget.
        buckets: chains of each column of a window of one ring; 0: none, as for one not compared for equality;
            BY_ROOM: as many as fit the window.
        common: whether all edges are on one attribute, so that one of them is enough at each depth.
        eager: whether a group is the rows of one tick.
        expiry: the interval at which old rows are let go of; 0: with every group, as under a budget.
        budget: how many rows the windows may hold, and who leaves; None: all that are alive.

    References: golab2003 §3.2 (EAGER), §3.3 (LAZY, GENERAL LAZY), §3.4 (hash), §3.5 (hybrid), §3.6 (windows in rows).
    """

    def __init__(
        self,
        span: Sequence[int],
        by_rows: Sequence[bool],
        nests: Sequence[Sequence[int]],
        columns: Sequence[int],
        edges: Sequence[Edge],
        rings: Sequence[int],
        buckets: Sequence[int],
        *,
        common: bool,
        eager: bool = False,
        expiry: int = 0,
        budget: Budget | None = None,
    ) -> None:
        n = len(span)
        self._span, self._by_rows = np.array(span, np.int64), np.array(by_rows, np.int64)
        self._edges, self._common, self._eager = list(edges), common, eager
        self._expiry = np.array([expiry], np.int64)
        self._keys = np.concatenate([[0], np.cumsum(columns)]).astype(np.int64)
        self._rings, self._buckets = list(rings), list(buckets)
        self._rooms = [FIRST_ROOM if count == 1 else FIRST_OF_BUCKET for count in rings for _ in range(count)]
        self._budget = budget or Budget(EXACT, 0, 0, (1.0,) * n, 0)
        self._windows = self._empty()
        self._pool = emptied(self._budget, n, sum(self._rooms))
        self._results = np.empty((n, FIRST_RESULTS), np.int64)
        state = np.zeros(14, np.int64)
        state[SOURCE] = state[DEPTH] = IDLE
        state[EXPIRES] = LONG_AGO
        self._work = Work(
            state=state,
            loop=np.full((n, ASPECTS), IDLE),
            newest=np.full(n, IDLE),
            new=np.empty((SLICE, 3), np.int64),
            part=np.full((len(self._rooms), 4), IDLE),
        )
        self.reorder(nests)

    def _empty(self) -> Windows:
        important = self._budget.kind == EACH and self._budget.combine >= 0
        return empty(self._rooms, self._rings, self._keys, self._buckets, common=self._common, important=important)

    def reorder(self, nests: Sequence[Sequence[int]]) -> None:
        """Go on with other loops: windows hold rows only, so nothing is lost or found again.

        Parameters:
            nests: the loops for the new rows of each stream.
        """
        n = len(nests)
        tests = [tests_of(nest, self._edges, self._buckets) for nest in nests]
        if self._common:  # the outermost of equal rows will do
            tests = [[sorted(depth, key=lambda test: test[DEPTH_OF])[:1] for depth in nest] for nest in tests]
        most = max(1, *(len(depth) for nest in tests for depth in nest))
        table = np.full((n, n, most, 4), -1, np.int64)
        for source, nest in enumerate(tests):
            for depth, found in enumerate(nest):
                table[source, depth, : len(found)] = np.array(found, np.int64).reshape(-1, 4)
        self._nests = Nests(
            span=self._span,
            by_rows=self._by_rows,
            nest=np.array(nests, np.int64),
            fresh=np.array([list(nest).index(source) for source, nest in enumerate(nests)], np.int64),
            tests=table,
            loops=np.full((n, n, ENTRIES), -1, np.int64),
            expiry=self._expiry,
        )
        self._point()

    def push(self, batch: Batch) -> Ints:
        """Take whole groups of rows and return the row numbers of their results: (stream, result)."""
        chunks = list(self.chunks(batch))
        return chunks[0] if len(chunks) == 1 else np.concatenate(chunks, axis=1)

    def chunks(self, batch: Batch, most: int = MOST_RESULTS) -> Iterator[Ints]:
        """Take whole groups of rows and return their results bit by bit, about so many at a time."""
        self._pool = with_room(self._pool, self._budget, self._windows, batch.row.size)
        state = self._work.state
        state[TAKEN] = state[UNTIL] = state[FOUND] = 0
        while (stopped := self._step(batch)) != DONE:
            if stopped == CROWDED:
                self._refill(batch)
                continue
            yield self._handed_over(min(2 * state[FOUND], most))
        yield self._handed_over(self._results.shape[1])

    def _handed_over(self, room: int) -> Ints:
        """Return the results so far, and make room for so many; many of them are not copied."""
        count = int(self._work.state[FOUND])
        self._work.state[FOUND] = 0
        found = self._results[:, :count]
        if 2 * count < self._results.shape[1]:
            return found.copy()
        self._results = np.empty((len(self._rings), max(room, count)), np.int64)
        return found

    def _step(self, batch: Batch) -> int:
        return step(self._windows, self._nests, batch, self._keys, self._results, self._work, self._pool)

    def shed(self) -> Ints:
        """Return the rows given up in the last push: (row, [stream, row, time])."""
        return self._pool.gone[: self._pool.state[GONE]].copy()

    def live(self, now: int) -> list[int]:
        """Return how many rows of each stream may still join after a tick."""
        found = []
        for s in range(len(self._rings)):
            rows = self._windows.rows[self._places(s)]
            clock = rows[-1:, POS] if self._by_rows[s] else now + 1
            found.append(int(((rows[:, ROW] >= 0) & (clock - rows[:, POS] < self._span[s])).sum()))
        return found

    def live_rows(self, s: int) -> Ints:
        """Return the numbers of the rows of a stream that are held, ascending."""
        rows = self._windows.rows[self._places(s), ROW]
        return np.sort(rows[rows >= 0])

    def give_up(self, s: int, rows: Ints) -> None:
        """Let rows of a stream join nothing from now on, given by number; without a budget only."""
        places = self._places(s)
        found = self._windows.rows[places, ROW]
        self._windows.rows[places[np.isin(found, rows)], ROW] = NOBODY

    def sweep(self) -> None:
        """Take rows that were given up out of the windows. O(rows)."""
        self._work.state[TAKEN] = self._work.state[UNTIL] = 0
        self._refill(NO_ROWS)

    def stored(self, s: int) -> int:
        """Return how many rows of a stream are held."""
        return int(self._pool.live[s]) if self._budget.kind != EXACT else self.held()[s]

    def codes(self, s: int, newest: int | None = None) -> tuple[Ints, Ints]:
        """Return the times of rows in a window, oldest first, and their codes: (row, column of the stream).

        Parameters:
            newest: how many at most; None: all.
        """
        at = self._places(s)
        if self._rings[s] > 1:
            at = at[np.argsort(self._windows.rows[at, TS], kind="stable")]
        at = at if newest is None else at[-newest:]
        return self._windows.rows[at, TS], self._codes(s, at)

    def _codes(self, s: int, at: Ints) -> Ints:
        """Return the codes of rows of a stream, given by where they are: (row, column of the stream)."""
        return self._windows.nodes[at[:, None] + self._windows.column[self._keys[s] : self._keys[s + 1], SHIFT], CODE]

    def pass_time(self, now: int) -> None:
        """Let go of rows that are too old for whatever comes from `now` on."""
        let_go(self._windows, self._span, self._by_rows, self._pool, now)

    def resize(self, limit: int) -> None:
        """Change how many rows the windows may hold; holds from the end of the next group."""
        self._budget = self._budget._replace(limit=limit)
        self._pool.state[LIMIT] = limit

    def _places(self, s: int) -> Ints:
        """Return where the rows of a window are, ring by ring, oldest first."""
        windows = self._windows
        return np.concatenate(
            [
                windows.first[ring]
                + (np.arange(windows.ends[ring, LOW], windows.ends[ring, NEXT]) & windows.mask[ring])
                for ring in range(windows.rings[s], windows.rings[s + 1])
            ]
        )

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that the windows hold and the pool knows, by name; unused places are left out."""
        windows, streams = self._windows, range(len(self._rings))
        places = np.concatenate([self._places(s) for s in streams])
        found = {
            "rooms": np.array(self._rooms, np.int64),
            "ends": windows.ends,
            "rows": windows.rows[places],
            "link": self._pool.link[places] if self._pool.link.size else self._pool.link,
            "value": windows.value[places] if windows.value.size else windows.value,
            "nest": self._nests.nest,
            "work": self._work.state[[COMPARED, EXPIRES]],
        }
        for s in streams:
            found[f"code.{s}"] = self._codes(s, self._places(s))
        kept = [name for name in Pool._fields if name not in {"link", "gone", "tied", "ties", "degree"}]
        return found | {f"pool.{name}": getattr(self._pool, name) for name in kept}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what ``arrays`` returned."""
        self._rooms = arrays["rooms"].tolist()
        windows = self._windows = self._empty()
        windows.ends[:] = arrays["ends"]
        each = [self._places(s) for s in range(len(self._rings))]
        places = np.concatenate(each)
        windows.rows[places] = arrays["rows"]
        if windows.value.size:
            windows.value[places] = arrays["value"]
        for s, at in enumerate(each):
            shift = windows.column[self._keys[s] : self._keys[s + 1], SHIFT]
            windows.nodes[at[:, None] + shift, CODE] = arrays[f"code.{s}"]
        chained(windows, self._keys)
        kept = {name: arrays[f"pool.{name}"] for name in Pool._fields if f"pool.{name}" in arrays}
        link = np.zeros((sum(self._rooms) if self._pool.leaf.shape[1] else 0, 2), np.int64)
        if link.size:
            link[places] = arrays["link"]
        self._pool = self._pool._replace(link=link, **kept)
        self._budget = self._budget._replace(limit=int(self._pool.state[LIMIT]))
        self._work.state[[COMPARED, EXPIRES]] = arrays["work"]
        self.reorder(arrays["nest"].tolist())

    @property
    def compared(self) -> int:
        """How many rows the inner loops have looked at."""
        return int(self._work.state[COMPARED])

    def held(self) -> list[int]:
        """Return how many rows each window holds, those not yet let go of included."""
        held: list[int] = np.add.reduceat(self._held(), self._windows.rings[:-1]).tolist()
        return held

    def _held(self) -> Ints:
        """Return how many rows each ring holds."""
        return self._windows.ends[:, NEXT] - self._windows.ends[:, LOW]

    def _refill(self, batch: Batch) -> None:
        """Make room for the rows that are taken next, and sweep marks out of the rings."""
        state = self._work.state
        if self._work.new.shape[0] < state[UNTIL] - state[TAKEN]:
            self._work = self._work._replace(new=np.empty((2 * int(state[UNTIL] - state[TAKEN]), 3), np.int64))
        need = self._held() + coming(self._windows, batch, state[TAKEN], state[UNTIL])
        self._rooms = [
            max(room, 1 << (rows - 1).bit_length()) if rows else room
            for rows, room in zip(need.tolist(), self._rooms, strict=True)
        ]
        old, self._windows = self._windows, self._empty()
        link = self._pool.link
        self._pool = self._pool._replace(link=np.zeros((sum(self._rooms) if link.size else 0, 2), np.int64))
        refill(self._windows, old, self._keys, self._pool, link)
        self._point()

    def _point(self) -> None:
        """Tell the loops where the windows are."""
        windows, nests = self._windows, self._nests
        side_by_side = self._common and windows.column[0, STRIDE] > 1
        exact = self._budget.kind == EXACT and not self._by_rows.any()
        prompt = exact and self._eager and not self._expiry[0]
        self._work.state[SINGLY] = prompt and not nests.fresh.any()
        self._work.state[PROMPT] = prompt and not side_by_side
        loops, nest = nests.loops, nests.nest
        source, depth = np.indices(nest.shape)
        loops[..., STREAM], loops[..., RING] = nest, windows.rings[nest]
        loops[..., RINGS] = windows.rings[nest + 1] - windows.rings[nest]
        loops[..., WHEN] = np.where(depth > nests.fresh[:, None], AFTER, BEFORE)
        loops[nest == source, WHEN] = AT
        mine, outer, theirs, how = np.moveaxis(nests.tests[:, :, 0], -1, 0)
        loops[..., COMPARE], loops[..., OUTER], loops[..., BUCKETS] = how, outer, 0
        loops[..., APART] = windows.column[0, STRIDE] if self._common else 1
        tested = mine >= 0
        for entry, of in ((NODES, SHIFT), (HEADS, HEAD), (BUCKETS, MANY), (APART, STRIDE)):
            loops[tested, entry] = windows.column[mine[tested], of]
        loops[tested, OUTER_NODES] = windows.column[theirs[tested], SHIFT]
        alone = (nests.tests[:, :, 1:, MINE] < 0).all(axis=2)
        loops[..., PLAIN] = (how == EQUAL) & (loops[..., BUCKETS] == 0) & (loops[..., WHEN] != AT) & alone
