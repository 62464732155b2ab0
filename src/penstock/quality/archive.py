"""Complete an answer from archived streams: the pairs that a run missed, and the archive metric."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.core.windows import Ints
from penstock.streams.intake import Side

NEVER = int(np.iinfo(np.int64).max)


def missed(left: Ints, right: Ints, ledger: pa.Table) -> npt.NDArray[Any]:
    """Say of every exact pair whether the run that wrote this ledger missed it.

    Parameters:
        left, right: row numbers of the exact pairs.
        ledger: what the run shed, as ``Result.ledger``.

    Cost: O(pairs + ledger).
    """
    gone = [np.full(int(rows.max(initial=-1)) + 1, NEVER) for rows in (left, right)]
    sides = np.array(ledger["side"].to_pylist(), dtype=object)
    arrival, until = ledger["arrival"].to_numpy(), ledger["shed_at_arrival"].to_numpy()
    for which, name in enumerate(("left", "right")):
        mine = (sides == name) & (arrival < gone[which].size)
        gone[which][arrival[mine]] = until[mine]
    return (right >= gone[0][left]) | (left >= gone[1][right])


def archive_metric(left: Ints, right: Ints, ledger: pa.Table) -> int:
    """Return ArM: how many tuples of both sides take part in at least one missed pair.

    Those are the tuples that must be read back from the archive. A tuple without partners is complete.

    Parameters:
        left, right: row numbers of the exact pairs (``exact_pairs``).
        ledger: what the run shed, as ``Result.ledger``.

    Cost: O(pairs + ledger).

    Departures: the printed sum counts complete tuples and has index errors; this is what the text defines.

    References: das2003 §2.2.
    """
    lost = missed(left, right, ledger)
    return int(np.unique(left[lost]).size + np.unique(right[lost]).size)


class Shed(NamedTuple):
    """The rows of one side that a ledger has."""

    row: Ints
    until: Ints  # the first row of the other side that each could no longer meet


def missing_pairs(
    sides: tuple[Side, Side], shed: tuple[Shed, Shed], *, span: tuple[int, int], by_rows: bool
) -> tuple[Ints, Ints]:
    """Return the row numbers of the pairs that a run missed, left and right, each once.

    The idea: a pair is missing if and only if one of its rows was gone when the other came. So only rows of the
    ledger look for partners, and only among those that came later, in a range of time that the window says.

    Parameters:
        sides: every row of each side, in order of arrival.
        shed: what the run gave up on each side.
        span: the window of each side, in ticks or rows.
        by_rows: whether windows are in rows; rows are then in order of time.

    Cost: O(rows) to find those with keys that were shed, O(log) for each of these, and O(1) for each pair; for rows
        out of order also O(1) for each pair of a shed row that was found.
    """
    gone = np.full(sides[0].ts.size, NEVER)
    gone[shed[0].row] = shed[0].until
    mine, theirs = _partners(sides, shed[0], 0, span, by_rows=by_rows)
    right, left = _partners(sides, shed[1], 1, span, by_rows=by_rows)
    once = gone[left] > right  # the others are there by their left row
    return np.concatenate([mine, left[once]]), np.concatenate([theirs, right[once]])


def _partners(
    sides: tuple[Side, Side], shed: Shed, side: int, span: tuple[int, int], *, by_rows: bool
) -> tuple[Ints, Ints]:
    """Return the rows of one side that were shed, with the rows of the other that they missed."""
    mine, other = sides[side], sides[1 - side]
    row, until = shed if mine.valid is None else Shed(*(column[mine.valid[shed.row]] for column in shed))
    codes, key = np.unique(mine.code[row], return_inverse=True)
    place = np.searchsorted(codes, other.code)
    fits = codes[np.minimum(place, codes.size - 1)] == other.code if codes.size else np.zeros(place.size, np.bool_)
    found = np.flatnonzero(fits if other.valid is None else fits & other.valid)
    if found.size == 0:
        return found, found
    low, high = _reach(mine.ts[row], (mine.ts, other.ts), (span[side], span[1 - side]), by_rows=by_rows)
    after = np.append(np.minimum.accumulate(other.ts[::-1])[::-1], NEVER)  # the oldest row from each one on
    low = np.maximum(low, after[until])
    times = np.unique(other.ts[found])
    order = place[found] * times.size + np.searchsorted(times, other.ts[found])
    sort = np.argsort(order, kind="stable")
    found, order = found[sort], order[sort]
    begin = np.searchsorted(order, key * times.size + np.searchsorted(times, low))
    end = np.searchsorted(order, key * times.size + np.searchsorted(times, high, side="right"))
    count = np.maximum(end - begin, 0)
    which = np.repeat(np.arange(row.size), count)
    at = np.arange(which.size) - np.repeat(np.cumsum(count) - count, count) + begin[which]
    missed_it = found[at] >= until[which]
    return row[which[missed_it]], found[at[missed_it]]


def _reach(ts: Ints, sides: tuple[Ints, Ints], span: tuple[int, int], *, by_rows: bool) -> tuple[Ints, Ints]:
    """Return the first and the last time at which a partner of rows of these times can be; own side first."""
    if not by_rows:
        return ts - span[1] + 1, ts + span[0] - 1
    own, other = sides
    begins = np.searchsorted(other, ts, side="right") - span[1]  # partners: no more than so many rows before it
    ends = np.searchsorted(own, ts, side="right") + span[0] - 1  # it lives until so many of its own side came
    low = np.where(begins >= 0, other[np.maximum(begins, 0)], -NEVER)
    high = np.where(ends < own.size, own[np.minimum(ends, own.size - 1)] - 1, NEVER)
    return low, high
