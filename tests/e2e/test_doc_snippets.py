"""The snippets of the documentation run, with loopback peers in place of a radio, a satellite or a device."""

from __future__ import annotations

import io
import re
import wave
from contextlib import redirect_stdout
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from trio_websocket import ConnectionClosed, WebSocketConnection

from playhead.adapters.wyoming import WyomingSink
from playhead.adapters.xiaozhi import accept_device
from playhead.client.web import Web, origin_of
from playhead.playback import (
    AudioFrame,
    ClearFrames,
    FileMedia,
    FrameCodec,
    FramesSink,
    MixingSink,
    NullSink,
    Player,
)
from playhead.servers.audio import AudioServerOptions
from playhead.servers.audio.audio_server import open_audio_server
from tests.servers.loopback import tcp_server
from tests.servers.served_websocket import served_websocket
from tests.servers.threaded_http import threaded_http
from tests.servers.wave import write_wave
from tests.snippets import DOCS, FENCED, run_snippet, snippet
from tests.unit.adapters.test_wyoming import Speaker
from tests.unit.adapters.test_xiaozhi import connected

DATA = Path(__file__).parents[1] / "data"
SNIPPETS = {"own-sink.md": 1, "play.md": 1, "playback.md": 1, "voice-stacks.md": 5, "websocket.md": 1}
"""Those of voice-stacks.md for pipecat and LiveKit run in tests/adapters, which has the packages."""


def test_every_snippet_of_the_documentation_is_run_by_a_test() -> None:
    found = {page.name: len(FENCED.findall(page.read_text("utf-8"))) for page in DOCS.glob("*.md")}
    assert {page: count for page, count in found.items() if count} == SNIPPETS


async def test_a_radio_plays_through_the_own_sink() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "own-sink.md").read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {"Player": Player, "media": FileMedia(DATA / "chord.wav")}
    await run_snippet(program.partition("\n\n\nasync def main")[0], names)
    heard = bytearray()
    ended = trio.Event()

    async def radio(stream: trio.SocketStream) -> None:
        async for piece in stream:
            heard.extend(piece)
        ended.set()

    async with tcp_server(radio) as port:
        code = snippet("own-sink.md", "radio").replace('"radio.local", 5000', f'"127.0.0.1", {port}')
        await run_snippet(code, names)
        await names["radio"]._stream.aclose()
        await ended.wait()
    with wave.open(str(DATA / "chord.wav")) as file:
        seconds = file.getnframes() / file.getframerate()
    assert len(heard) == pytest.approx(seconds * 48_000 * 4, rel=0.01)
    assert any(heard)


async def test_a_url_is_played_by_a_program() -> None:
    sink = NullSink(real_time=False)

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(DATA))

        def log_message(self, format: str, *args: Any) -> None: ...

    with threaded_http(Handler) as origin:
        names: dict[str, Any] = {"DeviceSink": lambda: sink, "Player": Player}
        names |= {"Web": partial(Web, allow_origins={origin_of(origin)}), "url": f"{origin}/chord.wav"}
        await run_snippet(snippet("play.md", "web.media"), names)
    assert sink.report is not None
    assert sink.report.frames > 0


async def test_an_announcement_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dinner.mp3").write_bytes((DATA / "gapless.mp3").read_bytes())
    async with Player(MixingSink(NullSink(real_time=False))) as player:
        names = {
            "player": player,
            "music": FileMedia(DATA / "chord.wav"),
            "FileMedia": FileMedia,
            "Path": Path,
        }
        await run_snippet(snippet("playback.md", "announce"), names)
        await player.wait_finished()
        assert player.snapshot().last_error is None


async def test_frames_are_sent_to_a_device(tmp_path: Path) -> None:
    pytest.importorskip("av")
    sent: list[str | bytes] = []

    async def send_message(message: str | bytes) -> None:
        sent.append(message)

    names: dict[str, Any] = {"AudioFrame": AudioFrame, "ClearFrames": ClearFrames, "FramesSink": FramesSink}
    names |= {"FrameCodec": FrameCodec, "Player": Player, "media": FileMedia(DATA / "chord.wav")}
    names["websocket"] = SimpleNamespace(send_message=send_message)
    await run_snippet(snippet("voice-stacks.md", "FramesSink"), names)
    with wave.open(str(DATA / "chord.wav")) as file:
        seconds = file.getnframes() / file.getframerate()
    assert len(sent) == pytest.approx(seconds / 0.06, abs=1)
    assert all(isinstance(message, bytes) for message in sent)


async def test_a_client_without_a_library_lists_the_tools() -> None:
    async with (
        open_audio_server(AudioServerOptions(mixer="memory")) as server,
        served_websocket(server) as port,
    ):
        code = snippet("websocket.md", "websockets.sync").replace(":3001/", f":{port}/")
        with redirect_stdout(io.StringIO()) as printed:
            await trio.to_thread.run_sync(exec, code, {})
    greeting, tools = printed.getvalue().splitlines()
    assert "playhead-audio" in greeting
    assert "musicPlayer" in tools


async def test_a_wyoming_satellite_plays() -> None:
    speaker = Speaker()
    result = SimpleNamespace(media=[FileMedia(DATA / "chord.wav")])
    async with tcp_server(speaker.serve) as port:
        code = snippet("voice-stacks.md", "WyomingSink")
        code = code.replace('"satellite.local", 10700', f'"127.0.0.1", {port}')
        await run_snippet(code, {"WyomingSink": WyomingSink, "Player": Player, "result": result})
    assert speaker.kinds[:3] == ["describe", "audio-start", "audio-chunk"]
    assert speaker.kinds[-1] == "audio-stop"
    assert any(speaker.pcm)


async def test_a_xiaozhi_device_plays_and_is_interrupted(tmp_path: Path) -> None:
    pytest.importorskip("av")
    long = tmp_path / "long.wav"
    write_wave(long, b"\0\x10" * 24_000 * 60, rate_hz=24_000)

    has_stopped = trio.Event()

    class StoppedPlayer(Player):
        async def stop(self, *, fade_seconds: float = 0.0) -> None:
            await super().stop(fade_seconds=fade_seconds)
            has_stopped.set()

    async def serve(websocket: WebSocketConnection) -> None:
        names = {"accept_device": accept_device, "Player": StoppedPlayer, "media": FileMedia(long)}
        with pytest.RaisesGroup(ConnectionClosed, allow_unwrapped=True, flatten_subgroups=True):
            await run_snippet(snippet("voice-stacks.md", "accept_device"), {**names, "websocket": websocket})

    async with connected(serve, version=1) as device:
        await device.say(type="listen", state="start", mode="auto")
        await device.heard.wait()
        await device.say(type="abort", reason="wake_word_detected")
        await device.stopped.wait()
        await has_stopped.wait()
        await trio.testing.wait_all_tasks_blocked()
    assert device.states == ["start", "stop"]
