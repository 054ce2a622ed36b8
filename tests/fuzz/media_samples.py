"""Small real files of each container and codec, made at start: what `tests.fuzz.media` damages."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
import numpy as np
import soundfile

REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
DATA = Path(__file__).parents[1] / "data"


def music(rate_hz: int, channels: int, seconds: float, dtype: str = "int16") -> Any:
    at = np.arange(int(rate_hz * seconds))[:, None] / rate_hz
    tones = 0.4 * np.sin(2 * np.pi * 330 * (1 + np.arange(channels)) * at) * np.exp(-3 * at)
    noise = np.random.default_rng(1).uniform(-0.02, 0.02, tones.shape)
    return ((tones + noise) * np.iinfo(dtype).max).astype(dtype)


def encoded(
    codec: str,
    container: str,
    rate_hz: int = 44_100,
    channels: int = 2,
    seconds: float = 0.2,
    *,
    sample: str = "s16",
    muxer: dict[str, str] | None = None,
    **options: str,
) -> bytes:
    pcm = music(rate_hz, channels, seconds, "int32" if sample.startswith("s32") else "int16")
    layout = {1: "mono", 2: "stereo"}[channels]
    frame = av.AudioFrame.from_ndarray(
        pcm.reshape(1, -1), format="s32" if pcm.dtype == "int32" else "s16", layout=layout
    )
    frame.sample_rate, frame.time_base, frame.pts = rate_hz, Fraction(1, rate_hz), 0
    with TemporaryDirectory() as directory:
        path = Path(directory) / "sample"
        with av.open(
            str(path), "w", format=container, options={"fflags": "+bitexact"} | (muxer or {})
        ) as output:
            stream: Any = output.add_stream(
                codec, rate=rate_hz, layout=layout, options=options | {"strict": "-2"}
            )
            if sample != "s16":
                stream.format = sample
            for part in (frame, None):
                output.mux(stream.encode(part))
        return path.read_bytes()


def by_libsndfile(rate_hz: int, channels: int, kind: str, subtype: str, seconds: float = 0.1) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, music(rate_hz, channels, seconds), rate_hz, format=kind, subtype=subtype)
    data = bytearray(out.getvalue())
    at = data.find(b"OggS")
    while at >= 0:
        data[at + 14 : at + 18] = b"same"  # the number of the stream, which is drawn
        at = data.find(b"OggS", at + 4)
    seal_ogg(data)
    return bytes(data)


def seal_ogg(data: bytearray) -> None:
    """Give all Ogg pages the right checksums, so that damage gets past it."""
    at = data.find(b"OggS")
    while at >= 0:
        if len(data) >= at + 27:
            body = at + 27 + data[at + 26]
            end = body + sum(data[at + 27 : body])
            data[at + 22 : at + 26] = bytes(4)
            # The same polynomial as zlib's, with its bits in the other order, and from 0.
            crc = zlib.crc32(data[at:end].translate(REVERSED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
            data[at + 22 : at + 26] = crc.to_bytes(4, "little").translate(REVERSED)[::-1]
        at = data.find(b"OggS", at + 4)


def wav() -> Iterator[bytes]:
    for codec in ("pcm_u8", "pcm_s16le", "pcm_f32le", "pcm_f64le", "pcm_alaw", "adpcm_ima_wav", "adpcm_ms"):
        yield encoded(codec, "wav", 8000, 1 + (codec[-1] in "es"), 0.1, sample=SAMPLES.get(codec, "s16"))
    for kind, subtype in (("WAV", "PCM_24"), ("WAVEX", "PCM_16"), ("WAVEX", "PCM_32")):
        yield by_libsndfile(8000, 2, kind, subtype)


def mp3() -> Iterator[bytes]:
    bare = {"write_xing": "0", "id3v2_version": "0"}
    for rate_hz, channels, muxer in ((44_100, 2, {}), (48_000, 1, bare), (22_050, 2, {}), (8000, 1, bare)):
        yield encoded("libmp3lame", "mp3", rate_hz, channels, 0.3, muxer=muxer, b="32000")
    yield encoded("libmp3lame", "mp3", 44_100, 2, 0.3, b="64000", joint_stereo="0", reservoir="1")
    yield (DATA / "other-channels.mp3").read_bytes()
    frame = bytearray((DATA / "bare.mp3").read_bytes()[:208])
    frame[36 : 36 + 26] = struct.pack(">4sHHHIIHHHH", b"VBRI", 1, 0, 50, 4000, 16, 8, 1, 2, 2)
    yield bytes(frame) + (DATA / "bare.mp3").read_bytes()[:3400]


def flac() -> Iterator[bytes]:
    yield compact_flac(encoded("flac", "flac", 44_100, 2, 0.05, frame_size="576"))
    yield compact_flac(encoded("flac", "flac", 16_000, 1, 0.2, compression_level="8"), seek_table=True)
    yield compact_flac(encoded("flac", "flac", 8000, 2, 0.1, sample="s32", bits_per_raw_sample="24"))
    yield by_libsndfile(8000, 1, "FLAC", "PCM_S8")
    yield by_libsndfile(48_000, 5, "FLAC", "PCM_16", 0.01)


def compact_flac(data: bytes, *, seek_table: bool = False) -> bytes:
    """Leave STREAMINFO and the frames, and maybe add a table of times."""
    at, is_last = 4, False
    while not is_last:
        is_last, at = bool(data[at] & 0x80), at + 4 + int.from_bytes(data[at + 1 : at + 4], "big")
    table = struct.pack(">QQHQQH", 0, 0, 576, 576, 900, 576) if seek_table else b""
    return data[:42] + b"\x83" + len(table).to_bytes(3, "big") + table + data[at:]


def vorbis() -> Iterator[bytes]:
    yield by_libsndfile(44_100, 2, "OGG", "VORBIS")
    yield by_libsndfile(8000, 1, "OGG", "VORBIS")
    yield encoded("vorbis", "ogg", 48_000, 2, 0.2, muxer={"page_duration": "50000"}, b="48000")


def opus() -> Iterator[bytes]:
    yield encoded("libopus", "ogg", 48_000, 1, 0.3, b="16000")
    yield encoded(
        "libopus", "ogg", 48_000, 2, 0.3, muxer={"page_duration": "60000"}, b="32000", frame_duration="2.5"
    )
    yield encoded("libopus", "ogg", 16_000, 1, 0.3, b="12000", application="voip", frame_duration="60")


def ogg_flac() -> Iterator[bytes]:
    yield encoded("flac", "ogg", 16_000, 1, 0.2, muxer={"page_duration": "50000"}, frame_size="576")
    yield encoded("flac", "ogg", 44_100, 2, 0.05, frame_size="1152")
    yield encoded("flac", "ogg", 8000, 2, 0.1, sample="s32")


def webm() -> Iterator[bytes]:
    yield encoded("libopus", "webm", 48_000, 1, 0.3, b="16000")
    yield encoded("libopus", "webm", 48_000, 2, 0.3, muxer={"cluster_time_limit": "100"}, b="32000")
    yield encoded("libopus", "webm", 48_000, 1, 0.3, muxer={"live": "1"}, b="16000")
    yield encoded("vorbis", "webm", 44_100, 2, 0.1, b="48000")


def aac() -> Iterator[bytes]:
    for rate_hz, channels in ((44_100, 2), (16_000, 1), (96_000, 1)):
        yield encoded("aac", "adts", rate_hz, channels, 0.25, b="32000")


M4A: tuple[dict[str, str], ...] = (
    {},
    {"movflags": "faststart"},
    {"movflags": "frag_keyframe+empty_moov"},
    {"movflags": "frag_every_frame+empty_moov+default_base_moof+dash"},
)


def m4a() -> Iterator[bytes]:
    for number, muxer in enumerate(M4A):
        yield encoded(
            "aac", "ipod", (44_100, 22_050)[number % 2], 1 + number % 2, 0.2, muxer=muxer, b="32000"
        )


def alac() -> Iterator[bytes]:
    for number, muxer in enumerate(M4A[:3]):
        yield encoded("alac", "ipod", 16_000, 1 + number % 2, 0.08, muxer=muxer, sample="s16p")
    yield encoded("alac", "ipod", 16_000, 2, 0.05, sample="s32p")


SAMPLES = {"pcm_u8": "u8", "pcm_f32le": "flt", "pcm_f64le": "dbl"}
FORMATS: dict[str, tuple[str, Callable[[], Iterator[bytes]]]] = {
    "wav": ("audio/wav", wav),
    "mp3": ("audio/mpeg", mp3),
    "flac": ("audio/flac", flac),
    "vorbis": ("audio/ogg", vorbis),
    "opus": ("audio/ogg", opus),
    "ogg-flac": ("audio/ogg", ogg_flac),
    "webm": ("audio/webm", webm),
    "aac": ("audio/aac", aac),
    "m4a": ("audio/mp4", m4a),
    "alac": ("audio/mp4", alac),
}
"""The MIME type and the samples of each container and codec."""
