"""The static join: which tuples of two relations to keep, so that as many pairs as possible are left.

Keys are independent, and keys with equal counts (m, n) are interchangeable: a class. Keeping a of m and b of n
tuples of a key keeps a * b pairs. Choose a and b for every key, within a budget of k tuples in all, or of k_A and
k_B, so that the sum of a * b is largest.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.windows import Floats, Ints
from penstock.errors import InputError

MOST_PAIRS = 1 << 50  # of one key: beyond, sums of floats are not exact to one pair
FIRST_LIMIT, GROWTH = 1.0, 2.0  # of the loss that is searched
MOST_WORK = 600_000_000  # states looked at before the search gives up: about a minute
STEP = 500  # a step takes as long as so many states, be there ever so few
ROUNDING = 1e-6  # what sums of floats may be off


class Quota(NamedTuple):
    """So many keys, each with these counts of tuples in the relations, keep so many of them in each."""

    counts: tuple[int, ...]
    keys: int
    kept: tuple[int, ...]


class Flip(NamedTuple):
    """Some keys of a class that are dropped though the prices say to keep them whole, or the other way round."""

    which: int  # of the classes
    keys: int
    offset: Ints  # (budget, 1): tuples more than by the prices
    loss: float


class States(NamedTuple):
    """The sets of flips found so far: the cheapest for every offset."""

    offset: Ints  # (budget, state)
    loss: Floats
    before: Ints  # the state it was made of
    flipped: Ints  # whether the last flip was made


class Path(NamedTuple):
    """The flips decided so far, the states after each, and how far what is not decided can move the budgets."""

    flips: list[Flip]
    states: list[States]
    least: Ints  # (budget, 1)
    most: Ints


class Solution(NamedTuple):
    """A state at the end of a path, and what the keys left out of it keep."""

    loss: float
    path: Path
    state: int
    kept: list[tuple[int, int, int]]  # class, a, b


class TooMuchWorkError(Exception):
    """The search took more states than it may."""


def plan(m: Ints, n: Ints, keys: Ints, keep: int | tuple[int, int]) -> tuple[list[Quota], int]:
    """Return how many tuples every key keeps so that most pairs are left, and an upper bound of those pairs.

    The idea: C(m, n, p), the pairs that p tuples of a key can keep, has differences that first grow and then stay:
    it is convex. So all keys but one are kept whole or not at all: a knapsack over classes. Put a price on a tuple
    (the linear relaxation's), and every key decides alone; each departure from that has a loss, never negative. A
    solution that loses no more than a limit is made of departures that lose no more each. There are few, and
    dynamic programming over what they add up to finds the best; the one key in parts takes what is left. The limit
    is raised until a solution is within it: then there is no better one. With (k_A, k_B) there are two prices, and
    at most two keys are kept in part.

    Parameters:
        m, n: tuples of a key on each side, one entry a class.
        keys: how many keys each class has.
        keep: tuples kept in all, or (k_A, k_B); exactly so many are kept.

    Returns:
        The quotas, and a bound that equals their pairs when they are proved to be the best. That is so unless the
        search would take more than ``MOST_WORK`` states, as it may with few large keys and two budgets.

    Cost: O(c log c) for c classes, and O(d s log s) for the d departures and s sums of tuples within the limit,
        which are few when keys are many. The recurrence of the paper takes O(c k**2), for (k_A, k_B) more.

    References: das2003 §3.1.1.
    """
    if (m * n.astype(np.float64) > MOST_PAIRS).any():
        raise InputError("keep", f"a key of more than {MOST_PAIRS:,} pairs", "join that key on its own")
    both = (m > 0) & (n > 0)
    quotas, bound = Program(m[both], n[both], keys[both], keep).solve() if both.any() else ([], 0)
    alone = [Quota((m, n), keys, (0, 0)) for m, n, keys in np.stack([m, n, keys], axis=1)[~both].tolist()]
    return filled(quotas + alone, keep), bound


def pairs_of(quotas: list[Quota]) -> int:
    """Return how many results are kept."""
    return sum(quota.keys * math.prod(quota.kept) for quota in quotas)


def most_pairs(m: Ints | int, n: Ints | int, size: Ints) -> tuple[Ints, Ints]:
    """Return how `size` tuples of a key keep most pairs: half of each side, as far as there are any."""
    low = np.minimum(size // 2, np.minimum(m, n))
    high = size - low
    return np.where(m >= n, high, low), np.where(m >= n, low, high)


def filled(quotas: list[Quota], keep: int | tuple[int, int]) -> list[Quota]:
    """Return the quotas with tuples added that bring no pair, until exactly `keep` are kept."""
    kept = [sum(quota.keys * quota.kept[side] for quota in quotas) for side in range(2)]
    if isinstance(keep, tuple):
        missing = [keep[side] - kept[side] for side in range(2)]
    else:
        room = sum(quota.keys * quota.counts[0] for quota in quotas) - kept[0]
        more = min(keep - sum(kept), room)
        missing = [more, keep - sum(kept) - more]
    for side, more in enumerate(missing):
        quotas = _with_more(quotas, side, more)
    return quotas


def _with_more(quotas: list[Quota], side: int, more: int) -> list[Quota]:
    """Return the quotas with so many more tuples of one side."""
    found = []
    for quota in quotas:
        room = quota.counts[side] - quota.kept[side]
        whole = min(quota.keys, more // room) if room else 0
        rest = min(more - whole * room, room) if whole < quota.keys else 0
        for keys, add in ((whole, room), (int(rest > 0), rest), (quota.keys - whole - int(rest > 0), 0)):
            kept = tuple(count + add * (at == side) for at, count in enumerate(quota.kept))
            found += [quota._replace(keys=keys, kept=kept)] if keys else []
        more -= whole * room + rest
    return found


def approximate(counts: Ints, keys: Ints, keep: tuple[int, ...]) -> tuple[list[Quota], int]:
    """Return how many tuples every key keeps of m relations, and an upper bound of the results.

    The idea: each relation alone gives up the tuples with the fewest results. What it loses alone, p_i, the optimum
    loses too, and all together lose no more than the sum: at most m times what the optimum loses.

    Parameters:
        counts: (relation, class): tuples of a key.
        keys: how many keys each class has.
        keep: tuples kept of each relation.

    Cost: O(m c log c) for c classes.

    References: das2003 §3.1.2.
    """
    results = counts.prod(axis=0)
    losses = []
    cuts: list[list[tuple[int, int]]] = []  # for each class and relation: keys kept whole, tuples of one key more
    for i, budget in enumerate(keep):
        others = np.delete(counts, i, axis=0).prod(axis=0)
        order = np.lexsort((-results, -others))
        room = (counts[i] * keys)[order]
        kept = np.clip(budget - (np.cumsum(room) - room), 0, room)
        losses.append(int((others[order] * (room - kept)).sum()))
        taken = np.empty_like(kept)
        taken[order] = kept
        whole, part = np.divmod(taken, np.maximum(counts[i], 1))
        cuts.append(list(zip(whole.tolist(), part.tolist(), strict=True)))
    quotas = []
    for at, number in enumerate(keys.tolist()):
        mine = [cut[at] for cut in cuts]
        ends = sorted({0, number, *(min(whole + more, number) for whole, part in mine for more in (0, part > 0))})
        for low, high in pairwise(ends):
            kept = tuple(
                int(count) if low < whole else part if low == whole else 0
                for (whole, part), count in zip(mine, counts[:, at], strict=True)
            )
            quotas.append(Quota(tuple(counts[:, at].tolist()), high - low, kept))
    return quotas, int(results @ keys) - max(losses)


class Program:
    """A knapsack over classes of keys, all of which have tuples on both sides."""

    def __init__(self, m: Ints, n: Ints, keys: Ints, keep: int | tuple[int, int]) -> None:
        self.m, self.n, self.keys = m, n, keys
        self.split = isinstance(keep, tuple)
        self.keep = np.array(keep if self.split else [keep], np.int64)
        self.price = self._prices()
        gain = self.worth(m, n)
        self.whole = gain > 0  # what the prices say: kept whole, or not at all
        self.flip = np.abs(gain)
        self.best = np.maximum(gain, 0.0)
        self.missing = (self.keep - self.sizes(m, n) @ np.where(self.whole, keys, 0))[:, None]
        self.known: list[Quota] = []  # the best found so far
        self.work = 0

    def sizes(self, a: Ints, b: Ints) -> Ints:
        """Return what counts against each budget."""
        return np.stack([a, b]) if self.split else np.stack([a + b])

    def worth(self, a: Ints, b: Ints) -> Floats:
        """Return the pairs of a key less the price of its tuples."""
        return a * b - self.price @ self.sizes(a, b)

    def _prices(self) -> Floats:
        """Return what a tuple costs against each budget in the linear relaxation."""
        from scipy.optimize import linprog  # noqa: PLC0415 - only static joins need it

        value = (self.m * self.n).astype(np.float64)
        bounds = np.stack([np.zeros(value.size), self.keys], axis=1)
        found = linprog(-value / value.max(), self.sizes(self.m, self.n), self.keep, bounds=bounds)
        return np.maximum(0.0, -value.max() * found.ineqlin.marginals)

    def solve(self) -> tuple[list[Quota], int]:
        """Return the best quotas and a bound: raise the limit of the loss until a solution is within it."""
        limit = FIRST_LIMIT
        try:
            while (found := self.search(limit)) is None:
                limit *= GROWTH
        except TooMuchWorkError:
            bound = self.price @ self.keep + self.best @ self.keys
            return max(self.rounded(), self.known, key=pairs_of), math.floor(bound + ROUNDING)
        return found, pairs_of(found)

    def search(self, limit: float) -> list[Quota] | None:
        """Return the best quotas of those that lose no more than `limit`, if there are any."""
        groups, singles = self.flips(limit)
        offsets = np.concatenate(
            [np.zeros((len(self.keep), 1), np.int64), *(f.offset for f in groups + singles)], axis=1
        )
        ends = (np.minimum(offsets, 0).sum(axis=1), np.maximum(offsets, 0).sum(axis=1))
        nothing = np.zeros(1, np.int64)
        start = States(offsets[:, :1], np.zeros(1), nothing, nothing)
        path = Path([], [start], ends[0][:, None], ends[1][:, None])
        for flip in groups:
            path = self.step(path, flip, limit)
        best: Solution | None = None
        for left_out, ended in self.leaving_out(path, singles, len(self.keep), limit):
            found = self.completed(ended, [flip.which for flip in left_out])
            if found is not None and (best is None or found.loss < best.loss):
                best = found
        if best is None or best.loss == np.inf:
            return None
        self.known = max(self.recovered(best), self.known, key=pairs_of)
        return self.known if best.loss <= limit else None

    def flips(self, limit: float) -> tuple[list[Flip], list[Flip]]:
        """Return the flips within the limit, large ones first, and apart from them those of keys left out in turn.

        Keys of a class flip in groups of 1, 2, 4, ... and the rest: any number of them is a sum of groups.
        """
        free = self.in_part(limit)
        groups, singles = [], []
        for i in np.flatnonzero((self.flip <= limit) | free).tolist():
            single = min(len(self.keep), int(self.keys[i])) if free[i] else 0
            singles += [self._flip(i, 1)] * single
            others = int(self.keys[i]) - single
            if self.flip[i] * others > limit:
                others = math.floor(limit / self.flip[i])
            cuts = [0, *(2**power - 1 for power in range(1, others.bit_length())), others]
            groups += [self._flip(i, high - low) for low, high in pairwise(cuts) if high > low]
        return sorted(groups, key=lambda flip: -int(np.abs(flip.offset).max())), singles

    def _flip(self, i: int, keys: int) -> Flip:
        sign = -keys if self.whole[i] else keys
        return Flip(i, keys, sign * self.sizes(self.m[i : i + 1], self.n[i : i + 1]), keys * float(self.flip[i]))

    def step(self, path: Path, flip: Flip, limit: float) -> Path:
        """Return the path with one more flip decided, without the states that no solution within the limit has."""
        states = path.states[-1]
        count = states.loss.size
        self.works(2 * count)
        least, most = path.least - np.minimum(flip.offset, 0), path.most - np.maximum(flip.offset, 0)
        offset = np.concatenate([states.offset, states.offset + flip.offset], axis=1)
        loss = np.concatenate([states.loss, states.loss + flip.loss])
        slack = self.missing - offset
        idle = np.maximum(0, slack - most)  # what of the budgets can be used no more
        alive = np.flatnonzero((slack >= least).all(axis=0) & (loss + self.price @ idle <= limit))
        order = alive[np.lexsort((loss[alive], *offset[:, alive]))]
        fresh = np.ones(order.size, np.bool_)
        fresh[1:] = (offset[:, order[1:]] != offset[:, order[:-1]]).any(axis=0)
        first = order[fresh]
        found = States(offset[:, first], loss[first], first % count, first // count)
        return Path([*path.flips, flip], [*path.states, found], least, most)

    def works(self, states: int) -> None:
        """Count the work of a step, and give up when it is too much."""
        self.work += len(self.keep) ** 2 * states + STEP  # sorting by two offsets takes longer
        if self.work > MOST_WORK:
            raise TooMuchWorkError

    def leaving_out(
        self, path: Path, flips: list[Flip], count: int, limit: float
    ) -> Iterator[tuple[list[Flip], Path]]:
        """Yield every choice of so many flips, with the path on which all others are decided.

        Halving them, a flip is decided O(log) times for each choice of one, not once for each.
        """
        if not path.states[-1].loss.size:
            return
        if len(flips) <= count:
            yield flips, path
        elif count == 0:
            for flip in flips:
                path = self.step(path, flip, limit)
            yield [], path
        else:
            half = len(flips) // 2
            for mine in range(count + 1):
                if mine > half or count - mine > len(flips) - half:
                    continue
                # The half of which fewer are left out is decided first.
                first, second = (flips[:half], flips[half:]) if 2 * mine <= count else (flips[half:], flips[:half])
                fewer = min(mine, count - mine)
                for some, between in self.leaving_out(path, first, fewer, limit):
                    for rest, ended in self.leaving_out(between, second, count - fewer, limit):
                        yield some + rest, ended

    def in_part(self, limit: float) -> npt.NDArray[np.bool_]:
        """Say of which classes a key may be kept in part.

        Two keys that lose the same number of tuples, or get it, differ in the pairs that costs. In a solution within
        the limit not all keys may be flipped that are cheapest for a number: the others need not be looked at.
        """
        near = np.flatnonzero(self._least_loss_of_a_part() <= limit)
        found = np.zeros(self.m.size, np.bool_)
        if not near.size:
            return found
        parts = [self._parts(i, limit) for i in near.tolist()]
        which = np.repeat(near, [a.size for a, _ in parts])
        a, b = (np.concatenate([part[at] for part in parts]) for at in range(2))
        base = np.where(self.whole[which], self.sizes(self.m[which], self.n[which]), 0)
        name = [self.whole[which], *(self.sizes(a, b) - base)]
        loss = self.best[which] - self.worth(a, b)
        flips = (self.flip * self.keys)[which]
        order = np.lexsort((-flips, loss, *name))
        fresh = np.ones(order.size, np.bool_)
        fresh[1:] = np.any([column[order[1:]] != column[order[:-1]] for column in name], axis=0)
        total = np.cumsum(flips[order]) - flips[order]
        before = total - total[np.flatnonzero(fresh)][np.cumsum(fresh) - 1]
        spare = (len(self.keep) - 1) * self.flip[which].max(initial=0.0)  # a free key may be the other one in part
        found[which[order[before <= limit + spare]]] = True
        return found

    def _least_loss_of_a_part(self) -> Floats:
        """Return for each class what keeping a part of a key loses at least.

        The worth of p tuples is convex, that of a and b tuples bilinear: the largest is at a corner.
        """
        m, n = self.m, self.n
        one = np.ones_like(m)
        if self.split:
            corners = [(one, one), (one, n), (m, one), (m - 1, one), (one, n - 1), (m - 1, n), (m, n - 1)]
        else:
            corners = [most_pairs(m, n, 2 * one), most_pairs(m, n, m + n - 1)]
        return np.min([self.best - self.worth(a, b) for a, b in corners], axis=0)

    def _parts(self, i: int, limit: float) -> tuple[Ints, Ints]:
        """Return the parts of a key that lose no more than the limit: a and b of its tuples."""
        if self.split:
            a, b = self._parts_of_both(i, limit)
        else:
            a, b = most_pairs(self.m[i], self.n[i], np.arange(2, self.m[i] + self.n[i]))
        near = self.best[i] - self.worth(a, b) <= limit
        return a[near], b[near]

    def _parts_of_both(self, i: int, limit: float) -> tuple[Ints, Ints]:
        """Return all a and b that may lose no more than the limit: for each a, such b lie in a row."""
        m, n = int(self.m[i]), int(self.n[i])
        a = np.arange(1, m + 1)
        bar = self.best[i] - limit + self.price[0] * a  # what b * slope must reach
        slope = a - self.price[1]
        at = bar / np.where(slope == 0, 1.0, slope)
        low = np.where(slope > 0, np.clip(np.floor(at), 1, n + 1), np.where((slope == 0) & (bar > 0), n + 1, 1))
        high = np.where(slope < 0, np.clip(np.ceil(at), 0, n), n)
        count = np.maximum(0, high - low + 1).astype(np.int64)
        b = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - low.astype(np.int64), count)
        a = np.repeat(a, count)
        in_part = (a < m) | (b < n)
        return a[in_part], b[in_part]

    def completed(self, path: Path, free: list[int]) -> Solution | None:
        """Return the best solution at the end of a path: the free keys take what is left."""
        last = path.states[-1]
        if not last.loss.size:
            return None
        self.works(len(free) * last.loss.size)
        counts = [(self.m[i], self.n[i]) for i in free]
        base = sum((self.sizes(self.m[[i]], self.n[[i]]) for i in free if self.whole[i]), np.zeros((1, 1), np.int64))
        rest = self.missing - last.offset + base
        best: Solution | None = None
        for kept in self._takings(rest, counts):
            used = sum((self.sizes(a, b) for a, b in kept), np.zeros_like(rest))
            loss = last.loss + self.price @ (rest - used)
            loss = loss + sum(self.best[i] - self.worth(a, b) for i, (a, b) in zip(free, kept, strict=True))
            loss = np.where((rest >= used).all(axis=0), loss, np.inf)
            at = int(loss.argmin())
            if best is None or loss[at] < best.loss:
                parts = [(i, int(a[at]), int(b[at])) for i, (a, b) in zip(free, kept, strict=True)]
                best = Solution(float(loss[at]), path, at, parts)
        return best

    def _takings(self, rest: Ints, counts: Sequence[tuple[int, ...]]) -> Iterator[list[tuple[Ints, Ints]]]:
        """Yield the ways in which free keys may take what is left of the budgets, for every state."""
        same = np.ones_like(rest[0])
        if not counts:
            yield []
        elif not self.split:
            m, n = counts[0]
            yield [most_pairs(m, n, np.clip(rest[0], 0, m + n))]
        elif len(counts) == 1:
            m, n = counts[0]
            yield [(np.clip(rest[0], 0, m), np.clip(rest[1], 0, n))]
        else:
            for one, other in (counts, counts[::-1]):
                m, n = other
                ways = [[(whole * m * same, whole * n * same)] for whole in (0, 1)]  # the other one whole or not
                ways += [[(m * same, np.clip(rest[1] - one[1], 0, n))]]  # or in part of B, this one of A
                for ((a, b),) in ways:
                    mine = (np.clip(rest[0] - a, 0, one[0]), np.clip(rest[1] - b, 0, one[1]))
                    yield [mine, (a, b)] if one is counts[0] else [(a, b), mine]

    def recovered(self, solution: Solution) -> list[Quota]:
        """Return the quotas of a solution."""
        left = self.keys.copy()
        quotas = []
        for i, a, b in solution.kept:
            left[i] -= 1
            quotas.append(self._quota(i, 1, a, b))
        at = solution.state
        for flip, found in zip(reversed(solution.path.flips), reversed(solution.path.states), strict=False):
            if found.flipped[at]:
                left[flip.which] -= flip.keys
                kept = 0 if self.whole[flip.which] else 1
                quotas.append(
                    self._quota(flip.which, flip.keys, kept * self.m[flip.which], kept * self.n[flip.which])
                )
            at = found.before[at]
        return quotas + [
            self._quota(i, left[i], self.whole[i] * self.m[i], self.whole[i] * self.n[i])
            for i in np.flatnonzero(left).tolist()
        ]

    def _quota(self, i: int, keys: int, a: int, b: int) -> Quota:
        return Quota((int(self.m[i]), int(self.n[i])), int(keys), (int(a), int(b)))

    def rounded(self) -> list[Quota]:
        """Return good quotas: whole keys in the order of their worth while they fit, then one in part."""
        rest = self.keep.copy()
        quotas = []
        for i in np.argsort(-self.worth(self.m, self.n), kind="stable").tolist():
            size = self.sizes(self.m[[i]], self.n[[i]])[:, 0]
            keys = min(int(self.keys[i]), int((rest // size).min()))
            rest -= keys * size
            quotas += [self._quota(i, keys, self.m[i], self.n[i])]
            if keys < self.keys[i]:
                quotas += [self._quota(i, self.keys[i] - keys, 0, 0)]
        gains = []
        for at, quota in enumerate(quotas):
            if quota.kept == (0, 0):
                ((a, b),) = next(self._takings(rest[:, None], [quota.counts]))
                gains.append((int(a[0] * b[0]), at, (int(a[0]), int(b[0]))))
        if gains:
            _, at, kept = max(gains)
            quotas += [quotas[at]._replace(keys=1, kept=kept)]
            quotas[at] = quotas[at]._replace(keys=quotas[at].keys - 1)
        return [quota for quota in quotas if quota.keys]
