"""A thread that runs trio, in which other threads can start calls, contexts and iterations.

portals.py has the callers' side, which waits for the futures.

anyio's blocking portal is not used, for three reasons. It blocks the calling thread, and with it an asyncio
loop, until trio takes the call. It has no future for the end of a cancelled call. In a forked child, where
its thread does not exist, it waits for ever, even when it is garbage-collected.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from concurrent import futures
from contextlib import suppress
from contextvars import Context, copy_context
from inspect import isawaitable
from typing import Any, Generic, TypeVar

import trio

from playhead.errors import ClosedError, UsageError

T = TypeVar("T")

LEFT = "the portal was left: use it inside its `with` block, whose end ends the calls of other tasks"


class TrioCall(Generic[T]):
    """A call of one async function in the trio thread. Any thread may call `cancel`, which does not block."""

    def __init__(self, token: trio.lowlevel.TrioToken, function: Callable[[], Awaitable[T]]) -> None:
        self.future: futures.Future[T] = futures.Future()
        """The result or error of the call; cancelled if the function was."""
        self._token = token
        self._function = function
        self._scope = trio.CancelScope()

    def cancel(self) -> None:
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._scope.cancel)

    async def run(self) -> None:
        """Run the function in the trio thread, and put its result or error into `future`. Raises only
        `trio.Cancelled`, or a group of it, if the task is cancelled."""
        try:
            with self._scope:
                self.future.set_result(await self._function())
                return
        except BaseException as error:  # passed to the caller; the portal goes on
            if is_cancellation(error):
                self.abandon()
                raise
            self.future.set_exception(error)
            del self  # the traceback holds this frame
            return
        self.abandon()

    def abandon(self) -> None:
        """End `future` as cancelled."""
        self.future.cancel()
        self.future.set_running_or_notify_cancel()


def is_cancellation(error: BaseException) -> bool:
    """Return True for `trio.Cancelled`, and for a group of nothing else."""
    if isinstance(error, BaseExceptionGroup):
        return error.split(trio.Cancelled)[1] is None
    return isinstance(error, trio.Cancelled)


def nothing() -> None:
    """Do nothing. The default callback."""


async def run_either(function: Callable[[], object]) -> object:
    """Run `function`, async or not."""
    value = function()
    return await value if isawaitable(value) else value


class TrioThread:
    """The thread, and the two nurseries in it, for calls and for contexts. Call its methods in other
    threads."""

    def __init__(self) -> None:
        self.began: futures.Future[None] = futures.Future()
        self._calls_ended: futures.Future[None] = futures.Future()
        self._ended: futures.Future[None] = futures.Future()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._run, name="playhead-portal", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            trio.run(self._serve)
            self._ended.set_result(None)
        except BaseException as error:  # noqa: BLE001 - trio could not start: no free descriptor, for example
            for future in (self.began, self._calls_ended, self._ended):
                if not future.done():
                    future.set_exception(error)

    async def _serve(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as self._contexts:
            async with trio.open_nursery() as self._calls:
                self.began.set_result(None)
                await trio.sleep_forever()
            self._calls_ended.set_result(None)
            await trio.sleep_forever()

    def join(self) -> None:
        if self._ended.done():  # not after a second Ctrl-C, which does not wait
            self._thread.join()

    @property
    def is_forked(self) -> bool:
        """True if this process is a forked child, in which the thread does not exist."""
        return os.getpid() != self._process

    def start(self, function: Callable[[], Awaitable[T]], *, is_context: bool = False) -> TrioCall[T]:
        """Call `function` in a task of its own, with the caller's context variables."""
        self.check_caller()
        call = TrioCall(self.token, function)
        self.soon(self._start, call, copy_context(), is_context)
        return call

    def _start(self, call: TrioCall[T], context: Context, is_context: bool) -> None:
        if self._calls.cancel_scope.cancel_called:
            call.abandon()
        else:  # a task copies the context it is started in
            context.run((self._contexts if is_context else self._calls).start_soon, call.run)

    def check_caller(self) -> None:
        """Raise `UsageError` in the portal's own thread, which would wait for itself for ever."""
        if threading.get_ident() == self._thread.ident and not self.is_forked:
            raise UsageError("expected a call from another thread, got one from the portal's: await it there")

    def soon(self, function: Callable[..., object], *args: object) -> None:
        """Call `function` in the trio thread, after all earlier calls."""
        if self.is_forked:
            raise UsageError(
                f"expected a call in process {self._process}, which made the portal, got one in a forked"
                f" child, {os.getpid()}, which has none of its threads: make a portal after the fork"
            )
        self.began.result()  # raises the reason if the thread did not begin
        try:
            self.token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            raise ClosedError(LEFT) from None

    def close_calls(self) -> futures.Future[None]:
        """Cancel the running calls, and refuse others. The returned future ends when they have ended."""
        with suppress(ClosedError):
            self.soon(lambda: self._calls.cancel_scope.cancel())
        return self._calls_ended

    def end(self) -> futures.Future[None]:
        """Cancel all tasks. The returned future ends with the thread."""
        self.close_calls()
        with suppress(ClosedError):
            self.soon(lambda: self._contexts.cancel_scope.cancel())
        return self._ended


