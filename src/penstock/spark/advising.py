"""Draw a sample of the rows of two DataFrames on Spark, to be looked at on the driver."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from penstock.core.windows import Ints
from penstock.errors import InputError, WindowError
from penstock.operator.settings import SIDES, Bound, Settings
from penstock.quality import strata as choosing
from penstock.quality.strata import Strata
from penstock.spark.pipeline import arrow_schema, column

PLACE, TAKEN = "penstock_place", "penstock_taken"
OFFSET = 0.5  # of the first row of a key that is taken, among so many


class Rows(NamedTuple):
    """Rows brought to the driver, in order of time."""

    left: pa.Table
    right: pa.Table
    strata: Strata | None  # how they were drawn; None: they are all
    places: tuple[Ints, Ints]  # of the rows of each side
    share: float  # of all rows


def sampled(left: Any, right: Any, settings: Settings, share: float, enough: int) -> Rows:
    """Bring some of the rows of some of the keys.

    The idea: Spark counts rows by the hash of the text of their key, so that both sides choose the same keys whatever
    their types; what to take is chosen on the driver from these counts.

    Parameters:
        left, right: DataFrames that are not streaming.
        settings: the arguments of the join.
        share: of the rows.
        enough: so many rows are brought at least.

    Cost: one pass to count the rows, one to filter and sort them.
    """
    frames = []
    for name, frame in zip(SIDES, (left, right), strict=True):
        if not hasattr(frame, "isStreaming") or frame.isStreaming:
            got = "a stream" if hasattr(frame, "isStreaming") else type(frame).__name__
            raise InputError(name, got, "give two DataFrames of Spark that are not streaming, or none")
        frames.append(frame)
    schemas = [arrow_schema(frame, name) for frame, name in zip(frames, SIDES, strict=True)]
    bound = Bound(settings, schemas[0], schemas[1])
    placed = [_placed(bound, side, frame) for side, frame in enumerate(frames)]
    came, length = _counted(bound, placed)
    rows = int(came.sum())
    chosen = min(1.0, max(share, enough / max(rows, 1)))
    strata = None
    if chosen < 1.0:
        if bound.by_rows:
            want = "rows left out are not counted: give a window in time, or Arrow tables"
            raise WindowError("window", repr(settings.window), want)
        windows = tuple(max(length / span, 1.0) for span in bound.span)
        whole = settings.per_key is not None
        strata = choosing.choose(came, (windows[0], windows[1]), chosen, int(settings.seed), whole=whole)
    tables, places = [], []
    for side, frame in enumerate(placed):
        time = bound.time[side]
        table = _taken(frame, time, strata, side).orderBy(column(time)).toArrow()
        places.append(table[PLACE].combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64))
        tables.append(table.drop_columns([PLACE]))
    seen = sum(table.num_rows for table in tables) / max(rows, 1)
    return Rows(tables[0], tables[1], strata, (places[0], places[1]), seen)


def _placed(bound: Bound, side: int, frame: Any) -> Any:
    """Return the rows that have a key, with its place."""
    keys = [column(name) for name in bound.keys[side]]
    place = F.pmod(F.xxhash64(*(key.cast("string") for key in keys)), F.lit(choosing.PLACES))
    for key in keys:
        frame = frame.where(key.isNotNull())
    return frame.withColumn(PLACE, place)


def _counted(bound: Bound, placed: list[Any]) -> tuple[Ints, int]:
    """Return the rows by (side, place), and how long the streams are in ticks."""
    came = np.zeros((2, choosing.PLACES), np.int64)
    ends: list[int] = []
    for side, frame in enumerate(placed):
        time = column(bound.time[side])
        counts = frame.groupBy(PLACE).agg(F.count("*").alias("rows"), F.min(time).alias("0"), F.max(time).alias("1"))
        table = counts.toArrow()
        if table.num_rows:
            came[side, table[PLACE].to_numpy()] = table["rows"].to_numpy()
            for name in ("0", "1"):
                ticks = bound.clock.values(table[name], f"time={bound.time[side]!r}")
                ends += [int(ticks.min()), int(ticks.max())]
    return came, max(ends, default=0) - min(ends, default=0) + 1


def _taken(frame: Any, time: str, strata: Strata | None, side: int) -> Any:
    """Return the rows that are taken: of a key, every so many-th."""
    if strata is None:
        return frame
    place = np.flatnonzero(strata.chance[side])
    chances = pd.DataFrame({PLACE: place, TAKEN: strata.chance[side, place]})
    some = frame.join(F.broadcast(frame.sparkSession.createDataFrame(chances)), PLACE)
    rank = F.row_number().over(Window.partitionBy(PLACE).orderBy(column(time)))
    passed = rank * F.col(TAKEN) + OFFSET
    return some.withColumn(TAKEN, F.floor(passed) > F.floor(passed - F.col(TAKEN))).where(TAKEN).drop(TAKEN)
