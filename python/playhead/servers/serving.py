"""State of a running server that its requests share: the graceful shutdown, and slots for what they hold."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from typing import Final

import trio
from starlette.types import Scope

GRACE_SECONDS: Final = 30.0
"""Kubernetes gives a container as long between SIGTERM and SIGKILL; systemd gives 90 s."""

SERVING_EXTENSION: Final = "playhead.serving"
"""Under `extensions` of a request's scope: the server's `Serving`."""


class Shutdown:
    """Graceful shutdown: nothing new is accepted, and requests in flight are finished.

    One object for one server. `serve_until_sigterm` does all of it for a command:

        shutdown = Shutdown()
        nursery.start_soon(partial(serve_app, app, sock, shutdown=shutdown))
        shutdown.request()                      # and serve_app returns, within 30 s
    """

    def __init__(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """`grace_seconds` are for the requests in flight; those not finished by then are cancelled."""
        self.requested = trio.Event()
        self.grace_seconds = grace_seconds

    def request(self) -> None:
        """Request the shutdown, as the first SIGTERM does. Idempotent."""
        self.requested.set()

    async def listen(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wait for SIGTERM, request the shutdown and return. Outside the main thread, where Python receives
        no signals, return at once.

        Once it has returned (or was cancelled), SIGTERM has its previous effect again: a second one ends the
        command at once, as Ctrl-C always does.
        """
        if threading.current_thread() is not threading.main_thread():
            task_status.started()
            return
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                break
        self.request()


class Slot:
    """One of a server's slots for requests, or a claim to one. It is its own borrower."""

    def __init__(self, slots: trio.CapacityLimiter) -> None:
        self._slots = slots
        self.held = False
        self.adopted = False
        """Whoever got it with a message releases it."""

    async def take(self) -> None:
        """Wait for a free slot, first come, first served."""
        if not self.held:
            await self._slots.acquire_on_behalf_of(self)
            self.held = True

    def take_nowait(self) -> bool:
        """Take a slot if one is free."""
        if not self.held:
            try:
                self._slots.acquire_on_behalf_of_nowait(self)
            except trio.WouldBlock:
                return False
            self.held = True
        return True

    def release(self) -> None:
        """Give the slot back. Idempotent."""
        if self.held:
            self.held = False
            self._slots.release_on_behalf_of(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """The server that a request arrived at."""

    shutdown: Shutdown
    slots: trio.CapacityLimiter
    """See `HttpServerOptions.requests`."""

    @classmethod
    def of(cls, scope: Scope) -> Serving | None:
        """The `Serving` of a request; None under another server than `serve_app`."""
        found = (scope.get("extensions") or {}).get(SERVING_EXTENSION)
        return found if isinstance(found, cls) else None
