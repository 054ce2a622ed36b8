"""The frames of one WebSocket under hypercorn: what its own class leaves unbounded or unsaid is added here.

hypercorn's `WSStream` counts a message in characters and goes on collecting one that is too long; it accepts
compression, so that 64 KiB may become 64 MiB before anything is counted (and every page of ours would be
compressed, which costs more than it saves); it does not tell the application of a frame that breaks the
protocol; it closes the TCP connection right behind the close frame, which the client then seldom sees; it
leaves the application waiting for ever when a client speaks before it was answered; and its pings go on after
the end. What bounds there are comes from the application, with its `websocket.accept` (`OPTIONS_KEY`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import trio
from hypercorn.protocol.events import Body, Data, Event, Request, StreamClosed
from hypercorn.protocol.ws_stream import ASGIWebsocketState, WSStream
from wsproto.connection import ConnectionState
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason

from playhead.servers.websocket_memory import NO_ROOM, Account, text_bytes

OPTIONS_KEY: Final = "playhead.frames"
"""Where the application puts `FrameOptions` in its `websocket.accept`. Another server ignores it."""

HELD_KEY: Final = "playhead.held"
"""In a `websocket.receive`: what the text costs in the `account`, to be given back by who took it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOptions:
    """What the frames of one connection may cost; see `websocket.WebSocketOptions`."""

    message_bytes: int
    message_seconds: float
    ping_seconds: float
    silence_seconds: float
    send_seconds: float
    account: Account


class Wire(Protocol):
    """What a WebSocket asks of the connection under it (`http_connection.BoundedStream`)."""

    message_deadline: float
    closing_seconds: float
    overdue: str | None

    def talk(self, *, silence_seconds: float, send_seconds: float) -> None:
        """From now on this is a WebSocket."""


