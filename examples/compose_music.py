"""Compose and encode the piece of music that the example audio server ships.

    pip install numpy av soundfile mutagen
    python examples/compose_music.py python/playhead/servers/audio/music

"First Light" was written for this project and is in the public domain (CC0). All of its sound is computed
here: no samples, no recordings. Twenty-four bars in D major, 84 beats per minute, over a bass that walks
down. The script is not part of the package: its files are in the repository.
"""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import av
import mutagen
import mutagen.id3
import numpy as np
import soundfile

RATE_HZ = 44_100
BEAT_SECONDS = 60 / 84
BAR_SECONDS = 4 * BEAT_SECONDS
TAIL_SECONDS = 4.0
ARTIST = "The playhead authors"
LICENSE = "CC0 1.0"

# Chords as (bass, notes of the arpeggio), in MIDI numbers (69 is A at 440 Hz).
D, A_CS, B_M, FSM_A = (
    (38, (62, 66, 69, 74)),
    (37, (61, 64, 69, 73)),
    (35, (62, 66, 71, 74)),
    (33, (61, 66, 69, 73)),
)
G, D_FS, E_M7, A = (
    (43, (62, 67, 71, 74)),
    (42, (62, 66, 69, 74)),
    (40, (62, 64, 67, 71)),
    (33, (61, 64, 69, 76)),
)
E_M = (40, (64, 67, 71, 76))
INTRO = [D, G, D, A]
VERSE = [D, A_CS, B_M, FSM_A, G, D_FS, E_M7, A]
LIFT = [B_M, G, D_FS, A_CS, B_M, E_M, G, A]
ENDING = [G, A, D, D]
BARS = [*INTRO, *VERSE, *LIFT, *ENDING]

# The melody as (bar, beat, length in beats, note); bars count from 0, the intro leaves it silent.
MELODY = [
    (4, 0, 2, 78), (4, 2, 1, 76), (4, 3, 1, 74), (5, 0, 3, 76), (5, 3, 1, 73),
    (6, 0, 2, 74), (6, 2, 1, 71), (6, 3, 1, 74), (7, 0, 3, 73), (7, 3, 1, 69),
    (8, 0, 2, 71), (8, 2, 1, 74), (8, 3, 1, 79), (9, 0, 3, 78), (9, 3, 1, 74),
    (10, 0, 1.5, 76), (10, 1.5, 0.5, 78), (10, 2, 2, 79), (11, 0, 2, 76), (11, 2, 2, 81),
    (12, 0, 3, 83), (12, 3, 1, 81), (13, 0, 1.5, 79), (13, 1.5, 0.5, 78), (13, 2, 2, 74),
    (14, 0, 3, 81), (14, 3, 1, 78), (15, 0, 2, 76), (15, 2, 2, 73),
    (16, 0, 1.5, 74), (16, 1.5, 0.5, 76), (16, 2, 1, 78), (16, 3, 1, 81), (17, 0, 2, 79), (17, 2, 2, 76),
    (18, 0, 1, 79), (18, 1, 1, 78), (18, 2, 1, 76), (18, 3, 1, 74), (19, 0, 2, 76), (19, 2, 2, 73),
    (20, 0, 2, 74), (20, 2, 2, 71), (21, 0, 2, 73), (21, 2, 2, 76), (22, 0, 6, 74),
]  # fmt: skip


def hertz(note: float) -> float:
    return float(440.0 * 2 ** ((note - 69) / 12))


def time_axis(seconds: float) -> np.ndarray:
    return np.arange(int(seconds * RATE_HZ)) / RATE_HZ


def envelope(seconds: float, attack: float, release: float) -> np.ndarray:
    """Rises and falls as half a cosine, so that no note clicks."""
    n, up, down = int(seconds * RATE_HZ), int(attack * RATE_HZ), int(release * RATE_HZ)
    shape = np.ones(n)
    shape[:up] = 0.5 - 0.5 * np.cos(np.pi * np.arange(up) / up)
    shape[n - down :] *= 0.5 + 0.5 * np.cos(np.pi * np.arange(down) / down)
    return shape


def pluck(note: float, seconds: float) -> np.ndarray:
    """A soft harp string: harmonics that die the faster the higher they are."""
    t = time_axis(seconds)
    tone = sum(
        np.sin(2 * np.pi * hertz(note) * k * t) * np.exp(-t * (1.6 + 1.3 * k)) / k**1.6 for k in range(1, 8)
    )
    return tone * envelope(seconds, 0.004, 0.08)


