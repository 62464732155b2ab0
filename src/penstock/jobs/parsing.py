"""Read a job file into checked, frozen parts; nothing is started, and no file but this one is opened."""

import difflib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import InputError, PolicyError, WindowError
from penstock.jobs.keys import (
    NAME,
    NOTHING,
    Check,
    check,
    columns,
    count,
    expression,
    flag,
    key,
    made,
    matching,
    moment,
    name,
    nearest,
    number,
    one_of,
    parts_of,
    path,
    placed,
    seed,
    several,
    shown,
    sided,
    skew,
    span,
    table,
    text,
    within,
    wrong,
)
from penstock.jobs.several import by_source, graph_of, index_of, interval_of, known_only, order_of
from penstock.operator import conditions
from penstock.operator import several as streams_of
from penstock.operator.cpu import cpu
from penstock.operator.join import settings_of
from penstock.operator.settings import COMBINE, MODES, SIDES, Settings, pair, repairable
from penstock.policies import registry
from penstock.streams.times import Clock, Rows

BIG = 1 << 20  # bytes of a job file
TRIGGERS = {"available_now": {"availableNow": True}, "once": {"once": True}}
FORMATS = ("parquet", "csv", "json", "delta", "kafka", "rate", "zipf", "replay")
SINKS = ("parquet", "kafka", "console", "table", "memory")
SERVERS = matching(r"[A-Za-z0-9._-]+:[0-9]{1,5}", "a server such as localhost:9092")
TOPIC = matching(r"[A-Za-z0-9._-]{1,249}", "a topic's name: letters, digits, dots, _ and -")
PACKAGE = matching(r"[A-Za-z0-9._-]+:[A-Za-z0-9._-]+:[A-Za-z0-9._-]+", "a package such as group:name:version")
SIZE = matching(r"[1-9][0-9]{0,6}[mg]", "a size such as 1g or 512m")
CONDITIONS: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (
        conditions.overlap,
        conditions.set_equal,
        conditions.contains,
        conditions.contained_in,
        conditions.inner_product,
        conditions.band,
    )
}
NOT_HERE = {
    "lateness": "on streams the watermark says it: set watermark in the sources",
    "how": "only inner joins: leave it out",
}
NOT_OF_SEVERAL = {
    "window": "several streams have windows: one for all, or {calls = ..., trades = ...}",
    "left": "all sources are joined, in the order of the file: leave it out",
    "right": "all sources are joined, in the order of the file: leave it out",
    "cpu": "CPU budgets are for joins of two: leave it out",
    "split": "there is one pool for all windows: leave it out",
}
ALGORITHMS = ("auto", "naive", "eager", "lazy", "general")


# --- checks of single keys -----------------------------------------------------------------------------------------


@check('columns, {left = ..., right = ...}, a list of such, or a condition such as {overlap = "words", at_least = 2}')
def keys_of(value: Any) -> Any:
    """Return what `on=` takes: a column, a list of columns, pairs of them, or a condition."""
    if isinstance(value, dict) and set(value) & set(CONDITIONS):
        return _condition(value)
    if isinstance(value, list):
        if not value or len({type(each) for each in value}) > 1:
            raise wrong(value, "give columns, or {left = ..., right = ...} for each, and at least one")
        return [sided(text)(each) for each in value]
    return sided(text)(value)


def _condition(value: dict[str, Any]) -> Any:
    """Return the condition that a table such as {overlap = "words", at_least = 2} stands for."""
    named, *more = (each for each in value if each in CONDITIONS)
    if more:
        raise wrong(value, f"give one condition, {named} or {more[0]}")
    with within(named):
        columns = sided(text)(value[named])
    return _called(CONDITIONS[named], {each: one for each, one in value.items() if each != named}, columns)


def _called(function: Callable[..., Any], given: dict[str, Any], *arguments: Any) -> Any:
    """Call a function of the public face with the options of a table, whose names are its own."""
    known = {
        each: one.default
        for each, one in inspect.signature(function).parameters.items()
        if one.kind is one.KEYWORD_ONLY
    }
    for each, one in given.items():
        if each not in known:
            with within(each):
                raise wrong(one, nearest(each, known))
    for each, default in known.items():
        if default is inspect.Parameter.empty and each not in given:
            with within(each):
                raise wrong(NOTHING, "this key is required")
    return function(*arguments, **given)


