"""A server object over WebSocket on a free port of loopback, in the test's own process."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server import Server
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from playhead.servers.access import Access
from playhead.servers.http_connection import HttpServerOptions
from playhead.servers.serving import Shutdown
from playhead.servers.websocket import WebSocketServerOptions, websocket_endpoint
from tests.servers.loopback import app_server


@asynccontextmanager
async def served_websocket(
    server: Server[Any],
    *,
    options: WebSocketServerOptions | None = None,
    http: HttpServerOptions | None = None,
    access: Access | None = None,
    tls: ssl.SSLContext | None = None,
    shutdown: Shutdown | None = None,
) -> AsyncIterator[int]:
    """Gives the port of `/mcp`; leaving ends the server, at once."""
    endpoint = websocket_endpoint(server, options=options or WebSocketServerOptions())
    app = (access or Access.for_host("127.0.0.1")).protect(
        Starlette(routes=[WebSocketRoute("/mcp", endpoint)])
    )
    async with app_server(app, options=http or HttpServerOptions(), tls=tls, shutdown=shutdown) as sock:
        yield sock.getsockname()[1]
