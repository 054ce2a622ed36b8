"""An answer is measured before it is decoded."""

from __future__ import annotations

import base64
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead import _core
from playhead.content.formats import Base64Text
from playhead.errors import LimitError, TextContentError
from playhead.limits import Limits
from playhead.stream.answer import Answer, Page, blob_bytes, leading, measure, pieces
from playhead.stream.result_pages import page_of_contents

DONE = "W0RPTkVd"


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def view(data: bytes) -> memoryview:
    """The base64 of `data` where a message has it."""
    return memoryview(b'{"blob":"' + base64.b64encode(data) + b'"}')[9:-2]


def as_received(data: bytes) -> bytes:
    return data


def take(*blobs: str | bytes, offset: int = 0, size_bytes: int | None = None) -> Answer:
    return measure(Page(blobs=blobs), offset=offset, size_bytes=size_bytes, block_bytes=1000)


@given(st.binary(max_size=100))
def test_the_length_of_base64_is_known_without_decoding(data: bytes) -> None:
    assert blob_bytes(text(data)) == blob_bytes(text(data).rstrip("=")) == blob_bytes(data) == len(data)
    assert blob_bytes(view(data)) == blob_bytes(memoryview(text(data).rstrip("=").encode())) == len(data)


def test_a_symbol_too_many_counts_as_a_byte_so_that_a_decoder_sees_it() -> None:
    assert (blob_bytes("QUJDRA"), blob_bytes("QUJDR")) == (4, 4)


@pytest.mark.parametrize("blob", ["A", "=", "==", "===="])
def test_text_that_is_not_base64_is_not_an_empty_blob(blob: str) -> None:
    answer = take(blob)
    assert (answer.n_bytes, answer.claims_end) == (1, None)


def test_several_blobs_count_together_and_empty_ones_not_at_all() -> None:
    answer = take(text(b"abcd"), "", text(b"e"), b"", b"fg", offset=10)
    assert (answer.offset, answer.n_bytes, answer.end, answer.claims_end) == (10, 7, 17, None)
    assert len(answer.blobs) == 3


@pytest.mark.parametrize("blobs", [(), ("",), (b"",), ("", "")])
def test_an_answer_without_a_byte_claims_the_end(blobs: tuple[str | bytes, ...]) -> None:
    assert take(*blobs, offset=3) == Answer(offset=3, blobs=(), n_bytes=0, claims_end="empty")


@pytest.mark.parametrize("blob", [DONE, b"[DONE]"])
def test_done_as_a_whole_last_blob_claims_the_end_behind_the_blobs_before_it(blob: str | bytes) -> None:
    assert take(blob, offset=50) == Answer(offset=50, blobs=(), n_bytes=0, claims_end="done")
    after_data = take(text(b"abc"), blob, offset=50)
    assert (after_data.n_bytes, after_data.end, after_data.claims_end) == (3, 53, "done")
    assert take(text(b"abc"), blob, b"", offset=50).claims_end == "done", "empty blobs say nothing"


def test_done_at_the_start_of_a_resource_of_six_bytes_is_data() -> None:
    assert (take(DONE, size_bytes=6).n_bytes, take(DONE, size_bytes=6).claims_end) == (6, None)
    assert take(DONE, size_bytes=7).n_bytes == 0
    assert take(DONE, size_bytes=None).n_bytes == 0
    assert take(DONE, offset=6, size_bytes=6).n_bytes == 0
    assert take(text(b"abcdef"), DONE, size_bytes=6).n_bytes == 6, "six bytes and the marker"


def test_done_inside_a_blob_or_before_other_data_is_data() -> None:
    for answer in (take(text(b"x[DONE]")), take(DONE, text(b"x")), take(text(b"[DON"), text(b"E]x"))):
        assert (answer.n_bytes, answer.claims_end) == (7, None)


