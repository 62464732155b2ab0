"""Measure all figures of the papers, side by side if no clock is read, and put them on a page with the claims."""

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from html import escape
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from penstock.engine.pump import Progress
from penstock.errors import InputError, OutputError
from penstock.report.figures import Figure, save
from penstock.report.papers import registry
from penstock.report.papers.claims import FAILS, HOLDS, Claim

PAGE = "index.html"
SHADES = {HOLDS: "good", FAILS: "bad"}
STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #57606a; --paper: #fff; --line: #d0d7de; --good: #1a7f37;
  --bad: #b3261e; --mid: #9a6700 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --dim: #9198a1; --paper: #0d1117; --line: #30363d;
  --good: #57ab5a; --bad: #f47067; --mid: #c69026 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 72rem; padding: 1.5rem }
article { border-top: 1px solid var(--line); padding: 1rem 0; display: grid; gap: 1rem;
  grid-template-columns: minmax(0, 1fr) minmax(0, 1fr) }
@media (max-width: 50rem) { article { grid-template-columns: minmax(0, 1fr) } }
img { width: 100%; background: #fff; border-radius: 6px }
h3 { margin: 0 0 .3rem }
small, summary, figcaption { color: var(--dim) }
figure { margin: 0 }
dl { margin: 0 } dt { font-weight: 600; margin-top: .6rem } dd { margin: 0 }
.good { color: var(--good) } .bad { color: var(--bad) } .mid { color: var(--mid) }
div.numbers { overflow-x: auto } table { border-collapse: collapse; font-size: 13px }
td, th { padding: .1rem .6rem; text-align: right; border-bottom: 1px solid var(--line) }
"""


class Gallery(NamedTuple):
    """What was measured, what could not be, with the reason, and the page."""

    figures: dict[str, Figure]
    missing: dict[str, str]
    page: Path


def measured(name: str, quick: bool, folder: Path) -> Figure:  # noqa: FBT001 - sent to another process
    """Measure a figure and save it."""
    made = registry.figure(name, quick=quick, progress=lambda _done, _total: None)
    save(made, folder)
    return made


def gather(folder: Path, progress: Progress, *, quick: bool = False, only: Sequence[str] = ()) -> Gallery:
    """Measure all figures, or only some, on all cores; write each as PNG and JSON, and the page when all are done.

    Those that are measured by the clock come last, one by one: what runs beside them would look like their own time.

    What cannot be measured, since its data is not there, is named on the page with the reason.
    """
    wanted = list(only) or registry.names()
    figures: dict[str, Figure] = {}
    missing: dict[str, str] = {}
    alone = [name for name in wanted if registry.is_timed(name)]
    beside = [name for name in wanted if name not in alone]
    done = 0
    for names, workers in ((beside, os.cpu_count() or 1), (alone, 1)):
        for name, made in _pooled(names, workers, quick, folder):
            if isinstance(made, Figure):
                figures[name] = made
            else:
                missing[name] = str(made)
            done += 1
            progress(done, len(wanted))
    figures = {name: figures[name] for name in wanted if name in figures}
    page = folder / PAGE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        half = page.with_suffix(".part")
        half.write_text(written(figures, missing, folder), encoding="utf-8")
        half.replace(page)
    except OSError as error:
        raise OutputError(page, f"the page could not be written: {error.strerror or error}") from error
    return Gallery(figures, missing, page)


def _pooled(
    names: Sequence[str],
    workers: int,
    quick: bool,  # noqa: FBT001 - passed on as it came
    folder: Path,
) -> Iterator[tuple[str, Figure | InputError]]:
    """Yield figures, or why they cannot be measured, as they are done by so many processes at once."""
    if not names:
        return
    # processes of their own, not forked ones: kernels and their threads do not survive a fork
    with ProcessPoolExecutor(min(workers, len(names)), mp_context=get_context("spawn")) as pool:
        asked: dict[Future[Figure], str] = {pool.submit(measured, name, quick, folder): name for name in names}
        try:
            for future in as_completed(asked):
                try:
                    yield asked[future], future.result()
                except OutputError:
                    raise
                except InputError as error:
                    yield asked[future], error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def claims_by_figure(paper: str, figures: Mapping[str, Figure]) -> dict[str, list[Claim]]:
    """Return the claims of a paper by the number of a figure they are judged by: without it they could not be."""
    claims = registry.PAPERS[paper].claims
    known = claims(figures)
    found: dict[str, list[Claim]] = {}
    for number in figures:
        without = claims({name: figure for name, figure in figures.items() if name != number})
        found[number] = [claim for claim in known if claim not in without]
    return found


def written(figures: Mapping[str, Figure], missing: Mapping[str, str], folder: Path) -> str:
    """Return the page: nothing on it comes from elsewhere."""
    parts = []
    for paper in registry.PAPERS:
        mine = {name.partition("/")[2]: figure for name, figure in figures.items() if name.startswith(f"{paper}/")}
        if mine:
            beside = claims_by_figure(paper, mine)
            parts.append(f"<h2>{escape(paper)}</h2>")
            parts += [_article(figure, beside[number], folder) for number, figure in mine.items()]
    lost = "".join(f"<li>{escape(name)}: {escape(reason)}</li>" for name, reason in missing.items())
    if lost:
        parts.append(f"<h2>Not measured</h2><ul>{lost}</ul>")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>The papers' figures, measured</title><style>{STYLE}</style>"
        f"<h1>The papers' figures, measured</h1>{''.join(parts)}</html>\n"
    )


def _article(figure: Figure, claims: Sequence[Claim], folder: Path) -> str:
    picture = b64encode((folder / f"{figure.name.replace('/', '-')}.png").read_bytes()).decode()
    settings = ", ".join(f"{key} = {value}" for key, value in figure.settings.items())
    points = zip(figure.x, *figure.curves.values(), strict=True)
    numbers = "".join(f"<th>{escape(name)}</th>" for name in (figure.x_label, *figure.curves))
    numbers += "".join(f"<tr>{''.join(f'<td>{value:,.6g}</td>' for value in point)}</tr>" for point in points)
    said = "".join(
        f"<dt>{escape(claim.where)}: {escape(claim.says)}</dt><dd>{escape(claim.measured)} "
        f'<b class="{SHADES.get(claim.verdict, "mid")}">{escape(claim.verdict)}</b></dd>'
        for claim in claims
    )
    return (
        f'<article id="{escape(figure.name)}"><figure><h3>{escape(figure.name)}</h3>'
        f'<img alt="{escape(figure.title)}" src="data:image/png;base64,{picture}">'
        f"<figcaption>{escape(figure.title)}<br><small>{escape(settings)}</small></figcaption>"
        f'<details><summary>numbers</summary><div class="numbers"><table>{numbers}</table></div></details>'
        f"</figure><dl>{said or '<dt>no claim of the paper is judged by this alone</dt>'}</dl></article>"
    )
