"""Make the papers' synthetic streams: Zipf keys, how the two sides relate, arrival rates, importance."""

import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import InputError

Relation = Literal["uncorrelated", "correlated", "anticorrelated"]
Importance = Literal["none", "rare", "special_keys"]

COMMON, RARE = 1.0, 20.0  # the two importances of importance2006
RARE_SHARE = 0.05  # of the rows ("rare") or of the keys ("special_keys")

_T = TypeVar("_T")
_Int64s = npt.NDArray[Any]
_Float64s = npt.NDArray[Any]


class Workload(NamedTuple):
    """Two streams, and how likely each key was to arrive on each.

    The tables have the columns ``ts`` and ``key`` (int64), ``payload`` (binary) if one was asked for, and
    ``importance`` (float64) if one was asked for; rows are in time order. The chances are the generating
    distribution, by key: what das2003's figures give PROB and LIFE to know.
    """

    left: pa.Table
    right: pa.Table
    left_chances: dict[int, float]
    right_chances: dict[int, float]


def zipf(
    rows: int | tuple[int, int],
    *,
    keys: int = 50,
    skew: float | tuple[float, float] = 1.0,
    relation: Relation = "uncorrelated",
    rate: float | tuple[float, float] = 1,
    payload: int = 0,
    importance: Importance = "none",
    seed: int = 0,
) -> Workload:
    """Draw both streams independently from Zipf distributions over the same keys.

    The key of rank r arrives with a probability proportional to ``1 / r**skew``. On the left, key k has rank
    k + 1; the relation says which ranks the keys have on the right. Every column has a random stream of its
    own, so adding a payload or an importance leaves times and keys as they are.

    Parameters:
        rows: rows on each side, or a pair (left, right).
        keys: number of distinct keys, ``0 .. keys - 1``.
        skew: the Zipf parameter, or a pair; 0 is uniform.
        relation: "correlated" gives a key the same rank on both sides, "anticorrelated" the reversed rank,
            "uncorrelated" a random one.
        rate: rows per tick, or a pair: row i arrives at tick ``floor(i / rate)``, so 2 is two rows with the
            same time in every tick and 0.5 a row every second tick. A fraction is taken as the nearest one
            with a denominator up to a million, so 0.1 is exactly a tenth.
        payload: bytes of ballast per row; 0 for no such column.
        importance: "rare" makes 5 % of the rows important (20 instead of 1) whatever their key,
            "special_keys" all rows of 5 % of the keys, the same keys on both sides.
        seed: the same arguments and seed give the same streams on every machine.

    Returns:
        A ``Workload``: both tables and both distributions.

    Cost:
        O(keys + rows log keys) time, O(keys + rows) memory.

    Examples:
        >>> streams = zipf(1000, keys=10, relation="correlated", seed=7)
        >>> streams.left.column_names
        ['ts', 'key']
        >>> round(streams.left_chances[0] / streams.left_chances[4], 6)
        5.0
        >>> zipf(4, rate=(2, 0.5)).left["ts"].to_pylist()
        [0, 0, 1, 1]
        >>> zipf(4, rate=(2, 0.5)).right["ts"].to_pylist()
        [0, 2, 4, 6]

    References:
        das2003, section 4 (streams, skew, correlation); importance2006, section 5 (importance).
    """
    counts = [_whole("rows", count, least=0) for count in _pair("rows", rows)]
    keys = _whole("keys", keys, least=1)
    payload = _whole("payload", payload, least=0)
    seed = _whole("seed", seed, least=0)
    _one_of("relation", relation, get_args(Relation))
    _one_of("importance", importance, get_args(Importance))
    skews = _pair("skew", skew)
    rates = _pair("rate", rate)

    tables: list[pa.Table] = []
    chances: list[dict[int, float]] = []
    for side in (0, 1):
        weights = _weights(keys, skew=skews[side])
        cumulated = np.cumsum(weights)
        by_rank = _keys_by_rank(keys, relation=relation if side else "correlated", seed=seed)
        drawn = np.random.default_rng((seed, side, 1)).random(counts[side]) * cumulated[-1]
        key = by_rank[np.searchsorted(cumulated, drawn, side="right")]
        columns = {"ts": pa.array(_ticks(counts[side], rate=rates[side])), "key": pa.array(key)}
        if payload:
            columns["payload"] = _payload(counts[side], width=payload, seed=seed, side=side)
        if importance != "none":
            rare = _rare(key, keys=keys, importance=importance, seed=seed, side=side)
            columns["importance"] = pa.array(np.where(rare, RARE, COMMON))
        tables.append(pa.table(columns))
        by_key = np.empty(keys)
        by_key[by_rank] = weights / cumulated[-1]
        chances.append(dict(enumerate(by_key.tolist())))
    return Workload(tables[0], tables[1], chances[0], chances[1])


