"""The 44 bytes before PCM that make it a WAV file."""

from __future__ import annotations

import struct

HEADER_BYTES = 44
RATE_HZ = 44_100
CHANNELS = 2


def wave_header(size_bytes: int) -> bytes:
    """A header for a file of `size_bytes` in all: 16-bit stereo at 44.1 kHz."""
    frame_bytes = CHANNELS * 2
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        b"RIFF",
        size_bytes - 8,
        b"WAVE",
        b"fmt ",
        16,
        1,
        CHANNELS,
        RATE_HZ,
        RATE_HZ * frame_bytes,
        frame_bytes,
        16,
        b"data",
        size_bytes - HEADER_BYTES,
    )
