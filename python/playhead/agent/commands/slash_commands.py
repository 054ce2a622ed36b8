"""`SlashCommands`: the commands of a chat that begin with a slash, such as `/pause`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from playhead.agent.playback_tools import player_tools
from playhead.cli.terminal import Terminal, clock, escape_line, seconds_of
from playhead.errors import PlayheadError, UsageError
from playhead.escaping import did_you_mean

if TYPE_CHECKING:
    from playhead.client.hub import Hub
    from playhead.playback import Player

_MAX_TITLES: Final = 10
"""The number of titles shown before and after the current one in `/queue`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    help: str
    run: Callable[[str], Awaitable[None]]
    argument: str = ""


class SlashCommands:
    """The commands that begin with a slash. `extra` has further ones, such as those of the conversation."""

    def __init__(
        self, hub: Hub, player: Player, terminal: Terminal, extra: Mapping[str, SlashCommand]
    ) -> None:
        self._hub = hub
        self._player = player
        self._terminal = terminal
        self._player_specs = player_tools(player).specs()
        self.known: Mapping[str, SlashCommand] = {
            "stop": SlashCommand(help="stop the music and clear the queue", run=self._stop),
            "pause": SlashCommand(help="pause the music", run=self._command_of(player.pause)),
            "resume": SlashCommand(help="resume it", run=self._command_of(player.resume)),
            "next": SlashCommand(help="skip to the next piece", run=self._command_of(player.next)),
            "previous": SlashCommand(
                help="go back to the previous piece", run=self._command_of(player.previous)
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

    def _command_of(self, act: Callable[[], Awaitable[object] | None]) -> Callable[[str], Awaitable[None]]:
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
        first = max(0, (current or 0) - _MAX_TITLES)
        for index in range(first, min(len(titles), first + 2 * _MAX_TITLES)):
            self._terminal.line(f"{'→' if index == current else ' '} {index + 1}  {titles[index]}")
        if len(titles) > 2 * _MAX_TITLES:
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
