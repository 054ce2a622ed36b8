"""The byte rate that turns bytes in hand into audio in hand."""

from __future__ import annotations

import pytest

from playhead.playback.byte_rate import ByteRate
from playhead.playback.containers.mpeg import MpegLocator
from playhead.playback.decoder import open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.testing.media import ScriptedReader
from tests.unit.playback.pieces import DATA


@pytest.mark.parametrize(
    ("name", "bytes_per_second", "tolerance"),
    [
        ("bare.mp3", 8_000, 0.01),
        ("tagged.mp3", 8_000, 0.01),
        ("gapless.mp3", 8_000, 0.01),
        ("chord.wav", 32_000, 0.01),
        ("chord.flac", 52_000, 0.15),
        ("chord.ogg", 14_500, 0.3),
    ],
)
def test_a_third_of_a_second_of_audio_is_enough_to_know_the_rate(
    name: str, bytes_per_second: int, tolerance: float
) -> None:
    source = DecoderSource(ScriptedReader((DATA / name).read_bytes()))
    decoder = open_decoder(source, mime_type=None, uri=None)
    seconds = 0.0
    while seconds < 0.35:
        seconds += len(memoryview(decoder.read()).cast("B")) / decoder.format.bytes_per_second
        source.audio_began()
    assert decoder.bytes_per_second == pytest.approx(bytes_per_second, rel=tolerance)
    decoder.close()


def test_the_densest_ten_seconds_count() -> None:
    rate = ByteRate()
    read_bytes = 0
    for second in range(1, 61):
        read_bytes += 50_000 if 20 < second <= 32 else 10_000
        rate.add(read_bytes, float(second))
        if second in (9, 20):
            assert rate.bytes_per_second == pytest.approx(10_000)
    assert rate.bytes_per_second == pytest.approx(50_000)


def test_what_a_decoder_reads_ahead_is_not_taken_for_its_rate() -> None:
    measured, blurred = ByteRate(lookahead_bytes=16_000), ByteRate()
    for tenth in range(1, 30):
        for rate in (measured, blurred):
            rate.add(1_000 * tenth + min(16_000, 4_000 * tenth), tenth / 10)
    assert measured.bytes_per_second == pytest.approx(10_000)
    assert blurred.bytes_per_second > 12_000


def test_a_header_that_says_too_little_is_corrected_after_two_seconds() -> None:
    rate = ByteRate(4_000.0)
    for tenth in range(1, 40):
        rate.add(1_000 * tenth, tenth / 10)
        assert rate.bytes_per_second == pytest.approx(4_000 if tenth < 21 else 10_000)


def mpeg_frame(*, kbits_index: int = 14, xing: bytes = b"") -> bytes:
    """MPEG-1 layer III at 44.1 kHz: index 14 is 320 kbit/s in 1,044 bytes, 9 is 128 kbit/s in 417."""
    size = {14: 1044, 9: 417}[kbits_index]
    head = bytes([0xFF, 0xFB, kbits_index << 4, 0x64])
    return (head + bytes(32) + xing).ljust(size, b"\0")


def mp3_bytes_per_second(data: bytes) -> float | None:
    locator = MpegLocator()
    locator.feed(0, data)
    return locator.bytes_per_second


def test_the_rate_of_mpeg_audio_is_that_of_its_frames() -> None:
    frames = mpeg_frame() * 3
    assert mp3_bytes_per_second(frames) == 40_000
    assert mp3_bytes_per_second(b"\xff\xfbtag" + frames[300:]) == 40_000, "from the middle of a frame"
    assert mp3_bytes_per_second(mpeg_frame(kbits_index=9) * 2) == 16_000
    assert mp3_bytes_per_second(mpeg_frame()) is None, "one header may be chance"
    assert mp3_bytes_per_second(b"\xff" * 3000) is None
    assert mp3_bytes_per_second(b"") is None


def test_an_index_gives_the_mean_of_a_variable_rate() -> None:
    xing = b"Xing" + (3).to_bytes(4, "big") + (1000).to_bytes(4, "big") + (600_000).to_bytes(4, "big")
    assert mp3_bytes_per_second(mpeg_frame(kbits_index=9, xing=xing) + mpeg_frame()) == pytest.approx(
        600 * 44_100 / 1152
    )
    vbri = b"VBRI" + bytes(6) + (600_000).to_bytes(4, "big") + (1000).to_bytes(4, "big")
    assert mp3_bytes_per_second(mpeg_frame(kbits_index=9, xing=vbri) + mpeg_frame()) == pytest.approx(
        600 * 44_100 / 1152
    )
    for cut in range(4, 16):
        damaged = mpeg_frame(kbits_index=9)[: 36 + cut].ljust(417, b"\0")
        assert mp3_bytes_per_second(damaged + mpeg_frame()) == 16_000
