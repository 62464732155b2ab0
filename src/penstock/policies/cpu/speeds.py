"""How fast rows should enter a join on keys: the analysis of dual2006, for any two distributions of keys.

A row that enters costs an update, and a probe unless it is shed. The more rows enter, the fewer can be probed. A row
of key a finds i partners with the chance C(W, i) q(a)^i (1 - q(a))^(W - i), where q(a) is how likely its key is on
the other side and W the rows of the other window. Those that find most are probed.
"""

from typing import NamedTuple

import numpy as np

from penstock.core.windows import Floats, Ints

SPEEDS = 17  # that are tried
PRICES, PARTS = 12, (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)  # the same
STICKY = 1.25
ROUNDS = 16
SIZES = 1100  # more than the powers of 2 in any chance
FEW = 64  # keys that are looked at one by one; more are put together by their chances


class Load(NamedTuple):
    """What comes, and what there is time for."""

    chances: Floats  # (side, class of keys) -> how likely a row has one of these keys
    keys: Floats  # by class: how many keys it holds, all alike
    share: Floats  # (side) -> the part of the rows that come
    window: Floats  # (side) -> rows that came within its window
    probes: float  # there is time for, for each row that comes
    update: float  # what a row that enters costs, in probes
    over_entered: bool  # windows are counted over the rows that entered
    room: float = np.inf  # rows that may be held, over both sides

    @property
    def memory(self) -> float:
        """The share of the rows in the windows that there is room for; more than 1: for all."""
        return float(self.room / max(self.window.sum(), 1e-300))


def classes(load: Load, held: Floats) -> tuple[Load, Floats]:
    """Put keys together whose chances are alike within a factor of two on both sides, and that enter or do not.

    `held` is 1 for keys that enter now. Returns the load and `held` by class; a few keys stay as they are.
    """
    if load.keys.size <= FEW:
        return load, held
    chances = load.chances
    size = np.where(chances > 0, np.floor(np.log2(np.maximum(chances, 1e-300))), 1).astype(np.int64)
    words = ((size[0] + SIZES) * 2 * SIZES + size[1] + SIZES) * 2 + (held > 0)  # sorted like (size, size, held)
    kinds, of, count = np.unique(words, return_inverse=True, return_counts=True)
    sums = [np.bincount(of, weights=side, minlength=count.size) for side in chances]
    return load._replace(chances=np.array(sums), keys=count.astype(np.float64)), (kinds % 2).astype(np.float64)


def _alike(load: Load) -> tuple[Load, Ints]:
    """Put keys together that are equally likely on both sides; returns the load, and the class of each key.

    Most of many keys came once or twice: what is reckoned for one holds for all of them. O(keys log keys).
    """
    _, first, of, count = np.unique(
        load.chances[0] + 1j * load.chances[1], return_index=True, return_inverse=True, return_counts=True
    )
    chances = load.chances[:, first] * count
    return load._replace(chances=chances, keys=count.astype(np.float64)), of


def tail(rows: Floats, chance: Floats, least: Floats) -> Floats:
    """Return how likely a row finds at least so many partners among these rows. O(1) each."""
    from scipy.special import betainc  # noqa: PLC0415 - only joins on keys under a CPU budget need it

    inside = np.clip(least, 1, None)
    more = np.maximum(rows - inside + 1, 1e-9)
    return np.where(least <= 0, 1.0, np.where(inside > rows, 0.0, betainc(inside, more, np.clip(chance, 0.0, 1.0))))


def _found(rows: Floats, chance: Floats, least: Floats) -> Floats:
    """Return how many partners a row finds on the mean, counting those only that find at least so many."""
    return rows * chance * tail(rows - 1, chance, least - 1)


def _partners(load: Load, kept: Floats) -> tuple[Floats, Floats]:
    """Return the rows that each row can meet, and how likely one of them is its partner, if shares enter by lot.

    Both are (..., side, class), as is `kept`.
    """
    mine = load.chances * kept
    each = mine / load.keys
    if load.over_entered:
        each = each / np.maximum(mine.sum(axis=-1, keepdims=True), 1e-300)
    return np.broadcast_to(load.window[::-1, None], each.shape), each[..., ::-1, :]


