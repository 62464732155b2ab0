"""Measure the resident memory of one bounded join that holds a million rows with a payload of 100 bytes."""

import json
import sys

import numpy as np
import psutil
import pyarrow as pa

import penstock as pen

MEMORY = 10**6
PAYLOAD = 100
ROWS = 3 * 10**6
BATCH = 20_000


def batch(rng: np.random.Generator, at: int) -> pa.Table:
    """Return the next rows of one side."""
    keys = rng.integers(0, 10**6, BATCH)
    raw = rng.bytes(PAYLOAD * BATCH)
    offsets = np.arange(0, PAYLOAD * BATCH + 1, PAYLOAD, dtype=np.int32)
    payload = pa.Array.from_buffers(pa.binary(), BATCH, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])
    return pa.table({"ts": np.arange(at, at + BATCH), "key": keys, "payload": payload})


def resident() -> int:
    """Return the resident bytes of this process, memory that Arrow no longer uses given back."""
    pa.default_memory_pool().release_unused()
    return int(psutil.Process().memory_info().rss)


def main(policy: str, span: int) -> None:
    """Print the most memory seen while the join runs, beside the raw bytes of the rows it keeps."""
    rng = np.random.default_rng(5)
    warm = pen.Join(on="key", time="ts", window=span, memory=1000, policy=policy)
    warm.push(left=batch(rng, 0), right=batch(rng, 0))
    warm.ledger()
    del warm
    idle = resident()
    op = pen.Join(on="key", time="ts", window=span, memory=MEMORY, policy=policy)
    most = 0
    for at in range(0, ROWS, BATCH):
        op.push(left=batch(rng, at), right=batch(rng, at))
        op.ledger()
        most = max(most, resident() - idle)
    held = op.report().memory_rows
    raw = held * (8 + 8 + PAYLOAD)
    print(json.dumps({"policy": policy, "span": span, "rows": held, "raw": raw, "grown": most, "ratio": most / raw}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
