"""The controller of joins on keys: at the end of each period, set who enters in the next, and who is probed."""

from dataclasses import dataclass

import numpy as np

from penstock.core.dual import (
    BAR,
    BEGAN,
    BUSY,
    CAME,
    CAME_TO,
    CAPACITY,
    COUNTED,
    KEYS,
    LASTED,
    PARTNER,
    PATIENCE,
    RATE,
    REAR,
    SHARED,
    TIE,
    TUNED,
    UPDATE,
    WORTH,
    Lanes,
)
from penstock.core.windows import Floats
from penstock.policies.cpu import speeds
from penstock.policies.cpu.speeds import Load

METHODS = ("auto", "dual", "rear", "random-drop", "modular", "integrated")
FULLY = ("random-drop", "modular", "integrated")  # who enters is probed
KEPT = 0.8  # how much of what was seen before a period counts after it
PATIENT = 0.7  # the same of promises kept: those of one period are kept or broken by chance


@dataclass(frozen=True)
class DualController:
    """What is done at the end of a period. All it learns is in the lanes, so that it is saved with them.

    Methods: "rear" lets rows enter while there is time for that and probes those that find most. "dual" lets a share
    enter, by lot, that gives the most pairs. "random-drop", "modular" and "integrated" probe every row that enters,
    and choose those by lot, by how often their key comes on the other side, or by that and the partners that are in
    memory already. "auto" lets rows enter whose key is worth it, by lot if there are too many, and probes those that
    find most, also of those that do not enter: a row that is not stored can still find what is. If such choices did
    not keep their promise lately, all rows enter.

    References: dual2006 §3, §4; das2003 §2.1 (slow CPU; modular and integrated).
    """

    method: str
    spans: tuple[int, int]
    by_rows: bool
    over_entered: bool

    def start(self, lanes: Lanes) -> None:
        """Set the first period: everything enters and is probed, until the queue says otherwise."""
        lanes.dials[BEGAN] = -np.inf
        lanes.dials[[PARTNER, WORTH]] = float(self.method == "integrated")

    def __call__(self, lanes: Lanes, tick: int) -> None:
        """End a period."""
        dials, came = lanes.dials, lanes.tally[CAME : CAME + 2].copy()
        elapsed = tick - dials[BEGAN]
        dials[BEGAN] = tick
        if np.isinf(elapsed) or not came.any():
            return
        dials[RATE : RATE + 2] = came / elapsed
        if lanes.kind[COUNTED]:
            waits, passed = dials[BUSY] - lanes.marks[CAME_TO : CAME_TO + 2].sum(), came.sum()
        else:
            waits, passed = dials[BUSY] - tick, elapsed
        spare = 1.0 + (dials[PATIENCE] / 2 - max(0.0, waits)) / passed  # half of the queue is for bursts
        self._choose(lanes, dials[CAPACITY] * spare)
        used = int(lanes.marks[KEYS])
        lanes.seen[:, :used] *= KEPT
        lanes.was[:, :used] = lanes.seen[:, :used]

    def retune(self, lanes: Lanes) -> None:
        """Choose anew in the middle of a period, from what is known of the one before."""
        if lanes.dials[RATE : RATE + 2].any():
            self._choose(lanes, float(lanes.dials[CAPACITY]))

    def _choose(self, lanes: Lanes, work: float) -> None:
        """Set who enters and who is probed, if there is time for so much work a tick, or a row."""
        dials, used = lanes.dials, int(lanes.marks[KEYS])
        rate = dials[RATE : RATE + 2].copy()
        dials[TUNED] = dials[CAPACITY]
        seen, span = lanes.seen[:, :used], np.array(self.spans, np.float64)
        load = Load(
            seen / np.maximum(seen.sum(axis=1, keepdims=True), 1e-300),
            np.ones(used),
            share=rate / rate.sum(),
            window=span if self.by_rows else rate * span,
            probes=max(1e-9, work if lanes.kind[COUNTED] else work / rate.sum()),
            update=float(dials[UPDATE]),
            over_entered=self.over_entered,
            room=float(lanes.limit[0] if lanes.limit[SHARED] else lanes.limit[:2].sum()),
        )
        if load.probes >= 1.0 + load.update and load.memory >= 1.0:
            dials[[REAR, BAR, TIE]] = 0.0, -1.0, 1.0
        elif self.method in FULLY:
            self._fill_queue(lanes, load, rate)
        else:
            self._share_time(lanes, load)

    def _fill_queue(self, lanes: Lanes, load: Load, rate: Floats) -> None:
        """Let as many rows in as can be probed, those with the highest score."""
        dials, used = lanes.dials, load.keys.size
        share = min(1.0, load.probes / (1.0 + load.update), load.memory)
        coming = (rate[:, None] * load.chances)[::-1]  # how often partners of a row come
        dials[REAR] = 0.0
        if self.method == "modular":
            lanes.worth[:, :used] = coming
            dials[WORTH] = 1.0
            mass = (load.share[:, None] * load.chances).ravel()
            dials[BAR], dials[TIE] = speeds.bar_for(coming.ravel(), mass, share)
        elif self.method == "integrated":
            lanes.worth[:, :used] = coming * (load.window / np.maximum(rate, 1e-300))[:, None]  # how many will come
            scores = lanes.scores[: int(lanes.tally[CAME : CAME + 2].sum())]
            if scores.size == 0:
                return
            dials[BAR], dials[TIE] = speeds.bar_for(scores, np.full(scores.size, 1 / scores.size), share)
        else:
            dials[BAR], dials[TIE] = 0.0, share

    def _share_time(self, lanes: Lanes, load: Load) -> None:
        """Share the time between updates and probes."""
        dials, used = lanes.dials, load.keys.size
        held = lanes.worth[:, :used].max(axis=0, initial=0.0)
        few, few_held = speeds.classes(load, held)
        if self.method == "auto":
            price, part, promised = speeds.best_choice(few, few_held)
            enters = speeds.entering(load, price, part, held) > 0.5
            dials[LASTED] += (1.0 - PATIENT) * (self._lasting(lanes, load, price, part) - dials[LASTED])
            if load.probes > load.update and load.memory >= 1.0:
                everybody = float(speeds.output_by_key(few, np.ones((1, *few.chances.shape)))[0])
                if everybody >= promised * dials[LASTED]:
                    enters[...] = True
            lanes.worth[:, :used] = enters
            dials[[WORTH, BAR]] = 1.0, 0.5
            rear = 1.0 - load.probes + load.update * float((load.share[:, None] * load.chances * enters).sum())
        else:
            share = min(self._front(few), load.memory)
            dials[[BAR, TIE]] = (0.0, share) if share < 1.0 else (-1.0, 1.0)
            rear = 1.0 + load.update - load.probes / share
        dials[REAR] = min(1.0, max(0.0, rear))

    @staticmethod
    def _lasting(lanes: Lanes, load: Load, price: float, part: float) -> float:
        """Return how much of its promise a choice of keys kept: made when the period began, held to what came then.

        Keys that seem to be worth most are so by chance, too, and popular keys change.
        """
        used = load.keys.size
        was, held = lanes.was[:, :used], lanes.worth[:, :used].max(axis=0, initial=0.0)
        came = lanes.seen[:, :used] - was
        if not (was.any(axis=1).all() and came.any(axis=1).all()):
            return 1.0
        before, after = (counts / counts.sum(axis=1, keepdims=True) for counts in (was, came))
        kept = speeds.entering(load._replace(chances=before), price, part, held) > 0.5
        shares = (after * kept).sum(axis=1) / np.maximum((before * kept).sum(axis=1), 1e-300)
        return float(np.minimum(shares, 1.0).prod())

    def _front(self, load: Load) -> float:
        """Return the share of rows that enter, by lot."""
        if self.method == "dual" and self.over_entered:
            return min(1.0, load.probes / (load.update + speeds.best_count(load)[1]))
        shares = speeds.choices(load)
        best = -1 if self.method == "rear" else speeds.first_best(speeds.output_by_lot(load, shares))
        return float(shares[best])
