"""The format of decoded audio (PCM): rate, channels and sample type."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from playhead.errors import UnsupportedFormatError

PIECE_FRAMES = 4096
"""The PCM frames that a decoder returns at once if it may have to wait for bytes: 85 ms at 48 kHz."""
FIRST_FRAMES = 1024
"""The PCM frames that a decoder returns first. An MP3 frame has 1152 of them (at 32 kHz or more), so one MP3
frame is enough to start."""
LARGE_PIECE_SECONDS = 0.25
"""The audio that a decoder returns at once if its bytes have arrived. Between two such pieces its thread
takes the GIL several times, and the threads of all players compete for it. With long pieces, 128 players took
a quarter less CPU."""
MAX_RATE_HZ = 384_000
"""The highest rate of a device, and of miniaudio's WAV decoder."""
MIN_CONVERTED_HZ = 8000
"""The lowest rate to convert to: that of a telephone, and miniaudio's lowest standard rate. Files may have a
lower rate, but a request for one is a slip, such as kHz in place of Hz."""
MAX_CHANNELS = 32


class SampleFormat(StrEnum):
    """The type of a sample, in the machine's byte order. Two are enough: a float holds 24 bits exactly."""

    S16 = "s16"
    """Signed 16-bit integer."""
    F32 = "f32"
    """32-bit float, full scale from -1 to 1."""

    @property
    def sample_bytes(self) -> int:
        return 2 if self is SampleFormat.S16 else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PcmFormat:
    """The format of interleaved samples. A file of at most 16 bits is decoded to `S16`, a deeper one to
    `F32`."""

    rate_hz: int
    channels: int
    sample: SampleFormat = SampleFormat.S16

    @property
    def frame_bytes(self) -> int:
        return self.sample.sample_bytes * self.channels

    @property
    def bytes_per_second(self) -> int:
        return self.rate_hz * self.frame_bytes


def require_playable(pcm: PcmFormat) -> PcmFormat:
    """Return `pcm`, which the headers of a file claim. Raises `UnsupportedFormatError` if no device can play
    it."""
    if not (0 < pcm.rate_hz <= MAX_RATE_HZ and 0 < pcm.channels <= MAX_CHANNELS):
        raise UnsupportedFormatError(
            f"expected audio of 1 to {MAX_RATE_HZ} Hz with 1 to {MAX_CHANNELS} channels, got {pcm.rate_hz} Hz"
            f" and {pcm.channels}: the file is damaged, or not for playing"
        )
    return pcm


# --- timing ----------------------------------------------------------------------------------------------

# The byte rate turns bytes in hand into audio in hand. A decoder of a constant rate knows it from the first
# frame. Other rates are measured while decoding, and the highest ten-second mean counts, because a link has
# to carry the densest part of the music.
