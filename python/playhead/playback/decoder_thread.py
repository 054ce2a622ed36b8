"""The thread that decodes an item's stream, carries out its seeks, and opens its start gate."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import trio

from playhead._core import Planner
from playhead.errors import ClosedError, SeekError
from playhead.playback.conversion import convert_decoder
from playhead.playback.decoder import PcmDecoder, naming, open_decoder
from playhead.playback.decoder_source import DecoderSource
from playhead.playback.live_decoder import NEWEST_FRAME, LiveDecoder
from playhead.playback.pcm_buffer import DECODED_SECONDS, BufferPhase, PcmBuffer
from playhead.stream.source import Playable, Reader

ENDING_SECONDS = 10.0
"""The next item is opened once this much audio is left to decode: longer than a server takes to begin."""

SHORT_SECONDS = 0.1
"""A file that lacks less than this of its container's duration counts as whole: two frames of any codec.
Some encoders round, or count a frame of padding."""

SHORT_SHARE = 0.02
"""The share of the duration that is added to `SHORT_SECONDS` if the position is estimated: twice the error of
the estimate."""

ITEM_IS_OVER = "expected an item that plays, got one that is over"


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

    Decoding begins with the first bytes, while the start gate holds back the audio. The gate opens once
    enough is in hand to play without a foreseeable stall. Decoded audio that has not been heard counts, and
    so do bytes that were read or can be read without waiting, at the decoder's byte rate. Bytes inside a
    decoder do not count, because it releases none while it waits for more. The gate closes again if the audio
    runs dry.

    The gate's thresholds are in rust/core/planner/tuning.rs ("the start gate").
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
        self._landing: SeekRequest | None = None
        """The seek that the decoder carries out now."""
        self._landed: SeekRequest | None = None
        """A seek that was carried out; the next piece of audio, or the end, answers it."""
        self._is_interrupted = False
        """True once a seek has interrupted a read; the decoder may first return what it has."""
        self._requested = trio.Event()
        """Set by each seek; `wait_wanted` replaces it."""
        self._is_over = False
        """True once `close` was called."""
        self._is_running = False
        """True while `run` uses the decoder, which must not be freed then."""
        self.position_is_exact = True
        self.is_truncated = False
        """True if the stream was decoded to its end, and its container announces more."""
        self.announced_seconds: float | None = None
        """The duration that the container states by the end of the stream; in Ogg, its last page does."""
        self._last_rate: float | None = None
        self._rate_hz = rate_hz
        self._channels = channels
        self._media = media
        self._reader = reader
        self._source = DecoderSource(reader)
        self._piece_seconds = 0.0
        """The audio that was decoded and is not yet in the buffer."""

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
                self._answer(pending, SeekError(ITEM_IS_OVER))
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

    @property
    def ahead_bytes(self) -> int:
        """Bytes that were taken from the reader and not decoded."""
        return self._source.ahead_bytes

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
            open_one = partial(
                open_decoder,
                self._source,
                mime_type=media.mime_type,
                uri=media.uri,
                size_bytes=media.size_bytes,
            )
            with naming(media.title):
                decoder = open_one()
            if (live := self._source.live) is not None:
                decoder = LiveDecoder(self._source, live, decoder, open_one)
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
        self._source.on_wait = self._answer_at_present_end
        self._source.keeps_waiting = self._keeps_waiting
        self.is_truncated = False
        try:
            with naming(self._media.title):
                self._decode_rest(decoder, buffer)
            self.announced_seconds, self.is_truncated = decoder.duration_seconds, _falls_short(decoder)
            buffer.finish()
        except Exception as error:  # every error of a reader must reach the sink, too
            if buffer.closed and isinstance(error, ClosedError):
                error.__traceback__ = None  # the reader's pipe holds it
                return
            buffer.finish(error)
            raise
        finally:
            # These functions refer to this object: without the cycle, the reader is freed at once.
            self._source.on_taken = self._source.on_wait = lambda: None
            self._source.keeps_waiting = lambda: False

    def _decode_rest(self, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        while True:
            self._seek_if_wanted(decoder, buffer)
            try:
                begin = decoder.position_frames
                pcm = memoryview(decoder.read()).cast("B")
            except TimeoutError:
                if not self._is_interrupted:
                    raise
                self._is_interrupted = False
                if not self._seek_if_wanted(decoder, buffer):
                    self._stay(decoder, buffer)
                continue
            skipped = decoder.position_frames - begin - len(pcm) // buffer.format.frame_bytes
            if pcm and skipped > 0:
                buffer.skip(begin, skipped)
                self.position_is_exact = decoder.position_is_exact
            if (landed := self._landed) is not None:
                landed.is_past_end = not pcm
                self._answer(landed)
            if not pcm:
                return
            self._source.audio_began()
            self._write(pcm, decoder, buffer)

    def _write(self, pcm: memoryview, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        """Wait for room in the buffer and write a piece, unless a seek discards it."""
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
        """Carry out the requested seek, if any. Returns whether the audio continues elsewhere."""
        wanted = self._wanted
        if wanted is None:
            return False
        self._landing = wanted
        try:
            with naming(self._media.title):
                seconds = wanted.seconds
                rate_hz = buffer.format.rate_hz
                decoder.seek(NEWEST_FRAME if seconds == math.inf else round(seconds * rate_hz))
        except SeekError as error:
            self._answer(wanted, error)
            return False
        except TimeoutError:  # interrupted by this request, or by a newer one, which replaces it
            return self._seek_if_wanted(decoder, buffer)
        finally:
            self._landing = None
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

    def _keeps_waiting(self) -> bool:
        self._is_interrupted = self._wanted is not None
        return not self._is_interrupted

    def _answer_at_present_end(self) -> None:
        """Answer a seek to the present end of a source that grows: the audio that comes next is yet to be
        made."""
        landed, newest = self._landing or self._landed, self._reader.newest_offset
        if landed is not None and newest is not None and self._reader.buffered_range[1] >= newest:
            self._answer(landed)

    def _stay(self, decoder: PcmDecoder, buffer: PcmBuffer) -> None:
        """Restart a decoder where it is: it has taken an interrupt for the end, and the seek was refused."""
        at = decoder.position_frames
        while True:
            try:
                return decoder.seek(at)
            except TimeoutError:  # a newer seek
                if self._seek_if_wanted(decoder, buffer):
                    return None

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
            return True  # the first chunk is enough, because nobody knows when the next one arrives
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
