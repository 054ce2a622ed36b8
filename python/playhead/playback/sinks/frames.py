"""Frames of PCM or Opus of a fixed length, paced in real time, for a device at the other end of a connection.

The first frames (120 ms, and at least two frames) are delivered at once or nearly so. Then follows one frame
per frame's duration, so that the device keeps this lead, less up to one frame. A pause, an underrun or a slow
consumer shifts the schedule. Nothing is delivered faster to catch up, and nothing is lost. Sessions that play
at the same time deliver their frames at different times within a frame's duration.

Everything runs in the trio thread. A frame of 60 ms is converted and encoded in a third of a millisecond;
handing it to another thread would take as long again.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO, TypeAlias

import trio

from playhead.concurrency import unwrap_exception_group
from playhead.errors import UsageError
from playhead.extras import require_extra
from playhead.playback.conversion import PcmConverter, check_rate_and_channels, little_endian
from playhead.playback.formats import PIECE_FRAMES, PcmFormat
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.sinks.frame_schedule import LATE_SHARE, FrameSchedule

FRAME_MS = 60
"""The default duration of a frame: Opus's longest, which ESP32 voice devices use, with little overhead."""
LEAD_MS = 120
"""The default lead ahead of the playhead: as much as a device holds. It is a time, because a fixed number of
short frames would be too little."""
CONCLUDE_SECONDS = 0.05
"""Limits the time in which the consumer may take the last event after a stop: half of the time that
`Player.stop` may take."""
OPUS_BIT_RATE = 64_000
OPUS_COMPLEXITY = "5"
"""Opus's effort, of 10. Half of the effort takes two thirds of the CPU time, without an audible difference at
this bit rate."""
_OPUS_RATES_HZ = (8000, 12_000, 16_000, 24_000, 48_000)
_OPUS_MS = (10, 20, 40, 60)