def uniform(
    rows: int | tuple[int, int],
    *,
    keys: int = 50,
    rate: float | tuple[float, float] = 1,
    payload: int = 0,
    importance: Importance = "none",
    seed: int = 0,
) -> Workload:
    """Draw both streams with every key equally likely.

    This is ``zipf`` with skew 0, the case in which das2003's policies have nothing to go by.

    Parameters:
        rows, keys, rate, payload, importance, seed: as in ``zipf``.

    Returns:
        A ``Workload``: both tables and both distributions.

    Cost:
        As ``zipf``.

    Examples:
        >>> streams = uniform(100, keys=4)
        >>> streams.left_chances
        {0: 0.25, 1: 0.25, 2: 0.25, 3: 0.25}

    References:
        das2003, section 4.2 (figure 5).
    """
    return zipf(
        rows,
        keys=keys,
        skew=0.0,
        relation="correlated",
        rate=rate,
        payload=payload,
        importance=importance,
        seed=seed,
    )


def surge(
    rows: int,
    *,
    keys: int = 50,
    skew: float | tuple[float, float] = 1.0,
    factor: int = 10,
    at: tuple[float, float] = (0.4, 0.6),
    seed: int = 0,
) -> Workload:
    """Draw two uncorrelated Zipf streams that become much faster for a while.

    One row a tick on each side, except for a stretch in the middle where ``factor`` rows share every tick:
    the flood that a join with a fixed budget must live through.

    Parameters:
        rows: rows on each side.
        keys, skew, seed: as in ``zipf``.
        factor: rows per tick and side during the surge.
        at: the surge starts and ends at these shares of the rows.

    Returns:
        A ``Workload``: both tables and both distributions.

    Cost:
        As ``zipf``.

    Examples:
        >>> surge(8, factor=2, at=(0.25, 0.75)).left["ts"].to_pylist()
        [0, 1, 2, 2, 3, 3, 4, 5]
    """
    rows = _whole("rows", rows, least=0)
    factor = _whole("factor", factor, least=1)
    start, end = at
    if not 0 <= start <= end <= 1:
        raise InputError("at", at, "two shares of the rows are needed, 0 <= start <= end <= 1")
    calm = zipf(rows, keys=keys, skew=skew, seed=seed)

    row = np.arange(rows, dtype=np.int64)
    first, last = round(start * rows), round(end * rows)
    opens_a_tick = (row < first) | (row >= last) | ((row - first) % factor == 0)
    ts = pa.array(np.cumsum(opens_a_tick, dtype=np.int64) - 1)
    return calm._replace(
        left=calm.left.set_column(0, "ts", ts),
        right=calm.right.set_column(0, "ts", ts),
    )


class Sets(NamedTuple):
    """Two streams of sets, with the columns ``ts`` (timestamps in milliseconds) and ``items`` (lists of int64)."""

    left: pa.Table
    right: pa.Table


