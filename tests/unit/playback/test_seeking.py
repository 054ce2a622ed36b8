"""PCM after a seek equals a local decode from that sample, and few reads are needed to find the place."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import av
import lameenc
import numpy as np
import pytest
import soundfile

from playhead.content.audio import AudioFormat
from playhead.content.coded_frames import mpeg_frame
from playhead.errors import SeekError, StreamBrokenError
from playhead.playback.decoder import MiniaudioDecoder, PcmDecoder, open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.identification import Identified
from playhead.stream.source import BytesReader
from tests.run_files import made_once
from tests.unit.playback.pieces import DATA, MUSIC

if TYPE_CHECKING:
    from typing_extensions import Buffer

SECONDS = 60
RATE_HZ = 44_100
AFTER_FRAMES = 5_000
STATED = ["wav", "wav24", "flac", "vorbis"]
"""Formats that state the time of each place."""
MPEG = ["cbr", "cbr-xing", "vbr-xing", "vbr-bare", "cbr-low"]


@cache
def music(rate_hz: int = RATE_HZ) -> Any:
    """A minute that is loud, quiet and noisy in turn, so that its bit rate varies."""
    at = np.arange(SECONDS * rate_hz) / rate_hz
    noise = np.random.default_rng(1).uniform(-1, 1, len(at))
    loud = 0.2 + 0.8 * np.abs(np.sin(at / 7))
    left = 0.3 * np.sin(2 * np.pi * (220 + 3 * at) * at) * loud + 0.1 * noise * (np.sin(at / 5) > 0.3)
    right = 0.3 * np.sin(2 * np.pi * 330 * at) * np.abs(np.cos(at / 9))
    return (np.stack([left, right], axis=1) * 32767).astype(np.int16)


@made_once
def encoded(kind: str) -> bytes:
    match kind:
        case "wav" | "wav24":
            return written(music(), format="WAV", subtype=f"PCM_{kind[3:] or 16}")
        case "flac":
            return written(music(), format="FLAC")
        case "vorbis":
            return written(music(), format="OGG", subtype="VORBIS")
        case "cbr-xing" | "vbr-xing":
            mode = "VARIABLE" if kind[0] == "v" else "CONSTANT"
            return written(music(), format="MP3", bitrate_mode=mode)
    if kind == "vbri":
        return with_vbri(encoded("vbr-xing"))
    encoder = lameenc.Encoder()
    encoder.silence()
    encoder.set_in_sample_rate(RATE_HZ)
    encoder.set_channels(2)
    if kind == "vbr-bare":
        encoder.set_vbr(4)
        encoder.set_vbr_quality(4)
    else:
        encoder.set_bit_rate(128 if kind == "cbr" else 32)
    if kind == "cbr-low":
        encoder.set_out_sample_rate(22_050)
    return bytes(encoder.encode(music().tobytes()) + encoder.flush())


VBRI_FRAMES = 10
"""Frames of one entry of the table."""


def with_vbri(data: bytes) -> bytes:
    """Put the header of Fraunhofer's encoder, a frame with a table, in place of the first frame."""
    first_frame = mpeg_frame(data, 0)
    assert first_frame is not None
    data = data[first_frame.size_bytes :]
    sizes: list[int] = []
    while (frame := mpeg_frame(data, sum(sizes))) is not None:
        sizes.append(frame.size_bytes)
    entries = [sum(sizes[at : at + VBRI_FRAMES]) for at in range(0, len(sizes), VBRI_FRAMES)]
    table = struct.pack(f">{len(entries)}H", *entries)
    first = bytearray(b"\xff\xfb\xe0\x00").ljust(1044, b"\0")  # 320 kbit/s
    shape = (1, 0, 75, sum(sizes), len(sizes), len(entries), 1, 2, VBRI_FRAMES)
    struct.pack_into(">4sHHHIIHHHH", first, 36, b"VBRI", *shape)
    first[62 : 62 + len(table)] = table
    assert len(first) == 1044
    return bytes(first) + data[: sum(sizes)]


def written(pcm: Any, *, rate_hz: int = RATE_HZ, **form: Any) -> bytes:
    """A file of libsndfile's."""
    out = io.BytesIO()
    with soundfile.SoundFile(out, "w", samplerate=rate_hz, channels=pcm.shape[1], **form) as sound:
        for start in range(0, len(pcm), 4096):  # libvorbis takes a block on the stack
            sound.write(pcm[start : start + 4096])
    return out.getvalue()


class RingReader(BytesReader):
    """Keeps 64 KiB behind the reader and 256 KiB ahead, as a stream does. Seeks elsewhere are counted."""

    def __init__(self, data: bytes, *, error: Exception | None = None) -> None:
        super().__init__(data)
        self.error = error
        self.ahead_bytes = 256 << 10
        self.round_trips = 0
        self.seekable_now = True
        self._kept_from = 0
        self._interrupted = False

    def can_seek(self, offset: int) -> bool:
        first, last = self.buffered_range
        return self.seekable_now or first <= offset <= last

    @property
    def buffered_range(self) -> tuple[int, int]:
        return self._kept_from, min(len(self._data), max(self._position, self._kept_from) + self.ahead_bytes)

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        if self._interrupted:
            self._interrupted = False
            raise TimeoutError
        if self.error is not None:
            raise self.error
        count = super().readinto(buffer)
        self._kept_from = max(self._kept_from, self._position - (64 << 10))
        return count

    def seek_from_thread(self, offset: int) -> None:
        first, last = self.buffered_range
        if not first <= offset <= last:
            self.round_trips += 1
            self._kept_from = offset
        super().seek_from_thread(offset)

    def interrupt(self) -> None:
        self._interrupted = True


