"""Complete the results of joins on conditions, or with a CPU budget: what was not compared, as a batch job."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.core.windows import Ints, Masks
from penstock.operator.ledger import skipped_of
from penstock.operator.results import assembled, importances, verified
from penstock.operator.settings import SIDES, Bound, Settings, repairable
from penstock.quality.skipped import Skipped, first_shared, left_out
from penstock.spark import folders
from penstock.spark.folders import Folders
from penstock.spark.partners import Table
from penstock.spark.refine import PAIRS, bound_of, named, numbered, unnamed
from penstock.spark.shards import shard_of
from penstock.spark.task import SHARDS
from penstock.spark.writing import BATCH, tick
from penstock.streams.intake import Side

PERIOD = "__penstock_period"  # the time at which a period begins
ROOM = 1 << 18  # rows of a shard in one period, if its window is shorter
MOST = [0.05, 0.95]  # the shares of rows before and up to which time is cut evenly
FAR = np.iinfo(np.int64).max
ANY = -1  # instead of the shard that a partner must be stored in


def refine(archive: Any, ledger: Any, settings: Settings, spark: Any) -> Any:
    """Return the missing rows of a whole archive; arguments as for ``penstock.refine``."""
    repairable(settings)
    rows, losses = folders.frames_of(UNCOMPARED, archive, ledger, spark)
    bound = bound_of(rows, settings)
    return _missing(rows, losses, bound)


def refine_into(archive: str, ledger: str, into: str, settings: Settings, **how: Any) -> folders.Refined:
    """Add the missing rows to a folder, part by part; arguments as for ``folders.refine_into``.

    A pair belongs to the micro-batch in which its second row came or, if that was later, to the first whose ledger
    tells that it is missing.
    """
    repairable(settings)
    return folders.refine_into(UNCOMPARED, archive, ledger, into, settings, **how)


def missing_of(there: Folders, batches: tuple[int, int], bound: Bound) -> Any:
    """Return the missing pairs that belong to these micro-batches.

    Each has a row that came in them, or was told of in them: others are read by their time, if they are near enough.
    """
    return _missing(*there.near(batches, bound), bound, batches[0])


def _missing(archive: Any, ledger: Any, bound: Bound, first: int | None = None) -> Any:
    """Return the missing pairs of an archive that belong to a micro-batch from `first` on; None: all.

    The idea: time is cut into periods at least as long as a window, and a pair is looked for in the period of its
    newer row. So a row goes to its own period, and to the next if partners may be there. In each period and shard,
    what the ledger says was left out is compared, and nothing else; periods in which nothing was, or nothing is new,
    are passed over. In turns all shards number rows alike, and one archived each: they are looked at together.

    Cost: a shuffle of the rows in these periods, at most twice each, and what ``left_out`` says.
    """
    if bound.division == "items":
        folders.columns_there(archive, (SHARDS,), "archive")
    width = _width(archive, bound)
    if width is None:
        return archive.sparkSession.createDataFrame([], from_arrow_schema(bound.schema))
    by = [PERIOD] if bound.division == "turns" else ["shard", PERIOD]
    rows, lost = (_by_period(each, bound, width) for each in (archive, ledger))
    if first is not None:
        new = (each.where(F.col(BATCH) >= first).select(*by) for each in (rows, lost))
        lost = lost.join(next(new).unionByName(next(new)).distinct(), by, "left_semi")
    rows = rows.join(lost.select(*by).distinct(), by, "left_semi")
    both = rows.groupBy(*by).cogroup(lost.drop(*SIDES).groupBy(*by))
    return named(
        both.applyInArrow(partial(_of_period, bound=bound, width=width, first=first), numbered(bound)), bound
    )


def _width(archive: Any, bound: Bound) -> int | None:
    """Return how long a period is: a window, or so long that a shard has enough rows in it; None: there are none.

    A few rows far away in time do not count.
    """
    most = F.percentile_approx(tick(F.col("ts"), bound.clock), MOST)
    ends, rows, shards = archive.agg(most, F.count(F.lit(1)), F.approx_count_distinct("shard")).first()
    if ends is None:
        return None
    periods = max(1, rows // (ROOM * shards))
    return int(max(*bound.span, (ends[1] - ends[0]) // periods + 1))


def _by_period(rows: Any, bound: Bound, width: int) -> Any:
    """Return rows of an archive or a ledger once for each period in which they may be part of a pair."""
    at = tick(F.col("ts"), bound.clock)
    ends = (at, at + F.lit(max(bound.span) - 1))
    return rows.withColumn(PERIOD, F.explode(F.array_distinct(F.array(*(t - F.pmod(t, F.lit(width)) for t in ends)))))


# --- tasks --------------------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """The rows of one side in a period, in order of arrival."""

    rows: Table
    side: Side
    arrival: Ints
    shard: Ints
    batch: Ints  # in which each came


class Told(NamedTuple):
    """What a ledger tells of one side in a period: what was left out, in places of the rows there."""

    skipped: Skipped
    batch: Ints  # that tells it
    shard: Ints  # in which the partner must be stored, or ANY


def _of_period(
    key: tuple[pa.Scalar, ...], archive: pa.Table, ledger: pa.Table, bound: Bound, width: int, first: int | None
) -> pa.Table:
    """Return the missing pairs of one period, for ``applyInArrow``."""
    stored = _stored(archive, 0, bound), _stored(archive, 1, bound)
    here = _here(key, archive, stored, bound, width)
    found = [np.empty((3, 0), np.int64)]
    for side in range(2):
        told = _told(ledger, side, stored)
        for which, left, right in _left_out(stored, side, told, bound):
            found.append(np.stack([left, right, told.batch[which]])[:, here(left, right)])
    left, right, batch = _once(np.concatenate(found, axis=1))
    if first is not None:
        new = np.maximum.reduce([batch, stored[0].batch[left], stored[1].batch[right]]) >= first
        left, right = left[new], right[new]
    return unnamed(_pairs(stored, left, right, bound))


def _stored(archive: pa.Table, side: int, bound: Bound) -> Stored:
    """Return the rows of one side."""
    mine = archive.filter(pc.equal(archive["side"], SIDES[side])).sort_by("arrival")
    rows = Table(mine, bound.schemas)
    needed = [bound.time[side], *bound.keys[side], *([bound.importance[side]] if bound.importance else [])]
    names = list(dict.fromkeys(needed))
    read = rows.read((), [(side, name) for name in names])[0].rename_columns(names)
    return Stored(rows, bound.read(side, read), mine["arrival"].to_numpy(), mine["shard"].to_numpy(), _batch(mine))


def _told(ledger: pa.Table, side: int, stored: tuple[Stored, Stored]) -> Told:
    """Return what a ledger tells of one side; not of rows that are no longer in the archive.

    A row that was given up, or came late, missed all rows of the other side from a number on; one that was not probed
    missed those in its intervals, in its own shard.
    """
    mine = ledger.filter(pc.equal(ledger["side"], SIDES[side]))
    dropped = np.flatnonzero(mine["shed_at_arrival"].is_valid().to_numpy())
    until = mine["shed_at_arrival"].drop_null().to_numpy()
    unprobed, begin, end = skipped_of(mine)
    which = np.concatenate([dropped, unprobed])
    begin, end = np.concatenate([until, begin]), np.concatenate([np.full(until.size, FAR), end])
    home = np.where(np.arange(which.size) < dropped.size, ANY, mine["shard"].to_numpy()[which])
    arrival, batch = mine["arrival"].to_numpy()[which], _batch(mine)[which]
    known, others = stored[side].arrival, stored[1 - side].arrival
    there = np.isin(arrival, known)
    row = np.searchsorted(known, arrival[there])
    begin, end = (np.searchsorted(others, numbers[there]) for numbers in (begin, end))
    return Told(Skipped(row, begin, end), batch[there], home[there])


def _left_out(
    stored: tuple[Stored, Stored], side: int, told: Told, bound: Bound
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Yield the pairs that rows of one side left out; in turns, a shard tells of the partners that it stores."""

    def stored_there(which: Ints, theirs: Ints) -> Masks:
        home = told.shard[which]
        return (home == ANY) | (home == stored[1 - side].shard[theirs])

    return left_out(
        (stored[0].side, stored[1].side),
        side,
        told.skipped,
        span=bound.span,
        by_rows=False,
        condition=bound.reader.condition if bound.reader else None,
        here=stored_there if bound.division == "turns" else None,
    )


