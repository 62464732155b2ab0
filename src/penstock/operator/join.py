"""The push operator: batches of rows in, joined rows out, with a report, a ledger and a state."""

# ruff: noqa: SLF001 - a join with other arguments takes over what this one holds

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index
from typing import Any, Self

import numpy as np
import pyarrow as pa

from penstock.core.dualjoin import DualJoin
from penstock.core.entries import LEAST_WORK
from penstock.core.exact import ExactJoin
from penstock.core.gatejoin import GateJoin
from penstock.core.join import WindowJoin
from penstock.core.probing import BY_ITEMS, BY_TURNS, WHOLE
from penstock.core.rng import placed
from penstock.core.setjoin import Place, SetJoin
from penstock.core.sets import Sets
from penstock.core.step import ARRIVED, COMPARISONS, COPIES, EXPIRED, LATE, PAIRS, REASONS, SHED, Batch
from penstock.core.windows import Floats, Ints
from penstock.errors import BudgetError, InputError, LatencyWarning, SchemaError, StateError, WindowError
from penstock.operator import saving
from penstock.operator.chances import Chances
from penstock.operator.ledger import Ledger
from penstock.operator.results import assembled, importances, verified
from penstock.operator.settings import ROW_BYTES, SIDES, Bound, Settings, budget, inspect
from penstock.operator.windows import Budgeted, Core, counts_entered, pace_of, sample_of, windows
from penstock.policies.cpu.pacing import Pace, Portion
from penstock.quality.books import Guess, Report, Sides, recall_of
from penstock.quality.recall import Recall
from penstock.streams.encodings import decoded, decoded_schema
from penstock.streams.intake import NO_FLOATS, NO_INTS, NO_LATE, NO_ROWS, Intake, Ready, Side
from penstock.streams.payload import Payload, give_back

VERSION = 15  # of the saved state
LEDGER = ("keep", "off")
MOST_WAITING = 1 << 20  # rows that wait to know the columns of another stream, before more are refused
FREED, RESTS = 1 << 24, 5.0  # bytes to give back at once, and seconds between: what is used again had to be got anew


