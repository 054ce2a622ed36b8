"""The headers of coded audio frames, for MPEG audio (ISO 11172-3) and ADTS (ISO 14496-3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ADTS_BYTES = 7
_KBITS: Final = {
    3: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),  # MPEG-1 layer III
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG-2
    0: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),  # MPEG-2.5
}
"""Kilobits per second, by the header's version field and its bit rate index."""
_RATES_HZ: Final = {
    3: (44_100, 48_000, 32_000),
    2: (22_050, 24_000, 16_000),
    0: (11_025, 12_000, 8_000),
}
MPEG_HEADER_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedFrame:
    """The header of one coded frame, which states the frame's length."""

    size_bytes: int
    samples: int
    """Samples per channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpegFrame(CodedFrame):
    """The header of one MPEG audio frame of layer III."""

    bytes_per_second: float
    frames_per_second: float
    side_bytes: int
    """Bytes before the main data, without a checksum: header and side information."""


def mpeg_frame(data: bytes, at: int) -> MpegFrame | None:
    """Return the MPEG layer III header at `at`; None if there is none, or if it does not state a length."""
    if at + MPEG_HEADER_BYTES > len(data):
        return None
    word = int.from_bytes(data[at : at + MPEG_HEADER_BYTES], "big")
    version, layer = word >> 19 & 3, word >> 17 & 3
    kbits_index, rate_index, padding = word >> 12 & 15, word >> 10 & 3, word >> 9 & 1
    # Version 1 and rate index 3 are reserved. A bit rate index of 0 is the free format, without a length.
    if word >> 21 != 0x7FF or version == 1 or layer != 1 or rate_index == 3 or kbits_index in (0, 15):
        return None
    bytes_per_second = _KBITS[version][kbits_index] * 125.0
    samples = 1152 if version == 3 else 576
    frames_per_second = _RATES_HZ[version][rate_index] / samples
    is_mono = word >> 6 & 3 == 3
    mono_bytes, stereo_bytes = (17, 32) if version == 3 else (9, 17)
    side_information_bytes = mono_bytes if is_mono else stereo_bytes
    return MpegFrame(
        size_bytes=int(bytes_per_second / frames_per_second) + padding,
        bytes_per_second=bytes_per_second,
        frames_per_second=frames_per_second,
        samples=samples,
        side_bytes=MPEG_HEADER_BYTES + side_information_bytes,
    )


def adts_frame(data: bytes, at: int) -> CodedFrame | None:
    """Return the ADTS header at `at`; None if there is none."""
    head = data[at : at + ADTS_BYTES]
    if len(head) < ADTS_BYTES or head[0] != 0xFF or head[1] & 0xF6 != 0xF0:
        return None
    rate_index, n_blocks = head[2] >> 2 & 15, (head[6] & 3) + 1
    size = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    if rate_index > 12 or size <= ADTS_BYTES:
        return None
    return CodedFrame(size_bytes=size, samples=1024 * n_blocks)


def find_frame(data: bytes, header: Callable[[bytes, int], CodedFrame | None]) -> int | None:
    """Return the offset of the first frame that another one follows directly; None if there is none."""
    at = -1
    while (at := data.find(b"\xff", at + 1)) >= 0:  # the first byte of both formats' sync codes
        frame = header(data, at)
        if frame is not None and header(data, at + frame.size_bytes) is not None:
            return at
    return None
