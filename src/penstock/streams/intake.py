"""Bring the rows of all sides into one order of arrival, and judge what is late."""

from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.exact import Arrivals, arrivals
from penstock.core.order import extent, merged, taking_turns
from penstock.core.sets import Sets
from penstock.core.step import NO_ROWS as NO_BATCH
from penstock.core.step import Batch
from penstock.core.windows import Floats, Ints

NO_INTS: Ints = np.empty(0, np.int64)
NO_FLOATS: Floats = np.empty(0, np.float64)
NO_CLOCK: Ints = np.empty((0, 2), np.int64)
NO_LATE: Ints = np.empty((0, 3), np.int64)
NO_WATERMARK, NEVER = -(1 << 62), 1 << 62  # before any time, and after
MARKS = ("newest", "reached", "released", "watermark")


class Side(NamedTuple):
    """The rows of one side in a push."""

    ts: Ints
    code: Ints
    valid: npt.NDArray[Any] | None  # False where a key is null; None: nowhere
    weight: Ints  # empty: one each
    importance: Floats  # empty: none
    sets: Sets | None = None  # instead of keys: codes are then places in it
    kind: Ints = NO_INTS  # types of rows, empty: one
    rising: bool | None = None  # whether no timestamp is less than the one before it; None: not known

    def follows(self, earlier: int | None) -> bool:
        """Say whether no row is older than one before it, an earlier time included."""
        return follows(self.ts, earlier, rising=self.rising)


def follows(ts: Ints, earlier: int | None, *, rising: bool | None = None) -> bool:
    """Say whether no timestamp is older than one before it, an earlier one included, if not known as `rising`."""
    if ts.size == 0:
        return True
    return bool(earlier is None or ts[0] >= earlier) and (extent(ts)[2] if rising is None else rising)


NO_ROWS = Side(NO_INTS, NO_INTS, None, NO_INTS, NO_FLOATS)


class Ready(NamedTuple):
    """What a push hands to the core."""

    batch: Batch
    code: Ints
    late: Ints  # (n, [side, row, tick])
    nulls: Ints  # per side
    sides: tuple[Arrivals, Arrivals] | None = None  # instead of the batch: rows in order of time, not merged


class Waiting(NamedTuple):
    """Rows that wait for their tick to be complete (windows in rows, and joins of several streams)."""

    side: npt.NDArray[Any]
    ts: Ints
    code: Ints
    row: Ints
    valid: npt.NDArray[Any]
    weight: Ints
    importance: Floats


def nothing_waits(keys: int = 0) -> Waiting:
    """Return an empty queue; rows have one code, or codes of so many keys."""
    none = np.empty(0, np.int64)
    code = np.empty((0, keys), np.int64) if keys else none
    return Waiting(np.empty(0, np.int8), none, code, none, np.empty(0, np.bool_), none, np.empty(0))


