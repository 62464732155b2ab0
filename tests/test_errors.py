"""What is wrong is said at once, by type and by name, and costs nothing that was there before."""

import copy
import inspect
import json
import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import penstock as pen
from penstock import errors
from penstock.errors import (
    BudgetError,
    ColumnError,
    ImportanceError,
    InputError,
    KeyTypeError,
    OrderError,
    OutputError,
    PenstockError,
    PolicyError,
    SchemaError,
    StateError,
    TimeError,
    WindowError,
)
from penstock.streams import files, workloads

LEFT = pa.table({"ts": [1, 2, 3, 4], "key": [1, 2, 1, 2], "w": [1.0, 2.0, 3.0, 4.0], "a": ["x", "y", "z", "x"]})
RIGHT = pa.table({"ts": [1, 3, 5], "key": [1, 1, 2], "w": [1.0, 0.0, 2.0], "b": [True, False, None]})
GIVEN: dict[str, Any] = {"on": "key", "time": "ts", "window": 10}
STAMPS = pa.table({"ts": pa.array([1, 2, 3, 4], pa.timestamp("ms")), "key": [1, 2, 1, 2]})


def with_column(table: pa.Table, name: str, values: Any) -> pa.Table:
    column = values if isinstance(values, pa.Array) else pa.array(values)
    return table.set_column(table.column_names.index(name), name, column)


# --- arguments ----------------------------------------------------------------------------------------------------

