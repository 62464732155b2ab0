"""A plan: which loops for the new tuples of each stream, and what they cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InputError
from penstock.planner.cost import ONE_ORDER, Floats, Model, Order, checked
from penstock.planner.indexes import allotted, with_buckets
from penstock.planner.orders import cheapest, every_order, heuristic
from penstock.planner.statistics import Selectivity, Stream

JOINS = ("nested", "hash")
ALGORITHMS = ("naive", "eager", "lazy", "general")
CLEARLY = 1.1  # how many times cheaper loops must be to be taken for those of LAZY or NAIVE: the model errs


@dataclass(frozen=True)
class Plan:
    """The order of a join of several windows, with its price.

    Parameters:
        streams: with the buckets that they have in this plan.
        algorithm: "naive", "eager", "lazy" or "general".
        every: the interval of lazy re-evaluation; None: eager.
        selectivity: of the edges of a join graph; None: a common attribute.
        order: the global order; an order for the new tuples of each stream where they differ.
        stopping: whether loops stop early, as ``planner.cost.Model`` says.
    """

    streams: tuple[Stream, ...]
    algorithm: str
    every: float | None
    selectivity: Selectivity | None
    order: tuple[str, ...] | dict[str, tuple[str, ...]]
    stopping: bool = False

    @cached_property
    def _model(self) -> Model:
        return Model(self.streams, every=self.every, selectivity=self.selectivity, stopping=self.stopping)

    @cached_property
    def _nests(self) -> list[Order]:
        names = self._model.names
        given = [self.order[name] for name in names] if isinstance(self.order, dict) else [self.order]
        return self._model.nests(self.algorithm, [tuple(names.index(name) for name in order) for order in given])

    @cached_property
    def charges(self) -> Floats:
        """What each loop costs: (source of the new tuples, window)."""
        return self._model.charges(self._nests)

    @property
    def orders(self) -> dict[str, tuple[str, ...]]:
        """The loops for the new tuples of each stream, the outermost first."""
        names = self._model.names
        return {names[i]: tuple(names[place] for place in nest) for i, nest in enumerate(self._nests)}

    @property
    def cost(self) -> float:
        """Comparisons per unit of time."""
        return float(self.charges.sum())

    @property
    def parts(self) -> dict[str, float]:
        """The cost of the new tuples of each stream: C_i, lazily L_i; of NAIVE and GENERAL G_i, lazily H_i."""
        return dict(zip(self._model.names, self.charges.sum(axis=1).tolist(), strict=True))

    def costs(self) -> pa.Table:
        """Return all orders with their costs, the cheapest first.

        Returns:
            `order` and `cost`; before them, if each stream has an order of its own, `new`: whose new tuples.

        Raises:
            InputError: if there are more than 9 streams.
        """
        names = np.array(self._model.names, object)
        searches = self._model.searches(self.algorithm)
        parts = []
        for source, steps in enumerate(searches):
            found = every_order(steps)
            rank = np.argsort(found.costs, kind="stable")
            rows = {"order": pa.array(names[found.orders[rank]].tolist()), "cost": pa.array(found.costs[rank])}
            new = {"new": pa.array([names[source]] * rank.size)} if len(searches) > 1 else {}
            parts.append(pa.table({**new, **rows}))
        return pa.concat_tables(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON holds it."""
        return {
            "order": self.order if isinstance(self.order, dict) else list(self.order),
            "cost": self.cost,
            "algorithm": self.algorithm,
            "every": self.every,
            "parts": self.parts,
            "orders": {name: list(order) for name, order in self.orders.items()},
            "buckets": {stream.name: stream.buckets for stream in self.streams},
        }

    def __str__(self) -> str:
        when = "eager" if self.every is None else f"every {self.every:g}"
        head = f"{self.algorithm.upper()}, {when}: {self.cost:,.6g} comparisons per unit of time"
        if isinstance(self.order, dict):
            trees = [f"new tuples of {name}: {_tree(mine)}" for name, mine in self.order.items()]
        else:
            trees = [_tree(self.order)]
        return "\n".join([head, "", *trees, "", *(self._loops(i) for i in range(len(self.streams)))])

    def _loops(self, source: int) -> str:
        """Return the nested loops for the new tuples of one stream, each with its cost."""
        mine = self.streams[source]
        lines = [f"new tuples of {mine.name}: {self.charges[source].sum():,.6g}"]
        for depth, place in enumerate(self._nests[source]):
            window = self.streams[place]
            count = self._model.fresh[source] if place == source else self._model.size[place]
            indexed = f" in {window.buckets} buckets" if window.buckets and depth else ""
            what = "new" if place == source else f"{count:,.6g}{indexed}"
            paid = f": {self.charges[source, place]:,.6g}" if depth else ""
            lines.append(f"{'  ' * (depth + 1)}for {window.name} ({what}){paid}")
        return "\n".join(lines)


def _tree(order: Sequence[str]) -> str:
    *outer, last = order
    return "".join(f"{name} ⋈ (" for name in outer[:-1]) + f"{outer[-1]} ⋈ {last}" + ")" * (len(order) - 2)