class WebSocketStream(WSStream):
    """hypercorn's WebSocket with bounds. The application gets whole messages, and a disconnect at the end."""

    def __init__(self, *args: Any, wire: Wire) -> None:
        super().__init__(*args)
        self._wire = wire
        self._options: FrameOptions | None = None
        self._answered = trio.Event()
        """The handshake was accepted or refused."""
        self._ended = trio.Event()
        """Nothing more comes: the other side has closed, or the connection is gone."""
        self._message = bytearray()
        """What has come of it. Put together at once: a million fragments would be a million objects, and text
        four times as long for one emoji."""

    async def handle(self, event: Event) -> None:
        """Takes what came from the client; while it waits, hypercorn reads no more."""
        match event:
            case Request():
                kept = [
                    header for header in event.headers if header[0].lower() != b"sec-websocket-extensions"
                ]
                await super().handle(replace(event, headers=kept))
                if self.closed:  # no valid handshake: hypercorn has said so, and would keep the connection
                    await self.send(StreamClosed(stream_id=self.stream_id))
            case Body() | Data():
                if not self._answered.is_set():
                    await self._answered.wait()
                await self._take_bytes(event.data)
            case StreamClosed():
                self._ended.set()
                self._answered.set()
                if self._wire.overdue is not None and self.state is ASGIWebsocketState.CONNECTED:
                    await self._close(CloseReason.POLICY_VIOLATION, self._wire.overdue)
                await super().handle(event)

    async def app_send(self, message: Any) -> None:
        """Takes what the application sends; None when it has returned."""
        if message is None:
            if self.state is ASGIWebsocketState.CONNECTED and not self.closed:
                await self._close(CloseReason.INTERNAL_ERROR, "")
            if self.state is ASGIWebsocketState.CLOSED and not self.closed:
                # A TCP connection that is closed with bytes unread is reset, and the close frame may be lost.
                with trio.move_on_after(self._wire.closing_seconds):
                    await self._ended.wait()
        elif self.state is ASGIWebsocketState.CLOSED:
            return  # it was not told yet
        elif message["type"] == "websocket.close" and self.state is ASGIWebsocketState.CONNECTED:
            await self._close(
                int(message.get("code") or CloseReason.NORMAL_CLOSURE), message.get("reason") or ""
            )
            return
        elif message["type"] == "websocket.accept":
            self._options = message.get(OPTIONS_KEY)
        await super().app_send(message)
        if self.state is not ASGIWebsocketState.HANDSHAKE:
            self._answered.set()

    async def _accept(self, message: Any) -> None:
        options = self._options
        if options is not None:
            self._wire.talk(silence_seconds=options.silence_seconds, send_seconds=options.send_seconds)
        await super()._accept(message)
        if options is not None:
            self.task_group.spawn(self._ping_regularly, options.ping_seconds)

    async def _ping_regularly(self, seconds: float) -> None:
        while True:
            with trio.move_on_after(seconds):
                await self._ended.wait()
                return
            await self._send_wsproto_event(Ping())

    async def _take_bytes(self, data: bytes) -> None:
        if self.closed or not self.handshake.accepted:
            return
        if self.connection.state in (ConnectionState.OPEN, ConnectionState.LOCAL_CLOSING):
            self.connection.receive_data(data)
            await self._handle_events()

    async def _handle_events(self) -> None:
        for event in self.connection.events():
            match event:
                case TextMessage() | BytesMessage():
                    if self.state is ASGIWebsocketState.CONNECTED:
                        await self._take_piece(event)
                case Ping():
                    await self._send_wsproto_event(event.response())
                case CloseConnection() if self.connection.state is ConnectionState.OPEN:
                    # wsproto's word for bytes that are no frame, or text that is not UTF-8.
                    await self._fail(event.code, event.reason or "")
                case CloseConnection():
                    self._ended.set()
                    if self.connection.state is ConnectionState.REMOTE_CLOSING:
                        await self._send_wsproto_event(event.response())
                    await self.send(StreamClosed(stream_id=self.stream_id))
                case _:
                    pass  # a pong: that something came is all that matters

    async def _take_piece(self, event: TextMessage | BytesMessage) -> None:
        options = self._options
        piece = event.data.encode() if isinstance(event, TextMessage) else event.data
        most = self.config.websocket_max_message_size if options is None else options.message_bytes
        if len(self._message) + len(piece) > most:
            await self._fail(CloseReason.MESSAGE_TOO_BIG, f"a message may have {most} bytes")
            return
        if options is not None and not options.account.take(len(piece)):
            await self._fail(CloseReason.TRY_AGAIN_LATER, NO_ROOM)
            return
        self._message += piece
        if not event.message_finished:
            if self._wire.message_deadline == math.inf and options is not None:
                self._wire.message_deadline = trio.current_time() + options.message_seconds
            return
        whole, self._message = self._message, bytearray()
        self._wire.message_deadline = math.inf
        if isinstance(event, BytesMessage):
            await self._tell({"type": "websocket.receive", "text": None, "bytes": bytes(whole)})
            return
        text, came_bytes = whole.decode(), len(whole)
        del whole  # this may wait below
        if options is not None:
            options.account.give_back(came_bytes)
            if not options.account.take(text_bytes(text)):
                await self._fail(CloseReason.TRY_AGAIN_LATER, NO_ROOM)
                return
        held = 0 if options is None else text_bytes(text)
        await self._tell({"type": "websocket.receive", "text": text, "bytes": None, HELD_KEY: held})

    async def _fail(self, code: int, reason: str) -> None:
        """The client broke a rule: it is told which, and so is the application."""
        self._message = bytearray()
        self._wire.message_deadline = math.inf
        await self._close(code, reason)
        await self._tell({"type": "websocket.disconnect", "code": code, "reason": reason})

    async def _close(self, code: int, reason: str) -> None:
        self.state = ASGIWebsocketState.CLOSED
        await self._send_wsproto_event(CloseConnection(code=code, reason=reason))

    async def _tell(self, message: dict[str, Any]) -> None:
        put: Callable[[dict[str, Any]], Any] | None = self.app_put
        assert put is not None, "frames are read after the application was started"
        await put(message)
