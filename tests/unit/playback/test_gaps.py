"""Positions in a stream whose server has dropped bytes: the place in the source."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from playhead.playback.conversion import convert_decoder
from playhead.playback.decoder import PcmDecoder, open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.stream.source import BytesReader
from tests.run_files import made_once
from tests.unit.playback.test_seeking import RATE_HZ, encoded, music, written

if TYPE_CHECKING:
    from typing_extensions import Buffer

SETTLED = 8_192
"""Frames behind a gap, in which a codec may differ from an uninterrupted decode."""


class GappedReader(BytesReader):
    """Goes on 25 s later once the first bytes were read, and has only the bytes from there on then."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        third = len(data) // 3 // 288 * 288
        self.at, self.earliest = third + 100, 2 * third + 100 + 288
        self._joins: dict[int, int] = {}

    @property
    def buffered_range(self) -> tuple[int, int]:
        return self._position, self._position

    def joined(self, offset: int) -> int:
        return self._joins.get(offset, offset)

    def seek_from_thread(self, offset: int) -> None:
        if self._joins and offset < self.earliest:
            self._joins[offset] = offset = self.earliest
        super().seek_from_thread(offset)

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        view = memoryview(buffer).cast("B")
        if self._position == self.at:
            self._joins[self.at] = self._position = self.earliest
        left = self.at - self._position
        return super().readinto(view[:left] if left > 0 else view)


@made_once
def coded(kind: str) -> bytes:
    if kind == "raw":
        return bytes(music().tobytes())
    if kind not in ("adts", "opus"):
        return encoded(kind)
    if kind == "opus":
        form = ["-c:a", "libopus", "-b:a", "96k", "-f", "ogg"]
    else:
        form = ["-c:a", "aac", "-aac_pns", "0", "-f", "adts"]
    ffmpeg = shutil.which("ffmpeg") or pytest.skip("needs ffmpeg")
    source = written(music(), format="WAV")
    command = [ffmpeg, "-v", "error", "-i", "-", *form, "-"]
    return subprocess.run(command, input=source, capture_output=True, check=True).stdout


def decoder_of(reader: BytesReader, kind: str, rate_hz: int | None = None) -> PcmDecoder:
    mime_type = f"audio/L16;rate={RATE_HZ};channels=2;endian=little" if kind == "raw" else None
    source = DecoderSource(reader)
    decoder = open_decoder(source, mime_type=mime_type, uri=None)
    decoder = convert_decoder(decoder, rate_hz=rate_hz, channels=None)
    decoder.read()
    source.audio_began()
    return decoder


def pcm_of(decoder: PcmDecoder, frames: int = 1 << 60) -> Any:
    got = bytearray()
    while len(got) < frames * decoder.format.frame_bytes and (piece := bytes(decoder.read())):
        got += piece
    dtype = np.int16 if decoder.format.sample.value == "s16" else np.float32
    return np.frombuffer(bytes(got), dtype)[:: decoder.format.channels].astype(float)


def place_of(pcm: Any, whole: Any, near: int, *, within: int = 2 * RATE_HZ) -> int:
    """Find the frame of `whole` at which `pcm` begins, by correlation."""
    low = max(0, near - within)
    part = whole[low : near + within + len(pcm)]
    size = 1 << (len(part) + len(pcm)).bit_length()
    match = np.fft.irfft(np.fft.rfft(part, size) * np.conj(np.fft.rfft(pcm, size)), size)
    energy = np.cumsum(np.concatenate([[0.0], part**2]))
    norm = np.sqrt(energy[len(pcm) :] - energy[: -len(pcm)]) + 1e-9
    return low + int(np.argmax(match[: len(norm)] / norm))


def heard(decoder: PcmDecoder) -> tuple[int, Any]:
    """Audio from 0.4 s on, where codecs have settled, and its first frame."""
    pcm = pcm_of(decoder, 3 * SETTLED)[-SETTLED:]
    return decoder.position_frames - SETTLED, pcm


@pytest.mark.parametrize(
    ("kind", "rate_hz"),
    [
        *((kind, None) for kind in ("wav", "raw", "cbr-low", "vbr-bare", "vorbis", "adts", "opus")),
        ("wav", 24_000),
    ],
)
def test_positions_behind_a_gap_are_places_of_the_source(kind: str, rate_hz: int | None) -> None:
    data = coded(kind)
    whole_decoder = decoder_of(BytesReader(data), kind, rate_hz)
    whole_decoder.seek(0)
    whole = pcm_of(whole_decoder)
    reader = GappedReader(data)
    decoder = decoder_of(reader, kind, rate_hz)
    hz = decoder.format.rate_hz
    slack = round(0.15 * hz)
    while decoder.position_frames < 25 * hz:
        decoder.read()
    assert decoder.bytes_per_second > 0.9 * len(data) / 60
    position, pcm = heard(decoder)
    place = place_of(pcm, whole, 44 * hz, within=16 * hz)
    assert abs(place - position) <= slack or (kind == "vbr-bare" and not decoder.position_is_exact)
    if kind in ("wav", "raw"):
        assert decoder.position_is_exact
        assert abs(place - position) <= 1

    decoder.seek(position)
    again, pcm = heard(decoder)
    assert abs(place_of(pcm, whole, place) - place - (again - position)) <= slack, "the same audio"
    decoder.seek(5 * hz)
    decoder.read()
    assert decoder.position_frames > 25 * hz, "the earliest that the server has"
    position, pcm = heard(decoder)
    assert abs(place_of(pcm, whole, place) - position) <= slack or kind == "vbr-bare"
