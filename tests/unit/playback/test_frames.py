"""The frames sink: pacing in simulated time, and the audio of its frames."""

from __future__ import annotations

import math
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from playhead.errors import UsageError
from playhead.playback import (
    AudioFrame,
    ClearFrames,
    FileMedia,
    FrameCodec,
    FrameFileSink,
    FramesSink,
    Player,
)
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmBuffer, PcmSequence
from playhead.playback.sinks.frame_schedule import FrameSchedule
from playhead.testing.sinks import buffer_of, open_buffer, tone
from tests.tones import decoded_opus, sine, strength_and_rest, wave_file

T = 0.06
SPEECH = PcmFormat(rate_hz=16000, channels=1)
STEREO = PcmFormat(rate_hz=44100, channels=2)
FRAME = 960
"""Samples of a frame."""


def pcm_of(frames: int, *, start: int = 0) -> bytes:
    """Samples that say which they are."""
    return array("h", ((start + at) % 20_000 + 1 for at in range(frames))).tobytes()


class Device:
    """A consumer that remembers what arrived, and when; `react` is awaited on each."""

    def __init__(self, react: Callable[[int], Awaitable[object]] | None = None) -> None:
        self.events: list[tuple[float, AudioFrame | ClearFrames]] = []
        self._react = react
        self._start = trio.current_time()

    async def __call__(self, event: AudioFrame | ClearFrames) -> None:
        self.events.append((trio.current_time() - self._start, event))
        if self._react is not None:
            await self._react(len(self.events))

    @property
    def frames(self) -> list[AudioFrame]:
        return [event for _, event in self.events if isinstance(event, AudioFrame)]

    @property
    def pcm(self) -> bytes:
        return b"".join(frame.data for frame in self.frames)

    @property
    def times(self) -> list[float]:
        return [round(at / T, 3) for at, _ in self.events]

    @property
    def timestamps(self) -> list[float]:
        return [round(frame.timestamp_seconds / T, 3) for frame in self.frames]


async def play(device: Device, *buffers: PcmBuffer, **options: object) -> None:
    await FramesSink(device, **options).play(PcmSequence(*buffers))  # type: ignore[arg-type]


def slow_at_the_third(seconds: float) -> Device:
    async def react(count: int) -> None:
        await trio.sleep(seconds if count == 3 else 0)

    return Device(react)


async def test_two_frames_are_ahead_and_the_rest_follow_in_real_time(autojump_clock: MockClock) -> None:
    device = Device()
    pcm = pcm_of(5 * FRAME)
    await play(device, buffer_of(pcm, SPEECH))
    assert device.times == [0, 0, 1, 2, 3]
    assert device.timestamps == [0, 1, 2, 3, 4]
    assert device.pcm == pcm
    assert trio.current_time() - device._start == pytest.approx(5 * T), "until the last frame is heard"


async def test_the_last_frame_is_padded_with_silence(autojump_clock: MockClock) -> None:
    device = Device()
    pcm = pcm_of(FRAME + 100)
    await play(device, buffer_of(pcm, SPEECH))
    assert [len(frame.data) for frame in device.frames] == [2 * FRAME] * 2
    assert device.pcm == pcm + bytes(2 * (FRAME - 100))


@pytest.mark.parametrize(
    ("frame_ms", "rate_hz", "channels"), [(20, 48000, 2), (10, 8000, 1), (1000, 24000, 1)]
)
async def test_any_duration_rate_and_channels_of_whole_samples(
    frame_ms: int, rate_hz: int, channels: int, autojump_clock: MockClock
) -> None:
    device = Device()
    frames = STEREO.rate_hz // 3
    buffer = buffer_of(tone(STEREO, frames=frames))
    await play(device, buffer, frame_ms=frame_ms, rate_hz=rate_hz, channels=channels)
    samples = rate_hz * frame_ms // 1000
    assert {len(frame.data) for frame in device.frames} == {2 * channels * samples}
    assert len(device.frames) == math.ceil(frames / STEREO.rate_hz * rate_hz / samples)
    assert buffer.frames == frames


