"""Measure what importance2006's offline algorithms take, ESJA on the paper's network."""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from penstock.errors import InputError
from penstock.optimum import flow, networks
from penstock.optimum.problem import Pool, problem
from penstock.optimum.states import MemoryStates
from penstock.streams.intake import NO_INTS, Side
from penstock.streams.workloads import Workload

SELF = Path("/proc/self")


def cpu_seconds(algorithm: str, streams: Workload, window: int, limit: int) -> float:
    """Find the most important result with so many places a side, by ODJA or ESJA; returns the CPU seconds it took."""
    sides = [
        Side(table["ts"].to_numpy(), table["key"].to_numpy(), None, NO_INTS, table["importance"].to_numpy())
        for table in (streams.left, streams.right)
    ]
    stated = problem((sides[0], sides[1]), span=(window, window), by_rows=False, combine="min", count_from=2 * window)
    begin = time.process_time()
    for side in range(2):
        pool = Pool((side,), limit)
        if algorithm == "ODJA":
            MemoryStates(stated, pool).value()
        else:
            flow.solve(networks.by_moment(stated, pool))
    return time.process_time() - begin


def megabytes(algorithm: str, streams: Workload, window: int, limit: int) -> float:
    """Return the memory that the same takes on, in a process of its own."""
    if not SELF.is_dir():
        raise InputError("figure", f"no {SELF}", "memory is measured on Linux")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as one:
        return one.submit(_grown, algorithm, streams, window, limit).result()


def _grown(algorithm: str, streams: Workload, window: int, limit: int) -> float:
    begin = streams._replace(left=streams.left[: 4 * window], right=streams.right[: 4 * window])
    cpu_seconds(algorithm, begin, window, limit)  # whatever is loaded at the first use
    (SELF / "clear_refs").write_text("5")  # the peak begins anew
    idle = _peak()
    cpu_seconds(algorithm, streams, window, limit)
    return _peak() - idle


def _peak() -> float:
    """Return the most memory this process has had, in MB."""
    status = dict(line.split(":", 1) for line in (SELF / "status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024
