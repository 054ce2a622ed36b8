"""Wyoming: play on an audio output service (`snd`), such as the loudspeaker of a Home Assistant satellite.

An event of the protocol (https://github.com/OHF-Voice/wyoming) is a line of JSON, then the data and the
payload whose lengths the line states. This module writes and reads the six events that it uses without a
package.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import trio

from playhead.client.transports.http_errors import unreachable
from playhead.concurrency import unwrap_exception_group
from playhead.errors import ConnectError, ConnectionLostError, ProtocolError
from playhead.playback.pcm_buffer import PcmBuffer
from playhead.playback.sinks.frames import CONCLUDE_SECONDS, AudioFrame, FrameEvent, FramesSink
from playhead.strict_json import parse_json

MAX_EVENT_BYTES = 1024 * 1024
ANSWER_SECONDS = 5.0
"""Limits the wait for `info`, and for `played` after the last frame was heard."""


async def _connected(host: str, port: int) -> trio.SocketStream:
    try:
        return await trio.open_tcp_stream(host, port)
    except OSError as error:
        raise ConnectError(unreachable(f"{host}:{port}", error)) from error


class WyomingSink(FramesSink):
    """Plays on the service at `host` and `port`, in PCM of 16 bits, with one connection per queue.

    At a seek and at the end of a queue, the service sends `played` once all audio before it was heard. The
    delay of that event is the service's latency, which `heard_seconds` then takes into account.
    """

    def __init__(self, host: str, port: int, *, rate_hz: int = 16_000, channels: int = 1) -> None:
        super().__init__(self._deliver_event, rate_hz=rate_hz, channels=channels)
        self._address = (host, port)
        self._audio = {"rate": rate_hz, "width": 2, "channels": channels}

    @classmethod
    async def discover(cls, host: str, port: int) -> Self:
        """Return a sink in the format that the service states; in the default format if it states none, or
        none of 16 bits.

        Raises `ConnectError` if the service does not listen, as playing does.
        """
        with trio.move_on_after(ANSWER_SECONDS):
            async with await _connected(host, port) as stream:
                connection = _Connection(stream)
                await connection.send("describe", {})
                match (await connection.wait_for("info")).get("snd"):
                    case [{"snd_format": {"rate": rate, "width": 2, "channels": channels}}, *_]:
                        return cls(host, port, rate_hz=rate, channels=channels)
        return cls(host, port)

    async def play(self, buffers: AsyncIterator[PcmBuffer]) -> None:
        with unwrap_exception_group():
            async with await _connected(*self._address) as stream, trio.open_nursery() as nursery:
                self._connection = _Connection(stream)
                self._is_started, self._played = False, trio.Event()
                self._played.set()  # no answer is expected yet
                # For each `played` that is awaited: the time at which the audio would end without latency.
                self._expected_ends = deque[float]()
                nursery.start_soon(self._measure_latency)
                try:
                    await super().play(buffers)
                finally:
                    with trio.move_on_after(CONCLUDE_SECONDS, shield=True):
                        await self._stop()
                with trio.move_on_after(ANSWER_SECONDS):
                    await self._played.wait()
                nursery.cancel_scope.cancel()

    async def _deliver_event(self, event: FrameEvent) -> None:
        if not isinstance(event, AudioFrame):
            await self._stop()  # two frames, at most, are still heard
            return
        if not self._is_started:
            self._is_started = True
            await self._connection.send("audio-start", self._audio)
        self._last_frame_end = self._schedule.heard
        timestamp = round(event.timestamp_seconds * 1000)
        await self._connection.send("audio-chunk", self._audio | {"timestamp": timestamp}, event.data)

    async def _stop(self) -> None:
        if self._is_started:
            self._is_started, self._played = False, trio.Event()
            self._expected_ends.append(self._last_frame_end)
            await self._connection.send("audio-stop", {})

    async def _measure_latency(self) -> None:
        while True:
            await self._connection.wait_for("played")
            if self._expected_ends:
                self._set_held(max(0.0, trio.current_time() - self._expected_ends.popleft()))
            if not self._expected_ends:
                self._played.set()


class _Connection:
    """Sends and receives events."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._received = b""
        self._can_send = True

    async def send(self, kind: str, data: Mapping[str, int], payload: bytes = b"") -> None:
        text = json.dumps(data).encode()
        line = json.dumps({"type": kind, "data_length": len(text), "payload_length": len(payload)}).encode()
        if self._can_send:  # if a cancellation has cut off an event, no other can follow
            self._can_send = False
            try:
                await self._stream.send_all(line + b"\n" + text + payload)
            except trio.BrokenResourceError as error:
                raise ConnectionLostError("the Wyoming service closed the connection") from error
            self._can_send = True

    async def wait_for(self, kind: str) -> dict[str, Any]:
        """Return the data of the next event of this kind. Events of other kinds are dropped."""
        while True:
            try:
                head = parse_json(await self._read_line())
                text = await self._read(head.get("data_length") or 0)
                await self._read(head.get("payload_length") or 0)
                data = dict(parse_json(text) if text else head.get("data", {}))
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise ProtocolError(f"expected a Wyoming event, got an invalid one: {error}") from error
            if head.get("type") == kind:
                return data

    async def _read_line(self) -> bytes:
        while b"\n" not in self._received:
            await self._receive_more()
        return await self._read(self._received.index(b"\n") + 1)

    async def _read(self, n_bytes: int) -> bytes:
        while len(self._received) < n_bytes:
            await self._receive_more()
        data, self._received = self._received[:n_bytes], self._received[n_bytes:]
        return data

    async def _receive_more(self) -> None:
        if len(self._received) > MAX_EVENT_BYTES:
            raise ProtocolError(f"expected Wyoming events of at most {MAX_EVENT_BYTES} bytes, got more")
        if not (piece := await self._stream.receive_some()):
            raise ConnectionLostError("the Wyoming service closed the connection")
        self._received += piece
