"""One live connection: a transport, the SDK's session on top of it, and requests with their deadlines.

A deadline runs from the last byte received, not from the request: a page over a slow link is late only when
nothing arrives any more. A second limit on the total keeps a peer that drips one byte at a time from holding
a caller for ever.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import httpx2
import trio
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import Implementation, PaginatedRequestParams, Request, Result, Tool

from playhead._core import __version__
from playhead.client.session.elicitation import Elicitor
from playhead.client.session.handshake import negotiate, run_in_sdk
from playhead.client.session.list_changed import ToolListChanges
from playhead.client.session.response_tap import (
    CURRENT_REQUEST,
    Arrivals,
    ResponseTap,
    TappedReader,
    TappedWriter,
)
from playhead.client.transports.failures import from_answer, from_sdk, lost_session
from playhead.concurrency import Broadcast, iter_leaves, unwrap_exception_group
from playhead.errors import ConnectError, ConnectionLostError, DeadlineError, PlayheadError, TransportError
from playhead.jsonrpc.faults import FaultLog, ProtocolFaults
from playhead.limits import Limits
from playhead.sdk_internals import ProgressFnT, ReadStream, WriteStream, usable_tools

Transport = AbstractAsyncContextManager[tuple[ReadStream, WriteStream]]
ProgressReport = tuple[float, float | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTransport:
    """A transport about to be entered, with the functions that report on it."""

    transport: Transport
    last_received: Callable[[], float] = lambda: 0.0
    """Time of the last byte of any kind, on trio's clock; 0.0 if the transport only sees whole answers."""
    diagnosis: Callable[[], str] = lambda: ""
    """For error messages: the server's exit status and the end of its stderr."""
    faults: Callable[[], ProtocolFaults] = ProtocolFaults
    """Protocol faults that were dropped before they reached the session."""


class TransportFactory(Protocol):
    """Makes a fresh transport for the first connection and for each one after it."""

    @property
    def server(self) -> str:
        """The server's name and address for messages, without secrets."""
        ...

    @property
    def is_process(self) -> bool: ...

    @property
    def authorize(self) -> Callable[[], Awaitable[None]] | None:
        """Ask a person for access; None if no person is needed. Raises a `PlayheadError`."""
        ...

    def __call__(self, tap: ResponseTap) -> OpenedTransport: ...


