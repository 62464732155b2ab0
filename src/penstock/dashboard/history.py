"""Keep the moments of a query in a file, one line each, and read them back while it grows."""

import json
import math
import os
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock.quality.books import Report
from penstock.quality.flows import Flows, in_words

ENDING = ".history.jsonl"
POINTS = 10_000  # of a query, that a page is given
LINE = 1 << 16  # bytes; a longer one is none of ours
NAME = 200  # characters of a query's, and of a key
KEYS = 10  # that a moment names
SOME = 1 << 20  # bytes read at once
SIDES = ["left", "right"]
STREAMS = 12  # of a join
SIDED = ("arrivals", "live", "expired", "unprobed")
WHOLE = ("batch", "pairs", "memory_rows", "memory_bytes", "comparisons")
MODES = ("shed", "observe")
REASON = re.compile(r"[a-z_]{1,40}")
Point = dict[str, Any]


def here(address: str) -> Path | None:
    """Return a place on this machine as a path; None if it is elsewhere."""
    local = re.fullmatch(r"file:(?://[^/]*)?(/.*)", address, re.IGNORECASE)
    if local is not None:
        return Path("/" + local[1].lstrip("/"))
    return None if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", address) else Path(address)


def beside(checkpoint: str) -> Path | None:
    """Return where the history of a query is kept: next to its checkpoint, never in it; None if that is far away."""
    place = here(checkpoint)
    return None if place is None else place.with_name(place.name + ENDING)


def point(
    query: str,
    report: Report | Flows,
    *,
    batch: int,
    time: float,
    seconds: float,
    lag: float | None = None,
    budget: int | None = None,
    keys: Sequence[tuple[str, int]] | None = None,
) -> Point:
    """Return a moment as plain JSON values: counts only, nothing of the data but the keys that are given.

    Counts are by stream, `streams` has their names: left and right, or those of a join of several, which also has an
    `order`: the one in use, and why.

    Parameters:
        query: its name.
        report: as of this moment, since the query first began.
        batch: the number of the micro-batch.
        time: when it ended, in seconds since 1970.
        seconds: how long it took.
        lag: how long before that the newest row says it happened, in seconds; None: rows do not tell of today.
        budget: how many rows may be held; None: it is not counted in rows.
        keys: those of which most rows were shed in this micro-batch, and how many; None: they are nobody's business.
    """
    return {
        "query": query[:NAME],
        "time": time,
        "batch": batch,
        "seconds": seconds,
        **(_of_several(report) if isinstance(report, Flows) else _of_two(report)),
        "memory_rows": report.memory_rows,
        "memory_bytes": report.memory_bytes,
        "comparisons": report.comparisons,
        "recall": None if report.recall is None else list(report.recall),
        "lag": lag,
        "budget": budget,
        "keys": None if keys is None else [[key[:NAME], rows] for key, rows in keys[:KEYS]],
    }


def _of_two(report: Report) -> Point:
    return {
        "mode": report.mode,
        "pairs": report.pairs,
        "streams": SIDES,
        "order": None,
        **{name: list(getattr(report, name)) for name in SIDED},
        "shed": {reason: list(count) for reason, count in report.shed.items()},
    }


