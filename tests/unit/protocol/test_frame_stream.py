"""One WebSocket's frames at either end: limits, control frames, time, and an independent library opposite."""

from __future__ import annotations

import math

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Close, Frame, Opcode
from websockets.protocol import Event, Protocol, State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Ping, Pong, TextMessage
from wsproto.utilities import LocalProtocolError

from playhead.protocol.frame_stream import FRAMES_PER_TURN, Closed, End, FrameStream
from playhead.protocol.framing import (
    EndlessLine,
    Line,
    LineEvent,
    LongLine,
    OverlongLine,
    SkippedLine,
)

CLIENT, SERVER = ConnectionType.CLIENT, ConnectionType.SERVER


def client(*, max_bytes: int = 20, allowed_bytes: int | None = 80, **more: float) -> FrameStream:
    return FrameStream(CLIENT, max_bytes=max_bytes, allowed_bytes=allowed_bytes, head_bytes=8, **more)


def frame(payload: bytes, *, first: bool = True, final: bool = True) -> bytes:
    return bytes([0x80 * final | first, len(payload)]) + payload


def events(frames: FrameStream, data: bytes) -> list[LineEvent]:
    frames.feed(data)
    found: list[LineEvent] = []
    while (event := frames.next_event()) is not None or frames.has_more:
        if event is not None:
            found.append(event)
    return found


# --- limits --------------------------------------------------------------------------------------------


def test_a_long_message_is_announced_before_it_is_whole() -> None:
    assert events(client(), frame(b"123456789", final=False)) == [LongLine(head=b"12345678")]


def test_a_newline_is_a_byte_like_any_other() -> None:
    assert events(client(), frame(b"{\n}") + frame(b"\n")) == [Line(data=b"{\n}"), Line(data=b"\n")]


def test_an_overlong_message_is_reported_and_skipped_and_the_next_one_is_read() -> None:
    frames = client()
    assert events(frames, frame(b"x" * 30, final=False)) == [
        LongLine(head=b"xxxxxxxx"),
        OverlongLine(head=b"xxxxxxxx"),
    ]
    assert (frames.message.held_bytes, frames.message.head) == (0, b"xxxxxxxx")
    assert events(frames, frame(b"end", first=False) + frame(b"{}")) == [
        SkippedLine(head=b"xxxxxxxx", tail=b"x" * 30 + b"end", length_bytes=33, overlong=True),
        Line(data=b"{}"),
    ]


def test_the_owner_may_skip_a_long_message() -> None:
    frames = client()
    assert events(frames, frame(b"123456789", final=False)) == [LongLine(head=b"12345678")]
    frames.message.skip()
    assert frames.message.held_bytes == 0
    assert events(frames, frame(b"0", first=False)) == [
        SkippedLine(head=b"12345678", tail=b"1234567890", length_bytes=10, overlong=False)
    ]


@pytest.mark.parametrize("role", [CLIENT, SERVER])
def test_a_frame_that_announces_too_much_is_refused_at_its_head_with_1009(role: ConnectionType) -> None:
    mask = 0 if role is CLIENT else 0x80
    frames = FrameStream(role, max_bytes=1000)
    assert events(frames, bytes([0x81, mask | 126]) + (1001).to_bytes(2, "big")) == [
        EndlessLine(head=b"", allowed_bytes=1000)
    ]
    assert frames.closed is not None
    assert (frames.closed.end, frames.closed.code) == (End.TOO_LONG, 1009)
    closing = Connection(SERVER if role is CLIENT else CLIENT)
    closing.receive_data(frames.control())
    assert [(event.code, event.reason) for event in closing.events()] == [  # type: ignore[attr-defined]
        (1009, "a message may have 1000 bytes")
    ]
    assert events(frames, b"\x00" * 2000) == []


def test_fragments_that_are_too_long_together_are_refused_at_the_head_of_the_last() -> None:
    frames = client()
    found = events(frames, frame(b"x" * 50, final=False) + frame(b"y" * 31, first=False)[:2])
    assert found[-1] == EndlessLine(head=b"xxxxxxxx", allowed_bytes=80)


def test_a_binary_message_is_counted_and_held_nowhere() -> None:
    frames = client()
    assert events(frames, b"\x02\x40" + b"\x00" * 64 + b"\x80\x01\x00" + frame(b"{}")) == [Line(data=b"{}")]
    assert frames.binary_messages == 1
    assert events(frames, b"\x82\x51") == [EndlessLine(head=b"", allowed_bytes=80)]


def test_a_hundred_thousand_empty_fragments_cost_nothing() -> None:
    frames = client()
    assert events(frames, frame(b"{", final=False) + frame(b"", first=False, final=False) * 100_000) == []
    assert frames.message.held_bytes == 1
    assert events(frames, frame(b"}", first=False)) == [Line(data=b"{}")]


