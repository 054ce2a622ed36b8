"""A conversation at a terminal: one task reads lines, one takes turns, one listens to the player.

    a line ─ a question is open ─▶ its answer
           ├ /command ───────────▶ at once, also while the model talks
           └ anything else ──────▶ what is said next

Ctrl-C ends the turn that runs; a second one, with no line between, leaves.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import trio

from playhead.cli.chat_commands import Command, Commands
from playhead.cli.chat_lines import Lines
from playhead.cli.chat_turns import tell_outcome
from playhead.cli.chat_view import View
from playhead.cli.runner import first_leaf
from playhead.cli.terminal import Terminal
from playhead.errors import PlayheadError

if TYPE_CHECKING:
    from playhead.agent.agent import Agent
    from playhead.cli.chat_questions import Questions
    from playhead.client.hub import Hub
    from playhead.playback import Player

_PROMPT: Final = "> "
_WAITING: Final = 16
"""Messages that were typed while a turn runs."""


class Conversation:
    """`new_agent` begins a conversation anew. `questions` reads its answers from `answer`."""

    def __init__(
        self,
        new_agent: Callable[[], Agent],
        *,
        hub: Hub,
        player: Player,
        terminal: Terminal,
        view: View,
        lines: Lines,
    ) -> None:
        self._new_agent = new_agent
        self._agent = new_agent()
        self._player = player
        self._terminal = terminal
        self._view = view
        self._lines = lines
        self._questions: Questions | None = None
        self._to_say, self._said = trio.open_memory_channel[str](_WAITING)
        self._answers, self._answered = trio.open_memory_channel[str | None](1)
        self._busy = False
        self._armed = False
        self._over = False
        """/quit was said."""
        self._interrupted = False
        extra = {
            "new": Command(help="begin a new conversation", run=self._new),
            "quit": Command(help="leave", run=self._quit),
        }
        self._commands = Commands(hub, player, terminal, extra)

    async def answer(self) -> str | None:
        """The next line, for a question that is open."""
        while self._answered.statistics().current_buffer_used:
            self._answered.receive_nowait()  # of a question that was cancelled while its answer came
        return await self._answered.receive()

    async def run(self, questions: Questions | None) -> None:
        """Until Ctrl-D or /quit. Left by Ctrl-C: does not return, the command is interrupted.

        Cancelled: a turn that runs ends on the wire. Raises what is no `PlayheadError` of a turn's."""
        self._questions = questions
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_signals, signals, nursery.cancel_scope)
                nursery.start_soon(self._watch_player)
                nursery.start_soon(self._take_turns)
                await self._read_lines()
                nursery.cancel_scope.cancel()
        if self._interrupted:
            # The command's own way to end takes over: servers are left, and the exit code says it.
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    # --- what is typed -------------------------------------------------------------------------------

    async def _read_lines(self) -> None:
        self._prompt()
        while not self._over:
            line = await self._lines.read()
            self._armed = False
            if self._questions is not None and self._questions.is_open:
                self._questions.is_open = False
                self._answers.send_nowait(line)
                if line is not None:
                    continue
            if line is None:
                return
            await self._take(line)

    async def _take(self, line: str) -> None:
        text = line.strip()
        if text.startswith("/") and not text.startswith("//"):
            if self._busy:
                self._view.end_line()
            await self._commands.run(text[1:])
            if not self._over:
                self._prompt()
        elif text:
            self._put(text.removeprefix("/") if text.startswith("//") else text)
        else:
            self._prompt()

    def _put(self, text: str) -> None:
        try:
            self._to_say.send_nowait(text)
        except trio.WouldBlock:
            self._terminal.say("that is not said: too much is waiting to be", style="red")
            return
        if self._busy:
            self._terminal.say("(said after this turn)", style="dim")

    async def _new(self, _argument: str) -> None:
        self._agent.abort()
        self._forget_waiting()
        self._agent = self._new_agent()
        self._terminal.say("a new conversation")

    async def _quit(self, _argument: str) -> None:
        self._over = True

    # --- turns -----------------------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        async for text in self._said:
            self._busy = True
            try:
                await self._turn(text)
            finally:
                self._busy = False
            self._prompt()

    async def _turn(self, text: str) -> None:
        try:
            result = await self._agent.say(text)
            self._view.end_line()
            tell_outcome(result, self._terminal)
        except* PlayheadError as group:
            self._view.end_line()
            self._terminal.fail(str(first_leaf(group)))

    def _forget_waiting(self) -> None:
        while self._said.statistics().current_buffer_used:
            self._said.receive_nowait()

    # --- what happens meanwhile --------------------------------------------------------------------------

    async def _watch_signals(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for _ in signals:
            if self._armed:
                self._interrupted = True
                scope.cancel()
                return
            self._armed = True
            if self._busy:
                if self._questions is not None and self._questions.is_open:
                    self._terminal.prompt("\n")  # what comes now is no part of the question's line
                self._forget_waiting()
                self._agent.abort()
            else:
                self._terminal.say("\nCtrl-C once more, Ctrl-D or /quit leaves")
                self._prompt()

    async def _watch_player(self) -> None:
        """Tell of sounds that fail after their turn; within it, the turn's own events do."""
        from playhead.playback.state import ItemError

        with self._player.events() as events:
            async for event in events:
                if isinstance(event, ItemError) and not self._busy:
                    self._terminal.say(f"\n✗ {event.title or 'sound'}: {event.error}", style="red")
                    self._prompt()

    def _prompt(self) -> None:
        asked = self._questions is not None and self._questions.is_open
        if not self._busy and not asked and not self._said.statistics().current_buffer_used:
            self._terminal.prompt(_PROMPT)
