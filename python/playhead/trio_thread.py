"""A trio run in a thread of its own, and what another thread can start in it: calls, contexts, iterations.

The thread and its run are those of anyio's blocking portal. On top of it:

* Starting a call never blocks: anyio's `start_task_soon` holds the calling thread, and with it an asyncio
  loop, until trio has time. Here a call is handed over by trio's own `run_sync_soon`.
* Every start can be cancelled and has a future for its end, so that a cancelled caller can wait for it.
* A context manager is entered and left in one trio task, as trio's nurseries and cancel scopes require, and
  an async iterator is iterated in one.
* Calls see the caller's context variables.

How the other side waits for a future is its own matter: portals.py.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable
from concurrent import futures
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack, suppress
from contextvars import Context, copy_context
from inspect import isawaitable
from typing import Generic, TypeVar, cast

import trio
from anyio.abc import TaskStatus
from anyio.from_thread import start_blocking_portal

from playhead.errors import BusyError, ClosedError, UsageError

T = TypeVar("T")

LEFT = "the portal was left: use it inside its `with` block, whose end ends the calls of other tasks"


class TrioCall(Generic[T]):
    """One async function in the trio thread. `cancel` is for any thread, and does not block."""

    def __init__(self, token: trio.lowlevel.TrioToken, function: Callable[[], Awaitable[T]]) -> None:
        self.future: futures.Future[T] = futures.Future()
        """Its end; cancelled if the function was."""
        self._token = token
        self._function = function
        self._scope = trio.CancelScope()

    def cancel(self) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._scope.cancel)

    async def run(self) -> None:
        """Run in the trio thread. Raises nothing but `trio.Cancelled`, if the task is cancelled."""
        try:
            with self._scope:
                self.future.set_result(await self._function())
                return
        except trio.Cancelled:
            self.abandon()
            raise
        except BaseException as error:  # noqa: BLE001 - it is the caller's, and the portal goes on
            self.future.set_exception(error)
            del self  # the traceback holds this frame
            return
        self.abandon()

    def abandon(self) -> None:
        self.future.cancel()
        self.future.set_running_or_notify_cancel()


async def run_either(function: Callable[[], object]) -> object:
    """Run `function`, async or not."""
    value = function()
    return await value if isawaitable(value) else value


class TrioThread:
    """The thread, and the nurseries in it. All but the coroutines are for other threads."""

    def __init__(self) -> None:
        self.stack = ExitStack()
        """Closing it ends the thread, once every context is left, and blocks until then. With an error it
        cancels what is still there."""
        self._calls: trio.Nursery | None = None
        self._calls_ended: futures.Future[None] = futures.Future()

    def begin(self) -> None:
        """Start the thread; blocks for some milliseconds."""
        portal = self.stack.enter_context(start_blocking_portal("trio"))
        portal.start_task(self._serve)
        self.stack.callback(self.close_calls)

    async def _serve(self, *, task_status: TaskStatus[None]) -> None:
        self._thread_id = threading.get_ident()
        self.token = trio.lowlevel.current_trio_token()
        self._closing = trio.Event()
        try:
            async with trio.open_nursery() as self.contexts:
                async with trio.open_nursery() as self._calls:
                    task_status.started()
                    await self._closing.wait()
                    self._calls.cancel_scope.cancel()
                    self._calls = None
                self._calls_ended.set_result(None)
        finally:
            self._calls = None

    def check_thread(self) -> None:
        if threading.get_ident() == self._thread_id:
            raise UsageError("expected a call from another thread, got one from the portal's: await it there")

    def start(self, function: Callable[[], Awaitable[T]]) -> TrioCall[T]:
        """Call `function` in a task of its own, with the caller's context variables."""
        self.check_thread()
        call = TrioCall(self.token, function)
        self.soon(self._start, call, copy_context())
        return call

    def _start(self, call: TrioCall[T], context: Context) -> None:
        if self._calls is None:
            call.abandon()
        else:
            context.run(self._calls.start_soon, call.run)  # a task copies the context it is started in

    def soon(self, function: Callable[..., object], *args: object) -> None:
        """Call `function` in the trio thread, after what was handed over before."""
        try:
            self.token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            raise ClosedError(LEFT) from None

    def close_calls(self) -> futures.Future[None]:
        """Cancel the calls that run, and refuse others. The future ends when they have."""
        with suppress(trio.RunFinishedError):
            self.token.run_sync_soon(self._closing.set)
        return self._calls_ended


