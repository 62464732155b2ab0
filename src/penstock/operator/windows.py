"""Make the windows of a join: on keys or on a condition, with a budget of memory, of CPU time, or without."""

from collections.abc import Sequence
from datetime import timedelta

import numpy as np

from penstock.core import dual, gate, probing
from penstock.core.dualjoin import DualJoin
from penstock.core.exact import ExactJoin
from penstock.core.gatejoin import GateJoin
from penstock.core.join import WindowJoin
from penstock.core.probing import WHOLE
from penstock.core.setjoin import ENDLESS, Cut, Place, SetJoin
from penstock.core.sets import BY_TIME, OVERLAP, Rule
from penstock.core.windows import Floats
from penstock.errors import BudgetError, InputError, WindowError
from penstock.operator.results import COMBINED
from penstock.operator.settings import Bound
from penstock.policies.cpu import keys
from penstock.policies.cpu.controller import PAPERS, Controller, Cpu
from penstock.policies.cpu.dual import DualController
from penstock.policies.cpu.items import ItemController
from penstock.policies.cpu.keys import KeyController
from penstock.policies.cpu.pacing import Pace, Target
from penstock.quality.sampled import Sampled
from penstock.streams.times import nanoseconds

Budgeted = SetJoin | DualJoin | GateJoin  # with a CPU budget, or on a condition
Core = WindowJoin | ExactJoin | Budgeted
BASIC_WINDOWS, PERIODS = 20, 4  # in a window, unless told otherwise; a queue holds as much as a basic window
UNCUT = "none"  # for a basic window: there are none
SHARES = 2  # periods in the rows that are ranked, or in the windows of both sides


def windows(bound: Bound, place: Place = (WHOLE, 0, 1)) -> Core:
    """Make the windows of a join, or of its part in one of several shards."""
    read, cpu = bound.reader, bound.settings.cpu
    if not isinstance(cpu, Cpu):
        if read is None:
            return bound.core(bound.plan())
        return SetJoin(bound.plan(), read.condition.rule, weighted=read.weighted, place=place)
    _check(bound, cpu)
    if read is not None or cpu.method == "selective":
        return _selective(bound, cpu, place)
    return _gated(bound, cpu) if _passes_keys(bound, cpu) else _dual(bound, cpu)


def sample_of(bound: Bound, place: Place) -> Sampled | None:
    """Make what counts the pairs of the exact join beside one that may miss some; None: on keys, others do."""
    read, settings = bound.reader, bound.settings
    if read is None:
        return None
    rule = read.condition.rule
    core = SetJoin(bound.unbounded().plan(), rule, weighted=read.weighted, place=place)
    combine = COMBINED[settings.combine] if bound.importance else None
    return Sampled(core, int(settings.seed) + place[1], combine, indexed=bool(rule.indexed))


def _passes_keys(bound: Bound, cpu: Cpu) -> bool:
    """Say whether a budget on equal keys is kept by letting some keys in: by the clock, and without other limits."""
    by_clock = cpu.latency is not None and cpu.method in keys.METHODS
    return by_clock and bound.settings.memory is None and not counts_entered(bound)


def counts_entered(bound: Bound) -> bool:
    """Say whether windows are counted over the rows that entered, so that pairs are not those of the exact join."""
    cpu = bound.settings.cpu
    return isinstance(cpu, Cpu) and cpu.over == "entered" and bound.by_rows


def _check(bound: Bound, cpu: Cpu) -> None:
    """Raise if something is asked for that joins under a CPU budget cannot do."""
    settings, on = bound.settings, f"with {cpu}"
    if cpu.by_clock and cpu.method in PAPERS:
        want = "the paper's steps reckon in the time of the rows: give comparisons_per_second"
        raise InputError("method", f"{cpu.method!r} {on}", want)
    if bound.reader:
        return
    if settings.memory is not None and cpu.method == "dual":
        want = "rows in its aux-window cannot be given up: leave it None, or give another method"
        raise BudgetError("memory", f"{settings.memory!r} {on}", want)
    if settings.per_key is not None:
        raise BudgetError("per_key", f"{settings.per_key!r} {on}", "leave it None")
    if cpu.types is not None:
        raise InputError("types", f"{cpu.types!r} {on}", "types are for joins on conditions: leave them out")
    if cpu.method == "selective":
        if bound.by_rows:
            raise WindowError("window", f"{settings.window} {on}", "give a span of time, or another method")
    elif bound.lateness:
        raise InputError("lateness", f"{settings.lateness!r} {on}", "the queue is in order: leave it 0")


