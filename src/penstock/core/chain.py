"""The n-way join: nested loops over all windows at once, without intermediate state.

Each window is a ring of its rows in order of time. New rows enter together, a group at a time: the rows of one tick
if evaluation is eager, those of one interval if it is lazy. Then, for the new rows of each stream in turn, the loops
run over the windows in the order of their nest. A loop walks its window from the newest row to the oldest: along a
hash chain where the window has an index on what is compared, else along the ring. A result counts at its last row in
the order of time, then of streams: rows after the new one are passed over, and so each result is found once.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.exact import bucket
from penstock.core.jit import borrowed, columns, kernel, part, prefetch, wide
from penstock.core.rings import (
    CODE,
    FRESH,
    LONG_AGO,
    LOW,
    NEXT,
    OLDER,
    POS,
    ROW,
    TS,
    Batch,
    Windows,
    chained,
    empty,
    insert,
)
from penstock.core.shedding import admit, close, expire, let_go, refill
from penstock.core.windows import Ints
from penstock.core.worth import EACH, EXACT, GONE, KIND, LIMIT, NOBODY, Budget, Pool, emptied, grow_old, with_room

TAKEN, SOURCE, DEPTH, FOUND, COMPARED, EXPIRES = range(6)  # entries of `Work.state`
(
    STREAM,  # of a loop: its window, and where that is
    FIRST,
    MASK,
    NODES,  # where the codes are that its first test compares; -1: it has none
    HEADS,
    BUCKETS,
    OUTER,  # with what: the depth of an outer loop, where its codes are
    OUTER_NODES,
    OUTER_MASK,
    COMPARE,
    WHEN,  # BEFORE, AT or AFTER the loop over the new rows
    ENTRIES,
) = range(12)
BEFORE, AT, AFTER = range(3)
MINE, DEPTH_OF, THEIRS, HOW = range(4)  # of a test: column of this window, depth of an outer loop, its column
EQUAL, UNEQUAL, LESS, AT_MOST, GREATER, AT_LEAST = range(6)  # how a test compares
REVERSED = (EQUAL, UNEQUAL, GREATER, AT_LEAST, LESS, AT_MOST)
DONE, FULL, CROWDED = range(3)
IDLE = -1
FIRST_ROOM = 256
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


class Work(NamedTuple):
    """How far the loops are: a full output stops them anywhere."""

    state: Ints
    cursor: Ints  # depth -> the next place to look at
    code: Ints  # depth -> what its first test compares with
    bound: Ints  # depth -> the place that is being joined
    low: Ints  # depth -> the oldest place that is not too old for the new row, where that is known
    high: Ints  # depth -> the first place that comes after the new row, and will find it
    now: Ints  # [the time of the new row]


@part
def look_ahead(windows: Windows, nests: Nests, batch: Batch, i: int, keys: Ints) -> None:
    """Ask for the buckets that a row soon to come will enter, and for the first one that it will look into."""
    if i >= batch.row.size:
        return
    s = batch.stream[i]
    for c in range(keys[s], keys[s + 1]):
        if windows.column[c, 3]:
            prefetch(windows.heads, windows.column[c, 2] + bucket(windows.column[c, 3], batch.code[i, c - keys[s]]))
    c = nests.tests[s, 1, 0, MINE]
    if nests.fresh[s] == 0 and c >= 0 and windows.column[c, 3]:
        code = batch.code[i, nests.tests[s, 1, 0, THEIRS] - keys[s]]
        prefetch(windows.heads, windows.column[c, 2] + bucket(windows.column[c, 3], code))


@part
def other_code(windows: Windows, nests: Nests, work: Work, source: int, depth: int, test: int) -> int:
    """Return the code that a test at some depth compares with: that of a row in an outer loop."""
    outer = nests.tests[source, depth, test, DEPTH_OF]
    spot = work.bound[outer] & windows.mask[nests.nest[source, outer]]
    return windows.nodes[windows.column[nests.tests[source, depth, test, THEIRS], 1] + spot, CODE]


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

    The paper's COMPUTECOUNTJOIN looks for the same row: the newest one that is no newer. O(log rows) for that.
    """
    if not nests.by_rows[s]:
        return now
    begin, high = windows.ends[s, LOW], windows.ends[s, NEXT]
    base, mask = windows.first[s], windows.mask[s]
    low = begin
    while low < high:
        middle = (low + high) // 2
        if windows.rows[base + (middle & mask), TS] <= now:
            low = middle + 1
        else:
            high = middle
    return windows.rows[base + ((low - 1) & mask), POS] if low > begin else LONG_AGO


