"""An SDK server under hypercorn in this process, with its TCP connections counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.server import Server
from mcp.server.mcpserver import MCPServer


@dataclass(slots=True, kw_only=True)
class CountedServer:
    url: str = ""
    clients: set[tuple[str, int]] = field(default_factory=set)
    """Address and port of every connection so far."""
    queries: list[bytes] = field(default_factory=list)
    """The query of every request so far."""


@asynccontextmanager
async def counted_http(
    server: MCPServer | Server[Any], *, json_response: bool, port: int = 0, config: Config | None = None
) -> AsyncIterator[CountedServer]:
    """Serve until the context is left; nothing stays behind on the port."""
    counted = CountedServer()
    inner: Any = server.streamable_http_app(json_response=json_response)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            counted.clients.add(tuple(scope["client"]))
            counted.queries.append(scope["query_string"])
        await inner(scope, receive, send)

    config = config or Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = config.errorlog = None
    config.graceful_timeout = config.shutdown_timeout = 0.1
    config.keep_alive_timeout = 300
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        binds = await nursery.start(partial(serve, app, config, shutdown_trigger=stop.wait))
        counted.url = f"{binds[0]}/mcp"
        try:
            yield counted
        finally:
            stop.set()
