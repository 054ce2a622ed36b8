"""PCM between the decoder's thread and a sink, held back until enough is in hand.

Three kinds of threads meet here. The decoder's thread writes and opens the gate; the sink is either a
device's callback (Rust: `DeviceCallback` calls what `fill` calls, without Python) or a thread of its own
(`take`, which blocks); the player (trio) pauses and closes. One phase with a table of transitions decides
what each of them may do (`Playout`, rust/core/playout.rs). `PcmBuffer` adds what needs Python: the error that
broke the stream, and the report of a new phase to the trio loop.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Self, TypeAlias
from weakref import ref

import trio

from playhead._core import Pipe, Playout
from playhead.errors import ClosedError
from playhead.playback.formats import PIECE_FRAMES, PcmFormat
from playhead.stream.source import Demand

if TYPE_CHECKING:
    from typing_extensions import Buffer

BUFFER_SECONDS = 1.25
"""The room for PCM between the decoder and the sink: 256 KiB at 48 kHz. A decoder writes up to a fifth of it
in one piece (`LARGE_PIECE_SECONDS`). The rest outlasts the worst pause of a busy process: a full garbage
collection among 256 players holds the GIL for 0.4 s and more, and then all of them decode. Most of the
buffering is done by the byte pipe."""
DECODED_SECONDS = 0.2
"""The audio that must be decoded before the start gate opens: five periods of a device. A sink that started
with the first piece alone (23 ms) ran dry before the second whenever the processors were busy: 64 players
that started at once on two cores had 3 to 17 underruns. Decoding 0.2 s takes a millisecond or two."""
MOST_SKIPS = 8
"""The skips that are counted one by one, from the oldest audio in the buffer on."""
_MIN_PIPE_FRAMES = 2 * PIECE_FRAMES
"""The least room, so that one piece can be written while the sink takes another, even if `seconds` are
few."""
_SPARE_FRAMES = PIECE_FRAMES
"""The room that is reserved for the first piece after a seek. The new audio is then in the pipe when the sink
skips the old audio, so that the device gets both fades in one period."""
FADE_SECONDS = 0.01
"""The length of the fade before and after a pause, and of a change of volume: too short to be noticed, long
enough not to click."""
SEEK_FADE_SECONDS = 0.005
"""The length of the fade before and after a seek."""
Latency: TypeAlias = Literal["deep", "low"]
"""The depth of the device's own buffer: as deep as a busy machine needs, or low, so that commands are heard
sooner."""


class BufferPhase(Enum):
    """The phase of a buffer."""

    FILLING = "filling"
    """Audio is held back, because not enough is in hand to start."""
    READY = "ready"
    """Enough is in hand; the sink has not taken any of it yet."""
    PLAYING = "playing"
    """A device's callback takes audio in real time."""
    DRAINING = "draining"
    """A sink's own thread takes audio as fast as it is decoded."""
    DRY = "dry"
    """Audio is held back, because a callback got nothing, and not enough is in hand to continue."""
    ENDED = "ended"
    """The sink has taken the last frame."""
    CLOSED = "closed"
    """The player stopped."""