class ItemFeed(Generic[T]):
    """An async iterator that runs, and is closed, in one trio task.

    A generator may therefore hold nurseries and cancel scopes over a `yield`, where it waits until the next
    item is requested. An item that a cancelled caller did not take stays in `items`.
    """

    def __init__(
        self,
        thread: TrioThread,
        iterable: AsyncIterable[T],
        on_lost: Callable[[], None] = nothing,
        *,
        is_context: bool = False,
    ) -> None:
        self.items: deque[T] = deque()
        self.is_generator = isinstance(iterable, AsyncGenerator)
        self.is_lost = False
        """True if the generator was cancelled at a `yield`, because a nursery that it holds failed, its time
        was over, or the portal was left."""
        self._thread = thread
        self._iterable = iterable
        self._generator = iterable if isinstance(iterable, AsyncGenerator) else _each(iterable)
        self._on_lost = on_lost
        self._asked = trio.Event()
        self._answer: futures.Future[None] | None = None
        self._sent: Any = None
        self._is_producing = self._is_ending = False
        self._scope = trio.CancelScope()
        self.ended = thread.start(self._run, is_context=is_context).future
        self.ended.add_done_callback(lambda _: self._reply())

    async def _run(self) -> None:
        with self._scope:
            try:
                while True:
                    self.items.append(await self._next())
                    self._asked = trio.Event()
                    self._reply()
            except StopAsyncIteration:
                pass
            finally:
                if self.is_lost:
                    self._on_lost()
                await self._close()

    async def _next(self) -> T:
        try:
            await self._asked.wait()
        except trio.Cancelled as error:
            # The generator waits at its `yield`, so the cancellation is thrown in there: the cancelled scope
            # may be one of its own.
            self.is_lost = not self._scope.cancel_called
            item = await self._generator.athrow(error)
            self.is_lost = False
            return item
        if self._is_ending:
            raise StopAsyncIteration
        self._is_producing = True
        try:
            return await self._generator.asend(self._sent)
        finally:
            self._is_producing = False

    async def _close(self) -> None:
        try:
            await self._generator.aclose()
        except BaseExceptionGroup as group:  # a nursery over the `yield` wraps the GeneratorExit
            errors = group.split(GeneratorExit)[1]
            if errors is not None:
                raise errors from None
        finally:
            # Nobody else can close the channel in this thread. Other iterators, such as streams, stay usable.
            if isinstance(self._iterable, trio.MemoryReceiveChannel):
                self._iterable.close()

    def ask(self, sent: object = None) -> futures.Future[None]:
        """Ask for an item, and send the value `sent` to a generator. The future ends when an item is there,
        or when the iteration has ended."""
        self._thread.check_caller()
        answer: futures.Future[None] = futures.Future()
        self._thread.soon(self._ask, answer, sent)
        return answer

    def _ask(self, answer: futures.Future[None], sent: object) -> None:
        self._answer, self._sent = answer, sent
        if self.items or self.ended.done():
            self._reply()
        else:
            self._asked.set()

    def _reply(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and answer.set_running_or_notify_cancel():
            answer.set_result(None)

    def end(self) -> None:
        """End the iteration: close a generator where it waits at a `yield`, and cancel it elsewhere."""
        with suppress(ClosedError):
            self._thread.soon(self._end)

    def _end(self) -> None:
        self._is_ending = True
        self._asked.set()
        if self._is_producing:
            self._scope.cancel()

    def cancel(self) -> None:
        with suppress(ClosedError):
            self._thread.soon(self._scope.cancel)


async def _each(items: AsyncIterable[T]) -> AsyncGenerator[T, Any]:
    async for item in items:
        yield item
