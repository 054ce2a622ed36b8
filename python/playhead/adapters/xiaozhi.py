"""xiaozhi-esp32: play on a device that has opened a WebSocket to this program, in Opus.

The protocol (https://github.com/78/xiaozhi-esp32, main/protocols) begins with a hello from each side. Text
messages then carry JSON, and each binary message carries one Opus frame. The device plays the frames between
`tts start` and `tts stop`. The device's hello names the version of the protocol: a frame has no header in
version 1, one of 16 bytes in version 2, and one of 4 bytes in version 3.
"""

from __future__ import annotations

import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol
from uuid import uuid4

import trio

from playhead.concurrency import unwrap_exception_group
from playhead.errors import ProtocolError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.sinks import frames
from playhead.playback.sinks.frames import AudioFrame, FrameCodec, FrameEvent, FramesSink
from playhead.strict_json import parse_json

_FRAME_HEADERS = {2: struct.Struct(">HHIII"), 3: struct.Struct(">BBH")}
"""The header of a frame by version, in network byte order. Version 2 has the version, the type (0: Opus),
reserved bytes, the timestamp in ms and the size. Version 3 has the type, a reserved byte and the size."""
HELLO_SECONDS = 10.0
"""Limits the wait for the device's hello. The device waits as long for ours."""


class DeviceSocket(Protocol):
    """A WebSocket, such as trio-websocket's `WebSocketConnection`."""

    async def send_message(self, message: str | bytes) -> None: ...
    async def get_message(self) -> str | bytes: ...


@asynccontextmanager
async def accept_device(socket: DeviceSocket, *, rate_hz: int = 24_000) -> AsyncIterator[XiaozhiDevice]:
    """Exchange hellos with a device, and yield the sink that plays on it.

    `rate_hz` can be 8, 12, 16, 24 or 48 kHz, and the device resamples. The default, 24,000, is the rate that
    a device assumes. Needs the extra `formats`. Raises `ProtocolError` if no hello of version 1, 2 or 3
    arrives in time. Once the socket is closed, the context raises the socket's own exception.
    """
    session = uuid4().hex
    with trio.move_on_after(HELLO_SECONDS) as waiting:
        hello = _parse_object(await socket.get_message())
        match hello:
            case {"type": "hello", "transport": "websocket", "version": 1 | 2 | 3 as version}:
                pass
            case {"type": "hello", "transport": "websocket"}:
                got = str(hello.get("version"))[:200]
                raise ProtocolError(f"expected a hello of version 1, 2 or 3 from a device, got {got}")
            case _:
                raise ProtocolError(f"expected a hello over websocket from a device, got {str(hello)[:200]}")
    if waiting.cancelled_caught:
        raise ProtocolError(f"expected a hello from a device within {HELLO_SECONDS:g} s, got none")
    parameters = {"format": "opus", "sample_rate": rate_hz, "channels": 1, "frame_duration": frames.FRAME_MS}
    answer = {"type": "hello", "transport": "websocket", "session_id": session, "audio_params": parameters}
    await socket.send_message(json.dumps(answer))
    with unwrap_exception_group():
        async with trio.open_nursery() as nursery:
            device = XiaozhiDevice(socket, session=session, rate_hz=rate_hz, version=version)
            nursery.start_soon(device.write)
            yield device
            nursery.cancel_scope.cancel()


class XiaozhiDevice(FramesSink):
    """The sink of one connected device. `accept_device` yields it."""

    def __init__(self, socket: DeviceSocket, *, session: str, rate_hz: int, version: int) -> None:
        super().__init__(self._deliver_event, codec=FrameCodec.OPUS, rate_hz=rate_hz)
        self.version = version
        """The version of the protocol, 1 to 3."""
        self._socket = socket
        self._session = session
        self._is_speaking = False
        # This queue protects the connection: a cancelled player would break it in the middle of a message.
        self._send, self._receive = trio.open_memory_channel[str | bytes](1)

    async def messages(self) -> AsyncIterator[dict[str, Any] | bytes]:
        """The device's messages, until the socket raises: JSON objects, and Opus frames of its microphone.

        With `{"type": "abort"}` the user interrupts: call `Player.stop`. Only one task may iterate. Raises
        `ProtocolError` for a binary message that is not a frame of the device's version.
        """
        while True:
            message = await self._socket.get_message()
            if isinstance(message, bytes):
                yield _microphone_frame(self.version, message)
            else:
                yield _parse_object(message)

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        try:
            await super().play(buffers)
        finally:
            with trio.move_on_after(frames.CONCLUDE_SECONDS, shield=True):
                await self._stop()

    async def write(self) -> None:
        """Send the messages that `play` makes. `accept_device` runs it."""
        async for message in self._receive:
            await self._socket.send_message(message)

    async def _deliver_event(self, event: FrameEvent) -> None:
        if isinstance(event, AudioFrame):
            if not self._is_speaking:
                self._is_speaking = True
                await self._send.send(self._speech_message("start"))
            await self._send.send(_frame_message(self.version, event))
        else:
            with suppress(trio.WouldBlock):
                self._receive.receive_nowait()  # dropped, so that a slow connection does not delay a stop
            await self._stop()

    async def _stop(self) -> None:
        if self._is_speaking:
            self._is_speaking = False
            await self._send.send(self._speech_message("stop"))

    def _speech_message(self, state: str) -> str:
        return json.dumps({"session_id": self._session, "type": "tts", "state": state})


def _frame_message(version: int, frame: AudioFrame) -> bytes:
    match version:
        case 2:
            timestamp_ms = round(frame.timestamp_seconds * 1000) % 2**32
            return _FRAME_HEADERS[2].pack(2, 0, 0, timestamp_ms, len(frame.data)) + frame.data
        case 3:
            return _FRAME_HEADERS[3].pack(0, 0, len(frame.data)) + frame.data
        case _:
            return frame.data


def _microphone_frame(version: int, message: bytes) -> bytes:
    """Return the Opus frame in a binary message from the device."""
    if version not in _FRAME_HEADERS:
        return message
    header = _FRAME_HEADERS[version]
    size = int(header.unpack_from(message)[-1]) if len(message) >= header.size else 0
    if len(message) - header.size != size:
        raise ProtocolError(
            f"expected a frame of version {version} from a device, with its size in a header of {header.size}"
            f" bytes, got {len(message)} bytes: {message[:16].hex()}"
        )
    return message[header.size :]


def _parse_object(message: str | bytes) -> dict[str, Any]:
    try:
        value = parse_json(message) if isinstance(message, str) else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ProtocolError(f"expected a JSON object from a device, got {message[:200]!r}")
    return value
