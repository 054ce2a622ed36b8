"""Formats of streams: by their bytes, then their type, then their name; and refusals."""

from __future__ import annotations

import random
import struct

import pytest

from playhead.content.audio import SNIFF_BYTES, AudioFormat, sniff
from playhead.errors import UnsupportedFormatError
from playhead.playback.containers.flac import FlacLocator
from playhead.playback.containers.mpeg import MpegLocator
from playhead.playback.containers.wav import WavLocator
from playhead.playback.formats import PcmFormat, SampleFormat
from playhead.playback.identification import DECODED, EXTRA_DECODED, RawPcm, identify, parse_raw_pcm
from tests.unit.playback.pieces import DATA


def head(name: str) -> bytes:
    return (DATA / name).read_bytes()[:SNIFF_BYTES]


def wave_head(tag: int, bits: int, *, before: bytes = b"", extension: bytes = b"") -> bytes:
    shape = struct.pack("<HHIIHH", tag, 2, 48000, 6 * 48000, 6, bits) + extension
    return b"RIFF\xff\xff\xff\xffWAVE" + before + struct.pack("<4sI", b"fmt ", len(shape)) + shape + b"data"


@pytest.mark.parametrize(
    ("head", "sample"),
    [
        (wave_head(1, 8), SampleFormat.S16),
        (wave_head(1, 16), SampleFormat.S16),
        (wave_head(1, 24), SampleFormat.F32),
        (wave_head(1, 32), SampleFormat.F32),
        (wave_head(3, 32), SampleFormat.F32),
        (wave_head(3, 64), SampleFormat.F32),
        (wave_head(6, 8), SampleFormat.S16),
        (wave_head(0xFFFE, 24, extension=bytes(8) + b"\x01\x00" + bytes(14)), SampleFormat.F32),
        (wave_head(0xFFFE, 16, extension=bytes(8) + b"\x01\x00" + bytes(14)), SampleFormat.S16),
        (wave_head(0xFFFE, 32, extension=bytes(8) + b"\x03\x00" + bytes(14)), SampleFormat.F32),
        (wave_head(1, 24, before=b"bext\x03\x00\x00\x00abc\x00"), SampleFormat.F32),
        (wave_head(1, 24)[:30], None),
    ],
)
def test_a_wav_of_more_than_16_bits_is_decoded_to_floats(head: bytes, sample: SampleFormat | None) -> None:
    locator = WavLocator()
    locator.feed(0, head)
    assert locator.sample is sample


@pytest.mark.parametrize(
    ("bits", "sample"),
    [(8, SampleFormat.S16), (16, SampleFormat.S16), (17, SampleFormat.F32), (24, SampleFormat.F32)],
)
def test_a_flac_of_more_than_16_bits_is_decoded_to_floats(bits: int, sample: SampleFormat) -> None:
    packed = 44100 << 44 | 1 << 41 | (bits - 1) << 36 | 1000
    head = b"fLaC\x00\x00\x00\x22" + bytes(10) + packed.to_bytes(8, "big") + bytes(16)
    locator = FlacLocator()
    locator.feed(0, head)
    assert locator.sample is sample
    assert MpegLocator().sample is SampleFormat.S16


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bare.mp3", AudioFormat.MP3),
        ("gapless.mp3", AudioFormat.MP3),
        ("tagged.mp3", AudioFormat.MP3),
        ("chord.flac", AudioFormat.FLAC),
        ("chord.ogg", AudioFormat.VORBIS),
        ("chord.wav", AudioFormat.WAV),
        ("refused.opus", AudioFormat.OPUS),
        ("refused.aac", AudioFormat.AAC),
        ("refused.m4a", AudioFormat.MP4),
        ("flac_in_ogg.oga", AudioFormat.OGG_FLAC),
        ("make_audio.py", AudioFormat.TEXT),
    ],
)
def test_the_first_bytes_tell_the_format(name: str, expected: AudioFormat) -> None:
    assert sniff(head(name)) is expected


@pytest.mark.parametrize(
    "mime_type", ["text/plain", "audio/aac", "AUDIO/OPUS; x=y", "audio/L16;rate=8000", None]
)
def test_a_signature_wins_over_a_wrong_label(mime_type: str | None) -> None:
    found = identify(head("chord.flac"), mime_type=mime_type, uri="x.mp3")
    assert found.format is AudioFormat.FLAC


