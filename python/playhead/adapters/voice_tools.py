"""The tools of servers and of the player, for the model of a voice stack.

    the model's call ──▶ VoiceTools.call ──▶ text and turn ──▶ the model
                              └──▶ media ──▶ player
    barge-in ──▶ VoiceTools.interrupt ──▶ a note: how much was heard ──▶ the model's context

`playhead.adapters.pipecat` and `.livekit` connect a `VoiceTools` to their stacks. It runs under trio.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import trio

from playhead.errors import ConnectError, PlayheadError
from playhead.playback.player_tools import PLAYER_TOOLS
from playhead.playback.state import Status
from playhead.stream.source import Playable

if TYPE_CHECKING:
    from playhead.client.hub import Hub
    from playhead.playback import Player

OnInterruption = Literal["stop", "duck"]
_ACTIVE: Final = frozenset({Status.BUFFERING, Status.PLAYING, Status.PAUSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceTool:
    """The description of one tool for a model."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON Schema of the arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceAnswer:
    """The result of a call."""

    text: str
    """The text for the model, never empty and never base64."""
    is_error: bool
    needs_reply: bool
    """False if the model should say nothing, because the listener hears the effect."""


class VoiceTools:
    """The tools of `hub` and of `player`, and the reaction of the player to an interruption by the user.

    `on_interruption` "stop" ends the audio; "duck" lowers it until `listened` is called.
    """

    def __init__(self, hub: Hub, player: Player, *, on_interruption: OnInterruption = "stop") -> None:
        self._hub = hub
        self._player = player
        self._on_interruption = on_interruption
        self._turn = trio.Lock()  # fair, so the calls of one reply act on the player in their order

    async def connect(self) -> tuple[VoiceTool, ...]:
        """Connect to the hub's servers, and return `tools`. Raises `ConnectError` if no server is connected;
        `Hub.states` has those that failed."""
        states = await self._hub.connect_all()
        if states and not any(state.status == "connected" for state in states):
            raise ConnectError("; ".join(f"{state.name}: {state.reason}" for state in states))
        await self._hub.discover_and_register_all_tools()
        return self.tools()

    def tools(self) -> tuple[VoiceTool, ...]:
        """Return the hub's known tools under their model names, then the player's. A tool of the hub hides
        one of the player with the same name."""
        tools = {
            tool.model_name: VoiceTool(
                name=tool.model_name,
                description=tool.tool.description or tool.tool.name,
                parameters=tool.tool.input_schema,
            )
            for tool in self._hub.tools
        }
        for name, tool in PLAYER_TOOLS.items():
            tools.setdefault(
                name, VoiceTool(name=name, description=tool.description, parameters=tool.parameters)
            )
        return tuple(tools.values())

    async def call(self, name: str, arguments: Mapping[str, Any]) -> VoiceAnswer:
        """Call a tool. The media of its result replaces what plays, as soon as the call's progress names it.

        Failures are answers with `is_error`. If cancelled, it cancels the call at the server, and nothing of
        the result plays.
        """
        is_server_tool = any(tool.model_name == name for tool in self._hub.tools)
        if name in PLAYER_TOOLS and not is_server_tool:
            return await self._call_player_tool(name, arguments)
        play = self._player.play

        async def begin(media: Playable | Iterable[Playable]) -> None:
            nonlocal play
            async with self._turn:
                await play(media)
            play = self._player.enqueue

        try:
            result = await self._hub.call_tool(name, arguments, on_media=begin)
            if result.late_media:
                await begin(result.late_media)
        except PlayheadError as error:
            return VoiceAnswer(text=str(error), is_error=True, needs_reply=True)
        return VoiceAnswer(
            text=result.text_for_model,
            is_error=result.is_error,
            needs_reply=result.turn.decision == "continue",
        )

    async def _call_player_tool(self, name: str, arguments: Mapping[str, Any]) -> VoiceAnswer:
        async with self._turn:
            response = await PLAYER_TOOLS[name].call(self._player, arguments)
        texts = (block.text for block in response.content() if block.type == "text")
        return VoiceAnswer(
            text="\n".join(texts), is_error=not response.success, needs_reply=not response.stops_model
        )

    async def interrupt(self) -> str | None:
        """Stop or duck the audio, because the user speaks. Return a note for the model's context that says
        how much was heard; None if no audio plays."""
        now = self._player.snapshot()
        if now.status not in _ACTIVE:
            return None
        if self._on_interruption == "duck":
            self._player.duck()
            return f"[The user interrupted; music: {now.heard_seconds:.1f} s heard, it plays on quietly]"
        await self._player.stop()
        heard_seconds = self._player.snapshot().heard_seconds
        return f"[The user interrupted; the music was stopped after {heard_seconds:.1f} s heard]"

    def listened(self) -> None:
        """Restore the volume of ducked audio, because the user has finished speaking."""
        self._player.unduck()
