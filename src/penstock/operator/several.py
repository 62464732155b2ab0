"""Check what was asked of a join of several streams, before any work starts, and turn it into numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.chain import Chain, Edge
from penstock.core.rings import BY_ROOM, Batch
from penstock.core.windows import Ints, Masks
from penstock.core.worth import Budget
from penstock.errors import ColumnError, InputError, WindowError
from penstock.operator.budget import budget_of, policy_of
from penstock.operator.results import COMBINED
from penstock.operator.settings import ROW_BYTES, amount, check_combine, check_seed, importance_of, patience, weighs
from penstock.planner import plan as planning
from penstock.planner.plan import Plan
from penstock.planner.statistics import (
    COMPARED,
    Link,
    Selectivity,
    Stream,
    comparable,
    edges,
    parts_of,
    per_stream,
    whole,
)
from penstock.quality.gauge import Gauge
from penstock.streams.intake import NO_FLOATS, NO_INTS, Intake, Ready, Side
from penstock.streams.keys import Coder, common_type, ranks
from penstock.streams.payload import row_bytes
from penstock.streams.times import Clock, Every, Rows, common_clock

INDEXES = ("auto", "hash", "none")


@dataclass(frozen=True)
class Settings:
    """The arguments of a join of several streams, as given."""

    on: Any
    time: Any
    windows: Any
    lateness: Any = 0
    order: Any = "auto"
    evaluation: Any = "eager"
    expiration: Any = "auto"
    index: Any = "auto"
    algorithm: str = "auto"
    price: Any = 1
    cross: bool = False
    memory: Any = None
    policy: Any = "auto"
    importance: Any = None
    combine: str = "min"
    shards: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what can be checked without columns."""
        check_combine(self.combine)
        check_seed(self.seed)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments by name, as given."""
        return dict(vars(self))


def settings_of(arguments: Mapping[str, Any]) -> Settings:
    """Check the arguments of a join of several streams by name."""
    known = Settings.__dataclass_fields__
    for name, value in arguments.items():
        if name not in known:
            raise InputError(name, repr(value), f"no such argument for several streams; there are {', '.join(known)}")
    for name in ("on", "time", "windows"):
        if name not in arguments:
            raise InputError(name, "nothing", "this argument is required")
    return Settings(**arguments)


class Key(NamedTuple):
    """Columns of one stream that are compared with those of others, and how they become codes."""

    stream: int
    names: list[str]
    coder: Coder
    how: str = "="

    def codes(self, table: pa.Table) -> tuple[Ints, Any]:
        """Return a code per row, and which rows have all they need (None: all)."""
        columns = [table[name] for name in self.names]
        return self.coder.code(columns) if self.how == "=" else ranks(columns[0], self.coder.types[0])


class Bound:
    """The settings, checked against the columns of all streams."""

    def __init__(self, settings: Settings, schemas: Mapping[str, pa.Schema]) -> None:
        self.settings = settings
        self.names = list(schemas)
        self.schemas = list(schemas.values())
        self.time: list[str] = list(per_stream("time", settings.time, self.names).values())
        for at, column in enumerate(self.time):
            self._present(at, column, "time")
        self.clock = self._common_clock()
        self.patient, self.lateness = patience(settings.lateness, self.clock)
        self.windows = per_stream("windows", settings.windows, self.names)
        self.by_rows = [isinstance(window, Rows) for window in self.windows.values()]
        self.span = [self._span(window) for window in self.windows.values()]
        self.every, self.expiry = self._intervals()
        self.using: list[str] = []
        self.links: list[Link] = []  # of a join graph
        self.keys, self.edges = self._keys()
        self.index = self._index()
        self.price: list[float] = list(per_stream("price", settings.price, self.names).values())
        self.columns = np.bincount([key.stream for key in self.keys], minlength=len(self.names)).tolist()
        self.most = max(1, *self.columns)
        self.importance: list[str] | None = None
        if settings.importance is not None:
            self.importance = list(per_stream("importance", settings.importance, self.names).values())
            for at, column in enumerate(self.importance):
                weighs(self.schemas[at], column, at, self.names[at])
        self.layout, self.schema = self._layout()
        self.policy = "exact" if settings.memory is None else str(policy_of(settings.policy))
        self.unit_of_memory, _ = amount(settings.memory)
        self.budget = budget_of(settings, self.span, self.by_rows, self.clock, self.edges, common=bool(self.using))
        self.rings, self.buckets = self._buckets()

    def _present(self, stream: int, column: object, argument: str) -> None:
        names = self.schemas[stream].names
        if not isinstance(column, str) or names.count(column) != 1:
            found = "that column twice" if column in names else "no such column"
            where = f"{found} in {self.names[stream]}"
            raise ColumnError(f"{argument}={column!r}", where, f"it has {', '.join(names)}")

    def _common_clock(self) -> Clock:
        kinds = [schema.field(column).type for schema, column in zip(self.schemas, self.time, strict=True)]
        return reduce(lambda clock, kind: common_clock(clock.type, kind), kinds[1:], common_clock(kinds[0], kinds[0]))

    def _span(self, window: object) -> int:
        span = window.count if isinstance(window, Rows) else self.clock.ticks("windows", window)
        if isinstance(span, bool) or not isinstance(span, int | np.integer) or span < 1:
            raise WindowError("windows", str(window), "a window must be at least one tick or row long")
        return int(span)

    def _intervals(self) -> tuple[int | None, int]:
        """Return the intervals of lazy evaluation (None: eager) and of expiration (0: eager), in ticks."""
        evaluation, expiration = self.settings.evaluation, self.settings.expiration
        every = None if evaluation == "eager" else self._interval("evaluation", evaluation)
        if isinstance(expiration, str) and expiration == "auto":
            return every, every or 0
        if isinstance(expiration, str) and expiration == "eager":
            if every is not None:
                want = "lazy evaluation needs lazy expiration: give pen.every(...), or leave it out"
                raise InputError("expiration", repr(expiration), want)
            return every, 0
        expiry = self._interval("expiration", expiration)
        if every is not None and expiry < every:
            raise InputError("expiration", str(expiration), f"old rows leave at most as often as {evaluation}")
        return every, expiry

    def _interval(self, argument: str, given: object) -> int:
        if not isinstance(given, Every):
            raise InputError(argument, repr(given), 'give "eager" or pen.every(...)')
        ticks = self.clock.ticks(argument, given.interval)
        if ticks < 1:
            raise InputError(argument, str(given), "an interval is at least one tick long")
        return ticks

    def _keys(self) -> tuple[list[Key], list[Edge]]:
        """Return the key columns of all streams, in their order, and which of them must be equal."""
        on = self.settings.on
        if isinstance(on, Mapping):
            self.links = edges(on, self.names)
            if not self.settings.cross:
                whole(
                    self.names, [link.pair for link in self.links], "on", "; or ask for all combinations: cross=True"
                )
            return self._graph_keys(self.links)
        self.using = [on] if isinstance(on, str) else on
        if not (isinstance(self.using, list) and self.using):
            want = "give a column, a list of columns, or a join graph {(name, name): column}"
            raise ColumnError("on", repr(on), want)
        for at in range(len(self.names)):
            for column in self.using:
                self._present(at, column, "on")
        coder = Coder(tuple(self._common_type(column) for column in self.using))
        keys = [Key(at, self.using, coder) for at in range(len(self.names))]
        return keys, [Edge(one, one, other, other) for one, other in combinations(range(len(self.names)), 2)]

    def _common_type(self, column: str) -> pa.DataType:
        first, *others = [schema.field(column).type for schema in self.schemas]
        return reduce(lambda kind, other: common_type(kind, other, column), others, first)

    def _graph_keys(self, links: list[Link]) -> tuple[list[Key], list[Edge]]:
        ends: list[tuple[Key, Key]] = []
        for link in links:
            places = [self.names.index(name) for name in link.pair]
            schemas = [self.schemas[place] for place in places]
            for place, (_, columns) in zip(places, link.ends, strict=True):
                for column in columns:
                    self._present(place, column, "on")
            common = common_type if link.how == "=" else comparable
            kinds = [
                common(schemas[0].field(mine).type, schemas[1].field(theirs).type, mine)
                for mine, theirs in zip(link.mine, link.theirs, strict=True)
            ]
            coder = Coder(tuple(kinds))
            mine, theirs = (
                Key(place, columns, coder, link.how) for place, (_, columns) in zip(places, link.ends, strict=True)
            )
            ends.append((mine, theirs))
        ordered = sorted((key for end in ends for key in end), key=lambda key: key.stream)
        numbers = {id(key): number for number, key in enumerate(ordered)}
        return ordered, [
            Edge(a.stream, numbers[id(a)], b.stream, numbers[id(b)], COMPARED.index(a.how)) for a, b in ends
        ]

    def _index(self) -> list[int]:
        """Return how many buckets the index of each window has; 0: it has none."""
        found = []
        for name, index in per_stream("index", self.settings.index, self.names).items():
            is_count = isinstance(index, int | np.integer) and not isinstance(index, bool) and index >= 1
            if not is_count and not (isinstance(index, str) and index in INDEXES):
                want = 'give "auto", "hash", "none", or a number of buckets'
                raise InputError("index", f"{index!r} for {name}", want)
            found.append(int(index) if is_count else {"none": 0}.get(index, BY_ROOM))
        return found

    def _buckets(self) -> tuple[list[int], list[int]]:
        """Return how many rings each window has, and how many chains each key.

        A number of buckets makes a ring of each if rows are in one index, in time, and stay until they are too old.
        """
        rings = []
        for at, (count, by_rows) in enumerate(zip(self.index, self.by_rows, strict=True)):
            mine = [key.how for key in self.keys if key.stream == at]
            rings.append(count if mine == ["="] and count > 0 and not by_rows and self.budget is None else 1)
        chains = [0 if count == 1 or several > 1 else count for count, several in zip(self.index, rings, strict=True)]
        return rings, [chains[key.stream] if key.how == "=" else 0 for key in self.keys]

    def _layout(self) -> tuple[list[tuple[str, int, str]], pa.Schema]:
        """Return the result's columns as (name, stream, source), and its schema."""
        shown = [(name, 0, name) for name in self.using]
        sources = [[name for name in schema.names if name not in self.using] for schema in self.schemas]
        every = [name for mine in sources for name in mine]
        added = ["importance"] * bool(self.importance)
        for at, mine in enumerate(sources):
            clash = {name for name in mine if every.count(name) > 1 or name in (*self.using, *added)}
            shown += [(f"{name}_{self.names[at]}" if name in clash else name, at, name) for name in mine]
        names = [*(name for name, _, _ in shown), *added]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ColumnError("result", f"two columns named {twice[0]!r}", "rename one before the join")
        fields = []
        for at, (name, stream, source) in enumerate(shown):
            field = self.schemas[stream].field(source)
            kind = field.type
            if at < len(self.using) and any(schema.field(source).type != kind for schema in self.schemas):
                kind = self.keys[0].coder.types[at]
            fields.append(pa.field(name, kind, field.nullable))
        fields += [pa.field(name, pa.float64()) for name in added]
        return shown, pa.schema(fields)

    @property
    def event_time(self) -> None:
        """No column carries the time of results: they come when the watermark has passed them."""

    @property
    def one_shard(self) -> str:
        """Why the streams cannot be divided by key; empty: they can."""
        if not self.using:
            return "there is no key common to all streams"
        return "windows in rows count over the whole stream" if any(self.by_rows) else ""

    @property
    def division(self) -> str:
        """How rows are divided between shards."""
        return "keys"

    def places(self, stream: int, table: pa.Table) -> tuple[Ints, Masks | None]:
        """Return codes by which rows are divided, alike if they may meet, and which have no null among their keys."""
        if not self.using:
            return np.zeros(table.num_rows, np.int64), None
        return self.keys[stream].codes(table)

    def needs(self, stream: int, name: str) -> bool:
        """Say whether a row of a stream must have this column to be joined: a key, the time, its importance."""
        if name == self.time[stream] or (self.importance and name == self.importance[stream]):
            return True
        return any(key.stream == stream and name in key.names for key in self.keys)

    # --- order ----------------------------------------------------------------------------------------------------

    def plan(self, streams: Sequence[Stream], selectivity: Selectivity | None) -> Plan:
        """Find the order, or price the one that is given, from what was measured of the streams."""
        settings = self.settings
        algorithm = settings.algorithm
        if algorithm == "auto" and self.every is not None:
            algorithm = "lazy"  # new rows outermost let the other loops stop early, which the model does not count
        return planning.make(
            [self._indexed(at, stream) for at, stream in enumerate(streams)],
            join="hash" if any(self.buckets) or max(self.rings) > 1 else "nested",
            every=None if self.every is None else self.every * self.unit,
            order=None if self.adapts else settings.order,
            algorithm=algorithm,
            selectivity=self._connected(selectivity),
            stopping=True,
        )

    @property
    def adapts(self) -> bool:
        """Whether the order is chosen, and changed when that pays."""
        return isinstance(self.settings.order, str) and self.settings.order == "auto"

    @property
    def unit(self) -> float:
        """The length of a tick: 1, or in seconds where time is in timestamps."""
        return 1.0 if self.clock.unit is None else self.clock.unit / 10**9

    def _indexed(self, at: int, stream: Stream) -> Stream:
        index = self.index[at] if any(key.stream == at and key.how == "=" for key in self.keys) else 0
        return replace(stream, buckets=max(1, int(stream.distinct)) if index == BY_ROOM else index or None)

    def _connected(self, selectivity: Selectivity | None) -> Selectivity | None:
        """Return the selectivity of the edges; if asked, parts that hang apart meet as a cross product."""
        if selectivity is None or not self.settings.cross:
            return selectivity
        first, *others = parts_of(self.names, list(selectivity))
        return {**selectivity, **{(first[0], other[0]): 1.0 for other in others}}

    def nests(self, plan: Plan) -> list[list[int]]:
        """Return the loops of a plan, streams by number."""
        return [[self.names.index(name) for name in plan.orders[source]] for source in self.names]

    def chain(self, plan: Plan, budget: Budget | None) -> Chain:
        """Make the windows and loops of a plan."""
        return Chain(
            self.span, self.by_rows, self.nests(plan), self.columns, self.edges, self.rings, self.buckets,
            common=bool(self.using), eager=self.every is None, expiry=self.expiry, budget=budget,
        )  # fmt: skip

    def gauge(self, plan: Plan) -> Gauge | None:
        """Make what estimates the exact join beside a bounded one; None: this one is exact."""
        if self.budget is None:
            return None
        combine = COMBINED[self.settings.combine] if self.importance else None
        return Gauge(self.chain(plan, None), len(self.names), self.settings.seed, combine)

    # --- rows -----------------------------------------------------------------------------------------------------

    def intake(self) -> Intake:
        """Return what puts rows in order; they wait until all rows that are evaluated together are there."""
        return Intake(
            self.lateness,
            whole=True,
            patient=self.patient,
            sides=len(self.names),
            keys=self.most + 1,
            grain=self.every or 1,
            counting=any(self.by_rows),
        )

    def read(self, stream: int, table: pa.Table, first: int = 0) -> Side:
        """Return the time and the codes of rows, the last of which says whether all keys are there.

        Parameters:
            first: the number of the first row, for what errors say.
        """
        ts = self.clock.values(table[self.time[stream]], f"time={self.time[stream]!r}", first)
        code = np.zeros((ts.size, self.most + 1), np.int64)
        code[:, -1] = 1
        for at, key in enumerate(key for key in self.keys if key.stream == stream):
            code[:, at], present = key.codes(table)
            if present is not None:
                code[:, -1] &= present
        weight = row_bytes(table) + ROW_BYTES if self.unit_of_memory == "bytes" else NO_INTS
        importance = NO_FLOATS
        if self.importance and self.budget is not None:
            importance = importance_of(table[self.importance[stream]], self.importance[stream], first)
        return Side(ts, code, None, weight, importance)

    def batch(self, ready: Ready) -> Batch:
        """Return rows that are in order for the loops; those without a key only count, where a window is in rows."""
        rows = ready.batch
        ts, stream, present = rows.tick, rows.side.astype(np.int64), ready.code[:, -1] != 0
        complete, counting = bool(present.all()), any(self.by_rows)
        counts = np.array(self.by_rows)[stream] if counting else np.zeros(ts.size, np.bool_)
        taken = Batch(
            stream=stream,
            row=rows.row if complete else np.where(present, rows.row, -1),
            ts=ts,
            pos=np.where(counts, rows.pos, ts) if counting else ts,
            clock=rows.clock.sum(axis=1) if all(self.by_rows) else ts,
            group=ts if self.every is None else ts // self.every,
            weight=rows.weight if rows.weight.size else np.ones_like(ts),
            code=ready.code[:, :-1],
            importance=rows.importance,
        )
        if not complete:
            taken = taken.only(present | counts)
        kinds = (*(np.int64,) * 8, np.float64)
        return Batch(*(np.ascontiguousarray(column, kind) for column, kind in zip(taken, kinds, strict=True)))


def repairable(bound: Bound) -> None:
    """Raise if a ledger cannot tell what is missing.

    Raises:
        WindowError: if a window is in rows.
    """
    if any(bound.by_rows):
        want = "which rows are in a window in rows takes a count of every row: only time windows are refined"
        raise WindowError("windows", str(bound.settings.windows), want)
