"""`EventStream` against the HTML standard's own steps over the whole stream; any chunking gives the same."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from playhead.protocol.event_stream import FIELD_BYTES, EventStream
from playhead.protocol.framing import ENDLESS_FACTOR, Line, OverlongLine

MAX_BYTES = 40

lines = st.sampled_from(
    [
        *(
            b"data",
            b"data:",
            b"data: ",
            b"data:  two blanks",
            b'data: {"id":1}',
            b"data:a",
            b"dat",
            b"datax: 1",
        ),
        *(
            b"id: 7",
            b"id",
            b"id:",
            b"id: a\0b",
            b"id:" + b"9" * FIELD_BYTES,
            b"id:" + b"9" * (FIELD_BYTES + 1),
        ),
        *(
            b"event: message",
            b"event: ping",
            b"event",
            b"eventx: a",
            b"retry: 10",
            b"retry: x",
            b"retry: 99999999",
        ),
        *(
            b": a comment",
            b":",
            b"",
            b"",
            b"",
            b"data:" + b"x" * 38,
            b"data:" + b"x" * 300,
            b"\xef\xbb\xbfdata: 1",
        ),
    ]
)
ends = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\r", b"\r\r\n"])
streams = st.tuples(
    st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb", b"\xef"]),
    st.lists(st.tuples(lines | st.binary(max_size=12), ends), max_size=14).map(
        lambda pairs: b"".join(line + end for line, end in pairs)
    ),
    lines,
).map(b"".join)

Outcome = tuple[list[Line | OverlongLine], bytes, float | None]


def expected(stream: bytes) -> Outcome:
    found: list[Line | OverlongLine] = []
    last_id, kept_id, retry = b"", b"", None
    data: list[bytes] | None = None
    kind = b""
    is_overlong = False
    *whole, _unfinished = re.split(rb"\r\n|\n|\r", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in whole:
        if not line:
            kept_id = last_id
            text = b"\n".join(data or [])
            if text and not is_overlong and kind in (b"", b"message"):
                found.append(Line(data=text))
            data, kind, is_overlong = None, b"", False
            continue
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            data = [*(data or []), value]
        elif len(value) > FIELD_BYTES:
            continue
        elif name == b"id" and b"\0" not in value:
            last_id = value
        elif name == b"event":
            kind = value
        elif name == b"retry" and re.fullmatch(rb"[0-9]+", value):
            retry = min(int(value), 60_000) / 1000
        length = len(b"\n".join(data or []))
        if not is_overlong and length > MAX_BYTES:
            is_overlong = True
            if kind in (b"", b"message"):
                found.append(OverlongLine(head=b"\n".join(data or [])[:MAX_BYTES]))
        if length > ENDLESS_FACTOR * MAX_BYTES:
            break
    return found, kept_id, retry


def received(chunks: list[bytes]) -> Outcome:
    parser = EventStream(max_bytes=MAX_BYTES)
    found: list[Line | OverlongLine] = []
    for chunk in chunks:
        parser.feed(chunk)
        found += (event for event in iter(parser.next_event, None) if isinstance(event, Line | OverlongLine))
    return found, parser.last_event_id, parser.retry_seconds


@given(streams)
@example(b"\xef\xbb\xbfdata: 1\n\n")
@example(b"id: 7\ndata: \n\ndata: x\r\rdata: y\r\n\r\n")
@example(b"data:" + b"x" * 40 + b"\ndata\n\n")
@example(b"data:" + b"x" * 99 + b"\ndata: more\n\ndata: next\n\n")
def test_the_messages_are_those_of_the_standard_in_any_chunking(stream: bytes) -> None:
    found = expected(stream)
    # An event that is too long is reported as soon as that is known, and its line may not have ended.
    tail = b"" if stream.endswith((b"\n", b"\r")) else b"\n"
    if tail:
        with_end = expected(stream + tail)
        if len(with_end[0]) > len(found[0]) and isinstance(with_end[0][-1], OverlongLine):
            found = (with_end[0], *found[1:])
    assert received([stream]) == found
    assert received([bytes([byte]) for byte in stream]) == found
    for step in (2, 3, 7):
        assert received([stream[at : at + step] for at in range(0, len(stream), step)]) == found
