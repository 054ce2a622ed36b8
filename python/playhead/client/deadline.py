"""Deadlines that run from the last byte received, not from the question.

A page over a slow link is late only when nothing comes any more. Where a total is given it ends the wait
however much arrives, so that a peer that drips one byte at a time can't hold a caller for ever.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from playhead.client.groups import bare


async def run_until_silent(
    work: Callable[[], Awaitable[None]],
    *,
    silent_seconds: float,
    total_seconds: float,
    last_received: Callable[[], float],
) -> float | None:
    """Run `work` until it returns, or until nothing came for `silent_seconds`.

    `last_received` gives the time of the last byte on trio's clock (0.0 for none yet). Returns `None` when
    `work` came to its end, else the allowance that ran out, in seconds; `work` was cancelled then.
    What `work` raises comes out as it is; cancellation of the caller cancels `work` as well.
    """
    started = trio.current_time()
    spent: float | None = None
    scope = trio.CancelScope()

    async def watch() -> None:
        nonlocal spent
        while True:
            silent_at = max(started, last_received()) + silent_seconds
            deadline = min(silent_at, started + total_seconds)
            if deadline <= trio.current_time():
                spent = silent_seconds if silent_at <= started + total_seconds else total_seconds
                scope.cancel()
                return
            await trio.sleep_until(deadline)

    with bare():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            with scope:
                await work()
            nursery.cancel_scope.cancel()
    return spent if scope.cancelled_caught else None
