"""Serving an ASGI application over HTTP/1.1 under trio: quiet, on loopback unless told otherwise."""

from __future__ import annotations

import socket

import hypercorn.trio
import trio
from hypercorn.config import Config
from starlette.types import ASGIApp

from playhead.errors import UsageError

KEEP_ALIVE_SECONDS = 300.0
"""A client reads a page of music every 6 s or so: hypercorn's 5 s would make it connect anew each time."""


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. Whoever serves it closes it.

    Raises:
        UsageError: the address is taken, forbidden or unknown.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"cannot listen on {host!r}: {error}; give another --host") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except (OSError, OverflowError) as error:
        sock.close()
        raise UsageError(f"cannot listen on {host}, port {port}: {error}; give another --port") from error
    return sock


def base_url(sock: socket.socket) -> str:
    """The `http://host:port` under which a bound socket is reached."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve_app(
    app: ASGIApp,
    sock: socket.socket,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves `app` on a bound socket until it is cancelled; then every connection is closed at once."""
    config = Config()
    config.bind = [f"fd://{sock.detach()}"]  # hypercorn owns and closes it from here on
    config.accesslog = None
    config.errorlog = None
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.keep_alive_max_requests = 1_000_000  # at 1000, the default, a long stream would stumble
    config.include_server_header = False
    async with trio.open_nursery() as nursery:
        # hypercorn's deprecated type of an application differs from Starlette's in its scope only.
        await nursery.start(_serve, app, config)
        task_status.started()


async def _serve(app: ASGIApp, config: Config, *, task_status: trio.TaskStatus[list[str]]) -> None:
    await hypercorn.trio.serve(app, config, task_status=task_status)  # type: ignore[arg-type]
