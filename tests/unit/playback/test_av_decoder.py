"""PyAV's decoders equal FFmpeg's decode of the whole file, streamed in pieces, and from any seek on."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
import numpy as np
import pytest

from playhead.errors import DecodeError, PlayheadError, UnsupportedFormatError
from playhead.playback.containers.mp4 import MOST_PACKETS, Mp4Tables
from playhead.playback.decoder import open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.formats import SampleFormat
from playhead.stream.source import BytesReader
from playhead.testing.media import ScriptedReader
from tests.run_files import made_once
from tests.unit.playback.test_seeking import RingReader, assert_equal_from, decoder_of, music, read

SECONDS = 30
NO_NOISE = {"aac_pns": "0"}
"""The encoder's noise substitution, which no decoder repeats after a seek."""
KINDS: dict[str, tuple[str, str, int, dict[str, str], dict[str, str]]] = {
    "opus": ("libopus", "ogg", 48_000, {}, {}),
    "webm": ("libopus", "webm", 48_000, {}, {}),
    "flac in ogg": ("flac", "ogg", 44_100, {}, {}),
    "adts": ("aac", "adts", 44_100, {}, NO_NOISE),
    "m4a": ("aac", "ipod", 44_100, {}, NO_NOISE),
    "m4a, index first": ("aac", "ipod", 44_100, {"movflags": "faststart"}, NO_NOISE),
    "m4a, fragments": ("aac", "ipod", 44_100, {"movflags": "frag_keyframe+empty_moov"}, NO_NOISE),
    "alac": ("alac", "ipod", 44_100, {}, {}),
}
SHORT_FRAGMENTS = {"movflags": "empty_moov", "frag_duration": "500000"}
SOUGHT = [kind for kind in KINDS if kind != "adts"]


@made_once
def encoded(kind: str) -> bytes:
    codec, container, rate_hz, container_options, options = KINDS[kind.removesuffix(", short")]
    container_options = SHORT_FRAGMENTS if kind.endswith(", short") else container_options
    samples = music(rate_hz)[: SECONDS * rate_hz]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "music"
        with av.open(str(path), "w", format=container, options=container_options) as output:
            stream = output.add_stream(codec, rate=rate_hz, layout="stereo", options=options)
            assert isinstance(stream, av.AudioStream)
            if codec == "alac":
                stream.format = "s16p"
            frame = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="stereo")
            frame.sample_rate, frame.time_base, frame.pts = rate_hz, Fraction(1, rate_hz), 0
            for part in (frame, None):
                for packet in stream.encode(part):
                    output.mux(packet)
        return path.read_bytes()


@made_once
def whole(kind: str) -> bytes:
    """PCM of the file as FFmpeg's own demuxer and decoder give it."""
    with av.open(io.BytesIO(encoded(kind)), "r") as container:
        is_lossless = container.streams.audio[0].codec_context.name in ("alac", "flac")
        resampler = av.AudioResampler(format="s16" if is_lossless else "flt")
        return b"".join(
            bytes(part.planes[0])[: part.samples * part.layout.nb_channels * part.format.bytes]
            for frame in container.decode(audio=0)
            for part in resampler.resample(frame)
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [977, 1 << 20])
def test_a_stream_in_pieces_equals_ffmpegs_decode_of_the_file(kind: str, size: int) -> None:
    class Pieces(RingReader):
        def readinto(self, buffer: Any, timeout: float | None = None) -> int:
            return super().readinto(memoryview(buffer)[:size])

    with decoder_of(Pieces(encoded(kind))) as decoder:
        decoder.seek(0)
        assert read(decoder, 1 << 40) == whole(kind)
        is_lossless = kind in ("alac", "flac in ogg")
        assert decoder.format.sample is (SampleFormat.S16 if is_lossless else SampleFormat.F32)
        assert bytes(decoder.read()) == b""


@pytest.mark.parametrize("kind", ["alac", "flac in ogg"])
def test_lossless_formats_give_back_every_sample(kind: str) -> None:
    assert whole(kind) == music(44_100)[: SECONDS * 44_100].tobytes()