class Join:
    """A sliding-window join of two streams inside a memory budget, one push at a time.

    The idea: a row arrives, what is too old on the other side leaves, it meets what is left there, and then it
    stays or is shed. Rows with the same timestamp are simultaneous: they meet memory as it stood before, and each
    other; who stays is decided when a later timestamp, ``advance`` or ``finish`` closes their tick. So any cut of
    an in-order trace into pushes gives the same pairs.

    Parameters:
        on, time, window, lateness, memory, split, policy, importance, combine, per_key, seed: as for
            ``penstock.join``.
        schemas: the Arrow schemas (left, right), if known. Without them the first batch of each side tells, and
            rows of one side wait until the other has shown its columns; when a million do, more are refused.
        ledger: "keep" what was shed until ``ledger()`` asks for it, or "off".
        place: where a join on a condition runs in several shards, how rows are divided, and which shard this is.

    Cost: O(1 + matches) per row, and O(log) per victim.

    Examples:
        >>> import penstock as pen, pyarrow as pa
        >>> op = pen.Join(on="k", time="t", window=10)
        >>> _ = op.push(left=pa.table({"t": [1, 2], "k": [7, 8]}))
        >>> op.push(right=pa.table({"t": [3, 30], "k": [7, 8]})).to_pylist()
        [{'k': 7, 't_left': 1, 't_right': 3}]
        >>> print(op.finish().num_rows, op.report().pairs)
        0 1

    References: das2003 §2.1 (fast CPU, integrated model).
    """

    def __init__(
        self,
        *,
        schemas: tuple[pa.Schema, pa.Schema] | None = None,
        ledger: str = "keep",
        place: Place = (WHOLE, 0, 1),
        **arguments: Any,
    ) -> None:
        self._settings = settings_of(arguments)
        self._place = place
        self.clock: Callable[[], float] = time.monotonic  # what says how long work takes, for budgets by the clock
        self.numbered: list[tuple[pa.Table | None, ...]] | None = None  # a list gets all rows as they are numbered
        if self._settings.shards is not None:
            raise InputError("shards", repr(self._settings.shards), "one process is one shard; leave it None")
        self.keep_ledger(ledger)
        self._known: list[pa.Schema | None] = [None, None]
        self._held: list[list[pa.Table]] = [[], []]
        self._bound: Bound | None = None
        if schemas is not None:
            self._known = [decoded_schema(schema) for schema in schemas]
            self._bind()

    @property
    def bound(self) -> Bound:
        """The settings, checked against the columns of both sides."""
        if self._bound is None:
            raise InputError("join", "a join whose sides have not both shown their columns", "push rows first")
        return self._bound

    def _bind(self) -> None:
        left, right = self._known
        if left is None or right is None:
            return
        bound = Bound(self._settings, left, right)
        exact = bound.unbounded() if bound.observing else bound
        self._core = windows(exact, self._place)
        self._pace: Pace | None = pace_of(bound)
        self._shadow = bound.core(bound.plan()) if bound.observing else None  # what the budget would have done
        self._shadow_importance = 0.0
        self._noted = 0  # victims not yet taken from the ledger whose lots are known
        self._chances = Chances(int(self._settings.seed)) if bound.weighted else None
        apart = isinstance(self._core, ExactJoin) and not (bound.by_rows or bound.observing)
        self._intake = Intake(bound.lateness, whole=bound.by_rows, patient=bound.patient, apart=apart)
        self._bar = self._intake.watermark  # no row is older that a push brings
        self._payload = (Payload(left), Payload(right))
        counts = not (exact_by_itself(bound) or bound.observing or counts_entered(bound))
        self._sampled = sample_of(bound, self._place) if counts else None
        self._recall = (
            Recall(int(self._settings.seed), self._combine(bound)) if counts and bound.reader is None else None
        )
        self._importance = 0.0
        self._collided = 0
        self._unprobed = np.zeros(2, np.int64)
        self._freed, self._gave = 0, -np.inf  # bytes of rows let go since memory was last given back, and when
        self._ledger = Ledger(bound, self._payload)
        self._bound = bound

    @property
    def _cores(self) -> list[Core]:
        return [self._core] if self._shadow is None else [self._core, self._shadow]

    @property
    def _books(self) -> Core:
        """Whose books the report shows: those of the budget, kept to or observed."""
        return self._core if self._shadow is None else self._shadow

    def _combine(self, bound: Bound) -> str | None:
        return self._settings.combine if bound.importance else None

    # --- rows -----------------------------------------------------------------------------------------------------

    def push(self, *, left: Any = None, right: Any = None) -> pa.Table:
        """Take rows of one side or both and return the pairs they complete.

        Parameters:
            left, right: an Arrow table or record batch, or a pandas DataFrame; each in order of arrival.

        Returns:
            The joined rows. Before both sides have shown their columns: a table without columns.
        """
        tables = [as_table(rows, SIDES[side]) for side, rows in enumerate((left, right))]
        for side, table in enumerate(tables):
            if table is not None:
                check_schema(SIDES[side], self._known[side], table.schema)
        if self._bound is None:
            return self._hold(tables)
        return self._push(*self._in_time(tables)) if self._bound.ordered else self._push(tables[0], tables[1])

    def _hold(self, tables: list[pa.Table | None]) -> pa.Table:
        for side, table in enumerate(tables):
            if table is not None:
                inspect(self._settings, side, table)
        known, held = self._known, self._held
        self._known = [
            table.schema.remove_metadata() if schema is None and table is not None else schema
            for schema, table in zip(known, tables, strict=True)
        ]
        self._held = [
            before if table is None else [*before, table] for before, table in zip(held, tables, strict=True)
        ]
        try:
            self._bind()
            if self._bound is None:
                check_waiting(held, [SIDES[side] for side in range(2) if self._known[side] is None])
                return pa.table({})
            waited = [pa.concat_tables(rows) if rows else None for rows in self._held]
            if self._bound.ordered:
                return self._bound.schema.empty_table()
            joined = self._push(waited[0], waited[1])
        except InputError:  # these rows are refused; those before them go on waiting
            self._known, self._held, self._bound = known, held, None
            raise
        self._held = [[], []]
        return joined

    def _in_time(self, tables: list[pa.Table | None]) -> list[pa.Table | None]:
        """Return the rows that the watermark has passed, which are late; the others wait for it."""
        late: list[pa.Table | None] = []
        for side, table in enumerate(tables):
            if table is None:
                late.append(None)
                continue
            ts = self.bound.clock.values(table[self.bound.time[side]], "time")
            waits = ts >= self._intake.watermark
            late.append(table.filter(pa.array(~waits)))
            if waits.any():
                self._held[side].append(table.filter(pa.array(waits)))
        return late

    def _release(self, to: int | None) -> pa.Table:
        """Join the rows that waited for this watermark, in order of time; None: all that wait."""
        sides: list[pa.Table | None] = [None, None]
        for side, held in enumerate(self._held):
            if not held:
                continue
            rows = pa.concat_tables(held)
            ts = self.bound.clock.values(rows[self.bound.time[side]], "time")
            order = np.argsort(ts, kind="stable")
            ready = order if to is None else order[: np.searchsorted(ts[order], to)]
            sides[side] = rows.take(pa.array(ready))
            rest = np.delete(np.arange(ts.size), ready)
            self._held[side] = [rows.take(pa.array(rest))] if rest.size else []
        return self._push(sides[0], sides[1])

    def _push(self, left: pa.Table | None, right: pa.Table | None) -> pa.Table:
        pace, alone = self._pace, False
        if pace is not None and not pace.open:
            alone = True
            pace.begin(self.clock())
        if self.numbered is not None:
            self.numbered.append((left, right))
        first = self._intake.next
        sides = self.bound.read(0, left, int(first[0])), self.bound.read(1, right, int(first[1]))
        ready = self._intake.take(sides)
        for side, table in enumerate((left, right)):
            if table is not None:
                self._payload[side].append(table.replace_schema_metadata(None))
        joined = self._step(ready, sides)
        if alone:
            self.end_batch()
        return joined

    # --- time on the wall -----------------------------------------------------------------------------------------

    def begin_batch(self, seconds: float | None) -> None:
        """Say that the pushes up to ``end_batch`` are one batch, which may take so long; None: as the budget says."""
        if self._pace is not None:
            self._pace.begin(self.clock(), seconds)

    def end_batch(self) -> None:
        """Say that a batch is over.

        Warns if its time cannot be kept.
        """
        if self._pace is None:
            return
        possible = self._pace.end(self.clock())
        if possible is not None:
            got = f"latency={self._settings.cpu} cannot be kept: batches take longer though nothing is compared"
            warnings.warn(LatencyWarning(f"{got}; {possible:.3g} seconds can, or fewer rows at once"), stacklevel=3)

    @property
    def portions(self) -> list[Portion]:
        """What was decided by the clock in the last batch."""
        return [] if self._pace is None else self._pace.told

    def follow(self, portions: Sequence[Sequence[float | None]]) -> None:
        """Decide in the next batch what ``portions`` told of another, whatever the clock says."""
        if self._pace is not None:
            self._pace.follow(portions)

    def _portions(self, ready: Ready, sets: tuple[Sets, Ints] | None) -> Iterator[tuple[Ints, Ints]]:
        """Let the core take a batch, in portions if there is a budget by the clock; yields the pairs of each."""
        core, pace, batch = self._core, self._pace, ready.batch
        assert isinstance(core, Budgeted)  # others have no such budget
        if pace is None or not batch.row.size:
            yield _pushed(core, batch, ready.code, sets, slice(None))
            return
        pace.expect(self.clock(), batch.row.size, int(batch.tick[-1]))
        begin = 0
        while begin < batch.row.size:
            end = begin + pace.portion(batch.row.size - begin)
            now, before = self.clock(), core.work
            work = pace.grant(now, end - begin)
            if work is not None and pace.target.share is None:
                core.pace(work, end - begin, left=max(pace.left, end - begin), fresh=not pace.told)
            elif work is not None:
                assert not isinstance(core, GateJoin)  # that one keeps a latency
                core.quicken(max(work, LEAST_WORK))
            yield _pushed(core, batch, ready.code, sets, slice(begin, end))
            pace.learn(Portion(end - begin, work, self.clock() - now), core.work - before)
            begin = end

    def _step(self, ready: Ready, sides: tuple[Side, Side] = (NO_ROWS, NO_ROWS)) -> pa.Table:
        counted = ready if self._place[0] == WHOLE else self._counted_here(ready, sides)
        if counted.late.size or np.count_nonzero(counted.nulls):
            self._count_left_out(counted)
        if self._place[0] == BY_TURNS:  # by items, each shard's ledger has the late rows that it was sent
            ready = counted
        if self._recall is not None:
            self._recall.take(self._core.plan, ready.batch, ready.code, self._bar)
            self._bar = self._intake.watermark
        if self._shadow is not None:
            self._observe(ready)
        if isinstance(self._core, Budgeted):
            return self._step_by_step(ready, sides)
        if ready.sides is not None and isinstance(self._core, ExactJoin):
            left, right = self._core.push_sides(*ready.sides)
        else:
            left, right = self._core.push(ready.batch, ready.code)
        if self._chances is not None and isinstance(self._core, WindowJoin):
            victims = self._core.take_back_ledger()
            self._chances.take(ready.batch, self._intake.next)
            self._chances.note(victims, self._core.plan)
            self._noted = len(victims)
        joined = self._joined(left, right)
        for core in self._cores:
            if self._intake.whole or self._intake.newest != core.tick:
                core.close()  # windows in rows get whole ticks; a null key may have ended the open one
        self._settle(ready.late)
        return joined

    def _counted_here(self, ready: Ready, sides: tuple[Side, Side]) -> Ready:
        """Leave out what another shard tells of: in turns each has all rows late or null, by items copies of them."""
        way, shard, shards = self._place
        if way == BY_TURNS:
            return ready if shard == 0 else ready._replace(late=NO_LATE, nulls=np.zeros_like(ready.nulls))
        mine = np.ones(ready.late.shape[0], np.bool_)
        for side, rows in enumerate(sides):
            chosen = ready.late[:, 0] == side
            if rows.sets is not None and chosen.any():
                at = ready.late[chosen, 1] - (self._intake.next[side] - rows.ts.size)
                first = rows.sets.item[rows.sets.begin[at]].view(np.uint64)
                mine[chosen] = placed(first, np.uint64(shards)) == np.uint64(shard)
        return ready._replace(late=ready.late[mine])

    def _step_by_step(self, ready: Ready, sides: tuple[Side, Side]) -> pa.Table:
        """Join a batch inside a CPU budget, or on a condition."""
        core, late = self._core, ready.late
        assert isinstance(core, Budgeted)
        sets = _sets_of(ready, sides, keyed=self.bound.reader is None) if isinstance(core, SetJoin) else None
        if isinstance(core, GateJoin):
            core.tells = self._ledger_mode == "keep"
        found, before = [], core.work
        for left, right in self._portions(ready, sets):
            found.append(self._joined(left, right))
            self._note(late)
            late = NO_LATE
        if self._sampled is not None and sets is not None:
            self._sampled.take(ready.batch, sets[0], self._intake.watermark, core.work - before)
        if self._intake.whole or self._intake.newest != core.tick:
            core.close()
        self._settle(late)
        return pa.concat_tables(found)

    def _count_left_out(self, ready: Ready) -> None:
        """Count the rows that came late or without a key: the core does not see them."""
        late = np.bincount(ready.late[:, 0], minlength=2)
        for core in self._cores:
            counts = core.counts
            counts[ARRIVED : ARRIVED + 2] += ready.nulls + late
            counts[EXPIRED : EXPIRED + 2] += ready.nulls
            counts[SHED + 2 * LATE : SHED + 2 * LATE + 2] += late

    def _observe(self, ready: Ready) -> None:
        """Let the rows of a push meet what the budget would have kept."""
        assert self._shadow is not None
        left, right = self._shadow.push(ready.batch._replace(key=np.empty_like(ready.batch.key)), ready.code)
        if self.bound.importance:
            self._shadow_importance += float(self._importances(left, right).sum())

    def _importances(self, left: Ints, right: Ints) -> Floats:
        """Return the importance of each pair."""
        numbers = (left, right)
        return importances(self.bound, lambda side, names: self._payload[side].columns(numbers[side], names))

    def _pass_time(self, tick: int | None) -> None:
        """Close the ticks before this one, also those that had null keys only.

        Not after every push: what a tick of null keys lets go of would then depend on the cut.
        """
        intake = self._intake
        for core in self._cores:
            if tick is not None and not intake.whole:
                core.advance(tick)
            elif intake.released is not None and not isinstance(core, SetJoin):
                core.reach(intake.released, intake.counted)
        self._settle(NO_LATE)

    def _joined(self, left: Ints, right: Ints) -> pa.Table:
        """Put the joined rows together, verifying keys whose codes are hashes."""
        bound = self.bound
        if left.size == 0:
            return bound.schema.empty_table()
        same = verified(bound, lambda side, rows: self._payload[side].take(rows, bound.keys[side]), left, right)
        if same is not None and not same.all():
            self._collided += int((~same).sum())
            left, right = left[same], right[same]
        importance = self._importances(left, right) if bound.importance else None
        if importance is not None:
            self._importance += float(importance.sum())
        weight = None if self._chances is None else self._chances.weights(left, right, self._core.plan)
        numbers = (left, right)
        return assembled(
            bound, lambda side, names: self._payload[side].columns(numbers[side], names), importance, weight
        )

    def _settle(self, late: Ints) -> None:
        """Write the ledger, then let go of the rows that left."""
        self._note(late)
        wasteful = [side for side in range(2) if self._payload[side].wasteful(self._held_rows(side))]
        for side in wasteful:
            self._freed += self._payload[side].trim(self._stored_rows(side))
        if self._freed > FREED and time.monotonic() - self._gave >= RESTS:
            give_back()
            self._freed, self._gave = 0, time.monotonic()

    def _note(self, late: Ints) -> None:
        """Write the ledger."""
        shed = self._books.take_ledger()
        if self._chances is not None:
            self._chances.note(shed[self._noted :], self._core.plan)
            self._chances.settle()
            self._noted = 0
            for side in range(2):
                if self._chances.wasteful(side, self._held_rows(side)):
                    self._chances.trim(side, self._stored_rows(side))
        if self._ledger_mode == "keep":
            self._ledger.note(shed, late)
        if isinstance(self._core, Budgeted):
            self._note_skipped(self._core.take_skipped())

    def _note_skipped(self, skipped: Ints) -> None:
        """Count the rows that were not compared with all of the other window, and write them into the ledger."""
        if skipped.size == 0:
            return
        begins = np.flatnonzero(np.r_[True, (skipped[1:, :2] != skipped[:-1, :2]).any(axis=1)])
        self._unprobed += np.bincount(skipped[begins, 0], minlength=2)
        if self._ledger_mode == "keep":
            self._ledger.note_skipped(skipped, begins)

    def _stored_rows(self, side: int) -> Ints:
        """Return the numbers of the rows of one side that are held or wait, ascending."""
        held, queue = self._core.live_rows(side), self._intake.waiting
        return np.union1d(held, queue.row[queue.side == side]) if queue.row.size else held

    def _held_rows(self, side: int) -> int:
        waiting = self._intake.waiting.side
        return self._core.live(side) + (int((waiting == side).sum()) if waiting.size else 0)

    def advance(self, to: Any) -> pa.Table:
        """Move time on to `to` although nothing arrived: every tick before it is closed.

        Rows with a time of `to` may still come. Returns the pairs that windows in rows complete by that.
        """
        tick = self.bound.clock.tick("to", to)
        waited = [self._release(tick)] if self.bound.ordered else []
        joined = self._step(self._intake.advance(tick))
        self._pass_time(self._intake.newest)
        return pa.concat_tables([*waited, joined])

    def watermark(self, to: Any) -> pa.Table:
        """Say that rows older than `to` are late from now on, and let go of what only they could have met.

        With ``lateness="watermark"`` nothing else makes a row late; with ``lateness=("watermark", "5 seconds")``
        being older by more than that than the newest row of the side that is behind, between pushes, does too.
        Returns the pairs that windows in rows complete by that.
        """
        bound = self.bound
        tick = bound.clock.tick("to", to)
        waited = [self._release(tick)] if bound.ordered else []
        joined = pa.concat_tables([*waited, self._step(self._intake.pass_watermark(tick))])
        if not bound.by_rows:
            for core in self._cores:
                core.pass_watermark(tick)
            self._settle(NO_LATE)
        return joined

    def finish(self) -> pa.Table:
        """Close the open tick: nothing more will come. Returns the pairs that were waiting for that."""
        if self._bound is None:
            return pa.table({})
        waited = [self._release(None)] if self._bound.ordered else []
        joined = pa.concat_tables([*waited, self._step(self._intake.advance(None))])
        if isinstance(self._core, DualJoin):
            joined = pa.concat_tables([joined, self._joined(*self._core.flush())])
        self._pass_time(None if self._intake.newest is None else self._intake.newest + 1)
        return joined

    def resize(self, *, memory: Any = None, split: Any = None, window: Any = None) -> None:
        """Change the budget or the window in mid-stream; holds from the end of the open tick.

        Parameters:
            memory: the new budget, in the unit of the old one; None: it stays as it is. To give a budget to a join
                that has none, or to take it away, use ``changed``.
            split: goes with `memory`; None: one pool stays one, and two get half each.
            window: the new window; None: it stays as it is.

        What has expired or was shed does not come back when they grow.
        """
        bound = self.bound
        limit = None if memory is None else self._limit(memory, split)
        span = None
        if window is not None:
            if self._settings.cpu is not None:
                raise WindowError("window", repr(window), "with a CPU budget the window stays: start afresh")
            by_rows, span = bound.spans(window)
            if by_rows != bound.by_rows:
                kind = "rows" if bound.by_rows else "time"
                raise WindowError("window", repr(window), f"this join was made with windows in {kind}")
        if limit is not None:
            self._books.plan.limit[:] = limit
            if isinstance(self._core, SetJoin | DualJoin):
                self._core.relimit()
        if span is not None:
            for core in self._cores:
                core.plan.span[:] = span  # the policy and the heap hold the same array
                core.respan()
            if self._sampled is not None:
                self._sampled.respan(span)

    def _limit(self, memory: Any, split: Any) -> tuple[int, int]:
        """Return the limits of another budget, and raise if it is of another kind."""
        bound = self.bound
        unit, limit, shared = budget(memory, split or ("shared" if bound.shared else "fixed"))
        if bound.unit == "none":
            want = f"this join was made without a budget: go on with join.changed(memory={memory!r})"
            raise BudgetError("memory", repr(memory), want)
        if unit != bound.unit:
            raise BudgetError("memory", repr(memory), f"this join was made with memory in {bound.unit}")
        if shared != bound.shared:
            raise BudgetError("split", repr(split), "one pool stays one, and two stay two")
        return limit

    # --- what happened --------------------------------------------------------------------------------------------

    @property
    def arrived(self) -> tuple[int, int]:
        """How many rows of each side have been pushed: the number of the next one."""
        if self._bound is None:
            return sum(table.num_rows for table in self._held[0]), sum(table.num_rows for table in self._held[1])
        return int(self._intake.next[0]), int(self._intake.next[1])

    def report(self) -> Report:
        """Say what happened so far."""
        if self._bound is None:
            came = Sides(*(sum(table.num_rows for table in held) for held in self._held))
            none = {reason: Sides(0, 0) for reason in REASONS}
            size = sum(table.nbytes for held in self._held for table in held)
            chosen = str(self._settings.chosen)
            return Report(chosen, came, came, Sides(0, 0), none, 0, None, None, None, came.total, size, 0)
        counts, queue = self._books.counts, self._intake.waiting
        waits = np.bincount(queue.side, minlength=2)
        stored = waits + [sum(table.num_rows for table in tables) for tables in self._held]  # for the watermark
        waits += [self._waiting_here(side) for side in range(2)]
        held = Sides(*(self._core.live(side) + int(stored[side]) for side in range(2)))
        emitted = int(self._core.counts[PAIRS]) - self._collided
        pairs = emitted if self._shadow is None else int(counts[PAIRS])
        found = self._importance if self._shadow is None else self._shadow_importance
        important = found if self._bound.importance else None
        guesses = self._guesses(emitted)
        exact = guesses[0] and guesses[0].interval(pairs)
        return Report(
            policy=self._ran(),
            arrivals=Sides(*(int(counts[ARRIVED + side] + waits[side]) for side in range(2))),
            live=Sides(*(_counted(self._books, side) + int(waits[side]) for side in range(2))),
            expired=Sides(*(int(counts[EXPIRED + side]) for side in range(2))),
            shed={
                reason: Sides(*(int(counts[SHED + 2 * at + side]) for side in range(2)))
                for at, reason in enumerate(REASONS)
            },
            pairs=pairs,
            importance=important,
            exact_estimate=exact,
            recall=exact and recall_of(pairs, exact),
            memory_rows=held.total,
            memory_bytes=sum(
                payload.nbytes * rows // max(payload.stored, 1)
                for payload, rows in zip(self._payload, held, strict=True)
            )
            + ROW_BYTES * held.total,
            comparisons=int(self._core.counts[COMPARISONS]),
            unprobed=Sides(*map(int, self._unprobed)),
            importance_estimate=guesses[1] and guesses[1].interval(important or 0.0),
            mode=self._settings.mode,
            slowest=None if self._pace is None else self._pace.slowest,
            guesses=guesses,
        )

    def _waiting_here(self, side: int) -> int:
        """Return how many of the rows that wait for the watermark are to be counted in this shard. O(rows)."""
        way, shard, shards = self._place
        rows = sum(table.num_rows for table in self._held[side])
        if way == WHOLE:
            return rows
        if way == BY_TURNS:  # as they will be numbered
            return len(range((shard - int(self._intake.next[side])) % shards, rows, shards))
        assert self.bound.reader is not None
        name = self.bound.keys[side][0]
        here = 0
        for table in self._held[side]:
            sets, _ = self.bound.reader.read(table[name], name, 0)
            some = sets.size > 0  # a row without items is sent to one shard only
            first = sets.item[sets.begin[some]].view(np.uint64)
            here += int((placed(first, np.uint64(shards)) == np.uint64(shard)).sum() + (~some).sum())
        return here

    def _guesses(self, emitted: int) -> tuple[Guess | None, Guess | None]:
        """Return what is known of the exact join: its pairs, and their importance."""
        important = self.bound.importance is not None
        if self._lossless:
            return Guess(emitted), Guess(self._importance) if important else None
        counted = self._recall or self._sampled
        if counted is None:
            return None, None
        return counted.pairs, counted.importance if important else None

    @property
    def _lossless(self) -> bool:
        """Whether all pairs were found that the rows so far have: what is given up for being late has none."""
        counts = self._core.counts
        return not (counts[SHED : SHED + 2 * LATE].any() or counts[COPIES] or self._unprobed.any())

    def _ran(self) -> str:
        """Name what decided what is given up."""
        return self.bound.policy

    def ledger(self) -> pa.Table:
        """Return what was shed since the last call: each call hands its rows over and forgets them.

        Columns: `side`, `shard`, `arrival` (number within the side), `ts`, `shed_at` (the tick at whose end it
        left), `shed_at_arrival` (the first row of the other side that it could no longer meet), `reason`, and the
        row itself under `left` or `right`. With a CPU budget also `skipped`: for the reason "unprobed" the rows of
        the other side, from a number up to another, that a row in the window was not compared with when it came.
        """
        if self._bound is None:
            return pa.table({})
        return self._ledger.take()

    def keep_ledger(self, ledger: str) -> None:
        """From now on "keep" what is shed until ``ledger()`` asks for it, or leave it "off"."""
        self._ledger_mode = check_ledger(ledger)

    # --- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, bytes]:
        """Return everything the join knows, as bytes by name; the ledger kept so far is part of it."""
        meta: dict[str, Any] = {"version": VERSION, "ledger": self._ledger_mode, "bound": self._bound is not None}
        meta["place"] = list(self._place)
        arguments = self._settings.arguments()
        meta["settings"] = {name: saving.encode(name, value) for name, value in arguments.items()}
        state: dict[str, bytes] = {}
        for name, schema, held in zip(SIDES, self._known, self._held, strict=True):
            if schema is not None:
                state[f"schema_{name}"] = saving.to_ipc(schema.empty_table())
            if held:
                state[f"held_{name}"] = saving.to_ipc(pa.concat_tables(held))
        if self._bound is not None:
            meta |= {"importance": self._importance, "collided": self._collided, "unprobed": self._unprobed.tolist()}
            meta["shadow_importance"] = self._shadow_importance
            meta |= self._intake.marks()
            state["core"] = saving.to_npz(self._core.arrays())
            state["intake"] = saving.to_npz(self._intake.arrays())
            for side, (name, payload) in enumerate(zip(SIDES, self._payload, strict=True)):
                numbers = self._stored_rows(side)
                state[f"rows_{name}"] = saving.to_ipc(payload.take(numbers, payload.schema.names))
                state[f"numbers_{name}"] = saving.to_npz({"numbers": numbers, "next": np.array(payload.next)})
            state |= self._parts()
        return saving.sealed(meta, state)

    def _parts(self) -> dict[str, bytes]:
        """Return the state of what not every join has."""
        state: dict[str, bytes] = {}
        if self._pace is not None:
            state["pace"] = saving.to_npz({"known": self._pace.known})
        if self._shadow is not None:
            state["shadow"] = saving.to_npz(self._shadow.arrays())
        if self._chances is not None:
            state["chances"] = saving.to_npz(self._chances.arrays())
        if self._recall is not None:
            state["sample"] = saving.to_planes(self._recall.arrays())  # else it grows with the window
        if self._sampled is not None:
            state["sampled"] = saving.to_npz(self._sampled.arrays())
        if self._ledger.tables:
            state["ledger"] = saving.to_ipc(pa.concat_tables(self._ledger.tables))
        return state

    @classmethod
    def from_state(cls, state: dict[str, bytes]) -> Self:
        """Return a join that goes on where the one that saved this state stood.

        Raises:
            StateError: if the state is not one, or of a version that this one does not read.
        """
        with saving.opened(state, VERSION) as meta:
            return cls._restored(meta, state)

    @classmethod
    def _restored(cls, meta: dict[str, Any], state: dict[str, bytes]) -> Self:
        shown = [meta["bound"] or f"schema_{name}" in state for name in SIDES]
        schemas = [
            saving.from_ipc(state[f"schema_{name}"]).schema if known else None
            for name, known in zip(SIDES, shown, strict=True)
        ]
        join = cls(
            schemas=(schemas[0], schemas[1]) if meta["bound"] else None,
            ledger=meta["ledger"],
            place=_placed(*meta["place"]),
            **{name: saving.decode(value) for name, value in meta["settings"].items()},
        )
        join._known = schemas
        join._held = [[saving.from_ipc(state[f"held_{name}"])] if f"held_{name}" in state else [] for name in SIDES]
        if meta["bound"]:
            join._restore(meta, state)
        return join

    def changed(self, *, schemas: tuple[pa.Schema, pa.Schema] | None = None, **arguments: Any) -> Self:
        """Return a join with other arguments that goes on from the rows this one holds.

        Budget, split, policy, cap, seed and the length of the window may change, and each side may get further
        columns, null in the rows held. A new policy knows the rows held and nothing before them. What has expired
        or was shed does not come back.

        Parameters:
            schemas: the new columns (left, right); None: as they are.
            arguments: those of ``penstock.join`` that change.

        Raises:
            StateError: if the rows held cannot be used: another key, time, importance or kind of window, or
                columns that are gone or of another type.
        """
        bound = self.bound
        if bound.reader:
            raise StateError(
                "on", str(bound.reader.condition), "only a join on equal keys can be changed: start afresh"
            )
        for cpu in (bound.settings.cpu, arguments.get("cpu")):
            if cpu is not None:
                raise StateError("cpu", str(cpu), "a CPU budget stays as it is: start afresh")
        join = type(self)(
            schemas=schemas or bound.schemas, ledger=self._ledger_mode, **{**self._settings.arguments(), **arguments}
        )
        _same_rows(bound, join.bound)
        join._adopt(self)
        return join

    def _adopt(self, old: "Join") -> None:
        bound, queue = self.bound, old._intake.waiting
        assert not isinstance(old._core, Budgeted)
        assert not isinstance(self._core, Budgeted)
        columns: list[list[Ints]] = []
        read = []
        for side, (known, payload) in enumerate(zip(bound.schemas, old._payload, strict=True)):
            numbers, pos = old._core.held(side)
            stored = np.union1d(numbers, queue.row[queue.side == side])
            table = payload.take(stored, payload.schema.names)
            for field in known:
                if field.name not in table.schema.names:
                    table = table.append_column(field, pa.nulls(table.num_rows, field.type))
            table = table.select(known.names)
            self._payload[side].restore(table, stored, payload.next)
            read.append(bound.read(side, table.take(pa.array(np.searchsorted(stored, numbers)))))
            columns.append([np.full(numbers.size, side, np.int8), numbers, pos])
        sides, numbers, pos = (np.concatenate(both) for both in zip(*columns, strict=True))
        order = np.lexsort((sides, pos))
        tick = old._core.tick
        weight, importance = (np.concatenate([getattr(r, name) for r in read]) for name in ("weight", "importance"))
        clock = np.tile(old._intake.counted, (sides.size if bound.by_rows else 0, 1))
        rows = Batch(
            sides[order],
            np.empty(sides.size, np.int32),
            numbers[order],
            np.full(sides.size, tick or 0),
            pos[order],
            clock,
            weight[order] if weight.size else weight,
            importance[order] if importance.size else importance,
        )
        waits = np.bincount(queue.side, minlength=2)
        code = np.concatenate([r.code for r in read])[order]
        for core in [self._core] if self._shadow is None else [self._core, self._shadow]:
            fresh = rows._replace(key=np.empty_like(rows.key))
            core.adopt(fresh, code, old._core.counts, old._intake.next - waits)
        if self._chances is not None:
            if old._chances is None or old._chances.seed != self._chances.seed:
                want = "the rows held were not drawn by these lots: start afresh, or keep policy and seed"
                raise StateError("policy", "'sample'", want)
            self._chances = old._chances
        for name in ("lateness", "patient", "apart"):
            setattr(old._intake, name, getattr(self._intake, name))
        self._intake = old._intake
        self._importance, self._collided = old._importance, old._collided
        self._ledger.tables = old._ledger.tables
        self._bar = old._bar
        self._shadow_importance = old._importance
        if old._recall is not None and self._shadow is None:
            self._recall = old._recall.again(self._combine(bound))
        elif self._recall is not None:
            self._recall.take(self._core.plan, rows, code, self._bar)
            self._recall.adopt(int(old._core.counts[PAIRS]) - old._collided, old._importance)
        self._settle(NO_LATE)

    def _restore(self, meta: dict[str, Any], state: dict[str, bytes]) -> None:
        self._importance, self._collided = float(meta["importance"]), index(meta["collided"])
        self._unprobed = np.array([index(rows) for rows in meta["unprobed"]], np.int64).reshape(2)
        self._core.restore(saving.from_npz(state["core"]))
        if self._pace is not None:
            self._pace.restore(saving.from_npz(state["pace"])["known"])
        self._shadow_importance = float(meta["shadow_importance"])
        if self._shadow is not None:
            self._shadow.restore(saving.from_npz(state["shadow"]))
        if self._chances is not None:
            self._chances.restore(saving.from_npz(state["chances"]))
        self._intake.restore(meta, saving.from_npz(state["intake"]))
        self._bar = self._intake.watermark
        self._recall = (
            Recall.restored(self._combine(self.bound), saving.from_planes(state["sample"]))
            if "sample" in state
            else None
        )
        if self._sampled is not None:
            self._sampled.restore(saving.from_npz(state["sampled"]))
        for payload, name in zip(self._payload, SIDES, strict=True):
            numbers = saving.from_npz(state[f"numbers_{name}"])
            payload.restore(saving.from_ipc(state[f"rows_{name}"]), numbers["numbers"], int(numbers["next"]))
        self._ledger.tables = [saving.from_ipc(state["ledger"])] if "ledger" in state else []


