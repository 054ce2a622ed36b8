"""An ASGI server for HTTP/1.1 and WebSocket under trio, on h11 and wsproto.

The alternatives do not fit: uvicorn needs asyncio, and hypercorn 0.18 (tried in 2026) crashes on a WebSocket
upgrade whose first frame is in the same packet, continues to buffer a message that exceeds the limit (640 MB
for 600 MB sent), and waits at SIGTERM for a client that does not read.

`serve_app` accepts connections while fewer than `HttpServerOptions.connections` are open. Each connection is
a task, and all tasks that its requests start end with it. `http_connection.py` serves a connection, and
`websocket_frames.py` one that was upgraded to WebSocket.
"""

from __future__ import annotations

import errno
import logging
import socket
import ssl
from pathlib import Path
from typing import Any, Final

import trio
from starlette.types import ASGIApp, Message

from playhead.errors import UsageError
from playhead.servers.http_connection import ASGI_VERSIONS, HttpConnection, HttpServerOptions, ServedApp
from playhead.servers.serving import Shutdown

BACKLOG: Final = 100
DEFAULT_OPTIONS: Final = HttpServerOptions()

_TEMPORARY_ERRORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
"""The errors of `accept` that end once other connections are closed, so that it is called again."""
_BIND_FAULTS: Final[dict[int | None, tuple[str, str]]] = {
    errno.EADDRINUSE: (
        "another program uses this port",
        "stop it, or give another --port (0 takes a free one)",
    ),
    errno.EADDRNOTAVAIL: ("this machine has no such address", "give another --host"),
}
"""The reason and the remedy for an error of `bind`, in place of the system's message."""
_log = logging.getLogger(__name__)


def bind(host: str, port: int) -> socket.socket:
    """Bind a TCP socket, which the caller closes. Port 0 takes a free port.

    Raises:
        UsageError: the address is in use, forbidden or unknown.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen on {host!r}: {reason}; give another --host") from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except (OSError, OverflowError) as error:
        sock.close()
        default = (getattr(error, "strerror", None) or str(error), "give another --port")
        reason, remedy = _BIND_FAULTS.get(getattr(error, "errno", None), default)
        raise UsageError(f"cannot listen on {host}, port {port}: {reason}; {remedy}") from error
    return sock


def base_url(sock: socket.socket, *, scheme: str = "http") -> str:
    """Return the `scheme://host:port` under which a bound socket is reached."""
    host, port = sock.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def tls_context(certificate: Path | None, key: Path | None = None) -> ssl.SSLContext | None:
    """Return the context with which `serve_app` speaks TLS 1.2 or newer; None without a certificate.

    Args:
        certificate: a PEM file with the server's certificate, then its chain.
        key: a PEM file without a passphrase; None if the key is in the file of the certificate.

    Raises:
        UsageError: a file cannot be read, or the two are not a certificate and its key.
    """
    if certificate is None:
        if key is not None:
            raise UsageError(
                "got --tls-key without --tls-certificate; give the certificate that it belongs to"
            )
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    try:
        # Without a passphrase here, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as error:
        files = f"{certificate} and {key}" if key is not None else str(certificate)
        raise UsageError(
            f"expected a certificate and its key in PEM, without a passphrase, in {files}: {error}"
        ) from error
    return context


async def serve_until_sigterm(
    app: ASGIApp,
    sock: socket.socket,
    *,
    options: HttpServerOptions = DEFAULT_OPTIONS,
    tls: ssl.SSLContext | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run `serve_app` for a command. The first SIGTERM shuts it down gracefully, and this function returns.

    Outside the main thread, where Python receives no signals, it serves until cancelled.
    """
    shutdown = Shutdown()
    async with trio.open_nursery() as nursery:
        await nursery.start(shutdown.listen)
        await serve_app(app, sock, options=options, tls=tls, shutdown=shutdown, task_status=task_status)
        nursery.cancel_scope.cancel()