@pytest.mark.parametrize(
    ("frame_ms", "lead_ms", "at_once"),
    [(20, 120, 6), (20, 30, 2), (50, 120, 3), (100, 120, 2), (300, 120, 2)],
)
async def test_the_lead_is_a_time_and_at_least_two_frames(
    frame_ms: int, lead_ms: int, at_once: int, autojump_clock: MockClock
) -> None:
    device = Device()
    await play(device, buffer_of(pcm_of(16_000), SPEECH), frame_ms=frame_ms, lead_ms=lead_ms)
    seconds = [time * T for time in device.times]
    ahead = [round(frame_ms / 1000 * max(0, index - at_once + 1), 3) for index in range(len(seconds))]
    assert [round(second, 3) for second in seconds] == ahead
    assert device.timestamps == [round(index * frame_ms / 1000 / T, 3) for index in range(len(ahead))]


async def test_a_pause_fades_out_in_one_frame_and_then_delivers_none(autojump_clock: MockClock) -> None:
    device = Device()
    pcm = pcm_of(5 * FRAME)
    buffer = buffer_of(pcm, SPEECH)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, device, buffer)
        await trio.sleep(0.5 * T)
        buffer.set_paused(True)
        await trio.sleep(100 * T)
        assert device.times == [0, 0, 1]
        buffer.set_paused(False)
    fade = 160
    assert device.frames[2].data[2 * fade :] == bytes(2 * (FRAME - fade)), "the fade, and silence"
    heard = device.pcm[: 2 * (2 * FRAME + fade)] + device.pcm[2 * 3 * FRAME :]
    assert len(heard.rstrip(b"\0")) == len(pcm), "no sample is lost or repeated"
    assert heard[: 2 * 2 * FRAME] == pcm[: 2 * 2 * FRAME]
    after = 2 * (2 * FRAME + 2 * fade)
    assert heard[after : len(pcm)] == pcm[after:], "apart from the fades"
    assert device.times == [0, 0, 1, 100.5, 100.5, 101.5]
    assert device.timestamps == [0, 1, 2, 100.5, 101.5, 102.5], "the timestamps jump over the pause"


async def test_a_pause_shorter_than_what_is_ahead_leaves_no_gap(autojump_clock: MockClock) -> None:
    device = Device()
    buffer = buffer_of(pcm_of(5 * FRAME), SPEECH)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, device, buffer)
        await trio.sleep(0.9 * T)
        buffer.set_paused(True)
        await trio.sleep(0.2 * T)
        buffer.set_paused(False)
    assert device.times == [0, 0, 1, 2, 3, 4]
    assert device.timestamps == [0, 1, 2, 3, 4, 5]


async def test_an_underrun_delivers_nothing_and_the_timestamps_jump(autojump_clock: MockClock) -> None:
    device = Device()
    buffer = open_buffer(SPEECH)
    pcm = pcm_of(4 * FRAME)
    buffer.write(pcm[: 5 * FRAME])  # two frames and a half
    buffer.release()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, device, buffer)
        await trio.sleep(10 * T)
        assert device.times == [0, 0], "half a frame waits for the rest of it"
        buffer.write(pcm[5 * FRAME :])
        buffer.release()
        buffer.finish()
    assert device.pcm == pcm
    assert device.times == [0, 0, 10, 10]
    assert device.timestamps == [0, 1, 10, 11]
    assert buffer.underruns == 1


async def test_a_slow_consumer_shifts_the_schedule_gets_no_burst_and_loses_nothing(
    autojump_clock: MockClock,
) -> None:
    device = slow_at_the_third(5 * T)
    pcm = pcm_of(6 * FRAME)
    sink = FramesSink(device)
    await sink.play(PcmSequence(buffer_of(pcm[: 6 * FRAME], SPEECH), buffer_of(pcm[6 * FRAME :], SPEECH)))
    assert device.pcm == pcm
    assert device.times == [0, 0, 1, 6, 7, 8]
    assert device.timestamps == [0, 1, 2, 7, 8, 9]
    assert sink.late_frames == 1


async def test_a_consumer_that_needs_less_than_half_a_frame_more_does_not_slow_the_audio(
    autojump_clock: MockClock,
) -> None:
    device = slow_at_the_third(1.4 * T)
    await play(device, buffer_of(pcm_of(5 * FRAME), SPEECH))
    assert device.times == [0, 0, 1, 2.4, 3]
    assert device.timestamps == [0, 1, 2, 3, 4]


async def test_a_channel_takes_the_frames_and_holds_the_schedule_while_it_is_full(
    autojump_clock: MockClock,
) -> None:
    send, receive = trio.open_memory_channel[AudioFrame | ClearFrames](1)
    sink = FramesSink(send)
    pcm = pcm_of(5 * FRAME)
    got = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.play, PcmSequence(buffer_of(pcm, SPEECH)))
        await trio.sleep(10 * T)
        for _ in range(5):
            event = await receive.receive()
            assert isinstance(event, AudioFrame)
            got.append(event.data)
    assert b"".join(got) == pcm
    assert sink.late_frames == 1


