"""Ogg Vorbis of three encoders gives the samples of libvorbis; so do chains, beginnings and damage."""

from __future__ import annotations

import io
import random
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import av
import numpy as np
import pytest
import soundfile

from playhead.content.audio import AudioFormat
from playhead.errors import DecodeError, UnsupportedFormatError
from playhead.playback.decoder import MiniaudioDecoder, PcmDecoder, open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.identification import Identified
from playhead.stream.source import BytesReader
from tests.local_vorbis import decode_vorbis
from tests.unit.playback.pieces import DATA
from tests.unit.playback.test_seeking import vorbis_of_ffmpeg, written

CHORD = (DATA / "chord.ogg").read_bytes()
RATES_HZ = (8000, 11_025, 16_000, 22_050, 32_000, 44_100, 48_000, 96_000)
LENGTHS = (1, 100, 1023, 5000, 40_000, 100_000)


def music(draw: random.Random, channels: int, frames: int) -> Any:
    """Tones and noise at another pitch in each channel, so that a swap is heard."""
    at = np.arange(frames)[:, None] / 100
    tones = np.sin(at * (1 + np.arange(channels)) * draw.uniform(0.5, 2)) * draw.uniform(0.05, 0.6)
    noise = np.random.default_rng(draw.randrange(1 << 30)).uniform(-0.2, 0.2, (frames, channels))
    return ((tones + noise * (np.sin(at / 9) > 0)) * 32767).astype(np.int16)


def by_libsndfile(draw: random.Random, pcm: Any, rate_hz: int) -> bytes:
    return written(pcm, rate_hz=rate_hz, format="OGG", subtype="VORBIS", compression_level=draw.random())


def by_ffmpeg(draw: random.Random, pcm: Any, rate_hz: int) -> bytes:
    pcm = np.ascontiguousarray(pcm[:, :1].repeat(2, axis=1)) if pcm.shape[1] != 2 else pcm
    pages = draw.choice([50_000, 200_000, 1_000_000, 3_000_000])
    bit_rate = draw.choice([48_000, 96_000, 192_000])
    return vorbis_of_ffmpeg(pcm, rate_hz=rate_hz, page_microseconds=pages, bit_rate=bit_rate)


def by_oggenc(draw: random.Random, pcm: Any, rate_hz: int) -> bytes:
    quality = draw.choice([-1, 2, 5, 9])
    program = shutil.which("oggenc")
    assert program is not None
    shape = ("-r", "-B", "16", "-C", str(pcm.shape[1]), "-R", str(rate_hz), "-q", str(quality))
    done = subprocess.run(
        [program, "-Q", *shape, "-o", "-", "-"], input=pcm.tobytes(), capture_output=True, check=True
    )
    return bytes(done.stdout)


def floats_of_ffmpeg(data: bytes) -> Any:
    parts = []
    with av.open(io.BytesIO(data), "r") as container:
        resampler = av.AudioResampler(format="flt")
        for frame in container.decode(audio=0):
            parts += [
                part.to_ndarray().reshape(-1, part.layout.nb_channels) for part in resampler.resample(frame)
            ]
    return np.concatenate(parts) if parts else np.zeros((0, 1))


def integers(floats: Any) -> Any:
    return np.clip(np.rint(floats.astype(np.float64) * 32768), -32768, 32767)


ENCODERS = {"ffmpeg": by_ffmpeg, "libsndfile": by_libsndfile, "oggenc": by_oggenc}


def files(encoder: str, count: int) -> Iterator[bytes]:
    if encoder == "oggenc" and shutil.which("oggenc") is None:
        pytest.skip("needs oggenc (Debian: apt install vorbis-tools)")
    for number in range(count):
        draw = random.Random(f"{encoder} {number}")
        frames = draw.choice(LENGTHS) + draw.randrange(50)
        pcm = music(draw, 1 + number % 8, frames)
        try:
            yield ENCODERS[encoder](draw, pcm, draw.choice(RATES_HZ))
        except (av.FFmpegError, soundfile.LibsndfileError, subprocess.CalledProcessError):
            continue  # the encoder refuses this rate or quality