def test_too_many_fragments_end_the_connection_with_1008() -> None:
    frames = client(max_fragments=3)
    empty = frame(b"", first=False, final=False)
    assert events(frames, frame(b"", final=False) + empty + frame(b"", first=False)) == [Line(data=b"")]
    assert events(frames, frame(b"", final=False) + empty * 3) == []
    assert frames.closed is not None
    assert (frames.closed.end, frames.closed.code) == (End.REFUSED, 1008)


def test_the_owner_may_end_the_connection_at_a_message() -> None:
    frames = client()
    assert events(frames, frame(b"123456789", final=False)) == [LongLine(head=b"12345678")]
    frames.refuse(1013, "later")
    assert frames.closed == Closed(end=End.REFUSED, code=1013, reason="later")
    assert (events(frames, frame(b"0", first=False)), frames.message.held_bytes) == ([], 0)
    closing = Connection(SERVER)
    closing.receive_data(frames.control())
    assert [event.code for event in closing.events() if isinstance(event, CloseConnection)] == [1013]
    frames.refuse(1003, "too late")
    assert frames.closed.code == 1013


def test_thousands_of_messages_in_one_read_are_all_read() -> None:
    assert events(client(), frame(b"{}") * 3000 + frame(b"")) == [Line(data=b"{}")] * 3000 + [Line(data=b"")]


def test_others_may_run_after_a_few_hundred_frames() -> None:
    frames = client()
    frames.feed(frame(b"", final=False) + frame(b"", first=False, final=False) * 3 * FRAMES_PER_TURN)
    turns = 0
    while frames.next_event() is None and frames.has_more:
        turns += 1
    assert turns == 3


# --- control frames ------------------------------------------------------------------------------------


def test_only_the_newest_of_a_flood_of_pings_is_answered() -> None:
    frames = client()
    assert events(frames, b"".join(b"\x89\x04%04d" % number for number in range(1000))) == []
    assert frames.has_control
    peer = Connection(SERVER)
    peer.receive_data(frames.control())
    assert list(peer.events()) == [Pong(payload=b"0999")]
    assert (frames.has_control, frames.control()) == (False, b"")


def test_a_pong_answers_its_ping_and_those_before_it() -> None:
    frames, peer = client(), Connection(SERVER)
    pings: list[Ping] = []
    for number in (1, 2, 3):
        assert frames.ping(0.0) == number
        assert frames.ping(0.0) == number, "one ping is due at a time"
        peer.receive_data(frames.control())
        pings += [event for event in peer.events() if isinstance(event, Ping)]
    events(frames, peer.send(Pong(payload=b"unasked")) + peer.send(Pong(payload=b"\x00\x00\x00\x09")))
    assert frames.ponged == 0
    events(frames, peer.send(pings[1].response()))
    assert frames.ponged == 2
    events(frames, peer.send(pings[0].response()))
    assert frames.ponged == 2


def test_after_our_close_messages_are_dropped_until_the_peers() -> None:
    frames, peer = client(), Connection(SERVER)
    events(frames, frame(b"x" * 10, final=False))
    peer.receive_data(frames.close(1000, "bye"))
    (closing,) = peer.events()
    assert not frames.is_open
    assert frames.close(1000) == b""
    with pytest.raises(LocalProtocolError):
        frames.text("{}")
    assert events(frames, frame(b"x" * 70, first=False) + frame(b"{}")) == []
    assert frames.message.held_bytes == 0
    events(frames, peer.send(closing.response()))  # type: ignore[attr-defined]
    assert frames.closed is not None
    assert frames.closed.end is End.PEER
    assert frames.control() == b""


@pytest.mark.parametrize(
    ("closing", "code", "answer"), [(b"\x88\x02\x0f\xa1", 4001, b"\x0f\xa1"), (b"\x88\x00", 1005, b"")]
)
def test_the_peers_close_is_answered_with_its_code(closing: bytes, code: int, answer: bytes) -> None:
    frames = FrameStream(SERVER, max_bytes=20)
    events(frames, closing[:1] + bytes([closing[1] | 0x80]) + bytes(4) + closing[2:])
    assert frames.closed is not None
    assert (frames.closed.end, frames.closed.code) == (End.PEER, code)
    assert frames.control() == bytes([0x88, len(answer)]) + answer
    assert not frames.has_control


def test_the_end_without_a_close_frame_has_no_answer() -> None:
    frames = client()
    frames.end()
    assert frames.closed is not None
    assert (frames.closed.end, frames.closed.code) == (End.CUT, 1006)
    assert (frames.has_control, frames.control(), frames.due) == (False, b"", math.inf)


# --- time ----------------------------------------------------------------------------------------------


def test_silence_is_pinged_again_and_again_and_then_ends_the_connection() -> None:
    frames, pinged = client(ping_seconds=20, silence_seconds=80, now=1000), []
    while frames.closed is None:
        now = frames.due
        frames.on_time(now)
        if frames.has_control and frames.closed is None:
            pinged.append(now)
            frames.control()
    assert pinged == [1020, 1040, 1060]
    assert (now, frames.closed.end, frames.closed.code) == (1080, End.SILENT, 1008)


