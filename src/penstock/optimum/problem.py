"""State the offline problem: which tuples to keep, and until when, so that they meet the most.

A tuple that stays until tick u takes a place in its pool after every tick from its arrival to the one before u, and
meets the partners that come after it, up to u; none of them later than its window allows. After no tick may a pool
hold more tuples than its limit. Wanted are the departures with the largest number of pairs, or the largest sum of
their importances, counted from a given tick on. Tuples of one tick meet each other whatever is kept.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.jit import kernel, part
from penstock.core.windows import Floats, Ints
from penstock.streams.intake import Side

COMBINE = ("min", "max", "sum", "product", "mean")  # their places are their numbers in kernels


class Tuples(NamedTuple):
    """The tuples of one side that have a key, in order of arrival."""

    row: Ints  # number within the side
    tick: Ints  # of arrival
    last: Ints  # the last tick at which it is alive
    key: Ints  # 0, 1, ...
    worth: Floats  # importance; one each, if pairs are counted


class Problem(NamedTuple):
    """Two streams, their windows, and which of their pairs count, on ticks numbered 0, 1, ..."""

    ticks: Ints  # the times at which tuples arrive
    sides: tuple[Tuples, Tuples]
    keys: int
    start: int  # the first tick that counts
    combine: int  # which of COMBINE


class Pool(NamedTuple):
    """Tuples that share places."""

    sides: tuple[int, ...]
    limit: int


class Chains(NamedTuple):
    """The tuples of a pool in classes: those of a class have side, key and worth in common, and so their partners.

    Tuples that can meet nobody are left out.
    """

    member_start: Ints  # class -> its first member
    side: Ints  # member -> side
    row: Ints  # member -> row
    arrival: Ints  # member -> tick
    last: Ints  # member -> last tick alive; ascends within a class, as arrivals do
    partner_start: Ints  # class -> its first partner
    meeting: Ints  # partner -> tick, each once in a class
    gain: Floats  # partner -> what each member gets from the partners of that tick
    ticks: int

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return int(self.member_start.size) - 1


def problem(
    sides: tuple[Side, Side],
    *,
    span: tuple[int, int],
    by_rows: bool,
    combine: str | None = None,
    count_from: int | None = None,
) -> Problem:
    """State the problem for two sides, each in order of time.

    Parameters:
        sides: times, key codes (equal if and only if the keys are) and importances.
        span: the window of each side, in ticks or rows.
        by_rows: whether windows are in rows.
        combine: how the importances of a pair become one; None: pairs are counted.
        count_from: the first time whose pairs count; None: all count.

    Cost: O(rows log rows).
    """
    ticks = np.unique(np.concatenate([side.ts for side in sides]))
    valid = [np.ones(side.ts.size, np.bool_) if side.valid is None else side.valid for side in sides]
    codes = [side.code[mask] for side, mask in zip(sides, valid, strict=True)]
    known, key = np.unique(np.concatenate(codes), return_inverse=True)
    keys = key[: codes[0].size], key[codes[0].size :]
    tuples = []
    for which, (side, mask) in enumerate(zip(sides, valid, strict=True)):
        last = np.searchsorted(ticks, ends(side.ts, span[which], by_rows=by_rows)) - 1
        tuples.append(
            Tuples(
                np.flatnonzero(mask),
                np.searchsorted(ticks, side.ts[mask]),
                last[mask],
                keys[which].astype(np.int64),
                np.ones(codes[which].size) if combine is None else side.importance[mask].astype(np.float64),
            )
        )
    start = 0 if count_from is None else int(np.searchsorted(ticks, count_from))
    return Problem(ticks, (tuples[0], tuples[1]), known.size, start, COMBINE.index(combine or "min"))


def ends(ts: Ints, span: int, *, by_rows: bool) -> Ints:
    """Return the first time at which each row is no longer alive."""
    if not by_rows:
        return ts + span
    never = np.iinfo(np.int64).max
    place = np.searchsorted(ts, ts, side="right") + span - 1
    return np.append(ts, never)[np.minimum(place, ts.size)]


def simultaneous(problem: Problem) -> float:
    """Return what the pairs of one tick are worth together: they meet whatever is kept. O(rows log rows + pairs)."""
    left, right = (ordered(side, problem.keys) for side in problem.sides)
    return float(meet_at_once(problem, left, right))


def ordered(side: Tuples, keys: int) -> tuple[Tuples, Ints]:
    """Return tuples sorted by key, those of one key in order of arrival, and where each key begins."""
    order = np.argsort(side.key, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(side.key, minlength=keys))])
    return Tuples(*(column[order] for column in side)), start


@part
def combined(combine: int, mine: float, theirs: float) -> float:
    """Return the importance of a pair."""
    if combine == 0:
        return min(mine, theirs)
    if combine == 1:
        return max(mine, theirs)
    if combine == 2:
        return mine + theirs
    if combine == 3:
        return mine * theirs
    return (mine + theirs) / 2


@kernel
def meet_at_once(problem: Problem, left: tuple[Tuples, Ints], right: tuple[Tuples, Ints]) -> float:
    """Sum up the pairs of equal key and tick."""
    mine, start = left
    theirs, begin = right
    total = 0.0
    for key in range(problem.keys):
        j = begin[key]
        for i in range(start[key], start[key + 1]):
            tick = mine.tick[i]
            if tick < problem.start:
                continue
            while j < begin[key + 1] and theirs.tick[j] < tick:
                j += 1
            at = j
            while at < begin[key + 1] and theirs.tick[at] == tick:
                total += combined(problem.combine, mine.worth[i], theirs.worth[at])
                at += 1
    return total


def chains(problem: Problem, pool: Pool) -> Chains:
    """Sort the tuples of a pool into classes, and find the partners of each class.

    Cost: O(rows log rows + partners), where partners are counted once for each class that meets them: with as many
    importances as tuples, that is the number of pairs.
    """
    pieces = [_of_side(problem, side) for side in pool.sides]
    if len(pieces) == 1:
        return pieces[0]
    first, second = pieces
    both = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("side", "row", "arrival", "last", "meeting", "gain")
    }
    return Chains(
        member_start=np.concatenate([first.member_start, second.member_start[1:] + first.row.size]),
        partner_start=np.concatenate([first.partner_start, second.partner_start[1:] + first.meeting.size]),
        ticks=first.ticks,
        **both,
    )


def _of_side(problem: Problem, side: int) -> Chains:
    mine = problem.sides[side]
    order = np.lexsort((mine.tick, mine.worth, mine.key))
    mine = Tuples(*(column[order] for column in mine))
    theirs, begin = ordered(problem.sides[1 - side], problem.keys)
    new = np.ones(mine.key.size, np.bool_)
    new[1:] = (mine.key[1:] != mine.key[:-1]) | (mine.worth[1:] != mine.worth[:-1])
    start = np.append(np.flatnonzero(new), mine.key.size)
    useful = np.zeros(mine.key.size, np.bool_)
    count = np.zeros(start.size, np.int64)
    find_partners(problem, mine, start, (theirs, begin), useful, (count, NO_TICKS, NO_GAINS))
    partner_start = np.cumsum(count)
    meeting, gain = np.empty(partner_start[-1], np.int64), np.empty(partner_start[-1])
    find_partners(problem, mine, start, (theirs, begin), useful, (partner_start, meeting, gain))
    kept = np.concatenate([[0], np.cumsum(useful)])
    row, tick, last = mine.row[useful], mine.tick[useful], mine.last[useful]
    return Chains(
        kept[start], np.full(row.size, side), row, tick, last, partner_start, meeting, gain, problem.ticks.size
    )


NO_TICKS: Ints = np.empty(0, np.int64)
NO_GAINS: Floats = np.empty(0)


@kernel
def find_partners(
    problem: Problem,
    mine: Tuples,
    start: Ints,
    others: tuple[Tuples, Ints],
    useful: npt.NDArray[Any],
    found: tuple[Ints, Ints, Floats],
) -> None:
    """Find the ticks at which living members of each class meet partners; mark the members that meet any.

    `found` holds counts by class, moved up by one, to be added to; or, to be filled, where each class begins, and
    room for ticks and gains.
    """
    theirs, begin = others
    place, meeting, gain = found
    filling = meeting.size > 0
    for c in range(start.size - 1):
        key, worth = mine.key[start[c]], mine.worth[start[c]]
        came, alive = start[c], start[c]  # members before `came` have arrived; those before `alive` are gone
        at = place[c] if filling else 0
        j = begin[key]
        while j < begin[key + 1]:
            tick = theirs.tick[j]
            total = 0.0
            while j < begin[key + 1] and theirs.tick[j] == tick:
                total += combined(problem.combine, worth, theirs.worth[j])
                j += 1
            while came < start[c + 1] and mine.tick[came] < tick:
                came += 1
            while alive < came and mine.last[alive] < tick:
                alive += 1
            if tick < problem.start or alive == came:
                continue
            if filling:
                meeting[at] = tick
                gain[at] = total
            else:
                place[c + 1] += 1
            at += 1
            for i in range(came - 1, alive - 1, -1):
                if useful[i]:
                    break
                useful[i] = True
