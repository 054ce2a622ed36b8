"""An answer is measured before it is decoded."""

from __future__ import annotations

import base64
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead import _core
from playhead.errors import LimitError, TextContentError
from playhead.stream.answer import Answer, decoded_bytes, leading, measure, pieces
from playhead.stream.page import Page

DONE = "W0RPTkVd"


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def take(*blobs: str | bytes, offset: int = 0, data_end: int = 0, size_bytes: int | None = None) -> Answer:
    page = Page(blobs=blobs)
    return measure(page, offset=offset, data_end=data_end, size_bytes=size_bytes, block_bytes=1000)


@given(st.binary(max_size=100))
def test_the_length_of_base64_is_known_without_decoding(data: bytes) -> None:
    assert decoded_bytes(text(data)) == decoded_bytes(data) == len(data)


def test_several_blobs_count_together_and_empty_ones_not_at_all() -> None:
    answer = take(text(b"abcd"), "", text(b"e"), b"", b"fg", offset=10)
    assert (answer.offset, answer.n_bytes, answer.end, answer.proof) == (10, 7, 17, None)
    assert len(answer.blobs) == 3


@pytest.mark.parametrize("blobs", [(), ("",), (b"",), ("", "")])
def test_nothing_proves_the_end(blobs: tuple[str | bytes, ...]) -> None:
    assert take(*blobs).proof == "empty"


@pytest.mark.parametrize("blob", [DONE, b"[DONE]"])
def test_done_as_a_whole_blob_past_all_data_proves_the_end(blob: str | bytes) -> None:
    assert take(blob, offset=50, data_end=50) == Answer(offset=50, blobs=(), n_bytes=0, proof="done")
    after_data = take(text(b"abc"), blob, offset=50, data_end=50)
    assert (after_data.n_bytes, after_data.proof) == (3, "done")


def test_done_below_data_that_was_read_is_data() -> None:
    assert take(DONE, offset=50, data_end=51).n_bytes == 6


def test_done_at_the_start_of_a_resource_of_six_bytes_is_data() -> None:
    assert take(DONE, size_bytes=6).n_bytes == 6
    assert take(DONE, size_bytes=7).n_bytes == 0
    assert take(DONE, size_bytes=None).n_bytes == 0


def test_done_inside_a_blob_or_before_other_data_is_data() -> None:
    assert take(text(b"x[DONE]")).n_bytes == 7
    assert take(DONE, text(b"x")).n_bytes == 7


def test_a_read_without_a_range_knows_no_done() -> None:
    page = Page(blobs=(DONE,))
    assert measure(page, offset=0, data_end=0, size_bytes=None, block_bytes=10, ranged=False).n_bytes == 6


def test_a_page_over_the_cap_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(LimitError) as caught:
        take("!" * 2000, offset=7)
    assert (caught.value.limit, caught.value.allowed) == ("block_bytes", 1000)


def test_text_for_bytes_is_an_error_with_its_offset() -> None:
    with pytest.raises(TextContentError, match="page at byte 7") as caught:
        measure(Page(blobs=(), text_items=1), offset=7, data_end=0, size_bytes=None, block_bytes=10)
    assert caught.value.offset == 7


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.booleans()), min_size=1, max_size=4),
    st.integers(0, 60),
    st.data(),
)
def test_the_pieces_of_any_cut_hold_its_bytes_and_end_where_it_ends(
    parts: list[tuple[bytes, bool]], offset: int, draw: st.DataObject
) -> None:
    whole = b"".join(data for data, _ in parts)
    blobs = tuple(data if plain else text(data) for data, plain in parts)
    answer = Answer(offset=offset, blobs=blobs, n_bytes=len(whole))
    start = draw.draw(st.integers(offset, answer.end))
    stop = draw.draw(st.integers(start, answer.end))
    found = bytearray(len(whole))
    seen = set[int]()
    for at, piece in pieces(answer, start, stop):
        data = piece if isinstance(piece, bytes) else _core.decode_base64(piece)
        assert start - 2 <= at
        assert at + len(data) <= stop
        found[at - offset : at - offset + len(data)] = data
        seen |= set(range(at, at + len(data)))
    assert seen >= set(range(start, stop))
    assert found[start - offset : stop - offset] == whole[start - offset : stop - offset]


def test_whole_blobs_are_passed_on_without_a_copy() -> None:
    blobs = (text(bytes(300)), bytes(5), text(b"abcdef"))
    answer = Answer(offset=9, blobs=blobs, n_bytes=311)
    assert all(piece is blob for (_, piece), blob in zip(pieces(answer, 9, 320), blobs, strict=True))
    assert all(low < high for low, high in pairwise(at for at, _ in pieces(answer, 9, 320)))


def test_leading_bytes_cross_blobs_and_stand_for_themselves_where_they_do_not_decode() -> None:
    answer = Answer(offset=5, blobs=(text(b"abcd"), b"efgh"), n_bytes=8)
    assert leading(answer, 6) == b"abcdef"
    assert leading(Answer(offset=0, blobs=("!!!!!!!!",), n_bytes=6), 6) == b"!!!!!!!!"
