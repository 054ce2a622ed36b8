"""An item: one playing of a playable, with its reader, decoder thread, PCM buffer and outcome.

`playhead.playback.state` has its phases. The item's task and the decoder's thread share one protocol (seeks,
the end, the gate), so both are in this file.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import trio

from playhead._core import Planner
from playhead.concurrency import join, run_thread
from playhead.errors import ClosedError, SeekError
from playhead.playback.conversion import convert_decoder
from playhead.playback.decoder import PcmDecoder, naming, open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.pcm_buffer import DECODED_SECONDS, BufferPhase, Latency, PcmBuffer
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
    ItemStart,
    ItemWaiting,
    PlayerEvent,
    PlayerState,
    Status,
    phase_after,
)
from playhead.stream.options import StreamEvent, StreamResumed, StreamWaiting
from playhead.stream.source import Demand, Playable, Reader

ENDING_SECONDS = 10.0
"""The next item is opened once this much audio is left to decode: longer than a server takes to begin."""
SHORT_SECONDS = 0.1
"""A file that lacks less than this of its container's duration counts as whole: two frames of any codec.
Some encoders round, or count a frame of padding."""
SHORT_SHARE = 0.02
"""Added to `SHORT_SECONDS`, as a share of the duration, if the position is estimated: twice the error of the
estimate."""
_OVER = "expected an item that plays, got one that is over"


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
        """The callbacks run in the trio thread. `on_progress`: the item has a buffer now, is about to end, or
        is decoded. `on_start`: its audio starts, until `leave_sink`. `on_finished`: it is over."""
        self.media = media
        self.index = index
        self.buffer: PcmBuffer | None = None
        """None until the stream is identified, and once the item is over."""
        self.phase = ItemPhase.UPCOMING
        self.error: Exception | None = None
        """The first failure, also while the audio before it still plays."""
        self.decoded = False
        """Everything is read, though its last audio may not have played yet; `error` is known."""
        self.is_ending = False
        """True once at most `ENDING_SECONDS` are left to decode."""
        self._moved = trio.Event()
        """Replaced whenever the phase changes."""
        self._started_at = time.perf_counter()
        self._controls = controls
        self._publish = publish
        self._on_change = on_change
        self._on_progress = on_progress
        self._on_start = on_start
        self._on_finished = on_finished
        self._reader: Reader | None = None
        self._waiting: StreamWaiting | None = None
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
        """Make it the current item. Before, it is read and decoded, but neither heard nor reported."""
        self._started_at = time.perf_counter()
        self._move(ItemEvent.BEGIN)
        if self._waiting is not None:
            self._on_stream_event(self._waiting)

    def leave_sink(self, error: Exception | None = None) -> None:
        """Record that the sink has played the item, or failed with `error`."""
        if error is not None:
            self._fail(error)
            self._close_buffer()
            self._on_progress()
        self._move(ItemEvent.LEAVE_SINK)

    def stop(self) -> None:
        """Silence it now; it is over soon after."""
        self._move(ItemEvent.STOP)
        if self.phase is ItemPhase.WITHDRAWING and self.buffer is not None:
            self.buffer.withdraw()
        self._close_buffer()
        if self._decoding is not None:
            self._decoding.close()
        self._scope.cancel()

    def conclude(self, *events: ItemEvent) -> None:
        """Apply `events`, the last of which ends the item; report the end, and free the audio. The rest of
        its task ends silently. Does nothing if the item is over."""
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
            raise SeekError(_OVER)
        if not reader.seekable:
            raise SeekError(
                f"expected a source that can seek, got {self.media.title!r}, which its server hands out once "
                "while it is made; play it again to hear it from the beginning"
            )
        request = SeekRequest(seconds=seconds)
        decoding.request(request)
        reader.interrupt()
        self.buffer.interrupt()
        await request.done.wait()
        if request.error is not None:
            raise request.error
        return not request.is_past_end

    @property
    def position_seconds(self) -> float:
        """The playhead, or the target of a seek under way."""
        if self._decoding is not None and (seconds := self._decoding.wanted_seconds) is not None:
            return seconds
        return 0.0 if self.buffer is None else self.buffer.position_frames / self.buffer.format.rate_hz

    async def fade_out(self, seconds: float) -> None:
        """Silence it over `seconds`; returns once the sink has taken the fade."""
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
            duration_seconds=self._duration_seconds,
            truncated=decoding is not None and decoding.is_truncated,
            buffered_seconds=0.0 if buffer.closed else buffer.buffered_seconds,
            underruns=buffer.underruns,
            device_underruns=buffer.device_underruns,
            # Without a gap before it, the sink takes the first frame a moment before the start is reported.
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
                    self._report_demand()
                    nursery.start_soon(self._decode, reader, nursery.cancel_scope)
                    await self._hand_over()
                    nursery.cancel_scope.cancel()  # after a failed sink the decoder still runs
                if self.error is None:
                    reader.verify()  # `_decode` may have been cancelled before it did
        finally:
            self._reader = None
            # A thread that waits for bytes wakes when the reader is closed: after the context.
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
                duration_seconds=self._duration_seconds,
            )
        )
        self._on_start(self, buffer)
        await self.wait_for((ItemPhase.CLOSING,))
        if buffer.failure is not None:  # a callback cannot raise it: the audio ends early
            self._fail(buffer.failure)

    async def _decode(self, reader: Reader, playing: trio.CancelScope) -> None:
        """Decode to the end, and again after each seek back from there, until a failure or cancelled. A
        failure before the first audio cancels `playing`."""
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
        # A call just before this line saw no buffer, so its effect is repeated.
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


@dataclass(slots=True, kw_only=True, eq=False)
class SeekRequest:
    """A seek, requested in the trio thread. Its answer (`is_past_end`, `error`) is valid after `done`."""

    seconds: float
    is_past_end: bool = False
    error: Exception | None = None
    done: trio.Event = field(default_factory=trio.Event)


class DecoderThread:
    """Decodes one reader into one PCM buffer, with the start gate. Call `run`, which blocks, in a thread, and
    again for a seek after the end.

    Decoding begins with the first bytes; the start gate holds back the audio. It opens once enough is in hand
    to play without a foreseeable stall: decoded audio that has not been heard, and bytes that were read or
    can be read without waiting, at the decoder's byte rate. Bytes inside a decoder do not count: it releases
    none while it waits for more. The same gate holds back audio that ran dry.

    Its thresholds are in rust/core/planner/tuning.rs ("the start gate").
    """

    def __init__(
        self,
        media: Playable,
        reader: Reader,
        *,
        rate_hz: int | None = None,
        channels: int | None = None,
        on_ending: Callable[[], None] = lambda: None,
    ) -> None:
        """`rate_hz` and `channels` describe the audio in the buffer; None keeps the stream's own. `on_ending`
        is called in the thread when `ENDING_SECONDS` are left."""
        self._on_ending = on_ending
        self._is_ending = False
        self._token = trio.lowlevel.current_trio_token()
        self._open: tuple[PcmDecoder, PcmBuffer] | None = None
        """The decoder and its buffer; None until the stream is identified, and once the decoder is freed."""
        self._lock = threading.Lock()
        self._wanted: SeekRequest | None = None
        """The newest seek, until it is carried out."""
        self._landed: SeekRequest | None = None
        """A seek that was carried out; the next piece of audio, or the end, answers it."""
        self._requested = trio.Event()
        """Set by each seek; `wait_wanted` replaces it."""
        self._is_over = False
        """True once `close` was called."""
        self._is_running = False
        """True while `run` uses the decoder, which must not be freed then."""
        self.position_is_exact = True
        self.is_truncated = False
        """True if the stream was decoded to its end, and its container announces more."""
        self._last_rate: float | None = None
        self._rate_hz = rate_hz
        self._channels = channels
        self._media = media
        self._reader = reader
        self._source = DecoderSource(reader)
        self._piece_seconds = 0.0
        """Audio decoded and not yet in the buffer."""

    # --- called in the trio thread -----------------------------------------------------------------------

    def request(self, request: SeekRequest) -> None:
        """Make the thread seek, as soon as it is not blocked. An older request counts as done."""
        with self._lock:
            replaced = (self._wanted, self._landed)
            self._wanted, self._landed = request, None
        for earlier in replaced:
            if earlier is not None:
                earlier.done.set()
        self._requested.set()
        if self._is_over:
            self.close()

    async def wait_wanted(self) -> None:
        """Wait for a seek, after the end."""
        while self._wanted is None:
            self._requested = trio.Event()
            await self._requested.wait()

    def close(self) -> None:
        """Answer every seek, pending or later, with `SeekError`, and free the decoder: now, or when the
        thread that still uses it ends. Idempotent."""
        self._is_over = True
        for pending in (self._wanted, self._landed):
            if pending is not None:
                self._answer(pending, SeekError(_OVER))
        self._free()

    @property
    def wanted_seconds(self) -> float | None:
        """The target of a seek under way."""
        wanted = self._wanted
        return None if wanted is None else wanted.seconds

    @property
    def bytes_per_second(self) -> float | None:
        """Stream bytes per second of audio; None until it is known."""
        opened = self._open
        return self._last_rate if opened is None else opened[0].bytes_per_second or None

    # --- the thread ----------------------------------------------------------------------------------------

    def run(self, make_buffer: Callable[[PcmDecoder], PcmBuffer]) -> None:
        """Decode to the end, or until the buffer is closed. A further call seeks first. Raises stream
        errors."""
        self._is_running = True
        self._source.time.resume()
        try:
            self._run(make_buffer)
        finally:
            self._is_running = False
            if self._is_over:
                self.close()

    def _free(self) -> None:
        """Close the decoder, unless `run` still uses it: `run` then closes it at its end."""
        with self._lock:
            if self._is_running:
                return
            self._last_rate = self.bytes_per_second
            opened, self._open = self._open, None
        self._source.discard_errors()
        if opened is not None:
            opened[0].close()

    def _run(self, make_buffer: Callable[[PcmDecoder], PcmBuffer]) -> None:
        if self._open is None:
            media = self._media
            with naming(media.title):
                decoder = open_decoder(
                    self._source, mime_type=media.mime_type, uri=media.uri, size_bytes=media.size_bytes
                )
            try:
                decoder = convert_decoder(decoder, rate_hz=self._rate_hz, channels=self._channels)
                self._open = decoder, make_buffer(decoder)
            except BaseException:  # `self._open` is not set, so nobody else closes the decoder
                decoder.close()
                raise
        elif not self._seek_if_wanted(*self._open):
            return  # still at the end
        self._decode(*self._open)

    def _decode(self, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        self._source.on_taken = lambda: self._release_if_enough(decoder, buffer)
        self._source.keeps_waiting = lambda: self._wanted is None
        self.is_truncated = False
        try:
            with naming(self._media.title):
                self._decode_rest(decoder, buffer)
            self.is_truncated = _falls_short(decoder)
            buffer.finish()
        except Exception as error:  # whatever a reader raises must reach the sink too
            if buffer.closed and isinstance(error, ClosedError):
                error.__traceback__ = None  # the reader's pipe holds it
                return
            buffer.finish(error)
            raise
        finally:
            # No cycle that would keep the reader alive.
            self._source.on_taken = lambda: None
            self._source.keeps_waiting = lambda: False

    def _decode_rest(self, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        while True:
            self._seek_if_wanted(decoder, buffer)
            try:
                pcm = memoryview(decoder.read()).cast("B")
            except TimeoutError:  # interrupted by a seek, which restarts the decoder, as does its failure
                if self._wanted is None:
                    raise
                continue
            if (landed := self._landed) is not None:
                landed.is_past_end = not pcm
                self._answer(landed)
            if not pcm:
                return
            self._source.audio_began()
            self._write(pcm, decoder, buffer)

    def _write(self, pcm: memoryview, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        """Wait for room and write a piece, unless a seek makes it void."""
        self._piece_seconds = len(pcm) / buffer.format.bytes_per_second
        while not buffer.wait_room(len(pcm)):
            if self._wanted is not None:
                pcm = memoryview(bytes(pcm))  # the decoder's own memory is used by the seek
                if self._seek_if_wanted(decoder, buffer):
                    return
            elif buffer.held:
                # The gate is closed and the buffer is full: read on without decoding.
                with suppress(TimeoutError):
                    if not self._source.read_ahead():
                        buffer.release()
        buffer.write(pcm)
        self._piece_seconds = 0.0
        left = (decoder.duration_seconds or math.inf) - decoder.position_frames / buffer.format.rate_hz
        if left <= ENDING_SECONDS and not self._is_ending:
            self._on_ending()
        self._is_ending = left <= ENDING_SECONDS
        self._release_if_enough(decoder, buffer)

    def _seek_if_wanted(self, decoder: PcmDecoder, buffer: PcmBuffer) -> bool:
        """Seek if that was requested. Returns whether the audio continues elsewhere."""
        wanted = self._wanted
        if wanted is None:
            return False
        try:
            with naming(self._media.title):
                decoder.seek(round(wanted.seconds * buffer.format.rate_hz))
        except SeekError as error:
            self._answer(wanted, error)
            return False
        except TimeoutError:  # interrupted by this request, or by a newer one, which replaces it
            return self._seek_if_wanted(decoder, buffer)
        is_done = buffer.seek(decoder.position_frames)
        self._piece_seconds = 0.0
        self.position_is_exact = decoder.position_is_exact
        if not is_done:
            over = SeekError("expected an item that plays, got one whose last frame was taken")
            self._answer(wanted, over)
            return False
        with self._lock:  # a newer request may have replaced this one
            if self._wanted is wanted:
                self._wanted, self._landed = None, wanted
        return True

    def _answer(self, request: SeekRequest, error: Exception | None = None) -> None:
        with self._lock:
            self._wanted = None if self._wanted is request else self._wanted
            self._landed = None if self._landed is request else self._landed
        request.error = error
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(request.done.set)

    def _release_if_enough(self, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        least_seconds = 0.0 if self._reader.is_queue else DECODED_SECONDS
        if buffer.held and buffer.buffered_seconds > least_seconds and self._is_enough(decoder, buffer):
            buffer.release()

    def _is_enough(self, decoder: PcmDecoder, buffer: PcmBuffer) -> bool:
        """Return whether enough audio is in hand to open the gate."""
        byte_rate = decoder.bytes_per_second
        decoded_seconds = buffer.buffered_seconds + self._piece_seconds
        in_hand_bytes = (
            self._reader.buffered_bytes + self._source.ahead_bytes + int(decoded_seconds * byte_rate)
        )
        if self._reader.is_queue and buffer.phase is not BufferPhase.DRY:
            return True  # the first chunk is played: nobody knows when the next follows
        is_dry = buffer.phase is BufferPhase.DRY
        least_seconds = Planner.REFILL_SECONDS if is_dry else Planner.START_SECONDS
        return in_hand_bytes >= least_seconds * byte_rate and self._reader.can_play(in_hand_bytes, byte_rate)


def _falls_short(decoder: PcmDecoder) -> bool:
    """Return whether the container announces more than `decoder`, which is at its end, has decoded."""
    if decoder.lacks_end:
        return True
    end = decoder.duration_seconds
    if end is None:
        return False
    slack = SHORT_SECONDS + (0.0 if decoder.position_is_exact else SHORT_SHARE * end)
    return decoder.position_frames / decoder.format.rate_hz < end - slack
