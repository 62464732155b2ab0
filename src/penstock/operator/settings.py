"""Check what the user asked for, before any work starts, and turn it into numbers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.exact import ExactJoin
from penstock.core.hooks import Unlimited
from penstock.core.join import WindowJoin
from penstock.core.step import Plan
from penstock.core.windows import Floats, Ints, Masks
from penstock.errors import (
    BudgetError,
    ColumnError,
    ConditionError,
    ImportanceError,
    InputError,
    KeyTypeError,
    PolicyError,
    WindowError,
)
from penstock.policies.cpu.controller import METHODS as CONDITION_METHODS
from penstock.policies.cpu.controller import Cpu
from penstock.policies.cpu.dual import METHODS as KEY_METHODS
from penstock.policies.registry import Policy, Setting, lookup, resolve
from penstock.streams.intake import NO_FLOATS, NO_INTS, NO_ROWS, Side
from penstock.streams.keys import Coder, common_type
from penstock.streams.payload import row_bytes
from penstock.streams.sets import Condition, Reader, reader
from penstock.streams.times import LIMIT, Clock, Rows, common_clock

SIDES = ("left", "right")
MODES = ("shed", "observe")
COMBINE = ("min", "sum", "product", "max", "mean")
WATERMARK = "watermark"  # as lateness: the driver says what is late
UNLIMITED = int(np.iinfo(np.int64).max)
ROW_BYTES = 96  # what the core holds per row beside the Arrow bytes: slot, run entry, its share of key and order
BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


@dataclass(frozen=True)
class Settings:
    """The arguments of a join, as given; those that need no input are checked at once."""

    on: object
    time: object
    window: object
    lateness: object = 0
    memory: object = None
    split: object = "shared"
    policy: object = "auto"
    importance: object = None
    combine: str = "min"
    cpu: object = None
    per_key: int | None = None
    shards: int | None = None
    seed: int = 0
    how: str = "inner"
    event_time: str | None = None
    mode: str = "shed"
    chosen: Policy = field(init=False)

    def __post_init__(self) -> None:
        if self.how != "inner":
            raise InputError("how", repr(self.how), "only inner joins: after shedding, a null row could be false")
        self._check_budgets()
        if self.shards is not None and not _is_count(self.shards):
            raise InputError("shards", repr(self.shards), "give at least 1, or None")
        if self.per_key is not None and (isinstance(self.per_key, bool) or int(self.per_key) < 1):
            raise BudgetError("per_key", repr(self.per_key), "give at least 1 row a key and side, or None")
        if not (self.event_time is None or (isinstance(self.event_time, str) and self.event_time)):
            raise ColumnError("event_time", repr(self.event_time), "give the name of a column to be added, or None")
        check_combine(self.combine)
        check_seed(self.seed)
        object.__setattr__(self, "chosen", resolve(self.policy))
        lookup(self.chosen.name)
        self._check_both()
        pair("time", self.time)
        if not isinstance(self.window, Rows | tuple | list | str | int | np.integer) and not hasattr(
            self.window, "total_seconds"
        ):
            raise WindowError("window", repr(self.window), 'give a span ("10 minutes"), ticks, or pen.rows(n)')

    def _check_budgets(self) -> None:
        """Check what is said about memory and CPU."""
        budget(self.memory, self.split)
        if self.mode not in MODES:
            raise InputError("mode", repr(self.mode), f"give one of {', '.join(map(repr, MODES))}")
        if self.mode == "observe" and self.memory is None:
            raise BudgetError("memory", "None", 'mode="observe" says what a budget would cost: give one')
        if self.cpu is not None:
            if not isinstance(self.cpu, Cpu):
                raise InputError("cpu", repr(self.cpu), "give what pen.cpu(...) returns, or None")
            methods = CONDITION_METHODS if isinstance(self.on, Condition) else (*KEY_METHODS, "selective")
            if self.cpu.method not in methods:
                got = f"{self.cpu.method!r} with on={self.on}"
                raise InputError("method", got, f"there give one of {', '.join(map(repr, methods))}")

    def _check_both(self) -> None:
        """Check what is said about memory where rows lie in the order of time: conditions, and CPU budgets."""
        if self.memory is None or not (isinstance(self.on, Condition) or self.cpu is not None):
            return
        what = f"with on={self.on}" if isinstance(self.on, Condition) else f"with {self.cpu}"
        if isinstance(self.memory, str):
            raise BudgetError("memory", f"{self.memory!r} {what}", "there give a number of rows")
        if lookup(self.chosen.name).name not in {"auto", "oldest"}:
            want = 'there the row that would expire first leaves first: give "auto" or "oldest"'
            raise PolicyError("policy", f"{self.chosen.name!r} {what}", want)
        if self.mode == "observe":
            raise InputError("mode", f"'observe' {what}", "only memory budgets on equal keys can be observed")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments by name, as given."""
        return {name: value for name, value in vars(self).items() if name != "chosen"}


