"""Every sink keeps the public laws, and each does its own."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
import wave
from functools import partial
from pathlib import Path

import miniaudio
import pytest
import trio

from playhead.errors import ClosedError, DecodeError, NoDeviceError, UsageError
from playhead.playback.formats import PcmFormat
from playhead.playback.sinks import DeviceSink, NullSink, WaveSink, callback
from playhead.playback.sinks import device as device_sink
from playhead.playback.sinks import wave as wave_sink
from playhead.playback.sinks.callback import Device, play_through_device
from playhead.testing.sinks import SINK_LAWS, MakeSink, SinkLaw, feed_of, law_name, open_feed, tone

STEREO = PcmFormat(rate_hz=44100, channels=2)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["null in real time", "null as fast as it decodes", "wave"])
def make_sink(request: pytest.FixtureRequest, tmp_path: Path) -> MakeSink:
    made: dict[str, MakeSink] = {
        "null in real time": partial(NullSink, real_time=True),
        "null as fast as it decodes": partial(NullSink, real_time=False),
        "wave": partial(WaveSink, tmp_path / "out.wav"),
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
    await sink.play(feed_of(pcm))
    assert sink.report is not None
    assert (sink.report.format, sink.report.frames) == (STEREO, 5000)
    assert sink.report.sha256 == hashlib.sha256(pcm).hexdigest()


async def test_the_null_sink_takes_sound_in_device_periods_unless_told_otherwise() -> None:
    feed = feed_of(tone(STEREO, frames=8820))
    pieces: list[int] = []
    fill = feed.fill

    def watched(out: memoryview) -> int:
        pieces.append(len(out) // STEREO.frame_bytes)
        return fill(out)

    feed.fill = watched  # type: ignore[method-assign]
    await NullSink().play(feed)
    assert max(pieces) <= STEREO.rate_hz * 60 // 1000
    assert feed.frames == 8820


def null_device(format: PcmFormat) -> Device:
    return Device(format, buffer_ms=20, backends=[miniaudio.Backend.NULL])


@pytest.mark.parametrize("tells", [True, False])
async def test_a_device_that_stops_by_itself_is_an_error_and_no_silence_for_ever(
    tells: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback, "LOST_SECONDS", 60.0 if tells else 0.5)
    opened: list[Device] = []
    unplugged = threading.Event()
    sounded = trio.Event()
    token = trio.lowlevel.current_trio_token()

    class Unplugged(Device):
        def _stop_callback(self, device: object) -> None:
            if tells:
                super()._stop_callback(device)

        def close(self) -> None:
            unplugged.wait(10)  # what stops it here is not the device's own thread, and must be done first
            super().close()

    def open_device(format: PcmFormat) -> Device:
        opened.append(Unplugged(format, buffer_ms=20, backends=[miniaudio.Backend.NULL]))
        return opened[0]

    feed = open_feed()
    feed.pipe.write(0, tone(STEREO, frames=10))
    feed.open_gate()

    async def unplug() -> None:
        await sounded.wait()
        await trio.to_thread.run_sync(miniaudio.lib.ma_device_stop, opened[0]._device)
        unplugged.set()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(unplug)
            with pytest.raises(NoDeviceError, match="stopped by itself"):
                await play_through_device(
                    feed, open_device, on_sound=lambda _: token.run_sync_soon(sounded.set)
                )


async def test_a_device_that_does_not_start_is_an_error_of_the_device() -> None:
    class Stuck(Device):
        def start(self, callback_generator: object) -> None:
            raise miniaudio.MiniaudioError("failed to start audio device", -1)

    def open_device(format: PcmFormat) -> Device:
        return Stuck(format, buffer_ms=20, backends=[miniaudio.Backend.NULL])

    with pytest.raises(NoDeviceError, match="did not start"):
        await play_through_device(feed_of(tone(STEREO, frames=100)), open_device)


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
    device.close()
    device.close()
    assert len(freed) == 1
    refuse = True
    with pytest.raises(miniaudio.MiniaudioError):
        null_device(STEREO)
    assert len(freed) == 2


async def test_an_empty_pipe_is_counted_as_an_underrun_once_a_period_and_only_while_playing() -> None:
    changes: list[bool] = []
    feed = open_feed()
    out = memoryview(bytearray(400))
    feed.fill(out)
    assert feed.underruns == 0, "before the gate"
    feed.open_gate()
    feed.set_paused(True)
    feed.fill(out)
    assert feed.underruns == 0, "paused"
    feed.set_paused(False)
    for _ in range(3):
        out[:] = b"\xff" * 400
        assert feed.fill(out) == 0
        assert bytes(out) == bytes(400), "silence in place of what is missing"
        changes.append(feed.starving)
    assert (feed.underruns, changes) == (0, [True] * 3), "it may be the end"
    feed.pipe.write(0, tone(STEREO, frames=150))
    assert feed.fill(out) == 400
    assert (feed.underruns, feed.starving) == (3, False)
    assert feed.fill(out) == 200
    assert bytes(out[200:]) == bytes(200)
    assert (feed.underruns, feed.starving) == (3, True)
    feed.finish()
    assert feed.fill(out) == 0
    assert (feed.underruns, feed.ended, feed.frames) == (3, True, 150), "the end is no underrun"


@pytest.mark.parametrize("gate_open", [False, True])
async def test_closing_a_feed_wakes_the_thread_that_waits_for_sound(gate_open: bool) -> None:
    feed = open_feed()
    if gate_open:
        feed.open_gate()
    ends: list[type[BaseException]] = []

    def take() -> None:
        try:
            feed.take(memoryview(bytearray(400)))
        except ClosedError as error:
            ends.append(type(error))

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    feed.close()
    await trio.to_thread.run_sync(thread.join, 10)
    assert ends == [ClosedError]


async def test_the_volume_is_ramped_over_one_piece_and_full_volume_changes_no_bit() -> None:
    feed = feed_of(b"\x10\x27" * 4000)
    out = memoryview(bytearray(800))
    feed.fill(out)
    assert bytes(out) == b"\x10\x27" * 400
    feed.set_gain(0.5)
    feed.fill(out)
    ramp = list(out.cast("h"))
    assert ramp == sorted(ramp, reverse=True)
    assert ramp[-1] == 5000
    feed.fill(out)
    assert set(out.cast("h")) == {5000}


async def test_a_wave_file_holds_the_very_frames(tmp_path: Path) -> None:
    path = tmp_path / "out.wav"
    path.write_bytes(b"an older file")
    pcm = tone(STEREO, frames=9000)
    await WaveSink(path).play(feed_of(pcm))
    with wave.open(str(path)) as written:
        assert (written.getframerate(), written.getnchannels(), written.getsampwidth()) == (44100, 2, 2)
        assert written.readframes(10_000) == pcm
    assert names(tmp_path) == ["out.wav"]


async def test_a_broken_stream_leaves_no_wave_file_and_keeps_the_older_one(tmp_path: Path) -> None:
    error = DecodeError("damaged")
    older = tmp_path / "older.wav"
    older.write_bytes(b"an older file")
    for path in (older, tmp_path / "new.wav"):
        with pytest.raises(DecodeError) as caught:
            await WaveSink(path).play(feed_of(tone(STEREO, frames=9000), failure=error))
        assert caught.value is error
    assert names(tmp_path) == ["older.wav"]
    assert older.read_bytes() == b"an older file"


async def test_a_stopped_wave_sink_leaves_nothing(tmp_path: Path) -> None:
    feed = open_feed()
    feed.pipe.write(0, tone(STEREO, frames=1000))
    feed.open_gate()
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(WaveSink(tmp_path / "out.wav").play, feed)
            while not names(tmp_path):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert names(tmp_path) == []


async def test_a_wave_file_that_cannot_be_made_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await WaveSink(tmp_path / "missing" / "out.wav").play(feed_of(b""))


async def test_a_wave_file_past_what_its_header_can_count_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wave_sink, "MAX_DATA_BYTES", 1000)
    with pytest.raises(Exception, match="4 GiB"):
        await WaveSink(tmp_path / "out.wav").play(feed_of(tone(STEREO, frames=1000)))
    assert names(tmp_path) == []


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc/asound")
@pytest.mark.skipif(Path("/proc/asound/cards").exists(), reason="this machine has a sound card")
async def test_no_sound_card_is_one_quiet_error_with_a_remedy(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NoDeviceError, match=r"--sink null.*wave:FILE"):
        await DeviceSink().play(feed_of(b""))
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    os.write(2, b"standard error works again\n")
    assert "works again" in capfd.readouterr().err


def test_a_program_without_standard_error_can_play(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = os.dup(2)
    os.close(closed)
    monkeypatch.setattr(device_sink, "_STDERR", closed)
    monkeypatch.setattr(device_sink, "Device", lambda format, *, buffer_ms, backends: null_device(format))
    device_sink.open_device(STEREO).close()


def test_a_device_buffer_outside_20_to_60_ms_is_refused() -> None:
    for buffer_ms in (19, 61):
        with pytest.raises(UsageError, match="20 to 60"):
            DeviceSink(buffer_ms=buffer_ms)
