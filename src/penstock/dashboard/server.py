"""Serve the page, its numbers and the metrics, to this machine only unless told otherwise, and nothing else."""

import hmac
import io
import ipaddress
import json
import os
import re
import secrets
import socket
import threading
import time
from contextlib import suppress
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Self
from urllib.parse import parse_qs, quote, urlsplit

from penstock.dashboard.history import Histories
from penstock.dashboard.metrics import exposition
from penstock.errors import InputError

HOST, PORT = "127.0.0.1", 4050
ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - asked for by name only
HEAD = 8192  # bytes of a request
EMPTY = re.compile(rb"(?:^|\n)\r?\n")  # the line that ends a head
LOOK = 0.1  # seconds between two looks at whether to end
WAIT, SOON = 10.0, 0.001  # seconds for a client to ask, and to take the answer; at the end of its time
PATIENCE, DRAINED = 0.5, 64  # seconds and looks at what comes after a request that was refused
CLIENTS = 32  # at once
SHORT = 16  # characters: a token must have as many
SERIALS = 15  # digits
HTML, SCRIPT, STYLE, JSON, PLAIN = "text/html", "text/javascript", "text/css", "application/json", "text/plain"
ASSETS = {"/": ("page.html", HTML), "/page.js": ("page.js", SCRIPT), "/page.css": ("page.css", STYLE)}
OPEN = ("/page.js", "/page.css")  # they say nothing of a query, and a page cannot send a token for them
SAFE = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Dashboard:
    """A page on the histories of queries, served from a thread of its own; a context manager.

    Parameters:
        histories: what is looked at.
        host: the address it is bound to. Any but this machine's own needs a token.
        port: 0 for any that is free; None for 4050, or any that is free if that is taken.
        token: what a reader must bring; None: none on this machine's own address, one that is drawn elsewhere.

    Raises:
        InputError: if the address cannot be bound, or the token is short.
    """

    def __init__(
        self, histories: Histories, *, host: str = HOST, port: int | None = None, token: str | None = None
    ) -> None:
        if token is not None and len(token) < SHORT:
            raise InputError("token", f"{len(token)} characters", f"give at least {SHORT}, or none: one is drawn")
        self.token = secrets.token_urlsafe() if token is None and not _own(host) else token
        self._server = _bound(histories, host, port, self.token)
        self.port: int = self._server.server_address[1]
        self.url = f"http://{_written(host)}:{self.port}/"

    @property
    def link(self) -> str:
        """The address to open, with the token that it needs."""
        return self.url if self.token is None else f"{self.url}?token={quote(self.token, safe='')}"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(LOOK,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _bound(histories: Histories, host: str, port: int | None, token: str | None) -> "_Server":
    """Return a server at an address that can be had."""
    *others, last = (PORT, 0) if port is None else (port,)
    for each in others:
        with suppress(OSError):
            return _Server(histories, host, each, token)
    try:
        return _Server(histories, host, last, token)
    except (OSError, OverflowError, UnicodeError) as error:
        want = "give another port, 0 for any that is free, or another host"
        raise InputError("port", f"{host}:{last} ({error})", want) from error


def _own(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _written(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Server(ThreadingHTTPServer):
    """A server for a few readers at once."""

    daemon_threads = True
    request_queue_size = CLIENTS
    block_on_close = False  # a slow reader does not hold up the end of a job

    def __init__(self, histories: Histories, host: str, port: int, token: str | None) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.histories = histories
        self.token = token
        self.run = secrets.token_hex(8)  # a page that has seen another server begins anew
        self._room = threading.BoundedSemaphore(CLIENTS)
        super().__init__((host, port), _Handler)
        names = {host, "localhost"} if _own(host) else {host}
        port = self.server_address[1]
        written = {_written(name).lower() for name in names}
        self.names = {f"{name}:{port}" for name in written} | (written if port == 80 else set())
        self.anywhere = host in ANYWHERE

    def server_bind(self) -> None:
        """Bind, without asking a name server who we are."""
        if os.name == "posix":  # the port of a server that has just ended is free; elsewhere it could be taken away
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if there is room for one more."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a reader that went away is no event."""


class _Handler(BaseHTTPRequestHandler):
    """One request, one answer."""

    server: _Server
    timeout = WAIT

    def handle_one_request(self) -> None:
        """Read a head that is not too long, and answer it."""
        self.close_connection = True
        self.command, self.requestline = "", ""
        self.headers = Message()  # none yet
        head = self._head()
        if len(head) > HEAD:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            self._drain()
        elif head:
            self.raw_requestline, _, rest = head.partition(b"\n")
            self.rfile = io.BytesIO(rest)
            if self.parse_request():
                self._answer()

    def _head(self) -> bytes:
        """Return a request up to its empty line, or more than it may have; nothing if it does not come in time."""
        head, end = b"", time.monotonic() + self.timeout
        with suppress(OSError):
            while len(head) <= HEAD:
                self.connection.settimeout(max(SOON, end - time.monotonic()))  # of all pieces together
                some = self.connection.recv(HEAD + 1 - len(head))
                head += some
                ended = EMPTY.search(head)
                if ended or not some:
                    head = head[: ended.end()] if ended else head
                    break
            self.connection.settimeout(self.timeout)
            return head
        return b""

    def _answer(self) -> None:
        if self.command != "GET":
            self.send_error(HTTPStatus.METHOD_NOT_ALLOWED)
            self._drain()
        elif not self._ours():
            self.send_error(HTTPStatus.FORBIDDEN)
        elif not self.path.startswith("/"):
            self.send_error(HTTPStatus.NOT_FOUND)
        else:
            address = urlsplit(self.path)
            self._route(address.path, parse_qs(address.query))

    def _route(self, path: str, words: dict[str, list[str]]) -> None:
        if path not in OPEN and not self._known(words):
            self.send_error(HTTPStatus.UNAUTHORIZED)
        elif path in ASSETS:
            name, kind = ASSETS[path]
            self._send(HTTPStatus.OK, kind, files("penstock.dashboard").joinpath(name).read_bytes())
        elif path == "/data.json":
            self._data(words.get("since", ["0"])[0])
        elif path == "/metrics":
            self._send(HTTPStatus.OK, f"{PLAIN}; version=0.0.4", exposition(self.server.histories.latest()).encode())
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _ours(self) -> bool:
        """Return whether a request means this server, and comes from no other page."""
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or not (self.server.anywhere or hosts[0].lower() in self.server.names):
            return False
        return all(origin.lower() == f"http://{hosts[0].lower()}" for origin in origins)

    def _known(self, words: dict[str, list[str]]) -> bool:
        """Return whether a request has the token, if one is needed."""
        if self.server.token is None:
            return True
        kind, _, bearer = self.headers.get("Authorization", "").partition(" ")
        brought = [*words.get("token", []), *([bearer.strip()] if kind.lower() == "bearer" else [])]
        want = self.server.token.encode()
        return any(hmac.compare_digest(each.encode(errors="replace"), want) for each in brought)

    def _data(self, since: str) -> None:
        if not (since.isascii() and since.isdigit() and len(since) <= SERIALS):
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        answer = {"run": self.server.run, "queries": self.server.histories.queries(int(since))}
        self._send(HTTPStatus.OK, JSON, json.dumps(answer, separators=(",", ":")).encode())

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Answer with a word on what was wrong, and nothing of the request."""
        self._send(HTTPStatus(code), PLAIN, f"{HTTPStatus(code).phrase}\n".encode())

    def _send(self, code: HTTPStatus, kind: str, body: bytes) -> None:
        self.request_version = self.protocol_version  # a request without one gets a whole answer, too
        self.send_response(code)
        more = {"Allow": "GET"} if code == HTTPStatus.METHOD_NOT_ALLOWED else {}
        more |= {"WWW-Authenticate": "Bearer"} if code == HTTPStatus.UNAUTHORIZED else {}
        for name, value in {**SAFE, **more, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _drain(self) -> None:
        """Take some of what a client still sends: closed on it, it might not see the answer."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(PATIENCE)
            for _ in range(DRAINED):
                if not self.connection.recv(HEAD):
                    break

    def version_string(self) -> str:
        """Return who answers."""
        return "penstock"

    def log_message(self, format: str, *words: Any) -> None:  # noqa: A002
        """Say nothing: the terminal is the job's."""