@part
def unlimited(windows: Windows, nests: Nests, work: Work, source: int, depth: int, s: int) -> None:
    """Let a loop run over its whole window; if it is that of the new rows, over these, and all inside are open."""
    work.low[depth], work.high[depth] = windows.ends[s, LOW], windows.ends[s, NEXT]
    if s == source:
        work.low[depth] = windows.ends[s, FRESH]
        for inner in range(depth + 1, nests.span.size):
            work.low[inner] = IDLE
            work.high[inner] = windows.ends[nests.loops[source, inner, STREAM], NEXT]


@part
def limit(windows: Windows, nests: Nests, work: Work, source: int, depth: int) -> None:
    """Find between which places the loops inside that of a new row find its partners: neither too old nor after it.

    New rows come newest first, so the places only ever go down: O(1) for each, on the whole.
    """
    now = wide(work.now[0])
    for inner in range(depth + 1, nests.span.size):
        s = nests.loops[source, inner, STREAM]
        base, mask, begin = windows.first[s], windows.mask[s], wide(windows.ends[s, LOW])
        low, high = wide(work.low[inner]), wide(work.high[inner])
        latest = now - (s > source)
        while high > windows.ends[s, FRESH] and windows.rows[base + ((high - 1) & mask), TS] > latest:
            high -= 1
        dead = clock_of(windows, nests, s, now) - nests.span[s]
        if low == IDLE:
            low = begin
            while low < high and windows.rows[base + (low & mask), POS] <= dead:
                low += 1
        else:
            while low > begin and windows.rows[base + ((low - 1) & mask), POS] > dead:
                low -= 1
        work.low[inner], work.high[inner] = low, high


@part
def begin(windows: Windows, nests: Nests, work: Work, source: int, depth: int) -> None:
    """Start the loop at some depth: at the newest row, of the bucket if there is one."""
    loop = nests.loops
    s = loop[source, depth, STREAM]
    if loop[source, depth, NODES] >= 0:
        spot = work.bound[loop[source, depth, OUTER]] & loop[source, depth, OUTER_MASK]
        work.code[depth] = windows.nodes[loop[source, depth, OUTER_NODES] + spot, CODE]
    if loop[source, depth, BUCKETS]:
        head = loop[source, depth, HEADS] + bucket(loop[source, depth, BUCKETS], work.code[depth])
        work.cursor[depth] = windows.heads[head]
    else:
        work.cursor[depth] = windows.ends[s, NEXT] - 1
    if loop[source, depth, WHEN] != AFTER:
        unlimited(windows, nests, work, source, depth, s)


@part
def fits(windows: Windows, nests: Nests, work: Work, source: int, depth: int, spot: int) -> bool:
    """Say whether a row that joins passes the tests after the first; a new one must find the rows outside in time."""
    if windows.rows[nests.loops[source, depth, FIRST] + spot, ROW] < 0:
        return False
    for test in range(1, nests.tests.shape[2]):
        c = nests.tests[source, depth, test, MINE]
        if c < 0:
            break
        mine = windows.nodes[windows.column[c, 1] + spot, CODE]
        theirs = other_code(windows, nests, work, source, depth, test)
        if not holds(nests.tests[source, depth, test, HOW], mine, theirs):
            return False
    if nests.loops[source, depth, WHEN] == AT:
        now = windows.rows[windows.first[source] + spot, TS]
        for outer in range(depth):
            s = nests.nest[source, outer]
            at = windows.first[s] + (work.bound[outer] & windows.mask[s])
            late = windows.rows[at, TS] > now or (windows.rows[at, TS] == now and s > source)
            if late or clock_of(windows, nests, s, now) - windows.rows[at, POS] >= nests.span[s]:
                return False
    return True


