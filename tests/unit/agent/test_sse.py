"""Server-sent events out of bytes, however they are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.agent.models.http_reply import EventDecoder, ServerEvent
from playhead.errors import LimitError


def read(data: bytes, *cuts: int, max_bytes: int = 1000) -> list[ServerEvent]:
    decoder = EventDecoder(max_bytes=max_bytes)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [event for start, end in itertools.pairwise(edges) for event in decoder.feed(data[start:end])]


def test_an_event_is_its_data_lines_joined_and_its_type() -> None:
    assert read(b"event: error\ndata: one\ndata:two\n\n") == [ServerEvent(data="one\ntwo", event="error")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_line_ends_with_any_of_the_three_ends(end: bytes) -> None:
    assert read(end.join([b"data: a", b"", b"data: b", b"", b""])) == [
        ServerEvent(data="a"),
        ServerEvent(data="b"),
    ]


def test_the_ends_of_lines_may_be_mixed() -> None:
    data = b"data: a\rdata: b\ndata: c\r\n\r\ndata: d\r\r"
    expected = [ServerEvent(data="a\nb\nc"), ServerEvent(data="d")]
    assert read(data) == read(data, *range(len(data))) == expected


def test_comments_ids_retries_and_unknown_fields_are_no_data() -> None:
    assert read(b": ping\n\nid: 7\nretry: 10\nwhatever: x\ndata: a\n\n") == [ServerEvent(data="a")]


def test_a_byte_order_mark_is_no_text_at_the_beginning_only() -> None:
    mark = b"\xef\xbb\xbf"
    assert read(mark + b"data: a\n\n" + mark + b"data: b\n\ndata: c\n\n") == [
        ServerEvent(data="a"),
        ServerEvent(data="c"),
    ]


def test_one_space_after_the_colon_is_no_data_and_a_second_is() -> None:
    assert read(b"data:  a\ndata\n\n") == [ServerEvent(data=" a\n")]


def test_an_event_that_the_end_cuts_off_is_dropped() -> None:
    assert read(b"data: a\n\ndata: b\n") == [ServerEvent(data="a")]


def test_a_wrong_byte_spoils_no_more_than_itself() -> None:
    assert read(b'data: "\xff"\n\n') == [ServerEvent(data='"\ufffd"')]


@pytest.mark.parametrize(
    "flood", [b"data: " + b"x" * 200, b"data:\n" * 60, b":" + b"x" * 200, b"data: x\nfield: y\n" * 40]
)
def test_an_event_longer_than_the_limit_ends_the_stream(flood: bytes) -> None:
    for cuts in [(), tuple(range(len(flood)))]:
        with pytest.raises(LimitError) as raised:
            read(flood, *cuts, max_bytes=100)
        assert raised.value.limit == "message_bytes"


def test_comments_without_end_are_no_event_that_grows() -> None:
    assert read(b": keep-alive\n" * 1000 + b"data: a\n\n", max_bytes=100) == [ServerEvent(data="a")]


PIECES = [
    b"data: a",
    b"data",
    b"event: e",
    b":c",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\xef\xbb\xbf",
    "é".encode(),
]


@given(st.lists(st.sampled_from(PIECES), max_size=14), st.data())
def test_any_cut_gives_the_same_events(pieces: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(pieces)
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=8))
    assert read(whole, *cuts) == read(whole) == read(whole, *range(len(whole)))
