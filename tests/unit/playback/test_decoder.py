"""PCM of a stream equals PCM of a file, however its bytes come; and a broken stream is never an end."""

from __future__ import annotations

import hashlib
import io
import random
import sys
from array import array

import miniaudio
import numpy
import pytest
import soundfile
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playhead.errors import StreamBrokenError, UnsupportedFormatError
from playhead.playback.decoder import MINIAUDIO_SAMPLES, open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.formats import PIECE_FRAMES, PcmFormat, SampleFormat
from playhead.testing.media import ScriptedReader
from tests.local_vorbis import decode_vorbis
from tests.tones import wave_file
from tests.unit.playback.pieces import BROKEN, DATA, MUSIC

FRAMES = {"bare.mp3": 133_632, "gapless.mp3": 132_300, "tagged.mp3": 132_300, "chord.flac": 48_000,
          "chord.ogg": 144_000, "chord.wav": 32_000}  # fmt: skip


def decode(
    reader: ScriptedReader, *, mime_type: str | None = None, into: bytearray | None = None
) -> tuple[PcmFormat, bytes]:
    source = DecoderSource(reader)
    decoder = open_decoder(source, mime_type=mime_type, uri=None)
    pcm = bytearray() if into is None else into
    try:
        while piece := bytes(decoder.read()):
            source.audio_began()
            pcm += piece
        assert bytes(decoder.read()) == b"", "the end is the end"
    finally:
        decoder.close()
    return decoder.format, bytes(pcm)


def decode_locally(data: bytes, format: PcmFormat) -> bytes:
    if data.startswith(b"OggS"):
        return decode_vorbis(data)[2]
    sound = miniaudio.decode(
        data,
        output_format=MINIAUDIO_SAMPLES[format.sample],
        nchannels=format.channels,
        sample_rate=format.rate_hz,
    )
    return bytes(sound.samples.tobytes())


@pytest.mark.parametrize("name", MUSIC)
def test_a_stream_gives_the_frames_and_the_hash_of_a_local_decode(name: str) -> None:
    data = (DATA / name).read_bytes()
    format, pcm = decode(ScriptedReader(data))
    assert len(pcm) // format.frame_bytes == FRAMES[name]
    assert hashlib.sha256(pcm).digest() == hashlib.sha256(decode_locally(data, format)).digest()


@pytest.mark.parametrize("name", MUSIC)
@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=60))
@example([1])
@example([7])
@example([999])
@example([4096])
def test_pieces_of_any_sizes_give_the_same_sound(name: str, sizes: list[int]) -> None:
    data = (DATA / name).read_bytes()
    format, pcm = decode(ScriptedReader(data, sizes=sizes))
    assert pcm == decode_locally(data, format)


@pytest.mark.parametrize("name", MUSIC)
@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.6, 0.999])
def test_a_broken_stream_raises_its_own_error_after_the_sound_before_it(name: str, part: float) -> None:
    data = (DATA / name).read_bytes()
    pcm = bytearray()
    with pytest.raises(StreamBrokenError) as caught:
        decode(ScriptedReader(data[: int(len(data) * part)], error=BROKEN), into=pcm)
    assert caught.value is BROKEN
    if part > 0.9:
        assert len(pcm) > FRAMES[name], "most of the sound was there before the break"


@pytest.mark.parametrize("name", MUSIC)
@pytest.mark.parametrize("size", [1, 3, 16, 40])
def test_a_stream_that_breaks_in_its_first_bytes_is_broken_and_not_a_bad_format(name: str, size: int) -> None:
    with pytest.raises(StreamBrokenError) as caught:
        decode(ScriptedReader((DATA / name).read_bytes()[:size], error=BROKEN))
    assert caught.value is BROKEN


@pytest.mark.parametrize(
    ("name", "bytes_needed"),
    [
        ("bare.mp3", 6_200),
        ("gapless.mp3", 6_500),
        ("chord.flac", 20_480),
        ("chord.ogg", 17_195),  # its headers, and a page of one second: a page has one checksum
        ("chord.wav", 2_100),
    ],
)
def test_the_first_sound_needs_few_bytes(name: str, bytes_needed: int) -> None:
    reader = ScriptedReader((DATA / name).read_bytes()[:bytes_needed], error=BROKEN)
    decoder = open_decoder(DecoderSource(reader), mime_type=None, uri=None)
    assert bytes(decoder.read())
    decoder.close()


@pytest.mark.parametrize("name", ["bare.mp3", "chord.flac", "chord.wav"])
@pytest.mark.parametrize(("part_bytes", "piece_seconds"), [(1 << 20, 0.25), (2048, 0.0)])
def test_a_piece_is_large_only_while_its_bytes_are_in_hand(
    name: str, part_bytes: int, piece_seconds: float
) -> None:
    source = DecoderSource(ScriptedReader((DATA / name).read_bytes(), sizes=[part_bytes]))
    decoder = open_decoder(source, mime_type=None, uri=None)
    pieces: list[int] = []
    while len(pieces) < 4:
        pieces.append(len(memoryview(decoder.read()).cast("B")) // decoder.format.frame_bytes)
        source.audio_began()
    assert pieces[0] < PIECE_FRAMES
    assert max(pieces) == max(PIECE_FRAMES, int(piece_seconds * decoder.format.rate_hz))
    decoder.close()


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("gapless.mp3", 3.0),
        ("tagged.mp3", 3.0),
        ("chord.flac", 1.5),
        ("chord.wav", 2.0),
        ("bare.mp3", None),
        ("chord.ogg", None),
    ],
)
def test_the_duration_is_told_where_the_header_does(name: str, seconds: float | None) -> None:
    decoder = open_decoder(
        DecoderSource(ScriptedReader((DATA / name).read_bytes())), mime_type=None, uri=None
    )
    assert decoder.duration_seconds == seconds
    decoder.close()


