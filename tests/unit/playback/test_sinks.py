"""Every sink keeps the public laws, and each does its own."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import threading
import wave
import weakref
from array import array
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import miniaudio
import pytest
import soundfile
import trio
import trio.lowlevel
import trio.testing
from trio.testing import wait_all_tasks_blocked

from playhead._core import DeviceCallback, Dither
from playhead.cli import sinks
from playhead.concurrency import JOIN_SECONDS
from playhead.errors import ClosedError, DecodeError, NoDeviceError, UsageError
from playhead.playback.conversion import little_endian
from playhead.playback.formats import PcmFormat, SampleFormat
from playhead.playback.pcm_buffer import BufferPhase, Latency, PcmBuffer, PcmSequence
from playhead.playback.sinks import (
    DeviceSink,
    FrameCodec,
    FrameFileSink,
    FramesSink,
    MixingSink,
    NullSink,
    PcmSink,
    WaveSink,
    silent_stderr,
)
from playhead.playback.sinks import device as device_sink
from playhead.playback.sinks import null as null_sink
from playhead.playback.sinks import wave as wave_sink
from playhead.playback.sinks.device import (
    LOST_SECONDS,
    Device,
    fixed_size_flag,
    play_through_device,
    user_data_offset,
)
from playhead.playback.sinks.silent_stderr import SilentStderr
from playhead.stream.source import Demand
from playhead.testing.sinks import SINK_LAWS, MakeSink, SinkLaw, buffer_of, law_name, open_buffer, tone
from tests.unit.playback.pieces import wait_until

STEREO = PcmFormat(rate_hz=44100, channels=2)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def _drop(event: object) -> None: ...


class OverMusic:
    """Plays over music that is paused."""

    name = "over music"

    def __init__(self) -> None:
        self._mixing = MixingSink(NullSink())

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        music = buffer_of(tone(STEREO, frames=1000))
        music.set_paused(True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._mixing.play, PcmSequence(music))
            await wait_all_tasks_blocked()
            await self._mixing.over.play(buffers)
            assert music.frames == 0
            nursery.cancel_scope.cancel()


class NullDeviceSink(DeviceSink):
    """miniaudio's own null device."""

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        await play_through_device(buffers, null_device)


@pytest.fixture(
    params=[
        *("device", "null in real time", "null as fast as it decodes", "wave", "pcm"),
        *("frames", "frames of Opus", "mixing", "mixing files", "over nothing", "over music"),
    ]
)
def make_sink(request: pytest.FixtureRequest, tmp_path: Path) -> MakeSink:
    made: dict[str, MakeSink] = {
        "device": NullDeviceSink,
        "null in real time": partial(NullSink, real_time=True),
        "null as fast as it decodes": partial(NullSink, real_time=False),
        "wave": partial(WaveSink, tmp_path / "out.wav"),
        "pcm": partial(PcmSink, tmp_path / "out.pcm"),
        "frames": partial(FramesSink, _drop),
        "frames of Opus": partial(FrameFileSink, tmp_path / "out.frames", codec=FrameCodec.OPUS),
        "mixing": lambda: MixingSink(NullSink()),
        "mixing files": lambda: MixingSink(WaveSink(tmp_path / "out.wav")),
        "over nothing": lambda: MixingSink(NullSink()).over,
        "over music": OverMusic,
    }
    return made[request.param]


@pytest.mark.parametrize("law", SINK_LAWS, ids=law_name)
async def test_a_sink_keeps_the_law(law: SinkLaw, make_sink: MakeSink) -> None:
    await law(make_sink)


@pytest.mark.parametrize("real_time", [True, False])
async def test_the_null_sink_reports_the_hash_of_what_it_took(real_time: bool) -> None:
    sink = NullSink(real_time=real_time)
    assert sink.report is None
    pcm = tone(STEREO, frames=5000)
    await sink.play(PcmSequence(buffer_of(pcm)))
    assert sink.report is not None
    assert (sink.report.format, sink.report.frames) == (STEREO, 5000)
    assert sink.report.sha256 == hashlib.sha256(pcm).hexdigest()


