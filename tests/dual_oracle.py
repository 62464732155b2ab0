"""Say what a join on keys under a CPU budget must do, row by row, by brute force that can be checked by eye.

Nothing here is shared with the product: plain Python over lists, everything counted anew for each row, chances of
counts summed up term by term. A probe is a unit of work.
"""

from __future__ import annotations

from math import ceil, comb, inf
from typing import NamedTuple

from cpu_oracle import draw

SHARES = [j / 16 for j in range(17)]
PARTS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
FULLY = ("random-drop", "modular", "integrated")


class Given(NamedTuple):
    """What was asked for; `span` and `ranked` in rows or ticks."""

    method: str
    span: tuple[int, int]
    by_rows: bool
    speed: float  # probes a tick
    update: float
    queue: float  # ticks
    over: str = "arrivals"
    ticks: float = inf  # of a period
    rows: float = inf
    seed: int = 0


class Row(NamedTuple):
    """A row that is in a window, or is ranked."""

    side: int
    row: int
    key: int
    ts: int
    clocks: tuple[int, int]  # what ages of either side count to when it came
    pos: int  # what its own age counts from
    partners: tuple[Row, ...]
    enters: bool


class Did(NamedTuple):
    """What came of it."""

    pairs: set[tuple[int, int]]
    skipped: dict[tuple[int, int], set[int]]  # (side, row) -> partners of a row that entered and was not probed
    dropped: dict[tuple[int, int], bool]  # (side, row) -> whether it was probed all the same


def tail(rows: int, chance: float, least: int) -> float:
    """Return how likely at least so many of these rows are partners."""
    return sum(comb(rows, i) * chance**i * (1 - chance) ** (rows - i) for i in range(max(0, least), rows + 1))


def bar_for(scores: list[tuple[float, float]], share: float) -> tuple[float, float]:
    """Return the score that this share exceeds, and the chance of rows that only reach it, from (score, mass)."""
    left = share
    for score in sorted({score for score, _ in scores}, reverse=True):
        mass = sum(m for s, m in scores if s == score)
        if left - mass <= 1e-12:
            return score, min(1.0, left / mass)
        left -= mass
    return min(score for score, _ in scores), 1.0


def top(counts: list[tuple[int, float]], probed: float) -> float:
    """Return the pairs if so many rows are probed, those that find most, from (count, mass)."""
    found = 0.0
    for count, mass in sorted(counts, reverse=True):
        part = min(mass, probed)
        found += part * count
        probed -= part
    return found


