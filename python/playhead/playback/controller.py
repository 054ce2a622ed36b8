"""The current item of a player, the upcoming one, and the run of the sink that plays them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

import trio

from playhead.errors import UsageError
from playhead.playback.item import Controls, Item
from playhead.playback.pcm_buffer import PcmBuffer, PcmSequence
from playhead.playback.queue import Queue
from playhead.playback.sinks import Sink
from playhead.playback.state import (
    ACTIVE_PHASES,
    ITEM_ERRORS,
    OVER_PHASES,
    ItemEvent,
    ItemPhase,
    PlayerEvent,
    PlayerState,
    Repeat,
)
from playhead.stream.source import Playable

USER = "user"
"""The reason of `Player.pause`, and the duck of `Player.duck`."""
ANNOUNCEMENT = "announcement"
"""The duck of `Player.announce`."""
STOP_FADE_SECONDS = 0.03
"""The length of the fade of a stop: long enough not to click, and short compared with the 100 ms that a stop
may take."""
STOP_SECONDS = 0.09
"""Limits the time that `halt` takes, because 100 ms feel immediate. Tasks and threads that take longer end
silently in the player's nursery."""
FADE_OUT_SECONDS = 0.065
"""Limits the part of `STOP_SECONDS` that is spent on the fade. The device takes it with its next callback, a
period later."""


class SinkRun(PcmSequence):
    """One call of `Sink.play`, for consecutive items, until one is stopped or none follows."""

    def __init__(self, sink: Sink, lock: trio.Lock, *, on_late_error: Callable[[Exception], None]) -> None:
        """`on_late_error` gets the error of a sink that failed after the last frame of its last item."""
        super().__init__(is_open=True)
        self.items = deque[Item]()
        """Items that the sink is not done with."""
        self.finished = trio.Event()
        self._on_late_error = on_late_error
        self._sink = sink
        self._lock = lock
        self._has_asked = False
        """True once the sink has asked for its first buffer."""
        self._scope = trio.CancelScope()

    def start(self, item: Item, buffer: PcmBuffer) -> None:
        """Append the buffer of `item`, which has started after the end of the previous item."""
        self.items.append(item)
        self.append(buffer)

    def cancel(self) -> None:
        self._scope.cancel()

    async def play(self) -> None:
        error: Exception | None = None
        try:
            with self._scope:
                async with self._lock:
                    await self._sink.play(self)
        except ITEM_ERRORS as failure:
            error = failure
        finally:
            self.end()
            if self.items:
                self.items.popleft().leave_sink(error)
            elif error is not None:
                self._on_late_error(error)
            error = None  # its traceback holds this frame
            self.finished.set()

    def on_next(self) -> None:
        """End the previous item, because the sink asks for the next buffer."""
        if self._has_asked and self.items:
            self.items.popleft().leave_sink()
        self._has_asked = True