@part
def seek(windows: Windows, nests: Nests, work: Work, source: int, depth: int) -> int:
    """Go on with the loop at some depth to the next row that joins the rows outside; -1: there is none."""
    loop = nests.loops
    mask, codes, how = loop[source, depth, MASK], loop[source, depth, NODES], loop[source, depth, COMPARE]
    chained = loop[source, depth, BUCKETS] > 0
    low, high, code = work.low[depth], work.high[depth], work.code[depth]
    place = work.cursor[depth]
    compared = 0
    found = -1
    while place >= low:
        spot = place & mask
        here = place
        place = windows.nodes[codes + spot, OLDER] if chained else place - 1
        compared += 1
        joins = here < high and (codes < 0 or holds(how, windows.nodes[codes + spot, CODE], code))
        if joins and fits(windows, nests, work, source, depth, spot):
            found = here
            break
    work.cursor[depth] = place
    work.state[COMPARED] += compared if depth else 0
    return found


@part
def evaluate(windows: Windows, nests: Nests, source: int, results: Ints, work: Work) -> int:
    """Run the loops for the new rows of one stream, from where they are; returns why they stopped."""
    last = nests.span.size - 1
    depth = work.state[DEPTH]
    if depth == IDLE:
        depth = 0
        begin(windows, nests, work, source, 0)
    while depth >= 0:
        found = work.state[FOUND]
        if depth == last and found == results.shape[1]:
            work.state[DEPTH] = depth
            return FULL
        place = seek(windows, nests, work, source, depth)
        if place < 0:
            depth -= 1
            continue
        work.bound[depth] = place
        if nests.loops[source, depth, WHEN] == AT:
            work.now[0] = windows.rows[windows.first[source] + (place & windows.mask[source]), TS]
            limit(windows, nests, work, source, depth)
        if depth < last:
            depth += 1
            begin(windows, nests, work, source, depth)
            continue
        for outer in range(last + 1):
            at = nests.loops[source, outer, FIRST] + (work.bound[outer] & nests.loops[source, outer, MASK])
            results[nests.loops[source, outer, STREAM], found] = windows.rows[at, ROW]
        work.state[FOUND] = found + 1
    work.state[DEPTH] = IDLE
    return DONE


@part
def take(windows: Windows, nests: Nests, batch: Batch, keys: Ints, work: Work, pool: Pool) -> None:
    """Let old rows go and enter the next group."""
    i = work.state[TAKEN]
    now, group = batch.ts[i], batch.group[i]
    bounded = pool.state[KIND] != EXACT
    if now >= work.state[EXPIRES]:
        expire(windows, nests.span, nests.by_rows, pool, now)
        work.state[EXPIRES] = now + nests.expiry[0]
    if bounded:
        grow_old(windows, pool, batch.clock[i])
    while i < batch.row.size and batch.group[i] == group:
        look_ahead(windows, nests, batch, i + AHEAD, keys)
        insert(windows, batch, i, keys)
        if bounded and batch.row[i] >= 0:
            admit(windows, pool, wide(batch.stream[i]), batch.code[i, 0], batch.clock[i])
        i += 1
    work.state[TAKEN] = i


