"""Name the keys of which a micro-batch has shed the most rows, from its ledger."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import dataset

from penstock.operator import several
from penstock.operator.ledger import UNPROBED
from penstock.operator.settings import SIDES, Settings, key_columns
from penstock.spark.writing import BATCH, SIDE, STREAM

VALUES = "values"  # where a ledger of several streams has their columns


def keys_shed(ledger: Path, batch: int, settings: Settings | several.Settings, most: int) -> list[tuple[str, int]]:
    """Return at most so many keys, in words, and how many rows of each were shed in a micro-batch, the most first.

    Only the key columns of that micro-batch's part of the ledger are read. Rows that were kept, and only not compared
    with some others, do not count. Of streams joined along a graph each has its own keys: all of its columns in the
    graph, behind its name.

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
    if isinstance(settings, Settings):
        keys = dict(zip(SIDES, key_columns(settings.on)[:2], strict=True))
        by, inside, owned = SIDE, [], False
    else:
        keys = _keys_of(settings.on, [each.name for each in rows.schema.field(VALUES).type])
        by, inside, owned = STREAM, [VALUES], isinstance(settings.on, dict)
    for stream, names in keys.items():
        wanted = {f"{at}": dataset.field(*inside, stream, name) for at, name in enumerate(names)}
        given_up = (dataset.field(by) == stream) & (dataset.field("reason") != UNPROBED)
        for key, count in _counted(rows.to_table(wanted, filter=given_up)).items():
            found[f"{stream}: {key}" if owned else key] += count
    return sorted(found.items(), key=lambda each: (-each[1], each[0]))[:most]


def _keys_of(on: object, streams: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the key columns of each of several streams that has any, as a job file gives them."""
    if not isinstance(on, dict):
        return dict.fromkeys(streams, (on,) if isinstance(on, str) else tuple(on))  # type: ignore[arg-type]
    found: dict[str, dict[str, None]] = {name: {} for name in streams}
    for (one, other), parts in on.items():
        for mine, _, theirs in parts:
            found[one][mine] = found[other][theirs] = None
    return {name: tuple(columns) for name, columns in found.items() if columns}


def _counted(keys: pa.Table) -> Counter[str]:
    """Return how many rows have each key, in words."""
    if any(pa.types.is_nested(column.type) for column in keys.columns):  # Arrow groups by none of these
        keys = keys.append_column("rows", pa.array([1] * keys.num_rows, pa.int64()))
    else:
        keys = keys.group_by(keys.column_names).aggregate([([], "count_all")])
    found: Counter[str] = Counter()
    for *key, count in zip(*(column.to_pylist() for column in keys.columns), strict=True):
        found[", ".join(map(str, key))] += count
    return found
