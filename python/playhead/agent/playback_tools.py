"""The tools of a player, as local tools next to the servers' tools.

Use them as in `agent = Agent(model, [player_tools(player), hub], player=player)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from playhead.agent.approvals import ApprovalRequest, ToolHints
from playhead.agent.conversation import ToolCall, ToolResult, ToolSpec
from playhead.agent.tool_runner import GO_ON, CallOutcome, unknown
from playhead.playback.player_tools import PLAYER_TOOLS
from playhead.results.plan import TurnDecision

if TYPE_CHECKING:
    from playhead.playback import Player

PLAYER: Final = "player"
"""The player's name as a server in approval rules: `server = "player", tool = "stop"`."""
SILENCE: Final = TurnDecision(decision="stop", reason="the action response is terminal")


def player_tools(player: Player) -> PlayerTools:
    """Return the tools `pause`, `resume`, `stop`, `next`, `previous`, `seek`, `go_live`, `set_volume`,
    `what_is_playing` and `play_from_queue` of `player`, for `Agent(model, [player_tools(player), hub])`.

    A call never raises: an invalid argument, an unseekable item and a closed player are error results for the
    model. The calls of one reply run one at a time, in their order. Approval rules see them as tools of
    the server `player`. Cancellation has the same effect as on the player's own methods.
    """
    return PlayerTools(player)


class PlayerTools:
    """A `ToolRunner` with the tools of one player. `player_tools` makes it."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self._lock = trio.Lock()

    def specs(self) -> tuple[ToolSpec, ...]:
        return _SPECS

    def approval_request(self, call: ToolCall) -> ApprovalRequest | None:
        tool = PLAYER_TOOLS.get(call.name)
        if tool is None:
            return None
        return ApprovalRequest(
            server=PLAYER,
            tool=call.name,
            description=tool.description,
            arguments=call.arguments or {},
            hints=ToolHints(read_only=call.name == "what_is_playing", destructive=False, open_world=False),
        )

    async def call(self, call: ToolCall, *, on_progress: object, on_media: object) -> CallOutcome:
        """See `ToolRunner.call`."""
        tool = PLAYER_TOOLS.get(call.name)
        if tool is None:
            return unknown(call, PLAYER_TOOLS)
        async with self._lock:  # the lock is fair, so calls run in their order: stop, then play
            response = await tool.call(self._player, call.arguments or {})
        texts = (block.text for block in response.content() if block.type == "text")
        return CallOutcome(
            result=ToolResult(
                call_id=call.id,
                name=call.name,
                text="\n".join(texts),
                status="done" if response.success else "error",
            ),
            turn=SILENCE if response.stops_model else GO_ON,
            response=response,
        )


_SPECS: Final = tuple(
    ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters)
    for tool in PLAYER_TOOLS.values()
)