# (arguments, type of error, the argument it names, what it says)
ARGUMENTS: list[tuple[dict[str, Any], type[InputError], str, str]] = [
    ({"policy": "prub"}, PolicyError, "policy", "got 'prub'; did you mean 'prob'\\? there are .*life.*rand"),
    ({"policy": "zzzz"}, PolicyError, "policy", "got 'zzzz'; there are .*life.*rand"),
    ({"policy": 7}, PolicyError, "policy", "got 7; give a name"),
    ({"policy": pen.Policy("xxxx")}, PolicyError, "policy", "got 'xxxx'; there are"),
    ({"window": 0}, WindowError, "window", "got 0; .*at least one tick"),
    ({"window": -5}, WindowError, "window", "got -5; a span is positive"),
    ({"window": (5, 0)}, WindowError, "window", "got \\(5, 0\\)"),
    ({"window": (5, 5, 5)}, WindowError, "window", "a pair \\(left, right\\)"),
    ({"window": pen.rows(0)}, WindowError, "window", "got rows\\(0\\); .*at least one row"),
    ({"window": pen.rows(-3)}, WindowError, "window", "got rows\\(-3\\)"),
    ({"window": (pen.rows(3), 5)}, WindowError, "window", "rows on both sides, or time on both"),
    ({"window": "10 minutes"}, WindowError, "window", "got '10 minutes'; time is in integer ticks"),
    ({"window": 1.5}, WindowError, "window", "got 1.5; give a span"),
    ({"window": None}, WindowError, "window", "got None; give a span"),
    ({"window": True}, WindowError, "window", "got True"),
    ({"window": 1 << 62}, WindowError, "window", "shorter than"),
    ({"lateness": -1}, WindowError, "lateness", "got -1; a span is positive"),
    ({"lateness": "1 minute"}, WindowError, "lateness", "time is in integer ticks"),
    ({"memory": 0}, BudgetError, "memory", "got 0; give a number of rows \\(at least 1\\)"),
    ({"memory": -1}, BudgetError, "memory", "got -1; give"),
    ({"memory": True}, BudgetError, "memory", "got True; give"),
    ({"memory": 1.5}, BudgetError, "memory", "got 1.5; give"),
    ({"memory": "512 bananas"}, BudgetError, "memory", "got '512 bananas'; give .*bytes such as \"512MB\""),
    ({"memory": "0MB"}, BudgetError, "memory", "got '0MB'"),
    ({"memory": "lots"}, BudgetError, "memory", "got 'lots'"),
    ({"memory": 1, "split": "fixed"}, BudgetError, "memory", "a fixed split needs at least 2"),
    ({"memory": 10, "split": "even"}, BudgetError, "split", 'got \'even\'; give "shared", "fixed"'),
    ({"memory": 10, "split": (7, 4)}, BudgetError, "split", "got \\(7, 4\\); .*add up to memory, which is 10"),
    ({"memory": 10, "split": (10, 0)}, BudgetError, "split", "each at least 1"),
    ({"memory": 10, "split": (1, 2, 7)}, BudgetError, "split", "give"),
    ({"memory": None, "split": (1, 2)}, BudgetError, "split", "memory, which is None"),
    ({"memory": "1MB", "split": (1, 2)}, BudgetError, "split", "memory, which is '1MB'"),
    ({"per_key": 0}, BudgetError, "per_key", "got 0; give at least 1"),
    ({"per_key": True}, BudgetError, "per_key", "got True"),
    ({"combine": "most"}, InputError, "combine", "got 'most'; give one of 'min', 'sum'"),
    ({"seed": "x"}, InputError, "seed", "got 'x'; give a whole number"),
    ({"seed": None}, InputError, "seed", "got None; give a whole number"),
    ({"seed": 1.5}, InputError, "seed", "got 1.5; give a whole number"),
    ({"seed": True}, InputError, "seed", "got True; give a whole number"),
    ({"how": "left"}, InputError, "how", "got 'left'; only inner joins: after shedding, a null row could be false"),
    ({"cpu": 3}, InputError, "cpu", "got 3; .*pen.cpu"),
    ({"shards": 3}, InputError, "shards", "got 3; .*leave it None"),
    ({"on": "kee"}, ColumnError, "on='kee'", "no such column on the left; it has ts, key, w, a"),
    ({"on": ("key", "kee")}, ColumnError, "on='kee'", "no such column on the right; it has ts, key, w, b"),
    ({"on": ["key", "a"]}, ColumnError, "on='a'", "no such column on the right"),
    ({"on": []}, ColumnError, "on", "got \\[\\]; give a column"),
    ({"on": 3}, ColumnError, "on", "got 3; give a column"),
    ({"on": None}, ColumnError, "on", "got None; give a column"),
    ({"on": ("a", "b", "c")}, ColumnError, "on", "give a column"),
    ({"on": [("key", "key"), "w"]}, ColumnError, "on", "give a column"),
    ({"time": "when"}, ColumnError, "time='when'", "no such column on the left"),
    ({"time": ("ts", "when")}, ColumnError, "time='when'", "no such column on the right"),
    ({"time": 3}, ColumnError, "time", "got 3; give a column name"),
    ({"time": "w"}, TimeError, "time", "got double on the left; a time column holds integers"),
    ({"importance": "worth"}, ColumnError, "importance='worth'", "no such column on the left"),
    ({"importance": ("w", "b")}, ImportanceError, "importance", "got bool on the right; use a column of numbers"),
    ({"importance": 3}, ColumnError, "importance", "got 3; give a column name"),
    ({"on": ("a", "w")}, KeyTypeError, "on='a'", "string on the left and double on the right; cast one"),
    ({"speed": 3}, InputError, "speed", "got 3; no such argument; there are on, time, window"),
]


@pytest.mark.parametrize(("arguments", "kind", "argument", "says"), ARGUMENTS, ids=[str(row[0]) for row in ARGUMENTS])
@pytest.mark.parametrize("call", ["run", "Join"])
def test_a_bad_argument(
    call: str, arguments: dict[str, Any], kind: type[InputError], argument: str, says: str
) -> None:
    given = {**GIVEN, "memory": 10, **arguments}
    with pytest.raises(kind, match=says) as caught:
        pen.run(LEFT, RIGHT, **given) if call == "run" else pen.Join(schemas=(LEFT.schema, RIGHT.schema), **given)
    assert type(caught.value) is kind
    assert argument == caught.value.argument
    assert str(caught.value) == f"{argument}: got {caught.value.got}; {caught.value.want}"


@pytest.mark.parametrize("seed", ["x", None, 1.5])
def test_a_bad_seed_for_several_streams(seed: object) -> None:
    with pytest.raises(InputError, match=f"seed: got {seed!r}; give a whole number"):
        pen.multijoin({"a": LEFT, "b": LEFT, "c": LEFT}, on="key", time="ts", windows=10, seed=seed)  # type: ignore[arg-type]


