"""A history survives what happens to files, and the server gives its numbers to those who may have them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as pen
from documents import ROOT
from moments import HOSTILE, moment, report, written
from penstock import cli
from penstock.dashboard import history as keeping
from penstock.dashboard import server as serving
from penstock.dashboard.history import ENDING, Histories, History, beside, point, there, thinned
from penstock.dashboard.metrics import KINDS
from penstock.dashboard.server import SAFE, Dashboard
from penstock.errors import InputError
from penstock.quality.books import Report, Sides

WAIT = 120  # seconds, on a machine that has much else to do
TOKEN = "a token of some length"  # noqa: S105


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"checkpoint{ENDING}"


@pytest.fixture
def served(path: Path) -> Iterator[Dashboard]:
    with Dashboard(Histories([path]), port=0) as dashboard:
        yield dashboard


def ask(dashboard: Dashboard, target: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", dashboard.port, timeout=WAIT)
    try:
        connection.request(method, target, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def raw(dashboard: Dashboard, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", dashboard.port), timeout=WAIT) as connection:
        connection.sendall(request)
        answer = b""
        while some := connection.recv(65536):
            answer += some
        return answer


def data(dashboard: Dashboard, since: int = 0) -> dict[str, Any]:
    code, body, _ = ask(dashboard, f"/data.json?since={since}")
    assert code == 200
    found: dict[str, Any] = json.loads(body)["queries"]
    return found


def bare(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in each.items() if name != "serial"} for each in points]


# --- the file -----------------------------------------------------------------------------------------------------


def test_what_was_written_is_read(path: Path) -> None:
    written(path, range(1, 4))
    assert [moment(batch) for batch in range(1, 4)] == bare(Histories([path]).queries()["calls"]["points"])
    assert moment(3) == Histories([path]).latest()["calls"]


def test_a_moment_has_the_numbers_of_the_report_and_nothing_else() -> None:
    told = report().to_dict()
    got = moment(3)
    for name in ("pairs", "memory_rows", "memory_bytes", "comparisons", "mode"):
        assert told[name] == got[name]
    for name in ("arrivals", "live", "expired", "unprobed", "recall"):
        assert list(told[name].values()) == got[name]
    assert {reason: list(sides.values()) for reason, sides in told["shed"].items()} == got["shed"]
    assert not {"policy", "importance"} & set(got)  # a policy may carry a table of keys


def test_a_moment_of_several_streams_has_what_each_holds_and_the_order(served: Dashboard, path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = {name: pa.table({"ts": np.arange(90), "key": rng.integers(0, 5, 90)}) for name in "abcd"}
    told = pen.run(rows, on="key", time="ts", windows=20, memory=30, policy="prob").report
    History(path).add(point("four", told, batch=3, time=7.0, seconds=0.5, budget=30))
    (got,) = bare(data(served)["four"]["points"])
    assert list("abcd") == got["streams"]
    for name in ("arrivals", "live", "expired"):
        assert list(told.to_dict()[name].values()) == got[name]
    assert {reason: list(each.values()) for reason, each in told.shed.items()} == got["shed"]
    assert (told.results, told.memory_rows, list(told.recall)) == (got["pairs"], got["memory_rows"], got["recall"])
    assert got["order"] == [", ".join(told.orders[-1].order), told.orders[-1].reason]
    shown = samples(ask(served, "/metrics")[1].decode())
    assert told.live["c"] == shown['penstock_memory_rows{query="four",side="c"}']


@pytest.mark.parametrize("change", [{"streams": ["a"]}, {"streams": list("abc")}, {"streams": [1, 2]}, {"order": 5}])
def test_moments_whose_streams_do_not_fit_are_passed_over(path: Path, change: dict[str, Any]) -> None:
    path.write_text(json.dumps({**moment(1), **change}) + "\n", encoding="utf-8")
    assert Histories([path]).queries() == {}


def test_a_history_from_before_streams_had_names_is_read(path: Path) -> None:
    old = {name: value for name, value in moment(1).items() if name not in {"streams", "order"}}
    path.write_text(json.dumps(old) + "\n", encoding="utf-8")
    assert Histories([path]).latest()["calls"] == moment(1)


@pytest.mark.parametrize(
    ("checkpoint", "want"),
    [
        ("/lake/state", f"/lake/state{ENDING}"),
        ("out/state/", f"out/state{ENDING}"),
        ("file:///lake/state", f"/lake/state{ENDING}"),
        ("file:/lake/state", f"/lake/state{ENDING}"),
        ("s3a://lake/state", None),
        ("hdfs:/lake/state", None),
    ],
)
def test_it_is_beside_the_checkpoint(checkpoint: str, want: str | None) -> None:
    assert beside(checkpoint) == (None if want is None else Path(want))


def test_every_torn_end_is_passed_over_and_mended(path: Path) -> None:
    whole = written(path, range(1, 4)).read_bytes()
    for cut in range(len(whole) - 1, len(whole) - len(json.dumps(moment(3))) - 1, -7):
        path.write_bytes(whole[:cut])
        assert [1, 2] == [each["batch"] for each in Histories([path]).queries()["calls"]["points"]]
        written(path, range(4, 6))
        assert [1, 2, 4, 5] == [each["batch"] for each in Histories([path]).queries()["calls"]["points"]]


def test_a_line_that_is_half_there_is_read_once_it_is_whole(path: Path) -> None:
    whole = written(path, range(1, 3)).read_bytes()
    path.write_bytes(whole[:-20])
    histories = Histories([path])
    assert [1] == [each["batch"] for each in histories.queries()["calls"]["points"]]
    path.write_bytes(whole)
    assert [1, 2] == [each["batch"] for each in histories.queries()["calls"]["points"]]


@pytest.mark.parametrize(
    "change",
    [
        {"pairs": -1},
        {"pairs": 1.5},
        {"pairs": True},
        {"pairs": 10**400},
        {"time": "now"},
        {"time": 10**400},
        {"time": float("nan")},
        {"seconds": float("inf")},
        {"arrivals": [1]},
        {"arrivals": {"left": 1, "right": 2}},
        {"recall": [0.1, 0.2]},
        {"recall": "high"},
        {"shed": [1, 2]},
        {"shed": {"<b>": [1, 2]}},
        {"query": ""},
        {"query": 7},
        {"query": "\ud800"},
        {"query": "long" * 100},
        {"mode": "off"},
        {"mode": []},
        {"lag": -1},
        {"lag": "none"},
        {"budget": 1.5},
        {"keys": "ab"},
        {"keys": [["a", 1, 2]]},
        {"keys": [[1, 1]]},
        {"keys": [["a" * 201, 1]]},
        {"keys": [["a", 1]] * 11},
    ],
)
def test_lines_that_are_no_moments_are_passed_over(path: Path, change: dict[str, Any]) -> None:
    written(path, range(1, 2))
    with path.open("a") as file:
        file.write(json.dumps({**moment(2), **change}) + "\n")
    written(path, range(3, 4))
    assert [moment(1), moment(3)] == bare(Histories([path]).queries()["calls"]["points"])


@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from([b"{}", b"[]", b"null", b"[" * 5000, b"\xff", b"\x00" * 70_000])
    )
)
def test_any_bytes_are_a_history_without_moments(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("any") / f"any{ENDING}"
    path.write_bytes(b"\n".join(lines))
    assert Histories([path]).queries() == {}


def test_what_cannot_be_written_disturbs_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = History(tmp_path / "file" / f"state{ENDING}")
    history.add(moment(1))
    history.add({**moment(2), "seconds": float("nan")})
    assert history.lost == 2


def test_a_long_history_is_thinned_out_and_a_reader_notices(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "POINTS", 10)
    histories = Histories([path])
    history = History(path)
    for batch in range(1, 100):
        history.add(moment(batch))
        points = histories.queries()["calls"]["points"]
        assert len(points) <= 10
        assert (1, batch) == (points[0]["batch"], points[-1]["batch"])
        assert points == sorted(points, key=lambda each: each["batch"])
        assert len(path.read_bytes().splitlines()) <= 20
    assert [path] == list(path.parent.iterdir())


@given(st.integers(0, 60), st.integers(2, 30))
def test_thinned_points_are_even_and_have_both_ends(size: int, most: int) -> None:
    points = [{"at": at} for at in range(size)]
    got = thinned(points, most)
    assert len(got) == min(size, most)
    assert got[:1] == points[:1]
    assert got[-1:] == points[-1:]
    gaps = {after["at"] - before["at"] for before, after in pairwise(got)}
    assert max(gaps, default=1) - min(gaps, default=1) <= 1


def test_folders_are_looked_into_also_for_what_comes_later(tmp_path: Path) -> None:
    histories = Histories(there([tmp_path]))
    assert histories.queries() == {}
    (tmp_path / "out").mkdir()
    written(tmp_path / f"a{ENDING}", range(1, 2), "calls")
    written(tmp_path / "out" / f"b{ENDING}", range(1, 3), "calls")
    written(tmp_path / "out" / f"c{ENDING}", range(1, 4), "trades")
    (tmp_path / "out" / "other.jsonl").write_text("{}\n")
    twin = f"calls ({tmp_path / 'out' / f'b{ENDING}'})"
    assert {"calls": 1, twin: 2, "trades": 3} == {name: each["batch"] for name, each in histories.latest().items()}


def test_a_pipe_in_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"a{ENDING}")
    written(tmp_path / f"b{ENDING}", range(1, 2))
    assert list(Histories([tmp_path]).latest()) == ["calls"]


def test_a_place_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"histories: got .*nowhere; give a folder"):
        there([tmp_path, tmp_path / "nowhere"])


# --- the server ---------------------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_the_report(served: Dashboard, path: Path) -> None:
    assert data(served) == {}
    written(path, range(1, 4))
    assert [moment(batch) for batch in range(1, 4)] == bare(data(served)["calls"]["points"])


def test_only_what_is_new_is_sent(served: Dashboard, path: Path) -> None:
    written(path, range(1, 4))
    first = data(served)["calls"]["points"]
    assert data(served, first[-1]["serial"])["calls"]["points"] == []
    written(path, range(4, 6))
    assert [4, 5] == [each["batch"] for each in data(served, first[-1]["serial"])["calls"]["points"]]


def test_a_history_that_begins_anew_says_so(served: Dashboard, path: Path) -> None:
    written(path, range(1, 4))
    last = data(served)["calls"]["points"][-1]["serial"]
    path.unlink()
    written(path, range(1, 2))
    again = data(served, last)["calls"]
    assert again["first"] > last
    assert [1] == [each["batch"] for each in again["points"]]


def test_ten_thousand_points_are_the_most(served: Dashboard, path: Path) -> None:
    lines = [json.dumps(moment(batch)) for batch in range(1, 15_001)]
    path.write_text("\n".join(lines) + "\n")
    points = data(served)["calls"]["points"]
    assert 5_000 <= len(points) <= 10_000
    assert (1, 15_000) == (points[0]["batch"], points[-1]["batch"])
    assert moment(15_000) == bare(points)[-1]


def samples(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'penstock_\w+\{query="[^\n]*"\} \S+', line) for line in lines)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_metrics_are_the_last_moment(served: Dashboard, path: Path) -> None:
    written(path, range(1, 4))
    code, body, headers = ask(served, "/metrics")
    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (code, headers["Content-Type"])
    told, got = report(3), samples(body.decode())
    want = {
        'penstock_pairs_total{query="calls"}': told.pairs,
        'penstock_recall_low{query="calls"}': 0.7,
        'penstock_recall{query="calls"}': 0.75,
        'penstock_recall_high{query="calls"}': 0.8,
        'penstock_memory_bytes{query="calls"}': told.memory_bytes,
        'penstock_batch_seconds{query="calls"}': 3.5,
        'penstock_lag_seconds{query="calls"}': 0.25,
        'penstock_budget_rows{query="calls"}': 100,
        'penstock_last_batch_timestamp_seconds{query="calls"}': 1e9 + 30,
    }
    for at, side in enumerate(("left", "right")):
        want[f'penstock_rows_total{{query="calls",side="{side}"}}'] = told.arrivals[at]
        want[f'penstock_memory_rows{{query="calls",side="{side}"}}'] = told.live[at]
        want[f'penstock_unprobed_total{{query="calls",side="{side}"}}'] = told.unprobed[at]
        for reason, count in told.shed.items():
            want[f'penstock_shed_total{{query="calls",reason="{reason}",side="{side}"}}'] = count[at]
    assert want == got


def test_metrics_without_recall_and_with_a_strange_name(served: Dashboard, path: Path) -> None:
    History(path).add(point(HOSTILE, report(recall=None), batch=1, time=1.0, seconds=1.0))
    got = samples(ask(served, "/metrics")[1].decode())
    name = '<script>alert(\\"x\\")</script>\\\\ \\n{}'
    assert f'penstock_pairs_total{{query="{name}"}}' in got
    assert not [each for each in got if "recall" in each]


def test_grafana_asks_for_metrics_that_there_are() -> None:
    board = json.loads((ROOT / "docs" / "grafana.json").read_text())
    asked = set(re.findall(r"penstock_\w+", json.dumps([panel["targets"] for panel in board["panels"]])))
    assert asked <= set(KINDS)
    shown = {"penstock_rows_total", "penstock_pairs_total", "penstock_recall_low", "penstock_shed_total"}
    assert shown | {"penstock_unprobed_total"} <= asked
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len(board["panels"])


@pytest.mark.parametrize("target", ["/", "/page.js", "/page.css", "/data.json", "/metrics", "/nowhere"])
def test_every_answer_is_safe_and_from_here(served: Dashboard, target: str) -> None:
    code, body, headers = ask(served, target)
    assert code == (404 if target == "/nowhere" else 200)
    assert SAFE.items() <= headers.items()
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "Python" not in headers["Server"]
    assert not re.search(rb"https?://|innerHTML|style=|onclick", body)


@pytest.mark.parametrize(
    "target",
    [
        "/nowhere",
        "/page.html",
        "/../pyproject.toml",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2fhistory.py",
        "/history.py",
        "//etc/passwd",
        "//[",
        "/data.json/",
        "/DATA.JSON",
        "/data.json%00",
        "http://elsewhere/",
        "http://[",
        "*",
    ],
)
def test_unknown_paths(served: Dashboard, target: str) -> None:
    assert ask(served, target, Host=f"127.0.0.1:{served.port}")[:2] == (404, b"Not Found\n")


@pytest.mark.parametrize("since", ["-1", "x", "", "1e3", "9" * 30, "%C2%B2"])
def test_a_since_that_is_no_number(served: Dashboard, since: str) -> None:
    assert ask(served, f"/data.json?since={since}&x=1")[0] in ({200} if not since else {400})


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "BREW", "get"])
def test_other_methods(served: Dashboard, method: str) -> None:
    code, body, headers = ask(served, "/", method)
    assert (code, headers["Allow"]) == (405, "GET")
    assert body in {b"Method Not Allowed\n", b""}


def test_a_body_is_not_read(served: Dashboard) -> None:
    head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nContent-Length: 100000\r\n\r\n".encode()
    assert raw(served, head + b"x" * 100_000).startswith(b"HTTP/1.0 405 ")


@pytest.mark.parametrize(
    "host", ["elsewhere", "elsewhere:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil:{port}", ""]
)
def test_other_hosts(served: Dashboard, host: str) -> None:
    for target in ("/", "/data.json", "/metrics", "/page.js"):
        assert ask(served, target, Host=host.format(port=served.port))[0] == 403


def test_no_host_and_two_hosts(served: Dashboard) -> None:
    host = f"Host: 127.0.0.1:{served.port}\r\n"
    assert raw(served, f"GET / HTTP/1.1\r\n{host}\r\n".encode()).startswith(b"HTTP/1.0 200 ")
    assert raw(served, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.0 403 ")
    assert raw(served, f"GET / HTTP/1.1\r\n{host}Host: elsewhere\r\n\r\n".encode()).startswith(b"HTTP/1.0 403 ")


@pytest.mark.parametrize(
    ("origin", "want"),
    [
        ("http://127.0.0.1:{port}", 200),
        ("https://127.0.0.1:{port}", 403),
        ("http://elsewhere", 403),
        ("http://localhost:{port}", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_other_origins(served: Dashboard, origin: str, want: int) -> None:
    assert ask(served, "/data.json", Origin=origin.format(port=served.port))[0] == want


def test_this_machine_by_name(served: Dashboard) -> None:
    name = f"localhost:{served.port}"
    assert ask(served, "/data.json", Host=name, Origin=f"http://{name}")[0] == 200


@pytest.mark.parametrize("size", [8_500, 70_000, 1_000_000])
def test_long_requests(served: Dashboard, size: int) -> None:
    code, _, _ = ask(served, "/", **{"X-Long": "x" * 7_000})
    assert code == 200
    for request in (
        b"GET /" + b"x" * size,
        b"GET / HTTP/1.1\r\nX: " + b"x" * size,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * size,
    ):
        with socket.create_connection(("127.0.0.1", served.port), timeout=WAIT) as connection:
            sender = threading.Thread(target=quietly, args=(connection, request[:size]))
            sender.start()
            assert connection.recv(65536).startswith(b"HTTP/1.0 431 ")
            connection.close()
            sender.join()


def quietly(connection: socket.socket, request: bytes) -> None:
    try:
        connection.sendall(request)
    except OSError:
        return


@pytest.mark.parametrize(
    "request_", [b"\r\n\r\n", b"GET\r\n\r\n", b"\xff\x00\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"a b c d\r\n\r\n"]
)
def test_no_request_at_all(served: Dashboard, request_: bytes) -> None:
    assert re.match(rb"$|HTTP/1.0 (4|5)\d\d ", raw(served, request_))
    assert ask(served, "/")[0] == 200


def test_there_is_room_for_some_readers_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "CLIENTS", 2)
    monkeypatch.setattr(serving._Handler, "timeout", WAIT)
    with Dashboard(Histories([path]), port=0) as dashboard:
        silent = [socket.create_connection(("127.0.0.1", dashboard.port), timeout=WAIT) for _ in range(2)]
        with pytest.raises(OSError):  # noqa: PT011 - closed before or after the request was sent
            ask(dashboard, "/")
        for each in silent:
            each.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", dashboard.port), timeout=WAIT)


def test_a_reader_that_says_nothing_is_sent_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving._Handler, "timeout", 0.1)
    with Dashboard(Histories([path]), port=0) as dashboard:
        assert raw(dashboard, b"GET / HTTP/1.1\r\nHost: 127") == b""


def test_a_reader_that_says_little_at_a_time_is_sent_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A letter now and then does not buy more time: all of the request must be there."""
    monkeypatch.setattr(serving._Handler, "timeout", 0.2)
    with (
        Dashboard(Histories([path]), port=0) as dashboard,
        socket.create_connection(("127.0.0.1", dashboard.port), timeout=0.02) as connection,
    ):
        answer = None
        while answer is None:
            try:
                connection.sendall(b"x")
                answer = connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:  # it closed while we sent
                answer = b""
        assert answer == b""


