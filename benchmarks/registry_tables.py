"""Keep results, and write the tables that come from the registry: README.md's policies, docs/papers.md's claims."""

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock.policies.registry import Entry, entries

ROOT = Path(__file__).parents[1]
CLAIMS = ROOT / "tests" / "papers"
PAPERS = {
    "das2003": "Das, Gehrke, Riedewald: Approximate Join Processing Over Data Streams, SIGMOD 2003",
    "golab2003": "Golab, Özsu: Processing Sliding Window Multi-Joins in Continuous Queries, CS-2003-01",
    "dual2006": "dual-window load shedding for joins over tuple-based windows, 2006",
    "importance2006": "importance-aware approximation of window joins, 2006",
    "gedik2007": "Gedik, Wu, Yu, Liu: CPU Load Shedding for Binary Stream Joins, 2007",
}
BASELINE = "-"
DOOR = "penstock.api"
TOP = "../"  # of the repository, seen from docs/


def policy_table() -> str:
    """Return the package's own policies as a Markdown table, and below it what their options mean."""
    own = [entry for entry in entries() if entry.own]
    head = ["policy", "what it does", "paper", "options", "cost of a victim"]
    rows = [
        [
            f"[`{entry.name}`]({source(entry)})",
            entry.summary,
            "baseline" if entry.paper == BASELINE else entry.paper,
            ", ".join(f"`{name}={option.default!r}`" for name, option in entry.options.items()) or "none",
            entry.cost,
        ]
        for entry in own
    ]
    return f"{table(head, rows)}\n\n{option_list(own)}"


def option_list(own: list[Entry]) -> str:
    """Return one line for each option: whose it is, and what it means."""
    users: dict[tuple[str, str], list[str]] = {}
    for entry in own:
        for name, option in entry.options.items():
            users.setdefault((name, option.meaning), []).append(entry.name)
    return "\n".join(f"- `{name}` ({', '.join(names)}): {meaning}." for (name, meaning), names in users.items())


def papers_table() -> str:
    """Return the policies and tested claims of each paper that has any, with their modules and tests."""
    own = [entry for entry in entries() if entry.own]
    parts = []
    for paper, title in PAPERS.items():
        algorithms = [
            [f"`{entry.name}`", section(entry), f"[{module(entry)}]({TOP}{source(entry)})"]
            for entry in own
            if entry.paper == paper
        ]
        checked = [
            [
                tested.says,
                ", ".join(f"[{paper}/{number}](claims.md#{paper})" for number in tested.figures) or "-",
                ", ".join(link(name) for name in tested.modules),
                f"[`{tested.test}`]({TOP}tests/papers/test_{paper}.py)",
            ]
            for tested in claims(paper)
        ]
        if not algorithms and not checked:
            continue
        parts += [f"## {paper}", f"{title}."]
        if algorithms:
            parts.append(table(["algorithm", "where the paper has it", "module"], algorithms))
        parts.append(table(["claim", "figure", "module", "test"], checked) if checked else "No claim is tested yet.")
    return "\n\n".join(parts)


class Tested(NamedTuple):
    """A claim that is tested: in words, the figures it is read from, the modules it is about, and the test's name."""

    says: str
    figures: list[str]
    modules: list[str]
    test: str


def claims(paper: str) -> Iterator[Tested]:
    """Yield the tested claims of a paper."""
    path = CLAIMS / f"test_{paper}.py"
    if not path.exists():
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    words = Vocabulary(tree)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in sorted(functions, key=lambda node: node.lineno):
        if node.name.startswith("test_"):
            written = (ast.get_docstring(node) or node.name.removeprefix("test_").replace("_", " ")).splitlines()[0]
            yield Tested(written.rstrip("."), figures_of(node), words.modules(node), node.name)


def figures_of(test: ast.FunctionDef) -> list[str]:
    """Return the numbers in ``@pytest.mark.figure(...)`` above a test."""
    calls = [each for each in test.decorator_list if isinstance(each, ast.Call)]
    named = [call.args for call in calls if ast.unparse(call.func) == "pytest.mark.figure"]
    return [str(ast.literal_eval(number)) for numbers in named for number in numbers]


