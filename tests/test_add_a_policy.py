"""Install the policy of docs/add_a_policy.md from outside, as a distribution of its own, and join with it."""

import inspect
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from documents import ROOT, blocks, examples, steps
from penstock.core import hooks
from shell import around, typed

PAGE = ROOT / "docs" / "add_a_policy.md"
ROWS, SPAN, MEMORY = 40, 12, 5
WORTH = [[row * 7 % 11 for row in range(ROWS)], [row * 5 % 13 for row in range(ROWS)]]
RATE = 0.5
SCRIPT = """
import doctest, json, sys
import penstock as pen, pyarrow as pa

page, given = sys.argv[1], json.loads(sys.argv[2])
told = []
parsed = doctest.DocTestParser().get_doctest(open(page, encoding="utf-8").read(), {}, page, page, 0)
doctest.DocTestRunner(verbose=False).run(parsed, out=told.append)
left, right = (
    pa.table({"ts": range(len(worth)), "key": [0] * len(worth), "worth": worth}) for worth in given["worth"]
)
result = pen.run(
    left, right, on="key", time="ts", window=given["span"], memory=given["memory"], importance="worth",
    policy=pen.policy("heaviest", rate=given["rate"]),
)
from penstock.policies.registry import lookup

checked, broken = [], {}
sys.path.insert(0, given["tests"])
from policies.contract import CHECKS

def noted(check):
    def call(subject):
        checked.append((subject.entry.name, check.__name__))
        try:
            check(subject)
        except Exception as error:
            broken[check.__name__] = repr(error)
    return call

wanted = [("heaviest", check.__name__) for check in CHECKS]
CHECKS[:] = [noted(check) for check in CHECKS]
exec(given["battery"], {})
try:
    names = pen.policies()["name"].to_pylist()
except TypeError as error:
    names = [str(error)]
print(json.dumps({
    "examples": told, "names": names, "broken": broken, "checked": checked, "wanted": wanted,
    "shed": result.ledger.select(["side", "arrival", "shed_at"]).to_pylist(),
    "balanced": result.report.balanced, "policy": result.report.policy,
    "own": lookup("heaviest").own, "module": lookup("heaviest").kind.__module__,
}))
"""


class Outside(NamedTuple):
    """What a process said that had the policy installed, where it was, and the cache it used."""

    said: dict[str, Any]
    site: Path
    cache: Path


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Outside:
    home = tmp_path_factory.mktemp("outside")
    site, cache = home / "site", home / "cache"
    install(site)
    (home / "examples.txt").write_text(examples(PAGE), encoding="utf-8")
    _, battery = blocks(PAGE, "python")
    given = {"worth": WORTH, "span": SPAN, "memory": MEMORY, "rate": RATE}
    given |= {"tests": str(ROOT / "tests"), "battery": battery}
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(home / "examples.txt"), json.dumps(given)],
        env=environment | {"PYTHONPATH": str(site), "PENSTOCK_CACHE_DIR": str(cache)},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Outside(json.loads(done.stdout), site, cache)


def install(site: Path) -> None:
    """Lay the page's module out as pip would, with the entry points that the page's project file has."""
    project = tomllib.loads(blocks(PAGE, "toml")[0])["project"]
    (module,) = project["entry-points"]["penstock.policies"].values()
    info = site / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (site / f"{module}.py").write_text(blocks(PAGE, "python")[0], encoding="utf-8")
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())
        for group, lines in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(points), encoding="utf-8")


def shed_by_hand() -> list[tuple[str, int, int]]:
    """Return who leaves by the words of the page; each tick brings a row of each side."""
    held: list[tuple[float, int, str]] = []
    shed = []
    for tick in range(ROWS):
        held += [(WORTH[0][tick] * RATE, tick, "left"), (float(WORTH[1][tick]), tick, "right")]
        held = [row for row in held if row[1] + SPAN > tick + 1]
        while len(held) > MEMORY:
            victim = min(held)
            held.remove(victim)
            shed.append((victim[2], victim[1], tick))
    return shed


def test_the_examples_of_the_page_print_what_they_say(outside: Outside) -> None:
    assert "".join(outside.said["examples"]) == ""


def test_it_is_found_by_its_entry_point(outside: Outside) -> None:
    assert (outside.said["module"], outside.said["own"]) == ("heaviest", False)


def test_it_is_listed_also_after_a_join(outside: Outside) -> None:
    assert "heaviest" in outside.said["names"]


def test_it_keeps_what_it_says(outside: Outside) -> None:
    got = [(row["side"], row["arrival"], row["shed_at"]) for row in outside.said["shed"]]
    assert sorted(shed_by_hand()) == sorted(got)
    assert (outside.said["policy"], outside.said["balanced"]) == (f"heaviest(rate={RATE})", True)


def test_it_keeps_the_contract_of_all_policies(outside: Outside) -> None:
    assert outside.said["broken"] == {}
    assert outside.said["checked"] == outside.said["wanted"]
    assert len(outside.said["wanted"]) >= 7


def test_the_command_of_the_page_finds_the_contract(outside: Outside) -> None:
    """In a checkout, with both packages installed; the checks themselves have run above."""
    path = os.pathsep.join([str(outside.site), *filter(None, [os.environ.get("PYTHONPATH")])])
    [[command]] = steps(PAGE)
    said = typed(command, ROOT, around(PYTHONPATH=path), "--collect-only --quiet -p no:cacheprovider")
    assert [check for _, check in outside.said["wanted"] if check not in said] == []
    assert all("heaviest" in line for line in said.splitlines() if "::" in line)


def test_nothing_compiled_for_it_is_kept(outside: Outside) -> None:
    kept = [path for path in outside.cache.rglob("*") if path.suffix in {".nbi", ".nbc"}]
    assert kept, "kernels without a policy are kept in this folder"
    assert [path.name for path in kept if re.match(r"step\.step|heap\.fill", path.name)] == []
    assert [path.name for path in kept if b"eaviest" in path.read_bytes()] == []


def test_the_page_has_every_hook_as_it_is() -> None:
    contract = re.findall(r"^- ``([^`]+)``", inspect.getdoc(hooks) or "", re.MULTILINE)
    page = PAGE.read_text(encoding="utf-8")
    assert len(contract) >= 6
    assert [signature for signature in contract if f"`{signature}`" not in page] == []


def test_the_example_is_short() -> None:
    assert len([line for line in blocks(PAGE, "python")[0].splitlines() if line.strip()]) <= 30