# --- tokens and addresses -----------------------------------------------------------------------------------------


def test_a_token_is_asked_for(path: Path) -> None:
    written(path, range(1, 2))
    with Dashboard(Histories([path]), port=0, token=TOKEN) as dashboard:
        assert dashboard.link == f"{dashboard.url}?token=a%20token%20of%20some%20length"
        for target in ("/", "/data.json", "/metrics", "/nowhere"):
            want = 404 if target == "/nowhere" else 200
            for wrong in ({}, {"Authorization": "Bearer x"}, {"Authorization": f"Basic {TOKEN}"}):
                assert ask(dashboard, target, **wrong)[0] == 401
            assert ask(dashboard, f"{target}?token=é"[:-1] + "%C3%A9")[0] == 401
            assert ask(dashboard, f"{target}?token={TOKEN[:-1].replace(' ', '+')}")[0] == 401
            assert ask(dashboard, f"{target}?token={TOKEN.replace(' ', '+')}")[0] == want
            assert ask(dashboard, target, Authorization=f"Bearer {TOKEN}")[0] == want
            assert ask(dashboard, target, Authorization=f"Bearer {TOKEN}", Host="elsewhere")[0] == 403
        for target in ("/page.js", "/page.css"):
            assert ask(dashboard, target)[0] == 200


