"""The four types of structured response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from mcp_types import AudioContent, TextContent

from playhead.content import TypedContent
from playhead.content.audio import AudioFormat, sniff
from playhead.results.responses.base import StructuredResponse
from playhead.results.sizes import head_of_base64

_MIME: Final[Mapping[AudioFormat, str]] = {
    AudioFormat.MP3: "audio/mpeg",
    AudioFormat.FLAC: "audio/flac",
    AudioFormat.WAV: "audio/wav",
    AudioFormat.VORBIS: "audio/ogg",
    AudioFormat.OPUS: "audio/ogg",
    AudioFormat.OGG_FLAC: "audio/ogg",
    AudioFormat.OGG: "audio/ogg",
    AudioFormat.AAC: "audio/aac",
    AudioFormat.MP4: "audio/mp4",
    AudioFormat.WEBM: "audio/webm",
    AudioFormat.AIFF: "audio/aiff",
    AudioFormat.MIDI: "audio/midi",
}
UNKNOWN_MIME: Final = "application/octet-stream"
"""An audio response names no type, and the first bytes may not tell it either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResponse(StructuredResponse):
    """Something was done; its flags say whether the model is still to speak."""

    type: ClassVar[str] = "action"

    action: str
    message: str
    status: str = ""
    metadata: Mapping[str, str] | None = None
    final_action: bool = False
    no_further_response: bool = False
    silence_llm: bool = False
    """Stops the model without being terminal."""
    user_state: str = ""
    instruction: str | None = None

    @property
    def is_terminal(self) -> bool:
        return self.final_action or self.no_further_response

    @property
    def stops_model(self) -> bool:
        return self.final_action or self.no_further_response or self.silence_llm

    @property
    def action_name(self) -> str | None:
        return self.action

    def content(self) -> tuple[TypedContent, ...]:
        return (TextContent(type="text", text=self.message),)


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioResponse(StructuredResponse):
    """Sound with its title."""

    type: ClassVar[str] = "audio"

    data: str | None
    """Base64; None (JSON null) where the sound comes another way."""
    music_name: str
    action: str = ""
    status: str = ""
    metadata: Mapping[str, str] | None = None
    final_action: bool = False

    @property
    def is_terminal(self) -> bool:
        return self.final_action

    @property
    def action_name(self) -> str | None:
        return self.action

    def content(self) -> tuple[TypedContent, ...]:
        """The title, then the sound if there is any; its MIME type is told from its first bytes."""
        title = TextContent(type="text", text=self.music_name)
        if not self.data:
            return (title,)
        found = sniff(head_of_base64(self.data))
        mime_type = UNKNOWN_MIME if found is None else _MIME.get(found, UNKNOWN_MIME)
        return title, AudioContent(type="audio", data=self.data, mime_type=mime_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentResponse(StructuredResponse):
    """Data for a program, with a message that says what it is."""

    type: ClassVar[str] = "content"

    data: object
    """Any JSON value."""
    message: str

    def content(self) -> tuple[TypedContent, ...]:
        """The message; the data is for the program."""
        return (TextContent(type="text", text=self.message),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse(StructuredResponse):
    """What went wrong, and what may help."""

    type: ClassVar[str] = "error"

    error: str
    error_code: str | None = None
    details: object | None = None
    """Any JSON value."""
    suggestion: str | None = None

    def content(self) -> tuple[TypedContent, ...]:
        return (TextContent(type="text", text=self.error),)