def test_an_argument_is_checked_before_rows_are() -> None:
    """What can be known without the input is said without it."""
    for arguments in ({"policy": "prub"}, {"memory": 0}, {"how": "left"}, {"combine": "most"}, {"per_key": 0}):
        with pytest.raises(InputError):
            pen.Join(**{**GIVEN, "memory": 10, **arguments})


@pytest.mark.parametrize("missing", ["on", "time", "window"])
def test_a_missing_argument(missing: str) -> None:
    given = {name: value for name, value in GIVEN.items() if name != missing}
    with pytest.raises(InputError, match=f"{missing}: got nothing; this argument is required"):
        pen.run(LEFT, RIGHT, **given)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("oldest", {"age": 3}, "age: got 3; 'oldest' has no such option; its options: none"),
        ("prob", {"statistic": "window"}, "'prob' has no such option; its options: statistics, half_life"),
        ("prob", {"statistics": "guess"}, "statistics: got 'guess'; give one of 'decayed', 'history', 'window'"),
        ("rand", {"at": "door"}, "at: got 'door'; give one of 'memory', 'input'"),
        ("replay", {"schedule": 3}, "schedule: got 3; give a mapping"),
        ("prub", {}, "policy: got 'prub'; did you mean 'prob'"),
    ],
)
def test_a_bad_policy(name: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyError) as caught:
        pen.policy(name, **options)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "kind", "argument"),
    [
        (pen.policy("prob", statistics="window", half_life=3), PolicyError, "half_life"),
        (pen.policy("prob", half_life=0), WindowError, "half_life"),
        (pen.policy("prob", half_life="10 minutes"), WindowError, "half_life"),
        (pen.policy("prob", statistics=pen.table(left={"x": 0.5}, right={})), KeyTypeError, "statistics"),
        (pen.policy("prob", statistics=pen.table(left={1: -0.5}, right={})), PolicyError, "statistics.left"),
        (pen.policy("prob", statistics=pen.table(left={}, right={1: math.nan})), PolicyError, "statistics.right"),
        (pen.policy("replay"), PolicyError, "schedule"),
    ],
    ids=str,
)
def test_a_policy_that_does_not_fit_the_join(policy: pen.Policy, kind: type[InputError], argument: str) -> None:
    with pytest.raises(kind) as caught:
        pen.Join(schemas=(LEFT.schema, RIGHT.schema), **GIVEN, memory=10, policy=policy)
    assert argument == caught.value.argument


@pytest.mark.parametrize(
    ("window", "says"),
    [
        (5, "time is in timestamps: write a span"),
        ("soon", "write a number and a unit"),
        ("10", "write a number and a unit"),
        ("10 parsecs", "units: ns, us, ms, seconds"),
        ("-1 minutes", "write a number and a unit"),
        ("0 minutes", "at least one tick"),
        ("1 minute and", "write a number and a unit"),
        ("100 us", "counts in ms: use a whole number of those"),
        (timedelta(microseconds=1500), "counts in ms"),
        (timedelta(seconds=-1), "a span is positive"),
    ],
    ids=str,
)
def test_a_bad_span_of_time(window: Any, says: str) -> None:
    with pytest.raises(WindowError, match=says) as caught:
        pen.run(STAMPS, STAMPS, on="key", time="ts", window=window)
    assert caught.value.argument == "window"


@pytest.mark.parametrize(
    ("arguments", "kind", "argument"),
    [
        ({"memory": 100}, InputError, "memory"),
        ({"memory": []}, BudgetError, "memory"),
        ({"memory": [0]}, BudgetError, "memory"),
        ({"policies": "rand"}, PolicyError, "policies"),
        ({"policies": []}, PolicyError, "policies"),
        ({"policies": ["prub"]}, PolicyError, "policy"),
        ({"split": ["even"]}, BudgetError, "split"),
        ({"count_from": "noon"}, TimeError, "count_from"),
        ({"count_from": datetime(2025, 1, 1, tzinfo=UTC)}, TimeError, "count_from"),
    ],
    ids=str,
)
def test_a_bad_argument_of_compare(arguments: dict[str, Any], kind: type[InputError], argument: str) -> None:
    given = {**GIVEN, "policies": ["oldest"], "memory": [10], **arguments}
    with pytest.raises(kind) as caught:
        pen.compare(LEFT, RIGHT, **given)
    assert argument == caught.value.argument


