"""The workloads of the benchmarks, and how a bare join and the engine are driven over them."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.operator.join import settings_of
from penstock.operator.settings import Bound
from penstock.streams.intake import NO_FLOATS, NO_INTS, Intake, Side
from penstock.streams.workloads import uniform, zipf

Array = np.ndarray[Any, np.dtype[Any]]

ROWS = 10**6
BATCH = 10_000
ROUNDS = 5


class Case(NamedTuple):
    """Two streams, one row a tick each, and a window."""

    name: str
    left: pa.Table
    right: pa.Table
    span: int

    def arrays(self) -> tuple[Array, Array, Array, Array]:
        """Return left keys, left times, right keys, right times."""
        sides = (self.left, self.right)
        return tuple(table[name].to_numpy() for table in sides for name in ("key", "ts"))


def cases(rows: int = ROWS) -> list[Case]:
    """Sparse keys (uniform over 10**6, span 50,000) and dense keys (Zipf 1.0 over 10,000, span 500)."""
    sparse = uniform(rows, keys=10**6, seed=1)
    dense = zipf(rows, keys=10_000, skew=1.0, relation="correlated", seed=1)
    return [Case("sparse", sparse.left, sparse.right, 50_000), Case("dense", dense.left, dense.right, 500)]


def part(case: Case, rows: int) -> Case:
    """Return the beginning of a case."""
    return case._replace(left=case.left[:rows], right=case.right[:rows])


class Timing(NamedTuple):
    """The shortest wall and CPU seconds of several runs."""

    wall: float
    cpu: float


def in_turns(runs: Mapping[str, Callable[[], Any]], *, rounds: int = ROUNDS) -> dict[str, Timing]:
    """Time several runs in turns, so that a noisy moment of the machine meets all of them and not one."""
    seen: dict[str, list[Timing]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            seen[name].append(Timing(time.perf_counter() - wall, time.process_time() - cpu))
    return {name: Timing(*(min(column) for column in zip(*times, strict=True))) for name, times in seen.items()}


def engine_pairs(case: Case, pairs: Array, *, batch: int = BATCH, **arguments: Any) -> int:
    """Run the engine on arrays, all of it but Arrow: order of arrival, windows, policy, counters, ledger.

    Pairs of row numbers are written to `pairs`, as the bare joins do.
    """
    settings = settings_of({"on": "key", "time": "ts", "window": case.span, **arguments})
    bound = Bound(settings, case.left.schema, case.right.schema)
    exact = settings.memory is None
    core: Any = bound.core(bound.plan())
    intake = Intake(0, whole=False, apart=exact)
    left_keys, left_ts, right_keys, right_ts = case.arrays()
    name = arguments.get("importance")
    worths = [NO_FLOATS if name is None else table[name].to_numpy() for table in (case.left, case.right)]
    n = 0
    for at in range(0, left_ts.size, batch):
        rows = slice(at, at + batch)
        ready = intake.take(
            (
                Side(left_ts[rows], left_keys[rows], None, NO_INTS, worths[0][rows]),
                Side(right_ts[rows], right_keys[rows], None, NO_INTS, worths[1][rows]),
            )
        )
        if exact:
            assert ready.sides is not None
            left, right = core.push_sides(*ready.sides, pairs[:, n:])
        else:
            left, right = core.push(ready.batch, ready.code)
            pairs[0, n : n + left.size] = left
            pairs[1, n : n + left.size] = right
        core.take_ledger()
        n += left.size
    return n
