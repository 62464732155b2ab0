"""A figure: its curves as numbers, written as JSON and drawn as PNG."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.errors import InputError, OutputError

MARKS = "os^Dv*"
SIZE = (6.4, 4.2)  # inches
DOTS = 150  # per inch


@dataclass(frozen=True)
class Figure:
    """Curves over a common x; `settings` says what they were measured on."""

    name: str  # paper/number
    title: str
    x_label: str
    y_label: str
    x: list[float]
    curves: dict[str, list[float]]
    settings: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as JSON holds it."""
        return asdict(self)


def relative(curves: Mapping[str, Sequence[float]], to: str) -> dict[str, list[float]]:
    """Return curves as fractions of one of them, without it."""
    base = curves[to]
    return {
        name: [value / whole if whole else 1.0 for value, whole in zip(values, base, strict=True)]
        for name, values in curves.items()
        if name != to
    }


def ready() -> None:
    """Raise unless figures can be drawn, before anything is measured."""
    if find_spec("matplotlib") is None:
        raise InputError("figure", "no matplotlib", "install it: pip install 'penstock[figures]'")


def save(figure: Figure, folder: Path) -> tuple[Path, Path]:
    """Write a figure as PNG and JSON, named after it, and return the two paths."""
    stem = figure.name.replace("/", "-")
    paths = folder / f"{stem}.png", folder / f"{stem}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draw(figure, paths[0])
        paths[1].write_text(json.dumps(figure.to_dict(), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(folder, f"the figure could not be written: {error.strerror or error}") from error
    return paths


def draw(figure: Figure, path: Path) -> None:
    """Draw a figure; curves with few points are marked."""
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - figures are drawn on demand

    canvas = Canvas(figsize=SIZE, layout="constrained")
    axes = canvas.subplots()
    for at, (name, values) in enumerate(figure.curves.items()):
        mark = MARKS[at % len(MARKS)] if len(figure.x) <= 20 else None
        axes.plot(figure.x, values, marker=mark, markersize=4, linewidth=1.2, label=name)
    axes.set_title(f"{figure.name}: {figure.title}", fontsize=10)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    canvas.savefig(path, dpi=DOTS)
