"""Move one batch through the windows: probe, enter, and at the end of every tick expire and shed.

A kernel stops where something is missing (room for pairs, for the ledger, for runs) and says so; called again
with that room it goes on where it stopped. Nothing else is returned: all state is in the arrays.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core.heap import Heap, entered, least, leaves, lowered, settle, start_over
from penstock.core.hooks import (
    admit,
    arrive,
    by_importance,
    counts,
    credit,
    credits_newcomers,
    due,
    foresee,
    forget,
    holds,
    lost,
    ranks,
    rather,
    tidy,
    victim,
    weigh,
    weigh_held,
)
from penstock.core.jit import borrowed, columns, kernel, overload, part, prefetch, uncached, wide
from penstock.core.windows import (
    ALIVE,
    BUNCH,
    CLOCK,
    CODE,
    COUNT,
    HEAD,
    KEYS,
    LIVE,
    NEWER,
    NEWEST,
    NEXT,
    NO_TICK,
    NONE,
    OLDER,
    OLDEST,
    OVERFULL,
    POS,
    REACHED,
    ROW,
    SLOTS,
    START,
    TICK,
    USED,
    WORTH,
    Floats,
    Ints,
    Windows,
    append,
    ask_for_neighbours,
    bunch_of,
    chain,
    detach,
    first,
    free_slot,
    key_of,
    known_key,
    make_room,
    moment_of,
    take_slot,
    unchain,
)

# why a kernel came back
DONE, PAIRS_FULL, LEDGER_FULL, POOL_FULL, SPARSE = 0, 1, 2, 3, 4
# why a tuple was given up before its time; the names are the ledger's
BUDGET, PER_KEY, LATE = 0, 1, 2
REASONS = ("budget", "per_key", "late")
EXPIRY = -1
# entries of `counts`; those from ARRIVED on are one per side
PAIRS, COMPARISONS = 0, 1
ARRIVED, EXPIRED, SHED = 2, 4, 6
COPIES = SHED + 2 * len(REASONS)  # rows given up that another shard counts
COUNTS = COPIES + 1
# columns of the ledger
SIDE, ROW_NUMBER, REASON, SHED_AT, SHED_NEXT = 0, 1, 2, 3, 4


SPARE_SLOTS = 1024  # so many free slots are not worth a look
FAR_AHEAD, NEAR_AHEAD = 12, 6  # how many rows ahead memory is asked for


@columns(clock=2)
class Batch(NamedTuple):
    """Rows in order of arrival; null keys and late rows are already taken out."""

    side: npt.NDArray[Any]
    key: npt.NDArray[Any]
    row: Ints  # number within the side
    tick: Ints  # the newest timestamp seen, this row's included
    pos: Ints  # what the row's age is counted from: its timestamp, or a row count
    clock: Ints  # (row, side) -> row counts at the end of the row's tick; empty for windows in time
    weight: Ints  # units of memory; empty: one each
    importance: Floats  # empty: none


NO_INTS: Ints = np.empty(0, np.int64)
NO_ROWS = Batch(
    np.empty(0, np.int8),
    np.empty(0, np.int32),
    NO_INTS,
    NO_INTS,
    NO_INTS,
    np.empty((0, 2), np.int64),
    NO_INTS,
    np.empty(0),
)


class Plan(NamedTuple):
    """What was asked for, as numbers."""

    span: Ints  # per side
    limit: Ints  # per side, in units of memory
    shared: int  # 1: limit[0] is for both sides together
    by_rows: int  # 1: windows in rows
    ahead: int  # a tuple leaves once pos + span <= clock + ahead
    patient: int  # 1: for that, the clock is the newest row of the side that is behind
    per_key: int  # most tuples of one key and side


@columns(ledger=5)
class Out(NamedTuple):
    """Where results go, and how far it is."""

    pairs: Ints  # (side, n) -> row numbers
    ledger: Ints  # (n, SIDE..SHED_NEXT)
    counts: Ints
    done: Ints  # rows of the batch taken, pairs, ledger rows, and 1 if the open tick ends with the batch


def tell_entered(policy: Any, windows: Windows, heap: Heap, side: int, slot: int, opens: int) -> None:
    """Tell the order that a tuple entered: 1 as the only one of its key, 2 as the oldest, 0 as another."""
    if ranks(policy) is not None:
        entered(policy, windows, heap, side, slot, opens)


def _enter_order(policy: Any, windows: Windows, heap: Heap, side: int, slot: int, opens: int) -> None:
    entered(policy, windows, heap, side, slot, opens)


@overload(tell_entered)
def _tell_entered(policy: Any, windows: Any, heap: Any, side: Any, slot: Any, opens: Any) -> Any:  # noqa: ARG001
    if ranks(policy) is not None:
        return _enter_order
    return lambda policy, windows, heap, side, slot, opens: None  # noqa: ARG005


def note_worth(policy: Any, windows: Windows, bunch: int, code: int) -> None:
    """Write down what the tuples of a bunch are worth now."""
    if counts(policy):
        (_weigh_held if holds(policy) else _weigh)(policy, windows, bunch, code)


def _weigh(policy: Any, windows: Windows, bunch: int, code: int) -> None:
    windows.worth[key_of(bunch), WORTH + (bunch & 1)] = weigh(policy, bunch & 1, code)


def _weigh_held(policy: Any, windows: Windows, bunch: int, code: int) -> None:
    held = wide(windows.runs[bunch ^ 1, ALIVE])
    windows.worth[key_of(bunch), WORTH + (bunch & 1)] = weigh_held(policy, bunch & 1, code, held)


@overload(note_worth)
def _note_worth(policy: Any, windows: Any, bunch: Any, code: Any) -> Any:  # noqa: ARG001
    if counts(policy):
        return _weigh_held if holds(policy) else _weigh
    return lambda policy, windows, bunch, code: None  # noqa: ARG005


def tell_lowered(policy: Any, windows: Windows, heap: Heap, side: int, key: int) -> None:
    """Tell the order that the score of a key fell."""
    if ranks(policy) == "key":
        _lower(policy, windows, heap, side, key)


def _lower(policy: Any, windows: Windows, heap: Heap, side: int, key: int) -> None:
    note_worth(policy, windows, bunch_of(key, side), windows.code[key, CODE])
    lowered(policy, windows, heap, side, key)


@overload(tell_lowered)
def _tell_lowered(policy: Any, windows: Any, heap: Any, side: Any, key: Any) -> Any:  # noqa: ARG001
    if ranks(policy) == "key":
        return _lower
    return lambda policy, windows, heap, side, key: None  # noqa: ARG005


def tell_leaves(policy: Any, windows: Windows, heap: Heap, slot: int) -> None:
    """Tell the order that a tuple is about to leave."""
    if by_importance(policy):
        _leave_order(policy, windows, heap, slot)


def _leave_order(policy: Any, windows: Windows, heap: Heap, slot: int) -> None:
    leaves(policy, windows, heap, wide(windows.link[slot, BUNCH]) & 1, slot)


@overload(tell_leaves)
def _tell_leaves(policy: Any, windows: Any, heap: Any, slot: Any) -> Any:  # noqa: ARG001
    if by_importance(policy):
        return _leave_order
    return lambda policy, windows, heap, slot: None  # noqa: ARG005


def tell_partners(policy: Any, windows: Windows, heap: Heap, bunch: int, reason: int) -> None:
    """Tell the order that a bunch lost a tuple: its partners are worth less, if it was shed from the next tick on."""
    if holds(policy):
        _lower_partners(policy, windows, heap, bunch, reason)


def _lower_partners(policy: Any, windows: Windows, heap: Heap, bunch: int, reason: int) -> None:
    if windows.runs[bunch ^ 1, ALIVE] == 0:
        return
    if reason == EXPIRY:
        tell_lowered(policy, windows, heap, (bunch ^ 1) & 1, key_of(bunch))
    else:
        heap.later[0] += 1
        heap.later[heap.later[0]] = bunch ^ 1


@overload(tell_partners)
def _tell_partners(policy: Any, windows: Any, heap: Any, bunch: Any, reason: Any) -> Any:  # noqa: ARG001
    if holds(policy):
        return _lower_partners
    return lambda policy, windows, heap, bunch, reason: None  # noqa: ARG005


def credit_newcomers(policy: Any, windows: Windows) -> None:
    """Let a policy look at the tuples of this tick once more."""
    if credits_newcomers(policy):
        _credit_all(policy, windows)


def _credit_all(policy: Any, windows: Windows) -> None:
    for side in range(2):
        slot = wide(windows.marks[NEWEST + side])
        while slot >= 0 and moment_of(windows, slot) == windows.marks[TICK]:
            credit(policy, windows, side, slot, windows.marks[CLOCK + side])
            slot = wide(windows.link[slot, OLDER])


@overload(credit_newcomers)
def _credit_newcomers(policy: Any, windows: Any) -> Any:  # noqa: ARG001
    if credits_newcomers(policy):
        return _credit_all
    return lambda policy, windows: None  # noqa: ARG005


def tell_shrunk(policy: Any, windows: Windows, heap: Heap, side: int) -> None:
    """Tell the order that all scores of a side shrank."""
    if ranks(policy) is not None:
        _shrink(policy, windows, heap, side)


def _shrink(policy: Any, windows: Windows, heap: Heap, side: int) -> None:
    for key in range(windows.marks[KEYS]):
        note_worth(policy, windows, bunch_of(key, side), windows.code[key, CODE])
    start_over(windows, heap, side)


@overload(tell_shrunk)
def _tell_shrunk(policy: Any, windows: Any, heap: Any, side: Any) -> Any:  # noqa: ARG001
    if ranks(policy) is not None:
        return _shrink
    return lambda policy, windows, heap, side: None  # noqa: ARG005


def choose(policy: Any, windows: Windows, heap: Heap, side: int) -> int:
    """Return the next victim on one side, or (side = -1) on either."""
    return (_by_rank if ranks(policy) else _by_policy)(policy, windows, heap, side)


def _by_rank(policy: Any, windows: Windows, heap: Heap, side: int) -> int:
    slot = least(policy, windows, heap, side)
    return rather(policy, windows, side, slot) if slot >= 0 else slot


def _by_policy(policy: Any, windows: Windows, heap: Heap, side: int) -> int:  # noqa: ARG001
    return victim(policy, windows, side)


@overload(choose)
def _choose(policy: Any, windows: Any, heap: Any, side: Any) -> Any:  # noqa: ARG001
    return _by_rank if ranks(policy) else _by_policy


def overdue(policy: Any, windows: Windows, heap: Heap) -> int:
    """Return a tuple that leaves now by the policy's word, budget or not; -1 if there is none."""
    return _least_due(policy, windows, heap) if hasattr(policy, "due") else NONE


