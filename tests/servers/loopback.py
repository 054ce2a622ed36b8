"""Servers on a free port of loopback, in the test's own process; leaving the block ends them at once."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio
from starlette.types import ASGIApp

from playhead.servers.http import bind, serve_app


@asynccontextmanager
async def tcp_server(
    handle: Callable[[trio.SocketStream], Awaitable[object]], *, port: int = 0
) -> AsyncIterator[int]:
    """The port of a server that hands each connection to `handle`."""
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, handle, port, host="127.0.0.1"))
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def app_server(app: ASGIApp, *, port: int = 0, **how: Any) -> AsyncIterator[socket.socket]:
    """The socket on which `app` is served; `how` goes to `serve_app`."""
    sock = bind("127.0.0.1", port)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve_app, app, sock, **how))
        yield sock
        nursery.cancel_scope.cancel()
