"""A conversation with a model that has tools: its history, kept from turn to turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from playhead.agent.budgets import Budgets
from playhead.agent.calls import ToolRunner
from playhead.agent.conversation import Media, Message, Text, UserMessage
from playhead.agent.loop import OnEvent, run_turn
from playhead.agent.middleware import Around, Middleware, Mode, TurnResult
from playhead.agent.model import Model
from playhead.agent.sounds import MediaPlayer
from playhead.agent.turn import Turn
from playhead.client.hub import Hub
from playhead.errors import BusyError, UsageError

if TYPE_CHECKING:
    from playhead.agent.approvals import Approvals


class Agent:
    """A model, its tools, and what was said. The arguments are those of `run_turn`.

        async with open_hub() as hub:
            await hub.connect_all()
            await hub.discover_and_register_all_tools()
            agent = Agent(model, hub, system="You are a voice assistant.")
            print((await agent.say("Play something by Coltrane")).text)

    It owns no task and nothing to close: the model and the hub are its maker's.
    """

    def __init__(
        self,
        model: Model,
        tools: Hub | ToolRunner | None = None,
        *,
        system: str = "",
        history: Iterable[Message] = (),
        mode: Mode = "function",
        budgets: Budgets | None = None,
        approvals: Approvals | None = None,
        middlewares: Sequence[Middleware] | Around = (),
        on_event: OnEvent | None = None,
        player: MediaPlayer | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
    ) -> None:
        self.model = model
        """May be changed between turns, like the others here; the history goes on."""
        self.tools = tools
        self.system = system
        self.mode = mode
        self.budgets = budgets
        self.approvals = approvals
        self.middlewares = middlewares
        self.on_event = on_event
        self.player = player
        self.max_tokens = max_tokens
        self.temperature = temperature
        self._messages = list(history)
        self._turns = 0
        self._running: Turn | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The history. While a turn runs: as it was before it."""
        return tuple(self._messages)

    async def say(self, *parts: str | Text | Media) -> TurnResult:
        """One turn: the user says this, and the model answers.

        Raises `UsageError` where nothing is said, `BusyError` while another turn runs, and what `run_turn`
        does. Whatever ends the turn, also a cancellation, what was said and done until then stays in the
        history, every call with its result, so that the next turn can go on.
        """
        if self._running is not None:
            raise BusyError("a turn is running: wait for it, or end it with `abort`")
        if not parts:
            raise UsageError("say: expected a text or a medium at least, came nothing")
        said = UserMessage(parts=tuple(Text(text=part) if isinstance(part, str) else part for part in parts))
        turn = self._running = Turn()
        self._turns += 1
        try:
            return await run_turn(
                self.model,
                self.tools,
                (*self._messages, said),
                system=self.system,
                mode=self.mode,
                budgets=self.budgets,
                approvals=self.approvals,
                middlewares=self.middlewares,
                on_event=self.on_event,
                player=self.player,
                turn=turn,
                number=self._turns,
                max_tokens=self.max_tokens,
                temperature=self.temperature,
            )
        finally:
            self._running = None
            self._messages += [said, *turn.messages]

    def abort(self) -> None:
        """End the turn that runs, as `Turn.abort`; `say` returns with what came. No turn: does nothing."""
        if self._running is not None:
            self._running.abort()