async def test_a_channel_that_nobody_reads_fails_the_call() -> None:
    send, receive = trio.open_memory_channel[AudioFrame | ClearFrames](0)
    receive.close()
    with pytest.raises(trio.BrokenResourceError):
        await FramesSink(send).play(PcmSequence(buffer_of(pcm_of(FRAME), SPEECH)))


async def test_a_seek_clears_and_begins_at_once(autojump_clock: MockClock) -> None:
    device = Device()
    buffer = open_buffer(SPEECH)
    buffer.write(pcm_of(5 * FRAME // 2))
    buffer.release()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, device, buffer)
        await trio.sleep(5.5 * T)
        buffer.seeks += 1
        buffer.settle()
        await wait_all_tasks_blocked()
        assert device.events[-1][1] == ClearFrames()
        buffer.write(pcm_of(2 * FRAME, start=7000))
        buffer.release()
        buffer.finish()
    assert device.times == [0, 0, 5.5, 5.5, 5.5]
    assert device.pcm == pcm_of(2 * FRAME) + pcm_of(2 * FRAME, start=7000), "the half frame before is dropped"
    assert device.timestamps == [0, 1, 5.5, 6.5]


async def test_a_seek_between_two_frames_clears_at_once_and_forgets_what_was_converted(
    autojump_clock: MockClock,
) -> None:
    device = Device()
    pcm = tone(STEREO, frames=5 * 2646)
    buffer = buffer_of(pcm)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, device, buffer)
        await trio.sleep(1.5 * T)
        taken_bytes = buffer.frames * STEREO.frame_bytes
        buffer.seeks += 1
        buffer.settle()
    assert device.times == [0, 0, 1, 1.5, 1.5, 1.5]
    fresh = Device()
    await play(fresh, buffer_of(pcm[taken_bytes:]))
    assert [frame.data for frame in device.frames[3:]] == [frame.data for frame in fresh.frames]


async def test_a_stop_clears(autojump_clock: MockClock) -> None:
    device = Device()
    buffer = buffer_of(pcm_of(5 * FRAME), SPEECH)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, device, buffer)
        await trio.sleep(0.5 * T)
        buffer.close()
        nursery.cancel_scope.cancel()
    assert device.times == [0, 0, 0.5]
    assert device.events[-1][1] == ClearFrames()


async def test_a_stop_does_not_wait_for_a_consumer_that_hangs(autojump_clock: MockClock) -> None:
    async def react(count: int) -> None:
        await trio.sleep_forever()

    device = Device(react)
    buffer = buffer_of(pcm_of(5 * FRAME), SPEECH)
    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play, device, buffer)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - start == pytest.approx(0.05)
    assert [type(event) for _, event in device.events] == [AudioFrame, ClearFrames]


class Waiting:
    """A sequence whose next buffers arrive when they are put in."""

    def __init__(self, first: PcmBuffer) -> None:
        self._send, self._receive = trio.open_memory_channel[PcmBuffer](9)
        self._send.send_nowait(first)
        self.asked = trio.Event()

    def add(self, buffer: PcmBuffer) -> None:
        self._send.send_nowait(buffer)

    def end(self) -> None:
        self._send.close()

    def __aiter__(self) -> AsyncIterator[PcmBuffer]:
        return self

    async def __anext__(self) -> PcmBuffer:
        self.asked.set()
        return await anext(aiter(self._receive))