def test_elsewhere_a_token_is_drawn(path: Path) -> None:
    anywhere = "0.0.0.0"  # noqa: S104 - it is not entered
    one, two = (Dashboard(Histories([path]), host=anywhere, port=0) for _ in range(2))
    for each in (one, two):
        each._server.server_close()
    assert one.token
    assert len(one.token) >= 32
    assert one.token != two.token
    assert Dashboard.__init__.__kwdefaults__ == {"host": "127.0.0.1", "port": None, "token": None}


def test_without_a_wish_a_port_that_is_taken_gives_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(serving, "PORT", taken)
        with Dashboard(Histories([path])) as dashboard:
            assert dashboard.port != taken
            assert ask(dashboard, "/")[0] == 200
        with pytest.raises(InputError, match="give another port"):
            Dashboard(Histories([path]), port=taken)
    with Dashboard(Histories([path])) as dashboard:
        assert dashboard.port == taken


def test_addresses_that_cannot_be(served: Dashboard, path: Path) -> None:
    for host, port in (("127.0.0.1", served.port), ("127.0.0.1", 70_000), ("no.such.host.invalid", 0)):
        with pytest.raises(InputError, match=r"port: got .*give another port"):
            Dashboard(Histories([path]), host=host, port=port)
    with pytest.raises(InputError, match=r"token: got 5 characters; give at least 16"):
        Dashboard(Histories([path]), port=0, token="short")  # noqa: S106


