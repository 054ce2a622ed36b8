"""trio from asyncio and from plain threads: results, errors, cancellation, contexts, iteration."""

from __future__ import annotations

import asyncio
import os
import threading
import traceback
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn, assert_type

import psutil
import pytest
import trio
import trio.testing
from mcp.server.mcpserver import MCPServer

import playhead
from playhead import AsyncioPortal, BlockingPortal
from playhead.agent import Agent
from playhead.agent.scripted_model import ScriptedModel, reply
from playhead.errors import BusyError, ClosedError, UsageError
from playhead.limits import MIB
from playhead.playback import NullSink, Player
from tests.under_asyncio import under_asyncio

PLACE: ContextVar[str] = ContextVar("PLACE", default="nowhere")
Body = Callable[[Any], Coroutine[Any, Any, None]]
"""The body of a test, for an open portal."""


@under_asyncio
async def in_asyncio(body: Body) -> None:
    async with playhead.asyncio_portal() as portal:
        await body(portal)


def in_a_thread(body: Body) -> None:
    with (
        playhead.blocking_portal() as portal,
        pytest.raises(StopIteration),
    ):  # it returned, and waited for nothing
        body(AwaitedPortal(portal)).send(None)


def with_asyncio_portal(test: Body) -> Callable[[], None]:
    return lambda: in_asyncio(test)


EACH_PORTAL = pytest.mark.parametrize("run", [in_asyncio, in_a_thread])


def with_each_portal(test: Body) -> Callable[..., None]:
    """A test of an asyncio portal and, by the same calls, of a blocking one."""

    @EACH_PORTAL
    def runs(run: Callable[[Body], None]) -> None:
        run(test)

    return runs


