"""The frames of one WebSocket (RFC 6455): ASGI messages on one side, bounded reads and writes on the other.

Frames are read when the application asks for the next message, in its own task. A client that sends faster
than the application takes is therefore held up by TCP, and nothing is queued here but one unfinished message.

Compression is not negotiated: 64 KiB could become 64 MiB before anything is counted, and a page of base64
costs more to compress than it saves.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import h11
import trio
from starlette.types import Message
from wsproto.connection import Connection as Frames
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import generate_accept_token

from playhead.limits import KIB
from playhead.servers.serving import Slot

if TYPE_CHECKING:
    from playhead.servers.http_connection import HttpConnection, Wire

OPTIONS_KEY: Final = "playhead.frames"
"""The key of a `websocket.accept` for the application's `FrameOptions`. Other servers ignore it."""

SLOT_KEY: Final = "playhead.slot"
"""The key of a `websocket.receive` with the `Slot` of a long message. It is released when the next message is
asked for, unless it was adopted."""

MESSAGE_FRAGMENTS: Final = 131_072
"""Frames of one message. An empty one costs no byte of `message_bytes`, but some 15 µs."""

OWN_BYTES: Final = 64 * KIB
"""A message that is longer waits for one of the server's slots, so that not every client can send one at
once."""

_EXTENDED_BYTES: Final = {126: 2, 127: 8}
"""Bytes of the extended length, by the length in the second byte (RFC 6455, section 5.2)."""

NO_SLOT: Final = "the server has as many requests in work as it can hold; try again later"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOptions:
    """Bounds on the frames of one connection. Sizes are in bytes, times in seconds."""

    message_bytes: int = 1088 * KIB
    """A message from the client, in however many frames: 1 MiB, as over HTTP, and room for what surrounds its
    arguments. A longer one closes with 1009."""
    message_seconds: float = 20.0
    """From the first frame of a message to its last; then 1008."""
    ping_seconds: float = 20.0
    """Between two pings: half of what the usual proxies and NATs allow an idle connection."""
    silence_seconds: float = 60.0
    """Without a byte from the client, pongs counted; then 1008."""
    send_seconds: float = 30.0
    """For each 64 KiB that a client has to take: 2 KiB/s, a tenth of the slowest music."""


class FrameHeads:
    """The lengths that a peer's frame heads announce, in any chunking.

    wsproto says nothing about a frame before it has payload, so that a peer could announce 2⁶³ bytes and hold
    the connection open.
    """

    def __init__(self) -> None:
        self._head = b""
        """The beginning of an incomplete head."""
        self._left = 0
        """Bytes of the current frame behind its head."""

    def too_long_at(self, data: bytes, limit_bytes: int) -> int | None:
        """The end of the first head in `data` that announces more than `limit_bytes`; None without one."""
        at = 0
        while at < len(data):
            if self._left:
                skipped = min(self._left, len(data) - at)
                at, self._left = at + skipped, self._left - skipped
                continue
            piece = data[at : at + self._missing()]
            at, self._head = at + len(piece), self._head + piece
            if self._missing():
                continue
            length = int.from_bytes(self._head[2:] or bytes([self._head[1] & 127]), "big")
            if length > limit_bytes:
                return at
            self._left = length + (4 if self._head[1] & 128 else 0)  # and the mask
            self._head = b""
        return None

    def _missing(self) -> int:
        size = 2 if len(self._head) < 2 else 2 + _EXTENDED_BYTES.get(self._head[1] & 127, 0)
        return size - len(self._head)