async def test_the_null_sink_plays_in_real_time_unless_asked_not_to() -> None:
    for real_time in (True, False):
        phases: list[BufferPhase] = []
        buffer = PcmBuffer(
            STEREO,
            token=trio.lowlevel.current_trio_token(),
            on_change=lambda: phases.append(buffer.phase),  # noqa: B023 - played within the loop
        )
        buffer.write(tone(STEREO, frames=8820))
        buffer.finish()
        await NullSink(real_time=real_time).play(PcmSequence(buffer))
        assert (BufferPhase.PLAYING in phases) is real_time
        assert buffer.frames == 8820


async def test_the_hash_is_that_of_the_decoded_audio_whatever_the_volume_and_however_long() -> None:
    sink = NullSink(real_time=False)
    buffer = open_buffer(gain=0.25)
    piece = tone(STEREO, frames=4096)
    buffer.release()

    def decode() -> None:
        for _ in range(50):
            assert buffer.wait_room(len(piece))
            buffer.write(piece)
        buffer.finish()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sink.play, PcmSequence(buffer))
        await trio.to_thread.run_sync(decode)
    assert sink.report is not None
    assert (sink.report.frames, sink.report.sha256) == (50 * 4096, hashlib.sha256(piece * 50).hexdigest())


def null_device(format: PcmFormat) -> Device:
    return Device(format, buffer_ms=20, backends=[miniaudio.Backend.NULL])


@pytest.mark.parametrize(("latency", "held"), [("deep", 0.12), ("low", 0.06)])
async def test_a_device_holds_as_much_as_the_latency_says(latency: Latency, held: float) -> None:
    made: list[Device] = []

    def make_device(format: PcmFormat) -> Device:
        made.append(Device(format, backends=[miniaudio.Backend.NULL]))
        return made[-1]

    buffer = PcmBuffer(STEREO, token=trio.lowlevel.current_trio_token(), latency=latency)
    buffer.write(tone(STEREO, frames=10))
    buffer.finish()
    await play_through_device(PcmSequence(buffer), make_device)
    assert made[0].held_seconds == pytest.approx(held, abs=0.001)


@pytest.mark.parametrize("reports", [True, False])
async def test_a_device_that_stops_by_itself_is_an_error_and_no_silence_for_ever(
    reports: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_sink, "LOST_SECONDS", 60.0 if reports else 0.5)
    made: list[Device] = []
    heard = trio.Event()
    buffer = PcmBuffer(
        STEREO,
        token=trio.lowlevel.current_trio_token(),
        on_change=lambda: heard.set() if buffer.frames else None,
    )
    buffer.write(tone(STEREO, frames=10))
    buffer.release()

    def make_device(format: PcmFormat) -> Device:
        made.append(null_device(format))
        return made[0]

    lib = miniaudio.lib

    class Unreporting:
        """A backend that does not notice."""

        def __getattr__(self, name: str) -> object:
            return getattr(lib, name)

        def ma_device_init(self, context: object, config: Any, device: object) -> int:
            config.stopCallback = miniaudio.ffi.NULL
            return int(lib.ma_device_init(context, config, device))

    if not reports:
        monkeypatch.setattr(miniaudio, "lib", Unreporting())

    async def unplug() -> None:
        await heard.wait()
        await trio.to_thread.run_sync(lib.ma_device_stop, made[0]._device)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(unplug)
            with pytest.raises(NoDeviceError, match="stopped by itself"):
                await play_through_device(PcmSequence(buffer), make_device)


