"""The player: a queue of playables, its state, and its events."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self, get_args

import trio

from playhead.concurrency import Broadcast, require_trio
from playhead.errors import ClosedError, SeekError, UsageError
from playhead.playback.controller import ANNOUNCEMENT, STOP_FADE_SECONDS, USER, PlaybackController
from playhead.playback.conversion import check_rate_and_channels
from playhead.playback.item import Controls
from playhead.playback.pcm_buffer import Latency
from playhead.playback.queue import as_items
from playhead.playback.sinks import MixingSink, Sink
from playhead.playback.state import OVER_PHASES, PlayerEvent, PlayerState, Repeat, StateChange, Status
from playhead.stream.source import Playable

_NOT_OPEN = "expected an open player: use it inside `async with Player(...)`"
EVENT_CAPACITY = 64
"""Events that a listener may fall behind. An item has about six."""


class Player:
    """Plays a queue through `sink`. Use it as an async context manager, once: leaving it stops the audio.

        async with Player(DeviceSink()) as player:
            await player.play(result.media)
            await player.wait_finished()

    Audio starts once enough is in hand: half a second, or more from a link that is hardly faster than the
    music. After running dry it continues once a second or more is in hand.

    `volume` is 0 to 100, see `set_volume`. The queue continues after a failed item; with `stop_on_error`
    nothing plays until `next`, `previous`, `enqueue` or `play`.

    Every item is played in its own rate and channels. With `rate_hz` (8,000 to 384,000) or `channels` (1 to
    32) each item is converted to them while it is decoded, so that items of different rates follow one
    another without a gap. Other values raise `UsageError`.

    `output_latency_seconds` is the delay behind the sink, such as a sound server's or a radio link's:
    `PlayerState.heard_seconds` subtracts it. None takes the sink's own, if it states one.

    `latency="low"` lets a device hold 60 ms, so that calls are heard sooner; by default it holds twice as
    much, which a busy machine needs. `PlayerState.device_underruns` counts its drop-outs.

    Any number of tasks may call it. `play`, `enqueue`, `insert`, `remove`, `jump`, `next` and `previous` run
    one at a time, and raise `ClosedError` outside the context. A call that still waits when `stop` is called
    does nothing. Everything else acts immediately.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        volume: int = 100,
        stop_on_error: bool = False,
        rate_hz: int | None = None,
        channels: int | None = None,
        output_latency_seconds: float | None = None,
        latency: Latency = "deep",
    ) -> None:
        self._mixing = sink if isinstance(sink, MixingSink) else MixingSink(sink)
        if output_latency_seconds is None:
            output_latency_seconds = self._mixing.output_latency_seconds
        if latency not in get_args(Latency):
            raise UsageError(f"latency: expected deep or low, got {latency!r}")
        if not 0.0 <= output_latency_seconds < math.inf:
            raise UsageError(
                f"output_latency_seconds: expected 0.0 or more seconds, got {output_latency_seconds}"
            )
        check_rate_and_channels(rate_hz, channels)
        self._events = Broadcast[PlayerEvent](EVENT_CAPACITY)
        self._volume = volume
        self._announcing = trio.Lock()
        self._announcement: Player | None = None
        self._controller = PlaybackController(
            self._mixing,
            Controls(
                gain=gain_of(volume),
                output_latency_seconds=output_latency_seconds,
                latency=latency,
                rate_hz=rate_hz,
                channels=channels,
            ),
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
        require_trio("Player")
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
        self._shut()
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

    def _shut(self) -> None:
        """Silence everything, and let nothing start any more."""
        nursery, self._controller.nursery = self._controller.nursery, None
        self._controller.silence()
        if nursery is not None:
            nursery.cancel_scope.cancel()
        if self._announcement is not None:
            self._announcement._shut()

    # --- commands ------------------------------------------------------------------------------------

    async def play(self, media: Playable | Iterable[Playable]) -> None:
        """Stop the current item, replace the queue with `media`, one or several in order, and play it.

        Returns once it is accepted, before anything was read. Errors of an item are raised by
        `wait_finished`, and reported by an `ItemError` and in the snapshot.

        Raises `UsageError` for anything but playables, for none, or for more than `queue.QUEUE_ITEMS` (and
        changes nothing), and `ClosedError` outside the player's context. Cancelled while the old item
        stops: that item is over, the queue is unchanged, and nothing plays.
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
        from the oldest that is left. Raises `UsageError` for anything but playables, for none, or without
        room (and changes nothing), and `ClosedError` outside the player's context. Cancelled: nothing was
        enqueued.
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

        The queue stays, so `previous` goes back. Does nothing if the queue is empty or over.
        Cancelled while the item stops: the item is over, and nothing plays.
        """
        async with self._serialized() as go_on:
            await self._controller.halt(keep_upcoming=True)
            if go_on() and self._controller.queue.forward(by_call=True):
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

    async def jump(self, index: int) -> None:
        """Play the item at `index` of the queue from its start, even if the current one was paused.

        Raises `UsageError`, and changes nothing, for an index outside the queue, and `ClosedError` outside
        the player's context. Cancelled: as `next`.
        """
        async with self._serialized() as go_on:
            if go_on():
                self._controller.queue.check("jump", index)
            await self._controller.halt()
            if go_on():
                self._controller.queue.index = index
                self._controller.start()

    async def insert(self, media: Playable | Iterable[Playable], *, index: int | None = None) -> None:
        """Insert `media`, one or several, before the item at `index`; by default after the current item.

        The current item plays on. If nothing plays, it starts as after `enqueue`. Raises `UsageError` for
        anything but playables, for an index beyond the queue, and for more than `queue.QUEUE_ITEMS` in all
        (and changes nothing), and `ClosedError` outside the player's context. Cancelled: nothing was
        inserted.
        """
        items = as_items(media, call="insert")
        async with self._serialized() as go_on:
            if go_on():
                queue = self._controller.queue
                after_current = 0 if queue.index is None else queue.index + 1
                queue.insert(items, after_current if index is None else index)
                if self._controller.active:
                    self._controller.adapt()
                else:
                    self._controller.begin()

    async def remove(self, index: int) -> None:
        """Remove the item at `index` from the queue. The current item is stopped, and the next one plays.

        Raises `UsageError`, and changes nothing, for an index outside the queue, and `ClosedError` outside
        the player's context. Cancelled while the current item stops: it stays in the queue, and nothing
        plays.
        """
        async with self._serialized() as go_on:
            if not go_on():
                return
            queue = self._controller.queue
            queue.check("remove", index)
            if not (self._controller.active and index == queue.index):
                queue.remove(index)
                self._controller.adapt()
                return
            await self._controller.halt()
            if go_on():
                queue.remove(index)
                if queue.forward(by_call=True):
                    self._controller.start()

    def set_repeat(self, repeat: Repeat) -> None:
        """Repeat one item or the whole queue, from the end of the current item on, or nothing.

        While it repeats, `wait_finished` returns only after `stop`, an error of `stop_on_error`, or once
        every item failed in a row. An item that failed is not repeated. Raises `UsageError` for anything but
        a `Repeat` or its value.
        """
        try:
            self._controller.queue.repeat = Repeat(repeat)
        except ValueError:
            raise UsageError(f"repeat: expected off, one or all, got {repeat!r}") from None
        self._controller.adapt()
        self._events.send(StateChange(state=self.snapshot()))

    async def stop(self, *, fade_seconds: float = STOP_FADE_SECONDS) -> None:
        """Stop playing and reading, and empty the queue. Returns within 100 ms, whatever the network does.

        The audio fades out over `fade_seconds`; the call waits for at most 65 ms of them. The queue is
        emptied as by mpv's `stop`, so that the next enqueued item is heard next. Raises `UsageError`, and
        stops nothing, for a negative time. Cancelled: the item stops all the same.
        """
        if not 0.0 <= fade_seconds < math.inf:
            raise UsageError(f"stop: expected a fade of 0.0 or more seconds, got {fade_seconds}")
        self._stops += 1
        self._controller.queue.replace(())
        await self._controller.halt(fade_seconds=fade_seconds)

    def pause(self) -> None:
        """Hold the playhead for the reason "user": see `hold`. Does nothing if nothing plays."""
        if self._controller.active:
            self.hold(USER)

    def resume(self) -> None:
        """Continue after `pause`, unless there is another reason to hold."""
        self.release(USER)

    def hold(self, reason: str) -> None:
        """Hold the playhead for `reason`, such as "speech" or "call", until it is released for every reason.

        The audio fades out over 10 ms; reading continues until the buffers are full. Items started meanwhile
        are held too. Only the reason "user" ends by itself, when a call starts an item: `play`, `next`,
        `previous`, `jump`, or an `enqueue` while nothing plays.
        """
        self._set_holds(self._controller.controls.holds | {reason})

    def release(self, reason: str) -> None:
        """End `hold(reason)`. When no reason is left, the audio continues with the very next sample, faded in
        over 10 ms. Does nothing if the playhead is not held for `reason`."""
        self._set_holds(self._controller.controls.holds - {reason})

    def duck(self, *, gain: float = 0.05, attack_seconds: float = 0.05) -> None:
        """Lower the audio to `gain` (0.0 to 1.0 of its samples, over the volume) in `attack_seconds`, for
        speech over it. It stays so until `unduck`, for the next items too.

        The defaults are -26 dB, below which music does not mask speech, in less time than a syllable. Raises
        `UsageError` for another gain, and for a negative time.
        """
        self._controller.set_duck(USER, gain, ramp_seconds=attack_seconds)

    def unduck(self, *, release_seconds: float = 0.3) -> None:
        """Raise the audio to its volume again, in `release_seconds`. Raises `UsageError` for a negative
        time."""
        self._controller.set_duck(USER, 1.0, ramp_seconds=release_seconds)

    @asynccontextmanager
    async def announce(
        self,
        media: Playable | Iterable[Playable],
        *,
        gain: float = 0.05,
        attack_seconds: float = 0.05,
        release_seconds: float = 0.3,
    ) -> AsyncIterator[Player]:
        """Duck the audio, play `media` over it on the same sink, and raise the audio again.

            async with player.announce(FileMedia("dinner.mp3")):
                pass  # leaving the block waits for the end

        Yields a player of the announcement alone, at the same volume. The queue and the holds of this player
        do not change, and it stays paused if it was. `gain`, `attack_seconds` and `release_seconds` are as in
        `duck` and `unduck`. Announcements follow one another. `MixingSink` describes what happens if music
        begins, ends or changes its format meanwhile.

        Leaving the block raises the first error of the announcement's items; the music goes on. Raises
        `UsageError` as `play` and `duck` do, and `ClosedError` outside the player's context. If the block
        raises or is cancelled, the announcement stops, and the music is raised again.
        """
        items = as_items(media, call="announce")
        async with self._announcing:
            if self._controller.nursery is None:
                raise ClosedError(_NOT_OPEN)
            controls = self._controller.controls
            async with Player(
                self._mixing.over,
                volume=self._volume,
                output_latency_seconds=controls.output_latency_seconds,
                latency=controls.latency,
            ) as announcement:
                self._controller.set_duck(ANNOUNCEMENT, gain, ramp_seconds=attack_seconds)
                self._announcement = announcement
                try:
                    await announcement.play(items)
                    yield announcement
                    await announcement.wait_finished()
                finally:
                    self._announcement = None
                    self._controller.set_duck(ANNOUNCEMENT, 1.0, ramp_seconds=release_seconds)

    async def seek(self, seconds: float) -> bool:
        """Continue the current item at `seconds`, paused or not. Returns True once the new audio comes next,
        or False if the item ends before that time and is over.

        The position is exact to the sample if the format states times, or if that part was read before;
        otherwise `PlayerState.position_is_exact` tells. The audio fades out and in, 5 ms each. A later seek
        replaces one that is under way.

        Raises `SeekError` if nothing plays, or if the item cannot be sought (it plays on), and `UsageError`
        for a time that is negative or not finite. Cancelled: it seeks all the same.
        """
        if not 0.0 <= seconds < math.inf:
            raise UsageError(f"seek: expected 0.0 or more seconds, got {seconds}")
        item = self._controller.item
        if item is None or not self._controller.active:
            raise SeekError("expected an item that plays, got none; call `play` first")
        is_inside = await item.seek(seconds)
        self._events.send(StateChange(state=self.snapshot()))
        return is_inside

    async def seek_by(self, seconds: float) -> bool:
        """Seek by `seconds`, forward or (negative) back, but not before the beginning; see `seek`.

        Counts from the target of a seek that is under way, so that two calls go twice as far.
        """
        item = self._controller.item
        origin = 0.0 if item is None else item.position_seconds
        return await self.seek(max(origin + seconds, 0.0))  # NaN stays, and `seek` rejects it

    async def go_live(self) -> None:
        """Continue a live item at its newest part, about a second before its present end, paused or not.

        Raises `SeekError` if nothing plays, or if the item is not live or cannot be sought. Cancelled: as
        `seek`.
        """
        item = self._controller.item
        newest = None if item is None else item.newest_seconds
        if newest is None:
            raise SeekError("expected a live item that plays, got none; `seek` moves within other items")
        if newest < math.inf:
            await self.seek(newest)
        else:  # a radio or HLS knows its newest part by itself
            assert item is not None
            await item.seek(newest)
            self._events.send(StateChange(state=self.snapshot()))

    def set_volume(self, volume: int) -> None:
        """Set the volume of this item and the next ones, from 0 (silent) to 100 (samples unchanged, bit for
        bit).

        The perceived loudness follows the number: the gain is its cube, as in PulseAudio (50 is -18 dB).
        Raises `UsageError` for anything but an integer from 0 to 100.
        """
        self._controller.controls.gain = gain_of(volume)
        self._controller.adjust()
        self._volume = volume
        self._events.send(StateChange(state=self.snapshot()))

    # --- state -----------------------------------------------------------------------------------------

    async def wait_finished(self) -> None:
        """Wait until the queue is over, nothing plays, and the sink is done.

        Then raises the first error of an item since the queue started (by `play`, or by an `enqueue` while
        nothing played); each was reported by an `ItemError`. Queues that `play` replaced meanwhile do not
        count. Returns immediately if nothing was played.
        """
        while True:
            if (item := self._controller.item) is not None:
                await item.wait_for(OVER_PHASES)
            await self._controller.wait_sink()
            # If a `play` ended this item, wait until it has started its own; then look again.
            async with self._lock:
                pass
            if self._controller.item is None:
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
        controller = self._controller
        if controller.item is not None:
            state = controller.item.state()
        else:  # after the item's end, the device still plays the rest that it holds
            state = controller.last
            if state.format is not None:
                heard_seconds = state.heard_seconds + time.perf_counter() - controller.last_at
                taken_seconds = state.frames / state.format.rate_hz
                state = replace(state, heard_seconds=min(heard_seconds, taken_seconds))
        return replace(
            state,
            holds=controller.controls.holds,
            volume=self._volume,
            last_error=controller.last_error,
            index=controller.queue.index,
            repeat=controller.queue.repeat,
            queue_length=len(controller.queue),
        )

    def queue_titles(self) -> tuple[str, ...]:
        """Return the titles of the queue, including played items: `PlayerState.index` is the current one."""
        return self._controller.queue.titles

    # --- one call at a time ----------------------------------------------------------------------------

    @asynccontextmanager
    async def _serialized(self) -> AsyncIterator[Callable[[], bool]]:
        """Run one call at a time. Yields a function that returns False once a later `stop` has overtaken the
        call, which then does nothing more. It raises `ClosedError` if the player is not open."""
        require_trio("Player")
        stops = self._stops

        def go_on() -> bool:
            if self._controller.nursery is None:
                raise ClosedError(_NOT_OPEN)
            return stops == self._stops

        async with self._lock:
            item = self._controller.item
            if item is not None and not self._controller.active:  # a `stop` is under way
                await item.wait_for(OVER_PHASES)
            yield go_on

    def _set_holds(self, holds: frozenset[str]) -> None:
        self._controller.controls.holds = holds
        self._controller.adjust()
        self._refresh()

    def _refresh(self) -> None:
        """Publish the status if it changed."""
        item = self._controller.item
        status = self._controller.last.status if item is None else item.status
        if status is not self._published_status:
            self._published_status = status
            self._events.send(StateChange(state=self.snapshot()))


def gain_of(volume: int) -> float:
    """Return the factor for samples: the cube of volume / 100. Exactly 1.0 at 100 and 0.0 at 0."""
    if type(volume) is not int or not 0 <= volume <= 100:
        raise UsageError(f"volume: expected an integer from 0 to 100, got {volume!r}")
    return (volume / 100) ** 3