@check('a budget such as {latency = "2 seconds"}')
def cpu_of(value: Any) -> Any:
    """Return what `cpu=` takes."""
    given = dict(table(value))
    for each, one in given.items():
        with within(each):
            if each == "types":
                given[each] = sided(text)(one)
            elif each == "utility":
                table(one)
            elif isinstance(one, list | dict):
                raise wrong(one, "give a text or a number")
    return _called(cpu, given)


@check('a span such as "10 minutes", or "400 rows"')
def window_of(value: Any) -> Any:
    """Return what `window=` takes."""
    words = text(value)
    number_of, _, unit = words.strip().partition(" ")
    if unit.strip() in {"row", "rows"}:
        if not number_of.isascii() or not number_of.isdigit() or not 1 <= int(number_of[:12]) <= 2**31:
            raise WindowError("", shown(value), 'give a number of rows, as in "400 rows"')
        return Rows(int(number_of[:12]))
    if Clock(pa.timestamp("us", "UTC")).ticks("", words) < 1:
        raise WindowError("", shown(value), "a window is longer than nothing")
    return words


@check('a number of rows, or bytes such as "512MB"')
def memory_of(value: Any) -> Any:
    """Return what `memory=` takes."""
    return text(value) if isinstance(value, str) else count(value)


@check("shared, fixed, or {left = 300, right = 100}")
def split_of(value: Any) -> Any:
    """Return shared, fixed, or {left = 300, right = 100}."""
    return sided(count)(value) if isinstance(value, dict) else one_of("shared", "fixed")(value)


@check('the name of a policy, or {name = "prob", half_life = ...}')
def policy_of(value: Any) -> Any:
    """Return the policy that a name or {name = "prob", half_life = ...} stands for."""
    options = dict(value) if isinstance(value, dict) else {"name": value}
    if "name" not in options:
        raise wrong(value, 'give {name = "prob", ...} with the options of that policy')
    chosen = text(options.pop("name"))
    for option, setting in options.items():
        if not isinstance(setting, str | int | float):
            with within(option):
                raise wrong(setting, "in a job file options are texts and numbers")
        if option == "half_life":
            with within(option):
                span(setting)
    try:
        return registry.resolve(chosen) if not options else registry.policy(chosen, **options)
    except PolicyError as error:  # it names the option, or the argument that this key is
        raise PolicyError(error.argument.removeprefix("policy"), error.got, error.want) from error


@check('a span such as "10 seconds", "available_now" or "once"')
def trigger_of(value: Any) -> str:
    """Return one of the words for a trigger, or a span of time."""
    return value if isinstance(value, str) and value in TRIGGERS else span(value)


def _of_format(value: Any, kinds: Mapping[str, type[Any]]) -> Any:
    """Return the dataclass of the format that a table names."""
    given = table(value)
    with within("format"):
        if "format" not in given:
            typo = difflib.get_close_matches("format", given, n=1)
            guess = f"; is {typo[0]!r} meant to be it?" if typo else ""
            raise wrong(NOTHING, f"this key is required: one of {', '.join(kinds)}{guess}")
        chosen = one_of(*kinds)(given["format"])
    return made(kinds[chosen], given)


# --- sources -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """What all sources have: which rows and columns are taken, and how late a row may be."""

    format: str = key(one_of(*FORMATS))
    watermark: str = key(span)
    where: str | None = key(expression, None)
    select: tuple[str, ...] | None = key(several(expression), None)


@dataclass(frozen=True)
class Folder(Source):
    """A folder that grows: a Delta table, which says what its columns are, or files."""

    path: str = key(path)
    files_per_trigger: int | None = key(count, None)


@dataclass(frozen=True)
class Files(Folder):
    """A folder of Parquet, CSV or JSON files."""

    schema: str | None = key(columns, None)  # in Spark's words; None: that of the files that are there


@dataclass(frozen=True)
class Csv(Files):
    """A folder of CSV files."""

    header: bool = key(flag, True)
    separator: str = key(matching(r".|\t", "one character"), ",")