def _least_due(policy: Any, windows: Windows, heap: Heap) -> int:
    for side in range(2):
        slot = least(policy, windows, heap, side)
        if slot >= 0 and due(policy, windows, slot, windows.marks[TICK]):
            return slot
    return wide(NONE)


@overload(overdue)
def _overdue(policy: Any, windows: Any, heap: Any) -> Any:  # noqa: ARG001
    if hasattr(policy.instance_class, "due"):
        return _least_due
    return lambda policy, windows, order: NONE  # noqa: ARG005


@part
def count(policy: Any, windows: Windows, heap: Heap, side: int, code: int) -> None:
    """Let statistics count an arrival, for which they may forget another key."""
    arrive(policy, side, code, windows.marks[CLOCK + side])
    found, forgotten = lost(policy)
    if found:
        key = known_key(windows, forgotten)
        if key >= 0:
            for each in range(2):
                tell_lowered(policy, windows, heap, each, key)


@part
def forget_aged(policy: Any, windows: Windows, heap: Heap) -> None:
    """Let statistics forget what is too old for them."""
    for side in range(2):
        if tidy(policy, windows, side, windows.marks[CLOCK + side]):
            tell_shrunk(policy, windows, heap, 1 - side)
        found, code = forget(policy, side, windows.marks[CLOCK + side])
        while found:
            key = known_key(windows, code)
            if key >= 0:
                tell_lowered(policy, windows, heap, 1 - side, key)
            found, code = forget(policy, side, windows.marks[CLOCK + side])


