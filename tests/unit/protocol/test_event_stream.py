"""Event streams as servers send them, and the head of an event that has not ended."""

from __future__ import annotations

import pytest

from playhead.protocol.event_stream import HEAD_BYTES, EventData, EventStream, OverlongEvent


def stream(max_bytes: int = 1000) -> EventStream:
    return EventStream(max_bytes=max_bytes)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_lf_crlf_and_a_lone_cr_end_lines(end: bytes) -> None:
    parser = stream()
    sent = [b": hello", b"id: 1", b"event: message", b"data: {}", b"", b""]
    assert parser.feed(end.join(sent)) == [EventData(b"{}")]
    assert parser.last_event_id == b"1"


def test_a_byte_order_mark_is_skipped_at_the_start_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert stream().feed(mark + b"data: a\n\n" + mark + b"data: b\n\n") == [EventData(b"a")]


def test_an_event_of_another_type_is_not_a_message_and_names_its_id() -> None:
    parser = stream()
    assert parser.feed(b"event: endpoint\nid: 4\ndata: /messages\n\ndata: {}\n\n") == [EventData(b"{}")]
    assert parser.last_event_id == b"4"


def test_events_of_every_type_are_delivered_on_request() -> None:
    parser = EventStream(max_bytes=3, every_type=True)
    sent = b"event: ping\ndata: a\n\nevent: delta\ndata: long\n\ndata: b\n\n"
    assert parser.feed(sent) == [EventData(b"a"), OverlongEvent(b"lon"), EventData(b"b")]


def test_a_priming_event_names_an_id_and_is_no_message() -> None:
    parser = stream()
    assert parser.feed(b"id: e-1\nretry: 250\ndata: \n\n") == []
    assert (parser.last_event_id, parser.retry_seconds) == (b"e-1", 0.25)


def test_a_stream_that_resumes_another_begins_anew_with_its_last_id() -> None:
    parser = stream()
    parser.feed(b"id: e-1\ndata: {}\n\nid: e-2\ndata: {")
    parser.restart()
    assert parser.feed(b"\xef\xbb\xbfdata: []\n\n") == [EventData(b"[]")]
    assert (parser.last_event_id, parser.head) == (b"e-1", b"")


def test_the_head_of_an_unfinished_event_shows_as_it_arrives() -> None:
    parser = stream()
    parser.feed(b': ping\n\ndata: {"jsonrpc"')
    assert parser.head == b'{"jsonrpc"'
    parser.feed(b"x" * 500)
    assert len(parser.head) == HEAD_BYTES
    parser.feed(b"\n\n: ping")
    assert parser.head == b""


def test_an_event_past_the_limit_is_reported_at_once_and_skipped() -> None:
    parser = stream(max_bytes=8)
    assert parser.feed(b"data: 123456789") == [OverlongEvent(b"12345678")]
    assert parser.feed(b"0" * 10_000 + b"\ndata: more\n\ndata: next\n\n") == [EventData(b"next")]
