"""An audio file against its own headers, checksums and index: whole ones pass, damaged ones are found."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path

import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from playhead.content.coded_frames import mpeg_frame
from playhead.playback.containers import audio_problem
from playhead.playback.containers.flac import flac_info

DATA = Path(__file__).parents[2] / "data"
MUSIC = Path(__file__).parents[3] / "python" / "playhead" / "servers" / "audio" / "music"
WHOLE = {
    path.name: path.read_bytes()
    for path in (*DATA.iterdir(), *MUSIC.iterdir())
    if path.suffix in (".wav", ".flac", ".mp3", ".ogg", ".oga", ".opus")
}
WITH_A_LENGTH = sorted(set(WHOLE) - {"bare.mp3"})
"""An MP3 without an index says nothing about its length."""


def samples(channels: int, count: int = 6000) -> list[list[float]]:
    noise = random.Random(3)
    return [[0.2 * noise.uniform(-1, 1) for _ in range(channels)] for _ in range(count)]


def written(format_name: str, subtype: str, *, rate_hz: int = 16_000, channels: int = 2) -> bytes:
    """A file of libsndfile's, which has its own encoders."""
    file = io.BytesIO()
    soundfile.write(file, samples(channels), rate_hz, format=format_name, subtype=subtype)
    return file.getvalue()


def test_the_fixtures_are_all_there() -> None:
    assert len(WHOLE) >= 12


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_whole_file_has_no_problem(name: str) -> None:
    assert audio_problem(WHOLE[name]) is None


@pytest.mark.parametrize("part", [1 / 2, 2 / 3], ids=["half", "two thirds"])
@pytest.mark.parametrize("name", WITH_A_LENGTH)
def test_a_file_that_was_cut_is_found(name: str, part: float) -> None:
    whole = WHOLE[name]
    assert audio_problem(whole[: int(len(whole) * part)]) is not None


@pytest.mark.parametrize("name", ["chord.ogg", "flac_in_ogg.oga", "refused.opus"])
def test_any_flipped_bit_of_an_ogg_file_is_found(name: str) -> None:
    chance = random.Random(1)
    for _ in range(100):
        damaged = bytearray(WHOLE[name])
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        assert audio_problem(bytes(damaged)) is not None


def frames_at(flac: bytes) -> int:
    """The place of the first frame, after the metadata blocks."""
    at = 4
    while True:
        last, at = flac[at] & 0x80, at + 4 + int.from_bytes(flac[at + 1 : at + 4], "big")
        if last:
            return at


def test_any_flipped_bit_of_a_flac_frame_is_found() -> None:
    chance, flac = random.Random(1), WHOLE["chord.flac"]
    for _ in range(60):
        damaged = bytearray(flac)
        place = chance.randrange(frames_at(flac), len(damaged))
        damaged[place] ^= 1 << chance.randrange(8)
        assert audio_problem(bytes(damaged)) is not None, place


def test_padding_of_flac_that_is_not_zero_is_found() -> None:
    flac = bytearray(WHOLE["chord.flac"])
    flac[frames_at(bytes(flac)) - 10] ^= 4
    assert "padding" in str(audio_problem(bytes(flac)))


