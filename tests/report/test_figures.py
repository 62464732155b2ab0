"""The papers' figures are measured, drawn and judged; no policy beats the optimum, which never beats EXACT."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import InputError, OutputError
from penstock.report.figures import Figure, relative, save
from penstock.report.papers import das2003, dual2006, gedik2007, golab2003, importance2006
from penstock.report.papers.claims import FAILS, HOLDS, IN_PART, judged
from penstock.report.papers.registry import PAPERS, figure, names

CHECKOUT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PENSTOCK_DATA", CHECKOUT.parent / "shared" / "data"))
WEATHER = ("7", "8")
SLACK = 1e-9


def measured(name: str) -> tuple[Figure, list[tuple[int, int]]]:
    told: list[tuple[int, int]] = []
    made = figure(name, quick=True, progress=lambda done, total: told.append((done, total)))
    assert name == made.name
    assert all(len(values) == len(made.x) for values in made.curves.values())
    return made, told


@pytest.mark.parametrize("number", [number for number in das2003.FIGURES if number not in WEATHER])
def test_synthetic_figures(number: str) -> None:
    made, told = measured(f"das2003/{number}")
    assert [done for done, _ in told] == list(range(1, len(told) + 1))
    assert told[-1][0] == told[-1][1]  # as many measurements as were announced
    if made.y_label == das2003.OF_OPT:
        assert all(value <= 1 + SLACK for name, curve in made.curves.items() if name != "EXACT" for value in curve)
        assert all(value >= 1 - SLACK for value in made.curves.get("EXACT", []))
    elif number == "queue":
        assert all(0 <= share <= 1 for curve in made.curves.values() for share in curve)
        assert all(mine > drawn for mine, drawn in zip(made.curves["AUTO"], made.curves["RAND"], strict=True))
        assert len(das2003.claims({number: made})) == 2
    elif number != "variable":
        for name in ("RAND", "LIFE", "PROB"):
            for got, best, exact in zip(*(made.curves[each] for each in (name, "OPT", "EXACT")), strict=True):
                assert 0 < got <= best <= exact


@pytest.mark.parametrize("number", ["2-special", "9", "11-window"])
def test_figures_of_importance(number: str) -> None:
    made, told = measured(f"importance2006/{number}")
    assert told[-1] == (len(told), len(told))
    best = made.curves["OPT" if "OPT" in made.curves else "ODJA/ESJA"]
    for name, curve in made.curves.items():
        if name != "EXACT":
            assert all(0 < got <= most + SLACK * most for got, most in zip(curve, best, strict=True))
    assert all(got <= most + SLACK * most for got, most in zip(best, made.curves["EXACT"], strict=True))
    assert importance2006.claims({number: made})


@pytest.mark.parametrize("number", ["3", "middle", "7"])
def test_figures_of_offline_algorithms(number: str) -> None:
    made, told = measured(f"importance2006/{number}")
    assert told[-1] == (len(told), len(told))
    assert min(made.curves["ESJA"]) > 0
    assert min(made.curves["ODJA"]) >= 0
    assert importance2006.claims({number: made})


@pytest.mark.parametrize("number", ["2", "3a", "3b"])
def test_figures_of_several_streams(number: str) -> None:
    made, told = measured(f"golab2003/{number}")
    assert told[-1] == (len(told), len(told))
    for name in ("NAIVE", "MULTI-WAY" if number == "2" else "LAZY"):
        for model, counted in zip(made.curves[name], made.curves[f"{name}, counted"], strict=True):
            assert 0.4 < counted / model < 1.2  # loops stop early where the model lets windows grow with τ
    if number != "2":
        found, others = made.curves[golab2003.FOUND], (made.curves[f"{name}, counted"] for name in ("NAIVE", "LAZY"))
        assert all(mine < 1.05 * min(rest) for mine, *rest in zip(found, *others, strict=True))  # a short draw
    assert golab2003.claims({number: made})


@pytest.mark.parametrize("number", ["table5", "table6", "table7"])
def test_tables_of_costs(number: str) -> None:
    made, told = measured(f"golab2003/{number}")
    assert told == [(1, 1)]
    assert made.settings["heuristic"] == 1
    assert [HOLDS, HOLDS] == [claim.verdict for claim in golab2003.claims({number: made})]
    dearer = replace(made, curves={**made.curves, "cost model": [1.2 * cost for cost in made.curves["as printed"]]})
    assert [FAILS, HOLDS] == [claim.verdict for claim in golab2003.claims({number: dearer})]
    another = replace(made, settings={**made.settings, "cheapest": "4321"})
    assert [HOLDS, FAILS] == [claim.verdict for claim in golab2003.claims({number: another})]


@pytest.mark.parametrize("number", ["4", "5"])
def test_figures_of_dual_windows(number: str) -> None:
    made, told = measured(f"dual2006/{number}")
    assert told[-1] == (len(told), len(told))
    assert dual2006.claims({number: made})


@pytest.mark.parametrize("number", ["5", "6", "8", "11", "16"])
def test_figures_of_selective_joins(number: str) -> None:
    made, told = measured(f"gedik2007/{number}")
    assert told[-1] == (len(told), len(told))
    assert all(min(curve) >= 0 for curve in made.curves.values())
    assert bool(gedik2007.claims({number: made})) == (number in {"5", "11", "16"})


@pytest.mark.skipif(not (DATA / "health_news").exists(), reason="the headlines are not there: set PENSTOCK_DATA")
def test_headlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(DATA))
    made, _ = measured("gedik2007/news")
    assert all(mine > theirs for mine, theirs in zip(made.curves["SELECTIVE"], made.curves["RAND"], strict=True))


@pytest.mark.skipif(not (DATA / "flux_tower").exists(), reason="the temperatures are not there: set PENSTOCK_DATA")
def test_temperatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(DATA))
    made, _ = measured("dual2006/9")
    assert all(mine >= theirs for mine, theirs in zip(made.curves["DUAL"], made.curves["RAND"], strict=True))


@pytest.mark.parametrize("name", ["dual2006/9", "gedik2007/news"])
def test_figures_without_their_data_say_what_is_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    with pytest.raises(InputError, match="set PENSTOCK_DATA"):
        figure(name, quick=True, progress=lambda _done, _total: None)


def test_rates_of_several_streams() -> None:
    made, _ = measured("golab2003/table8")
    compared = made.settings["comparisons"]
    for best, worst in (("NLJ, best plan", "NLJ, worst plan"), ("hash, best plan", "hash, worst plan")):
        assert all(few < many for few, many in zip(compared[best], compared[worst], strict=True))
    assert [claim.where for claim in golab2003.claims({"table8": made})] == ["Table 8"] * 3


def test_the_constants_of_dgl_and_the_large_streams() -> None:
    constants, _ = measured("importance2006/constants")
    assert len(constants.curves) == len(importance2006.GAINS)
    table, _ = measured("importance2006/table1")
    assert set(table.settings["seconds"]) == set(table.curves) == set(importance2006.ONLINE)


def test_weather_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    if not (DATA / "ship_weather").is_dir():
        pytest.skip(f"the data set ship_weather is not in {DATA}; PENSTOCK_DATA names its folder")
    monkeypatch.setenv("PENSTOCK_DATA", str(DATA))
    output, _ = measured("das2003/7")
    for name in ("RAND", "RANDV", "PROB", "PROBV"):
        for ceiling in ("EXACT", *(["OPT (bound)"] if not name.endswith("V") else [])):
            assert all(got <= most for got, most in zip(output.curves[name], output.curves[ceiling], strict=True))
    memory, told = measured("das2003/8")
    assert len(told) == len(memory.x)
    for left, right in zip(*memory.curves.values(), strict=True):
        assert left + right == memory.settings["memory"]


def test_data_that_is_not_there_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"figure: got no file .*ww2.parquet; set PENSTOCK_DATA"):
        measured("das2003/7")


@pytest.mark.parametrize("name", ["das2003/2", "das2003", "das2004/3", ""])
def test_an_unknown_figure_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"figure: got .*; there are das2003/3, das2003/4"):
        figure(name, quick=True, progress=lambda _done, _total: None)


# --- files ------------------------------------------------------------------------------------------------------

SMALL = Figure("das2003/0", "t", "x", "y", [1.0, 2.0], {"A": [1.0, 2.0], "B": [2.0, 2.0]}, {"rows": 3})


def test_a_figure_is_a_picture_and_its_numbers(tmp_path: Path) -> None:
    picture, numbers = save(SMALL, tmp_path / "new")
    assert ["das2003-0.png", "das2003-0.json"] == [picture.name, numbers.name]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert Figure(**json.loads(numbers.read_text())) == SMALL


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="the figure could not be written"):
        save(SMALL, tmp_path / "file")


def test_curves_relative_to_one_of_them() -> None:
    assert {"A": [0.5, 1.0]} == relative(SMALL.curves, "B")
    assert {"A": [1.0]} == relative({"A": [0.0], "B": [0.0]}, "B")


# --- claims -----------------------------------------------------------------------------------------------------


def verdicts(**figures: Figure) -> list[str]:
    return [claim.verdict for claim in das2003.claims({name.strip("_"): one for name, one in figures.items()})]


def made_up(curves: dict[str, list[float]], x: list[float], **settings: object) -> Figure:
    return Figure("das2003/0", "", "", "", x, curves, settings)


def test_claims_are_judged_by_the_numbers() -> None:
    x = [50.0, 100.0]
    even = {"RAND": [10.0, 20.0], "LIFE": [11.0, 21.0], "EXACT": [99.0, 99.0]}
    good = made_up({**even, "PROB": [90.0, 95.0], "OPT": [91.0, 99.0]}, x, window=100)
    assert [HOLDS] * 5 == verdicts(_3=good, _4=good)
    bad = made_up({**even, "RAND": [1.0, 20.0], "PROB": [11.0, 21.0], "OPT": [40.0, 50.0]}, x, window=100)
    assert [FAILS] * 5 == verdicts(_3=bad, _4=bad)
    flat = {"RAND": [10.0, 20.0], "LIFE": [10.0, 20.0], "PROB": [10.0, 20.0]}
    assert [HOLDS, HOLDS] == verdicts(_5=made_up({**flat, "OPT": [11.0, 22.0]}, x, window=100))
    assert [HOLDS, FAILS] == verdicts(_5=made_up({**flat, "OPT": [30.0, 22.0]}, x, window=100))


def test_claims_of_importance_are_judged_by_the_numbers() -> None:
    in_order = {name: [float(6 - at)] * 2 for at, name in enumerate(importance2006.ONLINE)}
    rising = {"OPT": [10.0, 30.0], "EXACT": [40.0, 50.0]}
    as_said = made_up(in_order | rising, [200.0, 800.0])
    reversed_ = made_up({name: [float(at + 1)] * 2 for at, name in enumerate(in_order)} | rising, [200.0, 800.0])

    def verdict_of(number: str, figure: Figure) -> list[str]:
        return [claim.verdict for claim in importance2006.claims({number: figure})]

    assert [HOLDS, HOLDS] == verdict_of("8", as_said)
    assert [HOLDS, IN_PART] == verdict_of("9", as_said)
    assert [FAILS] == verdict_of("9-window", reversed_) == verdict_of("11", as_said)
    assert [HOLDS] == verdict_of("11", reversed_)
    times = made_up({"ODJA": [1.0, 1.0, 1.0], "ESJA": [1.0, 2.0, 8.0]}, [800.0, 1600.0, 5600.0])
    swapped = made_up({"ODJA": times.curves["ESJA"], "ESJA": times.curves["ODJA"]}, times.x)
    middle = made_up({"ODJA": [1.0, 9.0, 1.0], "ESJA": [2.0, 2.0, 2.0]}, [1.0, 6.0, 11.0])
    assert [HOLDS] == verdict_of("5", times)
    assert [IN_PART] == verdict_of("3", times) == verdict_of("4", times)
    assert [FAILS] == verdict_of("3", swapped) == verdict_of("6", swapped) == verdict_of("7", swapped)
    assert [FAILS] == verdict_of("middle", swapped) == verdict_of("middle", times)
    assert [HOLDS] == verdict_of("middle", middle) == verdict_of("7", times)
    assert [] == importance2006.claims({})


def test_claims_of_several_streams_are_judged_by_the_numbers() -> None:
    def verdict_of(number: str, curves: dict[str, list[float]], **settings: object) -> list[str]:
        x = [float(at) for at in range(6, 6 + len(next(iter(curves.values()))))]
        return [claim.verdict for claim in golab2003.claims({number: made_up(curves, x, **settings)})]

    def twice(curves: dict[str, list[float]]) -> dict[str, list[float]]:
        found = {golab2003.FOUND: curves["GENERAL"]} if "GENERAL" in curves else {}
        return curves | {f"{name}, counted": values for name, values in curves.items()} | found

    assert [HOLDS] == verdict_of("2", twice({"NAIVE": [2.0, 9.0], "MULTI-WAY": [1.0, 1.0]}))
    assert [FAILS] == verdict_of("2", twice({"NAIVE": [2.0, 1.0], "MULTI-WAY": [1.0, 1.0]}))
    alike = {"NAIVE": [9.0, 2.0], "LAZY": [1.0, 1.0], "GENERAL": [1.0, 1.0]}
    assert [HOLDS, HOLDS] == verdict_of("3a", twice(alike))
    assert [HOLDS, FAILS] == verdict_of("3b", twice(alike))
    assert [FAILS, FAILS] == verdict_of("3a", twice({**alike, "GENERAL": [3.0, 3.0], "NAIVE": [0.5, 2.0]}))
    late = {"NAIVE": [9.0, 2.0], "LAZY": [1.0, 4.0], "GENERAL": [1.0, 1.5]}
    assert [HOLDS, HOLDS] == verdict_of("3b", twice(late))
    part = twice(late) | {"GENERAL, counted": [1.0, 9.0]}
    assert [IN_PART, HOLDS] == verdict_of("3b", part)
    rates = {
        "NLJ, best plan": [8.0, 7.0], "NLJ, worst plan": [2.0, 1.0],
        "hash, best plan": [80.0, 70.0], "hash, worst plan": [20.0, 10.0],
    }  # fmt: skip
    assert [HOLDS, HOLDS, HOLDS] == verdict_of("table8", rates)
    swapped = dict(zip(rates, reversed(rates.values()), strict=True))
    assert [FAILS, FAILS, HOLDS] == verdict_of("table8", swapped)
    indexes = {
        "NLJ": [2.0, 1.0, 1.0],
        "HASH2": [8.0, 9.0, 7.0],
        "HASH10": [9.0, 10.0, 9.0],
        "HASH30": [10.0, 11.0, 12.0],
    }
    growing, same = dict(zip(indexes, (1, 2, 2, 5), strict=True)), dict.fromkeys(indexes, 1)
    assert [HOLDS, HOLDS, HOLDS] == verdict_of("4a", indexes, shortest=growing)
    assert [HOLDS, HOLDS, IN_PART] == verdict_of("4a", indexes, shortest=same)
    swapped = dict(zip(indexes, reversed(indexes.values()), strict=True))
    assert [FAILS, FAILS, IN_PART] == verdict_of("4a", swapped, shortest=growing)
    assert [FAILS, FAILS, FAILS] == verdict_of("4a", swapped, shortest=same)
    few = {"Equal": [2, 2], "5 to slow": [1, 1]}
    assert [HOLDS] == verdict_of("4b", {"Equal": [1.0, 1.0], "5 to slow": [2.0, 2.0]}, comparisons=few)
    assert [FAILS] == verdict_of("4b", {"Equal": [1.0, 1.0], "5 to slow": [0.5, 0.5]}, comparisons=few)


def test_the_claim_of_two_fractions_is_judged_by_the_numbers() -> None:
    def verdict_of(first: list[float], second: list[float]) -> str:
        pairs = {"pairs of a full join by window": [3, 1]}
        [claim] = gedik2007.claims({"11": made_up({"r_1": first, "r_2": second}, [30.0, 45.0, 80.0], **pairs)})
        return claim.verdict

    assert verdict_of([1.0, 0.3, 1.0], [1.0, 0.0, 1.0]) == HOLDS
    assert verdict_of([1.0, 1.0, 1.0], [1.0, 0.4, 1.0]) == HOLDS
    assert verdict_of([1.0, 0.9, 1.0], [1.0, 0.4, 1.0]) == IN_PART
    assert verdict_of([1.0, 0.0, 1.0], [1.0, 0.4, 1.0]) == FAILS
    assert verdict_of([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]) == IN_PART  # nothing is cut


def test_claims_about_figures_that_are_not_there_are_left_out() -> None:
    assert [] == das2003.claims({})
    assert (HOLDS, IN_PART, FAILS) == (judged(holds=True), judged(holds=False, partly=True), judged(holds=False))


def test_every_paper_has_figures() -> None:
    assert {name.partition("/")[0] for name in names()} == set(PAPERS)
