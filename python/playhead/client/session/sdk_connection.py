"""One live connection: a transport, the SDK's session on top of it, and requests with their deadlines.

A deadline runs from the last byte received, not from the request: a page over a slow link is late only when
nothing arrives any more. A second limit on the total keeps a peer that drips one byte at a time from holding
a caller for ever.

The reads of streams and the calls of tools do not pass through the SDK's session, whose machinery costs
several times as much as a page: they have ids of our own on the same connection (`DirectRequests`). They
differ from the session's in nothing that a server or a caller could see. What a transport declines takes the
normal way. Both ways share deadlines, errors and outcomes, and with them this file.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Protocol

import anyio
import httpx2
import trio
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Implementation,
    JSONRPCRequest,
    JSONRPCResponse,
    PaginatedRequestParams,
    Request,
    Result,
    Tool,
)

from playhead._core import __version__
from playhead.client.session.elicitation import Elicitor
from playhead.client.session.list_changed import ToolListChanges
from playhead.client.session.requests import read_request
from playhead.client.session.response_tap import (
    CURRENT_REQUEST,
    Arrivals,
    ResponseTap,
    TappedReader,
    TappedWriter,
    declare_files,
)
from playhead.client.session.sdk_handshake import negotiate, run_in_sdk
from playhead.client.transports.outcomes import (
    BegunAnswer,
    Declined,
    DirectRequests,
    PendingRequest,
    ProgressReport,
    from_answer,
    from_sdk,
    lost_session,
)
from playhead.concurrency import Broadcast, Deadlines, Watched, iter_leaves, unwrap_exception_group
from playhead.errors import ConnectError, ConnectionLostError, DeadlineError, PlayheadError, TransportError
from playhead.limits import Limits
from playhead.protocol import sdk_messages as messages
from playhead.protocol.faults import FaultLog, ProtocolFaults
from playhead.sdk_internals import ProgressFnT, ReadStream, WriteStream, stamped, usable_tools
from playhead.stream.options import ReadPaths
from playhead.stream.strategies import ResourceRequest

Transport = AbstractAsyncContextManager[tuple[ReadStream, WriteStream]]


FIRST_DIRECT_ID: Final = 1_000_000_000
"""Ids of direct requests count from here: the SDK counts from 0, and some servers have ids of 32 bits."""


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
    direct: DirectRequests | None = None
    """None if every request of this transport needs the SDK's session."""


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


HANDSHAKES_AT_ONCE: Final = 32
"""Further ones wait for a place, before their time begins. Of 500 handshakes at once, all took turns and none
was finished when the 10 s of each were over. 32 servers that never answer delay the others by that time."""

