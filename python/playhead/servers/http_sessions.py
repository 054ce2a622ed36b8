"""The sessions of a server over Streamable HTTP: the oldest idle one makes room for a newcomer.

The SDK ends a session that was idle for some minutes, and refuses a newcomer with 503 while its table is
full. So clients that leave without a DELETE would lock out all others for minutes. Here the oldest idle
session is deleted first, by the DELETE that its client did not send.
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
    server: Server[Any], path: str, *, sessions: int, routes: list[Route] | None = None
) -> Starlette:
    """Return the application that serves `server` at `path`, with at most `sessions` sessions, and
    `routes`."""
    app = server.streamable_http_app(
        streamable_http_path=path,
        json_response=True,  # a page does not need an event stream
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
    """ASGI middleware that deletes the oldest idle session when a newcomer needs its place."""

    def __init__(self, app: ASGIApp, path: str, size: int) -> None:
        self._app = app
        self._path = path
        self._size = size
        self._requests: dict[object, int] = {}
        """The count of requests in flight and open streams, by session or newcomer, the latest used last."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = self._key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        table, ends = self._requests, not isinstance(key, str)

        async def watch(message: Message) -> None:
            nonlocal key, ends
            if message["type"] == "http.response.start":
                opened = Headers(raw=message["headers"]).get(MCP_SESSION_ID_HEADER)
                if isinstance(key, str):
                    ends = message["status"] == 404 or scope["method"] == "DELETE"
                elif opened is not None and message["status"] < 400:
                    table[opened] = table.pop(key)
                    key, ends = opened, False
            await send(message)

        table[key] = table.pop(key, 0) + 1
        try:
            idle = next((session for session, requests in table.items() if not requests), None)
            if ends and idle is not None and len(table) > self._size:
                del table[idle]
                await self._delete(str(idle), scope)
            await self._app(scope, receive, watch)
        finally:
            requests = table.pop(key) - 1
            if requests or not ends:
                table[key] = requests

    def _key(self, scope: Scope) -> object:
        """Return the session of a request, or an object for the one that it may open; None for neither."""
        if scope["type"] != "http" or scope["path"] != self._path:
            return None
        headers = Headers(scope=scope)
        session = headers.get(MCP_SESSION_ID_HEADER)
        if session is not None:
            return session if session in self._requests else None
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)  # the newest ones have no sessions
        return object() if version is None or version in HANDSHAKE_PROTOCOL_VERSIONS else None

    async def _delete(self, session: str, scope: Scope) -> None:
        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            await trio.lowlevel.checkpoint()

        headers = [(MCP_SESSION_ID_HEADER.encode(), session.encode())]
        await self._app({**scope, "method": "DELETE", "headers": headers}, receive, send)
