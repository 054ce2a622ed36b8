"""Sound that a server sends: is it what its MIME type says, and can it be decoded?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import trio

from playhead._core import decode_base64
from playhead.check.results import CheckKind, TestDraft, TestResult
from playhead.check.target import Target
from playhead.content.audio import (
    SNIFF_BYTES,
    AudioFormat,
    format_of_mime,
    has_signature,
    is_audio,
    sniff,
)
from playhead.content.formats import base64_problem
from playhead.errors import DecodeError, UnsupportedFormatError
from playhead.limits import MIB

if TYPE_CHECKING:
    from typing_extensions import Buffer

MOST_PCM_BYTES: Final = 32 * MIB
"""Decoded of one sound: three minutes of 44.1 kHz stereo. Damage shows earlier."""
MOST_SOUND_BYTES: Final = 16 * MIB

DECODES: Final = CheckKind(
    name="audio.decodes",
    title="Sound can be decoded, from its first byte to its last",
    level="must",
    source="docs/check.md#sound",
)
TYPE: Final = CheckKind(
    name="audio.mime-type",
    title="The bytes of a sound are of the format that its MIME type names",
    level="must",
    source="https://modelcontextprotocol.io/specification/2025-11-25/server/tools#audio-content",
)
BASE64: Final = CheckKind(
    name="audio.base64",
    title="The data of a sound is base64 (RFC 4648, section 4)",
    level="must",
    source="https://modelcontextprotocol.io/specification/2025-11-25/server/tools#audio-content",
)
KINDS: Final = (DECODES, TYPE, BASE64)

_OGG_TYPES: Final = ("audio/ogg", "application/ogg")
_OGG: Final = frozenset({AudioFormat.VORBIS, AudioFormat.OPUS, AudioFormat.OGG_FLAC, AudioFormat.OGG})
_FAMILIES: Final[tuple[frozenset[AudioFormat], ...]] = (
    _OGG,
    frozenset({AudioFormat.FLAC, AudioFormat.OGG_FLAC}),
    frozenset({AudioFormat.AAC, AudioFormat.MP4}),
    frozenset({AudioFormat.OPUS, AudioFormat.VORBIS, AudioFormat.WEBM}),
)
"""Formats that go by each other's names, since one is the other's container."""
_DECODED: Final = frozenset({AudioFormat.MP3, AudioFormat.FLAC, AudioFormat.WAV, AudioFormat.VORBIS})


class _Held:
    """Bytes that are there, for a decoder."""

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)

    def readinto(self, buffer: Buffer, timeout: float | None = None) -> int:
        with memoryview(buffer).cast("B") as view:
            count = min(len(view), len(self._rest))
            view[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


async def probe_sound(
    target: Target,
    found: Callable[[TestResult], None],
    *,
    base64: str,
    mime_type: str | None,
    subject: str,
    title: str,
    tool: str | None = None,
    uri: str | None = None,
) -> None:
    """Judge sound that came as base64 inside a result. Sends nothing."""
    draft = TestDraft(subject=subject, title=title, tool=tool)
    problem = await trio.to_thread.run_sync(base64_problem, base64)
    if draft.require(BASE64, problem is None, f"expected base64, came {problem}"):
        data = await trio.to_thread.run_sync(decode_base64, base64)
        await judge_sound(draft, data, mime_type=mime_type, uri=uri, whole=True)
    found(draft.done())


async def judge_sound(
    draft: TestDraft, data: bytes, *, mime_type: str | None, uri: str | None, whole: bool
) -> None:
    """Judge `data`, all of a sound (`whole`) or its beginning, in a worker thread."""
    _judge_type(draft, data[:SNIFF_BYTES], mime_type)
    whole = whole and len(data) <= MOST_SOUND_BYTES
    verdict, why = await trio.to_thread.run_sync(
        lambda: _decoded(data[:MOST_SOUND_BYTES], mime_type=mime_type, uri=uri, whole=whole)
    )
    match verdict:
        case True:
            draft.passed(DECODES)
        case False:
            draft.failed(DECODES, why)
        case None:
            draft.skipped(DECODES, why)


def sounds_like(item: Mapping[str, Any], uri: str | None = None) -> bool:
    """Whether the labels of a block, link or contents say sound."""
    mime_type = item.get("mimeType")
    return is_audio(mime_type if isinstance(mime_type, str) else None, uri) is True


def _judge_type(draft: TestDraft, head: bytes, mime_type: str | None) -> None:
    label, came = format_of_mime(mime_type), sniff(head)
    if label is None and (mime_type or "").partition(";")[0].strip().lower() in (
        "audio/ogg",
        "application/ogg",
    ):
        label = AudioFormat.OGG
    if label is None or came is None or came is AudioFormat.TEXT or not has_signature(head):
        return  # the label names no format that is known here, or the bytes don't say: decoding tells
    same = label is came or any(label in family and came in family for family in _FAMILIES)
    draft.require(TYPE, same, f"expected {label.value}, since it is called {mime_type}; came {came.value}")


def _decoded(data: bytes, *, mime_type: str | None, uri: str | None, whole: bool) -> tuple[bool | None, str]:
    """Whether the sound decodes; None where that can't be told, and why."""
    from playhead.playback.decoder import open_decoder
    from playhead.playback.source import DecoderSource

    came = sniff(data[:SNIFF_BYTES])
    label = format_of_mime(mime_type)
    known = came if came not in (None, AudioFormat.TEXT) else label
    if came is not AudioFormat.TEXT and known is not AudioFormat.PCM and known not in _DECODED and data:
        name = known.value if known is not None else mime_type or "a format that is not known here"
        return None, f"{name} is not decoded by this checker"
    frames_bytes = 0
    try:
        source = DecoderSource(_Held(data))
        decoder = open_decoder(source, mime_type=mime_type, uri=uri, size_bytes=len(data))
        try:
            while frames_bytes < MOST_PCM_BYTES and (size := memoryview(decoder.read()).nbytes):
                source.sound_began()
                frames_bytes += size
                source.sound_began()
        finally:
            decoder.close()
    except (UnsupportedFormatError, DecodeError) as error:
        if not whole and frames_bytes:
            return True, ""
        if not whole:
            return None, f"only the beginning was read: {error}"
        return False, f"expected sound ({mime_type}) in {len(data)} bytes: {error}"
    if frames_bytes:
        return True, ""
    return False, f"expected sound ({mime_type}), came {len(data)} bytes with not one sample in them"
