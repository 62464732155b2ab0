"""Write the tables in README.md and docs/ from benchmarks/results.json and the registry."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import figures, registry_tables
from benchmarks.registry_tables import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).with_name("results.json")
CASES = ("sparse", "dense")
LOOPS = {"penstock": "Penstock, exact", "polars": "Polars in a loop", "duckdb": "DuckDB in a loop"}


def speed_table(results: dict[str, Any]) -> str:
    """Return the speed and memory tables as Markdown; a part that was not measured says so."""
    parts: list[tuple[str, str, Callable[[Any], str]]] = [
        ("joins", "Joins on arrays", arrays_table),
        ("joins", "Joins from Arrow to Arrow", loops_table),
        ("growth", "Time per row", growth_table),
        ("memory", "Memory", memory_table),
    ]
    return "\n\n".join(
        write_part(results[part]) if part in results else f"{title}: not measured."
        for part, title, write_part in parts
    )


def arrays_table(joins: dict[str, Any]) -> str:
    """Return how fast joins on arrays are, beside bare loops."""
    rows = []

    def row(name: str, kind: str, run: dict[str, str], bar: dict[str, float] | None, note: str = "") -> None:
        cells = [name]
        for case in CASES:
            seconds = joins[case][kind][run[case]]
            cells += [
                f"{joins[case]['rows'] / seconds / 1e6:.1f} M rows/s",
                f"{bar[case] / seconds:.0%} of {note}" if bar else "",
            ]
        rows.append(cells)

    bare = {case: joins[case]["bare"] for case in CASES}
    grouped = {case: min(bare[case].keys() - {"chains"}, key=bare[case].__getitem__) for case in CASES}
    row("bare Numba loop, hash chains", "bare", dict.fromkeys(CASES, "chains"), None)
    row("bare Numba loop, grouped by key", "bare", grouped, None)
    faster = {case: min(bare[case].values()) for case in CASES}
    row("Penstock, exact", "engine", dict.fromkeys(CASES, "exact"), faster, "the faster bare")
    chains = {case: bare[case]["chains"] for case in CASES}
    for policy in ("oldest", "rand", "prob", "life"):
        run = dict.fromkeys(CASES, policy)
        row(f"Penstock, `{policy}`, half the memory", "engine", run, chains, "bare chains")
    return table("join of 10⁶ + 10⁶ rows, arrays", ["sparse keys", "", "dense keys", ""], rows)


def loops_table(joins: dict[str, Any]) -> str:
    """Return how long joins from Arrow batches to Arrow tables take, and how many times as long as Penstock's."""
    rows = []
    for name, label in LOOPS.items():
        cells = [label]
        for case in CASES:
            for clock in ("wall", "cpu"):
                ours, seconds = (joins[case]["loops"][which][clock] for which in ("penstock", name))
                cells.append(f"{seconds:.3f} s" + ("" if name == "penstock" else f" ({seconds / ours:.1f}x)"))
        rows.append(cells)
    head = [f"{case} keys, {clock}" for case in CASES for clock in ("wall", "CPU")]
    return table("join of 10⁶ + 10⁶ rows, Arrow in and out", head, rows)


def growth_table(growth: list[dict[str, Any]]) -> str:
    """Return how the time per row grows with window and memory."""
    rows = []
    for policy in dict.fromkeys(entry["policy"] for entry in growth):
        times = [entry["ns_per_tuple"] for entry in growth if entry["policy"] == policy]
        rows.append([f"`{policy}`", *(f"{time:.0f} ns" for time in times), f"{times[-1] / times[0]:.1f}x"])
    sizes = dict.fromkeys(entry["memory"] for entry in growth)
    return table("time per row", [*(f"M = {size:,}" for size in sizes), "growth"], rows)


def memory_table(memory: list[dict[str, Any]]) -> str:
    """Return how much memory a bounded join takes."""
    rows = [
        [f"`{entry['policy']}`", f"{entry['span']:,}", f"{entry['grown'] / 1e6:.0f} MB", f"{entry['ratio']:.1f}x"]
        for entry in memory
    ]
    head = ["window", "grown by", "of the kept rows' bytes"]
    return table("memory at M = 10⁶, 100-byte payload", head, rows)


def table(title: str, head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table; all columns but the first are numbers."""
    lines = [[title, *head], ["---", *["--:"] * len(head)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_all() -> None:
    """Rewrite every generated table."""
    registry_tables.main()
    figures.write_claims()
    if RESULTS.exists():
        registry_tables.write(ROOT / "README.md", "speed", speed_table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    write_all()
