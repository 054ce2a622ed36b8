"""Strict base64 through Python: every kind of argument, every kind of fault."""

from __future__ import annotations

import array
import base64
import os

import pytest

from playhead._core import decode_base64
from playhead.errors import Base64Error

SIZES = [0, 1, 2, 3, 4, 47, 48, 49, 8192, 49_152, 102_400]
"""Across the padding cases, a vector register, and the size from which the GIL is released."""


@pytest.mark.parametrize("size", SIZES)
def test_text_decodes_to_the_bytes_it_came_from(size: int) -> None:
    expected = os.urandom(size)
    text = base64.b64encode(expected)
    for given in (text, bytearray(text), memoryview(text), text.decode(), array.array("B", text)):
        assert decode_base64(given) == expected


@pytest.mark.parametrize(
    ("text", "kind", "index"),
    [
        ("A", "length", 1),
        ("AAA", "padding", 3),
        ("AA=A", "byte", 2),
        ("AAAA\n", "byte", 4),
        ("AA-_", "byte", 2),
        ("AB==", "last_symbol", 1),
        ("AAAé", "byte", 3),
        ("AA\udc80A", "byte", 2),
        ("A\0AA", "byte", 1),
    ],
)
def test_a_fault_is_named_by_kind_and_index(text: str, kind: str, index: int) -> None:
    with pytest.raises(Base64Error) as caught:
        decode_base64(text)
    assert (caught.value.kind, caught.value.index, caught.value.offset) == (kind, index, 0)
    assert f"index {index}" in str(caught.value)


def test_a_fault_deep_in_a_large_text_is_found_with_the_gil_released() -> None:
    text = bytearray(base64.b64encode(bytes(200_000)))
    text[123_457] = ord("*")
    for given in (bytes(text), text):
        with pytest.raises(Base64Error) as caught:
            decode_base64(given)
        assert caught.value.index == 123_457


def test_what_has_no_contiguous_bytes_is_refused() -> None:
    with pytest.raises(TypeError):
        decode_base64(7)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(BufferError):
        decode_base64(memoryview(b"AAAAAAAA")[::2])