async def test_a_frame_is_completed_from_the_next_item_of_the_same_format(autojump_clock: MockClock) -> None:
    device = Device()
    for format, frames in ((SPEECH, FRAME), (STEREO, 2646)):
        device.events.clear()
        pcm = tone(format, frames=5 * frames)
        cut = (2 * frames + frames // 3) * format.frame_bytes
        await play(device, buffer_of(pcm[:cut], format), buffer_of(pcm[cut:], format))
        joined = device.pcm
        device.events.clear()
        await play(device, buffer_of(pcm, format))
        assert joined == device.pcm, "as one item of both"


async def test_another_format_begins_with_a_frame_of_its_own(autojump_clock: MockClock) -> None:
    device = Device()
    await play(device, buffer_of(pcm_of(FRAME + 1), SPEECH), buffer_of(tone(STEREO, frames=2646)))
    assert len(device.frames) == 3
    assert device.frames[1].data == pcm_of(FRAME + 1)[-2:] + bytes(2 * (FRAME - 1))
    assert device.timestamps == [0, 1, 2], "without a gap"


async def test_the_end_of_an_item_does_not_wait_for_an_item_that_is_not_ready(
    autojump_clock: MockClock,
) -> None:
    device = Device()
    sequence = Waiting(buffer_of(pcm_of(2 * FRAME + 1), SPEECH))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(FramesSink(device).play, sequence)
        await trio.sleep(10 * T)
        assert device.times == [0, 0, 1.5]
        late = open_buffer(SPEECH)
        sequence.add(late)
        await trio.sleep(10 * T)
        late.write(pcm_of(FRAME))
        late.finish()
        sequence.end()
    assert device.pcm == pcm_of(2 * FRAME + 1) + bytes(2 * FRAME - 2) + pcm_of(FRAME)
    assert device.timestamps == [0, 1, 2, 20]


async def test_a_frame_that_the_next_item_continues_waits_for_its_rest_through_an_underrun(
    autojump_clock: MockClock,
) -> None:
    device = Device()
    sequence = Waiting(buffer_of(pcm_of(2 * FRAME + 100), SPEECH))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(FramesSink(device).play, sequence)
        await trio.sleep(1.2 * T)
        following = open_buffer(SPEECH)
        following.write(pcm_of(50))
        following.release()
        sequence.add(following)
        await trio.sleep(10 * T)
        assert device.times == [0, 0], "the third frame has its first samples and waits for the others"
        following.write(pcm_of(FRAME - 150, start=50))
        following.finish()
        sequence.end()
    assert device.pcm == pcm_of(2 * FRAME + 100) + pcm_of(FRAME - 100), "without silence in between"


async def test_cancelled_after_the_last_frame_was_taken_it_owes_the_rest_and_no_clear(
    autojump_clock: MockClock,
) -> None:
    device = Device()
    sequence = Waiting(buffer_of(pcm_of(2 * FRAME + 1), SPEECH))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(FramesSink(device).play, sequence)
        await trio.sleep(1.2 * T)
        assert device.times == [0, 0], "the third waits half a duration for the next item"
        nursery.cancel_scope.cancel()
    assert device.times == [0, 0, 1.2]
    assert device.pcm == pcm_of(2 * FRAME + 1) + bytes(2 * FRAME - 2)


async def test_sessions_are_spread_over_the_duration_of_a_frame(autojump_clock: MockClock) -> None:
    devices = [Device() for _ in range(16)]
    async with trio.open_nursery() as nursery:
        for device in devices:
            nursery.start_soon(play, device, buffer_of(pcm_of(4 * FRAME), SPEECH))
    phases = sorted(device.times[1] for device in devices)
    assert [device.times[2] - device.times[1] for device in devices] == pytest.approx([1] * 16)
    assert all(device.times[0] == 0 for device in devices), "the first frame does not wait"
    gaps = [after - before for before, after in zip(phases, [*phases[1:], phases[0] + 1], strict=True)]
    assert max(gaps) < 2.7 / 16
    for device in devices:
        ahead = [count + 1 - at for count, at in enumerate(device.times)]
        assert max(ahead) <= 2
        assert device.timestamps == [0, 1, 2, 3]
    alone = Device()
    await play(alone, buffer_of(pcm_of(2 * FRAME), SPEECH))
    assert alone.times == [0, 0], "a session alone has the whole lead again"


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("slot", [0.0, 0.3, 0.99])
def test_a_schedule_never_has_more_than_two_frames_ahead(slot: float, alone: bool) -> None:
    schedule = FrameSchedule(T)
    schedule.slot = slot
    schedule.restart(5.0, alone=alone)
    for count in range(100):
        due = schedule.due
        assert schedule.heard - due <= 2 * T + 1e-9
        assert schedule.deliver(due) == pytest.approx(count * T)


def test_a_late_frame_leaves_a_session_in_its_slots() -> None:
    schedule = FrameSchedule(T)
    schedule.slot = 0.25
    schedule.restart(5.0, alone=False)
    for late in (0.0, 0.4, 0.6, 1.3, 7.9):
        now = schedule.due + late * T
        schedule.deliver(now)
        if schedule.late_frames:
            assert T - 1e-9 <= schedule.due - now < 2 * T, "no burst"
            assert schedule.heard - now <= 2 * T
        assert (schedule.due / T - 0.25 + 0.5) % 1 == pytest.approx(0.5)
    assert schedule.late_frames == 3


async def test_opus_frames_decode_to_the_audio(autojump_clock: MockClock) -> None:
    device = Device()
    pcm = sine(13_230, 44_100, channels=2).tobytes()
    await play(device, buffer_of(pcm), codec=FrameCodec.OPUS)
    assert len(device.frames) == 5
    decoded = decoded_opus(frame.data for frame in device.frames)
    assert len(decoded) == 5 * 2880
    strength, rest = strength_and_rest(decoded[2880:], 48_000)
    assert strength == pytest.approx(12000 / 32768, rel=0.1)
    assert rest < 0.02


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frame_ms": 0}, "frame_ms: expected 1 to 1000 ms of whole samples, got 0 ms at 16000 Hz"),
        ({"frame_ms": 25, "rate_hz": 11025}, "got 25 ms at 11025 Hz"),
        ({"rate_hz": 0}, "rate_hz: expected 8000 to 384000 Hz, got 0"),
        ({"codec": FrameCodec.OPUS, "rate_hz": 44100}, "Opus: expected 8, 12, 16, 24 or 48 kHz"),
        ({"codec": "opus", "frame_ms": 30}, "and 30 ms"),
        ({"codec": FrameCodec.OPUS, "channels": 3}, "3 channels"),
        ({"codec": FrameCodec.OPUS, "opus_bit_rate": 5999}, "opus_bit_rate: expected 6000 to 510000"),
    ],
)
async def test_what_no_device_or_codec_takes_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FramesSink(Device(), **options)  # type: ignore[arg-type]


