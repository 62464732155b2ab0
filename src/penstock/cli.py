"""The command line: turn words into arguments, call one function, show what it returns."""

import json
import math
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock import __version__
from penstock.errors import BudgetError, ColumnError, InputError, PenstockError, PolicyError, TimeError

if TYPE_CHECKING:
    from penstock.dashboard.history import History, Point
    from penstock.dashboard.server import Dashboard
    from penstock.jobs.parsing import Job
    from penstock.jobs.planning import Forecast
    from penstock.planner.statistics import Stream
    from penstock.policies.registry import Policy
    from penstock.quality.books import Report
    from penstock.report.demo import Demo, Moment
    from penstock.spark.folders import Refined

T = TypeVar("T")

FAILED, BROKEN = 2, 1  # exit codes: the input was wrong; the doctor found something
STOPPED = (130, 143)  # exit codes after Ctrl-C and SIGTERM
_stops: list[int] = []  # the signals that came: this process is on its way out
SOON, LATER = 0.05, 2.0  # seconds until an exit is tried again: it came at a bad moment; it may have been swallowed
SHOWN = 10  # rows where there is no file to write them to
WIDE = 160  # columns where there is no terminal
SPARKS = " ▁▂▃▄▅▆▇█"
STREAM = ("rate", "window", "distinct", "buckets", "price")  # what is known of a stream; the first three must be
STATISTICS = re.compile(r":\s*\w+\s*=")
LIVE_SECONDS = {"embedded": 6.0, "spark": 15.0}  # how long the demo's streams take to arrive

app = typer.Typer(
    name="penstock",
    help="Join streams inside a fixed budget of memory: what matters least is given up, and counted.",
    add_completion=False,
    pretty_exceptions_enable=False,
)

Left = Annotated[
    Path, typer.Argument(metavar="LEFT", help="Left stream: a .csv, .parquet or .arrow file, or a folder.")
]
Right = Annotated[Path, typer.Argument(metavar="RIGHT", help="Right stream.")]
ON = typer.Option(help="Key columns: k, or k,k2, or left=right.", metavar="COLUMNS")
TIME = typer.Option(help="Time column: ts, or left=right.", metavar="COLUMN")
WINDOW = typer.Option(help='400 (ticks), "10 minutes", "400 rows", or one for each side: a,b.', metavar="SPAN")
On = Annotated[str, ON]
Time = Annotated[str, TIME]
Window = Annotated[str, WINDOW]
LATENESS = typer.Option(help="How late a row may be and still join.", metavar="SPAN")
COMBINE = typer.Option(help="How two importances become one: min, sum, product, max, mean.")
Lateness = Annotated[str, LATENESS]
Importance = Annotated[str | None, typer.Option(help="Column of importances: w, or left=right.", metavar="COLUMN")]
Combine = Annotated[str, COMBINE]
PerKey = Annotated[int | None, typer.Option(help="Keep at most so many rows of one key and side.", metavar="ROWS")]
Seed = Annotated[int, typer.Option(help="For policies that draw lots.")]
Port = Annotated[
    int | None,
    typer.Option(
        help="Where the dashboard is; default 4050, or a free one if that is taken; 0: a free one.", min=0, max=65535
    ),
]
Watched = Annotated[
    bool, typer.Option("--dashboard/--no-dashboard", help="Serve a page on it while it runs, to this machine only.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done; 1: the doctor found something; 2: an argument, a file or a batch was wrong, or a result could not
    be written; 130 and 143: stopped by Ctrl-C or SIGTERM, and no partial file is left.
    """
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    as_json = "--json" in words
    with _stoppable():
        try:
            code = app(words, prog_name="penstock", standalone_mode=False) or 0
            sys.stdout.flush()
        except PenstockError as error:
            code = _complain(error, as_json=as_json)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else FAILED
            if code in STOPPED:
                _complain(InterruptedError("stopped; no partial file is left"), as_json=as_json)
        except (BrokenPipeError, MemoryError) as error:
            code = _complain(error, as_json=as_json)
        except OSError as error:
            if error.filename is not None:
                raise
            code = _complain(error, as_json=as_json)  # standard output is full
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            code = _complain(error, as_json=as_json)  # words that Typer does not take
    return int(code)


def command() -> None:
    """Run the command line as a process.

    Stopped, it leaves at once, and silently: what a compiler has half-made would complain when it is taken down.
    """
    tell = sys.unraisablehook
    sys.unraisablehook = lambda seen: None if _stops else tell(seen)
    code = main()
    if code in STOPPED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into an exit, so that half-written files are removed on the way out."""
    before: dict[int, Any] = {}
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        _stops.append(number)
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)  # once is enough: the way out is not to be disturbed
        lost = frame is not None and "llvmlite" in frame.f_code.co_filename  # its callbacks swallow exceptions
        if hasattr(signal, "setitimer"):
            before.setdefault(signal.SIGALRM, signal.signal(signal.SIGALRM, stop))
            signal.setitimer(signal.ITIMER_REAL, SOON if lost else LATER)
            if lost:
                return
        raise SystemExit(128 + came[0])

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        if came and hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, 0)
        for each, handler in before.items():
            signal.signal(each, handler)


def _complain(error: BaseException, *, as_json: bool) -> int:
    """Say what went wrong, in one line or as JSON."""
    say: Callable[[], str] = getattr(error, "format_message", lambda: str(error) or type(error).__name__)
    message = " ".join(say().split())
    details = {
        "type": type(error).__name__,
        "message": message,
        **{name: str(getattr(error, name)) for name in ("argument", "got", "want", "path") if hasattr(error, name)},
    }
    try:
        if as_json:
            _answer({"error": details})
        else:
            print(f"penstock: {message}", file=sys.stderr)  # noqa: T201
        sys.stdout.flush()
    except OSError:  # nobody listens: not even the interpreter's last flush shall complain
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


@app.callback(invoke_without_command=True)
def _about(
    *, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False
) -> None:
    if version:
        print(f"penstock {__version__}")  # noqa: T201
        raise typer.Exit


