"""The count beside a bounded join is exact while it fits, and honest about its error when it does not."""

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

import penstock as pen
from oracles import Arrival, Kind, exact
from penstock.core import census as counting
from penstock.core.step import Plan
from penstock.operator.join import settings_of
from penstock.operator.settings import Bound
from penstock.quality.books import Estimate, Guess, recall_of
from penstock.quality.recall import Recall
from penstock.streams.intake import Intake, Ready
from penstock.streams.workloads import Workload, zipf
from traces import ANY_CUT, Pusher, drive, pushes, random_trace, weighty_table, window


@given(**ANY_CUT)
@settings(max_examples=150, deadline=None)
def test_a_window_that_fits_is_counted_exactly(
    trace: list[Arrival], spans: tuple[int, int], kind: Kind, lateness: int, ends: list[int]
) -> None:
    want = len(exact(trace, spans=spans, kind=kind, lateness=lateness))
    report = drive(
        trace, ends, window=window(spans, kind), lateness=lateness, memory=3, policy="oldest", per_key=2
    ).report
    assert report.exact_estimate == (want, want, want)
    assert report.recall == recall_of(report.pairs, Estimate(want, want, want))


@pytest.mark.parametrize("combine", ["min", "sum", "product", "max", "mean"])
def test_importance_is_counted_too(combine: str) -> None:
    trace = random_trace(3, 300, 6)
    given: dict[str, Any] = {"window": 12, "importance": "weight", "combine": combine, "table": weighty_table}
    want = drive(trace, **given).report
    got = drive(trace, memory=5, policy="oldest", **given).report
    assert want.importance is not None
    assert got.importance_estimate is not None
    assert got.importance_estimate.mid == pytest.approx(want.importance)
    assert want.importance_estimate == Estimate(want.importance, want.importance, want.importance)


def test_rows_behind_a_watermark_are_counted_as_the_exact_join_does() -> None:
    rng = np.random.default_rng(5)
    schema = pa.schema([("ts", pa.int64()), ("key", pa.int64())])
    made: dict[str, Any] = {"on": "key", "time": "ts", "window": 15, "schemas": (schema, schema)}
    ops = [
        pen.Join(lateness="watermark", **made),
        pen.Join(lateness="watermark", memory=10, policy="oldest", **made),
    ]
    for start in range(0, 300, 10):
        sides = {
            name: pa.table({"ts": start + rng.integers(-9, 10, 20), "key": rng.integers(0, 5, 20)}, schema)
            for name in ("left", "right")
        }
        for op in ops:
            op.watermark(start - 6)
            op.push(**sides)
    want, got = (op.report() for op in ops)
    assert want.pairs > got.pairs > 0
    assert got.exact_estimate == want.exact_estimate == (want.pairs, want.pairs, want.pairs)


# --- samples ------------------------------------------------------------------------------------------------------


def read(streams: Workload, **arguments: Any) -> tuple[Plan, Ready]:
    """Return a workload as the core takes it."""
    bound = Bound(
        settings_of({"on": "key", "time": "ts", "memory": 1, **arguments}), streams.left.schema, streams.right.schema
    )
    ready = Intake(0, whole=False).take((bound.read(0, streams.left), bound.read(1, streams.right)))
    return bound.plan(), ready


def sampled(plan: Plan, ready: Ready, seed: int, *, room: int = 64, combine: str | None = None) -> Recall:
    """Count with a small sample."""
    recall = Recall(seed, combine)
    recall.census = counting.empty(seed, important=combine is not None, room=room)
    recall.take(plan, ready.batch, ready.code, 0)
    return recall


