"""PCM between the decoder's thread and a sink, held back until enough is in hand.

Three kinds of threads meet here. The decoder's thread writes the pipe and opens the gate; the sink is either
a device's callback (`fill`, which never blocks and never raises) or a thread of its own (`take`, which
blocks); the player (trio) pauses and closes. One phase decides what they may do:

    FILLING ──enough──▶ READY ──a callback got audio──▶ PLAYING ──nothing was left──▶ DRY
                         │ ▲                                                           │
                         │ └────────────────────────── enough ─────────────────────────┘
                         └──a thread got audio──▶ DRAINING             the last frame ──▶ ENDED

Audio that ran dry is held back until enough is in hand again: one pause instead of many short ones. A sink
with its own thread takes audio as fast as it is decoded and always waits for more, so it never runs dry.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum

import trio

from playhead._core import Pipe, scale_pcm16
from playhead.errors import ClosedError
from playhead.playback.formats import PIECE_FRAMES, PcmFormat
from playhead.stream.source import Demand

BUFFER_SECONDS = 0.35
"""PCM between the decoder and the sink: several times a busy machine's worst pause (43 ms with a thread that
holds the GIL), and little enough that the byte pipe remains the real buffer."""
_MIN_PIPE_FRAMES = 2 * PIECE_FRAMES
"""Room for a piece while the previous one is taken, at any rate."""


class BufferPhase(Enum):
    FILLING = "filling"
    """Held back: not enough in hand to start."""
    READY = "ready"
    """Enough is in hand; the sink has not taken any of it yet."""
    PLAYING = "playing"
    """A device's callback takes audio in real time."""
    DRAINING = "draining"
    """A sink's own thread takes audio as fast as it is decoded."""
    DRY = "dry"
    """Held back: a callback found nothing, and not enough is in hand to continue."""
    ENDED = "ended"
    """The sink has taken the last frame."""
    CLOSED = "closed"
    """The player stopped."""


class _Event(Enum):
    ENOUGH = "enough is in hand, or no more follows"
    FILLED = "a callback got audio"
    TAKEN = "a sink's own thread got audio"
    EMPTY = "a callback found nothing, and it is not the end"
    LAST = "the sink has taken the last frame"
    CLOSE = "the player stopped"


_AFTER = {
    (BufferPhase.FILLING, _Event.ENOUGH): BufferPhase.READY,
    (BufferPhase.FILLING, _Event.CLOSE): BufferPhase.CLOSED,
    (BufferPhase.READY, _Event.FILLED): BufferPhase.PLAYING,
    (BufferPhase.READY, _Event.TAKEN): BufferPhase.DRAINING,
    (BufferPhase.READY, _Event.EMPTY): BufferPhase.DRY,
    (BufferPhase.READY, _Event.LAST): BufferPhase.ENDED,
    (BufferPhase.READY, _Event.CLOSE): BufferPhase.CLOSED,
    (BufferPhase.PLAYING, _Event.EMPTY): BufferPhase.DRY,
    (BufferPhase.PLAYING, _Event.LAST): BufferPhase.ENDED,
    (BufferPhase.PLAYING, _Event.CLOSE): BufferPhase.CLOSED,
    (BufferPhase.DRAINING, _Event.LAST): BufferPhase.ENDED,
    (BufferPhase.DRAINING, _Event.CLOSE): BufferPhase.CLOSED,
    (BufferPhase.DRY, _Event.ENOUGH): BufferPhase.READY,
    (BufferPhase.DRY, _Event.CLOSE): BufferPhase.CLOSED,
    (BufferPhase.ENDED, _Event.CLOSE): BufferPhase.CLOSED,
}
"""The phase after an event. Pairs that are not listed change nothing."""

_HELD = frozenset({BufferPhase.FILLING, BufferPhase.DRY})
_AUDIBLE = frozenset({BufferPhase.READY, BufferPhase.PLAYING})