# --- columns ------------------------------------------------------------------------------------------------------

# (left, right, arguments, type of error, the argument it names, what it says)
COLUMNS: list[tuple[Any, Any, dict[str, Any], type[InputError], str, str]] = [
    (LEFT.drop_columns("key"), RIGHT, {}, ColumnError, "on='key'", "no such column on the left; it has ts, w, a"),
    (LEFT, RIGHT.drop_columns("ts"), {}, ColumnError, "time='ts'", "no such column on the right"),
    (LEFT.append_column("key", LEFT["ts"]), RIGHT, {}, ColumnError, "on='key'", "that column twice on the left"),
    (
        with_column(LEFT, "key", ["1", "2", "1", "2"]),
        RIGHT,
        {},
        KeyTypeError,
        "on='key'",
        "string on the left and int64 on the right; cast one of them",
    ),
    (with_column(LEFT, "key", [[1], [2], [], []]), RIGHT, {}, KeyTypeError, "on='key'", "cast one of them"),
    (
        with_column(LEFT, "key", [{"x": 1}] * 4),
        with_column(RIGHT, "key", [{"x": 1}] * 3),
        {},
        KeyTypeError,
        "on='key'",
        "list the fields instead",
    ),
    (
        with_column(LEFT, "ts", STAMPS["ts"].combine_chunks()),
        RIGHT,
        {},
        TimeError,
        "time",
        "timestamp\\[ms\\] on the left and int64 on the right; use the same kind",
    ),
    (with_column(LEFT, "ts", ["1", "2", "3", "4"]), RIGHT, {}, TimeError, "time", "string on the left"),
    (with_column(LEFT, "ts", [1, None, 3, 4]), RIGHT, {}, TimeError, "time='ts'", "a null in row 1; every row needs"),
    (LEFT, with_column(RIGHT, "ts", [1, 3, None]), {}, TimeError, "time='ts'", "a null in row 2"),
    (
        with_column(LEFT, "ts", pa.array([1, 2, 3, 1 << 63], pa.uint64())),
        RIGHT,
        {},
        TimeError,
        "time='ts'",
        "a time beyond",
    ),
    (with_column(LEFT, "ts", [1, 2, 3, 1 << 62]), RIGHT, {}, TimeError, "time='ts'", "a time beyond"),
    (LEFT[::-1], RIGHT, {}, OrderError, "left", "row 1 is older than the row before it; sort it by time, or say"),
    (LEFT, with_column(RIGHT, "ts", [1, 5, 4]), {}, OrderError, "right", "row 2 is older"),
    (
        with_column(LEFT, "w", [1.0, math.nan, 1.0, 1.0]),
        RIGHT,
        {"importance": "w"},
        ImportanceError,
        "importance='w'",
        "got nan in row 1; importance is a finite number, at least 0",
    ),
    (
        LEFT,
        with_column(RIGHT, "w", [1.0, 1.0, -0.5]),
        {"importance": "w"},
        ImportanceError,
        "importance='w'",
        "got -0.5 in row 2",
    ),
    (
        with_column(LEFT, "w", [None, 1.0, 1.0, 1.0]),
        RIGHT,
        {"importance": "w"},
        ImportanceError,
        "importance='w'",
        "got None in row 0",
    ),
    (
        LEFT,
        with_column(RIGHT, "w", [1.0, math.inf, 0.0]),
        {"importance": "w"},
        ImportanceError,
        "importance='w'",
        "got inf in row 1",
    ),
    (
        LEFT.rename_columns(["ts", "key", "w", "ts_left"]),
        RIGHT,
        {},
        ColumnError,
        "result",
        "two columns named 'ts_left'; rename one before the join",
    ),
    (None, RIGHT, {}, InputError, "left", "got None; give an Arrow table"),
    (LEFT, [1, 2], {}, InputError, "right", "got list; give an Arrow table"),
]