@part
def remove(policy: Any, windows: Windows, heap: Heap, slot: int, reason: int) -> None:
    """Take a tuple out of the windows."""
    bunch = wide(windows.link[slot, BUNCH])
    side = bunch & 1
    tell_leaves(policy, windows, heap, slot)
    detach(windows, bunch, slot)
    unchain(windows, side, slot)
    windows.marks[LIVE + side] -= 1
    if windows.weight.size > 1:
        windows.marks[USED + side] -= windows.weight[slot]
    free_slot(windows, slot)
    tell_partners(policy, windows, heap, bunch, reason)


@part
def shed(policy: Any, windows: Windows, heap: Heap, out: Out, slot: int, reason: int) -> bool:
    """Give a tuple up and enter it in the ledger; False if the ledger is full."""
    at = out.done[2]
    if at == out.ledger.shape[0]:
        return False
    side = wide(windows.link[slot, BUNCH]) & 1
    entry = out.ledger[at]
    entry[SIDE] = side
    entry[ROW_NUMBER] = windows.stamp[slot, ROW]
    entry[REASON] = reason
    entry[SHED_AT] = windows.marks[TICK]
    entry[SHED_NEXT] = windows.marks[NEXT + 1 - side]
    out.done[2] = at + 1
    out.counts[SHED + 2 * reason + side] += 1
    remove(policy, windows, heap, slot, reason)
    return True


