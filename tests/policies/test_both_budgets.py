"""Memory and CPU budgets together: memory is kept to, and what was found and what the ledger names is everything."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.errors import BudgetError, InputError, PolicyError
from set_oracles import Row, pairs

SPAN = 40
Streams = tuple[list[Row], list[Row]]


def streams(seed: int, *, keyed: bool, ticks: int = 240) -> Streams:
    """Draw sets, or keys as sets of one, more of them in the middle."""
    rng = np.random.default_rng(seed)
    both: Streams = ([], [])
    for rows in both:
        for ts in range(ticks):
            for _ in range(rng.poisson(4 if ticks // 3 < ts < 2 * ticks // 3 else 1.2)):
                size = 1 if keyed else int(rng.integers(0, 6))
                items = np.minimum(rng.geometric(0.12, size), 30) if keyed else rng.integers(0, 20, size)
                rows.append((ts, items.tolist()))
    return both


def table(rows: list[Row], *, keyed: bool) -> pa.Table:
    values = [value for _, value in rows]
    return pa.table(
        {
            "ts": pa.array([ts for ts, _ in rows], pa.int64()),
            "value": pa.array([value[0] for value in values] if keyed else values),
            "row": np.arange(len(rows)),
        }
    )


def named(ledger: pa.Table, counts: tuple[int, int]) -> set[tuple[int, int]]:
    """Return all pairs that the ledger says may be missing, wherever their windows are."""
    missing = set()
    for entry in ledger.to_pylist():
        side = ("left", "right").index(entry["side"])
        if entry["reason"] == "unprobed":
            partners = [j for each in entry["skipped"] for j in range(each["first"], each["end"])]
        else:
            assert entry["reason"] == "budget"
            partners = list(range(entry["shed_at_arrival"], counts[1 - side]))
        missing |= {(entry["arrival"], j) if side == 0 else (j, entry["arrival"]) for j in partners}
    return missing


def on(kind: str) -> dict[str, Any]:
    conditions = {
        "keys": "value",
        "indexed": pen.overlap("value", at_least=2),
        "nested": pen.overlap("value", at_least=2, index=False),
    }
    return {"on": conditions[kind], "time": "ts", "window": SPAN}


@pytest.mark.parametrize("split", ["shared", "fixed"])
@pytest.mark.parametrize(
    ("kind", "cpu"),
    [
        ("keys", pen.cpu(comparisons_per_second=2)),
        ("keys", pen.cpu(comparisons_per_second=2, method="random-drop")),
        ("keys", pen.cpu(comparisons_per_second=2, method="modular")),
        ("keys", pen.cpu(comparisons_per_second=2, method="integrated")),
        ("keys", pen.cpu(comparisons_per_second=2, method="rear")),
        ("keys", pen.cpu(comparisons_per_second=8, method="selective")),
        ("indexed", pen.cpu(comparisons_per_second=60)),
        ("nested", pen.cpu(comparisons_per_second=60)),
        ("nested", pen.cpu(comparisons_per_second=60, method="random-drop")),
        ("indexed", None),
        ("nested", None),
    ],
)
def test_what_was_found_and_what_the_ledger_names_is_the_exact_join(kind: str, cpu: Any, split: str) -> None:
    rows = streams(3, keyed=kind == "keys")
    tables = [table(side, keyed=kind == "keys") for side in rows]
    exact = set(pairs("overlap", 1 if kind == "keys" else 2, *rows, (SPAN, SPAN)))
    op = pen.Join(schemas=(tables[0].schema, tables[1].schema), cpu=cpu, memory=90, split=split, **on(kind))
    found, ledgers = [], []
    for until in range(20, 260, 20):
        parts = [
            t.filter(pa.compute.and_(pa.compute.greater_equal(t["ts"], until - 20), pa.compute.less(t["ts"], until)))
            for t in tables
        ]
        found.append(op.push(left=parts[0], right=parts[1]))
        assert op.report().memory_rows <= 90
        ledgers.append(op.ledger())
    joined, ledger = pa.concat_tables(found), pa.concat_tables(ledgers)
    got = set(zip(joined["row_left"].to_pylist(), joined["row_right"].to_pylist(), strict=True))
    missing = named(ledger, (len(rows[0]), len(rows[1])))
    assert len(got) == joined.num_rows
    assert not got & missing
    assert got | (missing & exact) == exact
    reasons = set(ledger["reason"].to_pylist())
    assert "budget" in reasons
    if cpu is not None and cpu.method not in {"random-drop", "modular", "integrated"}:
        assert "unprobed" in reasons
    report = op.report()
    assert report.balanced
    assert report.shed["budget"].total > 0
    assert report.exact_estimate is not None
    assert report.recall is not None
    assert report.exact_estimate.mid == len(exact)  # so few rows are all in the sample
    assert report.recall.mid == len(got) / len(exact)
    assert report.policy.endswith("oldest")


def test_keys_that_give_most_keep_the_memory() -> None:
    tables = [table(side, keyed=True) for side in streams(5, keyed=True, ticks=600)]
    found = {}
    for method in ("auto", "random-drop"):
        cpu = pen.cpu(comparisons_per_second=4, method=method)
        found[method] = pen.run(*tables, memory=60, cpu=cpu, **on("keys")).report.pairs
    assert found["auto"] > 1.3 * found["random-drop"]


def test_a_lower_limit_holds_at_once() -> None:
    tables = [table(side, keyed=False) for side in streams(6, keyed=False)]
    cpu = pen.cpu(comparisons_per_second=1e6)
    op = pen.Join(schemas=(tables[0].schema, tables[1].schema), cpu=cpu, memory=120, **on("indexed"))
    op.push(left=tables[0][:200], right=tables[1][:200])
    op.resize(memory=30)
    now = max(t["ts"][199].as_py() for t in tables)
    left, right = (t.filter(pa.compute.greater(t["ts"], now)) for t in tables)
    op.push(left=left[:3])
    assert op.report().memory_rows <= 30
    again = pen.Join.from_state(op.state_dict())
    assert again.push(right=right[5:60]) == op.push(right=right[5:60])


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"memory": "1MB"}, BudgetError, "number of rows"),
        ({"memory": 9, "policy": "prob"}, PolicyError, "would expire first"),
        ({"memory": 9, "mode": "observe"}, InputError, "only memory budgets on equal keys"),
    ],
)
def test_what_cannot_be_is_said(arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    rows = table([(1, [1])], keyed=False)
    with pytest.raises(error, match=said):
        pen.Join(schemas=(rows.schema, rows.schema), **on("indexed"), **arguments)


def test_rows_in_an_aux_window_cannot_be_given_up() -> None:
    rows = table([(1, [1])], keyed=True)
    cpu = pen.cpu(comparisons_per_second=9, method="dual")
    with pytest.raises(BudgetError, match="aux-window"):
        pen.Join(schemas=(rows.schema, rows.schema), memory=9, cpu=cpu, **on("keys"))
