"""A WebSocket server as a transport under the SDK's sessions. Not in any revision of MCP.

One JSON-RPC message is one text frame. Five tasks run while it is open: one reads frames into the inbox, one
writes the session's messages, one sends control frames (pongs, pings, repeated requests), one watches for
silence, one reports the loss.

wsproto handles the frames, without trio-websocket around it. Measured with 0.12.2, trio-websocket closes the
connection for one message past its limit, although only the request that it answers need fail; keeps every
fragment of a message apart, even empty ones, and counts characters, so that a peer decides how much memory a
message costs; answers pings from the reading task, which then waits for a peer that doesn't read; and logs
the URL with its query.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import httpx2
import trio
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage

from playhead.client.transports.http_errors import place_of
from playhead.client.transports.pump import PumpedTransport, SessionStreams
from playhead.client.transports.websocket_opening import (
    WebSocketOptions,
    WebSocketStatistics,
    open_stream,
    upgrade,
)
from playhead.client.transports.websocket_wire import (
    ABNORMAL,
    EVENTS_PER_TURN,
    GOODBYE,
    TOO_BIG,
    Compatibility,
    ControlFrames,
    FrameStream,
    Keepalive,
    LongText,
    MessageFramer,
)
from playhead.errors import (
    ConnectError,
    ConnectionLostError,
    LimitError,
    WebSocketClosedError,
)
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.faults import ProtocolFaults
from playhead.protocol.sdk_inbox import Inbox

LAST_WORDS_SECONDS = 0.5
"""Limit for reading on a connection that can't be written to: the close reason may be on the way."""

FLUSH_SECONDS = 0.5
"""Limit for writing what the session has already sent, while closing."""

CLOSE_SECONDS = 1.0
"""Limit for waiting for the server's close frame."""