class PlaybackController:
    """The queue with its current and its upcoming item. `Player` is the public interface.

    The upcoming item is opened once the current item has ten seconds left, and waits for its start. Once the
    current item is decoded to its end, the buffers of both are linked if they have the same format, so that a
    device goes on with the next sample, without the player. While items change, only `halt` has checkpoints,
    so that no other task sees the moment between two items in which none is current.
    """

    def __init__(
        self,
        sink: Sink,
        controls: Controls,
        *,
        stop_on_error: bool,
        publish: Callable[[PlayerEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self.queue = Queue()
        self.controls = controls
        self.item: Item | None = None
        """The current item; None if nothing plays."""
        self.last = PlayerState()
        """The state of the last item when it ended, at `last_at` of `time.perf_counter`."""
        self.last_at = 0.0
        self.nursery: trio.Nursery | None = None
        """The nursery of the items; None while the player is not open."""
        self.first_error: Exception | None = None
        self.last_error: Exception | None = None
        self._failures = 0
        """The number of items that have failed in a row."""
        self._upcoming: Item | None = None
        self._linked: PcmBuffer | None = None
        """The last buffer that was linked behind the current item's, if any."""
        self._run: SinkRun | None = None
        self._sink = sink
        self._sink_lock = trio.Lock()
        self._stop_on_error = stop_on_error
        self._publish = publish
        self._on_change = on_change

    @property
    def active(self) -> bool:
        """True while an item plays, is about to, or is paused."""
        return self.item is not None and self.item.phase in ACTIVE_PHASES

    def append(self, items: tuple[Playable, ...]) -> None:
        """See `Queue.append`."""
        dropped = self.queue.append(items)
        for item in self._items():
            item.index -= dropped

    def adjust(self, *, ramp_seconds: float | None = None) -> None:
        """Apply a change of the controls; see `Item.adjust`."""
        for item in self._items():
            item.adjust(ramp_seconds=ramp_seconds)

    def set_duck(self, by: str, gain: float, *, ramp_seconds: float) -> None:
        """Set the gain that the reason `by` asks for."""
        if not (0.0 <= gain <= 1.0 and 0.0 <= ramp_seconds < math.inf):
            raise UsageError(
                "duck: expected a gain from 0.0 to 1.0 and 0.0 or more seconds, got a gain of "
                f"{gain} and {ramp_seconds} seconds"
            )
        self.controls.ducks[by] = gain
        self.adjust(ramp_seconds=ramp_seconds)

    # --- transitions ---------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the next item while nothing plays."""
        self.first_error = self.last_error = None
        if self.queue.forward():
            self.start()

    def start(self, *, by_call: bool = True) -> None:
        """Start the queue's current item. A call of the player that starts it (`by_call`) ends a pause."""
        index, media = self.queue.index, self.queue.current
        if index is None or media is None:
            return
        upcoming, self._upcoming = self._upcoming, None
        self._linked = None
        self.item = upcoming if upcoming is not None else self._open(media, index)
        self.item.index = index
        if by_call:
            self.controls.holds -= {USER}
        self.adjust()
        self.item.begin()
        self._on_change()
        self._look_ahead()

    def open_upcoming(self) -> None:
        """Open the next item, if any and if the current one is about to end."""
        item, media, index = self.item, self.queue.following, self.queue.following_index()
        if item is None or media is None or index is None or self._upcoming is not None or not self.nursery:
            return
        if self.active and (item.decoded or item.is_ending) and not self._ends_queue(item):
            self._upcoming = self._open(media, index)

    def adapt(self) -> None:
        """Follow a change of the queue around the current item: another item may be next."""
        if self.item is not None and self.active and self.queue.index is not None:
            self.item.index = self.queue.index
        upcoming, index = self._upcoming, self.queue.following_index()
        if upcoming is not None and (index is None or upcoming.media is not self.queue.following):
            self.drop_upcoming()
        elif upcoming is not None and index is not None:
            upcoming.index = index
        self._look_ahead()

    def drop_upcoming(self) -> None:
        """Drop the upcoming item, because it is not the next one any more."""
        upcoming, self._upcoming = self._upcoming, None
        if upcoming is not None:
            upcoming.stop()

    def silence(self) -> None:
        """Stop every item, without waiting."""
        for item in self._items():
            item.stop()
            item.conclude(ItemEvent.STOP, ItemEvent.END)

    async def wait_sink(self) -> None:
        """Wait until the sink has played its last item, if no other follows."""
        if self._run is not None and not self._run.is_open:
            await self._run.finished.wait()

    async def halt(self, *, keep_upcoming: bool = False, fade_seconds: float = STOP_FADE_SECONDS) -> None:
        """Silence the current item, and end it within `STOP_SECONDS`, even if its task is not done by
        then."""
        ending = self._items()
        # With `Repeat.ONE` the upcoming item is the current one once more, so it is stopped, too.
        if not keep_upcoming or self.queue.repeat is Repeat.ONE:
            self._upcoming = None
        elif self._upcoming is not None:
            ending.remove(self._upcoming)
        # An item that starts while this waits begins another run of the sink.
        run, self._run = self._run, None
        try:
            with trio.move_on_after(STOP_SECONDS):
                try:
                    if self.item is not None:
                        with trio.move_on_after(FADE_OUT_SECONDS):
                            await self.item.fade_out(fade_seconds)
                finally:  # also if a busy program used up `STOP_SECONDS`, or if the caller is cancelled
                    for item in ending:
                        item.stop()
                    if run is not None:
                        run.cancel()
                if run is not None:
                    await run.finished.wait()
                for item in ending:
                    await item.wait_for(OVER_PHASES)
        finally:
            for item in ending:
                item.conclude(ItemEvent.END)
            if run is not None:
                run.finished.set()

    # --- items and the sink --------------------------------------------------------------------------

    def _open(self, media: Playable, index: int) -> Item:
        assert self.nursery is not None
        item = Item(
            media,
            self.controls,
            index=index,
            publish=self._publish,
            on_change=self._on_change,
            on_progress=self._look_ahead,
            on_start=self._send,
            on_finished=self._finished,
        )
        self.nursery.start_soon(item.run)
        return item

    def _look_ahead(self) -> None:
        """Act on the progress of a decoder: open the next item, or link its buffer with the current one's."""
        if self.item is not None and self._ends_queue(self.item):
            self.drop_upcoming()
        self.open_upcoming()
        item, upcoming = self.item, self._upcoming
        if item is None or item.buffer is None or upcoming is None or upcoming.buffer is None:
            return
        if self.active and item.decoded and not self._ends_queue(item):
            before = self._linked or item.buffer
            if before is not upcoming.buffer and before.link(upcoming.buffer):
                self._linked = upcoming.buffer

    def _send(self, item: Item, buffer: PcmBuffer) -> None:
        """Pass the buffer of an item that starts to the sink."""
        assert self.nursery is not None
        if self._run is None or not self._run.is_open:
            self._run = SinkRun(self._sink, self._sink_lock, on_late_error=self._fail)
            self.nursery.start_soon(self._run.play)
        self._run.start(item, buffer)

    def _finished(self, item: Item) -> None:
        """Handle the end of an item. Unless a call ended it, the queue continues."""
        if self._run is not None and item in self._run.items:  # it failed while it was played
            self._run.cancel()
            self._run = None
        if item is self._upcoming:
            self._upcoming = None
        if item is not self.item:
            return
        failed = item.phase is ItemPhase.FAILED
        if failed and item.error is not None:
            self._fail(item.error)
        self._failures = self._failures + 1 if failed else 0
        if failed and self.queue.repeat is Repeat.ONE:
            self.drop_upcoming()
        # A queue that repeats itself ends when every item failed in a row.
        repeats_failures = self.queue.repeat is Repeat.ALL and self._failures >= len(self.queue)
        by_itself = item.phase is not ItemPhase.STOPPED and self.nursery is not None
        goes_on = by_itself and not self._ends_queue(item) and not repeats_failures
        self.last, self.last_at, self.item, self._linked = item.state(), time.perf_counter(), None, None
        if goes_on and self.queue.forward(by_call=failed):
            self.start(by_call=False)
            return
        if by_itself:
            self.drop_upcoming()
            if self._run is not None:
                self._run.end()
        self._on_change()

    def _fail(self, error: Exception) -> None:
        self.first_error = self.first_error or error
        self.last_error = error

    def _ends_queue(self, item: Item) -> bool:
        return self._stop_on_error and item.error is not None

    def _items(self) -> list[Item]:
        return [item for item in (self.item, self._upcoming) if item is not None]