class Vocabulary:
    """What the words of a test file stand for: policies by name, imports, and helpers of the file itself."""

    def __init__(self, tree: ast.Module) -> None:
        self._policies = {entry.name: entry.kind.__module__ for entry in entries() if entry.own}
        self._imports = {
            alias.asname or alias.name: node.module
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("penstock.")
            for alias in node.names
        }
        self._helpers: dict[str, ast.stmt] = {}
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self._helpers[node.name] = node
            elif isinstance(node, ast.Assign):
                self._helpers |= {target.id: node for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                self._helpers[node.target.id] = node

    def modules(self, test: ast.stmt) -> list[str]:
        """Name the modules that a test is about: of the policies it names and what it calls, or the front door."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting: list[ast.AST] = [test]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Compare):
                continue  # to ask whether a name is such a policy's is not to run that policy
            if isinstance(node, ast.Constant) and node.value in self._policies:
                found.add(self._policies[node.value])
            if isinstance(node, ast.Name | ast.arg):
                name = node.id if isinstance(node, ast.Name) else node.arg
                if name in self._imports:
                    found.add(self._imports[name])
                if name in self._helpers and name not in seen:
                    seen.add(name)
                    waiting.append(self._helpers[name])
            waiting += ast.iter_child_nodes(node)
        about = [name for name in found if not name.startswith(("penstock.streams.", "penstock.errors"))]
        return sorted(about) or [DOOR]


def section(entry: Entry) -> str:
    """Return where a policy's docstring says that its paper has it."""
    found = re.search(r"References:\s*(.+)", inspect.getdoc(entry.kind) or "", re.DOTALL)
    return " ".join(found[1].split()).removeprefix(entry.paper).strip(" .,") if found else "-"


def source(entry: Entry) -> str:
    """Return the file of a policy, from the top of the repository."""
    return file_of(entry.kind.__module__)


def file_of(name: str) -> str:
    """Return the file of a module of the package, from the top of the repository."""
    path = f"src/{name.replace('.', '/')}"
    return f"{path}/__init__.py" if (ROOT / path).is_dir() else f"{path}.py"


def module(entry: Entry) -> str:
    """Return the module of a policy, as people say it inside the package."""
    return entry.kind.__module__.removeprefix("penstock.")


def link(name: str) -> str:
    """Return a link from docs/ to a module of the package."""
    return f"[{name.removeprefix('penstock.')}]({TOP}{file_of(name)})"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def between(path: Path, marker: str) -> tuple[str, str, str]:
    """Return a document in three parts: up to a marker's begin line, what it encloses, and the rest."""
    begin, end = f"<!-- {marker}:begin -->\n", f"\n<!-- {marker}:end -->"
    text = path.read_text(encoding="utf-8")
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"{path}: it needs one line {begin.strip()!r} and one line {end.strip()!r} after it")
    before, rest = text.split(begin)
    inside, after = rest.split(end)
    return before + begin, inside, end + after


def write(path: Path, marker: str, text: str) -> None:
    """Put a generated text between the markers of a document; it is left alone if it is already there."""
    before, inside, after = between(path, marker)
    if inside != text:
        path.write_text(f"{before}{text}{after}", encoding="utf-8")


def main() -> None:
    """Write both tables."""
    write(ROOT / "README.md", "policies", policy_table())
    write(ROOT / "docs" / "papers.md", "papers", papers_table())


def measured(file: Path, workloads: Iterable[str], measure: Callable[[str], Any]) -> dict[str, Any]:
    """Measure the workloads named on the command line, or all; keep each in a file of results, and return these."""
    results = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in sys.argv[1:] or workloads:
        print(name, flush=True)
        results[name] = measure(name)
        results = {each: results[each] for each in workloads if each in results}
        file.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return results


if __name__ == "__main__":
    main()
