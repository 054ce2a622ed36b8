"""A WebSocket server as a carrier. Not in any revision of MCP.

One JSON-RPC message is one text frame. Two tasks run while it is open. One reads frames into the inbox and
watches for silence; the other writes control frames, and the bytes that the socket did not take at once.

`FrameStream` handles the frames with wsproto. trio-websocket (0.12.2) is not used, because it closes the
connection for one message past its limit, although only one request need fail; stores each fragment of a
message separately, even empty ones, and counts characters, so that a peer decides how much memory a message
takes; answers pings from the reading task, which then waits for a peer that doesn't read; and logs the URL
with its query.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

import trio
from wsproto.connection import ConnectionType
from wsproto.frame_protocol import CloseReason

from playhead.client.transports.carrier import Carrier, Receiver
from playhead.client.transports.http_errors import place_of
from playhead.client.transports.websocket_compatibility import Compatibility
from playhead.client.transports.websocket_opening import (
    RECEIVE_BYTES,
    WebSocketOptions,
    opened,
)
from playhead.errors import ConnectionLostError, PlayheadError, WebSocketClosedError
from playhead.limits import DEFAULT_LIMITS, Limits
from playhead.protocol.exchange import Outgoing
from playhead.protocol.faults import ProtocolFaults
from playhead.protocol.frame_stream import Closed, End, FrameStream
from playhead.protocol.framing import ENDLESS_FACTOR
from playhead.protocol.inbox import Inbox

CLOSE_SECONDS: Final = 1.0
"""Limits the closing handshake: the sending of pending bytes and of our close frame, and the wait for the
server's."""
LAST_WORDS_SECONDS: Final = 0.5
"""Limits the wait for the peer's close frame if nothing can be written any more, and the writing of our close
frame if nothing can be read any more."""


@dataclass(slots=True, eq=False)
class _Unsent:
    """A frame, or the rest of one, that the socket did not take at once."""

    data: bytes
    is_begun: bool
    """True if a part of the frame was sent, so that it must be completed."""
    sent: trio.Event = field(default_factory=trio.Event)
    """Set once it was sent, or cannot be sent any more."""