@part
def expire(policy: Any, windows: Windows, heap: Heap, plan: Plan, counts: Ints) -> None:
    """Let go of the tuples that can meet nobody at a later tick."""
    marks = windows.marks
    behind = min(marks[REACHED], marks[REACHED + 1])
    for side in range(2):
        clock = behind if plan.patient else marks[CLOCK + side]
        expire_side(policy, windows, heap, counts, side, clock + plan.ahead - plan.span[side])


@part
def expire_side(policy: Any, windows: Windows, heap: Heap, counts: Ints, side: int, until: int) -> None:
    """Let go of the tuples of one side that count from `until` or before."""
    stamp, link = windows.stamp, windows.link
    slot = windows.marks[OLDEST + side]
    while slot >= 0 and stamp[slot, POS] <= until:
        following = wide(link[slot, NEWER])
        if following >= 0:
            ask_for_neighbours(windows, following)
        remove(policy, windows, heap, slot, EXPIRY)
        counts[EXPIRED + side] += 1
        slot = following


@kernel
def expire_before(policy: Any, windows: Windows, heap: Heap, plan: Plan, counts: Ints, watermark: int) -> None:
    """Let go of the tuples that meet nobody from the watermark on (windows in time)."""
    policy, windows, heap = borrowed(policy), borrowed(windows), borrowed(heap)
    plan, counts = borrowed(plan), borrowed(counts)
    for side in range(2):
        expire_side(policy, windows, heap, counts, side, watermark - plan.span[side])


expire_before_uncached = uncached(expire_before)


@part
def past_due(windows: Windows, plan: Plan, pool: int) -> int:
    """Return the oldest tuple of a pool that late rows only could still meet; -1 if there is none.

    Such tuples are the first to go, whatever the policy: so a stream in order keeps the same tuples however long
    the watermark makes windows wait for late rows.
    """
    if (plan.ahead == 1 and not plan.patient) or plan.by_rows:
        return wide(NONE)
    marks, found, oldest = windows.marks, wide(NONE), 0
    for side in range(2):
        slot = marks[OLDEST + side]
        if slot >= 0 and pool in (-1, side):
            pos = windows.stamp[slot, POS]
            if pos + plan.span[side] <= marks[CLOCK + side] + 1 and (found < 0 or pos < oldest):
                found, oldest = slot, pos
    return found


@part
def overfull(windows: Windows, plan: Plan) -> int:
    """Return the oldest tuple of a key that holds more than its cap; -1 if there is none."""
    marks = windows.marks
    while marks[OVERFULL] > 0:
        bunch = wide(windows.overfull[marks[OVERFULL] - 1])
        if windows.runs[bunch, ALIVE] > plan.per_key:
            return first(windows, bunch)
        marks[OVERFULL] -= 1
    return wide(NONE)


