"""The audio of one turn. Results hand it to the player as they arrive, and the turn's events report on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol, assert_never

import trio

from playhead.agent.conversation import Text, UserMessage
from playhead.agent.events import AudioEnd, AudioResumed, AudioStart, AudioWaiting, Event, ToolRef
from playhead.agent.middleware import Context, Emit, ReadNext
from playhead.errors import PlayheadError
from playhead.playback.state import (
    ItemEnd,
    ItemError,
    ItemResumed,
    ItemSkipped,
    ItemStart,
    ItemTitle,
    ItemWaiting,
    PlayerEvent,
    PlayerState,
    StateChange,
    Status,
)
from playhead.stream.source import Playable


class MediaPlayer(Protocol):
    """The part of `playback.Player` that the loop uses."""

    async def play(self, media: Iterable[Playable]) -> None: ...
    async def enqueue(self, media: Iterable[Playable]) -> None: ...
    def events(self) -> trio.MemoryReceiveChannel[PlayerEvent]: ...
    def snapshot(self) -> PlayerState: ...


_ACTIVE: Final = frozenset({Status.BUFFERING, Status.PLAYING, Status.PAUSED})


class AudioPlayback:
    """One turn's audio. The first result with media replaces the current item, and later ones are queued."""

    def __init__(self, player: MediaPlayer | None, read: ReadNext) -> None:
        self._player = player
        self._read = read
        self._lock = trio.Lock()
        self._has_played = False
        self._unfinished: Counter[str] = Counter()
        """The number of items by title whose end was not reported yet."""
        self._round = 1

    @asynccontextmanager
    async def watched(self, emit: Emit) -> AsyncIterator[None]:
        """Report audio of this turn that waits or ends during the `with` block. Later events of audio that
        plays on are only in `Player.events`."""
        if self._player is None:
            yield
            return
        with self._player.events() as events:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._report_events, events, emit)
                yield
                nursery.cancel_scope.cancel()

    def heard(self) -> tuple[UserMessage, ...]:
        """Return the note for the history of a turn that is interrupted now. Without it, the model would
        assume that the user heard its music to the end. It is empty if no audio plays and this turn has
        played none.

        The note is a separate message, because the model may have got the results in the history already. It
        has no title, because that would put a server's words into the user's message.
        """
        if self._player is None:
            return ()
        now = self._player.snapshot()
        if not self._has_played and now.status not in _ACTIVE:
            return ()
        note = f"[The turn was interrupted; music: {now.heard_seconds:.1f} s heard]"
        return (UserMessage(parts=(Text(text=note),)),)

    async def play(self, context: Context, tool: ToolRef, media: tuple[Playable, ...]) -> None:
        """Hand `media` to the player. If the player refuses the items, report their ends with its error."""
        if self._player is None or not media:
            return
        # One result at a time, because `play` empties the queue and so must precede every `enqueue`.
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
        self._unfinished.update(item.title for item in media)
        play = player.enqueue if self._has_played else player.play
        self._has_played = True
        try:
            await play(media)
        except PlayheadError as error:
            for item in media:
                await self._report_end(item.title, str(error), context.emit)

    async def _report_events(self, events: trio.MemoryReceiveChannel[PlayerEvent], emit: Emit) -> None:
        async for event in events:
            match event:
                case ItemEnd():
                    await self._report_end(event.title, None, emit, finding=event.finding)
                case ItemError():
                    await self._report_end(event.title, str(event.error), emit)
                case ItemWaiting() if self._unfinished[event.title]:
                    why = None if event.last_error is None else str(event.last_error)
                    await emit(
                        AudioWaiting(
                            round=self._round,
                            title=event.title,
                            seconds=event.seconds,
                            last_error=why,
                            patience_seconds=event.patience_seconds,
                        )
                    )
                case ItemResumed() if self._unfinished[event.title]:
                    await emit(AudioResumed(round=self._round, title=event.title, seconds=event.seconds))
                case (
                    ItemWaiting() | ItemResumed() | ItemSkipped() | ItemTitle() | ItemStart() | StateChange()
                ):
                    pass
                case _:
                    assert_never(event)

    async def _report_end(
        self, title: str, error: str | None, emit: Emit, *, finding: str | None = None
    ) -> None:
        if not self._unfinished[title]:
            return  # from an earlier turn
        self._unfinished[title] -= 1
        ended: Event = AudioEnd(round=self._round, title=title, error=error, finding=finding)
        await emit(ended)
