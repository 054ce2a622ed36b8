"""The commands that begin with a slash. They act at once, also while the model talks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

from playhead.cli.progress import clock
from playhead.cli.terminal import Terminal, escape_line
from playhead.errors import UsageError

if TYPE_CHECKING:
    from playhead.client.hub import Hub
    from playhead.playback import Player


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    help: str
    run: Callable[[str], Awaitable[None]]
    argument: str = ""


class Commands:
    """`extra` are those of the conversation itself."""

    def __init__(self, hub: Hub, player: Player, terminal: Terminal, extra: Mapping[str, Command]) -> None:
        self._hub = hub
        self._player = player
        self._terminal = terminal
        self.known: Mapping[str, Command] = MappingProxyType(
            {
                "stop": Command(help="stop the music, and forget what was to come", run=self._stop),
                "pause": Command(help="hold the music", run=self._pause),
                "resume": Command(help="go on with it", run=self._resume),
                "next": Command(help="go to the next piece", run=self._next),
                "volume": Command(help="say it, or set it (0 to 100)", run=self._volume, argument="N"),
                "tools": Command(help="the tools that the model is offered", run=self._tools),
                "servers": Command(help="the servers, and how they are", run=self._servers),
                **extra,
                "help": Command(help="this list", run=self._help),
            }
        )

    async def run(self, line: str) -> None:
        """Do what `line`, without its slash, says; what is wrong with it is said."""
        name, _, argument = line.strip().partition(" ")
        command = self.known.get(name.lower())
        if command is None:
            near = get_close_matches(name.lower(), self.known, n=1)
            hint = f"did you mean /{near[0]}?" if near else "/help lists them"
            self._terminal.say(f"there is no command /{escape_line(name)}; {hint}", style="red")
            return
        await command.run(argument.strip())

    async def _stop(self, _argument: str) -> None:
        await self._player.stop()
        self._terminal.say("stopped")

    async def _pause(self, _argument: str) -> None:
        self._player.pause()
        self._tell()

    async def _resume(self, _argument: str) -> None:
        self._player.resume()
        self._tell()

    async def _next(self, _argument: str) -> None:
        await self._player.next()
        self._tell()

    async def _volume(self, argument: str) -> None:
        if argument:
            try:
                self._player.set_volume(int(argument))
            except (ValueError, UsageError):
                said = f"expected a volume from 0 to 100, came {escape_line(argument)!r}"
                self._terminal.say(said, style="red")
                return
        self._terminal.say(f"volume {self._player.snapshot().volume}")

    async def _tools(self, _argument: str) -> None:
        for tool in self._hub.tools:
            first = (tool.description or "").strip().partition("\n")[0]
            self._terminal.line(f"{tool.model_name}  {first}".rstrip())
        if not self._hub.tools:
            self._terminal.say("no tools; /servers says why")

    async def _servers(self, _argument: str) -> None:
        for state in self._hub.states.values():
            about = f"{state.tools} tools" if state.tools is not None else ""
            words = ", ".join(word for word in (about, escape_line(state.reason)) if word)
            self._terminal.say(
                f"{escape_line(state.name)}: {state.status}" + (f" ({words})" if words else "")
            )
        if not self._hub.states:
            self._terminal.say("no servers; --config FILE names the file that has them")

    async def _help(self, _argument: str) -> None:
        for name, command in self.known.items():
            call = f"/{name} {command.argument}".rstrip()
            self._terminal.line(f"{call:<11} {command.help}")
        self._terminal.line("//text      say something that begins with a slash")
        self._terminal.line("Ctrl-C      end the model's turn; twice: leave. Ctrl-D: leave")

    def _tell(self) -> None:
        now = self._player.snapshot()
        title = f" · {escape_line(now.title)}" if now.title else ""
        self._terminal.say(f"{now.status} · {clock(now.position_seconds)}{title}")