# --- the command line ---------------------------------------------------------------------------------------------


def test_the_command_serves_until_it_is_stopped(path: Path) -> None:
    written(path, range(1, 3))
    words = [sys.executable, "-m", "penstock.cli", "dashboard", str(path.parent), "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        address = re.fullmatch(r"dashboard: http://127\.0\.0\.1:(\d+)/\n", child.stderr.readline())
        assert address is not None
        assert data(SimpleNamespace(port=int(address[1])))["calls"]["points"][-1]["batch"] == 2  # type: ignore[arg-type]
        child.terminate()
        assert child.wait(WAIT) == 0


def test_a_signal_while_the_event_is_looked_at() -> None:
    """It comes whenever it likes, also while its reader holds the event's lock."""
    with cli._asked_to_stop() as asked:
        with asked._cond:  # type: ignore[attr-defined]
            signal.raise_signal(signal.SIGTERM)
        assert asked.wait(WAIT)
    with cli._asked_to_stop() as asked:
        assert not asked.is_set()


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dashboard", str(tmp_path / "nowhere"), "--json"]) == 2
    assert "give a folder" in json.loads(capsys.readouterr().out)["error"]["want"]


OURS = replace(report(1, recall=None), unprobed=Sides(0, 0))  # as it comes from Spark without a sample


def progress(batch: int, *reports: Report) -> SimpleNamespace:
    """Return a micro-batch as Spark tells of it."""
    books = pytest.importorskip("penstock.spark.books", reason="jobs run on Spark", exc_type=ImportError)
    told = [{"policy": each.policy, "mode": each.mode, "books": books.books_of(each)} for each in reports]
    return SimpleNamespace(
        batchId=batch,
        batchDuration=1500,
        timestamp="2001-09-09T01:46:40.000Z",
        eventTime={"max": "2001-09-09T01:46:39.250Z"},
        numInputRows=1,
        observedMetrics={f"penstock {at}": SimpleNamespace(asDict=row.copy) for at, row in enumerate(told)},
    )


def job(*, replayed: bool = False, memory: int | str | None = 500) -> Any:
    """Return what the history takes from a job."""
    return SimpleNamespace(name="calls", replayed=replayed, settings=SimpleNamespace(memory=memory))


@pytest.mark.parametrize("memory", [None, "1MB"])
def test_what_a_job_does_not_know_is_not_told(path: Path, memory: str | None) -> None:
    """Rows of a trace are as old as the trace; a budget in bytes is none in rows."""
    history = History(path)
    cli._record(history, job(replayed=True, memory=memory), progress(1, OURS), None)
    before = progress(2, OURS)
    before.eventTime = {}
    cli._record(history, job(), before, None)
    first, second = Histories([path]).queries()["calls"]["points"]
    assert (None, None) == (first["lag"], first["budget"])
    assert (None, 500) == (second["lag"], second["budget"])


def test_a_job_goes_on_where_no_page_can_be_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: Any) -> None:
        raise OSError("no sockets here")

    monkeypatch.setattr(serving, "_Server", refused)
    with cli._recorded(str(tmp_path / "state"), dashboard=True, port=None) as history:
        assert history is not None
    assert "no dashboard: " in capsys.readouterr().err
    with (
        pytest.raises(InputError, match="give another port"),
        cli._recorded(str(tmp_path / "state"), dashboard=True, port=7),
    ):
        pass


