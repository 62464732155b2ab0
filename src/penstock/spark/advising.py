"""Draw a sample of the keys of two DataFrames on Spark, to be looked at on the driver."""

from typing import Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from penstock.errors import InputError
from penstock.operator.settings import SIDES, Settings, key_columns, pair
from penstock.spark.pipeline import column

FINE = 1 << 20  # parts that hashes are divided into


def sampled(left: Any, right: Any, settings: Settings, share: float, enough: int) -> tuple[pa.Table, pa.Table, float]:
    """Return the rows of some keys, in order of time, and their share of all rows.

    The idea: the text of a key is hashed, so that both sides choose the same keys whatever their types.

    Parameters:
        left, right: DataFrames that are not streaming.
        settings: the arguments of the join.
        share: of the keys.
        enough: so many rows are brought at least.

    Cost: one pass to count the rows, one to filter and sort them.
    """
    frames = []
    *keys, _ = key_columns(settings.on)
    times = pair("time", settings.time)
    for name, frame in zip(SIDES, (left, right), strict=True):
        if not hasattr(frame, "isStreaming") or frame.isStreaming:
            got = "a stream" if hasattr(frame, "isStreaming") else type(frame).__name__
            raise InputError(name, got, "give two DataFrames of Spark that are not streaming, or none")
        frames.append(frame)
    rows = sum(frame.count() for frame in frames)
    chosen = min(1.0, max(share, enough / max(rows, 1)))
    tables = []
    for frame, names, time in zip(frames, keys, times, strict=True):
        texts = [column(name).cast("string") for name in names]
        lot = F.pmod(F.xxhash64(*texts), F.lit(FINE))
        tables.append(frame.where(lot < int(chosen * FINE)).orderBy(column(time)).toArrow())
    seen = sum(table.num_rows for table in tables)
    return tables[0], tables[1], seen / max(rows, 1)
