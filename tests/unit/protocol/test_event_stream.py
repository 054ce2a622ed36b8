"""Event streams as servers send them, and the head of an event that has not ended."""

from __future__ import annotations

import pytest

from playhead.protocol.event_stream import HEAD_BYTES, EventStream
from playhead.protocol.framing import EndlessLine, Line, LineEvent, LongLine, OverlongLine, SkippedLine


class Parser(EventStream):
    def of(self, chunk: bytes) -> list[LineEvent]:
        """The events of one more chunk."""
        self.feed(chunk)
        return list(iter(self.next_event, None))


def stream(max_bytes: int = 1000) -> Parser:
    return Parser(max_bytes=max_bytes)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lf_crlf_and_a_lone_cr_end_lines(end: bytes) -> None:
    parser = stream()
    sent = [b": hello", b"id: 1", b"event: message", b"data: {}", b"", b""]
    assert parser.of(end.join(sent)) == [Line(data=b"{}")]
    assert parser.last_event_id == b"1"


def test_a_byte_order_mark_is_skipped_at_the_start_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert stream().of(mark + b"data: a\n\n" + mark + b"data: b\n\n") == [Line(data=b"a")]


def test_an_event_of_another_type_is_not_a_message_and_names_its_id() -> None:
    parser = stream()
    assert parser.of(b"event: endpoint\nid: 4\ndata: /messages\n\ndata: {}\n\n") == [Line(data=b"{}")]
    assert parser.last_event_id == b"4"


def test_events_of_every_type_are_delivered_on_request() -> None:
    parser = Parser(max_bytes=3, every_type=True)
    sent = b"event: ping\ndata: a\n\nevent: delta\ndata: long\n\ndata: b\n\n"
    delivered = [event for event in parser.of(sent) if isinstance(event, Line | OverlongLine)]
    assert delivered == [Line(data=b"a"), OverlongLine(head=b"lon"), Line(data=b"b")]


def test_a_priming_event_names_an_id_and_is_no_message() -> None:
    parser = stream()
    assert parser.of(b"id: e-1\nretry: 250\ndata: \n\n") == []
    assert (parser.last_event_id, parser.retry_seconds) == (b"e-1", 0.25)


def test_a_stream_that_resumes_another_begins_anew_with_its_last_id() -> None:
    parser = stream()
    parser.of(b"id: e-1\ndata: {}\n\nid: e-2\ndata: {")
    parser.restart()
    assert parser.of(b"\xef\xbb\xbfdata: []\n\n") == [Line(data=b"[]")]
    assert (parser.last_event_id, parser.message.head) == (b"e-1", b"")


def test_the_head_of_an_unfinished_event_shows_as_it_arrives() -> None:
    parser = stream()
    parser.of(b': ping\n\ndata: {"jsonrpc"')
    assert parser.message.head == b'{"jsonrpc"'
    parser.of(b"x" * 500)
    assert len(parser.message.head) == HEAD_BYTES
    parser.of(b"\n\n: ping")
    assert parser.message.head == b""


def test_an_event_past_the_limit_is_reported_at_once_and_skipped() -> None:
    parser = stream(max_bytes=8)
    assert parser.of(b"data: 123456789") == [LongLine(head=b"12345678"), OverlongLine(head=b"12345678")]
    skipped, following = parser.of(b"0" * 10 + b"\ndata: more\n\ndata: next\n\n")
    assert isinstance(skipped, SkippedLine)
    assert (skipped.length_bytes, skipped.tail[-6:]) == (24, b"0\nmore")
    assert following == Line(data=b"next")


def test_an_event_without_an_end_is_the_last() -> None:
    parser = stream(max_bytes=8)
    assert isinstance(parser.of(b"event: x\ndata: " + b"x" * 99)[-1], EndlessLine)
    assert parser.of(b"\n\ndata: next\n\n") == []


def test_an_event_that_nobody_awaits_is_skipped_when_its_head_has_shown_it() -> None:
    parser = stream()
    assert parser.of(b"data: " + b"x" * 300) == [LongLine(head=b"x" * HEAD_BYTES)]
    parser.message.skip()
    (skipped,) = parser.of(b"y" * 300 + b"\n\n")
    assert isinstance(skipped, SkippedLine)
    assert (skipped.length_bytes, skipped.overlong) == (600, False)
