"""Counts of keys against a model of their table: exact while keys fit, and the least likely is forgotten when not."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.core.rng import mixed
from penstock.policies import statistics

STRETCH = 8


class Stretches:
    """The same table in plain Python: stretches of eight places, each with a code and its weights."""

    def __init__(self, cells: int) -> None:
        self.places: list[list[tuple[int, list[int]]]] = [
            [(0, [0, 0]) for _ in range(STRETCH)] for _ in range(cells // STRETCH)
        ]

    def note(self, side: int, code: int) -> None:
        places = self.places[int(mixed(np.uint64(code))) // STRETCH % len(self.places)]
        at = next((at for at, (known, _) in enumerate(places) if known == code), None)
        if at is None:
            at = min(range(STRETCH), key=lambda at: (sum(places[at][1]), at))
            places[at] = (code, [0, 0])
        places[at][1][side] += 1

    def weight(self, side: int, code: int) -> int:
        return next((seen[side] for places in self.places for known, seen in places if known == code), 0)


@pytest.mark.parametrize(("keys", "cells"), [(30, 1024), (40, 16), (400, 64)])
def test_counts_are_those_of_a_plain_table(monkeypatch: pytest.MonkeyPatch, keys: int, cells: int) -> None:
    monkeypatch.setattr(statistics, "CELLS", cells)
    setting: Any = SimpleNamespace(span=np.array([10, 10]), limit=1)
    counts: Any = statistics.make(setting, "history")
    model, came = Stretches(cells), [dict.fromkeys(range(1, keys + 1), 0) for _ in range(2)]
    lots = random.Random(keys)  # noqa: S311 - a test that repeats
    for clock in range(4000):
        side, code = lots.randrange(2), 1 + min(int(lots.paretovariate(0.6)), keys) % keys
        statistics.note(counts, side, code, clock)
        model.note(side, code)
        came[side][code] += 1
    want = [[model.weight(side, code) for code in range(1, keys + 1)] for side in range(2)]
    got = [[statistics.weight(counts, side, code) for code in range(1, keys + 1)] for side in range(2)]
    assert want == got
    assert (cells >= 1024) == (want == [list(of.values()) for of in came])
