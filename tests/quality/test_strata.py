"""A few rows stand for all: what they weigh adds up to what there is, and no kind of key is left out."""

import numpy as np
import pytest

from penstock.quality import strata as choosing

WINDOWS = (20.0, 20.0)


def drawn(keys: int, skew: float, rows: int, seed: int) -> list[np.ndarray]:
    """Draw places of rows, unlike each other on both sides."""
    rng = np.random.default_rng(seed)
    chances = np.arange(1, keys + 1) ** -skew
    spread = rng.choice(choosing.PLACES, keys, replace=False)
    return [spread[rng.permutation(keys)][rng.choice(keys, rows, p=chances / chances.sum())] for _ in range(2)]


def counted(places: list[np.ndarray]) -> np.ndarray:
    return np.stack([np.bincount(place, minlength=choosing.PLACES) for place in places])


@pytest.mark.parametrize(("keys", "skew"), [(5000, 0.0), (5000, 1.0), (60, 1.0), (3, 2.0)])
@pytest.mark.parametrize("share", [0.02, 0.2])
def test_rows_drawn_weigh_what_there_is(keys: int, skew: float, share: float) -> None:
    places = drawn(keys, skew, 100_000, 1)
    came = counted(places)
    strata = choosing.choose(came, WINDOWS, share, 0, whole=False)
    for side, place in enumerate(places):
        rows = strata.draw(side, place, 0)
        assert np.all(np.diff(rows) > 0)
        assert rows.size < 1.3 * share * place.size
        assert strata.weight[side, place[rows]].sum() == pytest.approx(place.size, rel=0.03)
    products = came[0].astype(float) * came[1]
    taken = strata.chance[0] * strata.chance[1] * products
    assert (taken * strata.pairs).sum() == pytest.approx(products.sum(), rel=1e-9)


def test_of_each_kind_of_key_there_is_one() -> None:
    came = counted(drawn(5000, 1.0, 100_000, 2))
    strata = choosing.choose(came, WINDOWS, 0.01, 0, whole=False)

    def kinds(places: np.ndarray) -> set[tuple[int, ...]]:
        return {tuple(int(rows - 1).bit_length() if rows else -1 for rows in came[:, place]) for place in places}

    there = np.flatnonzero(came.any(axis=0))
    assert kinds(np.flatnonzero(strata.chance.any(axis=0))) == kinds(there)


def test_what_comes_often_still_comes_more_often() -> None:
    came = counted(drawn(200, 1.0, 100_000, 3))
    strata = choosing.choose(came, WINDOWS, 0.02, 0, whole=False)
    for side in range(2):
        taken = np.flatnonzero(strata.chance[side])
        order = taken[np.argsort(came[side, taken])]
        left = strata.chance[side, order] * came[side, order]
        assert strata.chance[side].min(where=strata.chance[side] > 0, initial=1.0) < 0.1
        assert np.all(np.diff(left)[np.diff(came[side, order]) > 0] > 0)


def test_every_so_many_th_row_of_a_key_is_taken() -> None:
    places = drawn(200, 1.0, 100_000, 4)
    strata = choosing.choose(counted(places), WINDOWS, 0.02, 0, whole=False)
    rows = strata.draw(0, places[0], 0)
    for begin in range(0, 100_000, 10_000):
        part = slice(begin, begin + 10_000)
        came = np.bincount(places[0][part], minlength=choosing.PLACES)
        got = np.bincount(places[0][rows[(rows >= begin) & (rows < begin + 10_000)]], minlength=choosing.PLACES)
        assert np.abs(got - came * strata.chance[0]).max() <= 1


def test_whole_keys_are_taken_whole() -> None:
    places = drawn(1000, 0.0, 50_000, 5)
    strata = choosing.choose(counted(places), WINDOWS, 0.1, 0, whole=True)
    assert set(np.unique(strata.chance)) == {0.0, 1.0}
    assert strata.draw(0, places[0], 0).size == pytest.approx(5000, rel=0.1)


def test_of_each_of_very_many_keys_as_many_rows_are_taken_as_wanted() -> None:
    place = np.repeat(np.arange(70_000), 4)
    chance = np.zeros((2, choosing.PLACES))
    chance[0, :70_000] = np.where(np.arange(70_000) < 10_000, 1.0, 0.25)
    strata = choosing.Strata(chance, np.ones_like(chance), np.ones(choosing.PLACES))
    got = np.bincount(place[strata.draw(0, place, 0)], minlength=70_000)
    assert got.tolist() == [4] * 10_000 + [1] * 60_000
