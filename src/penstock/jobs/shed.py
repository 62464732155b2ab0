"""Name the keys of which a micro-batch has shed the most rows, from its ledger."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyarrow import dataset

from penstock.operator.ledger import UNPROBED
from penstock.operator.settings import SIDES, Settings, key_columns
from penstock.spark.writing import BATCH


def keys_shed(ledger: Path, batch: int, settings: Settings, most: int) -> list[tuple[str, int]]:
    """Return at most so many keys, in words, and how many rows of each were shed in a micro-batch, the most first.

    Only the key columns of that micro-batch's part of the ledger are read. Rows that were kept, and only not compared
    with some others, do not count.

    Parameters:
        ledger: its folder.
        batch: the number of the micro-batch.
        settings: those of the join.
        most: how many keys.
    """
    folder = ledger / f"{BATCH}={batch}"
    if not any(folder.rglob("*.parquet")):
        return []
    rows = dataset.dataset(folder, format="parquet")
    found: Counter[str] = Counter()
    for side, names in zip(SIDES, key_columns(settings.on)[:2], strict=True):
        wanted = {f"{at}": dataset.field(side, name) for at, name in enumerate(names)}
        given_up = (dataset.field("side") == side) & (dataset.field("reason") != UNPROBED)
        keys = rows.to_table(wanted, filter=given_up)
        if any(pa.types.is_nested(column.type) for column in keys.columns):  # Arrow groups by none of these
            keys = keys.append_column("rows", pa.array([1] * keys.num_rows, pa.int64()))
        else:
            keys = keys.group_by(keys.column_names).aggregate([([], "count_all")])
        for *key, count in zip(*(column.to_pylist() for column in keys.columns), strict=True):
            found[", ".join(map(str, key))] += count
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))[:most]
