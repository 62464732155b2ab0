"""Say how much memory a recall takes, from a miniature of the join: few keys, or few stretches of time."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.exact import ExactJoin
from penstock.core.join import WindowJoin
from penstock.core.rng import GOLDEN
from penstock.core.step import Batch
from penstock.core.windows import Floats, Ints
from penstock.engine.pump import read_times, two_tables
from penstock.errors import BudgetError, InputError, PolicyError
from penstock.operator.settings import Bound, Settings
from penstock.policies.registry import Policy, resolve
from penstock.quality.books import DEVIATIONS, Estimate
from penstock.streams.intake import Intake

SHARE = 1 / 40  # of the rows that are looked at
ENOUGH = 20_000  # so many rows are always looked at
WARM, MEASURED = 2, 1  # spans of a stretch: before anything is counted, and counted at least
STRETCHES = 4
PARTS = 4  # of a stretch, to see how much it varies
CHUNK = 1 << 13
GRID = 0.004 * (250 ** (1 / 19)) ** np.arange(20)  # of what the exact join needs: equal ratios, up to all of it
FEWEST = 2

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
    scale: float  # rows of memory in all for a row here
    units: Ints  # by the number of the left row, for samples of keys; empty: units are stretches of time


def advise(
    left: Any,
    right: Any,
    settings: Settings,
    *,
    recall: Sequence[float],
    policies: Sequence[str | Policy],
    share: float | None = None,
    known_share: float = 1.0,
) -> Advice:
    """Find the memory for each recall and policy.

    The idea: a join of a tenth of the keys with a tenth of the memory finds about the same share of its pairs
    (miniature simulation). Where a trace is many spans long, stretches of it, with all keys, are better: keys that
    carry much of the result are then not left to chance. Each budget of a grid runs over the sample; between them the
    curve is drawn straight.

    Parameters:
        left, right: Arrow tables or pandas DataFrames.
        settings: the arguments of the join; its memory and policy do not matter.
        recall: between 0 and 1.
        policies: names or objects.
        share: of the rows to look at; None: a fortieth, at least 20,000.
        known_share: which share of all rows these are, if keys were sampled before.

    Cost: the share of the rows, once for each policy and budget of the grid.
    """
    begin = time.perf_counter()
    asked = _recalls(recall)
    if not policies:
        raise PolicyError("policy", "none", 'name at least one, e.g. "prob"')
    share_of(share)
    left_table, right_table, _ = two_tables(left, right)
    schemas = left_table.schema, right_table.schema
    exact = Bound(replace(settings, memory=None, split="shared", per_key=None), *schemas)
    sample = _sampled(exact, left_table, right_table, share)
    if known_share < 1.0:
        sample = sample._replace(
            scale=sample.scale / known_share,
            share=sample.share * known_share,
            how=sample.how.replace("everything", "keys"),
        )
    total, peak = _play(exact, sample)
    sizes = np.unique(np.maximum(FEWEST, np.round(GRID * peak).astype(np.int64)))
    needs, curve = [], []
    for given in policies:
        chosen = resolve(given)
        if chosen.name == "replay":
            raise PolicyError("policy", "'replay'", "a schedule is for one budget and all rows: use pen.compare")
        found = []
        for size in sizes.tolist():
            bound = Bound(replace(settings, memory=size, policy=chosen), *schemas)
            found.append(_play(bound, sample)[0])
        points = _points(np.array(found), total, sample)
        memory = np.round(sizes * sample.scale).astype(np.int64)
        curve += [
            {"policy": str(chosen), "memory": at, "recall": mid, "low": low, "high": high}
            for at, (low, mid, high) in zip(memory.tolist(), points, strict=True)
        ]
        needs += [{"policy": str(chosen), "recall": want, **_needed(memory, points, want)} for want in asked]
    return Advice(
        pa.Table.from_pylist(needs, schema=NEEDS),
        pa.Table.from_pylist(curve, schema=CURVE),
        round(peak * sample.scale),
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


def _sampled(bound: Bound, left: pa.Table, right: pa.Table, share: float | None) -> Sample:
    """Choose what to look at: everything, stretches of time, or some of the keys."""
    read_times(bound, left, right)
    sides = bound.read(0, left), bound.read(1, right)
    plain = tuple(side._replace(weight=side.weight[:0], importance=side.importance[:0]) for side in sides)
    intake = Intake(bound.lateness, whole=bound.by_rows)
    parts = [intake.take((plain[0], plain[1])), intake.advance(None)]
    batch = Batch(*(np.concatenate(columns) for columns in zip(*(part.batch for part in parts), strict=True)))
    code = np.concatenate([part.code for part in parts])
    rows = code.size
    chosen = min(1.0, max(SHARE, ENOUGH / max(rows, 1)) if share is None else share)
    if chosen == 1.0:
        units = _units(batch, code, left.num_rows)
        return Sample([Piece(batch, code, 0)], 1.0, "everything", 1.0, units)
    span = max(bound.span)
    clock = batch.clock.sum(axis=1) if bound.by_rows else batch.tick
    length = int(clock[-1] - clock[0]) + 1
    count = min(STRETCHES, int(chosen * length / ((WARM + MEASURED) * span)))
    if count > 0:
        pieces = list(_stretches(batch, code, clock, span, count, chosen))
        seen = sum(piece.code.size for piece in pieces) / rows
        return Sample(pieces, seen, "stretches", 1.0, np.empty(0, np.int64))
    lots = (code.view(np.uint64) * GOLDEN) >> np.uint64(11)
    keep = lots * (1.0 / (1 << 53)) < chosen
    batch, code = _only(batch, keep), code[keep]
    seen = code.size / rows
    return Sample([Piece(batch, code, 0)], seen, "keys", 1 / max(seen, 1e-300), _units(batch, code, left.num_rows))


def _only(batch: Batch, keep: Any) -> Batch:
    return Batch(*(column[keep] if len(column) else column for column in batch))


def _units(batch: Batch, code: Ints, rows: int) -> Ints:
    """Return the number of the key of each left row."""
    _, number = np.unique(code, return_inverse=True)
    units = np.zeros(rows, np.int64)
    mine = batch.side == 0
    units[batch.row[mine]] = number[mine]
    return units


def _stretches(batch: Batch, code: Ints, clock: Ints, span: int, count: int, share: float) -> Iterator[Piece]:
    """Yield stretches evenly spread over the trace, each with a warm-up."""
    length = int(clock[-1] - clock[0]) + 1
    long = max((WARM + MEASURED) * span, int(share * length / count))
    for number in range(count):
        begin = int(clock[0]) + number * (length - long) // max(count - 1, 1)
        low, counted, high = np.searchsorted(clock, [begin, begin + WARM * span, begin + long])
        yield Piece(_only(batch, slice(low, high)), code[low:high], int(counted - low))


def _play(bound: Bound, sample: Sample) -> tuple[Floats, int]:
    """Return the pairs of each unit, and the most rows held at once."""
    found: list[Floats] = []
    peak = 0
    for piece in sample.pieces:
        core = bound.core(bound.plan())
        ends = np.linspace(piece.counted, piece.code.size, PARTS + 1).astype(np.int64)
        counts = np.zeros(int(sample.units.max(initial=-1)) + 1 if sample.units.size else PARTS)
        for begin, end in _chunks(piece.code.size, ends):
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


def _points(found: Floats, total: Floats, sample: Sample) -> list[Estimate]:
    """Return recall by memory, with the error of a ratio of sums over units."""
    whole = total.sum()
    if whole == 0:
        return [Estimate(0.0, 1.0, 1.0)] * len(found)
    mids = np.maximum.accumulate(found.sum(axis=1) / whole)
    units = max(int((total > 0).sum()), 2)
    unseen = 0.0 if sample.how == "everything" else 1.0 - sample.share
    spread = ((found - mids[:, None] * total) ** 2).sum(axis=1)
    reach = DEVIATIONS * np.sqrt(unseen * spread * units / (units - 1)) / whole
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