def settings_of(arguments: dict[str, Any]) -> Settings:
    """Check the arguments of a join by name."""
    known = Settings.__dataclass_fields__
    unknown = [name for name in arguments if name not in known or name == "chosen"]
    if unknown:
        names = ", ".join(name for name in known if name != "chosen")
        raise InputError(unknown[0], repr(arguments[unknown[0]]), f"no such argument; there are {names}")
    missing = [name for name in ("on", "time", "window") if name not in arguments]
    if missing:
        raise InputError(missing[0], "nothing", "this argument is required")
    return Settings(**arguments)


def _placed(how: Any, number: Any, shards: Any) -> Place:
    """Return how rows are divided, as a state has it; raises ValueError for what cannot be."""
    place = index(how), index(number), index(shards)
    if place[0] not in {WHOLE, BY_ITEMS, BY_TURNS} or not 0 <= place[1] < place[2]:
        raise ValueError(place)
    return place


def _sets_of(ready: Ready, sides: tuple[Side, Side], *, keyed: bool) -> tuple[Sets, Ints]:
    """Return the sets and types of a batch's rows, in their order; codes say where they are, or are the one item."""
    if keyed:
        count = ready.code.size
        return Sets(np.arange(count), np.ones(count, np.int64), ready.code, NO_FLOATS), NO_INTS
    none = Sets(NO_INTS, NO_INTS, NO_INTS, NO_FLOATS)
    left, right = (side.sets or none for side in sides)
    from_left = ready.batch.side == 0
    columns = []
    for mine, theirs in ((left.begin, right.begin + left.item.size), (left.size, right.size)):
        column = np.empty(ready.code.size, np.int64)
        column[from_left], column[~from_left] = mine[ready.code[from_left]], theirs[ready.code[~from_left]]
        columns.append(column)
    items, weights = (np.concatenate(both) for both in zip(left[2:], right[2:], strict=True))
    kind = NO_INTS
    if any(side.kind.size for side in sides):
        kind = np.empty(ready.code.size, np.int64)
        for which, chosen in enumerate((from_left, ~from_left)):
            kind[chosen] = sides[which].kind[ready.code[chosen]] if chosen.any() else 0
    return Sets(columns[0], columns[1], items, weights), kind


