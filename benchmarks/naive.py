"""DIMPPROB and DGL as importance2006 describes them, in plain Numba: every tick looks at all of memory, O(M).

What the engine's versions, which look at a few tuples a tick, are measured by. Integer keys from 0 on, one row a tick
and side, one pool of memory; what is found are the pairs' number and importance (the smaller of the two), not pairs.
"""

from typing import Any

import numba
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]

kernel = numba.njit(nogil=True)
GAIN, LOSS = 1.0, 4.0  # the engine's constants of DGL
DIMPPROB, DGL = 0, 1
CODES = {"dimpprob": DIMPPROB, "dgl": DGL}


@kernel
def join(keys: Array, importance: Array, span: int, memory: int, policy: int, most_keys: int) -> int:
    """Return how many pairs are found; `keys` and `importance` are (side, tick). O(ticks x memory)."""
    room = memory + 2
    key, side, born = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    worth, priority = np.empty(room), np.empty(room)
    met = np.empty(room, np.bool_)
    held = np.zeros((2, most_keys), np.int64)
    n = pairs = 0
    for now in range(keys.shape[1]):
        for slot in range(n):
            met[slot] = key[slot] == keys[1 - side[slot], now]
            pairs += met[slot]
        both = keys[0, now] == keys[1, now]
        pairs += both
        for mine in range(2):
            code = keys[mine, now]
            met[n] = both or held[1 - mine, code] > 0
            key[n], side[n], born[n], worth[n] = code, mine, now, importance[mine, now]
            priority[n] = worth[n] if met[n] else worth[n] / (1 - LOSS / span)  # no loss at the first tick
            n += 1
        held[0, keys[0, now]] += 1
        held[1, keys[1, now]] += 1
        for slot in range(n):
            output = worth[slot] * held[1 - side[slot], key[slot]]
            remaining = max(born[slot] + span - 1 - now, 0) / span
            if policy == DIMPPROB:
                priority[slot] = output
            else:
                priority[slot] += GAIN * output * remaining if met[slot] else -priority[slot] * LOSS / span
        slot = 0
        while slot < n:
            if born[slot] + span <= now + 1:
                n = _drop(slot, n, key, side, born, worth, priority, held)
            else:
                slot += 1
        while n > memory:
            n = _drop(_worst(n, worth, priority), n, key, side, born, worth, priority, held)
    return pairs


@kernel
def _worst(n: int, worth: Array, priority: Array) -> int:
    """Return the tuple with the smallest priority; of several, the least important."""
    worst = 0
    for slot in range(1, n):
        tied = priority[slot] == priority[worst] and worth[slot] < worth[worst]
        if tied or priority[slot] < priority[worst]:
            worst = slot
    return worst


@kernel
def _drop(slot: int, n: int, key: Array, side: Array, born: Array, worth: Array, priority: Array, held: Array) -> int:
    """Let go of a tuple; the last takes its place. Returns how many are left."""
    held[side[slot], key[slot]] -= 1
    last = n - 1
    key[slot], side[slot], born[slot] = key[last], side[last], born[last]
    worth[slot], priority[slot] = worth[last], priority[last]
    return last