class AwaitedPortal:
    """A blocking portal behind the methods of an asyncio portal, which block and need no loop."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    async def call(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self._portal.call(work, *args, **options)

    async def enter(self, context: AbstractAsyncContextManager[Any]) -> Any:
        return self._portal.enter(context)

    @asynccontextmanager
    async def use(self, context: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        with self._portal.use(context) as value:
            yield value

    async def iterate(self, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
        with closing(self._portal.iterate(items)) as found:
            for item in found:
                yield item


async def add(first: int, *, second: int) -> int:
    await trio.lowlevel.checkpoint()
    return first + second


async def fail() -> NoReturn:
    await trio.lowlevel.checkpoint()
    raise LookupError("in trio")


async def turns() -> None:
    """Let everything that is ready in the asyncio loop run."""
    for _ in range(20):
        await asyncio.sleep(0)


class Gate:
    """A trio function that is held up, even when cancelled, until the test opens the gate."""

    def __init__(self, portal: AsyncioPortal, error: Exception | None = None) -> None:
        self._portal = portal
        self._open = trio.Event()
        self._error = error
        self.reached = asyncio.Event()
        self.ended = False
        self._loop = asyncio.get_running_loop()

    async def __call__(self) -> None:
        self._loop.call_soon_threadsafe(self.reached.set)
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await self._open.wait()
            self.ended = True
            if self._error is not None:
                raise self._error

    async def open(self) -> None:
        await self._portal.call(self._open.set)


@asynccontextmanager
async def connection() -> AsyncIterator[trio.Nursery]:
    async with trio.open_nursery() as nursery:
        yield nursery


class Context:
    """A context manager that notes who enters and leaves it, and how."""

    def __init__(self, name: str, log: list[str], error: Exception | None = None) -> None:
        self.name = name
        self.tasks: list[trio.lowlevel.Task] = []
        self.log = log
        self._error = error

    async def __aenter__(self) -> str:
        self.tasks.append(trio.lowlevel.current_task())
        self.log.append(f"enter {self.name}")
        return self.name

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> bool | None:
        self.tasks.append(trio.lowlevel.current_task())
        self.log.append(f"leave {self.name}: {type(error).__name__}")
        if self._error is not None:
            raise self._error
        return isinstance(error, KeyError)


# --- calls -------------------------------------------------------------------------------------------------


@with_each_portal
async def test_a_call_returns_the_result_of_an_async_or_plain_function(portal: AsyncioPortal) -> None:
    assert await portal.call(add, 1, second=2) == 3
    assert await portal.call(threading.get_ident) != threading.get_ident()


@with_each_portal
async def test_an_error_arrives_with_the_traceback_of_both_sides(portal: AsyncioPortal) -> None:
    async def asks() -> None:
        await portal.call(fail)

    with pytest.raises(LookupError, match="in trio") as caught:
        await asks()
    frames = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert frames.index("asks") < frames.index("fail")


def test_even_an_exit_is_the_callers_and_the_portal_goes_on() -> None:
    async def leave() -> NoReturn:
        raise SystemExit(3)

    with playhead.blocking_portal() as portal:
        with pytest.raises(SystemExit):
            portal.call(leave)
        assert portal.call(add, 1, second=1) == 2


@with_each_portal
async def test_calls_contexts_and_iterations_see_the_callers_context_variables(portal: AsyncioPortal) -> None:
    async def place() -> str:
        return PLACE.get()

    @asynccontextmanager
    async def here() -> AsyncIterator[str]:
        yield PLACE.get()

    async def places() -> AsyncIterator[str]:
        yield PLACE.get()

    token = PLACE.set("here")
    assert await portal.call(place) == "here"
    assert await portal.enter(here()) == "here"
    assert [item async for item in portal.iterate(places())] == ["here"]
    PLACE.reset(token)


@with_asyncio_portal
async def test_a_cancelled_task_cancels_the_call_and_waits_for_it_however_often_it_is_cancelled(
    portal: AsyncioPortal,
) -> None:
    gate = Gate(portal)
    task = asyncio.create_task(portal.call(gate))
    await gate.reached.wait()
    for _ in range(3):
        task.cancel()
        await turns()
        assert not task.done()
    await gate.open()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.ended


@with_asyncio_portal
async def test_an_error_while_a_cancelled_call_ends_replaces_the_cancellation(portal: AsyncioPortal) -> None:
    gate = Gate(portal, error=OSError("disk full"))
    task = asyncio.create_task(portal.call(gate))
    await gate.reached.wait()
    task.cancel()
    await gate.open()
    with pytest.raises(OSError, match="disk full"):
        await task


@under_asyncio
async def test_the_calls_of_other_tasks_end_with_the_portal_and_later_ones_are_refused() -> None:
    async with playhead.asyncio_portal() as portal:
        gate = Gate(portal)
        task = asyncio.create_task(portal.call(gate))
        await gate.reached.wait()
        await gate.open()
    with pytest.raises(ClosedError, match="the portal was left"):
        await task
    assert gate.ended
    with pytest.raises(ClosedError, match="the portal was left"):
        await portal.call(add, 1, second=1)
    with pytest.raises(ClosedError, match="the portal was left"):
        await portal.enter(Context("late", []))
    with pytest.raises(ClosedError, match="the portal was left"):
        portal.iterate(numbers([]))


async def wait_in_a_nursery(begun: Callable[[], None]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.sleep_forever)
        begun()
        await trio.sleep_forever()


async def yield_in_a_nursery(begun: Callable[[], None]) -> AsyncGenerator[int, None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        nursery.start_soon(trio.sleep_forever)
        yield 1
        begun()
        await trio.sleep_forever()


@pytest.mark.parametrize("how", ["call", "iterate", "use"])
@under_asyncio
async def test_what_holds_a_nursery_ends_with_the_portal_as_any_other(how: str) -> None:
    async def work(portal: AsyncioPortal) -> None:
        match how:
            case "call":
                await portal.call(wait_in_a_nursery, begun)
            case "iterate":
                async for _item in portal.iterate(yield_in_a_nursery(begun)):
                    pass
            case "use":
                async with portal.use(asynccontextmanager(yield_in_a_nursery)(lambda: None)):
                    begun()
                    await asyncio.Event().wait()

    def begun() -> None:
        loop.call_soon_threadsafe(has_begun.set)

    loop, has_begun = asyncio.get_running_loop(), asyncio.Event()
    async with playhead.asyncio_portal() as portal:
        task = asyncio.create_task(work(portal))
        await has_begun.wait()
    with pytest.raises(ClosedError, match="the portal was left"):
        await task


def test_the_calls_of_other_threads_end_with_the_portal() -> None:
    reached = threading.Event()
    errors: list[BaseException] = []

    async def wait() -> None:
        reached.set()
        await trio.sleep_forever()

    def ask(portal: BlockingPortal) -> None:
        try:
            portal.call(wait)
        except ClosedError as error:
            errors.append(error)

    with playhead.blocking_portal() as portal:
        thread = threading.Thread(target=ask, args=(portal,))
        thread.start()
        reached.wait()
    thread.join()
    assert len(errors) == 1
    with pytest.raises(ClosedError, match="the portal was left"):
        portal.call(add, 1, second=1)


@with_asyncio_portal
async def test_a_call_never_blocks_the_asyncio_thread_even_while_trio_is_busy(portal: AsyncioPortal) -> None:
    busy, free = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold_trio() -> None:
        loop.call_soon_threadsafe(busy.set)
        assert free.wait(60)

    holding = asyncio.create_task(portal.call(hold_trio))
    await busy.wait()
    log: list[str] = []
    tasks = [
        asyncio.create_task(portal.call(add, 1, second=1)),
        asyncio.create_task(portal.enter(Context("a", log))),
        asyncio.create_task(anext(portal.iterate(numbers([])))),
    ]
    await turns()  # with a blocked loop, the next line is never reached
    assert not any(task.done() for task in tasks)
    free.set()
    assert [await task for task in tasks] == [2, "a", 0]
    await holding


def test_a_call_from_the_portals_own_thread_is_refused_instead_of_waiting_for_itself() -> None:
    with playhead.blocking_portal() as portal, pytest.raises(UsageError, match="from another thread"):
        portal.call(lambda: portal.call(add, 1, second=1))


if TYPE_CHECKING:

    async def typed(portal: AsyncioPortal, blocking: BlockingPortal) -> None:
        """The signatures that type checkers see."""
        assert_type(await portal.call(add, 1, second=2), int)
        assert_type(await portal.call(threading.get_ident), int)
        assert_type(await portal.enter(Context("a", [])), str)
        assert_type(await anext(portal.iterate(numbers([]))), int)
        async with portal.use(Context("a", [])) as name:
            assert_type(name, str)
        with blocking.use(Context("a", [])) as name:
            assert_type(name, str)
        playhead.asyncio_portl()  # type: ignore[attr-defined]
        assert_type(blocking.call(add, 1, second=2), int)
        assert_type(blocking.call(threading.get_ident), int)
        assert_type(blocking.enter(Context("a", [])), str)
        assert_type(next(blocking.iterate(numbers([]))), int)
        await portal.call(add, "1", second=2)  # type: ignore[arg-type]
        await portal.call(add, 1)  # type: ignore[call-overload]
        blocking.call(add, 1, third=2)  # type: ignore[call-arg]


# --- contexts ----------------------------------------------------------------------------------------------


@EACH_PORTAL
def test_contexts_are_left_in_reverse_each_in_the_task_that_entered_it(run: Callable[[Body], None]) -> None:
    log: list[str] = []
    contexts = [Context("a", log), Context("b", log)]

    async def enter(portal: AsyncioPortal) -> None:
        for context in contexts:
            assert await portal.enter(context) == context.name

    run(enter)
    for context in contexts:
        assert context.tasks[0] is context.tasks[1]
    assert log == ["enter a", "enter b", "leave b: NoneType", "leave a: NoneType"]


@EACH_PORTAL
def test_the_blocks_error_reaches_the_contexts_which_may_replace_or_suppress_it(
    run: Callable[[Body], None],
) -> None:
    def left(error: Exception | None, at_leaving: Exception | None = None) -> Exception | None:
        async def body(portal: AsyncioPortal) -> None:
            await portal.enter(Context("a", log))
            await portal.enter(Context("b", log, at_leaving))
            if error is not None:
                raise error

        log.clear()
        try:
            run(body)
        except (ValueError, OSError) as raised:
            return raised
        return None

    log: list[str] = []
    mine, leaving = ValueError("mine"), OSError("leaving")
    assert left(mine) is mine
    assert log[2:] == ["leave b: ValueError", "leave a: ValueError"]
    assert left(mine, leaving) is leaving
    assert log[2:] == ["leave b: ValueError", "leave a: OSError"]
    assert leaving.__context__ is mine
    assert left(None, leaving) is leaving
    assert log[2:] == ["leave b: NoneType", "leave a: OSError"]
    assert left(KeyError("suppressed")) is None
    assert log[2:] == ["leave b: KeyError", "leave a: NoneType"]


@EACH_PORTAL
def test_what_fails_to_enter_is_not_left(run: Callable[[Body], None]) -> None:
    class Failing(Context):
        async def __aenter__(self) -> str:
            await super().__aenter__()
            raise LookupError("cannot open")

    async def enter(portal: AsyncioPortal) -> None:
        with pytest.raises(LookupError, match="cannot open"):
            await portal.enter(Failing("a", log))

    log: list[str] = []
    run(enter)
    assert log == ["enter a"]


@under_asyncio
async def test_a_cancelled_block_cancels_its_contexts_in_trio() -> None:
    async def block() -> None:
        async with playhead.asyncio_portal() as portal:
            await portal.enter(Context("a", log))
            entered.set()
            await asyncio.Event().wait()

    log: list[str] = []
    entered = asyncio.Event()
    task = asyncio.create_task(block())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["enter a", "leave a: Cancelled"]


@under_asyncio
async def test_a_context_that_fails_by_itself_cancels_the_block_and_raises_its_error() -> None:
    async def block() -> None:
        async with playhead.asyncio_portal() as portal:
            await portal.enter(Context("outer", log))
            nursery = await portal.enter(connection())
            await portal.enter(Context("inner", log))
            await portal.call(nursery.start_soon, fail)
            await asyncio.Event().wait()

    log: list[str] = []
    task = asyncio.current_task()
    assert task is not None
    with pytest.raises(BaseExceptionGroup) as caught:  # what trio's nursery raises
        await block()
    assert caught.group_contains(LookupError, match="in trio")
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # not cancelled any more
    assert log[2:] == ["leave inner: Cancelled", "leave outer: ExceptionGroup"]


@under_asyncio
async def test_a_context_whose_time_is_over_ends_the_block_without_an_error() -> None:
    @asynccontextmanager
    async def limited() -> AsyncIterator[None]:
        with trio.move_on_after(0.01):
            yield

    async with playhead.asyncio_portal() as portal:
        await portal.enter(limited())
        await asyncio.Event().wait()
    await asyncio.sleep(0)  # not cancelled any more


def test_a_thread_gets_the_error_of_a_context_that_failed_by_itself_at_the_end() -> None:
    with pytest.raises(BaseExceptionGroup) as caught, playhead.blocking_portal() as portal:
        portal.call(portal.enter(connection()).start_soon, fail)
    assert caught.group_contains(LookupError)


# --- contexts of one block ---------------------------------------------------------------------------------


@with_each_portal
async def test_a_used_context_is_left_at_the_end_of_its_block_in_the_task_that_entered_it(
    portal: AsyncioPortal,
) -> None:
    context = Context("a", [])
    async with portal.use(context) as value:
        context.log.append(value)
    assert context.log == ["enter a", "a", "leave a: NoneType"]
    assert context.tasks[0] is context.tasks[1]


def test_a_used_context_gets_the_error_of_its_block_and_may_replace_or_suppress_it() -> None:
    def use(context: Context, error: Exception) -> None:
        with playhead.blocking_portal() as portal, portal.use(context):
            raise error

    log: list[str] = []
    mine = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        use(Context("a", log), mine)
    assert caught.value is mine
    with pytest.raises(StopIteration):
        use(Context("b", log), StopIteration())
    use(Context("c", log), KeyError("suppressed"))
    with pytest.raises(OSError, match="leaving"):
        use(Context("d", log, OSError("leaving")), mine)
    assert log[1::2] == [
        "leave a: ValueError",
        "leave b: StopIteration",
        "leave c: KeyError",
        "leave d: ValueError",
    ]


@with_asyncio_portal
async def test_a_used_context_that_fails_by_itself_cancels_its_block_alone(portal: AsyncioPortal) -> None:
    async def use() -> None:
        async with portal.use(connection()) as nursery:
            await portal.call(nursery.start_soon, fail)
            await asyncio.Event().wait()

    with pytest.raises(BaseExceptionGroup) as caught:
        await use()
    assert caught.group_contains(LookupError, match="in trio")
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert await portal.call(add, 1, second=1) == 2


async def use_for_ever(portal: AsyncioPortal, context: Context, entered: asyncio.Event) -> None:
    async with portal.use(context):
        entered.set()
        await asyncio.Event().wait()


@under_asyncio
async def test_a_context_that_another_task_uses_ends_with_the_portal() -> None:
    log: list[str] = []
    entered = asyncio.Event()
    async with playhead.asyncio_portal() as portal:
        await portal.enter(Context("outer", log))
        task = asyncio.create_task(use_for_ever(portal, Context("a", log), entered))
        await entered.wait()
    with pytest.raises(ClosedError, match="the portal was left"):
        await task
    assert log[2:] == ["leave a: Cancelled", "leave outer: NoneType"]


@with_asyncio_portal
async def test_a_cancelled_block_cancels_its_used_context(portal: AsyncioPortal) -> None:
    log: list[str] = []
    entered = asyncio.Event()
    task = asyncio.create_task(use_for_ever(portal, Context("a", log), entered))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["enter a", "leave a: Cancelled"]


@pytest.mark.slow("enters 10,000 contexts through each portal")
@with_each_portal
async def test_the_process_has_not_grown_after_10_000_uses(portal: AsyncioPortal) -> None:
    process = psutil.Process()
    for number in range(11_000):
        if number == 1000:
            before = process.memory_info().rss
        async with portal.use(Context("a", [])):
            pass
    assert process.memory_info().rss - before < 2 * MIB


# --- iteration ---------------------------------------------------------------------------------------------


async def numbers(made: list[int], log: list[object] | None = None) -> AsyncGenerator[int, None]:
    try:
        for number in range(100):
            made.append(number)
            if log is not None:
                log.append(trio.lowlevel.current_task())
            yield number
    finally:
        if log is not None:
            log.append("closed")


@with_each_portal
async def test_nothing_runs_ahead_of_the_caller_and_one_task_iterates(portal: AsyncioPortal) -> None:
    made: list[int] = []
    log: list[object] = []
    items = portal.iterate(numbers(made, log))
    for expected in range(3):
        assert await anext(items) == expected
        await portal.call(trio.testing.wait_all_tasks_blocked)
        assert made == list(range(expected + 1))
    await items.aclose()
    assert log[-1] == "closed"
    with pytest.raises(StopAsyncIteration):
        await anext(items)
    assert len({*log[:3]}) == 1


@with_each_portal
async def test_an_iteration_ends_and_fails_as_the_iterator_does(portal: AsyncioPortal) -> None:
    async def two() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def failing() -> AsyncIterator[int]:
        yield 1
        raise LookupError("in trio")

    assert [item async for item in portal.iterate(two())] == [1, 2]
    items = portal.iterate(failing())
    assert await anext(items) == 1
    with pytest.raises(LookupError, match="in trio"):
        await anext(items)
    with pytest.raises(StopAsyncIteration):
        await anext(items)


@EACH_PORTAL
def test_an_iteration_that_is_broken_off_is_closed_with_the_portal(run: Callable[[Body], None]) -> None:
    async def break_off(portal: AsyncioPortal) -> None:
        async for _ in portal.iterate(numbers([], log)):
            break

    log: list[object] = []
    run(break_off)
    assert log[-1] == "closed"


@with_asyncio_portal
async def test_a_cancelled_wait_loses_no_item_of_a_channel(portal: AsyncioPortal) -> None:
    send, receive = trio.open_memory_channel[int](0)
    items = portal.iterate(receive)
    got: list[int] = []
    for number in range(50):
        waiting = asyncio.create_task(anext(items))
        await asyncio.sleep(0)
        sending = asyncio.create_task(portal.call(send.send, number))
        for _ in range(number % 7):
            await asyncio.sleep(0)
        waiting.cancel()
        try:
            got.append(await waiting)
        except asyncio.CancelledError:
            got.append(await anext(items))
        await sending
    assert got == list(range(50))
    await portal.call(send.aclose)
    assert [item async for item in items] == []


@with_asyncio_portal
async def test_a_second_task_in_one_iteration_is_told(portal: AsyncioPortal) -> None:
    send, receive = trio.open_memory_channel[int](0)
    items = portal.iterate(receive)
    waiting = asyncio.create_task(anext(items))
    await asyncio.sleep(0)
    with pytest.raises(BusyError, match="one task or thread"):
        await anext(items)
    await portal.call(send.send, 1)
    assert await waiting == 1
    send.close()


@under_asyncio
async def test_an_iteration_of_another_task_ends_with_the_portal() -> None:
    async with playhead.asyncio_portal() as portal:
        send, receive = trio.open_memory_channel[int](0)
        waiting = asyncio.create_task(anext(portal.iterate(receive)))
        await turns()
    with pytest.raises(ClosedError, match="the portal was left"):
        await waiting
    send.close()


# --- generators that hold something over a yield -----------------------------------------------------------


async def natural(log: list[str], count: int = 100) -> AsyncGenerator[int, None]:
    """As programs write them: a nursery with a task, a cancel scope, and `yield` inside."""
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            with trio.CancelScope():
                for number in range(count):
                    await trio.lowlevel.checkpoint()
                    yield number
            nursery.cancel_scope.cancel()
    finally:
        log.append("closed")


@with_each_portal
async def test_a_generator_may_hold_nurseries_and_scopes_over_a_yield(portal: AsyncioPortal) -> None:
    log: list[str] = []
    assert [item async for item in portal.iterate(natural(log))] == [*range(100)]
    assert log == ["closed"]


@with_each_portal
async def test_leaving_the_loop_early_closes_the_generator_in_its_task(portal: AsyncioPortal) -> None:
    log: list[str] = []
    async for _ in portal.iterate(natural(log)):
        break
    await portal.call(trio.testing.wait_all_tasks_blocked)
    assert log == ["closed"]
    items = portal.iterate(natural(log))
    assert await anext(items) == 0
    await items.aclose()
    assert log == ["closed", "closed"]


@with_asyncio_portal
async def test_a_cancelled_wait_ends_a_generator_and_waits_for_its_end(portal: AsyncioPortal) -> None:
    async def silent() -> AsyncIterator[int]:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                loop.call_soon_threadsafe(reached.set)
                await trio.sleep_forever()
                yield 0
        finally:
            log.append("closed")

    log: list[str] = []
    loop, reached = asyncio.get_running_loop(), asyncio.Event()
    items = portal.iterate(silent())
    waiting = asyncio.create_task(anext(items))
    await reached.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert log == ["closed"]
    with pytest.raises(StopAsyncIteration):
        await anext(items)


def test_what_a_generator_raises_arrives_as_it_is() -> None:
    async def fails(error: Exception) -> AsyncIterator[int]:
        yield 0
        raise error

    async def fails_to_close(error: Exception) -> AsyncIterator[int]:
        try:
            yield 0
        finally:
            raise error

    group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("one", [ValueError("b")])])
    with playhead.blocking_portal() as portal:
        items = portal.iterate(fails(group))
        assert next(items) == 0
        with pytest.raises(ExceptionGroup) as caught:
            next(items)
        assert caught.value is group
        closing = portal.iterate(fails_to_close(OSError("disk full")))
        assert next(closing) == 0
        with pytest.raises(OSError, match="disk full"):
            closing.close()
        closing.close()  # it was raised once


def test_a_task_of_the_generator_that_fails_while_nobody_asks_is_not_lost() -> None:
    async def fails_behind(fail: trio.Event) -> AsyncIterator[int]:
        async def background() -> None:
            await fail.wait()
            raise OSError("the connection is lost")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(background)
            yield 0
            yield 1

    async def out_of_time(events: list[str]) -> AsyncIterator[int]:
        with trio.CancelScope() as scope:
            nursery_of_others.append(scope)
            yield 0
            events.append("not reached")
        yield 1

    nursery_of_others: list[trio.CancelScope] = []
    with playhead.blocking_portal() as portal:
        fail = trio.Event()
        items = portal.iterate(fails_behind(fail))
        assert next(items) == 0
        portal.call(fail.set)
        portal.call(trio.testing.wait_all_tasks_blocked)
        with pytest.raises(ExceptionGroup) as caught:
            next(items)
        assert caught.group_contains(OSError, match="the connection is lost")
        events: list[str] = []
        items = portal.iterate(out_of_time(events))
        assert next(items) == 0
        portal.call(nursery_of_others[0].cancel)
        assert [*items] == [1]
        assert events == []


# --- forked children ---------------------------------------------------------------------------------------


def in_a_child(run: Callable[[], object]) -> str:
    """The message of the `UsageError` that `run` raises in a forked child, or its other end."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: this process has threads
        child = os.fork()
    if child == 0:
        text = "returned"
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            text = f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:  # noqa: PTH123 - a descriptor
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def test_in_a_forked_child_every_call_says_to_make_a_portal_after_the_fork() -> None:
    def use(portal: BlockingPortal) -> None:
        with portal.use(Context("a", [])):
            pass

    with playhead.blocking_portal() as portal:
        items = portal.iterate(numbers([]))
        assert next(items) == 0
        calls: list[Callable[[], object]] = [
            lambda: portal.call(add, 1, second=1),
            lambda: portal.enter(Context("a", [])),
            lambda: use(portal),
            lambda: portal.iterate(numbers([])),
            lambda: next(items),
            items.close,
        ]
        for call in calls:
            assert "UsageError: " in in_a_child(call)
            assert "make a portal after the fork" in in_a_child(call)
        assert next(items) == 1  # the parent goes on


