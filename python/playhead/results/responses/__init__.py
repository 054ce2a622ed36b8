"""Structured responses: what a tool may answer as JSON in a text block, to steer the turn or bring sound.

`base` has what every response has, `types` the four, `constructors` makes them, `wire` writes them, `reading`
reads them, and `registry` says which types there are.
"""

from __future__ import annotations

from playhead.results.responses.base import StructuredResponse
from playhead.results.responses.constructors import (
    action_response,
    audio_response,
    content_response,
    error_response,
)
from playhead.results.responses.reading import parse_response
from playhead.results.responses.registry import DEFAULT_REGISTRY, ResponseRegistry
from playhead.results.responses.types import ActionResponse, AudioResponse, ContentResponse, ErrorResponse

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
