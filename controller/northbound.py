"""The northbound interface: state, paths, failures and counters over HTTP, and a stream of events.

It reads, but for two things: a PUT of ``/placement`` places connections, one of ``/drained`` takes links out of
service. Answers are JSON. Errors are ``{"error": SENTENCE}`` with status 400 (a bad question), 404 (no such thing), 405
(neither a GET nor such a PUT), 413 (too long a body) or 504 (a switch did not answer). ``/events`` is a stream without
an end: server-sent events if the client asks for ``text/event-stream``, else one JSON object a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from controller.errors import NorthboundError
from controller.events import EventWriter
from controller.framework import hub
from topologies.errors import RailbedError, UnknownElementError

Query = dict[str, str]
Answer = Callable[[Query], Any]
Take = Callable[[Any], Any]
"""Takes what was put, as read from JSON."""

MAX_WAITING_EVENTS = 10_000
HEARTBEAT_S = 15.0
REQUEST_TIMEOUT_S = 10.0
MAX_BODY_BYTES = 64 << 20

_ROUTES = {
    "/": "this list",
    "/state": "fabric, version of the routes and how far it is in force, switches connected, links down",
    "/paths": "?src=GPU&dst=GPU: the path in force between two GPUs, with links and relays",
    "/failures": "links broken, out of service, and held down after flapping; pairs without a path",
    "/placement": "PUT a placement (the JSON of --placement), or null for the one at the start",
    "/drained": "PUT a list of link ids: these are out of service from now on, all others in service",
    "/counters": "?switch=SWITCH: packets and bytes of its ports, and packets dropped at a second dead port",
    "/events": "?since=NUMBER: the events from there on, as they happen",
}


class Northbound:
    """Answers requests; ``answers`` maps a path to what is asked of the controller, ``takes`` to what it is told."""

    def __init__(self, emit: EventWriter, answers: dict[str, Answer], takes: dict[str, Take]) -> None:
        """Nothing is bound before :meth:`serve`."""
        self._emit = emit
        self.answers = answers
        self.takes = takes

    def bind(self, host: str, port: int) -> Any:
        """The listening server; its ``serve_forever`` is to be spawned. Raises OSError if the address is taken."""

        def handle(socket: Any, address: Any) -> None:
            try:
                _Handler(socket, address, self)
            except OSError:
                pass  # the client has gone
            finally:
                socket.close()

        return hub.StreamServer((host, port), handle)

    def stream(self, since: int, write: Callable[[bytes], None], server_sent: bool) -> None:
        """Write events until the client has gone (``write`` raises OSError) or is too slow to follow."""
        waiting = hub.Queue(MAX_WAITING_EVENTS)
        overrun = False

        def listener(event: dict[str, Any]) -> None:
            nonlocal overrun
            if waiting.qsize() >= MAX_WAITING_EVENTS - 1:
                overrun = True
            else:
                waiting.put(event)

        self._emit.listen(listener, since)
        try:
            while not overrun:
                try:
                    event = waiting.get(timeout=HEARTBEAT_S)
                except hub.QueueEmpty:
                    write(b": still here\n\n" if server_sent else b"\n")
                    continue
                line = json.dumps(event)
                text = (
                    f"id: {event['number']}\nevent: {event['event']}\ndata: {line}\n\n" if server_sent else f"{line}\n"
                )
                write(text.encode())
        finally:
            self._emit.leave(listener)


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = REQUEST_TIMEOUT_S
    server_version = "railbed-controller"
    sys_version = ""

    def __init__(self, socket: Any, address: Any, northbound: Northbound) -> None:
        self.northbound = northbound
        super().__init__(socket, address, northbound)  # type: ignore[arg-type]

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the log is for what goes wrong."""

    def do_GET(self) -> None:
        """Answer a question."""
        parts = urlsplit(self.path)
        try:
            query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        except ValueError:
            self._error(400, f"the query '{parts.query}' is not of the form name=value&name=value")
            return
        if parts.path == "/events":
            self._events(query)
        elif parts.path == "/":
            self._reply(200, _ROUTES)
        elif parts.path in self.northbound.takes:
            self._error(405, f"'{parts.path}' is not there to be read: use PUT", {"Allow": "PUT"})
        elif parts.path not in self.northbound.answers:
            self._error(404, f"there is no '{parts.path}': ask '/' for what there is")
        else:
            self._answer(self.northbound.answers[parts.path], query)

    def do_PUT(self) -> None:
        """Take what is put."""
        take = self.northbound.takes.get(urlsplit(self.path).path)
        if take is None:
            self._refuse()
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            self.close_connection = True
            self._error(413, f"the body needs a Content-Length of at most {MAX_BODY_BYTES} bytes")
            return
        try:
            value = json.loads(self.rfile.read(int(length)))
        except ValueError as error:
            self._error(400, f"the body is not JSON: {error}")
            return
        self._answer(take, value)

    def _refuse(self) -> None:
        self.close_connection = True
        self._error(405, f"{self.command} is not possible: this interface only reads here, use GET", {"Allow": "GET"})

    do_POST = do_DELETE = do_PATCH = do_HEAD = do_OPTIONS = _refuse  # noqa: N815

    def _answer(self, answer: Callable[[Any], Any], asked: Any) -> None:
        try:
            self._reply(200, answer(asked))
        except UnknownElementError as error:
            self._error(404, str(error))
        except NorthboundError as error:
            self._error(error.status, str(error))
        except RailbedError as error:
            self._error(400, str(error))

    def _events(self, query: Query) -> None:
        since = query.get("since", self.headers.get("Last-Event-ID", "0"))
        if not since.isdigit():
            self._error(400, f"since is '{since}': it must be the number of an event, 0 or more")
            return
        server_sent = "text/event-stream" in self.headers.get("Accept", "")
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if server_sent else "application/x-ndjson")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

        def write(data: bytes) -> None:
            self.wfile.write(data)
            self.wfile.flush()

        self.northbound.stream(int(since), write, server_sent)

    def _error(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        self._reply(status, {"error": sentence}, headers)

    def _reply(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = (json.dumps(value) + "\n").encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def wanted(query: Query, *names: str, optional: tuple[str, ...] = ()) -> list[str]:
    """The values of the named parameters; raises NorthboundError for one that is missing or not known.

    Those in ``optional`` may be there too.
    """
    for name in names:
        if not query.get(name):
            raise NorthboundError(f"the parameter '{name}' is missing: this needs {' and '.join(names)}")
    for name in query:
        if name not in (*names, *optional):
            known = f"known: {', '.join((*names, *optional))}" if names else "none is known here"
            raise NorthboundError(f"unknown parameter '{name}': {known}")
    return [query[name] for name in names]
