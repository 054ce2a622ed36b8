"""Where a sink gets its PCM: the one object that the audio path shares with the player.

Three kinds of threads meet here. The decoder's thread writes the pipe; the sink's side is either a
device's callback (`fill`, which never blocks, takes no lock and never raises) or a thread of its own
(`take`, which blocks); the player (trio) opens, pauses and closes. Each number has one writer, so plain
attributes are enough; only waiting needs an event.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import trio

from playhead._core import Pipe, scale_pcm16
from playhead.errors import ClosedError
from playhead.playback.formats import PIECE_FRAMES, PcmFormat

BUFFER_SECONDS = 0.35
"""PCM between the decoder and the sink: a busy machine's worst pauses (43 ms beside a thread that holds
the GIL) several times over, and little enough that the byte pipe stays the real buffer."""
_MIN_PIPE_FRAMES = 2 * PIECE_FRAMES
"""Room for a piece while the one before it is taken, however low the rate."""


class PcmFeed:
    """PCM in `format`, on its way from one decoder to one sink.

    Made in any thread; `token` is the trio loop's. `on_change` is called in the trio thread, soon
    after the first sound and whenever sound runs dry or comes back; one call may tell several changes.
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
        self.frames = 0
        """Frames that the sink has taken: the playhead."""
        self.underruns = 0
        """Callbacks that wanted more frames than there were, and after which more came: an end is none."""
        self.starving = False
        """Whether the newest callback wanted more frames than there were, and it was not the end."""
        self.ended = False
        """The sink has taken the last frame."""
        self.first_sound_at: float | None = None
        """`time.perf_counter()` when the sink took the first frame."""
        self.failure: Exception | None = None
        """What broke the stream: the sound before it is played, then `take` raises it."""
        self._dry_fills = 0  # they count once more sound comes: until then it may be the end
        self._ready = trio.Event()
        self._running = threading.Event()
        self._gate_open = False
        self._paused = False
        self._closed = False
        self._gain = gain
        self._applied_gain = gain
        self._on_change = on_change
        self._token = token

    # --- the sink ------------------------------------------------------------------------------------

    async def wait_ready(self) -> None:
        """Until the start gate is open: a device that starts now has sound in its first callback."""
        await self._ready.wait()

    def fill(self, out: memoryview) -> int:
        """For a callback: put sound into `out` and silence into the rest. Never blocks, never raises.

        Returns the bytes of sound. While paused or before the start gate, all is silence.
        """
        if not self._gate_open or self._paused or self._closed:
            out[:] = bytes(len(out))
            return 0
        sound = self.pipe.readinto_nowait(out) or 0
        if sound and self._dry_fills:
            self.underruns += self._dry_fills
            self._dry_fills = 0
        if sound < len(out):
            # Ran dry, or came to the end: a second look tells which.
            more = self.pipe.readinto_nowait(out[sound:])
            if more:
                sound += more
            if sound < len(out):
                out[sound:] = bytes(len(out) - sound)
                self._ran_dry(ended=more == 0)
        if sound == len(out) and self.starving:
            self.starving = False
            self._tell()
        self._count(out[:sound])
        return sound

    def take(self, out: memoryview) -> int:
        """For a sink's own thread: block until there is sound and put it into `out`.

        Returns the bytes of sound; 0 is the end.

        Raises `ClosedError` when the player stopped, and what broke the stream after the sound before it:
        in both cases, drop what was made of the sound so far.
        """
        self._running.wait()
        sound = 0 if self._closed else self.pipe.readinto(out)
        if self._closed:
            raise ClosedError("the player stopped while the sink was taking sound")
        if sound == 0:
            self.ended = True
            if self.failure is not None:
                raise self.failure
        self._count(out[:sound])
        return sound

    # --- the decoder ---------------------------------------------------------------------------------

    def finish(self, failure: Exception | None = None) -> None:
        """No more sound comes, for `failure` or because the stream ended. The first call counts."""
        if not self.pipe.closed:
            self.failure = failure
            self.pipe.close()
        self.open_gate()

    # --- the player ----------------------------------------------------------------------------------

    def open_gate(self) -> None:
        """There is enough to begin with. From any thread; idempotent."""
        if not self._gate_open:
            self._gate_open = True
            self._token.run_sync_soon(self._settle)

    @property
    def closed(self) -> bool:
        """The player stopped."""
        return self._closed

    @property
    def gate_open(self) -> bool:
        return self._gate_open

    def set_paused(self, paused: bool, /) -> None:
        """The playhead stands still; decoding and reading go on until the buffers are full."""
        self._paused = paused
        self._settle()

    def set_gain(self, gain: float) -> None:
        """Takes effect with the next piece of sound, ramped over it so that it does not click."""
        self._gain = gain

    def close(self) -> None:
        """Silence from now on; a blocked writer or taker is woken with `ClosedError`. Idempotent."""
        self._closed = True
        self.pipe.close()
        self._running.set()

    @property
    def buffered_seconds(self) -> float:
        return (self.pipe.tail - self.pipe.head) / self.format.bytes_per_second

    # -------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if self._gate_open:
            self._ready.set()
        if self._closed or (self._gate_open and not self._paused):
            self._running.set()
        else:
            self._running.clear()
        self._on_change()

    def _ran_dry(self, *, ended: bool) -> None:
        if ended:
            self.ended = True
            return
        self._dry_fills += 1
        if not self.starving:
            self.starving = True
            self._tell()

    def _count(self, sound: memoryview) -> None:
        if not sound:
            return
        start, self._applied_gain = self._applied_gain, self._gain
        scale_pcm16(sound, start, self._applied_gain)
        self.frames += len(sound) // self.format.frame_bytes
        if self.first_sound_at is None:
            self.first_sound_at = time.perf_counter()
            self._tell()

    def _tell(self) -> None:
        self._token.run_sync_soon(self._on_change, idempotent=True)