class FrameCodec(StrEnum):
    PCM = "pcm"
    """Signed 16-bit little-endian samples, interleaved."""
    OPUS = "opus"
    """One Opus packet per frame, without a container. Needs the extra `formats`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioFrame:
    """One frame.

    `timestamp_seconds` is when it is to be heard, on a clock that is 0 at the sink's first frame. Consecutive
    frames are one duration apart; a jump is silence (a pause, an underrun, a shifted schedule).
    """

    data: bytes
    timestamp_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearFrames:
    """Tells the device to drop every frame that has not been heard, because the player seeks or was stopped.

    The next frame, if any, is to be played at once. Its timestamp may be lower than any of the dropped
    frames.
    """


FrameEvent: TypeAlias = AudioFrame | ClearFrames
FrameConsumer: TypeAlias = Callable[[FrameEvent], Awaitable[object]] | trio.MemorySendChannel[FrameEvent]


class FramesSink:
    """Delivers frames to `consumer`: an async function, or the sending end of a trio channel.

    `frame_ms` (default 60) is the duration of a frame, `rate_hz` and `channels` (default 16 kHz mono, which
    speech devices take) its format. `lead_ms` (default 120, and at least two frames) is delivered ahead of
    the playhead. PCM takes any duration of whole samples up to a second. Opus takes 10, 20, 40 or 60 ms at 8,
    12, 16, 24 or 48 kHz with one or two channels, and `opus_bit_rate` bits per second (default 64,000: music
    at 16 kHz is hard to tell from the original). Other values raise `UsageError`, and so does Opus without
    the extra `formats`.

    A pause fades out within one more frame; then nothing is delivered until playing resumes. A seek and a
    stop deliver `ClearFrames`. A consumer that blocks delays the frames after it; `late_frames` counts how
    often it, or a busy machine, shifted the schedule. When the player stops, a blocked consumer is cancelled,
    and then has 50 ms to take `ClearFrames`: use a channel in front of a connection that a cancellation would
    break.

    It plays one queue at a time. An error of the consumer, such as `trio.BrokenResourceError` of a channel
    that nobody reads, fails the item.
    """

    def __init__(
        self,
        consumer: FrameConsumer,
        *,
        codec: FrameCodec = FrameCodec.PCM,
        frame_ms: int = FRAME_MS,
        lead_ms: int = LEAD_MS,
        rate_hz: int = 16_000,
        channels: int = 1,
        opus_bit_rate: int = OPUS_BIT_RATE,
    ) -> None:
        check_rate_and_channels(rate_hz, channels)
        if not 1 <= frame_ms <= 1000 or rate_hz * frame_ms % 1000:
            raise UsageError(
                f"frame_ms: expected 1 to 1000 ms of whole samples, got {frame_ms} ms at {rate_hz} Hz"
            )
        self._format = PcmFormat(rate_hz=rate_hz, channels=channels)
        self._frame_bytes = rate_hz * frame_ms // 1000 * self._format.frame_bytes
        self._encode: Callable[[bytes], bytes] = little_endian
        if FrameCodec(codec) is FrameCodec.OPUS:
            self._encode = _opus_encoder(self._format, frame_ms=frame_ms, bit_rate=opus_bit_rate)
        self._deliver = consumer.send if isinstance(consumer, trio.MemorySendChannel) else consumer
        self._frame_seconds = frame_ms / 1000
        self._schedule = FrameSchedule(self._frame_seconds, lead_frames=max(2, -(-lead_ms // frame_ms)))
        self._held_seconds = 0.0
        """The audio that the consumer holds in addition to the lead, as far as its answers tell."""
        self._buffer: PcmBuffer | None = None
        """The item that plays."""
        self._sessions = _Sessions()
        self._pcm = bytearray()
        """The samples of the next frame so far."""
        self._in_gap = True
        """True if the next frame does not follow the last one directly."""
        self._unfinished = False
        """True while an item plays, so that a stop has to clear its frames."""
        self._tail_until = -math.inf
        """The time until which the last, partial frame of an item waits for the next item."""

    @property
    def name(self) -> str:
        return "frames"

    @property
    def late_frames(self) -> int:
        """Frames that were late by more than half their duration, and shifted the schedule."""
        return self._schedule.late_frames

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `Sink.play`. Raises what the consumer raises.

        A partial frame at the end of an item is completed from the next item, which is requested before the
        last frames are heard. If cancelled then, the partial frame is delivered at once, padded.
        """
        self._pcm.clear()
        self._in_gap, self._unfinished = True, False
        audio: _Audio | None = None
        with unwrap_exception_group(), _own_slot(self._schedule) as self._sessions:
            async with trio.open_nursery() as nursery:
                upcoming = _Upcoming(buffers, nursery)
                try:
                    while (buffer := await self._next_buffer(upcoming, audio)) is not None:
                        if audio is None or audio.format != buffer.format:
                            if audio is not None:
                                audio.close()
                            audio = _Audio(buffer.format, self._format)
                        await self._play_one(buffer, audio)
                    await trio.sleep_until(self._schedule.heard)
                except trio.Cancelled:
                    with trio.CancelScope(shield=True), trio.move_on_after(CONCLUDE_SECONDS):
                        if self._unfinished:
                            await self._clear()
                        elif self._pcm:
                            await self._deliver_frame(at_once=True)
                    raise
                finally:
                    self._buffer = None
                    if audio is not None:
                        audio.close()

    async def _next_buffer(self, upcoming: _Upcoming, audio: _Audio | None) -> PcmBuffer | None:
        """Return the next buffer; None after the last. A partial frame is delivered, padded, unless the
        buffer arrives in time and continues it."""
        upcoming.ask()
        if self._pcm:
            self._tail_until = trio.current_time() + LATE_SHARE * self._frame_seconds
            with trio.CancelScope(deadline=self._tail_until):
                await upcoming.arrived.wait()
            following = upcoming.buffer
            if following is None or audio is None or following.format != audio.format:
                await self._deliver_frame()
        await upcoming.arrived.wait()
        return upcoming.buffer

    async def _play_one(self, buffer: PcmBuffer, audio: _Audio) -> None:
        audio.buffer = self._buffer = buffer
        self._set_held(self._held_seconds)
        # A partial frame of the previous item waits only until `_tail_until` for samples of this one.
        is_tail = bool(self._pcm)
        self._unfinished = True
        seeks = buffer.seeks
        while True:
            with trio.CancelScope(deadline=self._due):
                while buffer.seeks == seeks:
                    await buffer.wait_change()
            if buffer.seeks != seeks:
                seeks = buffer.seeks
                audio.restart()
                await self._clear()
            while (wanted_bytes := self._frame_bytes - len(self._pcm)) and (
                piece := audio.read(wanted_bytes)
            ):
                self._pcm += piece
                is_tail = False
            if len(self._pcm) == self._frame_bytes:
                await self._deliver_frame()
                continue
            if buffer.ended:
                self._unfinished = False
                return
            if buffer.closed:
                return  # the player cancels the sink
            if is_tail:
                with trio.CancelScope(deadline=self._tail_until) as waited:
                    await buffer.wait_change()
                if not waited.cancelled_caught:
                    continue
            if self._pcm and (is_tail or buffer.paused):
                is_tail = False
                await self._deliver_frame()
            self._in_gap = True
            await buffer.wait_change()

    @property
    def _due(self) -> float:
        return -math.inf if self._in_gap else self._schedule.due

    def _set_held(self, seconds: float) -> None:
        self._held_seconds = seconds
        if self._buffer is not None:
            self._buffer.set_delay(self._schedule.lead_seconds + seconds)

    async def _deliver_frame(self, *, at_once: bool = False) -> None:
        """Pad the frame so far with silence, and deliver it when it is due."""
        has_ended = self._in_gap and trio.current_time() > self._schedule.heard
        if not (has_ended or at_once):
            await trio.sleep_until(self._schedule.due)
        data = self._encode(bytes(self._pcm).ljust(self._frame_bytes, b"\0"))
        self._pcm.clear()
        if has_ended:
            self._restart()
        self._in_gap = False
        timestamp_seconds = self._schedule.deliver(trio.current_time())
        await self._deliver(AudioFrame(data=data, timestamp_seconds=timestamp_seconds))

    async def _clear(self) -> None:
        self._pcm.clear()
        self._in_gap = True
        self._restart()
        await self._deliver(ClearFrames())

    def _restart(self) -> None:
        self._schedule.restart(trio.current_time(), alone=self._sessions.playing == 1)


