"""Select the images and audio that a provider accepts, and replace the others by a line of text.

An attachment that a provider would refuse must be replaced, because it would fail every later request of the
conversation, too. It is never truncated, because half an image is useless. `results.model_text` has shortened
text before. Nothing here does I/O.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from playhead.agent.conversation import (
    AssistantMessage,
    Attachment,
    Message,
    Text,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from playhead.content.audio import SNIFF_BYTES, AudioFormat, format_of_mime, sniff, split_mime
from playhead.content.formats import base64_problem, decoded_bytes
from playhead.content.image_files import IMAGE_TYPES, image_type
from playhead.results.model_text import size_words

JPEG, PNG, GIF, WEBP = "image/jpeg", "image/png", "image/gif", "image/webp"
_ALIASES: Final = {"image/jpg": JPEG, "image/pjpeg": JPEG, "image/x-png": PNG}
_MIME: Final = re.compile(r"[\w.+-]{1,50}/[\w.+-]{1,50}", re.ASCII)
_HEAD_CHARS: Final = SNIFF_BYTES // 3 * 4
"""The length of the beginning that shows the type, in whole groups of base64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaPolicy:
    """The attachments that a provider accepts. Sizes are in characters of base64, as in providers' limits."""

    images: frozenset[str] = frozenset()
    audio: tuple[tuple[AudioFormat, str], ...] = ()
    """The audio formats, each with the provider's MIME type for it."""
    item_chars: int = 0
    """Limits one attachment, in characters of base64."""
    request_chars: int = 0
    """Limits all attachments in a request. The newest have priority, because the model has seen the older
    ones."""
    items: int = 0
    """Limits the number of attachments in a request."""


TEXT_ONLY: Final = MediaPolicy()
"""The policy for a model that accepts neither images nor audio."""


def fit_media(messages: Sequence[Message], policy: MediaPolicy) -> tuple[Message, ...]:
    """Make every attachment in `messages` acceptable, or replace it by a line with the reason.

    In a user's message the line replaces the part; in a tool's result it follows the text. The MIME types
    become those that the provider uses. The bytes of an image show its type, because servers mislabel images
    and providers refuse a mismatch. Messages without attachments stay the same objects.
    """
    room = _RequestSpace(policy)
    fitted = [_fit_message(message, room) for message in reversed(messages)]
    return tuple(reversed(fitted))


class _RequestSpace:
    """The remaining space of one request."""

    def __init__(self, policy: MediaPolicy) -> None:
        self._policy = policy
        self._chars = policy.request_chars
        self._items = policy.items

    def take(self, media: Attachment) -> Attachment | str:
        """Return the attachment to send, or the line that replaces it."""
        mime_type = _accepted_type(media, self._policy)
        if mime_type is None:
            return _replacement_line(media, "this model does not accept this type")
        if len(media.base64) > self._policy.item_chars:
            most = size_words(self._policy.item_chars * 3 // 4)
            return _replacement_line(media, f"this model accepts at most {most} each")
        if len(media.base64) > self._chars or not self._items:
            return _replacement_line(media, "newer media fill the request")
        if not media.base64 or base64_problem(media.base64) is not None:
            return _replacement_line(media, "its data is not valid base64")
        self._chars -= len(media.base64)
        self._items -= 1
        return media if mime_type == media.mime_type else replace(media, mime_type=mime_type)


def _fit_message(message: Message, room: _RequestSpace) -> Message:
    match message:
        case UserMessage():
            if not any(isinstance(part, Attachment) for part in message.parts):
                return message
            parts = [_fit_part(part, room) for part in reversed(message.parts)]
            return UserMessage(parts=tuple(reversed(parts)))
        case ToolMessage():
            if not any(result.media for result in message.results):
                return message
            results = [_fit_result(result, room) for result in reversed(message.results)]
            return ToolMessage(results=tuple(reversed(results)))
        case AssistantMessage():
            return message
        case _:
            assert_never(message)


def _fit_part(part: Text | Attachment, room: _RequestSpace) -> Text | Attachment:
    if isinstance(part, Text):
        return part
    taken = room.take(part)
    return Text(text=taken) if isinstance(taken, str) else taken


def _fit_result(result: ToolResult, room: _RequestSpace) -> ToolResult:
    if not result.media:
        return result
    taken = [room.take(media) for media in reversed(result.media)]
    taken.reverse()
    lines = [each for each in taken if isinstance(each, str)]
    return replace(
        result,
        text="\n".join([*filter(None, [result.text]), *lines]),
        media=tuple(each for each in taken if isinstance(each, Attachment)),
    )


def _accepted_type(media: Attachment, policy: MediaPolicy) -> str | None:
    declared = split_mime(media.mime_type)[0]
    head = _decode_head(media.base64)
    match media.kind:
        case "image":
            # The label of a type without a simple signature (HEIC) is trusted; others must match their bytes.
            detected = image_type(head)
            mime_type = detected or _ALIASES.get(declared, declared)
            is_plausible = mime_type not in IMAGE_TYPES or detected == mime_type
            return mime_type if is_plausible and mime_type in policy.images else None
        case "audio":
            audio_format = format_of_mime(declared) or sniff(head)
            return dict(policy.audio).get(audio_format) if audio_format else None
        case _:
            assert_never(media.kind)


def _decode_head(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text[:_HEAD_CHARS])
    except ValueError:  # including non-ASCII
        return b""


def _replacement_line(media: Attachment, why: str) -> str:
    kind = split_mime(media.mime_type)[0]
    # A server chose the type. An invalid one could inject text into the line.
    shown = kind if _MIME.fullmatch(kind) else "type unknown"
    size_bytes = decoded_bytes(media.base64)
    return f"[{media.kind}, {shown}, {size_words(size_bytes)}: not attached, {why}]"