ENDINGS = (PlayheadError, OSError, httpx2.HTTPError, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""Exceptions with which a connection may end by itself. anyio's two are raised by the SDK, for answers that
arrive while the session is closing."""


class Connection:
    """Requests over one SDK session, each with its own deadline and its own error."""

    def __init__(
        self,
        *,
        session: ClientSession,
        tap: ResponseTap,
        opened: OpenedTransport,
        server: str,
        elicitor: Elicitor | None = None,
    ) -> None:
        self.session = session
        self._tap = tap
        self._opened = opened
        self._server = server
        self._elicitor = elicitor

    @property
    def handshake(self) -> Mapping[str, Any] | None:
        """The raw result of the handshake."""
        return self._tap.handshake

    @property
    def ended(self) -> bool:
        return self._tap.ended.is_set()

    async def wait_ended(self) -> str:
        """Wait until the connection has ended, by itself or because it was left. Returns the reason if
        known."""
        await self._tap.ended.wait()
        return self._opened.diagnosis().removeprefix("; ")

    def leave(self) -> None:
        """Ask the task that holds the transport open to close it. Idempotent."""
        self._tap.ended.set()

    async def request(
        self,
        request: Request[Any, Any],
        *,
        silent_seconds: float,
        total_seconds: float,
        on_progress: ProgressFnT | None = None,
        arrivals: Arrivals | None = None,
    ) -> dict[str, Any]:
        """Send `request` and return the raw result, unvalidated.

        Raises `DeadlineError` if no byte arrived for `silent_seconds` or `total_seconds` have passed,
        `ConnectionLostError` or another `TransportError` if the transport failed, `RemoteError` for an error
        answer, and whatever `on_progress` raises. On a deadline or cancellation, `notifications/cancelled` is
        sent before this returns (or the POST is closed, in revisions that say so). `arrivals` is notified of
        the bytes of the answer.
        """
        method: str = request.method
        made_up: MCPError | None = None
        with ExitStack() as stack:
            pending = stack.enter_context(self._tap.pending(method))

            def last_received() -> float:
                return max(pending.touched, self._opened.last_received())

            def last_activity() -> float:
                return max(last_received(), self._elicitor.last_asked if self._elicitor is not None else 0.0)

            if arrivals is not None:
                stack.enter_context(arrivals.watching(last_received))

            async def send() -> None:
                nonlocal made_up
                try:
                    # Reads don't ask for progress: their bytes are their progress.
                    if method != "tools/call":
                        await self.session.send_request(request, Result)
                        return
                    async with reporting(on_progress) as reports:

                        async def progressed(
                            progress: float, total: float | None, message: str | None
                        ) -> None:
                            pending.touched = trio.current_time()
                            reports.send((progress, total, message))

                        await self.session.send_request(request, Result, progress_callback=progressed)
                except MCPError as error:
                    made_up = error

            spent = await run_until_silent(
                send,
                silent_seconds=silent_seconds,
                total_seconds=total_seconds,
                last_received=last_activity,
            )
            if pending.result is not None:
                return pending.result
            if pending.failure is not None:
                raise pending.failure
            if pending.answer_error is not None:
                if (lost := lost_session(pending.answer_error, server=self._server)) is not None:
                    raise lost
                raise from_answer(pending.answer_error, method=method, server=self._server)
            if made_up is not None:
                raise from_sdk(
                    made_up, method=method, server=self._server, diagnosis=self._opened.diagnosis()
                ) from None
            if spent is not None:
                ran_out = "in total" if spent == total_seconds else "of silence"
                raise DeadlineError(
                    f"{self._server} did not answer {method} in {spent:g} s {ran_out}; the request was"
                    " cancelled"
                )
            raise ConnectionLostError(f"{self._server} gave no answer to {method}")

    def usable(self, tools: list[Tool]) -> list[Tool]:
        """Drop the tools whose parameters can't be sent, and learn the headers of the others.

        MCP 2026-07-28, "Streamable HTTP", headers: a client must leave out a tool with an invalid
        `x-mcp-header` and mirror the parameters of the others. The SDK does both, but only in listings that
        it reads itself.
        """
        return usable_tools(self.session, tools)

    async def learn_headers(self, limits: Limits) -> None:
        """Let the SDK list the tools: it remembers which of their parameters belong in HTTP headers.

        Raises `DeadlineError` if the whole listing takes more than `Limits.tool_seconds`, else as `request`.
        """

        async def listed() -> None:
            cursor: str | None = None
            for _page in range(limits.listing_pages):
                page = await self.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
                cursor = page.next_cursor
                if cursor is None:
                    return

        with trio.move_on_after(limits.tool_seconds):
            await run_in_sdk(listed, self._tap, method="tools/list", server=self._server)
            return
        raise DeadlineError(
            f"{self._server} did not list its tools in {limits.tool_seconds:g} s (Limits.tool_seconds); a"
            " call needs the list"
        )


@asynccontextmanager
async def reporting(on_progress: ProgressFnT | None) -> AsyncIterator[Broadcast[ProgressReport]]:
    """Pass reports to `on_progress` in one task while the body runs, the newest one each time.

    The SDK starts a task for each progress notification; with a callback that waits, a server that reports
    without end would fill the memory with them. The last report is delivered after the body; cancelling drops
    it. What `on_progress` raises cancels the body and is raised here.
    """
    reports = Broadcast[ProgressReport](capacity=1)

    async def deliver(newest: trio.MemoryReceiveChannel[ProgressReport], to: ProgressFnT) -> None:
        async for report in newest:
            await to(*report)

    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            if on_progress is not None:
                nursery.start_soon(deliver, reports.subscribe(), on_progress)
            yield reports
            reports.close()


async def run_until_silent(
    work: Callable[[], Awaitable[None]],
    *,
    silent_seconds: float,
    total_seconds: float,
    last_received: Callable[[], float],
) -> float | None:
    """Run `work` until it returns, or until nothing was received for `silent_seconds`.

    `last_received` gives the time of the last byte on trio's clock (0.0: none yet). Returns `None` if `work`
    returned, else the allowance that ran out, in seconds, with `work` cancelled. Exceptions of `work` are
    raised as they are; cancelling the caller cancels `work`.
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

    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            with scope:
                await work()
            nursery.cancel_scope.cancel()
    return spent if scope.cancelled_caught else None


async def hold_open(
    factory: TransportFactory,
    *,
    limits: Limits,
    mode: str,
    changes: ToolListChanges,
    elicitor: Elicitor | None,
    fault_log: FaultLog,
    renewed: bool,
    task_status: trio.TaskStatus[Connection],
) -> None:
    """Keep one connection open until it ends or is left. Start it with `nursery.start`.

    `changes` receives the server's notifications, `fault_log` its protocol faults; `renewed` says that this
    is not the first connection.

    Raises `ConnectError` before it has started, and nothing afterwards: what breaks later reaches the callers
    through their requests.
    """
    tap = ResponseTap(limits, on_notification=changes.on_notification)
    opened = factory(tap)
    started = False

    def faults() -> ProtocolFaults:
        return opened.faults() + tap.faults()

    fault_log.opened(faults)
    phase, allowed = "connect", limits.connect_seconds
    with trio.CancelScope(deadline=trio.current_time() + allowed) as scope:
        try:
            async with (
                opened.transport as (read, write),
                ClientSession(
                    TappedReader(read, tap),
                    TappedWriter(write, tap),
                    client_info=Implementation(name="playhead", version=__version__),
                    elicitation_callback=elicitor,
                ) as session,
            ):
                phase, allowed = "handshake", limits.handshake_seconds
                scope.deadline = trio.current_time() + allowed
                await negotiate(
                    session, tap, mode=mode, seconds=limits.handshake_seconds, server=factory.server
                )
                scope.deadline = math.inf
                started = True
                task_status.started(
                    Connection(
                        session=session, tap=tap, opened=opened, server=factory.server, elicitor=elicitor
                    )
                )
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_follow, changes, session, renewed)
                    await tap.ended.wait()
                    nursery.cancel_scope.cancel()
        except (*ENDINGS, ExceptionGroup) as error:
            causes = list(iter_leaves(error))
            if not all(isinstance(cause, ENDINGS) for cause in causes):
                raise
            cause = causes[0]
            if not started:
                raise connect_error(cause, factory.server, opened.diagnosis()) from cause
        finally:
            tap.ended.set()
            fault_log.ended(faults)
    if scope.cancelled_caught and not started:
        raise ConnectError(
            f"{factory.server} did not finish the {phase} in {allowed:g} s (Limits.{phase}_seconds):"
            f" check that it is the right server and speaks MCP{opened.diagnosis()}"
        ) from (DeadlineError("the handshake took too long") if phase == "handshake" else None)


async def _follow(changes: ToolListChanges, session: ClientSession, renewed: bool) -> None:
    # Whoever asked for this connection may have done so inside a request, which is not ours.
    CURRENT_REQUEST.set(None)
    await changes.follow(session, renewed=renewed)


def connect_error(cause: BaseException, server: str, diagnosis: str = "") -> ConnectError:
    if isinstance(cause, ConnectError):
        return cause
    said = str(cause) if isinstance(cause, PlayheadError | OSError) else type(cause).__name__
    more = "" if diagnosis.removeprefix("; ") in said else diagnosis
    wait = cause.retry_after_seconds if isinstance(cause, TransportError) else None
    # The place is often a part of the server's name, or all of it: it is named once.
    place = said.removeprefix("could not connect to ").partition(" ")[0].rstrip(":")
    if said.startswith("could not connect to ") and place in server:
        said = said.replace(place, server, 1)
    elif said.startswith(f"{server} "):
        said = f"could not connect: {said}"
    else:
        said = f"could not connect to {server}: {said}"
    return ConnectError(said + more, retry_after_seconds=wait)
