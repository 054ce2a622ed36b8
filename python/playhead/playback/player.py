"""The player: a queue of media, its state, and its events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Self

import trio

from playhead.errors import ClosedError, UsageError
from playhead.playback.events import EventHub
from playhead.playback.item import Outcome
from playhead.playback.lineup import Lineup
from playhead.playback.pump import GATE_BYTES
from playhead.playback.queue import as_items
from playhead.playback.sinks import Sink
from playhead.playback.state import PlayerEvent, PlayerState, StateChange, Status
from playhead.stream.source import Media


class Player:
    """Plays a queue of media through `sink`. Use it as an async context manager, once: leaving it stops.

        async with Player(DeviceSink()) as player:
            await player.play(result.media)
            await player.wait_finished()

    `gate_bytes` (24 KiB) is what must be in hand before the first sound: more starts later and stutters
    less. `volume` is 0 to 100, see `set_volume`. An item that fails is over and the queue goes on, unless
    `stop_on_error`: then nothing plays until `next`, `previous`, `enqueue` or `play`.

    Any number of tasks may call it. `play`, `enqueue`, `next` and `previous` take turns, and one that is
    still waiting when `stop` is called does nothing more; everything else acts at once. Closed, they raise
    `ClosedError`.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        volume: int = 100,
        gate_bytes: int = GATE_BYTES,
        stop_on_error: bool = False,
    ) -> None:
        self._hub = EventHub()
        self._volume = volume
        self._lineup = Lineup(
            sink,
            gate_bytes=gate_bytes,
            gain=gain_of(volume),
            stop_on_error=stop_on_error,
            tell=self._hub.tell,
            on_change=self._refresh,
        )
        self._lock = trio.Lock()
        self._stops = 0
        self._told = Status.IDLE
        self._stack = AsyncExitStack()
        self._entered = False

    async def __aenter__(self) -> Self:
        if self._entered:
            raise UsageError("this player was opened before, and plays only once: make another `Player(...)`")
        self._entered = True
        self._lineup.nursery = await self._stack.enter_async_context(trio.open_nursery())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        nursery, self._lineup.nursery = self._lineup.nursery, None
        self._lineup.silence()
        if nursery is not None:
            nursery.cancel_scope.cancel()
        try:
            if isinstance(error, trio.Cancelled) or (
                isinstance(error, BaseExceptionGroup) and error.subgroup(trio.Cancelled) is not None
            ):
                return await self._stack.__aexit__(kind, error, traceback)
            # The block's own error goes on as it is, not wrapped in the nursery's group.
            await self._stack.__aexit__(None, None, None)
            return None
        finally:
            self._hub.close()

    # --- what to do ----------------------------------------------------------------------------------

    async def play(self, media: Media | Iterable[Media]) -> None:
        """Stop what plays and play `media`, one or several in order, in place of the queue.

        Returns when it is accepted, before anything was read. What goes wrong with an item is told by
        `wait_finished`, by an `ItemError` and in the snapshot. Without any media it is the same as `stop`.

        Raises `UsageError` for what is no media (and changes nothing), for more than `queue.QUEUE_ITEMS`, and
        `ClosedError` outside the player's context. Cancelled while the old item stops: that one is over, the
        queue is the old one, and nothing plays.
        """
        items = as_items(media, call="play")
        async with self._turn() as go_on:
            await self._lineup.halt()
            if go_on():
                self._lineup.queue.replace(items)
                self._lineup.begin()

    async def enqueue(self, media: Media | Iterable[Media]) -> None:
        """Put `media`, one or several, at the end of the queue.

        Where nothing plays (nothing did yet, the queue is over, was stopped or ended by an error), it begins
        to: with the first item that has not had its turn.

        The queue holds `queue.QUEUE_ITEMS` (10,000); the oldest that were played make room, and indexes
        count from what is left. Raises `UsageError` for what is no media or where there is no room (and
        changes nothing), and `ClosedError` outside the player's context. Cancelled: nothing was enqueued.
        """
        items = as_items(media, call="enqueue")
        async with self._turn() as go_on:
            if go_on():
                self._lineup.append(items)
                if self._lineup.active:
                    self._lineup.open_upcoming()
                else:
                    self._lineup.begin()

    async def next(self) -> None:
        """Go to the next item, and play it even if this one was paused. At the last item: stop that one.

        The queue is kept either way: `previous` leads back. Nothing in the queue, or over: does nothing.
        Cancelled while the item stops: that one is over, and nothing plays.
        """
        async with self._turn() as go_on:
            await self._lineup.halt(keep_upcoming=True)
            if go_on() and self._lineup.queue.forward():
                self._lineup.start()

    async def previous(self) -> None:
        """Play the item before. More than three seconds into an item, or at the first: its start instead.

        The rule is that of Android's media3 and most players. Where the queue is over, its last item counts
        as the current one. Nothing in the queue: does nothing. Cancelled: as `next`.
        """
        async with self._turn() as go_on:
            await self._lineup.halt()
            position = self.snapshot().position_seconds
            if go_on() and self._lineup.queue.back(position_seconds=position):
                self._lineup.start()

    async def stop(self) -> None:
        """Silence, an end to reading, and an empty queue. Returns within 100 ms, whatever the network does.

        The queue is emptied as by mpv's `stop`, so that what is enqueued later is what is heard next. Nothing
        playing: empties the queue. Cancelled: the item stops all the same.
        """
        self._stops += 1
        self._lineup.queue.replace(())
        await self._lineup.halt()

    def pause(self) -> None:
        """Hold the playhead; reading goes on until the buffers are full. Nothing playing: does nothing."""
        self._set_paused(True)

    def resume(self) -> None:
        """Go on where `pause` held. Not paused: does nothing."""
        self._set_paused(False)

    def set_volume(self, volume: int) -> None:
        """0 (silent) to 100 (the samples unchanged, bit for bit), for this item and the next ones.

        The loudness heard follows the number: the gain is its cube, as in PulseAudio (50 is -18 dB). Raises
        `UsageError` outside 0 to 100.
        """
        self._lineup.set_gain(gain_of(volume))
        self._volume = volume
        self._hub.tell(StateChange(state=self.snapshot()))

    # --- what is ---------------------------------------------------------------------------------------

    async def wait_finished(self) -> None:
        """Until the queue is over: nothing plays any more.

        Then raises the first failure of an item since the queue began to play (by `play`, or by the `enqueue`
        that found it at rest): each of them was told by an `ItemError`. Queues that `play` replaced meanwhile
        do not count. Returns at once where nothing was played.
        """
        while (item := self._lineup.item) is not None:
            await item.finished.wait()
            async with self._lock:  # a `play` that has just stopped it is about to put another in its place
                if item is self._lineup.item:
                    break
        if self._lineup.first_error is not None:
            raise self._lineup.first_error

    def events(self) -> trio.MemoryReceiveChannel[PlayerEvent]:
        """A channel of what happens from now on; each call makes one, and it ends with the player.

        It holds 64 events. A listener that is slower loses the oldest, and never delays the sound.
        """
        return self._hub.listen()

    def snapshot(self) -> PlayerState:
        """The state at this moment."""
        item = self._lineup.item
        if item is None:
            return PlayerState(
                volume=self._volume, index=self._lineup.queue.index, queue_length=len(self._lineup.queue)
            )
        feed = item.feed
        return PlayerState(
            status=self._status(),
            title=item.media.title,
            format=None if feed is None else feed.format,
            frames=item.frames,
            position_seconds=0.0 if feed is None else item.frames / feed.format.rate_hz,
            duration_seconds=item.duration_seconds,
            buffered_seconds=0.0 if feed is None or feed.closed else feed.buffered_seconds,
            underruns=0 if feed is None else feed.underruns,
            first_audio_seconds=item.first_audio_seconds,
            volume=self._volume,
            last_error=self._lineup.last_error,
            index=self._lineup.queue.index,
            queue_length=len(self._lineup.queue),
        )

    # ---------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[Callable[[], bool]]:
        """One call at a time. It asks before it acts whether it still may: not after a `stop` that came later
        than the call. Raises `ClosedError` where the player is not open, or is closed meanwhile."""
        stops = self._stops

        def go_on() -> bool:
            if self._lineup.nursery is None:
                raise ClosedError("this player is not open: use it inside `async with Player(...)`")
            return stops == self._stops

        async with self._lock:
            yield go_on

    def _set_paused(self, paused: bool, /) -> None:
        if self._lineup.item is not None and self._lineup.active:
            self._lineup.item.set_paused(paused)
            self._refresh()

    def _status(self) -> Status:
        item = self._lineup.item
        if item is None or item.outcome is Outcome.ENDED:
            return Status.IDLE
        if item.outcome is Outcome.FAILED:
            return Status.ERROR
        if (
            item.stopping or item.outcome is Outcome.STOPPED
        ):  # it is silent, though its network may still hang
            return Status.STOPPED
        if item.paused:
            return Status.PAUSED
        if item.feed is None or item.feed.first_sound_at is None or item.feed.starving:
            return Status.BUFFERING
        return Status.PLAYING

    def _refresh(self) -> None:
        """Tell the status where it changed."""
        status = self._status()
        if status is not self._told:
            self._told = status
            self._hub.tell(StateChange(state=self.snapshot()))


def gain_of(volume: int) -> float:
    """The factor for samples: the cube of the volume's part of 100. Exactly 1.0 at 100 and 0.0 at 0."""
    if not 0 <= volume <= 100:
        raise UsageError(f"a volume is 0 to 100, not {volume}")
    return (volume / 100) ** 3