def test_a_read_without_a_range_knows_no_done() -> None:
    answer = measure(Page(blobs=(DONE,)), offset=0, size_bytes=None, block_bytes=10, ranged=False)
    assert (answer.n_bytes, answer.claims_end) == (6, None)


def test_a_page_over_the_cap_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(LimitError) as caught:
        take("!" * 2000, offset=7)
    assert (caught.value.limit, caught.value.allowed) == ("block_bytes", 1000)


def test_text_for_bytes_is_an_error_with_its_offset() -> None:
    with pytest.raises(TextContentError, match="page at byte 7") as caught:
        measure(Page(blobs=(), text_items=1), offset=7, size_bytes=None, block_bytes=10)
    assert caught.value.offset == 7


@given(
    st.lists(
        st.tuples(st.binary(min_size=1, max_size=40), st.sampled_from([as_received, text, view])),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 60),
    st.data(),
)
def test_the_pieces_of_any_cut_are_its_bytes_in_order(
    parts: list[tuple[bytes, Callable[[bytes], Base64Text | bytes]]], offset: int, draw: st.DataObject
) -> None:
    whole = b"".join(data for data, _ in parts)
    blobs = tuple(form(data) for data, form in parts)
    answer = Answer(offset=offset, blobs=blobs, n_bytes=len(whole))
    start = draw.draw(st.integers(offset, answer.end))
    stop = draw.draw(st.integers(start, answer.end))
    found = b""
    for at, piece in pieces(answer, start, stop):
        assert at == start + len(found)
        found += piece if isinstance(piece, bytes) else _core.decode_base64(piece)
    assert found == whole[start - offset : stop - offset]


def test_whole_blobs_are_passed_on_without_a_copy() -> None:
    blobs = (text(bytes(300)), bytes(5), view(b"abcdef"))
    answer = Answer(offset=9, blobs=blobs, n_bytes=311)
    assert all(piece is blob for (_, piece), blob in zip(pieces(answer, 9, 320), blobs, strict=True))
    assert all(low < high for low, high in pairwise(at for at, _ in pieces(answer, 9, 320)))


def test_a_part_of_a_view_is_not_copied() -> None:
    blob = view(bytes(range(200)))
    ((_, piece),) = pieces(Answer(offset=0, blobs=(blob,), n_bytes=200), 30, 90)
    assert isinstance(piece, memoryview)
    assert piece.obj is blob.obj


def test_leading_bytes_cross_blobs_and_stand_for_themselves_where_they_do_not_decode() -> None:
    answer = Answer(offset=5, blobs=(text(b"abcd"), b"efgh"), n_bytes=8)
    assert leading(answer, 6) == b"abcdef"
    assert leading(Answer(offset=5, blobs=(view(b"abcd"), b"efgh"), n_bytes=8), 6) == b"abcdef"
    assert leading(Answer(offset=0, blobs=(memoryview(b"!!!!!!!!"),), n_bytes=6), 6) == b"!!!!!!!!"
    assert leading(Answer(offset=0, blobs=("!!!!!!!!",), n_bytes=6), 6) == b"!!!!!!!!"


def test_the_first_offset_and_size_that_contents_declare_are_those_of_the_page() -> None:
    def contents(*declared: object) -> dict[str, object]:
        blobs = [text(b"abcd"), text(b"efg")]
        items = [{"blob": blob, "_meta": meta} for blob, meta in zip(blobs, declared, strict=True)]
        return {"contents": items}

    def found(*declared: object) -> tuple[int | None, int | None]:
        page = page_of_contents(contents(*declared), limits=Limits(), server="s")
        return page.offset, page.size_bytes

    assert found({"playhead/offset": 10, "playhead/size": 17}, {"playhead/offset": 14}) == (10, 17)
    assert found(None, {"playhead/offset": 14, "playhead/size": 17}) == (10, 17)
    assert found({"playhead/offset": "10", "playhead/size": -1}, {"playhead/offset": True}) == (None, None)
    assert found({"playhead/offset": 10**30, "playhead/size": 10**30}, None) == (None, None)
