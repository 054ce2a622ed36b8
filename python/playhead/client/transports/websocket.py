"""A WebSocket server as a transport under the SDK's sessions. Not in any revision of MCP.

One JSON-RPC message is one text frame. Five tasks live while it is open: one reads frames into the inbox,
one writes what the session sends, one sends what is owed in between (pongs, pings, repeated requests), one
watches for silence, one reports the loss. What ends the connection is noted once as `failure`; every request
that waits is answered with it, and the stream to the session ends. Reading never waits for writing.

wsproto does the frames, without trio-websocket around it. That one (0.12.2, by running it) closes the
connection for one message past its limit, where only the request that it answers need fail; keeps every
fragment of a message apart, empty ones too, and measures characters, so that a peer decides how much memory
a message costs; answers pings from inside the reading task, which then waits for a peer that doesn't read;
and logs the URL with its query.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType

import anyio
import httpx2
import mcp_types as types
import trio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage

from playhead.client.transports import messages
from playhead.client.transports.delivery import Received, deliver_all, end_session
from playhead.client.transports.http_answers import place_of
from playhead.client.transports.inbox import Inbox
from playhead.client.transports.one_use import OneUse
from playhead.client.transports.outbox import Outbox
from playhead.client.transports.websocket_compat import Compatibility
from playhead.client.transports.websocket_frames import MessageFramer
from playhead.client.transports.websocket_opening import open_stream, upgrade
from playhead.client.transports.websocket_options import WebSocketOptions, WebSocketStatistics
from playhead.client.transports.websocket_owed import Owed
from playhead.client.transports.websocket_pulse import Pulse
from playhead.client.transports.websocket_wire import ABNORMAL, GOODBYE, TOO_BIG, Wire
from playhead.client.wire import WireFaults
from playhead.errors import (
    ConnectError,
    ConnectionLostError,
    LimitError,
    PlayheadError,
    UsageError,
    WebSocketClosedError,
)
from playhead.limits import DEFAULT_LIMITS, Limits

LAST_WORDS_SECONDS = 0.5
"""How long a connection that can't be written to is read on: why it was closed may still be on the way."""

FLUSH_SECONDS = 0.5
"""How long closing waits for what the session has already sent."""

CLOSE_SECONDS = 1.0
"""How long closing waits for the server's close frame."""

EVENTS_A_TURN = 256
"""Frames that are taken in without letting other tasks run: one read holds 131,072 empty ones."""