class WebSocketCarrier(Carrier):
    """One connection to the MCP server at a `ws:` or `wss:` URL. `diagnosis()` stays readable afterwards."""

    repeat_via = "connection"

    def __init__(
        self, url: str, *, limits: Limits = DEFAULT_LIMITS, options: WebSocketOptions | None = None
    ) -> None:
        """
        Args:
            url: a key in its query stays out of logs and errors; user name and password become basic auth.
            limits: `message_bytes`, `json_depth`, `json_values` and `connect_seconds` are used.
            options: headers, credentials, TLS, pings.
        """
        self._url = url
        self._place = place_of(url)
        self._limits = limits
        self._options = options or WebSocketOptions()
        self.subprotocol: str | None = None
        """The server's choice."""
        self._receiver: Receiver
        self._compatibility: Compatibility
        self._stream: trio.abc.Stream
        self._frames: FrameStream | None = None
        self._unsent: deque[_Unsent] = deque()
        self._is_writing = False
        self._wakeup = trio.Event()
        self._withdrawn: set[int | str] = set()
        """The requests that were cancelled before any byte was sent, so the server does not know them."""
        self._ponged = trio.lowlevel.ParkingLot()
        self._read_ended = trio.Event()
        self._is_leaving = False
        self._failure: PlayheadError | None = None

    def diagnosis(self) -> str:
        """Return a description of the connection for error messages. It quotes the server, so escape it."""
        if self._frames is None:
            return ""
        parts = [] if self._failure is None else [str(self._failure)]
        received = self._receiver.exchange.faults()
        if received.first is not None:
            parts.append(
                f"{received.not_messages} of its text frames were not JSON-RPC messages, the first:"
                f" {received.first}"
            )
        if self._frames.binary_messages:
            parts.append(
                f"{self._frames.binary_messages} binary messages were ignored (JSON-RPC goes in text frames)"
            )
        return "; ".join(parts)

    def faults(self) -> ProtocolFaults:
        """Return the number of binary messages as faults."""
        if self._frames is None or not (binary := self._frames.binary_messages):
            return ProtocolFaults()
        return ProtocolFaults(not_messages=binary, first="a binary message")

    @asynccontextmanager
    async def open(self, receiver: Receiver) -> AsyncIterator[None]:
        """Connect, and close at the end of the block: with a close frame, within `CLOSE_SECONDS`, or at once
        if it is cancelled. Raises as `websocket_opening.opened`."""
        options = self._options
        async with opened(self._url, self._limits, options) as (stream, self.subprotocol, received):
            self._receiver, self._stream = receiver, stream
            self._compatibility = Compatibility(receiver.exchange)
            frames = self._frames = FrameStream(
                ConnectionType.CLIENT,
                max_bytes=self._limits.message_bytes,
                allowed_bytes=ENDLESS_FACTOR * self._limits.message_bytes,
                ping_seconds=options.ping_seconds,
                silence_seconds=options.ping_seconds + options.pong_seconds,
                now=trio.current_time(),
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, receiver, frames, received or None)
                nursery.start_soon(self._write, frames)
                is_cancelled = True
                try:
                    yield
                    is_cancelled = False
                except Exception:  # every error but a cancellation, which is a BaseException
                    is_cancelled = False
                    raise
                finally:
                    self._is_leaving = True
                    if not is_cancelled:
                        await self._close(frames)
                    nursery.cancel_scope.cancel()

    # --- out -----------------------------------------------------------------------------------------

    async def request(self, outgoing: Outgoing, *, is_repeat: bool = False) -> None:
        await self._send(outgoing.data, outgoing)

    async def tell(self, data: bytes, *, given_up: Outgoing | None = None) -> None:
        if given_up is not None and given_up.id in self._withdrawn:
            self._withdrawn.discard(given_up.id)
            return
        with suppress(PlayheadError):
            await self._send(data)

    async def ping(self) -> bool:
        """Send a ping. Return True once it is answered, False if the connection has ended instead."""
        frames = self._frames
        assert frames is not None
        number = frames.ping(trio.current_time())
        self._wakeup.set()
        while frames.ponged < number and frames.closed is None:
            await self._ponged.park()
        return frames.ponged >= number

    async def _send(self, message: bytes, outgoing: Outgoing | None = None) -> None:
        """Send a message, whole or not at all. Raises the error with which the connection was lost."""
        assert self._frames is not None
        if self._failure is not None:
            raise self._failure
        if not self._frames.is_open:
            raise ConnectionLostError(f"the WebSocket to {self._place} is closed")
        frame = self._frames.text(message.decode())
        unsent = self._send_at_once(frame)
        if unsent is None:
            return
        try:
            await unsent.sent.wait()
        except trio.Cancelled:
            if not unsent.is_begun:
                self._unsent.remove(unsent)
                if outgoing is not None:
                    self._withdrawn.add(outgoing.id)
            raise
        if self._failure is not None:
            raise self._failure

    def _send_at_once(self, frame: bytes) -> _Unsent | None:
        """Send the bytes that the socket takes now; queue the rest for the writing task, and return it."""
        taken = 0
        if not self._is_writing and not self._unsent and isinstance(self._stream, trio.SocketStream):
            with suppress(OSError):  # the socket is full or broken; the writing task finds out
                taken = os.write(self._stream.socket.fileno(), frame)
        if taken == len(frame):
            return None
        unsent = _Unsent(frame[taken:], is_begun=taken > 0)
        self._unsent.append(unsent)
        self._wakeup.set()
        return unsent

    async def _close(self, frames: FrameStream) -> None:
        """Send our close frame, and wait for the end of the connection."""
        with trio.move_on_after(CLOSE_SECONDS):
            if self._failure is None and (frame := frames.close(CloseReason.NORMAL_CLOSURE)):
                self._send_at_once(frame)
            await self._read_ended.wait()

    # --- the tasks -----------------------------------------------------------------------------------

    async def _read(self, receiver: Receiver, frames: FrameStream, chunk: bytes | None) -> None:
        """Read until the connection has ended. `chunk` has the bytes that arrived with the upgrade."""
        inbox = Inbox(receiver.exchange, self._limits, frames, leniency=self._compatibility)
        while True:
            if chunk is None:
                # While a request (not a subscription) is in flight, its own deadline limits the silence.
                if any(key.isdecimal() for key in receiver.exchange.in_flight):
                    frames.excuse(trio.current_time())
            elif chunk:
                receiver.take(inbox.receive(chunk))
                while frames.has_more:
                    await trio.lowlevel.checkpoint()
                    receiver.take(inbox.receive(b""))
            else:
                frames.end()
            frames.on_time(trio.current_time())
            self._ponged.unpark_all()
            if frames.closed is not None:
                break
            if frames.has_control or self._compatibility.has_unsent:
                self._wakeup.set()
            chunk = None
            with trio.CancelScope(deadline=frames.due):
                chunk = await self._receive()
        self._lose(inbox.failure or self._error(frames.closed))
        if (last_words := frames.control()) and (unsent := self._send_at_once(last_words)) is not None:
            with trio.move_on_after(LAST_WORDS_SECONDS):
                await unsent.sent.wait()
        self._read_ended.set()

    async def _receive(self) -> bytes:
        try:
            return bytes(await self._stream.receive_some(RECEIVE_BYTES))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def _write(self, frames: FrameStream) -> None:
        try:
            while True:
                await self._wakeup.wait()
                self._wakeup = trio.Event()
                while (unsent := self._next_unsent(frames)) is not None:
                    unsent.is_begun = self._is_writing = True
                    await self._stream.send_all(unsent.data)
                    self._is_writing = False
                    self._unsent.remove(unsent)
                    unsent.sent.set()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            with trio.move_on_after(LAST_WORDS_SECONDS):
                await self._read_ended.wait()
            self._lose(self._closed_error(CloseReason.ABNORMAL_CLOSURE, "", "accepts no more messages"))

    def _next_unsent(self, frames: FrameStream) -> _Unsent | None:
        """Return the next frame to send. Control frames and repeated requests go before frames not begun."""
        if not self._unsent or not self._unsent[0].is_begun:
            data = frames.control()
            if not data and frames.is_open and (message := self._compatibility.next_unsent()) is not None:
                data = frames.text(message.decode())
            if data:
                self._unsent.appendleft(_Unsent(data, is_begun=True))
        return self._unsent[0] if self._unsent else None

    # --- the end -------------------------------------------------------------------------------------

    def _lose(self, error: PlayheadError) -> None:
        """Report the loss of the connection, unless it was reported before or we are closing it."""
        if self._failure is None and not self._is_leaving:
            self._failure = error
            self._receiver.lost(error)
        for unsent in self._unsent:
            unsent.sent.set()

    def _error(self, closed: Closed) -> PlayheadError:
        match closed.end:
            case End.SILENT:
                silent_seconds = self._options.ping_seconds + self._options.pong_seconds
                return ConnectionLostError(
                    f"{self._place} sent nothing for {silent_seconds:.0f} s, not even a pong: it is gone, or"
                    " too busy to answer"
                )
            case End.PEER:
                reason = f" ({closed.reason!r})" if closed.reason else ""
                return self._closed_error(closed.code, closed.reason, f"was closed by the server{reason}")
            case End.CUT:
                return self._closed_error(closed.code, "", "ended without a close frame")
            case _:
                reason = closed.reason[:200]
                how = f"was closed by playhead: the server sent {reason!r}"
                return self._closed_error(closed.code, reason, how)

    def _closed_error(self, code: int, reason: str, how: str) -> WebSocketClosedError:
        return WebSocketClosedError(
            f"the WebSocket to {self._place} {how}, code {int(code)}", code=int(code), reason=reason
        )
