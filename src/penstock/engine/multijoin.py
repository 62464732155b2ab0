"""Join several whole tables at once: check what was asked for, find the order, run the loops."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.chain import Chain, Edge
from penstock.core.rings import BY_ROOM, Batch
from penstock.core.windows import Ints
from penstock.engine.budget import budget_of, policy_of
from penstock.errors import ColumnError, InputError, OrderError, WindowError
from penstock.operator.join import as_table
from penstock.planner import plan as planning
from penstock.planner import statistics
from penstock.planner.cost import parts_of, whole
from penstock.planner.plan import Plan
from penstock.planner.statistics import COMPARED, MOMENTS, Link, Stream, comparable, edges, per_stream
from penstock.quality.flows import Flows, Order
from penstock.streams.keys import Coder, common_type, ranks
from penstock.streams.times import Clock, Every, Rows, common_clock

SLICE = 1 << 15
SELDOM = 1 << 18  # rows after which the order is revisited in any case; if windows hold more, after so many
WORTH = 1.2  # how many times cheaper another order must be
INDEXES = ("auto", "hash", "none")


class Change(NamedTuple):
    """An order that was taken: from which tick on, by which plan, how many times cheaper than the last, and why."""

    since: int
    plan: Plan
    gain: float
    reason: str


class Joined(NamedTuple):
    """A joined table with its report, its ledger and the plans of its orders."""

    table: Any
    report: Flows
    ledger: pa.Table
    changes: list[Change]


@dataclass(frozen=True)
class Settings:
    """The arguments of a join of several streams, as given."""

    on: Any
    time: Any
    windows: Any
    order: Any = "auto"
    evaluation: Any = "eager"
    expiration: Any = "auto"
    index: Any = "auto"
    algorithm: str = "auto"
    cross: bool = False
    memory: Any = None
    policy: Any = "auto"
    seed: int = 0


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

    def __init__(self, settings: Settings, tables: Mapping[str, pa.Table]) -> None:
        self.settings = settings
        self.names = list(tables)
        self.tables = list(tables.values())
        self.time: list[str] = list(per_stream("time", settings.time, self.names).values())
        for at, column in enumerate(self.time):
            self._present(at, column, "time")
        self.clock = self._common_clock()
        self.ts = [
            self.clock.values(table[column], f"time={column!r}")
            for table, column in zip(self.tables, self.time, strict=True)
        ]
        self._in_order()
        self.windows = per_stream("windows", settings.windows, self.names)
        self.by_rows = [isinstance(window, Rows) for window in self.windows.values()]
        self.span = [self._span(window) for window in self.windows.values()]
        self.every, self.expiry = self._intervals()
        self.using: list[str] = []
        self.keys, self.edges = self._keys()
        self.index = self._index()
        self.buckets = [self.index[key.stream] if key.how == "=" else 0 for key in self.keys]
        self.columns = np.bincount([key.stream for key in self.keys], minlength=len(self.names)).tolist()
        self.most = max(1, *self.columns)
        self.layout, self.schema = self._layout()
        self.policy = "exact" if settings.memory is None else str(policy_of(settings.policy))
        self.budget = budget_of(settings, self.span, self.by_rows, self.clock, common=bool(self.using))

    def _present(self, stream: int, column: object, argument: str) -> None:
        names = self.tables[stream].schema.names
        if not isinstance(column, str) or names.count(column) != 1:
            found = "that column twice" if column in names else "no such column"
            where = f"{found} in {self.names[stream]}"
            raise ColumnError(f"{argument}={column!r}", where, f"it has {', '.join(names)}")

    def _common_clock(self) -> Clock:
        kinds = [table.schema.field(column).type for table, column in zip(self.tables, self.time, strict=True)]
        return reduce(lambda clock, kind: common_clock(clock.type, kind), kinds[1:], common_clock(kinds[0], kinds[0]))

    def _in_order(self) -> None:
        for name, ts in zip(self.names, self.ts, strict=True):
            back = np.flatnonzero(ts[1:] < ts[:-1])
            if back.size:
                raise OrderError(name, f"row {int(back[0]) + 1} is older than the row before it", "sort it by time")

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
            links = edges(on, self.names)
            if not self.settings.cross:
                whole(self.names, [link.pair for link in links], "on")
            return self._graph_keys(links)
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
        first, *others = [table.schema.field(column).type for table in self.tables]
        return reduce(lambda kind, other: common_type(kind, other, column), others, first)

    def _graph_keys(self, links: list[Link]) -> tuple[list[Key], list[Edge]]:
        ends: list[tuple[Key, Key]] = []
        for link in links:
            places = [self.names.index(name) for name in link.pair]
            schemas = [self.tables[place].schema for place in places]
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

    def _layout(self) -> tuple[list[tuple[str, int, str]], pa.Schema]:
        """Return the result's columns as (name, stream, source), and its schema."""
        shown = [(name, 0, name) for name in self.using]
        sources = [[name for name in table.schema.names if name not in self.using] for table in self.tables]
        every = [name for mine in sources for name in mine]
        for at, mine in enumerate(sources):
            clash = {name for name in mine if every.count(name) > 1 or name in self.using}
            shown += [(f"{name}_{self.names[at]}" if name in clash else name, at, name) for name in mine]
        names = [name for name, _, _ in shown]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ColumnError("result", f"two columns named {twice[0]!r}", "rename one before the join")
        fields = []
        for at, (name, stream, source) in enumerate(shown):
            field = self.tables[stream].schema.field(source)
            kind = field.type
            if at < len(self.using) and any(table.schema.field(source).type != kind for table in self.tables):
                kind = self.keys[0].coder.types[at]
            fields.append(pa.field(name, kind, field.nullable))
        return shown, pa.schema(fields)

    # --- order ----------------------------------------------------------------------------------------------------

    def plan(self, begin: int, end: int, moments: int = MOMENTS) -> Plan:
        """Find the order, or price the one that is given, from the rows of some ticks, the last one included."""
        settings = self.settings
        tables = {}
        for name, table, ts in zip(self.names, self.tables, self.ts, strict=True):
            first, after = np.searchsorted(ts, begin), np.searchsorted(ts, end, side="right")
            tables[name] = table[int(first) : int(after)]
        measured = statistics.measured(
            tables, on=settings.on, time=settings.time, windows=self.windows, moments=moments
        )
        algorithm = settings.algorithm
        if algorithm == "auto" and self.every is not None:
            algorithm = "lazy"  # new rows outermost let the other loops stop early, which the model does not count
        order = None if self.adapts else settings.order
        return planning.make(
            [self._indexed(at, stream) for at, stream in enumerate(measured.streams)],
            join="hash" if any(self.buckets) else "nested",
            every=None if self.every is None else self.every * self.unit,
            order=order,
            algorithm=algorithm,
            selectivity=self._connected(measured.selectivity),
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

    def _connected(self, selectivity: statistics.Selectivity | None) -> statistics.Selectivity | None:
        """Return the selectivity of the edges; if asked, parts that hang apart meet as a cross product."""
        if selectivity is None or not self.settings.cross:
            return selectivity
        first, *others = parts_of(self.names, list(selectivity))
        return {**selectivity, **{(first[0], other[0]): 1.0 for other in others}}

    # --- rows -----------------------------------------------------------------------------------------------------

    def nests(self, plan: Plan) -> list[list[int]]:
        """Return the loops of a plan, streams by number."""
        return [[self.names.index(name) for name in plan.orders[source]] for source in self.names]

    def chain(self, plan: Plan) -> Chain:
        """Make the windows and loops of a plan."""
        return Chain(
            self.span, self.by_rows, self.nests(plan), self.columns, self.edges, self.buckets,
            common=bool(self.using), expiry=self.expiry, budget=self.budget,
        )  # fmt: skip

    def batches(self) -> Iterator[Batch]:
        """Cut the rows of all streams, in order of time, then of streams, into batches of whole groups."""
        groups = [ts if self.every is None else ts // self.every for ts in self.ts]
        merged = np.sort(np.concatenate(groups), kind="stable")
        begins = [0] * len(groups)
        while (taken := sum(begins)) < merged.size:
            last = merged[min(taken + SLICE, merged.size) - 1]
            ends = [int(np.searchsorted(group, last, side="right")) for group in groups]
            parts = [
                self._rows(stream, slice(begin, end), group[begin:end])
                for stream, (group, begin, end) in enumerate(zip(groups, begins, ends, strict=True))
            ]
            columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
            order = np.argsort(columns[Batch._fields.index("ts")], kind="stable")
            yield Batch(*(column[order] for column in columns))
            begins = ends

    def _rows(self, stream: int, part: slice, group: Ints) -> Batch:
        """Return rows of one stream whose keys are all there; others only count, where the window is in rows."""
        ts = self.ts[stream][part]
        pos = np.searchsorted(self.ts[stream], ts, side="right") if self.by_rows[stream] else ts
        mine = [key for key in self.keys if key.stream == stream]
        code = np.zeros((ts.size, self.most), np.int64)
        valid = np.ones(ts.size, np.bool_)
        table = self.tables[stream][part.start : part.stop]
        for at, key in enumerate(mine):
            code[:, at], present = key.codes(table)
            valid &= True if present is None else present
        row = np.where(valid, np.arange(part.start, part.stop), -1)
        keep = valid | self.by_rows[stream]
        clock = ts
        if self.budget is not None and all(self.by_rows):
            clock = np.sum([np.searchsorted(other, ts, side="right") for other in self.ts], axis=0)
        rows = (np.full(ts.size, stream), row, ts, pos, clock, group, code)
        return Batch(*(np.ascontiguousarray(column[keep], np.int64) for column in rows))

    def joined(self, rows: Ints) -> pa.Table:
        """Put results together, verifying keys whose codes are hashes."""
        for edge in self.edges:
            one, other = self.keys[edge.one_column], self.keys[edge.other_column]
            if one.how == "=" and not one.coder.exact and rows.shape[1]:
                same = one.coder.equal(*(self._taken(rows, key.stream, key.names) for key in (one, other)))
                rows = rows[:, same]
        columns: list[pa.ChunkedArray] = []
        for at in range(len(self.tables)):
            columns += self._taken(rows, at, [source for _, stream, source in self.layout if stream == at])
        cast = [
            column if column.type == field.type else column.cast(field.type)
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.Table.from_arrays(cast, schema=self.schema)

    def ledger(self, shed: Ints) -> pa.Table:
        """Return the rows that were given up: of which stream, which row of it, its time, and when it left."""
        begins = np.cumsum([0, *(ts.size for ts in self.ts[:-1])])
        ts = np.concatenate(self.ts)[begins[shed[:, 0]] + shed[:, 1]]
        return pa.table(
            {
                "stream": pa.array(self.names).take(pa.array(shed[:, 0])),
                "row": pa.array(shed[:, 1]),
                "ts": self.clock.column(ts),
                "shed_at": self.clock.column(shed[:, 2]),
                "reason": pa.repeat("budget", len(shed)),
            }
        )

    def _taken(self, rows: Ints, stream: int, names: list[str]) -> list[pa.ChunkedArray]:
        return list(self.tables[stream].select(names).take(pa.array(rows[stream])).columns)


class Ordered:
    """A join whose order is revisited while it runs, if it was not given.

    The idea: if a batch brings noticeably more or fewer rows of a stream than expected, rates and distinct values are
    measured anew, on the rows of the longest window and the batch; and so they are from time to time. If the order in
    use would cost noticeably more than the best one, the loops change places.

    References: golab2003 §5.4 (fluctuating stream arrival rates).
    """

    def __init__(self, bound: Bound) -> None:
        self._bound = bound
        part = max(1, SLICE // len(bound.ts))
        begin = min((int(ts[0]) for ts in bound.ts if ts.size), default=0)
        last = max((int(ts[-1]) for ts in bound.ts if ts.size), default=0)
        end = min((int(ts[part - 1]) for ts in bound.ts if ts.size >= part), default=last)
        plan = bound.plan(begin, end)  # from the first rows, as many as a batch has
        self.changes = [Change(begin, plan, 1.0, "measured on the first rows" if bound.adapts else "given")]
        self.shed = [np.empty((0, 3), np.int64)]
        self.chain = bound.chain(plan)
        spans = [span for span, by_rows in zip(bound.span, bound.by_rows, strict=True) if not by_rows]
        self._longest = max(spans, default=1)
        self._seen = plan
        self._due = SELDOM

    def push(self, batch: Batch) -> Ints:
        """Take whole groups of rows and return the row numbers of their results: (stream, result)."""
        if self._bound.adapts and batch.row.size:
            surprised = self._surprises(batch)
            if surprised or self._due <= 0:
                self._revisit(int(batch.ts[0]), int(batch.ts[-1]))
                self._due = 0 if surprised else max(SELDOM, sum(self.chain.held()))  # rates may still be mixed
        self._due -= batch.row.size
        found = self.chain.push(batch)
        self.shed.append(self.chain.shed())
        return found

    def report(self, results: int) -> Flows:
        """Return the books so far.

        Parameters:
            results: how many were found.
        """
        bound = self._bound
        now = max((int(ts[-1]) for ts in bound.ts if ts.size), default=0)
        shed = np.bincount(np.concatenate(self.shed)[:, 0], minlength=len(bound.names)).tolist()
        return Flows(
            policy=bound.policy,
            arrivals=dict(zip(bound.names, (ts.size for ts in bound.ts), strict=True)),
            live=dict(zip(bound.names, self.chain.live(now), strict=True)),
            shed=dict(zip(bound.names, shed, strict=True)),
            results=results,
            comparisons=self.chain.compared,
            orders=[
                Order(
                    bound.clock.column(np.array([since])).to_pylist()[0], named(plan.order), plan.cost, gain, reason
                )
                for since, plan, gain, reason in self.changes
            ],
        )

    def _surprises(self, batch: Batch) -> bool:
        """Say whether the rows of a stream differ by half, and by more than chance does, from its measured rate."""
        length = (int(batch.ts[-1]) - int(batch.ts[0]) + 1) * self._bound.unit
        expected = np.array([stream.rate for stream in self._seen.streams]) * length
        came = np.bincount(batch.stream, minlength=expected.size)
        return bool((np.abs(came - expected) > expected / 2 + 5 * np.sqrt(expected + 1)).any())

    def _revisit(self, begin: int, end: int) -> None:
        best = self._bound.plan(min(begin, end - self._longest + 1), end, moments=1)
        current = replace(best, order=self.changes[-1].plan.order)
        gain = current.cost / best.cost if best.cost else 1.0
        if gain > WORTH:
            self.chain.reorder(self._bound.nests(best))
            self.changes.append(Change(begin, best, gain, what_changed(self.changes[-1].plan, best)))
        self._seen = best


def named(order: Any) -> Any:
    """Return an order, or one for each stream, as lists of names."""
    return {name: list(mine) for name, mine in order.items()} if isinstance(order, Mapping) else list(order)


def what_changed(before: Plan, after: Plan) -> str:
    """Say which rate differs most between two plans; if none does by half, which number of distinct values does."""

    def most(field: str) -> tuple[float, str]:
        seen = [
            (one.name, max(getattr(one, field), 1e-9), max(getattr(other, field), 1e-9))
            for one, other in zip(before.streams, after.streams, strict=True)
        ]
        name, was, now = max(seen, key=lambda each: abs(np.log(each[2] / each[1])))
        return max(now / was, was / now), f"{name} {was:.3g} -> {now:.3g}"

    times, rate = most("rate")
    return f"rate of {rate}" if times > 1.5 else f"distinct values of {most('distinct')[1]}"


def run(streams: Any, settings: Settings) -> Joined:
    """Join whole tables.

    Parameters:
        streams: Arrow tables or pandas DataFrames by name, each in order of time.
        settings: the other arguments.
    """
    if not isinstance(streams, Mapping) or len(streams) < 2:
        raise InputError("streams", repr(streams), "give two or more tables by name")
    tables: dict[str, pa.Table] = {}
    for name, rows in streams.items():
        if not isinstance(name, str) or not name:
            raise InputError("streams", repr(name), "name each stream with a word")
        table = as_table(rows, name)
        if table is None:
            raise InputError(name, "None", "give an Arrow table or a pandas DataFrame")
        tables[name] = table.replace_schema_metadata(None).combine_chunks()  # rows are taken by number
    bound = Bound(settings, tables)
    ordered = Ordered(bound)
    found = [bound.joined(ordered.push(batch)) for batch in bound.batches()]
    table = pa.concat_tables([bound.schema.empty_table(), *found])
    to_pandas = type(next(iter(streams.values()))).__module__.startswith("pandas.")
    return Joined(
        table.to_pandas() if to_pandas else table,
        ordered.report(table.num_rows),
        bound.ledger(np.concatenate(ordered.shed)),
        ordered.changes,
    )