@dataclass(frozen=True)
class Kafka(Source):
    """Topics of Kafka; with a schema, their values are JSON of it."""

    servers: tuple[str, ...] = key(several(SERVERS))
    topics: tuple[str, ...] = key(several(TOPIC))
    starting: str = key(one_of("earliest", "latest"), "latest")
    schema: str | None = key(columns, None)
    rows_per_trigger: int | None = key(count, None)


@dataclass(frozen=True)
class Rate(Source):
    """Numbered rows at a steady rate: columns timestamp and value."""

    rows_per_second: int = key(count, 1)


@dataclass(frozen=True)
class Paced(Source):
    """A trace that ends, played at its own pace or a multiple."""

    speed: float | None = key(number, None)
    rows_per_trigger: int | None = key(count, None)


@dataclass(frozen=True)
class Zipf(Paced):
    """One side of a drawn workload: columns ts, key, and importance or payload where asked for."""

    rows: int = key(count)
    side: str | None = key(one_of(*SIDES), None)  # None: the side of the join on which it is
    tick: str = key(span, "1 second")
    keys: int = key(count, 50)
    skew: float = key(skew, 1.0)
    relation: str = key(one_of("uncorrelated", "correlated", "anticorrelated"), "uncorrelated")
    rate: float = key(number, 1.0)
    payload: int = key(seed, 0)
    importance: str = key(one_of("none", "rare", "special_keys"), "none")
    seed: int = key(seed, 0)


@dataclass(frozen=True)
class Replay(Paced):
    """A recorded trace in a file, in order of time."""

    path: str = key(path)
    time: str | None = key(text, None)  # None: the join's
    tick: str | None = key(span, None)  # how long one is, where time is in whole numbers
    start: int = key(moment, 0)  # when tick 0 is, in seconds


KINDS: dict[str, type[Source]] = {
    "parquet": Files,
    "json": Files,
    "delta": Folder,
    "csv": Csv,
    "kafka": Kafka,
    "rate": Rate,
    "zipf": Zipf,
    "replay": Replay,
}


@check("tables such as [sources.calls]")
def sources_of(value: Any) -> dict[str, Source]:
    """Return tables such as [sources.calls]."""
    found = {}
    for each, values in table(value).items():
        with within(each):
            name(each)
            found[each] = _of_format(values, KINDS)
    if not found:
        raise wrong(NOTHING, "name the streams to join: [sources.calls] and [sources.trades]")
    return found


# --- sinks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sink:
    """Where the joined rows go."""

    format: str = key(one_of(*SINKS))