def test_a_forked_child_can_leave_the_blocks_it_inherited_and_make_its_own_portal() -> None:
    def own_portal() -> None:
        with playhead.blocking_portal() as portal:
            assert portal.call(add, 1, second=1) == 2

    def leaves() -> None:
        with playhead.blocking_portal() as portal:
            portal.enter(Context("a", []))
            with portal.use(Context("b", [])), warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
        if child == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    with playhead.blocking_portal():
        assert in_a_child(own_portal) == "returned"
    assert in_a_child(leaves) == "returned"


# --- cancelled at every await ------------------------------------------------------------------------------


class CancelAt:
    """Awaits `coroutine` and cancels the task right before its n-th wait."""

    def __init__(self, coroutine: Coroutine[Any, Any, object], wait: int) -> None:
        self._coroutine = coroutine
        self._wait = wait
        self.waits = 0

    def __await__(self) -> Generator[Any, None, None]:
        thrown: BaseException | None = None
        while True:
            try:
                step = self._coroutine.send(None) if thrown is None else self._coroutine.throw(thrown)
            except StopIteration:
                return
            self.waits += 1
            if self.waits == self._wait:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            thrown = None
            try:
                yield step
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine
                thrown = error


class Busy:
    """A server in this process that counts the requests it works on, and trio tasks by their context."""

    def __init__(self) -> None:
        self.server = MCPServer("busy")
        self.requests = 0
        self.contexts = 0
        self.server.tool()(self.think)

    async def think(self) -> str:
        self.requests += 1
        try:
            for _ in range(5):
                await trio.lowlevel.checkpoint()
        finally:
            self.requests -= 1
        return "so be it"

    @asynccontextmanager
    async def context(self) -> AsyncIterator[None]:
        self.contexts += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                await trio.lowlevel.checkpoint()
                yield
                nursery.cancel_scope.cancel()
        finally:
            self.contexts -= 1


