"""Two inputs on one sink: music, and speech over it.

The music plays as if the wrapped sink played it alone: its formats, gaps and seeks do not change. The call
that takes the music also mixes in the speech (`PcmBuffer.mix`), so mixing adds no delay, and neither waits
for the other. Speech in another format is converted to the music's.

    music.play ──▶ buffers ──▶ the wrapped sink
    over.play  ──▶ mixed into the music's current buffer; played alone if no music of its format plays
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Self

import trio

from playhead.concurrency import run_thread, unwrap_exception_group
from playhead.errors import ClosedError
from playhead.playback.conversion import PcmConverter
from playhead.playback.formats import PIECE_FRAMES, PcmFormat
from playhead.playback.pcm_buffer import FADE_SECONDS, PcmBuffer

if TYPE_CHECKING:
    from playhead.playback.sinks.sink import Sink

NEXT_SECONDS = 0.05
"""Limits the wait for the music's next item while speech plays. Then the speech continues alone. Sinks hold
more audio than this, so no gap is heard."""


class MixingSink:
    """Plays music on `sink`, and mixes in the speech that `over` plays: the sum of their samples, clipped at
    full scale. `Player.announce` uses it; a player makes its own unless it gets one.

    Each of the two inputs plays one queue at a time; a further call of `play` waits. Speech starts with the
    sink's next period, even while the music is paused or still loading. If the music ends, changes its
    format or is stopped, the speech goes on to its end before other music begins. No sample is lost, but
    after a stop the device is reopened, with a gap. A sink that takes audio as fast as it is decoded (files)
    gets the speech between two pieces of the music.
    """

    def __init__(self, sink: Sink) -> None:
        self.over = OverSink(self)
        """The second input, which is a sink, too."""
        self._music: Music | None = None
        """The input that the wrapped sink plays; None while it plays no music."""
        self._sink = sink
        self._lock = trio.Lock()
        """Held while the wrapped sink plays."""
        self.output_latency_seconds: float = getattr(sink, "output_latency_seconds", 0.0)
        """The latency of the wrapped sink; see `Player`."""

    @property
    def name(self) -> str:
        return self._sink.name

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `Sink.play` of the wrapped sink."""
        with unwrap_exception_group():
            async with self._lock, trio.open_nursery() as nursery:
                self._music = Music(buffers, nursery, self.over)
                try:
                    await self._sink.play(self._music)
                finally:
                    self._music = None
                nursery.cancel_scope.cancel()

    async def _play_alone(self, rest: AsyncIterator[PcmBuffer], *, on_begin: Callable[[], None]) -> None:
        """Play the rest of the speech as soon as no music plays."""
        async with self._lock:
            on_begin()
            await self._sink.play(rest)