class PcmBuffer:
    """PCM in `format` between one decoder and one sink.

    It may be created in any thread; `token` belongs to the trio loop. `on_change` is called in the trio
    thread soon after the phase changed, and immediately after a pause; one call may cover several changes.
    """

    def __init__(
        self,
        format: PcmFormat,
        *,
        token: trio.lowlevel.TrioToken,
        gain: float = 1.0,
        output_latency_seconds: float = 0.0,
        latency: Latency = "deep",
        seconds: float = BUFFER_SECONDS,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`output_latency_seconds` is the delay behind the sink's own buffer; see `heard_seconds`. `latency`
        says how much a device may hold. The buffer has room for `seconds` of audio, or a little more."""
        self.format = format
        self.latency = latency
        frames = max(int(seconds * format.rate_hz), _MIN_PIPE_FRAMES) + _SPARE_FRAMES
        # A power of two, so that as much stays behind the sink as fits ahead of it: see `TakenAudio`.
        room_bytes = 1 << (frames * format.frame_bytes - 1).bit_length()
        self.pipe = Pipe(2 * room_bytes, behind_bytes=room_bytes)
        self._fade_frames = int(FADE_SECONDS * format.rate_hz)
        self.playout = Playout(
            self.pipe,
            sample=format.sample.value,
            channels=format.channels,
            rate_hz=format.rate_hz,
            gain=gain,
            fade_frames=self._fade_frames,
            seek_fade_frames=int(SEEK_FADE_SECONDS * format.rate_hz),
            spare_bytes=_SPARE_FRAMES * format.frame_bytes,
        )
        self._output_latency_seconds = output_latency_seconds
        self._mixed: PcmBuffer | None = None
        self._below: ref[PcmBuffer] | None = None
        """The buffer that this one is mixed into, which holds this one."""
        self.device_seconds = 0.0
        """See `set_delay`."""
        self.set_delay(0.0)
        self.failure: Exception | None = None
        """The error that broke the stream: the audio before it is played, then `take` raises it."""
        self.before_write: Callable[[], None] = lambda: None
        """Called in the decoder's thread before each write, for a sink that looks at audio it has taken."""
        self.fades_out = False
        """True once `fade_out` has begun a fade that is heard; the buffer closes at its end."""
        self._skips: tuple[tuple[int, int], ...] = ()
        """The newest skips: the frame before which each lies, and its length."""
        self.seeks = 0
        """Seeks so far. A sink that has taken frames ahead drops them when the number changes."""
        self._ready = trio.Event()
        self._changed = trio.Event()
        self._first_audio_at: float | None = None
        self._on_change = on_change
        self._token = token

    # --- the sink ------------------------------------------------------------------------------------

    async def wait_ready(self) -> None:
        """Wait until enough is in hand to start, so that a device has audio in its first callback."""
        await self._ready.wait()

    async def wait_change(self) -> None:
        """Wait until the phase of this or of the mixed-in buffer changes, or a pause begins or ends.

        A sink calls this after a `fill` of less than its room. It may also return for a change before that
        `fill`, so call `fill` again.
        """
        await self._changed.wait()

    def fill(self, out: Buffer) -> int:
        """Fill `out` with audio, and the rest with silence, in real time. Never blocks, never raises.

        Returns the bytes of audio: none while paused or while audio is held back. A device calls the same in
        Rust, through `DeviceCallback`.
        """
        audio_bytes, moved = self.playout.fill(out)
        if moved:
            self._settle_soon()
        return audio_bytes

    def take(self, out: Buffer) -> int:
        """Block until there is audio, and put it into `out`. For a sink with a thread of its own.

        Returns the bytes of audio; 0 is the end. The audio of the mixed-in buffer comes first, between two
        pieces of this one, because this buffer may be paused or endless.

        Raises `ClosedError` when the player stopped, and the error that broke the stream, after the audio
        before it. In both cases, drop the output so far.
        """
        while True:
            overlay = self._mixed
            if overlay is not None and not (overlay.held or overlay.paused or overlay.over or self.closed):
                with suppress(ClosedError):
                    if audio_bytes := overlay._take_alone(out):
                        return audio_bytes
            elif (audio_bytes := self._take_alone(out)) is not None:
                if audio_bytes == 0 and self.failure is not None:
                    raise self.failure
                return audio_bytes

    def _take_alone(self, out: Buffer) -> int | None:
        """Take from this buffer only. Returns None if interrupted, as by a change of the mixed-in buffer."""
        before = self.playout.phase
        try:
            audio_bytes = self.playout.take(out)
        except ClosedError:
            raise ClosedError("the player stopped while the sink was taking audio") from None
        if self.playout.phase != before:
            self._settle_soon()
        return audio_bytes

    def set_delay(self, seconds: float) -> None:
        """Set how much audio the sink holds after a `fill`; `heard_seconds` subtracts it."""
        self.device_seconds = seconds
        self.playout.set_delay(seconds + self._output_latency_seconds)
        if self._mixed is not None:
            self._mixed.set_delay(seconds)

    # --- the decoder ---------------------------------------------------------------------------------

    def wait_room(self, room_bytes: int) -> bool:
        """Block until `room_bytes` fit. Returns False after `interrupt`. While audio is held, returns False
        at once if there is no room; after a seek it first waits up to 0.1 s for the sink to skip old audio.

        Raises `ClosedError` when the player stopped.
        """
        return self.playout.wait_room(room_bytes)

    def write(self, pcm: Buffer) -> None:
        """Append whole frames, for which there is room.

        Raises `ClosedError` when the player stopped.
        """
        self.before_write()
        self.pipe.write(self.pipe.tail, pcm)

    def release(self) -> None:
        """Open the gate: held audio may be heard. From any thread; idempotent."""
        if self.playout.release():
            self._settle_soon()

    def seek(self, frame: int) -> bool:
        """Discard everything that was written. The next bytes to be written begin with `frame`.

        The sink fades the old audio out and the new audio in, 5 ms each. The gate closes, and
        `position_frames` is `frame` immediately. For the decoder's thread; a seek after `finish` allows
        further writes. Returns False, and changes nothing, if the sink has taken the last frame or the
        player stopped.
        """
        self.before_write()
        self._skips = ()
        if not self.playout.seek(frame):
            return False
        self.failure = None
        self.seeks += 1
        self._settle_soon()
        return True

    def skip(self, frame: int, frames: int) -> None:
        """Count the next bytes to be written from `frame + frames`: the stream lacks `frames` before them."""
        (at, length), *others = (*self._skips, (frame, frames))
        if len(others) == MOST_SKIPS:  # more than the buffer has room for
            others[0] = (at, length + others[0][1])
        else:
            others.insert(0, (at, length))
        self._skips = tuple(others)

    def finish(self, failure: Exception | None = None) -> None:
        """End the audio, with `failure` or because the stream ended. The first call counts."""
        if not self.pipe.closed:
            self.failure = failure
            self.pipe.close()
        self.release()

    # --- the player ----------------------------------------------------------------------------------

    @property
    def phase(self) -> BufferPhase:
        return BufferPhase(self.playout.phase)

    @property
    def held(self) -> bool:
        """True while audio is held back, until `release`."""
        return self.playout.held

    @property
    def closed(self) -> bool:
        """True once the player has stopped."""
        return self.phase is BufferPhase.CLOSED

    @property
    def over(self) -> bool:
        """True if the sink takes no more audio of this buffer, because it has ended or was closed."""
        return self.phase in (BufferPhase.ENDED, BufferPhase.CLOSED)

    @property
    def ended(self) -> bool:
        """True once the sink has taken the last frame."""
        return self.phase is BufferPhase.ENDED

    @property
    def paused(self) -> bool:
        """True while the listener pauses the buffer, in any phase."""
        return self.playout.paused

    @property
    def frames(self) -> int:
        """Frames that the sink has taken. A seek does not change their number."""
        return self.playout.frames

    @property
    def position_frames(self) -> int:
        """The playhead: the number of the next frame that the sink takes."""
        position = self.playout.position_frames
        for frame, frames in self._skips:
            position += frames if position >= frame else 0
        return position

    @property
    def heard_seconds(self) -> float:
        """Seconds of `frames` that have left the device and its output latency. Never decreases."""
        return self.playout.heard_frames / self.format.rate_hz

    @property
    def underruns(self) -> int:
        """Stalls: times that the audio ran dry and continued, of any length. Running dry just before the end
        does not count. Counted when the audio continues."""
        return self.playout.underruns

    @property
    def device_underruns(self) -> int:
        """Drop-outs of the device: times that its thread was late by more than the device held."""
        return self.playout.device_underruns

    @property
    def first_audio_at(self) -> float | None:
        """`time.perf_counter()` when the sink took the first frame."""
        if self._first_audio_at is None and (age := self.playout.first_audio_age_seconds) is not None:
            self._first_audio_at = time.perf_counter() - age
        return self._first_audio_at

    @property
    def demand(self) -> Demand:
        """The urgency of the next bytes. A draining sink always waits for them."""
        if self.paused:
            return Demand.PAUSED
        return Demand.FED if self.phase is BufferPhase.PLAYING else Demand.WAITING

    def set_paused(self, paused: bool, /) -> None:
        """Hold the playhead; decoding and reading continue until the buffers are full.

        A device fades out first, and in when it continues, with the next sample.
        """
        self.playout.set_paused(paused)
        self.settle()

    def set_gain(self, gain: float) -> None:
        """Set the gain from the next frame on, ramped over `FADE_SECONDS` to avoid a click."""
        self.playout.set_gain(gain, ramp_frames=self._fade_frames if self.frames else 0)

    def set_duck(self, gain: float, *, ramp_seconds: float) -> None:
        """Set a second gain, which is multiplied with the volume's gain, over a ramp."""
        frames = self._ramp_frames(ramp_seconds)
        self.playout.set_duck(gain, ramp_frames=frames if self.frames else 0)

    def _ramp_frames(self, seconds: float) -> int:
        return min(int(seconds * self.format.rate_hz), 0xFFFF_FFFF)

    def interrupt(self) -> None:
        """Make one `wait_room` of the decoder's thread return False: the current call, or the next one that
        would block. From any thread."""
        self.playout.interrupt()

    def fade_out(self, seconds: float) -> None:
        """Fade out over `seconds`, and close the buffer once the sink has taken the fade. Close it at once if
        nothing of it is heard."""
        self.playout.stop(fade_frames=self._ramp_frames(seconds))
        self.fades_out = not self.closed
        self.settle()

    def link(self, following: PcmBuffer) -> bool:
        """Let a device that plays this buffer continue with `following`, in the same period. Returns False
        for another format, and if another buffer follows already."""
        return following.format == self.format and self.playout.follow_with(following.playout)

    def mix(self, overlay: PcmBuffer | None) -> None:
        """Mix the audio of `overlay`, which has the same format, into this buffer's until it is replaced.

        The sink starts if either is ready. Once this buffer is closed, `overlay` is held with a fade.
        """
        previous, self._mixed = self._mixed, overlay
        for buffer in (self, previous):
            if buffer is not None:
                buffer.playout.interrupt_take()
        if overlay is not None:
            overlay._below = ref(self)
            overlay.set_delay(self.device_seconds)
        is_mixed = self.playout.mix(None if overlay is None else overlay.playout)
        assert is_mixed, "expected a buffer of the same format"
        self.settle()

    def withdraw(self) -> None:
        """Close the buffer before its turn: a device skips it."""
        self.playout.withdraw()

    def close(self) -> None:
        """Silence the buffer; a blocked writer or taker gets `ClosedError`. Idempotent."""
        if self.playout.close():
            self._settle_soon()

    @property
    def buffered_seconds(self) -> float:
        """The audio that the sink will take."""
        return self.playout.buffered_bytes / self.format.bytes_per_second

    def settle(self) -> None:
        """React to the current phase, in the trio thread. A sink calls this when its device reports a
        change. The mixed-in buffer reacts too, because a device reports for both."""
        self._settle_alone()
        for other in (self._mixed, None if self._below is None else self._below()):
            if other is not None:
                for buffer in (self, other):
                    buffer.playout.interrupt_take()
                other._settle_alone()

    def _settle_alone(self) -> None:
        phase = self.phase
        has_overlay = self._mixed is not None and self._mixed.phase is not BufferPhase.FILLING
        if phase is not BufferPhase.FILLING or has_overlay:
            self._ready.set()
        if phase is BufferPhase.CLOSED:
            self.playout.close()  # wakes writers and takers, which the end of a fade in a callback does not
        self._changed.set()
        self._changed = trio.Event()
        self._on_change()

    def _settle_soon(self) -> None:
        self._token.run_sync_soon(self.settle, idempotent=True)


class PcmSequence:
    """The buffers that a sink plays one after another: an async iterator.

    An open sequence makes the sink wait for the next one until `end`. Complete sequences link their buffers
    themselves.
    """

    def __init__(self, *buffers: PcmBuffer, is_open: bool = False) -> None:
        self.is_open = is_open
        """True if more buffers may be appended."""
        self._waiting = deque(buffers)
        self._changed = trio.Event()
        for before, following in pairwise(buffers):
            before.link(following)

    def append(self, buffer: PcmBuffer) -> None:
        self._waiting.append(buffer)
        self._changed.set()

    def end(self) -> None:
        """Record that no buffer follows."""
        self.is_open = False
        self._changed.set()

    def on_next(self) -> None:
        """Called when the sink asks for the next buffer, and so is done with the last one. A subclass
        overrides it."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PcmBuffer:
        await trio.lowlevel.checkpoint()
        self.on_next()
        while not self._waiting:
            if not self.is_open:
                raise StopAsyncIteration
            self._changed = trio.Event()
            await self._changed.wait()
        return self._waiting.popleft()