def test_a_job_keeps_its_history_and_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with cli._recorded(str(tmp_path / "out" / "state"), dashboard=True, port=0) as history:
        assert history is not None
        cli._record(history, job(), progress(0), None)
        cli._record(history, job(), progress(1, OURS), None)
        port = re.search(r"http://127\.0\.0\.1:(\d+)/", capsys.readouterr().err)
        assert port is not None
        shown = data(SimpleNamespace(port=int(port[1])))  # type: ignore[arg-type]
    want = point("calls", OURS, batch=1, time=1e9 + 1.5, seconds=1.5, lag=2.25, budget=500)
    assert [want] == bare(shown["calls"]["points"])
    assert {"calls": want} == Histories([tmp_path]).latest()
    assert [beside(str(tmp_path / "out" / "state"))] == list((tmp_path / "out").iterdir())


def test_a_job_whose_checkpoint_is_not_here_leaves_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for place in (None, "s3a://lake/state"):
        with cli._recorded(place, dashboard=False, port=None) as history:
            assert history is None
        with cli._recorded(place, dashboard=True, port=0) as history:
            assert history is not None
            cli._record(history, job(), progress(1, OURS), None)
            assert history.path.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_history_that_cannot_be_written_is_told_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with cli._recorded(str(tmp_path / "file" / "state"), dashboard=False, port=None) as history:
        assert history is not None
        cli._record(history, job(), progress(1, OURS), None)
    assert "1 moments could not be written" in " ".join(capsys.readouterr().err.split())


