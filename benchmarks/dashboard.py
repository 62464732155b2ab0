"""Measure what a dashboard takes from the job it shows (`make bench-dashboard`).

A job runs on a local Spark with its dashboard on, and a reader asks for what is new as often as a page does. The CPU
time of all that the dashboard does (writing the history, answering) is set against the CPU time of the whole job, in
the same run: the driver, the JVM and the Python workers. If there is a browser, it draws a page of 10,000 moments,
and the picture that the documents show is taken (`--only picture`).
"""

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc

import penstock as pen
from benchmarks.registry_tables import ROOT, write
from penstock import cli
from penstock.dashboard import server
from penstock.dashboard.history import ENDING, KEYS, POINTS, Histories, History, point
from penstock.jobs import running
from penstock.jobs.parsing import parse
from penstock.operator.settings import SIDES
from penstock.quality.books import Estimate, Report, Sides
from penstock.spark import live
from penstock.streams import workloads

RESULTS = Path(__file__).with_name("dashboard.json")
PAGE = ROOT / "docs" / "dashboard.md"
PICTURE = PAGE.with_suffix(".png")
LARGEST = 200 * 1024  # bytes of it
EVERY = 2.0  # seconds between two questions of a page
TURNS = 9
START = 1_767_268_800  # when the run in the picture begins, in seconds since 1970
TICK = 4  # milliseconds
STREAM = 'format = "zipf"\nrows = 400_000\nkeys = 10_000\nrows_per_trigger = 40_000\nwatermark = "1 second"\n'
JOB = f"""
checkpoint = "checkpoint"
trigger = "available_now"
[sources.left]
{STREAM}
[sources.right]
{STREAM}
[join]
on = "key"
time = "ts"
window = "1 hour"
memory = 3_600
[sink]
format = "parquet"
path = "found"
"""


class Clock:
    """The CPU time of calls, summed over threads."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that is timed."""

        def run(*words: Any, **more: Any) -> Any:
            begin = time.thread_time()
            try:
                return call(*words, **more)
            finally:
                with self._lock:
                    self.seconds += time.thread_time() - begin

        return run


def cpu_seconds() -> float:
    """Return the CPU time of this process and of all it has started."""
    total = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        used = process.cpu_times()
        total += used.user + used.system + used.children_user + used.children_system
    return total


def measure_job() -> dict[str, float]:
    """Return the CPU time of a job, and of its dashboard with a reader."""
    clock = Clock()
    answering = server._Server.process_request_thread  # noqa: SLF001 - where the dashboard works
    server._Server.process_request_thread = clock.timed(answering)  # type: ignore[method-assign]  # noqa: SLF001
    record = clock.timed(cli._record)  # noqa: SLF001
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder, live.local_spark("4g") as spark:
        job, history = parse(JOB, Path(folder)), History(Path(folder) / f"job{ENDING}")
        ended = threading.Event()
        with server.Dashboard(Histories([history.path]), port=0) as served:
            reader = threading.Thread(target=read, args=(served.port, ended))
            reader.start()
            begin, used = time.perf_counter(), cpu_seconds()
            done = running.run(
                job, spark, stop=threading.Event(), watch=lambda batch: record(history, job, batch, None)
            )
            seconds, total = time.perf_counter() - begin, cpu_seconds() - used
            ended.set()
            reader.join()
    server._Server.process_request_thread = answering  # type: ignore[method-assign]  # noqa: SLF001
    assert done.report is not None
    return {
        "rows": done.report.arrivals.total,
        "batches": done.batches,
        "seconds": seconds,
        "cpu_seconds": total,
        "dashboard_cpu_seconds": clock.seconds,
    }


def read(port: int, ended: threading.Event) -> None:
    """Ask for everything that is new, as a page does."""
    since = 0
    while not ended.wait(EVERY):
        found = json.loads(asked(port, f"/data.json?since={since}"))["queries"]
        since = max((each["serial"] for query in found.values() for each in query["points"]), default=since)


def asked(port: int, target: str) -> bytes:
    """Return an answer of the server."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", target)
    try:
        return connection.getresponse().read()
    finally:
        connection.close()


def filled(path: Path) -> None:
    """Write a history of 10,000 moments."""
    history = History(path)
    for batch in range(POINTS):
        live, shed = Sides(1500 + batch % 7, 500), Sides(9 * batch, batch)
        came = Sides(20 * batch + 2000, 19 * batch + 2000)
        gone = Sides(came.left - live.left - shed.left, came.right - live.right - shed.right)
        recall = Estimate(0.8, 0.82 + batch % 11 / 1000, 0.85)
        report = Report(
            "prob", came, live, gone, {"budget": shed}, 31 * batch, None, None, recall, 2000, 10**6, batch
        )
        history.add(point("full", report, batch=batch, time=1e9 + 2.0 * batch, seconds=1 + batch % 13 / 10))


def measure_full() -> dict[str, float]:
    """Return what 10,000 moments cost: in CPU time to read and to send them, and in the page to draw them."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        path = Path(folder) / f"full{ENDING}"
        begin = time.process_time()
        filled(path)
        found = {"moment_cpu_seconds": (time.process_time() - begin) / POINTS}
        with server.Dashboard(Histories([path]), port=0) as served:
            begin = time.process_time()
            found["bytes"] = len(asked(served.port, "/data.json"))
            found["first_look_cpu_seconds"] = time.process_time() - begin
            begin = time.process_time()
            for _ in range(TURNS):
                asked(served.port, f"/data.json?since={POINTS}")
            found["look_cpu_seconds"] = (time.process_time() - begin) / TURNS
            drawn = draw(served.url)
            return found if drawn is None else {**found, "draw_ms": drawn}


