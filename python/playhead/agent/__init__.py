"""The tool loop: a model streams, calls tools, receives their results and continues, within budgets.

    agent = Agent(model, hub, on_event=print)
    result = await agent.say("Play something by Coltrane")

Most programs need only the names here; `agent.events` has the events, `agent.conversation` the messages,
`agent.models` the providers, `agent.recording` recordings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from playhead.lazy_names import lazy_names

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

_MODULES: Final = {
    "agent": ("Agent", "run_turn"),
    "approvals": ("Approval", "ApprovalRequest", "Approvals"),
    "budgets": ("Budgets",),
    "middleware": (
        "Context",
        "Hooks",
        "Middleware",
        "MiddlewareContext",
        "TurnHandle",
        "TurnParams",
        "TurnResult",
    ),
    "playback_tools": ("PlayerTools", "player_tools"),
    "tool_runner": ("CallOutcome", "HubRunner", "ToolRunner"),
}
"""The public names of each module. A name is imported on first access, as in `playhead`."""


if not TYPE_CHECKING:  # a misspelt name is an error for a type checker
    __getattr__ = lazy_names(__name__, _MODULES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