class WebSocketTransport(PumpedTransport):
    """An SDK transport over a WebSocket. Make one with `websocket_transport`.

    `diagnosis()` and `statistics()` stay readable afterwards too. `failure` may be a `WebSocketClosedError`.
    """

    def __init__(self, url: str, *, limits: Limits, options: WebSocketOptions) -> None:
        self._url = httpx2.URL(url)
        self._place = place_of(url)
        self._limits = limits
        self._options = options
        self._framer = MessageFramer(max_bytes=limits.message_bytes)
        self._compatibility = Compatibility()
        super().__init__(
            Inbox(limits, self._framer, self._compatibility),
            self._open,
            again="a WebSocket transport is used once; make another with websocket_transport(...)",
        )
        self._frames: FrameStream | None = None
        self._subprotocol: str | None = None
        self._read_ended = trio.Event()
        self._control = ControlFrames(self._compatibility)
        self._keepalive: Keepalive | None = None
        self._binary_messages = 0

    def diagnosis(self) -> str:
        """A description of the connection for error messages. Quotes the server: escape it."""
        parts = [] if self.failure is None else [str(self.failure)]
        received = self._inbox.statistics()
        if received.first_ignored is not None:
            parts.append(
                f"{received.ignored_lines} of its text frames were not JSON-RPC messages, the first:"
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
            sent_bytes=0 if self._frames is None else self._frames.sent_bytes,
            sent_messages=self._sent_messages + self._control.sent_messages,
            pings=0 if self._keepalive is None else self._keepalive.pings,
            binary_messages=self._binary_messages,
            subprotocol=self._subprotocol,
            received=self._inbox.statistics(),
        )

    def faults(self) -> ProtocolFaults:
        """Protocol faults received so far, binary messages included."""
        binary = "a binary message" if self._binary_messages else None
        frames = ProtocolFaults(not_messages=self._binary_messages, first=binary)
        return self._inbox.faults() + self._compatibility.faults() + frames

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[SessionStreams]:
        async with self._connected() as frames:
            self._frames = frames
            with self._session_streams() as (read_stream, write_stream):
                async with trio.open_nursery() as nursery:
                    keepalive = self._keepalive = Keepalive(
                        ping_seconds=self._options.ping_seconds, pong_seconds=self._options.pong_seconds
                    )
                    nursery.start_soon(self._read, frames, keepalive)
                    nursery.start_soon(self._write, partial(self._send, frames), self._on_unwritable)
                    nursery.start_soon(self._send_control, frames)
                    nursery.start_soon(self._watch, keepalive)
                    nursery.start_soon(self._report_loss, frames)
                    try:
                        yield read_stream, write_stream
                    finally:
                        self._closing = True
                        self._listening = False  # read on only for the server's close frame
                        read_stream.close()
                        write_stream.close()
                        if not self._use.quick and not self._lost.is_set():
                            with trio.move_on_after(FLUSH_SECONDS):
                                await self._written.wait()
                            with trio.move_on_after(CLOSE_SECONDS):
                                await frames.finish(GOODBYE, seconds=CLOSE_SECONDS)
                                await self._read_ended.wait()
                        nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[FrameStream]:
        options = self._options
        auth = options.auth
        if auth is None and self._url.userinfo:
            auth = httpx2.BasicAuth(self._url.username, self._url.password)
        with trio.move_on_after(self._limits.connect_seconds) as scope:
            stream = await open_stream(self._url, verify=options.verify)
            try:
                connection, self._subprotocol, received = await upgrade(
                    stream,
                    self._url,
                    headers=options.headers,
                    auth=auth,
                    subprotocols=options.subprotocols,
                )
                scope.deadline = float("inf")
                yield FrameStream(stream, connection, received)
            finally:
                await trio.aclose_forcefully(stream)
        if scope.cancelled_caught:
            raise ConnectError(
                f"{self._place} did not open a WebSocket in {self._limits.connect_seconds:g} s"
                " (Limits.connect_seconds)"
            )

    # --- the tasks -----------------------------------------------------------------------------------

    async def _read(self, frames: FrameStream, keepalive: Keepalive) -> None:
        taken = 0
        closed: CloseConnection | None = None
        try:
            # The first bytes may have arrived with the answer to the upgrade.
            while not self._lost.is_set():
                for event in frames.pending():
                    taken += 1
                    if taken % EVENTS_PER_TURN == 0:
                        await trio.lowlevel.checkpoint()
                    if isinstance(event, CloseConnection):
                        closed = event
                        break
                    keepalive.paused = (
                        True  # until the session has received the messages that the frame completes
                    )
                    await self._take(event)
                    keepalive.paused = False
                if closed is not None or not await frames.receive():
                    break
                keepalive.note_received()
        finally:
            self._read_ended.set()
        self._on_end(frames, closed)
        if closed is not None:
            await frames.finish(closed.code, seconds=LAST_WORDS_SECONDS)

    async def _take(self, event: Event | LongText) -> None:
        match event:
            case TextMessage() | LongText() if self._listening:
                self._inbox.feed(event.data if isinstance(event, LongText) else event.data.encode())
                if event.message_finished:
                    self._framer.end_message()
                await self._deliver_messages()
                self._control.notify()
            case BytesMessage():
                self._binary_messages += event.message_finished
            case Ping():
                self._control.pong(bytes(event.payload))
            case _:
                pass  # a pong, whose bytes have been counted

    def _on_end(self, frames: FrameStream, closed: CloseConnection | None) -> None:
        if closed is None:
            self._lose(self._closed_error(ABNORMAL, "", "ended without a close frame"))
        elif frames.closed_by_peer:
            reason = closed.reason or ""
            said = f" ({reason!r})" if reason else ""
            self._lose(self._closed_error(closed.code, reason, f"was closed by the server{said}"))
        else:
            reason = (closed.reason or "")[:200]
            self._lose(
                self._closed_error(closed.code, reason, f"was closed by playhead: the server sent {reason!r}")
            )

    def _closed_error(self, code: int, reason: str, how: str) -> WebSocketClosedError:
        return WebSocketClosedError(
            f"the WebSocket to {self._place} {how}, code {int(code)}", code=int(code), reason=reason
        )

    async def _send(self, frames: FrameStream, message: bytes) -> None:
        await frames.send(TextMessage(data=message.decode()))

    def _write_at_once(self, message: bytes) -> bool:
        if self._frames is None:
            return False
        sent = self._frames.send_at_once(TextMessage(data=message.decode()))
        if sent is None:
            self._control.flush()
        return sent is not False

    async def _on_unwritable(self) -> None:
        # The server's close reason may still be unread in the socket, and is the better one.
        with trio.move_on_after(LAST_WORDS_SECONDS):
            await self._read_ended.wait()
        self._lose(self._closed_error(ABNORMAL, "", "accepts no more messages"))

    async def _send_control(self, frames: FrameStream) -> None:
        try:
            await self._control.run(frames)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await self._on_unwritable()

    async def _watch(self, keepalive: Keepalive) -> None:
        silent_seconds = await keepalive.watch(self._control.ping)
        self._lose(
            ConnectionLostError(
                f"{self._place} sent nothing for {silent_seconds:.0f} s, not even a pong: it is gone, or too"
                " busy to answer"
            )
        )

    async def _report_loss(self, frames: FrameStream) -> None:
        await self._lost.wait()
        self._listening = False
        assert self.failure is not None
        async with trio.open_nursery() as nursery:
            if isinstance(self.failure, LimitError):
                nursery.start_soon(partial(frames.finish, TOO_BIG, seconds=LAST_WORDS_SECONDS))
            await self._end_session(self.failure)


def websocket_transport(
    url: str, *, limits: Limits = DEFAULT_LIMITS, options: WebSocketOptions | None = None
) -> WebSocketTransport:
    """Make a transport to the MCP server at the `ws:` or `wss:` URL `url`.

    Args:
        url: a key in its query stays out of logs and errors; user name and password become basic auth.
        limits: `message_bytes`, `json_depth`, `json_values` and `connect_seconds` are used.
        options: headers, credentials, TLS, pings.

    Entering raises `ConnectError` if the server can't be reached, TLS failed or `Limits.connect_seconds` have
    passed, its subclass `UpgradeRefusedError` for an HTTP status, `AccessDeniedError` for 401 and 403,
    `UsageError` for headers that can't be sent, and `ConfigError` if `auth` needs more than one request.

    A request whose answer cannot be used ends at once with an `MCPError` that `messages.own_error` turns into
    ours (`ProtocolError`, `LimitError`, `WebSocketClosedError`, `ConnectionLostError`). Leaving closes the
    connection with a close frame, in 1.5 s at most; a cancellation closes it at once.
    """
    return WebSocketTransport(url, limits=limits, options=options or WebSocketOptions())
