"""What every memory policy must keep to, whatever it prefers: a list of checks that take a policy.

A *subject* is a policy with options, made for a trace and the arguments of its join: REPLAY needs a schedule, and
gets one from another run's ledger. The checks know nothing else about any policy.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import penstock as pen
from oracles import Arrival, Kind, exact
from penstock.errors import PolicyError
from penstock.policies.registry import Entry, entries
from penstock.quality.archive import missed
from traces import (
    SIDES,
    Got,
    Pusher,
    Table,
    by_time,
    bytes_of,
    drive,
    held_after_ticks,
    plain_table,
    pushes,
    random_trace,
    weighty_table,
    window,
)

FOREVER = 10**9
SPANS = (12, 18)
CHANCES = pen.table(left={key: 1 / (key + 2) for key in range(9)}, right={key: 1 / (9 - key) for key in range(9)})


class Subject(NamedTuple):
    """A policy with options."""

    entry: Entry
    label: str
    make: Callable[[Sequence[Arrival], Table, dict[str, Any]], pen.Policy]


class Setting(NamedTuple):
    """A trace, the cut of it, and the arguments of a join over it."""

    trace: list[Arrival]
    ends: range
    table: Table
    arguments: dict[str, Any]
    kind: Kind
    lateness: int


def subjects() -> Iterator[Subject]:
    """Return every registered policy, with its defaults and with every option that changes how it works."""
    variants: dict[str, list[dict[str, Any]]] = {
        "statistics": [{"statistics": source} for source in ("history", "window", CHANCES)],
        "by": [{"by": "matches"}],
        "loss": [{"loss": 0.5, "gain": 3}],
        "half_life": [{"statistics": "decayed", "half_life": 3}],
        "at": [{"at": "input"}],
    }
    for entry in entries():
        options: list[dict[str, Any]] = [{}] if entry.name != "replay" else []
        options += [
            variant
            for name, option in entry.options.items()
            for variant in variants.get(name, [])
            if option.check(variant[name]) is None
        ]
        for chosen in options:
            policy = pen.policy(entry.name, **chosen)
            yield Subject(entry, str(policy), lambda *_, policy=policy: policy)
        if not options:
            yield Subject(entry, entry.name, replayed)


def replayed(trace: Sequence[Arrival], table: Table, arguments: dict[str, Any]) -> pen.Policy:
    """Make a schedule from the ledger of RAND: who was shed stays until then, the others for good."""
    got = drive(trace, range(0, len(trace), 10), table, **{**arguments, "policy": "rand", "seed": 77})
    left = {(side, row): tick for side, row, reason, tick in got.shed if reason == "budget"}
    rows = [(side, row) for side in range(2) for row in range(sum(a.side == side for a in trace))]
    schedule = {
        "side": [SIDES[side] for side, _ in rows],
        "row": [row for _, row in rows],
        "until": [left.get(ident, FOREVER) for ident in rows],
    }
    return pen.policy("replay", schedule=schedule)


def settings() -> Iterator[Setting]:
    """Return the joins that a policy must do well in."""
    rows = by_time(random_trace(1, 260, 9, nulls=0.05, tie=0.6))
    late = random_trace(2, 260, 9, late=0.2, back=6)
    ends = range(0, 260, 9)
    budgets: list[dict[str, Any]] = [
        {"memory": 10},
        {"memory": 11, "split": "fixed"},
        {"memory": 12, "split": (3, 9), "per_key": 2},
        {"memory": 1},
    ]
    kinds: list[Kind] = ["time", "rows"]
    for budget in budgets:
        for kind in kinds:
            yield Setting(rows, ends, plain_table, {"window": window(SPANS, kind), **budget}, kind, 0)
        arguments = {"window": window(SPANS, "time"), "lateness": 3, **budget}
        yield Setting(late, ends, plain_table, arguments, "time", 3)
    for kind in kinds:
        arguments = {"window": window(SPANS, kind), "memory": "2kB", "importance": "weight"}
        yield Setting(rows, ends, weighty_table, arguments, kind, 0)


def play(subject: Subject, setting: Setting, **more: Any) -> Got:
    """Run a policy in a setting."""
    arguments = {**setting.arguments, **more}
    policy = subject.make(setting.trace, setting.table, arguments)
    return drive(setting.trace, setting.ends, setting.table, policy=policy, **arguments)


def exact_pairs(setting: Setting) -> set[tuple[int, int]]:
    return exact(setting.trace, spans=SPANS, kind=setting.kind, lateness=setting.lateness)


# --- checks -------------------------------------------------------------------------------------------------------


def output_is_a_subset_of_the_exact_join(subject: Subject) -> None:
    for setting in settings():
        got = play(subject, setting)
        assert set(got.pairs) <= exact_pairs(setting)
        assert len(set(got.pairs)) == len(got.pairs), "a pair came twice"


def books_balance_at_every_push(subject: Subject) -> None:
    for setting in settings():
        policy = subject.make(setting.trace, setting.table, setting.arguments)
        pusher = Pusher(setting.table, policy=policy, **setting.arguments)
        for part in pushes(setting.trace, setting.ends):
            pusher.push(part)
            report = pusher.join.report()
            assert report.balanced
            assert tuple(pusher.came) == report.arrivals
        got = pusher.finish()
        assert got.report.balanced
        assert len(got.pairs) == got.report.pairs
        assert len(got.shed) == sum(count.total for count in got.report.shed.values())
        assert (len(got.live), len(got.expired)) == (got.report.live.total, got.report.expired.total)


def budget_holds_after_every_tick(subject: Subject) -> None:
    for setting in settings():
        arguments = setting.arguments
        policy = subject.make(setting.trace, setting.table, arguments)
        pusher = Pusher(setting.table, policy=policy, **arguments)
        done = 0
        for part in pushes(setting.trace, setting.ends):
            pusher.push(part)
            done += len(part)
            within(arguments, held_after_ticks(pusher.join, setting.trace[:done]))
        within(arguments, list(pusher.finish().live))


def within(arguments: dict[str, Any], held: list[tuple[int, int]]) -> None:
    memory, split = arguments["memory"], arguments.get("split", "shared")
    if memory == "2kB":
        assert sum(map(bytes_of, held)) <= 2000
        return
    assert len(held) <= memory
    limits = {"shared": (memory, memory), "fixed": (memory - memory // 2, memory // 2)}.get(str(split), split)
    for side in range(2):
        assert sum(which == side for which, _ in held) <= limits[side]


def memory_for_everything_is_exact(subject: Subject) -> None:
    for setting in settings():
        arguments = {key: value for key, value in setting.arguments.items() if key not in {"split", "per_key"}}
        arguments["memory"] = "1MB" if setting.table is weighty_table else 1000
        got = play(subject, setting._replace(arguments=arguments))
        assert exact_pairs(setting) == set(got.pairs)
        assert all(reason == "late" for _, _, reason, _ in got.shed)


def ledger_explains_every_missed_pair(subject: Subject) -> None:
    for setting in settings():
        got = play(subject, setting)
        late = {(side, row) for side, row, reason, _ in got.shed if reason == "late"}
        # What the exact join would be if late rows had come in time: the ledger must explain those pairs, too.
        pairs = (
            sorted(exact(setting.trace, spans=SPANS, kind=setting.kind, lateness=FOREVER))
            if late
            else sorted(exact_pairs(setting))
        )
        left, right = (np.array([pair[side] for pair in pairs], np.int64) for side in range(2))
        want = [pair not in set(got.pairs) for pair in pairs]
        assert any(want), "this setting sheds nothing that matters: it checks nothing"
        assert want == missed(left, right, got.ledger).tolist()


def same_seed_same_run(subject: Subject) -> None:
    for setting in settings():
        for seed in (0, 5):
            want, got = play(subject, setting, seed=seed), play(subject, setting, seed=seed)
            assert want.pairs == got.pairs
            assert want.shed == got.shed


def saved_and_restored_it_goes_on(subject: Subject) -> None:
    for setting in settings():
        policy = subject.make(setting.trace, setting.table, setting.arguments)
        straight, broken = (Pusher(setting.table, policy=policy, **setting.arguments) for _ in range(2))
        for at, part in enumerate(pushes(setting.trace, setting.ends)):
            straight.push(part)
            broken.push(part)
            if at % 5 == 2:
                broken.reborn()
        want, got = straight.finish(), broken.finish()
        assert want.pairs == got.pairs
        assert want.shed == got.shed
        assert want.report.to_dict() | {"memory_bytes": 0} == got.report.to_dict() | {"memory_bytes": 0}


def options_are_documented_and_checked(subject: Subject) -> None:
    entry = subject.entry
    listed = {row["name"]: row for row in pen.policies().to_pylist()}[entry.name]
    for name, option in entry.options.items():
        assert len(option.meaning.split()) >= 3
        assert name in listed["options"]
    with pytest.raises(PolicyError, match="no such option"):
        pen.policy(entry.name, no_such_option=1)


def docstring_says_what_it_costs(subject: Subject) -> None:
    words = subject.entry.kind.__doc__ or ""
    assert words.splitlines()[0].endswith(".")
    assert "The idea:" in words
    assert "Cost:" in words
    assert "O(" in subject.entry.cost
    if subject.entry.paper != "-":
        assert f"References: {subject.entry.paper}" in words


CHECKS: list[Callable[[Subject], None]] = [
    output_is_a_subset_of_the_exact_join,
    books_balance_at_every_push,
    budget_holds_after_every_tick,
    memory_for_everything_is_exact,
    ledger_explains_every_missed_pair,
    same_seed_same_run,
    saved_and_restored_it_goes_on,
    options_are_documented_and_checked,
    docstring_says_what_it_costs,
]