def _most(asked: Floats, rows: Floats, chance: Floats, probed: Floats) -> Floats:
    """Return the pairs found if of these rows those are probed that find most: so many for each row that comes."""

    def mean(values: Floats) -> Floats:
        return np.asarray((asked * values).sum(axis=(-2, -1)))

    low = np.zeros(probed.shape)  # enough rows find `low`, too few find `high`
    high = np.full(probed.shape, np.ceil(rows.max()) + 1)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        enough = mean(tail(rows, chance, middle[..., None, None])) >= probed
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    above = mean(tail(rows, chance, (low + 1)[..., None, None]))
    return mean(_found(rows, chance, (low + 1)[..., None, None])) + np.maximum(probed - above, 0.0) * low


def output_by_lot(load: Load, shares: Floats) -> Floats:
    """Return the pairs for each row that comes, if shares enter by lot and of them those are probed that find most.

    Cost: O(classes log window) for each share.

    References: dual2006 §4.
    """
    kept = np.broadcast_to(shares[:, None, None], (shares.size, *load.chances.shape))
    asked = load.share[:, None] * load.chances * kept
    return _most(asked, *_partners(load, kept), np.clip(load.probes - load.update * shares, 0.0, shares))


def output_by_key(load: Load, kept: Floats) -> Floats:
    """Return the pairs for each row that comes, if shares of the keys enter and those are probed that find most.

    `kept` is (choice, side, class). Rows that do not enter may be probed.

    Cost: O(classes log window) for each choice.
    """
    comes = load.share[:, None] * load.chances
    work = load.update * (comes * kept).sum(axis=(-2, -1))
    rows, chance = _partners(load, np.ceil(kept))
    return _most(comes * kept[..., ::-1, :], rows, chance, np.clip(load.probes - work, 0.0, 1.0))


def worthwhile(load: Load, price: float) -> Floats:
    """Return (side, class) -> 1 for keys whose rows should enter if work has this price in pairs, else 0.

    The idea: a row is worth probing if it finds at least the price of a probe, and worth entering if those that will
    come and find it, and are themselves worth probing, are at least the price of an update. Who enters depends on who
    is probed and the other way round: begin with everybody, and take out who is not worth it until nobody is.

    Cost: O(classes) a round; a few rounds.
    """
    kept = np.ones(load.chances.shape)
    least = np.asarray(np.ceil(price))
    life = load.window / np.maximum(load.share, 1e-300)  # of a row, in rows that come
    coming = ((load.share[:, None] * load.chances) / load.keys)[::-1] * life[:, None]
    for _ in range(ROUNDS):
        rows, chance = _partners(load, kept)
        met = tail(rows - 1, chance, least - 1)[::-1]  # how likely a partner is probed, this row being there
        still = kept * (coming * met >= price * load.update)
        if (still == kept).all():
            break
        kept = still
    return kept


def best_count(load: Load) -> tuple[int, float]:
    """Return M, and the share of rows that find M partners and more: probing just those gives the most pairs.

    The idea: with windows over entered rows, what a row finds does not depend on how many enter. With A the pairs
    and B the work of the rows that find M and more, the pairs per work are A / B; leaving out those that find M is
    better if and only if A > M B. A - M B falls by B when M grows by one, so it changes its sign once, and a binary
    search finds where.

    Cost: O(keys log window).

    References: dual2006 §4.
    """
    comes = load.share[:, None] * load.chances
    rows, chance = _partners(load._replace(over_entered=True), np.ones(load.chances.shape))

    def mean(values: Floats) -> float:
        return float((comes * values).sum())

    low, high = 0, int(np.ceil(load.window.max())) + 1
    while low < high:
        count = (low + high) // 2
        least = np.asarray(float(count))
        if mean(_found(rows, chance, least)) > count * (load.update + mean(tail(rows, chance, least))):
            low = count + 1
        else:
            high = count
    return low, mean(tail(rows, chance, np.asarray(float(low))))


