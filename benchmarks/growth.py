"""Time policies in one process while window, memory (half of what exact needs) and keys grow together.

So a row meets as many at any size: what grows is what there is to hold and to look through, not to write.
"""

import json
from functools import partial
from typing import Any

import numpy as np

from benchmarks.cases import BATCH, Case, engine_pairs, in_turns, part
from penstock.streams.workloads import uniform

POLICIES = ("rand", "oldest", "prob")
MEMORIES = (10**3, 10**4, 10**5, 10**6)
ROWS = 2 * 10**6
ROUNDS = 3


def measure() -> list[dict[str, Any]]:
    """Return the shortest time per row, by policy and memory."""
    pairs = np.full((2, 4 * ROWS), -1, np.int64)
    found = []
    for policy in POLICIES:
        runs = {}
        for memory in MEMORIES:
            streams = uniform(ROWS, keys=memory, seed=3)
            case = Case("growth", streams.left, streams.right, memory)
            engine_pairs(part(case, 3 * BATCH), pairs, memory=memory, policy=policy)
            runs[str(memory)] = partial(engine_pairs, case, pairs, memory=memory, policy=policy)
        found += [
            {"policy": policy, "memory": int(memory), "ns_per_tuple": 1e9 * timing.wall / (2 * ROWS)}
            for memory, timing in in_turns(runs, rounds=ROUNDS).items()
        ]
    return found


if __name__ == "__main__":
    print(json.dumps(measure()))
