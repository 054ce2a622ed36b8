"""One live connection: requests with their deadlines.

A request has no task of its own. The exchange makes the message, the carrier sends it, and the caller waits
on an entry in a table until the carrier delivers the answer.

A deadline runs from the last sign of life of a request: its start, a byte of its answer, or a report of its
progress. So a page over a slow link is late only if nothing arrives any more. Pings, log messages and other
notifications do not count. A second limit, on the total time, stops a peer that sends one byte at a time.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import trio

from playhead.cache import LINK_META
from playhead.client.session.arrivals import Arrivals
from playhead.client.session.elicitation import Handler
from playhead.client.session.handshake import negotiate
from playhead.client.session.read_repeats import ReadRepeats, SendCopy
from playhead.client.session.requests import OnProgress
from playhead.client.session.server_requests import ServerRequests
from playhead.client.session.waiting_request import ProgressReport, WaitingRequest
from playhead.client.transports.carrier import Carrier
from playhead.client.transports.rpc_errors import from_answer, lost_session
from playhead.concurrency import Broadcast, unwrap_exception_group
from playhead.errors import (
    ConnectError,
    ConnectionLostError,
    DeadlineError,
    LimitError,
    PlayheadError,
    TransportError,
)
from playhead.limits import Limits
from playhead.protocol import messages
from playhead.protocol.exchange import (
    Answered,
    Asked,
    Event,
    Exchange,
    Faulted,
    Notified,
    Outgoing,
    Progressed,
    SignOfLife,
    Witness,
)
from playhead.protocol.faults import ProtocolFaults
from playhead.protocol.messages import RpcError
from playhead.protocol.revisions import SERVER_INFO_META, client_capabilities

T = TypeVar("T")

REPORTS_QUEUED: Final = 4
"""Limits the progress reports that wait for a callback, so that a slow one gets the newest."""
COURTESY_SECONDS: Final = 2.0
"""Limits the sending of a message that no caller waits for, such as a cancellation."""

HANDSHAKES_AT_ONCE: Final = 32
"""Limits the handshakes in progress. Further ones wait, and their deadlines start only when they begin.
Without this limit, none of 500 simultaneous handshakes finished in its 10 s. In return, 32 servers that never
answer delay the others by 10 s."""

_HANDSHAKE_SLOTS: Final = trio.lowlevel.RunVar[trio.Semaphore]("playhead_handshake_slots")


@dataclass(frozen=True, slots=True)
class _OpeningStep:
    """A step of opening a connection, for the message if it takes too long."""

    action: str
    limit: str
    """The name of the field of `Limits`."""
    seconds: float


class Connection:
    """One connection, from its opening to its end. Implements the carrier's `Receiver`."""

    def __init__(
        self,
        carrier: Carrier,
        *,
        server: str,
        limits: Limits,
        handlers: Mapping[str, Handler] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        on_notification: Callable[[str, Mapping[str, Any]], None] = lambda _method, _params: None,
        last_asked: Callable[[], float] = lambda: 0.0,
        replace: Callable[[Connection], Awaitable[Connection]] | None = None,
        witness: Witness | None = None,
    ) -> None:
        """
        Args:
            handlers: answer the server's requests, by method, each call in a task of the connection. Other
                requests are refused.
            capabilities: declared to the server; by default those of the `handlers`.
            on_notification: called with each notification; must not block.
            last_asked: returns the last time at which a question to the user was open. Silence is measured
                only after it.
            replace: opens the session's next connection, while this one stays open.
            witness: called with each message.
        """
        self.server = server
        declared = client_capabilities(handlers or {}) if capabilities is None else capabilities
        self.exchange = Exchange(limits, declared, witness=witness)
        self.handshake: Mapping[str, Any] | None = None
        """The raw result of the handshake; None before it, or without one."""
        self._carrier = carrier
        self.limits = limits
        self._server_requests = ServerRequests(
            carrier, self.exchange, handlers or {}, at_once=limits.server_requests
        )
        self._on_notification = on_notification
        self._last_asked = last_asked
        self._waiting: dict[int | str, WaitingRequest] = {}
        self._repeats = ReadRepeats(carrier, self._waiting)
        self._replace = replace
        self._is_retired = False
        """True if the connection ends with its requests in flight; see `retire`."""
        self._wakes_at = math.inf
        """The time until which `_keep_time` sleeps."""
        self._earlier = trio.Event()
        """Set to wake `_keep_time` for a request that may be due before `_wakes_at`."""
        self._failure: PlayheadError | None = None
        self._ended = trio.Event()
        self._nursery: trio.Nursery

    # --- the handshake's result -----------------------------------------------------------------------

    @property
    def protocol_version(self) -> str:
        return self.exchange.revision.name

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The server's capabilities, raw; empty without a handshake."""
        raw = (self.handshake or {}).get("capabilities")
        return raw if isinstance(raw, dict) else {}

    @property
    def server_info(self) -> Mapping[str, Any] | None:
        """The server's own name and version, raw. Optional since 2026-07-28."""
        handshake = self.handshake or {}
        meta = handshake.get("_meta")
        raw = handshake.get("serverInfo") or (meta.get(SERVER_INFO_META) if isinstance(meta, dict) else None)
        return raw if isinstance(raw, dict) else None

    # --- the end of the connection --------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def wait_ended(self) -> str:
        """Wait until the connection has ended, by itself or by `leave`. Return the reason, or "" if
        unknown."""
        await self._ended.wait()
        return self._carrier.diagnosis()

    def leave(self) -> None:
        """Ask the task that holds the connection open to close it. Idempotent."""
        self._ended.set()

    def retire(self) -> None:
        """Call `leave` once the requests in flight have ended, subscriptions excepted. Idempotent."""
        self._is_retired = True
        self._repeats.is_possible = False
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        # Subscriptions and copies of reads may stay silent for ever, so they do not count.
        if self._is_retired and all(each.silent_seconds == math.inf for each in self._waiting.values()):
            self.leave()

    def faults(self) -> ProtocolFaults:
        """Return the protocol faults of the server so far."""
        return self.exchange.faults() + self._carrier.faults()

    def diagnosis(self) -> str:
        """Return the end of an error message: empty, or `; ` and a description of the server."""
        known = self._carrier.diagnosis()
        return f"; {known}" if known else ""

    # --- requests -------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        silent_seconds: float,
        total_seconds: float,
        on_progress: OnProgress | None = None,
        on_link: Callable[[object], None] | None = None,
        arrivals: Arrivals | None = None,
        report: Callable[[ProgressReport], None] | None = None,
        repeats: WaitingRequest | None = None,
        id: str | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the raw result.

        The result is plain JSON, except that long blobs may be views (`messages.plain`). In the result of a
        `resources/read` all of them are; in any other result only a blob that is most of its message is.

        Raises `DeadlineError` if no sign of life arrived for `silent_seconds` or `total_seconds` have passed,
        `ConnectionLostError` or another `TransportError` if the connection failed, `RemoteError` for an error
        answer, `UsageError` for `params` that are not JSON, and the exceptions of `on_progress`. On a
        deadline or cancellation the server is notified, if the revision allows it. `arrivals` is notified of
        the bytes of the answer, `report` of each progress report (ignored with `on_progress`), and `on_link`
        of each link that one names, as it was received (`LINK_META`). `repeats` is the request of which this
        one is a copy.
        """
        if on_progress is not None:

            async def pass_on(report: ProgressReport) -> None:
                await on_progress(*report)

            async with delivering(pass_on) as reports:
                return await self.request(
                    method,
                    params,
                    silent_seconds=silent_seconds,
                    total_seconds=total_seconds,
                    on_link=on_link,
                    arrivals=arrivals,
                    report=reports.send,
                    repeats=repeats,
                    id=id,
                )
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        # A call needs progress reports as signs of life; a page has its bytes.
        reports_progress = report is not None or method == "tools/call"
        outgoing = self.exchange.request(method, params, reports=reports_progress, id=id)
        now = trio.current_time()
        waiting = WaitingRequest(
            outgoing, silent_seconds, total_seconds, now, report, on_link, arrivals, repeats
        )
        self._waiting[outgoing.id] = waiting
        if now + min(silent_seconds, total_seconds, self._repeats.first_step_seconds) < self._wakes_at:
            self._earlier.set()
        try:
            with waiting.scope:
                await self._carrier.request(outgoing, is_repeat=repeats is not None)
                waiting.is_sent = True
                if not waiting.answered.is_set():
                    await waiting.answered.wait()
        except PlayheadError:
            if not waiting.answered.is_set():
                # The request has failed, so the server needs no notification.
                self.exchange.cancel(outgoing.id)
                raise
        finally:
            del self._waiting[outgoing.id]
            # An answered read is given up too if it has copies, to cancel them.
            if not waiting.answered.is_set() or waiting.copies:
                self._give_up(waiting)
            if self._is_retired:
                self._leave_if_idle()
        answer = waiting.answer
        if answer is None:
            raise waiting.failure or self._overdue(waiting)
        if answer.error is not None:
            raise self._refusal(method, answer.error)
        assert answer.result is not None
        if method != "resources/read":
            messages.plain(answer.result, but_main=True)
        return answer.result

    def _give_up(self, waiting: WaitingRequest) -> None:
        """Forget a request, cancel its copies, and notify the server unless it has answered."""
        for copy in waiting.copies:
            copy.cancel()
        outgoing = waiting.outgoing
        data = self.exchange.cancel(outgoing.id)
        if data is None or self._ended.is_set() or waiting.failure is not None:
            return
        if self._carrier.closing_cancels:
            return
        # In a separate task, because the caller may be cancelled and must not wait.
        self._nursery.start_soon(self._tell_cancelled, data, outgoing)

    def _overdue(self, waiting: WaitingRequest) -> DeadlineError:
        seconds = waiting.exceeded_seconds
        kind = "in total" if seconds == waiting.total_seconds else "of silence"
        return DeadlineError(
            f"{self.server} did not answer {waiting.outgoing.method} in {seconds:g} s {kind}; the request"
            " was cancelled"
        )

    def _refusal(self, method: str, error: RpcError) -> PlayheadError:
        # During the handshake the words of a lost session may only mean that the method is unknown.
        is_handshake = method in self.exchange.revision.never_cancelled
        lost = None if is_handshake else lost_session(error, server=self.server)
        return lost or from_answer(error, method=method, server=self.server)

    async def listen(self, id: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Send `subscriptions/listen` with this id, and return its answer, however late. Raises as
        `request`."""
        return await self.request(
            "subscriptions/listen", params, silent_seconds=math.inf, total_seconds=math.inf, id=id
        )

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification. A failure is not reported."""
        await self._carrier.tell(self.exchange.notify(method, params))

    async def _tell_cancelled(self, data: bytes, outgoing: Outgoing) -> None:
        with trio.move_on_after(COURTESY_SECONDS):
            await self._carrier.tell(data, given_up=outgoing)

    # --- what arrives (the carrier's `Receiver`) ------------------------------------------------------

    def take(self, events: Iterable[Event]) -> None:
        for event in events:
            match event:
                case SignOfLife():
                    self._touch(event.id)
                case Answered():
                    waiting = self._waiting[event.id]
                    self._repeats.heard = now = trio.current_time()
                    if waiting.arrivals is not None:
                        waiting.arrivals.note(now)
                    waiting.set_answer(event)
                    if not waiting.is_sent:
                        waiting.scope.cancel()  # ends `Carrier.request`, which is no longer needed
                case Progressed():
                    self._touch(event.id)
                    waiting = self._waiting[event.id]
                    if waiting.report is not None:
                        waiting.report((event.progress, event.total, event.message))
                    if waiting.on_link is not None and LINK_META in event.meta:
                        waiting.on_link(event.meta[LINK_META])
                case Asked():
                    self._start_answering(event)
                case Notified():
                    if event.method == "notifications/cancelled":
                        self._server_requests.cancel(event.params.get("requestId"))
                    self._on_notification(event.method, event.params)
                case Faulted():
                    if event.id is not None:
                        assert isinstance(event.error, PlayheadError)
                        self._waiting[event.id].fail(event.error)

    def _touch(self, id: int | str | None) -> None:
        """Record a sign of life of one request or, if `id` is None, of all."""
        self._repeats.heard = now = trio.current_time()
        for waiting in self._waiting.values() if id is None else (self._waiting.get(id),):
            if waiting is not None:
                waiting.touch(now)

    def _start_answering(self, request: Asked) -> None:
        if self._ended.is_set():
            return
        try:
            self._server_requests.start(request, self._nursery)
        except LimitError as error:
            self.lost(error)

    def lost(self, error: PlayheadError) -> None:
        if self._failure is None:
            self._failure = error
            for waiting in self._waiting.values():
                waiting.fail(error)
        self._ended.set()

    # --- deadlines ------------------------------------------------------------------------------------

    # A request's scope has no deadline, because each byte would have to move it. Instead, one task sleeps
    # until the first request may be overdue. If a byte of its answer has arrived meanwhile, the task sleeps
    # on. Otherwise it cancels the request.

    async def _keep_time(self) -> None:
        """Cancel the requests that are overdue, and take the liveness steps that are due."""
        while True:
            self._earlier = trio.Event()
            last_asked = self._last_asked()
            due_times = [each.due_at(last_asked) for each in self._waiting.values()]
            self._wakes_at = min([self._repeats.next_step_at(), *due_times])
            with trio.CancelScope(deadline=self._wakes_at):
                await self._earlier.wait()
            now, last_asked = trio.current_time(), self._last_asked()
            for waiting in self._waiting.values():
                if waiting.due_at(last_asked) <= now:
                    waiting.expire(now)
                del waiting  # the variable would keep the answer alive while this task sleeps
            if self._repeats.next_step_at() <= now:
                step = self._repeats.next_step(now)
                replace = self._replacement if self._replace is not None else None
                self._nursery.start_soon(self._repeats.take_step, step, self._send_copy, replace)

    async def _send_copy(self, original: WaitingRequest) -> dict[str, Any]:
        """Send a copy of a read, which has no deadline: the original's counts."""
        return await self.request(
            original.outgoing.method,
            original.outgoing.params,
            silent_seconds=math.inf,
            total_seconds=math.inf,
            arrivals=original.arrivals,
            repeats=original,
        )

    async def _replacement(self) -> SendCopy:
        assert self._replace is not None
        return (await self._replace(self))._send_copy

    # --- opening --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connect, without a handshake, and close at the end of the block."""
        with unwrap_exception_group(deep=True):  # the nurseries, the carrier's too, wrap errors of the body
            async with self._carrier.open(self), trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._keep_time)
                try:
                    yield
                finally:
                    self.lost(ConnectionLostError("expected an answer, but the connection was closed"))
                    nursery.cancel_scope.cancel()

    async def hold(
        self,
        *,
        mode: str,
        follow: Callable[[Connection], Awaitable[None]],
        task_status: trio.TaskStatus[Connection],
    ) -> None:
        """Open the connection, agree on a revision, and stay open until the connection ends or `leave` is
        called. Start it with `nursery.start`. Meanwhile the server's own stream is received, and `follow`
        runs.

        Raises `ConnectError` before it has started, and nothing afterwards: a later failure is raised by the
        requests in flight.
        """
        limits, started = self.limits, False
        slots = _handshake_slots()
        await slots.acquire()  # released once the handshake is over, or has failed
        step = _OpeningStep("accept the connection", "connect_seconds", limits.connect_seconds)
        try:
            with trio.CancelScope(deadline=trio.current_time() + step.seconds) as scope:
                async with self.opened():
                    # The connection is open: from now on the limit of the handshake counts.
                    step = _OpeningStep("finish the handshake", "handshake_seconds", limits.handshake_seconds)
                    scope.deadline = trio.current_time() + step.seconds
                    await negotiate(self, mode=mode, seconds=step.seconds)
                    scope.deadline = math.inf
                    started = True
                    slots.release()
                    task_status.started(self)
                    self._nursery.start_soon(self._carrier.listen)
                    self._nursery.start_soon(follow, self)
                    await self._ended.wait()
        except PlayheadError as error:
            if started:
                raise
            raise connect_error(error, self.server, self.diagnosis()) from error
        finally:
            if not started:
                slots.release()
            self.leave()
        if scope.cancelled_caught:
            raise ConnectError(
                f"{self.server} did not {step.action} in {step.seconds:g} s (Limits.{step.limit}): check that"
                f" it is the right server and speaks MCP{self.diagnosis()}"
            ) from DeadlineError(f"{step.limit} have passed")


