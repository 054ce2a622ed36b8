"""The framing of WebSocket messages: any cutting into pieces gives the same events and the same frames."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import Event, Ping, TextMessage

from playhead.client.transports.websocket_wire import (
    LONG_FRAME_BYTES,
    FrameSplitter,
    FrameStream,
    LongText,
    MessageFramer,
)
from playhead.protocol.framing import (
    EndlessLine,
    FrameEvent,
    Line,
    LongLine,
    OverlongLine,
    SkippedLine,
)

MESSAGES = st.lists(st.binary(max_size=60), max_size=6)


def events_of(pieces: Iterable[tuple[bytes, bool]], *, skipping: bool = False) -> Iterator[FrameEvent]:
    framer = MessageFramer(max_bytes=20, head_bytes=8)
    for piece, ends in pieces:
        framer.feed(piece)
        while (event := framer.next_event()) is not None:
            yield event
            if skipping and isinstance(event, LongLine):
                framer.skip_line()
        if ends:
            framer.end_message()
            while (event := framer.next_event()) is not None:
                yield event


def whole(messages: list[bytes]) -> list[tuple[bytes, bool]]:
    return [(message, True) for message in messages]


def bytewise(messages: list[bytes]) -> Iterator[tuple[bytes, bool]]:
    for message in messages:
        for at in range(len(message)):
            yield message[at : at + 1], False
        yield b"", True


@given(MESSAGES, st.booleans())
def test_pieces_of_a_byte_give_the_events_of_whole_messages(messages: list[bytes], skipping: bool) -> None:
    expected = list(events_of(whole(messages), skipping=skipping))
    assert list(events_of(bytewise(messages), skipping=skipping)) == expected


@given(MESSAGES, st.data())
def test_any_cutting_gives_the_same_events(messages: list[bytes], data: st.DataObject) -> None:
    pieces: list[tuple[bytes, bool]] = []
    for message in messages:
        cut = data.draw(st.integers(0, len(message)))
        pieces += [(message[:cut], False), (b"", False), (message[cut:], True)]
    assert list(events_of(pieces)) == list(events_of(whole(messages)))


def test_a_newline_is_a_byte_like_any_other() -> None:
    assert list(events_of(whole([b"{\n}", b"\n"]))) == [Line(data=b"{\n}"), Line(data=b"\n")]


def test_a_long_message_is_announced_before_it_is_whole() -> None:
    assert list(events_of([(b"123456789", False)])) == [LongLine(head=b"12345678")]


def test_an_overlong_message_is_told_and_skipped_and_the_next_comes_through() -> None:
    assert list(events_of(whole([b"x" * 30, b"{}"]))) == [
        LongLine(head=b"xxxxxxxx"),
        OverlongLine(head=b"xxxxxxxx"),
        SkippedLine(head=b"xxxxxxxx", tail=b"x" * 30, length_bytes=30, overlong=True),
        Line(data=b"{}"),
    ]


def test_a_message_without_end_is_the_last_event() -> None:
    events = list(events_of([(b"x" * 50, False), (b"x" * 50, True), (b"{}", True)]))
    assert events[-1] == EndlessLine(head=b"xxxxxxxx", allowed_bytes=80)


def test_a_million_empty_pieces_cost_nothing_and_a_skipped_message_is_not_held() -> None:
    framer = MessageFramer(max_bytes=20, head_bytes=8)
    for _ in range(100_000):
        framer.feed(b"")
        assert framer.next_event() is None
    assert framer.held_bytes == 0
    framer.feed(b"x" * 40)
    while framer.next_event() is not None:
        pass
    assert framer.held_bytes == 0
    assert framer.head == b"xxxxxxxx"


SENT = st.one_of(
    st.tuples(st.just("text"), st.integers(0, 300)),
    st.tuples(st.just("text"), st.integers(LONG_FRAME_BYTES - 2, LONG_FRAME_BYTES + 2)),
    st.tuples(st.just("text"), st.integers(0xFFFE, 0x10002)),
    st.tuples(st.just("fragment"), st.integers(0, 2 * LONG_FRAME_BYTES)),
    st.tuples(st.just("ping"), st.integers(0, 125)),
)


def sent_by(server: Connection, frames: Iterable[tuple[str, int]]) -> Iterator[bytes]:
    for kind, length in frames:
        text = ("\u00fcx\u20ac" * length).encode()[:length].decode(errors="ignore").ljust(length, "y")
        match kind:
            case "ping":
                yield server.send(Ping(payload=b"p" * length))
            case "fragment":
                yield server.send(TextMessage(data=text, message_finished=False))
                yield server.send(Ping(payload=b"between"))
                yield server.send(TextMessage(data=text))
            case _:
                yield server.send(TextMessage(data=text))


def received(chunks: Iterable[bytes], splitter: FrameSplitter | None) -> list[str | bytes]:
    """The messages and pings that a client gets from `chunks`, by wsproto alone without a `splitter`."""
    client = Connection(ConnectionType.CLIENT)
    events: list[str | bytes] = []
    text = b""

    def note(event: Event | LongText) -> None:
        nonlocal text
        match event:
            case TextMessage() | LongText():
                text += event.data.encode() if isinstance(event, TextMessage) else event.data
                if event.message_finished:
                    events.append(text.decode())
                    text = b""
            case Ping():
                events.append(bytes(event.payload))
            case other:
                raise AssertionError(f"expected messages and pings, got {other}")

    for chunk in chunks:
        for part in [chunk] if splitter is None else splitter.split(chunk):
            if isinstance(part, LongText):
                note(part)
            else:
                client.receive_data(part)
                for event in client.events():
                    note(event)
    return events


@given(st.lists(SENT, max_size=5), st.data())
def test_long_frames_pass_by_wsproto_and_any_cutting_gives_the_same_messages(
    frames: list[tuple[str, int]], data: st.DataObject
) -> None:
    stream = b"".join(sent_by(Connection(ConnectionType.SERVER), frames))
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))
    chunks = [stream[start:end] for start, end in pairwise([0, *cuts, len(stream)]) if start < end]
    expected = received([stream], None)
    assert received([stream], FrameSplitter()) == expected
    assert received(chunks, FrameSplitter()) == expected


def test_byte_by_byte_a_long_frame_is_the_same_message() -> None:
    stream = b"".join(sent_by(Connection(ConnectionType.SERVER), [("text", 5000), ("ping", 3), ("text", 2)]))
    assert received([stream[at : at + 1] for at in range(len(stream))], FrameSplitter()) == received(
        [stream], None
    )


def test_of_a_long_frame_wsproto_gets_nothing() -> None:
    first, long, last = sent_by(Connection(ConnectionType.SERVER), [("text", 5), ("text", 5000), ("text", 6)])
    before, piece, after = FrameSplitter().split(first + long + last)
    assert (before, after) == (first, last)
    assert isinstance(piece, LongText)
    assert piece.data == long[4:]


def test_half_a_character_at_the_end_of_a_long_frame_is_not_utf_8() -> None:
    with pytest.raises(UnicodeDecodeError):
        list(FrameSplitter().split(b"\x81\x7e" + (5000).to_bytes(2, "big") + b"x" * 4999 + b"\xc3"))


async def test_a_frame_that_the_socket_takes_in_part_is_sent_before_the_next_one() -> None:
    near, far = trio.socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    frames = FrameStream(trio.SocketStream(near), Connection(ConnectionType.CLIENT))  # type: ignore[arg-type]
    server, texts = Connection(ConnectionType.SERVER), [f"{number}" * 3001 for number in range(100)]
    taken = None
    sent = 0
    while taken is not False:
        taken = frames.send_at_once(TextMessage(data=texts[sent]))
        sent += taken is not False
    assert 0 < sent < len(texts)
    got: list[str] = []

    async def receive() -> None:
        text = ""
        while len(got) < sent + 1:
            server.receive_data(await far.recv(1000))
            for event in server.events():
                assert isinstance(event, TextMessage)
                text += event.data
                if event.message_finished:
                    got.append(text)
                    text = ""

    with near, far, trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await frames.send(TextMessage(data=texts[sent]))
    assert got == texts[: sent + 1]
