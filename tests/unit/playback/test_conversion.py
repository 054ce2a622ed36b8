"""Conversion of rate, channels and sample format: equal in any pieces, exact where nothing is computed."""

from __future__ import annotations

import math
import random
from array import array

import pytest

from playhead._core import Dither
from playhead.errors import UsageError
from playhead.playback import FileMedia, NullSink, Player
from playhead.playback.conversion import PcmConverter, convert_decoder
from playhead.playback.decoder import open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.formats import PcmFormat, SampleFormat
from playhead.stream.source import BytesReader
from playhead.testing.media import ScriptedReader
from tests.tones import sine, strength_and_rest
from tests.unit.playback.pieces import DATA

STEREO = PcmFormat(rate_hz=44100, channels=2)
MONO = PcmFormat(rate_hz=44100, channels=1)
FLOAT = PcmFormat(rate_hz=44100, channels=2, sample=SampleFormat.F32)
SPEECH = PcmFormat(rate_hz=16000, channels=1)
FRAMES = 44100
TONE = sine(FRAMES, 44100, peak=20_000, channels=2)


def convert(pcm: bytes, source: PcmFormat, target: PcmFormat, *, most_frames: int = 0) -> bytes:
    """Convert `pcm`; with `most_frames`, in pieces of up to as many, at each of which it runs dry."""
    dice = random.Random(1)
    converter = PcmConverter(source, target)
    out = bytearray()
    while pcm:
        end = source.frame_bytes * dice.randint(1, most_frames) if most_frames else len(pcm)
        converter.feed(pcm[:end])
        pcm = pcm[end:]
        while piece := bytes(converter.read()):
            out += piece
    converter.close()
    converter.close()
    assert bytes(converter.read()) == b""
    return bytes(out)


@pytest.mark.parametrize("target", [SPEECH, FLOAT, PcmFormat(rate_hz=48000, channels=6)], ids=str)
def test_the_pieces_make_no_difference(target: PcmFormat) -> None:
    pcm = TONE.tobytes()
    whole = convert(pcm, STEREO, target)
    assert convert(pcm, STEREO, target, most_frames=3) == whole
    assert convert(pcm, STEREO, target, most_frames=3000) == whole
    assert len(whole) // target.frame_bytes == FRAMES * target.rate_hz // 44100


