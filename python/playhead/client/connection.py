"""One live connection: a transport, the SDK's session over it, and the requests sent through them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import anyio
import httpx2
import trio
from mcp.client.session import ClientSession
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.dispatcher import ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import Implementation, ListToolsResult, PaginatedRequestParams, Request, Result, Tool
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from playhead._core import __version__
from playhead.client.changes import ToolChanges
from playhead.client.deadline import run_until_silent
from playhead.client.elicitation import Asker
from playhead.client.failures import from_answer, from_sdk
from playhead.client.groups import leaves
from playhead.client.handshake import ask, negotiate
from playhead.client.link import CURRENT, Link, LinkedReader, LinkedWriter
from playhead.client.progress import ProgressRelay
from playhead.client.wire import WireFaults, WireLog
from playhead.errors import ConnectError, ConnectionLostError, DeadlineError, PlayheadError
from playhead.limits import Limits

Transport = AbstractAsyncContextManager[
    tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A transport about to be entered, and what can be asked of it."""

    transport: Transport
    last_received: Callable[[], float] = lambda: 0.0
    """When the last byte of any kind came, on trio's clock. 0.0 where only answers tell."""
    diagnosis: Callable[[], str] = lambda: ""
    """What the server left behind (exit status, the end of its stderr), for error messages."""
    faults: Callable[[], WireFaults] = WireFaults
    """What came beside the protocol and was dropped before it reached the session."""


class Opener(Protocol):
    """Makes a fresh transport each time it is called: for the first connection and for each after it."""

    @property
    def server(self) -> str:
        """The server in a message: its name, and where it is, without secrets."""
        ...

    @property
    def is_process(self) -> bool: ...

    @property
    def authorize(self) -> Callable[[], Awaitable[None]] | None:
        """Asks a person to allow the access, where that is how it is had; raises a `PlayheadError`."""
        ...

    def __call__(self, link: Link) -> Opened: ...


ENDINGS = (PlayheadError, OSError, httpx2.HTTPError, anyio.BrokenResourceError, anyio.ClosedResourceError)
"""How a connection may end by itself. anyio's two are the SDK's: answers that still come while it is left."""


class Connection:
    """Requests over one session, each with its own deadline and its own error."""

    def __init__(
        self,
        *,
        session: ClientSession,
        link: Link,
        opened: Opened,
        server: str,
        asker: Asker | None = None,
    ) -> None:
        self.session = session
        self._link = link
        self._opened = opened
        self._server = server
        self._asker = asker

    @property
    def handshake(self) -> Mapping[str, Any] | None:
        """The result that the handshake ended with, as it came."""
        return self._link.handshake

    @property
    def ended(self) -> bool:
        return self._link.ended.is_set()

    async def wait_ended(self) -> str:
        """Wait until the connection has ended, by itself or left; gives what is known of why."""
        await self._link.ended.wait()
        return self._opened.diagnosis().removeprefix("; ")

    def leave(self) -> None:
        """Ask the task that holds the transport open to close it. Idempotent."""
        self._link.ended.set()

    async def request(
        self,
        request: Request[Any, Any],
        *,
        silent_seconds: float,
        total_seconds: float,
        on_progress: ProgressFnT | None = None,
    ) -> dict[str, Any]:
        """Send `request` and give its result as it came, unvalidated.

        Raises `DeadlineError` when no byte came for `silent_seconds` (or `total_seconds` passed),
        `ConnectionLostError` or another `TransportError` when the transport failed, `RemoteError` for an
        error answer, and what `on_progress` raises. On a deadline and on cancellation
        `notifications/cancelled` goes out (or the POST is closed, where the revision says so) before this
        returns.
        """
        method: str = request.method
        with self._link.ticket(method) as ticket:
            made_up: MCPError | None = None

            relay = ProgressRelay(on_progress) if on_progress is not None else None

            async def progressed(progress: float, total: float | None, message: str | None) -> None:
                ticket.touched = trio.current_time()
                if relay is not None:
                    relay.put((progress, total, message))

            # Reads don't ask for progress: their bytes are it.
            watching = progressed if method == "tools/call" else None

            async def send() -> None:
                nonlocal made_up
                try:
                    async with relay.telling() if relay is not None else nullcontext():
                        await self.session.send_request(request, Result, progress_callback=watching)
                except MCPError as error:
                    made_up = error

            spent = await run_until_silent(
                send,
                silent_seconds=silent_seconds,
                total_seconds=total_seconds,
                last_received=lambda: max(
                    ticket.touched,
                    self._opened.last_received(),
                    self._asker.last_asked if self._asker is not None else 0.0,
                ),
            )
            if ticket.result is not None:
                return ticket.result
            if ticket.failure is not None:
                raise ticket.failure
            if ticket.answer_error is not None:
                raise from_answer(ticket.answer_error, method=method, server=self._server)
            if made_up is not None:
                raise from_sdk(
                    made_up, method=method, server=self._server, diagnosis=self._opened.diagnosis()
                ) from None
            if spent is not None:
                ran_out = "in all" if spent == total_seconds else "without a byte"
                raise DeadlineError(
                    f"{self._server} did not answer {method} in {spent:g} s {ran_out}; it was cancelled"
                )
            raise ConnectionLostError(f"{self._server} gave no answer to {method}")

    def usable(self, tools: list[Tool]) -> list[Tool]:
        """`tools` without those whose parameters can't be sent, with the rest's headers learnt.

        MCP 2026-07-28, "Streamable HTTP", headers: a client must leave out a tool whose `x-mcp-header` is
        none, and mirror the others' parameters. The SDK does both where it reads the listing itself; there
        is no public way to give it one.
        """
        if self.session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return tools
        listing = ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")
        return self.session._absorb_tool_listing(listing, complete=True).tools

    async def learn_headers(self, limits: Limits) -> None:
        """Let the SDK list the tools: it keeps which of their parameters belong into HTTP headers.

        Raises `DeadlineError` after `Limits.tool_seconds` for the whole listing, else as `request`.
        """

        async def listed() -> None:
            cursor: str | None = None
            for _page in range(limits.listing_pages):
                page = await self.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
                cursor = page.next_cursor
                if cursor is None:
                    return

        with trio.move_on_after(limits.tool_seconds):
            await ask(listed, self._link, method="tools/list", server=self._server)
            return
        raise DeadlineError(
            f"{self._server} did not list its tools in {limits.tool_seconds:g} s; a call to one needs"
            " the list (Limits.tool_seconds)"
        )