@pytest.mark.parametrize("mime_type", ["audio/mpeg", "Audio/MPEG", " audio/mpeg ; codecs=mp3"])
def test_a_mime_type_is_read_whatever_its_case_and_parameters(mime_type: str) -> None:
    junk_before_the_first_frame = b"\x00" * SNIFF_BYTES
    assert identify(junk_before_the_first_frame, mime_type=mime_type, uri=None).format is AudioFormat.MP3


def test_the_name_decides_where_bytes_and_type_say_nothing() -> None:
    uri = "https://example.org/a%20b.MP3?x=.flac#y"
    found = identify(b"\x00" * SNIFF_BYTES, mime_type="application/octet-stream", uri=uri)
    assert found.format is AudioFormat.MP3


@pytest.mark.parametrize(
    ("mime_type", "expected"),
    [
        ("audio/L16;rate=16000", RawPcm(format=PcmFormat(rate_hz=16000, channels=1), big_endian=True)),
        (
            'Audio/l16; Channels="2"; RATE=44100',
            RawPcm(format=PcmFormat(rate_hz=44100, channels=2), big_endian=True),
        ),
        (
            "audio/pcm;rate=24000;channels=2",
            RawPcm(format=PcmFormat(rate_hz=24000, channels=2), big_endian=False),
        ),
    ],
)
def test_raw_pcm_is_described_by_its_type(mime_type: str, expected: RawPcm) -> None:
    assert parse_raw_pcm(mime_type) == expected
    # Samples may look like an MPEG frame, or like text: the label is believed before such weak signs.
    for samples in (b"\xff\xfb\x90\x00" * 16, b"abcd" * 16, bytes(64)):
        assert identify(samples, mime_type=mime_type, uri=None).raw == expected


@pytest.mark.parametrize(
    "mime_type",
    [
        "audio/L16",
        "audio/L16;rate=fast",
        "audio/L16;rate=0",
        "audio/L16;rate=-1",
        "audio/pcm;rate=8000;channels=99",
        "audio/pcm;rate=9999999",
        "audio/pcm;rate*=utf-8''8000",
        "audio/pcm;;;=",
    ],
)
def test_raw_pcm_without_a_possible_rate_is_refused_with_an_example(mime_type: str) -> None:
    with pytest.raises(UnsupportedFormatError, match="rate=16000"):
        identify(bytes(64), mime_type=mime_type, uri=None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("refused.opus", "Ogg Opus"),
        ("refused.aac", "AAC"),
        ("refused.m4a", "M4A"),
        ("flac_in_ogg.oga", "FLAC in Ogg"),
    ],
)
def test_a_format_without_a_decoder_is_named_with_the_extra_that_adds_it(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("playhead.playback.identification.has_extra", lambda extra: False)
    with pytest.raises(
        UnsupportedFormatError, match=rf"{words}.*`formats`.*pip install 'playhead\[formats\]'"
    ):
        identify(head(name), mime_type="audio/mpeg", uri=None)


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE html><html><body>404 Not Found</body></html>",
        b'{"error": "no such file"}',
        b"\xef\xbb\xbf<a/>",
    ],
)
def test_a_text_in_place_of_music_is_refused_whatever_it_is_called(body: bytes) -> None:
    with pytest.raises(UnsupportedFormatError, match=r"text, not audio.*audio/mpeg"):
        identify(body, mime_type="audio/mpeg", uri="song.mp3")


def test_an_empty_stream_is_refused_as_empty() -> None:
    with pytest.raises(UnsupportedFormatError, match="0 bytes"):
        identify(b"", mime_type="audio/mpeg", uri="song.mp3")


def test_bytes_that_contradict_their_label_are_refused_with_both() -> None:
    with pytest.raises(UnsupportedFormatError, match=r"expected FLAC \(audio/flac\).*00 00"):
        identify(bytes(64), mime_type="audio/flac", uri=None)


def test_unknown_bytes_without_a_label_are_refused() -> None:
    with pytest.raises(UnsupportedFormatError, match=r"known audio format.*00 00"):
        identify(bytes(64), mime_type=None, uri=None)


def test_no_bytes_and_no_label_do_anything_but_a_format_or_a_refusal() -> None:
    noise = random.Random(5)
    labels = [None, "", ";", "audio/", "audio/L16;rate=8000", "audio/mpeg", "\x00;\n", "a" * 10_000]
    for _ in range(3000):
        body = noise.randbytes(noise.randrange(SNIFF_BYTES + 1))
        try:
            found = identify(
                body, mime_type=noise.choice(labels), uri=noise.choice([None, "", "http://[", "a.wav"])
            )
        except UnsupportedFormatError:
            continue
        assert found.format in DECODED | EXTRA_DECODED
