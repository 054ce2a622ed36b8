"""The client: sessions over the MCP SDK, and the transports under them."""

from __future__ import annotations

from playhead.client.calls import CallResult
from playhead.client.connect import Target, connect
from playhead.client.elicitation import OnElicitation, Question, Reply
from playhead.client.media import BytesMedia, ImageMedia, ResourceMedia
from playhead.client.prompts import PromptMessage, PromptResult
from playhead.client.session import Session
from playhead.client.spool import NotSaved, Saved, SavingOutcome
from playhead.client.statistics import SessionStatistics
from playhead.client.tee import TeeMedia

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
