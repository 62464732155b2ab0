"""The kernels do the same with the compiler and without it."""

import os
import subprocess
import sys

SCRIPT = """
import json, sys
import numpy as np
np.seterr(over="ignore")  # interpreted, unsigned arithmetic warns where compiled it wraps
import penstock as pen
from penstock.streams.workloads import zipf

streams = zipf(120, keys=9, rate=(1, 2), importance="rare", seed=3)
late = streams.left.take(np.array([i ^ 1 for i in range(120)]))
out = []
schedule = {"side": ["left"] * 60 + ["right"] * 60, "row": [*range(60)] * 2, "until": [t + 9 for t in range(60)] * 2}
policies = [
    "rand", "oldest", pen.policy("rand", at="input"), pen.policy("replay", schedule=schedule),
    *(pen.policy(name, statistics=source) for name in ("prob", "life") for source in ("decayed", "window")),
    pen.policy("prob", statistics=pen.table(left=streams.left_chances, right=streams.right_chances)),
    "auto", "simp", "lru", "age", "simpprob", "dimpprob", "dgl", pen.policy("dimpprob", statistics="decayed"),
    *(pen.policy(name, statistics="window") for name in ("simpprob", "dimpprob", "dgl")),
]
for window, lateness, left in ((20, 0, streams.left), (20, 3, late), (pen.rows(15), 0, streams.left)):
    common = {"on": "key", "time": "ts", "window": window, "lateness": lateness, "importance": "importance"}
    for policy in policies:
        for memory, split in ((12, "shared"), (12, "fixed"), ("2kB", "shared")):
            result = pen.run(left, streams.right, memory=memory, split=split, policy=policy, per_key=4, **common)
            out.append([result.table.to_pylist(), result.ledger.to_pylist(), result.report.to_dict()])
    result = pen.run(left, streams.right, **common)
    out.append([result.table.to_pylist(), result.report.to_dict()])
three = {"a": streams.left[:40], "b": streams.right[:60], "c": streams.left[20:60]}
for windows in (20, pen.rows(15)):
    for index in ("hash", "none", 3):
        for evaluation in ("eager", pen.every(7)):
            table = pen.multijoin(three, on="key", time="ts", windows=windows, index=index, evaluation=evaluation)
            out.append(table.to_pylist())
    for policy in ("prob", "oldest", "rand", pen.policy("prob", statistics="history")):
        result = pen.run(three, on="key", time="ts", windows=windows, memory=12, policy=policy)
        out.append([result.table.to_pylist(), result.ledger.to_pylist(), result.report.to_dict()])
graph = {("a", "b"): "key", ("b", "c"): ("ts", "<", "ts"), ("a", "c"): ("key", ">=", "key")}
out.append(pen.multijoin(three, on=graph, time="ts", windows=9, algorithm="general").to_pylist())
print(json.dumps(out))
"""


def run(**environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compiled_equals_interpreted() -> None:
    compiled = run()
    assert len(compiled) > 10_000
    assert compiled == run(NUMBA_DISABLE_JIT="1")