@pytest.mark.parametrize(
    ("format_name", "subtype"),
    [
        ("WAV", "PCM_U8"),
        ("WAV", "PCM_24"),
        ("WAV", "FLOAT"),
        ("WAV", "MS_ADPCM"),
        ("WAVEX", "PCM_16"),
        ("FLAC", "PCM_S8"),
        ("FLAC", "PCM_24"),
        ("OGG", "VORBIS"),
        ("OGG", "OPUS"),
        ("MP3", "MPEG_LAYER_III"),
    ],
)
@pytest.mark.parametrize(("rate_hz", "channels"), [(8_000, 1), (48_000, 2)])
def test_another_encoders_files_are_whole_and_cut_ones_are_not(
    format_name: str, subtype: str, rate_hz: int, channels: int
) -> None:
    whole = written(format_name, subtype, rate_hz=rate_hz, channels=channels)
    assert audio_problem(whole) is None
    assert audio_problem(whole[: len(whole) // 2]) is not None


def test_a_flac_file_of_an_encoder_that_could_not_seek_claims_nothing_about_its_length() -> None:
    flac = bytearray(WHOLE["chord.flac"])
    flac[21] &= 0xF0
    flac[22:42] = bytes(20)  # neither a total nor an MD5
    found = flac_info(bytes(flac))
    assert found is not None
    assert (found.samples, found.md5, found.bits, found.channels) == (None, None, 16, 2)
    assert audio_problem(bytes(flac)) is None
    assert audio_problem(bytes(flac)[:-1]) is not None  # the last frame's checksum


def test_a_wrong_total_of_samples_is_found() -> None:
    flac = bytearray(WHOLE["chord.flac"])
    flac[25] ^= 1
    assert audio_problem(bytes(flac)) == "expected 48001 samples, as STREAMINFO says, got frames with 48000"


def test_a_flac_frame_that_is_missing_is_found() -> None:
    flac = WHOLE["chord.flac"]
    first = frames_at(flac)
    second = flac.index(flac[first : first + 4] + b"\x01", first + 1)
    assert "STREAMINFO" in str(audio_problem(flac[:first] + flac[second:]))


def wav(data: bytes, *, riff: int | None = None, says: int | None = None, after: bytes = b"") -> bytes:
    form = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    body = b"WAVE" + form + b"data" + struct.pack("<I", len(data) if says is None else says) + data + after
    return b"RIFF" + struct.pack("<I", len(body) if riff is None else riff) + body


@pytest.mark.parametrize(
    "file",
    [
        wav(bytes(1000), riff=0xFFFF_FFFF, says=0xFFFF_FFFF),
        wav(bytes(1000), riff=0x7FFF_FFFF, says=0x7FFF_FFFF - 36),
        wav(bytes(1000), riff=0, says=0),
        wav(bytes(1001)),
        wav(bytes(1000), riff=1044),
        wav(bytes(1000), after=b"LIST\x04\x00\x00\x00INFO"),
    ],
    ids=["ffmpeg's pipe", "sox's pipe", "zeros", "odd without padding", "RIFF counts itself", "a list after"],
)
def test_a_wav_file_as_recorders_write_it_is_whole(file: bytes) -> None:
    assert audio_problem(file) is None


def test_a_wav_file_that_lost_a_chunk_after_its_samples_is_found() -> None:
    whole = wav(bytes(1000), after=b"LIST\x20\x00\x00\x00" + bytes(32))
    assert audio_problem(whole) is None
    assert "cut short" in str(audio_problem(whole[:-40]))


def vbri(frames: int, size: int, count: int) -> bytes:
    """An MP3 of `count` silent frames at 128 kbit/s, the first with Fraunhofer's index."""
    head = b"\xff\xfb\x90\x64"
    frame = mpeg_frame(head, 0)
    assert frame is not None
    first = bytearray(head.ljust(frame.size_bytes, b"\0"))
    struct.pack_into(">4sHHHII", first, 36, b"VBRI", 1, 0, 75, size, frames)
    return bytes(first) + head.ljust(frame.size_bytes, b"\0") * (count - 1)


def test_an_mp3_is_compared_with_each_kind_of_index() -> None:
    assert audio_problem(vbri(9, 9 * 417, 10)) is None
    assert audio_problem(vbri(10, 10 * 417, 10)) is None  # some count the index's own frame
    assert "19 MPEG frames, as the VBRI index says" in str(audio_problem(vbri(19, 10 * 417, 10)))
    assert "bytes of MPEG frames" in str(audio_problem(vbri(10, 20 * 417, 10)))
    mp3 = WHOLE["gapless.mp3"]
    at = mp3.index(b"Info")
    assert "Info index" in str(audio_problem(mp3[: at + 8] + struct.pack(">I", 118) + mp3[at + 12 :]))


def test_bytes_between_mp3_frames_are_found_and_tags_after_them_are_not() -> None:
    bare = WHOLE["bare.mp3"]
    tag = b"TAG" + bytes(125)
    ape = b"APETAGEX" + struct.pack("<IIII", 2000, 32, 0, 0) + bytes(8)
    assert audio_problem(bare + tag) is None
    assert audio_problem(bare + ape + tag) is None
    assert audio_problem(bare + bytes(500)) is None
    assert audio_problem(bare[:5000] + b"<html>" + bare[5000:]) is not None


def test_an_mp3_without_an_index_is_found_when_it_ends_within_a_frame() -> None:
    bare = WHOLE["bare.mp3"]
    assert "cut short" in str(audio_problem(bare[:-100]))


def test_pages_of_ogg_that_are_missing_or_repeated_are_found() -> None:
    ogg = WHOLE["chord.ogg"]
    pages = [b"OggS" + page for page in ogg.split(b"OggS")[1:]]
    assert b"".join(pages) == ogg
    assert audio_problem(b"".join([*pages[:3], *pages[4:]])) is not None
    assert audio_problem(b"".join([*pages[:3], pages[2], *pages[3:]])) is not None
    assert "last of its stream" in str(audio_problem(b"".join(pages[:-1])))
    assert audio_problem(ogg + ogg) is None  # one stream after another


@given(
    st.binary(max_size=300),
    st.sampled_from([b"RIFF0000WAVE", b"fLaC", b"OggS", b"ID3", b"\xff\xfb\x90\x64", b""]),
)
def test_no_bytes_break_it(rest: bytes, head: bytes) -> None:
    audio_problem(head + rest)


SMALL = sorted(name for name, data in WHOLE.items() if len(data) < 100_000)


@given(st.sampled_from(SMALL), st.data())
def test_no_damage_breaks_it(name: str, data: st.DataObject) -> None:
    whole = bytearray(WHOLE[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, min(400, len(whole) - 1)) | st.integers(0, len(whole) - 1))
        whole[place : place + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    audio_problem(bytes(whole))