ORDERS = {3: [0, 2, 1], 5: [0, 2, 1, 3, 4], 6: [0, 2, 1, 5, 3, 4], 7: [0, 2, 1, 6, 5, 3, 4]}
ORDERS |= {8: [0, 2, 1, 7, 5, 6, 3, 4]}
"""The channels of libvorbis (Vorbis I, section 4.3.9) in the order of FFmpeg and WAV."""


def assert_equals_libvorbis(data: bytes) -> bool:
    """Compare the samples with those of libvorbis. Returns whether FFmpeg's are the same too.

    FFmpeg cuts audio of a single page elsewhere, and differs from libvorbis in some low-frequency channels.
    """
    rate_hz, channels, pcm = decode_vorbis(data)
    ours = np.frombuffer(pcm, dtype=np.int16).reshape(-1, channels).astype(int)
    floats, _rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    theirs = integers(floats)[:, ORDERS.get(channels, slice(None))]
    about = f"{len(data)} bytes, {rate_hz} Hz, {channels} channels"
    assert ours.shape == theirs.shape, about
    assert not len(ours) or np.abs(ours - theirs).max() <= 1, about
    others = integers(floats_of_ffmpeg(data))
    frames = min(len(ours), len(others))
    return bool(np.all(np.abs(ours[:frames] - others[:frames]) <= 1))


@pytest.mark.parametrize("encoder", ENCODERS)
def test_samples_equal_those_of_libvorbis_and_ffmpeg(encoder: str) -> None:
    assert all(assert_equals_libvorbis(data) for data in files(encoder, 16))


@pytest.mark.slow("encodes 300 files")
@pytest.mark.parametrize("encoder", ENCODERS)
def test_samples_of_a_hundred_files_equal_those_of_libvorbis_and_ffmpeg(encoder: str) -> None:
    equal = [assert_equals_libvorbis(data) for data in files(encoder, 130)]
    assert len(equal) >= 100
    assert sum(equal) >= 0.98 * len(equal)


def rest_of(decoder: PcmDecoder) -> bytes:
    return b"".join(iter(lambda: bytes(decoder.read()), b""))


def pcm_of(data: bytes) -> bytes:
    return rest_of(open_decoder(DecoderSource(BytesReader(data)), mime_type=None, uri=None))


def test_streams_that_follow_each_other_are_one_and_a_seek_finds_the_second() -> None:
    once = pcm_of(CHORD)
    assert pcm_of(CHORD * 3) == once * 3
    draw = random.Random(5)
    files = [by_libsndfile(draw, music(draw, 2, 100_000), 22_050) for _ in range(3)]
    parts = b"".join(map(pcm_of, files))
    decoder = open_decoder(DecoderSource(BytesReader(b"".join(files))), mime_type=None, uri=None)
    for frame in (250_000, 99_999, 150_000):
        decoder.seek(frame)
        assert decoder.position_frames == frame
        assert rest_of(decoder) == parts[frame * 4 :]


def test_a_stream_that_begins_in_the_middle_begins_at_its_frame_0() -> None:
    whole = pcm_of(CHORD)
    cut = CHORD[:3400] + CHORD[17_195:]
    pcm = pcm_of(cut)
    assert whole.endswith(pcm)
    decoder = open_decoder(DecoderSource(BytesReader(cut)), mime_type=None, uri=None)
    assert decoder.position_frames == 0
    decoder.seek(50_000)
    assert rest_of(decoder) == pcm[50_000 * 4 :]


def test_a_damaged_page_is_skipped_and_damaged_headers_are_refused() -> None:
    damaged = bytearray(CHORD)
    damaged[20_000] ^= 1
    assert len(pcm_of(bytes(damaged))) == len(pcm_of(CHORD)) - 48_128 * 4
    for at in (30, 100, 3000):
        damaged = bytearray(CHORD)
        damaged[at] ^= 1
        with pytest.raises((DecodeError, UnsupportedFormatError)):
            pcm_of(bytes(damaged))


def test_no_bytes_reach_the_vorbis_decoder_of_miniaudio() -> None:
    for audio_format in (AudioFormat.MP3, AudioFormat.FLAC, AudioFormat.WAV):
        with pytest.raises(UnsupportedFormatError):
            MiniaudioDecoder(DecoderSource(BytesReader(CHORD)), Identified(format=audio_format), head=CHORD)
