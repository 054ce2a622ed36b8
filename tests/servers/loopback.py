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


def free_port(kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """One where nobody listens."""
    with socket.socket(socket.AF_INET, kind) as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@asynccontextmanager
async def started(serve: Callable[..., Awaitable[object]], *arguments: Any, **how: Any) -> AsyncIterator[Any]:
    """Yield what `serve` says once it has started."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(serve, *arguments, **how))
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def tcp_server(
    handle: Callable[[trio.SocketStream], Awaitable[object]], *, port: int = 0
) -> AsyncIterator[int]:
    """The port of a server that hands each connection to `handle`."""
    async with started(trio.serve_tcp, handle, port, host="127.0.0.1") as (listener,):
        yield listener.socket.getsockname()[1]


@asynccontextmanager
async def app_server(app: ASGIApp, *, port: int = 0, **how: Any) -> AsyncIterator[socket.socket]:
    """The socket on which `app` is served; `how` goes to `serve_app`."""
    sock = bind("127.0.0.1", port)
    async with started(serve_app, app, sock, **how):
        yield sock