def _pushed(
    core: Budgeted, batch: Batch, code: Ints, sets: tuple[Sets, Ints] | None, part: slice
) -> tuple[Ints, Ints]:
    """Let the core take a part of a batch, and return its pairs."""
    rows = Batch(*(column[part] if column.size else column for column in batch))
    if not isinstance(core, SetJoin):
        return core.push(rows, code[part])
    assert sets is not None
    items, kind = sets
    items = items._replace(begin=items.begin[part], size=items.size[part])
    return core.push(rows, items, kind[part] if kind.size else kind)


def _counted(core: Core, side: int) -> int:
    """Return how many of the rows held on one side the books count."""
    return core.counted(side) if isinstance(core, Budgeted) else core.live(side)


def exact_by_itself(bound: Bound) -> bool:
    """Say whether a join finds every pair, so that nobody need count them beside it."""
    return bound.unit == "none" and bound.settings.per_key is None and bound.settings.cpu is None


def _same_rows(old: Bound, new: Bound) -> None:
    """Raise unless the rows that one join holds can go on in another."""
    for what, before, after in (
        ("on", old.keys, new.keys),
        ("on", old.coder, new.coder),
        ("time", old.time, new.time),
        ("time", old.clock, new.clock),
        ("importance", old.importance, new.importance),
        ("window", "rows" if old.by_rows else "time", "rows" if new.by_rows else "time"),
    ):
        if before != after:
            raise StateError(what, repr(after), f"the rows held were joined with {before!r}: start afresh")
    for side, name in enumerate(SIDES):
        for field in old.schemas[side]:
            if field not in list(new.schemas[side]):
                got = f"columns without {field.name} ({field.type})"
                raise StateError(name, got, "the rows held have it: start afresh")
        for field in new.schemas[side]:
            if field not in list(old.schemas[side]) and not field.nullable:
                raise StateError(name, f"a new column {field.name} not null", "the rows held would have nulls in it")


