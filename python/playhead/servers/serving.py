"""The state of a running server that its requests share: the graceful shutdown, and the slots."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass
from typing import Final

import trio
from starlette.types import Scope

GRACE_SECONDS: Final = 30.0
"""Limits the shutdown. Kubernetes allows as long between SIGTERM and SIGKILL, and systemd 90 s."""

SERVING_EXTENSION: Final = "playhead.serving"
"""The key of the server's `Serving` under `extensions` of a request's scope."""


class Shutdown:
    """The graceful shutdown of one server, which finishes the requests in flight, and accepts no new ones.

    A command calls `serve_until_sigterm`. A program does the same by hand:

        shutdown = Shutdown()
        nursery.start_soon(partial(serve_app, app, sock, shutdown=shutdown))
        shutdown.request()                      # and serve_app returns, within 30 s
    """

    def __init__(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        """`grace_seconds` is the time that requests in flight have before they are cancelled."""
        self.requested = trio.Event()
        self.grace_seconds = grace_seconds

    def request(self) -> None:
        """Request the shutdown, as the first SIGTERM does. Idempotent."""
        self.requested.set()

    async def listen(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Wait for SIGTERM, request the shutdown and return. Outside the main thread, where Python receives
        no signals, return at once.

        Afterwards SIGTERM has its previous effect again, so a second one ends the command at once, as Ctrl-C
        always does.
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
    """A slot of a server for one request, held from `take` or `take_nowait` until `release`."""

    def __init__(self, slots: trio.CapacityLimiter) -> None:
        self._slots = slots
        self.held = False
        self.adopted = False
        """True once the application has taken over the slot, which it then releases."""

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
    """The slots of `HttpServerOptions.requests`."""

    @classmethod
    def of(cls, scope: Scope) -> Serving | None:
        """Return the `Serving` of a request; None under another server than `serve_app`."""
        serving = (scope.get("extensions") or {}).get(SERVING_EXTENSION)
        return serving if isinstance(serving, cls) else None
