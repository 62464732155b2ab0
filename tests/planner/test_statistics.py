"""What is measured on rows: from how many values they were drawn, and what share of pairs match."""

import numpy as np
import pytest

from multiway import HOW
from penstock.planner.statistics import COMPARED, ENOUGH, drawn_from, equal_share, matching
from penstock.planner.statistics import Stream as Known
from penstock.report.papers.several import Drawn


@pytest.mark.parametrize(("values", "rows"), [(50, 100), (50, 5_000), (1_000, 500), (100_000, 2_000), (3, 40)])
def test_more_values_than_a_window_shows(values: int, rows: int) -> None:
    """Averaged over draws, for one window shows more or fewer; of rare repeats no more is known than there are."""
    rng = np.random.default_rng(values + rows)
    found = [drawn_from(np.unique(rng.integers(0, values, rows)).size, rows) for _ in range(40)]
    most = rows / 0.02
    assert np.mean(found) == pytest.approx(min(values, most), rel=0.15 if values < most else 0.35)


def test_a_window_that_shows_all_or_nothing() -> None:
    assert drawn_from(1.0, 500) == 1.0
    assert drawn_from(1.0, 0) == 1.0
    assert drawn_from(5.0, 1) == 5.0
    assert drawn_from(10.0, 10_000) == pytest.approx(10.0, rel=1e-3)


@pytest.mark.parametrize("how", COMPARED)
def test_the_share_of_pairs_that_match(how: str) -> None:
    rng = np.random.default_rng(3)
    mine, theirs = rng.integers(0, 12, 90), rng.integers(4, 30, 70)
    want = np.mean([[HOW[how](one, other) for other in theirs.tolist()] for one in mine.tolist()])
    assert matching(how, mine, theirs, 26.0) == pytest.approx(want)


def test_few_matches_say_nothing() -> None:
    assert ENOUGH > 2
    mine, theirs = np.array([1, 2, 3]), np.array([3, 3, 5])
    assert matching("=", mine, theirs, 40.0) == equal_share("=", 40.0)
    assert matching("!=", mine[:0], theirs, 40.0) == equal_share("!=", 40.0)


@pytest.mark.parametrize("seed", range(9))
def test_general_lazy_compares_no_more_than_lazy_and_naive(seed: int) -> None:
    """In settings drawn at random: 1 % is left to streams that are alike."""
    rng = np.random.default_rng(seed)
    known = [
        Known(
            f"S{at}",
            rate=int(rng.integers(1, 8)),
            window=int(rng.integers(8, 50)),
            distinct=int(rng.integers(10, 120)),
        )
        for at in range(3 + seed % 2)
    ]
    drawn = Drawn(known, int(3 * 50 * sum(stream.rate for stream in known)))
    compared = {}
    for algorithm in ("naive", "lazy", "general"):
        loops = drawn.loops(20, index="none", algorithm=algorithm)
        loops.seconds()
        compared[algorithm] = loops.compared
    assert compared["general"] <= 1.01 * min(compared["naive"], compared["lazy"])
