"""Choose a few rows of two streams that stand for all: some keys of each kind, and some rows of keys that come often.

Keys are divided by how often they come on each side, into classes of powers of two. Of each class some keys are
taken, at least one, so that no kind of key is left to chance: where few keys carry most of the result, a plain sample
of the keys holds none of them, or one too many. A key that comes often would be most of the sample. Only some of its
rows are taken, so that what comes often still comes more often, but only by the logarithm.

A row weighs as many as it stands for: those of its class, and those of its key that were left out. A pair counts as
many as its class has for each of the sample, if pairs go with the product of what comes on both sides.

Keys are known by the place that a hash gives them: a few may share one, and are then taken together.
"""

from typing import NamedTuple

import numpy as np

from penstock.core.rng import GOLDEN
from penstock.core.windows import Floats, Ints

BITS = 17
PLACES = 1 << BITS
SPARSE = 4.0  # rows a window, on one side: of keys that come no more often all rows should be taken
LEVELS = (1.0, 0.8, 0.5, 0.25)  # of the share of the rows: which share of the keys of a class is taken, at least
LEAST, MOST, HALVINGS = 1 / 64, 1e12, 20  # to look for how many rows of a key are taken


class Strata(NamedTuple):
    """What is taken, by place."""

    chance: Floats  # (side, place) -> with which a row is taken
    weight: Floats  # (side, place) -> rows that one stands for
    pairs: Floats  # place -> pairs that one of the sample stands for

    def draw(self, side: int, place: Ints, seed: int) -> Ints:
        """Return the numbers of the rows taken, given the places of all rows of one side.

        Of a key, every so many-th row is taken, not each by a lot: then how often it comes is known better.
        """
        chances = self.chance[side]
        taken = np.flatnonzero(chances)
        number = np.zeros(PLACES, np.uint16 if taken.size <= 1 << 16 else np.int32)  # short ones are sorted faster
        number[taken] = np.arange(taken.size)
        some = np.flatnonzero((chances > 0)[place])
        mine = number[place[some]]
        order = np.argsort(mine, kind="stable")
        rows = np.bincount(mine, minlength=taken.size)
        rank = np.arange(some.size) - np.repeat(np.cumsum(rows) - rows, rows)
        chance = np.repeat(chances[taken], rows)
        passed = rank * chance + np.repeat(np.random.default_rng((seed, side)).random(taken.size), rows)
        return np.sort(some[order[np.floor(passed + chance) > np.floor(passed)]])


def places(code: Ints) -> Ints:
    """Return the places of keys, by their codes."""
    found = code.view(np.uint64) * GOLDEN
    found >>= np.uint64(64 - BITS)
    return found.view(np.int64)


def choose(came: Ints, windows: tuple[float, float], share: float, seed: int, *, whole: bool) -> Strata:
    """Choose what to take.

    Parameters:
        came: (side, place) -> rows.
        windows: how many windows long each side is.
        share: of the rows that may be taken.
        seed: for lots.
        whole: whether a key must be taken with all of its rows; then there are no classes.

    Cost: O(places), and O(keys log keys) to put them in order.
    """
    used = np.flatnonzero(came.any(axis=0))
    rows = came[:, used]
    kind = np.zeros(used.size, np.int64) if whole else _classes(rows)
    order = np.argsort(np.random.default_rng(seed).random(used.size))
    order = order[np.argsort(kind[order].astype(np.int16), kind="stable")]  # short numbers are put in order at once
    begins = np.flatnonzero(np.diff(kind[order], prepend=-1))
    size = np.diff(begins, append=used.size)
    number = np.repeat(np.arange(begins.size), size)  # of the class, in order
    rank = np.arange(used.size) - begins[number]
    stratum = np.empty(used.size, np.int64)
    stratum[order] = number
    often = rows / np.array(windows)[:, None]
    for level in LEVELS:
        taken = np.zeros(used.size, np.bool_)
        taken[order] = rank < np.ceil(level * share * size)[number]
        most = MOST if whole else _most(often[:, taken], windows, share * float(rows.sum()))
        if most >= SPARSE:
            break
    often = often[:, taken]
    thinned = _thinned(often, most) / np.maximum(often, 1 / MOST)
    strata = Strata(np.zeros((2, PLACES)), np.zeros((2, PLACES)), np.zeros(PLACES))
    for side in range(2):
        stands = _scale(rows[side].astype(np.float64), taken, stratum)
        strata.chance[side, used[taken]] = thinned[side]
        strata.weight[side, used[taken]] = stands[taken] / np.maximum(thinned[side], 1 / MOST)
    stands = _scale(rows[0].astype(np.float64) * rows[1], taken, stratum)
    met = (rows[0, taken] > 0) & (rows[1, taken] > 0)
    strata.pairs[used[taken][met]] = (stands[taken] / (thinned[0] * thinned[1]).clip(1 / MOST))[met]
    return strata


def _classes(rows: Ints) -> Ints:
    """Return the class of each key: the powers of two up to what came on each side."""
    powers = np.where(rows > 0, np.ceil(np.log2(np.maximum(rows, 1))).astype(np.int64) + 1, 0)
    kinds: Ints = powers[0] * 64 + powers[1]
    return kinds


def _thinned(often: Floats, most: float) -> Floats:
    """Return how many rows a window are taken of keys that come so often: all up to `most`, then ever fewer."""
    return np.where(often > most, most * (1.0 + np.log(np.maximum(often / most, 1.0))), often)


def _most(often: Floats, windows: tuple[float, float], rows: float) -> float:
    """Return from how many rows a window on keys are thinned out, so that no more than `rows` are left."""
    low, high = LEAST, MOST
    for _ in range(HALVINGS):
        middle = float(np.sqrt(low * high))
        if _thinned(often, middle).sum(axis=1) @ np.array(windows) > rows:
            high = middle
        else:
            low = middle
    return low


def _scale(amount: Floats, taken: Floats, stratum: Ints) -> Floats:
    """Return how much there is in the class of each key, for what was taken of it."""
    there = np.bincount(stratum, amount)
    got = np.bincount(stratum, amount * taken)
    scale: Floats = (there / np.maximum(got, 1e-300))[stratum]
    return scale
