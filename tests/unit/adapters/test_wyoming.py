"""A Wyoming service on loopback that sends what version 1.10.2 of the `wyoming` package sends, byte for byte.

`make extra NAME=adapters` runs the same against the package itself (tests/adapters).
"""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from playhead.adapters.wyoming import WyomingSink
from playhead.errors import ConnectError, ConnectionLostError, ProtocolError
from playhead.playback.formats import PcmFormat
from playhead.playback.pcm_buffer import PcmBuffer, PcmSequence
from playhead.testing.sinks import buffer_of, tone
from tests.servers.loopback import tcp_server

SPEECH = PcmFormat(rate_hz=16_000, channels=1)
PIPER = PcmFormat(rate_hz=22_050, channels=1)
DATA = (
    b'{"asr": [], "tts": [], "handle": [], "intent": [], "wake": [], "mic": [], "snd": [{"name": "speaker", '
    b'"attribution": {"name": "a", "url": "u"}, "installed": true, "description": "d", "version": "1", '
    b'"snd_format": {"rate": 22050, "width": 2, "channels": 1}}]}'
)
INFO = b'{"type": "info", "version": "1.10.2", "data_length": %d}\n' % len(DATA) + DATA
PLAYED = b'{"type": "played", "version": "1.10.2"}\n'


def long_tone() -> PcmBuffer:
    return buffer_of(tone(SPEECH, frames=5000), SPEECH)


Event = tuple[str, dict[str, Any], bytes]


class Speaker:
    """Reads events as the package does, and answers `describe` and `audio-stop`."""

    def __init__(self, *, info: bytes = INFO, played: bytes = PLAYED) -> None:
        self.events: list[Event] = []
        self.ended = trio.Event()
        self.started = trio.Event()
        self.tenth_chunk = trio.Event()
        self._answers = {"describe": info, "audio-stop": played}

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.events]

    @property
    def pcm(self) -> bytes:
        return b"".join(payload for _, _, payload in self.events)

    async def serve(self, stream: trio.SocketStream) -> None:
        received = b""

        async def take(size: int | None) -> bytes:
            """The next `size` bytes; with None, a line."""
            nonlocal received
            while len(received) < size if size is not None else b"\n" not in received:
                piece = await stream.receive_some()
                if not piece:
                    raise EOFError
                received += piece
            end = received.index(b"\n") + 1 if size is None else size
            taken, received = received[:end], received[end:]
            return taken

        try:
            while True:
                head = json.loads(await take(None))
                data = await take(head.get("data_length") or 0)
                payload = await take(head.get("payload_length") or 0)
                self.events.append((head["type"], json.loads(data or b"{}"), payload))
                self.started.set()
                if self.kinds.count("audio-chunk") == 10:
                    self.tenth_chunk.set()
                if head["type"] in self._answers:
                    await stream.send_all(self._answers[head["type"]])
        except (EOFError, trio.BrokenResourceError):
            self.ended.set()


async def test_the_service_hears_the_samples_of_the_source_between_start_and_stop() -> None:
    speaker, pcm = Speaker(), tone(SPEECH, frames=3 * 960)
    async with tcp_server(speaker.serve) as port:
        await WyomingSink("127.0.0.1", port).play(PcmSequence(buffer_of(pcm, SPEECH)))
    assert speaker.kinds == ["audio-start", "audio-chunk", "audio-chunk", "audio-chunk", "audio-stop"]
    assert speaker.pcm == pcm
    audio = {"rate": 16000, "width": 2, "channels": 1}
    assert speaker.events[0][1] == audio
    assert [data for kind, data, _ in speaker.events if kind == "audio-chunk"] == [
        audio | {"timestamp": milliseconds} for milliseconds in (0, 60, 120)
    ]


LATE_SECONDS = 0.3


@pytest.fixture
async def late_service(monkeypatch: pytest.MonkeyPatch, nursery: trio.Nursery) -> Speaker:
    """A service that acknowledges late, in simulated time."""
    speaker = Speaker()

    async def connect(host: str, port: int) -> trio.StapledStream[Any, Any]:
        ours, theirs = trio.testing.memory_stream_pair()

        async def answer(data: bytes) -> None:
            await trio.sleep(LATE_SECONDS)
            await theirs.send_stream.send_all(data)

        late: Any = SimpleNamespace(receive_some=theirs.receive_some, send_all=answer)
        nursery.start_soon(speaker.serve, late)
        return ours

    monkeypatch.setattr(trio, "open_tcp_stream", connect)
    return speaker