class FramedWebSocket:
    """One WebSocket on a wire. `receive` and `send` are those of ASGI."""

    def __init__(
        self,
        wire: Wire,
        slots: trio.CapacityLimiter,
        *,
        role: ConnectionType,
        closing_seconds: float,
        received: bytes = b"",
    ) -> None:
        """`received` are the bytes behind the handshake. As `CLIENT` (the server has dialled) it masks."""
        self._wire = wire
        self._slots = slots
        self._role = role
        self._closing_seconds = closing_seconds
        self._received = received
        self._options = FrameOptions()
        self._heads = FrameHeads()
        self._is_too_long = False
        """The head that was read last announces too many bytes."""
        self._frames: Frames | None = None
        """None until the application has accepted."""
        self._connect_received = False
        self._disconnect: Message | None = None
        self._broken = False
        """The client sent bytes that are not a frame: what follows cannot be parsed."""
        self._message = bytearray()
        # One buffer: a million fragments would be a million objects, and text up to four times as long.
        self._slot = Slot(slots)
        self._fragments = 0
        self._message_deadline = math.inf
        self._sending = trio.StrictFIFOLock()
        self._accepted = trio.Event()
        self.gone = trio.Event()
        """Nothing can be sent any more."""

    @property
    def closed_by_peer(self) -> bool:
        """The peer sent its close frame first. Valid at the disconnect, not after `finish`."""
        return self._frames is not None and self._frames.state is ConnectionState.CLOSED

    # --- to the application ---------------------------------------------------------------------------

    async def receive(self) -> Message:
        """The next whole message, read from the wire; a disconnect at the end."""
        if not self._connect_received:
            self._connect_received = True
            return {"type": "websocket.connect"}
        if self._frames is None:
            await self._accepted.wait()  # an application may receive and send in two tasks
        if not self._slot.adopted:
            self._slot.release()
        self._slot = Slot(self._slots)
        while self._disconnect is None:
            message = await self._next_message()
            if message is not None:
                return message
            await self._read()
        return self._disconnect

    async def _next_message(self) -> Message | None:
        assert self._frames is not None
        for event in self._frames.events():
            match event:
                case TextMessage() | BytesMessage():
                    if (message := await self._collect(event)) is not None:
                        return message
                case Ping():
                    await self._send_event(event.response())
                case CloseConnection(code=code, reason=reason):
                    if self._frames.state is ConnectionState.REMOTE_CLOSING:
                        await self._send_event(event.response())
                    elif self._frames.state is ConnectionState.OPEN:  # malformed bytes
                        self._broken = True
                        await self._close(code, reason or "")
                    self._end(code, reason or "")
                case _:
                    pass  # a pong: any byte ends the silence
            if self._disconnect is not None:
                break
        return None

    async def _collect(self, event: TextMessage | BytesMessage) -> Message | None:
        options = self._options
        piece = event.data.encode() if isinstance(event, TextMessage) else event.data
        self._fragments += event.frame_finished
        length = len(self._message) + len(piece)
        if length > options.message_bytes:
            await self._fail_too_long()
        elif self._fragments > MESSAGE_FRAGMENTS:
            await self._fail(
                CloseReason.POLICY_VIOLATION, f"a message may have {MESSAGE_FRAGMENTS} fragments"
            )
        elif length > OWN_BYTES and not await self._take_slot():
            await self._fail(CloseReason.TRY_AGAIN_LATER, NO_SLOT)
        else:
            self._message += piece
            if event.message_finished:
                whole = self._message
                self._forget_message()
                if isinstance(event, TextMessage):
                    return {"type": "websocket.receive", "text": whole.decode(), SLOT_KEY: self._slot}
                return {"type": "websocket.receive", "bytes": bytes(whole), SLOT_KEY: self._slot}
            if self._message_deadline == math.inf:
                self._message_deadline = trio.current_time() + options.message_seconds
        return None

    async def _read(self) -> None:
        if self._disconnect is not None:
            return
        if self._is_too_long:
            await self._fail_too_long()
            return
        # From now, not from the last byte: while the server itself does not read, nobody is silent.
        silence = trio.current_time() + self._options.silence_seconds
        data = await self._wire.receive(min(self._message_deadline, silence))
        if data:
            self._feed(data)
        elif data is None:
            late = self._message_deadline <= trio.current_time()
            await self._fail(
                CloseReason.POLICY_VIOLATION,
                "a message was not complete in time" if late else "nothing was received for too long",
            )
        else:
            self._end(CloseReason.ABNORMAL_CLOSURE, "")

    def _feed(self, data: bytes) -> None:
        assert self._frames is not None
        end = self._heads.too_long_at(data, self._options.message_bytes)
        self._is_too_long = end is not None
        self._frames.receive_data(data[:end])

    async def _take_slot(self) -> bool:
        with trio.move_on_at(
            min(self._message_deadline, trio.current_time() + self._options.message_seconds)
        ):
            await self._slot.take()
        return self._slot.held

    def _forget_message(self) -> None:
        self._message, self._fragments, self._message_deadline = bytearray(), 0, math.inf

    async def _fail(self, code: int, reason: str) -> None:
        """Close, because the client broke a rule. Both sides are told which."""
        await self._close(code, reason)
        self._end(code, reason)

    async def _fail_too_long(self) -> None:
        self._broken |= self._is_too_long  # its payload was not fed to wsproto
        reason = f"a message may have {self._options.message_bytes} bytes"
        await self._fail(CloseReason.MESSAGE_TOO_BIG, reason)

    def _end(self, code: int, reason: str) -> None:
        self._forget_message()
        if not self._slot.adopted:
            self._slot.release()
        self._disconnect = {"type": "websocket.disconnect", "code": int(code), "reason": reason}
        self.gone.set()

    # --- from the application -------------------------------------------------------------------------

    async def send(self, message: Message) -> None:
        """Raises `OSError` if the client has left."""
        match message["type"]:
            case "websocket.accept":
                await self._accept(message)
            case "websocket.close":
                await self._close(int(message.get("code") or 1000), message.get("reason") or "")
            case _ if message.get("bytes") is not None:
                await self._send_event(BytesMessage(data=message["bytes"]))
            case _:
                await self._send_event(TextMessage(data=message["text"]))

    async def _accept(self, message: Message) -> None:
        self._options = message.get(OPTIONS_KEY, self._options)
        self._wire.send_seconds = self._options.send_seconds
        self._frames = Frames(self._role)
        self._feed(self._received)
        self._accepted.set()

    async def _send_event(self, event: Event) -> None:
        assert self._frames is not None
        async with self._sending:  # the application, the pings and the answers to the client's
            if self._frames.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
                await self._wire.send(self._frames.send(event))

    async def _close(self, code: int, reason: str) -> None:
        assert self._frames is not None
        if self._frames.state is ConnectionState.OPEN:
            await self._send_event(CloseConnection(code=code, reason=reason))

    async def keep_alive(self) -> None:
        """Ping until the connection ends."""
        await self._accepted.wait()
        try:
            while not self.gone.is_set():
                await trio.sleep(self._options.ping_seconds)
                await self._send_event(Ping())
        except OSError:
            pass  # the reading side notices too

    async def finish(self) -> None:
        """Close after the application has returned, and wait for the client to do the same."""
        if self._frames is None:
            return
        await self._close(CloseReason.INTERNAL_ERROR, "")
        self._end(CloseReason.INTERNAL_ERROR, "")
        seconds = self._closing_seconds
        with trio.move_on_after(seconds):
            while self._frames.state is ConnectionState.LOCAL_CLOSING and not self._broken:
                data = await self._wire.receive(math.inf)
                if not data:
                    return
                self._frames.receive_data(data)
                for event in self._frames.events():
                    state = self._frames.state
                    self._broken |= (
                        isinstance(event, CloseConnection) and state is ConnectionState.LOCAL_CLOSING
                    )
        if self._broken:  # the client's own close frame cannot be found
            await self._wire.linger(seconds)


