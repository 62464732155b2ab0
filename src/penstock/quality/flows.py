"""Keep the books of a join of several streams: what came, stayed and was given up, in which orders it was joined."""

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from penstock.quality.books import Estimate, Guess, recall_in_words, recall_of

REASONS = ("budget", "late")  # for which rows are given up


class Order(NamedTuple):
    """An order of the loops, or one for each stream: since when, at what cost, how many times cheaper, and why."""

    since: Any
    order: list[str] | dict[str, list[str]]
    cost: float
    gain: float
    reason: str


@dataclass(frozen=True)
class Flows:
    """What a join of several streams has done.

    Every row that came is live, expired or shed; a row without a key expires on arrival.
    """

    policy: str
    arrivals: dict[str, int]
    live: dict[str, int]
    shed: dict[str, dict[str, int]]  # by reason
    results: int
    memory_bytes: int
    comparisons: int
    orders: list[Order]
    importance: float | None = None  # summed over the results, where rows have one
    one_shard: str = ""  # why streams cannot be divided by key, on Spark; empty: they can
    guesses: tuple[Guess, Guess | None] = field(default=(Guess(0), None), repr=False)  # of the exact join

    @property
    def exact_estimate(self) -> Estimate:
        """How many results there would be without shedding, with a 95 % interval."""
        return self.guesses[0].interval(self.results)

    @property
    def recall(self) -> Estimate:
        """The share of them that was found."""
        return recall_of(self.results, self.exact_estimate)

    @property
    def importance_estimate(self) -> Estimate | None:
        """As `exact_estimate`, of the importance."""
        return self.guesses[1] and self.guesses[1].interval(self.importance or 0.0)

    @property
    def expired(self) -> dict[str, int]:
        """Rows that were too old, by stream."""
        shed = {name: sum(count[name] for count in self.shed.values()) for name in self.arrivals}
        return {name: came - self.live[name] - shed[name] for name, came in self.arrivals.items()}

    @property
    def memory_rows(self) -> int:
        """How many rows the windows hold together."""
        return sum(self.live.values())

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        orders = [{**order._asdict(), "since": _plain(order.since)} for order in self.orders]
        known = {name: value for name, value in asdict(self).items() if name != "guesses"}
        estimates = {name: getattr(self, name) for name in ("exact_estimate", "recall", "importance_estimate")}
        return {
            **known,
            "expired": self.expired,
            "memory_rows": self.memory_rows,
            "orders": orders,
            **{name: estimate and estimate._asdict() for name, estimate in estimates.items()},
        }

    def __str__(self) -> str:
        names = list(self.arrivals)
        counts = {"arrivals": self.arrivals, "live": self.live, "expired": self.expired}
        counts |= {f"shed ({reason})": count for reason, count in self.shed.items() if any(count.values())}
        rows = [["", *names], *([what, *(f"{count[name]:,}" for name in names)] for what, count in counts.items())]
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        facts = [
            f"policy {self.policy}",
            f"{self.results:,} results",
            *([f"importance {self.importance:,.6g}"] if self.importance is not None else []),
            f"recall {recall_in_words(self.recall)}",
            f"holding {self.memory_rows:,} rows",
            f"{self.comparisons:,} comparisons",
        ]
        orders = [
            f"since {order.since}: {in_words(order.order)} ({order.reason}"
            + (f"; {order.gain:.1f} times cheaper)" if at else ")")
            for at, order in enumerate(self.orders)
        ]
        shards = [f"one shard on Spark: {self.one_shard}"] if self.one_shard else []
        return "\n".join([", ".join(facts), *lines, *orders, *shards])


def in_words(order: list[str] | dict[str, list[str]]) -> str:
    """Return an order of streams, or one for the new rows of each, as a text."""
    if isinstance(order, dict):
        return "; ".join(f"{name}: {in_words(mine)}" for name, mine in order.items())
    return ", ".join(order)


def _plain(time: Any) -> Any:
    return time if isinstance(time, int) else str(time)
