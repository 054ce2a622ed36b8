"""`ranged_resource(growing=…)`: the bytes of an iterator for many readers, on servers of the SDK."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
import pytest
import trio
import trio.testing
from mcp import Client, MCPError
from mcp.server import MCPServer, Server
from trio.testing import MockClock

from playhead.cache import EARLIEST_META, LIVE_META, SIZE_META
from playhead.client import Session, connect
from playhead.errors import ServerError, UsageError
from playhead.servers.growing_source import ENDED_SECONDS, MOST_ITEMS
from playhead.servers.ranged_resource import RangedResource, ranged_resource
from playhead.stream.options import StreamOptions
from playhead.stream.reader import RangeStream
from tests.servers.counted_http import counted_http
from tests.servers.ranged_read import read_blob

URI = "speech://1.wav"
SPEECH = random.Random(8).randbytes(50_000)
SAVE = StreamOptions(profile="save")
AnyServer = Server[Any] | MCPServer


class Engine:
    """A speech engine whose pieces are made when the test says so."""

    def __init__(self) -> None:
        self._send, self._pieces = trio.open_memory_channel[bytes | Exception](1000)
        self.is_closed = False

    def make(self, *pieces: bytes | Exception) -> None:
        for piece in pieces:
            self._send.send_nowait(piece)

    def end(self) -> None:
        self._send.close()

    async def speech(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.is_closed = True


def methods_of(server: AnyServer) -> list[str]:
    """The methods that a server is asked for, from now on."""
    methods: list[str] = []

    async def note(ctx: Any, call_next: Any) -> Any:
        methods.append(ctx.method)
        return await call_next(ctx)

    lowlevel = server if isinstance(server, Server) else server._lowlevel_server
    lowlevel.middleware.insert(0, note)
    return methods


@asynccontextmanager
async def connected(server: AnyServer, place: str, mode: str) -> AsyncIterator[Session]:
    if place == "memory":
        async with connect(server, mode=mode) as session:
            yield session
        return
    async with (
        counted_http(server, json_response=False) as counted,
        connect(counted.url, mode=mode) as session,
    ):
        yield session


@pytest.mark.parametrize("kind", ["lowlevel", "MCPServer"])
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize("place", ["memory", "http"])
async def test_readers_get_every_byte_while_it_grows_and_are_notified(
    place: str, mode: str, kind: str
) -> None:
    server: AnyServer = Server("bare") if kind == "lowlevel" else MCPServer("own")
    calls, engine = methods_of(server), Engine()
    speech = ranged_resource(server, URI, growing=engine.speech, mime_type="audio/wav")
    got: list[bytes] = []
    streams: list[RangeStream] = []

    async def read(session: Session, *, task_status: trio.TaskStatus[None]) -> None:
        async with session.open(await speech.link(), options=SAVE) as stream:
            head = await stream.receive_some(1)
            streams.append(stream)
            task_status.started()
            got.append(head + await stream.read_all())
            statistics = stream.statistics()
        assert (statistics.ended_by, statistics.end_bytes) == ("size", len(SPEECH))
        assert statistics.is_live

    def is_notified() -> bool:
        return all(stream.statistics().notifications for stream in streams)

    with trio.fail_after(20):
        async with connected(server, place, mode) as session:
            async with trio.open_nursery() as nursery:
                engine.make(SPEECH[:1000])
                for _ in range(3):
                    await nursery.start(read, session)
                at = 1000
                while not is_notified():  # a subscription takes a moment to begin
                    engine.make(SPEECH[at : at + 20])
                    at += 20
                    await trio.testing.wait_all_tasks_blocked(0.01)
                engine.make(SPEECH[at:])
                engine.end()
            if mode == "legacy":
                while "resources/unsubscribe" not in calls:
                    await trio.testing.wait_all_tasks_blocked(0.001)
    assert got == [SPEECH] * 3
    assert engine.is_closed


async def test_a_link_says_that_it_grows_and_after_the_end_its_size() -> None:
    engine = Engine()
    speech = ranged_resource(MCPServer("own"), URI, growing=engine.speech())
    engine.make(b"abc")
    link = await speech.link()
    assert (link.size, link.meta) == (None, {LIVE_META: True})
    engine.end()
    await trio.testing.wait_all_tasks_blocked()
    link = await speech.link()
    assert (link.size, link.meta) == (3, {LIVE_META: False})


async def page(server: AnyServer, start: int, end: int) -> types.BlobResourceContents:
    error: MCPError | None = None
    async with Client(server) as client:
        try:
            return await read_blob(client, {"uri": URI, "arguments": {"start": start, "end": end}})
        except MCPError as refusal:
            error = refusal  # raised outside of the client, which would wrap it in groups
    assert error is not None
    raise error


async def test_a_page_has_the_present_size_and_an_empty_one_is_not_the_end() -> None:
    server, engine = MCPServer("own"), Engine()
    ranged_resource(server, URI, growing=engine.speech(), end_marker=b"[DONE]")
    engine.make(b"abcdef")
    await trio.testing.wait_all_tasks_blocked()
    blob = await page(server, 6, 100)
    assert (blob.blob, (blob.meta or {})[SIZE_META], (blob.meta or {})[LIVE_META]) == ("", 6, True)
    engine.end()
    await trio.testing.wait_all_tasks_blocked()
    blob = await page(server, 6, 100)
    assert (blob.blob, (blob.meta or {})[LIVE_META]) == ("W0RPTkVd", False)


async def test_without_a_range_it_is_refused_while_it_grows_and_whole_afterwards() -> None:
    server, engine = MCPServer("own"), Engine()
    ranged_resource(server, URI, growing=engine.speech())
    engine.make(b"abc")
    async with Client(server) as client:
        with pytest.raises(MCPError, match="it still grows, and no range was given"):
            await read_blob(client, {"uri": URI})
        engine.end()
        await trio.testing.wait_all_tasks_blocked()
        assert (await read_blob(client, {"uri": URI})).blob == "YWJj"


@pytest.mark.parametrize("failure", [RuntimeError("no voice"), "not bytes"])
async def test_a_failing_iterator_is_an_error_for_its_readers_after_its_last_byte(failure: Any) -> None:
    server, engine = MCPServer("own"), Engine()
    ranged_resource(server, URI, growing=engine.speech)
    engine.make(SPEECH, failure)
    got = bytearray()
    with trio.fail_after(10):
        async with connect(server) as session, session.open(URI, options=SAVE) as stream:
            name = type(failure).__name__ if isinstance(failure, Exception) else "TypeError"
            with pytest.raises(ServerError, match=rf"its source failed after 50000 bytes \({name}\)"):  # noqa: PT012
                async for chunk in stream:
                    got += chunk
    assert got == SPEECH


async def test_bytes_beyond_the_cap_are_dropped_and_the_error_names_the_earliest() -> None:
    server, engine = MCPServer("own"), Engine()
    ranged_resource(server, URI, growing=engine.speech(), kept_bytes=10_000)
    engine.make(*(SPEECH[at : at + 1000] for at in range(0, 50_000, 1000)))
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(MCPError, match="the bytes before 40000 were dropped") as caught:
        await page(server, 39_999, 50_000)
    assert caught.value.error.data == {EARLIEST_META: 40_000}
    assert (await page(server, 40_000, 50_000)).blob
    engine.end()
    async with connect(server) as session, session.open(URI) as stream:
        assert await stream.read_all() == SPEECH[40_032:]  # 139 times 288
        assert stream.statistics().skipped_bytes == 40_032


async def test_an_item_is_dropped_ten_minutes_after_its_end(autojump_clock: MockClock) -> None:
    server, engine = MCPServer("own"), Engine()
    speech = ranged_resource(server, URI, growing=engine.speech())
    engine.make(b"abc")
    engine.end()
    await trio.sleep(ENDED_SECONDS - 1)
    assert (await speech.link()).size == 3
    async with Client(server) as client:
        assert [each.uri for each in (await client.list_resources()).resources] == [URI]
        await trio.sleep(2)
        assert (await client.list_resources()).resources == []
    with pytest.raises(MCPError, match="dropped the resource after its end"):
        await speech.link()


def family(server: AnyServer, engines: dict[str, Engine]) -> RangedResource:
    def of(id: str) -> AsyncIterator[bytes]:
        engines[id] = Engine()
        return engines[id].speech()

    return ranged_resource(server, "speech://{id}", growing=of)


async def test_a_server_keeps_32_items_of_which_an_ended_one_makes_room() -> None:
    engines: dict[str, Engine] = {}
    speech = family(MCPServer("own"), engines)
    for number in range(MOST_ITEMS):
        await speech.link(id=str(number))
    with pytest.raises(MCPError, match="32 items are being made at once; wait until one ends"):
        await speech.link(id="one more")
    assert len(engines) == MOST_ITEMS, "the refused one is not begun"
    engines["7"].end()
    await trio.testing.wait_all_tasks_blocked()
    await speech.link(id="one more")
    assert len(engines) == MOST_ITEMS + 1


async def test_each_item_of_a_family_is_made_once_for_all_readers() -> None:
    server, engines = MCPServer("own"), dict[str, Engine]()
    speech = family(server, engines)
    for _ in range(3):
        await speech.link(id="a")
    await speech.link(id="b")
    assert sorted(engines) == ["a", "b"]
    engines["a"].make(SPEECH)
    engines["a"].end()
    async with connect(server) as session, session.open("speech://a", options=SAVE) as stream:
        assert await stream.read_all() == SPEECH


def test_what_does_not_grow_is_refused() -> None:
    server = MCPServer("own")
    for given in ({}, {"source": b"", "growing": Engine().speech}):
        with pytest.raises(UsageError, match="expected either a source or growing"):
            ranged_resource(server, URI, **given)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected a callable with the parameters id"):
        ranged_resource(server, "speech://{id}", growing=Engine().speech)


def test_under_asyncio_it_grows_too() -> None:
    async def speech() -> AsyncIterator[bytes]:
        for at in range(0, len(SPEECH), 5000):
            await asyncio.sleep(0)
            yield SPEECH[at : at + 5000]

    async def scene() -> bytes:
        server = MCPServer("own")
        ranged_resource(server, URI, growing=speech(), page_bytes=len(SPEECH))
        got = b""
        async with Client(server) as client:
            while True:
                where = {"start": len(got), "end": len(got) + 10_000}
                blob = await read_blob(client, {"uri": URI, "arguments": where})
                got += base64.b64decode(blob.blob)
                if not (blob.meta or {})[LIVE_META] and not blob.blob:
                    return got

    assert asyncio.run(scene()) == SPEECH
