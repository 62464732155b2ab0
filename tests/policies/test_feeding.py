"""One queue before several joins drops the rows that a model by brute force drops, and weighs what joins want."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from cpu_oracle import draw
from penstock.errors import InputError, WindowError
from penstock.operator.feeding import METHODS, Queue

SPAN, EVERY, WAIT = 30, 20, 8
NAMES = ("one", "two")
COLUMN = {"one": "a", "two": "b"}


def drawn(seed: int, ticks: int, rate: int, keys: int) -> pa.Table:
    """Draw rows with two keys, some more often than others."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, ticks, ticks * rate))
    columns = {name: rng.choice(keys, ts.size, p=rng.dirichlet(np.full(keys, 0.4))) for name in ("a", "b")}
    return pa.table({"ts": ts, **columns, "row": np.arange(ts.size)})


def streams(seed: int) -> dict[str, pa.Table]:
    return {name: drawn(10 * seed + at, 200, 3, 8) for at, name in enumerate(("shared", *NAMES))}


def queue(tables: dict[str, pa.Table], speed: float, method: str, **more: Any) -> Queue:
    how = {"time": "ts", "window": SPAN}
    joins = {"one": {"on": "a", **how}, "two": {"on": "b", **how}}
    schemas = {name: table.schema for name, table in tables.items()}
    budget: dict[str, Any] = {"comparisons_per_tick": speed, "every": EVERY, "queue": WAIT}
    return Queue(joins, schemas=schemas, method=method, **budget, **more)


class Model:
    """A queue by brute force: everything is counted anew for each row, from lists."""

    def __init__(self, speed: float, method: str, weights: dict[str, float], seed: int) -> None:
        self.speed, self.method, self.weights, self.seed = speed, method, weights, seed
        self.entered: list[tuple[int, str, dict[str, int]]] = []
        self.seen: list[tuple[int, str, dict[str, int]]] = []  # with the period they came in
        self.past: list[tuple[int, str, dict[str, int]]] = []  # those that came before this period
        self.scores: list[tuple[float, float]] = []
        self.busy = self.began = -np.inf
        self.bar, self.tie, self.draws, self.period, self.lasted = -1.0, 1.0, 0, 0, 0.0

    def coming(self, name: str, stream: str, key: int) -> float:
        """Return how many partners of a row of a stream will come while it lives."""
        other = name if stream == "shared" else "shared"
        periods = sum(0.8**k for k in range(self.period))
        mine = [0.8 ** (self.period - 1 - p) for p, s, row in self.past if s == other and row[COLUMN[name]] == key]
        return sum(mine) * SPAN / (periods * self.lasted) if mine else 0.0

    def worth(self, name: str, stream: str, ts: int, key: int) -> float:
        if self.method == "random-drop":
            return 0.0
        other = name if stream == "shared" else "shared"
        held = sum(s == other and row[COLUMN[name]] == key and ts - t < SPAN for t, s, row in self.entered)
        return self.weights[name] * (self.coming(name, stream, key) + held * (self.method == "integrated"))

    def take(self, ts: int, stream: str, row: dict[str, int]) -> bool:
        if ts - self.began >= EVERY:
            self.end_period(ts)
        joins = NAMES if stream == "shared" else (stream,)
        work = 1.25 * len(joins)
        score = sum(self.worth(name, stream, ts, row[COLUMN[name]]) / len(joins) for name in joins)
        self.scores.append((score, work))
        self.seen.append((self.period, stream, row))
        passes = score > self.bar
        if abs(score - self.bar) < 1e-9:
            self.draws += 1
            passes = draw(self.seed, self.draws) < self.tie
        if not passes or self.busy - ts > WAIT:
            return False
        self.busy = max(self.busy, float(ts)) + work / self.speed
        self.entered.append((ts, stream, row))
        return True

    def end_period(self, ts: int) -> None:
        elapsed, self.began = ts - self.began, float(ts)
        if elapsed == np.inf:
            return
        self.past, self.lasted, self.period = list(self.seen), elapsed, self.period + 1
        whole = sum(work for _, work in self.scores)
        left = max(0.0, self.speed * (elapsed + WAIT / 2 - max(0.0, self.busy - ts)) / whole)
        self.bar, self.tie = -1.0, 1.0
        for score in sorted({s for s, _ in self.scores}, reverse=True) if left < 1 else []:
            mass = sum(work for s, work in self.scores if s == score) / whole
            self.bar, self.tie = score, min(1.0, left / mass)
            if left - mass <= 1e-12:
                break
            left -= mass
        self.scores = []


