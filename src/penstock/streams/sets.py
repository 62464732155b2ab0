"""Turn columns of sets, weighted sets and numbers into arrays, for joins on other conditions than equality."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.sets import (
    BAND,
    BY_IDENTIFIER,
    BY_TIME,
    CONTAINED,
    CONTAINS,
    EQUAL,
    NESTED,
    OVERLAP,
    PRODUCT,
    Rule,
    Sets,
    tidied,
)
from penstock.core.windows import Floats, Ints
from penstock.errors import ConditionError
from penstock.streams.keys import Coder, common_type

KINDS = {
    "overlap": OVERLAP,
    "set_equal": EQUAL,
    "contains": CONTAINS,
    "contained_in": CONTAINED,
    "inner_product": PRODUCT,
    "band": BAND,
}
INDEXES: dict[Any, int] = {False: NESTED, True: BY_TIME, "identifiers": BY_IDENTIFIER}
BOUNDS = {"overlap": "at_least", "inner_product": "at_least", "band": "within"}


@dataclass(frozen=True)
class Condition:
    """What two rows must have in common: what ``pen.overlap`` and its neighbours return."""

    name: str
    columns: tuple[str, str]
    bound: float = 0.0
    index: Any = True  # an inverted index; False: a nested loop; "identifiers": as if its lists were in their order

    def __str__(self) -> str:
        shown = repr(self.columns[0] if self.columns[0] == self.columns[1] else self.columns)
        bound = f", {BOUNDS[self.name]}={self.bound:g}" if self.name in BOUNDS else ""
        return f"{self.name}({shown}{bound})"

    @property
    def kind(self) -> int:
        """The condition as the core knows it."""
        return KINDS[self.name]

    @property
    def rule(self) -> Rule:
        """What the core knows of it."""
        return Rule(self.kind, float(self.bound), INDEXES[self.index])


class Reader(NamedTuple):
    """How the values of a condition are read: the type of the items, and whether they are weighted."""

    condition: Condition
    coder: Coder | None  # None: numbers

    @property
    def weighted(self) -> bool:
        """Whether the core keeps weights."""
        return self.coder is None or self.condition.kind == PRODUCT

    def read(self, column: pa.ChunkedArray, name: str, first: int) -> tuple[Sets, npt.NDArray[Any]]:
        """Return a set for each row, and which rows can meet anybody: nulls, empty sets and NaN cannot. O(values).

        Raises:
            ConditionError: if a weight is missing, negative or not finite; rows are numbered from `first`.
        """
        if self.coder is None:
            return _numbers(column, name, first)
        sizes, item, weight = _flat(column)
        burden: Floats = np.empty(0)
        if self.condition.kind != PRODUCT and not item.null_count:
            sets = tidied(sizes, np.array(self.coder.code([item])[0], np.int64), burden)
            return sets, sets.size > 0
        rows = np.repeat(np.arange(sizes.size), sizes)
        keep = item.is_valid().to_numpy(zero_copy_only=False)
        if self.condition.kind == PRODUCT:
            burden = np.ones(rows.size) if weight is None else _weights(weight, name, rows[keep], keep, first)
            keep = keep & (burden != 0)  # what weighs nothing adds nothing
        code = self.coder.code([item])[0]
        if not keep.all():
            rows, code, burden = rows[keep], code[keep], burden[keep] if burden.size else burden
        sizes = np.bincount(rows, minlength=sizes.size).astype(np.int64)
        sets = tidied(sizes, np.array(code, np.int64), np.array(burden, np.float64))
        return sets, sets.size > 0


def reader(condition: Condition, left: pa.Schema, right: pa.Schema) -> Reader:
    """Check the columns of a condition, and say how they are read.

    Raises:
        ConditionError: if they are no sets, or no numbers.
    """
    kinds = [schema.field(name).type for schema, name in zip((left, right), condition.columns, strict=True)]
    if condition.kind == BAND:
        for side, kind in zip(("left", "right"), kinds, strict=True):
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
                raise ConditionError(str(condition), f"{kind} on the {side}", "use a column of numbers")
        return Reader(condition, None)
    items = []
    for side, kind in zip(("left", "right"), kinds, strict=True):
        item, weight = _item_types(kind)
        if item is None or not (weight is None or pa.types.is_integer(weight) or pa.types.is_floating(weight)):
            want = "use lists of items, or weighted ones: a map from items to numbers, or a list of (item, weight)"
            raise ConditionError(str(condition), f"{kind} on the {side}", want)
        items.append(item)
    return Reader(condition, Coder((common_type(items[0], items[1], condition.columns[0]),)))


def prefixes(condition: Condition, side: int, sets: Sets) -> tuple[Ints, Ints]:
    """Return the items by which rows of one side must be found, as (row, item): the first items of each set.

    The idea: items have one order for all sets. Of two sets that share enough, the first item that they share is
    among the first of both: of n items, k of them shared, it has k - 1 others behind it. A set that lies inside
    another is found by its first item alone.

    Cost: O(items).
    """
    size = sets.size
    inner = {"set_equal": (0, 1), "contains": (1,), "contained_in": (0,)}.get(condition.name, ())
    if side in inner:
        count = np.minimum(size, 1)
    elif condition.kind == OVERLAP:
        count = np.where(size > 0, np.maximum(size - (int(np.ceil(condition.bound)) - 1), 1), 0)
    else:
        count = size
    rows = np.repeat(np.arange(size.size), count)
    within = np.arange(rows.size) - np.repeat(np.cumsum(count) - count, count)
    return rows, sets.item[sets.begin[rows] + within]


def doubtful(read: Reader, columns: tuple[pa.ChunkedArray, pa.ChunkedArray]) -> bool:
    """Say whether two different items among these rows have one code. O(items); only hashes can."""
    if read.coder is None or read.coder.exact:
        return False
    words = pa.concat_arrays([_flat(column)[1].cast(read.coder.types[0]) for column in columns])
    return len(words.unique()) != np.unique(read.coder.code([words])[0]).size


def meets(condition: Condition, left: Any, right: Any) -> bool:
    """Say whether two values as Python has them meet the condition: for the rare pairs whose codes are in doubt."""
    mine, theirs = (_weighed(value) for value in (left, right))
    common = mine.keys() & theirs.keys()
    if condition.kind == EQUAL:
        return mine.keys() == theirs.keys()
    if condition.kind == CONTAINS:
        return len(common) == len(theirs)
    if condition.kind == CONTAINED:
        return len(common) == len(mine)
    if condition.kind == PRODUCT:
        return sum(mine[item] * theirs[item] for item in sorted(common)) >= condition.bound
    return len(common) >= condition.bound


def _weighed(value: Any) -> dict[Any, float]:
    """Return a set as {item: weight}, the first weight of each; weight 1 where there is none."""
    weights: dict[Any, float] = {}
    for entry in value:
        item, weight = (
            entry if isinstance(entry, tuple) else entry.values() if isinstance(entry, dict) else (entry, 1)
        )
        if item is not None:
            weights.setdefault(item, weight)
    return weights


def _item_types(kind: pa.DataType) -> tuple[pa.DataType | None, pa.DataType | None]:
    """Return the type of the items of a column of sets and that of their weights (None: none)."""
    if pa.types.is_map(kind):
        return kind.key_type, kind.item_type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return None, None
    inner = kind.value_type
    if pa.types.is_struct(inner):
        return (inner.field(0).type, inner.field(1).type) if inner.num_fields == 2 else (None, None)
    return inner, None


def _flat(column: pa.ChunkedArray) -> tuple[Ints, pa.Array, pa.Array | None]:
    """Return how many items each row has (nulls have none), all items, and their weights if they have some."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    offsets = array.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(offsets)
    if pa.types.is_map(array.type):
        children = [array.keys, array.items]
    elif pa.types.is_struct(array.type.value_type):
        children = [array.values.field(at) for at in range(2)]
        gone = array.values.is_null()
        children = [pc.if_else(gone, pa.scalar(None, child.type), child) for child in children]
    else:
        children = [array.values]
    if array.null_count:  # what is behind a null does not count
        sizes = np.where(array.is_valid().to_numpy(zero_copy_only=False), sizes, 0)
        ends = np.cumsum(sizes)
        where = np.repeat(offsets[:-1] - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
        got = [child.take(pa.array(where)) for child in children]
    else:
        got = [child.slice(offsets[0], offsets[-1] - offsets[0]) for child in children]
    return sizes, got[0], got[1] if len(got) == 2 else None


def _weights(column: pa.Array, name: str, rows: Ints, keep: npt.NDArray[Any], first: int) -> Floats:
    values = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~((values[keep] >= 0) & np.isfinite(values[keep])))
    if bad.size:
        got = f"a weight of {values[keep][bad[0]]:g} in row {first + rows[bad[0]]}"
        raise ConditionError(f"on={name!r}", got, "weights are finite numbers, at least 0")
    return np.where(keep, values, 0.0)


def _numbers(column: pa.ChunkedArray, name: str, first: int) -> tuple[Sets, npt.NDArray[Any]]:
    try:
        values = pc.cast(column, pa.float64()).to_numpy()
    except pa.ArrowInvalid as error:
        got = f"a number in the rows from {first} on that has no exact float64"
        raise ConditionError(f"on={name!r}", got, f"cast the column first ({error})") from error
    values = np.where(np.isfinite(values), values, np.nan)
    rows = np.arange(values.size)
    return Sets(rows, np.ones(values.size, np.int64), np.zeros(values.size, np.int64), values), ~np.isnan(values)
