"""Compile the kernels of policies, CPU budgets and the optimum ahead of time, on all cores, into the cache."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core import heap, step
from penstock.core.jit import cache_folder
from penstock.engine import multijoin
from penstock.engine.offline import optimum
from penstock.errors import PolicyError
from penstock.operator import several
from penstock.operator.conditions import overlap
from penstock.operator.join import Join
from penstock.operator.settings import SIDES, Settings
from penstock.policies import registry
from penstock.policies.cpu.controller import Cpu
from penstock.policies.registry import Policy
from penstock.streams.workloads import zipf

EXACT, LATE = "exact", "exact:late"  # rows that may be late are kept as those of a bounded join are
SEVERAL = "several"  # the join of more than two streams
SETS, KEYS = "cpu:sets", "cpu:keys"  # joins under a CPU budget, on sets and on keys
SHARED = "shared"  # what all have in common and only larger joins or keys of bytes use
OPTIMUM = "optimum"
VALUED = "auto:importance"  # another order than without
MARK = f".{sys.implementation.cache_tag}.warm"
FLOOD, TRICKLE, STEP = 3000, 1000, 50  # rows of the tiny joins

Tell = Callable[[str, float, int, int], None]  # what is done, its seconds, how many of how many are


class Warm(NamedTuple):
    """What a warm-up did."""

    folder: Path
    seconds: dict[str, float]  # when each was ready, in that order
    kept: bool  # whether later processes will find them


def names() -> list[str]:
    """Return all that has kernels of its own, the slowest to compile first."""
    own = [entry for entry in registry.entries() if entry.own]
    own.sort(key=lambda entry: (getattr(entry.kind, "fades", False), getattr(entry.kind, "ranks", None) == "key"))
    own.reverse()
    second = ["rand:at=input"] if any(entry.name == "rand" for entry in own) else []
    return [VALUED, *(entry.name for entry in own), *second, LATE, SEVERAL, SETS, KEYS, EXACT, SHARED, OPTIMUM]


def name_of(policy: Policy) -> str | None:
    """Return the entry of ``names()`` that a policy belongs to; None: it is compiled when it is used."""
    name = "rand:at=input" if policy.options.get("at") == "input" else policy.name
    return name if name in names() else None


def is_warm(name: str) -> bool:
    """Say whether a warm-up left these kernels in the kept cache."""
    return _mark(name).exists()


def remember(name: str) -> None:
    """Note that these kernels are in the kept cache; where nothing can be kept, nothing is."""
    if compiles():
        with suppress(OSError):
            _mark(name).touch()


def compiles() -> bool:
    """Say whether kernels are compiled at all: Numba can be told not to."""
    return hasattr(step.step, "_cache")


def keeps() -> bool:
    """Say whether what is compiled can be kept for other processes."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(cache_folder(), os.W_OK)


def _mark(name: str) -> Path:
    return cache_folder() / f"{name.replace(':', '-')}{MARK}"


def warm(chosen: Sequence[str] | None = None, *, at_once: int | None = None, tell: Tell | None = None) -> Warm:
    """Compile or load the kernels of some policies, by default of all.

    The idea: what is not in the kept cache is compiled by child processes, one a core; this process loads it.

    Parameters:
        chosen: entries of ``names()``.
        at_once: how many processes compile; default: one a core. 1: this one does.
        tell: called whenever one is ready.

    Returns:
        The folder of the kept cache, and after how many seconds each was ready.

    Cost: a policy that is not in the cache takes seconds to tens of seconds, one that is, milliseconds.
    """
    known = names()
    unknown = [name for name in chosen or () if name not in known]
    if unknown:
        raise PolicyError("policy", repr(unknown[0]), f"there are {', '.join(known)}")
    wanted = [name for name in known if chosen is None or name in chosen]
    cold = [name for name in wanted if not is_warm(name)]
    at_once = min(cores() if at_once is None else at_once, len(cold))
    begin = time.perf_counter()
    ready: dict[str, float] = {}

    def note(name: str) -> None:
        if name not in ready:
            ready[name] = time.perf_counter() - begin
            if tell is not None:
                tell(name, ready[name], len(ready), len(wanted))

    if at_once > 1 and compiles() and keeps():
        for name in compiled_by_children([cold[at::at_once] for at in range(at_once)]):
            note(name)
    for name in wanted:
        touch(name)  # after a child: load what it left, or do what it could not
        remember(name)
        note(name)
    return Warm(cache_folder(), ready, all(is_warm(name) for name in wanted))


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def touch(name: str) -> None:
    """Run a tiny join that uses the kernels of a policy; they do not depend on its shape."""
    if name == SEVERAL:
        whole = {side: pa.concat_tables(_pieces(FLOOD, at)) for at, side in enumerate(SIDES)}
        multijoin.run(whole, several.Settings(on="key", time="ts", windows=300))
        return
    if name == OPTIMUM:
        settings = Settings(on="key", time="ts", window=20, memory=6)
        streams = zipf(TRICKLE, keys=9)
        for limit in (None, 1e-9):  # whole, and cut short
            optimum(streams.left, streams.right, settings, time_limit=limit)
        return
    exact = name in {EXACT, LATE, SETS, KEYS}
    op = Join(
        on={SHARED: ["key", "name"], SETS: overlap("set", at_least=1)}.get(name, "key"),
        time="ts",
        window=300,
        lateness=int(name == LATE),
        memory=None if exact else 100,
        policy=_policy(name),
        importance="key" if name == VALUED else None,
        ledger="off",
        cpu=Cpu(FLOOD) if name in {SETS, KEYS} else None,
    )
    keys = FLOOD if name == SHARED else STEP
    for left, right in zip(_pieces(keys, 0), _pieces(keys, 1), strict=True):
        op.push(left=left, right=right)
    op.finish()


