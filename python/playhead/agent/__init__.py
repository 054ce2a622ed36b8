"""The tool loop: a model streams, calls tools, receives their results and continues, within budgets.

    agent = Agent(model, hub, on_event=print)
    result = await agent.say("Play something by Coltrane")

Most programs need only the names here; `agent.events` has the events, `agent.conversation` the messages,
`agent.models` the providers, `agent.recording` recordings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playhead.agent.agent import Agent, run_turn
    from playhead.agent.approvals import Approval, ApprovalRequest, Approvals
    from playhead.agent.budgets import Budgets
    from playhead.agent.middleware import (
        Context,
        Hooks,
        Middleware,
        MiddlewareContext,
        TurnHandle,
        TurnParams,
        TurnResult,
    )
    from playhead.agent.playback_tools import PlayerTools, player_tools
    from playhead.agent.tool_runner import CallOutcome, HubRunner, ToolRunner

__all__ = [
    "Agent",
    "Approval",
    "ApprovalRequest",
    "Approvals",
    "Budgets",
    "CallOutcome",
    "Context",
    "Hooks",
    "HubRunner",
    "Middleware",
    "MiddlewareContext",
    "PlayerTools",
    "ToolRunner",
    "TurnHandle",
    "TurnParams",
    "TurnResult",
    "player_tools",
    "run_turn",
]

_HOMES: Final = {
    "Agent": "playhead.agent.agent",
    "Approval": "playhead.agent.approvals",
    "ApprovalRequest": "playhead.agent.approvals",
    "Approvals": "playhead.agent.approvals",
    "Budgets": "playhead.agent.budgets",
    "CallOutcome": "playhead.agent.tool_runner",
    "Context": "playhead.agent.middleware",
    "Hooks": "playhead.agent.middleware",
    "HubRunner": "playhead.agent.tool_runner",
    "Middleware": "playhead.agent.middleware",
    "MiddlewareContext": "playhead.agent.middleware",
    "PlayerTools": "playhead.agent.playback_tools",
    "ToolRunner": "playhead.agent.tool_runner",
    "TurnHandle": "playhead.agent.middleware",
    "TurnParams": "playhead.agent.middleware",
    "TurnResult": "playhead.agent.middleware",
    "player_tools": "playhead.agent.playback_tools",
    "run_turn": "playhead.agent.agent",
}
"""Imported on first access, as in `playhead`."""


if not TYPE_CHECKING:  # a misspelt name is an error for a type checker

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