@asynccontextmanager
async def delivering(
    to: Callable[[T], Awaitable[None]], *, capacity: int = REPORTS_QUEUED
) -> AsyncIterator[Broadcast[T]]:
    """Pass reports to `to` in one task while the body runs, in order.

    One task, because a task per report would fill the memory if the callback is slow and the server reports
    without end; such a callback gets the newest `capacity`. The last report is delivered after the
    body; cancelling drops it. An exception of `to` cancels the body and is raised here.
    """
    reports = Broadcast[T](capacity=capacity)

    async def deliver(newest: trio.MemoryReceiveChannel[T]) -> None:
        async for report in newest:
            await to(report)

    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliver, reports.subscribe())
            yield reports
            reports.close()


def _handshake_slots() -> trio.Semaphore:
    try:
        return _HANDSHAKE_SLOTS.get()
    except LookupError:
        slots = trio.Semaphore(HANDSHAKES_AT_ONCE)
        _HANDSHAKE_SLOTS.set(slots)
        return slots


def connect_error(cause: PlayheadError, server: str, diagnosis: str = "") -> ConnectError:
    """Return the error for a connection that could not be opened because of `cause`."""
    if isinstance(cause, ConnectError):
        return cause
    message = str(cause)
    more = "" if diagnosis.removeprefix("; ") in message else diagnosis
    wait = cause.retry_after_seconds if isinstance(cause, TransportError) else None
    # The server's name often contains the address, so the name replaces the address in the message.
    address = message.removeprefix("could not connect to ").partition(" ")[0].rstrip(":")
    if message.startswith("could not connect to ") and address in server:
        message = message.replace(address, server, 1)
    elif message.startswith(f"{server} "):
        message = f"could not connect: {message}"
    else:
        message = f"could not connect to {server}: {message}"
    return ConnectError(message + more, retry_after_seconds=wait)
