"""The player: a queue of playables, its state, and its events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import trio

from playhead.concurrency import Broadcast
from playhead.errors import ClosedError, UsageError
from playhead.playback.controller import PlaybackController
from playhead.playback.item import ItemPhase
from playhead.playback.pcm_buffer import BufferPhase
from playhead.playback.queue import as_items
from playhead.playback.sinks import Sink
from playhead.playback.state import PlayerEvent, PlayerState, StateChange, Status
from playhead.stream.source import Playable

EVENT_CAPACITY = 64
"""Events that a listener may fall behind. An item has about six."""

_ITEM_STATUS = {
    ItemPhase.UPCOMING: Status.BUFFERING,
    ItemPhase.STOPPING: Status.STOPPED,
    ItemPhase.STOPPED: Status.STOPPED,
    ItemPhase.WITHDRAWN: Status.STOPPED,
    ItemPhase.ENDED: Status.IDLE,
    ItemPhase.FAILED: Status.ERROR,
}
_BUFFER_STATUS = {
    BufferPhase.FILLING: Status.BUFFERING,
    BufferPhase.READY: Status.BUFFERING,
    BufferPhase.PLAYING: Status.PLAYING,
    BufferPhase.DRAINING: Status.PLAYING,
    BufferPhase.DRY: Status.BUFFERING,
    BufferPhase.ENDED: Status.PLAYING,
    BufferPhase.CLOSED: Status.PLAYING,
}
"""The status of the current item, unless it is paused. The last frames are still heard after the sink took
them."""


class Player:
    """Plays a queue through `sink`. Use it as an async context manager, once: leaving it stops.

        async with Player(DeviceSink()) as player:
            await player.play(result.media)
            await player.wait_finished()

    Audio starts once enough is in hand: half a second, or more from a link that is hardly faster than the
    music. After running dry it continues once a second or more is in hand.

    `volume` is 0 to 100, see `set_volume`. After a failed item the queue continues, unless `stop_on_error`:
    then nothing plays until `next`, `previous`, `enqueue` or `play`.

    Any number of tasks may call it. `play`, `enqueue`, `next` and `previous` run one at a time, and one that
    still waits when `stop` is called does nothing; everything else acts immediately. After closing they raise
    `ClosedError`.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        volume: int = 100,
        stop_on_error: bool = False,
    ) -> None:
        self._events = Broadcast[PlayerEvent](EVENT_CAPACITY)
        self._volume = volume
        self._controller = PlaybackController(
            sink,
            gain=gain_of(volume),
            stop_on_error=stop_on_error,
            publish=self._events.send,
            on_change=self._refresh,
        )
        self._lock = trio.Lock()
        self._stops = 0
        self._published_status = Status.IDLE
        self._stack = AsyncExitStack()
        self._entered = False

    async def __aenter__(self) -> Self:
        if self._entered:
            raise UsageError(
                "expected a new player, got one that was opened before: create another `Player(...)`"
            )
        self._entered = True
        self._controller.nursery = await self._stack.enter_async_context(trio.open_nursery())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        nursery, self._controller.nursery = self._controller.nursery, None
        self._controller.silence()
        if nursery is not None:
            nursery.cancel_scope.cancel()
        try:
            if isinstance(error, trio.Cancelled) or (
                isinstance(error, BaseExceptionGroup) and error.subgroup(trio.Cancelled) is not None
            ):
                return await self._stack.__aexit__(kind, error, traceback)
            # The block's own error is raised as it is, not wrapped in the nursery's group.
            await self._stack.__aexit__(None, None, None)
            return None
        finally:
            self._events.close()

    # --- commands ------------------------------------------------------------------------------------

    async def play(self, media: Playable | Iterable[Playable]) -> None:
        """Stop the current item, replace the queue with `media`, one or several in order, and play it.

        Returns once it is accepted, before anything was read. Errors of an item are raised by
        `wait_finished`, and reported by an `ItemError` and in the snapshot. Without any media it is the same
        as `stop`.

        Raises `UsageError` for anything but playables, or for more than `queue.QUEUE_ITEMS` (and changes
        nothing), and `ClosedError` outside the player's context. Cancelled while the old item stops: that
        item is over, the queue is unchanged, and nothing plays.
        """
        items = as_items(media, call="play")
        async with self._serialized() as go_on:
            await self._controller.halt()
            if go_on():
                self._controller.queue.replace(items)
                self._controller.begin()

    async def enqueue(self, media: Playable | Iterable[Playable]) -> None:
        """Append `media`, one or several, to the queue.

        If nothing plays (nothing did yet, or the queue is over, was stopped or ended by an error), it starts
        with the first item that has not been played.

        The queue holds `queue.QUEUE_ITEMS` (10,000); the oldest played items make room, and indexes count
        from the oldest that is left. Raises `UsageError` for anything but playables, or without room (and
        changes nothing), and `ClosedError` outside the player's context. Cancelled: nothing was enqueued.
        """
        items = as_items(media, call="enqueue")
        async with self._serialized() as go_on:
            if go_on():
                self._controller.append(items)
                if self._controller.active:
                    self._controller.open_upcoming()
                else:
                    self._controller.begin()

    async def next(self) -> None:
        """Go to the next item, and play it even if this one was paused. At the last item: stop it.

        The queue stays: `previous` leads back. Does nothing if the queue is empty or over.
        Cancelled while the item stops: that one is over, and nothing plays.
        """
        async with self._serialized() as go_on:
            await self._controller.halt(keep_upcoming=True)
            if go_on() and self._controller.queue.forward():
                self._controller.start()

    async def previous(self) -> None:
        """Play the previous item; more than three seconds into an item, or at the first one, restart it
        instead.

        This is the rule of Android's media3 and most players. If the queue is over, its last item counts as
        the current one. Does nothing if the queue is empty. Cancelled: as `next`.
        """
        async with self._serialized() as go_on:
            await self._controller.halt()
            position = self.snapshot().position_seconds
            if go_on() and self._controller.queue.back(position_seconds=position):
                self._controller.start()

    async def stop(self) -> None:
        """Stop playing and reading, and empty the queue. Returns within 100 ms, whatever the network does.

        The queue is emptied as by mpv's `stop`, so that the next enqueued item is heard next. Cancelled: the
        item stops all the same.
        """
        self._stops += 1
        self._controller.queue.replace(())
        await self._controller.halt()

    def pause(self) -> None:
        """Hold the playhead; reading continues until the buffers are full. Does nothing if nothing plays."""
        self._set_paused(True)

    def resume(self) -> None:
        """Continue after `pause`. Does nothing if not paused."""
        self._set_paused(False)

    def set_volume(self, volume: int) -> None:
        """Set the volume of this item and the next ones, from 0 (silent) to 100 (samples unchanged, bit for
        bit).

        The perceived loudness follows the number: the gain is its cube, as in PulseAudio (50 is -18 dB).
        Raises `UsageError` for anything but an integer from 0 to 100.
        """
        self._controller.set_gain(gain_of(volume))
        self._volume = volume
        self._events.send(StateChange(state=self.snapshot()))

    # --- state -----------------------------------------------------------------------------------------

    async def wait_finished(self) -> None:
        """Wait until the queue is over and nothing plays.

        Then raises the first error of an item since the queue started (by `play`, or by an `enqueue` while
        nothing played); each was reported by an `ItemError`. Queues that `play` replaced meanwhile do not
        count. Returns immediately if nothing was played.
        """
        while (item := self._controller.item) is not None:
            await item.finished.wait()
            async with self._lock:  # a `play` that has just stopped it is about to replace it
                if item is self._controller.item:
                    break
        if self._controller.first_error is not None:
            raise self._controller.first_error

    def events(self) -> trio.MemoryReceiveChannel[PlayerEvent]:
        """Return a channel of the events from now on; it ends with the player.

        It holds 64 events. A slower listener loses the oldest, and never delays the audio.
        """
        return self._events.subscribe()

    def snapshot(self) -> PlayerState:
        """Return the current state."""
        item = self._controller.item
        if item is None:
            return PlayerState(
                volume=self._volume,
                index=self._controller.queue.index,
                queue_length=len(self._controller.queue),
            )
        buffer = item.buffer
        return PlayerState(
            status=self._status(),
            title=item.media.title,
            format=None if buffer is None else buffer.format,
            frames=item.frames,
            position_seconds=0.0 if buffer is None else item.frames / buffer.format.rate_hz,
            duration_seconds=item.duration_seconds,
            buffered_seconds=0.0 if buffer is None or buffer.closed else buffer.buffered_seconds,
            underruns=0 if buffer is None else buffer.underruns,
            first_audio_seconds=item.first_audio_seconds,
            volume=self._volume,
            last_error=self._controller.last_error,
            index=self._controller.queue.index,
            queue_length=len(self._controller.queue),
        )

    # ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _serialized(self) -> AsyncIterator[Callable[[], bool]]:
        """Run one call at a time. The call checks before it acts that no later `stop` has overtaken it.
        Raises `ClosedError` if the player is not open, or was closed meanwhile."""
        stops = self._stops

        def go_on() -> bool:
            if self._controller.nursery is None:
                raise ClosedError("expected an open player: use it inside `async with Player(...)`")
            return stops == self._stops

        async with self._lock:
            yield go_on

    def _set_paused(self, paused: bool, /) -> None:
        if self._controller.item is not None and self._controller.active:
            self._controller.item.set_paused(paused)
            self._refresh()

    def _status(self) -> Status:
        item = self._controller.item
        if item is None:
            return Status.IDLE
        if item.phase is ItemPhase.CURRENT:
            if item.paused:
                return Status.PAUSED
            return Status.BUFFERING if item.buffer is None else _BUFFER_STATUS[item.buffer.phase]
        return _ITEM_STATUS[item.phase]

    def _refresh(self) -> None:
        """Publish the status if it changed."""
        status = self._status()
        if status is not self._published_status:
            self._published_status = status
            self._events.send(StateChange(state=self.snapshot()))


def gain_of(volume: int) -> float:
    """Return the factor for samples: the cube of volume / 100. Exactly 1.0 at 100 and 0.0 at 0."""
    if type(volume) is not int or not 0 <= volume <= 100:
        raise UsageError(f"volume: expected an integer from 0 to 100, got {volume!r}")
    return (volume / 100) ** 3
