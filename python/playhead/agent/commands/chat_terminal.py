"""A conversation at a terminal: one task reads lines, one runs turns, one watches the player.

    a line ─ a question is open ─▶ its answer
           ├ /command ───────────▶ at once, even while the model talks
           └ anything else ──────▶ the next message

Ctrl-C ends the running turn; a second one, with no line in between, leaves.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

import trio

from playhead.agent.commands.chat_view import ChatView, player_notice, show_outcome
from playhead.agent.commands.slash_commands import SlashCommand, SlashCommands
from playhead.cli.runner import first_leaf
from playhead.cli.terminal import Terminal
from playhead.errors import PlayheadError

if TYPE_CHECKING:
    from playhead.agent.agent import Agent
    from playhead.agent.commands.chat_questions import Questions
    from playhead.agent.commands.terminal_lines import TerminalLines
    from playhead.client.hub import Hub
    from playhead.playback import Player

_PROMPT: Final = "> "
_MAX_WAITING_MESSAGES: Final = 16
"""Limits the messages that a user may type while a turn runs."""


class TerminalChat:
    """A chat at the terminal. `new_agent` starts a conversation; `Questions` reads answers with `answer`."""

    def __init__(
        self,
        new_agent: Callable[[], Agent],
        *,
        hub: Hub,
        player: Player,
        terminal: Terminal,
        view: ChatView,
        lines: TerminalLines,
    ) -> None:
        self._new_agent = new_agent
        self._agent = new_agent()
        self._player = player
        self._terminal = terminal
        self._view = view
        self._lines = lines
        self._questions: Questions | None = None
        self._message_sender, self._messages = trio.open_memory_channel[str](_MAX_WAITING_MESSAGES)
        self._answers, self._answered = trio.open_memory_channel[str | None](1)
        self._is_busy = False
        """True while a turn runs."""
        self._was_interrupted_once = False
        """True from one Ctrl-C to the next line. Another Ctrl-C then ends the chat."""
        self._has_quit = False
        """True once /quit was typed."""
        self._is_interrupted = False
        """True after the second Ctrl-C."""
        extra = {
            "new": SlashCommand(help="start a new conversation", run=self._new),
            "quit": SlashCommand(help="leave", run=self._quit),
        }
        self._commands = SlashCommands(hub, player, terminal, extra)

    async def answer(self) -> str | None:
        """Return the next line, for an open question."""
        while self._answered.statistics().current_buffer_used:
            self._answered.receive_nowait()  # an answer that arrived just as its question was cancelled
        return await self._answered.receive()

    async def run(self, questions: Questions | None) -> None:
        """Run until Ctrl-D or /quit. After the second Ctrl-C it does not return: the command is interrupted.

        Cancellation ends a running turn on the wire. A turn's `PlayheadError` is shown; others are raised.
        """
        self._questions = questions
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_signals, signals, nursery.cancel_scope)
                nursery.start_soon(self._watch_player)
                nursery.start_soon(self._take_turns)
                await self._read_lines()
                nursery.cancel_scope.cancel()
        if self._is_interrupted:
            # The command's own handling of interrupts closes the servers and sets the exit code.
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    # --- input -------------------------------------------------------------------------------

    async def _read_lines(self) -> None:
        self._show_prompt()
        while not self._has_quit:
            line = await self._lines.read()
            self._was_interrupted_once = False
            if self._questions is not None and self._questions.is_open:
                self._questions.is_open = False
                self._answers.send_nowait(line)
                if line is not None:
                    continue
            if line is None:
                return
            await self._take_line(line)

    async def _take_line(self, line: str) -> None:
        """Run a line as a command, or store it as the next message."""
        text = line.strip()
        if text.startswith("/") and not text.startswith("//"):
            if self._is_busy:
                self._view.end_line()
            await self._commands.run(text[1:])
            if not self._has_quit:
                self._show_prompt()
        elif text:
            self._queue_message(text.removeprefix("/") if text.startswith("//") else text)
        else:
            self._show_prompt()

    def _queue_message(self, text: str) -> None:
        try:
            self._message_sender.send_nowait(text)
        except trio.WouldBlock:
            self._terminal.say("message dropped: too many are waiting", style="red")
            return
        if self._is_busy:
            self._terminal.say("(sent after this turn)", style="dim")

    async def _new(self, _argument: str) -> None:
        self._agent.abort()
        self._drop_waiting_messages()
        self._agent = self._new_agent()
        self._terminal.say("new conversation")

    async def _quit(self, _argument: str) -> None:
        self._has_quit = True

    # --- turns -----------------------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        async for text in self._messages:
            self._is_busy = True
            try:
                await self._run_turn(text)
            finally:
                self._is_busy = False
            self._show_prompt()

    async def _run_turn(self, text: str) -> None:
        try:
            result = await self._agent.say(text)
            self._view.end_line()
            show_outcome(result, self._terminal)
        except* PlayheadError as group:
            self._view.end_line()
            self._terminal.fail(str(first_leaf(group)))

    def _drop_waiting_messages(self) -> None:
        while self._messages.statistics().current_buffer_used:
            self._messages.receive_nowait()

    # --- signals and the player -------------------------------------------------------------

    async def _watch_signals(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        """End the turn at the first Ctrl-C, and the chat at a second one with no line in between."""
        async for _ in signals:
            if self._was_interrupted_once:
                self._is_interrupted = True
                scope.cancel()
                return
            self._was_interrupted_once = True
            if self._is_busy:
                if self._questions is not None and self._questions.is_open:
                    self._terminal.prompt("\n")  # the next output must begin on a new line
                self._drop_waiting_messages()
                self._agent.abort()
            else:
                self._terminal.say("\npress Ctrl-C again to leave, or use Ctrl-D or /quit")
                self._show_prompt()

    async def _watch_player(self) -> None:
        """Report audio that waits or fails between turns. During a turn, its events report this."""
        with self._player.events() as events:
            async for event in events:
                if not self._is_busy and (notice := player_notice(event)) is not None:
                    self._terminal.say(f"\n{notice[0]}", style=notice[1])
                    self._show_prompt()

    def _show_prompt(self) -> None:
        is_asking = self._questions is not None and self._questions.is_open
        if not self._is_busy and not is_asking and not self._messages.statistics().current_buffer_used:
            self._terminal.prompt(_PROMPT)
