"""The framing of WebSocket messages: any cutting into pieces gives the same events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from playhead.client.transports.websocket_wire import MessageFramer
from playhead.jsonrpc.framing import (
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
