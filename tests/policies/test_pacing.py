"""Budgets by the clock on the wall are kept, whatever comes: on a clock of our own, which runs with the work done."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.core.gate import ENTERED
from penstock.core.step import ARRIVED, PAIRS
from penstock.errors import InputError, LatencyWarning
from penstock.operator import join
from penstock.policies.cpu.pacing import Pace, Portion, Target
from set_oracles import pairs

SECOND = 10**6  # in ticks
ROW, WORK = 4e-6, 1e-6  # seconds that a row takes, and a comparison
SPAN = 4  # seconds


class Clock:
    """Time that passes with work, and with waiting."""

    def __init__(self, op: pen.Join, row: float = ROW, work: float = WORK) -> None:
        self.op, self.row, self.work, self.waited = op, row, work, 0.0

    def __call__(self) -> float:
        core = self.op._core
        rows = int(core.counts[ARRIVED : ARRIVED + 2].sum())
        return self.waited + self.row * rows + self.work * core.work  # type: ignore[union-attr]


class KeyClock(Clock):
    """The same for equal keys: a row that is let in takes time, and a pair a little."""

    def __call__(self) -> float:
        core: Any = self.op._core
        rows, pairs = int(core.counts[ARRIVED : ARRIVED + 2].sum()), int(core.counts[PAIRS])
        return self.waited + self.row * rows + self.work * (int(core.gate.marks[ENTERED]) + pairs / 1000)


class Stopped(KeyClock):
    """The same on a machine that stands still for a while, once."""

    def __init__(self, op: pen.Join, at: float, seconds: float, **more: float) -> None:
        super().__init__(op, **more)
        self.at, self.seconds = at, seconds

    def __call__(self) -> float:
        if super().__call__() > self.at:
            self.waited, self.at = self.waited + self.seconds, np.inf
        return super().__call__()


def stream(seed: int, seconds: float, rate: Callable[[float], float], *, keys: int = 0) -> pa.Table:
    """Return rows of a live stream with sets whose popular items move on, or with keys."""
    rng = np.random.default_rng(seed)
    moments = []
    for second in np.arange(0, seconds, 0.1):
        moments += sorted((second + rng.random(rng.poisson(rate(second) / 10)) / 10).tolist())
    ts = pa.array((np.array(moments) * SECOND).astype(np.int64), pa.timestamp("us"))
    chance = 1 / np.arange(1, 31)
    chance /= chance.sum()
    if keys:
        key = np.minimum(rng.geometric(3 / keys, len(moments)), keys)
        return pa.table({"ts": ts, "k": key, "row": np.arange(len(moments))})
    items = [
        ((rng.choice(30, size=4, p=chance) + int(7 * at)) % 30).tolist() for at in moments
    ]  # fmt: skip
    return pa.table({"ts": ts, "v": pa.array(items, pa.list_(pa.int64())), "row": np.arange(len(moments))})


def live(op: pen.Join, clock: Clock, tables: tuple[pa.Table, pa.Table], least: float) -> tuple[pa.Table, list[Any]]:
    """Push what has come whenever the join is free, at most every `least` seconds.

    Returns the pairs, and for each batch when it began, how long its first row waited for its end, and its time.
    """
    times = [table["ts"].cast(pa.int64()).to_numpy() / SECOND for table in tables]
    begin, found, log = [0, 0], [], []
    op.clock = clock
    while any(at < ts.size for at, ts in zip(begin, times, strict=True)):
        clock.waited += least
        now = clock()
        ends = [int(np.searchsorted(ts, now)) for ts in times]
        parts = [table[a:b] for table, a, b in zip(tables, begin, ends, strict=True)]
        first = min([ts[a] for ts, a, b in zip(times, begin, ends, strict=True) if b > a], default=now)
        found.append(op.push(left=parts[0], right=parts[1]))
        log.append((now, clock() - first, clock() - now))
        begin = ends
    found.append(op.finish())
    return pa.concat_tables(found), log


def surge(low: float, high: float) -> Callable[[float], float]:
    return lambda at: high if 20 <= at < 40 else low


def overlapping(latency: str, **more: Any) -> dict[str, Any]:
    on = pen.overlap("v", at_least=2, index=False)
    return {"on": on, "time": "ts", "window": f"{SPAN} seconds", "cpu": pen.cpu(latency=latency, **more)}


def test_a_surge_of_ten_times_is_absorbed_and_quality_comes_back() -> None:
    tables = tuple(stream(seed, 70, surge(30, 300)) for seed in (1, 2))
    op = pen.Join(schemas=(tables[0].schema, tables[1].schema), **overlapping("1 second"))
    clock = Clock(op, work=32e-6)  # all comparisons of the surge take 24 seconds of each
    found, log = live(op, clock, (tables[0], tables[1]), 0.05)
    lags = np.array([lag for _, lag, _ in log])
    assert lags[2:].max() <= 1.0, lags.max()  # the first batches learn what work costs
    rows = [
        list(zip((t["ts"].cast(pa.int64()).to_numpy()).tolist(), t["v"].to_pylist(), strict=True)) for t in tables
    ]
    exact = pairs("overlap", 2, rows[0], rows[1], (SPAN * SECOND, SPAN * SECOND))
    got = set(zip(found["row_left"].to_pylist(), found["row_right"].to_pylist(), strict=True))
    assert got <= set(exact)
    when = np.array([max(rows[0][i][0], rows[1][j][0]) for i, j in exact]) / SECOND
    there = np.array([pair in got for pair in exact])
    assert there[(when < 19) | (when > 50)].mean() > 0.999
    assert 0.03 < there[(when > 25) & (when < 40)].mean() < 0.7
    assert op.report().slowest is not None
    assert op.report().balanced


def test_equal_keys_keep_their_latency_too() -> None:
    tables = tuple(stream(seed, 45, surge(200, 2000), keys=40) for seed in (3, 4))
    how: dict[str, Any] = {"on": "k", "time": "ts", "window": f"{SPAN} seconds"}
    exact = pen.run(tables[0], tables[1], **how).report.pairs
    shares = {}
    for method in ("auto", "random-drop"):
        cpu = pen.cpu(latency="500 ms", method=method)
        op = pen.Join(schemas=(tables[0].schema, tables[1].schema), cpu=cpu, **how)
        clock = KeyClock(op, row=2e-5, work=1e-3)  # to let all rows of a surge in takes 4 seconds of each
        found, log = live(op, clock, (tables[0], tables[1]), 0.04)
        late = [lag for at, lag, _ in log if lag > 0.5]
        assert len(late) <= 2, late
        shares[method] = found.num_rows / exact
    assert shares["auto"] > 1.5 * shares["random-drop"]


def test_a_machine_that_stood_still_does_not_end_a_join() -> None:
    tables = []
    for seed in (1, 2):  # one key is more than there is time for, all others are next to nothing
        rng = np.random.default_rng(seed)
        ts = pa.array(np.sort(rng.integers(0, 45 * SECOND, 450_000)), pa.timestamp("us"))
        tables.append(
            pa.table({"ts": ts, "k": np.where(rng.random(len(ts)) < 0.6, 0, rng.integers(1, 2000, len(ts)))})
        )
    cpu = pen.cpu(latency="1 second")
    schemas = (tables[0].schema, tables[1].schema)
    op = pen.Join(schemas=schemas, on="k", time="ts", window=f"{SPAN} seconds", cpu=cpu, ledger="off")
    with pytest.warns(LatencyWarning):
        found, _ = live(op, Stopped(op, 10.3, 20.0, row=1e-5, work=1e-3), (tables[0], tables[1]), 0.05)
    when = [found[name].cast(pa.int64()).to_numpy() for name in ("ts_left", "ts_right")]
    before, after = (int(((np.maximum(*when) // (5 * SECOND)) == at).sum()) for at in (1, 7))
    assert after > before / 2 > 0, (before, after)  # what work costs was put down too high in between


@pytest.mark.parametrize("chunk", [0.1, 0.5])
def test_who_pushes_chunks_of_a_queue_does_not_fall_behind(chunk: float) -> None:
    """Chunks of one size: a batch may take no longer on the mean than its rows took to come."""
    tables = tuple(stream(seed, 30, lambda _: 300) for seed in (5, 6))
    op = pen.Join(schemas=(tables[0].schema, tables[1].schema), **overlapping("4 seconds"))
    op.clock = clock = Clock(op, work=1e-5)
    times = [table["ts"].cast(pa.int64()).to_numpy() / SECOND for table in tables]
    lags = []
    for until in np.arange(chunk, 30, chunk):
        clock.waited += max(0.0, until - clock())
        parts = [
            table[int(np.searchsorted(ts, until - chunk)) : int(np.searchsorted(ts, until))]
            for table, ts in zip(tables, times, strict=True)
        ]
        op.push(left=parts[0], right=parts[1])
        lags.append(clock() - (until - chunk))
    assert max(lags) <= 4.0
    assert op.report().unprobed.total > 0


def test_a_share_of_the_time_is_what_is_used() -> None:
    tables = tuple(stream(seed, 60, surge(60, 600)) for seed in (7, 8))
    for share in (0.2, 0.6):
        how = overlapping("1 second") | {"cpu": pen.cpu(share=share)}
        op = pen.Join(schemas=(tables[0].schema, tables[1].schema), **how)
        op.clock = clock = Clock(op, work=2e-6)
        times = [table["ts"].cast(pa.int64()).to_numpy() / SECOND for table in tables]
        took = []
        for until in np.arange(1.0, 61.0):
            parts = [
                t[int(np.searchsorted(ts, until - 1)) : int(np.searchsorted(ts, until))]
                for t, ts in zip(tables, times, strict=True)
            ]
            before = clock()
            op.push(left=parts[0], right=parts[1])
            took.append(clock() - before)
            assert until > 20 or op.report().unprobed.total == 0  # there is time for everything
        busy = np.array(took[24:40])
        assert 0.7 * share < busy.mean() < share, busy


def test_a_latency_that_no_batch_can_keep_is_said_with_one_that_can() -> None:
    tables = tuple(stream(seed, 20, lambda _: 600) for seed in (9, 10))
    op = pen.Join(schemas=(tables[0].schema, tables[1].schema), **overlapping("1 ms"))
    op.clock = Clock(op, row=1e-4)  # 0.12 s for the rows of a second alone

    def push(to: pen.Join) -> list[float]:
        took = []
        for at in range(0, 4800, 600):
            before = to.clock()
            to.push(left=tables[0][at : at + 600], right=tables[1][at : at + 600])
            took.append(to.clock() - before)
        return took

    with pytest.warns(LatencyWarning, match=r"latency 1 ms.* cannot be kept: .*; (\S+) seconds can") as told:
        push(op)
    assert len(told) == 1
    possible = float(str(told[0].message).split("; ")[1].split()[0])
    assert 0.12 < possible < 0.4
    again = pen.Join(schemas=(tables[0].schema, tables[1].schema), **overlapping(f"{int(1000 * possible) + 1} ms"))
    again.clock = Clock(again, row=1e-4)
    assert max(push(again)[2:]) <= possible


@pytest.mark.parametrize("kind", ["sets", "sets by index", "keys"])
def test_what_was_decided_by_the_clock_can_be_followed_and_saved(kind: str) -> None:
    tables = tuple(stream(seed, 12, lambda _: 300, keys=30 if kind == "keys" else 0) for seed in (11, 12))
    how = overlapping("200 ms")
    if kind != "sets":
        how["on"] = "k" if kind == "keys" else pen.overlap("v", at_least=2)
    schemas = (tables[0].schema, tables[1].schema)
    first, second = pen.Join(schemas=schemas, **how), pen.Join(schemas=schemas, **how)
    first.clock = KeyClock(first, work=1e-3) if kind == "keys" else Clock(first, work=2e-5)
    second.clock = lambda: 0.0  # this one cannot tell the time
    size = 400
    for at in range(0, 3600, size):
        want = first.push(left=tables[0][at : at + size], right=tables[1][at : at + size])
        second.follow([tuple(portion) for portion in first.portions])
        assert want == second.push(left=tables[0][at : at + size], right=tables[1][at : at + size])
        clock = first.clock
        first, second = (pen.Join.from_state(op.state_dict()) for op in (first, second))
        assert isinstance(clock, Clock)
        clock.op, first.clock, second.clock = first, clock, lambda: 0.0
    report = first.report()
    assert report.unprobed.total + report.shed["budget"].total > 0
    assert report.exact_estimate is not None
    assert replace(report, slowest=None) == replace(second.report(), slowest=None)


def paced(batches: int, after: Callable[[int], float]) -> list[float]:
    """Return how long each batch takes of those that may take a second, given the time that follows its last row."""
    pace, now, took = Pace(Target(latency=1.0, tick=1e-6)), 0.0, []
    for batch in range(batches):
        now += 2.0  # the caller had a rest
        began, left = now, 1000
        pace.begin(now)
        pace.expect(now, left, batch * 2_000_000)
        while left:
            rows = pace.portion(left)
            at, work = now, pace.grant(now, rows)
            done = 50.0 * rows if work is None else work
            now += 1e-5 * rows + 1e-4 * done
            pace.learn(Portion(rows, work, now - at), done)
            left -= rows
        now += after(batch)
        pace.end(now)
        took.append(now - began)
    return took


def test_what_follows_the_last_portion_is_part_of_a_batch() -> None:
    """Rows that left are let go of when all are joined: that takes time, too."""
    took = paced(12, lambda _: 0.2)
    assert max(took[3:]) < 1.0
    assert min(took[3:]) > 0.75


def test_overruns_now_and_then_are_expected() -> None:
    """Every third batch takes a tenth of a second more at its end: those in between are no reason to forget it."""
    took = paced(24, lambda batch: 0.1 * (batch % 3 == 2))
    assert max(took[6:]) < 0.85  # a batch gets 0.8 seconds: without it, every third would take 0.9
    assert min(took[6:]) > 0.65


def test_a_batch_is_joined_in_sixteen_portions_of_a_size() -> None:
    pace = Pace(Target(latency=1.0))
    for batch in range(3):
        pace.begin(2.0 * batch)
        pace.expect(2.0 * batch, 100_000, batch)
        left = 100_000
        while left:
            rows = pace.portion(left)
            pace.grant(2.0 * batch, rows)
            pace.learn(Portion(rows, 1.0, 1e-4 * rows), 2.0 * rows)
            left -= rows
        pace.end(2.0 * batch + 0.1)
        assert len(pace.told) <= 16 + 2 * (batch == 0)  # two to begin with
        assert {portion.rows for portion in pace.told[2 * (batch == 0) : -1]} == {6250}


@pytest.mark.parametrize("gap", [0.01, 0.04, 0.2, 0.6])
def test_callers_who_take_a_while_get_rows_in_time(gap: float) -> None:
    """Rows come all the time, ten times too many; the caller needs a part of the time of a push for itself."""
    rate, row, each = 20_000, 5e-6, 2e-5
    pace, now, came, lags, took = Pace(Target(latency=2.0, tick=1e-6)), 0.5, 0.0, [], [0.0]
    rng = np.random.default_rng(1)
    for _ in range(120):
        now += gap * took[-1] + 0.001
        first, left = came, int((now - came) * rate)
        came, began = now, now
        pace.begin(now)
        pace.expect(now, left, int(came * 1e6))
        while left:
            rows = pace.portion(left)
            at, work = now, pace.grant(now, rows)
            done = 500.0 * rows if work is None else min(500.0 * rows, work * rng.uniform(0.7, 1.3))
            now += row * rows + each * done
            pace.learn(Portion(rows, work, now - at), done)
            left -= rows
        pace.end(now)
        took.append(now - began)
        lags.append(now - first)
    assert max(lags[6:]) < 2.0
    steady = np.array(took[20:])
    assert steady.max() < 1.5 * steady.min()  # not long and short in turns


def test_who_is_late_after_some_work_is_warned_too() -> None:
    """The last rows of each batch take so long that it is late, though the first ones are given work."""
    pace, now, said = Pace(Target(latency=1.0, tick=1e-6)), 0.0, []
    for batch in range(8):
        now += 3.0
        left = 16_000
        pace.begin(now)
        pace.expect(now, left, batch * 3_000_000)
        while left:
            rows = pace.portion(left)
            at, work = now, pace.grant(now, rows)
            done = float(rows) if work is None else work
            now += (8e-4 if left <= 2000 else 1e-7) * rows + 1e-6 * done
            pace.learn(Portion(rows, work, now - at), done)
            left -= rows
        given = [portion.work for portion in pace.told]
        said.append((pace.end(now), any(given), given[-1]))
    assert [some for _, some, _ in said[1:]] == [True] * 7
    assert sum(possible is not None for possible, *_ in said) == 1
    possible = next(possible for possible, *_ in said if possible is not None)
    assert 2 * 1.6 < possible < 5.0  # rows alone take 1.6 seconds, and those that come meanwhile as long again


def test_memory_is_given_back_now_and_then_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a push lets go of, the next one needs again."""
    given, now = [], [100.0]
    monkeypatch.setattr(join, "FREED", 0)
    monkeypatch.setattr(join, "give_back", lambda: given.append(now[0]))
    monkeypatch.setattr("penstock.operator.join.time.monotonic", lambda: now[0])
    table = pa.table({"k": np.arange(400_000) % 9000, "ts": np.arange(400_000)})
    op = pen.Join(on="k", time="ts", window=10)
    for at in range(0, 400_000, 20_000):
        now[0] += 1.0
        op.push(left=table[at : at + 20_000], right=table[at : at + 20_000])
    assert 2 <= len(given) <= 5
    assert min(np.diff(given)) >= join.RESTS


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"latency": "2 seconds", "share": 0.5}, "give one of"),
        ({"latency": 2}, "give a span such as"),
        ({"latency": "0 seconds"}, "give a span such as"),
        ({"share": 1.5}, "up to 1"),
        ({"share": 0}, "above 0"),
    ],
)
def test_targets_are_checked_at_once(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        pen.cpu(**arguments)


def test_the_papers_steps_have_no_clock_on_the_wall() -> None:
    table = stream(1, 1, lambda _: 10)
    with pytest.raises(InputError, match="give comparisons_per_second"):
        pen.Join(schemas=(table.schema, table.schema), **overlapping("1 second", method="rate"))