@dataclass(frozen=True)
class ParquetSink(Sink):
    """A folder of Parquet files, each micro-batch exactly once."""

    path: str = key(path)


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A topic of Kafka; values are JSON. After a failure a row may come twice."""

    servers: tuple[str, ...] = key(several(SERVERS))
    topic: str = key(TOPIC)
    key: str | None = key(expression, None)


@dataclass(frozen=True)
class ConsoleSink(Sink):
    """The screen: the first rows of every micro-batch."""

    rows: int = key(count, 10)


@dataclass(frozen=True)
class TableSink(Sink):
    """A table, whose files are in a folder."""

    name: str = key(matching(rf"{NAME.pattern}(\.{NAME.pattern}){{0,2}}", "a table's name, such as sales.pairs"))
    path: str = key(path)
    provider: str = key(one_of("parquet", "delta", "json", "csv"), "parquet")


@dataclass(frozen=True)
class MemorySink(Sink):
    """A table in the memory of the session that runs the job, for those who start it from Python."""

    name: str = key(name, "joined")


OUTLETS: dict[str, type[Sink]] = {
    "parquet": ParquetSink,
    "kafka": KafkaSink,
    "console": ConsoleSink,
    "table": TableSink,
    "memory": MemorySink,
}


# --- the rest ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """A folder beside the results."""

    path: str = key(path)


OUTPUT = Check("a table with a path", lambda value: made(Output, value))


@dataclass(frozen=True)
class Repair:
    """How ``penstock refine`` completes the result."""

    into: str = key(path)
    keep: str | None = key(span, None)
    batches: int = key(count, 100)


@dataclass(frozen=True)
class Session:
    """The Spark that the job starts on this machine."""

    memory: str = key(SIZE, "1g")
    packages: tuple[str, ...] = key(several(PACKAGE), ())


@dataclass(frozen=True)
class Joined:
    """The words of ``pen.join``, and which sources are meant."""

    left: str | None = key(name, None)
    right: str | None = key(name, None)
    on: Any = key(keys_of)
    time: Any = key(sided(text))
    window: Any = key(sided(window_of))
    memory: Any = key(memory_of, None)
    split: Any = key(split_of, "shared")
    policy: Any = key(policy_of, "auto")
    importance: Any = key(sided(text), None)
    combine: str = key(one_of(*COMBINE), "min")
    cpu: Any = key(cpu_of, None)
    per_key: int | None = key(count, None)
    shards: int | None = key(count, None)
    seed: int = key(seed, 0)
    event_time: str | None = key(text, None)
    mode: str = key(one_of(*MODES), "shed")


@dataclass(frozen=True)
class MultiJoined:
    """The words of ``pen.multijoin``; its streams are the sources."""

    on: Any = key(graph_of)
    time: Any = key(by_source(text))
    windows: Any = key(by_source(window_of))
    order: Any = key(order_of, "auto")
    evaluation: Any = key(interval_of("eager"), "eager")
    expiration: Any = key(interval_of("auto", "eager"), "auto")
    index: Any = key(by_source(index_of), "auto")
    algorithm: str = key(one_of(*ALGORITHMS), "auto")
    price: Any = key(by_source(number), 1)
    lateness: Any = key(span, 0)
    cross: bool = key(flag, False)
    memory: Any = key(memory_of, None)
    policy: Any = key(policy_of, "auto")
    importance: Any = key(by_source(text), None)
    combine: str = key(one_of(*COMBINE), "min")
    shards: int | None = key(count, None)
    seed: int = key(seed, 0)


@dataclass(frozen=True)
class File:
    """A job file, as its first level has it."""

    name: str = key(text, "")
    checkpoint: str | None = key(path, None)
    trigger: str | None = key(trigger_of, None)
    sources: dict[str, Source] = key(sources_of)
    join: Joined | None = key(Check("the table [join]", lambda value: made(Joined, value, NOT_HERE)), None)
    multijoin: MultiJoined | None = key(
        Check("the table [multijoin]", lambda value: made(MultiJoined, value, NOT_OF_SEVERAL)), None
    )
    sink: Sink = key(Check("the table [sink]", lambda value: _of_format(value, OUTLETS)))
    ledger: Output | None = key(OUTPUT, None)
    archive: Output | None = key(OUTPUT, None)
    refine: Repair | None = key(Check("the table [refine]", lambda value: made(Repair, value)), None)
    spark: Session = key(Check("the table [spark]", lambda value: made(Session, value)), Session())


@dataclass(frozen=True)
class Job:
    """A join as a file, whole and checked."""

    name: str
    checkpoint: str | None
    trigger: str | None  # None: as soon as the last micro-batch has ended
    sources: tuple[str, ...]  # the names of left and right, or of all streams
    streams: tuple[Source, ...]
    settings: Settings | streams_of.Settings
    sink: Sink
    ledger: str | None
    archive: str | None
    refine: Repair | None
    spark: Session

    @property
    def joining(self) -> str:
        """The table that says how they are joined."""
        return "join" if isinstance(self.settings, Settings) else "multijoin"

    @property
    def times(self) -> tuple[str, ...]:
        """The time column of each source."""
        return _times(self.settings, self.sources)

    @property
    def triggered(self) -> dict[str, Any]:
        """What ``DataStreamWriter.trigger`` takes."""
        wanted = "0 seconds" if self.trigger is None else self.trigger
        return TRIGGERS.get(wanted, {"processingTime": wanted})

    @property
    def ends(self) -> bool:
        """Whether all that it reads comes to an end by itself."""
        return all(isinstance(source, Paced) for source in self.streams)

    @property
    def replayed(self) -> bool:
        """Whether the times of some rows are those of a trace, and not of today."""
        return any(isinstance(source, Paced) for source in self.streams)


def load(file: Path) -> Job:
    """Read and check a job file.

    Parameters:
        file: the file; relative paths in it begin in its folder.

    Raises:
        InputError: naming the key, what was got and what would be right.
    """
    try:
        if file.stat().st_size > BIG:
            raise InputError("job", f"{file}, of more than {BIG} bytes", "give a job file")
        words = file.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError("job", str(file), f"give a job file that can be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError("job", str(file), f"a job file is text in UTF-8 ({error.reason})") from error
    return parse(words, file.resolve().parent, file.stem)


def parse(words: str, home: Path, title: str = "job") -> Job:
    """Check the text of a job file.

    Parameters:
        words: TOML.
        home: where relative paths begin.
        title: the job's name if it has none.

    Raises:
        InputError: as ``load``.
    """
    try:
        values = tomllib.loads(words)
    except (ValueError, RecursionError) as error:
        raise InputError("job", "what is no TOML", f"{str(error)[:200] or 'it is too deep'}") from error
    read = made(File, values)
    return _checked(read, home, title)


def repaired(job: Job, *, batches: int | None = None, keep: str | None = None) -> Job:
    """Return a job whose repair is done with other words than its file's; None leaves the file's.

    Raises:
        InputError: naming the word.
    """
    checks = {"batches": (count, batches), "keep": (span, keep)}
    words = {}
    for each, (checked, value) in checks.items():
        if value is not None:
            with within(each):
                words[each] = checked(value)
    return job if job.refine is None else replace(job, refine=replace(job.refine, **words))


def _checked(read: File, home: Path, title: str) -> Job:
    """Check the parts of a file against each other."""
    if (read.join is None) == (read.multijoin is None):
        got = NOTHING if read.join is None else "both [join] and [multijoin]"
        raise InputError("join", got, "write one of them: [join] for two sources, [multijoin] for two or more")
    names, settings = _two(read, read.join) if read.join is not None else _many(read, read.multijoin)
    times = _times(settings, names)
    streams = []
    for side, source in enumerate(read.sources[each] for each in names):
        if isinstance(source, Folder):
            source = replace(source, path=placed(source.path, home))  # noqa: PLW2901 - the same source, in its place
        elif isinstance(source, Replay):
            source = replace(source, path=placed(source.path, home), time=source.time or times[side])  # noqa: PLW2901
        elif isinstance(source, Zipf):  # a draw has two sides: the next two streams are another one
            source = replace(source, side=source.side or SIDES[side % 2], seed=source.seed + side // 2)  # noqa: PLW2901
        streams.append(source)
    _beside(read)
    if read.refine is not None:
        _refinable(settings)
    sink, refine = read.sink, read.refine
    if isinstance(sink, ParquetSink | TableSink):
        sink = replace(sink, path=placed(sink.path, home))
    if refine is not None:
        refine = replace(refine, into=placed(refine.into, home))
    job = Job(
        name=read.name or title,
        checkpoint=None if read.checkpoint is None else placed(read.checkpoint, home),
        trigger=read.trigger,
        sources=names,
        streams=tuple(streams),
        settings=settings,
        sink=sink,
        ledger=None if read.ledger is None else placed(read.ledger.path, home),
        archive=None if read.archive is None else placed(read.archive.path, home),
        refine=refine,
        spark=read.spark,
    )
    _apart(job)
    return job


def _times(settings: Settings | streams_of.Settings, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the time column of each source."""
    if isinstance(settings, Settings):
        return pair("time", settings.time)
    return tuple(settings.time[each] if isinstance(settings.time, dict) else settings.time for each in names)


