"""Say what joins on sets and numbers must answer, by brute force that can be checked by eye.

Nothing here is shared with the product. A row is (ts, value): a value is None, a list of items, a list of
(item, weight), or a number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf, isfinite, nan
from typing import Any

Row = tuple[int, Any]
Pair = tuple[int, int]


def weights(value: Any) -> dict[Any, float]:
    """Return a set as {item: weight}: null items and weights of 0 do not count, and of equal items the first does."""
    if isinstance(value, dict):
        return value
    found: dict[Any, float] = {}
    for entry in value or []:
        item, weight = entry if isinstance(entry, tuple) else (entry, 1)
        if item is not None and weight != 0 and item not in found:
            found[item] = weight
    return found


def meet(name: str, bound: float, left: Any, right: Any) -> bool:
    """Tell whether two values meet a condition; nulls, empty sets and what is no number meet nothing."""
    if name == "band":
        numbers = [nan if value is None else float(value) for value in (left, right)]
        return all(map(isfinite, numbers)) and abs(numbers[0] - numbers[1]) <= bound
    mine, theirs = weights(left), weights(right)
    if not (mine and theirs):
        return False
    both = mine.keys() & theirs.keys()
    return {
        "overlap": lambda: len(both) >= bound,
        "set_equal": lambda: mine.keys() == theirs.keys(),
        "contains": lambda: mine.keys() >= theirs.keys(),
        "contained_in": lambda: mine.keys() <= theirs.keys(),
        "inner_product": lambda: sum(mine[item] * theirs[item] for item in both) >= bound,
    }[name]()


def pairs(
    name: str, bound: float, left: list[Row], right: list[Row], spans: tuple[float, float] = (inf, inf)
) -> list[Pair]:
    """Return the numbers of all rows that join, in order: the older is less than its side's span old."""
    value_of = (lambda value: value) if name == "band" else weights
    mine, theirs = ([value_of(value) for _, value in rows] for rows in (left, right))
    order = sorted(range(len(right)), key=lambda j: right[j][0])
    times = [right[j][0] for j in order]
    found = []
    for i, (ts, _) in enumerate(left):
        near = order[bisect_right(times, ts - spans[1]) : bisect_left(times, ts + spans[0])]
        found += [(i, j) for j in sorted(near) if meet(name, bound, mine[i], theirs[j])]
    return found