@pytest.mark.parametrize(("left", "right", "arguments", "kind", "argument", "says"), COLUMNS)
@pytest.mark.parametrize("call", [pen.run, pen.join], ids=["run", "join"])
def test_a_bad_column(
    call: Callable[..., Any],
    left: Any,
    right: Any,
    arguments: dict[str, Any],
    kind: type[InputError],
    argument: str,
    says: str,
) -> None:
    with pytest.raises(kind, match=says) as caught:
        call(left, right, **{**GIVEN, **arguments})
    assert type(caught.value) is kind
    assert argument == caught.value.argument


@pytest.mark.parametrize("memory", [None, 3, "1kB"])
@pytest.mark.parametrize("window", [5, pen.rows(5)], ids=str)
def test_empty_tables_give_an_empty_result_of_the_right_schema(memory: Any, window: Any) -> None:
    given = {**GIVEN, "window": window, "memory": memory, "policy": "oldest", "importance": "w"}
    schema = pen.join(LEFT, RIGHT, **given).schema
    for left, right in ((LEFT[:0], RIGHT[:0]), (LEFT, RIGHT[:0]), (LEFT[:0], RIGHT)):
        result = pen.run(left, right, **given)
        assert (0, schema) == (result.table.num_rows, result.table.schema)
        assert result.report.balanced
        assert (left.num_rows, right.num_rows) == tuple(result.report.arrivals)
        assert result.ledger.column_names[:3] == ["side", "shard", "arrival"]


def test_tables_without_types_take_those_of_the_other_side() -> None:
    """A CSV file without rows has no types."""
    untyped = pa.table({"ts": pa.nulls(0), "key": pa.nulls(0)})
    assert pen.join(untyped, STAMPS, on="key", time="ts", window="1 s").num_rows == 0
    assert pen.join(untyped, untyped, on="key", time="ts", window=3).num_rows == 0
    with pytest.raises(TimeError, match="a null in row 0"):
        pen.join(pa.table({"ts": pa.nulls(1), "key": pa.nulls(1)}), LEFT, on="key", time="ts", window=3)


# --- refused batches ----------------------------------------------------------------------------------------------

GOOD_LEFT = pa.table({"ts": [5, 6], "key": [1, 2], "w": [1.0, 1.0], "a": ["p", "q"]})
REFUSED: list[tuple[str, pa.Table, type[InputError], str]] = [
    ("missing", GOOD_LEFT.drop_columns("a"), SchemaError, r"left: got a batch without \['a'\]"),
    ("extra", GOOD_LEFT.append_column("more", GOOD_LEFT["a"]), SchemaError, r"left: got a batch with \['more'\]"),
    ("renamed", GOOD_LEFT.rename_columns(["ts", "key", "w", "c"]), SchemaError, r"without \['a'\] and with \['c'\]"),
    ("changed", with_column(GOOD_LEFT, "key", ["1", "2"]), SchemaError, "left: got key: string, not int64"),
    ("reordered", GOOD_LEFT.select(["key", "ts", "w", "a"]), SchemaError, "the columns in another order"),
    ("null time", with_column(GOOD_LEFT, "ts", [5, None]), TimeError, "time='ts': got a null in row"),
    ("bad importance", with_column(GOOD_LEFT, "w", [1.0, -1.0]), ImportanceError, "importance='w': got -1.0 in row"),
]


def outcome(op: pen.Join) -> tuple[list[Any], dict[str, Any], list[Any]]:
    """Push what comes after, and return all that can be seen of the join."""
    after = [op.push(left=GOOD_LEFT), op.push(right=pa.table(RIGHT.slice(1))), op.finish()]
    return [table.to_pylist() for table in after], op.report().to_dict(), op.ledger().to_pylist()


