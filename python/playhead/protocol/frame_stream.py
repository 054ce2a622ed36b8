"""The frames of one WebSocket (RFC 6455), for either end: bytes and time in; messages, control frames and the
close out.

Theory of operation. Add received bytes with `feed`. `next_event` returns the text messages, with the classes
and limits of `framing`. Once it returns None, more bytes are needed or, if `has_more`, other tasks should run
first. Then call `on_time`; `control` returns the pongs, pings and close frames to send, and `closed` is set
once the connection has ended. Any chunking of the same bytes gives the same events. No clock, no stream, no
handshake.

wsproto reads and writes the frames, with two exceptions. It copies each byte of a payload five times, so a
client reads server messages of one frame without it, at a third of the cost. It reports a frame only with its
payload, so frame heads are read here, to refuse a frame that announces more than `allowed_bytes` at once.

A peer can make this hold one message of at most `max_bytes`, the head of a frame, and the payload of its
newest ping, the only one that gets a pong (section 5.5.3). Fragments are joined as they arrive, so that an
empty one costs no memory. Binary messages are counted and dropped, because JSON-RPC uses text frames. There
is no compression, because 64 KiB could become 64 MiB before any limit is checked.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason

from playhead.protocol.framing import HEAD_BYTES, Assembly, LineEvent

FRAMES_PER_TURN: Final = 256
"""Limits the frames read before other tasks may run: 64 KiB can hold 32,768 empty frames."""

_WHOLE_TEXT: Final = 0x81
"""The first byte of a text message in one frame (section 5.2): FIN, no reserved bit, opcode 1."""
_EXTENDED_BYTES: Final = {126: 2, 127: 8}
"""The number of bytes of the extended length, by the value in the second byte of a frame."""
_SHORTEST: Final = {0: 0, 2: 126, 8: 1 << 16}
"""The smallest payload length for which each number of extended bytes may be used. A smaller length must use
a shorter form."""


class End(Enum):
    """The reason for the end of a connection."""

    PEER = auto()
    """The peer sent a close frame."""
    CUT = auto()
    """The bytes ended without a close frame."""
    INVALID = auto()
    """The peer sent an invalid frame, or text that is not UTF-8."""
    TOO_LONG = auto()
    """A frame announced more than `allowed_bytes`."""
    REFUSED = auto()
    """A message had too many fragments, was not complete in time, or was refused by its owner."""
    SILENT = auto()
    """Nothing was received for `silence_seconds`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """The end of a connection."""

    end: End
    code: int
    """The code in the close frame, the peer's or ours. 1005 stands for a frame without a code, and 1006 for a
    missing frame (section 7.1.5)."""
    reason: str
    """The reason as text: for `End.PEER` the peer's own."""


class _Head(NamedTuple):
    """The head of a frame, without the mask."""

    size: int
    """The length of the head."""
    first: int
    """The first byte."""
    length: int
    """The length of the payload."""
    is_valid: bool

    @property
    def is_control(self) -> bool:
        return bool(self.first & 0x08)

    @property
    def is_whole_text(self) -> bool:
        """True if the frame is a whole text message."""
        return self.first == _WHOLE_TEXT and self.length > 0 and self.is_valid