async def use_everything(busy: Busy) -> None:
    made: list[int] = []
    async with playhead.asyncio_portal() as portal:
        session = await portal.enter(playhead.connect(busy.server))
        await portal.enter(busy.context())
        async with portal.use(busy.context()):
            async for _ in portal.iterate(natural([])):
                break
        assert (await portal.call(session.call_tool, "think")).text == "so be it"
        async for number in portal.iterate(numbers(made)):
            if number == 2:
                break
        other = asyncio.create_task(portal.call(trio.sleep_forever))
        try:
            await asyncio.sleep(0)
        finally:
            other.cancel()
        with suppress(asyncio.CancelledError):
            await other


def test_cancelled_at_every_await_it_leaves_no_task_thread_or_request() -> None:
    threads = set(threading.enumerate())

    async def main(wait: int) -> int:
        busy = Busy()
        run = CancelAt(use_everything(busy), wait)
        try:
            await run
        except asyncio.CancelledError:
            assert run.waits >= wait > 0
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            assert task.cancelling(), "not the test's other task, which is about to end"
        assert (busy.requests, busy.contexts) == (0, 0)
        return run.waits

    waits = asyncio.run(main(0))
    assert waits >= 10
    for wait in range(1, waits + 1):
        asyncio.run(main(wait))
        assert {*threading.enumerate()} <= threads  # an idle one of an earlier test may end