class SeekingReader(ScriptedReader):
    seekable = True

    def seek_from_thread(self, offset: int) -> None:
        self.position = min(offset, len(self._data))


def flac_with_picture(picture_bytes: int) -> bytes:
    data = (DATA / "chord.flac").read_bytes()
    body = random.Random(1).randbytes(picture_bytes)
    return data[:42] + b"\x06" + len(body).to_bytes(3, "big") + body + data[42:]


def test_a_big_cover_picture_is_sought_over_where_the_reader_can_and_read_over_where_not() -> None:
    data = flac_with_picture(3_000_000)
    plain, seeking = ScriptedReader(data), SeekingReader(data)
    format, pcm = decode(plain)
    assert pcm == decode_locally((DATA / "chord.flac").read_bytes(), format)
    taken: list[int] = []
    read = seeking.readinto

    def counted(buffer: object, timeout: float | None = None) -> int:
        taken.append(read(buffer, timeout))  # type: ignore[arg-type]  # passed on as it came
        return taken[-1]

    seeking.readinto = counted  # type: ignore[method-assign]
    assert decode(seeking) == (format, pcm)
    assert sum(taken) < 200_000


def test_bytes_dropped_by_a_seek_over_a_picture_are_not_in_hand() -> None:
    data = flac_with_picture(3_000_000)
    reader = SeekingReader(data, sizes=[40_000])
    source = DecoderSource(reader)
    decoder = open_decoder(source, mime_type=None, uri=None)
    decoder.close()
    after_picture_bytes = reader.position - 3_000_000
    assert 0 < source.ahead_bytes <= after_picture_bytes


@pytest.mark.parametrize("cut", [3, 64, 1000, 5000])
def test_a_stream_cut_off_in_its_headers_is_refused_not_awaited(cut: int) -> None:
    for name in MUSIC:
        try:
            decode(ScriptedReader((DATA / name).read_bytes()[:cut]))
        except UnsupportedFormatError:
            continue


def test_noise_called_mp3_is_refused_within_the_search() -> None:
    reader = ScriptedReader(b"\x00" + random.Random(2).randbytes(4_000_000))
    with pytest.raises(UnsupportedFormatError):
        decode(reader, mime_type="audio/mpeg")
    assert reader.position <= 600_000


def test_a_tag_with_nothing_decodable_behind_it_is_refused() -> None:
    flac_behind_a_tag = b"ID3\x04\x00\x00\x00\x00\x00\x0a" + bytes(10) + (DATA / "chord.flac").read_bytes()
    with pytest.raises(UnsupportedFormatError):
        decode(ScriptedReader(flac_behind_a_tag))


def wav_of(width: int, channels: int, frames: int) -> bytes:
    pcm = random.Random(4).randbytes(width * channels * frames)
    return wave_file(pcm, 8000, channels=channels, sample_bytes=width)


@pytest.mark.parametrize("size", [1, 1001, 1 << 20])
@pytest.mark.parametrize(("width", "channels"), [(3, 2), (2, 9), (1, 1), (4, 3)])
def test_a_frame_of_any_width_survives_any_pieces(width: int, channels: int, size: int) -> None:
    data = wav_of(width, channels, 9000)
    format, pcm = decode(ScriptedReader(data, sizes=[size]))
    assert pcm == decode_locally(data, format)


@pytest.mark.parametrize(
    ("kind", "subtype"), [("WAV", "PCM_24"), ("WAV", "FLOAT"), ("WAVEX", "PCM_24"), ("FLAC", "PCM_24")]
)
def test_24_bits_and_floats_are_decoded_exactly(kind: str, subtype: str) -> None:
    values = array(
        "f", (sample / 8388608 for sample in random.Random(2).choices(range(-(1 << 23), 1 << 23), k=8000))
    )
    out = io.BytesIO()
    data = numpy.frombuffer(values, dtype="float32").reshape(-1, 2)
    soundfile.write(out, data, 48000, subtype=subtype, format=kind)
    format, pcm = decode(ScriptedReader(out.getvalue(), sizes=[1000]))
    assert format == PcmFormat(rate_hz=48000, channels=2, sample=SampleFormat.F32)
    assert array("f", pcm) == values


@pytest.mark.parametrize("before_bytes", [1000, 60_000, 100_000])
def test_a_wav_whose_format_comes_late_keeps_its_depth(before_bytes: int) -> None:
    data = wav_of(3, 2, 9000)
    late = data[:12] + b"JUNK" + before_bytes.to_bytes(4, "little") + bytes(before_bytes) + data[12:]
    format, pcm = decode(ScriptedReader(late))
    assert format.sample is SampleFormat.F32
    assert pcm == decode_locally(data, format)


@pytest.mark.parametrize("size", [1, 3, 999])
def test_raw_samples_are_played_in_their_byte_order_and_half_a_frame_is_dropped(size: int) -> None:
    samples = array("h", range(-5000, 5000))
    big, little = array("h", samples), array("h", samples)
    (little if sys.byteorder == "big" else big).byteswap()
    for mime_type, data in [
        ("audio/L16;rate=8000;channels=2", big),
        ("audio/pcm;rate=8000;channels=2", little),
    ]:
        format, pcm = decode(
            ScriptedReader(data.tobytes() + b"\x01\x02\x03", sizes=[size]), mime_type=mime_type
        )
        assert format == PcmFormat(rate_hz=8000, channels=2)
        assert pcm == samples.tobytes()
