"""Check the values of a job file one by one; every error names the key, what was got and what would be right."""

import dataclasses
import datetime as dt
import difflib
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from penstock.errors import InputError
from penstock.jobs.sql import JSON, foreign
from penstock.streams.times import nanoseconds

T = TypeVar("T")

SCHEMES = ("file", "s3", "s3a", "gs", "abfs", "abfss", "hdfs")
ALIKE = {"s3": "s3a", "abfs": "abfss"}  # two words for one store
PATTERNS = {*"{}[]*?"}
LONG = 10_000  # characters in one value
MANY = 2**31 - 1
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")


@contextmanager
def within(name: str) -> Iterator[None]:
    """Put the place in the file before the key that an error names."""
    try:
        yield
    except InputError as error:
        place = ".".join(part for part in (name, error.argument) if part)
        raise type(error)(place, error.got, error.want) from error


def wrong(got: object, want: str) -> InputError:
    """Return the error that a value is not what it must be; its key is put before it on the way out."""
    return InputError("", got if isinstance(got, _Words) else shown(got), want)


class _Words(str):
    """What was got, in words and not as a value."""

    __slots__ = ()


NOTHING = _Words("nothing")


def shown(value: object) -> str:
    """Return a value as errors show it, however long it is."""
    return reprlib.repr(value)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return what to say about an unknown word: the nearest known one, and all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"{guess}there are {', '.join(names)}"


@dataclasses.dataclass(frozen=True)
class Check:
    """What would be right for a key, in words, and the function that returns the value or raises."""

    want: str
    checked: Callable[[Any], Any]

    def __call__(self, value: Any) -> Any:
        """Return the value, or raise."""
        return self.checked(value)


def check(want: str) -> Callable[[Callable[[Any], Any]], Check]:
    """Make a check out of a function."""
    return lambda checked: Check(want, checked)


def key(check: Check, default: Any = dataclasses.MISSING) -> Any:
    """Make the field of a table of the file: how its value is checked, and its default if it has one."""
    return dataclasses.field(default=default, metadata={"check": check}, kw_only=True)


def made(kind: type[T], values: object, refused: Mapping[str, str] | None = None) -> T:
    """Make a dataclass whose fields are made by ``key`` from a table of the file.

    Parameters:
        kind: the dataclass.
        values: the table.
        refused: keys that somebody may well expect, and what to do instead.
    """
    given = table(values)
    fields = {field.name: field for field in dataclasses.fields(kind) if "check" in field.metadata}  # type: ignore[arg-type]
    for name in given:
        if name in (refused or {}):
            with within(name):
                raise wrong(given[name], (refused or {})[name])
        if name not in fields:
            with within(name):
                raise wrong(_Words("a key that is not known here"), nearest(name, fields))
    checked = {}
    for name, field in fields.items():
        with within(name):
            if name in given:
                checked[name] = field.metadata["check"](given[name])
            elif field.default is dataclasses.MISSING:
                raise wrong(NOTHING, f"this key is required: {field.metadata['check'].want}")
    return kind(**checked)


# --- checks: each returns the value, or raises ------------------------------


@check("a table")
def table(value: Any) -> dict[str, Any]:
    """Return a table."""
    if not isinstance(value, dict):
        raise wrong(value, "give a table")
    return value


@check("a text")
def text(value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str) or not value.strip() or len(value) > LONG or not value.isprintable():
        raise wrong(value, f"give a text in one line, of 1 to {LONG} characters")
    return value


@check("true or false")
def flag(value: Any) -> bool:
    """Return true or false."""
    if not isinstance(value, bool):
        raise wrong(value, "give true or false")
    return value


@check("a whole number, at least 1")
def count(value: Any) -> int:
    """Return a whole number, at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MANY:
        raise wrong(value, f"give a whole number from 1 to {MANY}")
    return value


@check("a whole number, at least 0")
def seed(value: Any) -> int:
    """Return a whole number, at least 0."""
    return 0 if value == 0 and not isinstance(value, bool | float) else count(value)


@check("a number above 0")
def number(value: Any) -> float:
    """Return a number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < MANY:
        raise wrong(value, "give a number above 0")
    return float(value)