class _Upcoming:
    """The next buffer. A task of its own waits for it, because meanwhile a frame may be due."""

    def __init__(self, buffers: AsyncIterator[PcmBuffer], nursery: trio.Nursery) -> None:
        self._buffers = buffers
        self._nursery = nursery
        self.buffer: PcmBuffer | None = None
        self.arrived = trio.Event()

    def ask(self) -> None:
        self.buffer = None
        self.arrived = trio.Event()
        self._nursery.start_soon(self._ask)

    async def _ask(self) -> None:
        self.buffer = await anext(self._buffers, None)
        self.arrived.set()


class _Audio:
    """The audio of consecutive items of one format, converted to the format of the frames."""

    def __init__(self, format: PcmFormat, target: PcmFormat) -> None:
        self.format = format
        self.buffer: PcmBuffer | None = None
        self._target = target
        self._block = memoryview(bytearray(PIECE_FRAMES * format.frame_bytes))
        self._ahead = b""
        """Samples that were converted beyond the last request: one or two."""
        self._converter = PcmConverter(format, target)

    def read(self, most_bytes: int) -> bytes:
        """Return the next audio, at most `most_bytes`; empty if there is none now."""
        while not self._ahead:
            seconds = most_bytes / self._target.bytes_per_second
            frames = min(math.ceil(seconds * self.format.rate_hz), PIECE_FRAMES)
            room = self._block[: frames * self.format.frame_bytes]
            if self.buffer is None or not (taken_bytes := self.buffer.fill(room)):
                return b""
            self._converter.feed(room[:taken_bytes])
            # The converter takes all there is for a whole piece, and small bites for less.
            while piece := bytes(self._converter.read()):
                self._ahead += piece
        piece, self._ahead = self._ahead[:most_bytes], self._ahead[most_bytes:]
        return piece

    def restart(self) -> None:
        """Forget the audio in the converter: the next audio does not continue it."""
        self._converter.close()
        self._ahead = b""
        self._converter = PcmConverter(self.format, self._target)

    def close(self) -> None:
        self.buffer = None
        self._converter.close()


