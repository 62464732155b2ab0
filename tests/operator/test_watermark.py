"""What a watermark makes late, what it lets go of, and that the ledger accounts for every pair that is missing."""

from collections import Counter
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import penstock as pen
from penstock.errors import InputError

SPAN, KEYS = 12, 5
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("id", pa.int64())])
Pairs = Counter[tuple[int, int]]
SIDES = (attrgetter("left"), attrgetter("right"))


class Push(NamedTuple):
    """Rows of both sides as (ts, key, id), and the watermark before them."""

    watermark: int
    left: list[tuple[int, int, int]]
    right: list[tuple[int, int, int]]


def pushes(seed: int, *, disorder: int, gap: int = 0, count: int = 8, rows: int = 25) -> list[Push]:
    """Return pushes that overlap in time by up to `disorder`, the right side `gap` ticks behind the left one."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        sides = []
        for side in range(2):
            ts = number * 10 + rng.integers(0, 10, rows) - rng.integers(0, disorder + 1, rows) - side * gap
            ids = range(number * rows, (number + 1) * rows)
            sides.append(sorted(zip(ts.tolist(), rng.integers(0, KEYS, rows).tolist(), ids, strict=True)))
        found.append(Push(number * 10 - 15 - gap, *sides))
    return found


def table(rows: list[tuple[int, int, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)


def pairs_of(joined: pa.Table) -> Pairs:
    return Counter(zip(joined["id_left"].to_pylist(), joined["id_right"].to_pylist(), strict=True))


def run(trace: list[Push], *, watermarks: bool = True, **arguments: Any) -> tuple[Pairs, pa.Table, pen.Join]:
    """Play pushes; the rows of a side are in order of time within each."""
    op = pen.Join(on="k", time="ts", window=SPAN, schemas=(SCHEMA, SCHEMA), **arguments)
    found: Pairs = Counter()
    for push in trace:
        if watermarks:
            op.watermark(push.watermark)
        found += pairs_of(op.push(left=table(push.left), right=table(push.right)))
    op.finish()
    return found, op.ledger(), op


def meeting(lefts: list[tuple[int, int, int]], rights: list[tuple[int, int, int]]) -> Pairs:
    """Join by brute force."""
    return Counter((a[2], b[2]) for a in lefts for b in rights if a[1] == b[1] and abs(a[0] - b[0]) < SPAN)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("disorder", [0, 9, 60])
def test_exact_is_everything_not_behind_the_watermark(seed: int, disorder: int) -> None:
    trace = pushes(seed, disorder=disorder)
    found, ledger, op = run(trace, lateness="watermark")
    lefts = [row for push in trace for row in push.left if row[0] >= push.watermark]
    rights = [row for push in trace for row in push.right if row[0] >= push.watermark]
    assert found == meeting(lefts, rights)
    report = op.report()
    assert report.balanced
    assert report.shed["late"].total == ledger.num_rows == 2 * 8 * 25 - len(lefts) - len(rights)
    assert (ledger.num_rows > 0) == (disorder == 60)
    assert report.live.total < len(lefts) + len(rights)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rows", [3, 25, 400])
def test_exact_in_whatever_order_rows_come(seed: int, rows: int) -> None:
    """Some pushes in order of time and some not, of few rows and of more than the window holds."""
    trace = pushes(seed, disorder=12, rows=rows)
    rng = np.random.default_rng(seed)
    for push in trace[:4]:
        rng.shuffle(push.left)
        rng.shuffle(push.right)
    found, _, op = run(trace, lateness="watermark")
    lefts, rights = ([row for push in trace for row in side(push) if row[0] >= push.watermark] for side in SIDES)
    assert found == meeting(lefts, rights)
    assert op.report().balanced


@pytest.mark.parametrize("policy", ["prob", "life", "oldest"])
@pytest.mark.parametrize("memory", [5, 20])
@pytest.mark.parametrize("lateness", ["watermark", ("watermark", 0), ("watermark", 7)])
def test_streams_in_order_do_not_notice_it(policy: str, memory: int, lateness: Any) -> None:
    """Rows that only late ones could meet leave first: so what is kept is the same as without waiting for any."""
    trace = pushes(1, disorder=0)
    want, _, _ = run(trace, watermarks=False, memory=memory, policy=policy)
    assert run(trace, memory=memory, policy=policy, lateness=lateness)[0] == want
    assert run(trace, watermarks=False, memory=memory, policy=policy, lateness=lateness)[0] == want


@pytest.mark.parametrize("policy", ["prob", "life", "oldest", "rand"])
@pytest.mark.parametrize("gap", [0, 30])
@pytest.mark.parametrize("lateness", ["watermark", ("watermark", 3)])
@pytest.mark.parametrize("seed", range(3))
def test_every_missing_pair_is_in_the_ledger(policy: str, gap: int, lateness: Any, seed: int) -> None:
    """A pair is missing if and only if the ledger has one of its rows as gone when the other came."""
    trace = pushes(seed, disorder=12, gap=gap)
    found, ledger, op = run(trace, lateness=lateness, memory=30, policy=policy)
    assert op.report().balanced
    assert op.report().live.total <= 30
    gone: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for entry in ledger.to_pylist():
        side = ("left", "right").index(entry["side"])
        gone[side][entry["arrival"]] = entry["shed_at_arrival"]
    everything = meeting([r for p in trace for r in p.left], [r for p in trace for r in p.right])
    numbers = [
        {row[2]: at for at, row in enumerate(row for push in trace for row in (push.left, push.right)[side])}
        for side in range(2)
    ]
    for left, right in everything:
        a, b = numbers[0][left], numbers[1][right]
        missed = gone[0].get(a, b + 1) <= b or gone[1].get(b, a + 1) <= a
        assert (left, right) not in found if missed else found[left, right] == 1
    assert not found - everything


@pytest.mark.parametrize("lateness", ["watermark", ("watermark", 3)])
def test_whole_tables_have_no_watermark(lateness: Any) -> None:
    rows = table([(1, 2, 3)])
    given: dict[str, Any] = {"on": "k", "time": "ts", "window": SPAN, "lateness": lateness}
    with pytest.raises(InputError, match=r"pen\.Join"):
        pen.join(rows, rows, **given)
    with pytest.raises(InputError, match=r"pen\.Join"):
        pen.compare(rows, rows, policies=["oldest"], memory=[3], **given)


def test_rows_are_numbered_from_the_first_on() -> None:
    """Also those that wait until the other side has shown its columns."""
    op = pen.Join(on="k", time="ts", window=SPAN)
    op.push(left=table([(1, 2, 3), (2, 2, 4)]))
    assert op.arrived == (2, 0)
    op.push(right=table([(1, 2, 3)]))
    assert op.arrived == (2, 1)