_PLACES: Final = trio.lowlevel.RunVar[trio.Semaphore]("playhead_handshake_places")

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
        self._direct = opened.direct
        self._server = server
        self._elicitor = elicitor
        self.deadlines = Deadlines()
        self._next_id = FIRST_DIRECT_ID

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

        It is plain JSON, apart from a blob that is most of its message, which may be a view
        (`messages.plain`).

        Raises `DeadlineError` if no byte arrived for `silent_seconds` or `total_seconds` have passed,
        `ConnectionLostError` or another `TransportError` if the transport failed, `RemoteError` for an error
        answer, and whatever `on_progress` raises. On a deadline or cancellation, `notifications/cancelled` is
        sent before this returns (or the POST is closed, in revisions that say so). `arrivals` is notified of
        the bytes of the answer.
        """
        method: str = request.method
        direct = self._direct
        async with nullcontext() if on_progress is None else reporting(on_progress) as reports:
            report = None if reports is None else reports.send
            result: dict[str, Any] | Declined = Declined(reason="not a tool call")
            if method == "tools/call" and direct is not None:
                params = request.model_dump(by_alias=True, mode="json", exclude_none=True)["params"]
                result = await self._send_directly(
                    direct,
                    method,
                    params,
                    silent_seconds=silent_seconds,
                    total_seconds=total_seconds,
                    arrivals=arrivals,
                    report=report,
                )
            if isinstance(result, Declined):
                result = await self._send_in_session(
                    request,
                    silent_seconds=silent_seconds,
                    total_seconds=total_seconds,
                    arrivals=arrivals,
                    report=report,
                    begun=result.begun,
                )
        return messages.plain(result, but_main=True)

    async def read(
        self,
        request: ResourceRequest,
        *,
        silent_seconds: float,
        total_seconds: float,
        arrivals: Arrivals,
        paths: ReadPaths,
    ) -> dict[str, Any]:
        """Send one `resources/read` of a stream, directly if the transport can.

        As `request`, but the result's long blobs may be views of the message (`messages.parse_message`).
        """
        paths.direct += 1
        answer = await self._read_directly(
            request, silent_seconds=silent_seconds, total_seconds=total_seconds, arrivals=arrivals
        )
        if not isinstance(answer, Declined):
            return answer
        paths.direct -= 1
        paths.session += 1
        paths.fallback = paths.fallback or answer.reason
        return await self._send_in_session(
            read_request(request),
            silent_seconds=silent_seconds,
            total_seconds=total_seconds,
            arrivals=arrivals,
            report=None,
        )

    async def _read_directly(
        self, request: ResourceRequest, *, silent_seconds: float, total_seconds: float, arrivals: Arrivals
    ) -> dict[str, Any] | Declined:
        if self._direct is None:
            return Declined(reason="this transport has no way past the SDK's session")
        return await self._send_directly(
            self._direct,
            "resources/read",
            request.params(),
            silent_seconds=silent_seconds,
            total_seconds=total_seconds,
            arrivals=arrivals,
            report=None,  # its bytes are its progress
        )

    async def _send_directly(
        self,
        direct: DirectRequests,
        method: str,
        params: Mapping[str, Any],
        *,
        silent_seconds: float,
        total_seconds: float,
        arrivals: Arrivals | None,
        report: Callable[[ProgressReport], None] | None,
    ) -> dict[str, Any] | Declined:
        stamped_params, headers = stamped(self.session, method, params)
        declare_files(method, stamped_params)
        self._next_id += 1
        if method == "tools/call":  # each report shows that the server is at work
            stamped_params.setdefault("_meta", {})["progressToken"] = self._next_id
        message = JSONRPCRequest(jsonrpc="2.0", id=self._next_id, method=method, params=stamped_params)
        pending = PendingRequest(method, request_id=message.id, report=report)
        with (
            self._tap.tracked(pending, message.id),
            self._watching(
                pending, arrivals, silent_seconds=silent_seconds, total_seconds=total_seconds
            ) as watched,
        ):
            answer = await direct.send(message, headers=headers, pending=pending)
        if watched.spent_seconds is not None:
            raise self._overdue(method, watched.spent_seconds, total_seconds=total_seconds)
        if isinstance(answer, Declined):
            return answer
        self._tap.note_type(pending, answer)
        if isinstance(answer, JSONRPCResponse):
            return answer.result
        if pending.failure is None:
            self._tap.note_error(pending, answer)
        return self._outcome(pending)

    async def _send_in_session(
        self,
        request: Request[Any, Any],
        *,
        silent_seconds: float,
        total_seconds: float,
        arrivals: Arrivals | None,
        report: Callable[[ProgressReport], None] | None,
        begun: BegunAnswer | None = None,
    ) -> dict[str, Any]:
        """Send `request` through the SDK's session; with `begun`, read the answer to it there."""
        method: str = request.method
        made_up: MCPError | None = None
        with self._tap.pending(method) as pending, self._reading_on(pending, begun):
            pending.report = report
            with self._watching(
                pending,
                arrivals,
                silent_seconds=silent_seconds,
                total_seconds=total_seconds,
                since=None if begun is None else begun.sent_at,
            ) as watched:
                try:
                    await self.session.send_request(
                        request,
                        Result,
                        progress_callback=pending.progressed if method == "tools/call" else None,
                    )
                except MCPError as error:
                    made_up = error
                finally:
                    if begun is not None:
                        await begun.abandon()
            if pending.result is None and pending.failure is None and pending.answer_error is None:
                if made_up is not None:
                    raise from_sdk(
                        made_up, method=method, server=self._server, diagnosis=self._opened.diagnosis()
                    ) from None
                if watched.spent_seconds is not None:
                    raise self._overdue(method, watched.spent_seconds, total_seconds=total_seconds)
            return self._outcome(pending)

    @contextmanager
    def _reading_on(self, pending: PendingRequest, begun: BegunAnswer | None) -> Iterator[None]:
        if begun is None:
            yield
            return
        pending.begun, pending.touched = begun, trio.current_time()
        with self._tap.tracked(pending, begun.request_id):
            yield

    @contextmanager
    def _watching(
        self,
        pending: PendingRequest,
        arrivals: Arrivals | None,
        *,
        silent_seconds: float,
        total_seconds: float,
        since: float | None = None,
    ) -> Iterator[Watched]:
        """Hold `pending` to its deadline, and let `arrivals` see the bytes of its answer."""

        def last_received() -> float:
            return max(pending.touched, self._opened.last_received())

        def last_activity() -> float:
            return max(last_received(), self._elicitor.last_asked if self._elicitor is not None else 0.0)

        with (
            nullcontext() if arrivals is None else arrivals.watching(last_received),
            self.deadlines.within(
                silent_seconds=silent_seconds,
                total_seconds=total_seconds,
                last_received=last_activity,
                since=since,
            ) as watched,
        ):
            yield watched

    def _outcome(self, pending: PendingRequest) -> dict[str, Any]:
        """Return the result, or raise the error that stands in its place."""
        if pending.result is not None:
            return pending.result
        if pending.failure is not None:
            raise pending.failure
        if pending.answer_error is not None:
            if (lost := lost_session(pending.answer_error, server=self._server)) is not None:
                raise lost
            raise from_answer(pending.answer_error, method=pending.method, server=self._server)
        raise ConnectionLostError(f"{self._server} gave no answer to {pending.method}")

    def _overdue(self, method: str, spent_seconds: float, *, total_seconds: float) -> DeadlineError:
        ran_out = "in total" if spent_seconds == total_seconds else "of silence"
        return DeadlineError(
            f"{self._server} did not answer {method} in {spent_seconds:g} s {ran_out}; the request was"
            " cancelled"
        )

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
async def reporting(on_progress: ProgressFnT) -> AsyncIterator[Broadcast[ProgressReport]]:
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
            nursery.start_soon(deliver, reports.subscribe(), on_progress)
            yield reports
            reports.close()


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

    places = _handshake_places()
    await places.acquire()
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
                places.release()
                connection = Connection(
                    session=session, tap=tap, opened=opened, server=factory.server, elicitor=elicitor
                )
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(connection.deadlines.run)
                    nursery.start_soon(_follow, changes, session, renewed)
                    task_status.started(connection)
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
            if not started:
                places.release()
            tap.ended.set()
            fault_log.ended(faults)
    if scope.cancelled_caught and not started:
        raise ConnectError(
            f"{factory.server} did not finish the {phase} in {allowed:g} s (Limits.{phase}_seconds):"
            f" check that it is the right server and speaks MCP{opened.diagnosis()}"
        ) from (DeadlineError("the handshake took too long") if phase == "handshake" else None)


def _handshake_places() -> trio.Semaphore:
    try:
        return _PLACES.get()
    except LookupError:
        places = trio.Semaphore(HANDSHAKES_AT_ONCE)
        _PLACES.set(places)
        return places


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