def _here(
    key: tuple[pa.Scalar, ...], archive: pa.Table, stored: tuple[Stored, Stored], bound: Bound, width: int
) -> Callable[[Ints, Ints], Masks]:
    """Return what says of pairs whether they belong to this period and, by items, to this shard and to no other."""
    begins = key[-1].as_py()
    shards = int(archive[SHARDS][0].as_py()) if bound.division == "items" and archive.num_rows else 1
    sets = stored[0].side.sets, stored[1].side.sets

    def here(left: Ints, right: Ints) -> Masks:
        newest = np.maximum(stored[0].side.ts[left], stored[1].side.ts[right])
        found: Masks = newest - newest % width == begins
        if shards > 1 and sets[0] is not None and sets[1] is not None:
            found &= shard_of(first_shared(sets[0], sets[1], (left, right)), shards) == key[0].as_py()
        return found

    return here


def _once(found: Ints) -> Ints:
    """Return pairs (left, right, micro-batch) each once, with the first micro-batch that tells of it."""
    found = found[:, np.lexsort(found[::-1])]
    new = np.ones(found.shape[1], np.bool_)
    new[1:] = (found[:2, 1:] != found[:2, :-1]).any(axis=0)
    return found[:, new]


def _pairs(stored: tuple[Stored, Stored], left: Ints, right: Ints, bound: Bound) -> pa.Table:
    """Return pairs as rows of the result."""
    same = verified(bound, lambda side, rows: stored[side].rows.take(rows, side, bound.keys[side]), left, right)
    numbers = (left, right) if same is None else (left[same], right[same])

    def columns(side: int, names: list[str]) -> list[pa.ChunkedArray]:
        found: list[pa.ChunkedArray] = stored[side].rows.take(numbers[side], side, names).columns
        return found

    return assembled(bound, columns, importances(bound, columns) if bound.importance else None, None)


def _batch(rows: pa.Table) -> Ints:
    """Return the micro-batch of each row; one, if they do not tell."""
    if BATCH not in rows.schema.names:
        return np.zeros(rows.num_rows, np.int64)
    return np.asarray(rows[BATCH].to_numpy(), np.int64)


def _settled(ends: list[tuple[int, str, int]], bound: Bound, last: int) -> int | None:
    """Return the time of a window before the newest row: so long a CPU budget may think about a row."""
    newest = PAIRS.settled(ends, bound, last)
    return None if newest is None else newest - max(bound.span)


UNCOMPARED = PAIRS._replace(missing=missing_of, settled=_settled)