def check_schema(name: str, known: pa.Schema | None, given: pa.Schema) -> None:
    """Raise unless rows have the columns that their stream has shown."""
    if known is not None and not known.equals(given, check_metadata=False):
        raise SchemaError(name, _difference(known, given), "every batch of a side has the same columns")


def check_waiting(held: Iterable[Sequence[pa.Table]], silent: Sequence[str]) -> None:
    """Raise if rows have piled up because streams have not shown their columns."""
    rows = sum(table.num_rows for tables in held for table in tables)
    if rows > MOST_WAITING:
        got = f"no rows yet, and {rows:,} of others wait to know its columns"
        raise InputError(
            silent[0], got, f"push a table of {' and '.join(silent)} without rows, or begin with schemas"
        )


def check_ledger(ledger: str) -> str:
    """Return what becomes of the ledger, and raise for what cannot."""
    if ledger not in LEDGER:
        raise InputError("ledger", repr(ledger), f"give one of {', '.join(map(repr, LEDGER))}")
    return ledger


def as_table(rows: Any, name: str) -> pa.Table | None:
    """Return rows as an Arrow table, whatever they came as; views and runs are decoded."""
    if rows is None:
        return None
    if isinstance(rows, pa.Table):
        return decoded(rows, name)
    if isinstance(rows, pa.RecordBatch):
        return decoded(pa.Table.from_batches([rows]), name)
    if type(rows).__module__.startswith("pandas."):
        return decoded(pa.Table.from_pandas(rows, preserve_index=False), name)
    raise InputError(name, type(rows).__name__, "give an Arrow table, a record batch or a pandas DataFrame")


def _difference(known: pa.Schema, given: pa.Schema) -> str:
    missing = [name for name in known.names if name not in given.names]
    extra = [name for name in given.names if name not in known.names]
    if missing or extra:
        return f"a batch without {missing} and with {extra}" if missing else f"a batch with {extra}"
    changed = [
        f"{name}: {given.field(name).type}, not {known.field(name).type}"
        for name in known.names
        if given.field(name) != known.field(name)
    ]
    return "; ".join(changed) or "the columns in another order"