@contextmanager
def decoder_of(reader: BytesReader, mime_type: str | None = None) -> Iterator[PcmDecoder]:
    source = DecoderSource(reader)
    decoder = open_decoder(source, mime_type=mime_type, uri=None)
    assert read(decoder, 1)
    source.audio_began()
    yield decoder
    decoder.close()


def read(decoder: PcmDecoder, frames: int) -> bytes:
    pcm = bytearray()
    while len(pcm) < frames * decoder.format.frame_bytes and (piece := bytes(decoder.read())):
        pcm += piece
    return bytes(pcm)


@cache
def decoded(data: bytes) -> bytes:
    with decoder_of(BytesReader(data)) as decoder:
        decoder.seek(0)
        return read(decoder, 1 << 40)


def file(name: str) -> bytes:
    return (DATA / name).read_bytes() if "." in name else encoded(name)


def assert_equal_from(decoder: PcmDecoder, frame: int, pcm: bytes, *, frames: int = AFTER_FRAMES) -> None:
    assert decoder.position_frames == frame
    size = decoder.format.frame_bytes
    got = read(decoder, frames)
    assert got == pcm[frame * size : frame * size + len(got)]
    assert len(got) >= frames * size or frame * size + len(got) == len(pcm), "it ends early"
    assert decoder.position_frames == frame + len(got) // size


def test_the_duration_is_known_wherever_the_headers_count_frames() -> None:
    for data in (encoded("vbri"), written(music(), format="WAV", subtype="MS_ADPCM")):
        with decoder_of(BytesReader(data)) as decoder:
            assert decoder.duration_seconds == pytest.approx(SECONDS, abs=0.1)


@pytest.mark.parametrize("name", [*MUSIC, *STATED, *MPEG])
def test_a_seek_inside_the_bytes_in_hand_is_exact_to_the_sample(name: str) -> None:
    data = file(name)
    pcm, draw = decoded(data), random.Random(3)
    with decoder_of(BytesReader(data)) as decoder:
        total = len(pcm) // decoder.format.frame_bytes
        for frame in [0, total - 1, 1, *(draw.randrange(total) for _ in range(6))]:
            decoder.seek(frame)
            assert decoder.position_is_exact
            assert_equal_from(decoder, frame, pcm)


def round_trips_of_exact_seeks(data: bytes, seed: int, *, readers: int) -> int:
    """Seek twice in each of so many readers, to any frame. Returns the most round trips of a seek."""
    pcm, draw = decoded(data), random.Random(seed)
    most = 0
    for _ in range(readers):
        reader = RingReader(data)
        with decoder_of(reader) as decoder:
            for _seek in range(2):
                frame = draw.randrange(len(pcm) // decoder.format.frame_bytes)
                before = reader.round_trips
                decoder.seek(frame)
                most = max(most, reader.round_trips - before)
                assert decoder.position_is_exact
                assert_equal_from(decoder, frame, pcm)
    return most


@pytest.mark.parametrize("kind", STATED)
def test_a_far_seek_is_exact_where_the_format_states_times(kind: str) -> None:
    assert round_trips_of_exact_seeks(encoded(kind), 4, readers=8) <= (3 if kind in ("flac", "vorbis") else 1)


def vorbis_of_ffmpeg(
    pcm: Any, *, page_microseconds: int, rate_hz: int = RATE_HZ, bit_rate: int | None = None
) -> bytes:
    """Ogg Vorbis of stereo `pcm`, whose header announces no bit rate."""
    out = io.BytesIO()
    pages, experimental = {"page_duration": str(page_microseconds)}, {"strict": "experimental"}
    with av.open(out, "w", format="ogg", options=pages) as output:
        stream = output.add_stream("vorbis", rate=rate_hz, layout="stereo", options=experimental)
        assert isinstance(stream, av.AudioStream)
        if bit_rate is not None:
            stream.bit_rate = bit_rate
        frame = av.AudioFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout="stereo")
        frame.sample_rate, frame.time_base, frame.pts = rate_hz, Fraction(1, rate_hz), 0
        resampler = av.AudioResampler(format="fltp", layout="stereo", rate=rate_hz)
        for whole in (frame, None):
            for part in resampler.resample(whole):
                output.mux(stream.encode(part))
        output.mux(stream.encode(None))
    return out.getvalue()


@pytest.mark.parametrize("page_microseconds", [200_000, 1_000_000])
def test_a_far_seek_needs_three_round_trips_even_if_no_bit_rate_is_announced(page_microseconds: int) -> None:
    data = vorbis_of_ffmpeg(music(), page_microseconds=page_microseconds)
    assert round_trips_of_exact_seeks(data, 9, readers=12) <= 3


