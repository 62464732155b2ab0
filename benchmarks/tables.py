"""Write the tables in README.md and docs/ from benchmarks/results.json and the registry."""

import json
from pathlib import Path
from typing import Any

from benchmarks import registry_tables
from benchmarks.registry_tables import ROOT

RESULTS = Path(__file__).with_name("results.json")


def speed_table(results: dict[str, Any]) -> str:
    """Return the speed and memory tables as Markdown."""
    lines = [
        "| join of 10⁶ + 10⁶ rows | sparse keys | | dense keys | |",
        "| --- | --: | --- | --: | --- |",
    ]
    joins = results["joins"]

    def rate(case: str, seconds: float) -> str:
        return f"{joins[case]['rows'] / seconds / 1e6:.1f} M rows/s"

    def row(name: str, cells: list[tuple[str, str]]) -> None:
        lines.append(f"| {name} | " + " | ".join(f"{value} | {note}" for value, note in cells) + " |")

    both = ("sparse", "dense")
    row("bare Numba loop, hash chains", [(rate(c, joins[c]["bare"]["chains"]), "") for c in both])
    grouped = {c: min(v for k, v in joins[c]["bare"].items() if k != "chains") for c in both}
    row("bare Numba loop, grouped by key", [(rate(c, grouped[c]), "") for c in both])
    faster = {c: min(joins[c]["bare"].values()) for c in both}
    row(
        "Penstock, exact",
        [
            (
                rate(c, joins[c]["engine"]["exact"]),
                f"{faster[c] / joins[c]['engine']['exact']:.0%} of the faster bare",
            )
            for c in both
        ],
    )
    for policy in ("oldest", "rand", "prob", "life"):
        row(
            f"Penstock, `{policy}`, half the memory",
            [
                (
                    rate(c, joins[c]["engine"][policy]),
                    f"{joins[c]['bare']['chains'] / joins[c]['engine'][policy]:.0%} of bare chains",
                )
                for c in both
            ],
        )
    for name, label in (
        ("penstock", "Penstock, exact, Arrow in and out"),
        ("polars", "Polars in a loop"),
        ("duckdb", "DuckDB in a loop"),
    ):
        cells = []
        for c in both:
            ours, theirs = joins[c]["loops"]["penstock"], joins[c]["loops"][name]
            note = ""
            if name != "penstock":
                wall, cpu = theirs["wall"] / ours["wall"], theirs["cpu"] / ours["cpu"]
                note = f"Penstock {wall:.1f}x (CPU time {cpu:.1f}x)"
            cells.append((rate(c, theirs["wall"]), note))
        row(label, cells)
    lines += [
        "",
        "| time per row | " + " | ".join(f"M = {m:,}" for m in _growth_sizes(results)) + " | growth |",
    ]
    lines.append("| --- |" + " --: |" * (len(_growth_sizes(results)) + 1))
    for policy in dict.fromkeys(entry["policy"] for entry in results["growth"]):
        times = [e["ns_per_tuple"] for e in results["growth"] if e["policy"] == policy]
        lines.append(
            f"| `{policy}` | " + " | ".join(f"{t:.0f} ns" for t in times) + f" | {times[-1] / times[0]:.1f}x |"
        )
    lines += ["", "| memory at M = 10⁶, 100-byte payload | window | grown by | of the kept rows' bytes |"]
    lines.append("| --- | --: | --: | --: |")
    for entry in results["memory"]:
        lines.append(
            f"| `{entry['policy']}` | {entry['span']:,} | {entry['grown'] / 1e6:.0f} MB | {entry['ratio']:.1f}x |"
        )
    return "\n".join(lines)


def _growth_sizes(results: dict[str, Any]) -> list[int]:
    return list(dict.fromkeys(entry["memory"] for entry in results["growth"]))


def write_all() -> None:
    """Rewrite every generated table."""
    registry_tables.main()
    if RESULTS.exists():
        registry_tables.write(ROOT / "README.md", "speed", speed_table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    write_all()
