"""Finding music by title, and the piece that is shipped."""

from __future__ import annotations

import re
from pathlib import Path

import miniaudio
import pytest

from playhead.errors import ConfigError, UsageError
from playhead.servers.audio.library import Library

SUFFIXES = [".mp3", ".flac", ".wav", ".ogg"]
TITLES = ["Blue Danube", "Moonlight", "Moonlight Sonata", "Winter: Largo", "Élégie"]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    for number, title in enumerate(TITLES):
        (tmp_path / f"{title}{SUFFIXES[number % 4]}").write_bytes(b"x" * (number + 1))
    return Library.scan(tmp_path)


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("", "Blue Danube"),
        ("moonlight", "Moonlight"),
        ("SONATA", "Moonlight Sonata"),
        ("moon", "Moonlight"),
        ("please play the moonlight sonata", "Moonlight Sonata"),
        ("sonata moonlight", "Moonlight Sonata"),
        ("largo winter", "Winter: Largo"),
        ("  blue   danube ", "Blue Danube"),
        ("blu danub", "Blue Danube"),
        ("ÉLÉGIE", "Élégie"),
        ("heavy metal", None),
    ],
)
def test_a_query_finds_the_title_that_fits_best(library: Library, query: str, title: str | None) -> None:
    found = library.find(query)
    assert (found.title if found else None) == title


def test_a_track_has_its_type_its_size_and_an_id_that_is_no_path(library: Library) -> None:
    track = library.find("Moonlight Sonata")
    assert track is not None
    assert (track.mime_type, track.size_bytes) == ("audio/wav", 3)
    assert library.get(track.id) is track
    assert track.id.removesuffix(".wav").isalnum()
    assert library.get("../" + track.path.name) is None


def test_titles_come_from_the_file_name_or_from_the_titles_file(tmp_path: Path) -> None:
    (tmp_path / "night_song-2.mp3").touch()
    (tmp_path / "b.mp3").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "library.json").write_text('{"b.mp3": "Better"}')
    assert [track.title for track in Library.scan(tmp_path).tracks] == ["Better", "night song-2"]


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("周杰伦 - 稻香.mp3", "周杰伦 - 稻香"),
        ("Sigur Rós – Ára bátur.flac", "Sigur Rós – Ára bátur"),
        ("03-Sun-dance_(live).ogg", "03-Sun-dance (live)"),
        ("Mr. Blue #1?.mp3", "Mr. Blue #1?"),
        ("-.mp3", "-"),
    ],
)
def test_titles_keep_their_punctuation_and_are_found_without_it(
    tmp_path: Path, name: str, title: str
) -> None:
    (tmp_path / name).touch()
    (tmp_path / "zzz.mp3").touch()
    library = Library.scan(tmp_path)
    assert title in {track.title for track in library.tracks}
    for query in (title, " ".join(re.findall(r"\w+", title))):
        found = library.find(query)
        assert found is not None
        assert found.title == title or not query


MP3, FLAC, WAV = b"ID3\x04" + bytes(60), b"fLaC" + bytes(60), b"RIFF\0\0\0\0WAVEfmt " + bytes(48)
OGG = b"OggS" + bytes(24)


@pytest.mark.parametrize(
    ("name", "head", "mime_type"),
    [
        ("a.mp3", MP3, "audio/mpeg"),
        ("a.mp3", FLAC, "audio/flac"),
        ("a.MP3", b"", "audio/mpeg"),
        ("a.flac", MP3, "audio/flac"),
        ("a.wav", WAV, "audio/wav"),
        ("a.ogg", OGG + b"\x01vorbis", "audio/ogg"),
        ("a.ogg", OGG + b"OpusHead", "audio/ogg; codecs=opus"),
        ("a.opus", b"", "audio/ogg; codecs=opus"),
        ("a.oga", OGG + b"\x7fFLAC", "audio/ogg; codecs=flac"),
        ("a.aac", b"\xff\xf1" + bytes(62), "audio/aac"),
        ("a.m4a", b"\0\0\0\x20ftypM4A " + bytes(50), "audio/mp4"),
        ("a.m4b", b"", "audio/mp4"),
        ("a.webm", b"\x1aE\xdf\xa3" + bytes(20) + b"webm", "audio/webm"),
        ("a.weba", b"", "audio/webm"),
        ("a.mka", b"\x1aE\xdf\xa3" + bytes(20) + b"matroska", "audio/matroska"),
        ("a.aiff", b"FORM\0\0\0\0AIFF", "audio/aiff"),
        ("a.mid", b"MThd" + bytes(60), "audio/midi"),
        ("a.au", b".snd" + bytes(60), "audio/basic"),
        ("a.txt", MP3, None),
        ("a.jpg", FLAC, None),
        ("mp3", MP3, None),
    ],
)
def test_every_audio_file_is_served_with_the_type_that_it_has(
    tmp_path: Path, name: str, head: bytes, mime_type: str | None
) -> None:
    (tmp_path / name).write_bytes(head)
    (tmp_path / "zzz.mp3").touch()
    found = [track.mime_type for track in Library.scan(tmp_path).tracks if track.path.name == name]
    assert found == ([] if mime_type is None else [mime_type])


@pytest.mark.parametrize("text", ["[1]", '{"a": 1}', "{"])
def test_a_wrong_titles_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "library.json").write_text(text)
    with pytest.raises(ConfigError, match=r"library\.json"):
        Library.scan(tmp_path)


def test_a_folder_that_is_missing_or_without_music_is_named_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--library"):
        Library.scan(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="expected audio files"):
        Library.scan(tmp_path)


def test_the_shipped_piece_comes_in_four_formats_and_small_enough() -> None:
    tracks = Library.scan().tracks
    assert {track.mime_type for track in tracks} == {"audio/mpeg", "audio/flac", "audio/wav", "audio/ogg"}
    assert sum(track.size_bytes for track in tracks) <= 1_500_000
    song = Library.scan().find("")
    assert song is not None
    assert song.title == "First Light"
    assert 2 * 102_400 < song.size_bytes <= 225_000  # three pages; the only track in the wheel
    for track in tracks:
        seconds = miniaudio.get_file_info(str(track.path)).duration
        assert seconds >= (64 if track is tracks[0] else 4)