class OverSink:
    """The second input of a mixing sink; see `MixingSink`."""

    def __init__(self, mixing: MixingSink) -> None:
        self.buffer: PcmBuffer | None = None
        """The speech that plays, in the format of the music."""
        self._mixing = mixing
        self._lock = trio.Lock()

    @property
    def name(self) -> str:
        return self._mixing.name

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `Sink.play`. Raises an error of the wrapped sink only while the speech plays alone."""
        async with self._lock:
            async for buffer in buffers:
                music = None if self._mixing._music is None else self._mixing._music.buffer
                if music is None or music.format == buffer.format:
                    await self._say(buffer, buffers)
                else:
                    await self._say_converted(buffer, buffers, music.format)

    async def _say_converted(
        self, buffer: PcmBuffer, buffers: AsyncIterator[PcmBuffer], format: PcmFormat
    ) -> None:
        speech = PcmBuffer(format, token=trio.lowlevel.current_trio_token())
        with unwrap_exception_group():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_convert, buffer, speech)
                await self._say(speech, buffers)

    async def _say(self, speech: PcmBuffer, buffers: AsyncIterator[PcmBuffer]) -> None:
        """Play `speech`; without music, play the rest of `buffers` as well.

        Two tasks run: this one waits for the end of the speech while it is mixed into the music, and
        `_play_alone` waits for the sink. If the speech ends first, that wait is cancelled. If the sink is
        free first, `on_begin` ends this wait, and the sink plays what is left; a device may then go on to the
        next buffer by itself.
        """
        with unwrap_exception_group():
            async with aclosing(_with_rest(speech, buffers)) as rest, trio.open_nursery() as nursery:
                self.buffer = speech
                try:
                    if self._mixing._music is not None:
                        self._mixing._music.mix(speech)
                    with trio.CancelScope() as mixed:
                        nursery.start_soon(partial(self._mixing._play_alone, rest, on_begin=mixed.cancel))
                        while not speech.over:
                            await speech.wait_change()
                        await trio.sleep(speech.device_seconds)
                    if not mixed.cancel_called:
                        nursery.cancel_scope.cancel()
                finally:
                    self.buffer = None
                    is_fading = speech.fades_out and not speech.over  # its last audio is still to be mixed in
                    if self._mixing._music is not None and not is_fading:
                        self._mixing._music.mix(None)


async def _with_rest(first: PcmBuffer, rest: AsyncIterator[PcmBuffer]) -> AsyncGenerator[PcmBuffer]:
    yield first
    async for buffer in rest:
        yield buffer


class Music:
    """The buffers for the wrapped sink: the music's, and the speech's if it cannot be mixed in."""

    def __init__(self, buffers: AsyncIterator[PcmBuffer], nursery: trio.Nursery, over: OverSink) -> None:
        self.buffer: PcmBuffer | None = None
        """The buffer that the sink plays."""
        self._buffers = buffers
        self._nursery = nursery
        self._over = over
        self._following: PcmBuffer | None = None
        self._is_requested = self._has_arrived = False
        self._changed = trio.Event()

    def mix(self, over: PcmBuffer | None) -> None:
        if self.buffer is not None:
            self.buffer.mix(over)
        self._changed.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> PcmBuffer:
        """Return the music's next item, with the speech mixed in. The speech itself is next if that item has
        another format, does not exist, or has not arrived in `NEXT_SECONDS`."""
        if self._over.buffer is not None:
            # The sink reports a change of either buffer to the music's. This call may be faster than that.
            self._over.buffer.settle()
        if not self._is_requested:  # otherwise the music was requested before the speech played alone
            self._is_requested = True
            self._nursery.start_soon(self._request)
        with trio.CancelScope() as waiting:
            while not self._has_arrived:
                waiting.deadline = trio.current_time() + (math.inf if self._speech is None else NEXT_SECONDS)
                self._changed = trio.Event()
                await self._changed.wait()
        speech, following = self._speech, self._following
        if speech is not None and (following is None or following.format != speech.format):
            self.buffer = speech
            return speech
        self._is_requested = self._has_arrived = False
        self.buffer, self._following = following, None
        if following is None:
            raise StopAsyncIteration
        following.mix(speech)
        return following

    async def _request(self) -> None:
        self._following = await anext(self._buffers, None)
        self._has_arrived = True
        self._changed.set()

    @property
    def _speech(self) -> PcmBuffer | None:
        """The speech that goes on beyond the current buffer."""
        speech = self._over.buffer
        return None if speech is None or speech is self.buffer or speech.over else speech


async def _convert(source: PcmBuffer, target: PcmBuffer) -> None:
    """Take all of `source` and write it to `target`, in `target`'s format."""

    def convert() -> None:
        block = memoryview(bytearray(PIECE_FRAMES * source.format.frame_bytes))
        converter = PcmConverter(source.format, target.format)
        try:
            while taken_bytes := source.take(block):
                converter.feed(block[:taken_bytes])
                while pcm := bytes(converter.read()):
                    while not target.wait_room(len(pcm)):
                        target.release()
                    target.write(pcm)
                    target.release()
            target.finish()
        except ClosedError:
            pass  # one of the two was stopped
        except Exception:  # the stream broke; its item reports the error after the audio before it
            target.finish()
            raise
        finally:
            converter.close()

    try:
        await run_thread(convert, wake=source.close)
    finally:
        if not target.pipe.closed:
            target.fade_out(FADE_SECONDS)
