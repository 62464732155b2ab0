"""Make a CPU budget from what a user says."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from penstock.errors import InputError
from penstock.operator.settings import pair, positive
from penstock.policies.cpu import controller, dual
from penstock.policies.cpu.controller import Cpu
from penstock.streams.times import nanoseconds

METHODS = tuple(dict.fromkeys((*controller.METHODS, *dual.METHODS)))


def cpu(  # noqa: PLR0913 - one budget
    *,
    comparisons_per_second: float | None = None,
    latency: Any = None,
    share: float | None = None,
    method: str = "auto",
    basic_window: Any = None,
    every: Any = None,
    queue: Any = None,
    sampling: float = 0.1,
    types: Any = None,
    utility: Mapping[Any, float] | None = None,
    combine: str = "max",
    update: float = 0.25,
    over: str = "arrivals",
) -> Cpu:
    """Make a CPU budget for a join: ``cpu=pen.cpu(comparisons_per_second=100_000)``.

    The idea: on a condition, every row enters its window, and what is saved is comparisons. When rows come faster
    than they can be compared with the whole other window, each is compared with the part that pays most, learned from
    a sample. By the clock, with an index on sets, rows that promise most are let in instead, and others are dropped.
    On equal keys, a row is probed or not, by what it would find, and if there is no time even to let all rows enter,
    some are dropped at the queue. What was given up is in the ledger, row by row. With `comparisons_per_second` time
    is the rows' own, and a run repeats.

    Parameters:
        comparisons_per_second: rows compared (or lists opened and postings visited, with an index) per second of the
            time column; per tick where time is in ticks. On equal keys a probe counts as one.
        latency: a span such as "2 seconds": by the clock on the wall, how long a row may wait and its batch take.
            What a comparison takes is measured. A push gets 80 % of it, or half of that if the caller came
            straight back from the last one, for then rows were waiting. If rows are behind, it gets so much less.
        share: by the same clock, the part of each second of the time column that the join may be at work; of each
            tick, where time is in ticks.
        method: on a condition "selective" ("auto" means it; with an index and a latency, "auto" lets in the
            rows that promise most by their items); or, to compare with: "rate", "correlation" or
            "direction", the paper's steps, each with those before it. On equal keys "auto": the best choice of rows
            and of how many to probe, by what it promises; "dual" as dual2006 has it, "rear" without its
            front-shedding, or "selective". To compare with: "random-drop" drops rows at the queue; on keys also
            "modular", by how often their partners come, and "integrated", by that and the partners in memory.
        basic_window: the parts that a window is cut into; default a twentieth of the window. To compare with: "none".
        every: how often to adapt: half the period of bursts is good; default a quarter of the window.
        queue: how long a row may wait; default as long as a basic window, at least 2 ticks.
        sampling: the share of the work that goes into learning (the paper's gamma).
        types: a column, or ("left", "right"), with the type of each row; goes with `utility`.
        utility: {type: value}; what is worth most is then probed first, instead of what gives most pairs.
        combine: the value of a pair: "max" or "mean" of its rows.
        update: on equal keys, what it costs to let a row enter its window, in comparisons.
        over: on equal keys and windows in rows, whether a window is the last rows that came ("arrivals"), so that
            what is found is part of the exact join, or the last that entered ("entered"), as in dual2006.

    Examples:
        >>> import penstock as pen
        >>> print(pen.cpu(comparisons_per_second=5000))
        cpu(5000 comparisons a second, auto)

    References: gedik2007 §4, §5; dual2006 §3, §4; das2003 §2.1.
    """
    given = [name for name, one in (("latency", latency), ("share", share)) if one is not None]
    if len(given) + (comparisons_per_second is not None) > 1:
        raise InputError(given[0], "more than one budget", "give one of comparisons_per_second, latency and share")
    if method not in METHODS:
        raise InputError("method", repr(method), f"give one of {', '.join(map(repr, METHODS))}")
    if over not in {"arrivals", "entered"}:
        raise InputError("over", repr(over), 'give "arrivals" or "entered"')
    if (types is None) != (utility is None) or (utility is not None and not utility):
        raise InputError("utility", f"{utility!r} with types={types!r}", "give both, a column and {type: value}")
    if combine not in {"max", "mean"}:
        raise InputError("combine", repr(combine), 'give "max" or "mean"')
    if types is not None:
        pair("types", types)
    values = {kind: positive(f"utility[{kind!r}]", value, zero=True) for kind, value in (utility or {}).items()}
    if positive("sampling", sampling) > 1:
        raise InputError("sampling", repr(sampling), "give a number above 0 and up to 1")
    if latency is not None and not (isinstance(latency, str | timedelta) and nanoseconds("latency", latency) > 0):
        raise InputError("latency", repr(latency), 'give a span such as "2 seconds"')
    if share is not None and positive("share", share) > 1:
        raise InputError("share", repr(share), "give a number above 0 and up to 1")
    speed = None if given else positive("comparisons_per_second", comparisons_per_second)
    cost = positive("update", update)
    return Cpu(
        speed,
        method,
        basic_window,
        every,
        queue,
        float(sampling),
        types,
        values or None,
        combine,
        cost,
        over,
        latency,
        None if share is None else float(share),
    )