@contextmanager
def opened(address: str) -> Iterator[Any]:
    """Open a page, and give it when its numbers are there; None without a browser."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        yield None
        return
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only with a browser

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = started.new_page(viewport={"width": 1280, "height": 900}, timezone_id="UTC")
        page.goto(address)
        page.wait_for_selector("#facts dt")
        yield page
        started.close()


def draw(address: str) -> float | None:
    """Return how long a page takes to draw everything anew, in milliseconds; None without a browser."""
    with opened(address) as page:
        if page is None:
            return None
        once = """() => {
            const begin = performance.now();
            show();
            for (const chart of charts) chart.base.getContext("2d").getImageData(0, 0, 1, 1);
            return performance.now() - begin;
        }"""
        return float(statistics.median(page.evaluate(once) for _ in range(TURNS)))


def surging(path: Path) -> None:
    """Write the history of a join of two streams that surge, inside a budget that almost suffices for the calm.

    A micro-batch is due every second of the rows' own time, and begins when the one before has ended. So nobody waits
    for the rows; how long the join takes is measured. The history begins with the second one: of the first, a page
    can only know how long it took, not since when its rows had come.
    """
    streams = workloads.surge(100_000, keys=1000, factor=10, at=(0.1, 0.9))
    ticks = streams.left["ts"].to_numpy()  # both sides keep the same time
    times = pa.array(1000 * START + TICK * ticks, pa.timestamp("ms"))
    left, right = (pa.table({"ts": times, "key": side["key"]}) for side in (streams.left, streams.right))
    history, budget = History(path), 1800
    how: dict[str, Any] = {"on": "key", "time": "ts", "window": "4 seconds", "memory": budget}
    pen.Join(**how).push(left=left[:budget], right=right[:budget])  # what is compiled is compiled here
    join = pen.Join(**how)
    edges = np.searchsorted(ticks, np.arange(0, ticks[-1] + 1 + 1000 // TICK, 1000 // TICK))
    free = 0.0
    for batch, (first, end) in enumerate(pairwise(edges)):
        begin = time.perf_counter()
        join.push(left=left[first:end], right=right[first:end])
        seconds = time.perf_counter() - begin
        free = max(free, batch + 1.0) + seconds
        shed = join.ledger()
        if not batch:
            continue
        keys = Counter(pc.coalesce(*(pc.struct_field(shed[side], "key") for side in SIDES)).to_pylist())
        about = {"seconds": seconds, "lag": free - TICK * ticks[end - 1] / 1000, "budget": budget}
        named = [(f"{key}", rows) for key, rows in keys.most_common(KEYS)]
        history.add(point("surge", join.report(), batch=batch, time=START + free, **about, keys=named))


def take_picture() -> None:
    """Write the picture of a page, whole, without the charts that this run has nothing for."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        path = Path(folder) / f"surge{ENDING}"
        surging(path)
        with server.Dashboard(Histories([path]), port=0) as served, opened(served.url) as page:
            if page is None:
                print("no picture: no Chromium found")
                return
            page.screenshot(path=PICTURE, full_page=True)
    assert PICTURE.stat().st_size <= LARGEST, PICTURE.stat().st_size


def page(results: dict[str, Any]) -> str:
    """Return what was measured, in words."""
    return f"{cost_of_a_job(results.get('job'))} {cost_of_many(results['full'])}"


def cost_of_a_job(job: dict[str, Any] | None) -> str:
    """Return which share of a job its dashboard took."""
    if job is None:
        return "As a share of a whole job on Spark: not measured."
    share = job["dashboard_cpu_seconds"] / job["cpu_seconds"]
    return (
        f"A job of {job['rows']:,} rows in {job['batches']} micro-batches on a local Spark, with a page that asks: "
        f"the dashboard took {share:.2%} of the job's CPU time ({job['dashboard_cpu_seconds']:.3f} of "
        f"{job['cpu_seconds']:.0f} s)."
    )


def cost_of_many(full: dict[str, float]) -> str:
    """Return what 10,000 moments cost."""
    many = (
        f"A moment costs {1e6 * full['moment_cpu_seconds']:.0f} µs to write. With {POINTS:,} moments in the history, "
        f"the first look takes {1000 * full['first_look_cpu_seconds']:.0f} ms of CPU time and "
        f"{full['bytes'] / 1e6:.1f} MB, a later one {1000 * full['look_cpu_seconds']:.0f} ms"
    )
    end = f", and the page draws all charts anew in {full['draw_ms']:.0f} ms." if "draw_ms" in full else "."
    return many + end


def main() -> None:
    """Measure, and write it down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parts: dict[str, Callable[[], Any]] = {"full": measure_full, "job": measure_job}
    parser.add_argument("--only", choices=[*parts, "picture"], help="measure one part, keep the rest")
    only = parser.parse_args().only
    if only in {None, "picture"}:
        take_picture()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, measure in parts.items():
        if only in {None, name}:
            results[name] = measure()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write(PAGE, "measured", page(results))
    print(page(results))


if __name__ == "__main__":
    main()
