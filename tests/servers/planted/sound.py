"""A small WAV file, made of whole numbers so that it is the same everywhere."""

from __future__ import annotations

import struct

RATE_HZ = 8000


def wave(seconds: float) -> bytes:
    """Mono, 16 bit, 8 kHz: a triangle whose period grows, so that no two pages of it are alike."""
    frames = int(seconds * RATE_HZ)
    samples, level, step, period, left = bytearray(), 0, 1, 40, 40
    for _ in range(frames):
        samples += struct.pack("<h", level * 100)
        level += step
        left -= 1
        if left == 0:
            step, period = -step, period + 1
            left = period
        level = max(-300, min(300, level))
    head = b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVE"
    form = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, RATE_HZ, RATE_HZ * 2, 2, 16)
    return head + form + b"data" + struct.pack("<I", len(samples)) + bytes(samples)
