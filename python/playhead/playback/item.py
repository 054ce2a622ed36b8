"""An item: one playing of a playable, with its reader, decoder thread, PCM buffer and outcome.

UPCOMING ──begin──▶ CURRENT ──over──▶ ENDED, or FAILED
   │                   └──stop──▶ STOPPING ──over──▶ STOPPED
   └──stop──▶ WITHDRAWN
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import assert_never

import trio

from playhead._core import Planner
from playhead.concurrency import join, run_thread
from playhead.errors import ClosedError, PlayheadError
from playhead.playback.decoder import PcmDecoder, open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.pcm_buffer import BufferPhase, PcmBuffer
from playhead.playback.sinks import Sink
from playhead.playback.state import ItemEnd, ItemError, ItemResumed, ItemStart, ItemWaiting, PlayerEvent
from playhead.stream.options import StreamEvent, StreamResumed, StreamWaiting
from playhead.stream.source import Demand, Playable, Reader

ITEM_ERRORS = (PlayheadError, OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Errors that make an item fail. Anything else that a playable or a sink raises is a bug and ends the player.
(`TimeoutError` is an `OSError`.)"""


class ItemPhase(Enum):
    UPCOMING = "upcoming"
    """Read and decoded, but neither heard nor reported: it has not started."""
    CURRENT = "current"
    STOPPING = "stopping"
    """A call ended it: it is silent, though its network reads may still hang."""
    STOPPED = "stopped"
    ENDED = "ended"
    FAILED = "failed"
    """It ended with `error`."""
    WITHDRAWN = "withdrawn"
    """It was stopped before its start: nothing is reported."""


class _Event(Enum):
    BEGIN = "it starts"
    STOP = "a call stops it"
    END = "it is over"
    FAIL = "it is over with an error"


_AFTER = {
    (ItemPhase.UPCOMING, _Event.BEGIN): ItemPhase.CURRENT,
    (ItemPhase.UPCOMING, _Event.STOP): ItemPhase.WITHDRAWN,
    (ItemPhase.CURRENT, _Event.STOP): ItemPhase.STOPPING,
    (ItemPhase.CURRENT, _Event.END): ItemPhase.ENDED,
    (ItemPhase.CURRENT, _Event.FAIL): ItemPhase.FAILED,
    (ItemPhase.STOPPING, _Event.END): ItemPhase.STOPPED,
}
"""The phase after an event. Pairs that are not listed change nothing."""

_SILENCED = frozenset({ItemPhase.STOPPING, ItemPhase.STOPPED, ItemPhase.WITHDRAWN})