@pytest.mark.parametrize("kind", SOUGHT)
def test_a_seek_continues_with_the_samples_of_an_uninterrupted_decode(kind: str) -> None:
    pcm, draw = whole(kind), random.Random(6)
    for _ in range(8):
        reader = RingReader(encoded(kind))
        with decoder_of(reader) as decoder:
            before = reader.round_trips
            frame = draw.randrange(10_000, len(pcm) // decoder.format.frame_bytes)
            decoder.seek(frame)
            assert decoder.position_is_exact
            assert_equal_from(decoder, frame, pcm)
            if kind != "m4a, fragments":
                assert reader.round_trips - before <= (3 if kind in ("opus", "flac in ogg") else 1)


def test_adts_is_exact_where_its_frames_were_read_and_estimated_elsewhere() -> None:
    pcm = whole("adts")
    with decoder_of(BytesReader(encoded("adts"))) as decoder:
        for frame in (900_000, 5, 300_000):
            decoder.seek(frame)
            assert decoder.position_is_exact
            assert_equal_from(decoder, frame, pcm)
    reader = RingReader(encoded("adts"))
    reader.ahead_bytes = 0
    with decoder_of(reader) as decoder:
        decoder.seek(1_000_000)
        assert not decoder.position_is_exact
        assert decoder.position_frames == 1_000_000
        assert len(read(decoder, 5000)) >= 5000 * decoder.format.frame_bytes


@pytest.mark.parametrize(
    ("kind", "round_trips"), [("m4a", 2), ("m4a, index first", 0), ("opus", 0), ("webm", 0)]
)
def test_the_first_audio_needs_few_round_trips_after_the_first(kind: str, round_trips: int) -> None:
    reader = RingReader(encoded(kind))
    reader.ahead_bytes = 0
    with decoder_of(reader):
        assert reader.round_trips <= round_trips


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_and_cut_files_end_with_an_error_of_playhead_or_play_on(kind: str) -> None:
    data, draw = encoded(kind)[:200_000], random.Random(7)
    for trial in range(30):
        damaged = bytearray(data if trial % 3 else data[: draw.randrange(len(data))])
        for _ in range(0 if trial % 3 == 0 else draw.randrange(1, 40)):
            damaged[draw.randrange(min(len(damaged), 4000 if trial % 2 else len(damaged)))] = draw.randrange(
                256
            )
        try:
            decoder = open_decoder(DecoderSource(BytesReader(bytes(damaged))), mime_type=None, uri=None)
            read(decoder, 200_000)
            decoder.seek(100_000)
            read(decoder, 20_000)
        except PlayheadError:
            continue


def test_a_table_that_claims_billions_of_packets_is_refused_before_memory_is_taken() -> None:
    data = bytearray(encoded("m4a, index first"))
    at = data.index(b"stsz")
    data[at + 4 : at + 16] = struct.pack(">III", 0, 1, 1 << 30)
    tracemalloc.start()
    with pytest.raises(UnsupportedFormatError, match="claims 1073741824"):
        open_decoder(DecoderSource(BytesReader(bytes(data))), mime_type=None, uri=None)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_fragments_after_the_first_audio_may_claim_no_more_packets_than_they_can_hold() -> None:
    data = bytearray(encoded("m4a, fragments, short"))
    last = data.rindex(b"trun")
    data[last + 8 : last + 12] = struct.pack(">I", 1 << 23)
    with decoder_of(BytesReader(bytes(data))) as decoder:
        assert read(decoder, 44_100)
        with pytest.raises(UnsupportedFormatError, match="claims"):
            read(decoder, 1 << 40)


@pytest.mark.parametrize("size", [1, 7, 19, 1000])
def test_the_names_of_tables_in_media_data_claim_nothing(size: int) -> None:
    claim = b"trun" + bytes(4) + struct.pack(">I", 1 << 23)
    data = b"".join(
        struct.pack(">I4s", 8 + len(body), name) + body
        for name, body in ((b"ftyp", bytes(16)), (b"moov", b"mvex"), (b"mdat", bytes(50) + claim + bytes(50)))
    )
    tables = Mp4Tables()
    for at in range(0, len(data), size):
        tables.feed(at, data[at : at + size], taken_bytes=at)
    assert tables.is_fragmented
    with pytest.raises(UnsupportedFormatError, match="claims 8388608"):
        tables.feed(len(data), claim, taken_bytes=len(data))


def test_edits_that_repeat_a_long_index_are_refused_before_memory_is_taken() -> None:
    data = encoded("m4a, index first")
    packets = int.from_bytes(data[(sizes := data.index(b"stsz") + 12) : sizes + 4], "big")
    edits = 4 * MOST_PACKETS // packets + 100
    damaged = bytearray(data)
    damaged[(at := data.index(b"elst") + 8) : at + 4] = struct.pack(">I", edits)
    with pytest.raises(UnsupportedFormatError, match=f"claims {packets * edits // 4}"):
        open_decoder(DecoderSource(BytesReader(bytes(damaged))), mime_type=None, uri=None)


def sample_time(handler: bytes) -> bytes:
    """A track whose samples last one unit of time."""
    return b"trakhdlr" + bytes(8) + handler + b"stts" + struct.pack(">4xIII", 1, 1000, 1) + bytes(20)


@pytest.mark.parametrize("size", [1, 7, 19, 1000])
def test_uncompressed_audio_in_mp4_is_refused_and_a_video_beside_the_audio_is_not(size: int) -> None:
    tables = Mp4Tables()
    data = bytes(8) + sample_time(b"vide") + b"trak" + bytes(30) + b"hdlr" + bytes(8) + b"mdir" + bytes(20)
    for at in range(0, len(data), size):
        tables.feed(at, data[at : at + size], taken_bytes=at)
    with pytest.raises(UnsupportedFormatError, match="uncompressed"):
        tables.feed(len(data), sample_time(b"soun"), taken_bytes=len(data))


def test_a_codec_that_is_not_meant_to_run_is_refused_by_name() -> None:
    out = io.BytesIO()
    with av.open(out, "w", format="matroska") as output:
        stream: Any = output.add_stream("wavpack", rate=16_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 8000), np.int16), format="s16p", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = 16_000, Fraction(1, 16_000), 0
        for part in (frame, None):
            output.mux(stream.encode(part))
    data = out.getvalue().replace(b"matroska", b"webm\0\0\0\0")
    with pytest.raises(UnsupportedFormatError, match="got wavpack"):
        open_decoder(DecoderSource(BytesReader(data)), mime_type="audio/webm", uri=None)


