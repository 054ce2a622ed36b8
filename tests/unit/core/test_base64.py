"""Strict base64 through Python: every kind of argument, every kind of fault."""

from __future__ import annotations

import array
import base64
import os
import sys
import threading
from collections.abc import Callable

import pytest
from typing_extensions import Buffer

from playhead._core import check_base64, decode_base64
from playhead.errors import Base64Error

SIZES = [0, 1, 2, 3, 4, 47, 48, 49, 8192, 49_152, 102_400]
"""Across the padding cases, a vector register, and the size from which the GIL is released."""


@pytest.mark.parametrize("size", SIZES)
def test_text_decodes_to_the_bytes_it_came_from(size: int) -> None:
    expected = os.urandom(size)
    text = base64.b64encode(expected)
    for given in (text, bytearray(text), memoryview(text), text.decode(), array.array("B", text)):
        assert decode_base64(given) == expected
        check_base64(given)


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
    with pytest.raises(Base64Error, match=f"index {index};") as checked:
        check_base64(text)
    assert (checked.value.kind, checked.value.index) == (kind, index)
    assert (caught.value.kind, caught.value.index, caught.value.offset) == (kind, index, 0)
    assert f"index {index}" in str(caught.value)


def test_a_fault_deep_in_a_large_text_is_found_with_the_gil_released() -> None:
    text = bytearray(base64.b64encode(bytes(200_000)))
    text[123_457] = ord("*")
    for given in (bytes(text), text):
        with pytest.raises(Base64Error) as caught:
            decode_base64(given)
        assert caught.value.index == 123_457


@pytest.mark.parametrize(
    "form", [bytes, memoryview, bytearray, lambda text: memoryview(memoryview(text)[:-4])]
)
def test_other_threads_run_while_a_long_text_is_decoded(
    form: Callable[[bytes], Buffer],
) -> None:
    given = form(base64.b64encode(bytes(8 << 20)))
    asked, has_run = threading.Event(), threading.Event()

    def run() -> None:
        while asked.wait():
            asked.clear()
            has_run.set()

    threading.Thread(target=run, daemon=True).start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody has to hand the interpreter over
    try:
        # One attempt is enough, if the system has a processor for the other thread.
        for _ in range(1000):
            asked.set()
            decode_base64(given)
            if has_run.is_set():
                return
    finally:
        sys.setswitchinterval(interval)
    pytest.fail("the interpreter was held all the time")


def test_what_has_no_contiguous_bytes_is_refused() -> None:
    with pytest.raises(TypeError):
        decode_base64(7)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(BufferError):
        decode_base64(memoryview(b"AAAAAAAA")[::2])
