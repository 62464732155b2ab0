"""Keep the books of a run: counters that balance, in words and as JSON."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

DEVIATIONS = 1.959964  # of a normal variable, to either side: 95 %


class Sides(NamedTuple):
    """A number for each side."""

    left: int
    right: int

    @property
    def total(self) -> int:
        """Both sides together."""
        return self.left + self.right


NOBODY = Sides(0, 0)


class Estimate(NamedTuple):
    """A number and the interval it lies in."""

    low: float
    mid: float
    high: float


class Guess(NamedTuple):
    """An unbiased estimate, which can be merged with others.

    `grain` is what one pair that the sample has just not seen would have added; 0: everything was seen.
    """

    mid: float
    variance: float = 0.0
    grain: float = 0.0

    def merged(self, other: "Guess") -> "Guess":
        """Return the estimate of both together, of shards that share no key."""
        return Guess(self.mid + other.mid, self.variance + other.variance, max(self.grain, other.grain))

    def interval(self, least: float) -> Estimate:
        """Return the estimate with its 95 % interval; `least` is known to be there.

        The idea: counts of rare things are skewed. Their variance grows with their mean, so the interval holds the
        means that are within 1.96 of *their own* deviations of the estimate (a score interval). With many sampled
        pairs it is the usual one.
        """
        grain = max(self.grain, self.variance / self.mid if self.mid > 0 else 0.0)
        middle = self.mid + DEVIATIONS**2 * grain / 2
        reach = DEVIATIONS * math.sqrt(self.variance + (DEVIATIONS * grain / 2) ** 2)
        return Estimate(*(max(value, least) for value in (middle - reach, self.mid, middle + reach)))


def recall_of(found: float, exact: Estimate) -> Estimate:
    """Return the share that was found of what there is; of nothing, all was found."""
    low, mid, high = (min(1.0, found / whole) if whole > 0 else 1.0 for whole in exact)
    return Estimate(high, mid, low)


def recall_in_words(recall: Estimate | None) -> str:
    """Return a recall with its interval, if it has one."""
    if recall is None:
        return "not known"
    low, mid, high = (100 * share for share in recall)
    return f"{mid:.1f}%" if high - low < 0.05 else f"{mid:.1f}% ({low:.1f}-{high:.1f})"


@dataclass(frozen=True)
class Report:
    """What a join has done so far.

    Every row that came is live, expired or shed: ``arrivals = live + expired + shed``, on each side.
    """

    policy: str
    arrivals: Sides
    live: Sides
    expired: Sides
    shed: dict[str, Sides]
    pairs: int
    importance: float | None  # summed over the pairs, where rows have one
    exact_estimate: Estimate | None  # how many pairs there would be without shedding; None: not known
    recall: Estimate | None
    memory_rows: int
    memory_bytes: int
    comparisons: int
    unprobed: Sides = NOBODY  # rows that were not compared with all of the other window, and entered it
    importance_estimate: Estimate | None = None  # as `exact_estimate`, of the importance
    slowest: float | None = None  # seconds of the longest batch, where a CPU budget is by the clock on the wall
    possible_latency: float | None = None  # on Spark: the seconds that could be kept, where those asked for cannot
    division: str = ""  # how rows were divided between shards: by "keys", by "items", or in "turns"; "": not at all
    mode: str = "shed"  # "observe": nothing was shed; this is what the budget would have done
    guesses: tuple[Guess | None, Guess | None] = field(default=(None, None), repr=False, compare=False)  # to merge

    @property
    def balanced(self) -> bool:
        """Whether the books balance."""
        return all(
            self.arrivals[side]
            == self.live[side] + self.expired[side] + sum(count[side] for count in self.shed.values())
            for side in range(2)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""

        def plain(value: object) -> object:
            if isinstance(value, Sides | Estimate):
                return value._asdict()
            if isinstance(value, dict):
                return {key: plain(inner) for key, inner in value.items()}
            return value

        return {name: plain(value) for name, value in vars(self).items() if name != "guesses"}

    @property
    def recall_in_words(self) -> str:
        """Recall with its interval, if it has one: "81.2 % (80.4-82.0)"."""
        return recall_in_words(self.recall)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("", "left", "right")]
        rows += [("arrivals", *map(_number, self.arrivals)), ("live", *map(_number, self.live))]
        rows += [("expired", *map(_number, self.expired))]
        rows += [(f"shed ({reason})", *map(_number, count)) for reason, count in self.shed.items() if count.total]
        rows += [("unprobed", *map(_number, self.unprobed))] if self.unprobed.total else []
        width = max(len(row[0]) for row in rows)
        lines = [f"{name:<{width}}  {left:>13}  {right:>13}" for name, left, right in rows]
        facts = [f"policy {self.policy}", f"{_number(self.pairs)} pairs"]
        if self.mode == "observe":
            facts.insert(0, "observed, nothing shed")
        if self.importance is not None:
            facts.append(f"importance {self.importance:,.6g}")
        if self.recall is not None:
            facts.append(f"recall {self.recall_in_words}")
        facts.append(f"holding {_number(self.memory_rows)} rows, {_bytes(self.memory_bytes)}")
        facts.append(f"{_number(self.comparisons)} comparisons")
        if self.division:
            facts.append(f"rows divided {'in' if self.division == 'turns' else 'by'} {self.division}")
        if self.slowest is not None:
            facts.append(f"longest batch {self.slowest:.3g} s")
        if self.possible_latency is not None:
            facts.append(f"the latency cannot be kept, {self.possible_latency:.3g} s could")
        return "\n".join([", ".join(facts), *lines])


def _number(value: int) -> str:
    return f"{value:,}"


def _bytes(value: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value} B"