class HeldContext(Generic[T]):
    """A context manager that one trio task enters, holds and leaves."""

    def __init__(
        self, thread: TrioThread, manager: AbstractAsyncContextManager[T], on_lost: Callable[[], None]
    ) -> None:
        self.left: futures.Future[bool] = futures.Future()
        """The end of the task: an error of leaving, or whether the block's error was suppressed."""
        self.is_lost = False
        """The task ended before it was asked to: a nursery in the manager failed, or it ran out of time."""
        self._thread = thread
        self._manager = manager
        self._on_lost = on_lost
        self.is_entered = False
        self._leaving = trio.Event()
        self._scope = trio.CancelScope()
        self._error: BaseException | None = None

    async def enter(self) -> T:
        """Enter it in a task that stays. Cancelled, or if entering fails, no task is left."""
        return cast(T, await self._thread.contexts.start(self._hold))

    async def _hold(self, *, task_status: trio.TaskStatus[T]) -> None:
        suppressed = False
        try:
            with self._scope:
                async with AsyncExitStack() as stack:
                    value = await stack.enter_async_context(self._manager)
                    task_status.started(value)
                    self.is_entered = True
                    await self._leaving.wait()
                    error = self._error
                    trace = None if error is None else error.__traceback__
                    kind = None if error is None else type(error)
                    suppressed = bool(await stack.__aexit__(kind, error, trace))
        except BaseException as error:
            if not self.is_entered or isinstance(error, trio.Cancelled):
                self.left.cancel()
                raise
            self._notice_loss()
            self.left.set_exception(error)
        else:
            self._notice_loss()
            self.left.set_result(suppressed)

    def _notice_loss(self) -> None:
        self.is_lost = not (self._leaving.is_set() or self._scope.cancel_called)
        if self.is_lost:
            self._on_lost()

    def leave(self, error: BaseException | None) -> None:
        """Begin to leave it. Cancellations and Ctrl-C cancel the task: trio's managers know their own kind
        of cancellation only."""
        self._error = error
        is_hurried = error is not None and not isinstance(error, Exception)
        with suppress(ClosedError):  # `left` has its end
            self._thread.soon(self._scope.cancel if is_hurried else self._leaving.set)

    def hurry(self) -> None:
        with suppress(ClosedError):
            self._thread.soon(self._scope.cancel)


class ItemFeed(Generic[T]):
    """An async iterator in one trio task, which asks for an item when it is asked for one.

    What a cancelled caller can no longer take is held for the next one: one item at most.
    """

    def __init__(self, thread: TrioThread, items: AsyncIterable[T]) -> None:
        self._thread = thread
        self._items = items
        self._iterator: AsyncIterator[T] | None = None
        self._send, self._receive = trio.open_memory_channel[TrioCall[T]](1)
        self._current: TrioCall[T] | None = None
        self._is_over = False
        self._task = thread.start(self._run)

    async def _run(self) -> None:
        try:
            async for call in self._receive:
                await call.run()
        finally:
            self._send.close()
            with suppress(trio.EndOfChannel):
                self._receive.receive_nowait().abandon()
            self._receive.close()
            # What nobody else can close in this thread. Other iterators, such as streams, can be read on.
            if isinstance(self._items, AsyncGenerator | trio.MemoryReceiveChannel):
                with trio.CancelScope(shield=True):
                    await self._items.aclose()

    async def _next(self) -> T:
        if self._iterator is None:
            self._iterator = aiter(self._items)
        return await anext(self._iterator)

    def ask(self) -> TrioCall[T]:
        """The call of the next item: the same one until it is taken."""
        self._thread.check_thread()
        if self._is_over:
            raise StopAsyncIteration
        if self._current is None or self._current.future.cancelled():
            self._current = TrioCall(self._thread.token, self._next)
            self._thread.soon(self._ask, self._current)
        elif not self._current.future.done():
            raise BusyError("expected one task or thread to iterate, got a second one meanwhile")
        return self._current

    def _ask(self, call: TrioCall[T]) -> None:
        if self._task.future.done():
            call.abandon()
            return
        try:
            self._send.send_nowait(call)
        except trio.ClosedResourceError:
            call.abandon()

    def take(self) -> None:
        """The caller takes the item."""
        self._current = None

    def end(self) -> futures.Future[None]:
        """End the iteration; the future is that of its task."""
        self._is_over = True
        self._task.cancel()
        return self._task.future
