"""A conversation at a terminal: one task reads lines, one runs turns, one watches the player.

    a line ─ a question is open ─▶ its answer
           ├ /command ───────────▶ at once, even while the model talks
           └ anything else ──────▶ the next message

Ctrl-C ends the running turn; a second one, with no line in between, leaves.

Lines are read without a thread: the kernel edits the line and wakes us when it ends. A line-editing library
would need a thread or asyncio of its own, and would compete for the screen with streaming text. A terminal's
line holds 4,095 bytes; longer input comes through a pipe.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import trio

from playhead.agent.commands.chat_view import ChatView, player_notice, show_outcome
from playhead.agent.playback_tools import player_tools
from playhead.cli.runner import first_leaf
from playhead.cli.terminal import Terminal, clock, escape_line, seconds_of
from playhead.errors import PlayheadError, UsageError
from playhead.escaping import did_you_mean

if TYPE_CHECKING:
    from playhead.agent.agent import Agent
    from playhead.agent.commands.chat_questions import Questions
    from playhead.client.hub import Hub
    from playhead.playback import Player

_READ_BYTES: Final = 65_536


class TerminalLines:
    """The lines of the terminal behind `fd`. For one reader at a time; cancellation loses nothing."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""
        self._over = False

    async def read(self) -> str | None:
        """Return the next line without its line break; None after Ctrl-D, or once the terminal is gone."""
        while b"\n" not in self._buffer and not self._over:
            await trio.lowlevel.wait_readable(self._fd)
            try:
                data = os.read(self._fd, _READ_BYTES)
            except OSError:  # EIO: the terminal was closed
                data = b""
            self._over = not data
            self._buffer += data
        line, newline, rest = self._buffer.partition(b"\n")
        self._buffer = rest
        if not newline and not line:
            return None
        return line.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    help: str
    run: Callable[[str], Awaitable[None]]
    argument: str = ""


class SlashCommands:
    """The commands that begin with a slash. `extra` holds the conversation's own commands."""

    def __init__(
        self, hub: Hub, player: Player, terminal: Terminal, extra: Mapping[str, SlashCommand]
    ) -> None:
        self._hub = hub
        self._player = player
        self._terminal = terminal
        self._player_specs = player_tools(player).specs()
        self.known: Mapping[str, SlashCommand] = {
            "stop": SlashCommand(help="stop the music and clear the queue", run=self._stop),
            "pause": SlashCommand(help="pause the music", run=self._then_show(player.pause)),
            "resume": SlashCommand(help="resume it", run=self._then_show(player.resume)),
            "next": SlashCommand(help="skip to the next piece", run=self._then_show(player.next)),
            "previous": SlashCommand(
                help="go back to the previous piece", run=self._then_show(player.previous)
            ),
            "seek": SlashCommand(
                help="go to a time (90, 1:30) or by seconds (+10, -10)", run=self._seek, argument="TIME"
            ),
            "queue": SlashCommand(
                help="list the queue, or play its Nth piece", run=self._queue, argument="N"
            ),
            "volume": SlashCommand(
                help="show the volume, or set it (0 to 100)", run=self._volume, argument="N"
            ),
            "tools": SlashCommand(help="list the tools the model can call", run=self._tools),
            "servers": SlashCommand(help="list the servers and their status", run=self._servers),
            **extra,
            "help": SlashCommand(help="show this list", run=self._help),
        }

    async def run(self, line: str) -> None:
        """Run `line`, a command without its slash; report an unknown one."""
        name, _, argument = line.strip().partition(" ")
        command = self.known.get(name.lower())
        if command is None:
            hint = did_you_mean(name.lower(), self.known, "/help lists the commands", show="/{}".format)
            self._terminal.say(f"unknown command /{escape_line(name)}; {hint}", style="red")
            return
        await command.run(argument.strip())

    async def _stop(self, _argument: str) -> None:
        await self._player.stop()
        self._terminal.say("stopped")

    def _then_show(self, act: Callable[[], Awaitable[object] | None]) -> Callable[[str], Awaitable[None]]:
        async def run(_argument: str) -> None:
            awaitable = act()
            if awaitable is not None:
                await awaitable
            self._show_player()

        return run

    async def _seek(self, argument: str) -> None:
        sign = argument[:1] if argument[:1] in ("+", "-") else ""
        seconds = seconds_of(argument.removeprefix(sign))
        if seconds is None:
            self._refuse("a time such as 90, 1:30, +10 or -10", argument)
            return
        try:
            if sign:
                await self._player.seek_by(-seconds if sign == "-" else seconds)
            else:
                await self._player.seek(seconds)
        except PlayheadError as error:
            self._terminal.say(str(error), style="red")
            return
        self._show_player()

    async def _queue(self, argument: str) -> None:
        titles = self._player.queue_titles()
        if argument:
            number = int(argument) if argument.isascii() and argument.isdigit() else 0
            if not 0 < number <= len(titles):
                self._refuse(
                    f"a number from 1 to {len(titles)}" if titles else "items in the queue", argument
                )
                return
            await self._player.jump(number - 1)
            self._show_player()
            return
        current = self._player.snapshot().index
        first = max(0, (current or 0) - _LISTED)
        for index in range(first, min(len(titles), first + 2 * _LISTED)):
            self._terminal.line(f"{'→' if index == current else ' '} {index + 1}  {titles[index]}")
        if len(titles) > 2 * _LISTED:
            self._terminal.say(f"({len(titles)} in all)")
        if not titles:
            self._terminal.say("the queue is empty")

    async def _volume(self, argument: str) -> None:
        if argument:
            try:
                self._player.set_volume(int(argument))
            except (ValueError, UsageError):
                self._refuse("a volume from 0 to 100", argument)
                return
        self._terminal.say(f"volume {self._player.snapshot().volume}")

    async def _tools(self, _argument: str) -> None:
        tools = [(tool.model_name, tool.description or "") for tool in self._hub.tools]
        for name, description in (*tools, *((spec.name, spec.description) for spec in self._player_specs)):
            first = description.strip().partition("\n")[0]
            self._terminal.line(f"{name}  {first}".rstrip())
        if not tools:
            self._terminal.say("no tools of servers; see /servers")

    async def _servers(self, _argument: str) -> None:
        for state in self._hub.states.values():
            about = f"{state.tools} tools" if state.tools is not None else ""
            words = ", ".join(word for word in (about, escape_line(state.reason)) if word)
            self._terminal.say(
                f"{escape_line(state.name)}: {state.status}" + (f" ({words})" if words else "")
            )
        if not self._hub.states:
            self._terminal.say("no servers; --config FILE names the servers file")

    async def _help(self, _argument: str) -> None:
        for name, command in self.known.items():
            call = f"/{name} {command.argument}".rstrip()
            self._terminal.line(f"{call:<11} {command.help}")
        self._terminal.line("//text      send a message that begins with a slash")
        self._terminal.line("Ctrl-C      end the model's turn; twice to leave. Ctrl-D: leave")

    def _refuse(self, expected: str, typed: str) -> None:
        self._terminal.say(f"expected {expected}, got {escape_line(typed)!r}", style="red")

    def _show_player(self) -> None:
        now = self._player.snapshot()
        title = f" · {escape_line(now.title)}" if now.title else ""
        self._terminal.say(f"{now.status} · {clock(now.position_seconds)}{title}")