async def test_a_device_that_does_not_start_is_an_error_of_the_device() -> None:
    class Stuck(Device):
        def start(self, buffer: PcmBuffer) -> None:
            raise miniaudio.MiniaudioError("failed to start audio device", -1)

    make_device = partial(Stuck, buffer_ms=20, backends=[miniaudio.Backend.NULL])
    with pytest.raises(NoDeviceError, match="did not start"):
        await play_through_device(PcmSequence(buffer_of(tone(STEREO, frames=100))), make_device)


class Hangs:
    """A miniaudio whose function `name` does not return until `release` is set."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._token = trio.lowlevel.current_trio_token()
        self._lib = miniaudio.lib
        self.called = trio.Event()
        self.release = threading.Event()
        self.closed = trio.Event()
        """A context was freed."""

    def __getattr__(self, name: str) -> object:
        work = getattr(self._lib, name)

        def call(*arguments: object) -> object:
            if name == self._name and not self.release.is_set():
                self._token.run_sync_soon(self.called.set)
                self.release.wait()
            result = work(*arguments)
            if name == "ma_context_uninit":
                self._token.run_sync_soon(self.closed.set)
            return result

        return call if name.startswith(("ma_device_", "ma_context_")) and callable(work) else work


@pytest.mark.parametrize("name", ["ma_device_stop", "ma_device_uninit", "ma_context_uninit"])
async def test_a_device_that_does_not_close_is_left_behind_with_a_warning_and_the_next_one_plays(
    name: str, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = Hangs(name)
    monkeypatch.setattr(miniaudio, "lib", hangs)
    mono = PcmFormat(rate_hz=8000, channels=1)
    first, second = buffer_of(tone(STEREO, frames=100)), buffer_of(tone(mono, frames=100), mono)
    devices: list[Device] = []

    def make_device(format: PcmFormat) -> Device:
        devices.append(null_device(format))
        return devices[-1]

    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def play() -> None:
            with pytest.warns(RuntimeWarning, match="did not close within 5 s") as warned:
                await play_through_device(PcmSequence(first, second), make_device)
            assert len(warned) == 1

        await hangs.called.wait()
        await wait_all_tasks_blocked()
        assert second.frames == 0
        left_behind = weakref.ref(devices[0])
        hangs._name = "nothing else"
        mock_clock.jump(LOST_SECONDS)
    assert (first.frames, second.frames) == (100, 100)
    assert devices[1].callback.user_data == 0
    del devices[:]
    gc.collect()
    device = left_behind()
    assert device is not None, "memory that miniaudio uses was freed"
    assert bool(device.callback.user_data) is name.startswith("ma_device_")
    hangs.closed = trio.Event()
    hangs.release.set()
    await hangs.closed.wait()


@pytest.mark.parametrize(
    ("name", "verb"), [("ma_context_init", "open"), ("ma_device_init", "open"), ("ma_device_start", "start")]
)
async def test_a_device_whose_start_does_not_return_is_an_error_and_is_closed_if_it_ever_does(
    name: str, verb: str, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = Hangs(name)
    monkeypatch.setattr(miniaudio, "lib", hangs)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def play() -> None:
                with pytest.raises(NoDeviceError, match=f"did not {verb} within 5 s.*use another sink"):
                    await play_through_device(PcmSequence(buffer_of(b"")), null_device)
                scope.cancel()

            await hangs.called.wait()
            await wait_all_tasks_blocked()
            mock_clock.jump(LOST_SECONDS)
            await wait_all_tasks_blocked()
            mock_clock.jump(JOIN_SECONDS)
            await trio.sleep_forever()
    assert not hangs.closed.is_set()
    hangs.release.set()
    await hangs.closed.wait()


async def test_a_cancellation_waits_for_no_device_that_hangs(
    mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = Hangs("ma_device_init")
    monkeypatch.setattr(miniaudio, "lib", hangs)
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        @nursery.start_soon
        async def play() -> None:
            with scope:
                await play_through_device(PcmSequence(open_buffer()), null_device)

        await hangs.called.wait()
        scope.cancel()
        await wait_all_tasks_blocked()
        mock_clock.jump(JOIN_SECONDS)
    hangs.release.set()
    await hangs.closed.wait()


async def test_standard_error_is_back_once_a_device_that_hangs_is_given_up(
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    hangs = Hangs("ma_context_init")
    monkeypatch.setattr(miniaudio, "lib", hangs)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def play() -> None:
            with pytest.raises(NoDeviceError, match="did not open"):
                await DeviceSink().play(PcmSequence(buffer_of(b"")))
            nursery.cancel_scope.cancel()

        await hangs.called.wait()
        os.write(2, b"complaints about cards\n")
        mock_clock.jump(LOST_SECONDS)
        await wait_all_tasks_blocked()
        mock_clock.jump(JOIN_SECONDS)
        await trio.sleep_forever()
    os.write(2, b"standard error works again\n")
    assert capfd.readouterr().err == "standard error works again\n"
    hangs.release.set()
    await hangs.closed.wait()


EXITS = """
import ctypes, miniaudio, trio, warnings
from playhead.playback.formats import PcmFormat
from playhead.playback.sinks import device

