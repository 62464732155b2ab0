"""Make the windows of a join: on keys or on a condition, with a budget of memory, of CPU time, or without."""

from collections.abc import Sequence

import numpy as np

from penstock.core import dual, probing
from penstock.core.dualjoin import DualJoin
from penstock.core.exact import ExactJoin
from penstock.core.join import WindowJoin
from penstock.core.setjoin import Cut, SetJoin
from penstock.core.sets import OVERLAP, Rule
from penstock.core.windows import Floats
from penstock.errors import BudgetError, InputError, WindowError
from penstock.operator.settings import Bound
from penstock.policies.cpu.controller import Controller, Cpu
from penstock.policies.cpu.dual import DualController

Core = WindowJoin | ExactJoin | SetJoin | DualJoin
BASIC_WINDOWS, PERIODS = 20, 4  # in a window, unless told otherwise; a queue holds as much as a basic window
SHARES = 2  # periods in the rows that are ranked


def windows(bound: Bound) -> Core:
    """Make the windows of a join."""
    read, cpu = bound.reader, bound.settings.cpu
    if not isinstance(cpu, Cpu):
        if read is None:
            return bound.core(bound.plan())
        on = read.condition
        return SetJoin(bound.plan(), Rule(on.kind, float(on.bound), int(on.index)), weighted=read.weighted)
    if read is None:
        _check(bound, cpu)
    return _dual(bound, cpu) if read is None and cpu.method != "selective" else _selective(bound, cpu)


def _check(bound: Bound, cpu: Cpu) -> None:
    """Raise if something is asked for that joins on keys under a CPU budget cannot do."""
    settings, on = bound.settings, f"with {cpu}"
    if settings.per_key is not None:
        raise BudgetError("per_key", f"{settings.per_key!r} {on}", "leave it None")
    if cpu.types is not None:
        raise InputError("types", f"{cpu.types!r} {on}", "types are for joins on conditions: leave them out")
    if cpu.method == "selective":
        if bound.by_rows:
            raise WindowError("window", f"{settings.window} {on}", "give a span of time, or another method")
    elif bound.lateness or bound.patient:
        raise InputError("lateness", f"{settings.lateness!r} {on}", "the queue is in order: leave it 0")


def _dual(bound: Bound, cpu: Cpu) -> DualJoin:
    """Make the windows of a join on keys, with a queue and an aux-window."""
    over_entered = cpu.over == "entered" and bound.by_rows
    control = DualController(cpu.method, bound.span, bound.by_rows, over_entered)
    core = DualJoin(
        bound.plan(),
        control,
        over_entered=over_entered,
        later=cpu.method == "dual",
        anybody=cpu.method == "auto",
        seed=int(bound.settings.seed),
    )
    dials, work = core.lanes.dials, _work(bound, cpu)
    ranked = float(sum(bound.span)) if bound.by_rows else float(max(bound.span))
    dials[dual.CAPACITY], dials[dual.UPDATE], dials[dual.REACH] = work, cpu.update, ranked
    if bound.by_rows:
        dials[dual.ROWS] = ranked / SHARES
        wait = ranked / BASIC_WINDOWS * (1.0 + cpu.update) / work
    else:
        dials[dual.TICKS] = max(1.0, ranked / PERIODS)
        wait = ranked / BASIC_WINDOWS
    if cpu.every is not None:
        dials[dual.TICKS], dials[dual.ROWS] = _ticks(bound, "every", cpu.every, [])[0], np.inf
    dials[dual.PATIENCE] = _ticks(bound, "queue", cpu.queue, [max(2, int(np.ceil(wait)))])[0]
    control.start(core.lanes)
    return core


def _selective(bound: Bound, cpu: Cpu) -> SetJoin:
    """Make windows that are probed in part; a key is a set of one item."""
    read = bound.reader
    rule = (
        Rule(read.condition.kind, float(read.condition.bound), int(read.condition.index))
        if read
        else Rule(OVERLAP, 1.0, 1)
    )
    weighted = read is not None and read.weighted
    length = _ticks(bound, "basic_window", cpu.basic_window, [-(-span // BASIC_WINDOWS) for span in bound.span])
    counts = [1 - (-(span + bound.lateness) // each) for span, each in zip(bound.span, length, strict=True)]
    control = Controller(
        method="selective" if cpu.method == "auto" else cpu.method,
        period=_ticks(bound, "every", cpu.every, [max(1, max(bound.span) // PERIODS)])[0],
        spans=bound.span,
        windows=(counts[0], counts[1]),
        sampling=cpu.sampling,
        values=pair_values(cpu),
    )
    cut = Cut(max(counts), (length[0], length[1]), max(1, len(cpu.utility or ())))
    core = SetJoin(bound.plan(), rule, weighted=weighted, cut=cut, seed=int(bound.settings.seed), adapt=control)
    core.effort.dials[probing.CAPACITY] = _work(bound, cpu)
    core.effort.dials[probing.PATIENCE] = _ticks(bound, "queue", cpu.queue, [max(2, *length)])[0]
    control.start(core.effort)
    return core


def _work(bound: Bound, cpu: Cpu) -> float:
    """Return the comparisons a tick that there is time for."""
    return cpu.comparisons_per_second * (1.0 if bound.clock.unit is None else bound.clock.unit / 10**9)


def _ticks(bound: Bound, argument: str, given: object, default: Sequence[int]) -> list[int]:
    """Return a span of a CPU budget in ticks, for each side."""
    if given is None:
        return list(default)
    ticks = bound.clock.ticks(argument, given)
    if ticks < 1:
        raise WindowError(argument, repr(given), "it must be at least one tick long")
    return [ticks, ticks]


def pair_values(cpu: Cpu) -> Floats:
    """Return the value of a pair for each two types."""
    each = np.array(list((cpu.utility or {0: 1.0}).values()), np.float64)
    return np.maximum.outer(each, each) if cpu.combine == "max" else np.add.outer(each, each) / 2
