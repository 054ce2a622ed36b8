"""An SDK server over HTTP in this process, with its TCP connections counted."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio
from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.limits import MIB
from playhead.servers.http import base_url, bind, serve_app
from playhead.servers.http_connection import HttpServerOptions


@dataclass(slots=True, kw_only=True)
class CountedServer:
    url: str = ""
    clients: set[tuple[str, int]] = field(default_factory=set)
    """Address and port of every connection so far."""
    queries: list[bytes] = field(default_factory=list)
    """The query of every request so far."""


@asynccontextmanager
async def counted_http(
    server: MCPServer | Server[Any], *, json_response: bool, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[CountedServer]:
    """Serve until the context is left; nothing stays behind on the port."""
    counted = CountedServer()
    inner: Any = server.streamable_http_app(json_response=json_response)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            counted.clients.add(tuple(scope["client"]))
            counted.queries.append(scope["query_string"])
        await inner(scope, receive, send)

    sock = bind("127.0.0.1", port)
    counted.url = base_url(sock, scheme="http" if tls is None else "https") + "/mcp"
    options = HttpServerOptions(body_bytes=64 * MIB)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_app, app, sock, options=options, tls=tls))
        yield counted
        nursery.cancel_scope.cancel()