@pytest.mark.parametrize(
    ("kind", "off_by_seconds"),
    [("cbr", 0.0262), ("cbr-xing", 0.6), ("vbr-xing", 0.6), ("vbri", (VBRI_FRAMES + 1) * 1152 / RATE_HZ)],
)
def test_a_far_seek_in_mpeg_audio_is_estimated_with_one_read(kind: str, off_by_seconds: float) -> None:
    data = encoded(kind)
    pcm, draw = decoded(data), random.Random(5)
    for _ in range(6):
        reader = RingReader(data)
        with decoder_of(reader) as decoder:
            frame_bytes = decoder.format.frame_bytes
            frame = draw.randrange(decoder.format.rate_hz * 30, len(pcm) // frame_bytes - 10_000)
            decoder.seek(frame)
            assert not decoder.position_is_exact
            assert reader.round_trips == 1
            assert decoder.position_frames == frame
            got = read(decoder, 8_000)
            at = pcm.find(got[: 4_000 * frame_bytes]) / frame_bytes
            assert at >= 0, "the samples are those of another place"
            assert abs(at - frame) <= off_by_seconds * decoder.format.rate_hz


@pytest.mark.parametrize("kind", MPEG)
def test_what_was_read_is_exact_in_mpeg_audio_even_if_it_must_be_read_again(kind: str) -> None:
    data = encoded(kind)
    pcm = decoded(data)
    reader = RingReader(data)
    with decoder_of(reader) as decoder:
        read(decoder, decoder.format.rate_hz * 50)
        for seconds in (2.5, 49, 20, 0, 33):
            decoder.seek(int(seconds * decoder.format.rate_hz))
            assert decoder.position_is_exact
            assert_equal_from(decoder, int(seconds * decoder.format.rate_hz), pcm)
    assert reader.round_trips <= 5


@pytest.mark.parametrize("name", [*MUSIC, *STATED, *MPEG])
def test_past_the_end_is_the_end_and_one_can_seek_back_from_it(name: str) -> None:
    data = file(name)
    pcm = decoded(data)
    with decoder_of(BytesReader(data)) as decoder:
        decoder.seek(1 << 30)
        assert bytes(decoder.read()) == b""
        decoder.seek(1000)
        assert_equal_from(decoder, 1000, pcm, frames=1 << 40)
        assert bytes(decoder.read()) == b""
        decoder.seek(2000)
        assert_equal_from(decoder, 2000, pcm)


@pytest.mark.parametrize("name", ["wav", "flac", "vorbis", "cbr"])
def test_a_source_that_cannot_seek_is_refused_and_plays_on(name: str) -> None:
    data = file(name)
    pcm = decoded(data)
    reader = RingReader(data)
    with decoder_of(reader) as decoder:
        decoder.seek(0)
        reader.seekable_now, reader.ahead_bytes = False, 0
        position = decoder.position_frames
        with pytest.raises(SeekError, match="hands out once"):
            decoder.seek(len(pcm) // decoder.format.frame_bytes - 1)
        assert_equal_from(decoder, position, pcm, frames=len(pcm))


@pytest.mark.parametrize("name", [*STATED, *MPEG])
def test_a_read_that_was_interrupted_continues_with_a_seek(name: str) -> None:
    data = file(name)
    pcm = decoded(data)
    reader = RingReader(data)
    with decoder_of(reader) as decoder:
        reader.interrupt()
        with pytest.raises(TimeoutError):
            read(decoder, 1 << 40)
        decoder.seek(3000)
        assert_equal_from(decoder, 3000, pcm)


@pytest.mark.parametrize("kind", ["flac", "vorbis", "cbr"])
def test_a_stream_that_breaks_during_the_search_raises_its_own_error(kind: str) -> None:
    reader = RingReader(encoded(kind))
    with decoder_of(reader) as decoder:
        reader.error = StreamBrokenError("cut", offset=7)
        with pytest.raises(StreamBrokenError) as caught:
            decoder.seek(RATE_HZ * 50 + 1)  # at least the frame before it is read
        assert caught.value is reader.error


def test_raw_samples_are_sought_by_arithmetic() -> None:
    data = music()[:100_000].tobytes()
    with decoder_of(BytesReader(data), mime_type="audio/pcm;rate=44100;channels=2") as decoder:
        for frame in (70_000, 3, 99_999):
            decoder.seek(frame)
            assert_equal_from(decoder, frame, data)


def test_a_seek_into_other_channels_keeps_those_of_the_beginning() -> None:
    """The file begins with a damaged mono frame; at a seek miniaudio starts anew, in a stereo frame."""
    data = (DATA / "other-channels.mp3").read_bytes()
    source = DecoderSource(BytesReader(data))
    decoder = MiniaudioDecoder(source, Identified(format=AudioFormat.MP3), head=data[:64])
    try:
        source.audio_began()
        decoder.seek(6350)
        assert decoder._native.channels == decoder.format.channels == 1, "the buffer would be too small"
    finally:
        decoder.close()