class Intake:
    """The order of arrival of one join.

    Within a push, rows are ordered by the newest timestamp their side has shown, left first: in-order sides are
    merged by time, and a late row stays behind the rows it came after.

    A row is late if it is older than the newest row seen before it by more than `lateness`, or older than the
    watermark. A *patient* intake looks at the side that is behind instead, and only between pushes. Windows in rows
    and joins of several streams need whole ticks: their rows wait until no row of their tick can come any more.

    Parameters:
        lateness: in ticks.
        whole: whether rows wait for whole ticks.
        patient: whether the side that is behind says what is late.
        apart: whether sides that come in order are handed on as they are, not merged: for a core that takes them.
        sides: how many.
        keys: of a row; 0: one, and codes are a plain column.
        grain: so many ticks that belong together are whole only together.
        counting: whether rows that wait are counted when they are handed out, as windows in rows ask.
    """

    def __init__(
        self,
        lateness: int,
        *,
        whole: bool,
        patient: bool = False,
        apart: bool = False,
        sides: int = 2,
        keys: int = 0,
        grain: int = 1,
        counting: bool = True,
    ) -> None:
        self.lateness = lateness
        self.patient = patient
        self.whole = whole
        self.apart = apart
        self.grain = grain
        self.counting = counting
        self.newest: int | None = None
        self.watermark = NO_WATERMARK  # rows older than this are late
        self.reached: list[int | None] = [None] * sides  # the newest timestamp of each side
        self.next = np.zeros(sides, np.int64)  # number of the next row of each side
        self.counted = np.zeros(sides, np.int64)  # rows of each side that have left the queue
        self.released: int | None = None  # the last tick whose rows have left it
        self.waiting = self._nothing = nothing_waits(keys)

    @property
    def bar(self) -> int:
        """No row older than this will be handed out any more, if rows wait for whole ticks."""
        bar = self.watermark
        if self.newest is not None and not self.patient:
            bar = max(bar, self.newest - self.lateness)
        return bar // self.grain * self.grain

    def take(self, sides: Sequence[Side]) -> Ready:
        """Take the rows of a push."""
        bar = self.watermark if self.patient else self.newest
        if (self.whole or self.apart or self._plain(sides)) and all(rows.follows(bar) for rows in sides):
            if not self.whole:
                return self._in_order(sides)
            if not self._early(sides):
                return self._queued(sides)
        sizes = [side.ts.size for side in sides]
        order = self._arrival_order(sides)
        ts = _merged([side.ts for side in sides], order)
        side = _merged([np.full(n, at, np.int8) for at, n in enumerate(sizes)], order)
        row = _merged([np.arange(first, first + n) for first, n in zip(self.next, sizes, strict=True)], order)
        code = _merged([rows.code for rows in sides], order)
        weight = _merged([rows.weight for rows in sides], order) if any(s.weight.size for s in sides) else NO_INTS
        given = any(s.importance.size for s in sides)
        importance = _merged([rows.importance for rows in sides], order) if given else NO_FLOATS
        self.next += sizes
        if ts.size == 0:
            return self._release(self._nothing, NO_LATE)
        tick = reached(ts, self.newest)
        before = np.empty_like(tick)
        before[0] = ts[0] if self.newest is None else self.newest
        before[1:] = tick[:-1]
        valid = None
        if any(rows.valid is not None for rows in sides):
            masks = [np.ones(n, np.bool_) if s.valid is None else s.valid for s, n in zip(sides, sizes, strict=True)]
            valid = _merged(masks, order)
        self.newest = int(tick[-1])
        is_late = ts < (self.watermark if self.patient else np.maximum(before - self.lateness, self.watermark))
        self._wait_for_the_slowest()
        late = NO_LATE
        keep = ~is_late
        if is_late.any():
            if valid is not None:
                is_late &= valid  # a null key expires, late or not
            late = np.stack([side[is_late], row[is_late], before[is_late]], axis=1).astype(np.int64)
        if self.whole:
            arrived = Waiting(
                side[keep],
                ts[keep],
                code[keep],
                row[keep],
                np.ones(int(keep.sum()), np.bool_) if valid is None else valid[keep],
                weight[keep] if weight.size else weight,
                importance[keep] if importance.size else importance,
            )
            ready = self._release(arrived, late)
            nulls = np.bincount(side[~(keep | is_late)], minlength=len(sides))
            return ready._replace(nulls=ready.nulls + nulls)
        keep = keep if valid is None else keep & valid
        nulls = np.zeros(2, np.int64) if valid is None else np.bincount(side[~valid], minlength=2)
        columns = [side, row, tick, ts, code, weight, importance]
        if not keep.all():
            columns = [column[keep] if column.size else column for column in columns]
        side, row, tick, ts, code, weight, importance = columns
        batch = Batch(side, np.empty(side.size, np.int32), row, tick, ts, NO_CLOCK, weight, importance)
        return Ready(batch, code, late, nulls)

    def _wait_for_the_slowest(self) -> None:
        behind = [newest for newest in self.reached if newest is not None]
        if self.patient and len(behind) == len(self.reached):
            self.watermark = max(self.watermark, min(behind) - self.lateness)

    def _early(self, sides: Sequence[Side]) -> bool:
        """Say whether the first row of a side is behind the watermark."""
        return any(rows.ts.size and rows.ts[0] < self.watermark for rows in sides)

    def _plain(self, sides: Sequence[Side]) -> bool:
        """Say whether rows have nothing but time and key, and none is late if it is in order."""
        more = any(rows.weight.size or rows.importance.size for rows in sides)
        return not (self.patient or more or self._early(sides))

    def _queued(self, sides: Sequence[Side]) -> Ready:
        """Take rows in order on each side, none of them late, that wait for whole ticks."""
        sizes = [rows.ts.size for rows in sides]
        row = [np.arange(first, first + n) for first, n in zip(self.next, sizes, strict=True)]
        self.next += sizes
        for which, rows in enumerate(sides):
            if rows.ts.size:
                earlier = self.reached[which]
                self.reached[which] = int(rows.ts[-1]) if earlier is None else max(int(rows.ts[-1]), earlier)
        self.newest = self._newest()
        self._wait_for_the_slowest()
        valid = [np.ones(n, np.bool_) if s.valid is None else s.valid for s, n in zip(sides, sizes, strict=True)]
        side = [np.full(n, at, np.int8) for at, n in enumerate(sizes)]
        columns = [
            side,
            [rows.ts for rows in sides],
            [rows.code for rows in sides],
            row,
            valid,
            [rows.weight for rows in sides],
            [rows.importance for rows in sides],
        ]
        return self._release(Waiting(*(np.concatenate(column) for column in columns)), NO_LATE)

    def _newest(self) -> int | None:
        return max((tick for tick in (self.newest, *self.reached) if tick is not None), default=None)

    def _in_order(self, sides: Sequence[Side]) -> Ready:
        """Take rows in order on each side, none of them late: only null keys are left out."""
        nulls = np.zeros(2, np.int64)
        ready: list[Arrivals] = []
        for which, (ts, code, valid, *_) in enumerate(sides):
            row = np.arange(self.next[which], self.next[which] + ts.size)
            self.next[which] += ts.size
            earlier = self.reached[which]
            if ts.size:
                self.reached[which] = int(ts[-1]) if earlier is None else max(int(ts[-1]), earlier)
            if valid is None:
                ready.append(arrivals(code, ts, row))
            else:
                ready.append(arrivals(code[valid], ts[valid], row[valid]))
                nulls[which] = ts.size - ready[-1].row.size
        self.newest = self._newest()
        if self.apart:
            return Ready(NO_BATCH, NO_INTS, NO_LATE, nulls, (ready[0], ready[1]))
        return Ready(*merged(ready[0], ready[1]), NO_LATE, nulls)

    def _arrival_order(self, sides: Sequence[Side]) -> Ints | None:
        progress = [reached(rows.ts, earlier) for rows, earlier in zip(sides, self.reached, strict=True)]
        for which, newest in enumerate(progress):
            if newest.size:
                self.reached[which] = int(newest[-1])
        if sum(newest.size > 0 for newest in progress) < 2:
            return None
        return np.argsort(np.concatenate(progress), kind="stable")

    def advance(self, to: int | None) -> Ready:
        """Move time on without rows (None: to the end), releasing what waited for it."""
        if to is not None and (self.newest is None or to > self.newest):
            self.newest = to
        return self._release(self._nothing, NO_LATE, everything=to is None)

    def pass_watermark(self, to: int) -> Ready:
        """Let no row older than `to` in any more, releasing what waited for that."""
        self.watermark = max(self.watermark, to)
        return self._release(self._nothing, NO_LATE)

    def _release(self, arrived: Waiting, late: Ints, *, everything: bool = False) -> Ready:
        """Queue what arrived and hand out the ticks that are complete."""
        queue = arrived
        if self.waiting.ts.size:
            queue = Waiting(*(np.concatenate(columns) for columns in zip(self.waiting, arrived, strict=True)))
        ready = np.ones(queue.ts.size, np.bool_) if everything else queue.ts < self.bar
        rest = np.flatnonzero(~ready)
        order = taking_turns(queue.side, queue.ts, self.counted.size, NEVER if everything else self.bar)
        self.waiting = Waiting(*(column.take(rest, axis=0) if column.size else column for column in queue))
        side, ts, code, row, valid, weight, importance = (
            column.take(order, axis=0) if column.size else column for column in queue
        )
        if ts.size:
            self.released = int(ts[-1])
        clock, pos = NO_CLOCK, ts
        if self.counting:
            clock = self._counted(side, ts)
            pos = np.take_along_axis(clock, side[:, None].astype(np.int64), axis=1)[:, 0]
        nulls = np.bincount(side[~valid], minlength=self.counted.size)
        columns = [side, row, ts, pos, clock, weight, importance, code]
        if not valid.all():
            columns = [column[valid] if column.size else column for column in columns]
        side, row, ts, pos, clock, weight, importance, code = columns
        batch = Batch(side, np.empty(side.size, np.int32), row, ts, pos, clock, weight, importance)
        return Ready(batch, code, late, nulls)

    # --- state ----------------------------------------------------------------------------------------------------

    def marks(self) -> dict[str, Any]:
        """Return how far time has come, as JSON holds it."""
        return {name: getattr(self, name) for name in MARKS}

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return the numbers and the rows that wait, by name."""
        waiting = {f"waiting.{name}": column for name, column in self.waiting._asdict().items()}
        return {"next": self.next, "counted": self.counted, **waiting}

    def restore(self, marks: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Go on from what ``marks`` and ``arrays`` returned."""
        self.newest, self.released, *self.reached = (
            None if mark is None else tick_of(mark)
            for mark in (marks["newest"], marks["released"], *(marks["reached"][at] for at in range(self.next.size)))
        )
        self.watermark = tick_of(marks["watermark"])
        self.next, self.counted = arrays["next"], arrays["counted"]
        self.waiting = Waiting(*(arrays[f"waiting.{name}"] for name in Waiting._fields))

    def _counted(self, side: npt.NDArray[Any], ts: Ints) -> Ints:
        """Return how many rows of each side have left the queue at the end of the tick of each row."""
        clock = np.empty((side.size, self.counted.size), np.int64)
        for which in range(self.counted.size):
            mine = ts[side == which]
            clock[:, which] = self.counted[which] + np.searchsorted(mine, ts, side="right")
            self.counted[which] += mine.size
        return clock


def tick_of(mark: Any) -> int:
    """Return a tick as marks have it; raises TypeError or ValueError for what is none."""
    tick = index(mark)
    if not NO_WATERMARK <= tick <= NEVER:
        raise ValueError(tick)
    return tick


def reached(ts: Ints, earlier: int | None) -> Ints:
    """Return the newest timestamp seen at each row, an earlier one included."""
    if follows(ts, earlier):
        return ts
    newest = np.maximum.accumulate(ts)
    return newest if earlier is None else np.maximum(newest, earlier)


def _merged(columns: list[npt.NDArray[Any]], order: Ints | None) -> npt.NDArray[Any]:
    full = [column for column in columns if column.size]
    column = np.concatenate(full) if len(full) > 1 else (full or columns)[0]
    if order is not None:
        return column[order]
    return column if column.flags.writeable else column.copy()  # kernels are compiled for arrays of one kind