WORKLOADS = {
    "zipf": zipf(1500, keys=50, seed=1),
    "uniform": zipf(1500, keys=400, skew=0.0, seed=2),
    "rare": zipf(1500, keys=20_000, skew=0.0, seed=3),
    "uneven": zipf((2400, 600), keys=60, rate=(4, 1), seed=4),
    "bursts": zipf(1500, keys=50, rate=(30, 30), seed=5),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_samples_are_unbiased_and_their_intervals_hold(name: str) -> None:
    """On 100 seeds a workload; the mean of the estimates is within 4 of its own deviations."""
    streams = WORKLOADS[name]
    span = 20 if name == "bursts" else 400
    want = pen.join(streams.left, streams.right, on="key", time="ts", window=span).num_rows
    plan, ready = read(streams, window=span)
    guesses = [sampled(plan, ready, seed).pairs for seed in range(100)]
    check_honest(guesses, want)


@pytest.mark.parametrize("skew", [0.0, 1.0])
def test_rows_that_do_not_look_are_made_up_for(skew: float) -> None:
    """Once there are many pairs; on 600 seeds."""
    streams = zipf(60_000, keys=50, skew=skew, seed=7)
    want = pen.run(streams.left, streams.right, on="key", time="ts", window=1000).report.pairs
    plan, ready = read(streams, window=1000)
    counts = [sampled(plan, ready, seed, room=counting.ROOM) for seed in range(600)]
    assert all(recall.census.looks[0] < 0.8 for recall in counts)
    check_honest([recall.pairs for recall in counts], want)


def check_honest(guesses: list[Guess], want: float) -> None:
    """Check estimates of many seeds: their mean, how often their intervals hold, and the variance they tell.

    In 95 % of all seeds; of these, as often as that allows by two and a half deviations.
    """
    mids = np.array([guess.mid for guess in guesses])
    assert abs(mids.mean() - want) < 4 * mids.std() / np.sqrt(mids.size) + 1e-9
    assert mids.std() > 0
    held = [guess.interval(0).low <= want <= guess.interval(0).high for guess in guesses]
    assert np.mean(held) >= 0.95 - 2.5 * np.sqrt(0.95 * 0.05 / mids.size)
    told = np.mean([guess.variance for guess in guesses])
    assert 0.6 * mids.var() < told < 1.7 * mids.var()


def test_sampled_importance_is_unbiased() -> None:
    streams = zipf(1500, keys=50, importance="rare", seed=6)
    given = {"window": 400, "importance": "importance"}
    report = pen.run(streams.left, streams.right, on="key", time="ts", **given).report
    bound = Bound(
        settings_of({"on": "key", "time": "ts", "memory": 1, **given}), streams.left.schema, streams.right.schema
    )
    ready = Intake(0, whole=False).take((bound.read(0, streams.left), bound.read(1, streams.right)))
    guesses = [sampled(bound.plan(), ready, seed, combine="min").importance for seed in range(100)]
    assert report.importance is not None
    check_honest(guesses, report.importance)


def test_a_sample_never_outgrows_its_room_and_uses_it() -> None:
    plan, ready = read(WORKLOADS["zipf"], window=400)
    recall = sampled(plan, ready, 0)
    held = recall.census.ends[:, counting.NEXT] - recall.census.ends[:, counting.LOW]
    assert (held <= 64).all()
    assert (held >= 32).all()


def test_the_default_sample_is_a_mebibyte() -> None:
    for important in (False, True):
        census = counting.empty(0, important=important)
        assert sum(array.nbytes for array in census) <= (1 << 20) + 1000


def parts(ready: Ready, ends: list[int]) -> Iterator[Ready]:
    for begin, end in zip([0, *ends], [*ends, ready.code.size], strict=True):
        columns = {
            name: column[begin:end] if len(column) else column for name, column in ready.batch._asdict().items()
        }
        yield Ready(ready.batch._replace(**columns), ready.code[begin:end], ready.late, ready.nulls)


def test_neither_cuts_nor_a_saved_state_change_the_sample() -> None:
    plan, ready = read(WORKLOADS["zipf"], window=400)
    want = sampled(plan, ready, 7).pairs
    recall = Recall(7, None)
    recall.census = counting.empty(7, important=False, room=64)
    for part in parts(ready, [700, 701, 1900]):
        recall.take(plan, part.batch, part.code, 0)
        state = {name: array.copy() for name, array in recall.arrays().items()}
        recall = Recall.restored(None, state, room=64)
    assert recall.pairs == want


def test_a_saved_sample_draws_no_lots_again() -> None:
    """Although rows to come have less of a chance than those it holds had."""
    plan, ready = read(WORKLOADS["zipf"], window=400)
    recall = sampled(plan, ready, 7)
    recall.census.chance[:] *= 0.5
    before = {name: array.copy() for name, array in recall.arrays().items()}
    after = Recall.restored(None, before, room=64).arrays()
    assert before["code.0"].size > 10
    for name, array in before.items():
        assert np.array_equal(array, after[name]), name


def test_a_join_that_is_saved_and_changed_goes_on_counting() -> None:
    trace = random_trace(8, 400, 8)
    given: dict[str, Any] = {"window": 15, "memory": 6, "policy": "oldest"}
    want = drive(trace, **given).report.exact_estimate
    pusher = Pusher(**given)
    bounded: dict[str, Any] = {"memory": 9, "policy": pen.policy("rand")}
    for at, part in enumerate(pushes(trace, [100, 200, 300])):
        pusher.push(part)
        pusher.reborn()
        if at == 1:
            pusher.join = pusher.join.changed(**bounded)
    assert pusher.finish().report.exact_estimate == want


def test_an_exact_join_that_gets_a_budget_has_found_everything_so_far() -> None:
    trace = random_trace(9, 400, 8)
    want = drive(trace, window=15).report
    pusher = Pusher(window=15)
    for at, part in enumerate(pushes(trace, [200])):
        if at == 1:
            pusher.join = pusher.join.changed(memory=6, policy="oldest")
        pusher.push(part)
    got = pusher.finish().report
    assert got.exact_estimate == want.exact_estimate
    assert got.pairs < want.pairs


# --- intervals ----------------------------------------------------------------------------------------------------


def test_shards_add_up() -> None:
    parts = [Guess(10.0, 4.0, 3.0), Guess(20.0, 5.0, 1.0)]
    assert reduce(Guess.merged, parts) == Guess(30.0, 9.0, 3.0)


@pytest.mark.parametrize("shards", [2, 4])
def test_samples_of_shards_add_up_to_an_honest_one(shards: int) -> None:
    """Each shard has some of the keys and a sample of its own; on 100 seeds."""
    streams = WORKLOADS["uniform"]
    want = pen.join(streams.left, streams.right, on="key", time="ts", window=400).num_rows
    whole = read(streams, window=400)[1]
    shard = (whole.code.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)) % np.uint64(shards)
    held = [of_rows(whole, shard == np.uint64(number)) for number in range(shards)]
    plan = read(streams, window=400)[0]
    guesses = []
    for seed in range(100):
        recalls = [sampled(plan, part, seed * shards + at) for at, part in enumerate(held)]
        assert all(recall.census.chance.max() < 1 for recall in recalls)
        guesses.append(reduce(Guess.merged, [recall.pairs for recall in recalls]))
    check_honest(guesses, want)