def _many(read: File, multijoin: MultiJoined | None) -> tuple[tuple[str, ...], streams_of.Settings]:
    """Return the names of all sources and the words of the join, checked as ``pen.multijoin`` does."""
    names = list(read.sources)
    arguments = dict(vars(multijoin))
    with within("multijoin"):
        if len(names) < 2:
            raise InputError("", f"one source, {names[0]}", "give two or more: [sources.calls], [sources.trades]")
        for argument in ("time", "windows", "index", "price", "importance"):
            known_only(arguments[argument], names, argument)
        settings = streams_of.settings_of(arguments)
    return tuple(names), settings


def _two(read: File, join: Joined) -> tuple[tuple[str, ...], Settings]:
    """Return the names of the two sources that are joined, and the words of the join."""
    return _sides(read, join), _settings(join)


def _sides(read: File, join: Joined) -> tuple[str, str]:
    """Return the names of the sources that are joined."""
    known = list(read.sources)
    names = []
    for side, given in zip(SIDES, (join.left, join.right), strict=True):
        with within(f"join.{side}"):
            if given is None:
                if len(known) > 2:
                    raise wrong(NOTHING, f"say which of the sources it is: {', '.join(known)}")
                given = known[min(len(known) - 1, SIDES.index(side))]  # noqa: PLW2901 - the default
            if given not in known:
                raise wrong(given, nearest(given, known))
        names.append(given)
    unused = [each for each in known if each not in names]
    if unused:
        with within(f"sources.{unused[0]}"):
            raise InputError("", "a source that is not joined", "name it in join.left or join.right, or leave it out")
    return names[0], names[1]


