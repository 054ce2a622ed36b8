"""The tool loop: a model streams, calls tools, hears about their results, and goes on, within bounds.

    agent = Agent(model, hub, on_event=print)
    result = await agent.say("Play something by Coltrane")

The names here are the ones that most programs need; `agent.events` has the events, `agent.conversation` the
messages, `agent.providers` the models, `agent.record` recordings.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playhead.agent.agent import Agent
    from playhead.agent.approvals import Approval, ApprovalRequest, Approvals
    from playhead.agent.budgets import Budgets
    from playhead.agent.calls import CallOutcome, HubRunner, ToolRunner
    from playhead.agent.loop import run_turn
    from playhead.agent.middleware import Api, Around, Context, Middleware, TurnParams, TurnResult
    from playhead.agent.turn import Turn

__all__ = [
    "Agent",
    "Api",
    "Approval",
    "ApprovalRequest",
    "Approvals",
    "Around",
    "Budgets",
    "CallOutcome",
    "Context",
    "HubRunner",
    "Middleware",
    "ToolRunner",
    "Turn",
    "TurnParams",
    "TurnResult",
    "run_turn",
]

_HOMES: Final = {
    "Agent": "playhead.agent.agent",
    "Api": "playhead.agent.middleware",
    "Approval": "playhead.agent.approvals",
    "ApprovalRequest": "playhead.agent.approvals",
    "Approvals": "playhead.agent.approvals",
    "Around": "playhead.agent.middleware",
    "Budgets": "playhead.agent.budgets",
    "CallOutcome": "playhead.agent.calls",
    "Context": "playhead.agent.middleware",
    "HubRunner": "playhead.agent.calls",
    "Middleware": "playhead.agent.middleware",
    "ToolRunner": "playhead.agent.calls",
    "Turn": "playhead.agent.turn",
    "TurnParams": "playhead.agent.middleware",
    "TurnResult": "playhead.agent.middleware",
    "run_turn": "playhead.agent.loop",
}
"""Imported when first asked for, as in `playhead`."""


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
