"""A server object over WebSocket on a free port of loopback, in the test's own process."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from mcp.server import Server
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from playhead.servers.access import Access
from playhead.servers.http import bind, serve_app
from playhead.servers.http_connection import HttpServerOptions
from playhead.servers.serving import Shutdown
from playhead.servers.websocket import WebSocketServerOptions, websocket_endpoint


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
    sock = bind("127.0.0.1", 0)
    port: int = sock.getsockname()[1]
    endpoint = websocket_endpoint(server, options=options or WebSocketServerOptions())
    app = (access or Access.for_host("127.0.0.1")).protect(
        Starlette(routes=[WebSocketRoute("/mcp", endpoint)])
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(serve_app, app, sock, options=http or HttpServerOptions(), tls=tls, shutdown=shutdown)
        )
        yield port
        nursery.cancel_scope.cancel()
