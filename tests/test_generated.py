"""Compare what is generated with what is written: `make docs` mends it."""

import json
from pathlib import Path

import pytest
from benchmarks import (
    archive,
    auto,
    cpu,
    dashboard,
    decisions,
    figures,
    limits,
    optimum,
    quality,
    recall,
    registry_tables,
    shown,
    tables,
)

from documents import ROOT
from penstock.policies.registry import Entry, entries
from penstock.report.papers.registry import PAPERS

KNOWN = {"das2003", "dual2006", "gedik2007", "importance2006", "golab2003"}
OWN = [entry for entry in entries() if entry.own]


def test_the_policy_table_is_the_registry() -> None:
    want = registry_tables.policy_table()
    assert want == registry_tables.between(ROOT / "README.md", "policies")[1]


def test_the_table_of_papers_is_registry_and_tests() -> None:
    want = registry_tables.papers_table()
    assert want == registry_tables.between(ROOT / "docs" / "papers.md", "papers")[1]


def test_the_table_of_claims_is_what_was_measured() -> None:
    want = figures.claims_table(figures.kept())
    assert want == registry_tables.between(ROOT / "docs" / "claims.md", "claims")[1]


def test_claims_that_were_not_measured_are_said() -> None:
    assert "## das2003\n\nNot measured yet." in figures.claims_table({})


def test_the_speed_table_says_what_was_not_measured() -> None:
    want = [
        "Joins on arrays",
        "Joins from Arrow to Arrow",
        "Time per row",
        "Policies that look at importance",
        "Memory",
    ]
    assert "\n\n".join(f"{part}: not measured." for part in want) == tables.speed_table({})
    memory = [{"policy": "prob", "span": 1000, "grown": 5e8, "ratio": 1.25}]
    assert "| `prob` | 1,000 | 500 MB | 1.25x |" in tables.speed_table({"memory": memory})


def test_the_tables_of_speed_are_what_was_measured() -> None:
    want = tables.speed_table(json.loads(tables.RESULTS.read_text()))
    assert want == registry_tables.between(ROOT / "README.md", "speed")[1]


def test_what_joins_of_two_must_show_and_do_not_is_said() -> None:
    known = json.loads(tables.RESULTS.read_text())
    for case in known["joins"].values():
        case["engine"]["life"], case["bare"]["chains"] = 10.0, 0.99
        case["engine"]["exact"] = min(case["bare"].values()) / 0.6 * 0.999
        case["loops"]["polars"]["wall"] = 4.9 * case["loops"]["penstock"]["wall"]
    known["memory"] = [{"policy": "prob", "ratio": 2.99}, {"policy": "rand", "ratio": 1.0}]
    said = {what: (measured, met) for what, _, measured, met in shown.of_two(known)}
    assert said["exact, sparse and dense keys"] == ("60%, 60%", "yes")
    assert said["exact, against Polars in a loop"] == ("4.9x, 4.9x", "**no**")
    assert said["`life`, half the memory"] == ("10%, 10%", "**no**")
    assert said["memory, of the kept rows' bytes"] == ("`prob` 2.99x, `rand` 1.00x", "yes")


@pytest.mark.parametrize(
    ("page", "marker"), [("README.md", "spark"), ("docs/spark.md", "spark"), ("docs/spark.md", "shares")]
)
def test_the_tables_of_spark_are_what_was_measured(page: str, marker: str) -> None:
    made = {"spark": tables.spark_table, "shares": tables.shares_table}[marker]
    want = made(json.loads(tables.SPARK_RESULTS.read_text()))
    assert want == registry_tables.between(ROOT / page, marker)[1]


def test_the_tables_of_recall_are_what_was_measured() -> None:
    want = recall.tables(json.loads(recall.RESULTS.read_text()))
    assert want == registry_tables.between(ROOT / "docs" / "recall.md", "measured")[1]


def test_the_table_of_orders_is_what_was_measured() -> None:
    want = tables.orders_table(json.loads(tables.ORDERS.read_text()))
    assert want == registry_tables.between(ROOT / "docs" / "planner.md", "orders")[1]


def test_the_tables_of_several_streams_are_what_was_measured() -> None:
    assert tables.several_tables() == registry_tables.between(ROOT / "docs" / "planner.md", "multiway")[1]