def of_rows(ready: Ready, mine: Any) -> Ready:
    """Return some rows of a batch."""
    columns = {name: column[mine] if len(column) else column for name, column in ready.batch._asdict().items()}
    return Ready(ready.batch._replace(**columns), ready.code[mine], ready.late, ready.nulls)


def test_an_interval_never_ends_below_what_was_found() -> None:
    assert Guess(90.0).interval(100) == Estimate(100, 100, 100)
    low, mid, high = Guess(0.0, 0.0, 50.0).interval(3)
    assert (low, mid) == (3, 3)
    assert high > 150  # nothing was seen of what counts 50 each: some four may have been missed


def test_recall_of_nothing_is_all() -> None:
    assert recall_of(0, Estimate(0, 0, 0)) == Estimate(1, 1, 1)
    assert recall_of(5, Estimate(5, 10, 20)) == Estimate(0.25, 0.5, 1)


def test_a_report_says_recall_with_its_interval() -> None:
    report = drive(random_trace(1, 60, 3), window=9, memory=4, policy="oldest").report
    assert report.recall is not None
    assert f"recall {report.recall.mid:.1%}" in str(report)
    wide = replace(report, recall=Estimate(0.5, 0.55, 0.6))
    assert "recall 55.0% (50.0-60.0)" in str(wide)
    assert wide.to_dict()["recall"] == {"low": 0.5, "mid": 0.55, "high": 0.6}
    assert "guesses" not in wide.to_dict()
