"""Drive the kernels: make room before they need it, call them until they are done, collect what they wrote."""

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core import heap as heaps
from penstock.core import windows as store
from penstock.core.hooks import Unlimited, has_merits, hears, ranks
from penstock.core.step import (
    ARRIVED,
    COUNTS,
    EXPIRED,
    LEDGER_FULL,
    NO_INTS,
    NO_ROWS,
    PAIRS,
    PAIRS_FULL,
    POOL_FULL,
    REASONS,
    SHED,
    SPARSE,
    Batch,
    Out,
    Plan,
    expire_before,
    expire_before_uncached,
    step,
    step_uncached,
)
from penstock.core.windows import CLOCK, KEYS, LIVE, NEXT, NO_TICK, OVERFULL, SLOTS, TICK, Ints, Words

DEAF = Unlimited(0)  # for kernels that need not be compiled for each policy
FIRST_KEYS = 1024
FIRST_SLOTS = 1024
FEW_KEYS = 1 << 17  # up to so many, ids are cheaper than looking for those no longer needed
MOST = 1 << 26  # for a budget of more tuples than these, room is made as they come
FIRST_PAIRS = 1 << 16
FIRST_LEDGER = 1 << 12
NO_LEAVES = np.empty((2, 0), np.int8)


class WindowJoin:
    """The windows of one join with their policy: batches in, pairs of row numbers out.

    Parameters:
        plan: spans, limits and the rest, as numbers.
        policy: the arrays of a policy.
        weighted: 1 if rows bring their own weight, 0 if each weighs 1.
        important: 1 if rows bring an importance.
        own: whether the policy is the package's own, so that its kernels may be kept between processes.
    """

    def __init__(self, plan: Plan, policy: Any, *, weighted: int, important: int, own: bool) -> None:
        self.plan = plan
        self.policy = policy
        self.own = own
        self.windows = store.empty(
            keys=FIRST_KEYS,
            slots=FIRST_SLOTS,
            weighted=weighted,
            important=important,
            by_rows=plan.by_rows,
            merits=int(has_merits(policy)),
        )
        self._most_keys = FIRST_KEYS
        self._spare = np.zeros(store.IDS, np.int32)
        self.counts = np.zeros(COUNTS, np.int64)
        self._pairs = np.empty((2, FIRST_PAIRS), np.int64)
        self._ledger = np.empty((FIRST_LEDGER, 5), np.int64)
        self._shed: list[Ints] = []
        self.heap = heaps.empty(policy=policy, entries=heaps.entries_for(0), keys=1, slots=1, span=plan.span)
        self.rebuild_heap()

    # --- batches --------------------------------------------------------------------------------------------------

    def push(self, batch: Batch, code: Ints) -> tuple[Ints, Ints]:
        """Take a batch and return the row numbers of its pairs, left and right, as good until the next call.

        The key column of `batch` is filled in here from the codes.
        """
        self._reserve(code.size)
        store.find_keys(self.windows, code, batch.key, self._spare)
        return self._run(batch, code, ends=0)

    def warm(self) -> None:
        """Compile or load the kernels before they are needed."""
        self.close()

    def close(self) -> None:
        """End the open tick."""
        self._run(NO_ROWS, NO_INTS, ends=1)

    def advance(self, to: int) -> None:
        """End every tick before `to`: windows in time move on although nothing arrived."""
        if to > self.windows.marks[TICK]:
            self.reach(to - 1, np.full(2, to - 1))

    def reach(self, tick: int, clock: Ints) -> None:
        """End every tick up to this one, with these clocks."""
        marks = self.windows.marks
        self.close()
        marks[TICK] = max(tick, marks[TICK])
        marks[CLOCK : CLOCK + 2] = clock
        self.close()

    def pass_watermark(self, to: int) -> None:
        """Let go of the tuples that meet nobody from `to` on."""
        kernel = expire_before if self.own else expire_before_uncached
        policy = self.policy if hears(self.policy) else DEAF
        kernel(policy, self.windows, self.heap, self.plan, self.counts, to)

    def _run(self, batch: Batch, code: Ints, *, ends: int) -> tuple[Ints, Ints]:
        kernel = step if self.own else step_uncached
        done = np.array([0, 0, 0, ends], np.int64)
        chunks: list[Ints] = []
        while True:
            out = Out(self._pairs, self._ledger, self.counts, done)
            why = kernel(self.policy, self.windows, self.heap, self.plan, batch, code, out)
            if done[2]:
                self._shed.append(self._ledger[: done[2]].copy())
                done[2] = 0
            if why == PAIRS_FULL:
                chunks.append(self._pairs[:, : done[1]])
                self._pairs = np.empty((2, 2 * self._pairs.shape[1]), np.int64)
                done[1] = 0
            elif why == LEDGER_FULL:
                self._ledger = np.empty((2 * self._ledger.shape[0], 5), np.int64)
            elif why == POOL_FULL:
                self.windows = store.roomier_pool(self.windows, self._most())
            elif why == SPARSE:
                rows = batch.key.size - int(done[0])
                self.windows = store.roomier_slots(store.packed(self.windows), rows, 0)
                self.respan()
            else:
                break
        last = self._pairs[:, : done[1]]
        if not chunks:
            return last[0], last[1]
        chunks.append(last)
        return np.concatenate([c[0] for c in chunks]), np.concatenate([c[1] for c in chunks])

    # --- room -----------------------------------------------------------------------------------------------------

    def _reserve(self, rows: int) -> None:
        """Make room for so many new keys and tuples."""
        windows = store.roomier_slots(self.windows, rows, self._most())
        grew = windows.link.shape[0] > self.windows.link.shape[0]
        if windows.marks[OVERFULL] + rows > windows.overfull.size and self.plan.per_key < np.iinfo(np.int64).max:
            size = 2 * (int(windows.marks[OVERFULL]) + rows)
            windows = windows._replace(overfull=store.grown(windows.overfull, size, int(windows.marks[OVERFULL])))
        self.windows = windows
        if windows.marks[KEYS] + rows - self._spare[store.SPARE] > self._most_keys:
            self._find_ids(rows)
        if grew:
            self.rebuild_heap()

    def _most(self) -> int:
        """Return how many tuples the budget lets in; 0 if nobody can say, or if they are too many to count on."""
        limit = self.plan.limit
        most = int(limit[0]) if self.plan.shared else int(limit[0]) + int(limit[1])
        return most if most <= MOST and self.windows.weight.size == 1 else 0

    def _find_ids(self, rows: int) -> None:
        """See to it that so many new keys get ids: spare ones, or new ones if the last round found few."""
        known = self.heap.known if ranks(self.policy) == "key" else NO_LEAVES
        spare, marks = self._spare, self.windows.marks
        if spare.size < store.IDS + rows:
            spare = self._spare = store.grown(spare, store.IDS + rows, spare.size)
        while True:
            store.gather_ids(self.windows, known, spare, rows)
            if spare[store.SPARE] >= rows:
                return
            most = most_keys(int(spare[store.HELD]), rows, self._most())
            spare[store.HAND] = spare[store.HELD] = 0
            # places that keys left are searched past: without this, a table would sooner or later have no others
            store.enter_codes(self.windows.table, self.windows.code[: int(marks[KEYS])])
            if marks[KEYS] + rows - spare[store.SPARE] <= most:
                break
        self._most_keys = most
        self.windows = store.roomier_keys(self.windows, most, anew=False)
        self.heap = heaps.widened(self.heap, self.policy, self.windows, int(marks[KEYS]))

    def _forget_keys(self) -> None:
        """Forget the keys that hold no tuple."""
        moved = self._sweep()
        self.heap = heaps.renamed(self.heap, self.policy, self.windows, moved)

    def _sweep(self) -> Words:
        """Renumber the keys that hold a tuple."""
        moved = store.drop_keys(self.windows)
        self._spare[: store.IDS] = 0
        self._most_keys = most_keys(int(self.windows.marks[KEYS]), 0, 0)
        self.windows = store.roomier_keys(self.windows, self._most_keys, anew=True)
        return moved

    def rebuild_heap(self) -> None:
        """Lay out the order anew, after key ids, slots or spans changed."""
        if ranks(self.policy) is None:
            return
        keys, slots = self.windows.code.shape[0], self.windows.link.shape[0]
        room = {"entries": heaps.entries_for(slots), "keys": keys, "slots": slots, "span": self.plan.span}
        if not heaps.fits(self.heap, policy=self.policy, **room):
            self.heap = heaps.empty(policy=self.policy, **room)
        fill = heaps.fill if self.own else heaps.fill_uncached
        fill(self.policy, self.windows, self.heap)

    # --- what happened --------------------------------------------------------------------------------------------

    def take_ledger(self) -> Ints:
        """Return the ledger rows written since the last call, and let go of them."""
        shed, self._shed = self._shed, []
        return shed[0] if len(shed) == 1 else np.concatenate(shed) if shed else np.empty((0, 5), np.int64)

    def live(self, side: int) -> int:
        """Return how many rows are held on one side."""
        return int(self.windows.marks[LIVE + side])

    def respan(self) -> None:
        """Take notice of changed spans or slots."""
        if ranks(self.policy):
            self.rebuild_heap()

    def live_rows(self, side: int) -> Ints:
        """Return the numbers of the rows held on one side, ascending. O(slots)."""
        return np.sort(self._stamps(side)[:, store.ROW])

    def held(self, side: int) -> tuple[Ints, Ints]:
        """Return the numbers of the rows held on one side, ascending, and what each counts from. O(slots)."""
        stamps = self._stamps(side)
        order = np.argsort(stamps[:, store.ROW])
        return stamps[order, store.ROW], stamps[order, store.POS]

    def _stamps(self, side: int) -> Ints:
        """Return the stamps of the tuples held on one side."""
        slots = int(self.windows.marks[SLOTS])
        bunch = self.windows.link[:slots, store.BUNCH]
        return self.windows.stamp[:slots][(bunch >= 0) & ((bunch & 1) == side)]

    def adopt(self, rows: Batch, code: Ints, counts: Ints, following: Ints) -> None:
        """Take over the rows that another join held, all of one open tick, with its counters.

        `following` are the numbers of the next row of each side. The rows do not meet: they have met already.
        """
        span = self.plan.span.copy()
        self.plan.span[:] = 0
        self.push(rows, code)
        self.plan.span[:] = span
        self.respan()
        self.counts[:] = counts
        self.windows.marks[NEXT : NEXT + 2] = following

    @property
    def pairs(self) -> int:
        """How many pairs were emitted."""
        return int(self.counts[PAIRS])

    @property
    def tick(self) -> int | None:
        """The open tick."""
        tick = int(self.windows.marks[TICK])
        return None if tick == NO_TICK else tick

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Return all state as arrays by name, without keys that hold no tuple."""
        self._forget_keys()
        parts = {"windows": store.saved(self.windows), "policy": self.policy, "plan": self.plan}
        return {"counts": self.counts, "shed": self.take_back_ledger()} | {
            name: value for part, members in parts.items() for name, value in flatten(part, members).items()
        }

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Take over the state that ``arrays`` returned."""
        self.counts = arrays["counts"]
        self._shed = [arrays["shed"]] if arrays["shed"].size else []
        self.windows = store.viewed(unflatten("windows", store.saved(self.windows), arrays))
        self.policy = unflatten("policy", self.policy, arrays)
        self.plan = unflatten("plan", self.plan, arrays)
        self._sweep()
        self.rebuild_heap()

    def take_back_ledger(self) -> Ints:
        """Return the ledger rows not yet taken, and keep them."""
        shed = self.take_ledger()
        self._shed = [shed] if shed.size else []
        return shed

    def balance(self) -> None:
        """Check that every tuple that came is live, expired or shed."""
        for side in range(2):
            shed = int(self.counts[SHED + side : SHED + 2 * len(REASONS) : 2].sum())
            came = int(self.counts[ARRIVED + side])
            left = int(self.windows.marks[LIVE + side] + self.counts[EXPIRED + side]) + shed
            assert came == left, f"books do not balance: {came} came, {left} accounted for"


def most_keys(held: int, rows: int, most: int) -> int:
    """Return how many ids there may be for so many keys with tuples before ids that nobody needs are looked for.

    `most` is how many tuples a budget lets in, of which some will share a key. The fewer ids there are beyond those
    held, the less memory they take and the more of them are looked at for each that is found: here five.
    """
    return max(held + max(held // 4, 2 * rows, min(4 * held, FEW_KEYS)), store.roomy(held, most - most // 4))


def flatten(name: str, value: Any) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays and numbers in a tuple of tuples by dotted name."""
    if hasattr(value, "_asdict"):
        return {
            key: array
            for field, inner in value._asdict().items()
            for key, array in flatten(f"{name}.{field}", inner).items()
        }
    return {name: np.asarray(value)}


def unflatten(name: str, like: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """Return a tuple like this one with the arrays and numbers by dotted name."""
    if hasattr(like, "_asdict"):
        return like._replace(
            **{field: unflatten(f"{name}.{field}", inner, arrays) for field, inner in like._asdict().items()}
        )
    if not isinstance(like, np.ndarray):
        return type(like)(arrays[name])
    if like.shape != arrays[name].shape:
        return arrays[name]
    like[...] = arrays[name]  # in place: some arrays are held in more than one tuple
    return like