def test_what_several_streams_must_show_and_do_not_is_said() -> None:
    known, sizes = json.loads(tables.MULTIWAY.read_text()), json.loads(tables.ORDERS.read_text())
    known["adaptation"]["adapting"] = 2 * known["adaptation"]["best"]
    known["adaptation"]["first"] = known["adaptation"]["best"]
    known["orders"][0]["worst_by_best"] = 2.9
    known["intervals"]["rates"] = {
        index: {"1": 1.0, "2": 2.0, "3": 1.9} for index in known["intervals"]["rates"]
    }  # the fastest is the same whatever the index
    known["intervals"]["alike"] = {index: [at // 2 + 1] for at, index in enumerate(known["intervals"]["alike"])}
    said = {what: (measured, met) for what, _, measured, met in shown.rows(known, sizes)}
    assert said["ten windows after one stream became 50x faster"] == ("50%", "**no**")
    assert said["best order against the worst, nested loop"] == ("2.9x", "**no**")
    assert said["ten windows after one stream became 50x faster, keeping the first order"] == ("100%", "**no**")
    best = "best interval, for 2, 10, 30, 100 buckets, by the clock; the shortest within two standard errors of it"
    assert said[best] == ("2, 2, 2, 2; 1, 2, 2, 3, by a gain of 90.0%", "in part")
    assert said["costs printed in golab2003, Tables 5 to 7"] == ("14 of 14", "yes")


def test_the_tables_of_the_optimum_are_the_results() -> None:
    want = optimum.page(json.loads(optimum.RESULTS.read_text(encoding="utf-8")))
    assert want == registry_tables.between(optimum.PAGE, "optimum")[1]


def test_the_cost_of_a_dashboard_is_what_was_measured() -> None:
    want = dashboard.page(json.loads(dashboard.RESULTS.read_text(encoding="utf-8")))
    assert want == registry_tables.between(dashboard.PAGE, "measured")[1]


def test_what_no_policy_exceeds_and_what_the_optimum_decides_is_what_was_measured() -> None:
    for name, made in (("limits", limits), ("decisions", decisions)):
        want = made.page(json.loads(made.RESULTS.read_text(encoding="utf-8")))
        assert want == registry_tables.between(auto.PAGE, name)[1]


def test_the_share_of_the_bound_stands_beside_the_best_policy() -> None:
    found = {"prob": [[8.0]], "age": [[10.0]], "auto": [[9.0]], "prob, history": [[9.5]], "bound": [[12.0]]}
    cell = next(auto.cells(found))
    assert str(cell) == "0.900 age (0.750)"
    assert list(auto.missed("some", ["5%"], [cell])) == [["some", "5%", "age", "0.900", "0.950"]]


def test_the_table_of_auto_is_what_was_measured() -> None:
    want = auto.page(json.loads(auto.RESULTS.read_text(encoding="utf-8")))
    assert want == registry_tables.between(auto.PAGE, "auto")[1]


def test_the_table_of_incomplete_rows_is_what_was_measured() -> None:
    want = archive.page(json.loads(archive.RESULTS.read_text(encoding="utf-8")))
    assert want == registry_tables.between(archive.PAGE, "archive")[1]


def test_the_table_of_repairs_is_what_was_measured() -> None:
    want = tables.repair_table(json.loads(tables.REPAIRS.read_text(encoding="utf-8")))
    assert want == registry_tables.between(ROOT / "docs" / "refine.md", "repair")[1]


def test_the_tables_of_cpu_budgets_are_what_was_measured() -> None:
    want = cpu.page(json.loads(cpu.RESULTS.read_text(encoding="utf-8")))
    assert want == registry_tables.between(cpu.PAGE, "measured")[1]


def test_the_tables_of_quality_are_what_was_measured() -> None:
    want = quality.page(json.loads(quality.RESULTS.read_text(encoding="utf-8")))
    assert want == registry_tables.between(quality.PAGE, "quality")[1]


def test_the_generator_knows_every_paper() -> None:
    assert set(registry_tables.PAPERS) == KNOWN


@pytest.mark.parametrize("entry", OWN, ids=lambda entry: str(entry.name))
def test_every_policy_names_a_known_paper_or_is_a_baseline(entry: Entry) -> None:
    assert entry.paper in KNOWN | {registry_tables.BASELINE}


@pytest.mark.parametrize("entry", OWN, ids=lambda entry: str(entry.name))
def test_every_policy_of_a_paper_says_where_the_paper_has_it(entry: Entry) -> None:
    where = registry_tables.section(entry)
    assert entry.paper == registry_tables.BASELINE or where.startswith("§")


@pytest.mark.parametrize("paper", sorted(KNOWN))
def test_claims_are_read_from_figures_that_can_be_measured(paper: str) -> None:
    named = {number for claim in registry_tables.claims(paper) for number in claim.figures}
    assert named
    assert named <= set(PAPERS[paper].figures)


@pytest.mark.parametrize("paper", sorted({entry.paper for entry in OWN} & KNOWN))
def test_every_paper_in_use_has_tested_claims(paper: str) -> None:
    assert list(registry_tables.claims(paper))


def test_a_table_is_put_between_its_markers_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("above\n<!-- it:begin -->\nold\n<!-- it:end -->\nbelow\n", encoding="utf-8")
    registry_tables.write(path, "it", "new")
    assert path.read_text(encoding="utf-8") == "above\n<!-- it:begin -->\nnew\n<!-- it:end -->\nbelow\n"
    with pytest.raises(ValueError, match="other:begin"):
        registry_tables.write(path, "other", "new")
