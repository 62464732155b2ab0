"""Measure algorithms on two streams by the names the papers give them."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from penstock.engine import compare as comparing
from penstock.engine import offline
from penstock.engine.pump import Progress
from penstock.operator.join import Join, settings_of
from penstock.policies.registry import Policy, policy
from penstock.policies.statistics import Table
from penstock.quality.books import Sides
from penstock.streams.workloads import Workload


class Setting(NamedTuple):
    """Two streams with one row a tick, and the window; output counts from two windows on."""

    streams: Workload
    window: int
    patience: float | None = None  # seconds for one optimum; after them its bound is what there is

    @property
    def join(self) -> dict[str, Any]:
        """The arguments of the join."""
        return {"on": "key", "time": "ts", "window": self.window}

    @property
    def start(self) -> int:
        """The first tick whose output counts."""
        return 2 * self.window

    def policy(self, name: str) -> str | Policy:
        """Return a policy by the paper's name; PROB and LIFE know the distribution that made the streams."""
        short = name.removesuffix("V").lower()
        if short not in {"prob", "life"}:
            return short
        left: Mapping[Any, float] = self.streams.left_chances
        right: Mapping[Any, float] = self.streams.right_chances
        return policy(short, statistics=Table(left, right))


class Steps:
    """Count measurements, and tell how many of how many are done."""

    def __init__(self, total: int, progress: Progress) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def tell(self) -> None:
        """One more is done."""
        self.done += 1
        self.progress(self.done, self.total)


def outputs(setting: Setting, memory: Sequence[int], names: Sequence[str], steps: Steps) -> dict[str, list[float]]:
    """Return the output of each algorithm by memory; those whose names end in V share it between the streams.

    Of OPT it is the proved bound, which is OPT's output unless patience ended before.
    """
    found: dict[str, list[float]] = {}
    left, right = setting.streams.left, setting.streams.right
    for split in ("fixed", "shared"):
        mine = [name for name in names if name.endswith("V") == (split == "shared")]
        online = [name for name in mine if not name.startswith("OPT")]
        if online:
            chosen = [setting.policy(name) for name in online]
            table = comparing.compare(
                left,
                right,
                settings_of(setting.join),
                policies=chosen,
                memory=memory,
                splits=[split],
                count_from=setting.start,
            )
            pairs = np.array(table["pairs"].to_pylist(), np.float64).reshape(len(online), len(memory))
            found |= {name: row.tolist() for name, row in zip(online, pairs, strict=True)}
            steps.tell()
        for name in set(mine) - set(online):
            found[name] = []
            for size in memory:
                settings = settings_of({**setting.join, "memory": size, "split": split})
                best = offline.optimum(
                    left,
                    right,
                    settings,
                    objective="count",
                    count_from=setting.start,
                    time_limit=setting.patience,
                )
                found[name].append(float(best.bound))
                steps.tell()
    return {name: found[name] for name in names}


def allocation(setting: Setting, memory: int, samples: int, steps: Steps) -> tuple[list[int], list[Sides]]:
    """Return some ticks after the warm-up, and how many tuples of each stream are in memory then, under PROBV."""
    left, right = setting.streams.left, setting.streams.right
    schemas = (left.schema, right.schema)
    op = Join(schemas=schemas, ledger="off", memory=memory, policy=setting.policy("PROBV"), **setting.join)
    cuts = np.linspace(setting.start, left.num_rows, samples + 1).astype(int).tolist()
    op.push(left=left[: cuts[0]], right=right[: cuts[0]])
    held = []
    for low, high in pairwise(cuts):
        op.push(left=left[low:high], right=right[low:high])
        op.advance(high)
        held.append(op.report().live)
        steps.tell()
    return cuts[1:], held
