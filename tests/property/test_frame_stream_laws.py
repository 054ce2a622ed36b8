"""WebSocket frames: any chunking gives the same events, and the messages are those that wsproto reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, Pong, TextMessage

from playhead.protocol.frame_stream import End, FrameStream
from playhead.protocol.framing import HEAD_BYTES, Line, LineEvent, LongLine

CLIENT, SERVER = ConnectionType.CLIENT, ConnectionType.SERVER
ENDLESS = 1 << 62

SENT = st.one_of(
    st.tuples(st.just("text"), st.integers(0, 300)),
    st.tuples(st.just("text"), st.integers(HEAD_BYTES - 2, HEAD_BYTES + 2)),
    st.tuples(st.just("text"), st.integers(0xFFFE, 0x10002)),
    st.tuples(st.just("fragments"), st.integers(0, 5000)),
    st.tuples(st.just("binary"), st.integers(0, 300)),
    st.tuples(st.just("ping"), st.integers(0, 125)),
    st.tuples(st.just("close"), st.just(0)),
)
BROKEN = st.one_of(st.just(b""), st.binary(max_size=20).map(lambda broken: broken + bytes(16)))
"""The end completes the last head: wsproto refuses some before they are complete."""
ROLES = st.sampled_from([CLIENT, SERVER])


def other(role: ConnectionType) -> ConnectionType:
    return SERVER if role is CLIENT else CLIENT


def sent_by(role: ConnectionType, frames: Iterable[tuple[str, int]]) -> bytes:
    peer, data = Connection(role), b""

    def send(*events: Event) -> bytes:
        return b"".join(map(peer.send, events))

    for kind, length in frames:
        text = ("\u00fcx\u20ac" * length).encode()[:length].decode(errors="ignore").ljust(length, "y")
        match kind:
            case "ping":
                data += send(Ping(payload=b"p" * length), Pong(payload=b"unasked"))
            case "fragments":
                head, tail = TextMessage(data=text, message_finished=False), TextMessage(data=text)
                data += send(head, Ping(payload=b"between"), tail)
            case "binary":
                data += send(BytesMessage(data=b"\x00" * length))
            case "close":
                return data + send(CloseConnection(code=4001, reason="enough"))
            case _:
                data += send(TextMessage(data=text))
    return data


@dataclass
class Seen:
    """The messages and control frames that a receiver has read."""

    messages: list[bytes] = field(default_factory=list)
    pinged: bytes | None = None
    binary_messages: int = 0
    closed: tuple[bool, int] | None = None
    """True if the peer has closed, and the code."""


def by_wsproto(role: ConnectionType, data: bytes) -> Seen:
    connection, seen, text = Connection(role), Seen(), b""
    connection.receive_data(data)
    for event in connection.events():
        match event:
            case TextMessage():
                text += event.data.encode()
                if event.message_finished:
                    seen.messages.append(text)
                    text = b""
            case BytesMessage():
                seen.binary_messages += event.message_finished
            case Ping():
                seen.pinged = bytes(event.payload)
            case CloseConnection():
                by_peer = connection.state.name == "REMOTE_CLOSING"
                seen.closed = (by_peer, int(event.code))
                break
    return seen


def by_us(role: ConnectionType, chunks: Iterable[bytes]) -> Seen:
    frames, seen = FrameStream(role, max_bytes=ENDLESS), Seen()
    for chunk in chunks:
        frames.feed(chunk)
        while (event := frames.next_event()) is not None or frames.has_more:
            if isinstance(event, Line):
                seen.messages.append(event.data)
    seen.pinged = frames._pong
    seen.binary_messages = frames.binary_messages
    if frames.closed is not None:
        seen.closed = (frames.closed.end is End.PEER, frames.closed.code)
    return seen


def cut(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    return [data[start:end] for start, end in pairwise([0, *sorted(cuts), len(data)])]


@given(ROLES, st.lists(SENT, max_size=5), BROKEN, st.data())
def test_any_chunking_gives_the_messages_that_wsproto_reads(
    role: ConnectionType, frames: list[tuple[str, int]], broken: bytes, data: st.DataObject
) -> None:
    stream = sent_by(other(role), frames) + broken
    expected = by_wsproto(role, stream)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12))
    assert by_us(role, [stream]) == expected
    assert by_us(role, cut(stream, cuts)) == expected


@given(ROLES, st.lists(SENT.filter(lambda sent: sent[1] < 300), max_size=4), BROKEN)
def test_bytes_one_by_one_give_the_same(
    role: ConnectionType, frames: list[tuple[str, int]], broken: bytes
) -> None:
    stream = sent_by(other(role), frames) + broken
    assert by_us(role, [stream[at : at + 1] for at in range(len(stream))]) == by_wsproto(role, stream)


@given(
    st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=4), max_size=5), st.booleans(), st.data()
)
def test_limits_fall_at_the_same_places_whatever_the_chunking(
    messages: list[list[bytes]], skipping: bool, data: st.DataObject
) -> None:
    stream = b"".join(
        bytes([0x80 * (at == len(pieces) - 1) | (at == 0), len(piece)]) + b"x" * len(piece)
        for pieces in messages
        for at, piece in enumerate(pieces)
    )

    def events(chunks: Iterable[bytes]) -> list[LineEvent | int]:
        frames, found = FrameStream(CLIENT, max_bytes=30, allowed_bytes=90, head_bytes=8), []
        for chunk in chunks:
            frames.feed(chunk)
            while (event := frames.next_event()) is not None:
                found.append(event)
                if skipping and isinstance(event, LongLine):
                    frames.message.skip()
        return [*found, frames.closed.code if frames.closed is not None else 0]

    expected = events([stream])
    assert events(cut(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))) == expected
    assert events([stream[at : at + 1] for at in range(len(stream))]) == expected
