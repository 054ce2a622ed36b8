"""Which images and sounds go to a provider natively, and the line that stands where one can't go.

Media are never cut: half an image is none. What a provider would refuse is replaced by one short line: one
refused image fails every later request of the conversation too. Text is cut before it gets here
(`results.routing`, with a handle to the whole). Nothing here does I/O.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Media,
    Message,
    Provider,
    Text,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from playhead.content.audio import SNIFF_BYTES, AudioFormat, format_of_mime, sniff, split_mime
from playhead.limits import MIB

_JPEG, _PNG, _GIF, _WEBP = "image/jpeg", "image/png", "image/gif", "image/webp"
_ALIASES: Final = {"image/jpg": _JPEG, "image/pjpeg": _JPEG, "image/x-png": _PNG}
_MIME: Final = re.compile(r"[\w.+-]{1,50}/[\w.+-]{1,50}", re.ASCII)
_HEAD_CHARS: Final = SNIFF_BYTES // 3 * 4
"""Whole groups of base64 that hold what sniffing wants."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPolicy:
    """What one provider takes. Sizes are characters of base64: that is what its limits count."""

    images: frozenset[str] = frozenset()
    audio: tuple[tuple[AudioFormat, str], ...] = ()
    """Formats, each with the MIME type under which the provider knows it."""
    item_chars: int = 0
    """One image or sound."""
    request_chars: int = 0
    """All of one request. The newest come first: the old ones were seen before."""
    items: int = 0
    """Images and sounds of one request."""


ANTHROPIC: Final = MediaPolicy(
    images=frozenset({_JPEG, _PNG, _GIF, _WEBP}),
    item_chars=5 * MIB,  # the API counts the base64 and refuses more
    request_chars=24 * MIB,  # of the 32 MB that a request may have: the rest is for text
    items=100,  # what the models with the smallest window take
)
OPENAI: Final = MediaPolicy(
    images=frozenset({_JPEG, _PNG, _GIF, _WEBP}),
    audio=((AudioFormat.WAV, "audio/wav"), (AudioFormat.MP3, "audio/mpeg")),
    item_chars=20 * MIB,  # the documented limit of one image; also what most compatible servers allow
    request_chars=40 * MIB,  # of the 50 MB that all images of a request may have
    items=100,  # 500 are allowed; compatible servers stop long before
)
OPENAI_RESPONSES: Final = replace(OPENAI, audio=())  # its input has no sound
GEMINI: Final = MediaPolicy(
    images=frozenset({_JPEG, _PNG, _WEBP, "image/heic", "image/heif"}),
    audio=(
        (AudioFormat.WAV, "audio/wav"),
        (AudioFormat.MP3, "audio/mp3"),
        (AudioFormat.FLAC, "audio/flac"),
        (AudioFormat.VORBIS, "audio/ogg"),
        (AudioFormat.AAC, "audio/aac"),
        (AudioFormat.AIFF, "audio/aiff"),
    ),
    item_chars=14 * MIB,  # one must leave room for text under the whole request's 20 MB
    request_chars=16 * MIB,  # a request with inline data may have 20 MB in all; larger needs uploading
    items=100,  # far below the 3,600 images of the API, which the size stops first
)
TEXT_ONLY: Final = MediaPolicy()


def policy_for(provider: Provider) -> MediaPolicy:
    """The defaults above. Prompt mode is text only: its tags hold no media."""
    match provider:
        case "anthropic":
            return ANTHROPIC
        case "openai":
            return OPENAI
        case "openai-responses":
            return OPENAI_RESPONSES
        case "gemini":
            return GEMINI
        case "prompt":
            return TEXT_ONLY
        case _:
            assert_never(provider)


def fit_media(messages: Sequence[Message], policy: MediaPolicy) -> tuple[Message, ...]:
    """`messages` with every image and sound fit to be sent, or replaced by a line that says why it isn't.

    In a user's message the line takes the place of the part; in a tool's result it is added to the text.
    MIME types come out as the provider writes them; an image's is what its bytes say, because servers
    mislabel them and providers refuse what doesn't match. Messages without media are the same objects.
    """
    room = _Room(policy)
    fitted = [_message(message, room) for message in reversed(messages)]
    return tuple(reversed(fitted))


