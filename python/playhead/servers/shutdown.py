"""An end in good order: on SIGTERM nothing new is taken, and what was begun is finished.

    shutdown = Shutdown()
    async with trio.open_nursery() as nursery:
        await nursery.start(shutdown.listen)
        await serve_app(app, sock, shutdown=shutdown)   # returns when it is done
        nursery.cancel_scope.cancel()

That is what a service manager expects: SIGTERM, some patience, SIGKILL.
"""

from __future__ import annotations

import signal

import trio

GRACE_SECONDS = 30.0
"""What Kubernetes gives a container between SIGTERM and SIGKILL; systemd gives 90 s."""


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
