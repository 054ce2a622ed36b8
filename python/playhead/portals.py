"""Portals: they run trio in a thread of its own, and reach it from asyncio or from plain threads.

    AsyncioPortal ──▶ TrioThread (trio_thread.py) ◀── _ThreadPortal ◀── BlockingPortal

Both have four verbs: `call`, `enter`, `use` and `iterate`. They differ only in how they wait for trio. A
caller that is interrupted (a cancelled asyncio task, or Ctrl-C in a thread) cancels its call in trio, and
then waits until the call has ended, so that nothing goes on in the background. `asyncio.wrap_future` would
not wait.

`BlockingPortal` runs the coroutines of the asyncio portal, whose waits block in `_ThreadPortal`. Such a
coroutine never suspends, so one `send` runs it to its end (`_step`).
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
)
from concurrent import futures
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from functools import partial
from typing import Any, Generic, ParamSpec, Self, TypeVar, overload

from playhead.concurrency import running_library
from playhead.errors import BusyError, ClosedError, UsageError
from playhead.trio_thread import LEFT, ItemFeed, TrioThread, nothing, run_either

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

    Leaving the block cancels the calls of other tasks, which raise `ClosedError`. Then the entered contexts
    are left, the last one first, with the error of the block, if any, which they may suppress or replace. If
    the block is cancelled, the contexts are cancelled in trio, too, and the portal waits for them. If a
    context ends by itself (its background task failed, or its time is over), the block is cancelled, as trio
    would do, and the context's error is raised.

    Raises `UsageError` outside asyncio.
    """
    library = running_library()
    if library != "asyncio":
        raise UsageError(
            f"asyncio_portal: expected a running asyncio loop, got {library or 'none'}; "
            "trio needs no portal, and plain threads use `playhead.blocking_portal()`"
        )
    async with AsyncioPortal()._run() as portal:
        yield portal


