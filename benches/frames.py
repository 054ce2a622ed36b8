"""Frames for many devices at once: count, lateness, lead, CPU, and the audio itself.

    python -m benches.frames                          # 64 sessions of 60 s; about 70 seconds
    python -m benches.frames --sessions 8 --seconds 5
    python -m benches.frames --cpu-clock              # on a busy machine

Each session is a player of a 192 kbit/s MP3 on a frames sink: 60 ms of Opus at 16 kHz. Meanwhile another
process runs the baseline: as many trio tasks, each of which only sleeps until the next multiple of 60 ms.
Lateness counts from the slot of a frame, in both. One session is decoded by FFmpeg's own Opus decoder (the
encoder is libopus) and compared with FFmpeg's decode of the MP3.

The exit status is 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import av
import numpy as np
import trio

from benches.music import encoded_music
from playhead.playback import AudioFrame, ClearFrames, FileMedia, FrameCodec, FramesSink, Player

FRAME_SECONDS = 0.06
RATE_HZ = 16_000
LATE_MS_AT_MOST = 5.0
CORE_PERCENT_AT_MOST = 80.0
AHEAD_AT_MOST = 2.0
CORRELATION_AT_LEAST = 0.99
RUN_FRAMES = 8
"""Frames of which one is taken to be on time."""
_CLOCK_FRAMES = 0.02
"""Tolerance of the lead: 1.2 ms between the sink's look at the clock and the consumer's."""


class Session:
    """A consumer that remembers when each frame arrived."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.timestamps: list[float] = []
        self.packets: list[bytes] = []
        self.sink = FramesSink(self.take, codec=FrameCodec.OPUS)

    async def take(self, event: AudioFrame | ClearFrames) -> None:
        if isinstance(event, AudioFrame):
            self.arrivals.append(trio.current_time())
            self.timestamps.append(event.timestamp_seconds)
            self.packets.append(event.data)

    @property
    def most_ahead(self) -> float:
        """The highest lead of the frames delivered over those that a device has begun to play since the
        first."""
        start = self.arrivals[0]
        return max(count + 1 - (at - start) / FRAME_SECONDS for count, at in enumerate(self.arrivals))

    @property
    def lateness_ms(self) -> list[float]:
        """Measure each run of consecutive timestamps, without the two frames that begin it at once.

        The last frame is left out: it is delivered at once when the player closes, and one early frame
        would make all others late. What the sink skipped counts as 60 ms each: the slots of late frames, and
        runs too short to tell which frame is on time.
        """
        steps = np.diff(self.timestamps[:-1])
        breaks = 1 + np.flatnonzero(np.abs(steps - FRAME_SECONDS) > 1e-6)
        lateness: list[float] = []
        skipped = self.sink.late_frames
        for run in np.split(np.asarray(self.arrivals[:-1]), breaks):
            if len(run) < 2 + RUN_FRAMES:
                skipped += max(0, len(run) - 2)
            else:
                lateness.extend(lateness_ms(run[2:]))
        return [*lateness, *[1000 * FRAME_SECONDS] * skipped]

    @property
    def gaps(self) -> int:
        """Places where the timestamps jump."""
        return int(np.count_nonzero(np.abs(np.diff(self.timestamps) - FRAME_SECONDS) > 1e-6))


def lateness_ms(arrivals: Sequence[float] | np.ndarray) -> list[float]:
    """Delays of frames after their slots, which are 60 ms apart; the earliest frame is on time."""
    phases = np.asarray(arrivals) % FRAME_SECONDS
    middle = np.median(np.unwrap(phases, period=FRAME_SECONDS)) - FRAME_SECONDS / 2
    delays = (phases - middle) % FRAME_SECONDS
    lateness: list[float] = (1000 * (delays - delays.min())).tolist()
    return lateness


class CpuClock(trio.abc.Clock):
    """The CPU time of trio's thread and the sleeps that it asked for, not what other programs took."""

    def __init__(self) -> None:
        self._slept = -time.thread_time()
        self._asleep: tuple[float, float] | None = None

    def start_clock(self) -> None: ...

    def current_time(self) -> float:
        if self._asleep is not None:
            since, seconds = self._asleep
            self._asleep = None
            self._slept += min(time.perf_counter() - since, seconds)
        return self._slept + time.thread_time()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        seconds = max(0.0, deadline - self.current_time())
        self._asleep = time.perf_counter(), seconds
        return seconds