@pytest.mark.parametrize("rate_hz", [8000, 16000, 24000, 48000, 96000])
def test_a_tone_stays_that_tone_at_another_rate(rate_hz: int) -> None:
    got = array("h", convert(TONE.tobytes(), STEREO, PcmFormat(rate_hz=rate_hz, channels=1)))
    strength, rest = strength_and_rest(got[rate_hz // 10 :], rate_hz)  # the filter settles first
    assert strength == pytest.approx(20000, rel=0.02)
    assert rest < 20000 / 200


def test_16_bits_are_left_alone_where_nothing_is_computed() -> None:
    stereo, mono = TONE.tobytes(), TONE[::2].tobytes()
    assert convert(stereo, STEREO, STEREO, most_frames=999) == stereo
    assert convert(mono, MONO, STEREO) == stereo
    floats = convert(stereo, STEREO, FLOAT)
    assert array("f", floats) == array("f", (sample / 32768 for sample in TONE))
    assert convert(floats, FLOAT, STEREO) == stereo


def test_floats_become_16_bits_with_the_dither_of_a_fixed_seed() -> None:
    floats = array("f", (math.sin(at / 50) / 7 for at in range(10_000)))
    assert convert(floats.tobytes(), FLOAT, STEREO, most_frames=100) == Dither().convert(floats)


def test_a_decoder_of_the_wanted_rate_and_channels_is_not_wrapped() -> None:
    decoder = open_decoder(
        DecoderSource(ScriptedReader((DATA / "chord.wav").read_bytes())), mime_type=None, uri=None
    )
    own = decoder.format
    assert convert_decoder(decoder, rate_hz=None, channels=None) is decoder
    assert convert_decoder(decoder, rate_hz=own.rate_hz, channels=own.channels) is decoder
    decoder.close()


@pytest.mark.parametrize("name", ["gapless.mp3", "chord.flac"])
def test_the_decoder_itself_converts_and_its_places_are_at_the_new_rate(name: str) -> None:
    source = DecoderSource(BytesReader((DATA / name).read_bytes()))
    decoder = open_decoder(source, mime_type=None, uri=None)
    duration = decoder.duration_seconds
    assert convert_decoder(decoder, rate_hz=22050, channels=None) is decoder
    whole = array("h", b"".join(iter(lambda: bytes(decoder.read()), b"")))
    assert decoder.position_frames == len(whole) // decoder.format.channels
    assert decoder.duration_seconds == duration
    for frame in (0, 12_345, decoder.position_frames - 5000):
        decoder.seek(frame)
        assert decoder.position_frames == frame
        at = (frame + 1000) * decoder.format.channels  # the filter settles first
        again = array("h", b"".join(iter(lambda: bytes(decoder.read()), b"")))
        assert frame + len(again) // decoder.format.channels == len(whole) // decoder.format.channels
        rest = again[1000 * decoder.format.channels :]
        # Up to a sample beside, where the rates' samples do not coincide.
        error = math.dist(rest, whole[at:]) / math.hypot(*whole[at:])
        assert error < 0.15
    decoder.close()


def test_what_the_stream_has_left_behind_is_converted_all_the_same() -> None:
    flac = (DATA / "chord.flac").read_bytes()
    picture = bytes([6]) + (1_000_000).to_bytes(3, "big") + bytes(1_000_000)
    source = DecoderSource(ScriptedReader(flac[:42] + picture + flac[42:]))
    decoder = open_decoder(source, mime_type=None, uri=None)
    converted = convert_decoder(decoder, rate_hz=22050, channels=None)
    assert converted is not decoder
    frames = sum(len(memoryview(piece)) for piece in iter(lambda: bytes(converted.read()), b""))
    assert frames > 0
    converted.close()


@pytest.mark.parametrize("name", ["gapless.mp3", "chord.flac", "chord.ogg", "chord.wav"])
async def test_a_player_converts_each_item_to_its_rate_and_channels(name: str) -> None:
    plain, converted = NullSink(real_time=False), NullSink(real_time=False)
    for sink, rate_hz, channels in ((plain, None, None), (converted, 16000, 1)):
        async with Player(sink, rate_hz=rate_hz, channels=channels) as player:
            await player.play(FileMedia(DATA / name))
            await player.wait_finished()
            state = player.snapshot()
    assert plain.report is not None
    assert converted.report is not None
    own = plain.report.format
    assert converted.report.format == SPEECH
    assert converted.report.frames == plain.report.frames * 16000 // own.rate_hz
    assert state.duration_seconds is None or state.duration_seconds == pytest.approx(
        plain.report.frames / own.rate_hz, abs=0.001
    )


async def test_a_player_with_the_files_own_rate_gives_the_files_own_samples() -> None:
    hashes = set()
    for rate_hz, channels in ((None, None), (44100, 2)):
        sink = NullSink(real_time=False)
        async with Player(sink, rate_hz=rate_hz, channels=channels) as player:
            await player.play(FileMedia(DATA / "gapless.mp3"))
            await player.wait_finished()
        assert sink.report is not None
        hashes.add(sink.report.sha256)
    assert len(hashes) == 1


@pytest.mark.parametrize(
    ("rate_hz", "channels", "message"),
    [
        (0, None, "rate_hz: expected 8000 to 384000 Hz, got 0"),
        (16, None, "rate_hz: expected 8000 to 384000 Hz, got 16"),
        (7999, None, "rate_hz: expected 8000 to 384000 Hz, got 7999"),
        (384_001, None, "rate_hz: expected 8000 to 384000 Hz, got 384001"),
        (None, 0, "channels: expected 1 to 32, got 0"),
        (None, 33, "channels: expected 1 to 32, got 33"),
    ],
)
def test_rates_and_channels_that_nothing_plays_are_refused(
    rate_hz: int | None, channels: int | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        Player(NullSink(), rate_hz=rate_hz, channels=channels)
