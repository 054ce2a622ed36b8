"""Blocking work for the player: never more patient with a thread than its caller is."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import trio

T = TypeVar("T")

JOIN_SECONDS = 0.05
"""How long a cancelled caller waits for its thread: half of what `Player.stop` may take. A thread that was
woken ends in far less; one in a reader that ignores its closing is left to end by itself."""


async def run_thread(
    work: Callable[[], T],
    *,
    wake: Callable[[], None],
    ended: trio.Event | None = None,
    join_seconds: float = JOIN_SECONDS,
) -> T:
    """Run `work` in a thread. Cancelled: call `wake`, which makes `work` end soon, and wait for that.

    `ended` is set when the thread has ended, for a caller who must do more than `wake` before it can and
    who passes `join_seconds=0`. The thread counts against no limit: trio's default of 40 is meant for short
    work, and each playing item holds a thread for as long as it plays.
    """
    thread_ended = trio.Event() if ended is None else ended
    token = trio.lowlevel.current_trio_token()

    def run() -> T:
        try:
            return work()
        finally:
            # RunFinishedError: the whole program left first, and nobody waits any more.
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(thread_ended.set)

    try:
        await trio.lowlevel.checkpoint_if_cancelled()
    except trio.Cancelled:
        thread_ended.set()  # it never began
        raise
    try:
        return await trio.to_thread.run_sync(
            run, abandon_on_cancel=True, limiter=trio.CapacityLimiter(math.inf)
        )
    except trio.Cancelled:
        wake()
        await join(thread_ended, join_seconds)
        raise


async def join(ended: trio.Event, seconds: float = JOIN_SECONDS) -> None:
    """Wait for a woken thread, whatever is cancelled, but no longer than `seconds`."""
    with trio.CancelScope(shield=True), trio.move_on_after(seconds):
        await ended.wait()
