"""The page's web server: the page itself, a stream of messages to every viewer, and the actions of viewers."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dashboard.access import Access
from dashboard.errors import ActionError, ListenError
from dashboard.viewers import Viewers
from topologies.errors import RailbedError

STATIC = Path(__file__).with_name("static")
MOST_BODY_BYTES = 4096

_HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cache-control": "no-store",
}
_OPEN = ("/static/",)
"""What is shown to everyone: the files of the package."""


class Source(Protocol):
    """Where the messages come from, and who carries out what viewers ask for."""

    async def run(self, publish: Callable[[dict[str, Any]], None]) -> None:
        """Publish messages, on the event loop, until cancelled."""

    def act(self, order: Any) -> list[dict[str, Any]]:
        """Carry out an order, in a thread; the messages for all viewers. Raises RailbedError."""

    async def replay(self, order: Any) -> None:
        """Change the moment or the speed of a replay; raises ActionError where nothing is replayed."""


class Guard:
    """ASGI: refuses what :class:`Access` refuses, and adds the headers that keep a browser on the safe side."""

    def __init__(self, app: Any, access: Access, viewers: Viewers) -> None:
        self.viewers = viewers
        self._app = app
        self._access = access

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        request = Request(scope)
        changes = scope["method"] not in ("GET", "HEAD")
        token = request.query_params.get("token") or request.headers.get("x-railbed-token")
        if not changes and scope["path"].startswith(_OPEN):
            token = self._access.token
        why_not = self._access.refusal(dict(request.headers), token, changes)
        app = JSONResponse({"error": why_not}, 403) if why_not else self._app
        await app(scope, receive, send_guarded)


def application(source: Source, access: Access, record: Callable[[dict[str, Any]], None]) -> Guard:
    """The ASGI application; ``record`` is told every message that viewers are shown."""
    viewers = Viewers()

    def publish(message: dict[str, Any]) -> None:
        record(message)
        viewers.publish(message)

    async def page(_request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    async def events(_request: Request) -> Response:
        if viewers.full:
            return JSONResponse({"error": "too many are looking at this page already; close one and try again"}, 503)
        return StreamingResponse(viewers.stream(), media_type="text/event-stream")

    async def act(request: Request) -> Response:
        messages = await run_in_threadpool(source.act, await _order(request))
        for message in messages:
            publish(message)
        return JSONResponse({"messages": messages})

    async def replay(request: Request) -> Response:
        await source.replay(await _order(request))
        return JSONResponse({})

    async def sorry(_request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 400)

    @asynccontextmanager
    async def lifespan(_app: Any) -> AsyncIterator[None]:
        running = asyncio.create_task(source.run(publish))
        try:
            yield
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running

    routes = [
        Route("/", page),
        Route("/events", events),
        Route("/act", act, methods=["POST"]),
        Route("/replay", replay, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={RailbedError: sorry})
    return Guard(app, access, viewers)


async def _order(request: Request) -> Any:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY_BYTES:
            raise ActionError(f"an action has at most {MOST_BODY_BYTES} bytes")
    try:
        return json.loads(body)
    except ValueError:
        raise ActionError("an action is a JSON object") from None


class _Server(uvicorn.Server):  # type: ignore[misc,unused-ignore]
    """Ends the viewers' streams when it is told to end, which it would else wait for."""

    def __init__(self, config: Any, viewers: Viewers) -> None:
        super().__init__(config)
        self._viewers = viewers

    async def shutdown(self, sockets: Any = None) -> None:
        self._viewers.close()
        await super().shutdown(sockets)


def serve(app: Guard, host: str, port: int, started: Callable[[], None]) -> None:
    """Serve until interrupted; ``started`` is called once the address is bound. Raises ListenError if it is taken."""
    config = uvicorn.Config(
        app, log_level="error", access_log=False, timeout_graceful_shutdown=2, server_header=False, lifespan="on"
    )
    server = _Server(config, app.viewers)
    try:
        listener = socket.create_server((host, port), family=_family(host))
    except OSError as error:
        raise ListenError(
            f"the page cannot be served at {host}, port {port}: {error.strerror or error}; choose another with --port"
        ) from None
    with listener:
        started()
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