def make(
    streams: Sequence[Stream],
    *,
    join: str = "nested",
    every: float | None = None,
    order: Any = None,
    algorithm: str = "auto",
    memory: int | None = None,
    selectivity: Selectivity | None = None,
    stopping: bool = False,
) -> Plan:
    """Plan a join.

    Parameters:
        streams: what is known of each.
        join: "nested": indexes are not used; "hash": windows with buckets are indexed, the others are scanned.
        every: the interval of lazy re-evaluation; None: eager.
        order: None: the cheapest; "heuristic": the paper's; names in global order; or such an order for each stream.
        algorithm: "naive", "eager", "lazy", "general"; "auto": EAGER if `every` is None, else GENERAL LAZY.
        memory: hash buckets to share out over all windows; None: the streams say how many each has.
        selectivity: of the edges of a join graph; None: all streams are joined on a common attribute.
        stopping: whether loops stop early, as ``planner.cost.Model`` says.

    Cost: O(n^2 2^n), n being the number of streams.
    """
    known = checked(streams, selectivity)
    algorithm = _algorithm(algorithm, every)
    if join not in JOINS:
        raise InputError("join", repr(join), f"give one of {', '.join(map(repr, JOINS))}")
    if join == "nested":
        if memory is not None:
            raise InputError("memory", repr(memory), 'it is for hash buckets: give join="hash" as well')
        known = with_buckets(known, [1] * len(known))
    elif memory is None and not any(stream.buckets for stream in known):
        raise InputError("join", repr(join), "give streams their buckets=, or memory= to share out")

    def planned(streams: list[Stream]) -> tuple[Model, list[Order]]:
        model = Model(streams, every=every, selectivity=selectivity, stopping=stopping)
        return model, model.nests(algorithm, _found(model, algorithm, order))

    if memory is not None:
        known = allotted(known, memory, planned)
    model = Model(known, every=every, selectivity=selectivity, stopping=stopping)
    named = [tuple(model.names[place] for place in found) for found in _found(model, algorithm, order)]
    one = named[0] if len(named) == 1 else dict(zip(model.names, named, strict=True))
    made = Plan(tuple(known), algorithm, every, selectivity, one, stopping)
    if not np.isfinite(made.cost):
        raise InputError("order", repr(order), "after the first, join each stream with one before it")
    return made


def _algorithm(name: str, every: float | None) -> str:
    if name == "auto":
        return "eager" if every is None else "general"
    if name not in ALGORITHMS:
        raise InputError("algorithm", repr(name), f'give "auto" or one of {", ".join(map(repr, ALGORITHMS))}')
    if name == ("lazy" if every is None else "eager"):
        other = "give evaluation=pen.every(...)" if every is None else 'its lazy form is "lazy"'
        raise InputError("algorithm", repr(name), other)
    return name


def _found(model: Model, algorithm: str, order: Any) -> list[Order]:
    """Return one order, or one for each stream: found, or as given."""
    searches = model.searches(algorithm)
    sources = [None] if len(searches) == 1 else range(len(searches))
    if order is None:
        found = [cheapest(steps, source) for steps, source in zip(searches, sources, strict=True)]
        return _no_worse(model, found) if algorithm == "general" and model.stopping else found
    if isinstance(order, str) and order == "heuristic":
        return [heuristic(model, steps, source) for steps, source in zip(searches, sources, strict=True)]
    if isinstance(order, Mapping):
        if algorithm in ONE_ORDER and len(searches) == 1:
            raise InputError("order", repr(order), f"{algorithm.upper()} takes one order for all streams")
        if set(order) != set(model.names):
            raise InputError("order", repr(order), f"give an order for each of {', '.join(model.names)}")
        return [_places(order[name], model.names) for name in model.names]
    return [_places(order, model.names)]


def _no_worse(model: Model, found: list[Order]) -> list[Order]:
    """Return the orders of GENERAL where they are clearly cheaper than those of LAZY or NAIVE, elsewhere these.

    The idea: of many orders that the model takes for about as cheap, the one that seems cheapest is likely one of
    those that it flatters. LAZY and NAIVE have fewer to choose from.
    """
    plain = [model.nests(name, _found(model, name, None)) for name in ("lazy", "naive")]
    costs = [model.charges(nests).sum(axis=1) for nests in plain]
    base, paid = min(zip(plain, costs, strict=True), key=lambda each: float(each[1].sum()))
    own = model.charges(found).sum(axis=1)
    return [
        mine if CLEARLY * cost < before else given
        for mine, cost, given, before in zip(found, own, base, paid, strict=True)
    ]


def _places(order: Any, names: list[str]) -> Order:
    if not isinstance(order, Sequence) or isinstance(order, str) or sorted(map(str, order)) != sorted(names):
        want = f'give {", ".join(names)} in some order, each once; "heuristic"; or None'
        raise InputError("order", repr(order), want)
    return tuple(names.index(name) for name in order)
