"""A real sound server: what a PulseAudio null sink plays is recorded and compared sample by sample."""

from __future__ import annotations

import math
import shutil
import signal
import subprocess
from array import array
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from playhead.errors import NoDeviceError
from playhead.playback import DeviceSink, FileMedia, Player, StateChange, Status
from playhead.playback.sinks import device
from tests.e2e.command import playhead
from tests.servers.wave import write_wave

pytestmark = [
    pytest.mark.slow("records in real time"),
    pytest.mark.skipif(
        not (shutil.which("pulseaudio") and shutil.which("parec")),
        reason="needs PulseAudio: install pulseaudio and pulseaudio-utils",
    ),
    pytest.mark.xdist_group("sound server"),
]
RATE = 44_100
SERVER = [
    "pulseaudio",
    "-n",
    "--daemonize=no",
    "--exit-idle-time=-1",
    "--use-pid-file=no",
    "--disable-shm",
    *(
        f"--load=module-null-sink sink_name={name} rate={RATE} channels=1 format=s16le"
        f" sink_properties=device.description={name.title()}"
        for name in ("ears", "kitchen")
    ),
]
"""The first sink is the default device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    address: str
    process: subprocess.Popen[bytes]

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """It answers nobody: what hangs in it goes on afterwards."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A sound server of our own."""
    folder = tmp_path_factory.mktemp("pulse")
    socket = folder / "native"
    environment = {"HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "PATH": "/usr/bin:/bin"}
    protocol = f"--load=module-native-protocol-unix auth-anonymous=1 socket={socket}"
    process = subprocess.Popen(
        [*SERVER, protocol], env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    try:
        while not socket.exists():
            assert process.poll() is None, "PulseAudio did not start"
        yield Server(address=f"unix:{socket}", process=process)
    finally:
        process.terminate()
        process.wait()


class Recording:
    """A recording of all that the null sink plays. It grows in real time, so that it is also the clock."""

    def __init__(self, process: trio.Process) -> None:
        self.samples = array("h")
        self._process = process
        self._grown = trio.Event()
        self._ended = trio.Event()

    async def run(self) -> None:
        assert self._process.stdout is not None
        half = b""
        async for data in self._process.stdout:
            data = half + data
            whole = len(data) // 2 * 2
            self.samples.frombytes(data[:whole])
            half = data[whole:]
            self._grown.set()
            self._grown = trio.Event()
        self._ended.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, which is looked at as the recording grows."""
        while not condition():
            assert not self._ended.is_set(), "parec does not record"
            await self._grown.wait()

    async def more(self, seconds: float = 0.0) -> None:
        """Wait for some more of the recording."""
        begin = len(self.samples)
        await self.until(lambda: len(self.samples) > begin + seconds * RATE)

    async def stop(self) -> array[int]:
        self._process.terminate()
        await self._ended.wait()
        return self.samples


Measure = Callable[[Recording], Awaitable[float]]
ATTEMPTS = 5
"""Recordings until one is right: on a busy machine a callback may be late, and the server plays silence then.
A defect of ours is in each of them."""
PATIENCE_SECONDS = 20


async def best(measure: Measure, server: str, *, enough: float, sink: str = "ears") -> float:
    """Return the least that is measured, at the latest after all attempts."""
    least = math.inf
    parec = ["parec", f"--server={server}", f"--device={sink}.monitor", "--raw", "--format=s16le"]
    parec += [f"--rate={RATE}", "--channels=1", "--latency-msec=5"]
    for _ in range(ATTEMPTS):
        process = await trio.lowlevel.open_process(parec, stdout=subprocess.PIPE)
        try:
            recording = Recording(process)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(recording.run)
                with trio.fail_after(PATIENCE_SECONDS):
                    await recording.more()
                    least = min(least, await measure(recording))
                await recording.stop()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
        if least <= enough:
            break
    return least


@pytest.fixture
def sound_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the server, whose null sink is the device that players open."""
    monkeypatch.setenv("PULSE_SERVER", server.address)
    return server.address


def noise(frames: int, *, start: int = 0) -> array[int]:
    """A sine whose pitch rises, so that every place of it is different, and none is silent for long."""
    return array(
        "h",
        (
            round(12_000 * math.sin(2 * math.pi * (300 + at / RATE * 40) * at / RATE)) or 1
            for at in range(start, start + frames)
        ),
    )


def written(path: Path, samples: array[int], *, rate_hz: int = RATE) -> FileMedia:
    write_wave(path, samples.tobytes(), rate_hz=rate_hz)
    return FileMedia(path)


def place_of(source: array[int], recorded: array[int]) -> int:
    """Return the index of the recording at which the source begins; negative if it is not there. A null
    sink's monitor misses the first milliseconds of a stream, so a place after a tenth of a second is looked
    for."""
    place = RATE // 10
    at = recorded.tobytes().find(source[place : place + 64].tobytes())
    return at // 2 - place if at >= 0 else -1


def last_place(source: array[int], recorded: array[int]) -> int | None:
    """Return the index of the source at which the recording ends; None in the middle of a silence."""
    at = source.tobytes().find(recorded[-64:].tobytes())
    return at // 2 + 64 if at >= 0 else None


async def test_consecutive_pieces_of_one_format_are_heard_without_one_sample_missing_or_added(
    sound_server: str, tmp_path: Path
) -> None:
    source = noise(3 * RATE)
    cuts = [0, 50_001, 81_003, len(source)]
    pieces = [
        written(tmp_path / f"{index}.wav", source[start:end])
        for index, (start, end) in enumerate(pairwise(cuts))
    ]

    async def differences(recording: Recording) -> float:
        async with Player(DeviceSink()) as player:
            await player.play(pieces)
            await player.wait_finished()
        recorded = await recording.stop()
        begin = place_of(source, recorded)
        heard = recorded[begin + RATE // 10 : begin + len(source)]
        return 0 if begin >= 0 and heard == source[RATE // 10 :] else 1

    assert await best(differences, sound_server, enough=0) == 0


async def test_a_device_is_chosen_by_a_part_of_its_name(sound_server: str, tmp_path: Path) -> None:
    source = noise(2 * RATE)
    written(tmp_path / "piece.wav", source)
    play = partial(playhead, "play", tmp_path / "piece.wav", PULSE_SERVER=sound_server)

    async def differences(recording: Recording) -> float:
        done = await trio.to_thread.run_sync(partial(play, "--device", "kitch"))
        assert done.code == 0, done.stderr
        recorded = await recording.stop()
        begin = place_of(source, recorded)
        heard = recorded[begin + RATE // 10 : begin + len(source)]
        return 0 if begin >= 0 and heard == source[RATE // 10 :] else 1

    assert await best(differences, sound_server, enough=0, sink="kitchen") == 0
    listed = await trio.to_thread.run_sync(
        partial(playhead, "play", "--device", "list", PULSE_SERVER=sound_server)
    )
    assert {"Ears", "Kitchen"} <= {*listed.stdout.decode().splitlines()}
    missing = await trio.to_thread.run_sync(partial(play, "--device", "cellar"))
    assert missing.code == 1
    assert "expected one audio device with 'cellar' in its name, got" in " ".join(missing.stderr.split())


@pytest.mark.parametrize("buffer_ms", [40, 60, 120])
async def test_what_was_heard_is_what_the_recording_has_within_twenty_milliseconds(
    buffer_ms: int, sound_server: str, tmp_path: Path
) -> None:
    source = noise(3 * RATE)
    piece = written(tmp_path / "piece.wav", source)

    async def error_seconds(recording: Recording) -> float:
        seen: list[tuple[float, int]] = []
        async with Player(DeviceSink(buffer_ms=buffer_ms)) as player:
            await player.play(piece)
            while (state := player.snapshot()).position_seconds < 2.5:
                if state.position_seconds > 0.5:
                    seen.append((state.heard_seconds, len(recording.samples)))
                await recording.more()
            await player.stop()
        recorded = await recording.stop()
        # Where in the source the recording was, and not how long it was: a busy server adds silence.
        places = [(heard, last_place(source, recorded[:length])) for heard, length in seen]
        errors = sorted(heard - place / RATE for heard, place in places if place is not None)
        return abs(errors[len(errors) // 2]) if errors else math.inf

    assert await best(error_seconds, sound_server, enough=0.02) <= 0.02


async def test_what_is_ducked_held_and_stopped_is_heard_without_a_click(
    sound_server: str, tmp_path: Path
) -> None:
    source = noise(3 * RATE)
    piece = written(tmp_path / "piece.wav", source)

    async def largest_step(recording: Recording) -> float:
        async with Player(DeviceSink()) as player:
            await player.play(piece)

            async def reach(seconds: float) -> None:
                await recording.until(lambda: player.snapshot().position_seconds >= seconds)

            await reach(0.5)
            player.duck()
            await reach(1.0)
            player.hold("speech")
            await recording.more(0.3)
            player.unduck()
            player.release("speech")
            await reach(2.0)
            await player.stop()
        recorded = await recording.stop()
        # From a place after the start, which the monitor cuts off.
        begin = place_of(source, recorded)
        return max(abs(after - before) for before, after in pairwise(recorded[begin + RATE // 10 :]))

    own = max(abs(after - before) for before, after in pairwise(source))
    most = own + 12_000 // int(0.01 * RATE) + 1
    assert await best(largest_step, sound_server, enough=most) <= most


@pytest.fixture
def piece(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileMedia:
    monkeypatch.setenv("PULSE_SERVER", server.address)
    monkeypatch.setattr(device, "LOST_SECONDS", 3.0)  # the server's null sink is silent for its first two
    return written(tmp_path / "piece.wav", noise(5 * RATE))


async def play_first_frames(player: Player, piece: FileMedia) -> None:
    events = player.events()
    await player.play(piece)
    async for event in events:
        if isinstance(event, StateChange) and event.state.status is Status.PLAYING:
            break
    assert player.snapshot().frames > 0


async def test_a_server_that_hangs_before_a_play_is_an_error_of_it(server: Server, piece: FileMedia) -> None:
    with server.stopped(), trio.fail_after(10):
        async with Player(DeviceSink()) as player:
            await player.play(piece)
            with pytest.raises(NoDeviceError, match="did not open within 3 s"):
                await player.wait_finished()


async def test_a_server_that_hangs_during_a_play_is_an_error_of_it(server: Server, piece: FileMedia) -> None:
    with trio.fail_after(20):
        async with Player(DeviceSink()) as player:
            await play_first_frames(player, piece)
            with server.stopped(), pytest.raises(NoDeviceError, match="stopped by itself"):
                await player.wait_finished()


async def test_a_server_that_hangs_at_a_stop_holds_no_program_up(server: Server, piece: FileMedia) -> None:
    async def play() -> None:
        async with Player(DeviceSink()) as player:
            await play_first_frames(player, piece)
            hangs.enter_context(server.stopped())

    with trio.fail_after(10), ExitStack() as hangs, pytest.warns(RuntimeWarning, match="close within 3 s"):
        await play()


async def test_a_change_of_format_costs_the_reopening_of_the_device_and_no_sample(
    sound_server: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    source = noise(2 * RATE)
    pieces = [
        written(tmp_path / "first.wav", source[:RATE]),
        written(tmp_path / "second.wav", array("h", [5000]) * RATE, rate_hz=RATE // 2),
        written(tmp_path / "third.wav", source[RATE:]),
    ]

    async def gap_seconds(recording: Recording) -> float:
        async with Player(DeviceSink()) as player:
            await player.play(pieces)
            await player.wait_finished()
        recorded = await recording.stop()
        begin = place_of(source, recorded)
        first_end = begin + RATE
        third = recorded.tobytes().find(source[RATE + RATE // 10 :].tobytes()) // 2 - RATE // 10
        if (
            begin < 0
            or recorded[begin + RATE // 10 : first_end] != source[RATE // 10 : RATE]
            or third < first_end
        ):
            return math.inf
        between = recorded[first_end:third]
        assert len(between) - between.count(0) >= 1.9 * RATE, "two seconds, resampled by the server"
        return between.count(0) / RATE / 2

    gap = await best(gap_seconds, sound_server, enough=1.0)
    record_property("gap_seconds", gap)
    print(f"gap of a change of format: {gap * 1000:.0f} ms")
    assert gap < math.inf


async def test_an_announcement_over_music_is_the_sum_of_both(sound_server: str, tmp_path: Path) -> None:
    source = noise(4 * RATE)
    said = array("h", (round(9000 * math.sin(at / 9)) or 1 for at in range(RATE)))
    music, speech = written(tmp_path / "music.wav", source), written(tmp_path / "speech.wav", said)

    async def differences(recording: Recording) -> float:
        async with Player(DeviceSink()) as player:
            await player.play(music)
            await recording.until(lambda: player.snapshot().position_seconds >= 0.5)
            async with player.announce(speech, gain=1.0):
                pass
            await recording.until(lambda: player.snapshot().position_seconds >= 3.0)
            await player.stop()
        recorded = await recording.stop()
        begin = place_of(source, recorded)
        heard = recorded[begin + RATE // 10 : begin + 3 * RATE - RATE // 10]
        added = [ours - own for ours, own in zip(heard, source[RATE // 10 :], strict=False)]
        spoken = [sample for sample in added if sample]
        return 0 if begin >= 0 and spoken == said.tolist() else 1

    assert await best(differences, sound_server, enough=0) == 0