def pad(note: float, seconds: float) -> np.ndarray:
    """Two strings a little out of tune, swelling."""
    t = time_axis(seconds)
    tone = sum(
        np.sin(2 * np.pi * hertz(note + cents / 100) * k * t + k * cents) / k**2
        for cents in (-5, 4)
        for k in range(1, 5)
    )
    return tone * envelope(seconds, 0.9, 0.9)


def bass(note: float, seconds: float) -> np.ndarray:
    t = time_axis(seconds)
    tone = np.sin(2 * np.pi * hertz(note) * t) + 0.35 * np.sin(4 * np.pi * hertz(note) * t) * np.exp(-2 * t)
    return tone * np.exp(-0.5 * t) * envelope(seconds, 0.02, 0.25)


def voice(note: float, seconds: float) -> np.ndarray:
    """An electric piano by frequency modulation, with a vibrato that comes late as a singer's does."""
    t = time_axis(seconds)
    vibrato = 0.0025 * np.sin(2 * np.pi * 5.2 * t) * np.clip((t - 0.35) / 0.5, 0, 1)
    phase = 2 * np.pi * hertz(note) * (t + vibrato / 5.2)
    brightness = 1.1 * np.exp(-3 * t) + 0.25
    tone = np.sin(phase + brightness * np.sin(phase)) + 0.15 * np.sin(3 * phase) * np.exp(-6 * t)
    return tone * (0.35 + 0.65 * np.exp(-1.4 * t)) * envelope(seconds, 0.012, min(0.18, seconds / 3))


def compose() -> np.ndarray:
    """The whole piece as float stereo, shape (frames, 2)."""
    mix = np.zeros((int((len(BARS) * BAR_SECONDS + TAIL_SECONDS) * RATE_HZ), 2))

    def place(sound: np.ndarray, at_seconds: float, gain: float, pan: float) -> None:
        start = int(at_seconds * RATE_HZ)
        stop = min(start + len(sound), len(mix))
        part = sound[: stop - start, None] * gain
        mix[start:stop] += part * [np.cos((pan + 1) * np.pi / 4), np.sin((pan + 1) * np.pi / 4)]

    for number, (root, notes) in enumerate(BARS):
        start = number * BAR_SECONDS
        last = number == len(BARS) - 1
        # The bass answers with the fifth, or with the octave where the fifth is foreign to the chord.
        step_up = 12 if number % 2 or (root, notes) in (A_CS, D_FS, FSM_A) else 7
        if number >= 2:
            if last:
                place(bass(root - 12, BAR_SECONDS + 2), start, 0.30, 0)
            else:
                place(bass(root, 2.4 * BEAT_SECONDS), start, 0.30, 0)
                place(
                    bass(root + step_up, 1.6 * BEAT_SECONDS),
                    start + 2.5 * BEAT_SECONDS,
                    0.2,
                    0,
                )
        for voice_number, note in enumerate(notes[:3]):
            place(
                pad(note - 12 * (note > 66), BAR_SECONDS + 0.8), start, 0.055, (-0.7, 0.1, 0.7)[voice_number]
            )
        if last:  # the last chord is spread and left to ring
            for step, note in enumerate((50, 57, 62, 66, 69, 74, 78, 86)):
                place(pluck(note, 5.5), start + 0.09 * step, 0.16, -0.6 + 0.17 * step)
            continue
        for step, index in enumerate((0, 1, 2, 3, 2, 1, 3, 2)):
            swing = 0.02 if step % 2 else 0.0
            accent = 0.16 if step in (0, 4) else 0.12
            place(
                pluck(notes[index], 1.6), start + step * BEAT_SECONDS / 2 + swing, accent, -0.45 + 0.3 * index
            )
    for bar, beat, beats, note in MELODY:
        place(voice(note, beats * BEAT_SECONDS * 0.98), bar * BAR_SECONDS + beat * BEAT_SECONDS, 0.17, 0.1)
    return master(mix)


