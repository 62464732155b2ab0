"""Check what a static join is asked for, before any work starts: the key columns, and how much to keep."""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.windows import Ints
from penstock.errors import BudgetError, ColumnError, InputError
from penstock.optimum.static import Quota, approximate, pairs_of, plan
from penstock.streams.keys import common_type, plain

MOST_RESULTS = float(1 << 62)


class Truncated(NamedTuple):
    """A static join inside a budget: the retained rows of each relation, their pairs, and what no choice exceeds.

    `bound` equals `pairs` when the choice is proved to be the best. Of more than two relations, the pairs lost are
    at most as many times those of the best choice as there are relations.
    """

    relations: tuple[Any, ...]
    pairs: int
    bound: int


def key_names(on: object, relations: int) -> list[list[str]]:
    """Return the key columns of each relation."""
    names = on if isinstance(on, list) else [on]
    keys = [name if isinstance(name, tuple) else (name,) * relations for name in names]
    if not keys or not all(len(key) == relations and all(isinstance(name, str) for name in key) for key in keys):
        want = "give a column, a list of columns, a tuple with a column for each relation, or a list of such tuples"
        raise ColumnError("on", repr(on), want)
    return [list(columns) for columns in zip(*keys, strict=True)]


def key_types(schemas: Sequence[pa.Schema], keys: Sequence[Sequence[str]]) -> list[pa.DataType]:
    """Return the types in which the key columns of all relations can be compared."""
    for number, (schema, columns) in enumerate(zip(schemas, keys, strict=True), 1):
        for name in columns:
            if schema.names.count(name) != 1:
                found = "no such column" if name not in schema.names else "that column twice"
                want = f"it has {', '.join(schema.names)}"
                raise ColumnError(f"on={name!r}", f"{found} in relation {number}", want)
    types = []
    for names in zip(*keys, strict=True):
        kinds = [schema.field(name).type for schema, name in zip(schemas, names, strict=True)]
        types.append(reduce(partial(common_type, name=names[0]), kinds[1:], plain(kinds[0])))
    return types


def asked(relations: int, keep: object, drop: object) -> None:
    """Raise unless `keep` or `drop` is a budget for so many relations; before anything is counted."""
    if relations < 2:
        raise InputError(
            "relations", f"{relations} of them", "give two or more: pen.truncate(a, b, on=..., keep=...)"
        )
    if (keep is None) == (drop is None):
        got = "neither" if keep is None else f"{keep!r} and drop={drop!r}"
        raise BudgetError("keep", got, "give either keep= or drop=")
    name, given = ("keep", keep) if drop is None else ("drop", drop)
    numbers = given if isinstance(given, tuple) else (given,)
    if not all(isinstance(number, int | np.integer) and not isinstance(number, bool) for number in numbers) or (
        isinstance(given, tuple) and len(given) != relations
    ):
        raise BudgetError(name, repr(given), "give a number of rows, or a tuple with one for each relation")
    if relations > 2 and not isinstance(given, tuple):
        want = "the best choice of three relations or more is NP-hard: give a tuple with a number for each"
        raise BudgetError(name, repr(given), want)
    if min(numbers) < 0:
        raise BudgetError(name, repr(given), "it cannot be negative")


def wanted(sizes: Sequence[int], keep: Any, drop: Any) -> Any:
    """Return how many rows to keep, in all or of each relation."""
    name, given = ("keep", keep) if drop is None else ("drop", drop)
    totals = tuple(sizes) if isinstance(given, tuple) else (sum(sizes),)
    numbers = tuple(map(int, given)) if isinstance(given, tuple) else (int(given),)
    if any(number > total for number, total in zip(numbers, totals, strict=True)):
        have = " and ".join(f"{size:,}" for size in sizes)
        raise BudgetError(name, repr(given), f"the relations have {have} rows")
    if drop is not None:
        numbers = tuple(total - number for number, total in zip(numbers, totals, strict=True))
    return numbers if isinstance(given, tuple) else numbers[0]


def quotas(counts: Ints, keys: Ints, keep: Any) -> tuple[list[Quota], int, int]:
    """Return what every key keeps, by the counts (relation, class) of its tuples; the pairs kept; a bound of them."""
    if float(counts.astype(np.float64).prod(axis=0) @ keys) > MOST_RESULTS:
        raise InputError("relations", f"more than {MOST_RESULTS:,.0f} results", "join fewer rows")
    order = np.lexsort(counts[::-1])  # the same choice however the counts came
    counts, keys = counts[:, order], keys[order]
    found, bound = plan(counts[0], counts[1], keys, keep) if len(counts) == 2 else approximate(counts, keys, keep)
    return sorted(found), pairs_of(found), bound