class Item:
    """One playing of one playable. `run` is its task; everything else is called from other tasks."""

    def __init__(
        self,
        media: Playable,
        *,
        sink: Sink,
        sink_lock: trio.Lock,
        gain: float,
        index: int,
        publish: Callable[[PlayerEvent], None],
        on_change: Callable[[], None],
        on_decoded: Callable[[], None],
        on_finished: Callable[[Item], None],
    ) -> None:
        """`on_decoded`: everything is read, though its last audio has not played yet. `on_finished`: it is
        over, and its playable is closed. Both are called in the trio thread."""
        self.media = media
        self.index = index
        self.buffer: PcmBuffer | None = None
        self.duration_seconds: float | None = None
        self.phase = ItemPhase.UPCOMING
        self.error: Exception | None = None
        """The first failure, also while the audio before it still plays."""
        self.decoded = False
        """Everything is read, though its last audio may not have played yet; `error` is known."""
        self.paused = False
        """The listener paused it, in any phase."""
        self.finished = trio.Event()
        self._started_at = time.perf_counter()
        self._sink = sink
        self._sink_lock = sink_lock
        self._gain = gain
        self._publish = publish
        self._on_change = on_change
        self._on_decoded = on_decoded
        self._on_finished = on_finished
        self._reader: Reader | None = None
        self._waiting: StreamWaiting | None = None
        self._start = trio.Event()
        self._scope = trio.CancelScope()
        self._identified = trio.Event()
        self._decoder_ended: trio.Event | None = None
        self._token = trio.lowlevel.current_trio_token()

    # --- called from other tasks ---------------------------------------------------------------------

    def begin(self) -> None:
        """Start: until then it is read and decoded, and neither heard nor reported."""
        if self._move(_Event.BEGIN):
            self._started_at = time.perf_counter()
            self._start.set()
            if self._waiting is not None:
                self._on_stream_event(self._waiting)

    def stop(self) -> None:
        """Silence it now; `finished` is set soon after."""
        self._move(_Event.STOP)
        self._close_buffer()
        self._scope.cancel()

    def set_paused(self, paused: bool, /) -> None:
        self.paused = paused
        if self.buffer is not None:
            self.buffer.set_paused(paused)
        self._report_demand()

    def set_gain(self, gain: float) -> None:
        self._gain = gain
        if self.buffer is not None:
            self.buffer.set_gain(gain)

    @property
    def frames(self) -> int:
        return 0 if self.buffer is None else self.buffer.frames

    @property
    def is_over(self) -> bool:
        """It ended or failed by itself."""
        return self.phase in (ItemPhase.ENDED, ItemPhase.FAILED)

    @property
    def first_audio_seconds(self) -> float | None:
        if self.buffer is None or self.buffer.first_audio_at is None:
            return None
        return self.buffer.first_audio_at - self._started_at

    # --- the task ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Play to the end, a failure or `stop()`. Raises no error of the item."""
        try:
            with self._scope:
                try:
                    await self._play()
                except ITEM_ERRORS as error:  # from opening or closing the playable
                    self._fail(error)
                await self._start.wait()  # an early failure is reported after the start
                self._move(_Event.END if self.error is None else _Event.FAIL)
        finally:
            self._close_buffer()
            self._conclude()

    async def _play(self) -> None:
        try:
            async with self.media.open() as reader:
                async with trio.open_nursery() as nursery:
                    self._reader = reader
                    reader.watch(self._on_stream_event)
                    self._report_demand()
                    self._decoder_ended = trio.Event()
                    nursery.start_soon(self._decode, reader, self._decoder_ended)
                    await self._identified.wait()
                    if self.buffer is not None:
                        await self._emit(self.buffer)
                        nursery.cancel_scope.cancel()  # after a failed sink the decoder still runs
                if self.error is None:
                    reader.verify()  # the sink may have been done before `_decode` got to it
        finally:
            self._reader = None
            # A thread that waits for bytes wakes when the reader is closed: after the context.
            if self._decoder_ended is not None:
                await join(self._decoder_ended)

    async def _decode(self, reader: Reader, ended: trio.Event) -> None:
        thread = DecoderThread(self.media, reader)
        try:
            await run_thread(
                partial(thread.run, self._make_buffer),
                wake=self._close_buffer,
                ended=ended,
                join_seconds=0,
            )
            reader.verify()
        except ITEM_ERRORS as error:
            self._fail(error)
        finally:
            self._identified.set()
        self.decoded = True
        self._on_decoded()

    async def _emit(self, buffer: PcmBuffer) -> None:
        await self._start.wait()
        self._publish(
            ItemStart(
                index=self.index,
                title=self.media.title,
                uri=self.media.uri,
                format=buffer.format,
                duration_seconds=self.duration_seconds,
            )
        )
        try:
            async with self._sink_lock:
                await self._sink.play(buffer)
            if buffer.failure is not None:  # a callback cannot raise it: the audio ends early
                self._fail(buffer.failure)
        except ITEM_ERRORS as error:
            self._fail(error)
            self._close_buffer()

    def _make_buffer(self, decoder: PcmDecoder) -> PcmBuffer:
        """Make the buffer, in the decoder's thread, once the stream is identified."""
        buffer = PcmBuffer(decoder.format, token=self._token, gain=self._gain, on_change=self._changed)
        self.duration_seconds = decoder.duration_seconds
        self.buffer = buffer
        # A call just before this line saw no buffer, so its effect is repeated.
        self._token.run_sync_soon(self._update_buffer)
        if self.phase in _SILENCED:
            buffer.close()
        return buffer

    def _update_buffer(self) -> None:
        self.set_gain(self._gain)
        self.set_paused(self.paused)
        self._identified.set()

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
            self._reader.set_demand(Demand.PAUSED if self.paused else Demand.WAITING)

    def _on_stream_event(self, event: StreamEvent) -> None:
        self._waiting = event if isinstance(event, StreamWaiting) else None
        if self.phase is not ItemPhase.CURRENT:
            return
        match event:
            case StreamWaiting():
                self._publish(
                    ItemWaiting(
                        index=self.index,
                        title=self.media.title,
                        seconds=event.seconds,
                        last_error=event.last_error,
                        patience_seconds=event.patience_seconds,
                    )
                )
            case StreamResumed():
                self._publish(ItemResumed(index=self.index, title=self.media.title, seconds=event.seconds))
            case _:
                assert_never(event)

    def _move(self, event: _Event) -> bool:
        """Change the phase as the table says. Returns whether it did."""
        before, self.phase = self.phase, _AFTER.get((self.phase, event), self.phase)
        return self.phase is not before

    def _fail(self, error: Exception) -> None:
        if self.error is None and self.phase not in _SILENCED:
            self.error = error

    def _conclude(self) -> None:
        self._move(_Event.STOP)  # cancelled from outside
        self._move(_Event.END)
        index, title = self.index, self.media.title
        if self.phase is ItemPhase.FAILED:
            assert self.error is not None
            self._publish(ItemError(index=index, title=title, frames=self.frames, error=self.error))
        elif self.phase is not ItemPhase.WITHDRAWN:
            stopped = self.phase is ItemPhase.STOPPED
            self._publish(ItemEnd(index=index, title=title, frames=self.frames, stopped=stopped))
        self.finished.set()
        self._on_finished(self)


