"""The player: a queue of playables, its state, and its events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import trio

from playhead.concurrency import Broadcast
from playhead.errors import ClosedError, UsageError
from playhead.playback.item import Item, ItemPhase
from playhead.playback.pcm_buffer import BufferPhase
from playhead.playback.queue import Queue, as_items
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


# --- the current and the upcoming item -------------------------------------------------------------------


STOP_SECONDS = 0.08
"""Time that `halt` waits for the network and the threads; 100 ms feel immediate. What is not done by then
ends by itself in the player's nursery, silently."""


class PlaybackController:
    """The queue with its current and its upcoming item; `Player` is the public interface.

    The upcoming item is opened once nothing is left to read of the current one, while its last audio still
    plays, and waits for its start. Only `halt` waits: other tasks never see a moment without an item between
    two.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        gain: float,
        stop_on_error: bool,
        publish: Callable[[PlayerEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self.queue = Queue()
        self.item: Item | None = None
        """The current item, or the last one if nothing plays."""
        self.nursery: trio.Nursery | None = None
        """The nursery of the items; None while the player is not open."""
        self.first_error: Exception | None = None
        self.last_error: Exception | None = None
        self._upcoming: Item | None = None
        self._sink = sink
        self._sink_lock = trio.Lock()
        self._gain = gain
        self._stop_on_error = stop_on_error
        self._publish = publish
        self._on_change = on_change

    @property
    def active(self) -> bool:
        """True while an item plays, is about to, or is paused."""
        return self.item is not None and self.item.phase is ItemPhase.CURRENT

    def append(self, items: tuple[Playable, ...]) -> None:
        """See `Queue.append`."""
        forgotten = self.queue.append(items)
        for item in self._items():
            item.index -= forgotten

    def set_gain(self, gain: float) -> None:
        self._gain = gain
        for item in self._items():
            item.set_gain(gain)

    # --- transitions ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the next item while nothing plays."""
        self.first_error = self.last_error = None
        if self.queue.forward():
            self.start()

    def start(self, *, paused: bool = False) -> None:
        """Start the queue's current item."""
        index, media = self.queue.index, self.queue.current
        if index is None or media is None:
            return
        upcoming, self._upcoming = self._upcoming, None
        self.item = upcoming if upcoming is not None else self._open(media, index)
        self.item.set_paused(paused)
        self.item.begin()
        self._on_change()
        self.open_upcoming()

    def open_upcoming(self) -> None:
        """Open the next item, if any, unless something is left to read of the current one."""
        item, media = self.item, self.queue.following
        if item is None or media is None or self._upcoming is not None or self.nursery is None:
            return
        if self.active and item.decoded and not self._ends_queue(item):
            self._upcoming = self._open(media, item.index + 1)

    def drop_upcoming(self) -> None:
        """Drop the upcoming item: another one is next."""
        upcoming, self._upcoming = self._upcoming, None
        if upcoming is not None:
            upcoming.stop()

    def silence(self) -> None:
        """Stop every item, without waiting."""
        for item in self._items():
            item.stop()

    async def halt(self, *, keep_upcoming: bool = False) -> None:
        """Silence the current item and wait for its end, at most `STOP_SECONDS`."""
        ending = [self.item] if keep_upcoming else self._items()
        if not keep_upcoming:
            self.drop_upcoming()
        with trio.move_on_after(STOP_SECONDS):
            for item in ending:
                if item is not None and not item.finished.is_set():
                    item.stop()
                    await item.finished.wait()

    # -------------------------------------------------------------------------------------------------

    def _open(self, media: Playable, index: int) -> Item:
        assert self.nursery is not None
        item = Item(
            media,
            sink=self._sink,
            sink_lock=self._sink_lock,
            gain=self._gain,
            index=index,
            publish=self._publish,
            on_change=self._on_change,
            on_decoded=self.open_upcoming,
            on_finished=self._finished,
        )
        self.nursery.start_soon(item.run)
        return item

    def _finished(self, item: Item) -> None:
        """Handle the end of an item. Unless a call ended it, the queue continues."""
        if item is not self.item:
            return
        if item.phase is ItemPhase.FAILED:
            self.first_error = self.first_error or item.error
            self.last_error = item.error
        by_itself = item.is_over and self.nursery is not None
        if by_itself and not self._ends_queue(item) and self.queue.forward():
            self.start(paused=item.paused)
            return
        if by_itself:
            self.drop_upcoming()
        self._on_change()

    def _ends_queue(self, item: Item) -> bool:
        return self._stop_on_error and item.error is not None

    def _items(self) -> list[Item]:
        return [item for item in (self.item, self._upcoming) if item is not None]