async def timers(count: int, seconds: float) -> list[float]:
    """The baseline: lateness of `count` tasks that only sleep."""
    lateness: list[float] = []

    async def tick(phase: float) -> None:
        start = trio.current_time() + phase * FRAME_SECONDS
        arrivals = []
        for step in range(int(seconds / FRAME_SECONDS)):
            await trio.sleep_until(start + step * FRAME_SECONDS)
            arrivals.append(trio.current_time())
        lateness.extend(lateness_ms(arrivals))

    async with trio.open_nursery() as nursery:
        for index in range(count):
            nursery.start_soon(tick, index * 0.618 % 1)
    return lateness


async def play(sessions: list[Session], music: Path) -> None:
    async def one(session: Session) -> None:
        async with Player(session.sink) as player:
            await player.play(FileMedia(music))
            await player.wait_finished()

    async with trio.open_nursery() as nursery:
        for session in sessions:
            nursery.start_soon(one, session)


def p99(values: Sequence[float]) -> float:
    return float(np.percentile(values, 99))


# --- the audio -----------------------------------------------------------------------------------------


def decode_packets(packets: Sequence[bytes]) -> np.ndarray:
    decoder = av.AudioCodecContext.create("opus", "r")
    decoder.sample_rate = 48_000
    decoder.layout = "mono"
    return _joined(frame for data in packets for frame in decoder.decode(av.Packet(data)))


def decode_file(path: Path) -> np.ndarray:
    with av.open(str(path)) as container:
        return _joined(container.decode(audio=0))


def _joined(frames: object) -> np.ndarray:
    resampler = av.AudioResampler(format="flt", layout="mono", rate=48_000)
    pieces = [out.to_ndarray()[0] for frame in frames for out in resampler.resample(frame)]  # type: ignore[attr-defined]
    pieces += [out.to_ndarray()[0] for out in resampler.resample(None)]
    return np.concatenate(pieces)


def correlation(ours: np.ndarray, source: np.ndarray, *, most_delay: int = 4800) -> float:
    """Pearson's, at the delay (up to 0.1 s) where it is highest."""
    length = min(len(ours), len(source)) - most_delay
    size = 1 << (length + most_delay - 1).bit_length() + 1
    spectrum = np.fft.rfft(ours[: length + most_delay], size) * np.conj(np.fft.rfft(source[:length], size))
    delay = int(np.argmax(np.fft.irfft(spectrum, size)[:most_delay]))
    return float(np.corrcoef(ours[delay : delay + length], source[:length])[0, 1])


# ---------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument(
        "--cpu-clock", action="store_true", help="for a machine that is busy with other things"
    )
    parser.add_argument("--timers", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    clock = CpuClock() if options.cpu_clock else None
    if options.timers:
        print(json.dumps(trio.run(timers, options.sessions, options.seconds, clock=clock)))
        return 0

    music = encoded_music(seconds=options.seconds)
    sessions = [Session() for _ in range(options.sessions)]
    again = [sys.executable, "-m", "benches.frames", "--timers"]
    again += [f"--sessions={options.sessions}", f"--seconds={options.seconds}"]
    again += ["--cpu-clock"] if options.cpu_clock else []
    with subprocess.Popen(again, stdout=subprocess.PIPE) as child:
        wall, cpu = time.perf_counter(), time.process_time()
        trio.run(partial(play, sessions, music), clock=clock)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        assert child.stdout is not None
        bare = json.loads(child.stdout.read())

    source = decode_file(music)
    frames = -(-len(source) * RATE_HZ // 48_000 // int(RATE_HZ * FRAME_SECONDS))
    counts = {len(session.arrivals) for session in sessions}
    ours = [late for session in sessions for late in session.lateness_ms]
    report = {
        "sessions": options.sessions,
        "frames_expected": frames,
        "frames": sorted(counts),
        "gaps": sum(session.gaps for session in sessions),
        "late_frames": sum(session.sink.late_frames for session in sessions),
        "lateness_p99_ms": round(p99(ours), 2),
        "timers_p99_ms": round(p99(bare), 2),
        "most_frames_ahead": round(max(session.most_ahead for session in sessions), 3),
        "percent_of_a_core": round(100 * cpu / wall, 1),
        "correlation": round(correlation(decode_packets(sessions[-1].packets), source), 4),
    }
    bounds = {
        "frames": counts == {frames},
        "lateness_p99_ms": report["lateness_p99_ms"] <= report["timers_p99_ms"] + LATE_MS_AT_MOST,
        "most_frames_ahead": report["most_frames_ahead"] <= AHEAD_AT_MOST + _CLOCK_FRAMES,
        "percent_of_a_core": report["percent_of_a_core"] <= CORE_PERCENT_AT_MOST,
        "correlation": report["correlation"] >= CORRELATION_AT_LEAST,
    }
    for name, value in report.items():
        print(f"{name:>18}  {value}{'' if bounds.get(name, True) else '   MISSED'}")
    return 0 if all(bounds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
