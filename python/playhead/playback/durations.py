"""How long a stream plays, where its first bytes say so. Pure; None is "not said", never a guess.

A guess from size and bit rate is wrong for every variable bit rate without a header, so there is none.
"""

from __future__ import annotations

import re
import struct

from playhead.content.audio import AudioFormat
from playhead.playback.formats import PcmFormat

HEAD_BYTES = 4096
"""Enough for a WAV's chunks before its data, as recorders write them, and for an MP3's first frame."""
_UNKNOWN_SIZES = frozenset({0, 0xFFFF_FFFF})


def duration_seconds(head: bytes, *, audio_format: AudioFormat, pcm: PcmFormat) -> float | None:
    """`head`: the stream's first bytes; for MP3, those that hold its first frame."""
    if audio_format is AudioFormat.FLAC:
        frames = _flac_frames(head)
    elif audio_format is AudioFormat.WAV:
        frames = _wav_frames(head)
    elif audio_format is AudioFormat.MP3:
        frames = _mp3_frames(head, pcm)
    else:
        frames = None
    return None if frames is None else frames / pcm.rate_hz


def _flac_frames(head: bytes) -> int | None:
    """STREAMINFO's total samples: the low 36 bits of the 8 bytes at 18 (RFC 9639, section 8.2)."""
    if len(head) < 26 or head[4] & 0x7F != 0:
        return None
    return int.from_bytes(head[18:26], "big") & (1 << 36) - 1 or None


def _wav_frames(head: bytes) -> int | None:
    at, frame_bytes = 12, 0
    while at + 8 <= len(head):
        name, size = struct.unpack_from("<4sI", head, at)
        if name == b"fmt " and at + 22 <= len(head):
            (frame_bytes,) = struct.unpack_from("<H", head, at + 20)
        elif name == b"data":
            return size // frame_bytes if frame_bytes and size not in _UNKNOWN_SIZES else None
        at += 8 + size + size % 2
    return None


def _mp3_frames(head: bytes, pcm: PcmFormat) -> int | None:
    """The Xing or Info header in the first frame, less the encoder's delay and padding (LAME's extension)."""
    names = (found.start() for found in re.finditer(b"Xing|Info", head))
    at = next((start for start in names if _follows_frame_header(head, start)), None)
    if at is None or at + 12 > len(head):
        return None
    flags, frames = struct.unpack_from(">II", head, at + 4)
    if not flags & 1:
        return None
    samples = int(frames) * (1152 if pcm.rate_hz >= 32_000 else 576)
    # Behind the frame count: the byte count, the seek table and the quality, each if its flag is set.
    lame = at + 12 + 4 * bool(flags & 2) + 100 * bool(flags & 4) + 4 * bool(flags & 8)
    if head[lame : lame + 4] in (b"LAME", b"Lavf", b"Lavc") and lame + 24 <= len(head):
        gap = int.from_bytes(head[lame + 21 : lame + 24], "big")
        samples -= (gap >> 12) + (gap & 0xFFF)
    return max(samples, 0)


def _follows_frame_header(head: bytes, at: int) -> bool:
    """A tag may hold the same four letters; a frame's lie behind its header and side information."""
    return any(
        at >= before and head[at - before] == 0xFF and head[at - before + 1] & 0xE0 == 0xE0
        for before in (36, 21, 13)
    )