@part
def over_budget(policy: Any, windows: Windows, heap: Heap, plan: Plan) -> int:
    """Return the victim of a pool that holds more than its limit; -1 if there is none."""
    held = USED if windows.weight.size > 1 else LIVE
    left, right = windows.marks[held], windows.marks[held + 1]
    if plan.shared:
        pool = -1 if left + right > plan.limit[0] else -2
    else:
        pool = 0 if left > plan.limit[0] else 1 if right > plan.limit[1] else -2
    if pool == -2:
        return wide(NONE)
    slot = past_due(windows, plan, pool)
    return slot if slot >= 0 else choose(policy, windows, heap, pool)


@part
def settle_both(windows: Windows, heap: Heap) -> None:
    """Restore the order of both sides after the clock has moved."""
    for side in range(2):
        settle(heap, side, windows.marks[CLOCK + side])


@part
def close_tick(policy: Any, windows: Windows, heap: Heap, plan: Plan, out: Out) -> bool:
    """End a tick: expire, then shed until caps, schedule and budget hold; False if the ledger is full."""
    expire(policy, windows, heap, plan, out.counts)
    settle_both(windows, heap)
    credit_newcomers(policy, windows)
    while True:
        reason = PER_KEY
        slot = overfull(windows, plan)
        if slot < 0:
            reason = BUDGET
            slot = overdue(policy, windows, heap)
        if slot < 0:
            slot = over_budget(policy, windows, heap, plan)
        if slot < 0:
            break
        if not shed(policy, windows, heap, out, slot, reason):
            return False
    while heap.later[0] > 0:
        bunch = wide(heap.later[heap.later[0]])
        heap.later[0] -= 1
        tell_lowered(policy, windows, heap, bunch & 1, key_of(bunch))
    return True


@part
def meets(windows: Windows, plan: Plan, side: int, at: int, slot: int) -> bool:
    """Say whether a row of one side, at a clock, meets a tuple of the other: the older one is young enough."""
    age = at - windows.stamp[slot, POS]
    return age < plan.span[1 - side] and -age < plan.span[side]


@part
def probe(windows: Windows, plan: Plan, out: Out, side: int, bunch: int, at: int, row: int, n: int) -> int:
    """Emit the tuples of a bunch that a row of the other side meets, from pair n on; returns the pairs so far.

    There is room for all of them.
    """
    runs, pool, rows, marks = windows.runs, windows.pool, windows.rows, windows.marks
    count = wide(runs[bunch, COUNT])
    mine, theirs = out.pairs[side], out.pairs[1 - side]
    # between two in time that meet, all do: nobody's stamp need be looked at
    all_meet = meets(windows, plan, side, at, marks[OLDEST + 1 - side]) and meets(
        windows, plan, side, at, marks[NEWEST + 1 - side]
    )
    if runs[bunch, HEAD] < 0:
        slot = wide(runs[bunch, START])
        if all_meet or meets(windows, plan, side, at, slot):
            mine[n] = row
            theirs[n] = windows.stamp[slot, ROW]
            n += 1
        return n
    start = wide(runs[bunch, START]) + runs[bunch, HEAD]
    if all_meet and runs[bunch, ALIVE] == count:
        for i in range(count):
            mine[n + i] = row
            theirs[n + i] = rows[start + i]
        return n + count
    for entry in range(start, start + count):
        slot = wide(pool[entry])
        if slot >= 0 and (all_meet or meets(windows, plan, side, at, slot)):
            mine[n] = row
            theirs[n] = rows[entry]
            n += 1
    return n


@part
def enter(policy: Any, windows: Windows, heap: Heap, plan: Plan, batch: Batch, code: Ints, i: int) -> None:
    """Put row i of a batch into the windows."""
    marks = windows.marks
    side, key = wide(batch.side[i]), wide(batch.key[i])
    bunch = bunch_of(key, side)
    slot = take_slot(windows)
    windows.stamp[slot, POS] = batch.pos[i]
    windows.stamp[slot, ROW] = batch.row[i]
    marks[LIVE + side] += 1
    if windows.weight.size > 1:
        windows.weight[slot] = batch.weight[i]
        marks[USED + side] += batch.weight[i]
    if windows.importance.size > 0:
        windows.importance[slot] = batch.importance[i]
    if windows.moment.size > 0:
        windows.moment[slot] = batch.tick[i]
    chain(windows, side, slot)
    append(windows, bunch, slot)
    alive = windows.runs[bunch, ALIVE]
    if alive == 1:
        note_worth(policy, windows, bunch, code[i])
    admit(policy, windows, side, slot, marks[CLOCK + side])
    opens = 1 if alive == 1 else 2 if first(windows, bunch) == slot else 0
    tell_entered(policy, windows, heap, side, slot, opens)
    if alive > plan.per_key:
        windows.overfull[marks[OVERFULL]] = bunch
        marks[OVERFULL] += 1