@check("a number, at least 0")
def skew(value: Any) -> float:
    """Return a number, at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        raise wrong(value, "give a number from 0 to 100")
    return float(value)


@check('a span of time such as "10 minutes"')
def span(value: Any) -> str:
    """Return a span of time, in words."""
    words = text(value)
    if not 0 < nanoseconds("", words) < 2**62:
        raise wrong(value, 'give a span of time above 0, such as "10 minutes"')
    return words


@check("a date, or a date and time, such as 2024-01-31T12:00:00Z")
def moment(value: Any) -> int:
    """Return a date, or a date and time, as seconds since 1970; without a time zone it is UTC."""
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        value = dt.datetime.combine(value, dt.time())
    if not isinstance(value, dt.datetime) or not 1970 <= value.year < 2200:
        raise wrong(value, "give a date, or a date and time, from 1970 to 2199, such as 2024-01-31T12:00:00Z")
    return int((value if value.tzinfo else value.replace(tzinfo=dt.UTC)).timestamp())


def one_of(*words: str) -> Check:
    """Return the check for one of some words."""

    @check(f"one of {', '.join(words)}")
    def checked(value: Any) -> str:
        if not isinstance(value, str) or value not in words:
            raise wrong(value, nearest(str(value)[:64], words))
        return value

    return checked


def several(each: Check) -> Check:
    """Return the check for a list of values that pass another one; one value alone is a list of one."""

    @check(f"{each.want}, or a list")
    def checked(value: Any) -> tuple[Any, ...]:
        values = value if isinstance(value, list) else [value]
        if not 1 <= len(values) <= LONG:
            raise wrong(value, f"give {each.want}, or a list of them")
        return tuple(each(one) for one in values)

    return checked


def sided(each: Check) -> Check:
    """Return the check for a value for both sides, or {left = ..., right = ...}, which becomes a pair."""

    @check(f"{each.want}, or {{left = ..., right = ...}}")
    def checked(value: Any) -> Any:
        if not isinstance(value, dict):
            return each(value)
        if set(value) != {"left", "right"}:
            raise wrong(value, "give one value, or {left = ..., right = ...}")
        pair = []
        for side in ("left", "right"):
            with within(side):
                pair.append(each(value[side]))
        return tuple(pair)

    return checked


@check("a SQL expression over the columns of the source")
def expression(value: Any) -> str:
    """Return a SQL expression over the columns of the source."""
    words = text(value)
    found = foreign(words)
    if found is not None:
        want = "an expression looks at one row and calls nothing outside"
        raise wrong(value, f"{want}: {found!r} is not for job files; a column of such a name goes in back-quotes")
    return words


@check('columns and types, as in "ts timestamp, person string"')
def columns(value: Any) -> str:
    """Return columns and types, in Spark's words: in JSON a type may name code, which would be loaded."""
    words = text(value)
    if JSON in words:
        raise wrong(value, 'give columns and types, as in "ts timestamp, person string"; not in JSON')
    return words


@check("a name of letters, digits and _")
def name(value: Any) -> str:
    """Return a name of letters, digits and _."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise wrong(value, "give a name of letters, digits and _, that begins with no digit")
    return value


def matching(pattern: str, want: str) -> Check:
    """Return the check for texts of one form."""
    form = re.compile(pattern)

    @check(want)
    def checked(value: Any) -> str:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise wrong(value, f"give {want}")
        return value

    return checked


@check("a path, from the folder of the job file on if it is relative")
def path(value: Any) -> str:
    """Return a path, from the folder of the job file on if it is relative."""
    words = text(value)
    scheme = SCHEME.match(words)
    if scheme and scheme[1].lower() not in SCHEMES:
        raise wrong(value, f"give a local path, or an address that begins with one of {', '.join(SCHEMES)}")
    if ".." in re.split(r"[/\\]", words) or words.startswith("~") or "%2e" in words.lower():
        raise wrong(value, "give a path inside the folder of the job file, or an absolute one; no .. and no ~")
    if set(words) & PATTERNS:
        raise wrong(value, "give one place: Spark reads any of { } [ ] * ? as a pattern that several may match")
    return words


def parts_of(words: str) -> tuple[str, ...]:
    """Return the store, the host and the folders of a path: the same ones however the place is written."""
    scheme = SCHEME.match(words)
    store, host, rest = "file", "", words
    if scheme:
        store, rest = scheme[1].lower(), words[scheme.end() :]
        if scheme[2]:
            host, _, rest = rest.partition("/")
    host = "" if store == "file" else host.lower()
    return ALIKE.get(store, store), host, *(part for part in rest.split("/") if part not in {"", "."})


def placed(words: str, home: Path) -> str:
    """Return a path as the job file means it: relative ones begin in its folder."""
    return words if SCHEME.match(words) or Path(words).is_absolute() else str(home / words)


def local(words: str) -> Path | None:
    """Return a path on this machine as such; None: it is elsewhere."""
    if not SCHEME.match(words):
        return Path(words)
    store, _, *folders = parts_of(words)
    return Path("/", *folders) if store == "file" else None
