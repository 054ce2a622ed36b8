"""The client: sessions, and the transports under them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playhead.client.call_results.call_result import CallResult
    from playhead.client.call_results.media import BytesMedia, ImageMedia, ResourceMedia
    from playhead.client.call_results.tee import NotSaved, Saved, SavingOutcome, TeeMedia
    from playhead.client.connector import Target, connect
    from playhead.client.session.elicitation import OnElicitation, Question, Reply
    from playhead.client.session.requests import OnProgress, PromptMessage, PromptResult
    from playhead.client.session.session import Session, SessionStatistics

__all__ = [
    "BytesMedia",
    "CallResult",
    "ImageMedia",
    "NotSaved",
    "OnElicitation",
    "OnProgress",
    "PromptMessage",
    "PromptResult",
    "Question",
    "Reply",
    "ResourceMedia",
    "Saved",
    "SavingOutcome",
    "Session",
    "SessionStatistics",
    "Target",
    "TeeMedia",
    "connect",
]

_NAMES: Final = {
    "call_results.call_result": ("CallResult",),
    "call_results.media": ("BytesMedia", "ImageMedia", "ResourceMedia"),
    "call_results.tee": ("NotSaved", "Saved", "SavingOutcome", "TeeMedia"),
    "connector": ("Target", "connect"),
    "session.elicitation": ("OnElicitation", "Question", "Reply"),
    "session.requests": ("OnProgress", "PromptMessage", "PromptResult"),
    "session.session": ("Session", "SessionStatistics"),
}
_HOMES: Final = {name: f"playhead.client.{home}" for home, names in _NAMES.items() for name in names}
"""Imported on first use: a server's process starts with `client.transports.server_process` alone, and the
example servers read origins with `client.session.http_range`."""


if not TYPE_CHECKING:  # a misspelt name is an error for a type checker

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
