"""A simulated device on loopback: it sends the messages of the firmware (main/protocols), checks ours as the
firmware does, and decodes the Opus frames that it would play."""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing
from trio_websocket import (
    ConnectionClosed,
    WebSocketConnection,
    WebSocketRequest,
    open_websocket,
    serve_websocket,
)

from playhead.adapters.xiaozhi import HELLO_SECONDS, accept_device
from playhead.errors import ProtocolError
from playhead.playback import FileMedia, Player, Status
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmSequence
from playhead.testing.sinks import buffer_of
from tests.tones import decoded_opus, sine, strength_and_rest, wave_file

RATE = 24_000
SOURCE = PcmFormat(rate_hz=RATE, channels=1)
VERSIONS = (1, 2, 3)
HELLO = (
    '{"type":"hello","version":1,"features":{"mcp":true},"transport":"websocket","audio_params":'
    '{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}'
)
HEAD_2 = struct.Struct("!HHLLL")
"""`BinaryProtocol2`: version, type, reserved, timestamp, payload_size."""
HEAD_3 = struct.Struct("!BBH")
"""`BinaryProtocol3`: type, reserved, payload_size."""


def hello_of(version: int) -> str:
    return HELLO.replace('"version":1', f'"version":{version}')


SHORT = sine(6 * 1440 - 240, RATE).tobytes()


class Device:
    """The device's side of a connection, after its hello."""

    def __init__(self, socket: WebSocketConnection, version: int) -> None:
        self.socket = socket
        self.version = version
        self.session = ""
        self.rate_hz = 0
        self.states: list[str] = []
        self.packets: list[bytes] = []
        self.timestamps_ms: list[int] = []
        self.heard = trio.Event()
        self.stopped = trio.Event()

    async def run(self) -> None:
        with suppress(ConnectionClosed):
            while True:
                message = await self.socket.get_message()
                if isinstance(message, bytes):
                    assert self.states[-1:] == ["start"], "audio that the firmware ignores"
                    self.packets.append(self.payload(message))
                    self.heard.set()
                    continue
                match json.loads(message):
                    case {
                        "type": "hello",
                        "transport": "websocket",
                        "session_id": session,
                        "audio_params": parameters,
                    }:
                        self.session, self.rate_hz = session, parameters["sample_rate"]
                        assert parameters == {
                            "format": "opus",
                            "sample_rate": self.rate_hz,
                            "channels": 1,
                            "frame_duration": 60,
                        }
                    case {"type": "tts", "state": state, "session_id": self.session}:
                        self.states.append(state)
                        if state == "stop":
                            self.stopped.set()
                    case other:
                        raise AssertionError(other)

    def payload(self, message: bytes) -> bytes:
        """Return the Opus frame in a message, as `WebsocketProtocol::OnData` finds it."""
        match self.version:
            case 1:
                return message
            case 2:
                version, kind, reserved, timestamp_ms, size = HEAD_2.unpack_from(message)
                assert (version, kind, reserved) == (2, 0, 0)
                self.timestamps_ms.append(timestamp_ms)
                start = HEAD_2.size
            case _:
                kind, reserved, size = HEAD_3.unpack_from(message)
                assert (kind, reserved) == (0, 0)
                start = HEAD_3.size
        assert len(message) == start + size
        return message[start:]

    async def send_audio(self, frame: bytes, timestamp_ms: int = 0) -> None:
        """Send a frame of the microphone, as `WebsocketProtocol::SendAudio` does."""
        heads = {
            1: b"",
            2: HEAD_2.pack(2, 0, 0, timestamp_ms, len(frame)),
            3: HEAD_3.pack(0, 0, len(frame)),
        }
        await self.socket.send_message(heads[self.version] + frame)

    async def say(self, **message: str) -> None:
        await self.socket.send_message(json.dumps({"session_id": self.session, **message}))


