"""The sessions of a server over Streamable HTTP. A new session may replace the oldest idle one.

The SDK ends a session after some idle minutes, and refuses a new one with 503 while its table is full. So
clients that leave without a DELETE would lock out all others for minutes. `SessionTable` deletes the oldest
idle session first, with the DELETE that its client did not send.
"""

from __future__ import annotations

from typing import Any

import trio
from mcp.server import Server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from playhead.limits import DEFAULT_LIMITS
from playhead.servers.http_connection import HttpServerOptions
from playhead.servers.late_blob import LateBlobs
from playhead.servers.messages import OnlyMessages


def streamable_http_app(
    server: Server[Any],
    path: str,
    *,
    sessions: int,
    routes: list[Route] | None = None,
    reports: bool = False,
) -> Starlette:
    """Return the application that serves `server` at `path`, with at most `sessions` sessions, and `routes`.

    With `reports`, the answers are event streams, in which a server can report progress and ask its client
    before it answers. They cost more than the JSON that a page needs.
    """
    app = server.streamable_http_app(
        streamable_http_path=path,
        json_response=not reports,
        max_request_body_size=HttpServerOptions().body_bytes,
        session_idle_timeout=DEFAULT_LIMITS.idle_session_seconds,
        max_sessions=sessions,
        # `Access` checks Host and Origin.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        custom_starlette_routes=routes,
    )
    app.add_middleware(LateBlobs)
    app.add_middleware(SessionTable, path=path, size=sessions)
    app.add_middleware(OnlyMessages, path=path)
    return app


class SessionTable:
    """ASGI middleware that deletes the oldest idle session when a new one needs its place."""

    def __init__(self, app: ASGIApp, path: str, size: int) -> None:
        self._app = app
        self._path = path
        self._size = size
        self._requests: dict[str, int] = {}
        """The number of requests in flight and open streams of each session. The session used last is at the
        end."""
        self._openings = 0
        """The number of requests in flight that may open a session."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        session = headers.get(MCP_SESSION_ID_HEADER)  # None in the request that opens the session
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)  # the newest versions have no sessions
        is_opening = session is None and version in (None, *HANDSHAKE_PROTOCOL_VERSIONS)
        if not is_opening and session not in self._requests:
            await self._app(scope, receive, send)
            return
        is_over = False

        async def watch(message: Message) -> None:
            nonlocal session, is_over
            if message["type"] == "http.response.start":
                if session is not None:
                    is_over = message["status"] == 404 or scope["method"] == "DELETE"
                elif message["status"] < 400:
                    session = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER)
                    if session is not None:
                        self._openings -= 1
                        self._begin_request(session)
            await send(message)

        if session is None:
            self._openings += 1
        else:
            self._begin_request(session)
        try:
            if is_opening:
                await self._make_room(scope)
            await self._app(scope, receive, watch)
        finally:
            if session is None:
                self._openings -= 1
            else:
                self._end_request(session, is_over=is_over)

    def _begin_request(self, session: str) -> None:
        self._requests[session] = self._requests.pop(session, 0) + 1

    def _end_request(self, session: str, *, is_over: bool) -> None:
        requests = self._requests.pop(session) - 1
        if requests or not is_over:
            self._requests[session] = requests

    async def _make_room(self, scope: Scope) -> None:
        idle = next((session for session, requests in self._requests.items() if not requests), None)
        if idle is not None and len(self._requests) + self._openings > self._size:
            del self._requests[idle]
            await self._delete(idle, scope)

    async def _delete(self, session: str, scope: Scope) -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            await trio.lowlevel.checkpoint()

        headers = [(MCP_SESSION_ID_HEADER.encode(), session.encode())]
        await self._app({**scope, "method": "DELETE", "headers": headers}, receive, send)
