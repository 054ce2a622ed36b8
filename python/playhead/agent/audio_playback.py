"""Play the audio of results at once, while the turn continues."""

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
from playhead.stream.source import Playable


class MediaPlayer(Protocol):
    """The part of `playback.Player` that the loop uses."""

    async def play(self, media: Iterable[Playable]) -> None: ...
    async def enqueue(self, media: Iterable[Playable]) -> None: ...
    def events(self) -> trio.MemoryReceiveChannel[PlayerEvent]: ...


class AudioPlayback:
    """One turn's audio: the first result with media replaces what is playing, later ones are queued."""

    def __init__(self, player: MediaPlayer | None, read: ReadNext) -> None:
        self._player = player
        self._read = read
        self._lock = trio.Lock()
        self._begun = False
        self._due: Counter[str] = Counter()
        self._round = 1

    @asynccontextmanager
    async def watched(self, emit: Emit) -> AsyncIterator[None]:
        """Report audio of this turn that ends while the body runs. What keeps playing afterwards is reported
        by the player (`Player.events`)."""
        if self._player is None:
            yield
            return
        with self._player.events() as events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, events, emit)
                yield
                nursery.cancel_scope.cancel()

    async def play(self, context: Context, tool: ToolRef, media: tuple[Playable, ...]) -> None:
        """Hand `media` to the player. If it refuses them, that is reported as their end."""
        if self._player is None or not media:
            return
        # One at a time: nothing may be enqueued before the `play` that empties the queue.
        async with self._lock:
            await self._play(self._player, context, tool, media)

    async def _play(
        self, player: MediaPlayer, context: Context, tool: ToolRef, media: tuple[Playable, ...]
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
            return  # from an earlier turn
        self._due[title] -= 1
        ended: Event = AudioEnd(round=self._round, title=title, error=error)
        await emit(ended)