@pytest.fixture
def patient_clock() -> MockClock:
    """Jumps once nothing has run for a while: threads that write a file are not seen by an `autojump_clock`,
    whose time would be over before theirs."""
    return MockClock(autojump_threshold=0.3)


async def test_a_file_has_each_frame_after_its_length_and_a_stop_as_length_zero(
    tmp_path: Path, patient_clock: MockClock
) -> None:
    path = tmp_path / "out.frames"
    sink = FrameFileSink(path)
    assert sink.name == f"frames:{path}"
    pcm = pcm_of(2 * FRAME)
    await sink.play(PcmSequence(buffer_of(pcm, SPEECH)))
    record = (2 * FRAME).to_bytes(4, "big")
    whole = record + pcm[: 2 * FRAME] + record + pcm[2 * FRAME :]
    assert path.read_bytes() == whole
    waiting = Waiting(open_buffer(SPEECH))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.play, waiting)
        await waiting.asked.wait()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert path.read_bytes() == whole + bytes(4)
    with pytest.raises(FileNotFoundError):
        await FrameFileSink(tmp_path / "no" / "directory").play(PcmSequence())


async def test_a_player_goes_on_gapless_holds_and_seeks_in_frames(tmp_path: Path) -> None:
    source = pcm_of(20_000) * 10
    cut = 2 * 10_000
    for name, pcm in (("first", source[:cut]), ("second", source[cut:])):
        (tmp_path / f"{name}.wav").write_bytes(wave_file(pcm, SPEECH.rate_hz))
    arrived, wanted = trio.Event(), 14

    async def react(count: int) -> None:
        if count == wanted:
            arrived.set()

    device = Device(react)
    async with Player(FramesSink(device)) as player:
        with trio.fail_after(30):
            await player.play([FileMedia(tmp_path / "first.wav"), FileMedia(tmp_path / "second.wav")])
            await arrived.wait()
            assert device.pcm == source[: len(device.pcm)], "over the end of the first item"
            assert len(device.pcm) > cut
            player.hold("speech")
            await player.seek(5.0)
            player.release("speech")
            arrived, wanted = trio.Event(), len(device.events) + 4
            await arrived.wait()
    events = [event for _, event in device.events]
    clear = next(at for at, event in enumerate(events) if isinstance(event, ClearFrames))
    assert clear <= wanted - 4
    after = b"".join(event.data for event in events[wanted - 2 : wanted] if isinstance(event, AudioFrame))
    begin = cut + 2 * 5 * SPEECH.rate_hz
    found = source.find(after, begin)
    assert begin <= found <= begin + 2 * 3 * FRAME, "the samples of five seconds into the second item"


async def test_a_file_on_a_full_disk_is_named(tmp_path: Path, patient_clock: MockClock) -> None:
    path = tmp_path / "full.frames"
    path.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        await FrameFileSink(path).play(PcmSequence(buffer_of(pcm_of(2 * FRAME), SPEECH)))
    assert caught.value.filename == str(path)