def best_speed(left: Floats, right: Floats, *, window: int, probe: float, update: float) -> tuple[float, float]:
    """Return V_opt and the most pairs per second: how fast each stream should enter, at most.

    Parameters:
        left, right: how likely each key is on each side.
        window: W, in rows of each side.
        probe: V_j, the speed of each stream at which there is time for probes alone.
        update: V_w, the same for updates.

    Cost: O(keys log window).

    Examples:
        >>> alike = np.full(50, 1 / 50)
        >>> speed, pairs = best_speed(alike, alike, window=400, probe=100.0, update=400.0)
        >>> 80 < speed < 400
        True

    Departures: the printed sum is read as all counts below M; the optimum is found by the sign of A - M B, with which
        the search needs no proof that the curve has one peak.

    References: dual2006 §4.
    """
    half = np.full(2, 0.5)
    load = Load(
        np.array([left, right]), np.ones(len(left)), half, np.full(2, float(window)), 1.0, probe / update, True
    )
    count, share = best_count(load)
    rows, chance = _partners(load, np.ones(load.chances.shape))
    speed = probe / (probe / update + share)
    found = float((0.5 * load.chances * _found(rows, chance, np.asarray(float(count)))).sum())
    return speed, 2 * speed * found


def bar_for(worth: Floats, mass: Floats, share: float) -> tuple[float, float]:
    """Return the worth that rows must exceed so that this share of them does, and the chance of those that reach it.

    Examples:
        >>> bar, tie = bar_for(np.array([3.0, 1.0, 2.0]), np.array([0.5, 0.25, 0.25]), 0.625)
        >>> float(bar), float(tie)
        (2.0, 0.5)
    """
    order = np.argsort(-worth, kind="stable")
    total = np.cumsum(mass[order])
    at = min(int(np.searchsorted(total, share - 1e-12)), order.size - 1)
    bar = worth[order[at]]
    equal = float(mass[worth == bar].sum())
    above = float(mass[worth > bar].sum())
    return float(bar), min(1.0, max(0.0, (share - above) / max(equal, 1e-300)))


def choices(load: Load) -> Floats:
    """Return the shares of rows that may enter: from what can all be probed to what there is time to store."""
    least = min(1.0, load.probes / (1.0 + load.update))
    most = min(1.0, load.probes / load.update)
    return np.linspace(least, most, SPEEDS)


def entering(load: Load, price: float, part: float, held: Floats) -> Floats:
    """Return (side, class) -> the share of the keys whose rows enter: those worth this price that give most for work.

    Parameters:
        load: what comes.
        price: of work, in pairs.
        part: of the time that may go into updates.
        held: 1 for classes that enter already: they are preferred, since others would begin with empty windows.

    Cost: O(classes log classes).
    """
    if load.keys.size > FEW and (load.keys == 1.0).all():
        few, of = _alike(load)
        keys = worthwhile(few, price)[:, of]
    else:
        keys = worthwhile(load, price)
    each = load.chances / load.keys
    gain = each.prod(axis=0) / np.maximum(load.share @ each, 1e-300) * np.where(held > 0, STICKY, 1.0)
    order = np.argsort(-gain, kind="stable")
    mass = (load.share[:, None] * load.chances * keys).sum(axis=0)[order]
    before = np.cumsum(mass) - mass
    room = part * load.probes / load.update
    stored = (load.window[:, None] * load.chances * keys).sum(axis=0)[order]
    stored_before = np.cumsum(stored) - stored
    share = np.empty(order.size)
    share[order] = np.clip((room - before) / np.maximum(mass, 1e-300), 0.0, 1.0)
    fits = np.clip((load.room - stored_before) / np.maximum(stored, 1e-9), 0.0, 1.0)
    share[order] = np.minimum(share[order], fits)
    return keys * share


def best_choice(load: Load, held: Floats) -> tuple[float, float, float]:
    """Return the price and the part of the time for updates, as ``entering`` takes them, that promise most pairs.

    The third number is what they promise, for each row that comes.

    Cost: O(classes log window) for each that is tried.
    """
    prices = [0.0, *np.geomspace(0.25, max(1.0, float(load.window.max())), PRICES).tolist()]
    tried: dict[bytes, tuple[float, float, Floats]] = {}
    for price in prices:
        for part in PARTS:
            kept = entering(load, price, part, held)
            tried.setdefault(kept.tobytes(), (price, part, kept))
    found = output_by_key(load, np.stack([kept for _, _, kept in tried.values()]))
    best = first_best(found)
    price, part, _ = list(tried.values())[best]
    return price, part, float(found[best])


def first_best(values: Floats) -> int:
    """Return where the largest value is, or the first that equals it but for rounding."""
    return int(np.flatnonzero(values >= values.max() * (1 - 1e-9))[0])
