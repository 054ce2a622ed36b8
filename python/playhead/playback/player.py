"""The player: one media at a time, its state, and its events."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import trio

from playhead.errors import ClosedError, UsageError
from playhead.playback.events import EventHub
from playhead.playback.item import Item, Outcome
from playhead.playback.pump import GATE_BYTES
from playhead.playback.sinks import Sink
from playhead.playback.state import PlayerEvent, PlayerState, StateChange, Status
from playhead.stream.source import Media

STOP_SECONDS = 0.08
"""How long `stop` waits for the network and the threads; a listener takes 100 ms for at once. What is not
done by then ends by itself in the player's nursery, and is silent."""


class Player:
    """Plays one media at a time through `sink`. Use it as an async context manager, once: leaving it stops.

        async with Player(DeviceSink()) as player:
            await player.play(media)
            await player.wait_finished()

    `gate_bytes` (24 KiB) is what must be in hand before the first sound: more starts later and stutters
    less. `volume` is 0 to 100, see `set_volume`. Any number of tasks may call it: `play` and `stop` take
    turns, everything else acts at once.
    """

    def __init__(self, sink: Sink, *, volume: int = 100, gate_bytes: int = GATE_BYTES) -> None:
        self._sink = sink
        self._gain = gain_of(volume)
        self._volume = volume
        self._gate_bytes = gate_bytes
        self._hub = EventHub()
        self._lock = trio.Lock()
        self._sink_lock = trio.Lock()
        self._item: Item | None = None
        self._told = Status.IDLE
        self._stack = AsyncExitStack()
        self._nursery: trio.Nursery | None = None
        self._entered = False

    async def __aenter__(self) -> Self:
        if self._entered:
            raise UsageError("this player was opened before, and plays only once: make another `Player(...)`")
        self._entered = True
        self._nursery = await self._stack.enter_async_context(trio.open_nursery())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        nursery, self._nursery = self._nursery, None
        if self._item is not None:
            self._item.stop()
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

    async def play(self, media: Media) -> None:
        """Stop what plays and start `media`; returns when it is accepted, before anything was read.

        What goes wrong with it is told by `wait_finished`, by an `ItemError` and in the snapshot. Raises
        `UsageError` for what is no media, and `ClosedError` outside the player's context. Cancelled while the
        old item stops: the new one has not started.
        """
        if not isinstance(media, Media):
            raise UsageError(
                "play: expected a media (a link of a result, session.media(uri) or FileMedia(path)), got a "
                f"{type(media).__name__}"
            )
        async with self._lock:
            await self._stop_current()
            if self._nursery is None:
                raise ClosedError("this player is not open: use it inside `async with Player(...)`")
            self._item = Item(
                media,
                sink=self._sink,
                sink_lock=self._sink_lock,
                gate_bytes=self._gate_bytes,
                gain=self._gain,
                tell=self._hub.tell,
                on_change=self._refresh,
            )
            self._nursery.start_soon(self._item.run)
            self._refresh()

    async def stop(self) -> None:
        """Silence, and an end to reading. Returns within 100 ms, whatever the network does.

        Nothing playing: does nothing. Cancelled: the item stops all the same.
        """
        async with self._lock:
            await self._stop_current()

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
        self._gain = gain_of(volume)
        self._volume = volume
        if self._item is not None:
            self._item.set_gain(self._gain)
        self._hub.tell(StateChange(state=self.snapshot()))

    # --- what is ---------------------------------------------------------------------------------------

    async def wait_finished(self) -> None:
        """Until nothing plays any more. Raises the error of the last item if it failed.

        Items that `play` replaced meanwhile do not count. Returns at once where nothing was played.
        """
        while (item := self._item) is not None:
            await item.finished.wait()
            async with self._lock:  # a `play` that has just stopped it is about to put another in its place
                if item is self._item:
                    break
        if item is not None and item.error is not None:
            raise item.error

    def events(self) -> trio.MemoryReceiveChannel[PlayerEvent]:
        """A channel of what happens from now on; each call makes one, and it ends with the player.

        It holds 64 events. A listener that is slower loses the oldest, and never delays the sound.
        """
        return self._hub.listen()

    def snapshot(self) -> PlayerState:
        """The state at this moment."""
        item = self._item
        if item is None:
            return PlayerState(volume=self._volume)
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
            last_error=item.error,
        )

    # ---------------------------------------------------------------------------------------------------

    async def _stop_current(self) -> None:
        item = self._item
        if item is None or item.finished.is_set():
            return
        item.stop()
        with trio.move_on_after(STOP_SECONDS):
            await item.finished.wait()

    def _set_paused(self, paused: bool, /) -> None:
        if self._item is not None and self._item.outcome is Outcome.ACTIVE:
            self._item.set_paused(paused)
            self._refresh()

    def _status(self) -> Status:
        item = self._item
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
