"""The laws of sinks: a suite for a sink of your own.

    @pytest.mark.parametrize("law", SINK_LAWS, ids=law_name)
    async def test_my_sink(law):
        await law(MySink)

A law takes a function that makes a fresh sink, runs under trio, and raises `AssertionError`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from itertools import cycle, islice

import trio

from playhead.errors import DecodeError
from playhead.playback.formats import PcmFormat, SampleFormat
from playhead.playback.pcm_buffer import PcmBuffer, PcmSequence
from playhead.playback.sinks import Sink

MakeSink = Callable[[], Sink]
SinkLaw = Callable[[MakeSink], Awaitable[None]]

PATIENCE_SECONDS = 20.0
"""Limits the time of a law. A sink that takes longer hangs."""
_STEREO = PcmFormat(rate_hz=44100, channels=2)
_FORMATS = (
    PcmFormat(rate_hz=8000, channels=1),
    _STEREO,
    PcmFormat(rate_hz=48000, channels=6),
    PcmFormat(rate_hz=48000, channels=2, sample=SampleFormat.F32),
)


def law_name(law: SinkLaw) -> str:
    """Return a law as a sentence, for test ids."""
    return getattr(law, "__name__", repr(law)).replace("_", " ")


def tone(format: PcmFormat, *, frames: int) -> bytes:
    """Return whole frames of a tone."""
    return bytes(islice(cycle(range(1, 128)), frames * format.frame_bytes))


def buffer_of(
    pcm: bytes, format: PcmFormat = _STEREO, *, failure: Exception | None = None, gain: float = 1.0
) -> PcmBuffer:
    """Return a buffer with `pcm` (at most `BUFFER_SECONDS`) and its end, and an open start gate."""
    buffer = open_buffer(format, gain=gain)
    buffer.pipe.write(0, pcm)
    buffer.finish(failure)
    return buffer


def open_buffer(format: PcmFormat = _STEREO, *, gain: float = 1.0) -> PcmBuffer:
    """Return a buffer without audio and with a closed start gate."""
    return PcmBuffer(format, token=trio.lowlevel.current_trio_token(), gain=gain)


async def plays_every_frame_and_returns(make_sink: MakeSink) -> None:
    for format in _FORMATS:
        frames = format.rate_hz // 10
        buffer = buffer_of(tone(format, frames=frames), format)
        await _play(make_sink(), buffer)
        assert buffer.frames == frames, f"{buffer.frames} of {frames} frames were taken"
        assert buffer.ended
        assert buffer.first_audio_at is not None
        assert buffer.underruns == 0


async def plays_nothing_and_returns(make_sink: MakeSink) -> None:
    buffer = buffer_of(b"")
    await _play(make_sink(), buffer)
    assert buffer.frames == 0
    assert buffer.first_audio_at is None


async def plays_one_feed_after_another(make_sink: MakeSink) -> None:
    sink = make_sink()
    for frames in (1000, 2000):
        buffer = buffer_of(tone(_STEREO, frames=frames))
        await _play(sink, buffer)
        assert buffer.frames == frames


async def plays_each_of_a_sequence_in_its_own_format(make_sink: MakeSink) -> None:
    buffers = [
        buffer_of(tone(format, frames=frames), format)
        for format in (*_FORMATS, _FORMATS[-1])
        for frames in (700, 900)
    ]
    await _play(make_sink(), *buffers)
    assert [buffer.frames for buffer in buffers] == [700, 900] * (len(_FORMATS) + 1)
    assert all(buffer.ended for buffer in buffers)


async def goes_on_with_a_buffer_that_arrives_late_and_is_done_with_the_one_before(
    make_sink: MakeSink,
) -> None:
    for format in _FORMATS:
        first = buffer_of(tone(_STEREO, frames=1000))
        second = buffer_of(tone(format, frames=1000), format)
        buffers = _OpenSequence(first)
        with _patience():
            async with trio.open_nursery() as nursery:
                nursery.start_soon(make_sink().play, buffers)
                await buffers.asked_again.wait()
                assert first.ended, "asked for the next buffer before it took the last frame"
                buffers.append(second)
                buffers.end()
        assert second.frames == 1000


async def plays_what_follows_a_seek(make_sink: MakeSink) -> None:
    buffer = open_buffer()
    buffer.write(tone(_STEREO, frames=2000))
    buffer.set_paused(True)
    buffer.release()
    async with _playing(make_sink, buffer):
        assert buffer.seek(90_000)
        buffer.write(tone(_STEREO, frames=500))
        buffer.finish()
        buffer.set_paused(False)
    assert (buffer.frames, buffer.position_frames) == (500, 90_500)


async def takes_nothing_before_the_gate_opens(make_sink: MakeSink) -> None:
    buffer = open_buffer()
    buffer.pipe.write(0, tone(_STEREO, frames=1000))
    async with _playing(make_sink, buffer):
        assert buffer.frames == 0
        buffer.finish()
    assert buffer.frames == 1000


async def holds_the_playhead_while_paused(make_sink: MakeSink) -> None:
    buffer = buffer_of(tone(_STEREO, frames=1000))
    buffer.set_paused(True)
    async with _playing(make_sink, buffer):
        assert buffer.frames == 0
        buffer.set_paused(False)
    assert buffer.frames == 1000


async def goes_on_after_running_dry(make_sink: MakeSink) -> None:
    buffer = open_buffer()
    piece = tone(_STEREO, frames=1000)
    buffer.pipe.write(0, piece)
    buffer.release()
    async with _playing(make_sink, buffer):
        assert not buffer.ended
        buffer.pipe.write(len(piece), piece)
        buffer.finish()
    assert buffer.frames == 2000


async def plays_what_came_before_a_failure_and_does_not_hide_it(make_sink: MakeSink) -> None:
    error = DecodeError("damaged")
    buffer = buffer_of(tone(_STEREO, frames=1000), failure=error)
    with suppress(DecodeError):  # a sink with its own thread may raise it, one with a callback cannot
        await _play(make_sink(), buffer)
    assert buffer.frames == 1000
    assert buffer.failure is error


async def is_silent_and_done_once_stopped(make_sink: MakeSink) -> None:
    for begun in (False, True):
        buffer = open_buffer()
        if begun:
            buffer.pipe.write(0, tone(_STEREO, frames=10_000))
            buffer.release()
        async with _playing(make_sink, buffer) as scope:
            buffer.close()
            scope.cancel()
        frames = buffer.frames
        await _play(make_sink(), buffer_of(tone(_STEREO, frames=1000)))
        assert buffer.frames == frames, "frames were taken after the sink was stopped"


async def is_done_when_only_cancelled(make_sink: MakeSink) -> None:
    buffer = open_buffer()
    buffer.release()
    async with _playing(make_sink, buffer) as scope:
        scope.cancel()


async def counts_frames_at_no_volume_too(make_sink: MakeSink) -> None:
    buffer = buffer_of(tone(_STEREO, frames=1000), gain=0.0)
    await _play(make_sink(), buffer)
    assert buffer.frames == 1000


SINK_LAWS: tuple[SinkLaw, ...] = (
    plays_every_frame_and_returns,
    plays_nothing_and_returns,
    plays_one_feed_after_another,
    plays_each_of_a_sequence_in_its_own_format,
    goes_on_with_a_buffer_that_arrives_late_and_is_done_with_the_one_before,
    plays_what_follows_a_seek,
    takes_nothing_before_the_gate_opens,
    holds_the_playhead_while_paused,
    goes_on_after_running_dry,
    plays_what_came_before_a_failure_and_does_not_hide_it,
    is_silent_and_done_once_stopped,
    is_done_when_only_cancelled,
    counts_frames_at_no_volume_too,
)


class _OpenSequence(PcmSequence):
    """An open sequence that reports when it is asked for a second buffer."""

    def __init__(self, first: PcmBuffer) -> None:
        self.asked_again = trio.Event()
        self._asks = 0
        super().__init__(first, is_open=True)

    def on_next(self) -> None:
        self._asks += 1
        if self._asks == 2:
            self.asked_again.set()


async def _play(sink: Sink, *buffers: PcmBuffer) -> None:
    with _patience():
        await sink.play(PcmSequence(*buffers))


@asynccontextmanager
async def _playing(make_sink: MakeSink, buffer: PcmBuffer) -> AsyncIterator[trio.CancelScope]:
    """Play `buffer` in a task. The block is entered once another sink has played a buffer meanwhile."""
    with _patience():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(make_sink().play, PcmSequence(buffer))
            await _play(make_sink(), buffer_of(tone(_STEREO, frames=1000)))
            yield nursery.cancel_scope


def _patience() -> AbstractContextManager[trio.CancelScope]:
    return trio.fail_after(PATIENCE_SECONDS)
