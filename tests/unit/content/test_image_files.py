"""An image file against its own headers, markers and checksums."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from playhead.content.image_files import image_problem, image_type

DATA = Path(__file__).parents[2] / "data"


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def adam7(width: int, height: int, bits: int) -> int:
    """Bytes of an interlaced picture, by the pattern of the specification, pixel by pixel."""
    pattern = ("16462646", "77777777", "56565656", "77777777", "36463646", "77777777", "56565656", "77777777")
    total = 0
    for number in "1234567":
        rows = [
            sum(pattern[row % 8][column % 8] == number for column in range(width)) for row in range(height)
        ]
        total += sum(1 + (pixels * bits + 7) // 8 for pixels in rows if pixels)
    return total


def png(
    width: int = 13,
    height: int = 9,
    *,
    depth: int = 8,
    color: int = 2,
    interlaced: bool = False,
    parts: int = 1,
) -> bytes:
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
    size = adam7(width, height, bits) if interlaced else height * (1 + (width * bits + 7) // 8)
    pixels = zlib.compress(random.Random(1).randbytes(size))
    step = -(-len(pixels) // parts)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlaced)),
            *(chunk(b"IDAT", pixels[at : at + step]) for at in range(0, len(pixels), step)),
            chunk(b"IEND", b""),
        ]
    )


WHOLE = {
    "png": png(),
    **{
        name: (DATA / name).read_bytes()
        for name in ("picture.jpg", "progressive.jpg", "restarts.jpg", "picture.gif", "picture.webp")
    },
}


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"GIF88a", None),
        (b"RIFF\n\n\n\nWEBP", "image/webp"),
        (b"RIFF\n\n\n\nWAVE", None),
        (b"BM\n\n\n\n\0\0\0\0", "image/bmp"),
        (b"BMW is a make of cars", None),
        (b"", None),
    ],
)
def test_an_image_type_is_told_by_the_first_bytes(head: bytes, expected: str | None) -> None:
    assert image_type(head) == expected


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_whole_image_has_no_problem_and_each_cut_one_has(name: str) -> None:
    whole = WHOLE[name]
    assert image_problem(whole) is None
    assert image_problem(whole + b"anything after it") is None
    for end in range(16, len(whole) - 1):
        assert image_problem(whole[:end]) is not None, end


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(
    ("depth", "color"),
    [(1, 0), (2, 3), (4, 0), (8, 0), (16, 0), (8, 2), (16, 2), (8, 3), (8, 4), (8, 6), (16, 6)],
)
@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 5), (8, 8), (33, 17)])
def test_every_form_of_png_has_as_many_bytes_as_its_header_needs(
    width: int, height: int, depth: int, color: int, *, interlaced: bool
) -> None:
    assert image_problem(png(width, height, depth=depth, color=color, interlaced=interlaced, parts=3)) is None


def test_any_flipped_bit_of_a_png_is_found() -> None:
    whole = png()
    for place in range(8, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        assert image_problem(bytes(damaged)) is not None, place


def test_a_png_with_intact_chunks_and_too_few_pixels_is_found() -> None:
    whole = png(parts=4)
    pieces = whole.split(b"IDAT")
    # One IDAT chunk less: length and name of the next one follow where those of the lost one were.
    assert image_problem(b"IDAT".join([*pieces[:2], *pieces[3:]])) is not None


def test_a_jpeg_whose_restart_markers_are_out_of_order_is_found() -> None:
    whole = WHOLE["restarts.jpg"]
    assert whole.count(b"\xff\xd1") == 1
    assert "restart marker" in str(image_problem(whole.replace(b"\xff\xd1", b"\xff\xd2")))


def test_a_jpeg_of_markers_alone_is_found() -> None:
    assert image_problem(b"\xff\xd8\xff\xd9") is not None
    assert image_problem(b"\xff\xd8\xff\xe0\x00\x02\xff\xd9") is not None


def test_a_png_that_promises_a_billion_pixels_costs_little() -> None:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1 << 30, 1 << 30, 16, 6, 0, 0, 0))
    bomb = zlib.compress(bytes(1 << 20)) * 3
    assert (
        image_problem(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", bomb) + chunk(b"IEND", b"")) is not None
    )


def test_what_is_not_an_image_is_not_judged() -> None:
    assert image_problem(b"") is None
    assert image_problem(b"<svg xmlns='http://www.w3.org/2000/svg'/>") is None


@given(st.sampled_from(sorted(WHOLE)), st.data())
def test_no_damage_breaks_it(name: str, data: st.DataObject) -> None:
    whole = bytearray(WHOLE[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    image_problem(bytes(whole))


@given(
    st.binary(max_size=200),
    st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF0000WEBP"]),
)
def test_no_bytes_break_it(rest: bytes, head: bytes) -> None:
    image_problem(head + rest)