def _settings(join: Joined) -> Settings:
    """Check the words of the join as ``pen.join`` does."""
    arguments = {name: value for name, value in vars(join).items() if name not in SIDES}
    with within("join"):
        return settings_of(arguments)


def _beside(read: File) -> None:
    """Check what goes with which sink."""
    for what, given in (("ledger", read.ledger), ("archive", read.archive)):
        if given is not None and isinstance(read.sink, MemorySink):
            want = f"it outlives the run, and results in memory do not: choose another sink than {read.sink.format}"
            raise InputError(what, f"{what} with a sink in {read.sink.format}", want)
    if read.refine is not None and (read.ledger is None or read.archive is None):
        raise InputError("refine", "no ledger or no archive", "what is missing is found from both: add their tables")
    kept = read.ledger is not None or read.archive is not None
    if read.checkpoint is None and (kept or not isinstance(read.sink, ConsoleSink | MemorySink)):
        want = "name a folder for the state: a second run goes on from it"
        raise InputError("checkpoint", NOTHING, want)
    if read.checkpoint is not None and isinstance(read.sink, MemorySink):
        raise InputError(
            "checkpoint", shown(read.checkpoint), "a result in memory does not outlive its run: leave it out"
        )


def _refinable(settings: Settings | streams_of.Settings) -> None:
    """Raise if a ledger does not tell what a join leaves out."""
    given = settings.window if isinstance(settings, Settings) else settings.windows
    windows = [*given.values()] if isinstance(given, dict) else [*given] if isinstance(given, tuple) else [given]
    if any(isinstance(each, Rows) for each in windows):
        want = "which rows are in a window in rows takes a count of every row: leave [refine] out, or give a span"
        place = "join.window" if isinstance(settings, Settings) else "multijoin.windows"
        raise WindowError(place, ", ".join(map(str, windows)), want)
    if isinstance(settings, Settings):
        with within("join"):
            repairable(settings)


def outputs(job: Job) -> dict[str, str]:
    """Return the places that a job writes to, by the keys that name them."""
    wanted = {
        "checkpoint": job.checkpoint,
        "sink.path": getattr(job.sink, "path", None),
        "ledger.path": job.ledger,
        "archive.path": job.archive,
        "refine.into": None if job.refine is None else job.refine.into,
    }
    return {key: place for key, place in wanted.items() if place is not None}


def _apart(job: Job) -> None:
    """Raise if a folder is given twice, or one is inside another: what is written would be read, or removed."""
    written = outputs(job)
    read = {
        f"sources.{name}.path": source.path
        for name, source in zip(job.sources, job.streams, strict=True)
        if isinstance(source, Folder | Replay)
    }
    for at, place in written.items():
        for other, there in (written | read).items():
            if at != other and _inside(place, there):
                raise InputError(at, place, f"it is in the folder of {other}: give each a folder of its own")
            if at != other and other in read and _inside(there, place):
                raise InputError(at, place, f"{other} is in it: give each a folder of its own")


def _inside(inner: str, outer: str) -> bool:
    one, other = parts_of(inner), parts_of(outer)
    return one[: len(other)] == other