class AsyncioPortal:
    """Reaches trio from asyncio; made by `asyncio_portal`. Any number of tasks may use it at once.

    A cancelled task cancels its call in trio, and returns once the call has ended. It raises the error with
    which the call ended, if any, else `asyncio.CancelledError`.
    """

    def _task(self) -> asyncio.Task[Any] | None:
        return asyncio.current_task()

    @overload
    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def call(self, function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> object:
        """Call `function`, async or not, in the trio thread, and return its result.

        Raises the errors of `function`, with the traceback of both sides. Like the other verbs, raises
        `ClosedError` if the portal is left before the call has ended, and `UsageError` in a forked child. A
        result that arrives together with a cancellation is lost.
        """
        call = self._thread.start(partial(run_either, partial(function, *args, **kwargs)))
        return await self._finish(call.future, call.cancel)

    async def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager of trio's, which is left with the portal.

        One trio task enters, holds and leaves it. Raises the errors of entering. Cancelled: the manager is
        not entered, or is left again.
        """
        return await self._enter(manager, self._block, is_context=True)

    @asynccontextmanager
    async def use(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Enter an async context manager of trio's for one block, and leave it at the end of the block.

        One trio task enters, holds and leaves it, with the error of the block, if any, which the manager may
        suppress or replace. If the context ends by itself, or another task leaves the portal, the block is
        cancelled in asyncio (in a thread it goes on to its end), and the context's error or `ClosedError` is
        raised.
        """
        async with _Block(self._thread, self._task()) as block:
            yield await self._enter(manager, block)

    def iterate(self, items: AsyncIterable[T]) -> AsyncioItems[T]:
        """Iterate over an async iterator or a channel of trio's.

        A generator runs in one trio task from its start to its closing, so it may hold nurseries and cancel
        scopes over a `yield`. It waits there until the caller asks for the next item: nothing runs ahead, and
        a producer waits for a slow caller. Leaving the loop early closes the generator in its task, and so
        does a cancelled `anext`; `aclose` waits for the closing. With other iterators, a cancelled `anext`
        loses no item.

        Errors of the iterator are raised unchanged. A memory channel is closed with the iteration.
        """
        return AsyncioItems(self, ItemFeed(self._thread, items))

    async def _wait(self, future: futures.Future[Any], cancel: Callable[[], object] = nothing) -> None:
        """Wait until `future` has ended, with or without an error. If interrupted, call `cancel`, go on
        waiting, and then raise the interruption."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        future.add_done_callback(lambda _: _soon(loop, ended.set))
        cancelled: asyncio.CancelledError | None = None
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError as error:
                cancelled = error
                cancel()
        if cancelled is not None:
            try:
                raise cancelled
            finally:
                del cancelled  # its traceback holds this frame

    async def _finish(self, future: futures.Future[T], cancel: Callable[[], object] = nothing) -> T:
        """Wait for the end of `future`, and return its result."""
        try:
            await self._wait(future, cancel)
        except asyncio.CancelledError:
            if not future.cancelled():
                future.result()  # raises the error with which it ended, if any
            raise
        if future.cancelled():
            raise ClosedError(LEFT)
        return future.result()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[Self]:
        """Run the thread for as long as the block is open."""
        self._thread = thread = TrioThread()
        async with _Block(thread, self._task()) as self._block:
            self._block.push_async_callback(self._end)
            await self._finish(thread.began)
            try:
                yield self
            finally:
                self._block.is_open = False
                # The calls of other tasks end first, because they use the contexts that are left next.
                if not thread.is_forked:
                    await self._finish(thread.close_calls())

    async def _end(self) -> None:
        try:
            await self._finish(self._thread.end())
        finally:
            self._thread.join()

    async def _enter(
        self, manager: AbstractAsyncContextManager[T], block: _Block, *, is_context: bool = False
    ) -> T:
        """Enter `manager` in a trio task of its own, and have `block` leave it there.

        The task is a generator over the manager's context: its first item is the value, and the request for
        the next item carries the error with which to leave.
        """
        suppressed: bool | None = False

        async def hold() -> AsyncGenerator[T, Any]:
            nonlocal suppressed
            async with AsyncExitStack() as stack:
                error = yield await stack.enter_async_context(manager)
                suppressed = await stack.__aexit__(*error)

        feed = ItemFeed(self._thread, hold(), block.interrupt, is_context=is_context)
        items = AsyncioItems(self, feed)
        value = await anext(items)

        async def leave(*error: Any) -> bool:
            feed = items._feed
            if error[0] is None or issubclass(error[0], Exception):
                feed.ask(error)
            else:  # a cancellation or Ctrl-C, which trio's managers only know in trio's form
                feed.cancel()
            await self._wait(feed.ended, feed.cancel)
            if feed.ended.cancelled() and not feed.is_lost:
                return False
            # A context that ended by itself has interrupted the block. Its own error is raised instead.
            is_interruption = feed.is_lost and block.take_back(error[1])
            await self._finish(feed.ended)
            return bool(suppressed) or is_interruption

        block.push_async_exit(leave)
        return value


class AsyncioItems(Generic[T]):
    """The items of `AsyncioPortal.iterate`. Only one task at a time may iterate; a second one gets
    `BusyError`."""

    def __init__(self, portal: AsyncioPortal, feed: ItemFeed[T]) -> None:
        self._portal = portal
        self._feed = feed
        self._is_asking = False
        self._is_over = False
        """True once the iterator's end or error was raised. Further calls raise `StopAsyncIteration`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        feed = self._feed
        if self._is_asking:
            raise BusyError("expected one task or thread to iterate, got a second one meanwhile")
        if not feed.items and not self._is_over:
            answer = feed.ask()
            self._is_asking = True
            try:
                await self._portal._wait(answer, feed.end if feed.is_generator else answer.cancel)
            except asyncio.CancelledError:
                if feed.is_generator:
                    await self._finish()
                raise
            finally:
                self._is_asking = False
        if feed.items:
            return feed.items.popleft()
        await self._finish()
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration, and wait until its trio task has ended. Raises what closing raises."""
        self._feed.end()
        await self._portal._wait(self._feed.ended)
        self._feed.items.clear()
        if not self._feed.ended.cancelled():  # leaving the portal cancels it
            await self._finish()

    async def _finish(self) -> None:
        is_over, self._is_over = self._is_over, True
        if not is_over:
            await self._portal._finish(self._feed.ended)

    def __del__(self) -> None:
        with suppress(AttributeError, UsageError):  # the constructor failed, or this is a forked child
            self._feed.end()


class _Block(AsyncExitStack):
    """The contexts of one `with` block of the caller's, which are left at its end, except in a forked child.

    If a context ends by itself, the block's asyncio task is cancelled. A thread cannot be interrupted.
    """

    def __init__(self, thread: TrioThread, task: asyncio.Task[Any] | None) -> None:
        super().__init__()
        self.is_open = True
        self._thread = thread
        self._task = task
        self._is_interrupted = False

    async def __aexit__(self, *error: Any) -> bool | None:
        self.is_open = False
        return not self._thread.is_forked and await super().__aexit__(*error)

    def interrupt(self) -> None:
        """Cancel the block, if it runs in a task. Called in the trio thread."""
        if self._task is not None:
            _soon(self._task.get_loop(), self._cancel)

    def _cancel(self) -> None:
        if self.is_open and not self._is_interrupted and self._task is not None:
            self._is_interrupted = True
            self._task.cancel()

    def take_back(self, error: BaseException | None) -> bool:
        """Undo the interruption. Return True if `error` is only this interruption, and no other
        cancellation."""
        if not (self._is_interrupted and isinstance(error, asyncio.CancelledError) and self._task):
            return False
        self._is_interrupted = False
        return self._task.uncancel() == 0


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop is closed, so nobody waits
        loop.call_soon_threadsafe(function)


# --- plain threads -----------------------------------------------------------------------------------------


@contextmanager
def blocking_portal() -> Iterator[BlockingPortal]:
    """Run trio in a thread, for as long as the context is open, and reach it from plain threads.

        with playhead.blocking_portal() as portal:
            session = portal.enter(playhead.connect("home"))
            result = portal.call(session.call_tool, "musicPlayer", {"query": "dawn"})

    Leaving works as for `asyncio_portal`, except that a context which ends by itself cannot interrupt the
    block: its error is raised when the block ends. Ctrl-C cancels the call in trio, and raises
    `KeyboardInterrupt` once the call has ended. A second Ctrl-C does not wait.

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
    with _Stepped(_ThreadPortal()._run()) as portal:
        yield BlockingPortal(portal)


class BlockingPortal:
    """Reaches trio from plain threads; made by `blocking_portal`. Any number of threads may use it.

    The verbs are those of `AsyncioPortal`, without `await`.
    """

    def __init__(self, portal: AsyncioPortal) -> None:
        self._portal = portal

    @overload
    def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def call(self, function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> object:
        """Call `function`, async or not, in the trio thread: see `AsyncioPortal.call`."""
        return _step(self._portal.call(function, *args, **kwargs))

    def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager, which is left with the portal: see `AsyncioPortal.enter`."""
        return _step(self._portal.enter(manager))

    def use(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """Enter an async context manager for one `with` block: see `AsyncioPortal.use`."""
        return _Stepped(self._portal.use(manager))

    def iterate(self, items: AsyncIterable[T]) -> BlockingItems[T]:
        """Iterate over an async iterator or a channel in one trio task: see `AsyncioPortal.iterate`."""
        return BlockingItems(self._portal.iterate(items))


class BlockingItems(Generic[T]):
    """The items of `BlockingPortal.iterate`. Only one thread at a time may iterate; a second one gets
    `BusyError`."""

    def __init__(self, items: AsyncioItems[T]) -> None:
        self._items = items

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        try:
            return _step(self._items.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """End the iteration, and wait until its trio task has ended. Raises what closing raises."""
        _step(self._items.aclose())


class _ThreadPortal(AsyncioPortal):
    """The portal behind a `BlockingPortal`: its waits block, and its coroutines never suspend."""

    def _task(self) -> None:
        return None

    async def _wait(self, future: futures.Future[Any], cancel: Callable[[], object] = nothing) -> None:
        try:
            futures.wait([future])
        except BaseException:  # Ctrl-C, in the main thread
            cancel()
            futures.wait([future])
            raise


def _step(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, because its waits block."""
    try:
        coroutine.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    raise AssertionError("a coroutine of a blocking portal was suspended")


class _Stepped(AbstractContextManager[T]):
    """An async context manager of a blocking portal, as a plain one."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager

    def __enter__(self) -> T:
        return _step(self._manager.__aenter__())

    def __exit__(self, *error: Any) -> bool | None:
        return _step(self._manager.__aexit__(*error))
