"""The playback controller: the current item of the queue, and the upcoming one.

The upcoming item is opened once nothing is left to read of the current one, while its last audio still plays,
and waits for its start. Only `halt` waits: other tasks never see a moment without an item between two.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from playhead.playback.item import Item, ItemPhase
from playhead.playback.queue import Queue
from playhead.playback.sinks import Sink
from playhead.playback.state import PlayerEvent
from playhead.stream.source import Playable

STOP_SECONDS = 0.08
"""Time that `halt` waits for the network and the threads; 100 ms feel immediate. What is not done by then
ends by itself in the player's nursery, silently."""


class PlaybackController:
    """The queue with its current and its upcoming item; `Player` is the public interface."""

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
