"""The frames of one WebSocket as ASGI messages, with limits on the time and memory of its client.

The application's task reads frames when the application asks for the next message. So TCP slows down a client
that sends faster than the application receives, and only one unfinished message is in memory, in the
`FrameStream`, which also has the rules of the protocol. The same task sends pongs, pings and close frames,
and so does a task that has sent a message.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio
from starlette.types import Message
from wsproto.connection import ConnectionType
from wsproto.frame_protocol import CloseReason

from playhead.limits import KIB
from playhead.protocol.frame_stream import Closed, End, FrameStream
from playhead.protocol.framing import Line, LongLine
from playhead.servers.serving import Slot
from playhead.servers.wire import Wire

OPTIONS_KEY: Final = "playhead.frames"
"""The key of a `websocket.accept` for the application's `FrameOptions`. Other servers ignore it."""

SLOT_KEY: Final = "playhead.slot"
"""The key of a `websocket.receive` for the `Slot` of a long message. The next `receive` releases the slot,
unless the application has adopted it (`Slot.adopted`)."""

MESSAGE_FRAGMENTS: Final = 131_072
"""Limits the frames of one message. An empty frame uses no byte of `message_bytes`, but takes some 15 µs."""

OWN_BYTES: Final = 64 * KIB
"""A longer message waits for one of the server's slots, because all clients may send long messages at
once."""

NO_SLOT: Final = "the server has as many requests in work as it can hold; try again later"
NO_BINARY: Final = "expected text frames, got a binary one"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOptions:
    """Bounds on the frames of one connection. Sizes are in bytes, times in seconds."""

    message_bytes: int = 1088 * KIB
    """Limits a message from the client, in any number of frames: 1 MiB, as over HTTP, and room for what
    surrounds its arguments. A longer one closes with 1009."""
    message_seconds: float = 20.0
    """Limits the time from the first frame of a message to its last. After that, the connection is closed
    with 1008."""
    ping_seconds: float = 20.0
    """The silence before a ping, and between two. It is half of what the usual proxies and NATs allow an idle
    connection."""
    silence_seconds: float = 60.0
    """Limits the silence of the client, whose pongs count. After that, the connection is closed with 1008."""
    send_seconds: float = 30.0
    """Limits the time in which a client takes 64 KiB: 2 KiB/s, a tenth of the slowest music."""


class FramedWebSocket:
    """A WebSocket on a wire. `receive` and `send` are ASGI's, for text messages.

    Args:
        wire: carries the frames; it gets the application's `send_seconds`.
        slots: for long messages.
        role: `CLIENT` if the server has dialled.
        closing_seconds: limit for the client to close, once this side has.
        accept: completes the handshake, and returns the bytes that followed it.
    """

    def __init__(
        self,
        wire: Wire,
        slots: trio.CapacityLimiter,
        *,
        role: ConnectionType,
        closing_seconds: float,
        accept: Callable[[Message], Awaitable[bytes]],
    ) -> None:
        self._wire = wire
        self._slots = slots
        self._role = role
        self._closing_seconds = closing_seconds
        self._accept_handshake = accept
        self._options = FrameOptions()
        self._frames: FrameStream | None = None
        """None until the application has accepted."""
        self._connect_received = False
        self._slot = Slot(slots)
        self._send_lock = trio.StrictFIFOLock()
        self.received_any = False
        """True once a message was received."""

    @property
    def is_accepted(self) -> bool:
        """True once the handshake is complete."""
        return self._frames is not None

    @property
    def closed(self) -> Closed | None:
        """The end of the connection; None before."""
        return None if self._frames is None else self._frames.closed

    # --- to the application ---------------------------------------------------------------------------

    async def receive(self) -> Message:
        """Receive the next whole message from the wire; a disconnect at the end."""
        if not self._connect_received:
            self._connect_received = True
            return {"type": "websocket.connect"}
        assert self._frames is not None, "an application accepts before it receives"
        frames = self._frames
        frames.excuse(trio.current_time())  # without reads, the client only seemed silent
        self._release_slot()
        while True:
            event = frames.next_event()
            if frames.binary_messages:
                frames.refuse(CloseReason.UNSUPPORTED_DATA, NO_BINARY)
            if (closed := frames.closed) is not None:
                self._release_slot()
                if closed.end is not End.CUT:
                    await self._send_control(frames)
                return {"type": "websocket.disconnect", "code": closed.code, "reason": closed.reason}
            match event:
                case Line(data=data):
                    self.received_any = True
                    return {"type": "websocket.receive", "text": data.decode(), SLOT_KEY: self._slot}
                case LongLine():
                    with trio.move_on_after(self._options.message_seconds):
                        await self._slot.take()
                    if not self._slot.held:
                        frames.refuse(CloseReason.TRY_AGAIN_LATER, NO_SLOT)
                case _ if frames.has_more:
                    await trio.lowlevel.checkpoint()
                case _:
                    await self._read_once(frames)

    async def _read_once(self, frames: FrameStream) -> None:
        """Send the control frames that are due, and read once."""
        now = trio.current_time()
        if self._send_lock.locked():
            frames.excuse(now)  # the client is taking an answer, and a ping can be sent only after it
        frames.on_time(now)
        if not self._send_lock.locked():
            await self._send_control(frames)
        if frames.closed is None:
            try:
                data = await self._wire.receive(frames.due)
            except trio.TooSlowError:
                return  # the next `on_time` sends a ping, or closes
            if data:
                frames.feed(data)
            else:
                frames.end()

    def _release_slot(self) -> None:
        if not self._slot.adopted:
            self._slot.release()
        self._slot = Slot(self._slots)

    # --- from the application -------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """Send an ASGI message. Raises `OSError` if the client has left."""
        frames = self._frames
        if frames is None:
            received = await self._accept_handshake(message)
            self._options = options = message.get(OPTIONS_KEY, self._options)
            self._wire.send_seconds = options.send_seconds
            self._frames = FrameStream(
                self._role,
                max_bytes=options.message_bytes,
                head_bytes=OWN_BYTES,
                max_fragments=MESSAGE_FRAGMENTS,
                message_seconds=options.message_seconds,
                ping_seconds=options.ping_seconds,
                silence_seconds=options.silence_seconds,
                now=trio.current_time(),
            )
            self._frames.feed(received)
        elif message["type"] == "websocket.close":
            await self._close(frames, int(message.get("code") or 1000), message.get("reason") or "")
        else:
            async with self._send_lock:
                if frames.is_open:
                    await self._wire.send(frames.text(message["text"]))
            await self._send_control(frames)

    async def _send_control(self, frames: FrameStream) -> None:
        while frames.has_control:
            async with self._send_lock:
                await self._wire.send(frames.control())

    async def _close(self, frames: FrameStream, code: int, reason: str) -> None:
        async with self._send_lock:
            await self._wire.send(frames.close(code, reason))

    async def finish(self) -> None:
        """Close after the application has returned, and wait for the client to do the same."""
        frames = self._frames
        if frames is None:
            return
        self._release_slot()
        # This sends nothing if the application has closed before.
        await self._close(frames, CloseReason.INTERNAL_ERROR, "")
        with trio.move_on_after(self._closing_seconds):
            while frames.closed is None:
                if data := await self._wire.receive(math.inf):
                    frames.feed(data)
                else:
                    frames.end()
                while frames.next_event() is not None or frames.has_more:
                    await trio.lowlevel.checkpoint()
        if frames.closed is not None and frames.closed.end not in (End.PEER, End.CUT):
            # The client may be in the middle of a frame, so its own close frame cannot be found.
            await self._wire.linger(self._closing_seconds)
