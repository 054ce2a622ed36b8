"""The counterparts' own bytes: base64 cut out of encoded text is the base64 of the bytes."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.payload import BLOCK_BYTES, Payload
from tests.servers.wave import HEADER_BYTES, wave_header

SIZE_BYTES = 2 * BLOCK_BYTES + 1001
PLAIN = Payload(size_bytes=SIZE_BYTES)
WAVE = Payload(size_bytes=SIZE_BYTES, prefix=wave_header(SIZE_BYTES))


@pytest.mark.parametrize("payload", [PLAIN, WAVE], ids=["plain", "wave"])
@given(start=st.integers(0, SIZE_BYTES + 10), n_bytes=st.integers(0, 20_000))
def test_the_base64_of_a_range_is_the_base64_of_its_bytes(payload: Payload, start: int, n_bytes: int) -> None:
    text = payload.base64(start, start + n_bytes)
    assert base64.b64decode(text, validate=True) == payload.slice(start, start + n_bytes)


@pytest.mark.parametrize("payload", [PLAIN, WAVE], ids=["plain", "wave"])
def test_slices_of_any_length_make_the_same_whole(payload: Payload) -> None:
    whole = payload.slice(0, SIZE_BYTES)
    assert len(whole) == SIZE_BYTES
    for cut in (1, HEADER_BYTES, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 1):
        assert payload.slice(0, cut) + payload.slice(cut, SIZE_BYTES) == whole
    assert base64.b64decode(payload.base64(0, SIZE_BYTES)) == whole


def test_pages_of_a_power_of_two_grid_differ() -> None:
    pages = {PLAIN.slice(start, start + 65536) for start in range(0, SIZE_BYTES - 65536, 65536)}
    assert len(pages) == len(range(0, SIZE_BYTES - 65536, 65536))