def _gated(bound: Bound, cpu: Cpu) -> GateJoin:
    """Make the windows of a join on keys by the clock on the wall, with a gate before them."""
    control = KeyController(cpu.method, bound.span, bound.by_rows)
    core = GateJoin(bound.plan(), control, by_lot=cpu.method == "random-drop", seed=int(bound.settings.seed))
    dials = core.gate.dials
    if cpu.every is not None or not bound.by_rows:
        dials[gate.TICKS] = _ticks(bound, "every", cpu.every, [max(1, max(bound.span) // SHARES)])[0]
    else:
        dials[gate.ROWS] = sum(bound.span) / SHARES
    return core


def _dual(bound: Bound, cpu: Cpu) -> DualJoin:
    """Make the windows of a join on keys, with a queue and an aux-window."""
    over_entered = counts_entered(bound)
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


def _selective(bound: Bound, cpu: Cpu, place: Place) -> SetJoin:
    """Make windows that are probed in part; a key is a set of one item."""
    read = bound.reader
    rule = read.condition.rule if read else Rule(OVERLAP, 1.0, BY_TIME)
    weighted = read is not None and read.weighted
    period = _ticks(bound, "every", cpu.every, [max(1, max(bound.span) // PERIODS)])[0]
    seed = int(bound.settings.seed)
    if bound.promising:
        chooser = ItemController(period, cpu.sampling)
        cut = Cut(promises=True)
        core = SetJoin(bound.plan(), rule, weighted=weighted, cut=cut, seed=seed, adapt=chooser, place=place)
        core.effort.dials[probing.CAPACITY] = _work(bound, cpu)
        chooser.start(core.effort)
        return core
    cuts = None if cpu.basic_window == UNCUT else cpu.basic_window
    length = _ticks(bound, "basic_window", cuts, [-(-span // BASIC_WINDOWS) for span in bound.span])
    queue = _ticks(bound, "queue", cpu.queue, [max(2, *length)])[0]
    counts = [1 - (-(span + bound.lateness) // each) for span, each in zip(bound.span, length, strict=True)]
    if _drops(cpu) or cpu.basic_window == UNCUT:  # where they are dropped, rows are probed fully or not at all
        length, counts = [ENDLESS, ENDLESS], [1, 1]
    control = Controller(
        method="selective" if cpu.method == "auto" else cpu.method,
        period=period,
        spans=bound.span,
        windows=(counts[0], counts[1]),
        sampling=cpu.sampling,
        values=pair_values(cpu),
    )
    cut = Cut(max(counts), (length[0], length[1]), max(1, len(cpu.utility or ())))
    core = SetJoin(bound.plan(), rule, weighted=weighted, cut=cut, seed=seed, adapt=control, place=place)
    core.effort.dials[probing.CAPACITY] = _work(bound, cpu)
    core.effort.dials[probing.PATIENCE] = queue
    control.start(core.effort)
    return core


def _drops(cpu: Cpu) -> bool:
    """Say whether rows are dropped by the clock, so that basic windows would be for nothing."""
    return cpu.latency is not None and cpu.method == "random-drop"


def pace_of(bound: Bound) -> Pace | None:
    """Return how fast a join goes, if that depends on the clock on the wall."""
    cpu = bound.settings.cpu
    if not (isinstance(cpu, Cpu) and cpu.by_clock):
        return None
    latency = nanoseconds("latency", cpu.latency) / 10**9 if isinstance(cpu.latency, str | timedelta) else None
    return Pace(Target(latency, cpu.share, _seconds(bound), live=bound.clock.unit is not None))


def _seconds(bound: Bound) -> float:
    """Return how many seconds a tick is; one, where nobody says."""
    return 1.0 if bound.clock.unit is None else bound.clock.unit / 10**9


def _work(bound: Bound, cpu: Cpu) -> float:
    """Return the comparisons a tick that there is time for; any number, until the clock tells what they cost."""
    return np.inf if cpu.comparisons_per_second is None else cpu.comparisons_per_second * _seconds(bound)


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
