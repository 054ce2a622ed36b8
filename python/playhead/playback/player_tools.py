"""Tools with which a model controls the player, through a tool loop or an MCP server.

An action answers with a structured response that is terminal: the listener hears the effect, so the turn ends
and the model adds nothing. A mistake (an impossible seek, an item that isn't in the queue) and a
question (`what_is_playing`) go back to the model.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from playhead.errors import PlayheadError, SeekError, UsageError
from playhead.escaping import shortened
from playhead.results.responses import (
    StructuredResponse,
    action_response,
    content_response,
    error_response,
)

if TYPE_CHECKING:
    from playhead.playback.player import Player
    from playhead.playback.state import PlayerState

LISTED_TITLES: Final = 20
"""Titles that `what_is_playing` lists on each side of the current one: an evening's queue, and far from the
limit of a result."""
TITLE_CHARS: Final = 200
"""Limits a title for the model, because a server may send a title of any length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayerTool:
    """One tool, for any player."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """The JSON Schema of its arguments."""
    run: Callable[[Player, _Arguments], Awaitable[StructuredResponse]]

    async def call(self, player: Player, arguments: Mapping[str, Any]) -> StructuredResponse:
        """Run the tool. An invalid argument, an unseekable item and a closed player are error responses for
        the model. Make the calls of one reply one at a time, in their order. Cancelled: as the player's own
        methods.
        """
        try:
            return await self.run(player, _Arguments(self.name, arguments))
        except PlayheadError as error:
            return error_response(self.name, str(error))


class _Arguments:
    """A call's arguments, read by type. Each getter raises `UsageError` for another value."""

    def __init__(self, tool: str, values: Mapping[str, Any]) -> None:
        self._tool = tool
        self._values = values

    def only_present(self, *names: str) -> str:
        """Return the name of the only one of these arguments that is present."""
        keys = [name for name in names if self._values.get(name) is not None]
        if len(keys) != 1:
            raise UsageError(f"{self._tool}: expected either {' or '.join(names)}, got {len(keys)} of them")
        return keys[0]

    def number(self, name: str) -> float:
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise UsageError(f"{self._tool}: {name}: expected a number of seconds, got {_described(value)}")
        return value

    def integer(self, name: str, *, least: int, most: int) -> int:
        value = self._values.get(name)
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # some models write 30.0
        if type(value) is not int or not least <= value <= most:
            raise UsageError(
                f"{self._tool}: {name}: expected an integer from {least} to {most}, got {_described(value)}"
            )
        return value

    def string(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or not value.strip():
            raise UsageError(f"{self._tool}: {name}: expected a string, got {_described(value)}")
        return value


def _described(value: object) -> str:
    return "nothing" if value is None else repr(value)[:TITLE_CHARS]


async def _pause(player: Player, _arguments: _Arguments) -> StructuredResponse:
    now = _current(player)
    player.pause()
    return _done(player, "pause", f"Paused {_titled(now)} at {now.position_seconds:.1f} s.")


async def _resume(player: Player, _arguments: _Arguments) -> StructuredResponse:
    now = _current(player)
    player.resume()
    return _done(player, "resume", f"Resumed {_titled(now)} at {now.position_seconds:.1f} s.")


async def _stop(player: Player, _arguments: _Arguments) -> StructuredResponse:
    await player.stop()
    return _done(player, "stop", "Stopped, and cleared the queue.")


async def _next(player: Player, _arguments: _Arguments) -> StructuredResponse:
    before = _current(player)
    await player.next()
    if player.snapshot().index == before.index:
        return _done(player, "next", f"Stopped {_titled(before)}: it was the last in the queue.")
    return _done(player, "next", f"Playing {_titled(player.snapshot())}.")


async def _previous(player: Player, _arguments: _Arguments) -> StructuredResponse:
    if not player.snapshot().queue_length:
        raise UsageError("the queue is empty: there is nothing to go back to")
    await player.previous()
    return _done(player, "previous", f"Playing {_titled(player.snapshot())} from its start.")


async def _seek(player: Player, arguments: _Arguments) -> StructuredResponse:
    now = _current(player)
    name = arguments.only_present("seconds", "by_seconds")
    seconds = arguments.number(name)
    is_inside = await (player.seek(seconds) if name == "seconds" else player.seek_by(seconds))
    if not is_inside:
        end = "" if now.duration_seconds is None else f" at {now.duration_seconds:.1f} s"
        raise SeekError(f"{_titled(now)} has ended: the new time is not before its end{end}")
    after = player.snapshot()
    about = "" if after.position_is_exact else "about "
    return _done(player, "seek", f"{_titled(now)} continues at {about}{after.position_seconds:.1f} s.")


async def _go_live(player: Player, _arguments: _Arguments) -> StructuredResponse:
    now = _current(player)
    await player.go_live()
    return _done(player, "go_live", f"{_titled(now)} continues at its newest part.")


async def _set_volume(player: Player, arguments: _Arguments) -> StructuredResponse:
    volume = arguments.integer("volume", least=0, most=100)
    player.set_volume(volume)
    return _done(player, "set_volume", f"Volume {volume}.")


async def _what_is_playing(player: Player, _arguments: _Arguments) -> StructuredResponse:
    now, titles = player.snapshot(), player.queue_titles()
    number = None if now.index is None else now.index + 1
    first = max(0, (now.index or 0) - LISTED_TITLES)
    queue = {at + 1: _short(titles[at]) for at in range(first, min(len(titles), first + 2 * LISTED_TITLES))}
    status = _status(now)
    words = [f"{status.capitalize()}."]
    if now.title is not None:
        end = "" if now.duration_seconds is None else f" of {now.duration_seconds:.1f}"
        live = " (live)" if now.is_live else ""
        words = [f"{status.capitalize()}: {_titled(now)}{live}, at {now.position_seconds:.1f}{end} s."]
    words.append(f"Volume {now.volume}.")
    if queue:
        words.append(f"The queue has {len(titles)}; {number} is the current one." if number else "The queue:")
        words += [f"{at}. {title}" for at, title in queue.items()]
    data = {
        "status": status,
        "title": now.title,
        "position_seconds": now.position_seconds,
        "duration_seconds": now.duration_seconds,
        "live": now.is_live,
        "volume": now.volume,
        "number": number,
        "queue": queue,
    }
    return content_response("what_is_playing", data, "\n".join(words))


async def _play_from_queue(player: Player, arguments: _Arguments) -> StructuredResponse:
    titles = player.queue_titles()
    if not titles:
        raise UsageError("the queue is empty: there is nothing to play from it")
    if arguments.only_present("number", "title") == "number":
        index = arguments.integer("number", least=1, most=len(titles)) - 1
    else:
        index = _find(arguments.string("title"), titles)
    await player.jump(index)
    return _done(player, "play_from_queue", f"Playing {_titled(player.snapshot())}.")


def _find(wanted: str, titles: tuple[str, ...]) -> int:
    """Find the item that a listener calls `wanted`: its title, else a part of it, else a similar one."""
    wanted = wanted.strip().casefold()
    folded = [title.casefold() for title in titles]
    matches = [title for title in folded if wanted == title] or [title for title in folded if wanted in title]
    if candidates := matches or get_close_matches(wanted, folded, n=1):
        return folded.index(candidates[0])
    raise UsageError(
        f"play_from_queue: no title in the queue is like {_short(wanted)!r}; what_is_playing lists them"
    )


def _current(player: Player) -> PlayerState:
    """Return the player's state. Raises `UsageError` if no item plays or is paused."""
    now = player.snapshot()
    if now.status not in ("playing", "paused", "buffering"):
        raise UsageError(f"nothing is playing (the player is {now.status})")
    return now


def _status(now: PlayerState) -> str:
    """Return the status for the model. Only the hold "user" is a pause: others last while the user speaks."""
    if now.status == "paused" and "user" not in now.holds:
        return "playing"
    return str(now.status)


def _titled(now: PlayerState) -> str:
    return f'"{_short(now.title)}"' if now.title else "the audio"


def _short(title: str) -> str:
    return shortened(" ".join(title.split()), TITLE_CHARS)


def _done(player: Player, tool: str, message: str) -> StructuredResponse:
    return action_response(tool, tool, message, _status(player.snapshot()), terminal=True)


_SILENT: Final = (
    " Ends the turn without an answer: the listener hears the effect. Combine it with other actions in one"
    " reply."
)


def _tool(
    name: str,
    run: Callable[[Player, _Arguments], Awaitable[StructuredResponse]],
    description: str,
    **properties: Mapping[str, object],
) -> PlayerTool:
    parameters = {"type": "object", "properties": properties}
    if len(properties) == 1:  # of two, a call has either
        parameters["required"] = list(properties)
    silent = "" if run is _what_is_playing else _SILENT
    return PlayerTool(name=name, description=description + silent, parameters=parameters, run=run)


PLAYER_TOOLS: Final[Mapping[str, PlayerTool]] = {
    tool.name: tool
    for tool in (
        _tool("pause", _pause, "Pause the audio that is playing."),
        _tool("resume", _resume, "Continue the paused audio."),
        _tool("stop", _stop, "Stop the audio and clear the queue; `pause` can be continued, this can not."),
        _tool("next", _next, "Skip to the next item in the queue."),
        _tool("previous", _previous, "Go back to the previous item; more than 3 s into an item, restart it."),
        _tool(
            "seek",
            _seek,
            "Go to another time in the current item: give either argument.",
            seconds={"type": "number", "minimum": 0, "description": "The time from the item's start."},
            by_seconds={"type": "number", "description": "Forward from now; negative goes back."},
        ),
        _tool(
            "go_live", _go_live, "Go to the newest part of a live item: a broadcast, or speech being made."
        ),
        _tool(
            "set_volume",
            _set_volume,
            "Set the volume of the player.",
            volume={"type": "integer", "minimum": 0, "maximum": 100, "description": "0 is silent."},
        ),
        _tool(
            "what_is_playing",
            _what_is_playing,
            "Tell the current item, its position, the volume and the queue.",
        ),
        _tool(
            "play_from_queue",
            _play_from_queue,
            "Play an item of the queue: give either argument.",
            number={"type": "integer", "minimum": 1, "description": "As listed by what_is_playing."},
            title={"type": "string", "description": "Its title, or a part of it."},
        ),
    )
}
