"""playhead from asyncio and from plain threads: trio in a thread of its own, and four verbs that reach it.

What runs in that thread is in trio_thread.py. The two portals differ only in how they wait for it: a
cancelled asyncio task, or Ctrl-C in a thread, cancels what it waits for and goes on waiting until that has
ended, so that nothing continues behind the caller's back. (`asyncio.wrap_future` does not wait.)
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

    Leaving cancels the calls of other tasks, which raise `ClosedError`, and leaves what was entered, the last
    first: each context manager is left with the error of the block, if any, and may suppress or replace it.
    Cancelled, the contexts are cancelled in trio too, and waited for. If an entered context ends by itself
    (its background task failed, or its time is over), the block is cancelled, as trio would do, and the
    context's error is raised.

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

    A cancelled task cancels what it waits for in trio and returns once that has ended; it raises the error
    that the ending raised, if any, else `asyncio.CancelledError`.
    """

    def _task(self) -> asyncio.Task[Any] | None:
        return asyncio.current_task()

    @overload
    async def call(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    async def call(self, function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> object:
        """Call `function`, async or not, in the trio thread, and return its result.

        Raises what it raises, with the traceback of both sides, `ClosedError` if the portal is left before it
        has ended, and `UsageError` in a forked child, as the other verbs do. A result that arrives together
        with a cancellation is lost.
        """
        call = self._thread.start(partial(run_either, partial(function, *args, **kwargs)))
        return await self._finish(call.future, call.cancel)

    async def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Enter an async context manager of trio's; it is left with the portal.

        One trio task enters, holds and leaves it. Raises what entering raises. Cancelled, it is not entered,
        or left again.
        """
        return await self._enter(manager, self._block, is_context=True)

    @asynccontextmanager
    async def use(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Enter an async context manager of trio's for one block, at whose end it is left.

        One trio task enters, holds and leaves it, with the error of the block, if any, which it may suppress
        or replace. If it ends by itself, or the portal is left by another task, the block is cancelled in
        asyncio (a thread gets to its end), and the context's error or `ClosedError` is raised.
        """
        async with _Block(self._thread, self._task()) as block:
            yield await self._enter(manager, block)

    def iterate(self, items: AsyncIterable[T]) -> AsyncioItems[T]:
        """Iterate over an async iterator or a channel of trio's.

        A generator spends its whole life, its closing included, in one trio task: it may hold nurseries and
        cancel scopes over a `yield`, where it waits until the caller asks for the next item. Nothing runs
        ahead, so a producer waits for a slow caller. Leaving the loop early closes the generator in its task,
        and so does a cancelled `anext`, which of other iterators loses no item. `aclose` waits for it.

        What the iterator raises arrives as it is. A memory channel is closed with the iteration.
        """
        return AsyncioItems(self, ItemFeed(self._thread, items))

    async def _wait(self, future: futures.Future[Any], cancel: Callable[[], object] = nothing) -> None:
        """Wait for the end of `future`, whatever it is. Interrupted: call `cancel`, go on waiting, and raise
        the interruption then."""
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
                future.result()  # raises the error of its ending
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
                if not thread.is_forked:  # first the calls of other tasks, which use what is left next
                    await self._finish(thread.close_calls())

    async def _end(self) -> None:
        try:
            await self._finish(self._thread.end())
        finally:
            self._thread.join()

    async def _enter(
        self, manager: AbstractAsyncContextManager[T], block: _Block, *, is_context: bool = False
    ) -> T:
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
            else:  # a cancellation or Ctrl-C; trio's managers know their own kind only
                feed.cancel()
            await self._wait(feed.ended, feed.cancel)
            if feed.ended.cancelled() and not feed.is_lost:
                return False
            is_interruption = feed.is_lost and block.take_back(error[1])
            await self._finish(feed.ended)
            return bool(suppressed) or is_interruption

        block.push_async_exit(leave)
        return value


class AsyncioItems(Generic[T]):
    """The items of `AsyncioPortal.iterate`. For one task at a time: a second one raises `BusyError`."""

    def __init__(self, portal: AsyncioPortal, feed: ItemFeed[T]) -> None:
        self._portal = portal
        self._feed = feed
        self._is_asking = False
        self._is_over = False
        """The end was raised; further ones are `StopAsyncIteration`."""

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
        if not self._feed.ended.cancelled():  # with the portal
            await self._finish()

    async def _finish(self) -> None:
        is_over, self._is_over = self._is_over, True
        if not is_over:
            await self._portal._finish(self._feed.ended)

    def __del__(self) -> None:
        with suppress(AttributeError, UsageError):  # it was not made, or in a forked child
            self._feed.end()


class _Block(AsyncExitStack):
    """Contexts that one `with` block of the caller's holds, left at its end. In a forked child it holds none.

    An asyncio task is cancelled if a context of its block ends by itself. A thread cannot be interrupted.
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
        """Cancel the block, if it is a task's. The trio thread calls it."""
        if self._task is not None:
            _soon(self._task.get_loop(), self._cancel)

    def _cancel(self) -> None:
        if self.is_open and not self._is_interrupted and self._task is not None:
            self._is_interrupted = True
            self._task.cancel()

    def take_back(self, error: BaseException | None) -> bool:
        """Take back the interruption, and say whether `error` is nothing else."""
        if not (self._is_interrupted and isinstance(error, asyncio.CancelledError) and self._task):
            return False
        self._is_interrupted = False
        return self._task.uncancel() == 0


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # it is closed: nobody waits
        loop.call_soon_threadsafe(function)


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
    """The items of `BlockingPortal.iterate`. For one thread at a time: a second one raises `BusyError`."""

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
    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager

    def __enter__(self) -> T:
        return _step(self._manager.__aenter__())

    def __exit__(self, *error: Any) -> bool | None:
        return _step(self._manager.__aexit__(*error))