def _policy(name: str) -> Policy:
    word, _, options = name.partition(":")
    if word == EXACT or name in {VALUED, SETS, KEYS}:
        return registry.policy("auto")
    if word == SHARED:
        return registry.policy("oldest")
    if word == "replay":
        return registry.policy(word, schedule={"side": ["left"], "row": [0], "until": [1]})
    return registry.policy(word, **dict(option.split("=") for option in options.split(",") if option))


def _pieces(keys: int, seed: int) -> Iterator[pa.Table]:
    """Yield rows of one side: a flood at one time, then a trickle, so that what grows also shrinks."""
    rows = np.arange(FLOOD + TRICKLE)
    key = pa.array((rows * 7 + seed) % keys)
    sets = pa.ListArray.from_arrays(np.arange(rows.size + 1, dtype=np.int32), key)
    table = pa.table({"ts": np.maximum(rows - FLOOD, 0), "key": key, "name": key.cast(pa.string()), "set": sets})
    yield table[:FLOOD]
    for start in range(FLOOD, FLOOD + TRICKLE, STEP):
        yield table[start : start + STEP]


def compiled_by_children(groups: Sequence[Sequence[str]]) -> Iterator[str]:
    """Let a child process compile each group, and yield what is ready.

    A child that fails is no error: the caller's own attempt will say what is wrong.
    """
    waiting = [name for group in groups for name in group]
    children: list[subprocess.Popen[bytes]] = []
    try:
        children += [_child(group) for group in groups]
        running = True
        while running:
            running = any(child.poll() is None for child in children)
            yield from [name for name in waiting if is_warm(name)]
            waiting = [name for name in waiting if not is_warm(name)]
            time.sleep(0.05)
    finally:
        for child in children:
            child.kill()
            child.wait()


def _child(group: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a process that compiles; Ctrl-C reaches it through this process only."""
    return subprocess.Popen(  # noqa: S603 - the interpreter this one runs in
        [sys.executable, "-P", "-m", "penstock.engine.warmup", *group],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def compile_here(group: Sequence[str]) -> None:
    """Compile what a child process was asked for, while its siblings do the same."""
    with ExitStack() as stack:
        for kernel in (
            step.step,
            step.expire_before,
            heap.fill,
        ):  # one piece of code a policy; the others are the same for all
            stack.enter_context(one_at_a_time(kernel))
        for name in group:
            touch(name)
            remember(name)


@contextmanager
def one_at_a_time(kernel: Any) -> Iterator[None]:
    """Let only one process write the index of a kernel's cache.

    Numba numbers the files of a kernel by what its index holds: two processes that save at the same moment
    would use the same number for different code.
    """
    cache = kernel._cache  # noqa: SLF001 - there is no other way to guard it
    save = cache.save_overload

    def guarded(signature: Any, data: Any) -> None:
        with locked(cache_folder() / "lock"):
            save(signature, data)

    cache.save_overload = guarded
    try:
        yield
    finally:
        del cache.save_overload


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes, where the system has them."""
    try:
        import fcntl  # noqa: PLC0415 - POSIX only
    except ImportError:
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    compile_here(sys.argv[1:])