class Hangs:
    def __getattr__(self, name):
        if name == "ma_device_uninit":
            return lambda opened: ctypes.CDLL(None).pause()
        return getattr(lib, name)

async def main():
    format = PcmFormat(rate_hz=8000, channels=1)
    async with device.opened(device.Device(format, backends=[miniaudio.Backend.NULL])):
        device.LOST_SECONDS = 0.1

lib, miniaudio.lib = miniaudio.lib, Hangs()
trio.run(main)
print("done")
"""


async def test_a_program_ends_though_a_device_of_it_never_closed() -> None:
    with trio.fail_after(20):
        ended = await trio.run_process(
            [sys.executable, "-c", EXITS], capture_stdout=True, capture_stderr=True
        )
    assert ended.stdout == b"done\n"
    assert b"RuntimeWarning: the sound device did not close within 0.1 s" in ended.stderr


async def test_a_device_plays_one_buffer_and_is_freed_after_its_callbacks() -> None:
    device = null_device(STEREO)
    device.open()
    assert device.callback.user_data
    buffer = open_buffer()
    device.start(buffer)
    with pytest.raises(UsageError, match="one per device"):
        device.start(buffer)
    device.close()
    assert device.callback.user_data == 0


def test_a_clock_in_place_of_a_device_ends_though_it_was_stopped_before_it_began() -> None:
    callback = DeviceCallback(frame_bytes=4)
    assert callback.user_data == 0
    callback.stop()
    callback.run(period_frames=1764, rate_hz=44_100)
    assert callback.calls == 0
    with pytest.raises(ValueError, match="zero"):
        callback.run(period_frames=0, rate_hz=44_100)


async def test_a_null_sink_takes_audio_from_the_moment_it_is_ready_and_its_clock_stops_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks: list[DeviceCallback] = []

    def make_clock(*, frame_bytes: int) -> DeviceCallback:
        clocks.append(DeviceCallback(frame_bytes=frame_bytes))
        return clocks[0]

    monkeypatch.setattr(null_sink, "DeviceCallback", make_clock)
    playing = trio.Event()
    buffer = PcmBuffer(
        STEREO,
        token=trio.lowlevel.current_trio_token(),
        on_change=lambda: playing.set() if buffer.phase is BufferPhase.PLAYING else None,
    )
    buffer.write(tone(STEREO, frames=8820))
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(NullSink().play, PcmSequence(buffer))
            await wait_all_tasks_blocked()
            assert not clocks
            buffer.release()
            await playing.wait()
            buffer.close()
            nursery.cancel_scope.cancel()
        # It returns, so it was stopped.
        again = partial(clocks[0].run, period_frames=1764, rate_hz=44_100)
        await trio.to_thread.run_sync(again, abandon_on_cancel=True)


def test_a_miniaudio_with_other_callbacks_is_refused() -> None:
    class Other:
        def typeof(self, name: str) -> SimpleNamespace:
            pointer = SimpleNamespace(offset=8, type=SimpleNamespace(cname="void *"))
            return SimpleNamespace(fields=[("dataCallback", pointer), ("pUserData", pointer)])

    with pytest.raises(NoDeviceError, match=r"expected callbacks .* install miniaudio 1\.71"):
        user_data_offset(Other())
    assert user_data_offset(miniaudio.ffi) > 0


def test_a_flag_is_set_by_its_place_in_the_known_miniaudio_only() -> None:
    assert fixed_size_flag(miniaudio.ffi, miniaudio.lib_version()) == 27
    assert fixed_size_flag(miniaudio.ffi, "0.12.0") is None

    class Longer:
        def typeof(self, name: str) -> SimpleNamespace:
            places = {"periods": 16, "dataCallback": 40}
            return SimpleNamespace(fields=[(it, SimpleNamespace(offset=at)) for it, at in places.items()])

    assert fixed_size_flag(Longer(), miniaudio.lib_version()) is None


def test_a_device_frees_its_context_once_opened_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lib = miniaudio.lib
    freed: list[object] = []

    class Watched:
        def __getattr__(self, name: str) -> object:
            return getattr(lib, name)

        def ma_context_uninit(self, context: object) -> None:
            freed.append(context)
            lib.ma_context_uninit(context)

        def ma_device_init(self, *arguments: object) -> int:
            return -1 if refuse else int(lib.ma_device_init(*arguments))

    monkeypatch.setattr(miniaudio, "lib", Watched())
    refuse = False
    device = null_device(STEREO)
    device.open()
    device.close()
    device.close()
    assert len(freed) == 1
    refuse = True
    device = null_device(STEREO)
    with pytest.raises(miniaudio.MiniaudioError):
        device.open()
    device.close()
    assert len(freed) == 2


def test_a_device_that_was_closed_is_not_opened_any_more() -> None:
    device = null_device(STEREO)
    device.close()
    with pytest.raises(ClosedError, match="make another one"):
        device.open()


async def test_audio_that_runs_dry_is_one_underrun_and_no_crumb_of_it_is_played() -> None:
    buffer = open_buffer()
    out = memoryview(bytearray(400))
    buffer.fill(out)
    assert (buffer.phase, buffer.underruns) == (BufferPhase.FILLING, 0)
    buffer.pipe.write(0, tone(STEREO, frames=150))
    buffer.release()
    assert buffer.phase is BufferPhase.READY
    buffer.set_paused(True)
    assert (buffer.fill(out), buffer.phase) == (0, BufferPhase.READY), "paused"
    buffer.set_paused(False)
    assert (buffer.fill(out), buffer.phase) == (400, BufferPhase.PLAYING)
    out[:] = b"\xff" * 400
    assert (buffer.fill(out), buffer.phase) == (200, BufferPhase.DRY)
    assert bytes(out[200:]) == bytes(200), "silence in place of what is missing"
    buffer.pipe.write(600, tone(STEREO, frames=150))
    for _ in range(3):
        assert (buffer.fill(out), buffer.phase) == (0, BufferPhase.DRY), "held back until enough is in hand"
    assert buffer.underruns == 0, "it may be the end"
    buffer.release()
    assert (buffer.phase, buffer.underruns) == (BufferPhase.READY, 1)
    assert (buffer.fill(out), buffer.fill(out)) == (400, 200)
    assert (buffer.phase, buffer.underruns) == (BufferPhase.DRY, 1)
    buffer.finish()
    assert (buffer.fill(out), buffer.ended, buffer.frames) == (0, True, 300)
    assert buffer.underruns == 1, "the end is not an underrun"


def wait_half(buffer: PcmBuffer, begun: trio.Event, found: list[bool]) -> None:
    """Wait for half of the buffer, as a decoder's thread."""
    trio.from_thread.run_sync(begun.set)
    found.append(buffer.wait_room(buffer.pipe.ahead_bytes // 2))


async def test_a_decoder_waits_for_the_period_that_takes_what_a_seek_made_void() -> None:
    for _ in range(50):  # the period comes before the wait or after it
        buffer = open_buffer()
        buffer.write(bytes(buffer.pipe.ahead_bytes))
        assert buffer.seek(7)
        begun = trio.Event()
        found: list[bool] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, partial(wait_half, buffer, begun, found))
            await begun.wait()
            await trio.testing.wait_all_tasks_blocked()
            buffer.fill(memoryview(bytearray(400)))
        assert found == [True]


async def test_the_demand_is_that_of_what_is_heard() -> None:
    buffer = open_buffer()
    out = memoryview(bytearray(400))
    demands = [buffer.demand]
    buffer.pipe.write(0, tone(STEREO, frames=150))
    buffer.release()
    demands.append(buffer.demand)
    buffer.fill(out)
    demands.append(buffer.demand)
    buffer.set_paused(True)
    demands.append(buffer.demand)
    buffer.set_paused(False)
    buffer.fill(out)
    demands.append(buffer.demand)
    assert demands == [Demand.WAITING, Demand.WAITING, Demand.FED, Demand.PAUSED, Demand.WAITING]
    draining = buffer_of(tone(STEREO, frames=150))
    await trio.to_thread.run_sync(draining.take, out)
    assert (draining.phase, draining.demand) == (BufferPhase.DRAINING, Demand.WAITING)


@pytest.mark.parametrize("released", [False, True])
async def test_closing_a_buffer_wakes_the_thread_that_waits_for_audio(released: bool) -> None:
    buffer = open_buffer()
    if released:
        buffer.release()
    ends: list[type[BaseException]] = []

    def take() -> None:
        try:
            buffer.take(memoryview(bytearray(400)))
        except ClosedError as error:
            ends.append(type(error))

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    buffer.close()
    await trio.to_thread.run_sync(thread.join, 10)
    assert ends == [ClosedError]


async def test_the_volume_is_ramped_over_ten_milliseconds_and_full_volume_changes_no_bit() -> None:
    buffer = buffer_of(b"\x10\x27" * 6000)
    out = memoryview(bytearray(800))
    buffer.fill(out)
    assert bytes(out) == b"\x10\x27" * 400
    buffer.set_gain(0.5)
    ramp: list[int] = []
    for _ in range(3):
        buffer.fill(out)
        ramp += out.cast("h")
    assert ramp == sorted(ramp, reverse=True)
    assert (ramp[0], ramp[2 * 441 - 1], ramp[-1]) == (9994, 5000, 5000)


async def test_a_wave_file_holds_the_very_frames(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    path.write_bytes(b"an older file")
    pcm = tone(STEREO, frames=9000)
    await WaveSink(path).play(PcmSequence(buffer_of(pcm)))
    with wave.open(str(path)) as written:
        assert (written.getframerate(), written.getnchannels(), written.getsampwidth()) == (44100, 2, 2)
        assert written.readframes(10_000) == pcm
    assert names(tmp_path) == ["out.wav"]


async def test_a_wave_file_of_floats_holds_the_very_samples(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    floats = PcmFormat(rate_hz=48000, channels=2, sample=SampleFormat.F32)
    values = array("f", (at / 8388608 for at in range(-9000, 9000)))  # 24 bits
    await WaveSink(path).play(PcmSequence(buffer_of(values.tobytes(), floats)))
    info = soundfile.info(path)
    assert (info.samplerate, info.channels, info.frames, info.subtype) == (48000, 2, 9000, "FLOAT")
    read, _ = soundfile.read(path, dtype="float32")
    assert array("f", read.tobytes()) == values
    assert info.extra_info.count("***") == 0, info.extra_info


async def test_a_pcm_file_holds_bare_little_endian_samples_and_each_item_has_its_own(tmp_path: Path) -> None:
    sink = PcmSink(tmp_path / "out.pcm")
    assert sink.name == f"pcm:{tmp_path / 'out.pcm'}"
    pcm = tone(STEREO, frames=9000)
    floats = PcmFormat(rate_hz=44100, channels=2, sample=SampleFormat.F32)
    values = array("f", (value / 300 for value in range(2000)))
    await sink.play(PcmSequence(buffer_of(pcm), buffer_of(values.tobytes(), floats)))
    assert sink.paths == (tmp_path / "out.pcm", tmp_path / "out-2.pcm")
    assert sink.paths[0].read_bytes() == little_endian(pcm)
    assert sink.paths[1].read_bytes() == little_endian(Dither().convert(values))


async def test_pcm_on_stdout_is_all_items_in_order(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pcm = tone(STEREO, frames=9000)
    sink = PcmSink("-")
    await sink.play(PcmSequence(buffer_of(pcm), buffer_of(pcm[:4000])))
    await sink.play(PcmSequence(buffer_of(pcm[:40])))
    assert capfdbinary.readouterr().out == little_endian(pcm + pcm[:4000] + pcm[:40])
    assert sink.paths == ()


async def test_a_broken_stream_leaves_no_wave_file_and_keeps_the_older_one(tmp_path: Path) -> None:
    error = DecodeError("damaged")
    older = tmp_path / "older.wav"
    older.write_bytes(b"an older file")
    for path in (older, tmp_path / "new.wav"):
        with pytest.raises(DecodeError) as caught:
            await WaveSink(path).play(PcmSequence(buffer_of(tone(STEREO, frames=9000), failure=error)))
        assert caught.value is error
    assert names(tmp_path) == ["older.wav"]
    assert older.read_bytes() == b"an older file"


async def test_a_stopped_wave_sink_leaves_nothing(tmp_path: Path) -> None:
    buffer = open_buffer()
    buffer.pipe.write(0, tone(STEREO, frames=1000))
    buffer.release()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(WaveSink(tmp_path / "out.wav").play, PcmSequence(buffer))
            await wait_until(lambda: names(tmp_path))
            nursery.cancel_scope.cancel()
    assert names(tmp_path) == []


async def test_a_wave_file_that_cannot_be_made_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await WaveSink(tmp_path / "missing" / "out.wav").play(PcmSequence(buffer_of(b"")))


async def test_a_wave_file_past_what_its_header_can_count_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wave_sink, "MAX_DATA_BYTES", 1000)
    with pytest.raises(Exception, match="4 GiB"):
        await WaveSink(tmp_path / "out.wav").play(PcmSequence(buffer_of(tone(STEREO, frames=1000))))
    assert names(tmp_path) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc/asound")
@pytest.mark.skipif(Path("/proc/asound/cards").exists(), reason="this machine has a sound card")
async def test_no_sound_card_is_one_quiet_error_with_a_remedy(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoDeviceError, match="use another sink"):
        await DeviceSink().play(PcmSequence(buffer_of(b"")))
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    os.write(2, b"standard error works again\n")
    assert "works again" in capfd.readouterr().err


def test_a_program_without_standard_error_can_play(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = os.dup(2)
    os.close(closed)
    monkeypatch.setattr(silent_stderr, "_STDERR", closed)
    for _ in range(2):
        with SilentStderr():
            pass


def test_a_device_buffer_outside_20_to_120_ms_is_refused() -> None:
    for buffer_ms in (19, 121):
        with pytest.raises(UsageError, match="20 to 120"):
            DeviceSink(buffer_ms=buffer_ms)


@pytest.mark.parametrize("form", sinks.SINKS)
def test_each_form_of_the_command_lines_option_makes_its_sink(form: str, tmp_path: Path) -> None:
    sink = sinks.make_sink(form.replace("FILE", str(tmp_path / "it")), real_time=False)
    assert sink.name.partition(":")[0] == form.partition(":")[0].removesuffix("+opus")