@app.command()
def join(  # noqa: PLR0913 - one parameter an option
    left: Left,
    right: Right,
    *,
    on: On,
    time: Time,
    window: Window,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the joined rows here: .csv, .parquet or .arrow.", metavar="FILE"),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Write what was shed here: .parquet or .arrow.", metavar="FILE")
    ] = None,
    memory: Annotated[
        str, typer.Option(help='Rows kept over both sides, or bytes ("512MB"); none: exact.', metavar="SIZE")
    ] = "none",
    split: Annotated[
        str, typer.Option(help="shared (one pool), fixed (half each), or left+right rows: 300+100.")
    ] = "shared",
    policy: Annotated[
        str, typer.Option(help="Who is given up: name, or name:option=value,...", metavar="POLICY")
    ] = "auto",
    lateness: Lateness = "0",
    importance: Importance = None,
    combine: Combine = "min",
    per_key: PerKey = None,
    seed: Seed = 0,
    mode: Annotated[
        str, typer.Option(help="shed, or observe: return every pair and say what the budget would cost.")
    ] = "shed",
    as_json: AsJson = False,
) -> None:
    """Join two files, streaming, inside a memory budget."""
    from penstock.engine.replay import replay
    from penstock.operator.join import settings_of

    settings = settings_of(
        {
            **_common(on, time, window, lateness, importance),
            "memory": memory_of(memory),
            "split": split_of(split),
            "policy": policy_of(policy),
            "combine": combine,
            "per_key": per_key,
            "seed": seed,
            "mode": mode,
        }
    )
    with _progress("joining") as progress:
        done = replay(left, right, settings, out=out, ledger=ledger, progress=progress)
    if as_json:
        paths = {"left": left, "right": right, "out": out, "ledger": ledger}
        first = {"first": done.first.to_pylist()} if out is None else {}
        _answer({**done.report.to_dict(), "seconds": done.seconds, "paths": paths, **first})
        return
    screen = _screen()
    if out is None and done.rows:
        shown = (
            f"The first {done.first.num_rows} of {done.rows:,} rows"
            if done.rows > done.first.num_rows
            else "The result"
        )
        names = done.first.column_names
        screen.print(_table(shown, names, [list(row.values()) for row in done.first.to_pylist()]))
    _show_report(screen, done.report)
    arrivals = done.report.arrivals.total
    screen.print(f"{done.seconds:.2f} s, {arrivals / max(done.seconds, 1e-9):,.0f} rows a second")
    for what, path in (("joined rows", out), ("ledger", ledger)):
        if path is not None:
            screen.print(f"{what}: {path}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def compare(  # noqa: PLR0913 - one parameter an option
    left: Left,
    right: Right,
    *,
    on: On,
    time: Time,
    window: Window,
    policies: Annotated[
        str, typer.Option(help="Policies to compare, also with options: rand,prob:statistics=window,optimum,exact.")
    ],
    memory: Annotated[str, typer.Option(help="Budgets to compare: 100,200 or 1MB,2MB.", metavar="SIZES")],
    split: Annotated[str, typer.Option(help="Splits to compare: shared,fixed,300+100.")] = "shared",
    count_from: Annotated[
        str | None,
        typer.Option(help="Count pairs from this time on: a tick, or 2025-01-31T12:00.", metavar="TIME"),
    ] = None,
    lateness: Lateness = "0",
    importance: Importance = None,
    combine: Combine = "min",
    per_key: PerKey = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Score policies and budgets side by side, in one pass over two files."""
    from penstock.engine import compare as comparing
    from penstock.operator.join import settings_of
    from penstock.streams import files

    given = _common(on, time, window, lateness, importance)
    settings = settings_of({**given, "combine": combine, "per_key": per_key, "seed": seed})
    contenders = policies_of(policies)
    sizes = [memory_of(word) for word in memory.split(",")]
    splits = [split_of(word) for word in split.split(",")]
    start = None if count_from is None else moment_of(count_from)
    tables = files.read(left), files.read(right)
    with _progress("comparing") as progress:
        scores = comparing.compare(
            *tables,
            settings,
            policies=contenders,
            memory=sizes,
            splits=splits,
            count_from=start,
            progress=progress,
        )
    if as_json:
        _answer({"scores": scores.to_pylist(), "paths": {"left": left, "right": right}})
    else:
        _screen().print(_scores(scores, "Pairs found", importance=importance is not None))


@app.command()
def advise(  # noqa: PLR0913 - one parameter an option
    left: Left,
    right: Right,
    *,
    on: On,
    time: Time,
    window: Window,
    recall: Annotated[
        str, typer.Option(help="Shares of the pairs to find: 0.95 or 0.5,0.8.", metavar="SHARES")
    ] = "0.95",
    policy: Annotated[
        str, typer.Option(help="Policies, also with options: rand,prob:statistics=window.", metavar="POLICIES")
    ] = "auto",
    split: Annotated[str, typer.Option(help="shared (one pool) or fixed (half each).")] = "shared",
    sample: Annotated[
        float | None, typer.Option(help="Share of the rows to look at; 1 is a full simulation.", metavar="SHARE")
    ] = None,
    lateness: Lateness = "0",
    importance: Importance = None,
    combine: Combine = "min",
    per_key: PerKey = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Say how much memory it takes to find a share of the pairs of two files, from a sample."""
    from penstock import api
    from penstock.streams import files

    given = _common(on, time, window, lateness, importance)
    wanted = [share_of(word) for word in recall.split(",")]
    policies = policies_of(policy)
    tables = files.read(left), files.read(right)
    with _progress("simulating"):
        advice = api.advise(
            *tables,
            **given,
            recall=wanted,
            policy=policies,
            split=split_of(split),
            sample=sample,
            combine=combine,
            per_key=per_key,
            seed=seed,
        )
    if as_json:
        _answer({**advice.to_dict(), "paths": {"left": left, "right": right}})
        return
    screen = _screen()
    rows = [
        [row["policy"], f"{row['recall']:.0%}", f"{row['memory']:,}", f"{row['low']:,}-{row['high']:,}"]
        for row in advice.needs.to_pylist()
    ]
    screen.print(_table("Memory it takes", ["policy", "recall", "rows", "95 %"], rows))
    screen.print(f"exact: {advice.exact:,} rows; looked at {advice.share:.1%} of the rows ({advice.how})")


@app.command()
def refine(  # noqa: PLR0913 - one parameter an option
    archive: Annotated[
        list[Path],
        typer.Argument(
            metavar="ARCHIVE",
            help="Either a job file, or the folder that pen.write wrote, or the two files that were joined.",
        ),
    ],
    *,
    ledger: Annotated[
        Path | None, typer.Option(help="What was shed: the folder beside it, or a file.", metavar="PATH")
    ] = None,
    on: Annotated[str | None, ON] = None,
    time: Annotated[str | None, TIME] = None,
    window: Annotated[str | None, WINDOW] = None,
    into: Annotated[
        Path | None,
        typer.Option(
            help="Where missing rows go: a folder, to which what is new is added, or a file.", metavar="PATH"
        ),
    ] = None,
    lateness: Annotated[str | None, LATENESS] = None,
    importance: Importance = None,
    combine: Annotated[str | None, COMBINE] = None,
    batches: Annotated[
        int | None,
        typer.Option(help="Of folders and jobs: how many micro-batches make a part; default 100, or the job's."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Of folders and jobs: remove archived rows that only rows later than this need.", metavar="SPAN"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find exactly the rows that a bounded join missed, from its inputs and its ledger; a job file says which."""
    if len(archive) == 1 and archive[0].suffix == ".toml":
        words = {"ledger": ledger, "on": on, "time": time, "window": window, "into": into}
        words |= {"lateness": lateness, "importance": importance, "combine": combine}
        for name, word in words.items():
            if word is not None:
                raise InputError(name, str(word), "the job file says it: leave it out")
        _refine_job(archive[0], batches=batches, keep=keep, as_json=as_json)
        return
    shed = _needed("ledger", ledger)
    keys, clock, span = _needed("on", on), _needed("time", time), _needed("window", window)
    given = {**_common(keys, clock, span, lateness or "0", importance), "combine": combine or "min"}
    if len(archive) == 1:
        _refine_folder(archive[0], shed, into, given, batches=batches or 100, keep=keep, as_json=as_json)
        return
    from penstock import api
    from penstock.streams import files

    for name, option in (("keep", keep), ("batches", batches)):
        if option is not None:
            raise InputError(name, repr(option), "it is for jobs, and for the folder that pen.write wrote")
    with _progress("refining"):
        rest = api.refine(archive=tuple(archive), ledger=shed, **given)
        if into is not None:
            with files.writer(into, rest.schema) as file:
                file.write(rest)
    if as_json:
        first = {"first": rest[:SHOWN].to_pylist()} if into is None else {}
        paths = {"archive": archive, "ledger": shed, "into": into}
        _answer({"rows": rest.num_rows, "paths": paths, **first})
        return
    screen = _screen()
    if into is None and rest.num_rows:
        rows = [list(row.values()) for row in rest[:SHOWN].to_pylist()]
        screen.print(_table("The first of the rows that were missing", rest.column_names, rows))
    screen.print(f"{rest.num_rows:,} rows were missing" + ("" if into is None else f": {into}"), soft_wrap=True)


def _needed(name: str, word: T | None) -> T:
    if word is None:
        raise InputError(name, "nothing", f"give --{name}, or a job file that says it")
    return word


def _refine_folder(
    archive: Path,
    ledger: Path,
    into: Path | None,
    given: dict[str, Any],
    *,
    batches: int,
    keep: str | None,
    as_json: bool,
) -> None:
    """Refine what ``penstock.write`` wrote, on a Spark of this machine."""
    from penstock.operator.join import settings_of

    if into is None:
        raise InputError("into", "nothing", "name a folder for the missing rows")
    settings = settings_of(given)
    _spark_there("archive", archive)
    from penstock.spark import live
    from penstock.spark import refine as refining

    span = None if keep is None else span_of(keep)
    with _progress("refining", "micro-batches") as progress, live.local_spark() as spark:
        done = refining.refine_into(
            str(archive), str(ledger), str(into), settings, spark=spark, batches=batches, keep=span, progress=progress
        )
    _show_refined(done, {"archive": archive, "ledger": ledger, "into": into}, as_json=as_json)


def _refine_job(file: Path, *, batches: int | None, keep: str | None, as_json: bool) -> None:
    """Refine what a job wrote, on a Spark of this machine; what is given goes before what the file says."""
    from penstock.jobs import parsing

    job = parsing.repaired(parsing.load(file), batches=batches, keep=keep)
    _spark_there("job", file)
    from penstock.jobs import running
    from penstock.spark import live

    with (
        _progress("refining", "micro-batches") as progress,
        live.local_spark(job.spark.memory, running.options(job)) as spark,
    ):
        done = running.refine(job, spark, progress)
    paths = {"archive": job.archive, "ledger": job.ledger, "into": job.refine and job.refine.into}
    _show_refined(done, paths, as_json=as_json)


def _show_refined(done: "Refined", paths: dict[str, Any], *, as_json: bool) -> None:
    rows, into = sum(part.rows for part in done.parts), paths["into"]
    if as_json:
        parts = [part._asdict() for part in done.parts]
        _answer({"rows": rows, "parts": parts, "removed": done.removed, "paths": paths})
        return
    screen = _screen()
    if done.parts:
        reach = f"micro-batches {done.parts[0].first} to {done.parts[-1].last}"
        screen.print(f"{rows:,} rows were missing from {reach}: {into}", soft_wrap=True)
    else:
        screen.print(f"nothing new to refine: {into}", soft_wrap=True)
    if done.removed:
        screen.print(f"removed from the archive: {len(done.removed)} micro-batches")


@app.command("run")
def run_job(
    job: Annotated[Path, typer.Argument(metavar="JOB.toml", help="The job file: docs/jobs.md says what is in it.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, say what would be done and the memory it would take.")
    ] = False,
    dashboard: Watched = True,
    port: Port = None,
    show_keys: Annotated[
        bool, typer.Option("--show-keys", help="Let the dashboard show which keys are shed most: they are data.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run a join that is written down in a file, on Spark, until its streams end or Ctrl-C."""
    from penstock.jobs import parsing

    found = parsing.load(job)
    _spark_there("job", job)
    from penstock.jobs import planning, running
    from penstock.operator.settings import Settings
    from penstock.spark import live

    screen = _screen()
    ledger = _ledger_of(found) if show_keys else None

    def show(number: int, rows: Any) -> None:
        if not as_json:
            names = rows.column_names
            screen.print(_table(f"Micro-batch {number}", names, [list(row.values()) for row in rows.to_pylist()]))

    if dry_run:
        with live.local_spark(found.spark.memory, running.options(found)) as spark:
            _show_forecast(screen, found.name, planning.forecast(found, spark), as_json=as_json)
        return
    with (
        _recorded(found.checkpoint, dashboard=dashboard, port=port) as history,
        live.local_spark(found.spark.memory, running.options(found)) as spark,
        _progress(found.name, "micro-batches") as progress,
        _asked_to_stop() as stop,
    ):

        def watch(batch: Any) -> None:
            progress(batch.batchId + 1, None)
            if history is not None:
                _record(history, found, batch, ledger)

        done = running.run(found, spark, stop=stop, show=show, watch=watch)
    if as_json:
        _answer({"job": found.name, **done.to_dict()})
        return
    if done.report is None:
        screen.print("nothing new came")
    elif isinstance(found.settings, Settings):
        _show_report(screen, done.report)
    else:
        screen.print(str(done.report), markup=False, highlight=False, soft_wrap=True)
    end = "stopped; run it again to go on" if done.stopped else "ended"
    screen.print(f"{found.name}: {end}, after {done.batches} micro-batches and {done.seconds:.1f} s", markup=False)
    if running.waits(found):
        screen.print("rows newer than the watermark wait: they are joined when newer ones come", markup=False)


@contextmanager
def _recorded(checkpoint: str | None, *, dashboard: bool, port: int | None) -> "Iterator[History | None]":
    """Keep a history next to its checkpoint, if that is here; with a dashboard, show it while it grows."""
    from penstock.dashboard.history import ENDING, History, beside

    place = None if checkpoint is None else beside(checkpoint)
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        history = History(Path(folder) / f"job{ENDING}" if place is None else place)
        with _shown(history, port) if dashboard else nullcontext():
            yield history if dashboard or place is not None else None
    if history.lost:
        _aside(f"{history.path}: {history.lost} moments could not be written")


@contextmanager
def _shown(history: "History", port: int | None) -> Iterator[None]:
    """Serve a page on a history. Where nobody asked for a port and none can be had, go on without."""
    from penstock.dashboard.history import Histories
    from penstock.dashboard.server import Dashboard

    try:
        served = Dashboard(Histories([history.path]), port=port)
    except InputError as error:
        if port is not None:
            raise
        _aside(f"no dashboard: {error}")
        yield
        return
    with served:
        _show_address(served)
        yield


def _ledger_of(job: "Job") -> Path:
    """Return the ledger of a job, to read what it has shed."""
    from penstock.dashboard.history import here
    from penstock.streams.sets import Condition

    ledger = None if job.ledger is None else here(job.ledger)
    if isinstance(job.settings.on, Condition) or not job.settings.on:
        got = f"a join on {job.settings.on}" if job.settings.on else "a join of all with all"
        raise InputError("show_keys", got, "it has no keys: leave it out")
    if ledger is None:
        want = "keys are read from the ledger: add [ledger] with a path on this machine, or leave --show-keys out"
        raise InputError("show_keys", job.ledger or "a job without a ledger", want)
    return ledger


def _record(history: "History", job: "Job", batch: Any, ledger: Path | None) -> None:
    """Add a micro-batch to the history, with the keys it shed if there is a ledger to show.

    What goes wrong is counted: nothing that is only shown ends a job.
    """
    try:
        for moment in _moments(job, batch, ledger):
            history.add(moment)
    except Exception:  # noqa: BLE001 - whatever it is
        history.lost += 1


def _moments(job: "Job", batch: Any, ledger: Path | None) -> "Iterator[Point]":
    """Yield what a micro-batch has to tell; one without rows has nothing."""
    from penstock.dashboard.history import KEYS, point
    from penstock.jobs.shed import keys_shed
    from penstock.spark.books import reports_in

    seconds = batch.batchDuration / 1000
    ended = datetime.fromisoformat(batch.timestamp).timestamp() + seconds
    newest = None if job.replayed else batch.eventTime.get("max")
    lag = None if newest is None else max(0.0, ended - datetime.fromisoformat(newest).timestamp())
    budget = job.settings.memory if isinstance(job.settings.memory, int) else None
    about = {"batch": batch.batchId, "time": ended, "seconds": seconds, "lag": lag, "budget": budget}
    for report in reports_in(batch):
        keys = None if ledger is None else keys_shed(ledger, batch.batchId, job.settings, KEYS)
        yield point(job.name, report, **about, keys=keys)


@app.command("dashboard")
def show_dashboard(
    histories: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLACE...", help="Files that penstock run wrote beside checkpoints, or their folders."
        ),
    ],
    *,
    port: Port = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; any but this machine's own takes a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option(
            help="What readers must bring; elsewhere than on this machine one is drawn.",
            envvar="PENSTOCK_DASHBOARD_TOKEN",
            show_envvar=True,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what jobs do, or did: a page for browsers, and metrics for Prometheus, until Ctrl-C."""
    from penstock.dashboard.history import Histories, there
    from penstock.dashboard.server import Dashboard

    with (
        Dashboard(Histories(there(histories)), host=host, port=port, token=token) as served,
        _asked_to_stop() as stop,
    ):
        if as_json:
            _answer({"url": served.url, "link": served.link, "port": served.port, "token": served.token})
            sys.stdout.flush()
        else:
            _show_address(served)
        stop.wait()


def _show_address(served: "Dashboard") -> None:
    """Say where a dashboard is."""
    _aside(f"dashboard: {served.link}")


def _aside(words: str) -> None:
    """Say something on standard error: standard output is the command's."""
    Console(stderr=True).print(words, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def _asked_to_stop() -> Iterator[threading.Event]:
    """Turn Ctrl-C and SIGTERM into a word to those who look at it: a query is stopped between two of its calls.

    A signal may come while the event is being looked at, and its lock held: another thread sets it.
    """
    asked = threading.Event()
    came: SimpleQueue[bool] = SimpleQueue()

    def listen() -> None:
        if came.get():
            asked.set()

    setter = threading.Thread(target=listen, daemon=True)
    setter.start()
    before = {each: signal.signal(each, lambda *_: came.put(True)) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        came.put(False)
        setter.join()


def _spark_there(argument: str, path: Path) -> None:
    if find_spec("pyspark") is None:
        raise InputError(argument, str(path), "this runs on Spark: pip install 'penstock[spark]'")


def _show_forecast(screen: Console, name: str, seen: "Forecast", *, as_json: bool) -> None:
    if as_json:
        _answer({"job": name, **seen.to_dict()})
        return
    sources = [
        [each, what["side"], what["format"], what["watermark"], ", ".join(what["columns"])]
        for each, what in seen.sources.items()
    ]
    screen.print(_table(name, ["source", "side", "format", "watermark", "columns"], sources))
    needs = []
    for each, what in seen.sources.items():
        rows = "unknown" if what["window_rows"] is None else f"{what['window_rows']:,}"
        needs.append(f"{each} {rows} ({what['window_known']})")
    lines = {
        "join": ", ".join(f"{key}={value}" for key, value in seen.join.items()),
        **({} if seen.order is None else {"order": seen.order}),
        "rows in windows": "; ".join(needs),
        "result": ", ".join(f"{key} {value}" for key, value in seen.columns.items()),
        "sink": ", ".join(f"{key}={value}" for key, value in seen.sink.items()),
        "checkpoint": seen.checkpoint or "none: every run begins anew",
        "trigger": seen.trigger,
    }
    for key, value in lines.items():
        screen.print(f"{key}: {value}", markup=False, soft_wrap=True)
    most = "at most " if seen.at_most else ""
    need = "unknown: it depends on the rates" if seen.window_rows is None else f"{most}{seen.window_rows:,} rows"
    if seen.memory_bytes is None:
        kept = "as many rows as the windows need"
    else:
        kept = f"{seen.memory_rows or 0:,} rows of about {seen.row_bytes} bytes, {seen.memory_bytes / 1e6:,.1f} MB"
    screen.print(f"memory: keeps {kept}, on {seen.shards} shards; the windows need {need}", soft_wrap=True)


@app.command()
def plan(  # noqa: PLR0913 - one parameter an option
    streams: Annotated[
        list[str],
        typer.Argument(
            metavar="STREAM...",
            help="Either NAME:rate=10,window=100,distinct=500 for each, also with buckets= and price=; "
            "or files, as samples: a.csv, or NAME=a.csv.",
        ),
    ],
    *,
    join: Annotated[str, typer.Option(help="nested, or hash: windows with buckets are indexed.")] = "nested",
    every: Annotated[str | None, typer.Option(help="Evaluate lazily, once in this interval.", metavar="SPAN")] = None,
    order: Annotated[
        str | None, typer.Option(help="Price this order: a,b,c; or heuristic, the paper's.", metavar="NAMES")
    ] = None,
    algorithm: Annotated[str, typer.Option(help="auto, naive, eager, lazy or general.")] = "auto",
    memory: Annotated[int | None, typer.Option(help="Hash buckets to share out.", metavar="BUCKETS")] = None,
    costs: Annotated[int, typer.Option(help="List so many of the cheapest orders.", metavar="ORDERS")] = 0,
    on: Annotated[str | None, typer.Option(help="Of files: key columns, k or k,k2.", metavar="COLUMNS")] = None,
    time: Annotated[str | None, typer.Option(help="Of files: time column.", metavar="COLUMN")] = None,
    window: Annotated[
        str | None, typer.Option(help='Of files: 400 (ticks), "10 minutes", "400 rows".', metavar="SPAN")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the order in which several windows are best joined, from statistics or from samples."""
    from penstock import api

    known = [stream_of(word) for word in streams if STATISTICS.search(word)]
    if known and len(known) < len(streams):
        raise InputError("streams", repr(streams), "give statistics for all streams, or files for all")
    made = api.plan(
        known or samples_of(streams),
        join=join,
        evaluation="eager" if every is None else api.every(length_of(every)),
        order=order if order is None or "," not in order else [name.strip() for name in order.split(",")],
        algorithm=algorithm,
        memory=memory,
        on=None if on is None else on_of(on),
        time=time,
        windows=None if window is None else span_of(window),
    )
    listed = made.costs()[:costs].to_pylist() if costs else []
    if as_json:
        _answer({**made.to_dict(), **({"costs": listed} if costs else {})})
        return
    screen = _screen()
    screen.print(str(made), markup=False, soft_wrap=True)
    if listed:
        rows = [
            [*(row.get("new", "") and [row["new"]]), ", ".join(row["order"]), f"{row['cost']:,.6g}"] for row in listed
        ]
        screen.print(_table("Orders", [*(["new"] if "new" in listed[0] else []), "order", "cost"], rows))


@app.command()
def optimum(  # noqa: PLR0913 - one parameter an option
    left: Left,
    right: Right,
    *,
    on: On,
    time: Time,
    window: Window,
    memory: Annotated[str, typer.Option(help="Rows kept over both sides.", metavar="ROWS")],
    split: Annotated[str, typer.Option(help="shared, fixed, or rows for each side: 300+100.")] = "shared",
    objective: Annotated[str, typer.Option(help="What to have the most of: count or importance.")] = "count",
    importance: Importance = None,
    combine: Combine = "min",
    count_from: Annotated[
        str | None,
        typer.Option(help="Count pairs from this time on: a tick, or 2025-01-31T12:00.", metavar="TIME"),
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="Be content with the best after so many seconds.", metavar="SECONDS")
    ] = None,
    schedule: Annotated[
        Path | None, typer.Option(help="Write who stays until when to this file.", metavar="FILE")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the best that any policy could have done with two files, and prove it."""
    from penstock.engine import offline
    from penstock.operator.join import settings_of
    from penstock.streams import files

    given = _common(on, time, window, "0", importance)
    settings = settings_of({**given, "combine": combine, "memory": memory_of(memory), "split": split_of(split)})
    start = None if count_from is None else moment_of(count_from)
    tables = files.read(left), files.read(right)
    with _progress("solving"):
        best = offline.optimum(*tables, settings, objective=objective, count_from=start, time_limit=time_limit)
    if schedule is not None:
        with files.writer(schedule, best.schedule.schema) as sink:
            sink.write(best.schedule)
    if as_json:
        _answer({**best.to_dict(), "paths": {"left": left, "right": right, "schedule": schedule}})
        return
    screen = _screen()
    unit = "pairs" if objective == "count" else "importance"
    proved = "proved" if best.gap == 0 else f"at most {best.bound:,.6g}: a gap of {best.gap:.3%}"
    value = f"{best.value:,}" if objective == "count" else f"{best.value:,.6g}"
    screen.print(f"{value} {unit} ({proved}), keeping {best.schedule.num_rows:,} rows, in {best.seconds:.1f} s")
    if schedule is not None:
        screen.print(f"schedule: {schedule}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def figure(
    name: Annotated[str | None, typer.Argument(metavar="PAPER/N", help="Which figure, e.g. das2003/3.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All of them, on one page with their claims.")] = False,
    out: Annotated[Path, typer.Option(help="Write PNG and JSON into this folder.", metavar="DIR")] = Path("figures"),
    quick: Annotated[bool, typer.Option("--quick", help="A quarter of the length, for the shape.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure a figure of one of the papers anew, and draw it; or all of them."""
    from penstock.report import figures as drawing
    from penstock.report import gallery
    from penstock.report.papers import registry

    drawing.ready()
    if everything:
        if name is not None:
            raise InputError("figure", f"{name!r} and --all", "give one of them")
        with _progress("measuring", "figures") as progress:
            made = gallery.gather(out, progress, quick=quick)
        if as_json:
            _answer({"page": made.page, "figures": list(made.figures), "missing": made.missing})
            return
        for lost, reason in made.missing.items():
            _screen().print(f"not measured: {lost} ({reason})", markup=False, highlight=False, soft_wrap=True)
        _screen().print(str(made.page), markup=False, highlight=False, soft_wrap=True)
        return
    if name is None:
        raise InputError("figure", "nothing", f"give --all, or one of {', '.join(registry.names())}")
    with _progress(f"measuring {name}", "measurements") as progress:
        shown = registry.figure(name, quick=quick, progress=progress)
    paths = drawing.save(shown, out)
    if as_json:
        _answer({**shown.to_dict(), "paths": paths})
        return
    screen = _screen()
    step = max(1, len(shown.x) // 12)  # of long curves only some points
    rows = [[f"{value:,.6g}" for value in point] for point in zip(shown.x, *shown.curves.values(), strict=True)]
    screen.print(_table(f"{shown.name}: {shown.title}", [shown.x_label, *shown.curves], rows[::step]))
    for path in paths:
        screen.print(str(path), markup=False, highlight=False, soft_wrap=True)


@app.command()
def warmup(*, as_json: AsJson = False) -> None:
    """Compile every kernel now, so that no later run has to wait for that."""
    begin = time.perf_counter()
    from penstock.engine import warmup as warming

    done = _warm(warming.names())
    total = time.perf_counter() - begin
    if as_json:
        _answer({"folder": done.folder, "kept": done.kept, "seconds": done.seconds, "total": total})
        return
    screen = _screen()
    rows = [[name, f"{seconds:.2f}"] for name, seconds in done.seconds.items()]
    screen.print(_table("Kernels", ["policy", "seconds"], rows))
    where = f"kept in {done.folder}" if done.kept else f"nothing could be kept in {done.folder}: see penstock doctor"
    screen.print(f"ready in {total:.1f} s; {where}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def doctor(
    *,
    spark: Annotated[bool, typer.Option("--spark", help="Also start a local Spark and join a few rows.")] = False,
    as_json: AsJson = False,
) -> None:
    """Look at the machine and the installation, and say what is wrong."""
    from penstock.report.doctor import examine

    findings = examine(spark=spark)
    fine = all(finding.fine for finding in findings)
    if as_json:
        _answer({"fine": fine, "version": __version__, "findings": [finding.to_dict() for finding in findings]})
    else:
        screen = _screen()
        rows = [["ok" if finding.fine else "WRONG", finding.name, finding.found] for finding in findings]
        screen.print(_table(f"Penstock {__version__}", ["", "", "found"], rows))
        for finding in findings:
            if not finding.fine:
                screen.print(f"{finding.name}: {finding.advice}", markup=False, highlight=False, soft_wrap=True)
        if fine:
            screen.print("all well")
    if not fine:
        raise typer.Exit(BROKEN)


@app.command()
def demo(  # noqa: PLR0913 - one parameter an option
    *,
    rows: Annotated[int, typer.Option(help="Rows on each side.")] = 200_000,
    memory: Annotated[str, typer.Option(help='The budget: rows, or bytes ("1MB").', metavar="SIZE")] = "2000",
    seed: Annotated[int, typer.Option(help="Of the two streams.")] = 0,
    policy: Annotated[str, typer.Option(help="Who is given up: name, or name:option=value,...")] = "auto",
    seconds: Annotated[
        float | None,
        typer.Option(help="How long the streams take to arrive; default 15 on Spark, 6 on a terminal, else 0."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Where it runs: spark, or embedded; default spark where it is installed.")
    ] = None,
    dashboard: Watched = True,
    port: Port = None,
    as_json: AsJson = False,
) -> None:
    """Watch a join of two live streams survive a surge, and see what the budget cost."""
    from penstock.engine import warmup as warming
    from penstock.policies.registry import resolve
    from penstock.report import demo as showing

    chosen, budget = resolve(policy_of(policy)), memory_of(memory)
    if budget is None:
        raise BudgetError("memory", repr(memory), "give the demo a budget, e.g. 2000")
    screen = _screen()
    live = screen.is_terminal and not as_json
    where = engine or ("spark" if find_spec("pyspark") else "embedded")
    watched = live or where == "spark"
    pace = (LIVE_SECONDS.get(where, 0.0) if watched else 0.0) if seconds is None else seconds
    showing.checked(engine=where, rows=rows, memory=budget, seed=seed, policy=chosen, seconds=pace)
    wanted = dict.fromkeys(name for name in (warming.name_of(chosen), *showing.RIVALS[where]) if name is not None)
    cold = [name for name in wanted if not warming.is_warm(name)]
    begin = time.perf_counter()
    _warm(list(wanted))
    if cold and not as_json:
        screen.print(f"compiled for the first time in {time.perf_counter() - begin:.0f} s; later runs start at once")
    display = _Display(screen, rows=rows, memory=memory, window=showing.WINDOW, policy=str(chosen)) if live else None
    with _recorded(None, dashboard=dashboard and pace > 0, port=port) as history, display or nullcontext():

        def watch(moment: "Moment") -> None:
            if display is not None:
                display.show(moment)
            if history is not None:
                _remember(history, moment, budget)

        shown = showing.demo(
            engine=where, rows=rows, memory=budget, seed=seed, policy=chosen, seconds=pace, watch=watch
        )
    if as_json:
        _answer(shown.to_dict())
    else:
        _show_demo(screen, shown)


def _remember(history: "History", moment: "Moment", budget: int | str) -> None:
    """Add a moment of the demo to its history."""
    from penstock.dashboard.history import point

    limit = budget if isinstance(budget, int) else None
    history.add(
        point("demo", moment.report, batch=moment.number, time=time.time(), seconds=moment.seconds, budget=limit)
    )


# --- words --------------------------------------------------------------------------------------------------


def _common(on: str, time: str, window: str, lateness: str, importance: str | None) -> dict[str, Any]:
    return {
        "on": on_of(on),
        "time": pair_of("time", time),
        "window": window_of(window),
        "lateness": span_of(lateness),
        "importance": None if importance is None else pair_of("importance", importance),
    }


def on_of(word: str) -> Any:
    """Return what `on=` takes: "k", ["k", "k2"], ("l", "r") or [("l", "r"), ...]."""
    columns = [pair_of("on", part) for part in word.split(",")]
    if any(isinstance(column, str) for column in columns) and any(isinstance(column, tuple) for column in columns):
        raise ColumnError("on", repr(word), "write left=right for every column, or for none")
    return columns[0] if len(columns) == 1 else columns


def pair_of(argument: str, word: str) -> str | tuple[str, str]:
    """Return a column name, or one for each side from "left=right"."""
    parts = word.split("=")
    if len(parts) > 2 or not all(parts):
        raise ColumnError(argument, repr(word), "write a column name, or left=right")
    return (parts[0], parts[1]) if len(parts) == 2 else word


def window_of(word: str) -> Any:
    """Return what `window=` takes: a span, or a pair of them from "a,b"."""
    parts = [span_of(part) for part in word.split(",")]
    return parts[0] if len(parts) == 1 else tuple(parts)


def span_of(word: str) -> Any:
    """Return ticks, rows or a span of time."""
    from penstock.streams.times import Rows

    number = _whole(word)
    if number is not None:
        return number
    rows = re.fullmatch(r"\s*(.*?)\s*rows?\s*", word)
    count = _whole(rows[1]) if rows else None
    return word.strip() if count is None else Rows(count)


def length_of(word: str) -> float | str:
    """Return a length of time: a number, or a span in words."""
    try:
        return float(word)
    except ValueError:
        return word


def stream_of(word: str) -> "Stream":
    """Return the stream that "NAME:rate=10,window=100,distinct=500" stands for."""
    from penstock.planner.statistics import Stream

    name, _, rest = word.partition(":")
    given: dict[str, Any] = {}
    for part in rest.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in STREAM or not equals or key in given:
            raise InputError("streams", repr(word), f"write NAME:rate=10,window=100,distinct=500; also {STREAM[3:]}")
        span = span_of(value)
        given[key] = length_of(span) if isinstance(span, str) else span
    missing = [key for key in STREAM[:3] if key not in given]
    if missing:
        raise InputError(missing[0], f"nothing in {word!r}", "every stream needs rate=, window= and distinct=")
    return Stream(name.strip(), **given)


def samples_of(words: Sequence[str]) -> dict[str, Any]:
    """Return the tables in files, by the names given, or those of the files."""
    from penstock.streams import files

    tables: dict[str, Any] = {}
    for word in words:
        name, equals, path = word.rpartition("=")
        name = name if equals else Path(path).stem
        if name in tables:
            raise InputError("streams", f"{name!r} twice", "give each stream a name of its own: NAME=FILE")
        tables[name] = files.read(Path(path))
    return tables


def memory_of(word: str) -> int | str | None:
    """Return what `memory=` takes: rows, bytes, or None."""
    number = _whole(word)
    if number is not None:
        return number
    return None if word.strip().lower() == "none" else word


def split_of(word: str) -> str | tuple[int, ...]:
    """Return what `split=` takes; "300+100" is (300, 100)."""
    parts = [_whole(part) for part in re.split(r"[+,]", word)]
    numbers = tuple(part for part in parts if part is not None)
    return numbers if len(numbers) == len(parts) > 1 else word


def policy_of(word: str) -> "str | Policy":
    """Return what `policy=` takes, from "name" or "name:option=value,..."."""
    name, colon, rest = word.partition(":")
    if not colon:
        return word
    from penstock.policies import registry

    options: dict[str, object] = {}
    for option in rest.split(","):
        key, equals, value = option.partition("=")
        if not equals or not key:
            raise PolicyError("policy", repr(word), "write name:option=value,option=value")
        number = _whole(value)
        options[key.strip()] = value.strip() if number is None else number
    return registry.policy(name, **options)


def policies_of(words: str) -> "list[str | Policy]":
    """Return a list of policies; a part with "=" but no name belongs to the policy before it."""
    found: list[str] = []
    for word in words.split(","):
        if "=" in word and ":" not in word and found:
            found[-1] += f",{word}"
        else:
            found.append(word)
    return [policy_of(word.strip()) for word in found]


def share_of(word: str) -> float:
    """Return a share between 0 and 1."""
    try:
        return float(word)
    except ValueError as error:
        raise BudgetError("recall", repr(word), "give a share between 0 and 1, e.g. 0.95") from error


def moment_of(word: str) -> int | datetime:
    """Return a tick, or a date and time."""
    number = _whole(word)
    if number is not None:
        return number
    try:
        return datetime.fromisoformat(word)
    except ValueError as error:
        raise TimeError("count_from", repr(word), "give a tick, or a time such as 2025-01-31T12:00") from error


def _whole(word: str) -> int | None:
    try:
        return int(word)
    except ValueError:
        return None


# --- screen -------------------------------------------------------------------------------------------------


def _answer(document: object) -> None:
    """Print one JSON document."""
    print(json.dumps(_plain(document), indent=2, allow_nan=False))  # noqa: T201


def _plain(value: object) -> object:
    """Return a value that JSON holds; what it does not hold becomes a string, and NaN becomes null."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _screen() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=WIDE)


@contextmanager
def _progress(what: str, unit: str = "rows") -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar on the terminal, on standard error, and nothing in a pipe."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
    )
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task: TaskID = bar.add_task("loading kernels (a first run compiles them)", total=None, count="")

        def show(done: int, total: int | None) -> None:
            bar.update(task, description=what, completed=done, total=total, count=f"{done:,} {unit}")

        yield show


def _warm(chosen: Sequence[str]) -> Any:
    """Compile or load kernels, with a bar on the terminal."""
    from penstock.engine import warmup as warming

    console = Console(stderr=True)
    cold = [name for name in chosen if not warming.is_warm(name)]
    what = f"compiling {len(cold)} kernels, once: later runs start at once" if cold else "loading kernels"
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=len(chosen))
        return warming.warm(chosen, tell=lambda _name, _seconds, done, _total: bar.update(task, completed=done))


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Lay out a table; numbers stand to the right."""
    table = Table(title=Text(title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD)
    for at, name in enumerate(names):
        numbers = bool(rows) and all(isinstance(row[at], int | float) or _is_number(row[at]) for row in rows)
        table.add_column(Text(name), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    return table


def _is_number(cell: object) -> bool:
    return cell is None or bool(re.fullmatch(r"-?[0-9][0-9,.]*( ?%)?", str(cell)))


def _show_report(screen: Console, report: "Report") -> None:
    shed = [(f"shed ({reason})", count) for reason, count in report.shed.items() if count.total]
    books = [("arrivals", report.arrivals), ("live", report.live), ("expired", report.expired), *shed]
    rows = [[name, *(f"{count:,}" for count in (*sides, sides.total))] for name, sides in books]
    title = f"Policy {report.policy}" if report.mode == "shed" else f"What {report.policy} would have done"
    screen.print(_table(title, ["rows", "left", "right", "both"], rows))
    facts = [f"{report.pairs:,} pairs"]
    if report.importance is not None:
        facts.append(f"importance {report.importance:,.6g}")
    if report.recall is not None:
        facts.append(f"recall {report.recall_in_words}")
    facts.append(f"holding {report.memory_rows:,} rows, {report.memory_bytes / 1e6:,.1f} MB")
    screen.print(", ".join(facts))


def _scores(scores: Any, title: str, *, importance: bool) -> Table:
    names = [
        "policy",
        "split",
        "memory",
        "pairs",
        *(["importance"] if importance else []),
        "share of exact",
        "seconds",
    ]
    rows = []
    for score in scores.to_pylist():
        share = "" if score["share_of_exact"] is None else f"{score['share_of_exact']:.1%}"
        worth = [f"{score['importance']:,.6g}"] if importance else []
        size = f"{score['memory']:,}" if isinstance(score["memory"], int) else score["memory"]
        size = "" if score["policy"] == "exact" else size
        rows.append(
            [
                score["policy"],
                score["split"],
                size,
                "" if score["pairs"] is None else f"{score['pairs']:,}",
                *worth,
                share,
                f"{score['seconds']:.3f}",
            ]
        )
    return _table(title, names, rows)


def _show_demo(screen: Console, shown: "Demo") -> None:
    _show_report(screen, shown.report)
    size = f"{shown.memory:,} rows" if isinstance(shown.memory, int) else shown.memory
    arrivals = shown.report.arrivals.total
    screen.print(
        f"recall {shown.recall:.1%}: {shown.report.pairs:,} of the exact join's {shown.exact_pairs:,} pairs\n"
        f"budget {size}: held at most {shown.held_rows:,} rows, those of the open tick included; "
        f"an exact join needs {shown.exact_rows:,}"
    )
    if shown.engine == "spark":
        screen.print(f"{arrivals:,} rows, {shown.busy:.0f} s on a local Spark, its start included")
        return
    speed = arrivals / max(shown.busy, 1e-9)
    screen.print(f"{arrivals:,} rows took the join {shown.busy:.2f} s: {speed:,.0f} a second")
    rows = [
        [
            score["policy"],
            f"{score['pairs']:,}",
            f"{score['share_of_exact'] or 0:.1%}",
            _bar(score["share_of_exact"] or 0),
        ]
        for score in shown.comparison.to_pylist()
    ]
    screen.print(
        _table(f"The same streams on the same budget ({size})", ["policy", "pairs", "share of exact", ""], rows)
    )


def _bar(share: float) -> str:
    return "█" * round(30 * share) or "▏"


class _Display:
    """The demo while it runs, drawn anew at every moment."""

    def __init__(self, screen: Console, *, rows: int, memory: str, window: int, policy: str) -> None:
        self._title = f"Two streams of {rows:,} rows, a window of {window:,} ticks, memory {memory}, policy {policy}"
        self._live = Live(console=screen, auto_refresh=False, transient=True)
        self._moments: list[tuple[float, float, float]] = []

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(*error)  # type: ignore[arg-type]

    def show(self, moment: "Moment") -> None:
        """Draw a moment."""
        report = moment.report
        shed = sum(count.total for count in report.shed.values())
        self._moments.append((moment.rows_per_second, report.memory_rows, shed))
        lines = zip(
            ("arriving", "held", "shed"),
            zip(*self._moments, strict=True),
            (
                f"{moment.rows_per_second:,.0f} rows a second",
                f"{report.memory_rows:,} rows",
                f"{shed:,} rows so far",
            ),
            strict=True,
        )
        table = Table.grid(padding=(0, 2))
        for name, values, now in lines:
            table.add_row(name, Text(sparks(values, 40), style="cyan"), now)
        table.add_row("pairs", "", f"{report.pairs:,}")
        state = Text("  SURGE" if moment.surging else "  calm", style="bold red" if moment.surging else "green")
        bar = Table.grid()
        bar.add_row(
            ProgressBar(moment.total, moment.done, width=50),
            f" {moment.done / max(moment.total, 1):4.0%}",
            state,
        )
        self._live.update(Group(Text(self._title, style="bold"), bar, table), refresh=True)


def sparks(values: Sequence[float], width: int) -> str:
    """Draw numbers as a line of bars, the largest one full."""
    top = max(values, default=0) or 1
    groups = [values[len(values) * at // width : len(values) * (at + 1) // width] for at in range(width)]
    means = [sum(group) / len(group) for group in groups if group]
    return "".join(SPARKS[math.ceil(mean / top * (len(SPARKS) - 1))] for mean in means)


if __name__ == "__main__":
    command()