async def hold(
    opener: Opener,
    *,
    limits: Limits,
    mode: str,
    changes: ToolChanges,
    asker: Asker | None,
    wire: WireLog,
    renewed: bool,
    task_status: trio.TaskStatus[Connection],
) -> None:
    """Keep one connection open until it ends or is left. To be started with `nursery.start`.

    `changes` is told of the server's notifications, `wire` of what it sends beside the protocol; `renewed`
    says that it is not the first connection.

    Raises `ConnectError` before it has started; afterwards nothing (what breaks later reaches the callers
    through their requests).
    """
    link = Link(limits, heard=changes.heard)
    opened = opener(link)
    started = False

    def faults() -> WireFaults:
        return opened.faults() + link.faults()

    wire.opened(faults)
    phase, allowed = "connect", limits.connect_seconds
    with trio.CancelScope(deadline=trio.current_time() + allowed) as scope:
        try:
            async with (
                opened.transport as (read, write),
                ClientSession(
                    LinkedReader(read, link),
                    LinkedWriter(write, link),
                    client_info=_client_info(),
                    elicitation_callback=asker,
                ) as session,
            ):
                phase, allowed = "handshake", limits.handshake_seconds
                scope.deadline = trio.current_time() + allowed
                await negotiate(
                    session, link, mode=mode, seconds=limits.handshake_seconds, server=opener.server
                )
                scope.deadline = math.inf
                started = True
                task_status.started(
                    Connection(session=session, link=link, opened=opened, server=opener.server, asker=asker)
                )
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_follow, changes, session, renewed)
                    await link.ended.wait()
                    nursery.cancel_scope.cancel()
        except (*ENDINGS, ExceptionGroup) as error:
            causes = list(leaves(error))
            if not all(isinstance(cause, ENDINGS) for cause in causes):
                raise
            cause = causes[0]
            if not started:
                raise connect_error(cause, opener.server, opened.diagnosis()) from cause
        finally:
            link.ended.set()
            wire.ended(faults)
    if scope.cancelled_caught and not started:
        raise ConnectError(
            f"{opener.server} did not finish the {phase} in {allowed:g} s{opened.diagnosis()};"
            f" is it the right server, does it speak MCP, and does it need longer than --timeout"
            f" (Limits.{phase}_seconds)?"
        )


async def _follow(changes: ToolChanges, session: ClientSession, renewed: bool) -> None:
    # Who asked for this connection may have done so from inside a request; its ticket is not ours.
    CURRENT.set(None)
    await changes.follow(session, renewed=renewed)


def connect_error(cause: BaseException, server: str, diagnosis: str = "") -> ConnectError:
    if isinstance(cause, ConnectError):
        return cause
    said = str(cause) if isinstance(cause, PlayheadError | OSError) else type(cause).__name__
    more = "" if diagnosis.removeprefix("; ") in said else diagnosis
    return ConnectError(f"could not connect to {server}: {said}{more}")


def _client_info() -> Implementation:
    return Implementation(name="playhead", version=__version__)