def test_a_stream_that_breaks_raises_its_own_error() -> None:
    broken = OSError("cut")
    for kind in KINDS:
        data = encoded(kind)
        source = DecoderSource(ScriptedReader(data[: len(data) // 2], error=broken))
        with pytest.raises((OSError, PlayheadError)) as caught:
            read(open_decoder(source, mime_type=None, uri=None), 1 << 40)
        # The index at the end of two of them is out of reach.
        assert caught.value is broken or (kind in ("m4a", "alac") and "index" in str(caught.value))


@pytest.mark.parametrize(("kind", "next_kind"), [("opus", "flac in ogg"), ("flac in ogg", "opus")])
def test_the_second_stream_of_a_chained_file_is_an_error_after_all_of_the_first(
    kind: str, next_kind: str
) -> None:
    pieces: list[bytes] = []
    with decoder_of(RingReader(encoded(kind) + encoded(next_kind))) as decoder:
        decoder.seek(0)
        with pytest.raises(DecodeError, match="chained"):
            pieces.extend(iter(lambda: bytes(decoder.read()), b""))
    assert b"".join(pieces) == whole(kind)


def test_float_samples_are_not_rounded() -> None:
    samples = np.frombuffer(whole("opus"), dtype=np.float32)
    assert np.any(samples * 32768 % 1)