@kernel
def step(windows: Windows, nests: Nests, batch: Batch, keys: Ints, results: Ints, work: Work, pool: Pool) -> int:
    """Take the rows of a batch, group by group; goes on from ``work``, and returns why it stopped.

    Cost: O(1) per row, plus one for each row that a loop looks at.
    """
    windows, nests, batch, keys = borrowed(windows), borrowed(nests), borrowed(batch), borrowed(keys)
    results, work, pool = borrowed(results), borrowed(work), borrowed(pool)
    streams = nests.span.size
    state, ends = work.state, windows.ends
    while True:
        if state[SOURCE] == IDLE:
            if state[TAKEN] == batch.row.size:
                return DONE
            take(windows, nests, batch, keys, work, pool)
            state[SOURCE] = 0
        while state[SOURCE] < streams:
            source = wide(state[SOURCE])
            new = ends[source, FRESH] < ends[source, NEXT]
            if new and evaluate(windows, nests, source, results, work) == FULL:
                return FULL
            state[SOURCE] += 1
        for s in range(streams):
            ends[s, FRESH] = ends[s, NEXT]
        state[SOURCE] = IDLE
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
        buckets: of the index of each column; 0: none, as for one not compared for equality; BY_ROOM: as many as fit
            the window.
        common: whether all edges are on one attribute, so that one of them is enough at each depth.
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
        buckets: Sequence[int],
        *,
        common: bool,
        expiry: int = 0,
        budget: Budget | None = None,
    ) -> None:
        n = len(span)
        self._span, self._by_rows = np.array(span, np.int64), np.array(by_rows, np.int64)
        self._edges, self._common = list(edges), common
        self._expiry = np.array([expiry], np.int64)
        self._keys = np.concatenate([[0], np.cumsum(columns)]).astype(np.int64)
        self._buckets = list(buckets)
        self._rooms = [FIRST_ROOM] * n
        self._budget = budget or Budget(EXACT, 0, 0, (1.0,) * n, 0)
        self._windows = self._empty()
        self._pool = emptied(self._budget, n, sum(self._rooms))
        self.reorder(nests)
        self._results = np.empty((n, FIRST_RESULTS), np.int64)
        state = np.zeros(6, np.int64)
        state[SOURCE] = state[DEPTH] = IDLE
        state[EXPIRES] = LONG_AGO
        self._work = Work(state, *(np.zeros(n, np.int64) for _ in Work._fields[1:]))

    def _empty(self) -> Windows:
        important = self._budget.kind == EACH and self._budget.combine >= 0
        return empty(self._rooms, self._keys, self._buckets, important=important)

    def reorder(self, nests: Sequence[Sequence[int]]) -> None:
        """Go on with other loops: windows hold rows only, so nothing is lost or found again.

        Parameters:
            nests: the loops for the new rows of each stream.
        """
        n = len(nests)
        tests = [tests_of(nest, self._edges, self._buckets) for nest in nests]
        if self._common:
            tests = [[depth[:1] for depth in nest] for nest in tests]
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
        self._reserve(batch)
        self._pool = with_room(self._pool, self._budget, self._windows, batch.row.size)
        state = self._work.state
        state[TAKEN] = state[FOUND] = 0
        while (stopped := self._step(batch)) != DONE:
            if stopped == CROWDED:
                self._reserve(batch, sweep=True)
                continue
            yield self._results.copy()
            state[FOUND] = 0
            if self._results.shape[1] < most:
                self._results = np.empty((len(self._rooms), 2 * self._results.shape[1]), np.int64)
        yield self._results[:, : state[FOUND]].copy()

    def _step(self, batch: Batch) -> int:
        return step(self._windows, self._nests, batch, self._keys, self._results, self._work, self._pool)

    def shed(self) -> Ints:
        """Return the rows given up in the last push: (row, [stream, row, time])."""
        return self._pool.gone[: self._pool.state[GONE]].copy()

    def live(self, now: int) -> list[int]:
        """Return how many rows of each stream may still join after a tick."""
        found = []
        for s in range(len(self._rooms)):
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
        self._work.state[TAKEN] = 0
        self._reserve(NO_ROWS, sweep=True)

    def stored(self, s: int) -> int:
        """Return how many rows of a stream are held."""
        return int(self._pool.live[s]) if self._budget.kind != EXACT else self.held()[s]

    def codes(self, s: int, newest: int | None = None) -> tuple[Ints, Ints]:
        """Return the times of rows in a window, oldest first, and their codes: (row, column of the stream).

        Parameters:
            newest: how many at most; None: all.
        """
        at = self._places(s) if newest is None else self._places(s)[-newest:]
        begins = self._windows.column[self._keys[s] : self._keys[s + 1], 1] - self._windows.first[s]
        return self._windows.rows[at, TS], self._windows.nodes[at[:, None] + begins, CODE]

    def pass_time(self, now: int) -> None:
        """Let go of rows that are too old for whatever comes from `now` on."""
        let_go(self._windows, self._span, self._by_rows, self._pool, now)

    def resize(self, limit: int) -> None:
        """Change how many rows the windows may hold; holds from the end of the next group."""
        self._budget = self._budget._replace(limit=limit)
        self._pool.state[LIMIT] = limit

    def _places(self, s: int) -> Ints:
        """Return where the rows of a window are, oldest first."""
        end, low, _ = self._windows.ends[s].tolist()
        return self._windows.first[s] + (np.arange(low, end) & self._windows.mask[s])

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all that the windows hold and the pool knows, by name; unused places are left out."""
        windows, streams = self._windows, range(len(self._rooms))
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
            found[f"code.{s}"] = self.codes(s)[1]
        kept = [name for name in Pool._fields if name not in {"link", "gone", "tied", "ties", "degree"}]
        return found | {f"pool.{name}": getattr(self._pool, name) for name in kept}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what ``arrays`` returned."""
        self._rooms = arrays["rooms"].tolist()
        windows = self._windows = self._empty()
        windows.ends[:] = arrays["ends"]
        each = [self._places(s) for s in range(len(self._rooms))]
        places = np.concatenate(each)
        windows.rows[places] = arrays["rows"]
        if windows.value.size:
            windows.value[places] = arrays["value"]
        for s, at in enumerate(each):
            begins = windows.column[self._keys[s] : self._keys[s + 1], 1] - windows.first[s]
            windows.nodes[at[:, None] + begins, CODE] = arrays[f"code.{s}"]
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
        return (self._windows.ends[:, NEXT] - self._windows.ends[:, LOW]).tolist()

    def _reserve(self, batch: Batch, *, sweep: bool = False) -> None:
        """Make room for the rows to come, if there is not enough; sweep marks out of the rings, if asked."""
        arriving = np.bincount(batch.stream[self._work.state[TAKEN] if sweep else 0 :], minlength=len(self._rooms))
        need = [held + int(more) for held, more in zip(self.held(), arriving, strict=True)]
        if sweep or any(rows > room for rows, room in zip(need, self._rooms, strict=True)):
            self._rooms = [
                max(room, 1 << (rows - 1).bit_length()) if rows else room
                for rows, room in zip(need, self._rooms, strict=True)
            ]
            old, self._windows = self._windows, self._empty()
            link = self._pool.link
            self._pool = self._pool._replace(link=np.zeros((sum(self._rooms) if link.size else 0, 2), np.int64))
            refill(self._windows, old, self._keys, self._pool, link)
            self._point()

    def _point(self) -> None:
        """Tell the loops where the windows are."""
        windows, nests = self._windows, self._nests
        for source, depth in np.ndindex(nests.nest.shape):
            s = nests.nest[source, depth]
            loop = nests.loops[source, depth]
            loop[[STREAM, FIRST, MASK]] = s, windows.first[s], windows.mask[s]
            loop[WHEN] = AT if s == source else (AFTER if depth > nests.fresh[source] else BEFORE)
            mine, outer, theirs, how = nests.tests[source, depth, 0]
            loop[[NODES, BUCKETS, COMPARE]] = -1, 0, how
            if mine >= 0:
                _, loop[NODES], loop[HEADS], loop[BUCKETS] = windows.column[mine]
                loop[[OUTER, OUTER_NODES]] = outer, windows.column[theirs, 1]
                loop[OUTER_MASK] = windows.mask[nests.nest[source, outer]]
