"""The tool loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from playhead.agent.budgets import Budgets
from playhead.agent.calls import ToolRunner
from playhead.agent.conversation import Message
from playhead.agent.events import Event
from playhead.agent.middleware import Around, Middleware, Mode, TurnResult
from playhead.agent.model import Model
from playhead.agent.turn import Turn

if TYPE_CHECKING:
    from playhead.agent.approvals import Approvals
    from playhead.client.hub import Hub
    from playhead.playback import Player

OnEvent = Callable[[Event], Awaitable[None] | None]


async def run_turn(
    model: Model,
    tools: Hub | ToolRunner | None,
    messages: Sequence[Message],
    *,
    system: str = "",
    mode: Mode = "function",
    budgets: Budgets | None = None,
    approvals: Approvals | None = None,
    middlewares: Sequence[Middleware] | Around = (),
    on_event: OnEvent | None = None,
    player: Player | None = None,
    turn: Turn | None = None,
    number: int = 1,
) -> TurnResult:
    """One turn: the model answers `messages`, calls tools, hears about them, and goes on until it is done."""
    raise NotImplementedError
