"""Structured responses: JSON in a text block with which a tool can end the turn or deliver audio.

`types` defines the base class, the four types, their constructors and their JSON; `registry` parses them.
"""

from __future__ import annotations

from playhead.results.responses.registry import DEFAULT_REGISTRY, ResponseRegistry, parse_response
from playhead.results.responses.types import (
    ActionResponse,
    AudioResponse,
    ContentResponse,
    ErrorResponse,
    StructuredResponse,
    action_response,
    audio_response,
    content_response,
    error_response,
)

__all__ = [
    "DEFAULT_REGISTRY",
    "ActionResponse",
    "AudioResponse",
    "ContentResponse",
    "ErrorResponse",
    "ResponseRegistry",
    "StructuredResponse",
    "action_response",
    "audio_response",
    "content_response",
    "error_response",
    "parse_response",
]
