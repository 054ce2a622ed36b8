"""An end in good order: on SIGTERM nothing new is taken, and what was begun is finished.

    shutdown = Shutdown()
    nursery.start_soon(partial(serve_app, app, sock, shutdown=shutdown))
    shutdown.request()                      # and serve_app returns, within 30 s

`serve_until_sigterm` is the whole of it, for a command. That is what a service manager expects: SIGTERM, some
patience, SIGKILL.
"""

from __future__ import annotations

import signal
from typing import Any, Final

import trio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

GRACE_SECONDS: Final = 30.0
"""What Kubernetes gives a container between SIGTERM and SIGKILL; systemd gives 90 s."""

EXTENSION: Final = "playhead.shutdown"
"""Under `extensions` of a request's scope: the server's `Shutdown`, for those who last."""


class Shutdown:
    """Tells the parts of a server that it is to end. One object for one server."""

    def __init__(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """Not requested yet.

        Args:
            grace_seconds: for the requests in flight; what is not done by then is cancelled.
        """
        self.requested = trio.Event()
        self.grace_seconds = grace_seconds

    def request(self) -> None:
        """What the first SIGTERM does. Idempotent."""
        self.requested.set()

    async def listen(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Waits for SIGTERM, requests the shutdown and returns; from the main thread only.

        Once it has returned (or was cancelled), SIGTERM does again what it did before: a second one ends the
        command at once, as Ctrl-C always does.
        """
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                break
        self.request()


class EndsInGoodOrder:
    """ASGI middleware: tells every request of the shutdown, and ends the answers that have no end.

    Those are event streams that wait for whatever the server may have to say: nothing was asked that would
    have to be answered.
    """

    def __init__(self, app: ASGIApp, shutdown: Shutdown) -> None:
        self._app = app
        self._shutdown = shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        extensions: dict[str, Any] = scope.get("extensions") or {}
        scope = {**scope, "extensions": {**extensions, EXTENSION: self._shutdown}}
        if scope["type"] != "http" or not _may_never_end(scope):
            await self._app(scope, receive, send)
            return
        streams = trio.Event()

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                kind = Headers(raw=message.get("headers", [])).get("content-type", "")
                if kind.startswith("text/event-stream"):
                    streams.set()
            await send(message)

        async with trio.open_nursery() as nursery:

            async def end() -> None:
                await self._shutdown.requested.wait()
                await streams.wait()  # it may have been asked for just before
                nursery.cancel_scope.cancel()

            nursery.start_soon(end)
            await self._app(scope, receive, watched)
            nursery.cancel_scope.cancel()


def _may_never_end(scope: Scope) -> bool:
    # Of the Streamable HTTP transport: the stream of a session, and in the newest revision a subscription.
    return bool(scope["method"] == "GET" or Headers(scope=scope).get("mcp-method") == "subscriptions/listen")


def shutdown_of(scope: Scope) -> Shutdown | None:
    """The shutdown of the server that a request came to; None under another server than `serve_app`."""
    found = (scope.get("extensions") or {}).get(EXTENSION)
    return found if isinstance(found, Shutdown) else None