async def test_a_service_that_acknowledges_late_holds_audio_that_was_not_heard(
    autojump_clock: trio.testing.MockClock, late_service: Speaker
) -> None:
    sink, buffers = WyomingSink("127.0.0.1", 1), [long_tone(), long_tone()]
    for buffer in buffers:
        await sink.play(PcmSequence(buffer))
    lead, lead_and_held = (buffer.device_seconds for buffer in buffers)
    assert lead_and_held - lead == pytest.approx(LATE_SECONDS)


async def test_an_acknowledgement_of_a_seek_counts_for_the_item_that_plays(
    autojump_clock: trio.testing.MockClock, late_service: Speaker, nursery: trio.Nursery
) -> None:
    sink, buffer = WyomingSink("127.0.0.1", 1), buffer_of(tone(SPEECH, frames=19_000), SPEECH)
    nursery.start_soon(sink.play, PcmSequence(buffer))
    await late_service.tenth_chunk.wait()
    lead_seconds = buffer.device_seconds
    buffer.seeks += 1
    buffer.settle()
    await trio.sleep(LATE_SECONDS + 0.001)
    two_frames_seconds = 0.12  # were not heard yet at the seek
    assert buffer.device_seconds - lead_seconds == pytest.approx(LATE_SECONDS - two_frames_seconds)


async def test_the_service_is_asked_for_its_format() -> None:
    speaker, pcm = Speaker(), tone(PIPER, frames=2 * 1323)
    async with tcp_server(speaker.serve) as port:
        sink = await WyomingSink.discover("127.0.0.1", port)
        await sink.play(PcmSequence(buffer_of(pcm, PIPER)))
    assert speaker.kinds == ["describe", "audio-start", "audio-chunk", "audio-chunk", "audio-stop"]
    assert speaker.events[1][1] == {"rate": 22050, "width": 2, "channels": 1}
    assert speaker.pcm == pcm


async def test_without_a_format_of_16_bits_it_is_the_usual_one() -> None:
    text = b'{"snd": [{"snd_format": {"rate": 22050, "width": 4, "channels": 1}}]}'
    speaker = Speaker(info=b'{"type": "info", "data_length": %d}\n' % len(text) + text)
    async with tcp_server(speaker.serve) as port:
        sink = await WyomingSink.discover("127.0.0.1", port)
        await sink.play(PcmSequence(buffer_of(tone(SPEECH, frames=960), SPEECH)))
    assert speaker.events[1][1]["rate"] == 16000


async def test_a_stop_ends_the_audio_and_the_connection() -> None:
    speaker = Speaker()
    async with tcp_server(speaker.serve) as port, trio.open_nursery() as nursery:
        nursery.start_soon(WyomingSink("127.0.0.1", port).play, PcmSequence(long_tone()))
        await speaker.started.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await speaker.ended.wait()
    assert speaker.kinds[-1] == "audio-stop"


async def test_a_service_that_closes_the_connection_fails_the_item() -> None:
    async def hang_up(stream: trio.SocketStream) -> None:
        await stream.aclose()

    speaker = Speaker()
    speaker.serve = hang_up  # type: ignore[method-assign]
    async with tcp_server(speaker.serve) as port:
        with pytest.raises(ConnectionLostError, match="closed the connection"):
            await WyomingSink("127.0.0.1", port).play(PcmSequence(long_tone()))


@pytest.mark.parametrize(
    "answer",
    [
        b"not json\n",
        b"[]\n",
        b'{"type": "info", "data_length": "7"}\n',
        b'{"type": "info", "data": [1]}\n',
        b'{"type": "info", "data_length": 4000000000}\n' + bytes(2_000_000),
        b"[" * 100_000 + b"\n",
        b"x" * 2_000_000,
    ],
)
async def test_an_invalid_event_is_refused_in_bounded_memory(answer: bytes) -> None:
    async with tcp_server(Speaker(info=answer).serve) as port:
        with pytest.raises(ProtocolError, match="Wyoming event"):
            await WyomingSink.discover("127.0.0.1", port)


async def test_a_service_that_is_down_is_a_connect_error_with_its_address() -> None:
    with socket.socket() as reserved:  # bound and not listening: nobody else answers there
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        refused = f"could not connect to 127.0.0.1:{port}: connection refused"
        with pytest.raises(ConnectError, match=refused):
            await WyomingSink.discover("127.0.0.1", port)
        with pytest.raises(ConnectError, match=refused):
            await WyomingSink("127.0.0.1", port).play(PcmSequence(long_tone()))
