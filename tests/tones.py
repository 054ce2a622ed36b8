"""Tones to play, WAV files of them, and the tone that is left in what was heard."""

from __future__ import annotations

import io
import math
from array import array
from collections.abc import Iterable, Sequence
from operator import mul
from pathlib import Path

import pytest

from tests.servers.wave import write_wave


def sine(
    frames: int, rate_hz: int, *, hz: float = 440.0, peak: int = 12_000, start: int = 0, channels: int = 1
) -> array[int]:
    """Return 16-bit samples, from the frame `start` on."""
    step = 2 * math.pi * hz / rate_hz
    frame_range = range(start, start + frames)
    return array("h", (round(peak * math.sin(step * at)) for at in frame_range for _ in range(channels)))


def strength_and_rest(samples: Sequence[float], rate_hz: int, *, hz: float = 440.0) -> tuple[float, float]:
    """Return the peak of the tone of `hz` in `samples`, and the root mean square of everything else."""
    step = 2 * math.pi * hz / rate_hz
    waves = [[wave(step * at) for at in range(len(samples))] for wave in (math.sin, math.cos)]
    a, b = (2 * sum(map(mul, samples, wave)) / len(samples) for wave in waves)
    rest = [sample - a * s - b * c for sample, s, c in zip(samples, *waves, strict=True)]
    return math.hypot(a, b), math.sqrt(sum(map(mul, rest, rest)) / len(rest))


def wave_file(pcm: bytes, rate_hz: int, *, channels: int = 1, sample_bytes: int = 2) -> bytes:
    out = io.BytesIO()
    write_wave(out, pcm, rate_hz=rate_hz, channels=channels, sample_bytes=sample_bytes)
    return out.getvalue()


def numbered_wave(path: Path, seconds: float, rate_hz: int) -> bytes:
    """Write samples that say which they are, none of them zero, and return them."""
    pcm = array("h", (at % 9973 + 1 for at in range(int(rate_hz * seconds)))).tobytes()
    write_wave(path, pcm, rate_hz=rate_hz)
    return pcm


def decoded_opus(packets: Iterable[bytes]) -> array[float]:
    """Return the samples that FFmpeg's own decoder gives, mono at 48 kHz; the encoder is libopus."""
    av = pytest.importorskip("av")
    decoder = av.AudioCodecContext.create("opus", "r")
    decoder.sample_rate, decoder.layout = 48_000, "mono"
    samples = array("f")
    for packet in packets:
        for frame in decoder.decode(av.Packet(packet)):
            samples.frombytes(bytes(frame.planes[0])[: frame.samples * 4])
    return samples