# --- the wrong loop ----------------------------------------------------------------------------------------


def opened() -> list[Callable[[], AbstractAsyncContextManager[object]]]:
    @asynccontextmanager
    async def agent() -> AsyncIterator[None]:
        await Agent(ScriptedModel([reply("hello")])).say("hello")
        yield

    return [
        lambda: playhead.connect(MCPServer("here")),
        lambda: playhead.open_hub({}),
        lambda: Player(NullSink()),
        agent,
    ]


@pytest.mark.parametrize("make", opened())
@under_asyncio
async def test_entering_under_asyncio_names_both_bridges(
    make: Callable[[], AbstractAsyncContextManager[object]],
) -> None:
    with pytest.raises(UsageError, match=r"asyncio loop.*asyncio_portal\(\).*blocking_portal\(\)"):
        async with make():
            pass


def test_a_portal_in_the_wrong_place_names_the_right_one() -> None:
    async def in_asyncio() -> None:
        with playhead.blocking_portal():
            pass

    async def in_trio() -> None:
        with pytest.raises(UsageError, match="trio needs no portal"):
            async with playhead.asyncio_portal():
                pass
        with playhead.blocking_portal():
            pass

    async def nowhere() -> None:
        async with playhead.asyncio_portal():
            pass

    with pytest.raises(UsageError, match=r"use `playhead.asyncio_portal\(\)`"):
        asyncio.run(in_asyncio())
    with pytest.raises(UsageError, match="got trio's; use no portal"):
        trio.run(in_trio)
    with pytest.raises(UsageError, match="got none"):
        nowhere().send(None)


@under_asyncio
async def test_in_guest_mode_no_portal_is_needed() -> None:
    async def main() -> str:
        async with playhead.connect(Busy().server) as session:
            return (await session.call_tool("think")).text

    loop = asyncio.get_running_loop()
    done: asyncio.Future[str] = loop.create_future()
    trio.lowlevel.start_guest_run(
        main,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        done_callback=lambda outcome: done.set_result(outcome.unwrap()),
    )
    assert await done == "so be it"


@under_asyncio
async def test_what_belongs_to_trio_says_so_in_asyncio() -> None:
    async with playhead.asyncio_portal() as portal:
        session = await portal.enter(playhead.connect(MCPServer("empty")))
        player = await portal.enter(Player(NullSink()))
        for call, name in ((session.list_tools, "Session"), (player.next, "Player")):
            with pytest.raises(UsageError, match=f"{name}: expected trio, got a running asyncio loop"):
                await call()