def budget(memory: object, split: object) -> tuple[str, tuple[int, int], bool]:
    """Return the unit of a budget ("rows", "bytes" or "none"), its limits per side, and whether they are shared."""
    unit, limit = amount(memory)
    if isinstance(split, str):
        if split not in {"shared", "fixed"}:
            want = 'give "shared", "fixed" or (left_rows, right_rows)'
            raise BudgetError("split", repr(split), want)
        if unit == "none" or split == "shared":
            return unit, (limit, limit), True
        if limit < 2:
            raise BudgetError("memory", memory, "a fixed split needs at least 2, one for each side")
        return unit, (limit - limit // 2, limit // 2), False
    if not (isinstance(split, Sequence) and len(split) == 2 and all(_is_count(part) for part in split)):
        raise BudgetError("split", repr(split), 'give "shared", "fixed" or (left_rows, right_rows), each at least 1')
    if unit != "rows" or split[0] + split[1] != limit:
        raise BudgetError("split", repr(split), f"its parts must add up to memory, which is {memory!r}")
    return unit, (int(split[0]), int(split[1])), False


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def amount(memory: object) -> tuple[str, int]:
    """Return the unit and size of a memory budget."""
    want = 'give a number of rows (at least 1), bytes such as "512MB", or None for exact'
    if memory is None:
        return "none", UNLIMITED
    if isinstance(memory, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", memory)
        if not found or found[2].lower() not in BYTES or float(found[1]) == 0:
            raise BudgetError("memory", repr(memory), want)
        return "bytes", int(float(found[1]) * BYTES[found[2].lower()])
    if not _is_count(memory):
        raise BudgetError("memory", repr(memory), want)
    return "rows", int(memory)  # type: ignore[call-overload]


def patience(lateness: object, clock: Clock) -> tuple[bool, int]:
    """Return whether the side that is behind is waited for, and for how long after it a row may come."""
    if lateness == WATERMARK:
        return True, LIMIT
    if isinstance(lateness, tuple) and len(lateness) == 2 and lateness[0] == WATERMARK:
        return True, clock.ticks("lateness", lateness[1])
    return False, clock.ticks("lateness", lateness)


def check_combine(combine: object) -> None:
    """Raise unless this is a way to make one importance of several."""
    if combine not in COMBINE:
        raise InputError("combine", repr(combine), f"give one of {', '.join(map(repr, COMBINE))}")


def check_seed(seed: object) -> None:
    """Raise unless this is a whole number."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InputError("seed", repr(seed), "give a whole number")


def pair(argument: str, value: object) -> tuple[str, str]:
    """Return a column name for each side, from one name or a pair."""
    if isinstance(value, str):
        return value, value
    if isinstance(value, Sequence) and len(value) == 2 and all(isinstance(name, str) for name in value):
        return value[0], value[1]
    raise ColumnError(argument, repr(value), 'give a column name, or ("left", "right")')


def on_keys(settings: Settings) -> Settings:
    """Return settings of a join on equal keys, and raise for other conditions: not everything can do those."""
    if isinstance(settings.on, Condition):
        want = "conditions are for pen.join, pen.run and pen.Join: name key columns"
        raise ConditionError("on", str(settings.on), want)
    if settings.cpu is not None:
        want = "a CPU budget is for pen.join, pen.run and pen.Join: leave it None"
        raise InputError("cpu", str(settings.cpu), want)
    return settings


def repairable(settings: Settings) -> Settings:
    """Return settings of a join whose missing pairs a ledger tells, and raise for others."""
    if settings.mode == "observe":
        raise InputError("mode", "'observe'", "a join that only observes returned every pair: nothing is missing")
    if settings.chosen.name == "sample" and settings.memory is not None:
        want = "its rows stand for those it left out, by their weight: refine the result of another policy"
        raise PolicyError("policy", "'sample'", want)
    if isinstance(settings.cpu, Cpu) and settings.cpu.over == "entered":
        want = "windows over entered rows give pairs that the exact join has not: only over='arrivals' is refined"
        raise InputError("cpu", "over='entered'", want)
    return settings


def positive(argument: str, value: object, *, zero: bool = False) -> float:
    """Return a number as a float; it must be finite and more than 0, or at least 0."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool) and np.isfinite(value)
    if not number or value < 0 or (value == 0 and not zero):  # type: ignore[operator]
        raise InputError(argument, repr(value), f"give a number {'of at least' if zero else 'above'} 0")
    return float(value)  # type: ignore[arg-type]


def key_columns(on: object) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """Return the key columns of each side, and whether they are one column in the result."""
    if isinstance(on, str):
        return (on,), (on,), True
    if isinstance(on, Condition):
        return (on.columns[0],), (on.columns[1],), False
    if isinstance(on, tuple) and len(on) == 2 and all(isinstance(name, str) for name in on):
        return (on[0],), (on[1],), False
    if isinstance(on, list) and on:
        if all(isinstance(name, str) for name in on):
            return tuple(on), tuple(on), True
        if all(isinstance(name, tuple) and len(name) == 2 for name in on):
            return tuple(name[0] for name in on), tuple(name[1] for name in on), False
    want = 'give a column, a list of columns, ("left", "right"), a list of such pairs, or a condition'
    raise ColumnError("on", repr(on), want)


class Bound:
    """The settings of a join, checked against the columns of both sides."""

    def __init__(self, settings: Settings, left: pa.Schema, right: pa.Schema) -> None:
        self.settings = settings
        self.names = SIDES
        self.schemas = (left, right)
        *keys, self.using = key_columns(settings.on)
        self.keys = (list(keys[0]), list(keys[1]))
        self.time = pair("time", settings.time)
        for side in range(2):
            for name in (*self.keys[side], self.time[side]):
                present(self.schemas[side], name, side, "time" if name == self.time[side] else "on")
        self.reader = reader(settings.on, left, right) if isinstance(settings.on, Condition) else None
        self.coder = Coder(() if self.reader else self._key_types())
        self.clock: Clock = common_clock(left.field(self.time[0]).type, right.field(self.time[1]).type)
        self.importance: tuple[str, str] | None = None
        if settings.importance is not None:
            self.importance = pair("importance", settings.importance)
            for side in range(2):
                weighs(self.schemas[side], self.importance[side], side)
        self.by_rows, self.span = self.spans(settings.window)
        self.patient, self.lateness = patience(settings.lateness, self.clock)
        self.ordered = self.patient and settings.cpu is not None  # rows wait for the watermark: they come in order
        if self.ordered:
            self.patient, self.lateness = False, 0
        self.unit, self.limit, self.shared = budget(settings.memory, settings.split)
        self.layout, self.schema = self._layout()
        self.types = self.schema.types
        self.sources = [[source for _, at, source in self.layout if at == side] for side in range(2)]
        # of each column of the result: its side, and its place among that side's
        self.origins = [(side, self.sources[side].index(source)) for _, side, source in self.layout]
        if self.reader:
            self._on_condition(self.reader)

    def _key_types(self) -> tuple[pa.DataType, ...]:
        left, right = self.schemas
        return tuple(
            common_type(left.field(mine).type, right.field(theirs).type, mine)
            for mine, theirs in zip(*self.keys, strict=True)
        )

    def _on_condition(self, read: Reader) -> None:
        """Raise if something is asked for that only joins on equal keys can do."""
        on = f"on={read.condition}"
        if self.by_rows:
            raise WindowError("window", f"{self.settings.window} with {on}", "give a span of time")
        cpu = self.settings.cpu
        if isinstance(cpu, Cpu) and cpu.types is not None:
            for side, name in enumerate(pair("types", cpu.types)):
                present(self.schemas[side], name, side, "types")
        if self.settings.per_key is not None:
            raise BudgetError("per_key", f"{self.settings.per_key!r} with {on}", "there are no keys: leave it None")

    @property
    def policy(self) -> str:
        """What decides what is given up."""
        cpu = self.settings.cpu
        if isinstance(cpu, Cpu):
            method = "selective" if self.reader and cpu.method == "auto" and not self.promising else cpu.method
            return method if self.unit == "none" else f"{method}, oldest"
        if self.unit != "none" and self.reader:
            return "oldest"
        return "exact" if self.unit == "none" else str(self.settings.chosen)

    @property
    def promising(self) -> bool:
        """Whether rows are let in by what their items promise: by default, with an index and a latency."""
        cpu, read = self.settings.cpu, self.reader
        if not isinstance(cpu, Cpu) or read is None or cpu.latency is None:
            return False
        return bool(read.condition.rule.indexed) and cpu.types is None and cpu.method == "auto"

    @property
    def event_time(self) -> str | None:
        """The column that carries the time of pairs."""
        return self.settings.event_time

    @property
    def one_shard(self) -> str:
        """Why the streams cannot be divided by key; empty: they can."""
        if self.by_rows:
            return "windows in rows count over the whole stream"
        return "schedules number rows over the whole stream" if self.settings.chosen.name == "replay" else ""

    def places(self, side: int, table: pa.Table) -> tuple[Ints, Masks | None]:
        """Return codes by which rows are divided, alike if they may meet, and which have no null among their keys."""
        return self.coder.code([table[name] for name in self.keys[side]])

    @property
    def division(self) -> str:
        """How rows are divided between shards: by "keys", by "items", or in "turns"."""
        if self.reader is None:
            return "keys"
        return "items" if self.reader.coder is not None and self.reader.condition.index else "turns"

    @property
    def observing(self) -> bool:
        """Whether nothing is shed, only observed."""
        return self.settings.mode == "observe"

    @property
    def weighted(self) -> bool:
        """Whether pairs have the inverse of their chance as a column: the policy is a sample of them."""
        return self.unit != "none" and not self.observing and self.settings.chosen.name == "sample"

    def unbounded(self) -> "Bound":
        """Return the same join without a budget."""
        return Bound(replace(self.settings, memory=None, split="shared", per_key=None, mode="shed"), *self.schemas)

    def spans(self, window: object) -> tuple[bool, tuple[int, int]]:
        """Return whether windows are in rows, and their length on each side."""
        if isinstance(window, tuple | list) and not isinstance(window, Rows):
            if len(window) != 2:
                raise WindowError("window", repr(window), "give one window, or a pair (left, right)")
            sides = tuple(window)
        else:
            sides = (window, window)
        if isinstance(sides[0], Rows) != isinstance(sides[1], Rows):
            raise WindowError("window", repr(window), "use rows on both sides, or time on both")
        spans = tuple(
            _row_count(part) if isinstance(part, Rows) else self.clock.ticks("window", part) for part in sides
        )
        if min(spans) < 1:
            raise WindowError("window", repr(window), "a window must be at least one tick or row long")
        return isinstance(sides[0], Rows), (spans[0], spans[1])

    def needs(self, side: int, name: str) -> bool:
        """Say whether a row of one side must have this column to be joined: a key, or the time."""
        return name in self.keys[side] or name == self.time[side]

    def plan(self) -> Plan:
        """Return the numbers the kernels work with."""
        per_key = UNLIMITED if self.settings.per_key is None else int(self.settings.per_key)
        return Plan(
            span=np.array(self.span, np.int64),
            limit=np.array(self.limit, np.int64),
            shared=int(self.shared),
            by_rows=int(self.by_rows),
            ahead=0 if self.by_rows else int(not self.patient) - self.lateness,
            patient=int(self.patient and not self.by_rows),  # rows are counted, whichever side is behind
            per_key=per_key,
        )

    def read(self, side: int, table: pa.Table | None, first: int = 0) -> Side:
        """Turn the rows of one side into arrays; `first` is the number of the first row, for what errors say.

        Raises:
            InputError: if a time is missing or an importance is no importance.
        """
        if table is None or table.num_rows == 0:
            return NO_ROWS
        ts, rising = self.clock.read(table[self.time[side]], f"time={self.time[side]!r}", first)
        if self.reader:
            return self._read_sets(self.reader, side, table, first, ts)
        code, valid = self.coder.code([table[name] for name in self.keys[side]])
        weight = row_bytes(table) + ROW_BYTES if self.unit == "bytes" else NO_INTS
        importance = NO_FLOATS
        if self.importance:
            importance = importance_of(table[self.importance[side]], self.importance[side], first)
        return Side(ts, code, valid, weight, importance, rising=rising)

    def _read_sets(self, read: Reader, side: int, table: pa.Table, first: int, ts: Ints) -> Side:
        name = self.keys[side][0]
        sets, valid = read.read(table[name], name, first)
        importance = NO_FLOATS
        if self.importance:
            importance = importance_of(table[self.importance[side]], self.importance[side], first)
        rows = np.arange(ts.size)
        kind, cpu = NO_INTS, self.settings.cpu
        if isinstance(cpu, Cpu) and cpu.types is not None:
            kind = types_of(table[pair("types", cpu.types)[side]], cpu, first)
        return Side(ts, rows, None if valid.all() else valid, NO_INTS, importance, sets, kind)

    def core(self, plan: Plan) -> WindowJoin | ExactJoin:
        """Make the windows and the policy of a join on keys."""
        bounded = self.unit != "none"
        plain = self.by_rows or self.lateness == (LIMIT if self.patient else 0)
        if not bounded and self.settings.per_key is None and plain:
            return ExactJoin(plan)
        chosen = self.settings.chosen
        return WindowJoin(
            plan,
            chosen.make(self.setting(plan)) if bounded else Unlimited(0),
            weighted=int(self.unit == "bytes"),
            important=int(self.importance is not None),
            own=lookup(chosen.name).own if bounded else True,
        )

    def setting(self, plan: Plan) -> Setting:
        """Return what a policy may know about this join."""
        total = int(plan.limit[0]) if self.shared else int(plan.limit.sum())
        rows = total // ROW_BYTES if self.unit == "bytes" else min(total, 1 << 40)
        return Setting(
            span=plan.span,
            limit=rows,
            seed=int(self.settings.seed),
            code=self.code_keys,
            ticks=self._half_life,
            combine=self.settings.combine if self.importance is not None else None,
        )

    def _half_life(self, argument: str, span: object) -> int:
        ticks = int(span) if self.by_rows and isinstance(span, int) else self.clock.ticks(argument, span)
        if ticks < 1:
            raise WindowError(argument, repr(span), "it must be positive")
        return ticks

    def code_keys(self, keys: Sequence[object]) -> Ints:
        """Return the codes of keys written as Python values (tuples, if there are several columns)."""
        columns = (
            [keys] if len(self.coder.types) == 1 else list(zip(*keys, strict=True)) or [()] * len(self.coder.types)
        )
        try:
            arrays = [pa.array(list(c), kind) for c, kind in zip(columns, self.coder.types, strict=True)]
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
            kinds = ", ".join(map(str, self.coder.types))
            raise KeyTypeError(
                "statistics", f"a key that is no {kinds}", f"use the type of the columns ({error})"
            ) from error
        return self.coder.code(arrays)[0]

    def _layout(self) -> tuple[list[tuple[str, int, str]], pa.Schema]:
        """Return the result's columns as (name, side, source), and its schema."""
        shown = [(name, 0, name) for name in self.keys[0]] if self.using else []
        sources = [
            [name for name in self.schemas[side].names if not (self.using and name in self.keys[side])]
            for side in range(2)
        ]
        added = ["importance"] * bool(self.importance) + ["weight"] * self.weighted
        if self.settings.event_time is not None:
            added.append(self.settings.event_time)
        taken = {name for name, _, _ in shown} | set(added)
        clash = set(sources[0]) & set(sources[1])
        for side in range(2):
            marked = clash | taken
            shown += [(f"{name}_{SIDES[side]}" if name in marked else name, side, name) for name in sources[side]]
        names = [*(name for name, _, _ in shown), *added]
        for name in names:
            if names.count(name) > 1:
                raise ColumnError("result", f"two columns named {name!r}", "rename one before the join")
        fields = []
        for at, (name, side, source) in enumerate(shown):
            kind = self.schemas[side].field(source)
            if self.using and at < len(self.keys[0]):
                other = self.schemas[1].field(self.keys[1][at]).type
                kind = kind if kind.type == other else pa.field(source, self.coder.types[at])
            fields.append(pa.field(name, kind.type, kind.nullable))
        if self.importance:
            fields.append(pa.field("importance", pa.float64()))
        if self.weighted:
            fields.append(pa.field("weight", pa.float64()))
        if self.settings.event_time is not None:
            fields.append(pa.field(self.settings.event_time, self.clock.type))
        return shown, pa.schema(fields)


def inspect(settings: Settings, side: int, rows: pa.Table) -> None:
    """Check what can be known of the rows of one side while the other has not shown its columns."""
    argument = pair("time", settings.time)[side]
    *keys, _ = key_columns(settings.on)
    for name in keys[side]:
        present(rows.schema, name, side, "on")
    present(rows.schema, argument, side, "time")
    kinds = [pa.null(), pa.null()]
    kinds[side] = rows.schema.field(argument).type
    common_clock(kinds[0], kinds[1]).values(rows[argument], f"time={argument!r}")
    if settings.importance is not None:
        name = pair("importance", settings.importance)[side]
        weighs(rows.schema, name, side)
        importance_of(rows[name], name)


def types_of(column: pa.ChunkedArray, cpu: Cpu, first: int) -> Ints:
    """Return the types of rows by their place in the table of utilities; none may be missing there."""
    known = list(cpu.utility or ())
    try:
        found = pc.index_in(column, value_set=pa.array(known).cast(column.type))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InputError("utility", f"types {known}", f"use types of the column, {column.type} ({error})") from error
    if found.null_count:
        unknown = pc.unique(column.filter(found.is_null())).to_pylist()
        got = f"types without a value in the rows from {first} on: {', '.join(map(repr, unknown[:10]))}"
        raise InputError("utility", got, "give each type a value")
    return found.to_numpy().astype(np.int64)


def importance_of(column: pa.ChunkedArray, name: str, first: int = 0) -> Floats:
    """Return an importance column as floats; none may be missing, NaN or negative."""
    values = pc.cast(column, pa.float64()).to_numpy()
    bad = np.flatnonzero(~((values >= 0) & np.isfinite(values)))
    if bad.size:
        got = f"{column[int(bad[0])].as_py()} in row {first + bad[0]}"
        below = np.isfinite(values[bad[0]])
        why = (
            ": no policy gives a row up while there is room, as one worth less than nothing would ask"
            if below
            else ""
        )
        raise ImportanceError(f"importance={name!r}", got, f"importance is a finite number, at least 0{why}")
    return values


def _row_count(rows: Rows) -> int:
    if not _is_count(rows.count):
        raise WindowError("window", f"rows({rows.count!r})", "a window must be at least one row long")
    return int(rows.count)


def present(schema: pa.Schema, name: str, side: int, argument: str, stream: str | None = None) -> None:
    """Raise unless a column is there, once; `stream` is the name of the side, if it is neither left nor right."""
    if schema.names.count(name) != 1:
        found = "no such column" if name not in schema.names else "that column twice"
        where = f"on the {SIDES[side]}" if stream is None else f"in {stream}"
        raise ColumnError(f"{argument}={name!r}", f"{found} {where}", f"it has {', '.join(schema.names)}")


def weighs(schema: pa.Schema, name: str, side: int, stream: str | None = None) -> None:
    """Raise unless a column is there and holds numbers."""
    present(schema, name, side, "importance", stream)
    kind = schema.field(name).type
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)
    ):
        where = f"on the {SIDES[side]}" if stream is None else f"in {stream}"
        raise ImportanceError("importance", f"{kind} {where}", "use a column of numbers")
