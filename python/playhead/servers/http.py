"""Serving an ASGI application over HTTP/1.1 and WebSocket under trio: quiet, bounded, ended in order."""

from __future__ import annotations

import socket
import ssl
import threading
from functools import partial

import trio
from hypercorn.config import Config
from hypercorn.trio.lifespan import Lifespan
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import LifespanState
from hypercorn.utils import wrap_app
from starlette.types import ASGIApp

from playhead.errors import UsageError
from playhead.servers.http_body import WholeBody
from playhead.servers.http_connection import BoundedConnection, BoundedListener, HttpOptions
from playhead.servers.shutdown import EndsInGoodOrder, Shutdown

DEFAULT_OPTIONS = HttpOptions()


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


def base_url(sock: socket.socket, *, scheme: str = "http") -> str:
    """The `scheme://host:port` under which a bound socket is reached."""
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def serve_app(
    app: ASGIApp,
    sock: socket.socket,
    *,
    options: HttpOptions = DEFAULT_OPTIONS,
    tls: ssl.SSLContext | None = None,
    shutdown: Shutdown | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serves `app` on a bound socket until it is cancelled or shut down; then every connection is closed.

    A client that is slow or silent costs one task and one connection, for a time that `options` state.
    Cancelled, it closes every connection at once. Shut down, it takes no new connection, ends those that are
    idle, and returns when the others have had their answers or after `shutdown.grace_seconds`.

    Args:
        app: an ASGI application, HTTP and WebSocket.
        sock: from `bind`; it is closed here.
        options: what a client may cost.
        tls: certificate and key (`tls.tls_context`); None speaks plain HTTP.
        shutdown: how it is told to end in good order.
        task_status: started once connections are accepted.
    """
    config = Config()
    config.accesslog = None
    config.errorlog = None
    config.keep_alive_timeout = options.keep_alive_seconds
    config.keep_alive_max_requests = 1_000_000  # at 1000, the default, a long stream would stumble
    config.include_server_header = False
    shutdown = shutdown or Shutdown()
    # The steps of hypercorn.trio.run.worker_serve, which cannot be given a listener.
    with trio.socket.from_stdlib_socket(sock) as listening:
        listening.listen(config.backlog)
        listener = BoundedListener(trio.SocketListener(listening), options)
        # hypercorn's deprecated type of an application differs from Starlette's in its scope only.
        whole = WholeBody(EndsInGoodOrder(app, shutdown), options)
        wrapped = wrap_app(whole, config.wsgi_max_body_size, "asgi")  # type: ignore[arg-type]
        state: LifespanState = {}
        lifespan = Lifespan(wrapped, config, state)
        context = WorkerContext(None)
        connection = partial(BoundedConnection, wrapped, config, context, state, tls)
        async with trio.open_nursery() as nursery:
            await nursery.start(lifespan.handle_lifespan)
            await lifespan.wait_for_startup()
            nursery.start_soon(listener.close_when_cancelled)
            async with trio.open_nursery() as accepting:
                handle = partial(listener.serve, connection)
                await accepting.start(
                    partial(trio.serve_listeners, handle, [listener], handler_nursery=nursery)
                )
                task_status.started()
                await shutdown.requested.wait()
                accepting.cancel_scope.cancel()
            await context.terminated.set()  # hypercorn ends idle connections, and the others at their answer
            with trio.move_on_after(shutdown.grace_seconds):
                await listener.until_none_is_left()
                await lifespan.wait_for_shutdown()
            nursery.cancel_scope.cancel()


async def serve_until_sigterm(
    app: ASGIApp,
    sock: socket.socket,
    *,
    options: HttpOptions = DEFAULT_OPTIONS,
    tls: ssl.SSLContext | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """`serve_app` as a command runs it: the first SIGTERM ends it in good order, and it returns.

    Outside the main thread, where Python hears no signals, it serves until it is cancelled.
    """
    shutdown = Shutdown()
    async with trio.open_nursery() as nursery:
        if threading.current_thread() is threading.main_thread():
            await nursery.start(shutdown.listen)
        await serve_app(app, sock, options=options, tls=tls, shutdown=shutdown, task_status=task_status)
        nursery.cancel_scope.cancel()
