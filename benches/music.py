"""An MP3 at 192 kbit/s, the rate of common streams; the shipped piece has a lower one."""

from __future__ import annotations

from pathlib import Path

import lameenc
import miniaudio

import playhead

CACHE = Path(__file__).parents[1] / "target" / "bench"
BIT_RATE_KBIT = 192
OUT_HZ = 48_000
"""The shipped piece has 16 kHz, at which no MP3 has more than 160 kbit/s."""
PIECE_BYTES = 16 * 1024
SHIPPED = Path(playhead.__file__).parent / "servers" / "audio" / "music" / "first-light.mp3"


def encoded_music(bit_rate_kbit: int = BIT_RATE_KBIT, *, times: int = 1, seconds: int | None = None) -> Path:
    """The shipped piece, `times` over or its first `seconds`, encoded again at a constant bit rate; made
    once, cached in target/."""
    path = CACHE / f"music-{bit_rate_kbit}-{OUT_HZ}-{times if seconds is None else f'{seconds}s'}.mp3"
    if not path.exists():
        sound = miniaudio.mp3_read_file_s16(str(SHIPPED))
        encoder = lameenc.Encoder()
        encoder.silence()
        encoder.set_bit_rate(bit_rate_kbit)
        encoder.set_in_sample_rate(sound.sample_rate)
        encoder.set_out_sample_rate(OUT_HZ)
        encoder.set_channels(sound.nchannels)
        encoder.set_quality(5)
        pcm = sound.samples.tobytes() * times
        if seconds is not None:
            pcm = pcm[: seconds * sound.sample_rate * sound.nchannels * sound.sample_width]
        # In pieces: resampled, one large one does not fit into the encoder's buffer.
        pieces = [encoder.encode(pcm[at : at + PIECE_BYTES]) for at in range(0, len(pcm), PIECE_BYTES)]
        data = b"".join(pieces) + encoder.flush()
        CACHE.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(data)
        unfinished.replace(path)
    return path