def drifting(
    seconds: float,
    *,
    rate: float = 100,
    items: int = 100,
    skew: float = 0.8,
    shift: float = 0.0,
    cycle: float = 40.0,
    seed: int = 0,
) -> Sets:
    """Draw two streams of sets whose popular items move on with time, on the left later than on the right.

    A set has about 5 items (normal, deviation 1, at least 1), which may be equal. Their ranks are Zipf; the most
    popular item moves once through all items in a cycle.

    Parameters:
        seconds: the length of the streams.
        rate: rows per second on each side, at random times.
        items: number of distinct items.
        skew: the Zipf parameter κ; 0 is uniform.
        shift: τ, by how many seconds the left is behind.
        cycle: ς, in seconds.
        seed: the same arguments and seed give the same streams.

    Cost: O(rows log items).

    Examples:
        >>> drifting(2, rate=50).left.num_rows
        100

    References: gedik2007, section 6.1; the left is shifted, which gives the picture that the paper describes.
    """
    items, seed = _whole("items", items, least=1), _whole("seed", seed, least=0)
    for name, value in (("seconds", seconds), ("rate", rate), ("cycle", cycle)):
        if not value > 0:
            raise InputError(name, repr(value), "give a number above 0")
    cumulated = np.cumsum(_weights(items, skew=skew))
    tables = []
    for side, behind in enumerate((shift, 0.0)):
        rng = np.random.default_rng((seed, side))
        ts = np.sort(rng.uniform(0, seconds, round(seconds * rate)))
        sizes = np.maximum(1, np.rint(rng.normal(5, 1, ts.size))).astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        rank = np.searchsorted(cumulated, rng.random(offsets[-1]) * cumulated[-1], side="right")
        first = np.floor(items * np.mod(ts - behind, cycle) / cycle).astype(np.int64)
        drawn = (rank + np.repeat(first, sizes)) % items
        times = pa.array((ts * 1000).astype(np.int64)).view(pa.timestamp("ms"))
        tables.append(pa.table({"ts": times, "items": pa.ListArray.from_arrays(pa.array(offsets), pa.array(drawn))}))
    return Sets(tables[0], tables[1])


def _weights(keys: int, *, skew: float) -> _Float64s:
    """Return how often each rank comes, relative to the first."""
    if not 0 <= skew < math.inf:
        raise InputError("skew", skew, "a finite number is needed, at least 0 (0 is uniform)")
    return np.arange(1, keys + 1, dtype=np.float64) ** -float(skew)


def _keys_by_rank(keys: int, *, relation: Relation, seed: int) -> _Int64s:
    """Return the key of every rank, the most frequent first."""
    if relation == "uncorrelated":
        return np.random.default_rng((seed, 2)).permutation(np.arange(keys, dtype=np.int64))
    ordered = np.arange(keys, dtype=np.int64)
    return ordered[::-1] if relation == "anticorrelated" else ordered


def _ticks(rows: int, *, rate: float) -> _Int64s:
    """Return ``floor(row / rate)`` for every row, in integers."""
    if not 0 < rate < math.inf or not (exact := Fraction(rate).limit_denominator(10**6)):
        raise InputError("rate", rate, "rows per tick are needed, from 0.000001 upwards")
    return np.arange(rows, dtype=np.int64) * exact.denominator // exact.numerator


def _payload(rows: int, *, width: int, seed: int, side: int) -> pa.Array:
    """Return ``rows`` binary values of ``width`` random bytes each."""
    size = rows * width
    if size >= 2**31:
        raise InputError("payload", f"{rows:,} rows of {width:,} bytes", "one side holds at most 2 GiB of it")
    offsets = np.arange(0, size + 1, width, dtype=np.int32)
    data = np.random.default_rng((seed, side, 2)).bytes(size)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _rare(key: _Int64s, *, keys: int, importance: Importance, seed: int, side: int) -> npt.NDArray[Any]:
    """Say for every row whether it is an important one."""
    if importance == "rare":
        return np.random.default_rng((seed, side, 3)).random(len(key)) < RARE_SHARE
    special = np.zeros(keys, dtype=np.bool_)
    count = max(1, round(RARE_SHARE * keys))
    special[np.random.default_rng((seed, 3)).permutation(keys)[:count]] = True
    return special[key]


def _pair(argument: str, value: _T | tuple[_T, _T]) -> tuple[_T, _T]:
    """Return the values of the left and the right side."""
    if not isinstance(value, tuple):
        return value, value
    if len(value) != 2:
        raise InputError(argument, value, "one value for both sides, or a pair (left, right), is needed")
    return value


def _whole(argument: str, value: int, *, least: int) -> int:
    """Return a whole number that is large enough."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(argument, repr(value), f"a whole number is needed, at least {least}")
    return number


def _one_of(argument: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a word that is not among the choices."""
    if value not in choices:
        raise InputError(argument, repr(value), f"one of {', '.join(map(repr, choices))} is needed")
