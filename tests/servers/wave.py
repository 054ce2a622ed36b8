"""WAV files: the 44 bytes before PCM, and whole ones."""

from __future__ import annotations

import struct
import wave
from pathlib import Path
from typing import IO

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


def write_wave(
    where: Path | IO[bytes], pcm: bytes, *, rate_hz: int, channels: int = 1, sample_bytes: int = 2
) -> None:
    with wave.open(str(where) if isinstance(where, Path) else where, "wb") as file:
        file.setparams((channels, sample_bytes, rate_hz, 0, "NONE", "NONE"))
        file.writeframes(pcm)