class _Room:
    """What is left of one request's size."""

    def __init__(self, policy: MediaPolicy) -> None:
        self._policy = policy
        self._chars = policy.request_chars
        self._items = policy.items

    def take(self, media: Media) -> Media | str:
        """The media as it is sent, or the line in its place."""
        mime_type = _native_type(media, self._policy)
        if mime_type is None:
            return _line(media, "this model takes no such media")
        if len(media.base64) > self._policy.item_chars:
            most = size_words(self._policy.item_chars * 3 // 4)
            return _line(media, f"this model takes at most {most} each")
        if len(media.base64) > self._chars or not self._items:
            return _line(media, "newer media fill the request")
        if not _is_base64(media.base64):
            return _line(media, "its data are no base64")
        self._chars -= len(media.base64)
        self._items -= 1
        return media if mime_type == media.mime_type else replace(media, mime_type=mime_type)


def _message(message: Message, room: _Room) -> Message:
    match message:
        case UserMessage():
            if not any(isinstance(part, Media) for part in message.parts):
                return message
            parts = [_part(part, room) for part in reversed(message.parts)]
            return UserMessage(parts=tuple(reversed(parts)))
        case ToolMessage():
            if not any(result.media for result in message.results):
                return message
            results = [_result(result, room) for result in reversed(message.results)]
            return ToolMessage(results=tuple(reversed(results)))
        case AssistantMessage():
            return message
        case _:
            assert_never(message)


def _part(part: Text | Media, room: _Room) -> Text | Media:
    if isinstance(part, Text):
        return part
    taken = room.take(part)
    return Text(text=taken) if isinstance(taken, str) else taken


def _result(result: ToolResult, room: _Room) -> ToolResult:
    if not result.media:
        return result
    taken = [room.take(media) for media in reversed(result.media)]
    taken.reverse()
    lines = [each for each in taken if isinstance(each, str)]
    return replace(
        result,
        text="\n".join([*filter(None, [result.text]), *lines]),
        media=tuple(each for each in taken if isinstance(each, Media)),
    )


def _native_type(media: Media, policy: MediaPolicy) -> str | None:
    declared = split_mime(media.mime_type)[0]
    head = _head(media.base64)
    match media.kind:
        case "image":
            # HEIC has no mark that is worth knowing here: its label is believed, the others' isn't.
            found = _image_type(head) or _ALIASES.get(declared, declared)
            believed = found not in (_JPEG, _PNG, _GIF, _WEBP) or _image_type(head) == found
            return found if believed and found in policy.images else None
        case "audio":
            form = format_of_mime(declared) or sniff(head)
            return dict(policy.audio).get(form) if form else None
        case _:
            assert_never(media.kind)


def _head(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text[:_HEAD_CHARS])
    except ValueError:  # also what is no ASCII
        return b""


def _image_type(head: bytes) -> str | None:
    if head.startswith(b"\xff\xd8\xff"):
        return _JPEG
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return _PNG
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _GIF
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return _WEBP
    return None


def _is_base64(text: str) -> bool:
    try:
        return bool(binascii.a2b_base64(text, strict_mode=True))
    except ValueError:  # also what is no ASCII
        return False


def _line(media: Media, why: str) -> str:
    kind = split_mime(media.mime_type)[0]
    # A server chose the type: one that isn't shaped like one must not write lines of ours.
    shown = kind if _MIME.fullmatch(kind) else "type unknown"
    size_bytes = len(media.base64.rstrip("=")) * 3 // 4
    return f"[{media.kind}, {shown}, {size_words(size_bytes)}: not attached, {why}]"


def size_words(size_bytes: int) -> str:
    """Decimal units, as players and file managers name them."""
    for unit, scale in (("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes} bytes"
