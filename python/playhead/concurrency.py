"""Helpers for trio: unwrapping of exception groups, a broadcast, threads, and detection of the event loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Generic, TypeVar, cast

import trio
from sniffio import AsyncLibraryNotFoundError, current_async_library

from playhead.errors import UsageError

T = TypeVar("T")


def iter_leaves(group: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions inside `group`, however deeply nested; `group` itself if it is not a group."""
    if isinstance(group, BaseExceptionGroup):
        for inner in group.exceptions:
            yield from iter_leaves(inner)
    else:
        yield group


def unwrap_exception_group(*, deep: bool = False) -> AbstractContextManager[None]:
    """Replace a nursery's group of one exception by that exception. Put it around the nursery.

    Several exceptions stay a group, and so does a group that the body itself raised. With `deep`, for
    nurseries inside a library, a single exception is raised from any depth. `KeyboardInterrupt` is always
    raised alone, from any depth, because it may be raised in any task, and callers do not expect it in a
    group.
    """
    return _Unwrapping(is_deep=deep)


class _Unwrapping(AbstractContextManager[None]):
    """A class, because a generator's frames would hold the exception and its group in a reference cycle."""

    def __init__(self, *, is_deep: bool) -> None:
        self._is_deep = is_deep

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, BaseExceptionGroup):
            return
        leaves = list(iter_leaves(error))
        interrupts = [leaf for leaf in leaves if isinstance(leaf, KeyboardInterrupt)]
        candidates = interrupts or (leaves if self._is_deep else error.exceptions)
        if not interrupts and len(candidates) != 1:
            return
        only = candidates[0]
        context = only.__context__
        try:
            raise only from error if interrupts else only.__cause__
        finally:
            only.__context__ = context  # not the group
            del kind, error, trace, leaves, interrupts, candidates, only


class Broadcast(Generic[T]):
    """Send every item to every subscriber without waiting for any of them.

    A subscriber that falls `capacity` items behind loses the oldest: the newest is what it needs to catch up.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._channels: list[tuple[trio.MemorySendChannel[T], trio.MemoryReceiveChannel[T]]] = []
        self._closed = False

    def subscribe(self) -> trio.MemoryReceiveChannel[T]:
        """Return a channel of the items from now on. It ends when the broadcast is closed; close it earlier
        if no longer needed."""
        send, receive = trio.open_memory_channel[T](self._capacity)
        if self._closed:
            send.close()
        else:
            # Through a clone of the receiving end, `send` drops the oldest item.
            self._channels.append((send, receive.clone()))
        return receive

    def send(self, item: T) -> None:
        for channel in list(self._channels):
            send, ours = channel
            if ours.statistics().open_receive_channels == 1:  # the subscriber has closed its end
                self._channels.remove(channel)
                send.close()
                ours.close()
                continue
            try:
                send.send_nowait(item)
            except trio.WouldBlock:
                ours.receive_nowait()
                send.send_nowait(item)

    def close(self) -> None:
        """End the channels: subscribers receive what is waiting, then the end. Idempotent."""
        self._closed = True
        for send, ours in self._channels:
            send.close()
            ours.close()
        self._channels.clear()


def running_library() -> str | None:
    """Return the name of the event loop's library that runs in this thread ("trio", "asyncio"), or None."""
    try:
        return current_async_library()
    except AsyncLibraryNotFoundError:
        return None


def require_trio(what: str) -> None:
    """Raise `UsageError` in the thread of an event loop that is not trio's; `what` is the name called."""
    library = running_library()
    if library not in (None, "trio"):
        raise UsageError(
            f"{what}: expected trio, got a running {library} loop; from asyncio use "
            "`async with playhead.asyncio_portal() as portal`, from plain threads "
            "`with playhead.blocking_portal() as portal`"
        )


JOIN_SECONDS = 0.05
"""Limits the time for which a cancelled caller waits for its thread, to half of the time that `Player.stop`
may take. A woken thread usually ends much sooner. One that ignores its wake-up is left to end by itself."""


async def run_thread(
    work: Callable[[], T],
    *,
    wake: Callable[[], None],
    ended: trio.Event | None = None,
    join_seconds: float = JOIN_SECONDS,
) -> T:
    """Run `work` in a thread. Cancelled: call `wake`, which makes `work` end soon, and wait for that.

    `ended` is set when the thread has ended, for a caller that passes `join_seconds=0` because the thread
    needs more than `wake` to end. Trio's limit of 40 threads does not apply: it is meant for short work, and
    each playing item holds a thread for as long as it plays.
    """
    thread_ended = trio.Event() if ended is None else ended
    token = trio.lowlevel.current_trio_token()
    # An error raised through trio's frames would be in a reference cycle with them.
    failures: list[Exception] = []
    is_abandoned = False

    def run() -> T | None:
        try:
            return work()
        except Exception as error:  # noqa: BLE001  # raised below
            if is_abandoned:
                error.__traceback__ = None  # so that a reference to the error does not keep the frames alive
            else:
                failures.append(error)
            return None
        finally:
            # RunFinishedError: trio ended first, and nobody waits.
            with suppress(trio.RunFinishedError):
                token.run_sync_soon(thread_ended.set)

    try:
        await trio.lowlevel.checkpoint_if_cancelled()
    except trio.Cancelled:
        thread_ended.set()  # it never began
        raise
    try:
        result = await trio.to_thread.run_sync(
            run, abandon_on_cancel=True, limiter=trio.CapacityLimiter(math.inf)
        )
    except trio.Cancelled:
        is_abandoned = True
        failures.clear()
        wake()
        await join(thread_ended, join_seconds)
        raise
    if failures:
        raise failures.pop()
    return cast(T, result)


async def join(ended: trio.Event, seconds: float = JOIN_SECONDS) -> None:
    """Wait for a woken thread, even if cancelled, but no longer than `seconds`."""
    with trio.CancelScope(shield=True), trio.move_on_after(seconds):
        await ended.wait()
