"""Audio and images from a server: they match their MIME types, can be decoded, and are whole.

Decoders tolerate damage, so decoding alone says little: `playback.containers` and
`content.image_files` compare a file with its own headers, checksums and index. A FLAC file is also decoded to
the MD5 of its samples.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from playhead._core import decode_base64
from playhead.check.probes.asking import text_in
from playhead.check.results import TestDraft
from playhead.content.audio import (
    SNIFF_BYTES,
    AudioFormat,
    format_of_mime,
    has_signature,
    is_audio,
    sniff,
)
from playhead.content.formats import base64_problem
from playhead.content.image_files import image_problem
from playhead.errors import DecodeError, UnsupportedFormatError
from playhead.limits import MIB
from playhead.stream.source import BytesReader

if TYPE_CHECKING:
    from playhead.playback.containers.flac import FlacInfo

MOST_PCM_BYTES: Final = 256 * MIB
"""Limits the decoded audio per item to 25 minutes of 44.1 kHz stereo. It is not stored."""
MOST_AUDIO_BYTES: Final = 16 * MIB
"""Limits the bytes of one item that are decoded. Only the beginning of a longer item is decoded."""

_OGG: Final = frozenset({AudioFormat.VORBIS, AudioFormat.OPUS, AudioFormat.OGG_FLAC, AudioFormat.OGG})
_FAMILIES: Final[tuple[frozenset[AudioFormat], ...]] = (
    _OGG,
    frozenset({AudioFormat.FLAC, AudioFormat.OGG_FLAC}),
    frozenset({AudioFormat.AAC, AudioFormat.MP4}),
    frozenset({AudioFormat.OPUS, AudioFormat.VORBIS, AudioFormat.WEBM}),
)
"""Groups the formats that servers label with each other's names, because one is the container of the
other."""
_DECODED: Final = frozenset({AudioFormat.MP3, AudioFormat.FLAC, AudioFormat.WAV, AudioFormat.VORBIS})


async def judge_base64_audio(
    draft: TestDraft, base64: str, *, mime_type: str | None, uri: str | None
) -> None:
    """Judge audio in base64 inside a result."""
    problem = await trio.to_thread.run_sync(base64_problem, base64)
    if draft.require("audio.base64", problem is None, f"expected base64, got {problem}"):
        data = await trio.to_thread.run_sync(decode_base64, base64)
        await judge_audio(draft, data, mime_type=mime_type, uri=uri, whole=True)


async def judge_audio(
    draft: TestDraft, data: bytes, *, mime_type: str | None, uri: str | None, whole: bool
) -> None:
    """Judge `data`, an audio file (`whole`) or its beginning, in a worker thread."""
    draft.sample(mime_type, data)
    _judge_type(draft, data[:SNIFF_BYTES], mime_type)
    whole = whole and len(data) <= MOST_AUDIO_BYTES
    verdict, why = await trio.to_thread.run_sync(
        lambda: _decode(data[:MOST_AUDIO_BYTES], mime_type=mime_type, uri=uri, whole=whole)
    )
    match verdict:
        case True:
            draft.passed("audio.decodes")
        case False:
            draft.failed("audio.decodes", why)
        case None:
            draft.skipped("audio.decodes", why)
    if whole and verdict is not False:
        problem = await trio.to_thread.run_sync(_audio_problem, data)
        draft.require("audio.whole", problem is None, problem or "")


def judge_image(draft: TestDraft, data: bytes, *, place: str = "") -> None:
    """Judge whether `data` is a complete image. Blocks: hostile images take a second."""
    problem = image_problem(data)
    draft.require("image.whole", problem is None, f"{place}{problem}")


def looks_like_audio(item: Mapping[str, Any], uri: str | None = None) -> bool:
    """True if the labels of a block, link or contents say audio."""
    return is_audio(text_in(item, "mimeType"), uri) is True


def _judge_type(draft: TestDraft, head: bytes, mime_type: str | None) -> None:
    label, got = format_of_mime(mime_type), sniff(head)
    if label is None and (mime_type or "").partition(";")[0].strip().lower() in (
        "audio/ogg",
        "application/ogg",
    ):
        label = AudioFormat.OGG
    if label is None or got is None or got is AudioFormat.TEXT or not has_signature(head):
        return  # an unknown label, or bytes without a signature: decoding decides
    same = label is got or any(label in family and got in family for family in _FAMILIES)
    draft.require(
        "audio.mime-type",
        same,
        f"expected {label.value}, because of the MIME type {mime_type}; got {got.value}",
    )


def _decode(data: bytes, *, mime_type: str | None, uri: str | None, whole: bool) -> tuple[bool | None, str]:
    """Decode the audio. Return the verdict (None if it can't be decided) and the reason."""
    from playhead.playback.decoder import open_decoder
    from playhead.playback.decoder_source import DecoderSource

    got = sniff(data[:SNIFF_BYTES])
    label = format_of_mime(mime_type)
    known = got if got not in (None, AudioFormat.TEXT) else label
    if got is not AudioFormat.TEXT and known is not AudioFormat.PCM and known not in _DECODED and data:
        name = known.value if known is not None else mime_type or "an unknown format"
        return None, f"the checker can't decode {name}"
    pcm_bytes = 0
    try:
        source = DecoderSource(BytesReader(data))
        decoder = open_decoder(source, mime_type=mime_type, uri=uri, size_bytes=len(data))
        try:
            while pcm_bytes < MOST_PCM_BYTES and (size := memoryview(decoder.read()).nbytes):
                source.audio_began()
                pcm_bytes += size
                source.audio_began()
        finally:
            decoder.close()
    except (UnsupportedFormatError, DecodeError) as error:
        if not whole and pcm_bytes:
            return True, ""
        if not whole:
            return None, f"only the beginning was read: {error}"
        return False, f"expected audio ({mime_type}) in {len(data)} bytes: {error}"
    if pcm_bytes:
        return True, ""
    return False, f"expected audio ({mime_type}), got {len(data)} bytes without a sample"


def _audio_problem(data: bytes) -> str | None:
    from playhead.playback.containers import audio_problem
    from playhead.playback.containers.flac import flac_info

    problem = audio_problem(data)
    if problem is None and (info := flac_info(data)) is not None:
        return _md5_problem(data, info)
    return problem


_MD5_BITS: Final = (8, 16, 24, 32)
"""The sample depths whose MD5 is compared: whole bytes. Others are rare, and their frames have been
verified."""


def _md5_problem(data: bytes, info: FlacInfo) -> str | None:
    """Decode a FLAC file whose frames are intact, and compare the MD5 of its samples (RFC 9639, 8.2)."""
    import miniaudio

    width = info.bits // 8
    pcm_bytes = (info.samples or 0) * info.channels * width
    if info.md5 is None or info.bits not in _MD5_BITS or not 0 < pcm_bytes <= MOST_PCM_BYTES:
        return None
    digest = hashlib.md5(usedforsecurity=False)
    try:
        for piece in miniaudio.stream_memory(
            data[data.index(b"fLaC") :],
            output_format=miniaudio.SampleFormat.SIGNED32,
            nchannels=info.channels,
            sample_rate=info.rate_hz,
        ):
            digest.update(_narrow(piece, width))
    except miniaudio.MiniaudioError as error:
        return f"expected FLAC whose samples can be decoded, got an error of the decoder: {error}"
    if digest.digest() == info.md5:
        return None
    return (
        f"expected samples with the MD5 {info.md5.hex()}, as STREAMINFO says, got {digest.hexdigest()}: they"
        " are not the samples that were encoded"
    )


def _narrow(samples: array[int], width: int) -> bytes:
    """Return the upper `width` bytes of each 32-bit sample, little-endian."""
    if sys.byteorder == "big":
        samples.byteswap()
    wide = samples.tobytes()
    narrow = bytearray(len(samples) * width)
    for index in range(width):
        narrow[index::width] = wide[4 - width + index :: 4]
    return bytes(narrow)
