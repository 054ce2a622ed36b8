"""playhead from asyncio and from plain threads: trio in a thread of its own, and three verbs that reach it.

What runs in that thread is in trio_thread.py. The two portals differ only in how they wait for it: a
cancelled asyncio task, or Ctrl-C in a thread, cancels what it waits for and goes on waiting until that has
ended, so that nothing continues behind the caller's back. (`asyncio.wrap_future` does not wait.)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator
from concurrent import futures
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from types import TracebackType
from typing import Generic, ParamSpec, Self, TypeVar, overload

from playhead.concurrency import running_library
from playhead.errors import BusyError, ClosedError, UsageError
from playhead.trio_thread import LEFT, HeldContext, ItemFeed, TrioCall, TrioThread, run_either

__all__ = [
    "AsyncioItems",
    "AsyncioPortal",
    "BlockingItems",
    "BlockingPortal",
    "asyncio_portal",
    "blocking_portal",
]

P = ParamSpec("P")
T = TypeVar("T")


# --- asyncio -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def asyncio_portal() -> AsyncIterator[AsyncioPortal]:
    """Run trio in a thread, for as long as the context is open, and reach it from asyncio.

        async with playhead.asyncio_portal() as portal:
            session = await portal.enter(playhead.connect("home"))
            result = await portal.call(session.call_tool, "musicPlayer", {"query": "dawn"})

    Leaving cancels the calls of other tasks, which raise `ClosedError`, and leaves what was entered, the last
    first: each context manager is left with the error of the block, if any, and may suppress or replace it.
    Cancelled, the contexts are cancelled in trio too, and waited for. If an entered context ends by itself
    (its background task failed, or its time is over), the block is cancelled, as trio would do, and the
    context's error is raised.

    Raises `UsageError` outside asyncio.
    """
    library = running_library()
    owner = asyncio.current_task() if library == "asyncio" else None
    if owner is None:
        raise UsageError(
            f"asyncio_portal: expected a running asyncio loop, got {library or 'none'}; "
            "trio needs no portal, and plain threads use `playhead.blocking_portal()`"
        )
    thread = TrioThread()
    try:
        await _in_thread(thread.begin)
        async with AsyncExitStack() as entered:
            portal = AsyncioPortal(thread, entered, owner)
            try:
                yield portal
            finally:
                await portal._close_calls()
    finally:
        await _in_thread(thread.stack.close)


class AsyncioPortal:
    """Reaches trio from asyncio; made by `asyncio_portal`. Any number of tasks may use it at once.

    A cancelled task cancels what it waits for in trio and returns once that has ended; it raises the error
    that the ending raised, if any, else `asyncio.CancelledError`.
    """

    def __init__(self, thread: TrioThread, entered: AsyncExitStack, owner: asyncio.Task[object]) -> None:
        self._thread = thread
        self._entered = entered
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._is_open = True
        self._has_cancelled_owner = False

    @overload
    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def call(self, function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> object:
        """Call `function`, async or not, in the trio thread, and return its result.

        Raises what it raises, with the traceback of both sides, and `ClosedError` if the portal is left
        before it has ended. A result that arrives together with a cancellation is lost.
        """
        self._check_open()
        return await _finished(self._thread.start(partial(run_either, partial(function, *args, **kwargs))))

    async def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager of trio's; it is left with the portal.

        One trio task enters, holds and leaves it. Raises what entering raises. Cancelled, it is not entered,
        or left again.
        """
        self._check_open()
        held = HeldContext(self._thread, manager, self._on_lost)
        call = self._thread.start(held.enter)
        try:
            value = await _finished(call)
        except asyncio.CancelledError as error:
            if held.is_entered:  # in the same moment
                held.leave(error)
                await _wait(held.left)
            raise

        async def leave(
            kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> bool:
            return await self._leave(held, error)

        self._entered.push_async_exit(leave)
        return value

    def iterate(self, items: AsyncIterable[T]) -> AsyncioItems[T]:
        """Iterate over an async iterator or a channel of trio's, in one trio task.

        An item is asked for when the caller asks: nothing runs ahead, and a producer waits for a slow caller.
        A cancelled `anext` loses no item of a channel; an async generator that is cancelled is over, as in
        trio. An async generator or a memory channel is closed when the iteration ends.
        """
        self._check_open()
        return AsyncioItems(ItemFeed(self._thread, items))

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError(LEFT)

    async def _close_calls(self) -> None:
        """End the calls of other tasks before anything that they use is left."""
        self._is_open = False
        await _wait(self._thread.close_calls())

    async def _leave(self, held: HeldContext[T], error: BaseException | None) -> bool:
        held.leave(error)
        await _wait(held.left, held.hurry)
        is_our_cancellation = (
            held.is_lost and self._has_cancelled_owner and isinstance(error, asyncio.CancelledError)
        )
        if is_our_cancellation:
            self._has_cancelled_owner = False
            is_our_cancellation = self._owner.uncancel() == 0
        return held.left.result() or is_our_cancellation

    def _on_lost(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel_owner)

    def _cancel_owner(self) -> None:
        if self._is_open and not self._has_cancelled_owner:
            self._has_cancelled_owner = True
            self._owner.cancel()


class AsyncioItems(Generic[T]):
    """The items of `AsyncioPortal.iterate`. For one task at a time: a second one raises `BusyError`."""

    def __init__(self, feed: ItemFeed[T]) -> None:
        self._feed = feed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            item = await _finished(self._feed.ask())
        except (asyncio.CancelledError, BusyError):
            raise  # an item that arrived meanwhile stays for the next call
        except BaseException:
            self._feed.end()
            raise
        self._feed.take()
        return item

    async def aclose(self) -> None:
        """End the iteration, and wait until its trio task has ended."""
        await _wait(self._feed.end())

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was not made
            self._feed.end()


async def _finished(call: TrioCall[T]) -> T:
    """Wait for a call, cancel it if cancelled, and return its result."""
    try:
        await _wait(call.future, call.cancel)
    except asyncio.CancelledError:
        if not call.future.cancelled():
            call.future.result()  # raises the error of its ending
        raise
    return _result(call.future)


async def _wait(future: futures.Future[T], cancel: Callable[[], None] | None = None) -> None:
    """Wait for the end of `future`, whatever it is. Cancelled, even several times: call `cancel`, go on
    waiting, and raise the cancellation then."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def wake(_: futures.Future[T]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(ended.set)

    future.add_done_callback(wake)
    cancelled: asyncio.CancelledError | None = None
    while not ended.is_set():
        try:
            await ended.wait()
        except asyncio.CancelledError as error:
            cancelled = error
            if cancel is not None:
                cancel()
    if cancelled is not None:
        try:
            raise cancelled
        finally:
            del cancelled  # its traceback holds this frame


async def _in_thread(work: Callable[[], None]) -> None:
    """Run short blocking work, to its end even if cancelled, and leave no thread of an executor behind."""
    future: futures.Future[None] = futures.Future()

    def run() -> None:
        try:
            work()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised below
            future.set_exception(error)

    thread = threading.Thread(target=run, name="playhead-portal-helper", daemon=True)
    thread.start()
    try:
        await _wait(future)
    finally:
        thread.join()  # it ends right after its future
    future.result()


# --- plain threads -----------------------------------------------------------------------------------------


@contextmanager
def blocking_portal() -> Iterator[BlockingPortal]:
    """Run trio in a thread, for as long as the context is open, and reach it from plain threads.

        with playhead.blocking_portal() as portal:
            session = portal.enter(playhead.connect("home"))
            result = portal.call(session.call_tool, "musicPlayer", {"query": "dawn"})

    Leaving works as for `asyncio_portal`, except that a context which ends by itself cannot interrupt the
    block: its error is raised when the block ends. Ctrl-C cancels what is waited for in trio and raises
    `KeyboardInterrupt` once that has ended; a second Ctrl-C does not wait.

    Raises `UsageError` in the thread of an asyncio or trio loop, which it would block.
    """
    library = running_library()
    if library is not None:
        use = (
            "`playhead.asyncio_portal()`" if library == "asyncio" else "no portal: it can be called as it is"
        )
        raise UsageError(
            f"blocking_portal: expected a thread without an event loop, got {library}'s; use {use}"
        )
    thread = TrioThread()
    with thread.stack:
        thread.begin()
        with ExitStack() as entered:
            portal = BlockingPortal(thread, entered)
            try:
                yield portal
            finally:
                portal._close_calls()


class BlockingPortal:
    """Reaches trio from plain threads; made by `blocking_portal`. Any number of threads may use it."""

    def __init__(self, thread: TrioThread, entered: ExitStack) -> None:
        self._thread = thread
        self._entered = entered
        self._is_open = True

    @overload
    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def call(self, function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> object:
        """Call `function`, async or not, in the trio thread, and return its result.

        Raises what it raises, with the traceback of both sides, and `ClosedError` if the portal is left
        before it has ended.
        """
        self._check_open()
        return _blocked(self._thread.start(partial(run_either, partial(function, *args, **kwargs))))

    def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager of trio's; it is left with the portal.

        One trio task enters, holds and leaves it. Raises what entering raises.
        """
        self._check_open()
        held = HeldContext(self._thread, manager, lambda: None)

        def leave(
            kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
        ) -> bool:
            if not held.is_entered:
                return False
            held.leave(error)
            _block(held.left, held.hurry)
            return held.left.result()

        self._entered.push(leave)
        return _blocked(self._thread.start(held.enter))

    def iterate(self, items: AsyncIterable[T]) -> BlockingItems[T]:
        """Iterate over an async iterator or a channel of trio's, in one trio task.

        An item is asked for when the caller asks: nothing runs ahead, and a producer waits for a slow caller.
        An async generator or a memory channel is closed when the iteration ends.
        """
        self._check_open()
        return BlockingItems(ItemFeed(self._thread, items))

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClosedError(LEFT)

    def _close_calls(self) -> None:
        self._is_open = False
        _block(self._thread.close_calls())


class BlockingItems(Generic[T]):
    """The items of `BlockingPortal.iterate`. For one thread at a time: a second one raises `BusyError`."""

    def __init__(self, feed: ItemFeed[T]) -> None:
        self._feed = feed

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            item = _blocked(self._feed.ask())
        except (KeyboardInterrupt, BusyError):
            raise  # an item that arrived meanwhile stays for the next call
        except StopAsyncIteration:
            self._feed.end()
            raise StopIteration from None
        except BaseException:
            self._feed.end()
            raise
        self._feed.take()
        return item

    def close(self) -> None:
        """End the iteration, and wait until its trio task has ended."""
        _block(self._feed.end())

    def __del__(self) -> None:
        with suppress(AttributeError):  # it was not made
            self._feed.end()


def _blocked(call: TrioCall[T]) -> T:
    _block(call.future, call.cancel)
    return _result(call.future)


def _block(future: futures.Future[T], cancel: Callable[[], None] | None = None) -> None:
    try:
        futures.wait([future])
    except BaseException:  # Ctrl-C, in the main thread
        if cancel is not None:
            cancel()
        futures.wait([future])
        raise


def _result(future: futures.Future[T]) -> T:
    if future.cancelled():
        raise ClosedError(LEFT)
    return future.result()
