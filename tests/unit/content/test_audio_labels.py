"""The labels of a link say that it is audio, that it is not, or nothing."""

from __future__ import annotations

import pytest

from playhead.content.audio import header_format, is_audio


@pytest.mark.parametrize(
    ("mime_type", "uri", "sound"),
    [
        ("audio/mpeg", None, True),
        ("Application/Ogg; codecs=vorbis", None, True),
        (None, "https://example.net/song.mp3", True),
        (None, "https://example.net/song.MP3?key=1#t=3", True),
        ("application/octet-stream", "resource://song.flac", True),
        (None, "resource://album/song.flac", True),
        (None, "resource://song", None),
        (None, "https://radio.example.net", None),
        (None, "https://radio.example.net:8000/live", None),
        ("", "https://[broken", None),
        (None, "resource://cover.png", False),
        (None, "music://albums/Mr.%20Brightside", None),
        (None, "music://albums/Umbrella feat. Drake", None),
        (None, "https://example.net/track.42", None),
        (None, "https://example.net/page.xhtml", False),
        (None, "https://example.net/film.mp4", False),
        ("text/plain", "resource://lyrics.mp3", False),
        ("image/png", None, False),
    ],
)
def test_sound_is_told_by_its_type_or_else_by_its_name(
    mime_type: str | None, uri: str | None, sound: bool | None
) -> None:
    assert is_audio(mime_type, uri) is sound


@pytest.mark.parametrize("head", [b"fLaC", b"ID3", b"RIFF", b"OggS", b"\xff\xfb", b""])
def test_a_signature_alone_is_not_a_whole_header(head: bytes) -> None:
    assert header_format(head, len(head), labelled=True) is None
