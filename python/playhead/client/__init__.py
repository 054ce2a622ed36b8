"""The client: sessions over the MCP SDK, and the transports under them."""

from __future__ import annotations

from playhead.client.call_results.call_result import CallResult
from playhead.client.call_results.media import BytesMedia, ImageMedia, ResourceMedia
from playhead.client.call_results.tee import NotSaved, Saved, SavingOutcome, TeeMedia
from playhead.client.connect import Target, connect
from playhead.client.session.elicitation import OnElicitation, Question, Reply
from playhead.client.session.requests import PromptMessage, PromptResult
from playhead.client.session.session import Session, SessionStatistics

__all__ = [
    "BytesMedia",
    "CallResult",
    "ImageMedia",
    "NotSaved",
    "OnElicitation",
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