class Model:
    """One run."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.entered: list[list[Row]] = [[], []]
        self.ranked: list[Row] = []
        self.seen: list[dict[int, float]] = [{}, {}]
        self.was: list[dict[int, float]] = [{}, {}]  # when the period began
        self.worth: list[dict[int, float]] = [{}, {}]
        self.busy, self.began = -inf, -inf
        self.rear, self.bar, self.tie = 0.0, -1.0, 1.0
        self.weights = (1.0, 1.0) if given.method == "integrated" else (0.0, 0.0)
        self.lasted = 1.0
        self.draws = 0
        self.came, self.scores = [0, 0], list[float]()
        self.did = Did(set(), {}, {})

    def lot(self) -> float:
        self.draws += 1
        return draw(self.given.seed, self.draws)

    # --- one row --------------------------------------------------------------------------------------------------

    def take(self, side: int, ts: int, row: int, key: int, clocks: tuple[int, int]) -> None:
        given, later = self.given, self.given.method == "dual"
        if ts > self.began and (ts - self.began >= given.ticks or sum(self.came) >= given.rows):
            self.adapt(ts)
        reach = sum(given.span) if given.by_rows else max(given.span)
        while self.ranked and (len(self.ranked) >= reach if given.by_rows else ts - self.ranked[0].ts >= reach):
            self.leave(later=later)
        if given.over == "entered" and given.by_rows:
            clocks = (len(self.entered[0]), len(self.entered[1]))
            pos = clocks[side] + 1
        else:
            pos = clocks[side]
        partners = tuple(
            each
            for each in self.entered[1 - side]
            if each.key == key and clocks[1 - side] - each.pos < given.span[1 - side]
        )
        score = self.weights[0] * len(partners) + self.weights[1] * self.worth[side].get(key, 0.0)
        self.scores.append(score)
        self.came[side] += 1
        self.seen[side][key] = self.seen[side].get(key, 0.0) + 1
        self.seen[1 - side].setdefault(key, 0.0)
        enters = self.lot() < self.tie if score == self.bar else score > self.bar
        if self.busy - ts > given.queue:
            self.did.dropped[side, row] = False
            return
        me = Row(side, row, key, ts, clocks, pos, partners, enters)
        probed = False
        if enters or given.method == "auto":
            self.ranked.append(me)
            if enters:
                self.entered[side].append(me)
                self.spend(ts, given.update)
            if not later:
                probed = self.judge(me)
        if not enters:
            self.did.dropped[side, row] = probed

    def spend(self, ts: int, work: float) -> None:
        self.busy = max(self.busy, float(ts)) + work / self.given.speed

    def leave(self, *, later: bool) -> None:
        if later:
            self.judge(self.ranked[0])
        del self.ranked[0]

    def judge(self, me: Row) -> bool:
        count, others = len(me.partners), [len(each.partners) for each in self.ranked]
        less, equal = sum(n < count for n in others), sum(n == count for n in others)
        rear = self.rear
        if self.given.method == "auto":  # the fuller half of the queue costs probes first
            full = (self.busy - me.ts) / self.given.queue
            rear += (1 - rear) * min(1.0, max(0.0, 2 * full - 1))
        bar = rear * len(others)
        probed = less >= bar or (less + equal > bar and self.lot() >= (bar - less) / equal)
        numbers = {each.row for each in me.partners}
        if probed:
            self.spend(me.ts, 1.0)
            self.did.pairs.update((me.row, j) if me.side == 0 else (j, me.row) for j in numbers)
        elif numbers and me.enters:
            self.did.skipped[me.side, me.row] = numbers
        return probed

    # --- one period -----------------------------------------------------------------------------------------------

    def adapt(self, ts: int) -> None:
        given, elapsed, came = self.given, ts - self.began, self.came
        scores, self.scores, self.came, self.began = self.scores, [], [0, 0], ts
        if elapsed == inf or not any(came):
            return
        keys = list(self.seen[0])
        p = [{key: self.seen[s][key] / max(1e-300, sum(self.seen[s].values())) for key in keys} for s in range(2)]
        rate = [n / elapsed for n in came]
        share = [n / sum(came) for n in came]
        window = [float(w) if given.by_rows else w * r for w, r in zip(given.span, rate, strict=True)]
        whole = round(window[0]), round(window[1])
        if given.method in ("auto", "dual"):
            assert all(abs(n - w) < 1e-9 for n, w in zip(whole, window, strict=True)), "sums are over whole rows"
        spare = given.speed * (1 + (given.queue / 2 - max(0.0, self.busy - ts)) / elapsed)
        probes = max(1e-9, spare / sum(rate))
        fully = probes / (1 + given.update)
        counted, before = self.seen, self.was
        self.seen = [{key: 0.8 * n for key, n in side.items()} for side in self.seen]
        self.was = [dict(side) for side in self.seen]
        if fully >= 1:
            self.rear, self.bar, self.tie = 0.0, -1.0, 1.0
        elif given.method in FULLY:
            self.rear = 0.0
            self.bar, self.tie = 0.0, fully
            coming = [{key: rate[1 - s] * p[1 - s][key] for key in keys} for s in range(2)]
            if given.method == "modular":
                self.weights, self.worth = (0.0, 1.0), coming
                mass = [(coming[s][key], share[s] * p[s][key]) for s in range(2) for key in keys]
                self.bar, self.tie = bar_for(mass, fully)
            elif given.method == "integrated":
                self.worth = [
                    {k: v * window[s] / max(rate[s], 1e-300) for k, v in coming[s].items()} for s in range(2)
                ]
                self.bar, self.tie = bar_for([(score, 1 / len(scores)) for score in scores], fully)
        elif given.method == "auto":
            late = [{key: n - before[s].get(key, 0.0) for key, n in counted[s].items()} for s in range(2)]
            early = [{key: before[s].get(key, 0.0) for key in keys} for s in range(2)]
            enters = self.choose(p, share, probes, (early, late), whole)
            self.weights, self.worth, self.bar = (0.0, 1.0), enters, 0.5
            mass_in = sum(share[s] * p[s][key] * enters[s][key] for s in range(2) for key in keys)
            self.rear = min(1.0, max(0.0, 1 - probes + given.update * mass_in))
        else:
            x = self.front(p, share, probes, whole)
            self.bar, self.tie = (0.0, x) if x < 1 else (-1.0, 1.0)
            self.rear = min(1.0, max(0.0, 1 + given.update - probes / x))

    def front(self, p: list[dict[int, float]], share: list[float], probes: float, w: tuple[int, int]) -> float:
        """Return the share of rows that enter by lot."""
        given, update = self.given, self.given.update
        least, most = min(1.0, probes / (1 + update)), min(1.0, probes / update)
        if given.method == "rear":
            return most

        def counts(thin: float) -> list[tuple[int, float]]:
            return [
                (i, share[s] * p[s][key] * comb(w[1 - s], i) * q**i * (1 - q) ** (w[1 - s] - i))
                for s in range(2)
                for key, q in ((key, p[1 - s][key] * thin) for key in p[s])
                for i in range(w[1 - s] + 1)
            ]

        if given.over == "entered" and given.by_rows:
            chances = counts(1.0)
            per_work = []
            for least_count in range(max(w) + 2):
                found = sum(i * chance for i, chance in chances if i >= least_count)
                probed = sum(chance for i, chance in chances if i >= least_count)
                per_work.append((found / (update + probed), probed))
            best = max(range(len(per_work)), key=lambda m: (per_work[m][0], -m))
            return min(1.0, probes / (update + per_work[best][1]))
        tried = [least + (most - least) * j for j in SHARES]
        values = [top([(i, mass * x) for i, mass in counts(x)], min(x, max(0.0, probes - update * x))) for x in tried]
        return next(x for x, value in zip(tried, values, strict=True) if value >= max(values) * (1 - 1e-9))

    def choose(
        self,
        p: list[dict[int, float]],
        share: list[float],
        probes: float,
        seen: tuple[list[dict[int, float]], list[dict[int, float]]],
        w: tuple[int, int],
    ) -> list[dict[int, float]]:
        """Return (side, key) -> 1 if rows enter, else 0; windows over arrivals.

        `seen` is what came before the last period, and in it; `w` are the rows that come within each window.
        """
        held = {key for side in self.worth for key, worth in side.items() if worth}
        choice = Choice(p, share, self.given, probes, held, w)
        high = max(1.0, float(max(w)))
        prices = [0.0, *(0.25 * (high / 0.25) ** (j / 11) for j in range(12))]
        asked = [(price, part) for price in prices for part in PARTS]
        tried = [choice.entering(*each) for each in asked]
        values = [choice.promise(kept) for kept in tried]
        best = next(at for at, value in enumerate(values) if value >= max(values) * (1 - 1e-9))
        everybody = [dict.fromkeys(side, 1.0) for side in p]
        lasting = 1.0
        if all(sum(side.values()) > 0 for counts in seen for side in counts):
            early, late = ([{k: n / sum(s.values()) for k, n in s.items()} for s in counts] for counts in seen)
            kept = choice._replace(p=early).entering(*asked[best])
            for s in range(2):
                inside = [key for key, enters in kept[s].items() if enters > 0.5]
                mass = [sum(chances[s][key] for key in inside) for chances in (early, late)]
                lasting *= min(1.0, mass[1] / max(mass[0], 1e-300))
        self.lasted += 0.3 * (lasting - self.lasted)
        if probes > self.given.update and choice.promise(everybody) >= values[best] * self.lasted:
            return everybody
        return [{key: float(kept > 0.5) for key, kept in side.items()} for side in tried[best]]


class Choice(NamedTuple):
    """What there is to choose from for `auto`."""

    p: list[dict[int, float]]
    share: list[float]
    given: Given
    probes: float
    held: set[int]  # keys that enter now
    w: tuple[int, int]  # rows in each window

    def worthwhile(self, price: float) -> list[dict[int, float]]:
        """Take out keys until those that are left are worth entering."""
        p, share, w = self.p, self.share, self.w
        kept = [dict.fromkeys(side, 1.0) for side in p]
        while True:
            still: list[dict[int, float]] = [{}, {}]
            for s in range(2):
                for key, before in kept[s].items():
                    coming = share[1 - s] * p[1 - s][key] * w[s] / share[s]
                    met = tail(w[s] - 1, p[s][key] * before, ceil(price) - 1)
                    still[s][key] = before if coming * met >= price * self.given.update else 0.0
            if still == kept:
                return kept
            kept = still

    def entering(self, price: float, part: float) -> list[dict[int, float]]:
        """Keep those that give most for their work, those that enter already first."""
        p, share, kept = self.p, self.share, self.worthwhile(price)
        gain = {}
        for key in p[0]:
            both = share[0] * p[0][key] + share[1] * p[1][key]
            gain[key] = p[0][key] * p[1][key] / max(both, 1e-300) * (1.25 if key in self.held else 1.0)
        room = part * self.probes / self.given.update
        for key in sorted(gain, key=lambda key: -gain[key]):
            mass = sum(share[s] * p[s][key] * kept[s][key] for s in range(2))
            fits = min(1.0, max(0.0, room / mass)) if mass else float(room >= 0)
            room -= mass
            for s in range(2):
                kept[s][key] *= fits
        return kept

    def promise(self, kept: list[dict[int, float]]) -> float:
        """Return the pairs for each row that comes."""
        p, share, w = self.p, self.share, self.w
        work, counts = 0.0, []
        for s in range(2):
            for key in p[s]:
                work += self.given.update * share[s] * p[s][key] * kept[s][key]
                q = p[1 - s][key] * (kept[1 - s][key] > 0)
                for i in range(w[1 - s] + 1):
                    chance = comb(w[1 - s], i) * q**i * (1 - q) ** (w[1 - s] - i)
                    counts.append((i, share[s] * p[s][key] * kept[1 - s][key] * chance))
        return top(counts, min(1.0, max(0.0, self.probes - work)))


def model(given: Given, left: list[tuple[int, int]], right: list[tuple[int, int]]) -> Did:
    """Run both streams of (ts, key), in order of time and left first at equal times, and say what happened."""
    run = Model(given)
    rows = [(ts, side, row, key) for side, of in enumerate((left, right)) for row, (ts, key) in enumerate(of)]
    for ts, side, row, key in sorted(rows, key=lambda each: each[:3]):
        count = [sum(t <= ts for t, _ in of) for of in (left, right)]
        run.take(side, ts, row, key, (count[0], count[1]) if given.by_rows else (ts, ts))
    while given.method == "dual" and run.ranked:
        run.leave(later=True)
    return run.did