def _of_several(report: Flows) -> Point:
    last = max(report.orders, key=lambda order: order.since, default=None)
    return {
        "mode": "shed",
        "pairs": report.results,
        "streams": [name[:NAME] for name in report.arrivals],
        "order": last and [in_words(last.order)[:NAME], last.reason[:NAME]],
        **{name: list(getattr(report, name).values()) for name in ("arrivals", "live", "expired")},
        "unprobed": [0] * len(report.arrivals),
        "shed": {reason: list(count.values()) for reason, count in report.shed.items()},
    }


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """Return at most so many points, evenly, the first and the last among them; totals do not suffer."""
    if len(points) <= most:
        return list(points)
    return [points[at * (len(points) - 1) // (most - 1)] for at in range(most)]


class History:
    """The file of one query, to write to. What cannot be written is counted, and disturbs nobody.

    A line is appended in one call, so that readers see it whole or not at all; every 10,000 lines the file is thinned
    out, so that it has never more than 20,000.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = 0
        self._lines: int | None = None  # not counted yet

    def add(self, moment: Point) -> None:
        """Append a moment: O(1), but for one in 10,000."""
        try:
            self._append(json.dumps(moment, allow_nan=False).encode() + b"\n")
        except (OSError, ValueError):
            self.lost += 1

    def _append(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._lines is None or self._lines >= 2 * POINTS:
            self._lines = self._thin()
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(handle, line) != len(line):
                self._lines = None  # torn: mended before the next one
                raise OSError(self.path)
        finally:
            os.close(handle)
        self._lines += 1

    def _thin(self) -> int:
        """Write the file anew if it is long or its last line is torn; return how many lines it has."""
        tail = _Tail(self.path)
        points = tail.read()
        if len(points) < 2 * POINTS and not tail.torn:
            return len(points)
        kept = thinned(points, POINTS)
        fresh = self.path.with_name(self.path.name + ".new")
        fresh.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in kept))
        fresh.replace(self.path)
        return len(kept)


class _Tail:
    """A file that grows, read from where the last look ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.anew = False  # whether the last look began at the start: what came before is no longer there
        self._file: tuple[int, int] | None = None
        self._offset = 0
        self._rest = b""

    @property
    def torn(self) -> bool:
        """Whether the file ends inside a line."""
        return bool(self._rest)

    def read(self) -> list[Point]:
        """Return the points that are new; lines that are none are passed over."""
        try:
            with self.path.open("rb") as file:
                self._begin(os.fstat(file.fileno()))
                file.seek(self._offset)
                return [each for each in map(_point, self._lines(file)) if each is not None]
        except OSError:  # not there yet, or no longer
            self.anew = False
            return []

    def _begin(self, now: os.stat_result) -> None:
        known = (now.st_dev, now.st_ino)
        self.anew = known != self._file or now.st_size < self._offset
        if self.anew:
            self._file, self._offset, self._rest = known, 0, b""

    def _lines(self, file: Any) -> Iterable[bytes]:
        while some := file.read(SOME):
            self._offset += len(some)
            *lines, rest = (self._rest + some).split(b"\n")
            self._rest = rest[: LINE + 1]
            yield from (line for line in lines if len(line) <= LINE)


def there(places: Sequence[Path]) -> Sequence[Path]:
    """Return files and folders, all of which are there.

    Raises:
        InputError: if one is not.
    """
    for place in places:
        if not place.is_dir() and not place.is_file():
            want = f"give a folder, or a file that penstock run has written: <checkpoint>{ENDING}"
            raise InputError("histories", str(place), want)
    return places


class Histories:
    """The histories of several queries, to look at; safe from several threads.

    Parameters:
        places: files, which may come later, and folders: of these all ``*.history.jsonl`` in them and in their
            folders.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = list(places)
        self._lock = threading.Lock()
        self._tails: dict[Path, _Tail] = {}
        self._points: dict[Path, list[tuple[int, Point]]] = {}
        self._serial = 0

    def queries(self, since: int = 0) -> dict[str, dict[str, Any]]:
        """Return what is new of every query, by its name.

        Each has `first` (older points are gone), and `points` with a `serial` above `since`, in order of the file,
        at most 10,000.
        """
        with self._lock:
            return {
                name: {
                    "first": points[0][0],
                    "points": [{**point, "serial": serial} for serial, point in points if serial > since],
                }
                for name, points in self._named().items()
            }

    def latest(self) -> dict[str, Point]:
        """Return the last moment of every query, by its name."""
        with self._lock:
            return {name: points[-1][1] for name, points in self._named().items()}

    def _named(self) -> dict[str, list[tuple[int, Point]]]:
        """Return the points of every query that has some, after a look at the files; no two have the same name."""
        self._look()
        found: dict[str, list[tuple[int, Point]]] = {}
        for path, points in self._points.items():
            if points:
                name = points[-1][1]["query"]
                found[name if name not in found else f"{name} ({path})"] = points
        return found

    def _look(self) -> None:
        for path in self._files():
            tail = self._tails.setdefault(path, _Tail(path))
            new = tail.read()
            known = self._points.setdefault(path, [])
            if tail.anew:
                known.clear()
            for each in new:
                self._serial += 1
                known.append((self._serial, each))
                if len(known) > POINTS:  # the old become sparse, the young stay
                    del known[1 : POINTS // 2 : 2]

    def _files(self) -> list[Path]:
        found: dict[Path, None] = {}
        for place in self._places:
            if place.is_dir():
                inside = [*place.glob(f"*{ENDING}"), *place.glob(f"*/*{ENDING}")]
                found |= dict.fromkeys(sorted(each.resolve() for each in inside if each.is_file()))
            else:
                found[place.resolve()] = None
        return list(found)


def _point(line: bytes) -> Point | None:
    """Return the moment in a line, checked; None: it is none."""
    try:
        read = json.loads(line)
        streams = [_text(name) for name in read.get("streams", SIDES)]
        if not 2 <= len(streams) <= STREAMS:
            return None
        return {
            "streams": streams,
            "query": _text(read["query"]),
            "mode": MODES[MODES.index(read["mode"])],
            **{name: _number(read[name]) for name in ("time", "seconds")},
            **{name: _count(read[name]) for name in WHOLE},
            **{name: _counts(read[name], len(streams)) for name in SIDED},
            **{
                name: None if read[name] is None else check(read[name])
                for name, check in (("recall", _interval), ("lag", _number), ("budget", _count), ("keys", _keys))
            },
            "shed": {_reason(name): _counts(count, len(streams)) for name, count in read["shed"].items()},
            "order": None if read.get("order") is None else [_text(words) for words in read["order"][:2]],
        }
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def _text(value: Any, least: int = 1) -> str:
    if not isinstance(value, str) or not least <= len(value) <= NAME:
        raise ValueError
    value.encode()  # half a character is none
    return value


def _reason(value: str) -> str:
    if not REASON.fullmatch(value):
        raise ValueError
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError
    return value


def _counts(value: Any, many: int) -> list[int]:
    if not isinstance(value, list) or len(value) != many:
        raise ValueError
    return [_count(each) for each in value]


def _interval(value: Any) -> list[float]:
    low, mid, high = value
    return [_number(low), _number(mid), _number(high)]


def _keys(value: Any) -> list[list[Any]]:
    if not isinstance(value, list) or len(value) > KEYS:
        raise ValueError
    return [[_text(key, least=0), _count(rows)] for key, rows in value]
