"""Say what joins on sets and numbers must answer, by brute force that can be checked by eye.

Nothing here is shared with the product. A row is (ts, value): a value is None, a list of items, a list of
(item, weight), or a number.
"""

from __future__ import annotations

from math import inf, isfinite, nan
from typing import Any

Row = tuple[int, Any]
Pair = tuple[int, int]


def weights(value: Any) -> dict[Any, float]:
    """Return a set as {item: weight}: null items and weights of 0 do not count, and of equal items the first does."""
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
    both = set(mine) & set(theirs)
    return {
        "overlap": len(both) >= bound,
        "set_equal": set(mine) == set(theirs),
        "contains": set(mine) >= set(theirs),
        "contained_in": set(mine) <= set(theirs),
        "inner_product": sum(mine[item] * theirs[item] for item in both) >= bound,
    }[name]


def alive(left: int, right: int, spans: tuple[float, float]) -> bool:
    """Tell whether the older of two rows is less than its side's span old when the newer one comes."""
    return right - left < spans[0] if left <= right else left - right < spans[1]


def pairs(
    name: str, bound: float, left: list[Row], right: list[Row], spans: tuple[float, float] = (inf, inf)
) -> list[Pair]:
    """Return the numbers of all rows that join, in order."""
    return [
        (i, j)
        for i, (ts, value) in enumerate(left)
        for j, (other, partner) in enumerate(right)
        if alive(ts, other, spans) and meet(name, bound, value, partner)
    ]