def master(dry: np.ndarray) -> np.ndarray:
    """A small hall (decaying noise as impulse response), a soft limit, a fade of the very end."""
    random = np.random.default_rng(84)
    t = time_axis(1.8)
    wet = np.empty_like(dry)
    size = 1 << (len(dry) + len(t) - 1).bit_length()
    for channel in range(2):
        impulse = random.standard_normal(len(t)) * np.exp(-t * 3.6) * np.clip(t / 0.02, 0, 1)
        impulse = np.convolve(impulse, np.ones(9) / 9, mode="same")  # a hall swallows treble
        impulse /= np.sqrt(np.sum(impulse**2))
        product = np.fft.rfft(dry[:, channel], size) * np.fft.rfft(impulse, size)
        wet[:, channel] = np.fft.irfft(product, size)[: len(dry)]
    out = dry + 0.28 * wet
    out = np.tanh(1.15 * out / np.max(np.abs(out))) / np.tanh(1.15) * 0.89
    fade = int(1.5 * RATE_HZ)
    out[-fade:] *= np.linspace(1, 0, fade)[:, None] ** 2
    return out


def encode(
    path: Path,
    sound: np.ndarray,
    *,
    codec: str,
    rate_hz: int,
    mono: bool,
    bit_rate: int | None = None,
    options: dict[str, str] | None = None,
) -> None:
    if codec == "vorbis":  # the av wheels have no good encoder for it
        with soundfile.SoundFile(
            path, "w", rate_hz, 2, format="OGG", subtype="VORBIS", compression_level=0.75
        ) as out:
            for start in range(0, len(sound), rate_hz):  # libsndfile overflows its stack on one long write
                out.write(sound[start : start + rate_hz])
        return
    layout = "mono" if mono else "stereo"
    samples = (np.clip(sound, -1, 1) * 32767).round().astype(np.int16)
    frame = av.AudioFrame.from_ndarray(
        np.ascontiguousarray(samples.reshape(1, -1)), format="s16", layout="stereo"
    )
    frame.sample_rate = RATE_HZ
    frame.pts = 0
    frame.time_base = Fraction(1, RATE_HZ)
    with av.open(str(path), "w") as out:
        stream = out.add_stream(codec, rate=rate_hz, options=options)
        stream.layout = layout
        if bit_rate is not None:
            stream.bit_rate = bit_rate
        resampler = av.AudioResampler(
            format=stream.format.name,
            layout=layout,
            rate=rate_hz,
            frame_size=stream.codec_context.frame_size or 4096,
        )
        for piece in [*resampler.resample(frame), *resampler.resample(None)]:
            out.mux(stream.encode(piece))
        out.mux(stream.encode(None))


def tag(path: Path, title: str) -> None:
    if path.suffix == ".wav":
        file = mutagen.File(path)
        file.add_tags()
        file.tags.add(mutagen.id3.TIT2(text=title))
        file.tags.add(mutagen.id3.TPE1(text=ARTIST))
        file.save()
        return
    file = mutagen.File(path, easy=True)
    if file.tags is None:
        file.add_tags()
    file["title"], file["artist"], file["copyright"] = title, ARTIST, LICENSE
    file.save()


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    whole = compose()

    def excerpt(first_bar: int, bars: float) -> np.ndarray:
        start, stop = int(first_bar * BAR_SECONDS * RATE_HZ), int((first_bar + bars) * BAR_SECONDS * RATE_HZ)
        part = whole[start:stop].copy()
        edge = int(0.4 * RATE_HZ)
        if first_bar:
            part[:edge] *= np.linspace(0, 1, edge)[:, None]
        part[-3 * edge :] *= np.linspace(1, 0, 3 * edge)[:, None]
        return part

    takes = [
        (
            "first-light.mp3",
            "First Light",
            whole,
            # The only one in the wheel, so lean. Less than a millionth of the energy lies above 8 kHz, so
            # 16 kHz are enough; the noise that nothing masks is 1 dB lower there than at 22.05 or 24 kHz.
            {
                "codec": "libmp3lame",
                "rate_hz": 16_000,
                "mono": False,
                "bit_rate": 24_000,
                "options": {"compression_level": "0"},  # LAME's most careful search
            },
        ),
        (
            "first-light-lift.ogg",
            "First Light: the lift",
            excerpt(12, 8),
            {"codec": "vorbis", "rate_hz": 44_100, "mono": False},
        ),
        (
            "first-light-verse.flac",
            "First Light: the verse",
            excerpt(4, 4),
            {"codec": "flac", "rate_hz": 22_050, "mono": True},
        ),
        (
            "first-light-opening.wav",
            "First Light: the opening",
            excerpt(0, 1.5),
            {"codec": "pcm_s16le", "rate_hz": 22_050, "mono": True},
        ),
    ]
    for name, title, sound, how in takes:
        path = folder / name
        encode(path, sound, **how)
        tag(path, title)
        sys.stdout.write(f"{name}: {path.stat().st_size:,} bytes, {len(sound) / RATE_HZ:.1f} s\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