class _Sessions:
    """Counts the sessions of one trio run."""

    def __init__(self) -> None:
        self.playing = 0
        self.begun = 0


_SESSIONS: trio.lowlevel.RunVar[_Sessions] = trio.lowlevel.RunVar("sessions of frames sinks")
_GOLDEN = (math.sqrt(5) - 1) / 2


@contextmanager
def _own_slot(schedule: FrameSchedule) -> Iterator[_Sessions]:
    """Give the session slots far from the other sessions' slots in this trio run.

    Encoding the frames of many sessions at the same moment would make most of them late. Multiples of the
    golden ratio are spread evenly however many there are.
    """
    try:
        sessions = _SESSIONS.get()
    except LookupError:
        sessions = _Sessions()
        _SESSIONS.set(sessions)
    schedule.slot = sessions.begun * _GOLDEN % 1
    sessions.begun += 1
    sessions.playing += 1
    try:
        yield sessions
    finally:
        sessions.playing -= 1


# --- codecs and files --------------------------------------------------------------------------------------


def _opus_encoder(format: PcmFormat, *, frame_ms: int, bit_rate: int) -> Callable[[bytes], bytes]:
    """Return a function that makes one Opus packet of one frame of 16-bit PCM."""
    require_extra("formats", "frames of Opus")
    if format.rate_hz not in _OPUS_RATES_HZ or format.channels > 2 or frame_ms not in _OPUS_MS:
        raise UsageError(
            f"Opus: expected 8, 12, 16, 24 or 48 kHz, one or two channels and frames of 10, 20, 40 or 60 ms, "
            f"got {format.rate_hz} Hz, {format.channels} channels and {frame_ms} ms"
        )
    if not 6000 <= bit_rate <= 510_000:
        raise UsageError(f"opus_bit_rate: expected 6000 to 510000 (RFC 6716), got {bit_rate}")
    import av  # takes 0.2 s

    layout = ("mono", "stereo")[format.channels - 1]
    context = av.AudioCodecContext.create("libopus", "w")
    context.sample_rate = format.rate_hz
    context.layout = layout
    context.format = "s16"
    context.time_base = Fraction(1, format.rate_hz)
    context.bit_rate = bit_rate
    context.options = {"frame_duration": str(frame_ms), "compression_level": OPUS_COMPLEXITY}
    context.open()
    frame = av.AudioFrame(format="s16", layout=layout, samples=format.rate_hz * frame_ms // 1000)
    frame.sample_rate = format.rate_hz

    def encode(pcm: bytes) -> bytes:
        frame.planes[0].update(pcm)
        (packet,) = context.encode(frame)  # the encoder's frames have the same length, so it is one packet
        return bytes(packet)

    return encode


class FrameFileSink(FramesSink):
    """Writes the frames to a file, each after its length in four bytes (big-endian).

    A length of 0 is a `ClearFrames`. The file holds every frame that a device would have received, also after
    a stop; a further queue is appended. `codec` is as in `FramesSink`; the rest has the defaults of that.
    """

    def __init__(self, path: str | PathLike[str], *, codec: FrameCodec = FrameCodec.PCM) -> None:
        super().__init__(self._write, codec=codec)
        self._path = Path(path)
        self._append = False
        self._file: BinaryIO | None = None

    @property
    def name(self) -> str:
        return f"frames:{self._path}"

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        """See `FramesSink.play`. Raises `OSError` if the file cannot be written."""
        with await trio.to_thread.run_sync(self._open) as self._file:
            self._append = True
            await super().play(buffers)

    def _open(self) -> BinaryIO:
        return self._path.open("ab" if self._append else "wb", buffering=0)

    async def _write(self, event: FrameEvent) -> None:
        data = event.data if isinstance(event, AudioFrame) else b""
        await trio.to_thread.run_sync(self._append_record, len(data).to_bytes(4, "big") + data)

    def _append_record(self, record: bytes) -> None:
        assert self._file is not None
        try:
            while record:  # a disk that becomes full takes a part of it
                record = record[self._file.write(record) :]
        except OSError as error:
            error.filename = fspath(self._path)  # a full disk gives no name
            raise