class WebSocketTransport:
    """An SDK transport: `async with transport as (read, write)`. Make one with `websocket_transport`.

    Usable once. `failure`, `diagnosis()`, `last_received` and `statistics()` stay readable afterwards.
    """

    def __init__(self, url: str, *, limits: Limits, options: WebSocketOptions) -> None:
        self._url = httpx2.URL(url)
        self._place = place_of(url)
        self._limits = limits
        self._options = options
        self._framer = MessageFramer(max_bytes=limits.message_bytes)
        self._compatibility = Compatibility()
        self._inbox = Inbox(limits, self._framer, self._compatibility)
        self._use = OneUse(
            self._open, again="a WebSocket transport is used once; make another with websocket_transport(...)"
        )
        self._wire: Wire | None = None
        self._subprotocol: str | None = None
        self._lost = trio.Event()
        self._read_ended = trio.Event()
        self._owed = Owed(self._compatibility)
        self._pulse: Pulse | None = None
        self._sent_messages = self._binary_messages = 0
        self._closing = False
        self._listening = True
        self.failure: PlayheadError | None = None
        """Why the connection ended by itself: a `WebSocketClosedError`, another `ConnectionLostError` or a
        `LimitError`. None while it works and after it was closed by its owner."""
        self.last_received: float = 0.0
        """When the last byte came that may belong to something awaited, on trio's clock (`current_time`).
        Pongs, answers to nobody and plain notifications do not count: chatter is no progress."""

    def diagnosis(self) -> str:
        """What is known about the connection, for an error message. Holds foreign text: escape it."""
        parts = [] if self.failure is None else [str(self.failure)]
        received = self._inbox.statistics()
        if received.first_ignored is not None:
            parts.append(
                f"{received.ignored_lines} of its text frames were no messages, the first:"
                f" {received.first_ignored}"
            )
        if self._binary_messages:
            parts.append(
                f"{self._binary_messages} binary messages were ignored (JSON-RPC goes in text frames)"
            )
        return "; ".join(parts)

    def statistics(self) -> WebSocketStatistics:
        """A snapshot."""
        return WebSocketStatistics(
            sent_bytes=0 if self._wire is None else self._wire.sent_bytes,
            sent_messages=self._sent_messages + self._owed.sent_messages,
            pings=0 if self._pulse is None else self._pulse.pings,
            binary_messages=self._binary_messages,
            subprotocol=self._subprotocol,
            received=self._inbox.statistics(),
        )

    def faults(self) -> WireFaults:
        """What came beside the protocol."""
        binary = "a binary message" if self._binary_messages else None
        return self._inbox.faults() + WireFaults(not_messages=self._binary_messages, first=binary)

    async def __aenter__(self) -> tuple[MemoryObjectReceiveStream[Received], Outbox]:
        """Connect.

        Raises:
            AccessDeniedError: HTTP 401 or 403 in place of a WebSocket.
            ConnectError: nobody listens there, TLS failed, or `Limits.connect_seconds` passed; as
                `UpgradeRefusedError` where an HTTP status came in place of a WebSocket.
            UsageError: the headers can't be sent (`ConfigError`: the `auth` needs more than one request).
            ClosedError: this transport was used before.
        """
        return await self._use.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Close: with a close frame, for 1.5 s at most; at once if `error` is a cancellation or Ctrl-C."""
        return await self._use.leave(kind, error, trace)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Received], Outbox]]:
        # Nothing is buffered for the session: what it has not taken stays in the socket.
        deliver, read_stream = anyio.create_memory_object_stream[Received](0)
        write_stream, outgoing = Outbox.create(self._inbox)
        with deliver, read_stream, write_stream, outgoing:
            async with self._connected() as wire, trio.open_nursery() as nursery:
                self._wire = wire
                self.last_received = trio.current_time()
                pulse = self._pulse = Pulse(
                    ping_seconds=self._options.ping_seconds, pong_seconds=self._options.pong_seconds
                )
                written = trio.Event()
                nursery.start_soon(self._read, wire, pulse, deliver)
                nursery.start_soon(self._write, wire, outgoing, deliver, written)
                nursery.start_soon(self._send_owed, wire)
                nursery.start_soon(self._watch, pulse)
                nursery.start_soon(self._report_loss, wire, deliver, outgoing)
                try:
                    yield read_stream, write_stream
                finally:
                    self._closing = True
                    self._listening = False  # read on only for the server's close frame
                    read_stream.close()
                    write_stream.close()
                    if not self._use.quick and not self._lost.is_set():
                        with trio.move_on_after(FLUSH_SECONDS):
                            await written.wait()
                        with trio.move_on_after(CLOSE_SECONDS):
                            await wire.finish(GOODBYE, seconds=CLOSE_SECONDS)
                            await self._read_ended.wait()
                    nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Wire]:
        options = self._options
        auth = options.auth
        if auth is None and self._url.userinfo:
            auth = httpx2.BasicAuth(self._url.username, self._url.password)
        with trio.move_on_after(self._limits.connect_seconds) as scope:
            stream = await open_stream(self._url, verify=options.verify)
            try:
                connection, self._subprotocol = await upgrade(
                    stream,
                    self._url,
                    headers=options.headers,
                    auth=auth,
                    subprotocols=options.subprotocols,
                )
                scope.deadline = float("inf")
                yield Wire(stream, connection)
            finally:
                await trio.aclose_forcefully(stream)
        if scope.cancelled_caught:
            raise ConnectError(
                f"{self._place} did not open a WebSocket in {self._limits.connect_seconds:g} s"
                " (Limits.connect_seconds)"
            )

    # --- the tasks -----------------------------------------------------------------------------------

    async def _read(self, wire: Wire, pulse: Pulse, deliver: MemoryObjectSendStream[Received]) -> None:
        taken = 0
        closed: CloseConnection | None = None
        try:
            # The first bytes may have come with the answer to the upgrade.
            while not self._lost.is_set():
                for event in wire.pending():
                    taken += 1
                    if taken % EVENTS_A_TURN == 0:
                        await trio.lowlevel.checkpoint()
                    if isinstance(event, CloseConnection):
                        closed = event
                        break
                    pulse.deaf = True  # until the session has taken what the frame completes
                    await self._take(event, deliver)
                    pulse.deaf = False
                if closed is not None or not await wire.receive():
                    break
                pulse.hear()
        finally:
            self._read_ended.set()
        self._on_end(wire, closed)
        if closed is not None:
            await wire.finish(closed.code, seconds=LAST_WORDS_SECONDS)

    async def _take(self, event: Event, deliver: MemoryObjectSendStream[Received]) -> None:
        match event:
            case TextMessage() if self._listening:
                self._inbox.feed(event.data.encode())
                if event.message_finished:
                    self._framer.end_message()
                await self._hand_over(deliver)
            case BytesMessage():
                self._binary_messages += event.message_finished
            case Ping():
                self._owed.pong(bytes(event.payload))
            case _:
                pass  # a pong: its bytes were the sign of life

    async def _hand_over(self, deliver: MemoryObjectSendStream[Received]) -> None:
        """Pass on what a piece completes."""
        try:
            while (message := self._inbox.next_message()) is not None:
                self._note_activity()
                await deliver.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._listening = False
        self._note_activity()
        self._owed.look()
        if self._inbox.failure is not None:
            self._listening = False
            self._lose(self._inbox.failure)

    def _note_activity(self) -> None:
        if self._inbox.is_active:
            self.last_received = trio.current_time()

    def _on_end(self, wire: Wire, closed: CloseConnection | None) -> None:
        if closed is None:
            self._lose(self._closed_error(ABNORMAL, "", "ended without a close frame"))
        elif wire.closed_by_peer:
            reason = closed.reason or ""
            said = f" ({reason!r})" if reason else ""
            self._lose(self._closed_error(closed.code, reason, f"was closed by the server{said}"))
        else:
            reason = (closed.reason or "")[:200]
            self._lose(self._closed_error(closed.code, reason, f"was given up: the server sent {reason!r}"))

    def _closed_error(self, code: int, reason: str, how: str) -> WebSocketClosedError:
        return WebSocketClosedError(
            f"the WebSocket to {self._place} {how}, code {int(code)}", code=int(code), reason=reason
        )

    async def _write(
        self,
        wire: Wire,
        outgoing: MemoryObjectReceiveStream[SessionMessage],
        deliver: MemoryObjectSendStream[Received],
        written: trio.Event,
    ) -> None:
        try:
            async for session_message in outgoing:
                message = session_message.message
                encoded = messages.encode(message)
                if isinstance(encoded, UsageError):
                    await self._refuse(message, encoded, deliver)
                    continue
                await wire.send(TextMessage(data=encoded.decode()))
                self._sent_messages += 1
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._on_unwritable()
        finally:
            written.set()

    async def _refuse(
        self, message: types.JSONRPCMessage, error: UsageError, deliver: MemoryObjectSendStream[Received]
    ) -> None:
        answer = self._inbox.fail(message, error) if isinstance(message, types.JSONRPCRequest) else None
        if answer is not None:
            await deliver_all(deliver, [answer])

    async def _on_unwritable(self) -> None:
        # The server's reason may still lie unread in the socket, and is the better one.
        with trio.move_on_after(LAST_WORDS_SECONDS):
            await self._read_ended.wait()
        self._lose(self._closed_error(ABNORMAL, "", "takes no more messages"))

    async def _send_owed(self, wire: Wire) -> None:
        try:
            await self._owed.send_to(wire)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._on_unwritable()

    async def _watch(self, pulse: Pulse) -> None:
        silent_seconds = await pulse.watch(self._owed.ping)
        self._lose(
            ConnectionLostError(
                f"{self._place} sent nothing for {silent_seconds:.0f} s and answered no ping: it is gone, or"
                " too busy to answer"
            )
        )

    def _lose(self, error: PlayheadError) -> None:
        if not self._lost.is_set() and not self._closing:
            self.failure = error
            self._lost.set()

    async def _report_loss(
        self,
        wire: Wire,
        deliver: MemoryObjectSendStream[Received],
        outgoing: MemoryObjectReceiveStream[SessionMessage],
    ) -> None:
        await self._lost.wait()
        self._listening = False
        assert self.failure is not None
        async with trio.open_nursery() as nursery:
            if isinstance(self.failure, LimitError):
                nursery.start_soon(partial(wire.finish, TOO_BIG, seconds=LAST_WORDS_SECONDS))
            await end_session(deliver, self._inbox.fail_awaited(self.failure), outgoing)


def websocket_transport(
    url: str, *, limits: Limits = DEFAULT_LIMITS, options: WebSocketOptions | None = None
) -> WebSocketTransport:
    """A transport to the MCP server at the `ws:` or `wss:` URL `url`.

    Args:
        url: a key in its query stays out of logs and errors; a name and password in it become basic auth.
        limits: `message_bytes`, `json_depth`, `json_values` and `connect_seconds` are used.
        options: headers, credentials, TLS, pings.

    Entering raises `ConnectError` or `AccessDeniedError` where no WebSocket comes about. A request whose
    answer cannot be used ends at once with an `MCPError` that `messages.own_error` turns into ours
    (`ProtocolError`, `LimitError`, `WebSocketClosedError`, `ConnectionLostError`). Leaving, also by
    cancellation, closes the connection.
    """
    return WebSocketTransport(url, limits=limits, options=options or WebSocketOptions())
