"""A small WAV file, made of whole numbers so that it is the same everywhere."""

from __future__ import annotations

import struct
import sys
from array import array

RATE_HZ = 8000
LOUDEST = 300


def wave(seconds: float) -> bytes:
    """Mono, 16 bit, 8 kHz: a triangle whose period grows, so that no two pages of it are alike."""
    frames = int(seconds * RATE_HZ)
    samples = array("h")
    level, step, period = 0, 1, 40
    # A flank at a time: each of the test servers makes its song when it starts.
    while len(samples) < frames:
        bound = LOUDEST * step
        rising = range(level, bound, step)[:period]
        samples.extend(it * 100 for it in rising)
        samples.extend([bound * 100] * (period - len(rising)))
        level = level + step * period if len(rising) == period else bound
        step, period = -step, period + 1
    del samples[frames:]
    if sys.byteorder == "big":
        samples.byteswap()
    data = samples.tobytes()
    head = b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVE"
    form = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE_HZ, RATE_HZ * 2, 2, 16)
    return head + form + b"data" + struct.pack("<I", len(data)) + data
