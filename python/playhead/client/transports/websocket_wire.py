"""The parts of a WebSocket connection: frames on a stream, control frames, keepalive, messages, leniency.

They share one file, because each hands its events to the next one and none is used alone.

`MessageFramer` is the counterpart of `framing.LineFramer`: it puts messages together from the pieces of text
frames, with the events and limits of lines. wsproto delivers a message in pieces, as its frames and the reads
of the socket cut it; any cutting gives the same events in the same memory: pieces are joined as they arrive,
so that a message of a million empty fragments costs what an empty one does.

`FrameSplitter` lets the payload of long text frames pass by wsproto, which copies each of its bytes
five times and reads everything else: the handshake, control frames, short and fragmented messages, and what
is invalid. A page of 1 MiB is such a frame: without the copies it costs the client two thirds.

`Compatibility` handles what WebSocket servers in the field do differently. MCP never had a WebSocket
transport; the servers that offer one were written against revision 2024-11-05 and against each other. What is
tolerated, on this transport alone (the words are in the error's message or, of the Go template, in its data):

* `initialize` refused with "unsupported protocol version" instead of a counter-offer: sent once more on the
  same connection, for 2024-11-05.
* Requests refused with "handler not initialized", because the server waits for a notification `initialized`
  instead of `notifications/initialized`: the short name is sent once per connection, and each refused request
  once more. The server has said that nothing was run, so nothing is run twice.
* Errors without an id, for what the server could not read (-32700, -32600; other codes may be about a
  notification). Such an error belongs to one of the requests in flight when it arrived. It is assigned to
  that one as soon as the others have been answered: at once if only one was in flight. Until then no request
  is failed, because a wrong guess would fail a request whose answer is still on the way; if a request ended
  without an answer (cancelled, past its deadline) it may have been the one, and the error is dropped.

Prompts whose messages hold a list of blocks are read by `session.requests`, whatever the transport. A
repeated request keeps its id: these servers echo ids and keep no record of them.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Final

import mcp_types as types
import trio
from wsproto import WSConnection
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError

from playhead.client.transports.outcomes import quoted, texts_of
from playhead.client.transports.websocket_opening import RECEIVE_BYTES
from playhead.errors import UsageError
from playhead.limits import KIB
from playhead.protocol import sdk_messages as messages
from playhead.protocol.faults import ProtocolFaults
from playhead.protocol.framing import (
    ENDLESS_FACTOR,
    HEAD_BYTES,
    TAIL_BYTES,
    EndlessLine,
    FrameEvent,
    Line,
    LongLine,
    OverlongLine,
    SkippedLine,
)
from playhead.protocol.messages import key_of

OLD_REVISION: Final = "2024-11-05"
NAMELESS_ERRORS: Final = 64
"""Errors without an id held at once; each holds the keys that were awaited when it arrived."""

_REVISION_REFUSED: Final = re.compile(
    r"(unsupported|invalid)( mcp| protocol)+ version|version .{0,40}not supported", re.IGNORECASE
)
_NOT_INITIALIZED: Final = re.compile(
    r"(^|\b(handler|server|session|connection|client) )((is|was|has) )?not (yet )?(been )?initiali[sz]ed",
    re.IGNORECASE,
)
"""Of the connection: a tool that failed because its database is "not initialized" may have run."""
_UNREADABLE: Final = (types.PARSE_ERROR, types.INVALID_REQUEST)


@dataclass(slots=True)
class _Nameless:
    """An error and the requests that it can be about."""

    error: types.ErrorData
    candidates: set[str]


class Compatibility:
    """The leniency of one connection (`inbox.Leniency`). Messages that it has to send wait in `unsent`."""

    def __init__(self) -> None:
        self.unsent: deque[types.JSONRPCNotification | types.JSONRPCRequest] = deque()
        """Sent before anything else; at most one message per request in flight, and one more."""
        self._greeted = False
        self._repeated: set[str] = set()
        self._nameless: list[_Nameless] = []
        self._revisions_refused = 0
        self._nameless_errors = 0

    def faults(self) -> ProtocolFaults:
        """The deviations that were worked around."""
        return ProtocolFaults(
            revisions_refused=self._revisions_refused,
            bare_initialized=int(self._greeted),
            nameless_errors=self._nameless_errors,
        )

    def answered(
        self, request: types.JSONRPCRequest, answer: types.JSONRPCResponse | types.JSONRPCError
    ) -> types.JSONRPCMessage | None:
        key = key_of(request.id)
        again = self._again(request, answer) if isinstance(answer, types.JSONRPCError) else None
        if again is not None and key not in self._repeated:
            self._repeated.add(key)
            self.unsent.append(again)
            return None
        self._repeated.discard(key)
        for nameless in self._nameless:
            nameless.candidates.discard(key)
        return answer

    def _again(
        self, request: types.JSONRPCRequest, answer: types.JSONRPCError
    ) -> types.JSONRPCRequest | None:
        if request.method == "initialize":
            params = request.params or {}
            if params.get("protocolVersion") == OLD_REVISION or not _says(answer, _REVISION_REFUSED):
                return None
            self._revisions_refused += 1
            return request.model_copy(update={"params": {**params, "protocolVersion": OLD_REVISION}})
        if answer.error.code != types.INTERNAL_ERROR or not _says(answer, _NOT_INITIALIZED):
            return None
        if not self._greeted:
            self._greeted = True
            self.unsent.append(types.JSONRPCNotification(jsonrpc="2.0", method="initialized"))
        return request

    def nameless(self, error: types.ErrorData, awaited: Collection[str]) -> None:
        if error.code in _UNREADABLE and awaited and len(self._nameless) < NAMELESS_ERRORS:
            self._nameless.append(_Nameless(error, set(awaited)))

    def left(self, key: str) -> None:
        self._repeated.discard(key)
        self.unsent = deque(message for message in self.unsent if _key_of(message) != key)
        self._nameless = [nameless for nameless in self._nameless if key not in nameless.candidates]

    def next_named(self) -> tuple[str, types.ErrorData] | None:
        self._nameless = [nameless for nameless in self._nameless if nameless.candidates]
        for nameless in self._nameless:
            # As many errors as candidates: each candidate has one.
            rivals = sum(other.candidates <= nameless.candidates for other in self._nameless)
            if rivals >= len(nameless.candidates):
                key = nameless.candidates.pop()
                self._nameless.remove(nameless)
                for other in self._nameless:
                    other.candidates.discard(key)
                self._repeated.discard(key)
                self._nameless_errors += 1
                return key, nameless.error
        return None


def _says(answer: types.JSONRPCError, words: re.Pattern[str]) -> bool:
    return any(words.search(quoted(text)) for text in texts_of(answer.error))


def _key_of(message: types.JSONRPCNotification | types.JSONRPCRequest) -> str | None:
    return key_of(message.id) if isinstance(message, types.JSONRPCRequest) else None


GOODBYE = 1000
TOO_BIG = 1009
ABNORMAL = 1006
"""The code of a connection that ended without a close frame (RFC 6455, section 7.1.5)."""


LONG_FRAME_BYTES: Final = 4 * KIB
"""Payloads of this length pass by wsproto, which takes 100 us for a frame of any length."""

EVENTS_PER_TURN: Final = 256
"""Frames processed before other tasks may run: one read holds up to 131,072 empty frames."""

_TEXT_WHOLE: Final = 0x81
"""The first byte of a text message in one frame (RFC 6455, section 5.2): FIN, no reserved bit, opcode 1."""
_SHORT_LENGTHS: Final = {126: 2, 127: 8}
"""Bytes of the extended length by the short one."""


@dataclass(slots=True)
class LongText:
    """A piece of the payload of a long text frame, which is a whole message."""

    data: memoryview
    message_finished: bool


class FrameSplitter:
    """Splits a server's bytes into pieces of long text frames, and bytes for wsproto. No clock, no stream.

    It holds at most a frame header and an incomplete character. Any chunking gives the same payloads and the
    same bytes for wsproto.
    """

    def __init__(self) -> None:
        self._header = b""
        """The beginning of an incomplete frame header."""
        self._left = 0
        """Bytes of the current frame's payload that have not arrived."""
        self._is_long = False
        """True if the current frame's payload is not for wsproto."""
        self._character = b""
        """The beginning of an incomplete character of the long frame."""
        self._is_fragmented = False
        """True in the middle of a message of several frames."""
        self._given_up = False

    def split(self, chunk: bytes) -> Iterator[bytes | LongText]:
        """Yield what `chunk` holds, in order.

        Raises `UnicodeDecodeError` if a long frame is not UTF-8: the connection has failed (section 8.1).
        """
        if self._header:
            chunk, self._header = self._header + chunk, b""
        view, at, end = memoryview(chunk), 0, len(chunk)
        start, frames = 0, 0  # of the bytes for wsproto
        while at < end and not self._given_up:
            if self._left:
                piece = view[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                if self._is_long:
                    self._check(piece)
                    yield LongText(piece, message_finished=not self._left)
                    start = at
                continue
            header_bytes = self._begin_frame(view[at:])
            if header_bytes is None:
                end = at
                self._header = chunk[at:]
                break
            if self._is_long or frames == EVENTS_PER_TURN:
                if start < at:
                    yield chunk[start:at]
                start, frames = at + header_bytes * self._is_long, 0
            at += header_bytes
            frames += 1
        if self._given_up:
            end = len(chunk)
        if start < end:
            yield chunk[start:end]

    def _begin_frame(self, view: memoryview) -> int | None:
        """Read the header at the beginning of `view`. Returns its length; None if it is incomplete."""
        if len(view) < 2:
            return None
        first, length = view[0], view[1]
        extended = _SHORT_LENGTHS.get(length, 0)
        if len(view) < 2 + extended:
            return None
        if extended:
            length = int.from_bytes(view[2 : 2 + extended], "big")
        is_control = first & 0x08
        # A mask, an extension that was not negotiated, or a control frame that is too long: wsproto says so.
        self._given_up = view[1] > 127 or bool(first & 0x70) or bool(is_control and extended)
        self._is_long = first == _TEXT_WHOLE and not self._is_fragmented and length >= LONG_FRAME_BYTES
        if self._is_long and extended == 8 and not 0xFFFF < length < 1 << 63:
            self._given_up = True  # not the shortest form, or negative
        self._is_long = self._is_long and not self._given_up
        if not is_control:
            self._is_fragmented = not first & 0x80
        self._left = length
        return 2 + extended

    def _check(self, piece: memoryview) -> None:
        text = self._character + piece if self._character else piece
        _text, used = codecs.utf_8_decode(text, "strict", not self._left)
        self._character = bytes(text[used:])


class FrameStream:
    """wsproto's frames over a trio stream. `send` may be called by several tasks, `receive` by one."""

    def __init__(self, stream: trio.abc.Stream, connection: WSConnection, received: bytes = b"") -> None:
        """`received`: the bytes that have arrived after the upgrade."""
        self._stream = stream
        self._connection = connection
        self._received = received
        self._splitter = FrameSplitter()
        self._sending = trio.StrictFIFOLock()
        self._unsent = b""
        """The rest of a frame that was not sent at once, before anything else."""
        self.sent_bytes = 0

    @property
    def closed_by_peer(self) -> bool:
        """True if the last `CloseConnection` event was a frame of the peer, and not wsproto's own verdict
        that the peer has broken the protocol."""
        return self._connection.state in (ConnectionState.REMOTE_CLOSING, ConnectionState.CLOSED)

    async def send(self, event: Event | None) -> None:
        """Send one frame; None: only what `send_at_once` has left. Raises `trio.BrokenResourceError` if the
        connection can't take it any more.

        Cancelled in the middle, it leaves half a frame behind: the connection can only be dropped.
        """
        async with self._sending:
            try:
                frame = b"" if event is None else self._connection.send(event)
            except LocalProtocolError as error:
                raise trio.BrokenResourceError from error
            n_bytes, frame, self._unsent = len(frame), self._unsent + frame, b""
            await self._stream.send_all(frame)
            self.sent_bytes += n_bytes

    def send_at_once(self, event: Event) -> bool | None:
        """Send one frame if the socket takes it now; False, with nothing sent, if not.

        None: it took a part. The rest is sent before the next frame; `send(None)` sends it at once.
        """
        if not isinstance(self._stream, trio.SocketStream) or self._sending.locked() or self._unsent:
            return False
        try:
            frame = self._connection.send(event)
            taken = os.write(self._stream.socket.fileno(), frame)
        except (LocalProtocolError, OSError):
            return False  # full, or broken: `send` finds out
        self.sent_bytes += len(frame)
        self._unsent = frame[taken:]
        return True if taken == len(frame) else None

    def pending(self) -> Iterator[Event | LongText]:
        """The events of the bytes received last, parsed one at a time during iteration."""
        received, self._received = self._received, b""
        try:
            for part in self._splitter.split(received):
                if isinstance(part, LongText):
                    yield part
                else:
                    self._connection.receive_data(part)
                    yield from self._connection.events()
        except UnicodeDecodeError as error:
            yield CloseConnection(code=CloseReason.INVALID_FRAME_PAYLOAD_DATA, reason=str(error))

    async def receive(self) -> bool:
        """Wait for more bytes; False at the end of the connection."""
        try:
            chunk = await self._stream.receive_some(RECEIVE_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        self._received = bytes(chunk)
        return bool(chunk)

    async def finish(self, code: int, reason: str | None = None, *, seconds: float) -> None:
        """Send a close frame, or answer the peer's, for `seconds` at most."""
        with trio.move_on_after(seconds):
            try:
                await self.send(CloseConnection(code=code, reason=reason))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return


class ControlFrames:
    """Pongs, pings and repeated requests: requested by the reading task, sent by a task of their own.

    The reading task never waits for writing.
    """

    def __init__(self, compatibility: Compatibility) -> None:
        self._compatibility = compatibility
        self._pong: bytes | None = None
        """The payload of the newest ping without a pong. Earlier ones need none (RFC 6455, 5.5.3)."""
        self._ping: bytes | None = None
        """The payload of our next ping."""
        self._has_unsent = False
        self._wakeup = trio.Event()
        self.sent_messages = 0

    def pong(self, payload: bytes) -> None:
        """The server has sent a ping."""
        self._pong = payload
        self._wakeup.set()

    def ping(self, payload: bytes) -> None:
        """The server has been silent."""
        self._ping = payload
        self._wakeup.set()

    def flush(self) -> None:
        """A frame was sent in part."""
        self._has_unsent = True
        self._wakeup.set()

    def notify(self) -> None:
        """Wake the sender if there are messages in `Compatibility.unsent`."""
        if self._compatibility.unsent:
            self._wakeup.set()

    async def run(self, frames: FrameStream) -> None:
        """Send what was requested, for ever.

        Raises `trio.BrokenResourceError` or `trio.ClosedResourceError` once the connection takes no more.
        """
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            if self._has_unsent:
                self._has_unsent = False
                await frames.send(None)
            if self._pong is not None:
                payload, self._pong = self._pong, None
                await frames.send(Pong(payload=payload))
            if self._ping is not None:
                payload, self._ping = self._ping, None
                await frames.send(Ping(payload=payload))
            while self._compatibility.unsent:
                encoded = messages.encode(self._compatibility.unsent.popleft())
                if not isinstance(encoded, UsageError):  # it was sent before, so it can be written
                    await frames.send(TextMessage(data=encoded.decode()))
                    self.sent_messages += 1


class Keepalive:
    """Pings after silence, and the verdict that a connection is dead. Times are on trio's clock.

    Any byte counts, not only a pong: a page of 1 MiB in one frame takes 65 s over 128 kbit/s, and no pong can
    arrive in the middle of it. While our own side does not read, silence does not count.

    Args:
        ping_seconds: silence after which a ping is due.
        pong_seconds: silence after a ping after which the connection is dead.
    """

    def __init__(self, *, ping_seconds: float, pong_seconds: float) -> None:
        self._ping_seconds = ping_seconds
        self._pong_seconds = pong_seconds
        self._received_at = trio.current_time()
        self._received = trio.Event()
        self.pings = 0
        self.paused = False
        """True while our own side does not read."""

    def note_received(self) -> None:
        """Bytes have arrived."""
        self._received_at = trio.current_time()
        self._received.set()

    async def watch(self, ping: Callable[[bytes], None]) -> float:
        """Call `ping` with a payload whenever one is due; return the seconds of silence once it is too
        long."""
        while True:
            await trio.sleep_until(self._received_at + self._ping_seconds)
            if trio.current_time() < self._received_at + self._ping_seconds:
                continue
            if self.paused:
                self.note_received()
                continue
            self._received = trio.Event()
            self.pings += 1
            ping(self.pings.to_bytes(4, "big"))
            with trio.move_on_after(self._pong_seconds):
                await self._received.wait()
            if not self._received.is_set() and not self.paused:
                return trio.current_time() - self._received_at
            self.note_received()


@dataclass(slots=True)
class _Skip:
    """A message that is being skipped. `reported` is set once its owner knows that it is overlong."""

    head: bytes
    length_bytes: int
    tail: bytes
    reported: bool = False


class MessageFramer:
    """Puts the pieces of messages together. No clock, no stream, no decoding.

    Args:
        max_bytes: the longest message to keep (`limits.message_bytes`).
        head_bytes: the length at which an incomplete message is announced. Default 64 KiB, as for lines.
    """

    def __init__(self, *, max_bytes: int, head_bytes: int = HEAD_BYTES) -> None:
        self._max_bytes = max_bytes
        self._head_bytes = min(head_bytes, max_bytes)
        self._buffer = BytesIO()
        """It gives up its `bytes` without a copy; see `jsonrpc.framing`."""
        self._announced = b""
        """The beginning of the message, once it was announced."""
        self._ended = False
        self._skip: _Skip | None = None
        self._endless = False

    @property
    def held_bytes(self) -> int:
        """Bytes held of the unfinished message."""
        return self._buffer.tell()

    @property
    def head(self) -> bytes:
        """The beginning of the unfinished message (at most `head_bytes`); empty between two messages."""
        if self._skip is not None:
            return self._skip.head
        return self._announced or self._begin_of_buffer()

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Take a piece of the current message. Drain `next_event` after each piece and each end."""
        if self._endless:
            return
        if self._skip is None:
            self._buffer.write(chunk)
            return
        self._skip.length_bytes += len(chunk)
        self._skip.tail = (self._skip.tail + bytes(chunk[-TAIL_BYTES:]))[-TAIL_BYTES:]

    def end_message(self) -> None:
        """The current message is complete."""
        self._ended = not self._endless

    def next_event(self) -> FrameEvent | None:
        """The next event, or None if more pieces are needed."""
        if self._endless:
            return None
        if self._skip is not None:
            return self._next_skipped(self._skip)
        length = self._buffer.tell()
        if length > self._head_bytes and not self._announced:
            self._announced = self._begin_of_buffer()
            return LongLine(head=self._announced)
        if length > self._max_bytes:
            self.skip_line()
            return self.next_event()
        if not self._ended:
            return None
        line, self._buffer = self._buffer, BytesIO()
        self._begin()
        return Line(data=line.getvalue())

    def skip_line(self) -> None:
        """Skip the rest of the message that the last `LongLine` announced; a `SkippedLine` marks its end."""
        if self._announced and self._skip is None:
            tail = bytes(self._buffer.getbuffer()[-TAIL_BYTES:])
            self._skip = _Skip(self.head, self._buffer.tell(), tail)
            self._buffer = BytesIO()

    def _next_skipped(self, skip: _Skip) -> FrameEvent | None:
        overlong = skip.length_bytes > self._max_bytes
        if overlong and not skip.reported:
            skip.reported = True
            return OverlongLine(head=skip.head)
        allowed = ENDLESS_FACTOR * self._max_bytes
        if skip.length_bytes > allowed:
            self._endless = True
            return EndlessLine(head=skip.head, allowed_bytes=allowed)
        if not self._ended:
            return None
        self._begin()
        self._skip = None
        return SkippedLine(head=skip.head, tail=skip.tail, length_bytes=skip.length_bytes, overlong=overlong)

    def _begin(self) -> None:
        self._announced = b""
        self._ended = False

    def _begin_of_buffer(self) -> bytes:
        return bytes(self._buffer.getbuffer()[: self._head_bytes])
