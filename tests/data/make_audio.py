"""Make the audio fixtures: three seconds of a synthesized chord in every format, tagged and bare.

Run by hand when a fixture has to change, with `pip install av mutagen`; the files are committed so that
the tests need neither. The sound is made here, so nobody else's music is in the tree.
"""

from __future__ import annotations

import array
import math
import random
import shutil
import wave
from fractions import Fraction
from pathlib import Path

import av
from mutagen.id3 import APIC, ID3, TIT2

HERE = Path(__file__).parent
SECONDS = 3
COVER_BYTES = 140 * 1024
"""More than the decoder's source remembers (128 KiB), so that skipping the picture is really tested."""


def chord(*, rate_hz: int, channels: int, seconds: float) -> array.array[int]:
    """Three plucked notes with a little noise, different in each channel."""
    noise = random.Random(7)
    samples = array.array("h")
    for frame in range(int(rate_hz * seconds)):
        at = frame / rate_hz
        for channel in range(channels):
            value = sum(
                math.exp(-1.5 * ((at - 0.4 * note) % 1.5))
                * math.sin(2 * math.pi * hz * (1 + 0.002 * channel) * at)
                for note, hz in enumerate((220.0, 277.18, 329.63))
            )
            samples.append(int(6000 * value + noise.uniform(-20, 20)))
    return samples


def encode(
    name: str,
    codec: str,
    *,
    rate_hz: int,
    layout: str,
    seconds: float = SECONDS,
    bit_rate: int | None = None,
    container: str | None = None,
    options: dict[str, str] | None = None,
) -> None:
    channels = {"mono": 1, "stereo": 2}[layout]
    samples = chord(rate_hz=rate_hz, channels=channels, seconds=seconds)
    with av.open(str(HERE / name), "w", format=container, options=options or {}) as output:
        stream = output.add_stream(codec, rate=rate_hz, layout=layout, options={"strict": "experimental"})
        assert isinstance(stream, av.AudioStream)
        if bit_rate is not None:
            stream.bit_rate = bit_rate
        frame = av.AudioFrame(format="s16", layout=layout, samples=len(samples) // channels)
        frame.planes[0].update(samples.tobytes())
        frame.sample_rate = rate_hz
        frame.time_base = Fraction(1, rate_hz)
        frame.pts = 0
        for packet in stream.encode(frame):
            output.mux(packet)
        for packet in stream.encode(None):
            output.mux(packet)


def main() -> None:
    encode("gapless.mp3", "libmp3lame", rate_hz=44100, layout="stereo", bit_rate=64_000)
    bare = {"write_xing": "0", "id3v2_version": "0"}
    encode("bare.mp3", "libmp3lame", rate_hz=44100, layout="stereo", bit_rate=64_000, options=bare)
    shutil.copy(HERE / "gapless.mp3", HERE / "tagged.mp3")
    tags = ID3()
    tags.add(TIT2(encoding=3, text="Three plucked notes"))
    cover = b"\x89PNG\r\n\x1a\n" + random.Random(3).randbytes(COVER_BYTES)
    tags.add(APIC(encoding=3, mime="image/png", type=3, desc="cover", data=cover))
    tags.save(HERE / "tagged.mp3")
    encode("chord.flac", "flac", rate_hz=32000, layout="stereo", seconds=1.5)
    encode("chord.ogg", "vorbis", rate_hz=48000, layout="stereo", bit_rate=64_000)
    with wave.open(str(HERE / "chord.wav"), "wb") as output:
        output.setnchannels(1)
        output.setsampwidth(2)
        output.setframerate(16000)
        output.writeframes(chord(rate_hz=16000, channels=1, seconds=2).tobytes())
    # What the base installation refuses, by name:
    encode("refused.opus", "libopus", rate_hz=48000, layout="mono", seconds=0.3, container="ogg")
    encode("refused.aac", "aac", rate_hz=44100, layout="mono", seconds=0.3, container="adts")
    encode("refused.m4a", "aac", rate_hz=44100, layout="mono", seconds=0.3, container="ipod")
    encode("flac_in_ogg.oga", "flac", rate_hz=16000, layout="mono", seconds=0.5, container="ogg")


if __name__ == "__main__":
    main()
