"""Plans as people see them: printed, from samples, on the command line, and refused."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pytest

import penstock as pen
from penstock import cli
from penstock.errors import BudgetError, ColumnError, InputError, WindowError

TWO = [pen.Stream("a", rate=2, window=10, distinct=4), pen.Stream("b", rate=1, window=30, distinct=3)]
WORDS = ["a:rate=2,window=10,distinct=4", "b:rate=1,window=30,distinct=3"]
TABLE_5 = [
    pen.Stream("S1", rate=10, window=100, distinct=500),
    pen.Stream("S2", rate=1, window=100, distinct=50),
    pen.Stream("S3", rate=1, window=200, distinct=40),
    pen.Stream("S4", rate=3, window=100, distinct=5),
]


# --- print --------------------------------------------------------------------------------------------------------


def test_a_plan_prints_its_tree_and_its_loops() -> None:
    text = str(pen.plan(TABLE_5))
    assert text.startswith("EAGER, eager: 16,000 comparisons per unit of time\n\nS1 ⋈ (S2 ⋈ (S3 ⋈ S4))\n")
    want = """\
new tuples of S4: 6,000
  for S4 (new)
    for S1 (1,000): 3,000
      for S2 (100): 600
        for S3 (200): 2,400"""
    assert text.endswith(want)


def test_a_plan_with_an_order_for_each_stream_prints_their_trees() -> None:
    got = pen.plan(TABLE_5, evaluation=pen.every(20))
    assert isinstance(got.order, dict)
    _, _, *lines = str(got).split("\n")
    for line, (name, order) in zip(lines, got.order.items(), strict=False):
        assert line == f"new tuples of {name}: {order[0]} ⋈ ({order[1]} ⋈ ({order[2]} ⋈ {order[3]}))"
    assert lines[len(got.order)] == ""


def test_a_plan_says_which_windows_are_indexed() -> None:
    indexed = [TWO[0], pen.Stream("b", rate=1, window=30, distinct=3, buckets=3)]
    assert "for b (30 in 3 buckets): 20" in str(pen.plan(indexed, join="hash"))
    assert "buckets" not in str(pen.plan(indexed))


def test_windows_in_rows_and_in_words() -> None:
    rows = [pen.Stream("a", rate=2, window=pen.rows(20), distinct=4), TWO[1]]
    words = [pen.Stream("a", rate=2, window="10 seconds", distinct=4), TWO[1]]
    assert pen.plan(TWO).cost == pen.plan(rows).cost == pen.plan(words).cost == 2 * 30 + 1 * 20
    want = pen.plan(TWO, evaluation=pen.every(5)).cost
    assert want == pen.plan(TWO, evaluation=pen.every("5 seconds")).cost == 2 * 35 + 1 * 30


# --- samples ------------------------------------------------------------------------------------------------------


def sample(rate: int, keys: int, ticks: int = 100) -> pa.Table:
    """Return so many rows a tick, with keys in turn."""
    rows = np.arange(rate * ticks)
    return pa.table({"ts": rows // rate, "key": rows % keys, "other": rows % 2})


def test_rates_and_distinct_values_are_measured() -> None:
    samples = {"a": sample(4, 7), "b": sample(1, 50), "c": sample(2, 3)}
    got = pen.plan(samples, on="key", time="ts", windows={"a": 10, "b": 20, "c": pen.rows(8)})
    assert [(s.name, s.rate, s.size, s.distinct) for s in got.streams] == [
        ("a", 4, 40, 7),
        ("b", 1, 20, 20),  # not more values than tuples
        ("c", 2, 8, 3),
    ]
    known = [
        pen.Stream("a", rate=4, window=10, distinct=7),
        pen.Stream("b", rate=1, window=20, distinct=20),
        pen.Stream("c", rate=2, window=4, distinct=3),
    ]
    assert pen.plan(known).order == got.order
    assert pen.plan(known).cost == pytest.approx(got.cost)


def test_timestamps_give_rates_per_second() -> None:
    begin = pd.Timestamp("2025-01-01")
    frame = pd.DataFrame({"ts": begin + pd.to_timedelta(np.arange(600) * 100, unit="ms"), "key": np.arange(600) % 9})
    got = pen.plan({"a": frame, "b": frame}, on="key", time="ts", windows="5 seconds").streams[0]
    assert got.rate == pytest.approx(10, rel=0.01)
    assert (got.span, got.distinct) == (5, 9)


def test_the_selectivity_of_each_edge_is_measured() -> None:
    samples = {"a": sample(4, 7), "b": sample(1, 50), "c": sample(2, 3)}
    graph = {("a", "b"): "other", ("b", "c"): ("key", "key")}
    got = pen.plan(samples, on=graph, time="ts", windows=10)
    assert {("a", "b"): 1 / 2, ("b", "c"): 1 / 10} == pytest.approx(dict(got.selectivity or {}))
    assert isinstance(got.order, dict)


@pytest.mark.parametrize(("how", "share"), [("<", 0.25), ("<=", 0.75), (">", 0.25), (">=", 0.75), ("!=", 0.5)])
def test_the_share_of_pairs_in_order_is_measured(how: str, share: float) -> None:
    samples = {"a": sample(4, 7), "b": sample(1, 50)}  # the column `other` is 0 and 1 in turn
    got = pen.plan(samples, on={("a", "b"): ("other", how, "other")}, time="ts", windows=10)
    assert {("a", "b"): share} == got.selectivity


def test_a_stream_without_rows_is_planned_as_a_slow_one() -> None:
    got = pen.plan({"a": sample(4, 7), "b": sample(4, 7)[:0]}, on="key", time="ts", windows=10)
    assert [s.rate for s in got.streams] == [4, 0.01]


# --- command line -------------------------------------------------------------------------------------------------


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    cli.main(["plan", *words, "--json"])
    return json.loads(capsys.readouterr().out)


def test_the_command_line_plans_from_statistics(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", *WORDS]) == 0
    assert str(pen.plan(TWO)) in capsys.readouterr().out
    want = pen.plan(TWO, evaluation=pen.every(5), algorithm="lazy").to_dict()
    assert want == answer(capsys, *WORDS, "--every", "5", "--algorithm", "lazy")
    listed = answer(capsys, *WORDS, "--order", "b,a", "--costs", "5")
    assert listed["order"] == ["b", "a"]
    assert pen.plan(TWO).costs().to_pylist() == listed["costs"]
    shared = answer(capsys, *WORDS, "--join", "hash", "--memory", "6")
    assert pen.plan(TWO, join="hash", memory=6).to_dict() == shared


def test_the_command_line_plans_from_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = {"calls": sample(4, 7), "trades": sample(1, 5)}
    for name, table in tables.items():
        pyarrow.csv.write_csv(table, tmp_path / f"{name}.csv")
    words = [str(tmp_path / "calls.csv"), f"trades={tmp_path / 'trades.csv'}"]
    got = answer(capsys, *words, "--on", "key", "--time", "ts", "--window", "10")
    assert pen.plan(tables, on="key", time="ts", windows=10).to_dict() == got


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["a:rate=2", "b:rate=1"], "every stream needs rate=, window= and distinct="),
        (["a:speed=2,window=1,distinct=1", WORDS[1]], "write NAME:rate=10,window=100,distinct=500"),
        ([WORDS[0], "b.csv"], "statistics for all streams, or files for all"),
        (["a.csv", "b/a.csv"], "a.csv"),
        ([*WORDS, "--order", "fastest"], "in some order, each once"),
        ([WORDS[0]], "give 2 to 12 streams"),
    ],
)
def test_the_command_line_says_what_is_wrong(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", *words]) == cli.FAILED
    assert said in capsys.readouterr().err


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "error", "argument"),
    [
        ({"name": ""}, InputError, "name"),
        ({"rate": 0}, InputError, "rate"),
        ({"rate": float("nan")}, InputError, "rate"),
        ({"rate": "fast"}, InputError, "rate"),
        ({"distinct": 0.5}, InputError, "distinct"),
        ({"price": 0}, InputError, "price"),
        ({"buckets": 0}, InputError, "buckets"),
        ({"buckets": 2.5}, InputError, "buckets"),
        ({"window": 0}, WindowError, "window"),
        ({"window": "ten"}, WindowError, "window"),
        ({"window": None}, WindowError, "window"),
    ],
)
def test_a_stream_that_cannot_be(wrong: dict[str, Any], error: type[InputError], argument: str) -> None:
    given = {"name": "a", "rate": 1, "window": 10, "distinct": 5, **wrong}
    with pytest.raises(error) as caught:
        pen.Stream(given.pop("name"), **given)
    assert argument == caught.value.argument


@pytest.mark.parametrize(
    ("given", "error", "argument"),
    [
        ({"join": "merge"}, InputError, "join"),
        ({"join": "hash"}, InputError, "join"),
        ({"memory": 10}, InputError, "memory"),
        ({"join": "hash", "memory": 1}, BudgetError, "memory"),
        ({"evaluation": "lazy"}, InputError, "evaluation"),
        ({"evaluation": pen.every(0)}, InputError, "evaluation"),
        ({"evaluation": pen.every("soon")}, WindowError, "evaluation"),
        ({"algorithm": "quick"}, InputError, "algorithm"),
        ({"algorithm": "lazy"}, InputError, "algorithm"),
        ({"algorithm": "eager", "evaluation": pen.every(5)}, InputError, "algorithm"),
        ({"order": ["a"]}, InputError, "order"),
        ({"order": ["a", "a"]}, InputError, "order"),
        ({"order": {"a": ["a", "b"], "b": ["b", "a"]}}, InputError, "order"),
        ({"order": {"a": ["a", "b"]}, "algorithm": "general"}, InputError, "order"),
        ({"selectivity": {("a", "c"): 0.5}}, InputError, "selectivity"),
        ({"selectivity": {("a", "b"): 2}}, InputError, "selectivity"),
        ({"selectivity": {}}, InputError, "selectivity"),
        ({"on": "key"}, InputError, "on"),
    ],
)
def test_a_plan_that_cannot_be(given: dict[str, Any], error: type[InputError], argument: str) -> None:
    with pytest.raises(error) as caught:
        pen.plan(TWO, **given)
    assert argument == caught.value.argument


def test_streams_that_cannot_be_planned_together() -> None:
    with pytest.raises(InputError, match="2 to 12"):
        pen.plan(TWO[:1])
    with pytest.raises(InputError, match="'a' twice"):
        pen.plan([TWO[0], TWO[0]])
    with pytest.raises(InputError, match=r"pen\.Stream"):
        pen.plan(["a", "b"])  # type: ignore[list-item]
    apart = [*TWO, pen.Stream("c", rate=1, window=1, distinct=1)]
    with pytest.raises(InputError, match="no way from a to c"):
        pen.plan(apart, selectivity={("a", "b"): 0.5})


@pytest.mark.parametrize(
    ("given", "error", "argument"),
    [
        ({"on": None}, InputError, "on"),
        ({"on": "no"}, ColumnError, "on='no'"),
        ({"on": 5}, ColumnError, "on"),
        ({"time": "no"}, ColumnError, "time='no'"),
        ({"windows": {"a": 10}}, InputError, "windows"),
        ({"windows": "5 seconds"}, WindowError, "windows"),
        ({"on": {("a", "z"): "key"}}, InputError, "on"),
        ({"on": {("a", "a"): "key"}}, InputError, "on"),
        ({"on": {("a", "b"): 5}}, ColumnError, "on"),
        ({"selectivity": {("a", "b"): 0.5}}, InputError, "selectivity"),
    ],
)
def test_samples_that_say_nothing(given: dict[str, Any], error: type[InputError], argument: str) -> None:
    samples = {"a": sample(1, 2), "b": sample(1, 2)}
    with pytest.raises(error) as caught:
        pen.plan(samples, **{"on": "key", "time": "ts", "windows": 10, **given})
    assert argument == caught.value.argument


def test_a_window_may_be_a_timedelta() -> None:
    assert pen.Stream("a", rate=2, window=dt.timedelta(seconds=10), distinct=4).size == 20
