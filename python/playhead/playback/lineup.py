"""Which item of the queue sounds, and which one is ready behind it.

The next item is opened once nothing is left to read of the current one, while the last sound of that still
plays, and waits for its turn. Nothing here waits except `halt`: between two items no other task sees a
moment without one.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from playhead.playback.item import Item, Outcome
from playhead.playback.queue import Queue
from playhead.playback.sinks import Sink
from playhead.playback.state import PlayerEvent
from playhead.stream.source import Media

STOP_SECONDS = 0.08
"""How long `halt` waits for the network and the threads; a listener takes 100 ms for at once. What is not
done by then ends by itself in the player's nursery, and is silent."""


class Lineup:
    """The queue with its current item and the upcoming one; `Player` is what callers see of it."""

    def __init__(
        self,
        sink: Sink,
        *,
        gate_bytes: int,
        gain: float,
        stop_on_error: bool,
        tell: Callable[[PlayerEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self.queue = Queue()
        self.item: Item | None = None
        """The current one, or the last one where nothing plays."""
        self.nursery: trio.Nursery | None = None
        """Where items run; None before the player is open and after."""
        self.first_error: Exception | None = None
        self.last_error: Exception | None = None
        self._upcoming: Item | None = None
        self._sink = sink
        self._sink_lock = trio.Lock()
        self._gate_bytes = gate_bytes
        self._gain = gain
        self._stop_on_error = stop_on_error
        self._tell = tell
        self._on_change = on_change

    @property
    def active(self) -> bool:
        """Whether an item plays, is about to, or is paused."""
        return self.item is not None and self.item.outcome is Outcome.ACTIVE and not self.item.stopping

    def append(self, items: tuple[Media, ...]) -> None:
        """See `Queue.append`."""
        forgotten = self.queue.append(items)
        for item in self._items():
            item.index -= forgotten

    def set_gain(self, gain: float) -> None:
        self._gain = gain
        for item in self._items():
            item.set_gain(gain)

    # --- turns ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """From rest, play on with the item that follows."""
        self.first_error = self.last_error = None
        if self.queue.forward():
            self.start()

    def start(self, *, paused: bool = False) -> None:
        """It is the turn of the queue's current item."""
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
        """Open the next item, unless there is none or something is left to read of the current one."""
        item, media = self.item, self.queue.following
        if item is None or media is None or self._upcoming is not None or self.nursery is None:
            return
        if self.active and item.decoded and not self._ends_queue(item):
            self._upcoming = self._open(media, item.index + 1)

    def drop_upcoming(self) -> None:
        """What comes next is not what was thought."""
        upcoming, self._upcoming = self._upcoming, None
        if upcoming is not None:
            upcoming.stop()

    def silence(self) -> None:
        """Everything ends, soon."""
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

    def _open(self, media: Media, index: int) -> Item:
        assert self.nursery is not None
        item = Item(
            media,
            sink=self._sink,
            sink_lock=self._sink_lock,
            gate_bytes=self._gate_bytes,
            gain=self._gain,
            index=index,
            tell=self._tell,
            on_change=self._on_change,
            on_decoded=self.open_upcoming,
            on_finished=self._finished,
        )
        self.nursery.start_soon(item.run)
        return item

    def _finished(self, item: Item) -> None:
        """An item is over. Where no call ended it, the queue goes on."""
        if item is not self.item:
            return
        if item.error is not None:
            self.first_error = self.first_error or item.error
            self.last_error = item.error
        by_itself = item.outcome is not Outcome.STOPPED and not item.stopping and self.nursery is not None
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