class DecoderThread:
    """Decodes one reader into one PCM buffer, with the start gate. `run` blocks: for a thread.

    Decoding begins with the first bytes; the start gate holds back the audio. It opens once enough is in hand
    to play without a foreseeable stall: decoded audio that has not been heard, and bytes that were read or
    can be read without waiting, at the decoder's byte rate. Bytes inside a decoder do not count: it releases
    none while it waits for more. The same gate holds back audio that ran dry.

    Its thresholds are in rust/core/planner/tuning.rs ("the start gate").
    """

    def __init__(self, media: Playable, reader: Reader) -> None:
        self._media = media
        self._reader = reader
        self._source = DecoderSource(reader)
        self._piece_seconds = 0.0
        """Audio decoded and not yet in the buffer."""

    def run(self, make_buffer: Callable[[PcmDecoder], PcmBuffer]) -> None:
        """Decode to the end, or until the player closes the buffer. Raises the error that breaks the
        stream."""
        media = self._media
        decoder = open_decoder(
            self._source, mime_type=media.mime_type, uri=media.uri, size_bytes=media.size_bytes
        )
        try:
            self._decode(decoder, make_buffer(decoder))
        finally:
            decoder.close()

    def _decode(self, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        try:
            offset = 0
            self._source.on_taken = lambda: self._release_if_enough(decoder, buffer)
            while pcm := memoryview(decoder.read()).cast("B"):
                if offset == 0:
                    self._source.audio_began()
                self._piece_seconds = len(pcm) / buffer.format.bytes_per_second
                while not buffer.wait_room(len(pcm)):
                    # The gate is closed and the buffer is full: read on without decoding.
                    if not self._source.read_ahead():
                        buffer.release()
                offset += buffer.pipe.write(offset, pcm)
                self._piece_seconds = 0.0
                self._release_if_enough(decoder, buffer)
        except Exception as error:  # whatever a reader raises must reach the sink too
            if buffer.closed and isinstance(error, ClosedError):
                return
            buffer.finish(error)
            raise
        else:
            buffer.finish()
        finally:
            self._source.on_taken = lambda: None  # no cycle that would keep the reader alive

    def _release_if_enough(self, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        if buffer.held and buffer.pipe.tail and self._is_enough(decoder, buffer):
            buffer.release()

    def _is_enough(self, decoder: PcmDecoder, buffer: PcmBuffer) -> bool:
        byte_rate = decoder.bytes_per_second
        decoded_seconds = buffer.buffered_seconds + self._piece_seconds
        in_hand_bytes = (
            self._reader.buffered_bytes + self._source.ahead_bytes + int(decoded_seconds * byte_rate)
        )
        if self._reader.is_queue and buffer.phase is not BufferPhase.DRY:
            return True  # the first chunk is played: nobody knows when the next follows
        least = Planner.REFILL_SECONDS if buffer.phase is BufferPhase.DRY else Planner.START_SECONDS
        return in_hand_bytes >= least * byte_rate and self._reader.can_play(in_hand_bytes, byte_rate)
