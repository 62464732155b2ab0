"""Say how much memory a recall takes, from a miniature of the join: few keys, or few stretches of time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.exact import ExactJoin
from penstock.core.join import WindowJoin
from penstock.core.step import Batch
from penstock.core.windows import Floats, Ints
from penstock.engine.pump import read_times, two_tables
from penstock.errors import BudgetError, InputError, PolicyError
from penstock.operator.settings import ROW_BYTES, Bound, Settings
from penstock.policies.registry import Policy, resolve
from penstock.quality import strata as choosing
from penstock.quality.books import DEVIATIONS, Estimate
from penstock.quality.strata import Strata
from penstock.streams.intake import Intake, Side

SHARE = 1 / 25  # of the rows that are looked at
ENOUGH = 20_000  # so many rows are always looked at
WARM, MEASURED = 3, 1  # spans of a stretch: before anything is counted, and counted at least
STRETCHES = 4
PARTS = 4  # of a stretch, to see how much it varies
CHUNK = 1 << 13
GRID = 0.004 * (250 ** (1 / 19)) ** np.arange(20)  # of what the exact join needs: equal ratios, up to all of it
FEWEST = 2
COARSE = 5  # budgets of the grid between two that are played first
MOMENTS = 1 << 10  # at which it is looked how many rows the exact join holds

CURVE = pa.schema(
    [
        ("policy", pa.string()),
        ("memory", pa.int64()),
        ("recall", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)
NEEDS = pa.schema(
    [
        ("policy", pa.string()),
        ("recall", pa.float64()),
        ("memory", pa.int64()),
        ("low", pa.int64()),
        ("high", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Advice:
    """How much memory a recall takes.

    `needs` has a row for each policy and recall asked for, `curve` the recall of each policy by memory; `low` and
    `high` are 95 % intervals. Memory is in rows over both sides; `exact` is what the exact join holds at its peak.
    """

    needs: pa.Table
    curve: pa.Table
    exact: int
    share: float  # of the rows that was looked at
    how: str  # "everything", "keys" or "stretches"
    seconds: float

    @property
    def memory(self) -> int:
        """The memory for the first policy and recall asked for."""
        return int(self.needs["memory"][0].as_py())

    def to_dict(self) -> dict[str, Any]:
        """Return the advice as plain JSON values."""
        tables = {"needs": self.needs.to_pylist(), "curve": self.curve.to_pylist()}
        rest = {name: getattr(self, name) for name in ("exact", "share", "how", "seconds")}
        return {**tables, **rest}

    def __str__(self) -> str:
        lines = [
            f"{row['policy']}: {row['memory']:,} rows ({row['low']:,}-{row['high']:,}) for {row['recall']:.0%} recall"
            for row in self.needs.to_pylist()
        ]
        seen = "every row" if self.how == "everything" else f"{self.share:.1%} of the rows ({self.how})"
        return "\n".join([*lines, f"exact: {self.exact:,} rows; from {seen}, in {self.seconds:.1f} s"])


class Piece(NamedTuple):
    """Rows to be joined from scratch, in order of arrival."""

    batch: Batch
    code: Ints
    counted: int  # the first row whose pairs count


class Sample(NamedTuple):
    """What is looked at in the place of a whole trace, and the units by which it varies."""

    pieces: list[Piece]
    share: float  # of the rows
    how: str
    units: Ints  # by the number of the left row, for samples of keys; empty: units are stretches of time
    stands: Floats  # unit -> pairs that one of it stands for; empty: each for itself
    unseen: Floats  # unit -> the share of it, and of those like it, that is not looked at; or one for all
    peak: int  # rows that the exact join holds at once, if rows weigh more than themselves; 0: see


class Drawn(NamedTuple):
    """A sample of the rows that was drawn before."""

    strata: Strata
    places: tuple[Ints, Ints]  # of the rows of each side
    share: float  # of all rows


def advise(
    left: Any,
    right: Any,
    settings: Settings,
    *,
    recall: Sequence[float],
    policies: Sequence[str | Policy],
    share: float | None = None,
    drawn: Drawn | None = None,
) -> Advice:
    """Find the memory for each recall and policy.

    The idea: a join of a tenth of the keys with a tenth of the memory finds about the same share of its pairs
    (miniature simulation), if keys of each kind are among them and weigh as much as all of their kind. Where a trace
    is many spans long, stretches of it, with all keys, are better. Budgets of a grid run over the sample; between
    them the curve is drawn straight. Of a sample only those near the recalls asked for are played, and some others.

    Parameters:
        left, right: Arrow tables or pandas DataFrames.
        settings: the arguments of the join; its memory and policy do not matter.
        recall: between 0 and 1.
        policies: names or objects.
        share: of the rows to look at; None: a 25th, at least 20,000.
        drawn: how these rows were drawn from more; None: they are all.

    Cost: the share of the rows, once for each policy and budget played.
    """
    begin = time.perf_counter()
    asked = _recalls(recall)
    if not policies:
        raise PolicyError("policy", "none", 'name at least one, e.g. "prob"')
    share_of(share)
    left_table, right_table, _ = two_tables(left, right)
    schemas = left_table.schema, right_table.schema
    exact = Bound(replace(settings, memory=None, split="shared", per_key=None), *schemas)
    sample = _sampled(exact, left_table, right_table, share, drawn)
    total, peak = _play(exact, sample)
    peak = sample.peak or peak
    sizes = np.unique(np.maximum(FEWEST, np.round(GRID * peak).astype(np.int64)))
    needs, curve = [], []
    for given in policies:
        chosen = resolve(given)
        if chosen.name == "replay":
            raise PolicyError("policy", "'replay'", "a schedule is for one budget and all rows: use pen.compare")
        memory, points = _curve(replace(settings, policy=chosen), exact, sample, sizes, total, asked)
        curve += [
            {"policy": str(chosen), "memory": at, "recall": mid, "low": low, "high": high}
            for at, (low, mid, high) in zip(memory.tolist(), points, strict=True)
        ]
        needs += [{"policy": str(chosen), "recall": want, **_needed(memory, points, want)} for want in asked]
    return Advice(
        pa.Table.from_pylist(needs, schema=NEEDS),
        pa.Table.from_pylist(curve, schema=CURVE),
        peak,
        sample.share,
        sample.how,
        time.perf_counter() - begin,
    )


def share_of(given: float | None) -> float:
    """Return the share of the rows to look at, if there are many."""
    if given is not None and (isinstance(given, bool) or not 0 < given <= 1):
        raise InputError("sample", repr(given), "give a share of the rows, more than 0 and at most 1")
    return SHARE if given is None else float(given)


def _recalls(recall: Sequence[float]) -> list[float]:
    wrong = [value for value in recall if isinstance(value, bool) or not 0 < value < 1]
    if wrong or not recall:
        raise BudgetError("recall", repr(wrong[0]) if wrong else "none", "give a share between 0 and 1, e.g. 0.95")
    return [float(value) for value in recall]


def _sampled(bound: Bound, left: pa.Table, right: pa.Table, share: float | None, drawn: Drawn | None) -> Sample:
    """Choose what to look at: everything, stretches of time, or some of the keys."""
    read_times(bound, left, right)
    sides = bound.read(0, left), bound.read(1, right)
    if drawn is not None:
        return _of_keys(drawn, *_merged(bound, sides), _peak(bound, sides, drawn))
    rows = left.num_rows + right.num_rows
    chosen = min(1.0, max(SHARE, ENOUGH / max(rows, 1)) if share is None else share)
    if chosen == 1.0:
        batch, code = _merged(bound, sides)
        units = _units(batch, np.unique(code, return_inverse=True)[1], left.num_rows)
        return Sample([Piece(batch, code, 0)], 1.0, "everything", units, np.empty(0), np.zeros(1), 0)
    span = max(bound.span)
    ends = [end for side in sides if side.ts.size for end in (side.ts.min(), side.ts.max())]
    length = rows if bound.by_rows else int(max(ends) - min(ends)) + 1
    count = min(STRETCHES, int(chosen * length / ((WARM + MEASURED) * span)))
    if count > 0:
        pieces = list(_stretches(bound, sides, count, chosen))
        seen = sum(piece.code.size for piece in pieces) / rows
        return Sample(pieces, seen, "stretches", np.empty(0, np.int64), np.empty(0), np.array([1.0 - seen]), 0)
    windows = [
        (side.ts.size if bound.by_rows else length) / span for side, span in zip(sides, bound.span, strict=True)
    ]
    return _drawn(bound, sides, (max(windows[0], 1.0), max(windows[1], 1.0)), chosen)


def _merged(bound: Bound, sides: tuple[Side, Side]) -> tuple[Batch, Ints]:
    """Return the rows of both sides in order of arrival, and the codes of their keys."""
    intake = Intake(bound.lateness, whole=bound.by_rows)
    parts = [intake.take(sides), intake.advance(None)]
    batch = Batch(*(np.concatenate(columns) for columns in zip(*(part.batch for part in parts), strict=True)))
    return batch, np.concatenate([part.code for part in parts])


def _drawn(bound: Bound, sides: tuple[Side, Side], windows: tuple[float, float], share: float) -> Sample:
    """Draw some rows of some keys; those that windows in rows count are counted before."""
    seed = int(bound.settings.seed)
    places = [choosing.places(side.code) for side in sides]
    came = np.stack([np.bincount(place, minlength=choosing.PLACES) for place in places])
    strata = choosing.choose(came, windows, share, seed, whole=bound.settings.per_key is not None)
    rows = [strata.draw(side, place, seed) for side, place in enumerate(places)]
    drawn = Drawn(strata, (places[0], places[1]), sum(some.size for some in rows) / came.sum())
    peak = _peak(bound, sides, None)
    if bound.by_rows:
        batch, code = _merged(bound, sides)
        taken = [np.isin(np.arange(place.size), some) for place, some in zip(places, rows, strict=True)]
        keep = np.where(batch.side == 0, _at(taken[0], batch.row), _at(taken[1], batch.row))
        return _of_keys(drawn, _only(batch, keep), code[keep], peak)
    few = [_rows_of(side, some) for side, some in zip(sides, rows, strict=True)]
    drawn = drawn._replace(places=(places[0][rows[0]], places[1][rows[1]]))
    return _of_keys(drawn, *_merged(bound, (few[0], few[1])), peak)


def _of_keys(drawn: Drawn, batch: Batch, code: Ints, peak: int) -> Sample:
    """Return a sample of rows, each with the weight of those that it stands for."""
    strata = drawn.strata
    place = np.where(batch.side == 0, _at(drawn.places[0], batch.row), _at(drawn.places[1], batch.row))
    weight = np.maximum(1, np.round(ROW_BYTES * strata.weight[batch.side, place])).astype(np.int64)
    found, number = np.unique(place, return_inverse=True)
    units = _units(batch, number, drawn.places[0].size)
    stands = strata.pairs[found]
    unseen = 1.0 - 1.0 / np.maximum(stands, 1.0)
    return Sample([Piece(batch._replace(weight=weight), code, 0)], drawn.share, "keys", units, stands, unseen, peak)


def _peak(bound: Bound, sides: tuple[Side, Side], drawn: Drawn | None) -> int:
    """Return how many rows the exact join holds at most, of all rows or by what those drawn stand for."""
    if bound.by_rows:
        return sum(min(side.ts.size, span) for side, span in zip(sides, bound.span, strict=True))
    held = np.zeros(MOMENTS)
    ends = [end for side in sides if side.ts.size for end in (side.ts.min(), side.ts.max())]
    moments = np.linspace(min(ends, default=0), max(ends, default=0), MOMENTS).astype(np.int64)
    for which, (side, span) in enumerate(zip(sides, bound.span, strict=True)):
        ts = np.maximum.accumulate(side.ts) if side.ts.size and not side.rising else side.ts
        came = np.searchsorted(ts, [moments, moments - span], side="right")
        if drawn is not None:
            weight = drawn.strata.weight[which, drawn.places[which]]
            came = np.concatenate([[0.0], np.cumsum(weight)])[came]
        held += came[0] - came[1]
    return max(FEWEST, round(float(held.max())))


def _rows_of(side: Side, rows: Ints | slice) -> Side:
    """Return some rows of a side."""
    valid = None if side.valid is None else side.valid[rows]
    importance = side.importance[rows] if side.importance.size else side.importance
    return side._replace(ts=side.ts[rows], code=side.code[rows], valid=valid, importance=importance)


def _at(column: Ints, row: Ints) -> Ints:
    """Return a column at some rows; numbers beyond it belong to the other side."""
    return column[np.minimum(row, column.size - 1)] if column.size else np.zeros_like(row)


def _only(batch: Batch, keep: Any) -> Batch:
    return Batch(*(column[keep] if len(column) else column for column in batch))


def _units(batch: Batch, number: Ints, rows: int) -> Ints:
    """Return the number of the key of each left row, given that of each row of a batch."""
    units = np.zeros(rows, np.int64)
    mine = batch.side == 0
    units[batch.row[mine]] = number[mine]
    return units


def _stretches(bound: Bound, sides: tuple[Side, Side], count: int, share: float) -> Iterator[Piece]:
    """Yield stretches evenly spread over the trace, each with a warm-up; what is in order is cut, then merged."""
    span = max(bound.span)
    if not bound.by_rows and all(side.rising and side.ts.size for side in sides):
        first, last = min(side.ts[0] for side in sides), max(side.ts[-1] for side in sides)
        for begin, counted, end in _moments(int(first), int(last), span, count, share):
            cuts = [slice(*np.searchsorted(side.ts, [begin, end])) for side in sides]
            few = [_rows_of(side, cut) for side, cut in zip(sides, cuts, strict=True)]
            batch, code = _merged(bound, (few[0], few[1]))
            yield Piece(batch, code, int(np.searchsorted(batch.tick, counted)))
        return
    batch, code = _merged(bound, sides)
    clock = batch.clock.sum(axis=1) if bound.by_rows else batch.tick
    for moments in _moments(int(clock[0]), int(clock[-1]), span, count, share):
        low, counted, high = np.searchsorted(clock, moments)
        yield Piece(_only(batch, slice(low, high)), code[low:high], int(counted - low))


def _moments(first: int, last: int, span: int, count: int, share: float) -> Iterator[tuple[int, int, int]]:
    """Yield when each stretch begins, is counted from, and ends."""
    length = last - first + 1
    long = max((WARM + MEASURED) * span, int(share * length / count))
    for number in range(count):
        begin = first + number * (length - long) // max(count - 1, 1)
        yield begin, begin + WARM * span, begin + long


def _play(bound: Bound, sample: Sample) -> tuple[Floats, int]:
    """Return the pairs of each unit, and the most rows held at once."""
    found: list[Floats] = []
    peak = 0
    for piece in sample.pieces:
        core = bound.core(bound.plan())
        ends = np.linspace(piece.counted, piece.code.size, PARTS + 1).astype(np.int64)
        counts = np.zeros(sample.stands.size or int(sample.units.max(initial=PARTS - 1)) + 1)
        for begin, end in _chunks(piece.code.size, ends[:0] if sample.units.size else ends):
            left, _ = _push(core, piece, begin, end)
            if sample.units.size:
                counts += np.bincount(sample.units[left], minlength=counts.size)
            elif begin >= piece.counted:
                counts[min(PARTS - 1, int(np.searchsorted(ends, begin, side="right")) - 1)] += left.size
            peak = max(peak, core.live(0) + core.live(1))
        found.append(counts)
    return np.concatenate(found), peak


def _chunks(rows: int, ends: Ints) -> Iterator[tuple[int, int]]:
    places = np.unique(np.concatenate([np.arange(0, rows, CHUNK), ends, [0, rows]]))
    yield from zip(places[:-1].tolist(), places[1:].tolist(), strict=True)


def _push(core: WindowJoin | ExactJoin, piece: Piece, begin: int, end: int) -> tuple[Ints, Ints]:
    batch = _only(piece.batch, slice(begin, end))
    pairs = core.push(batch._replace(key=np.empty(end - begin, np.int32)), piece.code[begin:end])
    core.take_ledger()
    return pairs


def _curve(
    settings: Settings, exact: Bound, sample: Sample, sizes: Ints, total: Floats, asked: list[float]
) -> tuple[Ints, list[Estimate]]:
    """Return budgets, and the recall of each: all if everything is looked at, else those near what was asked for.

    Of a sample every so many-th is played, from the largest down to one that is too small for all that was asked for;
    then, between two of them, the one that a straight line says.
    """
    found: dict[int, Floats] = {}

    def recall(at: int) -> float:
        if at not in found:
            size = int(sizes[at])
            memory = f"{size * ROW_BYTES}B" if sample.stands.size else size
            found[at] = _play(Bound(replace(settings, memory=memory), *exact.schemas), sample)[0]
        return float(_counted(found[at], sample).sum() / max(_counted(total, sample).sum(), 1e-300))

    whole = sample.how == "everything"
    for at in range(sizes.size - 1, -1, -1 if whole else -COARSE):
        if recall(at) < min(asked) and not whole:
            break
    for want in asked:
        low = max((at for at in found if recall(at) < want), default=-1)
        high = min((at for at in found if at > low), default=low)
        while high - low > 1:
            below = recall(low) if low >= 0 else 0.0
            part = (want - below) / max(recall(high) - below, 1e-300)
            middle = min(max(low + round(part * (high - low)), low + 1), high - 1)
            low, high = (middle, high) if recall(middle) < want else (low, middle)
    places = sorted(found)
    return sizes[places], _points(np.array([found[at] for at in places]), total, sample)


def _counted(pairs: Floats, sample: Sample) -> Floats:
    return pairs * sample.stands if sample.stands.size else pairs


def _points(found: Floats, total: Floats, sample: Sample) -> list[Estimate]:
    """Return recall by memory, with the error of a ratio of sums over units."""
    found, total = _counted(found, sample), _counted(total, sample)
    whole = total.sum()
    if whole == 0:
        return [Estimate(0.0, 1.0, 1.0)] * len(found)
    mids = np.maximum.accumulate(found.sum(axis=1) / whole)
    units = max(int((total > 0).sum()), 2)
    spread = (sample.unseen * (found - mids[:, None] * total) ** 2).sum(axis=1)
    reach = DEVIATIONS * np.sqrt(spread * units / (units - 1)) / whole
    return [
        Estimate(max(0.0, mid - off), mid, min(1.0, mid + off))
        for mid, off in zip(mids.tolist(), reach.tolist(), strict=True)
    ]


def _needed(memory: Ints, points: list[Estimate], want: float) -> dict[str, int]:
    """Return the least memory with this recall, and the same for the ends of the interval."""
    ends = {}
    for name, recall in (("memory", "mid"), ("low", "high"), ("high", "low")):
        curve = np.maximum.accumulate([getattr(point, recall) for point in points])
        at = int(np.searchsorted(curve, want))
        if at == 0 or at == len(curve):
            ends[name] = int(memory[min(at, len(curve) - 1)])
            continue
        part = (want - curve[at - 1]) / (curve[at] - curve[at - 1])
        ends[name] = int(np.ceil(memory[at - 1] + part * (memory[at] - memory[at - 1])))
    return ends