@pytest.mark.parametrize(("batch", "kind", "says"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
@pytest.mark.parametrize("memory", [None, 3])
@pytest.mark.parametrize("begun", ["no side", "left", "both"])
def test_a_join_that_refused_a_batch_goes_on_as_before(
    batch: pa.Table, kind: type[InputError], says: str, memory: int | None, begun: str
) -> None:
    def begin() -> pen.Join:
        op = pen.Join(**GIVEN, importance="w", memory=memory, policy="oldest")
        if begun in {"left", "both"}:
            op.push(left=LEFT)
        if begun == "both":
            op.push(right=RIGHT[:1])
        return op

    if begun == "no side" and kind is SchemaError:
        return  # there is no schema to differ from
    untroubled, troubled = begin(), begin()
    with pytest.raises(kind, match=says) as caught:
        troubled.push(left=batch)
    assert type(caught.value) is kind
    if begun != "no side":
        with pytest.raises(kind):  # the good half of a push is refused with the bad one
            troubled.push(left=batch, right=RIGHT[1:])
    want, got = outcome(untroubled), outcome(troubled)
    assert want == got
    assert want[1]["pairs"] > 0


def test_rows_are_numbered_over_all_batches_in_what_errors_say() -> None:
    op = pen.Join(**GIVEN, schemas=(LEFT.schema, RIGHT.schema), importance="w")
    op.push(left=LEFT, right=RIGHT)
    with pytest.raises(TimeError, match="a null in row 5"):
        op.push(left=with_column(GOOD_LEFT, "ts", [5, None]))
    with pytest.raises(ImportanceError, match="nan in row 4"):
        op.push(left=with_column(GOOD_LEFT, "w", [math.nan, 1.0]))


def test_the_second_side_is_refused_and_the_first_goes_on_waiting() -> None:
    op = pen.Join(**GIVEN)
    op.push(left=LEFT)
    with pytest.raises(KeyTypeError):
        op.push(right=with_column(RIGHT, "key", ["1", "1", "2"]))
    with pytest.raises(TimeError, match="row 0"):
        op.push(right=with_column(RIGHT, "ts", pa.nulls(3, pa.int64())))
    assert op.push(right=RIGHT).num_rows == pen.join(LEFT, RIGHT, **GIVEN).num_rows
    assert op.report().arrivals == (4, 3)


def test_one_side_alone_is_checked_as_far_as_can_be() -> None:
    for batch, kind in (
        (LEFT.drop_columns("key"), ColumnError),
        (LEFT.drop_columns("ts"), ColumnError),
        (with_column(LEFT, "ts", ["1", "2", "3", "4"]), TimeError),
        (LEFT.drop_columns("w"), ColumnError),
        (with_column(LEFT, "w", ["1", "2", "3", "4"]), ImportanceError),
    ):
        for side in ("left", "right"):
            op = pen.Join(**GIVEN, importance="w")
            with pytest.raises(kind, match=side):
                op.push(**{side: batch})
            assert op.report().arrivals == (0, 0)


def test_a_refused_change_of_size_changes_nothing() -> None:
    def pairs(**resize: Any) -> int:
        streams = workloads.zipf(300, keys=5, seed=1)
        op = pen.Join(**GIVEN, memory=10, policy="oldest")
        found = op.push(left=streams.left[:100], right=streams.right[:100]).num_rows
        if resize:
            with pytest.raises(InputError):
                op.resize(**resize)
        return found + op.push(left=streams.left[100:], right=streams.right[100:]).num_rows

    want = pairs()
    for resize in ({"memory": 0}, {"memory": "1MB"}, {"memory": 100, "window": 0}, {"window": pen.rows(3)}):
        assert want == pairs(**resize)


def test_a_join_without_a_budget_gets_one_by_another_way() -> None:
    op = pen.Join(**GIVEN)
    op.push(left=LEFT, right=RIGHT)
    says = r"memory: got 5; this join was made without a budget: go on with join.changed\(memory=5\)"
    with pytest.raises(BudgetError, match=says):
        op.resize(memory=5)
    held = op.report().memory_rows
    bounded = op.changed(memory=5)
    bounded.advance(7)
    assert (7, 5) == (held, bounded.report().memory_rows)
    exact = bounded.changed(memory=None)
    exact.push(left=with_column(LEFT, "ts", [7, 8, 9, 10]))
    assert exact.report().memory_rows == 5 + 4


def test_a_join_without_a_cpu_budget_gets_none() -> None:
    op = pen.Join(**GIVEN)
    op.push(left=LEFT, right=RIGHT)
    with pytest.raises(StateError, match=r"cpu: got cpu\(5 comparisons a second, auto\); a CPU budget stays"):
        op.changed(cpu=pen.cpu(comparisons_per_second=5))


def test_a_budget_that_is_not_named_stays() -> None:
    streams = workloads.zipf(300, keys=5, seed=1)
    op = pen.Join(**GIVEN, memory=10, policy="oldest")
    op.push(left=streams.left, right=streams.right)
    op.resize(memory=None, window=20)
    op.finish()
    assert op.report().memory_rows <= 10


def test_nothing_was_pushed_yet() -> None:
    op = pen.Join(**GIVEN)
    for call in (lambda: op.advance(3), lambda: op.resize(memory=3)):
        with pytest.raises(InputError, match="push rows first"):
            call()
    with pytest.raises(TimeError, match="time is in integer ticks"):
        pen.Join(**GIVEN, schemas=(LEFT.schema, RIGHT.schema)).advance("noon")
    with pytest.raises(InputError, match="ledger: got 'maybe'; give one of 'keep', 'off'"):
        pen.Join(**GIVEN, ledger="maybe")


# --- states -------------------------------------------------------------------------------------------------------


def saved() -> dict[str, bytes]:
    op = pen.Join(**GIVEN, memory=3, policy="oldest")
    op.push(left=LEFT, right=RIGHT)
    return op.state_dict()


@pytest.mark.parametrize(
    "state", [{}, None, "state", [], {"meta": b"junk"}, {"meta": b"[]"}, {"meta": b"{}"}, {"meta": None}], ids=str
)
def test_what_is_no_state(state: Any) -> None:
    with pytest.raises(StateError) as caught:
        pen.Join.from_state(state)
    assert caught.value.argument == "state"


def test_a_state_of_another_version() -> None:
    state = saved()
    state["meta"] = json.dumps({**json.loads(state["meta"]), "version": 99}).encode()
    with pytest.raises(StateError, match="state: got version 99; this Penstock reads version"):
        pen.Join.from_state(state)


@pytest.mark.parametrize("part", sorted(set(saved()) - {"ledger"}))
@pytest.mark.parametrize("harm", ["gone", "junk", "half"])
def test_a_state_that_was_harmed(part: str, harm: str) -> None:
    state = saved()
    whole = state.pop(part)
    if harm != "gone":
        state[part] = b"junk" if harm == "junk" else whole[: len(whole) // 2]
    with pytest.raises(StateError, match="state: got"):
        pen.Join.from_state(state)


@pytest.mark.parametrize("part", ["core", "rows_left", "numbers_right", "intake"])
def test_a_state_with_one_bit_turned_is_refused(part: str) -> None:
    state = saved()
    data = bytearray(state[part])
    data[len(data) // 2] ^= 1
    with pytest.raises(StateError, match=f"damaged bytes in '{part}'"):
        pen.Join.from_state(state | {part: bytes(data)})


def test_an_argument_that_cannot_be_saved() -> None:
    op = pen.Join(
        **{**GIVEN, "on": ["key"]}, policy=pen.policy("replay", schedule={"side": [], "row": [], "until": {1}})
    )
    with pytest.raises(StateError, match="can be saved"):
        op.state_dict()


# --- the errors themselves ----------------------------------------------------------------------------------------

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PenstockError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_survives_pickling_and_copying(kind: type[PenstockError]) -> None:
    if kind is PenstockError:
        error: PenstockError = kind("what happened")
    elif issubclass(kind, OutputError):
        error = kind("out.csv", "No space left on device")
    else:
        error = kind("memory", "0", "give more")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):  # noqa: S301 - our own
        assert type(again) is kind
        assert (str(error), vars(error)) == (str(again), vars(again))


def test_errors_as_they_are_raised_survive_pickling() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: pen.join(LEFT, RIGHT, on="a", time="ts", window=3),
        lambda: pen.join(LEFT, RIGHT, on="key", time="ts", window=3, memory=object()),
        lambda: files.read("missing.csv"),
    ]
    for call in calls:
        with pytest.raises(InputError) as caught:
            call()
        assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value)))  # noqa: S301 - our own


def test_errors_can_be_caught_as_what_python_calls_them() -> None:
    assert issubclass(InputError, ValueError)
    assert issubclass(OutputError, OSError)
    assert all(issubclass(kind, PenstockError) for kind in KINDS)
    assert all(inspect.getdoc(kind) for kind in KINDS)