def test_a_run_tells_of_every_micro_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of those that ended between two looks, and of those after the last look."""
    running = pytest.importorskip("penstock.jobs.running", reason="jobs run on Spark", exc_type=ImportError)
    batches = [progress(number) for number in range(3, 10)]  # it goes on from a checkpoint

    class Query:
        """A query of which a look sees 1, 1, 2, 4, 5 micro-batches, and all 7 when it has ended."""

        looks = iter([0, 1, 1, 2, 4, 5])
        ended = 0

        @property
        def isActive(self) -> bool:  # noqa: N802 - Spark's word
            self.ended = next(self.looks, 7)
            return self.ended < 7

        @property
        def lastProgress(self) -> Any:  # noqa: N802 - Spark's word
            return batches[self.ended - 1] if self.ended else None

        @property
        def recentProgress(self) -> list[Any]:  # noqa: N802 - Spark's word
            return batches[: self.ended]

        def stop(self) -> None:
            self.ended = 7

    def nothing(_query: Query) -> None:
        raise InputError("query", "no micro-batch", "wait")

    monkeypatch.setattr(running, "POLL", 0)
    monkeypatch.setattr(running, "start", lambda *_, **__: Query())
    monkeypatch.setattr(running, "report_of", nothing)
    monkeypatch.setattr(running.inputs, "failure", lambda _: None)
    told: list[Any] = []
    done = running.run(SimpleNamespace(streams=(), ends=False), None, stop=threading.Event(), watch=told.append)
    assert batches == told
    assert done.batches == 7


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("/lake/cp", "/lake/cp"),
        ("cp", "cp"),
        *(
            (f"{local}/lake/cp", "/lake/cp")
            for local in ("file:", "file://", "FILE://", "file://localhost", "file:///")
        ),
        ("s3a://bucket/cp", None),
        ("hdfs:/cp", None),
    ],
)
def test_a_place_on_this_machine_is_known_however_it_is_written(address: str, place: str | None) -> None:
    assert keeping.here(address) == (None if place is None else Path(place))
