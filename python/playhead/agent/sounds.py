"""Sound in results, on its way to the player: at once, while the turn goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Protocol, assert_never

import trio

from playhead.agent.events import AudioEnd, AudioStart, Event, ToolRef
from playhead.agent.middleware import Context, Emit, ReadNext
from playhead.errors import PlayheadError
from playhead.playback.state import ItemEnd, ItemError, ItemStart, PlayerEvent, StateChange
from playhead.stream.source import Media


class MediaPlayer(Protocol):
    """What the loop needs of a `playback.Player`."""

    async def play(self, media: Iterable[Media]) -> None: ...
    async def enqueue(self, media: Iterable[Media]) -> None: ...
    def events(self) -> trio.MemoryReceiveChannel[PlayerEvent]: ...


class Sounds:
    """One turn's sound: its first result with media replaces what plays, later ones queue up behind it."""

    def __init__(self, player: MediaPlayer | None, read: ReadNext) -> None:
        self._player = player
        self._read = read
        self._lock = trio.Lock()
        self._begun = False
        self._due: Counter[str] = Counter()
        self._round = 1

    @asynccontextmanager
    async def watched(self, emit: Emit) -> AsyncIterator[None]:
        """Tell of sounds of this turn that end while the body runs. What plays on after it is the player's
        own to tell (`Player.events`)."""
        if self._player is None:
            yield
            return
        with self._player.events() as events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, events, emit)
                yield
                nursery.cancel_scope.cancel()

    async def play(self, context: Context, tool: ToolRef, media: tuple[Media, ...]) -> None:
        """Give `media` to the player. One that can't take them is told of as the sound's end."""
        if self._player is None or not media:
            return
        # In turn: what is enqueued must not come before the `play` that empties the queue.
        async with self._lock:
            await self._play(self._player, context, tool, media)

    async def _play(
        self, player: MediaPlayer, context: Context, tool: ToolRef, media: tuple[Media, ...]
    ) -> None:
        media = tuple([await self._read(context, item) for item in media])
        self._round = context.round
        for item in media:
            await context.emit(
                AudioStart(round=context.round, tool=tool, title=item.title, mime_type=item.mime_type)
            )
        self._due.update(item.title for item in media)
        begun, self._begun = self._begun, True
        try:
            await (player.enqueue(media) if begun else player.play(media))
        except PlayheadError as error:
            for item in media:
                await self._end(item.title, str(error), context.emit)

    async def _watch(self, events: trio.MemoryReceiveChannel[PlayerEvent], emit: Emit) -> None:
        async for event in events:
            match event:
                case ItemEnd():
                    await self._end(event.title, None, emit)
                case ItemError():
                    await self._end(event.title, str(event.error), emit)
                case ItemStart() | StateChange():
                    pass
                case _:
                    assert_never(event)

    async def _end(self, title: str, error: str | None, emit: Emit) -> None:
        if not self._due[title]:
            return  # not of this turn: what played before
        self._due[title] -= 1
        ended: Event = AudioEnd(round=self._round, title=title, error=error)
        await emit(ended)