class PcmBuffer:
    """PCM in `format` between one decoder and one sink.

    Created in any thread; `token` belongs to the trio loop. `on_change` is called in the trio thread soon
    after the phase changed, and immediately after a pause; one call may cover several changes.
    """

    def __init__(
        self,
        format: PcmFormat,
        *,
        token: trio.lowlevel.TrioToken,
        gain: float = 1.0,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.format = format
        frames = max(int(BUFFER_SECONDS * format.rate_hz), _MIN_PIPE_FRAMES)
        self.pipe = Pipe(frames * format.frame_bytes)
        self.phase = BufferPhase.FILLING
        self.frames = 0
        """Frames that the sink has taken: the playhead."""
        self.underruns = 0
        """Stalls: times that the audio ran dry and continued, of any length. Running dry just before the end
        does not count. Counted when the audio continues."""
        self.first_audio_at: float | None = None
        """`time.perf_counter()` when the sink took the first frame."""
        self.failure: Exception | None = None
        """The error that broke the stream: the audio before it is played, then `take` raises it."""
        self.paused = False
        """The listener paused it, in whatever phase it is."""
        self._lock = threading.Lock()  # of the phase; held for one table lookup
        self._writer_waits = False
        self._ready = trio.Event()
        self._running = threading.Event()
        self._gain = gain
        self._applied_gain = gain
        self._on_change = on_change
        self._token = token

    # --- the sink ------------------------------------------------------------------------------------

    async def wait_ready(self) -> None:
        """Wait until enough is in hand to start, so that a device has audio in its first callback."""
        await self._ready.wait()

    def fill(self, out: memoryview) -> int:
        """Fill `out` with audio, and the rest with silence, for a callback. Never blocks, never raises.

        Returns the bytes of audio: none while paused or while audio is held back.
        """
        audio_bytes = 0
        if self.phase is BufferPhase.DRY and (self._writer_waits or self.pipe.closed):
            # The decoder's thread checked the phase just before it was dry, and will not check again.
            self._move(_Event.ENOUGH, wait=False)
        if self.phase in _AUDIBLE and not self.paused:
            got: int | None = 1
            while audio_bytes < len(out) and (got := self.pipe.readinto_nowait(out[audio_bytes:])):
                audio_bytes += got
            self._count(out[:audio_bytes])
            if audio_bytes:
                self._move(_Event.FILLED, wait=False)
            if not got:
                self._move(_Event.EMPTY if got is None else _Event.LAST, wait=False)
        if audio_bytes < len(out):
            out[audio_bytes:] = bytes(len(out) - audio_bytes)
        return audio_bytes

    def take(self, out: memoryview) -> int:
        """Block until there is audio, and put it into `out`, for a sink's own thread.

        Returns the bytes of audio; 0 is the end.

        Raises `ClosedError` when the player stopped, and the error that broke the stream, after the audio
        before it. In both cases, drop the output so far.
        """
        self._running.wait()
        audio_bytes = 0 if self.closed else self.pipe.readinto(out)
        if self.closed:
            raise ClosedError("the player stopped while the sink was taking audio")
        self._count(out[:audio_bytes])
        self._move(_Event.TAKEN if audio_bytes else _Event.LAST)
        if audio_bytes == 0 and self.failure is not None:
            raise self.failure
        return audio_bytes

    # --- the decoder ---------------------------------------------------------------------------------

    def wait_room(self, room_bytes: int) -> bool:
        """Block until `room_bytes` fit. Returns False immediately if there is no room before `release`.

        Raises `ClosedError` when the player stopped.
        """
        if self.pipe.wait_room(room_bytes, 0.0):
            return True
        self._writer_waits = True
        try:
            return not self.held and self.pipe.wait_room(room_bytes)
        finally:
            self._writer_waits = False

    def release(self) -> None:
        """Open the gate: held audio may be heard. From any thread; idempotent."""
        self._move(_Event.ENOUGH)

    def finish(self, failure: Exception | None = None) -> None:
        """End the audio, with `failure` or because the stream ended. The first call counts."""
        if not self.pipe.closed:
            self.failure = failure
            self.pipe.close()
        self.release()

    # --- the player ----------------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """True while audio is held back, until `release`."""
        return self.phase in _HELD

    @property
    def closed(self) -> bool:
        """The player stopped."""
        return self.phase is BufferPhase.CLOSED

    @property
    def ended(self) -> bool:
        """The sink has taken the last frame."""
        return self.phase is BufferPhase.ENDED

    @property
    def demand(self) -> Demand:
        """Urgency of the need for bytes. A draining sink waits for each of them."""
        if self.paused:
            return Demand.PAUSED
        return Demand.FED if self.phase is BufferPhase.PLAYING else Demand.WAITING

    def set_paused(self, paused: bool, /) -> None:
        """Hold the playhead; decoding and reading continue until the buffers are full."""
        self.paused = paused
        self._settle()

    def set_gain(self, gain: float) -> None:
        """Set the gain from the next piece of audio on, ramped over it to avoid a click."""
        self._gain = gain

    def close(self) -> None:
        """Silence the buffer; a blocked writer or taker gets `ClosedError`. Idempotent."""
        self._move(_Event.CLOSE)
        self.pipe.close()
        self._running.set()

    @property
    def buffered_seconds(self) -> float:
        return (self.pipe.tail - self.pipe.head) / self.format.bytes_per_second

    # -------------------------------------------------------------------------------------------------

    def _move(self, event: _Event, *, wait: bool = True) -> None:
        """Change the phase by the table. A callback does not wait for the lock: its next call tries again."""
        if not self._lock.acquire(blocking=wait):
            return
        try:
            before = self.phase
            self.phase = _AFTER.get((before, event), before)
            goes_on = before is BufferPhase.DRY and self.phase is BufferPhase.READY
            if goes_on and self.pipe.tail > self.pipe.head:
                self.underruns += 1
            changed = self.phase is not before
        finally:
            self._lock.release()
        if changed:
            self._token.run_sync_soon(self._settle, idempotent=True)

    def _settle(self) -> None:
        """In the trio thread: wake those who wait for the current phase, or for the end of a pause."""
        if self.phase is not BufferPhase.FILLING:
            self._ready.set()
        if self.closed or not (self.held or self.paused):
            self._running.set()
        else:
            self._running.clear()
        self._on_change()

    def _count(self, audio: memoryview) -> None:
        if not audio:
            return
        start, self._applied_gain = self._applied_gain, self._gain
        scale_pcm16(audio, start, self._applied_gain)
        self.frames += len(audio) // self.format.frame_bytes
        if self.first_audio_at is None:
            self.first_audio_at = time.perf_counter()
