"""Live streams in simulated time: `python -m benches.live replay`, `python -m benches.live radio --hours N`.

`replay`: the timed replay of a public text-to-speech server, which writes an HLS playlist while it speaks. A
player hears it from a web in this process; beside it is a client that waits for the end.

`radio`: a player hears a station for N hours, and its connection is cut `--cuts` times in each. The title
changes every three minutes. After each hour a line shows the resources of the process.

The exit status is 1 if audio is late, missing, repeated or interrupted, a title is missing, or memory grows.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from array import array
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import httpcore2
import httpx2
import trio
import trio.testing
from trio.testing import MockClock

from benches.music import encoded_music
from benches.soak import Held, held
from playhead.content.coded_frames import mpeg_frame
from playhead.playback import AudioFrame, ClearFrames, FramesSink, ItemTitle, Player
from tests.live_kit import LiveMedia, MemoryWeb, ffmpeg

CAPTURE = (
    (3.726, 11.075, 105_094),
    (3.726, 0.0, 39),
    (7.442, 12.950, 126_460),
    (8.188, 12.750, 122_865),
    (9.099, 13.675, 131_372),
    (9.809, 13.000, 127_026),
)
"""The segments of the capture: when each was first seen, its seconds and its bytes."""
TOOL_ENDS = 10.345
TARGET = "17.075"
RATE_HZ = 24_000
LATE_SECONDS = 0.06
"""The time from the last byte of the first segment to the first sound."""
TITLE_SECONDS = 180.0
INTERVAL = 16_000
GRAIN_SECONDS = 0.0005
PATIENT_SECONDS = 10.0
"""Real time that the decoder has for audio whose bytes have arrived, on a busy machine too."""


@dataclass(slots=True)
class Listener:
    """A player in simulated time: the frames that it was given, when they came, and its titles."""

    frame_ms: int
    rate_hz: int
    channels: int
    keeps: bool = True
    pcm: bytearray = field(default_factory=bytearray)
    seconds: float = 0.0
    first_at: float | None = None
    titles: list[tuple[float, str]] = field(default_factory=list)

    async def hear(self, event: AudioFrame | ClearFrames) -> None:
        if isinstance(event, AudioFrame):
            if self.first_at is None:
                self.first_at = trio.current_time()
            self.seconds += self.frame_ms / 1000
            if self.keeps:
                self.pcm += event.data

    def sink(self) -> FramesSink:
        return FramesSink(self.hear, frame_ms=self.frame_ms, rate_hz=self.rate_hz, channels=self.channels)

    async def note_titles(self, player: Player) -> None:
        async for event in player.events():
            if isinstance(event, ItemTitle):
                self.titles.append((trio.current_time(), event.stream_title))


async def advance(clock: MockClock, player: Player, media: LiveMedia) -> None:
    """Move the clock whenever every task waits for it, and the decoder waits for bytes or has audio."""
    while True:
        await trio.testing.wait_all_tasks_blocked()
        late = time.monotonic() + PATIENT_SECONDS
        while is_decoding(player, media) and time.monotonic() < late:
            await trio.to_thread.run_sync(time.sleep, GRAIN_SECONDS)
        await trio.testing.wait_all_tasks_blocked()
        seconds = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if seconds < math.inf:
            clock.jump(max(0.0, seconds))
        else:  # a thread is at work
            await trio.to_thread.run_sync(time.sleep, GRAIN_SECONDS)


def is_decoding(player: Player, media: LiveMedia) -> bool:
    state, stream = player.snapshot(), media.stream
    if stream is None or state.buffered_seconds >= 0.6:
        return False
    driver, item = stream._driver, player._controller.item
    if driver.pipe.closed:  # the decoder may still hold what it read last
        return item is not None and item.buffer is not None and not item.buffer.pipe.closed
    return stream.buffered_bytes > 0 or not driver.wait.reader_waits


# --- the replay ------------------------------------------------------------------------------------------


def speech(directory: Path) -> tuple[list[bytes], bytes]:
    """The segments of the capture, and FFmpeg's own decode of them, joined: 16-bit samples."""
    segments = []
    for number, (_seen, seconds, _size) in enumerate(CAPTURE):
        if not seconds:
            segments.append(b"ID3\4\0\0\0\0\0\x1d" + bytes(29))  # 39 bytes without a sample
            continue
        tone = f"aevalsrc=0.3*sin(2*PI*t*(200+{40 * number}+30*sin(t))):s={RATE_HZ}:d={seconds}"
        encode = ("-c:a", "aac", "-b:a", "76k", "-f", "adts", "pipe:1")
        segments.append(ffmpeg("-f", "lavfi", "-i", tone, *encode, cwd=directory))
    joined = b"".join(part for part in segments if not part.startswith(b"ID3"))
    return segments, ffmpeg("-i", "pipe:0", "-f", "s16le", "pipe:1", cwd=directory, data=joined)


