"""What a command plays of an answer: the sound in it."""

from __future__ import annotations

import pytest

from playhead.cli.targets import is_sound
from playhead.client import BytesMedia


@pytest.mark.parametrize(
    ("mime_type", "uri", "sound"),
    [
        ("audio/mpeg", None, True),
        ("Application/Ogg; codecs=vorbis", None, True),
        (None, "https://example.net/song.mp3", True),
        ("application/octet-stream", "resource://song.flac", True),
        (None, "resource://song", False),
        ("text/plain", "resource://lyrics.mp3", False),
        ("image/png", None, False),
    ],
)
def test_sound_is_told_by_its_type_or_else_by_its_name(
    mime_type: str | None, uri: str | None, sound: bool
) -> None:
    media = BytesMedia(title="x", mime_type=mime_type, base64="", block_bytes=1, uri=uri)
    assert is_sound(media) is sound