class FrameStream:
    """The frames of one connection after the handshake.

    Args:
        role: our side of the connection.
        max_bytes: the longest message to return. The rest of a longer one is skipped.
        allowed_bytes: the longest message to skip. A frame that makes it longer ends the connection with
            1009. Default `max_bytes`.
        head_bytes: the length at which an incomplete message is announced. Default 64 KiB, as for lines.
        max_fragments: the most frames of one message; more end the connection with 1008. An empty frame costs
            no memory, but some 15 µs.
        message_seconds: the longest time from the first to the last frame of a message; after it, 1008.
        ping_seconds: the silence after which a ping is sent, and the time between two pings.
        silence_seconds: the silence that ends the connection with 1008. Any byte ends a silence, because a
            pong cannot arrive in the middle of a long frame.
        now: the time.
    """

    def __init__(
        self,
        role: ConnectionType,
        *,
        max_bytes: int,
        allowed_bytes: int | None = None,
        head_bytes: int = HEAD_BYTES,
        max_fragments: float = math.inf,
        message_seconds: float = math.inf,
        ping_seconds: float = math.inf,
        silence_seconds: float = math.inf,
        now: float = 0.0,
    ) -> None:
        self._is_client = role is ConnectionType.CLIENT
        self._allowed_bytes = max_bytes if allowed_bytes is None else allowed_bytes
        self._max_fragments = max_fragments
        self._message_seconds = message_seconds
        self._ping_seconds = ping_seconds
        self._silence_seconds = silence_seconds
        self._frames = Connection(role)
        self._events: Iterator[Event] = iter(())
        self.message = Assembly(max_bytes=max_bytes, allowed_bytes=self._allowed_bytes, head_bytes=head_bytes)
        self._unread = b""
        self._at = 0
        self._frames_in_turn = 0
        """The frames read since `next_event` last returned None."""
        self.has_more = False
        """True if `next_event` returned None before it had read everything."""

        self._frame_left = 0
        """The bytes of the current frame that have not been read, mask included."""
        self._is_control = False
        self._skips_wsproto = False
        """True if the current frame is read here, without wsproto."""
        self._incomplete_character = b""
        """The beginning of an incomplete character at the end of the payload that was read here."""
        self._fragments = 0
        """The frames of the unfinished message so far; 0 between two messages."""
        self._length_bytes = 0
        """The bytes that the heads of the unfinished message have announced."""

        self._has_begun = False
        """True if a message has begun since the last `on_time`."""
        self._has_received = False
        """True if bytes have arrived since the last `on_time`."""
        self._received_at = self._silent_since = self._pinged_at = now
        self._message_since = math.inf
        self._pong: bytes | None = None
        """The payload of the newest ping of the peer's without a pong."""
        self._ping_is_due = False
        self._is_closing = False
        """True once `close` was called. Messages are dropped then."""
        self.pings = 0
        """The number of pings sent."""
        self.ponged = 0
        """The number of the newest ping that was answered. Its pong answers earlier pings too."""
        self.binary_messages = 0
        self.closed: Closed | None = None
        """Set at the end of the connection."""

    # --- what is received ----------------------------------------------------------------------------

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Add received bytes. Drain `next_event`, then call `on_time`."""
        self._has_received = True
        if self.closed is None:
            self._unread = self._unread + chunk if self._unread else bytes(chunk)

    def end(self) -> None:
        """Record that the connection has ended."""
        self._close(End.CUT, CloseReason.ABNORMAL_CLOSURE, "")

    def refuse(self, code: int, reason: str) -> None:
        """End the connection because of a message. `control` returns the close frame."""
        self._close(End.REFUSED, code, reason)

    def next_event(self) -> LineEvent | None:
        """Return the next event; None if more bytes are needed, or after `FRAMES_PER_TURN` frames
        (`has_more`)."""
        while (event := self.message.next_event()) is None and self.closed is None:
            if (frame := next(self._events, None)) is not None:
                self._on_event(frame)
            elif not self._read_frames():
                self.has_more = self._frames_in_turn >= FRAMES_PER_TURN
                self._frames_in_turn = 0
                self._unread, self._at = self._unread[self._at :], 0
                break
            elif self.closed is not None and self.closed.end is End.TOO_LONG:
                return self.message.end()
        return event

    def _read_frames(self) -> bool:
        """Read the next frames, or the next piece of a long one. False if bytes are missing.

        Collects frames for wsproto, up to the first that is read or refused here; that one is next.
        """
        data, start, end = self._unread, self._at, len(self._unread)
        at = start  # `data[start:at]` has the frames that wsproto will read
        while at < end and self._frames_in_turn < FRAMES_PER_TURN:
            if self._frame_left:
                n_bytes = min(self._frame_left, end - at)
                self._frame_left -= n_bytes
                at += n_bytes
                if self._skips_wsproto:
                    self._at = at
                    self._write_payload(memoryview(data)[at - n_bytes : at])
                    return True
                continue
            head = self._head_at(at)
            if head is None:
                break
            refusal = self._refusal(head)
            skips_wsproto = self._is_client and head.is_whole_text and not self._fragments
            if at > start and (skips_wsproto or refusal is not None):
                break  # wsproto reads the frames before this one first
            if refusal is not None:
                self._close(*refusal)
                return True
            self._begin_frame(head, skips_wsproto=skips_wsproto)
            at += head.size
            if skips_wsproto:
                start = at
        self._at = at
        if start < at:
            self._frames.receive_data(data[start:at])
            self._events = self._frames.events()
        return start < at

    def _head_at(self, at: int) -> _Head | None:
        """Return the head of the frame that begins there; None if it is incomplete."""
        data = self._unread
        if len(data) < at + 2:
            return None
        first, length, is_masked = data[at], data[at + 1] & 0x7F, data[at + 1] > 0x7F
        extended = _EXTENDED_BYTES.get(length, 0)
        size = 2 + extended
        if len(data) < at + size:
            return None
        if extended:
            length = int.from_bytes(data[at + 2 : at + size], "big")
        is_from_peer = is_masked != self._is_client  # only clients mask their frames (section 5.1)
        return _Head(size, first, length, is_from_peer and _SHORTEST[extended] <= length < 1 << 63)

    def _refusal(self, head: _Head) -> tuple[End, CloseReason, str] | None:
        """Return the reason to end the connection at this head. Invalid heads are left to wsproto."""
        if head.is_control or not head.is_valid:
            return None
        if self._length_bytes + head.length > self._allowed_bytes:
            reason = f"a message may have {self._allowed_bytes} bytes"
            return End.TOO_LONG, CloseReason.MESSAGE_TOO_BIG, reason
        if self._fragments >= self._max_fragments:
            reason = f"a message may have {self._max_fragments} fragments"
            return End.REFUSED, CloseReason.POLICY_VIOLATION, reason
        return None

    def _begin_frame(self, head: _Head, *, skips_wsproto: bool) -> None:
        self._frames_in_turn += 1
        self._skips_wsproto = skips_wsproto
        mask_bytes = 0 if self._is_client else 4
        self._frame_left = mask_bytes + head.length
        self._is_control = head.is_control
        if head.is_control:
            return
        self._has_begun = self._has_begun or not self._fragments
        self._fragments += 1
        self._length_bytes += head.length
        if head.first & 0x80:  # FIN: the last frame of the message
            self._fragments = self._length_bytes = 0

    def _write_payload(self, piece: memoryview) -> None:
        """Add a piece of the text of a frame that is read here. It may end within a character."""
        text = self._incomplete_character + piece if self._incomplete_character else piece
        try:
            _text, used = codecs.utf_8_decode(text, "strict", not self._frame_left)
        except UnicodeDecodeError as error:
            self._close(End.INVALID, CloseReason.INVALID_FRAME_PAYLOAD_DATA, str(error))
            return
        self._incomplete_character = bytes(text[used:])
        self._write_text(piece, ends=not self._frame_left)

    def _on_event(self, frame: Event) -> None:
        match frame:
            case TextMessage():
                self._write_text(frame.data.encode(), ends=frame.message_finished)
            case BytesMessage():
                if frame.message_finished:
                    self.binary_messages += 1
            case Ping():
                self._pong = bytes(frame.payload)
            case Pong():
                number = int.from_bytes(frame.payload, "big") if len(frame.payload) == 4 else 0
                if self.ponged < number <= self.pings:
                    self.ponged = number
            case CloseConnection():
                by_peer = self._frames.state in (ConnectionState.REMOTE_CLOSING, ConnectionState.CLOSED)
                self._close(End.PEER if by_peer else End.INVALID, frame.code, frame.reason or "")
            case _:
                raise AssertionError(f"expected a frame, got {frame!r}")

    def _write_text(self, piece: bytes | memoryview, *, ends: bool) -> None:
        if not self._is_closing:
            self.message.write(piece, ends=ends)

    def _close(self, end: End, code: int, reason: str) -> None:
        if self.closed is None:
            self.closed = Closed(end=end, code=int(code), reason=reason)
            self._unread, self._at = b"", 0
            if end is not End.TOO_LONG:
                self.message.drop()

    # --- time ----------------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """The time at which to call `on_time` if nothing arrives before; infinite if never."""
        if self.closed is not None:
            return math.inf
        return min(
            max(self._received_at, self._pinged_at) + self._ping_seconds,
            self._silent_since + self._silence_seconds,
            self._message_since + self._message_seconds,
        )

    def on_time(self, now: float) -> None:
        """Check the time limits. Call it when the events of a `feed` are drained, and when it is `due`."""
        if self._has_received:
            self._has_received = False
            self._received_at = self._silent_since = now
        # Unread bytes of a control frame belong to no message.
        is_between_messages = not self._fragments and (self._is_control or not self._frame_left)
        if is_between_messages:
            self._message_since = math.inf
        elif self._has_begun:
            self._message_since = now
        self._has_begun = False
        if now >= self._message_since + self._message_seconds:
            self._close(End.REFUSED, CloseReason.POLICY_VIOLATION, "a message was not complete in time")
        elif now >= self._silent_since + self._silence_seconds:
            reason = f"nothing was received for {self._silence_seconds:g} s"
            self._close(End.SILENT, CloseReason.POLICY_VIOLATION, reason)
        elif now >= max(self._received_at, self._pinged_at) + self._ping_seconds:
            self.ping(now)

    def excuse(self, now: float) -> None:
        """Do not count the silence until `now`, because the caller did not read, or expected nothing."""
        self._silent_since = now

    # --- what is sent --------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """True while messages can be sent."""
        return self._frames.state is ConnectionState.OPEN

    def text(self, message: str) -> bytes:
        """Return the frame of a message.

        Raises `wsproto.utilities.LocalProtocolError` if the connection is not open.
        """
        return self._frames.send(TextMessage(data=message))

    def ping(self, now: float) -> int:
        """Add a ping to `control`. Return its number, which `ponged` reaches once it is answered."""
        if not self._ping_is_due:
            self._ping_is_due = True
            self.pings += 1
        self._pinged_at = now
        return self.pings

    def close(self, code: int, reason: str = "") -> bytes:
        """Return our close frame, or the answer to the peer's; empty if it was sent already. Further messages
        are dropped."""
        self._is_closing = True
        self.message.drop()
        if self._frames.state not in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            return b""
        if code == CloseReason.NO_STATUS_RCVD:
            code = CloseReason.NO_STATUS_RCVD  # wsproto compares by identity
        return self._frames.send(CloseConnection(code=code, reason=reason or None))

    @property
    def has_control(self) -> bool:
        """True if `control` has frames to send. Send them between two messages."""
        must_close = self.closed is not None and self.closed.end is not End.CUT and not self._is_closing
        return self._pong is not None or self._ping_is_due or must_close

    def control(self) -> bytes:
        """Return the control frames to send now."""
        frames = b""
        if self.is_open and self._pong is not None:
            frames += self._frames.send(Pong(payload=self._pong))
        if self.is_open and self._ping_is_due:
            frames += self._frames.send(Ping(payload=self.pings.to_bytes(4, "big")))
        self._pong, self._ping_is_due = None, False
        if self.closed is not None and self.closed.end is not End.CUT:
            frames += self.close(self.closed.code, "" if self.closed.end is End.PEER else self.closed.reason)
        return frames
