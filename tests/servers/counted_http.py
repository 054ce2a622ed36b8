"""An SDK server over HTTP in this process, with its TCP connections counted."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp.server import Server
from mcp.server.mcpserver import MCPServer

from playhead.limits import MIB
from playhead.servers.http import base_url
from playhead.servers.http_connection import HttpServerOptions
from tests.servers.loopback import app_server


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

    options = HttpServerOptions(body_bytes=64 * MIB)
    async with app_server(app, port=port, options=options, tls=tls) as sock:
        counted.url = base_url(sock, scheme="http" if tls is None else "https") + "/mcp"
        yield counted