class SpeakingServer:
    """The server of the capture, by trio's clock from now on."""

    def __init__(self, segments: list[bytes]) -> None:
        self._segments, self._began = segments, trio.current_time()
        self.first_whole_at: float | None = None
        self.web = MemoryWeb({"/speech.m3u8": self._list})
        self.web.routes |= {f"/s{number}.aac": self._segment for number in range(len(segments))}

    def _list(self, request: httpx2.Request) -> httpx2.Response:
        now = trio.current_time() - self._began
        lines = [
            "#EXTM3U",
            "#EXT-X-VERSION:3",
            f"#EXT-X-TARGETDURATION:{TARGET}",
            "#EXT-X-PLAYLIST-TYPE:EVENT",
        ]
        for number, (seen, seconds, _size) in enumerate(CAPTURE):
            if seen <= now:
                lines += [f"#EXTINF:{seconds:.3f},", f"s{number}.aac"]
        return httpx2.Response(200, text="\n".join([*lines, *["#EXT-X-ENDLIST"] * (now >= TOOL_ENDS), ""]))

    def _segment(self, request: httpx2.Request) -> httpx2.Response:
        number = int(request.url.path[2:-4])

        async def chunks() -> AsyncIterator[bytes]:
            if number == 0:
                self.first_whole_at = trio.current_time()
            yield self._segments[number]

        return httpx2.Response(
            200, headers={"content-length": str(len(self._segments[number]))}, content=chunks()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The outcome of a replay. Times are seconds from the call of the tool."""

    first_sound: float
    after_first_segment: float
    underruns: int
    is_exact: bool
    """True if every sample was heard once, in order."""
    requests: int
    ended_at: float


async def replay(segments: list[bytes], expected: bytes, clock: MockClock, *, wait: float = 0.0) -> Replay:
    """Hear the capture; `wait` is when the client begins."""
    for module in ("av", "m3u8"):
        import_module(module)  # in the first replay its import would count as decoding
    server, began = SpeakingServer(segments), trio.current_time()
    clock.jump(wait)
    media = LiveMedia(web=server.web, path="/speech.m3u8")
    listener = Listener(20, RATE_HZ, 1)
    async with trio.open_nursery() as nursery, Player(listener.sink()) as player:
        nursery.start_soon(advance, clock, player, media)
        await player.play(media)
        await player.wait_finished()
        state = player.snapshot()
        ended_at = trio.current_time() - began
        nursery.cancel_scope.cancel()
    assert listener.first_at is not None
    assert server.first_whole_at is not None
    return Replay(
        first_sound=listener.first_at - began,
        after_first_segment=listener.first_at - server.first_whole_at,
        underruns=state.underruns,
        is_exact=is_same(bytes(listener.pcm), expected),
        requests=len(server.web.requests),
        ended_at=ended_at,
    )


def is_same(heard: bytes, expected: bytes) -> bool:
    """Equal 16-bit samples but for dither; the last frame is padded."""
    got, wanted = array("h", heard), array("h", expected)
    padding = len(got) - len(wanted)
    return 0 <= padding < RATE_HZ // 50 and all(
        abs(a - b) <= 2 for a, b in zip(got[::5], wanted[::5], strict=False)
    )


async def compare(directory: Path, clock: MockClock) -> int:
    segments, expected = speech(directory)
    live = await replay(segments, expected, clock)
    waits = await replay(segments, expected, clock, wait=TOOL_ENDS)
    print(f"playhead: first sound at {live.first_sound:.3f} s")
    print(f"  {live.after_first_segment * 1000:.0f} ms after the last byte of the first segment")
    print(f"  every sample once: {live.is_exact}; underruns {live.underruns}; {live.requests} requests")
    print(f"a client that waits for the end: first sound at {waits.first_sound:.3f} s")
    is_good = live.is_exact and not live.underruns and live.after_first_segment <= LATE_SECONDS
    return int(not is_good)


# --- radio ------------------------------------------------------------------------------------------------


class Station:
    """An endless MP3 by trio's clock, with titles; each connection is cut at the next of `cuts`."""

    def __init__(self, cuts: list[float]) -> None:
        self._audio = encoded_music(times=1).read_bytes()
        self._audio, self._rate = _frames_of(self._audio)
        self._began, self._cuts = trio.current_time(), cuts
        self.connections = self.open = self.most_open = 0
        self.web = MemoryWeb({"/radio": self._answer})
        self.sent_bytes = 0

    def title(self) -> str:
        return f"Song {int((trio.current_time() - self._began) / TITLE_SECONDS)}"

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.web.requests.clear()  # hours of them would be memory
        assert request.headers["icy-metadata"] == "1"
        self.connections += 1
        headers = {"icy-name": "Simulated", "icy-metaint": str(INTERVAL), "content-type": "audio/mpeg"}
        return httpx2.Response(200, headers=headers, content=self._send())

    async def _send(self) -> AsyncIterator[bytes]:
        cut = self._cuts.pop(0) if self._cuts else math.inf
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        told, left, ahead = "", INTERVAL, int(4 * self._rate)
        began, sent = trio.current_time(), 0
        at = int((began - self._began) * self._rate) % len(self._audio)
        try:
            while True:
                now = trio.current_time()
                if now - self._began >= cut:
                    raise httpcore2.ReadError("cut")
                due = int((now - began) * self._rate) + ahead - sent
                if due < 4000:
                    await trio.sleep(min(0.5, max(0.01, self._began + cut - now)))
                    continue
                part = (self._audio[at : at + min(due, left, 8000)]) or self._audio[: min(due, left, 8000)]
                at = (at + len(part)) % len(self._audio)
                sent, left = sent + len(part), left - len(part)
                self.sent_bytes += len(part)
                yield part
                if not left:
                    left, title = INTERVAL, self.title()
                    text = b"" if title == told else f"StreamTitle='{title}';".encode()
                    told = title
                    yield bytes([-(-len(text) // 16)]) + text.ljust(-(-len(text) // 16) * 16, b"\0")
        finally:
            self.open -= 1


def _frames_of(data: bytes) -> tuple[bytes, float]:
    """The whole frames of an MP3, and their bytes per second."""
    begin = end = next(at for at in range(len(data)) if mpeg_frame(data, at) is not None)
    seconds = 0.0
    while (frame := mpeg_frame(data, end)) is not None and end + frame.size_bytes <= len(data):
        end, seconds = end + frame.size_bytes, seconds + 1 / frame.frames_per_second
    return data[begin:end], (end - begin) / seconds


async def hear_radio(hours: float, cuts_per_hour: int, clock: MockClock, *, prints: bool = True) -> int:
    """Hear a station for `hours`. Returns 1 if something is missing."""
    choose = random.Random(27)
    count = int(hours * cuts_per_hour)
    station = Station(sorted(choose.uniform(10, 3600 * hours - 10) for _ in range(count)))
    media = LiveMedia(web=station.web, path="/radio")
    listener = Listener(250, 44_100, 2, keeps=False)
    began, settled, now = time.monotonic(), None, None
    async with trio.open_nursery() as nursery, Player(listener.sink()) as player:
        nursery.start_soon(advance, clock, player, media)
        nursery.start_soon(listener.note_titles, player)
        await player.play(media)
        for hour in range(1, math.ceil(hours) + 1):
            await trio.sleep(min(3600.0, 3600.0 * hours))
            now = held()
            settled = now if hour == 2 else settled
            if prints:
                took = time.monotonic() - began
                assert media.stream is not None
                reconnects = media.stream.statistics().reconnects
                print(
                    f"{hour} h: {listener.seconds / 3600:.3f} h heard, {reconnects} reconnects, at most"
                    f" {station.most_open} connection, {len(listener.titles)} titles, underruns"
                    f" {player.snapshot().underruns}, {took:.0f} s: {now}",
                    flush=True,
                )
        assert media.stream is not None
        reconnects = media.stream.statistics().reconnects
        is_whole = reconnects == count and station.most_open == 1
        is_whole &= [title for _at, title in listener.titles] == [
            f"Song {number}" for number in range(len(listener.titles))
        ]
        is_whole &= len(listener.titles) >= hours * 3600 / TITLE_SECONDS - 1
        is_whole &= listener.seconds >= 0.98 * 3600 * hours
        nursery.cancel_scope.cancel()
    return int(not is_whole or _grew(settled, now))


def _grew(settled: Held | None, now: Held | None) -> bool:
    return settled is not None and now is not None and now.has_grown_since(settled)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benches.live", description=__doc__)
    parser.add_argument("what", choices=["replay", "radio"])
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--cuts", type=int, default=100, help="in each hour")
    arguments = parser.parse_args()
    clock = MockClock()
    if arguments.what == "radio":
        return trio.run(hear_radio, arguments.hours, arguments.cuts, clock, clock=clock)
    with tempfile.TemporaryDirectory() as directory:
        return trio.run(compare, Path(directory), clock, clock=clock)


if __name__ == "__main__":
    raise SystemExit(main())
