"""The client: sessions, and the transports under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from playhead.lazy_names import lazy_names

if TYPE_CHECKING:
    from playhead.client.call_results.call_result import CallResult
    from playhead.client.call_results.media import BytesMedia, ImageMedia, ResourceMedia
    from playhead.client.call_results.spool import NotSaved, Saved, SavingOutcome
    from playhead.client.call_results.tee import TeeMedia
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

_MODULES: Final = {
    "call_results.call_result": ("CallResult",),
    "call_results.media": ("BytesMedia", "ImageMedia", "ResourceMedia"),
    "call_results.spool": ("NotSaved", "Saved", "SavingOutcome"),
    "call_results.tee": ("TeeMedia",),
    "connector": ("Target", "connect"),
    "session.elicitation": ("OnElicitation", "Question", "Reply"),
    "session.requests": ("OnProgress", "PromptMessage", "PromptResult"),
    "session.session": ("Session", "SessionStatistics"),
}
"""Imported on first use: a server's process starts with `client.transports.server_process` alone, and the
example servers read origins with `client.session.http_range`."""


if not TYPE_CHECKING:  # a misspelt name is an error for a type checker
    __getattr__ = lazy_names(__name__, _MODULES)
