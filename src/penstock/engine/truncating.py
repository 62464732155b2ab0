"""Truncate tables in memory: keep the rows whose join is largest."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.windows import Ints
from penstock.errors import InputError
from penstock.operator.join import as_table
from penstock.operator.relations import Truncated, asked, key_names, key_types, quotas, wanted
from penstock.streams.keys import numbered


def truncate(relations: tuple[Any, ...], *, on: object, keep: object, drop: object) -> Truncated:
    """Return the rows of each relation that are retained: of each key the first ones."""
    asked(len(relations), keep, drop)
    names = key_names(on, len(relations))
    tables = [_table(rows, number) for number, rows in enumerate(relations, 1)]
    types = key_types([table.schema for table in tables], names)
    keep = wanted([table.num_rows for table in tables], keep, drop)
    columns = [[table[name] for name in mine] for table, mine in zip(tables, names, strict=True)]
    kept, pairs, bound = _kept(numbered(columns, types), keep)
    given = [table if isinstance(rows, pa.Table) else rows for table, rows in zip(tables, relations, strict=True)]
    return Truncated(tuple(_chosen(rows, mask) for rows, mask in zip(given, kept, strict=True)), pairs, bound)


def _table(rows: Any, number: int) -> pa.Table:
    table = as_table(rows, f"relation {number}")
    if table is None:
        raise InputError(f"relation {number}", "None", "give an Arrow table or a pandas DataFrame")
    return table


def _kept(keys: list[Ints], keep: Any) -> tuple[list[npt.NDArray[np.bool_]], int, int]:
    """Return which rows of each relation are kept, how many pairs they have, and a bound of the pairs."""
    size = 1 + max(int(of_row.max(initial=-1)) for of_row in keys)
    lonely = [np.where(of_row < 0, size + at, of_row) for at, of_row in enumerate(keys)]  # null keys meet nothing
    counts = np.stack([np.bincount(of_row, minlength=size + len(keys)) for of_row in lonely])
    classes, of_key, number = np.unique(counts, axis=1, return_inverse=True, return_counts=True)
    chosen, pairs, bound = quotas(classes, number, keep)
    kept = np.empty_like(counts)
    kept[:, np.argsort(of_key, kind="stable")] = np.repeat(  # quotas come in the order of the classes
        np.array([quota.kept for quota in chosen]).T, [quota.keys for quota in chosen], axis=1
    )
    return [_rank(of_row, counts[at]) < kept[at][of_row] for at, of_row in enumerate(lonely)], pairs, bound


def _rank(of_row: Ints, count: Ints) -> Ints:
    """Return the number of each row among those of its key."""
    order = np.argsort(of_row, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size) - (np.cumsum(count) - count)[of_row[order]]
    return rank


def _chosen(rows: Any, mask: npt.NDArray[np.bool_]) -> Any:
    return rows.filter(pa.array(mask)) if isinstance(rows, pa.Table | pa.RecordBatch) else rows[mask]