def let_in(tables: dict[str, pa.Table], model: Model) -> set[tuple[str, int]]:
    """Return the rows that the model lets in."""
    names = ["shared", *NAMES]
    came = [(row["ts"], at, row["row"], row) for at, name in enumerate(names) for row in tables[name].to_pylist()]
    came.sort(key=lambda row: row[:3])
    return {(names[at], number) for ts, at, number, row in came if model.take(ts, names[at], row)}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("speed", [4.0, 10.0])
@pytest.mark.parametrize("weights", [{"one": 1.0, "two": 1.0}, {"one": 1.0, "two": 5.0}])
def test_the_queue_drops_what_the_model_drops(method: str, speed: float, weights: dict[str, float]) -> None:
    tables = streams(1)
    op = queue(tables, speed, method, weights=weights, seed=4)
    found: dict[str, set[tuple[int, int]]] = {name: set() for name in NAMES}
    for cut in range(0, 200, 50):  # any cut at a tick gives the same
        parts = {
            name: table.filter(pa.array((table["ts"].to_numpy() >= cut) & (table["ts"].to_numpy() < cut + 50)))
            for name, table in tables.items()
        }
        for name, rows in op.push(parts["shared"], one=parts["one"], two=parts["two"]).items():
            found[name] |= set(zip(rows["row_left"].to_pylist(), rows["row_right"].to_pylist(), strict=True))
    want = let_in(tables, Model(speed, method, weights, 4))
    dropped = {(row["stream"], row["row"]) for row in op.dropped.to_pylist()}
    everything = {(name, row) for name, table in tables.items() for row in table["row"].to_pylist()}
    assert everything - dropped == want
    assert dropped
    for name, column in (("one", "a"), ("two", "b")):
        left, right = tables["shared"].to_pylist(), tables[name].to_pylist()
        assert found[name] == {
            (x["row"], y["row"])
            for x in left
            for y in right
            if x[column] == y[column]
            and abs(x["ts"] - y["ts"]) < SPAN
            and ("shared", x["row"]) in want
            and (name, y["row"]) in want
        }


def pairs(tables: dict[str, pa.Table], speed: float, method: str, **more: Any) -> dict[str, int]:
    op = queue(tables, speed, method, **more)
    return {
        name: rows.num_rows for name, rows in op.push(tables["shared"], one=tables["one"], two=tables["two"]).items()
    }


def test_with_enough_time_every_join_is_exact() -> None:
    tables = streams(2)
    found = pairs(tables, 100.0, "integrated")
    how: dict[str, Any] = {"time": "ts", "window": SPAN}
    for name, column in (("one", "a"), ("two", "b")):
        assert found[name] == pen.run(tables["shared"], tables[name], on=column, **how).report.pairs


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_who_knows_keys_finds_more_than_lots_and_weights_count(seed: int) -> None:
    tables = streams(seed)
    total = {method: sum(pairs(tables, 5.0, method).values()) for method in METHODS}
    assert min(total["integrated"], total["modular"]) > 1.5 * total["random-drop"], total
    alike, weighed = (pairs(tables, 5.0, "integrated", weights={"one": 1.0, "two": weight}) for weight in (1.0, 5.0))
    assert weighed["two"] > alike["two"]
    assert weighed["one"] < alike["one"]


def test_what_cannot_be_fed_is_said() -> None:
    tables = streams(6)
    with pytest.raises(InputError, match="name joins"):
        queue(tables, 5.0, "integrated", weights={"three": 1.0})
    with pytest.raises(InputError, match="'integrated', 'modular'"):
        queue(tables, 5.0, "best")
    schemas = {name: table.schema for name, table in tables.items()}
    budget: dict[str, Any] = {"schemas": schemas, "comparisons_per_tick": 5.0, "every": EVERY, "queue": WAIT}
    with pytest.raises(WindowError, match="rows are counted at the queue"):
        Queue({"one": {"on": "a", "time": "ts", "window": pen.rows(5)}}, **budget)
    with pytest.raises(InputError, match="without budgets"):
        Queue({"one": {"on": "a", "time": "ts", "window": 5, "memory": 100}}, **budget)
    with pytest.raises(InputError, match="nobody joins"):
        Queue({"one": {"on": "a", "time": "ts", "window": 5}}, **budget).push(tables["shared"], two=tables["two"])