class UpgradedWebSocket(FramedWebSocket):
    """One WebSocket that a client has asked for, from its upgrade request to the end."""

    def __init__(self, connection: HttpConnection, request: h11.Request) -> None:
        super().__init__(
            connection.wire,
            connection.slots,
            role=ConnectionType.SERVER,
            closing_seconds=connection.options.closing_seconds,
        )
        self._connection = connection
        self._headers = dict(request.headers)
        self.subprotocols = header_tokens(request.headers, b"sec-websocket-protocol", lower=False)

    def handshake_problem(self) -> str | None:
        """The reason why the request is not a valid handshake (RFC 6455, section 4.2.1), or None."""
        if not all(value.isascii() for value in self._headers.values()):
            return "the header fields of a WebSocket handshake are ASCII"
        if self._headers.get(b"sec-websocket-version") != b"13":
            return "expected Sec-WebSocket-Version: 13"
        try:
            key = base64.b64decode(self._headers.get(b"sec-websocket-key", b""), validate=True)
        except binascii.Error:
            key = b""
        return None if len(key) == 16 else "expected a Sec-WebSocket-Key of 16 bytes in base64"

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "websocket.http.response.start" | "websocket.http.response.body":
                await self._connection.send_response(message)
            case "websocket.close" if self._frames is None:
                await self._connection.refuse(403, "the WebSocket was not accepted")
            case _:
                await super().send(message)

    async def _accept(self, message: Message) -> None:
        headers = [
            (b"upgrade", b"websocket"),
            (b"connection", b"Upgrade"),
            (b"sec-websocket-accept", generate_accept_token(self._headers[b"sec-websocket-key"])),
            *message.get("headers", []),
        ]
        if message.get("subprotocol") is not None:
            headers.append((b"sec-websocket-protocol", message["subprotocol"].encode()))
        self._received = self._connection.http.trailing_data[0]  # frames right behind the head
        await self._connection.send_event(h11.InformationalResponse(status_code=101, headers=headers))
        await super()._accept(message)

    async def finish(self) -> None:
        """See `FramedWebSocket.finish`. An application that answered nothing gets the client a 500."""
        if self._frames is None and self._connection.http.our_state is h11.SEND_RESPONSE:
            await self._connection.refuse(500, "the server failed at this request")
        await super().finish()


def header_tokens(headers: Iterable[tuple[bytes, bytes]], name: bytes, *, lower: bool = True) -> list[str]:
    """The comma-separated tokens of a header field, which may occur more than once."""
    values = b",".join(value for key, value in headers if key == name).decode("latin-1")
    tokens = [token.strip() for token in values.split(",")]
    return [token.lower() if lower else token for token in tokens if token]