@part
def look_ahead(policy: Any, windows: Windows, batch: Batch, code: Ints, i: int) -> None:
    """Ask for the memory that rows soon to come will touch."""
    if i + FAR_AHEAD < batch.key.size:
        foresee(policy, code[i + FAR_AHEAD])
        prefetch(windows.code, wide(batch.key[i + FAR_AHEAD]))
    if i + NEAR_AHEAD < batch.key.size:
        for side in range(2):
            bunch = bunch_of(wide(batch.key[i + NEAR_AHEAD]), side)
            if windows.runs[bunch, COUNT] > 0:
                start = wide(windows.runs[bunch, START])
                if windows.runs[bunch, HEAD] < 0:
                    prefetch(windows.stamp, start)
                else:
                    prefetch(windows.pool, start + windows.runs[bunch, HEAD])
                    prefetch(windows.rows, start + windows.runs[bunch, HEAD])


@part
def open_tick(policy: Any, windows: Windows, heap: Heap, plan: Plan, batch: Batch, i: int) -> None:
    """Set the clocks to the tick of row i, and let order and statistics take notice."""
    marks = windows.marks
    marks[TICK] = batch.tick[i]
    for side in range(2):
        marks[CLOCK + side] = batch.clock[i, side] if plan.by_rows else batch.tick[i]
    settle_both(windows, heap)
    forget_aged(policy, windows, heap)


@kernel
def step(policy: Any, windows: Windows, heap: Heap, plan: Plan, batch: Batch, code: Ints, out: Out) -> int:
    """Take the rows of a batch from ``out.done[0]`` on; returns why it stopped.

    Cost per row: O(1 + matches) to probe and enter, and O(1) amortised to expire; a victim costs
    O(log tuples) for ranking policies.
    """
    policy, windows, heap, plan = borrowed(policy), borrowed(windows), borrowed(heap), borrowed(plan)
    batch, code, out = borrowed(batch), borrowed(code), borrowed(out)
    marks, runs = windows.marks, windows.runs
    why = DONE
    n = out.done[1]
    compared = 0
    begin = out.done[0]
    i = begin
    while i < batch.key.size or out.done[3] == 1:
        ends = i == batch.key.size
        look_ahead(policy, windows, batch, code, i)
        if ends or batch.tick[i] > marks[TICK]:
            if marks[TICK] != NO_TICK and not close_tick(policy, windows, heap, plan, out):
                why = LEDGER_FULL
                break
            if ends:
                break
            if marks[SLOTS] > 4 * (marks[LIVE] + marks[LIVE + 1]) + SPARE_SLOTS:  # here, so that no cut can show
                why = SPARSE
                break
            open_tick(policy, windows, heap, plan, batch, i)
        side, key = wide(batch.side[i]), wide(batch.key[i])
        other = bunch_of(key, 1 - side)
        held = runs[other, COUNT]
        if n + held > out.pairs.shape[1]:
            why = PAIRS_FULL
            break
        if not make_room(windows, bunch_of(key, side)):
            why = POOL_FULL
            break
        marks[NEXT + side] = batch.row[i] + 1
        marks[REACHED + side] = max(marks[REACHED + side], batch.pos[i])
        if held > 0:
            at = batch.clock[i, 1 - side] if plan.by_rows else batch.pos[i]
            n = probe(windows, plan, out, side, other, at, batch.row[i], n)
            compared += held
        count(policy, windows, heap, side, code[i])
        enter(policy, windows, heap, plan, batch, code, i)
        if held > 0:
            note_worth(policy, windows, other, code[i])
        out.counts[ARRIVED + side] += 1
        i += 1
    out.counts[PAIRS] += n - out.done[1]
    out.counts[COMPARISONS] += compared
    out.done[0] = i
    out.done[1] = n
    return why


step_uncached = uncached(step)