@asynccontextmanager
async def connected(
    serve: Callable[[WebSocketConnection], Awaitable[None]], version: int
) -> AsyncIterator[Device]:
    """A device of a protocol version that has connected to a server, which runs `serve` for it."""

    async def handle(request: WebSocketRequest) -> None:
        await serve(await request.accept())

    async with trio.open_nursery() as nursery:
        start = partial(serve_websocket, handle, "127.0.0.1", 0, ssl_context=None)
        server = await nursery.start(start)
        async with open_websocket("127.0.0.1", server.port, "/", use_ssl=False) as socket:
            device = Device(socket, version)
            nursery.start_soon(device.run)
            await socket.send_message(hello_of(version))
            yield device
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_device_hears_the_source_between_start_and_stop(version: int) -> None:
    async def serve(socket: WebSocketConnection) -> None:
        async with accept_device(socket) as sink:
            assert sink.version == version
            await sink.play(PcmSequence(buffer_of(SHORT, SOURCE)))
            await trio.sleep_forever()

    async with connected(serve, version) as device:
        await device.stopped.wait()
        assert device.states == ["start", "stop"]
        assert device.rate_hz == RATE
        assert len(device.packets) == 6
        assert device.timestamps_ms == ([0, 60, 120, 180, 240, 300] if version == 2 else [])
    steady = decoded_opus(device.packets)[2880:-2880]
    assert len(steady) > 48_000 // 10
    strength, rest = strength_and_rest(steady, 48_000)
    assert strength == pytest.approx(12_000 / 32_768, rel=0.1)
    assert rest < 0.02


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_abort_of_the_device_ends_the_audio_and_the_next_queue_begins_anew(
    version: int, tmp_path: Path
) -> None:
    (tmp_path / "long.wav").write_bytes(wave_file(sine(10 * RATE, RATE).tobytes(), RATE))

    async def serve(socket: WebSocketConnection) -> None:
        async with accept_device(socket) as sink, Player(sink) as player:
            await player.play(FileMedia(tmp_path / "long.wav"))
            async for message in sink.messages():
                match message:
                    case {"type": "abort", "reason": "wake_word_detected"}:
                        await player.stop()
                        assert player.snapshot().status is Status.STOPPED
                    case {"type": "listen", "state": "detect", "text": "again"}:
                        await player.play(FileMedia(tmp_path / "long.wav"))
                    case bytes(frame):
                        assert frame == b"opus of the microphone"

    async with connected(serve, version) as device:
        await device.heard.wait()
        await device.send_audio(b"opus of the microphone", timestamp_ms=2**32 - 60)
        await device.say(type="abort", reason="wake_word_detected")
        await device.stopped.wait()
        assert device.states == ["start", "stop"]
        assert len(device.packets) < 50
        device.heard = trio.Event()
        await device.say(type="listen", state="detect", text="again")
        await device.heard.wait()
        assert device.states == ["start", "stop", "start"]


class Stuck:
    """A socket that takes nothing after the hello."""

    def __init__(self) -> None:
        self.sent: list[str | bytes] = []
        self.stuck = trio.Event()

    async def get_message(self) -> str | bytes:
        return HELLO

    async def send_message(self, message: str | bytes) -> None:
        self.sent.append(message)
        if len(self.sent) > 1:
            self.stuck.set()
            await trio.sleep_forever()


async def test_a_stop_does_not_wait_for_a_device_that_takes_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    socket = Stuck()
    async with accept_device(socket) as sink, trio.open_nursery() as nursery:
        nursery.start_soon(sink.play, PcmSequence(buffer_of(SHORT, SOURCE)))
        await socket.stuck.wait()
        await trio.sleep(1)
        began = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began <= 0.1


@pytest.mark.parametrize(
    "hello",
    [
        hello_of(0),
        hello_of(4),
        HELLO.replace('"version":1', '"version":"1"'),
        HELLO.replace('"version":1,', ""),
        HELLO.replace('"transport":"websocket"', '"transport":"udp"'),
        HELLO.replace('"type":"hello"', '"type":"abort"'),
        "no JSON",
        "[" * 5000,
        "[]",
        b"\x00\x01",
    ],
)
async def test_another_hello_than_that_of_version_1_to_3_is_refused(hello: str | bytes) -> None:
    class Socket(Stuck):
        async def get_message(self) -> str | bytes:
            return hello

    socket = Socket()
    with pytest.raises(ProtocolError, match="from a device, got"):
        async with accept_device(socket):
            pass
    assert socket.sent == []


@pytest.mark.parametrize(
    ("version", "message"),
    [(2, b""), (2, HEAD_2.pack(2, 0, 0, 0, 3) + b"ab"), (3, b"\0\0"), (3, HEAD_3.pack(0, 0, 1) + b"ab")],
)
async def test_a_binary_message_that_is_no_frame_is_an_error(version: int, message: bytes) -> None:
    class Socket(Stuck):
        async def get_message(self) -> str | bytes:
            return message if self.sent else hello_of(version)

    async with accept_device(Socket()) as device:
        with pytest.raises(ProtocolError, match=f"expected a frame of version {version}"):
            await anext(device.messages())


async def test_a_device_that_says_nothing_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    class Socket(Stuck):
        async def get_message(self) -> str | bytes:
            await trio.sleep_forever()
            raise AssertionError

    with pytest.raises(ProtocolError, match="within 10 s"):
        async with accept_device(Socket()):
            pass
    assert trio.current_time() == pytest.approx(HELLO_SECONDS, abs=1)