def test_any_byte_puts_off_the_ping_and_the_end() -> None:
    frames = client(ping_seconds=20, silence_seconds=80)
    for now in (19.0, 38.0, 57.0):
        events(frames, b"\x01\x01x"[:1])
        frames.on_time(now)
        assert not frames.has_control
        assert frames.due == now + 20
        events(frames, b"\x01x" + b"\x80\x00")
    frames.on_time(57.0 + 79)
    assert frames.closed is None


def test_silence_that_is_excused_ends_nothing_and_is_pinged_all_the_same() -> None:
    frames = client(ping_seconds=20, silence_seconds=80)
    for now in range(20, 1000, 20):
        frames.excuse(now)
        frames.on_time(now)
        assert frames.control() != b""
    assert frames.closed is None
    frames.on_time(980 + 80)
    assert frames.closed is not None


def test_a_message_has_its_time_from_its_first_frame_to_its_last() -> None:
    frames = client(message_seconds=20, now=1000)
    assert frames.due == math.inf
    events(frames, frame(b"a", final=False))
    frames.on_time(1001)
    events(frames, frame(b"a", first=False, final=False) + b"\x89\x00")
    frames.on_time(1015)
    assert frames.due == 1021
    events(frames, frame(b"a", first=False) + frame(b"b", final=False))
    frames.on_time(1020)
    assert frames.due == 1040, "the next one has its own"
    frames.on_time(1040)
    assert frames.closed is not None
    assert (frames.closed.end, frames.closed.code) == (End.REFUSED, 1008)


def test_between_two_messages_no_time_runs_not_even_in_a_ping() -> None:
    frames = client(message_seconds=20)
    events(frames, frame(b"a") + b"\x89\x05abc")
    frames.on_time(1)
    assert frames.due == math.inf
    events(frames, b"de" + frame(b"a")[:1])
    frames.on_time(2)
    assert frames.due == math.inf
    events(frames, frame(b"a")[1:2])
    frames.on_time(3)
    assert frames.due == 23


# --- with an independent library opposite --------------------------------------------------------------


def opposite(role: ConnectionType) -> Protocol:
    if role is SERVER:
        return ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)
    return ServerProtocol(state=State.OPEN, max_size=None)


def received(peer: Protocol, data: bytes) -> list[Event]:
    peer.receive_data(data)
    assert peer.parser_exc is None
    return peer.events_received()


@pytest.mark.parametrize("role", [CLIENT, SERVER])
def test_messages_pings_and_the_close_go_both_ways_with_another_library(role: ConnectionType) -> None:
    frames, peer = FrameStream(role, max_bytes=1 << 20), opposite(role)
    texts = ["", "{}", "\u00fc" * 100, "x" * 70_000, "\u20ac" * 300_000]
    for text in texts:
        (got,) = received(peer, frames.text(text))
        assert isinstance(got, Frame)
        assert (got.opcode, got.data) == (Opcode.TEXT, text.encode())
    for text in texts:
        peer.send_text(text.encode())
        (sent,) = peer.data_to_send()
        assert events(frames, sent)[-1] == Line(data=text.encode())
    peer.send_text(b"in ", fin=False)
    peer.send_ping(b"are you there?")
    peer.send_continuation(b"two", fin=True)
    assert events(frames, b"".join(peer.data_to_send())) == [Line(data=b"in two")]
    (pong,) = received(peer, frames.control())
    assert isinstance(pong, Frame)
    assert (pong.opcode, pong.data) == (Opcode.PONG, b"are you there?")
    frames.ping(0.0)
    received(peer, frames.control())
    assert events(frames, b"".join(peer.data_to_send())) == []  # the pong, which it sends by itself
    assert frames.ponged == 1
    received(peer, frames.close(1001, "restarting"))
    assert peer.close_rcvd == Close(1001, "restarting")
    assert events(frames, b"".join(peer.data_to_send())) == []
    assert frames.closed is not None
    assert (frames.closed.end, frames.closed.code) == (End.PEER, 1001)


@pytest.mark.parametrize("role", [CLIENT, SERVER])
def test_the_other_library_is_refused_at_the_head_of_its_long_message(role: ConnectionType) -> None:
    frames, peer = FrameStream(role, max_bytes=10_000), opposite(role)
    peer.send_text(b"x" * 10_001)
    (sent,) = peer.data_to_send()
    assert events(frames, sent[:100]) == [EndlessLine(head=b"", allowed_bytes=10_000)]
    received(peer, frames.control())
    assert peer.close_rcvd == Close(1009, "a message may have 10000 bytes")


def test_wsproto_reads_what_a_server_sends_and_is_read() -> None:
    server, peer = FrameStream(SERVER, max_bytes=100_000), Connection(CLIENT)
    assert events(server, peer.send(TextMessage(data="x" * 50_000))) == [Line(data=b"x" * 50_000)]
    peer.receive_data(server.text("y" * 50_000))
    assert "".join(event.data for event in peer.events() if isinstance(event, TextMessage)) == "y" * 50_000
