"""An item: one playing of a playable, with its reader, decoder thread, PCM buffer and outcome.

`playhead.playback.state` has its phases, and `playhead.playback.decoder_thread` its thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial

import trio

from playhead.concurrency import join, run_thread
from playhead.errors import SeekError
from playhead.playback.decoder import PcmDecoder
from playhead.playback.decoder_thread import ITEM_IS_OVER, DecoderThread, SeekRequest
from playhead.playback.pcm_buffer import BufferPhase, Latency, PcmBuffer
from playhead.playback.state import (
    ACTIVE_PHASES,
    ITEM_ERRORS,
    OVER_PHASES,
    SILENCED_PHASES,
    SILENT_STATUSES,
    ItemEnd,
    ItemError,
    ItemEvent,
    ItemPhase,
    ItemResumed,
    ItemSkipped,
    ItemStart,
    ItemTitle,
    ItemWaiting,
    PlayerEvent,
    PlayerState,
    Status,
    phase_after,
)
from playhead.stream.options import StreamEvent, StreamResumed, StreamSkipped, StreamTitle, StreamWaiting
from playhead.stream.source import Demand, Playable, Reader

LIVE_EDGE_SECONDS = 1.0
"""The audio that is left before the newest part of a live item after a jump there: as much as a player that
has run dry waits for."""

LIVE_SEEK_SECONDS = 5.0
"""Limits the wait for the first audio of a seek in a live stream. The item then buffers at the new place."""


@dataclass(slots=True, kw_only=True)
class Controls:
    """The settings of a player for all its items."""

    gain: float
    output_latency_seconds: float
    latency: Latency
    rate_hz: int | None
    channels: int | None
    ducks: dict[str, float] = field(default_factory=dict)
    """The gain that each reason to duck asks for; the lowest one counts."""
    holds: frozenset[str] = frozenset()
    """The reasons for which every item is held."""

    @property
    def duck(self) -> float:
        return min(self.ducks.values(), default=1.0)


class Item:
    """One playing of one playable. `run` is its task; everything else is called from other tasks."""

    def __init__(
        self,
        media: Playable,
        controls: Controls,
        *,
        index: int,
        publish: Callable[[PlayerEvent], None],
        on_change: Callable[[], None],
        on_progress: Callable[[], None],
        on_start: Callable[[Item, PcmBuffer], None],
        on_finished: Callable[[Item], None],
    ) -> None:
        """The callbacks run in the trio thread. `on_progress` is called when the item has a buffer, is about
        to end, and is decoded; `on_start` when its audio starts, which the sink then plays until
        `leave_sink`; and `on_finished` when the item is over."""
        self.media = media
        self.index = index
        self.buffer: PcmBuffer | None = None
        """None until the stream is identified, and once the item is over."""
        self.phase = ItemPhase.UPCOMING
        self.error: Exception | None = None
        """The first failure, also while the audio before it still plays."""
        self.decoded = False
        """True once everything is decoded, though the last audio may not have played yet. `error` is final
        then."""
        self.is_ending = False
        """True once at most `ENDING_SECONDS` are left to decode."""
        self._moved = trio.Event()
        """Set and replaced whenever the phase changes."""
        self._started_at = time.perf_counter()
        self._controls = controls
        self._publish = publish
        self._on_change = on_change
        self._on_progress = on_progress
        self._on_start = on_start
        self._on_finished = on_finished
        self._reader: Reader | None = None
        self._waiting: StreamWaiting | None = None
        self._stream_title: str | None = None
        self._scope = trio.CancelScope()
        self._decoder_ended: trio.Event | None = None
        """Set when the decoder's thread has ended; None before its first start."""
        self._decoding: DecoderThread | None = None
        self._duration_seconds: float | None = None
        self._token = trio.lowlevel.current_trio_token()

    # --- called from other tasks ---------------------------------------------------------------------

    async def wait_for(self, phases: Container[ItemPhase]) -> None:
        while self.phase not in phases:
            await self._moved.wait()

    def begin(self) -> None:
        """Make this the current item. Until then it is read and decoded, but neither heard nor reported."""
        self._started_at = time.perf_counter()
        self._move(ItemEvent.BEGIN)
        if self._waiting is not None:
            self._on_stream_event(self._waiting)
        if self._stream_title is not None:  # it has arrived before this item's turn
            self._on_stream_event(StreamTitle(title=self._stream_title))

    def leave_sink(self, error: Exception | None = None) -> None:
        """Record that the sink has played the item, or failed with `error`."""
        if error is not None:
            self._fail(error)
            self._close_buffer()
            self._on_progress()
        self._move(ItemEvent.LEAVE_SINK)

    def stop(self) -> None:
        """Silence the item now. It is over soon after."""
        self._move(ItemEvent.STOP)
        if self.phase is ItemPhase.WITHDRAWING and self.buffer is not None:
            self.buffer.withdraw()
        self._close_buffer()
        if self._decoding is not None:
            self._decoding.close()
        self._scope.cancel()

    def conclude(self, *events: ItemEvent) -> None:
        """Apply `events`, the last of which ends the item. Report the end, and free the audio; what is left
        of the item's task ends silently. Does nothing if the item is over."""
        if self.phase in OVER_PHASES:
            return
        self._close_buffer()
        for event in events:
            self._move(event)
        index, title = self.index, self.media.title
        frames = 0 if self.buffer is None else self.buffer.frames
        if self.phase is ItemPhase.FAILED and self.error is not None:
            self._publish(ItemError(index=index, title=title, frames=frames, error=self.error))
        elif self.phase is not ItemPhase.WITHDRAWN:
            stopped = self.phase is ItemPhase.STOPPED
            finding = None if stopped else self.state().finding
            self._publish(ItemEnd(index=index, title=title, frames=frames, stopped=stopped, finding=finding))
        self._on_finished(self)
        self.buffer = self._decoding = None

    def adjust(self, *, ramp_seconds: float | None = None) -> None:
        """Apply the controls. The duck is applied if `ramp_seconds` is given, over that time."""
        if self.buffer is not None:
            self.buffer.set_gain(self._controls.gain)
            if ramp_seconds is not None:
                self.buffer.set_duck(self._controls.duck, ramp_seconds=ramp_seconds)
            self.buffer.set_paused(bool(self._controls.holds))
        self._report_demand()

    async def seek(self, seconds: float) -> bool:
        """Continue at `seconds`. Returns True once the new audio comes next, or False if the item ends before
        that time. A later seek replaces this one.

        Raises `SeekError` if the item cannot be sought (it plays on), or ends or is stopped first. Cancelled:
        it seeks all the same.
        """
        while self.phase is ItemPhase.OPENING:
            await self._moved.wait()
        decoding, reader = self._decoding, self._reader
        if self.phase is not ItemPhase.PLAYING or not (decoding and reader and self.buffer):
            raise SeekError(ITEM_IS_OVER)
        if not reader.seekable:
            raise SeekError(
                f"expected a source that can seek, got {self.media.title!r}, which its server hands out once "
                "while it is made; play it again to hear it from the beginning"
            )
        if reader.live is not None:
            reader.live.check_seek(seconds)
        elif (newest := self.newest_seconds) is not None:
            seconds = min(seconds, max(self.position_seconds, newest - LIVE_EDGE_SECONDS))
        request = SeekRequest(seconds=seconds)
        decoding.request(request)
        reader.interrupt()
        self.buffer.interrupt()
        # A live source whose server hangs may send nothing at the new place.
        with trio.move_on_after(LIVE_SEEK_SECONDS if reader.live is not None else math.inf):
            await request.done.wait()
        if request.error is not None:
            raise request.error
        return not request.is_past_end

    @property
    def position_seconds(self) -> float:
        """The playhead, or the target of a seek under way."""
        wanted = None if self._decoding is None else self._decoding.wanted_seconds
        if wanted is not None and wanted < math.inf:
            return wanted
        return 0.0 if self.buffer is None else self.buffer.position_frames / self.buffer.format.rate_hz

    @property
    def is_live(self) -> bool:
        """True while the source still grows."""
        reader = self._reader
        if reader is None:
            return False
        if reader.live is not None:
            return reader.live.duration_seconds is None
        return reader.newest_offset is not None

    @property
    def duration_seconds(self) -> float | None:
        """The duration by the container or the list of segments; None while the source grows."""
        if self._reader is not None and (live := self._reader.live) is not None:
            return live.duration_seconds
        announced = None if self._decoding is None else self._decoding.announced_seconds
        return None if self.is_live else self._duration_seconds or announced

    def _in_hand_seconds(self) -> float:
        """Return the audio that the sink can still take without another byte of the source."""
        buffer, decoding, reader = self.buffer, self._decoding, self._reader
        rate = None if decoding is None else decoding.bytes_per_second
        if buffer is None or reader is None or not rate:
            return 0.0
        assert decoding is not None
        return buffer.buffered_seconds + (reader.buffered_bytes + decoding.ahead_bytes) / rate

    @property
    def newest_seconds(self) -> float | None:
        """The time of the newest audio of a live source, as far as its rate tells; None for any other."""
        reader, decoding = self._reader, self._decoding
        if reader is not None and reader.live is not None:
            return math.inf if self.is_live else None
        newest = None if reader is None else reader.newest_offset
        rate = None if decoding is None else decoding.bytes_per_second
        if reader is None or newest is None or not rate:
            return None
        unread_bytes = max(0, newest - reader.buffered_range[1])
        return self.position_seconds + self._in_hand_seconds() + unread_bytes / rate

    async def fade_out(self, seconds: float) -> None:
        """Fade the item to silence over `seconds`. Returns once the sink has taken the fade."""
        self._move(ItemEvent.FADE)
        if (buffer := self.buffer) is not None:
            buffer.fade_out(seconds)
            while not buffer.over:
                await buffer.wait_change()

    @property
    def status(self) -> Status:
        if self.phase in SILENT_STATUSES:
            return SILENT_STATUSES[self.phase]
        if self._controls.holds:
            return Status.PAUSED
        # The last frames are still heard after the sink took them.
        is_waiting = self.buffer is None or self.buffer.held or self.buffer.phase is BufferPhase.READY
        return Status.BUFFERING if is_waiting else Status.PLAYING

    def state(self) -> PlayerState:
        """Return the part of a player's state that is the item's."""
        buffer = self.buffer
        if buffer is None:
            return PlayerState(status=self.status, title=self.media.title)
        decoding, begun_at = self._decoding, buffer.first_audio_at
        return PlayerState(
            status=self.status,
            title=self.media.title,
            format=buffer.format,
            frames=buffer.frames,
            position_seconds=self.position_seconds,
            position_is_exact=decoding is None or decoding.position_is_exact,
            heard_seconds=buffer.heard_seconds,
            duration_seconds=self.duration_seconds,
            stream_title=self._stream_title,
            is_live=self.is_live,
            truncated=decoding is not None and decoding.is_truncated,
            buffered_seconds=0.0 if buffer.closed else buffer.buffered_seconds,
            underruns=buffer.underruns,
            device_underruns=buffer.device_underruns,
            # The sink takes the first frame a moment before the start is reported if no gap precedes it.
            first_audio_seconds=None if begun_at is None else max(0.0, begun_at - self._started_at),
            stream_bytes_per_second=None if decoding is None else decoding.bytes_per_second,
        )

    # --- the task ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Play to the end, a failure or `stop()`. Raises no error of the item."""
        try:
            with self._scope:
                try:
                    await self._play()
                except ITEM_ERRORS as error:  # from opening or closing the playable
                    self._fail(error)
                while self.phase in (ItemPhase.UPCOMING, ItemPhase.LOADED):
                    await self._moved.wait()  # an early failure is reported after the start
                self.conclude(ItemEvent.END if self.error is None else ItemEvent.FAIL)
        finally:
            self.conclude(ItemEvent.STOP, ItemEvent.END)

    async def _play(self) -> None:
        try:
            async with self.media.open() as reader:
                async with trio.open_nursery() as nursery:
                    self._reader = reader
                    reader.watch(self._on_stream_event)
                    reader.set_in_hand(self._in_hand_seconds)
                    self._report_demand()
                    nursery.start_soon(self._decode, reader, nursery.cancel_scope)
                    await self._hand_over()
                    nursery.cancel_scope.cancel()  # after a failed sink the decoder still runs
                if self.error is None:
                    reader.verify()  # `_decode` may have been cancelled before it did
        finally:
            # A list of segments has the duration only as long as it is open.
            self._duration_seconds = self.duration_seconds or self._duration_seconds
            self._reader = None
            # The context has closed the reader, which wakes a thread that waits for bytes.
            if self._decoder_ended is not None:
                await join(self._decoder_ended)

    async def _hand_over(self) -> None:
        """Wait for the item's turn and format, start its audio, and wait until the sink has played it."""
        await self.wait_for((ItemPhase.PLAYING,))
        buffer = self.buffer
        assert buffer is not None
        self._publish(
            ItemStart(
                index=self.index,
                title=self.media.title,
                uri=self.media.uri,
                format=buffer.format,
                duration_seconds=self.duration_seconds,
            )
        )
        self._on_start(self, buffer)
        await self.wait_for((ItemPhase.CLOSING,))
        if buffer.failure is not None:  # an error of the sink's callback, which cannot raise it
            self._fail(buffer.failure)

    async def _decode(self, reader: Reader, playing: trio.CancelScope) -> None:
        """Decode to the end, and again after each seek back from there. Returns after a failure, which
        cancels `playing` if it has no audio yet."""
        decoding = self._decoding = DecoderThread(
            self.media,
            reader,
            rate_hz=self._controls.rate_hz,
            channels=self._controls.channels,
            on_ending=lambda: self._token.run_sync_soon(self._set_ending),
        )
        try:
            while True:
                self._decoder_ended = trio.Event()
                try:
                    await run_thread(
                        partial(decoding.run, self._make_buffer),
                        wake=self._close_buffer,
                        ended=self._decoder_ended,
                        join_seconds=0,  # `_play` waits for the thread, once the reader is closed
                    )
                    reader.verify()
                except ITEM_ERRORS as error:
                    self._fail(error)
                self.decoded = True
                self._on_progress()
                if self.error is not None:
                    if self.buffer is None:
                        playing.cancel()
                    return
                await decoding.wait_wanted()
        finally:
            decoding.close()

    def _set_ending(self) -> None:
        self.is_ending = True
        self._on_progress()

    def _make_buffer(self, decoder: PcmDecoder) -> PcmBuffer:
        """Make the buffer, in the decoder's thread, once the stream is identified."""
        buffer = PcmBuffer(
            decoder.format,
            token=self._token,
            gain=self._controls.gain,
            output_latency_seconds=self._controls.output_latency_seconds,
            latency=self._controls.latency,
            on_change=self._changed,
        )
        self._duration_seconds = decoder.duration_seconds
        self.buffer = buffer
        # `adjust` has no effect without a buffer, so it is repeated in case it was called before this line.
        self._token.run_sync_soon(self._update_buffer)
        if self.phase in SILENCED_PHASES:
            buffer.close()
        return buffer

    def _update_buffer(self) -> None:
        self.adjust(ramp_seconds=0.0)
        self._move(ItemEvent.IDENTIFY)
        self._on_progress()

    def _close_buffer(self) -> None:
        if self.buffer is not None:
            self.buffer.close()

    def _changed(self) -> None:
        self._report_demand()
        self._on_change()

    def _report_demand(self) -> None:
        if self._reader is None:
            return
        if self.buffer is not None:
            self._reader.set_demand(self.buffer.demand)
        else:
            self._reader.set_demand(Demand.PAUSED if self._controls.holds else Demand.WAITING)

    def _on_stream_event(self, event: StreamEvent) -> None:
        if isinstance(event, StreamTitle):
            self._stream_title = event.title
            if self.phase in ACTIVE_PHASES:
                self._publish(ItemTitle(index=self.index, title=self.media.title, stream_title=event.title))
            return
        if isinstance(event, StreamSkipped):
            rate = None if self._decoding is None else self._decoding.bytes_per_second
            seconds = event.skipped_bytes / rate if rate else None
            if event.skipped_seconds is not None:
                seconds = event.skipped_seconds
            if self.phase in ACTIVE_PHASES:
                self._publish(
                    ItemSkipped(
                        index=self.index,
                        title=self.media.title,
                        skipped_bytes=event.skipped_bytes,
                        seconds=seconds,
                    )
                )
            return
        self._waiting = event if isinstance(event, StreamWaiting) else None
        if self.phase not in ACTIVE_PHASES:
            return
        if isinstance(event, StreamResumed):
            self._publish(ItemResumed(index=self.index, title=self.media.title, seconds=event.seconds))
            return
        self._publish(
            ItemWaiting(
                index=self.index,
                title=self.media.title,
                seconds=event.seconds,
                last_error=event.last_error,
                patience_seconds=event.patience_seconds,
            )
        )

    def _move(self, event: ItemEvent) -> None:
        self.phase = phase_after(self.phase, event)
        self._moved.set()
        self._moved = trio.Event()

    def _fail(self, error: Exception) -> None:
        if self.error is None and self.phase not in SILENCED_PHASES:
            self.error = error
