"""Keep the books of a run: counters that balance, in words and as JSON."""

from dataclasses import dataclass
from typing import Any, NamedTuple


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

        return {name: plain(value) for name, value in vars(self).items()}

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("", "left", "right")]
        rows += [("arrivals", *map(_number, self.arrivals)), ("live", *map(_number, self.live))]
        rows += [("expired", *map(_number, self.expired))]
        rows += [(f"shed ({reason})", *map(_number, count)) for reason, count in self.shed.items() if count.total]
        rows += [("unprobed", *map(_number, self.unprobed))] if self.unprobed.total else []
        width = max(len(row[0]) for row in rows)
        lines = [f"{name:<{width}}  {left:>13}  {right:>13}" for name, left, right in rows]
        facts = [f"policy {self.policy}", f"{_number(self.pairs)} pairs"]
        if self.importance is not None:
            facts.append(f"importance {self.importance:,.6g}")
        if self.recall is not None:
            facts.append(f"recall {self.recall.mid:.1%}")
        facts.append(f"holding {_number(self.memory_rows)} rows, {_bytes(self.memory_bytes)}")
        facts.append(f"{_number(self.comparisons)} comparisons")
        return "\n".join([", ".join(facts), *lines])


def _number(value: int) -> str:
    return f"{value:,}"


def _bytes(value: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value} B"