_LISTED: Final = 10
"""The number of titles shown before and after the current one in `/queue`."""
_PROMPT: Final = "> "
_WAITING: Final = 16
"""Limits the messages that may be typed while a turn runs."""


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
        self._to_say, self._messages = trio.open_memory_channel[str](_WAITING)
        self._answers, self._answered = trio.open_memory_channel[str | None](1)
        self._busy = False
        """True while a turn runs."""
        self._is_armed = False
        """True after one Ctrl-C, until the next line. Another Ctrl-C then ends the chat."""
        self._over = False
        """True once /quit was typed."""
        self._interrupted = False
        """True after the second Ctrl-C."""
        extra = {
            "new": SlashCommand(help="start a new conversation", run=self._new),
            "quit": SlashCommand(help="leave", run=self._quit),
        }
        self._commands = SlashCommands(hub, player, terminal, extra)

    async def answer(self) -> str | None:
        """Return the next line, for an open question."""
        while self._answered.statistics().current_buffer_used:
            self._answered.receive_nowait()  # the answer to a question that was cancelled as it arrived
        return await self._answered.receive()

    async def run(self, questions: Questions | None) -> None:
        """Run until Ctrl-D or /quit. After the second Ctrl-C it does not return: the command is interrupted.

        Cancellation ends a running turn on the wire. A turn's `PlayheadError` is shown; others are raised."""
        self._questions = questions
        with trio.open_signal_receiver(signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch_signals, signals, nursery.cancel_scope)
                nursery.start_soon(self._watch_player)
                nursery.start_soon(self._take_turns)
                await self._read_lines()
                nursery.cancel_scope.cancel()
        if self._interrupted:
            # The command's own interrupt handling takes over: it leaves the servers and sets the exit code.
            signal.raise_signal(signal.SIGINT)
            await trio.sleep_forever()

    # --- input -------------------------------------------------------------------------------

    async def _read_lines(self) -> None:
        self._prompt()
        while not self._over:
            line = await self._lines.read()
            self._is_armed = False
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
            self._terminal.say("message dropped: too many are waiting", style="red")
            return
        if self._busy:
            self._terminal.say("(sent after this turn)", style="dim")

    async def _new(self, _argument: str) -> None:
        self._agent.abort()
        self._forget_waiting()
        self._agent = self._new_agent()
        self._terminal.say("new conversation")

    async def _quit(self, _argument: str) -> None:
        self._over = True

    # --- turns -----------------------------------------------------------------------------------------

    async def _take_turns(self) -> None:
        async for text in self._messages:
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
            show_outcome(result, self._terminal)
        except* PlayheadError as group:
            self._view.end_line()
            self._terminal.fail(str(first_leaf(group)))

    def _forget_waiting(self) -> None:
        while self._messages.statistics().current_buffer_used:
            self._messages.receive_nowait()

    # --- signals and the player -------------------------------------------------------------

    async def _watch_signals(self, signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
        async for _ in signals:
            if self._is_armed:
                self._interrupted = True
                scope.cancel()
                return
            self._is_armed = True
            if self._busy:
                if self._questions is not None and self._questions.is_open:
                    self._terminal.prompt("\n")  # the next output belongs on a line of its own
                self._forget_waiting()
                self._agent.abort()
            else:
                self._terminal.say("\npress Ctrl-C again to leave, or use Ctrl-D or /quit")
                self._prompt()

    async def _watch_player(self) -> None:
        """Report audio that waits or fails between turns. During a turn, its events report this."""
        with self._player.events() as events:
            async for event in events:
                if not self._busy and (notice := player_notice(event)) is not None:
                    self._terminal.say(f"\n{notice[0]}", style=notice[1])
                    self._prompt()

    def _prompt(self) -> None:
        is_asking = self._questions is not None and self._questions.is_open
        if not self._busy and not is_asking and not self._messages.statistics().current_buffer_used:
            self._terminal.prompt(_PROMPT)
