"""Images for terminals: what is drawn, how it is coded, and under which names files are made."""

from __future__ import annotations

import struct
import zlib
from base64 import b64decode
from pathlib import Path

import pytest

from playhead.cli import showing
from playhead.cli.showing import Picture, drawn, look_at, protocol_of, save_image
from tests.servers.mixed import png

JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", 30, 40) + bytes(20)


def test_a_png_and_a_jpeg_say_their_size() -> None:
    assert look_at(png(3, 5)) == Picture(kind="png", width=3, height=5)
    assert look_at(JPEG) == Picture(kind="jpeg", width=40, height=30)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html></html>",
        b"\x89PNG\r\n\x1a\n",
        png()[:-1],
        png().replace(b"IHDR\x00\x00\x00\x02", b"IHDR\x00\x00\x00\x03"),
        png() + b"\x1b\\\x1b]0;owned\x07",
        JPEG[:12],
        b"\xff\xd8\xff" + b"\xff" * 5000,
        b"\xff\xd8" + b"\xff\xe0\x00\x02" * 5000,
        b"\xff\xd8\xff\xe0\xff\xff",
    ],
)
def test_what_is_neither_or_damaged_is_none(data: bytes) -> None:
    assert look_at(data) is None
    assert drawn(data, "iterm2", columns=80) is None


@pytest.mark.parametrize("cut", range(0, len(JPEG), 3))
def test_no_cut_of_a_header_raises(cut: int) -> None:
    look_at(JPEG[:cut])
    look_at(png()[:cut])


@pytest.mark.parametrize(("width", "height"), [(8193, 1), (1, 8193), (8000, 8000), (0, 5), (2**31, 2**31)])
def test_an_image_that_would_fill_a_terminals_memory_is_not_drawn(width: int, height: int) -> None:
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = png()[:12] + header + struct.pack(">I", zlib.crc32(header)) + png()[33:]
    assert look_at(data) == Picture(kind="png", width=width, height=height)
    assert drawn(data, "kitty", columns=80) is None


def test_an_image_of_too_many_bytes_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(showing, "DRAWN_BYTES", len(png()) - 1)
    assert drawn(png(), "kitty", columns=80) is None


def test_kitty_gets_it_in_chunks_and_answers_nothing() -> None:
    large = png()[:33] + struct.pack(">I", 5000) + b"tEXt" + b"x" * 5000 + b"CRC." + png()[33:]
    sequences = drawn(large, "kitty", columns=80)
    assert sequences is not None
    parts = [part.removeprefix("\x1b_G") for part in sequences.split("\x1b\\")[:-1]]
    keys = [part.partition(";")[0] for part in parts]
    assert keys == ["a=T,f=100,q=2,m=1", "m=0"]
    assert all(len(part.partition(";")[2]) <= 4096 for part in parts)
    assert b64decode("".join(part.partition(";")[2] for part in parts)) == large
    assert drawn(JPEG, "kitty", columns=80) is None, "kitty decodes PNG alone"


def test_an_image_wider_than_the_window_is_scaled_to_it() -> None:
    wide = png(2000, 1)
    assert ",c=80," in (drawn(wide, "kitty", columns=80) or "")
    assert "width=100%" in (drawn(wide, "iterm2", columns=80) or "")
    assert "width=auto" in (drawn(JPEG, "iterm2", columns=80) or "")


@pytest.mark.parametrize(
    ("environ", "protocol"),
    [
        ({}, None),
        ({"TERM": "xterm-256color"}, None),
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"LC_TERMINAL": "iTerm2"}, "iterm2"),
        ({"TERM_PROGRAM": "WezTerm"}, "iterm2"),
        ({"TERM_PROGRAM": "iTerm.app", "TERM": "tmux-256color"}, None),
        ({"KITTY_WINDOW_ID": "1", "STY": "1.screen"}, None),
    ],
)
def test_a_terminal_is_known_by_what_it_says_of_itself(environ: dict[str, str], protocol: str | None) -> None:
    assert protocol_of(environ) == protocol


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        ("draw_map", "draw_map-1.png"),
        ("../x/\x1b[31m", "x-31m-1.png"),
        ("猫", "image-1.png"),
        ("..", "image-1.png"),
    ],
)
def test_a_file_is_named_for_the_tool_and_never_leaves_its_folder(
    tool: str, name: str, tmp_path: Path
) -> None:
    first = save_image(b"1", tmp_path, tool=tool, number=1, suffix="png")
    second = save_image(b"2", tmp_path, tool=tool, number=1, suffix="png")
    assert (first, second) == (tmp_path / name, tmp_path / name.replace("-1.png", "-1-2.png"))
    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"2")


def test_a_link_that_waits_under_the_name_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    (tmp_path / "map-1.png").symlink_to(target)
    assert save_image(b"1", tmp_path, tool="map", number=1, suffix="png").name == "map-1-2.png"
    assert not target.exists()