async def serve_app(
    app: ASGIApp,
    sock: socket.socket,
    *,
    options: HttpServerOptions = DEFAULT_OPTIONS,
    tls: ssl.SSLContext | None = None,
    shutdown: Shutdown | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on a bound socket until cancelled or shut down.

    A client that is slow or silent costs one task and one connection, for a time that `options` limit.
    Cancellation closes every connection at once. A shutdown stops accepting, closes idle connections and ends
    event streams; the other requests have `shutdown.grace_seconds` to be answered. Then it returns.

    Args:
        app: an ASGI application for HTTP and WebSocket. Its `lifespan` is run.
        sock: the socket from `bind`; it is closed here.
        options: limits for clients.
        tls: the context from `tls_context`; None serves plain HTTP.
        shutdown: requests the graceful shutdown.
        task_status: started once connections are accepted.

    Raises:
        RuntimeError: the application reported that it cannot start.
    """
    served = ServedApp(
        app=app,
        options=options,
        secure=tls is not None,
        shutdown=shutdown or Shutdown(),
        slots=trio.CapacityLimiter(options.requests),
    )
    # A shutdown ends the nurseries from the innermost to the outermost: accepting stops at once, then the
    # connections, and last the lifespan, have until the deadline of `grace`.
    end_lifespan = trio.Event()
    with trio.socket.from_stdlib_socket(sock) as listening:
        listening.listen(BACKLOG)
        async with trio.open_nursery() as nursery:
            await nursery.start(_run_lifespan, app, served.state, end_lifespan)
            with trio.CancelScope() as grace:
                async with trio.open_nursery() as watching:
                    watching.start_soon(served.slow.run)  # notices if the client of a long request leaves
                    async with trio.open_nursery() as connections:
                        async with trio.open_nursery() as accepting:
                            listener = trio.SocketListener(listening)
                            accepting.start_soon(_accept, served, listener, connections, tls)
                            task_status.started()
                            await served.shutdown.requested.wait()
                            accepting.cancel_scope.cancel()
                        listening.close()
                        # Leaving `connections` waits for them, until this deadline.
                        grace.deadline = trio.current_time() + served.shutdown.grace_seconds
                        for connection in served.connections:
                            connection.shut_down()
                    watching.cancel_scope.cancel()
                end_lifespan.set()
                nursery.cancel_scope.deadline = grace.deadline
            if grace.cancelled_caught:  # the deadline has passed, so the lifespan is cut off, too
                nursery.cancel_scope.cancel()


async def _run_lifespan(
    app: ASGIApp, state: dict[str, Any], end_lifespan: trio.Event, *, task_status: trio.TaskStatus[None]
) -> None:
    """Run the lifespan of `app`, and report `started` once the application is ready or has no lifespan."""
    events = iter(("lifespan.startup", "lifespan.shutdown"))
    started = False
    failure: str | None = None

    async def receive() -> Message:
        if (event := next(events)) == "lifespan.shutdown":
            await end_lifespan.wait()
        return {"type": event}

    async def send(message: Message) -> None:
        nonlocal started, failure
        if message["type"] == "lifespan.startup.complete":
            started = True
            task_status.started()
        elif message["type"] == "lifespan.startup.failed":
            failure = message.get("message", "")

    try:
        await app({"type": "lifespan", "asgi": ASGI_VERSIONS, "state": state}, receive, send)
    except Exception:  # noqa: BLE001 - by the ASGI specification, an application without a lifespan raises
        if started:
            _log.exception("the application failed in its lifespan")
    if failure is not None:
        raise RuntimeError(f"the application cannot start: {failure}")
    if not started:
        task_status.started()


async def _accept(
    served: ServedApp, listener: trio.SocketListener, nursery: trio.Nursery, tls: ssl.SSLContext | None
) -> None:
    """Accept connections up to the limit of `options`. Further ones wait in the kernel's backlog."""
    places = trio.Semaphore(served.options.connections)  # one for each open connection
    while True:
        await places.acquire()
        try:
            stream = await listener.accept()
        except OSError as error:
            places.release()
            if error.errno not in _TEMPORARY_ERRORS:
                raise
            await trio.sleep(0.1)  # and try again, as `trio.serve_listeners` does
            continue
        nursery.start_soon(_serve_stream, served, stream, places, tls)


async def _serve_stream(
    served: ServedApp, accepted: trio.SocketStream, places: trio.Semaphore, tls: ssl.SSLContext | None
) -> None:
    stream: trio.abc.Stream = accepted
    try:
        if tls is not None:
            stream = trio.SSLStream(accepted, tls, server_side=True, https_compatible=True)
        await HttpConnection(served, stream, accepted.socket).run()
    except (OSError, trio.BrokenResourceError):
        pass  # the client closed the connection
    except Exception:  # noqa: BLE001 - a bug costs its connection, not the server
        _log.exception("a connection failed")
    finally:
        places.release()
        await trio.aclose_forcefully(stream)
