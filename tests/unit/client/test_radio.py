"""Radio: one connection, titles between the audio, and another connection when it is lost."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path

import httpcore2
import httpx2
import pytest
import trio

from playhead.client.live import radio
from playhead.client.web import Web, WebKind, origin_of
from playhead.errors import PlayheadError, SeekError, StreamBrokenError
from playhead.stream.options import StreamEvent, StreamOptions, StreamTitle, StreamWaiting
from playhead.stream.reader import RangeStream
from tests.live_kit import MemoryWeb, decode_some, tagged_opus
from tests.servers.raw_origin import RawOrigin, raw_origin

DATA = Path(__file__).parents[2] / "data" / "audio"
URL = "/live"
INTERVAL = 1000


def block(title: str) -> bytes:
    text = f"StreamTitle='{title}';StreamUrl='';".encode() if title else b""
    return bytes([-(-len(text) // 16)]) + text.ljust(-(-len(text) // 16) * 16, b"\0")


def with_titles(audio: bytes, titles: Sequence[str]) -> bytes:
    """Audio with a title after each interval; the last one is repeated."""
    parts = []
    for number, at in enumerate(range(0, len(audio), INTERVAL)):
        part = audio[at : at + INTERVAL]
        title = titles[min(number, len(titles) - 1)] if number == 0 or number < len(titles) else ""
        parts.append(part + (block(title) if len(part) == INTERVAL else b""))
    return b"".join(parts)


class Station:
    """Sends its audio from where it is, in chunks, and cuts each connection as `cuts` says, in bytes; None
    sends all and goes on for ever without a byte."""

    def __init__(
        self,
        audio: bytes,
        cuts: Sequence[int | int | None],
        *,
        titles: Sequence[str] = (),
        mime_type: str = "audio/mpeg",
        chunk: int = 700,
    ) -> None:
        self._audio, self._cuts, self._titles, self._chunk = audio, list(cuts), titles, chunk
        self._mime_type = mime_type
        self.connections = 0
        self.open = 0
        self.most_open = 0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.connections += 1
        cut = self._cuts.pop(0)
        headers = {"icy-name": "Test", "content-type": self._mime_type}
        body = self._audio
        if self._titles and request.headers.get("icy-metadata") == "1":
            headers["icy-metaint"] = str(INTERVAL)
            body = with_titles(body, self._titles)
        return httpx2.Response(200, headers=headers, content=self._send(body, cut))

    async def _send(self, body: bytes, cut: int | None) -> AsyncIterator[bytes]:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            stop = len(body) if cut is None else cut
            for at in range(0, stop, self._chunk):
                yield body[at : min(at + self._chunk, stop)]
            if cut is None:
                await trio.sleep_forever()
            raise httpcore2.ReadError("cut")
        finally:
            self.open -= 1


async def take(stream: RangeStream, n_bytes: int) -> bytes:
    data = b""
    while len(data) < n_bytes:
        data += await stream.receive_some(n_bytes - len(data))
    return data


def frames(n_frames: int) -> bytes:
    """MP3 frames of 128 kbit/s at 44.1 kHz, each with its number in place of audio."""
    return b"".join(
        b"\xff\xfb\x90\x64" + number.to_bytes(4, "big") * 103 + b"\0" for number in range(n_frames)
    )


FRAME_BYTES = 417


@pytest.mark.parametrize("chunk", [1, 333, 1000, 4096])
async def test_no_byte_of_a_title_is_in_the_audio_however_it_arrives(chunk: int) -> None:
    audio, events = frames(12), list[StreamEvent]()
    station = Station(audio, [None], titles=["One", "It's two", "", "Ünï – three"], chunk=chunk)
    web = MemoryWeb({URL: station})
    async with web.opened(URL, options=StreamOptions(on_event=events.append)) as stream:
        assert await take(stream, len(audio)) == audio
        await trio.testing.wait_all_tasks_blocked()
    assert events == [StreamTitle(title=title) for title in ("One", "It's two", "Ünï – three")]
    assert station.connections == 1


async def test_a_cut_is_another_connection_from_its_first_whole_frame_on(autojump_clock: object) -> None:
    audio = frames(20)
    station = Station(audio, [3000, 2100, None])
    web = MemoryWeb({URL: station})
    async with web.opened(URL) as stream:
        expected = audio[:3000] + audio[:2100] + audio
        assert await take(stream, len(expected)) == expected
        statistics = stream.statistics()
    assert (statistics.strategy, statistics.reconnects, statistics.requests) == ("radio", 2, 3)
    assert (station.most_open, statistics.hedges) == (1, 0)


async def test_a_connection_that_begins_inside_a_frame_is_heard_from_the_next_frame_on() -> None:
    audio = frames(20)
    web = MemoryWeb({URL: Station(audio[100:], [None])})
    async with web.opened(URL) as stream:
        assert await take(stream, 3000) == audio[FRAME_BYTES : FRAME_BYTES + 3000]


async def test_25_connections_in_a_row_without_audio_end_the_radio(autojump_clock: object) -> None:
    station = Station(frames(20), [5000] + [0] * 12 + [5000] + [0] * 99)
    begun = trio.current_time()
    with pytest.raises(StreamBrokenError, match="25 connections in a row brought no audio"):
        await everything(MemoryWeb({URL: station}))
    assert station.connections == 1 + 12 + 1 + radio.RECONNECTS
    assert 60 < trio.current_time() - begun < 300


async def everything(web: MemoryWeb, options: StreamOptions | None = None) -> None:
    async with web.opened(URL, options=options or StreamOptions()) as stream:
        async for _ in stream:
            pass


@pytest.mark.parametrize("status", [403, 404])
async def test_a_refusal_is_final(status: int, autojump_clock: object) -> None:
    station = Station(frames(20), [5000])
    web = MemoryWeb({})
    web.routes[URL] = lambda request: httpx2.Response(status) if station.connections else station(request)
    with pytest.raises(StreamBrokenError, match="refuses another connection"):
        await everything(web)
    assert len(web.requests) == 2


async def test_a_station_that_is_busy_is_asked_again_with_pauses(autojump_clock: object) -> None:
    station, busy = Station(frames(20), [5000, None]), [503] * 8
    web = MemoryWeb({})

    def route(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(busy.pop()) if station.connections == 1 and busy else station(request)

    web.routes[URL], begun = route, trio.current_time()
    async with web.opened(URL) as stream:
        assert len(await take(stream, 10_000)) == 10_000
    assert 5 < trio.current_time() - begun < 30


async def test_a_web_page_in_place_of_another_connection_is_a_loss(autojump_clock: object) -> None:
    audio, station = frames(20), Station(frames(20), [3000, None])
    answers = [0, 1, 1]

    def answer(request: httpx2.Request) -> httpx2.Response:
        if answers and answers.pop(0):
            return httpx2.Response(200, headers={"content-type": "text/html; charset=utf-8"}, content=b"busy")
        return station(request)

    web = MemoryWeb({URL: answer})
    async with web.opened(URL) as stream:
        assert await take(stream, 3000 + len(audio)) == audio[:3000] + audio
        assert stream.statistics().reconnects == 3


async def test_a_silent_station_is_connected_again_and_the_listener_is_told(autojump_clock: object) -> None:
    station, events = Station(frames(10), [None, None]), list[StreamEvent]()
    web = MemoryWeb({URL: station})
    async with web.opened(URL, options=StreamOptions(on_event=events.append, timeout=20)) as stream:
        assert len(await take(stream, 8000)) == 8000
    assert station.connections == 2
    waiting = next(event for event in events if isinstance(event, StreamWaiting))
    assert waiting.patience_seconds == float("inf")


async def test_going_live_drops_what_waits_and_connects_once_again() -> None:
    bodies = [frames(3000), frames(3020)[3000 * FRAME_BYTES :]]
    stations = [Station(body, [None]) for body in bodies]
    web = MemoryWeb({URL: lambda request: stations[len(web.requests) - 1](request)})
    async with web.opened(URL, options=StreamOptions(capacity_bytes=65_536)) as stream:
        assert await take(stream, 1000) == bodies[0][:1000]
        await trio.testing.wait_all_tasks_blocked()  # the ring is full, and no read is under way
        assert await trio.to_thread.run_sync(stream.seek_time, math.inf) is None
        assert await take(stream, len(bodies[1])) == bodies[1]
        assert stream.statistics().reconnects == 1
        assert [station.open for station in stations] == [0, 1]
        with pytest.raises(SeekError, match="got a radio"):
            await trio.to_thread.run_sync(stream.seek_time, 1.0)


@pytest.mark.parametrize(
    "failure",
    [httpx2.Response(503), httpx2.Response(500), httpcore2.ConnectError("no")],
    ids=["503", "500", "no connection"],
)
async def test_a_first_get_that_fails_is_asked_again_and_recognised_as_a_radio(
    failure: httpx2.Response | Exception, autojump_clock: object
) -> None:
    audio = frames(20)
    station = Station(audio, [None], titles=["One"])
    web, events = MemoryWeb({}), list[StreamEvent]()

    def route(request: httpx2.Request) -> httpx2.Response:
        if len(web.requests) > 1:
            return station(request)
        if isinstance(failure, Exception):
            raise failure
        return failure

    web.routes[URL] = route
    async with web.opened(URL, options=StreamOptions(on_event=events.append)) as stream:
        assert await take(stream, len(audio)) == audio
        assert stream.statistics().strategy == "radio"
    assert StreamTitle(title="One") in events
    assert len(web.requests) == 2


async def test_live_makes_a_radio_of_an_endless_body_without_its_headers(autojump_clock: object) -> None:
    audio = frames(20)
    bodies = [audio[:3000], audio]

    def plain(request: httpx2.Request) -> httpx2.Response:
        async def chunks() -> AsyncIterator[bytes]:
            yield bodies.pop(0)
            if not bodies:
                await trio.sleep_forever()

        return httpx2.Response(200, headers={"content-type": "audio/mpeg"}, content=chunks())

    web = MemoryWeb({URL: plain})
    async with web.opened(URL, options=StreamOptions(live=True)) as stream:
        assert await take(stream, 3000 + len(audio)) == audio[:3000] + audio


@pytest.mark.parametrize("is_cut", [True, False])
async def test_another_endless_body_ends_by_its_framing_and_is_never_asked_again(
    is_cut: bool, autojump_clock: object
) -> None:
    """A text-to-speech endpoint would speak a second time."""
    audio = frames(30)

    def speech(request: httpx2.Request) -> httpx2.Response:
        async def chunks() -> AsyncIterator[bytes]:
            yield audio
            if is_cut:
                raise httpcore2.RemoteProtocolError("peer closed connection without sending complete message")

        return httpx2.Response(200, headers={"content-type": "audio/mpeg"}, content=chunks())

    web, got = MemoryWeb({URL: speech}), b""
    error: PlayheadError | None = None
    async with web.opened(URL) as stream:
        try:
            async for chunk in stream:
                got += chunk
        except PlayheadError as broken:
            error = broken
    assert got == audio
    assert isinstance(error, StreamBrokenError) is is_cut
    assert len(web.requests) == 1


async def test_icy_200_ok_is_http_enough(tmp_path: Path) -> None:
    audio = frames(40)

    async def shoutcast(origin: RawOrigin, stream: trio.SocketStream, head: bytes) -> None:
        assert b"icy-metadata: 1\r\n" in head.lower()
        await stream.send_all(b"IC")
        await trio.testing.wait_all_tasks_blocked()
        await stream.send_all(b"Y 200 OK\r\ncontent-type: audio/mpeg\r\nicy-metaint: 1000\r\n\r\n")
        await stream.send_all(with_titles(audio, ["A"]))
        await trio.sleep_forever()

    async with raw_origin(shoutcast) as origin, aclosing(Web(allow_origins={origin_of(origin.url)})) as web:
        asked = await web.ask(f"{origin.url}/stream")
        assert asked.kind is WebKind.AUDIO
        async with asked.media.open() as stream:
            assert await take(stream, len(audio)) == audio
            assert stream.statistics().strategy == "radio"
        assert origin.connections == 1


async def test_chained_ogg_keeps_its_titles_and_sounds_as_its_links(run_directory: Path) -> None:
    links = [tagged_opus(number, run_directory) for number in range(3)]
    events: list[StreamEvent] = []

    def station(request: httpx2.Request) -> httpx2.Response:
        async def chunks() -> AsyncIterator[bytes]:
            whole = b"".join(links)
            for at in range(0, len(whole), 777):
                yield whole[at : at + 777]
            await trio.sleep_forever()

        return httpx2.Response(
            200, headers={"ice-audio-info": "x", "content-type": "audio/ogg"}, content=chunks()
        )

    expected = [await MemoryWeb({"/a": link}).decoded("/a") for link in links]
    total = sum(map(len, expected[:2]))
    web = MemoryWeb({URL: station})
    async with web.opened(URL, options=StreamOptions(on_event=events.append)) as stream:
        pcm = await trio.to_thread.run_sync(partial(decode_some, stream, total))
        assert pcm[:total] == b"".join(expected[:2])
    assert events[:2] == [StreamTitle(title="Band - Song 0"), StreamTitle(title="Band - Song 1")]
